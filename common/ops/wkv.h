#ifndef COMMON_OPS_WKV_H
#define COMMON_OPS_WKV_H

/* The equations of RWKV-7 (arXiv:2503.14456), one token at a time, so that bits do not depend on how tokens are grouped. d = d_model;
 * x, x' are a token's normed input and that of the token before it, zeros at a sequence's beginning.
 *
 * Keys of such files, after "rwkv7.": context_length, embedding_length (d), block_count, feed_forward_length, attention.layer_norm_epsilon,
 * wkv.head_size (wkv_dim), attention.decay_lora_rank, attention.iclr_lora_rank, attention.value_residual_mix_lora_rank,
 * attention.gate_lora_rank; attention.head_count is 0, token_shift_count is 2 or absent.
 *
 * Tensors, row length first; vectors are F32, matrices of any type:
 *   token_embd [d, n_vocab], token_embd_norm [d] and .bias (LayerNorm of embeddings), output_norm and .bias, output [d, n_vocab]
 *   of a layer attn_norm, attn_norm_2 (the FFN's) [d] and their .bias
 *   time_mix_lerp_fused [d, 1, 1, 6] of r, w, k, v, a, g; time_mix_receptance, _key, _value, _output [d, d]
 *   time_mix_w0 [d], _w1 [d, decay_rank], _w2 [decay_rank, d]; likewise _a (rate_rank), _v (value_rank), _g (gate_rank; without _g0)
 *   time_mix_k_k, _k_a, _r_k [d], time_mix_ln [d] and .bias
 *   channel_mix_lerp_k [d], channel_mix_key [d, n_ff], channel_mix_value [n_ff, d]
 * _v of the first layer may be there, and nobody reads it.
 *
 * Time mixing, in place of attention:
 *   x_i = x + (x' - x) lerp_i  for i of r, w, k, v, a, g                             wkv_mix
 *   r = R x_r, k = K x_k, v = V x_v
 *   w = exp(-e^-0.5 sigmoid(w0 + W2 tanh(W1 x_w))), a = sigmoid(a0 + A2 A1 x_a), g = G2 sigmoid(G1 x_g)
 *   v += (v of the first layer - v) sigmoid(v0 + V2 V1 x_v)                          wkv_gates
 *   of each head, S [wkv_dim of keys][wkv_dim of values] its state:                  wkv_head
 *     u = k k_k / |k k_k|, k = k + (a - 1) k k_a
 *     S = diag(w) S - (u a) (u^T S) + k v^T, o = S^T r
 *     o = (LayerNorm(o) + v sum(r k r_k)) g
 *   out = O o
 * FFN: x_k = x + (x' - x) lerp_k, of its own input; Down relu(Up x_k)^2. So neurons are exactly sparse.
 *
 * RWKV-6 (arXiv:2404.05892), mix_rank > 0, has keys "rwkv6.", of which time_mix_extra_dim (mix_rank), time_decay_extra_dim (decay_rank) and
 * rescale_every_n_layers (halve_period; 0 or absent: never) take the place of the ranks above, and in place of the layer's tensors from
 * time_mix_lerp_fused to time_mix_r_k and of channel_mix_lerp_k
 *   time_mix_lerp_x [d], time_mix_w1 [d, 5 mix_rank], time_mix_w2 [mix_rank, d, 5], time_mix_lerp_fused [d, 1, 1, 5] of w, k, v, r, g
 *   time_mix_receptance, _key, _value, _gate, _output [d, d]; time_mix_decay [d], _decay_w1 [d, decay_rank], _decay_w2 [decay_rank, d]
 *   time_mix_first [wkv_dim, heads]; channel_mix_lerp_k, channel_mix_lerp_r [d], channel_mix_receptance [d, d]
 * Its time mixing, and its FFN:
 *   z_i, of mix_rank elements each for i of w, k, v, r, g, = tanh(W1 (x + (x' - x) lerp_x)); x_i = x + (x' - x) (lerp_i + W2_i z_i)
 *   r = R x_r, k = K x_k, v = V x_v, g = SiLU(G x_g), w = exp(-exp(decay + D2 tanh(D1 x_w)))
 *   of each head o = S^T r + v sum(r k first), S = diag(w) S + k v^T; then o = LayerNorm(o) g, out = O o
 *   (Down relu(Up x_k)^2) sigmoid(R' x_r), with inputs of its own; the residual after it is halved in layers that model_halves.
 *
 * The state of a sequence in a layer is f32[op_need.state]: the last input of time mixing [d], that of the FFN [d], S of each head; a
 * sequence begins with zeros. The values of the first layer go with the tokens of a pass. Single-threaded; thread-safe; cannot fail. */
#include "common/model/model_role.h"

enum wkv_input { WKV_R, WKV_W, WKV_K, WKV_V, WKV_A, WKV_G, WKV_INPUTS };

/* In the order in which inputs are made: the matrix that one is multiplied with, and the first of two small ones, whose role comes before
 * the other's; 0 where there is none. Values come last: what their small matrices give takes the place of the mixed input. */
struct wkv_made {
    enum wkv_input in;
    enum model_role whole, low;
};
extern const struct wkv_made wkv_made[WKV_INPUTS];

/* Vectors of a layer, f32[d_model]. */
struct wkv_weights {
    const float *lerp;           /* f32[WKV_INPUTS][d_model], or [5], in the file's order: wkv_place */
    const float *decay, *rate, *value; /* w0, a0, v0; value is NULL in the first layer */
    const float *k_k, *k_a, *r_k, *norm, *norm_bias; /* RWKV-6: r_k is time_mix_first; rate, value, k_k and k_a are not there */
    const float *lerp_x;         /* of RWKV-6 */
};

/* What is made of a token, f32[d_model] each. */
struct wkv_token {
    float *r, *k, *v, *w, *a, *g;
};

/* Where an input is among the file's lerps and mixes; -1: the version has none. */
int wkv_place(enum wkv_input which, const struct model_hparams *h);

/* out = x + (before - x) * (lerp + more), f32[d_model]; before NULL: zeros; more may be NULL, and out may be it. out is neither of the
 * others. */
void wkv_mix(float *out, const float *x, const float *before, const float *lerp, const float *more, const struct model_hparams *h);

/* What the first of two small matrices gives, f32[n], in place: tanh for decays, sigmoid for gates, nothing for others. */
void wkv_low(float *x, size_t n, enum wkv_input which);

/* w, a: what their matrices give, become decays and rates; v is mixed with that of the first layer by `mix`, what its small matrices give.
 * In the first layer v becomes `first`, and mix is not read. RWKV-6: w and g alone change, and neither first nor mix is read. */
void wkv_gates(const struct wkv_token *t, float *first, const float *mix, const struct wkv_weights *w,
                  const struct model_hparams *h);

/* One head: its state s f32[wkv_dim][wkv_dim] moves on by a token; its part of the token's k is overwritten. o: f32[wkv_dim], what the
 * output matrix sees. */
void wkv_head(float *o, float *s, const struct wkv_token *t, const struct wkv_weights *w, int head, const struct model_hparams *h);

/* RWKV-6: out, what the FFN gives, times the sigmoids of r, f32[n]. */
void wkv_receive(float *out, const float *r, size_t n);

#endif
