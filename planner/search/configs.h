#ifndef PLANNER_SEARCH_CONFIGS_H
#define PLANNER_SEARCH_CONFIGS_H

/* The configurations of a device under one memory limit: combinations of variant group, cores of each class, I/O backend, queue
 * depth, rule for coalesced reads, experts read ahead or not, and height of the accelerator, as the solver's problem. Which of them get
 * curves is up to bounds.h. One owner thread. */
#include "planner/cost/cost.h"
#include "planner/search/bounds.h"
#include "planner/search/curve_memo.h"
#include "planner/search/limits.h"
#include "planner/solve/certificate.h"
#include "planner/solve/solve.h"
#include "planner/space/residencies.h"
#include "planner/space/space.h"

struct configs {
    struct solve_problem sp;
    int first_batch;                    /* index of the problem's first batch size in inputs_batch_sizes */
    struct cost_choice *choices;        /* [sp.n_configs], by solve_config.id */
    struct bounds_run *runs;            /* by what the search knows them: each is in one run */
    int n_runs;
};

/* w_b of a step's time: time per token counts, so it is the batch size's weight times the largest batch size by this one. */
int64_t configs_weight(const struct limits *lim, int n_batches, int batch_index);

/* All configurations, each with its bounds, the most promising with curves. What *out held is the caller's to free. memo: of this
 * space and these residencies alone. */
int configs_fill(struct configs *out, const struct space *s, const struct residencies *residencies, const struct limits *lim,
                 struct curve_memo *memo, struct err *e);

/* The lanes that a choice's back end has at its depth: io_uring one, pread a thread for each read in flight. */
void configs_set_lanes(struct cost_choice *c);

/* "2 big, io_uring, queue depth 8 to 32 (the best of each)": configurations of least_depth to the choice's depth. */
void configs_name(const struct space *s, const struct cost_choice *deepest, int least_depth, char *out, size_t size);

/* Writes the proof that no configuration with the user's cores has an objective below the certificate's newest claim.
 * Returns how many runs of configurations are written without being refuted, 0 for a proof; or an error. */
int configs_certify(const struct configs *c, const struct space *s, const struct residencies *residencies, struct certificate *out,
                    struct err *e);
void configs_done(struct configs *c); /* accepts a zeroed one */

/* Do two configurations share what all batch sizes of a limit have to share? */
static inline int configs_same_queue(const struct cost_choice *a, const struct cost_choice *b)
{
    return a->group == b->group && a->backend == b->backend && a->rule == b->rule && a->ahead == b->ahead;
}

#endif
