/* The network's equations against the same equations in double, on every tier of this machine. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/model/nn_exp.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static unsigned seed = 1;

static float uniform(void)
{
    seed = seed * 1664525 + 1013904223;
    return (float)(seed >> 8) / (1 << 23) - 1;
}

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = uniform();
}

static void rmsnorm(void)
{
    float x[67], w[67], out[67];
    fill(x, 67);
    fill(w, 67);
    double ss = 0;
    int bad = 0;
    for (int i = 0; i < 67; i++)
        ss += (double)x[i] * x[i];
    nn_rmsnorm(out, x, w, 67, 1e-5f);
    for (int i = 0; i < 67; i++)
        bad += fabs(out[i] - (double)w[i] * x[i] / sqrt(ss / 67 + 1e-5)) > 1e-6;
    CHECK(bad == 0);
    nn_rmsnorm(x, x, w, 67, 1e-5f);
    CHECK(!memcmp(x, out, sizeof x));
}

/* Against the definition, where the decision is made by act alone. */
static void silence(void)
{
    static const float edges[] = { 0, -0.0f, 1e-45f, -1e-45f, 1e-38f, 0.2784645f, -1.2784645f, 1, -1, 3, -3, 88, -88, 1e30f, -1e30f,
                                   INFINITY, -INFINITY };
    static const float at[] = { 0, 1e-45f, 1e-6f, 0.05f, 0.2f, 0.2784644f, 0.2784646f, 0.5f, 1, 1e30f, 3.4e38f };
    enum { E = sizeof edges / sizeof *edges, T = sizeof at / sizeof *at, N = 20000 };
    static float gate[N], got[N], t[N];
    static const enum model_act acts[] = { MODEL_ACT_SILU, MODEL_ACT_GELU };
    for (int a = 0; a < 2; a++) {
        int bad = 0, silent = 0;
        for (int i = 0; i < N; i++) {
            gate[i] = i < E * T ? edges[i % E] : 4 * uniform();
            t[i] = i < E * T ? at[i / E] : i % 2 ? 0.3f * fabsf(uniform()) : fabsf(gate[i]) * (0.5f + 0.5f * fabsf(uniform()));
        }
        memcpy(got, gate, sizeof got);
        nn_silence(got, t, N, acts[a]);
        for (int i = 0; i < N; i++) {
            float act, one = 1;
            nn_ffn_act(&act, &gate[i], &one, 1, acts[a]);
            int s = fabsf(act) < t[i];
            silent += s;
            bad += s ? got[i] != 0 : memcmp(&got[i], &gate[i], sizeof got[i]) != 0;
        }
        CHECK_MSG(bad == 0 && silent > N / 4 && silent < N * 3 / 4, "%d wrong, %d silent", bad, silent);
    }
    gate[0] = NAN, t[0] = 1;
    nn_silence(gate, t, 1, MODEL_ACT_SILU);
    CHECK(isnan(gate[0]) && nn_is_open(gate[0], 1));
    CHECK(!nn_is_open(0, 1) && !nn_is_open(-0.0f, 1) && nn_is_open(-1, 1) && !nn_is_open(-1, 0));
}

static void rope(void)
{
    float freqs[4], div[4] = { 1, 2, 4, 8 };
    struct model_hparams p = { .n_rot = 8, .rope_theta = 10000, .rope_scale = 1 };
    nn_rope_freqs(freqs, &p, 0, NULL);
    CHECK(freqs[0] == 1 && fabsf(freqs[1] - 0.1f) < 1e-7f && fabsf(freqs[3] - 1e-3f) < 1e-9f);
    float scaled[4];
    p.rope_scale = 0.5f;
    nn_rope_freqs(scaled, &p, 0, div);
    CHECK(scaled[0] == 0.5f && fabsf(scaled[2] - 0.01f / 8) < 1e-9f);

    for (int style = MODEL_ROPE_NORM; style <= MODEL_ROPE_NEOX; style++) {
        float x[20], y[20]; /* two heads of 10, of which 8 elements turn */
        int bad = 0;
        fill(x, 20);
        memcpy(y, x, sizeof x);
        nn_rope(y, 2, 10, 8, style, freqs, 1, 7);
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 4; i++) {
                int a = 10 * h + (style == MODEL_ROPE_NORM ? 2 * i : i);
                int b = style == MODEL_ROPE_NORM ? a + 1 : a + 4;
                double ang = 7.0 * freqs[i];
                bad += fabs(y[a] - (x[a] * cos(ang) - x[b] * sin(ang))) > 1e-6;
                bad += fabs(y[b] - (x[a] * sin(ang) + x[b] * cos(ang))) > 1e-6;
            }
            bad += y[10 * h + 8] != x[10 * h + 8] || y[10 * h + 9] != x[10 * h + 9];
        }
        CHECK(bad == 0);
        memcpy(y, x, sizeof x);
        nn_rope(y, 2, 10, 8, style, freqs, 1, 0);
        CHECK(!memcmp(x, y, sizeof x));
    }
}

