#ifndef PLANNER_SEARCH_PROBLEM_PARTS_H
#define PLANNER_SEARCH_PROBLEM_PARTS_H

/* What the files of problem.h share among themselves. */
#include "planner/search/problem.h"

/* The layer that is worked out for this one, mostly itself: the first where all are alike; in a sketch the one that speaks
 * for it. */
int problem_representative(const struct problem *p, int layer);

/* Room for one more than n elements of an array of *cap; NULL: no memory, the array stays as it is. */
void *problem_grow(void *at, int n, int *cap, size_t size);

/* The ways of a mix, or one by itself, end before this one. */
int problem_mix_end(const struct problem *p, int first);

/* The least that predictors of a layer take in any way of a group. */
uint64_t problem_least_predictor(const struct problem *p, const struct problem_group *g, int layer);

/* Does another problem replay the same lists over the same units? Then its policies and tables, chosen under the same
 * request, can be copied. */
int problem_replays_equivalent(const struct problem *p, const struct problem *o);
int problem_copy_tables(struct problem *p, const struct problem *like, struct err *e);

/* How missing units are read, by each of the problem's rules: at every point of the tables, or at those of residencies alone. */
void problem_read_rules(struct problem *p, int all);

/* Fill policy (where policy is negative: the one that misses less) and tables of all ways. */
int problem_replay(struct problem *p, int policy, struct err *e);

/* Residencies of a layer, by bytes; the caller's. */
int problem_layer_keeps(struct problem *p, int variant, int batch, int layer, struct problem_residencies *out, struct err *e);

/* What a point of a curve stands for. */
struct problem_id {
    int residency, variant, streamed;
};
static inline uint32_t problem_id(struct problem_id x)
{
    return (uint32_t)((x.residency * 2 + x.streamed) * PROBLEM_MAX_VARIANTS + x.variant);
}
static inline struct problem_id problem_id_of(uint32_t id)
{
    uint32_t rest = id / PROBLEM_MAX_VARIANTS;
    return (struct problem_id){ (int)(rest / 2), (int)(id % PROBLEM_MAX_VARIANTS), (int)(rest % 2) };
}

/* Curves, fixed and floor of a configuration: device figures of all layers at a choice. least_depth: c->depth; less, a power
 * of two as that is: no depth from there on is faster than the curves in any point, whatever it is. */
int problem_fill_curves(struct problem *p, const struct cost_choice *c, int least_depth, struct solve_config *out,
                        struct err *e);
int64_t problem_ticks(double ns);

/* Free what problem_fill made. */
void problem_unfill(struct problem *p);
void problem_drop_curves(struct problem *p, int config);

/* Configurations that differ in depth alone, each twice as deep as the one before it: n from first, every step. */
struct problem_run {
    int first, step, n;
};

/* Bounds of a problem's configurations, whose choices and fixed bytes are known. */
struct problem_search {
    struct problem *p;
    struct problem_run *run;            /* closed ones: known by the bound of all their members */
    int n, cap;
    unsigned char *priced;              /* by configuration: its bound is its own */
    int rounded;                        /* which objective is of; -1: none */
    int64_t objective;                  /* SOLVE_NEVER: not feasible */
};

/* Room for `most` configurations; then runs are added and opened as far as they may be worth it, and again. After that a
 * configuration that may be taken, or is within 1 % of it, has its bound, and the most promising have curves; others have bounds
 * that they cannot beat, beyond that 1 %. If none is feasible all have their own. */
int problem_search_new(struct problem_search *s, struct problem *p, int most, struct err *e);
int problem_search_add(struct problem_search *s, struct problem_run run, struct err *e);
int problem_search_run(struct problem_search *s, struct err *e);
void problem_search_done(struct problem_search *s);

#endif
