/* One word starts and ends a job: its number, whether it is open, and how many workers have joined. A
 * worker joins by compare-and-swap while the job is open and counts itself out when it is through. pool_run
 * leaves the job open until all have joined; pool_share closes it when the caller is through, and waits
 * only for those inside: a worker that the system did not run in time is not missed, because jobs that
 * share their work have none left. On a machine that others use too, that is most of the speed.
 *
 * Workers spin on the word for a few tens of microseconds, longer than the gap between two matrix products of a
 * token, and then sleep (futex.h); the caller only takes the lock when somebody sleeps. On a
 * machine with fewer CPUs than workers nobody spins: it would steal the time of those who work.
 *
 * No wake-up is lost: a sleeper announces itself (sleepers) and then looks at the word once more, the caller
 * starts the job and then looks at sleepers; both are sequentially consistent, so at least one of the
 * two sees the other, and a sleeper does not sleep on a word that has changed since it looked. The lock, which guards where workers may
 * run, is free when they are woken: else they would go to sleep again for it.
 * The stores are exchanges, for QEMU 7.2 on x86-64 lets an aarch64 load-acquire overtake a store-release.
 *
 * Linux may wake a worker on the caller's processor and leave both there while another is idle: where processors are few it hardly looks
 * for an idle one. (6.18 on two: after a sleep both threads took turns on one for tens of milliseconds, and products of two threads
 * took as long as those of one.) So on a machine of few processors a worker that sleeps may wake anywhere but where the caller is, and
 * one that woke there in the midst of a job moves away; once awake it may run anywhere again. */
#include "common/base/pool.h"

#include "common/base/cpu.h"
#include "common/base/futex.h"
#include "common/base/progress.h"

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
#define FEW_CPUS 8 /* beyond, Linux finds idle ones */
#define LINE 64

/* The thread sanitizer's own share of a stack leaves 128 KiB of POOL_STACK_BYTES, and a kernel for many tokens takes 130. */
#ifdef __SANITIZE_THREAD__
#define STACK_BYTES (4 * POOL_STACK_BYTES)
#else
#define STACK_BYTES POOL_STACK_BYTES
#endif

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
    int asleep, kept_off; /* under the lock: in wait_job, not called since; the caller's processor is not in its mask */
    atomic_int look_for;  /* the processor that it was pinned to, where it has not looked since whether it is there; -1: it need not */
};

#define CLOSED  0x80000000u
#define JOINED  0x0000ffffu
#define NUMBER(job) ((unsigned)((job) >> 32))

struct pool {
    /* constant after pool_new */
    int n_threads, cpus;   /* cpus: that the process may use */
    /* the caller's, between jobs; active is read by workers before they join one */
    int pinned_caller;
    int pinned;            /* workers have processors of their own; under the lock */
    atomic_int refused;    /* pool_refused */
    atomic_int caller_cpu; /* where it was last; -1: not known */
    atomic_int active, spin; /* workers that take part; whether they spin */
    atomic_llong patience_ns; /* and for how long */
    cpu_set_t caller_mask; /* restored by pool_free */
    struct worker *workers; /* [1..n_threads) have threads */
    /* written by the caller before a job starts, read by workers that have joined it */
    pool_fn *fn; /* NULL: exit */
    void *ctx;
    pthread_mutex_t lock;
    atomic_uint wakes;     /* changed with each job that sleepers are woken for */
    /* counters on lines of their own */
    _Alignas(LINE) _Atomic uint64_t job; /* number << 32 | CLOSED | joined */
    _Alignas(LINE) atomic_uint left;     /* workers that are through with the present job */
    _Alignas(LINE) atomic_int sleepers;
    atomic_int caller_sleeps;
};

/* Until done(p, value), while patience lasts; true when it came about. */
static int spin(struct pool *p, int (*done)(struct pool *p, unsigned value), unsigned value)
{
    int64_t end = 0;
    for (unsigned i = 0; atomic_load_explicit(&p->spin, memory_order_relaxed); i++) {
        if (done(p, value))
            return 1;
        pool_relax();
        if (i % 64 == 63) { /* the clock costs more than a look */
            int64_t now = progress_now_ns();
            end = end ? end : now + atomic_load_explicit(&p->patience_ns, memory_order_relaxed);
            if (now > end)
                break;
        }
    }
    return 0;
}

