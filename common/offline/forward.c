/* Orchestration of the dense pass. A run keeps one residual stream per token; each layer is attention, then the FFN, over all
 * of them, in batches of at most FORWARD_BATCH tokens. A batch goes through steps that all workers share: norms and whatever
 * else a token has for itself by tokens, products by rows of the matrices, attention by heads. So the rows of a matrix are unpacked
 * once for hundreds of tokens, and workers have enough to do where there is but one sequence. Recurrent layers
 * are computed a sequence per work item, in tiles of FORWARD_TILE tokens.
 *
 * With experts a norming and a routing step come first, then each expert has its tokens; a token's experts are added in ascending
 * order. Early routers (smallthinker's) see the stream before attention. A number has the same bits whoever computes it
 * and whatever is computed beside it, so results depend neither on threads nor on grouping. */
#include "common/offline/forward_impl.h"

#include "common/base/file.h"
#include "common/ops/fold.h"
#include "common/ops/layer_embd.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = FORWARD_TILE, BATCH = FORWARD_BATCH, ROW_BLOCK_BYTES = FORWARD_ROW_BLOCK_BYTES };

/* A work item of a product has so many rows, and so many tokens at least. */
enum { ITEM_ROWS = 64, ITEM_TOKENS = 32 };

/* ---- set-up ---- */

static int vector(const struct model *m, const struct gguf_tensor *t, float **out, struct err *e)
{
    size_t n = (size_t)t->dims[0];
    void *raw = malloc((size_t)t->bytes);
    float *f = malloc(n * sizeof *f);
    int r = raw && f ? gguf_read(m->gguf, t, 0, raw, (size_t)t->bytes, e)
                     : err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
    if (!r)
        quant_traits(t->type)->dequant(f, raw, n);
    free(raw);
    if (r < 0)
        free(f);
    else
        *out = f;
    return r;
}

static int check_types(const struct model *m, struct err *e)
{
    for (int l = 0; l < model_depth(&m->h); l++)
        for (int r = 0; r < MODEL_ROLES; r++) {
            int multiplied = !model_role_is_predictor((enum model_role)r) && !model_role_is_vector((enum model_role)r);
            const struct gguf_tensor *t = multiplied ? m->layer[l][r] : NULL;
            if (t && !kernels->rows[KERNELS_ACT_F32][t->type])
                return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s, for which there is no kernel", t->name,
                               quant_traits(t->type)->name);
        }
    return 0;
}

/* Bytes of a token's activations in int8, for the longest input. */
static size_t act_bytes(const struct model *m)
{
    int widest = (int)graph_widest(&m->h);
    return kernels_act_bytes(KERNELS_ACT_Q8, m->h.n_ff > widest ? m->h.n_ff : widest);
}

/* Memory that a worker's struct scratch, the batch, and, for each token of a run and of one that is observed, struct forward point to: one
 * list for the allocations and for what they are together. */
struct room {
    size_t at;                 /* of the pointer, in its struct */
    uint64_t bytes;            /* 0: the model has no use for it */
};

enum { WORKER = 7, SHARED = 12, TOKEN = 11, SEEN = 4 };
struct rooms {
    struct room worker[WORKER], batch[SHARED], token[TOKEN], seen[SEEN];
};

/* What has a state in place of keys and values. */
#define RECURRENT ((unsigned)OPS_MIXERS & ~(1u << OP_ATTENTION))

static struct op_need need_of(const struct model_hparams *h, unsigned kinds)
{
    struct op_need n;
    ops_most(h, kinds, &n);
    return n;
}

