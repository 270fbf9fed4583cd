/* Attention of the dense pass, in batches: several whole sequences, or a part of a longer one, whose keys and values of earlier
 * parts are kept. */
#include "common/offline/forward_impl.h"

#include <math.h>
#include <string.h>

enum { BATCH = FORWARD_BATCH, ITEM = 8 };

/* Biases, norms and rotation of a token at position pos; k and v: NULL where the layer has none of its own. */
static void place(const struct forward *f, float *q, float *k, float *v, int pos)
{
    const struct model_hparams *h = &f->own;
    const float *q_norm = f->w[MODEL_ATTN_Q_NORM], *k_norm = f->w[MODEL_ATTN_K_NORM];
    nn_heads(q, h->n_heads, f->w[MODEL_ATTN_Q_BIAS], h->qk_norm_after ? NULL : q_norm, h);
    if (k)
        nn_heads(k, h->n_kv_heads, f->w[MODEL_ATTN_K_BIAS], h->qk_norm_after ? NULL : k_norm, h);
    if (k)
        nn_values(v, f->w[MODEL_ATTN_V_BIAS], h);
    const float *freqs = f->freqs + (model_has_window(h, f->layer) ? f->h->n_rot / 2 : 0);
    if (model_rotates(h, f->layer)) {
        nn_rope(q, h->n_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, pos);
        if (k)
            nn_rope(k, h->n_kv_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, pos);
    }
    if (h->qk_norm_after) {
        nn_heads(q, h->n_heads, NULL, q_norm, h);
        if (k)
            nn_heads(k, h->n_kv_heads, NULL, k_norm, h);
    }
    float scale = nn_query_scale(h, pos);
    for (size_t i = 0; scale != 1 && i < (size_t)(h->n_heads * h->head_dim); i++)
        q[i] *= scale;
}

/* What follows queries as they are made, and what attention gives. */
static float *low(const struct forward *f)
{
    return f->b.made + (size_t)BATCH * (size_t)model_q_dim(&f->own);
}

static float *heads(const struct forward *f)
{
    return f->b.att + (size_t)BATCH * f->q_len;
}

/* A batch: tokens [first, first + n) of the run. Row 0 of keys and values is token `group`. */
struct span {
    struct forward *f;
    size_t first, group;
    int n;
};

/* ---- inputs ---- */

static void norm_some(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    struct forward *f = s->f;
    const float *own = f->w[MODEL_ATTN_NORM_2], *norm = own ? own : f->w[MODEL_ATTN_NORM];
    const float *bias = f->w[own ? MODEL_ATTN_NORM_2_BIAS : MODEL_ATTN_NORM_BIAS];
    size_t first = s->first + (size_t)begin;
    float *out = f->b.norm + (size_t)begin * f->d;
    (void)worker;
    forward_norm(f, out, f->x + first * f->d, norm, bias, end - begin);
    forward_probe_input(f, PREDICT_BLOCK, first, end - begin, out);
}

static void place_some(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    const struct batch *b = &f->b;
    const size_t dim = (size_t)f->own.head_dim, heads = (size_t)f->own.n_heads;
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        const size_t row = s->first - s->group + i;
        float *q = b->q + i * f->q_len, *k = b->k + row * f->kv_len, *v = b->v + row * f->kv_len;
        for (size_t j = 0; f->own.out_gate == 1 && j < heads; j++)
            memcpy(q + j * dim, b->made + (i * heads + j) * 2 * dim, dim * sizeof *q);
        if (f->w[MODEL_ATTN_K] && !f->w[MODEL_ATTN_V])
            memcpy(v, k, f->kv_len * sizeof *v);
        place(f, q, f->w[MODEL_ATTN_K] ? k : NULL, v, (int)f->pos[s->first + i]);
    }
}

/* Keys and values of a batch that later layers attend to, or of the layer that this one attends to. */
static void keep(const struct span *s)
{
    const struct forward *f = s->f;
    const struct batch *b = &f->b;
    const int windowed = model_has_window(f->h, f->layer), shares = !f->w[MODEL_ATTN_K];
    const size_t bytes = (size_t)s->n * f->kv_len * sizeof(float), at = (s->first - s->group) * f->kv_len;
    if (!f->h->shared_kv || (!shares && model_kv_source(f->h, windowed) != f->layer))
        return;
    for (size_t i = 0; i < 2; i++) {
        float *kept = f->kept + (((size_t)windowed * 2 + i) * f->cap_tokens + s->first) * f->kv_len, *now = (i ? b->v : b->k) + at;
        memcpy(shares ? now : kept, shares ? kept : now, bytes);
    }
}

