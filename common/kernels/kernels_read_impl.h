/* Types that are read and not written: entries of codebooks with signs, and types of one bit and of two. What differs is how a step of a
 * row becomes struct bytes, with a scale for sixteen columns; products and sums are those of the bytes, one code for all types. Part of
 * kernels_simd_k_impl.h, which includes it. Primitives:
 *   void put_TYPE(uint8_t *u, const uint8_t *p) the bytes of a step, in kg_store's order
 *   struct kg kg_load(const uint8_t *from)      what kg_store has stored
 *   K16                                         sixteen bytes
 *   K16 k_tops(const uint8_t *p, size_t stride) the last four bits of each of eight words of 32, twice
 *   K16 k_sixteen(const uint8_t *p), k_eight(const uint8_t *p)  nibbles; each twice
 *   K16 k_odd(K16 n)                            2 n + 1
 *   struct f16x k_times(K16 n, float k)
 *   void put_eights(uint8_t *to, const uint64_t w[4], const uint8_t signs[4])
 *                                               32 bytes; those with a sign are negated
 * with KERNELS_READ_EIGHTS, instead of put_TYPE (there are no signs but for such)
 *   void signs_words(uint8_t signs[32], const uint8_t *p, size_t stride)  of eight words of 32: four times seven signs
 *   void signs_tops(uint8_t signs[32], const uint8_t *p)  of 32 words of 16: the last seven bits
 *   void signs_bytes(uint8_t signs[32], const uint8_t *p) of 32 bytes
 * Signs are in kg_store's order, too: byte 16 g + 8 h + 2 b + e has those of the eight columns from 128 g + 32 b + 16 h + 8 e on. */
#if defined(KERNELS_VN) && !defined(COMMON_KERNELS_READ_H)
#define COMMON_KERNELS_READ_H

#include "common/kernels/kernels_simd_k_impl.h"
#include "common/kernels/quant_impl.h"
#include "common/kernels/quant_iq_codebooks.h"

/* ---- bytes as a type: magnitudes are below 64 ---- */

INLINE const struct bytes *bytes_at(const uint8_t *p)
{
    return (const struct bytes *)(const void *)p;
}

INLINE void k_scales_bytes(struct k_scales *k, const uint8_t *p, int nb)
{
    (void)nb;
    UNROLL
    for (int v = 0; v < 16 / VN; v++)
        k->s.v[v] = vf_load(bytes_at(p)->s + v * VN);
}

INLINE struct kg kg_bytes(const uint8_t *p, int g, int nb)
{
    (void)nb;
    return kg_load(bytes_at(p)->u + 128 * g);
}

#ifdef KERNELS_TWO_ROWS
TWO(bytes, two(bytes_at(a)->u + 128 * g + 64 * h + 16 * i, bytes_at(b)->u + 128 * g + 64 * h + 16 * i))
#endif

#define K_OPS_BYTES(groups) ((struct k_ops){ k_scales_bytes, kg_bytes, groups, 0, 16, K_TABLE, 0, 6, NULL, NULL, K_TWO(bytes) })

/* ---- products with int8 ---- */

#ifdef KERNELS_BLOCK_SUMS
typedef struct f16x bytes_sums;
#define READ_STEP(a, sums, x, groups) k_step_q8(a, &(sums), 0, x, 4, 1, K_OPS_BYTES(groups))
#define READ_STORE(a, sums)           k_store_q8(a, &(sums), 1)
#else
typedef struct {
    VF of[TILE_R];
} bytes_sums;
#define READ_STEP(a, sums, x, groups) k_step_q8((sums).of, a, NULL, 0, 0, x, (a)->live == 1 ? 1 : TILE_R, 1, K_OPS_BYTES(groups))
#define READ_STORE(a, sums)           k_store_rows(a, (sums).of, 1)
#endif

/* A step of n columns that are unpacked, of four rows and one token. */
OUTER void bytes_step(bytes_sums *acc, const struct tile *of, const uint8_t *x, int n)
{
    bytes_sums s = *acc;
    if (n > 128)
        READ_STEP(of, s, x, 2);
    else
        READ_STEP(of, s, x, 1);
    *acc = s;
}

/* n of 0: the rows of a tile, and T tokens. Else as k_one_q8, of one token. What the types share is one function, too: a step that is
 * unpacked is in the first level. */
