#ifndef PLANNER_PLANNING_PLANNING_GUESSES_H
#define PLANNER_PLANNING_PLANNING_GUESSES_H

/* What guesses bring at a plan's limits (limits[].guesses): priced when a plan is made, and again when it is checked. */
#include "planner/planning/planning.h"
#include "planner/search/passes.h"

/* Of one limit, whose problem is pr: of planning_problem, or with its space alone. An error of passes_of. */
int planning_limit_guesses(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct plan_guesses *out,
                           struct err *e);

/* Of all limits, into the plan, and its revision. They change nothing else in it. */
int planning_guesses(struct plan *p, const struct inputs *in, const struct hw *hw, struct err *e);

#endif
