/* From a trace to plain numbers. Neurons are renumbered to their pack position (trace_orders, which the packer asks, too; the plan
 * carries its hash), so that every hot set is a prefix
 * and a curve of prefix sums answers "how many fire beyond it". */
#include "planner/inputs/inputs.h"

#include "common/kernels/quant.h"
#include "common/offline/trace/trace.h"

#include <stdlib.h>
#include <string.h>

static int batch_size_index(int batch)
{
    for (int i = 0; i < TRACE_BATCH_SIZES; i++)
        if (trace_batch_sizes[i] == batch)
            return i;
    return -1;
}

static struct inputs_matrix matrix_of(const struct trace_tensor *t)
{
    struct inputs_matrix m = { 0 };
    if (t) {
        uint64_t rows = t->dims[1] * t->dims[2];
        m = (struct inputs_matrix){ .type = t->type, .rows = (int)(rows < INT32_MAX ? rows : INT32_MAX), .cols = (int)t->dims[0],
                                    .bytes = t->bytes };
    }
    return m;
}

static int read_shape(struct inputs *in, const struct trace_info *ti, struct err *e)
{
    in->h = ti->h;
    in->n_layers = ti->h.n_layers;
    in->n_blocks = model_ffn_blocks(&ti->h);
    in->n_used = trace_slots(&ti->h);
    in->model_hash = ti->model_hash;
    in->trace_hash = ti->content_hash;
    in->n_tokens = ti->n_tokens;
    in->window_tokens = ti->window_tokens;
    memcpy(in->name, ti->h.name, sizeof in->name);
    if (in->n_tokens == 0)
        return err_set(e, ERR_FORMAT, "trace '%s' holds no tokens", ti->path);
    return inputs_alloc(in, e);
}

static int read_matrices(struct inputs *in, const struct trace_info *ti, struct err *e)
{
    static const enum model_role ffn[LAYOUT_ROLES] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };
    for (int r = 0; r < LAYOUT_ROLES; r++)
        for (int l = 0; l < in->n_layers; l++) {
            const struct trace_tensor *t = trace_tensor_find(ti, ffn[r], l);
            if (!t)
                return err_set(e, ERR_FORMAT, "trace '%s': layer %d has no tensor %s", ti->path, l,
                               model_role_name(ffn[r]));
            if (!quant_traits(t->type))
                return err_set(e, ERR_UNSUPPORTED, "trace '%s': %s of layer %d has type %u, which is not known", ti->path,
                               model_role_name(ffn[r]), l, t->type);
            in->layers[l].ffn_type[r] = t->type;
        }
    for (int i = 0; i < graph_n_roles; i++)
        for (int k = 0; k < ti->n_tensors && graph_roles[i].job; k++) {
            const struct trace_tensor *t = &ti->tensors[k];
            int l = t->role == MODEL_LAYER_MIX ? model_layer_at(&in->h, 0) : t->layer; /* it comes before the first */
            int here = (int)t->role == graph_roles[i].role && l >= 0 && l < model_depth(&in->h);
            if (here && in->layers[l].n < GRAPH_PRODUCTS)
                inputs_add_product(&in->layers[l], &graph_roles[i], matrix_of(t));
        }
    const struct trace_tensor *embd = trace_tensor_find(ti, MODEL_TOKEN_EMBD, -1);
    const struct trace_tensor *head = trace_tensor_find(ti, MODEL_OUTPUT, -1);
    in->head = matrix_of(head ? head : embd);
    in->embd_row_bytes = embd && embd->dims[1] ? embd->bytes / embd->dims[1] : 0;
    return 0;
}

void inputs_fill_curve(struct inputs_curve *c, const uint64_t *counts, const uint32_t *position, int n_ff, double n_steps)
{
    for (int i = 0; i < n_ff; i++)
        c->cum[position[i] + 1] = (double)counts[i] / n_steps;
    for (int i = 0; i < n_ff; i++)
        c->cum[i + 1] += c->cum[i];
}

