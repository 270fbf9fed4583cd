/* Predictors out of the gates' own columns: the inputs that decide are found, in the order of their weight, also where the
 * predictor sees another vector than the gates do; nothing depends on threads. */
#include "common/base/bytes.h"
#include "common/base/cpu.h"
#include "common/offline/linalg.h"
#include "profiler/predictors/predictor.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *const none[2] = { NULL, NULL }; /* biases */
enum { D = 256, FF = 300, N = 1200, TRAIN = 800, RANK = 96 };

static float f[N * D], x[N * D], gate[FF * D];
static uint8_t held[(N - TRAIN) * FF];

static uint64_t state;
static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (1 << 23) - 1;
}

/* A constant in 0 holds gates down; of what changes inputs 160 to 191 weigh most, then 64 to 95; the rest is a hundredth. Inputs of the
 * block 32 to 63 are large, but no gate reads them; x is f at another scale for each input. */
static void make(void)
{
    state = 5;
    for (int i = 0; i < FF; i++)
        for (int j = 0; j < D; j++) {
            float w = j / 32 == 5 ? 2 : j / 32 == 2 ? 1 : j / 32 == 1 ? 0 : 0.02f;
            gate[i * D + j] = j ? w * uniform() : -5;
        }
    for (int t = 0; t < N; t++)
        for (int j = 0; j < D; j++) {
            f[t * D + j] = j ? uniform() * (j / 32 == 1 ? 50 : 1) : 1;
            x[t * D + j] = f[t * D + j] * (j % 3 ? 0.5f : -4);
        }
}

struct seen {
    struct predictor_point at;
    double oracle;
    int input[3];           /* of fc1's rows 0, 32 and 64; -1: not one */
    float slope[3];
    uint64_t hash;
};

static int only_input(const float *row)
{
    int at = -1;
    for (int j = 0; j < D; j++)
        if (row[j] != 0)
            at = at < 0 ? j : D;
    return at < D ? at : -1;
}

static struct seen measure(int rank, int other, int threads)
{
    struct err e = { 0 };
    struct pool *pool = NULL;
    struct predictor_base *b = NULL;
    struct predictor_weights w = { 0 };
    struct predictor_packed q = { 0 };
    struct predictor_counts c;
    struct seen out = { .hash = 0xcbf29ce484222325u };
    make();
    const struct predictor_data d = { .d = D, .n_ff = FF, .n = N, .n_train = TRAIN, .f = f, .x = other ? x : f };
    CHECK(pool_new(threads, NULL, &pool, &e) == 0);
    CHECK_MSG(predictor_columns_new(&d, gate, NULL, RANK, pool, &b, &e) == 0, "%s", e.msg);
    CHECK(predictor_targets(gate, NULL, none, NULL, D, FF, f + TRAIN * D, N - TRAIN, pool, held, &e) == 0);
    CHECK(predictor_start(b, rank, &w, &e) == 0 && predictor_quantise(&w, b, NULL, QUANT_Q8_0, &q, &e) == 0 &&
          predictor_counts_new(&c, &e) == 0 && predictor_count(&q.p, &d, TRAIN, N - TRAIN, held, pool, &c, &e) == 0);
    for (int k = 0; 32 * k < rank; k++) {
        out.input[k] = only_input(w.fc1 + 32 * k * D);
        out.slope[k] = out.input[k] < 0 ? 0 : w.fc1[32 * k * D + out.input[k]];
    }
    CHECK(w.selects && q.p.type1 == PREDICT_PICK && q.p.row1 == PREDICT_PICK_BYTES);
    for (int i = 0; i < rank; i++) {
        const uint8_t *row = (const uint8_t *)q.fc1 + i * PREDICT_PICK_BYTES;
        CHECK(w.fc1[(uint32_t)(i * D) + bytes_le32(row)] == bytes_lef32(row + 4));
    }
    for (size_t i = 0; i < (size_t)FF * q.p.row2; i++)
        out.hash = (out.hash ^ ((const uint8_t *)q.fc2)[i]) * 0x100000001b3u;
    for (size_t i = 0; i < FF * sizeof(float); i++)
        out.hash = (out.hash ^ ((const uint8_t *)q.bias)[i]) * 0x100000001b3u;
    out.at = predictor_point_of(&c, 0.99);
    out.oracle = (double)c.n_active / (double)(c.n_active + c.n_inactive);
    printf("# rank %d: recall %.4f, density %.4f, active %.4f\n", rank, out.at.recall, out.at.density, out.oracle);
    predictor_counts_free(&c);
    predictor_packed_free(&q);
    predictor_weights_free(&w);
    predictor_base_free(b);
    pool_free(pool);
    return out;
}

int main(void)
{
    struct err e = { 0 };
    struct pool *pool = NULL;
    kernels_init(cpu_detect());
    linalg_init();
    struct seen all = measure(RANK, 0, 1), two = measure(RANK, 0, 3), few = measure(64, 0, 2), other = measure(RANK, 1, 2);
    CHECK(all.oracle > 0.05 && all.oracle < 0.3);
    CHECK(all.at.recall >= 0.99 && all.at.density < 1.1 * all.oracle);
    CHECK(all.input[0] == 0 && all.input[1] == 160 && all.input[2] == 64 && all.slope[1] == 1);
    CHECK(all.hash == two.hash);
    CHECK(few.at.recall >= 0.99 && few.at.density > 1.3 * few.oracle); /* a fifth of the variance is not seen */
    CHECK(other.at.recall >= 0.99 && other.at.density < 1.1 * other.oracle);
    CHECK(other.input[1] == 160 && fabsf(other.slope[1] - 2) < 1e-5f && fabsf(other.slope[0] + 0.25f) < 1e-5f);
    const struct predictor_data d = { .d = D, .n_ff = FF, .n = N, .n_train = TRAIN, .f = f, .x = f };
    struct predictor_base *b = NULL;
    CHECK(pool_new(1, NULL, &pool, &e) == 0);
    CHECK(predictor_columns_new(&d, gate, NULL, 40, pool, &b, &e) == ERR_UNSUPPORTED && !b);
    pool_free(pool);
    return test_done();
}
