#ifndef RUNTIME_ENGINE_ROW_READS_H
#define RUNTIME_ENGINE_ROW_READS_H

/* Tables of which a token needs a row, where they do not stay in memory: embeddings, and those of each layer. A pass knows its tokens
 * before its first layer, so the reads of their rows begin then, each one read of whole blocks, BUDGET_ROW_BUFFERS in flight, and whoever
 * needs rows takes them in the tokens' order:
 *
 *      begin ──► READING ── take: they have come, and are verified ──► used ── give: their buffers read what is next
 *
 * They have a read backend of their own, so that no read of a neuron waits behind a row's or the other way round. One thread calls
 * everything. */
#include "common/base/err.h"
#include "common/pack/pack.h"
#include "common/plan/budget.h"

#include "runtime/engine/token.h"
#include "runtime/io/io.h"
#include "runtime/io/verify.h"

struct row_reads;

#define ROW_READS_GROUP (BUDGET_ROW_BUFFERS / 2) /* rows that are taken at once, at most */

/* v outlives it. NULL: ERR_NOMEM. */
struct row_reads *row_reads_new(const struct verifier *v, struct err *e);

/* A table of the pack whose rows are read; memory: budget_table_stream() bytes. Whoever reads it whole gives it its rows' bytes in order
 * (row_reads_look), of which checksums remain. Then it is opened. */
void row_reads_add(struct row_reads *r, const struct pack_dense *d, uint8_t *memory);
void row_reads_look(struct row_reads *r, uint32_t row, const uint8_t *bytes);
uint8_t *row_reads_buffer(struct row_reads *r); /* a row's bytes, of the table that was added last */
int row_reads_open(struct row_reads *r, enum plan_io io, const struct io_backend *backend, struct io_config *c, struct err *e);
/* 1: reads are in flight that do not come back, and memory is in use. Accepts NULL. */
int row_reads_close(struct row_reads *r);

int row_reads_has(const struct row_reads *r, enum model_role role); /* r may be NULL */
const struct io *row_reads_io(const struct row_reads *r);           /* NULL where r is */
void row_reads_watch(struct row_reads *r, const struct cancel *cancel);
struct verify_counts row_reads_verified(const struct row_reads *r);

/* A pass has these tokens, which outlive it. What an earlier one did not take is waited for and forgotten. ERR_IO, ERR_INTR. */
int row_reads_begin(struct row_reads *r, const struct engine_token *tokens, int n, struct err *e);

/* The rows of the next tokens, so many, at most ROW_READS_GROUP, are there. How many; 0: all were taken. ERR_IO names a row. */
int row_reads_take(struct row_reads *r, enum model_role role, const uint8_t *rows[ROW_READS_GROUP], struct err *e);
/* They are used: more is read. */
int row_reads_give(struct row_reads *r, enum model_role role, struct err *e);

#endif
