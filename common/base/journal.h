#ifndef COMMON_BASE_JOURNAL_H
#define COMMON_BASE_JOURNAL_H

/* The state of a run that may be interrupted, and THE file that something goes on from: append-only records of what is done, OUT.partial. A
 * record has a checksum and counts once its end mark is on disk; what follows the last one that is whole, in the order of the run, is
 * cut off on resuming and made again. The file is its owner's alone (mode 0600), locked while it is open, a regular file with one name
 * and no symbolic link. It is private to this program and this machine: native byte order, no promise across versions. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

struct journal_record {
    uint64_t first, n;       /* of the things that the run makes: groups of sequences, layers, results */
    uint64_t offset, bytes;  /* of the payload in the file */
};

struct journal;

#define JOURNAL_MAGIC "THRMPART" /* the first eight bytes */

/* config identifies the run, all that its result depends on; same says so in words: "model, prompts and --ctx". Without resume an
 * existing file is ERR_USAGE (the message says what to do); with it, a missing one starts afresh and one of another run is ERR_MISMATCH.
 * ERR_INPUT when another process has it open, or it is no file of ours. Records come in order without gaps. */
int journal_open(const char *path, struct hash128 config, const char *same, int resume, struct journal **out, struct err *e);

/* Closes and keeps the file, or deletes it when remove is set or no chunk was finished. Accepts NULL. */
void journal_close(struct journal *j, int remove);

const struct journal_record *journal_records(const struct journal *j, size_t *n);
uint64_t journal_next(const struct journal *j);   /* the first that is not there */
uint64_t journal_cut(const struct journal *j);    /* bytes behind the last whole record that opening has cut off */

/* begin, write until the stated number of bytes is reached, end. Without end nothing was written. */
int journal_begin(struct journal *j, uint64_t first, uint64_t n, uint64_t bytes, struct err *e);
int journal_write(struct journal *j, const void *data, size_t len, struct err *e);
int journal_end(struct journal *j, struct err *e);

/* Instead of these, who prints a payload writes it by himself, to a descriptor of the file (a copy, which he closes) from journal_place
 * on, and says how much it was: it is read again for the checksum. */
int journal_descriptor(const struct journal *j, struct err *e);
uint64_t journal_place(const struct journal *j);
int journal_take(struct journal *j, uint64_t first, uint64_t n, uint64_t bytes, struct err *e);

/* The kernel begins to write what there is; a call every few megabytes leaves journal_end little to wait for. */
void journal_begin_sync(const struct journal *j);

/* Read from a record's payload. ERR_INTR once file_interrupted(), as at opening. */
int journal_read(struct journal *j, const struct journal_record *r, uint64_t offset, void *buf, size_t len,
                 struct err *e);

#endif
