/* Products of quantised rows with float32 activations: OpenCL C 1.2. Built once for each element type, with
 *   TYPE   number of the type (common/kernels/quant.h)
 *   LANES  work items that share a row, a power of two
 *   ROWS   rows of a work group, of LANES * ROWS items
 *   MANY_TOKENS  tokens of an item (LANES 1) or of a group in the kernels for many tokens, a multiple of 8
 * A sum's order depends on these alone, never on how many tokens a call has. Halves are converted by vload_half: no arithmetic in half
 * precision is needed. Blocks as in common/kernels/quant.h. */
#pragma OPENCL FP_CONTRACT OFF

typedef global const uchar *bytes;

#define FLOATS 0
#define HALVES 1
#define BFLOATS 30
#define PLAIN (TYPE == FLOATS || TYPE == HALVES || TYPE == BFLOATS) /* any number of elements */

static float half_at(bytes p)
{
    return vload_half(0, (global const half *)p);
}

static ushort short_at(bytes p)
{
    return (ushort)(p[0] | p[1] << 8);
}

static uint int_at(bytes p)
{
    return (uint)p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24;
}

#if TYPE == 20 || TYPE == 23
constant float values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
#endif
#if TYPE == 39
constant float values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
#endif
#if TYPE == 20 || TYPE == 23 || TYPE == 39
static float16 look(uchar16 q)
{
    return (float16)(values[q.s0], values[q.s1], values[q.s2], values[q.s3], values[q.s4], values[q.s5], values[q.s6], values[q.s7],
                     values[q.s8], values[q.s9], values[q.sa], values[q.sb], values[q.sc], values[q.sd], values[q.se], values[q.sf]);
}
#endif

#if TYPE == 6 || TYPE == 7
/* A fifth bit for each of sixteen nibbles. */
static int16 fifth(uint bits)
{
    const uint16 at = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return convert_int16(((uint16)(bits) >> at & (uint16)(1)) << (uint16)(4));
}
#endif

#if TYPE == 12 || TYPE == 13
/* Scale and minimum of sub-block i. */
static float2 scale_min(bytes p, int i)
{
    bytes s = p + 4;
    int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
    int least = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4;
    return (float2)(half_at(p) * (float)scale, half_at(p + 2) * (float)least);
}
#endif

