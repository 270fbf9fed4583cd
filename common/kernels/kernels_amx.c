/* AMX-INT8: products of int8 activations for many tokens; what is left over, and everything else, is the tier's below. */
#define KERNELS_OPS_ONLY
#include "common/kernels/kernels_amx_impl.h"

enum { AMX_TOKENS = AMX_T, AMX_ROWS = 9 }; /* from which on it is faster */

/* Types for which it is: all but Q2_K. */
#define AMX_TYPES(X) \
    X(q4_0, Q4_0)    \
    X(q8_0, Q8_0)    \
    X(q4_1, Q4_1)    \
    X(q5_0, Q5_0)    \
    X(q5_1, Q5_1)    \
    X(iq4_nl, IQ4_NL) \
    X(mxfp4, MXFP4)  \
    X(q3_k, Q3_K)    \
    X(q4_k, Q4_K)    \
    X(q5_k, Q5_K)    \
    X(q6_k, Q6_K)    \
    X(iq4_xs, IQ4_XS)

static struct kernels below;

/* How many of n rows go by panels: the tier below takes the last where they fill but half of one. */
INLINE int amx_share(int n)
{
    return n % AMX_R >= AMX_ROWS ? n : n - n % AMX_R;
}

#define AMX(name, TYPE)                                                                                                          \
    static __attribute__((noinline)) void many_##name(float *out, size_t out_stride, const struct row_list *l, int n_rows,        \
                                                      const uint8_t *x, size_t x_stride, int n_tokens, int n_cols)               \
    {                                                                                                                            \
        amx_all(out, out_stride, l, quant_row_bytes(QUANT_##TYPE, (uint64_t)n_cols), n_rows, x, x_stride, n_tokens,              \
                K_OPS_##TYPE, AMX_KIND(K_OPS_##TYPE));                                                                           \
    }                                                                                                                            \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,       \
                            size_t x_stride, int n_tokens, int n_cols)                                                           \
    {                                                                                                                            \
        const struct row_list l = { .base = rows, .stride = row_stride };                                                        \
        const int n = n_tokens >= AMX_TOKENS ? amx_share(n_rows) : 0;                                                            \
        if (n)                                                                                                                   \
            many_##name(out, out_stride, &l, n, x, x_stride, n_tokens, n_cols);                                                  \
        if (n < n_rows)                                                                                                          \
            below.rows[KERNELS_ACT_Q8][QUANT_##TYPE](out + n, out_stride, row_of(&l, n), row_stride, n_rows - n, x, x_stride,     \
                                                     n_tokens, n_cols);                                                          \
    }                                                                                                                            \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x,                \
                               size_t x_stride, int n_tokens, int n_cols)                                                        \
    {                                                                                                                            \
        const struct row_list l = { .at = rows };                                                                                \
        const int n = n_tokens >= AMX_TOKENS ? amx_share(n_rows) : 0;                                                            \
        if (n)                                                                                                                   \
            many_##name(out, out_stride, &l, n, x, x_stride, n_tokens, n_cols);                                                  \
        if (n < n_rows)                                                                                                          \
            below.rows_at[KERNELS_ACT_Q8][QUANT_##TYPE](out + n, out_stride, rows + n, n_rows - n, x, x_stride, n_tokens,        \
                                                        n_cols);                                                                 \
    }
AMX_TYPES(AMX)

void kernels_fill_amx(struct kernels *k)
{
    below = *k;
    k->name = "amx";
#define SET(name, TYPE)                                        \
    k->rows[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_##name;       \
    k->rows_at[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_at_##name;
    AMX_TYPES(SET)
#undef SET
}
