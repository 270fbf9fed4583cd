/* Types of 256 weights a block. Reading is exact: no product of a scale and an integer has more than 24 bits, so each weight is
 * rounded once at most, where a minimum is taken off. Writing: each sub-block's scale by search, then those scales as
 * integers in units of the block's, then every weight to the nearest that these can say. */
#include "common/kernels/quant_grid_impl.h"
#include "common/kernels/quant_impl.h"

#include <math.h>

enum { N = 256 };

#define AT(type, p, field) ((p) + offsetof(struct quant_##type, field))

/* ---- scales and minima as integers ---- */

/* Integers in [lo, hi] times *d come near s[0..n). The largest takes the end of the range that has room for it. */
static void share_scales(const float *s, int n, int lo, int hi, uint16_t *half, int *out)
{
    float top = 0;
    for (int i = 0; i < n; i++)
        top = fabsf(s[i]) > fabsf(top) ? s[i] : top;
    *half = quant_finite_half(lo < 0 ? top / (float)lo : top / (float)hi);
    float d = quant_f16_to_f32(*half), inv = d != 0 ? 1 / d : 0;
    for (int i = 0; i < n; i++)
        out[i] = quant_nearest(s[i] * inv, lo, hi);
}

/* Sub-blocks of `sub` weights with scale and minimum: what the field's K types share. */
struct ranges {
    float d, dmin;
    uint16_t half_d, half_dmin;
    int scale[16], min[16], q[N];
};

static void round_ranges(struct ranges *r, const float *x, int sub, int top)
{
    r->d = quant_f16_to_f32(r->half_d);
    r->dmin = quant_f16_to_f32(r->half_dmin);
    for (int i = 0; i < N; i++) {
        float s = r->d * (float)r->scale[i / sub], m = r->dmin * (float)r->min[i / sub];
        r->q[i] = s > 0 ? quant_nearest((x[i] + m) / s, 0, top) : 0;
    }
}

/* With the integers given, d and dmin that fit best. */
static void refit_ranges(struct ranges *r, const float *x, const float *w, int sub)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < N; i++) {
        double a = r->scale[i / sub] * r->q[i], b = -r->min[i / sub], k = (double)w[i];
        aa += k * a * a;
        ab += k * a * b;
        bb += k * b * b;
        ax += k * a * (double)x[i];
        bx += k * b * (double)x[i];
    }
    double det = aa * bb - ab * ab;
    if (!(det > 1e-9 * aa * bb) || !(det > 0))
        return;
    float d = (float)((ax * bb - bx * ab) / det), dmin = (float)((bx * aa - ax * ab) / det);
    if (!(d > 0) || !(dmin >= 0))
        return;
    r->half_d = quant_finite_half(d);
    r->half_dmin = quant_finite_half(dmin);
}

static void find_ranges(struct ranges *r, const float *x, const float *by, int sub, int top, int scale_top)
{
    float s[16], m[16], w[N];
    for (int i = 0; i < N / sub; i++) {
        quant_search_weights(w + i * sub, x + i * sub, by ? by + i * sub : NULL, sub);
        s[i] = quant_search_range(x + i * sub, w + i * sub, sub, top, &m[i]);
    }
    share_scales(s, N / sub, 0, scale_top, &r->half_d, r->scale);
    share_scales(m, N / sub, 0, scale_top, &r->half_dmin, r->min);
    round_ranges(r, x, sub, top);
    refit_ranges(r, x, w, sub);
    round_ranges(r, x, sub, top);
}

/* Sub-blocks of 16 with a signed scale, weights in [lo, hi]. */
struct scales {
    uint16_t half_d;
    int scale[16], q[N];
};

static void round_scales(struct scales *r, const float *x, int lo, int hi)
{
    float d = quant_f16_to_f32(r->half_d);
    for (int i = 0; i < N; i++) {
        float s = d * (float)r->scale[i / 16];
        r->q[i] = s != 0 ? quant_nearest(x[i] / s, lo, hi) : 0;
    }
}

