/* The search space of a layout: which variants are equivalent, how they are grouped, what they look up, and the tables and
 * residencies made of that. */
#include "planner/search/problem.h"
#include "planner/space/lookups.h"
#include "planner/space/miss_tables.h"
#include "planner/space/residencies.h"
#include "planner/space/space.h"
#include "planner/solve/solve.h"

#include "tests/planning_sample.h"
#include "tests/test.h"

#define LAYERS 5

/* Predictors of both inputs in a mix, layer 0 by the same one in both; then an exact variant. Layer 1 of the first is exact. */
static const signed char first_input[LAYERS] = { PREDICT_FFN, -1, PREDICT_FFN, PREDICT_FFN, PREDICT_FFN };
static const signed char second_input[LAYERS] = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_BLOCK, PREDICT_BLOCK, PREDICT_BLOCK };
static const uint32_t no_always[LAYERS];
static const struct space_variant variants[3] = {
    { PLAN_PREDICTED, 0.95, NULL, first_input, no_always, 1, 0 },
    { PLAN_PREDICTED, 0.95, NULL, second_input, no_always, 1, 0 },
    { .mode = PLAN_EXACT },
};

static struct inputs sample(int bytes)
{
    struct inputs in = sample_inputs(LAYERS, 256, 192, 1, 1);
    sample_predictors(&in, PREDICT_FFN, 16, 0.3);
    sample_predictors(&in, PREDICT_BLOCK, 32, 0.8);
    for (int i = 0; i < PREDICT_INPUTS * LAYERS; i++)
        in.predictors[i].bytes = (uint64_t)bytes;
    return in;
}

static void space_of(struct space *s, const struct inputs *in, const struct hw *hw, enum layout_form form, int every)
{
    const struct space_request q = { .variants = variants, .n_variants = 3, .every = every };
    struct layout l;
    struct err e = { 0 };
    if (inputs_layout(in, form, 64, -1, &l, &e) < 0 || space_init(s, in, hw, &l, &q, NULL, NULL, &e) < 0) {
        printf("Bail out! %s\n", e.msg);
        exit(1);
    }
}

static void test_variants(const struct hw *hw)
{
    struct inputs in = sample(1 << 16);
    struct space s;
    space_of(&s, &in, hw, LAYOUT_BUNDLE, 2);
    CHECK(space_mix_end(&s, 0) == 2 && space_mix_end(&s, 2) == 3);
    CHECK(space_equivalent(&s, 1, 0) == 0 && space_equivalent(&s, 1, 2) == 1 && space_equivalent(&s, 2, 0) == 2);
    CHECK(space_representative(&s, 0) == 0 && space_representative(&s, 3) == 2 && space_representative(&s, 4) == 4);
    CHECK(space_looks_up(&s, 0, 0) && !space_looks_up(&s, 0, 1) && !space_looks_up(&s, 2, 0) && space_looks_up_any(&s));
    CHECK(space_predictor_bytes(&s, 0, 0) == 1 << 16 && space_predictor_bytes(&s, 0, 1) == 0);
    CHECK(space_least_predictor_bytes(&s, &s.group[0], 0) == 1 << 16 && space_least_predictor_bytes(&s, &s.group[0], 1) == 0);
    in.equivalent = 1;
    CHECK(space_representative(&s, 3) == 0);
    in.equivalent = 0;
    space_done(&s);
    space_of(&s, &in, hw, LAYOUT_SPLIT, 0);
    CHECK(space_looks_up(&s, 0, 1) && space_looks_up(&s, 2, 0) && space_representative(&s, 3) == 3);
    space_done(&s);
    inputs_done(&in);
}

/* A mix; its variant of smaller rank by itself; the exact variant; and those with predictors again, streamed, where that saves. */
static void test_groups(const struct hw *hw)
{
    struct inputs in = sample(1 << 16), small = sample(64);
    struct space s;
    int streamed = 0;
    space_of(&s, &in, hw, LAYOUT_BUNDLE, 0);
    CHECK(s.group[0].first == 0 && s.group[0].n == 2 && s.group[0].predictors.rank == 32);
    CHECK(s.group[1].first == 0 && s.group[1].n == 1 && s.group[1].predictors.rank == 16);
    CHECK(s.group[2].first == 2 && s.group[2].n == 1 && s.group[2].predictors.rank == 0);
    for (int i = 0; i < s.n_groups; i++) {
        const struct space_group *g = &s.group[i];
        streamed += g->buffers > 0;
        CHECK(!g->buffers || (i >= 3 && g->predictors.rank > 0 && space_least_predictor_bytes(&s, g, 0) == 0));
    }
    CHECK(streamed >= 2);
    space_done(&s);
    space_of(&s, &small, hw, LAYOUT_BUNDLE, 0);
    CHECK(s.n_groups == 3);
    space_done(&s);
    inputs_done(&in);
    inputs_done(&small);
}

