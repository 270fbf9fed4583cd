/* Panels of kernels_gemm_impl.h from the rows of each type. Part of kernels_simd_k_impl.h, which includes it. */
#if defined(KERNELS_BLOCK_SUMS) && !defined(COMMON_KERNELS_PANEL_H)
#define COMMON_KERNELS_PANEL_H

#include "common/kernels/kernels_simd_k_impl.h"

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
            gemm_transpose(to[b].q[0][16 * v], 4 * GEMM_R, &u[g][0][16 * b], 128);
            gemm_transpose(to[b].q[4][16 * v], 4 * GEMM_R, &u[g][0][64 + 16 * b], 128);
        }
        UNROLL
        for (int h = 0; h < 32 / ops.sub; h++) {
            gemm_transpose((uint8_t *)(to->s[h] + 16 * v), block, (const uint8_t *)s[g][0][h], 16);
            if (ops.has_min)
                gemm_transpose((uint8_t *)(to->m[h] + 16 * v), block, (const uint8_t *)s[g][1][h], 16);
        }
    }
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

/* GEMM_TILE(ops): the tier's function for a type. */
INLINE struct gemm_type gemm_of(struct k_ops ops, uint32_t type, void (*panel)(struct gemm_block *, const struct gemm_rows *, size_t, int))
{
    return (struct gemm_type){ .panel = panel, .tile = GEMM_TILE(ops), .type = type, .groups = ops.groups,
                               .rows = ops.sub == 16 ? GEMM_R / 2 : GEMM_R, /* two scales a block: twice as many vectors */
                               .offset = k_start(ops.offset), .sub = ops.sub, .has_min = ops.has_min,
                               .is_signed = ops.offset == K_TABLE, .bytes = ops.bytes };
}

/* many_NAME, from gemm_NAME. */
#define K_MANY(name)                                                                                                             \
    static void many_##name(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x,                \
                            size_t x_stride, int n_tokens, int n_cols, const struct row_tiles *tiles)                             \
    {                                                                                                                             \
        (void)tiles;                                                                                                              \
        const struct gemm_type f = gemm_##name();                                                                                 \
        gemm_all(out, out_stride, l, n_rows, x, x_stride, n_tokens, n_cols, &f);                                                  \
    }
#define K_GEMM(name, TYPE)                                                                                                        \
    static void panel_##name(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups)                              \
    {                                                                                                                             \
        gemm_panel(to, a, o, groups, K_OPS_##TYPE);                                                                               \
    }                                                                                                                             \
    static struct gemm_type gemm_##name(void)                                                                                     \
    {                                                                                                                             \
        return gemm_of(K_OPS_##TYPE, QUANT_##TYPE, panel_##name);                                                                 \
    }                                                                                                                             \
    K_MANY(name)

#endif
