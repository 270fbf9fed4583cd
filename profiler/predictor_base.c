/* Statistics of a block's inputs and its training-free predictors. Matrices of d x d in double where they are
 * factored, in float where they are multiplied; products are cut into panels of fixed size that the workers
 * share. */
#include "profiler/predictor.h"

#include "common/offline/linalg.h"
#include "common/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 128 };
#define RIDGE 1e-3         /* of the mean variance, added to every direction's */
#define LOGISTIC 1.7f      /* logistic(1.7 z) is about the normal distribution function of z */
#define LEAST_ERROR 0.02f  /* of a gate's standard deviation: below it rounding of the weights rules */

struct predictor_base {
    int d, n_ff, max_rank;
    float *mean_x;         /* [d] */
    float *scale_x;        /* [d] 1 / standard deviation */
    float *fc1;            /* [max_rank][d] V^T L^-1, on x */
    float *fc2;            /* [n_ff][max_rank] W B V */
    float *mean_z;         /* [n_ff] of the scaled gates */
};

/* ---- products in panels ---- */

struct product {
    int ta, m, n, k, lda, ldb;
    float alpha;
    const float *a, *b;
    float *c;
};

static void product_panel(void *ctx, int begin, int end, int worker)
{
    const struct product *p = ctx;
    (void)worker;
    const float *a = p->a + (p->ta ? (size_t)begin : (size_t)begin * (size_t)p->lda);
    linalg_gemm(p->ta, 0, end - begin, p->n, p->k, p->alpha, a, p->lda, p->b, p->ldb, 0,
                p->c + (size_t)begin * (size_t)p->n, p->n);
}

/* c[m][n] = alpha op(a) b */
static void product(struct pool *pool, int ta, int m, int n, int k, float alpha, const float *a, int lda,
                    const float *b, int ldb, float *c)
{
    struct product p = { ta, m, n, k, lda, ldb, alpha, a, b, c };
    pool_for(pool, m, PANEL, product_panel, &p);
}

static void means(const float *x, size_t n, int d, float *out)
{
    double *sum = calloc((size_t)d, sizeof *sum);
    for (size_t t = 0; t < n && sum; t++)
        for (int i = 0; i < d; i++)
            sum[i] += x[t * (size_t)d + (size_t)i];
    for (int i = 0; i < d && sum; i++)
        out[i] = (float)(sum[i] / (double)n);
    free(sum);
}

/* out[d][d] = cov(a, b) over the training tokens, in double. */
static void covariance(const struct predictor_data *data, const float *a, const float *ma, const float *b,
                       const float *mb, struct pool *pool, float *tmp, double *out)
{
    int d = data->d;
    product(pool, 1, d, d, (int)data->n_train, 1 / (float)data->n_train, a, d, b, d, tmp);
    for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++)
            out[(size_t)i * (size_t)d + (size_t)j] =
                (double)tmp[(size_t)i * (size_t)d + (size_t)j] - (double)ma[i] * (double)mb[j];
}

static void symmetrise(double *a, int d)
{
    for (int i = 0; i < d; i++)
        for (int j = 0; j < i; j++) {
            double *x = &a[(size_t)i * (size_t)d + (size_t)j], *y = &a[(size_t)j * (size_t)d + (size_t)i];
            *x = *y = (*x + *y) / 2;
        }
}

static void to_float(float *out, const double *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)in[i];
}

/* ---- building ---- */

struct work {
    const struct predictor_data *data;
    struct pool *pool;
    float *gate, *up;
    float *mean_f, *tmp, *tmp2;    /* [d], [d][d] twice */
    double *cov, *kb;              /* C, then L; K, then B */
};

