#ifndef COMMON_KERNELS_KERNELS_NEON_K_IMPL_H
#define COMMON_KERNELS_KERNELS_NEON_K_IMPL_H

/* What NEON and dotprod share for the block types beside Q4_0 and Q8_0. dot16 as in kernels_neon_impl.h. */
#if defined(__aarch64__)

#include "common/kernels/kernels_neon_impl.h"
#include "common/kernels/kernels_k_impl.h"

/* Products of three tokens or more go through kernels_neon_panel_impl.h, by what NEON unpacks rows with. */
#define KERNELS_PANELS
#define UNPACK
#define UNPACK_OF(name) kernels_unpack_##name
#define UNPACK_DECLARE(name, TYPE) extern const struct unpack kernels_unpack_##name;
UNPACK_DECLARE(q4_0, Q4_0)
UNPACK_DECLARE(q8_0, Q8_0)
KERNELS_BLOCK_TYPES(UNPACK_DECLARE)
KERNELS_READ_TYPES(UNPACK_DECLARE)

PRIM int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x); /* acc plus the sums of four products each of 16 int8 */

struct kg {
    uint8x16_t lo[4], hi[4]; /* of each block */
};

PRIM float k_half(const uint8_t *p)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)half_at(p)))), 0);
}

PRIM VF vf_i8(const uint8_t *p)
{
    uint8x8_t b = vreinterpret_u8_u32(vdup_n_u32(k_u32(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(b)))));
}

PRIM struct f16x k_bytes(uint64_t lo, uint64_t hi, float k)
{
    int16x8_t a = vmovl_s8(vcreate_s8(lo)), b = vmovl_s8(vcreate_s8(hi));
    return (struct f16x){ { vmulq_n_f32(widen(a, 0), k), vmulq_n_f32(widen(a, 1), k), vmulq_n_f32(widen(b, 0), k),
                            vmulq_n_f32(widen(b, 1), k) } };
}

#define KERNELS_HALVES neon_halves
/* An F16 at `at` of each of nb blocks; 0 for the others. */
PRIM struct f16x neon_halves(const uint8_t *p, size_t block, size_t at, int nb)
{
    return (struct f16x){ { scales(p + at, block, nb), vf_zero(), vf_zero(), vf_zero() } };
}

#define KERNELS_POWERS
/* 2^(e - 128); the two smallest are not normal floats. */
PRIM void k_scales_mxfp4(struct k_scales *k, const uint8_t *p, int nb)
{
    uint32_t e[4];
    UNROLL
    for (int b = 0; b < 4; b++)
        e[b] = b < nb ? p[(size_t)b * sizeof(struct quant_mxfp4)] : 0;
    const uint32x4_t v = vcombine_u32(vcreate_u32(k_join(e[0], e[1])), vcreate_u32(k_join(e[2], e[3])));
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(v));
    const uint32x4_t bits = vbslq_u32(vcltq_u32(v, vdupq_n_u32(2)), small, vshlq_n_u32(vsubq_u32(v, vdupq_n_u32(1)), 23));
    k->s = (struct f16x){ { vreinterpretq_f32_u32(bits), vf_zero(), vf_zero(), vf_zero() } };
}

PRIM struct f16x k_four(const float f[4])
{
    return (struct f16x){ { vld1q_f32(f), vf_zero(), vf_zero(), vf_zero() } };
}

PRIM void kg_store(uint8_t *to, struct kg w)
{
    UNROLL
    for (int b = 0; b < 4; b++) {
        vst1q_u8(to + 16 * b, w.lo[b]);
        vst1q_u8(to + 64 + 16 * b, w.hi[b]);
    }
}

PRIM struct kg kg_load(const uint8_t *from)
{
    struct kg w;
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = vld1q_u8(from + 16 * b);
        w.hi[b] = vld1q_u8(from + 64 + 16 * b);
    }
    return w;
}

#define K_SIGNED 1
PRIM struct kg k_signed(struct kg w, int offset)
{
    if (offset >= K_TABLE || offset == 0)
        return w;
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = vsubq_u8(w.lo[b], vdupq_n_u8((uint8_t)offset));
        w.hi[b] = vsubq_u8(w.hi[b], vdupq_n_u8((uint8_t)offset));
    }
    return w;
}

