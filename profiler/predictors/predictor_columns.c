/* Predictors out of the gate matrix's own columns: no covariance of d x d, no decomposition. Everything is counted on at
 * most TOKENS of the training tokens, in panels of neurons that the workers share: a panel's gates at those tokens, their
 * mean and variance, the columns' squares; then, with the inputs chosen, what is left of the gates as block after block
 * of inputs is taken in. Sums over panels are taken in their order. */
#include "profiler/predictors/predictor_impl.h"

#include "common/offline/linalg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 128, TOKENS = 256 };

struct columns {
    struct predictor_base *b;
    const struct predictor_data *data;
    float *gate, *up;              /* [n_ff][d] */
    size_t n;                      /* tokens that are looked at */
    float *f, *x;                  /* [n][d]; x is f where the predictor sees the same */
    float *z;                      /* [n_ff][n] gates */
    double *squares;               /* [panels][d] */
    double *square_f;              /* [d] mean square of the FFN's inputs */
    float *slope;                  /* [d] f is about slope * x */
    int *chosen;                   /* [max_rank] inputs */
    float *h;                      /* [n][max_rank] the chosen inputs as f, by their slopes */
    float *tmp;                    /* of each worker: [PANEL][n + PREDICTOR_COLUMNS] */
};

/* Rows to variance 1 of their products with the tokens, which are written to z[rows][n] unless it is NULL: then tmp holds
 * them. mean may be NULL. */
static void scale_panel(const struct columns *c, float *rows, int begin, int end, float *bias, float *edges, float *z,
                        float *mean)
{
    size_t d = (size_t)c->b->d, n = c->n;
    linalg_gemm(0, 1, end - begin, (int)n, (int)d, 1, rows, (int)d, c->f, (int)d, 0, z, (int)n);
    for (size_t i = 0; i < (size_t)(end - begin); i++) {
        double sum = 0, square = 0;
        for (size_t t = 0; t < n; t++)
            sum += (double)z[i * n + t];
        sum /= (double)n;
        for (size_t t = 0; t < n; t++)
            square += ((double)z[i * n + t] - sum) * ((double)z[i * n + t] - sum);
        float by = square / (double)n > 1e-20 ? (float)(1 / sqrt(square / (double)n)) : 1;
        for (size_t t = 0; t < n; t++)
            z[i * n + t] *= by;
        for (size_t j = 0; j < d; j++)
            rows[i * d + j] *= by;
        if (bias)
            bias[begin + (int)i] *= by;
        for (size_t k = 0; edges && k < PREDICTOR_EDGES; k++)
            edges[((size_t)begin + i) * PREDICTOR_EDGES + k] *= by;
        if (mean)
            mean[i] = (float)sum * by + (bias ? bias[begin + (int)i] : 0);
    }
}

static void scale_panels(void *ctx, int begin, int end, int worker)
{
    struct columns *c = ctx;
    size_t d = (size_t)c->b->d, first = (size_t)begin, stride = PANEL * (c->n + PREDICTOR_COLUMNS);
    double *squares = c->squares + first / PANEL * d;
    scale_panel(c, c->gate + first * d, begin, end, c->data->bias[0], c->data->edges, c->z + first * c->n, c->b->mean_z + first);
    if (c->up)
        scale_panel(c, c->up + first * d, begin, end, c->data->bias[1], NULL, c->tmp + (size_t)worker * stride, NULL);
    for (size_t i = first; i < (size_t)end; i++)
        for (size_t j = 0; j < d; j++)
            squares[j] += (double)c->gate[i * d + j] * (double)c->gate[i * d + j];
}

struct block {
    double score;
    int at;
};

static int by_score(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : (x->at > y->at) - (x->at < y->at);
}

/* The blocks of inputs whose products with the gates are the largest, the largest first. */
static int choose(struct columns *c, struct err *e)
{
    int d = c->b->d, n_ff = c->b->n_ff, n = d / PREDICTOR_COLUMNS, panels = (n_ff + PANEL - 1) / PANEL;
    struct block *blocks = calloc((size_t)n, sizeof *blocks);
    if (!blocks)
        return err_set(e, ERR_NOMEM, "%d blocks of inputs", n);
    for (int k = 0; k < n; k++) {
        blocks[k].at = k * PREDICTOR_COLUMNS;
        for (int j = blocks[k].at; j < blocks[k].at + PREDICTOR_COLUMNS; j++) {
            double sum = 0;
            for (int p = 0; p < panels; p++)
                sum += c->squares[(size_t)p * (size_t)d + (size_t)j];
            blocks[k].score += sum * c->square_f[j];
        }
    }
    qsort(blocks, (size_t)n, sizeof *blocks, by_score);
    for (int j = 0; j < c->b->max_rank; j++)
        c->chosen[j] = blocks[j / PREDICTOR_COLUMNS].at + j % PREDICTOR_COLUMNS;
    free(blocks);
    return 0;
}

