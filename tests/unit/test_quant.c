/* Element types: sizes, conversions against arithmetic that shares no code with them. */
#include "common/base/bytes.h"
#include "common/kernels/quant.h"
#include "common/kernels/quant_grid.h"
#include "tests/test.h"
#include "tests/unit/quant_vectors.h"

#include <math.h>
#include <stdlib.h>

static double half_value(unsigned h)
{
    int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static int half_is_nan(unsigned h)
{
    return (h & 0x7fff) > 0x7c00;
}

/* Every half, exactly; and back again to the same bits. */
static void f16_exhaustive(void)
{
    int bad_value = 0, bad_back = 0, bad_special = 0;
    for (unsigned h = 0; h < 65536; h++) {
        float f = quant_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00) {
            bad_value += (double)f != half_value(h) || !signbit(f) != !(h & 0x8000);
            bad_back += quant_f32_to_f16(f) != h;
        } else if (half_is_nan(h)) {
            bad_special += !isnan(f) || quant_f32_to_f16(f) != (h | 0x200);
        } else {
            bad_special += !isinf(f) || quant_f32_to_f16(f) != h;
        }
    }
    CHECK(bad_value == 0);
    CHECK(bad_back == 0);
    CHECK(bad_special == 0);
}

/* The midpoint of two neighbours goes to the even one; a hair to either side, to that side. */
static void f16_rounding(void)
{
    int bad = 0;
    for (unsigned h = 0; h < 0x7bff; h++) {
        float mid = (float)((half_value(h) + half_value(h + 1)) / 2);
        unsigned even = h & 1 ? h + 1 : h;
        bad += quant_f32_to_f16(mid) != even;
        bad += quant_f32_to_f16(nextafterf(mid, 0)) != h;
        bad += quant_f32_to_f16(nextafterf(mid, INFINITY)) != h + 1;
        bad += quant_f32_to_f16(-mid) != (even | 0x8000);
    }
    CHECK(bad == 0);
    CHECK(quant_f32_to_f16(65504.0f) == 0x7bff && quant_f32_to_f16(65519.996f) == 0x7bff);
    CHECK(quant_f32_to_f16(65520.0f) == 0x7c00 && quant_f32_to_f16(-1e30f) == 0xfc00);
    CHECK(quant_f32_to_f16(0x1p-25f) == 0 && quant_f32_to_f16(1e-45f) == 0);
    CHECK(quant_f32_to_f16(-0.0f) == 0x8000);
}

static void bf16(void)
{
    int bad = 0;
    for (unsigned h = 0; h < 65536; h++) {
        float f = quant_bf16_to_f32((uint16_t)h);
        if (!isnan(f))
            bad += quant_f32_to_bf16(f) != h;
        else
            bad += !isnan(quant_bf16_to_f32(quant_f32_to_bf16(f)));
    }
    CHECK(bad == 0);
    CHECK(quant_f32_to_bf16(0x1.01p0f) == 0x3f80 && quant_f32_to_bf16(0x1.03p0f) == 0x3f82);
    CHECK(quant_f32_to_bf16(0x1.010002p0f) == 0x3f81);
}

static void sizes(void)
{
    CHECK(quant_row_bytes(QUANT_F32, 7) == 28 && quant_row_bytes(QUANT_BF16, 7) == 14);
    CHECK(quant_row_bytes(QUANT_Q4_0, 4096) == 2304 && quant_row_bytes(QUANT_Q8_0, 4096) == 4352);
    CHECK(quant_row_bytes(QUANT_Q6_K, 256) == 210 && quant_row_bytes(QUANT_Q4_K, 512) == 288);
    CHECK(quant_row_bytes(QUANT_Q4_0, 33) == 0 && quant_row_bytes(QUANT_Q4_K, 32) == 0);
    CHECK(quant_row_bytes(4, 32) == 0 && quant_row_bytes(4000000000u, 32) == 0);
    CHECK(quant_row_bytes(QUANT_F32, UINT64_MAX) == 0 && quant_row_bytes(QUANT_Q8_0, UINT64_MAX - 31) == 0);
    CHECK(quant_by_name("q8_0") == QUANT_Q8_0 && quant_by_name("BF16") == QUANT_BF16);
    CHECK(quant_by_name("q9_0") == -1 && quant_by_name("") == -1);
    CHECK(quant_traits(4) == NULL && quant_traits(QUANT_LIMIT) == NULL && quant_traits(UINT32_MAX) == NULL);
    CHECK(quant_traits(QUANT_TQ1_0) && !quant_traits(QUANT_TQ1_0)->dequant);
}

