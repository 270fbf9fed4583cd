#ifndef COMMON_KERNELS_KERNELS_X86_GEMM_IMPL_H
#define COMMON_KERNELS_KERNELS_X86_GEMM_IMPL_H

/* What the primitives of kernels_gemm_impl.h share on x86-64. */
#if defined(__AVX2__)

#include "common/kernels/kernels_k_impl.h"

#include <immintrin.h>

INLINE void gemm_extra(struct gemm_extra *e, const struct gemm_tile *a, int T, int sub, int mins)
{
    for (int t = 0; t < T; t++)
        for (int g = 0; g < a->groups; g++) {
            const uint8_t *x = a->x + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group);
            const __m128i s = _mm_loadu_si128((const void *)(x + offsetof(struct kernels_q8_group, sum)));
            UNROLL
            for (int h = 0; h < 32 / sub; h++) {
                const uint32_t one = sub == 32 ? 0x10001 : h ? 0x10000 : 1;
                if (mins)
                    _mm_storeu_ps(&e->sum[t][h][4 * g], _mm_cvtepi32_ps(_mm_madd_epi16(s, _mm_set1_epi32((int)one))));
                _mm_storeu_si128((void *)&e->start[t][h][4 * g],
                                 _mm_madd_epi16(s, _mm_set1_epi32((int)(one * (uint16_t)-a->offset))));
            }
        }
}

#endif
#endif
