/* One generation counter starts a job, one pending counter ends it. Workers spin on the generation for a few tens
 * of microseconds, longer than the gap between two matrix products of a token, and then sleep on a condition
 * variable; the caller only takes the lock when somebody sleeps. On a machine with fewer CPUs than workers
 * nobody spins: it would steal the time of those who work.
 *
 * No wake-up is lost: a sleeper announces itself (sleepers) and then looks at the generation once more, the caller
 * advances the generation and then looks at sleepers; both are sequentially consistent, so at least one of the
 * two sees the other, and the condition is signalled under the lock that the sleeper holds until it waits. */
#include "common/pool.h"

#include "common/progress.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPIN_NS 30000
#define LINE 64

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    /* constant after pool_new */
    int n_threads, spin, pinned_caller;
    cpu_set_t caller_mask; /* restored by pool_free */
    struct worker *workers; /* [1..n_threads) have threads */
    /* written by the caller before a generation starts, read by workers after */
    pool_fn *fn; /* NULL: exit */
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    /* counters on lines of their own */
    _Alignas(LINE) atomic_uint generation;
    _Alignas(LINE) atomic_uint pending; /* workers still inside the job */
    _Alignas(LINE) atomic_int sleepers;
    atomic_int caller_sleeps;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Look at *v until it is value (equal) or is no longer (!equal), for at most SPIN_NS; true when it came about. */
static int spin(const struct pool *p, const atomic_uint *v, unsigned value, int equal)
{
    int64_t end = 0;
    for (unsigned i = 0; p->spin; i++) {
        if ((atomic_load_explicit(v, memory_order_acquire) == value) == equal)
            return 1;
        relax();
        if (i % 64 == 63) { /* the clock costs more than a look */
            int64_t now = progress_now_ns();
            end = end ? end : now + SPIN_NS;
            if (now > end)
                break;
        }
    }
    return 0;
}

static unsigned wait_generation(struct pool *p, unsigned old)
{
    if (!spin(p, &p->generation, old, 0)) {
        pthread_mutex_lock(&p->lock);
        atomic_fetch_add(&p->sleepers, 1);
        while (atomic_load(&p->generation) == old)
            pthread_cond_wait(&p->wake, &p->lock);
        atomic_fetch_sub(&p->sleepers, 1);
        pthread_mutex_unlock(&p->lock);
    }
    return atomic_load(&p->generation);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_generation(p, seen);
        if (!p->fn)
            return NULL;
        p->fn(p->ctx, w->index, p->n_threads);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void start(struct pool *p, pool_fn *fn, void *ctx)
{
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->pending, (unsigned)p->n_threads - 1);
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void finish(struct pool *p)
{
    if (spin(p, &p->pending, 0, 1))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, 1);
    while (atomic_load(&p->pending) > 0)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, 0);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx)
{
    if (p->n_threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    start(p, fn, ctx);
    fn(ctx, 0, p->n_threads);
    finish(p);
}

struct range {
    pool_range_fn *fn;
    void *ctx;
    int n, grain;
    _Alignas(LINE) atomic_llong next; /* wide: every worker steps once past n */
};

static void run_range(void *ctx, int worker, int n_threads)
{
    struct range *r = ctx;
    (void)n_threads;
    for (;;) {
        long long begin = atomic_fetch_add_explicit(&r->next, r->grain, memory_order_relaxed);
        if (begin >= r->n)
            return;
        long long end = begin + r->grain < r->n ? begin + r->grain : r->n;
        r->fn(r->ctx, (int)begin, (int)end, worker);
    }
}

void pool_for(struct pool *p, int n, int grain, pool_range_fn *fn, void *ctx)
{
    struct range r = { .fn = fn, .ctx = ctx, .n = n, .grain = grain > 0 ? grain : 1 };
    if (n <= r.grain || p->n_threads == 1)
        run_range(&r, 0, 1); /* one piece, or one worker: nobody to wake */
    else
        pool_run(p, run_range, &r);
}

/* ---- life ---- */

static int pin(pthread_t thread, int worker, int cpu, struct err *e)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0)
        return 0;
    if (cpu < CPU_SETSIZE)
        CPU_SET(cpu, &set);
    errno = pthread_setaffinity_np(thread, sizeof set, &set);
    return errno ? err_sys(e, ERR_SYS, "cannot pin worker %d to CPU %d", worker, cpu) : 0;
}

/* Workers block all signals, so that handlers run on the threads that expect them. */
static int create_worker(struct pool *p, int i, struct err *e)
{
    pthread_attr_t attr;
    sigset_t all, old;
    char name[24];
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, POOL_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p->workers[i] = (struct worker){ .pool = p, .index = i };
    errno = pthread_create(&p->workers[i].thread, &attr, work, &p->workers[i]);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (errno)
        return err_sys(e, ERR_SYS, "cannot start worker %d of %d", i, p->n_threads);
    snprintf(name, sizeof name, "pool-%d", i % 1000);
    pthread_setname_np(p->workers[i].thread, name);
    return 0;
}

static void stop(struct pool *p, int n_started)
{
    start(p, NULL, NULL);
    for (int i = 1; i < n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    if (p->pinned_caller)
        pthread_setaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

int pool_new(int n_threads, const int *cpus, struct pool **out, struct err *e)
{
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return err_set(e, ERR_LIMIT, "%d threads: must be from 1 to %d", n_threads, POOL_MAX_THREADS);
    struct pool *p = aligned_alloc(LINE, (sizeof *p + LINE - 1) / LINE * LINE);
    if (!p)
        return err_set(e, ERR_NOMEM, "out of memory for a pool of %d threads", n_threads);
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        free(p);
        return err_set(e, ERR_NOMEM, "out of memory for a pool of %d threads", n_threads);
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    int r = 0, n_started = 1, has_mask = sched_getaffinity(0, sizeof p->caller_mask, &p->caller_mask) == 0;
    p->spin = n_threads <= (has_mask ? CPU_COUNT(&p->caller_mask) : (int)sysconf(_SC_NPROCESSORS_ONLN));
    for (; r == 0 && n_started < n_threads; n_started++)
        if ((r = create_worker(p, n_started, e)) < 0)
            break;
    for (int i = 1; r == 0 && cpus && i < n_threads; i++)
        r = pin(p->workers[i].thread, i, cpus[i], e);
    if (r == 0 && cpus && cpus[0] >= 0) {
        r = pin(pthread_self(), 0, cpus[0], e);
        p->pinned_caller = r == 0 && has_mask;
    }
    if (r < 0) {
        stop(p, n_started);
        return r;
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (p)
        stop(p, p->n_threads);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}
