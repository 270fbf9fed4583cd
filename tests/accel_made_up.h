#ifndef TESTS_ACCEL_MADE_UP_H
#define TESTS_ACCEL_MADE_UP_H

/* An accelerator that is made up, with copies of what it was given, so that it computes with bytes of before where nobody tells it
 * that they changed. One of its calls may fail. It computes in wait, naively. */
#include "common/accel/accel.h"
#include "common/model/nn.h"
#include "common/plan/schedule.h"

#include <stdlib.h>
#include <string.h>

static struct {
    int calls, fail_at, closed, refuse; /* the fail_at-th call fails; refuse: allocate does */
} seen;

#define MOST_NEURONS 2560 /* of an FFN */

struct made_up {
    struct accel accel;
    struct { const uint8_t *data; size_t bytes; uint8_t *own; } piece[512]; /* own: as if the device had memory of its own */
    int n_pieces, n, n_products;
    struct accel_need need;
    struct accel_ffn ffn[SCHEDULE_MAX_BLOCKS];
    struct accel_product product[8];
};

static int called(struct err *e)
{
    return ++seen.calls == seen.fail_at ? err_set(e, ERR_IO, "the device is lost") : 0;
}

static int made_list(struct accel_device *out, int most, struct err *e)
{
    (void)out, (void)most, (void)e;
    return 1;
}

static const struct accel_backend made_up;

static int made_open(const struct accel_config *c, struct accel **out, struct err *e)
{
    struct made_up *m = calloc(1, sizeof *m);
    (void)c, (void)e;
    m->accel.backend = &made_up;
    *out = &m->accel;
    return 0;
}

static int made_close(struct accel *a)
{
    struct made_up *m = (struct made_up *)a;
    for (int i = 0; m && i < m->n_pieces; i++)
        free(m->piece[i].own);
    free(a);
    seen.closed++;
    return 0;
}

static void made_describe(const struct accel *a, struct accel_info *out)
{
    (void)a;
    *out = (struct accel_info){ .device = { .name = "made up" } };
}

static uint64_t made_buffers(const struct accel *a, const struct accel_need *need)
{
    (void)a, (void)need;
    return 0;
}

static int made_add(struct accel *a, const void *data, size_t bytes, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int last = m->n_pieces - 1;
    if (last >= 0 && (uintptr_t)data < (uintptr_t)m->piece[last].data + m->piece[last].bytes)
        return err_set(e, ERR_LIMIT, "pieces overlap, or do not ascend");
    m->piece[m->n_pieces].data = data;
    m->piece[m->n_pieces].own = malloc(bytes ? bytes : 1);
    memcpy(m->piece[m->n_pieces].own, data, bytes);
    m->piece[m->n_pieces++].bytes = bytes;
    return called(e);
}

static int made_allocate(struct accel *a, const struct accel_need *need, struct err *e)
{
    ((struct made_up *)a)->need = *need;
    return seen.refuse ? err_set(e, ERR_LIMIT, "too small") : called(e);
}

/* Where element (row, run) of a matrix begins. */
static const uint8_t *at(const struct accel_matrix *m, int row, int run)
{
    return m->data + (m->group_rows ? (size_t)(row / m->group_rows) * m->group_stride + (size_t)(row % m->group_rows) * m->row_stride
                                    : (size_t)row * m->row_stride) +
           (size_t)run * m->run_stride;
}

static int made_takes(const struct accel *a, const struct accel_matrix *m, int turned)
{
    const struct made_up *x = (const struct made_up *)a;
    int runs = m->run_elems ? (m->n_cols + m->run_elems - 1) / m->run_elems : 1,
        last = m->n_cols - (runs - 1) * (m->run_elems ? m->run_elems : 0);
    const uint8_t *end = at(m, m->n_rows - 1, runs - 1) + quant_row_bytes(m->type, (uint64_t)last);
    (void)turned;
    for (int i = 0; i < x->n_pieces; i++)
        if (m->data >= x->piece[i].data && end <= x->piece[i].data + x->piece[i].bytes)
            return 1;
    return 0;
}

/* The piece that holds these bytes; -1: none. */
static int piece_of(const struct made_up *m, const void *data)
{
    for (int i = 0; i < m->n_pieces; i++)
        if ((const uint8_t *)data >= m->piece[i].data && (const uint8_t *)data < m->piece[i].data + m->piece[i].bytes)
            return i;
    return -1;
}

static const void *copy_of(const struct made_up *m, const void *data)
{
    int i = data ? piece_of(m, data) : -1;
    return i < 0 ? data : m->piece[i].own + ((const uint8_t *)data - m->piece[i].data);
}

