/* The forward pass: equations in common/model/nn.h and common/kernels/kernels.h, order and threads here. A pass
 * takes tokens of any sequences; each token's residual stream is a row of x, and nothing but the
 * KV cache couples rows, so how tokens are grouped into passes changes no bit. */
#include "runtime/engine/engine_impl.h"

#include "common/base/progress.h"

#include <math.h>
#include <string.h>

#define PIECE_BYTES (64u << 10)
#define PIECES      8 /* per worker */

/* ---- products of dense matrices ---- */

struct product {
    const struct matrix *m;
    float *out;         /* f32[n_tokens][n_rows] */
    const void *x;
    size_t x_stride;
};

struct products {
    struct product p[3];
    int n, n_tokens;
    struct engine *reading; /* or NULL: reads of the layer's FFN are under way meanwhile */
    struct err *e;
    int failed;             /* of them; worker 0 */
};

/* Between pieces, worker 0, the caller, looks after reads; the others go on. */
static void some_rows(void *ctx, int begin, int end, int worker)
{
    struct products *s = ctx;
    for (int i = 0; i < s->n && begin < end; i++) {
        const struct product *p = &s->p[i];
        const struct matrix *m = p->m;
        int to = end < m->n_rows ? end : m->n_rows;
        if (begin < to) {
            kernels->rows[m->form][m->type](p->out + begin, (size_t)m->n_rows, m->data + (size_t)begin * m->row_bytes,
                                            m->row_bytes, to - begin, p->x, p->x_stride, s->n_tokens, m->n_cols);
            begin = to;
        }
        begin -= m->n_rows;
        end -= m->n_rows;
    }
    if (worker == 0 && s->reading && s->failed == 0)
        s->failed = pipeline_poll(s->reading->pipe, s->e);
}

static void add_product(struct products *s, const struct matrix *m, struct acts *a, float *out)
{
    struct product *p = &s->p[s->n++];
    p->m = m;
    p->out = out;
    p->x = acts_in_form(a, m->form, &p->x_stride);
    s->n_tokens = a->n_tokens;
}

/* How many of n items make a piece, when all of them cost `bytes` of reading or so: none smaller than PIECE_BYTES, for
 * a worker has to be woken for it, and several per worker, for they do not all run at the same speed and the slowest is waited for. */
static int piece_of(const struct engine *g, int n, uint64_t bytes)
{
    uint64_t pieces = (uint64_t)pool_threads(g->pool) * PIECES, most = bytes / PIECE_BYTES;
    pieces = pool_threads(g->pool) == 1 || !most ? 1 : most < pieces ? most : pieces;
    return n < (int)pieces ? 1 : (int)(((uint64_t)n + pieces - 1) / pieces);
}

static void run_products(struct engine *g, struct products *s)
{
    int rows = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) {
        rows += s->p[i].m->n_rows;
        bytes += (uint64_t)s->p[i].m->n_rows * s->p[i].m->row_bytes;
    }
    uint64_t pieces = bytes * (1 + (uint64_t)s->n_tokens / 4) / PIECE_BYTES; /* a row is read once for all tokens */
    int least = pieces > (uint64_t)rows ? 1 : pieces ? (int)((uint64_t)rows / pieces) : rows;
    pool_for_shrinking(g->pool, rows, (least + 7) / 8 * 8, some_rows, s);
}

void engine_product(struct engine *g, const struct matrix *m, struct acts *a, float *out)
{
    struct products p = { .n = 0 };
    add_product(&p, m, a, out);
    run_products(g, &p);
}

/* ---- attention ---- */

struct attention {
    struct engine *g;
    const struct engine_token *tokens;
    int layer;
};

static uint8_t *kv_at(const struct engine *g, int seq, int layer, int value, int pos)
{
    size_t one = ((size_t)seq * (size_t)g->h.n_layers + (size_t)layer) * 2 + (size_t)value;
    return g->kv + one * g->kv_one_bytes + (size_t)pos * g->kv_row_bytes;
}

