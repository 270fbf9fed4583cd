#ifndef COMMON_OPS_CONV_H
#define COMMON_OPS_CONV_H

/* Causal convolutions of few tokens, each channel by itself, and the short convolution that LFM2 (arXiv:2511.23404) has in place of
 * attention. A token's input gives b, c and x of d_model elements each, in this order:
 *
 *   y = c * (convolution of b * x over the last conv_width tokens)               conv_mix
 *
 * The state of a sequence is f32[conv_width - 1][d_model], of b * x, the oldest first; a sequence begins with zeros. Single-threaded;
 * thread-safe; cannot fail. */
#include "common/model/hparams.h"

#include <math.h>

#define CONV_CHANNELS 256 /* that one worker convolves at once */

static inline float conv_silu(float x)
{
    return x / (1.0f + expf(-x));
}

/* Channels [begin, end) of a token's `channels`, in place; the state f32[conv_width - 1][channels] moves on by it.
 * w: f32[channels][conv_width], the newest last. */
void conv_step(float *x, float *state, const float *w, size_t channels, int begin, int end, const struct model_hparams *h);

/* Channels [begin, end) of y, f32[d_model]. bcx: f32[3][d_model], of which x is written to. */
void conv_mix(float *y, float *bcx, float *state, const float *w, int begin, int end, const struct model_hparams *h);

#endif
