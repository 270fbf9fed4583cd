/* Sums of rows at a fixed stride (kernels.h, kernels_sums_fn), as attention has V's. Part of kernels_simd_impl.h, which includes it. */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_SUMS_H)
#define COMMON_KERNELS_SUMS_H

#include "common/kernels/kernels_simd_impl.h"

/* SUMS_T tokens by two vectors of columns, or of floats four tokens by SUMS_FEW_V, are the sums that stay in registers; SUMS_ROWS rows
 * (of few tokens SUMS_FEW_ROWS, which the first level holds) are added to one such tile after the other, so that their factors stay in the
 * first level. A row's vector costs a load and a conversion for SUMS_T additions: of F16 with AVX-512 80 % of what additions alone could
 * reach. Of few tokens memory is the limit: as a tile goes through its rows it asks for the same columns of those of the next turn. */
enum { SUMS_T = VN == 8 ? 4 : 8,
       SUMS_FEW_V = VN == 16 ? 4 : 2,
       SUMS_ROWS = 256,
       SUMS_FEW_ROWS = 64 };

struct sums_rows {
    const uint8_t *row;
    const float *h;
    size_t stride, h_stride, ahead; /* ahead: bytes; 0: nothing is asked for */
    int n;
};

INLINE void sums_load(VF s[SUMS_T][SUMS_FEW_V], const float *acc, size_t acc_stride, int T, int V, int part)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float *p = acc + (size_t)t * acc_stride + v * VN;
            s[t][v] = part ? vf_load_part(p, part) : vf_load(p);
        }
    }
}

/* "+ 0" as in axpy_tile: that it comes but once changes nothing, for to what is not 0 both signs of 0 add alike. */
INLINE void sums_store(float *acc, size_t acc_stride, VF s[SUMS_T][SUMS_FEW_V], int T, int V, int part)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            float *p = acc + (size_t)t * acc_stride + v * VN;
            const VF sum = vf_add(s[t][v], vf_zero());
            if (part)
                vf_store_part(p, sum, part);
            else
                vf_store(p, sum);
        }
    }
}

INLINE void sums_ask(const uint8_t *p, size_t ahead, size_t bytes)
{
    for (size_t o = 0; ahead && o < bytes; o += 64)
        __builtin_prefetch(p + ahead + o);
}

/* Rows in order. */
INLINE void sums_tile(float *acc, size_t acc_stride, const struct sums_rows *a, int T, int V, int part, struct type_ops ops)
{
    const size_t vb = ops.bytes32 / (32 / VN);
    VF s[SUMS_T][SUMS_FEW_V];
    sums_load(s, acc, acc_stride, T, V, part);
    for (int r = 0; r < a->n; r++) {
        const uint8_t *row = a->row + (size_t)r * a->stride;
        VF w[SUMS_FEW_V];
        sums_ask(row, a->ahead, (size_t)V * vb);
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] = part ? ops.part(row, part) : ops.w(row + (size_t)v * vb, 0);
        UNROLL
        for (int t = 0; t < T; t++) {
            const VF k = vf_set1(a->h[(size_t)t * a->h_stride + (size_t)r]);
            UNROLL
            for (int v = 0; v < V; v++)
                s[t][v] = vf_fma(k, w[v], s[t][v]);
        }
    }
    sums_store(acc, acc_stride, s, T, V, part);
}

/* Two vectors, the first of them v0, of a block with a scale; f: factors times the block's scale. */
INLINE void sums_block(float *acc, size_t acc_stride, const struct sums_rows *a, const float (*f)[SUMS_ROWS], int v0, int T,
                       struct type_ops ops)
{
    VF s[SUMS_T][SUMS_FEW_V];
    sums_load(s, acc, acc_stride, T, 2, 0);
    for (int r = 0; r < a->n; r++) {
        const uint8_t *row = a->row + (size_t)r * a->stride;
        const VF w0 = ops.w(row, v0), w1 = ops.w(row, v0 + 1);
        if (v0 == 0)
            sums_ask(row, a->ahead, ops.bytes32);
        UNROLL
        for (int t = 0; t < T; t++) {
            const VF k = vf_set1(f[t][r]);
            s[t][0] = vf_fma(k, w0, s[t][0]);
            s[t][1] = vf_fma(k, w1, s[t][1]);
        }
    }
    sums_store(acc, acc_stride, s, T, 2, 0);
}

