#ifndef PLANNER_PLANNING_PLANNING_PARTS_H
#define PLANNER_PLANNING_PLANNING_PARTS_H

/* What the files of planning.h share among themselves. */
#include "planner/planning/planning.h"

/* What was proven of a limit under one layout, ticks (solve.h): bound <= any plan's objective, objective: that of the plan taken. */
struct planning_bound {
    int64_t bound, objective;
    int context;
};

/* The chunk of prompts is one for all layouts that are compared: the first one that leaves memory for it decides it, by limit. */
struct planning_chunks {
    int of[PLAN_MAX_LIMITS];    /* 0: not decided */
    int by_speed;               /* only chunks with which the least speed that was asked for may be reached */
};

/* All limits under one layout. *score: sum of log speeds, of one sequence or, where more batch sizes are planned for, of the harmonic
 * mean over them; bounds[q->n_memory]. 1: planned; 0: nothing it could reach is as much as
 * `least`. */
int planning_layout(struct problem *p, const struct request *q, struct planning_chunks *chunks, double least, struct plan *out,
                    struct planning_bound *bounds, double *score, struct err *e);

/* Of a token, at the batch sizes by their weights. */
double planning_mean_speed(const struct plan_limit *l, const int *weight);

#endif
