/* Orchestration of the dense pass. A run keeps one residual stream per token; each layer is two
 * parallel sweeps over it:
 *
 *   attention   one sequence per work item: norm, Q K V, rotary, causal attention, output, add
 *   FFN         one tile of tokens per work item: norm, gate, up, activation, down, add
 *
 * With experts the second sweep is a normalising and a routing sweep and then one sweep per expert over its
 * tokens; a token's experts are added in ascending order. Early routers (smallthinker's) see the stream before
 * the attention sweep. Every token's arithmetic is done by one worker in a
 * fixed order, so bits depend neither on threads nor on grouping. Matrix rows are taken in blocks
 * that stay in the second-level cache while a tile of tokens passes over them. */
#include "common/offline/forward_impl.h"

#include "common/base/file.h"
#include "common/kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = FORWARD_TILE, ROW_BLOCK_BYTES = FORWARD_ROW_BLOCK_BYTES };

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
    static const enum model_role matrices[] = { MODEL_ATTN_Q, MODEL_ATTN_K, MODEL_ATTN_V, MODEL_ATTN_OUTPUT,
                                                MODEL_FFN_ROUTER, MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN,
                                                MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN,
                                                MODEL_LEAD_GATE, MODEL_LEAD_UP, MODEL_LEAD_DOWN, MODEL_ATTN_Q_A, MODEL_ATTN_Q_B,
                                                MODEL_ATTN_KV_A, MODEL_ATTN_K_B, MODEL_ATTN_V_B, MODEL_DELTA_QKV, MODEL_DELTA_Z,
                                                MODEL_DELTA_BETA, MODEL_DELTA_ALPHA, MODEL_DELTA_BETA_ALPHA, MODEL_DELTA_OUT,
                                                MODEL_WKV_R, MODEL_WKV_K, MODEL_WKV_V, MODEL_WKV_OUTPUT, MODEL_WKV_DECAY_A,
                                                MODEL_WKV_DECAY_B, MODEL_WKV_RATE_A, MODEL_WKV_RATE_B, MODEL_WKV_VALUE_A,
                                                MODEL_WKV_VALUE_B, MODEL_WKV_GATE_A, MODEL_WKV_GATE_B, MODEL_WKV_MIX_A, MODEL_WKV_MIX_B,
                                                MODEL_WKV_G, MODEL_FFN_R };
    for (int l = 0; l < model_depth(&m->h); l++)
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            const struct gguf_tensor *t = m->layer[l][matrices[i]];
            if (t && !kernels->rows[KERNELS_ACT_F32][t->type])
                return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s, for which there is no kernel", t->name,
                               quant_traits(t->type)->name);
        }
    return 0;
}

static void scratch_free(struct scratch *s)
{
    free(s->norm), free(s->out), free(s->gate), free(s->up), free(s->q), free(s->k), free(s->v), free(s->att);
    free(s->scores), free(s->made), free(s->low), free(s->heads);
    free(s->gated), free(s->channels), free(s->z), free(s->betas), free(s->state), free(s->wkv);
}

static int widest_ffn(const struct model_hparams *h)
{
    int most = h->n_ff > h->n_ff_shared ? h->n_ff : h->n_ff_shared;
    return most > h->n_ff_lead ? most : h->n_ff_lead;
}

