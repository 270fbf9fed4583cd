#ifndef COMMON_KERNELS_KERNELS_AVX512_K_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX512_K_IMPL_H

/* AVX-512 with VNNI: the primitives of kernels_simd_k_impl.h. A group fills two vectors, a block in each 128-bit lane. */
#if defined(__AVX512VNNI__)

#include "common/kernels/kernels_avx512_impl.h"
#include "common/kernels/kernels_k_impl.h"

PRIM float k_half(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)half_at(p))));
}

PRIM VF vf_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

PRIM struct f16x k_bytes(uint64_t lo, uint64_t hi, float k)
{
    __m128i b = _mm_set_epi64x((long long)hi, (long long)lo);
    return (struct f16x){ { _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)), vf_set1(k)) } };
}

PRIM struct f16x k_four(const float f[4])
{
    return (struct f16x){ { _mm512_zextps128_ps512(_mm_loadu_ps(f)) } };
}

PRIM void kg_store(uint8_t *to, struct kg w)
{
    _mm512_storeu_si512(to, w.lo);
    _mm512_storeu_si512(to + 64, w.hi);
}

PRIM struct kg kg_load(const uint8_t *from)
{
    return (struct kg){ _mm512_loadu_si512(from), _mm512_loadu_si512(from + 64) };
}

/* ---- products with int8: lane r of an accumulator has the four sums of row r ---- */

/* Of four rows' sums of fours, each a block in a lane: the blocks' sums, a row in a lane. */
PRIM __m512i fours(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_permutexvar_epi32(order, _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd)));
}

/* vpdpbusd wants one unsigned operand. */
PRIM int k_start(int offset)
{
    return offset >= K_TABLE ? 128 : offset;
}

PRIM struct kg k_unsigned(struct kg w, int offset)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    return offset >= K_TABLE ? (struct kg){ _mm512_xor_si512(w.lo, flip), _mm512_xor_si512(w.hi, flip) } : w;
}

/* Each sum of the blocks' halves (both: of the blocks) times k, for every row. */
PRIM __m512i sums_times(const uint8_t *x, int half, int both, int k)
{
    const __m128i s = _mm_loadu_si128((const void *)(x + offsetof(struct kernels_q8_group, sum)));
    const uint32_t one = (uint16_t)k, pick = both ? one * 0x10001 : half ? one << 16 : one;
    return _mm512_broadcast_i32x4(_mm_madd_epi16(s, _mm_set1_epi32((int)pick)));
}

enum { K_DOT_ROWS = 4 };

PRIM struct f16x k_dot(struct f16x acc, const struct kg w[4], const struct k_scales4 *k, int r, const uint8_t *x, int sub, int offset,
                       int mins, int bits)
{
    (void)r;
    (void)bits;
    const __m512i x01 = _mm512_loadu_si512(x + 32), x23 = _mm512_loadu_si512(x + 96), zero = _mm512_setzero_si512();
    const __m512i lo = _mm512_shuffle_i64x2(x01, x23, 0x88), hi = _mm512_shuffle_i64x2(x01, x23, 0xdd);
    __m512i dot[2];
    VF t = vf_zero();
    if (sub == 32)
        dot[0] = fours(_mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[0].lo, lo), w[0].hi, hi),
                       _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[1].lo, lo), w[1].hi, hi),
                       _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[2].lo, lo), w[2].hi, hi),
                       _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[3].lo, lo), w[3].hi, hi));
    else {
        dot[0] = fours(_mm512_dpbusd_epi32(zero, w[0].lo, lo), _mm512_dpbusd_epi32(zero, w[1].lo, lo),
                       _mm512_dpbusd_epi32(zero, w[2].lo, lo), _mm512_dpbusd_epi32(zero, w[3].lo, lo));
        dot[1] = fours(_mm512_dpbusd_epi32(zero, w[0].hi, hi), _mm512_dpbusd_epi32(zero, w[1].hi, hi),
                       _mm512_dpbusd_epi32(zero, w[2].hi, hi), _mm512_dpbusd_epi32(zero, w[3].hi, hi));
    }
    UNROLL
    for (int h = 0; h < 32 / sub; h++) {
        if (offset)
            dot[h] = _mm512_add_epi32(dot[h], sums_times(x, h, sub == 32, -k_start(offset)));
        t = h ? vf_fma(_mm512_cvtepi32_ps(dot[h]), k->s[h].v[0], t) : vf_mul(_mm512_cvtepi32_ps(dot[h]), k->s[h].v[0]);
    }
    UNROLL
    for (int h = 0; h < mins * 32 / sub; h++)
        t = vf_fma(_mm512_cvtepi32_ps(sums_times(x, h, sub == 32, 1)), k->m[h].v[0], t);
    return (struct f16x){ { vf_fma(t, _mm512_broadcast_f32x4(_mm_loadu_ps((const void *)x)), acc.v[0]) } };
}

