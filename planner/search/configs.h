#ifndef PLANNER_SEARCH_CONFIGS_H
#define PLANNER_SEARCH_CONFIGS_H

/* The configurations of a device under one memory limit: combinations of variant group, cores of each class, I/O backend, queue
 * depth and rule for coalesced reads, as the solver's problem. Which of them get curves is up to bounds.h. One owner thread. */
#include "planner/cost/cost.h"
#include "planner/search/limits.h"
#include "planner/solve/solve.h"
#include "planner/space/residencies.h"
#include "planner/space/space.h"

struct configs {
    struct solve_problem sp;
    struct cost_choice *choices;        /* [sp.n_configs], by solve_config.id */
};

/* All configurations, each with its bounds, the most promising with curves. What *out held is the caller's to free. */
int configs_fill(struct configs *out, const struct space *s, const struct residencies *residencies, const struct limits *lim,
                 struct err *e);
void configs_done(struct configs *c); /* accepts a zeroed one */

#endif
