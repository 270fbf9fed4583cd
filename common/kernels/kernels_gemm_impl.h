/* Products of int8 activations for many tokens. A panel of GEMM_R rows and GEMM_GROUPS groups of columns is unpacked once, as the
 * unsigned bytes of struct k_ops with four columns of a row side by side, then those of its neighbour, and stays in the first
 * level while tiles of GEMM_T tokens go by. A tile has its rows in the lanes of vectors of int32, GEMM_V for each token, into
 * which activations of four columns at a time are broadcast; after the last columns of a block they become floats, and their
 * scaled value is added to the sum that the block belongs to (kernels.h). The four sums of GEMM_CHUNK tokens wait on the stack
 * between panels. (KERNELS_SIGNED_TABLES: bytes of
 * tables stay signed.)
 *
 * A block of 32 columns costs eight vectors of products, and with one scale two float operations on the same ports, one more for
 * each further scale or minimum: no more than 80 % of a machine's int8 peak (Q4_0, Q8_0), 73 % (Q4_K, Q6_K), 62 % (Q2_K).
 * To reach with rows of 4096 and 512 tokens: 60 % where there is one scale, 50 % elsewhere (make bench-kernels).
 *
 * Measured with AVX-512 (two cores of a Xeon whose peak with vpdpbusd alone was 880 billion operations a second and core, Q4_0): a tile by
 * itself 71 % where the compiler knows the distances of a tile's activations (struct gemm_near) and schedules for AVX-512
 * (-mtune), 58 % with neither, 60 and 63 % with one; with tables of sums in the first or the second level alike. Panels were 20 % of the
 * time, and 46 % with 32 tokens, as an expert has; made of rows as they lie (kernels_avx512_turn_impl.h), and with the first panel of
 * the next rows asked for ahead, 12 and 37 %, so that 512 tokens take 0.83 and 32 tokens 0.73 of the time. */
#if defined(KERNELS_BLOCK_SUMS) && !defined(COMMON_KERNELS_GEMM_H)
#define COMMON_KERNELS_GEMM_H

#include "common/kernels/kernels_simd_impl.h"

/* Tiles by vectors of rows and tokens. */
#define GEMM_TILE(kind, V, T, sub, mins, is_signed)           \
    static void g##V##T##_##kind(const struct gemm_tile *a)   \
    {                                                         \
        gemm_tile(a, V, T, sub, mins, is_signed);             \
    }
#define GEMM_TILES_V(kind, V, ...)        \
    GEMM_TILE(kind, V, 1, __VA_ARGS__)    \
    GEMM_TILE(kind, V, 2, __VA_ARGS__)    \
    GEMM_TILE(kind, V, 4, __VA_ARGS__)    \
    GEMM_TILE(kind, V, 6, __VA_ARGS__)
#define GEMM_TILES_OF(kind, V) { [1] = g##V##1_##kind, [2] = g##V##2_##kind, [4] = g##V##4_##kind, [6] = g##V##6_##kind }
typedef void gemm_fn(const struct gemm_tile *a);

struct gemm_tiles {
    gemm_fn *of[GEMM_V + 1][GEMM_T + 1];
};
#define GEMM_TILES_2(kind, ...) GEMM_TILES_V(kind, 1, __VA_ARGS__) GEMM_TILES_V(kind, 2, __VA_ARGS__)
#define GEMM_TILES_4(kind, ...) GEMM_TILES_2(kind, __VA_ARGS__) GEMM_TILES_V(kind, 4, __VA_ARGS__)
GEMM_TILES_4(32_0, 32, 0, 0)
GEMM_TILES_4(32_1, 32, 1, 0)
GEMM_TILES_2(16_0, 16, 0, 0)
GEMM_TILES_2(16_1, 16, 1, 0)
#define GEMM_1_2(kind) [1] = GEMM_TILES_OF(kind, 1), [2] = GEMM_TILES_OF(kind, 2)
static const struct gemm_tiles gemm_32_0 = { { GEMM_1_2(32_0), [4] = GEMM_TILES_OF(32_0, 4) } };
static const struct gemm_tiles gemm_32_1 = { { GEMM_1_2(32_1), [4] = GEMM_TILES_OF(32_1, 4) } };
static const struct gemm_tiles gemm_16_0 = { { GEMM_1_2(16_0) } };
static const struct gemm_tiles gemm_16_1 = { { GEMM_1_2(16_1) } };
#ifdef KERNELS_SIGNED_TABLES
GEMM_TILES_4(32_s, 32, 0, 1)
static const struct gemm_tiles gemm_32_s = { { GEMM_1_2(32_s), [4] = GEMM_TILES_OF(32_s, 4) } };
#define GEMM_OFFSET(ops) ((ops).offset == K_TABLE ? 0 : (ops).offset)
#else
#define gemm_32_s        gemm_32_0
#define GEMM_OFFSET(ops) (ops).offset
#endif

