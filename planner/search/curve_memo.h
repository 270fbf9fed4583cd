#ifndef PLANNER_SEARCH_CURVE_MEMO_H
#define PLANNER_SEARCH_CURVE_MEMO_H

/* Curves of a problem's configurations, kept from one memory limit to the next: they depend on all that a limit says but its memory,
 * its cores and its least speed. At most CURVE_MEMO_BYTES are kept; what finds no room is priced again. One owner thread. */
#include "planner/search/limits.h"
#include "planner/solve/solve.h"

#include <stdint.h>

#define CURVE_MEMO_BYTES (UINT64_C(128) << 20)

struct curve_memo {
    struct solve_problem shape;     /* numbers of layers and batch sizes alone */
    struct limits of;               /* whose curves these are; memory, cores and least speed are not looked at */
    struct solve_config **kept;     /* [most configurations][8], by the binary logarithm of the least depth; NULL: none */
    int most;
    uint64_t bytes;
};

/* Before the configurations of a limit are priced, of which there are at most `most`: forgets curves that are not theirs. */
int curve_memo_begin(struct curve_memo *m, const struct solve_problem *shape, const struct limits *lim, int most, struct err *e);

/* 1: *out has copies of the configuration's curves, with what price_curves fills beside them; 0: none are kept; ERR_NOMEM. */
int curve_memo_get(const struct curve_memo *m, int config, int least_depth, struct solve_config *out, struct err *e);

/* Keeps copies of them, where there is room. ERR_NOMEM. */
int curve_memo_put(struct curve_memo *m, int config, int least_depth, const struct solve_config *from, struct err *e);
void curve_memo_done(struct curve_memo *m); /* accepts a zeroed one */

#endif
