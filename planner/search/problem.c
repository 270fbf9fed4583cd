/* A problem from its inputs: ways to run and their groups, and what a choice predicts. The parts are in files of their
 * own: replay (problem_replay), residencies (problem_residencies), prices (problem_price), configurations (problem_fill). */
#include "planner/search/problem_parts.h"

#include <stdlib.h>
#include <string.h>

int problem_equivalent(const struct problem *p, int variant, int layer)
{
    for (int w = 0; w < variant && p->mix[variant] > 0; w++)
        if (p->mix[w] == p->mix[variant] && p->predicted[w]->input[layer] == p->predicted[variant]->input[layer])
            return w;
    return variant;
}

int problem_mix_end(const struct problem *p, int first)
{
    int end = first + 1;
    while (p->mix[first] > 0 && end < p->n_variants && p->mix[end] == p->mix[first])
        end++;
    return end;
}

static int copy_keeps(const struct problem_residencies *from, struct problem_residencies *out, struct err *e)
{
    size_t bytes = (size_t)from->n * sizeof *from->residency;
    struct problem_residency *residency = malloc(bytes);
    if (!residency)
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    memcpy(residency, from->residency, bytes);
    *out = (struct problem_residencies){ from->n, from->n_cold, residency };
    return 0;
}

void *problem_grow(void *at, int n, int *cap, size_t size)
{
    if (n < *cap)
        return at;
    int most = *cap ? 2 * *cap : 256;
    void *grown = realloc(at, (size_t)most * size);
    if (grown)
        *cap = most;
    return grown;
}

uint64_t problem_predictor_bytes(const struct problem *p, int variant, int layer)
{
    const struct predicted *f = p->predicted[variant];
    return f ? predicted_layer_bytes(p->in, f->input, layer) : 0;
}