static void find_scales(struct scales *r, const float *x, const float *by, int lo, int hi, int scale_lo, int scale_hi)
{
    float s[16], w[N];
    double qq = 0, xq = 0;
    for (int i = 0; i < 16; i++) {
        quant_search_weights(w + 16 * i, x + 16 * i, by ? by + 16 * i : NULL, 16);
        s[i] = quant_search_scale(x + 16 * i, w + 16 * i, 16, lo, hi);
    }
    share_scales(s, 16, scale_lo, scale_hi, &r->half_d, r->scale);
    round_scales(r, x, lo, hi);
    for (int i = 0; i < N; i++) {
        double a = r->scale[i / 16] * r->q[i];
        qq += (double)w[i] * a * a;
        xq += (double)w[i] * a * (double)x[i];
    }
    if (qq > 0 && xq / qq != 0 && fabs(xq / qq) < 65504)
        r->half_d = quant_f32_to_f16((float)(xq / qq));
    round_scales(r, x, lo, hi);
}

/* ---- bits ---- */

/* bits each, weight 128 * g + (8 / bits) ... : weight 32 * k + j of a run of 32 * 8 / bits is at bit bits * k of byte j. */
static int planes(const uint8_t *p, int bits, int i)
{
    int run = 256 / bits;
    return p[i / run * 32 + i % 32] >> bits * (i % run / 32) & ((1 << bits) - 1);
}

static void put_planes(uint8_t *p, int bits, int i, int v)
{
    int run = 256 / bits;
    p[i / run * 32 + i % 32] |= (uint8_t)((v & ((1 << bits) - 1)) << bits * (i % run / 32));
}

/* ---- Q2_K ---- */

void quant_q2_k_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q2_k)) {
        float d = quant_half_at(AT(q2_k, b, d)), dmin = quant_half_at(AT(q2_k, b, dmin));
        for (int i = 0; i < N; i++) {
            int s = AT(q2_k, b, scales)[i / 16];
            out[at + (size_t)i] = d * (float)(s & 15) * (float)planes(AT(q2_k, b, qs), 2, i) - dmin * (float)(s >> 4);
        }
    }
}

void quant_q2_k_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    struct ranges r;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q2_k)) {
        find_ranges(&r, in + at, by ? by + at : NULL, 16, 3, 15);
        memset(b, 0, sizeof(struct quant_q2_k));
        for (int i = 0; i < 16; i++)
            AT(q2_k, b, scales)[i] = (uint8_t)(r.scale[i] | r.min[i] << 4);
        quant_q2_k_put(b, r.q);
        bytes_put16(AT(q2_k, b, d), r.half_d);
        bytes_put16(AT(q2_k, b, dmin), r.half_dmin);
    }
}

void quant_q2_k_grid(struct quant_grid *g, const void *block)
{
    const uint8_t *b = block;
    float d = quant_half_at(AT(q2_k, b, d)), dmin = quant_half_at(AT(q2_k, b, dmin));
    g->top = 3;
    for (int i = 0; i < N; i++) {
        g->step[i] = d * (float)(AT(q2_k, b, scales)[i / 16] & 15);
        g->base[i] = -dmin * (float)(AT(q2_k, b, scales)[i / 16] >> 4);
    }
}

void quant_q2_k_put(void *block, const int *q)
{
    uint8_t *b = block;
    memset(AT(q2_k, b, qs), 0, 64);
    for (int i = 0; i < N; i++)
        put_planes(AT(q2_k, b, qs), 2, i, q[i]);
}

/* ---- Q3_K ---- */

static int q3_k_scale(const uint8_t *b, int k)
{
    const uint8_t *s = AT(q3_k, b, scales);
    return ((s[k % 8] >> k / 8 * 4 & 15) | (s[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32;
}

void quant_q3_k_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q3_k)) {
        float d = quant_half_at(AT(q3_k, b, d));
        for (int i = 0; i < N; i++) {
            int q = planes(AT(q3_k, b, qs), 2, i) | planes(AT(q3_k, b, hmask), 1, i) << 2;
            out[at + (size_t)i] = d * (float)q3_k_scale(b, i / 16) * (float)(q - 4);
        }
    }
}

