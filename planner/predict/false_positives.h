#ifndef PLANNER_PREDICT_FALSE_POSITIVES_H
#define PLANNER_PREDICT_FALSE_POSITIVES_H

/* When a predictor's false positives come. A silent neuron is predicted where its gate is only just shut; such gates were
 * often open some tokens ago, or will be soon. So false positives come where firings do, and a cache profits.
 *
 * The local rate of a neuron at a token is how often it fires around it, the token itself left out:
 *
 *   r = (prior p + sum over k >= 1 of decay^(k-1) (f(t-k) + f(t+k))) / (prior + the sum of those weights that exist)
 *
 * with p its rate over the trace; of a few decays and priors the pair under which the window's own firings are likeliest
 * is taken. A silent neuron then raises an alarm with probability
 *
 *   q = (Phi(shift + Phi^-1(r)) - recall r) / (1 - r), within 0..1
 *
 * as if its gate, normal about what the neighbourhood says, were compared with a threshold lowered by `shift`, which
 * is such that the window has as many false positives as the predictor's density says.
 *
 * Runs of one block: the tokens that ran through it, in order. Constant once made; thread-safe. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define FALSE_POSITIVES_LEVELS 256 /* of sqrt(r) */

struct false_positives_runs {
    int n_ff, n;
    size_t *start;              /* [n + 1] */
    uint32_t *at;               /* positions that fire, ascending within a run */
};

struct false_positives {                 /* what the firings say, whatever predictor */
    int n_ff, n;
    float decay, prior;
    float *rate;                /* [n_ff]: p */
    uint8_t *level;             /* [n][n_ff]: of the local rates */
    double silent[FALSE_POSITIVES_LEVELS]; /* silent neurons of each level in all runs */
};

/* q of a neuron whose rate, local or not, is strictly between 0 and 1; quantile: Phi^-1(rate). */
double false_positives_beyond(double rate, double quantile, double recall, double shift);

/* rate: [n_ff]. cpus: tiers of the processor that may be used (cpu_detect); results are the same whichever. ERR_NOMEM. */
int false_positives_new(const struct false_positives_runs *r, const double *rate, unsigned cpus,
                        struct false_positives *out, struct err *e);
void false_positives_free(struct false_positives *a); /* accepts a zeroed one */

/* The chance, times 2^32, that a silent neuron of each level raises an alarm, so that a run has `wanted` of them. */
void false_positives_chances(const struct false_positives *a, double recall, double wanted, uint64_t chance[FALSE_POSITIVES_LEVELS]);

/* Levels of all neurons in a run. */
static inline const uint8_t *false_positives_levels(const struct false_positives *a, int run)
{
    return a->level + (size_t)run * (size_t)a->n_ff;
}

#endif
