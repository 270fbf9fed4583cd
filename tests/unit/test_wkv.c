/* Time mixing of RWKV-7, and of RWKV-6, against its definition in double precision:
 * token shift, decays, rates and the mix of values, the matrix of a head
 * over several tokens, norm, bonus and gate. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/ops/ops.h"
#include "common/ops/wkv.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { DIM = 20, HEADS = 3, D = DIM * HEADS, TOKENS = 9 };

static const struct model_hparams h = { .n_layers = 2, .d_model = D, .n_heads = HEADS, .n_kv_heads = HEADS, .head_dim = DIM,
                                        .wkv_dim = DIM, .decay_rank = 8, .rate_rank = 16, .value_rank = 4, .gate_rank = 12,
                                        .layer_norm = 1, .rms_eps = 1e-5f };

static const struct model_hparams h6 = { .n_layers = 2, .d_model = D, .n_heads = HEADS, .n_kv_heads = HEADS, .head_dim = DIM,
                                         .wkv_dim = DIM, .decay_rank = 8, .mix_rank = 6, .halve_period = 2, .layer_norm = 1,
                                         .rms_eps = 1e-5f };

static float value(int i)
{
    unsigned u = (unsigned)i * 2654435761u;
    u ^= u >> 15;
    u *= 2246822519u;
    return (float)(u >> 8 & 0xffff) / 32768.0f - 1;
}

static void fill(float *x, int n, int seed, float mean, float times)
{
    for (int i = 0; i < n; i++)
        x[i] = mean + times * value(i + 1000 * seed);
}

static void sizes(void)
{
    CHECK(model_has_states(&h) && model_is_recurrent(&h, 0) && model_is_recurrent(&h, 1));
    struct op_need need;
    ops_most(&h, OPS_ALL, &need);
    CHECK(need.planes == 0 && need.states == 2 && need.state == 2 * D + D * DIM && need.made == 8 * D + 16);
    ops_most(&h6, OPS_ALL, &need);
    CHECK(need.state == 2 * D + D * DIM && need.made == 8 * D + 5 * 6 + 8);
    CHECK(!model_halves(&h, 1) && !model_halves(&h6, 0) && model_halves(&h6, 1) && !model_halves(&h6, 2));
    CHECK(wkv_place(WKV_A, &h) == 4 && wkv_place(WKV_A, &h6) == -1);
    CHECK(wkv_place(WKV_W, &h6) == 0 && wkv_place(WKV_K, &h6) == 1 && wkv_place(WKV_V, &h6) == 2 &&
          wkv_place(WKV_R, &h6) == 3 && wkv_place(WKV_G, &h6) == 4);
}

static void mix(void)
{
    float x[D], before[D], lerp[D], out[D], none[D], more[D], own[D];
    fill(x, D, 1, 0, 1);
    fill(before, D, 2, 0, 1);
    fill(lerp, D, 3, 0.5f, 0.5f);
    fill(more, D, 4, 0, 1);
    memcpy(own, more, sizeof own);
    wkv_mix(out, x, before, lerp, NULL, &h);
    wkv_mix(none, x, NULL, lerp, NULL, &h);
    wkv_mix(own, x, before, lerp, own, &h6);
    double worst = 0;
    for (int i = 0; i < D; i++) {
        double l = (double)lerp[i];
        worst = fmax(worst, fabs((double)out[i] - ((double)x[i] * (1 - l) + (double)before[i] * l)));
        worst = fmax(worst, fabs((double)none[i] - (double)x[i] * (1 - l)));
        l += (double)more[i];
        worst = fmax(worst, fabs((double)own[i] - ((double)x[i] * (1 - l) + (double)before[i] * l)));
    }
    CHECK_MSG(worst < 1e-6, "%g", worst);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void low(void)
{
    float x[3][4], raw[4] = { -2, -0.5f, 0, 3 };
    static const enum wkv_input which[3] = { WKV_W, WKV_G, WKV_A };
    for (int k = 0; k < 3; k++) {
        memcpy(x[k], raw, sizeof raw);
        wkv_low(x[k], 4, which[k]);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(fabs((double)x[0][i] - tanh((double)raw[i])) < 1e-6 && fabs((double)x[1][i] - sigmoid((double)raw[i])) < 1e-6);
        CHECK(!memcmp(x[2], raw, sizeof raw));
    }
}

static void gates(int is_first)
{
    float w[D], a[D], v[D], first[D], mixed[D], was[3][D], decay[D], rate[D], mean[D];
    double worst = 0;
    fill(w, D, 1, 0, 2), fill(a, D, 2, 0, 2), fill(v, D, 3, 0, 1), fill(first, D, 4, 0, 1), fill(mixed, D, 5, 0, 2);
    fill(decay, D, 6, -2, 1), fill(rate, D, 7, 0, 1), fill(mean, D, 8, 0, 1);
    memcpy(was[0], w, sizeof w), memcpy(was[1], a, sizeof a), memcpy(was[2], v, sizeof v);
    const struct wkv_weights weights = { .decay = decay, .rate = rate, .value = is_first ? NULL : mean };
    const struct wkv_token t = { .v = v, .w = w, .a = a };
    float before = first[5];
    wkv_gates(&t, first, mixed, &weights, &h);
    for (int i = 0; i < D; i++) {
        worst = fmax(worst, fabs((double)w[i] - exp(-exp(-0.5) * sigmoid((double)was[0][i] + (double)decay[i]))));
        worst = fmax(worst, fabs((double)a[i] - sigmoid((double)was[1][i] + (double)rate[i])));
        double s = sigmoid((double)mixed[i] + (double)mean[i]), want = (1 - s) * (double)was[2][i] + s * (double)first[i];
        worst = fmax(worst, fabs((double)v[i] - (is_first ? (double)was[2][i] : want)));
    }
    CHECK_MSG(worst < 1e-6, "%g", worst);
    CHECK(is_first ? !memcmp(first, v, sizeof v) : first[5] >= before && first[5] <= before);
}

/* What the definition says of one token and head: S[value][key] = S (diag(w) - u (u a)^T) + v k^T. */
static void defined(double s[DIM][DIM], const float *const in[6], const struct wkv_weights *w, int at, double *o)
{
    double u[DIM], k[DIM], length = 0, bonus = 0, sum = 0, squares = 0;
    for (int j = 0; j < DIM; j++) {
        u[j] = (double)in[1][j] * (double)w->k_k[at + j];
        length += u[j] * u[j];
        k[j] = (double)in[1][j] * (1 + ((double)in[4][j] - 1) * (double)w->k_a[at + j]);
        bonus += (double)in[0][j] * k[j] * (double)w->r_k[at + j];
    }
    for (int i = 0; i < DIM; i++) {
        double seen = 0;
        for (int j = 0; j < DIM; j++)
            seen += s[i][j] * u[j] / sqrt(length);
        o[i] = 0;
        for (int j = 0; j < DIM; j++) {
            s[i][j] = s[i][j] * (double)in[3][j] - seen * u[j] / sqrt(length) * (double)in[4][j] + (double)in[2][i] * k[j];
            o[i] += s[i][j] * (double)in[0][j];
        }
        sum += o[i];
    }
    for (int i = 0; i < DIM; i++)
        squares += (o[i] - sum / DIM) * (o[i] - sum / DIM);
    for (int i = 0; i < DIM; i++) {
        double normed = (o[i] - sum / DIM) / sqrt(squares / DIM + 64e-5) * (double)w->norm[at + i] + (double)w->norm_bias[at + i];
        o[i] = (normed + (double)in[2][i] * bonus) * (double)in[5][i];
    }
}