/* Two heads of four: with a bias, each head's norm, or the row's. */
static void heads(void)
{
    struct model_hparams h = { .head_dim = 4, .rms_eps = 1e-6f };
    float x[8], y[8], bias[8], w[8];
    fill(x, 8), fill(bias, 8), fill(w, 8);
    memcpy(y, x, sizeof x);
    nn_heads(y, 2, NULL, NULL, &h);
    CHECK(!memcmp(x, y, sizeof x));
    for (int row = 0; row < 2; row++) {
        int bad = 0, n = row ? 8 : 4;
        h.qk_norm = row ? MODEL_QK_NORM_ROW : MODEL_QK_NORM_HEAD;
        memcpy(y, x, sizeof x);
        nn_heads(y, 2, bias, w, &h);
        for (int i = 0; i < 8; i++) {
            double sum = 0, v = (double)x[i] + (double)bias[i];
            for (int k = i / n * n; k < i / n * n + n; k++)
                sum += ((double)x[k] + (double)bias[k]) * ((double)x[k] + (double)bias[k]);
            bad += fabs(y[i] - v / sqrt(sum / n + 1e-6) * (double)w[i % n]) > 1e-5;
        }
        CHECK(bad == 0);
    }
}

/* Fast pairs keep their frequency, slow ones are scaled. */
static void yarn(void)
{
    const struct model_hparams h = { .n_rot = 32, .rope_theta = 10000, .rope_scale = 0.25f,
                                     .yarn_context = 1024, .yarn_fast = 32, .yarn_slow = 1 };
    float f[16];
    nn_rope_freqs(f, &h, 0, NULL);
    CHECK(f[0] == 1 && fabs(f[15] - 0.25 * pow(10000, -30.0 / 32)) < 1e-9);
    double own = pow(10000, -10.0 / 32); /* between pairs 2 (floor of 2.83) and 9 (8.84 rounded up) */
    CHECK(fabs(f[5] - own * (1 - 0.75 * 3 / 7)) < 1e-6);
    const struct model_hparams hot = { .temperature = 0.1f, .yarn_context = 64 };
    CHECK(nn_query_scale(&h, 200) == 1 && nn_query_scale(&hot, 63) == 1 && fabs(nn_query_scale(&hot, 128) - (1 + 0.1 * log(3))) < 1e-6);
    float x[2] = { 3, 4 }, one = 1;
    nn_rope(x, 1, 2, 2, MODEL_ROPE_NORM, &one, 1.5f, 0);
    CHECK(x[0] == 4.5f && x[1] == 6);
}

/* A sink of the size of the largest logit takes half of what one logit had; SwiGLU is clamped on both sides. */
static void gpt_oss(void)
{
    float x[3] = { 5, -INFINITY, -INFINITY }, h[3];
    const float gate[3] = { 9, 1, -20 }, up[3] = { 2, -9, 0.5f };
    nn_softmax_sink(x, 3, 5);
    CHECK(x[0] == 0.5f && x[1] == 0 && x[2] == 0);
    nn_ffn_act(h, gate, up, 3, MODEL_ACT_SWIGLU_OAI);
    CHECK(fabs(h[0] - 7 / (1 + exp(-1.702 * 7)) * 3) < 1e-5 && fabs(h[1] + 6 / (1 + exp(-1.702))) < 1e-5);
    CHECK(fabs(h[2] + 20 / (1 + exp(1.702 * 20)) * 1.5) < 1e-12);
}

