#ifndef PLANNER_DESCRIBE_DESCRIBE_WINDOW_H
#define PLANNER_DESCRIBE_DESCRIBE_WINDOW_H

/* Made-up activation windows with a description's rate, skew and persistence, for replay through the runtime's
 * cache like a trace's. All layers of a description are equivalent, so one window stands for each.
 *
 * Neuron i fires at token t when z_i(t) > theta_i, theta_i = -quantile(p_i), where z_i is the sum of independent
 * normal parts: one new with each token, the others (the description's persistence, three strands each) renewed
 * for all neurons of the layer at once, at any token with probability 1/period. This is the process of
 * docs/synthetic-models.md with independent neurons. Experts: the set that a token uses is kept for the next, or
 * drawn anew, so that an expert is used again with the stated probability. Deterministic. */
#include "planner/describe/describe.h"

#define DESCRIBE_WINDOW 2048 /* tokens: some twenty independent states of a period of 100 */

/* p: from describe_rates. Free with inputs_steps_done. */
int describe_window(const struct describe *d, const double *p, int n_tokens, struct inputs_steps *out, struct err *e);

/* Share of lookups that miss an LRU cache of `cached` of the layer's neurons in that window. */
int describe_missed(const struct describe *d, const struct inputs_steps *s, double cached, double *missed,
                    struct err *e);

/* Where a description gives miss figures and no persistence: the persistence of which the first figure is true, in the
 * family of docs/synthetic-models.md with its periods stretched: 0.24 of the variance at period T/4, 0.56 at period T,
 * 0.2 new with each token, T from 1 to 1024. ERR_FORMAT when no T makes the figure. */
int describe_persistence(struct describe *d, const char *name, const double *p, struct err *e);

#endif
