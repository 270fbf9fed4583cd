/* Each run is held against the limit that it ran under. Ratios and factors are taken run by run, then their median, so
 * that one run that something disturbed moves nothing. */
#include "planner/check/calibrate.h"

#include "common/model/predict.h"
#include "planner/planning/planning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME_PLAN 1e-4   /* plan and telemetry state six digits */
#define HIDDEN    1e-3   /* of a step: a shorter wait tells nothing of storage */

const char *const calibrate_term_names[CALIBRATE_TERMS] = { "attention", "predict", "ffn", "io_wait", "head",
                                                            "rest", "step", "read_bytes", "hit_rate" };
const char *const calibrate_term_labels[CALIBRATE_TERMS] = { "Attention", "Prediction", "FFN", "Waiting for storage",
                                                             "Output head", "Rest", "Whole step", "Bytes read",
                                                             "Hit rate" };

void calibrate_predicted(const struct plan *p, const struct plan_limit *l, double out[CALIBRATE_TERMS])
{
    const struct plan_figures *g = &l->batches[0].predicted;
    plan_terms(p->cost, l->mode, g, p->n_layers, out);
    out[CALIBRATE_REST] = 0;
    out[CALIBRATE_STEP] = g->step_ns;
    out[CALIBRATE_BYTES] = g->read_bytes;
    out[CALIBRATE_HITS] = g->hit_rate;
}

void calibrate_measured(const struct telemetry_run *r, double out[CALIBRATE_TERMS])
{
    double predict = isnan(r->predict_ns) ? 0 : r->predict_ns;
    out[CALIBRATE_ATTENTION] = r->attention_ns;
    out[CALIBRATE_PREDICT] = r->predict_ns;
    out[CALIBRATE_FFN] = fmax(0, r->ffn_ns - r->wait_ns);
    if (isnan(r->ffn_ns))
        out[CALIBRATE_FFN] = NAN; /* fmax passes NAN over */
    out[CALIBRATE_WAIT] = r->wait_ns;
    out[CALIBRATE_HEAD] = r->head_ns;
    out[CALIBRATE_REST] = r->step_ns - r->attention_ns - predict - r->ffn_ns - r->head_ns;
    out[CALIBRATE_STEP] = r->step_ns;
    out[CALIBRATE_BYTES] = r->read_bytes;
    out[CALIBRATE_HITS] = r->hit_rate;
}

static double wait_at(const struct plan_limit *l, int n_layers, double ffn, double io)
{
    double sum = 0;
    for (int i = 0; i < n_layers; i++) {
        const struct plan_layer_figures *f = &l->batches[0].predicted.layers[i];
        double work = ffn * fmax(fmax(f->ffn_compute_ns, f->ffn_memory_ns), f->ffn_engine_ns);
        if (l->mode == PLAN_PREDICTED && l->predictor[i] == PREDICT_BLOCK)
            work += f->attention_ns; /* reads begin before it */
        sum += fmax(0, io * f->io_ns - work) + io * f->exposed_ns;
    }
    return sum;
}

double calibrate_io_factor(const struct plan_limit *l, int n_layers, double ffn, double wait_ns)
{
    double low = 1e-6, high = 1e6;
    if (!(wait_ns > 0) || wait_at(l, n_layers, ffn, low) > wait_ns || wait_at(l, n_layers, ffn, high) < wait_ns)
        return NAN;
    for (int i = 0; i < 200 && high / low > 1 + 1e-12; i++) {
        double mid = sqrt(low * high);
        if (wait_at(l, n_layers, ffn, mid) < wait_ns)
            low = mid;
        else
            high = mid;
    }
    return sqrt(low * high);
}

/* Attention of a step at the run's mean position, as the cost model has it. */
static int attention_at(const struct plan *p, const struct plan_limit *l, const struct hw *hw, const struct inputs *in,
                        double position, double *ns, struct err *e)
{
    struct cost_choice c;
    struct layout_shapes shapes;
    struct cost_rates *rates;
    planning_choice(p, l, &l->batches[0], &c);
    c.mode = PLAN_DENSE; /* attention is the same in all, and this one needs no predictors */
    int r = layout_derive(&p->layout, in->h.d_model, in->h.n_ff, &shapes, e);
    c.context = position < 1 ? 2 : (int)lround(2 * position);
    if (r < 0 || (r = cost_rates_new(hw, in, &shapes, &c, 1, &rates, NULL, e)) < 0)
        return r;
    *ns = 0;
    for (int i = 0; i < in->n_layers; i++) {
        struct cost_layer cl;
        cost_layer_of(hw, in, layout_of(&shapes, i), &c, &rates[shapes.l.kind[i]], 0, i, &cl, NULL);
        *ns += cl.attention_ns;
    }
    free(rates);
    return 0;
}