/* Scale rows to unit variance of their products; cov: of the inputs. mean_z: of the scaled products, or NULL. */
static int scale_rows(struct work *w, const float *cov, float *rows, int n_ff, float *mean_z, struct err *e)
{
    int d = w->data->d;
    float *wc = malloc((size_t)n_ff * (size_t)d * sizeof *wc);
    if (!wc)
        return err_set(e, ERR_NOMEM, "a matrix of %d x %d", n_ff, d);
    product(w->pool, 0, n_ff, d, d, 1, rows, d, cov, d, wc);
    for (int i = 0; i < n_ff; i++) {
        float *row = rows + (size_t)i * (size_t)d;
        double var = 0, mean = 0;
        for (int j = 0; j < d; j++) {
            var += (double)row[j] * (double)wc[(size_t)i * (size_t)d + (size_t)j];
            mean += (double)row[j] * (double)w->mean_f[j];
        }
        float s = var > 1e-20 ? (float)(1 / sqrt(var)) : 1;
        for (int j = 0; j < d; j++)
            row[j] *= s;
        if (mean_z)
            mean_z[i] = (float)mean * s;
    }
    free(wc);
    return 0;
}

static int scale_gates(struct predictor_base *b, struct work *w, struct err *e)
{
    const struct predictor_data *data = w->data;
    covariance(data, data->f, w->mean_f, data->f, w->mean_f, w->pool, w->tmp, w->kb);
    to_float(w->tmp, w->kb, (size_t)b->d * (size_t)b->d);
    int r = scale_rows(w, w->tmp, w->gate, b->n_ff, b->mean_z, e);
    return r < 0 || !w->up ? r : scale_rows(w, w->tmp, w->up, b->n_ff, NULL, e);
}

/* L in w->cov, B in w->kb. */
static int factor(struct predictor_base *b, struct work *w, struct err *e)
{
    int d = b->d, r;
    size_t dd = (size_t)d * (size_t)d;
    const struct predictor_data *data = w->data;
    covariance(data, data->x, b->mean_x, data->x, b->mean_x, w->pool, w->tmp, w->cov);
    symmetrise(w->cov, d);
    double trace = 0;
    for (int i = 0; i < d; i++) {
        double v = w->cov[(size_t)i * (size_t)d + (size_t)i];
        trace += v;
        b->scale_x[i] = v > 1e-20 ? (float)(1 / sqrt(v)) : 1;
    }
    if (!(trace > 0) || !isfinite(trace))
        return err_set(e, ERR_FORMAT, "the sampled inputs are all alike or not finite");
    for (int i = 0; i < d; i++)
        w->cov[(size_t)i * (size_t)d + (size_t)i] += RIDGE * trace / d;
    if (data->x == data->f)
        memcpy(w->kb, w->cov, dd * sizeof *w->kb); /* K = C: B = L */
    else
        covariance(data, data->f, w->mean_f, data->x, b->mean_x, w->pool, w->tmp, w->kb);
    if ((r = linalg_cholesky(w->cov, d, e)) < 0)
        return r;
    if (data->x == data->f)
        memcpy(w->kb, w->cov, dd * sizeof *w->kb);
    else
        linalg_over_lower_transposed(w->kb, d, w->cov, d);
    return 0;
}

static int directions(struct predictor_base *b, struct work *w, struct err *e)
{
    int d = b->d, k = b->max_rank;
    size_t dd = (size_t)d * (size_t)d, kd = (size_t)k * (size_t)d;
    double *values = malloc((size_t)k * sizeof *values), *vectors = malloc(kd * sizeof *vectors),
           *m = malloc(dd * sizeof *m);
    float *bf = malloc(dd * sizeof *bf);
    int r = values && vectors && m && bf ? 0 : err_set(e, ERR_NOMEM, "%d directions of %d", k, d);
    if (r < 0)
        goto out;
    product(w->pool, 1, d, d, b->n_ff, 1, w->gate, d, w->gate, d, w->tmp);  /* W^T W */
    to_float(bf, w->kb, dd);
    product(w->pool, 0, d, d, d, 1, w->tmp, d, bf, d, w->tmp2);             /* W^T W B */
    product(w->pool, 1, d, d, d, 1, bf, d, w->tmp2, d, w->tmp);             /* B^T W^T W B */
    for (size_t i = 0; i < dd; i++)
        m[i] = w->tmp[i];
    symmetrise(m, d);
    if ((r = linalg_eigen(m, d, k, values, vectors, e)) < 0)
        goto out;
    for (int i = 0; i < d; i++)                                              /* V as columns: [d][k] */
        for (int j = 0; j < k; j++)
            w->tmp2[(size_t)i * (size_t)k + (size_t)j] = (float)vectors[(size_t)j * (size_t)d + (size_t)i];
    product(w->pool, 0, d, k, d, 1, bf, d, w->tmp2, k, w->tmp);             /* B V */
    product(w->pool, 0, b->n_ff, k, d, 1, w->gate, d, w->tmp, k, b->fc2);   /* W B V */
    linalg_over_lower(vectors, k, w->cov, d);                               /* V^T L^-1 */
    to_float(b->fc1, vectors, kd);
out:
    free(values), free(vectors), free(m), free(bf);
    return r;
}

