/* The kernel table with AddressSanitizer. What gcc instruments in the kernels themselves makes a forward pass eight times slower, and
 * most of that looks at sums which are on the stack only because it is instrumented. So programs take the kernels as they are without a
 * sanitizer, and each entry of the table is a function that looks at all bytes of its operands first, the middle of them included. The
 * kernels' own tests link instrumented kernels, without this. Built where module.mk says KERNELS_GUARDED. */
#include "common/kernels/kernels_impl.h"

#include <sanitizer/asan_interface.h>

static struct kernels real;

/* n bytes at p are ours to read or write: if not, the first that is not is read, which AddressSanitizer reports with its stack. */
static void held(const void *p, size_t n)
{
    const void *bad = n ? __asan_region_is_poisoned((void *)p, n) : NULL;
    if (bad)
        (void)*(const volatile char *)bad;
    else if (n && !p)
        (void)*(const volatile char *)p;
}

/* n floats at p. A pointer that is not aligned is UndefinedBehaviorSanitizer's to report. */
static void held_f32(const void *p, size_t n)
{
    held(p, n * sizeof(float));
    if (n)
        (void)*(const volatile float *)p;
}

static void held_u16(const void *p, size_t n)
{
    held(p, n * sizeof(uint16_t));
    if (n)
        (void)*(const volatile uint16_t *)p;
}

/* n lines of count bytes, stride bytes apart. */
static void held_lines(const void *p, size_t stride, int n, size_t count)
{
    if (stride == count) {
        held(p, count * (size_t)n);
        return;
    }
    for (int i = 0; i < n; i++)
        held((const char *)p + stride * (size_t)i, count);
}

static void held_lines_f32(const float *p, size_t stride, int n, size_t count)
{
    for (int i = 0; i < n; i++)
        held_f32(p + stride * (size_t)i, count);
}

static void held_rows(const float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x, size_t x_stride,
                      int n_tokens, int n_cols, enum kernels_act form, uint32_t type)
{
    held_lines_f32(out, out_stride, n_tokens, (size_t)n_rows);
    held_lines(rows, row_stride, n_rows, quant_row_bytes(type, (uint64_t)n_cols));
    held_lines(x, x_stride, n_tokens, kernels_act_bytes(form, n_cols));
}

static void held_rows_at(const float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride,
                         int n_tokens, int n_cols, enum kernels_act form, uint32_t type)
{
    held_lines_f32(out, out_stride, n_tokens, (size_t)n_rows);
    for (int r = 0; r < n_rows; r++)
        held(rows[r], quant_row_bytes(type, (uint64_t)n_cols));
    held_lines(x, x_stride, n_tokens, kernels_act_bytes(form, n_cols));
}

static void held_axpy(const float *acc, size_t acc_stride, const void *const *rows, const float *h, size_t h_stride, int n_rows,
                      int n_tokens, int col0, int n_cols, uint32_t type)
{
    held_lines_f32(acc, acc_stride, n_tokens, (size_t)n_cols);
    held_lines_f32(h, h_stride, n_tokens, (size_t)n_rows);
    for (int r = 0; r < n_rows; r++)
        if (rows[r])
            held((const char *)rows[r] + quant_row_bytes(type, (uint64_t)col0), quant_row_bytes(type, (uint64_t)n_cols));
}

static void held_sums(const float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride, int n_rows,
                      int n_tokens, int n_cols, uint32_t type)
{
    held_lines_f32(acc, acc_stride, n_tokens, (size_t)n_cols);
    held_lines_f32(h, h_stride, n_tokens, (size_t)n_rows);
    held_lines(rows, row_stride, n_rows, quant_row_bytes(type, (uint64_t)n_cols));
}

#define TYPES(X)       \
    X(f32, F32)        \
    X(f16, F16)        \
    X(bf16, BF16)      \
    X(q4_0, Q4_0)      \
    X(q8_0, Q8_0)      \
    KERNELS_BLOCK_TYPES(X) \
    KERNELS_READ_TYPES(X)

