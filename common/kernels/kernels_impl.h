#ifndef COMMON_KERNELS_KERNELS_IMPL_H
#define COMMON_KERNELS_KERNELS_IMPL_H

/* What the tiers share: their entry points and the loops around a register tile. Included by
 * kernels.c and kernels_*.c only. */
#include "common/kernels/kernels.h"

void kernels_fill_scalar(struct kernels *k);
void kernels_fill_avx2(struct kernels *k);
void kernels_fill_avxvnni(struct kernels *k); /* after kernels_fill_avx2 */
void kernels_fill_avx512(struct kernels *k);
void kernels_fill_avx512_vbmi(struct kernels *k); /* after kernels_fill_avx512, whose bits it gives */
void kernels_fill_amx(struct kernels *k); /* after kernels_fill_avx512 */
void kernels_fill_neon(struct kernels *k);
void kernels_fill_dotprod(struct kernels *k);
void kernels_fill_i8mm(struct kernels *k);

/* Of a table that is filled: each entry looks at its operands first, and goes on to what was there. AddressSanitizer: kernels_guard.c. */
void kernels_guard(struct kernels *k);

/* Called by kernels_fill_*: the types of KERNELS_BLOCK_TYPES. */
void kernels_fill_k_avx2(struct kernels *k);
void kernels_fill_k_avx512(struct kernels *k);
void kernels_fill_k_neon(struct kernels *k);

/* Types that go through kernels_simd_k_impl.h. */
#define KERNELS_BLOCK_TYPES(X) \
    X(q4_1, Q4_1)              \
    X(q5_0, Q5_0)              \
    X(q5_1, Q5_1)              \
    X(iq4_nl, IQ4_NL)          \
    X(mxfp4, MXFP4)            \
    X(q2_k, Q2_K)              \
    X(q3_k, Q3_K)              \
    X(q4_k, Q4_K)              \
    X(q5_k, Q5_K)              \
    X(q6_k, Q6_K)              \
    X(iq4_xs, IQ4_XS)

/* Types that are read and not written: kernels_read_impl.h. */
#define KERNELS_READ_TYPES(X) \
    X(iq2_xxs, IQ2_XXS)       \
    X(iq2_xs, IQ2_XS)         \
    X(iq2_s, IQ2_S)           \
    X(iq3_xxs, IQ3_XXS)       \
    X(iq3_s, IQ3_S)           \
    X(iq1_s, IQ1_S)           \
    X(iq1_m, IQ1_M)           \
    X(q1_0, Q1_0)             \
    X(q2_0, Q2_0)             \
    X(q2_0_128, Q2_0_128)     \
    X(ptq1_0, PTQ1_0)

/* Activations of a block whose largest magnitude is below this are zero: 127 / max must not
 * overflow. */
#define KERNELS_Q8_TINY 0x1p-100f

/* The sums of block b of a group, from its qs. */
static inline void kernels_q8_sums(struct kernels_q8_group *g, int b)
{
    for (int h = 0; h < 2; h++) {
        const int8_t *q = g->qs + 32 * b + 16 * h;
        int s = 0;
        for (int j = 0; j < 16; j++)
            s += q[j];
        g->sum[2 * b + h] = (int16_t)s;
    }
}

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#elif defined(__SANITIZE_ADDRESS__) /* gcc says that it leaves loops with checks in them as they are */
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#ifndef ROLLED
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
