/* Element types as rows of one table, and the reference conversions that every SIMD tier and every
 * file we write is tested against. Quantisation follows the published GGML recipes to the rounding,
 * so that a tensor quantised here equals one quantised by the usual tools. All loads and stores go
 * through memcpy or bytes.h: rows in a packed file have no alignment. */
#include "common/base/inline.h"
#include "common/kernels/quant_grid_impl.h"
#include "common/kernels/quant_impl.h"

#include <math.h>
#include <strings.h>

enum { BLOCK = 32, LANES = 8 };

float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, em = h & 0x7fff, u;
    float f;
    if (em >= 0x7c00) {
        u = 0x7f800000 | (em & 0x3ff) << 13;
        if (em > 0x7c00)
            u |= 0x400000; /* quiet, as the hardware conversions do */
    } else if (em >= 0x400) {
        u = (em << 13) + (112u << 23);
    } else {
        f = (float)em * 0x1p-24f; /* exact: a subnormal half is a normal float */
        memcpy(&u, &f, sizeof u);
    }
    u |= sign;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t quant_f32_to_f16(float f)
{
    uint32_t u, a;
    memcpy(&u, &f, sizeof u);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* 65520, halfway to the first value that does not fit */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* below 2^-14: let an addition round at the subnormals' 2^-24 */
        float m;
        memcpy(&m, &a, sizeof m);
        m += 0.5f;
        memcpy(&a, &m, sizeof a);
        return (uint16_t)(sign | (a - 0x3f000000));
    }
    a += 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | (a - (112u << 23)) >> 13);
}

uint16_t quant_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- conversions of rows ---- */

static void f32_copy(float *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void f32_store(void *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *in);
}

static void f16_dequant(float *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = quant_f16_to_f32(bytes_le16((const uint8_t *)in + 2 * i));
}

static void f16_quant(void *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes_put16((uint8_t *)out + 2 * i, quant_f32_to_f16(in[i]));
}

static void bf16_dequant(float *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = quant_bf16_to_f32(bytes_le16((const uint8_t *)in + 2 * i));
}

static void bf16_quant(void *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes_put16((uint8_t *)out + 2 * i, quant_f32_to_bf16(in[i]));
}

AVX2_TOO static void q8_0_dequant(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t i = 0; i < n; i += BLOCK, b += sizeof(struct quant_q8_0)) {
        float d = quant_f16_to_f32(bytes_le16(b));
        for (int j = 0; j < BLOCK; j++)
            out[i + j] = d * (float)(int8_t)b[2 + j];
    }
}

/* The whole number next to v, half away from zero, when it is cut off: what is added is the largest float below a half. */
static float to_round(float v)
{
    return v + copysignf(0x1.fffffep-2f, v);
}

/* lrintf of a clamped value: defined for NaN and infinities too. */
static int round_clamped(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    v = v < hi ? v : hi;
    return (int)v;
}

/* d = max|x| / 127, q = x / d rounded half away from zero. */
AVX2_TOO static void q8_0_quant(void *out, const float *in, size_t n)
{
    uint8_t *b = out;
    for (size_t i = 0; i < n; i += BLOCK, b += sizeof(struct quant_q8_0)) {
        float most[LANES] = { 0 }, top = 0; /* the largest has the same bits in any order */
        int q[BLOCK];
        for (int j = 0; j < BLOCK; j += LANES)
            for (int k = 0; k < LANES; k++)
                most[k] = fabsf(in[i + j + k]) > most[k] ? fabsf(in[i + j + k]) : most[k];
        for (int k = 0; k < LANES; k++)
            top = most[k] > top ? most[k] : top;
        float d = top / 127, inv = d != 0 ? 1 / d : 0;
        bytes_put16(b, quant_f32_to_f16(d));
        for (int j = 0; j < BLOCK; j++)
            q[j] = round_clamped(to_round(in[i + j] * inv), -127, 127);
        for (int j = 0; j < BLOCK; j++)
            b[2 + j] = (uint8_t)q[j];
    }
}

AVX2_TOO static void q4_0_dequant(float *out, const void *in, size_t n)
{
    const uint8_t *b = in;
    for (size_t i = 0; i < n; i += BLOCK, b += sizeof(struct quant_q4_0)) {
        float d = quant_f16_to_f32(bytes_le16(b));
        for (int j = 0; j < BLOCK / 2; j++) {
            out[i + j] = d * (float)((b[2 + j] & 15) - 8);
            out[i + j + BLOCK / 2] = d * (float)((b[2 + j] >> 4) - 8);
        }
    }
}

/* The element of largest magnitude becomes exactly -8: d = x_max / -8, q = floor(x / d + 8.5). */
AVX2_TOO static void q4_0_quant(void *out, const float *in, size_t n)
{
    uint8_t *b = out;
    for (size_t i = 0; i < n; i += BLOCK, b += sizeof(struct quant_q4_0)) {
        float top = 0;
        for (int j = 0; j < BLOCK; j++)
            top = fabsf(in[i + j]) > fabsf(top) ? in[i + j] : top;
        float d = top / -8, inv = d != 0 ? 1 / d : 0;
        bytes_put16(b, quant_f32_to_f16(d));
        for (int j = 0; j < BLOCK / 2; j++) {
            int lo = round_clamped(in[i + j] * inv + 8.5f, 0, 15);
            int hi = round_clamped(in[i + j + BLOCK / 2] * inv + 8.5f, 0, 15);
            b[2 + j] = (uint8_t)(lo | hi << 4);
        }
    }
}

