/* The loops of the SIMD tiers, written once over a tier's vector primitives. A tier's .c defines
 * KERNELS_VN (float lanes), KERNELS_TILE_T (tokens of the widest tile) and the primitives listed
 * below, then includes this file; everything here is static and inlined into it.
 *
 * Products go through register tiles of 4 rows x 1, 2 or 4 tokens (1 row x 1 token for a single
 * row). Each (row, token) has one vector accumulator, columns are added in ascending order and the
 * lanes are summed by one fixed tree: the tile's shape cannot change the bits, and four rows are
 * enough independent chains to hide the latency of an fma behind the loads. Two or three left-over
 * rows run as a tile of four with repeated pointers.
 *
 * Accumulations (axpy) take eight or four rows at a time over all columns: one load and one store of the
 * accumulator for all of them, which are added in order.
 *
 * Both read every row once, front to back, and ask for each line PREFETCH_BYTES (sums of eight rows: KERNELS_AXPY_LEAD) before
 * it is needed, in the row that comes next where the own row ends. Rows scattered in memory defeat the
 * hardware prefetchers; this is what brings them near the speed of loads that do nothing else.
 *
 * Numbers to reach, as shares of what loads alone do with the same bytes in the same run
 * (make bench-kernels; AVX-512, Zen 5, rows of 4096, one or two threads): int8 products 0.9 in order
 * and 0.8 scattered; F32 activations 0.9 and 0.85 but for Q4_0 (0.6 and 0.7: unpacking nibbles to
 * floats takes as long as reading them); axpy 0.9, Q4_0 0.7. */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_SIMD_H)
#define COMMON_KERNELS_SIMD_H

#include "common/base/inline.h"
#include "common/kernels/kernels_impl.h"

#include <string.h>

/* Primitives, with VF the tier's float vector:
 *   VF    vf_zero(void), vf_set1(float), vf_load(const float *), vf_add(VF, VF), vf_mul(VF, VF)
 *   VF    vf_fma(VF a, VF b, VF c)            a * b + c, rounded once
 *   void  vf_store(float *, VF)
 *   float vf_sum(VF)                          fixed tree
 *   VF    vf_load_part(const float *, int n)  n < VN lanes, the others 0
 *   void  vf_store_part(float *, VF, int n)
 *   VF    w_TYPE(const uint8_t *p, int v)     columns [v*VN, v*VN + VN) of the 32 at p, in units
 *                                             of the block's scale where the type has one
 *   void  scales4(float d[4], const uint8_t *p, size_t block, int nb, float h)
 *                                             h times the scales of the first nb blocks at p
 *   VF    part_TYPE(const uint8_t *p, int n)  float types: the first n < VN columns at p
 * with KERNELS_SUM4
 *   void  vf_sum4(float s[4], VF, VF, VF, VF) vf_sum of each
 * with KERNELS_SCALES4X4, for Q4_0
 *   VF    spread4(const float h[4])           four lanes of each
 *   void  scales4x4(float d[4][4], const uint8_t *const row[4], size_t o, VF h)
 *                                             scales4 of four blocks for each of four rows, at row[r] + o; h: spread4 */

#define OUTER  static __attribute__((noinline, unused))
#ifndef KEEP_IN_MEMORY
#define KEEP_IN_MEMORY(x) (void)(x)
#endif
#ifndef KERNELS_AXPY_R
#define KERNELS_AXPY_R 4
#endif
#ifndef KERNELS_AXPY_B
#define KERNELS_AXPY_B 1
#endif
#ifndef KERNELS_AXPY_LEAD /* bytes of a row, at most the whole row */
#define KERNELS_AXPY_LEAD 65536
#endif

enum { TILE_R = 4,
       AXPY_R = KERNELS_AXPY_R, /* 4, or 8 where nibbles and their scales leave registers for it */
       AXPY_B = KERNELS_AXPY_B, /* blocks of a row at a time: sums that do not wait for each other */
       LANES_MAX = AXPY_R > TILE_R ? AXPY_R : TILE_R };
enum { TILE_T = KERNELS_TILE_T,
       VN = KERNELS_VN,
       PREFETCH_BYTES = KERNELS_PREFETCH };

typedef VF weight_fn(const uint8_t *p, int v);
typedef VF weight_part_fn(const uint8_t *p, int n);

/* A weight type as the loops see it. */
struct type_ops {
    weight_fn *w;
    weight_part_fn *part; /* NULL: a type of blocks of 32 columns with a scale */
    size_t bytes32;       /* of 32 columns */
};

/* Tiles that types share (kernels_simd_k_impl.h) multiply what a type's function has unpacked: n columns from offset o on, at most STEP and
 * a multiple of the block, of each of R rows. */
enum { STEP = 256 };
struct bytes;
struct unpack {
    void (*rows)(struct bytes *to, const uint8_t *const *row, size_t o, int n, int R);
    size_t bytes; /* of STEP columns */
    int shift;    /* a scale is for 16 << shift columns */
    int mins;     /* fours of minima that products with int8 add before a step's, or before each group's; 0: of the offset alone */
};

