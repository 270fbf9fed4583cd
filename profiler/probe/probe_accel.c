/* An accelerator, through the interface that the runtime calls it by (common/accel/accel.h): products and whole FFNs by type, shape and
 * tokens, launches and copies included, as the runtime meets them; an empty launch; what copies take; and memory bandwidth, alone and
 * while the processor sweeps through memory too. Weights are pieces of a buffer larger than the caches, another piece for each call, of
 * the bytes that probe_cpu.c has. Bandwidth is that of products: where arithmetic binds it is what the accelerator makes of weights, which
 * is what the planner divides. */
#include "profiler/probe/probe.h"

#include "common/base/pages.h"
#include "common/kernels/kernels.h"
#include "common/kernels/quant.h"
#include "common/plan/schedule.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPS = 5,
       QUICK_REPS = 3,
       MOST_ROWS = 4096, /* of a product or an FFN, and columns of either */
       MOST_TOKENS = 256,
       COPY_TOKENS = 32,
       FEW_TOKENS = 32, /* of what has more rows or columns than MANY_ROWS */
       MANY_ROWS = 2048,
       SWEEP_ROWS = 8192, /* of a product that bandwidth is measured by, at most */
       SWEEP_BYTES = 32 << 20,
       BESIDE_SIZE = 1024, /* rows and columns of an FFN that the processor multiplies beside */
       BESIDE_TOKENS = 64,
       BESIDE_ROWS = 64,
       PAGE = 4096 };

enum what { LAUNCH,
            COPY_IN,
            COPY_OUT,
            PRODUCT,
            FFN,
            OWN,         /* an FFN of BESIDE_SIZE, which the grid of others need not have */
            CPU_PRODUCT, /* the processor's, of many tokens */
            BOTH,        /* an FFN and as long a product of the processor, begun together */
            ALONE,
            TOGETHER };

struct point {
    enum what what;
    uint32_t type;
    int rows, cols, batch, threads; /* threads: of the processor */
};

struct accel_probe {
    struct probe base;
    struct probe_cpus cpus;
    struct probe_accel_config c;
    struct accel *a;
    struct accel_info info;
    struct point *points;
    int cap;
    uint32_t types[QUANT_LIMIT];
    int n_types;
    char *buf; /* weights, and what the processor sweeps through */
    size_t len, at;
    float *in, *out;
    void *act;           /* of BESIDE_TOKENS, as the processor's kernels want them */
    float *rows_out;     /* of its threads */
    int beside_rows;     /* of BOTH; 0: not chosen yet */
    uint64_t driver_bytes;
};

static struct accel_probe *probe_of(struct probe *base)
{
    return (struct accel_probe *)base;
}

/* ---- one call ---- */

static size_t matrix_bytes(const struct point *p)
{
    return (quant_row_bytes(p->type, (uint64_t)p->cols) * (size_t)p->rows + PAGE - 1) / PAGE * PAGE;
}

static struct accel_matrix next_matrix(struct accel_probe *m, const struct point *p)
{
    size_t bytes = matrix_bytes(p);
    if (m->at + bytes > m->len)
        m->at = 0;
    struct accel_matrix x = { .data = (const uint8_t *)m->buf + m->at, .type = p->type, .n_rows = p->rows, .n_cols = p->cols,
                              .row_stride = quant_row_bytes(p->type, (uint64_t)p->cols) };
    m->at += bytes;
    return x;
}

static int refused(const struct accel_probe *m, const struct point *p, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "measuring '%s': it does not take %d x %d of %s", m->c.name, p->rows, p->cols,
                   quant_traits(p->type)->name);
}

