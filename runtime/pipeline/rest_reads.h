#ifndef RUNTIME_PIPELINE_REST_READS_H
#define RUNTIME_PIPELINE_REST_READS_H

/* The rest of each layer's FFN, read piece by piece into the slots of config.area (common/plan/rest.h) for an accelerator, in passes in
 * which the pipeline leaves it out (config.rest). Pieces are read in the order in which they are asked for, layer by layer, and a slot is
 * read into again when its piece is done with: so up to REST_SLOTS pieces are there or on their way, those of the next layers too, while
 * attention and other neurons are computed.
 *
 *      asked for ── rest_reads_issue ──► READING ── rest_reads_came, all of it ──► there ── rest_reads_done ──► its slot is free
 *
 * One thread, the coordinator, calls everything but rest_reads_verify. A request belongs to it until it has come back. */
#include "common/base/err.h"
#include "common/plan/rest.h"

#include "runtime/io/verify.h"
#include "runtime/pipeline/config.h"

struct rest_reads;

/* A piece in its slot. */
struct rest_data {
    int layer;
    struct rest_piece piece;
    uint8_t *at[LAYOUT_MAX_PARTS];      /* of parts that are read: the first unit; units are stride_bytes apart */
    uint8_t *slot;
    size_t bytes;                       /* of the slot, that reads wrote to */
};

/* Tags of its requests begin at `tag`. c outlives it. Without an area it does nothing. NULL: ERR_NOMEM. */
struct rest_reads *rest_reads_new(const struct pipeline_config *c, uint32_t tag, struct err *e);
void rest_reads_free(struct rest_reads *r); /* after the backend is closed; accepts NULL */

/* The rests of these layers are asked for, in this order; layers outlives that. n 0: nothing is, and what is there or on its way is
 * forgotten. Nothing may be asked for again before all of that has come back. */
void rest_reads_begin(struct rest_reads *r, const int *layers, int n);

/* Starts reads until `most` are in flight, of all that the backend has. ERR_IO, ERR_INTR. */
int rest_reads_issue(struct rest_reads *r, uint32_t most, struct err *e);
/* A request of its tags has come back. ERR_IO. */
int rest_reads_came(struct rest_reads *r, const struct io_request *done, struct err *e);

int rest_reads_in_flight(const struct rest_reads *r);
int rest_reads_busy(const struct rest_reads *r); /* something may be started, or is in flight */

/* The next piece of the layer that was not given yet: 1, there, in *out; 2, not yet; 0, there is none (left). A layer's pieces come after
 * those before it. */
int rest_reads_next(struct rest_reads *r, int layer, struct rest_data *out);
/* Of the pieces that rest_reads_next gave, the first is not needed any more. */
void rest_reads_done(struct rest_reads *r);

/* How many units a piece has, of all parts that are read; and, on any thread, verification of one of them. ERR_IO names it. */
uint32_t rest_reads_units(const struct pipeline_config *c, const struct rest_data *d);
int rest_reads_verify(const struct pipeline_config *c, const struct rest_data *d, uint32_t unit, struct verify_counts *v, struct err *e);

/* Where the piece that begins at a neuron would lie in the first slot: for whoever asks what can be computed there. 0: there is none. */
int rest_reads_place(const struct pipeline_config *c, int layer, uint32_t at, struct rest_data *out);

#endif