static int scratch_new(const struct forward *f, struct scratch *s)
{
    size_t len = (size_t)f->max_len;
    s->norm = malloc(TILE * f->d * sizeof(float));
    s->out = malloc(TILE * f->d * sizeof(float));
    size_t widest = (size_t)widest_ffn(f->h);
    s->gate = malloc(TILE * widest * sizeof(float));
    s->up = malloc(TILE * widest * sizeof(float));
    s->q = malloc(len * f->q_len * sizeof(float));
    s->k = malloc(len * f->kv_len * sizeof(float));
    s->v = malloc(len * f->kv_len * sizeof(float));
    size_t att = TILE * f->q_len, n_experts = (size_t)f->h->n_experts;
    s->att = malloc((att > n_experts ? att : n_experts) * sizeof(float));
    s->scores = malloc(len * NN_ATTN_HEADS * sizeof(float));
    if (f->h->kv_rank) {
        s->made = malloc(TILE * (size_t)model_q_dim(f->h) * sizeof(float));
        s->low = malloc(TILE * (size_t)(f->h->q_rank + 1) * sizeof(float));
        s->heads = malloc(TILE * (size_t)model_out_dim(f->h) * sizeof(float));
        if (!s->made || !s->low || !s->heads)
            return ERR_NOMEM;
    }
    if (f->h->out_gate && !(s->gated = malloc(len * 2 * f->q_len * sizeof(float))))
        return ERR_NOMEM;
    if (f->h->full_period) {
        s->channels = malloc(TILE * (size_t)model_delta_channels(f->h) * sizeof(float));
        s->z = malloc(2 * TILE * (size_t)model_delta_inner(f->h) * sizeof(float));
        s->betas = malloc(4 * TILE * (size_t)f->h->delta_v_heads * sizeof(float));
        s->state = malloc(model_state_floats(f->h) * sizeof(float));
        if (!s->channels || !s->z || !s->betas || !s->state)
            return ERR_NOMEM;
    }
    if (f->h->wkv_dim) {
        s->wkv = malloc(TILE * model_wkv_token(f->h) * sizeof(float));
        s->state = malloc(model_state_floats(f->h) * sizeof(float));
        if (!s->wkv || !s->state)
            return ERR_NOMEM;
    }
    return s->norm && s->out && s->gate && s->up && s->q && s->k && s->v && s->att && s->scores ? 0 : ERR_NOMEM;
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
    f->m = m, f->h = h, f->pool = pool, f->max_len = max_len;
    f->d = (size_t)h->d_model, f->n_ff = (size_t)h->n_ff, f->n_shared = (size_t)h->n_ff_shared;
    f->q_len = (size_t)model_most_q(h);
    f->kv_len = h->kv_rank ? (size_t)h->head_dim : (size_t)model_most_kv(h) / 2;
    f->k = h->n_experts > 0 ? (size_t)h->n_experts_used : 1;
    f->row_bytes = (f->n_ff + 63) / 64 * 8;
    f->freqs = malloc(((size_t)h->n_rot + 1) * sizeof *f->freqs);
    f->scratch = calloc((size_t)threads, sizeof *f->scratch);
    if (!f->freqs || !f->scratch)
        r = err_set(e, ERR_NOMEM, "forward pass");
    for (int i = 0; i < threads && !r; i++)
        if (scratch_new(f, &f->scratch[i]) < 0)
            r = err_set(e, ERR_NOMEM, "forward pass with sequences of %d tokens", max_len);
    if (r < 0 ||
        (r = vector(m, m->global[MODEL_OUTPUT_NORM], &f->output_norm, e)) < 0 ||
        (m->global[MODEL_OUTPUT_NORM_BIAS] && (r = vector(m, m->global[MODEL_OUTPUT_NORM_BIAS], &f->output_bias, e)) < 0) ||
        (m->global[MODEL_EMBD_NORM] && ((r = vector(m, m->global[MODEL_EMBD_NORM], &f->embd_norm, e)) < 0 ||
                                        (r = vector(m, m->global[MODEL_EMBD_NORM_BIAS], &f->embd_bias, e)) < 0)) ||
        (r = weights_new(m, &f->weights, e)) < 0)
        goto fail;
    float *divisor = NULL;
    if (m->global[MODEL_ROPE_FREQS] && (r = vector(m, m->global[MODEL_ROPE_FREQS], &divisor, e)) < 0)
        goto fail;
    nn_rope_all(f->freqs, h, divisor);
    free(divisor);
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
    for (int i = 0; f->scratch && i < pool_threads(f->pool); i++)
        scratch_free(&f->scratch[i]);
    weights_free(f->weights);
    free(f->scratch), free(f->freqs), free(f->output_norm), free(f->output_bias), free(f->embd_norm), free(f->embd_bias), free(f->head);
    free(f->down);
    free(f->x), free(f->normed), free(f->values), free(f->sum), free(f->active), free(f->open), free(f->blocks), free(f->route_w);
    free(f->expert_tokens), free(f->sample_of), free(f->block_input), free(f->ffn_input), free(f->ffn_rms);
    free(f);
}

