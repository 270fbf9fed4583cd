/* One pass over the layers: a layer's lists are read, replayed for every limit and batch size, and dropped. A point
 * that several limits share, or several layers where all are equivalent, is replayed once. */
#include "planner/check/operating_points.h"

#include "planner/planning/planning.h"
#include "planner/space/lookups.h"

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

/* A layer under one limit after the other. Its lists are made when they are needed. */
struct visit {
    const struct problem *p;
    const struct plan *plan;
    const struct plan_limit *const *limits;
    int n, layer;
    struct inputs_steps lists;
};

/* Are the lists of two layers the same? */
static int same_lists(const struct problem *p, int a, int b)
{
    const struct predicted *f = p->space.predicted[0];
    const uint8_t *kind = p->space.shapes.l.kind;
    return a == b || (p->space.in->equivalent && kind[a] == kind[b] && space_looks_up(&p->space, 0, a) && space_looks_up(&p->space, 0, b) &&
                      (!f || (f->input[a] == f->input[b] && f->always[a] == f->always[b] &&
                              predicted_as_often(f, a, b))));
}

static int same_point(const struct visit *v, int i, int k, int layer, int batch)
{
    const struct plan *plan = v->plan;
    const struct plan_batch *b = batch_of(v->limits[i], batch), *o = batch_of(v->limits[k], batch);
    int part = plan->n_parts - 1;
    return b && o && plan_same_coalesce(v->limits[k], v->limits[i]) && v->limits[k]->policy == v->limits[i]->policy &&
           plan_hot(plan, o, layer, 0, part) == plan_hot(plan, b, v->layer, 0, part) &&
           plan_cold(plan, o, layer, part) == plan_cold(plan, b, v->layer, part);
}

/* Figures of the same point, of a limit before this one or a layer before this one with the same lists; NULL: none. */
static const struct replay_figures *known_figures(const struct points *p, const struct visit *v, int i, int batch_index)
{
    int batch = inputs_batch_sizes[batch_index];
    for (int l = v->p->space.in->equivalent ? 0 : v->layer; l <= v->layer; l++)
        for (int k = 0; same_lists(v->p, l, v->layer) && k < (l < v->layer ? v->n : i); k++)
            if (same_point(v, i, k, l, batch))
                return figures_at(p, k, batch_index, l);
    return NULL;
}

static int need_lists(struct visit *v, struct err *e)
{
    return v->lists.n_steps ? 0 : lookups_steps(&v->p->space, 0, v->layer, lookups_window(&v->p->space, 0, v->layer), &v->lists, e);
}

static int replay_one(struct points *out, struct visit *v, int batch_index, struct err *e)
{
    const struct problem *p = v->p;
    const struct layout_shape *shape = layout_of(&p->space.shapes, v->layer);
    int batch = inputs_batch_sizes[batch_index], part = v->plan->n_parts - 1, layer = v->layer, r = 0;
    double all = -1, none;
    for (int i = 0; i < v->n && r == 0; i++) {
        const struct plan_batch *b = batch_of(v->limits[i], batch);
        struct replay_figures *f = figures_at(out, i, batch_index, layer);
        const struct replay_figures *known = b ? known_figures(out, v, i, batch_index) : NULL;
        if (known)
            *f = *known;
        if (!b || known)
            continue;
        if ((r = need_lists(v, e)) == 0 && all < 0)
            r = replay_point(&v->lists, shape, part, v->plan->n_blocks, batch, v->limits[i]->policy, 0, 0, &all, &none, e);
        f->all_lookups = all;
        if (r < 0)
            break;
        struct coalesce coalesce;
        struct reads_rule rule;
        planning_coalesce(v->limits[i], &coalesce);
        coalesce_rule(&coalesce, shape, &rule);
        r = replay_point_reads(&v->lists, shape, part, v->plan->n_blocks, batch, v->limits[i]->policy,
                               plan_hot(v->plan, b, layer, 0, part), plan_cold(v->plan, b, layer, part), &rule, f, e);
    }
    return r;
}

int operating_points_replay(struct points *out, const struct problem *p, const struct plan *plan,
                  const struct plan_limit *const *limits, int n, struct err *e)
{
    const struct inputs *in = p->space.in;
    struct points o = { n, in->n_batches, in->n_layers, NULL };
    int r = 0;
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        struct visit v = { .p = p, .plan = plan, .limits = limits, .n = n, .layer = l };
        if (!space_looks_up(&p->space, 0, l))
            continue;
        if (!o.at && !(o.at = calloc((size_t)n * (size_t)in->n_batches * (size_t)in->n_layers, sizeof *o.at)))
            r = err_set(e, ERR_NOMEM, "out of memory for a check");
        for (int b = 0; b < in->n_batches && r == 0; b++)
            r = replay_one(&o, &v, b, e);
        inputs_steps_done(&v.lists);
    }
    if (r < 0)
        operating_points_done(&o);
    else
        *out = o;
    return r;
}

void operating_points_done(struct points *p)
{
    free(p->at);
    p->at = NULL;
}

int operating_points_tables(const struct points *at, int i, struct problem *p, const struct plan *plan,
                  const struct plan_limit *l, struct err *e)
{
    int part = plan->n_parts - 1;
    if (!at->at)
        return 0;
    int r = miss_tables_reserve(&p->tables, 0, e);
    if (r < 0)
        return r;
    for (int b = 0; b < at->n_batches; b++) {
        const struct plan_batch *pb = batch_of(l, inputs_batch_sizes[b]);
        for (int k = 0; k < at->n_layers && pb; k++)
            if (space_looks_up(&p->space, 0, k))
                replay_fixed(layout_of(&p->space.shapes, k), part, plan->n_blocks, plan_hot(plan, pb, k, 0, part),
                             figures_at(at, i, b, k),
                             miss_tables_at(&p->tables, 0, b, k));
    }
    return 0;
}
