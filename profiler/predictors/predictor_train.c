/* Training by Adam (Kingma & Ba 2015, arXiv:1412.6980) with a cosine schedule. A step of a batch of m tokens:
 *
 *   H = X A^T                            pieces of tokens
 *   S = H F^T + b, G = dloss/dS          panels of neurons; each also makes its part of dH, G F_panel,
 *   dF = G^T H, db = sum G, Adam         from the weights before their update
 *   dH = sum of parts, in panel order    pieces of tokens
 *   dA = dH^T X, Adam                    panels of rows
 *
 * Panels have a fixed size, so that no bit depends on how many workers share them. Inputs are centred and scaled to
 * variance 1 first, so that one learning rate suits every element; the result is folded back. */
#include "profiler/predictors/predictor.h"

#include "common/base/file.h"
#include "common/base/splitmix.h"
#include "common/offline/linalg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEURONS = 256, TOKENS = 32, ROWS = 32 };

struct moments {
    float *m, *v;
};

struct trainer {
    const struct predictor_data *data;
    const struct predictor_options *o;
    const uint8_t *targets;           /* [n_train][n_ff] */
    const float *mean, *scale;
    int d, n_ff, rank, n_panels;
    float *a, *f, *b;                 /* [rank][d], [n_ff][rank], [n_ff] */
    const float *sides;               /* [n_ff][2] of two-sided scores, which stay as they are; or NULL */
    struct moments ma, mf, mb;
    float *x, *h, *dh;                /* of the batch: [m][d], [m][rank] twice */
    float *part;                      /* [n_panels][m][rank] */
    float *panel, *grad_f, *grad_b;   /* of each worker: [m][NEURONS], [NEURONS][rank], [NEURONS] */
    float *grad_a;                    /* of each worker: [ROWS][d] */
    const uint32_t *order;            /* tokens of the batch */
    int m;
    float step, c1, c2;               /* Adam: learning rate, bias corrections */
};

static void adam(float *w, const float *g, struct moments mo, size_t at, size_t n, const struct trainer *t)
{
    const float b1 = 0.9f, b2 = 0.999f;
    float *m = mo.m + at, *v = mo.v + at;
    for (size_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
        w[i] -= t->step * (m[i] * t->c1) / (sqrtf(v[i] * t->c2) + 1e-8f);
    }
}

static void forward_tokens(void *ctx, int begin, int end, int worker)
{
    struct trainer *t = ctx;
    size_t d = (size_t)t->d, k = (size_t)t->rank;
    (void)worker;
    for (int i = begin; i < end; i++) {
        const float *x = t->data->x + t->order[i] * d;
        float *out = t->x + (size_t)i * d;
        for (size_t j = 0; j < d; j++)
            out[j] = (x[j] - t->mean[j]) * t->scale[j];
    }
    float *h = t->h + (size_t)begin * k;
    linalg_gemm(0, 1, end - begin, t->rank, t->d, 1, t->x + (size_t)begin * d, t->d, t->a, t->d, 0, h, t->rank);
}

/* The score (predict.h) of s = product + bias, and d score / d s. */
static float score(const struct trainer *t, int neuron, float s, float *sign)
{
    const float *side = t->sides ? t->sides + (size_t)neuron * 2 : NULL;
    if (!side || s >= -(s + side[0]))
        return s;
    if (s + side[1] < -(s + side[0])) /* beyond the end of what fires below 0 */
        return s > s + side[1] ? s : s + side[1];
    *sign = -1;
    return -(s + side[0]);
}

/* Scores to gradients of the loss, -weight y log p - (1 - y) log(1 - p), summed over neurons, mean over tokens. */
static void gradients(const struct trainer *t, int first, int n, float *s, float *grad_b)
{
    float weight = (float)t->o->weight, norm = 1 / (float)t->m;
    memset(grad_b, 0, (size_t)n * sizeof *grad_b);
    for (int i = 0; i < t->m; i++) {
        const uint8_t *target = t->targets + t->order[i] * (size_t)t->n_ff + (size_t)first;
        float *row = s + (size_t)i * NEURONS;
        for (int j = 0; j < n; j++) {
            float sign = 1, z = score(t, first + j, row[j] + t->b[first + j], &sign);
            float q = expf(-fabsf(z)), p = z >= 0 ? 1 / (1 + q) : q / (1 + q);
            float y = (float)target[j] * (1 / 255.0f);
            row[j] = sign * ((1 - y) * p - weight * y * (1 - p)) * norm;
            grad_b[j] += row[j];
        }
    }
}

