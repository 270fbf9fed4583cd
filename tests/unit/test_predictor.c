/* Making predictors: linear algebra on small matrices, a model whose gates really are of low rank, and that
 * threads do not change bits. */
#include "common/base/cpu.h"
#include "common/model/nn.h"
#include "common/offline/linalg.h"
#include "profiler/predictors/predictor.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *const none[2] = { NULL, NULL }; /* biases */
enum { D = 64, FF = 300, N = 3400, TRAIN = 3000, TRUE_RANK = 48, QUIET = FF / 2 };

static uint64_t state = 7;
static float normal(void)
{
    double s = 0;
    for (int i = 0; i < 12; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        s += (double)(state >> 40) / (1 << 24);
    }
    return (float)(s - 6);
}

/* Inputs of unequal variance; gates that an almost constant input holds down. One half of the neurons never
 * fires and lives in directions of its own, with the larger gates: a decomposition spends its rank on them,
 * training need not. */
static void make(float *f, float *gate)
{
    static float a[TRUE_RANK * D];
    state = 7;
    for (int i = 0; i < TRUE_RANK * D; i++)
        a[i] = normal();
    for (int n = 0; n < FF; n++)
        for (int j = 0; j < D; j++)
            gate[n * D + j] = 0;
    for (int n = 0; n < FF; n++) {
        int quiet = n < QUIET;
        for (int k = quiet ? 0 : TRUE_RANK / 2; k < (quiet ? TRUE_RANK / 2 : TRUE_RANK); k++) {
            float w = normal();
            for (int j = 0; j < D; j++)
                gate[n * D + j] += w * a[k * D + j];
        }
        gate[n * D] = quiet ? -1000 : -35; /* input 0 is nearly constant */
    }
    for (int t = 0; t < N; t++)
        for (int j = 0; j < D; j++)
            f[t * D + j] = j ? normal() * (float)(1 + j % 5) / 3 : 1 + 0.01f * normal();
}

static void linear_algebra(void)
{
    struct err e = { 0 };
    double a[9] = { 4, 2, 1, 2, 5, 3, 1, 3, 6 }, l[9], worst = 0;
    memcpy(l, a, sizeof l);
    CHECK(linalg_cholesky(l, 3, &e) == 0);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            double s = 0;
            for (int k = 0; k < 3; k++)
                s += l[i * 3 + k] * l[j * 3 + k];
            worst = fmax(worst, fabs(s - a[i * 3 + j]));
        }
    CHECK(worst < 1e-12 && l[1] == 0 && l[2] == 0 && l[5] == 0);
    double x[3] = { 1, -2, 3 }, y[3];
    memcpy(y, x, sizeof y);
    linalg_over_lower(y, 1, l, 3); /* y L = x */
    CHECK(fabs(y[0] * l[0] + y[1] * l[3] + y[2] * l[6] - x[0]) < 1e-12 && fabs(y[2] * l[8] - x[2]) < 1e-12);
    memcpy(y, x, sizeof y);
    linalg_over_lower_transposed(y, 1, l, 3); /* y L^T = x */
    CHECK(fabs(y[0] * l[0] - x[0]) < 1e-12 && fabs(y[0] * l[6] + y[1] * l[7] + y[2] * l[8] - x[2]) < 1e-12);
    double diag[9] = { 2, 0, 0, 0, 7, 0, 0, 0, 5 }, values[2], v[6];
    CHECK(linalg_eigen(diag, 3, 2, values, v, &e) == 0);
    CHECK(fabs(values[0] - 7) < 1e-12 && fabs(values[1] - 5) < 1e-12 && fabs(v[1] - 1) < 1e-12 &&
          fabs(v[5] - 1) < 1e-12);
    double bad[4] = { 1, 2, 2, 1 };
    CHECK(linalg_cholesky(bad, 2, &e) == ERR_LIMIT);
    double q[6] = { 1, 2, 2, 3, 0, 1 }, dot = 0, norms[2] = { 0 };
    CHECK(linalg_orthonormalise(q, 2, 3, &e) == 0);
    for (int i = 0; i < 3; i++)
        dot += q[i] * q[3 + i], norms[0] += q[i] * q[i], norms[1] += q[3 + i] * q[3 + i];
    CHECK(fabs(dot) < 1e-12 && fabs(norms[0] - 1) < 1e-12 && fabs(norms[1] - 1) < 1e-12);
    CHECK(fabs(fabs(q[0]) - 1 / 3.0) < 1e-12 && fabs(q[1] / q[0] - 2) < 1e-12); /* the first keeps its direction */
}