/* The 32 weights of block b of a run. */
static void weights(bytes run, uint b, float16 *lo, float16 *hi)
{
#if TYPE == FLOATS
    global const float *p = (global const float *)run + 32 * b;
    *lo = vload16(0, p);
    *hi = vload16(1, p);
#elif TYPE == HALVES
    global const half *p = (global const half *)run + 32 * b;
    *lo = vload_half16(0, p);
    *hi = vload_half16(1, p);
#elif TYPE == BFLOATS
    global const ushort *p = (global const ushort *)run + 32 * b;
    *lo = as_float16(convert_uint16(vload16(0, p)) << (uint16)(16));
    *hi = as_float16(convert_uint16(vload16(1, p)) << (uint16)(16));
#elif TYPE == 2
    bytes p = run + 18 * b;
    float d = half_at(p);
    uchar16 q = vload16(0, p + 2);
    *lo = d * (convert_float16(q & (uchar16)(15)) - 8.0f);
    *hi = d * (convert_float16(q >> (uchar16)(4)) - 8.0f);
#elif TYPE == 3
    bytes p = run + 20 * b;
    float d = half_at(p), m = half_at(p + 2);
    uchar16 q = vload16(0, p + 4);
    *lo = d * convert_float16(q & (uchar16)(15)) + m;
    *hi = d * convert_float16(q >> (uchar16)(4)) + m;
#elif TYPE == 6
    bytes p = run + 22 * b;
    float d = half_at(p);
    uint h = int_at(p + 2);
    uchar16 q = vload16(0, p + 6);
    *lo = d * (convert_float16(convert_int16(q & (uchar16)(15)) | fifth(h)) - 16.0f);
    *hi = d * (convert_float16(convert_int16(q >> (uchar16)(4)) | fifth(h >> 16)) - 16.0f);
#elif TYPE == 7
    bytes p = run + 24 * b;
    float d = half_at(p), m = half_at(p + 2);
    uint h = int_at(p + 4);
    uchar16 q = vload16(0, p + 8);
    *lo = d * convert_float16(convert_int16(q & (uchar16)(15)) | fifth(h)) + m;
    *hi = d * convert_float16(convert_int16(q >> (uchar16)(4)) | fifth(h >> 16)) + m;
#elif TYPE == 8
    bytes p = run + 34 * b;
    float d = half_at(p);
    *lo = d * convert_float16(as_char16(vload16(0, p + 2)));
    *hi = d * convert_float16(as_char16(vload16(1, p + 2)));
#elif TYPE == 10
    bytes p = run + 84 * (b / 8), q = p + 16 + b % 8 / 4 * 32, s = p + b % 8 * 2;
    float d = half_at(p + 80), least = half_at(p + 82);
    uchar16 shift = (uchar16)(b % 4 * 2);
    *lo = d * (float)(s[0] & 15) * convert_float16(vload16(0, q) >> shift & (uchar16)(3)) - least * (float)(s[0] >> 4);
    *hi = d * (float)(s[1] & 15) * convert_float16(vload16(1, q) >> shift & (uchar16)(3)) - least * (float)(s[1] >> 4);
#elif TYPE == 11
    bytes p = run + 110 * (b / 8), q = p + 32 + b % 8 / 4 * 32;
    float d = half_at(p + 108);
    uchar16 shift = (uchar16)(b % 4 * 2), bit = (uchar16)(b % 8);
    for (uint k = 0; k < 2; k++) {
        uint i = b % 8 * 2 + k;
        int scale = (p[96 + i % 8] >> i / 8 * 4 & 15) | (p[104 + i % 4] >> i / 4 * 2 & 3) << 4;
        uchar16 v = vload16(k, q) >> shift & (uchar16)(3);
        v |= (vload16(k, p) >> bit & (uchar16)(1)) << (uchar16)(2);
        *(k ? hi : lo) = d * (float)(scale - 32) * (convert_float16(v) - 4.0f);
    }
#elif TYPE == 12
    bytes p = run + 144 * (b / 8), q = p + 16 + b % 8 / 2 * 32;
    float2 s = scale_min(p, b % 8);
    uchar16 shift = (uchar16)(b % 2 * 4);
    *lo = s.x * convert_float16(vload16(0, q) >> shift & (uchar16)(15)) - s.y;
    *hi = s.x * convert_float16(vload16(1, q) >> shift & (uchar16)(15)) - s.y;
#elif TYPE == 13
    bytes p = run + 176 * (b / 8), q = p + 48 + b % 8 / 2 * 32, h = p + 16;
    float2 s = scale_min(p, b % 8);
    uchar16 shift = (uchar16)(b % 2 * 4), bit = (uchar16)(b % 8);
    *lo = s.x * convert_float16(vload16(0, q) >> shift & (uchar16)(15) | (vload16(0, h) >> bit & (uchar16)(1)) << (uchar16)(4)) - s.y;
    *hi = s.x * convert_float16(vload16(1, q) >> shift & (uchar16)(15) | (vload16(1, h) >> bit & (uchar16)(1)) << (uchar16)(4)) - s.y;
#elif TYPE == 14
    bytes p = run + 210 * (b / 8), q = p + b % 8 / 4 * 64 + b % 2 * 32, h = p + 128 + b % 8 / 4 * 32;
    global const char *s = (global const char *)p + 192 + b % 8 * 2;
    float d = half_at(p + 208);
    uchar16 low = (uchar16)(b % 4 / 2 * 4), high = (uchar16)(b % 4 * 2);
    *lo = d * (float)s[0] *
          (convert_float16(vload16(0, q) >> low & (uchar16)(15) | (vload16(0, h) >> high & (uchar16)(3)) << (uchar16)(4)) - 32.0f);
    *hi = d * (float)s[1] *
          (convert_float16(vload16(1, q) >> low & (uchar16)(15) | (vload16(1, h) >> high & (uchar16)(3)) << (uchar16)(4)) - 32.0f);
#elif TYPE == 20
    bytes p = run + 18 * b;
    float d = half_at(p);
    uchar16 q = vload16(0, p + 2);
    *lo = d * look(q & (uchar16)(15));
    *hi = d * look(q >> (uchar16)(4));
#elif TYPE == 23
    bytes p = run + 136 * (b / 8);
    uint i = b % 8;
    int scale = (p[4 + i / 2] >> i % 2 * 4 & 15) | (short_at(p + 2) >> i * 2 & 3) << 4;
    float d = half_at(p) * (float)(scale - 32);
    uchar16 q = vload16(0, p + 8 + i * 16);
    *lo = d * look(q & (uchar16)(15));
    *hi = d * look(q >> (uchar16)(4));
#elif TYPE == 39
    bytes p = run + 17 * b;
    float d = ldexp(1.0f, (int)p[0] - 128);
    uchar16 q = vload16(0, p + 1);
    *lo = d * look(q & (uchar16)(15));
    *hi = d * look(q >> (uchar16)(4));
#endif
}

