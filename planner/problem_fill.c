/* The problem of one memory limit: every configuration of the device. Curves of all of them would be large; all get
 * their proven bound, and the KEPT with the best ones keep their curves. */
#include "planner/problem_parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 128
#define KEPT      6       /* configurations with curves, beside the best of each number of threads */

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

void problem_unfill(struct problem *p)
{
    for (int i = 0; i < p->sp.n_configs; i++)
        config_done(p, &p->sp.configs[i]);
    free(p->sp.configs);
    free(p->choices);
    p->sp = (struct solve_problem){ 0 };
    p->choices = NULL;
}

static int fill_memory(const struct problem *p, const struct cost_choice *c, const struct problem_limits *lim,
                       struct solve_config *out, struct err *e)
{
    struct budget b, one;
    struct cost_choice least = *c;
    int r = problem_account(p, c, lim, NULL, &b, e);
    if (r < 0)
        return r;
    out->fixed_bytes = (int64_t)(b.total / SOLVE_BYTE_UNIT);
    least.context = 1;
    if (c->context > 1 && (r = problem_account(p, &least, lim, NULL, &one, e)) == 0)
        out->context_bytes = (int64_t)((b.total - one.total) / SOLVE_BYTE_UNIT) / (c->context - 1);
    return r;
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

static int add_config(struct problem *p, const struct problem_limits *lim, const struct cost_choice *c,
                      struct err *e)
{
    struct solve_config o = { .depth = c->depth, .id = p->sp.n_configs };
    memcpy(o.n, c->n, sizeof o.n);
    int r;
    if ((r = fill_memory(p, c, lim, &o, e)) < 0 || (r = problem_fill_curves(p, c, &o, e)) < 0 ||
        (r = solve_bound(&p->sp, &o, e)) < 0) {
        config_done(p, &o);
        return r;
    }
    if (o.bound == SOLVE_NEVER || !solve_cores_ok(&p->sp, &o))
        config_done(p, &o);
    p->choices[p->sp.n_configs] = *c;
    p->sp.configs[p->sp.n_configs++] = o;
    drop_worst(p);
    return 0;
}

/* Core counts of a class to try: all of them up to 8, then powers of two, all but one, and all. */
static int useful_count(int n, int most)
{
    return n <= 8 || n >= most - 1 || (n & (n - 1)) == 0;
}

/* The next vector of core counts, in counting order; 0 at the end. */
static int next_cores(const struct problem *p, struct cost_choice *c)
{
    for (int k = 0; k < c->n_classes; k++) {
        int most = p->hw->classes[k].n_cores;
        do {
            c->n[k]++;
        } while (c->n[k] <= most && !useful_count(c->n[k], most));
        if (c->n[k] <= most)
            return 1;
        c->n[k] = 0;
    }
    return 0;
}

#define MAX_CONFIGS 4096

static int try_config(struct problem *p, const struct problem_limits *lim, const struct cost_choice *c, struct err *e)
{
    if (p->sp.n_configs == MAX_CONFIGS) {
        notes_add(p->notes, "%s: more than %d core and depth choices; the first were searched", p->hw->name, MAX_CONFIGS);
        return 0;
    }
    return add_config(p, lim, c, e);
}

/* Every backend and queue depth with these cores; no pread where io_uring can be had and no core is left for its lanes. Those
 * are threads: they would take turns with those that compute, and no longer read as the probe measured them, on idle
 * cores. A plan that said 11 tokens/s made 6.7. */
static int add_depths(struct problem *p, const struct problem_limits *lim, struct cost_choice *c, struct err *e)
{
    enum hw_backend backends[2];
    int n = problem_backends(p->hw, backends), r = 0;
    if (n == 2 && c->threads >= hw_cores(p->hw, -1))
        n = 1;
    for (int i = 0; i < n && r == 0; i++)
        for (c->depth = 1; c->depth <= MAX_DEPTH && r == 0; c->depth *= 2) {
            problem_set_backend(c, backends[i]);
            r = try_config(p, lim, c, e);
        }
    return r;
}

/* Of n configurations with cores that may be had, the one with the least bound; with most threads, if `threads`, of those
 * that are as good within the 1 % by which plans take threads. -1: none is possible. */
static int best_config(const struct problem *p, int n, int threads)
{
    int best = -1, most = -1;
    for (int i = 0; i < n; i++)
        if (p->sp.configs[i].bound != SOLVE_NEVER && solve_cores_ok(&p->sp, &p->sp.configs[i]) &&
            (best < 0 || p->sp.configs[i].bound < p->sp.configs[best].bound))
            best = i;
    for (int i = 0; i < n && best >= 0; i++)
        if (p->sp.configs[i].bound != SOLVE_NEVER && solve_cores_ok(&p->sp, &p->sp.configs[i]) &&
            p->sp.configs[i].bound <= p->sp.configs[best].bound + p->sp.configs[best].bound / 100 &&
            (most < 0 || p->choices[i].threads > p->choices[most].threads))
            most = i;
    return threads ? most : best;
}

/* A choice with each rule and depth. Where its bound is no better than that of the same without gaps it is not what wins:
 * it takes more memory for its buffers. */
static int try_rules(struct problem *p, const struct problem_limits *lim, struct cost_choice c, int n, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        const struct cost_choice *o = &p->choices[i];
        if (o->group != c.group || o->backend != c.backend || memcmp(o->n, c.n, sizeof c.n))
            continue;
        c = *o;
        for (c.rule = 1; c.rule < p->n_rules && r == 0; c.rule++) {
            c.read_bytes = joins_read_bytes(&p->rules[c.rule]);
            int added = p->sp.n_configs;
            r = try_config(p, lim, &c, e);
            if (p->sp.n_configs > added && p->sp.configs[added].bound >= p->sp.configs[i].bound)
                config_done(p, &p->sp.configs[added]);
        }
    }
    return r;
}

