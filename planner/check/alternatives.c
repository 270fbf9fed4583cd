/* A field is doubted when another value gives the same account and figures: then these say nothing of it. A gap is refuted by one
 * plan that is faster by more; the simplest ones are tried, which need no replay. */
#include "planner/check/alternatives.h"

#include "planner/check/compare.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_account.h"
#include "planner/planning/planning_alternatives.h"
#include "planner/space/lookups.h"

#include <stdlib.h>
#include <string.h>

static const char no_replay[] = "reads without gaps are not replayed";
static const char no_bearing[] = "another value gives the same figures";

/* --- pricing --- */

static int batch_index_of(const struct problem *pr, int batch)
{
    for (int i = 0; i < pr->space.in->n_batches; i++)
        if (inputs_batch_sizes[i] == batch)
            return i;
    return -1;
}

/* Figures of one batch size under any choice: *out has layers of its own (free them). */
static int price(const struct problem *pr, const struct plan *p, const struct cost_choice *c, const struct plan_batch *b,
                 struct plan_figures *out, struct err *e)
{
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    *out = (struct plan_figures){ .layers = malloc((size_t)p->n_layers * sizeof *out->layers) };
    if (!residencies || !out->layers) {
        free(residencies);
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    }
    planning_residencies(p, b, residencies);
    int r = problem_predict(pr, c, batch_index_of(pr, b->batch), residencies, out, e);
    free(residencies);
    return r;
}

/* A batch size's own choice, with what another one has of what all share. */
static struct cost_choice choice_like(const struct plan *p, const struct plan_limit *l, const struct plan_batch *b,
                                      const struct cost_choice *c)
{
    struct cost_choice own;
    planning_choice(p, l, b, &own);
    own.act_q8 = c->act_q8;
    own.stat = c->stat;
    own.backend = c->backend;
    own.lanes = c->lanes < own.depth ? c->lanes : own.depth;
    own.predicted = c->predicted;
    own.ahead = c->ahead;
    return own;
}

/* 1: this choice gives what the plan says, for all batch sizes. A choice that the device has no figures for is another. */
static int says_the_same(const struct problem *pr, const struct plan *p, const struct plan_limit *l, const struct cost_choice *c)
{
    struct compare_difference d;
    struct err ignored = { 0 };
    int same = 1;
    for (int i = 0; i < l->n_batches && same; i++) {
        struct plan_figures is;
        const struct cost_choice own = choice_like(p, l, &l->batches[i], c);
        same = price(pr, p, &own, &l->batches[i], &is, &ignored) == 0 && !compare_figures(p, &l->batches[i].predicted, &is, &d);
        free(is.layers);
    }
    return same;
}

/* --- doubts --- */

static int same_account(const struct problem *pr, const struct plan *p, const struct plan_limit *l)
{
    struct budget b;
    struct err ignored = { 0 };
    return planning_account(pr, l, planning_limit_engine(p, l), &b, &ignored) == 0 &&
           b.total == l->account_bytes && b.floor == l->floor_bytes;
}

static int doubt_lanes(const struct problem *pr, const struct plan *p, int li, const struct cost_choice *c, struct check_fields *f,
                       struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const int other[] = { l->io_lanes - 1, l->io_lanes + 1, 2 * l->io_lanes };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct plan_limit as = *l;
        struct cost_choice now = *c;
        now.lanes = as.io_lanes = other[i];
        if (other[i] > 0 && same_account(pr, p, &as) && says_the_same(pr, p, l, &now))
            return check_fields_add(f, no_bearing, e, "decisions.limits[%d].io.lanes", li);
    }
    return 0;
}

static int doubt_backend(const struct problem *pr, const struct plan *p, int li, const struct cost_choice *c, struct check_fields *f,
                         struct err *e)
{
    static const enum hw_backend all[] = { HW_ANY_BACKEND, HW_URING, HW_PREAD };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct cost_choice now = *c;
        now.backend = all[i];
        if (all[i] != c->backend && says_the_same(pr, p, &p->limits[li], &now))
            return check_fields_add(f, no_bearing, e, "decisions.limits[%d].io.backend", li);
    }
    return 0;
}