static int same_steps(const struct inputs_steps *a, const struct inputs_steps *b)
{
    return a->n_steps == b->n_steps && !memcmp(a->start, b->start, ((size_t)a->n_steps + 1) * sizeof *a->start) &&
           !memcmp(a->at, b->at, a->start[a->n_steps] * sizeof *a->at);
}

static void test_lookups(const struct hw *hw)
{
    struct inputs in = sample(4096);
    struct inputs_steps own = { 0 };
    struct space s;
    struct lookups x;
    struct err e = { 0 };
    space_of(&s, &in, hw, LAYOUT_SPLIT, 0);
    CHECK(lookups_init(&x, &s, &e) == 0 && lookups_make(&x, 0, 3, 0, 100, &e) == 0);
    CHECK(lookups_at(&x, 0, 0)->n_steps == 100 && lookups_at(&x, 2, 0)->n_steps == 100);
    CHECK(!lookups_has(&s, 1, 0) && lookups_at(&x, 1, 0)->n_steps == 0 && lookups_at(&x, 0, 2)->n_steps == 0);
    CHECK(lookups_steps(&s, 0, 0, 100, &own, &e) == 0 && same_steps(&own, lookups_at(&x, 0, 0)) &&
          !same_steps(&own, lookups_at(&x, 2, 0)));
    inputs_steps_done(&own);
    CHECK(lookups_make(&x, 1, 1, 2, UINT64_MAX, &e) == 0 && lookups_at(&x, 1, 2)->n_steps == 256 && lookups_at(&x, 2, 2)->n_steps == 0);
    lookups_done(&x);
    uint64_t window = lookups_window(&s, 2, 0);
    for (int i = 0; i <= in.h.n_ff; i++)
        in.curves[0].cum[i] *= 4;
    CHECK(lookups_window(&s, 2, 0) < window && lookups_window(&s, 2, 0) >= 128 && lookups_window(&s, 2, 1) > 128);
    space_done(&s);
    inputs_done(&in);
}

/* Token t of layer l uses experts (t / 4 + l) and the next but one, of eight. */
static int routes(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    int n = (int)(in->n_tokens < max_steps ? in->n_tokens : max_steps);
    struct inputs_steps s = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *s.start),
                              .at = malloc((size_t)n * 2 * sizeof *s.at) };
    (void)e;
    for (int t = 0; t <= n; t++) {
        uint32_t a = (uint32_t)(t / 4 + layer) % 8, b = (a + 2) % 8;
        s.start[t] = 2 * (uint32_t)t;
        if (t < n) {
            s.at[2 * t] = (a < b ? a : b) * (uint32_t)in->h.n_ff;
            s.at[2 * t + 1] = (a < b ? b : a) * (uint32_t)in->h.n_ff;
        }
    }
    *out = s;
    return 0;
}

/* Dense mode: tiles of the experts that the routes name are looked up, by routes alone; without routes, or in another form, nothing
 * is. */
