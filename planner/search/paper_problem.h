#ifndef PLANNER_SEARCH_PAPER_PROBLEM_H
#define PLANNER_SEARCH_PAPER_PROBLEM_H

/* The paper's problem (planner/solve/paper.h) from a filled problem: the same configurations, the same priced residencies. */
#include "planner/search/problem.h"
#include "planner/solve/paper.h"

struct paper_problem {
    struct paper paper;
    struct solve_config *volumes;   /* [n_variants * n_batches]: whose curves are V_io */
};

/* p: filled by problem_fill for lim, whose model is PLAN_COST_PAPER. Where layers mix predictors, each layer has the least of
 * any of them in F_pred, a and V_io: a bound, as where a configuration's account is not the sum of its parts, which then are
 * taken no larger than they are. ERR_NOMEM, or an error of cost_rates_of. */
int paper_problem_init(struct paper_problem *out, const struct problem *p, const struct limits *lim, struct err *e);
void paper_problem_done(struct paper_problem *p); /* accepts a zeroed one */

/* The problem's configuration that is this choice; -1: there is none. */
int paper_problem_config(const struct paper_problem *pp, const struct problem *p, const struct paper_choice *c);

#endif