/* One call of a tile. */
struct tile {
    float *out;
    size_t out_stride, out_step; /* between tokens; between this tile's rows */
    const uint8_t *row[LANES_MAX];
    const uint8_t *x;
    size_t x_stride, row_bytes;
    int live, n_cols; /* live: rows to write */
    const struct unpack *unpack;
    /* The line of lane r to ask for at offset o is ahead[0][r] + o, from offset turn on
     * ahead[1][r] + o. */
    uintptr_t ahead[2][LANES_MAX];
    size_t refill_gap;
};

/* ---- prefetch ---- */

/* A lane of a tile sees one row after another; `distance` bytes further on in that sequence is `rest`
 * bytes into the row that is `rows` further on. */
struct lead {
    int rows;
    size_t rest;
};

INLINE struct lead lead_of(size_t row_bytes, size_t distance)
{
    if (row_bytes == 0)
        return (struct lead){ 0, 0 };
    return (struct lead){ (int)(distance / row_bytes), distance % row_bytes };
}

/* Lane i works on row; coming[0] is lead.rows rows further on, coming[1] the one after that. */
INLINE void tile_lane(struct tile *a, int i, struct lead lead, const uint8_t *row, const uint8_t *const coming[2])
{
    a->refill_gap = a->row_bytes - lead.rest;
    a->row[i] = row;
    a->ahead[0][i] = (uintptr_t)coming[0] + lead.rest;
    a->ahead[1][i] = (uintptr_t)coming[1] - a->refill_gap;
}

/* Ask for each line once, as the tile reaches offset `to`; done: how far it has asked. */
INLINE void ahead_step(size_t *done, const struct tile *a, size_t to, int R)
{
    for (; *done < to; *done += 64) {
        const uintptr_t *at = a->ahead[*done >= a->refill_gap];
        UNROLL
        for (int r = 0; r < R; r++)
            __builtin_prefetch((const void *)(at[r] + *done));
    }
}

/* The first bytes of n rows. In turns: rows asked for one after another come at half the speed. */
INLINE void ask_now(const uint8_t *const *row, unsigned n, size_t bytes)
{
    for (size_t o = 0; o < bytes; o += 64)
        for (unsigned i = 0; i < n; i++)
            __builtin_prefetch(row[i] + o);
}

/* ---- products ---- */

typedef void tile_fn(const struct tile *a);

INLINE void store_token(const struct tile *a, VF acc[TILE_R][TILE_T], int t, int R)
{
#ifdef KERNELS_SUM4
    if (R == 4) {
        float sum[4];
        vf_sum4(sum, acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
        for (int r = 0; r < a->live; r++)
            a->out[(size_t)t * a->out_stride + (size_t)r * a->out_step] = sum[r];
        return;
    }
#endif
    UNROLL
    for (int r = 0; r < R; r++)
        if (r < a->live)
            a->out[(size_t)t * a->out_stride + (size_t)r * a->out_step] = vf_sum(acc[r][t]);
}

INLINE void tile_clear(VF acc[TILE_R][TILE_T], int R, int T)
{
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            acc[r][t] = vf_zero();
    }
}

INLINE void tile_store(const struct tile *a, VF acc[TILE_R][TILE_T], int R, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        store_token(a, acc, t, R);
}

INLINE const float *tile_x(const struct tile *a, int t, int c)
{
    return (const float *)(const void *)(a->x + (size_t)t * a->x_stride) + c;
}

/* nb (4 or 1) blocks of a type with scales. The scales are fetched together and go through memory, from
 * where a vector instruction broadcasts them for nothing. The products of a block's columns are
 * summed on their own, which keeps the chain through acc short, then scaled and added. */
INLINE void blocks_scaled(VF acc[TILE_R][TILE_T], const struct tile *a, size_t o, int c, int nb, int R, int T,
                          struct type_ops ops)
{
    VF w[TILE_R][32 / VN];
    float d[TILE_R][4];
    UNROLL
    for (int r = 0; r < R; r++)
        scales4(d[r], a->row[r] + o, ops.bytes32, nb, 1);
    /* A block's code is enough for all four, but for Q8_0's with AVX-512, where it is a few instructions of few tokens. */
    const int at_once = VN == 16 && T < 3 && ops.bytes32 == sizeof(struct quant_q8_0) ? nb : 1;
    ROLLED
    for (int first = 0; first < nb; first += at_once) {
        UNROLL
        for (int b = first; b < first + at_once; b++) {
            UNROLL
            for (int r = 0; r < R; r++) {
                UNROLL
                for (int v = 0; v < 32 / VN; v++)
                    w[r][v] = ops.w(a->row[r] + o + (size_t)b * ops.bytes32, v);
            }
            UNROLL
            for (int t = 0; t < T; t++) {
                UNROLL
                for (int r = 0; r < R; r++) {
                    VF m = vf_mul(w[r][0], vf_load(tile_x(a, t, c + 32 * b)));
                    UNROLL
                    for (int v = 1; v < 32 / VN; v++)
                        m = vf_fma(w[r][v], vf_load(tile_x(a, t, c + 32 * b + v * VN)), m);
                    acc[r][t] = vf_fma(m, vf_set1(d[r][b]), acc[r][t]);
                }
            }
        }
    }
}