static void test_experts(const struct hw *hw)
{
    struct inputs in = sample_inputs(2, 256, 576, 8, 1); /* three tiles an expert, the last of 64 neurons */
    const struct space_variant dense = { .mode = PLAN_DENSE };
    const struct problem_request q = { .space.variants = &dense, .space.n_variants = 1, .policy = -1 };
    struct problem p;
    struct layout l;
    struct inputs_steps s = { 0 };
    struct err e = { 0 };
    in.h.act = MODEL_ACT_SILU;
    in.n_tokens = 400;
    in.window_tokens = 0;
    in.steps = NULL;
    for (int i = 0; i < 2 * LAYOUT_ROLES; i++)
        in.layers[i / LAYOUT_ROLES].ffn_type[i % LAYOUT_ROLES] = QUANT_Q8_0;
    CHECK(inputs_layout(&in, LAYOUT_TILES, 0, -1, &l, &e) == 0 && problem_prepare(&p, &in, hw, &l, &q, NULL, &e) == 0);
    CHECK(!space_looks_up(&p.space, 0, 0) && !space_has_lists(&in, PLAN_DENSE) && !p.tables.table[0]);
    problem_done(&p);
    in.routes = routes;
    CHECK(problem_prepare(&p, &in, hw, &l, &q, NULL, &e) == 0);
    CHECK(space_looks_up(&p.space, 0, 1) && space_has_lists(&in, PLAN_DENSE) && !space_has_lists(&in, PLAN_EXACT) &&
          lookups_has(&p.space, 0, 0));
    CHECK(lookups_steps(&p.space, 0, 1, 6, &s, &e) == 0 && s.n_steps == 6 && s.start[6] == 36);
    const uint32_t want[6] = { 576, 832, 1088, 3 * 576, 3 * 576 + 256, 3 * 576 + 512 }; /* experts 1 and 3 */
    CHECK(!memcmp(s.at, want, sizeof want));
    inputs_steps_done(&s);

    /* Six units a step. Every fourth step both experts change: in small caches both miss; those of four experts have the one that was
     * used two changes ago; the other was used so long ago that only all eight have it. */
    const struct replay_table *t = miss_tables_at(&p.tables, 0, 0, 0);
    CHECK(fabs(t->lookups[0] - 6) < 1e-9);
    for (int i = 0; i < REPLAY_SIZES; i++) {
        const struct cost_residency k = { .slots = t->slots[0][i] };
        const struct cost_choice c = { .mode = PLAN_DENSE };
        const struct cost_flow f = cost_flow_of(&in, layout_of(&p.space.shapes, 0), &c, 0, 0, t, &k);
        double misses = k.slots >= 24 ? 0 : k.slots >= 12 ? 3 / 4. : k.slots >= 6 && k.slots < 9 ? 6 / 4. : -1;
        CHECK(!f.ahead && f.stream_bytes <= 0 && f.lookups > 5.99);
        CHECK(fabs(f.mu - f.reads / 6) < 1e-9 && (misses < 0 || fabs(f.reads - misses) < 0.03));
    }
    CHECK(residencies_at(&p.residencies, 0, 0, 0)->n > 4);
    problem_done(&p);

    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 0, -1, &l, &e) == 0 && problem_prepare(&p, &in, hw, &l, &q, NULL, &e) == 0);
    CHECK(!space_looks_up(&p.space, 0, 0) && !p.tables.table[0]);
    problem_done(&p);
    inputs_done(&in);
}

static int same_table(const struct replay_table *a, const struct replay_table *b)
{
    return !memcmp(a->lookups, b->lookups, sizeof a->lookups) && !memcmp(a->misses, b->misses, sizeof a->misses);
}

/* Of represented layers as well; copies are the same, and spaces that replay other lists are told apart. */
static void test_tables(const struct hw *hw)
{
    struct inputs in = sample(4096);
    struct space s, every, bundles;
    struct miss_tables all, some, copied;
    struct err e = { 0 };
    space_of(&s, &in, hw, LAYOUT_SPLIT, 0);
    space_of(&every, &in, hw, LAYOUT_SPLIT, 2);
    space_of(&bundles, &in, hw, LAYOUT_BUNDLE, 0);
    miss_tables_init(&all, &s, CACHE_LRU);
    miss_tables_init(&some, &every, -1);
    miss_tables_init(&copied, &every, -1);
    CHECK(miss_tables_at(&all, 0, 0, 0) == NULL);
    CHECK(miss_tables_replay(&all, &s, CACHE_LRU, &e) == 0 && miss_tables_replay(&some, &every, CACHE_LRU, &e) == 0);
    CHECK(miss_tables_at(&all, 0, 0, 2)->lookups[0] > 0 && miss_tables_at(&all, 0, 0, 2)->misses[0][1] > 0);
    CHECK(!same_table(miss_tables_at(&all, 0, 0, 2), miss_tables_at(&all, 0, 0, 3)));
    CHECK(same_table(miss_tables_at(&all, 0, 0, 2), miss_tables_at(&some, 0, 0, 2)) &&
          same_table(miss_tables_at(&all, 0, 0, 2), miss_tables_at(&some, 0, 0, 3)));
    CHECK(miss_tables_equivalent(&every, &s) && !miss_tables_equivalent(&bundles, &s));
    CHECK(miss_tables_copy(&copied, &every, &all, &e) == 0);
    for (int l = 0; l < LAYERS; l++)
        CHECK(same_table(miss_tables_at(&copied, 2, 0, l), miss_tables_at(&some, 2, 0, l)));
    miss_tables_done(&all);
    miss_tables_done(&some);
    miss_tables_done(&copied);
    space_done(&s);
    space_done(&every);
    space_done(&bundles);
    inputs_done(&in);
}