/* A layer with a window may rotate at a speed of its own, unscaled; logits are scaled, then capped. */
static void gemma(void)
{
    const struct model_hparams h = { .n_rot = 4, .rope_theta = 1e6f, .rope_theta_window = 100, .rope_scale = 0.125f, .logit_scale = 0.5f,
                                     .final_softcap = 3 };
    const float gate[2] = { 1, -1 }, up[2] = { 2, 2 };
    float f[2], z[2] = { 2, -200 }, g[2];
    nn_rope_freqs(f, &h, 0, NULL);
    CHECK(f[0] == 0.125f && fabs(f[1] - 0.125e-3) < 1e-9);
    nn_rope_freqs(f, &h, 1, NULL);
    CHECK(f[0] == 1 && fabs(f[1] - 0.1) < 1e-7);
    nn_logits(z, 2, &h);
    CHECK(fabs(z[0] - 3 * tanh(1 / 3.0)) < 1e-6 && z[1] == -3);
    nn_ffn_act(g, gate, up, 2, MODEL_ACT_GELU);
    double t = tanh(sqrt(2 / 3.14159265358979) * 1.044715);
    CHECK(fabs(g[0] - (1 + t)) < 1e-6 && fabs(g[1] + (1 - t)) < 1e-6);
    nn_ffn_act(g, gate, up, 2, MODEL_ACT_GELU_UNGATED);
    CHECK(fabs(g[0] - (1 + t) / 2) < 1e-6 && fabs(g[1] + (1 - t) / 2) < 1e-6);
}

/* LayerNorm: the mean is subtracted, the deviation is that of the rest; a bias may be absent. */
static void layer_norm(void)
{
    const struct model_hparams h = { .layer_norm = 1, .rms_eps = 0.5f }, rms = { .rms_eps = 0.5f };
    const float x[4] = { 11, 9, 12, 8 }, w[4] = { 1, 2, 1, 2 }, b[4] = { 0, 0, 1, -1 };
    float y[4], z[4];
    double s = 1 / sqrt(2.5 + 0.5);
    nn_norm(y, x, w, b, 4, &h);
    CHECK(fabs(y[0] - s) < 1e-6 && fabs(y[1] + 2 * s) < 1e-6 && fabs(y[2] - 2 * s - 1) < 1e-6 && fabs(y[3] + 4 * s + 1) < 1e-6);
    nn_norm(y, x, w, NULL, 4, &h);
    CHECK(fabs(y[2] - 2 * s) < 1e-6);
    nn_norm(y, x, w, NULL, 4, &rms);
    nn_rmsnorm(z, x, w, 4, 0.5f);
    CHECK(!memcmp(y, z, sizeof y));
}

static void softmax(void)
{
    float x[3] = { 1000, 1001, 999 }, one = -5;
    nn_softmax(x, 3);
    double s = exp(-1) + 1 + exp(-2);
    CHECK(fabs(x[0] - exp(-1) / s) < 1e-7 && fabs(x[1] - 1 / s) < 1e-7 && fabs(x[2] - exp(-2) / s) < 1e-7);
    nn_softmax(&one, 1);
    CHECK(one == 1);
}

static void act(void)
{
    float g[4] = { 2, -2, 0, 1.5f }, u[4] = { 3, 3, 3, -1 }, h[4];
    nn_ffn_act(h, g, u, 4, MODEL_ACT_RELU);
    CHECK(h[0] == 6 && h[1] == 0 && h[2] == 0 && h[3] == -1.5f);
    nn_ffn_act(h, g, u, 4, MODEL_ACT_DRELU);
    CHECK(h[0] == 6 && h[1] == 0 && h[2] == 0 && h[3] == 0);
    nn_ffn_act(h, g, u, 4, MODEL_ACT_SILU);
    CHECK(fabs(h[0] - 6 / (1 + exp(-2))) < 1e-6 && fabs(h[1] + 6 / (1 + exp(2))) < 1e-6 && h[2] == 0);
    CHECK(nn_act_is_sparse(MODEL_ACT_RELU) && nn_act_is_sparse(MODEL_ACT_DRELU));
    CHECK(!nn_act_is_sparse(MODEL_ACT_SILU));
}

