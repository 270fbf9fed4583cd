/* H = X^T X of a layer's sampled inputs, damped; U upper triangular with H^-1 = U^T U. Column by column a weight is rounded to the
 * nearest value that its block's scales allow, and its error over U's diagonal is taken off the columns to the right, times U's row:
 * what is left of the squared change of products is the least for what is rounded so far. Within a block that is done at once, to the
 * blocks behind it by one product. A block's scales are searched for when its turn comes, so they are those of the corrected weights.
 *
 * With U from H = R R^T, R upper triangular: U = R^-1. R is Cholesky's L of H with rows and columns in the reverse order. */
#include "packer/corrected.h"

#include "common/base/ckmath.h"
#include "common/kernels/quant.h"
#include "common/kernels/quant_grid.h"
#include "common/offline/linalg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { READ = 512, ROWS = 16, STRIPE = 64, MOST_BLOCK = 256 };

#define DAMPING 0.01 /* of the mean of H's diagonal, added to it */

struct corrected {
    struct trace *trace;
    struct pool *pool;
    int d, layer;               /* -1: none yet */
    double *h;                  /* [d][d] */
    double *inverse;            /* [d][d]: of L */
    float *u, *by;              /* [d][d], [d]: how much an error of a column counts that no other makes up for */
    uint16_t *halves;           /* [READ][d] */
    float *inputs, *part;       /* [READ][d], [d][d]: H of one piece */
    float *rows;                /* [threads][2][ROWS][d] */
};

int corrected_can(const struct trace *t, uint32_t type)
{
    return trace_info(t)->n_samples > 0 && quant_grid_type(type) != NULL;
}

uint64_t corrected_memory(int d_model)
{
    return (uint64_t)d_model * (uint64_t)d_model * (2 * sizeof(double) + 2 * sizeof(float));
}

void corrected_free(struct corrected *c)
{
    if (!c)
        return;
    free(c->h), free(c->inverse), free(c->u), free(c->by);
    free(c->halves), free(c->inputs), free(c->part), free(c->rows);
    free(c);
}

int corrected_new(struct trace *t, struct pool *pool, struct corrected **out, struct err *e)
{
    struct corrected *c = calloc(1, sizeof *c);
    size_t d = (size_t)trace_info(t)->h.d_model, n = d * d;
    if (!c)
        return err_set(e, ERR_NOMEM, "correcting errors of rounding");
    *c = (struct corrected){ .trace = t, .pool = pool, .d = (int)d, .layer = -1 };
    c->h = malloc(n * sizeof *c->h);
    c->inverse = malloc(n * sizeof *c->inverse);
    c->u = malloc(n * sizeof *c->u);
    c->by = malloc(d * sizeof *c->by);
    c->part = malloc(n * sizeof *c->part);
    c->halves = malloc(READ * d * sizeof *c->halves);
    c->inputs = malloc(READ * d * sizeof *c->inputs);
    c->rows = malloc((size_t)pool_threads(pool) * 2 * ROWS * d * sizeof *c->rows);
    if (!c->h || !c->inverse || !c->u || !c->by || !c->part || !c->halves || !c->inputs || !c->rows) {
        corrected_free(c);
        return err_set(e, ERR_NOMEM, "correcting errors of rounding of rows of %zu", d);
    }
    *out = c;
    return 0;
}

/* ---- inputs ---- */

struct sum_job {
    struct corrected *c;
    int n;
};

static void sum_stripes(void *ctx, int begin, int end, int worker)
{
    const struct sum_job *j = ctx;
    struct corrected *c = j->c;
    (void)worker;
    for (int s = begin; s < end; s++) {
        int first = s * STRIPE, rows = c->d - first < STRIPE ? c->d - first : STRIPE;
        size_t at = (size_t)first * (size_t)c->d;
        linalg_gemm(1, 0, rows, c->d, j->n, 1, c->inputs + first, c->d, c->inputs, c->d, 0, c->part + at, c->d);
        for (size_t i = at; i < at + (size_t)rows * (size_t)c->d; i++)
            c->h[i] += (double)c->part[i];
    }
}

static int sum_inputs(struct corrected *c, int layer, struct err *e)
{
    const struct trace_info *info = trace_info(c->trace);
    size_t d = (size_t)c->d;
    int r = 0;
    memset(c->h, 0, d * d * sizeof *c->h);
    for (uint64_t at = 0; at < info->n_samples && r == 0; at += READ) {
        uint64_t n = info->n_samples - at < READ ? info->n_samples - at : READ;
        if ((r = trace_samples(c->trace, layer, at, n, NULL, c->halves, NULL, NULL, e)) < 0)
            break;
        for (size_t i = 0; i < n * d; i++) {
            c->inputs[i] = quant_f16_to_f32(c->halves[i]);
            if (!isfinite(c->inputs[i]))
                return err_set(e, ERR_FORMAT, "'%s': a sampled input of layer %d is not finite", info->path, layer);
        }
        struct sum_job j = { c, (int)n };
        pool_for(c->pool, (c->d + STRIPE - 1) / STRIPE, 1, sum_stripes, &j);
    }
    return r;
}

