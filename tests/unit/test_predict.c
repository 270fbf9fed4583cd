/* Scores and decisions of a predictor against the definition, and that cutting the work does not change bits. */
#include "common/base/bytes.h"
#include "common/base/cpu.h"
#include "common/model/predict.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, RANK = 32, FF = 44, TOKENS = 5 };

static float value(int i, int k)
{
    return (float)((i * 37 + k * 11) % 23 - 11) / 11;
}

struct sample {
    uint8_t fc1[RANK * 256], fc2[FF * 256];
    float w1[RANK * D], w2[FF * RANK], bias[FF], sides[FF * PREDICT_TWO_SIDED], x[TOKENS * D];
    struct predict p;
};

static void make(struct sample *s, uint32_t type, int relu, int picks)
{
    float in[D];
    const struct quant_traits *t = quant_traits(type);
    size_t row1 = quant_row_bytes(type, D), row2 = quant_row_bytes(type, RANK);
    struct err e = { 0 };
    for (int r = 0; r < RANK; r++) {
        for (int i = 0; i < D; i++)
            in[i] = value(r, i) / 8;
        uint8_t *at = s->fc1 + r * PREDICT_PICK_BYTES;
        if (picks) {
            memset(s->w1 + r * D, 0, D * sizeof *s->w1);
            s->w1[r * D + (r * 7) % D] = value(r, 1);
            bytes_put32(at, (uint32_t)((r * 7) % D));
            bytes_putf32(at + 4, value(r, 1));
            continue;
        }
        t->quant(s->fc1 + (size_t)r * row1, in, D);
        t->dequant(s->w1 + r * D, s->fc1 + (size_t)r * row1, D);
    }
    for (int n = 0; n < FF; n++) {
        for (int i = 0; i < RANK; i++)
            in[i] = value(n + 5, i);
        t->quant(s->fc2 + (size_t)n * row2, in, RANK);
        t->dequant(s->w2 + n * RANK, s->fc2 + (size_t)n * row2, RANK);
        s->bias[n] = value(n, 3);
        float *to = s->sides + n * PREDICT_TWO_SIDED;
        to[0] = s->bias[n], to[1] = n % 3 ? 0.1f + 0.3f * fabsf(value(n, 5)) : FLT_MAX;
        to[2] = n % 3 == 2 ? to[1] + 0.4f : FLT_MAX;
    }
    for (int i = 0; i < TOKENS * D; i++)
        s->x[i] = value(i, i / D);
    s->p = (struct predict){ .relu = relu,
                             .d_model = D,
                             .rank = RANK,
                             .n_ff = FF,
                             .type1 = picks ? PREDICT_PICK : type,
                             .type2 = type,
                             .fc1 = s->fc1,
                             .fc2 = s->fc2,
                             .bias = s->bias,
                             .threshold = 0.25f };
    CHECK_MSG(predict_init(&s->p, &e) == 0, "%s", e.msg);
}

/* All tokens at once, or token by token with rows and neurons in pieces. */
static void scores(const struct sample *s, int pieces, float *out)
{
    const struct predict *p = &s->p;
    size_t xb = predict_input_bytes(p), hb = predict_hidden_bytes(p);
    uint8_t *x = malloc(TOKENS * xb), *hidden = malloc(TOKENS * hb);
    float h[TOKENS * RANK];
    for (int t = 0; t < TOKENS; t++)
        kernels_act_prepare(x + (size_t)t * xb, p->form1, s->x + t * D, D);
    for (int t = 0; t < TOKENS; t += pieces ? 1 : TOKENS) {
        int n = pieces ? 1 : TOKENS, step = pieces ? 7 : RANK;
        for (int r = 0; r < RANK; r += step)
            predict_hidden(p, r, r + step < RANK ? r + step : RANK, x + (size_t)t * xb, xb, n, h + t * RANK, RANK);
        predict_prepare(p, h + t * RANK, RANK, n, hidden + (size_t)t * hb, hb);
        step = pieces ? 8 : FF;
        for (int i = 0; i < FF; i += step)
            predict_scores(p, i, i + step < FF ? step : FF - i, hidden + (size_t)t * hb, hb, n, out + t * FF + i, FF);
    }
    free(x), free(hidden);
}

/* What a neuron's score is, from that of one side. */
static double sided(const float *side, double s)
{
    return fmax(s, fmin(-s - (double)side[1], s + (double)side[2]));
}