/* See struct inputs. */
static int consecutive_from_trace(const struct inputs *in, int batch_index, int layer, struct inputs_curve *out, struct err *e)
{
    struct trace *t = in->trace;
    size_t n_ff = (size_t)in->h.n_ff;
    int i = batch_size_index(inputs_batch_sizes[batch_index]), r = 0;
    uint64_t n = trace_info(t)->n_batches[TRACE_BATCH_CONSECUTIVE][i], routed = 0, *counts;
    if (n == 0)
        return 0;
    if (!(counts = malloc(n_ff * sizeof *counts)))
        return err_set(e, ERR_NOMEM, "out of memory for the counts of layer %d", layer);
    for (int k = 0; k < in->n_blocks && r == 0; k++) {
        const uint32_t *pos = in->position + ((size_t)layer * (size_t)in->n_blocks + (size_t)k) * n_ff;
        if (in->n_blocks > 1)
            r = trace_batch_routed(t, TRACE_BATCH_CONSECUTIVE, i, layer, k, &routed, e);
        out[k].routed = in->n_blocks > 1 ? (double)routed / (double)n : 1;
        if (r == 0 && out[k].cum && (r = trace_batch_counts(t, TRACE_BATCH_CONSECUTIVE, i, layer, k, counts, NULL, e)) == 0)
            inputs_fill_curve(&out[k], counts, pos, in->h.n_ff, (double)n);
    }
    free(counts);
    return r < 0 ? r : 1;
}

static int read_curve(struct inputs *in, struct trace *t, int b, int layer, int block, uint64_t *counts,
                      struct err *e)
{
    struct inputs_curve *c = &in->curves[((size_t)b * (size_t)in->n_layers + (size_t)layer) * (size_t)in->n_blocks +
                                         (size_t)block];
    const uint32_t *pos = in->position + ((size_t)layer * (size_t)in->n_blocks + (size_t)block) * (size_t)in->h.n_ff;
    int size = inputs_batch_sizes[b], r;
    uint64_t n = 0, routed = 0;
    if (size == 1) {
        if ((r = trace_counts(t, layer, block, counts, &routed, e)) < 0)
            return r;
        n = in->n_tokens;
    } else {
        int i = batch_size_index(size);
        if ((r = trace_batch_counts(t, TRACE_BATCH_SEQUENCES, i, layer, block, counts, &n, e)) < 0 ||
            (r = trace_batch_routed(t, TRACE_BATCH_SEQUENCES, i, layer, block, &routed, e)) < 0)
            return r;
        if (n == 0)
            return err_set(e, ERR_UNSUPPORTED, "the trace has no batches of %d sequences: trace at least %d "
                                               "prompts, or "
                           "plan with a smaller --max-batch", size, size);
    }
    inputs_fill_curve(c, counts, pos, in->h.n_ff, (double)n);
    c->routed = (double)routed / (double)n;
    return 0;
}

static int read_loads(struct inputs *in, struct trace *t, uint64_t *counts, struct err *e)
{
    for (int l = 0; l < in->n_layers; l++) {
        double open = 0, fire = inputs_active(in, 0, l, 0) * (double)in->n_tokens;
        for (int k = 0; k < in->n_blocks; k++) {
            int r = trace_gate_counts(t, l, k, counts, e);
            if (r < 0)
                return r;
            for (int i = 0; i < in->h.n_ff; i++)
                open += (double)counts[i];
        }
        in->loads[l] = fire > 0 && open > fire ? open / fire : 1;
    }
    return 0;
}

static int read_curves(struct inputs *in, struct trace *t, struct err *e)
{
    size_t n_ff = (size_t)in->h.n_ff, n = (size_t)in->n_layers * (size_t)in->n_blocks;
    uint32_t *orders;
    int r = trace_orders(t, in->sort, &orders, &in->order_hash, e);
    if (r < 0)
        return r;
    uint64_t *counts = malloc(n_ff * sizeof *counts);
    in->position = malloc(n * n_ff * sizeof *in->position);
    if (!counts || !in->position) {
        r = err_set(e, ERR_NOMEM, "out of memory for the neuron order");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < n_ff; p++)
            in->position[i * n_ff + orders[i * n_ff + p]] = (uint32_t)p;
    for (int b = 0; b < in->n_batches && r == 0; b++)
        for (int l = 0; l < in->n_layers && r == 0 && !inputs_counts_in_window(in, b); l++)
            for (int k = 0; k < in->n_blocks && r == 0; k++)
                r = read_curve(in, t, b, l, k, counts, e);
    if (r == 0)
        r = inputs_curves_from_window(in, t, e);
    if (r == 0 && in->h.act == MODEL_ACT_DRELU)
        r = read_loads(in, t, counts, e);
out:
    free(counts);
    free(orders);
    return r;
}

