/* FFNs of the dense pass, experts and routers. A batch's tokens are normed each, multiplied with Gate and Up together, activated
 * each, and multiplied with Down. */
#include "common/offline/forward_impl.h"

#include <math.h>
#include <string.h>

enum { TILE = FORWARD_TILE, BATCH = FORWARD_BATCH };

/* Tokens of a work item where each has steps of its own; at most FORWARD_TILE. */
enum { ITEM = 8 };

static void sample_ffn(struct forward *f, const float *norm, size_t token)
{
    if (!f->run->n_samples || f->sample_of[token] < 0)
        return;
    size_t s = (size_t)f->sample_of[token];
    const float *x = f->x + token * f->d;
    double sum = 0;
    for (size_t i = 0; i < f->d; i++)
        sum += (double)x[i] * x[i];
    f->ffn_rms[s] = (float)sqrt(sum / (double)f->d + (double)f->h->rms_eps);
    forward_sample_f16(f->ffn_input + s * f->d, norm, f->d);
}

/* Bit rows of one token in one block. */
static void record_bits(const struct forward *f, const float *gate, const float *up, size_t row)
{
    uint64_t *active = (uint64_t *)(void *)(f->active + row * f->row_bytes);
    uint64_t *open = f->open ? (uint64_t *)(void *)(f->open + row * f->row_bytes) : NULL;
    for (size_t at = 0; at < f->n_ff; at += 64) {
        size_t n = f->n_ff - at < 64 ? f->n_ff - at : 64;
        uint64_t g = 0, u = 0;
        for (size_t i = 0; i < n; i++) {
            g |= (uint64_t)nn_is_open(gate[at + i], f->h->thresholds) << i;
            u |= (uint64_t)(up[at + i] > 0) << i;
        }
        uint64_t all = n == 64 ? ~0ull : (1ull << n) - 1;
        uint64_t a = nn_gate_decides(f->h) ? g : f->h->act == MODEL_ACT_DRELU ? g & u : all;
        uint8_t bytes[8];
        for (int i = 0; i < 8; i++) /* byte order on disk is the order of neurons, whatever the host's */
            bytes[i] = (uint8_t)(a >> 8 * i);
        memcpy(&active[at / 64], bytes, 8);
        for (int i = 0; open && i < 8; i++)
            bytes[i] = (uint8_t)(g >> 8 * i);
        if (open)
            memcpy(&open[at / 64], bytes, 8);
    }
    for (size_t at = (f->n_ff + 63) / 64; at < f->row_bytes / 8; at++) { /* neurons that wider layers have */
        active[at] = 0;
        if (open)
            open[at] = 0;
    }
}

/* A block's vector of n among those of a role; NULL where there are none. */
static const float *of_expert(const struct forward *f, enum model_role role, int expert, size_t n)
{
    const float *all = f->w[role];
    return all ? all + (size_t)expert * n : NULL;
}

/* A batch of tokens of one block. */
struct block {
    struct forward *f;
    int expert, n;
    size_t first;              /* token of the run; of an expert: of its tokens */
    const uint32_t *rows;      /* NULL: those from first on; else token * k + slot */
    const float *in;           /* [n][d]: what the FFN sees */
    float *x;                  /* what its result is added to: [n_tokens][d] */
    size_t width;              /* matrices that stay in memory: neurons; they have no gate */
    int ungated;
};

static size_t row_of(const struct block *b, int i)
{
    return b->rows ? b->rows[b->first + (size_t)i] : b->first + (size_t)i;
}

/* Activations of some of its tokens: b.gate. */
static void act_some(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    const struct forward_probe *probe = f->run->probe;
    size_t tokens[TILE];
    for (int t = begin; t < end; t++) {
        float *gate = f->b.gate + (size_t)t * f->n_ff, *up = f->b.up + (size_t)t * f->n_ff;
        tokens[t - begin] = row_of(b, t) / f->k;
        forward_add_bias(gate, of_expert(f, MODEL_FFN_GATE_BIAS, b->expert, f->n_ff), f->n_ff);
        forward_add_bias(up, of_expert(f, MODEL_FFN_UP_BIAS, b->expert, f->n_ff), f->n_ff);
        if (probe && probe->gates)
            probe->gates(probe->ctx, b->expert, tokens[t - begin], gate, up);
        if (f->h->thresholds)
            nn_silence(gate, f->w[MODEL_FFN_THRESHOLD], (int)f->n_ff, f->h->act);
        if (f->run->on_layer)
            record_bits(f, gate, up, row_of(b, t));
        nn_ffn_act(gate, gate, up, (int)f->n_ff, f->h->act);
    }
    if (probe && probe->neurons)
        probe->neurons(probe->ctx, worker, b->expert, tokens, end - begin, f->b.gate + (size_t)begin * f->n_ff);
}