struct result {
    struct predictor_point start, end;
    uint64_t hash;
    double oracle;
};

static uint64_t sum(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    return h;
}

static struct result run(int rank, int threads, int epochs, int two_inputs)
{
    static float f[N * D], x[N * D], gate[FF * D];
    static uint8_t train[TRAIN * FF], held[(N - TRAIN) * FF];
    struct err e = { 0 };
    struct pool *pool;
    struct predictor_base *b = NULL;
    struct predictor_weights w = { 0 };
    struct predictor_packed q = { 0 };
    struct predictor_counts c[2];
    struct result out = { .hash = 0xcbf29ce484222325u };
    make(f, gate);
    for (int i = 0; i < N * D; i++)
        x[i] = f[i] + (two_inputs ? 0.02f * normal() : 0);
    CHECK(pool_new(threads, NULL, &pool, &e) == 0);
    struct predictor_data d = { .d = D, .n_ff = FF, .n = N, .n_train = TRAIN, .f = f, .x = two_inputs ? x : f };
    const struct predictor_options o = { .epochs = epochs, .batch = 128, .lr = 2e-3, .weight = 8, .seed = 3 };
    CHECK_MSG(predictor_base_new(&d, gate, NULL, rank, pool, &b, &e) == 0, "%s", e.msg);
    CHECK(predictor_targets(gate, NULL, none, NULL, D, FF, f, TRAIN, pool, train, &e) == 0);
    CHECK(predictor_targets(gate, NULL, none, NULL, D, FF, f + TRAIN * D, N - TRAIN, pool, held, &e) == 0);
    CHECK(predictor_start(b, rank, &w, &e) == 0);
    for (int i = 0; i < 2; i++) {
        if (i && epochs)
            CHECK(predictor_train(&w, b, &d, train, &o, pool, NULL, NULL, &e) == 0);
        CHECK(predictor_quantise(&w, b, NULL, QUANT_Q8_0, &q, &e) == 0 && predictor_counts_new(&c[i], &e) == 0 &&
              predictor_count(&q.p, &d, TRAIN, N - TRAIN, held, pool, &c[i], &e) == 0);
        out.hash = sum(sum(sum(out.hash, q.fc1, q.p.row1 * (size_t)rank), q.fc2, q.p.row2 * FF), q.bias, FF * 4);
        predictor_packed_free(&q);
    }
    out.start = predictor_point_of(&c[0], 0.99), out.end = predictor_point_of(&c[1], 0.99);
    out.oracle = (double)c[1].n_active / (double)(c[1].n_active + c[1].n_inactive);
    struct predictor_point again = predictor_point_at(&c[1], (float)out.end.threshold);
    CHECK(again.recall == out.end.recall && again.density == out.end.density);
    for (int i = 0; i < 2; i++)
        predictor_counts_free(&c[i]);
    predictor_weights_free(&w);
    predictor_base_free(b);
    pool_free(pool);
    return out;
}

/* Of 256 directions 16 are taken from a random subspace, 64 from the whole matrix: the first 16 of those are the best
 * there are. */
