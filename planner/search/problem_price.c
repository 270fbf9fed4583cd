/* What a choice of the device's configuration takes: bytes by the account, and the time of every layer at every
 * residency, as the curves that the solver chooses from. */
#include "planner/search/problem_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int problem_backends(const struct hw *hw, enum hw_backend out[2])
{
    int has[2] = { 0, 0 }, n = 0;
    for (int i = 0; i < hw->n_storage; i++)
        has[hw->storage_points[i].backend == HW_PREAD] = 1;
    if (has[0])
        out[n++] = HW_URING;
    if (has[1])
        out[n++] = HW_PREAD;
    if (n == 0)
        out[n++] = HW_ANY_BACKEND;
    return n;
}

void problem_set_backend(struct cost_choice *c, enum hw_backend b)
{
    c->backend = b;
    c->lanes = b == HW_PREAD ? (c->depth < BUDGET_MAX_LANES ? c->depth : BUDGET_MAX_LANES) : 1;
}

int problem_account(const struct problem *p, const struct cost_choice *c, const struct problem_limits *lim,
                    const struct cost_residency *residencies, struct budget *out, struct err *e)
{
    size_t layers = (size_t)p->in->n_layers, blocks = (size_t)p->in->n_blocks, parts = (size_t)p->shape.n_parts;
    uint32_t *hot = calloc(layers * blocks * parts, sizeof *hot), *cold = calloc(layers * parts, sizeof *cold);
    int r = 0;
    if (!hot || !cold)
        r = err_set(e, ERR_NOMEM, "out of memory for the account");
    for (size_t l = 0; residencies && r == 0 && l < layers; l++) {
        for (size_t i = 0; i < blocks * parts; i++)
            hot[l * blocks * parts + i] = residencies[l].hot[i % parts];
        cold[l * parts + parts - 1] = residencies[l].slots;
    }
    struct budget_choice b = { .context = c->context, .kv_f16 = c->kv_f16, .max_batch = lim->max_batch,
                               .prefill_chunk = lim->prefill_chunk, .threads = c->threads, .io_lanes = c->lanes,
                               .queue_depth = c->depth, .read_bytes = c->read_bytes, .hot = hot, .cold = cold };
    if (c->predicted) {
        b.predictors = p->group[c->group].predictors;
        b.predictor_bytes = b.predictors.bytes;
        b.predictor_buffers = p->group[c->group].buffers;
    }
    if (r == 0)
        r = budget_compute(&p->budget, &b, out, e);
    free(hot);
    free(cold);
    return r;
}

int problem_least(const struct problem *p, const struct problem_limits *lim, struct cost_choice *out, struct err *e)
{
    struct problem_limits one = *lim;
    uint64_t least = UINT64_MAX;
    one.prefill_chunk = 1;
    for (int i = 0; i < p->n_groups; i++) {
        int w = p->group[i].first;
        struct cost_choice c = { .mode = p->modes[w], .variant = w, .group = i, .predicted = p->predicted[w],
                                 .model = lim->model, .stat = lim->stat, .n_classes = 1, .n = { 1 }, .threads = 1,
                                 .depth = 1, .buffers = (int)p->group[i].buffers, .act_q8 = lim->act_q8, .kv_f16 = lim->kv_f16,
                                 .context = lim->context };
        struct budget b;
        problem_set_backend(&c, HW_ANY_BACKEND);
        int r = problem_account(p, &c, &one, NULL, &b, e);
        if (r < 0)
            return r;
        if (b.total < least) {
            least = b.total;
            *out = c;
        }
    }
    return 0;
}

int64_t problem_ticks(double ns)
{
    return ns < 1e14 ? (int64_t)(ns * SOLVE_TICKS_PER_NS + 0.5) : (int64_t)1e14 * SOLVE_TICKS_PER_NS;
}

/* What a way's residencies have in common in a layer. */
struct way_price {
    struct cost_choice c;
    struct cost_layer layer;
    double own_ns;              /* that other ways of the group do not share */
    uint64_t more;              /* bytes of its predictors beyond the least that a way of the group takes */
    int kind;
};

/* One (batch size, layer) of a configuration's curves. */
struct pricing {
    const struct problem *p;
    const struct cost_choice *c;
    const struct cost_rates *rates;
    int batch_index, layer;
    struct solve_point *pts;    /* grown as needed */
    int n, cap;
    struct cost_cold *cold;     /* of one way */
    struct way_price said[PROBLEM_MAX_VARIANTS]; /* of the last speaker, by way of the group */
};