/* ---- sums of activations ---- */

PRIM struct f16x k_sums(const uint8_t *x, int groups, int sub)
{
    struct f16x r = { { vf_zero(), vf_zero(), vf_zero(), vf_zero() } };
    UNROLL
    for (int g = 0; g < groups; g++) {
        const uint8_t *p = x + (size_t)g * sizeof(struct kernels_q8_group);
        const VF d = vreinterpretq_f32_u8(vld1q_u8(p));
        const int16x8_t sixteens = vreinterpretq_s16_u8(vld1q_u8(p + offsetof(struct kernels_q8_group, sum)));
        if (sub == 32) {
            r.v[g] = vmulq_f32(vcvtq_f32_s32(vpaddlq_s16(sixteens)), d);
        } else {
            r.v[2 * g] = vmulq_f32(widen(sixteens, 0), vzip1q_f32(d, d));
            r.v[2 * g + 1] = vmulq_f32(widen(sixteens, 1), vzip2q_f32(d, d));
        }
    }
    return r;
}

/* ---- products ---- */

PRIM int32x4_t dot_offset(uint8x16_t w, int offset, const uint8_t *x)
{
    int8x16_t s = vreinterpretq_s8_u8(w);
    if (offset < K_TABLE)
        s = vsubq_s8(s, vdupq_n_s8((int8_t)offset));
    return dot16(vdupq_n_s32(0), s, vreinterpretq_s8_u8(vld1q_u8(x)));
}

PRIM VF k_dot(VF acc, struct kg w, struct f16x s, int g, const uint8_t *x, int sub, int offset)
{
    const VF xd = vreinterpretq_f32_u8(vld1q_u8(x));
    int32x4_t lo[4], hi[4];
    UNROLL
    for (int b = 0; b < 4; b++) {
        lo[b] = dot_offset(w.lo[b], offset, x + 32 + 32 * b);
        hi[b] = dot_offset(w.hi[b], offset, x + 48 + 32 * b);
        if (sub == 32)
            lo[b] = vaddq_s32(lo[b], hi[b]);
    }
    int32x4_t l = vpaddq_s32(vpaddq_s32(lo[0], lo[1]), vpaddq_s32(lo[2], lo[3]));
    if (sub == 32)
        return vfmaq_f32(acc, vcvtq_f32_s32(l), vmulq_f32(s.v[g], xd));
    int32x4_t h = vpaddq_s32(vpaddq_s32(hi[0], hi[1]), vpaddq_s32(hi[2], hi[3]));
    VF sum = vmulq_f32(vcvtq_f32_s32(l), vuzp1q_f32(s.v[2 * g], s.v[2 * g + 1]));
    sum = vfmaq_f32(sum, vcvtq_f32_s32(h), vuzp2q_f32(s.v[2 * g], s.v[2 * g + 1]));
    return vfmaq_f32(acc, sum, xd);
}

/* ---- groups ---- */

/* The field of `bits` bits that begins at bit k of each byte, moved to bit `to`. */
PRIM uint8x16_t field(uint8x16_t v, int k, int bits, int to)
{
    v = vshlq_u8(v, vdupq_n_s8((int8_t)(to - k)));
    return vandq_u8(v, vdupq_n_u8((uint8_t)(((1 << bits) - 1) << to)));
}

PRIM struct kg kg_q4_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q4_k, p, qs) + 64 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = field(vld1q_u8(q + b / 2 * 32), b % 2 * 4, 4, 0);
        w.hi[b] = field(vld1q_u8(q + b / 2 * 32 + 16), b % 2 * 4, 4, 0);
    }
    return w;
}

PRIM struct kg kg_q5_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *h = K_AT(q5_k, p, qh);
    struct kg w = kg_q4_k(K_AT(q5_k, p, qs) - offsetof(struct quant_q4_k, qs), g, nb);
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = vorrq_u8(w.lo[b], field(vld1q_u8(h), 4 * g + b, 1, 4));
        w.hi[b] = vorrq_u8(w.hi[b], field(vld1q_u8(h + 16), 4 * g + b, 1, 4));
    }
    return w;
}