/* One weight, of types that have no blocks. */
static float weight(bytes run, uint i)
{
#if TYPE == FLOATS
    return ((global const float *)run)[i];
#elif TYPE == HALVES
    return vload_half(i, (global const half *)run);
#elif TYPE == BFLOATS
    return as_float((uint)((global const ushort *)run)[i] << 16);
#else
    return 0;
#endif
}

/* Sums of a row: an item by itself has sixteen, of every sixteenth element, added as a tree at the end. Items that share a row have one
 * each, of their blocks' elements one after another, and the sum of an item's is added to those of the items before it. */
#if LANES == 1
typedef float16 sums;
#define NO_SUM (float16)(0)
static float16 added_to(float16 s, float16 a, float16 b)
{
    s += a;
    return s + b;
}
static float all_of(float16 v)
{
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    float2 c = b.lo + b.hi;
    return c.x + c.y;
}
#else
typedef float sums;
#define NO_SUM 0.0f
static float in_turn(float s, float16 v)
{
    s += v.s0, s += v.s1, s += v.s2, s += v.s3, s += v.s4, s += v.s5, s += v.s6, s += v.s7;
    s += v.s8, s += v.s9, s += v.sa, s += v.sb, s += v.sc, s += v.sd, s += v.se, s += v.sf;
    return s;
}
static float added_to(float s, float16 a, float16 b)
{
    return in_turn(in_turn(s, a), b);
}
static float all_of(float s)
{
    return s;
}
#endif

/* out[t][r] = <row r, x[t]>. Rows as struct accel_matrix has them: at, strides in bytes; run_blocks of 32 elements. */
#define MATRIX bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, uint run_blocks, ulong run_stride
#define ROW_AT(r) (w + at + (r) / group_rows * group_stride + (r) % group_rows * row_stride)
#define PRODUCT(NAME, TOKENS)                                                                                                    \
    kernel void NAME(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols,         \
                     uint n_tokens, local float *shared)                                                                         \
    {                                                                                                                             \
        uint lane = get_local_id(0) % LANES, row = get_group_id(0) * ROWS + get_local_id(0) / LANES;                              \
        uint t0 = get_global_id(1) * TOKENS, r = min(row, n_rows - 1);                                                            \
        bytes p = ROW_AT(r);                                                                                                      \
        sums sum[TOKENS];                                                                                                         \
        float rest[TOKENS];                                                                                                       \
        for (uint t = 0; t < TOKENS; t++)                                                                                         \
            sum[t] = NO_SUM, rest[t] = 0;                                                                                         \
        for (uint b = lane; b < n_cols / 32; b += LANES) {                                                                        \
            float16 lo, hi;                                                                                                       \
            weights(p + b / run_blocks * run_stride, b % run_blocks, &lo, &hi);                                                   \
            for (uint t = 0; t < TOKENS; t++) {                                                                                   \
                global const float *v = x + x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols + 32 * b;                           \
                sum[t] = added_to(sum[t], lo * vload16(0, v), hi * vload16(1, v));                                                \
            }                                                                                                                     \
        }                                                                                                                         \
        if (PLAIN && lane == 0)                                                                                                   \
            for (uint i = n_cols / 32 * 32; i < n_cols; i++) {                                                                    \
                float v = weight(p + i / 32 / run_blocks * run_stride, i - i / 32 / run_blocks * run_blocks * 32);                \
                for (uint t = 0; t < TOKENS; t++)                                                                                 \
                    rest[t] += v * x[x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols + i];                                      \
            }                                                                                                                     \
        for (uint t = 0; t < TOKENS; t++) {                                                                                       \
            float s = all_of(sum[t]) + rest[t];                                                                                   \
            if (LANES > 1) {                                                                                                      \
                local float *row_of = shared + get_local_id(0) / LANES * LANES;                                                   \
                barrier(CLK_LOCAL_MEM_FENCE);                                                                                     \
                row_of[lane] = s;                                                                                                 \
                barrier(CLK_LOCAL_MEM_FENCE);                                                                                     \
                for (uint i = 1; lane == 0 && i < LANES; i++)                                                                     \
                    s += row_of[i];                                                                                               \
            }                                                                                                                     \
            if (lane == 0 && row < n_rows && t0 + t < n_tokens)                                                                   \
                out[out_at + (size_t)(t0 + t) * n_rows + row] = s;                                                                \
        }                                                                                                                         \
    }