static void few_of_many(int two_inputs)
{
    enum { WIDE = 256, NEURONS = 300, TOKENS = 1400, SEEN = 1000, K = 8 };
    static float f[TOKENS * WIDE], x[TOKENS * WIDE], gate[2][NEURONS * WIDE];
    static uint8_t held[(TOKENS - SEEN) * NEURONS];
    double density[2];
    struct err e = { 0 };
    struct pool *pool = NULL;
    state = 11;
    for (size_t i = 0; i < NEURONS * WIDE; i++)
        gate[0][i] = gate[1][i] = i % WIDE ? normal() : -12;
    for (size_t i = 0; i < TOKENS * WIDE; i++) {
        f[i] = i % WIDE ? normal() / sqrtf(1 + (float)(i % WIDE) * 0.25f) : 1 + 0.1f * normal();
        x[i] = f[i] + 0.05f * normal();
    }
    CHECK(pool_new(2, NULL, &pool, &e) == 0);
    const struct predictor_data d = { .d = WIDE, .n_ff = NEURONS, .n = TOKENS, .n_train = SEEN, .f = f,
                                      .x = two_inputs ? x : f };
    for (int i = 0; i < 2; i++) {
        struct predictor_base *b = NULL;
        struct predictor_weights w = { 0 };
        struct predictor_packed q = { 0 };
        struct predictor_counts c;
        CHECK_MSG(predictor_base_new(&d, gate[i], NULL, i ? 64 : K, pool, &b, &e) == 0, "%s", e.msg);
        CHECK(predictor_targets(gate[i], NULL, none, NULL, WIDE, NEURONS, f + SEEN * WIDE, TOKENS - SEEN, pool, held, &e) == 0);
        CHECK(predictor_start(b, K, &w, &e) == 0 && predictor_quantise(&w, b, NULL, QUANT_F32, &q, &e) == 0 &&
              predictor_counts_new(&c, &e) == 0 && predictor_count(&q.p, &d, SEEN, TOKENS - SEEN, held, pool, &c, &e) == 0);
        density[i] = predictor_point_of(&c, 0.95).density;
        predictor_counts_free(&c);
        predictor_packed_free(&q);
        predictor_weights_free(&w);
        predictor_base_free(b);
    }
    pool_free(pool);
    printf("# rank 8 of 256: density %.4f, from the whole matrix %.4f\n", density[0], density[1]);
    CHECK(density[1] < 0.5 && density[0] < 1.02 * density[1]);
}

static double upper(double t) /* E[relu(g)^2] of a normal g of mean t, deviation 1 */
{
    return (t * t + 1) * erfc(-t / sqrt(2)) / 2 + t * exp(-t * t / 2) / sqrt(2 * 3.14159265358979);
}

/* Shifts against their definition, element by element; both layouts of Down, any threads, in proportion to weigh. */
static void shifts(void)
{
    enum { WIDE = 6, NEURONS = 300, TOKENS = 40 };
    static float f[TOKENS * WIDE], gate[NEURONS * WIDE], up[NEURONS * WIDE], down[NEURONS * WIDE], turned[NEURONS * WIDE];
    static float shift[NEURONS], other[NEURONS];
    double value[NEURONS], mean = 0, worst = 0, apart = 0, sum = 0;
    double by = 1.7 * 2 / ((log(upper(-1.5)) - log(upper(-2))) / 0.5);
    struct err e = { 0 };
    struct pool *pool[2];
    state = 5;
    for (int i = 0; i < TOKENS * WIDE; i++)
        f[i] = normal() + (float)(i % WIDE == 0);
    for (int i = 0; i < NEURONS * WIDE; i++) {
        gate[i] = normal() * (float)(1 + i / WIDE % 7), up[i] = normal() * (float)(1 + i / WIDE % 5), down[i] = normal();
        turned[i % WIDE * NEURONS + i / WIDE] = down[i];
    }
    for (int i = 0; i < NEURONS; i++) {
        double g = 0, gg = 0, uu = 0, dd = 0;
        for (int t = 0; t < TOKENS; t++) {
            double z = 0, u = 0;
            for (int k = 0; k < WIDE; k++)
                z += (double)gate[i * WIDE + k] * (double)f[t * WIDE + k], u += (double)up[i * WIDE + k] * (double)f[t * WIDE + k];
            g += z / TOKENS, gg += z * z / TOKENS, uu += u * u / TOKENS;
        }
        for (int k = 0; k < WIDE; k++)
            dd += (double)down[i * WIDE + k] * (double)down[i * WIDE + k];
        value[i] = log(sqrt((gg - g * g) * uu * dd));
        mean += value[i] / NEURONS;
    }
    CHECK(pool_new(1, NULL, &pool[0], &e) == 0 && pool_new(3, NULL, &pool[1], &e) == 0);
    const struct predictor_data d = { .d = WIDE, .n_ff = NEURONS, .n = TOKENS, .n_train = TOKENS, .f = f, .x = f };
    CHECK(predictor_shift(&d, gate, up, turned, 0, 1, pool[0], shift, &e) == 0);
    for (int i = 0; i < NEURONS; i++)
        worst = fmax(worst, fabs((double)shift[i] - by * (value[i] - mean))), sum += (double)shift[i];
    CHECK_MSG(worst < 0.02, "off by %g", worst); /* the slope is stated to three digits */
    CHECK(fabs(sum) < 1e-3);
    CHECK(predictor_shift(&d, gate, up, turned, 0, 1, pool[1], other, &e) == 0 && !memcmp(shift, other, sizeof shift));
    CHECK(predictor_shift(&d, gate, up, down, 1, 0.5, pool[1], other, &e) == 0);
    for (int i = 0; i < NEURONS; i++)
        apart = fmax(apart, fabs((double)shift[i] - 2 * (double)other[i]));
    CHECK(apart < 1e-5);
    pool_free(pool[0]);
    pool_free(pool[1]);
}

