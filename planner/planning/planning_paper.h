#ifndef PLANNER_PLANNING_PLANNING_PAPER_H
#define PLANNER_PLANNING_PLANNING_PAPER_H

/* Plans by the paper's equations: Z3 solves the paper's problem whole (planner/solve/paper_z3.h) and names the configuration; the
 * relaxation in closed form proposes another, and whichever is better in whole units is taken. One owner thread. */
#include "planner/planning/request.h"
#include "planner/search/problem.h"

#include <stdio.h>

/* In place of solve_z3, for a problem filled for lim, whose model is PLAN_COST_PAPER: the same result. bound is Z3's optimum;
 * where Z3 stopped at its limit finished is 0 and bound that of the relaxation. Curves of Z3's configuration are added to p. */
int planning_paper(struct problem *p, const struct request *q, const struct limits *lim, struct solve_result *out, struct err *e);

/* A problem of a plan's one limit, solved again, in SMT-LIB 2: data, Equations 1-11, claims and their answers. p is filled for lim
 * here. ERR_SYS where Z3 stops at its limit. */
int planning_paper_write(struct problem *p, const struct request *q, const struct plan *plan, const struct limits *lim, FILE *out,
                         struct err *e);

#endif
