/* Products of quantised rows with float32 activations: OpenCL C 1.2. Built once for each element type, with
 *   TYPE   number of the type (common/kernels/quant.h)
 *   LANES  work items that share a row, a power of two
 *   ROWS   rows of a work group, of LANES * ROWS items
 *   MANY_TOKENS  tokens of an item (LANES 1) or of a group in the kernels for many tokens, a multiple of 8
 *   ITEMS  work items of a group of these kernels, where LANES is not 1; a multiple of 32
 *   UNROLLED  loops over an item's tokens are to be unrolled, so that sums are registers; compilers of processors take long for it
 * A sum's order depends on these alone, never on how many tokens a call has. Halves are converted by vload_half: no arithmetic in half
 * precision is needed. Blocks as in common/kernels/quant.h. */
#pragma OPENCL FP_CONTRACT OFF

typedef global const uchar *bytes;

/* One term of a sum, rounded once where the device does that as fast: kernels of the same sum agree, for both forms are exact about it. */
#ifdef FP_FAST_FMAF
#define PLUS(s, a, b) fma(a, b, s)
#else
#define PLUS(s, a, b) ((s) + (a) * (b))
#endif

#ifdef UNROLLED
#define EACH _Pragma("unroll")
#else
#define EACH
#endif

#define FLOATS 0
#define HALVES 1
#define BFLOATS 30
#define PLAIN (TYPE == FLOATS || TYPE == HALVES || TYPE == BFLOATS) /* any number of elements */

static float half_at(bytes p)
{
    return vload_half(0, (global const half *)p);
}

