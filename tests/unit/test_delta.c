/* Gated delta nets against their definition in double precision: convolution with its history, unit queries and keys, gates, the matrix
 * state of heads in groups and tiled, gated norms; and that the state makes tokens one sequence. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/ops/delta.h"
#include "common/ops/ops.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { DIM = 12, K_HEADS = 2, V_HEADS = 6, WIDTH = 3, TOKENS = 5, INNER = V_HEADS * DIM, CHANNELS = 2 * K_HEADS * DIM + INNER };

static struct model_hparams shape(int tiled)
{
    return (struct model_hparams){ .full_period = 4, .conv_width = WIDTH, .delta_dim = DIM, .delta_k_heads = K_HEADS,
                                   .delta_v_heads = V_HEADS, .delta_tiled = tiled, .rms_eps = 1e-3f };
}

static float value(int i)
{
    return (float)((i * 7919 + 13) % 101) / 50 - 1;
}

static void sizes(void)
{
    struct model_hparams h = shape(0);
    struct op_need need;
    int place[10];
    h.n_layers = 10, h.n_heads = h.n_kv_heads = 1, h.head_dim = 4;
    CHECK(model_delta_channels(&h) == CHANNELS && model_delta_inner(&h) == INNER);
    CHECK(model_conv_floats(&h) == (WIDTH - 1) * CHANNELS);
    ops_mixer(&h, 0, &need);
    CHECK(need.state == (WIDTH - 1) * CHANNELS + INNER * DIM && need.states == 1 && need.planes == 0);
    CHECK(model_is_recurrent(&h, 0) && !model_is_recurrent(&h, 3) && !model_is_recurrent(&h, 7) && model_is_recurrent(&h, 9));
    ops_most(&h, OPS_ALL, &need);
    CHECK(need.planes == 4 && need.states == 8);
    ops_places(&h, place);
    CHECK(place[3] == 0 && place[7] == 1 && place[2] == 2 && place[4] == 3 && place[9] == 7);
}

static void convolution(void)
{
    const struct model_hparams h = shape(0);
    static float x[TOKENS][CHANNELS], w[CHANNELS * WIDTH], state[(WIDTH - 1) * CHANNELS];
    for (int i = 0; i < CHANNELS * WIDTH; i++)
        w[i] = value(i);
    for (int t = 0; t < TOKENS; t++) {
        for (int c = 0; c < CHANNELS; c++)
            x[t][c] = value(t * CHANNELS + c);
        delta_conv(x[t], state, w, 0, 17, &h);
        delta_conv(x[t], state, w, 17, CHANNELS, &h);
    }
    double worst = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < CHANNELS; c++) {
            double sum = 0;
            for (int i = 0; i < WIDTH && i <= t; i++)
                sum += (double)value((t - i) * CHANNELS + c) * (double)w[c * WIDTH + WIDTH - 1 - i];
            worst = fmax(worst, fabs((double)x[t][c] - sum / (1 + exp(-sum))));
        }
    CHECK_MSG(worst < 1e-6, "%g", worst);
}

static void gates(void)
{
    const struct model_hparams h = shape(0);
    float apart[2][V_HEADS], joined[2 * V_HEADS], dt[V_HEADS], a[V_HEADS], one[2 * V_HEADS], two[2 * V_HEADS];
    for (int i = 0; i < V_HEADS; i++) {
        apart[0][i] = value(i), apart[1][i] = i == 4 ? 30 : value(i + 50), dt[i] = value(i + 9), a[i] = -0.1f * (float)(i + 1);
        int group = i / 3, at = i % 3; /* three value heads to a key head */
        joined[group * 6 + at] = apart[0][i];
        joined[group * 6 + 3 + at] = apart[1][i];
    }
    delta_gates(one, apart[0], apart[1], dt, a, &h);
    delta_gates(two, joined, NULL, dt, a, &h);
    CHECK(!memcmp(one, two, sizeof one));
    for (int i = 0; i < V_HEADS; i++) {
        double x = (double)apart[1][i] + (double)dt[i];
        CHECK(fabs((double)one[i] - exp((double)a[i] * log1p(exp(x)))) < 1e-6);
        CHECK(fabs((double)one[V_HEADS + i] - 1 / (1 + exp(-(double)apart[0][i]))) < 1e-6);
    }
}