static int queue_call(struct accel_probe *m, const struct point *p, struct err *e)
{
    const struct accel_backend *b = m->a->backend;
    if (p->what == FFN || p->what == OWN || p->what == BOTH) {
        const struct accel_ffn f = { .gate = next_matrix(m, p), .up = next_matrix(m, p), .down = next_matrix(m, p), .turned = 1,
                                     .act = MODEL_ACT_RELU, .in = m->in, .out = m->out, .n_tokens = p->batch };
        if (!b->takes(m->a, &f.gate, 0) || !b->takes(m->a, &f.up, 0) || !b->takes(m->a, &f.down, 1))
            return refused(m, p, e);
        return b->ffn(m->a, &f, 1, e);
    }
    const struct accel_product x = { .m = next_matrix(m, p), .in = m->in, .out = m->out, .n_tokens = p->batch };
    return b->takes(m->a, &x.m, 0) ? b->products(m->a, &x, 1, e) : refused(m, p, e);
}

static int call(struct accel_probe *m, const struct point *p, struct err *e)
{
    int r = queue_call(m, p, e);
    return r < 0 ? r : m->a->backend->wait(m->a, NULL, NULL, e);
}

/* ns of one call. One that is shorter than the sample is warmed up, and its mean taken. */
static int time_calls(struct accel_probe *m, const struct point *p, double seconds, double *ns, struct err *e)
{
    int64_t start = progress_now_ns(), now;
    int n = 0, r = call(m, p, e);
    if (r < 0)
        return r;
    *ns = (double)(progress_now_ns() - start);
    if (*ns >= seconds * 1e9)
        return 0;
    start = progress_now_ns();
    do {
        if ((r = call(m, p, e)) < 0)
            return r;
        n++;
        now = progress_now_ns();
    } while (now - start < (int64_t)(seconds * 1e9));
    *ns = (double)(now - start) / n;
    return 0;
}

/* ---- bandwidth ---- */

struct both {
    struct accel_probe *m;
    const struct point *p;
    int threads; /* of the processor; the accelerator's caller comes behind them */
    double seconds, ns, per_s[POOL_MAX_THREADS]; /* bytes, or rows */
    atomic_int next; /* of a layer's rows, the first that no thread has */
    int failed;
    struct err e;
};

/* The processor's own product of some rows with many tokens: in a part of the weights that its cache holds. */
static void multiply(const struct both *b, int worker, int n_rows)
{
    const struct point *p = b->p;
    enum kernels_act form = kernels_act_form(p->type, 1);
    const char *rows = b->m->buf + b->m->len / (size_t)b->threads / PAGE * PAGE * (size_t)worker;
    float *out = b->m->rows_out + (size_t)worker * BESIDE_ROWS * BESIDE_TOKENS;
    for (int i = 0; i < n_rows; i += BESIDE_ROWS)
        kernels->rows[form][p->type](out, BESIDE_ROWS, rows, quant_row_bytes(p->type, BESIDE_SIZE), BESIDE_ROWS, b->m->act,
                                     kernels_act_bytes(form, BESIDE_SIZE), BESIDE_TOKENS, BESIDE_SIZE);
}

/* Rows of it per second. */
static double multiply_for(const struct both *b, int worker)
{
    int64_t start = progress_now_ns(), now, done = 0;
    do {
        multiply(b, worker, BESIDE_ROWS);
        done += BESIDE_ROWS;
        now = progress_now_ns();
    } while (now - start < (int64_t)(b->seconds * 1e9));
    return (double)done * 1e9 / (double)(now - start);
}

static void run_both(void *ctx, int worker, int n_threads)
{
    struct both *b = ctx;
    (void)n_threads;
    if (worker == b->threads)
        b->failed = time_calls(b->m, b->p, b->seconds, &b->ns, &b->e);
    else
        b->per_s[worker] = b->p->what >= ALONE ? probe_memory_sweep(b->m->buf, b->m->len, worker, b->threads, b->seconds) :
                                                 multiply_for(b, worker);
}

/* As a layer runs: one thread queues an FFN while the others multiply, then helps them, and waits. */
static void share_layer(void *ctx, int worker, int n_threads)
{
    struct both *b = ctx;
    (void)n_threads;
    if (worker == 0)
        b->failed = queue_call(b->m, b->p, &b->e);
    while (atomic_fetch_add(&b->next, BESIDE_ROWS) < b->m->beside_rows)
        multiply(b, worker, BESIDE_ROWS);
}

