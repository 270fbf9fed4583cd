#ifndef PLANNER_CHECK_ALTERNATIVES_H
#define PLANNER_CHECK_ALTERNATIVES_H

/* What a limit could have been instead, priced by the same equations, without a solver. One owner thread. */
#include "common/plan/plan.h"

#include "planner/check/check_fields.h"
#include "planner/search/problem.h"

/* Fields of limits[li] whose values have no bearing on its account or any of its figures become doubts. pr: with the tables of this
 * limit. f may be NULL: nothing is done. */
int alternatives_doubts(struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e);

/* ERR_INFEASIBLE where the limit's gap is refuted: with more whole layers in memory, within memory_bytes, it is faster by more. */
int alternatives_refute_gap(const struct problem *pr, const struct plan *p, const char *name, int li, struct err *e);

#endif
