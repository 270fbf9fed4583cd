/* What there is to choose before any number is known. In predicted mode there is a variant for each input that predictors
 * see: layers that have one use it, others run exactly. Variants of one recall are a mix, of which the solver takes one for
 * each layer. Under a limit on quality a mix needs a higher recall than one input alone, so where these differ the
 * single inputs are variants besides. */
#include "planner/planning/variants.h"

#include "common/model/nn.h"
#include "planner/planning/diagnosis.h"
#include "planner/predict/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double variants_six_digits(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    return strtod(text, NULL);
}

const struct inputs_quality *variants_quality(const struct inputs *in, int input, double recall)
{
    const struct inputs_quality *best = NULL;
    for (int i = 0; i < in->n_quality; i++)
        if (in->quality[i].input == input && in->quality[i].target <= recall + 1e-6)
            best = &in->quality[i];
    return best;
}

/* The recall of a variant: that of the request; else the least one measured to keep --max-kl; else what the predictors were made
 * for. 0: with this input no recall is known to keep --max-kl. */
static double recall_of(const struct request *q, const struct inputs *in, int input)
{
    double recall = variants_six_digits(q->recall > 0 ? q->recall : in->recall > 0 ? in->recall : VARIANTS_RECALL);
    if (q->max_kl < 0)
        return recall;
    if (q->recall > 0) {
        const struct inputs_quality *row = variants_quality(in, input, recall);
        return row && row->kl_mean <= q->max_kl ? recall : 0;
    }
    for (int i = 0; i < in->n_quality; i++)
        if (in->quality[i].input == input && in->quality[i].kl_mean <= q->max_kl)
            return variants_six_digits(in->quality[i].target);
    return 0;
}

double variants_mixed_kl(const struct inputs *in, const int *inputs, int n, double recall)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const struct inputs_quality *row = variants_quality(in, inputs[i], recall);
        if (!row)
            return INFINITY;
        sum += row->kl_mean;
    }
    return sum;
}

/* The same for layers that may see any of these inputs. */
static double mixed_recall(const struct request *q, const struct inputs *in, const int *inputs, int n)
{
    if (q->max_kl < 0)
        return recall_of(q, in, inputs[0]);
    if (q->recall > 0)
        return variants_mixed_kl(in, inputs, n, variants_six_digits(q->recall)) <= q->max_kl ? variants_six_digits(q->recall) : 0;
    double least = 0;
    for (int i = 0; i < in->n_quality; i++) {
        double target = variants_six_digits(in->quality[i].target);
        if ((least <= 0 || target < least) && variants_mixed_kl(in, inputs, n, target) <= q->max_kl)
            least = target;
    }
    return least;
}

/* A variant whose layers use predictors of this input where they have one. */
static void add_predicted(const struct inputs *in, const struct layout_shapes *s, int predictor, double recall, int mix,
                          struct variants *w)
{
    size_t n = (size_t)in->n_layers, at = (size_t)w->n * n;
    for (int l = 0; l < in->n_layers; l++) {
        int known = predicted_known(in, predictor, l);
        w->input[at + (size_t)l] = (signed char)(known ? predictor : -1);
        w->always[at + (size_t)l] = !known ? 0 : in->equivalent && l > 0 && s->l.kind[l] == s->l.kind[0] ? w->always[at] :
                                                                      predicted_always(in, layout_of(s, l), predictor, l, recall);
    }
    w->variant[w->n++] = (struct space_variant){ PLAN_PREDICTED, recall, NULL, w->input + at, w->always + at, mix, 0 };
}

/* Inputs that a request may use and that predictors of any layer see. */
static int usable(const struct request *q, const struct inputs *in, int out[PREDICT_INPUTS])
{
    int n = 0;
    for (int i = 0; i < PREDICT_INPUTS; i++) {
        int known = 0;
        for (int l = 0; l < in->n_layers; l++)
            known |= (q->predictor < 0 || q->predictor == i) && predicted_known(in, i, l);
        if (known)
            out[n++] = i;
    }
    return n;
}

/* Why no variant keeps --max-kl. */
static int too_strict(const struct request *q, const struct inputs *in, struct err *e)
{
    const struct inputs_quality *least = NULL;
    for (int i = 0; i < in->n_quality; i++)
        if ((q->predictor < 0 || q->predictor == in->quality[i].input) &&
            (q->recall <= 0 || in->quality[i].target <= q->recall + 1e-6) &&
            (!least || in->quality[i].kl_mean < least->kl_mean))
            least = &in->quality[i];
    if (!least)
        return err_set(e, ERR_UNSUPPORTED, "--max-kl %g: the loss of quality of these predictors was not measured; "
                                           "'thermo-profile predictors-measure' measures it", q->max_kl);
    if (q->diagnosis)
        *q->diagnosis = (struct diagnosis){ .filled = 1, .memory_bytes = q->memory[0], .max_kl = q->max_kl, .near_max_kl = least->kl_mean,
                                      .near_max_kl_recall = least->target };
    return err_set(e, ERR_INFEASIBLE, "--max-kl %g: the least that was measured is %.3g, with predictors that see the "
                                      "input '%s' at --recall %g", q->max_kl, least->kl_mean,
                   predict_input_name((enum predict_input)least->input), least->target);
}

