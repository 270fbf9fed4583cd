/* Dense work on the processor: products divided by rows among the pool's workers, attention by heads. A row of weights is
 * read once for all tokens of a call. Worker 0, the caller, looks after reads between the pieces of products. */
#include "runtime/engine/dense.h"

#include "common/kernels/quant.h"
#include "common/model/nn.h"
#include "common/plan/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECES 8 /* per worker */

struct cpu {
    struct dense dense;
    struct dense_config c;
    float attn_scale;
};

static struct cpu *cpu_of(struct dense *d)
{
    return (struct cpu *)d;
}

/* ---- products ---- */

struct product {
    const struct dense_matrix *m;
    float *out;         /* f32[n_tokens][n_rows] */
    const void *x;
    size_t x_stride;
};

struct products {
    struct product p[3];
    int n, n_tokens;
    const struct dense_reads *reads; /* or NULL */
    struct err *e;
    int failed;         /* of reads; worker 0 */
};

/* Between pieces, worker 0, the caller, looks after reads; the others go on. */
static void some_rows(void *ctx, int begin, int end, int worker)
{
    struct products *s = ctx;
    for (int i = 0; i < s->n && begin < end; i++) {
        const struct product *p = &s->p[i];
        const struct dense_matrix *m = p->m;
        int to = end < m->n_rows ? end : m->n_rows;
        if (begin < to) {
            kernels->rows[m->form][m->type](p->out + begin, (size_t)m->n_rows, m->data + (size_t)begin * m->row_bytes,
                                            m->row_bytes, to - begin, p->x, p->x_stride, s->n_tokens, m->n_cols);
            begin = to;
        }
        begin -= m->n_rows;
        end -= m->n_rows;
    }
    if (worker == 0 && s->reads && s->failed == 0)
        s->failed = s->reads->poll(s->reads->ctx, s->e);
}

static void add_product(struct products *s, const struct dense_matrix *m, struct acts *a, float *out)
{
    struct product *p = &s->p[s->n++];
    p->m = m;
    p->out = out;
    p->x = acts_in_form(a, m->form, &p->x_stride);
    s->n_tokens = a->n_tokens;
}

/* How many of n items make a piece, when all of them cost `bytes` of reading or so: none smaller than SCHEDULE_PIECE_BYTES, for
 * a worker has to be woken for it, and several per worker, for they do not all run at the same speed and the slowest is waited for. */
static int piece_of(const struct cpu *c, int n, uint64_t bytes)
{
    uint64_t pieces = (uint64_t)pool_threads(c->c.pool) * PIECES, most = bytes / SCHEDULE_PIECE_BYTES;
    pieces = pool_threads(c->c.pool) == 1 || !most ? 1 : most < pieces ? most : pieces;
    return n < (int)pieces ? 1 : (int)(((uint64_t)n + pieces - 1) / pieces);
}

static int run_products(const struct cpu *c, struct products *s)
{
    int rows = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) {
        rows += s->p[i].m->n_rows;
        bytes += (uint64_t)s->p[i].m->n_rows * s->p[i].m->row_bytes;
    }
    uint64_t pieces = bytes * (1 + (uint64_t)s->n_tokens / 4) / SCHEDULE_PIECE_BYTES; /* a row is read once for all tokens */
    int least = pieces > (uint64_t)rows ? 1 : pieces ? (int)((uint64_t)rows / pieces) : rows;
    pool_for_shrinking(c->c.pool, rows, (least + 7) / 8 * 8, some_rows, s);
    return s->failed;
}

static int one_product(const struct cpu *c, const struct dense_matrix *m, struct acts *a, float *out)
{
    struct products p = { .n = 0 };
    add_product(&p, m, a, out);
    return run_products(c, &p);
}

/* ---- attention ---- */

static void norms(const struct cpu *c, const float *w, const float *x, int n, float *out)
{
    size_t d_model = (size_t)c->c.h->d_model;
    for (int t = 0; t < n; t++)
        nn_rmsnorm(out + (size_t)t * d_model, x + (size_t)t * d_model, w, c->c.h->d_model, c->c.h->rms_eps);
}

struct attention {
    const struct cpu *cpu;
    const struct engine_token *tokens;
    int layer;
};

/* Row of the plane of K or V of a layer. */
static uint8_t *kv_row(const struct cpu *c, int layer, int value, int64_t row)
{
    return c->c.memory.kv + ((size_t)layer * 2 + (size_t)value) * c->c.kv.plane_bytes + (size_t)row * c->c.kv.row_bytes;
}

static void store_kv(const struct cpu *c, const float *v, uint8_t *to)
{
    int n = c->c.h->n_kv_heads * c->c.h->head_dim;
    if (c->c.kv_f16)
        kernels->to_f16((uint16_t *)to, v, n);
    else
        memcpy(to, v, (size_t)n * sizeof *v);
}

static void add_bias(float *x, const float *bias, int n)
{
    for (int i = 0; bias && i < n; i++)
        x[i] += bias[i];
}

