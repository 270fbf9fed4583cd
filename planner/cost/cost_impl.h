#ifndef PLANNER_COST_COST_IMPL_H
#define PLANNER_COST_COST_IMPL_H

/* What the files of cost.h share. */
#include "planner/cost/cost.h"

/* A row product of a weight type, (M1)'s tau: the planned activation form, else float activations of the same type, else for types of
 * quant blocks the product of Q4_0 or Q8_0. 0: unknown, noted. */
double cost_product_ns(const struct hw *hw, const struct cost_choice *c, uint32_t type, enum hw_pattern pattern, int row_len, int batch,
                       struct notes *notes);

/* Storage figures of a choice, into those of *out whose names say so: curves, streams, CPU time of reads. After cost_work_rates. */
void cost_storage_rates(const struct hw *hw, const struct layout_shape *s, const struct cost_choice *c, struct cost_rates *out,
                        struct notes *notes);

#endif
