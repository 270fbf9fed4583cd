/* Variants and their groups. Groups are made once, from what predictors take in memory: the solvers then see one
 * configuration for each group and never a variant by itself. */
#include "planner/space/space.h"

int space_representative(const struct space *s, int layer)
{
    const uint8_t *kind = s->shapes.l.kind;
    int first = s->in->equivalent ? 0 : s->every > 1 ? layer - layer % s->every : layer;
    while (kind[first] != kind[layer])
        first++;
    return first;
}

int space_equivalent(const struct space *s, int variant, int layer)
{
    for (int v = 0; v < variant && s->mix[variant] > 0; v++)
        if (s->mix[v] == s->mix[variant] && s->predicted[v]->input[layer] == s->predicted[variant]->input[layer])
            return v;
    return variant;
}

int space_mix_end(const struct space *s, int first)
{
    int end = first + 1;
    while (s->mix[first] > 0 && end < s->n_variants && s->mix[end] == s->mix[first])
        end++;
    return end;
}

/* Dense mode computes experts whole: what tells one step from another is which ones. Of those that are stored in tiles the cache
 * holds tiles, which are large enough to be read one by one. */
static int looks_experts_up(const struct space *s, int layer)
{
    return s->in->routes && layout_of(&s->shapes, layer)->part[0].record_neurons > 1;
}

/* Exact mode with bundles needs all of them in every step: it streams them. */
int space_looks_up(const struct space *s, int variant, int layer)
{
    enum plan_mode mode = s->modes[variant];
    if (mode == PLAN_DENSE)
        return looks_experts_up(s, layer);
    if (mode == PLAN_PREDICTED && s->predicted[variant]->input[layer] < 0)
        mode = PLAN_EXACT;
    return mode == PLAN_PREDICTED || (mode == PLAN_EXACT && s->shapes.n_parts > 1);
}

int space_variant_looks_up(const struct space *s, int variant)
{
    int any = 0;
    for (int l = 0; l < s->in->n_layers && !any; l++)
        any = space_looks_up(s, variant, l);
    return any;
}

int space_looks_up_any(const struct space *s)
{
    int any = 0;
    for (int v = 0; v < s->n_variants && !any; v++)
        any = space_variant_looks_up(s, v);
    return any;
}

int space_foresees(const struct space *s, enum plan_mode mode)
{
    return mode == PLAN_DENSE && s->in->foreseen && s->in->n_blocks > 1 && s->shapes.n_parts == 1 && s->every != SPACE_WHOLE_LAYERS &&
           looks_experts_up(s, 0) && budget_reads_into_slots(&s->shapes.kind[0], 0);
}

int space_has_lists(const struct inputs *in, enum plan_mode mode)
{
    return in->window_tokens > 0 || (mode == PLAN_DENSE && in->routes);
}

uint64_t space_predictor_bytes(const struct space *s, int variant, int layer)
{
    const struct predicted *f = s->predicted[variant];
    return f ? predicted_layer_bytes(s->in, f->input, layer) : 0;
}

