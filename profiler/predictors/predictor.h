#ifndef PROFILER_PREDICTORS_PREDICTOR_H
#define PROFILER_PREDICTORS_PREDICTOR_H

/* Making one predictor: a low-rank map from an input vector to one score per neuron of one FFN block
 * (common/model/predict.h).
 *
 * First without training. Let W be the gate matrix with each row scaled so that its gate has variance 1, f the FFN's
 * input, x the predictor's (f itself, or another vector of the same token), K = cov(f, x), C = cov(x) = L L^T,
 * B = K L^-T, and V the `rank` leading eigenvectors of B^T W^T W B. Then
 *   fc1 = V^T L^-1,  fc2 = W B V,  bias = W mean(f) - fc2 fc1 mean(x)
 * is the linear map of that rank with the least mean squared error of the gates (reduced-rank regression; for x = f it
 * is the truncated SVD of W C^1/2). For x != f, K C^-1 is fitted to few samples and therefore (K + r D) (C + r)^-1, with D the
 * best diagonal map and a ridge r that grows with d over the number of samples. Each row is then divided by the standard
 * deviation of its own error, so that one threshold means the same doubt for every neuron. Where neurons have thresholds, the
 * edges of what is silent are scaled with their gates and become the bias, width and reach of a two-sided score (predict.h).
 *
 * Then by training: Adam on the logistic loss of "the neuron is active", active ones weighted. The target is not the
 * bit but logistic(gate / (0.1 standard deviations)): where a gate is all but zero either answer is right,
 * and saying so keeps few samples from being learnt by heart.
 *
 * Last, quantising: fc1 and fc2 are rounded and the bias takes up what that moves at the mean input.
 *
 * Results do not depend on the number of threads: work is cut into pieces of fixed size, and sums of
 * pieces are taken in order. linalg_init and kernels_init come first. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/hparams.h"
#include "common/model/predict.h"

#include <stddef.h>
#include <stdint.h>

/* Tokens: n of them, those held out of training last. */
struct predictor_data {
    int d, n_ff;
    size_t n, n_train;
    const float *f;          /* [n][d], what the gates see */
    const float *x;          /* [n][d], what the predictor sees; may be f */
    float *bias[2];          /* [n_ff] biases of gates and ups, which are scaled with their rows; NULL: none */
    float *edges;            /* [n_ff][PREDICTOR_EDGES] of neurons with thresholds, scaled likewise; NULL: without */
};

/* Where a neuron with a threshold begins to fire: above edge 0, or from edge 1 down to edge 2, which are -inf where its act(gate) never
 * falls below minus the threshold. */
#define PREDICTOR_EDGES 3
void predictor_edges(float threshold, enum model_act act, float out[PREDICTOR_EDGES]);

/* How far inside what fires a gate lies; below 0: outside. */
float predictor_inside(float gate, const float edges[PREDICTOR_EDGES]);

/* Statistics of a block's inputs and its leading directions, from the training tokens. */
struct predictor_base;

/* gate, up: [n_ff][d]; up may be NULL: only the gate decides. Both are scaled in place and kept by the caller
 * while the base lives. max_rank: directions to keep. */
int predictor_base_new(const struct predictor_data *data, float *gate, float *up, int max_rank, struct pool *pool,
                       struct predictor_base **out, struct err *e);
void predictor_base_free(struct predictor_base *b); /* accepts NULL */
const float *predictor_base_mean(const struct predictor_base *b);  /* [d] of x */
const float *predictor_base_scale(const struct predictor_base *b); /* [d] 1 / standard deviation of x */

/* The same without decomposition, in seconds for a large block: fc1 takes those blocks of 32 inputs, the weightiest
 * first, by sum over gates of w^2 times mean x^2, and fc2 is the gates' columns there; for x != f each input stands for
 * the FFN's one by their best ratio. As good as the above where gates hang on few inputs, poor where on all alike. From
 * 256 training tokens at most. ERR_UNSUPPORTED: d or max_rank is no multiple of 32. */
int predictor_columns_new(const struct predictor_data *data, float *gate, float *up, int max_rank, struct pool *pool,
                          struct predictor_base **out, struct err *e);

