#ifndef PLANNER_CHECK_CALIBRATE_H
#define PLANNER_CHECK_CALIBRATE_H

/* Prediction beside measurement, term by term: docs/cost-model.md, Calibration. Plain data for cmd_calibrate and the
 * report to print. One owner thread. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/plan.h"

#include "planner/check/telemetry.h"
#include "planner/inputs/inputs.h"
#include "planner/inputs/notes.h"

/* Per token at batch 1; times in ns. */
enum calibrate_term {
    CALIBRATE_ATTENTION = PLAN_TERM_ATTENTION,
    CALIBRATE_PREDICT = PLAN_TERM_PREDICT,
    CALIBRATE_FFN = PLAN_TERM_FFN,
    CALIBRATE_WAIT = PLAN_TERM_WAIT,
    CALIBRATE_HEAD = PLAN_TERM_HEAD,
    CALIBRATE_REST,         /* of the step: sampling, telemetry; predicted as 0 */
    CALIBRATE_STEP,
    CALIBRATE_BYTES,        /* read from storage */
    CALIBRATE_HITS,         /* hit rate of the cold cache */
    CALIBRATE_TERMS
};
extern const char *const calibrate_term_names[CALIBRATE_TERMS];  /* "attention" .. "hit_rate" */
extern const char *const calibrate_term_labels[CALIBRATE_TERMS]; /* for people */
#define CALIBRATE_TIMES (CALIBRATE_STEP + 1)                     /* the terms before are times */

struct calibrate_limit {
    const struct plan_limit *limit;
    int runs, n[CALIBRATE_TERMS];               /* compared; that tell a term */
    double predicted[CALIBRATE_TERMS];          /* by the plan; at other prices, for the positions that the runs had */
    struct hw_dist measured[CALIBRATE_TERMS];   /* p10, p50, p90 over the runs; 0 where n is 0 */
};

struct calibrate {
    int runs, skipped, n_limits;
    struct notes why;                           /* runs were skipped */
    struct calibrate_limit *limits;             /* [n_limits], as in the plan; malloc'd */
    /* Measured over predicted, over all runs. Where inputs are given, attention (and the step with it) is predicted
     * anew for the positions that a run had; else as the plan does, for a context that is half full. */
    int ratio_n[CALIBRATE_TERMS];
    struct hw_dist ratio[CALIBRATE_TERMS];
    /* What would make the cost model tell the measured times. Factors of a device that is corrected already are on top
     * of its raw figures. */
    int factor_n[HW_TERMS];
    struct hw_dist factor[HW_TERMS];
};

/* What a limit predicts, and what a run measured; NAN where a run does not tell. */
void calibrate_predicted(const struct plan *p, const struct plan_limit *l, double out[CALIBRATE_TERMS]);
void calibrate_measured(const struct telemetry_run *r, double out[CALIBRATE_TERMS]);

/* The factor on all I/O times under which the layers of a limit wait wait_ns, when compute and memory time are
 * multiplied by ffn. NAN when none does, or I/O hides so well that none can be known. */
double calibrate_io_factor(const struct plan_limit *l, int n_layers, double ffn, double wait_ns);

/* hw, in: may be NULL. promised: tokens/s of each limit by the plan that ran, where p is that plan at other prices; else
 * NULL. A run of another model or plan is ERR_MISMATCH; runs that the prediction does not speak of (less
 * memory, other mode, threads or types than planned) are skipped and counted; ERR_MISMATCH when none is left. */
int calibrate_compare(const struct plan *p, const char *name, const struct hw *hw, const struct inputs *in,
                      const struct telemetry *t, const double *promised, struct calibrate *out, struct err *e);
void calibrate_done(struct calibrate *c); /* accepts a zeroed one */

#endif
