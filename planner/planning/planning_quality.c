/* Each layer has few choices, its recalls, so the price of a nat is not looked for: from the highest recalls on, the step that saves most
 * missing neurons per nat is taken as long as the budget has room for it. */
#include "planner/planning/planning_quality.h"

#include "planner/planning/variants.h"

#include <math.h>
#include <stdlib.h>

/* The target of the curves that stands for a recall: the largest that is not above it. -1: none. */
static int target_of(const struct inputs *in, double recall)
{
    int k = in->n_loss_targets - 1;
    while (k >= 0 && in->loss_target[k] > recall + 1e-6)
        k--;
    return k;
}

static double layer_kl(const struct inputs *in, int input, int layer, uint32_t always, int k)
{
    const struct inputs_loss *l = inputs_loss_at(in, input, layer);
    double sum = 0, n = (double)inputs_n_ff(in, layer) / INPUTS_PARTS;
    for (int i = 0; i < INPUTS_PARTS; i++)
        sum += (double)l->energy[k][i] * fmin(1, fmax(0, i + 1 - (double)always / n));
    return l->kl_per_energy * sum;
}

static int all_known(const struct inputs *in, const signed char *input)
{
    int known = in->loss != NULL;
    for (int l = 0; l < in->n_layers && known; l++)
        known = input[l] < 0 || inputs_loss_at(in, input[l], l)->known;
    return known;
}

/* Layers do not quite add up: by how much, as the whole model was measured with predictors of one input in all of them. */
static double additivity(const struct inputs *in, const signed char *input)
{
    double most = 0;
    for (int i = 0; i < in->n_quality; i++) {
        const struct inputs_quality *q = &in->quality[i];
        double sum = 0;
        int k = target_of(in, q->target), used = 0;
        for (int l = 0; l < in->n_layers && k >= 0; l++) {
            used |= input[l] == q->input;
            sum += inputs_loss_at(in, q->input, l)->known ? layer_kl(in, q->input, l, 0, k) : 0;
        }
        most = used && sum > 0 ? fmax(most, q->kl_mean / sum) : most;
    }
    return most > 0 ? most : 1;
}

double planning_quality_kl(const struct inputs *in, const signed char *input, const uint32_t *always, double recall, const double *recalls)
{
    double sum = 0;
    if (!all_known(in, input))
        return NAN;
    for (int l = 0; l < in->n_layers; l++) {
        int k = input[l] < 0 || always[l] >= (uint32_t)inputs_n_ff(in, l) ? 0 : target_of(in, recalls ? recalls[l] : recall);
        if (k < 0)
            return NAN;
        sum += input[l] < 0 ? 0 : layer_kl(in, input[l], l, always[l], k);
    }
    return sum * additivity(in, input);
}

/* What a layer reads and loses at each recall. */
struct option {
    double neurons, kl;
};

static int price(const struct inputs *in, const struct layout_shapes *s, const signed char *input, const uint32_t *always,
                 const uint32_t *held, double factor, struct option *out, struct err *e)
{
    int n = in->n_loss_targets, r = 0;
    for (int k = 0; k < n && r == 0; k++) {
        struct predicted *f;
        if ((r = predicted_new(in, s, variants_six_digits(in->loss_target[k]), NULL, input, always, &f, e)) < 0)
            break;
        for (int l = 0; l < in->n_layers; l++)
            if (input[l] >= 0)
                out[l * n + k] = (struct option){ predicted_neurons(f, 0, l, held[l]), factor * layer_kl(in, input[l], l, always[l], k) };
        predicted_free(f);
    }
    return r;
}

/* The step of any layer that saves most per nat within `left`; 0: there is none. */
static int best_step(const struct option *o, const signed char *input, const int *at, int layers, int n, double left, int *layer, int *to)
{
    double most = 0;
    for (int l = 0; l < layers; l++)
        for (int k = 0; k < n && input[l] >= 0; k++) {
            const struct option *a = &o[l * n + at[l]], *b = &o[l * n + k];
            double more = fmax(b->kl - a->kl, 1e-15), saved = a->neurons - b->neurons;
            if (saved > 1e-9 && more <= left && saved / more > most) {
                most = saved / more;
                *layer = l, *to = k;
            }
        }
    return most > 0;
}

int planning_quality_recalls(const struct inputs *in, const struct layout_shapes *s, const signed char *input, const uint32_t *always,
                             const uint32_t *held, double most_kl, double *recalls, struct err *e)
{
    int n = in->n_loss_targets, layers = in->n_layers, layer = 0, to = 0;
    if (!all_known(in, input))
        return 0;
    struct option *o = calloc((size_t)(layers * n), sizeof *o);
    int *at = malloc((size_t)layers * sizeof *at);
    int r = o && at ? price(in, s, input, always, held, additivity(in, input), o, e) : err_set(e, ERR_NOMEM, "out of memory for recalls");
    for (int l = 0; l < layers && r == 0; l++)
        for (int k = at[l] = n - 1; k >= 0; k--)
            at[l] = o[l * n + k].kl < o[l * n + at[l]].kl ? k : at[l];
    double left = most_kl;
    for (int l = 0; l < layers && r == 0; l++)
        left -= o[l * n + at[l]].kl;
    for (int fits = r == 0 && left >= 0; fits && best_step(o, input, at, layers, n, left, &layer, &to);) {
        left -= o[layer * n + to].kl - o[layer * n + at[layer]].kl;
        at[layer] = to;
    }
    for (int l = 0; l < layers && r == 0; l++)
        recalls[l] = input[l] < 0 || always[l] >= (uint32_t)inputs_n_ff(in, l) ? 1 : variants_six_digits(in->loss_target[at[l]]);
    free(o);
    free(at);
    return r < 0 ? r : left >= 0;
}
