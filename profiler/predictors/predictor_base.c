/* Statistics of a block's inputs and its training-free predictors. Matrices of d x d in double where they are
 * factored, in float where they are multiplied; products are cut into panels of fixed size that the workers
 * share.
 *
 * The leading k directions V of M = B^T W^T W B come from the whole matrix when many of its d directions are wanted. When
 * few are, M is never made: a random block Q of k / 2 vectors and M Q, M^2 Q, ... M^4 Q span a space that holds
 * them well, and the best k of that space are taken (randomised block Krylov iteration: Musco and Musco 2015,
 * arXiv:1504.05477). For 4096 inputs, 14336 neurons and rank 288 that is a quarter of the work. */
#include "profiler/predictors/predictor_impl.h"

#include "common/base/bytes.h"
#include "common/kernels/quant.h"
#include "common/offline/linalg.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 128, COLUMNS = 512, KRYLOV = 5, EXTRA = 16 };
#define RIDGE 1e-3         /* of the mean variance, added to every direction's */
#define FEWNESS 0.3          /* times inputs over samples: the ridge of the map between two inputs */
#define LOGISTIC 1.7f      /* logistic(1.7 z) is about the normal distribution function of z */
#define LEAST_ERROR 0.02f  /* of a gate's standard deviation: below it rounding of the weights rules */

/* ---- products in panels ---- */

struct product {
    int ta, tb, m, n, k, lda, ldb;
    float alpha;
    const float *a, *b;
    float *c;
};

static void product_panel(void *ctx, int begin, int end, int worker)
{
    const struct product *p = ctx;
    (void)worker;
    const float *a = p->a + (p->ta ? (size_t)begin : (size_t)begin * (size_t)p->lda);
    linalg_gemm(p->ta, p->tb, end - begin, p->n, p->k, p->alpha, a, p->lda, p->b, p->ldb, 0,
                p->c + (size_t)begin * (size_t)p->n, p->n);
}

/* c[m][n] = alpha op(a) op(b) */
static void product(struct pool *pool, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                    const float *b, int ldb, float *c)
{
    struct product p = { ta, tb, m, n, k, lda, ldb, alpha, a, b, c };
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
    product(pool, 1, 0, d, d, (int)data->n_train, 1 / (float)data->n_train, a, d, b, d, tmp);
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

static double trace_of(const double *a, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++)
        sum += a[(size_t)i * (size_t)d + (size_t)i];
    return sum;
}

/* Covariance with a share of the mean variance added to every direction -> its Cholesky factor. *ridge: what was added. */
static int factor(double *cov, int d, double share, double *ridge, struct err *e)
{
    double trace = trace_of(cov, d);
    symmetrise(cov, d);
    if (!(trace > 0) || !isfinite(trace))
        return err_set(e, ERR_FORMAT, "the sampled inputs are all equal or not finite");
    *ridge = share * trace / d;
    for (int i = 0; i < d; i++)
        cov[(size_t)i * (size_t)d + (size_t)i] += *ridge;
    return linalg_cholesky(cov, d, e);
}

/* Variances of rows' products with the inputs: |row L|^2, less what the ridge adds. L is triangular: its columns from
 * j on need only the row from j on. */
struct scaling {
    int d;
    double ridge;
    const float *l, *mean_f;
    float *rows, *bias, *edges, *mean_z; /* the last three may be NULL */
    float *tmp;                    /* of each worker: [PANEL][COLUMNS] */
};