/* Whether a gate fires, as the runtime decides it. */
static int fires(float gate, float threshold, enum model_act act)
{
    nn_silence(&gate, &threshold, 1, act);
    return gate != 0;
}

/* On a grid of gates: inside what the edges say exactly where it fires, but within rounding of an edge. */
static void edges(void)
{
    static const enum model_act acts[2] = { MODEL_ACT_SILU, MODEL_ACT_GELU };
    static const float thresholds[] = { 1e-4f, 0.01f, 0.1f, 0.1699f, 0.27f, 0.2785f, 0.5f, 3, 500 };
    for (int a = 0; a < 2; a++)
        for (size_t k = 0; k < sizeof thresholds / sizeof *thresholds; k++) {
            float at[PREDICTOR_EDGES], t = thresholds[k];
            int wrong = 0, below = 0;
            predictor_edges(t, acts[a], at);
            for (int i = -4000; i <= 4000; i++) {
                float g = (float)i * 0.005f + 0.0001f, in = predictor_inside(g, at);
                wrong += fabsf(in) > 1e-4f && (in > 0) != fires(g, t, acts[a]);
                below += in > 0 && g < 0;
            }
            CHECK_MSG(!wrong, "act %d, threshold %g: %d gates of 8001", a, (double)t, wrong);
            CHECK((below > 0) == (isfinite(at[1]) != 0) && (below > 0) == (t < (a ? 0.16997f : 0.27846f)));
            CHECK(at[0] > 0 && at[0] <= 2 * t && (isinf(at[1]) ? isinf(at[2]) : at[2] < at[1] && at[1] < 0));
        }
    float zero[PREDICTOR_EDGES];
    predictor_edges(0, MODEL_ACT_SILU, zero);
    CHECK(predictor_inside(0.01f, zero) > 0 && predictor_inside(-0.01f, zero) > 0 && predictor_inside(-50, zero) > 0);
}

/* Neurons that fire on either side of a silent interval: a two-sided predictor of the gates' rank finds them, a one-sided one would
 * predict nearly all. */