static void check(uint32_t type, int relu, int picks, int two_sided, double tolerance)
{
    static struct sample s;
    float whole[TOKENS * FF], pieces[TOKENS * FF];
    double worst = 0;
    int wrong = 0;
    int below = 0, end = 0; /* scores that fire below the silent interval, and that lie below that again */
    make(&s, type, relu, picks);
    if (two_sided)
        s.p.two_sided = 1, s.p.bias = s.sides;
    scores(&s, 0, whole);
    scores(&s, 1, pieces);
    CHECK(!memcmp(whole, pieces, sizeof whole));
    for (int t = 0; t < TOKENS; t++) {
        double h[RANK];
        uint8_t bits[(FF + 7) / 8];
        for (int r = 0; r < RANK; r++) {
            h[r] = 0;
            for (int i = 0; i < D; i++)
                h[r] += (double)s.w1[r * D + i] * (double)s.x[t * D + i];
            if (relu && h[r] < 0)
                h[r] = 0;
        }
        predict_decide(&s.p, whole + t * FF, FF, bits);
        for (int n = 0; n < FF; n++) {
            double want = (double)s.bias[n];
            for (int r = 0; r < RANK; r++)
                want += (double)s.w2[n * RANK + r] * h[r];
            const float *side = s.sides + n * PREDICT_TWO_SIDED;
            if (two_sided) {
                below += want < 0 && sided(side, want) > 0.25;
                end += want < -(double)side[2];
                want = sided(side, want);
            }
            worst = fmax(worst, fabs(want - (double)whole[t * FF + n]));
            wrong += (bits[n / 8] >> (n % 8) & 1) != (whole[t * FF + n] > 0.25f);
        }
        wrong += bits[FF / 8] >> (FF % 8); /* beyond the last neuron */
    }
    CHECK_MSG(worst <= tolerance, "type %u: off by %g", type, worst);
    CHECK(wrong == 0);
    CHECK_MSG(!two_sided || (below > 0 && end > 0), "%d below, %d beyond", below, end);
}

int main(void)
{
    struct err e = { 0 };
    kernels_init(cpu_detect());
    for (int two_sided = 0; two_sided < 2; two_sided++) {
        check(QUANT_F32, 0, 0, two_sided, 1e-4);
        check(QUANT_F32, 1, 0, two_sided, 1e-4);
        check(QUANT_Q8_0, 0, 0, two_sided, 0.15);
        check(QUANT_Q4_0, 1, 0, two_sided, 0.15);
        check(QUANT_F32, 0, 1, two_sided, 1e-4);
        check(QUANT_F32, 1, 1, two_sided, 1e-4);
        check(QUANT_Q4_0, 0, 1, two_sided, 0.15);
    }
    for (int i = 0; i < PREDICT_INPUTS; i++)
        CHECK(predict_input_by_name(predict_input_name((enum predict_input)i)) == i);
    CHECK(predict_input_by_name("gate") == -1);
    CHECK(predict_bytes(64, 32, 44, QUANT_Q8_0, QUANT_Q4_0, 1) == 32 * 68 + 44 * 18 + 44 * 4);
    CHECK(predict_bytes(64, 32, 44, QUANT_Q8_0, QUANT_Q4_0, predict_numbers(1, 1)) == 32 * 68 + 44 * 18 + 44 * 12);
    struct predict_pieces one, two;
    predict_pieces_of(2048, 64, 36, 0, 14336, 0, 64, 4096, &one);
    predict_pieces_of(2048, 64, 36, 1, 14336, 0, 64, 4096, &two);
    CHECK(two.range == one.range && two.ranges == one.ranges && two.buffer_bytes == one.buffer_bytes + 2 * 4 * one.range * one.ranges);
    CHECK(predict_bytes(64, 33, 44, QUANT_Q8_0, QUANT_Q4_0, 1) == 0); /* no whole number of blocks */
    CHECK(predict_bytes(64, 0, 44, QUANT_F32, QUANT_F32, 1) == 0);
    CHECK(predict_bytes(64, 32, 44, PREDICT_PICK, QUANT_Q4_0, 1) == 32 * 8 + 44 * 18 + 44 * 4);
    CHECK(predict_bytes(64, 32, 44, PREDICT_PICK + 1, QUANT_Q4_0, 1) == 0);
    CHECK(predict_bytes(64, 32, 44, QUANT_Q4_0, PREDICT_PICK, 1) == 0); /* fc2 does not pick */
    uint8_t rows[2 * PREDICT_PICK_BYTES] = { 0 };
    bytes_put32(rows, 63);
    CHECK(predict_check_selected(PREDICT_PICK, rows, 2, 64) && !predict_check_selected(PREDICT_PICK, rows, 2, 63));
    bytes_putf32(rows + PREDICT_PICK_BYTES + 4, INFINITY);
    CHECK(!predict_check_selected(PREDICT_PICK, rows, 2, 64) && predict_check_selected(PREDICT_PICK, rows, 1, 64));
    CHECK(predict_check_selected(QUANT_F32, rows, 2, 1));
    struct predict p = { .d_model = 64, .rank = 20, .n_ff = 8, .type1 = QUANT_F32, .type2 = QUANT_Q4_0 };
    CHECK(predict_init(&p, &e) == ERR_UNSUPPORTED);
    p.type2 = QUANT_TQ1_0;
    CHECK(predict_init(&p, &e) == ERR_UNSUPPORTED);
    return test_done();
}
