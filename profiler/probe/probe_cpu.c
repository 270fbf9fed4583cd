/* Compute with the engine's own kernels, found in the kernel table, so that what is measured is what will run. Four
 * situations: rows in a core's own cache (what the arithmetic can do), rows of memory in order (matrices that a token
 * reads whole), rows anywhere in memory (what sparse decoding meets), and adding rows of Down to an accumulator. Threads
 * run free of each other until a common time and their rates add up: barriers are the pipeline's business, not the
 * kernel's. Weights are bytes 0x20..0x2f: in every type these are ordinary numbers, neither zero, denormal nor infinite, so
 * one buffer serves all types. */
#include "profiler/probe/probe.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/pages.h"
#include "common/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPS = 5,
       QUICK_REPS = 3,
       CACHE_BYTES = 256 << 10,
       CHUNK = 64,
       LEAST_CHUNK = 4,
       CHUNK_NS = 150000000, /* a chunk of many tokens takes at most, or rows are fewer: a machine that is emulated would need hours */
       MAX_ROW = 8192,
       MANY = 256, /* tokens, as a prompt has them */
       MAX_BATCH = MANY };

/* Some virtual machines report the cache of the whole socket, and have as much of it as their neighbours leave. */
#define MOST_BYTES (1u << 30)

struct point {
    int axpy; /* else a row product */
    uint32_t type;
    enum kernels_act act;
    enum hw_pattern pattern;
    int dram, core_class, threads, row_len, batch;
};

struct compute_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct point *points;
    int cap;
    char *buf; /* weights: each thread takes its own part */
    size_t len;
    float *scratch; /* per thread: activations, results, factors */
    int chunk;      /* rows of a call: CHUNK, or as many as a slow machine has time for */
};

/* Bytes of one thread's scratch: activations in either form, then the larger of results and accumulators. */
#define ACT_FLOATS     ((size_t)MAX_ROW * MAX_BATCH * 2)
#define OUT_FLOATS     ((size_t)MAX_ROW * MAX_BATCH)
#define SCRATCH_FLOATS (ACT_FLOATS + OUT_FLOATS + CHUNK * MAX_BATCH)

struct work {
    const struct compute_probe *c;
    const struct point *p;
    double seconds;
    double rows_per_s[POOL_MAX_THREADS];
};

/* One thread's place: its rows and its scratch. */
struct place {
    const char *weights;
    size_t row_bytes, rows; /* rows is a power of two */
    float *act, *out, *factor;
    size_t act_stride;
    uint64_t at;
};

static struct place find_place(const struct work *w, int worker, int n_threads)
{
    const struct point *p = w->p;
    struct place l = { .row_bytes = quant_row_bytes(p->type, (uint64_t)p->row_len), .rows = 1 };
    size_t part = w->c->len / (size_t)n_threads / 4096 * 4096, use = p->dram ? part : CACHE_BYTES;
    l.weights = w->c->buf + part * (size_t)worker;
    while (l.rows * 2 * l.row_bytes <= use)
        l.rows *= 2;
    l.act = w->c->scratch + SCRATCH_FLOATS * (size_t)worker;
    l.out = l.act + ACT_FLOATS;
    l.factor = l.out + OUT_FLOATS;
    for (int i = 0; i < p->row_len; i++) /* every token the same: speed does not depend on it */
        l.out[i] = (float)(splitmix_at((uint64_t)i) % 2000) / 1000 - 1;
    l.act_stride = kernels_act_bytes(p->act, p->row_len);
    for (int t = 0; t < p->batch; t++)
        kernels_act_prepare((char *)l.act + l.act_stride * (size_t)t, p->act, l.out, p->row_len);
    memset(l.out, 0, OUT_FLOATS * sizeof *l.out);
    for (int i = 0; i < CHUNK * MAX_BATCH; i++)
        l.factor[i] = 0.001f;
    return l;
}

