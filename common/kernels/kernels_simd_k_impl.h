/* The loops of the block types beside Q4_0 and Q8_0, over a tier's primitives. A type gives its columns as signed bytes u and
 * floats s and m, so that a weight is s * u + m: s and m are of 16 or 32 columns, u is small and mostly not negative
 * (an offset goes into m). Columns come in groups of four blocks of 32, the groups of struct kernels_q8_group; a step of the loops is
 * two groups for the types whose scales are shared by 256 columns, else one.
 *
 * Products with floats and accumulations make the weight itself: s * u is exact, so w is what
 * dequantisation gives, to the bit. Products with int8 activations multiply integers, then
 *   sum of w x = xd * (s * (sum of (u - offset) x) + min * (sum of x)),
 * where sums with an offset are exact integers (without KERNELS_BLOCK_SUMS, those of minima come once a step: k_sums has them for all
 * its blocks). */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_SIMD_K_H)
#define COMMON_KERNELS_SIMD_K_H

#define KERNELS_LOOPS_ONLY
#include "common/kernels/kernels_simd_impl.h"

/* Primitives beside those of kernels_simd_impl.h:
 *   struct kg nibbles(const uint8_t *p, size_t block, size_t at, int nb)
 *                                               low and high nibbles of 16 bytes at `at` of each of nb blocks, the others any
 *   struct kg fifth_bits(struct kg, const uint8_t *p, size_t block, size_t at, int nb)
 *                                               16 more where the bit of an element is set, of 4 bytes at `at`
 *   struct kg look_up(struct kg, const int8_t values[16])
 *   struct kg kg_TYPE(const uint8_t *p, int g, int nb), of Q2_K to Q6_K
 *   struct kg                                   a group: signed bytes of four blocks, in two halves
 *   void kg_store(uint8_t *to, struct kg)       column 16 h + j of block b at to[64 h + 16 b + j], h < 2, j < 16
 *   VF vf_i8(const uint8_t *p)                  VN signed bytes as floats
 *   struct f16x k_bytes(uint64_t lo, uint64_t hi, float k)  sixteen signed bytes times k
 *   struct f16x k_four(const float f[4])        those, then zeroes
 *   float k_half(const uint8_t *p)              an F16
 * without KERNELS_BLOCK_SUMS
 *   struct f16x k_sums(const uint8_t *x, int groups, int sub)
 *                                               sum of x in each run of `sub` columns, times its scale; zeroes after the last
 *   VF k_dot(VF acc, struct kg, struct f16x s, int g, const uint8_t *x, int sub, int offset)
 *                                               acc + xd * s * sum of (u - offset) * x; x: group g of the step
 * with KERNELS_BLOCK_SUMS: the order of kernels.h, an accumulator for four rows and a token, with four sums of each
 *   struct kg k_unsigned(struct kg, int offset) as products want the bytes of such an offset (struct k_ops)
 *   int k_start(int offset)                     what is then too much in each
 *   void k_turn(struct k_scales4 *to, const struct k_scales k[4], int groups, int sub, int mins)
 *                                               of four rows, for each group of a step
 *   void k_scales4_TYPE(struct k_scales4 *to, const uint8_t *const row[4], size_t o, int nb), of types of 32 columns: the same from rows
 *   struct f16x k_dot(struct f16x acc, const struct kg w[K_DOT_ROWS], const struct k_scales4 *, int r, const uint8_t *x, int sub,
 *                     int offset, int mins, int bits)       of K_DOT_ROWS rows from r on, whose bytes registers have room for
 *   void k_store4(float out[4], struct f16x acc) the rows' results
 *   void gemm_transpose, gemm_tile, gemm_store       for kernels_gemm_impl.h
 * with KERNELS_TWO_ROWS, instead of k_dot (kernels_avx2_k.c)
 *   k_two_fn two_TYPE                           half a block of two rows
 *   struct k_two k4_whole, two_scales           their scales: of Q4_K and Q5_K, of the others
 *   dot_rows, then dot_two                      a group of four rows, then of two
 * with KERNELS_TURNED beside that
 *   void turned_TYPE(struct gemm_block *to, int v, const uint8_t *const row[16], size_t o, int g, int nb)
 *                                               the bytes of group g of sixteen rows' step at o, unsigned: vector v of four blocks */

typedef void k_scales_fn(struct k_scales *k, const uint8_t *p, int nb);
typedef struct kg k_group_fn(const uint8_t *p, int g, int nb);
typedef void k_scales4_fn(struct k_scales4 *to, const uint8_t *const row[TILE_R], size_t o, int nb);
struct gemm_block;
typedef void k_turned_fn(struct gemm_block *to, int v, const uint8_t *const row[16], size_t o, int g, int nb);
#ifndef KERNELS_TWO_ROWS
typedef void k_two_fn(void);
#endif

struct k_ops {
    k_scales_fn *scales; /* nb: blocks of 32 of this group that exist */
    k_group_fn *group;
    int groups;          /* of a step */
    size_t bytes;        /* of a group; of a step, if there are two */
    int sub, offset, has_min;
    int bits;              /* of a byte as products have it (k_unsigned); 8: it may be negative */
    k_scales4_fn *scales4; /* NULL: nothing better than scales of each */
    k_turned_fn *turned;   /* NULL: panels are made of groups */
    k_two_fn *two;         /* with KERNELS_TWO_ROWS */
};

