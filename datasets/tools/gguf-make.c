/* gguf-make: the program's commands, and what they share: a list of tensors becomes a file. Tensors are
 * made row by row while the writer asks for them, so memory does not grow with the model. */
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/splitmix.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "common/model/model.h"
#include "datasets/tools/make.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int make_new(struct make *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    return gguf_writer_new(&m->w, e);
}

void make_free(struct make *m)
{
    gguf_writer_free(m->w);
    for (int i = 0; i < m->n_pools; i++)
        free(m->pools[i]);
    free(m->tensors);
}

int make_type(const char *name, uint32_t *out, struct err *e)
{
    int t = quant_by_name(name);
    if (t < 0 || !quant_traits((uint32_t)t)->quant)
        return err_set(e, ERR_USAGE, "--type %s: this build quantises to f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, "
                       "q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4", name);
    *out = (uint32_t)t;
    return 0;
}

int make_add(struct make *m, const struct make_tensor *t, struct err *e)
{
    uint64_t bytes = quant_row_bytes(t->type, t->dims[0]);
    if (bytes == 0)
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s': rows of %" PRIu64 " elements do not divide into blocks of %s",
                       t->name, t->dims[0], quant_traits(t->type)->name);
    int r = gguf_writer_tensor(m->w, t->name, t->type, t->n_dims, t->dims, e); /* checks the product */
    if (r < 0)
        return r;
    if (m->n_tensors == m->cap_tensors) {
        int cap = m->cap_tensors ? 2 * m->cap_tensors : 64;
        struct make_tensor *grown = realloc(m->tensors, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
        m->tensors = grown;
        m->cap_tensors = cap;
    }
    m->tensors[m->n_tensors++] = *t;
    for (int d = 1; d < t->n_dims; d++)
        bytes *= t->dims[d];
    m->bytes += bytes;
    return 0;
}

struct saving {
    const struct make *m;
    float *row;
    struct progress progress;
};

static void pooled(const struct make_tensor *t, uint64_t offset, uint8_t *out, size_t len)
{
    size_t block = quant_traits(t->type)->block_bytes;
    for (size_t at = 0; at < len; at += block)
        memcpy(out + at, t->pool + splitmix_at(t->stream ^ (offset + at)) % MAKE_POOL * block, block);
}

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    struct saving *s = ctx;
    const struct make_tensor *t = &s->m->tensors[tensor];
    int r = 0;
    if (t->source && t->source_tensor->type == t->type) {
        r = gguf_read(t->source, t->source_tensor, offset, buf, len, e); /* bit for bit */
    } else if (t->pool) {
        pooled(t, offset, buf, len);
    } else {
        size_t row_bytes = quant_row_bytes(t->type, t->dims[0]);
        for (size_t at = 0; r == 0 && at < len; at += row_bytes)
            if ((r = t->row(t, (offset + at) / row_bytes, s->row, e)) == 0)
                quant_traits(t->type)->quant((uint8_t *)buf + at, s->row, (size_t)t->dims[0]);
    }
    progress_add(&s->progress, len);
    return r;
}

/* The header must be read back as a model. Where its data would lie beyond any file does not matter here. */
static int check_header(struct make *m, const char *path, struct err *e)
{
    uint8_t *head;
    size_t len;
    struct gguf *g = NULL;
    struct model *model;
    /* What a source leaves unstated may stay so. */
    const struct model_given given = { -1, m->router_unstated ? MODEL_ROUTER_SOFTMAX_TOPK : MODEL_ROUTER_NONE, NULL, m->nextn_only };
    int r = gguf_writer_blob(m->w, &head, &len, e);
    if (r < 0)
        return r;
    if ((r = gguf_parse(head, len, UINT64_MAX, path, &g, e)) == 0 && (r = model_open(g, &given, &model, e)) == 0)
        model_close(model);
    gguf_close(g);
    free(head);
    return r;
}

int make_save(struct make *m, const char *path, struct err *e)
{
    struct saving s = { .m = m };
    uint64_t longest = 1;
    char size[24];
    for (int i = 0; i < m->n_tensors; i++)
        longest = m->tensors[i].dims[0] > longest ? m->tensors[i].dims[0] : longest;
    int r = check_header(m, path, e);
    if (r < 0 || (r = file_enough_space(path, m->bytes, e)) < 0)
        return r;
    s.row = malloc((size_t)longest * sizeof *s.row);
    if (!s.row)
        return err_set(e, ERR_NOMEM, "a row of %" PRIu64 " elements", longest);
    file_catch_interrupt();
    progress_init(&s.progress, "writing", "B", m->bytes);
    r = gguf_writer_save(m->w, path, fill, &s, e);
    progress_done(&s.progress);
    free(s.row);
    if (r == 0)
        log_info("'%s': %d tensors, %s", path, m->n_tensors, size_format(m->bytes, size, sizeof size));
    return r;
}

static const struct opt_command commands[] = {
    { "powerinfer", cmd_powerinfer, "the same model as PowerInfer's GGUF: transposed Down, predictors" },
    { "apply-delta", cmd_apply_delta, "a model out of another and what it differs by" },
    { "random", cmd_random, "a model of a given shape with random weights" },
    { 0 }
};

int main(int argc, char **argv)
{
    return opt_main("gguf-make", "Make GGUF models for tests and comparisons.", commands, "GGUF 3", argc, argv);
}
