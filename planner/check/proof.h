#ifndef PLANNER_CHECK_PROOF_H
#define PLANNER_CHECK_PROOF_H

/* The proof of a plan's gap as a file: written beside the plan, held against it later. planner/solve/certificate.h says what is in it;
 * at its end stand the plan's identity and figures. One owner thread. */
#include "common/plan/plan.h"

#include "planner/planning/request.h"
#include "planner/solve/certificate.h"

#include <stdio.h>

/* Under way: the text grows in memory, so that the file appears whole and together with the plan. */
struct proof {
    const char *path;           /* NULL: none is wanted, and all of these do nothing */
    int checks;                 /* after proof_write: how many answers the file has to get */
    FILE *f;
    char *text;
    size_t len;
    struct certificate *c;
};

/* Makes the request write to it, and solve without estimates. */
int proof_begin(struct proof *p, struct request *q, struct err *e);
int proof_write(struct proof *p, const struct plan *plan, struct err *e);

/* In place of proof_write: ERR_MISMATCH where the file that is there differs, in any price, tangent or claim. */
int proof_compare(struct proof *p, const struct plan *plan, struct err *e);
void proof_done(struct proof *p);

#define PROOF_MAX_BYTES (256u << 20)

/* Is the file at path a proof of this plan's gaps? Its last lines must be the plan's, its claims must mean the gaps that the plan states,
 * and Z3 must refute every one. *checks:
 * how many. ERR_MISMATCH: it is of another plan, or Z3 does not refute all; ERR_FORMAT, ERR_LIMIT, ERR_INPUT. The prices in it
 * are taken as they are: check_plan derives those of the plan itself, proof_compare all of them. */
int proof_check(const struct plan *plan, const char *path, int *checks, struct err *e);

#endif
