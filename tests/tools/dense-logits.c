/* dense-logits [--dump-layer N] [--context N] MODEL.gguf ID,ID,... FILE [ID,ID,... FILE]...: the logits after each prompt by the dense
 * pass, into its file, as thermo-run logits prints them; and what it prints of a layer before. The context is the model's, 4096 at most. */
#include "common/base/print.h"
#include "common/kernels/kernels.h"
#include "common/offline/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const struct err *e)
{
    fprintf(stderr, "dense-logits: %s\n", e->msg);
    return 1;
}

static struct {
    FILE *out;
    int block, layer; /* the file's number; -1: none */
    size_t d_model, last;
} dumped = { .layer = -1 };

static void dump(void *ctx, int layer, enum op_kind op, const float *x)
{
    (void)ctx;
    if (layer != dumped.layer)
        return;
    fprintf(dumped.out, "{\"layer\":%d,\"after\":\"%s\",\"x\":", dumped.block, op == OP_EMBED ? "input" : graph_op_name(op));
    print_json_reals(dumped.out, x + dumped.last * dumped.d_model, dumped.d_model);
    fprintf(dumped.out, "}\n");
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
    const struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = 1, .on_op = dump };
    dumped.out = out;
    dumped.last = (size_t)starts[1] - 1;
    int r = z && out ? forward_run(f, &run, e) : err_set(e, ERR_SYS, "'%s'", path);
    if (r == 0 && (r = forward_logits(f, (size_t)starts[1] - 1, 1, z, e)) == 0) {
        fprintf(out, "{\"logits\":");
        print_json_reals(out, z, (size_t)m->h.n_vocab);
        fprintf(out, "}\n");
    }
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
    int block = -1, context = 0;
    if (argc > 3 && !strcmp(argv[1], "--dump-layer")) {
        block = atoi(argv[2]);
        argv += 2, argc -= 2;
    }
    if (argc > 3 && !strcmp(argv[1], "--context")) {
        context = atoi(argv[2]);
        argv += 2, argc -= 2;
    }
    if (argc < 4 || argc % 2) {
        fprintf(stderr, "usage: dense-logits [--dump-layer N] [--context N] MODEL.gguf ID,ID,... FILE [ID,ID,... FILE]...\n");
        return 2;
    }
    kernels_init(0);
    int r = gguf_open(argv[1], &g, &e);
    if (r == 0 && (r = model_open(g, NULL, &m, &e)) == 0 && (r = pool_new(2, NULL, &pool, &e)) == 0)
        r = forward_new(m, pool, context ? context : m->h.n_ctx_train < 4096 ? m->h.n_ctx_train : 4096, &f, &e);
    if (r == 0 && block >= model_depth(&m->h))
        r = err_set(&e, ERR_USAGE, "no layer %d", block);
    if (r == 0 && block >= 0)
        dumped.layer = model_layer_at(&m->h, block), dumped.block = block, dumped.d_model = (size_t)m->h.d_model;
    for (int i = 2; r == 0 && i < argc; i += 2)
        r = one(f, m, argv[i], argv[i + 1], &e);
    forward_free(f);
    pool_free(pool);
    model_close(m);
    gguf_close(g);
    return r < 0 ? failed(&e) : 0;
}
