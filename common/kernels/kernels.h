#ifndef COMMON_KERNELS_KERNELS_H
#define COMMON_KERNELS_KERNELS_H

/* The arithmetic of the engine: one function type per operation, one table. kernels_init installs
 * the scalar tier, then each tier the machine has overwrites what it improves. The table is
 * constant after kernels_init, which runs before threads start. Scalar is specification, oracle
 * and fallback.
 *
 * Determinism, on which bit identity of the runtime rests. For a fixed tier and type:
 *  - a product of one row and one token has the same bits whatever n_rows, n_tokens, strides,
 *    alignment, and whether it is computed by rows or by rows_at;
 *  - an accumulation by axpy adds rows in the order given; for finite weights, rows whose factor is
 *    zero may be skipped or added with the same bits (the accumulator never holds -0: it starts at
 *    +0, and axpy turns the -0 of an underflow into +0); the column range (col0, n_cols) does not
 *    change the bits of a column.
 * No tier reads beyond a row's last byte.
 *
 * Products with int8 activations have the same bits with AVX2, AVX-VNNI and AVX-512 (other tiers add in orders of their own). They are
 * sums over blocks of 32 columns:
 *   t[b] = i * s (of two scales a block: i0 * s0, then fma(i1, s1, .)), with i the exact integer sum of q * (u - offset),
 *          then fma(sum, m, .) for each minimum, with sum the activations' exact sum;
 *   a[b % 4] = fma(t[b], d[b], a[b % 4]), b ascending, from 0;   result = (a[0] + a[1]) + (a[2] + a[3]) + 0. */
#include "common/kernels/quant.h"

/* Activations come to the row products in one of two forms. */
enum kernels_act {
    KERNELS_ACT_F32, /* float[n]; the product is exact up to float32 rounding */
    KERNELS_ACT_Q8,  /* blocks of 32 int8 with a float scale; Q8_0 and Q4_0 weights only;
                       * error of an activation at most 1/254 of its block's largest (a block
                       * whose largest is below 2^-100 counts as zero) */
    KERNELS_ACT_FORMS
};

/* Four blocks of 32 activations: element j of block b is x ~ d[b] * q, with d = max|x| / 127 and q in
 * [-127, 127] at qs[32 * b + j]. sum[2 * b] and sum[2 * b + 1] are the sums of the block's first and last sixteen q.
 * The blocks past the end are zero. */
struct kernels_q8_group {
    float d[4];
    int16_t sum[8];
    int8_t qs[128];
};
_Static_assert(sizeof(struct kernels_q8_group) == 160, "activation group");

/* out[t * out_stride + r] = <row r, x_t>  for r < n_rows, t < n_tokens.
 * Row r is at rows + r * row_stride bytes; token t's activations at x + t * x_stride bytes, in the
 * form the function is listed under. n_cols is a multiple of the type's block. */
typedef void kernels_rows_fn(float *out, size_t out_stride, const void *rows, size_t row_stride,
                             int n_rows, const void *x, size_t x_stride, int n_tokens, int n_cols);

/* The same for rows anywhere in memory: row r is at rows[r]. Prefetches ahead. */
typedef void kernels_rows_at_fn(float *out, size_t out_stride, const void *const *rows, int n_rows,
                                const void *x, size_t x_stride, int n_tokens, int n_cols);

/* acc[t * acc_stride + c] += sum over r, in order, of h[t * h_stride + r] * row_r[col0 + c], for c < n_cols.
 * col0 and n_cols are multiples of the type's block (any number for float types). rows[r] may be
 * NULL where h is zero for every token. */
#define KERNELS_AXPY_TOKENS 4 /* tokens that SIMD tiers add a row to together, where any of them needs it; AVX2: 2 */
typedef void kernels_axpy_fn(float *acc, size_t acc_stride, const void *const *rows,
                             const float *h, size_t h_stride, int n_rows, int n_tokens,
                             int col0, int n_cols);

/* The bits of axpy over rows at a fixed stride, rows + r * row_stride, all of which are added: each row is made to floats once for several
 * tokens, whose sums stay in registers from row to row. For F32, F16, BF16, Q8_0 and Q4_0, as attention has its values. */
typedef void kernels_sums_fn(float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride,
                             int n_rows, int n_tokens, int n_cols);

struct kernels {
    const char *name;                                      /* of the highest tier installed */
    kernels_rows_fn *rows[KERNELS_ACT_FORMS][QUANT_LIMIT]; /* NULL: no such product */
    kernels_rows_at_fn *rows_at[KERNELS_ACT_FORMS][QUANT_LIMIT];
    kernels_axpy_fn *axpy[QUANT_LIMIT];
    kernels_sums_fn *sums[QUANT_LIMIT];
    void (*quant_q8)(struct kernels_q8_group *out, const float *x, int n); /* n % 32 == 0; same bits on all tiers */
    float (*dot_f32)(const float *a, const float *b, int n);
    float (*dot_f16)(const float *a, const uint16_t *b, int n); /* K cache in F16 */
    void (*axpy_f32)(float *y, float a, const float *x, int n); /* y += a * x */
    void (*axpy_f16)(float *y, float a, const uint16_t *x, int n);
    void (*to_f16)(uint16_t *out, const float *x, int n);
    /* bit i % 8 of bits[i / 8] = x[i] > least, for i < n; the last byte's bits beyond n are 0 */
    void (*above)(uint8_t *bits, const float *x, float least, int n);
};

extern const struct kernels *kernels;

/* cpu_mask from cpu_detect or cpu_parse. */
void kernels_init(unsigned cpu_mask);

/* Bytes of one token's activations of n elements in this form. */
size_t kernels_act_bytes(enum kernels_act form, int n);

/* Convert n floats to the form (a copy for KERNELS_ACT_F32). */
void kernels_act_prepare(void *out, enum kernels_act form, const float *x, int n);

/* The form used for weights of this type when the user asks for int8 activations: Q8 where the
 * type has such a product, else F32. */
enum kernels_act kernels_act_form(uint32_t type, int want_q8);

#endif
