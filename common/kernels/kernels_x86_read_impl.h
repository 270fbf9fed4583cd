#ifndef COMMON_KERNELS_KERNELS_X86_READ_IMPL_H
#define COMMON_KERNELS_KERNELS_X86_READ_IMPL_H

/* What the primitives of kernels_read_impl.h share on x86-64. */
#if defined(__AVX2__)

#define K16 __m128i

#include "common/kernels/kernels_k_impl.h"

#include <immintrin.h>

/* From columns' order to kg_store's. */
INLINE __m256i signs_order(__m256i s)
{
    return _mm256_shuffle_epi8(s, _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                                   0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

/* The eighth sign, of bytes with seven: it makes the number of negative ones even. */
INLINE __m256i signs_eighth(__m256i s)
{
    const __m256i odd = _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
                                         0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i four = _mm256_set1_epi8(15), high = _mm256_and_si256(_mm256_srli_epi16(s, 4), four);
    return _mm256_or_si256(s, _mm256_xor_si256(_mm256_shuffle_epi8(odd, _mm256_and_si256(s, four)), _mm256_shuffle_epi8(odd, high)));
}

/* Of words with four times seven. */
INLINE __m256i signs_sevens(__m256i w)
{
    const __m256i twos = _mm256_or_si256(_mm256_and_si256(w, _mm256_set1_epi32(0x3fff)),
                                         _mm256_and_si256(_mm256_slli_epi32(w, 2), _mm256_set1_epi32(0x3fff0000)));
    return signs_eighth(_mm256_or_si256(_mm256_and_si256(twos, _mm256_set1_epi16(0x7f)),
                                        _mm256_and_si256(_mm256_slli_epi16(twos, 1), _mm256_set1_epi16(0x7f00))));
}

INLINE __m256i words8(const uint8_t *p, size_t stride)
{
    if (stride == 4)
        return _mm256_loadu_si256((const void *)p);
    const __m256 a = _mm256_loadu_ps((const void *)(p - 4)), b = _mm256_loadu_ps((const void *)(p + 28));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8);
}

INLINE K16 k_tops(const uint8_t *p, size_t stride)
{
    const __m256i twice = _mm256_set1_epi64x(0x0f0f0b0b07070303);
    const __m256i t = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words8(p, stride), twice), 0x08);
    return _mm_and_si128(_mm_srli_epi16(_mm256_castsi256_si128(t), 4), _mm_set1_epi8(15));
}

INLINE K16 k_sixteen(const uint8_t *p)
{
    const __m128i q = _mm_loadl_epi64((const void *)p);
    return _mm_and_si128(_mm_unpacklo_epi8(q, _mm_srli_epi16(q, 4)), _mm_set1_epi8(15));
}

INLINE K16 k_eight(const uint8_t *p)
{
    const __m128i q = _mm_cvtsi32_si128((int)k_u32(p)), n = _mm_unpacklo_epi8(q, _mm_srli_epi16(q, 4));
    return _mm_and_si128(_mm_unpacklo_epi8(n, n), _mm_set1_epi8(15));
}

INLINE K16 k_odd(K16 n)
{
    return _mm_or_si128(_mm_add_epi8(n, n), _mm_set1_epi8(1));
}

INLINE void put_eights(uint8_t *to, const uint64_t w[4], const uint8_t signs[4])
{
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i v = _mm256_set_epi64x((long long)w[3], (long long)w[2], (long long)w[1], (long long)w[0]);
    const __m256i s = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)k_u32(signs)), byte), bit);
    const __m256i negative = _mm256_cmpeq_epi8(s, bit);
    _mm256_storeu_si256((void *)to, _mm256_sub_epi8(_mm256_xor_si256(v, negative), negative));
}

#endif
#endif
