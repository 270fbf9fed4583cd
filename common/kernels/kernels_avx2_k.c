/* AVX2: the block types beside Q4_0 and Q8_0, and the products with int8 of all. Two blocks at a time, one in each 128-bit lane.
 * Sums of pairs fit 16 bits: bytes are at most 63 but for those of tables and Q8_0, whose products are signed (activations never
 * are -128: 2 * 128 * 127 = 32512). */
#include "common/kernels/kernels_avx2_impl.h"
#include "common/kernels/kernels_k_impl.h"
#include "common/kernels/kernels_avx2_gemm_impl.h"
#include "common/kernels/kernels_x86_read_impl.h"

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

PRIM struct kg kg_load(const uint8_t *from)
{
    struct kg w;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.lo[i] = _mm256_loadu_si256((const void *)(from + 32 * i));
        w.hi[i] = _mm256_loadu_si256((const void *)(from + 64 + 32 * i));
    }
    return w;
}

/* ---- products with int8: lane r % 2 of vector r / 2 has row r, its bytes, then its four sums ---- */

PRIM int k_start(int offset)
{
    return offset == K_TABLE ? 0 : offset == K_SMALL ? K_SMALL - K_TABLE : offset;
}

PRIM struct kg k_unsigned(struct kg w, int offset)
{
    const __m256i more = _mm256_set1_epi8((char)k_start(K_SMALL));
    UNROLL
    for (int i = 0; i < 2 && offset == K_SMALL; i++) { /* of K_TABLE they stay signed */
        w.lo[i] = _mm256_add_epi8(w.lo[i], more);
        w.hi[i] = _mm256_add_epi8(w.hi[i], more);
    }
    return w;
}

/* Of sixteen columns of two rows: sums of pairs. w: signed, where there is a table. */
PRIM __m256i dot_pairs(__m256i w, __m256i x, int offset)
{
    return offset == K_TABLE ? pairs_signed(w, x) : _mm256_maddubs_epi16(w, x);
}

/* Halves of lanes onto each other: two numbers (four of 16 bits) of a, then of b. A blend instead of a second shuffle, for shuffles and
 * shifts have the fewest ports; as vphaddd and vphaddw have. */
PRIM __m256i merge_halves(__m256i a, __m256i b, int wide)
{
    const __m256i outer = _mm256_blend_epi32(a, b, 0xcc), inner = _mm256_alignr_epi8(b, a, 8);
    return wide ? _mm256_add_epi32(outer, inner) : _mm256_add_epi16(outer, inner);
}

/* Then the two onto each other: of a, a, b, b and c, c, d, d a, b, c, d. */
PRIM __m256i merge_twos(__m256i ab, __m256i cd, int wide)
{
    const VF a = _mm256_castsi256_ps(ab), c = _mm256_castsi256_ps(cd);
    const __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a, c, 0x88)), odd = _mm256_castps_si256(_mm256_shuffle_ps(a, c, 0xdd));
    return wide ? _mm256_add_epi32(even, odd) : _mm256_add_epi16(even, odd);
}

/* The sums of four blocks, of merge_halves of two each (bits of 8: of sums already widened), each times its k: k[0], where bits are more
 * than 4 k[0] and k[1] of two blocks each. They are added in 16 bits for as long as they fit: pairs are at most 508 times the largest byte,
 * or 254 times that of a half (bits of 6). */
PRIM __m256i fours(const __m256i ab[2], const __m256i k[2], int bits)
{
    if (bits == 8)
        return merge_twos(ab[0], ab[1], 1);
    if (bits <= 4)
        return _mm256_madd_epi16(merge_twos(ab[0], ab[1], 0), k[0]);
    return merge_twos(_mm256_madd_epi16(ab[0], k[0]), _mm256_madd_epi16(ab[1], k[1]), 1);
}

/* Sixteen bytes in both lanes. */
PRIM __m256i both(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
}

PRIM __m256i sums_each(const uint8_t *x, __m256i k)
{
    return _mm256_madd_epi16(both(x + offsetof(struct kernels_q8_group, sum)), k);
}

/* Each sum of the blocks' halves (both: of the blocks) times k, for both rows. */
PRIM __m256i sums_times(const uint8_t *x, int half, int all, int k)
{
    const uint32_t one = (uint16_t)k, pick = all ? one * 0x10001 : half ? one << 16 : one;
    return sums_each(x, _mm256_set1_epi32((int)pick));
}

