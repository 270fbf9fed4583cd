#ifndef PLANNER_SOLVE_PAPER_Z3_H
#define PLANNER_SOLVE_PAPER_Z3_H

/* Z3's answer to the paper's problem (paper.h). One owner thread; deterministic: a seed, one thread, a resource limit in place of
 * a clock. */
#include "planner/solve/paper.h"

struct paper_answer {
    int finished;               /* Z3 ended within its limit */
    int feasible;
    struct paper_choice best;   /* where feasible: no choice takes fewer ticks */
    unsigned core;              /* finished and not feasible: which of Eq. 3, 4 and 5 contradict the rest, no fewer of them do;
                                 * PAPER_EQ bits. 0: even without them there is no answer */
};

/* Lines of mu(m) are added to p where the optimum needs them, at most PAPER_MAX_PIECES in all. rlimit 0: none. Errors:
 * ERR_NOMEM; ERR_FORMAT where Z3 does not take the text, which is an error of ours. */
int paper_z3(struct paper *p, uint64_t rlimit, uint64_t seed, struct paper_answer *out, struct err *e);

#endif
