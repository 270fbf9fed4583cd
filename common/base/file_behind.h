#ifndef COMMON_BASE_FILE_BEHIND_H
#define COMMON_BASE_FILE_BEHIND_H

/* Writing behind the caller's back: large data of a new file (file_out) goes through a few buffers to threads that write it while the
 * caller makes more. Whole blocks of 4 KiB go round the page cache where the file system can (O_DIRECT), which a disk takes several
 * times as fast as pages that the kernel writes later; what is left at the ends of a stretch goes through it.
 *
 * One owner thread, which calls everything here; until file_behind_flush nobody reads or writes the same bytes in another way. */
#include "common/base/err.h"
#include "common/base/file.h"

#include <stddef.h>
#include <stdint.h>

struct file_behind;

/* Memory that it takes: enough for the disk to be busy while the caller reads what it goes on with. */
#define FILE_BEHIND_BYTES (16u * (4u << 20))

/* o is borrowed, open until file_behind_free, and keeps its own position. ERR_NOMEM; ERR_SYS for what cannot be opened or started. */
int file_behind_new(const struct file_out *o, struct file_behind **out, struct err *e);

/* Copies the data; waits while all buffers are being written. Data that follows the last call's is written together with it.
 * An error may be of earlier data; after one, nothing more is written. */
int file_behind_write(struct file_behind *b, const void *data, size_t len, uint64_t offset, struct err *e);

/* All of it has been written (not yet synced: file_out_commit). */
int file_behind_flush(struct file_behind *b, struct err *e);

/* Waits for writes that have begun, forgets the rest. Accepts NULL. Before file_out_commit and file_out_abort. */
void file_behind_free(struct file_behind *b);

#endif