/* Half h of block i of two rows, a row in each lane: a type's function, of its bytes at a and b; as k_unsigned has them. */
typedef __m256i k_two_fn(const uint8_t *a, const uint8_t *b, int g, int i, int h, int nb);

PRIM __m256i x_at(const uint8_t *x, int i, int h)
{
    return both(x + offsetof(struct kernels_q8_group, qs) + 32 * i + 16 * h);
}

/* The pairs of a block from those of its halves; bits of 8: sums. */
PRIM __m256i add_pairs(__m256i a, __m256i b, int bits)
{
    return bits == 8 ? _mm256_add_epi32(widen_pairs(a), widen_pairs(b)) : _mm256_add_epi16(a, b);
}

PRIM __m256i dot_half(k_two_fn *two, const uint8_t *a, const uint8_t *b, int g, int i, int h, int nb, __m256i x, int offset)
{
    return dot_pairs(two(a, b, g, i, h, nb), x, offset);
}

/* Of group g of four rows, the sums of pairs as merge_halves leaves them: ab[h][v], of half h (of the blocks, where sub is 32) and of rows
 * 2 v and 2 v + 1. Bytes of x and of rows are in registers for as long as something needs them, for loads are what there are most of: of
 * types whose bytes have one half of several blocks (sub of 16: of four; of both scales and minima: of two), or both halves of one. */
PRIM void dot_rows(__m256i ab[2][2][2], k_two_fn *two, const uint8_t *const row[4], size_t o, int g, int nb, const uint8_t *x, int sub,
                   int offset, int of, int bits)
{
    UNROLL
    for (int i = 0; i < 4; i += of) {
        __m256i p[2][4];
        UNROLL
        for (int h = 0; h < 2; h++) {
            __m256i y[4];
            UNROLL
            for (int j = 0; j < of; j++)
                y[j] = x_at(x, i + j, h);
            UNROLL
            for (int v = 0; v < 2; v++) {
                UNROLL
                for (int j = 0; j < of; j++) {
                    const __m256i d = dot_half(two, row[2 * v] + o, row[2 * v + 1] + o, g, i + j, h, nb, y[j], offset);
                    p[v][j] = h && sub == 32 ? add_pairs(p[v][j], d, bits) : d;
                }
                if (sub == 16) {
                    ab[h][v][0] = merge_halves(p[v][0], p[v][1], 0);
                    ab[h][v][1] = merge_halves(p[v][2], p[v][3], 0);
                }
            }
        }
        UNROLL
        for (int v = 0; v < 2; v++) {
            if (of == 2)
                ab[0][v][i / 2] = merge_halves(p[v][0], p[v][1], 0);
            else if (of == 1)
                ab[0][v][i / 2] = i % 2 ? merge_halves(ab[0][v][i / 2], p[v][0], bits == 8) : p[v][0];
        }
    }
}

/* Scales of two rows and four blocks: floats; or integers below 64 that products are multiplied with while they still are integers, and
 * floats for all of them. Both have the same bits: a scale is exactly the product of the two, and so is a sum times its integer. */
struct k_two {
    VF s[2], m[2];
    __m256i ks[2], km;
    int whole;
};

PRIM void two_scales(struct k_two *to, const struct k_scales4 *from, int v, int groups, int sub, int mins)
{
    UNROLL
    for (int g = 0; g < groups; g++) {
        to[g].whole = 0;
        to[g].ks[0] = to[g].ks[1] = _mm256_set1_epi16(1);
        UNROLL
        for (int h = 0; h < 32 / sub; h++) {
            to[g].s[h] = from[g].s[h].v[v];
            if (mins)
                to[g].m[h] = from[g].m[h].v[v];
        }
    }
}

/* Then of two rows: the group's sums, times scales, times the activations'. */
PRIM VF dot_two(VF acc, __m256i ab[2][2][2], int v, const struct k_two *k, const uint8_t *x, int sub, int offset, int mins, int bits)
{
    VF t = vf_zero();
    UNROLL
    for (int h = 0; h < 32 / sub; h++) {
        __m256i dot = fours(ab[h][v], k->ks, bits);
        if (k_start(offset))
            dot = _mm256_add_epi32(dot, sums_times(x, h, sub == 32, -k_start(offset)));
        t = h ? vf_fma(_mm256_cvtepi32_ps(dot), k->s[h], t) : vf_mul(_mm256_cvtepi32_ps(dot), k->s[h]);
    }
    UNROLL
    for (int h = 0; h < mins * 32 / sub; h++)
        t = vf_fma(_mm256_cvtepi32_ps(k->whole ? sums_each(x, k->km) : sums_times(x, h, sub == 32, 1)), k->m[h], t);
    return vf_fma(t, _mm256_broadcast_ps((const void *)x), acc);
}

