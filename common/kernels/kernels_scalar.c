/* The scalar tier: specification, oracle and fallback, written to be read. Products are summed in
 * double in column order and rounded once, so that the other tiers' float error can be measured
 * against it. Accumulations are float multiply and add, row after row, because their state lives in
 * the caller's float array between calls. */
#include "common/base/bytes.h"
#include "common/kernels/kernels_impl.h"

#include <math.h>

/* ---- one row, one token ---- */

typedef float dot_fn(const uint8_t *row, const uint8_t *x, int n);

static inline float load_f32(const uint8_t *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static inline float load_f16(const uint8_t *p)
{
    return quant_f16_to_f32(bytes_le16(p));
}

static inline float load_bf16(const uint8_t *p)
{
    return quant_bf16_to_f32(bytes_le16(p));
}

static float dot_f32_f32(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int c = 0; c < n; c++)
        s += (double)load_f32(row + 4 * (size_t)c) * load_f32(x + 4 * (size_t)c);
    return (float)s;
}

static float dot_f16_f32(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int c = 0; c < n; c++)
        s += (double)load_f16(row + 2 * (size_t)c) * load_f32(x + 4 * (size_t)c);
    return (float)s;
}

static float dot_bf16_f32(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int c = 0; c < n; c++)
        s += (double)load_bf16(row + 2 * (size_t)c) * load_f32(x + 4 * (size_t)c);
    return (float)s;
}

static float dot_q8_0_f32(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int c = 0; c < n; c += 32, row += sizeof(struct quant_q8_0), x += 32 * sizeof(float)) {
        double b = 0;
        for (int j = 0; j < 32; j++)
            b += (double)(int8_t)row[2 + j] * load_f32(x + 4 * j);
        s += (double)load_f16(row) * b;
    }
    return (float)s;
}

static float dot_q4_0_f32(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int c = 0; c < n; c += 32, row += sizeof(struct quant_q4_0), x += 32 * sizeof(float)) {
        double b = 0;
        for (int j = 0; j < 16; j++)
            b += (double)((row[2 + j] & 15) - 8) * load_f32(x + 4 * j) +
                 (double)((row[2 + j] >> 4) - 8) * load_f32(x + 4 * (j + 16));
        s += (double)load_f16(row) * b;
    }
    return (float)s;
}

/* Activation j of block i; integer products are exact: 32 * 128 * 127 fits easily. */
static inline int q8_value(const uint8_t *x, int i, int j)
{
    const uint8_t *g = x + (size_t)(i / 4) * sizeof(struct kernels_q8_group);
    return (int8_t)g[offsetof(struct kernels_q8_group, qs) + (size_t)(i % 4 * 32 + j)];
}

static inline float q8_scale(const uint8_t *x, int i)
{
    return load_f32(x + (size_t)(i / 4) * sizeof(struct kernels_q8_group) + (size_t)(i % 4) * sizeof(float));
}

static float dot_q8_0_q8(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int i = 0; i < n / 32; i++, row += sizeof(struct quant_q8_0)) {
        int b = 0;
        for (int j = 0; j < 32; j++)
            b += (int8_t)row[2 + j] * q8_value(x, i, j);
        s += (double)load_f16(row) * q8_scale(x, i) * b;
    }
    return (float)s;
}

static float dot_q4_0_q8(const uint8_t *row, const uint8_t *x, int n)
{
    double s = 0;
    for (int i = 0; i < n / 32; i++, row += sizeof(struct quant_q4_0)) {
        int b = 0;
        for (int j = 0; j < 16; j++)
            b += ((row[2 + j] & 15) - 8) * q8_value(x, i, j) + ((row[2 + j] >> 4) - 8) * q8_value(x, i, j + 16);
        s += (double)load_f16(row) * q8_scale(x, i) * b;
    }
    return (float)s;
}

/* A product by dequantisation: blocks of up to 256 columns. */
static float dot_blocks(const uint8_t *row, const uint8_t *x, int n, uint32_t type, enum kernels_act form)
{
    const struct quant_traits *q = quant_traits(type);
    float w[256];
    double s = 0;
    for (int c = 0; c < n; c += q->block_elems, row += q->block_bytes) {
        q->dequant(w, row, (size_t)q->block_elems);
        for (int j = 0; j < q->block_elems; j++) {
            int i = (c + j) / 32;
            double a = form == KERNELS_ACT_Q8 ? (double)q8_scale(x, i) * q8_value(x, i, (c + j) % 32)
                                              : (double)load_f32(x + 4 * (size_t)(c + j));
            s += (double)w[j] * a;
        }
    }
    return (float)s;
}

