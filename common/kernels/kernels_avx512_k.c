/* AVX-512 with VNNI: the block types beside Q4_0 and Q8_0. A group fills two vectors, a block in each 128-bit lane. */
#include "common/kernels/kernels_avx512_impl.h"
#include "common/kernels/kernels_k_impl.h"

struct kg {
    __m512i lo, hi;
};

PRIM float k_half(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)half_at(p))));
}

PRIM VF vf_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

PRIM struct f16x k_bytes(uint64_t lo, uint64_t hi, float k)
{
    __m128i b = _mm_set_epi64x((long long)hi, (long long)lo);
    return (struct f16x){ { _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)), vf_set1(k)) } };
}

PRIM struct f16x k_four(const float f[4])
{
    return (struct f16x){ { _mm512_zextps128_ps512(_mm_loadu_ps(f)) } };
}

PRIM void kg_store(uint8_t *to, struct kg w)
{
    _mm512_storeu_si512(to, w.lo);
    _mm512_storeu_si512(to + 64, w.hi);
}

/* ---- sums of activations ---- */

PRIM __m512i sum_fours(const uint8_t *x)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(x));
}

/* Lane j of the four vectors is block j's sums of fours: those are added and stand side by side, then the lanes in column order. */
PRIM struct f16x k_sums(const uint8_t *x, int groups, int sub)
{
    const size_t group = sizeof(struct kernels_q8_group);
    __m512i a = sum_fours(x + 16), b = sum_fours(x + 80), c = _mm512_setzero_si512(), d = c;
    __m128 d0 = _mm_loadu_ps((const void *)x), d1 = _mm_setzero_ps();
    if (groups == 2) {
        c = sum_fours(x + group + 16);
        d = sum_fours(x + group + 80);
        d1 = _mm_loadu_ps((const void *)(x + group));
    }
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    __m512 scale = _mm512_castps256_ps512(_mm256_set_m128(d1, d0));
    if (sub == 16) {
        s = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15), s);
        scale = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), scale);
        return (struct f16x){ { _mm512_mul_ps(_mm512_cvtepi32_ps(s), scale) } };
    }
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, 0xb1));
    s = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0), s);
    return (struct f16x){ { _mm512_maskz_mul_ps(groups == 2 ? 0xff : 0x0f, _mm512_cvtepi32_ps(s), scale) } };
}

/* ---- products ---- */

PRIM VF spread(VF s, int first, int step)
{
    const int a = first, b = first + step, c = first + 2 * step, d = first + 3 * step;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d), s);
}

/* What an offset takes off the sums of fours. */
PRIM __m512i start(__m512i from, int offset, __m512i x)
{
    return offset ? _mm512_sub_epi32(from, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), x)) : from;
}

PRIM VF k_dot(VF acc, struct kg w, struct f16x s, int g, const uint8_t *x, int sub, int offset)
{
    const __m512i xlo = _mm512_loadu_si512(x + 16), xhi = _mm512_loadu_si512(x + 80), zero = _mm512_setzero_si512();
    const VF xd = spread(_mm512_castps128_ps512(_mm_loadu_ps((const void *)x)), 0, 1);
    if (offset == K_TABLE) { /* one operand has to be unsigned */
        w.lo = _mm512_xor_si512(w.lo, _mm512_set1_epi8(-128));
        w.hi = _mm512_xor_si512(w.hi, _mm512_set1_epi8(-128));
    }
    if (sub == 32) {
        __m512i dot = _mm512_dpbusd_epi32(start(start(zero, offset, xlo), offset, xhi), w.lo, xlo);
        dot = _mm512_dpbusd_epi32(dot, w.hi, xhi);
        return vf_fma(_mm512_cvtepi32_ps(dot), vf_mul(spread(s.v[0], 4 * g, 1), xd), acc);
    }
    VF lo = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start(zero, offset, xlo), w.lo, xlo));
    VF hi = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start(zero, offset, xhi), w.hi, xhi));
    VF sum = vf_fma(hi, spread(s.v[0], 8 * g + 1, 2), vf_mul(lo, spread(s.v[0], 8 * g, 2)));
    return vf_fma(sum, xd, acc);
}

/* ---- groups ---- */

#define FOUR(a, b, c, d) _mm512_setr_epi64(a, a, b, b, c, c, d, d)

