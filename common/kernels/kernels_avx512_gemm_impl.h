#ifndef COMMON_KERNELS_KERNELS_AVX512_GEMM_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX512_GEMM_IMPL_H

/* AVX-512 with VNNI: the primitives of kernels_gemm_impl.h. */
#if defined(__AVX512VNNI__)

#include "common/kernels/kernels_avx512_impl.h"
#include "common/kernels/kernels_k_impl.h"
#include "common/kernels/kernels_x86_gemm_impl.h"

/* Sixteen bytes at `at` of each of sixteen rows: t[k] has four of them, from 4 k on, of every row. */
PRIM void turn16(__m512i t[4], const uint8_t *const row[16], size_t at)
{
    __m512i z[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(row[i] + at)));
        a = _mm512_inserti32x4(a, _mm_loadu_si128((const void *)(row[i + 4] + at)), 1);
        a = _mm512_inserti32x4(a, _mm_loadu_si128((const void *)(row[i + 8] + at)), 2);
        z[i] = _mm512_inserti32x4(a, _mm_loadu_si128((const void *)(row[i + 12] + at)), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    t[0] = _mm512_unpacklo_epi64(a, c);
    t[1] = _mm512_unpackhi_epi64(a, c);
    t[2] = _mm512_unpacklo_epi64(b, d);
    t[3] = _mm512_unpackhi_epi64(b, d);
}

/* Four dwords of each of sixteen rows, `stride` bytes apart: at to + k * to_stride, dword k of every row. */
static __attribute__((noinline)) void gemm_transpose(uint8_t *to, size_t to_stride, const uint8_t *u, size_t stride)
{
    const uint8_t *row[16];
    __m512i t[4];
    UNROLL
    for (size_t i = 0; i < 16; i++)
        row[i] = u + stride * i;
    turn16(t, row, 0);
    UNROLL
    for (size_t k = 0; k < 4; k++)
        _mm512_storeu_si512(to + k * to_stride, t[k]);
}

PRIM void gemm_store(float *out, float acc[4][GEMM_R], int live)
{
    for (int v = 0; 16 * v < live; v++) {
        VF s = vf_add(vf_add(vf_load(acc[0] + 16 * v), vf_load(acc[1] + 16 * v)),
                      vf_add(vf_load(acc[2] + 16 * v), vf_load(acc[3] + 16 * v)));
        s = vf_add(s, vf_zero());
        if (live - 16 * v < 16)
            vf_store_part(out + 16 * v, s, live - 16 * v);
        else
            vf_store(out + 16 * v, s);
    }
}

PRIM __m512i gemm_x(const uint8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm512_set1_epi32(v);
}

/* The activations of a tile's tokens, at distances that a compiler knows. */
struct gemm_near {
    uint8_t x[GEMM_T][4 * GEMM_GROUPS][32];
    float d[GEMM_T][4 * GEMM_GROUPS];
};

PRIM void gemm_fetch(struct gemm_near *to, const struct gemm_tile *a, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        for (int g = 0; g < a->groups; g++) {
            const uint8_t *x = a->x + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group);
            memcpy(to->d[t] + 4 * g, x, 16);
            memcpy(to->x[t][4 * g], x + offsetof(struct kernels_q8_group, qs), 128);
        }
}

/* Half h of a block, or all of it: the sums of its products. */
PRIM void gemm_dots(__m512i dot[GEMM_V][GEMM_T], const struct gemm_block *w, const struct gemm_near *n, const struct gemm_extra *e, int b,
                    int h, int V, int T, int sub)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            dot[v][t] = _mm512_set1_epi32(e->start[t][h][b]);
    }
    UNROLL
    for (int k = 4 * h; k < 4 * h + sub / 4; k++) {
        UNROLL
        for (int t = 0; t < T; t++) {
            const __m512i x4 = gemm_x(n->x[t][b] + 4 * k);
            UNROLL
            for (int v = 0; v < V; v++)
                dot[v][t] = _mm512_dpbusd_epi32(dot[v][t], _mm512_loadu_si512(w->q[k][16 * v]), x4);
        }
    }
}

