/* AVX-512 with VBMI: products of few tokens with the types that are read and not written (kernels_read_impl.h has those of many). Two
 * rows are unpacked together, 256 columns of each, into eight vectors of bytes that vpdpbusd takes: lane b of them (8 + b of row two)
 * has columns of block b alone, so that its sums need no turning. The activations are put into the same order once a call.
 *
 * Entries of codebooks are found in registers: vpermi2b looks 64 up in 128 bytes, vpermb makes bytes of their elements together with
 * their signs, as an index of six bits. What a byte is too large by is taken from the sums of the activations. Of the largest codebooks
 * gathers are faster. */
#include "common/kernels/kernels_avx512_impl.h"
#include "common/kernels/kernels_k_impl.h"

#undef KERNELS_TILE_3
#define KERNELS_LOOPS_ONLY
#include "common/kernels/kernels_simd_impl.h"

#include "common/kernels/quant_impl.h"
#include "common/kernels/quant_iq_codebooks.h"

/* ---- tables ---- */

/* Which columns of a block the four bytes of its lane are, of vector p. */
enum order { EIGHTS,     /* element p of four entries of eight */
             EIGHTS_TWO, /* elements p % 4 and four more of two entries; vectors from the fourth on: of the last sixteen columns */
             FOURS,      /* element p % 4 of four entries of four, in the same way */
             AS_THEY_ARE,
             ORDERS };

/* Entries of eight elements of two bits: byte lo has the first four, at bits 0, 4, 2 and 6. Of four elements of three bits: at bits 0 and
 * 5 of lo, then of hi. */
struct book {
    _Alignas(64) uint8_t lo[512], hi[512];
};
static struct book iq2_xxs_book, iq2_xs_book, iq3_xxs_book, iq3_s_book;
/* Both bytes in a word, from the second on: an entry is read as the upper half of 32 bits, too. */
static uint16_t iq1_words[1 + 2048 + 1], iq2_s_words[1 + 1024 + 1];

/* The bytes of an index of six bits: of a pair of elements the first (sign: bit 2 or 3) and the second. */
struct values {
    _Alignas(64) uint8_t first[64], second[64];
};
static struct values iq2_values, iq3_xxs_values, iq3_s_values, iq1_values;
static struct {
    _Alignas(64) uint8_t of[64];
} one_bit[6], two_bits[3]; /* at each place of the index; a bit counts twice */
static _Alignas(64) uint8_t orders[ORDERS][256];
enum { SIGNED = 64, EIGHTH = 9 }; /* what bytes are too large by */

static uint8_t spread(unsigned entry)
{
    return (uint8_t)((entry & 0xc3) | (entry & 0x0c) << 2 | (entry & 0x30) >> 2);
}

static void fill_eights(struct book *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++) {
        to->lo[i] = spread(from[i]);
        to->hi[i] = spread(from[i] >> 8);
    }
}

static void fill_words(uint16_t *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[1 + i] = (uint16_t)(spread(from[i]) | spread(from[i] >> 8) << 8);
}

static void fill_fours(struct book *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++) {
        to->lo[i] = (uint8_t)((from[i] & 7) | (from[i] >> 4 & 7) << 5);
        to->hi[i] = (uint8_t)((from[i] >> 8 & 7) | (from[i] >> 12 & 7) << 5);
    }
}

static uint8_t signed_value(int v, int minus)
{
    return (uint8_t)(SIGNED + (minus ? -v : v));
}

static int column_of(enum order order, int p, int k)
{
    switch (order) {
    case EIGHTS: return 8 * k + p;
    case EIGHTS_TWO: return 16 * (p / 4) + 8 * (k / 2) + 4 * (k % 2) + p % 4;
    case FOURS: return 16 * (p / 4) + 4 * k + p % 4;
    default: return 4 * p + k;
    }
}