PRIM struct kg kg_q6_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q6_k, p, ql) + 64 * g, *h = K_AT(q6_k, p, qh) + 32 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int b = 0; b < 4; b++) {
        const uint8_t *at = q + b % 2 * 32;
        w.lo[b] = vorrq_u8(field(vld1q_u8(at), b / 2 * 4, 4, 0), field(vld1q_u8(h), 2 * b, 2, 4));
        w.hi[b] = vorrq_u8(field(vld1q_u8(at + 16), b / 2 * 4, 4, 0), field(vld1q_u8(h + 16), 2 * b, 2, 4));
    }
    return w;
}

PRIM struct kg kg_q2_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q2_k, p, qs) + 32 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = field(vld1q_u8(q), 2 * b, 2, 0);
        w.hi[b] = field(vld1q_u8(q + 16), 2 * b, 2, 0);
    }
    return w;
}

PRIM struct kg kg_q3_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *h = K_AT(q3_k, p, hmask);
    struct kg w = kg_q2_k(K_AT(q3_k, p, qs) - offsetof(struct quant_q2_k, qs), g, nb);
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = vorrq_u8(w.lo[b], field(vld1q_u8(h), 4 * g + b, 1, 2));
        w.hi[b] = vorrq_u8(w.hi[b], field(vld1q_u8(h + 16), 4 * g + b, 1, 2));
    }
    return w;
}

PRIM struct kg nibbles(const uint8_t *p, size_t block, size_t at, int nb)
{
    struct kg w;
    UNROLL
    for (int b = 0; b < 4; b++) {
        uint8x16_t q = b < nb ? vld1q_u8(p + (size_t)b * block + at) : vdupq_n_u8(0);
        w.lo[b] = field(q, 0, 4, 0);
        w.hi[b] = field(q, 4, 4, 0);
    }
    return w;
}

PRIM struct kg kg_q4_0(const uint8_t *p, int g, int nb)
{
    (void)g;
    return nibbles(p, sizeof(struct quant_q4_0), offsetof(struct quant_q4_0, qs), nb);
}

PRIM struct kg kg_q8_0(const uint8_t *p, int g, int nb)
{
    struct kg w;
    (void)g;
    UNROLL
    for (int b = 0; b < 4; b++) {
        const uint8_t *q = p + (size_t)b * sizeof(struct quant_q8_0) + offsetof(struct quant_q8_0, qs);
        w.lo[b] = b < nb ? vld1q_u8(q) : vdupq_n_u8(0);
        w.hi[b] = b < nb ? vld1q_u8(q + 16) : vdupq_n_u8(0);
    }
    return w;
}

/* All ones where bit j is set, for byte j. */
PRIM uint8x16_t where16(uint32_t bits)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    return vtstq_u8(vcombine_u8(vdup_n_u8((uint8_t)bits), vdup_n_u8((uint8_t)(bits >> 8))), bit);
}

PRIM uint8x16_t bits16(uint32_t bits)
{
    return vandq_u8(where16(bits), vdupq_n_u8(16));
}

PRIM struct kg fifth_bits(struct kg w, const uint8_t *p, size_t block, size_t at, int nb)
{
    UNROLL
    for (int b = 0; b < 4; b++) {
        uint32_t h = b < nb ? k_u32(p + (size_t)b * block + at) : 0;
        w.lo[b] = vorrq_u8(w.lo[b], bits16(h));
        w.hi[b] = vorrq_u8(w.hi[b], bits16(h >> 16));
    }
    return w;
}

PRIM struct kg look_up(struct kg w, const int8_t values[16])
{
    const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(values));
    UNROLL
    for (int b = 0; b < 4; b++) {
        w.lo[b] = vqtbl1q_u8(t, w.lo[b]);
        w.hi[b] = vqtbl1q_u8(t, w.hi[b]);
    }
    return w;
}

/* ---- types that are read and not written ---- */

#define KERNELS_READ_EIGHTS