static void scale_panel(void *ctx, int begin, int end, int worker)
{
    struct scaling *s = ctx;
    size_t d = (size_t)s->d, n = (size_t)(end - begin);
    float *rows = s->rows + (size_t)begin * d, *tmp = s->tmp + (size_t)worker * PANEL * COLUMNS;
    double var[PANEL] = { 0 };
    for (size_t j = 0; j < d; j += COLUMNS) {
        size_t m = d - j < COLUMNS ? d - j : COLUMNS;
        linalg_gemm(0, 0, (int)n, (int)m, (int)(d - j), 1, rows + j, (int)d, s->l + j * d + j, (int)d, 0, tmp, COLUMNS);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < m; k++)
                var[i] += (double)tmp[i * COLUMNS + k] * (double)tmp[i * COLUMNS + k];
    }
    for (size_t i = 0; i < n; i++) {
        float *row = rows + i * d;
        double mean = 0, square = 0;
        for (size_t j = 0; j < d; j++) {
            square += (double)row[j] * (double)row[j];
            mean += (double)row[j] * (double)s->mean_f[j];
        }
        double v = var[i] - s->ridge * square;
        float by = v > 1e-20 ? (float)(1 / sqrt(v)) : 1;
        for (size_t j = 0; j < d; j++)
            row[j] *= by;
        if (s->bias)
            s->bias[(size_t)begin + i] *= by;
        for (size_t k = 0; s->edges && k < PREDICTOR_EDGES; k++)
            s->edges[((size_t)begin + i) * PREDICTOR_EDGES + k] *= by;
        if (s->mean_z)
            s->mean_z[(size_t)begin + i] = (float)mean * by + (s->bias ? s->bias[(size_t)begin + i] : 0);
    }
}

/* Scale rows to unit variance of their products; w->cov holds L of the FFN's inputs. mean_z: of the scaled products, or
 * NULL. */
static int scale_rows(struct work *w, double ridge, float *rows, int n_ff, float *bias, float *edges, float *mean_z,
                      struct err *e)
{
    int d = w->data->d;
    struct scaling s = { d, ridge, w->tmp, w->mean_f, rows, bias, edges, mean_z,
                         malloc((size_t)pool_threads(w->pool) * PANEL * COLUMNS * sizeof(float)) };
    if (!s.tmp)
        return err_set(e, ERR_NOMEM, "panels of a matrix of %d x %d", n_ff, d);
    to_float(w->tmp, w->cov, (size_t)d * (size_t)d);
    pool_for(w->pool, n_ff, PANEL, scale_panel, &s);
    free(s.tmp);
    return 0;
}

struct over {
    double *x;
    const double *l;
    int d;
};

static void over_panel(void *ctx, int begin, int end, int worker) /* x := x (L L^T)^-1 */
{
    const struct over *o = ctx;
    double *x = o->x + (size_t)begin * (size_t)o->d;
    (void)worker;
    linalg_over_lower_transposed(x, end - begin, o->l, o->d);
    linalg_over_lower(x, end - begin, o->l, o->d);
}

/* From C in w->cov and K in w->kb to L and B = M L, where M tells the FFN's inputs from the predictor's. M is fitted to few
 * samples for so many elements: it is drawn towards D, the best diagonal map, by the ridge r, as there are fewer,
 * M = (K + r D) (C + r)^-1. Drawn towards 0 it would learn samples by heart. */
static int regress(struct work *w, struct err *e)
{
    int d = w->data->d;
    size_t dd = (size_t)d * (size_t)d, step = (size_t)d + 1;
    double *l = malloc(dd * sizeof *l), *diagonal = malloc((size_t)d * sizeof *diagonal), ridge,
           share = FEWNESS * d / (double)w->data->n_train;
    float *out = malloc(dd * sizeof *out);
    int r = l && diagonal && out ? 0 : err_set(e, ERR_NOMEM, "a map of %d inputs", d);
    if (!r) {
        memcpy(l, w->cov, dd * sizeof *l);
        for (size_t i = 0; i < (size_t)d; i++)
            diagonal[i] = w->cov[i * step] > 1e-20 ? w->kb[i * step] / w->cov[i * step] : 0;
        r = factor(l, d, share > RIDGE ? share : RIDGE, &ridge, e);
    }
    if (!r) {
        for (size_t i = 0; i < (size_t)d; i++)
            w->kb[i * step] += ridge * diagonal[i];
        struct over o = { w->kb, l, d };
        pool_for(w->pool, d, PANEL, over_panel, &o);
        r = factor(w->cov, d, RIDGE, &ridge, e);
    }
    if (!r) {
        to_float(w->tmp, w->kb, dd);
        to_float(w->tmp2, w->cov, dd);
        product(w->pool, 0, 0, d, d, d, 1, w->tmp, d, w->tmp2, d, out);
        for (size_t i = 0; i < dd; i++)
            w->kb[i] = (double)out[i];
    }
    free(l), free(diagonal), free(out);
    return r;
}

