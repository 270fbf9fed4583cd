/* Armv8.2 dot products: what NEON does, with sdot for the int8 products. */
#include "common/kernels/kernels_neon_k_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

/* ---- panels ---- */

struct panel_sums {
    int32x4_t of[4]; /* of a token */
};

/* Four columns of each row side by side. */
PRIM void panel_put(int8_t to[64], const int8x16_t row[4])
{
    const int32x4_t a = vreinterpretq_s32_s8(row[0]), b = vreinterpretq_s32_s8(row[1]), c = vreinterpretq_s32_s8(row[2]),
                    d = vreinterpretq_s32_s8(row[3]);
    const int64x2_t ab0 = vreinterpretq_s64_s32(vtrn1q_s32(a, b)), ab1 = vreinterpretq_s64_s32(vtrn2q_s32(a, b));
    const int64x2_t cd0 = vreinterpretq_s64_s32(vtrn1q_s32(c, d)), cd1 = vreinterpretq_s64_s32(vtrn2q_s32(c, d));
    vst1q_s8(to, vreinterpretq_s8_s64(vtrn1q_s64(ab0, cd0)));
    vst1q_s8(to + 16, vreinterpretq_s8_s64(vtrn1q_s64(ab1, cd1)));
    vst1q_s8(to + 32, vreinterpretq_s8_s64(vtrn2q_s64(ab0, cd0)));
    vst1q_s8(to + 48, vreinterpretq_s8_s64(vtrn2q_s64(ab1, cd1)));
}

PRIM void panel_half(struct panel_sums *s, const int8_t *w, const uint8_t *const x[4], size_t at, int T, int first)
{
    const int8x16_t a = vld1q_s8(w), b = vld1q_s8(w + 16), c = vld1q_s8(w + 32), d = vld1q_s8(w + 48);
    UNROLL
    for (int t = 0; t < T; t++) {
        const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(x[t] + at));
        const int32x4_t sum = vdotq_laneq_s32(vdotq_laneq_s32(first ? vdupq_n_s32(0) : s->of[t], a, v, 0), b, v, 1);
        s->of[t] = vdotq_laneq_s32(vdotq_laneq_s32(sum, c, v, 2), d, v, 3);
    }
}

PRIM int32x4_t panel_rows(const struct panel_sums *s, int t)
{
    return s->of[t];
}

#define KERNELS_Q8_ONLY /* a tier that improves only the int8 products */
#define PANEL
/* Of four tokens these take fewer instructions as a tile of their own. */
#define PANEL_FOURS (1ull << QUANT_Q4_1 | 1ull << QUANT_Q5_0 | 1ull << QUANT_IQ4_NL | 1ull << QUANT_IQ4_XS | 1ull << QUANT_MXFP4)
#define PANEL_TABLE(name) kernels_dotprod_##name
#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_dotprod(struct kernels *k)
{
    k->name = "dotprod";
    fill_k_q8(k);
}
