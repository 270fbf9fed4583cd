/* dense-logits MODEL.gguf ID,ID,... FILE [ID,ID,... FILE]...: the logits after each prompt by the dense pass, into its file, as
 * thermo-run logits prints them. */
#include "common/kernels/kernels.h"
#include "common/offline/forward.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const struct err *e)
{
    fprintf(stderr, "dense-logits: %s\n", e->msg);
    return 1;
}

static int one(struct forward *f, const struct model *m, const char *prompt, const char *path, struct err *e)
{
    static uint32_t ids[4096];
    uint64_t starts[2] = { 0, 0 };
    float *z = malloc((size_t)m->h.n_vocab * sizeof *z);
    FILE *out = fopen(path, "w");
    char *end = NULL;
    for (const char *at = prompt; *at && starts[1] < 4096; at = *end ? end + 1 : end)
        ids[starts[1]++] = (uint32_t)strtoul(at, &end, 10);
    const struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = 1 };
    int r = z && out ? forward_run(f, &run, e) : err_set(e, ERR_SYS, "'%s'", path);
    if (r == 0 && (r = forward_logits(f, (size_t)starts[1] - 1, 1, z, e)) == 0)
        for (int i = 0; i < m->h.n_vocab; i++)
            fprintf(out, "%s%.9g", i ? "," : "{\"logits\":[", (double)z[i]);
    if (r == 0)
        fprintf(out, "]}\n");
    if (out && fclose(out) && r == 0)
        r = err_set(e, ERR_SYS, "'%s'", path);
    free(z);
    return r;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct pool *pool = NULL;
    struct forward *f = NULL;
    if (argc < 4 || argc % 2) {
        fprintf(stderr, "usage: dense-logits MODEL.gguf ID,ID,... FILE [ID,ID,... FILE]...\n");
        return 2;
    }
    kernels_init(0);
    int r = gguf_open(argv[1], &g, &e);
    if (r == 0 && (r = model_open(g, NULL, &m, &e)) == 0 && (r = pool_new(2, NULL, &pool, &e)) == 0)
        r = forward_new(m, pool, m->h.n_ctx_train < 4096 ? m->h.n_ctx_train : 4096, &f, &e);
    for (int i = 2; r == 0 && i < argc; i += 2)
        r = one(f, m, argv[i], argv[i + 1], &e);
    forward_free(f);
    pool_free(pool);
    model_close(m);
    gguf_close(g);
    return r < 0 ? failed(&e) : 0;
}
