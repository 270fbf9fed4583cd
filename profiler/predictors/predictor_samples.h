#ifndef PROFILER_PREDICTORS_PREDICTOR_SAMPLES_H
#define PROFILER_PREDICTORS_PREDICTOR_SAMPLES_H

/* What a predictor is made from: the sampled inputs of a layer out of a trace, and the matrices of its blocks
 * out of the model. One sequence in eight is held out of training, whole, so that what is measured was not seen. */
#include "common/model/model.h"
#include "common/model/predict.h"
#include "common/offline/trace/trace.h"

#include <stddef.h>
#include <stdint.h>

/* The sampled tokens of a trace that are used: the same for every layer. */
struct predictor_samples {
    struct trace *trace;         /* borrowed */
    size_t n, n_train;           /* training tokens first */
    uint64_t *at;                /* [n] sample number in the trace */
    uint64_t *token;             /* [n] */
};

/* At most `most` samples, evenly chosen. all_held: none is for training (an evaluation set). ERR_INPUT when there are
 * too few. */
int predictor_samples_open(struct trace *t, uint64_t most, int all_held, struct predictor_samples *out, struct err *e);
void predictor_samples_close(struct predictor_samples *s);

/* Is a token of the trace held out? Whole sequences are, one in eight; in a trace of fewer than 32 sequences
 * (predictor_samples_whole is 0) aligned runs of tokens. */
#define PREDICTOR_SAMPLES_RUN 64
int predictor_samples_whole(const struct trace_info *i);
int predictor_samples_held(struct trace *t, uint64_t sequence, uint64_t token);

/* A layer's inputs in memory. */
struct predictor_layer {
    int layer;
    float *input[PREDICT_INPUTS]; /* [n][d_model] of the tokens above; NULL where not loaded */
    uint16_t *blocks;             /* [n][k] experts of each token; NULL when dense */
};

/* Load the FFN's input and, when it is in inputs (1 << enum predict_input), others. attn_norm, ffn_norm:
 * f32[d_model] */
int predictor_layer_load(const struct predictor_samples *s, int layer, unsigned inputs, const float *attn_norm,
                         const float *ffn_norm, struct predictor_layer *out, struct err *e);
void predictor_layer_free(struct predictor_layer *l);

/* Tokens of the layer that were routed to a block, training tokens first, gathered: out[input][n][d_model]. When
 * fewer than `least` of the training tokens were, all tokens of the layer stand in for them. Dense: the layer's
 * own arrays, not copied. */
struct predictor_block {
    size_t n, n_train;
    const float *input[PREDICT_INPUTS];
    float *owned[PREDICT_INPUTS];
    int stand_in;
};
int predictor_block_gather(const struct predictor_samples *s, const struct predictor_layer *l, int block, size_t least,
                           struct predictor_block *out, struct err *e);
void predictor_block_free(struct predictor_block *b);

/* Biases of a block's gates and, where they decide too, of its ups: out[2], each [n_ff] in malloc'd memory, or NULL where there are
 * none. The caller frees them, after an error too. */
int predictor_biases(const struct model *m, int layer, int block, float *out[2], struct err *e);

/* Edges of what a layer's thresholds silence, f32[n_ff][PREDICTOR_EDGES] (predictor.h) in malloc'd memory, or NULL where
 * neurons have none. The caller frees them, after an error too. */
int predictor_layer_edges(const struct model *m, int layer, float **out, struct err *e);

/* Floats of one block's share of a tensor, out[elements]. Blocks are read in order from 0. That the
 * tensor is the one that was traced is gguf_read's to see (trace_expect). One reader per tensor and pass. */
struct predictor_tensor {
    const struct gguf *gguf;
    const struct gguf_tensor *tensor;
    uint64_t done;
};
int predictor_tensor_open(const struct gguf *g, const struct gguf_tensor *t, struct predictor_tensor *out, struct err *e);
int predictor_tensor_next(struct predictor_tensor *t, int n_blocks, float *out, struct err *e);

#endif