static void store_kv(struct engine *g, const float *v, uint8_t *to)
{
    int n = g->h.n_kv_heads * g->h.head_dim;
    if (g->c.choice.kv_f16)
        kernels->to_f16((uint16_t *)to, v, n);
    else
        memcpy(to, v, (size_t)n * sizeof *v);
}

static void add_bias(float *v, const float *bias, int n)
{
    for (int i = 0; bias && i < n; i++)
        v[i] += bias[i];
}

/* Bias, rotation and the KV cache for tokens [begin, end). */
static void place_tokens(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    struct engine *g = a->g;
    const struct model_hparams *h = &g->h;
    const struct layer *l = &g->layers[a->layer];
    int q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    (void)worker;
    for (int t = begin; t < end; t++) {
        float *q = g->q + (size_t)t * (size_t)q_dim, *k = g->k + (size_t)t * (size_t)kv_dim,
              *v = g->v + (size_t)t * (size_t)kv_dim;
        const struct engine_token *tok = &a->tokens[t];
        add_bias(q, l->q_bias, q_dim);
        add_bias(k, l->k_bias, kv_dim);
        add_bias(v, l->v_bias, kv_dim);
        if (model_rotates(h, a->layer)) {
            nn_rope(q, h->n_heads, h->head_dim, h->n_rot, h->rope, g->rope_freqs, tok->pos);
            nn_rope(k, h->n_kv_heads, h->head_dim, h->n_rot, h->rope, g->rope_freqs, tok->pos);
        }
        store_kv(g, k, kv_at(g, tok->seq, a->layer, 0, tok->pos));
        store_kv(g, v, kv_at(g, tok->seq, a->layer, 1, tok->pos));
    }
}

/* Item i: the heads that share one KV head, of one token. */
static void some_heads(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    struct engine *g = a->g;
    const struct model_hparams *h = &g->h;
    int group = h->n_heads / h->n_kv_heads;
    size_t q_dim = (size_t)h->n_heads * (size_t)h->head_dim;
    const struct nn_attn shape = { .n_heads = h->n_heads,
                                   .n_kv_heads = h->n_kv_heads,
                                   .head_dim = h->head_dim,
                                   .kv_f16 = g->c.choice.kv_f16,
                                   .kv_stride = (size_t)h->n_kv_heads * (size_t)h->head_dim,
                                   .scores_stride = (size_t)(g->c.choice.context + 15) / 16 * 16,
                                   .scale = g->attn_scale };
    int heads = group < NN_ATTN_HEADS ? group : NN_ATTN_HEADS;
    float *scores = g->scores + (size_t)worker * (size_t)heads * shape.scores_stride;
    for (int i = begin; i < end; i++) {
        int t = i / h->n_kv_heads, kv = i % h->n_kv_heads;
        const struct engine_token *tok = &a->tokens[t];
        int from = model_attends_from(h, a->layer, tok->pos);
        nn_attention(g->attn + (size_t)t * q_dim, g->q + (size_t)t * q_dim, kv_at(g, tok->seq, a->layer, 0, from),
                     kv_at(g, tok->seq, a->layer, 1, from), tok->pos + 1 - from, kv * group, (kv + 1) * group, &shape,
                     scores);
    }
}

void engine_norm(const struct engine *g, const float *w, int n)
{
    size_t d = (size_t)g->h.d_model;
    for (int t = 0; t < n; t++)
        nn_rmsnorm(g->xn + (size_t)t * d, g->x + (size_t)t * d, w, g->h.d_model, g->h.rms_eps);
}

void engine_add_residual(struct engine *g, const float *v, int n)
{
    size_t total = (size_t)n * (size_t)g->h.d_model;
    for (size_t i = 0; i < total; i++)
        g->x[i] += v[i];
}

