#ifndef PLANNER_PLANNING_PLANNING_MEASURED_H
#define PLANNER_PLANNING_PLANNING_MEASURED_H

/* Plans over measured curves: Z3 decides, by the equations of docs/cost-model.md. */
#include "planner/planning/request.h"
#include "planner/search/problem.h"

#include <stdio.h>

/* As solve_z3, for the problem's configurations or some of them. */
int planning_measured(struct problem *p, const struct solve_problem *sp, const struct request *q, struct solve_result *out, struct err *e);

/* The residencies of the result's configuration, which is given, by Z3 too; taken where they are faster. */
int planning_refine(struct problem *p, const struct request *q, struct solve_result *res, struct err *e);

/* A problem of a plan's one limit as SMT-LIB 2: data, equations, claims and their answers. p is filled for lim here. */
int planning_measured_write(struct problem *p, const struct request *q, const struct plan *plan, const struct limits *lim, FILE *out,
                            struct err *e);

#endif