/* Does the plan speak of this run? 1, 0 with the reason noted, or an error. */
static int comparable(const struct plan *p, const char *name, const struct telemetry_run *r, const struct plan_limit *l,
                      const double *promised, struct notes *why, struct err *e)
{
    if (strcmp(r->model, p->model_name) != 0)
        return err_set(e, ERR_MISMATCH, "telemetry '%s' line %d is of model '%s', plan '%s' is for '%s'", r->file,
                       r->line, r->model, name, p->model_name);
    if (!l || !r->valid) {
        notes_add(why, "less memory or other settings than the plan's limit has: %s", r->file);
        return 0;
    }
    double planned = promised ? promised[l - p->limits] : l->batches[0].predicted.tokens_per_s;
    if (fabs(r->predicted_tokens_per_s - planned) > SAME_PLAN * planned)
        return err_set(e, ERR_MISMATCH, "telemetry '%s' line %d is of another plan: under %llu bytes it had %g tokens/s "
                                        "predicted, plan '%s' predicts %g",
                       r->file, r->line, (unsigned long long)r->memory_bytes, r->predicted_tokens_per_s, name, planned);
    if (strcmp(r->mode, plan_mode_name(l->mode)) != 0)
        notes_add(why, "%s mode, not the plan's: %s", r->mode, r->file);
    else if (r->threads != l->threads)
        notes_add(why, "%d threads, not the plan's %d: %s", r->threads, l->threads, r->file);
    else if (strcmp(r->kv, kv_type_name(l->kv_type)) != 0 || strcmp(r->act, l->act_q8 ? "q8" : "f32") != 0)
        notes_add(why, "other types of KV cache or activations than the plan's: %s", r->file);
    else
        return 1;
    return 0;
}

/* Values of one kind over the runs; NAN and nonsense are left out. */
struct column {
    double *v;
    int n;
};

static void add(struct column *c, double v)
{
    if (isfinite(v))
        c->v[c->n++] = v;
}

static struct hw_dist spread(struct column *c, int *n)
{
    *n = c->n;
    return c->n ? hw_dist_of(c->v, c->n) : (struct hw_dist){ 0, 0, 0 };
}

/* Columns of a table that is filled run by run: measured of the current limit, ratios and factors of all. */
struct table {
    struct column measured[CALIBRATE_TERMS], ratio[CALIBRATE_TERMS], factor[HW_TERMS];
    double *all;
};

static int table_init(struct table *t, int runs, struct err *e)
{
    size_t n = (size_t)(runs ? runs : 1), columns = 2 * CALIBRATE_TERMS + HW_TERMS;
    t->all = malloc(columns * n * sizeof *t->all);
    if (!t->all)
        return err_set(e, ERR_NOMEM, "out of memory for telemetry");
    double *at = t->all;
    for (int i = 0; i < CALIBRATE_TERMS; i++, at += 2 * n) {
        t->measured[i] = (struct column){ at, 0 };
        t->ratio[i] = (struct column){ at + n, 0 };
    }
    for (int i = 0; i < HW_TERMS; i++, at += n)
        t->factor[i] = (struct column){ at, 0 };
    return 0;
}

