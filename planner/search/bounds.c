/* Depths of one queue differ in how fast reads are and in the memory of their buffers, nothing else. Priced once with the best of
 * each, and without what deeper queues cost (submission), a run of depths has a bound that none of its members can beat. The run
 * with the best bound is opened first: its deepest depths are priced, the rest becomes a run of its own. Once the configuration
 * with the best proven bound is rounded, its objective bounds what may still be worth it: 1 % more, by which plans take threads
 * and depth. A run beyond that stays closed: no solver would take a member of it, no bound of a plan comes from one. Where
 * nothing is feasible all are priced, for then their figures are the answer. */
#include "planner/search/bounds.h"

#include "common/base/grow.h"

#include <stdlib.h>
#include <string.h>

#define KEPT   6        /* configurations with curves, beside the best of each number of threads */
#define OPENED 2        /* depths priced of a run that is opened */

static int threads_of(const struct solve_problem *sp, int config)
{
    int n = 0;
    for (int k = 0; k < sp->n_classes; k++)
        n += sp->configs[config].n[k];
    return n;
}

/* Has the configuration, which has curves, the best bound of those with as many threads? */
static int best_of_threads(const struct solve_problem *sp, int config)
{
    for (int i = 0; i < sp->n_configs; i++)
        if (i != config && sp->configs[i].curves && threads_of(sp, i) == threads_of(sp, config) &&
            (sp->configs[i].bound < sp->configs[config].bound ||
             (sp->configs[i].bound == sp->configs[config].bound && i < config)))
            return 0;
    return 1;
}

/* When there are more than KEPT, drop the curves of the configuration with the largest bound, unless it is the best with its
 * number of threads. */
static void drop_worst(struct solve_problem *sp)
{
    int n = 0, worst = -1;
    for (int i = 0; i < sp->n_configs; i++)
        if (sp->configs[i].curves && !best_of_threads(sp, i)) {
            n++;
            if (worst < 0 || sp->configs[i].bound >= sp->configs[worst].bound)
                worst = i;
        }
    if (n > KEPT)
        solve_config_done(sp, &sp->configs[worst]);
}

static int price(struct bounds *b, int config, struct err *e)
{
    struct solve_config *c = &b->sp->configs[config];
    int r = b->source.curves(b->source.ctx, config, c->depth, c, e);
    if (r < 0 || (r = solve_bound(b->sp, c, e)) < 0)
        return r;
    b->priced[config] = 1;
    if (c->bound == SOLVE_NEVER || !solve_cores_ok(b->sp, c))
        solve_config_done(b->sp, c);
    drop_worst(b->sp);
    return 0;
}

int bounds_run_config(const struct solve_problem *sp, const struct bounds_source *source, const struct bounds_run *run,
                      struct solve_config *out, struct err *e)
{
    int last = run->first + (run->n - 1) * run->step;
    *out = sp->configs[run->first];
    out->curves = out->kinds = NULL;
    for (int i = run->first; i <= last; i += run->step)
        if (sp->configs[i].fixed_bytes < out->fixed_bytes)
            out->fixed_bytes = sp->configs[i].fixed_bytes;
    return source->curves(source->ctx, last, out->depth, out, e);
}

/* The bounds of a run, to all its members. */
static int bound_run(struct bounds *b, const struct bounds_run *run, struct err *e)
{
    int last = run->first + (run->n - 1) * run->step;
    struct solve_config *configs = b->sp->configs, o;
    int r = bounds_run_config(b->sp, &b->source, run, &o, e);
    if (r == 0)
        r = solve_bound(b->sp, &o, e);
    solve_config_done(b->sp, &o);
    for (int i = run->first; i <= last && r == 0; i += run->step) {
        struct solve_config *c = &configs[i];
        c->bound = o.bound;
        c->relaxed_ticks = o.relaxed_ticks;
        c->best_ticks = o.best_ticks;
        c->need_bytes = o.need_bytes;
    }
    return r;
}