#ifdef KERNELS_BLOCK_SUMS
INLINE struct f16x k_zero(void)
{
    struct f16x z;
    UNROLL
    for (int v = 0; v < 16 / VN; v++)
        z.v[v] = vf_zero();
    return z;
}

INLINE void k_rows_scales(struct k_scales4 to[2], const uint8_t *const row[TILE_R], size_t o, int nb, struct k_ops ops)
{
    struct k_scales k[TILE_R];
    if (ops.scales4) {
        ops.scales4(to, row, o, nb);
        return;
    }
    UNROLL
    for (int r = 0; r < TILE_R; r++)
        ops.scales(&k[r], row[r] + o, nb);
    k_turn(to, k, ops.groups, ops.sub, ops.has_min);
}

#ifdef KERNELS_TWO_ROWS
INLINE void k_step_q8(const struct tile *a, struct f16x *acc, size_t o, const uint8_t *x, int nb, int T, struct k_ops ops)
{
    const int whole = ops.groups == 2 && ops.sub == 32 && ops.has_min; /* Q4_K, Q5_K */
    struct k_two k[2][2];
    struct k_scales4 s[2];
    if (!whole)
        k_rows_scales(s, a->row, o, nb, ops);
    UNROLL
    for (int v = 0; v < 2; v++) {
        if (whole)
            k4_whole(k[v], a->row[2 * v] + o, a->row[2 * v + 1] + o, ops.bits);
        else
            two_scales(k[v], s, v, ops.groups, ops.sub, ops.has_min);
    }
    UNROLL
    for (int g = 0; g < ops.groups; g++) {
        UNROLL
        for (int t = 0; t < T; t++) {
            const uint8_t *xt = x + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group);
            __m256i ab[2][2][2];
            dot_rows(ab, ops.two, a->row, o, g, nb, xt, ops.sub, ops.offset, ops.sub == 16 ? 4 : whole ? 2 : 1, ops.bits);
            UNROLL
            for (int v = 0; v < 2; v++)
                acc[t].v[v] = dot_two(acc[t].v[v], ab, v, &k[v][g], xt, ops.sub, ops.offset, ops.has_min, ops.bits);
        }
    }
}
#else
INLINE void k_step_q8(const struct tile *a, struct f16x *acc, size_t o, const uint8_t *x, int nb, int T, struct k_ops ops)
{
    struct k_scales4 s[2];
    k_rows_scales(s, a->row, o, nb, ops);
    UNROLL
    for (int g = 0; g < ops.groups; g++) {
        UNROLL
        for (int r = 0; r < TILE_R; r += K_DOT_ROWS) {
            struct kg w[K_DOT_ROWS];
            UNROLL
            for (int i = 0; i < K_DOT_ROWS; i++)
                w[i] = k_unsigned(ops.group(a->row[r + i] + o, g, nb), ops.offset);
            UNROLL
            for (int t = 0; t < T; t++)
                acc[t] = k_dot(acc[t], w, &s[g], r, x + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group), ops.sub,
                               ops.offset, ops.has_min, ops.bits);
        }
    }
}
#endif

INLINE void k_store_q8(const struct tile *a, struct f16x *acc, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        float s[TILE_R];
        k_store4(s, acc[t]);
        for (int r = 0; r < a->live; r++)
            a->out[(size_t)t * a->out_stride + (size_t)r * a->out_step] = s[r];
    }
}

/* The last step of a type's rows, of fewer than four blocks, for one token: code for all tiles. */
typedef void k_rest_fn(const struct tile *a, struct f16x *acc, size_t o, const uint8_t *x, int nb);

INLINE struct f16x k_rest(const struct tile *a, struct f16x acc, size_t o, const uint8_t *x, int nb, k_rest_fn *rest)
{
    rest(a, &acc, o, x, nb);
    return acc;
}

INLINE void k_tile_q8(const struct tile *a, int T, struct k_ops ops, k_rest_fn *rest)
{
    struct f16x acc[TILE_T];
    const uint8_t *x = a->x;
    size_t o = 0, done = 0;
    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = k_zero();
    for (; o + ops.bytes <= a->row_bytes; o += ops.bytes, x += (size_t)ops.groups * sizeof(struct kernels_q8_group)) {
        ahead_step(&done, a, o + ops.bytes, TILE_R);
        k_step_q8(a, acc, o, x, 4, T, ops);
    }
    if (ops.groups == 1 && o < a->row_bytes) {
        UNROLL
        for (int t = 0; t < T; t++)
            acc[t] = k_rest(a, acc[t], o, x + (size_t)t * a->x_stride, (int)((a->row_bytes - o) / (ops.bytes / 4)), rest);
    }
    k_store_q8(a, acc, T);
}

/* Rows of one token. n: they follow each other without a gap, as four streams of n rows each, which begin at row[]: a tile after the
 * other, with nothing to set up in between, for rows may be as short as a step or two, and each stream is asked for as one piece. Or 0: the
 * rows of one tile, which ask for those that come. A row by itself is a tile of four, too. */
