/* Lists from the trace, turned into what each variant looks up. What fires is read once, for a trace has one reader and a
 * description draws its lists. */
#include "planner/space/lookups.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ROUTES 4096        /* tokens of a window in dense mode: every size is run by itself */
#define REPLAY_WORK 400e6       /* cache accesses that a variant's tables stand for: a few seconds of one core */

static double looked_up(const struct space *s, int variant, int layer)
{
    const struct predicted *f = s->predicted[variant];
    if (!space_looks_up(s, variant, layer))
        return 0;
    if (s->modes[variant] == PLAN_DENSE)
        return inputs_gates(s->in, 0, layer) / inputs_n_ff(s->in, layer) * layout_of(&s->shapes, layer)->part[0].n_units;
    if (!f || f->input[layer] < 0)
        return inputs_active(s->in, 0, layer, 0);
    return s->shapes.n_parts > 1 ? predicted_active(f, s->in, 0, layer, 0) : predicted_neurons(f, 0, layer, 0);
}

/* Tokens that a layer's share of the work allows: a table runs about half the accesses of a full window, once per cell. */
uint64_t lookups_window(const struct space *s, int variant, int layer)
{
    double cells = REPLAY_HOTS * REPLAY_SIZES * 0.4;
    double per_token = looked_up(s, variant, layer) * cells * s->in->n_batches * (s->in->equivalent ? 1 : s->in->n_layers);
    double tokens = per_token > 0 ? REPLAY_WORK / per_token : 1e9;
    if (s->modes[variant] == PLAN_DENSE && tokens > MOST_ROUTES)
        return MOST_ROUTES;
    return tokens < 128 ? 128 : tokens > 1e9 ? 1000000000 : (uint64_t)tokens;
}

/* Lists of firing neurons become those of a variant; steps is used up on failure. shared: as of predicted_steps. */
static int apply_variant(const struct space *s, int variant, int layer, struct predicted_shared **shared,
                         struct inputs_steps *steps, struct err *e)
{
    const struct predicted *f = s->predicted[variant];
    int r = f && f->input[layer] >= 0 ? predicted_steps(f, s->in, layer, s->shapes.n_parts > 1, shared, steps, e) : 0;
    if (r < 0)
        inputs_steps_done(steps);
    return r;
}

/* n experts become their units, by their first neurons; starts too. NULL: no memory. */
static uint32_t *units_of(const struct layout_part *p, const uint32_t *experts, size_t n, uint32_t *start, int n_steps)
{
    uint32_t *at = n <= UINT32_MAX / p->n_units ? malloc((n * p->n_units + 1) * sizeof *at) : NULL;
    for (size_t i = 0; at && i < n; i++)
        for (uint32_t u = 0; u < p->n_units; u++)
            at[i * p->n_units + u] = experts[i] + u * p->neurons_per_unit;
    for (int t = 0; at && t <= n_steps; t++)
        start[t] *= p->n_units;
    return at;
}

/* Every unit of the experts that a token is routed to, and of those that are foreseen for it. */
static int expert_steps(const struct space *s, int layer, uint64_t max_steps, struct inputs_steps *out, struct err *e)
{
    const struct layout_part *p = &layout_of(&s->shapes, layer)->part[0];
    struct inputs_steps routes = { 0 };
    uint32_t *at = NULL, *guess = NULL;
    int r = s->in->routes(s->in, layer, max_steps, &routes, e);
    if (r == 0 && s->in->foreseen)
        r = s->in->foreseen(s->in, layer, max_steps, &routes, e);
    if (r == 0)
        at = units_of(p, routes.at, routes.start[routes.n_steps], routes.start, routes.n_steps);
    if (r == 0 && routes.guess)
        guess = units_of(p, routes.guess, routes.guess_start[routes.n_steps], routes.guess_start, routes.n_steps);
    if (r == 0 && (!at || (routes.guess && !guess)))
        r = err_set(e, ERR_NOMEM, "out of memory for the routes of layer %d", layer);
    if (r < 0) {
        free(at);
        inputs_steps_done(&routes);
        return r;
    }
    free(routes.at);
    free(routes.guess);
    routes.at = at;
    routes.guess = guess;
    routes.together = 1;
    *out = routes;
    return 0;
}

int lookups_steps(const struct space *s, int variant, int layer, uint64_t max_steps, struct inputs_steps *out,
                  struct err *e)
{
    if (s->modes[variant] == PLAN_DENSE)
        return expert_steps(s, layer, max_steps, out, e);
    int r = s->in->steps(s->in, layer, max_steps, out, e);
    return r < 0 ? r : apply_variant(s, variant, layer, NULL, out, e);
}

int lookups_has(const struct space *s, int variant, int layer)
{
    return space_looks_up(s, variant, layer) && space_equivalent(s, variant, layer) == variant;
}

int lookups_init(struct lookups *x, const struct space *s, struct err *e)
{
    *x = (struct lookups){ s, calloc((size_t)s->n_variants * (size_t)s->in->n_layers, sizeof *x->made) };
    return x->made ? 0 : err_set(e, ERR_NOMEM, "out of memory for activation lists");
}

void lookups_done(struct lookups *x)
{
    for (int i = 0; x->made && i < x->space->n_variants * x->space->in->n_layers; i++)
        inputs_steps_done(&x->made[i]);
    free(x->made);
    *x = (struct lookups){ 0 };
}

struct inputs_steps *lookups_at(const struct lookups *x, int variant, int layer)
{
    return &x->made[(size_t)variant * (size_t)x->space->in->n_layers + (size_t)layer];
}

static int first_steps(const struct inputs_steps *from, uint64_t most, struct inputs_steps *out, struct err *e)
{
    int n = (uint64_t)from->n_steps < most ? from->n_steps : (int)most;
    struct inputs_steps o = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *o.start),
                              .at = malloc(((size_t)from->start[n] + 1) * sizeof *o.at) };
    if (!o.start || !o.at) {
        inputs_steps_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for activation lists");
    }
    memcpy(o.start, from->start, ((size_t)n + 1) * sizeof *o.start);
    memcpy(o.at, from->at, from->start[n] * sizeof *o.at);
    *out = o;
    return 0;
}

int lookups_make(struct lookups *x, int first, int n, int layer, uint64_t most, struct err *e)
{
    const struct space *s = x->space;
    struct inputs_steps fired = { 0 };
    struct predicted_shared *shared = NULL;
    uint64_t tokens[SPACE_MAX_VARIANTS] = { 0 }, longest = 0;
    int r = 0;
    for (int v = first; v < first + n; v++)
        if (lookups_has(s, v, layer) && lookups_at(x, v, layer)->n_steps == 0) {
            tokens[v] = lookups_window(s, v, layer);
            tokens[v] = tokens[v] < most ? tokens[v] : most;
            if (s->modes[v] != PLAN_DENSE)
                longest = tokens[v] > longest ? tokens[v] : longest;
            else if ((r = expert_steps(s, layer, tokens[v], lookups_at(x, v, layer), e)) < 0)
                break;
        }
    if (longest > 0 && r == 0)
        r = s->in->steps(s->in, layer, longest, &fired, e);
    for (int v = first; v < first + n && r == 0; v++)
        if (tokens[v] > 0 && s->modes[v] != PLAN_DENSE && (r = first_steps(&fired, tokens[v], lookups_at(x, v, layer), e)) == 0)
            r = apply_variant(s, v, layer, &shared, lookups_at(x, v, layer), e);
    predicted_shared_free(shared);
    inputs_steps_done(&fired);
    return r;
}