PRODUCT(product_1, 1)
PRODUCT(product_4, 4)

/* The same for many tokens, n_cols % 32 == 0: weights are converted once for MANY_TOKENS of them, and groups of the same rows and other
 * tokens come one after another, so that caches have the rows. Bits are those of product_1. */
#if LANES == 1
kernel void product_many(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols, uint n_tokens)
{
    uint t0 = get_group_id(0) * MANY_TOKENS, row = get_global_id(1);
    if (row >= n_rows)
        return;
    bytes p = ROW_AT(row);
    global const float *v[MANY_TOKENS];
    float16 sum[MANY_TOKENS];
    for (uint t = 0; t < MANY_TOKENS; t++) {
        v[t] = x + x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols;
        sum[t] = (float16)(0);
    }
    for (uint b = 0; b < n_cols / 32; b++) {
        float16 lo, hi;
        weights(p + b / run_blocks * run_stride, b % run_blocks, &lo, &hi);
        for (uint t = 0; t < MANY_TOKENS; t++)
            sum[t] = added_to(sum[t], lo * vload16(2 * b, v[t]), hi * vload16(2 * b + 1, v[t]));
    }
    for (uint t = 0; t < MANY_TOKENS && t0 + t < n_tokens; t++)
        out[out_at + (size_t)(t0 + t) * n_rows + row] = all_of(sum[t]);
}
#else
/* part[i] += sum over 32 k, ascending, of a[k][i] * v[k], eight tokens wide. */
static void add_tile(float8 *part, local const float *a, uint a_stride, local const float *v, uint v_stride)
{
    for (uint k = 0; k < 32; k++) {
        float4 f = vload4(0, a + k * a_stride);
        float8 x = vload8(0, v + k * v_stride);
        part[0] += f.s0 * x;
        part[1] += f.s1 * x;
        part[2] += f.s2 * x;
        part[3] += f.s3 * x;
    }
}

/* A group has ITEMS rows and MANY_TOKENS tokens, an item four rows and eight tokens of them. A block of 32 columns lies in local memory,
 * converted, an item's own row of it. Blocks come in the order in which product_1's items have them. */
#define ITEMS (LANES * ROWS)
kernel void product_many(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols, uint n_tokens)
{
    local float ws[32 * ITEMS], xs[32 * MANY_TOKENS];
    uint item = get_local_id(0), t0 = get_group_id(0) * MANY_TOKENS, r0 = get_group_id(1) * ITEMS;
    uint mine = item / (MANY_TOKENS / 8), tokens = item % (MANY_TOKENS / 8);
    bytes p = ROW_AT(min(r0 + item, n_rows - 1));
    float8 all[4];
    for (uint lane = 0; lane < LANES; lane++) {
        float8 part[4];
        for (uint r = 0; r < 4; r++)
            part[r] = (float8)(0);
        for (uint b = lane; b < n_cols / 32; b += LANES) {
            float16 lo, hi;
            float one[32];
            weights(p + b / run_blocks * run_stride, b % run_blocks, &lo, &hi);
            vstore16(lo, 0, one);
            vstore16(hi, 1, one);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < 32; k++)
                ws[k * ITEMS + item] = one[k];
            for (uint i = item; i < 32 * MANY_TOKENS; i += ITEMS)
                xs[i % 32 * MANY_TOKENS + i / 32] = x[x_at + (size_t)min(t0 + i / 32, n_tokens - 1) * n_cols + 32 * b + i % 32];
            barrier(CLK_LOCAL_MEM_FENCE);
            add_tile(part, ws + 4 * mine, ITEMS, xs + 8 * tokens, MANY_TOKENS);
        }
        for (uint r = 0; r < 4; r++)
            all[r] = lane ? all[r] + part[r] : part[r];
    }
    for (uint r = 0; r < 4; r++) {
        float of[8];
        vstore8(all[r], 0, of);
        for (uint t = 0; t < 8; t++)
            if (r0 + 4 * mine + r < n_rows && t0 + 8 * tokens + t < n_tokens)
                out[out_at + (size_t)(t0 + 8 * tokens + t) * n_rows + r0 + 4 * mine + r] = of[t];
    }
}
#endif