INLINE void k_one_q8(const struct tile *a, int n, struct k_ops ops, k_rest_fn *rest)
{
    const size_t total = (size_t)(n ? n : 1) * a->row_bytes, ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    const int nb = (int)(a->row_bytes % ops.bytes / (ops.bytes / 4)); /* of a row's last step */
    struct tile to = *a;
    size_t done = 0; /* of a stream: asked for, but for PREFETCH_BYTES */
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        struct f16x acc[TILE_T] = { k_zero() };
        const uint8_t *x = a->x;
        const size_t end = at + a->row_bytes;
        size_t o = at;
        for (; o + ops.bytes <= end; o += ops.bytes, x += (size_t)ops.groups * sizeof(struct kernels_q8_group)) {
            if (n)
                strip_ask(&to, &done, ask, o + ops.bytes);
            else
                ahead_step(&done, a, o + ops.bytes, TILE_R);
            k_step_q8(&to, acc, o, x, 4, 1, ops);
        }
        if (ops.groups == 1 && o < end)
            acc[0] = k_rest(&to, acc[0], o, x, nb, rest);
        k_store_q8(&to, acc, 1);
    }
}

#ifndef KERNELS_OPS_ONLY
#include "common/kernels/kernels_gemm_impl.h"
#include "common/kernels/kernels_panel_impl.h"
#endif
#else
INLINE VF k_add_mins(VF acc, const struct f16x *m, const struct f16x *sums, int n)
{
    for (int v = 0; v < (n + VN - 1) / VN; v++)
        acc = vf_fma(m->v[v], sums->v[v], acc);
    return acc;
}

/* ---- products with int8 ---- */

/* A step of R rows and T tokens, acc[r * T + t]; rest: copies of the rows instead. */
INLINE void k_step_q8(VF *acc, const struct tile *a, const uint8_t *rest, size_t rest_bytes, size_t o, const uint8_t *x, int R,
                      int T, struct k_ops ops)
{
    const int n = ops.groups * 128 / ops.sub;
    struct f16x sums[TILE_T];
    UNROLL
    for (int t = 0; t < T; t++)
        if (ops.has_min)
            sums[t] = k_sums(x + (size_t)t * a->x_stride, ops.groups, ops.sub);
    ROLLED /* a row's step fills the registers: code of one row is enough */
    for (int r = 0; r < R; r++) {
        const uint8_t *p = rest ? rest + (size_t)r * rest_bytes : a->row[r] + o;
        struct k_scales k;
        VF s[TILE_T];
        ops.scales(&k, p, 4);
        UNROLL
        for (int t = 0; t < T; t++)
            s[t] = ops.has_min ? k_add_mins(acc[r * T + t], &k.m, &sums[t], n) : acc[r * T + t];
        UNROLL
        for (int g = 0; g < ops.groups; g++) {
            const struct kg w = ops.group(p, g, 4);
            UNROLL
            for (int t = 0; t < T; t++)
                s[t] = k_dot(s[t], w, k.s, g, x + (size_t)t * a->x_stride + (size_t)g * sizeof(struct kernels_q8_group), ops.sub,
                             ops.offset);
        }
        UNROLL
        for (int t = 0; t < T; t++)
            acc[r * T + t] = s[t];
    }
}

INLINE void k_store_rows(const struct tile *a, const VF *acc, int T)
{
    for (int r = 0; r < a->live; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            a->out[(size_t)t * a->out_stride + (size_t)r * a->out_step] = vf_sum(acc[r * T + t]);
    }
}

/* Rows of T tokens; n as k_one_q8's of tiers with KERNELS_BLOCK_SUMS. Of a row's last step what is missing is zero. */
INLINE void k_few_q8(const struct tile *a, int n, int T, struct k_ops ops)
{
    const size_t total = (size_t)(n ? n : 1) * a->row_bytes, ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    const int R = a->live == 1 ? 1 : TILE_R;
    struct tile to = *a;
    size_t done = 0;
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        VF acc[TILE_R * TILE_T];
        uint8_t rest[TILE_R][4 * sizeof(struct quant_q8_0)];
        const uint8_t *x = a->x;
        const size_t end = at + a->row_bytes;
        UNROLL
        for (int i = 0; i < TILE_R * T; i++)
            acc[i] = vf_zero();
        for (size_t o = at; o < end; o += ops.bytes, x += (size_t)ops.groups * sizeof(struct kernels_q8_group)) {
            if (n)
                strip_ask(&to, &done, ask, o + ops.bytes);
            else
                ahead_step(&done, a, o + ops.bytes, TILE_R);
            const int whole = ops.groups == 2 || o + ops.bytes <= end;
            for (int r = 0; r < R && !whole; r++) {
                memset(rest[r], 0, sizeof rest[r]);
                memcpy(rest[r], a->row[r] + o, end - o);
            }
            k_step_q8(acc, a, whole ? NULL : &rest[0][0], sizeof rest[0], o, x, R, T, ops);
        }
        k_store_rows(&to, acc, T);
    }
}
#endif

/* ---- weights as floats ---- */

