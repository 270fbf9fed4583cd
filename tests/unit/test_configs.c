/* Every configuration priced by itself, against what configs_fill decided by bounds: bounds hold, and a configuration that was not
 * priced is not worth it; also where curves are kept from limits that were filled before. */
#include "planner/heap.h"
#include "planner/planning/planning.h"
#include "planner/planning/variants.h"
#include "planner/search/price.h"
#include "planner/search/problem.h"

#include "tests/planning_sample.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

/* Storage whose rates and CPU time jump about with depth, for either backend: no depth is the best in everything. */
static void ragged_storage(struct hw *h)
{
    int n = h->n_storage;
    for (int i = 0; i < n; i++) {
        struct hw_storage *s = &h->storage_points[i], *t = &h->storage_points[h->n_storage++];
        double bw = s->bytes_per_s.p50 * (0.7 + 0.6 * sample_uniform());
        s->bytes_per_s = (struct hw_dist){ bw, bw, bw };
        s->cpu_ns_per_read = 1000 + 30000 * sample_uniform();
        *t = *s;
        t->backend = HW_PREAD;
        t->cpu_ns_per_read *= 2 * sample_uniform();
    }
}

struct seen {
    int configs, decided, feasible, bad, rules;
};

/* Is each of the space's rules for coalesced reads there with all that the first is there with? */
static int has_all_rules(const struct problem *p, const struct limits *lim)
{
    int n[REPLAY_RULES] = { 0 }, rules = lim->model == PLAN_COST_PAPER ? 1 : p->space.n_rules, all = 1;
    for (int i = 0; i < p->configs.sp.n_configs; i++)
        n[p->configs.choices[i].rule]++;
    for (int i = 1; i < REPLAY_RULES; i++)
        all &= n[i] == (i < rules ? n[0] : 0);
    return all;
}

/* A configuration's own bounds against those it has. */
static void check_config(struct problem *p, int i, int64_t objective, struct seen *seen)
{
    const struct solve_config *c = &p->configs.sp.configs[i];
    struct solve_config own = { .depth = c->depth, .fixed_bytes = c->fixed_bytes };
    struct err e = { 0 };
    memcpy(own.n, c->n, sizeof own.n);
    if (price_curves(&p->space, &p->residencies, &p->configs.choices[i], c->depth, &own, &e) < 0 ||
        solve_bound(&p->configs.sp, &own, &e) < 0) {
        printf("# %s\n", e.msg);
        seen->bad++;
        return;
    }
    int same = c->bound == own.bound && c->best_ticks == own.best_ticks && c->need_bytes == own.need_bytes &&
               c->relaxed_ticks == own.relaxed_ticks;
    int least = c->bound <= own.bound && c->best_ticks <= own.best_ticks && c->need_bytes <= own.need_bytes &&
                c->relaxed_ticks <= own.relaxed_ticks;
    int may = solve_cores_ok(&p->configs.sp, c), worth = may && own.bound - own.bound / 101 <= objective;
    if (!least || (!same && (worth || c->curves || objective == SOLVE_NEVER || (may && c->bound <= objective)))) {
        printf("# %s depth %d threads %d rule %d: bound %lld, its own %lld, objective %lld\n",
               hw_backend_name(p->configs.choices[i].backend), c->depth, p->configs.choices[i].threads,
               p->configs.choices[i].rule, (long long)c->bound, (long long)own.bound, (long long)objective);
        seen->bad++;
    }
    seen->configs++;
    seen->decided += !same;
    solve_config_done(&p->configs.sp, &own);
}

/* Other limits before this one: of one whose curves are others (a longer context takes attention longer), and of one whose curves are
 * the same within other bounds. */
static int fill_after_others(struct problem *p, const struct limits *lim, struct err *e)
{
    struct limits longer = *lim, larger = *lim;
    longer.context *= 2;
    larger.memory_bytes += larger.memory_bytes / 3;
    int r = problem_fill(p, &longer, e);
    r = r < 0 ? r : problem_fill(p, &larger, e);
    return r < 0 ? r : problem_fill(p, lim, e);
}