/* b.out = what the matrices of a block make of its tokens, without Down's bias. */
static void ffn(struct block *b)
{
    struct forward *f = b->f;
    const struct forward_product in[2] = {
        { forward_tensor(f, MODEL_FFN_GATE), f->w[MODEL_FFN_GATE], b->expert, f->b.gate, f->n_ff },
        { forward_tensor(f, MODEL_FFN_UP), f->w[MODEL_FFN_UP], b->expert, f->b.up, f->n_ff } };
    const struct forward_product down = { forward_tensor(f, MODEL_FFN_DOWN), f->w[MODEL_FFN_DOWN], b->expert, f->b.out, f->d };
    forward_products(f, in, 2, b->in, f->d, b->n);
    pool_for(f->pool, b->n, ITEM, act_some, b);
    forward_products(f, &down, 1, f->b.gate, f->n_ff, b->n);
}

static void down_bias(const struct block *b, int i)
{
    forward_add_bias(b->f->b.out + (size_t)i * b->f->d, of_expert(b->f, MODEL_FFN_DOWN_BIAS, b->expert, b->f->d), b->f->d);
}

/* What the FFN sees of n tokens: their norm. Where attention goes beside the FFN, both norms may be one. */
static void ffn_norm(const struct forward *f, float *out, const float *x, int n)
{
    const float *const *w = (const float *const *)f->w;
    const float *own = w[MODEL_EXPERT_NORM] ? w[MODEL_EXPERT_NORM] : w[MODEL_FFN_NORM];
    forward_norm(f, out, x, own ? own : w[MODEL_ATTN_NORM], own ? w[MODEL_FFN_NORM_BIAS] : w[MODEL_ATTN_NORM_BIAS], n);
}

static void norm_some(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    (void)worker;
    ffn_norm(f, f->normed + (size_t)begin * f->d, f->x + (size_t)begin * f->d, end - begin);
}

static void experts_norm(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    size_t first = (size_t)begin;
    int n = end - begin;
    (void)worker;
    ffn_norm(f, f->normed + first * f->d, f->x + first * f->d, n);
    forward_probe_input(f, PREDICT_RESIDUAL, first, n, f->x + first * f->d);
    forward_probe_input(f, PREDICT_FFN, first, n, f->normed + first * f->d);
    for (size_t t = first; t < (size_t)end; t++)
        sample_ffn(f, f->normed + t * f->d, t);
}

void forward_norm_all(struct forward *f)
{
    int routed = f->h->n_experts > 0 && !model_is_lead(f->h, f->layer);
    if (routed || f->h->parallel || f->h->wkv_dim)
        pool_for(f->pool, (int)f->n_tokens, ITEM, routed ? experts_norm : norm_some, f);
}

/* ---- one block ---- */

/* What the FFN sees of some tokens of a batch: b.norm. */
static void dense_in(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    struct forward *f = b->f;
    size_t first = b->first + (size_t)begin;
    float *in = f->b.norm + (size_t)begin * f->d, *x = f->x + first * f->d;
    int n = end - begin;
    (void)worker;
    if (f->h->wkv_dim)
        forward_shift(f, in, first, n);
    else if (f->h->parallel)
        memcpy(in, f->normed + first * f->d, (size_t)n * f->d * sizeof *x);
    else
        ffn_norm(f, in, x, n);
    forward_probe_input(f, PREDICT_RESIDUAL, first, n, x);
    forward_probe_input(f, PREDICT_FFN, first, n, in);
    for (int t = 0; t < n; t++)
        sample_ffn(f, in + (size_t)t * f->d, first + (size_t)t);
}

static void dense_out(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    struct forward *f = b->f;
    size_t first = b->first + (size_t)begin;
    float *out = f->b.out + (size_t)begin * f->d;
    for (int t = begin; t < end; t++)
        down_bias(b, t);
    if (f->h->mix_rank)
        forward_receive(f, &f->scratch[worker], out, first, end - begin);
    forward_add_residual(f, f->x + first * f->d, out, f->w[MODEL_FFN_POST_NORM], end - begin);
}

static void dense(struct forward *f)
{
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct block b = { .f = f, .n = (int)(f->n_tokens - t < BATCH ? f->n_tokens - t : BATCH), .first = t, .in = f->b.norm };
        pool_for(f->pool, b.n, ITEM, dense_in, &b);
        ffn(&b);
        pool_for(f->pool, b.n, f->h->mix_rank ? TILE : ITEM, dense_out, &b);
    }
}

