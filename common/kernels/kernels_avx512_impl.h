#ifndef COMMON_KERNELS_KERNELS_AVX512_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX512_IMPL_H

/* AVX-512 (F, BW, DQ, VL, VNNI): sixteen float lanes, thirty-two registers, masked loads and stores
 * for what is left over. The int8 products are vpdpbusd. */
#if defined(__AVX512VNNI__)

#include "common/kernels/kernels_impl.h"

#include <immintrin.h>
#include <string.h>

#define KERNELS_VN       16
#define KERNELS_TILE_T   4
#define KERNELS_PREFETCH 2304
#define KERNELS_AXPY_R   8
#define KERNELS_AXPY_B   2
#define KERNELS_AXPY_LEAD 512
#define KERNELS_SCALES4X4
#define KERNELS_SUM4
#define KERNELS_STEP4
#define VF               __m512
#define PRIM             static inline __attribute__((always_inline))

/* ---- floats ---- */

PRIM VF vf_zero(void)
{
    return _mm512_setzero_ps();
}

PRIM VF vf_set1(float f)
{
    return _mm512_set1_ps(f);
}

PRIM VF vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

PRIM void vf_store(float *p, VF v)
{
    _mm512_storeu_ps(p, v);
}

PRIM VF vf_add(VF a, VF b)
{
    return _mm512_add_ps(a, b);
}

PRIM VF vf_mul(VF a, VF b)
{
    return _mm512_mul_ps(a, b);
}

PRIM VF vf_fma(VF a, VF b, VF c)
{
    return _mm512_fmadd_ps(a, b, c);
}

PRIM VF vf_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

PRIM void vf_store_part(float *p, VF v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

/* Halves onto each other, down to one. */
PRIM float vf_sum(VF v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

PRIM void vf_sum4(float s[4], VF a, VF b, VF c, VF d)
{
    const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    VF ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    VF cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    VF v = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
    _mm_storeu_ps(s, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, v)));
}

/* ---- weights as floats ---- */

PRIM VF w_f32(const uint8_t *p, int v)
{
    return _mm512_loadu_ps(p + 64 * v);
}

PRIM VF part_f32(const uint8_t *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

PRIM VF w_f16(const uint8_t *p, int v)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p + 32 * v)));
}

PRIM VF part_f16(const uint8_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}

PRIM VF bf16_widen(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

PRIM VF w_bf16(const uint8_t *p, int v)
{
    return bf16_widen(_mm256_loadu_si256((const void *)(p + 32 * v)));
}

PRIM VF part_bf16(const uint8_t *p, int n)
{
    return bf16_widen(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}

PRIM uint64_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

PRIM void scales4(float d[4], const uint8_t *p, size_t block, int nb, float h)
{
    __m128i halves;
    if (nb == 4 && block == sizeof(struct quant_q4_0)) {
        const __m512i at = _mm512_castsi128_si512(_mm_setr_epi16(0, 9, 18, 27, 0, 0, 0, 0));
        halves = _mm512_castsi512_si128(_mm512_permutexvar_epi16(at, _mm512_loadu_si512(p)));
    } else {
        uint64_t bits = half_at(p);
        for (int b = 1; b < 4; b++)
            bits |= b < nb ? half_at(p + (size_t)b * block) << 16 * b : 0;
        halves = _mm_cvtsi64_si128((long long)bits);
    }
    _mm_storeu_ps(d, _mm_mul_ps(_mm_set1_ps(h), _mm_cvtph_ps(halves)));
}

/* Words first .. of the nb blocks of `words` words that start at p: 32 of them, none beyond the
 * blocks (a masked load touches nothing that is masked out). */
PRIM __m512i load_words(const uint8_t *p, int first, int words, int nb)
{
    int n = words * nb - first;
    p += 2 * first;
    if (n >= 32)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16(n > 0 ? (1u << n) - 1 : 0, p);
}

/* The scales of the first nb of four blocks of each of four rows, as they are stored; 0 for the others. */
PRIM __m256i halves4x4(const uint8_t *const row[4], size_t o, int nb)
{
    const __m512i at = _mm512_set_epi16(27, 18, 9, 0, 27, 18, 9, 0, 27, 18, 9, 0, 27, 18, 9, 0,
                                        27, 18, 9, 0, 27, 18, 9, 0, 27, 18, 9, 0, 27, 18, 9, 0);
    __m512i s = _mm512_permutexvar_epi16(at, load_words(row[0] + o, 0, 9, nb));
    s = _mm512_mask_permutexvar_epi16(s, 0x00f0, at, load_words(row[1] + o, 0, 9, nb));
    s = _mm512_mask_permutexvar_epi16(s, 0x0f00, at, load_words(row[2] + o, 0, 9, nb));
    s = _mm512_mask_permutexvar_epi16(s, 0xf000, at, load_words(row[3] + o, 0, 9, nb));
    return _mm512_castsi512_si256(s);
}

PRIM VF spread4(const float h[4])
{
    const __m512i each = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(each, _mm512_castps128_ps512(_mm_loadu_ps(h)));
}

/* scales4 for them. */
PRIM void scales4x4(float d[4][4], const uint8_t *const row[4], size_t o, VF h)
{
    _mm512_storeu_ps(d, _mm512_mul_ps(h, _mm512_cvtph_ps(halves4x4(row, o, 4))));
}

PRIM VF w_q8_0(const uint8_t *p, int v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p + 2 + 16 * v))));
}

