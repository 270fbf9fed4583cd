#ifndef PACKER_CORRECTED_H
#define PACKER_CORRECTED_H

/* Gates in fewer bits, error-corrected: what rounding one weight of a row changes in the row's products with the inputs that the trace
 * sampled, the weights that are not rounded yet make up for, as far as they can (GPTQ, Frantar et al., arXiv:2210.17323). Scales are those
 * that quant_traits.quant_by finds, of types that have a grid (quant_grid.h). */
#include "common/base/pool.h"
#include "common/offline/trace/trace.h"

struct corrected;

/* Can rows of d_model elements be made in this type from this trace? Of a trace without samples and of a type without a grid no. */
int corrected_can(const struct trace *t, uint32_t type);

/* linalg_init comes first. The pool is the caller's. */
int corrected_new(struct trace *t, struct pool *pool, struct corrected **out, struct err *e);
void corrected_free(struct corrected *c);

/* Bytes at most while it works. */
uint64_t corrected_memory(int d_model);

/* n rows of d_model elements, from any type into another, for the inputs of a layer: the same bits whatever number of threads. The layer's
 * inputs are read where they are another layer's than those of the call before. */
int corrected_rows(struct corrected *c, int layer, const uint8_t *from, uint32_t from_type, uint8_t *to, uint32_t to_type, int n,
                   struct err *e);

#endif
