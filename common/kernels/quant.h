#ifndef COMMON_KERNELS_QUANT_H
#define COMMON_KERNELS_QUANT_H

/* Tensor element types, with GGML's numbering (the numbers are in GGUF and packed files), their
 * block structure, and scalar reference conversions. Types are rows of a traits table, not
 * switches. Reference: ggml's published block layouts. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum quant_type {
    QUANT_F32 = 0, QUANT_F16 = 1, QUANT_Q4_0 = 2, QUANT_Q4_1 = 3, QUANT_Q5_0 = 6, QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8, QUANT_Q8_1 = 9, QUANT_Q2_K = 10, QUANT_Q3_K = 11, QUANT_Q4_K = 12, QUANT_Q5_K = 13,
    QUANT_Q6_K = 14, QUANT_IQ2_XXS = 16, QUANT_IQ2_XS = 17, QUANT_IQ3_XXS = 18, QUANT_IQ1_S = 19,
    QUANT_IQ4_NL = 20, QUANT_IQ3_S = 21, QUANT_IQ2_S = 22, QUANT_IQ4_XS = 23, QUANT_IQ1_M = 29,
    QUANT_BF16 = 30, QUANT_TQ1_0 = 34, QUANT_TQ2_0 = 35, QUANT_MXFP4 = 39, QUANT_Q1_0 = 41, QUANT_Q2_0 = 42,
    /* numbers of our own; files have 143, and 142 or, older ones, 42, whose tensors' sizes tell (gguf.h) */
    QUANT_PTQ1_0 = 62, QUANT_Q2_0_128 = 63,
    QUANT_LIMIT = 64 /* one more than the largest number this build looks up */
};

/* Blocks of 32 weights. Element j is the low nibble of qs[j] for j < 16, else the high nibble of
 * qs[j - 16]; a fifth bit of element j is bit j of qh. */

struct quant_q4_0 { /* w = d * (q - 8) */
    uint16_t d; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_q4_0) == 18, "Q4_0 block");

struct quant_q4_1 { /* w = d * q + m */
    uint16_t d, m; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_q4_1) == 20, "Q4_1 block");

struct quant_q5_0 { /* w = d * (q - 16) */
    uint16_t d; /* F16 */
    uint8_t qh[4], qs[16];
};
_Static_assert(sizeof(struct quant_q5_0) == 22, "Q5_0 block");

struct quant_q5_1 { /* w = d * q + m */
    uint16_t d, m; /* F16 */
    uint8_t qh[4], qs[16];
};
_Static_assert(sizeof(struct quant_q5_1) == 24, "Q5_1 block");

struct quant_q8_0 { /* w = d * q */
    uint16_t d; /* F16 */
    int8_t qs[32];
};
_Static_assert(sizeof(struct quant_q8_0) == 34, "Q8_0 block");

struct quant_iq4_nl { /* w = d * quant_iq4_values[q] */
    uint16_t d; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_iq4_nl) == 18, "IQ4_NL block");

struct quant_mxfp4 { /* w = 2^(e - 128) * quant_mxfp4_values[q] */
    uint8_t e;
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_mxfp4) == 17, "MXFP4 block");

/* Bits in order, the lowest of a byte first: of one, w = d or, where it is 0, -d; of two, w = d * (q - 1). */
struct quant_q1_0 {
    uint16_t d; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_q1_0) == 18, "Q1_0 block of 128");

struct quant_q2_0 {
    uint16_t d; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_q2_0) == 18, "Q2_0 block of 64");

struct quant_q2_0_128 {
    uint16_t d; /* F16 */
    uint8_t qs[32];
};
_Static_assert(sizeof(struct quant_q2_0_128) == 34, "Q2_0 block of 128");

/* Five digits of base 3 a byte, four in qh, the most significant first and the byte scaled by 256 / 243, rounded up: w = d * (digit - 1).
 * Digit n of byte j of the first sixteen is weight 16 n + j, of the other eight 80 + 8 n + j, of qh 120 + 2 n + j. */
struct quant_ptq1_0 {
    uint8_t qs[24], qh[2];
    uint16_t d; /* F16 */
};
_Static_assert(sizeof(struct quant_ptq1_0) == 28, "PTQ1_0 block of 128");

/* Blocks of 256 weights: 8 sub-blocks of 32, or 16 of 16, with scales of few bits; d and dmin are F16.
 * In runs of 64 weights, 32 bytes of qs hold the first 32 as low nibbles, the others as high ones. */

struct quant_q2_k { /* w = d * (scales & 15) * q - dmin * (scales >> 4), sub-blocks of 16 */
    uint8_t scales[16];
    uint8_t qs[64]; /* 128 weights in 32 bytes: weight 32 * k + j is bits 2k, 2k + 1 of byte j */
    uint16_t d, dmin;
};
_Static_assert(sizeof(struct quant_q2_k) == 84, "Q2_K block");

struct quant_q3_k { /* w = d * (scale - 32) * (q - 4), sub-blocks of 16 */
    uint8_t hmask[32];  /* the third bit: weight 32 * k + j is bit k of byte j */
    uint8_t qs[64];     /* two bits each, as Q2_K */
    uint8_t scales[12]; /* of scale i: 4 low bits in nibble i / 8 of byte i % 8, 2 high bits at bit 2 * (i / 4) of byte 8 + i % 4 */
    uint16_t d;
};
_Static_assert(sizeof(struct quant_q3_k) == 110, "Q3_K block");