/* Bytes of one element of Down in rows: elements of their own keep their type, blocks become F32. */
static size_t down_elem(const struct model *m)
{
    const struct quant_traits *q = quant_traits(m->layer[0][MODEL_FFN_DOWN]->type);
    return q->block_elems == 1 ? (size_t)q->block_bytes : sizeof(float);
}

/* Per token of a run: residual, and what observation and experts add. */
static uint64_t token_bytes(const struct model_hparams *h, int observed)
{
    uint64_t d = (uint64_t)h->d_model, k = h->n_experts > 0 ? (uint64_t)h->n_experts_used : 1;
    uint64_t bits = ((uint64_t)h->n_ff + 63) / 64 * 8;
    return d * 4 + 4 + (observed ? k * bits * (nn_gate_decides(h) ? 1 : 2) : 0) +
           k * 6 + (h->n_experts > 0 ? d * 4 + 4 : 0) + (h->parallel ? d * 4 : 0) + (h->wkv_dim ? d * 8 : 0) +
           (h->expert_norms ? d * 4 : 0);
}

uint64_t forward_bytes(const struct model *m, int threads, int max_len, uint64_t n_tokens, int observed)
{
    const struct model_hparams *h = &m->h;
    uint64_t q = (uint64_t)model_most_q(h), kv = (uint64_t)(h->kv_rank ? h->head_dim : model_most_kv(h) / 2);
    uint64_t widest = (uint64_t)widest_ffn(h);
    uint64_t latent = h->kv_rank ? (uint64_t)(model_q_dim(h) + h->q_rank + 1 + model_out_dim(h)) : 0;
    uint64_t worker = 4 * (TILE * (2 * (uint64_t)h->d_model + 2 * widest + q + latent) +
                           (uint64_t)max_len * (q + 2 * kv + 1 + (h->out_gate ? 2 * q : 0)));
    if (h->full_period)
        worker += 4 * (TILE * (uint64_t)(model_delta_channels(h) + 2 * model_delta_inner(h) + 4 * h->delta_v_heads) +
                       model_state_floats(h));
    if (h->wkv_dim)
        worker += 4 * (TILE * (uint64_t)model_wkv_token(h) + model_state_floats(h));
    uint64_t down = h->down_by_neuron ? (uint64_t)h->d_model * (uint64_t)h->n_ff * 4 : 0;
    return down + weights_bytes(m) + (uint64_t)threads * worker + n_tokens * token_bytes(h, observed);
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
    size_t n = (size_t)run->starts[run->n_sequences];
    int r = 0;
    if (n > f->cap_tokens) {
        f->cap_tokens = 0;
        r |= grow(&f->x, n * f->d, sizeof(float));
        r |= grow(&f->blocks, n * f->k, sizeof(uint16_t));
        r |= grow(&f->sample_of, n, sizeof(int32_t));
        if (f->h->n_experts > 0 || f->h->parallel || f->h->wkv_dim)
            r |= grow(&f->normed, n * f->d, sizeof(float));
        if (f->h->wkv_dim)
            r |= grow(&f->values, n * f->d, sizeof(float));
        if (f->h->n_experts > 0) {
            if (f->h->expert_norms)
                r |= grow(&f->sum, n * f->d, sizeof(float));
            r |= grow(&f->route_w, n * f->k, sizeof(float));
            r |= grow(&f->expert_tokens, n, sizeof(uint32_t));
        }
        if (!r)
            f->cap_tokens = n;
    }
    if (run->on_layer && n > f->cap_bits) {
        f->cap_bits = 0;
        r |= grow(&f->active, n * f->k, f->row_bytes);
        if (!nn_gate_decides(f->h))
            r |= grow(&f->open, n * f->k, f->row_bytes);
        if (!r)
            f->cap_bits = n;
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
    for (size_t t = 0; t < n; t++)
        f->sample_of[t] = -1;
    for (size_t s = 0; s < run->n_samples; s++)
        f->sample_of[run->samples[s]] = (int32_t)s;
    return 0;
}

/* ---- products ---- */

/* out[t][r] = row r . x_t for all rows of a matrix (or of one expert's share of it). */
void forward_product(float *out, size_t out_stride, const struct gguf_tensor *t, const void *data, int expert,
                    const float *x, size_t x_stride, int n_tokens)
{
    size_t n_rows = (size_t)t->dims[1], row = (size_t)t->row_bytes;
    size_t step = ROW_BLOCK_BYTES / row ? ROW_BLOCK_BYTES / row : 1;
    const uint8_t *base = (const uint8_t *)data + (size_t)expert * n_rows * row;
    for (size_t at = 0; at < n_rows; at += step) {
        int n = (int)(n_rows - at < step ? n_rows - at : step);
        kernels->rows[KERNELS_ACT_F32][t->type](out + at, out_stride, base + at * row, row, n, x,
                                                x_stride * sizeof(float), n_tokens, (int)t->dims[0]);
    }
}

const struct gguf_tensor *forward_tensor(const struct forward *f, enum model_role r)
{
    return f->replaced[r] ? &f->other[r] : f->m->layer[f->layer][r];
}

void forward_matrix(const struct forward *f, enum model_role r, float *out, const float *x, int n)
{
    const struct gguf_tensor *t = forward_tensor(f, r);
    forward_product(out, (size_t)t->dims[1], t, f->w[r], 0, x, (size_t)t->dims[0], n);
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

/* ---- attention ---- */

static float residual_scale(const struct forward *f)
{
    return f->h->residual_scale > 0 ? f->h->residual_scale : 1;
}

/* x += out of n tokens, normed before where there are weights w for that. */
void forward_add_residual(const struct forward *f, float *x, float *out, const float *w, int n)
{
    float scale = residual_scale(f);
    if (w)
        forward_norm(f, out, out, w, NULL, n);
    for (size_t i = 0; i < (size_t)n * f->d; i++)
        x[i] += scale * out[i];
}

void forward_add_bias(float *x, const float *bias, size_t n)
{
    for (size_t i = 0; bias && i < n; i++)
        x[i] += bias[i];
}

/* ---- FFN ---- */

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
}

/* A block's vector of n among those of a role; NULL where there are none. */
static const float *of_expert(const struct forward *f, enum model_role role, int expert, size_t n)
{
    const float *all = f->w[role];
    return all ? all + (size_t)expert * n : NULL;
}

/* s->out = FFN of block `expert` for n rows of norm; rows[i] is the bit row of the i-th. */
static void ffn(struct forward *f, struct scratch *s, int expert, const float *norm, int n, const size_t *rows)
{
    const struct forward_probe *probe = f->run->probe;
    forward_product(s->gate, f->n_ff, forward_tensor(f, MODEL_FFN_GATE), f->w[MODEL_FFN_GATE], expert, norm, f->d, n);
    forward_product(s->up, f->n_ff, forward_tensor(f, MODEL_FFN_UP), f->w[MODEL_FFN_UP], expert, norm, f->d, n);
    for (int t = 0; t < n; t++) {
        float *gate = s->gate + (size_t)t * f->n_ff, *up = s->up + (size_t)t * f->n_ff;
        forward_add_bias(gate, of_expert(f, MODEL_FFN_GATE_BIAS, expert, f->n_ff), f->n_ff);
        forward_add_bias(up, of_expert(f, MODEL_FFN_UP_BIAS, expert, f->n_ff), f->n_ff);
        if (probe && probe->gates)
            probe->gates(probe->ctx, expert, rows[t] / f->k, gate, up);
        if (f->w[MODEL_FFN_THRESHOLD])
            nn_silence(gate, f->w[MODEL_FFN_THRESHOLD], f->h->n_ff, f->h->act);
        if (f->run->on_layer)
            record_bits(f, gate, up, rows[t]);
        nn_ffn_act(gate, gate, up, f->h->n_ff, f->h->act);
    }
    if (probe && probe->neurons) {
        size_t tokens[TILE];
        for (int t = 0; t < n; t++)
            tokens[t] = rows[t] / f->k;
        probe->neurons(probe->ctx, (int)(s - f->scratch), expert, tokens, n, s->gate);
    }
    forward_product(s->out, f->d, forward_tensor(f, MODEL_FFN_DOWN), f->w[MODEL_FFN_DOWN], expert, s->gate, f->n_ff, n);
    for (int t = 0; t < n; t++)
        forward_add_bias(s->out + (size_t)t * f->d, of_expert(f, MODEL_FFN_DOWN_BIAS, expert, f->d), f->d);
}

/* What the FFN sees of n tokens: their norm. Where attention goes beside the FFN, both norms may be one. */
static void ffn_norm(const struct forward *f, float *out, const float *x, int n)
{
    const float *const *w = (const float *const *)f->w;
    const float *own = w[MODEL_EXPERT_NORM] ? w[MODEL_EXPERT_NORM] : w[MODEL_FFN_NORM];
    forward_norm(f, out, x, own ? own : w[MODEL_ATTN_NORM], own ? w[MODEL_FFN_NORM_BIAS] : w[MODEL_ATTN_NORM_BIAS], n);
}

/* All norms before any FFN: where attention goes beside it, or what it sees is mixed with what came before. */
static void parallel_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    (void)worker;
    ffn_norm(f, f->normed + (size_t)begin * f->d, f->x + (size_t)begin * f->d, end - begin);
}