/* Of a row, up to STEP columns as they are unpacked: bytes, and s and m of each run of `sub` columns, with room for a vector more. */
struct bytes {
    _Alignas(64) float s[32], m[32];
    uint8_t u[STEP];
};

#ifndef K_SIGNED /* a tier's bytes are without their offset */
#define K_SIGNED              0
#define k_signed(group, over) group
#endif
/* struct bytes of a step, all of it. */
INLINE void k_unpack_step(struct bytes *to, int at, const uint8_t *p, struct k_ops ops)
{
    struct k_scales k;
    const VF offset = vf_set1(K_SIGNED || ops.offset >= K_TABLE ? 0 : (float)-ops.offset);
    const int n = 128 * ops.groups / ops.sub; /* scales */
    ops.scales(&k, p, 4);
    UNROLL
    for (int v = 0; v < (n + VN - 1) / VN; v++) { /* those beyond n are zero, and come in their turn */
        vf_store(to->s + at / ops.sub + v * VN, k.s.v[v]);
        vf_store(to->m + at / ops.sub + v * VN, ops.has_min ? k.m.v[v] : K_SIGNED ? offset : vf_mul(k.s.v[v], offset));
    }
    UNROLL
    for (int g = 0; g < ops.groups; g++)
        kg_store(to->u + at + 128 * g, K_SIGNED ? k_signed(ops.group(p, g, 4), ops.offset) : ops.group(p, g, 4));
}

/* struct unpack. What is missing of a row's last step is zero. */
INLINE void k_unpack(struct bytes *to, const uint8_t *const *row, size_t o, int n, int R, struct k_ops ops)
{
    const int step = 128 * ops.groups;
    for (int r = 0; r < R; r++) {
        const uint8_t *p = row[r] + o;
        if (ops.groups == 2 || n == STEP) {
            ROLLED
            for (int g = 0; g < 2; g += ops.groups, p += ops.bytes)
                k_unpack_step(to + r, 128 * g, p, ops);
            continue;
        }
        for (int i = 0; i < n; i += step, p += ops.bytes) {
            uint8_t rest[4 * sizeof(struct quant_q8_0)];
            if (n - i < step) {
                memset(rest, 0, sizeof rest);
                memcpy(rest, p, ops.bytes / 4 * (size_t)((n - i) / 32));
            }
            k_unpack_step(to + r, i, n - i < step ? rest : p, ops);
        }
    }
}

/* Weights of a block of 32 columns, block i of the step: vector v of them. Bytes are in kg_store's order. */
INLINE VF k_weight(const struct bytes *b, int i, int v, int shift)
{
    const int h = v / (16 / VN), k = (2 * i + h) >> shift;
    return vf_fma(vf_i8(b->u + 128 * (i / 4) + 16 * (i % 4) + 64 * h + v % (16 / VN) * VN), vf_set1(b->s[k]), vf_set1(b->m[k]));
}

INLINE void k_step_f32(const struct tile *a, VF acc[TILE_R][TILE_T], size_t o, int c, int n, int R, int T)
{
    struct bytes b[TILE_R];
    const int shift = a->unpack->shift;
    a->unpack->rows(b, a->row, o, n, R);
    for (int i = 0; i < n / 32; i++) {
        UNROLL
        for (int v = 0; v < 32 / VN; v++) {
            VF w[TILE_R];
            UNROLL
            for (int r = 0; r < R; r++)
                w[r] = k_weight(&b[r], i, v, shift);
            UNROLL
            for (int t = 0; t < T; t++) {
                VF x = vf_load(tile_x(a, t, c + 32 * i + v * VN));
                UNROLL
                for (int r = 0; r < R; r++)
                    acc[r][t] = vf_fma(w[r], x, acc[r][t]);
            }
        }
    }
}

INLINE int k_columns(int left)
{
    return left < STEP ? left : STEP;
}

INLINE void k_tile_f32(const struct tile *a, int R, int T)
{
    VF acc[TILE_R][TILE_T];
    size_t o = 0, done = 0;
    tile_clear(acc, R, T);
    for (int c = 0; c < a->n_cols; c += STEP, o += a->unpack->bytes) {
        ahead_step(&done, a, o + a->unpack->bytes < a->row_bytes ? o + a->unpack->bytes : a->row_bytes, R);
        k_step_f32(a, acc, o, c, k_columns(a->n_cols - c), R, T);
    }
    tile_store(a, acc, R, T);
}

OUTER void k_strip_f32(const struct tile *a, int n)
{
    const size_t total = (size_t)n * a->row_bytes, ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    struct tile to = *a;
    size_t done = 0;
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        VF acc[TILE_R][TILE_T];
        size_t o = at;
        tile_clear(acc, TILE_R, 1);
        for (int c = 0; c < a->n_cols; c += STEP, o += a->unpack->bytes) {
            strip_ask(&to, &done, ask, o + a->unpack->bytes);
            k_step_f32(&to, acc, o, c, k_columns(a->n_cols - c), TILE_R, 1);
        }
        tile_store(&to, acc, TILE_R, 1);
    }
}

