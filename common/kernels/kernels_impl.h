#ifndef COMMON_KERNELS_KERNELS_IMPL_H
#define COMMON_KERNELS_KERNELS_IMPL_H

/* What the tiers share: their entry points and the loops around a register tile. Included by
 * kernels.c and kernels_*.c only. */
#include "common/kernels/kernels.h"

void kernels_fill_scalar(struct kernels *k);
void kernels_fill_avx2(struct kernels *k);
void kernels_fill_avx512(struct kernels *k);
void kernels_fill_neon(struct kernels *k);
void kernels_fill_dotprod(struct kernels *k);
void kernels_fill_i8mm(struct kernels *k);

/* Activations of a block whose largest magnitude is below this are zero: 127 / max must not
 * overflow. */
#define KERNELS_Q8_TINY 0x1p-100f

#endif
