/* Z3, the relaxation and exhaustive search on random small instances; determinism; cores of contradictions. */
#include "planner/heap.h"
#include "planner/solve/solve_z3.h"
#include "tests/solve_exhaustive.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t rng_state;
static int64_t rng(int64_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(rng_state >> 16) % n;
}

/* Falling, not convex, with a cliff now and then. */
static struct solve_curve make_curve(int n)
{
    struct solve_point pt[512];
    struct solve_curve c;
    struct err e;
    int64_t bytes = 0, ticks = 100000 + rng(900000);
    for (int i = 0; i < n; i++) {
        pt[i] = (struct solve_point){ bytes, ticks, (uint32_t)i, 0 };
        bytes += 1 + rng(200);
        ticks -= rng(3) ? rng(ticks / 8 + 1) : rng(ticks / 2 + 1);
    }
    if (solve_curve_init(&c, pt, n, &e) < 0)
        abort();
    return c;
}

static struct solve_problem make(uint64_t seed, int layers, int batches, int configs, int points)
{
    struct solve_problem p = { .n_layers = layers, .n_batches = batches, .n_classes = 2, .n_configs = configs,
                               .weight = { 8, 4, 2, 1 }, .max_ticks = SOLVE_NEVER, .cores = { 4, 4 }, .context = 64 };
    struct err e;
    rng_state = seed * 977 + 5;
    p.configs = calloc((size_t)configs, sizeof *p.configs);
    p.memory = 300 + layers * (20 + rng(100 * points));
    for (int i = 0; i < configs; i++) {
        struct solve_config *c = &p.configs[i];
        *c = (struct solve_config){ .n = { 1 + i % 4, i % 3 }, .depth = 1 << (i % 5), .id = i,
                                    .fixed_bytes = 100 + rng(200), .context_bytes = 1 };
        c->curves = calloc((size_t)(layers * batches), sizeof *c->curves);
        for (int k = 0; k < layers * batches; k++)
            c->curves[k] = make_curve(points);
        for (int b = 0; b < batches; b++) {
            c->fixed_ticks[b] = rng(200000);
            c->floor_ticks[b] = rng(2) ? rng(100000 * layers) : 0;
        }
        if (solve_bound(&p, c, &e) < 0)
            abort();
    }
    return p;
}

static void unmake(struct solve_problem *p)
{
    for (int i = 0; i < p->n_configs; i++) {
        for (int k = 0; p->configs[i].curves && k < p->n_layers * p->n_batches; k++)
            solve_curve_done(&p->configs[i].curves[k]);
        free(p->configs[i].curves);
        for (int k = 0; p->configs[i].kinds && k < p->configs[i].n_kinds * p->n_layers * p->n_batches; k++)
            solve_curve_done(&p->configs[i].kinds[k]);
        free(p->configs[i].kinds);
    }
    free(p->configs);
}

/* A result's own arithmetic: within memory, times as stated. */
static int sound(const struct solve_problem *p, const struct solve_result *r)
{
    const struct solve_config *c = &p->configs[r->config];
    int64_t objective = 0;
    for (int b = 0; b < p->n_batches; b++) {
        int64_t bytes = c->fixed_bytes, ticks = 0;
        for (int l = 0; l < p->n_layers; l++) {
            int i = b * p->n_layers + l;
            bytes += c->curves[i].point[r->choice[i]].bytes;
            ticks += c->curves[i].point[r->choice[i]].ticks;
        }
        if (bytes > p->memory || r->ticks[b] != solve_total(c, b, ticks))
            return 0;
        objective += p->weight[b] * r->ticks[b];
    }
    return objective == r->objective && r->bound <= r->objective && r->ticks[0] <= p->max_ticks;
}

/* What rounding may cost one batch size: an optimal vertex of the relaxation leaves at most one layer between two hull
 * points, and that layer falls back by at most one segment. */
static int64_t rounding_of(const struct solve_problem *p, int b)
{
    int64_t worst = 0;
    for (int i = 0; i < p->n_configs; i++)
        for (int l = 0; l < p->n_layers; l++) {
            const struct solve_curve *k = &p->configs[i].curves[b * p->n_layers + l];
            for (int h = 1; h < k->n_hull; h++) {
                int64_t d = k->point[k->hull[h - 1]].ticks - k->point[k->hull[h]].ticks;
                worst = d > worst ? d : worst;
            }
        }
    return worst;
}

/* Of the objective; a tick for each batch size's own rounding. */
static int64_t rounding_limit(const struct solve_problem *p)
{
    int64_t sum = 0;
    for (int b = 0; b < p->n_batches; b++)
        sum += p->weight[b] * (rounding_of(p, b) + 1);
    return sum;
}