/* with_exact: there is an exact variant already, so it is no error when there is no predicted one. */
static int add_all_predicted(const struct request *q, const struct inputs *in, const struct layout *l,
                             int with_exact, struct variants *w, struct err *e)
{
    struct layout_shapes s;
    int r = layout_derive(l, in->h.d_model, in->h.n_ff, &s, e), inputs[PREDICT_INPUTS], had = w->n;
    if (r < 0)
        return r;
    int n = usable(q, in, inputs);
    /* The paper's sums over layers leave nothing to choose layer by layer. */
    double mixed = n > 1 && q->cost == PLAN_COST_MEASURED ? mixed_recall(q, in, inputs, n) : 0;
    for (int i = 0; i < n && mixed > 0; i++)
        add_predicted(in, &s, inputs[i], mixed, 1, w);
    for (int i = 0; i < n; i++) {
        double recall = recall_of(q, in, inputs[i]);
        if (recall > 0 && (recall < mixed || recall > mixed))
            add_predicted(in, &s, inputs[i], recall, 0, w);
    }
    if (w->n > had || with_exact)
        return 0;
    if (n)
        return too_strict(q, in, e);
    if (in->predictors && q->predictor >= 0)
        return err_set(e, ERR_UNSUPPORTED, "--predictor %s: the trace has no predictors that see this input",
                       predict_input_name((enum predict_input)q->predictor));
    return err_set(e, ERR_UNSUPPORTED, "predicted mode needs predictors, and the trace has none: run "
                                       "thermo-profile predictors");
}

/* Each variant once with either cache policy, in place of the policy that misses less by a sample. */
static void add_policies(struct variants *w)
{
    int n = w->n;
    for (int i = 0; i < n && w->n < SPACE_MAX_VARIANTS; i++) {
        struct space_variant other = w->variant[i];
        other.mix += other.mix > 0 ? n : 0;
        other.policy = CACHE_LFU + 1;
        w->variant[i].policy = CACHE_LRU + 1;
        w->variant[w->n++] = other;
    }
}

int variants_new(const struct request *q, const struct inputs *in, const struct layout *l, struct variants *out,
             struct err *e)
{
    int sparse = nn_is_sparse(&in->h), r = 0;
    size_t n = (size_t)SPACE_MAX_VARIANTS * (size_t)in->n_layers;
    if ((q->mode == PLAN_EXACT || q->mode == PLAN_PREDICTED) && !sparse)
        return err_set(e, q->mode == PLAN_EXACT ? ERR_USAGE : ERR_UNSUPPORTED,
                       "--mode %s: the model's activation (%s) gives no zeros to skip; it runs in dense mode "
                       "('thermo-profile trace --silence' makes thresholds of neurons, which do)",
                       plan_mode_name((enum plan_mode)q->mode), model_act_name(in->h.act));
    struct variants w = { .input = malloc(n), .always = malloc(n * sizeof *w.always) };
    if (!w.input || !w.always)
        r = err_set(e, ERR_NOMEM, "out of memory for variants");
    else if (q->mode == PLAN_PREDICTED)
        r = add_all_predicted(q, in, l, 0, &w, e);
    else
        w.variant[w.n++] = (struct space_variant){ .mode = q->mode >= 0 ? (enum plan_mode)q->mode :
                                                     sparse && l->form != LAYOUT_TILES ? PLAN_EXACT : PLAN_DENSE };
    if (r == 0 && q->mode < 0 && q->max_kl > 0 && sparse && l->form != LAYOUT_TILES)
        r = add_all_predicted(q, in, l, 1, &w, e);
    if (r < 0) {
        variants_done(&w);
        return r;
    }
    if (q->prove && q->policy < 0)
        add_policies(&w);
    *out = w;
    return 0;
}

void variants_done(struct variants *w)
{
    free(w->input);
    free(w->always);
    *w = (struct variants){ 0 };
}

uint64_t variants_file_bytes(const struct inputs *in, const struct layout *l)
{
    struct layouts_source m;
    inputs_source(in, &m);
    return layouts_file_bytes(&m, l);
}

int variants_layouts(const struct request *q, const struct inputs *in, struct layout out[VARIANTS_LAYOUTS], int *n,
                     struct err *e)
{
    const struct layouts_options w = { q->mode, q->form, q->packed, q->down_type, q->gate_type, q->cluster_neurons };
    struct layouts_source m;
    inputs_source(in, &m);
    int tiles = q->for_pack ? q->for_pack->form == LAYOUT_TILES : q->form == LAYOUT_TILES;
    if (tiles && !layouts_is_dense(&m, &w) && (q->mode >= 0 || (!in->h.thresholds && !in->h.n_experts)))
        return err_set(e, q->for_pack ? ERR_INFEASIBLE : ERR_USAGE, "%s: tiles are computed whole, so they are for --mode dense alone",
                       q->for_pack ? "--for-pack" : "--form tiles");
    if (!q->for_pack)
        return layouts_all(&m, &w, out, n, e);
    out[0] = *q->for_pack;
    *n = 1;
    return 0;
}
