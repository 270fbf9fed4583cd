#ifndef COMMON_MODEL_PREDICT_H
#define COMMON_MODEL_PREDICT_H

/* Which neurons of an FFN block will be active, predicted without its gates by a low-rank map:
 *
 *   score[i] = < fc2_i, g(fc1 x) > + bias[i]       predicted active: score[i] > threshold
 *
 * with g the identity or ReLU. Where neurons have thresholds (nn_silence) a gate also fires far below 0, and the score
 * is two-sided:
 *
 *   s = < fc2_i, g(fc1 x) > + bias[i]              how far the predicted gate is above the silent interval
 *   score[i] = max(s, min(-(s + width[i]), s + reach[i]))
 *
 * width: of the silent interval; reach: from its upper edge down to where act(gate) falls below the threshold again.
 * One threshold, at most 0 as a rule, then widens what is predicted on all sides equally.
 *
 * The trainer measures recall with these very functions, the runtime decides with them: same weights and same SIMD
 * tier, same bits, whatever the threads, ranges and tokens per call (kernels.h). Products take int8 activations where
 * the type has them. Thread-safe; cannot fail after predict_init. A caller with several threads divides rows of the
 * hidden layer, then ranges of neurons. */
#include "common/base/err.h"
#include "common/kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* What x is: a property of the predictor. Numbers are in packed models. */
enum predict_input {
    PREDICT_FFN,      /* after ffn_norm: what Gate and Up are multiplied with */
    PREDICT_BLOCK,    /* after attn_norm of the same layer, known before its attention: lookahead */
    PREDICT_RESIDUAL, /* the residual before ffn_norm (PowerInfer's predictors) */
    PREDICT_INPUTS
};

const char *predict_input_name(enum predict_input i); /* "ffn" "block" "residual" */
int predict_input_by_name(const char *name);          /* -1: unknown */

#define PREDICT_MAX_RANK (1 << 16)

/* Besides the element types of quant.h fc1 can be of this one: a row is not multiplied but picks one input, and is
 * PREDICT_PICK_BYTES long: u32 the input, f32 what it is multiplied with. */
#define PREDICT_PICK       0x10000u
#define PREDICT_PICK_BYTES 8

/* Numbers of a neuron beside its row of fc2. */
#define PREDICT_TWO_SIDED 3

static inline int predict_numbers(int has_bias, int two_sided)
{
    return two_sided ? PREDICT_TWO_SIDED : has_bias;
}

struct predict {                 /* one block's predictor; weights are borrowed */
    enum predict_input input;
    int relu;                    /* ReLU between fc1 and fc2 */
    int d_model, rank, n_ff;
    uint32_t type1, type2;       /* of fc1 and fc2 */
    const void *fc1, *fc2;       /* [rank] rows of d_model, or picks that predict_check_selected has passed; [n_ff] rows of rank */
    int two_sided;
    const float *bias;           /* [n_ff], or NULL: zero; two-sided: [n_ff][PREDICT_TWO_SIDED] bias, width, reach */
    float threshold;
    /* by predict_init */
    size_t row1, row2;           /* bytes of a row */
    enum kernels_act form1, form2;
};

/* Bytes of a row of fc1 and of fc2; 0 when it is no whole number of blocks or the type is unknown. */
uint64_t predict_row1_bytes(uint32_t type1, int d_model);
uint64_t predict_row2_bytes(uint32_t type2, int rank);

/* "F16", ..., or "picked inputs"; "?" for an unknown one. */
const char *predict_type_name(uint32_t type);

/* Whether each of n rows of fc1 picks one of d_model inputs and a finite factor; true for rows of any other type. */
int predict_check_selected(uint32_t type1, const void *fc1, int n, int d_model);

/* Bytes of fc1, fc2 and bias (numbers: predict_numbers), or 0 when a row is no whole number of blocks or a
 * number is out of range. */
uint64_t predict_bytes(int d_model, int rank, int n_ff, uint32_t type1, uint32_t type2, int numbers);

/* After kernels_init: checks sizes and types, fills the derived fields. */
int predict_init(struct predict *p, struct err *e);

/* Bytes of one token's activations in the form that fc1 and fc2 take (kernels_act_prepare). */
size_t predict_input_bytes(const struct predict *p);
size_t predict_hidden_bytes(const struct predict *p);

/* Rows [row0, row1) of the hidden layer of n_tokens: h[t * h_stride + r]. x: prepared, x_stride bytes apart. */
void predict_hidden(const struct predict *p, int row0, int row1, const void *x, size_t x_stride, int n_tokens, float *h,
                    size_t h_stride);

/* The whole hidden layer of n_tokens, in place through g, into activations for fc2, out_stride bytes apart. */
void predict_prepare(const struct predict *p, float *h, size_t h_stride, int n_tokens, void *out, size_t out_stride);

/* Scores of neurons [first, first + n), without threshold: score[t * stride + i] is neuron first + i. */
void predict_scores(const struct predict *p, int first, int n, const void *hidden, size_t hidden_stride, int n_tokens,
                    float *score, size_t stride);

/* A predictor that is read while it is used comes in pieces: rows of fc1, then ranges of neurons, whose rows of fc2 and bias
 * are read together. A range is what one worker scores at a time: whole clusters, about PREDICT_RANGE neurons. */
#define PREDICT_RANGE 1024
#define PREDICT_PIECE_LEAST (16u << 10) /* bytes of rows: a sixteenth of the predictor, within these bounds, but one row or */
#define PREDICT_PIECE_MOST  (256u << 10) /* range at least */
struct predict_pieces {
    uint32_t range;              /* neurons */
    uint32_t rows, ranges;       /* of a piece; the last of each kind may have fewer */
    uint32_t n_hidden, n_scores; /* pieces */
    uint64_t buffer_bytes;       /* that holds any of them, read as whole blocks */
};
uint32_t predict_range(uint32_t cluster_neurons);

/* row1, row2: bytes of rows; always computed: neurons that are not scored. */
void predict_pieces_of(uint64_t row1, int rank, uint64_t row2, int two_sided, int n_ff, uint32_t always, uint32_t cluster_neurons,
                       uint32_t block_bytes, struct predict_pieces *out);

/* Bit i % 8 of bits[i / 8] := score[i] > threshold, for i < n; the last byte's bits beyond n are 0. */
void predict_decide(const struct predict *p, const float *score, int n, uint8_t *bits);

#endif