PRIM void k_store4(float out[4], struct f16x sums)
{
    VF s = _mm256_hadd_ps(sums.v[0], sums.v[1]); /* lanes: pairs of rows 0 and 2; of rows 1 and 3 */
    s = _mm256_hadd_ps(s, s);
    _mm_storeu_ps(out, _mm_add_ps(_mm_unpacklo_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)), _mm_setzero_ps()));
}

/* Of the scales of rows a and b, each in column order, those of group g: a row in a lane. */
PRIM void turn_scales(struct f16x to[2], int v, const struct f16x *a, const struct f16x *b, int g, int sub)
{
    if (sub == 32) {
        to[0].v[v] = g ? _mm256_permute2f128_ps(a->v[0], b->v[0], 0x31) : _mm256_permute2f128_ps(a->v[0], b->v[0], 0x20);
        return;
    }
    VF even = _mm256_shuffle_ps(a->v[g], b->v[g], 0x88), odd = _mm256_shuffle_ps(a->v[g], b->v[g], 0xdd);
    to[0].v[v] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    to[1].v[v] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
}

PRIM void k_turn(struct k_scales4 *to, const struct k_scales k[4], int groups, int sub, int mins)
{
    UNROLL
    for (int g = 0; g < groups; g++) {
        UNROLL
        for (int v = 0; v < 2; v++) {
            turn_scales(to[g].s, v, &k[2 * v].s, &k[2 * v + 1].s, g, sub);
            if (mins)
                turn_scales(to[g].m, v, &k[2 * v].m, &k[2 * v + 1].m, g, sub);
        }
    }
}

PRIM void scales4_of(struct f16x *to, const uint8_t *const row[4], size_t o, size_t block, int nb)
{
    to->v[0] = _mm256_set_m128(scales(row[1] + o, block, nb), scales(row[0] + o, block, nb));
    to->v[1] = _mm256_set_m128(scales(row[3] + o, block, nb), scales(row[2] + o, block, nb));
}

#define SCALES4_D(type)                                                                                         \
    PRIM void k_scales4_##type(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)             \
    {                                                                                                           \
        scales4_of(&to->s[0], row, o, sizeof(struct quant_##type), nb);                                         \
    }
#define SCALES4_DM(type)                                                                                        \
    PRIM void k_scales4_##type(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)             \
    {                                                                                                           \
        scales4_of(&to->s[0], row, o, sizeof(struct quant_##type), nb);                                         \
        scales4_of(&to->m[0], row, o + 2, sizeof(struct quant_##type), nb);                                     \
    }
SCALES4_D(q4_0)
SCALES4_D(q8_0)
SCALES4_DM(q4_1)
SCALES4_D(q5_0)
SCALES4_DM(q5_1)
SCALES4_D(iq4_nl)

/* 2^(e - 128) of a byte each; the two smallest are not normal floats. */
PRIM void k_scales4_mxfp4(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    uint32_t bytes[4];
    k_first_bytes(bytes, row, o, sizeof(struct quant_mxfp4), nb);
    const __m256i two = _mm256_set1_epi32(2), one = _mm256_set1_epi32(0x00800000), small = _mm256_set1_epi32(0x00200000);
    UNROLL
    for (int v = 0; v < 2; v++) { /* small << e is the third, too, from which on the other is larger; before, the other is negative or 0 */
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(bytes + 2 * v)));
        const __m256i normal = _mm256_sub_epi32(_mm256_slli_epi32(e, 23), one);
        to->s[0].v[v] = _mm256_castsi256_ps(_mm256_max_epi32(normal, _mm256_sllv_epi32(small, _mm256_min_epi32(e, two))));
    }
}

/* Q4_K and Q5_K, as quant_k4_scales, of two rows: sixteen bytes of each are scale and minimum, and twelve with those of blocks, which
 * become bytes 4 to 11 of low, for the first four blocks, and of high. d: scale and minimum of each row. */
struct k4 {
    __m256i low, high;
    VF d;
};

PRIM struct k4 k4_of(const uint8_t *p, const uint8_t *q)
{
    const __m128i a = _mm_loadu_si128((const void *)p), b = _mm_loadu_si128((const void *)q);
    const __m256i all = _mm256_set_m128i(b, a);
    const __m256i last = _mm256_srlv_epi32(_mm256_shuffle_epi32(all, 0xff), _mm256_setr_epi32(0, 0, 4, 0, 0, 0, 4, 0));
    return (struct k4){ .low = _mm256_and_si256(all, _mm256_set1_epi8(0x3f)),
                        .high = _mm256_or_si256(_mm256_and_si256(last, _mm256_set1_epi8(0x0f)),
                                                _mm256_and_si256(_mm256_srli_epi16(all, 2), _mm256_set1_epi8(0x30))),
                        .d = _mm256_castps128_ps256(_mm_cvtph_ps(_mm_unpacklo_epi32(a, b))) };
}

PRIM VF k4_scale(struct k4 k)
{
    return _mm256_permutevar8x32_ps(k.d, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
}

PRIM VF k4_minimum(struct k4 k)
{
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(k.d, _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3)), vf_set1(-0.0f));
}

PRIM void k_scales4_k4(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    const __m256i first = _mm256_setr_epi8(4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1, -1, -1,
                                           4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1, -1, -1);
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi32(4)); /* of the byte that there is; the others stay negative */
    (void)nb;
    UNROLL
    for (int v = 0; v < 2; v++) {
        const struct k4 k = k4_of(row[2 * v] + o, row[2 * v + 1] + o);
        const VF d = k4_scale(k), m = k4_minimum(k);
        to[0].s[0].v[v] = vf_mul(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(k.low, first)), d);
        to[1].s[0].v[v] = vf_mul(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(k.high, first)), d);
        to[0].m[0].v[v] = vf_mul(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(k.low, second)), m);
        to[1].m[0].v[v] = vf_mul(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(k.high, second)), m);
    }
}