/* The policy that is chosen misses no more than the other at the three sizes that it is chosen by. */
static void test_policies(const struct hw *hw)
{
    static const int size[3] = { 8, 4, 2 };
    struct inputs in = sample(4096);
    struct space s;
    struct miss_tables t;
    struct err e = { 0 };
    space_of(&s, &in, hw, LAYOUT_SPLIT, 0);
    miss_tables_init(&t, &s, -1);
    CHECK(miss_tables_replay(&t, &s, -1, &e) == 0 && t.policy[0] == t.policy[1]);
    double missed[CACHE_POLICIES] = { 0 };
    for (int l = 0; l < LAYERS; l++) {
        struct inputs_steps steps;
        CHECK(lookups_steps(&s, 2, l, 512, &steps, &e) == 0);
        for (int k = 0; k < CACHE_POLICIES; k++)
            for (int i = 0; i < 3; i++) {
                double lookups, misses;
                uint32_t slots = s.shapes.kind[0].part[1].n_units / (uint32_t)size[i];
                CHECK(replay_point(&steps, &s.shapes.kind[0], 1, 1, 1, (enum cache_policy)k, 0, slots, &lookups, &misses, &e) == 0);
                missed[k] += misses;
            }
        inputs_steps_done(&steps);
    }
    printf("# misses: %g with LRU, %g with LFU\n", missed[CACHE_LRU], missed[CACHE_LFU]);
    CHECK(missed[t.policy[2]] < missed[!t.policy[2]]);
    miss_tables_done(&t);
    space_done(&s);
    inputs_done(&in);
}

/* The first neurons alone ever fire: a cache of their units misses nothing after their first reads. */
static int few_steps(const struct inputs *in, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    uint32_t n = 0;
    int r = sample_steps(in, layer, max_steps, out, e);
    for (int t = 0; r == 0 && t < out->n_steps; t++) {
        uint32_t from = out->start[t];
        out->start[t] = n;
        for (uint32_t i = from; i < out->start[t + 1]; i++)
            if (out->at[i] < 32)
                out->at[n++] = out->at[i];
    }
    if (r == 0)
        out->start[out->n_steps] = n;
    return r;
}

static void test_residencies(const struct hw *hw)
{
    struct inputs in = sample(4096);
    in.steps = few_steps;
    struct space s;
    struct miss_tables t;
    struct residencies r;
    struct err e = { 0 };
    space_of(&s, &in, hw, LAYOUT_SPLIT, 0);
    miss_tables_init(&t, &s, CACHE_LRU);
    CHECK(miss_tables_replay(&t, &s, CACHE_LRU, &e) == 0 && residencies_init(&r, &s, &t, &e) == 0);
    CHECK(residencies_at(&r, 1, 0, 0)->n == 0 && residencies_at(&r, 1, 0, 2)->n > 0);
    const struct residencies_list *k = residencies_at(&r, 2, 0, 0);
    int bad = 0;
    for (int i = 0; i < k->n; i++) {
        int64_t bytes;
        bad += residencies_bytes(&s, 0, &k->point[i].residency, &bytes, &e) < 0 || bytes != k->point[i].bytes;
        bad += i > 0 && bytes < k->point[i - 1].bytes;
        bad += k->point[i].cold < 0 || k->point[i].cold >= k->n_cold || k->point[i].residency.variant != 2;
    }
    CHECK(bad == 0 && k->n > 10);
    for (int l = 0; l < in.n_layers; l++) { /* nothing of a whole layer is looked up, so no cache that has all is as good */
        int whole = 0;
        const struct residencies_list *of = residencies_at(&r, 2, 0, l);
        for (int i = 0; i < of->n; i++)
            whole += of->point[i].residency.slots == 0 && of->point[i].residency.hot[0] == (uint32_t)in.h.n_ff &&
                     of->point[i].residency.hot[1] == (uint32_t)in.h.n_ff && of->point[i].flow.lookups <= 0;
        CHECK(of->n == 0 || whole == 1);
    }
    CHECK(k->point[0].bytes == 0 && k->point[0].flow.stream_bytes > 0 && k->point[0].flow.reads > 0);
    const struct cost_flow *all = &k->point[k->n - 1].flow;
    CHECK(all->stream_bytes <= 0 && all->reads <= 0);
    residencies_read_rules(&r, &s, &t, 0);
    CHECK(k->point[0].flow.how && k->point[0].flow.how->reads > 0);
    residencies_done(&r);
    miss_tables_done(&t);
    space_done(&s);
    inputs_done(&in);
}

int main(void)
{
    struct hw hw = sample_hw(1, 2, 50000);
    test_variants(&hw);
    test_groups(&hw);
    test_lookups(&hw);
    test_tables(&hw);
    test_policies(&hw);
    test_residencies(&hw);
    test_experts(&hw);
    hw_free(&hw);
    return test_done();
}
