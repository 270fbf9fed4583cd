/* The problem of one memory limit: every configuration of the device. Curves of all of them would be large, and dear: all get
 * a proven bound, and the best keep their curves (problem_search). */
#include "planner/search/problem_parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   128
#define MAX_CONFIGS 4096

void problem_unfill(struct problem *p)
{
    for (int i = 0; i < p->sp.n_configs; i++)
        problem_drop_curves(p, i);
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

static int add_config(struct problem *p, const struct problem_limits *lim, const struct cost_choice *c, struct err *e)
{
    if (p->sp.n_configs == MAX_CONFIGS) {
        notes_add(p->notes, "%s: more than %d core and depth choices; the first were searched", p->hw->name, MAX_CONFIGS);
        return 0;
    }
    struct solve_config *o = &p->sp.configs[p->sp.n_configs];
    *o = (struct solve_config){ .depth = c->depth, .id = p->sp.n_configs };
    memcpy(o->n, c->n, sizeof o->n);
    p->choices[p->sp.n_configs++] = *c;
    return fill_memory(p, c, lim, o, e);
}

/* Every backend and queue depth with these cores; no pread where io_uring can be had and no core is left for its lanes. Those
 * are threads: they would take turns with those that compute, and no longer read as the probe measured them, on idle
 * cores. A plan that said 11 tokens/s made 6.7. */
static int add_depths(struct problem_search *s, const struct problem_limits *lim, struct cost_choice *c, struct err *e)
{
    struct problem *p = s->p;
    enum hw_backend backends[2];
    int n = problem_backends(p->hw, backends), r = 0;
    if (n == 2 && c->threads >= hw_cores(p->hw, -1))
        n = 1;
    for (int i = 0; i < n && r == 0; i++) {
        int first = p->sp.n_configs;
        for (c->depth = 1; c->depth <= MAX_DEPTH && r == 0; c->depth *= 2) {
            problem_set_backend(c, backends[i]);
            r = add_config(p, lim, c, e);
        }
        if (r == 0)
            r = problem_search_add(s, (struct problem_run){ first, 1, p->sp.n_configs - first }, e);
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

/* A choice with each rule and depth, of which the first n configurations have what it is without gaps. Where its bound is no
 * better than that it is not what wins: it takes more memory for its buffers. */
static int try_rules(struct problem_search *s, const struct problem_limits *lim, struct cost_choice c, int n, struct err *e)
{
    struct problem *p = s->p;
    int from = -1, added = p->sp.n_configs, r = 0, rules = p->n_rules - 1;
    for (int i = 0; i < n && r == 0; i++) {
        const struct cost_choice *o = &p->choices[i];
        if (o->group != c.group || o->backend != c.backend || memcmp(o->n, c.n, sizeof c.n))
            continue;
        from = from < 0 ? i : from;
        c = *o;
        for (c.rule = 1; c.rule < p->n_rules && r == 0; c.rule++) {
            c.read_bytes = coalesce_read_bytes(&p->rules[c.rule]);
            r = add_config(p, lim, &c, e);
        }
    }
    for (int i = 0; i < rules && r == 0; i++)
        r = problem_search_add(s, (struct problem_run){ added + i, rules, (p->sp.n_configs - added - i + rules - 1) / rules }, e);
    if (r == 0)
        r = problem_search_run(s, e);
    for (int i = added; i < p->sp.n_configs && r == 0; i++)
        if (p->sp.configs[i].bound >= p->sp.configs[from + (i - added) / rules].bound)
            problem_drop_curves(p, i);
    return r;
}

/* Reads through gaps hardly change which cores are best: they are tried with those that are best without, and with the
 * most that are as good. */
static int add_rules(struct problem_search *s, const struct problem_limits *lim, struct err *e)
{
    const struct problem *p = s->p;
    int n = p->sp.n_configs, best = best_config(p, n, 0), most = best_config(p, n, 1);
    int r = best < 0 ? 0 : try_rules(s, lim, p->choices[best], n, e);
    if (r < 0 || best < 0 || !memcmp(p->choices[best].n, p->choices[most].n, sizeof p->choices[best].n))
        return r;
    return try_rules(s, lim, p->choices[most], n, e);
}

int problem_fill(struct problem *p, const struct problem_limits *lim, struct err *e)
{
    static const int weight[SOLVE_MAX_BATCHES] = { 8, 4, 2, 1 }; /* 1 / batch: time per token counts */
    int n_classes = p->hw->n_classes > 0 ? p->hw->n_classes : 1, r;
    struct problem_search s;
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
    r = problem_search_new(&s, p, MAX_CONFIGS, e);
    if (r == 0 && (!p->sp.configs || !p->choices))
        r = err_set(e, ERR_NOMEM, "out of memory for configurations");
    for (int i = 0; i < p->n_groups && r == 0; i++) {
        int w = p->group[i].first;
        struct cost_choice c = { .mode = p->modes[w], .variant = w, .group = i, .predicted = p->predicted[w],
                                 .model = lim->model, .stat = lim->stat,
                                 .n_classes = n_classes, .buffers = (int)p->group[i].buffers, .act_q8 = lim->act_q8,
                                 .kv_f16 = lim->kv_f16, .context = lim->context };
        if (p->hw->n_classes == 0)
            c.n[0] = 1;
        while (r == 0 && (p->hw->n_classes == 0 || next_cores(p, &c))) {
            c.threads = 0;
            for (int k = 0; k < n_classes; k++)
                c.threads += c.n[k];
            if (c.threads <= BUDGET_MAX_THREADS)
                r = add_depths(&s, lim, &c, e);
            if (p->hw->n_classes == 0)
                break;
        }
    }
    if (r == 0)
        r = problem_search_run(&s, e);
    if (r == 0 && lim->model != PLAN_COST_PAPER)
        r = add_rules(&s, lim, e);
    problem_search_done(&s);
    if (r < 0)
        problem_unfill(p);
    return r;
}
