/* AVX-512: floats, Q4_0 and Q8_0; activations to int8. */
#include "common/kernels/kernels_avx512_impl.h"

#include "common/kernels/kernels_simd_impl.h"

/* ---- vectors ---- */

PRIM float largest(VF a, VF b)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    /* max(v, w) is w when v is NaN: a NaN never becomes the scale */
    VF m = _mm512_max_ps(_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), no_sign)), vf_zero());
    m = _mm512_max_ps(_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(b), no_sign)), m);
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    m4 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m4, _mm_movehdup_ps(m4)));
}

static void quant_q8(struct kernels_q8_group *out, const float *x, int n)
{
    const VF lo = _mm512_set1_ps(-127), hi = _mm512_set1_ps(127);
    if (n % 128)
        out[n / 128] = (struct kernels_q8_group){ 0 };
    for (int i = 0; i < n / 32; i++, x += 32) {
        struct kernels_q8_group *g = &out[i / 4];
        VF a = vf_load(x), b = vf_load(x + 16);
        float top = largest(a, b);
        int zero = top < KERNELS_Q8_TINY;
        VF inv = vf_set1(zero ? 0 : 127.0f / top);
        a = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(a, inv), lo), hi);
        b = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(b, inv), lo), hi);
        __m512i qa = _mm512_cvtps_epi32(a), qb = _mm512_cvtps_epi32(b);
        _mm_storeu_si128((void *)(g->qs + i % 4 * 32), _mm512_cvtepi32_epi8(qa));
        _mm_storeu_si128((void *)(g->qs + i % 4 * 32 + 16), _mm512_cvtepi32_epi8(qb));
        g->d[i % 4] = zero ? 0 : top / 127.0f;
        kernels_q8_sums(g, i % 4);
    }
}

static void to_f16(uint16_t *out, const float *x, int n)
{
    int i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    if (i < n)
        _mm256_mask_storeu_epi16(out + i, (__mmask16)((1u << (n - i)) - 1),
                                 _mm512_cvtps_ph(vf_load_part(x + i, n - i), _MM_FROUND_TO_NEAREST_INT));
}

static void above(uint8_t *bits, const float *x, float least, int n)
{
    VF least16 = vf_set1(least);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        uint16_t b = (uint16_t)_mm512_cmp_ps_mask(vf_load(x + i), least16, _CMP_GT_OQ);
        memcpy(bits + i / 8, &b, sizeof b);
    }
    if (i < n) {
        uint16_t b = (uint16_t)_mm512_mask_cmp_ps_mask((__mmask16)((1u << (n - i)) - 1), vf_load_part(x + i, n - i), least16,
                                                       _CMP_GT_OQ);
        memcpy(bits + i / 8, &b, (size_t)(n - i + 7) / 8);
    }
}

void kernels_fill_avx512(struct kernels *k)
{
    k->name = "avx512";
    fill_f32(k);
    kernels_fill_k_avx512(k);
    k->quant_q8 = quant_q8;
    k->to_f16 = to_f16;
    k->above = above;
}
