#ifndef COMMON_OPS_DELTA_H
#define COMMON_OPS_DELTA_H

/* The equations of a gated delta net (arXiv:2412.06464) as Qwen3-Next has it, one token at a time, so that bits do not depend on how
 * tokens are grouped. A token's input gives queries and keys of delta_k_heads heads, values of delta_v_heads (in this order, together
 * model_delta_channels), z of delta_v_heads, and an alpha and a beta of each value head:
 *
 *   channels = silu(convolution over the last conv_width tokens)                 delta_conv
 *   q = q / |q| / sqrt(delta_dim), k = k / |k|, of each head                     delta_units
 *   beta = sigmoid(beta), decay = exp(a * softplus(alpha + dt))                  delta_gates
 *   S = decay S;  S = S + k (beta (v - k^T S))^T;  o = S^T q, of each value head delta_step
 *   o = rmsnorm(o) * w * silu(z)                                                 delta_out
 *
 * The state of a sequence is f32[op_need.state]: [conv_width - 1][channels], the oldest first, then S of each value head,
 * [delta_dim of keys][delta_dim of values]; a sequence begins with zeros. Single-threaded; thread-safe; cannot fail. */
#include "common/model/hparams.h"

/* Channels [begin, end) of a token, in place; the state moves on by it. w: f32[channels][conv_width], the newest last. */
void delta_conv(float *x, float *state, const float *w, int begin, int end, const struct model_hparams *h);

/* Queries and keys of a token, f32[2][delta_k_heads][delta_dim], in place; |x| is sqrt(sum of squares + rms_eps). */
void delta_units(float *qk, const struct model_hparams *h);

/* gates: f32[2][delta_v_heads]: decay, beta. beta, alpha: apart, f32[delta_v_heads] each; alpha NULL: beta is of delta_joined, for each key
 * head the betas of its value heads and then their alphas. dt, a: f32[delta_v_heads]. */
void delta_gates(float *gates, const float *beta, const float *alpha, const float *dt, const float *a, const struct model_hparams *h);

/* Where a value head's output is among a token's: its own place, or, where the output matrix is folded so (model_hparams.fold_grouped),
 * after those of the key heads before its own. */
int delta_place(int head, const struct model_hparams *h);

/* One value head: o and its state S move on by a token. channels: the token's, after delta_units. o: f32[delta_dim], S as above. */
void delta_step(float *o, float *s, const float *channels, const float *gates, int head, const struct model_hparams *h);

/* o, z: f32[delta_v_heads][delta_dim], o by delta_place; w: f32[delta_dim]. o in place. */
void delta_out(float *o, const float *z, const float *w, const struct model_hparams *h);

#endif