/* Do the misses of a layer differ under the other policy? */
static int policy_matters(const struct problem *pr, const struct plan *p, const struct plan_limit *l, int layer, int *differs,
                          struct err *e)
{
    const enum cache_policy both[2] = { CACHE_LRU, CACHE_LFU };
    int part = p->n_parts - 1, r = 0;
    struct inputs_steps s = { 0 };
    for (int i = 0; i < l->n_batches && r == 0 && !*differs; i++) {
        const struct plan_batch *b = &l->batches[i];
        double lookups, misses[2] = { 0 };
        if (!plan_cold(p, b, layer, part))
            continue;
        if (!s.n_steps)
            r = lookups_steps(&pr->space, 0, layer, lookups_window(&pr->space, 0, layer), &s, e);
        for (int k = 0; k < 2 && r == 0; k++)
            r = replay_point(&s, layout_of(&pr->space.shapes, layer), part, p->n_blocks, b->batch, both[k],
                             plan_hot(p, b, layer, 0, part), plan_cold(p, b, layer, part), &lookups, &misses[k], e);
        *differs = r == 0 && compare_differs(misses[0], misses[1]);
    }
    inputs_steps_done(&s);
    return r;
}

static int doubt_policy(const struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    int differs = 0, r = 0;
    for (int k = 0; k < p->n_layers && r == 0 && !differs && space_has_lists(pr->space.in, l->mode); k++)
        if (space_looks_up(&pr->space, 0, k) && space_representative(&pr->space, k) == k)
            r = policy_matters(pr, p, l, k, &differs, e);
    return r < 0 || differs ? r : check_fields_add(f, no_bearing, e, "decisions.limits[%d].cold_policy", li);
}

/* The account is that of the batch size that takes most: of others, more may be resident than there is, and no figure need tell. */
static int doubt_batches(const struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    static const char why[] = "another batch size takes the account";
    const struct plan_limit *l = &p->limits[li];
    int r = 0;
    for (int i = 0; i < l->n_batches && r == 0; i++) {
        struct plan_limit alone = *l;
        struct budget b;
        alone.batches = &l->batches[i];
        alone.n_batches = 1;
        if ((r = planning_account(pr, &alone, planning_limit_engine(p, l), &b, e)) == 0 && b.total < l->account_bytes &&
            (r = check_fields_add(f, why, e, "decisions.limits[%d].batches[%d].cold", li, i)) == 0)
            r = check_fields_add(f, why, e, "decisions.limits[%d].batches[%d].hot", li, i);
    }
    return r;
}

/* Of a batch size that reads nothing the queue may be of any depth that the limit has. */
static int doubt_depths(const struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    int r = 0;
    for (int i = 0; i < l->n_batches && l->n_batches > 1 && r == 0; i++) {
        const struct plan_batch *b = &l->batches[i];
        const int other[] = { b->queue_depth - 1, b->queue_depth + 1, 2 * b->queue_depth, b->queue_depth / 2 };
        int same = 0;
        for (size_t k = 0; k < sizeof other / sizeof *other && !same; k++) {
            struct plan_limit alone = *l;
            struct plan_batch as = *b;
            struct cost_choice c;
            as.queue_depth = other[k];
            alone.batches = &as;
            alone.n_batches = 1;
            planning_choice(p, l, NULL, &c);
            c.predicted = pr->space.predicted[0];
            same = other[k] > 0 && other[k] <= l->queue_depth && says_the_same(pr, p, &alone, &c);
        }
        if (same)
            r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].batches[%d].configuration.queue_depth", li, i);
    }
    return r;
}

/* Where fewer neurons stay in memory than the engine may have, its number may be another. */
static int doubt_engine(const struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    int cluster = (int)p->layout.cluster_neurons, r = 0;
    for (int i = 0; i < l->n_batches && r == 0; i++) {
        const struct plan_batch *b = &l->batches[i];
        const int other[] = { (int)b->engine_neurons - cluster, (int)b->engine_neurons + cluster, p->n_ff };
        int same = 0;
        for (size_t k = 0; k < sizeof other / sizeof *other && b->engine_neurons && !same; k++) {
            struct plan_limit alone = *l;
            struct plan_batch as = *b;
            struct cost_choice c;
            as.engine_neurons = other[k] > 0 ? (uint32_t)other[k] : 0;
            alone.batches = &as;
            alone.n_batches = 1;
            planning_choice(p, l, NULL, &c);
            c.predicted = pr->space.predicted[0];
            same = other[k] > 0 && other[k] <= p->n_ff && as.engine_neurons != b->engine_neurons && says_the_same(pr, p, &alone, &c);
        }
        if (same)
            r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].batches[%d].engine_neurons", li, i);
    }
    return r;
}

