/* NEON: the block types beside Q4_0 and Q8_0. */
#include "common/kernels/kernels_neon_k_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    int16x8_t p = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    return vpadalq_s16(acc, vmlal_high_s8(p, w, x));
}

#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_neon(struct kernels *k)
{
    quant_iq_codebooks_expand();
    fill_k_f32(k);
    fill_k_q8(k);
}