/* Queries, keys and values of a batch from its norms. */
static void make_plain(const struct span *s)
{
    struct forward *f = s->f;
    const struct batch *b = &f->b;
    size_t at = (s->first - s->group) * f->kv_len;
    const struct gguf_tensor *q = forward_tensor(f, MODEL_ATTN_Q);
    struct forward_product p[4] = {
        { q, f->w[MODEL_ATTN_Q], 0, f->own.out_gate == 1 ? b->made : b->q, f->own.out_gate == 1 ? (size_t)q->dims[1] : f->q_len } };
    int n = 1;
    if (f->w[MODEL_ATTN_K])
        p[n++] = (struct forward_product){ forward_tensor(f, MODEL_ATTN_K), f->w[MODEL_ATTN_K], 0, b->k + at, f->kv_len };
    if (f->w[MODEL_ATTN_V])
        p[n++] = (struct forward_product){ forward_tensor(f, MODEL_ATTN_V), f->w[MODEL_ATTN_V], 0, b->v + at, f->kv_len };
    if (f->w[MODEL_ATTN_GATE])
        p[n++] = (struct forward_product){ forward_tensor(f, MODEL_ATTN_GATE), f->w[MODEL_ATTN_GATE], 0, b->made, f->q_len };
    forward_products(f, p, n, b->norm, f->d, s->n);
    pool_for(f->pool, s->n, ITEM, place_some, (void *)(uintptr_t)s);
    keep(s);
}

/* ---- latent attention ---- */

static void low_norm(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    size_t rank = (size_t)f->own.q_rank;
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        nn_rmsnorm(low(f) + i * rank, low(f) + i * rank, f->w[MODEL_ATTN_Q_A_NORM], f->own.q_rank, f->own.rms_eps);
}

static void place_latent(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    size_t q_dim = (size_t)model_q_dim(&f->own);
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        nn_latent_token(f->b.q + i * f->q_len, f->b.made + i * q_dim, f->b.k + (s->first - s->group + i) * f->kv_len,
                        f->w[MODEL_ATTN_KV_A_NORM], f->freqs, &f->own, (int)f->pos[s->first + i]);
}

static void turn_heads(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    const struct model_hparams *h = &f->own;
    const struct nn_each_head absorb = { f->w[MODEL_ATTN_K_B], forward_tensor(f, MODEL_ATTN_K_B)->type, h->kv_rank, h->nope_dim, f->q_len,
                                         (size_t)h->head_dim, (size_t)model_q_dim(h), (size_t)(h->nope_dim + h->n_rot) };
    (void)worker;
    nn_each_head(f->b.q, f->b.made, s->n, begin, end, &absorb);
}

static void value_heads(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    const struct model_hparams *h = &f->own;
    const struct nn_each_head value = { f->w[MODEL_ATTN_V_B], forward_tensor(f, MODEL_ATTN_V_B)->type, h->value_dim, h->kv_rank,
                                        (size_t)model_out_dim(h), (size_t)h->value_dim, (size_t)(h->n_heads * h->kv_rank),
                                        (size_t)h->kv_rank };
    (void)worker;
    nn_each_head(heads(f), f->b.att, s->n, begin, end, &value);
}

/* Where heads share what keys and values are made of: b.q has queries turned into that, b.k it itself. */
static void make_latent(const struct span *s)
{
    struct forward *f = s->f;
    const struct batch *b = &f->b;
    size_t rank = (size_t)f->own.q_rank, q_dim = (size_t)model_q_dim(&f->own);
    void *ctx = (void *)(uintptr_t)s;
    enum model_role q = rank ? MODEL_ATTN_Q_A : MODEL_ATTN_Q;
    const struct forward_product p[2] = {
        { forward_tensor(f, q), f->w[q], 0, rank ? low(f) : b->made, rank ? rank : q_dim },
        { forward_tensor(f, MODEL_ATTN_KV_A), f->w[MODEL_ATTN_KV_A], 0, b->k + (s->first - s->group) * f->kv_len, f->kv_len } };
    forward_products(f, p, 2, b->norm, f->d, s->n);
    if (rank) {
        pool_for(f->pool, s->n, ITEM, low_norm, ctx);
        forward_batch_matrix(f, MODEL_ATTN_Q_B, b->made, low(f), s->n);
    }
    pool_for(f->pool, s->n, ITEM, place_latent, ctx);
    pool_for(f->pool, f->own.n_heads, 1, turn_heads, ctx);
}