void quant_q3_k_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    struct scales r;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q3_k)) {
        find_scales(&r, in + at, by ? by + at : NULL, -4, 3, -32, 31);
        memset(b, 0, sizeof(struct quant_q3_k));
        for (int k = 0; k < 16; k++) {
            int s = r.scale[k] + 32;
            AT(q3_k, b, scales)[k % 8] |= (uint8_t)((s & 15) << k / 8 * 4);
            AT(q3_k, b, scales)[8 + k % 4] |= (uint8_t)((s >> 4) << k / 4 * 2);
        }
        for (int i = 0; i < N; i++)
            r.q[i] += 4;
        quant_q3_k_put(b, r.q);
        bytes_put16(AT(q3_k, b, d), r.half_d);
    }
}

void quant_q3_k_grid(struct quant_grid *g, const void *block)
{
    float d = quant_half_at(AT(q3_k, (const uint8_t *)block, d));
    g->top = 7;
    for (int i = 0; i < N; i++) {
        g->step[i] = d * (float)q3_k_scale(block, i / 16);
        g->base[i] = -4 * g->step[i];
    }
}

void quant_q3_k_put(void *block, const int *q)
{
    uint8_t *b = block;
    memset(AT(q3_k, b, hmask), 0, 32 + 64);
    for (int i = 0; i < N; i++) {
        put_planes(AT(q3_k, b, qs), 2, i, q[i]);
        put_planes(AT(q3_k, b, hmask), 1, i, q[i] >> 2);
    }
}

/* ---- Q4_K and Q5_K ---- */

static void read_k4(float *out, const uint8_t *b, const uint8_t *qh, const uint8_t *qs)
{
    uint8_t scales[8], mins[8];
    float d = quant_half_at(b), dmin = quant_half_at(b + 2);
    quant_k4_scales(AT(q4_k, b, scales), scales, mins);
    for (int i = 0; i < N; i++) {
        int q = planes(qs, 4, i) | (qh ? planes(qh, 1, i) << 4 : 0);
        out[i] = d * (float)scales[i / 32] * (float)q - dmin * (float)mins[i / 32];
    }
}

static void write_k4(uint8_t *b, const float *x, const float *by, uint8_t *qh, uint8_t *qs)
{
    struct ranges r;
    uint8_t *s = AT(q4_k, b, scales);
    find_ranges(&r, x, by, 32, qh ? 31 : 15, 63);
    bytes_put16(b, r.half_d);
    bytes_put16(b + 2, r.half_dmin);
    for (int i = 0; i < 4; i++) {
        s[i] = (uint8_t)(r.scale[i] | r.scale[4 + i] >> 4 << 6);
        s[4 + i] = (uint8_t)(r.min[i] | r.min[4 + i] >> 4 << 6);
        s[8 + i] = (uint8_t)((r.scale[4 + i] & 15) | (r.min[4 + i] & 15) << 4);
    }
    for (int i = 0; i < N; i++) {
        put_planes(qs, 4, i, r.q[i]);
        if (qh)
            put_planes(qh, 1, i, r.q[i] >> 4);
    }
}

void quant_q4_k_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q4_k))
        read_k4(out + at, b, NULL, AT(q4_k, b, qs));
}

void quant_q4_k_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q4_k)) {
        memset(b, 0, sizeof(struct quant_q4_k));
        write_k4(b, in + at, by ? by + at : NULL, NULL, AT(q4_k, b, qs));
    }
}

void quant_q5_k_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q5_k))
        read_k4(out + at, b, AT(q5_k, b, qh), AT(q5_k, b, qs));
}

void quant_q5_k_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q5_k)) {
        memset(b, 0, sizeof(struct quant_q5_k));
        write_k4(b, in + at, by ? by + at : NULL, AT(q5_k, b, qh), AT(q5_k, b, qs));
    }
}

void quant_q4_k_grid(struct quant_grid *g, const void *block)
{
    const uint8_t *b = block;
    uint8_t scales[8], mins[8];
    float d = quant_half_at(b), dmin = quant_half_at(b + 2);
    quant_k4_scales(AT(q4_k, b, scales), scales, mins);
    g->top = 15;
    for (int i = 0; i < N; i++) {
        g->step[i] = d * (float)scales[i / 32];
        g->base[i] = -dmin * (float)mins[i / 32];
    }
}

