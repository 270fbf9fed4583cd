#ifndef PROFILER_TRACE_OBSERVE_H
#define PROFILER_TRACE_OBSERVE_H

/* Activation maps -> counts, for one chunk of whole groups of sequences. A neuron counts in a batch when at
 * least one of the batch's tokens fires it; the batches are those of schemas/trace.md. */
#include "common/base/pool.h"
#include "common/offline/forward.h"
#include "common/offline/trace/trace.h"

#include <stdint.h>

/* Counts of one layer over a chunk. Arrays are [..][n_blocks][n_ff] or [..][n_blocks]; sums of chunks are sums of
 * these. uint32_t is enough for a chunk. */
struct observe {
    int n_blocks, n_ff;
    uint32_t *counts, *gate_counts;                     /* [n_blocks][n_ff] */
    uint32_t *batch[TRACE_BATCH_KINDS];                 /* [TRACE_BATCH_SIZES][n_blocks][n_ff] */
    uint32_t *routed;                                   /* [n_blocks] */
    uint32_t *routed_batch[TRACE_BATCH_KINDS];          /* [TRACE_BATCH_SIZES][n_blocks] */
    uint32_t *all;                                      /* what the pointers above point into, in that order */
    size_t n_all;
};

int observe_new(const struct model_hparams *h, struct observe **out, struct err *e);
void observe_free(struct observe *o); /* accepts NULL */

/* Elements of `all` for a model. */
size_t observe_size(const struct model_hparams *h);

/* Replace the counts by those of this layer. starts: [n_sequences + 1] of the run, whose sequences are whole groups of
 * TRACE_GROUP (the last may be short). ERR_NOMEM only. */
int observe_layer(struct observe *o, struct pool *pool, const struct forward_layer *l, const uint64_t *starts,
                  size_t n_sequences, struct err *e);

/* How many batches of each kind and size these sequences form; added to n_batches. */
void observe_batches(const uint64_t *starts, size_t n_sequences,
                     uint64_t n_batches[TRACE_BATCH_KINDS][TRACE_BATCH_SIZES]);

#endif
