#include "common/base/pool.h"
#include "common/base/progress.h"
#include "tests/test.h"

#include <pthread.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct err e;

struct roll {
    int calls[8], n_threads[8];
    pthread_t thread[8];
};

static void call(void *ctx, int worker, int n_threads)
{
    struct roll *r = ctx;
    r->calls[worker]++; /* each worker its own: a second call of one worker at a time would race */
    r->n_threads[worker] = n_threads;
    r->thread[worker] = pthread_self();
}

static void test_run(int n)
{
    struct pool *p;
    struct roll r = { .calls = { 0 } };
    CHECK(pool_new(n, NULL, &p, &e) == 0 && pool_threads(p) == n);
    for (int i = 0; i < 2000; i++)
        pool_run(p, call, &r);
    int ok = pthread_equal(r.thread[0], pthread_self());
    for (int i = 0; i < n; i++)
        ok = ok && r.calls[i] == 2000 && r.n_threads[i] == n;
    CHECK_MSG(ok, "%d workers", n);
    usleep(2000); /* past the spinning: the next job has to wake sleepers */
    pool_run(p, call, &r);
    CHECK(r.calls[n - 1] == 2001);
    pool_free(p);
}

/* Fewer workers take part, then all again, and what they are told is how many. */
static void test_use(void)
{
    struct pool *p;
    CHECK(pool_new(4, NULL, &p, &e) == 0);
    CHECK(pool_use(p, 5, NULL, &e) == ERR_LIMIT && pool_use(p, 0, NULL, &e) == ERR_LIMIT && pool_threads(p) == 4);
    for (int round = 0; round < 200; round++) {
        int n = 1 + round * 7 % 4, ok = 1;
        struct roll r = { .calls = { 0 } };
        CHECK(pool_use(p, n, NULL, &e) == 0 && pool_threads(p) == n);
        for (int i = 0; i < 5; i++)
            pool_run(p, call, &r);
        for (int i = 0; i < 4; i++)
            ok = ok && r.calls[i] == (i < n ? 5 : 0) && (i >= n || r.n_threads[i] == n);
        CHECK_MSG(ok, "%d of 4 workers", n);
        if (round % 50 == 0)
            usleep(2000); /* past the spinning */
    }
    pool_free(p); /* those that sleep leave as well */
}

static void sleeps(void *ctx, int worker, int n_threads)
{
    struct rusage u;
    (void)n_threads;
    if (worker == 1 && getrusage(RUSAGE_THREAD, &u) == 0)
        *(long *)ctx = u.ru_nvcsw;
}

/* Between two jobs a worker sleeps, or, where it is told to be patient, it does not. */
static void test_patience(void)
{
    struct pool *p;
    long before, after[2];
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) < 2)
        return; /* nobody waits awake */
    CHECK(pool_new(2, NULL, &p, &e) == 0);
    for (int patient = 0; patient < 2; patient++) {
        pool_patience(p, patient ? 2000000000 : 0);
        pool_run(p, sleeps, &before);
        for (int i = 0; i < 10; i++) {
            usleep(2000);
            pool_run(p, sleeps, &after[patient]);
        }
        after[patient] -= before;
    }
    CHECK_MSG(after[0] >= 10 && after[1] < 5, "%ld sleeps in 10 gaps, patient %ld", after[0], after[1]);
    pool_free(p);
}

struct shares {
    atomic_int inside, total;
    int over; /* written by the caller between jobs: nobody may be inside then */
    atomic_int late, next;
};

static void share(void *ctx, int worker, int n_threads)
{
    struct shares *s = ctx;
    (void)worker;
    (void)n_threads;
    atomic_fetch_add(&s->inside, 1);
    atomic_fetch_add(&s->late, s->over); /* a race, and a wrong count, if a worker came after the end */
    while (atomic_fetch_sub(&s->next, 1) > 0)
        atomic_fetch_add(&s->total, 1);
    atomic_fetch_sub(&s->inside, 1);
}

static void test_share(int n)
{
    struct pool *p;
    struct shares s = { .over = 0 };
    int ok = 1;
    CHECK(pool_new(n, NULL, &p, &e) == 0);
    for (int i = 0; i < 5000; i++) {
        s.over = 0;
        s.next = i % 50;
        s.total = 0;
        pool_share(p, share, &s);
        s.over = 1;
        ok = ok && s.inside == 0 && s.total == i % 50;
        if (i % 1000 == 999)
            usleep(1000); /* let them fall asleep */
    }
    CHECK_MSG(ok && s.late == 0, "%d workers", n);
    pool_free(p);
}

struct cover {
    int *hits, n, grain, last_begin;
    atomic_int bad, pieces;
};

static void touch(void *ctx, int begin, int end, int worker)
{
    struct cover *c = ctx;
    if (begin % c->grain != 0 || begin >= end || end > c->n || (end - begin != c->grain && end != c->n) || worker < 0)
        atomic_fetch_add(&c->bad, 1);
    for (int i = begin; i < end; i++)
        c->hits[i]++;
}

static void ascending(void *ctx, int begin, int end, int worker)
{
    struct cover *c = ctx;
    (void)end;
    (void)worker;
    if (begin <= c->last_begin)
        atomic_fetch_add(&c->bad, 1);
    c->last_begin = begin;
}

static void shrink(void *ctx, int begin, int end, int worker)
{
    struct cover *c = ctx;
    (void)worker;
    for (int i = begin; i < end; i++)
        c->hits[i]++;
    if (end < c->n && (end - begin) % c->grain)
        atomic_fetch_add(&c->bad, 1);
    atomic_fetch_add(&c->pieces, 1);
}

typedef void each_fn(struct pool *p, int n, int grain, pool_range_fn *fn, void *ctx);

