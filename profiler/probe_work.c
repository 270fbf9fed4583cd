/* What the engine does beside arithmetic and reading, through its own code: starting a job on all threads and seeing it done
 * (common/pool), finding a unit in the cold cache, and taking a missing one in (common/cache). Rows of table compute, for
 * that is what they are beside: time of one item, by threads and by a size in place of the row length. Units come in
 * ascending order with gaps, as a token's do, in a cache whose lists were well mixed before. */
#include "profiler/probe.h"

#include "common/cache.h"
#include "common/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPS = 5,
       QUICK_REPS = 3,
       UNITS = 16384,
       COPY_BYTES = 64 << 20,
       AHEAD = 8, /* units between asking for a lookup's memory and looking */
       GAP = 16,  /* units apart, in the mean 8.5 */
       ADMITS = 16 };

enum kind { START, LOOKUP, ADMIT };
static const char *const names[] = { "work/start", "work/lookup", "work/admit" };

struct point {
    enum kind kind;
    int core_class, threads, size;
};

struct work_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct point points[5 * HW_MAX_CLASSES + 1];
    void *memory;    /* of the cache */
    char *slots;     /* where units are copied to */
    uint64_t seed;
};

struct job {
    struct work_probe *w;
    const struct point *p;
    double seconds, ns;
};

static void nothing(void *ctx, int begin, int end, int worker)
{
    (void)ctx, (void)begin, (void)end, (void)worker;
}

