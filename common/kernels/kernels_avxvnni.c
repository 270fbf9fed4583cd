/* AVX-VNNI, vpdpbusd on 256 bits: products of int8 activations for many tokens, of AVX2's panels. Everything else is AVX2's. */
#include "common/kernels/kernels_avx2_gemm_impl.h"

#define KERNELS_LOOPS_ONLY
#include "common/kernels/kernels_gemm_impl.h"

GEMM_FN(32_0, 32, 0, 1)
GEMM_FN(32_8, 32, 0, 0)
GEMM_FN(32_1, 32, 1, 1)
GEMM_FN(16_0, 16, 0, 1)
GEMM_FN(16_8, 16, 0, 0)
GEMM_FN(16_1, 16, 1, 1)

static struct kernels below;

/* AVX2's panels with tiles of ours. */
static struct gemm_type of_type(uint32_t type)
{
    struct gemm_type f = kernels_avx2_gemm(type);
    f.tile = f.sub == 16 ? f.has_min ? gemm_16_1 : f.is_signed ? gemm_16_8 : gemm_16_0
                         : f.has_min ? gemm_32_1 : f.is_signed ? gemm_32_8 : gemm_32_0;
    f.offset = f.is_signed ? 128 : f.offset;
    return f;
}

OUTER void rows_of_type(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x, size_t x_stride,
                        int n_tokens, int n_cols, uint32_t type)
{
    const struct row_list l = { .base = rows, .stride = row_stride };
    const struct gemm_type f = of_type(type);
    if (n_tokens >= MANY_TOKENS && n_rows >= MANY_ROWS)
        gemm_all(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, &f);
    else
        below.rows[KERNELS_ACT_Q8][type](out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols);
}

OUTER void rows_at_of_type(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride,
                           int n_tokens, int n_cols, uint32_t type)
{
    const struct row_list l = { .at = rows };
    const struct gemm_type f = of_type(type);
    if (n_tokens >= MANY_TOKENS && n_rows >= MANY_ROWS)
        gemm_all(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, &f);
    else
        below.rows_at[KERNELS_ACT_Q8][type](out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols);
}

#define VNNI(name, TYPE)                                                                                                             \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,           \
                            size_t x_stride, int n_tokens, int n_cols)                                                               \
    {                                                                                                                                \
        rows_of_type(out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols, QUANT_##TYPE);                        \
    }                                                                                                                                \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride,   \
                               int n_tokens, int n_cols)                                                                             \
    {                                                                                                                                \
        rows_at_of_type(out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols, QUANT_##TYPE);                                 \
    }
#define VNNI_TYPES(X) X(q4_0, Q4_0) X(q8_0, Q8_0) KERNELS_BLOCK_TYPES(X) KERNELS_READ_TYPES(X)
VNNI_TYPES(VNNI)

void kernels_fill_avxvnni(struct kernels *k)
{
    below = *k;
    k->name = "avxvnni";
#define SET(name, TYPE)                                  \
    k->rows[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_##name; \
    k->rows_at[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_at_##name;
    VNNI_TYPES(SET)
#undef SET
}