static struct rooms rooms_of(const struct model *m, int max_len)
{
#define W(field) offsetof(struct scratch, field)
#define B(field) offsetof(struct batch, field)
#define F(field) offsetof(struct forward, field)
    const struct model_hparams *h = &m->h;
    const struct op_need a = need_of(h, 1u << OP_ATTENTION | 1u << OP_LAYER_EMBD), r = need_of(h, RECURRENT), f = need_of(h, 1u << OP_FFN);
    uint64_t d = 4 * (uint64_t)h->d_model, act = act_bytes(m), rows = max_len > BATCH ? (uint64_t)max_len : BATCH;
    uint64_t widest = 4 * ((uint64_t)h->n_ff > f.shared / 2 ? (uint64_t)h->n_ff : f.shared / 2);
    uint64_t kv = 4 * rows * a.row; /* of all positions */
    uint64_t routed = h->n_experts > 0, k = routed ? (uint64_t)h->n_experts_used : 1, bits = ((uint64_t)h->n_ff + 63) / 64 * 8;
    uint64_t folded = h->fold ? 4 * (graph_widest(h) > (uint64_t)h->n_ff ? graph_widest(h) : (uint64_t)h->n_ff) : 0;
    int foresees = forward_foresees(h);
    return (struct rooms){
        { { W(norm), TILE * d }, { W(out), TILE * d }, { W(scores), 4 * (uint64_t)max_len * NN_ATTN_HEADS }, { W(act), TILE * act },
          { W(made), 4 * TILE * r.made }, { W(state), 4 * r.state }, { W(folded), TILE * folded } },
        { { B(norm), BATCH * d }, { B(out), BATCH * d }, { B(gate), BATCH * widest }, { B(up), BATCH * widest },
          { B(q), 4 * BATCH * a.q }, { B(att), 4 * BATCH * a.attn }, { B(k), kv }, { B(v), kv },
          { B(made), 4 * BATCH * (a.latent + a.made) }, { B(logits), 4 * BATCH * (uint64_t)h->n_experts }, { B(act), BATCH * act },
          { B(folded), BATCH * folded } },
        { { F(x), d }, { F(blocks), 2 * k }, { F(sample_of), 4 }, { F(pos), 4 },
          { F(normed), routed || h->parallel || h->wkv_dim ? d : 0 }, { F(values), h->wkv_dim ? d : 0 },
          { F(layered), 4 * layer_embd_all(h) }, { F(kept), h->shared_kv ? 16 * a.row : 0 },
          { F(sum), h->expert_norms ? routed * d : 0 }, { F(route_w), routed * 4 * k }, { F(expert_tokens), routed * 4 } },
        { { F(active), k * bits }, { F(open), nn_gate_decides(h) ? 0 : k * bits }, { F(before), foresees ? d : 0 },
          { F(foreseen), foresees ? 2 * k : 0 } } };
}

static int rooms_new(void *owner, const struct room *r, int n, size_t times)
{
    int all = 1;
    for (int i = 0; i < n; i++) {
        void *p = r[i].bytes ? malloc((size_t)r[i].bytes * times) : NULL;
        all &= p || !r[i].bytes;
        memcpy((char *)owner + r[i].at, &p, sizeof p);
    }
    return all ? 0 : ERR_NOMEM;
}

static void rooms_free(const void *owner, const struct room *r, int n)
{
    for (int i = 0; i < n; i++) {
        void *p;
        memcpy(&p, (const char *)owner + r[i].at, sizeof p);
        free(p);
    }
}

static uint64_t rooms_bytes(const struct room *r, int n)
{
    return n ? r->bytes + rooms_bytes(r + 1, n - 1) : 0;
}

int forward_new(const struct model *m, struct pool *pool, int max_len, struct forward **out, struct err *e)
{
    int r = check_types(m, e), threads = pool_threads(pool);
    if (r < 0)
        return r;
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_NOMEM, "forward pass");
    const struct model_hparams *h = &m->h;
    const struct rooms rooms = rooms_of(m, max_len);
    f->m = m, f->h = h, f->pool = pool, f->max_len = max_len;
    f->d = (size_t)h->d_model, f->n_shared = (size_t)h->n_ff_shared;
    f->cached = need_of(h, 1u << OP_ATTENTION), f->recurrent = need_of(h, RECURRENT);
    f->q_len = (size_t)f->cached.q, f->kv_len = (size_t)f->cached.row;
    f->k = h->n_experts > 0 ? (size_t)h->n_experts_used : 1;
    f->row_bytes = ((size_t)h->n_ff + 63) / 64 * 8;
    f->freqs = malloc(((size_t)h->n_rot + 1) * sizeof *f->freqs);
    f->scratch = calloc((size_t)threads, sizeof *f->scratch);
    if (!f->freqs || !f->scratch)
        r = err_set(e, ERR_NOMEM, "forward pass");
    for (int i = 0; i < threads && !r; i++)
        if (rooms_new(&f->scratch[i], rooms.worker, WORKER, 1) < 0 || (i == 0 && rooms_new(&f->b, rooms.batch, SHARED, 1) < 0))
            r = err_set(e, ERR_NOMEM, "forward pass with sequences of %d tokens", max_len);
    if (r < 0 ||
        (r = weights_new(m, &f->weights, e)) < 0)
        goto fail;
    for (int i = 0; i < MODEL_ROLES; i++)
        if (m->global[i] && model_role_is_vector((enum model_role)i) && (r = vector(m, m->global[i], &f->global[i], e)) < 0)
            goto fail;
    nn_rope_all(f->freqs, h, f->global[model_rope_divisors(h, max_len)]);
    *out = f;
    return 0;
