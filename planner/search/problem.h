#ifndef PLANNER_SEARCH_PROBLEM_H
#define PLANNER_SEARCH_PROBLEM_H

/* From inputs, device and layout to the integer problem of solve.h, and back to predictions. Two steps: problem_prepare does what
 * depends on model and layout only (space, replay, residencies); problem_fill adds one memory limit and the device's curves.
 * One owner thread. */
#include "planner/cost/cost.h"
#include "planner/search/account.h"
#include "planner/search/configs.h"
#include "planner/search/limits.h"
#include "planner/space/miss_tables.h"
#include "planner/space/residencies.h"
#include "planner/space/space.h"

struct problem {
    struct space space;
    struct miss_tables tables;
    struct residencies residencies;
    struct curve_memo memo;             /* of problem_fill, between memory limits */
    struct configs configs;             /* of the last problem_fill */
};

struct problem_request {
    struct space_request space;
    int policy;                         /* -1: for each variant the one that misses less in replay */
    const struct problem *like;         /* an earlier problem of the same inputs, from which are copied predictions that are the
                                         * same and, where layouts replay the same under the same policy, the tables; may be NULL */
};

/* Space and account only, no tables: enough for account_of and, with tables from elsewhere, problem_predict. */
int problem_shape(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                  const struct space_variant *variants, int n_variants, struct notes *notes, struct err *e);

int problem_prepare(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                    const struct problem_request *q, struct notes *notes, struct err *e);
void problem_done(struct problem *p); /* accepts a zeroed one */

/* The configurations of one memory limit, in place of those of an earlier one. */
int problem_fill(struct problem *p, const struct limits *lim, struct err *e);

/* The residency behind a result's choice; batch_index: of the problem's batch sizes. */
struct cost_residency problem_chosen(const struct problem *p, const struct solve_result *r, int batch_index, int layer);

/* Figures of one batch size; residencies[n_layers] name each layer's variant. out->layers is the caller's. */
int problem_predict(const struct problem *p, const struct cost_choice *c, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *out, struct err *e);

/* Prompts (M27) at a limit's choice, with the most threads and the deepest queue of its batch sizes, in passes of its chunk, which have
 * its heights on the choice's engine. None are predicted (out->n 0), and a note says why, where the device was not measured with many
 * tokens or an accelerator has neurons and heights of prompts are not stated; nor by the paper's equations. */
int problem_prompt(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies,
                   const struct plan_limit *l, struct plan_prompt *out, struct err *e);

/* A pass of so many tokens at each height of the choice's engine: none, and sixteenths of an FFN's neurons, whole clusters, as far as
 * so many are in memory; each with the choice's work or without, whichever is faster. Times without the head, ns; best: the fastest, of
 * equals the least height. */
#define PROBLEM_HEIGHTS 16
struct problem_heights {
    int n, best;
    uint32_t height[PROBLEM_HEIGHTS + 1];
    enum plan_work work[PROBLEM_HEIGHTS + 1];
    double ns[PROBLEM_HEIGHTS + 1];
    double without_ns;          /* the processor alone */
    struct plan_share rest;     /* the fastest that has it compute the neurons that are not in memory, too, where there are any and the
                                 * choice has an area: */
    double rest_ns;             /* or INFINITY */
};
int problem_pass(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies, int tokens,
                 struct problem_heights *out, struct err *e);

/* Chooses heights and other work of prompts for a limit whose batch sizes have theirs: for each length that passes have, the fastest;
 * passes that a batch size holds have that one's. l->prompt then has lengths, heights and work alone; all 0 where device or accelerator was
 * not measured with many tokens, or the accelerator gets nothing in prompts or decoding. c->work: what passes may give away. */
int problem_prompt_heights(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies,
                           struct plan_limit *l, struct err *e);

#endif
