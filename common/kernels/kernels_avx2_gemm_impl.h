#ifndef COMMON_KERNELS_KERNELS_AVX2_GEMM_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX2_GEMM_IMPL_H

/* AVX2, and AVX-VNNI's vpdpbusd on the same registers where the compiler may use it: tiles of kernels_gemm_impl.h. */
#if defined(__AVX2__)

#include "common/kernels/kernels_avx2_impl.h"
#include "common/kernels/kernels_k_impl.h"
#include "common/kernels/kernels_x86_gemm_impl.h"

/* |w| unsigned times x with w's sign: pairs. */
PRIM __m256i pairs_signed(__m256i w, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

PRIM __m256i widen_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

enum { PART_T = 3 }; /* tokens of sixteen rows whose sums fit sixteen registers */

/* Whether a sum begins with what an offset is too much in it; where there are minima, there is no offset. */
#ifdef __AVXVNNI__
#define GEMM_STARTS(span) 1
#else
#define GEMM_STARTS(span) ((span) != 0)
#endif

/* A compiler that makes a tree of a chain of additions has its leaves on the stack: a sum that it knows nothing of stays where it is. */
#define IN_TURN(sum) __asm__("" : "+x"(sum))

#if defined(__AVXVNNI__)
/* Half h of a block (or all of it) of sixteen rows, whose bytes begin at q, and n tokens: the sums of its products. span 0: bytes are
 * signed, and become unsigned with an offset. */
PRIM void gemm_dots(__m256i dot[2][PART_T], const uint8_t *q, const uint8_t *const x[PART_T], int h, int n, int sub, int span)
{
    UNROLL
    for (int k = 4 * h; k < 4 * h + sub / 4; k++) {
        __m256i w[2];
        UNROLL
        for (int v = 0; v < 2; v++) {
            w[v] = _mm256_loadu_si256((const void *)(q + 4 * GEMM_R * k + 32 * v));
            if (!span)
                w[v] = _mm256_xor_si256(w[v], _mm256_set1_epi8(-128));
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            int32_t four;
            memcpy(&four, x[t] + 4 * k, sizeof four);
            const __m256i x4 = _mm256_set1_epi32(four);
            UNROLL
            for (int v = 0; v < 2; v++)
                dot[v][t] = _mm256_dpbusd_avx_epi32(k == 4 * h ? _mm256_setzero_si256() : dot[v][t], w[v], x4);
        }
    }
}
#else
/* Half h of a block (or all of it) of sixteen rows, whose bytes begin at q, and n tokens: the sums of its products. span: how many steps
 * of pairs are added in 16 bits, 0: bytes are signed. */
PRIM void gemm_dots(__m256i dot[2][PART_T], const uint8_t *q, const uint8_t *const x[PART_T], int h, int n, int sub, int span)
{
    const int step = span ? span : 1;
    UNROLL
    for (int k0 = 4 * h; k0 < 4 * h + sub / 4; k0 += step) {
        __m256i p[2][PART_T];
        UNROLL
        for (int k = k0; k < k0 + step; k++) {
            __m256i w[2];
            UNROLL
            for (int v = 0; v < 2; v++)
                w[v] = _mm256_loadu_si256((const void *)(q + 4 * GEMM_R * k + 32 * v));
            UNROLL
            for (int t = 0; t < n; t++) {
                int32_t four;
                memcpy(&four, x[t] + 4 * k, sizeof four);
                const __m256i x4 = _mm256_set1_epi32(four);
                UNROLL
                for (int v = 0; v < 2; v++) {
                    const __m256i m = span ? _mm256_maddubs_epi16(w[v], x4) : pairs_signed(w[v], x4);
                    p[v][t] = k == k0 ? m : _mm256_add_epi16(p[v][t], m);
                    IN_TURN(p[v][t]);
                }
            }
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            UNROLL
            for (int v = 0; v < 2; v++) {
                dot[v][t] = k0 == 4 * h ? widen_pairs(p[v][t]) : _mm256_add_epi32(dot[v][t], widen_pairs(p[v][t]));
                IN_TURN(dot[v][t]);
            }
        }
    }
}

#endif

/* Sixteen rows from `row` on and n tokens from t0 on. */
PRIM void gemm_part(const struct gemm_tile *a, const struct gemm_extra *e, int row, int t0, int n, int sub, int mins, int span)
{
    const uint8_t *q = a->w->q[0][row], *x[PART_T];
    const float *k = &a->w->s[0][row], *m = &a->w->m[0][row];
    const int blocks = 4 * a->groups;
    float *acc = &a->acc[t0][0][row];
    UNROLL
    for (int t = 0; t < n; t++)
        x[t] = a->x + (size_t)(t0 + t) * a->x_stride;
    for (int b = 0; b < blocks; b++) {
        const size_t qs = offsetof(struct kernels_q8_group, qs) + (size_t)(b % 4) * 32, d = (size_t)(b % 4) * 4;
        const uint8_t *bytes[PART_T];
        VF s[2][PART_T];
        UNROLL
        for (int t = 0; t < n; t++)
            bytes[t] = x[t] + qs;
        UNROLL
        for (int h = 0; h < 32 / sub; h++) {
            __m256i dot[2][PART_T];
            gemm_dots(dot, q, bytes, h, n, sub, span);
            UNROLL
            for (int t = 0; t < n; t++) {
                const __m256i start = _mm256_set1_epi32(e->start[t0 + t][h][b]);
                UNROLL
                for (int v = 0; v < 2; v++) {
                    const VF i = _mm256_cvtepi32_ps(GEMM_STARTS(span) && !mins ? _mm256_add_epi32(dot[v][t], start) : dot[v][t]);
                    s[v][t] = h ? vf_fma(i, vf_load(k + GEMM_R * h + 8 * v), s[v][t]) : vf_mul(i, vf_load(k + 8 * v));
                }
            }
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            float scale;
            memcpy(&scale, x[t] + d, sizeof scale);
            UNROLL
            for (int v = 0; v < 2; v++) {
                float *to = acc + (b % 4) * GEMM_R + t * 4 * GEMM_R + 8 * v;
                UNROLL
                for (int h = 0; h < mins * 32 / sub; h++)
                    s[v][t] = vf_fma(vf_set1(e->sum[t0 + t][h][b]), vf_load(m + GEMM_R * h + 8 * v), s[v][t]);
                vf_store(to, vf_fma(s[v][t], vf_set1(scale), vf_load(to)));
            }
        }
        q += sizeof *a->w;
        k += sizeof *a->w / sizeof *k;
        m += sizeof *a->w / sizeof *m;
        const size_t next = b % 4 == 3 ? sizeof(struct kernels_q8_group) : 0;
        UNROLL
        for (int t = 0; t < n; t++)
            x[t] += next;
    }
}

/* A function for rows of each number of tokens. */
typedef void gemm_part_fn(const struct gemm_tile *a, const struct gemm_extra *e, int row, int t);

PRIM void gemm_parts(const struct gemm_tile *a, int V, int T, int sub, int mins, gemm_part_fn *const part[PART_T + 1])
{
    struct gemm_extra e;
    gemm_extra(&e, a, T, sub, mins);
    const int share = V > 2 ? 1 : GEMM_T / 2 / V;
    int asked = 0;
    for (int row = 0; row < 16 * V; row += 16)
        for (int t = 0, n; t < T; t += n) {
            n = T - t < PART_T ? T - t : PART_T;
            for (int i = 0; i < share; i++)
                gemm_ask_token(a, asked++);
            part[n](a, &e, row, t);
        }
}

#define GEMM_PART(kind, n, ...)                                                                                       \
    static __attribute__((noinline)) void g##n##_##kind(const struct gemm_tile *a, const struct gemm_extra *e, int row, int t) \
    {                                                                                                                 \
        gemm_part(a, e, row, t, n, __VA_ARGS__);                                                                      \
    }

/* Of a type, as AVX2 multiplies it. */
struct gemm_type kernels_avx2_gemm(uint32_t type);

/* Tiles of a kind. */
#define GEMM_FN(kind, sub, mins, span)                                                                          \
    GEMM_PART(kind, 1, sub, mins, span)                                                                         \
    GEMM_PART(kind, 2, sub, mins, span)                                                                         \
    GEMM_PART(kind, 3, sub, mins, span)                                                                         \
    static void gemm_##kind(const struct gemm_tile *a, int V, int T)                                            \
    {                                                                                                           \
        static gemm_part_fn *const part[PART_T + 1] = { NULL, g1_##kind, g2_##kind, g3_##kind };                \
        gemm_parts(a, V, T, sub, mins, part);                                                                   \
    }

PRIM void gemm_store(float *out, float acc[4][GEMM_R], int live)
{
    for (int r = 0; r < live; r += 8) {
        VF s = vf_add(vf_add(vf_load(acc[0] + r), vf_load(acc[1] + r)), vf_add(vf_load(acc[2] + r), vf_load(acc[3] + r)));
        s = vf_add(s, vf_zero());
        if (live - r < 8)
            vf_store_part(out + r, s, live - r);
        else
            vf_store(out + r, s);
    }
}

#endif
#endif
