/* Predictors of a trace as plain numbers. Their bytes are those of a pack's section, because that is what the runtime
 * loads. */
#include "planner/inputs/inputs.h"

#include "common/offline/trace/trace_predict.h"
#include "common/pack/pack.h"

#include <stdlib.h>
#include <string.h>

static int take(struct inputs *in, const struct trace_predictor *t, struct err *e)
{
    struct pack_predictor x = { .rank = t->rank, .has_bias = t->has_bias, .two_sided = t->two_sided,
                                .n_points = t->n_points, .type1 = t->type1, .type2 = t->type2, .layer = t->layer };
    int r = pack_predictor_derive(&x, in->h.d_model, inputs_n_ff(in, t->layer), e);
    if (r < 0)
        return r;
    struct inputs_predictor *o = inputs_predictor_at(in, (int)t->input, t->layer, t->block);
    *o = (struct inputs_predictor){ .rank = t->rank, .type1 = t->type1, .type2 = t->type2, .bytes = x.bytes,
                                    .true_density = t->true_density };
    o->point[o->n_points++] = (struct inputs_point){ (double)t->at.recall, (double)t->at.density };
    for (int i = 0; i < t->n_points; i++)
        o->point[o->n_points++] = (struct inputs_point){ (double)t->curve[i].recall, (double)t->curve[i].density };
    return 0;
}

static int take_losses(struct inputs *in, const struct trace_predict_losses *l, struct err *e)
{
    _Static_assert(TRACE_PREDICT_POINTS <= INPUTS_POINTS && TRACE_PREDICT_PARTS == INPUTS_PARTS, "curves fit");
    if (!l->n)
        return 0;
    if (!(in->loss = calloc((size_t)(PREDICT_INPUTS * in->n_layers), sizeof *in->loss)))
        return err_set(e, ERR_NOMEM, "out of memory for losses");
    in->n_loss_targets = l->n_targets;
    for (int k = 0; k < l->n_targets; k++)
        in->loss_target[k] = (double)l->target[k];
    for (int i = 0; i < l->n; i++) {
        struct inputs_loss *o = &in->loss[(size_t)l->row[i].input * (size_t)in->n_layers + (size_t)l->row[i].layer];
        *o = (struct inputs_loss){ .known = 1, .kl_per_energy = l->row[i].kl_per_energy };
        memcpy(o->energy, l->row[i].energy, sizeof l->row[i].energy);
    }
    return 0;
}

int inputs_predictors_from_trace(struct inputs *in, const struct trace *trace, struct err *e)
{
    struct trace_predictors *p;
    int n, r = trace_predictors_open(trace, &p, e);
    if (r < 0 || !p)
        return r;
    const struct trace_predictor *list = trace_predictors_list(p, &n);
    in->recall = trace_predictors_info(p)->recall;
    r = inputs_alloc_predictors(in, e);
    for (int i = 0; i < n && r == 0; i++)
        r = take(in, &list[i], e);
    const struct trace_predict_quality *q;
    int rows = trace_predict_quality(p, &q);
    _Static_assert(TRACE_PREDICT_QUALITY <= INPUTS_QUALITY, "the table fits");
    for (in->n_quality = 0; in->n_quality < rows; in->n_quality++, q++)
        in->quality[in->n_quality] =
            (struct inputs_quality){ (int)q->input, q->target, q->kl_mean, q->kl_max, q->top1, q->ppl_ratio, q->tokens };
    if (r == 0)
        r = take_losses(in, trace_predict_losses(p), e);
    trace_predictors_close(p);
    return r;
}