static void heads(void)
{
    static float state[D * DIM];
    static double s[HEADS][DIM][DIM];
    float r[D], k[D], v[D], w[D], a[D], g[D], o[D], k_k[D], k_a[D], r_k[D], norm[D], bias[D], raw[D];
    double worst = 0;
    memset(state, 0, sizeof state);
    memset(s, 0, sizeof s);
    fill(k_k, D, 11, 0.85f, 0.1f), fill(k_a, D, 12, 1, 0.1f), fill(r_k, D, 13, 0, 0.3f);
    fill(norm, D, 14, 1, 0.2f), fill(bias, D, 15, 0, 0.2f);
    const struct wkv_weights weights = { .k_k = k_k, .k_a = k_a, .r_k = r_k, .norm = norm, .norm_bias = bias };
    for (int t = 0; t < TOKENS; t++) {
        fill(r, D, 20 + 7 * t, 0, 1), fill(k, D, 21 + 7 * t, 0, 1), fill(v, D, 22 + 7 * t, 0, 1), fill(g, D, 25 + 7 * t, 0.5f, 0.5f);
        fill(w, D, 23 + 7 * t, 0.8f, 0.15f), fill(a, D, 24 + 7 * t, 0.5f, 0.4f);
        memcpy(raw, k, sizeof raw);
        const struct wkv_token token = { r, k, v, w, a, g };
        for (int i = 0; i < HEADS; i++) {
            const int at = i * DIM;
            const float *const in[6] = { r + at, raw + at, v + at, w + at, a + at, g + at };
            double want[DIM];
            wkv_head(o + at, state + at * DIM, &token, &weights, i, &h);
            defined(s[i], in, &weights, at, want);
            for (int j = 0; j < DIM; j++)
                worst = fmax(worst, fabs((double)o[at + j] - want[j]));
        }
    }
    CHECK_MSG(worst < 3e-5, "%g", worst);
}

