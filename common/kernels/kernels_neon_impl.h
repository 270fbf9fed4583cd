#ifndef COMMON_KERNELS_KERNELS_NEON_IMPL_H
#define COMMON_KERNELS_KERNELS_NEON_IMPL_H

/* What the aarch64 tiers share: vector primitives for kernels_simd_impl.h. */
#if defined(__aarch64__)

#include "common/kernels/kernels_impl.h"

#include <arm_neon.h>
#include <string.h>

#define KERNELS_VN       4
#define KERNELS_TILE_T   4
#define KERNELS_PREFETCH 1024
#define VF               float32x4_t
#define PRIM             static inline __attribute__((always_inline))

/* ---- floats ---- */

PRIM VF vf_zero(void)
{
    return vdupq_n_f32(0);
}

PRIM VF vf_set1(float f)
{
    return vdupq_n_f32(f);
}

PRIM VF vf_load(const float *p)
{
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
}

PRIM void vf_store(float *p, VF v)
{
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_f32(v));
}

PRIM VF vf_add(VF a, VF b)
{
    return vaddq_f32(a, b);
}

PRIM VF vf_mul(VF a, VF b)
{
    return vmulq_f32(a, b);
}

PRIM VF vf_fma(VF a, VF b, VF c)
{
    return vfmaq_f32(c, a, b);
}

PRIM VF vf_load_part(const float *p, int n)
{
    float t[4] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1q_f32(t);
}

PRIM void vf_store_part(float *p, VF v, int n)
{
    float t[4];
    vst1q_f32(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}

PRIM float vf_sum(VF v)
{
    float32x2_t a = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(a, 0) + vget_lane_f32(a, 1);
}

/* ---- weights as floats ---- */

PRIM VF w_f32(const uint8_t *p, int v)
{
    return vreinterpretq_f32_u8(vld1q_u8(p + 16 * v));
}

PRIM VF part_f32(const uint8_t *p, int n)
{
    float t[4] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1q_f32(t);
}

PRIM VF w_f16(const uint8_t *p, int v)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * v)));
}

PRIM uint16x4_t part_16(const uint8_t *p, int n)
{
    uint16_t t[4] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1_u16(t);
}

PRIM VF part_f16(const uint8_t *p, int n)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(part_16(p, n)));
}

PRIM VF w_bf16(const uint8_t *p, int v)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * v)), 16));
}

PRIM VF part_bf16(const uint8_t *p, int n)
{
    return vreinterpretq_f32_u32(vshll_n_u16(part_16(p, n), 16));
}

PRIM uint64_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

PRIM VF scales(const uint8_t *p, size_t block, int nb)
{
    uint64_t h = half_at(p);
    for (int b = 1; b < 4; b++)
        h |= b < nb ? half_at(p + (size_t)b * block) << 16 * b : 0;
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(h)));
}

PRIM void scales4(float d[4], const uint8_t *p, size_t block, int nb, float h)
{
    vst1q_f32(d, vmulq_n_f32(scales(p, block, nb), h));
}

/* Half `high` of eight int16, as floats. */
PRIM VF widen(int16x8_t q, int high)
{
    return vcvtq_f32_s32(vmovl_s16(high ? vget_high_s16(q) : vget_low_s16(q)));
}

PRIM VF w_q8_0(const uint8_t *p, int v)
{
    int16x8_t q = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p + 2 + 8 * (v >> 1))));
    return widen(q, v & 1);
}

PRIM VF w_q4_0(const uint8_t *p, int v)
{
    uint8x8_t q = vld1_u8(p + 2 + 8 * (v >> 1 & 1));
    q = v < 4 ? vand_u8(q, vdup_n_u8(15)) : vshr_n_u8(q, 4);
    int16x8_t s = vmovl_s8(vsub_s8(vreinterpret_s8_u8(q), vdup_n_s8(8)));
    return widen(s, v & 1);
}

#endif
#endif
