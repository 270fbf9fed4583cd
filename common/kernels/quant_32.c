/* Types of 32 weights a block beside Q4_0 and Q8_0. Q4_1, Q5_0 and Q5_1 are written as ggml writes them, to the bit; the others
 * by a search of our own. */
#include "common/kernels/quant_grid_impl.h"
#include "common/kernels/quant_impl.h"

#include <math.h>

enum { N = 32, HALF = 16 };

const int8_t quant_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
const int8_t quant_mxfp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* Element j's nibble and fifth bit. qh: NULL for types without. */
static int element(const uint8_t *qs, const uint8_t *qh, int j)
{
    int low = j < HALF ? qs[j] & 15 : qs[j - HALF] >> 4;
    return qh ? low | (qh[j / 8] >> j % 8 & 1) << 4 : low;
}

static void put_elements(uint8_t *qs, uint8_t *qh, const int q[N])
{
    for (int j = 0; j < HALF; j++)
        qs[j] = (uint8_t)((q[j] & 15) | (q[j + HALF] & 15) << 4);
    for (int j = 0; qh && j < N / 8; j++) {
        qh[j] = 0;
        for (int k = 0; k < 8; k++)
            qh[j] |= (uint8_t)((q[8 * j + k] >> 4 & 1) << k);
    }
}

static void read_range(float *out, const uint8_t *b, size_t n, size_t block, int qh, int qs)
{
    for (size_t i = 0; i < n; i += N, b += block) {
        float d = quant_half_at(b), m = quant_half_at(b + 2);
        for (int j = 0; j < N; j++)
            out[i + (size_t)j] = d * (float)element(b + qs, qh ? b + qh : NULL, j) + m;
    }
}

/* d = (max - min) / top, m = min, q = (x - m) / d to the nearest. */
static void write_range(uint8_t *b, const float *in, size_t n, size_t block, int qh, int qs, int top)
{
    for (size_t i = 0; i < n; i += N, b += block, in += N) {
        float lo = in[0], hi = in[0];
        int q[N];
        for (int j = 1; j < N; j++) {
            lo = in[j] < lo ? in[j] : lo;
            hi = in[j] > hi ? in[j] : hi;
        }
        float d = (hi - lo) / (float)top, inv = d != 0 ? 1 / d : 0;
        bytes_put16(b, quant_finite_half(d));
        bytes_put16(b + 2, quant_finite_half(lo));
        for (int j = 0; j < N; j++) {
            float v = (in[j] - lo) * inv + 0.5f;
            q[j] = v >= (float)top ? top : v > 0 ? (int)v : 0;
        }
        put_elements(b + qs, qh ? b + qh : NULL, q);
    }
}

void quant_q4_1_read(float *out, const void *in, size_t n)
{
    read_range(out, in, n, sizeof(struct quant_q4_1), 0, offsetof(struct quant_q4_1, qs));
}

void quant_q4_1_write(void *out, const float *in, size_t n)
{
    write_range(out, in, n, sizeof(struct quant_q4_1), 0, offsetof(struct quant_q4_1, qs), 15);
}

void quant_q5_1_read(float *out, const void *in, size_t n)
{
    read_range(out, in, n, sizeof(struct quant_q5_1), offsetof(struct quant_q5_1, qh), offsetof(struct quant_q5_1, qs));
}

void quant_q5_1_write(void *out, const float *in, size_t n)
{
    write_range(out, in, n, sizeof(struct quant_q5_1), offsetof(struct quant_q5_1, qh), offsetof(struct quant_q5_1, qs), 31);
}

void quant_q5_0_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_q5_0)) {
        float d = quant_half_at(b);
        for (int j = 0; j < N; j++)
            out[i + (size_t)j] = d * (float)(element(b + offsetof(struct quant_q5_0, qs), b + offsetof(struct quant_q5_0, qh), j) - 16);
    }
}

/* The element of largest magnitude becomes exactly -16. */
void quant_q5_0_write(void *out, const float *in, size_t n)
{
    uint8_t *b = out;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_q5_0), in += N) {
        float top = 0;
        int q[N];
        for (int j = 0; j < N; j++)
            top = fabsf(in[j]) > fabsf(top) ? in[j] : top;
        float d = top / -16, inv = d != 0 ? 1 / d : 0;
        bytes_put16(b, quant_finite_half(d));
        for (int j = 0; j < N; j++) {
            float v = in[j] * inv + 16.5f;
            q[j] = v >= 31 ? 31 : v > 0 ? (int)v : 0;
        }
        put_elements(b + offsetof(struct quant_q5_0, qs), b + offsetof(struct quant_q5_0, qh), q);
    }
}

/* ---- with weights ---- */

/* w = d * (q + lo), q in [0, hi - lo]: the scale by search. */
static void write_scale_by(uint8_t *b, const float *in, const float *by, size_t n, size_t block, int qh, int qs, int lo, int hi)
{
    for (size_t i = 0; i < n; i += N, b += block) {
        float w[N];
        int q[N];
        quant_search_weights(w, in + i, by ? by + i : NULL, N);
        bytes_put16(b, quant_finite_half(quant_search_scale(in + i, w, N, lo, hi)));
        float d = quant_half_at(b), inv = d != 0 ? 1 / d : 0;
        for (int j = 0; j < N; j++)
            q[j] = quant_nearest(in[i + (size_t)j] * inv, lo, hi) - lo;
        put_elements(b + qs, qh ? b + qh : NULL, q);
    }
}

