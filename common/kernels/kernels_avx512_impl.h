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
#define KERNELS_TILE_3
#define KERNELS_PREFETCH 2304
#define KERNELS_AXPY_R   8
#define KERNELS_AXPY_B   2
#define KERNELS_AXPY_LEAD 512
#define KERNELS_SCALES4X4
#define KERNELS_SUM4
#define KERNELS_BLOCK_SUMS
#define KERNELS_TURNED
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

/* ---- int8: a group of four blocks, one in each 128-bit lane ---- */

/* lo: the first 16 elements of each block, hi: the others. */
struct kg {
    __m512i lo, hi;
};

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

PRIM struct kg kg_q4_0(const uint8_t *p, int g, int nb)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q = _mm512_permutexvar_epi16(LANES(9, 1, 4, 4), load_words(p, 4, 9, nb));
    (void)g;
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const void *)(p + 2)), 0);
    return (struct kg){ _mm512_and_si512(q, low), _mm512_and_si512(_mm512_srli_epi16(q, 4), low) };
}

PRIM struct kg kg_q8_0(const uint8_t *p, int g, int nb)
{
    __m512i a = load_words(p, 0, 17, nb), b = load_words(p, 32, 17, nb);
    __m512i c = load_words(p, 4, 17, nb), d = load_words(p, 36, 17, nb);
    (void)g;
    return (struct kg){ _mm512_permutex2var_epi16(a, LANES(17, 1, 0, 32), b), _mm512_permutex2var_epi16(c, LANES(17, 9, 4, 36), d) };
}

/* Scales that are read back one by one are broadcast by the loads of what multiplies with them, which costs nothing; a
 * compiler that knew them would shuffle registers on the port that unpacks nibbles. */
#define KEEP_IN_MEMORY(x) __asm__("" : "+m"(x))

#endif
#endif
