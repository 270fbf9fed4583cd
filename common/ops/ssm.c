/* Mamba2 by its recurrence. Sums over the state are in lanes, whose order no number of tokens or workers changes. */
#include "common/ops/ssm.h"

#include "common/model/nn.h"
#include "common/ops/conv.h"
#include "common/ops/ops.h"

#include <math.h>

enum { LANES = 8 };

void ssm_conv(float *x, float *state, const float *w, const float *bias, int begin, int end, const struct model_hparams *h)
{
    conv_step(x, state, w, (size_t)model_ssm_channels(h), begin, end, h);
    for (int c = begin; c < end; c++)
        x[c] = conv_silu(x[c] + bias[c]);
}

/* row = decay * row + b * x; what row and c make then. */
static float move_on(float *row, float decay, float x, const float *b, const float *c, int n)
{
    float sums[LANES] = { 0 }, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            row[i + k] = decay * row[i + k] + b[i + k] * x;
            sums[k] += row[i + k] * c[i + k];
        }
    for (; i < n; i++) {
        row[i] = decay * row[i] + b[i] * x;
        sum += row[i] * c[i];
    }
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

void ssm_head(float *y, float *s, const float *channels, const float *dt, const struct ssm_weights *w, int head,
              const struct model_hparams *h)
{
    const int dim = h->ssm_inner / h->ssm_heads, n = h->ssm_state, group = head / (h->ssm_heads / h->ssm_groups);
    const float *x = channels + (size_t)head * (size_t)dim, *b = channels + h->ssm_inner + (size_t)group * (size_t)n;
    const float *c = b + (size_t)h->ssm_groups * (size_t)n;
    const float raw = dt[head] + w->dt[head], step = raw > 20 ? raw : log1pf(expf(raw)), decay = expf(step * w->a[head]);
    for (int i = 0; i < dim; i++)
        y[i] = move_on(s + (size_t)i * (size_t)n, decay, x[i] * step, b, c, n) + x[i] * w->d[head];
}

void ssm_out(float *y, const float *z, const float *w, const struct model_hparams *h)
{
    const int part = h->ssm_inner / h->ssm_groups;
    for (int i = 0; i < h->ssm_inner; i++)
        y[i] *= conv_silu(z[i]);
    for (int at = 0; at < h->ssm_inner; at += part)
        nn_rmsnorm(y + at, y + at, w + at, part, h->rms_eps);
}

void ssm_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    const uint64_t inner = (uint64_t)h->ssm_inner, state = (uint64_t)h->ssm_state;
    (void)layer;
    out->made = (uint64_t)model_ssm_rows(h) + inner; /* z, channels and dt, outputs */
    out->states = 1;
    out->state = (uint64_t)(h->conv_width - 1) * (uint64_t)model_ssm_channels(h) + inner * state;
    out->moves = (uint64_t)model_ssm_channels(h) + (uint64_t)h->ssm_heads; /* inputs of the convolution, dt */
    const uint64_t head = inner / (uint64_t)h->ssm_heads * state, inputs = (uint64_t)(h->conv_width - 1) * CONV_CHANNELS;
    out->held = head > inputs ? head : inputs;
    out->state_flops = 5 * inner * state;
}