/* Numbers of 16 bits from byte i (and i + 1) of the four blocks: each twice; or of two of them, each four times. */
PRIM __m256i k4_each(__m256i k, int i)
{
    const __m256i at = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                        0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1);
    return _mm256_shuffle_epi8(k, _mm256_add_epi8(at, _mm256_set1_epi16((short)i)));
}

PRIM __m256i k4_two(__m256i k, int i)
{
    const __m256i at = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1,
                                        0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1);
    return _mm256_shuffle_epi8(k, _mm256_add_epi8(at, _mm256_set1_epi16((short)i)));
}

/* The same for products: struct k_two of each group. */
PRIM void k4_whole(struct k_two to[2], const uint8_t *p, const uint8_t *q, int bits)
{
    const struct k4 k = k4_of(p, q);
    UNROLL
    for (int g = 0; g < 2; g++) {
        const __m256i of = g ? k.high : k.low;
        to[g].s[0] = k4_scale(k);
        to[g].m[0] = k4_minimum(k);
        to[g].ks[0] = bits > 4 ? k4_two(of, 4) : k4_each(of, 4);
        to[g].ks[1] = k4_two(of, 6);
        to[g].km = k4_each(of, 8);
        to[g].whole = 1;
    }
}

/* Sixteen bytes at a, and at b in the upper lane. */
PRIM __m256i two(const uint8_t *a, const uint8_t *b)
{
    return _mm256_set_m128i(_mm_loadu_si128((const void *)b), _mm_loadu_si128((const void *)a));
}

/* Q6_K, as k_scales_q6_k, of two rows at a time. */
PRIM void k_scales4_q6_k(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb)
{
    const __m256i first = _mm256_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6,
                                           -1, -1, -1, 0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6);
    (void)nb;
    UNROLL
    for (int v = 0; v < 2; v++) {
        const uint8_t *a = row[2 * v] + o, *b = row[2 * v + 1] + o;
        const __m256i all = two(K_AT(q6_k, a, scales), K_AT(q6_k, b, scales));
        const VF d = vf_mul(_mm256_set_m128(_mm_set1_ps(k_half(K_AT(q6_k, b, d))), _mm_set1_ps(k_half(K_AT(q6_k, a, d)))),
                            vf_set1(0x1p-24f)); /* a scale is its dword's last byte */
        UNROLL
        for (int i = 0; i < 4; i++) { /* half i % 2 of the blocks of group i / 2 */
            const __m256i at = _mm256_add_epi8(first, _mm256_set1_epi32((8 * (i / 2) + i % 2) << 24));
            to[i / 2].s[i % 2].v[v] = vf_mul(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(all, at)), d);
        }
    }
}

