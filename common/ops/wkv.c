/* RWKV-6 and RWKV-7 by their recurrence. Sums over keys are kernels, which keep their order; what is elementwise is plain C in lanes. */
#include "common/ops/wkv.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/ops/ops.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

static const float DECAY = -0.606531f;   /* -e^-0.5, to the digits of other implementations */
static const double NORM_EPS = 64e-5;    /* whatever the head's length */
static const double LEAST_NORM = 1e-12;

const struct wkv_made wkv_made[WKV_INPUTS] = {
    { WKV_R, MODEL_WKV_R, 0 }, { WKV_W, 0, MODEL_WKV_DECAY_A }, { WKV_K, MODEL_WKV_K, 0 }, { WKV_A, 0, MODEL_WKV_RATE_A },
    { WKV_G, MODEL_WKV_G, MODEL_WKV_GATE_A }, { WKV_V, MODEL_WKV_V, MODEL_WKV_VALUE_A } };

int wkv_place(enum wkv_input which, const struct model_hparams *h)
{
    static const int six[WKV_INPUTS] = { [WKV_W] = 0, [WKV_K] = 1, [WKV_V] = 2, [WKV_R] = 3, [WKV_G] = 4,
                                            [WKV_A] = -1 };
    return h->mix_rank ? six[which] : (int)which;
}

void wkv_mix(float *out, const float *x, const float *before, const float *lerp, const float *more, const struct model_hparams *h)
{
    for (int i = 0; i < h->d_model; i++)
        out[i] = x[i] + ((before ? before[i] : 0) - x[i]) * (more ? lerp[i] + more[i] : lerp[i]);
}

void wkv_low(float *x, size_t n, enum wkv_input which)
{
    for (size_t i = 0; i < n; i++)
        x[i] = which == WKV_W ? tanhf(x[i]) : which == WKV_G ? nn_sigmoid(x[i]) : x[i];
}

void wkv_gates(const struct wkv_token *t, float *first, const float *mix, const struct wkv_weights *w,
                  const struct model_hparams *h)
{
    for (int i = 0; h->mix_rank && i < h->d_model; i++) {
        t->w[i] = expf(-expf(t->w[i] + w->decay[i]));
        t->g[i] *= nn_sigmoid(t->g[i]);
    }
    for (int i = 0; !h->mix_rank && i < h->d_model; i++) {
        t->w[i] = expf(DECAY * nn_sigmoid(t->w[i] + w->decay[i]));
        t->a[i] = nn_sigmoid(t->a[i] + w->rate[i]);
        if (w->value)
            t->v[i] += (first[i] - t->v[i]) * nn_sigmoid(mix[i] + w->value[i]);
        else
            first[i] = t->v[i];
    }
}

/* row = decay * row + k * v - b * d */
static void move_on(float *row, float decay, float k, const float *v, float b, const float *d, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float next[LANES];
        for (size_t j = 0; j < LANES; j++)
            next[j] = decay * row[i + j] + k * v[i + j] - b * d[i + j];
        memcpy(row + i, next, sizeof next);
    }
    for (; i < n; i++)
        row[i] = decay * row[i] + k * v[i] - b * d[i];
}

/* o = LayerNorm(o) with weights and bias */
static void norm(float *o, const float *w, const float *bias, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)o[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += ((double)o[i] - mean) * ((double)o[i] - mean);
    float middle = (float)mean, scale = (float)(1.0 / sqrt(squares / (double)n + NORM_EPS));
    for (size_t i = 0; i < n; i++)
        o[i] = (o[i] - middle) * scale * w[i] + bias[i];
}

void wkv_receive(float *out, const float *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] *= nn_sigmoid(r[i]);
}