/* Hand-made blocks: the element order and the offset. */
static void layout(void)
{
    uint8_t q4[18] = { 0 }, q8[34] = { 0 };
    float out[32];
    bytes_put16(q4, 0x3800); /* 0.5 */
    q4[2] = 0xf0;            /* element 0 is 0 - 8, element 16 is 15 - 8 */
    q4[17] = 0x89;           /* element 15 is 9 - 8, element 31 is 8 - 8 */
    quant_traits(QUANT_Q4_0)->dequant(out, q4, 32);
    CHECK(out[0] == -4 && out[16] == 3.5f && out[15] == 0.5f && out[31] == 0 && out[1] == -4);
    bytes_put16(q8, 0xc000); /* -2 */
    q8[2] = 0x80;
    q8[33] = 127;
    quant_traits(QUANT_Q8_0)->dequant(out, q8, 32);
    CHECK(out[0] == 256 && out[31] == -254 && out[1] == 0);
}

/* Known values: d = -8 / -8 = 1, so the block is what it was. */
static void exact_blocks(void)
{
    float in[64], out[64];
    uint8_t buf[256];
    int bad = 0;
    for (int i = 0; i < 32; i++) {
        in[i] = (float)(i % 16 - 8);
        in[32 + i] = 0;
    }
    quant_traits(QUANT_Q4_0)->quant(buf, in, 64);
    quant_traits(QUANT_Q4_0)->dequant(out, buf, 64);
    for (int i = 0; i < 64; i++)
        bad += in[i] != out[i];
    CHECK(bad == 0);
    CHECK(bytes_le16(buf) == 0x3c00 && buf[2] == 0x00 && buf[3] == 0x11);
    for (int i = 0; i < 32; i++)
        in[i] = (float)(i * 8 - 127) + (i == 31 ? 6 : 0); /* -127 .. 127, d = 1 */
    quant_traits(QUANT_Q8_0)->quant(buf, in, 64);
    quant_traits(QUANT_Q8_0)->dequant(out, buf, 64);
    CHECK(!memcmp(in, out, sizeof in));
}

/* Error bounds per block: half a step, plus the scale's own F16 rounding; Q4_0 clips one step end. */
static void error_bounds(void)
{
    float in[32 * 64], out[32 * 64];
    uint8_t buf[34 * 64];
    int bad8 = 0, bad4 = 0;
    srand(1);
    for (int i = 0; i < 32 * 64; i++)
        in[i] = (float)((double)rand() / RAND_MAX * 2 - 1) * ldexpf(1, i / 32 % 12 - 6);
    quant_traits(QUANT_Q8_0)->quant(buf, in, 32 * 64);
    quant_traits(QUANT_Q8_0)->dequant(out, buf, 32 * 64);
    float out4[32 * 64];
    quant_traits(QUANT_Q4_0)->quant(buf, in, 32 * 64);
    quant_traits(QUANT_Q4_0)->dequant(out4, buf, 32 * 64);
    for (int b = 0; b < 64; b++) {
        float top = 0;
        for (int j = 0; j < 32; j++)
            top = fmaxf(top, fabsf(in[32 * b + j]));
        for (int j = 0; j < 32; j++) {
            bad8 += fabsf(in[32 * b + j] - out[32 * b + j]) > top * (1 / 254.0f + 1 / 2000.0f);
            bad4 += fabsf(in[32 * b + j] - out4[32 * b + j]) > top * (1 / 8.0f + 1 / 2000.0f);
        }
    }
    CHECK(bad8 == 0);
    CHECK(bad4 == 0);
}

/* No value may make the conversions undefined (this matters under UBSan). */
static void odd_values(void)
{
    float in[32] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f, 1e-45f };
    uint8_t buf[34];
    quant_traits(QUANT_Q8_0)->quant(buf, in, 32);
    quant_traits(QUANT_Q4_0)->quant(buf, in, 32);
    float tiny[32] = { 1e-45f, -1e-45f }, out[32];
    quant_traits(QUANT_Q8_0)->quant(buf, tiny, 32);
    quant_traits(QUANT_Q8_0)->dequant(out, buf, 32);
    CHECK(out[0] == 0 && out[1] == 0);
}