/* Biases, norms, rotation and the KV cache for tokens [begin, end). */
static void place_tokens(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct cpu *c = a->cpu;
    const struct model_hparams *h = c->c.h;
    const struct dense_memory *m = &c->c.memory;
    const struct dense_layer *l = &c->c.w->layers[a->layer];
    int q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    (void)worker;
    for (int t = begin; t < end; t++) {
        float *q = m->q + (size_t)t * (size_t)q_dim, *k = m->k + (size_t)t * (size_t)kv_dim,
              *v = m->v + (size_t)t * (size_t)kv_dim;
        const struct engine_token *tok = &a->tokens[t];
        nn_heads(q, h->n_heads, l->q_bias, l->q_norm, h);
        nn_heads(k, h->n_kv_heads, l->k_bias, l->k_norm, h);
        add_bias(v, l->v_bias, kv_dim);
        if (model_rotates(h, a->layer)) {
            const float *freqs = c->c.w->rope_freqs + (model_has_window(h, a->layer) ? h->n_rot / 2 : 0);
            nn_rope(q, h->n_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, tok->pos);
            nn_rope(k, h->n_kv_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, tok->pos);
        }
        float scale = nn_query_scale(h, tok->pos);
        for (int i = 0; scale != 1 && i < q_dim; i++)
            q[i] *= scale;
        int64_t row = kv_pages_row(c->c.pages, tok->seq, tok->pos);
        store_kv(c, k, kv_row(c, a->layer, 0, row));
        store_kv(c, v, kv_row(c, a->layer, 1, row));
    }
}

/* Item i: the heads that share one KV head, of one token. */
static void some_heads(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct cpu *c = a->cpu;
    const struct model_hparams *h = c->c.h;
    int group = h->n_heads / h->n_kv_heads;
    size_t q_dim = (size_t)h->n_heads * (size_t)h->head_dim;
    struct nn_attn shape = { .n_heads = h->n_heads,
                                   .n_kv_heads = h->n_kv_heads,
                                   .head_dim = h->head_dim,
                                   .kv_f16 = c->c.kv_f16,
                                   .kv_stride = (size_t)h->n_kv_heads * (size_t)h->head_dim,
                                   .scores_stride = (size_t)(c->c.context + 15) / 16 * 16,
                                   .scale = c->attn_scale,
                                   .sinks = c->c.w->layers[a->layer].sinks, .softcap = h->attn_softcap, .page = SCHEDULE_KV_PAGE };
    int heads = group < NN_ATTN_HEADS ? group : NN_ATTN_HEADS;
    float *scores = c->c.memory.scores + (size_t)worker * (size_t)heads * shape.scores_stride;
    for (int i = begin; i < end; i++) {
        int t = i / h->n_kv_heads, kv = i % h->n_kv_heads;
        const struct engine_token *tok = &a->tokens[t];
        int from = model_attends_from(h, a->layer, tok->pos);
        shape.pages = kv_pages_of(c->c.pages, tok->seq);
        shape.first = from;
        int first = shape.pages ? 0 : from; /* row of K and V that nn_attention counts from */
        nn_attention(c->c.memory.attn + (size_t)t * q_dim, c->c.memory.q + (size_t)t * q_dim, kv_row(c, a->layer, 0, first),
                     kv_row(c, a->layer, 1, first), tok->pos + 1 - from, kv * group, (kv + 1) * group, &shape, scores);
    }
}

static int cpu_attention(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                         const struct dense_reads *reads, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    const struct dense_layer *l = &c->c.w->layers[layer];
    const struct dense_memory *m = &c->c.memory;
    struct attention a = { c, tokens, layer };
    struct products qkv = { .reads = reads, .e = e }, o = { .reads = reads, .e = e };
    int n = in->n_tokens, r;
    add_product(&qkv, &l->q, in, m->q);
    add_product(&qkv, &l->k, in, m->k);
    add_product(&qkv, &l->v, in, m->v);
    if ((r = run_products(c, &qkv)) < 0)
        return r;
    pool_for(c->c.pool, n, 1, place_tokens, &a);
    uint64_t kv_bytes = 0;
    for (int t = 0; t < n; t++)
        kv_bytes += 2 * c->c.kv.row_bytes *
                    (uint64_t)(tokens[t].pos + 1 - model_attends_from(h, layer, tokens[t].pos));
    pool_for(c->c.pool, n * h->n_kv_heads, piece_of(c, n * h->n_kv_heads, kv_bytes), some_heads, &a);
    struct acts heads = { .f32 = m->attn, .n_cols = h->n_heads * h->head_dim, .n_tokens = n, .q8 = m->act };
    add_product(&o, &l->o, &heads, out);
    r = run_products(c, &o);
    for (int t = 0; t < n; t++)
        add_bias(out + (size_t)t * (size_t)h->d_model, l->o_bias, h->d_model);
    if (l->attn_post_norm)
        norms(c, l->attn_post_norm, out, n, out);
    return r;
}