static void fill_tables(void)
{
    fill_eights(&iq2_xxs_book, quant_iq2_xxs_codebook, 256);
    fill_eights(&iq2_xs_book, quant_iq2_xs_codebook, 512);
    fill_words(iq2_s_words, quant_iq2_s_codebook, 1024);
    fill_fours(&iq3_xxs_book, quant_iq3_xxs_codebook, 256);
    fill_fours(&iq3_s_book, quant_iq3_s_codebook, 512);
    fill_words(iq1_words, quant_iq1_codebook, 2048);
    for (int i = 0; i < 64; i++) {
        iq2_values.first[i] = signed_value(quant_iq2_levels[i & 3], i >> 2 & 1);
        iq2_values.second[i] = signed_value(quant_iq2_levels[i >> 4], i >> 3 & 1);
        iq3_xxs_values.first[i] = signed_value(quant_iq3_xxs_levels[i & 7], i >> 3 & 1);
        iq3_xxs_values.second[i] = signed_value(quant_iq3_xxs_levels[i >> 2 & 7], i >> 1 & 1);
        iq3_s_values.first[i] = signed_value(quant_iq3_s_levels[i & 7], i >> 3 & 1);
        iq3_s_values.second[i] = signed_value(quant_iq3_s_levels[i >> 2 & 7], i >> 1 & 1);
        iq1_values.first[i] = (uint8_t)(8 * ((i & 3) - 1) + EIGHTH + (i >> 2 & 1 ? -1 : 1));
        iq1_values.second[i] = (uint8_t)(8 * ((i >> 4) - 1) + EIGHTH + (i >> 2 & 1 ? -1 : 1));
        for (int k = 0; k < 6; k++)
            one_bit[k].of[i] = (uint8_t)((i >> k & 1) << 1);
        for (int k = 0; k < 3; k++)
            two_bits[k].of[i] = (uint8_t)(i >> 2 * k & 3);
    }
    for (int o = 0; o < ORDERS; o++)
        for (int i = 0; i < 256; i++) /* vector, block, byte */
            orders[o][i] = (uint8_t)(32 * (i / 4 % 4) + column_of(o, i / 32, i % 4));
}

/* ---- two rows ---- */

/* Bytes, less what the type says; and what the sums of a lane are multiplied with, of its last sixteen columns apart where the type
 * has scales for sixteen. The function gives what both are multiplied with: two F16. */
struct pair {
    __m512i u[8];
    __m512 n[2];
};
typedef uint32_t pair_fn(struct pair *to, const uint8_t *a, const uint8_t *b);

PRIM __m512i load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

PRIM __m512i load32x2(const uint8_t *a, const uint8_t *b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)a)), _mm256_loadu_si256((const void *)b), 1);
}

PRIM __m128i load8x2(const uint8_t *a, const uint8_t *b)
{
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(_mm_loadl_epi64((const void *)a)), (const void *)b));
}

PRIM uint32_t halves2(const uint8_t *a, const uint8_t *b)
{
    return half_at(a) | (uint32_t)half_at(b) << 16;
}
enum { ONES = 0x3c003c00 };

/* (2 n + 1) k of each lane's last bits: four, or three. */
PRIM __m512 odd_times(__m512i n, float k)
{
    const __m512 odd = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutexvar_ps(n, _mm512_mul_ps(odd, _mm512_set1_ps(k)));
}

PRIM __m512 odd3_times(__m512i n, float k)
{
    const __m512 odd = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm512_permutexvar_ps(n, _mm512_mul_ps(odd, _mm512_set1_ps(k)));
}

/* Even and odd dwords of two vectors. */
PRIM __m512i evens(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi32(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}

PRIM __m512i odds(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi32(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
}

/* 128 entries at a time, then what bits 7, 8 and 9 say. */
PRIM __m512i looked_up(const uint8_t *book, int n, __m512i at, const __mmask64 *bit)
{
    __m512i e[8];
    UNROLL
    for (int i = 0; i < n; i++)
        e[i] = _mm512_permutex2var_epi8(load64(book + 128 * i), at, load64(book + 128 * i + 64));
    UNROLL
    for (int k = 0; 1 << k < n; k++) {
        UNROLL
        for (int i = 0; i < n >> (k + 1); i++)
            e[i] = _mm512_mask_mov_epi8(e[2 * i], bit[k], e[2 * i + 1]);
    }
    return e[0];
}

/* Of seven signs eight: the last makes the number of negative ones even. Bit 7 may be any. */
PRIM __m512i eight_signs(__m512i seven)
{
#define P1(i) (char)((i) | (((i) ^ (i) >> 1 ^ (i) >> 2 ^ (i) >> 3 ^ (i) >> 4 ^ (i) >> 5 ^ (i) >> 6) & 1) << 7)
#define P8(i) P1(i), P1(i + 1), P1(i + 2), P1(i + 3), P1(i + 4), P1(i + 5), P1(i + 6), P1(i + 7)
    static const _Alignas(64) char even[128] = { P8(0), P8(8), P8(16), P8(24), P8(32), P8(40), P8(48), P8(56),
                                                 P8(64), P8(72), P8(80), P8(88), P8(96), P8(104), P8(112), P8(120) };
#undef P1
#undef P8
    return _mm512_permutex2var_epi8(load64(even), seven, load64(even + 64));
}

/* A control of vpmultishiftqb: byte k of each dword from bit a + k * step on, of its own dword. */
PRIM __m512i fields(__m512i v, int a, int step)
{
#define F(k) ((uint64_t)((a + k * step) & 63) << 8 * k | (uint64_t)((32 + a + k * step) & 63) << (8 * k + 32))
    const uint64_t c = F(0) | F(1) | F(2) | F(3);
#undef F
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)c), v);
}

PRIM __m512i byte_of(__m512i index, const uint8_t *values)
{
    return _mm512_permutexvar_epi8(index, load64(values));
}

