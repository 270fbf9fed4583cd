#ifndef PLANNER_PLANNING_PLANNING_ALTERNATIVES_H
#define PLANNER_PLANNING_PLANNING_ALTERNATIVES_H

/* Other ways to make passes than the one that was chosen: for a runtime that sees what passes take. */
#include "planner/search/problem.h"

/* What a decode step at batch 1 takes by an alternative of a limit, term by term. own: the limit's choice at that batch size. */
int planning_alternative_times(const struct problem *p, enum plan_cost cost, const struct plan_limit *l, const struct cost_choice *own,
                               const struct plan_alternative *a, const struct cost_residency *residencies, double ns[PLAN_TERMS],
                               struct err *e);

/* Chooses them for a limit that is filled in otherwise, as far as its memory has room for them, with their times. None where an
 * accelerator has work, and by the paper's equations. cores: that the request lets have, of a device with one class of them. */
int planning_alternatives(const struct problem *p, enum plan_cost cost, const struct cost_choice *own, int cores,
                          const struct cost_residency *residencies, struct plan_limit *l, struct err *e);

#endif
