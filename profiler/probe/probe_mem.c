/* Memory bandwidth as the engine meets it: sweeping through weights in order, and reading rows of the sizes that
 * quantised weights have in random order. Threads read their own parts of a buffer several times larger than the
 * last-level cache, in large pages where the kernel gives them, for that is how the engine holds weights. Lines are
 * prefetched as the kernels do, two KiB ahead in a sweep and the whole next row of scattered ones, without which a
 * core leaves a third of what memory could give unasked for. */
#include "profiler/probe/probe.h"

#include "common/base/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPS = 7,
       QUICK_REPS = 3,
       SWEEP_BYTES = 64 << 10,
       AHEAD = 2048,
       LINE = 64 };

/* Some virtual machines report the cache of the whole socket, and have as much of it as their neighbours leave. */
#define MOST_BYTES (1u << 30)

struct point {
    enum hw_pattern pattern;
    size_t row_bytes;
    int threads;
};

struct memory_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct point *points;
    char *buf;
    size_t len;
};

/* 16 bytes, as SSE2 and NEON have everywhere. */
typedef uint64_t pair __attribute__((vector_size(16)));

/* ahead: of as many bytes, asked for meanwhile; it may be any address. */
static pair sum_bytes(const char *p, size_t n, const char *ahead)
{
    pair a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    for (size_t at = 0; at + LINE <= n; at += LINE) {
        const pair *v = (const pair *)(p + at);
        __builtin_prefetch(ahead + at);
        a += v[0];
        b += v[1];
        c += v[2];
        d += v[3];
    }
    return a + b + c + d;
}

struct work {
    const struct memory_probe *m;
    const struct point *p;
    double seconds;
    double bytes_per_s[POOL_MAX_THREADS];
    volatile uint64_t sink[POOL_MAX_THREADS]; /* so that the sums are not thrown away */
};

static void read_rows(void *ctx, int worker, int n_threads)
{
    struct work *w = ctx;
    size_t part = w->m->len / (size_t)n_threads, rows = 1, row = w->p->row_bytes;
    const char *base = w->m->buf + part * (size_t)worker / 4096 * 4096;
    part = part / 4096 * 4096;
    if (w->p->pattern == HW_SEQ)
        row = SWEEP_BYTES;
    while (rows * 2 * row <= part)
        rows *= 2;
    if (w->p->pattern == HW_SEQ)
        rows = part / row;
    pair sum = { 0 };
    uint64_t at = splitmix_at((uint64_t)worker) % rows, next, done = 0;
    int64_t start = 0, warm = progress_now_ns() + (int64_t)(w->seconds * 0.1e9), now;
    do {
        for (int i = 0; i < 16; i++, done++) {
            /* A full-period congruence modulo a power of two visits every row once, in no order that a prefetcher knows. */
            int sweep = w->p->pattern == HW_SEQ;
            next = sweep ? at + 1 < rows ? at + 1 : 0 :
                           (at * 6364136223846793005u + 1442695040888963407u) & (rows - 1);
            const char *here = base + at * row;
            sum += sum_bytes(here, row, sweep ? here + AHEAD : base + next * row);
            at = next;
        }
        now = progress_now_ns();
        if (!start && now >= warm) {
            start = now;
            done = 0;
        }
    } while (!start || now - start < (int64_t)(w->seconds * 1e9) || !done);
    w->bytes_per_s[worker] = (double)done * (double)row * 1e9 / (double)(now - start);
    w->sink[worker] = sum[0] ^ sum[1];
}

double probe_memory_sweep(char *buf, size_t len, int thread, int n_threads, double seconds)
{
    const struct memory_probe m = { .buf = buf, .len = len };
    const struct point p = { HW_SEQ, SWEEP_BYTES, n_threads };
    struct work w = { .m = &m, .p = &p, .seconds = seconds };
    read_rows(&w, thread, n_threads);
    return w.bytes_per_s[thread];
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    (void)rep;
    struct memory_probe *m = (struct memory_probe *)base;
    int cpus[POOL_MAX_THREADS];
    struct work w = { .m = m, .p = &m->points[i], .seconds = base->seconds };
    int n = probe_cpus_pick(&m->cpus, -1, w.p->threads, cpus);
    int r = probe_threads(n, cpus, read_rows, &w, e);
    *value = 0;
    for (int t = 0; t < n && r == 0; t++)
        *value += w.bytes_per_s[t];
    return r;
}