/* Does a limit with this in place of its length's height give the same times of prompts? */
static int prompts_the_same(const struct problem *pr, const struct plan *p, const struct plan_limit *l, int at, uint32_t height,
                            const struct cost_residency *residencies)
{
    struct plan_limit other = *l;
    struct plan_prompt is;
    struct err ignored = { 0 };
    struct cost_choice c;
    planning_choice(p, l, NULL, &c);
    c.engine = p->engine;
    c.predicted = pr->space.predicted[0];
    other.prompt.engine_neurons[at] = height;
    if (problem_prompt(pr, &c, residencies, &other, &is, &ignored) < 0)
        return 0;
    int same = 1;
    for (int i = 0; i < is.n && same; i++)
        same = !compare_differs(l->prompt.ffn_ns[i], is.ffn_ns[i]) && !compare_differs(l->prompt.wait_ns[i], is.wait_ns[i]);
    return same;
}

/* Likewise of a prompt's passes. */
static int doubt_prompt_heights(const struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    int cluster = (int)p->layout.cluster_neurons, r = 0;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    planning_residencies(p, &l->batches[0], residencies);
    for (int i = 0; i < l->prompt.n && l->prompt.with_engine && r == 0; i++) {
        const int own = (int)l->prompt.engine_neurons[i], other[] = { own - cluster, own + cluster, p->n_ff };
        int same = 0;
        if (l->prompt.tokens[i] <= l->max_batch || l->prompt.tokens[i] > l->prefill_chunk)
            continue;
        for (size_t k = 0; k < sizeof other / sizeof *other && own && !same; k++)
            same = other[k] > 0 && other[k] <= p->n_ff && other[k] != own && prompts_the_same(pr, p, l, i, (uint32_t)other[k], residencies);
        if (same)
            r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].prompt.engine_neurons[%d]", li, i);
    }
    free(residencies);
    return r;
}

/* An alternative with one thing otherwise. */
struct other_variant {
    struct plan_alternative a;
    const char *key;
};

static int other_variants(const struct plan_limit *l, const struct plan_alternative *a, struct other_variant out[12])
{
    static const enum plan_io all[] = { PLAN_IO_AUTO, PLAN_IO_URING, PLAN_IO_PREAD };
    const int depths[] = { a->queue_depth - 1, a->queue_depth + 1, 2 * a->queue_depth, 2 * a->queue_depth + 3, a->queue_depth / 2 };
    int n = 0;
    for (size_t k = 0; k < sizeof depths / sizeof *depths; k++) {
        out[n] = (struct other_variant){ *a, "queue_depth" };
        out[n].a.queue_depth = depths[k];
        n += depths[k] > 0;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        out[n] = (struct other_variant){ *a, "backend" };
        out[n].a.io = all[k];
        n += all[k] != a->io;
    }
    for (int d = -1; d <= 1; d += 2) {
        out[n] = (struct other_variant){ *a, "threads" };
        out[n].a.threads += d;
        n += out[n].a.threads > 0;
    }
    out[n] = (struct other_variant){ *a, "experts_ahead" };
    out[n].a.ahead = !a->ahead;
    return n + (l->ahead != PLAN_AHEAD_UNSTATED);
}