static void add_run(struct table *t, const struct plan *p, const struct plan_limit *l, const double *predicted,
                    const double *measured, const struct hw *hw)
{
    static const enum calibrate_term term[HW_TERMS] = { CALIBRATE_ATTENTION, CALIBRATE_PREDICT, CALIBRATE_FFN,
                                                        CALIBRATE_WAIT, CALIBRATE_HEAD };
    double ratio[CALIBRATE_TERMS];
    for (int i = 0; i < CALIBRATE_TERMS; i++) {
        ratio[i] = predicted[i] > 0 ? measured[i] / predicted[i] : NAN;
        add(&t->measured[i], measured[i]);
        add(&t->ratio[i], ratio[i]);
    }
    for (int i = 0; i < HW_TERMS; i++) {
        double factor = ratio[term[i]];
        if (i == HW_IO) {
            int known = measured[CALIBRATE_WAIT] > HIDDEN * measured[CALIBRATE_STEP] && ratio[CALIBRATE_FFN] > 0;
            factor = known ? calibrate_io_factor(l, p->n_layers, ratio[CALIBRATE_FFN], measured[CALIBRATE_WAIT]) : NAN;
        }
        if (l->predictor_buffers && (i == HW_PREDICT || i == HW_IO))
            factor = NAN; /* (M20) waits for streamed predictors as they predict, a run as the FFN goes on */
        if (factor > 0)
            add(&t->factor[i], factor * (hw ? hw_correction(hw, (enum hw_term)i) : 1));
    }
}

static int compare_limit(const struct plan *p, const char *name, int li, const struct hw *hw, const struct inputs *in,
                         const struct telemetry *t, const double *promised, struct table *table, struct calibrate *out,
                         struct err *e)
{
    const struct plan_limit *l = &p->limits[li];
    struct calibrate_limit *o = &out->limits[li];
    o->limit = l;
    calibrate_predicted(p, l, o->predicted);
    double sum[CALIBRATE_TERMS] = { 0 };
    for (int i = 0; i < CALIBRATE_TERMS; i++)
        table->measured[i].n = 0;
    for (int i = 0; i < t->n; i++) {
        const struct telemetry_run *run = &t->run[i];
        double measured[CALIBRATE_TERMS], predicted[CALIBRATE_TERMS];
        const struct plan_limit *its = plan_pick(p, run->memory_bytes);
        if (its != l && (its || li > 0))
            continue;
        int r = comparable(p, name, run, its, promised, &out->why, e);
        if (r < 0)
            return r;
        if (r == 0) {
            out->skipped++;
            continue;
        }
        memcpy(predicted, o->predicted, sizeof predicted);
        if (hw && in) {
            double was = predicted[CALIBRATE_ATTENTION];
            if ((r = attention_at(p, l, hw, in, run->position, &predicted[CALIBRATE_ATTENTION], e)) < 0)
                return r;
            predicted[CALIBRATE_STEP] += predicted[CALIBRATE_ATTENTION] - was;
        }
        calibrate_measured(run, measured);
        add_run(table, p, l, predicted, measured, hw);
        for (int k = 0; k < CALIBRATE_TERMS; k++)
            sum[k] += predicted[k];
        o->runs++;
    }
    for (int i = 0; i < CALIBRATE_TERMS && promised && o->runs; i++)
        o->predicted[i] = sum[i] / o->runs;
    for (int i = 0; i < CALIBRATE_TERMS; i++)
        o->measured[i] = spread(&table->measured[i], &o->n[i]);
    out->runs += o->runs;
    return 0;
}

int calibrate_compare(const struct plan *p, const char *name, const struct hw *hw, const struct inputs *in,
                      const struct telemetry *t, const double *promised, struct calibrate *out, struct err *e)
{
    struct calibrate c = { .n_limits = p->n_limits };
    struct table table;
    int r = table_init(&table, t->n, e);
    if (r < 0)
        return r;
    if (!(c.limits = calloc((size_t)p->n_limits, sizeof *c.limits)))
        r = err_set(e, ERR_NOMEM, "out of memory for telemetry");
    for (int i = 0; i < p->n_limits && r == 0; i++)
        r = compare_limit(p, name, i, hw, in, t, promised, &table, &c, e);
    if (r == 0 && c.runs == 0)
        r = err_set(e, ERR_MISMATCH, "no run of the telemetry can be held against plan '%s'%s%s", name,
                    c.why.n ? ": " : ": none made a token", c.why.n ? c.why.text[0] : "");
    for (int i = 0; i < CALIBRATE_TERMS && r == 0; i++)
        c.ratio[i] = spread(&table.ratio[i], &c.ratio_n[i]);
    for (int i = 0; i < HW_TERMS && r == 0; i++)
        c.factor[i] = spread(&table.factor[i], &c.factor_n[i]);
    free(table.all);
    if (r < 0) {
        calibrate_done(&c);
        return r;
    }
    *out = c;
    return 0;
}

void calibrate_done(struct calibrate *c)
{
    free(c->limits);
    c->limits = NULL;
}