static void dense_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    struct scratch *s = &f->scratch[worker];
    size_t rows[TILE] = { 0 };
    float *x = f->x + (size_t)begin * f->d;
    if (f->h->wkv_dim)
        forward_shift(f, s->norm, (size_t)begin, end - begin);
    else if (f->h->parallel)
        memcpy(s->norm, f->normed + (size_t)begin * f->d, (size_t)(end - begin) * f->d * sizeof *x);
    else
        ffn_norm(f, s->norm, x, end - begin);
    forward_probe_input(f, PREDICT_RESIDUAL, (size_t)begin, end - begin, x);
    forward_probe_input(f, PREDICT_FFN, (size_t)begin, end - begin, s->norm);
    for (int t = begin; t < end; t++) {
        rows[t - begin] = (size_t)t;
        sample_ffn(f, s->norm + (size_t)(t - begin) * f->d, (size_t)t);
    }
    ffn(f, s, 0, s->norm, end - begin, rows);
    if (f->h->mix_rank)
        forward_receive(f, s, s->out, (size_t)begin, end - begin);
    forward_add_residual(f, x, s->out, f->w[MODEL_FFN_POST_NORM], end - begin);
}

/* From the stream itself where routers are early, else from what the FFN sees. */
static void route_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    float *logits = f->scratch[worker].att, *own = f->scratch[worker].norm; /* [n_experts] fit: see scratch_new */
    for (size_t t = (size_t)begin; t < (size_t)end; t++) {
        const float *in = (f->h->early_router ? f->x : f->normed) + t * f->d;
        if (f->w[MODEL_ROUTER_SCALE]) {
            nn_router_input(own, f->x + t * f->d, f->w[MODEL_ROUTER_SCALE], f->h->d_model, f->h->rms_eps);
            in = own;
        }
        forward_product(logits, (size_t)f->h->n_experts, forward_tensor(f, MODEL_FFN_ROUTER), f->w[MODEL_FFN_ROUTER], 0, in, f->d, 1);
        forward_add_bias(logits, f->w[MODEL_FFN_ROUTER_BIAS], (size_t)f->h->n_experts);
        nn_route(f->blocks + t * f->k, f->route_w + t * f->k, logits, f->w[MODEL_SELECT_BIAS], f->h);
    }
}

