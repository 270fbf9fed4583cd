#ifndef PLANNER_SEARCH_ACCOUNT_H
#define PLANNER_SEARCH_ACCOUNT_H

/* What a choice takes in memory, by the account that the runtime keeps to (common/plan/budget.h). Pure; thread-safe. */
#include "planner/cost/cost.h"
#include "planner/search/limits.h"
#include "planner/space/space.h"

/* What the account has for the device's accelerator of that name, and such work beside neurons; NULL or one that is not there, or without
 * figures of a device (hw NULL): nothing. */
struct budget_engine account_engine(const struct hw *hw, const struct inputs *in, const char *name, enum plan_work work);

/* Account of a choice with these residencies (residencies[n_layers]; NULL: none), at max_batch. Of a group of several
 * variants, with the predictors that take least. More than any memory, where the limit's elastic group has no room for it. */
int account_of(const struct space *s, const struct cost_choice *c, const struct limits *lim,
               const struct cost_residency *residencies, struct budget *out, struct err *e);

/* The choice that takes least: the group that needs least, one thread, one read in flight. */
int account_least(const struct space *s, const struct limits *lim, struct cost_choice *out, struct err *e);

/* A choice of a group before its cores, queue and backend are known: account_least's, and each configuration's. */
struct cost_choice account_choice(const struct space *s, int group, const struct limits *lim);

#endif
