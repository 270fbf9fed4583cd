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

INLINE struct gemm_rows gemm_rows_of(const struct row_list *l, int r, int n_rows, int most, size_t row_bytes)
{
    struct gemm_rows a = { .live = n_rows - r < most ? n_rows - r : most, .row_bytes = row_bytes };
    a.vectors = a.live > 32 ? 4 : a.live > 16 ? 2 : 1;
    for (int i = 0; i < GEMM_R; i++)
        a.row[i] = row_of(l, r + (i < a.live ? i : a.live - 1));
    return a;
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
            const int after = n_tokens - t - GEMM_T; /* the last tile is followed by the first of the next columns */
            tile.next = after > 0 ? tile.x + GEMM_T * x_stride : x + GEMM_GROUPS * sizeof(struct kernels_q8_group);
            tile.next_tokens = after > 0 && after < GEMM_T ? after : n_tokens < GEMM_T ? n_tokens : GEMM_T;
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

#endif
