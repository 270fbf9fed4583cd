/* Products of int8 activations for three tokens or more, of all types: a panel of four rows and a step of columns is unpacked once and
 * stays in the first level while tiles of up to four tokens go by. A tile has the rows in its lanes, so that sums of four rows become
 * floats together, and goes block by block, so that all types and both groups of a step share its code. The sums of PANEL_CHUNK tokens
 * wait on the stack between steps. They are those of one token (k_step_q8), in its order: for each place of a block in its group one, of
 * minima first, then of blocks, and the four as vf_sum adds lanes. Part of kernels_simd_k_impl.h, which includes it. A tier has:
 *   void panel_put(int8_t to[64], const int8x16_t row[4])       sixteen columns of four rows, as its products want them
 *   struct panel_sums                                           what is in registers of up to four tokens
 *   void panel_half(struct panel_sums *, const int8_t *w, const uint8_t *const x[4], size_t at, int T, int first)
 *                                                               their sums of sixteen columns, added or first
 *   int32x4_t panel_rows(const struct panel_sums *, int t)      token t's sums, of four rows */
#if defined(KERNELS_PANELS) && !defined(COMMON_KERNELS_NEON_PANEL_H)
#define COMMON_KERNELS_NEON_PANEL_H

#include "common/kernels/kernels_simd_k_impl.h"

enum { PANEL_CHUNK = 96, /* tokens */
       PANEL_T = 4 };

/* Halves of blocks of a step; scales and minima of each run of columns, for four rows. */
struct panel {
    int8_t q[4][STEP / 128][2][64]; /* by a block's place in its group, then by groups */
    float s[STEP / 16][4], m[STEP / 16][4];
};

typedef float panel_acc[4][4]; /* of a token: by a block's place in its group, of four rows */

/* A step as tiles have it: tokens' activations, and sums of activations that multiply minima, if there are any. */
struct panel_step {
    const struct panel *w;
    const uint8_t *x;
    size_t x_stride;
    int groups, mins, more; /* minima before the first group, before the second */
};

INLINE float32x4_t panel_float4(const float *p)
{
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
}

/* Runs 4 i to 4 i + 3 of four rows. */
INLINE void panel_turn(float (*to)[4], const float *const from[4])
{
    const float32x4_t a = panel_float4(from[0]), b = panel_float4(from[1]), c = panel_float4(from[2]), d = panel_float4(from[3]);
    const float64x2_t ab0 = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), ab1 = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
    const float64x2_t cd0 = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), cd1 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    vst1q_f32(to[0], vreinterpretq_f32_f64(vtrn1q_f64(ab0, cd0)));
    vst1q_f32(to[1], vreinterpretq_f32_f64(vtrn1q_f64(ab1, cd1)));
    vst1q_f32(to[2], vreinterpretq_f32_f64(vtrn2q_f64(ab0, cd0)));
    vst1q_f32(to[3], vreinterpretq_f32_f64(vtrn2q_f64(ab1, cd1)));
}

OUTER void panel_fill(struct panel *to, const struct unpack *f, const uint8_t *const row[4], size_t o, int n)
{
    struct bytes b[4];
    const int groups = (n + 127) / 128, runs = (groups * 8) >> f->shift;
    f->rows(b, row, o, n, 4);
    for (int g = 0; g < groups; g++) {
        ROLLED
        for (int h = 0; h < 2; h++) {
            const uint8_t *from = b[0].u + 128 * g + 64 * h;
            int8_t *q = to->q[0][g][h];
            UNROLL
            for (size_t i = 0; i < 4; i++) {
                int8x16_t r[4];
                UNROLL
                for (size_t k = 0; k < 4; k++)
                    r[k] = vreinterpretq_s8_u8(vld1q_u8(from + k * sizeof b[0] + 16 * i));
                panel_put(q + i * sizeof to->q[0], r);
            }
        }
    }
    for (int i = 0; i < runs; i += 4) {
        panel_turn(to->s + i, (const float *const[4]){ b[0].s + i, b[1].s + i, b[2].s + i, b[3].s + i });
        if (f->mins)
            panel_turn(to->m + i, (const float *const[4]){ b[0].m + i, b[1].m + i, b[2].m + i, b[3].m + i });
    }
}