/* Blocks of 32 with a scale before them. */
INLINE void sums_blocks(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols, int T, struct type_ops ops)
{
    struct sums_rows a = *rows;
    float f[SUMS_T][SUMS_ROWS];
    for (int c = 0; c < n_cols; c += 32, a.row += ops.bytes32) {
        float d[SUMS_ROWS];
        for (int r = 0; r < a.n; r += 4)
            scales4(d + r, a.row + (size_t)r * a.stride, a.stride, a.n - r < 4 ? a.n - r : 4, 1);
        for (int t = 0; t < T; t++)
            for (int r = 0; r < a.n; r++)
                f[t][r] = a.h[(size_t)t * a.h_stride + (size_t)r] * d[r];
        UNROLL
        for (int v0 = 0; v0 < 32 / VN; v0 += 2)
            sums_block(acc + c + v0 * VN, acc_stride, &a, (const float(*)[SUMS_ROWS])f, v0, T, ops);
    }
}

/* T tokens, all columns. */
INLINE void sums_columns(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols, int T, struct type_ops ops)
{
    const size_t vb = ops.bytes32 / (32 / VN);
    const int V = T <= 4 ? SUMS_FEW_V : 2;
    struct sums_rows a = *rows;
    int c = 0;
    if (!ops.part) {
        sums_blocks(acc, acc_stride, rows, n_cols, T, ops);
        return;
    }
    for (; c + V * VN <= n_cols; c += V * VN, a.row += (size_t)V * vb)
        sums_tile(acc + c, acc_stride, &a, T, V, 0, ops);
    for (; c + VN <= n_cols; c += VN, a.row += vb)
        sums_tile(acc + c, acc_stride, &a, T, 1, 0, ops);
    if (c < n_cols)
        sums_tile(acc + c, acc_stride, &a, T, 1, n_cols - c, ops);
}

typedef void sums_fn(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols);

enum { SUMS_MANY, SUMS_FOUR, SUMS_TWO, SUMS_ONE, SUMS_FNS };
static const uint8_t sums_tokens[SUMS_FNS] = { SUMS_T, 4, 2, 1 };

OUTER void sums_drive(float *acc, size_t acc_stride, const struct sums_rows *all, int n_tokens, int n_cols, sums_fn *const fn[SUMS_FNS])
{
    const int few = n_tokens <= 4, most = few ? SUMS_FEW_ROWS : SUMS_ROWS;
    for (int r = 0; r < all->n; r += most) {
        struct sums_rows a = { .row = all->row + (size_t)r * all->stride, .stride = all->stride, .h_stride = all->h_stride,
                               .n = all->n - r < most ? all->n - r : most };
        for (int t = 0, i = 0; t < n_tokens; t += sums_tokens[i]) {
            while (sums_tokens[i] > n_tokens - t)
                i++;
            a.ahead = few && t == 0 && r + most < all->n ? (size_t)most * a.stride : 0;
            a.h = all->h + (size_t)t * all->h_stride + r;
            fn[i](acc + (size_t)t * acc_stride, acc_stride, &a, n_cols);
        }
    }
}

#define SUMS_OF(name, T, OPS)                                                                                                   \
    static void sums_##T##_##name(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols)                      \
    {                                                                                                                           \
        sums_columns(acc, acc_stride, rows, n_cols, T, OPS);                                                                    \
    }
#define SUMS(name, OPS)                                                                                                         \
    SUMS_OF(name, SUMS_T, OPS)                                                                                                  \
    SUMS_OF(name, 4, OPS)                                                                                                       \
    SUMS_OF(name, 2, OPS)                                                                                                       \
    SUMS_OF(name, 1, OPS)                                                                                                       \
    static void sums_##name(float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride, \
                            int n_rows, int n_tokens, int n_cols)                                                               \
    {                                                                                                                           \
        static sums_fn *const fn[SUMS_FNS] = { SUMS_T == 4 ? sums_4_##name : sums_SUMS_T_##name, sums_4_##name, sums_2_##name,  \
                                               sums_1_##name };                                                                \
        const struct sums_rows a = { .row = rows, .h = h, .stride = row_stride, .h_stride = h_stride, .n = n_rows };            \
        sums_drive(acc, acc_stride, &a, n_tokens, n_cols, fn);                                                                  \
    }

#endif