/* Take new limits into account. */
static void rebound(struct solve_problem *p)
{
    struct err e;
    for (int i = 0; i < p->n_configs; i++)
        if (solve_bound(p, &p->configs[i], &e) < 0)
            abort();
}

/* Is there a solution when only the limits of `kept` hold, and the speed only to within `slack` ticks? By exhaustive
 * search over copies of the configurations with less context or more cores. */
static int possible(const struct solve_problem *p, unsigned kept, int64_t slack)
{
    struct solve_problem o = *p;
    struct solve_result x;
    struct err e;
    o.configs = malloc((size_t)p->n_configs * sizeof *o.configs);
    memcpy(o.configs, p->configs, (size_t)p->n_configs * sizeof *o.configs);
    for (int i = 0; i < p->n_configs && !(kept & SOLVE_CONTEXT); i++)
        o.configs[i].fixed_bytes -= o.configs[i].context_bytes * (p->context - 1);
    o.memory = kept & SOLVE_MEMORY ? p->memory : INT64_C(1) << 40;
    o.max_ticks = kept & SOLVE_SPEED && p->max_ticks != SOLVE_NEVER ? p->max_ticks + slack : SOLVE_NEVER;
    for (int k = 0; k < p->n_classes && !(kept & SOLVE_CORES); k++)
        o.cores[k] = 99;
    int r = solve_exhaustive(&o, &x, &e);
    if (r < 0)
        abort();
    solve_result_done(&x);
    free(o.configs);
    return x.feasible;
}

/* The core contradicts itself, by exhaustive search, and no part of it does: without any one of its limits there is a
 * solution, to within rounding where a speed stays. */
static int core_is_least(const struct solve_problem *p, unsigned core)
{
    if (core == 0 || possible(p, core, 0))
        return 0;
    for (unsigned i = 0; i < 4; i++)
        if (core >> i & 1 && !possible(p, core & ~(1u << i), rounding_of(p, 0)))
            return 0;
    return 1;
}

struct tally {
    int wrong, unsound, equal, solved, infeasible, edge, closed, better;
    double gap;
};

/* One problem, three ways. What Z3's answer may differ by from the exhaustive one is at most the gap it states, and
 * that at most what rounding to units can cost. */
static void compare(const struct solve_problem *p, int seed, struct tally *t)
{
    struct err e = { 0 };
    struct solve_result z, x, g;
    int rz = solve_z3(p, 0, 1, &z, &e), rx = solve_exhaustive(p, &x, &e), rg = solve_greedy(p, &g, &e);
    if (rz < 0 || rx < 0 || rg < 0) {
        printf("# seed %d: %d %d %d %s\n", seed, rz, rx, rg, e.msg);
        t->wrong++;
    } else if (z.feasible) {
        int64_t most = rounding_limit(p);
        t->solved++;
        t->unsound += !x.feasible || !sound(p, &z) || !sound(p, &x) || (g.feasible && !sound(p, &g)) || !z.finished;
        t->wrong += z.bound > x.objective || z.objective < x.objective || z.objective - z.bound > most;
        t->wrong += z.objective - x.objective > z.objective - z.bound || z.objective - x.objective > most;
        t->wrong += g.feasible && (z.objective > g.objective || z.bound < g.bound);
        t->equal += z.objective == x.objective;
        t->closed += z.objective == z.bound;
        t->better += !g.feasible || z.objective < g.objective;
        double gap = (double)(z.objective - z.bound) / (double)z.objective;
        t->gap = gap > t->gap ? gap : t->gap;
    } else if (!x.feasible && core_is_least(p, z.core)) {
        t->infeasible++;
    } else { /* too slow, or missed, by less than rounding */
        int64_t slack = rounding_of(p, 0);
        t->edge++;
        if (z.core != (SOLVE_MEMORY | SOLVE_SPEED) || !possible(p, 15, slack) || possible(p, 15, -slack - 1) ||
            !possible(p, 15 & ~SOLVE_MEMORY, 0) || !possible(p, 15 & ~SOLVE_SPEED, 0)) {
            printf("# seed %d: core %u\n", seed, z.core);
            t->wrong++;
        }
    }
    solve_result_done(&z);
    solve_result_done(&x);
    solve_result_done(&g);
}