/* part[slice][t][c] = sum over the slice's neurons i, ascending, of h[t][i] * row_i[c]. An item has 32 columns. Rows whose factor is 0 for all
 * of its tokens are not read: adding nothing and adding zero is the same, for finite weights. */
#define TURNED(NAME, TOKENS, COLUMNS_BY, TOKENS_BY)                                                                                \
    kernel void NAME(bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, global const float *h, uint h_at,  \
                     global float *part, uint part_at, uint slice, uint n_rows, uint n_cols, uint n_tokens)                       \
    {                                                                                                                             \
        uint b = get_global_id(COLUMNS_BY), t0 = get_global_id(TOKENS_BY) * TOKENS;                                               \
        uint from = get_global_id(2) * slice, to = min(from + slice, n_rows);                                                     \
        if (b >= (n_cols + 31) / 32)                                                                                              \
            return;                                                                                                               \
        global const float *v[TOKENS];                                                                                            \
        for (uint t = 0; t < TOKENS; t++)                                                                                         \
            v[t] = h + h_at + (size_t)min(t0 + t, n_tokens - 1) * n_rows;                                                         \
        if (32 * b + 32 <= n_cols) {                                                                                              \
            float16 low[TOKENS], high[TOKENS];                                                                                    \
            for (uint t = 0; t < TOKENS; t++)                                                                                     \
                low[t] = high[t] = (float16)(0);                                                                                  \
            for (uint i = from; i < to; i++) {                                                                                    \
                float16 lo, hi;                                                                                                   \
                int any = 0;                                                                                                      \
                for (uint t = 0; t < TOKENS; t++)                                                                                 \
                    any |= v[t][i] != 0;                                                                                          \
                if (!any)                                                                                                         \
                    continue;                                                                                                     \
                weights(ROW_AT(i), b, &lo, &hi);                                                                                  \
                for (uint t = 0; t < TOKENS; t++) {                                                                               \
                    low[t] += v[t][i] * lo;                                                                                       \
                    high[t] += v[t][i] * hi;                                                                                      \
                }                                                                                                                 \
            }                                                                                                                     \
            for (uint t = 0; t < TOKENS && t0 + t < n_tokens; t++) {                                                              \
                global float *o = part + part_at + ((size_t)get_global_id(2) * n_tokens + t0 + t) * n_cols + 32 * b;              \
                vstore16(low[t], 0, o);                                                                                           \
                vstore16(high[t], 1, o);                                                                                          \
            }                                                                                                                     \
        } else if (PLAIN) {                                                                                                       \
            for (uint c = 32 * b; c < n_cols; c++)                                                                                \
                for (uint t = 0; t < TOKENS && t0 + t < n_tokens; t++) {                                                          \
                    float s = 0;                                                                                                  \
                    for (uint i = from; i < to; i++)                                                                              \
                        if (v[t][i] != 0)                                                                                         \
                            s += v[t][i] * weight(ROW_AT(i), c);                                                                  \
                    part[part_at + ((size_t)get_global_id(2) * n_tokens + t0 + t) * n_cols + c] = s;                              \
                }                                                                                                                 \
        }                                                                                                                         \
    }
TURNED(turned_1, 1, 0, 1)
TURNED(turned_4, 4, 0, 1)