PRIM void put_eights(uint8_t *to, const uint64_t w[4], const uint8_t signs[4])
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t negative = where16(signs[2 * i] | (uint32_t)signs[2 * i + 1] << 8);
        const uint8x16_t v = vcombine_u8(vcreate_u8(w[2 * i]), vcreate_u8(w[2 * i + 1]));
        vst1q_u8(to + 16 * i, vsubq_u8(veorq_u8(v, negative), negative));
    }
}

/* Half a step's. */
PRIM void signs_store(uint8_t signs[16], uint8x16_t s)
{
    static const uint8_t order[16] = { 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15 };
    vst1q_u8(signs, vqtbl1q_u8(s, vld1q_u8(order)));
}

/* The eighth sign makes the number of negative ones even. */
PRIM uint8x16_t signs_eighth(uint8x16_t s)
{
    return vorrq_u8(s, vshlq_n_u8(vcntq_u8(s), 7));
}

PRIM uint32x4_t words4(const uint8_t *p, size_t stride)
{
    if (stride == 4)
        return vreinterpretq_u32_u8(vld1q_u8(p));
    return vuzp2q_u32(vreinterpretq_u32_u8(vld1q_u8(p - 4)), vreinterpretq_u32_u8(vld1q_u8(p + 12)));
}

#define K16 uint8x16_t

PRIM K16 k_tops(const uint8_t *p, size_t stride)
{
    const uint16x4_t a = vmovn_u32(vshrq_n_u32(words4(p, stride), 28)), b = vmovn_u32(vshrq_n_u32(words4(p + 4 * stride, stride), 28));
    const uint8x8_t n = vmovn_u16(vcombine_u16(a, b));
    return vcombine_u8(vzip1_u8(n, n), vzip2_u8(n, n));
}

PRIM K16 k_sixteen(const uint8_t *p)
{
    const uint8x8_t q = vld1_u8(p), lo = vand_u8(q, vdup_n_u8(15)), hi = vshr_n_u8(q, 4);
    return vcombine_u8(vzip1_u8(lo, hi), vzip2_u8(lo, hi));
}

PRIM K16 k_eight(const uint8_t *p)
{
    const uint8x8_t q = vreinterpret_u8_u32(vdup_n_u32(k_u32(p))), n = vzip1_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4));
    return vcombine_u8(vzip1_u8(n, n), vzip2_u8(n, n));
}

PRIM K16 k_odd(K16 n)
{
    return vorrq_u8(vshlq_n_u8(n, 1), vdupq_n_u8(1));
}

PRIM struct f16x k_times(K16 n, float k)
{
    const uint64x2_t v = vreinterpretq_u64_u8(n);
    return k_bytes(vgetq_lane_u64(v, 0), vgetq_lane_u64(v, 1), k);
}

PRIM void signs_words(uint8_t signs[32], const uint8_t *p, size_t stride)
{
    UNROLL
    for (size_t g = 0; g < 2; g++) {
        const uint32x4_t w = words4(p + 4 * g * stride, stride);
        const uint32x4_t twos = vbslq_u32(vdupq_n_u32(0x3fff), w, vshlq_n_u32(w, 2));
        const uint16x8_t t = vreinterpretq_u16_u32(twos);
        const uint16x8_t seven = vandq_u16(vbslq_u16(vdupq_n_u16(0x7f), t, vshlq_n_u16(t, 1)), vdupq_n_u16(0x7f7f));
        signs_store(signs + 16 * g, signs_eighth(vreinterpretq_u8_u16(seven)));
    }
}

PRIM void signs_tops(uint8_t signs[32], const uint8_t *p)
{
    UNROLL
    for (int g = 0; g < 2; g++) {
        const uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(p + 32 * g)), b = vreinterpretq_u16_u8(vld1q_u8(p + 32 * g + 16));
        signs_store(signs + 16 * g, signs_eighth(vcombine_u8(vmovn_u16(vshrq_n_u16(a, 9)), vmovn_u16(vshrq_n_u16(b, 9)))));
    }
}

PRIM void signs_bytes(uint8_t signs[32], const uint8_t *p)
{
    signs_store(signs, vld1q_u8(p));
    signs_store(signs + 16, vld1q_u8(p + 16));
}

#endif
#endif
