/* Attention of the dense pass: one sequence at a time, all its positions. */
#include "common/offline/forward_impl.h"

#include "common/model/nn_delta.h"

#include <math.h>
#include <string.h>

enum { TILE = FORWARD_TILE };

/* Biases, norms and rotation of a token at position pos. */
static void place(const struct forward *f, float *q, float *k, float *v, int pos)
{
    const struct model_hparams *h = &f->own;
    nn_heads(q, h->n_heads, f->w[MODEL_ATTN_Q_BIAS], f->w[MODEL_ATTN_Q_NORM], h);
    nn_heads(k, h->n_kv_heads, f->w[MODEL_ATTN_K_BIAS], f->w[MODEL_ATTN_K_NORM], h);
    nn_values(v, f->w[MODEL_ATTN_V_BIAS], h);
    const float *freqs = f->freqs + (model_has_window(h, f->layer) ? f->h->n_rot / 2 : 0);
    if (model_rotates(h, f->layer)) {
        nn_rope(q, h->n_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, pos);
        nn_rope(k, h->n_kv_heads, h->head_dim, h->n_rot, h->rope, freqs, h->rope_mscale, pos);
    }
    float scale = nn_query_scale(h, pos);
    for (size_t i = 0; scale != 1 && i < (size_t)(h->n_heads * h->head_dim); i++)
        q[i] *= scale;
}

/* Queries, keys and values of a sequence from s->norm, of n tokens from t on. */
static void make_plain(const struct forward *f, struct scratch *s, size_t t, int n)
{
    const size_t dim = (size_t)f->own.head_dim;
    if (f->own.out_gate) {
        float *made = s->gated + t * 2 * f->q_len;
        forward_matrix(f, MODEL_ATTN_Q, made, s->norm, n);
        for (size_t i = 0; i < (size_t)(n * f->own.n_heads); i++)
            memcpy(s->q + t * f->q_len + i * dim, made + 2 * i * dim, dim * sizeof *made);
    } else {
        forward_product(s->q + t * f->q_len, f->q_len, forward_tensor(f, MODEL_ATTN_Q), f->w[MODEL_ATTN_Q], 0, s->norm, f->d, n);
    }
    forward_product(s->k + t * f->kv_len, f->kv_len, forward_tensor(f, MODEL_ATTN_K), f->w[MODEL_ATTN_K], 0, s->norm, f->d, n);
    if (f->w[MODEL_ATTN_V])
        forward_product(s->v + t * f->kv_len, f->kv_len, forward_tensor(f, MODEL_ATTN_V), f->w[MODEL_ATTN_V], 0, s->norm, f->d, n);
    else
        memcpy(s->v + t * f->kv_len, s->k + t * f->kv_len, (size_t)n * f->kv_len * sizeof(float));
    for (size_t i = t; i < t + (size_t)n; i++)
        place(f, s->q + i * f->q_len, s->k + i * f->kv_len, s->v + i * f->kv_len, (int)i);
}

/* The same where heads share what keys and values are made of: s->q has queries turned into that, s->k it itself. */
static void make_latent(const struct forward *f, struct scratch *s, size_t t, int n)
{
    const struct model_hparams *h = &f->own;
    size_t q_dim = (size_t)model_q_dim(h), rank = (size_t)h->q_rank;
    const struct nn_each_head turn = { f->w[MODEL_ATTN_K_B], forward_tensor(f, MODEL_ATTN_K_B)->type, h->kv_rank, h->nope_dim, f->q_len,
                                       (size_t)h->head_dim, q_dim, (size_t)(h->nope_dim + h->n_rot) };
    if (rank) {
        forward_product(s->low, rank, forward_tensor(f, MODEL_ATTN_Q_A), f->w[MODEL_ATTN_Q_A], 0, s->norm, f->d, n);
        for (size_t i = 0; i < (size_t)n; i++)
            nn_rmsnorm(s->low + i * rank, s->low + i * rank, f->w[MODEL_ATTN_Q_A_NORM], h->q_rank, h->rms_eps);
    }
    enum model_role q = rank ? MODEL_ATTN_Q_B : MODEL_ATTN_Q;
    forward_product(s->made, q_dim, forward_tensor(f, q), f->w[q], 0, rank ? s->low : s->norm, rank ? rank : f->d, n);
    forward_product(s->k + t * f->kv_len, f->kv_len, forward_tensor(f, MODEL_ATTN_KV_A), f->w[MODEL_ATTN_KV_A], 0, s->norm, f->d, n);
    for (size_t i = 0; i < (size_t)n; i++)
        nn_latent_token(s->q + (t + i) * f->q_len, s->made + i * q_dim, s->k + (t + i) * f->kv_len, f->w[MODEL_ATTN_KV_A_NORM], f->freqs, h,
                        (int)(t + i));
    nn_each_head(s->q + t * f->q_len, s->made, n, 0, h->n_heads, &turn);
}

