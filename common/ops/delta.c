/* A gated delta net by its recurrence. Sums over keys are kernels, which keep their order; what is elementwise is plain C in lanes. */
#include "common/ops/delta.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/ops/conv.h"
#include "common/ops/ops.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

void delta_conv(float *x, float *state, const float *w, int begin, int end, const struct model_hparams *h)
{
    conv_step(x, state, w, (size_t)model_delta_channels(h), begin, end, h);
    for (int c = begin; c < end; c++)
        x[c] = conv_silu(x[c]);
}

void delta_units(float *qk, const struct model_hparams *h)
{
    size_t dim = (size_t)h->delta_dim;
    for (int head = 0; head < 2 * h->delta_k_heads; head++) {
        float *x = qk + (size_t)head * dim;
        double sum = 0;
        for (size_t i = 0; i < dim; i++)
            sum += (double)x[i] * x[i];
        double norm = sqrt(sum + (double)h->rms_eps) * (head < h->delta_k_heads ? sqrt((double)dim) : 1);
        float scale = (float)(1 / norm);
        for (size_t i = 0; i < dim; i++)
            x[i] *= scale;
    }
}

void delta_gates(float *gates, const float *beta, const float *alpha, const float *dt, const float *a, const struct model_hparams *h)
{
    int n = h->delta_v_heads, per = n / h->delta_k_heads;
    for (int i = 0; i < n; i++) {
        int joined = i / per * 2 * per + i % per;
        float b = beta[alpha ? i : joined], x = (alpha ? alpha[i] : beta[joined + per]) + dt[i];
        float soft = x > 20 ? x : logf(1 + expf(x));
        gates[i] = expf(a[i] * soft);
        gates[n + i] = nn_sigmoid(b);
    }
}

/* row = decay * row + k * d */
static void move_on(float *row, float decay, float k, const float *d, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float next[LANES];
        for (int j = 0; j < LANES; j++)
            next[j] = decay * row[i + (size_t)j] + k * d[i + (size_t)j];
        memcpy(row + i, next, sizeof next);
    }
    for (; i < n; i++)
        row[i] = decay * row[i] + k * d[i];
}

int delta_place(int head, const struct model_hparams *h)
{
    int k = h->delta_k_heads, per = h->delta_v_heads / k;
    return h->fold_grouped && h->delta_tiled ? head % k * per + head / k : head;
}

void delta_step(float *o, float *s, const float *channels, const float *gates, int head, const struct model_hparams *h)
{
    const size_t dim = (size_t)h->delta_dim;
    const int per = h->delta_v_heads / h->delta_k_heads, of = h->delta_tiled ? head % h->delta_k_heads : head / per;
    const float *q = channels + (size_t)of * dim, *k = q + (size_t)h->delta_k_heads * dim;
    const float *v = channels + (2 * (size_t)h->delta_k_heads + (size_t)head) * dim;
    const float decay = gates[head], beta = gates[h->delta_v_heads + head];
    const void *rows[MODEL_MAX_DELTA] = { NULL };
    float d[MODEL_MAX_DELTA];
    for (size_t i = 0; i < dim; i++)
        rows[i] = s + i * dim;
    memset(d, 0, dim * sizeof *d);
    kernels->axpy[QUANT_F32](d, dim, rows, k, dim, (int)dim, 1, 0, (int)dim);
    for (size_t i = 0; i < dim; i++)
        d[i] = beta * (v[i] - decay * d[i]);
    for (size_t i = 0; i < dim; i++)
        move_on(s + i * dim, decay, k[i], d, dim);
    memset(o, 0, dim * sizeof *o);
    kernels->axpy[QUANT_F32](o, dim, rows, q, dim, (int)dim, 1, 0, (int)dim);
}

void delta_out(float *o, const float *z, const float *w, const struct model_hparams *h)
{
    size_t dim = (size_t)h->delta_dim;
    for (int head = 0; head < h->delta_v_heads; head++, z += dim) {
        float *at = o + (size_t)delta_place(head, h) * dim;
        nn_rmsnorm(at, at, w, h->delta_dim, h->rms_eps);
        for (size_t i = 0; i < dim; i++)
            at[i] *= conv_silu(z[i]);
    }
}

void delta_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    const uint64_t inner = (uint64_t)model_delta_inner(h);
    (void)layer;
    out->made = (uint64_t)model_delta_channels(h) + 2 * inner + 4 * (uint64_t)h->delta_v_heads; /* channels, z, outputs, gates */
    out->states = 1;
    out->state = model_conv_floats(h) + inner * (uint64_t)h->delta_dim;
    out->moves = (uint64_t)model_delta_channels(h) + 2 * (uint64_t)h->delta_v_heads; /* inputs of the convolution, gates */
    const uint64_t head = (uint64_t)h->delta_dim * (uint64_t)h->delta_dim, inputs = (uint64_t)(h->conv_width - 1) * CONV_CHANNELS;
    out->held = head > inputs ? head : inputs;
    out->state_flops = 7 * inner * (uint64_t)h->delta_dim;
    out->rotates = 1;
}
