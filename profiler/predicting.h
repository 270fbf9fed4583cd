#ifndef PROFILER_PREDICTING_H
#define PROFILER_PREDICTING_H

/* A run of `thermo-profile predictors`: every block of every layer, one layer in memory at a time.
 *
 *   1. scan      (rank auto) per layer, how dense the training-free predictor of each rank is at the wanted recall
 *   2. allocate  ranks of the layers under the byte budget: the next step goes where it takes the most neurons away
 *                per byte
 *   3. make      per layer: start, train, quantise, choose the threshold on held-out tokens
 *   4. save      all of them into the trace
 *
 * Finished layers are kept in a journal (profiler/journal.h) until the end. */
#include "common/err.h"
#include "common/model.h"
#include "common/offline/trace_predict.h"
#include "common/pool.h"

#include <stdint.h>

#define PREDICTING_RANKS 32 /* most ranks that a scan tries */

struct predicting_options {
    double recall;
    unsigned inputs;          /* 1 << PREDICT_FFN, 1 << PREDICT_BLOCK */
    const uint8_t *layers;    /* [n_layers] not 0: of these; NULL: of all. Borrowed by predicting_new alone */
    uint64_t budget_bytes;    /* per input, all these layers together; rank auto */
    int rank;                 /* 0: auto */
    int epochs;               /* 0: training-free */
    int columns;              /* training-free from the gates' own columns */
    double weigh;             /* 0: all misses count alike, 1: by what they may cost (predictor_shift) */
    uint64_t seed, samples;   /* samples 0: all */
    uint32_t type;
};

struct predicting;

int predicting_new(struct trace *t, const struct model *m, const struct predicting_options *o, struct pool *pool,
                   struct predicting **out, struct err *e);
void predicting_free(struct predicting *p); /* accepts NULL */

/* An upper bound of the memory that the largest layer needs. */
uint64_t predicting_memory(const struct predicting *p);

/* Bytes of all FFNs in the model file. */
uint64_t predicting_ffn_bytes(const struct trace_info *t);

/* Make them all. state: path of the journal. Afterwards predicting_save or predicting_list. Saving keeps what the trace
 * holds for other inputs and layers, unless it is imported, and the quality of inputs that stay as they are. */
int predicting_run(struct predicting *p, const char *state, int resume, struct err *e);
int predicting_save(struct predicting *p, const char *trace_path, const char *out, const char *tier, struct err *e);

/* Removes the journal. */
void predicting_finish(struct predicting *p);

/* What was made, by input, layer, block; borrowed. */
const struct trace_predictor *predicting_list(const struct predicting *p, int *n);
uint64_t predicting_resumed_layers(const struct predicting *p);

/* What the predictors that a trace holds do with the samples of another: at their own thresholds. out: as many as in
 * p's list. */
struct predicting_check {
    double recall, density, precision, true_density;
    double density_at_recall;  /* had the threshold been chosen here */
};
int predicting_check(struct trace_predictors *p, struct trace *held, const struct model *m, uint64_t samples,
                     struct pool *pool, struct predicting_check *out, struct err *e);

/* What they cost in quality: the whole model is run on text (a trace of it: its held-out tokens, or all of them) densely, and
 * for every input of `inputs` (1 << enum predict_input) that p has, and several recalls, with every FFN computing only foretold neurons; a block without a predictor is
 * computed whole. rows: for trace_predict_save_quality. tokens: how many are compared at most; PREDICTING_AUTO: as
 * many as keep it to minutes. ERR_INPUT when the text has too few, or p has none of these inputs. */
#define PREDICTING_AUTO UINT64_MAX
int predicting_quality(struct trace_predictors *p, struct trace *text, int all, const struct model *m, unsigned inputs,
                       uint64_t tokens, struct pool *pool, struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                       struct err *e);

#endif