/* VN columns of a float type. */
INLINE void columns(VF acc[TILE_R][TILE_T], const struct tile *a, size_t o, int v, int c, int R, int T,
                    struct type_ops ops)
{
    VF w[TILE_R];
    UNROLL
    for (int r = 0; r < R; r++)
        w[r] = ops.w(a->row[r] + o, v);
    UNROLL
    for (int t = 0; t < T; t++) {
        VF x = vf_load(tile_x(a, t, c + v * VN));
        UNROLL
        for (int r = 0; r < R; r++)
            acc[r][t] = vf_fma(w[r], x, acc[r][t]);
    }
}

/* The last n < VN columns of a float type. */
INLINE void columns_part(VF acc[TILE_R][TILE_T], const struct tile *a, size_t o, int c, int R, int T,
                         struct type_ops ops)
{
    int n = a->n_cols - c;
    UNROLL
    for (int t = 0; t < T; t++) {
        VF x = vf_load_part(tile_x(a, t, c), n);
        UNROLL
        for (int r = 0; r < R; r++)
            acc[r][t] = vf_fma(ops.part(a->row[r] + o, n), x, acc[r][t]);
    }
}

INLINE void tile_f32(const struct tile *a, int R, int T, struct type_ops ops)
{
    VF acc[TILE_R][TILE_T];
    size_t o = 0, done = 0;
    int c = 0;
    tile_clear(acc, R, T);
    if (ops.part) {
        for (; c + 32 <= a->n_cols; c += 32, o += ops.bytes32) {
            ahead_step(&done, a, o + ops.bytes32, R);
            UNROLL
            for (int v = 0; v < 32 / VN; v++)
                columns(acc, a, o, v, c, R, T, ops);
        }
        for (; c + VN <= a->n_cols; c += VN, o += ops.bytes32 / (32 / VN))
            columns(acc, a, o, 0, c, R, T, ops);
        if (c < a->n_cols)
            columns_part(acc, a, o, c, R, T, ops);
    } else {
        for (; c + 128 <= a->n_cols; c += 128, o += 4 * ops.bytes32) {
            ahead_step(&done, a, o + 4 * ops.bytes32, R);
            blocks_scaled(acc, a, o, c, 4, R, T, ops);
        }
        for (; c < a->n_cols; c += 32, o += ops.bytes32)
            blocks_scaled(acc, a, o, c, 1, R, T, ops);
    }
    tile_store(a, acc, R, T);
}

/* Asks for what is PREFETCH_BYTES behind a strip's offset `to`; done: how far it has asked, of `most`. */
INLINE void strip_ask(const struct tile *a, size_t *done, size_t most, size_t to)
{
    for (; *done < most && *done < to; *done += 64) {
        UNROLL
        for (int r = 0; r < TILE_R; r++)
            __builtin_prefetch(a->row[r] + PREFETCH_BYTES + *done);
    }
}

/* Rows of one token that follow each other without a gap, as four streams of n rows each, which begin at row[]: a tile
 * after the other, with nothing to set up in between, for rows may be as short as a step or two. Each stream is asked for
 * as one piece. Float activations, a type of blocks with a scale. */
INLINE void strip_f32(const struct tile *a, int n, struct type_ops ops)
{
    const size_t step = 4 * ops.bytes32, total = (size_t)n * a->row_bytes;
    const size_t ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    struct tile to = *a;
    size_t done = 0;
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        VF acc[TILE_R][TILE_T];
        const size_t end = at + a->row_bytes;
        size_t o = at;
        int c = 0;
        tile_clear(acc, TILE_R, 1);
        for (; o + step <= end; o += step, c += 128) {
            strip_ask(&to, &done, ask, o + step);
            blocks_scaled(acc, &to, o, c, 4, TILE_R, 1, ops);
        }
        for (; o < end; o += ops.bytes32, c += 32)
            blocks_scaled(acc, &to, o, c, 1, TILE_R, 1, ops);
        tile_store(&to, acc, TILE_R, 1);
    }
}

/* Where row r is: base + r * stride, or at[r]. */
struct row_list {
    const uint8_t *base;
    size_t stride;
    const void *const *at;
};

INLINE const uint8_t *row_of(const struct row_list *l, int r)
{
    return l->at ? l->at[r] : l->base + (size_t)r * l->stride;
}

_Static_assert(TILE_T <= KERNELS_AXPY_TOKENS, "tokens of a sum of rows");

