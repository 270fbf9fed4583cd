/* Mamba2 against its definition in double precision: convolution with bias and history, steps through a softplus, states of heads in
 * groups, gates before norms of groups; and that the state makes tokens one sequence. */
#include "common/ops/ops.h"
#include "common/ops/ssm.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { INNER = 24, STATE = 11, HEADS = 6, GROUPS = 2, WIDTH = 4, TOKENS = 9, DIM = INNER / HEADS, CHANNELS = INNER + 2 * GROUPS * STATE,
       ROWS = INNER + CHANNELS + HEADS };

static const struct model_hparams h = { .n_layers = 2, .d_model = 12, .n_heads = 1, .n_kv_heads = 1, .head_dim = 4, .blocks = "ma",
                                        .conv_width = WIDTH, .ssm_inner = INNER, .ssm_state = STATE, .ssm_heads = HEADS,
                                        .ssm_groups = GROUPS, .rms_eps = 1e-3f };

static float value(int i)
{
    return (float)((i * 7919 + 13) % 101) / 50 - 1;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static float w[CHANNELS * WIDTH], bias[CHANNELS], dt[HEADS], a[HEADS], d[HEADS], norm[INNER];

/* Output i of token t, before gate and norm: the sum over all tokens up to it. */
static double output(double x[TOKENS][CHANNELS], double steps[TOKENS][HEADS], int t, int i)
{
    int head = i / DIM, group = head / (HEADS / GROUPS);
    double sum = x[t][i] * (double)d[head], decay = 0;
    for (int s = t; s >= 0; s--) {
        double dot = 0;
        for (int k = 0; k < STATE; k++)
            dot += x[s][INNER + group * STATE + k] * x[t][INNER + (GROUPS + group) * STATE + k];
        sum += exp(decay) * steps[s][head] * x[s][i] * dot;
        decay += steps[s][head] * (double)a[head];
    }
    return sum;
}

static double wanted(double x[TOKENS][CHANNELS], double steps[TOKENS][HEADS], int t, int i)
{
    int part = INNER / GROUPS, first = i / part * part;
    double sum = 0;
    for (int k = first; k < first + part; k++)
        sum += pow(output(x, steps, t, k) * silu((double)value(t * ROWS + k)), 2);
    return output(x, steps, t, i) * silu((double)value(t * ROWS + i)) / sqrt(sum / part + (double)h.rms_eps) * (double)norm[i];
}

int main(void)
{
    static float made[ROWS], y[INNER], state[(WIDTH - 1) * CHANNELS + INNER * STATE];
    static double x[TOKENS][CHANNELS], steps[TOKENS][HEADS];
    const struct ssm_weights weights = { dt, a, d };
    struct op_need need;
    double worst = 0;
    for (int i = 0; i < CHANNELS * WIDTH; i++)
        w[i] = value(3 * i + 1);
    for (int i = 0; i < CHANNELS; i++)
        bias[i] = value(5 * i + 2) / 2;
    for (int i = 0; i < INNER; i++)
        norm[i] = 1 + value(i) / 3;
    for (int i = 0; i < HEADS; i++)
        dt[i] = i ? value(i) : 25, a[i] = -0.1f - 0.2f * (float)i, d[i] = value(i + 40);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < ROWS; i++)
            made[i] = value(t * ROWS + i);
        for (int c = 0; c < CHANNELS; c++) {
            double sum = (double)bias[c];
            for (int i = 0; i < WIDTH && i <= t; i++)
                sum += (double)value((t - i) * ROWS + INNER + c) * (double)w[c * WIDTH + WIDTH - 1 - i];
            x[t][c] = silu(sum);
        }
        for (int i = 0; i < HEADS; i++)
            steps[t][i] = log1p(exp((double)value(t * ROWS + INNER + CHANNELS + i) + (double)dt[i]));
        ssm_conv(made + INNER, state, w, bias, 0, 13, &h);
        ssm_conv(made + INNER, state, w, bias, 13, CHANNELS, &h);
        for (int i = 0; i < HEADS; i++)
            ssm_head(y + i * DIM, state + (WIDTH - 1) * CHANNELS + i * DIM * STATE, made + INNER, made + INNER + CHANNELS, &weights, i, &h);
        ssm_out(y, made, norm, &h);
        for (int i = 0; i < INNER; i++)
            worst = fmax(worst, fabs(wanted(x, steps, t, i) - (double)y[i]));
    }
    CHECK_MSG(worst < 2e-5, "%g", worst);
    CHECK(model_ssm_channels(&h) == CHANNELS && model_ssm_rows(&h) == ROWS && model_is_recurrent(&h, 0) && !model_is_recurrent(&h, 1));
    ops_mixer(&h, 0, &need);
    CHECK(need.state == (WIDTH - 1) * CHANNELS + INNER * STATE && need.states == 1 && need.planes == 0 && need.made == ROWS + INNER);
    return test_done();
}