int predictor_base_new(const struct predictor_data *data, float *gate, float *up, int max_rank, struct pool *pool,
                       struct predictor_base **out, struct err *e)
{
    size_t d = (size_t)data->d, n_ff = (size_t)data->n_ff, k = (size_t)max_rank;
    struct predictor_base *b = calloc(1, sizeof *b);
    struct work w = { .data = data, .pool = pool, .gate = gate, .up = up };
    int r = 0;
    if (!b)
        return err_set(e, ERR_NOMEM, "a predictor");
    b->d = data->d, b->n_ff = data->n_ff, b->max_rank = max_rank;
    b->mean_x = malloc(d * 4), b->scale_x = malloc(d * 4), b->mean_z = malloc(n_ff * 4);
    b->fc1 = malloc(k * d * 4), b->fc2 = malloc(n_ff * k * 4);
    w.mean_f = malloc(d * 4), w.tmp = malloc(d * d * 4), w.tmp2 = malloc(d * d * 4);
    w.cov = malloc(d * d * 8), w.kb = malloc(d * d * 8);
    if (!b->mean_x || !b->scale_x || !b->mean_z || !b->fc1 || !b->fc2 || !w.mean_f || !w.tmp || !w.tmp2 ||
        !w.cov || !w.kb) {
        r = err_set(e, ERR_NOMEM, "statistics of %zu inputs", d);
        goto out;
    }
    means(data->x, data->n_train, data->d, b->mean_x);
    means(data->f, data->n_train, data->d, w.mean_f);
    if ((r = scale_gates(b, &w, e)) == 0 && (r = factor(b, &w, e)) == 0)
        r = directions(b, &w, e);
out:
    free(w.mean_f), free(w.tmp), free(w.tmp2), free(w.cov), free(w.kb);
    if (r < 0)
        predictor_base_free(b);
    else
        *out = b;
    return r;
}

void predictor_base_free(struct predictor_base *b)
{
    if (!b)
        return;
    free(b->mean_x), free(b->scale_x), free(b->mean_z), free(b->fc1), free(b->fc2);
    free(b);
}

const float *predictor_base_mean(const struct predictor_base *b)
{
    return b->mean_x;
}

const float *predictor_base_scale(const struct predictor_base *b)
{
    return b->scale_x;
}

/* ---- targets ---- */

enum { TOKENS = 64 };
#define SOFTNESS 0.1f /* standard deviations of a gate */

struct targets {
    const float *gate, *up, *f;
    int d, n_ff;
    size_t n;
    float *z, *u;       /* of each worker: [TOKENS][n_ff] */
    uint8_t *out;
};

static float soft(float z)
{
    return 1 / (1 + expf(-z / SOFTNESS));
}