INLINE void k_axpy_tile(float *acc, size_t acc_stride, const struct axpy_rows *a, float hs[TILE_T][LANES_MAX], int R, int T)
{
    size_t o = 0, done = 0;
    const int shift = a->unpack->shift;
    for (int c = 0; c < a->n_cols; c += STEP, o += a->unpack->bytes) {
        struct bytes b[LANES_MAX];
        const int n = k_columns(a->n_cols - c);
        VF h[TILE_T][LANES_MAX];
        axpy_ask(&done, a, o + a->unpack->bytes < a->row_bytes ? o + a->unpack->bytes : a->row_bytes, R);
        a->unpack->rows(b, a->row, o, n, R);
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int t = 0; t < T; t++)
                h[t][r] = vf_set1(hs[t][r]);
        }
        for (int i = 0; i < n / 32; i++) {
            UNROLL
            for (int v = 0; v < 32 / VN; v++) {
                float *p = acc + c + 32 * i + v * VN;
                VF s[TILE_T];
                UNROLL
                for (int t = 0; t < T; t++)
                    s[t] = vf_load(p + (size_t)t * acc_stride);
                UNROLL
                for (int r = 0; r < R; r++) {
                    const VF w = k_weight(&b[r], i, v, shift);
                    UNROLL
                    for (int t = 0; t < T; t++)
                        s[t] = vf_fma(h[t][r], w, s[t]);
                }
                UNROLL
                for (int t = 0; t < T; t++)
                    vf_store(p + (size_t)t * acc_stride, vf_add(s[t], vf_zero()));
            }
        }
    }
}

/* ---- scales ---- */

/* What Q4_K and Q5_K share: quant_k4_scales, four bytes at a time. */
INLINE void k_scales_k4(struct k_scales *k, const uint8_t *p, int nb)
{
    const uint32_t a = k_u32(p + 4), b = k_u32(p + 8), c = k_u32(p + 12), six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
    (void)nb;
    k->s = k_bytes(k_join(a & six, (c & four) | (a >> 2 & two)), 0, k_half(p));
    k->m = k_bytes(k_join(b & six, (c >> 4 & four) | (b >> 2 & two)), 0, -k_half(p + 2));
}

INLINE void k_scales_q6_k(struct k_scales *k, const uint8_t *p, int nb)
{
    (void)nb;
    k->s = k_bytes(k_u64(K_AT(q6_k, p, scales)), k_u64(K_AT(q6_k, p, scales) + 8), k_half(K_AT(q6_k, p, d)));
}

INLINE void k_scales_q2_k(struct k_scales *k, const uint8_t *p, int nb)
{
    const uint64_t a = k_u64(K_AT(q2_k, p, scales)), b = k_u64(K_AT(q2_k, p, scales) + 8), four = 0x0f0f0f0f0f0f0f0f;
    (void)nb;
    k->s = k_bytes(a & four, b & four, k_half(K_AT(q2_k, p, d)));
    k->m = k_bytes(a >> 4 & four, b >> 4 & four, -k_half(K_AT(q2_k, p, dmin)));
}

/* Each byte, up to 63, less 32: without a borrow from its neighbour. */
INLINE uint64_t k_less_32(uint64_t v)
{
    const uint64_t sign = 0x8080808080808080, from = 0xa0a0a0a0a0a0a0a0;
    return ((v | sign) - (from ^ sign)) ^ sign;
}

INLINE void k_scales_q3_k(struct k_scales *k, const uint8_t *p, int nb)
{
    const uint64_t q = k_u64(K_AT(q3_k, p, scales)), four = 0x0f0f0f0f0f0f0f0f, two = 0x3030303030303030;
    const uint32_t h = k_u32(K_AT(q3_k, p, scales) + 8);
    const uint64_t lo = (q & four) | (k_join(h << 4, h << 2) & two), hi = (q >> 4 & four) | (k_join(h, h >> 2) & two);
    (void)nb;
    k->s = k_bytes(k_less_32(lo), k_less_32(hi), k_half(K_AT(q3_k, p, d)));
}

/* A byte in each sixteen bits; of each four bits a byte. */
INLINE uint64_t k_spread(uint64_t v)
{
    v = (v | v << 16) & 0x0000ffff0000ffff;
    return (v | v << 8) & 0x00ff00ff00ff00ff;
}

