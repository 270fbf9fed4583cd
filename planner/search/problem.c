/* The steps in their order: space, tables, residencies, configurations. Each is made by a module of its own, from those before. */
#include "planner/search/problem.h"

#include "planner/cost/cost_prompt.h"
#include "planner/cost/cost_rest.h"

#include "planner/search/price.h"

#include <math.h>
#include <stdlib.h>

int problem_shape(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                  const struct space_variant *variants, int n_variants, struct notes *notes, struct err *e)
{
    const struct space_request q = { .variants = variants, .n_variants = n_variants };
    struct problem o = { .configs = { .choices = NULL } };
    int r = space_init(&o.space, in, hw, l, &q, NULL, notes, e);
    if (r < 0)
        return r;
    miss_tables_init(&o.tables, &o.space, -1);
    *p = o;
    return 0;
}

/* None where nothing is looked up or whole layers are the only residency. */
static int prepare_tables(struct problem *p, const struct problem_request *q, struct err *e)
{
    const struct space *s = &p->space, *like = q->like ? &q->like->space : NULL;
    miss_tables_init(&p->tables, s, q->policy);
    if (!space_looks_up_any(s) || s->every == SPACE_WHOLE_LAYERS)
        return 0;
    if (!space_has_lists(s->in, s->modes[0]))
        return err_set(e, ERR_UNSUPPORTED, "the trace has no window of activation maps, which the cold cache is "
                                           "planned from");
    int has_layers = like && (like->every <= 1 || like->every == s->every);
    return has_layers && q->like->residencies.list && miss_tables_equivalent(s, like) ?
               miss_tables_copy(&p->tables, s, &q->like->tables, e) :
               miss_tables_replay(&p->tables, s, q->policy, e);
}

int problem_prepare(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                    const struct problem_request *q, struct notes *notes, struct err *e)
{
    struct problem o = { .configs = { .choices = NULL } };
    int r = space_init(&o.space, in, hw, l, &q->space, q->like ? &q->like->space : NULL, notes, e);
    if (r == 0)
        r = prepare_tables(&o, q, e);
    if (r == 0)
        r = residencies_init(&o.residencies, &o.space, &o.tables, e);
    /* A plan's own points may lie anywhere; those that are solved for are residencies. */
    if (r == 0)
        residencies_read_rules(&o.residencies, &o.space, &o.tables, q->space.coalesce != NULL);
    if (r < 0)
        problem_done(&o);
    *p = o;
    return r;
}

void problem_done(struct problem *p)
{
    configs_done(&p->configs);
    curve_memo_done(&p->memo);
    residencies_done(&p->residencies);
    miss_tables_done(&p->tables);
    space_done(&p->space);
}

int problem_fill(struct problem *p, const struct limits *lim, struct err *e)
{
    configs_done(&p->configs);
    return configs_fill(&p->configs, &p->space, &p->residencies, lim, &p->memo, e);
}

struct cost_residency problem_chosen(const struct problem *p, const struct solve_result *r, int batch_index, int layer)
{
    const struct solve_problem *sp = &p->configs.sp;
    size_t at = (size_t)batch_index * (size_t)sp->n_layers + (size_t)layer;
    struct price_id x = price_id_of(solve_curve_of(sp, r, batch_index, layer)->point[r->choice[at]].id);
    struct cost_residency residency =
        residencies_at(&p->residencies, x.variant, p->configs.first_batch + batch_index, layer)->point[x.residency].residency;
    residency.streamed = x.streamed;
    return residency;
}

int problem_predict(const struct problem *p, const struct cost_choice *c, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *out, struct err *e)
{
    const struct space *s = &p->space;
    const struct inputs *in = s->in;
    int batch = inputs_batch_sizes[batch_index];
    struct cost_flow *flows = calloc((size_t)in->n_layers, sizeof *flows);
    struct cost_rates *rates = NULL;
    int r = flows ? cost_rates_new(s->hw, in, &s->shapes, c, batch, &rates, s->notes, e) :
                    err_set(e, ERR_NOMEM, "out of memory for predictions");
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        const struct layout_shape *shape = layout_of(&s->shapes, l);
        const struct cost_rates *rate = &rates[s->shapes.l.kind[l]];
        struct cost_layer cl;
        struct cost_choice own = *c;
        own.variant = residencies[l].variant;
        own.predicted = s->predicted[own.variant];
        cost_layer_of(s->hw, in, shape, &own, rate, batch_index, l, &cl, s->notes);
        cost_layer_beside(s->hw, in, shape, &own, rate, batch_index, l, cost_height(shape, &own, &residencies[l]), &cl);
        flows[l] = cost_flow_of(in, shape, &own, batch_index, l,
                                miss_tables_at(&p->tables, own.variant, batch_index, l), &residencies[l]);
        out->layers[l] = cost_figures(&own, rate, &cl, &flows[l]);
    }
    const struct cost_lookups rows = cost_lookups_of(s->hw, in, c, batch);
    if (r == 0)
        cost_totals(c, batch, cost_head_ns(s->hw, in, c, rates, batch, s->notes), &rows, flows, in->n_layers, out);
    free(rates);
    free(flows);
    return r;
}