INLINE int gemm_tokens(int left)
{
    return left >= GEMM_T ? GEMM_T : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Sixteen rows of a step: vector v of its blocks. */
INLINE void gemm_pack(struct gemm_block *to, int v, const uint8_t *const row[16], size_t o, int nb, struct k_ops ops)
{
    const size_t block = sizeof *to;
    struct f16x s[2][2][2][4]; /* by group, scales or minima, half of a block: those of four rows */
    uint8_t u[2][16][128];
    for (int r = 0; r < 16; r += 4) {
        struct k_scales4 k[2];
        k_rows_scales(k, row + r, o, nb, ops);
        UNROLL
        for (int g = 0; g < ops.groups; g++) {
            UNROLL
            for (int h = 0; h < 32 / ops.sub; h++) {
                s[g][0][h][r / 4] = k[g].s[h];
                if (ops.has_min)
                    s[g][1][h][r / 4] = k[g].m[h];
            }
            if (ops.turned)
                continue;
            UNROLL
            for (int i = 0; i < 4; i++)
                kg_store(u[g][r + i], k_unsigned(ops.group(row[r + i] + o, g, nb), ops.offset));
        }
    }
    UNROLL
    for (int g = 0; g < ops.groups; g++, to += 4) {
        if (ops.turned)
            ops.turned(to, v, row, o, g, nb);
        for (int b = 0; b < 4 && !ops.turned; b++) {
            gemm_turn(to[b].q[0][16 * v], 4 * GEMM_R, &u[g][0][16 * b], 128);
            gemm_turn(to[b].q[4][16 * v], 4 * GEMM_R, &u[g][0][64 + 16 * b], 128);
        }
        UNROLL
        for (int h = 0; h < 32 / ops.sub; h++) {
            gemm_turn((uint8_t *)(to->s[h] + 16 * v), block, (const uint8_t *)s[g][0][h], 16);
            if (ops.has_min)
                gemm_turn((uint8_t *)(to->m[h] + 16 * v), block, (const uint8_t *)s[g][1][h], 16);
        }
    }
}

/* The rows of a panel. */
struct gemm_rows {
    const uint8_t *row[GEMM_R];
    int live, vectors;
    size_t row_bytes;
};

INLINE struct gemm_rows gemm_rows_of(const struct row_list *l, int r, int n_rows, int most, size_t row_bytes)
{
    struct gemm_rows a = { .live = n_rows - r < most ? n_rows - r : most, .row_bytes = row_bytes };
    a.vectors = a.live > 32 ? 4 : a.live > 16 ? 2 : 1;
    for (int i = 0; i < GEMM_R; i++)
        a.row[i] = row_of(l, r + (i < a.live ? i : a.live - 1));
    return a;
}

/* Groups from the one whose bytes begin at o on, `groups` of them. */
INLINE void gemm_panel(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups, struct k_ops ops)
{
    for (int g = 0; g < groups; g += ops.groups, o += ops.bytes, to += 4 * ops.groups) {
        const int nb = o + ops.bytes <= a->row_bytes ? 4 : (int)((a->row_bytes - o) / (ops.bytes / 4));
        for (int v = 0; v < a->vectors; v++)
            gemm_pack(to, v, a->row + 16 * v, o, nb, ops);
    }
}

/* What the next panel is unpacked from: bytes from o on of each row, `share` rows to be asked for before each tile. */
struct gemm_ask {
    const struct gemm_rows *rows;
    size_t o, end;
    int done, share;
};

INLINE struct gemm_ask gemm_ask_of(const struct gemm_rows *rows, size_t o, size_t step, int n_tokens)
{
    const int tiles = (n_tokens + GEMM_T - 1) / GEMM_T;
    return (struct gemm_ask){ .rows = rows, .o = o, .end = rows->row_bytes - o < step ? rows->row_bytes : o + step,
                              .share = (rows->live + tiles - 1) / tiles };
}

INLINE void gemm_ask(struct gemm_ask *a)
{
    for (int i = 0; i < a->share && a->done < a->rows->live; i++) {
        const uint8_t *p = a->rows->row[a->done++];
        for (size_t at = a->o; at < a->end; at += 64)
            __builtin_prefetch(p + at);
        __builtin_prefetch(p + a->end - 1);
    }
}

/* next: the rows that follow, or a again. */
INLINE void gemm_rows(float *out, size_t out_stride, const struct gemm_rows *a, const struct gemm_rows *next, const uint8_t *x,
                      size_t x_stride, int n_tokens, struct k_ops ops, const struct gemm_tiles *tiles)
{
    _Alignas(64) gemm_sums acc[GEMM_CHUNK];
    _Alignas(64) struct gemm_block w[4 * GEMM_GROUPS];
    const size_t step = ops.bytes * (size_t)(GEMM_GROUPS / ops.groups);
    memset(acc, 0, (size_t)n_tokens * sizeof *acc);
    for (size_t o = 0; o < a->row_bytes; o += step, x += GEMM_GROUPS * sizeof(struct kernels_q8_group)) {
        const size_t left = (a->row_bytes - o + ops.bytes - 1) / ops.bytes * (size_t)ops.groups;
        struct gemm_tile tile = { .w = w, .x_stride = x_stride, .groups = left < GEMM_GROUPS ? (int)left : GEMM_GROUPS,
                                  .offset = GEMM_OFFSET(ops) };
        struct gemm_ask ask = o + step < a->row_bytes ? gemm_ask_of(a, o + step, step, n_tokens) : gemm_ask_of(next, 0, step, n_tokens);
        gemm_panel(w, a, o, tile.groups, ops);
        for (int t = 0, n; t < n_tokens; t += n) {
            n = gemm_tokens(n_tokens - t);
            gemm_ask(&ask);
            tile.acc = acc + t;
            tile.x = x + (size_t)t * x_stride;
            tiles->of[a->vectors][n](&tile);
        }
    }
    for (int t = 0; t < n_tokens; t++)
        gemm_store(out + (size_t)t * out_stride, acc[t], a->live);
}

INLINE void gemm_all(float *out, size_t out_stride, const struct row_list *l, size_t row_bytes, int n_rows, const uint8_t *x,
                     size_t x_stride, int n_tokens, struct k_ops ops, const struct gemm_tiles *tiles)
{
    const int most = ops.sub == 16 ? GEMM_R / 2 : GEMM_R; /* two scales a block: twice as many vectors to hold */
    struct gemm_rows a = gemm_rows_of(l, 0, n_rows, most, row_bytes);
    for (int t = 0; t < n_tokens; t += GEMM_CHUNK) {
        const int tokens = n_tokens - t < GEMM_CHUNK ? n_tokens - t : GEMM_CHUNK;
        for (int r = 0; r < n_rows; r += most) {
            const struct gemm_rows next = gemm_rows_of(l, r + most < n_rows ? r + most : 0, n_rows, most, row_bytes);
            gemm_rows(out + (size_t)t * out_stride + r, out_stride, &a, &next, x + (size_t)t * x_stride, x_stride, tokens, ops, tiles);
            a = next;
        }
    }
}

#define K_KIND(ops)                                                                                          \
    ((ops).offset == K_TABLE ? &gemm_32_s : (ops).sub == 32 ? (ops).has_min ? &gemm_32_1 : &gemm_32_0 :      \
     (ops).has_min ? &gemm_16_1 : &gemm_16_0)
#define K_GEMM(name, TYPE)                                                                                                     \
    static __attribute__((noinline)) void many_##name(float *out, size_t out_stride, const struct row_list *l, int n_rows,      \
                                                      const uint8_t *x, size_t x_stride, int n_tokens, int n_cols)             \
    {                                                                                                                          \
        gemm_all(out, out_stride, l, quant_row_bytes(QUANT_##TYPE, (uint64_t)n_cols), n_rows, x, x_stride, n_tokens,            \
                 K_OPS_##TYPE, K_KIND(K_OPS_##TYPE));                                                                          \
    }

#endif
