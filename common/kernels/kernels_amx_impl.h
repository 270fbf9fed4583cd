#ifndef COMMON_KERNELS_KERNELS_AMX_IMPL_H
#define COMMON_KERNELS_KERNELS_AMX_IMPL_H

/* Products of int8 activations for many tokens with AMX-INT8: the bits of kernels_gemm_impl.h, for sums of a block are exact integers
 * whoever adds them, and the floats are added in the same order.
 *
 * A panel of AMX_R rows and AMX_GROUPS groups of columns is unpacked once, as signed bytes in the layout of a tile's second operand
 * (four columns of a row side by side, then those of its neighbour), and stays near while tiles of AMX_T tokens go by. The first
 * operand are the tokens' activations where they lie. One instruction multiplies a block (or half of one, where a half has a scale) of
 * AMX_T tokens and AMX_R rows; its int32 go through memory into vectors, rows in the lanes, and become floats. Blocks are taken by the
 * place in their group, so that the sums of a tile stay in registers. Four sums take turns: one begins while that of two steps ago is
 * stored and that of three steps ago is added.
 *
 * Rows of 4096 and 512 tokens, one core of a Xeon (a virtual machine whose int8 peak with VNNI is 360 to 410 billion
 * products a second), against kernels_gemm_impl.h: Q4_0 227 to 246 (146 to 165), Q8_0 220 (141), IQ4_XS 230 (152), Q4_1 174 (126), Q5_K
 * 181 (152), Q4_K 173 (143), Q3_K 144 (130), Q6_K 134 (127). A minimum in each half (Q2_K) 107 (116): not used.
 *
 * What bounds it are the floats, not the tiles. For 16 x 16 sums of 32 columns the multiplication and the store of the sums take 16
 * cycles each, conversion, scaling and addition 48 vector operations; and for some 260 cycles after any instruction on tiles,
 * multiplications and conversions of 512 bits have one port of two, additions both. Measured alone, tiles took 10 ns and floats 11 to
 * 18 ns a block, together 24 to 28. Twelve tokens by thirty-two rows, tiles and floats in phases of sixteen blocks, and conversion by
 * additions were no faster. Tiles that were idle take half a microsecond to begin. */
#if defined(__AMX_INT8__) || defined(__AMXINT8__) /* gcc, clang */

#include "common/kernels/kernels_avx512_k_impl.h"

enum { AMX_R = 16, AMX_T = 16, /* what a tile has room for */
       AMX_GROUPS = 8,
       AMX_CHUNK = 256 /* tokens; their sums are most of what a worker has on its stack */ };

/* Weights of a panel: column 4 k + i of row r at q[k][r][i]; scales and minima as in struct k_scales4. */
struct amx_block {
    uint8_t q[8][AMX_R][4];
    float s[2][AMX_R], m[2][AMX_R];
};

/* The sums of a token, by the place of a block in its group. */
typedef float amx_sums[4][AMX_R];

/* The rows of a panel. */
struct amx_rows {
    const uint8_t *row[AMX_R];
    int live;
    size_t row_bytes;
};

/* A panel's products with all tokens. */
struct amx_tiles {
    amx_sums *acc;             /* a slot for each token of each tile */
    const struct amx_block *w; /* 4 * groups */
    const uint8_t *x;          /* the first token's groups */
    size_t x_stride;
    int groups, n_tokens;
    int first; /* sums begin with these products; what acc holds does not count */
    const struct amx_rows *rows;
    size_t next, step; /* what the next panel is unpacked from: bytes of the rows */
};

/* The first token of a tile of n tokens: the last tile may have some that the one before it has, too. */
INLINE int amx_first(int slot, int n)
{
    return slot + AMX_T <= n ? slot : n - AMX_T;
}

/* Asks for what the next panel is unpacked from: of n rows from `first` on. */
INLINE void amx_ask(const struct amx_rows *a, int first, int n, size_t o, size_t bytes)
{
    for (int r = first; r < first + n && r < a->live; r++)
        for (size_t at = o; at < o + bytes && at < a->row_bytes; at += 64)
            __builtin_prefetch(a->row[r] + at);
}

