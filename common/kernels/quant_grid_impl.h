#ifndef COMMON_KERNELS_QUANT_GRID_IMPL_H
#define COMMON_KERNELS_QUANT_GRID_IMPL_H

/* Types' rows of quant.c's table of grids, in the files of their conversions. */
#include "common/kernels/quant_grid.h"

#define QUANT_GRID_FNS(name)                                           \
    void quant_##name##_grid(struct quant_grid *g, const void *block); \
    void quant_##name##_put(void *block, const int *q);
QUANT_GRID_FNS(q4_0)
QUANT_GRID_FNS(q2_k)
QUANT_GRID_FNS(q3_k)
QUANT_GRID_FNS(q4_k)
#undef QUANT_GRID_FNS

#endif