INLINE uint64_t k_nibbles(uint32_t v)
{
    const uint64_t s = k_spread(v);
    return (s | s << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* Eight fields of four bits, and of two, become a byte each. */
INLINE void k_scales_iq4_xs(struct k_scales *k, const uint8_t *p, int nb)
{
    uint64_t lo = k_nibbles(k_u32(K_AT(iq4_xs, p, scales_l))), hi = p[2] | (uint64_t)p[3] << 8;
    (void)nb;
    hi = (hi | hi << 24) & 0x000000ff000000ff;
    hi = (hi | hi << 12) & 0x000f000f000f000f;
    hi = (hi | hi << 6) & 0x0303030303030303;
    k->s = k_bytes(k_less_32(lo | hi << 4), 0, k_half(p));
}

#ifndef KERNELS_HALVES
/* An F16 at `at` of each of nb blocks; 0 for the others. */
INLINE struct f16x k_halves(const uint8_t *p, size_t block, size_t at, int nb)
{
    float f[4];
    UNROLL
    for (int b = 0; b < 4; b++)
        f[b] = b < nb ? k_half(p + (size_t)b * block + at) : 0;
    return k_four(f);
}
#define KERNELS_HALVES k_halves
#endif

#define K_SCALES_D(type)                                                   \
    INLINE void k_scales_##type(struct k_scales *k, const uint8_t *p, int nb) \
    {                                                                      \
        k->s = KERNELS_HALVES(p, sizeof(struct quant_##type), 0, nb);            \
    }
#define K_SCALES_DM(type)                                                  \
    INLINE void k_scales_##type(struct k_scales *k, const uint8_t *p, int nb) \
    {                                                                      \
        k->s = KERNELS_HALVES(p, sizeof(struct quant_##type), 0, nb);            \
        k->m = KERNELS_HALVES(p, sizeof(struct quant_##type), 2, nb);            \
    }
K_SCALES_DM(q4_1)
K_SCALES_D(q5_0)
K_SCALES_DM(q5_1)
K_SCALES_D(iq4_nl)
K_SCALES_D(q4_0)
K_SCALES_D(q8_0)

#ifndef KERNELS_POWERS
INLINE void k_scales_mxfp4(struct k_scales *k, const uint8_t *p, int nb)
{
    float f[4];
    UNROLL
    for (int b = 0; b < 4; b++) { /* 2^(e - 128); the two smallest are not normal floats */
        uint32_t e = b < nb ? p[(size_t)b * sizeof(struct quant_mxfp4)] : 0, bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
        memcpy(&f[b], &bits, sizeof f[b]);
    }
    k->s = k_four(f);
}
#endif

/* ---- types of nibbles ---- */

#define K_NIBBLES(type) nibbles(p, sizeof(struct quant_##type), offsetof(struct quant_##type, qs), nb)
#define K_FIFTH(type)   fifth_bits(K_NIBBLES(type), p, sizeof(struct quant_##type), offsetof(struct quant_##type, qh), nb)
#define KG(type, ...)                                                  \
    INLINE struct kg kg_##type(const uint8_t *p, int g, int nb)        \
    {                                                                  \
        (void)g;                                                       \
        (void)nb;                                                      \
        return __VA_ARGS__;                                            \
    }
KG(q4_1, K_NIBBLES(q4_1))
KG(q5_0, K_FIFTH(q5_0))
KG(q5_1, K_FIFTH(q5_1))
KG(iq4_nl, look_up(K_NIBBLES(iq4_nl), quant_iq4_values))
KG(mxfp4, look_up(K_NIBBLES(mxfp4), quant_mxfp4_values))
KG(iq4_xs, look_up(nibbles(K_AT(iq4_xs, p, qs) + 64 * g, 16, 0, 4), quant_iq4_values))

/* ---- what every tier instantiates ---- */

#ifdef KERNELS_BLOCK_SUMS
#define K_SCALES4(type) k_scales4_##type
#else
#define K_SCALES4(type) NULL
#endif
#ifdef KERNELS_SCALES4_K4
#define K_SCALES4_K4   k_scales4_k4
#define K_SCALES4_Q6_K k_scales4_q6_k
#else
#define K_SCALES4_K4   NULL
#define K_SCALES4_Q6_K NULL
#endif
#ifdef KERNELS_TWO_ROWS
#define K_TWO(type) two_##type
#else
#define K_TWO(type) NULL
#endif
#ifdef KERNELS_TURNED
#define K_TURNED(type) turned_##type
#else
#define K_TURNED(type) NULL
#endif

/* What a type's bytes are too large by in products with int8, and whether it has minima. */
enum {
    K_OFFSET_Q2_K = 0, K_MINS_Q2_K = 1, K_OFFSET_Q3_K = 4, K_MINS_Q3_K = 0,
    K_OFFSET_Q4_K = 0, K_MINS_Q4_K = 1, K_OFFSET_Q5_K = 0, K_MINS_Q5_K = 1,
    K_OFFSET_Q6_K = 32, K_MINS_Q6_K = 0, K_OFFSET_IQ4_XS = K_TABLE, K_MINS_IQ4_XS = 0,
    K_OFFSET_Q4_1 = 0, K_MINS_Q4_1 = 1, K_OFFSET_Q5_0 = 16, K_MINS_Q5_0 = 0,
    K_OFFSET_Q5_1 = 0, K_MINS_Q5_1 = 1, K_OFFSET_IQ4_NL = K_TABLE, K_MINS_IQ4_NL = 0,
    K_OFFSET_MXFP4 = K_SMALL, K_MINS_MXFP4 = 0, K_OFFSET_Q4_0 = 8, K_MINS_Q4_0 = 0,
    K_OFFSET_Q8_0 = K_TABLE, K_MINS_Q8_0 = 0
};

#define K_OPS_Q2_K   ((struct k_ops){ k_scales_q2_k, kg_q2_k, 2, sizeof(struct quant_q2_k), 16, K_OFFSET_Q2_K, K_MINS_Q2_K, 2, \
                                   NULL, NULL, K_TWO(q2_k) })
#define K_OPS_Q3_K   ((struct k_ops){ k_scales_q3_k, kg_q3_k, 2, sizeof(struct quant_q3_k), 16, K_OFFSET_Q3_K, K_MINS_Q3_K, 3, \
                                   NULL, NULL, K_TWO(q3_k) })
#define K_OPS_Q4_K   ((struct k_ops){ k_scales_k4, kg_q4_k, 2, sizeof(struct quant_q4_k), 32, K_OFFSET_Q4_K, K_MINS_Q4_K,  \
                                   4, K_SCALES4_K4, K_TURNED(q4_k), K_TWO(q4_k) })
#define K_OPS_Q5_K   ((struct k_ops){ k_scales_k4, kg_q5_k, 2, sizeof(struct quant_q5_k), 32, K_OFFSET_Q5_K, K_MINS_Q5_K,  \
                                   5, K_SCALES4_K4, K_TURNED(q5_k), K_TWO(q5_k) })