PRIM void k_store4(float out[4], struct f16x sums)
{
    VF acc = sums.v[0];
    const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    acc = _mm512_add_ps(acc, _mm512_permute_ps(acc, 0xb1));
    acc = _mm512_add_ps(acc, _mm512_permute_ps(acc, 0x4e));
    _mm_storeu_ps(out, _mm_add_ps(_mm512_castps512_ps128(_mm512_permutexvar_ps(first, acc)), _mm_setzero_ps()));
}

/* Of the scales of four rows, each in column order, those of group g: a row in a lane. */
PRIM void turn_scales(struct f16x to[2], VF a, VF b, VF c, VF d, int g, int sub)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    if (sub == 32) {
        VF ab = _mm512_shuffle_f32x4(a, b, 0x44), cd = _mm512_shuffle_f32x4(c, d, 0x44);
        to[0].v[0] = g ? _mm512_shuffle_f32x4(ab, cd, 0xdd) : _mm512_shuffle_f32x4(ab, cd, 0x88);
        return;
    }
    VF ab = g ? _mm512_shuffle_f32x4(a, b, 0xee) : _mm512_shuffle_f32x4(a, b, 0x44);
    VF cd = g ? _mm512_shuffle_f32x4(c, d, 0xee) : _mm512_shuffle_f32x4(c, d, 0x44);
    to[0].v[0] = _mm512_permutex2var_ps(ab, even, cd);
    to[1].v[0] = _mm512_permutex2var_ps(ab, _mm512_or_si512(even, _mm512_set1_epi32(1)), cd);
}

PRIM void k_turn(struct k_scales4 *to, const struct k_scales k[4], int groups, int sub, int mins)
{
    UNROLL
    for (int g = 0; g < groups; g++) {
        turn_scales(to[g].s, k[0].s.v[0], k[1].s.v[0], k[2].s.v[0], k[3].s.v[0], g, sub);
        if (mins)
            turn_scales(to[g].m, k[0].m.v[0], k[1].m.v[0], k[2].m.v[0], k[3].m.v[0], g, sub);
    }
}

PRIM void k_scales4_q4_0(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    to->s[0].v[0] = _mm512_cvtph_ps(halves4x4(row, o, nb));
}

PRIM void k_scales4_q8_0(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    const __m512i at = _mm512_set_epi16(51, 34, 17, 0, 51, 34, 17, 0, 51, 34, 17, 0, 51, 34, 17, 0,
                                        51, 34, 17, 0, 51, 34, 17, 0, 51, 34, 17, 0, 51, 34, 17, 0);
    __m512i s = _mm512_setzero_si512();
    UNROLL
    for (int r = 0; r < 4; r++)
        s = _mm512_or_si512(s, _mm512_maskz_permutex2var_epi16(15u << 4 * r, load_words(row[r] + o, 0, 17, nb), at,
                                                               load_words(row[r] + o, 32, 17, nb)));
    to->s[0].v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(s));
}

/* Scale and minimum are the first four bytes of a block of 20. */
PRIM void k_scales4_q4_1(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    const __m512i at = _mm512_set4_epi32(15, 10, 5, 0);
    __m512i z = _mm512_setzero_si512();
    UNROLL
    for (int r = 0; r < 4; r++)
        z = _mm512_or_si512(z, _mm512_maskz_permutexvar_epi32((__mmask16)(15u << 4 * r), at,
                                                              _mm512_maskz_loadu_epi32((__mmask16)((1u << 5 * nb) - 1), row[r] + o)));
    to->s[0].v[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(z));
    to->m[0].v[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(z, 16)));
}

/* The halves at `at` of each block of four rows. */
PRIM VF halves_of(const uint8_t *const row[4], size_t o, size_t block, size_t at, int nb)
{
    uint64_t h[4];
    UNROLL
    for (int r = 0; r < 4; r++) {
        const uint8_t *p = row[r] + o + at;
        h[r] = half_at(p);
        UNROLL
        for (int b = 1; b < 4; b++)
            h[r] |= b < nb ? (uint64_t)half_at(p + (size_t)b * block) << 16 * b : 0;
    }
    return _mm512_cvtph_ps(_mm256_set_epi64x((long long)h[3], (long long)h[2], (long long)h[1], (long long)h[0]));
}

PRIM void k_scales4_q5_0(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    to->s[0].v[0] = halves_of(row, o, sizeof(struct quant_q5_0), 0, nb);
}

PRIM void k_scales4_q5_1(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    to->s[0].v[0] = halves_of(row, o, sizeof(struct quant_q5_1), 0, nb);
    to->m[0].v[0] = halves_of(row, o, sizeof(struct quant_q5_1), 2, nb);
}

PRIM void k_scales4_iq4_nl(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    to->s[0].v[0] = _mm512_cvtph_ps(halves4x4(row, o, nb)); /* as Q4_0's */
}

/* 2^(e - 128) of a byte each; the two smallest are not normal floats. */
PRIM void k_scales4_mxfp4(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    uint32_t bytes[4];
    k_first_bytes(bytes, row, o, sizeof(struct quant_mxfp4), nb);
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)bytes)), one = _mm512_set1_epi32(1);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    to->s[0].v[0] = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, _mm512_cmple_epu32_mask(e, one), _mm512_set1_epi32(0x00200000), e));
}

