/* Every combination, depth first, cut where memory is spent: the oracle for small instances. Batch sizes share
 * nothing but the configuration, so each is searched by itself. */
#include "planner/solve.h"

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
    for (int i = 0; i < p->n_configs; i++)
        for (int b = 0; p->configs[i].curves && b < p->n_batches; b++) {
            double n = 1;
            for (int l = 0; l < p->n_layers; l++)
                n *= p->configs[i].curves[(size_t)b * (size_t)p->n_layers + (size_t)l].n;
            total += n;
        }
    return total > 1e9;
}

int solve_exhaustive(const struct solve_problem *p, struct solve_result *out, struct err *e)
{
    size_t layers = (size_t)p->n_layers, n = layers * (size_t)p->n_batches;
    struct solve_result best = { .objective = SOLVE_NEVER, .finished = 1, .choice = malloc(n * sizeof(int)) };
    struct solve_result now = { .choice = malloc(n * sizeof(int)) };
    int *at = malloc(layers * sizeof *at);
    int r = 0;
    if (!best.choice || !now.choice || !at)
        r = err_set(e, ERR_NOMEM, "out of memory for the search");
    else if (too_many(p))
        r = err_set(e, ERR_LIMIT, "more than 1e9 combinations: too many to search one by one");
    for (int i = 0; i < p->n_configs && r == 0; i++) {
        const struct solve_config *c = &p->configs[i];
        if (!c->curves || !solve_cores_ok(p, c))
            continue;
        now.objective = 0;
        int ok = 1;
        for (int b = 0; b < p->n_batches && ok; b++) {
            struct search s = { p, c->curves + (size_t)b * layers, SOLVE_NEVER, at, now.choice + (size_t)b * layers };
            descend(&s, 0, p->memory - c->fixed_bytes, 0);
            if (!(ok = s.best != SOLVE_NEVER))
                break;
            now.ticks[b] = solve_total(c, b, s.best);
            now.objective += p->weight[b] * now.ticks[b];
        }
        if (ok && now.ticks[0] <= p->max_ticks && now.objective < best.objective) {
            best.objective = now.objective;
            best.config = i;
            best.feasible = 1;
            memcpy(best.ticks, now.ticks, sizeof best.ticks);
            memcpy(best.choice, now.choice, n * sizeof(int));
        }
    }
    free(at);
    free(now.choice);
    if (r < 0 || !best.feasible) {
        free(best.choice);
        best.choice = NULL;
    }
    if (r < 0)
        return r;
    best.bound = best.objective;
    *out = best;
    return 0;
}