uint64_t problem_least_predictor(const struct problem *p, const struct problem_group *g, int layer)
{
    uint64_t least = g->buffers ? 0 : problem_predictor_bytes(p, g->first, layer);
    for (int w = g->first + 1; w < g->first + g->n; w++) {
        uint64_t bytes = problem_predictor_bytes(p, w, layer);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static void add_group(struct problem *p, int first, int n, uint32_t buffers)
{
    struct problem_group g = { .first = first, .n = n, .buffers = buffers };
    struct budget_predictors *most = &g.predictors;
    for (int w = first; w < first + n && p->predicted[w]; w++) {
        const struct budget_predictors *x = &p->predicted[w]->predictors;
        most->rank = x->rank > most->rank ? x->rank : most->rank;
        most->buffer_bytes = x->buffer_bytes > most->buffer_bytes ? x->buffer_bytes : most->buffer_bytes;
        most->least = x->least > most->least ? x->least : most->least;
        most->most = x->most > most->most ? x->most : most->most;
        most->ranges = x->ranges > most->ranges ? x->ranges : most->ranges;
        most->n = n > 1 ? (uint32_t)(p->in->n_layers * p->in->n_blocks) : x->n;
    }
    for (int l = 0; l < p->in->n_layers; l++)
        most->bytes += problem_least_predictor(p, &g, l);
    p->group[p->n_groups++] = g;
}

/* A mix has scratch for its largest rank, so ways that need less are tried by themselves as well. Then all of them with
 * predictors that may be streamed, through buffers that hold the largest and through the fewest, where that saves any. */
static void find_groups(struct problem *p)
{
    for (int w = 0, end; w < p->n_variants; w = end) {
        end = problem_mix_end(p, w);
        add_group(p, w, end - w, 0);
        int rank = p->group[p->n_groups - 1].predictors.rank;
        for (int k = w; end - w > 1 && k < end; k++)
            if (p->predicted[k]->predictors.rank < rank)
                add_group(p, k, 1, 0);
    }
    for (int i = 0, n = p->n_groups; i < n; i++) {
        const struct problem_group *g = &p->group[i];
        const struct budget_predictors *x = &g->predictors;
        if (!x->rank || x->bytes <= budget_stream_bytes(x, x->least))
            continue;
        if (x->most > x->least && x->bytes > budget_stream_bytes(x, x->most))
            add_group(p, g->first, g->n, x->most);
        add_group(p, g->first, g->n, x->least);
    }
}

static int way_foretell(const struct problem *p, const struct problem_variant *w, const struct problem *like,
                        struct predicted **out, struct err *e)
{
    for (int i = 0; like && i < like->n_variants; i++)
        if (like->in == p->in && like->predicted[i] &&
            like->shape.part[0].neurons_per_unit == p->shape.part[0].neurons_per_unit &&
            predicted_made_from(like->predicted[i], w->recall, w->input, w->always))
            return predicted_copy(like->predicted[i], p->in, &p->shape, out, e);
    return predicted_new(p->in, &p->shape, w->recall, w->input, w->always, out, e);
}

int problem_shape(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                  const struct problem_variant *variants, int n_variants, const struct problem *like, struct notes *notes,
                  struct err *e)
{
    struct problem o = { .in = in, .hw = hw, .notes = notes, .layout = *l, .n_variants = n_variants };
    int r;
    if ((r = layout_derive(l, in->h.d_model, in->h.n_ff, &o.shape, e)) < 0 ||
        (r = inputs_budget_model(in, l, &o.budget, e)) < 0)
        return r;
    for (int i = 0; i < n_variants && r == 0; i++) {
        o.modes[i] = variants[i].mode;
        o.mix[i] = variants[i].mix;
        if (variants[i].mode == PLAN_PREDICTED)
            r = way_foretell(&o, &variants[i], like, &o.predicted[i], e);
    }
    if (r < 0) {
        problem_done(&o);
        return r;
    }
    find_groups(&o);
    *p = o;
    return 0;
}

/* Tables of what replay is asked for; none where nothing is looked up or whole layers are the only residency. */
static int prepare_tables(struct problem *p, const struct problem_request *q, struct err *e)
{
    for (int i = 0; i < p->n_variants; i++)
        p->policy[i] = q->policy >= 0 ? (enum cache_policy)q->policy : CACHE_LRU;
    if (!problem_looks_up_any(p) || p->every == PROBLEM_WHOLE)
        return 0;
    if (p->in->window_tokens == 0)
        return err_set(e, ERR_UNSUPPORTED, "the trace has no window of activation maps, which the cold cache is "
                                           "planned from");
    int whole = q->like && (q->like->every <= 1 || q->like->every == p->every); /* has it all layers that are asked for? */
    return whole && q->like->residencies && problem_replays_equivalent(p, q->like) ? problem_copy_tables(p, q->like, e) :
                                                                            problem_replay(p, q->policy, e);
}

/* Residencies of a way that stands for a layer: its own, or its speaker's. */
static int prepare_keeps(struct problem *p, int variant, int batch_index, int layer, struct err *e)
{
    struct problem_residencies *own = problem_residencies_of(p, variant, batch_index, layer);
    int representative = problem_representative(p, layer);
    return representative == layer ? problem_layer_keeps(p, variant, batch_index, layer, own, e) :
                              copy_keeps(problem_residencies_of(p, problem_equivalent(p, variant, representative), batch_index, representative), own, e);
}

int problem_prepare(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                    const struct problem_request *q, struct notes *notes, struct err *e)
{
    struct problem o;
    int r = problem_shape(&o, in, hw, l, q->variants, q->n_variants, q->like, notes, e);
    if (r < 0)
        return r;
    o.every = q->every;
    r = prepare_tables(&o, q, e);
    o.n_rules = q->coalesce ? 1 : coalesce_of(hw, &o.shape, o.shape.segment_bytes[o.shape.part[o.shape.n_parts - 1].segment], o.rules);
    if (q->coalesce)
        o.rules[0] = *q->coalesce;
    size_t n = (size_t)q->n_variants * (size_t)in->n_batches * (size_t)in->n_layers;
    if (r == 0 && !(o.residencies = calloc(n, sizeof *o.residencies)))
        r = err_set(e, ERR_NOMEM, "out of memory for residencies");
    for (int w = 0; w < q->n_variants && r == 0; w++)
        for (int b = 0; b < in->n_batches && r == 0; b++)
            for (int k = 0; k < in->n_layers && r == 0; k++)
                if (problem_equivalent(&o, w, k) == w)
                    r = prepare_keeps(&o, w, b, k, e);
    /* A plan's own points may lie anywhere; those that are solved for are residencies. */
    if (r == 0)
        problem_read_rules(&o, q->coalesce != NULL);
    *p = o;
    if (r < 0)
        problem_done(p);
    return r;
}

void problem_done(struct problem *p)
{
    if (!p->in)
        return;
    problem_unfill(p);
    size_t n = (size_t)p->n_variants * (size_t)p->in->n_batches * (size_t)p->in->n_layers;
    for (size_t i = 0; p->residencies && i < n; i++)
        free(p->residencies[i].residency);
    free(p->residencies);
    for (int i = 0; i < p->n_variants; i++) {
        free(p->tables[i]);
        for (int k = 0; k < p->in->n_batches * p->in->n_layers && p->samples[i]; k++)
            replay_samples_done(&p->samples[i][k]);
        free(p->samples[i]);
        predicted_free(p->predicted[i]);
    }
    *p = (struct problem){ 0 };
}

struct cost_residency problem_chosen(const struct problem *p, const struct solve_result *r, int batch_index, int layer)
{
    size_t at = (size_t)batch_index * (size_t)p->in->n_layers + (size_t)layer;
    uint32_t id = solve_curve_of(&p->sp, r, batch_index, layer)->point[r->choice[at]].id;
    struct problem_id x = problem_id_of(id);
    struct cost_residency residency = problem_residencies_of(p, x.variant, batch_index, layer)->residency[x.residency].residency;
    residency.streamed = x.streamed;
    return residency;
}

int problem_predict(const struct problem *p, const struct cost_choice *c, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *out, struct err *e)
{
    const struct inputs *in = p->in;
    int batch = inputs_batch_sizes[batch_index];
    struct cost_rates rates;
    struct cost_flow *flows = calloc((size_t)in->n_layers, sizeof *flows);
    int r = flows ? cost_rates_of(p->hw, in, &p->shape, c, batch, &rates, p->notes, e) :
                    err_set(e, ERR_NOMEM, "out of memory for predictions");
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        struct cost_layer cl;
        struct cost_choice own = *c;
        own.variant = residencies[l].variant;
        own.predicted = p->predicted[own.variant];
        cost_layer_of(p->hw, in, &p->shape, &own, &rates, batch_index, l, &cl, p->notes);
        flows[l] = cost_flow_of(in, &p->shape, &own, batch_index, l, problem_table(p, own.variant, batch_index, l),
                                &residencies[l]);
        out->layers[l] = cost_figures(&own, &rates, &cl, &flows[l]);
    }
    if (r == 0)
        cost_totals(c, batch, cost_head_ns(p->hw, in, c, &rates, batch, p->notes), flows, in->n_layers, out);
    free(flows);
    return r;
}
