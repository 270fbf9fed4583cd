#ifndef PLANNER_PLANNING_PLANNING_H
#define PLANNER_PLANNING_PLANNING_H

/* From a request to a plan: chooses layout, fills one problem per memory limit, solves, rounds, accounts and
 * predicts; or says which of the user's limits contradict each other and what would do. One owner thread. */
#include "common/plan/plan.h"

#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"
#include "planner/planning/request.h"
#include "planner/search/problem.h"

#include <stdio.h>

struct diagnosis;

/* 0; ERR_INFEASIBLE with a message in the user's words (which limits, and the nearest value of each that would
 * do); or another error. A mode that the activation forbids is ERR_USAGE. */
int planning_make(const struct request *q, const struct inputs *in, const struct hw *hw, struct notes *notes,
                  struct plan *out, struct err *e);

/* A plan for each of the request's limits alone, under a layout of its own: the bytes of planning_make's for that limit. out[q->n_memory],
 * each with the notes that it has beside `notes`. */
int planning_make_each(const struct request *q, const struct inputs *in, const struct hw *hw, const struct notes *notes,
                       struct plan *out, struct err *e);

/* The accelerator that plans of a problem may use, as limits hold it; NULL: there is none, or its figures do not tell these types. */
const char *planning_engine(const struct request *q, const struct problem *p);

/* What prompts may give that accelerator beside neurons: what its figures tell for many tokens, but for the head, which is of one. */
enum plan_work planning_prompt_work(const struct problem *p, const char *engine);

/* Both, into a limit. */
void planning_offer(const struct request *q, const struct problem *p, struct limits *lim);

/* The context that a request means, whatever the memory: its own, or the model's, at most 4096. */
int planning_context(const struct request *q, const struct inputs *in);

/* Least memory that any plan for the request needs: the smaller floor of its candidate layouts, at the context
 * that the request means. */
int planning_floor(const struct request *q, const struct inputs *in, const struct hw *hw, uint64_t *bytes,
                   struct err *e);

/* ERR_INFEASIBLE, as planning_make says it, where the request's least memory is below that floor: before there is a trace. Predictors,
 * which are made from one, come on top. *bytes is the floor in either case. */
int planning_ask(const struct request *q, const struct inputs *in, const struct hw *hw, uint64_t *bytes, struct err *e);

/* The problem that a plan limit was solved in, without the other variants that were tried: for check and explain. Free
 * with problem_done. ERR_UNSUPPORTED when the inputs lack a predictor that the plan uses. */
int planning_problem(const struct plan *p, const struct plan_limit *l, const struct inputs *in, const struct hw *hw,
                     struct notes *notes, struct problem *out, struct err *e);

/* What a device's figures say of large reads by a back end, as loading makes them; 0: nothing. */
double planning_load_rate(const struct hw *hw, enum plan_io io, enum plan_stat stat);

/* A plan limit's rule for reading missing units. */
void planning_coalesce(const struct plan_limit *l, struct coalesce *out);

/* Would planning_problem prepare the same for both? */
int planning_same_problem(const struct plan *p, const struct plan_limit *a, const struct plan_limit *b);

/* A plan limit's choices at a batch size as the cost model takes them (b NULL: its most threads and deepest queue), and a batch's
 * residencies (residencies[n_layers]). Where blocks of a layer differ in their prefix, block 0 represents all. */
void planning_choice(const struct plan *p, const struct plan_limit *l, const struct plan_batch *b, struct cost_choice *out);
void planning_limits(const struct plan *p, const struct plan_limit *l, struct limits *out);
void planning_residencies(const struct plan *p, const struct plan_batch *b, struct cost_residency *residencies);

/* The accelerator that any batch size of the limit gives neurons to; NULL: none. Borrowed of the plan. */
const char *planning_limit_engine(const struct plan *p, const struct plan_limit *l);

/* The problem that the only limit of a plan was solved in, with all variants and configurations that it had, solved again and written
 * in SMT-LIB 2 (planner/solve/solve_text.h, paper_z3.h). lim: that limit, with the request's cores. ERR_USAGE for more limits or batch
 * sizes than one. */
int planning_text(const struct request *q, const struct inputs *in, const struct hw *hw, const struct plan *plan,
                  const struct limits *lim, FILE *out, struct err *e);

#endif