/* a where the mask's bits are, else b. */
PRIM __m512i chosen(int mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_set1_epi8((char)mask), a, b, 0xca);
}

/* Entries of eight with a byte of signs each. */
PRIM void put_eights(struct pair *to, __m512i lo, __m512i hi, __m512i signs, const struct values *v)
{
    __m512i x[4] = { chosen(0x33, lo, _mm512_slli_epi16(signs, 2)), chosen(0x33, _mm512_srli_epi16(lo, 2), signs),
                     chosen(0x33, hi, _mm512_srli_epi16(signs, 2)), chosen(0x33, _mm512_srli_epi16(hi, 2), _mm512_srli_epi16(signs, 4)) };
    const __m512i y0 = _mm512_unpacklo_epi8(x[0], x[2]), y1 = _mm512_unpacklo_epi8(x[1], x[3]);
    x[2] = _mm512_unpackhi_epi8(x[0], x[2]);
    x[3] = _mm512_unpackhi_epi8(x[1], x[3]);
    x[0] = y0;
    x[1] = y1;
    UNROLL
    for (int i = 0; i < 4; i++) {
        to->u[2 * i] = byte_of(x[i], v->first);
        to->u[2 * i + 1] = byte_of(x[i], v->second);
    }
}

/* Two entries of eight, of half a block each; signs of their first two elements at bit 2 of each byte, and of the others. */
PRIM void gather_eights(struct pair *to, int half, const uint16_t *words, __m512i at, __m512i at1, __m512i signs, __m512i signs1,
                     const struct values *v)
{
    const __m512i one = _mm512_i32gather_epi32(at, (const void *)(words + 1), 2);
    const __m512i other = _mm512_i32gather_epi32(at1, (const void *)words, 2);
    const __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, one, other);
    const __m512i x[2] = { chosen(0x33, both, signs), chosen(0x33, _mm512_srli_epi16(both, 2), signs1) };
    UNROLL
    for (int i = 0; i < 2; i++) {
        to->u[4 * half + 2 * i] = byte_of(x[i], v->first);
        to->u[4 * half + 2 * i + 1] = byte_of(x[i], v->second);
    }
}

/* Of an entry the last bits in byte i of q, and those of `mask` beyond from bit `bit` of h on. */
PRIM __m512i entry_at(__m512i q, __m512i h, int i, int bit, int mask)
{
    const __m512i low = i ? _mm512_srli_epi32(q, 8 * (unsigned)i) : q;
    const __m512i high = bit < 8 ? _mm512_slli_epi32(h, (unsigned)(8 - bit)) : bit > 8 ? _mm512_srli_epi32(h, (unsigned)(bit - 8)) : h;
    return _mm512_and_si512(_mm512_ternarylogic_epi64(_mm512_set1_epi32(0xff), low, high, 0xca), _mm512_set1_epi32(mask));
}

/* As fields, any four bits. */
PRIM __m512i fields_at(__m512i v, int a, int b, int c, int d)
{
#define F(k, at) ((uint64_t)((at) & 63) << 8 * k | (uint64_t)((32 + (at)) & 63) << (8 * k + 32))
    const uint64_t at = F(0, a) | F(1, b) | F(2, c) | F(3, d);
#undef F
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)at), v);
}

/* Entries of four: of half a block each; signs: four bytes of each block. */
PRIM void put_fours(struct pair *to, int half, __m512i lo, __m512i hi, __m512i signs, const struct values *v)
{
    const __m512i x[2] = { chosen(0xe7, lo, fields(signs, 16 * half - 3, 4)), chosen(0xe7, hi, fields(signs, 16 * half - 1, 4)) };
    UNROLL
    for (int i = 0; i < 2; i++) {
        to->u[4 * half + 2 * i] = byte_of(x[i], v->first);
        to->u[4 * half + 2 * i + 1] = byte_of(_mm512_srli_epi16(x[i], 3), v->second);
    }
}

#define PAIR(type)        PRIM uint32_t pair_##type(struct pair *to, const uint8_t *a, const uint8_t *b)
#define BOTH(f, type, of) f(K_AT(type, a, of), K_AT(type, b, of))

/* Two entries of the first sixteen columns of each of four blocks, then of the last. */
#define TWO_ENTRIES(X, n) X(n), X(n + 1), X(n + 4), X(n + 5), X(n + 8), X(n + 9), X(n + 12), X(n + 13), \
                          X(n + 2), X(n + 3), X(n + 6), X(n + 7), X(n + 10), X(n + 11), X(n + 14), X(n + 15)
#define OF_TWO_ROWS(X) { TWO_ENTRIES(X, 0), TWO_ENTRIES(X, 16), TWO_ENTRIES(X, 32), TWO_ENTRIES(X, 48) }