void quant_q4_k_put(void *block, const int *q)
{
    uint8_t *b = block;
    memset(AT(q4_k, b, qs), 0, 128);
    for (int i = 0; i < N; i++)
        put_planes(AT(q4_k, b, qs), 4, i, q[i]);
}

/* ---- Q6_K ---- */

/* Where the low bits of weight i are: 128 weights in 64 bytes. */
static int q6_byte(int i)
{
    return i / 128 * 64 + i % 64;
}

void quant_q6_k_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q6_k)) {
        float d = quant_half_at(AT(q6_k, b, d));
        for (int i = 0; i < N; i++) {
            int low = AT(q6_k, b, ql)[q6_byte(i)] >> i % 128 / 64 * 4 & 15, high = planes(AT(q6_k, b, qh), 2, i);
            out[at + (size_t)i] = d * (float)(int8_t)AT(q6_k, b, scales)[i / 16] * (float)((low | high << 4) - 32);
        }
    }
}

void quant_q6_k_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    struct scales r;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_q6_k)) {
        find_scales(&r, in + at, by ? by + at : NULL, -32, 31, -128, 127);
        memset(b, 0, sizeof(struct quant_q6_k));
        for (int k = 0; k < 16; k++)
            AT(q6_k, b, scales)[k] = (uint8_t)r.scale[k];
        for (int i = 0; i < N; i++) {
            int q = r.q[i] + 32;
            AT(q6_k, b, ql)[q6_byte(i)] |= (uint8_t)((q & 15) << i % 128 / 64 * 4);
            put_planes(AT(q6_k, b, qh), 2, i, q >> 4);
        }
        bytes_put16(AT(q6_k, b, d), r.half_d);
    }
}

/* ---- IQ4_XS ---- */

static int iq4_xs_scale(const uint8_t *b, int i)
{
    return ((AT(iq4_xs, b, scales_l)[i / 2] >> i % 2 * 4 & 15) | (bytes_le16(AT(iq4_xs, b, scales_h)) >> 2 * i & 3) << 4) - 32;
}

void quant_iq4_xs_read(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq4_xs)) {
        float d = quant_half_at(b);
        for (int i = 0; i < N; i++) {
            int q = AT(iq4_xs, b, qs)[i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15;
            out[at + (size_t)i] = d * (float)iq4_xs_scale(b, i / 32) * (float)quant_iq4_values[q];
        }
    }
}

void quant_iq4_xs_write_by(void *out, const float *in, const float *by, size_t n)
{
    uint8_t *b = out;
    for (size_t at = 0; at < n; at += N, b += sizeof(struct quant_iq4_xs)) {
        float s[8], w[N];
        int scale[8];
        uint16_t half, high = 0;
        for (int i = 0; i < 8; i++) {
            quant_search_weights(w + 32 * i, in + at + 32 * i, by ? by + at + 32 * i : NULL, 32);
            s[i] = quant_search_table(in + at + 32 * i, w + 32 * i, 32, quant_iq4_values);
        }
        share_scales(s, 8, -32, 31, &half, scale);
        memset(b, 0, sizeof(struct quant_iq4_xs));
        bytes_put16(b, half);
        for (int i = 0; i < 8; i++) {
            AT(iq4_xs, b, scales_l)[i / 2] |= (uint8_t)(((scale[i] + 32) & 15) << i % 2 * 4);
            high |= (uint16_t)((scale[i] + 32) >> 4 << 2 * i);
        }
        bytes_put16(AT(iq4_xs, b, scales_h), high);
        for (int i = 0; i < N; i++) {
            float unit = quant_f16_to_f32(half) * (float)scale[i / 32], inv = unit != 0 ? 1 / unit : 0;
            int q = quant_nearest_value(in[at + (size_t)i] * inv, quant_iq4_values);
            AT(iq4_xs, b, qs)[i / 32 * 16 + i % 16] |= (uint8_t)(q << i % 32 / 16 * 4);
        }
    }
}
