#ifndef COMMON_MODEL_NN_H
#define COMMON_MODEL_NN_H

/* The equations of the network on plain arrays, single-threaded; profiler and runtime share them
 * and each writes its own forward pass around them. Thread-safe; cannot fail. Transcendentals are plain
 * C (libm's, or nn_exp.h), so every tier gives the same bits here. */
#include "common/model/model.h"

#include <stddef.h>
#include <stdint.h>

/* out[i] = w[i] * x[i] / sqrt(mean(x^2) + eps)
 * RMSNorm, Zhang & Sennrich 2019 (arXiv:1910.07467), plus eps; the mean is accumulated in double.
 * f32[n], n > 0; out may be x. */
void nn_rmsnorm(float *out, const float *x, const float *w, int n, float eps);

/* The same without weights, in place. */
void nn_rms(float *x, int n, float eps);

/* The norm of what attention and FFN give. */
void nn_post_norm(float *out, const float *x, const float *w, int n, const struct model_hparams *h);

/* The model's norm: RMSNorm with its eps; where it has layer_norm, out[i] = w[i] * (x[i] - m) / sqrt(mean((x - m)^2) + eps) + b[i],
 * m = mean(x), sums in double. b may be NULL. f32[n]; out may be x. */
void nn_norm(float *out, const float *x, const float *w, const float *b, int n, const struct model_hparams *h);

/* Queries or keys of a token before they turn, in place: + bias, then the model's norm with weights w; either may be NULL. */
void nn_heads(float *x, int n_heads, const float *bias, const float *w, const struct model_hparams *h);

/* Rotary embedding of n_heads vectors of head_dim at position pos, in place (arXiv:2104.09864).
 * NN_ROPE_NORM pairs (2i, 2i+1), NN_ROPE_NEOX pairs (i, i + n_rot/2); the first n_rot elements of
 * each head turn, and are multiplied by mscale. freqs: f32[n_rot/2] from nn_rope_freqs. */
void nn_rope(float *x, int n_heads, int head_dim, int n_rot, enum model_rope style,
             const float *freqs, float mscale, int pos);

/* What the queries of a position are multiplied by after rotation: 1 where the model has no temperature. */
float nn_query_scale(const struct model_hparams *h, int pos);

/* freqs[i] = theta^(-2i/n_rot) * scale / divisor[i]; divisor (rope_freqs tensor, Llama 3) may be NULL. windowed: of the layers with a
 * window, which may have a theta of their own. With yarn
 * (arXiv:2309.00071) pairs that go round more than yarn_fast times in the original context keep their frequency, those
 * that do so less than yarn_slow times are scaled, and those between are mixed, linearly in i. */
void nn_rope_freqs(float *freqs, const struct model_hparams *h, int windowed, const float *divisor);

/* Of both kinds of layers, f32[2][n_rot / 2]. Where layers with a window have other heads, divisors are not theirs. */
void nn_rope_all(float *freqs, const struct model_hparams *h, const float *divisor);

/* x = softmax(x), max-subtracted, sum in double. n > 0. */
void nn_softmax(float *x, int n);

/* The same where one more logit takes its share. */
void nn_softmax_sink(float *x, int n, float sink);

/* One token's attention for heads [head0, head1): out[h*head_dim..] = softmax(q_h . K / sqrt(head_dim)) V.
 * K, V: n_pos positions, kv_stride elements from one to the next; kv head j = h / (n_heads/n_kv_heads) begins at element j * kv_head;
 * of this type (F32, F16, or one of blocks: then head_dim and value_dim are multiples of them). scores: scratch, f32[NN_ATTN_HEADS or
 * n_heads/n_kv_heads, if fewer][scores_stride], scores_stride >= n_pos. scale is applied
 * to the products. sinks: NULL, or a logit of each head that takes part in its softmax and has no V. softcap c: products z, scaled,
 * become c tanh(z / c). Positions are
 * summed in ascending order: bits do not depend on how tokens are
 * grouped into calls. Heads that share a KV head are taken up to NN_ATTN_HEADS at a time, so that a
 * row of K or V is read once for all of them. */
#define NN_ATTN_HEADS 4
struct nn_attn {
    int n_heads, n_kv_heads, head_dim;
    uint32_t type;               /* of K and V: quant_type */
    int value_dim;               /* elements of a value, of its row's first; 0: head_dim. out: value_dim for each head */
    size_t kv_stride, scores_stride;
    size_t kv_head;              /* 0: head_dim, a position's heads side by side */
    float scale;
    const float *sinks;
    float softcap;               /* 0: none */
    /* K and V in pages: position p of the n_pos, which is the sequence's position first + p, is row
     * pages[(first + p) / page] * page + (first + p) % page of them; NULL: row p. */
    const int32_t *pages;
    int page, first;
};

/* Heads of a piece of work: those that share a KV head; fewer where one is all that there is. */
static inline int nn_attn_heads(const struct model_hparams *h)
{
    return h->kv_rank ? NN_ATTN_HEADS : h->n_heads / h->n_kv_heads;
}
void nn_attention(float *out, const float *q, const void *k, const void *v, int n_pos,
                  int head0, int head1, const struct nn_attn *a, float *scores);

/* The same, bit for bit, of several tokens of a sequence that follow each other: a row of K or V is read once for all of them, and made
 * to floats once for several queries. out, q: of the first token; out_step, q_step: floats to the next one's. The first token sees n_pos
 * positions, token i those from from[i] to n_pos + i - 1 of them, and its own is the last; from[0] = 0, ascending. work: scratch of
 * nn_attention_floats(n_tokens, n_pos, a) floats, any contents. a->scores_stride is not used. Rows that a token does not see may
 * hold anything. */