static int prepare(struct probe *base, struct err *e)
{
    struct memory_probe *m = (struct memory_probe *)base;
    m->buf = pages_map(m->len);
    if (!m->buf)
        return err_sys(e, ERR_NOMEM, "measuring memory: %zu bytes for the buffer", m->len);
    uint64_t *v = (uint64_t *)(void *)m->buf;
    for (size_t i = 0; i < m->len / sizeof *v; i++)
        v[i] = splitmix_at(i);
    return 0;
}

static int store(struct probe *base, struct hwdb_record *to, struct err *e)
{
    struct memory_probe *m = (struct memory_probe *)base;
    int r = 0;
    for (int i = 0; i < base->n_points && r == 0; i++) {
        const struct point *p = &m->points[i];
        struct hw_memory row = { .engines = "cpu", .pattern = p->pattern, .row_bytes = p->row_bytes, .threads = p->threads,
                                 .bytes_per_s = probe_dist(base, i), .origin = HW_MEASURED };
        r = probe_record(base, i, HWDB_MEMORY, &row, to, e);
    }
    return r;
}

static void release(struct probe *base)
{
    struct memory_probe *m = (struct memory_probe *)base;
    if (m->buf)
        munmap(m->buf, m->len);
    m->buf = NULL;
}

static void done(struct probe *base)
{
    struct memory_probe *m = (struct memory_probe *)base;
    free(m->points);
    free(m);
}

/* Eight times the last-level cache (quick: four), at least 64 MiB, at most an eighth of the machine's memory. */
static size_t buffer_bytes(int quick)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), pages = sysconf(_SC_PHYS_PAGES);
    size_t len = 64u << 20, most = pages > 0 ? (size_t)pages / 8 * pages_small_size() : len;
    while (cache > 0 && len < (quick ? 4 : 8) * (size_t)cache && len < MOST_BYTES)
        len *= 2;
    while (len > most && len > 8u << 20)
        len /= 2;
    return len;
}

int probe_memory_new(const struct probe_config *c, struct probe **out, struct err *e)
{
    static const size_t full[] = { 512, 1024, 2048, 4096, 8192, 16384 }, quick[] = { 512, 2048, 8192 };
    const size_t *sizes = c->quick ? quick : full;
    int n_sizes = c->quick ? 3 : 6, max = (n_sizes + 1) * 10, n = 0;
    struct memory_probe *m = calloc(1, sizeof *m);
    struct point *points = calloc((size_t)max, sizeof *points);
    if (!m || !points) {
        free(m);
        free(points);
        return err_set(e, ERR_NOMEM, "measuring memory: out of memory");
    }
    for (int t = 1;; t = 2 * t < c->cpus->n && !c->quick ? 2 * t : c->cpus->n) {
        points[n++] = (struct point){ HW_SEQ, SWEEP_BYTES, t };
        for (int i = 0; i < n_sizes; i++)
            points[n++] = (struct point){ HW_RANDOM, sizes[i], t };
        if (t == c->cpus->n)
            break;
    }
    m->points = points;
    m->cpus = *c->cpus;
    m->len = c->memory_range_bytes ? (size_t)c->memory_range_bytes / 4096 * 4096 : buffer_bytes(c->quick);
    if (m->len < (size_t)c->cpus->n * SWEEP_BYTES)
        m->len = (size_t)c->cpus->n * SWEEP_BYTES;
    m->base = (struct probe){ .table = "memory", .n_points = n, .reps = c->quick ? QUICK_REPS : REPS,
                              .direct_verified = -1, .memory_bytes = m->len, .prepare = prepare, .sample = sample,
                              .store = store, .release = release, .done = done };
    double point = c->seconds_per_point > 0 ? c->seconds_per_point : c->quick ? 0.1
                                                                              : 0.35;
    m->base.seconds = point / m->base.reps;
    *out = &m->base;
    return 0;
}
