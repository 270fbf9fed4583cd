#ifndef PLANNER_PROBLEM_PARTS_H
#define PLANNER_PROBLEM_PARTS_H

/* What the files of problem.h share among themselves. */
#include "planner/problem.h"

/* The layer that is worked out for this one, mostly itself: the first where all are alike; in a sketch the one that speaks
 * for it. */
int problem_speaker(const struct problem *p, int layer);

/* Room for one more than n elements of an array of *cap; NULL: no memory, the array stays as it is. */
void *problem_grow(void *at, int n, int *cap, size_t size);

/* The ways of a mix, or one by itself, end before this one. */
int problem_mix_end(const struct problem *p, int first);

/* The least that predictors of a layer take in any way of a group. */
uint64_t problem_least_predictor(const struct problem *p, const struct problem_group *g, int layer);

/* Does another problem replay the same lists over the same units? Then its policies and tables, chosen under the same
 * request, can be copied. */
int problem_replays_alike(const struct problem *p, const struct problem *o);
int problem_copy_tables(struct problem *p, const struct problem *like, struct err *e);

/* How missing units are read, by each of the problem's rules: at every point of the tables, or at those of residencies alone. */
void problem_read_rules(struct problem *p, int all);

/* Fill policy (where policy is negative: the one that misses less) and tables of all ways. */
int problem_replay(struct problem *p, int policy, struct err *e);

/* Residencies of a layer, by bytes; the caller's. */
int problem_layer_keeps(struct problem *p, int way, int batch, int layer, struct problem_keeps *out, struct err *e);

/* What a point of a curve stands for. */
struct problem_id {
    int keep, way, streamed;
};
static inline uint32_t problem_id(struct problem_id x)
{
    return (uint32_t)((x.keep * 2 + x.streamed) * PROBLEM_MAX_WAYS + x.way);
}
static inline struct problem_id problem_id_of(uint32_t id)
{
    uint32_t rest = id / PROBLEM_MAX_WAYS;
    return (struct problem_id){ (int)(rest / 2), (int)(id % PROBLEM_MAX_WAYS), (int)(rest % 2) };
}

/* Curves, fixed and floor of a configuration: device figures of all layers at a choice. */
int problem_fill_curves(struct problem *p, const struct cost_choice *c, struct solve_config *out, struct err *e);
int64_t problem_ticks(double ns);

/* Free what problem_fill made. */
void problem_unfill(struct problem *p);

#endif