OUTER void bytes_rows(const struct tile *a, int n, int T)
{
    const size_t total = (size_t)(n ? n : 1) * a->row_bytes, ask = total > PREFETCH_BYTES ? total - PREFETCH_BYTES : 0;
    const int live = a->live < TILE_R ? a->live : TILE_R;
    struct bytes b[TILE_R];
    struct tile to = *a, of = *a;
    size_t done = 0;
    for (int r = 0; r < TILE_R; r++)
        of.row[r] = (const uint8_t *)&b[r < live ? r : 0];
    for (size_t at = 0; at < total; at += a->row_bytes, to.out++) {
        bytes_sums acc[TILE_T];
        size_t o = at;
        memset(acc, 0, sizeof *acc * (size_t)T);
        for (int c = 0; c < a->n_cols; c += STEP, o += a->unpack->bytes) {
            const size_t end = o + a->unpack->bytes;
            const int columns = k_columns(a->n_cols - c);
            if (n)
                strip_ask(&to, &done, ask, end);
            else
                ahead_step(&done, a, end < total ? end : total, TILE_R);
            a->unpack->rows(b, a->row, o, columns, live);
            for (int t = 0; t < T; t++)
                bytes_step(&acc[t], &of, a->x + (size_t)t * a->x_stride + (size_t)(c / 128) * sizeof(struct kernels_q8_group), columns);
        }
        for (int t = 0; t < T; t++) {
            struct tile token = to;
            token.out += (size_t)t * a->out_stride;
            READ_STORE(&token, acc[t]);
        }
    }
}

static void strip_bytes_q8(const struct tile *a, int n)
{
    bytes_rows(a, n, 1);
}

#ifdef KERNELS_PANELS
static void tile_bytes_q8(const struct tile *a)
{
    bytes_rows(a, 0, 1);
}

static void two_bytes_q8(const struct tile *a)
{
    bytes_rows(a, 0, 2);
}
#else
#define TILE_BYTES_Q8(a, R, T) bytes_rows(a, 0, T)
TILES(bytes_q8, TILE_BYTES_Q8)
#endif

#ifdef KERNELS_BLOCK_SUMS
/* struct gemm_type's panel. */
OUTER void read_panel(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups, const struct unpack *f)
{
    const size_t left = (a->row_bytes - o) * STEP / f->bytes;
    for (int v = 0; v < a->vectors; v++) {
        struct bytes b[16];
        const uint8_t *row[16];
        for (int i = 0; i < 16; i++)
            row[i] = (const uint8_t *)&b[i];
        f->rows(b, a->row + 16 * v, o, left < 128 * (size_t)groups ? (int)left : 128 * groups, 16);
        gemm_pack(to, v, row, 0, K_OPS_BYTES(2));
    }
}
#endif

/* ---- scales ---- */

INLINE void put_scales(struct bytes *to, struct f16x s)
{
    UNROLL
    for (int v = 0; v < 16 / VN; v++) {
        vf_store(to->s + v * VN, s.v[v]);
        vf_store(to->m + v * VN, vf_zero());
    }
}

/* Of sixteen columns each, 2 n + 1 times d. */
INLINE void read_scales(struct bytes *to, K16 n, float d)
{
    put_scales(to, k_times(k_odd(n), d));
}

/* A step of short blocks: each begins with the scale of all its columns. */
INLINE void read_halves(struct bytes *to, const uint8_t *p, size_t block, int blocks, float k)
{
    const uint64_t one = 0x0101010101010101;
    struct f16x s = k_bytes(0, 0, 0);
    UNROLL
    for (int b = 0; b < blocks; b++) {
        const uint64_t own = blocks == 2 ? one : b % 2 ? one << 32 : one >> 32;
        const struct f16x d = k_bytes(b < blocks / 2 ? own : 0, b < blocks / 2 ? 0 : own, k_half(p + (size_t)b * block) * k);
        UNROLL
        for (int v = 0; v < 16 / VN; v++)
            s.v[v] = vf_add(s.v[v], d.v[v]);
    }
    put_scales(to, s);
}

INLINE void scales_iq2_xxs(struct bytes *to, const uint8_t *p)
{
    read_scales(to, k_tops(K_AT(iq2_xxs, p, qs) + 4, 8), k_half(p) * 0.125f);
}

