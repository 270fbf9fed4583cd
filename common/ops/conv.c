/* Convolutions token by token. */
#include "common/ops/conv.h"

#include "common/ops/ops.h"

void conv_step(float *x, float *state, const float *w, size_t channels, int begin, int end, const struct model_hparams *h)
{
    int width = h->conv_width;
    for (int c = begin; c < end; c++) {
        const float *weights = w + (size_t)c * (size_t)width;
        float *at = state + c, sum = 0;
        for (int i = 0; i + 1 < width; i++, at += channels) {
            sum += weights[i] * *at;
            *at = i + 2 < width ? at[channels] : x[c];
        }
        x[c] = sum + weights[width - 1] * x[c];
    }
}

void conv_mix(float *y, float *bcx, float *state, const float *w, int begin, int end, const struct model_hparams *h)
{
    const float *b = bcx, *c = b + h->d_model;
    float *x = bcx + 2 * (size_t)h->d_model;
    for (int i = begin; i < end; i++)
        x[i] *= b[i];
    conv_step(x, state, w, (size_t)h->d_model, begin, end, h);
    for (int i = begin; i < end; i++)
        y[i] = c[i] * x[i];
}

void conv_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    const uint64_t d = (uint64_t)h->d_model;
    (void)layer;
    out->made = 4 * d; /* b, c and x, outputs */
    out->states = 1;
    out->state = (uint64_t)(h->conv_width - 1) * d;
    out->moves = d; /* inputs of the convolution */
    out->held = (uint64_t)(h->conv_width - 1) * CONV_CHANNELS;
    out->state_flops = 2 * (uint64_t)h->conv_width * d;
}
