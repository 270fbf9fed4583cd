/* A plan's choices as passes of so many tokens have them in the runtime. */
#include "planner/planning/planning_guesses.h"

#include "common/pack/pack.h"

#include <stdlib.h>
#include <string.h>

static void choose(const struct plan *p, const struct plan_limit *l, struct passes_choices *out)
{
    for (int i = 0; i < PLAN_PASSES; i++) {
        struct cost_choice *c = &out->of[i];
        int n = inputs_batch_sizes[i], b = 0;
        while (b < l->n_batches && l->batches[b].batch < n)
            b++;
        planning_choice(p, l, b < l->n_batches ? &l->batches[b] : NULL, c);
        const struct plan_share share = plan_pass_share(l, n);
        c->height = share.neurons;
        c->work = share.work;
        c->engine = share.neurons || share.work ? p->engine : NULL;
    }
}

/* (M35): by the threads of one token's pass. Such a layer has attention, whatever the model's last has. */
static int layer_ns(const struct problem *pr, const struct plan *p, const struct plan_limit *l, double *out, struct err *e)
{
    const struct space *s = &pr->space;
    const struct inputs *in = s->in;
    const struct cost_flow nothing = { 0 };
    struct cost_choice c;
    struct cost_rates rates;
    struct cost_layer cl;
    int last = in->n_layers - 1;
    while (last > 0 && model_is_recurrent(&in->h, last))
        last--;
    const struct layout_shape *shape = layout_of(&s->shapes, last);
    planning_choice(p, l, &l->batches[0], &c);
    c.mode = PLAN_DENSE;
    c.engine = NULL;
    c.height = 0;
    c.work = 0;
    c.ahead = 0;
    int r = cost_rates_of(s->hw, in, shape, &c, 1, &rates, s->notes, e);
    if (r < 0)
        return r;
    cost_layer_of(s->hw, in, shape, &c, &rates, 0, last, &cl, s->notes);
    *out = cost_mtp_ns(cost_figures(&c, &rates, &cl, &nothing).total_ns, cost_head_ns(s->hw, in, &c, &rates, 1, s->notes), in->h.d_model,
                       in->h.n_vocab);
    return 0;
}

/* What its source takes, and how many guesses are best by that. */
static int add_source(const struct problem *pr, const struct plan *p, const struct plan_limit *l, const struct guesser *who,
                      struct plan_guesses *g, struct err *e)
{
    int r = 0;
    if (!g->n || who->source == PLAN_SOURCE_FREE)
        return 0;
    g->guess_ns = who->draft_ns;
    if (who->source == PLAN_SOURCE_MTP)
        r = layer_ns(pr, p, l, &g->guess_ns, e);
    g->source = who->source;
    plan_choose_guesses(g);
    return r;
}

int planning_limit_guesses(const struct problem *pr, const struct plan *p, const struct plan_limit *l, const struct guesser *who,
                           struct plan_guesses *out, struct err *e)
{
    struct passes_choices choices;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory for predictions");
    choose(p, l, &choices);
    planning_residencies(p, &l->batches[0], residencies);
    int r = passes_of(pr, &choices, residencies, l, out, e);
    free(residencies);
    return r < 0 ? r : add_source(pr, p, l, who, out, e);
}

int planning_guesses(struct plan *p, const struct inputs *in, const struct hw *hw, const struct guesser *who, struct err *e)
{
    int r = 0;
    for (int i = 0; i < p->n_limits && r == 0; i++) {
        struct plan_limit *l = &p->limits[i];
        const struct space_variant variant = { l->mode, l->recall, plan_recalls(l), l->predictor, l->always, 0, 0 };
        struct problem pr;
        if ((r = problem_shape(&pr, in, hw, &p->layout, &variant, 1, NULL, e)) == 0) {
            r = planning_limit_guesses(&pr, p, l, who, &l->guesses, e);
            problem_done(&pr);
        }
    }
    return r;
}

/* ---- who guesses ---- */

int planning_draft(const char *path, uint64_t memory, const char *device, struct guesser *out, struct err *e)
{
    struct plan p = { 0 };
    int r = plan_read(path, &p, e);
    if (r < 0)
        return err_wrap(e, "--draft-plan");
    const struct plan_limit *l = plan_pick(&p, memory ? memory : UINT64_MAX);
    if (strcmp(p.device, device) != 0)
        r = err_set(e, ERR_MISMATCH, "--draft-plan '%s' is for device '%s', not '%s'", path, p.device, device);
    else if (!l)
        r = err_set(e, ERR_INFEASIBLE, "--draft-memory: %llu bytes are less than every limit of '%s'", (unsigned long long)memory, path);
    else
        *out = (struct guesser){ PLAN_SOURCE_DRAFT, l->batches[0].predicted.step_ns };
    plan_done(&p);
    return r;
}

int planning_mtp(const char *path, const struct inputs *in, struct guesser *out, struct err *e)
{
    struct pack *p;
    char a[HASH_TEXT], b[HASH_TEXT];
    int r = pack_open(path, &p, e);
    if (r < 0)
        return err_wrap(e, "--mtp");
    hash_text(p->model_hash, a);
    hash_text(in->model_hash, b);
    if (!p->h.mtp)
        r = err_set(e, ERR_USAGE, "--mtp '%s' is a packed model; 'thermo-pack mtp' makes the layer that is needed", path);
    else if (!hash_equal(p->model_hash, in->model_hash))
        r = err_set(e, ERR_MISMATCH, "--mtp '%s' is a layer of another model than the trace's: the model's hash is %s there, %s here", path,
                    a, b);
    else
        *out = (struct guesser){ PLAN_SOURCE_MTP, 0 };
    pack_close(p);
    return r;
}

struct guesser planning_guesser_of(const struct plan *p)
{
    struct guesser o = { PLAN_SOURCE_FREE, 0 };
    for (int i = 0; i < p->n_limits; i++)
        if (p->limits[i].guesses.n)
            o = (struct guesser){ p->limits[i].guesses.source, p->limits[i].guesses.guess_ns };
    return o;
}
