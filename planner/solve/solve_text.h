#ifndef PLANNER_SOLVE_SOLVE_TEXT_H
#define PLANNER_SOLVE_SOLVE_TEXT_H

/* A solver's problem as SMT-LIB 2: the question whether some choice has an objective below a target. Z3 is asked this very text
 * (solve_z3.c), and `thermo-plan solve --smt2` writes it.
 *
 * Unknowns: the configuration, a number of its table, and for each layer the residency that it takes. Times of configurations that
 * are open are sums over layers of what the equations say of a residency (struct solve_equations), or of the points' own ticks
 * where there are none; of the others one line is stated, which no choice of residencies lies below, or, where they have no curves,
 * the least objective.
 *
 * Residencies that are stated: a choice with an objective below the target has none beside these. A point of layer l lies above the
 * layer's tangent of the slope at which the relaxation runs out of memory by so much, and the objective above the relaxation's
 * optimum by that at least; a point for which that reaches the target is left out. Layers with the same points are stated together:
 * how many of them take which. */
#include "planner/solve/solve.h"

#include <stdio.h>

struct solve_candidate {
    int kind, point;            /* of the kind's curve; kind 0 of the configuration's own curves where it has no kinds */
};

/* One configuration whose residencies are stated. */
struct solve_open {
    int config, n_groups;
    int *group, *leader, *count;    /* [n_layers]; [n_groups]: the first of the layers that have the same points, how many */
    int *first;                     /* [n_batches * n_groups + 1]: where candidates begin */
    struct solve_candidate *candidate;
};

struct solve_question {
    const struct solve_problem *p;
    int64_t target;                 /* residencies of choices below it are stated; SOLVE_NEVER: all */
    int states;                     /* the problem is stated; else it is asked for an objective below the target */
    int all;                        /* configurations are stated that cannot reach the target, too */
    int n_open;
    const struct solve_open *open;
};

#define SOLVE_MOST_CANDIDATES 120

/* The candidates of a configuration that has curves and can be below the target, and the points of `also`, which may be NULL. 1; 0:
 * there are too many; ERR_NOMEM. */
int solve_open_init(struct solve_open *o, const struct solve_problem *p, int config, int64_t target, const struct solve_result *also,
                    struct err *e);
void solve_open_done(struct solve_open *o); /* accepts a zeroed one */

/* The name of the unknown that tells how many layers (or whether the layer) of group g take candidate j; j 0 has none: it takes the
 * rest. Returns out. */
#define SOLVE_NAME 64
const char *solve_unknown(const struct solve_open *o, int batch, int g, int j, char out[SOLVE_NAME]);

/* An integer as SMT-LIB 2 writes it: of sort Int, or of sort Real. */
void solve_put_integer(FILE *f, __int128 v, int real);

/* Data, unknowns, named assertions. An error is the equations'. */
int solve_text(const struct solve_question *q, FILE *out, struct err *e);

/* After a stated problem: that nothing is faster than what is proven, and that the solution is as fast as it says. */
void solve_text_claims(const struct solve_question *q, const struct solve_result *r, FILE *out);

/* What a real-valued text may miss the ticks by, times the weights: rounding of each layer's time and of what configurations share. */
int64_t solve_text_slack(const struct solve_problem *p);

#endif
