#ifndef COMMON_KERNELS_KERNELS_K_IMPL_H
#define COMMON_KERNELS_KERNELS_K_IMPL_H

/* What the tiers' primitives for kernels_simd_k_impl.h are written with. A tier's file includes its vectors, this, has its primitives,
 * and includes the loops. */
#if defined(KERNELS_VN)

#include "common/base/inline.h"
#include "common/kernels/kernels_impl.h"

#include <stddef.h>
#include <string.h>

struct f16x { /* sixteen floats */
    VF v[16 / KERNELS_VN];
};
_Static_assert(sizeof(struct f16x) == 64, "sixteen floats");

/* Scales and minima of a group of four rows, for products with int8: first those of blocks (or of their first sixteen columns),
 * then those of their last sixteen. */
struct k_scales4 {
    struct f16x s[2], m[2];
};

/* s and m of a step in column order: 16 of 16 columns, or 8 (4 of a single group) of 32. m where the type has minima. */
struct k_scales {
    struct f16x s, m;
};

/* Offsets of types whose bytes may be negative, of which floats are made without one: no bound below 128; none below -12. */
enum { K_TABLE = 128,
       K_SMALL = K_TABLE + 12 };

INLINE uint32_t k_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint64_t k_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint64_t k_join(uint32_t lo, uint32_t hi)
{
    return (uint64_t)hi << 32 | lo;
}

#ifdef KERNELS_BLOCK_SUMS
/* The first byte of each of four blocks of four rows; 0 where there are only nb. */
INLINE void k_first_bytes(uint32_t to[4], const uint8_t *const row[4], size_t o, size_t block, int nb)
{
    UNROLL
    for (int r = 0; r < 4; r++) {
        const uint8_t *p = row[r] + o;
        to[r] = p[0];
        UNROLL
        for (int b = 1; b < 4; b++)
            to[r] |= b < nb ? (uint32_t)p[(size_t)b * block] << 8 * b : 0;
    }
}

/* ---- products for many tokens: kernels_gemm_impl.h ---- */

enum { GEMM_V = 4, /* sixteens of rows */
       GEMM_R = 16 * GEMM_V,
       GEMM_T = 6,
       GEMM_GROUPS = 2, /* of four blocks: of a panel */
       GEMM_BLOCK = 34, /* bytes of 32 columns, at most */
       GEMM_CHUNK = 96 /* tokens; their sums are most of what a worker has on its stack */ };

/* Weights of a panel: column 4 k + i of row r at q[k][r][i]; scales and minima as in struct k_scales4. */
struct gemm_block {
    uint8_t q[8][GEMM_R][4];
    float s[2][GEMM_R], m[2][GEMM_R];
};

/* The sums of a token, by the place of a block in its group. */
typedef float gemm_sums[4][GEMM_R];

/* What a tile's tokens have beside their bytes: for each block (or half of one), what the offset starts the sum from, and the
 * sum that multiplies minima. */
struct gemm_extra {
    int32_t start[GEMM_T][2][4 * GEMM_GROUPS];
    float sum[GEMM_T][2][4 * GEMM_GROUPS];
};

struct gemm_tile {
    gemm_sums *acc;             /* of the first token */
    const struct gemm_block *w; /* 4 * groups */
    const uint8_t *x;           /* the first token's groups */
    size_t x_stride;
    int groups, offset;
    const uint8_t *next; /* activations of the tile that follows, of so many tokens: */
    int next_tokens;
};

/* Asks for those of its token t, which lie too far from others' to come by themselves. In turns with products: a prefetch waits, too. */
INLINE void gemm_ask_token(const struct gemm_tile *a, int t)
{
    const uint8_t *x = a->next + (size_t)t * a->x_stride;
    if (t < a->next_tokens)
        for (size_t at = 0; at < GEMM_GROUPS * sizeof(struct kernels_q8_group); at += 64)
            __builtin_prefetch(x + at);
}

/* V sixteens of rows, at most GEMM_T tokens. */
typedef void gemm_fn(const struct gemm_tile *a, int V, int T);

/* The rows of a panel. */
struct gemm_rows {
    const uint8_t *row[GEMM_R];
    int live, vectors;
    size_t row_bytes;
};

/* A type's panels and tiles. */
struct gemm_type {
    void (*panel)(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups);
    gemm_fn *tile;
    uint32_t type;
    int groups, rows;            /* of a step; of a panel */
    int sub, offset, has_min;    /* as in struct k_ops; what is too much in each byte */
    int is_signed;               /* bytes are, where a tier's panels leave them so */
    size_t bytes;                /* of a step */
};
#endif

#define K_AT(type, p, field) ((p) + offsetof(struct quant_##type, field))

#endif
#endif