#define ROWS(name)                                                                                 \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride,    \
                            int n_rows, const void *x, size_t x_stride, int n_tokens, int n_cols)  \
    {                                                                                              \
        for (int r = 0; r < n_rows; r++)                                                           \
            for (int t = 0; t < n_tokens; t++)                                                     \
                out[(size_t)t * out_stride + (size_t)r] =                                          \
                    dot_##name((const uint8_t *)rows + (size_t)r * row_stride,                     \
                               (const uint8_t *)x + (size_t)t * x_stride, n_cols);                 \
    }                                                                                              \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, \
                               const void *x, size_t x_stride, int n_tokens, int n_cols)           \
    {                                                                                              \
        for (int r = 0; r < n_rows; r++)                                                           \
            for (int t = 0; t < n_tokens; t++)                                                     \
                out[(size_t)t * out_stride + (size_t)r] =                                          \
                    dot_##name(rows[r], (const uint8_t *)x + (size_t)t * x_stride, n_cols);        \
    }

ROWS(f32_f32)
ROWS(f16_f32)
ROWS(bf16_f32)
ROWS(q8_0_f32)
ROWS(q4_0_f32)
ROWS(q8_0_q8)
ROWS(q4_0_q8)

/* Rows of a type of blocks: at `rows` or, where that is NULL, at at[]. */
static __attribute__((noinline)) void rows_blocks(float *out, size_t out_stride, const uint8_t *rows, size_t row_stride,
                                                  const void *const *at, int n_rows, const uint8_t *x, size_t x_stride, int n_tokens,
                                                  int n_cols, uint32_t type, enum kernels_act form)
{
    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_tokens; t++)
            out[(size_t)t * out_stride + (size_t)r] =
                dot_blocks(at ? at[r] : rows + (size_t)r * row_stride, x + (size_t)t * x_stride, n_cols, type, form);
}

#define ROWS_BLOCKS(name, TYPE, FORM)                                                                                            \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,        \
                            size_t x_stride, int n_tokens, int n_cols)                                                            \
    {                                                                                                                             \
        rows_blocks(out, out_stride, rows, row_stride, NULL, n_rows, x, x_stride, n_tokens, n_cols, QUANT_##TYPE, FORM);          \
    }                                                                                                                             \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride, \
                               int n_tokens, int n_cols)                                                                          \
    {                                                                                                                             \
        rows_blocks(out, out_stride, NULL, 0, rows, n_rows, x, x_stride, n_tokens, n_cols, QUANT_##TYPE, FORM);                   \
    }
#define ROWS_FORMS(name, TYPE) ROWS_BLOCKS(name##_f32, TYPE, KERNELS_ACT_F32) ROWS_BLOCKS(name##_q8, TYPE, KERNELS_ACT_Q8)
KERNELS_BLOCK_TYPES(ROWS_FORMS)
KERNELS_READ_TYPES(ROWS_FORMS)

/* ---- accumulation ---- */

/* Rows in order; a zero factor is skipped. "+ 0" turns a -0 that underflow may leave into +0, so
 * that skipping a row and adding it with factor zero cannot be told apart. */
static inline void add_row(float *acc, float h, const uint8_t *row, uint32_t type, int col0, int n_cols)
{
    const struct quant_traits *q = quant_traits(type);
    const uint8_t *p = row + (size_t)(col0 / q->block_elems) * (size_t)q->block_bytes;
    float w[256];
    for (int c = 0; c < n_cols; c += 256) {
        int n = n_cols - c < 256 ? n_cols - c : 256;
        q->dequant(w, p, (size_t)n);
        p += (size_t)(n / q->block_elems) * (size_t)q->block_bytes;
        for (int j = 0; j < n; j++)
            acc[c + j] = (acc[c + j] + h * w[j]) + 0.0f;
    }
}

static __attribute__((noinline)) void add_rows(float *acc, size_t acc_stride, const void *const *rows, const float *h, size_t h_stride,
                                               int n_rows, int n_tokens, int col0, int n_cols, uint32_t type)
{
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r++)
            if (h[(size_t)t * h_stride + (size_t)r] != 0)
                add_row(acc + (size_t)t * acc_stride, h[(size_t)t * h_stride + (size_t)r], rows[r], type, col0, n_cols);
}

#define AXPY(name, type)                                                                                     \
    static void axpy_row_##name(float *acc, size_t acc_stride, const void *const *rows, const float *h,      \
                                size_t h_stride, int n_rows, int n_tokens, int col0, int n_cols)             \
    {                                                                                                        \
        add_rows(acc, acc_stride, rows, h, h_stride, n_rows, n_tokens, col0, n_cols, type);                  \
    }

AXPY(f32, QUANT_F32)
AXPY(f16, QUANT_F16)
AXPY(bf16, QUANT_BF16)
AXPY(q8_0, QUANT_Q8_0)
AXPY(q4_0, QUANT_Q4_0)
#define AXPY_BLOCKS(name, TYPE) AXPY(name, QUANT_##TYPE)
KERNELS_BLOCK_TYPES(AXPY_BLOCKS)
KERNELS_READ_TYPES(AXPY_BLOCKS)

