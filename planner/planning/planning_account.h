#ifndef PLANNER_PLANNING_PLANNING_ACCOUNT_H
#define PLANNER_PLANNING_PLANNING_ACCOUNT_H

#include "planner/search/problem.h"

/* The account of a plan limit: that of its dearest batch size. engine: what all of them have beside, or NULL. */
int planning_account(const struct problem *p, const struct plan_limit *l, const char *engine, struct budget *out, struct err *e);

#endif
