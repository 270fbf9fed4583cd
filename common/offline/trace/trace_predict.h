#ifndef COMMON_OFFLINE_TRACE_TRACE_PREDICT_H
#define COMMON_OFFLINE_TRACE_TRACE_PREDICT_H

/* Predictors in a trace (schemas/trace.md, "Predictors"): per input, layer and block the weights and what they
 * were measured to do on tokens held out of training. They are no part of the content hash. One thread at
 * a time, as for traces. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/predict.h"
#include "common/offline/trace/trace.h"

#include <stdint.h>

#define TRACE_PREDICT_POINTS 16  /* most points of a curve */
#define TRACE_PREDICT_QUALITY 64 /* most rows of the quality table */
#define TRACE_PREDICT_CORPUS 128 /* bytes of the name of the text it was measured on */
#define TRACE_PREDICT_PARTS 16   /* of a layer's neurons, in the order from hot to cold, in the curves of losses */

/* On held-out tokens, with the stored weights. */
struct trace_predict_point {
    float recall;     /* share of the active neurons that are predicted */
    float threshold;
    float density;    /* share of the neurons that are predicted */
    float precision;  /* share of the predicted neurons that are active */
};

struct trace_predictor {
    enum predict_input input;
    int layer, block;
    int rank, relu, has_bias, two_sided;
    uint32_t type1, type2;
    struct trace_predict_point at;  /* the chosen operating point */
    double true_density;            /* an oracle's */
    double
        start_density; /* of the training-free predictor of the same bytes at the same recall; 0: this is one */
    double hot_density;             /* of the smallest fixed set of neurons with the same recall */
    uint64_t n_train, n_held;       /* tokens */
    int n_points;
    struct trace_predict_point curve[TRACE_PREDICT_POINTS]; /* ascending recall */
    uint64_t bytes;                 /* predict_bytes() */
};

/* How they were made. */
struct trace_predict_info {
    char tool[64], tier[32], method[32]; /* "trained", "svd", "columns", "imported" */
    double recall;                       /* asked for */
    double loss_weighting;                        /* 0 all false negatives count equally, 1 by the loss that they may cause, or between */
    uint64_t seed, epochs;
    struct hash128 model_hash;
};

/* What predictors of one input cost, all layers together and no neuron always computed as hot: the next-token distributions of
 * the whole model when it computes only predicted neurons, against those of the model that computes all. Every
 * predictor stands at trace_predict_point_for(target). */
struct trace_predict_quality {
    enum predict_input input;
    double target;               /* recall that each predictor's operating point reaches on its own held-out tokens */
    double recall, density;      /* seen in this pass, in all layers: shares of active and of all neurons predicted */
    double true_density;         /* share of all neurons that were active */
    double kl_mean, kl_max;      /* KL(exact || predicted) of the next token's distribution, nats; over tokens */
    double top1;                 /* share of tokens with the same likeliest next token */
    double ppl_ratio;            /* perplexity over exact mode's */
    uint64_t tokens;
};

/* What predictors of one input in one layer lose: the energy |h|^2 |column of Down|^2 of neurons that are not predicted, mean per
 * token, at each target recall of the table, by parts of the order (equally many of each FFN or expert); and what the model loses by
 * it, nats per energy, measured where layers about this one alone computed predicted neurons. */
struct trace_predict_loss {
    enum predict_input input;
    int layer;
    double kl_per_energy;
    float energy[TRACE_PREDICT_POINTS][TRACE_PREDICT_PARTS];
};
struct trace_predict_losses {
    int n, n_targets;            /* n 0: not measured */
    float target[TRACE_PREDICT_POINTS]; /* ascending, as of the quality table */
    struct trace_predict_loss *row; /* [n] by input and layer ascending */
};

struct trace_predictors;

/* NULL in *out when the trace holds none. t must stay open. */
int trace_predictors_open(const struct trace *t, struct trace_predictors **out, struct err *e);
void trace_predictors_close(struct trace_predictors *p); /* accepts NULL */
const struct trace_predict_info *trace_predictors_info(const struct trace_predictors *p);
/* All of them, by input, layer, block ascending; borrowed. */
const struct trace_predictor *trace_predictors_list(const struct trace_predictors *p, int *n);
/* NULL when there is none. */
const struct trace_predictor *trace_predictors_find(const struct trace_predictors *p,
                                                    enum predict_input input, int layer, int block);
/* The operating point with the least density whose recall is at least the target; where none reaches it, the one with
 * the highest recall. */
const struct trace_predict_point *trace_predict_point_for(const struct trace_predictor *x, double target);

/* The quality table by input and target ascending, borrowed; how many rows it has: 0 when it was not measured. The text
 * it was measured on: "" without a table. */
int trace_predict_quality(const struct trace_predictors *p, const struct trace_predict_quality **rows);
const char *trace_predict_corpus(const struct trace_predictors *p);

const struct trace_predict_losses *trace_predict_losses(const struct trace_predictors *p); /* of the same text; borrowed */

/* Weights, neurons in original order: fc1 [rank] rows of d_model, fc2 [n_ff] rows of rank; bias
 * [n_ff], zero where there is none, or two-sided as in predict.h. */
int trace_predictors_read(struct trace_predictors *p, const struct trace_predictor *x, void *fc1, void *fc2,
                          float *bias, struct err *e);

/* Write the trace at path once more, with n predictors in place of those it holds: to `out`, whole or not at all (out
 * may be path). unchanged (1 << enum predict_input): of these inputs they are those that it holds, and their rows of the
 * quality table stay. fetch gives the i-th with its weights, borrowed until the next call. */
typedef int trace_predict_fetch(void *ctx, int i, struct trace_predictor *x, const void **fc1, const void **fc2,
                                const float **bias, struct err *e);
int trace_predictors_save(const char *path, const char *out, const struct trace_predict_info *info, unsigned unchanged,
                          int n, trace_predict_fetch *fetch, void *ctx, struct err *e);

/* Write the trace at path, which holds predictors, once more with this quality table (n <= TRACE_PREDICT_QUALITY rows by
 * input and target ascending) and these losses (NULL: none) in place of what it has: to `out`, whole or not at all (out may be path). */
int trace_predict_save_quality(const char *path, const char *out, const struct trace_predict_quality *rows, int n,
                               const char *corpus, const struct trace_predict_losses *losses, struct err *e);

#endif