INLINE float32x4_t panel_ints(const struct panel_sums *s, int t)
{
    return vcvtq_f32_s32(panel_rows(s, t));
}

/* A block of group g, at x[t] + at, of which scales are in s. */
INLINE void panel_block(float32x4_t *acc, const int8_t (*w)[64], const float (*s)[4], const uint8_t *const x[PANEL_T],
                        const uint8_t *const d[PANEL_T], size_t at, int sub, int T)
{
    struct panel_sums lo, hi;
    panel_half(&lo, w[0], x, at, T, 1);
    panel_half(sub == 32 ? &lo : &hi, w[1], x, at + 16, T, sub != 32);
    const float32x4_t scale = vf_load(s[0]), other = sub == 32 ? scale : vf_load(s[1]);
    UNROLL
    for (int t = 0; t < T; t++) {
        const float32x4_t xd = vld1q_dup_f32((const float *)(const void *)(d[t] + at));
        if (sub == 32)
            acc[t] = vf_fma(panel_ints(&lo, t), vf_mul(scale, xd), acc[t]);
        else
            acc[t] = vf_fma(vf_fma(panel_ints(&hi, t), other, vf_mul(panel_ints(&lo, t), scale)), xd, acc[t]);
    }
}

/* Minima k to `until` of a block's place. */
INLINE int panel_mins(float32x4_t *acc, const struct panel *w, float sums[PANEL_T][16], int k, int until, int T)
{
    for (; k < until; k += 4) {
        const float32x4_t m = vf_load(w->m[k]);
        UNROLL
        for (int t = 0; t < T; t++)
            acc[t] = vf_fma(m, vf_set1(sums[t][k]), acc[t]);
    }
    return k;
}

INLINE void panel_tile(panel_acc *acc, const struct panel_step *a, int sub, int T)
{
    const size_t group = sizeof(struct kernels_q8_group);
    const uint8_t *x[PANEL_T], *d[PANEL_T];
    const struct panel *of = a->w;
    const float (*scale)[4] = of->s;
    const int groups = a->groups, mins = a->mins, more = a->more;
    float sums[PANEL_T][16];
    UNROLL
    for (int t = 0; t < T; t++) {
        x[t] = a->x + (size_t)t * a->x_stride + 32;
        d[t] = a->x + (size_t)t * a->x_stride;
        if (mins) {
            const struct f16x s = k_sums(d[t], groups, sub);
            UNROLL
            for (int v = 0; v < 4; v++)
                vf_store(sums[t] + 4 * v, s.v[v]);
        }
    }
    ROLLED
    for (int b = 0; b < 4; b++) {
        const int8_t (*w)[2][64] = of->q[b];
        float32x4_t s[PANEL_T];
        int k = b;
        UNROLL
        for (int t = 0; t < T; t++)
            s[t] = vf_load(acc[t][b]);
        if (mins)
            k = panel_mins(s, of, sums, k, mins, T);
        panel_block(s, w[0], scale, x, d, 0, sub, T);
        if (groups == 2) {
            if (more)
                panel_mins(s, of, sums, k, mins + more, T);
            panel_block(s, w[1], scale + 128 / sub, x, d, group, sub, T);
        }
        scale += 32 / sub;
        UNROLL
        for (int t = 0; t < T; t++) {
            vf_store(acc[t][b], s[t]);
            x[t] += 32;
            d[t] += 4;
        }
    }
}

typedef void panel_fn(panel_acc *acc, const struct panel_step *a);

#define PANEL_FN(sub, T)                                                          \
    static void panel_##sub##_##T(panel_acc *acc, const struct panel_step *a)     \
    {                                                                             \
        panel_tile(acc, a, sub, T);                                               \
    }
PANEL_FN(16, 1)
PANEL_FN(16, 2)
PANEL_FN(16, 3)
PANEL_FN(16, 4)
PANEL_FN(32, 1)
PANEL_FN(32, 2)
PANEL_FN(32, 3)
PANEL_FN(32, 4)

