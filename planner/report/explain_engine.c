/* What the accelerator brings: the same plan with other heights. */
#include "planner/report/explain.h"

#include "planner/cost/cost_prompt.h"
#include "planner/planning/planning.h"

#include <math.h>
#include <stdlib.h>

const char *explain_work(enum plan_work w)
{
    static const char *const texts[PLAN_WORKS] = { "", ", the head", ", attention's products", ", attention's products and the head" };
    return texts[w];
}

const char *explain_rest(int rest)
{
    return rest ? ", those that are not in memory" : "";
}

static int speed_at(const struct problem *pr, const struct cost_choice *c, struct plan_share share, const char *engine, int batch_index,
                    const struct cost_residency *residencies, struct plan_figures *f, struct err *e)
{
    struct cost_choice at = *c;
    at.height = share.neurons;
    at.work = share.work;
    at.engine = share.neurons || share.work ? engine : NULL;
    return problem_predict(pr, &at, batch_index, residencies, f, e);
}

static int batch_heights(const struct problem *pr, const struct plan *p, const struct plan_limit *l, int i, const char *engine,
                         struct cost_residency *residencies, struct plan_figures *f, struct explain_height *out, struct err *e)
{
    const struct plan_batch *b = &l->batches[i];
    uint32_t n_ff = (uint32_t)p->n_ff, cluster = p->layout.cluster_neurons;
    struct cost_choice c;
    planning_choice(p, l, b, &c);
    c.predicted = pr->space.predicted[0];
    planning_residencies(p, b, residencies);
    *out = (struct explain_height){ .batch = b->batch, .neurons = b->engine_neurons, .work = b->engine_work, .best_work = b->engine_work,
                                    .tokens_per_s = b->predicted.tokens_per_s };
    int r = speed_at(pr, &c, (struct plan_share){ 0 }, engine, i, residencies, f, e);
    out->without = f->tokens_per_s;
    if (r == 0 && !cost_has_engine(&c))
        r = cost_best_work(pr->space.hw, pr->space.in, &pr->space.shapes, &c, engine, b->batch, &out->best_work, e);
    for (uint32_t k = 1; k <= EXPLAIN_HEIGHTS && r == 0; k++) {
        uint32_t height = k == EXPLAIN_HEIGHTS ? n_ff : n_ff * k / EXPLAIN_HEIGHTS / cluster * cluster;
        if (!height || (r = speed_at(pr, &c, (struct plan_share){ height, out->best_work, 0 }, engine, i, residencies, f, e)) < 0)
            continue;
        out->tried[out->n_tried] = height;
        out->at[out->n_tried++] = f->tokens_per_s;
        if (f->tokens_per_s > out->at_best) {
            out->at_best = f->tokens_per_s;
            out->best = height;
        }
    }
    return r;
}

static int prompt_height(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *c, int i,
                         const struct cost_residency *residencies, struct explain_prompt_height *out, struct err *e)
{
    const struct plan_prompt *q = &l->prompt;
    struct problem_heights at;
    int r = problem_pass(pr, c, residencies, q->tokens[i], &at, e);
    const struct plan_share own = plan_pass_share(l, q->tokens[i]);
    *out = (struct explain_prompt_height){ .tokens = q->tokens[i], .neurons = own.neurons, .work = own.work, .rest = own.rest,
                                           .without_ns = at.without_ns + q->head_ns,
                                           .first_ns = plan_prompt_ns(q, q->tokens[i]) };
    for (int k = 0; k < at.n && r == 0; k++) {
        double ns = at.ns[k] + q->head_ns;
        if (!at.height[k])
            continue;
        out->tried[out->n_tried] = at.height[k];
        out->at_ns[out->n_tried++] = ns;
        if (!out->best || ns < out->best_ns) {
            out->best_ns = ns;
            out->best = at.height[k];
            out->best_work = at.work[k];
        }
    }
    if (r == 0 && at.rest_ns + q->head_ns < (out->best ? out->best_ns : INFINITY)) {
        out->best_ns = at.rest_ns + q->head_ns;
        out->best = at.rest.neurons;
        out->best_work = at.rest.work;
        out->best_rest = 1;
    }
    return r;
}