PRIM void two_scales(struct pair *to, __m128i nibbles, float k)
{
    const __m512i n = _mm512_cvtepu8_epi32(nibbles);
    to->n[0] = odd_times(n, k);
    to->n[1] = odd_times(_mm512_srli_epi32(n, 4), k);
}

PAIR(iq2_xxs)
{
#define ENTRY(i) (i) / 4 * 8 + (i) % 4
    static const _Alignas(64) uint8_t entry[64] = OF_TWO_ROWS(ENTRY);
#undef ENTRY
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m512i qa = load64(K_AT(iq2_xxs, a, qs)), qb = load64(K_AT(iq2_xxs, b, qs));
    const __m512i at = _mm512_permutex2var_epi8(qa, load64(entry), qb), more = odds(qa, qb);
    const __mmask64 bit = _mm512_movepi8_mask(at);
    put_eights(to, looked_up(iq2_xxs_book.lo, 2, at, &bit), looked_up(iq2_xxs_book.hi, 2, at, &bit),
               eight_signs(_mm512_shuffle_epi8(fields(more, 0, 7), order)), &iq2_values);
    to->n[1] = to->n[0] = odd_times(_mm512_srli_epi32(more, 28), 0.125f);
    return halves2(a, b);
}

PAIR(iq2_xs)
{
#define LOW(i)  2 * (i)
#define HIGH(i) 2 * (i) + 1
    static const _Alignas(64) uint8_t low[64] = OF_TWO_ROWS(LOW), high[64] = OF_TWO_ROWS(HIGH);
#undef LOW
#undef HIGH
    const __m512i qa = load64(K_AT(iq2_xs, a, qs)), qb = load64(K_AT(iq2_xs, b, qs));
    const __m512i at = _mm512_permutex2var_epi8(qa, load64(low), qb), more = _mm512_permutex2var_epi8(qa, load64(high), qb);
    const __mmask64 bit[2] = { _mm512_movepi8_mask(at), _mm512_test_epi8_mask(more, _mm512_set1_epi8(1)) };
    put_eights(to, looked_up(iq2_xs_book.lo, 4, at, bit), looked_up(iq2_xs_book.hi, 4, at, bit), eight_signs(_mm512_srli_epi16(more, 1)),
               &iq2_values);
    two_scales(to, BOTH(load8x2, iq2_xs, scales), 0.125f);
    return halves2(a, b);
}

PAIR(iq2_s)
{
    const __m512i q = BOTH(load32x2, iq2_s, qs), h = _mm512_cvtepu8_epi32(BOTH(load8x2, iq2_s, qh)), signs = BOTH(load32x2, iq2_s, signs);
    UNROLL
    for (int half = 0; half < 2; half++)
        gather_eights(to, half, iq2_s_words, entry_at(q, h, 2 * half, 4 * half, 0x3ff), entry_at(q, h, 2 * half + 1, 4 * half + 2, 0x3ff),
                   fields(signs, 16 * half - 2, 4), fields(signs, 16 * half, 4), &iq2_values);
    two_scales(to, BOTH(load8x2, iq2_s, scales), 0.125f);
    return halves2(a, b);
}

PAIR(iq3_xxs)
{
    const __m512i qa = load64(K_AT(iq3_xxs, a, qs)), qb = load64(K_AT(iq3_xxs, b, qs)), more = BOTH(load32x2, iq3_xxs, scales);
    const __m512i at[2] = { evens(qa, qb), odds(qa, qb) }, signs = eight_signs(fields(more, 0, 7));
    UNROLL
    for (int h = 0; h < 2; h++) {
        const __mmask64 bit = _mm512_movepi8_mask(at[h]);
        put_fours(to, h, looked_up(iq3_xxs_book.lo, 2, at[h], &bit), looked_up(iq3_xxs_book.hi, 2, at[h], &bit), signs, &iq3_xxs_values);
    }
    to->n[1] = to->n[0] = odd_times(_mm512_srli_epi32(more, 28), 0.25f);
    return halves2(a, b);
}

PAIR(iq3_s)
{
    const __m512i qa = load64(K_AT(iq3_s, a, qs)), qb = load64(K_AT(iq3_s, b, qs)), signs = BOTH(load32x2, iq3_s, signs);
    const __m512i at[2] = { evens(qa, qb), odds(qa, qb) };
    /* of each block the byte with a bit for each entry, four times */
    const __m512i four = _mm512_shuffle_epi8(_mm512_cvtepu8_epi32(BOTH(load8x2, iq3_s, qh)),
                                             _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    const __m512i each = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i scales = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)k_u32(K_AT(iq3_s, a, scales))), 0xff00,
                                                  (int)k_u32(K_AT(iq3_s, b, scales)));
    UNROLL
    for (int h = 0; h < 2; h++) {
        const __mmask64 bit[2] = { _mm512_movepi8_mask(at[h]),
                                   _mm512_test_epi8_mask(four, _mm512_set1_epi32(h ? (int)0x80402010 : 0x08040201)) };
        put_fours(to, h, looked_up(iq3_s_book.lo, 4, at[h], bit), looked_up(iq3_s_book.hi, 4, at[h], bit), signs, &iq3_s_values);
    }
    to->n[1] = to->n[0] = odd_times(_mm512_srlv_epi32(scales, each), 1);
    return halves2(a, b);
}

