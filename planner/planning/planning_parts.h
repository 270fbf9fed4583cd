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

/* What is to be said of it, into its notes; which accelerator it has. */
int planning_notes(const struct problem *p, const struct request *q, struct plan *plan, struct err *e);

/* One limit of the plan anew, within limits that say more than the request: its chunk, and room that it shares. 1: *out is filled, with
 * its arrays; 0: there is none. */
int planning_within(struct problem *p, const struct request *q, const struct limits *lim, const struct plan *plan,
                    struct planning_bound *bound, struct plan_limit *out, struct err *e);

/* Elastic groups of a plan, limits between which a running model moves: what it cannot change meanwhile they share, the choices that
 * texts depend on, and the account's fixed part, with room for what any of them needs. The limits were solved each for itself, and are
 * replaced: from the largest down, as many as can be in one group, each solved again within it. Shared is a choice of variants that one of
 * them has (the one of most speed over all), the largest chunk with which the least limit loses no more than PLANNING_ELASTIC_PART, and
 * the most threads, lanes, reads in flight and the longest reads that any has. A limit that has no room for these is in no group, and a
 * note says so. bounds[n_limits] follow: what is proven is so with and without the group. */
#define PLANNING_ELASTIC_PART 33 /* of a token's time */
int planning_elastic(struct problem *p, const struct request *q, struct plan *plan, struct planning_bound *bounds, struct err *e);

/* Of a token, at the batch sizes by their weights. */
double planning_mean_speed(const struct plan_limit *l, const int *weight);

#endif