/* t_ffn of the longest prompt, where its passes have neurons on the accelerator: a term of (M27). */
static int prompt_line(const struct problem *pr, const struct plan_limit *l, const struct cost_choice *c,
                       const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    const struct plan_prompt *q = &l->prompt;
    int tokens = q->tokens[q->n - 1], chunk = l->prefill_chunk;
    const struct cost_prompt_heights h = { plan_pass_share(l, chunk), plan_pass_share(l, tokens % chunk) };
    struct cost_prompt t;
    struct cost_choice with = *c;
    with.area_bytes = q->area_bytes;
    int r = cost_prompt_of(pr->space.hw, pr->space.in, &pr->space.shapes, &with, residencies, chunk, tokens, h, &t, e);
    if (r < 0 || t.engine_ns <= 0)
        return r;
    double v[TERM_VALUES];
    for (int i = 0; i < TERM_VALUES; i++)
        v[i] = NAN;
    v[V_t_prompt_ffn] = q->ffn_ns[q->n - 1], v[V_t_prompt_processor] = t.processor_ns, v[V_t_prompt_beyond] = t.beyond_ns;
    v[V_t_prompt_sharing] = t.shared_ns, v[V_t_rest] = t.rest_ns, v[V_t_prompt_engine] = t.engine_ns, v[V_prompt_tokens] = tokens;
    v[V_prompt_height] = (tokens < chunk ? h.rest : h.chunk).neurons;
    explain_row(&terms_measured, terms_equation(&terms_measured, "t_prompt_ffn"), v, x->measured, &x->n_measured);
    return 0;
}

static int prompt_heights(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *x,
                          struct cost_residency *residencies, struct err *e)
{
    struct cost_choice c;
    int r = 0;
    if (!l->prompt.n || !cost_prompt_engine_known(pr->space.hw, x->engine, &pr->space.shapes, pr->space.in->h.d_model))
        return 0;
    planning_choice(p, l, NULL, &c);
    c.predicted = pr->space.predicted[0];
    c.engine = x->engine;
    c.area_bytes = l->prompt.area_bytes;
    c.work = plan_uses_engine(l) ? (enum plan_work)((unsigned)plan_any_work(l) & PLAN_WORK_ATTENTION) : planning_prompt_work(pr, x->engine);
    planning_residencies(p, &l->batches[0], residencies);
    for (int i = 0; i < l->prompt.n && r == 0; i++)
        if (l->prompt.tokens[i] > l->max_batch && l->prompt.tokens[i] <= l->prefill_chunk)
            r = prompt_height(pr, l, &c, i, residencies, &x->prompt[x->n_prompt_heights++], e);
    return r < 0 ? r : prompt_line(pr, l, &c, residencies, x, e);
}

int explain_engine(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *x, struct err *e)
{
    struct request q;
    request_again(p, l, pr->space.hw, &q);
    const char *engine = planning_engine(&q, pr);
    if (!engine)
        return 0;
    struct notes *notes = pr->space.notes, none = { 0 };
    struct problem quiet = *pr; /* what other heights lack is not said of this plan */
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    struct plan_figures f = { .layers = malloc((size_t)p->n_layers * sizeof *f.layers) };
    int r = residencies && f.layers ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    quiet.space.notes = notes ? &none : NULL;
    x->engine = engine;
    for (int i = 0; i < l->n_batches && r == 0; i++)
        r = batch_heights(&quiet, p, l, i, engine, residencies, &f, &x->height[x->n_heights++], e);
    if (r == 0)
        r = prompt_heights(&quiet, p, l, x, residencies, e);
    free(residencies);
    free(f.layers);
    return r;
}
