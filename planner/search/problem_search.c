/* Which configurations are priced, and which a proven bound settles.
 *
 * Depths of one queue differ in how fast reads are and in the memory of their buffers, nothing else. Priced once with the best of
 * each, and without what deeper queues cost (asking), a run of depths has a bound that none of its members can beat. The run
 * with the best bound is opened first: its deepest depths are priced, the rest becomes a run of its own. Once the configuration
 * with the best proven bound is rounded, its objective tells what may still be worth it: 1 % more, by which plans take threads
 * and depth. A run beyond that stays closed: no solver would take a member of it, no bound of a plan comes from one. Where
 * nothing is feasible all are priced, for then their figures are the answer. */
#include "planner/search/problem_parts.h"

#include <stdlib.h>
#include <string.h>

#define KEPT   6        /* configurations with curves, beside the best of each number of threads */
#define OPENED 2        /* depths priced of a run that is opened */

static void config_done(const struct problem *p, struct solve_config *c)
{
    int n = p->in->n_layers * p->in->n_batches;
    for (int i = 0; c->curves && i < n; i++)
        solve_curve_done(&c->curves[i]);
    for (int i = 0; c->kinds && i < n * c->n_kinds; i++)
        solve_curve_done(&c->kinds[i]);
    free(c->curves);
    free(c->kinds);
    c->curves = c->kinds = NULL;
}

void problem_drop_curves(struct problem *p, int config)
{
    config_done(p, &p->sp.configs[config]);
}

/* Is this the kept configuration with the best bound of those with as many threads? */
static int best_of_threads(const struct problem *p, int config)
{
    for (int i = 0; i < p->sp.n_configs; i++)
        if (i != config && p->sp.configs[i].curves && p->choices[i].threads == p->choices[config].threads &&
            (p->sp.configs[i].bound < p->sp.configs[config].bound ||
             (p->sp.configs[i].bound == p->sp.configs[config].bound && i < config)))
            return 0;
    return 1;
}

/* Drop the curves of the kept config with the largest bound when there are more than KEPT, those apart that are the
 * best with their number of threads. */
static void drop_worst(struct problem *p)
{
    int n = 0, worst = -1;
    for (int i = 0; i < p->sp.n_configs; i++)
        if (p->sp.configs[i].curves && !best_of_threads(p, i)) {
            n++;
            if (worst < 0 || p->sp.configs[i].bound >= p->sp.configs[worst].bound)
                worst = i;
        }
    if (n > KEPT)
        config_done(p, &p->sp.configs[worst]);
}

static int price(struct problem_search *s, int config, struct err *e)
{
    struct problem *p = s->p;
    struct solve_config *c = &p->sp.configs[config];
    int r = problem_fill_curves(p, &p->choices[config], c->depth, c, e);
    if (r < 0 || (r = solve_bound(&p->sp, c, e)) < 0)
        return r;
    s->priced[config] = 1;
    if (c->bound == SOLVE_NEVER || !solve_cores_ok(&p->sp, c))
        config_done(p, c);
    drop_worst(p);
    return 0;
}

/* Its bounds to all members. */
static int bound_run(struct problem *p, const struct problem_run *run, struct err *e)
{
    int last = run->first + (run->n - 1) * run->step;
    struct solve_config o = p->sp.configs[run->first];
    for (int i = run->first; i <= last; i += run->step)
        if (p->sp.configs[i].fixed_bytes < o.fixed_bytes)
            o.fixed_bytes = p->sp.configs[i].fixed_bytes;
    int r = problem_fill_curves(p, &p->choices[last], o.depth, &o, e);
    if (r == 0)
        r = solve_bound(&p->sp, &o, e);
    config_done(p, &o);
    for (int i = run->first; i <= last && r == 0; i += run->step) {
        struct solve_config *c = &p->sp.configs[i];
        c->bound = o.bound;
        c->relaxed_ticks = o.relaxed_ticks;
        c->best_ticks = o.best_ticks;
        c->need_bytes = o.need_bytes;
    }
    return r;
}

int problem_search_add(struct problem_search *s, struct problem_run run, struct err *e)
{
    if (run.n == 0)
        return 0;
    if (run.n == 1)
        return price(s, run.first, e);
    struct problem_run *grown = problem_grow(s->run, s->n, &s->cap, sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    s->run = grown;
    s->run[s->n++] = run;
    return bound_run(s->p, &run, e);
}

/* The deepest of a run are priced; all, where what was priced so far is not feasible. */
static int open_run(struct problem_search *s, int at, struct err *e)
{
    struct problem_run run = s->run[at], rest = run;
    int r;
    s->run[at] = s->run[--s->n];
    rest.n = s->rounded >= 0 && s->objective == SOLVE_NEVER ? 0 : run.n > OPENED ? run.n - OPENED : 0;
    r = problem_search_add(s, rest, e);
    for (int i = rest.n; i < run.n && r == 0; i++)
        r = price(s, run.first + i * run.step, e);
    return r;
}

/* Of the configuration with the best proven bound, rounded. */
static int round_best(struct problem_search *s, struct err *e)
{
    const struct problem *p = s->p;
    struct solve_problem one = p->sp;
    struct solve_result res;
    int best = -1, r;
    for (int i = 0; i < p->sp.n_configs; i++)
        if (s->priced[i] && p->sp.configs[i].curves && (best < 0 || p->sp.configs[i].bound < p->sp.configs[best].bound))
            best = i;
    if (best == s->rounded)
        return 0;
    one.configs = &p->sp.configs[best];
    one.n_configs = 1;
    if ((r = solve_greedy(&one, &res, e)) < 0)
        return r;
    s->rounded = best;
    s->objective = res.feasible ? res.objective : SOLVE_NEVER;
    solve_result_done(&res);
    return 0;
}

/* The closed run with the best bound, those with cores that may be had before others; -1: none that may be worth it. Bounds are
 * of rounded sums: a millionth for what these may err. */
static int next_run(const struct problem_search *s)
{
    const struct solve_problem *sp = &s->p->sp;
    int best = -1, any = s->objective == SOLVE_NEVER;
    for (int i = 0; i < s->n; i++) {
        const struct solve_config *c = &sp->configs[s->run[i].first], *b = best < 0 ? NULL : &sp->configs[s->run[best].first];
        int ok = solve_cores_ok(sp, c), before = b ? solve_cores_ok(sp, b) : 0;
        if (!any && (!ok || c->bound - c->bound / 1000000 > s->objective + s->objective / 100))
            continue;
        if (!b || ok > before || (ok == before && c->bound < b->bound))
            best = i;
    }
    return best;
}

int problem_search_run(struct problem_search *s, struct err *e)
{
    int r, next;
    while ((r = round_best(s, e)) == 0 && (next = next_run(s)) >= 0)
        if ((r = open_run(s, next, e)) < 0)
            break;
    return r;
}

int problem_search_new(struct problem_search *s, struct problem *p, int most, struct err *e)
{
    *s = (struct problem_search){ .p = p, .rounded = -1, .objective = SOLVE_NEVER, .priced = calloc((size_t)most, 1) };
    return s->priced ? 0 : err_set(e, ERR_NOMEM, "out of memory for configurations");
}

void problem_search_done(struct problem_search *s)
{
    free(s->run);
    free(s->priced);
    *s = (struct problem_search){ 0 };
}