/* The positions that one token's map of one block sets, as bits of mark from `base` on. */
static size_t mark_map(const uint8_t *map, const uint32_t *pos, int n_ff, size_t base, uint64_t *mark)
{
    size_t n = 0;
    for (int byte = 0; byte < (n_ff + 7) / 8; byte++)
        for (uint32_t bits = map[byte]; bits; bits &= bits - 1) {
            int i = byte * 8 + __builtin_ctz(bits);
            if (i >= n_ff)
                break;
            size_t at = base + pos[i];
            mark[at / 64] |= (uint64_t)1 << at % 64;
            n++;
        }
    return n;
}

/* One token: bits of mark appended to s->at in ascending order, and cleared. n: at most so many are set. */
static int append_marked(struct inputs_steps *s, uint64_t *mark, size_t words, size_t n, size_t *len, size_t *cap)
{
    if (*len > UINT32_MAX / 2)
        return -1;
    if (*cap - *len < n) {
        size_t most = *len + *len / 2 + n + 4096;
        uint32_t *grown = realloc(s->at, most * sizeof *grown);
        if (!grown)
            return -1;
        s->at = grown;
        *cap = most;
    }
    for (size_t w = 0; w < words; w++) {
        for (uint64_t m = mark[w]; m; m &= m - 1)
            s->at[(*len)++] = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(m);
        mark[w] = 0;
    }
    return 0;
}

static int read_steps(const struct inputs *in, int layer, uint64_t total, struct inputs_steps *out, struct err *e)
{
    enum { CHUNK = 256 };
    size_t k = (size_t)in->n_used, n_ff = (size_t)in->h.n_ff, row = (n_ff + 7) / 8, n = 0, cap = 0;
    size_t words = (size_t)in->n_blocks * n_ff / 64 + 1;
    const uint32_t *pos = in->position + (size_t)layer * (size_t)in->n_blocks * n_ff;
    struct inputs_steps s = { .start = malloc(((size_t)total + 1) * sizeof *s.start) };
    uint8_t *maps = malloc(CHUNK * k * row);
    uint16_t *blocks = calloc(CHUNK * k, sizeof *blocks);
    uint64_t *mark = calloc(words, sizeof *mark);
    int r = 0;
    if (!s.start || !maps || !blocks || !mark)
        goto nomem;
    for (uint64_t first = 0; first < total; first += CHUNK) {
        uint64_t m = total - first < CHUNK ? total - first : CHUNK;
        if ((r = trace_maps(in->trace, layer, first, m, maps, blocks, e)) < 0)
            goto out;
        for (size_t i = 0; i < (size_t)m; i++) {
            size_t set = 0;
            s.start[s.n_steps++] = (uint32_t)n;
            for (size_t j = 0; j < k; j++) {
                size_t block = blocks[i * k + j];
                if (block >= (size_t)in->n_blocks) {
                    r = err_set(e, ERR_FORMAT, "trace: token %llu of layer %d was routed to expert %zu of %d",
                                (unsigned long long)(first + i), layer, block, in->n_blocks);
                    goto out;
                }
                set += mark_map(maps + (i * k + j) * row, pos + block * n_ff, inputs_n_ff(in, layer), block * n_ff, mark);
            }
            if (append_marked(&s, mark, words, set, &n, &cap) < 0)
                goto nomem;
        }
    }
    s.start[s.n_steps] = (uint32_t)n;
    *out = s;
    goto free_all;
nomem:
    r = err_set(e, ERR_NOMEM, "out of memory for the activation maps of layer %d", layer);
out:
    inputs_steps_done(&s);
free_all:
    free(maps);
    free(blocks);
    free(mark);
    return r;
}

