/* What a configuration costs: the time of every layer at every residency, as the curves that the solver chooses from. A layer
 * that costs what its representative costs gets a copy of its curves. */
#include "planner/search/price.h"

#include "common/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* What a variant's residencies have in common in a layer. */
struct variant_price {
    struct cost_choice c;
    struct cost_layer layer;
    int own;                    /* time of predictors is not that of all variants of the group, or of all residencies */
    uint64_t more;              /* bytes of its predictors beyond the least that a variant of the group takes */
    int kind;
};

#define PRICE_HEIGHTS 40 /* one for each prefix that residencies have */

/* One (batch size, layer) of a configuration's curves. */
struct pricing {
    const struct space *s;
    const struct residencies *residencies;
    const struct cost_choice *c, *given;
    struct cost_rates *rates;   /* by kind of layer */
    int batch_index, layer;
    struct cost_layer beside[PRICE_HEIGHTS]; /* the layer where the accelerator has so many neurons of each FFN: of one variant */
    uint32_t height[PRICE_HEIGHTS];
    int n_beside;
    struct solve_point *pts;    /* grown as needed */
    int n, cap;
    struct cost_cold *cold;     /* of one variant */
    struct variant_price (*representative)[SPACE_MAX_VARIANTS]; /* of the last representative of each kind, by variant of the group */
};

/* The batch sizes of a choice: how many, and the index of the first. */
static int n_batches_of(const struct space *s, const struct cost_choice *c)
{
    return c->only_batch ? 1 : s->in->n_batches;
}

static int first_batch_of(const struct cost_choice *c)
{
    return c->only_batch ? c->only_batch - 1 : 0;
}

static int kind_of(const struct pricing *w)
{
    return w->s->shapes.l.kind[w->layer];
}

static const struct cost_rates *rates_at(const struct pricing *w)
{
    return &w->rates[kind_of(w)];
}

static int add_price(struct pricing *w, struct solve_point at, struct err *e)
{
    if (!grow_room(w->pts, w->n, w->cap))
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    w->pts[w->n++] = at;
    return 0;
}

