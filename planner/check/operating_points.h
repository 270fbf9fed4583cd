#ifndef PLANNER_CHECK_OPERATING_POINTS_H
#define PLANNER_CHECK_OPERATING_POINTS_H

/* A plan's own points of the miss tables: for every limit, batch size and layer, the trace replayed through
 * common/plan/cache at exactly the prefix and slots that the plan gives the cold cache. What the planner took from
 * tables is verified without them. One owner thread. */
#include "common/plan/plan.h"

#include "planner/search/problem.h"

struct points {
    int n_limits, n_batches, n_layers;
    struct replay_figures *at;  /* [n_limits][n_batches][n_layers]; NULL: nothing is looked up */
};

/* Replay for limits[n] of a plan, all of one policy and variant; each layer's window is read once. p: of problem_shape,
 * with the plan's layout and that variant alone, of a model with a window. Batch sizes that the inputs have no figures
 * for are left out. */
int operating_points_replay(struct points *out, const struct problem *p, const struct plan *plan,
                  const struct plan_limit *const *limits, int n, struct err *e);
void operating_points_done(struct points *p); /* accepts a zeroed one */

/* Make them the problem's tables, for problem_predict. i: index of the limit in the array given above. */
int operating_points_tables(const struct points *at, int i, struct problem *p, const struct plan *plan,
                  const struct plan_limit *l, struct err *e);

#endif
