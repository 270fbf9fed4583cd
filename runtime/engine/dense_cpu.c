/* Dense work on the processor: products divided by rows among the pool's workers, attention by heads. A row of weights is
 * read once for all tokens of a call. Worker 0, the caller, looks after reads between the pieces of products. */
#include "runtime/engine/dense_impl.h"

#include "common/kernels/quant.h"
#include "common/model/kv_type.h"
#include "common/model/nn.h"
#include "common/ops/fold.h"
#include "common/plan/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Products of so many tokens are made in panels of rows. */
#define PANEL_TOKENS 16
#define PANEL_ROWS   64

/* ---- products ---- */

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

void cpu_add_product(const struct cpu *c, struct products *s, const struct dense_matrix *m, struct acts *a, float *out)
{
    struct product *p = &s->p[s->n++];
    p->m = m;
    p->out = out;
    if (!m->fold.block)
        p->x = acts_in_form(a, m->form, c->c.pool, &p->x_stride);
    s->n_tokens = a->n_tokens;
    s->in = a;
}

int cpu_piece_of(const struct cpu *c, int n, uint64_t bytes)
{
    return pool_grain(c->c.pool, n, bytes);
}

/* 1: something else made them. */
static int made_elsewhere(const struct cpu *c, const struct products *s, struct err *e)
{
    const struct dense_elsewhere *x = c->c.elsewhere;
    const struct dense_matrix *m[4];
    float *out[4];
    for (int i = 0; i < s->n; i++) {
        m[i] = s->p[i].m;
        out[i] = s->p[i].out;
    }
    return x ? x->products(x->ctx, m, out, s->n, s->in, s->reads, e) : 0;
}

static int run_products(const struct cpu *c, struct products *s)
{
    int done = made_elsewhere(c, s, s->e);
    if (done)
        return done < 0 ? done : 0;
    int rows = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) {
        rows += s->p[i].m->n_rows;
        bytes += (uint64_t)s->p[i].m->n_rows * s->p[i].m->row_bytes;
    }
    uint64_t pieces = bytes * (1 + (uint64_t)s->n_tokens / 4) / SCHEDULE_PIECE_BYTES; /* a row is read once for all tokens */
    int least = pieces > (uint64_t)rows ? 1 : pieces ? (int)((uint64_t)rows / pieces) : rows;
    int panel = s->n_tokens < PANEL_TOKENS ? 8 : PANEL_ROWS;
    pool_for_shrinking(c->c.pool, rows, (least + panel - 1) / panel * panel, some_rows, s);
    return s->failed;
}

/* Those of the input as it is, then those of folded matrices. */
int cpu_run_products(const struct cpu *c, struct products *s)
{
    struct products plain = { .n_tokens = s->n_tokens, .in = s->in, .reads = s->reads, .e = s->e }, folded = plain;
    int r = 0;
    for (int i = 0; i < s->n; i++) {
        struct products *to = s->p[i].m->fold.block ? &folded : &plain;
        to->p[to->n++] = s->p[i];
    }
    if (!folded.n)
        return run_products(c, s);
    if (plain.n && (r = run_products(c, &plain)) < 0)
        return r;
    fold_tokens(&folded.p[0].m->fold, c->c.pool, (float *)(uintptr_t)s->in->f32, (size_t)s->in->n_cols, s->n_tokens);
    s->in->has_q8 = 0;
    for (int i = 0; i < folded.n; i++)
        folded.p[i].x = acts_in_form(s->in, folded.p[i].m->form, c->c.pool, &folded.p[i].x_stride);
    return run_products(c, &folded);
}

int cpu_one_product(const struct cpu *c, const struct dense_matrix *m, struct acts *a, float *out, struct err *e)
{
    struct products p = { .e = e };
    cpu_add_product(c, &p, m, a, out);
    return cpu_run_products(c, &p);
}

/* ---- token by token ---- */

struct each_token {
    const struct cpu *cpu;
    const float *w, *bias, *x;
    float *out;
    int post;
};

static void norm_some(void *ctx, int begin, int end, int worker)
{
    const struct each_token *a = ctx;
    const struct model_hparams *h = a->cpu->c.h;
    size_t d_model = (size_t)h->d_model;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        if (a->post)
            nn_post_norm(a->out + t * d_model, a->x + t * d_model, a->w, h->d_model, h);
        else
            nn_norm(a->out + t * d_model, a->x + t * d_model, a->w, a->bias, h->d_model, h);
}

static void norms(const struct cpu *c, int n, struct each_token *a)
{
    pool_for(c->c.pool, n, cpu_piece_of(c, n, (uint64_t)n * (uint64_t)c->c.h->d_model * sizeof *a->x), norm_some, a);
}

/* Of what attention and FFN give. */
static void post_norms(const struct cpu *c, const float *w, const float *x, int n, float *out)
{
    norms(c, n, &(struct each_token){ c, w, NULL, x, out, 1 });
}