/* The same for many tokens, n_cols % 32 == 0, and the sum of slices, in the order of sum_slices. */
#if LANES == 1
TURNED(turned_many, MANY_TOKENS, 1, 0)
#else
/* A group has 32 columns and ITEMS tokens, an item four columns and eight tokens of them; 32 neurons lie in local memory, converted. */
kernel void turned_many(bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, global const float *h, uint h_at,
                        global float *out, uint out_at, uint slice, uint n_rows, uint n_cols, uint n_tokens)
{
    local float ws[32 * 32], hs[32 * ITEMS];
    uint item = get_local_id(0), b = get_group_id(1), t0 = get_group_id(0) * ITEMS;
    uint columns = item % 8, tokens = item / 8;
    global const float *v = h + h_at + (size_t)min(t0 + item, n_tokens - 1) * n_rows;
    float8 all[4];
    for (uint from = 0; from < n_rows; from += slice) {
        uint to = min(from + slice, n_rows);
        float8 part[4];
        for (uint c = 0; c < 4; c++)
            part[c] = (float8)(0);
        for (uint i0 = from; i0 < to; i0 += 32) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = item; i < 32; i += ITEMS) {
                float16 lo = (float16)(0), hi = (float16)(0);
                if (i0 + i < to)
                    weights(ROW_AT(i0 + i), b, &lo, &hi);
                vstore16(lo, 2 * i, ws);
                vstore16(hi, 2 * i + 1, ws);
            }
            for (uint i = 0; i < 32; i++)
                hs[i * ITEMS + item] = i0 + i < to ? v[i0 + i] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            add_tile(part, ws + 4 * columns, 32, hs + 8 * tokens, ITEMS);
        }
        for (uint c = 0; c < 4; c++)
            all[c] = from ? all[c] + part[c] : part[c];
    }
    for (uint c = 0; c < 4; c++) {
        float of[8];
        vstore8(all[c], 0, of);
        for (uint t = 0; t < 8; t++)
            if (t0 + 8 * tokens + t < n_tokens)
                out[out_at + (size_t)(t0 + 8 * tokens + t) * n_cols + 32 * b + 4 * columns + c] = of[t];
    }
}
#endif

/* out[i] = sum over slices, ascending, of part[slice][i], i < n. */
kernel void sum_slices(global const float *part, uint part_at, uint n_slices, uint n, global float *out, uint out_at)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    float s = 0;
    for (uint k = 0; k < n_slices; k++)
        s += part[part_at + (size_t)k * n + i];
    out[out_at + i] = s;
}

static float gelu(float g)
{
    return 0.5f * g * (1.0f + tanh(0.797884560802865f * g * (1.0f + 0.044715f * g * g)));
}

static float activation(float g, float u, uint act)
{
    if (act == 0)
        return g / (1.0f + exp(-g)) * u;
    if (act == 1)
        return g > 0 ? g * u : 0;
    if (act == 2)
        return g > 0 && u > 0 ? g * u : 0;
    if (act == 3) {
        float c = fmin(g, 7.0f);
        return c / (1.0f + exp(-1.702f * c)) * (fmin(fmax(u, -7.0f), 7.0f) + 1);
    }
    if (act == 6)
        return fmax(g, 0.0f);
    return gelu(g) * (act == 4 ? u : 1);
}

/* gate[t][i] = act(gate[t][i] + its bias, up[t][i] + its bias), nn_ffn_act; 0 where |act(gate, 1)| is below its threshold, nn_silence.
 * present: bit 0 gates' biases, bit 1 ups', bit 2 thresholds; f32[n] in buffers of their own. */
kernel void activate(global float *gate, global const float *up, uint at, uint n, uint n_tokens, uint act, uint present,
                     bytes gate_bias, ulong gate_at, bytes up_bias, ulong up_at, bytes silence, ulong silence_at)
{
    uint i = get_global_id(0);
    if (i >= n * n_tokens)
        return;
    float g = gate[at + i], u = up[at + i];
    if (present & 1)
        g += *((global const float *)(gate_bias + gate_at) + i % n);
    if (present & 2)
        u += *((global const float *)(up_bias + up_at) + i % n);
    float h = activation(g, u, act);
    if (present & 4 && fabs(activation(g, 1, act)) < *((global const float *)(silence + silence_at) + i % n))
        h = 0;
    gate[at + i] = h;
}