/* What the output matrix sees of n tokens: s->att itself, or the values of its heads. */
static const float *attended(const struct forward *f, struct scratch *s, int n)
{
    const struct model_hparams *h = &f->own;
    if (!h->kv_rank)
        return s->att;
    const struct nn_each_head value = { f->w[MODEL_ATTN_V_B], forward_tensor(f, MODEL_ATTN_V_B)->type, h->value_dim, h->kv_rank,
                                        (size_t)model_out_dim(h), (size_t)h->value_dim, (size_t)(h->n_heads * h->kv_rank),
                                        (size_t)h->kv_rank };
    nn_each_head(s->heads, s->att, n, 0, h->n_heads, &value);
    return s->heads;
}

static void attend(const struct forward *f, struct scratch *s, size_t first, size_t len)
{
    const struct model_hparams *h = &f->own;
    float *x = f->x + first * f->d;
    const float *values = h->kv_rank ? s->k : s->v;
    const float *own = f->w[MODEL_ATTN_NORM_2], *norm = own ? own : f->w[MODEL_ATTN_NORM];
    const float *bias = f->w[own ? MODEL_ATTN_NORM_2_BIAS : MODEL_ATTN_NORM_BIAS];
    size_t width = (size_t)(h->kv_rank ? h->kv_rank : h->head_dim) * (size_t)h->n_heads;
    for (size_t t = 0; t < len; t += TILE) {
        int n = (int)(len - t < TILE ? len - t : TILE);
        forward_norm(f, s->norm, x + t * f->d, norm, bias, n);
        forward_probe_input(f, PREDICT_BLOCK, first + t, n, s->norm);
        (h->kv_rank ? make_latent : make_plain)(f, s, t, n);
    }
    const struct nn_attn a = { .n_heads = h->n_heads, .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .value_dim = h->kv_rank,
                               .kv_stride = f->kv_len, .scores_stride = len,
                               .scale = h->attn_scale > 0 ? h->attn_scale : 1.0f / sqrtf((float)h->head_dim),
                               .sinks = f->w[MODEL_ATTN_SINKS], .softcap = h->attn_softcap };
    for (size_t t = 0; t < len; t += TILE) {
        int n = (int)(len - t < TILE ? len - t : TILE);
        for (int i = 0; i < n; i++) {
            int pos = (int)t + i, from = model_attends_from(h, f->layer, pos);
            nn_attention(s->att + (size_t)i * width, s->q + (size_t)pos * f->q_len, s->k + (size_t)from * f->kv_len,
                         values + (size_t)from * f->kv_len, pos + 1 - from, 0, h->n_heads, &a, s->scores);
            if (h->out_gate)
                nn_gate_heads(s->att + (size_t)i * width, s->gated + (size_t)pos * 2 * f->q_len, h->n_heads, h->head_dim);
        }
        forward_matrix(f, MODEL_ATTN_OUTPUT, s->out, attended(f, s, n), n);
        for (int i = 0; i < n; i++)
            forward_add_bias(s->out + (size_t)i * f->d, f->w[MODEL_ATTN_OUTPUT_BIAS], f->d);
        forward_add_residual(f, x + t * f->d, s->out, f->w[MODEL_ATTN_POST_NORM], n);
    }
}

void forward_attention_sweep(void *ctx, int begin, int end, int worker)
{
    struct forward *f = ctx;
    const struct forward_run *run = f->run;
    for (int i = begin; i < end; i++) {
        size_t first = (size_t)run->starts[i], len = (size_t)(run->starts[i + 1] - run->starts[i]);
        for (size_t t = first; run->n_samples && t < first + len; t++)
            if (f->sample_of[t] >= 0)
                forward_sample_f16(f->block_input + (size_t)f->sample_of[t] * f->d, f->x + t * f->d, f->d);
        (f->h->wkv_dim ? forward_wkv : model_is_recurrent(f->h, f->layer) ? forward_recurrent : attend)(f, &f->scratch[worker], first, len);
    }
}