static int run_layer(struct both *b, struct pool *pool, struct err *e)
{
    atomic_store(&b->next, 0);
    pool_share(pool, share_layer, b);
    if (b->failed == 0)
        b->failed = b->m->a->backend->wait(b->m->a, NULL, NULL, &b->e);
    if (b->failed < 0)
        *e = b->e;
    return b->failed;
}

/* Bytes of weights and of sweeps together, per second. */
static int bandwidth(struct accel_probe *m, const struct point *p, double seconds, double *value, struct err *e)
{
    struct both *b = calloc(1, sizeof *b);
    int cpus[POOL_MAX_THREADS], n;
    if (!b)
        return err_set(e, ERR_NOMEM, "measuring '%s': out of memory", m->c.name);
    *b = (struct both){ .m = m, .p = p, .seconds = seconds };
    b->threads = n = p->what == TOGETHER ? probe_cpus_pick(&m->cpus, -1, p->threads, cpus) : 0;
    cpus[n] = -1;
    int r = probe_threads(n + 1, cpus, run_both, b, e);
    if (r == 0 && (r = b->failed) < 0)
        *e = b->e;
    *value = r < 0 ? 0 : (double)quant_row_bytes(p->type, (uint64_t)p->cols) * p->rows * 1e9 / b->ns;
    for (int i = 0; i < n && r == 0; i++)
        *value += b->per_s[i];
    free(b);
    return r;
}

/* As many tokens' activations as the processor's products take beside the accelerator's. */
static void prepare_acts(struct accel_probe *m, uint32_t type)
{
    enum kernels_act form = kernels_act_form(type, 1);
    for (int t = 0; t < BESIDE_TOKENS; t++)
        kernels_act_prepare((char *)m->act + kernels_act_bytes(form, BESIDE_SIZE) * (size_t)t, form, m->in + (size_t)t * BESIDE_SIZE,
                            BESIDE_SIZE);
}

/* ns of BESIDE_SIZE rows of the processor's threads. */
static double cpu_product(struct both *b, struct pool *pool)
{
    double rate = 0;
    pool_run(pool, run_both, b);
    for (int i = 0; i < b->threads; i++)
        rate += b->per_s[i];
    return rate > 0 ? 1e9 * BESIDE_SIZE / rate : 0;
}

/* As many rows, the same for each thread, as the processor multiplies while an FFN is computed. */
static int choose_rows(struct both *b, double cpu_ns, struct err *e)
{
    struct accel_probe *m = b->m;
    double ffn_ns;
    int step = BESIDE_ROWS * b->threads, r = m->beside_rows ? 0 : time_calls(m, b->p, b->seconds, &ffn_ns, e);
    if (r < 0 || m->beside_rows)
        return r;
    double steps = BESIDE_SIZE * ffn_ns / cpu_ns / step;
    m->beside_rows = step * (steps < 1 ? 1 : steps < 1000 ? (int)steps : 1000);
    return 0;
}

/* ns of the processor's product, or of both together, of the first time's number of rows: the same threads in all rounds, for starting
 * them would take longer than a layer. */
static int products_beside(struct accel_probe *m, const struct point *p, double seconds, double *value, struct err *e)
{
    struct both *b = calloc(1, sizeof *b);
    struct pool *pool = NULL;
    int cpus[POOL_MAX_THREADS], rounds = 0;
    if (!b)
        return err_set(e, ERR_NOMEM, "measuring '%s': out of memory", m->c.name);
    *b = (struct both){ .m = m, .p = p, .seconds = seconds };
    b->threads = probe_cpus_pick(&m->cpus, -1, p->threads, cpus);
    prepare_acts(m, p->type);
    int r = pool_new(b->threads, cpus, &pool, e);
    if (r == 0)
        *value = cpu_product(b, pool);
    if (r == 0 && p->what == BOTH && (r = choose_rows(b, *value, e)) == 0) {
        int64_t start = progress_now_ns(), now = start;
        while (r == 0 && (!rounds || now - start < (int64_t)(seconds * 1e9))) {
            r = run_layer(b, pool, e);
            now = progress_now_ns();
            rounds++;
        }
        *value = (double)(now - start) / rounds;
    }
    pool_free(pool);
    free(b);
    return r;
}

