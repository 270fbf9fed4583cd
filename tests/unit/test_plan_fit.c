/* What gives way where there is less memory than a plan is for, and in which order; what is left out is as little as the steps
 * allow. */
#include "common/plan/plan_fit.h"
#include "tests/test.h"

#include <string.h>

#define LAYERS 4
#define N_FF   1280

struct sample {
    struct budget_model m;
    uint32_t hot[LAYERS * 2], cold[LAYERS * 2];
    uint64_t predictors[LAYERS];
    unsigned char streamed[LAYERS];
    struct plan_fit f;
};

/* Half of the gates, a quarter of the rest and slots for as much; memory: as much as that takes. */
static void sample_init(struct sample *s, enum layout_form form, uint64_t predictor)
{
    static const uint32_t types[3] = { QUANT_F16, QUANT_F16, QUANT_F16 };
    struct layout l;
    struct err e;
    *s = (struct sample){ .m = { .dense_bytes = 1 << 20, .n_tensors = 60, .vocab_text_bytes = 30000, .meta_bytes = 9000 } };
    s->m.h = (struct model_hparams){ .n_layers = LAYERS, .d_model = 256, .n_heads = 8, .n_kv_heads = 4, .head_dim = 32,
                                     .n_ff = N_FF, .n_vocab = 4096, .n_ctx_train = 512 };
    layout_default(&l, form, types);
    CHECK(layout_derive(&l, 256, N_FF, &s->m.shapes, &e) == 0);
    int parts = s->m.shapes.kind[0].n_parts;
    for (int i = 0; i < LAYERS * parts; i++) {
        s->hot[i] = i % parts == 0 ? N_FF / 2 : N_FF / 4;
        s->cold[i] = i % parts == parts - 1 ? s->m.shapes.kind[0].part[parts - 1].n_units / 4 : 0;
    }
    s->f = (struct plan_fit){ .model = &s->m, .hot = s->hot, .cold = s->cold,
                              .choice = { .context = 64, .kv_type = KV_F16, .max_batch = 1, .prefill_chunk = 4, .threads = 2,
                                          .io_lanes = 1, .queue_depth = 16 } };
    for (int i = 0; i < LAYERS && predictor; i++) {
        budget_add_predictor(&s->f.choice.predictors, &s->m.shapes.kind[0], 64, predictor, 512, 128, 0);
        s->predictors[i] = predictor;
    }
    if (predictor) {
        s->f.predictors = s->predictors;
        s->f.streamed = s->streamed;
        s->f.choice.predictor_bytes = plan_fit_predictor_bytes(&s->f);
    }
    struct budget_choice c = s->f.choice;
    struct budget b;
    c.hot = s->hot;
    c.cold = s->cold;
    CHECK(budget_compute(&s->m, &c, &b, &e) == 0);
    s->f.memory_bytes = b.total;
}

static uint64_t sum(const uint32_t *v, int n, int parts, int part)
{
    uint64_t all = 0;
    for (int i = part; i < n; i += parts)
        all += v[i];
    return all;
}

static void test_enough(void)
{
    struct sample s, was;
    struct err e;
    sample_init(&s, LAYOUT_SPLIT, 0);
    was = s;
    CHECK(plan_fit(&s.f, &e) == 0 && !s.f.scaled && !s.f.uncoalesced && s.f.budget.total == s.f.memory_bytes);
    CHECK(!memcmp(s.hot, was.hot, sizeof s.hot) && !memcmp(s.cold, was.cold, sizeof s.cold));
}

/* A little less: gates stay, what goes is within a step of what has to. Much less: only gates are left. */
static void test_order(void)
{
    struct sample s;
    struct err e;
    sample_init(&s, LAYOUT_SPLIT, 0);
    uint64_t gates = sum(s.hot, LAYERS * 2, 2, 0), others = sum(s.hot, LAYERS * 2, 2, 1);
    s.f.memory_bytes -= 100000;
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.scaled && s.f.budget.total <= s.f.memory_bytes);
    CHECK(sum(s.hot, LAYERS * 2, 2, 0) == gates && sum(s.hot, LAYERS * 2, 2, 1) < others);
    CHECK(s.f.memory_bytes - s.f.budget.total < budget_hot_bytes(&s.m.shapes.kind[0], 1, 2 * s.m.shapes.kind[0].cluster_neurons));
    sample_init(&s, LAYOUT_SPLIT, 0);
    struct budget_choice c = s.f.choice;
    CHECK(budget_compute(&s.m, &c, &s.f.budget, &e) == 0);
    s.f.memory_bytes = s.f.budget.floor + budget_hot_bytes(&s.m.shapes.kind[0], 0, N_FF / 2);
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.scaled && s.f.budget.total <= s.f.memory_bytes);
    uint64_t left = sum(s.hot, LAYERS * 2, 2, 0);
    CHECK(left > 0 && left < gates && sum(s.hot, LAYERS * 2, 2, 1) == 0 && sum(s.cold, LAYERS * 2, 2, 1) == 0);
    s.f.memory_bytes = s.f.budget.floor - 1;
    CHECK(plan_fit(&s.f, &e) == ERR_INFEASIBLE && strstr(e.msg, "context 64") && strstr(e.msg, "16 reads in flight"));
}

