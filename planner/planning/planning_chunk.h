#ifndef PLANNER_PLANNING_PLANNING_CHUNK_H
#define PLANNER_PLANNING_PLANNING_CHUNK_H

/* How many tokens of a prompt one pass takes. A larger chunk reads what is not in memory, and sweeps all weights, less often; its
 * scratch takes memory from neurons. */
#include "planner/search/problem.h"

/* Sets lim->prefill_chunk, a part 1 / 2^k of the largest (PLANNING_MOST_CHUNK, or the context), to the one of least
 *     T(c) + weight * P(c),   (M24) P(c) = (V_missing(c) / B_io + V / B_mem) / c,
 * of equals the largest. T: bound on a decoded token's time in what the chunk's scratch leaves; V: bytes of all weights; V_missing: what of
 * the neurons does not fit then, read once for each chunk. What a token of a prompt takes whatever the chunk is, is left out. A figure
 * that the device lacks leaves its term out. least: the choice with the least account. The problem is filled for some chunk. Where no
 * chunk leaves a feasible problem, the largest whose scratch fits, or 1. Errors: those of the account and of problem_fill. */
#define PLANNING_MOST_CHUNK 512
int planning_chunk(struct problem *p, struct limits *lim, const struct cost_choice *least, double weight, struct err *e);

/* The speed of a filled problem that nothing can exceed, at batch 1; with any_memory, whatever the limit. */
double planning_speed_bound(const struct problem *p, int any_memory);

#endif
