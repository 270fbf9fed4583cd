/* What every tier instantiates of kernels_simd_impl.h, which includes it: products with floats, accumulations and sums of floats, of
 * Q8_0 and of Q4_0. */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_FILL_H)
#define COMMON_KERNELS_FILL_H

#include "common/kernels/kernels_simd_impl.h"

#include "common/kernels/kernels_sums_impl.h"

#define OPS_F32  ((struct type_ops){ w_f32, part_f32, 128 })
#define OPS_F16  ((struct type_ops){ w_f16, part_f16, 64 })
#define OPS_BF16 ((struct type_ops){ w_bf16, part_bf16, 64 })
#define OPS_Q8_0 ((struct type_ops){ w_q8_0, NULL, sizeof(struct quant_q8_0) })
#define OPS_Q4_0 ((struct type_ops){ w_q4_0, NULL, sizeof(struct quant_q4_0) })

#define SUMS_F32(acc, stride, a, h, R, T)  axpy_tile(acc, stride, a, h, R, T, OPS_F32)
#define SUMS_F16(acc, stride, a, h, R, T)  axpy_tile(acc, stride, a, h, R, T, OPS_F16)
#define SUMS_BF16(acc, stride, a, h, R, T) axpy_tile(acc, stride, a, h, R, T, OPS_BF16)
#define SUMS_Q8_0(acc, stride, a, h, R, T) axpy_tile(acc, stride, a, h, R, T, OPS_Q8_0)
#define SUMS_Q4_0(acc, stride, a, h, R, T) axpy_tile(acc, stride, a, h, R, T, OPS_Q4_0)
#define TILE_F32_F32(a, R, T)  tile_f32(a, R, T, OPS_F32)
#define TILE_F16_F32(a, R, T)  tile_f32(a, R, T, OPS_F16)
#define TILE_BF16_F32(a, R, T) tile_f32(a, R, T, OPS_BF16)
#define TILE_Q8_0_F32(a, R, T) tile_f32(a, R, T, OPS_Q8_0)
#define TILE_Q4_0_F32(a, R, T) tile_f32(a, R, T, OPS_Q4_0)
ROWS(f32_f32, QUANT_F32, TILE_F32_F32, NULL)
ROWS(f16_f32, QUANT_F16, TILE_F16_F32, NULL)
ROWS(bf16_f32, QUANT_BF16, TILE_BF16_F32, NULL)
static void strip_q8_0_f32(const struct tile *a, int n)
{
    strip_f32(a, n, OPS_Q8_0);
}

static void strip_q4_0_f32(const struct tile *a, int n)
{
    strip_f32(a, n, OPS_Q4_0);
}

ROWS(q8_0_f32, QUANT_Q8_0, TILE_Q8_0_F32, strip_q8_0_f32)
ROWS(q4_0_f32, QUANT_Q4_0, TILE_Q4_0_F32, strip_q4_0_f32)
AXPY(f32, QUANT_F32, SUMS_F32, 4)
AXPY(f16, QUANT_F16, SUMS_F16, 4)
AXPY(bf16, QUANT_BF16, SUMS_BF16, 4)
SUMS(f32, OPS_F32)
SUMS(f16, OPS_F16)
SUMS(bf16, OPS_BF16)
SUMS(q8_0, OPS_Q8_0)
SUMS(q4_0, OPS_Q4_0)
AXPY(q8_0, QUANT_Q8_0, SUMS_Q8_0, 4)
AXPY(q4_0, QUANT_Q4_0, SUMS_Q4_0, KERNELS_AXPY_R)

static float dot_f32(const float *a, const float *b, int n)
{
    return dot_vf((const uint8_t *)b, a, n, OPS_F32);
}

static float dot_f16(const float *a, const uint16_t *b, int n)
{
    return dot_vf((const uint8_t *)b, a, n, OPS_F16);
}

static void axpy_vec_f32(float *y, float a, const float *x, int n)
{
    axpy_vf(y, a, (const uint8_t *)x, n, OPS_F32);
}

static void axpy_vec_f16(float *y, float a, const uint16_t *x, int n)
{
    axpy_vf(y, a, (const uint8_t *)x, n, OPS_F16);
}

static void fill_f32(struct kernels *k)
{
#define SET(type, name)                                       \
    k->rows[KERNELS_ACT_F32][type] = rows_##name##_f32;       \
    k->rows_at[KERNELS_ACT_F32][type] = rows_at_##name##_f32; \
    k->axpy[type] = axpy_##name
    SET(QUANT_F32, f32);
    SET(QUANT_F16, f16);
    SET(QUANT_BF16, bf16);
    SET(QUANT_Q8_0, q8_0);
    SET(QUANT_Q4_0, q4_0);
#undef SET
    k->sums[QUANT_F32] = sums_f32;
    k->sums[QUANT_F16] = sums_f16;
    k->sums[QUANT_BF16] = sums_bf16;
    k->sums[QUANT_Q8_0] = sums_q8_0;
    k->sums[QUANT_Q4_0] = sums_q4_0;
    k->dot_f32 = dot_f32;
    k->dot_f16 = dot_f16;
    k->axpy_f32 = axpy_vec_f32;
    k->axpy_f16 = axpy_vec_f16;
}
#endif