static int new_job(struct pool *p, unsigned old)
{
    return NUMBER(atomic_load(&p->job)) != old;
}

static int all_left(struct pool *p, unsigned joined)
{
    return atomic_load(&p->left) == joined;
}

/* Is it worth a look where threads run? */
static int places_matter(const struct pool *p)
{
    return p->cpus <= FEW_CPUS && atomic_load_explicit(&p->spin, memory_order_relaxed);
}

static int note_caller(struct pool *p)
{
    int cpu = sched_getcpu();
    atomic_store_explicit(&p->caller_cpu, cpu, memory_order_relaxed);
    return cpu;
}

/* Under the lock: a worker may run anywhere but on this processor, if there are others. */
static void keep_off(struct pool *p, struct worker *w, int cpu)
{
    cpu_set_t others = p->caller_mask;
    CPU_CLR(cpu, &others);
    if (!p->pinned && CPU_COUNT(&others))
        w->kept_off = pthread_setaffinity_np(w->thread, sizeof others, &others) == 0;
}

static void let_anywhere(struct pool *p, struct worker *w)
{
    if (w->kept_off && !p->pinned)
        pthread_setaffinity_np(w->thread, sizeof p->caller_mask, &p->caller_mask);
    w->kept_off = 0;
}

void pool_woke(struct pool *p, int worker)
{
    if (!places_matter(p))
        return;
    if (!worker) {
        note_caller(p);
        return;
    }
    int cpu = sched_getcpu();
    if (cpu < 0 || cpu != atomic_load_explicit(&p->caller_cpu, memory_order_relaxed))
        return;
    pthread_mutex_lock(&p->lock);
    keep_off(p, &p->workers[worker], cpu);
    let_anywhere(p, &p->workers[worker]);
    pthread_mutex_unlock(&p->lock);
}

/* Under the lock. One that is called counts as awake at once, though it may not run for a while: the next job does not call it again. */
static void set_asleep(struct pool *p, struct worker *w, int asleep)
{
    atomic_fetch_add(&p->sleepers, asleep - w->asleep);
    w->asleep = asleep;
}

static void wait_job(struct pool *p, struct worker *w, unsigned old)
{
    if (spin(p, new_job, old))
        return;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        set_asleep(p, w, 1);
        const unsigned wakes = atomic_load(&p->wakes);
        if (new_job(p, old))
            break;
        pthread_mutex_unlock(&p->lock);
        futex_sleep(&p->wakes, wakes);
        pthread_mutex_lock(&p->lock);
    }
    set_asleep(p, w, 0);
    let_anywhere(p, w);
    pthread_mutex_unlock(&p->lock);
}

static void wake_sleepers(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    int cpu = places_matter(p) ? note_caller(p) : -1;
    for (struct worker *w = p->workers + 1; w < p->workers + p->n_threads; w++)
        if (w->asleep) {
            set_asleep(p, w, 0);
            if (cpu >= 0)
                keep_off(p, w, cpu);
        }
    pthread_mutex_unlock(&p->lock);
    atomic_fetch_add(&p->wakes, 1);
    futex_wake(&p->wakes, INT_MAX);
}

/* Join the job that is there: 1, or 0 when it is closed or not this worker's. *number is its number either way. `active` changes only
 * while jobs are closed: one that was read for another job is noticed by the word. */
static int join_job(struct pool *p, int worker, unsigned *number)
{
    uint64_t job = atomic_load(&p->job);
    do {
        *number = NUMBER(job);
        if (job & CLOSED || worker >= atomic_load_explicit(&p->active, memory_order_relaxed))
            return 0;
    } while (!atomic_compare_exchange_weak(&p->job, &job, job + 1));
    return 1;
}