fail:
    forward_free(f);
    return r;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    const struct rooms rooms = rooms_of(f->m, f->max_len);
    for (int i = 0; f->scratch && i < pool_threads(f->pool); i++)
        rooms_free(&f->scratch[i], rooms.worker, WORKER);
    rooms_free(&f->b, rooms.batch, SHARED);
    for (int i = 0; i < MODEL_ROLES; i++)
        free(f->global[i]);
    weights_free(f->weights);
    free(f->scratch), free(f->freqs), free(f->head), free(f->mix);
    free(f->down);
    rooms_free(f, rooms.token, TOKEN), rooms_free(f, rooms.seen, SEEN);
    free(f->block_input), free(f->ffn_input), free(f->ffn_rms);
    free(f);
}

/* Bytes of one element of Down in rows: elements of their own keep their type, blocks become F32. */
static size_t down_elem(const struct model *m)
{
    const struct quant_traits *q = quant_traits(m->layer[0][MODEL_FFN_DOWN]->type);
    return q->block_elems == 1 ? (size_t)q->block_bytes : sizeof(float);
}

uint64_t forward_bytes(const struct model *m, int threads, int max_len, uint64_t n_tokens, int observed)
{
    const struct model_hparams *h = &m->h;
    const struct rooms rooms = rooms_of(m, max_len);
    uint64_t down = h->down_by_neuron ? (uint64_t)h->d_model * (uint64_t)h->n_ff * 4 : 0;
    uint64_t mix = m->global[MODEL_LAYER_MIX] ? m->global[MODEL_LAYER_MIX]->bytes : 0;
    return down + mix + weights_bytes(m) + rooms_bytes(rooms.batch, SHARED) + (uint64_t)threads * rooms_bytes(rooms.worker, WORKER) +
           n_tokens * (rooms_bytes(rooms.token, TOKEN) + (observed ? rooms_bytes(rooms.seen, SEEN) : 0));
}

uint64_t forward_weight_bytes(const struct model *m)
{
    return weights_total(m);
}

static int grow(void *pp, size_t n, size_t size)
{
    void **p = pp, *q;
    free(*p);
    *p = q = malloc((n ? n : 1) * size);
    return q ? 0 : ERR_NOMEM;
}

/* Buffers for a run; those of the last one are kept when large enough. */
static int reserve(struct forward *f, const struct forward_run *run, struct err *e)
{
    const struct rooms rooms = rooms_of(f->m, f->max_len);
    size_t n = (size_t)run->starts[run->n_sequences];
    int r = 0;
    if (n > f->cap_tokens) {
        rooms_free(f, rooms.token, TOKEN);
        r |= rooms_new(f, rooms.token, TOKEN, n);
        f->cap_tokens = r ? 0 : n;
    }
    if (run->on_layer && n > f->cap_bits) {
        rooms_free(f, rooms.seen, SEEN);
        r |= rooms_new(f, rooms.seen, SEEN, n);
        f->cap_bits = r ? 0 : n;
    }
    if (run->n_samples > f->cap_samples) {
        f->cap_samples = 0;
        r |= grow(&f->block_input, run->n_samples * f->d, sizeof(uint16_t));
        r |= grow(&f->ffn_input, run->n_samples * f->d, sizeof(uint16_t));
        r |= grow(&f->ffn_rms, run->n_samples, sizeof(float));
        if (!r)
            f->cap_samples = run->n_samples;
    }
    if (r)
        return err_set(e, ERR_NOMEM, "a run of %zu tokens", n);
    f->n_tokens = n;
    memset(f->blocks, 0, n * f->k * sizeof *f->blocks);
    for (size_t s = 0; s < run->n_sequences; s++)
        for (uint64_t t = run->starts[s]; t < run->starts[s + 1]; t++)
            f->pos[t] = (uint32_t)(t - run->starts[s]);
    for (size_t t = 0; t < n; t++)
        f->sample_of[t] = -1;
    for (size_t s = 0; s < run->n_samples; s++)
        f->sample_of[run->samples[s]] = (int32_t)s;
    return 0;
}

/* ---- products ---- */

enum kernels_act forward_form(const struct forward *f, uint32_t type)
{
    return kernels_act_form(type, f->act_q8);
}

/* Rows [from, to) of a matrix for n tokens. Floats in tiles of tokens and blocks of rows that stay in the second level; the
 * products of int8 have tiles of their own. */
static void some_rows(const struct forward *f, const struct forward_product *p, size_t from, size_t to, const uint8_t *x, size_t x_stride,
                      float *out, int n)
{
    const struct gguf_tensor *t = p->t;
    const enum kernels_act form = forward_form(f, t->type);
    const uint8_t *base = (const uint8_t *)p->data + (size_t)p->expert * (size_t)t->dims[1] * (size_t)t->row_bytes;
    size_t row = (size_t)t->row_bytes, step = to - from;
    int tile = n;
    if (form == KERNELS_ACT_F32) {
        tile = TILE;
        step = ROW_BLOCK_BYTES / row ? ROW_BLOCK_BYTES / row : 1;
    }
    for (int i = 0; i < n; i += tile)
        for (size_t at = from; at < to; at += step)
            kernels->rows[form][t->type](out + (size_t)i * p->stride + at, p->stride, base + at * row, row,
                                         (int)(to - at < step ? to - at : step), x + (size_t)i * x_stride, x_stride,
                                         n - i < tile ? n - i : tile, (int)t->dims[0]);
}