/* Sixteen bytes, which lie at an even address in all types of blocks but MXFP4's. */
static uchar16 sixteen_at(uint i, bytes p)
{
#if TYPE == 39
    return vload16(i, p);
#else
    return as_uchar16(vload8(i, (global const ushort *)p));
#endif
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
    uchar16 q = sixteen_at(0, p + 2);
    *lo = d * (convert_float16(q & (uchar16)(15)) - 8.0f);
    *hi = d * (convert_float16(q >> (uchar16)(4)) - 8.0f);
#elif TYPE == 3
    bytes p = run + 20 * b;
    float d = half_at(p), m = half_at(p + 2);
    uchar16 q = sixteen_at(0, p + 4);
    *lo = d * convert_float16(q & (uchar16)(15)) + m;
    *hi = d * convert_float16(q >> (uchar16)(4)) + m;
#elif TYPE == 6
    bytes p = run + 22 * b;
    float d = half_at(p);
    uint h = int_at(p + 2);
    uchar16 q = sixteen_at(0, p + 6);
    *lo = d * (convert_float16(convert_int16(q & (uchar16)(15)) | fifth(h)) - 16.0f);
    *hi = d * (convert_float16(convert_int16(q >> (uchar16)(4)) | fifth(h >> 16)) - 16.0f);
#elif TYPE == 7
    bytes p = run + 24 * b;
    float d = half_at(p), m = half_at(p + 2);
    uint h = int_at(p + 4);
    uchar16 q = sixteen_at(0, p + 8);
    *lo = d * convert_float16(convert_int16(q & (uchar16)(15)) | fifth(h)) + m;
    *hi = d * convert_float16(convert_int16(q >> (uchar16)(4)) | fifth(h >> 16)) + m;
#elif TYPE == 8
    bytes p = run + 34 * b;
    float d = half_at(p);
    *lo = d * convert_float16(as_char16(sixteen_at(0, p + 2)));
    *hi = d * convert_float16(as_char16(sixteen_at(1, p + 2)));
#elif TYPE == 10
    bytes p = run + 84 * (b / 8), q = p + 16 + b % 8 / 4 * 32, s = p + b % 8 * 2;
    float d = half_at(p + 80), least = half_at(p + 82);
    uchar16 shift = (uchar16)(b % 4 * 2);
    *lo = d * (float)(s[0] & 15) * convert_float16(sixteen_at(0, q) >> shift & (uchar16)(3)) - least * (float)(s[0] >> 4);
    *hi = d * (float)(s[1] & 15) * convert_float16(sixteen_at(1, q) >> shift & (uchar16)(3)) - least * (float)(s[1] >> 4);
#elif TYPE == 11
    bytes p = run + 110 * (b / 8), q = p + 32 + b % 8 / 4 * 32;
    float d = half_at(p + 108);
    uchar16 shift = (uchar16)(b % 4 * 2), bit = (uchar16)(b % 8);
    for (uint k = 0; k < 2; k++) {
        uint i = b % 8 * 2 + k;
        int scale = (p[96 + i % 8] >> i / 8 * 4 & 15) | (p[104 + i % 4] >> i / 4 * 2 & 3) << 4;
        uchar16 v = sixteen_at(k, q) >> shift & (uchar16)(3);
        v |= (sixteen_at(k, p) >> bit & (uchar16)(1)) << (uchar16)(2);
        *(k ? hi : lo) = d * (float)(scale - 32) * (convert_float16(v) - 4.0f);
    }
#elif TYPE == 12
    bytes p = run + 144 * (b / 8), q = p + 16 + b % 8 / 2 * 32;
    float2 s = scale_min(p, b % 8);
    uchar16 shift = (uchar16)(b % 2 * 4);
    *lo = s.x * convert_float16(sixteen_at(0, q) >> shift & (uchar16)(15)) - s.y;
    *hi = s.x * convert_float16(sixteen_at(1, q) >> shift & (uchar16)(15)) - s.y;
#elif TYPE == 13
    bytes p = run + 176 * (b / 8), q = p + 48 + b % 8 / 2 * 32, h = p + 16;
    float2 s = scale_min(p, b % 8);
    uchar16 shift = (uchar16)(b % 2 * 4), bit = (uchar16)(b % 8);
    *lo = s.x * convert_float16(sixteen_at(0, q) >> shift & (uchar16)(15) | (sixteen_at(0, h) >> bit & (uchar16)(1)) << (uchar16)(4)) - s.y;
    *hi = s.x * convert_float16(sixteen_at(1, q) >> shift & (uchar16)(15) | (sixteen_at(1, h) >> bit & (uchar16)(1)) << (uchar16)(4)) - s.y;
#elif TYPE == 14
    bytes p = run + 210 * (b / 8), q = p + b % 8 / 4 * 64 + b % 2 * 32, h = p + 128 + b % 8 / 4 * 32;
    global const char *s = (global const char *)p + 192 + b % 8 * 2;
    float d = half_at(p + 208);
    uchar16 low = (uchar16)(b % 4 / 2 * 4), high = (uchar16)(b % 4 * 2);
    *lo = d * (float)s[0] *
          (convert_float16(sixteen_at(0, q) >> low & (uchar16)(15) | (sixteen_at(0, h) >> high & (uchar16)(3)) << (uchar16)(4)) - 32.0f);
    *hi = d * (float)s[1] *
          (convert_float16(sixteen_at(1, q) >> low & (uchar16)(15) | (sixteen_at(1, h) >> high & (uchar16)(3)) << (uchar16)(4)) - 32.0f);
#elif TYPE == 20
    bytes p = run + 18 * b;
    float d = half_at(p);
    uchar16 q = sixteen_at(0, p + 2);
    *lo = d * look(q & (uchar16)(15));
    *hi = d * look(q >> (uchar16)(4));
#elif TYPE == 23
    bytes p = run + 136 * (b / 8);
    uint i = b % 8;
    int scale = (p[4 + i / 2] >> i % 2 * 4 & 15) | (short_at(p + 2) >> i * 2 & 3) << 4;
    float d = half_at(p) * (float)(scale - 32);
    uchar16 q = sixteen_at(0, p + 8 + i * 16);
    *lo = d * look(q & (uchar16)(15));
    *hi = d * look(q >> (uchar16)(4));
#elif TYPE == 39
    bytes p = run + 17 * b;
    float d = ldexp(1.0f, (int)p[0] - 128);
    uchar16 q = sixteen_at(0, p + 1);
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

/* Rows as struct accel_matrix has them: at, strides in bytes; run_blocks of 32 elements. */
#define MATRIX bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, uint run_blocks, ulong run_stride
#define ROW_AT(r) (w + at + (r) / group_rows * group_stride + (r) % group_rows * row_stride)

/* Of the last columns, fewer than 32: rest[t] += their part of the row. */
#define REST(TOKENS)                                                                                                             \
    for (uint i = n_cols / 32 * 32; i < n_cols; i++) {                                                                            \
        float f = weight(p + i / 32 / run_blocks * run_stride, i - i / 32 / run_blocks * run_blocks * 32);                        \
        for (uint t = 0; t < TOKENS; t++)                                                                                         \
            rest[t] += f * x[x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols + i];                                              \
    }

/* out[t][r] = <row r, x[t]>. An item that has a row by itself has sixteen sums, of every sixteenth element, added as a tree at the end.
 * Items that share a row have one each, of their blocks' elements one after another, and the sum of an item's is added to those of the
 * items before it; inputs of as many blocks lie in local memory, where neighbours read without waiting for each other. */
#if LANES == 1
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
#define PRODUCT(NAME, TOKENS)                                                                                                    \
    kernel void NAME(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols,         \
                     uint n_tokens, local float *shared)                                                                         \
    {                                                                                                                             \
        uint row = get_global_id(0), t0 = get_global_id(1) * TOKENS;                                                              \
        if (row >= n_rows)                                                                                                        \
            return;                                                                                                               \
        bytes p = ROW_AT(row);                                                                                                    \
        float16 sum[TOKENS];                                                                                                      \
        float rest[TOKENS];                                                                                                       \
        for (uint t = 0; t < TOKENS; t++)                                                                                         \
            sum[t] = (float16)(0), rest[t] = 0;                                                                                   \
        for (uint b = 0; b < n_cols / 32; b++) {                                                                                  \
            float16 lo, hi;                                                                                                       \
            weights(p + b / run_blocks * run_stride, b % run_blocks, &lo, &hi);                                                   \
            for (uint t = 0; t < TOKENS; t++) {                                                                                   \
                global const float *v = x + x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols + 32 * b;                           \
                sum[t] = added_to(sum[t], lo * vload16(0, v), hi * vload16(1, v));                                                \
            }                                                                                                                     \
        }                                                                                                                         \
        if (PLAIN)                                                                                                                \
            REST(TOKENS)                                                                                                          \
        for (uint t = 0; t < TOKENS && t0 + t < n_tokens; t++)                                                                    \
            out[out_at + (size_t)(t0 + t) * n_rows + row] = all_of(sum[t]) + rest[t];                                             \
    }
#else
#define APART 33 /* floats between two blocks of inputs in local memory: no two items' lie in the same bank */
static float in_turn(float s, float16 w, local const float *v)
{
    s = PLUS(s, w.s0, v[0]), s = PLUS(s, w.s1, v[1]), s = PLUS(s, w.s2, v[2]), s = PLUS(s, w.s3, v[3]);
    s = PLUS(s, w.s4, v[4]), s = PLUS(s, w.s5, v[5]), s = PLUS(s, w.s6, v[6]), s = PLUS(s, w.s7, v[7]);
    s = PLUS(s, w.s8, v[8]), s = PLUS(s, w.s9, v[9]), s = PLUS(s, w.sa, v[10]), s = PLUS(s, w.sb, v[11]);
    s = PLUS(s, w.sc, v[12]), s = PLUS(s, w.sd, v[13]), s = PLUS(s, w.se, v[14]), s = PLUS(s, w.sf, v[15]);
    return s;
}
#define PRODUCT(NAME, TOKENS)                                                                                                    \
    kernel __attribute__((reqd_work_group_size(LANES * ROWS, 1, 1)))                                                              \
    void NAME(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols,                \
              uint n_tokens, local float *shared)                                                                                \
    {                                                                                                                             \
        uint item = get_local_id(0), lane = item % LANES, row = get_group_id(0) * ROWS + item / LANES;                            \
        uint t0 = get_group_id(1) * TOKENS;                                                                                       \
        bytes p = ROW_AT(min(row, n_rows - 1));                                                                                   \
        float sum[TOKENS], rest[TOKENS];                                                                                          \
        for (uint t = 0; t < TOKENS; t++)                                                                                         \
            sum[t] = rest[t] = 0;                                                                                                 \
        for (uint b0 = 0; b0 < n_cols / 32; b0 += LANES) {                                                                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                                         \
            for (uint i = item; i < 32 * LANES && 32 * b0 + i < n_cols; i += LANES * ROWS)                                        \
                for (uint t = 0; t < TOKENS; t++)                                                                                 \
                    shared[(t * LANES + i / 32) * APART + i % 32] =                                                               \
                        x[x_at + (size_t)min(t0 + t, n_tokens - 1) * n_cols + 32 * b0 + i];                                       \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                                         \
            if (b0 + lane < n_cols / 32) {                                                                                        \
                float16 lo, hi;                                                                                                   \
                uint b = b0 + lane;                                                                                               \
                weights(p + b / run_blocks * run_stride, b % run_blocks, &lo, &hi);                                               \
                for (uint t = 0; t < TOKENS; t++) {                                                                               \
                    local const float *v = shared + (t * LANES + lane) * APART;                                                   \
                    sum[t] = in_turn(in_turn(sum[t], lo, v), hi, v + 16);                                                         \
                }                                                                                                                 \
            }                                                                                                                     \
        }                                                                                                                         \
        if (PLAIN && lane == 0)                                                                                                   \
            REST(TOKENS)                                                                                                          \
        for (uint t = 0; t < TOKENS; t++) {                                                                                       \
            float s = sum[t];                                                                                                     \
            local float *row_of = shared + item / LANES * LANES;                                                                  \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                                         \
            row_of[lane] = s;                                                                                                     \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                                         \
            for (uint i = 1; lane == 0 && i < LANES; i++)                                                                         \
                s += row_of[i];                                                                                                   \
            if (lane == 0 && row < n_rows && t0 + t < n_tokens)                                                                   \
                out[out_at + (size_t)(t0 + t) * n_rows + row] = s + rest[t];                                                      \
        }                                                                                                                         \
    }
#endif
PRODUCT(product_1, 1)
PRODUCT(product_4, 4)

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

/* nn_ffn_act(g + its bias, u + its bias) of neuron i; 0 where |act(gate, 1)| is below its threshold, nn_silence. present: bit 0 gates'
 * biases, bit 1 ups', bit 2 thresholds; f32[n] in buffers of their own. */
#define HIDDEN uint act, uint present, bytes gate_bias, ulong gate_at, bytes up_bias, ulong up_at, bytes silence, ulong silence_at
#define HIDDEN_ARGS act, present, gate_bias, gate_at, up_bias, up_at, silence, silence_at
static float hidden(float g, float u, uint i, HIDDEN)
{
    if (present & 1)
        g += *((global const float *)(gate_bias + gate_at) + i);
    if (present & 2)
        u += *((global const float *)(up_bias + up_at) + i);
    float h = activation(g, u, act);
    if (present & 4 && fabs(activation(g, 1, act)) < *((global const float *)(silence + silence_at) + i))
        h = 0;
    return h;
}

/* out[i] = hidden(<row i of Gate, x>, <row i of Up, x>) of one token: a launch in place of three, with the bits of product_1 and activate.
 * Rows are whole, in groups. */
#define ROWS_OF(m) bytes m, ulong m##_at, ulong m##_stride, uint m##_group, ulong m##_group_stride
#define ROW_OF(m, r) (m + m##_at + (r) / m##_group * m##_group_stride + (r) % m##_group * m##_stride)
#define REST_OF(sum, row_of)                                                                                                     \
    for (uint i = n_cols / 32 * 32; i < n_cols; i++)                                                                             \
        sum += weight(row_of, i) * x[x_at + i]
#if LANES == 1
kernel void hidden_1(ROWS_OF(gates), ROWS_OF(ups), global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols,
                     HIDDEN, local float *shared)
{
    uint row = get_global_id(0);
    if (row >= n_rows)
        return;
    bytes p = ROW_OF(gates, row), q = ROW_OF(ups, row);
    float16 g = (float16)(0), u = (float16)(0);
    float g_rest = 0, u_rest = 0;
    for (uint b = 0; b < n_cols / 32; b++) {
        float16 lo, hi, v = vload16(0, x + x_at + 32 * b), w = vload16(1, x + x_at + 32 * b);
        weights(p, b, &lo, &hi);
        g = added_to(g, lo * v, hi * w);
        weights(q, b, &lo, &hi);
        u = added_to(u, lo * v, hi * w);
    }
    if (PLAIN) {
        REST_OF(g_rest, p);
        REST_OF(u_rest, q);
    }
    out[out_at + row] = hidden(all_of(g) + g_rest, all_of(u) + u_rest, row, HIDDEN_ARGS);
}
#else
kernel __attribute__((reqd_work_group_size(LANES * ROWS, 1, 1)))
void hidden_1(ROWS_OF(gates), ROWS_OF(ups), global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols,
              HIDDEN, local float *shared)
{
    uint item = get_local_id(0), lane = item % LANES, row = get_group_id(0) * ROWS + item / LANES, at = min(row, n_rows - 1);
    bytes p = ROW_OF(gates, at), q = ROW_OF(ups, at);
    float g = 0, u = 0, g_rest = 0, u_rest = 0;
    for (uint b0 = 0; b0 < n_cols / 32; b0 += LANES) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = item; i < 32 * LANES && 32 * b0 + i < n_cols; i += LANES * ROWS)
            shared[i / 32 * APART + i % 32] = x[x_at + 32 * b0 + i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (b0 + lane < n_cols / 32) {
            float16 lo, hi, lo_2, hi_2;
            local const float *v = shared + lane * APART;
            weights(p, b0 + lane, &lo, &hi);
            weights(q, b0 + lane, &lo_2, &hi_2);
            g = in_turn(in_turn(g, lo, v), hi, v + 16);
            u = in_turn(in_turn(u, lo_2, v), hi_2, v + 16);
        }
    }
    if (PLAIN && lane == 0) {
        REST_OF(g_rest, p);
        REST_OF(u_rest, q);
    }
    local float *gs = shared, *us = shared + LANES * ROWS; /* opencl_queue_local has room for both */
    barrier(CLK_LOCAL_MEM_FENCE);
    gs[item] = g;
    us[item] = u;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 1; lane == 0 && i < LANES; i++) {
        g += gs[item + i];
        u += us[item + i];
    }
    if (lane == 0 && row < n_rows)
        out[out_at + row] = hidden(g + g_rest, u + u_rest, row, HIDDEN_ARGS);
}
#endif