static void route(struct forward *f)
{
    pool_for(f->pool, (int)f->n_tokens, TILE, route_sweep, f);
}

static void norm_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    (void)worker;
    ffn_norm(f, f->normed + (size_t)begin * f->d, f->x + (size_t)begin * f->d, end - begin);
    forward_probe_input(f, PREDICT_RESIDUAL, (size_t)begin, end - begin, f->x + (size_t)begin * f->d);
    forward_probe_input(f, PREDICT_FFN, (size_t)begin, end - begin, f->normed + (size_t)begin * f->d);
    for (int t = begin; t < end; t++)
        sample_ffn(f, f->normed + (size_t)t * f->d, (size_t)t);
}

static void expert_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    struct scratch *s = &f->scratch[worker];
    size_t rows[TILE] = { 0 };
    for (int i = begin; i < end; i++) {
        rows[i - begin] = f->expert_tokens[i];
        memcpy(s->norm + (size_t)(i - begin) * f->d, f->normed + rows[i - begin] / f->k * f->d, f->d * sizeof(float));
    }
    ffn(f, s, f->expert, s->norm, end - begin, rows);
    for (int i = 0; i < end - begin; i++) {
        const float *scale = f->w[MODEL_EXPERT_SCALE];
        float *x = (f->sum ? f->sum : f->x) + rows[i] / f->k * f->d, w = f->route_w[rows[i]] * residual_scale(f);
        w *= scale ? scale[f->expert] : 1;
        const float *o = s->out + (size_t)i * f->d;
        for (size_t j = 0; j < f->d; j++)
            x[j] += w * o[j];
    }
}

