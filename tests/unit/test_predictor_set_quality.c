/* What predictors cost in quality, on a trace of the embedded model: predictors that predict everything cost nothing;
 * predictors that predict a fixed half cost what a model without the other half costs, which the test works out from
 * two passes of its own. */
#include "common/base/cpu.h"
#include "common/offline/forward.h"
#include "profiler/predictors/predictor_set.h"
#include "profiler/trace/recorder.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "datasets/models/reglu-tales-10m-f16.gguf"
enum { D = 256, FF = 1280, LAYERS = 8, VOCAB = 4096, RANK = 32, WITHOUT = 5, N_TOKENS = 512, N = TEST_SANITIZER ? 64 : 128 };

static struct gguf *gguf;
static struct model *model;
static char path[256];

static void trace_some(uint64_t tokens)
{
    struct err e = { 0 };
    struct tokenizer *tok = NULL;
    struct corpus *c = NULL;
    struct recorder *t = NULL;
    struct pool *pool = NULL;
    uint64_t resumed;
    struct hash128 content;
    const struct corpus_options o = { .prompts = "datasets/prompts/stories-profile.csv", .column = "text", .n_ctx = 64,
                                      .max_tokens = tokens, .window = 64, .samples = 64, .n_shards = 1 };
    CHECK_MSG(!tokenizer_open(gguf, &tok, &e) && !corpus_read(&o, tok, VOCAB, &c, &e) &&
                  !recorder_new(model, c, "test", 2, 0, &t, &e) && !recorder_identify(t, &e) && !pool_new(2, NULL, &pool, &e) &&
                  !recorder_run(t, pool, path, 0, 1, &resumed, &content, &e), "%s", e.msg);
    pool_free(pool);
    recorder_free(t);
    corpus_free(c);
    tokenizer_close(tok);
}

/* Scores are the bias. ffn: all neurons are above the threshold; block: even ones, and layer WITHOUT has no predictor. */
static int fetch(void *ctx, int i, struct trace_predictor *x, const void **fc1, const void **fc2, const float **bias,
                 struct err *e)
{
    static float zeros[FF * RANK], b[FF];
    int block = i >= LAYERS, layer = block ? i - LAYERS : i;
    (void)ctx, (void)e;
    *x = (struct trace_predictor){ .input = block ? PREDICT_BLOCK : PREDICT_FFN,
                                   .layer = layer + (block && layer >= WITHOUT),
                                   .rank = RANK, .has_bias = 1, .type1 = QUANT_F32, .type2 = QUANT_F32,
                                   .at = { 0.5f, 0.25f, 0.5f, 0.5f }, .n_train = 1, .n_held = 1 };
    for (int k = 0; k < FF; k++)
        b[k] = !block || k % 2 == 0 ? 1 : -1;
    *fc1 = zeros, *fc2 = zeros, *bias = b;
    return 0;
}

static float gates[FF * D];
static unsigned layers_without = ~0u; /* a bit each */

static int without_odd(void *ctx, int layer, enum model_role role, const float **rows, struct err *e)
{
    const struct gguf_tensor *t = model->layer[layer][MODEL_FFN_GATE];
    uint16_t half[D];
    (void)ctx;
    if (role != MODEL_FFN_GATE || layer == WITHOUT || !(layers_without >> layer & 1))
        return 0;
    for (size_t i = 0; i < FF; i++) {
        int r = gguf_read(gguf, t, i * t->row_bytes, half, sizeof half, e);
        if (r < 0)
            return r;
        for (size_t k = 0; k < D; k++)
            gates[i * D + k] = i % 2 ? 0 : quant_f16_to_f32(half[k]);
    }
    *rows = gates;
    return 0;
}