static void target_tokens(void *ctx, int begin, int end, int worker)
{
    struct targets *t = ctx;
    int d = t->d, n_ff = t->n_ff;
    size_t size = (size_t)TOKENS * (size_t)n_ff;
    float *z = t->z + (size_t)worker * size, *u = t->u ? t->u + (size_t)worker * size : NULL;
    for (int p = begin; p < end; p++) {
        size_t first = (size_t)p * TOKENS, n = t->n - first < TOKENS ? t->n - first : TOKENS, all = n * (size_t)n_ff;
        const float *f = t->f + first * (size_t)d;
        uint8_t *out = t->out + first * (size_t)n_ff;
        linalg_gemm(0, 1, (int)n, n_ff, d, 1, f, d, t->gate, d, 0, z, n_ff);
        if (u)
            linalg_gemm(0, 1, (int)n, n_ff, d, 1, f, d, t->up, d, 0, u, n_ff);
        for (size_t i = 0; i < all; i++) {
            int active = z[i] > 0 && (!u || u[i] > 0);
            int v = (int)(255 * soft(z[i]) * (u ? soft(u[i]) : 1) + 0.5f);
            out[i] = (uint8_t)(active ? (v > 128 ? v : 128) : v < 127 ? v : 127);
        }
    }
}

int predictor_targets(const float *gate, const float *up, int d, int n_ff, const float *f, size_t n, struct pool *pool,
                      uint8_t *targets, struct err *e)
{
    size_t size = (size_t)pool_threads(pool) * TOKENS * (size_t)n_ff * sizeof(float);
    struct targets t = { .gate = gate, .up = up, .d = d, .n_ff = n_ff, .f = f, .n = n, .z = malloc(size),
                         .u = up ? malloc(size) : NULL, .out = targets };
    int r = t.z && (t.u || !up) ? 0 : err_set(e, ERR_NOMEM, "gates of %d neurons", n_ff);
    if (!r)
        pool_for(pool, (int)((n + TOKENS - 1) / TOKENS), 1, target_tokens, &t);
    free(t.z), free(t.u);
    return r;
}

/* ---- training-free weights ---- */

void predictor_weights_free(struct predictor_weights *w)
{
    free(w->fc1), free(w->fc2), free(w->bias);
    *w = (struct predictor_weights){ 0 };
}

int predictor_start(const struct predictor_base *b, int rank, struct predictor_weights *out, struct err *e)
{
    size_t d = (size_t)b->d, n_ff = (size_t)b->n_ff, k = (size_t)rank, kk = (size_t)b->max_rank;
    struct predictor_weights w = { .d = b->d, .n_ff = b->n_ff, .rank = rank };
    float *h = malloc(k * sizeof *h); /* fc1 mean(x) */
    w.fc1 = malloc(k * d * 4), w.fc2 = malloc(n_ff * k * 4), w.bias = malloc(n_ff * 4);
    if (!h || !w.fc1 || !w.fc2 || !w.bias) {
        free(h);
        predictor_weights_free(&w);
        return err_set(e, ERR_NOMEM, "a predictor of rank %d", rank);
    }
    memcpy(w.fc1, b->fc1, k * d * 4);
    for (size_t j = 0; j < k; j++) {
        double s = 0;
        for (size_t i = 0; i < d; i++)
            s += (double)w.fc1[j * d + i] * (double)b->mean_x[i];
        h[j] = (float)s;
    }
    for (size_t i = 0; i < n_ff; i++) {
        const float *row = b->fc2 + i * kk;
        double explained = 0, offset = 0;
        for (size_t j = 0; j < k; j++)
            explained += (double)row[j] * (double)row[j], offset += (double)row[j] * (double)h[j];
        float left = explained < 1 ? (float)sqrt(1 - explained) : 0,
              s = LOGISTIC / (left > LEAST_ERROR ? left : LEAST_ERROR);
        for (size_t j = 0; j < k; j++)
            w.fc2[i * k + j] = row[j] * s;
        w.bias[i] = (b->mean_z[i] - (float)offset) * s;
    }
    free(h);
    *out = w;
    return 0;
}

static void blend(const float *a, const float *b, float share, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + share * (b[i] - a[i]);
}

