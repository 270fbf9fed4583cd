#ifndef PLANNER_SEARCH_BOUNDS_H
#define PLANNER_SEARCH_BOUNDS_H

/* Which configurations of a solver's problem are priced, and which a proven bound decides: branch and bound over runs of
 * configurations that differ in queue depth alone. It knows no device: curves come from a function. One owner thread. */
#include "planner/solve/solve.h"

/* Curves of a configuration, at its own depth or, with a smaller least_depth, such that no depth from there on is faster in any
 * point. */
struct bounds_source {
    int (*curves)(void *ctx, int config, int least_depth, struct solve_config *out, struct err *e);
    void *ctx;
};

/* n configurations from `first`, every `step`, each twice as deep as the one before it. */
struct bounds_run {
    int first, step, n;
};

struct bounds {
    struct solve_problem *sp;           /* borrowed; its configurations have their cores, depth and fixed bytes */
    struct bounds_source source;
    struct bounds_run *run;             /* closed runs: known by the bound of all their members */
    int n, cap;
    unsigned char *priced;              /* by configuration: its bound is its own */
    int rounded;                        /* which configuration objective is of; -1: none */
    int64_t objective;                  /* SOLVE_NEVER: not feasible */
};

/* Room for `most` configurations; then runs are added, and opened as far as they may be worth it, and again. After bounds_search a
 * configuration that may be taken, or is within 1 % of it, has its own bound, and the most promising have curves; others have
 * bounds that they cannot beat, beyond that 1 %. If none is feasible all have their own. Errors: ERR_NOMEM, or the source's. */
int bounds_init(struct bounds *b, struct solve_problem *sp, const struct bounds_source *source, int most, struct err *e);
int bounds_add(struct bounds *b, struct bounds_run run, struct err *e);
int bounds_search(struct bounds *b, struct err *e);

/* What the search knows configurations by: runs that stayed closed, whose bound is of the curves at the least depth and of the least
 * fixed bytes of any member, and runs of one for those that were priced. *out: *n runs, malloc'd. */
int bounds_partition(const struct bounds *b, struct bounds_run **out, int *n, struct err *e);

/* A run as one configuration that none of its members can beat: curves from the source, the least fixed bytes. Free its curves with
 * solve_config_done. */
int bounds_run_config(const struct solve_problem *sp, const struct bounds_source *source, const struct bounds_run *run,
                      struct solve_config *out, struct err *e);
void bounds_done(struct bounds *b); /* accepts a zeroed one; the problem keeps its curves */

#endif
