#ifndef TESTS_SOLVE_EXHAUSTIVE_H
#define TESTS_SOLVE_EXHAUSTIVE_H

/* Every combination, depth first, cut where memory is spent: the oracle for small instances. Batch sizes share
 * nothing but the configuration and, where it has any, the kinds of its layers: for each choice of those, every batch
 * size is searched by itself. */
#include "planner/solve/solve.h"

#include <stdlib.h>
#include <string.h>

struct search {
    const struct solve_problem *p;
    const struct solve_curve *curves;
    int64_t best;
    int *at, *best_at;
};

static void descend(struct search *s, int layer, int64_t left, int64_t sum)
{
    if (layer == s->p->n_layers) {
        if (sum < s->best) {
            s->best = sum;
            memcpy(s->best_at, s->at, (size_t)layer * sizeof *s->at);
        }
        return;
    }
    const struct solve_curve *k = &s->curves[layer];
    for (int i = 0; i < k->n && k->point[i].bytes <= left; i++) {
        s->at[layer] = i;
        descend(s, layer + 1, left - k->point[i].bytes, sum + k->point[i].ticks);
    }
}

static int too_many(const struct solve_problem *p)
{
    double total = 0;
    for (int i = 0; i < p->n_configs; i++) {
        const struct solve_config *c = &p->configs[i];
        for (int b = 0; c->curves && b < p->n_batches; b++) {
            double n = 1;
            for (size_t l = 0; l < (size_t)p->n_layers; l++) {
                size_t at = (size_t)b * (size_t)p->n_layers + l;
                int sum = c->kinds ? 0 : c->curves[at].n;
                for (int k = 0; c->kinds && k < c->n_kinds; k++)
                    sum += c->kinds[(size_t)k * (size_t)(p->n_batches * p->n_layers) + at].n;
                n *= sum;
            }
            total += n;
        }
    }
    return total > 1e9;
}

/* The best of a config over these curves [n_batches][n_layers], into out. */
static int search_all(const struct solve_problem *p, const struct solve_config *c, const struct solve_curve *curves,
                      int *at, struct solve_result *out)
{
    size_t layers = (size_t)p->n_layers;
    out->objective = 0;
    for (int b = 0; b < p->n_batches; b++) {
        struct search s = { p, curves + (size_t)b * layers, SOLVE_NEVER, at, out->choice + (size_t)b * layers };
        descend(&s, 0, p->memory - c->fixed_bytes, 0);
        if (s.best == SOLVE_NEVER)
            return 0;
        out->ticks[b] = solve_total(c, b, s.best);
        out->objective += p->weight[b] * out->ticks[b];
    }
    return out->ticks[0] <= p->max_ticks;
}

static void keep_better(const struct solve_problem *p, int index, const struct solve_result *now, struct solve_result *best)
{
    size_t layers = (size_t)p->n_layers;
    if (now->objective >= best->objective)
        return;
    best->objective = now->objective;
    best->config = index;
    best->feasible = 1;
    memcpy(best->ticks, now->ticks, sizeof best->ticks);
    memcpy(best->choice, now->choice, layers * (size_t)p->n_batches * sizeof(int));
    memcpy(best->kind, now->kind, layers * sizeof(int));
}

/* The next vector of kinds, in counting order; 0 at the end. */
static int next_kinds(const struct solve_problem *p, const struct solve_config *c, int *kind)
{
    for (int l = 0; l < p->n_layers; l++) {
        if (++kind[l] < c->n_kinds)
            return 1;
        kind[l] = 0;
    }
    return 0;
}

static void search_kinds(const struct solve_problem *p, int index, struct solve_curve *curves, int *at,
                         struct solve_result *now, struct solve_result *best)
{
    const struct solve_config *c = &p->configs[index];
    size_t n = (size_t)p->n_layers * (size_t)p->n_batches;
    memset(now->kind, 0, (size_t)p->n_layers * sizeof *now->kind);
    do {
        int there = 1;
        for (size_t i = 0; i < n; i++) {
            curves[i] = c->kinds[(size_t)now->kind[i % (size_t)p->n_layers] * n + i];
            there &= curves[i].n > 0;
        }
        if (there && search_all(p, c, curves, at, now))
            keep_better(p, index, now, best);
    } while (next_kinds(p, c, now->kind));
}

/* Every point of every layer of every config with curves: for small instances. ERR_LIMIT past 1e9 combinations. */
static int solve_exhaustive(const struct solve_problem *p, struct solve_result *out, struct err *e)
{
    size_t layers = (size_t)p->n_layers, n = layers * (size_t)p->n_batches;
    struct solve_result best = { 0 }, now = { 0 };
    int *at = malloc(layers * sizeof *at);
    struct solve_curve *curves = malloc(n * sizeof *curves);
    int r = solve_result_new(p, &best, e);
    if (r == 0)
        r = solve_result_new(p, &now, e);
    if (r == 0 && (!at || !curves))
        r = err_set(e, ERR_NOMEM, "out of memory for the search");
    else if (r == 0 && too_many(p))
        r = err_set(e, ERR_LIMIT, "more than 1e9 combinations: too many to search one by one");
    best.finished = 1;
    for (int i = 0; i < p->n_configs && r == 0; i++) {
        const struct solve_config *c = &p->configs[i];
        if (!c->curves || !solve_cores_ok(p, c))
            continue;
        if (c->kinds)
            search_kinds(p, i, curves, at, &now, &best);
        else if (search_all(p, c, c->curves, at, &now))
            keep_better(p, i, &now, &best);
    }
    free(at);
    free(curves);
    solve_result_done(&now);
    if (r < 0 || !best.feasible)
        solve_result_done(&best);
    if (r < 0)
        return r;
    best.bound = best.objective;
    *out = best;
    return 0;
}

#endif