/* Products of many tokens, n_cols % 32 == 0: weights are converted once for MANY_TOKENS of them, and groups of the same rows and other
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
#define MOST_X (MANY_TOKENS + 4) /* floats between two columns of inputs in local memory */
#define STORE8(to, from, apart)                                                                                                  \
    (to)[0] = (from).s0, (to)[apart] = (from).s1, (to)[2 * (apart)] = (from).s2, (to)[3 * (apart)] = (from).s3,                    \
    (to)[4 * (apart)] = (from).s4, (to)[5 * (apart)] = (from).s5, (to)[6 * (apart)] = (from).s6, (to)[7 * (apart)] = (from).s7

/* An item's part of a tile of 32 columns of MANY_TOKENS inputs: from global memory, zeros where IS is false, and into local memory. */
#define CAME (32 * MANY_TOKENS / ITEMS)
#define COME(from, width, column, IS)                                                                                            \
    EACH for (uint i = 0; i < CAME; i++)                                                                                         \
        came[i] = IS ? (from)[(size_t)min(t0 + (item + i * ITEMS) / 32, n_tokens - 1) * (width) + (column) + (item + i * ITEMS) % 32] : 0
#define CAME_TO(to)                                                                                                              \
    EACH for (uint i = 0; i < CAME; i++)                                                                                         \
        (to)[(item + i * ITEMS) % 32 * MOST_X + (item + i * ITEMS) / 32] = came[i]