/* How a matrix is folded; its name and rows were looked at when the model was opened. */
static struct model_fold fold_of(const struct forward *f, const struct gguf_tensor *t)
{
    struct model_fold fold = { 0 };
    struct err e;
    if (f->h->fold)
        model_fold_of(f->m->gguf, t->name, t->dims[0], &fold, &e);
    return fold;
}

void forward_tile_product(const struct forward *f, struct scratch *s, const struct forward_product *p, const float *x, size_t x_stride,
                          int n)
{
    const struct model_fold fold = fold_of(f, p->t);
    const size_t n_cols = (size_t)p->t->dims[0];
    for (size_t i = 0; fold.block && i < (size_t)n; i++) {
        memcpy(s->folded + i * n_cols, x + i * x_stride, n_cols * sizeof *x);
        fold_apply(&fold, s->folded + i * n_cols, 0, n_cols);
    }
    if (fold.block)
        x = s->folded, x_stride = n_cols;
    const enum kernels_act form = forward_form(f, p->t->type);
    const uint8_t *in = (const uint8_t *)x;
    size_t stride = x_stride * sizeof *x;
    if (form == KERNELS_ACT_Q8) {
        stride = kernels_act_bytes(form, (int)p->t->dims[0]);
        in = s->act;
        for (int i = 0; i < n; i++)
            kernels_act_prepare((uint8_t *)s->act + (size_t)i * stride, form, x + (size_t)i * x_stride, (int)p->t->dims[0]);
    }
    some_rows(f, p, 0, (size_t)p->t->dims[1], in, stride, p->out, n);
}

void forward_matrix(const struct forward *f, struct scratch *s, enum model_role r, float *out, const float *x, int n)
{
    const struct gguf_tensor *t = forward_tensor(f, r);
    const struct forward_product p = { t, f->w[r], 0, out, (size_t)t->dims[1] };
    forward_tile_product(f, s, &p, x, (size_t)t->dims[0], n);
}

/* Products of a batch; an item is ITEM_ROWS rows of one matrix and a piece of the tokens. */
struct products {
    const struct forward *f;
    const struct forward_product *p;
    int n_tokens, piece, n_pieces;
    const float *x;
    size_t x_stride, act_stride;
    int n_cols;
};

static void prepare_some(void *ctx, int begin, int end, int worker)
{
    const struct products *s = ctx;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        kernels_act_prepare((uint8_t *)s->f->b.act + t * s->act_stride, KERNELS_ACT_Q8, s->x + t * s->x_stride, s->n_cols);
}

static int row_items(const struct forward_product *p)
{
    return (int)((p->t->dims[1] + ITEM_ROWS - 1) / ITEM_ROWS);
}

static void product_item(const struct products *s, int item)
{
    const struct forward_product *p = s->p;
    int first = item % s->n_pieces * s->piece, n = s->n_tokens - first < s->piece ? s->n_tokens - first : s->piece;
    item /= s->n_pieces;
    for (; item >= row_items(p); p++)
        item -= row_items(p);
    size_t from = (size_t)item * ITEM_ROWS, rows = (size_t)p->t->dims[1], to = from + ITEM_ROWS < rows ? from + ITEM_ROWS : rows;
    int q8 = forward_form(s->f, p->t->type) == KERNELS_ACT_Q8;
    const uint8_t *x = q8 ? s->f->b.act : (const uint8_t *)s->x;
    size_t stride = q8 ? s->act_stride : s->x_stride * sizeof *s->x;
    some_rows(s->f, p, from, to, x + (size_t)first * stride, stride, p->out + (size_t)first * p->stride, n);
}

static void product_items(void *ctx, int begin, int end, int worker)
{
    (void)worker;
    for (int i = begin; i < end; i++)
        product_item(ctx, i);
}

