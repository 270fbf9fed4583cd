/* Plans for several batch sizes against every choice: cores and depth of each batch size, and residencies of all layers, priced one by
 * one. The gap that a plan states holds for the best of them. */
#include "planner/planning/planning.h"
#include "planner/search/account.h"
#include "tests/planning_sample.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CONFIGS 64
#define MOST_POINTS  600
#define LAYERS       2

struct every {
    struct problem p;
    struct limits lim;
    int n_configs, n_batches, n_points[LAYERS];
    double weight[SOLVE_MAX_BATCHES];
    const struct cost_choice *choice[MOST_CONFIGS];
    double (*ns)[SOLVE_MAX_BATCHES][LAYERS][MOST_POINTS];  /* [config]: of a layer */
    double rest[MOST_CONFIGS][SOLVE_MAX_BATCHES];           /* of a step beside its layers */
};

static const struct residencies_list *list_of(const struct every *x, int layer)
{
    return residencies_at(&x->p.residencies, 0, 0, layer);
}

/* All layers take their i-th residency, at one configuration and batch size. */
static int price(struct every *x, int config, int b, int i, struct err *e)
{
    struct plan_layer_figures layers[LAYERS];
    struct plan_figures f = { .layers = layers };
    struct cost_residency at[LAYERS];
    for (int l = 0; l < LAYERS; l++)
        at[l] = list_of(x, l)->point[i < x->n_points[l] ? i : x->n_points[l] - 1].residency;
    int r = problem_predict(&x->p, x->choice[config], b, at, &f, e);
    if (r < 0)
        return r;
    x->rest[config][b] = f.step_ns;
    for (int l = 0; l < LAYERS; l++) {
        x->rest[config][b] -= layers[l].total_ns;
        if (i < x->n_points[l])
            x->ns[config][b][l][i] = layers[l].total_ns;
    }
    return 0;
}

/* Weighed time at these residencies, each batch size with its fastest configuration of no more threads and no deeper a queue than `most`
 * has, and with its back end and rule. */
static double objective_at(const struct every *x, const struct cost_choice *most, const int *point)
{
    double sum = 0;
    for (int b = 0; b < x->n_batches; b++) {
        double best = INFINITY;
        for (int c = 0; c < x->n_configs; c++) {
            const struct cost_choice *o = x->choice[c];
            if (o->threads > most->threads || o->depth > most->depth || o->backend != most->backend || o->rule != most->rule)
                continue;
            double t = x->rest[c][b];
            for (int l = 0; l < LAYERS; l++)
                t += x->ns[c][b][l][point[l]];
            best = t < best ? t : best;
        }
        sum += x->weight[b] * best;
    }
    return sum;
}

/* The least objective of all that fit; bytes in units of SOLVE_BYTE_UNIT. */
static double optimum(const struct every *x, struct err *e)
{
    double best = INFINITY;
    for (int c = 0; c < x->n_configs; c++) {
        struct budget fixed;
        if (account_of(&x->p.space, x->choice[c], &x->lim, NULL, &fixed, e) < 0)
            return NAN;
        int64_t room = (int64_t)(x->lim.memory_bytes / SOLVE_BYTE_UNIT) - (int64_t)(fixed.total / SOLVE_BYTE_UNIT);
        for (int i = 0; i < x->n_points[0]; i++)
            for (int k = 0; k < x->n_points[1]; k++) {
                if (list_of(x, 0)->point[i].bytes + list_of(x, 1)->point[k].bytes > room)
                    continue;
                double t = objective_at(x, x->choice[c], (int[]){ i, k });
                best = t < best ? t : best;
            }
    }
    return best;
}