/* sum[t] += w * x[t], four rows wide, of eight tokens. */
#define ADD_EIGHT(sum, w, xa, xb)                                                                                                \
    sum##0 = PLUS(sum##0, w, (float4)((xa).s0)), sum##1 = PLUS(sum##1, w, (float4)((xa).s1)),                                      \
    sum##2 = PLUS(sum##2, w, (float4)((xa).s2)), sum##3 = PLUS(sum##3, w, (float4)((xa).s3)),                                      \
    sum##4 = PLUS(sum##4, w, (float4)((xb).s0)), sum##5 = PLUS(sum##5, w, (float4)((xb).s1)),                                      \
    sum##6 = PLUS(sum##6, w, (float4)((xb).s2)), sum##7 = PLUS(sum##7, w, (float4)((xb).s3))
#define NO_EIGHT(sum) sum##0 = sum##1 = sum##2 = sum##3 = sum##4 = sum##5 = sum##6 = sum##7 = (float4)(0)
#define SUM_EIGHT(all, part)                                                                                                     \
    all##0 += part##0, all##1 += part##1, all##2 += part##2, all##3 += part##3, all##4 += part##4, all##5 += part##5,              \
    all##6 += part##6, all##7 += part##7

/* out[0..3] = v, as far as there are rows. */
static void store4(global float *out, float4 v, uint row, uint n_rows)
{
    if (row + 3 < n_rows)
        vstore4(v, 0, out);
    else {
        if (row < n_rows)
            out[0] = v.s0;
        if (row + 1 < n_rows)
            out[1] = v.s1;
        if (row + 2 < n_rows)
            out[2] = v.s2;
    }
}
#define STORE_ONE(all, i)                                                                                                        \
    if (t0 + 8 * tokens + i < n_tokens)                                                                                           \
        store4(out + out_at + (size_t)(t0 + 8 * tokens + i) * n + at_row, all##i, at_row, n)
#define STORE_EIGHT(all)                                                                                                         \
    STORE_ONE(all, 0); STORE_ONE(all, 1); STORE_ONE(all, 2); STORE_ONE(all, 3);                                                    \
    STORE_ONE(all, 4); STORE_ONE(all, 5); STORE_ONE(all, 6); STORE_ONE(all, 7)

/* A group has ITEMS rows and MANY_TOKENS tokens, an item four rows and eight tokens of them. A block of 32 columns lies in local memory,
 * converted, an item's own row of it. Blocks come in the order in which product_1's items have them. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void product_many(MATRIX, global const float *x, uint x_at, global float *out, uint out_at, uint n_rows, uint n_cols, uint n_tokens)
{
    local float4 ws4[32 * ITEMS / 4], xs4[32 * MOST_X / 4];
    local float *ws = (local float *)ws4, *xs = (local float *)xs4;
    uint item = get_local_id(0), t0 = get_group_id(0) * MANY_TOKENS, r0 = get_group_id(1) * ITEMS;
    uint mine = item / (MANY_TOKENS / 8), tokens = item % (MANY_TOKENS / 8), n_blocks = n_cols / 32;
    bytes p = ROW_AT(min(r0 + item, n_rows - 1));
    float16 lo, hi;
    float came[CAME];
    float4 whole0, whole1, whole2, whole3, whole4, whole5, whole6, whole7, part0, part1, part2, part3, part4, part5, part6, part7;
    NO_EIGHT(whole);
    NO_EIGHT(part);
    for (uint b = 0, next = 0, lane = 0, more = 1, first = 1; first || more; b = next) {
        if (first) { /* what is used next is on its way while the block before it is multiplied */
            weights(p, 0, &lo, &hi);
            COME(x + x_at, n_cols, 0, 1);
            first = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        STORE8(ws + item, lo.lo, ITEMS);
        STORE8(ws + 8 * ITEMS + item, lo.hi, ITEMS);
        STORE8(ws + 16 * ITEMS + item, hi.lo, ITEMS);
        STORE8(ws + 24 * ITEMS + item, hi.hi, ITEMS);
        CAME_TO(xs);
        barrier(CLK_LOCAL_MEM_FENCE);
        next = b + LANES < n_blocks ? b + LANES : ++lane;
        more = next < n_blocks && lane < LANES;
        if (more) {
            weights(p + next / run_blocks * run_stride, next % run_blocks, &lo, &hi);
            COME(x + x_at, n_cols, 32 * next, 1);
        }
        for (uint k = 0; k < 32; k++) {
            float4 xa = xs4[k * (MOST_X / 4) + 2 * tokens], xb = xs4[k * (MOST_X / 4) + 2 * tokens + 1];
            ADD_EIGHT(part, ws4[k * (ITEMS / 4) + mine], xa, xb);
        }
        if (b + LANES >= n_blocks) {
            SUM_EIGHT(whole, part);
            NO_EIGHT(part);
        }
    }
    uint n = n_rows, at_row = r0 + 4 * mine;
    STORE_EIGHT(whole);
}
#endif