/* To the bit: no product of scales and integers is rounded. */
static void vectors(void)
{
    for (size_t i = 0; i < sizeof quant_vectors / sizeof *quant_vectors; i++) {
        const struct quant_vector *v = &quant_vectors[i];
        const struct quant_traits *t = quant_traits(v->type);
        float out[256];
        t->dequant(out, v->block, (size_t)v->n);
        CHECK_MSG(t->block_elems == v->n && !memcmp(out, v->weights, (size_t)v->n * sizeof *out), "%s read", t->name);
    }
}

/* A block's elements set anew read back as the grid says, whatever they were, with the scales as they were. */
static void grids(void)
{
    float in[256], out[256];
    for (int i = 0; i < 256; i++)
        in[i] = (float)((i * 37 + i / 16 * 11) % 101 - 50) / 16;
    for (uint32_t type = 0; type < QUANT_LIMIT; type++) {
        const struct quant_traits *t = quant_traits(type);
        const struct quant_grid_type *of = quant_grid_type(type);
        struct quant_grid g;
        uint8_t block[256];
        int q[256], bad = 0, n = t ? t->block_elems : 0;
        if (!t || !of)
            continue;
        t->quant_by(block, in, NULL, (size_t)n);
        of->read(&g, block);
        t->dequant(out, block, (size_t)n);
        for (int i = 0; i < n; i++) { /* what is there is in the grid */
            float at = (out[i] - g.base[i]) / g.step[i];
            bad += !(fabsf(at - roundf(at)) < 1e-3f) || at < -0.01f || at > (float)g.top + 0.01f;
            q[i] = (i * 5 + i / 32) % (g.top + 1);
        }
        of->write(block, q);
        t->dequant(out, block, (size_t)n);
        for (int i = 0; i < n; i++)
            bad += !(fabsf(out[i] - (g.base[i] + g.step[i] * (float)q[i])) < 1e-5f);
        CHECK_MSG(!bad, "%s: %d elements", t->name, bad);
    }
    CHECK(quant_grid_type(QUANT_Q3_K) && quant_grid_type(QUANT_Q4_0) && !quant_grid_type(QUANT_IQ4_NL) && !quant_grid_type(QUANT_LIMIT));
}

/* Types of one bit and of two, by hand: bits from the lowest on, 0 of one bit is -d, of two -d, 0, d, 2d. */
static void bits(void)
{
    uint8_t one[18] = { 0x00, 0x3e, 0x05 }, two[18] = { 0x00, 0xb8, 0xe4 }, wide[2 * 34] = { 0x00, 0xb8, 0xe4 }; /* d = 1.5, -0.5 */
    float w[256];
    one[17] = 0x80, two[17] = 0x1b, wide[33] = 0x1b, wide[34] = 0x00, wide[35] = 0x3e, wide[67] = 0xff;
    quant_traits(QUANT_Q1_0)->dequant(w, one, 128);
    CHECK(w[0] == 1.5f && w[1] == -1.5f && w[2] == 1.5f && w[3] == -1.5f && w[8] == -1.5f && w[126] == -1.5f && w[127] == 1.5f);
    quant_traits(QUANT_Q2_0)->dequant(w, two, 64);
    CHECK(w[0] == 0.5f && w[1] == 0 && w[2] == -0.5f && w[3] == -1 && w[4] == 0.5f);
    CHECK(w[60] == -1 && w[61] == -0.5f && w[62] == 0 && w[63] == 0.5f);
    quant_traits(QUANT_Q2_0_128)->dequant(w, wide, 256);
    CHECK(w[0] == 0.5f && w[3] == -1 && w[64] == 0.5f && w[124] == -1 && w[127] == 0.5f && w[128] == -1.5f && w[255] == 3);
    /* digits 2, 1, 0, 2, 1 are 2 * 81 + 27 + 2 * 3 + 1 = 196 of 243; as a byte 196 * 256 / 243, rounded up, 207 */
    uint8_t three[28] = { [0] = 207, [16] = 207, [25] = 255, [27] = 0x3e };
    quant_traits(QUANT_PTQ1_0)->dequant(w, three, 128);
    CHECK(w[0] == 1.5f && w[16] == 0 && w[32] == -1.5f && w[48] == 1.5f && w[64] == 0 && w[1] == -1.5f && w[17] == -1.5f);
    CHECK(w[80] == 1.5f && w[88] == 0 && w[96] == -1.5f && w[104] == 1.5f && w[112] == 0 && w[81] == -1.5f);
    CHECK(w[120] == -1.5f && w[121] == 1.5f && w[123] == 1.5f && w[125] == 1.5f && w[127] == 1.5f && w[126] == -1.5f);
    CHECK(quant_row_bytes(QUANT_Q1_0, 256) == 36 && quant_row_bytes(QUANT_Q2_0, 64) == 18 && quant_row_bytes(QUANT_Q2_0_128, 64) == 0);
}

