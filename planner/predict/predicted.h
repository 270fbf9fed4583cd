#ifndef PLANNER_PREDICT_PREDICTED_H
#define PLANNER_PREDICT_PREDICTED_H

/* What a layer's predictors predict, in numbers: which neurons a step of predicted mode touches, how often, and
 * what the predictors cost in memory. A trace has the neurons that fire; predictors have measured shares: recall (of
 * firing neurons that are predicted) and density (of all neurons). From these:
 *
 *   a firing neuron is predicted with probability  recall
 *   a silent one, falsely, with probability       q_i = (Phi(shift + Phi^-1(p_i)) - recall p_i) / (1 - p_i) in 0..1,
 *     p_i: how often it fires; as if a neuron were predicted wherever its gate, normal over tokens, exceeds a
 *     threshold lowered by `shift`, which is such that false positives make the rest of the density:
 *     sum_i (1 - p_i) q_i = (density - recall * true density) n_ff
 *   an always-computed one is always computed.
 *
 * In lists that the cache replays, p_i is the rate around the token (false positives.h). Draws are by a fixed generator:
 * the same inputs give the same lists. Constant once made; one thread at a time where the inputs keep results
 * (inputs_memoise), else thread-safe. */
#include "common/base/err.h"
#include "common/plan/layout.h"

#include "planner/inputs/inputs.h"

#include <stdint.h>

struct predicted {
    double recall;              /* asked for */
    double *recalls;            /* [n_layers], of each layer, the least of which `recall` is; NULL: that of all */
    int n_layers, n_blocks, n_ff, n_units;
    unsigned cpus;              /* tiers of the processor that lists are made with (cpu_detect): the same ones, whichever */
    signed char *input;         /* [n_layers]: enum predict_input; -1: the layer runs exactly */
    uint32_t *always;           /* [n_layers]: positions of each block that are always computed */
    struct budget_predictors predictors; /* all in use, as the account has them */
    struct predicted_block {     /* [n_layers][n_blocks] */
        double recall, shift;   /* shift -INFINITY: no false positives */
    } *block;
    double *neurons;            /* [n_batches][n_layers][n_ff + 1]: predicted or always computed neurons of a step among the first
                                 * i positions of all blocks */
    double *units;              /* [n_batches][n_layers][n_units + 1]: units of part 0 that hold one, among the first i */
};

/* Point of a predictor's curve with the least density whose recall reaches the target, else with the highest recall
 * (as trace_predict_point_for). */
const struct inputs_point *predicted_point(const struct inputs_predictor *x, double target);

/* Do all blocks of the layer have a predictor that sees this input? */
int predicted_known(const struct inputs *in, int input, int layer);

/* The account's view of the predictors in use; input: [n_layers]. Bytes of those of one layer. */
void predicted_account(const struct inputs *in, const struct layout_shapes *s, const signed char *input,
                      struct budget_predictors *out);
uint64_t predicted_layer_bytes(const struct inputs *in, const signed char *input, int layer);

/* The prefix, in whole clusters, whose neurons are in every block predicted so often that a score costs more than it
 * saves: chance >= 1 - score row / gate row, in bytes. */
uint32_t predicted_always(const struct inputs *in, const struct layout_shape *s, int input, int layer, double recall);

/* Have two layers the same recall? */
int predicted_as_often(const struct predicted *f, int a, int b);

/* recalls (NULL: one in all layers), input, always computed: [n_layers], copied. ERR_UNSUPPORTED when a layer has no predictor for
 * its input. */
int predicted_new(const struct inputs *in, const struct layout_shapes *s, double recall, const double *recalls,
                  const signed char *input, const uint32_t *always, struct predicted **out, struct err *e);
void predicted_free(struct predicted *f); /* accepts NULL */

/* Was it made from these choices? Then what it predicts holds for another layout whose units of part 0 have as many
 * neurons, and a copy for that layout differs in the account alone. ERR_NOMEM. */
int predicted_made_from(const struct predicted *f, double recall, const double *recalls, const signed char *input,
                        const uint32_t *always);
int predicted_copy(const struct predicted *f, const struct inputs *in, const struct layout_shapes *s, struct predicted **out,
                  struct err *e);

/* Are two of the same inputs made from the same choices? Their lists are the same then. */
int predicted_same(const struct predicted *a, const struct predicted *b);

/* Means per step, over all blocks: predicted or always computed neurons beyond the first `hot` positions; units of part 0 that
 * hold one; neurons that fire and are computed. */
double predicted_neurons(const struct predicted *f, int batch_index, int layer, uint32_t hot);
double predicted_units(const struct predicted *f, const struct layout_shape *s, int batch_index, int layer, uint32_t hot);
double predicted_active(const struct predicted *f, const struct inputs *in, int batch_index, int layer, uint32_t hot);

/* How often each neuron of a block fires at batch 1 where a token is routed to it, rate[n_ff]; returns the false positives
 * of such a token. */
double predicted_rates(const struct predicted *f, const struct inputs *in, int layer, int block, double *rate);

/* Lists of firing neurons (inputs.steps) become lists of what is predicted or always computed; with firing_only, of those of
 * them that fire. *shared: what predictors do not bear on, kept for the next call with the same lists of this layer; NULL
 * before the first. shared itself may be NULL. */
struct predicted_shared;
int predicted_steps(const struct predicted *f, const struct inputs *in, int layer, int firing_only,
                   struct predicted_shared **shared, struct inputs_steps *s, struct err *e);
void predicted_shared_free(struct predicted_shared *h); /* accepts NULL */

#endif