PRIM __m512i words8x2(const uint8_t *a, const uint8_t *b)
{
    return _mm512_cvtepu16_epi32(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)a)),
                                                         _mm_loadu_si128((const void *)b), 1));
}

PAIR(iq1_s)
{
    const __m512i q = BOTH(load32x2, iq1_s, qs), h = BOTH(words8x2, iq1_s, qh), minus = fields(h, 13, 0);
    UNROLL
    for (int half = 0; half < 2; half++)
        gather_eights(to, half, iq1_words, entry_at(q, h, 2 * half, 6 * half, 0x7ff),
                      entry_at(q, h, 2 * half + 1, 6 * half + 3, 0x7ff), minus, minus, &iq1_values);
    to->n[1] = to->n[0] = odd3_times(_mm512_srli_epi32(h, 12), 0.125f);
    return halves2(a, b);
}

/* quant_iq1_m_d, which is no function to call from here: a register of each vector would be saved. */
PRIM uint32_t half_iq1_m(const uint8_t *p)
{
    const uint64_t s = k_u64(K_AT(iq1_m, p, scales));
    return (uint32_t)((s >> 12 & 0xf) | (s >> 24 & 0xf0) | (s >> 36 & 0xf00) | (s >> 48 & 0xf000));
}

PAIR(iq1_m)
{
    const __m512i q = BOTH(load32x2, iq1_m, qs), h = BOTH(words8x2, iq1_m, qh);
    /* of two blocks a word of four scales */
    const __m512i words = _mm512_setr_epi32(0x0100, 0x0100, 0x0302, 0x0302, 0x0504, 0x0504, 0x0706, 0x0706,
                                            0x0908, 0x0908, 0x0b0a, 0x0b0a, 0x0d0c, 0x0d0c, 0x0f0e, 0x0f0e);
    const __m512i s = _mm512_permutexvar_epi8(words, _mm512_castsi128_si512(BOTH(load8x2, iq1_m, scales)));
    const __m512i n = _mm512_srlv_epi32(s, _mm512_set1_epi64(6ll << 32));
    UNROLL
    for (int half = 0; half < 2; half++) {
        const __m512i minus = fields_at(h, 8 * half + 1, 8 * half + 1, 8 * half + 5, 8 * half + 5);
        gather_eights(to, half, iq1_words, entry_at(q, h, 2 * half, 8 * half, 0x7ff),
                      entry_at(q, h, 2 * half + 1, 8 * half + 4, 0x7ff), minus, minus, &iq1_values);
    }
    to->n[0] = odd3_times(n, 0.125f);
    to->n[1] = odd3_times(_mm512_srli_epi32(n, 3), 0.125f);
    return half_iq1_m(a) | half_iq1_m(b) << 16;
}

/* ---- types without codebooks: their scales are halves ---- */

/* Four halves of two rows each, every one for two lanes; or two, for four. */
PRIM __m512 halves_of(const uint8_t *a, const uint8_t *b, size_t block, int n)
{
    uint64_t h[2] = { half_at(a), half_at(b) };
    UNROLL
    for (int i = 1; i < n; i++) {
        h[0] |= (uint64_t)half_at(a + (size_t)i * block) << 16 * i;
        h[1] |= (uint64_t)half_at(b + (size_t)i * block) << 16 * i;
    }
    const __m512 f = _mm512_castps256_ps512(_mm256_cvtph_ps(_mm_set_epi64x((long long)h[1], (long long)h[0])));
    return _mm512_permutexvar_ps(n == 4 ? _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
                                        : _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 4, 4, 4, 4, 5, 5, 5, 5), f);
}

PRIM void put_twos(struct pair *to, __m512i qa, __m512i qb)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const __m512i q = h ? odds(qa, qb) : evens(qa, qb);
        UNROLL
        for (int i = 0; i < 3; i++)
            to->u[4 * h + i] = byte_of(q, two_bits[i].of);
        to->u[4 * h + 3] = byte_of(_mm512_srli_epi16(q, 2), two_bits[2].of);
    }
}

PRIM __m512i four_blocks(const uint8_t *q)
{
    const size_t block = sizeof(struct quant_q2_0);
    __m512i e = _mm512_castsi128_si512(_mm_loadu_si128((const void *)q));
    e = _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + block)), 1);
    e = _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + 2 * block)), 2);
    return _mm512_inserti32x4(e, _mm_loadu_si128((const void *)(q + 3 * block)), 3);
}