/* One chunk of at most so many rows; returns how many. */
static int chunk(const struct point *p, struct place *l, int most)
{
    const void *rows[CHUNK];
    int n = l->rows < (size_t)most ? (int)l->rows : most;
    if (!p->axpy && p->pattern == HW_SEQ) {
        kernels->rows[p->act][p->type](l->out, CHUNK, l->weights + (l->at & (l->rows - 1)) * l->row_bytes, l->row_bytes, n,
                                       l->act, l->act_stride, p->batch, p->row_len);
        l->at += (uint64_t)n;
        return n;
    }
    for (int i = 0; i < n; i++) { /* a full-period congruence: every row once, in no order a prefetcher knows */
        l->at = (l->at * 6364136223846793005u + 1442695040888963407u) & (l->rows - 1);
        rows[i] = l->weights + l->at * l->row_bytes;
    }
    if (p->axpy)
        kernels->axpy[p->type](l->out, MAX_ROW, rows, l->factor, CHUNK, n, p->batch, 0, p->row_len);
    else
        kernels->rows_at[p->act][p->type](l->out, CHUNK, rows, n, l->act, l->act_stride, p->batch, p->row_len);
    return n;
}

static void compute(void *ctx, int worker, int n_threads)
{
    struct work *w = ctx;
    struct place l = find_place(w, worker, n_threads);
    int64_t start = 0, warm = progress_now_ns() + (int64_t)(w->seconds * 0.1e9), now;
    uint64_t done = 0;
    do {
        done += (uint64_t)chunk(w->p, &l, w->c->chunk);
        now = progress_now_ns();
        if (!start && now >= warm) {
            start = now;
            done = 0;
        }
    } while (!start || now - start < (int64_t)(w->seconds * 1e9) || !done);
    w->rows_per_s[worker] = (double)done * 1e9 / (double)(now - start);
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    (void)rep;
    struct compute_probe *c = (struct compute_probe *)base;
    int cpus[POOL_MAX_THREADS];
    double rate = 0;
    struct work w = { .c = c, .p = &c->points[i], .seconds = base->seconds };
    int n = probe_cpus_pick(&c->cpus, w.p->core_class, w.p->threads, cpus);
    int r = probe_threads(n, cpus, compute, &w, e);
    for (int t = 0; t < n && r == 0; t++)
        rate += w.rows_per_s[t];
    *value = rate > 0 ? 1e9 / rate : 0;
    return r;
}

static int prepare(struct probe *base, struct err *e);

int probe_load(const struct probe_config *config, double seconds, double *first, double *last, struct err *e)
{
    struct probe *base = NULL;
    int r = probe_compute_new(config, &base, e), at = 0;
    if (r < 0 || (r = prepare(base, e)) < 0) {
        probe_free(base);
        return r;
    }
    const struct point *p = ((struct compute_probe *)base)->points;
    for (int i = 0; i < base->n_points; i++) /* rows of memory by as many threads as there are, as the engine's */
        if (!p[i].axpy && p[i].batch == 1 && p[i].threads * 2 + p[i].dram > p[at].threads * 2 + p[at].dram)
            at = i;
    struct progress progress;
    progress_init(&progress, "computing with all cores", "s", (uint64_t)seconds);
    int64_t begun = progress_now_ns();
    double sum[2] = { 0 }, now_s = 0;
    int n[2] = { 0 };
    base->seconds = fmin(0.5, seconds / 20);
    while (r == 0 && now_s < seconds) {
        double ns_per_row, share = now_s / seconds;
        if (file_interrupted())
            r = err_set(e, ERR_INTR, "interrupted under load");
        else if ((r = sample(base, at, 0, &ns_per_row, e)) == 0 && ns_per_row > 0 && (share < 0.1 || share >= 0.9)) {
            sum[share >= 0.9] += 1e9 / ns_per_row;
            n[share >= 0.9]++;
        }
        now_s = (double)(progress_now_ns() - begun) / 1e9;
        progress_set(&progress, (uint64_t)now_s);
    }
    progress_done(&progress);
    *first = n[0] ? sum[0] / n[0] : 0;
    *last = n[1] ? sum[1] / n[1] : *first;
    probe_free(base);
    return r;
}

/* By the slowest kernel, on the longest rows and the most tokens. */
static int find_chunk(const struct compute_probe *c)
{
    int64_t slowest = 0;
    int n = CHUNK, most = 0;
    for (int i = 0; i < c->base.n_points; i++)
        most = c->points[i].row_len * c->points[i].batch > most ? c->points[i].row_len * c->points[i].batch : most;
    for (int i = 0; i < c->base.n_points; i++) {
        const struct point *p = &c->points[i];
        if (p->dram || p->core_class > 0 || p->threads > 1 || p->row_len * p->batch < most)
            continue;
        struct work w = { .c = c, .p = p };
        struct place l = find_place(&w, 0, 1);
        int64_t begun = progress_now_ns();
        int rows = chunk(p, &l, LEAST_CHUNK);
        int64_t ns = (progress_now_ns() - begun) / rows;
        slowest = ns > slowest ? ns : slowest;
    }
    while (n > LEAST_CHUNK && slowest * n > CHUNK_NS)
        n /= 2;
    return n;
}