static void check_problem(const struct inputs *in, const struct hw *hw, const struct request *q, enum layout_form form,
                          struct limits *lim, struct seen *seen)
{
    struct problem p;
    struct variants variants;
    struct layout l;
    struct err e = { 0 };
    struct solve_result res = { .objective = SOLVE_NEVER };
    if (inputs_layout(in, form, 64, -1, &l, &e) < 0 || variants_new(q, in, &l, &variants, &e) < 0) {
        printf("# %s\n", e.msg);
        seen->bad++;
        return;
    }
    struct problem_request ask = { .space.variants = variants.variant, .space.n_variants = variants.n, .policy = CACHE_LRU };
    if (problem_prepare(&p, in, hw, &l, &ask, NULL, &e) < 0 || fill_after_others(&p, lim, &e) < 0 ||
        solve_greedy(&p.configs.sp, &res, &e) < 0) {
        printf("# %s\n", e.msg);
        seen->bad++;
    }
    seen->bad += !has_all_rules(&p, lim);
    seen->rules += p.space.n_rules > 1;
    seen->feasible += res.feasible;
    for (int i = 0; i < p.configs.sp.n_configs; i++)
        check_config(&p, i, res.feasible ? res.objective : SOLVE_NEVER, seen);
    solve_result_done(&res);
    variants_done(&variants);
    problem_done(&p);
}

/* Random models and devices, exact and predicted, both cost models, a limit on cores or speed now and then. */
static void test_bounds(int predicted)
{
    struct seen seen = { 0 };
    int n = 14;
    for (int i = 0; i < n; i++) {
        sample_state = (uint64_t)i + 7;
        struct inputs in = sample_inputs(2 + i % 3, 256, 192, i % 7 == 6 ? 2 : 1, 1 << i % 3);
        struct hw hw = sample_hw(1 + i % 2, 2 + i % 3, 10000 + 90000 * sample_uniform());
        struct request q;
        struct err e = { 0 };
        uint64_t floor_bytes;
        request_init(&q);
        q.context = 64;
        q.mode = predicted ? PLAN_PREDICTED : PLAN_EXACT;
        ragged_storage(&hw);
        if (predicted)
            sample_predictors(&in, PREDICT_FFN, 32, 0.3);
        if (predicted && i % 4 < 2)
            sample_predictors(&in, PREDICT_BLOCK, 32, 0.8);
        for (int k = 0; predicted && k < PREDICT_INPUTS * in.n_layers * in.n_blocks && i % 2; k++)
            in.predictors[k].bytes *= 32; /* enough to be worth streaming */
        CHECK_MSG(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0, "%s", e.msg);
        struct limits lim = { .memory_bytes = floor_bytes + (uint64_t)(600000 * sample_uniform()), .context = 64,
                                      .max_batch = inputs_batch_sizes[in.n_batches - 1], .prefill_chunk = 1, .kv_type = KV_F16,
                                      .cores = { i % 5 == 3 ? 1 : -1, -1 }, .min_tokens_per_s = i % 8 == 5 ? 1e6 : 0,
                                      .model = i % 6 == 4 ? PLAN_COST_PAPER : PLAN_COST_MEASURED };
        check_problem(&in, &hw, &q, i % 3 ? LAYOUT_BUNDLE : LAYOUT_SPLIT, &lim, &seen);
        inputs_done(&in);
        hw_free(&hw);
    }
    printf("# %d problems, %d feasible: %d configurations, %d decided by bounds\n", n, seen.feasible, seen.configs, seen.decided);
    CHECK(seen.bad == 0);
    CHECK(seen.feasible > n / 2 && seen.feasible < n && seen.decided > seen.configs / 4 && seen.rules > 0);
}

int main(void)
{
    heap_keep();
    test_bounds(0);
    test_bounds(1);
    return test_done();
}
