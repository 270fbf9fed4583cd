#ifndef PLANNER_REPORT_GAINS_H
#define PLANNER_REPORT_GAINS_H

/* What more of something would buy: each gain is the plan that `solve` makes of the plan's own request with that one thing
 * changed, under the same layout, context and chunk. One owner thread. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/plan.h"

#include "planner/inputs/inputs.h"

#define GAINS_CLASSES 4
#define GAINS_MAX     (3 + GAINS_CLASSES)

/* What is changed. */
enum gain_of { GAIN_MIB, GAIN_GIB, GAIN_CORE, GAIN_STORAGE };

struct gain {
    enum gain_of of;
    int core_class;             /* GAIN_CORE: index of the class that has one more core */
    char what[96];              /* for people */
    uint64_t memory_bytes;      /* the limit then */
    double tokens_per_s;        /* at batch 1 */
};

/* Of one memory limit. */
struct gains {
    int n;                      /* 0: not looked for */
    struct gain gain[GAINS_MAX];
    double again;               /* tokens/s with nothing changed: the plan's own, unless another build made it or it does not
                                 * record all of its request */
};

/* out[n]: of limits[n], which are adjacent in the plan. Takes as many runs of the planner as there are changes of the device, and
 * one more. */
int gains_find(const struct plan *p, const struct plan_limit *limits, int n, const struct inputs *in, const struct hw *hw,
               struct gains *out, struct err *e);

/* Is `again` the speed that the plan states? */
int gains_same(const struct gains *g, const struct plan_limit *l);

/* The gain of which the plan is fastest; NULL: none of more than a tenth of a percent. */
const struct gain *gains_best(const struct gains *g, const struct plan_limit *l);

#endif