/* Every item once, cut as `body` asks, which where it counts pieces sees far fewer of them than of that size. */
static void test_each(int threads, each_fn *each, pool_range_fn *body)
{
    static const int shapes[][2] = { { 0, 1 },    { 1, 1 },    { 7, 3 },       { 1000, 1 },
                                     { 1000, 7 }, { 1000, 8 }, { 1000, 2000 }, { 64, 64 } };
    struct pool *p;
    int hits[1000], bad = 0;
    CHECK(pool_new(threads, NULL, &p, &e) == 0);
    for (int round = 0; round < 50; round++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct cover c = { .hits = hits, .n = shapes[s][0], .grain = shapes[s][1] };
            memset(hits, 0, sizeof hits);
            each(p, c.n, c.grain, body, &c);
            for (int i = 0; i < 1000; i++)
                bad += hits[i] != (i < c.n);
            bad += c.bad + (c.pieces > 20 * threads);
        }
    CHECK(bad == 0);
    pool_free(p);
}

/* One worker sees its pieces in ascending order; and n near INT_MAX does not wrap. */
static void test_order(void)
{
    struct pool *p;
    struct cover c = { .last_begin = -1 };
    CHECK(pool_new(1, NULL, &p, &e) == 0);
    pool_for(p, 100, 3, ascending, &c);
    CHECK(c.bad == 0 && c.last_begin == 99);
    c.last_begin = -1;
    pool_for(p, 2147483647, 1000000000, ascending, &c);
    CHECK(c.bad == 0 && c.last_begin == 2000000000);
    pool_free(p);
}

static void where(void *ctx, int worker, int n_threads)
{
    (void)n_threads;
    ((int *)ctx)[worker] = sched_getcpu();
}

static void test_pinning(void)
{
    struct pool *p = NULL;
    cpu_set_t before, after;
    int seen[2] = { -1, -1 }, cpu = 0;
    sched_getaffinity(0, sizeof before, &before);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    int cpus[2] = { cpu, cpu };
    CHECK(pool_new(2, cpus, &p, &e) == 0);
    pool_run(p, where, seen);
    CHECK(seen[0] == cpu && seen[1] == cpu && pool_refused(p) == 0);
    pool_free(p);
    sched_getaffinity(0, sizeof after, &after);
    CHECK(CPU_EQUAL(&before, &after));
    cpus[1] = 1 << 20;
    CHECK(pool_new(2, cpus, &p, &e) == 0 && pool_refused(p) == EINVAL); /* refused: it works, and nobody is pinned */
    sched_getaffinity(0, sizeof after, &after);
    CHECK(CPU_EQUAL(&before, &after));
    cpus[1] = cpu;
    CHECK(pool_use(p, 2, cpus, &e) == 0 && pool_refused(p) == 0);
    pool_run(p, where, seen);
    CHECK(seen[0] == cpu && seen[1] == cpu && pool_refused(p) == 0);
    pool_free(p);
    sched_getaffinity(0, sizeof after, &after);
    CHECK(CPU_EQUAL(&before, &after));
    CHECK(pool_new(0, NULL, &p, &e) == ERR_LIMIT && pool_new(POOL_MAX_THREADS + 1, NULL, &p, &e) == ERR_LIMIT);
    pool_free(NULL);
}

/* Workers that slept wake elsewhere than where the caller is, and run anywhere once they are awake. */
static void first_look(void *ctx, int worker, int n_threads)
{
    int *cpu = ctx;
    cpu[worker] = sched_getcpu();
    if (worker == 1 && n_threads == 2) {
        cpu_set_t mine;
        sched_getaffinity(0, sizeof mine, &mine);
        cpu[2] = CPU_COUNT(&mine);
    }
    if (!worker) /* until the other has looked */
        for (int64_t t = progress_now_ns(); progress_now_ns() - t < 200000;)
            ;
}

static void test_places(void)
{
    struct pool *p = NULL;
    cpu_set_t all;
    int together = 0, whole = 1;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) < 2 || CPU_COUNT(&all) > 8 || pool_new(2, NULL, &p, &e) < 0)
        return;
    for (int i = 0; i < 100; i++) {
        int cpu[3] = { -1, -2, 0 };
        usleep(1000); /* longer than workers spin */
        pool_run(p, first_look, cpu);
        together += cpu[0] == cpu[1];
        whole &= cpu[2] == CPU_COUNT(&all);
    }
    printf("# woke on the caller's processor: %d of 100\n", together);
    CHECK(together < 50); /* the caller itself may have moved meanwhile */
    CHECK(whole);
    pool_woke(p, 0);
    pool_free(p);
}

static void nothing(void *ctx, int worker, int n_threads)
{
    (void)ctx;
    (void)worker;
    (void)n_threads;
}

/* Not a check: what starting a job costs, for whoever reads the log. */
static void report_cost(void)
{
    struct pool *p;
    if (pool_new(2, NULL, &p, &e) < 0)
        return;
    int64_t t = progress_now_ns();
    for (int i = 0; i < 10000; i++)
        pool_run(p, nothing, NULL);
    printf("# %.2f us per job with 2 workers\n", (double)(progress_now_ns() - t) / 1e7);
    pool_free(p);
}

int main(void)
{
    for (int n = 1; n <= 4; n++)
        test_share(n);
    test_run(1);
    test_run(2);
    test_run(5); /* more than this machine may have: the sleeping path */
    test_each(1, pool_for, touch);
    test_each(2, pool_for, touch);
    test_each(8, pool_for, touch);
    test_each(1, pool_for_shrinking, shrink);
    test_each(2, pool_for_shrinking, shrink);
    test_each(8, pool_for_shrinking, shrink);
    test_order();
    test_pinning();
    test_places();
    test_use();
    test_patience();
    report_cost();
    return test_done();
}