/* Gates (and ups) to variance 1; L of the predictor's inputs in w->cov, B in w->kb. */
static int statistics(struct predictor_base *b, struct work *w, struct err *e)
{
    int d = b->d, r;
    size_t dd = (size_t)d * (size_t)d;
    const struct predictor_data *data = w->data;
    double ridge;
    covariance(data, data->f, w->mean_f, data->f, w->mean_f, w->pool, w->tmp, w->cov);
    for (int i = 0; i < d; i++)
        b->scale_x[i] = (float)w->cov[(size_t)i * (size_t)d + (size_t)i];
    if ((r = factor(w->cov, d, RIDGE, &ridge, e)) < 0 ||
        (r = scale_rows(w, ridge, w->gate, b->n_ff, data->bias[0], data->edges, b->mean_z, e)) < 0 ||
        (w->up && (r = scale_rows(w, ridge, w->up, b->n_ff, data->bias[1], NULL, NULL, e)) < 0))
        return r;
    if (data->x == data->f) {
        memcpy(w->kb, w->cov, dd * sizeof *w->kb); /* K = C: B = L */
    } else {
        covariance(data, data->x, b->mean_x, data->x, b->mean_x, w->pool, w->tmp, w->cov);
        for (int i = 0; i < d; i++)
            b->scale_x[i] = (float)w->cov[(size_t)i * (size_t)d + (size_t)i];
        covariance(data, data->f, w->mean_f, data->x, b->mean_x, w->pool, w->tmp, w->kb);
        if ((r = regress(w, e)) < 0)
            return r;
    }
    for (int i = 0; i < d; i++)
        b->scale_x[i] = b->scale_x[i] > 1e-20f ? 1 / sqrtf(b->scale_x[i]) : 1;
    return 0;
}

/* B^T W^T W B is made and its largest eigenvectors are taken. vectors: [k][d]. */
static int all_directions(const struct predictor_base *b, struct work *w, const float *bf, double *vectors, struct err *e)
{
    int d = b->d, k = b->max_rank, r;
    size_t dd = (size_t)d * (size_t)d;
    double *values = malloc((size_t)k * sizeof *values), *m = malloc(dd * sizeof *m);
    if (!values || !m) {
        free(values), free(m);
        return err_set(e, ERR_NOMEM, "%d directions of %d", k, d);
    }
    product(w->pool, 1, 0, d, d, b->n_ff, 1, w->gate, d, w->gate, d, w->tmp);  /* W^T W */
    product(w->pool, 0, 0, d, d, d, 1, w->tmp, d, bf, d, w->tmp2);             /* W^T W B */
    product(w->pool, 1, 0, d, d, d, 1, bf, d, w->tmp2, d, w->tmp);             /* B^T W^T W B */
    for (size_t i = 0; i < dd; i++)
        m[i] = w->tmp[i];
    symmetrise(m, d);
    r = linalg_eigen(m, d, k, values, vectors, e);
    free(values), free(m);
    return r;
}

static double uniform(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)(z >> 11) / 4503599627370496.0 - 1;
}

/* Vectors of a block for k leading directions; 0: all of them are as quick. */
static int block_size(int k, int d)
{
    int s = (k + 1) / 2 + EXTRA;
    return s * KRYLOV <= d / 2 ? s : 0;
}

struct krylov {
    int d, n_ff, s, m;               /* m: rows of q so far */
    double *block;                   /* [s][d] */
    float *q, *y, *z, *c;            /* [KRYLOV * s][d], [KRYLOV][n_ff][s] W B Q^T, [s][d], [s][KRYLOV * s] */
};

static void krylov_free(struct krylov *x)
{
    free(x->block), free(x->q), free(x->y), free(x->z), free(x->c);
}

static int krylov_new(struct krylov *x, int d, int n_ff, int s, struct err *e)
{
    size_t sd = (size_t)s * (size_t)d, f = sizeof(float);
    *x = (struct krylov){ .d = d, .n_ff = n_ff, .s = s, .block = malloc(sd * sizeof(double)),
                          .q = malloc(KRYLOV * sd * f), .y = malloc(KRYLOV * (size_t)n_ff * (size_t)s * f),
                          .z = malloc(sd * f), .c = malloc(KRYLOV * (size_t)s * (size_t)s * f) };
    if (x->block && x->q && x->y && x->z && x->c)
        return 0;
    return err_set(e, ERR_NOMEM, "%d directions of %d", KRYLOV * s, d);
}

