#ifndef COMMON_KERNELS_KERNELS_AVX2_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX2_IMPL_H

/* AVX2 with FMA and F16C: eight float lanes, sixteen registers, so tiles are at most 4 rows x 2
 * tokens. The int8 products go through vpmaddubsw, whose 16-bit sums saturate: a pair of Q8_0
 * products is at most 2 * 128 * 127 = 32512, which fits because activations never are -128; Q4_0
 * sums stay below 8000. */
#if defined(__AVX2__)

#include "common/kernels/kernels_impl.h"

#include <immintrin.h>
#include <string.h>

#define KERNELS_VN       8
#define KERNELS_TILE_T   2
#define KERNELS_PREFETCH 2304
#define KERNELS_BLOCK_SUMS
#define KERNELS_SCALES4_K4
#define KERNELS_TWO_ROWS
#define VF               __m256
#define PRIM             static inline __attribute__((always_inline))

/* ---- floats ---- */

PRIM VF vf_zero(void)
{
    return _mm256_setzero_ps();
}

PRIM VF vf_set1(float f)
{
    return _mm256_set1_ps(f);
}

PRIM VF vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

PRIM void vf_store(float *p, VF v)
{
    _mm256_storeu_ps(p, v);
}

PRIM VF vf_add(VF a, VF b)
{
    return _mm256_add_ps(a, b);
}

PRIM VF vf_mul(VF a, VF b)
{
    return _mm256_mul_ps(a, b);
}

PRIM VF vf_fma(VF a, VF b, VF c)
{
    return _mm256_fmadd_ps(a, b, c);
}

PRIM __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

PRIM VF vf_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

PRIM void vf_store_part(float *p, VF v, int n)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* Halves onto each other, down to one. */
PRIM float vf_sum(VF v)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* ---- weights as floats ---- */

PRIM VF w_f32(const uint8_t *p, int v)
{
    return _mm256_loadu_ps((const void *)(p + 32 * v));
}

PRIM VF part_f32(const uint8_t *p, int n)
{
    return _mm256_maskload_ps((const void *)p, first_lanes(n));
}

PRIM VF w_f16(const uint8_t *p, int v)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 16 * v)));
}

PRIM __m128i part_16(const uint8_t *p, int n)
{
    uint16_t t[8] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return _mm_loadu_si128((const void *)t);
}

PRIM VF part_f16(const uint8_t *p, int n)
{
    return _mm256_cvtph_ps(part_16(p, n));
}

PRIM VF bf16_widen(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

PRIM VF w_bf16(const uint8_t *p, int v)
{
    return bf16_widen(_mm_loadu_si128((const void *)(p + 16 * v)));
}

PRIM VF part_bf16(const uint8_t *p, int n)
{
    return bf16_widen(part_16(p, n));
}

PRIM uint64_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

PRIM __m128 scales(const uint8_t *p, size_t block, int nb)
{
    uint64_t h = half_at(p);
    for (int b = 1; b < 4; b++)
        h |= b < nb ? half_at(p + (size_t)b * block) << 16 * b : 0;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)h));
}

PRIM void scales4(float d[4], const uint8_t *p, size_t block, int nb, float h)
{
    _mm_storeu_ps(d, _mm_mul_ps(_mm_set1_ps(h), scales(p, block, nb)));
}

PRIM VF w_q8_0(const uint8_t *p, int v)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 2 + 8 * v))));
}

/* A nibble becomes the last bits of a float whose unit in the last place is the nibble's weight in
 * its byte; taking that float (and the offset 8) away leaves the value. */
PRIM VF w_q4_0(const uint8_t *p, int v)
{
    const float base = v < 2 ? 0x1p23f : 0x1p19f;
    __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 2 + 8 * (v & 1))));
    q = _mm256_and_si256(q, _mm256_set1_epi32(v < 2 ? 0x0f : 0xf0));
    return _mm256_sub_ps(_mm256_or_ps(_mm256_castsi256_ps(q), vf_set1(base)), vf_set1(base + 8));
}

/* ---- int8: a group of four blocks as two pairs, with a block in each 128-bit lane ---- */

struct kg {
    __m256i lo[2], hi[2]; /* [i]: blocks 2i and 2i + 1; lo: the first 16 elements of each, hi: the others */
};

/* 16 bytes each at offset `at` of blocks 2i and 2i + 1. */
PRIM __m256i pair(const uint8_t *p, size_t block, size_t at, int i, int nb)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i a = 2 * i < nb ? _mm_loadu_si128((const void *)(p + (size_t)(2 * i) * block + at)) : zero;
    __m128i b = 2 * i + 1 < nb ? _mm_loadu_si128((const void *)(p + (size_t)(2 * i + 1) * block + at)) : zero;
    return _mm256_set_m128i(b, a);
}

PRIM struct kg kg_q8_0(const uint8_t *p, int g, int nb)
{
    struct kg w;
    (void)g;
    for (int i = 0; i < 2; i++) {
        w.lo[i] = pair(p, sizeof(struct quant_q8_0), 2, i, nb);
        w.hi[i] = pair(p, sizeof(struct quant_q8_0), 18, i, nb);
    }
    return w;
}

PRIM struct kg kg_q4_0(const uint8_t *p, int g, int nb)
{
    const __m256i low = _mm256_set1_epi8(15);
    struct kg w;
    (void)g;
    for (int i = 0; i < 2; i++) {
        __m256i q = pair(p, sizeof(struct quant_q4_0), 2, i, nb);
        w.lo[i] = _mm256_and_si256(q, low);
        w.hi[i] = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
    }
    return w;
}

#endif
#endif
