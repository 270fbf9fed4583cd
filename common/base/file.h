#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

/* Files: whole reads, mapping, atomic replacement. Linux-only calls (O_DIRECT) stay here and in
 * runtime/io/io.h. Every function names the path in its errors. */
#include "common/base/cancel.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file {
    int fd;          /* -1: closed */
    uint64_t size;   /* at open */
    char *path;      /* owned copy */
};

/* Open for reading. A directory, FIFO or missing file is ERR_INPUT. */
int file_open(struct file *f, const char *path, struct err *e);
void file_close(struct file *f); /* accepts a zeroed or closed one */

/* Read exactly len bytes at offset, past EINTR and short reads. ERR_FORMAT ("ends at byte N") at
 * end of file; code on a failed read: ERR_INPUT. After the first FILE_PIECE bytes ERR_INTR once file_interrupted(). Thread-safe. */
#define FILE_PIECE (4u << 20)
int file_pread(const struct file *f, void *buf, size_t len, uint64_t offset, struct err *e);

/* len bytes at offset, piece by piece, to piece(), which goes on while it returns 0. ERR_INTR once file_interrupted(). For every loop over
 * a file's bytes that is not file_pread's. */
int file_each(const struct file *f, uint64_t offset, uint64_t len,
              int (*piece)(void *ctx, const void *data, size_t len, struct err *e), void *ctx, struct err *e);

/* ERR_INTR once file_interrupted(), for loops; and for those over texts, which look at every 65,536th step. */
int file_go_on(struct err *e);
static inline int file_go_on_at(uint64_t step, struct err *e)
{
    return step % 65536 == 65535 ? file_go_on(e) : 0;
}

/* Wait until a descriptor can be read or is at its end. ERR_INTR once file_interrupted(). */
int file_wait_readable(int fd, struct err *e);

/* The kernel begins to write what was written to an open file and is still in memory alone; so a sync later waits for little. */
void file_begin_sync(int fd);

/* The whole file, malloc'd with one NUL beyond the end; at most limit bytes (ERR_LIMIT). */
int file_slurp(const char *path, uint64_t limit, char **out, size_t *out_len, struct err *e);

/* What may be written is decided here, for all that is written: not a file that is kept (an input), whatever name or link leads to
 * it when it is opened and when it is replaced. By device and inode; label ("--model 'm.gguf'") is copied, for the message. Command lines
 * keep theirs (common/cli/opt.h). Before threads start. ERR_NOMEM. */
struct stat;
int file_keep(const struct stat *st, const char *label, struct err *e);

/* 0, or ERR_USAGE: st is kept; path: how it was called. */
int file_may_write(const struct stat *st, const char *path, struct err *e);

/* A new file that appears under its name only when it is whole: written as PATH.tmp-PID-X beside it
 * (O_EXCL, mode 0666 & ~umask; where a file is replaced its mode, and its owner and group where that is allowed), fsynced, renamed,
 * and the directory fsynced. On abort, or if the process
 * dies, the name holds what it held before. A symbolic link stays and its target is replaced; a path that
 * exists and is no regular file (/dev/null) or is kept is ERR_USAGE. Opening installs handlers for SIGINT, SIGTERM and
 * SIGHUP, where these have their default action, that remove the temporary files before the process dies.
 * At most FILE_OUT_MAX are open at a time. One owner thread each. */
#define FILE_OUT_MAX 16

struct file_out {
    int fd, dir;       /* dir: the folder of path, as it was opened */
    int kept;          /* file_out_resume's: nothing but file_out_commit removes the temporary name */
    uint64_t pos;      /* bytes appended so far */
    char *path, *tmp;  /* owned */
    uint8_t *block;    /* file_out_direct: `held` bytes that end at pos are not written yet */
    size_t held;
};

int file_out_open(struct file_out *o, const char *path, struct err *e);

/* The same of a file that outlives the process, to go on with it in another: written as PATH.suffix, which is there already or begins
 * empty (a regular file with one name, no link), and whose first `pos` bytes are kept. ERR_MISMATCH where it has fewer. */
int file_out_resume(struct file_out *o, const char *path, const char *suffix, uint64_t pos, struct err *e);
int file_out_write(struct file_out *o, const void *data, size_t len, struct err *e);    /* append */
int file_out_pwrite(struct file_out *o, const void *data, size_t len, uint64_t offset, struct err *e);

/* For large files that are appended to: from here on data goes round the page cache where the file system can
 * (O_DIRECT), in pieces of 4 MiB, which is faster on busy machines and does not drive out other files. A no-op
 * where it cannot, or when pos is no multiple of 4096; file_out_pwrite ends it. */
void file_out_direct(struct file_out *o);
int file_out_zeros(struct file_out *o, uint64_t to_pos, struct err *e); /* append zeros up to to_pos */
int file_out_commit(struct file_out *o, struct err *e);
void file_out_abort(struct file_out *o); /* removes the temporary file; accepts a done or zeroed one */

/* Write path with these bytes, whole or not at all, as above. A device or a pipe is written as it is, and /dev/stdout,
 * /dev/stderr, /dev/fd/N and /proc/self/fd/N mean that descriptor. */
int file_replace(const char *path, const void *data, size_t len, struct err *e);

/* 1 where path is such a device, pipe or descriptor: it is written, and nothing takes its place. */
int file_in_place(const char *path);

/* Such a one for writing: a descriptor that the caller closes; ERR_SYS; ERR_USAGE where it leads to a file that is kept. */
int file_open_in_place(const char *path, struct err *e);

/* N of /dev/fd/N, /proc/self/fd/N, /dev/stdout and /dev/stderr; -1 for other paths. */
int file_descriptor_of(const char *path);

/* Flush standard output. 0; ERR_SYS, with the system's reason, where this write or any before it failed. */
int file_stdout(struct err *e);

/* Descriptors 0 to 2 where the process was started without: taken, so that no file is opened as one of them and gets
 * what is printed. Reading the first and writing the second fails. First thing in main. */
void file_standard(void);

/* Unlink every temporary file of this process that is still open; async-signal-safe, for handlers. */
void file_out_abort_all(void);

/* Bytes available to this user on the file system that holds path (or its parent directory). */
int file_free_bytes(const char *path, uint64_t *out, struct err *e);

/* 0 where so many bytes are free there; else ERR_SYS, which names path, both sizes. Ask before a long write. */
int file_enough_space(const char *path, uint64_t need, struct err *e);

/* From here on SIGINT, SIGTERM and SIGHUP ask the token that is returned, which lives as long as the process; a second
 * signal removes the temporary files and kills. For main and commands: what they call is given the token. */
struct cancel *file_catch_interrupt(void);

/* Has that token been asked? For the long loops of offline programs, which have one job. */
bool file_interrupted(void);

#endif