enum { HEADS = 6,
       KV = 2,
       DIM = 20,
       POS = 150,
       STRIDE = KV * DIM + 3 };

static void attention(int f16)
{
    static float q[HEADS * DIM], kf[POS * STRIDE], vf[POS * STRIDE], out[HEADS * DIM], part[HEADS * DIM];
    static uint16_t kh[POS * STRIDE], vh[POS * STRIDE];
    static float scores[3 * POS + 1];
    const struct nn_attn a = { .n_heads = HEADS, .n_kv_heads = KV, .head_dim = DIM, .type = f16 ? QUANT_F16 : QUANT_F32,
                               .kv_stride = STRIDE, .scores_stride = POS, .scale = 1 / sqrtf(DIM) };
    fill(q, HEADS * DIM);
    fill(kf, POS * STRIDE);
    fill(vf, POS * STRIDE);
    for (int i = 0; i < HEADS * DIM; i++)
        q[i] *= 4;
    kernels->to_f16(kh, kf, POS * STRIDE);
    kernels->to_f16(vh, vf, POS * STRIDE);
    for (int i = 0; f16 && i < POS * STRIDE; i++) {
        kf[i] = quant_f16_to_f32(kh[i]);
        vf[i] = quant_f16_to_f32(vh[i]);
    }
    const void *k = f16 ? (const void *)kh : kf, *v = f16 ? (const void *)vh : vf;
    static const int lengths[] = { 1, 2, 63, 64, 65, POS };
    for (int l = 0; l < 6; l++) {
        int n = lengths[l];
        double worst = 0;
        scores[2 * POS + n] = 12345;
        nn_attention(out, q, k, v, n, 0, HEADS, &a, scores);
        for (int h = 0; h < HEADS; h++) {
            double p[POS], sum = 0, o[DIM] = { 0 };
            for (int i = 0; i < n; i++) {
                double s = 0;
                for (int c = 0; c < DIM; c++)
                    s += (double)q[h * DIM + c] * kf[i * STRIDE + h / 3 * DIM + c];
                sum += p[i] = exp(s / sqrt(DIM));
            }
            for (int i = 0; i < n; i++)
                for (int c = 0; c < DIM; c++)
                    o[c] += p[i] / sum * vf[i * STRIDE + h / 3 * DIM + c];
            for (int c = 0; c < DIM; c++)
                if (fabs(o[c] - out[h * DIM + c]) > worst)
                    worst = fabs(o[c] - out[h * DIM + c]);
        }
        CHECK_MSG(worst < 2e-6 && scores[2 * POS + n] == 12345, "n_pos %d: %g", n, worst);
        nn_attention(part, q, k, v, n, 4, HEADS, &a, scores);
        nn_attention(part, q, k, v, n, 0, 4, &a, scores);
        CHECK(!memcmp(part, out, sizeof out));
    }
}