/* part[slice][t][c] = sum over the slice's neurons i, ascending, of h[t][i] * row_i[c]. An item has 32 columns. Rows whose factor is 0 for
 * all of its tokens are not read: adding nothing and adding zero is the same, for finite weights. */
#if LANES == 1
#define TIMES(s, w, v) ((s) + (v) * (w))
#else
#define TIMES(s, w, v) PLUS(s, w, (float16)(v))
#endif
#define TURNED(NAME, TOKENS, COLUMNS_BY, TOKENS_BY)                                                                                \
    kernel void NAME(bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, global const float *h, uint h_at,   \
                     global float *part, uint part_at, uint slice, uint n_rows, uint n_cols, uint n_tokens)                        \
    {                                                                                                                              \
        uint b = get_global_id(COLUMNS_BY), t0 = get_global_id(TOKENS_BY) * TOKENS;                                                \
        uint from = get_global_id(2) * slice, to = min(from + slice, n_rows);                                                      \
        if (b >= (n_cols + 31) / 32)                                                                                               \
            return;                                                                                                                \
        global const float *v[TOKENS];                                                                                             \
        EACH for (uint t = 0; t < TOKENS; t++)                                                                                     \
            v[t] = h + h_at + (size_t)min(t0 + t, n_tokens - 1) * n_rows;                                                          \
        if (32 * b + 32 <= n_cols) {                                                                                               \
            float16 low[TOKENS], high[TOKENS];                                                                                     \
            EACH for (uint t = 0; t < TOKENS; t++)                                                                                 \
                low[t] = high[t] = (float16)(0);                                                                                   \
            for (uint i = from; i < to; i++) {                                                                                     \
                float16 lo, hi;                                                                                                    \
                int any = 0;                                                                                                       \
                EACH for (uint t = 0; t < TOKENS; t++)                                                                             \
                    any |= v[t][i] != 0;                                                                                           \
                if (!any)                                                                                                          \
                    continue;                                                                                                      \
                weights(ROW_AT(i), b, &lo, &hi);                                                                                   \
                EACH for (uint t = 0; t < TOKENS; t++) {                                                                           \
                    low[t] = TIMES(low[t], lo, v[t][i]);                                                                           \
                    high[t] = TIMES(high[t], hi, v[t][i]);                                                                         \
                }                                                                                                                  \
            }                                                                                                                      \
            EACH for (uint t = 0; t < TOKENS; t++)                                                                                 \
                if (t0 + t < n_tokens) {                                                                                           \
                    global float *o = part + part_at + ((size_t)get_global_id(2) * n_tokens + t0 + t) * n_cols + 32 * b;           \
                    vstore16(low[t], 0, o);                                                                                        \
                    vstore16(high[t], 1, o);                                                                                       \
                }                                                                                                                  \
        } else if (PLAIN) {                                                                                                        \
            for (uint c = 32 * b; c < n_cols; c++)                                                                                 \
                for (uint t = 0; t < TOKENS && t0 + t < n_tokens; t++) {                                                           \
                    float s = 0;                                                                                                   \
                    for (uint i = from; i < to; i++)                                                                               \
                        if (v[t][i] != 0)                                                                                          \
                            s += v[t][i] * weight(ROW_AT(i), c);                                                                   \
                    part[part_at + ((size_t)get_global_id(2) * n_tokens + t0 + t) * n_cols + c] = s;                               \
                }                                                                                                                  \
        }                                                                                                                          \
    }