/* x += weight FFN(in) of n tokens with matrices that stay in memory, `which`: gate, up and down. */
static void resident_ffn(const struct forward *f, struct scratch *s, const enum model_role which[3], const float *in, float *x, int n)
{
    size_t width = (size_t)forward_tensor(f, which[0])->dims[1];
    forward_product(s->gate, width, forward_tensor(f, which[0]), f->w[which[0]], 0, in, f->d, n);
    forward_product(s->up, width, forward_tensor(f, which[1]), f->w[which[1]], 0, in, f->d, n);
    nn_ffn_act(s->gate, s->gate, s->up, n * (int)width, f->h->act);
    forward_product(s->out, f->d, forward_tensor(f, which[2]), f->w[which[2]], 0, s->gate, width, n);
    if (f->w[MODEL_SHARED_POST_NORM])
        forward_norm(f, s->out, s->out, f->w[MODEL_SHARED_POST_NORM], NULL, n);
    for (int t = 0; t < n; t++) {
        float w = residual_scale(f) * nn_shared_weight(f->w[MODEL_SHARED_ROUTER], in + (size_t)t * f->d, f->h->d_model);
        for (size_t j = 0; j < f->d; j++)
            x[(size_t)t * f->d + j] += w * s->out[(size_t)t * f->d + j];
    }
}

/* The expert that every token uses. */
static void shared_sweep(void *ctx, int begin, int end, int worker)
{
    static const enum model_role roles[3] = { MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN };
    struct forward *f = ctx;
    size_t at = (size_t)begin * f->d;
    resident_ffn(f, &f->scratch[worker], roles, f->normed + at, f->x + at, end - begin);
}

/* The FFN of a layer before the experts'. */
static void lead_sweep(void *ctx, int begin, int end, int worker)
{
    static const enum model_role roles[3] = { MODEL_LEAD_GATE, MODEL_LEAD_UP, MODEL_LEAD_DOWN };
    struct forward *f = ctx;
    struct scratch *s = &f->scratch[worker];
    float *x = f->x + (size_t)begin * f->d;
    ffn_norm(f, s->norm, x, end - begin);
    resident_ffn(f, s, roles, s->norm, x, end - begin);
}

