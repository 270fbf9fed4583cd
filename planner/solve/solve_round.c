/* From a relaxed solution to whole units. Batch sizes share nothing but the configuration and the kinds of layers; once
 * the kinds are fixed, each is rounded by itself over the curves of those kinds. Which kinds: candidates are compared by
 * the relaxation, the best few rounded. */
#include "planner/solve/solve.h"

#include <stdlib.h>
#include <string.h>

#define PASSES 2 /* over all layers, changing one kind at a time */

/* Every batch size over the config's curves. */
static int round_all(const struct solve_problem *p, const struct solve_config *c, const int64_t *x,
                     struct solve_result *out)
{
    out->objective = 0;
    for (int b = 0; b < p->n_batches; b++) {
        size_t at = (size_t)b * (size_t)p->n_layers;
        out->ticks[b] = solve_total(c, b, solve_round(p, c, b, p->memory - c->fixed_bytes, x + at, out->choice + at));
        out->objective += p->weight[b] * out->ticks[b];
    }
    return out->ticks[0] <= p->max_ticks;
}

struct settling {
    const struct solve_problem *p;
    const struct solve_config *c;
    struct solve_config one;    /* the config with curves of one kind for each layer */
    int64_t *x;                 /* [n_batches][n_layers] */
    int *kind;                  /* [n_layers]: being tried */
    struct solve_result now;
};

static const struct solve_curve *kind_curve(const struct settling *s, int kind, int batch, int layer)
{
    return &s->c->kinds[((size_t)kind * (size_t)s->p->n_batches + (size_t)batch) * (size_t)s->p->n_layers +
                        (size_t)layer];
}

/* Curves of s->kind, relaxed: the objective, SOLVE_NEVER when it cannot be. */
static int relax(struct settling *s, int64_t *objective, struct err *e)
{
    const struct solve_problem *p = s->p;
    *objective = SOLVE_NEVER;
    for (int b = 0; b < p->n_batches; b++)
        for (int l = 0; l < p->n_layers; l++) {
            const struct solve_curve *k = kind_curve(s, s->kind[l], b, l);
            if (!k->n)
                return 0;
            s->one.curves[(size_t)b * (size_t)p->n_layers + (size_t)l] = *k;
        }
    int64_t sum = 0;
    for (int b = 0; b < p->n_batches; b++) {
        int64_t t;
        int r = solve_relax(p, &s->one, b, p->memory - s->one.fixed_bytes, s->x + (size_t)b * (size_t)p->n_layers, &t, e);
        if (r < 0)
            return r;
        if (t == SOLVE_NEVER || (b == 0 && solve_total(s->c, 0, t) > p->max_ticks))
            return 0;
        sum += p->weight[b] * solve_total(s->c, b, t);
    }
    *objective = sum;
    return 0;
}

/* Relax and round s->kind; taken where it beats out. */
static int try_kinds(struct settling *s, struct solve_result *out, struct err *e)
{
    int64_t relaxed;
    int r = relax(s, &relaxed, e);
    if (r < 0 || relaxed == SOLVE_NEVER || relaxed >= out->objective || !round_all(s->p, &s->one, s->x, &s->now) ||
        s->now.objective >= out->objective)
        return r;
    size_t layers = (size_t)s->p->n_layers;
    out->objective = s->now.objective;
    memcpy(out->ticks, s->now.ticks, sizeof out->ticks);
    memcpy(out->choice, s->now.choice, (size_t)s->p->n_batches * layers * sizeof *out->choice);
    memcpy(out->kind, s->kind, layers * sizeof *out->kind);
    return 0;
}

/* Kinds that batch size b takes by itself. */
static void kinds_alone(struct settling *s, int b, const int64_t *x, int *choice)
{
    const struct solve_problem *p = s->p;
    size_t at = (size_t)b * (size_t)p->n_layers;
    solve_round(p, s->c, b, p->memory - s->c->fixed_bytes, x + at, choice);
    for (int l = 0; l < p->n_layers; l++)
        s->kind[l] = s->c->curves[at + (size_t)l].point[choice[l]].kind;
}

/* kind for all layers that can be of it; -1: the one whose least point takes least. */
static void kinds_like(struct settling *s, int kind)
{
    for (int l = 0; l < s->p->n_layers; l++) {
        int best = -1;
        for (int k = 0; k < s->c->n_kinds; k++) {
            const struct solve_curve *o = kind_curve(s, k, 0, l);
            if (o->n && (best < 0 || k == kind || (best != kind && o->point[0].bytes <
                                                                       kind_curve(s, best, 0, l)->point[0].bytes)))
                best = k;
        }
        s->kind[l] = best;
    }
}

/* One layer's kind at a time, as long as the relaxation gains. Starts from out's kinds, leaves its own in s->kind. */
static int change_single(struct settling *s, const struct solve_result *out, struct err *e)
{
    int64_t best, t;
    memcpy(s->kind, out->kind, (size_t)s->p->n_layers * sizeof *s->kind);
    int r = relax(s, &best, e), gained = 1;
    for (int n = 0; n < PASSES && gained && r == 0; n++) {
        gained = 0;
        for (int l = 0; l < s->p->n_layers && r == 0; l++)
            for (int k = 0; k < s->c->n_kinds && r == 0; k++) {
                int was = s->kind[l];
                if (k == was)
                    continue;
                s->kind[l] = k;
                r = relax(s, &t, e);
                if (r == 0 && t < best) {
                    best = t;
                    gained = 1;
                } else {
                    s->kind[l] = was;
                }
            }
    }
    return r;
}

static int agree(const struct solve_problem *p, const struct solve_config *c, const int64_t *x, struct solve_result *out,
                 struct err *e)
{
    size_t layers = (size_t)p->n_layers, n = (size_t)p->n_batches * layers;
    struct settling s = { .p = p, .c = c, .one = *c, .x = malloc(n * sizeof *s.x),
                          .kind = malloc(layers * sizeof *s.kind) };
    int *choice = malloc(layers * sizeof *choice);
    int r = solve_result_new(p, &s.now, e);
    s.one.kinds = NULL;
    s.one.curves = malloc(n * sizeof *s.one.curves);
    if (r == 0 && (!s.x || !s.kind || !choice || !s.one.curves))
        r = err_set(e, ERR_NOMEM, "out of memory for the solver");
    out->objective = SOLVE_NEVER;
    for (int b = 0; b < p->n_batches && r == 0; b++) {
        kinds_alone(&s, b, x, choice);
        r = try_kinds(&s, out, e);
    }
    for (int k = -1; k < c->n_kinds && r == 0; k++) {
        kinds_like(&s, k);
        r = try_kinds(&s, out, e);
    }
    if (r == 0 && out->objective != SOLVE_NEVER && (r = change_single(&s, out, e)) == 0)
        r = try_kinds(&s, out, e);
    free(s.x);
    free(s.kind);
    free(s.one.curves);
    free(choice);
    solve_result_done(&s.now);
    return r < 0 ? r : out->objective != SOLVE_NEVER;
}

int solve_round_result(const struct solve_problem *p, int index, const int64_t *x, struct solve_result *out, struct err *e)
{
    const struct solve_config *c = &p->configs[index];
    out->config = index;
    return c->kinds ? agree(p, c, x, out, e) : round_all(p, c, x, out);
}