static int prepare(struct probe *base, struct err *e)
{
    struct compute_probe *c = (struct compute_probe *)base;
    size_t scratch = SCRATCH_FLOATS * sizeof(float) * (size_t)c->cpus.n;
    c->buf = pages_map(c->len);
    if (!c->buf)
        return err_sys(e, ERR_NOMEM, "measuring compute: %zu bytes for the weights", c->len);
    if (posix_memalign((void **)&c->scratch, 64, scratch) != 0) {
        c->scratch = NULL;
        return err_set(e, ERR_NOMEM, "measuring compute: %zu bytes for activations", scratch);
    }
    uint64_t *v = (uint64_t *)(void *)c->buf;
    for (size_t i = 0; i < c->len / sizeof *v; i++)
        v[i] = 0x2020202020202020u | (splitmix_at(i) & 0x0f0f0f0f0f0f0f0fu);
    if ((c->chunk = find_chunk(c)) < CHUNK)
        log_info("compute: %d rows at a time instead of %d, for this machine is slow", c->chunk, CHUNK);
    return 0;
}

static void kernel_name(const struct point *p, char *out, size_t len)
{
    hw_op_name(p->axpy ? "axpy" : "rows", p->type, p->axpy ? NULL : p->act == KERNELS_ACT_Q8 ? "q8" : "f32", out, len);
}

static int store(struct probe *base, struct hwdb_record *to, struct err *e)
{
    struct compute_probe *c = (struct compute_probe *)base;
    int r = 0;
    for (int i = 0; i < base->n_points && r == 0; i++) {
        const struct point *p = &c->points[i];
        struct hw_compute row = { .core_class = p->core_class, .pattern = p->pattern, .dram = p->dram, .threads = p->threads,
                                  .row_len = p->row_len, .rows = c->chunk, .batch = p->batch,
                                  .ns_per_row = probe_dist(base, i), .origin = HW_MEASURED };
        kernel_name(p, row.kernel, sizeof row.kernel);
        snprintf(row.tier, sizeof row.tier, "%s", kernels->name);
        row.flops_per_s = 2e9 * p->row_len * p->batch / row.ns_per_row.p50;
        r = probe_record(base, i, HWDB_COMPUTE, &row, to, e);
    }
    return r;
}

static void release(struct probe *base)
{
    struct compute_probe *c = (struct compute_probe *)base;
    if (c->buf)
        munmap(c->buf, c->len);
    free(c->scratch);
    c->buf = NULL;
    c->scratch = NULL;
}

static void done(struct probe *base)
{
    struct compute_probe *c = (struct compute_probe *)base;
    free(c->points);
    free(c);
}

/* ---- the grid ---- */

static int add(struct compute_probe *c, const struct point *p)
{
    if (c->base.n_points == c->cap) {
        int cap = c->cap ? 2 * c->cap : 256;
        struct point *q = realloc(c->points, (size_t)cap * sizeof *q);
        if (!q)
            return -1;
        c->points = q;
        c->cap = cap;
    }
    c->points[c->base.n_points++] = *p;
    return 0;
}

struct grid {
    const int *lens, *batches;
    int n_lens, n_batches;
};

/* One kernel on one set of threads over row lengths and batches. */
static int add_grid(struct compute_probe *c, struct point p, const struct grid *g)
{
    for (int l = 0; l < g->n_lens; l++)
        for (int b = 0; b < g->n_batches; b++) {
            p.row_len = g->lens[l];
            p.batch = g->batches[b];
            if (add(c, &p) < 0)
                return -1;
        }
    return 0;
}

