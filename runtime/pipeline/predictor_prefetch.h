#ifndef RUNTIME_PIPELINE_PREDICTOR_PREFETCH_H
#define RUNTIME_PIPELINE_PREDICTOR_PREFETCH_H

/* Predictors that do not stay in memory: read from the pack whenever they are used, piece by piece, through a ring of
 * buffers (struct budget_predictors). Layers follow each other in the same order for ever, so their pieces are one endless
 * sequence; reading runs ahead of use as far as buffers are free, into the next layer and the next token:
 *
 *      layer 3                          layer 4
 *      fc1 fc1 fc1 fc2 fc2 fc2 fc2 fc2 │ fc1 fc1 fc1 fc2 ...
 *          └ freed      └ arrived            └ asked            at most n_buffers between freed and asked
 *
 * Where blocks are chosen by a router, what comes next is not known: reading begins when a block's turn comes.
 * Threads: the coordinator calls everything here but for predictor_prefetch_rows and predictor_prefetch_range, which workers call
 * for bytes that are there, and what asks for the scheduler's lock. */
#include "runtime/pipeline/config.h"

struct predictor_prefetch;

#define PREDICTOR_PREFETCH_AHEAD 8 /* pieces in flight, at most */

/* Requests that a predictor prefetch with so many buffers has in flight, at most. */
static inline int predictor_prefetch_depth(uint32_t buffers)
{
    return 2 * (int)(buffers < PREDICTOR_PREFETCH_AHEAD ? buffers : PREDICTOR_PREFETCH_AHEAD);
}

/* c outlives it. memory: budget_stream_bytes of its choice, inside the region of its read backend. Tags of its requests
 * begin at `tag`. */
struct predictor_prefetch *predictor_prefetch_new(const struct pipeline_config *c, uint8_t *memory, uint32_t tag, struct err *e);
void predictor_prefetch_free(struct predictor_prefetch *f); /* after the backend is closed; accepts NULL */

/* Where in the staging region the checksums of the i-th predictor are, rows of fc1, then ranges (verify.h): behind the state
 * of the buffers. */
uint32_t *predictor_prefetch_checks(uint8_t *staging, const struct layout_shape *s, const struct budget_choice *c, int i);

/* The pieces of (layer, block) come next. */
void predictor_prefetch_begin(struct predictor_prefetch *f, int layer, int block);

/* Start reads; ahead: also of layers that follow. */
int predictor_prefetch_issue(struct predictor_prefetch *f, int ahead, struct err *e);

/* A request came back; its message when it failed. */
int predictor_prefetch_came(struct predictor_prefetch *f, const struct io_request *r, struct err *e);

/* Rows of the hidden layer, then ranges of neurons, from 0 on whose bytes are there. May be called between lock and unlock. */
void predictor_prefetch_ready(const struct predictor_prefetch *f, uint32_t *rows, uint32_t *ranges);

/* How many rows from `row` on lie together. */
uint32_t predictor_prefetch_together(const struct predictor_prefetch *f, uint32_t row);

/* Bytes of rows [from, to) of fc1, which lie together, or of the neurons of a range (rows of fc2; bias, NULL without one), verified
 * by this call (runtime/io/verify.h) and counted in *c. ERR_IO: damaged. A worker's. */
int predictor_prefetch_rows(const struct predictor_prefetch *f, uint32_t from, uint32_t to, const uint8_t **rows,
                            struct verify_counts *c, struct err *e);
int predictor_prefetch_range(const struct predictor_prefetch *f, uint32_t range, const uint8_t **rows, const float **bias,
                             struct verify_counts *c, struct err *e);

/* Lock held: rows, or ranges, are not needed any more. */
void predictor_prefetch_used(struct predictor_prefetch *f, int hidden, uint32_t from, uint32_t n);
/* Lock held: give the buffers of what is used back. */
void predictor_prefetch_reclaim(struct predictor_prefetch *f);

uint32_t predictor_prefetch_in_flight(const struct predictor_prefetch *f); /* requests; f may be NULL */

uint64_t predictor_prefetch_bytes(const struct predictor_prefetch *f); /* read so far */

#endif