#define K_OPS_Q6_K   ((struct k_ops){ k_scales_q6_k, kg_q6_k, 2, sizeof(struct quant_q6_k), 16, K_OFFSET_Q6_K, K_MINS_Q6_K, 6, \
                                   K_SCALES4_Q6_K, K_TURNED(q6_k), K_TWO(q6_k) })
#define K_OPS_IQ4_XS ((struct k_ops){ k_scales_iq4_xs, kg_iq4_xs, 2, sizeof(struct quant_iq4_xs), 32, K_OFFSET_IQ4_XS, K_MINS_IQ4_XS, 8, \
                                   NULL, K_TURNED(iq4_xs), K_TWO(iq4_xs) })
#define K_OPS_Q4_1   ((struct k_ops){ k_scales_q4_1, kg_q4_1, 1, 4 * sizeof(struct quant_q4_1), 32, K_OFFSET_Q4_1, K_MINS_Q4_1, 4, \
                                   K_SCALES4(q4_1), K_TURNED(q4_1), K_TWO(q4_1) })
#define K_OPS_Q5_0   ((struct k_ops){ k_scales_q5_0, kg_q5_0, 1, 4 * sizeof(struct quant_q5_0), 32, K_OFFSET_Q5_0, K_MINS_Q5_0, 5, \
                                   K_SCALES4(q5_0), NULL, K_TWO(q5_0) })
#define K_OPS_Q5_1   ((struct k_ops){ k_scales_q5_1, kg_q5_1, 1, 4 * sizeof(struct quant_q5_1), 32, K_OFFSET_Q5_1, K_MINS_Q5_1, 5, \
                                   K_SCALES4(q5_1), NULL, K_TWO(q5_1) })
#define K_OPS_IQ4_NL ((struct k_ops){ k_scales_iq4_nl, kg_iq4_nl, 1, 4 * sizeof(struct quant_iq4_nl), 32, K_OFFSET_IQ4_NL, \
                                   K_MINS_IQ4_NL, 8, \
                                   K_SCALES4(iq4_nl), K_TURNED(iq4_nl), K_TWO(iq4_nl) })
#define K_OPS_MXFP4  ((struct k_ops){ k_scales_mxfp4, kg_mxfp4, 1, 4 * sizeof(struct quant_mxfp4), 32, K_OFFSET_MXFP4, K_MINS_MXFP4, 5, \
                                   K_SCALES4(mxfp4), K_TURNED(mxfp4), K_TWO(mxfp4) })

#define K_OPS_Q4_0 ((struct k_ops){ k_scales_q4_0, kg_q4_0, 1, 4 * sizeof(struct quant_q4_0), 32, K_OFFSET_Q4_0, K_MINS_Q4_0, 4, \
                                   K_SCALES4(q4_0), K_TURNED(q4_0), K_TWO(q4_0) })
#define K_OPS_Q8_0 ((struct k_ops){ k_scales_q8_0, kg_q8_0, 1, 4 * sizeof(struct quant_q8_0), 32, K_OFFSET_Q8_0, K_MINS_Q8_0, 8, \
                                   K_SCALES4(q8_0), K_TURNED(q8_0), K_TWO(q8_0) })
#define KERNELS_Q8_TYPES(X) X(q4_0, Q4_0) X(q8_0, Q8_0) KERNELS_BLOCK_TYPES(X)

