#ifndef COMMON_BASE_POOL_H
#define COMMON_BASE_POOL_H

/* A fixed pool of compute workers. The caller is worker 0, so n_threads == 1 starts no thread.
 * Workers spin briefly, then sleep on a futex-backed condition; starting a job costs about a
 * microsecond when they are awake. Jobs must not block on I/O: blocking work has its own lane. */
#include "common/base/err.h"

#include <stdint.h>

#define POOL_MAX_THREADS 256
#define POOL_STACK_BYTES (256 * 1024) /* of each worker; counted by the runtime's budget */

struct pool;

/* cpus: NULL, or n_threads CPU numbers to pin worker i to (-1: do not pin). Where the system refuses one, none is pinned and all work:
 * pool_refused says so. Worker 0 is the calling thread; its former affinity returns in pool_free, which that thread calls. Workers block
 * all signals. */
int pool_new(int n_threads, const int *cpus, struct pool **out, struct err *e);
/* Unpinned. n_threads 0: one for each processor that this process may run on. */
int pool_new_any(int n_threads, struct pool **out, struct err *e);
void pool_free(struct pool *p); /* joins; accepts NULL */
int pool_threads(const struct pool *p); /* that take part */

/* Of the last pinning: 0: nothing is known against it; an errno: it was refused; POOL_MOVED: it was not, and a worker found itself
 * elsewhere, which it looks for in its first job. */
#define POOL_MOVED (-1)
int pool_refused(const struct pool *p);

/* From the next job on workers 0..n_threads-1 take part, at most those that there are; the others sleep. cpus: as of pool_new, NULL:
 * nobody is moved. By the caller of jobs, between two of them. ERR_LIMIT. */
int pool_use(struct pool *p, int n_threads, const int *cpus, struct err *e);

/* From now on workers wait awake for the next job for so long; 0: some tens of microseconds, as at first. Where the gap between two jobs is
 * longer, each begins with waking them, one after another. By the caller of jobs, between two of them. */
void pool_patience(struct pool *p, int64_t ns);

/* fn(ctx, worker, n_threads) on every worker, 0..n_threads-1; returns when all have. One caller
 * at a time. Writes of the caller before and of the workers inside are visible after. */
typedef void pool_fn(void *ctx, int worker, int n_threads);
void pool_run(struct pool *p, pool_fn *fn, void *ctx);

/* fn(ctx, worker, n_threads) on the caller and on the workers that come before the caller is through with it;
 * returns when those have. For work that is taken piece by piece: when the caller finds none left,
 * nobody needs to be waited for who has not begun. */
void pool_share(struct pool *p, pool_fn *fn, void *ctx);

/* fn(ctx, begin, end, worker) over [0, n) in pieces of grain (the last may be shorter), handed
 * out in order as workers become free. Which worker gets which piece is not determined: results
 * must not depend on it. */
typedef void pool_range_fn(void *ctx, int begin, int end, int worker);
void pool_for(struct pool *p, int n, int grain, pool_range_fn *fn, void *ctx);

/* A grain for n items whose data are `bytes` in all: POOL_PIECES for each worker, for they do not all run at the same speed and the
 * slowest is waited for, but none smaller than POOL_PIECE_BYTES, for a worker has to be woken for it. */
#define POOL_PIECES      8
#define POOL_PIECE_BYTES (64u << 10)
int pool_grain(const struct pool *p, int n, uint64_t bytes);

/* The same in pieces that shrink: each is a worker's half of what is left, in multiples of least. Few pieces while much is
 * left, and at the end no worker waits for more than a small one. */
void pool_for_shrinking(struct pool *p, int n, int least, pool_range_fn *fn, void *ctx);

/* After a sleep inside a job, on the thread of that worker: it takes another processor if it woke on the caller's and may have one of its
 * own (pool.c). The caller, worker 0, says where it is itself. */
void pool_woke(struct pool *p, int worker);

/* Between two looks at what another thread is about to change. */
static inline void pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