static int doubt_way(struct problem *pr, const struct plan *p, int li, int i, const struct cost_choice *own,
                     const struct cost_residency *residencies, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    const struct plan_alternative *a = &l->alternatives[i];
    struct other_variant other[12];
    const char *said = NULL;
    int n = other_variants(l, a, other), r = 0;
    if (!a->coalesced && l->n_coalesce)
        return (r = check_fields_add(f, no_replay, e, "decisions.limits[%d].alternatives[%d]", li, i)) < 0 ? r :
               check_fields_add(f, no_replay, e, "predictions.limits[%d].alternatives[%d]", li, i);
    for (int k = 0; k < n && r == 0; k++) {
        double is[PLAN_TERMS];
        struct err ignored = { 0 };
        int same = planning_alternative_times(pr, p->cost, l, own, &other[k].a, residencies, is, &ignored) == 0;
        for (int t = 0; t < PLAN_TERMS && same; t++)
            same = !compare_differs(is[t], a->term_ns[t]);
        if (same && other[k].key != said)
            r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].alternatives[%d].%s", li, i, said = other[k].key);
    }
    return r < 0 || !l->n_coalesce ? r :
           check_fields_add(f, no_replay, e, "decisions.limits[%d].alternatives[%d].joins", li, i);
}

static int doubt_variants(struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct cost_choice c;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    int r = residencies ? 0 : err_set(e, ERR_NOMEM, "out of memory for a check");
    planning_choice(p, l, &l->batches[0], &c);
    c.predicted = pr->space.predicted[0];
    if (r == 0)
        planning_residencies(p, &l->batches[0], residencies);
    for (int i = 0; i < l->n_alternatives && r == 0; i++)
        r = doubt_way(pr, p, li, i, &c, residencies, f, e);
    free(residencies);
    return r;
}

int alternatives_doubts(struct problem *pr, const struct plan *p, int li, struct check_fields *f, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct notes *notes = pr->space.notes;
    struct cost_choice c, act, ahead, stat;
    if (!f)
        return 0;
    planning_choice(p, l, NULL, &c);
    c.predicted = pr->space.predicted[0];
    act = ahead = stat = c;
    act.act_q8 = !c.act_q8;
    ahead.ahead = !c.ahead;
    stat.stat = c.stat == PLAN_TYPICAL ? PLAN_SUSTAINED : PLAN_TYPICAL;
    pr->space.notes = NULL; /* what other choices lack is not said of this plan */
    int r = doubt_batches(pr, p, li, f, e);
    if (r == 0 && says_the_same(pr, p, l, &act))
        r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].act", li);
    if (r == 0 && l->ahead != PLAN_AHEAD_UNSTATED && says_the_same(pr, p, l, &ahead))
        r = check_fields_add(f, no_bearing, e, "decisions.limits[%d].io.experts_ahead", li);
    f->figures_tell |= r == 0 && !says_the_same(pr, p, l, &stat);
    if (r == 0 && (r = doubt_lanes(pr, p, li, &c, f, e)) == 0 && (r = doubt_backend(pr, p, li, &c, f, e)) == 0)
        r = doubt_policy(pr, p, li, f, e);
    if (r == 0 && (r = doubt_depths(pr, p, li, f, e)) == 0 && (r = doubt_engine(pr, p, li, f, e)) == 0)
        r = doubt_prompt_heights(pr, p, li, f, e);
    if (r == 0)
        r = doubt_variants(pr, p, li, f, e);
    pr->space.notes = notes;
    return r;
}

/* --- the gap --- */

/* Weighed sum over batch sizes of the time of a token. */
static double time_of(const struct plan *p, const struct plan_limit *l, const struct plan_figures *figures)
{
    const int *weight = p->request.weight;
    double sum = 0;
    for (int i = 0; i < l->n_batches; i++)
        sum += (weight[i] > 0 ? weight[i] : 1) * 1e9 / figures[i].tokens_per_s;
    return sum;
}

/* Every batch size with this layer whole in memory. */
static void make_whole(const struct plan *p, struct plan_limit *l, int layer)
{
    size_t per_layer = (size_t)p->n_blocks * (size_t)p->n_parts, parts = (size_t)p->n_parts;
    for (int i = 0; i < l->n_batches; i++) {
        for (size_t k = 0; k < per_layer; k++)
            l->batches[i].hot[(size_t)layer * per_layer + k] = (uint32_t)plan_n_ff(p, layer);
        for (size_t q = 0; q < parts; q++)
            l->batches[i].cold[(size_t)layer * parts + q] = 0;
    }
}