/* Experts, shared expert and their sum are normed before they are added. */
static void normed_sweep(void *ctx, int begin, int end, int worker)
{
    static const enum model_role roles[3] = { MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN };
    struct forward *f = ctx;
    struct scratch *s = &f->scratch[worker];
    float *x = f->x + (size_t)begin * f->d, *sum = f->sum + (size_t)begin * f->d;
    int n = end - begin;
    forward_norm(f, sum, sum, f->w[MODEL_EXPERT_POST_NORM], NULL, n);
    forward_norm(f, s->norm, x, f->w[MODEL_FFN_NORM], NULL, n);
    resident_ffn(f, s, roles, s->norm, sum, n);
    forward_add_residual(f, x, sum, f->w[MODEL_FFN_POST_NORM], n);
}

static void scale_out(struct forward *f)
{
    const float *scale = f->w[MODEL_OUT_SCALE];
    for (size_t i = 0; scale && i < f->n_tokens * f->d; i++)
        f->x[i] *= *scale;
    for (size_t i = 0; model_halves(f->h, f->layer) && i < f->n_tokens * f->d; i++)
        f->x[i] *= 0.5f;
}

static void experts(struct forward *f)
{
    if (f->sum)
        memset(f->sum, 0, f->n_tokens * f->d * sizeof *f->sum);
    pool_for(f->pool, (int)f->n_tokens, TILE, norm_sweep, f);
    if (!f->h->early_router)
        route(f);
    for (f->expert = 0; f->expert < f->h->n_experts; f->expert++) {
        uint32_t n = 0;
        for (size_t i = 0; i < f->n_tokens * f->k; i++)
            if (f->blocks[i] == f->expert)
                f->expert_tokens[n++] = (uint32_t)i;
        pool_for(f->pool, (int)n, TILE, expert_sweep, f);
    }
    if (f->n_shared)
        pool_for(f->pool, (int)f->n_tokens, TILE, f->sum ? normed_sweep : shared_sweep, f);
}

/* ---- the run ---- */

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
    void *row = malloc((size_t)t->row_bytes);
    int r = row ? 0 : err_set(e, ERR_NOMEM, "an embedding");
    for (size_t i = 0; i < f->n_tokens && !r; i++) {
        if (run->tokens[i] >= (uint32_t)f->h->n_vocab)
            r = err_set(e, ERR_FORMAT, "token id %u at position %zu; the vocabulary has %d", run->tokens[i], i,
                        f->h->n_vocab);
        else if ((r = gguf_read(f->m->gguf, t, run->tokens[i] * t->row_bytes, row, (size_t)t->row_bytes, e)) == 0)
            quant_traits(t->type)->dequant(f->x + i * f->d, row, f->d);
        for (size_t k = 0; !r && f->h->embd_scale > 0 && k < f->d; k++)
            f->x[i * f->d + k] *= f->h->embd_scale;
        if (!r && f->embd_norm)
            forward_norm(f, f->x + i * f->d, f->x + i * f->d, f->embd_norm, f->embd_bias, 1);
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
    if (!f->down && !(f->down = malloc(f->d * f->n_ff * down_elem(f->m))))
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
            return err_set(e, ERR_LIMIT, "a sequence of %llu tokens; the limit of this pass is %d",
                           (unsigned long long)(run->starts[i + 1] - run->starts[i]), f->max_len);
    return 0;
}

