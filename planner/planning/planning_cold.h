#ifndef PLANNER_PLANNING_PLANNING_COLD_H
#define PLANNER_PLANNING_PLANNING_COLD_H

/* A budget of quality in exact mode: neurons that are not in hot prefixes are left out where that loses so little that all of it is within
 * the budget. One bound in nats holds for every neuron of the model (cold_bound of a plan). */
#include "common/offline/hwdb/hwdb.h"
#include "planner/inputs/inputs.h"
#include "planner/planning/request.h"

/* planning_make, and where the request asks for exact mode with max_kl above 0 with the bound that it leaves room for: what is resident
 * and the bound depend on each other, so both are chosen in turn, a few times at most, and the fastest plan within the budget is taken.
 * in keeps the plan's bound (inputs_use_cold). */
int planning_cold_make(const struct request *q, struct inputs *in, const struct hw *hw, struct notes *notes, struct plan *out,
                       struct err *e);

/* Mean divergence from exact mode that a limit's bound is expected to cause, nats; for inputs that know. */
double planning_cold_kl(const struct inputs *in, const struct plan_limit *l);

#endif