#ifdef KERNELS_TILE_3 /* a tier has tiles of three tokens */
#define TILE_3 3
#else
#define TILE_3 (TILE_T < 2 ? 1 : 2)
#endif

/* How many of the tokens left go together: 4, 2 or 1; of products, drive_tokens, three as well. */
INLINE int tokens_of(int left)
{
    if (left >= TILE_T)
        return TILE_T;
    return left >= 2 ? 2 : 1;
}

/* What serves many tokens. */
struct row_tiles;
typedef void many_fn(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x, size_t x_stride,
                     int n_tokens, int n_cols, const struct row_tiles *f);
#ifdef KERNELS_PANELS
static many_fn panel_all;
#endif
#ifdef KERNELS_PANELS
enum { MANY_TOKENS = 3, MANY_ROWS = 2 };
#else
enum { MANY_TOKENS = 12, MANY_ROWS = 8 }; /* from which on it is faster */
#endif
#ifndef KERNELS_MANY /* of a type's tiles, where a tier takes those of another */
#define KERNELS_MANY(f) (f)->many
#endif

/* Tiles by rows and tokens. strip: NULL, or what serves one token and rows without gaps. many: NULL, or for many tokens. unpack: for
 * tiles that types share. */
struct row_tiles {
    uint32_t quant; /* the type */
    tile_fn *t11, *t41, *t42, *t43, *t44;
    void (*strip)(const struct tile *a, int n);
    many_fn *many;
    const struct unpack *unpack;
};

/* One tile's rows for all tokens. */
INLINE void drive_tokens(struct tile *a, float *out, const uint8_t *x, int n_tokens, const struct row_tiles *f)
{
    for (int t = 0; t < n_tokens;) {
        const int left = n_tokens - t, n = a->live == 1 ? 1 : TILE_3 == 3 && left == 3 ? 3 : tokens_of(left);
        a->out = out + (size_t)t * a->out_stride;
        a->x = x + (size_t)t * a->x_stride;
        tile_fn *tile = a->live == 1 ? f->t11 : f->t41;
        if (n > 1)
            tile = n == 4 ? f->t44 : n == 3 ? f->t43 : f->t42;
        tile(a);
        t += n;
    }
}

/* Rows by pointer are taken in the order given. Rows at a fixed stride are four streams, each a
 * quarter of them, so that every stream is one long sequential read. */
OUTER void drive(float *out, size_t out_stride, const struct row_list *l, int n_rows,
                 const void *x, size_t x_stride, int n_tokens, int n_cols, const struct row_tiles *f)
{
    const size_t row_bytes = quant_row_bytes(f->quant, (uint64_t)n_cols);
    struct tile a = { .out_stride = out_stride, .x_stride = x_stride, .row_bytes = row_bytes, .n_cols = n_cols,
                      .unpack = f->unpack };
    const struct lead lead = lead_of(row_bytes, PREFETCH_BYTES);
    int tiles = n_rows / TILE_R, tail = tiles * TILE_R;
    int step = l->at ? 1 : tiles, move = l->at ? TILE_R : 1; /* within a tile; from tile to tile */
    if (f->many && n_tokens >= MANY_TOKENS && (n_tokens != 4 || !f->t44) && n_rows >= MANY_ROWS) {
        KERNELS_MANY(f)(out, out_stride, l, n_rows, x, x_stride, n_tokens, n_cols, f);
        return;
    }
    for (int k = 0; k < tiles && k <= lead.rows; k++) {
        const uint8_t *row[TILE_R];
        for (int i = 0; i < TILE_R; i++)
            row[i] = row_of(l, k * move + i * step);
        ask_now(row, TILE_R, k < lead.rows ? row_bytes : lead.rest);
    }
    a.live = TILE_R;
    a.out_step = (size_t)step;
    int in_strip = f->strip && n_tokens == 1 && !l->at && l->stride == row_bytes && tiles;
    if (in_strip) {
        a.out = out;
        a.x = x;
        for (int i = 0; i < TILE_R; i++)
            a.row[i] = row_of(l, i * step);
        f->strip(&a, tiles);
    }
    for (int k = 0; k < tiles && !in_strip; k++) {
        for (int i = 0; i < TILE_R; i++) {
            int r = k * move + i * step;
            const uint8_t *coming[2];
            for (int j = 0; j < 2; j++) { /* past the end: the row itself, which costs nothing */
                int c = r + (lead.rows + j) * move;
                coming[j] = row_of(l, c < n_rows && (l->at || k + lead.rows + j < tiles) ? c : r);
            }
            tile_lane(&a, i, lead, row_of(l, r), coming);
            if (l->at && r + 2 * TILE_R < n_rows) /* so that its page is known when its turn comes */
                __builtin_prefetch(l->at[r + 2 * TILE_R]);
        }
        drive_tokens(&a, out + k * move, x, n_tokens, f);
    }
    a.live = n_rows - tail;
    a.out_step = 1;
    if (a.live == 0)
        return;
    for (int i = 0; i < TILE_R; i++) {
        const uint8_t *row = row_of(l, tail + (i < a.live ? i : a.live - 1));
        tile_lane(&a, i, lead, row, (const uint8_t *const[2]){ row, row });
    }
    drive_tokens(&a, out + tail, x, n_tokens, f);
}