int predictor_blend(const struct predictor_weights *a, const struct predictor_weights *b, float share,
                    struct predictor_weights *out, struct err *e)
{
    size_t d = (size_t)a->d, n = (size_t)a->n_ff, k = (size_t)a->rank;
    struct predictor_weights w = { .d = a->d, .n_ff = a->n_ff, .rank = a->rank };
    w.fc1 = malloc(k * d * 4), w.fc2 = malloc(n * k * 4), w.bias = malloc(n * 4);
    if (!w.fc1 || !w.fc2 || !w.bias) {
        predictor_weights_free(&w);
        return err_set(e, ERR_NOMEM, "a predictor of rank %d", a->rank);
    }
    blend(a->fc1, b->fc1, share, k * d, w.fc1);
    blend(a->fc2, b->fc2, share, n * k, w.fc2);
    blend(a->bias, b->bias, share, n, w.bias);
    *out = w;
    return 0;
}

/* ---- quantising ---- */

/* bias[i] += sign * < row i of fc2, fc1 mean(x) > */
static void add_at_mean(const struct predictor_weights *w, const float *mean, double sign, float *h, float *bias)
{
    for (size_t j = 0; j < (size_t)w->rank; j++) {
        double s = 0;
        for (size_t i = 0; i < (size_t)w->d; i++)
            s += (double)w->fc1[j * (size_t)w->d + i] * (double)mean[i];
        h[j] = (float)s;
    }
    for (size_t i = 0; i < (size_t)w->n_ff; i++) {
        double s = 0;
        for (size_t j = 0; j < (size_t)w->rank; j++)
            s += (double)w->fc2[i * (size_t)w->rank + j] * (double)h[j];
        bias[i] += (float)(sign * s);
    }
}

static void round_rows(const struct quant_traits *t, const float *in, size_t rows, size_t n, uint8_t *out, float *back)
{
    size_t bytes = n / (size_t)t->block_elems * (size_t)t->block_bytes;
    for (size_t i = 0; i < rows; i++) {
        t->quant(out + i * bytes, in + i * n, n);
        t->dequant(back + i * n, out + i * bytes, n);
    }
}

int predictor_quantise(const struct predictor_weights *w, const struct predictor_base *b, uint32_t type,
                       struct predictor_packed *out, struct err *e)
{
    const struct quant_traits *t = quant_traits(type);
    size_t d = (size_t)w->d, k = (size_t)w->rank, n = (size_t)w->n_ff;
    size_t row1 = quant_row_bytes(type, d), row2 = quant_row_bytes(type, k);
    struct predictor_packed q = { 0 };
    if (!t || !t->quant || !row1 || !row2)
        return err_set(e, ERR_UNSUPPORTED, "a predictor of %d inputs and rank %d cannot be of type %s", w->d, w->rank,
                       t ? t->name : "unknown");
    struct predictor_weights back = {
        .d = w->d, .n_ff = w->n_ff, .rank = w->rank, .fc1 = malloc(k * d * 4), .fc2 = malloc(n * k * 4)
    };
    float *h = malloc(k * 4);
    q.fc1 = malloc(k * row1), q.fc2 = malloc(n * row2), q.bias = malloc(n * 4);
    int r = back.fc1 && back.fc2 && h && q.fc1 && q.fc2 && q.bias
                ? 0
                : err_set(e, ERR_NOMEM, "a predictor of rank %d", w->rank);
    if (!r) {
        round_rows(t, w->fc1, k, d, q.fc1, back.fc1);
        round_rows(t, w->fc2, n, k, q.fc2, back.fc2);
        memcpy(q.bias, w->bias, n * 4);
        add_at_mean(w, b->mean_x, 1, h, q.bias);
        add_at_mean(&back, b->mean_x, -1, h, q.bias);
        q.p = (struct predict){ .d_model = w->d,
                                .rank = w->rank,
                                .n_ff = w->n_ff,
                                .type1 = type,
                                .type2 = type,
                                .fc1 = q.fc1,
                                .fc2 = q.fc2,
                                .bias = q.bias };
        r = predict_init(&q.p, e);
    }
    predictor_weights_free(&back);
    free(h);
    if (r < 0)
        predictor_packed_free(&q);
    else
        *out = q;
    return r;
}

void predictor_packed_free(struct predictor_packed *q)
{
    free(q->fc1), free(q->fc2), free(q->bias);
    *q = (struct predictor_packed){ 0 };
}
