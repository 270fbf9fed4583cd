#ifndef COMMON_KERNELS_QUANT_GRID_H
#define COMMON_KERNELS_QUANT_GRID_H

/* Blocks whose elements are set one by one while their scales stay: what corrects errors of rounding needs it. */
#include <stdint.h>

/* What element i of a block may be: base[i] + step[i] * q, q in [0, top]. */
struct quant_grid {
    int top;
    float base[256], step[256];
};

struct quant_grid_type {
    void (*read)(struct quant_grid *g, const void *block);
    void (*write)(void *block, const int *q); /* q[block_elems] */
};

/* Q2_K, Q3_K, Q4_K and Q4_0; NULL: another type. All of these have quant_traits.quant_by. */
const struct quant_grid_type *quant_grid_type(uint32_t type);

#endif
