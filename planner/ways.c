/* What there is to choose before any number is known. A layer's predictor is chosen by closed rules, not by the solver:
 * all layers use predictors of the same input as far as there are any, a way for each input; layers without one run
 * exactly. */
#include "planner/ways.h"

#include "common/nn.h"
#include "planner/foretell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As a plan's text keeps it, so that check finds the same operating points. */
static double six_digits(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    return strtod(text, NULL);
}

static double recall_of(const struct planning_request *q, const struct inputs *in)
{
    return six_digits(q->recall > 0 ? q->recall : in->recall > 0 ? in->recall : WAYS_RECALL);
}

/* A way whose layers use predictors of this input where they have one; 0: none has. */
static int add_predicted(const struct planning_request *q, const struct inputs *in, const struct layout_shape *s,
                         int predictor, struct ways *w)
{
    size_t n = (size_t)in->n_layers, at = (size_t)w->n * n;
    int found = 0;
    double recall = recall_of(q, in);
    for (int l = 0; l < in->n_layers; l++) {
        int known = foretell_known(in, predictor, l);
        w->input[at + (size_t)l] = (signed char)(known ? predictor : -1);
        w->exempt[at + (size_t)l] = known ? foretell_exempt(in, s, predictor, l, recall) : 0;
        found |= known;
    }
    if (found)
        w->way[w->n++] = (struct problem_way){ PLAN_PREDICTED, recall, w->input + at, w->exempt + at };
    return found;
}

static int add_all_predicted(const struct planning_request *q, const struct inputs *in, const struct layout *l,
                             struct ways *w, struct err *e)
{
    struct layout_shape s;
    int r = layout_derive(l, in->h.d_model, in->h.n_ff, &s, e), found = 0;
    if (r < 0)
        return r;
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (q->predictor < 0 || q->predictor == i)
            found |= add_predicted(q, in, &s, i, w);
    if (!found && in->predictors && q->predictor >= 0)
        return err_set(e, ERR_UNSUPPORTED, "--predictor %s: the trace has no predictors that see this input",
                       predict_input_name((enum predict_input)q->predictor));
    if (!found)
        return err_set(e, ERR_UNSUPPORTED, "predicted mode needs predictors, and the trace has none: run "
                                           "thermo-profile predictors");
    return 0;
}

int ways_new(const struct planning_request *q, const struct inputs *in, const struct layout *l, struct ways *out,
             struct err *e)
{
    int sparse = nn_act_is_sparse(in->h.act), r = 0;
    size_t n = (size_t)PROBLEM_MAX_WAYS * (size_t)in->n_layers;
    if ((q->mode == PLAN_EXACT || q->mode == PLAN_PREDICTED) && !sparse)
        return err_set(e, q->mode == PLAN_EXACT ? ERR_USAGE : ERR_UNSUPPORTED, "--mode %s: the model's activation (%s) gives no zeros to skip; it runs in "
                                     "dense mode",
                       plan_mode_name((enum plan_mode)q->mode), model_act_name(in->h.act));
    struct ways w = { .input = malloc(n), .exempt = malloc(n * sizeof *w.exempt) };
    if (!w.input || !w.exempt)
        r = err_set(e, ERR_NOMEM, "out of memory for ways to run");
    else if (q->mode == PLAN_PREDICTED)
        r = add_all_predicted(q, in, l, &w, e);
    else
        w.way[w.n++] = (struct problem_way){ .mode = q->mode >= 0 ? (enum plan_mode)q->mode :
                                                     sparse ? PLAN_EXACT : PLAN_DENSE };
    if (r < 0) {
        ways_done(&w);
        return r;
    }
    *out = w;
    return 0;
}

void ways_done(struct ways *w)
{
    free(w->input);
    free(w->exempt);
    *w = (struct ways){ 0 };
}

int ways_layouts(const struct planning_request *q, const struct inputs *in, struct layout out[WAYS_LAYOUTS], int *n,
                 struct err *e)
{
    enum layout_form forms[LAYOUT_FORMS] = { LAYOUT_SPLIT, LAYOUT_BUNDLE };
    int count = 2;
    *n = 0;
    if (q->for_pack) {
        out[(*n)++] = *q->for_pack;
        return 0;
    }
    if (q->form >= 0) {
        forms[0] = (enum layout_form)q->form;
        count = 1;
    } else if (q->mode == PLAN_DENSE || !nn_act_is_sparse(in->h.act)) {
        forms[0] = LAYOUT_BUNDLE; /* all of a neuron is needed: one segment is one stream */
        count = 1;
    } else if (q->mode == PLAN_PREDICTED) {
        forms[0] = LAYOUT_BUNDLE;
        forms[1] = LAYOUT_TWO_PHASE;
    }
    for (int i = 0; i < count; i++) {
        int r = inputs_layout(in, forms[i], q->cluster_neurons, q->down_type, &out[i], e);
        if (r < 0)
            return r;
        *n = i + 1;
    }
    return 0;
}