/* ---- tiles: 0 to 3 sums, 4 and 5 activations, 6 and 7 weights ---- */

struct amx_config {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "a tile configuration");

#define TILE_ZERO(c)            __asm__ volatile("tilezero %%tmm" #c ::: "memory")
#define TILE_LOAD(c, p, stride) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #c ::"r"(p), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(p, c)        __asm__ volatile("tilestored %%tmm" #c ", (%0,%1,1)" ::"r"(p), "r"((size_t)64) : "memory")
#define TILE_DOT(c, a, b)       __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

PRIM void amx_begin(int sub)
{
    struct amx_config c = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? sub : 64);
        c.rows[i] = (uint8_t)(i < 6 ? AMX_T : sub / 4);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(c));
}

PRIM void amx_end(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

typedef int32_t amx_dots[AMX_T][AMX_R];

/* The parts of a step, for one of four sums in turn. */
PRIM void amx_zero(int q)
{
    if (q == 0)
        TILE_ZERO(0);
    else if (q == 1)
        TILE_ZERO(1);
    else if (q == 2)
        TILE_ZERO(2);
    else
        TILE_ZERO(3);
}

PRIM void amx_load_x(int q, const uint8_t *x, size_t stride)
{
    if (q % 2)
        TILE_LOAD(5, x, stride);
    else
        TILE_LOAD(4, x, stride);
}

PRIM void amx_load_w(int q, const uint8_t *w)
{
    if (q % 2)
        TILE_LOAD(7, w, 4 * AMX_R);
    else
        TILE_LOAD(6, w, 4 * AMX_R);
}

PRIM void amx_dot(int q)
{
    if (q == 0)
        TILE_DOT(0, 4, 6);
    else if (q == 1)
        TILE_DOT(1, 5, 7);
    else if (q == 2)
        TILE_DOT(2, 4, 6);
    else
        TILE_DOT(3, 5, 7);
}

PRIM void amx_store(int q, amx_dots *to)
{
    if (q == 0)
        TILE_STORE(to, 0);
    else if (q == 1)
        TILE_STORE(to, 1);
    else if (q == 2)
        TILE_STORE(to, 2);
    else
        TILE_STORE(to, 3);
}

/* ---- floats ---- */

/* What the sums of activations multiply minima with: of each block, or of each half. */
typedef float amx_mins[4 * AMX_GROUPS][2][AMX_T];

PRIM void amx_sums_of(amx_mins to, const uint8_t *x0, const struct amx_tiles *a, int sub)
{
    for (int t = 0; t < AMX_T; t++)
        for (int g = 0; g < a->groups; g++) {
            const uint8_t *x = x0 + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group);
            const __m128i s = _mm_loadu_si128((const void *)(x + offsetof(struct kernels_q8_group, sum)));
            UNROLL
            for (int h = 0; h < 32 / sub; h++) {
                const uint32_t one = sub == 32 ? 0x10001 : h ? 0x10000 : 1;
                float f[4];
                _mm_storeu_ps(f, _mm_cvtepi32_ps(_mm_madd_epi16(s, _mm_set1_epi32((int)one))));
                UNROLL
                for (int b = 0; b < 4; b++)
                    to[4 * g + b][h][t] = f[b];
            }
        }
}

PRIM float amx_scale(const uint8_t *x)
{
    float f;
    memcpy(&f, x, sizeof f);
    return f;
}

/* What a step adds: a block's products. */
struct amx_add {
    const amx_dots *c; /* of the block, or of its halves */
    const struct amx_block *w;
    const uint8_t *d; /* the first token's scale */
    size_t stride;
    const float (*sums)[AMX_T];
};