INLINE void scales_iq2_xs(struct bytes *to, const uint8_t *p)
{
    read_scales(to, k_sixteen(K_AT(iq2_xs, p, scales)), k_half(p) * 0.125f);
}

INLINE void scales_iq2_s(struct bytes *to, const uint8_t *p)
{
    read_scales(to, k_sixteen(K_AT(iq2_s, p, scales)), k_half(p) * 0.125f);
}

INLINE void scales_iq3_xxs(struct bytes *to, const uint8_t *p)
{
    read_scales(to, k_tops(K_AT(iq3_xxs, p, scales), 4), k_half(p) * 0.25f);
}

INLINE void scales_iq3_s(struct bytes *to, const uint8_t *p)
{
    read_scales(to, k_eight(K_AT(iq3_s, p, scales)), k_half(p));
}

/* 2 n + 1, of the three bits from `at` on. */
INLINE uint64_t odd_of(uint64_t bits, int at)
{
    return (bits >> at & 7) << 1 | 1;
}

/* Three bits at bit 12 of each of eight words, for 32 columns. */
INLINE void scales_iq1_s(struct bytes *to, const uint8_t *p)
{
    uint64_t lo = 0, hi = 0;
    for (int i = 0; i < 4; i++) {
        lo |= odd_of(half_at(K_AT(iq1_s, p, qh) + 2 * i), 12) * 0x101 << 16 * i;
        hi |= odd_of(half_at(K_AT(iq1_s, p, qh) + 2 * i + 8), 12) * 0x101 << 16 * i;
    }
    put_scales(to, k_bytes(lo, hi, k_half(p) * 0.125f));
}

/* Four times three bits in each of four words, for sixteen columns. */
INLINE void scales_iq1_m(struct bytes *to, const uint8_t *p)
{
    const uint8_t *s = K_AT(iq1_m, p, scales);
    uint64_t n[2] = { 0, 0 };
    UNROLL
    for (int i = 0; i < 16; i++)
        n[i / 8] |= odd_of(half_at(s + i / 4 * 2), i % 4 * 3) << i % 8 * 8;
    put_scales(to, k_bytes(n[0], n[1], quant_f16_to_f32(quant_iq1_m_d(p)) * 0.125f));
}

INLINE void scales_ptq1_0(struct bytes *to, const uint8_t *p)
{
    read_halves(to, K_AT(ptq1_0, p, d), sizeof(struct quant_ptq1_0), 2, 1);
}

INLINE void scales_q1_0(struct bytes *to, const uint8_t *p)
{
    read_halves(to, p, sizeof(struct quant_q1_0), 2, -1); /* the bit of a weight is its byte's sign */
}

INLINE void scales_q2_0(struct bytes *to, const uint8_t *p)
{
    read_halves(to, p, sizeof(struct quant_q2_0), 4, 1);
}

INLINE void scales_q2_0_128(struct bytes *to, const uint8_t *p)
{
    read_halves(to, p, sizeof(struct quant_q2_0_128), 2, 1);
}

/* ---- bytes by eights ---- */

/* Columns 8 k to 8 k + 7 of a step, without signs. */
typedef uint64_t eight_fn(const uint8_t *p, int k);

INLINE void read_eights(uint8_t *u, const uint8_t *p, const uint8_t signs[32], eight_fn *eight)
{
    UNROLL
    for (int j = 0; j < 8; j++) {
        const int k = 16 * (j / 4) + 8 * (j % 2) + j / 2 % 2 * 2;
        const uint64_t w[4] = { eight(p, k), eight(p, k + 1), eight(p, k + 4), eight(p, k + 5) };
        put_eights(u + 32 * j, w, signs + 4 * j);
    }
}

#define EIGHT(type, ...)                                        \
    INLINE uint64_t eight_##type(const uint8_t *p, int k)       \
    {                                                           \
        return __VA_ARGS__;                                     \
    }
