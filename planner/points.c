/* One pass over the layers: a layer's lists are read, replayed for every limit and batch size, and dropped. A point
 * that several limits share is replayed once. */
#include "planner/points.h"

#include "planner/planning.h"

#include <stdlib.h>

static const struct plan_batch *batch_of(const struct plan_limit *l, int batch)
{
    for (int i = 0; i < l->n_batches; i++)
        if (l->batches[i].batch == batch)
            return &l->batches[i];
    return NULL;
}

static struct replay_figures *figures_at(const struct points *p, int limit, int batch_index, int layer)
{
    return &p->at[((size_t)limit * (size_t)p->n_batches + (size_t)batch_index) * (size_t)p->n_layers + (size_t)layer];
}

/* The lowest limit before i with the same point; -1: none. */
static int same_point(const struct plan *plan, const struct plan_limit *const *limits, int i, int batch, int layer)
{
    int part = plan->n_parts - 1;
    const struct plan_batch *b = batch_of(limits[i], batch);
    for (int k = 0; k < i; k++) {
        const struct plan_batch *o = batch_of(limits[k], batch);
        if (o && plan_same_joins(limits[k], limits[i]) && plan_hot(plan, o, layer, 0, part) == plan_hot(plan, b, layer, 0, part) &&
            plan_cold(plan, o, layer, part) == plan_cold(plan, b, layer, part))
            return k;
    }
    return -1;
}

static int replay_one(struct points *out, const struct problem *p, const struct plan *plan,
                      const struct plan_limit *const *limits, int n, int batch_index, int layer,
                      const struct inputs_steps *s, struct err *e)
{
    int batch = inputs_batch_sizes[batch_index], part = plan->n_parts - 1, r = 0;
    double all = -1, none;
    for (int i = 0; i < n && r == 0; i++) {
        const struct plan_batch *b = batch_of(limits[i], batch);
        struct replay_figures *f = figures_at(out, i, batch_index, layer);
        int same = b ? same_point(plan, limits, i, batch, layer) : -1;
        if (same >= 0)
            *f = *figures_at(out, same, batch_index, layer);
        if (!b || same >= 0)
            continue;
        if (all < 0)
            r = replay_point(s, &p->shape, part, plan->n_blocks, batch, limits[i]->policy, 0, 0, &all, &none, e);
        f->all_lookups = all;
        if (r < 0)
            break;
        struct joins joins;
        struct reads_rule rule;
        planning_joins(limits[i], &joins);
        joins_rule(&joins, &p->shape, &rule);
        r = replay_point_reads(s, &p->shape, part, plan->n_blocks, batch, limits[i]->policy,
                               plan_hot(plan, b, layer, 0, part), plan_cold(plan, b, layer, part), &rule, f, e);
    }
    return r;
}

int points_replay(struct points *out, const struct problem *p, const struct plan *plan,
                  const struct plan_limit *const *limits, int n, struct err *e)
{
    const struct inputs *in = p->in;
    struct points o = { n, in->n_batches, in->n_layers, NULL };
    int r = 0;
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        struct inputs_steps s;
        if (!problem_looks_up(p, 0, l))
            continue;
        if (!o.at && !(o.at = calloc((size_t)n * (size_t)in->n_batches * (size_t)in->n_layers, sizeof *o.at)))
            r = err_set(e, ERR_NOMEM, "out of memory for a check");
        if (r < 0 || (r = problem_steps(p, 0, l, problem_window(p, 0, l), &s, e)) < 0)
            break;
        for (int b = 0; b < in->n_batches && r == 0; b++)
            r = replay_one(&o, p, plan, limits, n, b, l, &s, e);
        inputs_steps_done(&s);
    }
    if (r < 0)
        points_done(&o);
    else
        *out = o;
    return r;
}

void points_done(struct points *p)
{
    free(p->at);
    p->at = NULL;
}

int points_tables(const struct points *at, int i, struct problem *p, const struct plan *plan,
                  const struct plan_limit *l, struct err *e)
{
    int part = plan->n_parts - 1;
    if (!at->at)
        return 0;
    if (!p->tables[0])
        p->tables[0] = calloc((size_t)at->n_batches * (size_t)at->n_layers, sizeof *p->tables[0]);
    if (!p->tables[0])
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    for (int b = 0; b < at->n_batches; b++) {
        const struct plan_batch *pb = batch_of(l, inputs_batch_sizes[b]);
        for (int k = 0; k < at->n_layers && pb; k++)
            if (problem_looks_up(p, 0, k))
                replay_fixed(&p->shape, part, plan->n_blocks, plan_hot(plan, pb, k, 0, part),
                             figures_at(at, i, b, k),
                             &p->tables[0][(size_t)b * (size_t)at->n_layers + (size_t)k]);
    }
    return 0;
}