static void neurons(void *ctx, int begin, int end, int worker)
{
    struct trainer *t = ctx;
    size_t k = (size_t)t->rank;
    float *s = t->panel + (size_t)worker * (size_t)t->o->batch * NEURONS;
    float *gf = t->grad_f + (size_t)worker * NEURONS * k, *gb = t->grad_b + (size_t)worker * NEURONS;
    for (int p = begin; p < end; p++) {
        int first = p * NEURONS, n = t->n_ff - first < NEURONS ? t->n_ff - first : NEURONS;
        float *f = t->f + (size_t)first * k;
        linalg_gemm(0, 1, t->m, n, t->rank, 1, t->h, t->rank, f, t->rank, 0, s, NEURONS);
        gradients(t, first, n, s, gb);
        linalg_gemm(0, 0, t->m, t->rank, n, 1, s, NEURONS, f, t->rank, 0,
                    t->part + (size_t)p * (size_t)t->m * k, t->rank);
        linalg_gemm(1, 0, n, t->rank, t->m, 1, s, NEURONS, t->h, t->rank, 0, gf, t->rank);
        adam(f, gf, t->mf, (size_t)first * k, (size_t)n * k, t);
        adam(t->b + first, gb, t->mb, (size_t)first, (size_t)n, t);
    }
}

static void backward_tokens(void *ctx, int begin, int end, int worker)
{
    struct trainer *t = ctx;
    size_t k = (size_t)t->rank, mk = (size_t)t->m * k;
    (void)worker;
    for (size_t i = (size_t)begin * k; i < (size_t)end * k; i++) {
        float sum = 0;
        for (int p = 0; p < t->n_panels; p++)
            sum += t->part[(size_t)p * mk + i];
        t->dh[i] = sum;
    }
}

static void rows(void *ctx, int begin, int end, int worker)
{
    struct trainer *t = ctx;
    size_t d = (size_t)t->d;
    float *g = t->grad_a + (size_t)worker * ROWS * d;
    linalg_gemm(1, 0, end - begin, t->d, t->m, 1, t->dh + begin, t->rank, t->x, t->d, 0, g, t->d);
    adam(t->a + (size_t)begin * d, g, t->ma, (size_t)begin * d, (size_t)(end - begin) * d, t);
}

static void step(struct trainer *t, struct pool *pool)
{
    pool_for(pool, t->m, TOKENS, forward_tokens, t);
    pool_for(pool, t->n_panels, 1, neurons, t);
    pool_for(pool, t->m, TOKENS, backward_tokens, t);
    pool_for(pool, t->rank, ROWS, rows, t);
}

/* ---- inputs to variance 1, and back ---- */

/* bias += sign * fc2 fc1 mean */
static void shift(const struct predictor_weights *w, const float *fc1, const float *mean, float sign, float *bias)
{
    size_t d = (size_t)w->d, k = (size_t)w->rank;
    for (size_t j = 0; j < k; j++) {
        double s = 0;
        for (size_t i = 0; i < d; i++)
            s += (double)fc1[j * d + i] * (double)mean[i];
        for (size_t i = 0; i < (size_t)w->n_ff; i++)
            bias[i] += sign * w->fc2[i * k + j] * (float)s;
    }
}

static void scale(const struct predictor_weights *w, const float *by, int inverse)
{
    for (size_t i = 0; i < (size_t)w->rank * (size_t)w->d; i++)
        w->fc1[i] = inverse ? w->fc1[i] / by[i % (size_t)w->d] : w->fc1[i] * by[i % (size_t)w->d];
}

static void shuffle(uint32_t *order, size_t n, uint64_t *seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = splitmix_next(seed) % i;
        uint32_t x = order[i - 1];
        order[i - 1] = order[j], order[j] = x;
    }
}