/* Errors of 2^17 normal values, as shares of their deviation: at most 2 % more than those of ggml's quantisers (llama.cpp of
 * llama-cpp-python 0.3.36, no importance matrix), which are given here as measured. The blocks of scales that these values
 * make have no outliers; the searches were compared on others too. */
static void quality(void)
{
    static const struct { uint32_t type; double ggml; } known[] = {
        { QUANT_Q4_1, 0.0777 }, { QUANT_Q5_0, 0.0425 }, { QUANT_Q5_1, 0.0378 }, { QUANT_IQ4_NL, 0.0760 }, { QUANT_MXFP4, 0.1137 },
        { QUANT_Q2_K, 0.2973 }, { QUANT_Q3_K, 0.1511 }, { QUANT_Q4_K, 0.0714 }, { QUANT_Q5_K, 0.0361 }, { QUANT_Q6_K, 0.0178 },
        { QUANT_IQ4_XS, 0.0767 },
    };
    enum { N = 1 << 17 };
    static float in[N], out[N];
    static uint8_t buf[N];
    srand(3);
    for (int i = 0; i < N; i++) {
        double a = (rand() + 1.0) / (RAND_MAX + 2.0), b = rand() / (RAND_MAX + 1.0);
        in[i] = (float)(0.02 * sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
    }
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        double error = 0, all = 0;
        quant_traits(known[k].type)->quant(buf, in, N);
        quant_traits(known[k].type)->dequant(out, buf, N);
        for (int i = 0; i < N; i++) {
            error += pow((double)out[i] - (double)in[i], 2);
            all += pow((double)in[i], 2);
        }
        double share = sqrt(error / all);
        CHECK_MSG(share < 1.02 * known[k].ggml && share > 0.8 * known[k].ggml, "%s error %.4f, ggml %.4f",
                  quant_traits(known[k].type)->name, share, known[k].ggml);
    }
}

/* With weights, the weighted error is less than without, and the more so the more they differ; those that are the same for all change
 * little, and a block in which all are 0 is written as without. */
static void weighted(void)
{
    enum { N = 1 << 14 };
    static float in[N], by[N], out[N];
    static uint8_t plain[N * 4], buf[N * 4];
    srand(5);
    for (int i = 0; i < N; i++)
        in[i] = (float)(0.02 * sqrt(-2 * log((rand() + 1.0) / (RAND_MAX + 2.0))) * cos(6.283185307179586 * rand() / (RAND_MAX + 1.0)));
    for (uint32_t type = 0; type < QUANT_LIMIT; type++) {
        const struct quant_traits *t = quant_traits(type);
        double before = 1.05;
        if (!t || !t->quant_by)
            continue;
        t->quant(plain, in, N);
        for (int spread = 0; spread < 3; spread++) {
            double with = 0, without = 0;
            for (int i = 0; i < N; i++)
                by[i] = expf((float)spread * 1.5f * ((float)(rand() % 2001) / 1000 - 1));
            t->quant_by(buf, in, by, N);
            t->dequant(out, buf, N);
            for (int i = 0; i < N; i++)
                with += (double)by[i] * pow((double)out[i] - (double)in[i], 2);
            t->dequant(out, plain, N);
            for (int i = 0; i < N; i++)
                without += (double)by[i] * pow((double)out[i] - (double)in[i], 2);
            CHECK_MSG(with < before * without, "%s, weights over e^%.1f: %.3f of the error without", t->name, 3.0 * spread, with / without);
            before = with / without;
        }
        for (int i = 0; i < N; i++)
            by[i] = i < N / 2 ? 0 : 1e38f;
        t->quant_by(buf, in, by, N);
        t->dequant(out, buf, N);
        double lost = 0, all = 0;
        for (int i = 0; i < N; i++) {
            lost += pow((double)out[i] - (double)in[i], 2);
            all += pow((double)in[i], 2);
        }
        CHECK_MSG(lost < 0.12 * all, "%s, weights of 0 and 1e38: an error of %.3f", t->name, sqrt(lost / all));
    }
}