/* signs: makes them. */
#define PUT(type, signs, ...)                                   \
    EIGHT(type, __VA_ARGS__)                                    \
    INLINE void put_##type(uint8_t *u, const uint8_t *p)        \
    {                                                           \
        uint8_t sign[32] = { 0 };                               \
        signs;                                                  \
        read_eights(u, p, sign, eight_##type);                  \
    }

/* Each byte less one. */
INLINE uint64_t less_one(uint64_t v)
{
    const uint64_t one = 0x0101010101010101, sign = 0x80 * one;
    return ((v | sign) - one) ^ (~v & sign);
}

/* Of eighths with one added those with one taken away, where the eighth is minus. */
INLINE uint64_t eight_iq1(unsigned entry, unsigned minus)
{
    const uint64_t v = quant_iq1_eights[entry];
    return minus ? less_one(less_one(v)) : v;
}

INLINE uint64_t eight_word(const uint8_t *qs, unsigned h, int k)
{
    return eight_iq1(qs[k] | (h >> k % 4 * 3 & 7) << 8, h >> 15);
}

INLINE uint64_t eight_nibble(const uint8_t *qs, unsigned h, int k)
{
    return eight_iq1(qs[k] | (h & 7) << 8, h >> 3 & 1);
}

PUT(iq1_s, , eight_word(K_AT(iq1_s, p, qs), (unsigned)half_at(K_AT(iq1_s, p, qh) + k / 4 * 2), k))
PUT(iq1_m, , eight_nibble(K_AT(iq1_m, p, qs), K_AT(iq1_m, p, qh)[k / 2] >> k % 2 * 4, k))

/* Of eight bytes the digits at 3^-n, which `power` is the inverse of, less one. */
INLINE uint64_t digits(uint64_t b, unsigned power)
{
    const uint64_t low = 0x00ff00ff00ff00ff;
    const uint64_t even = ((b & low) * power & low) * 3 >> 8 & low, odd = ((b >> 8 & low) * power & low) * 3 & ~low;
    return less_one(even | odd);
}

INLINE uint64_t eight_ptq1_0(const uint8_t *p, int k)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    p += (size_t)(k / 16) * sizeof(struct quant_ptq1_0);
    k %= 16;
    if (k < 15)
        return k < 10 ? digits(k_u64(p + k % 2 * 8), power[k / 2]) : digits(k_u64(p + 16), power[k - 10]);
    uint64_t last = 0;
    for (int i = 0; i < 8; i++)
        last |= (uint64_t)(uint8_t)(K_AT(ptq1_0, p, qh)[i % 2] * power[i / 2]) << 8 * i;
    return digits(last, 1);
}

INLINE void put_ptq1_0(uint8_t *u, const uint8_t *p)
{
    const uint8_t none[32] = { 0 };
    read_eights(u, p, none, eight_ptq1_0);
}

#ifdef KERNELS_READ_EIGHTS
#define FOURS(table, a, b) k_join((table)[a], (table)[b])

INLINE unsigned entry_iq2_s(const uint8_t *p, int k)
{
    return K_AT(iq2_s, p, qs)[k] | (K_AT(iq2_s, p, qh)[k / 4] >> k % 4 * 2 & 3u) << 8;
}

INLINE unsigned entry_iq3_s(const uint8_t *p, int k)
{
    return K_AT(iq3_s, p, qs)[k] | (K_AT(iq3_s, p, qh)[k / 8] >> k % 8 & 1u) << 8;
}

PUT(iq2_xxs, signs_words(sign, K_AT(iq2_xxs, p, qs) + 4, 8), quant_iq2_xxs_eights[K_AT(iq2_xxs, p, qs)[k / 4 * 8 + k % 4]])
PUT(iq2_xs, signs_tops(sign, K_AT(iq2_xs, p, qs)), quant_iq2_xs_eights[half_at(K_AT(iq2_xs, p, qs) + 2 * k) & 511])
PUT(iq2_s, signs_bytes(sign, K_AT(iq2_s, p, signs)), quant_iq2_s_eights[entry_iq2_s(p, k)])
PUT(iq3_xxs, signs_words(sign, K_AT(iq3_xxs, p, scales), 4),
    FOURS(quant_iq3_xxs_fours, K_AT(iq3_xxs, p, qs)[2 * k], K_AT(iq3_xxs, p, qs)[2 * k + 1]))
PUT(iq3_s, signs_bytes(sign, K_AT(iq3_s, p, signs)), FOURS(quant_iq3_s_fours, entry_iq3_s(p, 2 * k), entry_iq3_s(p, 2 * k + 1)))

