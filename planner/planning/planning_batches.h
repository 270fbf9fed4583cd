#ifndef PLANNER_PLANNING_PLANNING_BATCHES_H
#define PLANNER_PLANNING_PLANNING_BATCHES_H

/* Several batch sizes under one limit. Neurons in memory are the same for all of them (the runtime moves none between batches), as are
 * back end, lanes, the rule for coalesced reads, predictors and the cache's policy; each has its own cores and queue depth, and the
 * account has room for the most threads and the deepest queue of any.
 *
 * Each batch size is solved by itself first, as if it were alone. Then residencies for all are solved for with a configuration each, from
 * those that are best alone, and configurations are chosen anew for these residencies, until nothing gains. How much faster any
 * configurations with residencies for all could be, the search of planner/search/joint.h bounds; what it does not rule out is tried. One
 * owner thread. */
#include "planner/planning/request.h"
#include "planner/search/problem.h"

/* The plan of a limit. */
struct planning_chosen {
    int n_batches;
    struct cost_choice choice[SOLVE_MAX_BATCHES];   /* of each batch size; they differ in cores and depth alone */
    struct cost_residency *residencies;             /* [n_layers], of all; malloc'd */
    int64_t objective, bound;                       /* sums of w_b T_b, ticks */
    int finished;                                   /* each was solved to the end */
};

/* What the account of configurations that differ in cores and depth has room for: the cores of the one with most threads, the deepest
 * queue, the most lanes. */
struct cost_choice planning_largest(const struct cost_choice *c, int n);

void planning_chosen_done(struct planning_chosen *c); /* accepts a zeroed one */

/* Of a solution of all the problem's batch sizes, one or, by the paper's equations, several under one configuration: there the
 * residencies are those of a batch size, or of their sum, that are best for all. 1: taken; 0: none of them is fast enough. */
int planning_chosen_of(struct problem *p, const struct limits *lim, const struct solve_result *res, struct planning_chosen *out,
                       struct err *e);

/* Solves a filled problem of one batch size. The result is the caller's to free where 0 is returned. */
typedef int planning_solve_fn(struct problem *p, struct solve_result *res, struct err *e);

/* Of all batch sizes, from the solution of the first one; p is filled for lim, with only_batch 1. The other problems are filled here,
 * and solved by `solve`. 1: planned; 0: nothing is as fast as lim asks for, or ERR_*. */
int planning_batches(struct problem *p, const struct request *q, const struct limits *lim, const struct solve_result *first,
                     planning_solve_fn *solve, struct planning_chosen *out, struct err *e);

#endif