static int add_price(struct pricing *w, struct solve_point at, struct err *e)
{
    struct solve_point *grown = problem_grow(w->pts, w->n, &w->cap, sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    w->pts = grown;
    w->pts[w->n++] = at;
    return 0;
}

/* Reads of the last part for each of the residencies' prefixes and slots of it. */
static int price_cold(struct pricing *w, const struct cost_choice *c, const struct problem_residencies *k, struct err *e)
{
    struct cost_cold *grown = realloc(w->cold, (size_t)(k->n_cold + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    w->cold = grown;
    for (int i = 0; i < k->n_cold; i++)
        w->cold[i].reads = -1;
    for (int i = 0; i < k->n; i++)
        if (w->cold[k->residency[i].cold].reads < 0)
            cost_cold_of(c, w->rates, &k->residency[i].flow, &w->cold[k->residency[i].cold]);
    return 0;
}

/* The residencies, ascending in bytes, with predictors in memory, which take `bytes`, or streamed. */
static int price_keeps(struct pricing *w, const struct way_price *x, const struct problem_residencies *k, int64_t bytes,
                       int streamed, struct err *e)
{
    double predictor_bytes = streamed ? cost_predictor_bytes(w->p->in, x->c.predicted, w->batch_index, w->layer) : 0;
    int r = 0;
    for (int i = 0; i < k->n && r == 0; i++) {
        struct cost_flow flow = k->residency[i].flow;
        if (streamed)
            flow.predictor_bytes = predictor_bytes;
        double ns = x->own_ns + cost_ffn_part_ns(&x->c, w->rates, &x->layer, &flow, &w->cold[k->residency[i].cold]);
        uint32_t id = problem_id((struct problem_id){ i, x->c.variant, streamed });
        r = add_price(w, (struct solve_point){ k->residency[i].bytes + bytes, problem_ticks(ns), id, x->kind }, e);
    }
    return r;
}

static void way_of(const struct pricing *w, int variant, int kind, struct way_price *out)
{
    const struct problem *p = w->p;
    const struct problem_group *g = &p->group[w->c->group];
    struct way_price x = { .c = *w->c, .kind = kind };
    x.c.variant = variant;
    x.c.predicted = p->predicted[variant];
    cost_layer_of(p->hw, p->in, &p->shape, &x.c, w->rates, w->batch_index, w->layer, &x.layer, p->notes);
    x.more = problem_predictor_bytes(p, variant, w->layer) - problem_least_predictor(p, g, w->layer);
    x.own_ns = g->n > 1 ? x.layer.predict_ns : 0;
    *out = x;
}

/* The residencies of a layer under one way of the group. */
static int price_way(struct pricing *w, const struct way_price *x, struct err *e)
{
    const struct problem_residencies *k = problem_residencies_of(w->p, x->c.variant, w->batch_index, w->layer);
    int64_t bytes = (int64_t)((x->more + budget_table_bytes(x->more)) / SOLVE_BYTE_UNIT);
    int r = price_cold(w, &x->c, k, e);
    if (r == 0)
        r = price_keeps(w, x, k, bytes, 0, e);
    if (r == 0 && w->p->group[w->c->group].buffers && x->more > 0)
        r = price_keeps(w, x, k, 0, 1, e);
    return r;
}

/* Does a way cost in this layer what it costs in its speaker? In a sketch that is taken for granted. */
static int as_said(const struct pricing *w, const struct way_price *x, const struct way_price *said)
{
    return w->p->every > 1 || (x->c.variant == said->c.variant && x->more == said->more &&
                               !memcmp(&x->layer, &said->layer, sizeof x->layer));
}

/* The curves of the layer's speaker. */
static int copy_curves(const struct pricing *w, struct solve_config *out, size_t at, struct err *e)
{
    size_t all = (size_t)w->p->in->n_layers * (size_t)w->p->in->n_batches;
    size_t from = at - (size_t)w->layer + (size_t)problem_representative(w->p, w->layer);
    int r = solve_curve_copy(&out->curves[at], &out->curves[from], e);
    for (size_t k = 0; k < (size_t)out->n_kinds && out->kinds && r == 0; k++)
        if (out->kinds[k * all + from].n)
            r = solve_curve_copy(&out->kinds[k * all + at], &out->kinds[k * all + from], e);
    return r;
}

/* All ways of the group together, and each by itself where batch sizes have to agree on one. What ways do not share of
 * time and memory is the points'; *shared gets the rest. */
static int price_layer(struct pricing *w, struct solve_config *out, double *shared, double *floor_ns, struct err *e)
{
    const struct problem_group *g = &w->p->group[w->c->group];
    size_t layers = (size_t)w->p->in->n_layers, all = layers * (size_t)w->p->in->n_batches;
    size_t at = (size_t)w->batch_index * layers + (size_t)w->layer;
    int r = 0, representative = problem_representative(w->p, w->layer) == w->layer, said = !representative;
    struct way_price variants[PROBLEM_MAX_VARIANTS];
    w->n = 0;
    for (int i = 0; i < g->n; i++) {
        struct way_price *x = &variants[i];
        int equivalent = problem_equivalent(w->p, g->first + i, w->layer);
        x->c.variant = -1;
        if (equivalent < g->first + i && equivalent >= g->first)
            continue;
        way_of(w, equivalent, g->n > 1 ? i : 0, x);
        *shared = x->layer.attention_ns + x->layer.predict_ns - x->own_ns;
        *floor_ns = x->c.model == PLAN_COST_PAPER ? x->layer.compute_ns : 0;
        said = said && as_said(w, x, &w->said[i]);
        if (representative)
            w->said[i] = *x;
    }
    if (said)
        return copy_curves(w, out, at, e);
    for (int i = 0; i < g->n && r == 0; i++) {
        int from = w->n;
        if (variants[i].c.variant < 0)
            continue;
        r = price_way(w, &variants[i], e);
        if (r == 0 && out->kinds)
            r = solve_curve_init(&out->kinds[(size_t)i * all + at], w->pts + from, w->n - from, e);
    }
    return r < 0 ? r : solve_curve_init(&out->curves[at], w->pts, w->n, e);
}

/* At the choice's depth; less `least`, as good as at any from there on. */
static int rates_of(const struct problem *p, const struct cost_choice *c, int least, int batch, struct cost_rates *out,
                    struct err *e)
{
    struct cost_choice at = *c;
    int r = cost_rates_of(p->hw, p->in, &p->shape, c, batch, out, p->notes, e);
    for (at.depth = least; r == 0 && at.depth < c->depth; at.depth *= 2)
        cost_rates_ease(p->hw, &p->shape, &at, out);
    return r;
}

int problem_fill_curves(struct problem *p, const struct cost_choice *c, int least_depth, struct solve_config *out,
                        struct err *e)
{
    const struct inputs *in = p->in;
    size_t all = (size_t)in->n_batches * (size_t)in->n_layers;
    struct cost_choice one = *c;
    struct pricing w = { .p = p, .c = &one };
    int r = 0;
    if (least_depth < c->depth)
        one.backend = HW_ANY_BACKEND; /* asking takes longer the deeper a queue is, (M5): left out */
    out->n_kinds = p->group[c->group].n;
    out->curves = calloc(all, sizeof *out->curves);
    if (out->n_kinds > 1 && in->n_batches > 1)
        out->kinds = calloc(all * (size_t)out->n_kinds, sizeof *out->kinds);
    if (!out->curves || (out->n_kinds > 1 && in->n_batches > 1 && !out->kinds))
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    for (int b = 0; b < in->n_batches && r == 0; b++) {
        struct cost_rates rates;
        if ((r = rates_of(p, c, least_depth, inputs_batch_sizes[b], &rates, e)) < 0)
            break;
        double fixed = cost_head_ns(p->hw, in, c, &rates, inputs_batch_sizes[b], p->notes), floor_ns = 0;
        w.rates = &rates;
        w.batch_index = b;
        for (w.layer = 0; w.layer < in->n_layers && r == 0; w.layer++) {
            double shared = 0, least = 0;
            r = price_layer(&w, out, &shared, &least, e);
            fixed += shared;
            floor_ns += least;
        }
        out->fixed_ticks[b] = problem_ticks(fixed);
        out->floor_ticks[b] = problem_ticks(floor_ns);
    }
    free(w.pts);
    free(w.cold);
    return r;
}