static int cpu_copy_page(struct dense *d, int from, int to, int n, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    (void)e;
    for (int l = 0; l < model_depth(c->c.h); l++)
        for (int value = 0; value < 2; value++)
            memcpy(kv_row(c, l, value, (int64_t)to * SCHEDULE_KV_PAGE), kv_row(c, l, value, (int64_t)from * SCHEDULE_KV_PAGE),
                   (size_t)n * c->c.kv.row_bytes);
    return 0;
}

/* ---- the rest ---- */

static int cpu_embed(struct dense *d, const struct engine_token *tokens, int n, float *x, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_matrix *m = &c->c.w->embd;
    const struct quant_traits *q = quant_traits(m->type);
    size_t d_model = (size_t)c->c.h->d_model;
    (void)e;
    for (int t = 0; t < n; t++)
        q->dequant(x + (size_t)t * d_model, m->data + (size_t)tokens[t].id * m->row_bytes, d_model);
    float scale = c->c.h->embd_scale;
    for (size_t i = 0; scale > 0 && i < (size_t)n * d_model; i++)
        x[i] *= scale;
    return 0;
}

static int cpu_norm(struct dense *d, int layer, enum dense_norm which, const float *x, int n, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_layer *l = &c->c.w->layers[layer];
    (void)e;
    norms(c, which == DENSE_NORM_ATTENTION ? l->attn_norm : which == DENSE_NORM_FFN ? l->ffn_norm : l->ffn_post_norm, x, n, out);
    return 0;
}

static int cpu_route(struct dense *d, int layer, struct acts *in, float *logits, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_layer *l = &c->c.w->layers[layer];
    int r = one_product(c, &l->router, in, logits), n = c->c.h->n_experts;
    (void)e;
    for (int t = 0; t < in->n_tokens; t++)
        add_bias(logits + (size_t)t * (size_t)n, l->router_bias, n);
    return r;
}

static int cpu_shared(struct dense *d, int layer, struct acts *in, float *tmp, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    const struct dense_layer *l = &c->c.w->layers[layer];
    int n = in->n_tokens, r, d_model = h->d_model, width = l->shared_gate.n_rows;
    float *gate = c->c.memory.shared, *up = gate + (size_t)c->c.tokens * (size_t)width;
    struct products p = { .n = 0 };
    (void)e;
    add_product(&p, &l->shared_gate, in, gate);
    add_product(&p, &l->shared_up, in, up);
    if ((r = run_products(c, &p)) < 0)
        return r;
    nn_ffn_act(gate, gate, up, n * width, h->act);
    struct acts hidden = { .f32 = gate, .n_cols = width, .n_tokens = n, .q8 = c->c.memory.act };
    if ((r = one_product(c, &l->shared_down, &hidden, tmp)) < 0)
        return r;
    for (int t = 0; t < n; t++) {
        float w = nn_shared_weight(l->shared_router, in->f32 + (size_t)t * (size_t)d_model, d_model);
        for (int i = 0; i < d_model; i++)
            out[(size_t)t * (size_t)d_model + (size_t)i] += w * tmp[(size_t)t * (size_t)d_model + (size_t)i];
    }
    return 0;
}

static int cpu_add(struct dense *d, float *x, const float *v, int n, struct err *e)
{
    size_t total = (size_t)n * (size_t)cpu_of(d)->c.h->d_model;
    float scale = cpu_of(d)->c.h->residual_scale > 0 ? cpu_of(d)->c.h->residual_scale : 1;
    (void)e;
    for (size_t i = 0; i < total; i++)
        x[i] += scale * v[i];
    return 0;
}

static int cpu_head(struct dense *d, const float *hidden, int n, float *logits, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_memory *m = &c->c.memory;
    (void)e;
    norms(c, c->c.w->output_norm, hidden, n, m->normed);
    struct acts in = { .f32 = m->normed, .n_cols = c->c.h->d_model, .n_tokens = n, .q8 = m->act };
    int r = one_product(c, &c->c.w->output, &in, logits);
    nn_logits(logits, (size_t)n * (size_t)c->c.h->n_vocab, c->c.h);
    return r;
}

/* ---- life ---- */

static int cpu_open(const struct dense_config *config, struct dense **out, struct err *e)
{
    struct cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "out of memory for dense work");
    c->dense.backend = &dense_cpu_backend;
    c->c = *config;
    c->attn_scale = config->h->attn_scale > 0 ? config->h->attn_scale : (float)(1.0 / sqrt((double)config->h->head_dim));
    *out = &c->dense;
    return 0;
}

static void cpu_close(struct dense *d)
{
    free(d);
}

const struct dense_backend dense_cpu_backend = {
    .name = "cpu", .open = cpu_open, .close = cpu_close, .embed = cpu_embed, .norm = cpu_norm, .attention = cpu_attention,
    .copy_page = cpu_copy_page,
    .route = cpu_route, .shared = cpu_shared, .add = cpu_add, .head = cpu_head,
};