/* Those of tokens [from, end), scaled and added. */
PRIM void amx_add(VF acc[AMX_T], const struct amx_add *a, int from, int end, int sub, int mins)
{
    UNROLL
    for (int t = from; t < end; t++) {
        VF s = vf_mul(_mm512_cvtepi32_ps(_mm512_load_si512(a->c[0][t])), vf_load(a->w->s[0]));
        if (sub == 16)
            s = vf_fma(_mm512_cvtepi32_ps(_mm512_load_si512(a->c[1][t])), vf_load(a->w->s[1]), s);
        UNROLL
        for (int h = 0; h < mins * 32 / sub; h++)
            s = vf_fma(vf_set1(a->sums[h][t]), vf_load(a->w->m[h]), s);
        acc[t] = vf_fma(s, vf_set1(amx_scale(a->d + (size_t)t * a->stride)), acc[t]);
    }
}

/* Where products begin: block after block of a tile, by their places in their groups, then those of the next tile. */
struct amx_at {
    const uint8_t *x; /* the tile's first token */
    int slot, b;
};

PRIM void amx_move(struct amx_at *at, const struct amx_tiles *a)
{
    at->b += 4;
    if (at->b < 4 * a->groups)
        return;
    at->b = at->b % 4 + 1;
    if (at->b < 4)
        return;
    at->b = 0;
    at->slot += at->slot + AMX_T < a->n_tokens ? AMX_T : 0; /* after the last: anything, which nobody stores */
    at->x = a->x + (size_t)amx_first(at->slot, a->n_tokens) * a->x_stride;
}

/* Half h of a block (h 0: perhaps all of it) begins in sums q; the sums of two steps ago are stored; of another block, tokens
 * [t, t + n) are added, part by part in between. acc NULL: none. */
PRIM void amx_step(const struct amx_tiles *a, const struct amx_at *at, int h, int q, amx_dots *to, VF acc[AMX_T], const struct amx_add *add,
                   int t, int n, int sub, int mins)
{
    const uint8_t *x = at->x + (size_t)(at->b / 4) * sizeof(struct kernels_q8_group) + offsetof(struct kernels_q8_group, qs);
    amx_load_x(q, x + at->b % 4 * 32 + 16 * h, a->x_stride);
    amx_zero(q);
    if (acc)
        amx_add(acc, add, t, t + n / 4, sub, mins);
    amx_load_w(q, a->w[at->b].q[4 * h][0]);
    amx_dot(q);
    if (acc)
        amx_add(acc, add, t + n / 4, t + n / 2, sub, mins);
    if (to)
        amx_store((q + 2) % 4, to);
    if (acc)
        amx_add(acc, add, t + n / 2, t + n, sub, mins);
}

enum { AMX_RING = 8 /* products that are stored and not added yet */ };

/* Whole blocks: step i begins block i, stores block i - 2 and adds block i - 3. */
PRIM void amx_step_32(const struct amx_tiles *a, const struct amx_at *at, unsigned i, amx_dots *c, VF acc[AMX_T], const struct amx_add *add,
                      int mins)
{
    amx_dots *to = c + (i - 2) % AMX_RING;
    switch (i % 4) {
    case 0: amx_step(a, at, 0, 0, to, acc, add, 0, AMX_T, 32, mins); return;
    case 1: amx_step(a, at, 0, 1, to, acc, add, 0, AMX_T, 32, mins); return;
    case 2: amx_step(a, at, 0, 2, to, acc, add, 0, AMX_T, 32, mins); return;
    default: amx_step(a, at, 0, 3, to, acc, add, 0, AMX_T, 32, mins); return;
    }
}

/* Halves: step i begins those of block i, stores those of block i - 1 and adds block i - 2. */
PRIM void amx_step_16(const struct amx_tiles *a, const struct amx_at *at, unsigned i, amx_dots *c, VF acc[AMX_T], const struct amx_add *add,
                      int mins)
{
    amx_dots *to = c + 2 * (i - 1) % AMX_RING;
    if (i % 2) {
        amx_step(a, at, 0, 2, to, acc, add, 0, AMX_T / 2, 16, mins);
        amx_step(a, at, 1, 3, to + 1, acc, add, AMX_T / 2, AMX_T / 2, 16, mins);
    } else {
        amx_step(a, at, 0, 0, to, acc, add, 0, AMX_T / 2, 16, mins);
        amx_step(a, at, 1, 1, to + 1, acc, add, AMX_T / 2, AMX_T / 2, 16, mins);
    }
}