PAIR(q2_0)
{
    put_twos(to, four_blocks(K_AT(q2_0, a, qs)), four_blocks(K_AT(q2_0, b, qs)));
    to->n[0] = halves_of(a, b, sizeof(struct quant_q2_0), 4);
    return ONES;
}

PAIR(q2_0_128)
{
    const uint8_t *qa = K_AT(q2_0_128, a, qs), *qb = K_AT(q2_0_128, b, qs);
    put_twos(to, load32x2(qa, qa + sizeof(struct quant_q2_0_128)), load32x2(qb, qb + sizeof(struct quant_q2_0_128)));
    to->n[0] = halves_of(a, b, sizeof(struct quant_q2_0_128), 2);
    return ONES;
}

PAIR(q1_0)
{
    const uint8_t *qa = K_AT(q1_0, a, qs), *qb = K_AT(q1_0, b, qs);
    const size_t block = sizeof(struct quant_q1_0);
    __m512i q = _mm512_castsi128_si512(_mm_loadu_si128((const void *)qa));
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const void *)(qa + block)), 1);
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const void *)qb), 2);
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const void *)(qb + block)), 3);
    UNROLL
    for (int i = 0; i < 8; i++)
        to->u[i] = byte_of(i < 6 ? q : _mm512_srli_epi16(q, 2), one_bit[i < 6 ? i : i - 2].of);
    to->n[0] = halves_of(a, b, block, 2);
    return ONES;
}

/* Which byte of a block a column's digit is of, and which digit. */
#define PTQ_BYTE(c)  ((c) < 80 ? (c) % 16 : (c) < 120 ? 16 + (c) % 8 : 24 + (c) % 2)
#define PTQ_DIGIT(c) ((c) < 80 ? (c) / 16 : (c) < 120 ? ((c) - 80) / 8 : ((c) - 120) / 2)
static _Alignas(64) uint8_t ptq1_0_byte[8][64];
static _Alignas(64) uint16_t ptq1_0_power[8][2][32]; /* of even columns, and of odd ones */

static void fill_ptq1_0(void)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < 64; i++) {
            const int c = 32 * (i / 4 % 4) + 4 * p + i % 4;
            ptq1_0_byte[p][i] = (uint8_t)(PTQ_BYTE(c) + i / 16 % 2 * 36 + i / 32 * 64);
            ptq1_0_power[p][i % 2][i / 2] = power[PTQ_DIGIT(c)];
        }
}

PAIR(ptq1_0)
{
    const __m512i three = _mm512_set1_epi16(3), high = _mm512_set1_epi16(0x300);
    __m512i q[2];
    UNROLL
    for (int r = 0; r < 2; r++) {
        const uint8_t *p = r ? b : a; /* 28 bytes of each block: the last load ends with the row */
        q[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)p)),
                                  _mm256_loadu_si256((const void *)(p + 24)), 1);
    }
    UNROLL
    for (int i = 0; i < 8; i++) { /* a digit: three times what is left of the byte after 3^n, which the upper half of a word has */
        const __m512i at = load64(ptq1_0_byte[i]);
        const __m512i v = _mm512_permutex2var_epi8(q[0], at, q[1]);
        const __m512i even = _mm512_mullo_epi16(_mm512_slli_epi16(v, 8), load64(ptq1_0_power[i][0]));
        const __m512i odd = _mm512_mullo_epi16(_mm512_and_si512(v, _mm512_set1_epi16((short)0xff00)), load64(ptq1_0_power[i][1]));
        to->u[i] = _mm512_mask_mov_epi8(_mm512_mulhi_epu16(even, three), 0xaaaaaaaaaaaaaaaa, _mm512_mulhi_epu16(odd, high));
    }
    to->n[0] = halves_of(K_AT(ptq1_0, a, d), K_AT(ptq1_0, b, d), sizeof(struct quant_ptq1_0), 2);
    return ONES;
}

/* ---- products ---- */

/* Activations of 256 columns in the order of a type; start: of the sums of a lane, or of its sixteens. */
struct ordered {
    _Alignas(32) int8_t x[8][32];
    int32_t start[2][8];
    float d[8];
};

struct vbmi_type {
    struct unpack of; /* only its bytes */
    pair_fn *pair;
    enum order order;
    int sub, offset;
};