int bounds_add(struct bounds *b, struct bounds_run run, struct err *e)
{
    if (run.n == 0)
        return 0;
    if (run.n == 1)
        return price(b, run.first, e);
    if (!grow_room(b->run, b->n, b->cap))
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    b->run[b->n++] = run;
    return bound_run(b, &run, e);
}

/* The deepest of a run are priced; all of it, where what was priced so far is not feasible. */
static int open_run(struct bounds *b, int at, struct err *e)
{
    struct bounds_run run = b->run[at], rest = run;
    int r;
    b->run[at] = b->run[--b->n];
    rest.n = b->rounded >= 0 && b->objective == SOLVE_NEVER ? 0 : run.n > OPENED ? run.n - OPENED : 0;
    r = bounds_add(b, rest, e);
    for (int i = rest.n; i < run.n && r == 0; i++)
        r = price(b, run.first + i * run.step, e);
    return r;
}

/* Round the configuration with the best proven bound. */
static int round_best(struct bounds *b, struct err *e)
{
    const struct solve_problem *sp = b->sp;
    struct solve_problem one = *sp;
    struct solve_result res;
    int best = -1, r;
    for (int i = 0; i < sp->n_configs; i++)
        if (b->priced[i] && sp->configs[i].curves && (best < 0 || sp->configs[i].bound < sp->configs[best].bound))
            best = i;
    if (best == b->rounded)
        return 0;
    one.configs = &sp->configs[best];
    one.n_configs = 1;
    if ((r = solve_greedy(&one, &res, e)) < 0)
        return r;
    b->rounded = best;
    b->objective = res.feasible ? res.objective : SOLVE_NEVER;
    solve_result_done(&res);
    return 0;
}

/* The closed run with the best bound, those whose cores the user allows before others; -1: none that may be worth it. Bounds are
 * of rounded sums: a millionth covers their error. */
static int next_run(const struct bounds *b)
{
    const struct solve_problem *sp = b->sp;
    int best = -1, any = b->objective == SOLVE_NEVER;
    for (int i = 0; i < b->n; i++) {
        const struct solve_config *c = &sp->configs[b->run[i].first];
        const struct solve_config *o = best < 0 ? NULL : &sp->configs[b->run[best].first];
        int ok = solve_cores_ok(sp, c), before = o ? solve_cores_ok(sp, o) : 0;
        if (!any && (!ok || c->bound - c->bound / 1000000 > b->objective + b->objective / 100))
            continue;
        if (!o || ok > before || (ok == before && c->bound < o->bound))
            best = i;
    }
    return best;
}

int bounds_search(struct bounds *b, struct err *e)
{
    int r, next;
    while ((r = round_best(b, e)) == 0 && (next = next_run(b)) >= 0)
        if ((r = open_run(b, next, e)) < 0)
            break;
    return r;
}

int bounds_init(struct bounds *b, struct solve_problem *sp, const struct bounds_source *source, int most, struct err *e)
{
    *b = (struct bounds){ .sp = sp, .source = *source, .rounded = -1, .objective = SOLVE_NEVER,
                          .priced = calloc((size_t)most, 1) };
    return b->priced ? 0 : err_set(e, ERR_NOMEM, "out of memory for configurations");
}

int bounds_partition(const struct bounds *b, struct bounds_run **out, int *n, struct err *e)
{
    struct bounds_run *runs = malloc(((size_t)b->n + (size_t)b->sp->n_configs + 1) * sizeof *runs);
    if (!runs)
        return err_set(e, ERR_NOMEM, "out of memory for configurations");
    *n = b->n;
    if (b->n)
        memcpy(runs, b->run, (size_t)b->n * sizeof *runs);
    for (int i = 0; i < b->sp->n_configs; i++)
        if (b->priced[i])
            runs[(*n)++] = (struct bounds_run){ i, 1, 1 };
    *out = runs;
    return 0;
}

void bounds_done(struct bounds *b)
{
    free(b->run);
    free(b->priced);
    *b = (struct bounds){ 0 };
}
