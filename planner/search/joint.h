#ifndef PLANNER_SEARCH_JOINT_H
#define PLANNER_SEARCH_JOINT_H

/* What several batch sizes can reach together, where each has its own cores and queue depth and all have the same neurons in memory:
 *
 *     minimise  sum over b of w_b T_b(c_b, x)     over configurations c_b and one residency x of every layer
 *
 * Branch and bound over sets of configurations. A node allows each batch size a set of its own; they share variant group, back end, rule
 * for coalesced reads and reading ahead. At a residency, no configuration of a set is faster than the least of them all, so the node's
 * bound is the relaxed optimum (solve.h) of one curve for each layer, whose points have the sum over batch sizes of w_b times that least.
 * First, whatever of a set is proven too slow beside all of the other sets is taken out of it; then nodes are split, the one with the
 * least bound first. Nodes that are closed are together all there is, and prove the least of their bounds. One owner thread. */
#include "planner/search/limits.h"
#include "planner/search/price.h"
#include "planner/search/problem.h"

/* Configurations of a batch size that differ in depth alone: depths from least_depth to the deepest's, each twice the one before. */
struct joint_run {
    struct cost_choice deepest;
    int least_depth;
    int64_t bound;                      /* of the batch size by itself: in which order sets are split */
};

/* Tries a choice for each batch size as a plan; *objective: that of the best plan known, lowered where this one is taken. */
typedef int joint_leaf_fn(void *ctx, const struct cost_choice *choice, int64_t *objective, struct err *e);

struct joint_node;
struct joint {
    const struct problem *p;            /* borrowed, as is lim */
    const struct limits *lim;
    int n;                              /* batch sizes */
    int64_t weight[SOLVE_MAX_BATCHES];
    int64_t bound;                      /* no plan has an objective below it; SOLVE_NEVER: no plan fits */
    int finished;                       /* nothing was left open for want of work */
    struct joint_item *item;            /* runs of all batch sizes, and parts of them */
    int n_items, cap_items;
    struct joint_node *closed, *open;
    int n_closed, cap_closed, n_open, cap_open, evaluated;
    struct price_steps like;            /* of the queue that is looked at: its points */
};

/* weight: w_b of n batch sizes. Then all configurations of each are added, as runs that have none in common. */
void joint_init(struct joint *j, const struct problem *p, const struct limits *lim, const int64_t *weight, int n);
int joint_add(struct joint *j, int batch, const struct joint_run *run, struct err *e);
void joint_done(struct joint *j); /* accepts a zeroed one */

/* objective: of the best plan known, SOLVE_NEVER: none. Choices that may beat it by more than rounding are given to leaf. */
int joint_search(struct joint *j, int64_t objective, joint_leaf_fn *leaf, void *ctx, struct err *e);

/* Writes the proof of the certificate's newest claim, which is about all batch sizes: a configuration for each closed node. Returns how
 * many are written without being refuted, 0 for a proof; or an error. */
int joint_certify(struct joint *j, struct certificate *out, struct err *e);

#endif