static void put_in_order(struct ordered *to, const uint8_t *x, int n_cols, const struct vbmi_type *f)
{
    for (; n_cols > 0; n_cols -= 256, to++, x += 2 * sizeof(struct kernels_q8_group)) {
        const struct kernels_q8_group *g = (const void *)x;
        const __m512i q[4] = { load64(g[0].qs), load64(g[0].qs + 64), load64(g[1].qs), load64(g[1].qs + 64) };
        for (int i = 0; i < 4; i++) {
            const __m512i at = load64(orders[f->order] + 64 * i);
            _mm512_storeu_si512(to->x[2 * i], _mm512_mask_blend_epi32(0xf0f0, _mm512_permutex2var_epi8(q[0], at, q[1]),
                                                                      _mm512_permutex2var_epi8(q[2], at, q[3])));
        }
        for (int b = 0; b < 8; b++) {
            const int s[2] = { -f->offset * g[b / 4].sum[b % 4 * 2], -f->offset * g[b / 4].sum[b % 4 * 2 + 1] };
            to->start[0][b] = f->sub == 16 ? s[0] : s[0] + s[1];
            to->start[1][b] = s[1];
            to->d[b] = g[b / 4].d[b % 4];
        }
    }
}

PRIM __m512i twice(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_load_si256(p));
}

PRIM __m512 pair_sums(const struct pair *p, const struct ordered *x, int sub, int half)
{
    __m512i s = twice(x->start[half]);
    UNROLL
    for (int i = 0; i < sub / 4; i++)
        s = _mm512_dpbusd_epi32(s, p->u[4 * half + i], twice(x->x[4 * half + i]));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(s), p->n[half]); /* exact, but for scales that are halves */
}

/* Of a step of four rows and one token; s: of the sums of two rows each, of all columns or of both halves. */
PRIM VF add_step(VF acc, VF s[2][2], VF d, const struct ordered *x, int sub)
{
    UNROLL
    for (int g = 0; g < 2; g++) { /* lane r has blocks 4 g to 4 g + 3 of row r */
        VF f = g ? _mm512_shuffle_f32x4(s[0][0], s[1][0], 0xdd) : _mm512_shuffle_f32x4(s[0][0], s[1][0], 0x88);
        f = vf_mul(f, d);
        if (sub == 16)
            f = vf_fma(g ? _mm512_shuffle_f32x4(s[0][1], s[1][1], 0xdd) : _mm512_shuffle_f32x4(s[0][1], s[1][1], 0x88), d, f);
        acc = vf_fma(f, _mm512_broadcast_f32x4(_mm_load_ps(x->d + 4 * g)), acc);
    }
    return acc;
}

/* Rows 2 v and 2 v + 1 of a step, T tokens. */
INLINE uint32_t pair_step(VF s[TILE_T][2][2], int v, const struct tile *a, size_t o, const struct ordered *x, int T, pair_fn *pair, int sub)
{
    struct pair p;
    const uint32_t d = pair(&p, a->row[2 * v] + o, a->row[2 * v + 1] + o);
    UNROLL
    for (int t = 0; t < T; t++) {
        const struct ordered *xt = (const void *)((const uint8_t *)x + (size_t)t * a->x_stride);
        s[t][v][0] = pair_sums(&p, xt, sub, 0);
        if (sub == 16)
            s[t][v][1] = pair_sums(&p, xt, sub, 1);
    }
    return d;
}

/* As k_one_q8, of T tokens: n of 0 is a tile. */
INLINE void vbmi_rows(const struct tile *a, int n, int T, pair_fn *pair, int sub)
{
    const size_t total = (size_t)(n ? n : 1) * a->row_bytes, ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    const size_t step = a->unpack->bytes;
    const __m512i rows = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    struct tile to = *a;
    size_t done = 0;
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        const struct ordered *x = (const void *)a->x;
        VF acc[TILE_T];
        UNROLL
        for (int t = 0; t < T; t++)
            acc[t] = vf_zero();
        for (size_t o = at; o < at + a->row_bytes; o += step, x++) {
            VF s[TILE_T][2][2];
            uint64_t d[2];
            if (n)
                strip_ask(&to, &done, ask, o + step);
            else
                ahead_step(&done, a, o + step, TILE_R);
            ROLLED /* a pair's constants fill the registers */
            for (int v = 0; v < 2; v++)
                d[v] = pair_step(s, v, a, o, x, T, pair, sub);
            const VF half = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)(d[0] | d[1] << 32))));
            UNROLL
            for (int t = 0; t < T; t++)
                acc[t] = add_step(acc[t], s[t], _mm512_permutexvar_ps(rows, half),
                                  (const void *)((const uint8_t *)x + (size_t)t * a->x_stride), sub);
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            float s[TILE_R];
            VF v = _mm512_add_ps(acc[t], _mm512_permute_ps(acc[t], 0xb1));
            v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
            _mm_storeu_ps(s, _mm_add_ps(_mm512_castps512_ps128(_mm512_permutexvar_ps(first, v)), _mm_setzero_ps()));
            for (int r = 0; r < a->live; r++)
                to.out[(size_t)t * a->out_stride + (size_t)r * a->out_step] = s[r];
        }
    }
}

/* Of several tokens: code for all types. */
INLINE void vbmi_tile(const struct tile *a, int T)
{
    const struct vbmi_type *f = (const void *)a->unpack;
    if (f->sub == 16)
        vbmi_rows(a, 0, T, f->pair, 16);
    else
        vbmi_rows(a, 0, T, f->pair, 32);
}