/* ---- groups ---- */

#define FOUR(a, b, c, d) _mm512_setr_epi64(a, a, b, b, c, c, d, d)

/* (w & mask) | v, and v | (w & mask) for bytes */
PRIM __m512i or_and(__m512i v, __m512i w, int mask)
{
    return _mm512_ternarylogic_epi64(v, w, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Sixteen bytes in each lane, bit k + step * lane of each byte at bit `to`: of a rotation of 64 bits, what stays within its byte. */
PRIM __m512i fields(const uint8_t *p, int k, int step, int to)
{
    const int r = to - k + 64;
    return _mm512_rolv_epi64(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p)),
                             FOUR(r & 63, (r - step) & 63, (r - 2 * step) & 63, (r - 3 * step) & 63));
}

/* Of 64 bytes, those of lanes a and b; low nibbles where a lane of `high` is 0, else high ones. */
#define NIBBLES(q, lanes, high)                                                                            \
    _mm512_and_si512(_mm512_mask_srli_epi64(_mm512_shuffle_i64x2(q, q, lanes), high,                       \
                                            _mm512_shuffle_i64x2(q, q, lanes), 4), _mm512_set1_epi8(15))

PRIM struct kg kg_q4_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q4_k, p, qs) + 64 * g);
    (void)nb;
    return (struct kg){ NIBBLES(q, 0xa0, 0xcc), NIBBLES(q, 0xf5, 0xcc) };
}

PRIM struct kg kg_q5_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q5_k, p, qs) + 64 * g);
    const uint8_t *h = K_AT(q5_k, p, qh);
    (void)nb;
    return (struct kg){ or_and(NIBBLES(q, 0xa0, 0xcc), fields(h, 4 * g, 1, 4), 0x10),
                        or_and(NIBBLES(q, 0xf5, 0xcc), fields(h + 16, 4 * g, 1, 4), 0x10) };
}

PRIM struct kg kg_q6_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q6_k, p, ql) + 64 * g);
    const uint8_t *h = K_AT(q6_k, p, qh) + 32 * g;
    (void)nb;
    return (struct kg){ or_and(NIBBLES(q, 0x88, 0xf0), fields(h, 0, 2, 4), 0x30),
                        or_and(NIBBLES(q, 0xdd, 0xf0), fields(h + 16, 0, 2, 4), 0x30) };
}

PRIM struct kg kg_q2_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q2_k, p, qs) + 32 * g;
    const __m512i two = _mm512_set1_epi8(3);
    (void)nb;
    return (struct kg){ _mm512_and_si512(fields(q, 0, 2, 0), two), _mm512_and_si512(fields(q + 16, 0, 2, 0), two) };
}

PRIM struct kg kg_q3_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *h = K_AT(q3_k, p, hmask);
    struct kg w = kg_q2_k(K_AT(q3_k, p, qs) - offsetof(struct quant_q2_k, qs), g, nb);
    return (struct kg){ or_and(w.lo, fields(h, 4 * g, 1, 2), 4), or_and(w.hi, fields(h + 16, 4 * g, 1, 2), 4) };
}

PRIM struct kg nibbles(const uint8_t *p, size_t block, size_t at, int nb)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q;
    if (block == 16 && nb == 4) {
        q = _mm512_loadu_si512(p + at);
    } else {
        __m128i b[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            b[i] = i < nb ? _mm_loadu_si128((const void *)(p + (size_t)i * block + at)) : _mm_setzero_si128();
        q = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b[1], b[0])), _mm256_set_m128i(b[3], b[2]), 1);
    }
    return (struct kg){ _mm512_and_si512(q, low), _mm512_and_si512(_mm512_srli_epi16(q, 4), low) };
}

PRIM struct kg fifth_bits(struct kg w, const uint8_t *p, size_t block, size_t at, int nb)
{
    const __m512i bit = _mm512_set1_epi8(16);
    uint64_t lo = 0, hi = 0;
    UNROLL
    for (int b = 0; b < 4; b++) {
        uint32_t h = b < nb ? k_u32(p + (size_t)b * block + at) : 0;
        lo |= (uint64_t)(h & 0xffff) << 16 * b;
        hi |= (uint64_t)(h >> 16) << 16 * b;
    }
    return (struct kg){ _mm512_or_si512(w.lo, _mm512_maskz_mov_epi8(lo, bit)), _mm512_or_si512(w.hi, _mm512_maskz_mov_epi8(hi, bit)) };
}

PRIM struct kg look_up(struct kg w, const int8_t values[16])
{
    const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values));
    return (struct kg){ _mm512_shuffle_epi8(t, w.lo), _mm512_shuffle_epi8(t, w.hi) };
}

#include "common/kernels/kernels_avx512_read_impl.h"
#include "common/kernels/kernels_avx512_turn_impl.h"
#include "common/kernels/kernels_simd_k_impl.h"

#endif
#endif
