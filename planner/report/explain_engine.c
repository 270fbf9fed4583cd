/* What the accelerator brings: the same plan with other heights. */
#include "planner/report/explain.h"

#include "planner/planning/planning.h"

#include <stdlib.h>

static int speed_at(const struct problem *pr, const struct cost_choice *c, uint32_t height, const char *engine, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *f, struct err *e)
{
    struct cost_choice at = *c;
    at.height = height;
    at.engine = height ? engine : NULL;
    return problem_predict(pr, &at, batch_index, residencies, f, e);
}

static int batch_heights(const struct problem *pr, const struct plan *p, const struct plan_limit *l, int i, const char *engine,
                         struct cost_residency *residencies, struct plan_figures *f, struct explain_height *out, struct err *e)
{
    const struct plan_batch *b = &l->batches[i];
    uint32_t n_ff = (uint32_t)p->n_ff, cluster = p->layout.cluster_neurons;
    struct cost_choice c;
    planning_choice(p, l, b, &c);
    c.predicted = pr->space.predicted[0];
    planning_residencies(p, b, residencies);
    *out = (struct explain_height){ .batch = b->batch, .neurons = b->engine_neurons, .tokens_per_s = b->predicted.tokens_per_s };
    int r = speed_at(pr, &c, 0, engine, i, residencies, f, e);
    out->without = f->tokens_per_s;
    for (uint32_t k = 1; k <= EXPLAIN_HEIGHTS && r == 0; k++) {
        uint32_t height = k == EXPLAIN_HEIGHTS ? n_ff : n_ff * k / EXPLAIN_HEIGHTS / cluster * cluster;
        if (!height || (r = speed_at(pr, &c, height, engine, i, residencies, f, e)) < 0)
            continue;
        out->tried[out->n_tried] = height;
        out->at[out->n_tried++] = f->tokens_per_s;
        if (f->tokens_per_s > out->at_best) {
            out->at_best = f->tokens_per_s;
            out->best = height;
        }
    }
    return r;
}

int explain_engine(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *x, struct err *e)
{
    struct request q;
    request_again(p, l, pr->space.hw, &q);
    const char *engine = planning_engine(&q, pr);
    if (!engine)
        return 0;
    struct notes *notes = pr->space.notes, none = { 0 };
    struct problem quiet = *pr; /* what other heights lack is not said of this plan */
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    struct plan_figures f = { .layers = malloc((size_t)p->n_layers * sizeof *f.layers) };
    int r = residencies && f.layers ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    quiet.space.notes = notes ? &none : NULL;
    x->engine = engine;
    for (int i = 0; i < l->n_batches && r == 0; i++)
        r = batch_heights(&quiet, p, l, i, engine, residencies, &f, &x->height[x->n_heights++], e);
    free(residencies);
    free(f.layers);
    return r;
}
