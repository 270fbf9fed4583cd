#ifndef RUNTIME_ENGINE_LOAD_AHEAD_H
#define RUNTIME_ENGINE_LOAD_AHEAD_H

/* A run of bytes of the packed model, in order, with reads ahead through the buffers of loading (load_begin). One run at a
 * time. */
#include "runtime/engine/engine_impl.h"

#define AHEAD_DEPTH 64 /* reads in flight, at most */

struct ahead {
    struct engine *g;
    uint64_t next, end;        /* not asked for yet; of the run */
    uint64_t at;               /* delivered up to here */
    uint32_t piece, depth;
    struct io_request req[AHEAD_DEPTH]; /* a ring: first, count */
    int arrived[AHEAD_DEPTH];
    uint32_t first, count;
};

/* io_reap of one read at least; what is waited for is counted in g->loading. */
int ahead_reap(struct engine *g, struct io_request **out, int max, struct err *e);

void ahead_init(struct ahead *a, struct engine *g, uint64_t offset, uint64_t bytes);

/* The next len bytes of the run; ctx: a struct ahead. After an error: load_drain. */
int ahead_read(void *ctx, void *buf, size_t len, struct err *e);

#endif