static int prepare(struct every *x, const struct inputs *in, const struct hw *hw, const struct plan *plan, struct err *e)
{
    const struct plan_limit *l = &plan->limits[0];
    struct space_variant mode = { .mode = l->mode };
    struct problem_request ask = { .space.variants = &mode, .space.n_variants = 1, .policy = (int)l->policy };
    int r = problem_prepare(&x->p, in, hw, &plan->layout, &ask, NULL, e);
    if (r < 0)
        return r;
    planning_limits(plan, l, &x->lim);
    if ((r = problem_fill(&x->p, &x->lim, e)) < 0)
        return r;
    x->n_batches = in->n_batches;
    for (int b = 0; b < x->n_batches; b++)
        x->weight[b] = (double)plan->request.weight[b] * l->max_batch / inputs_batch_sizes[b];
    for (int i = 0; i < LAYERS; i++)
        x->n_points[i] = list_of(x, i)->n < MOST_POINTS ? list_of(x, i)->n : MOST_POINTS;
    for (int c = 0; c < x->p.configs.sp.n_configs && c < MOST_CONFIGS; c++)
        x->choice[x->n_configs++] = &x->p.configs.choices[c];
    x->ns = malloc(MOST_CONFIGS * sizeof *x->ns);
    for (int c = 0; c < x->n_configs && r == 0; c++)
        for (int b = 0; b < x->n_batches && r == 0; b++)
            for (int i = 0; (i < x->n_points[0] || i < x->n_points[1]) && r == 0; i++)
                r = price(x, c, b, i, e);
    return r;
}

/* 1: the plan is no better than the best of all choices, and that no better than the plan's gap says. */
static int try_one(int seed, double *largest_gap, double *lost)
{
    sample_state = (uint64_t)seed * 7919 + 5;
    int max_batch = 2 << seed % 2, wide = 64 * (1 + (int)(2 * sample_uniform()));
    struct inputs in = sample_inputs(LAYERS, 128, wide, 1, max_batch);
    struct hw hw = sample_hw(1, 1 + (int)(3 * sample_uniform()), 10000 + 90000 * sample_uniform());
    struct every *x = calloc(1, sizeof *x);
    struct notes notes = { 0 };
    struct request q;
    struct plan plan;
    struct err e = { 0 };
    uint64_t floor_bytes;
    request_init(&q);
    q.n_memory = 1;
    q.context = 64;
    q.chunk = 4;
    q.max_batch = max_batch;
    q.form = seed % 3 ? LAYOUT_SPLIT : LAYOUT_BUNDLE;
    q.packed = 0;
    q.policy = CACHE_LRU;
    for (int b = 0; b < in.n_batches && seed % 4; b++)
        q.weight[b] = 1 + (int)(9 * sample_uniform());
    int r = planning_floor(&q, &in, &hw, &floor_bytes, &e);
    q.memory[0] = floor_bytes + 4000 + (uint64_t)(LAYERS * (double)wide * in.h.d_model * 6 * sample_uniform());
    if (r == 0 && (r = planning_make(&q, &in, &hw, &notes, &plan, &e)) == 0 && (r = prepare(x, &in, &hw, &plan, &e)) == 0) {
        const struct plan_limit *l = &plan.limits[0];
        double best = optimum(x, &e), is = 0;
        for (int b = 0; b < x->n_batches; b++)
            is += x->weight[b] * l->batches[b].predicted.step_ns;
        *largest_gap = fmax(*largest_gap, l->gap);
        *lost = fmax(*lost, 1 - best / is);
        r = is * (1 + 1e-6) >= best && is * (1 - l->gap) <= best * (1 + 1e-6) && l->prefill_chunk == 4;
        if (!r)
            printf("# %d: plan %.6f, best %.6f, gap %.6f\n", seed, is, best, l->gap);
        plan_done(&plan);
    } else if (r < 0) {
        printf("# %d: %s\n", seed, e.msg);
    }
    problem_done(&x->p);
    free(x->ns);
    free(x);
    inputs_done(&in);
    hw_free(&hw);
    return r;
}

int main(void)
{
    int held = 0, n = TEST_CASES(24);
    double gap = 0, lost = 0;
    for (int i = 0; i < n; i++)
        held += try_one(i, &gap, &lost) == 1;
    printf("# %d of %d plans; largest gap %.4f, most that a choice is faster by %.4f\n", held, n, gap, lost);
    CHECK(held == n);
    CHECK(lost < 0.01);
    return test_done();
}