/* The low nibbles pick from a table in a register (the permutation reads four bits of an index). A
 * high nibble becomes the last bits of a float whose unit in the last place is a 16th: taking that
 * float (and the offset 8) away leaves the value. Two ways, because they load different ports. */
PRIM VF w_q4_0(const uint8_t *p, int v)
{
    __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(p + 2)));
    if (v == 0)
        return _mm512_permutexvar_ps(
            q, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
    q = _mm512_ternarylogic_epi32(q, _mm512_set1_epi32(0xf0), _mm512_castps_si512(vf_set1(0x1p19f)),
                                  0xea); /* (q & 0xf0) | 2^19 */
    return _mm512_sub_ps(_mm512_castsi512_ps(q), vf_set1(0x1p19f + 8));
}

/* ---- int8: four blocks a step, one in each 128-bit lane ---- */

/* vpdpbusd wants one unsigned operand: weights are made unsigned by an offset (Q8_0: q + 128, Q4_0:
 * the nibbles as they are), whose product with the activations is taken off by starting from its
 * negative, element by element, so that each float sees no more than its own products. lo: the first 16 elements of each
 * block, hi: the others. */
struct xq {
    __m512i lo, hi, start_q8_0, start_q4_0;
    VF d;
};

struct wq {
    __m512i lo, hi;
    VF d;
};

PRIM struct xq x_q8(const uint8_t *x)
{
    const __m512i each = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const __m512i zero = _mm512_setzero_si512(), o8 = _mm512_set1_epi8(-128), o4 = _mm512_set1_epi8(8);
    struct xq r;
    r.d = _mm512_permutexvar_ps(each, _mm512_castps128_ps512(_mm_loadu_ps((const void *)x)));
    r.lo = _mm512_loadu_si512(x + 16);
    r.hi = _mm512_loadu_si512(x + 80);
    r.start_q8_0 = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, o8, r.lo), o8, r.hi));
    r.start_q4_0 = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, o4, r.lo), o4, r.hi));
    return r;
}

/* Lane b: the 8 words from word `at` of block b on, of two loads, the first from word `first`, the
 * second from word `second`. */
#define LANE(words, b, at, first, second, i)                                          \
    ((words) * (b) + (at) + (i) - (first) < 32 ? (words) * (b) + (at) + (i) - (first) \
                                               : (words) * (b) + (at) + (i) - (second) + 32)
#define LANE8(w, b, at, f, s)                                                                           \
    LANE(w, b, at, f, s, 7), LANE(w, b, at, f, s, 6), LANE(w, b, at, f, s, 5), LANE(w, b, at, f, s, 4), \
        LANE(w, b, at, f, s, 3), LANE(w, b, at, f, s, 2), LANE(w, b, at, f, s, 1), LANE(w, b, at, f, s, 0)
#define LANES(w, at, f, s) \
    _mm512_set_epi16(LANE8(w, 3, at, f, s), LANE8(w, 2, at, f, s), LANE8(w, 1, at, f, s), LANE8(w, 0, at, f, s))
#define WORD4(w) (int16_t)(w), (int16_t)(w), (int16_t)(w), (int16_t)(w)

PRIM struct wq wq_q4_0(const uint8_t *p, int nb)
{
    const __m512i scales = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                            WORD4(27), WORD4(18), WORD4(9), WORD4(0));
    const __m512i low = _mm512_set1_epi8(15);
    __m512i a = load_words(p, 0, 9, nb), b = load_words(p, 4, 9, nb);
    __m512i q = _mm512_permutex2var_epi16(a, LANES(9, 1, 0, 4), b);
    struct wq w;
    w.lo = _mm512_and_si512(q, low);
    w.hi = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
    w.d = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(scales, a)));
    return w;
}