PRIM void gemm_tile(const struct gemm_tile *a, int V, int T, int sub, int mins)
{
    struct gemm_extra e;
    struct gemm_near n;
    gemm_extra(&e, a, T, sub, mins);
    gemm_fetch(&n, a, T);
    for (int b = 0; b < 4 * a->groups; b++) {
        const struct gemm_block *w = a->w + b;
        VF s[GEMM_V][GEMM_T];
        if (b < GEMM_T)
            gemm_ask_token(a, b);
        UNROLL
        for (int h = 0; h < 32 / sub; h++) {
            __m512i dot[GEMM_V][GEMM_T];
            gemm_dots(dot, w, &n, &e, b, h, V, T, sub);
            UNROLL
            for (int t = 0; t < T; t++) {
                UNROLL
                for (int v = 0; v < V; v++) {
                    const VF i = _mm512_cvtepi32_ps(dot[v][t]), k = vf_load(w->s[h] + 16 * v);
                    s[v][t] = h ? vf_fma(i, k, s[v][t]) : vf_mul(i, k);
                }
            }
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            const VF scale = vf_set1(n.d[t][b]);
            UNROLL
            for (int v = 0; v < V; v++) {
                float *acc = a->acc[t][b % 4] + 16 * v;
                UNROLL
                for (int h = 0; h < mins * 32 / sub; h++)
                    s[v][t] = vf_fma(vf_set1(e.sum[t][h][b]), vf_load(w->m[h] + 16 * v), s[v][t]);
                vf_store(acc, vf_fma(s[v][t], scale, vf_load(acc)));
            }
        }
    }
}

#ifndef KERNELS_OPS_ONLY
/* Tiles by vectors of rows and tokens. */
typedef void gemm_part_fn(const struct gemm_tile *a);
#define GEMM_PART(kind, V, T, sub, mins)                    \
    static void g##V##T##_##kind(const struct gemm_tile *a) \
    {                                                       \
        gemm_tile(a, V, T, sub, mins);                      \
    }
#define GEMM_PARTS(kind, V, sub, mins) \
    GEMM_PART(kind, V, 1, sub, mins)   \
    GEMM_PART(kind, V, 2, sub, mins)   \
    GEMM_PART(kind, V, 4, sub, mins)   \
    GEMM_PART(kind, V, 6, sub, mins)
GEMM_PARTS(32_0, 1, 32, 0)
GEMM_PARTS(32_0, 2, 32, 0)
GEMM_PARTS(32_0, 4, 32, 0)
GEMM_PARTS(32_1, 1, 32, 1)
GEMM_PARTS(32_1, 2, 32, 1)
GEMM_PARTS(32_1, 4, 32, 1)
GEMM_PARTS(16_0, 1, 16, 0)
GEMM_PARTS(16_0, 2, 16, 0)
GEMM_PARTS(16_1, 1, 16, 1)
GEMM_PARTS(16_1, 2, 16, 1)

PRIM void gemm_parts(const struct gemm_tile *all, int T, gemm_part_fn *const by_tokens[GEMM_T + 1])
{
    struct gemm_tile a = *all;
    for (int n; T > 0; T -= n, a.acc += n, a.x += (size_t)n * a.x_stride) {
        n = T >= GEMM_T ? GEMM_T : T >= 4 ? 4 : T >= 2 ? 2 : 1;
        by_tokens[n](&a);
    }
}

#define GEMM_OF(kind, V) { [1] = g##V##1_##kind, [2] = g##V##2_##kind, [4] = g##V##4_##kind, [6] = g##V##6_##kind }
#define GEMM_FN(kind, ...)                                                                                    \
    static void gemm_##kind(const struct gemm_tile *a, int V, int T)                                          \
    {                                                                                                         \
        static gemm_part_fn *const by[GEMM_V + 1][GEMM_T + 1] = { [1] = GEMM_OF(kind, 1), [2] = GEMM_OF(kind, 2) __VA_ARGS__ }; \
        gemm_parts(a, T, by[V]);                                                                              \
    }
GEMM_FN(32_0, , [4] = GEMM_OF(32_0, 4))
GEMM_FN(32_1, , [4] = GEMM_OF(32_1, 4))
GEMM_FN(16_0)
GEMM_FN(16_1)
#define GEMM_TILE(ops) ((ops).sub == 32 ? (ops).has_min ? gemm_32_1 : gemm_32_0 : (ops).has_min ? gemm_16_1 : gemm_16_0)
#endif

#endif
#endif