/* A vendor's scheduler may place a thread elsewhere than where the kernel said it would be. */
static void look(struct worker *w)
{
    int cpu = atomic_exchange_explicit(&w->look_for, -1, memory_order_relaxed), none = 0;
    if (cpu >= 0 && sched_getcpu() != cpu)
        atomic_compare_exchange_strong(&w->pool->refused, &none, POOL_MOVED);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        wait_job(p, w, seen);
        if (!join_job(p, w->index, &seen))
            continue;
        pool_fn *fn = p->fn;
        if (atomic_load_explicit(&w->look_for, memory_order_relaxed) >= 0)
            look(w);
        if (fn)
            fn(p->ctx, w->index, pool_threads(p));
        atomic_fetch_add(&p->left, 1);
        if (!fn)
            return NULL;
        if (atomic_load(&p->caller_sleeps))
            futex_wake(&p->left, 1);
    }
}

/* The job before is closed and left, so nobody else writes the word. */
static void start(struct pool *p, pool_fn *fn, void *ctx)
{
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->left, 0);
    atomic_exchange(&p->job, (uint64_t)(NUMBER(atomic_load(&p->job)) + 1) << 32);
    if (atomic_load(&p->sleepers) > 0)
        wake_sleepers(p);
}

static void wait_left(struct pool *p, unsigned joined)
{
    if (all_left(p, joined) || spin(p, all_left, joined))
        return;
    atomic_exchange(&p->caller_sleeps, 1);
    for (unsigned left = atomic_load(&p->left); left != joined; left = atomic_load(&p->left))
        futex_sleep(&p->left, left);
    atomic_store(&p->caller_sleeps, 0);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx)
{
    int n = pool_threads(p);
    if (n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    start(p, fn, ctx);
    fn(ctx, 0, n);
    wait_left(p, (unsigned)n - 1);
    atomic_fetch_or(&p->job, CLOSED);
}

void pool_share(struct pool *p, pool_fn *fn, void *ctx)
{
    int n = pool_threads(p);
    if (n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    start(p, fn, ctx);
    fn(ctx, 0, n);
    wait_left(p, (unsigned)atomic_fetch_or(&p->job, CLOSED) & JOINED);
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
    if (n <= r.grain || pool_threads(p) == 1)
        run_range(&r, 0, 1); /* one piece, or one worker: nobody to wake */
    else
        pool_share(p, run_range, &r);
}

int pool_grain(const struct pool *p, int n, uint64_t bytes)
{
    uint64_t pieces = (uint64_t)pool_threads(p) * POOL_PIECES, most = bytes / POOL_PIECE_BYTES;
    pieces = pool_threads(p) == 1 || !most ? 1 : most < pieces ? most : pieces;
    return n < (int)pieces ? 1 : (int)(((uint64_t)n + pieces - 1) / pieces);
}

static void run_shrinking(void *ctx, int worker, int n_threads)
{
    struct range *r = ctx;
    long long begin = atomic_load_explicit(&r->next, memory_order_relaxed);
    while (begin < r->n) {
        long long piece = (r->n - begin) / (2LL * n_threads) / r->grain * r->grain;
        long long end = begin + (piece > r->grain ? piece : r->grain);
        end = end < r->n ? end : r->n;
        if (!atomic_compare_exchange_weak_explicit(&r->next, &begin, end, memory_order_relaxed, memory_order_relaxed))
            continue;
        r->fn(r->ctx, (int)begin, (int)end, worker);
        begin = atomic_load_explicit(&r->next, memory_order_relaxed);
    }
}

void pool_for_shrinking(struct pool *p, int n, int least, pool_range_fn *fn, void *ctx)
{
    struct range r = { .fn = fn, .ctx = ctx, .n = n, .grain = least > 0 ? least : 1 };
    if (pool_threads(p) == 1 && n > 0)
        fn(ctx, 0, n, 0);
    else if (n <= r.grain)
        run_shrinking(&r, 0, 1);
    else
        pool_share(p, run_shrinking, &r);
}

/* ---- life ---- */

static int pin(pthread_t thread, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE)
        CPU_SET(cpu, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set);
}

/* Workers block all signals, so that handlers run on the threads that expect them. */
static int create_worker(struct pool *p, int i, struct err *e)
{
    pthread_attr_t attr;
    sigset_t all, old;
    char name[24];
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p->workers[i] = (struct worker){ .pool = p, .index = i, .look_for = -1 };
    errno = pthread_create(&p->workers[i].thread, &attr, work, &p->workers[i]);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (errno)
        return err_sys(e, ERR_SYS, "cannot start worker %d of %d", i, p->n_threads);
    snprintf(name, sizeof name, "pool-%d", i % 1000);
    pthread_setname_np(p->workers[i].thread, name);
    return 0;
}

static pthread_t thread_of(const struct pool *p, int worker)
{
    return worker ? p->workers[worker].thread : pthread_self();
}

/* All, or none: one that roams would take turns with one that cannot leave. */
static void pin_all(struct pool *p, int n, const int *cpus)
{
    int failed = 0, done = 0;
    if (!cpus)
        return;
    pthread_mutex_lock(&p->lock);
    for (; !failed && done < n; done++)
        failed = cpus[done] < 0 ? 0 : pin(thread_of(p, done), cpus[done]);
    for (int i = 0; i < done; i++)
        if (failed && cpus[i] >= 0)
            pthread_setaffinity_np(thread_of(p, i), sizeof p->caller_mask, &p->caller_mask);
        else if (!failed)
            atomic_store(&p->workers[i].look_for, cpus[i]);
    p->pinned = !failed;
    atomic_store(&p->refused, failed);
    look(&p->workers[0]);
    pthread_mutex_unlock(&p->lock);
}

int pool_refused(const struct pool *p)
{
    return atomic_load_explicit(&p->refused, memory_order_relaxed);
}

int pool_use(struct pool *p, int n_threads, const int *cpus, struct err *e)
{
    if (n_threads < 1 || n_threads > p->n_threads)
        return err_set(e, ERR_LIMIT, "%d threads of a pool that has %d", n_threads, p->n_threads);
    atomic_store(&p->active, n_threads);
    atomic_store(&p->spin, n_threads <= p->cpus);
    pin_all(p, n_threads, cpus);
    return 0;
}

void pool_patience(struct pool *p, int64_t ns)
{
    atomic_store(&p->patience_ns, ns > 0 ? ns : SPIN_NS);
}

static void stop(struct pool *p, int n_started)
{
    atomic_store(&p->active, p->n_threads);
    start(p, NULL, NULL);
    for (int i = 1; i < n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    if (p->pinned_caller)
        pthread_setaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask);
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
    int r = 0, n_started = 1, has_mask = sched_getaffinity(0, sizeof p->caller_mask, &p->caller_mask) == 0;
    atomic_init(&p->job, CLOSED);
    p->cpus = has_mask ? CPU_COUNT(&p->caller_mask) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    atomic_init(&p->caller_cpu, -1);
    p->workers[0] = (struct worker){ .pool = p, .look_for = -1 };
    atomic_init(&p->active, n_threads);
    atomic_init(&p->patience_ns, SPIN_NS);
    atomic_init(&p->spin, n_threads <= p->cpus);
    for (; r == 0 && n_started < n_threads; n_started++)
        if ((r = create_worker(p, n_started, e)) < 0)
            break;
    p->pinned_caller = has_mask && cpus && cpus[0] >= 0;
    if (r < 0) {
        stop(p, n_started);
        return r;
    }
    pin_all(p, n_threads, cpus);
    *out = p;
    return 0;
}

int pool_new_any(int n_threads, struct pool **out, struct err *e)
{
    int cpus[POOL_MAX_THREADS], n = n_threads ? n_threads : cpu_allowed(cpus, POOL_MAX_THREADS);
    return pool_new(n > 0 ? n : 1, NULL, out, e);
}

void pool_free(struct pool *p)
{
    if (p)
        stop(p, p->n_threads);
}

int pool_threads(const struct pool *p)
{
    return atomic_load_explicit(&p->active, memory_order_relaxed);
}
