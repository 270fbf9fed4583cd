#ifndef RUNTIME_IO_IO_H
#define RUNTIME_IO_IO_H

/* Reads of the packed model while it runs. A backend is a small table of functions; all give the
 * same bytes, only their timing differs, and no result of the engine depends on timing. One thread
 * (the coordinator) submits and reaps. Requests belong to the caller; a backend holds a pointer to
 * each from submit until reap gives it back, and at most queue_depth are in flight.
 *
 * A request is finished whole: short reads, EINTR and EAGAIN are continued inside the backend, for IO_RETRY_MS without
 * progress at most. What cannot be finished comes back with result < 0: -errno of the failed read, or IO_ENDED when the
 * file ended early (it shrank).
 *
 * Nothing here waits for ever. A submission that the kernel refuses is tried again for IO_RETRY_MS, then ERR_IO. When none of
 * the reads in flight has come back for IO_SILENCE_MS (a drive that woke up or recovered would have), waiting for one is
 * ERR_IO; IO_HURRY_MS after the token of io_watch was asked it is ERR_INTR. Reads that are still in flight then are the
 * kernel's: see io_close. */
#include "common/base/cancel.h"
#include "common/base/err.h"
#include "common/plan/plan.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define IO_ENDED (-1000000)
#define IO_RETRY_MS   8000
#define IO_SILENCE_MS 60000
#define IO_HURRY_MS   500

struct io_request {
    uint64_t offset;  /* in the file; with len and buf a multiple of the alignment when direct */
    uint8_t *buf;     /* mostly inside the region given at open; slots of the cold cache are elsewhere */
    uint32_t len;     /* > 0 */
    uint32_t tag;     /* the caller's */
    uint32_t done;    /* bytes so far; the backend's */
    int64_t stuck_ns; /* since when it has been tried again without progress, or 0; the backend's */
    int result;       /* after reap: 0, -errno or IO_ENDED */
};

struct io_config {
    const char *path;
    uint8_t *region;      /* read buffers lie in it; registered with the kernel where possible */
    size_t region_bytes;
    uint32_t align;       /* of offsets, lengths and buffers: the layout's block */
    int queue_depth;      /* reads in flight, at most */
    int lanes;            /* threads of the pread backend */
    int want_direct;      /* 0: buffered on purpose (tests) */
    const struct cancel *cancel; /* as by io_watch, from the start */
    /* For tests: sees and may change the result (bytes or -errno) of every single read that a backend
     * made for a request; called by the thread that made it. NULL: none. */
    int (*fault)(void *ctx, const struct io_request *r, int result);
    void *fault_ctx;
    /* For tests: instead of a submission, where it gives something below 0 (-errno). NULL: none. */
    int (*fault_submit)(void *ctx);
    int retry_ms, silence_ms; /* for tests: instead of IO_RETRY_MS and IO_SILENCE_MS; 0: these */
};

/* First member of every backend's own struct. Constant after open, but for the counters. */
struct io {
    const struct io_backend *backend;
    struct io_config config;
    int fd;
    int direct;           /* O_DIRECT, verified to give the file's bytes */
    uint64_t file_bytes;  /* at open */
    char note[192];       /* what differs from what was asked for, for people; "" when nothing does */
    uint64_t reads, bytes; /* submitted */
    int in_flight;
    const struct cancel *cancel; /* the coordinator's: see io_watch */
    atomic_int gave_up;   /* waiting has ended in an error: from here on it takes IO_HURRY_MS at most */
};

struct io_backend {
    const char *name;     /* "io_uring" "pread" */
    size_t bytes;         /* of its struct, which begins with struct io */
    int threads;          /* threads of its own call io_advance */
    int (*start)(struct io *io, struct err *e);  /* io is filled in; ERR_UNSUPPORTED: not on this machine */
    int (*submit)(struct io *io, struct io_request *const *r, int n, struct err *e);
    /* Up to max finished requests; blocks for one when wait is set and something is in flight. Count or ERR_*. */
    int (*reap)(struct io *io, struct io_request **out, int max, int wait, struct err *e);
    /* Waits for what is in flight, IO_HURRY_MS without progress at most. Accepts a half-started one. 1: reads are still in
     * flight, and nothing that they may touch was freed. */
    int (*stop)(struct io *io);
};

extern const struct io_backend io_pread_backend;
extern const struct io_backend io_uring_backend; /* start gives ERR_UNSUPPORTED in a NO_URING build */

/* Opens the file (O_DIRECT where it is allowed and gives the file's bytes), then the backend: PLAN_IO_AUTO
 * takes io_uring, or pread with a note where it is not available. An explicit choice that is not there is
 * replaced likewise. ERR_INPUT: the file cannot be opened. */
int io_open(enum plan_io want, const struct io_config *c, struct io **out, struct err *e);
int io_open_backend(const struct io_backend *b, const struct io_config *c, struct io **out, struct err *e);
/* From here on waiting is cut short when this token is asked; NULL: never. Only the thread that submits and reaps looks at it, in
 * calls of this module: it may go once another (or NULL) has taken its place. */
void io_watch(struct io *io, const struct cancel *cancel);
int io_submit(struct io *io, struct io_request *const *r, int n, struct err *e);
int io_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e);
/* 1: reads are in flight that neither come back nor can be called back; the region has to stay mapped until the process ends,
 * and what belongs to the backend is left to that. Accepts NULL. */
int io_close(struct io *io);

/* ERR_IO with the message of a request that came back with a negative result. */
int io_failed(const struct io *io, const struct io_request *r, struct err *e);

/* For backends. Take account of n bytes (or -errno) read for r: 1 finished (r->result is set), 0 read on
 * from r->done. */
int io_advance(struct io *io, struct io_request *r, int n);

/* For backends that wait: how long they have, since the call or the last progress. 0: go on; else the error to return. */
struct io_patience {
    int64_t start_ns, limit_ns;
};
struct io_patience io_patience(const struct io *io, int retry); /* retry: of IO_RETRY_MS, else of IO_SILENCE_MS */
int io_impatient(struct io *io, const struct io_patience *p, const char *what, struct err *e);
#define IO_LOOK_MS 50 /* waits are cut into pieces of this length */

#endif