/* Whatever is written, what is read is finite; zeroes stay zeroes. */
static void always_finite(void)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, -1e-45f, 0, 1, -1 };
    float in[256], out[256], by[256];
    uint8_t buf[256];
    for (uint32_t type = QUANT_Q4_1; type < QUANT_LIMIT; type++) {
        const struct quant_traits *t = quant_traits(type);
        int bad = 0;
        if (!t || !t->quant || t->block_elems == 1 || type == QUANT_Q8_0)
            continue;
        for (int seed = 0; seed < 200; seed++) {
            srand((unsigned)seed);
            for (int i = 0; i < 256; i++)
                in[i] = seed % 2 ? odd[rand() % 10] : odd[seed / 2 % 10];
            t->quant(buf, in, 256);
            t->dequant(out, buf, 256);
            for (int i = 0; i < 256; i++)
                bad += !isfinite(out[i]);
            for (int i = 0; t->quant_by && i < 256; i++)
                by[i] = seed % 3 ? (float)(rand() % 3) : 0;
            if (t->quant_by)
                t->quant_by(buf, in, by, 256);
            t->dequant(out, buf, 256);
            for (int i = 0; i < 256; i++)
                bad += !isfinite(out[i]);
        }
        memset(in, 0, sizeof in);
        t->quant(buf, in, 256);
        t->dequant(out, buf, 256);
        for (int i = 0; i < 256; i++)
            bad += out[i] != 0;
        CHECK_MSG(bad == 0, "%s of odd values is finite", t->name);
    }
}

/* Random blocks of every type: what is found is what gives numbers that are not finite. A new type whose scales are not looked at fails
 * here. */
static void not_finite(void)
{
    static uint8_t buf[70 * 256];
    static float out[70 * 256];
    for (uint32_t type = 0; type < QUANT_LIMIT; type++) {
        const struct quant_traits *t = quant_traits(type);
        int wrong = 0, found = 0, clean = 0;
        if (!t || !t->dequant)
            continue;
        for (int seed = 0; seed < 300; seed++) {
            srand((unsigned)seed);
            size_t n = 1 + (size_t)rand() % 70, first = n, elems = (size_t)t->block_elems;
            for (size_t i = 0; i < n * (size_t)t->block_bytes; i++)
                buf[i] = (uint8_t)rand();
            for (size_t i = 0; type == QUANT_MXFP4 && i < n; i++) /* else small elements of a scale that is too large are finite */
                buf[17 * i] = (uint8_t)(rand() % 60 ? rand() % 253 : 255), buf[17 * i + 1] = 7;
            for (size_t i = 0; i < n; i++) { /* more blocks without than chance gives */
                uint8_t *b = buf + i * (size_t)t->block_bytes;
                t->dequant(out, b, elems);
                for (size_t k = 0; k < elems && rand() % 40; k++)
                    if (!isfinite(out[k])) {
                        memset(b, 0x11, (size_t)t->block_bytes);
                        break;
                    }
            }
            t->dequant(out, buf, n * elems);
            for (size_t i = n * elems; i-- > 0;)
                first = isfinite(out[i]) ? first : i / elems;
            wrong += quant_first_not_finite(type, buf, n) != first;
            found += first < n, clean += first == n;
        }
        CHECK_MSG(wrong == 0 && found > 0 && clean > 0, "%s: %d wrong of %d with and %d without", t->name, wrong, found, clean);
    }
    CHECK(quant_first_not_finite(QUANT_LIMIT, buf, 3) == 3 && quant_first_not_finite(QUANT_TQ1_0, buf, 3) == 3);
}

int main(void)
{
    not_finite();
    vectors();
    bits();
    grids();
    quality();
    weighted();
    always_finite();
    f16_exhaustive();
    f16_rounding();
    bf16();
    sizes();
    layout();
    exact_blocks();
    error_bounds();
    odd_values();
    return test_done();
}