static int factor(struct corrected *c, struct err *e)
{
    size_t d = (size_t)c->d;
    double mean = 0;
    for (size_t i = 0; i < d; i++)
        mean += c->h[i * d + i] / (double)d;
    for (size_t i = 0; i < d; i++)
        for (size_t k = 0; k < d; k++) /* in the reverse order */
            c->inverse[i * d + k] = c->h[(d - 1 - i) * d + d - 1 - k] + (i == k ? DAMPING * mean + (mean > 0 ? 0 : 1) : 0);
    memcpy(c->h, c->inverse, d * d * sizeof *c->h);
    int r = linalg_cholesky(c->h, c->d, e);
    if (r < 0)
        return r;
    memset(c->inverse, 0, d * d * sizeof *c->inverse);
    for (size_t i = 0; i < d; i++)
        c->inverse[i * d + i] = 1;
    linalg_over_lower(c->inverse, c->d, c->h, c->d);
    for (size_t i = 0; i < d; i++) {
        for (size_t k = 0; k < d; k++)
            c->u[i * d + k] = k < i ? 0 : (float)c->inverse[(d - 1 - i) * d + d - 1 - k];
        c->by[i] = 1 / (c->u[i * d + i] * c->u[i * d + i]);
    }
    return 0;
}

/* ---- rows ---- */

struct rows_job {
    struct corrected *c;
    const uint8_t *from;
    uint8_t *to;
    const struct quant_traits *from_type, *to_type;
    const struct quant_grid_type *grid;
    size_t from_bytes, to_bytes;
    int n;
};

/* Block [first, first + n) of a row w: its bytes, and what each weight's rounding leaves, over U's diagonal. */
static void round_block(const struct rows_job *j, uint8_t *block, float *w, float *left, int first)
{
    const struct corrected *c = j->c;
    const int n = j->to_type->block_elems;
    struct quant_grid g;
    int q[MOST_BLOCK];
    j->to_type->quant_by(block, w + first, c->by + first, (size_t)n);
    j->grid->read(&g, block);
    for (int i = 0; i < n; i++) {
        const float *u = c->u + (size_t)(first + i) * (size_t)c->d + first;
        float v = w[first + i], at = g.step[i] != 0 ? (v - g.base[i]) / g.step[i] : 0;
        q[i] = at > 0 ? at < (float)g.top ? (int)(at + 0.5f) : g.top : 0;
        left[first + i] = (v - (g.base[i] + g.step[i] * (float)q[i])) / u[i];
        for (int k = i + 1; k < n; k++)
            w[first + k] -= left[first + i] * u[k];
    }
    j->grid->write(block, q);
}

static void round_rows(void *ctx, int begin, int end, int worker)
{
    const struct rows_job *j = ctx;
    const struct corrected *c = j->c;
    const int d = c->d, n = j->to_type->block_elems;
    float *w = c->rows + (size_t)worker * 2 * ROWS * (size_t)d, *left = w + (size_t)ROWS * (size_t)d;
    for (int piece = begin; piece < end; piece++) {
        int first = piece * ROWS, rows = j->n - first < ROWS ? j->n - first : ROWS;
        for (int r = 0; r < rows; r++)
            j->from_type->dequant(w + (size_t)r * (size_t)d, j->from + (size_t)(first + r) * j->from_bytes, (size_t)d);
        for (int at = 0; at < d; at += n) {
            int rest = d - at - n;
            for (int r = 0; r < rows; r++)
                round_block(j, j->to + (size_t)(first + r) * j->to_bytes + at / n * j->to_type->block_bytes, w + (size_t)r * (size_t)d,
                            left + (size_t)r * (size_t)d, at);
            if (rest > 0)
                linalg_gemm(0, 0, rows, rest, n, -1, left + at, d, c->u + (size_t)at * (size_t)d + at + n, d, 1, w + at + n, d);
        }
    }
}

int corrected_rows(struct corrected *c, int layer, const uint8_t *from, uint32_t from_type, uint8_t *to, uint32_t to_type, int n,
                   struct err *e)
{
    int r = 0;
    if (c->layer != layer) {
        c->layer = -1;
        if ((r = sum_inputs(c, layer, e)) < 0 || (r = factor(c, e)) < 0)
            return err_wrap(e, "inputs of layer %d", layer);
        c->layer = layer;
    }
    struct rows_job j = { c, from, to, quant_traits(from_type), quant_traits(to_type), quant_grid_type(to_type),
                          quant_row_bytes(from_type, (uint64_t)c->d), quant_row_bytes(to_type, (uint64_t)c->d), n };
    pool_for(c->pool, (n + ROWS - 1) / ROWS, 1, round_rows, &j);
    return 0;
}