/* z becomes orthonormal and orthogonal to what there is, and is added to q; its y is made. */
static int krylov_add(struct krylov *x, struct work *w, const float *bf, struct err *e)
{
    int d = x->d, s = x->s;
    size_t sd = (size_t)s * (size_t)d;
    float *q = x->q + (size_t)x->m * (size_t)d, *y = x->y + (size_t)x->m * (size_t)x->n_ff;
    for (int twice = 0; twice < 2 && x->m; twice++) {
        linalg_gemm(0, 1, s, x->m, d, 1, x->z, d, x->q, d, 0, x->c, x->m);
        linalg_gemm(0, 0, s, d, x->m, -1, x->c, x->m, x->q, d, 1, x->z, d);
    }
    for (size_t i = 0; i < sd; i++)
        x->block[i] = (double)x->z[i];
    int r = linalg_orthonormalise(x->block, s, d, e);
    if (r < 0)
        return r;
    to_float(q, x->block, sd);
    x->m += s;
    product(w->pool, 0, 1, d, s, d, 1, bf, d, q, d, w->tmp);
    product(w->pool, 0, 0, x->n_ff, s, d, 1, w->gate, d, w->tmp, s, y);
    return 0;
}

/* The leading k directions of the space: vectors[k][d]. */
static int krylov_best(const struct krylov *x, struct work *w, int k, double *vectors, struct err *e)
{
    int m = x->m, s = x->s, r;
    size_t mm = (size_t)m, block = (size_t)x->n_ff * (size_t)s;
    double *gram = malloc(mm * mm * sizeof *gram), *best = malloc((size_t)k * mm * sizeof *best),
           *values = malloc((size_t)k * sizeof *values);
    float *small = malloc((size_t)k * mm * sizeof *small);
    r = gram && best && values && small ? 0 : err_set(e, ERR_NOMEM, "%d directions of %d", k, m);
    for (int i = 0; i < m / s && !r; i++)
        for (int j = 0; j <= i; j++) {
            product(w->pool, 1, 0, s, s, x->n_ff, 1, x->y + (size_t)i * block, s, x->y + (size_t)j * block, s, x->c);
            for (int a = 0; a < s; a++)
                for (int b = 0; b < s; b++) {
                    size_t row = (size_t)(i * s + a), col = (size_t)(j * s + b);
                    gram[row * mm + col] = gram[col * mm + row] = (double)x->c[a * s + b];
                }
        }
    if (!r && (r = linalg_eigen(gram, m, k, values, best, e)) == 0) {
        to_float(small, best, (size_t)k * mm);
        product(w->pool, 0, 0, k, x->d, m, 1, small, m, x->q, x->d, w->tmp);
        for (size_t i = 0; i < (size_t)k * (size_t)x->d; i++)
            vectors[i] = (double)w->tmp[i];
    }
    free(gram), free(best), free(values), free(small);
    return r;
}

static int few_directions(const struct predictor_base *b, struct work *w, const float *bf, int s, double *vectors,
                          struct err *e)
{
    struct krylov x;
    int d = b->d, n_ff = b->n_ff, r = krylov_new(&x, d, n_ff, s, e);
    uint64_t seed = 1;
    for (size_t i = 0; i < (size_t)s * (size_t)d && !r; i++)
        x.z[i] = (float)uniform(&seed);
    for (int i = 0; i < KRYLOV && !r; i++) {
        if (i) { /* M times the last block, as rows */
            const float *y = x.y + (size_t)(x.m - s) * (size_t)n_ff;
            product(w->pool, 1, 0, d, s, n_ff, 1, w->gate, d, y, s, w->tmp);
            product(w->pool, 1, 0, s, d, d, 1, w->tmp, s, bf, d, x.z);
        }
        r = krylov_add(&x, w, bf, e);
    }
    if (!r)
        r = krylov_best(&x, w, b->max_rank, vectors, e);
    krylov_free(&x);
    return r;
}