PRIM void amx_step_of(const struct amx_tiles *a, struct amx_at *at, unsigned i, amx_dots *c, VF acc[AMX_T], const struct amx_add *add,
                      int sub, int mins)
{
    if (sub == 32)
        amx_step_32(a, at, i, c, acc, add, mins);
    else
        amx_step_16(a, at, i, c, acc, add, mins);
    amx_move(at, a);
}

PRIM void amx_loop(const struct amx_tiles *a, int sub, int mins)
{
    _Alignas(64) amx_dots c[AMX_RING];
    amx_mins sums;
    struct amx_at at = { a->x, 0, 0 };
    const unsigned ahead = sub == 32 ? 3 : 2;
    unsigned i = 0;
    for (; i < ahead; i++) /* what has not begun is stored as it is, and overwritten before it is read */
        amx_step_of(a, &at, i, c, NULL, NULL, sub, mins);
    for (int slot = 0, ask = 0; slot < a->n_tokens; slot += AMX_T, ask += 4) {
        const uint8_t *x = a->x + (size_t)amx_first(slot, a->n_tokens) * a->x_stride;
        amx_ask(a->rows, ask, 4, a->next, a->step);
        if (mins)
            amx_sums_of(sums, x, a, sub);
        for (int k = 0; k < 4; k++) {
            VF acc[AMX_T];
            UNROLL
            for (int t = 0; t < AMX_T; t++)
                acc[t] = a->first ? vf_zero() : vf_load(a->acc[slot + t][k]);
            for (int b = k; b < 4 * a->groups; b += 4, i++) {
                const amx_dots *done = c + (sub == 32 ? (i - 3) % AMX_RING : 2 * (i - 2) % AMX_RING);
                const struct amx_add add = { done, a->w + b, x + (size_t)(b / 4) * sizeof(struct kernels_q8_group) + 4 * k, a->x_stride,
                                             (const float(*)[AMX_T])sums[b] };
                amx_step_of(a, &at, i, c, acc, &add, sub, mins);
            }
            UNROLL
            for (int t = 0; t < AMX_T; t++)
                vf_store(a->acc[slot + t][k], acc[t]);
        }
    }
}

static void amx_loop_32_0(const struct amx_tiles *a)
{
    amx_loop(a, 32, 0);
}

static void amx_loop_32_1(const struct amx_tiles *a)
{
    amx_loop(a, 32, 1);
}

static void amx_loop_16_0(const struct amx_tiles *a)
{
    amx_loop(a, 16, 0);
}

typedef void amx_loop_fn(const struct amx_tiles *a);

/* ---- panels ---- */

/* Sixteen rows of a step, as gemm_pack. */
INLINE void amx_pack(struct amx_block *to, const uint8_t *const row[16], size_t o, int nb, struct k_ops ops)
{
    const size_t block = sizeof *to;
    struct f16x s[2][2][2][4]; /* by group, scales or minima, half of a block: those of four rows */
    uint8_t u[2][16][128];
    const __m512i offset = _mm512_set1_epi8((char)(ops.offset >= K_TABLE ? 0 : ops.offset));
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
            UNROLL
            for (int i = 0; i < 4; i++) {
                const struct kg w = ops.group(row[r + i] + o, g, nb);
                kg_store(u[g][r + i], (struct kg){ _mm512_sub_epi8(w.lo, offset), _mm512_sub_epi8(w.hi, offset) });
            }
        }
    }
    UNROLL
    for (int g = 0; g < ops.groups; g++, to += 4) {
        for (int b = 0; b < 4; b++) {
            gemm_transpose(to[b].q[0][0], 4 * AMX_R, &u[g][0][16 * b], 128);
            gemm_transpose(to[b].q[4][0], 4 * AMX_R, &u[g][0][64 + 16 * b], 128);
        }
        UNROLL
        for (int h = 0; h < 32 / ops.sub; h++) {
            gemm_transpose((uint8_t *)(to->s[h]), block, (const uint8_t *)s[g][0][h], 16);
            if (ops.has_min)
                gemm_transpose((uint8_t *)(to->m[h]), block, (const uint8_t *)s[g][1][h], 16);
        }
    }
}