void quant_q4_0_write_by(void *out, const float *in, const float *by, size_t n)
{
    write_scale_by(out, in, by, n, sizeof(struct quant_q4_0), 0, offsetof(struct quant_q4_0, qs), -8, 7);
}

void quant_q4_0_grid(struct quant_grid *g, const void *block)
{
    float d = quant_half_at(block);
    g->top = 15;
    for (int j = 0; j < N; j++) {
        g->base[j] = -8 * d;
        g->step[j] = d;
    }
}

void quant_q4_0_put(void *block, const int *q)
{
    put_elements((uint8_t *)block + offsetof(struct quant_q4_0, qs), NULL, q);
}

void quant_q5_0_write_by(void *out, const float *in, const float *by, size_t n)
{
    write_scale_by(out, in, by, n, sizeof(struct quant_q5_0), offsetof(struct quant_q5_0, qh), offsetof(struct quant_q5_0, qs), -16, 15);
}

/* w = d * q + m, m at most 0, as the K types have it. */
static void write_range_by(uint8_t *b, const float *in, const float *by, size_t n, size_t block, int qh, int qs, int top)
{
    for (size_t i = 0; i < n; i += N, b += block) {
        float w[N], m;
        int q[N];
        quant_search_weights(w, in + i, by ? by + i : NULL, N);
        float s = quant_search_range(in + i, w, N, top, &m);
        bytes_put16(b, quant_finite_half(s));
        bytes_put16(b + 2, quant_finite_half(-m));
        float d = quant_half_at(b), least = quant_half_at(b + 2), inv = d != 0 ? 1 / d : 0;
        for (int j = 0; j < N; j++)
            q[j] = quant_nearest((in[i + (size_t)j] - least) * inv, 0, top);
        put_elements(b + qs, qh ? b + qh : NULL, q);
    }
}

void quant_q4_1_write_by(void *out, const float *in, const float *by, size_t n)
{
    write_range_by(out, in, by, n, sizeof(struct quant_q4_1), 0, offsetof(struct quant_q4_1, qs), 15);
}

void quant_q5_1_write_by(void *out, const float *in, const float *by, size_t n)
{
    write_range_by(out, in, by, n, sizeof(struct quant_q5_1), offsetof(struct quant_q5_1, qh), offsetof(struct quant_q5_1, qs), 31);
}

void quant_iq4_nl_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_iq4_nl)) {
        float d = quant_half_at(b);
        for (int j = 0; j < N; j++)
            out[i + (size_t)j] = d * (float)quant_iq4_values[element(b + 2, NULL, j)];
    }
}

void quant_iq4_nl_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_iq4_nl), in += N) {
        float w[N];
        int q[N];
        quant_search_weights(w, in, by ? by + i : NULL, N);
        bytes_put16(b, quant_finite_half(quant_search_table(in, w, N, quant_iq4_values)));
        float d = quant_half_at(b), inv = d != 0 ? 1 / d : 0;
        for (int j = 0; j < N; j++)
            q[j] = quant_nearest_value(in[j] * inv, quant_iq4_values);
        put_elements(b + 2, NULL, q);
    }
}

static float mxfp4_scale(int e)
{
    return ldexpf(1, e - 128);
}

void quant_mxfp4_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_mxfp4)) {
        float d = mxfp4_scale(b[0]);
        for (int j = 0; j < N; j++)
            out[i + (size_t)j] = d * (float)quant_mxfp4_values[element(b + 1, NULL, j)];
    }
}

/* The nearest of the values, by their halves' order; ties to the smaller. */
static int mxfp4_index(float v)
{
    static const float middle[7] = { 0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10 };
    int i = 0;
    while (i < 7 && fabsf(v) > middle[i])
        i++;
    return v < 0 && i ? i + 8 : i;
}

static float mxfp4_error(const float *x, int e, int q[N])
{
    float d = mxfp4_scale(e), inv = 1 / d, error = 0;
    for (int j = 0; j < N; j++) {
        q[j] = mxfp4_index(x[j] * inv);
        float miss = x[j] - d * (float)quant_mxfp4_values[q[j]];
        error += miss * miss;
    }
    return error;
}

/* The largest magnitude is 12, 8 or 6 units, or would be more: the exponents that this gives are tried. */
void quant_mxfp4_write(void *out, const float *in, size_t n)
{
    uint8_t *b = out;
    for (size_t i = 0; i < n; i += N, b += sizeof(struct quant_mxfp4), in += N) {
        float top = 0, best = INFINITY;
        int exponent, q[N] = { 0 };
        for (int j = 0; j < N; j++)
            top = fabsf(in[j]) > top ? fabsf(in[j]) : top;
        memset(b, 0, sizeof(struct quant_mxfp4));
        if (!(top > 0 && top < INFINITY))
            continue;
        frexpf(top, &exponent);
        for (int e = exponent + 123; e <= exponent + 125; e++) {
            int at = e < 2 ? 2 : e > 250 ? 250 : e;
            float error = mxfp4_error(in, at, q);
            if (error < best) {
                best = error;
                b[0] = (uint8_t)at;
            }
        }
        mxfp4_error(in, b[0], q);
        put_elements(b + 1, NULL, q);
    }
}
