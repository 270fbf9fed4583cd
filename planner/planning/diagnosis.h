#ifndef PLANNER_PLANNING_DIAGNOSIS_H
#define PLANNER_PLANNING_DIAGNOSIS_H

/* An infeasible request in the user's words: which of his limits contradict each other (the core), and the nearest
 * value of each that would do, found with the same solver, so that a request with that value gives a plan. */
#include "planner/search/problem.h"

/* The same in numbers. What was asked for; bits of the core; and the nearest value of each limit that would do with the
 * others as they are: 0 where none would, or none was looked for. Speeds are tokens/s. */
struct diagnosis {
    int filled;                            /* the rest is filled */
    unsigned core;                         /* SOLVE_*; 0: max_kl alone */
    uint64_t memory_bytes;                 /* asked for */
    int context, max_batch;
    double min_tokens_per_s, max_kl;
    uint64_t near_memory_bytes;            /* the floor, or what the speed needs */
    uint64_t near_memory_bytes_at_batch_1; /* the floor with --max-batch 1, where more was asked for */
    int near_context;
    double near_speed;                     /* with this memory; */
    double near_speed_resident;            /* with any; */
    double near_speed_all_cores;           /* with this memory and all cores of the device */
    double near_max_kl, near_max_kl_recall;
    int near_cores;                        /* of any class */
};

/* Always fills e (ERR_INFEASIBLE, or another error on the way) and returns its code; out (may be NULL) gets the numbers.
 * The problem is filled for lim. */
int diagnosis_infeasible(struct problem *p, const struct limits *lim, unsigned core, struct diagnosis *out, struct err *e);

/* Least memory of any plan at this context and batch size: one thread, one read in flight, one token a pass, nothing
 * resident. */
int diagnosis_floor(const struct problem *p, const struct limits *lim, uint64_t *bytes, struct err *e);

#endif
