/* What the engine does beside the products of weights and reading, through its own code: starting a job on all threads and
 * seeing it done (common/base/pool), a turn at the lock of a list of jobs, finding a unit in the cold cache, and taking a missing one
 * in (common/plan/cache) and verifying it (common/pack/unit_check); and what one thread does between products: norm, int8
 * activations and residual addition, rotation, attention over positions (common/model/nn), of one token and of as many of a prompt
 * as it takes at a time; and what a neuron's h of a token takes in a prompt beside products (runtime/pipeline/compute.c). Rows of table
 * compute, for that is what they are beside: time of one item, by threads and by a size in place of the row length.
 * Units come in ascending order with gaps, as a token's do, in a cache whose lists were well mixed before. */
#include "profiler/probe/probe.h"

#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/pack/unit_check.h"
#include "common/plan/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPS = 5,
       QUICK_REPS = 3,
       UNITS = 16384,
       COPY_BYTES = 64 << 20,
       AHEAD = 8, /* units between asking for a lookup's memory and looking */
       GAP = 16,  /* units apart, in the mean 8.5 */
       ADMITS = 16,
       TURN_NS = 4000, /* of private work between turns */
       LINES = 8,      /* of memory that a turn changes */
       HEADS = 32,
       POSITIONS = 32,
       NEURONS = 256,  /* whose rows are gathered at a time */
       SPACED = 2,     /* positions from one such neuron to the next */
       SILENT_COLS = 32,
       MANY_TOKENS = 128,
       MOST_ELEMS = 8192 };

enum kind { START, TURN, LOOKUP, ADMIT, VERIFY, NORM, ROPE, ATTEND, ATTEND_MANY, ACT, SIFT };
static const char *const names[] = { "work/start", "work/turn", "work/lookup", "work/admit", "work/verify", "work/norm",
                                     "work/rope", "work/attend", "work/attend_many", "work/act", "work/sift" };

struct point {
    enum kind kind;
    int core_class, threads, size;
};

struct work_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct point points[20 * HW_MAX_CLASSES + 2];
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

/* What threads of one list of jobs share: a lock, and lines that its holder reads and writes. */
struct contenders {
    const struct job *j;
    pthread_mutex_t lock;
    uint64_t shared[LINES * 8];
    _Atomic uint64_t done;
    _Atomic int64_t away_ns; /* spent on private work */
};

static void contend(void *ctx, int worker, int n_threads)
{
    struct contenders *t = ctx;
    int64_t start = progress_now_ns(), now = start, away = 0;
    uint64_t done = 0;
    (void)worker, (void)n_threads;
    do {
        int64_t from = progress_now_ns();
        while ((now = progress_now_ns()) - from < TURN_NS)
            ;
        away += now - from;
        pthread_mutex_lock(&t->lock);
        for (int i = 0; i < LINES; i++)
            t->shared[i * 8]++;
        pthread_mutex_unlock(&t->lock);
        done++;
    } while (now - start < (int64_t)(t->j->seconds * 1e9));
    atomic_fetch_add(&t->away_ns, away - (progress_now_ns() - start));
    atomic_fetch_add(&t->done, done);
}

static int measure_turn(const struct job *j, const int *cpus, double *ns, struct err *e)
{
    struct contenders t = { .j = j, .lock = PTHREAD_MUTEX_INITIALIZER };
    int r = probe_threads(j->p->threads, cpus, contend, &t, e);
    pthread_mutex_destroy(&t.lock);
    *ns = (double)-t.away_ns / (double)t.done;
    return r;
}

/* What lies between two products of a token: the residual stream of `size` elements takes what the last one gave, is
 * normalised, and made int8. */
static void norm_once(float *x, const float *add, float *out, void *act, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += add[i];
    nn_rmsnorm(out, x, add, n, 1e-5f);
    kernels_act_prepare(act, KERNELS_ACT_Q8, out, n);
}

static void attend_once(float *out, const float *q, const void *kv, int head_dim, float *scores)
{
    const struct nn_attn shape = { .n_heads = HEADS, .n_kv_heads = HEADS / NN_ATTN_HEADS, .head_dim = head_dim, .type = QUANT_F16,
                                   .kv_stride = (size_t)head_dim * HEADS / NN_ATTN_HEADS, .scores_stride = POSITIONS,
                                   .scale = 0.1f };
    nn_attention(out, q, kv, kv, POSITIONS, 0, HEADS, &shape, scores);
}