uint64_t space_least_predictor_bytes(const struct space *s, const struct space_group *g, int layer)
{
    uint64_t least = g->buffers ? 0 : space_predictor_bytes(s, g->first, layer);
    for (int v = g->first + 1; v < g->first + g->n; v++) {
        uint64_t bytes = space_predictor_bytes(s, v, layer);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static void add_group(struct space *s, int first, int n, uint32_t buffers)
{
    struct space_group g = { .first = first, .n = n, .buffers = buffers };
    struct budget_predictors *most = &g.predictors;
    for (int v = first; v < first + n && s->predicted[v]; v++) {
        const struct budget_predictors *x = &s->predicted[v]->predictors;
        most->rank = x->rank > most->rank ? x->rank : most->rank;
        most->buffer_bytes = x->buffer_bytes > most->buffer_bytes ? x->buffer_bytes : most->buffer_bytes;
        most->least = x->least > most->least ? x->least : most->least;
        most->most = x->most > most->most ? x->most : most->most;
        most->ranges = x->ranges > most->ranges ? x->ranges : most->ranges;
        most->n = n > 1 ? (uint32_t)(s->in->n_layers * s->in->n_blocks) : x->n;
    }
    for (int l = 0; l < s->in->n_layers; l++)
        most->bytes += space_least_predictor_bytes(s, &g, l);
    s->group[s->n_groups++] = g;
}

/* A mix has scratch for its largest rank, so variants that need less are also tried by themselves. Then all of these with
 * predictors that may be streamed, through buffers that hold the largest and through the fewest, where that saves memory. */
static void find_groups(struct space *s)
{
    for (int v = 0, end; v < s->n_variants; v = end) {
        end = space_mix_end(s, v);
        add_group(s, v, end - v, 0);
        int rank = s->group[s->n_groups - 1].predictors.rank;
        for (int k = v; end - v > 1 && k < end; k++)
            if (s->predicted[k]->predictors.rank < rank)
                add_group(s, k, 1, 0);
    }
    for (int i = 0, n = s->n_groups; i < n; i++) {
        const struct space_group *g = &s->group[i];
        const struct budget_predictors *x = &g->predictors;
        if (!x->rank || x->bytes <= budget_stream_bytes(x, x->least))
            continue;
        if (x->most > x->least && x->bytes > budget_stream_bytes(x, x->most))
            add_group(s, g->first, g->n, x->most);
        add_group(s, g->first, g->n, x->least);
    }
}

int space_same_units(const struct space *a, const struct space *b, int part)
{
    int same = 1;
    for (int l = 0; l < a->in->n_layers && same; l++)
        same = layout_of(&a->shapes, l)->part[part].neurons_per_unit == layout_of(&b->shapes, l)->part[part].neurons_per_unit;
    return same;
}

static int predict(const struct space *s, const struct space_variant *v, const struct space *like, struct predicted **out,
                   struct err *e)
{
    for (int i = 0; like && i < like->n_variants; i++)
        if (like->in == s->in && like->predicted[i] &&
            space_same_units(like, s, 0) &&
            predicted_made_from(like->predicted[i], v->recall, v->recalls, v->input, v->always))
            return predicted_copy(like->predicted[i], s->in, &s->shapes, out, e);
    for (int i = 0; &s->predicted[i] < out; i++) /* the same with another cache policy */
        if (s->predicted[i] && predicted_made_from(s->predicted[i], v->recall, v->recalls, v->input, v->always))
            return predicted_copy(s->predicted[i], s->in, &s->shapes, out, e);
    return predicted_new(s->in, &s->shapes, v->recall, v->recalls, v->input, v->always, out, e);
}

static void find_rules(struct space *s, const struct coalesce *given)
{
    const struct layout_shape *shape = layout_largest(&s->shapes);
    if (given) {
        s->n_rules = 1;
        s->rules[0] = *given;
    } else if (s->hw) {
        s->n_rules = coalesce_of(s->hw, shape, shape->segment_bytes[shape->part[shape->n_parts - 1].segment], s->rules);
    }
}

int space_init(struct space *s, const struct inputs *in, const struct hw *hw, const struct layout *l,
               const struct space_request *q, const struct space *like, struct notes *notes, struct err *e)
{
    struct space o = { .in = in, .hw = hw, .notes = notes, .every = q->every, .n_variants = q->n_variants };
    int r;
    if ((r = layout_derive(l, in->h.d_model, in->h.n_ff, &o.shapes, e)) < 0 ||
        (r = inputs_budget_model(in, l, &o.budget, e)) < 0)
        return r;
    for (int i = 0; i < q->n_variants && r == 0; i++) {
        const struct space_variant *v = &q->variants[i];
        o.modes[i] = v->mode;
        o.mix[i] = v->mix;
        o.policy[i] = v->policy;
        if (v->mode == PLAN_PREDICTED)
            r = predict(&o, v, like, &o.predicted[i], e);
    }
    if (r < 0) {
        space_done(&o);
        return r;
    }
    find_groups(&o);
    find_rules(&o, q->coalesce);
    *s = o;
    return 0;
}

void space_done(struct space *s)
{
    for (int i = 0; i < s->n_variants; i++)
        predicted_free(s->predicted[i]);
    *s = (struct space){ 0 };
}