/* ---- routers ---- */

/* A batch of tokens that are routed. */
struct routed {
    struct forward *f;
    int n;
    size_t first;
    const float *stream;       /* [n_tokens][d]: what routers of their own norm see */
    uint16_t *chosen;          /* [n_tokens][k] */
    float *weight;             /* [n_tokens][k]; NULL: nobody asks */
};

/* What routers see of some tokens of a batch where that is nobody else's: b.norm. */
static void router_in(void *ctx, int begin, int end, int worker)
{
    const struct routed *b = ctx;
    struct forward *f = b->f;
    (void)worker;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        nn_router_input(f->b.norm + t * f->d, b->stream + (b->first + t) * f->d, f->w[MODEL_ROUTER_SCALE], f->h->d_model, f->h->rms_eps);
}

/* The same where it is what the FFN would see. */
static void foresee_in(void *ctx, int begin, int end, int worker)
{
    const struct routed *b = ctx;
    struct forward *f = b->f;
    (void)worker;
    ffn_norm(f, f->b.norm + (size_t)begin * f->d, b->stream + (b->first + (size_t)begin) * f->d, end - begin);
}

static void router_out(void *ctx, int begin, int end, int worker)
{
    const struct routed *b = ctx;
    struct forward *f = b->f;
    size_t n_experts = (size_t)f->h->n_experts;
    float part[MODEL_MAX_EXPERTS];
    (void)worker;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *logits = f->b.logits + i * n_experts;
        size_t t = b->first + i;
        forward_add_bias(logits, f->w[MODEL_FFN_ROUTER_BIAS], n_experts);
        nn_route(b->chosen + t * f->k, b->weight ? b->weight + t * f->k : part, logits, f->w[MODEL_SELECT_BIAS], f->h);
    }
}

static struct routed next_routed(struct forward *f, size_t first)
{
    return (struct routed){ .f = f, .n = (int)(f->n_tokens - first < BATCH ? f->n_tokens - first : BATCH), .first = first };
}

/* From the stream itself where routers are early, else from what the FFN sees. */
void forward_route(struct forward *f)
{
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct routed b = next_routed(f, t);
        const float *in = (f->h->early_router ? f->x : f->normed) + t * f->d;
        b.stream = f->x, b.chosen = f->blocks, b.weight = f->route_w;
        if (f->w[MODEL_ROUTER_SCALE]) {
            pool_for(f->pool, b.n, ITEM, router_in, &b);
            in = f->b.norm;
        }
        forward_batch_matrix(f, MODEL_FFN_ROUTER, f->b.logits, in, b.n);
        pool_for(f->pool, b.n, ITEM, router_out, &b);
    }
}

void forward_foresee(struct forward *f)
{
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct routed b = next_routed(f, t);
        b.stream = f->before, b.chosen = f->foreseen;
        pool_for(f->pool, b.n, ITEM, f->w[MODEL_ROUTER_SCALE] ? router_in : foresee_in, &b);
        forward_batch_matrix(f, MODEL_FFN_ROUTER, f->b.logits, f->b.norm, b.n);
        pool_for(f->pool, b.n, ITEM, router_out, &b);
    }
}

/* ---- experts ---- */

static void expert_in(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    (void)worker;
    for (int i = begin; i < end; i++)
        memcpy(f->b.norm + (size_t)i * f->d, f->normed + row_of(b, i) / f->k * f->d, f->d * sizeof(float));
}

static void expert_out(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    const float *scale = f->w[MODEL_EXPERT_SCALE];
    (void)worker;
    for (int i = begin; i < end; i++) {
        const float *o = f->b.out + (size_t)i * f->d;
        float *x = b->x + row_of(b, i) / f->k * f->d, w = f->route_w[row_of(b, i)] * forward_residual_scale(f);
        down_bias(b, i);
        w *= scale ? scale[b->expert] : 1;
        for (size_t j = 0; j < f->d; j++)
            x[j] += w * o[j];
    }
}

static void one_expert(struct forward *f, int expert)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_tokens * f->k; i++)
        if (f->blocks[i] == expert)
            f->expert_tokens[n++] = (uint32_t)i;
    for (size_t t = 0; t < n; t += BATCH) {
        struct block b = { .f = f, .expert = expert, .n = (int)(n - t < BATCH ? n - t : BATCH), .first = t, .rows = f->expert_tokens,
                           .in = f->b.norm, .x = f->sum ? f->sum : f->x };
        pool_for(f->pool, b.n, ITEM, expert_in, &b);
        ffn(&b);
        pool_for(f->pool, b.n, ITEM, expert_out, &b);
    }
}

/* ---- matrices that stay in memory ---- */