/* NN_ATTN_TOKENS of a prompt at a time. */
static void measure_attend_many(struct job *j)
{
    int d = j->p->size, n_kv = HEADS / NN_ATTN_HEADS, seen = 0, from[NN_ATTN_TOKENS] = { 0 };
    const struct nn_attn shape = { .n_heads = HEADS, .n_kv_heads = n_kv, .head_dim = d, .type = QUANT_F16, .kv_stride = (size_t)(d * n_kv),
                                   .scale = 0.1f };
    size_t step = (size_t)HEADS * (size_t)d, all = NN_ATTN_TOKENS * step;
    float *q = (float *)(void *)j->w->slots, *out = q + all, *work = out + all;
    uint16_t *kv = (uint16_t *)(void *)(work + nn_attention_floats(NN_ATTN_TOKENS, POSITIONS, &shape));
    for (size_t i = 0; i < all; i++)
        q[i] = (float)(splitmix_at(i) % 2000) / 1000 - 1;
    for (int i = 0; i < (POSITIONS + NN_ATTN_TOKENS) * n_kv * d; i++)
        kv[i] = 0x3000 + (uint16_t)(i % 512);
    for (int i = 0; i < NN_ATTN_TOKENS; i++)
        seen += POSITIONS + i;
    int64_t start = progress_now_ns(), now, done = 0;
    do {
        nn_attention_run(out, step, q, step, kv, kv, NN_ATTN_TOKENS, POSITIONS, from, 0, HEADS, &shape, work);
        done++;
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    j->ns = (double)(now - start) / (double)done / HEADS / seen;
}

/* NEURONS of a pass of many tokens, as they are gathered from rows of so many floats (runtime/pipeline/compute.c). */
struct gathered {
    float *rows, *gate, *a, *acc;
    const void *at[NEURONS];
    size_t stride;
};

/* h is made of gates, and put in their place. */
static void act_once(struct gathered *g)
{
    for (int t = 0; t < MANY_TOKENS; t++) {
        float *h = g->rows + (size_t)t * g->stride, *up = g->a + t * NEURONS;
        for (int i = 0; i < NEURONS; i++)
            g->gate[i] = h[i * SPACED];
        nn_ffn_act(up, g->gate, up, NEURONS, MODEL_ACT_RELU);
        for (int i = 0; i < NEURONS; i++)
            h[i * SPACED] = up[i];
    }
}

/* h is gathered for Down, and looked at by the kernel that adds rows, which here adds none. */
static void sift_once(struct gathered *g)
{
    for (int t = 0; t < MANY_TOKENS; t++)
        for (int i = 0; i < NEURONS; i++)
            g->a[t * NEURONS + i] = g->rows[(size_t)t * g->stride + i * SPACED];
    kernels->axpy[QUANT_F32](g->acc, SILENT_COLS, g->at, g->a, NEURONS, NEURONS, MANY_TOKENS, 0, SILENT_COLS);
}

static void measure_gathered(struct job *j)
{
    struct gathered g = { .rows = (float *)(void *)j->w->slots, .stride = (size_t)j->p->size };
    size_t n = MANY_TOKENS * (g.stride + NEURONS + SILENT_COLS) + 2 * NEURONS;
    g.a = g.rows + MANY_TOKENS * g.stride;
    g.acc = g.a + MANY_TOKENS * NEURONS;
    g.gate = g.acc + MANY_TOKENS * SILENT_COLS;
    for (int i = 0; i < NEURONS; i++)
        g.at[i] = g.gate + NEURONS;
    memset(g.rows, 0, n * sizeof *g.rows);
    int64_t start = progress_now_ns(), now, done = 0;
    do {
        if (j->p->kind == ACT)
            act_once(&g);
        else
            sift_once(&g);
        done++;
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    j->ns = (double)(now - start) / (double)done / NEURONS / MANY_TOKENS;
}

/* One thread's work between products, on memory that stays in its cache: in the slots' memory, of which it takes five pieces. */
static void measure_alone(struct job *j)
{
    float *x = (float *)(void *)j->w->slots, *add = x + MOST_ELEMS, *out = add + MOST_ELEMS, *act = out + MOST_ELEMS,
          *freqs = act + MOST_ELEMS, *scores = freqs + MOST_ELEMS;
    uint16_t *kv = (uint16_t *)(void *)(scores + NN_ATTN_HEADS * POSITIONS);
    int n = j->p->size, done = 0;
    for (int i = 0; i < MOST_ELEMS; i++)
        x[i] = add[i] = (float)(splitmix_at((uint64_t)i) % 2000) / 1000 - 1;
    nn_rope_freqs(freqs, &(struct model_hparams){ .n_rot = n, .rope_theta = 10000, .rope_scale = 1 }, 0, NULL);
    for (int i = 0; i < POSITIONS * HEADS / NN_ATTN_HEADS * n; i++)
        kv[i] = 0x3000 + (uint16_t)(i % 512); /* halves of 0.13 to 0.19 */
    int64_t start = progress_now_ns(), now;
    do {
        if (j->p->kind == NORM)
            norm_once(x, add, out, act, n);
        else if (j->p->kind == ROPE)
            nn_rope(x, HEADS, n, n, MODEL_ROPE_NORM, freqs, 1, done);
        else
            attend_once(out, x, kv, n, scores);
        done++;
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    int items = j->p->kind == NORM ? 1 : j->p->kind == ROPE ? HEADS : HEADS * POSITIONS;
    j->ns = (double)(now - start) / done / items;
}

/* The next unit of a token's list. */
static uint32_t next_unit(struct work_probe *w, uint32_t unit, uint32_t below)
{
    w->seed = splitmix_at(w->seed);
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

/* Misses: a lookup, a slot, and the copy of `size` bytes from where reads arrive: what a device has written is in no core's own cache. */
static void measure_admit(struct job *j)
{
    struct work_probe *w = j->w;
    size_t bytes = (size_t)j->p->size;
    uint32_t half = (uint32_t)(COPY_BYTES / 2 / bytes), n = half < UNITS / 2 ? half : UNITS / 2, unit = 0, done = 0;
    struct cache *c = full_cache(w, UNITS, n);
    const char *arrived = w->slots + COPY_BYTES / 2;
    int64_t start = progress_now_ns(), now;
    do {
        for (int i = 0; i < ADMITS; i++, unit = next_unit(w, unit, UNITS)) {
            int ready;
            uint32_t evicted, slot = cache_lookup(c, unit, &ready);
            if (slot == CACHE_NONE && (slot = cache_admit(c, unit, &evicted)) != CACHE_NONE) {
                memcpy(w->slots + slot * bytes, arrived + done % half * bytes, bytes);
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

/* The checksum of `size` bytes in cache: fetching them there is what the products that follow no longer have to do. */
static void measure_verify(struct job *j)
{
    struct work_probe *w = j->w;
    size_t bytes = (size_t)j->p->size;
    uint64_t done = 0, sum = 0;
    int64_t start = progress_now_ns(), now;
    do {
        for (int i = 0; i < ADMITS; i++, done++)
            sum += unit_check_sum(w->slots + (size_t)i * bytes, bytes, done);
        now = progress_now_ns();
    } while (now - start < (int64_t)(j->seconds * 1e9));
    w->seed ^= sum; /* so that it is worked out */
    j->ns = (double)(now - start) / (double)done;
}

static void measure(void *ctx, int worker, int n_threads)
{
    struct job *j = ctx;
    (void)worker, (void)n_threads;
    if (j->p->kind == LOOKUP)
        measure_lookup(j);
    else if (j->p->kind == ADMIT)
        measure_admit(j);
    else if (j->p->kind == VERIFY)
        measure_verify(j);
    else if (j->p->kind == ATTEND_MANY)
        measure_attend_many(j);
    else if (j->p->kind == ACT || j->p->kind == SIFT)
        measure_gathered(j);
    else
        measure_alone(j);
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    (void)rep;
    struct work_probe *w = (struct work_probe *)base;
    int cpus[POOL_MAX_THREADS];
    struct job j = { .w = w, .p = &w->points[i], .seconds = base->seconds };
    int n = probe_cpus_pick(&w->cpus, j.p->core_class, j.p->threads, cpus);
    int r = j.p->kind == START ? measure_start(&j, cpus, &j.ns, e) :
            j.p->kind == TURN  ? measure_turn(&j, cpus, &j.ns, e) :
                                 probe_threads(n, cpus, measure, &j, e);
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

static int store(struct probe *base, struct hwdb_record *to, struct err *e)
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
        r = probe_record(base, i, HWDB_COMPUTE, &row, to, e);
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

static void add_point(struct work_probe *w, enum kind kind, int core_class, int threads, int size)
{
    w->points[w->base.n_points++] = (struct point){ kind, core_class, threads, size };
}

static void add_class(struct work_probe *w, int core_class, int threads)
{
    static const struct { enum kind kind; int size[2]; } alone[] = {
        { LOOKUP, { UNITS / 16, UNITS } }, { ADMIT, { 4096, 16384 } }, { VERIFY, { 4096, 16384 } }, { NORM, { 1024, 4096 } },
        { ROPE, { 32, 128 } }, { ATTEND, { 32, 128 } }, { ATTEND_MANY, { 32, 128 } }, { ACT, { 1280, 14336 } },
        { SIFT, { 1280, 14336 } },
    };
    if (threads > 1) {
        add_point(w, START, core_class, threads, 1);
        add_point(w, TURN, core_class, threads, 1);
    }
    for (size_t k = 0; core_class >= 0 && k < sizeof alone / sizeof *alone; k++)
        for (int i = 0; i < 2; i++)
            add_point(w, alone[k].kind, core_class, 1, alone[k].size[i]);
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