/* ---- products for many tokens ---- */

static __attribute__((noinline)) void gemm_transpose(uint8_t *to, size_t to_stride, const uint8_t *u, size_t stride)
{
    UNROLL
    for (size_t i = 0; i < 4; i++, u += 4 * stride, to += 16) {
        __m128i z[4];
        for (size_t r = 0; r < 4; r++)
            z[r] = _mm_loadu_si128((const void *)(u + r * stride));
        __m128i a = _mm_unpacklo_epi32(z[0], z[1]), b = _mm_unpackhi_epi32(z[0], z[1]);
        __m128i c = _mm_unpacklo_epi32(z[2], z[3]), d = _mm_unpackhi_epi32(z[2], z[3]);
        _mm_storeu_si128((void *)to, _mm_unpacklo_epi64(a, c));
        _mm_storeu_si128((void *)(to + to_stride), _mm_unpackhi_epi64(a, c));
        _mm_storeu_si128((void *)(to + 2 * to_stride), _mm_unpacklo_epi64(b, d));
        _mm_storeu_si128((void *)(to + 3 * to_stride), _mm_unpackhi_epi64(b, d));
    }
}

GEMM_FN(32_0_4, 32, 0, 8)
GEMM_FN(32_0_5, 32, 0, 4)
GEMM_FN(32_0_8, 32, 0, 0)
GEMM_FN(32_1_4, 32, 1, 8)
GEMM_FN(32_1_5, 32, 1, 4)
GEMM_FN(16_0_4, 16, 0, 4)
GEMM_FN(16_0_6, 16, 0, 2)
GEMM_FN(16_0_8, 16, 0, 0)
GEMM_FN(16_1_4, 16, 1, 4)
#define GEMM_TILE(ops)                                                                                              \
    ((ops).sub == 32 ? (ops).has_min ? (ops).bits > 4 ? gemm_32_1_5 : gemm_32_1_4 :                                 \
     (ops).bits > 5 ? gemm_32_0_8 : (ops).bits > 4 ? gemm_32_0_5 : gemm_32_0_4 :                                    \
     (ops).has_min ? gemm_16_1_4 : (ops).offset == K_TABLE ? gemm_16_0_8 : (ops).bits > 4 ? gemm_16_0_6 : gemm_16_0_4)

/* ---- groups ---- */

/* The field of `bits` bits that begins at bit a of each byte of the lower lane and at bit b of the upper, moved to bit `to`; a shift may
 * go either way, but both the same: a and b at most `to`, or both at least. */
