#ifndef COMMON_KERNELS_KERNELS_AVX512_READ_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX512_READ_IMPL_H

/* AVX-512: the primitives of kernels_read_impl.h. Entries of codebooks are looked up in registers, 32 at a time: those of 64 by each
 * vpermi2w. */
#if defined(__AVX512VNNI__)

#include "common/kernels/kernels_avx512_impl.h"
#include "common/kernels/kernels_k_impl.h"
#include "common/kernels/kernels_x86_read_impl.h"
#include "common/kernels/quant_iq_codebooks.h"

PRIM __m512i load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

PRIM struct f16x k_times(K16 n, float k)
{
    return (struct f16x){ { vf_mul(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(n)), vf_set1(k)) } };
}

/* Dwords of a step in columns' order, half a block each, in kg_store's. */
PRIM __m512i halves_order(__m512i v)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15), v);
}

/* The entries of 32 indices in a codebook of 64 n, a power of two. */
PRIM __m512i entries(const uint16_t *book, int n, __m512i at)
{
    __m512i e[16];
    UNROLL
    for (int i = 0; i < n; i++)
        e[i] = _mm512_permutex2var_epi16(load64(book + 64 * i), at, load64(book + 64 * i + 32));
    UNROLL
    for (int k = 0; k < 4; k++) {
        const __mmask32 upper = _mm512_test_epi16_mask(at, _mm512_set1_epi16((short)(64 << k)));
        UNROLL
        for (int i = 0; i < n >> (k + 1); i++)
            e[i] = _mm512_mask_mov_epi16(e[2 * i], upper, e[2 * i + 1]);
    }
    return e[0];
}

PRIM void put_signed(uint8_t *to, __m512i v, uint64_t signs)
{
    _mm512_storeu_si512(to, _mm512_mask_sub_epi8(v, _cvtu64_mask64(signs), _mm512_setzero_si512(), v));
}

/* Words of eight numbers of two bits, in kg_store's order; values of 0, 1, 2, 3. signs: NULL, or in that order. */
PRIM void put_twos(uint8_t *u, __m512i e, const int8_t values[4], const uint64_t signs[4])
{
    /* Of a byte four times, the third and fourth shifted by four, the second and fourth have their number in bits 2 and 3. */
    const __m512i four = _mm512_set4_epi32(0x03030303, 0x02020202, 0x01010101, 0), lane = _mm512_setr_epi32(
        0, 0, 0, 0, 0x04040404, 0x04040404, 0x04040404, 0x04040404, 0x08080808, 0x08080808, 0x08080808, 0x08080808,
        0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c);
    const __m512i at = _mm512_or_si512(four, lane);
    const __m512i table = _mm512_set4_epi32(values[3], values[2], values[1], (int)k_u32((const uint8_t *)values));
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i each = _mm512_shuffle_epi8(i == 0   ? _mm512_shuffle_i64x2(e, e, 0x00)
                                                 : i == 1 ? _mm512_shuffle_i64x2(e, e, 0x55)
                                                 : i == 2 ? _mm512_shuffle_i64x2(e, e, 0xaa)
                                                          : _mm512_shuffle_i64x2(e, e, 0xff), at);
        const __m512i two = _mm512_and_si512(_mm512_srlv_epi16(each, _mm512_set1_epi32(0x40000)), _mm512_set1_epi16(0x0c03));
        put_signed(u + 64 * i, _mm512_shuffle_epi8(table, two), signs ? signs[i] : 0);
    }
}

/* Words of four numbers of four bits: of the first group, and of the second. */
PRIM void put_fours(uint8_t *u, __m512i first, __m512i second, const int8_t values[8], const uint64_t signs[4])
{
    const __m512i table = _mm512_broadcast_i32x4(_mm_loadl_epi64((const void *)values));
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i e = i < 2 ? first : second;
        const __m512i w = _mm512_cvtepu8_epi16(i % 2 ? _mm512_extracti64x4_epi64(e, 1) : _mm512_castsi512_si256(e));
        const __m512i four = _mm512_and_si512(_mm512_or_si512(w, _mm512_slli_epi16(w, 4)), _mm512_set1_epi8(15));
        put_signed(u + 64 * i, _mm512_shuffle_epi8(table, four), signs[i]);
    }
}

PRIM void signs_store(uint64_t signs[4], __m256i in_order)
{
    _mm256_storeu_si256((void *)signs, in_order);
    KEEP_IN_MEMORY(*(uint64_t(*)[4])(void *)signs);
}

PRIM void put_iq2_xxs(uint8_t *u, const uint8_t *p)
{
    const __m512i q = load64(K_AT(iq2_xxs, p, qs));
    const __m512i twos = _mm512_castsi256_si512(_mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 16, 20, 24, 28, 17, 21, 25, 29));
    const __m512i at = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(_mm512_permutexvar_epi16(twos, q)));
    uint64_t signs[4];
    signs_store(signs, signs_order(signs_sevens(words8(K_AT(iq2_xxs, p, qs) + 4, 8))));
    put_twos(u, entries(quant_iq2_xxs_codebook, 4, at), quant_iq2_levels, signs);
}