static int sample(struct probe *base, int i, int rep, double *value, struct err *e)
{
    struct accel_probe *m = probe_of(base);
    const struct point *p = &m->points[i];
    (void)rep;
    return p->what >= CPU_PRODUCT && p->what < ALONE ? products_beside(m, p, base->seconds, value, e) :
           p->what >= ALONE ? bandwidth(m, p, base->seconds, value, e) : time_calls(m, p, base->seconds, value, e);
}

/* ---- life ---- */

/* A line of the process's status; 0: there is none. */
static uint64_t resident_kib(const char *field)
{
    char line[256];
    uint64_t v = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && !v && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            v = strtoull(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return v;
}

/* VmHWM is from here on the peak of what follows. Where that is not possible it is that of what was before, too: more, not less. */
static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

static int open_accel(struct accel_probe *m, struct err *e)
{
    const struct accel_config c = { .device = m->c.device, .cache = m->c.cache, .types = m->types, .n_types = m->n_types };
    const struct accel_need need = { .tokens = MOST_TOKENS, .d_model = MOST_ROWS, .neurons = MOST_ROWS,
                                     .inputs = MOST_TOKENS * MOST_ROWS, .outputs = MOST_TOKENS * MOST_ROWS };
    uint64_t before = resident_kib("VmRSS:"), after;
    reset_peak();
    int r = m->c.backend->open(&c, &m->a, e);
    after = resident_kib("VmHWM:");
    m->driver_bytes = after > before ? (after - before) * 1024 : 0;
    if (r < 0 || (r = m->c.backend->add(m->a, m->buf, m->len, e)) < 0 || (r = m->c.backend->allocate(m->a, &need, e)) < 0)
        return r;
    m->c.backend->describe(m->a, &m->info);
    return 0;
}

static int prepare(struct probe *base, struct err *e)
{
    struct accel_probe *m = probe_of(base);
    m->buf = pages_map(m->len);
    if (!m->buf)
        return err_sys(e, ERR_NOMEM, "measuring '%s': %zu bytes for the weights", m->c.name, m->len);
    uint64_t *v = (uint64_t *)(void *)m->buf;
    for (size_t i = 0; i < m->len / sizeof *v; i++)
        v[i] = 0x2020202020202020u | (splitmix_at(i) & 0x0f0f0f0f0f0f0f0fu);
    m->in = malloc(sizeof *m->in * MOST_TOKENS * MOST_ROWS);
    m->out = malloc(sizeof *m->out * MOST_TOKENS * MOST_ROWS);
    m->act = malloc(sizeof(float) * BESIDE_TOKENS * BESIDE_SIZE * 2);
    m->rows_out = malloc(sizeof(float) * BESIDE_ROWS * BESIDE_TOKENS * POOL_MAX_THREADS);
    if (!m->in || !m->out || !m->act || !m->rows_out)
        return err_set(e, ERR_NOMEM, "measuring '%s': out of memory", m->c.name);
    for (int i = 0; i < MOST_TOKENS * MOST_ROWS; i++)
        m->in[i] = (float)(splitmix_at((uint64_t)i) % 2000) / 1000 - 1;
    return open_accel(m, e);
}

static void op_of(const struct point *p, char *out, size_t len)
{
    static const char *const names[] = { [LAUNCH] = "launch", [COPY_IN] = "copy/in", [COPY_OUT] = "copy/out", [PRODUCT] = "matmul",
                                         [FFN] = "ffn", [OWN] = "own", [CPU_PRODUCT] = "cpu", [BOTH] = "both" };
    if (p->what >= PRODUCT)
        hw_op_name(names[p->what], p->type, NULL, out, len);
    else
        snprintf(out, len, "%s", names[p->what]);
}

static int store_point(struct accel_probe *m, struct hwdb_record *to, int i, struct err *e)
{
    const struct probe *base = &m->base;
    const struct point *p = &m->points[i];
    if (p->what >= ALONE) {
        struct hw_memory row = { .pattern = HW_SEQ, .row_bytes = 64 << 10, .threads = p->threads, .bytes_per_s = probe_dist(base, i),
                                 .origin = HW_MEASURED };
        snprintf(row.engines, sizeof row.engines, "%s%s", p->what == TOGETHER ? "cpu+" : "", m->c.name);
        return probe_record(base, i, HWDB_MEMORY, &row, to, e);
    }
    struct hw_accel_point row = { .rows = p->rows, .cols = p->cols, .batch = p->batch, .ns = probe_dist(base, i), .origin = HW_MEASURED };
    if (p->what == BOTH)
        row.rows = m->beside_rows;
    op_of(p, row.op, sizeof row.op);
    return probe_record(base, i, HWDB_ACCELERATOR_POINT, &row, to, e);
}

static int store(struct probe *base, struct hwdb_record *to, struct err *e)
{
    struct accel_probe *m = probe_of(base);
    const struct accel_device *d = &m->info.device;
    struct hw_accel a = { .addressable_bytes = d->memory_bytes, .shares_memory = m->info.zero_copy,
                         .driver_bytes = m->driver_bytes, .origin = HW_MEASURED };
    snprintf(a.engine, sizeof a.engine, "%s", m->c.name);
    snprintf(a.description, sizeof a.description, "%.90s, %.90s, %.60s", d->name, d->platform, d->driver);
    for (int i = 0; i < base->n_points; i++)
        if (m->points[i].what == LAUNCH)
            a.launch_ns = probe_dist(base, i).p50;
    int r = hwdb_record_add(to, HWDB_ACCELERATOR, &a, NULL, 0, e);
    for (int i = 0; i < base->n_points && r == 0; i++)
        r = store_point(m, to, i, e);
    return r;
}

static void release(struct probe *base)
{
    struct accel_probe *m = probe_of(base);
    int busy = m->a && m->c.backend->close(m->a);
    m->a = NULL;
    if (m->buf && !busy)
        munmap(m->buf, m->len);
    m->buf = NULL;
    free(m->in);
    free(m->out);
    free(m->act);
    free(m->rows_out);
    m->in = m->out = m->rows_out = NULL;
    m->act = NULL;
}

static void done(struct probe *base)
{
    struct accel_probe *m = probe_of(base);
    free(m->points);
    free(m);
}

/* ---- the grid ---- */

static void add(struct accel_probe *m, struct point p)
{
    if (m->points && m->base.n_points < m->cap && (p.what == FFN || p.what == OWN || p.what == BOTH ? 3 : 1) * matrix_bytes(&p) <= m->len)
        m->points[m->base.n_points++] = p;
}

/* Many tokens: of a product as many as a call has, of an FFN those of a prompt. */
static int is_for(int what, int tokens)
{
    return tokens == BESIDE_TOKENS || (tokens == SCHEDULE_ENGINE_TOKENS) == (what == PRODUCT);
}

static void add_type(struct accel_probe *m, uint32_t type, int quick)
{
    static const int full_sizes[] = { 256, 1024, 4096 }, quick_sizes[] = { 256, 2048 }, full_tokens[] = { 1, 4, 32, 64, 128, 256 },
                     quick_tokens[] = { 1, 8, 64, 128 };
    const int *sizes = quick ? quick_sizes : full_sizes, *tokens = quick ? quick_tokens : full_tokens, n = quick ? 2 : 3;
    for (int what = PRODUCT; what <= FFN; what++)
        for (int b = 0; b < (quick ? 4 : 6); b++)
            for (int r = 0; r < n; r++)
                for (int c = 0; c < n; c++)
                    if (tokens[b] <= FEW_TOKENS || (sizes[r] <= MANY_ROWS && sizes[c] <= MANY_ROWS && is_for(what, tokens[b])))
                        add(m, (struct point){ .what = (enum what)what, .type = type, .rows = sizes[r], .cols = sizes[c],
                                               .batch = tokens[b] });
}

/* What the arithmetic of one costs that of the other. */
static void add_beside(struct accel_probe *m, uint32_t type)
{
    struct point p = { .type = type, .rows = BESIDE_SIZE, .cols = BESIDE_SIZE, .batch = BESIDE_TOKENS, .threads = m->cpus.n };
    for (int what = OWN; what <= BOTH; what++) {
        p.what = (enum what)what;
        add(m, p);
    }
}

static void add_bandwidth(struct accel_probe *m, uint32_t type, int quick)
{
    struct point p = { .what = ALONE, .type = type, .cols = MOST_ROWS, .batch = 1 };
    size_t rows = SWEEP_BYTES / quant_row_bytes(type, MOST_ROWS);
    p.rows = rows < SWEEP_ROWS ? (int)rows : SWEEP_ROWS;
    add(m, p);
    p.what = TOGETHER;
    for (p.threads = 1;; p.threads = 2 * p.threads < m->cpus.n && !quick ? 2 * p.threads : m->cpus.n) {
        add(m, p);
        if (p.threads == m->cpus.n)
            break;
    }
}

/* 256 MiB (quick: 64), at most an eighth of the machine's memory. */
static size_t buffer_bytes(int quick)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    size_t len = (quick ? 64u : 256u) << 20, most = pages > 0 ? (size_t)pages / 8 * pages_small_size() : len;
    while (len > most && len > 32u << 20)
        len /= 2;
    return len;
}