static void products(struct forward *f, const struct forward_product *p, int n_products, const float *x, size_t x_stride, int n_tokens)
{
    struct products s = { .f = f, .p = p, .n_tokens = n_tokens, .x = x, .x_stride = x_stride,
                          .n_cols = (int)p->t->dims[0] };
    int items = 0, q8 = 0, want = 4 * pool_threads(f->pool);
    for (int i = 0; i < n_products; i++) {
        items += row_items(&p[i]);
        q8 |= forward_form(f, p[i].t->type) == KERNELS_ACT_Q8;
    }
    if (q8) {
        s.act_stride = kernels_act_bytes(KERNELS_ACT_Q8, s.n_cols);
        pool_for(f->pool, n_tokens, 8, prepare_some, &s);
    }
    /* Few rows: tokens are divided, too. */
    int pieces = items < want ? (want + items - 1) / items : 1, most = (n_tokens + ITEM_TOKENS - 1) / ITEM_TOKENS;
    s.n_pieces = pieces < most ? pieces : most;
    s.piece = (n_tokens + s.n_pieces - 1) / s.n_pieces;
    s.n_pieces = (n_tokens + s.piece - 1) / s.piece;
    pool_for(f->pool, items * s.n_pieces, 1, product_items, &s);
}

void forward_products(struct forward *f, const struct forward_product *p, int n_products, const float *x, size_t x_stride, int n_tokens)
{
    struct forward_product plain[FORWARD_PRODUCTS], folded[FORWARD_PRODUCTS];
    struct model_fold fold = { 0 };
    int n_plain = 0, n_folded = 0;
    size_t n_cols = (size_t)p->t->dims[0];
    for (int i = 0; i < n_products; i++) {
        struct model_fold own = fold_of(f, p[i].t);
        fold = own.block ? own : fold;
        if (own.block)
            folded[n_folded++] = p[i];
        else
            plain[n_plain++] = p[i];
    }
    if (n_plain)
        products(f, plain, n_plain, x, x_stride, n_tokens);
    if (!n_folded)
        return;
    for (size_t t = 0; t < (size_t)n_tokens; t++)
        memcpy(f->b.folded + t * n_cols, x + t * x_stride, n_cols * sizeof *x);
    fold_tokens(&fold, f->pool, f->b.folded, n_cols, n_tokens);
    products(f, folded, n_folded, f->b.folded, n_cols, n_tokens);
}

void forward_batch_matrix(struct forward *f, enum model_role r, float *out, const float *x, int n)
{
    const struct gguf_tensor *t = forward_tensor(f, r);
    const struct forward_product p = { t, f->w[r], 0, out, (size_t)t->dims[1] };
    forward_products(f, &p, 1, x, (size_t)t->dims[0], n);
}

const struct gguf_tensor *forward_tensor(const struct forward *f, enum model_role r)
{
    return f->replaced[r] ? &f->other[r] : f->m->layer[f->layer][r];
}

void forward_norm(const struct forward *f, float *out, const float *x, const float *w, const float *bias, int n)
{
    for (int t = 0; t < n; t++)
        nn_norm(out + (size_t)t * f->d, x + (size_t)t * f->d, w, bias, f->h->d_model, f->h);
}

/* Samples saturate: an infinity would spoil whatever is fitted to them. */
void forward_sample_f16(uint16_t *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = quant_f32_to_f16(x[i] > 65504.0f ? 65504.0f : x[i] < -65504.0f ? -65504.0f : x[i]);
}

void forward_probe_input(const struct forward *f, enum predict_input which, size_t first, int n, const float *x)
{
    if (f->run->probe && f->run->probe->input && !model_is_lead(f->h, f->layer))
        f->run->probe->input(f->run->probe->ctx, which, first, n, x);
}

/* ---- residual ---- */

float forward_residual_scale(const struct forward *f)
{
    return f->h->residual_scale > 0 ? f->h->residual_scale : 1;
}

/* x += out of n tokens, normed before where there are weights w for that. */
void forward_add_residual(const struct forward *f, float *x, float *out, const float *w, int n)
{
    float scale = forward_residual_scale(f);
    for (int t = 0; w && t < n; t++)
        nn_post_norm(out + (size_t)t * f->d, out + (size_t)t * f->d, w, f->h->d_model, f->h);
    for (size_t i = 0; i < (size_t)n * f->d; i++)
        x[i] += scale * out[i];
}

void forward_add_bias(float *x, const float *bias, size_t n)
{
    for (size_t i = 0; bias && i < n; i++)
        x[i] += bias[i];
}

/* ---- the run ---- */

static void scale_out(struct forward *f)
{
    const float *scale = f->w[MODEL_OUT_SCALE];
    for (size_t i = 0; scale && i < f->n_tokens * f->d; i++)
        f->x[i] *= *scale;
    for (size_t i = 0; model_halves(f->h, f->layer) && i < f->n_tokens * f->d; i++)
        f->x[i] *= 0.5f;
}

/* Finite weights can make sums that F32 does not hold; what follows from these is worth nothing. */
static int check_layer(const struct forward *f, int layer, struct err *e)
{
    size_t n = f->n_tokens * f->d, bad = quant_first_not_finite(QUANT_F32, f->x, n);
    if (bad == n)
        return 0;
    return err_set(e, ERR_FORMAT, "'%s': after layer %d the residual of a token is %g: weights of this layer are damaged, or too large for "
                   "F32", gguf_name(f->m->gguf), layer, (double)f->x[bad]);
}