/* Jobs of a few pieces per thread, as a matrix product has. */
static int measure_start(const struct job *j, const int *cpus, double *ns, struct err *e)
{
    struct pool *pool = NULL;
    int r = pool_new(j->p->threads, cpus, &pool, e);
    if (r < 0)
        return r;
    int64_t start = progress_now_ns(), now, done = 0;
    do {
        for (int i = 0; i < 64; i++, done++)
            pool_for(pool, 4 * j->p->threads, 1, nothing, NULL);
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    *ns = (double)(now - start) / (double)done;
    pool_free(pool);
    return 0;
}

/* The next unit of a token's list. */
static uint32_t next_unit(struct work_probe *w, uint32_t unit, uint32_t below)
{
    w->seed = probe_mix(w->seed);
    unit += 1 + (uint32_t)(w->seed % GAP);
    return unit < below ? unit : 0;
}

static struct cache *full_cache(struct work_probe *w, uint32_t n_units, uint32_t n_slots)
{
    struct cache *c = cache_init(w->memory, n_units, n_slots, CACHE_LRU);
    for (uint32_t i = 0, unit = 0, evicted; i < 2 * n_slots; i++, unit = (unit + 7919) % n_units) {
        int ready;
        uint32_t slot = cache_lookup(c, unit, &ready);
        if (slot == CACHE_NONE && (slot = cache_admit(c, unit, &evicted)) != CACHE_NONE)
            cache_ready(c, slot);
        if (slot != CACHE_NONE)
            cache_unpin(c, slot);
    }
    return c;
}

/* Hits in a cache of `size` slots that holds every unit. */
static void measure_lookup(struct job *j)
{
    struct work_probe *w = j->w;
    uint32_t n = (uint32_t)j->p->size, unit[AHEAD + 1], done = 0;
    struct cache *c = full_cache(w, n, n);
    for (int i = 0; i <= AHEAD; i++)
        unit[i] = next_unit(w, i ? unit[i - 1] : 0, n);
    int64_t start = progress_now_ns(), now;
    do {
        for (int i = 0; i < 64; i++, done++) {
            int ready;
            cache_prefetch(c, unit[AHEAD], 0);
            cache_prefetch(c, unit[AHEAD * 2 / 3], 1);
            cache_prefetch(c, unit[AHEAD / 3], 2);
            uint32_t slot = cache_lookup(c, unit[0], &ready);
            if (slot != CACHE_NONE)
                cache_unpin(c, slot);
            memmove(unit, unit + 1, AHEAD * sizeof *unit);
            unit[AHEAD] = next_unit(w, unit[AHEAD - 1], n);
        }
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    j->ns = (double)(now - start) / done;
}

/* Misses: a lookup, a slot, and the copy of `size` bytes from where reads arrive. */
static void measure_admit(struct job *j)
{
    struct work_probe *w = j->w;
    size_t bytes = (size_t)j->p->size;
    uint32_t n = (uint32_t)((COPY_BYTES - ADMITS * bytes) / bytes), unit = 0, done = 0;
    n = n < UNITS / 2 ? n : UNITS / 2;
    struct cache *c = full_cache(w, UNITS, n);
    const char *arrived = w->slots + (size_t)n * bytes;
    int64_t start = progress_now_ns(), now;
    do {
        for (int i = 0; i < ADMITS; i++, unit = next_unit(w, unit, UNITS)) {
            int ready;
            uint32_t evicted, slot = cache_lookup(c, unit, &ready);
            if (slot == CACHE_NONE && (slot = cache_admit(c, unit, &evicted)) != CACHE_NONE) {
                memcpy(w->slots + slot * bytes, arrived + (size_t)i * bytes, bytes);
                cache_ready(c, slot);
                done++;
            }
            if (slot != CACHE_NONE)
                cache_unpin(c, slot);
        }
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9) || !done);
    j->ns = (double)(now - start) / done;
}

static void measure(void *ctx, int worker, int n_threads)
{
    struct job *j = ctx;
    (void)worker, (void)n_threads;
    if (j->p->kind == LOOKUP)
        measure_lookup(j);
    else
        measure_admit(j);
}

static int sample(struct probe *base, int i, double *value, struct err *e)
{
    struct work_probe *w = (struct work_probe *)base;
    int cpus[POOL_MAX_THREADS];
    struct job j = { .w = w, .p = &w->points[i], .seconds = base->seconds };
    int n = probe_cpus_pick(&w->cpus, j.p->core_class, j.p->threads, cpus);
    int r = j.p->kind == START ? measure_start(&j, cpus, &j.ns, e) : probe_threads(n, cpus, measure, &j, e);
    *value = j.ns;
    return r;
}

static int prepare(struct probe *base, struct err *e)
{
    struct work_probe *w = (struct work_probe *)base;
    w->slots = malloc(COPY_BYTES);
    if (!w->slots || posix_memalign(&w->memory, 64, cache_bytes(UNITS, UNITS)) != 0) {
        w->memory = NULL;
        return err_set(e, ERR_NOMEM, "measuring the engine's own work: %d bytes for a cache", COPY_BYTES);
    }
    memset(w->slots, 1, COPY_BYTES);
    return 0;
}

static int store(struct probe *base, struct hwdb *db, struct err *e)
{
    struct work_probe *w = (struct work_probe *)base;
    int r = 0;
    for (int i = 0; i < base->n_points && r == 0; i++) {
        const struct point *p = &w->points[i];
        struct hw_compute row = { .core_class = p->core_class, .pattern = HW_RANDOM, .dram = 1, .threads = p->threads,
                                  .row_len = p->size, .rows = 1, .batch = 1, .ns_per_row = probe_dist(base, i),
                                  .origin = HW_MEASURED };
        snprintf(row.kernel, sizeof row.kernel, "%s", names[p->kind]);
        snprintf(row.tier, sizeof row.tier, "%s", kernels->name);
        row.flops_per_s = 2e9 * p->size / row.ns_per_row.p50;
        r = hwdb_add_compute(db, &row, NULL, &base->samples[i * base->reps], base->reps_done, e);
    }
    return r;
}

static void release(struct probe *base)
{
    struct work_probe *w = (struct work_probe *)base;
    free(w->memory);
    free(w->slots);
    w->memory = NULL;
    w->slots = NULL;
}

static void done(struct probe *base)
{
    free(base);
}

static void add_class(struct work_probe *w, int core_class, int threads)
{
    if (threads > 1)
        w->points[w->base.n_points++] = (struct point){ START, core_class, threads, 1 };
    if (core_class < 0)
        return;
    for (int i = 0; i < 2; i++)
        w->points[w->base.n_points++] = (struct point){ LOOKUP, core_class, 1, i ? UNITS : UNITS / 16 };
    for (int i = 0; i < 2; i++)
        w->points[w->base.n_points++] = (struct point){ ADMIT, core_class, 1, i ? 16384 : 4096 };
}

int probe_work_new(const struct probe_config *config, struct probe **out, struct err *e)
{
    const struct probe_cpus *cpus = config->cpus;
    struct work_probe *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "measuring the engine's own work: out of memory");
    w->base = (struct probe){ .table = "work",
                              .reps = config->quick ? QUICK_REPS : REPS,
                              .direct_verified = -1,
                              .memory_bytes = COPY_BYTES + cache_bytes(UNITS, UNITS),
                              .prepare = prepare,
                              .sample = sample,
                              .store = store,
                              .release = release,
                              .done = done };
    for (int k = 0; k < cpus->n_classes; k++)
        add_class(w, k, cpus->classes[k].n_cores);
    if (cpus->n_classes > 1)
        add_class(w, -1, cpus->n);
    w->cpus = *cpus;
    double point = config->seconds_per_point > 0 ? config->seconds_per_point : config->quick ? 0.03 : 0.1;
    w->base.seconds = point / w->base.reps;
    *out = &w->base;
    return 0;
}
