#ifndef PLANNER_SEARCH_EQUATIONS_H
#define PLANNER_SEARCH_EQUATIONS_H

/* The terms of a layer at a residency, as values by the table's names; and, from the table, as text for Z3. See docs/cost-model.md. */
#include "planner/terms/terms.h"
#include "planner/search/problem.h"

#define EQUATIONS_INPUTS 12

/* Figures of a layer. v: NAN is what it has not, or what is not worked out one by one. streamed: its predictors are. */
struct equations_layer {
    struct cost_layer layer;
    struct plan_layer_figures f;
    double v[TERM_VALUES];
};
void equations_layer(const struct space *s, const struct cost_choice *c, const struct cost_rates *r, int batch_index, int layer,
                     const struct cost_residency *k, const struct cost_flow *flow, struct equations_layer *out);

/* The table's equations, read, and by value; made once. */
struct equations_read {
    const struct term_equation *of;     /* NULL: the value has none that is a formula */
    struct formula f;
    int n_in, in[EQUATIONS_INPUTS];     /* places of its inputs */
};

struct equations {
    struct solve_equations solve;       /* its ctx is this struct */
    const struct problem *p;
    struct equations_read *read;        /* [TERM_VALUES] */
    int config, batch;                  /* whose rates are known; -1: none */
    struct cost_rates *rates;           /* by kind of layer */
};

/* Of the problem's configurations, which it borrows. p: filled, over measured curves. */
void equations_init(struct equations *q, const struct problem *p);
void equations_done(struct equations *q);

#endif