/* Groups from the one whose bytes begin at o on, `groups` of them. */
INLINE void amx_panel(struct amx_block *to, const struct amx_rows *a, size_t o, int groups, struct k_ops ops)
{
    for (int g = 0; g < groups; g += ops.groups, o += ops.bytes, to += 4 * ops.groups) {
        const int nb = o + ops.bytes <= a->row_bytes ? 4 : (int)((a->row_bytes - o) / (ops.bytes / 4));
        amx_pack(to, a->row, o, nb, ops);
    }
}

PRIM void amx_result(float *out, float acc[4][AMX_R], int live)
{
    const VF s = vf_add(vf_add(vf_add(vf_load(acc[0]), vf_load(acc[1])), vf_add(vf_load(acc[2]), vf_load(acc[3]))), vf_zero());
    if (live < AMX_R)
        vf_store_part(out, s, live);
    else
        vf_store(out, s);
}

INLINE void amx_rows(float *out, size_t out_stride, const struct amx_rows *a, const uint8_t *x, size_t x_stride, int n_tokens,
                     struct k_ops ops, amx_loop_fn *loop)
{
    _Alignas(64) amx_sums acc[AMX_CHUNK];
    _Alignas(64) struct amx_block w[4 * AMX_GROUPS];
    const int most = ops.sub == 32 ? AMX_GROUPS : AMX_GROUPS / 2; /* groups */
    const size_t step = ops.bytes * (size_t)(most / ops.groups);
    const int slots = (n_tokens + AMX_T - 1) / AMX_T * AMX_T;
    for (size_t o = 0; o < a->row_bytes; o += step, x += (size_t)most * sizeof(struct kernels_q8_group)) {
        const size_t left = (a->row_bytes - o + ops.bytes - 1) / ops.bytes * (size_t)ops.groups;
        const struct amx_tiles t = { .acc = acc, .w = w, .x = x, .x_stride = x_stride,
                                     .groups = left < (size_t)most ? (int)left : most, .n_tokens = n_tokens,
                                     .first = o == 0, .rows = a, .next = o + step, .step = step };
        amx_panel(w, a, o, t.groups, ops);
        loop(&t);
    }
    for (int slot = 0; slot < slots; slot++) {
        const int t = amx_first(slot / AMX_T * AMX_T, n_tokens) + slot % AMX_T;
        amx_result(out + (size_t)t * out_stride, acc[slot], a->live);
    }
}

/* n_tokens >= AMX_T. */
INLINE void amx_all(float *out, size_t out_stride, const struct row_list *l, size_t row_bytes, int n_rows, const uint8_t *x,
                    size_t x_stride, int n_tokens, struct k_ops ops, amx_loop_fn *loop)
{
    amx_begin(ops.sub);
    for (int t = 0, tokens; t < n_tokens; t += tokens) {
        const int left = n_tokens - t;
        tokens = left <= AMX_CHUNK ? left : left < AMX_CHUNK + AMX_T ? AMX_CHUNK - AMX_T : AMX_CHUNK;
        for (int r = 0; r < n_rows; r += AMX_R) {
            struct amx_rows a = { .live = n_rows - r < AMX_R ? n_rows - r : AMX_R, .row_bytes = row_bytes };
            for (int i = 0; i < AMX_R; i++)
                a.row[i] = row_of(l, r + (i < a.live ? i : a.live - 1));
            amx_rows(out + (size_t)t * out_stride + r, out_stride, &a, x + (size_t)t * x_stride, x_stride, tokens, ops, loop);
        }
    }
    amx_end();
}

#define AMX_KIND(ops)                                                                            \
    ((ops).sub == 16 ? amx_loop_16_0 : (ops).has_min ? amx_loop_32_1 : amx_loop_32_0)

#endif
#endif