PRIM struct wq wq_q8_0(const uint8_t *p, int nb)
{
    const __m512i scales = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                            WORD4(51), WORD4(34), WORD4(17), WORD4(0));
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i a = load_words(p, 0, 17, nb), b = load_words(p, 32, 17, nb);
    __m512i c = load_words(p, 4, 17, nb), d = load_words(p, 36, 17, nb);
    struct wq w;
    w.lo = _mm512_xor_si512(_mm512_permutex2var_epi16(a, LANES(17, 1, 0, 32), b), flip);
    w.hi = _mm512_xor_si512(_mm512_permutex2var_epi16(c, LANES(17, 9, 4, 36), d), flip);
    w.d = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(a, scales, b)));
    return w;
}

PRIM VF dot_groups(VF acc, __m512i start, struct wq w, struct xq x)
{
    __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, w.lo, x.lo), w.hi, x.hi);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(w.d, x.d), acc);
}

PRIM VF dq_q8_0(VF acc, struct wq w, struct xq x)
{
    return dot_groups(acc, x.start_q8_0, w, x);
}

PRIM VF dq_q4_0(VF acc, struct wq w, struct xq x)
{
    return dot_groups(acc, x.start_q4_0, w, x);
}

/* nb blocks of four rows: one conversion and one product make all sixteen pairs of scales (d), and of a row's nibbles
 * three blocks come by one permutation of words, the first by a load of its own. */
PRIM VF step_q4_0(VF acc, const uint8_t *p, int nb, int r, VF d, struct xq x)
{
    const __m512i low = _mm512_set1_epi8(15), each = _mm512_set_epi32(4 * r + 3, 4 * r + 3, 4 * r + 3, 4 * r + 3, 4 * r + 2,
                                                                      4 * r + 2, 4 * r + 2, 4 * r + 2, 4 * r + 1, 4 * r + 1,
                                                                      4 * r + 1, 4 * r + 1, 4 * r, 4 * r, 4 * r, 4 * r);
    __m512i q = _mm512_permutexvar_epi16(LANES(9, 1, 4, 4), load_words(p, 4, 9, nb));
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const void *)(p + 2)), 0);
    __m512i dot = _mm512_dpbusd_epi32(x.start_q4_0, _mm512_and_si512(q, low), x.lo);
    dot = _mm512_dpbusd_epi32(dot, _mm512_and_si512(_mm512_srli_epi16(q, 4), low), x.hi);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(each, d), acc);
}

/* One block of four rows, the same way: it is a vector's first lane, and needs no permutation. */
PRIM VF block_q4_0(VF acc, const uint8_t *p, int r, VF d, struct xq x)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q = _mm512_zextsi128_si512(_mm_loadu_si128((const void *)(p + 2)));
    __m512i dot = _mm512_dpbusd_epi32(x.start_q4_0, _mm512_and_si512(q, low), x.lo);
    dot = _mm512_dpbusd_epi32(dot, _mm512_and_si512(_mm512_srli_epi16(q, 4), low), x.hi);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_maskz_permutexvar_ps(15, _mm512_set1_epi32(r), d), acc);
}

PRIM void block4_q4_0(VF acc[4], const uint8_t *const row[4], size_t o, struct xq x)
{
    uint64_t halves = half_at(row[0] + o) | half_at(row[1] + o) << 16 | half_at(row[2] + o) << 32 | half_at(row[3] + o) << 48;
    VF d = _mm512_castps128_ps512(_mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves)), _mm512_castps512_ps128(x.d)));
    acc[0] = block_q4_0(acc[0], row[0] + o, 0, d, x);
    acc[1] = block_q4_0(acc[1], row[1] + o, 1, d, x);
    acc[2] = block_q4_0(acc[2], row[2] + o, 2, d, x);
    acc[3] = block_q4_0(acc[3], row[3] + o, 3, d, x);
}

PRIM void step4_q4_0(VF acc[4], const uint8_t *const row[4], size_t o, int nb, const uint8_t *group)
{
    const struct xq x = x_q8(group);
    if (nb == 1) {
        block4_q4_0(acc, row, o, x);
        return;
    }
    VF d = _mm512_mul_ps(_mm512_cvtph_ps(halves4x4(row, o, nb)), _mm512_broadcast_f32x4(_mm_loadu_ps((const void *)group)));
    acc[0] = step_q4_0(acc[0], row[0] + o, nb, 0, d, x);
    acc[1] = step_q4_0(acc[1], row[1] + o, nb, 1, d, x);
    acc[2] = step_q4_0(acc[2], row[2] + o, nb, 2, d, x);
    acc[3] = step_q4_0(acc[3], row[3] + o, nb, 3, d, x);
}

/* Scales that are read back one by one are broadcast by the loads of what multiplies with them, which costs nothing; a
 * compiler that knew them would shuffle registers on the port that unpacks nibbles. */
#define KEEP_IN_MEMORY(x) __asm__("" : "+m"(x))

#endif
#endif
