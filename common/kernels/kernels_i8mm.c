/* Armv8.6 int8 matrix products: what dotprod does, and for two or more tokens smmla, which multiplies two rows with
 * two tokens at once. Sums of a block are integers and the floats are added as elsewhere, so a product has the
 * same bits whether its token came alone or in a pair. */
#include "common/kernels/kernels_neon_impl.h"

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

/* Four blocks of two rows, or of two tokens: q[b][k] holds elements 8k to 8k + 7 of block b of the one, then of
 * the other. */
struct pair {
    int8x16_t q[4][4];
    VF d[2];
};

PRIM int8x16_t low_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

PRIM int8x16_t high_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

#define PAIR_UP(a, b)                                     \
    struct pair p = { .d = { (a).d, (b).d } };            \
    for (int i = 0; i < 4; i++) {                         \
        p.q[i][0] = low_halves((a).lo[i], (b).lo[i]);     \
        p.q[i][1] = high_halves((a).lo[i], (b).lo[i]);    \
        p.q[i][2] = low_halves((a).hi[i], (b).hi[i]);     \
        p.q[i][3] = high_halves((a).hi[i], (b).hi[i]);    \
    }                                                     \
    return p

PRIM struct pair pair_w(struct wq a, struct wq b)
{
    PAIR_UP(a, b);
}

PRIM struct pair pair_x(struct xq a, struct xq b)
{
    PAIR_UP(a, b);
}

PRIM VF add_scaled(VF acc, int32x4_t low, int32x4_t high, int upper, VF w, VF x)
{
    int64x2_t a = vreinterpretq_s64_s32(low), b = vreinterpretq_s64_s32(high);
    int32x4_t sums = vreinterpretq_s32_s64(upper ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
    return vfmaq_f32(acc, vcvtq_f32_s32(sums), vmulq_f32(w, x));
}

/* acc[i][j] += row i times token j. s[b] has the four sums of block b; a transposition puts blocks side by side. */
PRIM void dq_pairs(VF *acc[2], struct pair w, struct pair x)
{
    int32x4_t s[4];
    for (int b = 0; b < 4; b++) {
        s[b] = vmmlaq_s32(vdupq_n_s32(0), w.q[b][0], x.q[b][0]);
        for (int k = 1; k < 4; k++)
            s[b] = vmmlaq_s32(s[b], w.q[b][k], x.q[b][k]);
    }
    for (int j = 0; j < 2; j++) {
        int32x4_t low = j ? vtrn2q_s32(s[0], s[1]) : vtrn1q_s32(s[0], s[1]);
        int32x4_t high = j ? vtrn2q_s32(s[2], s[3]) : vtrn1q_s32(s[2], s[3]);
        for (int i = 0; i < 2; i++)
            acc[i][j] = add_scaled(acc[i][j], low, high, i, w.d[i], x.d[j]);
    }
}

#define KERNELS_PAIRS
#define KERNELS_Q8_ONLY
#define KERNELS_TILE_3 /* without pairs: of three tokens one would go twice */
#include "common/kernels/kernels_simd_impl.h"

void kernels_fill_i8mm(struct kernels *k)
{
    k->name = "i8mm";
    fill_q8(k);
}