static float *zeros(size_t n)
{
    return calloc(n, sizeof(float));
}

static int trainer_memory(struct trainer *t, int threads, struct err *e)
{
    size_t d = (size_t)t->d, k = (size_t)t->rank, n = (size_t)t->n_ff, m = (size_t)t->o->batch, w = (size_t)threads;
    t->ma = (struct moments){ zeros(k * d), zeros(k * d) };
    t->mf = (struct moments){ zeros(n * k), zeros(n * k) };
    t->mb = (struct moments){ zeros(n), zeros(n) };
    t->x = zeros(m * d), t->h = zeros(m * k), t->dh = zeros(m * k), t->part = zeros((size_t)t->n_panels * m * k);
    t->panel = zeros(w * m * NEURONS), t->grad_f = zeros(w * NEURONS * k), t->grad_b = zeros(w * NEURONS);
    t->grad_a = zeros(w * ROWS * d);
    if (t->ma.m && t->ma.v && t->mf.m && t->mf.v && t->mb.m && t->mb.v && t->x && t->h && t->dh && t->part &&
        t->panel && t->grad_f && t->grad_b && t->grad_a)
        return 0;
    return err_set(e, ERR_NOMEM, "training a predictor of rank %d", t->rank);
}

static void trainer_done(struct trainer *t)
{
    free(t->ma.m), free(t->ma.v), free(t->mf.m), free(t->mf.v), free(t->mb.m), free(t->mb.v);
    free(t->x), free(t->h), free(t->dh), free(t->part), free(t->panel), free(t->grad_f), free(t->grad_b),
        free(t->grad_a);
}

static int run(struct trainer *t, uint32_t *order, struct pool *pool, void (*on_part)(void *ctx, double done),
               void *ctx, struct err *e)
{
    size_t n = t->data->n_train, batch = (size_t)t->o->batch;
    uint64_t seed = t->o->seed, steps = 0, total = (uint64_t)t->o->epochs * ((n + batch - 1) / batch);
    for (int epoch = 0; epoch < t->o->epochs; epoch++) {
        shuffle(order, n, &seed);
        for (size_t at = 0; at < n; at += batch) {
            if (file_interrupted())
                return err_set(e, ERR_INTR, "interrupted");
            t->order = order + at;
            t->m = (int)(n - at < batch ? n - at : batch);
            steps++;
            t->step = (float)(t->o->lr * 0.5 * (1 + cos(3.14159265358979 * (double)steps / (double)total)));
            t->c1 = (float)(1 / (1 - pow(0.9, (double)steps)));
            t->c2 = (float)(1 / (1 - pow(0.999, (double)steps)));
            step(t, pool);
            if (on_part)
                on_part(ctx, (double)steps / (double)total);
        }
    }
    return 0;
}

int predictor_train(struct predictor_weights *w, const struct predictor_base *base, const struct predictor_data *data,
                    const uint8_t *targets, const struct predictor_options *o, struct pool *pool,
                    void (*on_part)(void *ctx, double done), void *ctx, struct err *e)
{
    struct trainer t = { .data = data, .targets = targets, .o = o, .mean = predictor_base_mean(base),
                         .scale = predictor_base_scale(base), .d = w->d, .n_ff = w->n_ff, .rank = w->rank,
                         .n_panels = (w->n_ff + NEURONS - 1) / NEURONS, .a = w->fc1, .f = w->fc2, .b = w->bias, .sides = w->sides };
    size_t n = data->n_train;
    uint32_t *order = malloc((n + 1) * sizeof *order);
    int r = order ? trainer_memory(&t, pool_threads(pool), e) : err_set(e, ERR_NOMEM, "the order of %zu samples", n);
    if (!r) {
        for (size_t i = 0; i < n; i++)
            order[i] = (uint32_t)i;
        shift(w, w->fc1, t.mean, 1, w->bias);
        scale(w, t.scale, 1);
        r = run(&t, order, pool, on_part, ctx, e);
        scale(w, t.scale, 0);
        shift(w, w->fc1, t.mean, -1, w->bias);
    }
    trainer_done(&t);
    free(order);
    return r;
}