static int attention(struct engine *g, int layer, const struct engine_token *tokens, int n, struct err *e)
{
    const struct model_hparams *h = &g->h;
    struct layer *l = &g->layers[layer];
    struct attention a = { g, tokens, layer };
    struct products qkv = { .reading = g, .e = e }, o = { .reading = g, .e = e };
    engine_norm(g, l->attn_norm, n);
    struct acts in = { .f32 = g->xn, .n_cols = h->d_model, .n_tokens = n, .q8 = g->act_q8 };
    int r = engine_look_ahead(g, layer, &in, e);
    if (r < 0)
        return r;
    add_product(&qkv, &l->q, &in, g->q);
    add_product(&qkv, &l->k, &in, g->k);
    add_product(&qkv, &l->v, &in, g->v);
    run_products(g, &qkv);
    if (qkv.failed < 0)
        return qkv.failed;
    pool_for(g->pool, n, 1, place_tokens, &a);
    uint64_t kv_bytes = 0;
    for (int t = 0; t < n; t++)
        kv_bytes += 2 * g->kv_row_bytes *
                    (uint64_t)(tokens[t].pos + 1 - model_attends_from(h, layer, tokens[t].pos));
    pool_for(g->pool, n * h->n_kv_heads, piece_of(g, n * h->n_kv_heads, kv_bytes), some_heads, &a);
    struct acts heads = { .f32 = g->attn, .n_cols = h->n_heads * h->head_dim, .n_tokens = n, .q8 = g->act_q8 };
    add_product(&o, &l->o, &heads, g->acc);
    run_products(g, &o);
    engine_add_residual(g, g->acc, n);
    return o.failed;
}

/* ---- the pass ---- */

static int check_tokens(const struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    if (n < 1 || n > g->scratch.tokens)
        return err_set(e, ERR_LIMIT, "%d tokens in a pass; 1 to %d are possible", n, g->scratch.tokens);
    for (int t = 0; t < n; t++) {
        if (tokens[t].id < 0 || tokens[t].id >= g->h.n_vocab)
            return err_set(e, ERR_USAGE, "token id %d; the model has 0 to %d", tokens[t].id, g->h.n_vocab - 1);
        if (tokens[t].seq < 0 || tokens[t].seq >= g->c.choice.max_batch || tokens[t].pos < 0 ||
            tokens[t].pos >= g->c.choice.context)
            return err_set(e, ERR_LIMIT, "position %d of sequence %d; the context holds %d of %d sequences",
                           tokens[t].pos, tokens[t].seq, g->c.choice.context, g->c.choice.max_batch);
    }
    return 0;
}

static void embed(struct engine *g, const struct engine_token *tokens, int n)
{
    const struct quant_traits *q = quant_traits(g->embd.type);
    size_t d = (size_t)g->h.d_model;
    for (int t = 0; t < n; t++)
        q->dequant(g->x + (size_t)t * d, g->embd.data + (size_t)tokens[t].id * g->embd.row_bytes, d);
}

/* Time that the pipeline itself has booked: prediction's, and as the FFN's what predictions waited for. */
static uint64_t booked(const struct engine *g)
{
    struct pipeline_stats s = pipeline_stats(g->pipe);
    return s.predict_ns + s.predict_stall_ns;
}

/* Adds the time since *from, less what was booked of it, and moves *from on. */
static void add_time(struct engine *g, uint64_t *to, int64_t *from, uint64_t *before)
{
    int64_t now = progress_now_ns();
    uint64_t took = (uint64_t)(now - *from), of_it = booked(g) - *before;
    *to += took > of_it ? took - of_it : 0;
    *from = now;
    *before = booked(g);
}

