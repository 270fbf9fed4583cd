#ifndef PLANNER_CHECK_CHECK_H
#define PLANNER_CHECK_CHECK_H

/* Verifies a plan with no solver, from the equations alone: who it was made for, the account of every limit to the
 * byte, cores, prefixes, slots, and every predicted figure. */
#include "common/plan/plan.h"

#include "planner/check/check_fields.h"
#include "planner/search/problem.h"

/* in and hw may be NULL: what needs them is then left out. ERR_MISMATCH when plan, trace and hardware do not belong
 * together (both hashes in the message), ERR_FORMAT when a figure does not follow from the inputs, ERR_INFEASIBLE
 * when the plan breaks one of its own limits. */
int check_plan(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw,
               struct notes *notes, struct err *e);

/* The same, and the names of model, device and types, which hashes stand for elsewhere; besides, fields that no account and no figure
 * says anything of are added to doubts (NULL: not looked for). */
int check_plan_fields(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw,
                      struct notes *notes, struct check_fields *doubts, struct err *e);

/* The choices of the wanted limits ([n_limits], 0 or 1) priced anew with the figures of hw, which need not be those that it
 * was made from: what it states of times and speeds is replaced, once whom it is for, its accounts and its cores were
 * checked. Afterwards its hashes do not tell where its figures are from: for comparing, not for writing. */
int check_reprice(struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, const uint8_t *wanted,
                  struct notes *notes, struct err *e);

/* Of that, whom it was made for: hashes and shapes, without the replay that figures need. */
int check_belongs(const struct plan *p, const char *name, const struct inputs *in, const struct hw *hw, struct err *e);

/* What changed from old to now, one line each (line may be NULL). Returns how many promises (speed, memory at least
 * needed, context, limits and batch sizes planned for) got worse; speed and memory by more than tolerance, a share. */
int check_against(const struct plan *now, const struct plan *old, double tolerance,
                  void (*line)(void *ctx, int worse, const char *text), void *ctx);

/* What the predictors of a limit see: "predictors: ffn in 5 layers, block in 3"; "" in other modes. */
#define CHECK_INPUTS_TEXT 96
void check_inputs_text(const struct plan *p, const struct plan_limit *l, char out[CHECK_INPUTS_TEXT]);

#endif