/* Nothing that is queued may use it: what is computed later would not be what was asked for. */
static int made_changed(struct accel *a, const void *data, size_t bytes, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int i = piece_of(m, data);
    if (i < 0 || (const uint8_t *)data + bytes > m->piece[i].data + m->piece[i].bytes || m->n)
        return err_set(e, ERR_LIMIT, "bytes that were not added, or are in use");
    memcpy(m->piece[i].own + ((const uint8_t *)data - m->piece[i].data), data, bytes);
    return called(e);
}

static void row_of(const struct accel_matrix *m, int row, float *out)
{
    for (int c = 0, run = 0, n; c < m->n_cols; c += n, run++) {
        n = m->run_elems && m->n_cols - c > m->run_elems ? m->run_elems : m->n_cols - c;
        quant_traits(m->type)->dequant(out + c, at(m, row, run), (size_t)n);
    }
}

static void multiply(const struct accel_matrix *m, const float *in, float *out)
{
    float w[MOST_NEURONS];
    for (int r = 0; r < m->n_rows; r++) {
        row_of(m, r, w);
        out[r] = 0;
        for (int c = 0; c < m->n_cols; c++)
            out[r] += w[c] * in[c];
    }
}

static void compute(const struct accel_ffn *f)
{
    float gate[MOST_NEURONS], up[MOST_NEURONS], w[MOST_NEURONS];
    int n = f->gate.n_rows, d = f->gate.n_cols;
    for (int t = 0; t < f->n_tokens; t++) {
        float *out = f->out + t * d;
        multiply(&f->gate, f->in + t * d, gate);
        multiply(&f->up, f->in + t * d, up);
        for (int i = 0; i < n; i++) {
            gate[i] += f->gate_bias ? f->gate_bias[i] : 0;
            up[i] += f->up_bias ? f->up_bias[i] : 0;
        }
        if (f->silence)
            nn_silence(gate, f->silence, n, f->act);
        nn_ffn_act(gate, gate, up, n, f->act);
        if (!f->turned) {
            multiply(&f->down, gate, out);
            continue;
        }
        memset(out, 0, (size_t)d * sizeof *out);
        for (int i = 0; i < n; i++) {
            row_of(&f->down, i, w);
            for (int c = 0; c < d; c++)
                out[c] += gate[i] * w[c];
        }
    }
}

static int made_ffn(struct accel *a, const struct accel_ffn *f, int n, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int tokens = 0;
    for (int i = 0; i < n; i++)
        tokens += f[i].n_tokens;
    if (tokens > m->need.tokens)
        return err_set(e, ERR_LIMIT, "%d tokens", tokens);
    memcpy(m->ffn, f, (size_t)n * sizeof *f);
    for (int i = 0; i < n; i++) {
        struct accel_ffn *x = &m->ffn[i];
        x->gate.data = copy_of(m, x->gate.data);
        x->up.data = copy_of(m, x->up.data);
        x->down.data = copy_of(m, x->down.data);
        x->gate_bias = copy_of(m, x->gate_bias);
        x->up_bias = copy_of(m, x->up_bias);
        x->silence = copy_of(m, x->silence);
    }
    m->n = n;
    return called(e);
}

static int made_products(struct accel *a, const struct accel_product *p, int n, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    uint64_t in = 0, out = 0;
    for (int i = 0; i < n; i++) {
        in += i ? 0 : (uint64_t)p[i].n_tokens * (uint64_t)p[i].m.n_cols;
        out += (uint64_t)p[i].n_tokens * (uint64_t)p[i].m.n_rows;
    }
    if (in > m->need.inputs || out > m->need.outputs)
        return err_set(e, ERR_LIMIT, "products");
    memcpy(m->product, p, (size_t)n * sizeof *p);
    m->n_products = n;
    return called(e);
}

static int made_wait(struct accel *a, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int r = called(e);
    for (int i = 0; i < 3 && meanwhile && r == 0; i++)
        r = meanwhile(ctx, e);
    for (int i = 0; i < m->n && r == 0; i++)
        compute(&m->ffn[i]);
    for (int i = 0; i < m->n_products && r == 0; i++)
        for (int t = 0; t < m->product[i].n_tokens; t++)
            multiply(&m->product[i].m, m->product[i].in + (size_t)t * (size_t)m->product[i].m.n_cols,
                     m->product[i].out + (size_t)t * (size_t)m->product[i].m.n_rows);
    m->n = m->n_products = 0;
    return r;
}

static const struct accel_backend made_up = {
    .name = "made up", .list = made_list, .open = made_open, .close = made_close, .describe = made_describe, .buffers = made_buffers,
    .add = made_add, .allocate = made_allocate, .takes = made_takes,
    .changed = made_changed, .ffn = made_ffn, .products = made_products, .wait = made_wait,
};

#endif