/* fc2 of a panel's neurons, and what each further block of columns leaves of their gates. */
static void left_panels(void *ctx, int begin, int end, int worker)
{
    struct columns *c = ctx;
    size_t d = (size_t)c->b->d, n = c->n, k = (size_t)c->b->max_rank, rows = (size_t)(end - begin);
    float *w = c->tmp + (size_t)worker * PANEL * (n + PREDICTOR_COLUMNS);
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        for (size_t j = 0; j < k; j++)
            c->b->fc2[i * k + j] = c->gate[i * d + (size_t)c->chosen[j]];
    for (size_t block = 0; block < k / PREDICTOR_COLUMNS; block++) {
        size_t first = block * PREDICTOR_COLUMNS;
        for (size_t i = 0; i < rows; i++)
            memcpy(w + i * PREDICTOR_COLUMNS, c->b->fc2 + ((size_t)begin + i) * k + first,
                   PREDICTOR_COLUMNS * sizeof *w);
        linalg_gemm(0, 1, (int)rows, (int)n, PREDICTOR_COLUMNS, -1, w, PREDICTOR_COLUMNS, c->h + first, (int)k, 1,
                    c->z + (size_t)begin * n, (int)n);
        for (size_t i = (size_t)begin; i < (size_t)end; i++) {
            double sum = 0, square = 0;
            for (size_t t = 0; t < n; t++)
                sum += (double)c->z[i * n + t], square += (double)c->z[i * n + t] * (double)c->z[i * n + t];
            double v = square / (double)n - sum / (double)n * (sum / (double)n);
            c->b->left[block * (size_t)c->b->n_ff + i] = v > 0 ? (float)sqrt(v) : 0;
        }
    }
}

/* Evenly spread training tokens, and figures of the inputs over them. */
static void look(struct columns *c)
{
    size_t d = (size_t)c->b->d;
    double n = (double)c->n;
    for (size_t t = 0; t < c->n; t++) {
        size_t at = t * c->data->n_train / c->n * d;
        memcpy(c->f + t * d, c->data->f + at, d * sizeof *c->f);
        if (c->x != c->f)
            memcpy(c->x + t * d, c->data->x + at, d * sizeof *c->x);
    }
    for (size_t j = 0; j < d; j++) {
        double ff = 0, fx = 0, xx = 0, sum = 0;
        for (size_t t = 0; t < c->n; t++) {
            double f = (double)c->f[t * d + j], x = (double)c->x[t * d + j];
            ff += f * f, fx += f * x, xx += x * x, sum += x;
        }
        double v = xx / n - sum / n * (sum / n);
        c->square_f[j] = ff / n;
        c->slope[j] = xx > 1e-20 ? (float)(fx / xx) : 0;
        c->b->mean_x[j] = (float)(sum / n);
        c->b->scale_x[j] = v > 1e-20 ? (float)(1 / sqrt(v)) : 1;
    }
}

static void first_matrix(struct columns *c)
{
    size_t d = (size_t)c->b->d, k = (size_t)c->b->max_rank;
    memset(c->b->fc1, 0, k * d * sizeof *c->b->fc1);
    for (size_t j = 0; j < k; j++) {
        size_t at = (size_t)c->chosen[j];
        c->b->fc1[j * d + at] = c->slope[at];
        for (size_t t = 0; t < c->n; t++)
            c->h[t * k + j] = c->slope[at] * c->x[t * d + at];
    }
}

static void done(struct columns *c)
{
    if (c->x != c->f)
        free(c->x);
    free(c->f), free(c->z), free(c->squares), free(c->square_f), free(c->slope), free(c->chosen), free(c->h), free(c->tmp);
}

int predictor_columns_new(const struct predictor_data *data, float *gate, float *up, int max_rank, struct pool *pool,
                          struct predictor_base **out, struct err *e)
{
    size_t d = (size_t)data->d, n_ff = (size_t)data->n_ff, k = (size_t)max_rank,
           n = data->n_train < TOKENS ? data->n_train : TOKENS, panels = (n_ff + PANEL - 1) / PANEL;
    if (k % PREDICTOR_COLUMNS || d % PREDICTOR_COLUMNS)
        return err_set(e, ERR_UNSUPPORTED, "a predictor of %d of %d inputs: both must be multiples of %d", max_rank, data->d,
                       PREDICTOR_COLUMNS);
    struct predictor_base *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_NOMEM, "a predictor");
    b->d = data->d, b->n_ff = data->n_ff, b->max_rank = max_rank, b->selects = 1, b->edges = data->edges;
    b->mean_x = malloc(d * 4), b->scale_x = malloc(d * 4), b->mean_z = malloc(n_ff * 4);
    b->fc1 = malloc(k * d * 4), b->fc2 = malloc(n_ff * k * 4), b->left = malloc(k / PREDICTOR_COLUMNS * n_ff * 4);
    struct columns c = { .b = b, .data = data, .gate = gate, .up = up, .n = n, .f = malloc(n * d * 4),
                         .z = malloc(n_ff * n * 4), .squares = calloc(panels * d, sizeof(double)),
                         .square_f = malloc(d * sizeof(double)), .slope = malloc(d * 4),
                         .chosen = malloc(k * sizeof(int)), .h = malloc(n * k * 4),
                         .tmp = malloc((size_t)pool_threads(pool) * PANEL * (n + PREDICTOR_COLUMNS) * 4) };
    c.x = data->x == data->f ? c.f : malloc(n * d * 4);
    int r = b->mean_x && b->scale_x && b->mean_z && b->fc1 && b->fc2 && b->left && c.f && c.x && c.z && c.squares &&
                    c.square_f && c.slope && c.chosen && c.h && c.tmp
                ? 0
                : err_set(e, ERR_NOMEM, "input selection: %d inputs of %d x %d gates", max_rank, data->n_ff, data->d);
    if (!r) {
        look(&c);
        pool_for(pool, data->n_ff, PANEL, scale_panels, &c);
        r = choose(&c, e);
    }
    if (!r) {
        first_matrix(&c);
        pool_for(pool, data->n_ff, PANEL, left_panels, &c);
    }
    done(&c);
    if (r < 0)
        predictor_base_free(b);
    else
        *out = b;
    return r;
}