/* ---- the table ---- */

/* Types that are always written by a search. */
#define BY_NOTHING(name)                                               \
    static void name##_quant(void *out, const float *in, size_t n)     \
    {                                                                  \
        quant_##name##_write_by(out, in, NULL, n);                     \
    }
BY_NOTHING(iq4_nl)
BY_NOTHING(q2_k)
BY_NOTHING(q3_k)
BY_NOTHING(q4_k)
BY_NOTHING(q5_k)
BY_NOTHING(q6_k)
BY_NOTHING(iq4_xs)
#undef BY_NOTHING

static const struct quant_traits traits[QUANT_LIMIT] = {
    [QUANT_F32] = { "F32", 1, 4, f32_copy, f32_store, NULL, 0, { 0 } },
    [QUANT_F16] = { "F16", 1, 2, f16_dequant, f16_quant, NULL, 1, { 0 } },
    [QUANT_BF16] = { "BF16", 1, 2, bf16_dequant, bf16_quant, NULL, 0, { 0 } },
    [QUANT_Q8_0] = { "Q8_0", BLOCK, 34, q8_0_dequant, q8_0_quant, NULL, 1, { 0 } },
    [QUANT_Q4_0] = { "Q4_0", BLOCK, 18, q4_0_dequant, q4_0_quant, quant_q4_0_write_by, 1, { 0 } },
    [QUANT_Q4_1] = { "Q4_1", BLOCK, 20, quant_q4_1_read, quant_q4_1_write, quant_q4_1_write_by, 2, { 0, 2 } },
    [QUANT_Q5_0] = { "Q5_0", BLOCK, 22, quant_q5_0_read, quant_q5_0_write, quant_q5_0_write_by, 1, { 0 } },
    [QUANT_Q5_1] = { "Q5_1", BLOCK, 24, quant_q5_1_read, quant_q5_1_write, quant_q5_1_write_by, 2, { 0, 2 } },
    [QUANT_IQ4_NL] = { "IQ4_NL", BLOCK, 18, quant_iq4_nl_read, iq4_nl_quant, quant_iq4_nl_write_by, 1, { 0 } },
    [QUANT_MXFP4] = { "MXFP4", BLOCK, 17, quant_mxfp4_read, quant_mxfp4_write, NULL, 0, { 0 } },
    [QUANT_Q2_K] = { "Q2_K", 256, 84, quant_q2_k_read, q2_k_quant, quant_q2_k_write_by, 2, { 80, 82 } },
    [QUANT_Q3_K] = { "Q3_K", 256, 110, quant_q3_k_read, q3_k_quant, quant_q3_k_write_by, 1, { 108 } },
    [QUANT_Q4_K] = { "Q4_K", 256, 144, quant_q4_k_read, q4_k_quant, quant_q4_k_write_by, 2, { 0, 2 } },
    [QUANT_Q5_K] = { "Q5_K", 256, 176, quant_q5_k_read, q5_k_quant, quant_q5_k_write_by, 2, { 0, 2 } },
    [QUANT_Q6_K] = { "Q6_K", 256, 210, quant_q6_k_read, q6_k_quant, quant_q6_k_write_by, 1, { 208 } },
    [QUANT_IQ4_XS] = { "IQ4_XS", 256, 136, quant_iq4_xs_read, iq4_xs_quant, quant_iq4_xs_write_by, 1, { 0 } },
    [QUANT_IQ2_XXS] = { "IQ2_XXS", 256, 66, quant_iq2_xxs_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ2_XS] = { "IQ2_XS", 256, 74, quant_iq2_xs_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ2_S] = { "IQ2_S", 256, 82, quant_iq2_s_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ3_XXS] = { "IQ3_XXS", 256, 98, quant_iq3_xxs_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ3_S] = { "IQ3_S", 256, 110, quant_iq3_s_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ1_S] = { "IQ1_S", 256, 50, quant_iq1_s_read, NULL, NULL, 1, { 0 } },
    [QUANT_IQ1_M] = { "IQ1_M", 256, 56, quant_iq1_m_read, NULL, NULL, 0, { 0 } },
    [QUANT_Q1_0] = { "Q1_0", 128, 18, quant_q1_0_read, NULL, NULL, 1, { 0 } },
    [QUANT_Q2_0] = { "Q2_0", 64, 18, quant_q2_0_read, NULL, NULL, 1, { 0 } },
    [QUANT_Q2_0_128] = { "Q2_0_128", 128, 34, quant_q2_0_128_read, NULL, NULL, 1, { 0 } },
    [QUANT_PTQ1_0] = { "PTQ1_0", 128, 28, quant_ptq1_0_read, NULL, NULL, 1, { 26 } },
    /* known by name and size alone */
    [QUANT_Q8_1] = { "Q8_1", BLOCK, 36, NULL, NULL, NULL, 0, { 0 } },
    [QUANT_TQ1_0] = { "TQ1_0", 256, 54, NULL, NULL, NULL, 0, { 0 } },
    [QUANT_TQ2_0] = { "TQ2_0", 256, 66, NULL, NULL, NULL, 0, { 0 } },
};

