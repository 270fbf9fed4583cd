#ifndef PLANNER_CHECK_CHECK_FIELDS_H
#define PLANNER_CHECK_CHECK_FIELDS_H

/* Which fields of a plan a check has verified, and which it has not, and why. Fields are named by their path in the plan's JSON:
 * "predictions.limits[].gap" is that of every limit, "decisions.limits[1].batches[0].hot" of one. Plain data; one owner thread. */
#include "common/base/err.h"
#include "common/plan/plan.h"

/* What a check rests on. */
enum {
    CHECK_MODEL = 1,            /* the trace or description */
    CHECK_HARDWARE = 2,         /* and the device's figures */
    CHECK_SOLVED = 4,           /* and the same request, solved again */
    CHECK_PROOF = 8,            /* a certificate */
    CHECK_RUN = 16              /* the runtime and a text: what no check has */
};

/* What the user asked for when he solved again, rather than the plan. */
enum { CHECK_ASKED_MEMORY = 1, CHECK_ASKED_SPEED = 2, CHECK_ASKED_RLIMIT = 4, CHECK_ASKED_ACT = 8, CHECK_ASKED_STAT = 16,
       CHECK_ASKED_GUESSER = 32 };

struct check_field {
    char name[72];
    const char *why;            /* it is not verified; NULL: it is. A literal */
};

/* First the doubts of a check, fields whose values have no bearing on any figure; check_fields_list adds all others. An entry that is
 * not verified speaks for its field, whatever an entry for more fields says. */
struct check_fields {
    int n, cap;
    struct check_field *at;
    int figures_tell;           /* some limit's figures would differ with the device's other statistic */
};

/* f may be NULL. ERR_NOMEM. */
int check_fields_add(struct check_fields *f, const char *why, struct err *e, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Every field of plans, in the order of their paths. basis: CHECK_ bits; asked: CHECK_ASKED_ bits. Doubts that solving again has resolved
 * are dropped. */
int check_fields_list(struct check_fields *f, unsigned basis, unsigned asked, struct err *e);
void check_fields_done(struct check_fields *f); /* accepts a zeroed one */

#endif
