/* The kernel table. Tiers are installed from the lowest up, each overwriting what it improves, so a
 * tier implements only what it is better at. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/kernels/kernels_impl.h"

#include <string.h>

static struct kernels table;
const struct kernels *kernels = &table;

/* Products of types that have no kernels of their own: a block becomes floats, once for all tokens of a pass, and the tier's dot product
 * is added, block after block. */
enum { READ_TOKENS = 32 };

static inline void read_row(float *out, size_t out_stride, const uint8_t *row, const uint8_t *x, size_t x_stride, int n_tokens, int n_cols,
                            const struct quant_traits *q)
{
    for (int t0 = 0; t0 < n_tokens; t0 += READ_TOKENS) {
        int n = n_tokens - t0 < READ_TOKENS ? n_tokens - t0 : READ_TOKENS;
        float sum[READ_TOKENS] = { 0 }, w[256], v[256];
        const uint8_t *p = row;
        for (int c = 0; c < n_cols; c += q->block_elems, p += q->block_bytes) {
            q->dequant(w, p, (size_t)q->block_elems);
            for (int t = 0; t < n; t++) {
                /* activations have no alignment */
                memcpy(v, x + (size_t)(t0 + t) * x_stride + (size_t)c * sizeof *v, (size_t)q->block_elems * sizeof *v);
                sum[t] += table.dot_f32(w, v, q->block_elems);
            }
        }
        for (int t = 0; t < n; t++)
            out[(size_t)(t0 + t) * out_stride] = sum[t];
    }
}

#define READ_ROWS(name, TYPE)                                                                                                     \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,        \
                            size_t x_stride, int n_tokens, int n_cols)                                                            \
    {                                                                                                                             \
        for (int r = 0; r < n_rows; r++)                                                                                          \
            read_row(out + r, out_stride, (const uint8_t *)rows + (size_t)r * row_stride, x, x_stride, n_tokens, n_cols,          \
                     quant_traits(QUANT_##TYPE));                                                                                 \
    }                                                                                                                             \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride, \
                               int n_tokens, int n_cols)                                                                          \
    {                                                                                                                             \
        for (int r = 0; r < n_rows; r++)                                                                                          \
            read_row(out + r, out_stride, rows[r], x, x_stride, n_tokens, n_cols, quant_traits(QUANT_##TYPE));                    \
    }
KERNELS_READ_TYPES(READ_ROWS)

void kernels_init(unsigned cpu_mask)
{
    memset(&table, 0, sizeof table);
    kernels_fill_scalar(&table);
#define SET_READ(name, TYPE)                           \
    table.rows[KERNELS_ACT_F32][QUANT_##TYPE] = rows_##name; \
    table.rows_at[KERNELS_ACT_F32][QUANT_##TYPE] = rows_at_##name;
    KERNELS_READ_TYPES(SET_READ)
#undef SET_READ
#if defined(KERNELS_SCALAR_ALONE)
    (void)cpu_mask;
#elif defined(__x86_64__)
    if (cpu_mask & 1u << CPU_AVX2)
        kernels_fill_avx2(&table);
    if (cpu_mask & 1u << CPU_AVXVNNI)
        kernels_fill_avxvnni(&table);
    if (cpu_mask & 1u << CPU_AVX512)
        kernels_fill_avx512(&table);
    if (cpu_mask & 1u << CPU_AMX)
        kernels_fill_amx(&table);
#elif defined(__aarch64__)
    if (cpu_mask & 1u << CPU_NEON)
        kernels_fill_neon(&table);
    if (cpu_mask & 1u << CPU_DOTPROD)
        kernels_fill_dotprod(&table);
    if (cpu_mask & 1u << CPU_I8MM)
        kernels_fill_i8mm(&table);
#else
    (void)cpu_mask;
#endif
#ifdef KERNELS_GUARDED
    kernels_guard(&table);
#endif
}

size_t kernels_act_bytes(enum kernels_act form, int n)
{
    if (form == KERNELS_ACT_Q8)
        return ((size_t)n + 127) / 128 * sizeof(struct kernels_q8_group);
    return (size_t)n * sizeof(float);
}

void kernels_act_prepare(void *out, enum kernels_act form, const float *x, int n)
{
    if (form == KERNELS_ACT_Q8)
        table.quant_q8(out, x, n);
    else
        memcpy(out, x, (size_t)n * sizeof *x);
}

enum kernels_act kernels_act_form(uint32_t type, int want_q8)
{
    if (want_q8 && type < QUANT_LIMIT && table.rows[KERNELS_ACT_Q8][type])
        return KERNELS_ACT_Q8;
    return KERNELS_ACT_F32;
}
