/* NEON: products with int8, and the block types beside Q4_0 and Q8_0. int8 multiply to 16 bits, where two of them fit
 * (2 * 128 * 127 = 32512), then widen. */
#include "common/kernels/kernels_neon_k_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    int16x8_t p = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    return vpadalq_s16(acc, vmlal_high_s8(p, w, x));
}

/* ---- panels: rows as they are, sums of each added up at the end ---- */

struct panel_sums {
    int32x4_t of[4][4]; /* of a token, of a row */
};

PRIM void panel_put(int8_t to[64], const int8x16_t row[4])
{
    UNROLL
    for (int r = 0; r < 4; r++)
        vst1q_s8(to + 16 * r, row[r]);
}

PRIM void panel_half(struct panel_sums *s, const int8_t *w, const uint8_t *const x[4], size_t at, int T, int first)
{
    UNROLL
    for (int r = 0; r < 4; r++) {
        const int8x16_t v = vld1q_s8(w + 16 * r);
        UNROLL
        for (int t = 0; t < T; t++)
            s->of[t][r] = dot16(first ? vdupq_n_s32(0) : s->of[t][r], v, vreinterpretq_s8_u8(vld1q_u8(x[t] + at)));
    }
}

PRIM int32x4_t panel_rows(const struct panel_sums *s, int t)
{
    return vpaddq_s32(vpaddq_s32(s->of[t][0], s->of[t][1]), vpaddq_s32(s->of[t][2], s->of[t][3]));
}

#define PANEL             static
#define PANEL_FOURS       0ull
#define PANEL_TABLE(name) panel_tiles_##name
#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_neon(struct kernels *k)
{
    quant_iq_codebooks_expand();
    fill_k_f32(k);
    fill_k_q8(k);
}