INLINE uint64_t eight_twos(const uint8_t *p)
{
    return FOURS(quant_q2_0_fours, p[0], p[1]);
}

PUT(q2_0, , eight_twos(p + (size_t)(k / 8) * sizeof(struct quant_q2_0) + 2 + k % 8 * 2))
PUT(q2_0_128, , eight_twos(p + (size_t)(k / 16) * sizeof(struct quant_q2_0_128) + 2 + k % 16 * 2))

EIGHT(ones, (void)p, (void)k, (uint64_t)0x0101010101010101)

INLINE void put_q1_0(uint8_t *u, const uint8_t *p)
{
    uint8_t bits[32], sign[32];
    memcpy(bits, K_AT(q1_0, p, qs), 16);
    memcpy(bits + 16, K_AT(q1_0, p, qs) + sizeof(struct quant_q1_0), 16);
    signs_bytes(sign, bits);
    read_eights(u, p, sign, eight_ones);
}
#endif

/* ---- what every tier instantiates ---- */

/* Blocks of a step. */
enum { READ_iq2_xxs = 1, READ_iq2_xs = 1, READ_iq2_s = 1, READ_iq3_xxs = 1, READ_iq3_s = 1, READ_iq1_s = 1, READ_iq1_m = 1,
       READ_ptq1_0 = 2, READ_q1_0 = 2, READ_q2_0 = 4,
       READ_q2_0_128 = 2 };

/* What is missing of a row's last step is zero. */
#define K_UNPACK_READ(name, TYPE)                                                                                        \
    static void unpack_##name(struct bytes *to, const uint8_t *const *row, size_t o, int n, int R)                       \
    {                                                                                                                    \
        const size_t bytes = READ_##name * sizeof(struct quant_##name);                                                  \
        for (int r = 0; r < R; r++) {                                                                                    \
            const uint8_t *p = row[r] + o;                                                                               \
            uint8_t rest[READ_##name * sizeof(struct quant_##name)];                                                     \
            if (READ_##name > 1 && n < STEP) {                                                                           \
                memset(rest, 0, sizeof rest);                                                                            \
                memcpy(rest, p, bytes * (size_t)n / STEP);                                                               \
                p = rest;                                                                                                \
            }                                                                                                            \
            put_##name(to[r].u, p);                                                                                      \
            scales_##name(to + r, p);                                                                                    \
        }                                                                                                                \
    }                                                                                                                    \
    UNPACK const struct unpack UNPACK_OF(name) = { unpack_##name, READ_##name * sizeof(struct quant_##name), 0, 0 };
#ifndef KERNELS_Q8_ONLY
KERNELS_READ_TYPES(K_UNPACK_READ)
#endif

#ifdef KERNELS_BLOCK_SUMS
/* Short blocks have a group each, or one together, so that a row may end with one group. */
#define K_GEMM_READ(name, TYPE)                                                                                          \
    static void panel_##name(struct gemm_block *to, const struct gemm_rows *a, size_t o, int groups)                     \
    {                                                                                                                    \
        read_panel(to, a, o, groups, &UNPACK_OF(name));                                                                 \
    }                                                                                                                    \
    static struct gemm_type gemm_##name(void)                                                                            \
    {                                                                                                                    \
        struct gemm_type f = gemm_of(K_OPS_BYTES(READ_##name > 1 ? 1 : 2), QUANT_##TYPE, panel_##name);                  \
        f.bytes = READ_##name * sizeof(struct quant_##name) / (READ_##name > 1 ? 2 : 1);                                 \
        return f;                                                                                                        \
    }                                                                                                                    \
    K_MANY(name)                                                                                                         \
    ROWS_OF(name##_q8, QUANT_##TYPE, bytes_q8, .strip = strip_bytes_q8, .many = many_##name, .unpack = &UNPACK_OF(name))
KERNELS_READ_TYPES(K_GEMM_READ)
#else
#define K_ROWS_READ(name, TYPE) \
    PANEL_TILES(name, TYPE, .t11 = tile_bytes_q8, .t41 = tile_bytes_q8, .t42 = two_bytes_q8, .strip = strip_bytes_q8)
KERNELS_READ_TYPES(K_ROWS_READ)
#endif

#endif