/* Reads of the last part for each of the residencies' prefixes and slots of it. */
static int price_cold(struct pricing *w, const struct cost_choice *c, const struct residencies_list *k, struct err *e)
{
    struct cost_cold *grown = realloc(w->cold, (size_t)(k->n_cold + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    w->cold = grown;
    for (int i = 0; i < k->n_cold; i++)
        w->cold[i].reads = -1;
    for (int i = 0; i < k->n; i++)
        if (w->cold[k->point[i].cold].reads < 0)
            cost_cold_of(c, rates_at(w), &k->point[i].flow, &w->cold[k->point[i].cold]);
    return 0;
}

/* The layer at a residency: the accelerator, if there is one, has some of its neurons. */
static const struct cost_layer *layer_at(struct pricing *w, const struct variant_price *x, const struct cost_residency *k)
{
    const struct layout_shape *shape = layout_of(&w->s->shapes, w->layer);
    uint32_t height = cost_height(shape, &x->c, k);
    int i = 0;
    if (!height)
        return &x->layer;
    while (i < w->n_beside && w->height[i] != height)
        i++;
    if (i == w->n_beside) {
        i = i < PRICE_HEIGHTS ? i : 0;
        w->beside[i] = x->layer;
        w->height[i] = height;
        w->n_beside = w->n_beside > i ? w->n_beside : i + 1;
        cost_layer_beside(w->s->hw, w->s->in, shape, &x->c, rates_at(w), w->batch_index, w->layer, height, &w->beside[i]);
    }
    return &w->beside[i];
}

/* The residencies, ascending in bytes, with predictors in memory, which take `bytes`, or streamed. */
static int price_points(struct pricing *w, const struct variant_price *x, const struct residencies_list *k, int64_t bytes,
                        int streamed, struct err *e)
{
    double predictor_bytes = streamed ? cost_predictor_bytes(w->s->in, x->c.predicted, w->batch_index, w->layer) : 0;
    const struct cost_rates *rates = rates_at(w);
    int r = 0;
    for (int i = 0; i < k->n && r == 0; i++) {
        struct cost_flow flow = k->point[i].flow;
        if (streamed)
            flow.predictor_bytes = predictor_bytes;
        const struct cost_layer *layer = layer_at(w, x, &k->point[i].residency);
        double own_ns = x->own ? layer->predict_ns : 0;
        double ns = own_ns + cost_ffn_part_ns(&x->c, rates, layer, &flow, &w->cold[k->point[i].cold]);
        uint32_t id = price_id((struct price_id){ i, x->c.variant, streamed });
        r = add_price(w, (struct solve_point){ k->point[i].bytes + bytes, solve_ticks(ns), id, x->kind }, e);
    }
    return r;
}

static void price_variant_of(const struct pricing *w, int variant, int kind, struct variant_price *out)
{
    const struct space *s = w->s;
    const struct space_group *g = &s->group[w->c->group];
    struct variant_price x = { .c = *w->c, .kind = kind };
    x.c.variant = variant;
    x.c.predicted = s->predicted[variant];
    cost_layer_of(s->hw, s->in, layout_of(&s->shapes, w->layer), &x.c, rates_at(w), w->batch_index, w->layer, &x.layer, s->notes);
    x.more = space_predictor_bytes(s, variant, w->layer) - space_least_predictor_bytes(s, g, w->layer);
    x.own = g->n > 1 || x.c.height > 0;
    *out = x;
}

/* The residencies of a layer under one variant of the group. */
static int price_variant(struct pricing *w, const struct variant_price *x, struct err *e)
{
    const struct residencies_list *k = residencies_at(w->residencies, x->c.variant, w->batch_index, w->layer);
    int64_t bytes = (int64_t)((x->more + budget_table_bytes(x->more)) / SOLVE_BYTE_UNIT);
    int r = price_cold(w, &x->c, k, e);
    w->n_beside = 0;
    if (r == 0)
        r = price_points(w, x, k, bytes, 0, e);
    if (r == 0 && w->s->group[w->c->group].buffers && x->more > 0)
        r = price_points(w, x, k, 0, 1, e);
    return r;
}

/* Does a variant cost in this layer what it costs in the representative? A subsampled estimate takes that for granted. Where padding alone
 * differs the layer is priced by itself. */
static int costs_the_same(const struct pricing *w, const struct variant_price *x, const struct variant_price *o)
{
    return w->s->every > 1 || (x->c.variant == o->c.variant && x->more == o->more &&
                               !memcmp(&x->layer, &o->layer, sizeof x->layer)); /* NOLINT(bugprone-suspicious-memory-comparison) */
}

/* The curves of the layer's representative. */
static int copy_curves(const struct pricing *w, struct solve_config *out, size_t at, struct err *e)
{
    size_t all = (size_t)w->s->in->n_layers * (size_t)n_batches_of(w->s, w->given);
    size_t from = at - (size_t)w->layer + (size_t)space_representative(w->s, w->layer);
    int r = solve_curve_copy(&out->curves[at], &out->curves[from], e);
    for (size_t k = 0; k < (size_t)out->n_kinds && out->kinds && r == 0; k++)
        if (out->kinds[k * all + from].n)
            r = solve_curve_copy(&out->kinds[k * all + at], &out->kinds[k * all + from], e);
    return r;
}

/* What each variant of the group costs in the layer; c.variant -1: an equivalent one of the group comes before it. 1: all of them cost
 * what they cost in the layer's representative. */
static int price_variants(struct pricing *w, struct variant_price *variants, double *shared, double *floor_ns)
{
    const struct space_group *g = &w->s->group[w->c->group];
    int represents = space_representative(w->s, w->layer) == w->layer, same = !represents;
    for (int i = 0; i < g->n; i++) {
        struct variant_price *x = &variants[i];
        int equivalent = space_equivalent(w->s, g->first + i, w->layer);
        x->c.variant = -1;
        if (equivalent < g->first + i && equivalent >= g->first)
            continue;
        price_variant_of(w, equivalent, g->n > 1 ? i : 0, x);
        *shared = x->layer.attention_ns + (x->own ? 0 : x->layer.predict_ns);
        if (x->c.model == PLAN_COST_PAPER)
            *floor_ns = i == 0 || x->layer.compute_ns < *floor_ns ? x->layer.compute_ns : *floor_ns;
        same = same && costs_the_same(w, x, &w->representative[kind_of(w)][i]);
        if (represents)
            w->representative[kind_of(w)][i] = *x;
    }
    return same;
}

/* All variants of the group together, and each by itself where batch sizes have to agree on one. Time and memory that variants
 * do not share are in the points; *shared gets the rest, *floor_ns the least of any variant. */
static int price_layer(struct pricing *w, struct solve_config *out, double *shared, double *floor_ns, struct err *e)
{
    const struct space_group *g = &w->s->group[w->c->group];
    size_t layers = (size_t)w->s->in->n_layers, all = layers * (size_t)n_batches_of(w->s, w->given);
    size_t at = (size_t)(w->batch_index - first_batch_of(w->given)) * layers + (size_t)w->layer;
    int r = 0;
    struct variant_price variants[SPACE_MAX_VARIANTS];
    w->n = 0;
    if (price_variants(w, variants, shared, floor_ns))
        return copy_curves(w, out, at, e);
    for (int i = 0; i < g->n && r == 0; i++) {
        int from = w->n;
        if (variants[i].c.variant < 0)
            continue;
        r = price_variant(w, &variants[i], e);
        if (r == 0 && out->kinds)
            r = solve_curve_init(&out->kinds[(size_t)i * all + at], w->pts + from, w->n - from, e);
    }
    return r < 0 ? r : solve_curve_init(&out->curves[at], w->pts, w->n, e);
}
/* At the choice's depth; with a smaller `least`, as good as at any depth from there on. */
static int rates_of(const struct space *s, const struct cost_choice *c, int least, int batch, struct cost_rates **out, struct err *e)
{
    struct cost_choice at = *c;
    int r = cost_rates_new(s->hw, s->in, &s->shapes, c, batch, out, s->notes, e);
    for (int k = 0; r == 0 && k < s->shapes.l.n_kinds; k++)
        for (at.depth = least; at.depth < c->depth; at.depth *= 2)
            cost_rates_relax(s->hw, &s->shapes.kind[k], &at, &(*out)[k]);
    return r;
}

/* One batch size: all layers, and what they share. */
static int price_batch(struct pricing *w, int least_depth, int volumes, struct solve_config *out, struct err *e)
{
    const struct space *s = w->s;
    int batch = inputs_batch_sizes[w->batch_index], r = rates_of(s, w->given, least_depth, batch, &w->rates, e);
    if (r < 0)
        return r;
    for (int k = 0; volumes && k < s->shapes.l.n_kinds; k++) {
        w->rates[k].f_cpu = 1e30; /* computing takes no time, and a byte a ns */
        w->rates[k].b_io = 1e9;
    }
    double fixed = cost_head_ns(s->hw, s->in, w->given, w->rates, batch, s->notes), floor_ns = 0;
    for (w->layer = 0; w->layer < s->in->n_layers && r == 0; w->layer++) {
        double shared = 0, least = 0;
        r = price_layer(w, out, &shared, &least, e);
        fixed += shared;
        floor_ns += least;
    }
    out->fixed_ticks[w->batch_index - first_batch_of(w->given)] = solve_ticks(fixed);
    out->floor_ticks[w->batch_index - first_batch_of(w->given)] = solve_ticks(floor_ns);
    free(w->rates);
    return r;
}

/* volumes: see price_volumes. */
static int price_all(const struct space *s, const struct residencies *residencies, const struct cost_choice *c, int least_depth,
                     int volumes, struct solve_config *out, struct err *e)
{
    const struct inputs *in = s->in;
    int n_batches = n_batches_of(s, c), first = first_batch_of(c);
    size_t all = (size_t)n_batches * (size_t)in->n_layers;
    struct cost_choice one = *c;
    struct pricing w = { .s = s, .residencies = residencies, .c = &one, .given = c };
    int r = 0;
    out->n_kinds = s->group[c->group].n;
    out->curves = calloc(all, sizeof *out->curves);
    if (out->n_kinds > 1 && n_batches > 1)
        out->kinds = calloc(all * (size_t)out->n_kinds, sizeof *out->kinds);
    if (!out->curves || (out->n_kinds > 1 && n_batches > 1 && !out->kinds))
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    w.representative = malloc((size_t)s->shapes.l.n_kinds * sizeof *w.representative);
    if (!w.representative)
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    for (w.batch_index = first; w.batch_index < first + n_batches && r == 0; w.batch_index++)
        r = price_batch(&w, least_depth, volumes, out, e);
    free(w.representative);
    free(w.pts);
    free(w.cold);
    return r;
}

int price_curves(const struct space *s, const struct residencies *residencies, const struct cost_choice *c, int least_depth,
                 struct solve_config *out, struct err *e)
{
    return price_all(s, residencies, c, least_depth, 0, out, e);
}

int price_volumes(const struct space *s, const struct residencies *residencies, const struct cost_choice *c,
                  struct solve_config *out, struct err *e)
{
    return price_all(s, residencies, c, c->depth, 1, out, e);
}

/* --- batch sizes that share their residencies --- */

static int begin_batch(struct pricing *w, struct err *e)
{
    const struct space *s = w->s;
    w->representative = malloc((size_t)s->shapes.l.n_kinds * sizeof *w->representative);
    return w->representative ? rates_of(s, w->given, w->given->depth, inputs_batch_sizes[w->batch_index], &w->rates, e) :
                               err_set(e, ERR_NOMEM, "out of memory for curves");
}

/* Points of a layer at every batch size, in the same order, added up in w[0]'s. */
static int add_points(struct pricing *w, int n, const int64_t *weight, struct variant_price (*variants)[SPACE_MAX_VARIANTS], struct err *e)
{
    const struct space_group *g = &w->s->group[w->c->group];
    int r = 0;
    for (int b = 0; b < n && r == 0; b++) {
        w[b].n = 0;
        for (int i = 0; i < g->n && r == 0; i++)
            if (variants[b][i].c.variant >= 0)
                r = price_variant(&w[b], &variants[b][i], e);
        for (int i = 0; i < w[b].n && r == 0; i++)
            w[0].pts[i].ticks = (b ? w[0].pts[i].ticks : 0) + weight[b] * w[b].pts[i].ticks;
    }
    return r;
}

static int sum_layer(struct pricing *w, int n, const int64_t *weight, struct solve_config *out, double *fixed_ns, double *floor_ns,
                     struct err *e)
{
    struct variant_price variants[SOLVE_MAX_BATCHES][SPACE_MAX_VARIANTS];
    int layer = w->layer, same = 1;
    for (int b = 0; b < n; b++) {
        double shared = 0, least = 0;
        same &= price_variants(&w[b], variants[b], &shared, &least);
        fixed_ns[b] += shared;
        floor_ns[b] += least;
    }
    if (same)
        return solve_curve_copy(&out->curves[layer], &out->curves[space_representative(w->s, layer)], e);
    int r = add_points(w, n, weight, variants, e);
    return r < 0 ? r : solve_curve_init(&out->curves[layer], w->pts, w->n, e);
}

int price_together(const struct space *s, const struct residencies *residencies, const struct cost_choice *choices, int n,
                   const int64_t *weight, struct solve_config *out, struct err *e)
{
    struct pricing w[SOLVE_MAX_BATCHES] = { { .s = NULL } };
    struct cost_choice own[SOLVE_MAX_BATCHES];
    double fixed_ns[SOLVE_MAX_BATCHES] = { 0 }, floor_ns[SOLVE_MAX_BATCHES] = { 0 };
    int r = 0;
    out->n_kinds = 1;
    if (!(out->curves = calloc((size_t)s->in->n_layers, sizeof *out->curves)))
        r = err_set(e, ERR_NOMEM, "out of memory for curves");
    for (int b = 0; b < n && r == 0; b++) {
        own[b] = choices[b];
        w[b] = (struct pricing){ .s = s, .residencies = residencies, .c = &own[b], .given = &choices[b], .batch_index = b };
        if ((r = begin_batch(&w[b], e)) == 0)
            fixed_ns[b] = cost_head_ns(s->hw, s->in, w[b].given, w[b].rates, inputs_batch_sizes[b], s->notes);
    }
    for (int l = 0; l < s->in->n_layers && r == 0; l++) {
        for (int b = 0; b < n; b++)
            w[b].layer = l;
        r = sum_layer(w, n, weight, out, fixed_ns, floor_ns, e);
    }
    out->fixed_ticks[0] = out->floor_ticks[0] = 0;
    for (int b = 0; b < n; b++) {
        out->fixed_ticks[0] += weight[b] * solve_ticks(fixed_ns[b]);
        out->floor_ticks[0] += weight[b] * solve_ticks(floor_ns[b]);
        free(w[b].representative);
        free(w[b].rates);
        free(w[b].pts);
        free(w[b].cold);
    }
    return r;
}

/* --- points one by one --- */

void price_steps_done(struct price_steps *x)
{
    free(x->from);
    free(x->n);
    free(x->ticks);
    free(x->at);
    *x = (struct price_steps){ .from = NULL };
}

/* A layer's points, after those before it, each with what the layer takes at any residency. */
static int add_layer(struct pricing *w, struct price_steps *out, struct err *e)
{
    const struct space_group *g = &w->s->group[w->c->group];
    struct variant_price variants[SPACE_MAX_VARIANTS];
    double shared = 0, least = 0;
    int r = 0, from = w->n;
    if (price_variants(w, variants, &shared, &least)) {
        int like = space_representative(w->s, w->layer);
        out->from[w->layer] = out->from[like];
        out->n[w->layer] = out->n[like];
        return 0;
    }
    for (int i = 0; i < g->n && r == 0; i++)
        if (variants[i].c.variant >= 0)
            r = price_variant(w, &variants[i], e);
    for (int i = from; i < w->n; i++)
        w->pts[i].ticks += (int64_t)(shared * SOLVE_TICKS_PER_NS);
    out->from[w->layer] = (size_t)from;
    out->n[w->layer] = w->n - from;
    return r;
}

int price_steps(const struct space *s, const struct residencies *residencies, const struct cost_choice *c, int least_depth,
                int batch_index, struct price_steps *out, struct err *e)
{
    size_t layers = (size_t)s->in->n_layers;
    int batch = inputs_batch_sizes[batch_index], r;
    struct cost_choice one = *c;
    struct pricing w = { .s = s, .residencies = residencies, .c = &one, .given = c, .batch_index = batch_index };
    if (least_depth < c->depth)
        one.backend = HW_ANY_BACKEND; /* as in price_all */
    *out = (struct price_steps){ .from = calloc(layers, sizeof *out->from), .n = calloc(layers, sizeof *out->n) };
    w.representative = malloc((size_t)s->shapes.l.n_kinds * sizeof *w.representative);
    if (!out->from || !out->n || !w.representative)
        r = err_set(e, ERR_NOMEM, "out of memory for curves");
    else
        r = rates_of(s, c, least_depth, batch, &w.rates, e);
    double head = r < 0 ? 0 : cost_head_ns(s->hw, s->in, c, w.rates, batch, s->notes);
    for (w.layer = 0; w.layer < s->in->n_layers && r == 0; w.layer++)
        r = add_layer(&w, out, e);
    if (r == 0 && !(out->ticks = malloc(((size_t)w.n + 1) * sizeof *out->ticks)))
        r = err_set(e, ERR_NOMEM, "out of memory for curves");
    for (int i = 0; i < w.n && r == 0; i++)
        out->ticks[i] = w.pts[i].ticks;
    out->fixed_ticks = solve_ticks(head);
    out->at = w.pts;
    free(w.representative);
    free(w.rates);
    free(w.cold);
    return r;
}