/* (w & mask) | v, and v | (w & mask) for bytes */
PRIM __m512i or_and(__m512i v, __m512i w, int mask)
{
    return _mm512_ternarylogic_epi64(v, w, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Sixteen bytes in each lane, bit k + step * lane of each byte at bit `to`: of a rotation of 64 bits, what stays within its byte. */
PRIM __m512i fields(const uint8_t *p, int k, int step, int to)
{
    const int r = to - k + 64;
    return _mm512_rolv_epi64(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p)),
                             FOUR(r & 63, (r - step) & 63, (r - 2 * step) & 63, (r - 3 * step) & 63));
}

/* Of 64 bytes, those of lanes a and b; low nibbles where a lane of `high` is 0, else high ones. */
#define NIBBLES(q, lanes, high)                                                                            \
    _mm512_and_si512(_mm512_mask_srli_epi64(_mm512_shuffle_i64x2(q, q, lanes), high,                       \
                                            _mm512_shuffle_i64x2(q, q, lanes), 4), _mm512_set1_epi8(15))

PRIM struct kg kg_q4_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q4_k, p, qs) + 64 * g);
    (void)nb;
    return (struct kg){ NIBBLES(q, 0xa0, 0xcc), NIBBLES(q, 0xf5, 0xcc) };
}

PRIM struct kg kg_q5_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q5_k, p, qs) + 64 * g);
    const uint8_t *h = K_AT(q5_k, p, qh);
    (void)nb;
    return (struct kg){ or_and(NIBBLES(q, 0xa0, 0xcc), fields(h, 4 * g, 1, 4), 0x10),
                        or_and(NIBBLES(q, 0xf5, 0xcc), fields(h + 16, 4 * g, 1, 4), 0x10) };
}

PRIM struct kg kg_q6_k(const uint8_t *p, int g, int nb)
{
    const __m512i q = _mm512_loadu_si512(K_AT(q6_k, p, ql) + 64 * g);
    const uint8_t *h = K_AT(q6_k, p, qh) + 32 * g;
    (void)nb;
    return (struct kg){ or_and(NIBBLES(q, 0x88, 0xf0), fields(h, 0, 2, 4), 0x30),
                        or_and(NIBBLES(q, 0xdd, 0xf0), fields(h + 16, 0, 2, 4), 0x30) };
}

PRIM struct kg kg_q2_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q2_k, p, qs) + 32 * g;
    const __m512i two = _mm512_set1_epi8(3);
    (void)nb;
    return (struct kg){ _mm512_and_si512(fields(q, 0, 2, 0), two), _mm512_and_si512(fields(q + 16, 0, 2, 0), two) };
}

PRIM struct kg kg_q3_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *h = K_AT(q3_k, p, hmask);
    struct kg w = kg_q2_k(K_AT(q3_k, p, qs) - offsetof(struct quant_q2_k, qs), g, nb);
    return (struct kg){ or_and(w.lo, fields(h, 4 * g, 1, 2), 4), or_and(w.hi, fields(h + 16, 4 * g, 1, 2), 4) };
}

PRIM struct kg nibbles(const uint8_t *p, size_t block, size_t at, int nb)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q;
    if (block == 16 && nb == 4) {
        q = _mm512_loadu_si512(p + at);
    } else {
        __m128i b[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            b[i] = i < nb ? _mm_loadu_si128((const void *)(p + (size_t)i * block + at)) : _mm_setzero_si128();
        q = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b[1], b[0])), _mm256_set_m128i(b[3], b[2]), 1);
    }
    return (struct kg){ _mm512_and_si512(q, low), _mm512_and_si512(_mm512_srli_epi16(q, 4), low) };
}

PRIM struct kg fifth_bits(struct kg w, const uint8_t *p, size_t block, size_t at, int nb)
{
    const __m512i bit = _mm512_set1_epi8(16);
    uint64_t lo = 0, hi = 0;
    UNROLL
    for (int b = 0; b < 4; b++) {
        uint32_t h = b < nb ? k_u32(p + (size_t)b * block + at) : 0;
        lo |= (uint64_t)(h & 0xffff) << 16 * b;
        hi |= (uint64_t)(h >> 16) << 16 * b;
    }
    return (struct kg){ _mm512_or_si512(w.lo, _mm512_maskz_mov_epi8(lo, bit)), _mm512_or_si512(w.hi, _mm512_maskz_mov_epi8(hi, bit)) };
}

PRIM struct kg look_up(struct kg w, const int8_t values[16])
{
    const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values));
    return (struct kg){ _mm512_shuffle_epi8(t, w.lo), _mm512_shuffle_epi8(t, w.hi) };
}

#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_avx512(struct kernels *k)
{
    fill_k_f32(k);
    fill_k_q8(k);
}
