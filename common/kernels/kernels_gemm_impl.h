/* Products of int8 activations for many tokens. A panel of GEMM_R rows and GEMM_GROUPS groups of columns is unpacked once, as the
 * unsigned bytes of struct k_ops with four columns of a row side by side, then those of its neighbour, and stays in the first
 * level while tiles of GEMM_T tokens go by. A tile has its rows in the lanes of vectors of int32, GEMM_V for each token, into
 * which activations of four columns at a time are broadcast; after the last columns of a block they become floats, and their
 * scaled value is added to the sum that the block belongs to (kernels.h). The four sums of GEMM_CHUNK tokens wait on the stack
 * between panels.
 *
 * With vpdpbusd a block of 32 columns costs eight vectors of products, and with one scale two float operations on the same ports, one
 * more for each further scale or minimum: no more than 80 % of a machine's int8 peak (Q4_0, Q8_0), 73 % (Q4_K, Q6_K), 62 % (Q2_K).
 * To reach with rows of 4096 and 512 tokens: 60 % where there is one scale, 50 % elsewhere (make bench-tiers).
 * With AVX2 pairs are added in 16 bits for as long as they fit, and one vpmaddwd makes 32 bits of them: once for a block of bytes up to
 * 15, twice up to 31, four times up to 63. Signed bytes fill 16 bits with a pair, and take a vpsignb each. Of vpmaddubsw alone, Zen 5:
 * 50 % where once or twice, 44 % of Q6_K, 32 % of signed bytes; of vpmaddubsw and vpmaddwd in turns 60 to 100 %.
 *
 * Measured with AVX-512 (two cores of a Xeon whose peak with vpdpbusd alone was 880 billion operations a second and core, Q4_0): a tile by
 * itself 71 % where the compiler knows the distances of a tile's activations (struct gemm_near) and schedules for AVX-512
 * (-mtune), 58 % with neither, 60 and 63 % with one; with tables of sums in the first or the second level alike. Panels were 20 % of the
 * time, and 46 % with 32 tokens, as an expert has; made of rows as they lie (kernels_avx512_turn_impl.h), and with the first panel of
 * the next rows asked for ahead, 12 and 37 %, so that 512 tokens take 0.83 and 32 tokens 0.73 of the time. */
#if defined(KERNELS_BLOCK_SUMS) && !defined(COMMON_KERNELS_GEMM_H)
#define COMMON_KERNELS_GEMM_H

#include "common/kernels/kernels_simd_impl.h"

/* V sixteens of rows, at most GEMM_T tokens. GEMM_TILE(ops): a tier's function for a type. */
typedef void gemm_fn(const struct gemm_tile *a, int V, int T);