static void two_sides(int columns)
{
    enum { K = 32 };
    static float f[N * D], gate[FF * D], at[FF * PREDICTOR_EDGES];
    static uint8_t train[TRAIN * FF], held[(N - TRAIN) * FF];
    struct err e = { 0 };
    struct pool *pool;
    struct predictor_base *b = NULL;
    struct predictor_weights w = { 0 };
    struct predictor_packed q = { 0 };
    struct predictor_counts c[3];
    const struct predictor_options o = { .epochs = 4, .batch = 128, .lr = 2e-3, .weight = 2, .seed = 3 };
    int wrong = 0;
    state = 23;
    for (int i = 0; i < N * D; i++)
        f[i] = normal() * (i % D < K ? 1 : 0.02f);
    for (int i = 0; i < FF * D; i++)
        gate[i] = (i % D ? normal() / sqrtf(K) : 0) - (i % D == 0 ? 0.3f : 0);
    for (int i = 0; i < FF; i++)
        predictor_edges(0.05f + 0.4f * (float)i / FF, MODEL_ACT_SILU, at + i * PREDICTOR_EDGES);
    CHECK(pool_new(2, NULL, &pool, &e) == 0);
    struct predictor_data d = { .d = D, .n_ff = FF, .n = N, .n_train = TRAIN, .f = f, .x = f, .edges = at };
    CHECK(predictor_targets(gate, NULL, none, at, D, FF, f + TRAIN * D, N - TRAIN, pool, held, &e) == 0);
    for (int i = 0; i < 50 * FF; i++) {
        float z = 0;
        for (int j = 0; j < D; j++)
            z += gate[i % FF * D + j] * f[(TRAIN + i / FF) * D + j];
        wrong += (held[i] > 127) != fires(z, 0.05f + 0.4f * (float)(i % FF) / FF, MODEL_ACT_SILU);
    }
    CHECK_MSG(wrong <= 2, "%d of %d targets", wrong, 50 * FF); /* sums in another order */
    CHECK_MSG((columns ? predictor_columns_new : predictor_base_new)(&d, gate, NULL, K, pool, &b, &e) == 0, "%s", e.msg);
    CHECK(predictor_targets(gate, NULL, none, at, D, FF, f, TRAIN, pool, train, &e) == 0 && predictor_start(b, K, &w, &e) == 0);
    CHECK(w.sides && isfinite(w.sides[0]) && w.sides[2 * FF - 2] == FLT_MAX);
    for (int i = 0; i < 3; i++) {
        if (i == 1 && !columns)
            CHECK(predictor_train(&w, b, &d, train, &o, pool, NULL, NULL, &e) == 0);
        if (i == 2) /* one-sided */
            free(w.sides), w.sides = NULL;
        CHECK(predictor_quantise(&w, b, NULL, QUANT_Q8_0, &q, &e) == 0 && q.p.two_sided == (i < 2) &&
              predictor_counts_new(&c[i], &e) == 0 && predictor_count(&q.p, &d, TRAIN, N - TRAIN, held, pool, &c[i], &e) == 0);
        predictor_packed_free(&q);
    }
    double density[3], oracle = (double)c[0].n_active / (double)(c[0].n_active + c[0].n_inactive);
    for (int i = 0; i < 3; i++) {
        density[i] = predictor_point_of(&c[i], 0.99).density;
        predictor_counts_free(&c[i]);
    }
    printf("# oracle %.4f; two-sided %.4f, trained %.4f; one-sided %.4f\n", oracle, density[0], density[1], density[2]);
    CHECK(density[0] < 1.1 * oracle && density[1] < 1.1 * oracle && density[2] > 1.3 * oracle);
    predictor_weights_free(&w);
    predictor_base_free(b);
    pool_free(pool);
}

static void hot_set(void)
{
    struct err e = { 0 };
    const uint64_t counts[4] = { 1, 9, 5, 0 };
    const uint8_t targets[12] = { 0, 255, 200, 0, 0, 128, 0, 0, 0, 255, 127, 0 }; /* active: 1 thrice, 2 once */
    CHECK(predictor_hot_density(counts, 4, targets, 3, 0.75, &e) == 0.25);
    CHECK(predictor_hot_density(counts, 4, targets, 3, 0.99, &e) == 0.5);
}

int main(void)
{
    kernels_init(cpu_detect());
    linalg_init();
    printf("# kernels of the linear algebra: %s\n", linalg_kernels());
    if ((cpu_detect() >> CPU_AVX512 & 1) && !getenv("OPENBLAS_CORETYPE"))
        CHECK(strcmp(linalg_kernels(), "Prescott"));
    linear_algebra();
    hot_set();
    shifts();
    edges();
    two_sides(0);
    two_sides(1);
    few_of_many(0);
    few_of_many(1);
    struct result exact = run(64, 2, 0, 0), one = run(32, 1, 6, 0), two = run(32, 2, 6, 0), three = run(32, 3, 6, 0);
    printf("# oracle %.4f; full rank %.4f; rank 32 %.4f, trained %.4f\n", one.oracle, exact.start.density,
           one.start.density, one.end.density);
    CHECK(exact.oracle > 0.02 && exact.oracle < 0.5);
    CHECK(exact.start.recall >= 0.99 && exact.start.density < 1.1 * exact.oracle);
    CHECK(one.end.recall >= 0.99 && one.start.recall >= 0.99 && one.end.density < 0.9 * one.start.density);
    CHECK(one.hash == two.hash && one.hash == three.hash);
    struct result other = run(64, 2, 0, 1);
    CHECK(other.start.recall >= 0.99 && other.start.density < 2 * other.oracle);   /* sees a vector near the gates' */
    return test_done();
}