/* 240 random problems: free, with too little memory, with a speed asked for, with too few cores. */
static void test_random(void)
{
    struct tally t = { 0 };
    for (int seed = 0; seed < 240; seed++) {
        struct solve_problem p = make((uint64_t)seed, 3 + seed % 2, 1 + seed % 3, 1 + seed % 4, 4 + seed % 5);
        struct solve_result x;
        struct err e;
        if (seed % 6 == 3) { /* below or just above what is fixed; contexts cost something */
            for (int i = 0; i < p.n_configs; i++)
                p.configs[i].fixed_bytes += 63;
            p.memory = 90 + rng(300);
            rebound(&p);
        }
        if (seed % 6 >= 4 && solve_exhaustive(&p, &x, &e) == 0 && x.feasible) { /* around the best there is */
            p.max_ticks = x.ticks[0] * (80 + rng(40)) / 100;
            if (seed % 6 == 5)
                p.cores[0] = (int)rng(3);
            rebound(&p);
            solve_result_done(&x);
        }
        compare(&p, seed, &t);
        unmake(&p);
    }
    printf("# 240 problems: %d solved (%d equal to exhaustive search to the tick, the others within the rounding of "
           "one hull segment; %d proven, %d faster than the closed form; largest proven gap %.3f), %d infeasible with a least core, %d "
           "within rounding of the speed asked for\n", t.solved, t.equal, t.closed, t.better, t.gap, t.infeasible, t.edge);
    CHECK(t.wrong == 0);
    CHECK(t.unsound == 0);
    CHECK(t.solved > 150 && t.equal > t.solved * 19 / 20);
    CHECK(t.closed > t.solved / 2 && t.better >= 5); /* Z3 decides: what it answers is taken, and proves more than the relaxation */
    CHECK(t.infeasible >= 50 && t.edge < 20);
}

/* Two kinds of curve for each layer, now and then only one; all batch sizes have to take the same. Against a search of
 * every kind and point; z.bound is below that, for it lets batch sizes differ. */
static void give_kinds(struct solve_problem *p, int points)
{
    struct err e;
    size_t all = (size_t)(p->n_layers * p->n_batches);
    for (int i = 0; i < p->n_configs; i++) {
        struct solve_config *c = &p->configs[i];
        c->n_kinds = 2;
        c->kinds = calloc(2 * all, sizeof *c->kinds);
        for (int l = 0; l < p->n_layers; l++)
            for (int b = 0, only = rng(4) == 0; b < p->n_batches; b++) {
                size_t at = (size_t)(b * p->n_layers + l);
                struct solve_curve other = make_curve(points), *own = &c->curves[at];
                struct solve_point both[128];
                for (int k = 0; k < other.n; k++)
                    other.point[k].kind = 1;
                memcpy(both, own->point, (size_t)own->n * sizeof *both);
                memcpy(both + own->n, other.point, (size_t)other.n * sizeof *both);
                c->kinds[at] = *own;
                if (only)
                    solve_curve_done(&other);
                else
                    c->kinds[all + at] = other;
                if (solve_curve_init(own, both, own->n + c->kinds[all + at].n, &e) < 0)
                    abort();
            }
        if (solve_bound(p, c, &e) < 0)
            abort();
    }
}

static int kinds_sound(const struct solve_problem *p, const struct solve_result *r)
{
    const struct solve_config *c = &p->configs[r->config];
    int64_t objective = 0;
    for (int b = 0; b < p->n_batches; b++) {
        int64_t bytes = c->fixed_bytes, ticks = 0;
        for (int l = 0; l < p->n_layers; l++) {
            const struct solve_curve *k = solve_curve_of(p, r, b, l);
            const struct solve_point *at = &k->point[r->choice[b * p->n_layers + l]];
            if (at->kind != r->kind[l])
                return 0;
            bytes += at->bytes;
            ticks += at->ticks;
        }
        if (bytes > p->memory || r->ticks[b] != solve_total(c, b, ticks))
            return 0;
        objective += p->weight[b] * r->ticks[b];
    }
    return objective == r->objective && r->bound <= r->objective && r->ticks[0] <= p->max_ticks;
}

static void test_kinds(void)
{
    int solved = 0, equal = 0, wrong = 0, mixed = 0;
    double gap = 0;
    for (int seed = 0; seed < 120; seed++) {
        struct solve_problem p = make((uint64_t)seed + 1000, 3 + seed % 2, 2 + seed % 2, 1 + seed % 2, 4 + seed % 3);
        struct solve_result z = { 0 }, x = { 0 };
        struct err e = { 0 };
        give_kinds(&p, 4 + seed % 3);
        if (seed % 4 == 3 && solve_exhaustive(&p, &x, &e) == 0 && x.feasible) {
            p.max_ticks = x.ticks[0] * 105 / 100;
            rebound(&p);
        }
        solve_result_done(&x);
        if (solve_z3(&p, 0, 1, &z, &e) < 0 || solve_exhaustive(&p, &x, &e) < 0) {
            wrong++;
        } else if (z.feasible) {
            wrong += !x.feasible || !kinds_sound(&p, &z) || !kinds_sound(&p, &x) || z.bound > x.objective ||
                     z.objective < x.objective || (double)z.objective > (double)x.objective * 1.25;
            solved++;
            equal += z.objective == x.objective;
            for (int l = 1; l < p.n_layers; l++)
                if (z.kind[l] != z.kind[0]) {
                    mixed++;
                    break;
                }
            double now = (double)(z.objective - x.objective) / (double)x.objective;
            gap = now > gap ? now : gap;
        }
        solve_result_done(&z);
        solve_result_done(&x);
        unmake(&p);
    }
    printf("# 120 problems with two kinds: %d solved, %d equal to the search of all, %d mixed; furthest from it %.3f\n",
           solved, equal, mixed, gap);
    CHECK(wrong == 0 && solved > 80 && mixed > 20 && equal > solved * 4 / 5);
}

