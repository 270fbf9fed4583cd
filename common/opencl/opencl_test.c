/* Every kernel of a type against the processor's reference (common/kernels/quant.h) in double, on pseudo-random weights: what a program is
 * compared with before it is used. The bound is that of any order of a float32 sum: n terms of |w x| each err by n * 2^-24 at most. */
#include "common/opencl/opencl_impl.h"

#include "common/model/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 544, WIDE = 768, TOKENS = 43 };
static const int counts[] = { 1, 6, TOKENS }; /* one, some, and many that are no multiple of anything */

static float next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed / 2147483648.0f;
}

struct sample {
    struct opencl *o;
    const struct quant_traits *q;
    uint32_t type;
    int n_cols;
    size_t row_bytes;
    uint8_t *rows;              /* [ROWS][row_bytes] */
    float *w, *x, *got;         /* dequantised; f32[TOKENS][WIDE] twice */
    opencl_mem mem, in, out, part;
};

static int wrong(const struct sample *s, const char *what, int row, int token, double got, double want, double bound, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   "OpenCL device '%s' gives wrong results: %s of %s, row %d, token %d is %.9g; it should be %.9g within %.3g",
                   s->o->info.device.name, what, s->q->name, row, token, got, want, bound);
}

/* want = sum of terms; size: of their magnitudes. */
static int differs(double got, double want, double size, int n, double *bound)
{
    *bound = (n + 8) * 0x1p-23 * size + 1e-30;
    return !(fabs(got - want) <= *bound);
}

static int check_product(struct sample *s, int n_tokens, struct err *e)
{
    const struct accel_matrix m = { .type = s->type, .n_rows = ROWS, .n_cols = s->n_cols, .row_stride = s->row_bytes };
    int r;
    if ((r = opencl_write(s->o, s->in, 0, s->x, (uint64_t)n_tokens * (uint64_t)s->n_cols, e)) < 0 ||
        (r = opencl_queue_product(s->o, &m, (struct opencl_place){ s->mem, 0 }, s->in, 0, s->out, 0, n_tokens, e)) < 0 ||
        (r = opencl_read(s->o, s->out, 0, s->got, (uint64_t)n_tokens * ROWS, e)) < 0 || (r = opencl_queue_wait(s->o, NULL, NULL, e)) < 0)
        return r;
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0; i < ROWS; i++) {
            double want = 0, size = 0, bound;
            for (int c = 0; c < s->n_cols; c++) {
                double v = (double)s->w[i * s->n_cols + c] * (double)s->x[t * s->n_cols + c];
                want += v;
                size += fabs(v);
            }
            if (differs((double)s->got[t * ROWS + i], want, size, s->n_cols, &bound))
                return wrong(s, "a product", i, t, (double)s->got[t * ROWS + i], want, bound, e);
        }
    return 0;
}

static int check_turned(struct sample *s, int n_tokens, struct err *e)
{
    const struct accel_matrix m = { .type = s->type, .n_rows = ROWS, .n_cols = s->n_cols, .row_stride = s->row_bytes };
    int r;
    if ((r = opencl_write(s->o, s->in, 0, s->x, (uint64_t)n_tokens * ROWS, e)) < 0 ||
        (r = opencl_queue_turned(s->o, &m, (struct opencl_place){ s->mem, 0 }, s->in, 0, s->part, s->out, 0, n_tokens, e)) < 0 ||
        (r = opencl_read(s->o, s->out, 0, s->got, (uint64_t)n_tokens * (uint64_t)s->n_cols, e)) < 0 ||
        (r = opencl_queue_wait(s->o, NULL, NULL, e)) < 0)
        return r;
    for (int t = 0; t < n_tokens; t++)
        for (int c = 0; c < s->n_cols; c++) {
            double want = 0, size = 0, bound;
            for (int i = 0; i < ROWS; i++) {
                double v = (double)s->w[i * s->n_cols + c] * (double)s->x[t * ROWS + i];
                want += v;
                size += fabs(v);
            }
            if (differs((double)s->got[t * s->n_cols + c], want, size, ROWS, &bound))
                return wrong(s, "a sum of rows", c, t, (double)s->got[t * s->n_cols + c], want, bound, e);
        }
    return 0;
}