static int directions(struct predictor_base *b, struct work *w, struct err *e)
{
    int d = b->d, k = b->max_rank, s = block_size(k, d);
    size_t dd = (size_t)d * (size_t)d, kd = (size_t)k * (size_t)d;
    double *vectors = malloc(kd * sizeof *vectors);
    float *bf = malloc(dd * sizeof *bf);
    int r = vectors && bf ? 0 : err_set(e, ERR_NOMEM, "%d directions of %d", k, d);
    if (!r) {
        to_float(bf, w->kb, dd);
        r = s ? few_directions(b, w, bf, s, vectors, e) : all_directions(b, w, bf, vectors, e);
    }
    if (!r) {
        to_float(w->tmp2, vectors, kd);
        product(w->pool, 0, 1, d, k, d, 1, bf, d, w->tmp2, d, w->tmp);           /* B V */
        product(w->pool, 0, 0, b->n_ff, k, d, 1, w->gate, d, w->tmp, k, b->fc2); /* W B V */
        linalg_over_lower(vectors, k, w->cov, d); /* V^T L^-1 */
        to_float(b->fc1, vectors, kd);
    }
    free(vectors), free(bf);
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
    b->edges = data->edges;
    w.mean_f = malloc(d * 4), w.tmp = malloc(d * d * 4), w.tmp2 = malloc(d * d * 4);
    w.cov = malloc(d * d * 8), w.kb = malloc(d * d * 8);
    if (!b->mean_x || !b->scale_x || !b->mean_z || !b->fc1 || !b->fc2 || !w.mean_f || !w.tmp || !w.tmp2 ||
        !w.cov || !w.kb) {
        r = err_set(e, ERR_NOMEM, "statistics of %zu inputs", d);
        goto out;
    }
    means(data->x, data->n_train, data->d, b->mean_x);
    means(data->f, data->n_train, data->d, w.mean_f);
    if ((r = statistics(b, &w, e)) == 0)
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
    free(b->mean_x), free(b->scale_x), free(b->mean_z), free(b->fc1), free(b->fc2), free(b->left);
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
    float *const *bias;
    const float *edges;
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
        for (int k = 0; k < 2 && (k == 0 || u); k++)
            for (size_t i = 0; t->bias[k] && i < all; i++)
                (k ? u : z)[i] += t->bias[k][i % (size_t)n_ff];
        for (size_t i = 0; i < all; i++) {
            float in = t->edges ? predictor_inside(z[i], t->edges + i % (size_t)n_ff * PREDICTOR_EDGES) : z[i];
            int active = (t->edges ? in >= 0 : in > 0) && (!u || u[i] > 0);
            int v = (int)(255 * soft(in) * (u ? soft(u[i]) : 1) + 0.5f);
            out[i] = (uint8_t)(active ? (v > 128 ? v : 128) : v < 127 ? v : 127);
        }
    }
}

