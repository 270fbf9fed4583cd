/* Speed of one token's attention over a long KV cache, for each type of it, as a fraction of what loops that only load the same bytes
 * reach in the same run. Short passes are in turns, each over a layer that the last ones have not left in a cache, and the best of each
 * counts. One thread; rows of a KV head lie together, as the runtime has them. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const char usage[] = "usage: bench_attention [--cpu TIER] [--positions N] [--heads N] [--kv-heads N] [--head-dim N] [--layers N]\n"
                            "                       [--rounds N] [--type T]\n";

typedef uint64_t vec __attribute__((vector_size(64), aligned(1), may_alias));

static uint64_t sink;

static inline __attribute__((always_inline)) void loads_of(const uint8_t *p, size_t n)
{
    vec a = { 0 }, b = { 0 };
    for (size_t i = 0; i + 128 <= n; i += 128) {
        a += *(const vec *)(p + i);
        b += *(const vec *)(p + i + 64);
    }
    a ^= b;
    for (int i = 0; i < 8; i++)
        sink += a[i];
}

static __attribute__((noinline)) void loads(const uint8_t *p, size_t n)
{
    loads_of(p, n);
}

#if defined(__x86_64__)
static __attribute__((noinline, target("avx512f"))) void loads_wide(const uint8_t *p, size_t n)
{
    loads_of(p, n);
}
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("bench_attention");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static struct nn_attn a = { .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .scale = 0.1f };
static int positions = 16384, layers = 6, rounds = 24;

static void bench(uint32_t type)
{
    const size_t dim = (size_t)a.head_dim, row = quant_row_bytes(type, dim), plane = row * (size_t)positions * (size_t)a.n_kv_heads;
    uint8_t *kv = memory(2 * plane * (size_t)layers);
    float *q = memory((size_t)a.n_heads * dim * 2 * sizeof *q), *out = q + (size_t)a.n_heads * dim,
          *scores = memory(NN_ATTN_HEADS * a.scores_stride * sizeof *scores), x[1024];
    double best[3] = { 1e9, 1e9, 1e9 };
    uint32_t s = 1;
    for (int i = 0; i < 1024; i++)
        x[i] = (float)((s = s * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
    for (int i = 0; i < a.n_heads * a.head_dim; i++)
        q[i] = x[i % 1024];
    for (size_t i = 0; i < 2 * plane * (size_t)layers / row; i++)
        quant_traits(type)->quant(kv + i * row, x + i % (1024 - dim), dim);
    a.type = type;
    a.kv_stride = dim;
    a.kv_head = dim * (size_t)positions;
    for (int i = 0; i < rounds; i++)
        for (int pass = 0; pass < 3; pass++) {
            const uint8_t *k = kv + 2 * plane * (size_t)((3 * i + pass) % layers);
            const double begin = now();
            if (pass == 0)
                nn_attention(out, q, k, k + plane, positions, 0, a.n_heads, &a, scores);
#if defined(__x86_64__)
            else if (pass == 2 && cpu_detect() & 1u << CPU_AVX512)
                loads_wide(k, 2 * plane);
#endif
            else
                loads(k, 2 * plane);
            const double seconds = now() - begin;
            best[pass] = seconds < best[pass] ? seconds : best[pass];
        }
    const double bound = best[1] < best[2] ? best[1] : best[2], gb = 2e-9 * (double)plane;
    printf("%-8s %-5s %9d %8.2f %8.2f %6.0f %%\n", kernels->name, quant_traits(type)->name, positions, gb / best[0], gb / bound,
           100 * bound / best[0]);
    munmap(kv, 2 * plane * (size_t)layers);
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = { QUANT_F16, QUANT_Q8_0, QUANT_Q4_0 };
    const char *tier = "auto", *only = NULL;
    const struct { const char *name; int *to; } options[] = { { "--positions", &positions }, { "--heads", &a.n_heads },
                                                              { "--kv-heads", &a.n_kv_heads }, { "--head-dim", &a.head_dim },
                                                              { "--layers", &layers }, { "--rounds", &rounds } };
    const int n = sizeof options / sizeof *options;
    struct err e;
    unsigned mask;
    for (int i = 1, k = 0; i < argc; i += 2) {
        for (k = 0; k < n && strcmp(argv[i], options[k].name) != 0; k++)
            ;
        if (i + 1 < argc && k < n && atoi(argv[i + 1]) > 0)
            *options[k].to = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--type"))
            only = argv[i + 1];
        else if (i + 1 < argc && !strcmp(argv[i], "--cpu"))
            tier = argv[i + 1];
        else
            return fputs(usage, stderr), 2;
    }
    if (a.n_heads % a.n_kv_heads || a.head_dim % 32 || a.head_dim > 512 || a.n_heads > 1024 || positions > 1 << 20 || layers > 64)
        return fputs(usage, stderr), 2;
    if (cpu_parse(tier, &mask, &e) < 0)
        return fprintf(stderr, "bench_attention: %s\n", e.msg), 2;
    kernels_init(mask);
    a.scores_stride = (size_t)(positions + 15) / 16 * 16;
    printf("# %d heads of %d, %d KV heads, best of %d rounds, one thread, processor time; bound: loads of the same bytes\n"
           "tier     type  positions     GB/s    bound  share\n", a.n_heads, a.head_dim, a.n_kv_heads, rounds);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!only || (uint32_t)quant_by_name(only) == types[i])
            bench(types[i]);
    return 0;
}