void nn_attention_run(float *out, size_t out_step, const float *q, size_t q_step, const void *k, const void *v, int n_tokens, int n_pos,
                      const int *from, int head0, int head1, const struct nn_attn *a, float *work);
size_t nn_attention_floats(int n_tokens, int n_pos, const struct nn_attn *a);
#define NN_ATTN_TOKENS 8 /* the most of a run */

/* Values of a token before they go to the cache, in place: + bias, NULL for none, then the model's norm without weights, if it has one. */
void nn_values(float *v, const float *bias, const struct model_hparams *h);

/* x[i] *= sigmoid(gate[i]) of n_heads heads of dim; the gates of a head are the last dim of its stride: gates[head][stride]. */
void nn_gate_heads(float *x, const float *gates, int stride, int n_heads, int dim);

/* What a router with a norm of its own sees: out = rmsnorm(x) * w / sqrt(n), f32[n]. */
void nn_router_input(float *out, const float *x, const float *w, int n, float eps);

/* Latent attention: norm and rotation of a token's kv, f32[head_dim], for the cache, and rotation of its queries q, f32[n_heads][nope_dim
 * + n_rot], whose rotated elements go to the last n_rot of `turned`, f32[n_heads][head_dim]. */
void nn_latent_token(float *turned, float *q, float *kv, const float *kv_norm, const float *freqs, const struct model_hparams *h, int pos);

/* out[t][head] = W[head] . x[t][head] for heads [head0, head1) of n tokens. W: [heads][rows][cols] of a type with kernels; strides and
 * steps in floats, from token to token and from head to head. */
struct nn_each_head {
    const void *w;
    uint32_t type;
    int rows, cols;
    size_t out_stride, out_step, x_stride, x_step;
};
void nn_each_head(float *out, const float *x, int n, int head0, int head1, const struct nn_each_head *m);

/* h[i] = act(gate[i]) * up[i] (gated forms): RELU relu(g)*u, SILU g/(1+exp(-g))*u, DRELU relu(g)*relu(u), SWIGLU_OAI
 * g' = min(g, 7), u' = min(max(u, -7), 7): g'/(1+exp(-1.702 g')) * (u' + 1) (gpt-oss), GELU
 * (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) g / 2 * u, GELU_UNGATED the same without u, RELU_UNGATED
 * relu(g). */
void nn_ffn_act(float *h, const float *gate, const float *up, int n, enum model_act act);

/* Routing of a token: chosen[0..used) are the indices of the largest of n logits, best first, the lower index first among
 * equals; weight[0..used) sum to 1, but for SOFTMAX_ALL:
 *   SOFTMAX_TOPK  exp(z_i) / sum of exp(z_j) over the chosen j (Mixtral, arXiv:2401.04088, eq. 2; a softmax over all
 *                 experts, normalised over the chosen, is the same)
 *   SOFTMAX_ALL   exp(z_i) / sum of exp(z_j) over all j, which sum to less than 1 (OLMoE, arXiv:2409.02060)
 *   SIGMOID_TOPK  s_i / max(2^-14, sum of s_j), s = 1 / (1 + exp(-z)) (SmallThinker, arXiv:2507.20984)
 * Where the model, a sigmoid one, has biases for choosing (DeepSeek-V3, arXiv:2412.19437), bias, f32[n], is added to the scores s, for
 * choosing alone;
 * where it has groups, only experts of the n_groups_used groups can be chosen whose two best (s + bias) sum to most. Weights are
 * multiplied by expert_scale at last. n = h->n_experts, used = h->n_experts_used; bias may be NULL. */
void nn_route(uint16_t *chosen, float *weight, const float *logits, const float *bias, const struct model_hparams *h);

/* 1 / (1 + exp(-x)) */
float nn_sigmoid(float x);

/* What the expert that every token uses is multiplied by: sigmoid(w . x), f32[n]; the sum is accumulated in double. w NULL: 1. */
float nn_shared_weight(const float *w, const float *x, int n);

/* Logits of the head as the model has them: scaled, capped. f32[n], in place. */
void nn_logits(float *z, size_t n, const struct model_hparams *h);

/* gate[i] = 0 where |act(gate[i])| < threshold[i], for SILU and GELU: the neuron is silent, and h is 0. What is no number stays. Most
 * gates are decided without a transcendental function, and as with it. f32[n]. */
void nn_silence(float *gate, const float *threshold, int n, enum model_act act);

/* Does this activation give exact zeros from the gate alone (RELU, DRELU, RELU_UNGATED)? */
int nn_act_is_sparse(enum model_act act);

/* Do neurons give exact zeros, by their activation or their thresholds? Else every one fires for every token. */
static inline int nn_is_sparse(const struct model_hparams *h)
{
    return h->thresholds || nn_act_is_sparse(h->act);
}

/* Does the gate alone say whether a neuron fires, so that those whose gate is open are those that fire? */
static inline int nn_gate_decides(const struct model_hparams *h)
{
    return h->thresholds || h->act == MODEL_ACT_RELU || h->act == MODEL_ACT_RELU_UNGATED;
}

/* Is a gate open, after nn_silence where neurons have thresholds? */
static inline int nn_is_open(float gate, int thresholds)
{
    return thresholds ? gate != 0 : gate > 0;
}

#endif
