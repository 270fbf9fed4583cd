/* Armv8.2 dot products: the block types beside Q4_0 and Q8_0. */
#include "common/kernels/kernels_neon_k_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

#define KERNELS_Q8_ONLY
#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_dotprod(struct kernels *k)
{
    fill_k_q8(k);
}