/* RWKV-6: the state moves on after it was asked. */
static void head_6(float *o, float *s, const struct wkv_token *t, const struct wkv_weights *w, size_t at, size_t dim)
{
    const float *r = t->r + at, *k = t->k + at, *v = t->v + at, none[MODEL_MAX_DELTA] = { 0 };
    const void *rows[MODEL_MAX_DELTA] = { NULL };
    double bonus = 0;
    for (size_t i = 0; i < dim; i++) {
        rows[i] = s + i * dim;
        bonus += (double)r[i] * k[i] * w->r_k[at + i];
    }
    memset(o, 0, dim * sizeof *o);
    kernels->axpy[QUANT_F32](o, dim, rows, r, dim, (int)dim, 1, 0, (int)dim);
    for (size_t i = 0; i < dim; i++)
        o[i] += v[i] * (float)bonus;
    for (size_t i = 0; i < dim; i++)
        move_on(s + i * dim, t->w[at + i], k[i], v, 0, none, dim);
    norm(o, w->norm + at, w->norm_bias + at, dim);
    for (size_t i = 0; i < dim; i++)
        o[i] *= t->g[at + i];
}

void wkv_head(float *o, float *s, const struct wkv_token *t, const struct wkv_weights *w, int head, const struct model_hparams *h)
{
    const size_t dim = (size_t)h->wkv_dim, at = (size_t)head * dim;
    if (h->mix_rank) {
        head_6(o, s, t, w, at, dim);
        return;
    }
    float *k = t->k + at, u[MODEL_MAX_DELTA] = { 0 }, d[MODEL_MAX_DELTA];
    const float *r = t->r + at, *v = t->v + at, *a = t->a + at;
    const void *rows[MODEL_MAX_DELTA] = { NULL };
    double squares = 0, bonus = 0;
    for (size_t i = 0; i < dim; i++) {
        rows[i] = s + i * dim;
        u[i] = k[i] * w->k_k[at + i];
        squares += (double)u[i] * u[i];
        k[i] += (a[i] - 1) * (k[i] * w->k_a[at + i]);
        bonus += (double)r[i] * k[i] * w->r_k[at + i];
    }
    double length = sqrt(squares);
    float unit = (float)(1 / (length > LEAST_NORM ? length : LEAST_NORM));
    for (size_t i = 0; i < dim; i++)
        u[i] *= unit;
    memset(d, 0, dim * sizeof *d);
    kernels->axpy[QUANT_F32](d, dim, rows, u, dim, (int)dim, 1, 0, (int)dim);
    for (size_t i = 0; i < dim; i++)
        move_on(s + i * dim, t->w[at + i], k[i], v, u[i] * a[i], d, dim);
    memset(o, 0, dim * sizeof *o);
    kernels->axpy[QUANT_F32](o, dim, rows, r, dim, (int)dim, 1, 0, (int)dim);
    norm(o, w->norm + at, w->norm_bias + at, dim);
    for (size_t i = 0; i < dim; i++)
        o[i] = (o[i] + v[i] * (float)bonus) * t->g[at + i];
}

/* Elements of the widest of what is made of few: RWKV-6 has those of all five mixes, and then of one mix or of decays. */
static uint64_t rank(const struct model_hparams *h)
{
    const int of[] = { h->mix_rank, h->decay_rank, h->rate_rank, h->value_rank, h->gate_rank };
    int most = 0;
    for (int i = 0; i < 5; i++)
        most = of[i] > most ? of[i] : most;
    return 5 * (uint64_t)h->mix_rank + (uint64_t)most;
}

/* The FFN's receptance has the first elements until the FFN is done. */
void wkv_need(const struct model_hparams *h, int layer, struct op_need *out)
{
    const uint64_t d = (uint64_t)h->d_model, dim = (uint64_t)h->wkv_dim;
    (void)layer;
    out->made = 8 * d + rank(h); /* the first layer's values, mixed inputs, six that are made of them, few */
    out->states = 1;
    out->state = model_wkv_shifts(h) + d * dim;
    out->state_flops = (h->mix_rank ? 5 : 9) * d * dim;
}
