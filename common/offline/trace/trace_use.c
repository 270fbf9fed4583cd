/* What others ask of a trace beyond its datasets: whether it is intact, the neuron orders that follow
 * from its counts, and the model's facts for the memory account. */
#include "common/offline/trace/trace_impl.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 };

static int hash_set(struct trace *t, enum trace_set s, int layer, struct hash128 *out, struct err *e)
{
    uint64_t dims[3], row;
    int r = 0;
    if (!trace_set_dims(trace_info(t), s, dims, &row))
        return 0;
    uint64_t step = row < PIECE ? PIECE / row : 1;
    struct hash *h = hash_new();
    void *buf = NULL;
    /* The first read, of one row, checks the shape against the size of the file. */
    for (uint64_t at = 0; at < dims[0] && !r; at += step) {
        uint64_t n = dims[0] - at < step ? dims[0] - at : step;
        if (!buf && !(buf = malloc((size_t)(step * row))))
            r = err_set(e, ERR_NOMEM, "%llu bytes of '%s'", (unsigned long long)(step * row), trace_set_specs[s].name);
        else if ((r = trace_read_rows(t, s, layer, at, n, buf, e)) == 0)
            hash_update(h, buf, (size_t)(n * row));
    }
    *out = hash_final128(h);
    hash_free(h);
    free(buf);
    return r;
}

static int verify_part(struct trace *t, enum trace_part part, int layer, struct hash128 *out, struct err *e)
{
    struct hash128 sets[TRACE_SETS], stored;
    char path[32];
    int r;
    memset(sets, 0, sizeof sets);
    for (int s = 0; s < TRACE_SETS; s++)
        if (trace_set_specs[s].part == part && (r = hash_set(t, s, layer, &sets[s], e)) < 0)
            return r;
    trace_part_path(part, layer, path);
    if ((r = trace_stored_hash(t, path, &stored, e)) < 0)
        return r;
    *out = trace_part_hash(trace_info(t), part, sets);
    if (!hash_equal(*out, stored))
        return err_set(e, ERR_FORMAT, "'%s': the content of '%s' does not match its hash", trace_info(t)->path, path);
    return 0;
}

int trace_expect(struct trace *t, const struct model_hparams *h, struct gguf *g, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    struct hash128 *want = calloc(g->n_tensors + 1, sizeof *want);
    if (!want)
        return err_set(e, ERR_NOMEM, "hashes of %llu tensors", (unsigned long long)g->n_tensors);
    const struct hash128 none = { 0, 0 };
    int r = 0;
    for (int k = 0; k < i->n_tensors; k++) {
        const struct gguf_tensor *x = gguf_tensor(g, i->tensors[k].name);
        if (x)
            want[x - g->tensors] = i->tensors[k].hash;
    }
    for (uint64_t k = 0; k < g->n_tensors && r == 0; k++)
        if (hash_equal(want[k], none) && !model_leaves_out(h, g->tensors[k].name))
            r = err_set(e, ERR_MISMATCH, "'%s' has tensor '%s'; the model traced in '%s' has not", gguf_name(g), g->tensors[k].name,
                        i->path);
    r = r < 0 ? r : gguf_expect(g, want, i->path, e);
    free(want);
    return r;
}

int trace_verify(struct trace *t, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    int n = i->h.n_layers, r;
    struct hash128 corpus, batches, *layers = calloc((size_t)n, sizeof *layers);
    if (!layers)
        return err_set(e, ERR_NOMEM, "hashes of %d layers", n);
    if ((r = verify_part(t, TRACE_PART_CORPUS, 0, &corpus, e)) < 0 ||
        (r = verify_part(t, TRACE_PART_BATCHES, 0, &batches, e)) < 0)
        goto out;
    for (int l = 0; l < n && !r; l++)
        r = verify_part(t, TRACE_PART_LAYER, l, &layers[l], e);
    if (!r && !hash_equal(trace_content_hash(i, corpus, batches, layers), i->content_hash))
        r = err_set(e, ERR_FORMAT, "'%s': its parts do not match the content hash of the whole", i->path);
out:
    free(layers);
    return r;
}

int trace_orders(struct trace *t, uint32_t **orders, struct hash128 *order_hash, struct err *e)
{
    const struct model_hparams *h = &trace_info(t)->h;
    int n_blocks = model_ffn_blocks(h), r = 0;
    size_t n_ff = (size_t)h->n_ff;
    uint32_t *all = NULL;
    uint64_t *counts = malloc(n_ff * sizeof *counts);
    for (int l = 0; l < h->n_layers && !r; l++)
        for (int b = 0; b < n_blocks && !r; b++) {
            if (!counts || (r = trace_counts(t, l, b, counts, NULL, e)) < 0)
                break;
            if (!all && !(all = malloc((size_t)h->n_layers * (size_t)n_blocks * n_ff * sizeof *all)))
                break;
            layout_order(counts, h->n_ff, all + ((size_t)l * (size_t)n_blocks + (size_t)b) * n_ff);
        }
    if (!r && (!counts || !all))
        r = err_set(e, ERR_NOMEM, "orders of %d layers", h->n_layers);
    free(counts);
    if (r < 0) {
        free(all);
        return r;
    }
    if (order_hash)
        *order_hash = layout_order_hash(all, h->n_layers, n_blocks, h->n_ff);
    *orders = all;
    return 0;
}

int trace_budget_model(const struct trace *t, const struct layout *l, struct budget_model *out, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    struct budget_model m = { .h = i->h, .vocab_text_bytes = i->vocab_text_bytes, .n_merges = i->n_merges,
                              .meta_bytes = i->meta_bytes };
    int r = layout_derive(l, i->h.d_model, i->h.n_ff, &m.shapes, e);
    if (r < 0)
        return r;
    /* The packer keeps every tensor but gate, up and down as a dense one. */
    for (int k = 0; k < i->n_tensors; k++)
        if (model_role_is_dense(i->tensors[k].role) &&
            budget_add_dense(&m, i->tensors[k].role, i->tensors[k].bytes, i->tensors[k].dims[1], 1))
            return err_set(e, ERR_LIMIT, "'%s': the sizes of its tensors overflow", i->path);
    *out = m;
    return 0;
}
