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
    QUANT_Q8_0 = 8, QUANT_Q2_K = 10, QUANT_Q3_K = 11, QUANT_Q4_K = 12, QUANT_Q5_K = 13,
    QUANT_Q6_K = 14, QUANT_BF16 = 30,
    QUANT_LIMIT = 40 /* one more than the largest number this build looks up */
};

/* Q4_0: 32 weights, w = d * (q - 8). Element j is the low nibble of qs[j] for j < 16, else the
 * high nibble of qs[j - 16]. */
struct quant_q4_0 {
    uint16_t d; /* F16 */
    uint8_t qs[16];
};
_Static_assert(sizeof(struct quant_q4_0) == 18, "Q4_0 block");

/* Q8_0: 32 weights, w = d * q. */
struct quant_q8_0 {
    uint16_t d; /* F16 */
    int8_t qs[32];
};
_Static_assert(sizeof(struct quant_q8_0) == 34, "Q8_0 block");

struct quant_traits {
    const char *name;   /* "Q4_0", as GGUF tools print it */
    int block_elems;    /* 1 for F32, F16, BF16 */
    int block_bytes;
    /* n elements, n a multiple of block_elems. NULL: this build cannot. */
    void (*dequant)(float *out, const void *in, size_t n);
    void (*quant)(void *out, const float *in, size_t n);
};

/* NULL for an unknown number. A known type whose dequant is NULL is recognised (so that sizes and
 * messages are right) but refused. */
const struct quant_traits *quant_traits(uint32_t type);

/* Type by name, case-insensitive ("q8_0"); -1 when unknown. */
int quant_by_name(const char *name);

/* Bytes of a row of n elements. 0 when the type is unknown or n is not a multiple of its block. */
size_t quant_row_bytes(uint32_t type, uint64_t n);

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