/* Four rows, of which a->live are written, and n_tokens <= PANEL_CHUNK. */
INLINE void panel_one(const struct tile *a, int n_tokens, const struct unpack *f)
{
    static panel_fn *const tiles[2][PANEL_T] = { { panel_16_1, panel_16_2, panel_16_3, panel_16_4 },
                                                 { panel_32_1, panel_32_2, panel_32_3, panel_32_4 } };
    panel_acc acc[PANEL_CHUNK];
    struct panel w;
    size_t o = 0, done = 0;
    memset(acc, 0, (size_t)n_tokens * sizeof *acc);
    for (int c = 0; c < a->n_cols; c += STEP, o += f->bytes) {
        const int n = k_columns(a->n_cols - c), groups = (n + 127) / 128;
        struct panel_step step = { .w = &w, .x = a->x + (size_t)(c / 128) * sizeof(struct kernels_q8_group), .x_stride = a->x_stride,
                                   .groups = groups, .mins = 4 * f->mins, .more = f->mins == 1 ? 4 : 0 };
        ahead_step(&done, a, o + f->bytes < a->row_bytes ? o + f->bytes : a->row_bytes, TILE_R);
        panel_fill(&w, f, a->row, o, n);
        for (int t = 0, T; t < n_tokens; t += T, step.x += (size_t)T * a->x_stride) {
            T = n_tokens - t < PANEL_T ? n_tokens - t : PANEL_T;
            tiles[f->shift][T - 1](acc + t, &step);
        }
    }
    for (int t = 0; t < n_tokens; t++) {
        const float32x4_t s = vf_add(vf_add(vf_load(acc[t][0]), vf_load(acc[t][2])), vf_add(vf_load(acc[t][1]), vf_load(acc[t][3])));
        float row[4];
        vf_store(row, s);
        memcpy(a->out + (size_t)t * a->out_stride, row, (size_t)a->live * sizeof *row);
    }
}

OUTER void drive(float *out, size_t out_stride, const struct row_list *l, int n_rows, const void *x, size_t x_stride, int n_tokens,
                 int n_cols, const struct row_tiles *f);

/* struct row_tiles' many. A row that is left over goes by itself. */
static void panel_all(float *out, size_t out_stride, const struct row_list *l, int n_rows, const uint8_t *x, size_t x_stride, int n_tokens,
                      int n_cols, const struct row_tiles *f)
{
    const int rows = n_rows - (n_rows % TILE_R == 1);
    struct tile a = { .out_stride = out_stride, .x_stride = x_stride, .row_bytes = quant_row_bytes(f->quant, (uint64_t)n_cols),
                      .n_cols = n_cols };
    const struct lead lead = lead_of(a.row_bytes, PREFETCH_BYTES);
    for (int t = 0; t < n_tokens; t += PANEL_CHUNK) {
        a.x = x + (size_t)t * x_stride;
        for (int r = 0; r < rows; r += TILE_R) {
            a.live = rows - r < TILE_R ? rows - r : TILE_R;
            for (int i = 0; i < TILE_R; i++) {
                const int own = r + (i < a.live ? i : a.live - 1), next = own + lead.rows * TILE_R;
                tile_lane(&a, i, lead, row_of(l, own), (const uint8_t *const[2]){ row_of(l, next < rows ? next : own),
                                                                                 row_of(l, next + TILE_R < rows ? next + TILE_R : own) });
            }
            a.out = out + (size_t)t * out_stride + r;
            panel_one(&a, n_tokens - t < PANEL_CHUNK ? n_tokens - t : PANEL_CHUNK, f->unpack);
        }
    }
    if (rows < n_rows) {
        const struct row_list last = { .base = row_of(l, rows) };
        drive(out + rows, out_stride, &last, 1, x, x_stride, n_tokens, n_cols, f);
    }
}

/* rows_NAME_q8 and rows_at_NAME_q8. PANEL_TABLE(name): the tier's table of a type. */
#define PANEL_TILES(name, TYPE, ...)                                                                                              \
    PANEL const struct row_tiles PANEL_TABLE(name) =                                                                                   \
        { .quant = QUANT_##TYPE, .many = panel_all, .unpack = &UNPACK_OF(name), __VA_ARGS__ };                                         \
    ROWS_BY(name##_q8, PANEL_TABLE(name))

#endif
