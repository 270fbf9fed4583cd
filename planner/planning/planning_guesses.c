/* A plan's choices as passes of so many tokens have them in the runtime. */
#include "planner/planning/planning_guesses.h"

#include <stdlib.h>

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

int planning_limit_guesses(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct plan_guesses *out,
                           struct err *e)
{
    struct passes_choices choices;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory for predictions");
    choose(p, l, &choices);
    planning_residencies(p, &l->batches[0], residencies);
    int r = passes_of(pr, &choices, residencies, l, out, e);
    free(residencies);
    return r;
}

int planning_guesses(struct plan *p, const struct inputs *in, const struct hw *hw, struct err *e)
{
    int r = 0;
    for (int i = 0; i < p->n_limits && r == 0; i++) {
        struct plan_limit *l = &p->limits[i];
        const struct space_variant variant = { l->mode, l->recall, l->predictor, l->always, 0, 0 };
        struct problem pr;
        if ((r = problem_shape(&pr, in, hw, &p->layout, &variant, 1, NULL, e)) == 0) {
            r = planning_limit_guesses(&pr, p, l, &l->guesses, e);
            problem_done(&pr);
        }
    }
    p->revision = plan_revision(p);
    return r;
}
