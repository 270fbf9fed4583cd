#ifndef PROFILER_TRACING_H
#define PROFILER_TRACING_H

/* A tracing run: chunks of the corpus through the dense pass into the journal, then the journal into the
 * trace. */
#include "common/err.h"
#include "common/gguf.h"
#include "common/model.h"
#include "common/pool.h"
#include "profiler/corpus.h"

#include <stdint.h>

struct tracing_sizes {
    uint64_t memory_bytes;     /* of the pass */
    uint64_t partial_bytes;    /* OUT.partial when complete */
    uint64_t trace_bytes;      /* OUT before compression: an upper bound but for HDF5's own tables */
    uint64_t weight_bytes;     /* read per chunk */
    uint64_t n_chunks;
    double flop;               /* floating point operations of the whole run */
};

struct tracing;

/* corpus and model are borrowed. info is filled from them; the model's content hash is not yet known
 * (tracing_identify). */
int tracing_new(const struct model *m, const struct corpus *c, const char *tier, int threads, struct tracing **out,
                struct err *e);
void tracing_free(struct tracing *t); /* accepts NULL */

void tracing_sizes(const struct tracing *t, struct tracing_sizes *out);

/* Hash the model's tensors (reads the whole file). Before tracing_run. */
int tracing_identify(struct tracing *t, struct err *e);

/* Everything a finished trace of this run would say. */
const struct trace_info *tracing_info(const struct tracing *t);

/* Run to the end and write the trace to `out`, with the state in OUT.partial. ERR_INTR leaves the state for resume.
 * *resumed_tokens: how many had been done before. */
int tracing_run(struct tracing *t, struct pool *pool, const char *out, int resume, int gzip, uint64_t *resumed_tokens,
                struct hash128 *content, struct err *e);

/* Floating point operations per second that this machine's kernels do on a piece of the model's first gate matrix, with
 * all threads; takes a fifth of a second. 0 when it cannot be told. */
double tracing_measure(const struct tracing *t, struct pool *pool);

#endif