static void copy_layer(const struct plan *p, const struct plan_limit *from, struct plan_limit *to, int layer)
{
    size_t per_layer = (size_t)p->n_blocks * (size_t)p->n_parts, parts = (size_t)p->n_parts;
    for (int i = 0; i < to->n_batches; i++) {
        const struct plan_batch *a = &from->batches[i], *b = &to->batches[i];
        memcpy(b->hot + (size_t)layer * per_layer, a->hot + (size_t)layer * per_layer, per_layer * sizeof *b->hot);
        memcpy(b->cold + (size_t)layer * parts, a->cold + (size_t)layer * parts, parts * sizeof *b->cold);
    }
}

/* A plan of one limit, with arrays of its own. */
static int copy_limit(const struct plan *p, const struct plan_limit *from, struct plan *out, struct err *e)
{
    *out = *p;
    out->notes = NULL;
    out->n_notes = out->n_limits = 0;
    if (!(out->limits = malloc(sizeof *out->limits)))
        return err_set(e, ERR_NOMEM, "out of memory for a check");
    struct plan_limit *to = out->limits;
    *to = *from;
    int r = plan_limit_init(p, to, from->n_batches, e);
    if (r < 0)
        return r;
    out->n_limits = 1;
    memcpy(to->predictor, from->predictor, (size_t)p->n_layers);
    memcpy(to->always, from->always, (size_t)p->n_layers * sizeof *to->always);
    memcpy(to->recalls, from->recalls, (size_t)p->n_layers * sizeof *to->recalls);
    for (int i = 0; i < to->n_batches; i++) {
        plan_batch_choice(&to->batches[i], &from->batches[i]);
        memcpy(to->batches[i].streamed, from->batches[i].streamed, (size_t)p->n_layers);
    }
    for (int k = 0; k < p->n_layers; k++)
        copy_layer(p, from, to, k);
    return 0;
}

/* As many whole layers as fit, the first ones. Returns how many were added. */
static int fill_with_layers(const struct problem *pr, const struct plan *p, const struct plan_limit *from, struct plan_limit *to)
{
    struct err ignored = { 0 };
    int n = 0;
    for (int k = 0; k < p->n_layers; k++) {
        struct budget b;
        make_whole(p, to, k);
        int fits = planning_account(pr, to, planning_limit_engine(p, to), &b, &ignored) == 0 && cost_memory_ok(b.total, to->memory_bytes);
        if (!fits)
            copy_layer(p, from, to, k);
        n += fits;
    }
    return n;
}

static int price_limit(const struct problem *pr, const struct plan *p, const struct plan_limit *l, double *ns, struct err *e)
{
    struct cost_choice c;
    struct plan_figures figures[PLAN_MAX_BATCHES];
    int r = 0, n = 0;
    while (n < l->n_batches && r == 0) {
        planning_choice(p, l, &l->batches[n], &c);
        c.predicted = pr->space.predicted[0];
        r = price(pr, p, &c, &l->batches[n], &figures[n], e);
        n++;
    }
    if (r == 0)
        *ns = time_of(p, l, figures);
    while (n-- > 0)
        free(figures[n].layers);
    return r;
}

int alternatives_refute_gap(const struct problem *pr, const struct plan *p, const char *name, int li, struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct plan more;
    struct plan_figures figures[PLAN_MAX_BATCHES];
    double is = 0;
    int layers, r = copy_limit(p, l, &more, e);
    for (int i = 0; i < l->n_batches; i++)
        figures[i] = l->batches[i].predicted;
    double was = time_of(p, l, figures);
    if (r == 0 && (layers = fill_with_layers(pr, p, l, &more.limits[0])) > 0 && (r = price_limit(pr, p, &more.limits[0], &is, e)) == 0 &&
        is < was * (1 - l->gap - 2 * COMPARE_TOLERANCE))
        r = err_set(e, ERR_INFEASIBLE, "plan '%s': limits[%d].gap says that no plan in memory_bytes %llu is faster by more than %.3g %%; "
                    "with %d layers whole in memory, which fits, it is faster by %.3g %%", name, li,
                    (unsigned long long)l->memory_bytes, 100 * l->gap, layers, 100 * (1 - is / was));
    plan_done(&more);
    return r;
}
