/* A pass is a step of a batch whose tokens follow each other: the same functions price it, over curves, predictions and misses of such
 * steps. Misses are counted by the runtime's own cache at the limit's residencies, in steps that are unions of two shorter ones. */
#include "planner/search/passes.h"

#include "planner/cost/cost_prompt.h"
#include "planner/space/lookups.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_STEPS 8 /* of so many tokens, that a replay measures anything by */

/* How many lengths there may be. */
static int lengths(const struct problem *p, const struct cost_choice *c, const struct plan_limit *l)
{
    const struct inputs *in = p->space.in;
    int n = 0, looks_up = space_looks_up_any(&p->space);
    if (c->model == PLAN_COST_PAPER || !cost_prompt_known(p->space.hw) || !in->consecutive ||
        (looks_up && !space_has_lists(in, l->mode)) || !ops_take_back(&in->h))
        return 0;
    while (n < PLAN_PASSES && inputs_batch_sizes[n] <= l->prefill_chunk && inputs_batch_sizes[n] <= l->context)
        n++;
    return n;
}

/* The problem over steps of consecutive tokens: `own` borrows from p, but for inputs, predictions and tables. */
struct view {
    struct problem own;
    struct inputs in;
    int most; /* sizes that all layers' windows are long enough for */
};

static void view_done(struct view *v)
{
    predicted_free(v->own.space.predicted[0]);
    miss_tables_done(&v->own.tables);
    inputs_consecutive_done(&v->in);
}

static int view_init(struct view *v, const struct problem *p, const struct plan_limit *l, int n, struct err *e)
{
    struct space *s = &v->own.space;
    const struct predicted *f = p->space.predicted[0];
    int r = inputs_consecutive(p->space.in, n, l->mode != PLAN_DENSE, &v->in, e);
    if (r < 0)
        return r;
    *s = p->space;
    s->in = &v->in;
    s->notes = NULL;
    s->predicted[0] = NULL;
    v->most = v->in.n_batches;
    miss_tables_init(&v->own.tables, s, (int)l->policy);
    if (f)
        r = predicted_new(&v->in, &s->shapes, f->recall, f->recalls, f->input, f->always, &s->predicted[0], e);
    if (r == 0 && space_looks_up_any(s))
        r = miss_tables_reserve(&v->own.tables, 0, e);
    return r;
}

/* Misses of a layer in steps of 2, 4 ... tokens. */
static int replay_passes(struct view *v, const struct problem *p, const struct plan_limit *l, int layer,
                         const struct cost_residency *k, struct err *e)
{
    const struct layout_shape *shape = layout_of(&p->space.shapes, layer);
    struct coalesce coalesce = { .n = l->n_coalesce };
    struct inputs_steps steps = { 0 }, pairs;
    struct reads_rule rule;
    int part = p->space.shapes.n_parts - 1, blocks = p->space.in->n_blocks;
    int r = lookups_steps(&p->space, 0, layer, lookups_window(&p->space, 0, layer), &steps, e);
    memcpy(coalesce.at, l->coalesce, sizeof coalesce.at);
    coalesce_rule(&coalesce, shape, &rule);
    for (int b = 1; b < v->most && r == 0; b++) {
        struct replay_figures f = { 0 };
        if ((r = inputs_steps_pairs(&steps, &pairs, e)) < 0)
            break;
        inputs_steps_done(&steps);
        steps = pairs;
        if (steps.n_steps < LEAST_STEPS) {
            v->most = b;
            break;
        }
        r = replay_point_reads(&steps, shape, part, blocks, 1, l->policy, k->hot[part], k->slots, &rule, &f, e);
        f.all_lookups = f.lookups; /* what the prefix saves counts in the paper's equations alone */
        replay_fixed(shape, part, blocks, k->hot[part], &f, miss_tables_at(&v->own.tables, 0, b, layer));
    }
    inputs_steps_done(&steps);
    return r;
}

/* One token's is the step that the plan has. */
static int price(struct view *v, const struct passes_choices *choices, const struct cost_residency *residencies,
                 const struct plan_figures *step, struct plan_guesses *out, struct err *e)
{
    struct plan_figures f = { .layers = malloc((size_t)v->in.n_layers * sizeof *f.layers) };
    int r = f.layers ? 0 : err_set(e, ERR_NOMEM, "out of memory for predictions");
    *out = (struct plan_guesses){ .n = 1, .tokens = { 1 }, .pass_ns = { step->step_ns }, .read_bytes = { step->read_bytes } };
    for (int b = 1; b < v->most && r == 0; b++) {
        struct cost_choice c = choices->of[b];
        c.tokens = COST_DRAFTS;
        c.predicted = v->own.space.predicted[0];
        if ((r = problem_predict(&v->own, &c, b, residencies, &f, e)) < 0)
            break;
        out->tokens[b] = inputs_batch_sizes[b];
        out->read_bytes[b] = f.read_bytes;
        out->pass_ns[b] = cost_pass_ns(f.step_ns, out->pass_ns[b - 1]);
        out->n = b + 1;
    }
    free(f.layers);
    return r;
}

int passes_of(const struct problem *p, const struct passes_choices *choices, const struct cost_residency *residencies,
              const struct plan_limit *l, struct plan_guesses *out, struct err *e)
{
    struct plan_guesses o = { 0 };
    struct view v = { .most = 0 };
    int n = lengths(p, &choices->of[0], l), r = 0;
    if (n >= 2 && (r = view_init(&v, p, l, n, e)) == 0)
        for (int layer = 0; layer < p->space.in->n_layers && r == 0 && v.most > 1; layer++)
            if (space_looks_up(&p->space, 0, layer))
                r = replay_passes(&v, p, l, layer, &residencies[layer], e);
    if (r == 0 && v.most > 1)
        r = price(&v, choices, residencies, &l->batches[0].predicted, &o, e);
    if (n >= 2)
        view_done(&v);
    if (r < 0)
        return r;
    plan_choose_guesses(&o);
    *out = o;
    return 0;
}