void cpu_norms(const struct cpu *c, const float *w, const float *bias, const float *x, int n, float *out)
{
    norms(c, n, &(struct each_token){ c, w, bias, x, out, 0 });
}

/* ---- attention ---- */

/* K or V of a layer: of each head by itself the rows, one after the other, so that attention over one head reads memory in order. */
struct kv_plane {
    uint8_t *at;
    size_t row_bytes, head_bytes; /* of a head */
    int n_heads, head_dim;
};

static struct kv_plane kv_plane_of(const struct cpu *c, int layer, int value)
{
    const struct model_hparams h = model_of_layer(c->c.h, layer);
    size_t at = (size_t)c->places[layer];
    size_t plane = h.kv_rank ? at : at * 2 + (size_t)value; /* latent: a value is its row's first elements */
    struct kv_plane p = { .at = c->c.memory.kv + plane * c->c.kv.plane_bytes,
                          .row_bytes = kv_type_bytes(c->c.kv_type, (uint64_t)h.head_dim),
                          .n_heads = h.kv_rank ? 1 : h.n_kv_heads, .head_dim = h.head_dim };
    p.head_bytes = p.row_bytes * c->c.kv.rows;
    return p;
}

struct attention {
    const struct cpu *cpu;
    const struct engine_token *tokens;
    int layer, n;
    float *heads;       /* what the output matrix sees */
    int each;           /* tokens of an item of attention */
    struct kv_plane kv[2];
};

/* Does a row have what is not finite? */
static int has_misfit(const struct kv_plane *p, int type, int64_t row)
{
    const size_t n = (size_t)(p->head_dim / kv_type_block(type));
    for (int i = 0; i < p->n_heads; i++)
        if (quant_first_not_finite(kv_type_quant(type), p->at + (size_t)i * p->head_bytes + (size_t)row * p->row_bytes, n) < n)
            return 1;
    return 0;
}

