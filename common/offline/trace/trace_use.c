/* What others ask of a trace beyond its datasets: whether it is intact, the neuron orders that follow
 * from its counts, and the model's facts for the memory account. */
#include "common/offline/trace/trace_impl.h"

#include "common/base/progress.h"
#include "common/offline/trace/together.h"
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

/* What a layer's blocks fired in the window, as together_order takes it. */
struct fired {
    int tokens;
    uint8_t *maps;              /* [tokens][slots][row] */
    uint16_t *blocks;           /* [tokens][slots] */
    uint64_t *bits;             /* [tokens][words]: of one block */
    const uint64_t **at;        /* [tokens] into it */
    uint32_t *place;            /* [n_ff] */
};

static int fired_new(const struct trace_info *i, struct fired *out, struct err *e)
{
    int tokens = i->window_tokens < TOGETHER_TOKENS ? (int)i->window_tokens : TOGETHER_TOKENS;
    size_t n = (size_t)tokens, k = (size_t)trace_slots(&i->h), n_ff = (size_t)i->h.n_ff;
    struct fired f = { .tokens = tokens, .maps = malloc(n * k * (size_t)trace_row_bytes(&i->h) + 1),
                       .blocks = calloc(n * k + 1, sizeof *f.blocks), .bits = malloc(n * (n_ff / 64 + 1) * sizeof *f.bits + 1),
                       .at = malloc(n * sizeof *f.at + 1), .place = malloc(n_ff * sizeof *f.place) };
    *out = f;
    return f.maps && f.blocks && f.bits && f.at && f.place ? 0 : err_set(e, ERR_NOMEM, "the window's maps of a layer");
}

static void fired_done(struct fired *f)
{
    free(f->maps);
    free(f->blocks);
    free(f->bits);
    free(f->at);
    free(f->place);
}

/* One token's map, by places in the order. */
static void place_map(const uint8_t *map, const uint32_t *place, int n_ff, uint64_t *bits)
{
    for (int byte = 0; byte < (n_ff + 7) / 8; byte++)
        for (unsigned m = map[byte]; m; m &= m - 1) {
            int i = byte * 8 + __builtin_ctz(m);
            if (i < n_ff)
                bits[place[i] / 64] |= (uint64_t)1 << place[i] % 64;
        }
}

/* orders: of the layer's blocks, by heat. */
static int order_together(struct trace *t, int layer, struct fired *f, uint32_t *orders, struct err *e)
{
    const struct model_hparams *h = &trace_info(t)->h;
    size_t n_ff = (size_t)h->n_ff, k = (size_t)trace_slots(h), row = (size_t)trace_row_bytes(h), words = n_ff / 64 + 1;
    int r = trace_maps(t, layer, 0, (uint64_t)f->tokens, f->maps, f->blocks, e);
    for (int b = 0; b < model_ffn_blocks(h) && r == 0; b++) {
        uint32_t *order = orders + (size_t)b * n_ff;
        int n = 0;
        for (uint32_t i = 0; i < n_ff; i++)
            f->place[order[i]] = i;
        for (size_t i = 0; i < (size_t)f->tokens * k && n < f->tokens; i++)
            if (f->blocks[i] == b) {
                uint64_t *bits = f->bits + (size_t)n * words;
                memset(bits, 0, words * sizeof *bits);
                place_map(f->maps + i * row, f->place, h->n_ff, bits);
                f->at[n++] = bits;
            }
        r = together_order(f->at, n, model_n_ff(h, layer), order, e);
    }
    return r;
}

static int orders_together(struct trace *t, uint32_t *orders, struct err *e)
{
    const struct model_hparams *h = &trace_info(t)->h;
    struct progress bar;
    struct fired f;
    int r = fired_new(trace_info(t), &f, e);
    progress_init(&bar, "ordering neurons by firing together", "layers", (uint64_t)h->n_layers);
    for (int l = 0; l < h->n_layers && f.tokens > 0 && r == 0; l++) {
        r = order_together(t, l, &f, orders + (size_t)l * (size_t)model_ffn_blocks(h) * (size_t)h->n_ff, e);
        progress_add(&bar, 1);
    }
    progress_done(&bar);
    fired_done(&f);
    return r;
}

int trace_orders(struct trace *t, enum layout_sort sort, uint32_t **orders, struct hash128 *order_hash, struct err *e)
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
    if (!r && sort == LAYOUT_TOGETHER)
        r = orders_together(t, all, e);
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