/* Is there what (M27) needs? Else why not is noted. */
static int prompts_known(const struct problem *p, const struct cost_choice *c, const struct plan_limit *l)
{
    const struct hw *hw = p->space.hw;
    int unstated = plan_uses_engine(l) && !l->prompt.with_engine;
    if (c->model == PLAN_COST_PAPER)
        return 0;
    if (unstated)
        notes_add(p->space.notes, "the time of prompts is not predicted where an accelerator computes neurons, and was not measured with "
                                  "%d tokens or more", COST_PROMPT_BATCH);
    else if (!cost_prompt_known(hw))
        notes_add(p->space.notes, "%s: no row products of %d tokens or more; the time of prompts is not predicted", hw->name,
                  COST_PROMPT_BATCH);
    return !unstated && cost_prompt_known(hw);
}

/* Lengths of prompts that are predicted: 1, 2, 4 ... and the longest. */
static int prompt_lengths(const struct cost_choice *c, int tokens[PLAN_PROMPT_POINTS])
{
    int most = c->context < PLAN_PROMPT_TOKENS ? c->context : PLAN_PROMPT_TOKENS, n = 0;
    for (int t = 1; n < PLAN_PROMPT_POINTS; t = 2 * t < most ? 2 * t : most) {
        tokens[n++] = t;
        if (t == most)
            break;
    }
    return n;
}

int problem_prompt(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies,
                   const struct plan_limit *l, struct plan_prompt *out, struct err *e)
{
    const struct space *s = &p->space;
    struct plan_prompt o = { .with_engine = l->prompt.with_engine, .rest_from = l->prompt.rest_from, .area_bytes = l->prompt.area_bytes };
    struct cost_rates *rates = NULL;
    const struct plan_share first = plan_pass_share(l, 1); /* which logits are of */
    struct cost_choice alone = *c, with = *c;
    int chunk = l->prefill_chunk, r = 0;
    with.area_bytes = l->prompt.area_bytes;
    if (!prompts_known(p, c, l)) {
        *out = (struct plan_prompt){ 0 };
        return 0;
    }
    o.n = prompt_lengths(c, o.tokens);
    for (int i = 0; i < o.n && r == 0; i++) {
        const struct cost_prompt_heights heights = { plan_pass_share(l, chunk), plan_pass_share(l, o.tokens[i] % chunk) };
        struct cost_prompt at = { 0 };
        r = cost_prompt_of(s->hw, s->in, &s->shapes, &with, residencies, chunk, o.tokens[i], heights, &at, e);
        o.attention_ns[i] = at.attention_ns;
        o.ffn_ns[i] = at.ffn_ns;
        o.wait_ns[i] = at.wait_ns;
        o.read_bytes[i] = at.read_bytes;
        const struct plan_share share = plan_pass_share(l, o.tokens[i] < chunk ? o.tokens[i] : chunk);
        o.engine_neurons[i] = o.with_engine ? share.neurons : 0;
        o.engine_work[i] = o.with_engine ? share.work : PLAN_WORK_FFN;
    }
    alone.height = 0;
    alone.work = first.work;
    alone.stream_tables = 0; /* rows are with the passes */
    if (r == 0 && (r = cost_rates_new(s->hw, s->in, &s->shapes, &alone, 1, &rates, s->notes, e)) == 0) {
        o.head_ns = cost_head_ns(s->hw, s->in, &alone, rates, 1, s->notes);
        *out = o;
    }
    free(rates);
    return r;
}

/* The most neurons of an FFN that are in memory. */
static uint32_t highest(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies)
{
    struct cost_choice all = *c;
    uint32_t most = 0;
    all.height = (uint32_t)p->space.in->h.n_ff;
    for (int l = 0; l < p->space.in->n_layers; l++) {
        uint32_t h = cost_height(layout_of(&p->space.shapes, l), &all, &residencies[l]);
        most = h > most ? h : most;
    }
    return most;
}

/* One height. */
static int pass_at(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies, int tokens,
                   struct plan_share share, double *ns, struct err *e)
{
    const struct space *s = &p->space;
    struct cost_prompt t = { 0 };
    int r = cost_prompt_of(s->hw, s->in, &s->shapes, c, residencies, tokens, tokens, (struct cost_prompt_heights){ share, { 0 } }, &t, e);
    *ns = t.attention_ns + t.ffn_ns + t.wait_ns;
    return r;
}