/* How active each neuron is for n tokens f[n][d]: targets[n][n_ff] in 255ths; above 127: active. gate, up (or NULL), their
 * biases (of either or NULL), edges (or NULL): as predictor_base_new left them; unscaled ones decide alike but are not as soft as meant. */
int predictor_targets(const float *gate, const float *up, float *const bias[2], const float *edges, int d, int n_ff,
                      const float *f, size_t n, struct pool *pool, uint8_t *targets, struct err *e);

/* Float weights: fc1[rank][d], fc2[n_ff][rank], bias[n_ff]; owned. */
struct predictor_weights {
    int d, n_ff, rank;
    float *fc1, *fc2, *bias;
    float *sides;              /* [n_ff][2] width and reach of two-sided scores; NULL: one-sided */
    int selects;               /* a row of fc1 has one number that is not 0: it is stored as PREDICT_PICK */
};
void predictor_weights_free(struct predictor_weights *w);

/* Training-free weights of a rank up to max_rank. */
int predictor_start(const struct predictor_base *b, int rank, struct predictor_weights *out, struct err *e);

struct predictor_options {
    int epochs, batch;
    double lr, weight;       /* weight: of an active neuron against an inactive one */
    uint64_t seed;
};

/* Improve w. targets: of the training tokens. on_part: called with the share of training that is done; NULL: not.
 * ERR_INTR when interrupted. */
int predictor_train(struct predictor_weights *w, const struct predictor_base *b, const struct predictor_data *data,
                    const uint8_t *targets, const struct predictor_options *o, struct pool *pool,
                    void (*on_part)(void *ctx, double done), void *ctx, struct err *e);

/* out = a + share * (b - a), element by element: between two weights of one rank, the start and what training made of
 * it. */
int predictor_blend(const struct predictor_weights *a, const struct predictor_weights *b, float share,
                    struct predictor_weights *out, struct err *e);

/* What to add to the neurons' scores so that misses count by what they may cost: shift[n_ff], weigh (0 to 1) times the whole
 * way there, mean 0. gate, up, down: the block's matrices, not scaled yet; down [d][n_ff], or [n_ff][d] when by_neuron. From
 * at most 512 training tokens, of which there is at least one. */
int predictor_shift(const struct predictor_data *data, const float *gate, const float *up, const float *down, int by_neuron,
                    double loss_weighting, struct pool *pool, float *shift, struct err *e);

/* Rounded weights in malloc'd memory that p points into. */
struct predictor_packed {
    struct predict p;
    void *fc1, *fc2;
    float *bias;
};
/* shift: [n_ff], added to the bias; or NULL. */
int predictor_quantise(const struct predictor_weights *w, const struct predictor_base *b, const float *shift,
                       uint32_t type, struct predictor_packed *out, struct err *e);
void predictor_packed_free(struct predictor_packed *q);

/* ---- what it does (predictor_measure.c) ---- */

/* Scores of active and inactive neurons, counted by the upper 16 bits of the float in ascending order: one
 * pass over the tokens serves every threshold, to 0.4 %. */
struct predictor_counts {
    uint64_t *active, *inactive; /* [65536] */
    uint64_t n_active, n_inactive;
};
int predictor_counts_new(struct predictor_counts *c, struct err *e);
void predictor_counts_free(struct predictor_counts *c);

/* Add tokens [first, first + n): x as in the data, targets of these tokens. */
int predictor_count(const struct predict *p, const struct predictor_data *data, size_t first, size_t n,
                    const uint8_t *targets, struct pool *pool, struct predictor_counts *c, struct err *e);

struct predictor_point {
    double recall, threshold, density, precision;
};

/* The largest threshold that reaches the recall, and what it does. No active neuron: everything is predicted
 * inactive. */
struct predictor_point predictor_point_of(const struct predictor_counts *c, double recall);

/* What a given threshold does. */
struct predictor_point predictor_point_at(const struct predictor_counts *c, float threshold);

/* Share of the neurons in the smallest set, hottest first, that holds this share of the active ones; counts: [n_ff]
 * how often each was active elsewhere, deciding the order. */
double predictor_hot_density(const uint64_t *counts, int n_ff, const uint8_t *targets, size_t n,
                             double recall, struct err *e);

#endif