static void resident_act(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct batch *m = &b->f->b;
    size_t at = (size_t)begin * b->width;
    (void)worker;
    nn_ffn_act(m->gate + at, (b->ungated ? m->up : m->gate) + at, m->up + at, (end - begin) * (int)b->width, b->f->h->act);
}

static void resident_out(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    float *out = f->b.out + (size_t)begin * f->d;
    (void)worker;
    if (f->w[MODEL_SHARED_POST_NORM])
        forward_norm(f, out, out, f->w[MODEL_SHARED_POST_NORM], NULL, end - begin);
    for (int t = begin; t < end; t++, out += f->d) {
        float w = forward_residual_scale(f) * nn_shared_weight(f->w[MODEL_SHARED_ROUTER], b->in + (size_t)t * f->d, f->h->d_model);
        float *x = b->x + (b->first + (size_t)t) * f->d;
        for (size_t j = 0; j < f->d; j++)
            x[j] += w * out[j];
    }
}

/* b->x += weight FFN(b->in) of a batch with `which`: gate, up and down. */
static void resident_ffn(struct block *b, const enum model_role which[3])
{
    struct forward *f = b->f;
    b->width = (size_t)forward_tensor(f, which[1])->dims[1];
    b->ungated = !f->w[which[0]];
    const struct forward_product in[2] = { { forward_tensor(f, which[1]), f->w[which[1]], 0, f->b.up, b->width },
                                           { forward_tensor(f, which[0]), f->w[which[0]], 0, f->b.gate, b->width } };
    const struct forward_product down = { forward_tensor(f, which[2]), f->w[which[2]], 0, f->b.out, f->d };
    forward_products(f, in, b->ungated ? 1 : 2, b->in, f->d, b->n);
    pool_for(f->pool, b->n, ITEM, resident_act, b);
    forward_products(f, &down, 1, f->b.gate, b->width, b->n);
    pool_for(f->pool, b->n, ITEM, resident_out, b);
}

static void lead_in(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    size_t d = b->f->d;
    (void)worker;
    ffn_norm(b->f, b->f->b.norm + (size_t)begin * d, b->f->x + (b->first + (size_t)begin) * d, end - begin);
}

static void lead(struct forward *f)
{
    static const enum model_role roles[3] = { MODEL_LEAD_GATE, MODEL_LEAD_UP, MODEL_LEAD_DOWN };
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct block b = { .f = f, .n = (int)(f->n_tokens - t < BATCH ? f->n_tokens - t : BATCH), .first = t, .in = f->b.norm, .x = f->x };
        pool_for(f->pool, b.n, ITEM, lead_in, &b);
        resident_ffn(&b, roles);
    }
}

/* Where experts, shared expert and their sum are normed before they are added. */
static void normed_in(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    size_t at = (b->first + (size_t)begin) * f->d;
    (void)worker;
    forward_norm(f, f->sum + at, f->sum + at, f->w[MODEL_EXPERT_POST_NORM], NULL, end - begin);
    forward_norm(f, f->b.norm + (size_t)begin * f->d, f->x + at, f->w[MODEL_FFN_NORM], NULL, end - begin);
}

static void normed_out(void *ctx, int begin, int end, int worker)
{
    const struct block *b = ctx;
    const struct forward *f = b->f;
    size_t at = (b->first + (size_t)begin) * f->d;
    (void)worker;
    forward_add_residual(f, f->x + at, f->sum + at, f->w[MODEL_FFN_POST_NORM], end - begin);
}

/* The expert that every token uses. */
static void shared_expert(struct forward *f)
{
    static const enum model_role roles[3] = { MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN };
    for (size_t t = 0; t < f->n_tokens; t += BATCH) {
        struct block b = { .f = f, .n = (int)(f->n_tokens - t < BATCH ? f->n_tokens - t : BATCH), .first = t,
                           .in = f->sum ? f->b.norm : f->normed + t * f->d, .x = f->sum ? f->sum : f->x };
        if (f->sum)
            pool_for(f->pool, b.n, ITEM, normed_in, &b);
        resident_ffn(&b, roles);
        if (f->sum)
            pool_for(f->pool, b.n, ITEM, normed_out, &b);
    }
}

static void experts(struct forward *f)
{
    if (f->sum)
        memset(f->sum, 0, f->n_tokens * f->d * sizeof *f->sum);
    for (int i = 0; i < f->h->n_experts; i++)
        one_expert(f, i);
    if (f->n_shared)
        shared_expert(f);
}

void forward_ffn(struct forward *f)
{
    (model_is_lead(f->h, f->layer) ? lead : f->h->n_experts > 0 ? experts : dense)(f);
}
