/* Bounds by themselves, with curves from a table: what they leave unpriced is not worth it, what nothing satisfies is priced whole,
 * and an error of the source comes out. */
#include "planner/search/bounds.h"

#include "tests/test.h"

#include <string.h>

#define DEPTHS 8
#define RUNS   6
#define LAYERS 3
#define POINTS 5

static uint64_t state = 1;
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Configurations that are so many times slower than one another, by run and depth. */
struct table {
    double factor[RUNS * DEPTHS];
    int calls, fail_at;
};

static int curves(void *ctx, int config, int least_depth, struct solve_config *out, struct err *e)
{
    struct table *t = ctx;
    double factor = t->factor[config];
    if (++t->calls == t->fail_at)
        return err_set(e, ERR_LIMIT, "call %d", t->calls);
    for (int i = config; i >= config - config % DEPTHS && 1 << i % DEPTHS >= least_depth; i--)
        factor = t->factor[i] < factor ? t->factor[i] : factor;
    out->curves = calloc(LAYERS, sizeof *out->curves);
    for (int l = 0; l < LAYERS; l++) {
        struct solve_point p[POINTS];
        for (int k = 0; k < POINTS; k++)
            p[k] = (struct solve_point){ .bytes = 100 * k, .ticks = (int64_t)(factor * (10000 - 100 * k * (20 + l - 2 * k))) };
        if (solve_curve_init(&out->curves[l], p, POINTS, e) < 0)
            return ERR_NOMEM;
    }
    return 0;
}

/* RUNS queues of DEPTHS depths each; run i needs i % 3 + 1 cores, of which there are two. */
static void set_up(struct solve_problem *sp, struct table *t, int64_t memory)
{
    *sp = (struct solve_problem){ .n_layers = LAYERS, .n_batches = 1, .n_classes = 1, .n_configs = RUNS * DEPTHS, .weight = { 1 },
                                  .memory = memory, .max_ticks = SOLVE_NEVER, .cores = { 2 }, .context = 1 };
    sp->configs = calloc(RUNS * DEPTHS, sizeof *sp->configs);
    *t = (struct table){ .calls = 0 };
    for (int i = 0; i < RUNS * DEPTHS; i++) {
        int depth = 1 << i % DEPTHS;
        sp->configs[i] = (struct solve_config){ .n = { i / DEPTHS % 3 + 1 }, .depth = depth, .id = i, .fixed_bytes = 50 + depth };
        t->factor[i] = (1 + 0.3 * (i / DEPTHS)) * (0.9 + 0.2 * uniform());
    }
}

static int search(struct solve_problem *sp, struct table *t, struct err *e)
{
    struct bounds b;
    int r = bounds_init(&b, sp, &(struct bounds_source){ curves, t }, sp->n_configs, e);
    for (int i = 0; i < RUNS && r == 0; i++)
        r = bounds_add(&b, (struct bounds_run){ i * DEPTHS, 1, DEPTHS }, e);
    if (r == 0)
        r = bounds_search(&b, e);
    bounds_done(&b);
    return r;
}

static void free_configs(struct solve_problem *sp)
{
    for (int i = 0; i < sp->n_configs; i++)
        solve_config_done(sp, &sp->configs[i]);
    free(sp->configs);
}

/* Configurations whose bounds are their own; *bad: bounds that are none, or of one that may be worth it and was not priced. */
static int own_bounds(const struct solve_problem *sp, struct table *t, int64_t objective, int *bad)
{
    int n = 0;
    for (int i = 0; i < sp->n_configs; i++) {
        const struct solve_config *c = &sp->configs[i];
        struct solve_config own = { .depth = c->depth, .fixed_bytes = c->fixed_bytes };
        struct err e;
        memcpy(own.n, c->n, sizeof own.n);
        *bad += curves(t, i, c->depth, &own, &e) < 0 || solve_bound(sp, &own, &e) < 0;
        int same = c->bound == own.bound && c->need_bytes == own.need_bytes;
        int worth = solve_cores_ok(sp, c) && own.bound - own.bound / 101 <= objective;
        *bad += c->bound > own.bound || (!same && (worth || c->curves || objective == SOLVE_NEVER));
        n += same;
        solve_config_done(sp, &own);
    }
    return n;
}

static void test_feasible(void)
{
    int bad = 0, own = 0, calls = 0, n = 40;
    for (int i = 0; i < n; i++) {
        struct solve_problem sp;
        struct table t;
        struct solve_result res;
        struct err e = { 0 };
        state = (uint64_t)i + 1;
        set_up(&sp, &t, 300 + 40 * i);
        bad += search(&sp, &t, &e) < 0 || solve_greedy(&sp, &res, &e) < 0 || !res.feasible;
        calls += t.calls;
        own += own_bounds(&sp, &t, res.objective, &bad);
        solve_result_done(&res);
        free_configs(&sp);
    }
    printf("# of %d configurations %d have bounds of their own, from %d curves\n", n * RUNS * DEPTHS, own, calls);
    CHECK(bad == 0);
    CHECK(own >= n && own < n * RUNS * DEPTHS / 2 && calls < n * RUNS * DEPTHS / 2);
}

static void test_infeasible(void)
{
    struct solve_problem sp;
    struct table t;
    struct err e = { 0 };
    int bad = 0;
    set_up(&sp, &t, 40);
    CHECK(search(&sp, &t, &e) == 0);
    CHECK(own_bounds(&sp, &t, SOLVE_NEVER, &bad) == RUNS * DEPTHS && bad == 0);
    for (int i = 0; i < RUNS * DEPTHS; i++)
        bad += sp.configs[i].bound != SOLVE_NEVER || sp.configs[i].curves != NULL;
    CHECK(bad == 0);
    free_configs(&sp);
}

static void test_error(void)
{
    for (int at = 1; at < 12; at += 5) {
        struct solve_problem sp;
        struct table t;
        struct err e = { 0 };
        set_up(&sp, &t, 1000);
        t.fail_at = at;
        CHECK(search(&sp, &t, &e) == ERR_LIMIT && t.calls == at);
        free_configs(&sp);
    }
}

int main(void)
{
    test_feasible();
    test_infeasible();
    test_error();
    return test_done();
}
