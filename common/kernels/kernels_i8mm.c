/* Armv8.6 int8 matrix products: what dotprod does, and for two or more tokens smmla, which multiplies two rows with
 * two tokens at once. Sums of a block are integers and the floats are added as elsewhere, so a product has the
 * same bits whether its token came alone or in a pair. */
#include "common/kernels/kernels_neon_k_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

struct panel_sums {
    int32x4_t of[2][2]; /* of a pair of tokens: two rows, each with both tokens; the others */
};

PRIM int8x16_t low_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

PRIM int8x16_t high_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

/* Eight columns of two rows side by side. */
PRIM void panel_put(int8_t to[64], const int8x16_t row[4])
{
    vst1q_s8(to, low_halves(row[0], row[1]));
    vst1q_s8(to + 16, high_halves(row[0], row[1]));
    vst1q_s8(to + 32, low_halves(row[2], row[3]));
    vst1q_s8(to + 48, high_halves(row[2], row[3]));
}

/* Of an odd number the last token goes twice. */
PRIM void panel_half(struct panel_sums *s, const int8_t *w, const uint8_t *const x[4], size_t at, int T, int first)
{
    const int8x16_t a0 = vld1q_s8(w), a1 = vld1q_s8(w + 16), b0 = vld1q_s8(w + 32), b1 = vld1q_s8(w + 48);
    UNROLL
    for (int t = 0; t < T; t += 2) {
        const int8x16_t p = vreinterpretq_s8_u8(vld1q_u8(x[t] + at)), q = t + 1 < T ? vreinterpretq_s8_u8(vld1q_u8(x[t + 1] + at)) : p;
        const int8x16_t lo = low_halves(p, q), hi = high_halves(p, q);
        int32x4_t *of = s->of[t / 2];
        of[0] = vmmlaq_s32(vmmlaq_s32(first ? vdupq_n_s32(0) : of[0], a0, lo), a1, hi);
        of[1] = vmmlaq_s32(vmmlaq_s32(first ? vdupq_n_s32(0) : of[1], b0, lo), b1, hi);
    }
}

PRIM int32x4_t panel_rows(const struct panel_sums *s, int t)
{
    const int32x4_t *of = s->of[t / 2];
    return t % 2 ? vuzp2q_s32(of[0], of[1]) : vuzp1q_s32(of[0], of[1]);
}

/* One token as with dotprod. */
#define KERNELS_MANY(f) panel_all
#define KERNELS_OPS_ONLY
#define KERNELS_Q8_ONLY
#include "common/kernels/kernels_simd_k_impl.h"
#include "common/kernels/kernels_neon_panel_impl.h"

#define I8MM_TYPES(X) KERNELS_Q8_TYPES(X) KERNELS_READ_TYPES(X)
#define I8MM(name, TYPE)                                \
    extern const struct row_tiles kernels_dotprod_##name; \
    ROWS_BY(name##_q8, kernels_dotprod_##name)
I8MM_TYPES(I8MM)

void kernels_fill_i8mm(struct kernels *k)
{
    k->name = "i8mm";
#define SET(name, TYPE)                                       \
    k->rows[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_##name##_q8; \
    k->rows_at[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_at_##name##_q8;
    I8MM_TYPES(SET)
#undef SET
}