struct quant_q4_k { /* w = d * scale * q - dmin * min, sub-blocks of 32 */
    uint16_t d, dmin;
    uint8_t scales[12]; /* i < 4: scale = 6 bits of byte i, min = 6 bits of byte 4 + i; else nibbles of byte 4 + i, low and
                         * high, with the two top bits of bytes i - 4 and i above them */
    uint8_t qs[128];
};
_Static_assert(sizeof(struct quant_q4_k) == 144, "Q4_K block");

struct quant_q5_k { /* as Q4_K */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32]; /* the fifth bit: weight 32 * k + j is bit k of byte j */
    uint8_t qs[128];
};
_Static_assert(sizeof(struct quant_q5_k) == 176, "Q5_K block");

struct quant_q6_k { /* w = d * scale * (q - 32), sub-blocks of 16 */
    uint8_t ql[128]; /* 4 bits; 128 weights in 64 bytes: the first 64 as low nibbles, the others as high ones */
    uint8_t qh[64];  /* 2 bits, as Q2_K's */
    int8_t scales[16];
    uint16_t d;
};
_Static_assert(sizeof(struct quant_q6_k) == 210, "Q6_K block");

struct quant_iq4_xs { /* w = d * (scale - 32) * quant_iq4_values[q], sub-blocks of 32 in Q4_0's order */
    uint16_t d, scales_h; /* scale i: 2 high bits at bit 2i of scales_h, 4 low ones in nibble i % 2 of scales_l[i / 2] */
    uint8_t scales_l[4];
    uint8_t qs[128];
};
_Static_assert(sizeof(struct quant_iq4_xs) == 136, "IQ4_XS block");

/* Entries of codebooks (quant_iq_codebooks.h), signs and scales: quant_iq.c. Read, not written. */
struct quant_iq2_xxs {
    uint16_t d;
    uint8_t qs[64]; /* of 32 elements: four entries, then a word of four times seven signs and a scale of 4 bits */
};
_Static_assert(sizeof(struct quant_iq2_xxs) == 66, "IQ2_XXS block");

struct quant_iq2_xs {
    uint16_t d;
    uint8_t qs[64]; /* of 8 elements: a word of an entry (9 bits) and seven signs */
    uint8_t scales[8];
};
_Static_assert(sizeof(struct quant_iq2_xs) == 74, "IQ2_XS block");

struct quant_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];
};
_Static_assert(sizeof(struct quant_iq2_s) == 82, "IQ2_S block");

struct quant_iq3_xxs {
    uint16_t d;
    uint8_t qs[64], scales[32]; /* of 32 elements: a word of four times seven signs and a scale of 4 bits */
};
_Static_assert(sizeof(struct quant_iq3_xxs) == 98, "IQ3_XXS block");

struct quant_iq3_s {
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];
};
_Static_assert(sizeof(struct quant_iq3_s) == 110, "IQ3_S block");

/* Groups of eight: an entry of 11 bits, 8 in qs, and for all of them -1 or +1 eighth is added. */
struct quant_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8]; /* of 32 elements: four times 3 bits, a scale of 3, the sign of the eighth */
};
_Static_assert(sizeof(struct quant_iq1_s) == 50, "IQ1_S block");

struct quant_iq1_m {
    uint8_t qs[32], qh[16]; /* of 8 elements 3 bits and the sign of the eighth */
    uint16_t scales[4];     /* four of 3 bits, of 16 elements each, and four bits of d, the lowest first */
};
_Static_assert(sizeof(struct quant_iq1_m) == 56, "IQ1_M block");

extern const int8_t quant_iq4_values[16], quant_mxfp4_values[16];

struct quant_traits {
    const char *name;   /* "Q4_0", as GGUF tools print it */
    int block_elems;    /* 1 for F32, F16, BF16 */
    int block_bytes;
    /* n elements, n a multiple of block_elems. NULL: this build cannot. */
    void (*dequant)(float *out, const void *in, size_t n);
    void (*quant)(void *out, const float *in, size_t n);
    /* The same where an error of element i counts by[i] >= 0 times as much, in sum by[i] * (out[i] - in[i])^2. by: [n]; NULL, and a block
     * in which every by is 0: as `quant` weighs them. NULL: the type's scales are not searched for, and `quant` is all there is. */
    void (*quant_by)(void *out, const float *in, const float *by, size_t n);
    uint8_t n_halves, half_at[2]; /* where a block has numbers in F16: the scales, or the weight */
};

/* NULL for an unknown number. A known type whose dequant is NULL is recognised (so that sizes and
 * messages are right) but refused. */
const struct quant_traits *quant_traits(uint32_t type);

/* Type by name, case-insensitive ("q8_0"); -1 when unknown. */
int quant_by_name(const char *name);

/* Bytes of a row of n elements. 0 when the type is unknown or n is not a multiple of its block. */
size_t quant_row_bytes(uint32_t type, uint64_t n);

/* The first of n blocks with an infinite number in it or none at all (NaN): a weight, or a scale; n: there is none. Of types that this
 * build cannot compute nothing is looked at. */
size_t quant_first_not_finite(uint32_t type, const void *blocks, size_t n);

/* IEEE 754 binary16 <-> binary32, round to nearest even, subnormals and infinities exact. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
static inline float quant_bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = { .u = (uint32_t)h << 16 };
    return v.f;
}
uint16_t quant_f32_to_bf16(float f);

#endif
