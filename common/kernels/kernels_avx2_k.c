/* AVX2: the block types beside Q4_0 and Q8_0. Two blocks at a time, one in each 128-bit lane. Sums of pairs fit 16 bits: bytes
 * are at most 63 but for those of tables, whose products are signed (2 * 127 * 127 = 32258). */
#include "common/kernels/kernels_avx2_impl.h"
#include "common/kernels/kernels_k_impl.h"

struct kg {
    __m256i lo[2], hi[2]; /* [i]: blocks 2i and 2i + 1 */
};

PRIM float k_half(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)half_at(p))));
}

PRIM VF vf_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

PRIM struct f16x k_bytes(uint64_t lo, uint64_t hi, float k)
{
    struct f16x r;
    r.v[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)lo))), vf_set1(k));
    r.v[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)hi))), vf_set1(k));
    return r;
}

PRIM struct f16x k_four(const float f[4])
{
    return (struct f16x){ { _mm256_zextps128_ps256(_mm_loadu_ps(f)), vf_zero() } };
}

PRIM void kg_store(uint8_t *to, struct kg w)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        _mm256_storeu_si256((void *)(to + 32 * i), w.lo[i]);
        _mm256_storeu_si256((void *)(to + 64 + 32 * i), w.hi[i]);
    }
}

/* ---- sums of activations ---- */

/* Of a group, in runs of 16: bytes made unsigned are summed by eights, and the pairs of these put side by side. */
PRIM __m256i sums16(const uint8_t *x)
{
    const __m256i flip = _mm256_set1_epi8(-128), zero = _mm256_setzero_si256();
    __m256i t[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i lo = _mm256_sad_epu8(_mm256_xor_si256(_mm256_loadu_si256((const void *)(x + 32 + 32 * i)), flip), zero);
        __m256i hi = _mm256_sad_epu8(_mm256_xor_si256(_mm256_loadu_si256((const void *)(x + 96 + 32 * i)), flip), zero);
        t[i] = _mm256_or_si256(lo, _mm256_slli_epi64(hi, 32));
        t[i] = _mm256_add_epi32(t[i], _mm256_shuffle_epi32(t[i], 0x4e));
    }
    __m256i s = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(t[0], t[1]), 0xd8);
    return _mm256_sub_epi32(s, _mm256_set1_epi32(16 * 128));
}

PRIM struct f16x k_sums(const uint8_t *x, int groups, int sub)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    VF s[2] = { vf_zero(), vf_zero() };
    for (int g = 0; g < groups; g++) {
        const uint8_t *p = x + (size_t)g * sizeof(struct kernels_q8_group);
        VF d = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps((const void *)p)), twice);
        s[g] = _mm256_mul_ps(_mm256_cvtepi32_ps(sums16(p)), d);
    }
    if (sub == 16)
        return (struct f16x){ { s[0], s[1] } };
    VF both = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_hadd_ps(s[0], s[1])), 0xd8));
    return (struct f16x){ { both, vf_zero() } };
}

/* ---- products ---- */

PRIM __m256i offset_pairs(int offset, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_set1_epi8((char)offset), x);
}

PRIM VF pairs_to_float(__m256i pairs)
{
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Of a scale for each 16 columns, those of half h (0 or 1) of blocks 2i and 2i + 1. */
PRIM VF spread16(VF s, int i, int h)
{
    const int a = 4 * i + h, b = 4 * i + 2 + h;
    return _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(a, a, a, a, b, b, b, b));
}

PRIM VF spread32(VF s, int b)
{
    return _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(b, b, b, b, b + 1, b + 1, b + 1, b + 1));
}

PRIM VF k_dot(VF acc, struct kg w, struct f16x s, int g, const uint8_t *x, int sub, int offset)
{
    const VF d = _mm256_castps128_ps256(_mm_loadu_ps((const void *)x));
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i xlo = _mm256_loadu_si256((const void *)(x + 32 + 32 * i)), xhi = _mm256_loadu_si256((const void *)(x + 96 + 32 * i));
        const VF xd = spread32(d, 2 * i);
        if (offset == K_TABLE) {
            __m256i dot = _mm256_add_epi32(dot_signed(w.lo[i], xlo), dot_signed(w.hi[i], xhi));
            acc = vf_fma(_mm256_cvtepi32_ps(dot), vf_mul(spread32(s.v[0], 4 * g + 2 * i), xd), acc);
            continue;
        }
        __m256i lo = _mm256_maddubs_epi16(w.lo[i], xlo), hi = _mm256_maddubs_epi16(w.hi[i], xhi);
        if (sub == 32) {
            __m256i sum = _mm256_add_epi16(lo, hi);
            if (offset)
                sum = _mm256_sub_epi16(sum, _mm256_add_epi16(offset_pairs(offset, xlo), offset_pairs(offset, xhi)));
            acc = vf_fma(pairs_to_float(sum), vf_mul(spread32(s.v[0], 4 * g + 2 * i), xd), acc);
            continue;
        }
        if (offset) {
            lo = _mm256_sub_epi16(lo, offset_pairs(offset, xlo));
            hi = _mm256_sub_epi16(hi, offset_pairs(offset, xhi));
        }
        VF sum = vf_mul(pairs_to_float(lo), spread16(s.v[g], i, 0));
        sum = vf_fma(pairs_to_float(hi), spread16(s.v[g], i, 1), sum);
        acc = vf_fma(sum, xd, acc);
    }
    return acc;
}

