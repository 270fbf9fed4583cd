#ifndef PLANNER_SEARCH_PASSES_H
#define PLANNER_SEARCH_PASSES_H

/* How long a pass takes over several tokens of one sequence that follow each other, (M30) of planner/cost/cost.h: what guesses of further
 * tokens are held against (docs/speculation.md). One owner thread. */
#include "planner/search/problem.h"

/* A limit's choices, as the runtime takes them for a pass of so many tokens: the batch size that holds it, or the limit's. */
struct passes_choices {
    struct cost_choice of[PLAN_PASSES];
};

/* Times and bytes of passes over 1, 2, 4 ... 16 tokens, as many as a chunk and the context hold and the trace has steps of: out->n, and 0
 * where that is less than 2, or device, trace or model do not tell: by the paper's equations, without figures of many tokens
 * (cost_prompt_known), without maps where neurons are looked up, of recurrent layers that take no token back (ops_take_back). What guesses
 * bring is filled in, too. p: of the limit's mode and predictors as its only variant; tables are not needed. residencies[n_layers]. l:
 * batches[0].predicted is filled in. ERR_NOMEM, or an error of the trace. */
int passes_of(const struct problem *p, const struct passes_choices *choices, const struct cost_residency *residencies,
              const struct plan_limit *l, struct plan_guesses *out, struct err *e);

#endif