/* What the definition says, of one token: the outer products of whole matrices. */
static void defined(double s[DIM][DIM], const double *q, const double *k, const float *v, double decay, double beta, double *o)
{
    double seen[DIM] = { 0 };
    for (int i = 0; i < DIM; i++)
        for (int j = 0; j < DIM; j++) {
            s[i][j] *= decay;
            seen[j] += s[i][j] * k[i];
        }
    for (int j = 0; j < DIM; j++) {
        o[j] = 0;
        for (int i = 0; i < DIM; i++) {
            s[i][j] += beta * k[i] * ((double)v[j] - seen[j]);
            o[j] += s[i][j] * q[i];
        }
    }
}

static void unit(double *out, const float *x, double times)
{
    double sum = 0;
    for (int i = 0; i < DIM; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < DIM; i++)
        out[i] = (double)x[i] / sqrt(sum + 1e-3) * times;
}

static void steps(int tiled)
{
    const struct model_hparams h = shape(tiled);
    static float state[INNER * DIM];
    static double s[V_HEADS][DIM][DIM];
    float x[CHANNELS], g[2 * V_HEADS], o[INNER], z[INNER], w[DIM];
    double worst = 0;
    memset(state, 0, sizeof state);
    memset(s, 0, sizeof s);
    for (int i = 0; i < DIM; i++)
        w[i] = 1 + value(i) / 4;
    for (int t = 0; t < TOKENS; t++) {
        float raw[CHANNELS];
        for (int i = 0; i < CHANNELS; i++)
            raw[i] = x[i] = value(i * 3 + t * 31);
        for (int i = 0; i < V_HEADS; i++)
            g[i] = 0.9f - 0.1f * (float)i, g[V_HEADS + i] = 0.1f + 0.15f * (float)i;
        for (int i = 0; i < INNER; i++)
            z[i] = value(i + t);
        delta_units(x, &h);
        for (int i = 0; i < V_HEADS; i++)
            delta_step(o + i * DIM, state + i * DIM * DIM, x, g, i, &h);
        delta_out(o, z, w, &h);
        for (int i = 0; i < V_HEADS; i++) {
            int of = tiled ? i % K_HEADS : i / (V_HEADS / K_HEADS);
            double q[DIM], k[DIM], want[DIM], squares = 0;
            unit(q, raw + of * DIM, 1 / sqrt(DIM));
            unit(k, raw + (K_HEADS + of) * DIM, 1);
            defined(s[i], q, k, raw + 2 * K_HEADS * DIM + i * DIM, (double)g[i], (double)g[V_HEADS + i], want);
            for (int j = 0; j < DIM; j++)
                squares += want[j] * want[j];
            for (int j = 0; j < DIM; j++) {
                double gate = (double)z[i * DIM + j], y = want[j] / sqrt(squares / DIM + 1e-3) * (double)w[j] * gate / (1 + exp(-gate));
                worst = fmax(worst, fabs((double)o[i * DIM + j] - y));
            }
        }
    }
    CHECK_MSG(worst < 3e-6, "%g", worst);
}

static void gated_heads(void)
{
    float x[4] = { 1, 2, 3, 4 };
    const float queries[8] = { 9, 9, 0, 1, 9, 9, -1, 50 };
    nn_gate_heads(x, queries, 4, 2, 2);
    CHECK(x[0] == 0.5f && fabs((double)x[1] - 2 / (1 + exp(-1))) < 1e-6 && fabs((double)x[2] - 3 / (1 + exp(1))) < 1e-6 && x[3] == 4);
    const float gates[4] = { 50, 0, 0, 50 };
    nn_gate_heads(x, gates, 2, 2, 2);
    CHECK(x[0] == 0.5f && fabs((double)x[1] - 1 / (1 + exp(-1))) < 1e-6 && fabs((double)x[2] - 1.5 / (1 + exp(1))) < 1e-6 && x[3] == 4);
}

int main(void)
{
    sizes();
    kernels_init(0);
    convolution();
    gates();
    steps(0);
    kernels_init(cpu_detect());
    steps(1);
    gated_heads();
    return test_done();
}
