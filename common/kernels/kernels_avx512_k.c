/* AVX-512 with VNNI: the block types beside Q4_0 and Q8_0, and the products with int8 of all. */
#include "common/kernels/kernels_avx512_k_impl.h"

void kernels_fill_k_avx512(struct kernels *k)
{
    quant_iq_codebooks_expand();
    fill_k_f32(k);
    fill_k_q8(k);
}
