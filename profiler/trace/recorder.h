#ifndef PROFILER_TRACE_RECORDER_H
#define PROFILER_TRACE_RECORDER_H

/* A tracing run: chunks of the corpus through the dense pass into the journal, then the journal into the
 * trace. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/model/gguf.h"
#include "common/model/model.h"
#include "profiler/trace/corpus.h"

#include <stdint.h>

struct recorder_sizes {
    uint64_t memory_bytes;     /* of the pass */
    uint64_t partial_bytes;    /* OUT.partial when complete */
    uint64_t trace_bytes;      /* OUT before compression: an upper bound but for HDF5's own tables */
    uint64_t weight_bytes;     /* read per chunk */
    uint64_t n_chunks;
    double flop;               /* floating point operations of the whole run */
};

struct recorder;

/* act_q8: activations of 8 bits where a matrix's type has such products (struct forward_run). corpus and model are borrowed. info is
 * filled from them; the model's content hash is not yet known (recorder_identify). */
int recorder_new(const struct model *m, const struct corpus *c, const char *tier, int threads, int act_q8, struct recorder **out,
                 struct err *e);
void recorder_free(struct recorder *t); /* accepts NULL */

void recorder_sizes(const struct recorder *t, struct recorder_sizes *out);

/* f32[n_layers][n_ff][2][TRACE_COLD_LEVELS], borrowed: what trace_cold will give; for a model with cold thresholds. */
void recorder_cold(struct recorder *t, const float *curves);

/* Hash the model's tensors (reads the whole file). Before recorder_run. */
int recorder_identify(struct recorder *t, struct err *e);

/* Everything a finished trace of this run would say. */
const struct trace_info *recorder_info(const struct recorder *t);

/* Run to the end and write the trace to `out`, with the state in OUT.partial. ERR_INTR leaves the state for resume.
 * *resumed_tokens: how many had been done before. */
int recorder_run(struct recorder *t, struct pool *pool, const char *out, int resume, int gzip, uint64_t *resumed_tokens,
                struct hash128 *content, struct err *e);

/* Floating point operations per second that this machine's kernels do on a piece of the model's first gate matrix, with
 * all threads; takes a fifth of a second. 0 when it cannot be told. */
double recorder_measure(const struct recorder *t, struct pool *pool);

#endif
