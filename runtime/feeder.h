#ifndef RUNTIME_FEEDER_H
#define RUNTIME_FEEDER_H

/* Predictors that do not stay in memory: read from the pack whenever they are used, piece by piece, through a ring of
 * buffers (struct budget_predictors). Layers follow each other in the same order for ever, so their pieces are one endless
 * sequence; reading runs ahead of use as far as buffers are free, into the next layer and the next token:
 *
 *      layer 3                          layer 4
 *      fc1 fc1 fc1 fc2 fc2 fc2 fc2 fc2 │ fc1 fc1 fc1 fc2 ...
 *          └ freed      └ arrived            └ asked            at most n_buffers between freed and asked
 *
 * Where blocks are chosen by a router, what comes next is not known: reading begins when a block's turn comes.
 * The coordinator calls everything here, but for feeder_take and feeder_used, which need the pipeline's lock. */
#include "common/budget.h"
#include "common/pack.h"

#include "runtime/io.h"

struct engine;
struct feeder;

#define FEEDER_AHEAD 8 /* pieces in flight, at most */

/* Requests that a feeder with so many buffers has in flight, at most. */
static inline int feeder_depth(uint32_t buffers)
{
    return 2 * (int)(buffers < FEEDER_AHEAD ? buffers : FEEDER_AHEAD);
}

/* memory: budget_stream_bytes of the engine's choice, inside the region of its read backend. Tags of its requests begin
 * at `tag`. */
struct feeder *feeder_new(struct engine *g, uint8_t *memory, uint32_t tag, struct err *e);
void feeder_free(struct feeder *f); /* after the backend is closed; accepts NULL */

/* Where the checksums of the i-th predictor are, rows of fc1, then ranges (verify.h): behind the state of the buffers. */
uint32_t *feeder_checks(const struct engine *g, int i);

/* The pieces of (layer, block) come next. */
void feeder_begin(struct feeder *f, int layer, int block);

/* Start reads; ahead: also of layers that follow. */
int feeder_issue(struct feeder *f, int ahead, struct err *e);

/* A request came back; its story when it failed. */
int feeder_came(struct feeder *f, const struct io_request *r, struct err *e);

/* Rows of the hidden layer, then ranges of neurons, from 0 on whose bytes are there. May be called between lock and unlock. */
void feeder_ready(const struct feeder *f, uint32_t *rows, uint32_t *ranges);

/* Bytes of the rows from `row` on (fc1), or of the neurons of the ranges from `range` on (fc2, bias; NULL without one),
 * and how many of them lie there. Not verified. */
uint8_t *feeder_rows(const struct feeder *f, uint32_t row, uint32_t *n);
uint8_t *feeder_range(const struct feeder *f, uint32_t range, float **bias);

/* Lock held: rows, or ranges, are not needed any more. */
void feeder_used(struct feeder *f, int hidden, uint32_t from, uint32_t n);
/* Lock held: give the buffers of what is used back. */
void feeder_reclaim(struct feeder *f);

uint64_t feeder_bytes(const struct feeder *f); /* read so far */

#endif
