/* gguf-requant IN.gguf OUT.gguf TYPE: the same model with every matrix in TYPE (q8_0, q4_0, f16, f32 ...) by the
 * standard rules; vectors (norms) and expert routers stay F32. Tests make their quantised models from
 * the embedded one with it, so that the repository carries a single GGUF. Rows are converted one at a time, through
 * float32, while the writer asks for them: memory does not grow with the model. */
#include "common/gguf.h"
#include "common/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const struct gguf *in;
    const uint32_t *type; /* [tensors] of the output */
    uint8_t *row;         /* one input row, the longest */
    float *values;        /* the same, as float32 */
};

static int fill(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e)
{
    const struct job *j = ctx;
    const struct gguf_tensor *t = &j->in->tensors[tensor];
    uint32_t type = j->type[tensor];
    size_t out_row = quant_row_bytes(type, t->dims[0]);
    if (type == t->type)
        return gguf_read(j->in, t, offset, buf, len, e);
    for (size_t at = 0; at < len; at += out_row) {
        uint64_t row = (offset + at) / out_row;
        int r = gguf_read(j->in, t, row * t->row_bytes, j->row, (size_t)t->row_bytes, e);
        if (r < 0)
            return r;
        quant_traits(t->type)->dequant(j->values, j->row, (size_t)t->dims[0]);
        quant_traits(type)->quant((uint8_t *)buf + at, j->values, (size_t)t->dims[0]);
    }
    return 0;
}

/* GGUF's general.file_type: "mostly" this type. */
static uint32_t file_type(uint32_t type)
{
    switch (type) {
    case QUANT_F16: return 1;
    case QUANT_Q4_0: return 2;
    case QUANT_Q8_0: return 7;
    default: return 0;
    }
}

static int keys(struct gguf_writer *w, const struct gguf *g, uint32_t type, struct err *e)
{
    int r = gguf_writer_u32(w, "general.file_type", file_type(type), e);
    for (uint64_t i = 0; i < g->n_keys && r >= 0; i++)
        if (strcmp(g->keys[i].name, "general.file_type") && strncmp(g->keys[i].name, "split.", 6))
            r = gguf_writer_kv_raw(w, &g->keys[i], e);
    return r;
}

static int tensors(struct gguf_writer *w, struct job *j, uint32_t *type, uint32_t to, struct err *e)
{
    size_t row_bytes = 1, row_elems = 1;
    for (uint64_t i = 0; i < j->in->n_tensors; i++) {
        const struct gguf_tensor *t = &j->in->tensors[i];
        type[i] = t->n_dims >= 2 && !strstr(t->name, "ffn_gate_inp") ? to : t->type;
        if (!quant_traits(t->type)->dequant)
            return err_set(e, ERR_UNSUPPORTED, "tensor '%s': cannot read type %s", t->name,
                           quant_traits(t->type)->name);
        if (!quant_row_bytes(type[i], t->dims[0]))
            return err_set(e, ERR_UNSUPPORTED, "tensor '%s': rows of %" PRIu64 " do not divide into blocks of %s",
                           t->name, t->dims[0], quant_traits(to)->name);
        row_bytes = t->row_bytes > row_bytes ? (size_t)t->row_bytes : row_bytes;
        row_elems = t->dims[0] > row_elems ? (size_t)t->dims[0] : row_elems;
        int r = gguf_writer_tensor(w, t->name, type[i], t->n_dims, t->dims, e);
        if (r < 0)
            return r;
    }
    j->row = malloc(row_bytes);
    j->values = malloc(row_elems * sizeof *j->values);
    return j->row && j->values ? 0 : err_set(e, ERR_NOMEM, "a row of %zu values", row_elems);
}

static int requant(const char *in, const char *out, uint32_t to, struct err *e)
{
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    struct job j = { 0 };
    uint32_t *type = NULL;
    int r;
    if ((r = gguf_open(in, &g, e)) < 0 || (r = gguf_writer_new(&w, e)) < 0)
        goto done;
    j.in = g;
    j.type = type = calloc(g->n_tensors + 1, sizeof *type);
    if (!type)
        r = err_set(e, ERR_NOMEM, "%" PRIu64 " tensors", g->n_tensors);
    else if ((r = keys(w, g, to, e)) >= 0 && (r = tensors(w, &j, type, to, e)) >= 0)
        r = gguf_writer_save(w, out, fill, &j, e);
done:
    free(type);
    free(j.row);
    free(j.values);
    gguf_writer_free(w);
    gguf_close(g);
    return r;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    int to = argc == 4 ? quant_by_name(argv[3]) : -1;
    if (to < 0 || !quant_traits((uint32_t)to)->quant) {
        fprintf(stderr, "usage: gguf-requant IN.gguf OUT.gguf TYPE   (f32, f16, q8_0, q4_0 ...)\n");
        return 2;
    }
    if (requant(argv[1], argv[2], (uint32_t)to, &e) < 0) {
        fprintf(stderr, "gguf-requant: %s\n", e.msg);
        return err_exit_status(e.code);
    }
    return 0;
}
