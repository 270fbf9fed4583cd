/* What the report shows beyond the plan: explain's figures, and miss rates over all cache sizes. Limits that share mode
 * and policy share one replay. */
#include "planner/report/report.h"

#include "planner/planning/planning.h"
#include "planner/space/lookups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLED 8      /* layers that Belady's bound is taken of */

/* Belady's bound of a layer beyond a prefix, misses per step at the sizes of its miss table. */
struct bound {
    const struct layout_shape *shape; /* NULL: none yet */
    uint32_t hot;
    double misses[REPLAY_SIZES];
};

/* Of the very steps that the table was replayed from, so that it is a bound. The last size holds all units and misses nothing, as
 * in the table. Of a described model, whose layers are equivalent, the one before may do. */
static int belady_layer(const struct problem *pr, int layer, uint32_t hot, uint32_t units, struct bound *b, struct err *e)
{
    struct inputs_steps s;
    const struct layout_shape *shape = layout_of(&pr->space.shapes, layer);
    int last = shape->n_parts - 1;
    uint32_t slots[REPLAY_SIZES];
    if (b->shape == shape && b->hot == hot && pr->space.in->equivalent)
        return 0;
    int r = lookups_steps(&pr->space, 0, layer, lookups_window(&pr->space, 0, layer), &s, e);
    if (r < 0)
        return r;
    *b = (struct bound){ .shape = shape, .hot = hot };
    for (int i = 0; i < REPLAY_SIZES; i++)
        slots[i] = (uint32_t)lround(replay_size_shares[i] * units);
    r = replay_belady(&s, shape, last, pr->space.in->n_blocks, 1, hot, slots, REPLAY_SIZES - 1, b->misses, e);
    inputs_steps_done(&s);
    return r;
}

static int misses_alloc(struct report_misses *m, int n_layers, struct err *e)
{
    m->n = REPLAY_SIZES;
    m->layers = malloc((size_t)n_layers * REPLAY_SIZES * sizeof *m->layers);
    m->planned = malloc((size_t)n_layers * 2 * sizeof *m->planned);
    if (!m->layers || !m->planned)
        return err_set(e, ERR_NOMEM, "out of memory for miss rates");
    for (int i = 0; i < REPLAY_SIZES; i++)
        m->share[i] = replay_size_shares[i];
    return 0;
}

/* Layers spread evenly over those that look something up. */
static int is_sampled(int rank, int of)
{
    return of <= SAMPLED || rank * SAMPLED / of != (rank - 1) * SAMPLED / of || rank == 0;
}

static int collect_misses(const struct problem *pr, const struct plan *p, const struct plan_limit *l,
                          struct report_misses *m, struct err *e)
{
    int last = p->n_parts - 1, used = 0, rank = 0, r = misses_alloc(m, p->n_layers, e);
    struct bound bound = { 0 };
    double all_lookups = 0, all_units = 0, all_slots = 0, all_misses = 0;
    for (int k = 0; pr->tables.table[0] && k < p->n_layers; k++)
        used += replay_lookups(miss_tables_at(&pr->tables, 0, 0, k), plan_hot(p, &l->batches[0], k, 0, last)) > 0;
    for (int k = 0; k < p->n_layers && r == 0; k++) {
        const struct replay_table *t = miss_tables_at(&pr->tables, 0, 0, k);
        uint32_t hot = plan_hot(p, &l->batches[0], k, 0, last), slots = plan_cold(p, &l->batches[0], k, last);
        uint32_t units = t ? replay_units(t, hot) : 0;
        double lookups = t ? replay_lookups(t, hot) : 0, *row = &m->layers[k * REPLAY_SIZES];
        for (int i = 0; i < REPLAY_SIZES; i++)
            row[i] = lookups > 0 ? replay_misses(t, hot, (uint32_t)lround(m->share[i] * units)) / lookups : NAN;
        m->planned[2 * k] = lookups > 0 ? (double)slots / units : NAN;
        m->planned[2 * k + 1] = lookups > 0 ? 1 - l->batches[0].predicted.layers[k].hit_rate : NAN;
        if (!(lookups > 0) || !is_sampled(rank++, used))
            continue;
        for (int i = 0; i < REPLAY_SIZES; i++)
            m->policy[i] += row[i] * lookups;
        m->sampled++;
        all_lookups += lookups, all_units += units, all_slots += slots;
        all_misses += m->planned[2 * k + 1] * lookups;
        r = belady_layer(pr, k, hot, units, &bound, e);
        for (int i = 0; i < REPLAY_SIZES; i++)
            m->best[i] += bound.misses[i];
    }
    if (m->sampled == 0 || r < 0)
        return r;
    for (int i = 0; i < REPLAY_SIZES; i++) {
        m->policy[i] /= all_lookups;
        m->best[i] /= all_lookups;
    }
    m->cliff = all_lookups / all_units;
    m->planned_share = all_slots / all_units;
    m->planned_rate = all_misses / all_lookups;
    return 0;
}

static int collect_gains(struct report *r, struct err *e)
{
    struct gains all[PLAN_MAX_LIMITS];
    int ok = gains_find(r->p, r->p->limits, r->p->n_limits, r->in, r->hw, all, e);
    for (int i = 0; i < r->p->n_limits && ok == 0; i++)
        r->limits[i].gains = all[i];
    return ok;
}

int report_collect(struct report *r, struct notes *notes, struct err *e)
{
    const struct plan *p = r->p;
    struct problem pr = { 0 };
    int ok = 0;
    r->limits = calloc((size_t)p->n_limits, sizeof *r->limits);
    if (!r->limits)
        return err_set(e, ERR_NOMEM, "out of memory for a report");
    for (int i = 0; i < p->n_limits && ok == 0; i++) {
        const struct plan_limit *l = &p->limits[i];
        struct report_limit *o = &r->limits[i];
        o->limit = l;
        if (i == 0 || !planning_same_problem(p, l, &p->limits[i - 1])) {
            problem_done(&pr);
            ok = planning_problem(p, l, r->in, r->hw, notes, &pr, e);
        }
        if (ok == 0 && (ok = explain_limit(&pr, p, l, &o->explain, e)) == 0)
            ok = collect_misses(&pr, p, l, &o->misses, e);
    }
    problem_done(&pr);
    if (ok == 0 && !r->no_gains)
        ok = collect_gains(r, e);
    if (ok < 0)
        report_done(r);
    return ok;
}

void report_done(struct report *r)
{
    for (int i = 0; r->limits && i < r->p->n_limits; i++) {
        explain_done(&r->limits[i].explain);
        free(r->limits[i].misses.layers);
        free(r->limits[i].misses.planned);
    }
    free(r->limits);
    r->limits = NULL;
}