/* What rows_NAME and rows_at_NAME are but for the type. */
OUTER void drive_rows(float *out, size_t out_stride, const void *rows, size_t row_stride, int n_rows, const void *x, size_t x_stride,
                      int n_tokens, int n_cols, const struct row_tiles *f)
{
    const struct row_list l = { .base = rows, .stride = row_stride };
    drive(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, f);
}

OUTER void drive_rows_at(float *out, size_t out_stride, const void *const *rows, int n_rows, const void *x, size_t x_stride,
                         int n_tokens, int n_cols, const struct row_tiles *f)
{
    const struct row_list l = { .at = rows };
    drive(out, out_stride, &l, n_rows, x, x_stride, n_tokens, n_cols, f);
}

/* Tiles of a type, or of several. TILE(a, R, T) is the tile's body. */
#define TILE_FN(fn, TILE, R, T)          \
    static void fn(const struct tile *a) \
    {                                    \
        TILE(a, R, T);                   \
    }
#define TILES(name, TILE)                                \
    TILE_FN(t11_##name, TILE, 1, 1)                      \
    TILE_FN(t41_##name, TILE, 4, 1)                      \
    TILE_FN(t42_##name, TILE, 4, TILE_T < 2 ? 1 : 2)     \
    TILE_FN(t43_##name, TILE, 4, TILE_3)                 \
    TILE_FN(t44_##name, TILE, 4, TILE_T < 4 ? 1 : 4)
#define TILES_OF(name) t11_##name, t41_##name, t42_##name, t43_##name, t44_##name

/* rows_NAME and rows_at_NAME, and what follows tiles in struct row_tiles. */
#define ROWS_OF(name, type, tiles, ...)                                                             \
    static const struct row_tiles row_tiles_##name = { type, TILES_OF(tiles), __VA_ARGS__ };       \
    ROWS_BY(name, row_tiles_##name)
#define ROWS_BY(name, table)                                                                        \
    static void rows_##name(float *out, size_t out_stride, const void *rows, size_t row_stride,    \
                            int n_rows, const void *x, size_t x_stride, int n_tokens, int n_cols)  \
    {                                                                                              \
        drive_rows(out, out_stride, rows, row_stride, n_rows, x, x_stride, n_tokens, n_cols, &table); \
    }                                                                                              \
    static void rows_at_##name(float *out, size_t out_stride, const void *const *rows, int n_rows, \
                               const void *x, size_t x_stride, int n_tokens, int n_cols)           \
    {                                                                                              \
        drive_rows_at(out, out_stride, rows, n_rows, x, x_stride, n_tokens, n_cols, &table);         \
    }
#define ROWS(name, type, TILE, strip_fn) \
    TILES(name, TILE)                    \
    ROWS_OF(name, type, name, .strip = strip_fn)

/* ---- accumulation ---- */

/* The rows of one call of an axpy tile, and those that come next; lead: how far ahead lines are asked for. */
struct axpy_rows {
    const struct unpack *unpack;
    const uint8_t *row[LANES_MAX], *next[LANES_MAX];
    size_t row_bytes, lead;
    int n_cols;
};

/* Ask for each line once and in turns, as the tile reaches offset `to`. Eight rows are asked for by a little of each: whole
 * rows would not fit the first level beside the sums, and what only came to the second has to be fetched once more, which
 * waits in line behind the prefetches themselves (a seventh of the time, where that was measured). */
INLINE void axpy_ask(size_t *done, const struct axpy_rows *a, size_t to, int R)
{
    for (; *done < to; *done += 64) {
        size_t at = *done + a->lead;
        const uint8_t *const *row = at < a->row_bytes ? a->row : a->next;
        at -= at < a->row_bytes ? 0 : a->row_bytes;
        UNROLL
        for (int r = 0; r < R; r++)
            __builtin_prefetch(row[r] + at);
    }
}

/* 32 columns, or B times as many. h: the factors as vectors, for float types; else f: those times the scale of each block,
 * the first of them b. */
INLINE void axpy_blocks(float *acc, size_t acc_stride, const uint8_t *const row[LANES_MAX], size_t o,
                        VF h[TILE_T][LANES_MAX], float f[TILE_T][LANES_MAX][4], int b, int B, int R, int T,
                        struct type_ops ops)
{
    enum { HALF = 16 / VN };
    VF s[TILE_T][AXPY_B][2];
    UNROLL
    for (int v = 0; v < HALF; v++) { /* a vector of each half: Q4_0 holds both in the same bytes */
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int i = 0; i < B; i++) {
                s[t][i][0] = vf_load(acc + (size_t)t * acc_stride + 32 * i + v * VN);
                s[t][i][1] = vf_load(acc + (size_t)t * acc_stride + 32 * i + v * VN + 16);
            }
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int i = 0; i < B; i++) {
                const uint8_t *p = row[r] + o + (size_t)i * ops.bytes32;
                VF w0 = ops.w(p, v), w1 = ops.w(p, v + HALF);
                UNROLL
                for (int t = 0; t < T; t++) {
                    VF k = ops.part ? h[t][r] : vf_set1(f[t][r][b + i]);
                    s[t][i][0] = vf_fma(k, w0, s[t][i][0]);
                    s[t][i][1] = vf_fma(k, w1, s[t][i][1]);
                }
            }
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int i = 0; i < B; i++) {
                vf_store(acc + (size_t)t * acc_stride + 32 * i + v * VN, vf_add(s[t][i][0], vf_zero()));
                vf_store(acc + (size_t)t * acc_stride + 32 * i + v * VN + 16, vf_add(s[t][i][1], vf_zero()));
            }
        }
    }
}