static int one_layer(struct engine *g, int layer, const struct engine_token *tokens, int n, struct err *e)
{
    int r;
    int64_t start = progress_now_ns();
    uint64_t before = booked(g);
    if (g->h.early_router)
        engine_route(g, layer, g->x, n);
    if (!g->c.no_prefetch && (r = engine_prefetch(g, layer, n, e)) < 0)
        return r;
    if ((r = attention(g, layer, tokens, n, e)) < 0)
        return r;
    add_time(g, &g->stats.attention_ns, &start, &before);
    r = engine_ffn(g, layer, n, e);
    add_time(g, &g->stats.ffn_ns, &start, &before);
    return r;
}

static int forward(struct engine *g, const struct engine_token *tokens, int n, int predicted, struct err *e)
{
    int r = check_tokens(g, tokens, n, e);
    int64_t start = progress_now_ns();
    if (r < 0)
        return r;
    g->predicted = predicted;
    pipeline_begin(g->pipe, predicted);
    embed(g, tokens, n);
    for (int l = 0; l < g->h.n_layers && r == 0; l++)
        r = one_layer(g, l, tokens, n, e);
    if (r < 0)
        return r;
    for (int i = 0; i < g->h.n_layers * g->n_parts; i++)
        cache_tick(g->caches[i]);
    for (int t = 0; t < n; t++)
        if (tokens[t].pos >= g->n_pos[tokens[t].seq])
            g->n_pos[tokens[t].seq] = tokens[t].pos + 1;
    g->n_tokens = n;
    g->stats.passes++;
    g->stats.tokens += (uint64_t)n;
    g->stats.total_ns += (uint64_t)(progress_now_ns() - start);
    return 0;
}

int engine_forward(struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    return forward(g, tokens, n, g->c.mode == PLAN_PREDICTED, e);
}

int engine_forward_exact(struct engine *g, const struct engine_token *tokens, int n, struct err *e)
{
    return forward(g, tokens, n, 0, e);
}

void engine_hidden(const struct engine *g, int i, float *out)
{
    memcpy(out, g->x + (size_t)i * (size_t)g->h.d_model, (size_t)g->h.d_model * sizeof *out);
}

float *engine_logits(struct engine *g, int i, int row)
{
    return engine_logits_from(g, g->x + (size_t)i * (size_t)g->h.d_model, row);
}

float *engine_logits_from(struct engine *g, const float *hidden, int row)
{
    float *out = g->logits + (size_t)row * (size_t)g->h.n_vocab;
    int64_t start = progress_now_ns();
    nn_rmsnorm(g->xn, hidden, g->output_norm, g->h.d_model, g->h.rms_eps);
    struct acts in = { .f32 = g->xn, .n_cols = g->h.d_model, .n_tokens = 1, .q8 = g->act_q8 };
    engine_product(g, &g->output, &in, out);
    uint64_t took = (uint64_t)(progress_now_ns() - start);
    g->stats.head_ns += took;
    g->stats.total_ns += took;
    return out;
}

static int feed(struct engine *g, int seq, const int32_t *ids, int n, int predicted, int *done, struct err *e)
{
    *done = 0;
    while (*done < n) {
        struct engine_token tokens[ENGINE_PREFILL_MAX];
        int chunk = g->c.choice.prefill_chunk, m = 0, r;
        if (cancel_asked(g->c.cancel))
            return err_set(e, ERR_INTR, "interrupted after %d of %d prompt tokens", *done, n);
        while (m < chunk && m < ENGINE_PREFILL_MAX && *done + m < n) {
            tokens[m] = (struct engine_token){ ids[*done + m], seq, g->n_pos[seq] + m };
            m++;
        }
        if ((r = forward(g, tokens, m, predicted, e)) < 0)
            return r;
        *done += m;
    }
    return 0;
}

int engine_prefill(struct engine *g, int seq, const int32_t *ids, int n, int *done, struct err *e)
{
    return feed(g, seq, ids, n, 0, done, e);
}

int engine_feed(struct engine *g, int seq, const int32_t *ids, int n, int *done, struct err *e)
{
    return feed(g, seq, ids, n, g->c.mode == PLAN_PREDICTED, done, e);
}
