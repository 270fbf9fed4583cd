#ifndef PLANNER_PLANNING_PLANNING_GUESSES_H
#define PLANNER_PLANNING_PLANNING_GUESSES_H

/* What guesses bring at a plan's limits (limits[].guesses): priced when a plan is made, and again when it is checked. */
#include "planner/planning/planning.h"
#include "planner/search/passes.h"

/* Who guesses. */
struct guesser {
    enum plan_source source;
    double draft_ns;            /* of a guess of PLAN_SOURCE_DRAFT; those of a layer are priced (M35) */
};

/* Of one limit, whose problem is pr: of planning_problem, or with its space alone. An error of passes_of. */
int planning_limit_guesses(const struct problem *pr, const struct plan *p, const struct plan_limit *l, const struct guesser *who,
                           struct plan_guesses *out, struct err *e);

/* Of all limits, into the plan. They change nothing else in it. */
int planning_guesses(struct plan *p, const struct inputs *in, const struct hw *hw, const struct guesser *who, struct err *e);

/* A draft model's guesses by its own plan, for the device of that name: a token of its largest limit of at most so much memory (0: of all),
 * at batch 1. ERR_MISMATCH: it is for another device. ERR_INFEASIBLE: all of its limits are larger. */
int planning_draft(const char *path, uint64_t memory, const char *device, struct guesser *out, struct err *e);

/* A packed layer for multi-token prediction: is it of this model? ERR_MISMATCH, ERR_USAGE. */
int planning_mtp(const char *path, const struct inputs *in, struct guesser *out, struct err *e);

/* As a plan has it, so that it can be made again. */
struct guesser planning_guesser_of(const struct plan *p);

#endif