static void tile_2(const struct tile *a)
{
    vbmi_tile(a, 2);
}

static void tile_4(const struct tile *a)
{
    vbmi_tile(a, 4);
}

/* The tier below has the others: many tokens, rows that end within 256 columns, and the longest. */
enum { MOST = 256 }; /* runs of 256 columns that are put in order at a time */
static struct kernels below;

INLINE int fits(int n_cols, int n_tokens)
{
    return n_tokens < MANY_TOKENS && n_cols > 0 && n_cols % 256 == 0 && n_cols / 256 <= MOST;
}

OUTER void vbmi_drive(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x, size_t x_stride, int n_tokens,
                      int n_cols, const struct row_tiles *f)
{
    struct ordered to[MOST];
    const int runs = n_cols / 256, most = MOST / runs;
    for (int t = 0; t < n_tokens; t += most) {
        const int n = n_tokens - t < most ? n_tokens - t : most;
        for (int i = 0; i < n; i++)
            put_in_order(to + i * runs, x + (size_t)(t + i) * x_stride, n_cols, (const void *)f->unpack);
        drive(out + (size_t)t * out_stride, out_stride, l, n_rows, to, (size_t)runs * sizeof *to, n, n_cols, f);
    }
}

#define VBMI(name, TYPE, columns, in_order, sub, offset)                                                                         \
    static __attribute__((noinline)) uint32_t called_##name(struct pair *to, const uint8_t *a, const uint8_t *b)                 \
    {                                                                                                                            \
        return pair_##name(to, a, b);                                                                                            \
    }                                                                                                                            \
    static const struct vbmi_type vbmi_##name = { { NULL, sizeof(struct quant_##name) * 256 / columns, 0, 0 }, called_##name, in_order, \
                                                  sub, offset };                                                                 \
    static __attribute__((noinline)) void one_##name(const struct tile *a, int n)                                                \
    {                                                                                                                            \
        vbmi_rows(a, n, 1, pair_##name, sub);                                                                                     \
    }                                                                                                                            \
    static void t1_##name(const struct tile *a)                                                                                  \
    {                                                                                                                            \
        one_##name(a, 0);                                                                                                        \
    }                                                                                                                            \
    static const struct row_tiles row_tiles_##name = { QUANT_##TYPE, t1_##name, t1_##name, tile_2, tile_4, tile_4,               \
                                                       .strip = one_##name, .unpack = &vbmi_##name.of };                         \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x,       \
                            size_t x_stride, int n_tokens, int n_cols)                                                           \
    {                                                                                                                            \
        const struct row_list l = { .base = rows, .stride = row_stride };                                                        \
        if (fits(n_cols, n_tokens))                                                                                              \
            vbmi_drive(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, &row_tiles_##name);                           \
        else                                                                                                                     \
            below.rows[KERNELS_ACT_Q8][QUANT_##TYPE](out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols);  \
    }                                                                                                                            \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x,                \
                               size_t x_stride, int n_tokens, int n_cols)                                                        \
    {                                                                                                                            \
        const struct row_list l = { .at = rows };                                                                                \
        if (fits(n_cols, n_tokens))                                                                                              \
            vbmi_drive(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, &row_tiles_##name);                           \
        else                                                                                                                     \
            below.rows_at[KERNELS_ACT_Q8][QUANT_##TYPE](out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols);           \
    }
VBMI(iq2_xxs, IQ2_XXS, 256, EIGHTS_TWO, 16, SIGNED)
VBMI(iq2_xs, IQ2_XS, 256, EIGHTS_TWO, 16, SIGNED)
VBMI(iq2_s, IQ2_S, 256, EIGHTS_TWO, 16, SIGNED)
VBMI(iq3_xxs, IQ3_XXS, 256, FOURS, 16, SIGNED)
VBMI(iq3_s, IQ3_S, 256, FOURS, 16, SIGNED)
VBMI(iq1_s, IQ1_S, 256, EIGHTS_TWO, 16, EIGHTH)
VBMI(iq1_m, IQ1_M, 256, EIGHTS_TWO, 16, EIGHTH)
VBMI(q1_0, Q1_0, 128, EIGHTS, 32, 1)
VBMI(q2_0, Q2_0, 64, FOURS, 32, 1)
VBMI(q2_0_128, Q2_0_128, 128, FOURS, 32, 1)
VBMI(ptq1_0, PTQ1_0, 128, AS_THEY_ARE, 32, 1)

void kernels_fill_avx512_vbmi(struct kernels *k)
{
    below = *k;
    fill_tables();
    fill_ptq1_0();
#define SET(name, TYPE)                                        \
    k->rows[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_##name;       \
    k->rows_at[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_at_##name;
    KERNELS_READ_TYPES(SET)
#undef SET
}
