#ifndef RUNTIME_PIPELINE_COMPUTE_H
#define RUNTIME_PIPELINE_COMPUTE_H

/* The arithmetic of the pipeline, on data that is there: of a block h = act(gate x) * (up x) and out = down h, for the neurons
 * of some entries, or of some columns; of a predictor rows of its hidden layer, and scores of a range of neurons.
 *
 * Nothing here waits, reads, allocates or can fail, and no lock is held. It uses the caller's buffers and, of config.memory.gather
 * and `scores`, the worker's own part.
 *
 * Threads: any worker, several at once, as long as no two work on the same entry, the same columns or the same range, and a gate is done
 * before its Up, an Up before Down (the scheduler sees to it; rules 8 to 10 of runtime/README.md). A product of a row and
 * a token has the same bits however rows and tokens are grouped, and a column of Down takes neurons in pack order, tiles of
 * them likewise, so which worker does what changes no bit (rules 13, 14). */
#include "runtime/pipeline/block.h"

/* Gates of the entries idx[n] of a list where they are in them, then h where Up is: rows[t][pos] and active[pos] of their
 * neurons. A hot entry's `where` becomes how many of its neurons are active. Adds what it found to *c. */
void compute_entries(struct block *b, enum list_id list, const uint32_t *idx, int n, int worker, struct counts *c);

/* out[t][col] += sum over the active neurons of entries [from, to) of the list of neurons, in this order, of h * down, for
 * col from col0 on. */
void compute_down(struct block *b, uint32_t from, uint32_t to, int col0, int n_cols, int worker);

/* A prediction: the block that is predicted now, and its memory. */
struct compute_prediction {
    /* constant */
    float *hidden, *scores;     /* f32[tokens][rank]; [threads][tokens][SCHEDULE_SCORE_ROWS] */
    uint8_t *prepared;          /* fc2's activations */
    size_t score_floats;        /* of a worker */
    /* written by the coordinator before workers start */
    struct block *of;           /* or NULL: nothing is predicted */
    const void *x;              /* its input, in the form of fc1, [n_tokens] */
    size_t x_stride, prepared_stride;
};

/* Rows [from, to) of the hidden layer. rows: where row `from` of fc1 is, if not in memory with the predictor; else NULL. */
void compute_hidden(const struct compute_prediction *d, uint32_t from, uint32_t to, const uint8_t *rows);

/* All of the hidden layer, when its rows are done, in the form of fc2. */
void compute_prepare(const struct compute_prediction *d);

/* Bits of a range's neurons but for those of an accelerator, for every token and for any. rows, bias: where fc2's row and bias of its
 * first neuron are, if not in memory with the predictor; else NULL. Returns how many neurons were scored. */
uint32_t compute_scores(const struct compute_prediction *d, uint32_t range, const uint8_t *rows, const float *bias, int worker);

#endif