const struct quant_traits *quant_traits(uint32_t type)
{
    return type < QUANT_LIMIT && traits[type].name ? &traits[type] : NULL;
}

int quant_by_name(const char *name)
{
    for (int i = 0; i < QUANT_LIMIT; i++)
        if (traits[i].name && !strcasecmp(traits[i].name, name))
            return i;
    return -1;
}

size_t quant_row_bytes(uint32_t type, uint64_t n)
{
    const struct quant_traits *t = quant_traits(type);
    uint64_t bytes;
    if (!t || n % (uint64_t)t->block_elems)
        return 0;
    if (__builtin_mul_overflow(n / (uint64_t)t->block_elems, (uint64_t)t->block_bytes, &bytes) ||
        bytes > SIZE_MAX)
        return 0;
    return (size_t)bytes;
}

static const struct quant_grid_type grids[QUANT_LIMIT] = {
    [QUANT_Q4_0] = { quant_q4_0_grid, quant_q4_0_put },
    [QUANT_Q2_K] = { quant_q2_k_grid, quant_q2_k_put },
    [QUANT_Q3_K] = { quant_q3_k_grid, quant_q3_k_put },
    [QUANT_Q4_K] = { quant_q4_k_grid, quant_q4_k_put },
};

const struct quant_grid_type *quant_grid_type(uint32_t type)
{
    return type < QUANT_LIMIT && grids[type].read ? &grids[type] : NULL;
}

/* ---- numbers that are not finite ---- */

enum { FINITE_LANES = 32 };

/* Has any of n weights, or scales `stride` bytes apart, all bits of its exponent set? Added to, they carry into the sign. */
static int any_f32(const uint8_t *p, size_t n)
{
    uint32_t bad[FINITE_LANES] = { 0 }, all = 0;
    size_t i = 0;
    for (; i + FINITE_LANES <= n; i += FINITE_LANES)
        for (size_t k = 0; k < FINITE_LANES; k++)
            bad[k] |= (bytes_le32(p + 4 * (i + k)) & 0x7fffffff) + 0x00800000;
    for (; i < n; i++)
        bad[0] |= (bytes_le32(p + 4 * i) & 0x7fffffff) + 0x00800000;
    for (size_t k = 0; k < FINITE_LANES; k++)
        all |= bad[k];
    return (all & 0x80000000) != 0;
}

static int any_16(const uint8_t *p, size_t n, uint16_t exponent)
{
    uint16_t bad[FINITE_LANES] = { 0 }, one = (uint16_t)(exponent & (0u - exponent)), all = 0;
    size_t i = 0;
    for (; i + FINITE_LANES <= n; i += FINITE_LANES)
        for (size_t k = 0; k < FINITE_LANES; k++)
            bad[k] |= (uint16_t)((bytes_le16(p + 2 * (i + k)) & 0x7fff) + one);
    for (; i < n; i++)
        bad[0] |= (uint16_t)((bytes_le16(p + 2 * i) & 0x7fff) + one);
    for (size_t k = 0; k < FINITE_LANES; k++)
        all |= bad[k];
    return (all & 0x8000) != 0;
}

static int any_scale(const struct quant_traits *t, const uint8_t *p, size_t n)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++, p += t->block_bytes)
        for (int k = 0; k < t->n_halves; k++)
            bad |= (uint16_t)((bytes_le16(p + t->half_at[k]) & 0x7fff) + 0x0400);
    return (bad & 0x8000) != 0;
}

/* 2^(252 - 128) times 12 is the largest that fits; 255 is the format's NaN. */
static int any_exponent(const uint8_t *p, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= p[i * sizeof(struct quant_mxfp4)] > 252;
    return bad;
}

static int any_iq1_m(const uint8_t *p, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (quant_iq1_m_d(p + i * sizeof(struct quant_iq1_m)) & 0x7c00) == 0x7c00;
    return bad;
}

static int any_not_finite(uint32_t type, const struct quant_traits *t, const uint8_t *p, size_t n)
{
    if (type == QUANT_F32)
        return any_f32(p, n);
    if (type == QUANT_F16 || type == QUANT_BF16)
        return any_16(p, n, type == QUANT_F16 ? 0x7c00 : 0x7f80);
    return type == QUANT_MXFP4 ? any_exponent(p, n) : type == QUANT_IQ1_M ? any_iq1_m(p, n) : any_scale(t, p, n);
}

size_t quant_first_not_finite(uint32_t type, const void *blocks, size_t n)
{
    const struct quant_traits *t = quant_traits(type);
    const uint8_t *p = blocks;
    size_t i = 0;
    if (!t || !t->dequant || !any_not_finite(type, t, p, n))
        return n;
    while (!any_not_finite(type, t, p + i * (size_t)t->block_bytes, 1))
        i++;
    return i;
}
