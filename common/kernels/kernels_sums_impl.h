/* Sums of rows at a fixed stride (kernels.h, kernels_sums_fn), as attention has V's. Part of kernels_simd_impl.h, which includes it. */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_SUMS_H)
#define COMMON_KERNELS_SUMS_H

#include "common/kernels/kernels_simd_impl.h"

/* SUMS_T tokens by SUMS_V vectors of columns are the sums that stay in registers; SUMS_ROWS rows are added to one such tile after the
 * other, so that their factors stay in the first level. A row's vector costs a load and a conversion for SUMS_T additions: of F16 with
 * AVX-512 80 % of what additions alone could reach. */
enum { SUMS_T = VN == 8 ? 4 : 8,
       SUMS_V = 2,
       SUMS_ROWS = 256 };

struct sums_rows {
    const uint8_t *row;
    const float *h;
    size_t stride, h_stride;
    int n;
};

INLINE VF sums_w(const struct sums_rows *a, int r, size_t vb, int v, int part, struct type_ops ops)
{
    const uint8_t *p = a->row + (size_t)r * a->stride + (size_t)v * vb;
    return part ? ops.part(p, part) : ops.w(p, 0);
}

/* Rows in order; "+ 0" as in axpy_tile: that it comes but once changes nothing, for to what is not 0 both signs of 0 add alike. */
INLINE void sums_tile(float *acc, size_t acc_stride, const struct sums_rows *a, int T, int V, int part, struct type_ops ops)
{
    const size_t vb = ops.bytes32 / (32 / VN);
    VF s[SUMS_T][SUMS_V];
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float *p = acc + (size_t)t * acc_stride + v * VN;
            s[t][v] = part ? vf_load_part(p, part) : vf_load(p);
        }
    }
    for (int r = 0; r < a->n; r++) {
        VF w[SUMS_V];
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] = sums_w(a, r, vb, v, part, ops);
        UNROLL
        for (int t = 0; t < T; t++) {
            const VF k = vf_set1(a->h[(size_t)t * a->h_stride + (size_t)r]);
            UNROLL
            for (int v = 0; v < V; v++)
                s[t][v] = vf_fma(k, w[v], s[t][v]);
        }
    }
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

/* T tokens, all columns. */
INLINE void sums_columns(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols, int T, struct type_ops ops)
{
    const size_t vb = ops.bytes32 / (32 / VN);
    struct sums_rows a = *rows;
    int c = 0;
    for (; c + SUMS_V * VN <= n_cols; c += SUMS_V * VN, a.row += SUMS_V * vb)
        sums_tile(acc + c, acc_stride, &a, T, SUMS_V, 0, ops);
    for (; c + VN <= n_cols; c += VN, a.row += vb)
        sums_tile(acc + c, acc_stride, &a, T, 1, 0, ops);
    if (c < n_cols)
        sums_tile(acc + c, acc_stride, &a, T, 1, n_cols - c, ops);
}

typedef void sums_fn(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols);

OUTER void sums_drive(float *acc, size_t acc_stride, const struct sums_rows *all, int n_tokens, int n_cols, sums_fn *many, sums_fn *one)
{
    for (int r = 0; r < all->n; r += SUMS_ROWS) {
        struct sums_rows a = { .row = all->row + (size_t)r * all->stride, .stride = all->stride, .h_stride = all->h_stride,
                               .n = all->n - r < SUMS_ROWS ? all->n - r : SUMS_ROWS };
        for (int t = 0, n; t < n_tokens; t += n) {
            n = n_tokens - t < SUMS_T ? 1 : SUMS_T;
            a.h = all->h + (size_t)t * all->h_stride + r;
            (n == 1 ? one : many)(acc + (size_t)t * acc_stride, acc_stride, &a, n_cols);
        }
    }
}

#define SUMS(name, OPS)                                                                                                         \
    static void sums_many_##name(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols)                       \
    {                                                                                                                           \
        sums_columns(acc, acc_stride, rows, n_cols, SUMS_T, OPS);                                                               \
    }                                                                                                                           \
    static void sums_one_##name(float *acc, size_t acc_stride, const struct sums_rows *rows, int n_cols)                        \
    {                                                                                                                           \
        sums_columns(acc, acc_stride, rows, n_cols, 1, OPS);                                                                    \
    }                                                                                                                           \
    static void sums_##name(float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride, \
                            int n_rows, int n_tokens, int n_cols)                                                               \
    {                                                                                                                           \
        const struct sums_rows a = { .row = rows, .h = h, .stride = row_stride, .h_stride = h_stride, .n = n_rows };            \
        sums_drive(acc, acc_stride, &a, n_tokens, n_cols, sums_many_##name, sums_one_##name);                                   \
    }

#endif
