/* AVX2: floats, Q4_0 and Q8_0; activations to int8. */
#include "common/kernels/kernels_avx2_impl.h"

#include "common/kernels/kernels_simd_impl.h"

/* ---- vectors ---- */

PRIM float largest(const VF v[4])
{
    const VF no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    VF m = vf_zero();
    for (int i = 0; i < 4; i++) /* max(v, w) is w when v is NaN: a NaN never becomes the scale */
        m = _mm256_max_ps(_mm256_and_ps(v[i], no_sign), m);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    m4 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m4, _mm_movehdup_ps(m4)));
}

static void quant_q8(struct kernels_q8_group *out, const float *x, int n)
{
    const VF lo = vf_set1(-127), hi = vf_set1(127);
    if (n % 128)
        out[n / 128] = (struct kernels_q8_group){ 0 };
    for (int i = 0; i < n / 32; i++, x += 32) {
        struct kernels_q8_group *g = &out[i / 4];
        VF v[4] = { vf_load(x), vf_load(x + 8), vf_load(x + 16), vf_load(x + 24) };
        __m256i q[4];
        float top = largest(v);
        int zero = top < KERNELS_Q8_TINY;
        VF inv = vf_set1(zero ? 0 : 127.0f / top);
        for (int k = 0; k < 4; k++)
            q[k] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(v[k], inv), lo), hi));
        /* the packs work within 128-bit lanes; the permutation puts their dwords in order */
        __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)(g->qs + i % 4 * 32), b);
        g->d[i % 4] = zero ? 0 : top / 127.0f;
        kernels_q8_sums(g, i % 4);
    }
}

static void to_f16(uint16_t *out, const float *x, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(vf_load(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        out[i] = quant_f32_to_f16(x[i]);
}

static void above(uint8_t *bits, const float *x, float least, int n)
{
    VF least8 = vf_set1(least);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        bits[i / 8] = (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(vf_load(x + i), least8, _CMP_GT_OQ));
    if (i < n)
        bits[i / 8] = (uint8_t)(_mm256_movemask_ps(_mm256_cmp_ps(vf_load_part(x + i, n - i), least8, _CMP_GT_OQ)) &
                                ((1 << (n - i)) - 1));
}

void kernels_fill_avx2(struct kernels *k)
{
    k->name = "avx2";
    fill_f32(k);
    kernels_fill_k_avx2(k);
    k->quant_q8 = quant_q8;
    k->to_f16 = to_f16;
    k->above = above;
}
