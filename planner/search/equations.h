#ifndef PLANNER_SEARCH_EQUATIONS_H
#define PLANNER_SEARCH_EQUATIONS_H

/* (M1)-(M22) as text for Z3: what a layer takes at a residency, by functions that have the equations' names, from the figures of
 * cost_terms. See docs/cost-model.md. */
#include "planner/search/problem.h"

struct equations {
    struct solve_equations solve;       /* its ctx is this struct */
    const struct problem *p;
    int config, batch;                  /* whose rates are known; -1: none */
    struct cost_rates *rates;           /* by kind of layer */
};

/* Of the problem's configurations, which it borrows. p: filled, over measured curves. */
void equations_init(struct equations *q, const struct problem *p);
void equations_done(struct equations *q);

#endif