int probe_accel_new(const struct probe_config *config, struct probe **out, struct err *e)
{
    static const uint32_t types[] = { QUANT_Q8_0, QUANT_F16, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q6_K, /* quick: these */
                                      QUANT_F32, QUANT_BF16, QUANT_MXFP4 };
    int quick = config->quick;
    struct accel_probe *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "measuring an accelerator: out of memory");
    m->c = *config->accel;
    m->cpus = *config->cpus;
    m->n_types = config->n_types ? config->n_types : quick ? 5 : 8;
    memcpy(m->types, config->n_types ? config->types : types, (size_t)m->n_types * sizeof *types);
    m->len = buffer_bytes(quick);
    m->cap = m->n_types * 2 * 45 + 3 + 3 + 1 + POOL_MAX_THREADS;
    m->points = calloc((size_t)m->cap, sizeof *m->points);
    if (!m->points) {
        free(m);
        return err_set(e, ERR_NOMEM, "measuring an accelerator: out of memory");
    }
    add(m, (struct point){ .what = LAUNCH, .type = QUANT_F32, .rows = 1, .cols = 32, .batch = 1 });
    add(m, (struct point){ .what = COPY_IN, .type = QUANT_F32, .rows = 1, .cols = MOST_ROWS, .batch = COPY_TOKENS });
    add(m, (struct point){ .what = COPY_OUT, .type = QUANT_F32, .rows = MOST_ROWS, .cols = 32, .batch = COPY_TOKENS });
    for (int i = 0; i < m->n_types; i++)
        add_type(m, m->types[i], quick);
    add_beside(m, m->types[0]);
    add_bandwidth(m, m->types[0], quick);
    double point = config->seconds_per_point > 0 ? config->seconds_per_point : quick ? 0.03
                                                                                     : 0.1;
    int n = m->base.n_points, reps = quick ? QUICK_REPS : REPS;
    m->base = (struct probe){ .table = "engine", .n_points = n, .reps = reps, .direct_verified = -1, .memory_bytes = m->len,
                              .seconds = point / reps, .kernel_helps = 1, .prepare = prepare, .sample = sample, .store = store,
                              .release = release, .done = done };
    *out = &m->base;
    return 0;
}
