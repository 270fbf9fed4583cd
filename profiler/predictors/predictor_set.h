#ifndef PROFILER_PREDICTORS_PREDICTOR_SET_H
#define PROFILER_PREDICTORS_PREDICTOR_SET_H

/* A run of `thermo-profile predictors`: every block of every layer, one layer in memory at a time.
 *
 *   1. scan      (rank auto) per layer, how dense the training-free predictor of each rank is at the wanted recall
 *   2. allocate  ranks of the layers under the byte budget: the next step goes where it takes the most neurons away
 *                per byte
 *   3. make      per layer: start, train, quantise, choose the threshold on held-out tokens
 *   4. save      all of them into the trace
 *
 * Finished layers are kept in a journal (common/base/journal.h) until the end. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/model.h"
#include "common/offline/trace/trace_predict.h"

#include <stdint.h>

#define PREDICTOR_SET_RANKS 32 /* most ranks that a scan tries */

struct predictor_set_options {
    double recall;
    unsigned inputs;          /* 1 << PREDICT_FFN, 1 << PREDICT_BLOCK */
    const uint8_t *layers;    /* [n_layers] not 0: of these; NULL: of all. Borrowed by predictor_set_new alone */
    uint64_t budget_bytes;    /* per input, all these layers together; rank auto */
    int rank;                 /* 0: auto */
    int epochs;               /* 0: training-free */
    int columns;              /* training-free from the gates' own columns */
    double loss_weighting;             /* 0: all false negatives count equally, 1: by the loss that they may cause (predictor_shift) */
    uint64_t seed, samples;   /* samples 0: all */
    uint32_t type;
};

struct predictor_set;

int predictor_set_new(struct trace *t, const struct model *m, const struct predictor_set_options *o, struct pool *pool,
                   struct predictor_set **out, struct err *e);
void predictor_set_free(struct predictor_set *p); /* accepts NULL */

/* An upper bound of the memory that the largest layer needs. */
uint64_t predictor_set_memory(const struct predictor_set *p);

/* Bytes of all FFNs in the model file. */
uint64_t predictor_set_ffn_bytes(const struct trace_info *t);

/* Make them all. state: path of the journal. Afterwards predictor_set_save. Saving keeps what the trace
 * holds for other inputs and layers, unless it is imported, and the quality of inputs that stay as they are. */
int predictor_set_run(struct predictor_set *p, const char *state, int resume, struct err *e);
int predictor_set_save(struct predictor_set *p, const char *trace_path, const char *out, const char *tier, struct err *e);

/* Removes the journal. */
void predictor_set_finish(struct predictor_set *p);

uint64_t predictor_set_resumed_layers(const struct predictor_set *p);

/* What the predictors that a trace holds do with the samples of another: at their own thresholds. out: as many as in
 * p's list. */
struct predictor_set_check {
    double recall, density, precision, true_density;
    double density_at_recall;  /* had the threshold been chosen here */
};
int predictor_set_check(struct trace_predictors *p, struct trace *held, const struct model *m, uint64_t samples,
                     struct pool *pool, struct predictor_set_check *out, struct err *e);

/* What they cost in quality: the whole model is run on text (a trace of it: its held-out tokens, or all of them) densely, and
 * for every input of `inputs` (1 << enum predict_input) that p has, and several recalls, with every FFN computing only
 * predicted neurons; a block without a predictor is computed whole. rows and losses, whose rows are to be freed: for
 * trace_predict_save_quality. own: the trace that p is of, whose order losses go by. tokens: how many
 * are compared at most; PREDICTOR_SET_AUTO: as many as keep it to minutes. ERR_INPUT when the text has too few, or p has
 * none of these inputs. */
#define PREDICTOR_SET_AUTO UINT64_MAX
int predictor_set_quality(struct trace_predictors *p, struct trace *own, struct trace *text, int all, const struct model *m,
                          unsigned inputs, uint64_t tokens, struct pool *pool,
                          struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                          struct trace_predict_losses *losses, struct err *e);

#endif
