#ifndef PLANNER_ADVICE_H
#define PLANNER_ADVICE_H

/* An infeasible request in the user's words: which of his limits contradict each other (the core), and the nearest
 * value of each that would do, found with the same solver, so that following the advice gives a plan. */
#include "planner/problem.h"

/* Always fills e (ERR_INFEASIBLE, or another error on the way) and returns its code. The problem is filled for
 * lim. */
int advice_infeasible(struct problem *p, const struct problem_limits *lim, unsigned core, struct err *e);

/* Least memory of any plan at this context and batch size: one thread, one read in flight, one token a pass, nothing
 * resident. */
int advice_floor(const struct problem *p, const struct problem_limits *lim, uint64_t *bytes, struct err *e);

#endif