/* A key that became infinite would give a score of minus infinity, and be left out without a word. */
static void store_kv(const struct attention *a, const float *v, int value, const struct engine_token *tok)
{
    const struct cpu *c = a->cpu;
    const struct kv_plane p = a->kv[value];
    const int64_t row = kv_pages_row(c->c.pages, tok->seq, tok->pos);
    const size_t all = (size_t)p.n_heads * (size_t)p.head_dim;
    for (int i = 0; i < p.n_heads; i++) {
        uint8_t *to = p.at + (size_t)i * p.head_bytes + (size_t)row * p.row_bytes;
        if (c->c.kv_type == KV_F16)
            kernels->to_f16((uint16_t *)to, v + (size_t)i * (size_t)p.head_dim, p.head_dim);
        else
            quant_traits(kv_type_quant(c->c.kv_type))->quant(to, v + (size_t)i * (size_t)p.head_dim, (size_t)p.head_dim);
    }
    /* What is no number leaves no trace in a block, whose scale is that of the others. */
    const int blocks = kv_type_block(c->c.kv_type) > 1, misfit = c->c.misfits && has_misfit(&p, c->c.kv_type, row);
    const int itself = c->c.misfits && (misfit || blocks) && quant_first_not_finite(QUANT_F32, v, all) < all;
    if (misfit || itself) {
        uint64_t *first = &c->c.misfits[tok->seq], was = __atomic_load_n(first, __ATOMIC_RELAXED),
                 own = DENSE_MISFIT(tok->pos, a->layer, itself);
        while (own < was && !__atomic_compare_exchange_n(first, &was, own, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
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
    const struct model_hparams own = model_of_layer(c->c.h, a->layer), *h = &own;
    const struct dense_memory *m = &c->c.memory;
    const float *q_norm = cpu_vector(c, a->layer, MODEL_ATTN_Q_NORM), *k_norm = cpu_vector(c, a->layer, MODEL_ATTN_K_NORM);
    int q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    const int own_kv = cpu_matrix(c, a->layer, MODEL_ATTN_K)->data != NULL;
    (void)worker;
    for (int t = begin; t < end; t++) {
        float *q = m->q + (size_t)t * (size_t)q_dim, *k = m->k + (size_t)t * (size_t)kv_dim,
              *v = m->v + (size_t)t * (size_t)kv_dim;
        const struct engine_token *tok = &a->tokens[t];
        for (int i = 0; h->out_gate == 1 && i < h->n_heads; i++) /* gates stay where they are */
            memcpy(q + i * h->head_dim, m->made + ((size_t)t * (size_t)h->n_heads + (size_t)i) * 2 * (size_t)h->head_dim,
                   (size_t)h->head_dim * sizeof *q);
        if (own_kv && !cpu_matrix(c, a->layer, MODEL_ATTN_V)->data)
            memcpy(v, k, (size_t)kv_dim * sizeof *v);
        nn_heads(q, h->n_heads, cpu_vector(c, a->layer, MODEL_ATTN_Q_BIAS), h->qk_norm_after ? NULL : q_norm, h);
        if (own_kv)
            nn_heads(k, h->n_kv_heads, cpu_vector(c, a->layer, MODEL_ATTN_K_BIAS), h->qk_norm_after ? NULL : k_norm, h);
        if (own_kv)
            nn_values(v, cpu_vector(c, a->layer, MODEL_ATTN_V_BIAS), h);
        if (model_rotates(h, a->layer)) {
            const float *freqs = c->c.w->rope_freqs + (model_has_window(h, a->layer) ? c->c.h->n_rot / 2 : 0);
            nn_rope(q, h->n_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, tok->pos);
            if (own_kv)
                nn_rope(k, h->n_kv_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, tok->pos);
        }
        if (h->qk_norm_after) {
            nn_heads(q, h->n_heads, NULL, q_norm, h);
            if (own_kv)
                nn_heads(k, h->n_kv_heads, NULL, k_norm, h);
        }
        float scale = nn_query_scale(h, tok->pos);
        for (int i = 0; scale != 1 && i < q_dim; i++)
            q[i] *= scale;
        if (own_kv)
            store_kv(a, k, 0, tok);
        if (own_kv)
            store_kv(a, v, 1, tok);
    }
}

static int items_of(const struct model_hparams *h)
{
    return (h->n_heads + nn_attn_heads(h) - 1) / nn_attn_heads(h);
}

/* Tokens of an item, at most: several where there are items enough for all workers. */
static int item_tokens(const struct cpu *c, const struct model_hparams *h, int n)
{
    int t = n * items_of(h) / (pool_threads(c->c.pool) * POOL_PIECES);
    return t < 1 ? 1 : t < NN_ATTN_TOKENS ? t : NN_ATTN_TOKENS;
}

/* A worker's share of what keys and values were made in, which is free once they are in the cache. */
static float *own_floats(const struct cpu *c, const struct model_hparams *h, int worker, size_t *n)
{
    size_t all = (size_t)c->c.tokens * (size_t)(h->kv_rank ? h->head_dim : 2 * h->n_kv_heads * h->head_dim);
    *n = all / (size_t)pool_threads(c->c.pool) / 16 * 16;
    return c->c.memory.k + (size_t)worker * *n;
}

/* How many tokens from t on, before end, are one sequence's and follow each other, and have room. from: where each one's window begins,
 * from that of the first one's on. */
static int run_of(const struct attention *a, const struct nn_attn *shape, int t, int end, size_t floats, int from[NN_ATTN_TOKENS])
{
    const struct model_hparams *h = a->cpu->c.h;
    const struct engine_token *tok = a->tokens;
    int first = model_attends_from(h, a->layer, tok[t].pos), n = 0;
    for (; t + n < end && tok[t + n].seq == tok[t].seq && tok[t + n].pos == tok[t].pos + n; n++) {
        from[n] = model_attends_from(h, a->layer, tok[t + n].pos) - first;
        if (nn_attention_floats(n + 1, tok[t].pos + 1 - first, shape) > floats)
            break;
    }
    return n;
}

/* Item i: some heads of some tokens. */
static void some_heads(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct cpu *c = a->cpu;
    const struct model_hparams own = model_of_layer(c->c.h, a->layer), *h = &own;
    int group = h->n_heads / h->n_kv_heads, some = nn_attn_heads(h), items = items_of(h), width = h->kv_rank ? h->kv_rank : h->head_dim;
    size_t q_dim = (size_t)h->n_heads * (size_t)h->head_dim, out_dim = (size_t)h->n_heads * (size_t)width, floats;
    struct nn_attn shape = { .n_heads = h->n_heads,
                                   .n_kv_heads = h->n_kv_heads,
                                   .head_dim = h->head_dim,
                                   .value_dim = width,
                                   .type = kv_type_quant(c->c.kv_type),
                                   .kv_stride = (size_t)h->head_dim,
                                   .kv_head = (size_t)h->head_dim * c->c.kv.rows,
                                   .scores_stride = (size_t)(c->c.context + 15) / 16 * 16,
                                   .scale = c->attn_scale,
                                   .sinks = cpu_vector(c, a->layer, MODEL_ATTN_SINKS), .softcap = h->attn_softcap,
                                   .page = SCHEDULE_KV_PAGE };
    int heads = group < NN_ATTN_HEADS ? group : NN_ATTN_HEADS;
    float *scores = c->c.memory.scores + (size_t)worker * (size_t)heads * shape.scores_stride, *work = own_floats(c, h, worker, &floats);
    for (int i = begin, n; i < end; i++) {
        int t = i / items * a->each, to = t + a->each < a->n ? t + a->each : a->n;
        int head = i % items * some, end_head = head + some < h->n_heads ? head + some : h->n_heads;
        for (; t < to; t += n) {
            const struct engine_token *tok = &a->tokens[t];
            int begins[NN_ATTN_TOKENS], from = model_attends_from(h, a->layer, tok->pos);
            float *out = c->c.memory.attn + (size_t)t * out_dim, *q = c->c.memory.q + (size_t)t * q_dim;
            shape.pages = kv_pages_of(c->c.pages, tok->seq);
            shape.first = from;
            int first = shape.pages ? 0 : from; /* row of K and V that positions are counted from */
            const uint8_t *k = a->kv[0].at + (size_t)first * a->kv[0].row_bytes, *v = a->kv[1].at + (size_t)first * a->kv[1].row_bytes;
            n = run_of(a, &shape, t, to, floats, begins);
            if (n > 1) {
                nn_attention_run(out, out_dim, q, q_dim, k, v, n, tok->pos + 1 - from, begins, head, end_head, &shape, work);
            } else {
                n = 1;
                nn_attention(out, q, k, v, tok->pos + 1 - from, head, end_head, &shape, scores);
            }
            for (int j = t; h->out_gate && j < t + n; j++)
                nn_gate_heads(c->c.memory.attn + (size_t)j * out_dim + (size_t)head * (size_t)width,
                              c->c.memory.made + ((size_t)j * (size_t)h->n_heads + (size_t)head) * (size_t)model_gate_stride(h),
                              model_gate_stride(h), end_head - head, width);
        }
    }
}

/* ---- latent attention ---- */

static void place_latent(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct cpu *c = a->cpu;
    const struct model_hparams *h = c->c.h;
    const struct dense_memory *m = &c->c.memory;
    size_t turned = (size_t)h->n_heads * (size_t)h->head_dim;
    (void)worker;
    for (int t = begin; t < end; t++) {
        const struct engine_token *tok = &a->tokens[t];
        float *kv = m->k + (size_t)t * (size_t)h->head_dim;
        nn_latent_token(m->q + (size_t)t * turned, m->latent + (size_t)t * (size_t)model_q_dim(h), kv,
                        cpu_vector(c, a->layer, MODEL_ATTN_KV_A_NORM), c->c.w->rope_freqs, h, tok->pos);
        store_kv(a, kv, 0, tok);
    }
}

/* What does not rotate of the queries of some heads, turned into what the cache has. */
static void turn_heads(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct model_hparams *h = a->cpu->c.h;
    const struct dense_memory *m = &a->cpu->c.memory;
    const struct dense_matrix *w = cpu_matrix(a->cpu, a->layer, MODEL_ATTN_K_B);
    const struct nn_each_head each = { w->data, w->type, w->n_rows, w->n_cols, (size_t)h->n_heads * (size_t)h->head_dim,
                                       (size_t)h->head_dim, (size_t)model_q_dim(h), (size_t)(h->nope_dim + h->n_rot) };
    (void)worker;
    nn_each_head(m->q, m->latent, a->n, begin, end, &each);
}

/* The values of some heads, of what attention gave. */
static void value_heads(void *ctx, int begin, int end, int worker)
{
    const struct attention *a = ctx;
    const struct model_hparams *h = a->cpu->c.h;
    const struct dense_memory *m = &a->cpu->c.memory;
    const struct dense_matrix *w = cpu_matrix(a->cpu, a->layer, MODEL_ATTN_V_B);
    const struct nn_each_head each = { w->data, w->type, w->n_rows, w->n_cols, (size_t)model_out_dim(h), (size_t)h->value_dim,
                                       (size_t)h->n_heads * (size_t)h->kv_rank, (size_t)h->kv_rank };
    (void)worker;
    nn_each_head(a->heads, m->attn, a->n, begin, end, &each);
}

/* Queries, and what keys and values are made of. */
static int latent_products(const struct cpu *c, int layer, struct acts *in, const struct dense_reads *reads,
                           struct err *e)
{
    const struct model_hparams *h = c->c.h;
    const struct dense_memory *m = &c->c.memory;
    struct products first = { .reads = reads, .e = e }, then = { .reads = reads, .e = e };
    float *low = m->latent + (size_t)c->c.tokens * (size_t)model_q_dim(h);
    int n = in->n_tokens, r;
    cpu_add_product(c, &first, cpu_matrix(c, layer, h->q_rank ? MODEL_ATTN_Q_A : MODEL_ATTN_Q), in, h->q_rank ? low : m->latent);
    cpu_add_product(c, &first, cpu_matrix(c, layer, MODEL_ATTN_KV_A), in, m->k);
    if ((r = cpu_run_products(c, &first)) < 0 || !h->q_rank)
        return r;
    for (int t = 0; t < n; t++)
        nn_rmsnorm(low + (size_t)t * (size_t)h->q_rank, low + (size_t)t * (size_t)h->q_rank, cpu_vector(c, layer, MODEL_ATTN_Q_A_NORM),
                   h->q_rank, h->rms_eps);
    struct acts x = { .f32 = low, .n_cols = h->q_rank, .n_tokens = n, .q8 = m->act };
    cpu_add_product(c, &then, cpu_matrix(c, layer, MODEL_ATTN_Q_B), &x, m->latent);
    return cpu_run_products(c, &then);
}

/* ---- attention ---- */

static int plain_products(const struct cpu *c, int layer, struct acts *in, const struct dense_reads *reads, struct err *e)
{
    struct products qkv = { .reads = reads, .e = e };
    cpu_add_product(c, &qkv, cpu_matrix(c, layer, MODEL_ATTN_Q), in, c->c.h->out_gate == 1 ? c->c.memory.made : c->c.memory.q);
    if (cpu_matrix(c, layer, MODEL_ATTN_K)->data)
        cpu_add_product(c, &qkv, cpu_matrix(c, layer, MODEL_ATTN_K), in, c->c.memory.k);
    if (cpu_matrix(c, layer, MODEL_ATTN_V)->data)
        cpu_add_product(c, &qkv, cpu_matrix(c, layer, MODEL_ATTN_V), in, c->c.memory.v);
    if (cpu_matrix(c, layer, MODEL_ATTN_GATE)->data)
        cpu_add_product(c, &qkv, cpu_matrix(c, layer, MODEL_ATTN_GATE), in, c->c.memory.made);
    return cpu_run_products(c, &qkv);
}

int dense_attention(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                    const struct dense_reads *reads, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams own = model_of_layer(c->c.h, layer), *h = &own;
    const struct dense_matrix *k_b = cpu_matrix(c, layer, MODEL_ATTN_K_B), *v_b = cpu_matrix(c, layer, MODEL_ATTN_V_B);
    const struct dense_memory *m = &c->c.memory;
    int n = in->n_tokens, each = item_tokens(c, h, n), items = (n + each - 1) / each * items_of(h), r;
    float *attended = h->kv_rank ? m->attn + (size_t)c->c.tokens * (size_t)h->n_heads * (size_t)h->head_dim : m->attn;
    struct attention a = { c, tokens, layer, n, attended, each, { kv_plane_of(c, layer, 0), kv_plane_of(c, layer, 1) } };
    struct products o = { .reads = reads, .e = e };
    if ((r = (h->kv_rank ? latent_products : plain_products)(c, layer, in, reads, e)) < 0)
        return r;
    pool_for(c->c.pool, n, 1, h->kv_rank ? place_latent : place_tokens, &a);
    if (h->kv_rank)
        pool_for(c->c.pool, h->n_heads, cpu_piece_of(c, h->n_heads, k_b->row_bytes * (uint64_t)k_b->n_rows * (uint64_t)h->n_heads),
                 turn_heads, &a);
    uint64_t kv_bytes = 0;
    for (int t = 0; t < n; t++)
        kv_bytes += 2 * c->c.kv.row_bytes *
                    (uint64_t)(tokens[t].pos + 1 - model_attends_from(h, layer, tokens[t].pos));
    pool_for(c->c.pool, items, cpu_piece_of(c, items, kv_bytes), some_heads, &a);
    if (h->kv_rank)
        pool_for(c->c.pool, h->n_heads, cpu_piece_of(c, h->n_heads, v_b->row_bytes * (uint64_t)v_b->n_rows * (uint64_t)h->n_heads),
                 value_heads, &a);
    struct acts heads = { .f32 = attended, .n_cols = model_out_dim(h), .n_tokens = n, .q8 = m->act };
    cpu_add_product(c, &o, cpu_matrix(c, layer, MODEL_ATTN_OUTPUT), &heads, out);
    r = cpu_run_products(c, &o);
    for (int t = 0; t < n; t++)
        add_bias(out + (size_t)t * (size_t)h->d_model, cpu_vector(c, layer, MODEL_ATTN_OUTPUT_BIAS), h->d_model);
    if (cpu_vector(c, layer, MODEL_ATTN_POST_NORM))
        post_norms(c, cpu_vector(c, layer, MODEL_ATTN_POST_NORM), out, n, out);
    return r;
}

static int cpu_copy_state(struct dense *d, int from, int to, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    size_t bytes = (size_t)c->c.kv.state_bytes * c->n_states;
    uint8_t *states = c->c.memory.kv + c->c.kv.states;
    (void)e;
    memcpy(states + (size_t)to * bytes, states + (size_t)from * bytes, bytes);
    return 0;
}

static int (*const mixers[OP_KINDS])(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                                     const struct dense_reads *reads, float *out, struct err *e) = {
#define MIXER(kind, name, here) [OP_##kind] = dense_##name,
#include "common/model/operations.def"
};

static int cpu_attention(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                         const struct dense_reads *reads, float *out, struct err *e)
{
    return mixers[graph_mixer(cpu_of(d)->c.h, layer)](d, layer, in, tokens, reads, out, e);
}

static void move(void *of, void *memory, size_t bytes, int in)
{
    memcpy(in ? of : memory, in ? memory : of, bytes);
}

/* Rows [from, from + n) of a plane, head after head, to or from rows of their own. */
static void move_rows(const struct kv_plane *p, int64_t from, int64_t n, uint8_t *own, size_t own_head, int in)
{
    for (int i = 0; i < p->n_heads; i++)
        move(p->at + (size_t)i * p->head_bytes + (size_t)from * p->row_bytes, own + (size_t)i * own_head, (size_t)n * p->row_bytes, in);
}

/* Plane i of all that have rows of the KV cache of their own, a layer after the other; 0: there is none. */
static int plane_at(const struct cpu *c, int i, struct kv_plane *out)
{
    const int each = c->c.h->kv_rank ? 1 : 2;
    for (int l = 0; l < model_depth(c->c.h); l++)
        if (model_owns_kv(c->c.h, l) && (i -= each) < 0) {
            *out = kv_plane_of(c, l, i + each);
            return 1;
        }
    return 0;
}

static int cpu_copy_page(struct dense *d, int from, int to, int n, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    struct kv_plane p;
    (void)e;
    for (int i = 0; plane_at(c, i, &p); i++)
        move_rows(&p, (int64_t)to * SCHEDULE_KV_PAGE, n, p.at + (size_t)from * SCHEDULE_KV_PAGE * p.row_bytes, p.head_bytes, 1);
    return 0;
}

static int cpu_move_page(struct dense *d, int page, void *memory, int in, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const size_t bytes = SCHEDULE_KV_PAGE * c->c.kv.row_bytes;
    struct kv_plane p;
    (void)e;
    for (int i = 0; plane_at(c, i, &p); i++) {
        uint8_t *own = (uint8_t *)memory + (size_t)i * bytes;
        const size_t head = SCHEDULE_KV_PAGE * p.row_bytes, all = head * (size_t)p.n_heads;
        if (!in)
            memset(own + all, 0, bytes - all); /* of layers with smaller rows than others */
        move_rows(&p, (int64_t)page * SCHEDULE_KV_PAGE, SCHEDULE_KV_PAGE, own, head, in);
    }
    return 0;
}

static int cpu_move_state(struct dense *d, int seq, void *memory, int in, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    size_t bytes = (size_t)c->c.kv.state_bytes * c->n_states;
    (void)e;
    move(c->c.memory.kv + c->c.kv.states + (size_t)seq * bytes, memory, bytes, in);
    return 0;
}

/* ---- the rest ---- */

/* Rows of learned positions are made to floats a few at a time. */
static int add_positions(const struct cpu *c, const struct engine_token *tokens, int n, float *x, struct err *e)
{
    enum { PIECE = 256 }; /* of every type's blocks a multiple */
    const struct dense_matrix *m = cpu_matrix(c, -1, MODEL_POSITION_EMBD);
    const struct quant_traits *q = quant_traits(m->type);
    size_t d_model = (size_t)c->c.h->d_model;
    float piece[PIECE];
    for (int t = 0; t < n; t++) {
        if (tokens[t].pos >= c->c.h->n_ctx_train)
            return err_set(e, ERR_LIMIT, "position %d: the model has %d", tokens[t].pos, c->c.h->n_ctx_train);
        const uint8_t *row = m->data + (size_t)model_position_row(tokens[t].pos) * m->row_bytes;
        for (size_t at = 0; at < d_model; at += PIECE) {
            size_t len = d_model - at < PIECE ? d_model - at : PIECE;
            q->dequant(piece, row + quant_row_bytes(m->type, at), len);
            for (size_t i = 0; i < len; i++)
                x[(size_t)t * d_model + at + i] += piece[i];
        }
    }
    return 0;
}

/* Rows that are read as they are needed. */
static int read_embeddings(const struct cpu *c, const struct quant_traits *q, float *x, struct err *e)
{
    const uint8_t *rows[ROW_READS_GROUP];
    size_t d_model = (size_t)c->c.h->d_model;
    int n, r = 0;
    while (r == 0 && (n = r = row_reads_take(c->c.rows, MODEL_TOKEN_EMBD, rows, e)) > 0) {
        for (int t = 0; t < n; t++, x += d_model)
            q->dequant(x, rows[t], d_model);
        r = row_reads_give(c->c.rows, MODEL_TOKEN_EMBD, e);
    }
    return r;
}

static int cpu_embed(struct dense *d, const struct engine_token *tokens, int n, float *x, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_matrix *m = cpu_matrix(c, -1, MODEL_TOKEN_EMBD);
    const struct quant_traits *q = quant_traits(m->type);
    size_t d_model = (size_t)c->c.h->d_model;
    int r = c->c.rows ? row_reads_begin(c->c.rows, tokens, n, e) : 0;
    if (r < 0 || (!m->data && (r = read_embeddings(c, q, x, e)) < 0))
        return r;
    for (int t = 0; m->data && t < n; t++)
        q->dequant(x + (size_t)t * d_model, m->data + (size_t)tokens[t].id * m->row_bytes, d_model);
    for (int t = 0; m->fold.block && t < n; t++)
        fold_undo(&m->fold, x + (size_t)t * d_model, d_model);
    float scale = c->c.h->embd_scale;
    for (size_t i = 0; scale > 0 && i < (size_t)n * d_model; i++)
        x[i] *= scale;
    for (int t = 0; c->c.h->embd_normed && t < n; t++)
        nn_rms(x + (size_t)t * d_model, c->c.h->d_model, c->c.h->rms_eps);
    if (cpu_vector(c, -1, MODEL_EMBD_NORM))
        cpu_norms(c, cpu_vector(c, -1, MODEL_EMBD_NORM), cpu_vector(c, -1, MODEL_EMBD_NORM_BIAS), x, n, x);
    if (c->c.h->layer_embd)
        return cpu_layer_inputs(c, tokens, n, x, e);
    return cpu_matrix(c, -1, MODEL_POSITION_EMBD)->data ? add_positions(c, tokens, n, x, e) : 0;
}

static int cpu_join(struct dense *d, const float *hidden, const float *w, int n, float *x, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    size_t d_model = (size_t)c->c.h->d_model;
    for (int t = 0; t < n; t++) {
        float *left = c->c.memory.joined + 2 * (size_t)t * d_model, *right = left + d_model;
        cpu_norms(c, cpu_vector(c, -1, MODEL_MTP_ENORM), NULL, x + (size_t)t * d_model, 1, left);
        cpu_norms(c, w, NULL, hidden + (size_t)t * d_model, 1, right);
        cpu_norms(c, cpu_vector(c, -1, MODEL_MTP_HNORM), NULL, right, 1, right);
    }
    struct acts in = { .f32 = c->c.memory.joined, .n_cols = 2 * c->c.h->d_model, .n_tokens = n, .q8 = c->c.memory.act };
    return cpu_one_product(c, cpu_matrix(c, -1, MODEL_MTP_PROJ), &in, x, e);
}

static int cpu_norm(struct dense *d, int layer, enum dense_norm which, const float *x, int n, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const enum model_role ffn = c->c.h->parallel ? MODEL_ATTN_NORM : MODEL_FFN_NORM; /* the graph's */
    const enum model_role own = cpu_vector(c, layer, MODEL_ATTN_NORM_2) ? MODEL_ATTN_NORM_2 : MODEL_ATTN_NORM;
    const enum model_role roles[] = { [DENSE_NORM_ATTENTION] = own,
                                      [DENSE_NORM_FFN] = cpu_vector(c, layer, MODEL_EXPERT_NORM) ? MODEL_EXPERT_NORM : ffn,
                                      [DENSE_NORM_FFN_POST] = MODEL_FFN_POST_NORM, [DENSE_NORM_SHARED] = ffn,
                                      [DENSE_NORM_EXPERTS_POST] = MODEL_EXPERT_POST_NORM };
    enum model_role w = roles[which];
    const float *bias = w == MODEL_ATTN_NORM     ? cpu_vector(c, layer, MODEL_ATTN_NORM_BIAS)
                        : w == MODEL_ATTN_NORM_2 ? cpu_vector(c, layer, MODEL_ATTN_NORM_2_BIAS)
                        : w == MODEL_FFN_NORM    ? cpu_vector(c, layer, MODEL_FFN_NORM_BIAS)
                                                 : NULL;
    (void)e;
    if (which == DENSE_NORM_FFN_POST)
        post_norms(c, cpu_vector(c, layer, w), x, n, out);
    else
        cpu_norms(c, cpu_vector(c, layer, w), bias, x, n, out);
    return 0;
}

static int cpu_route(struct dense *d, int layer, struct acts *in, float *logits, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    int r = cpu_one_product(c, cpu_matrix(c, layer, MODEL_FFN_ROUTER), in, logits, e), n = c->c.h->n_experts;
    for (int t = 0; t < in->n_tokens; t++)
        add_bias(logits + (size_t)t * (size_t)n, cpu_vector(c, layer, MODEL_FFN_ROUTER_BIAS), n);
    return r;
}

static int cpu_shared(struct dense *d, int layer, struct acts *in, float *tmp, float *out, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct model_hparams *h = c->c.h;
    int lead = model_is_lead(h, layer);
    const struct dense_matrix *shared_gate = cpu_matrix(c, layer, lead ? MODEL_LEAD_GATE : MODEL_SHARED_GATE);
    const struct dense_matrix *shared_up = cpu_matrix(c, layer, lead ? MODEL_LEAD_UP : MODEL_SHARED_UP);
    int n = in->n_tokens, r, d_model = h->d_model, width = shared_up->n_rows;
    float *gate = c->c.memory.shared, *up = gate + (size_t)c->c.tokens * (size_t)width;
    struct products p = { .e = e };
    if (shared_gate->data)
        cpu_add_product(c, &p, shared_gate, in, gate);
    cpu_add_product(c, &p, shared_up, in, up);
    if ((r = cpu_run_products(c, &p)) < 0)
        return r;
    nn_ffn_act(gate, shared_gate->data ? gate : up, up, n * width, h->act);
    struct acts hidden = { .f32 = gate, .n_cols = width, .n_tokens = n, .q8 = c->c.memory.act };
    if ((r = cpu_one_product(c, cpu_matrix(c, layer, lead ? MODEL_LEAD_DOWN : MODEL_SHARED_DOWN), &hidden, tmp, e)) < 0)
        return r;
    if (cpu_vector(c, layer, MODEL_SHARED_POST_NORM))
        cpu_norms(c, cpu_vector(c, layer, MODEL_SHARED_POST_NORM), NULL, tmp, n, tmp);
    for (int t = 0; t < n; t++) {
        float w = nn_shared_weight(cpu_vector(c, layer, MODEL_SHARED_ROUTER), in->f32 + (size_t)t * (size_t)d_model, d_model);
        for (int i = 0; i < d_model; i++)
            out[(size_t)t * (size_t)d_model + (size_t)i] += w * tmp[(size_t)t * (size_t)d_model + (size_t)i];
    }
    return 0;
}

static void add_some(void *ctx, int begin, int end, int worker)
{
    const struct each_token *a = ctx;
    const struct model_hparams *h = a->cpu->c.h;
    const float scale = h->residual_scale > 0 ? h->residual_scale : 1;
    (void)worker;
    for (size_t i = (size_t)begin * (size_t)h->d_model; i < (size_t)end * (size_t)h->d_model; i++)
        a->out[i] += scale * a->x[i];
}

static int cpu_add(struct dense *d, float *x, const float *v, int n, struct err *e)
{
    struct each_token a = { .cpu = cpu_of(d), .x = v, .out = x };
    (void)e;
    pool_for(a.cpu->c.pool, n, cpu_piece_of(a.cpu, n, (uint64_t)n * (uint64_t)a.cpu->c.h->d_model * sizeof *v), add_some, &a);
    return 0;
}

static int cpu_head(struct dense *d, const float *hidden, int n, float *logits, struct err *e)
{
    const struct cpu *c = cpu_of(d);
    const struct dense_memory *m = &c->c.memory;
    cpu_norms(c, cpu_vector(c, -1, MODEL_OUTPUT_NORM), cpu_vector(c, -1, MODEL_OUTPUT_NORM_BIAS), hidden, n, m->normed);
    struct acts in = { .f32 = m->normed, .n_cols = c->c.h->d_model, .n_tokens = n, .q8 = m->act };
    int r = cpu_one_product(c, cpu_matrix(c, -1, MODEL_OUTPUT), &in, logits, e);
    if (r < 0)
        return r;
    nn_logits(logits, (size_t)n * (size_t)c->c.h->n_vocab, c->c.h);
    return r;
}

/* ---- life ---- */

static int cpu_open(const struct dense_config *config, struct dense **out, struct err *e)
{
    struct cpu *c = calloc(1, sizeof *c + (size_t)model_depth(config->h) * sizeof *c->places);
    struct op_need all;
    if (!c)
        return err_set(e, ERR_NOMEM, "out of memory for dense work");
    c->dense.backend = &dense_cpu_backend;
    c->c = *config;
    ops_most(config->h, OPS_ALL, &all);
    ops_places(config->h, c->places);
    c->n_states = (size_t)all.states;
    c->attn_scale = config->h->attn_scale > 0 ? config->h->attn_scale : (float)(1.0 / sqrt((double)config->h->head_dim));
    *out = &c->dense;
    return 0;
}

static void cpu_close(struct dense *d)
{
    free(d);
}

const struct dense_backend dense_cpu_backend = {
    .name = "cpu", .open = cpu_open, .close = cpu_close, .embed = cpu_embed, .join = cpu_join, .norm = cpu_norm, .attention = cpu_attention,
    .copy_page = cpu_copy_page, .copy_state = cpu_copy_state, .move_page = cpu_move_page, .move_state = cpu_move_state,
    .keep_moves = cpu_keep_moves, .move_on = cpu_move_on,
    .shift = cpu_shift, .receive = cpu_receive, .route = cpu_route, .shared = cpu_shared, .layer_embd = cpu_layer_embd, .add = cpu_add,
    .head = cpu_head,
};