TURNED(turned_4, 4, 0, 1)
#if LANES == 1
TURNED(turned_1, 1, 0, 1)
#else
/* A group's factors lie in local memory, and four rows are waited for together: with one token there is little else to do meanwhile. */
kernel void turned_1(bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, global const float *h, uint h_at,
                     global float *part, uint part_at, uint slice, uint n_rows, uint n_cols, uint n_tokens)
{
    local float factors[32];
    uint b = get_global_id(0), from = get_global_id(2) * slice, to = min(from + slice, n_rows);
    float16 low = (float16)(0), high = (float16)(0);
    global float *o = part + part_at + (size_t)get_global_id(2) * n_cols + 32 * b;
    for (uint i0 = from; i0 < to; i0 += 32) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = get_local_id(0); k < 32; k += get_local_size(0))
            factors[k] = i0 + k < to ? h[h_at + i0 + k] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < 32 && 32 * b + 32 <= n_cols; k += 4) {
            float16 lo[4], hi[4];
            local const float *f = factors + k;
            if (f[0] == 0 && f[1] == 0 && f[2] == 0 && f[3] == 0)
                continue;
            EACH for (uint j = 0; j < 4; j++)
                weights(ROW_AT(min(i0 + k + j, to - 1)), b, &lo[j], &hi[j]);
            EACH for (uint j = 0; j < 4; j++) {
                low = TIMES(low, lo[j], f[j]);
                high = TIMES(high, hi[j], f[j]);
            }
        }
    }
    if (32 * b + 32 <= n_cols) {
        vstore16(low, 0, o);
        vstore16(high, 1, o);
    } else if (PLAIN) {
        for (uint c = 32 * b; c < n_cols; c++) {
            float s = 0;
            for (uint i = from; i < to; i++)
                if (h[h_at + i] != 0)
                    s += h[h_at + i] * weight(ROW_AT(i), c);
            part[part_at + (size_t)get_global_id(2) * n_cols + c] = s;
        }
    }
}
#endif