/* nb (4 or 1) blocks of a type with scales. k: hs as spread4, where there are four rows or more. */
INLINE void axpy_scaled(float *acc, size_t acc_stride, const uint8_t *const row[LANES_MAX], size_t o,
                        float hs[TILE_T][LANES_MAX], VF k[TILE_T][LANES_MAX / 4], int nb, int R, int T,
                        struct type_ops ops)
{
    float f[TILE_T][LANES_MAX][4];
    (void)k;
    UNROLL
    for (int t = 0; t < T; t++) {
#ifdef KERNELS_SCALES4X4
        if (R >= 4 && nb == 4 && ops.bytes32 == sizeof(struct quant_q4_0)) {
            UNROLL
            for (int r = 0; r < R; r += 4)
                scales4x4(f[t] + r, row + r, o, k[t][r / 4]);
            continue;
        }
#endif
        UNROLL
        for (int r = 0; r < R; r++)
            scales4(f[t][r], row[r] + o, ops.bytes32, nb, hs[t][r]);
    }
    KEEP_IN_MEMORY(f);
    const int B = T == 1 && nb == 4 ? AXPY_B : 1;
    ROLLED
    for (int b = 0; b < nb; b += B)
        axpy_blocks(acc + 32 * b, acc_stride, row, o + (size_t)b * ops.bytes32, NULL, f, b, B, R, T, ops);
}

/* The last columns of a float type, VN or fewer. */
INLINE void axpy_columns(float *acc, size_t acc_stride, const uint8_t *const row[LANES_MAX], size_t o, int n,
                         VF h[TILE_T][LANES_MAX], int R, int T, struct type_ops ops)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        float *p = acc + (size_t)t * acc_stride;
        VF s = n < VN ? vf_load_part(p, n) : vf_load(p);
        UNROLL
        for (int r = 0; r < R; r++)
            s = vf_fma(h[t][r], n < VN ? ops.part(row[r] + o, n) : ops.w(row[r] + o, 0), s);
        s = vf_add(s, vf_zero());
        if (n < VN)
            vf_store_part(p, s, n);
        else
            vf_store(p, s);
    }
}

/* R rows into T tokens' accumulators over all columns: acc_t += h[t][r] * row_r, r ascending.
 * "+ 0" turns a -0 that underflow may leave into +0, so that a row with factor zero leaves no trace. */
INLINE void axpy_tile(float *acc, size_t acc_stride, const struct axpy_rows *a, float hs[TILE_T][LANES_MAX], int R, int T,
                      struct type_ops ops)
{
    VF h[TILE_T][LANES_MAX];
    const uint8_t *row[LANES_MAX];
    size_t o = 0, done = 0;
    int c = 0;
    UNROLL
    for (int r = 0; r < R; r++) {
        row[r] = a->row[r];
        UNROLL
        for (int t = 0; t < T; t++)
            h[t][r] = vf_set1(hs[t][r]);
    }
    VF k[TILE_T][LANES_MAX / 4];
#ifdef KERNELS_SCALES4X4
    for (int t = 0; t < T && R >= 4; t++) {
        UNROLL
        for (int r = 0; r < R; r += 4)
            k[t][r / 4] = spread4(hs[t] + r);
    }
#endif
    if (ops.part) {
        for (; c + 32 <= a->n_cols; c += 32, o += ops.bytes32) {
            axpy_ask(&done, a, o + ops.bytes32, R);
            axpy_blocks(acc + c, acc_stride, row, o, h, NULL, 0, 1, R, T, ops);
        }
        for (; c < a->n_cols; c += VN, o += ops.bytes32 / (32 / VN))
            axpy_columns(acc + c, acc_stride, row, o, a->n_cols - c < VN ? a->n_cols - c : VN, h, R, T, ops);
    } else {
        for (; c + 128 <= a->n_cols; c += 128, o += 4 * ops.bytes32) {
            axpy_ask(&done, a, o + 4 * ops.bytes32, R);
            KEEP_IN_MEMORY(row); /* a pointer that is moved from register to register keeps a port from adding */
            axpy_scaled(acc + c, acc_stride, row, o, hs, k, 4, R, T, ops);
        }
        for (; c < a->n_cols; c += 32, o += ops.bytes32)
            axpy_scaled(acc + c, acc_stride, row, o, hs, k, 1, R, T, ops);
    }
}