/* Bundles have one part, of which all is scaled. */
static void test_bundles(void)
{
    struct sample s;
    struct err e;
    sample_init(&s, LAYOUT_BUNDLE, 0);
    uint64_t hot = sum(s.hot, LAYERS, 1, 0), cold = sum(s.cold, LAYERS, 1, 0);
    s.f.memory_bytes -= 400000;
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.scaled && s.f.budget.total <= s.f.memory_bytes);
    CHECK(sum(s.hot, LAYERS, 1, 0) < hot && sum(s.hot, LAYERS, 1, 0) > 0 && sum(s.cold, LAYERS, 1, 0) < cold);
}

/* Buffers of large reads go where the floor does not fit with them, and only there. */
static void test_reads(void)
{
    struct sample s, small;
    struct err e;
    sample_init(&s, LAYOUT_SPLIT, 0);
    s.f.choice.read_bytes = 1 << 20;
    small = s;
    s.f.memory_bytes += 16 << 20;
    CHECK(plan_fit(&s.f, &e) == 0 && !s.f.uncoalesced && s.f.choice.read_bytes == 1 << 20);
    small.f.model = &small.m;
    small.f.hot = small.hot, small.f.cold = small.cold;
    CHECK(plan_fit(&small.f, &e) == 0 && small.f.uncoalesced && small.f.choice.read_bytes == 0 && !small.f.scaled);
}

/* The chunk of prompts gives way, if it may, as far as the floor asks, and no further; nothing does where memory is enough. */
static void test_chunk(void)
{
    struct sample s;
    struct err e;
    sample_init(&s, LAYOUT_SPLIT, 0);
    CHECK(budget_compute(&s.m, &s.f.choice, &s.f.budget, &e) == 0);
    uint64_t floor = s.f.budget.floor;
    s.f.choice.prefill_chunk = 256;
    s.f.memory_bytes = floor;
    CHECK(plan_fit(&s.f, &e) == ERR_INFEASIBLE && strstr(e.msg, "prefill chunk 256"));
    s.f.lower_chunk = 1;
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.choice.prefill_chunk == 4 && s.f.budget.total <= floor && s.f.scaled);
    s.f.choice.prefill_chunk = 256;
    s.f.memory_bytes = UINT64_MAX / 4;
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.choice.prefill_chunk == 256);
}

static void test_predictors(void)
{
    struct sample s;
    struct err e;
    int streamed = 0;
    sample_init(&s, LAYOUT_SPLIT, 1 << 20);
    CHECK(budget_compute(&s.m, &s.f.choice, &s.f.budget, &e) == 0); /* without neurons */
    s.f.memory_bytes = s.f.budget.total - (1 << 20);
    CHECK(plan_fit(&s.f, &e) == 0 && s.f.scaled && s.f.budget.total <= s.f.memory_bytes);
    for (int l = 0; l < LAYERS; l++)
        streamed += s.streamed[l];
    CHECK(streamed > 0 && streamed < LAYERS && !s.streamed[0] && s.streamed[LAYERS - 1]);
    CHECK(s.f.choice.predictor_buffers >= s.f.choice.predictors.least &&
          s.f.choice.predictor_bytes == (uint64_t)(LAYERS - streamed) << 20);
    sample_init(&s, LAYOUT_SPLIT, 64);
    memset(s.streamed, 1, sizeof s.streamed);
    s.f.choice.predictor_buffers = 2;
    s.f.choice.predictor_bytes = 0;
    s.f.memory_bytes -= 400000;
    CHECK(plan_fit(&s.f, &e) == 0 && !s.streamed[1] && s.f.choice.predictor_buffers == 0 && s.f.choice.predictor_bytes == 64 * LAYERS);
}

int main(void)
{
    test_enough();
    test_order();
    test_bundles();
    test_reads();
    test_chunk();
    test_predictors();
    return test_done();
}