/* min-speed: the limit just met by the optimum holds, one below the relaxed optimum does not. */
static void test_speed(void)
{
    struct solve_result a, b;
    struct err e;
    struct solve_problem p = make(7, 4, 1, 2, 8);
    p.memory = 100000;
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &a, &e) == 0 && a.feasible);
    int64_t best = a.ticks[0];
    p.max_ticks = best;
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && b.feasible && b.ticks[0] == best);
    solve_result_done(&b);
    p.max_ticks = best - 100000;
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && !b.feasible);
    CHECK_MSG(b.core == SOLVE_SPEED, "core %u", b.core); /* with all the memory in the world */
    /* Fast enough, but only with more memory than there is. */
    int64_t fixed = p.configs[a.config].fixed_bytes;
    p.max_ticks = best + 50000;
    p.memory = fixed + 50;
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && !b.feasible);
    CHECK_MSG(b.core == (SOLVE_MEMORY | SOLVE_SPEED), "core %u", b.core);
    /* No configuration takes so few cores of class 0. */
    p.max_ticks = SOLVE_NEVER;
    p.memory = 100000;
    p.cores[0] = 0;
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && !b.feasible && b.core == SOLVE_CORES);
    /* Below the fixed part: less context would do. */
    p.cores[0] = 4;
    p.memory = 60;
    for (int i = 0; i < 2; i++)
        p.configs[i].fixed_bytes = 100, p.configs[i].context_bytes = 1, solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && !b.feasible);
    CHECK_MSG(b.core == (SOLVE_MEMORY | SOLVE_CONTEXT), "core %u", b.core);
    p.memory = 30; /* not even a context of 1 */
    for (int i = 0; i < 2; i++)
        solve_bound(&p, &p.configs[i], &e);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && !b.feasible && b.core == SOLVE_MEMORY);
    solve_result_done(&a);
    unmake(&p);
}

/* The shape that has to be quick: 32 layers, four batch sizes. */
static void test_large(void)
{
    struct err e;
    struct solve_result a, b, c;
    struct solve_problem p = make(3, 32, 4, 3, 40);
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    CHECK(solve_z3(&p, 0, 1, &a, &e) == 0 && a.feasible && a.finished && sound(&p, &a));
    clock_gettime(CLOCK_MONOTONIC, &t1);
    printf("# 32 layers x 4 batch sizes x 3 configs: %.2f s, gap %.4f\n",
           (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec),
           (double)(a.objective - a.bound) / (double)a.objective);
    CHECK((double)(a.objective - a.bound) < 0.01 * (double)a.objective);
    CHECK(solve_z3(&p, 0, 1, &b, &e) == 0 && b.objective == a.objective && b.bound == a.bound &&
          b.config == a.config && !memcmp(a.choice, b.choice, 128 * sizeof *a.choice));
    /* A limit that is hit at once: the incumbent and its bound remain, and it says so. */
    CHECK(solve_z3(&p, 1000, 1, &c, &e) == 0 && c.feasible && !c.finished && sound(&p, &c));
    CHECK(c.objective >= a.objective && c.bound <= a.bound + 16 * 15);
    solve_result_done(&a);
    solve_result_done(&b);
    solve_result_done(&c);
    unmake(&p);
}

int main(void)
{
    heap_keep();
    struct err e = { 0 };
    const struct solve_point pts[] = { { 10, 50, 0, 0 }, { 0, 100, 1, 0 }, { 10, 60, 2, 0 }, { 20, 50, 3, 0 }, { 15, 45, 4, 0 },
                                       { 30, 0, 5, 0 }, { 5, 99, 6, 0 } };
    struct solve_curve c;
    CHECK(solve_curve_init(&c, pts, 7, &e) == 0 && c.n == 5); /* 0, 5, 10 (50), 15, 30 */
    CHECK(c.point[2].id == 0 && c.n_hull == 3 && c.hull[1] == 2);
    solve_curve_done(&c);
    test_random();
    test_kinds();
    test_speed();
    test_large();
    return test_done();
}