/* By definition: mean of KL over the tokens, in the plainest way. */
static void definition(struct trace *t, uint64_t n, double *kl, double *top1, double *ratio)
{
    struct err e = { 0 };
    struct forward *f = NULL;
    struct pool *pool = NULL;
    const uint64_t *starts = trace_sequence_starts(t);
    uint32_t *ids = calloc(n, sizeof *ids);
    float *z[2] = { calloc(n * VOCAB, 4), calloc(n * VOCAB, 4) };
    uint64_t mine[64] = { 0 };
    size_t seqs = 0, same = 0, scored = 0;
    double nll[2] = { 0 };
    while (starts[seqs] < n)
        mine[seqs] = starts[seqs], seqs++;
    mine[seqs] = n;
    const struct forward_run run = { .tokens = ids, .starts = mine, .n_sequences = seqs };
    CHECK_MSG(!trace_tokens(t, 0, n, ids, &e) && !pool_new(1, NULL, &pool, &e) && !forward_new(model, pool, 64, &f, &e),
              "%s", e.msg);
    *kl = 0;
    for (int i = 0; i < 2; i++) {
        forward_set_substitute(f, i ? without_odd : NULL, NULL);
        CHECK(!forward_run(f, &run, &e) && !forward_logits(f, 0, n, z[i], &e));
    }
    for (size_t s = 0; s < seqs; s++)
        for (size_t k = mine[s]; k < mine[s + 1]; k++) {
            double p[2][VOCAB], sum[2] = { 0 };
            size_t top[2] = { 0 };
            for (int i = 0; i < 2; i++)
                for (size_t v = 0; v < VOCAB; v++) {
                    sum[i] += p[i][v] = exp((double)z[i][k * VOCAB + v]);
                    top[i] = p[i][v] > p[i][top[i]] ? v : top[i];
                }
            for (size_t v = 0; v < VOCAB; v++)
                *kl += p[0][v] / sum[0] * log(p[0][v] / sum[0] / (p[1][v] / sum[1])) / (double)n;
            same += top[0] == top[1];
            for (int i = 0; i < 2 && k + 1 < mine[s + 1]; i++)
                nll[i] -= log(p[i][ids[k + 1]] / sum[i]);
            scored += k + 1 < mine[s + 1];
        }
    *top1 = (double)same / (double)n;
    *ratio = exp((nll[1] - nll[0]) / (double)scored);
    forward_free(f);
    pool_free(pool);
    free(ids), free(z[0]), free(z[1]);
}

static struct trace_predict_losses losses; /* of the last measurement */

static unsigned inputs = ~0u;

static int measure(int all, uint64_t tokens, int threads, struct trace_predict_quality *rows, struct err *e)
{
    struct trace *t = NULL;
    struct trace_predictors *p = NULL;
    struct pool *pool = NULL;
    int n = 0;
    free(losses.row);
    losses = (struct trace_predict_losses){ 0 };
    CHECK(!trace_open(path, &t, e) && !trace_predictors_open(t, &p, e) && p && !pool_new(threads, NULL, &pool, e));
    int r = predictor_set_quality(p, t, t, all, model, inputs, tokens, pool, rows, &n, &losses, e);
    trace_predictors_close(p);
    trace_close(t);
    pool_free(pool);
    return r < 0 ? r : n;
}

static void costs(void)
{
        struct err e = { 0 };
    static struct trace_predict_quality a[TRACE_PREDICT_QUALITY], b[TRACE_PREDICT_QUALITY];
    struct trace *t = NULL;
    double kl, top1, ratio;
    int n = measure(1, N, 2, a, &e);
    CHECK_MSG(n >= 2 && n % 2 == 0, "%d: %s", n, e.msg);
    for (int i = 0; i < n / 2; i++) /* everything is computed: the same bits */
        CHECK(a[i].input == PREDICT_FFN && a[i].tokens == N && a[i].recall == 1 && a[i].density == 1 &&
              a[i].kl_mean == 0 && a[i].kl_max == 0 && a[i].top1 == 1 && a[i].ppl_ratio == 1 && a[i].true_density > 0.05 &&
              a[i].true_density < 0.3 && (!i || a[i].target > a[i - 1].target));
    const struct trace_predict_quality *half = &a[n - 1];
    CHECK(half->input == PREDICT_BLOCK && half->density == 9.0 / 16); /* the layer without one is computed whole */
    CHECK(!trace_open(path, &t, &e));
    definition(t, N, &kl, &top1, &ratio);
    trace_close(t);
    printf("# half of the neurons: KL %g (by definition %g), same top %g (%g), perplexity x %g (%g)\n", half->kl_mean, kl,
           half->top1, top1, half->ppl_ratio, ratio);
    CHECK(kl > 0.1 && fabs(half->kl_mean / kl - 1) < 1e-3 && fabs(half->top1 - top1) < 2.5 / N);
    CHECK(fabs(half->ppl_ratio / ratio - 1) < 1e-3 && half->kl_max > half->kl_mean);
    /* Held out of few sequences: the eighth run of 64 tokens. */
    CHECK(measure(0, 1000, 2, b, &e) == n && b[0].tokens == 64 && b[0].kl_max == 0 && b[n - 1].kl_mean > 0.1);
    CHECK(measure(0, 40, 2, a, &e) == n && a[0].tokens == 40);
    static struct trace_predict_loss of_two[2 * LAYERS];
    int n_losses = losses.n;
    memcpy(of_two, losses.row, (size_t)n_losses * sizeof *of_two);
    CHECK(measure(0, 40, 1, b, &e) == n && !memcmp(a, b, (size_t)n * sizeof *a)); /* whatever the threads */
    CHECK(n_losses == 2 * LAYERS - 1 && losses.n == n_losses && !memcmp(of_two, losses.row, (size_t)n_losses * sizeof *of_two));
    CHECK(measure(0, 8, 2, b, &e) == ERR_INPUT && strstr(e.msg, "too few"));
}