/* Is there anything that is not in memory, and can a pass leave it to the accelerator? */
static int has_rest(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies)
{
    int any = 0;
    for (int l = 0; l < p->space.in->n_layers && c->area_bytes && cost_rest_known(p->space.hw, p->space.in, c->engine) && !any; l++)
        any = rest_first(layout_of(&p->space.shapes, l), residencies[l].hot) < (uint32_t)inputs_n_ff(p->space.in, l);
    return any;
}

/* A height with the rest: better than what is known? */
static int try_rest(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies, int tokens,
                    uint32_t height, struct problem_heights *o, struct err *e)
{
    const enum plan_work works[] = { PLAN_WORK_FFN, c->work };
    int r = 0;
    for (int i = 0; i < (c->work ? 2 : 1) && r == 0; i++) {
        const struct plan_share share = { height, works[i], 1 };
        double ns;
        if ((r = pass_at(p, c, residencies, tokens, share, &ns, e)) == 0 && ns < o->rest_ns) {
            o->rest_ns = ns;
            o->rest = share;
        }
    }
    return r;
}

int problem_pass(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies, int tokens,
                 struct problem_heights *out, struct err *e)
{
    const struct space *s = &p->space;
    uint32_t n_ff = (uint32_t)s->in->h.n_ff, cluster = s->shapes.l.cluster_neurons, most = highest(p, c, residencies), height = 0;
    struct problem_heights o = { .rest_ns = INFINITY };
    int r = 0, rest = has_rest(p, c, residencies);
    for (uint32_t k = 0; k <= PROBLEM_HEIGHTS && r == 0; k++) {
        uint32_t was = height;
        double with;
        height = k == PROBLEM_HEIGHTS ? n_ff : n_ff * k / PROBLEM_HEIGHTS / cluster * cluster;
        if (k && (height == was || was >= most))
            continue;
        r = pass_at(p, c, residencies, tokens, (struct plan_share){ height, PLAN_WORK_FFN, 0 }, &o.ns[o.n], e);
        o.height[o.n] = height;
        o.without_ns = k ? o.without_ns : o.ns[o.n];
        if (r == 0 && c->work && (r = pass_at(p, c, residencies, tokens, (struct plan_share){ height, c->work, 0 }, &with, e)) == 0 &&
            with < o.ns[o.n]) {
            o.ns[o.n] = with;
            o.work[o.n] = c->work;
        }
        o.best = r == 0 && o.ns[o.n] < o.ns[o.best] ? o.n : o.best;
        if (r == 0 && rest)
            r = try_rest(p, c, residencies, tokens, height, &o, e);
        o.n++;
    }
    if (r == 0)
        *out = o;
    return r;
}

int problem_prompt_heights(const struct problem *p, const struct cost_choice *c, const struct cost_residency *residencies,
                           struct plan_limit *l, struct err *e)
{
    const struct space *s = &p->space;
    struct plan_prompt q = { .with_engine = 1 };
    struct problem_heights at[PLAN_PROMPT_POINTS];
    int r = 0, decoding = plan_uses_engine(l), from = 0;
    l->prompt = (struct plan_prompt){ 0 };
    if (!cost_prompt_known(s->hw) || !cost_prompt_engine_known(s->hw, c->engine, &s->shapes, s->in->h.d_model))
        return 0;
    q.n = prompt_lengths(c, q.tokens);
    for (int i = q.n - 1; i >= 0 && r == 0; i--) /* passes of guesses are smaller than those that have the rest */
        if (q.tokens[i] > l->max_batch && q.tokens[i] <= l->prefill_chunk) {
            r = problem_pass(p, c, residencies, q.tokens[i], &at[i], e);
            if (r == 0 && at[i].rest_ns < at[i].ns[at[i].best] && q.tokens[i] >= COST_PROMPT_BATCH && (!from || from == q.tokens[i + 1]))
                from = q.tokens[i];
        }
    q.rest_from = from;
    q.area_bytes = from ? c->area_bytes : 0;
    l->prompt = q;
    for (int i = 0; i < q.n && r == 0; i++) {
        int tokens = q.tokens[i], own = tokens > l->max_batch && tokens <= l->prefill_chunk;
        struct plan_share share = plan_pass_share(l, tokens < l->prefill_chunk ? tokens : l->prefill_chunk);
        if (own)
            share = from && tokens >= from ? at[i].rest : (struct plan_share){ at[i].height[at[i].best], at[i].work[at[i].best], 0 };
        l->prompt.engine_neurons[i] = share.neurons;
        l->prompt.engine_work[i] = share.work;
    }
    if (!decoding && !plan_uses_engine(l))
        l->prompt = (struct plan_prompt){ 0 };
    return r;
}
