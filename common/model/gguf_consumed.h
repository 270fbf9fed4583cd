#ifndef COMMON_MODEL_GGUF_CONSUMED_H
#define COMMON_MODEL_GGUF_CONSUMED_H

/* The mark of a GGUF whose weights went into a pack (packer/consume.h), so that nobody takes the holes that they left for weights: the
 * magic number is another one, and the last GGUF_CONSUMED_BYTES of the file name the pack. Header and sizes stay as they were. The end is
 * written first and synced, so a file with the other magic always says by whom. */
#include "common/base/err.h"
#include "common/base/file.h"

#define GGUF_CONSUMED_MAGIC "GGUC"
#define GGUF_CONSUMED_BYTES 4096u
#define GGUF_CONSUMED_PATH  4000u /* with NUL */

/* 1: consumed, and the pack's path; 0: not, or nothing that can be read. */
int gguf_consumed_by(const struct file *f, char pack[GGUF_CONSUMED_PATH]);

/* Opens a file that may be consumed for writing, locked while it is open: a regular file of this user, of one name that is no link,
 * writable, in no store of blobs, that nobody else has open or locked, on a file system that punches holes. Else ERR_USAGE says why not. */
int gguf_consumed_open(const char *path, int *fd, struct err *e);

/* Marks the file that is open for writing, of so many bytes without the mark. On return it is on disk. */
int gguf_consumed_mark(int fd, uint64_t size, const char *name, const char *pack, struct err *e);

#endif