PRIM void put_iq2_xs(uint8_t *u, const uint8_t *p)
{
    const __m512i q = halves_order(load64(K_AT(iq2_xs, p, qs)));
    uint64_t signs[4];
    signs_store(signs, signs_eighth(_mm512_cvtepi16_epi8(_mm512_srli_epi16(q, 9))));
    put_twos(u, entries(quant_iq2_xs_codebook, 8, q), quant_iq2_levels, signs);
}

PRIM void put_iq2_s(uint8_t *u, const uint8_t *p)
{
    const __m512i q = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)K_AT(iq2_s, p, qs)));
    /* two more bits of each: the byte of four of them at bit 8 of each, then shifted */
    const __m512i h = _mm512_shuffle_epi8(_mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)K_AT(iq2_s, p, qh))),
                                          _mm512_set4_epi32(0x08ff08ff, 0x08ff08ff, 0x00ff00ff, 0x00ff00ff));
    const __m512i two = _mm512_srlv_epi16(h, _mm512_set1_epi64(0x0006000400020000));
    const __m512i at = halves_order(_mm512_ternarylogic_epi64(q, two, _mm512_set1_epi16(0x300), 0xf8)); /* q | (two & 0x300) */
    uint64_t signs[4];
    signs_store(signs, signs_order(_mm256_loadu_si256((const void *)K_AT(iq2_s, p, signs))));
    put_twos(u, entries(quant_iq2_s_codebook, 16, at), quant_iq2_levels, signs);
}

PRIM void put_iq3_xxs(uint8_t *u, const uint8_t *p)
{
    const __m512i q = halves_order(load64(K_AT(iq3_xxs, p, qs)));
    uint64_t signs[4];
    signs_store(signs, signs_order(signs_sevens(words8(K_AT(iq3_xxs, p, scales), 4))));
    put_fours(u, entries(quant_iq3_xxs_codebook, 4, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(q))),
              entries(quant_iq3_xxs_codebook, 4, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(q, 1))), quant_iq3_xxs_levels, signs);
}

/* A group's indices, in kg_store's order. */
PRIM __m512i at_iq3_s(const uint8_t *p, int g)
{
    const __m512i q = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(K_AT(iq3_s, p, qs) + 32 * g)));
    const __mmask32 more = _cvtu32_mask32(k_u32(K_AT(iq3_s, p, qh) + 4 * g));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_mask_add_epi16(q, more, q, _mm512_set1_epi16(256)));
}

PRIM void put_iq3_s(uint8_t *u, const uint8_t *p)
{
    uint64_t signs[4];
    signs_store(signs, signs_order(_mm256_loadu_si256((const void *)K_AT(iq3_s, p, signs))));
    put_fours(u, entries(quant_iq3_s_codebook, 8, at_iq3_s(p, 0)), entries(quant_iq3_s_codebook, 8, at_iq3_s(p, 1)), quant_iq3_s_levels,
              signs);
}

PRIM void put_q1_0(uint8_t *u, const uint8_t *p)
{
    const uint8_t *q = K_AT(q1_0, p, qs);
    uint64_t signs[4];
    signs_store(signs, signs_order(_mm256_set_m128i(_mm_loadu_si128((const void *)(q + sizeof(struct quant_q1_0))),
                                                    _mm_loadu_si128((const void *)q))));
    UNROLL
    for (int i = 0; i < 4; i++)
        put_signed(u + 64 * i, _mm512_set1_epi8(1), signs[i]);
}

static const int8_t q2_0_values[4] = { -1, 0, 1, 2 };

PRIM void put_q2_0(uint8_t *u, const uint8_t *p)
{
    const uint8_t *q = K_AT(q2_0, p, qs);
    __m512i e = _mm512_castsi128_si512(_mm_loadu_si128((const void *)q));
    e = _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + sizeof(struct quant_q2_0))), 1);
    e = _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + 2 * sizeof(struct quant_q2_0))), 2);
    e = _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + 3 * sizeof(struct quant_q2_0))), 3);
    put_twos(u, halves_order(e), q2_0_values, NULL);
}

PRIM void put_q2_0_128(uint8_t *u, const uint8_t *p)
{
    const uint8_t *q = K_AT(q2_0_128, p, qs);
    const __m512i e = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)q));
    put_twos(u, halves_order(_mm512_inserti64x4(e, _mm256_loadu_si256((const void *)(q + sizeof(struct quant_q2_0_128))), 1)), q2_0_values,
             NULL);
}

#endif
#endif
