#ifndef COMMON_KERNELS_QUANT_IMPL_H
#define COMMON_KERNELS_QUANT_IMPL_H

/* What the files of quant.c's table share. Rows have no alignment. */
#include "common/base/bytes.h"
#include "common/kernels/quant.h"

#include <stddef.h>

/* Conversions of rows, as struct quant_traits has them. */
#define QUANT_ROW_FNS(name)                                         \
    void quant_##name##_read(float *out, const void *in, size_t n); \
    void quant_##name##_write_by(void *out, const float *in, const float *by, size_t n);
QUANT_ROW_FNS(q4_1)
QUANT_ROW_FNS(q5_0)
QUANT_ROW_FNS(q5_1)
QUANT_ROW_FNS(iq4_nl)
QUANT_ROW_FNS(q2_k)
QUANT_ROW_FNS(q3_k)
QUANT_ROW_FNS(q4_k)
QUANT_ROW_FNS(q5_k)
QUANT_ROW_FNS(q6_k)
QUANT_ROW_FNS(iq4_xs)
#undef QUANT_ROW_FNS
void quant_q4_0_write_by(void *out, const float *in, const float *by, size_t n);
void quant_q4_1_write(void *out, const float *in, size_t n);
void quant_q5_0_write(void *out, const float *in, size_t n);
void quant_q5_1_write(void *out, const float *in, size_t n);
void quant_mxfp4_read(float *out, const void *in, size_t n);
void quant_mxfp4_write(void *out, const float *in, size_t n);
void quant_iq2_xxs_read(float *out, const void *in, size_t n);
void quant_iq2_xs_read(float *out, const void *in, size_t n);
void quant_iq2_s_read(float *out, const void *in, size_t n);
void quant_iq3_xxs_read(float *out, const void *in, size_t n);
void quant_iq3_s_read(float *out, const void *in, size_t n);
void quant_iq1_s_read(float *out, const void *in, size_t n);
void quant_iq1_m_read(float *out, const void *in, size_t n);
void quant_q1_0_read(float *out, const void *in, size_t n);
void quant_q2_0_read(float *out, const void *in, size_t n);
void quant_q2_0_128_read(float *out, const void *in, size_t n);
void quant_ptq1_0_read(float *out, const void *in, size_t n);

/* The bits of an IQ1_M block's d, which its scales hold. */
uint16_t quant_iq1_m_d(const uint8_t *b);

static inline float quant_half_at(const uint8_t *p)
{
    return quant_f16_to_f32(bytes_le16(p));
}

/* The integer nearest to v (ties to even) within [lo, hi]; lo for a NaN. |lo|, |hi| < 2^21. */
static inline int quant_nearest(float v, int lo, int hi)
{
    int32_t i;
    v = v > (float)lo ? v : (float)lo;
    v = (v < (float)hi ? v : (float)hi) + 0x1.8p23f; /* the integer is in the last bits now */
    memcpy(&i, &v, sizeof i);
    return (i & 0x7fffff) - 0x400000;
}

/* As a finite F16: NaN becomes 0, what is too large the largest. */
uint16_t quant_finite_half(float v);

/* Weights of the errors in a search: large values count more, as their activations' products do; and by[n] times as much, where it is
 * not NULL and not 0 throughout. */
void quant_search_weights(float *w, const float *x, const float *by, int n);

/* The scale s for which sum w * (x - s * q)^2 is least, where q is the integer in [lo, hi] nearest to x / s. 0 where every x is. */
float quant_search_scale(const float *x, const float *w, int n, int lo, int hi);

/* The scale s and the minimum *m >= 0 for which sum w * (x - (s * q - m))^2 is least, q in [0, top]. */
float quant_search_range(const float *x, const float *w, int n, int top, float *m);

/* The scale for which sum w * (x - s * values[q])^2 is least; values: sixteen, ascending. */
float quant_search_table(const float *x, const float *w, int n, const int8_t values[16]);

/* The index of the value nearest to v. */
int quant_nearest_value(float v, const int8_t values[16]);

/* Six bits each: scales[0..7] and mins[0..7] of the 12 bytes that Q4_K and Q5_K share. */
static inline void quant_k4_scales(const uint8_t s[12], uint8_t scales[8], uint8_t mins[8])
{
    for (int i = 0; i < 4; i++) {
        scales[i] = s[i] & 63;
        mins[i] = s[4 + i] & 63;
        scales[4 + i] = (uint8_t)((s[8 + i] & 15) | (s[i] >> 6) << 4);
        mins[4 + i] = (uint8_t)((s[8 + i] >> 4) | (s[4 + i] >> 6) << 4);
    }
}

#endif