/* Sixteen rows of a step: vector v of its blocks. */
INLINE void gemm_pack(struct gemm_block *to, int v, const uint8_t *const row[16], size_t o, struct k_ops ops)
{
    const size_t block = sizeof *to;
    struct f16x s[2][2][2][4]; /* by group, scales or minima, half of a block: those of four rows */
    uint8_t u[2][16][128];
    for (int r = 0; r < 16; r += 4) {
        struct k_scales4 k[2];
        k_rows_scales(k, row + r, o, 4, ops);
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
                kg_store(u[g][r + i], k_unsigned(ops.group(row[r + i] + o, g, 4), ops.offset));
        }
    }
    UNROLL
    for (int g = 0; g < ops.groups; g++, to += 4) {
        if (ops.turned)
            ops.turned(to, v, row, o, g, 4);
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

/* Groups from the one whose bytes begin at o on, `groups` of them. What is missing of a row's last group is zero: its activations are. */
INLINE void gemm_panel(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups, struct k_ops ops)
{
    for (int g = 0; g < groups; g += ops.groups, o += ops.bytes, to += 4 * ops.groups) {
        const size_t left = a->row_bytes - o;
        uint8_t rest[16][4 * GEMM_BLOCK];
        const uint8_t *row[16];
        for (int v = 0; v < a->vectors; v++) {
            size_t at = o;
            for (int i = 0; i < 16; i++)
                row[i] = a->row[16 * v + i];
            if (ops.groups == 1 && left < ops.bytes) {
                memset(rest, 0, sizeof rest);
                for (int i = 0; i < 16; i++) {
                    memcpy(rest[i], row[i] + o, left);
                    row[i] = rest[i];
                }
                at = 0;
            }
            gemm_pack(to, v, row, at, ops);
        }
    }
}

/* A type's panels and tiles. */
struct gemm_type {
    void (*panel)(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups);
    gemm_fn *tile;
    uint32_t type;
    int groups, rows, offset; /* of a step; of a panel */
    size_t bytes;             /* of a step */
};

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
OUTER void gemm_rows(float *out, size_t out_stride, const struct gemm_rows *a, const struct gemm_rows *next, const uint8_t *x,
                     size_t x_stride, int n_tokens, const struct gemm_type *f)
{
    _Alignas(64) gemm_sums acc[GEMM_CHUNK];
    _Alignas(64) struct gemm_block w[4 * GEMM_GROUPS];
    const size_t step = f->bytes * (size_t)(GEMM_GROUPS / f->groups);
    memset(acc, 0, (size_t)n_tokens * sizeof *acc);
    for (size_t o = 0; o < a->row_bytes; o += step, x += GEMM_GROUPS * sizeof(struct kernels_q8_group)) {
        const size_t left = (a->row_bytes - o + f->bytes - 1) / f->bytes * (size_t)f->groups;
        struct gemm_tile tile = { .w = w, .x_stride = x_stride, .groups = left < GEMM_GROUPS ? (int)left : GEMM_GROUPS,
                                  .offset = f->offset };
        struct gemm_ask ask = o + step < a->row_bytes ? gemm_ask_of(a, o + step, step, n_tokens) : gemm_ask_of(next, 0, step, n_tokens);
        f->panel(w, a, o, tile.groups);
        for (int t = 0; t < n_tokens; t += GEMM_T) {
            gemm_ask(&ask);
            tile.acc = acc + t;
            tile.x = x + (size_t)t * x_stride;
            f->tile(&tile, a->vectors, n_tokens - t < GEMM_T ? n_tokens - t : GEMM_T);
        }
    }
    for (int t = 0; t < n_tokens; t++)
        gemm_store(out + (size_t)t * out_stride, acc[t], a->live);
}

OUTER void gemm_all(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x, size_t x_stride, int n_tokens,
                    int n_cols, const struct gemm_type *f)
{
    const size_t row_bytes = quant_row_bytes(f->type, (uint64_t)n_cols);
    struct gemm_rows a = gemm_rows_of(l, 0, n_rows, f->rows, row_bytes);
    for (int t = 0; t < n_tokens; t += GEMM_CHUNK) {
        const int tokens = n_tokens - t < GEMM_CHUNK ? n_tokens - t : GEMM_CHUNK;
        for (int r = 0; r < n_rows; r += f->rows) {
            const struct gemm_rows next = gemm_rows_of(l, r + f->rows < n_rows ? r + f->rows : 0, n_rows, f->rows, row_bytes);
            gemm_rows(out + (size_t)t * out_stride + r, out_stride, &a, &next, x + (size_t)t * x_stride, x_stride, tokens, f);
            a = next;
        }
    }
}

#define K_GEMM(name, TYPE)                                                                                                        \
    static __attribute__((noinline)) void panel_##name(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups)      \
    {                                                                                                                             \
        gemm_panel(to, a, o, groups, K_OPS_##TYPE);                                                                               \
    }                                                                                                                             \
    static void many_##name(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x,                \
                            size_t x_stride, int n_tokens, int n_cols)                                                            \
    {                                                                                                                             \
        const struct k_ops ops = K_OPS_##TYPE;                                                                                    \
        const struct gemm_type f = { .panel = panel_##name, .tile = GEMM_TILE(ops), .type = QUANT_##TYPE, .groups = ops.groups,    \
                                     .rows = ops.sub == 16 ? GEMM_R / 2 : GEMM_R, /* two scales a block: twice as many vectors */  \
                                     .offset = k_start(ops.offset), .bytes = ops.bytes };                                         \
        gemm_all(out, out_stride, l, n_rows, x, x_stride, n_tokens, n_cols, &f);                                                   \
    }

#endif