/* The learned position of every token is added to it. Sequences are at most n_ctx_train long. */
static int add_positions(struct forward *f, const struct forward_run *run, struct err *e)
{
    const struct gguf_tensor *t = f->m->global[MODEL_POSITION_EMBD];
    float *all = t ? malloc((size_t)f->max_len * f->d * sizeof *all) : NULL;
    void *raw = t ? malloc((size_t)t->row_bytes) : NULL;
    int r = !t || (all && raw) ? 0 : err_set(e, ERR_NOMEM, "positions of %d tokens", f->max_len);
    for (int p = 0; t && p < f->max_len && p < f->h->n_ctx_train && r == 0; p++)
        if ((r = gguf_read(f->m->gguf, t, (uint64_t)model_position_row(p) * t->row_bytes, raw, (size_t)t->row_bytes, e)) == 0)
            quant_traits(t->type)->dequant(all + (size_t)p * f->d, raw, f->d);
    for (size_t s = 0; t && s < (size_t)run->n_sequences && r == 0; s++) {
        size_t first = (size_t)run->starts[s], n = (size_t)run->starts[s + 1] - first;
        if (n > (size_t)f->h->n_ctx_train)
            r = err_set(e, ERR_LIMIT, "a sequence of %zu tokens: the model has %d positions", n, f->h->n_ctx_train);
        for (size_t i = 0; r == 0 && i < n * f->d; i++)
            f->x[first * f->d + i] += all[i];
    }
    free(raw);
    free(all);
    return r;
}

static int embed(struct forward *f, const struct forward_run *run, struct err *e)
{
    const struct gguf_tensor *t = f->m->global[MODEL_TOKEN_EMBD];
    const struct model_fold fold = fold_of(f, t);
    void *row = malloc((size_t)t->row_bytes);
    int r = row ? 0 : err_set(e, ERR_NOMEM, "an embedding");
    for (size_t i = 0; i < f->n_tokens && !r; i++) {
        if (run->tokens[i] >= (uint32_t)f->h->n_vocab)
            r = err_set(e, ERR_FORMAT, "token id %u at position %zu; the vocabulary has %d", run->tokens[i], i,
                        f->h->n_vocab);
        else if ((r = gguf_read(f->m->gguf, t, run->tokens[i] * t->row_bytes, row, (size_t)t->row_bytes, e)) == 0)
            quant_traits(t->type)->dequant(f->x + i * f->d, row, f->d);
        if (!r && fold.block)
            fold_undo(&fold, f->x + i * f->d, f->d);
        for (size_t k = 0; !r && f->h->embd_scale > 0 && k < f->d; k++)
            f->x[i * f->d + k] *= f->h->embd_scale;
        if (!r && f->h->embd_normed)
            nn_rms(f->x + i * f->d, f->h->d_model, f->h->rms_eps);
        if (!r && f->global[MODEL_EMBD_NORM])
            forward_norm(f, f->x + i * f->d, f->x + i * f->d, f->global[MODEL_EMBD_NORM], f->global[MODEL_EMBD_NORM_BIAS], 1);
    }
    free(row);
    return r < 0 ? r : add_positions(f, run, e);
}

void forward_set_substitute(struct forward *f, forward_substitute *fn, void *ctx)
{
    f->substitute = fn;
    f->substitute_ctx = ctx;
}

static int substitute(struct forward *f, int layer, struct err *e)
{
    static const enum model_role roles[3] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };
    memset(f->replaced, 0, sizeof f->replaced);
    if (!f->substitute || model_is_lead(f->h, layer))
        return 0;
    memcpy(f->mixed, f->w, sizeof f->mixed);
    for (int i = 0; i < 3; i++) {
        enum model_role role = roles[i];
        const float *rows = NULL;
        int r = f->substitute(f->substitute_ctx, layer, role, &rows, e);
        if (r < 0)
            return r;
        if (!rows)
            continue;
        f->mixed[role] = rows;
        f->replaced[role] = 1;
        f->other[role] = *f->m->layer[layer][role];
        f->other[role].type = QUANT_F32;
        if (role == MODEL_FFN_DOWN)
            f->other[role].dims[0] = f->n_ff, f->other[role].dims[1] = f->d;
        f->other[role].row_bytes = f->other[role].dims[0] * sizeof(float);
    }
    f->w = f->mixed;
    return 0;
}

