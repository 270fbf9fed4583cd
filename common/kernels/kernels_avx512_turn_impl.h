#ifndef COMMON_KERNELS_KERNELS_AVX512_TURN_IMPL_H
#define COMMON_KERNELS_KERNELS_AVX512_TURN_IMPL_H

/* AVX-512: panels of kernels_gemm_impl.h from rows as they are stored. Sixteen bytes of each of sixteen rows become four vectors, four
 * bytes of every row in each, and only then nibbles and bits become bytes: a quarter of the work of unpacking row after row, which
 * for few tokens, as an expert of a mixture has, is as much as the products. */
#if defined(__AVX512VNNI__)

#include "common/kernels/kernels_avx512_gemm_impl.h"
#include "common/kernels/kernels_k_impl.h"

PRIM __m512i low_nibbles(__m512i t)
{
    return _mm512_and_si512(t, _mm512_set1_epi8(15));
}

PRIM __m512i high_nibbles(__m512i t)
{
    return low_nibbles(_mm512_srli_epi16(t, 4));
}

/* Bits `from` .. of the bytes at bit 4, those of `mask`; t in the others. */
PRIM __m512i with_bits(__m512i t, __m512i h, int from, int mask)
{
    const __m512i moved = from <= 4 ? _mm512_slli_epi16(h, (unsigned)(4 - from)) : _mm512_srli_epi16(h, (unsigned)(from - 4));
    return _mm512_ternarylogic_epi64(t, moved, _mm512_set1_epi8((char)mask), 0xf8);
}

PRIM void put_columns(struct gemm_block *to, int v, int k, __m512i t)
{
    _mm512_store_si512(to->q[k][16 * v], t);
}

PRIM void put_nothing(struct gemm_block *to, int v)
{
    UNROLL
    for (int k = 0; k < 8; k++)
        put_columns(to, v, k, _mm512_setzero_si512());
}

/* Blocks with their sixteen bytes at `at`: the first half of the columns is in low nibbles. values: of nibbles, or NULL. */
PRIM void turned_nibbles(struct gemm_block *to, int v, const uint8_t *const row[16], size_t at, size_t block, int nb, const int8_t *values)
{
    const __m512i table = values ? _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values)), _mm512_set1_epi8(-128))
                                 : _mm512_setzero_si512();
    for (int b = 0; b < 4; b++, to++, at += block) {
        __m512i t[4];
        if (b >= nb) {
            put_nothing(to, v);
            continue;
        }
        turn16(t, row, at);
        UNROLL
        for (int k = 0; k < 4; k++) {
            const __m512i lo = low_nibbles(t[k]), hi = high_nibbles(t[k]);
            put_columns(to, v, k, values ? _mm512_shuffle_epi8(table, lo) : lo);
            put_columns(to, v, 4 + k, values ? _mm512_shuffle_epi8(table, hi) : hi);
        }
    }
}

#define TURNED(type) PRIM void turned_##type(struct gemm_block *to, int v, const uint8_t *const row[16], size_t o, int g, int nb)

#define TURNED_NIBBLES(type, values)                                                                                        \
    TURNED(type)                                                                                                            \
    {                                                                                                                       \
        (void)g;                                                                                                            \
        turned_nibbles(to, v, row, o + offsetof(struct quant_##type, qs), sizeof(struct quant_##type), nb, values);         \
    }
TURNED_NIBBLES(q4_0, NULL)
TURNED_NIBBLES(q4_1, NULL)
TURNED_NIBBLES(iq4_nl, quant_iq4_values)
TURNED_NIBBLES(mxfp4, quant_mxfp4_values)

TURNED(iq4_xs)
{
    turned_nibbles(to, v, row, o + offsetof(struct quant_iq4_xs, qs) + 64 * (size_t)g, 16, nb, quant_iq4_values);
}

TURNED(q8_0)
{
    (void)g;
    for (int b = 0; b < 4; b++, to++) {
        if (b >= nb) {
            put_nothing(to, v);
            continue;
        }
        for (int h = 0; h < 2; h++) {
            __m512i t[4];
            turn16(t, row, o + (size_t)b * sizeof(struct quant_q8_0) + offsetof(struct quant_q8_0, qs) + 16 * (size_t)h);
            UNROLL
            for (int k = 0; k < 4; k++)
                put_columns(to, v, 4 * h + k, _mm512_xor_si512(t[k], _mm512_set1_epi8(-128)));
        }
    }
}

/* Q4_K and Q5_K: of 32 bytes from qs on the low nibbles are a block and the high ones the next. qh: of Q5_K, with is_fifth. */
PRIM void turned_halves(struct gemm_block *to, int v, const uint8_t *const row[16], size_t qs, size_t qh, int is_fifth, int g)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i fifth[4];
        if (is_fifth)
            turn16(fifth, row, qh + 16 * (size_t)h);
        UNROLL
        for (int j = 0; j < 2; j++) {
            __m512i t[4];
            turn16(t, row, qs + 64 * (size_t)g + 32 * (size_t)j + 16 * (size_t)h);
            UNROLL
            for (int k = 0; k < 4; k++) {
                __m512i lo = low_nibbles(t[k]), hi = high_nibbles(t[k]);
                if (is_fifth) {
                    lo = with_bits(lo, fifth[k], 4 * g + 2 * j, 0x10);
                    hi = with_bits(hi, fifth[k], 4 * g + 2 * j + 1, 0x10);
                }
                put_columns(to + 2 * j, v, 4 * h + k, lo);
                put_columns(to + 2 * j + 1, v, 4 * h + k, hi);
            }
        }
    }
}

TURNED(q4_k)
{
    (void)nb;
    turned_halves(to, v, row, o + offsetof(struct quant_q4_k, qs), 0, 0, g);
}

TURNED(q5_k)
{
    (void)nb;
    turned_halves(to, v, row, o + offsetof(struct quant_q5_k, qs), o + offsetof(struct quant_q5_k, qh), 1, g);
}

/* Of 64 bytes the low nibbles are two blocks, the high ones the next two; two more bits of all four in 32 bytes. */
TURNED(q6_k)
{
    const size_t ql = o + offsetof(struct quant_q6_k, ql) + 64 * (size_t)g, qh = o + offsetof(struct quant_q6_k, qh) + 32 * (size_t)g;
    (void)nb;
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i two[4];
        turn16(two, row, qh + 16 * (size_t)h);
        UNROLL
        for (int j = 0; j < 2; j++) {
            __m512i t[4];
            turn16(t, row, ql + 32 * (size_t)j + 16 * (size_t)h);
            UNROLL
            for (int k = 0; k < 4; k++) {
                put_columns(to + j, v, 4 * h + k, with_bits(low_nibbles(t[k]), two[k], 2 * j, 0x30));
                put_columns(to + 2 + j, v, 4 * h + k, with_bits(high_nibbles(t[k]), two[k], 4 + 2 * j, 0x30));
            }
        }
    }
}

#endif
#endif
