/* Armv8.2 dot products: what NEON does, with sdot for the int8 products. */
#include "common/kernels/kernels_neon_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

#define KERNELS_Q8_ONLY
#define KERNELS_TILE_3 /* 7 (Q8_0) to 12 % (Q4_0) fewer instructions than two and one */
#include "common/kernels/kernels_simd_impl.h"

void kernels_fill_dotprod(struct kernels *k)
{
    k->name = "dotprod";
    fill_q8(k);
    kernels_fill_k_dotprod(k);
}