/* Neurons [begin, end) of Down into its rows. */
static void turn_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    const struct gguf_tensor *t = f->m->layer[f->layer][MODEL_FFN_DOWN];
    const struct quant_traits *q = quant_traits(t->type);
    const uint8_t *rows = f->w[MODEL_FFN_DOWN];
    size_t elem = down_elem(f->m);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        const uint8_t *row = rows + i * t->row_bytes;
        if (q->block_elems > 1) {
            q->dequant(f->scratch[worker].out, row, f->d);
            row = (const uint8_t *)f->scratch[worker].out;
        }
        for (size_t c = 0; c < f->d; c++)
            memcpy(f->down + (c * f->n_ff + i) * elem, row + c * elem, elem);
    }
}

/* A file that has Down by neuron gives what the same weights give in rows, bit for bit where the type has no blocks. */
static int turn_down(struct forward *f, struct err *e)
{
    const struct gguf_tensor *t = f->m->layer[f->layer][MODEL_FFN_DOWN];
    struct gguf_tensor *o = &f->other[MODEL_FFN_DOWN];
    if (!f->h->down_by_neuron || f->replaced[MODEL_FFN_DOWN])
        return 0;
    if (!f->down && !(f->down = malloc(f->d * (size_t)f->h->n_ff * down_elem(f->m))))
        return err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
    pool_for(f->pool, (int)f->n_ff, TILE, turn_sweep, f);
    if (f->w != f->mixed)
        memcpy(f->mixed, f->w, sizeof f->mixed);
    *o = *t;
    o->type = quant_traits(t->type)->block_elems == 1 ? t->type : QUANT_F32;
    o->dims[0] = f->n_ff, o->dims[1] = f->d;
    o->row_bytes = f->n_ff * down_elem(f->m);
    f->mixed[MODEL_FFN_DOWN] = f->down;
    f->replaced[MODEL_FFN_DOWN] = 1;
    f->w = f->mixed;
    return 0;
}

static int load_layer(struct forward *f, int layer, struct err *e)
{
    int r;
    f->layer = layer;
    f->own = model_of_layer(f->h, layer);
    f->n_ff = (size_t)f->own.n_ff;
    if ((r = weights_layer(f->weights, layer, &f->w, e)) < 0 || (r = substitute(f, layer, e)) < 0)
        return r;
    return turn_down(f, e);
}

static int check_run(const struct forward *f, const struct forward_run *run, struct err *e)
{
    size_t n = (size_t)run->starts[run->n_sequences];
    if (n > INT32_MAX / (f->k ? f->k : 1) || run->n_sequences > INT32_MAX)
        return err_set(e, ERR_LIMIT, "a run of %zu tokens", n);
    for (size_t i = 0; i < run->n_sequences; i++)
        if (run->starts[i + 1] - run->starts[i] > (uint64_t)f->max_len)
            return err_set(e, ERR_LIMIT, "a sequence of %llu tokens, more than this pass's limit of %d",
                           (unsigned long long)(run->starts[i + 1] - run->starts[i]), f->max_len);
    return 0;
}

static void some_sequences(void *ctx, int begin, int end, int worker)
{
    const struct forward *f = ctx;
    struct scratch *s = &f->scratch[worker];
    for (int i = begin; i < end; i++) {
        size_t first = (size_t)f->run->starts[i], last = (size_t)f->run->starts[i + 1];
        memset(s->state, 0, (size_t)f->recurrent.state * sizeof *s->state);
        for (size_t t = first; t < last; t += FORWARD_TILE) {
            int n = (int)(last - t < FORWARD_TILE ? last - t : FORWARD_TILE);
            forward_norm(f, s->norm, f->x + t * f->d, f->w[MODEL_ATTN_NORM], f->w[MODEL_ATTN_NORM_BIAS], n);
            forward_probe_input(f, PREDICT_BLOCK, t, n, s->norm);
            f->tile(f, s, t, n, t == first);
            forward_add_residual(f, f->x + t * f->d, s->out, NULL, n);
        }
    }
}

void forward_sequences(struct forward *f, forward_tile *tile)
{
    f->tile = tile;
    pool_for(f->pool, (int)f->run->n_sequences, 1, some_sequences, f);
}

/* What mixes the layer's tokens. Blocks of one sublayer have the FFN's stream when they begin. */
static void mix(struct forward *f)
{
    f->mixer(f);
    if (f->run->on_layer && forward_foresees(f->h) && !model_has_alone(f->h))
        memcpy(f->before, f->x, f->n_tokens * f->d * sizeof *f->x);
}

/* Runs of the graph's operations. What attention and most FFNs see is normed with them, batch by batch; and attention is computed where it
 * is added. */