static int add_type(struct compute_probe *c, uint32_t type, struct point at, int quick)
{
    static const int lens[] = { 256, 512, 1024, 2048, 4096, 8192 }, few_lens[] = { 256, 1024, 4096 };
    /* Those of plans, for kernels change with the number of tokens: between 8 and MANY no line holds. */
    static const int batches[] = { 1, 2, 4, 8, 16, 32, MANY }, few_batches[] = { 1, 8, 16, 32, MANY }, sums[] = { 1, 8, 32, MANY };
    struct grid full = { quick ? few_lens : lens, quick ? few_batches : batches, quick ? 3 : 6, quick ? 5 : 7 }, some = full, one = full;
    /* From memory, too, for a kernel of tiles asks for many rows at once; short rows are Down's in tiles. */
    static const int long_rows[] = { 256, 4096 }, many[] = { 16, 32 };
    struct grid cached = { full.lens, sums, full.n_lens, 4 }, several = { long_rows, many, 2, 2 };
    some.n_batches = quick ? 1 : 2;
    one.n_batches = 1;
    at.type = type;
    for (int act = 0; act < KERNELS_ACT_FORMS; act++) {
        at.axpy = 0;
        at.act = (enum kernels_act)act;
        at.pattern = HW_SEQ;
        at.dram = 0;
        if (kernels->rows[act][type] && add_grid(c, at, &full) < 0)
            return -1;
        at.dram = 1;
        if (kernels->rows[act][type] && (add_grid(c, at, &one) < 0 || add_grid(c, at, &several) < 0))
            return -1;
        at.pattern = HW_RANDOM;
        if (kernels->rows_at[act][type] && (add_grid(c, at, &some) < 0 || add_grid(c, at, &several) < 0))
            return -1;
    }
    at.axpy = 1;
    at.act = KERNELS_ACT_F32;
    for (at.dram = 0; at.dram < 2; at.dram++)
        if (kernels->axpy[type] && (add_grid(c, at, at.dram ? &some : &cached) < 0 || (at.dram && add_grid(c, at, &several) < 0)))
            return -1;
    return 0;
}

static int add_threads(struct compute_probe *c, int core_class, int threads, const struct probe_config *config)
{
    static const uint32_t types[] = { QUANT_F16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q6_K, /* quick: these */
                                      QUANT_F32, QUANT_BF16, QUANT_MXFP4 };
    const int n = config->n_types ? config->n_types : config->quick ? 5 : 8;
    struct point at = { .core_class = core_class, .threads = threads };
    for (int i = 0; i < n; i++)
        if (add_type(c, config->n_types ? config->types[i] : types[i], at, config->quick) < 0)
            return -1;
    return 0;
}

/* Weights for all threads, beyond the last-level cache, at most an eighth of the machine's memory. */
static size_t buffer_bytes(int n_threads)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), pages = sysconf(_SC_PHYS_PAGES);
    size_t len = 64u << 20, most = pages > 0 ? (size_t)pages / 8 * pages_small_size() : len;
    while ((cache > 0 && len < 4 * (size_t)cache && len < MOST_BYTES) || len < (size_t)n_threads * (1u << 20))
        len *= 2;
    while (len > most && len / 2 >= (size_t)n_threads * CACHE_BYTES * 2)
        len /= 2;
    return len;
}

/* As asked for; each thread has a part beyond what it repeats in cache. */
static size_t range_bytes(uint64_t wanted, int n_threads)
{
    size_t least = (size_t)n_threads * CACHE_BYTES * 2;
    return wanted > least ? (size_t)wanted / 4096 * 4096 : least;
}

int probe_compute_new(const struct probe_config *config, struct probe **out, struct err *e)
{
    const struct probe_cpus *cpus = config->cpus;
    struct compute_probe *c = calloc(1, sizeof *c);
    int bad = !c;
    for (int k = 0; !bad && k < cpus->n_classes; k++) {
        bad = add_threads(c, k, 1, config) < 0;
        if (!bad && cpus->classes[k].n_cores > 1)
            bad = add_threads(c, k, cpus->classes[k].n_cores, config) < 0;
    }
    if (!bad && cpus->n_classes > 1)
        bad = add_threads(c, -1, cpus->n, config) < 0;
    if (bad) {
        if (c)
            free(c->points);
        free(c);
        return err_set(e, ERR_NOMEM, "measuring compute: out of memory");
    }
    int n = c->base.n_points;
    c->cpus = *cpus;
    c->len = config->memory_range_bytes ? range_bytes(config->memory_range_bytes, cpus->n) : buffer_bytes(cpus->n);
    c->base = (struct probe){ .table = "compute", .n_points = n, .reps = config->quick ? QUICK_REPS : REPS,
                              .direct_verified = -1, .memory_bytes = c->len + SCRATCH_FLOATS * 4 * (size_t)cpus->n,
                              .prepare = prepare, .sample = sample, .store = store, .release = release, .done = done };
    double point = config->seconds_per_point > 0 ? config->seconds_per_point : config->quick ? 0.03
                                                                                             : 0.1;
    c->base.seconds = point / c->base.reps;
    *out = &c->base;
    return 0;
}