/* The same for many tokens, n_cols % 32 == 0, and the sum of slices, in the order of sum_slices. */
#if LANES == 1
TURNED(turned_many, MANY_TOKENS, 1, 0)
#else
/* A group has ITEMS columns and MANY_TOKENS tokens, an item four columns and eight tokens of them; ITEMS / 32 blocks of 32 neurons lie in
 * local memory, converted, and begin BLOCK floats apart in rows of NEURON floats, so that stores of neighbours meet no bank twice. */
#define BLOCKS (ITEMS / 32)
#define BLOCK  36
#define NEURON (BLOCKS * BLOCK + 4)
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void turned_many(bytes w, ulong at, ulong row_stride, uint group_rows, ulong group_stride, global const float *h, uint h_at,
                 global float *out, uint out_at, uint slice, uint n_rows, uint n_cols, uint n_tokens)
{
    local float4 ws4[32 * NEURON / 4], hs4[32 * MOST_X / 4];
    local float *hs = (local float *)hs4;
    uint item = get_local_id(0), t0 = get_group_id(0) * MANY_TOKENS, b = get_group_id(1) * BLOCKS + item % BLOCKS;
    uint mine = item / (MANY_TOKENS / 8), tokens = item % (MANY_TOKENS / 8), neuron = item / BLOCKS;
    uint to_at = (neuron * NEURON + item % BLOCKS * BLOCK) / 4, from_at = mine / 8 * (BLOCK / 4) + mine % 8;
    float16 lo = (float16)(0), hi = (float16)(0);
    float came[CAME];
    float4 whole0, whole1, whole2, whole3, whole4, whole5, whole6, whole7, part0, part1, part2, part3, part4, part5, part6, part7;
    NO_EIGHT(whole);
    NO_EIGHT(part);
    for (uint i0 = 0, to = min(slice, n_rows), next_to = to, next = 0, first = 1; first || i0 < n_rows; i0 = next, to = next_to) {
        if (first) {
            if (neuron < to && b < n_cols / 32)
                weights(ROW_AT(neuron), b, &lo, &hi);
            COME(h + h_at, n_rows, 0, ((item + i * ITEMS) % 32 < to));
            first = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ws4[to_at] = lo.lo.lo, ws4[to_at + 1] = lo.lo.hi, ws4[to_at + 2] = lo.hi.lo, ws4[to_at + 3] = lo.hi.hi;
        ws4[to_at + 4] = hi.lo.lo, ws4[to_at + 5] = hi.lo.hi, ws4[to_at + 6] = hi.hi.lo, ws4[to_at + 7] = hi.hi.hi;
        CAME_TO(hs);
        barrier(CLK_LOCAL_MEM_FENCE);
        next = min(i0 + 32, to); /* slices are multiples of 32 but for the last */
        next_to = next == to ? min(to + slice, n_rows) : to;
        if (next < n_rows) {
            lo = hi = (float16)(0);
            if (next + neuron < next_to && b < n_cols / 32)
                weights(ROW_AT(next + neuron), b, &lo, &hi);
            COME(h + h_at, n_rows, next, (next + (item + i * ITEMS) % 32 < next_to));
        }
        for (uint k = 0; k < 32; k++) {
            float4 xa = hs4[k * (MOST_X / 4) + 2 * tokens], xb = hs4[k * (MOST_X / 4) + 2 * tokens + 1];
            ADD_EIGHT(part, ws4[k * (NEURON / 4) + from_at], xa, xb);
        }
        if (next == to) {
            SUM_EIGHT(whole, part);
            NO_EIGHT(part);
        }
    }
    uint n = n_cols, at_row = get_group_id(1) * ITEMS + 4 * mine;
    STORE_EIGHT(whole);
}
#endif

/* out[i] = sum over slices, ascending, of part[slice][i], i < n. */
kernel void sum_slices(global const float *part, uint part_at, uint n_slices, uint n, global float *out, uint out_at)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    float s = 0;
    uint k = 0;
    global const float *p = part + part_at + i;
    for (; k + 16 <= n_slices; k += 16, p += 16 * (size_t)n) { /* read together, added one after another */
        float v[16];
        EACH for (uint j = 0; j < 16; j++)
            v[j] = p[j * (size_t)n];
        EACH for (uint j = 0; j < 16; j++)
            s += v[j];
    }
    for (; k < n_slices; k++, p += n)
        s += p[0];
    out[out_at + i] = s;
}

/* gate[t][i] = hidden(gate[t][i], up[t][i]). */
kernel void activate(global float *gate, global const float *up, uint at, uint n, uint n_tokens, HIDDEN)
{
    uint i = get_global_id(0);
    if (i < n * n_tokens)
        gate[at + i] = hidden(gate[at + i], up[at + i], i % n, HIDDEN_ARGS);
}