typedef void axpy_tile_fn(float *acc, size_t acc_stride, const struct axpy_rows *a, float hs[TILE_T][LANES_MAX]);

/* The rows that any of T tokens needs, gathered ahead of their use so that they can be asked for. */
enum { RING = 64 };
struct needed {
    const uint8_t *row[RING];
    float h[TILE_T][RING];
    unsigned head, tail; /* entry n is at n % RING */
    int next;            /* the row to look at next */
};

/* The next row is entered, and the one after it takes its place where no token needed it: of many tokens few rows are needed by any of
 * four, in no order that a branch could be foretold by. */
INLINE void axpy_enter(struct needed *q, const void *const *rows, const float *h, size_t h_stride, int T, size_t skip)
{
    unsigned n = q->tail % RING;
    uint32_t any = 0;
    UNROLL
    for (int t = 0; t < T; t++) {
        uint32_t bits;
        memcpy(&bits, h + (size_t)t * h_stride + (size_t)q->next, sizeof bits);
        memcpy(&q->h[t][n], &bits, sizeof bits);
        any |= bits << 1; /* without the sign */
    }
    q->row[n] = (const uint8_t *)((uintptr_t)rows[q->next++] + skip);
    q->tail += any != 0;
}

INLINE void axpy_gather(struct needed *q, const void *const *rows, const float *h, size_t h_stride, int n_rows,
                        int T, size_t skip)
{
    while (q->next < n_rows && q->tail - q->head < RING)
        if (T == TILE_T)
            axpy_enter(q, rows, h, h_stride, TILE_T, skip);
        else
            axpy_enter(q, rows, h, h_stride, T, skip);
}

/* T tokens over all rows: groups of `most` needed rows, what is left over by four and one by one. tile: for 1, 4 and
 * `most` rows. While a group is added, what is `lead` bytes further on is asked for, of rows shorter than that what is `ahead`
 * rows further on: PREFETCH_BYTES of each of four rows, or as much as the ring holds, but a whole group at least. */
INLINE void axpy_drive(float *acc, size_t acc_stride, const void *const *rows, const float *h, size_t h_stride,
                       int n_rows, int T, size_t skip, size_t row_bytes, int n_cols, unsigned most,
                       axpy_tile_fn *const tile[3], const struct unpack *unpack)
{
    struct axpy_rows a = { .unpack = unpack, .row_bytes = row_bytes, .n_cols = n_cols,
                           .lead = row_bytes < KERNELS_AXPY_LEAD ? row_bytes : KERNELS_AXPY_LEAD };
    const size_t groups = PREFETCH_BYTES * TILE_R / (row_bytes * most + 1), limit = RING / most - 1;
    const unsigned ahead = (unsigned)(groups < 1 ? 1 : groups < limit ? groups : limit) * most;
    struct needed q; /* of the ring only what was entered is looked at */
    q.head = q.tail = 0;
    q.next = 0;
    float hs[TILE_T][LANES_MAX];
    axpy_gather(&q, rows, h, h_stride, n_rows, T, skip);
    ask_now(q.row, q.tail < ahead ? q.tail : ahead, a.lead);
    for (int size = 2; size >= 0; size--) {
        unsigned R = size == 2 ? most : size == 1 ? TILE_R : 1;
        for (; q.tail - q.head >= R; axpy_gather(&q, rows, h, h_stride, n_rows, T, skip)) {
            for (unsigned i = 0; i < R; i++) {
                unsigned n = q.head + i;
                a.row[i] = q.row[n % RING];
                a.next[i] = n + ahead < q.tail ? q.row[(n + ahead) % RING] : a.row[i];
                for (int t = 0; t < T; t++)
                    hs[t][i] = q.h[t][n % RING];
            }
            tile[size](acc, acc_stride, &a, hs);
            q.head += R;
        }
    }
}

/* Tokens are taken 4, 2 or 1 at a time. When they need more than one such group, rows come in
 * chunks that stay in the second-level cache while the groups take turns. */
struct axpy_tiles {
    uint32_t quant;
    unsigned most;
    axpy_tile_fn *tile[5][3]; /* by tokens, then for 1, 4 and `most` rows */
    const struct unpack *unpack; /* as in struct row_tiles */
};