static int steps_from_trace(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out,
                            struct err *e)
{
    uint64_t total = in->window_tokens < max_steps ? in->window_tokens : max_steps;
    const uint32_t fired[2] = { 0, (uint32_t)layer };
    struct hash128 key = hash_128(fired, sizeof fired);
    int r = list_cache_get(in->lists, key, total, out, e);
    if (r == 0 && (r = read_steps(in, layer, total, out, e)) == 0) {
        if ((r = inputs_cold_thin(in, layer, out, e)) < 0) {
            inputs_steps_done(out);
            return r;
        }
        list_cache_add(in->lists, key, out);
    }
    return r < 0 ? r : 0;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int routes_from_trace(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    uint64_t total = in->n_tokens < max_steps ? in->n_tokens : max_steps;
    size_t k = (size_t)in->n_used;
    if (total > UINT32_MAX / k || total > INT32_MAX)
        return err_set(e, ERR_LIMIT, "the routes of %llu tokens are too many", (unsigned long long)total);
    struct inputs_steps s = { .n_steps = (int)total, .start = malloc(((size_t)total + 1) * sizeof *s.start),
                              .at = malloc((size_t)total * k * sizeof *s.at + 1) };
    uint16_t *blocks = malloc((size_t)total * k * sizeof *blocks + 1);
    int r = s.start && s.at && blocks ? trace_routing(in->trace, layer, 0, total, blocks, e) :
                                        err_set(e, ERR_NOMEM, "out of memory for the routes of layer %d", layer);
    for (size_t t = 0; t <= (size_t)total && r == 0; t++) {
        s.start[t] = (uint32_t)(t * k);
        for (size_t i = 0; t < (size_t)total && i < k; i++)
            s.at[t * k + i] = (uint32_t)blocks[t * k + i] * (uint32_t)in->h.n_ff;
        if (t < (size_t)total)
            qsort(s.at + t * k, k, sizeof *s.at, ascending);
    }
    free(blocks);
    if (r < 0)
        inputs_steps_done(&s);
    else
        *out = s;
    return r;
}

static int foreseen_from_trace(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    uint64_t total = in->n_tokens < max_steps ? in->n_tokens : max_steps;
    size_t k = (size_t)in->n_used;
    if (total > UINT32_MAX / k || total > INT32_MAX)
        return err_set(e, ERR_LIMIT, "the routes of %llu tokens are too many", (unsigned long long)total);
    uint32_t *start = malloc(((size_t)total + 1) * sizeof *start), *guess = malloc((size_t)total * k * sizeof *guess + 1);
    uint16_t *blocks = malloc((size_t)total * k * sizeof *blocks + 1);
    int r = start && guess && blocks ? trace_foreseen(in->trace, layer, 0, total, blocks, e) :
                                       err_set(e, ERR_NOMEM, "out of memory for what is foreseen of layer %d", layer);
    for (size_t t = 0; t <= (size_t)total && r == 0; t++)
        start[t] = (uint32_t)(t * k);
    for (size_t i = 0; i < (size_t)total * k && r == 0; i++)
        guess[i] = (uint32_t)blocks[i] * (uint32_t)in->h.n_ff;
    free(blocks);
    if (r < 0) {
        free(start);
        free(guess);
    } else {
        out->guess_start = start;
        out->guess = guess;
    }
    return r;
}

static void close_trace(struct inputs *in)
{
    trace_close(in->trace);
}

/* The account's facts do not depend on the layout; the one asked with only has to derive. */
static int read_account(struct inputs *in, const struct trace *t, struct err *e)
{
    struct layout l;
    const uint32_t f32[LAYOUT_ROLES] = { QUANT_F32, QUANT_F32, QUANT_F32 };
    layout_default(&l, LAYOUT_BUNDLE, f32);
    return trace_budget_model(t, &l, &in->budget, e);
}

int inputs_from_trace(const char *path, int max_batch, enum layout_sort sort, struct inputs *out, struct err *e)
{
    struct inputs in = { .n_batches = inputs_count_batches(max_batch), .sort = sort };
    struct trace *t;
    int r = trace_open(path, &t, e);
    if (r < 0)
        return r;
    in.trace = t;
    in.steps = steps_from_trace;
    in.routes = trace_info(t)->h.n_experts > 0 ? routes_from_trace : NULL;
    in.foreseen = trace_info(t)->foreseen ? foreseen_from_trace : NULL;
    in.consecutive = consecutive_from_trace;
    in.close = close_trace;
    if ((r = read_shape(&in, trace_info(t), e)) < 0 || (r = read_account(&in, t, e)) < 0 ||
        (r = read_matrices(&in, trace_info(t), e)) < 0 || (r = read_curves(&in, t, e)) < 0 ||
        (r = inputs_cold_from_trace(&in, t, e)) < 0 || (r = inputs_predictors_from_trace(&in, t, e)) < 0 ||
        (r = inputs_memoise(&in, e)) < 0) {
        inputs_done(&in);
        return r;
    }
    *out = in;
    return 0;
}
