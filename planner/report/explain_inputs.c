/* What each layer of a predicted plan would take with predictors of another input: a problem of its own, whose variants are
 * the other inputs, at the plan's recall and with its policy, cores and queue. A layer's best residency within the bytes
 * that the plan gives it is looked for in the same curves that the planner chooses from. */
#include "planner/report/explain.h"

#include "planner/planning/planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double explain_saved_ns(const struct explain_input *x, double total_ns)
{
    double best = NAN;
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (x->rival[i].known)
            best = fmin(best, x->rival[i].total_ns);
    return best - total_ns;
}

/* A variant for each input that layers do not have already; those that have it, or cannot, run exactly in it. */
struct rivals {
    int n, input[PREDICT_INPUTS];
    struct space_variant variant[PREDICT_INPUTS];
    signed char *inputs;        /* [PREDICT_INPUTS][n_layers] */
    uint32_t *always;
};

static void add_rival(const struct problem *pr, const struct plan_limit *l, int input, struct rivals *out)
{
    const struct inputs *in = pr->space.in;
    size_t at = (size_t)out->n * (size_t)in->n_layers;
    int any = 0;
    for (int k = 0; k < in->n_layers; k++) {
        int other = l->predictor[k] != input && predicted_known(in, input, k);
        double recall = l->by_layer ? l->recalls[k] : l->recall;
        out->inputs[at + (size_t)k] = (signed char)(other ? input : -1);
        out->always[at + (size_t)k] = other ? predicted_always(in, layout_of(&pr->space.shapes, k), input, k, recall) : 0;
        any |= other;
    }
    if (!any)
        return;
    out->input[out->n] = input;
    out->variant[out->n++] = (struct space_variant){ PLAN_PREDICTED, l->recall, plan_recalls(l), out->inputs + at, out->always + at, 0, 0 };
}

/* The fastest residency of a layer under a rival variant within so many bytes of account. */
static void best_within(const struct problem *p, const struct cost_choice *choice, const struct cost_rates *r, int variant,
                        int layer, int64_t bytes, struct explain_rival *out)
{
    struct cost_choice c = *choice;
    const struct residencies_list *k = residencies_at(&p->residencies, variant, 0, layer);
    struct cost_layer cl;
    c.variant = variant;
    c.predicted = p->space.predicted[variant];
    cost_layer_of(p->space.hw, p->space.in, layout_of(&p->space.shapes, layer), &c, r, 0, layer, &cl, NULL);
    out->predictor_bytes = space_predictor_bytes(&p->space, variant, layer);
    bytes -= (int64_t)(out->predictor_bytes / SOLVE_BYTE_UNIT);
    for (int i = 0; i < k->n; i++) {
        if (k->point[i].bytes > bytes)
            continue;
        const struct layout_shape *shape = layout_of(&p->space.shapes, layer);
        struct cost_layer own = cl;
        cost_layer_beside(p->space.hw, p->space.in, shape, &c, r, 0, layer, cost_height(shape, &c, &k->point[i].residency), &own);
        struct plan_layer_figures f = cost_figures(&c, r, &own, &k->point[i].flow);
        if (!out->known || f.total_ns < out->total_ns) {
            out->known = 1;
            out->total_ns = f.total_ns;
            out->read_bytes = f.read_bytes;
        }
    }
}

static int compare_layer(const struct problem *pr, const struct plan *p, const struct plan_limit *l,
                         const struct cost_choice *c, const struct cost_rates *rates, const struct problem *others,
                         const struct rivals *w, int layer, struct explain_input *out, struct err *e)
{
    const struct plan_layer_figures *f = &l->batches[0].predicted.layers[layer];
    const struct cost_residency residency = { .hot = { plan_hot(p, &l->batches[0], layer, 0, 0),
                                             p->n_parts > 1 ? plan_hot(p, &l->batches[0], layer, 0, 1) : 0 },
                                    .slots = plan_cold(p, &l->batches[0], layer, p->n_parts - 1) };
    double gates = inputs_gates(pr->space.in, 0, layer);
    int64_t bytes;
    int r = residencies_bytes(&pr->space, layer, &residency, &bytes, e);
    if (r < 0)
        return r;
    *out = (struct explain_input){ .input = l->predictor[layer], .density = 1,
                                   .predictor_bytes = space_predictor_bytes(&pr->space, 0, layer),
                                   .streamed = l->batches[0].streamed[layer] };
    if (out->input >= 0 && gates > 0)
        out->density = predicted_neurons(pr->space.predicted[0], 0, layer, 0) / gates;
    if (out->input == PREDICT_BLOCK)
        out->hidden_ns = cost_layer_ns(f) - cost_lookahead_ns(f);
    bytes += out->streamed ? 0 : (int64_t)(out->predictor_bytes / SOLVE_BYTE_UNIT);
    for (int i = 0; i < w->n; i++)
        if (others->space.predicted[i]->input[layer] >= 0)
            best_within(others, c, rates, i, layer, bytes, &out->rival[w->input[i]]);
    return 0;
}

int explain_inputs(const struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain_input **out,
                   struct err *e)
{
    size_t n = (size_t)p->n_layers;
    struct rivals w = { .inputs = malloc(PREDICT_INPUTS * n), .always = malloc(PREDICT_INPUTS * n * sizeof *w.always) };
    struct explain_input *x = calloc(n, sizeof *x);
    struct problem others = { 0 };
    struct cost_choice c;
    struct cost_rates *rates = NULL;
    struct coalesce coalesce;
    int r = w.inputs && w.always && x ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    planning_choice(p, l, &l->batches[0], &c);
    planning_coalesce(l, &coalesce);
    for (int i = 0; i < PREDICT_INPUTS && r == 0; i++)
        add_rival(pr, l, i, &w);
    struct problem_request q = { .space.variants = w.variant, .space.n_variants = w.n, .policy = (int)l->policy,
                                 .space.coalesce = &coalesce };
    if (r == 0 && w.n)
        r = problem_prepare(&others, pr->space.in, pr->space.hw, &p->layout, &q, NULL, e);
    if (r == 0)
        r = cost_rates_new(pr->space.hw, pr->space.in, &pr->space.shapes, &c, 1, &rates, NULL, e);
    for (int k = 0; k < p->n_layers && r == 0; k++)
        r = compare_layer(pr, p, l, &c, &rates[pr->space.shapes.l.kind[k]], &others, &w, k, &x[k], e);
    problem_done(&others);
    free(rates);
    free(w.inputs);
    free(w.always);
    if (r < 0) {
        free(x);
        return r;
    }
    *out = x;
    return 0;
}