#define SUMS(name)                                                                                                              \
    static void sums_##name(float *acc, size_t acc_stride, const void *rows, size_t row_stride, const float *h, size_t h_stride, \
                            int n_rows, int n_tokens, int n_cols)                                                               \
    {                                                                                                                           \
        for (int r = 0; r < n_rows; r++) {                                                                                      \
            const void *row = (const uint8_t *)rows + (size_t)r * row_stride;                                                   \
            axpy_row_##name(acc, acc_stride, &row, h + r, h_stride, 1, n_tokens, 0, n_cols);                                    \
        }                                                                                                                       \
    }

SUMS(f32)
SUMS(f16)
SUMS(bf16)
SUMS(q8_0)
SUMS(q4_0)

/* ---- vectors ---- */

/* The arithmetic that every tier repeats to the bit: inv = 127 / max|x|; q = x * inv to the nearest
 * integer, ties to even, clamped to [-127, 127] (a NaN gives -127). */
static void quant_q8(struct kernels_q8_group *out, const float *x, int n)
{
    if (n % 128)
        out[n / 128] = (struct kernels_q8_group){ 0 };
    for (int i = 0; i < n / 32; i++, x += 32) {
        struct kernels_q8_group *g = &out[i / 4];
        int b = i % 4;
        float top = 0;
        for (int j = 0; j < 32; j++)
            top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
        int zero = top < KERNELS_Q8_TINY;
        float inv = zero ? 0 : 127.0f / top;
        for (int j = 0; j < 32; j++) {
            float v = zero ? 0 : x[j] * inv;
            v = v > -127 ? v : -127;
            v = v < 127 ? v : 127;
            g->qs[b * 32 + j] = (int8_t)lrintf(v);
        }
        g->d[b] = zero ? 0 : top / 127.0f;
        kernels_q8_sums(g, b);
    }
}

static float dot_f32(const float *a, const float *b, int n)
{
    return dot_f32_f32((const uint8_t *)a, (const uint8_t *)b, n);
}

static float dot_f16(const float *a, const uint16_t *b, int n)
{
    return dot_f16_f32((const uint8_t *)b, (const uint8_t *)a, n);
}

static void axpy_f32(float *y, float a, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void axpy_f16(float *y, float a, const uint16_t *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * quant_f16_to_f32(x[i]);
}

static void to_f16(uint16_t *out, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = quant_f32_to_f16(x[i]);
}

static void above(uint8_t *bits, const float *x, float least, int n)
{
    for (int i = 0; i < n; i += 8) {
        unsigned b = 0;
        for (int k = 0; k < 8 && i + k < n; k++)
            b |= (unsigned)(x[i + k] > least) << k;
        bits[i / 8] = (uint8_t)b;
    }
}

void kernels_fill_scalar(struct kernels *k)
{
    k->name = "scalar";
#define SET(form, type, name)          \
    k->rows[form][type] = rows_##name; \
    k->rows_at[form][type] = rows_at_##name
    SET(KERNELS_ACT_F32, QUANT_F32, f32_f32);
    SET(KERNELS_ACT_F32, QUANT_F16, f16_f32);
    SET(KERNELS_ACT_F32, QUANT_BF16, bf16_f32);
    SET(KERNELS_ACT_F32, QUANT_Q8_0, q8_0_f32);
    SET(KERNELS_ACT_F32, QUANT_Q4_0, q4_0_f32);
    SET(KERNELS_ACT_Q8, QUANT_Q8_0, q8_0_q8);
    SET(KERNELS_ACT_Q8, QUANT_Q4_0, q4_0_q8);
#define SET_BLOCKS(name, TYPE)                            \
    SET(KERNELS_ACT_F32, QUANT_##TYPE, name##_f32);       \
    SET(KERNELS_ACT_Q8, QUANT_##TYPE, name##_q8);         \
    k->axpy[QUANT_##TYPE] = axpy_row_##name;
    KERNELS_BLOCK_TYPES(SET_BLOCKS)
    KERNELS_READ_TYPES(SET_BLOCKS)
#undef SET
    k->axpy[QUANT_F32] = axpy_row_f32;
    k->axpy[QUANT_F16] = axpy_row_f16;
    k->axpy[QUANT_BF16] = axpy_row_bf16;
    k->axpy[QUANT_Q8_0] = axpy_row_q8_0;
    k->axpy[QUANT_Q4_0] = axpy_row_q4_0;
    k->sums[QUANT_F32] = sums_f32;
    k->sums[QUANT_F16] = sums_f16;
    k->sums[QUANT_BF16] = sums_bf16;
    k->sums[QUANT_Q8_0] = sums_q8_0;
    k->sums[QUANT_Q4_0] = sums_q4_0;
    k->quant_q8 = quant_q8;
    k->dot_f32 = dot_f32;
    k->dot_f16 = dot_f16;
    k->axpy_f32 = axpy_f32;
    k->axpy_f16 = axpy_f16;
    k->to_f16 = to_f16;
    k->above = above;
}