int forward_run(struct forward *f, const struct forward_run *run, struct err *e)
{
    int r = check_run(f, run, e);
    if (r < 0 || (r = reserve(f, run, e)) < 0 || (r = embed(f, run, e)) < 0)
        return r;
    f->run = run;
    for (int i = 0; i < model_depth(f->h) && !r; i++) {
        int l = model_layer_at(f->h, i), lead = model_is_lead(f->h, l);
        if (file_interrupted()) {
            r = err_set(e, ERR_INTR, "interrupted");
            break;
        }
        if ((r = load_layer(f, l, e)) < 0 ||
            (!lead && run->probe && run->probe->layer && (r = run->probe->layer(run->probe->ctx, l, e)) < 0))
            break;
        if (f->h->early_router)
            route(f);
        if (f->h->parallel)
            pool_for(f->pool, (int)f->n_tokens, TILE, parallel_sweep, f);
        pool_for(f->pool, (int)run->n_sequences, 1, forward_attention_sweep, f);
        if (f->h->wkv_dim)
            pool_for(f->pool, (int)f->n_tokens, TILE, parallel_sweep, f);
        if (lead)
            pool_for(f->pool, (int)f->n_tokens, TILE, lead_sweep, f);
        else if (f->h->n_experts > 0)
            experts(f);
        else
            pool_for(f->pool, (int)f->n_tokens, TILE, dense_sweep, f);
        scale_out(f);
        if (lead)
            continue;
        if (!run->on_layer)
            continue;
        const struct forward_layer seen = {
            .layer = l, .n_tokens = f->n_tokens, .n_slots = (int)f->k, .row_bytes = f->row_bytes, .active = f->active,
            .open = f->open ? f->open : f->active, .blocks = f->blocks, .n_samples = run->n_samples,
            .block_input = f->block_input, .ffn_input = f->ffn_input, .ffn_rms = f->ffn_rms,
        };
        r = run->on_layer(run->ctx, &seen, e);
    }
    f->run = NULL;
    return r;
}

/* ---- logits ---- */

static int load_head(struct forward *f, const struct gguf_tensor **t, struct err *e)
{
    *t = f->m->global[MODEL_OUTPUT] ? f->m->global[MODEL_OUTPUT] : f->m->global[MODEL_TOKEN_EMBD];
    if (!kernels->rows[KERNELS_ACT_F32][(*t)->type])
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s, for which there is no kernel", (*t)->name,
                       quant_traits((*t)->type)->name);
    if (f->head)
        return 0;
    f->head = malloc((size_t)(*t)->bytes);
    if (!f->head)
        return err_set(e, ERR_NOMEM, "tensor '%s'", (*t)->name);
    int r = gguf_read(f->m->gguf, *t, 0, f->head, (size_t)(*t)->bytes, e);
    if (r < 0) {
        free(f->head);
        f->head = NULL;
    }
    return r;
}

/* A tile's logits, rows of the head shared out among the workers. */
struct head {
    const struct forward *f;
    const struct gguf_tensor *t;
    const float *x;
    int n;
    float *out;
};

static void head_rows(void *ctx, int begin, int end, int worker)
{
    const struct head *h = ctx;
    size_t row = (size_t)h->t->row_bytes;
    (void)worker;
    kernels->rows[KERNELS_ACT_F32][h->t->type](h->out + begin, (size_t)h->f->h->n_vocab,
                                               (const uint8_t *)h->f->head + (size_t)begin * row, row, end - begin, h->x,
                                               h->f->d * sizeof(float), h->n, (int)h->t->dims[0]);
}

int forward_logits(struct forward *f, size_t first, size_t n, float *logits, struct err *e)
{
    const struct gguf_tensor *t;
    int r = load_head(f, &t, e);
    if (r < 0)
        return r;
    if (first > f->n_tokens || n > f->n_tokens - first)
        return err_set(e, ERR_LIMIT, "logits of %zu tokens from %zu; the run had %zu", n, first, f->n_tokens);
    size_t vocab = (size_t)f->h->n_vocab;
    int step = ROW_BLOCK_BYTES / t->row_bytes ? (int)(ROW_BLOCK_BYTES / t->row_bytes) : 1;
    float *norm = f->scratch[0].norm;
    for (size_t at = 0; at < n; at += TILE) {
        int k = (int)(n - at < TILE ? n - at : TILE);
        forward_norm(f, norm, f->x + (first + at) * f->d, f->output_norm, f->output_bias, k);
        struct head h = { f, t, norm, k, logits + at * vocab };
        pool_for(f->pool, (int)vocab, step, head_rows, &h);
        nn_logits(h.out, (size_t)k * vocab, f->h);
    }
    return 0;
}
