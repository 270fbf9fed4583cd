/* Puts together what stands behind a limit. */
#include "planner/report/explain.h"

#include "planner/planning/planning.h"
#include "planner/planning/planning_account.h"
#include "planner/space/lookups.h"

#include <math.h>
#include <stdio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const explain_bound_names[EXPLAIN_BOUNDS] = { "compute", "memory", "io" };

enum explain_bound explain_binds(const struct plan_layer_figures *f)
{
    if (f->io_ns >= f->ffn_compute_ns && f->io_ns >= f->ffn_memory_ns && f->io_ns >= f->ffn_engine_ns)
        return f->io_ns > 0 ? EXPLAIN_IO : EXPLAIN_COMPUTE;
    return f->ffn_compute_ns >= f->ffn_memory_ns ? EXPLAIN_COMPUTE : EXPLAIN_MEMORY;
}

void explain_count(const struct plan *p, const struct plan_limit *l, int count[EXPLAIN_BOUNDS])
{
    memset(count, 0, EXPLAIN_BOUNDS * sizeof *count);
    for (int i = 0; i < p->n_layers; i++)
        count[explain_binds(&l->batches[0].predicted.layers[i])]++;
}

double explain_overlap_ns(enum plan_cost cost, const struct plan_layer_figures *f)
{
    double ffn_ns = cost == PLAN_COST_PAPER ? f->ffn_compute_ns : fmax(fmax(f->ffn_compute_ns, f->ffn_memory_ns), f->ffn_engine_ns);
    return f->attention_ns + f->predict_ns + ffn_ns + f->io_ns + f->exposed_ns - f->total_ns;
}

/* An earlier layer of which all is the same: of a described model, whose layers are equivalent. */
static int same_layer(const struct problem *pr, const struct cost_residency *residencies, int layer)
{
    for (int k = 0; pr->space.in->equivalent && k < layer; k++)
        if (layout_of(&pr->space.shapes, k) == layout_of(&pr->space.shapes, layer) &&
            !memcmp(residencies[k].hot, residencies[layer].hot, sizeof residencies[k].hot) &&
            residencies[k].slots == residencies[layer].slots)
            return k;
    return layer;
}

/* Belady's hit rate of a layer, of the very steps that its miss table was replayed from. As there, a cache for all units has no
 * misses: what the window saw for the first time is not charged. */
static int best_of(const struct problem *pr, const struct cost_residency *k, int layer, double *out, struct err *e)
{
    const struct layout_shape *shape = layout_of(&pr->space.shapes, layer);
    int last = shape->n_parts - 1;
    struct inputs_steps s;
    double misses = 0;
    const struct replay_table *t = miss_tables_at(&pr->tables, 0, 0, layer);
    double lookups = replay_lookups(t, k->hot[last]);
    *out = lookups > 0 && k->slots >= replay_units(t, k->hot[last]);
    if (lookups <= 0 || *out > 0)
        return 0;
    int r = lookups_steps(&pr->space, 0, layer, lookups_window(&pr->space, 0, layer), &s, e);
    if (r < 0)
        return r;
    r = replay_belady(&s, shape, last, pr->space.in->n_blocks, 1, k->hot[last], &k->slots, 1, &misses, e);
    inputs_steps_done(&s);
    *out = misses < lookups ? 1 - misses / lookups : 0;
    return r;
}

static int find_best(const struct problem *pr, const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    const struct inputs *in = pr->space.in;
    int r = 0;
    x->best_hit_rate = calloc((size_t)in->n_layers, sizeof *x->best_hit_rate);
    if (!x->best_hit_rate)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int l = 0; pr->tables.table[0] && l < in->n_layers && r == 0; l++) {
        int same = same_layer(pr, residencies, l);
        if (same < l)
            x->best_hit_rate[l] = x->best_hit_rate[same];
        else
            r = best_of(pr, &residencies[l], l, &x->best_hit_rate[l], e);
    }
    return r;
}

int explain_limit(struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *out,
                  struct err *e)
{
    struct explain x = { .n_paper = 0 };
    struct cost_choice c;
    struct limits lim;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory");
    planning_choice(p, l, &l->batches[0], &c);
    c.predicted = pr->space.predicted[0];
    planning_limits(p, l, &lim);
    planning_residencies(p, &l->batches[0], residencies);
    int r = planning_account(pr, l, planning_limit_engine(p, l), &x.account, e);
    if (r == 0 && l->mode == PLAN_PREDICTED) {
        struct cost_choice exact = c;
        struct budget b;
        exact.mode = PLAN_EXACT;
        exact.predicted = NULL;
        r = account_of(&pr->space, &exact, &lim, NULL, &b, e);
        x.exact_floor = b.floor;
    }
    if (r == 0)
        r = explain_paper(pr, l, &c, residencies, &x, e);
    if (r == 0 && p->cost == PLAN_COST_MEASURED)
        r = explain_measured(pr, l, &c, residencies, &x, e);
    if (r == 0) {
        explain_bases(pr, &c, &terms_paper, x.paper, x.n_paper);
        explain_bases(pr, &c, &terms_measured, x.measured, x.n_measured);
    }
    if (r == 0 && l->mode == PLAN_PREDICTED && p->cost == PLAN_COST_MEASURED)
        r = explain_inputs(pr, p, l, &x.inputs, e);
    if (r == 0)
        r = find_best(pr, residencies, &x, e);
    if (r == 0 && p->cost == PLAN_COST_MEASURED)
        r = explain_engine(pr, p, l, &x, e);
    free(residencies);
    if (r < 0) {
        explain_done(&x);
        return r;
    }
    *out = x;
    return 0;
}

void explain_done(struct explain *x)
{
    free(x->best_hit_rate);
    free(x->inputs);
    x->best_hit_rate = NULL;
    x->inputs = NULL;
}

const char *explain_gap_of(const struct plan_limit *l)
{
    return l->gap_of_layouts ? "under any layout that was allowed" : "under this layout";
}

void explain_own(const struct plan_limit *l, char *out, size_t len)
{
    const struct plan_own *o = &l->own;
    out[0] = '\0';
    if (o->tokens_per_s > 0 && o->cost >= 0.0005)
        snprintf(out, len, "one layout for all limits costs %.1f %% here: a layout of its own, %s%s, gives %.4g tokens/s%s",
                 100 * o->cost, o->packed ? "packed " : "", layout_form_name(o->form), o->tokens_per_s,
                 l->n_batches > 1 ? ", the mean of batch sizes" : "");
    else if (o->tokens_per_s > 0)
        snprintf(out, len, "one layout for all limits costs nothing here");
}