#ifndef KERNELS_OPS_ONLY /* a tier that has loops of its own */
#ifndef KERNELS_PANELS
#define UNPACK          static
#define UNPACK_OF(name) unpack_of_##name
#endif
#ifndef KERNELS_Q8_ONLY
/* Of STEP columns: blocks have 32 of them, or all. */
#define K_BYTES(type) (sizeof(struct quant_##type) * (sizeof(struct quant_##type) > sizeof(struct quant_q8_0) ? 1 : STEP / 32))
#define K_SHIFT(type) /* a scale for sixteen columns: Q2_K, Q3_K, Q6_K */                                            \
    (sizeof(struct quant_##type) == sizeof(struct quant_q2_k) || sizeof(struct quant_##type) == sizeof(struct quant_q3_k) || \
     sizeof(struct quant_##type) == sizeof(struct quant_q6_k) ? 0 : 1)
#define K_FIRST(name, TYPE) (K_MINS_##TYPE ? (K_BYTES(name) > sizeof(struct quant_##name) ? 1 : K_SHIFT(name) ? 2 : 4) : 0)
#define K_UNPACK(name, TYPE)                                                                                        \
    static void unpack_##name(struct bytes *to, const uint8_t *const *row, size_t o, int n, int R)                  \
    {                                                                                                               \
        k_unpack(to, row, o, n, R, K_OPS_##TYPE);                                                                   \
    }                                                                                                               \
    UNPACK const struct unpack UNPACK_OF(name) = { unpack_##name, K_BYTES(name), K_SHIFT(name), K_FIRST(name, TYPE) };
#endif
#define K_SET_Q8(name, TYPE)                                         \
    k->rows[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_##name##_q8;        \
    k->rows_at[KERNELS_ACT_Q8][QUANT_##TYPE] = rows_at_##name##_q8;
#ifdef KERNELS_BLOCK_SUMS
#define K_TILES_Q8(name, TYPE)                                                                                           \
    static __attribute__((noinline)) void rest_##name(const struct tile *a, struct f16x *acc, size_t o, const uint8_t *x, int nb) \
    {                                                                                                                    \
        k_step_q8(a, acc, o, x, nb, 1, K_OPS_##TYPE);                                                                    \
    }                                                                                                                    \
    static __attribute__((noinline)) void one_##name(const struct tile *a, int n)                                        \
    {                                                                                                                    \
        k_one_q8(a, n, K_OPS_##TYPE, rest_##name);                                                                       \
    }                                                                                                                    \
    INLINE void tile_##name##_q8(const struct tile *a, int R, int T)                                                     \
    {                                                                                                                    \
        (void)R;                                                                                                         \
        if (T == 1)                                                                                                      \
            one_##name(a, 0);                                                                                            \
        else                                                                                                             \
            k_tile_q8(a, T, K_OPS_##TYPE, rest_##name);                                                                         \
    }                                                                                                                    \
    TILES(name##_q8, tile_##name##_q8)                                                                                   \
    ROWS_OF(name##_q8, QUANT_##TYPE, name##_q8, .strip = one_##name, .many = many_##name)
#else
#define K_TILES_Q8(name, TYPE)                                                                                           \
    static __attribute__((noinline)) void one_##name(const struct tile *a, int n)                                        \
    {                                                                                                                    \
        k_few_q8(a, n, 1, K_OPS_##TYPE);                                                                                 \
    }                                                                                                                    \
    static void tile_##name(const struct tile *a)                                                                        \
    {                                                                                                                    \
        one_##name(a, 0);                                                                                                \
    }                                                                                                                    \
    static void two_##name(const struct tile *a)                                                                         \
    {                                                                                                                    \
        k_few_q8(a, 0, 2, K_OPS_##TYPE);                                                                                 \
    }                                                                                                                    \
    static void four_##name(const struct tile *a)                                                                        \
    {                                                                                                                    \
        k_few_q8(a, 0, 4, K_OPS_##TYPE);                                                                                 \
    }                                                                                                                    \
    PANEL_TILES(name, TYPE, .t11 = tile_##name, .t41 = tile_##name, .t42 = two_##name, .strip = one_##name,              \
                .t44 = PANEL_FOURS >> QUANT_##TYPE & 1 ? four_##name : NULL)
#endif
#ifdef KERNELS_BLOCK_SUMS
KERNELS_Q8_TYPES(K_GEMM)
#endif
#ifdef KERNELS_PANELS
#include "common/kernels/kernels_neon_panel_impl.h"
#endif
KERNELS_Q8_TYPES(K_TILES_Q8)
#include "common/kernels/kernels_read_impl.h"

static void fill_k_q8(struct kernels *k)
{
    KERNELS_Q8_TYPES(K_SET_Q8)
    KERNELS_READ_TYPES(K_SET_Q8)
}

#ifndef KERNELS_Q8_ONLY
#define K_SET_F32(name, TYPE)                                         \
    k->rows[KERNELS_ACT_F32][QUANT_##TYPE] = rows_##name##_f32;       \
    k->rows_at[KERNELS_ACT_F32][QUANT_##TYPE] = rows_at_##name##_f32; \
    k->axpy[QUANT_##TYPE] = axpy_##name;
#define K_F32(name, TYPE)                                                                                           \
    ROWS_OF(name##_f32, QUANT_##TYPE, f32, .strip = k_strip_f32, .unpack = &UNPACK_OF(name))                       \
    AXPY_OF(name, QUANT_##TYPE, bytes, 4, &UNPACK_OF(name))
TILES(f32, k_tile_f32)
AXPY_ALL(bytes, k_axpy_tile)
#ifdef KERNELS_PANELS
KERNELS_Q8_TYPES(K_UNPACK)
#else
KERNELS_BLOCK_TYPES(K_UNPACK)
#endif
KERNELS_BLOCK_TYPES(K_F32)
KERNELS_READ_TYPES(K_F32)

static void fill_k_f32(struct kernels *k)
{
    KERNELS_BLOCK_TYPES(K_SET_F32)
    KERNELS_READ_TYPES(K_SET_F32)
}
#endif
#endif

#endif
