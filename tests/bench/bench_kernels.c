/* Speed of the row products and accumulations on data far larger than the caches, as a fraction of
 * what loops that only load the same bytes reach in the same run: in order, and row by row in random
 * order. Short passes are interleaved and the best of each counts, so that bound and kernel meet the
 * same machine and a busy moment spoils neither.
 *
 * --table: for each tier of this machine and each type, products of many tokens as a fraction of the tier's int8 multiply-adds
 * alone (enum peak), and of one token with rows in order as a fraction of loads alone; one thread. */
#include "common/base/cpu.h"
#include "common/base/inline.h"
#include "common/kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_THREADS = 64,
       MAX_TOKENS = 512,
       CHUNK = 256,
       TABLE_TOKENS = 512,
       TABLE_ROWS = 64,
       WINDOWS = 6 /* a pass reads one of them: it finds nothing of the last pass in a cache */ };

static const char usage[] =
    "usage: bench_kernels [--cpu TIER] [--threads N,N..] [--cols N] [--mib N] [--rounds N] [--tokens N] [--type T]\n"
    "                     [--output text|json]\n"
    "       bench_kernels --table [--cpu TIER] [--cols N] [--mib N] [--rounds N] [--type T] [--output text|json]\n"
    "  Prints GB/s of weights read, and the share of the plain read bandwidth measured beside it; as JSON, one object\n"
    "  per line: tier, type, act, kernel, threads, tokens, row_bytes, gb_per_s, bound_gb_per_s.\n"
    "  --table: each tier (of --cpu, or all), with int8 activations: billions of multiply-adds a second with 512 tokens, beside what\n"
    "  the tier's instructions for them reach by themselves, and GB/s with one token beside plain reads; as JSON: tier, type,\n"
    "  gmac_per_s, peak_gmac_per_s, wide_gmac_per_s, gb_per_s, bound_gb_per_s.\n";

static int as_json;

enum pass { READ_SEQ,
            READ_SEQ_AHEAD,
            READ_AT_1,
            READ_AT_2,
            READ_AT_4,
            ROWS,
            ROWS_AT,
            AXPY_AT,
            PASSES };
static const char *const pass_names[PASSES] = { [ROWS] = "rows", [ROWS_AT] = "rows_at", [AXPY_AT] = "axpy" };

struct job {
    enum pass pass;
    uint32_t type;
    enum kernels_act form;
    int n_rows, n_cols, n_tokens, window;
    size_t row_bytes;
    const uint8_t *base;
    const void **at; /* the same rows, shuffled within each window */
    const uint8_t *x;
    size_t x_stride;
    float *out; /* n_tokens x max(CHUNK, n_cols) */
    float *h;
    uint64_t sink;
};

/* The bound: loads and nothing else, 64 bytes at a time where the machine has such registers.
 * ahead: NULL, or what to prefetch. */
typedef uint64_t vec __attribute__((vector_size(64), aligned(1), may_alias));

INLINE uint64_t read_loop(const uint8_t *p, size_t n, const uint8_t *ahead)
{
    vec a = { 0 }, b = { 0 };
    for (size_t i = 0; i + 128 <= n; i += 128) {
        if (ahead) {
            __builtin_prefetch(ahead + i);
            __builtin_prefetch(ahead + i + 64);
        }
        a += *(const vec *)(p + i);
        b += *(const vec *)(p + i + 64);
    }
    a ^= b;
    return a[0] ^ a[1] ^ a[7];
}

