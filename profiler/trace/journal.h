#ifndef PROFILER_TRACE_JOURNAL_H
#define PROFILER_TRACE_JOURNAL_H

/* The state of a run that may be interrupted: an append-only file of finished chunks, OUT.partial. A record
 * counts once its end mark is on disk; whatever a killed process left after the last one is cut off on
 * resuming. It is private to this program and this machine: native byte order, no promise across
 * versions. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

struct journal_record {
    uint64_t first, n;       /* groups of sequences of this run */
    uint64_t offset, bytes;  /* of the payload in the file */
};

struct journal;

/* config identifies the run: model, corpus, options. Without resume an existing file is ERR_USAGE (the message
 * says what to do); with it, a missing one starts afresh and one of another run is ERR_MISMATCH.
 * ERR_INPUT when another process has it open. Groups are recorded in order without gaps. */
int journal_open(const char *path, struct hash128 config, int resume, struct journal **out, struct err *e);

/* Closes and keeps the file, or deletes it when remove is set or no chunk was finished. Accepts NULL. */
void journal_close(struct journal *j, int remove);

const struct journal_record *journal_records(const struct journal *j, size_t *n);
uint64_t journal_next(const struct journal *j);   /* the group to go on with */

/* begin, write until the stated number of bytes is reached, end. Without end nothing was written. */
int journal_begin(struct journal *j, uint64_t first, uint64_t n, uint64_t bytes, struct err *e);
int journal_write(struct journal *j, const void *data, size_t len, struct err *e);
int journal_end(struct journal *j, struct err *e);

/* The kernel begins to write what there is; a call every few megabytes leaves journal_end little to wait for. */
void journal_begin_sync(const struct journal *j);

/* Read from a record's payload. */
int journal_read(struct journal *j, const struct journal_record *r, uint64_t offset, void *buf, size_t len,
                 struct err *e);

#endif