int predictor_targets(const float *gate, const float *up, float *const bias[2], const float *edges, int d, int n_ff,
                      const float *f, size_t n, struct pool *pool, uint8_t *targets, struct err *e)
{
    size_t size = (size_t)pool_threads(pool) * TOKENS * (size_t)n_ff * sizeof(float);
    struct targets t = { .gate = gate, .up = up, .bias = bias, .edges = edges, .d = d, .n_ff = n_ff, .f = f, .n = n, .z = malloc(size),
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
    free(w->fc1), free(w->fc2), free(w->bias), free(w->sides);
    *w = (struct predictor_weights){ 0 };
}

/* The bias less the upper edge; width and reach, scaled with the score and finite. */
static void sides(const float *edges, float scale, float *bias, float *out)
{
    *bias -= edges[0] * scale;
    for (int k = 0; k < 2; k++)
        out[k] = fminf((edges[0] - edges[1 + k]) * scale, FLT_MAX);
}

int predictor_start(const struct predictor_base *b, int rank, struct predictor_weights *out, struct err *e)
{
    size_t d = (size_t)b->d, n_ff = (size_t)b->n_ff, k = (size_t)rank, kk = (size_t)b->max_rank;
    struct predictor_weights w = { .d = b->d, .n_ff = b->n_ff, .rank = rank, .selects = b->selects };
    float *h = malloc(k * sizeof *h); /* fc1 mean(x) */
    w.fc1 = malloc(k * d * 4), w.fc2 = malloc(n_ff * k * 4), w.bias = malloc(n_ff * 4);
    w.sides = b->edges ? malloc(n_ff * 2 * 4) : NULL;
    if (!h || !w.fc1 || !w.fc2 || !w.bias || (b->edges && !w.sides)) {
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
        float left = b->left       ? b->left[(k / PREDICTOR_COLUMNS - 1) * n_ff + i]
                     : explained < 1 ? (float)sqrt(1 - explained)
                                     : 0,
              s = LOGISTIC / (left > LEAST_ERROR ? left : LEAST_ERROR);
        for (size_t j = 0; j < k; j++)
            w.fc2[i * k + j] = row[j] * s;
        w.bias[i] = (b->mean_z[i] - (float)offset) * s;
        if (b->edges)
            sides(b->edges + i * PREDICTOR_EDGES, s, &w.bias[i], w.sides + i * 2);
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
    w.sides = a->sides ? malloc(n * 2 * 4) : NULL;
    if (!w.fc1 || !w.fc2 || !w.bias || (a->sides && !w.sides)) {
        predictor_weights_free(&w);
        return err_set(e, ERR_NOMEM, "a predictor of rank %d", a->rank);
    }
    blend(a->fc1, b->fc1, share, k * d, w.fc1);
    blend(a->fc2, b->fc2, share, n * k, w.fc2);
    blend(a->bias, b->bias, share, n, w.bias);
    if (a->sides)
        blend(a->sides, b->sides, share, n * 2, w.sides);
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

/* Rows with one number as PREDICT_PICK; nothing is lost. */
static void pick_rows(const float *in, size_t rows, size_t n, uint8_t *out, float *back)
{
    memcpy(back, in, rows * n * sizeof *in);
    for (size_t i = 0; i < rows; i++, out += PREDICT_PICK_BYTES) {
        size_t at = 0;
        while (at + 1 < n && in[i * n + at] == 0)
            at++;
        bytes_put32(out, (uint32_t)at);
        bytes_putf32(out + 4, in[i * n + at]);
    }
}

int predictor_quantise(const struct predictor_weights *w, const struct predictor_base *b, const float *shift,
                       uint32_t type, struct predictor_packed *out, struct err *e)
{
    const struct quant_traits *t = quant_traits(type);
    size_t d = (size_t)w->d, k = (size_t)w->rank, n = (size_t)w->n_ff;
    uint32_t type1 = w->selects ? PREDICT_PICK : type;
    size_t row1 = predict_row1_bytes(type1, w->d), row2 = predict_row2_bytes(type, w->rank);
    struct predictor_packed q = { 0 };
    if (!t || !t->quant || !row1 || !row2)
        return err_set(e, ERR_UNSUPPORTED, "a predictor of %d inputs and rank %d cannot be of type %s", w->d, w->rank,
                       t ? t->name : "unknown");
    struct predictor_weights back = {
        .d = w->d, .n_ff = w->n_ff, .rank = w->rank, .fc1 = malloc(k * d * 4), .fc2 = malloc(n * k * 4)
    };
    float *h = malloc(k * 4);
    size_t numbers = (size_t)predict_numbers(1, w->sides != NULL);
    q.fc1 = malloc(k * row1), q.fc2 = malloc(n * row2), q.bias = malloc(n * numbers * 4);
    int r = back.fc1 && back.fc2 && h && q.fc1 && q.fc2 && q.bias
                ? 0
                : err_set(e, ERR_NOMEM, "a predictor of rank %d", w->rank);
    if (!r) {
        if (w->selects)
            pick_rows(w->fc1, k, d, q.fc1, back.fc1);
        else
            round_rows(t, w->fc1, k, d, q.fc1, back.fc1);
        round_rows(t, w->fc2, n, k, q.fc2, back.fc2);
        memcpy(q.bias, w->bias, n * 4);
        add_at_mean(w, b->mean_x, 1, h, q.bias);
        add_at_mean(&back, b->mean_x, -1, h, q.bias);
        for (size_t i = 0; shift && i < n; i++)
            q.bias[i] += shift[i];
        for (size_t i = n; w->sides && i-- > 0;) { /* apart, from the last on */
            float *to = q.bias + i * PREDICT_TWO_SIDED;
            to[2] = w->sides[2 * i + 1], to[1] = w->sides[2 * i], to[0] = q.bias[i];
        }
        q.p = (struct predict){ .d_model = w->d,
                                .rank = w->rank,
                                .n_ff = w->n_ff,
                                .two_sided = w->sides != NULL,
                                .type1 = type1,
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