/* Reads through gaps hardly change which cores are best: they are tried with those that are best without, and with the
 * most that are as good. */
static int add_rules(struct problem *p, const struct problem_limits *lim, struct err *e)
{
    int n = p->sp.n_configs, best = best_config(p, n, 0), most = best_config(p, n, 1);
    int r = best < 0 ? 0 : try_rules(p, lim, p->choices[best], n, e);
    if (r < 0 || best < 0 || !memcmp(p->choices[best].n, p->choices[most].n, sizeof p->choices[best].n))
        return r;
    return try_rules(p, lim, p->choices[most], n, e);
}

int problem_fill(struct problem *p, const struct problem_limits *lim, struct err *e)
{
    static const int weight[SOLVE_MAX_BATCHES] = { 8, 4, 2, 1 }; /* 1 / batch: time per token counts */
    int n_classes = p->hw->n_classes > 0 ? p->hw->n_classes : 1, r = 0;
    problem_unfill(p);
    p->sp = (struct solve_problem){ .n_layers = p->in->n_layers, .n_batches = p->in->n_batches,
                                    .n_classes = n_classes,
                                    .memory = (int64_t)(lim->memory_bytes / SOLVE_BYTE_UNIT),
                                    .max_ticks = SOLVE_NEVER, .context = lim->context };
    for (int b = 0; b < p->sp.n_batches; b++)
        p->sp.weight[b] = weight[b];
    if (lim->min_tokens_per_s > 0)
        p->sp.max_ticks = problem_ticks(1e9 / lim->min_tokens_per_s);
    for (int k = 0; k < n_classes; k++) {
        int has = p->hw->n_classes > 0 ? p->hw->classes[k].n_cores : 1;
        p->sp.cores[k] = lim->cores[k] >= 0 && lim->cores[k] < has ? lim->cores[k] : has;
    }
    p->sp.configs = calloc(MAX_CONFIGS, sizeof *p->sp.configs);
    p->choices = calloc(MAX_CONFIGS, sizeof *p->choices);
    if (!p->sp.configs || !p->choices)
        r = err_set(e, ERR_NOMEM, "out of memory for configurations");
    for (int i = 0; i < p->n_groups && r == 0; i++) {
        int w = p->group[i].first;
        struct cost_choice c = { .mode = p->modes[w], .way = w, .group = i, .foretell = p->foretell[w],
                                 .model = lim->model, .stat = lim->stat,
                                 .n_classes = n_classes, .buffers = (int)p->group[i].buffers, .act_q8 = lim->act_q8, .kv_f16 = lim->kv_f16,
                                 .context = lim->context };
        if (p->hw->n_classes == 0)
            c.n[0] = 1;
        while (r == 0 && (p->hw->n_classes == 0 || next_cores(p, &c))) {
            c.threads = 0;
            for (int k = 0; k < n_classes; k++)
                c.threads += c.n[k];
            if (c.threads <= BUDGET_MAX_THREADS)
                r = add_depths(p, lim, &c, e);
            if (p->hw->n_classes == 0)
                break;
        }
    }
    if (r == 0 && lim->model != PLAN_COST_PAPER)
        r = add_rules(p, lim, e);
    if (r < 0)
        problem_unfill(p);
    return r;
}