static void gates_6(void)
{
    float w[D], g[D], v[D], was[3][D], decay[D], out[D];
    double worst = 0;
    fill(w, D, 1, 0, 2), fill(g, D, 2, 0, 3), fill(v, D, 3, 0, 1), fill(decay, D, 4, -2, 1), fill(out, D, 5, 0, 2);
    memcpy(was[0], w, sizeof w), memcpy(was[1], g, sizeof g), memcpy(was[2], out, sizeof out);
    const struct wkv_weights weights = { .decay = decay };
    const struct wkv_token t = { .v = v, .w = w, .g = g };
    wkv_gates(&t, NULL, NULL, &weights, &h6);
    wkv_receive(out, v, D);
    for (int i = 0; i < D; i++) {
        worst = fmax(worst, fabs((double)w[i] - exp(-exp((double)was[0][i] + (double)decay[i]))));
        worst = fmax(worst, fabs((double)g[i] - (double)was[1][i] * sigmoid((double)was[1][i])));
        worst = fmax(worst, fabs((double)out[i] - (double)was[2][i] * sigmoid((double)v[i])));
    }
    CHECK_MSG(worst < 1e-6, "%g", worst);
}

/* o = (S + u k v^T)^T r, S = diag(w) S + k v^T, S[key][value]. */
static void defined_6(double s[DIM][DIM], const struct wkv_token *t, const struct wkv_weights *w, int at, double *o)
{
    double sum = 0, squares = 0;
    for (int j = 0; j < DIM; j++) {
        o[j] = 0;
        for (int i = 0; i < DIM; i++) {
            double kv = (double)t->k[at + i] * (double)t->v[at + j];
            o[j] += (double)t->r[at + i] * (s[i][j] + (double)w->r_k[at + i] * kv);
            s[i][j] = s[i][j] * (double)t->w[at + i] + kv;
        }
        sum += o[j];
    }
    for (int j = 0; j < DIM; j++)
        squares += (o[j] - sum / DIM) * (o[j] - sum / DIM);
    for (int j = 0; j < DIM; j++)
        o[j] = ((o[j] - sum / DIM) / sqrt(squares / DIM + 64e-5) * (double)w->norm[at + j] + (double)w->norm_bias[at + j]) *
               (double)t->g[at + j];
}

static void heads_6(void)
{
    static float state[D * DIM];
    static double s[HEADS][DIM][DIM];
    float r[D], k[D], v[D], w[D], g[D], o[D], bonus[D], norm[D], bias[D];
    double worst = 0;
    memset(state, 0, sizeof state);
    memset(s, 0, sizeof s);
    fill(bonus, D, 13, 0, 0.5f), fill(norm, D, 14, 1, 0.2f), fill(bias, D, 15, 0, 0.2f);
    const struct wkv_weights weights = { .r_k = bonus, .norm = norm, .norm_bias = bias };
    for (int t = 0; t < TOKENS; t++) {
        fill(r, D, 20 + 7 * t, 0, 1), fill(k, D, 21 + 7 * t, 0, 1), fill(v, D, 22 + 7 * t, 0, 1), fill(g, D, 25 + 7 * t, 0.5f, 0.5f);
        fill(w, D, 23 + 7 * t, 0.8f, 0.15f);
        const struct wkv_token token = { .r = r, .k = k, .v = v, .w = w, .g = g };
        for (int i = 0; i < HEADS; i++) {
            const int at = i * DIM;
            double want[DIM];
            wkv_head(o + at, state + at * DIM, &token, &weights, i, &h6);
            defined_6(s[i], &token, &weights, at, want);
            for (int j = 0; j < DIM; j++)
                worst = fmax(worst, fabs((double)o[at + j] - want[j]));
        }
    }
    CHECK_MSG(worst < 3e-5, "%g", worst);
}

/* Keys of zeros have no direction, and change nothing but by decay. */
static void no_key(void)
{
    float zero[D] = { 0 }, one[D], state[DIM * DIM], o[DIM], k[D] = { 0 };
    for (int i = 0; i < D; i++)
        one[i] = 1;
    for (int i = 0; i < DIM * DIM; i++)
        state[i] = 2;
    float half[D];
    for (int i = 0; i < D; i++)
        half[i] = 0.5f;
    const struct wkv_weights weights = { .k_k = one, .k_a = one, .r_k = one, .norm = one, .norm_bias = zero };
    const struct wkv_token token = { one, k, one, half, half, one };
    wkv_head(o, state, &token, &weights, 0, &h);
    int ok = 1;
    for (int i = 0; i < DIM * DIM; i++)
        ok &= state[i] >= 1 && state[i] <= 1;
    for (int i = 0; i < DIM; i++)
        ok &= fabsf(o[i]) < 1e-3f;
    CHECK(ok);
}

int main(void)
{
    sizes();
    kernels_init(0);
    mix();
    low();
    gates(0);
    gates(1);
    gates_6();
    heads();
    heads_6();
    kernels_init(cpu_detect());
    heads();
    heads_6();
    no_key();
    return test_done();
}