PRIM __m256i field(__m256i v, int a, int b, int bits, int to)
{
    const __m256i mask = _mm256_set1_epi8((char)(((1 << bits) - 1) << to));
    if (a == b)
        v = a < to ? _mm256_slli_epi16(v, to - a) : a > to ? _mm256_srli_epi16(v, a - to) : v;
    else if (a <= to && b <= to)
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

/* ---- groups of two rows ---- */

PRIM __m256i bits_of(__m256i v, int from, int bits, int to)
{
    return field(v, from, from, bits, to);
}

#define TWO(type, ...)                                                                                          \
    PRIM __m256i two_##type(const uint8_t *a, const uint8_t *b, int g, int i, int h, int nb)                    \
    {                                                                                                           \
        (void)g;                                                                                                \
        (void)nb;                                                                                               \
        return __VA_ARGS__;                                                                                     \
    }
/* Sixteen bytes of a field, from `at` on. */
#define TWO_AT(type, field, at) two(K_AT(type, a, field) + (at), K_AT(type, b, field) + (at))
TWO(q4_k, bits_of(TWO_AT(q4_k, qs, 64 * g + i / 2 * 32 + 16 * h), i % 2 * 4, 4, 0))
TWO(q5_k, _mm256_or_si256(bits_of(TWO_AT(q5_k, qs, 64 * g + i / 2 * 32 + 16 * h), i % 2 * 4, 4, 0),
                          bits_of(TWO_AT(q5_k, qh, 16 * h), 4 * g + i, 1, 4)))
TWO(q6_k, _mm256_or_si256(bits_of(TWO_AT(q6_k, ql, 64 * g + i % 2 * 32 + 16 * h), i / 2 * 4, 4, 0),
                          bits_of(TWO_AT(q6_k, qh, 32 * g + 16 * h), 2 * i, 2, 4)))
TWO(q2_k, bits_of(TWO_AT(q2_k, qs, 32 * g + 16 * h), 2 * i, 2, 0))
TWO(q3_k, _mm256_or_si256(bits_of(TWO_AT(q3_k, qs, 32 * g + 16 * h), 2 * i, 2, 0),
                          bits_of(TWO_AT(q3_k, hmask, 16 * h), 4 * g + i, 1, 2)))
TWO(iq4_xs, _mm256_shuffle_epi8(both((const uint8_t *)quant_iq4_values), bits_of(TWO_AT(iq4_xs, qs, 64 * g + 16 * i), 4 * h, 4, 0)))

/* Those at offset `at` of block i, where there are more. */
PRIM __m256i two_of(const uint8_t *a, const uint8_t *b, size_t block, size_t at, int i, int nb)
{
    return i < nb ? two(a + (size_t)i * block + at, b + (size_t)i * block + at) : _mm256_setzero_si256();
}

PRIM __m256i fifth_of(const uint8_t *a, const uint8_t *b, size_t block, size_t at, int i, int h, int nb)
{
    const size_t o = (size_t)i * block + at;
    return i < nb ? bits16(k_u32(a + o) >> 16 * h, k_u32(b + o) >> 16 * h) : _mm256_setzero_si256();
}

#define TWO_BLOCK(type)   two_of(a, b, sizeof(struct quant_##type), offsetof(struct quant_##type, qs), i, nb)
#define TWO_NIBBLES(type) bits_of(TWO_BLOCK(type), 4 * h, 4, 0)
#define TWO_FIFTH(type)                 \
    _mm256_or_si256(TWO_NIBBLES(type),  \
                    fifth_of(a, b, sizeof(struct quant_##type), offsetof(struct quant_##type, qh), i, h, nb))
TWO(q4_0, TWO_NIBBLES(q4_0))
TWO(q4_1, TWO_NIBBLES(q4_1))
TWO(q5_0, TWO_FIFTH(q5_0))
TWO(q5_1, TWO_FIFTH(q5_1))
TWO(iq4_nl, _mm256_shuffle_epi8(both((const uint8_t *)quant_iq4_values), TWO_NIBBLES(iq4_nl)))
/* quant_mxfp4_values, as k_unsigned has them. */
static const uint8_t mxfp4_unsigned[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };
TWO(mxfp4, _mm256_shuffle_epi8(both(mxfp4_unsigned), TWO_NIBBLES(mxfp4)))
TWO(q8_0, two_of(a, b, sizeof(struct quant_q8_0), offsetof(struct quant_q8_0, qs) + 16 * (size_t)h, i, nb))

/* ---- types that are read and not written ---- */

#define KERNELS_READ_EIGHTS

PRIM void signs_store(uint8_t signs[32], __m256i s)
{
    _mm256_storeu_si256((void *)signs, signs_order(s));
}

PRIM struct f16x k_times(K16 n, float k)
{
    const __m256i lo = _mm256_cvtepi8_epi32(n), hi = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(n, n));
    return (struct f16x){ { vf_mul(_mm256_cvtepi32_ps(lo), vf_set1(k)), vf_mul(_mm256_cvtepi32_ps(hi), vf_set1(k)) } };
}

PRIM void signs_words(uint8_t signs[32], const uint8_t *p, size_t stride)
{
    signs_store(signs, signs_sevens(words8(p, stride)));
}

PRIM void signs_tops(uint8_t signs[32], const uint8_t *p)
{
    const __m256i a = _mm256_srli_epi16(_mm256_loadu_si256((const void *)p), 9);
    const __m256i b = _mm256_srli_epi16(_mm256_loadu_si256((const void *)(p + 32)), 9);
    signs_store(signs, signs_eighth(_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8)));
}

PRIM void signs_bytes(uint8_t signs[32], const uint8_t *p)
{
    signs_store(signs, _mm256_loadu_si256((const void *)p));
}

#include "common/kernels/kernels_simd_k_impl.h"

void kernels_fill_k_avx2(struct kernels *k)
{
    quant_iq_codebooks_expand();
    fill_k_f32(k);
    fill_k_q8(k);
}

struct gemm_type kernels_avx2_gemm(uint32_t type)
{
    switch (type) {
#define K_CASE(name, TYPE) \
    case QUANT_##TYPE: return gemm_##name();
        KERNELS_Q8_TYPES(K_CASE)
        KERNELS_READ_TYPES(K_CASE)
    default: return (struct gemm_type){ 0 };
    }
}