OUTER void axpy_all(float *acc, size_t acc_stride, const void *const *rows, const float *h, size_t h_stride,
                    int n_rows, int n_tokens, int col0, int n_cols, const struct axpy_tiles *f)
{
    const size_t skip = quant_row_bytes(f->quant, (uint64_t)col0), row_bytes = quant_row_bytes(f->quant, (uint64_t)n_cols);
    int one_group = n_tokens == 1 || n_tokens == 2 || n_tokens == TILE_T;
    int chunk = one_group ? n_rows : 64;
    for (int r = 0; r < n_rows; r += chunk) {
        int n = n_rows - r < chunk ? n_rows - r : chunk;
        for (int t = 0; t < n_tokens;) {
            int T = tokens_of(n_tokens - t);
            axpy_drive(acc + (size_t)t * acc_stride, acc_stride, rows + r, h + (size_t)t * h_stride + r,
                       h_stride, n, T, skip, row_bytes, n_cols, f->most, f->tile[T], f->unpack);
            t += T;
        }
    }
}

#define AXPY_TILE(name, R, T, BODY)                                                                   \
    static void a##R##T##_##name(float *acc, size_t s, const struct axpy_rows *a, float h[TILE_T][LANES_MAX]) \
    {                                                                                                 \
        BODY(acc, s, a, h, R < LANES_MAX ? R : LANES_MAX, T < TILE_T ? T : TILE_T);                  \
    }
#define AXPY_TILES(name, T, most) { a1##T##_##name, a4##T##_##name, most == 8 ? a8##T##_##name : a4##T##_##name }
/* Tiles of a type, or of several: BODY(acc, acc_stride, a, h, R, T) adds R rows for T tokens. axpy_NAME. */
#define AXPY_ALL(name, BODY)    \
    AXPY_TILE(name, 1, 1, BODY) \
    AXPY_TILE(name, 4, 1, BODY) \
    AXPY_TILE(name, 8, 1, BODY) \
    AXPY_TILE(name, 1, 2, BODY) \
    AXPY_TILE(name, 4, 2, BODY) \
    AXPY_TILE(name, 8, 2, BODY) \
    AXPY_TILE(name, 1, 4, BODY) \
    AXPY_TILE(name, 4, 4, BODY) \
    AXPY_TILE(name, 8, 4, BODY)
#define AXPY_OF(name, type, tiles, rows_most, unpack_of)                                            \
    static const struct axpy_tiles axpy_tiles_##name = {                                            \
        .quant = type,                                                                              \
        .most = rows_most,                                                                          \
        .tile = { [1] = AXPY_TILES(tiles, 1, rows_most),                                            \
                  [2] = AXPY_TILES(tiles, 2, rows_most),                                            \
                  [4] = AXPY_TILES(tiles, 4, rows_most) },                                          \
        .unpack = unpack_of,                                                                        \
    };                                                                                              \
    static void axpy_##name(float *acc, size_t acc_stride, const void *const *rows, const float *h, \
                            size_t h_stride, int n_rows, int n_tokens, int col0, int n_cols)        \
    {                                                                                               \
        axpy_all(acc, acc_stride, rows, h, h_stride, n_rows, n_tokens, col0, n_cols,                \
                 &axpy_tiles_##name);                                                               \
    }
#define AXPY(name, type, BODY, rows_most) \
    AXPY_ALL(name, BODY)                  \
    AXPY_OF(name, type, name, rows_most, NULL)

/* ---- vectors ---- */

INLINE float dot_vf(const uint8_t *w, const float *x, int n, struct type_ops ops)
{
    VF s[4] = { vf_zero(), vf_zero(), vf_zero(), vf_zero() };
    const size_t vb = ops.bytes32 / (32 / VN);
    int c = 0;
    for (; c + 4 * VN <= n; c += 4 * VN) {
        UNROLL
        for (int v = 0; v < 4; v++)
            s[v] = vf_fma(ops.w(w + (size_t)(c / VN + v) * vb, 0), vf_load(x + c + v * VN), s[v]);
    }
    for (; c + VN <= n; c += VN)
        s[0] = vf_fma(ops.w(w + (size_t)(c / VN) * vb, 0), vf_load(x + c), s[0]);
    if (c < n)
        s[1] = vf_fma(ops.part(w + (size_t)(c / VN) * vb, n - c), vf_load_part(x + c, n - c), s[1]);
    return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

INLINE void axpy_vf(float *y, float a, const uint8_t *x, int n, struct type_ops ops)
{
    const size_t vb = ops.bytes32 / (32 / VN);
    VF k = vf_set1(a);
    int c = 0;
    for (; c + VN <= n; c += VN)
        vf_store(y + c, vf_fma(k, ops.w(x + (size_t)(c / VN) * vb, 0), vf_load(y + c)));
    if (c < n)
        vf_store_part(y + c, vf_fma(k, ops.part(x + (size_t)(c / VN) * vb, n - c), vf_load_part(y + c, n - c)), n - c);
}

#ifndef KERNELS_LOOPS_ONLY
#include "common/kernels/kernels_fill_impl.h"
#endif

#endif