#define PRODUCTS(name, form, TYPE)                                                                                                  \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,          \
                            size_t x_stride, int n_tokens, int n_cols)                                                              \
    {                                                                                                                               \
        held_rows(out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols, form, QUANT_##TYPE);                    \
        real.rows[form][QUANT_##TYPE](out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols);                    \
    }                                                                                                                               \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride,  \
                               int n_tokens, int n_cols)                                                                            \
    {                                                                                                                               \
        held_rows_at(out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols, form, QUANT_##TYPE);                             \
        real.rows_at[form][QUANT_##TYPE](out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols);                             \
    }
#define GUARDS(name, TYPE)                                                                                                          \
    PRODUCTS(name##_f32, KERNELS_ACT_F32, TYPE)                                                                                     \
    PRODUCTS(name##_q8, KERNELS_ACT_Q8, TYPE)                                                                                       \
    static void add_rows_##name(float *acc, size_t acc_stride, const void *const *rows, const float *h, size_t h_stride, int n_rows,\
                            int n_tokens, int col0, int n_cols)                                                                     \
    {                                                                                                                               \
        held_axpy(acc, acc_stride, rows, h, h_stride, n_rows, n_tokens, col0, n_cols, QUANT_##TYPE);                                \
        real.axpy[QUANT_##TYPE](acc, acc_stride, rows, h, h_stride, n_rows, n_tokens, col0, n_cols);                                \
    }                                                                                                                               \
    static void sums_##name(float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride,    \
                            int n_rows, int n_tokens, int n_cols)                                                                   \
    {                                                                                                                               \
        held_sums(acc, acc_stride, rows, row_stride, h, h_stride, n_rows, n_tokens, n_cols, QUANT_##TYPE);                          \
        real.sums[QUANT_##TYPE](acc, acc_stride, rows, row_stride, h, h_stride, n_rows, n_tokens, n_cols);                          \
    }
TYPES(GUARDS)

static void quant_q8(struct kernels_q8_group *out, const float *x, int n)
{
    held(out, kernels_act_bytes(KERNELS_ACT_Q8, n));
    held_f32(x, (size_t)n);
    real.quant_q8(out, x, n);
}

static float dot_f32(const float *a, const float *b, int n)
{
    held_f32(a, (size_t)n);
    held_f32(b, (size_t)n);
    return real.dot_f32(a, b, n);
}

static float dot_f16(const float *a, const uint16_t *b, int n)
{
    held_f32(a, (size_t)n);
    held_u16(b, (size_t)n);
    return real.dot_f16(a, b, n);
}

static void axpy_f32(float *y, float a, const float *x, int n)
{
    held_f32(y, (size_t)n);
    held_f32(x, (size_t)n);
    real.axpy_f32(y, a, x, n);
}

static void axpy_f16(float *y, float a, const uint16_t *x, int n)
{
    held_f32(y, (size_t)n);
    held_u16(x, (size_t)n);
    real.axpy_f16(y, a, x, n);
}

static void to_f16(uint16_t *out, const float *x, int n)
{
    held_u16(out, (size_t)n);
    held_f32(x, (size_t)n);
    real.to_f16(out, x, n);
}

static void above(uint8_t *bits, const float *x, float least, int n)
{
    held(bits, ((size_t)n + 7) / 8);
    held_f32(x, (size_t)n);
    real.above(bits, x, least, n);
}

void kernels_guard(struct kernels *k)
{
    real = *k;
#define SET(entry, guard) \
    if (k->entry)         \
        k->entry = guard;
#define SET_TYPE(name, TYPE)                                                \
    SET(rows[KERNELS_ACT_F32][QUANT_##TYPE], rows_##name##_f32)             \
    SET(rows[KERNELS_ACT_Q8][QUANT_##TYPE], rows_##name##_q8)               \
    SET(rows_at[KERNELS_ACT_F32][QUANT_##TYPE], rows_at_##name##_f32)       \
    SET(rows_at[KERNELS_ACT_Q8][QUANT_##TYPE], rows_at_##name##_q8)         \
    SET(axpy[QUANT_##TYPE], add_rows_##name)                                \
    SET(sums[QUANT_##TYPE], sums_##name)
    TYPES(SET_TYPE)
    k->quant_q8 = quant_q8;
    k->dot_f32 = dot_f32;
    k->dot_f16 = dot_f16;
    k->axpy_f32 = axpy_f32;
    k->axpy_f16 = axpy_f16;
    k->to_f16 = to_f16;
    k->above = above;
}
