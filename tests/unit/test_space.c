/* The search space of a layout: which variants are equivalent, how they are grouped, what they look up, and the tables and
 * residencies made of that. */
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
    { PLAN_PREDICTED, 0.95, first_input, no_always, 1, 0 },
    { PLAN_PREDICTED, 0.95, second_input, no_always, 1, 0 },
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

static void test_residencies(const struct hw *hw)
{
    struct inputs in = sample(4096);
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
    hw_free(&hw);
    return test_done();
}