static void (*const runs[OP_KINDS])(struct forward *f) = {
    [OP_ROUTE] = forward_route, [OP_ATTN_NORM] = forward_norm_all, [OP_ADD] = mix, [OP_FFN_NORM] = forward_norm_all,
    [OP_FFN] = forward_ffn, [OP_LAYER_EMBD] = forward_layer_embd, [OP_SCALE] = scale_out,
#define MIXER(kind, name, here) [OP_##kind] = forward_##name,
#include "common/model/operations.def"
};

int forward_run(struct forward *f, const struct forward_run *run, struct err *e)
{
    int r = check_run(f, run, e);
    if (r < 0 || (r = reserve(f, run, e)) < 0 || (r = embed(f, run, e)) < 0)
        return r;
    f->run = run;
    f->act_q8 = run->act_q8;
    if ((r = forward_layer_inputs(f, e)) < 0)
        return r;
    int watched = run->on_layer && forward_foresees(f->h);
    if (watched)
        memcpy(f->before, f->x, f->n_tokens * f->d * sizeof *f->x);
    for (int i = 0; i < model_depth(f->h) && !r; i++) {
        int l = model_layer_at(f->h, i), lead = model_is_lead(f->h, l), foresees = watched && !lead;
        struct graph_layer g;
        graph_layer(f->h, l, &g);
        if (file_interrupted()) {
            r = err_set(e, ERR_INTR, "interrupted");
            break;
        }
        if ((r = load_layer(f, l, e)) < 0 ||
            (!lead && run->probe && run->probe->layer && (r = run->probe->layer(run->probe->ctx, l, e)) < 0))
            break;
        if (foresees)
            forward_foresee(f);
        if (foresees && model_has_alone(f->h))
            memcpy(f->before, f->x, f->n_tokens * f->d * sizeof *f->x);
        for (size_t s = 0; s < run->n_samples; s++)
            forward_sample_f16(f->block_input + s * f->d, f->x + (size_t)run->samples[s] * f->d, f->d);
        if (run->on_op)
            run->on_op(run->ctx, l, OP_EMBED, f->x);
        for (int k = 0; k < g.n; k++) {
            if (g.op[k].out == OP_A)
                f->mixer = runs[g.op[k].kind];
            else if (runs[g.op[k].kind] && g.op[k].out != OP_N)
                runs[g.op[k].kind](f);
            if (run->on_op && g.op[k].out == OP_X)
                run->on_op(run->ctx, l, (enum op_kind)g.op[k].kind, f->x);
        }
        if ((r = check_layer(f, l, e)) < 0 || lead || !run->on_layer)
            continue;
        const struct forward_layer seen = {
            .layer = l, .n_tokens = f->n_tokens, .n_slots = (int)f->k, .row_bytes = f->row_bytes, .active = f->active,
            .open = f->open ? f->open : f->active, .blocks = f->blocks, .foreseen = foresees ? f->foreseen : NULL,
            .n_samples = run->n_samples,
            .block_input = f->block_input, .ffn_input = f->ffn_input, .ffn_rms = f->ffn_rms,
        };
        r = run->on_layer(run->ctx, &seen, e);
    }
    f->run = NULL;
    return r;
}

/* ---- logits ---- */

int forward_load(const struct forward *f, const struct gguf_tensor *t, void **data, struct err *e)
{
    if (!kernels->rows[KERNELS_ACT_F32][t->type])
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s, for which there is no kernel", t->name,
                       quant_traits(t->type)->name);
    if (*data)
        return 0;
    *data = malloc((size_t)t->bytes);
    if (!*data)
        return err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
    int r = gguf_read(f->m->gguf, t, 0, *data, (size_t)t->bytes, e);
    if (r < 0) {
        free(*data);
        *data = NULL;
    }
    return r;
}

int forward_logits(struct forward *f, size_t first, size_t n, float *logits, struct err *e)
{
    const struct gguf_tensor *own = f->m->global[MODEL_OUTPUT], *t = own ? own : f->m->global[MODEL_TOKEN_EMBD];
    int r = forward_load(f, t, &f->head, e);
    if (r < 0)
        return r;
    if (first > f->n_tokens || n > f->n_tokens - first)
        return err_set(e, ERR_LIMIT, "logits of %zu tokens from %zu; the run had %zu", n, first, f->n_tokens);
    size_t vocab = (size_t)f->h->n_vocab;
    for (size_t at = 0; at < n; at += BATCH) {
        int k = (int)(n - at < BATCH ? n - at : BATCH);
        const struct forward_product p = { t, f->head, 0, logits + at * vocab, vocab };
        forward_norm(f, f->b.norm, f->x + (first + at) * f->d, f->global[MODEL_OUTPUT_NORM], f->global[MODEL_OUTPUT_NORM_BIAS], k);
        forward_products(f, &p, 1, f->b.norm, f->d, k);
        nn_logits(logits + at * vocab, (size_t)k * vocab, f->h);
    }
    return 0;
}