/* Activations of one token in one command: the very bits of the commands that many tokens take. Ups are the rows behind the gates. */
static int check_hidden(struct sample *s, struct err *e)
{
    enum { N = ROWS - 1 };
    const struct accel_matrix m = { .type = s->type, .n_rows = N, .n_cols = s->n_cols, .row_stride = s->row_bytes };
    const struct opencl_place gate = { s->mem, 0 }, up = { s->mem, s->row_bytes };
    const struct opencl_biases none = { { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
    int r;
    if ((r = opencl_write(s->o, s->in, 0, s->x, (uint64_t)s->n_cols, e)) < 0 ||
        (r = opencl_queue_product(s->o, &m, gate, s->in, 0, s->out, 0, 1, e)) < 0 ||
        (r = opencl_queue_product(s->o, &m, up, s->in, 0, s->part, 0, 1, e)) < 0 ||
        (r = opencl_queue_activate(s->o, s->out, s->part, 0, N, 1, MODEL_ACT_SILU, &none, e)) < 0 ||
        (r = opencl_queue_hidden(s->o, &m, gate, &m, up, s->in, 0, s->out, N, MODEL_ACT_SILU, &none, e)) < 0 ||
        (r = opencl_read(s->o, s->out, 0, s->got, 2 * N, e)) < 0 || (r = opencl_queue_wait(s->o, NULL, NULL, e)) < 0)
        return r;
    for (int i = 0; i < N; i++) {
        uint32_t want, got;
        memcpy(&want, &s->got[i], sizeof want);
        memcpy(&got, &s->got[N + i], sizeof got);
        if (got != want)
            return wrong(s, "an activation", i, 0, (double)s->got[N + i], (double)s->got[i], 0, e);
    }
    return 0;
}

/* The same whatever the type, so of float32's program alone. x: gates, and behind them ups. */
static int check_activation(struct sample *s, enum model_act act, struct err *e)
{
    int n = ROWS * 2, r;
    float *up = s->x + n, want[ROWS * 2];
    const struct opencl_biases none = { { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
    if ((r = opencl_write(s->o, s->in, 0, s->x, (uint64_t)n, e)) < 0 || (r = opencl_write(s->o, s->out, 0, up, (uint64_t)n, e)) < 0 ||
        (r = opencl_queue_activate(s->o, s->in, s->out, 0, n / 2, 2, act, &none, e)) < 0 ||
        (r = opencl_read(s->o, s->in, 0, s->got, (uint64_t)n, e)) < 0 || (r = opencl_queue_wait(s->o, NULL, NULL, e)) < 0)
        return r;
    nn_ffn_act(want, s->x, up, n, act);
    for (int i = 0; i < n; i++) {
        double bound = 1e-5 * (fabs((double)s->x[i]) + 1) * (fabs((double)up[i]) + 1);
        if (!(fabs((double)s->got[i] - (double)want[i]) <= bound))
            return wrong(s, model_act_name(act), i, 0, (double)s->got[i], (double)want[i], bound, e);
    }
    return 0;
}

static int run(struct sample *s, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && r == 0; i++)
        if ((r = check_product(s, counts[i], e)) == 0)
            r = check_turned(s, counts[i], e);
    r = r < 0 ? r : check_hidden(s, e);
    for (int act = 0; s->type == QUANT_F32 && act < MODEL_ACTS && r == 0; act++)
        r = check_activation(s, (enum model_act)act, e);
    return r;
}

static int make_buffers(struct sample *s, struct err *e)
{
    struct opencl *o = s->o;
    uint64_t flat = (uint64_t)TOKENS * WIDE * 4;
    int r;
    if ((r = opencl_buffer(o, ROWS * s->row_bytes, OPENCL_MEM_READ_WRITE, NULL, &s->mem, e)) < 0 ||
        (r = opencl_buffer(o, flat, OPENCL_MEM_READ_WRITE, NULL, &s->in, e)) < 0 ||
        (r = opencl_buffer(o, flat, OPENCL_MEM_READ_WRITE, NULL, &s->out, e)) < 0 ||
        (r = opencl_buffer(o, (uint64_t)ACCEL_SLICES * ACCEL_SLICE_TOKENS * WIDE * 4, OPENCL_MEM_READ_WRITE, NULL, &s->part, e)) < 0)
        return r;
    int32_t code = o->api.EnqueueWriteBuffer(o->queue, s->mem, 1, 0, ROWS * s->row_bytes, s->rows, 0, NULL, NULL);
    return code == OPENCL_SUCCESS ? 0 : opencl_failed(o, code, "writing to a buffer", e);
}

int opencl_test_kernels(struct opencl *o, uint32_t type, struct err *e)
{
    struct sample s = { .o = o, .q = quant_traits(type), .type = type };
    uint32_t seed = 20260101u + type;
    s.n_cols = s.q->block_elems == 1 ? COLUMNS + 5 : s.q->block_elems == 32 ? COLUMNS : WIDE;
    s.row_bytes = quant_row_bytes(type, (uint64_t)s.n_cols);
    s.rows = malloc(ROWS * s.row_bytes);
    s.w = malloc(sizeof *s.w * ROWS * WIDE);
    s.x = malloc(sizeof *s.x * TOKENS * WIDE);
    s.got = malloc(sizeof *s.got * TOKENS * WIDE);
    int r = 0;
    if (!s.rows || !s.w || !s.x || !s.got)
        r = err_set(e, ERR_NOMEM, "out of memory for comparing kernels");
    for (int i = 0; r == 0 && i < ROWS * s.n_cols; i++)
        s.w[i] = next(&seed) * (i % 7 ? 0.2f : 1.5f);
    for (int i = 0; r == 0 && i < TOKENS * WIDE; i++)
        s.x[i] = i % 5 ? 4 * next(&seed) : 0;
    for (int i = 0; r == 0 && i < ROWS; i++) {
        s.q->quant(s.rows + (size_t)i * s.row_bytes, s.w + i * s.n_cols, (size_t)s.n_cols);
        s.q->dequant(s.w + i * s.n_cols, s.rows + (size_t)i * s.row_bytes, (size_t)s.n_cols);
    }
    if (r == 0 && (r = make_buffers(&s, e)) == 0)
        r = run(&s, e);
    opencl_mem all[] = { s.mem, s.in, s.out, s.part };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i])
            o->api.ReleaseMemObject(all[i]);
    free(s.rows);
    free(s.w);
    free(s.x);
    free(s.got);
    return r;
}