/* ---- groups ---- */

/* Sixteen bytes in both lanes. */
PRIM __m256i both(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
}

PRIM __m256i two(const uint8_t *a, const uint8_t *b)
{
    return _mm256_set_m128i(_mm_loadu_si128((const void *)b), _mm_loadu_si128((const void *)a));
}

/* The field of `bits` bits that begins at bit a of each byte of the lower lane and at bit b of the upper, moved to bit `to`; a shift may
 * go either way, but both the same: a and b at most `to`, or both at least. */
PRIM __m256i field(__m256i v, int a, int b, int bits, int to)
{
    const __m256i mask = _mm256_set1_epi8((char)(((1 << bits) - 1) << to));
    if (a <= to && b <= to)
        v = _mm256_sllv_epi64(v, _mm256_setr_epi64x(to - a, to - a, to - b, to - b));
    else
        v = _mm256_srlv_epi64(v, _mm256_setr_epi64x(a - to, a - to, b - to, b - to));
    return _mm256_and_si256(v, mask);
}

PRIM struct kg kg_q4_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q4_k, p, qs) + 64 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = field(both(q + 32 * i), 0, 4, 4, 0);
        w.hi[i] = field(both(q + 32 * i + 16), 0, 4, 4, 0);
    }
    return w;
}

PRIM struct kg kg_q5_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q5_k, p, qs) + 64 * g, *h = K_AT(q5_k, p, qh);
    struct kg w;
    (void)nb;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int k = 4 * g + 2 * i;
        w.lo[i] = _mm256_or_si256(field(both(q + 32 * i), 0, 4, 4, 0), field(both(h), k, k + 1, 1, 4));
        w.hi[i] = _mm256_or_si256(field(both(q + 32 * i + 16), 0, 4, 4, 0), field(both(h + 16), k, k + 1, 1, 4));
    }
    return w;
}

PRIM struct kg kg_q6_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q6_k, p, ql) + 64 * g, *h = K_AT(q6_k, p, qh) + 32 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = _mm256_or_si256(field(two(q, q + 32), 4 * i, 4 * i, 4, 0), field(both(h), 4 * i, 4 * i + 2, 2, 4));
        w.hi[i] = _mm256_or_si256(field(two(q + 16, q + 48), 4 * i, 4 * i, 4, 0), field(both(h + 16), 4 * i, 4 * i + 2, 2, 4));
    }
    return w;
}

PRIM struct kg kg_q2_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q2_k, p, qs) + 32 * g;
    struct kg w;
    (void)nb;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = field(both(q), 4 * i, 4 * i + 2, 2, 0);
        w.hi[i] = field(both(q + 16), 4 * i, 4 * i + 2, 2, 0);
    }
    return w;
}

PRIM struct kg kg_q3_k(const uint8_t *p, int g, int nb)
{
    const uint8_t *q = K_AT(q3_k, p, qs) + 32 * g, *h = K_AT(q3_k, p, hmask);
    struct kg w;
    (void)nb;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int k = 4 * g + 2 * i;
        w.lo[i] = _mm256_or_si256(field(both(q), 4 * i, 4 * i + 2, 2, 0), field(both(h), k, k + 1, 1, 2));
        w.hi[i] = _mm256_or_si256(field(both(q + 16), 4 * i, 4 * i + 2, 2, 0), field(both(h + 16), k, k + 1, 1, 2));
    }
    return w;
}

/* Nibbles in Q4_0's order, of the nb blocks that exist. */
PRIM struct kg nibbles(const uint8_t *p, size_t block, size_t at, int nb)
{
    struct kg w;
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i q = pair(p, block, at, i, nb);
        w.lo[i] = field(q, 0, 0, 4, 0);
        w.hi[i] = field(q, 4, 4, 4, 0);
    }
    return w;
}

PRIM struct kg look_up(struct kg w, const int8_t values[16])
{
    const __m256i t = both((const uint8_t *)values);
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = _mm256_shuffle_epi8(t, w.lo[i]);
        w.hi[i] = _mm256_shuffle_epi8(t, w.hi[i]);
    }
    return w;
}

/* 16 where bit j of the lane's half is set, for its byte j. */
PRIM __m256i bits16(uint32_t a, uint32_t b)
{
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set_m128i(_mm_cvtsi32_si128((int)b), _mm_cvtsi32_si128((int)a)), byte);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
}

PRIM struct kg fifth_bits(struct kg w, const uint8_t *p, size_t block, size_t at, int nb)
{
    uint32_t h[4];
    UNROLL
    for (int b = 0; b < 4; b++)
        h[b] = b < nb ? k_u32(p + (size_t)b * block + at) : 0;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = _mm256_or_si256(w.lo[i], bits16(h[2 * i], h[2 * i + 1]));
        w.hi[i] = _mm256_or_si256(w.hi[i], bits16(h[2 * i] >> 16, h[2 * i + 1] >> 16));
    }
    return w;
}

#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_avx2(struct kernels *k)
{
    fill_k_f32(k);
    fill_k_q8(k);
}
