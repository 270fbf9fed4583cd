#ifndef COMMON_OPS_SSM_H
#define COMMON_OPS_SSM_H

/* The equations of Mamba2 (arXiv:2405.21060), one token at a time. A token's input gives z of ssm_inner elements, channels (x of ssm_inner,
 * B and C of ssm_groups * ssm_state each) and a dt of each of ssm_heads heads, in this order, together model_ssm_rows; x has dim =
 * ssm_inner / ssm_heads elements a head, and heads of a group share B and C.
 *
 *   channels = silu(convolution over the last conv_width tokens + bias)                              ssm_conv
 *   dt = softplus(dt + bias);  S = exp(a dt) S + dt x B^T;  y = S C + d x, of each head               ssm_head
 *   y = rmsnorm(y * silu(z)) * w, of the ssm_inner / ssm_groups elements of each group               ssm_out
 *
 * a is negative as the file has it. The state of a sequence is f32[op_need.state]: [conv_width - 1][channels], the oldest first, then S of
 * each head, [dim][ssm_state]; a sequence begins with zeros. Single-threaded; thread-safe; cannot fail. */
#include "common/model/hparams.h"

/* Channels [begin, end) of a token, in place; the state moves on by it. w: f32[channels][conv_width], the newest last. */
void ssm_conv(float *x, float *state, const float *w, const float *bias, int begin, int end, const struct model_hparams *h);

/* A head's weights are elements `head` of these. */
struct ssm_weights {
    const float *dt, *a, *d;
};

/* One head: y, f32[dim], and its state S move on by a token. channels: after ssm_conv; dt: f32[ssm_heads], as the product gave it. */
void ssm_head(float *y, float *s, const float *channels, const float *dt, const struct ssm_weights *w, int head,
              const struct model_hparams *h);

/* y, z: f32[ssm_inner]; w: f32[ssm_groups][ssm_inner / ssm_groups]. y in place. */
void ssm_out(float *y, const float *z, const float *w, const struct model_hparams *h);

#endif