/* ---- attention itself ---- */

/* Item i: some heads of one token; tokens go by before the heads change. */
static void attend_some(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    const struct model_hparams *h = &f->own;
    const struct batch *b = &f->b;
    const float *values = h->kv_rank ? b->k : b->v;
    const struct nn_attn a = { .n_heads = h->n_heads, .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .value_dim = h->kv_rank,
                               .kv_stride = f->kv_len, .scores_stride = (size_t)f->max_len,
                               .scale = h->attn_scale > 0 ? h->attn_scale : 1.0f / sqrtf((float)h->head_dim),
                               .sinks = f->w[MODEL_ATTN_SINKS], .softcap = h->attn_softcap };
    size_t one = (size_t)(h->kv_rank ? h->kv_rank : h->head_dim), width = one * (size_t)h->n_heads;
    for (int item = begin; item < end; item++) {
        size_t i = (size_t)(item % s->n), token = s->first + i;
        int head = item / s->n * nn_attn_heads(h), to = head + nn_attn_heads(h) < h->n_heads ? head + nn_attn_heads(h) : h->n_heads;
        int pos = (int)f->pos[token], from = model_attends_from(h, f->layer, pos);
        size_t row = token - s->group - (size_t)(pos - from);
        float *out = b->att + i * width;
        nn_attention(out, b->q + i * f->q_len, b->k + row * f->kv_len, values + row * f->kv_len, pos + 1 - from, head, to, &a,
                     f->scratch[worker].scores);
        if (h->out_gate)
            nn_gate_heads(out + (size_t)head * one, b->made + (i * (size_t)h->n_heads + (size_t)head) * (size_t)model_gate_stride(h),
                          model_gate_stride(h), to - head, h->head_dim);
    }
}

static void add_some(void *ctx, int begin, int end, int worker)
{
    const struct span *s = ctx;
    const struct forward *f = s->f;
    float *out = f->b.out + (size_t)begin * f->d;
    (void)worker;
    for (int i = begin; i < end; i++)
        forward_add_bias(f->b.out + (size_t)i * f->d, f->w[MODEL_ATTN_OUTPUT_BIAS], f->d);
    forward_add_residual(f, f->x + (s->first + (size_t)begin) * f->d, out, f->w[MODEL_ATTN_POST_NORM], end - begin);
}

static void attend(struct forward *f, size_t first, size_t group, size_t n)
{
    const struct model_hparams *h = &f->own;
    struct span s = { f, first, group, (int)n };
    int groups = (h->n_heads + nn_attn_heads(h) - 1) / nn_attn_heads(h);
    pool_for(f->pool, s.n, ITEM, norm_some, &s);
    (h->kv_rank ? make_latent : make_plain)(&s);
    pool_for(f->pool, groups * s.n, ITEM, attend_some, &s);
    if (h->kv_rank)
        pool_for(f->pool, h->n_heads, 1, value_heads, &s);
    forward_batch_matrix(f, MODEL_ATTN_OUTPUT, f->b.out, h->kv_rank ? heads(f) : f->b.att, s.n);
    pool_for(f->pool, s.n, ITEM, add_some, &s);
}

/* Whole sequences that fit a batch together; one that does not, in parts of about one length. */
void forward_attention(struct forward *f)
{
    const struct forward_run *run = f->run;
    for (size_t i = 0, end; i < run->n_sequences; i = end) {
        size_t first = (size_t)run->starts[i], len;
        for (end = i + 1; end < run->n_sequences && run->starts[end + 1] - first <= BATCH; end++)
            ;
        len = (size_t)run->starts[end] - first;
        size_t parts = (len + BATCH - 1) / BATCH, each = parts ? (len + parts - 1) / parts : 0;
        for (size_t t = 0; t < len; t += each)
            attend(f, first + t, first, len - t < each ? len - t : each);
    }
}