/* K and V in pages that lie anyhow, from any position on: the bits of rows in order. */
static void pages(int f16)
{
    enum { PAGE = 8, PAGES = 12, N = PAGE * PAGES, ROW = 32, HEAD = 16, ROWS = N + 5 * PAGE };
    static float k[N * ROW], v[N * ROW], kp[ROWS * ROW], vp[ROWS * ROW], q[4 * HEAD], scores[2 * N], a_out[4 * HEAD], b_out[4 * HEAD];
    static uint16_t kh[N * ROW], vh[N * ROW], kph[ROWS * ROW], vph[ROWS * ROW];
    static const int32_t table[PAGES] = { 3, 4, 5, 0, 16, 9, 10, 2, 1, 12, 13, 14 };
    struct nn_attn a = { .n_heads = 4, .n_kv_heads = 2, .head_dim = HEAD, .type = f16 ? QUANT_F16 : QUANT_F32,
                         .kv_stride = ROW, .scores_stride = N, .scale = 0.3f };
    uint32_t x = 9;
    for (int i = 0; i < N * ROW; i++) {
        k[i] = (float)((x = x * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
        v[i] = (float)((x = x * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
        kh[i] = quant_f32_to_f16(k[i]);
        vh[i] = quant_f32_to_f16(v[i]);
    }
    for (int i = 0; i < 4 * HEAD; i++)
        q[i] = (float)(i % 7) - 3;
    for (int p = 0; p < N; p++) {
        size_t to = ((size_t)table[p / PAGE] * PAGE + (size_t)p % PAGE) * ROW, from = (size_t)p * ROW;
        memcpy(kp + to, k + from, ROW * sizeof *k);
        memcpy(vp + to, v + from, ROW * sizeof *v);
        memcpy(kph + to, kh + from, ROW * sizeof *kh);
        memcpy(vph + to, vh + from, ROW * sizeof *vh);
    }
    for (int first = 0; first < N; first += first % 3 ? 5 : 1)
        for (int n = 1; first + n <= N; n += n < 20 ? 1 : 13) {
            size_t at = (size_t)first * ROW;
            a.pages = NULL;
            nn_attention(a_out, q, f16 ? (void *)(kh + at) : (void *)(k + at), f16 ? (void *)(vh + at) : (void *)(v + at), n, 0, 4, &a,
                         scores);
            a.pages = table;
            a.page = PAGE;
            a.first = first;
            nn_attention(b_out, q, f16 ? (void *)kph : (void *)kp, f16 ? (void *)vph : (void *)vp, n, 0, 4, &a, scores);
            if (memcmp(a_out, b_out, sizeof a_out)) {
                CHECK_MSG(0, "%d positions from %d", n, first);
                return;
            }
        }
    CHECK(1);
}

/* Tokens that follow each other, at once: the bits of one after another, with what they do not see poisoned. */
static int run_same(uint64_t *state, int f16)
{
    enum { PAGE = 8, N = 176, ROW = 2 * 48 + 5 };
    static float q[8 * 10 * 48], k[N * ROW], v[N * ROW], want[8 * 10 * 48], got[8 * 10 * 48], scores[4 * N], sinks[10],
        work[32 * (N + 48 + 96 + 48)];
    static uint16_t kh[N * ROW], vh[N * ROW];
    static const int groups[] = { 1, 2, 3, 4, 5 }, dims[] = { 1, 16, 20, 32, 47, 48 };
    static int32_t table[N / PAGE];
#define RANDOM(n) ((int)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33) % (n))
    int group = groups[RANDOM(5)], kv = 1 + RANDOM(2), dim = dims[RANDOM(6)], n = 1 + RANDOM(NN_ATTN_TOKENS);
    int pos = RANDOM(150), from[NN_ATTN_TOKENS];
    int window = RANDOM(2) ? 1 + RANDOM(60) : 1000, first = pos >= window ? pos - window + 1 : 0, paged = RANDOM(2);
    struct nn_attn a = { .n_heads = group * kv, .n_kv_heads = kv, .head_dim = dim, .type = f16 ? QUANT_F16 : QUANT_F32,
                         .kv_stride = ROW, .scores_stride = N,
                         .value_dim = RANDOM(3) ? 0 : dim - RANDOM(dim), .scale = 0.2f, .sinks = RANDOM(2) ? sinks : NULL,
                         .softcap = RANDOM(3) ? 0 : 5, .pages = paged ? table : NULL, .page = PAGE };
    size_t width = (size_t)(a.value_dim ? a.value_dim : dim), heads = (size_t)a.n_heads, out_step = width * heads,
           q_step = (size_t)dim * heads;
    for (int i = 0; i < N / PAGE; i++) /* most neighbours stay so */
        table[i] = i;
    for (int i = 0; i < 6; i++) {
        int x = RANDOM(N / PAGE), y = RANDOM(N / PAGE), z = table[x];
        table[x] = table[y];
        table[y] = z;
    }
    fill(q, 8 * 10 * 48);
    fill(k, N * ROW);
    fill(v, N * ROW);
    fill(sinks, 10);
    for (int p = 0; p < N; p++) /* behind the last: what no product survives */
        for (int i = 0; p > pos + n - 1 && i < ROW; i++) {
            size_t row = paged ? (size_t)table[p / PAGE] * PAGE + (size_t)p % PAGE : (size_t)p;
            k[row * ROW + (size_t)i] = v[row * ROW + (size_t)i] = NAN;
        }
    size_t last = paged ? (size_t)table[(pos + n - 1) / PAGE] * PAGE + (size_t)(pos + n - 1) % PAGE : (size_t)(pos + n - 1);
    for (int i = 0; i < ROW; i++) /* the last token alone sees these */
        v[last * ROW + (size_t)i] = INFINITY;
    kernels->to_f16(kh, k, N * ROW);
    kernels->to_f16(vh, v, N * ROW);
    for (int t = 0; t < n; t++) {
        int begin = pos + t >= window ? pos + t - window + 1 : 0;
        size_t at = paged ? 0 : (size_t)begin * ROW;
        from[t] = begin - first;
        a.first = begin;
        nn_attention(want + (size_t)t * out_step, q + (size_t)t * q_step, f16 ? (void *)(kh + at) : (void *)(k + at),
                     f16 ? (void *)(vh + at) : (void *)(v + at), pos + t + 1 - begin, 0, a.n_heads, &a, scores);
    }
    size_t at = paged ? 0 : (size_t)first * ROW, floats = nn_attention_floats(n, pos + 1 - first, &a);
    a.first = first;
    work[floats] = 12345;
    nn_attention_run(got, out_step, q, q_step, f16 ? (void *)(kh + at) : (void *)(k + at), f16 ? (void *)(vh + at) : (void *)(v + at), n,
                     pos + 1 - first, from, 0, a.n_heads, &a, work);
    if (!memcmp(want, got, (size_t)n * out_step * sizeof *want) && work[floats] == 12345)
        return 1;
    printf("# %d tokens at %d, window %d, %d heads of %d (%d), group %d, paged %d\n", n, pos, window, a.n_heads, dim, (int)width, group,
           paged);
    return 0;
#undef RANDOM
}

static void runs(int f16)
{
    uint64_t state = 77;
    int same = 1;
    for (int i = 0; i < 400; i++)
        same &= run_same(&state, f16);
    CHECK_MSG(same, "%s: several tokens at once have the bits of each alone, %s", kernels->name, f16 ? "f16" : "f32");
}

/* K and V in blocks of 32, each head's rows together, in pages or not: one token near double sums over what the blocks hold, and tokens
 * that follow each other with the bits of one after another. */
static double blocks_differ(uint64_t *state, uint32_t type, int *same)
{
    enum { PAGE = 32, N = 256, MOST = 128, GROUP = 9, KVS = 2, T = NN_ATTN_TOKENS };
    static float q[T * GROUP * KVS * MOST], x[N * MOST], k[KVS][N * MOST], v[KVS][N * MOST], want[T * GROUP * KVS * MOST],
        got[T * GROUP * KVS * MOST], scores[NN_ATTN_HEADS * N], work[T * NN_ATTN_HEADS * (N + 64 + 2 * MOST)];
    static uint8_t kq[KVS * N * MOST * 4], vq[KVS * N * MOST * 4];
    static const int groups[] = { 1, 2, 3, 4, 5, 8, 9 }, dims[] = { 32, 64, 96, 128 };
    static int32_t table[N / PAGE];
#define RANDOM(n) ((int)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33) % (n))
    const int group = groups[RANDOM(7)], kv = 1 + RANDOM(KVS), dim = dims[RANDOM(4)], n = 1 + RANDOM(T);
    const int pos = RANDOM(N - T), paged = RANDOM(2);
    const int heads = group * kv, from[NN_ATTN_TOKENS] = { 0 };
    const size_t row = quant_row_bytes(type, (uint64_t)dim), q_step = (size_t)(heads * dim);
    struct nn_attn a = { .n_heads = heads, .n_kv_heads = kv, .head_dim = dim, .type = type, .kv_stride = (size_t)dim,
                         .kv_head = (size_t)(N * dim), .scores_stride = N, .value_dim = RANDOM(3) ? 0 : 32,
                         .scale = 1 / sqrtf((float)dim), .pages = paged ? table : NULL, .page = PAGE };
    const int width = a.value_dim ? a.value_dim : dim;
    const size_t out_step = (size_t)(heads * width);
    double worst = 0;
    for (int i = 0; i < N / PAGE; i++)
        table[i] = paged ? (i * 5 + 3) % (N / PAGE) : i;
    fill(q, T * GROUP * KVS * MOST);
    for (int i = 0; i < KVS * 2; i++) {
        float *own = i % 2 ? v[i / 2] : k[i / 2];
        uint8_t *bytes = (i % 2 ? vq : kq) + (size_t)(i / 2 * N) * row;
        fill(x, N * MOST);
        for (int p = 0; p < N; p++) {
            uint8_t *to = bytes + (size_t)(table[p / PAGE] * PAGE + p % PAGE) * row;
            quant_traits(type)->quant(to, x + p * dim, (size_t)dim);
            quant_traits(type)->dequant(own + p * dim, to, (size_t)dim);
        }
    }
    for (int t = 0; t < n; t++)
        nn_attention(want + (size_t)t * out_step, q + (size_t)t * q_step, kq, vq, pos + t + 1, 0, heads, &a, scores);
    nn_attention_run(got, out_step, q, q_step, kq, vq, n, pos + 1, from, 0, heads, &a, work);
    *same &= !memcmp(want, got, (size_t)n * out_step * sizeof *want);
    for (int h = 0; h < heads; h++) {
        double p[N], sum = 0, o[MOST] = { 0 };
        for (int i = 0; i <= pos; i++) {
            double s = 0;
            for (int c = 0; c < dim; c++)
                s += (double)q[h * dim + c] * k[h / group][i * dim + c];
            sum += p[i] = exp(s * a.scale);
        }
        for (int i = 0; i <= pos; i++)
            for (int c = 0; c < width; c++)
                o[c] += p[i] / sum * v[h / group][i * dim + c];
        for (int c = 0; c < width; c++)
            worst = fmax(worst, fabs(o[c] - want[h * width + c]));
    }
    return worst;
#undef RANDOM
}

static void blocks(uint32_t type)
{
    uint64_t state = 5;
    int same = 1;
    double worst = 0;
    for (int i = 0; i < 60; i++)
        worst = fmax(worst, blocks_differ(&state, type, &same));
    CHECK_MSG(worst < 2e-6, "%s: %s is %g off", kernels->name, quant_traits(type)->name, worst);
    CHECK_MSG(same, "%s: several tokens at once have the bits of each alone, %s", kernels->name, quant_traits(type)->name);
}

/* exp of four: 1.5 units in the last place against double, the same bits in every lane, clamped ends. */
static void exponential(void)
{
    double worst = 0;
    int lanes = 1;
    for (float x = -87.2f; x < 88.3f; x += 0.00137f) {
        const nn_f4 v = nn_exp((nn_f4){ x, 0, x, -x }), w = nn_exp(nn_all(x));
        const double want = exp((double)x), ulp = ldexp(1, ilogb(want) - 23);
        worst = fmax(worst, fabs((double)v[0] - want) / ulp);
        lanes &= !memcmp(&v, &w, sizeof(float)) && v[0] == v[2];
    }
    printf("# exp: %.3f units in the last place\n", worst);
    CHECK(worst <= 1.5);
    CHECK(lanes);
    const nn_f4 ends = nn_exp((nn_f4){ 0, -INFINITY, INFINITY, NAN });
    CHECK(ends[0] == 1 && ends[1] == 0 && isfinite(ends[2]) && ends[2] > 2e38f && isnan(ends[3]));
}

int main(void)
{
    unsigned have = cpu_detect();
    kernels_init(have);
    silence();
    rmsnorm();
    rope();
    heads();
    yarn();
    gpt_oss();
    gemma();
    layer_norm();
    softmax();
    exponential();
    act();
    for (int t = 0; t < CPU_TIERS; t++) {
        if (!(have & 1u << t))
            continue;
        kernels_init(have & ((2u << t) - 1));
        printf("# tier %s\n", kernels->name);
        attention(0);
        attention(1);
        pages(0);
        pages(1);
        runs(0);
        runs(1);
        blocks(QUANT_F16);
        blocks(QUANT_Q8_0);
        blocks(QUANT_Q4_0);
    }
    return test_done();
}