static uint64_t read_plain(const uint8_t *p, size_t n, const uint8_t *ahead)
{
    return read_loop(p, n, ahead);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static uint64_t read_avx512(const uint8_t *p, size_t n, const uint8_t *ahead)
{
    return read_loop(p, n, ahead);
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, size_t n, const uint8_t *ahead)
{
    return read_loop(p, n, ahead);
}
#endif

static uint64_t (*read_row)(const uint8_t *p, size_t n, const uint8_t *ahead) = read_plain;

static void run(struct job *j)
{
    const int n = j->n_rows / WINDOWS;
    const uint8_t *base = j->base + (size_t)j->window * (size_t)n * j->row_bytes;
    const void **at = j->at + (size_t)j->window * (size_t)n;
    size_t wide = (size_t)(j->n_cols > CHUNK ? j->n_cols : CHUNK);
    switch (j->pass) {
    case READ_SEQ:
    case READ_SEQ_AHEAD:
        j->sink += read_row(base, (size_t)n * j->row_bytes, j->pass == READ_SEQ ? NULL : base + 2048);
        break;
    case READ_AT_1:
    case READ_AT_2:
    case READ_AT_4:
        for (int r = 0, d = 1 << (j->pass - READ_AT_1); r < n; r++)
            j->sink += read_row(at[r], j->row_bytes, at[r + d < n ? r + d : r]);
        break;
    case ROWS:
        for (int r = 0; r < n; r += CHUNK)
            kernels->rows[j->form][j->type](j->out, wide, base + (size_t)r * j->row_bytes, j->row_bytes,
                                            n - r < CHUNK ? n - r : CHUNK, j->x, j->x_stride, j->n_tokens, j->n_cols);
        break;
    case ROWS_AT:
        for (int r = 0; r < n; r += CHUNK)
            kernels->rows_at[j->form][j->type](j->out, wide, at + r, n - r < CHUNK ? n - r : CHUNK, j->x,
                                               j->x_stride, j->n_tokens, j->n_cols);
        break;
    case AXPY_AT:
        memset(j->out, 0, (size_t)j->n_tokens * wide * sizeof *j->out);
        for (int r = 0; r < n; r += CHUNK)
            kernels->axpy[j->type](j->out, wide, at + r, j->h, CHUNK, n - r < CHUNK ? n - r : CHUNK, j->n_tokens,
                                   0, j->n_cols);
        break;
    case PASSES:
        break;
    }
}

/* ---- multiply-adds by themselves ---- */

/* What a product of int8 cannot be faster than: instructions that do not wait for each other and load nothing. AVX2 needs two of them for
 * sums of 32 bits, vpmaddubsw and vpmaddwd (PEAK_WIDE: one after the other); where several vpmaddubsw are added in 16 bits before
 * that, a product comes nearer to vpmaddubsw alone (PEAK_MUL). With vpdpbusd both are the same. */
enum peak { PEAK_MUL,
            PEAK_WIDE,
            PEAKS };
enum { PEAK_LOOPS = 10000,
       PEAK_STEPS = 12 /* products of a loop: as many as hide the latency of an addition */ };

#if defined(__x86_64__)
#define TWELVE(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define CHANGED   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"
#define MUL(r)    "vpmaddubsw %%ymm0, %%ymm1, %%ymm" #r "\n\t"
#define WIDE(r)   MUL(r) "vpmaddwd %%ymm0, %%ymm" #r ", %%ymm" #r "\n\t"
#define DOT256(r) "%{vex%} vpdpbusd %%ymm0, %%ymm1, %%ymm" #r "\n\t"
#define DOT512(r) "vpdpbusd %%zmm0, %%zmm1, %%zmm" #r "\n\t"
#define PEAK(name, isa, X)                                            \
    __attribute__((target(isa))) static void peak_##name(void)        \
    {                                                                 \
        for (int i = 0; i < PEAK_LOOPS; i++)                          \
            __asm__ volatile(TWELVE(X) : : : CHANGED);                \
    }
PEAK(avx2, "avx2", MUL)
PEAK(avx2_wide, "avx2", WIDE)
PEAK(avxvnni, "avxvnni", DOT256)
PEAK(avx512, "avx512f", DOT512)
#endif

static const struct {
    void (*run[PEAKS])(void);
    double macs; /* of a product */
} peaks[CPU_TIERS] = {
#if defined(__x86_64__)
    [CPU_AVX2] = { { peak_avx2, peak_avx2_wide }, 32 },
    [CPU_AVXVNNI] = { { peak_avxvnni, peak_avxvnni }, 32 },
    [CPU_AVX512] = { { peak_avx512, peak_avx512 }, 64 },
#else
    [CPU_SCALAR] = { .macs = 0 },
#endif
};

/* ---- threads ---- */

static struct job jobs[MAX_THREADS];
static pthread_barrier_t gate;
static int n_threads;

static void *worker(void *arg)
{
    struct job *j = arg;
    for (;;) {
        pthread_barrier_wait(&gate);
        if (j->pass == PASSES)
            return NULL;
        run(j);
        pthread_barrier_wait(&gate);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of this thread alone: it may have to share its processor. */
static double now_computing(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timed(enum pass pass)
{
    double bytes = 0;
    for (int i = 0; i < n_threads; i++) {
        jobs[i].pass = pass;
        jobs[i].window = (jobs[i].window + 1) % WINDOWS;
        bytes += (double)(jobs[i].n_rows / WINDOWS) * (double)jobs[i].row_bytes;
    }
    pthread_barrier_wait(&gate);
    double t = n_threads == 1 ? now_computing() : now();
    run(&jobs[0]);
    pthread_barrier_wait(&gate);
    return bytes / ((n_threads == 1 ? now_computing() : now()) - t) * 1e-9;
}

/* ---- set-up ---- */

static void *need(void *p)
{
    if (!p || p == MAP_FAILED) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(1);
    }
    return p;
}

static uint64_t seed = 88172645463325252u;

static uint64_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void fill(uint8_t *w, size_t bytes, uint32_t type, int n_cols, size_t row_bytes)
{
    const struct quant_traits *q = quant_traits(type);
    float *x = need(malloc((size_t)n_cols * sizeof *x));
    for (int i = 0; i < n_cols; i++)
        x[i] = (float)(int64_t)(rnd() >> 40) / (1 << 24) - 0.5f;
    if (q->quant)
        q->quant(w, x, (size_t)n_cols);
    for (size_t i = 0; i < row_bytes && !q->quant; i++) { /* any bytes but for the scale, if that is a half */
        const size_t at = i % (size_t)q->block_bytes;
        w[i] = at == q->half_at[0] ? 0 : at == q->half_at[0] + 1u ? 0x20 : type == QUANT_IQ1_M ? 0x22 : (uint8_t)rnd();
    }
    for (size_t o = row_bytes; o + row_bytes <= bytes; o += row_bytes)
        memcpy(w + o, w, row_bytes);
    free(x);
}

static void share_out(uint8_t *w, size_t bytes, uint32_t type, int n_cols, int n_tokens)
{
    size_t row_bytes = quant_row_bytes(type, (uint64_t)n_cols);
    int rows = (int)(bytes / row_bytes / (size_t)n_threads);
    for (int i = 0; i < n_threads; i++) {
        struct job *j = &jobs[i];
        j->type = type;
        j->n_rows = rows;
        j->n_cols = n_cols;
        j->n_tokens = n_tokens;
        j->row_bytes = row_bytes;
        j->base = w + (size_t)i * (size_t)rows * row_bytes;
        free(j->at);
        j->at = need(malloc((size_t)rows * sizeof *j->at));
        for (int r = 0; r < rows; r++)
            j->at[r] = j->base + (size_t)r * row_bytes;
        int n = rows / WINDOWS;
        for (int r = WINDOWS * n - 1; r > 0; r--) {
            int first = r / n * n, k = first + (int)(rnd() % (uint64_t)(r - first + 1));
            const void *t = j->at[r];
            j->at[r] = j->at[k];
            j->at[k] = t;
        }
    }
}

static void measure(int rounds)
{
    double best[PASSES] = { 0 };
    const struct job *j = &jobs[0];
    for (int k = 0; k < rounds; k++)
        for (int p = 0; p < PASSES; p++) {
            if (p == AXPY_AT && j->form != KERNELS_ACT_F32)
                continue;
            best[p] = fmax(best[p], timed(p));
        }
    double in_order = fmax(best[READ_SEQ], best[READ_SEQ_AHEAD]);
    double scattered = fmax(best[READ_AT_1], fmax(best[READ_AT_2], best[READ_AT_4]));
    for (int p = ROWS; p < PASSES; p++) {
        if (best[p] == 0)
            continue;
        double bound = p == ROWS ? in_order : scattered;
        const char *type = quant_traits(j->type)->name, *act = p == AXPY_AT              ? "-"
                                                               : j->form == KERNELS_ACT_Q8 ? "q8"
                                                                                           : "f32";
        if (as_json)
            printf("{\"tier\":\"%s\",\"type\":\"%s\",\"act\":\"%s\",\"kernel\":\"%s\",\"threads\":%d,"
                   "\"tokens\":%d,\"row_bytes\":%zu,\"gb_per_s\":%.4g,\"bound_gb_per_s\":%.4g}\n",
                   kernels->name, type, act, pass_names[p], n_threads, j->n_tokens, j->row_bytes, best[p], bound);
        else
            printf("%-8s %-5s %-4s %-8s %7d %7d %8.1f %8.1f %6.0f %%\n", kernels->name, type, act, pass_names[p],
                   n_threads, j->n_tokens, best[p], bound, 100 * best[p] / bound);
    }
    fflush(stdout);
}

static void bench_type(uint8_t *w, size_t bytes, uint32_t type, int n_cols, int n_tokens, int rounds)
{
    size_t wide = (size_t)(n_cols > CHUNK ? n_cols : CHUNK);
    float *x = need(malloc((size_t)n_cols * sizeof *x));
    fill(w, bytes, type, n_cols, quant_row_bytes(type, (uint64_t)n_cols));
    for (int i = 0; i < n_cols; i++)
        x[i] = (float)(int64_t)(rnd() >> 40) / (1 << 24) - 0.5f;
    share_out(w, bytes, type, n_cols, n_tokens);
    for (int form = 0; form < KERNELS_ACT_FORMS; form++) {
        if (!kernels->rows[form][type])
            continue;
        size_t stride = kernels_act_bytes(form, n_cols);
        for (int i = 0; i < n_threads; i++) {
            struct job *j = &jobs[i];
            uint8_t *acts = need(malloc(stride * (size_t)n_tokens));
            for (int t = 0; t < n_tokens; t++)
                kernels_act_prepare(acts + (size_t)t * stride, form, x, n_cols);
            j->form = form;
            j->x = acts;
            j->x_stride = stride;
            j->out = need(calloc((size_t)n_tokens * wide, sizeof *j->out));
            j->h = need(malloc((size_t)n_tokens * CHUNK * sizeof *j->h));
            for (int k = 0; k < n_tokens * CHUNK; k++)
                j->h[k] = 0.001f * (float)(k % 7 + 1);
        }
        measure(rounds);
        for (int i = 0; i < n_threads; i++) {
            free((void *)(uintptr_t)jobs[i].x);
            free(jobs[i].out);
            free(jobs[i].h);
        }
    }
    free(x);
}

static const uint32_t all[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_F16,  QUANT_BF16, QUANT_F32,  QUANT_Q4_K,   QUANT_Q5_K,   QUANT_Q6_K,
                                QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q2_K, QUANT_Q3_K, QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_MXFP4,
                                QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS, QUANT_IQ3_S,
                                QUANT_IQ1_S, QUANT_IQ1_M, QUANT_PTQ1_0, QUANT_Q1_0, QUANT_Q2_0, QUANT_Q2_0_128 };
enum { N_TYPES = sizeof all / sizeof *all };

static int is_asked(uint32_t type, const char *types, int n_cols)
{
    return types ? (int)type == quant_by_name(types) : quant_row_bytes(type, (uint64_t)n_cols) > 0;
}

static void bench_threads(int threads, uint8_t *w, size_t bytes, const char *types, int n_cols, int n_tokens, int rounds)
{
    pthread_t id[MAX_THREADS];
    n_threads = threads;
    pthread_barrier_init(&gate, NULL, (unsigned)threads);
    for (int i = 1; i < threads; i++)
        if (pthread_create(&id[i], NULL, worker, &jobs[i])) {
            fprintf(stderr, "bench_kernels: cannot start a thread\n");
            exit(1);
        }
    for (size_t i = 0; i < N_TYPES; i++)
        if (is_asked(all[i], types, n_cols))
            bench_type(w, bytes, all[i], n_cols, n_tokens, rounds);
    jobs[0].pass = PASSES;
    for (int i = 1; i < threads; i++)
        jobs[i].pass = PASSES;
    pthread_barrier_wait(&gate);
    for (int i = 1; i < threads; i++)
        pthread_join(id[i], NULL);
    pthread_barrier_destroy(&gate);
}

/* ---- the table ---- */

static double seconds_of(void (*f)(void))
{
    const double t = now_computing();
    f();
    return now_computing() - t;
}

/* The first rows' products with TABLE_TOKENS tokens, which stay in a cache. */
static double seconds_of_many(struct job *j)
{
    const double t = now_computing();
    kernels->rows[j->form][j->type](j->out, CHUNK, j->base, j->row_bytes, TABLE_ROWS, j->x, j->x_stride, TABLE_TOKENS, j->n_cols);
    return now_computing() - t;
}

static void table_row(enum cpu_tier tier, uint8_t *w, size_t bytes, uint32_t type, int n_cols, int rounds)
{
    double many = INFINITY, peak[PEAKS] = { INFINITY, INFINITY }, one = 0, loads = 0;
    struct job *j = &jobs[0];
    const enum kernels_act form = kernels_act_form(type, 1);
    const size_t stride = kernels_act_bytes(form, n_cols);
    float *x = need(malloc((size_t)n_cols * sizeof *x));
    uint8_t *acts = need(malloc(stride * TABLE_TOKENS));
    share_out(w, bytes, type, n_cols, 1);
    for (int t = 0; t < TABLE_TOKENS; t++) {
        for (int i = 0; i < n_cols; i++)
            x[i] = (float)(int64_t)(rnd() >> 40) / (1 << 24) - 0.5f;
        kernels_act_prepare(acts + (size_t)t * stride, form, x, n_cols);
    }
    j->form = form;
    j->x = acts;
    j->x_stride = stride;
    j->out = need(calloc((size_t)TABLE_TOKENS * (size_t)(n_cols > CHUNK ? n_cols : CHUNK), sizeof *j->out));
    for (int k = 0; k < rounds; k++) {
        loads = fmax(loads, fmax(timed(READ_SEQ), timed(READ_SEQ_AHEAD)));
        one = fmax(one, timed(ROWS));
        for (int p = 0; p < PEAKS && peaks[tier].macs > 0; p++)
            peak[p] = fmin(peak[p], seconds_of(peaks[tier].run[p]));
        if (form == KERNELS_ACT_Q8 && peaks[tier].macs > 0)
            many = fmin(many, seconds_of_many(j));
    }
    const double mul = 1e-9 * PEAK_LOOPS * PEAK_STEPS * peaks[tier].macs;
    const double rate = 1e-9 * TABLE_ROWS * n_cols * TABLE_TOKENS / many, of_mul = mul / peak[PEAK_MUL], of_wide = mul / peak[PEAK_WIDE];
    if (as_json)
        printf("{\"tier\":\"%s\",\"type\":\"%s\",\"gmac_per_s\":%.4g,\"peak_gmac_per_s\":%.4g,\"wide_gmac_per_s\":%.4g,"
               "\"gb_per_s\":%.4g,\"bound_gb_per_s\":%.4g}\n",
               cpu_tier_name(tier), quant_traits(type)->name, rate, of_mul, of_wide, one, loads);
    else if (isfinite(many))
        printf("%-8s %-7s %8.1f %7.0f %% %6.0f %% %8.1f %6.0f %%\n", cpu_tier_name(tier), quant_traits(type)->name, rate,
               100 * rate / of_mul, 100 * rate / of_wide, one, 100 * one / loads);
    else
        printf("%-8s %-7s        -         -        - %8.1f %6.0f %%\n", cpu_tier_name(tier), quant_traits(type)->name, one,
               100 * one / loads);
    fflush(stdout);
    free(acts);
    free(x);
    free(j->out);
}

static void table(unsigned mask, int only, uint8_t *w, size_t bytes, const char *types, int n_cols, int rounds)
{
    n_threads = 1;
    pthread_barrier_init(&gate, NULL, 1);
    if (!as_json)
        printf("                   512 tokens: G multiply-adds/s         one token, in order\n"
               "tier     type    products  of mul  of wide     GB/s of loads\n");
    for (size_t i = 0; i < N_TYPES; i++) {
        if (!is_asked(all[i], types, n_cols))
            continue;
        fill(w, bytes, all[i], n_cols, quant_row_bytes(all[i], (uint64_t)n_cols));
        for (int tier = 0; tier < CPU_TIERS; tier++)
            if (mask & 1u << tier && (!only || mask >> tier == 1)) {
                kernels_init(mask & ((2u << tier) - 1));
                table_row((enum cpu_tier)tier, w, bytes, all[i], n_cols, rounds);
            }
    }
    pthread_barrier_destroy(&gate);
}

int main(int argc, char **argv)
{
    const char *tier = "auto", *types = NULL;
    char threads[64] = "1,2";
    int n_cols = 4096, mib = 480, rounds = 30, n_tokens = 1;
    int is_table = 0;
    for (int i = 1; i + 1 < argc + 1; i += 2) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--table"))
            i--, is_table = 1;
        else if (v && !strcmp(argv[i], "--cpu"))
            tier = v;
        else if (v && !strcmp(argv[i], "--type"))
            types = v;
        else if (v && !strcmp(argv[i], "--threads"))
            snprintf(threads, sizeof threads, "%s", v);
        else if (v && !strcmp(argv[i], "--cols"))
            n_cols = atoi(v);
        else if (v && !strcmp(argv[i], "--mib"))
            mib = atoi(v);
        else if (v && !strcmp(argv[i], "--rounds"))
            rounds = atoi(v);
        else if (v && !strcmp(argv[i], "--tokens"))
            n_tokens = atoi(v);
        else if (v && !strcmp(argv[i], "--output") && (!strcmp(v, "json") || !strcmp(v, "text")))
            as_json = !strcmp(v, "json");
        else {
            fputs(usage, stderr);
            return 2;
        }
    }
    struct err e;
    unsigned mask;
    if (cpu_parse(tier, &mask, &e) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", e.msg);
        return 2;
    }
    if (n_cols < 32 || n_cols % 32 || mib < WINDOWS || rounds < 1 || n_tokens < 1 || n_tokens > MAX_TOKENS ||
        (types && (quant_by_name(types) < 0 || !quant_row_bytes((uint32_t)quant_by_name(types), (uint64_t)n_cols)))) {
        fputs(usage, stderr);
        return 2;
    }
    kernels_init(mask);
#if defined(__x86_64__)
    unsigned have = cpu_detect();
    read_row = have & 1u << CPU_AVX512 ? read_avx512 : have & 1u << CPU_AVX2 ? read_avx2
                                                                             : read_plain;
#endif
    char cpu[96];
    cpu_model_name(cpu, sizeof cpu);
    size_t bytes = (size_t)mib << 20;
    uint8_t *w = need(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(w, bytes, MADV_HUGEPAGE);
    if (is_table && bytes / quant_row_bytes(QUANT_F32, (uint64_t)n_cols) < TABLE_ROWS) {
        fprintf(stderr, "bench_kernels: --mib %d: %d rows of %d columns take more\n", mib, TABLE_ROWS, n_cols);
        return 2;
    }
    if (is_table) {
        if (!as_json)
            printf("# %s, %d columns, %d MiB, best of %d rounds, kernels and bounds in turns\n", cpu, n_cols, mib, rounds);
        table(mask, strcmp(tier, "auto") != 0, w, bytes, types, n_cols, rounds);
        return 0;
    }
    if (!as_json)
        printf("# %s, %d columns, %d MiB, best of %d rounds; bound: the best of several loops that only load\n"
               "# the same bytes, in order (rows) or row by row in random order (rows_at, axpy)\n"
               "tier     type  act  kernel   threads  tokens     GB/s    bound  share\n",
               cpu, n_cols, mib, rounds);
    for (char *s = threads; *s;) {
        int n = (int)strtol(s, &s, 10);
        if (n < 1 || n > MAX_THREADS)
            break;
        bench_threads(n, w, bytes, types, n_cols, n_tokens, rounds);
        s += *s == ',';
    }
    return 0;
}