enum { LAYER = 2 };

/* h |down| of neurons that are left out in LAYER, by definition. */
static double seen, squares[FF];
static int now;

static int at_layer(void *ctx, int layer, struct err *e)
{
    (void)ctx, (void)e;
    now = layer;
    return 0;
}

static void add_odd(void *ctx, int worker, int block, const size_t *tokens, int n, float *h)
{
    (void)ctx, (void)worker, (void)block, (void)tokens;
    for (int t = 0; t < n && now == LAYER; t++)
        for (int i = 1; i < FF; i += 2)
            seen += (double)h[t * FF + i] * (double)h[t * FF + i] * squares[i];
}

static double energy_by_definition(struct trace *t, uint64_t n)
{
    struct err e = { 0 };
    struct forward *f = NULL;
    struct pool *pool = NULL;
    const struct gguf_tensor *down = model->layer[LAYER][MODEL_FFN_DOWN];
    const struct forward_probe probe = { .layer = at_layer, .neurons = add_odd };
    uint32_t *ids = calloc(n, sizeof *ids);
    static uint16_t half[FF];
    uint64_t mine[64] = { 0 };
    size_t seqs = 0;
    for (const uint64_t *starts = trace_sequence_starts(t); starts[seqs] < n; seqs++)
        mine[seqs] = starts[seqs];
    mine[seqs] = n;
    for (size_t d = 0; d < D; d++) {
        CHECK(gguf_read(gguf, down, d * down->row_bytes, half, sizeof half, &e) == 0);
        for (int i = 0; i < FF; i++)
            squares[i] += (double)quant_f16_to_f32(half[i]) * (double)quant_f16_to_f32(half[i]);
    }
    const struct forward_run run = { .tokens = ids, .starts = mine, .n_sequences = seqs, .probe = &probe };
    CHECK(!trace_tokens(t, 0, n, ids, &e) && !pool_new(1, NULL, &pool, &e) && !forward_new(model, pool, 64, &f, &e));
    layers_without = (1u << LAYER) - 1; /* as the layer's inputs are then */
    forward_set_substitute(f, without_odd, NULL);
    CHECK_MSG(!forward_run(f, &run, &e), "%s", e.msg);
    forward_free(f);
    pool_free(pool);
    free(ids);
    return seen / (double)n;
}

/* What is lost where: of predictors that leave odd neurons out, at every recall; what that costs the model where one layer does so. */
static void lose(void)
{
    struct err e = { 0 };
    static struct trace_predict_quality a[TRACE_PREDICT_QUALITY];
    struct trace *t = NULL;
    double kl, top1, ratio, sum = 0, low = 0;
    inputs = 1u << PREDICT_BLOCK;
    CHECK_MSG(measure(1, N, 2, a, &e) > 0 && losses.n == LAYERS - 1 && losses.n_targets > 2, "%d losses: %s", losses.n, e.msg);
    const struct trace_predict_loss *x = &losses.row[LAYER];
    CHECK(x->input == PREDICT_BLOCK && x->layer == LAYER && losses.row[WITHOUT].layer == WITHOUT + 1);
    for (int i = 0; i < TRACE_PREDICT_PARTS; i++)
        sum += (double)x->energy[1][i], low += (double)x->energy[losses.n_targets - 1][i];
    CHECK(sum == low && x->energy[0][0] > x->energy[0][15]); /* one threshold; hot neurons have more to lose */
    CHECK(!trace_open(path, &t, &e));
    double energy = energy_by_definition(t, N);
    layers_without = 1u << LAYER;
    definition(t, N, &kl, &top1, &ratio);
    trace_close(t);
    printf("# layer %d: energy %g (by definition %g), KL %g (%g)\n", LAYER, sum, energy, x->kl_per_energy * sum, kl);
    CHECK(fabs(sum / energy - 1) < 1e-3 && fabs(x->kl_per_energy * sum / kl - 1) < 1e-2);
    layers_without = inputs = ~0u;
}

int main(void)
{
    struct err e = { 0 };
    struct trace *t = NULL;
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "thermo-quality-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    unlink(path);
    CHECK_MSG(!gguf_open(MODEL, &gguf, &e) && !model_open(gguf, NULL, &model, &e), "%s", e.msg);
    trace_some(N_TOKENS);
    struct trace_predict_info i = { .tool = "test 1", .tier = "test", .method = "svd", .recall = 0.5 };
    CHECK_MSG(!trace_open(path, &t, &e), "%s", e.msg);
    i.model_hash = trace_info(t)->model_hash;
    trace_close(t);
    CHECK_MSG(!trace_predictors_save(path, path, &i, 0, 2 * LAYERS - 1, fetch, NULL, &e), "%s", e.msg);
    costs();
    lose();
    free(losses.row);
    unlink(path);
    model_close(model);
    gguf_close(gguf);
    return test_done();
}
