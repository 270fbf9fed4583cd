/* Times of one memory limit: a token by what it is spent on, then layer by layer. */
#include "planner/report/report.h"

#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ns in a unit that suits the largest. */
static const char *time_unit(double most, double *scale)
{
    *scale = most < 1e3 ? 1 : most < 1e6 ? 1e3 : 1e6;
    return most < 1e3 ? "ns" : most < 1e6 ? "\xc2\xb5s" : "ms";
}

/* --- one token --- */

/* Attention and the rest of the layers as they add up to the step. The paper overlaps sums over all layers, so there only the
 * whole is known. */
void report_step_parts(const struct plan *p, const struct plan_limit *l, double out[REPORT_PARTS])
{
    const struct plan_figures *f = &l->batches[0].predicted;
    memset(out, 0, REPORT_PARTS * sizeof *out);
    for (int k = 0; k < p->n_layers; k++) {
        double part[REPORT_PARTS];
        report_parts_of(p, &f->layers[k], part);
        for (int i = 0; i < REPORT_PARTS; i++)
            out[i] += part[i];
    }
    out[REPORT_HEAD] = f->head_ns;
    if (p->cost == PLAN_COST_PAPER) {
        out[REPORT_WAIT] = 0;
        double known = 0;
        for (int i = 0; i < REPORT_PARTS; i++)
            known += out[i];
        out[REPORT_WAIT] = fmax(0, f->step_ns - known);
    }
}

static void measured_parts(const struct calibrate_limit *m, double out[REPORT_PARTS])
{
    memset(out, 0, REPORT_PARTS * sizeof *out);
    out[REPORT_ATTENTION] = m->measured[CALIBRATE_ATTENTION].p50;
    out[REPORT_PREDICT] = m->measured[CALIBRATE_PREDICT].p50;
    out[REPORT_COMPUTE] = m->measured[CALIBRATE_FFN].p50;
    out[REPORT_WAIT] = m->measured[CALIBRATE_WAIT].p50;
    out[REPORT_HEAD] = m->measured[CALIBRATE_HEAD].p50;
    out[REPORT_REST] = fmax(0, m->measured[CALIBRATE_REST].p50);
}

/* Runs of this limit that tell their times; NULL: none. */
static const struct calibrate_limit *timed(const struct report *r, int index)
{
    const struct calibrate_limit *m = r->measured ? &r->measured->limits[index] : NULL;
    return m && m->runs && m->n[CALIBRATE_FFN] ? m : NULL;
}

static void step_bars(struct page *out, const struct report *r, int index)
{
    const struct plan_figures *f = &r->p->limits[index].batches[0].predicted;
    const struct calibrate_limit *m = timed(r, index);
    static const char *const rows[] = { "predicted", "measured" };
    double v[2 * REPORT_PARTS], scale;
    char sums[2][40];
    const char *totals[2] = { sums[0], sums[1] };
    report_step_parts(r->p, &r->p->limits[index], v);
    if (m)
        measured_parts(m, v + REPORT_PARTS);
    const char *unit = time_unit(f->step_ns, &scale);
    snprintf(sums[0], sizeof sums[0], "%.4g %s", f->step_ns / scale, unit);
    snprintf(sums[1], sizeof sums[1], "%.4g %s", m ? m->measured[CALIBRATE_STEP].p50 / scale : 0, unit);
    const struct plot_bars b = { .title = "Where the time of a token goes", .about = "Stacked bars of the time of one "
                                 "token by what it is spent on; the table below has the numbers.",
                                 .n_rows = m ? 2 : 1, .n_parts = REPORT_PARTS, .rows = rows, .totals = totals,
                                 .parts = report_part_names, .colours = report_part_colours, .values = v };
    report_figure(out, "Where the time of a token goes");
    plot_draw_bars(out, &b);
    report_figure_end(out, m ? "All layers and the output head, batch 1. Measured: medians of the runs. The engine's FFN time "
                      "without waiting is drawn as computing." : "All layers and the output head, batch 1.");
}

static void step_table(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "Part", "Predicted, \xc2\xb5s", "Share", "Measured, \xc2\xb5s" };
    const struct plan_figures *f = &r->p->limits[index].batches[0].predicted;
    const struct calibrate_limit *m = timed(r, index);
    double v[REPORT_PARTS], is[REPORT_PARTS] = { 0 };
    report_step_parts(r->p, &r->p->limits[index], v);
    if (m)
        measured_parts(m, is);
    report_table(out, "time of a token", heads, m ? 4 : 3);
    for (int i = 0; i < REPORT_PARTS; i++) {
        if (v[i] <= 0 && is[i] <= 0)
            continue;
        page_put(out, "<tr><td>%s</td><td>%.6g</td><td>%.1f %%</td>", report_part_names[i], v[i] / 1e3, 100 * v[i] / f->step_ns);
        if (m)
            page_put(out, "<td>%.6g</td>", is[i] / 1e3);
        page_put(out, "</tr>\n");
    }
    page_put(out, "<tr><td>whole token</td><td>%.6g</td><td>100.0 %%</td>", f->step_ns / 1e3);
    if (m)
        page_put(out, "<td>%.6g</td>", m->measured[CALIBRATE_STEP].p50 / 1e3);
    page_put(out, "</tr>\n");
    report_table_end(out);
    page_put(out, "</details>\n");
}

/* --- layers --- */

/* What stands above a layer's bar. */
static const char *mark(const struct plan_limit *l, int layer)
{
    static const char *const marks[PREDICT_INPUTS][2] = { [PREDICT_FFN] = { "f", "f*" }, [PREDICT_BLOCK] = { "b", "b*" },
                                                          [PREDICT_RESIDUAL] = { "r", "r*" } };
    int input = l->mode == PLAN_PREDICTED ? l->predictor[layer] : -1;
    return input < 0 ? NULL : marks[input][l->batches[0].streamed[layer] != 0];
}

static void layer_bars(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_figures *f = &p->limits[index].batches[0].predicted;
    double *v = calloc((size_t)p->n_layers * REPORT_PARTS, sizeof *v), most = 0, scale;
    const char **marks = calloc((size_t)p->n_layers, sizeof *marks);
    if (!v || !marks) {
        free(v);
        free(marks);
        out->failed = 1;
        return;
    }
    for (int k = 0; k < p->n_layers; k++)
        marks[k] = mark(&p->limits[index], k);
    for (int k = 0; k < p->n_layers; k++)
        most = fmax(most, f->layers[k].total_ns);
    const char *unit = time_unit(most, &scale);
    for (int k = 0; k < p->n_layers; k++) {
        report_parts_of(p, &f->layers[k], v + k * REPORT_PARTS);
        for (int i = 0; i < REPORT_PARTS; i++)
            v[k * REPORT_PARTS + i] /= scale;
    }
    const struct plot_bars b = { .title = "Time per layer", .about = "Stacked bars of the predicted time of each layer; "
                                 "the table below has the numbers.", .unit = unit, .n_rows = p->n_layers, .rows = marks,
                                 .n_parts = REPORT_PARTS, .standing = 1, .parts = report_part_names,
                                 .colours = report_part_colours, .values = v };
    report_figure(out, "Time per layer");
    plot_draw_bars(out, &b);
    report_figure_end(out, p->limits[index].mode == PLAN_PREDICTED ? "What computes hides reads: only what storage takes longer is "
                      "waited for. Predictors see: b the transformer block's input, so reads begin before attention; "
                      "f the FFN's; r the residual stream. *: they are streamed, read whenever they are used." :
                      "What computes hides reads: only what storage takes longer is waited for.");
    free(v);
    free(marks);
}

static void layer_table(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "Layer", "Hot", "Cold slots", "Active", "Attention", "Prediction", "Compute",
                                         "Memory", "I/O", "Exposed", "Total", "Overlaps", "Binds", "Bytes read",
                                         "Hits", "Best", "<Predictor" };
    const struct plan *p = r->p;
    const struct plan_batch *b = &p->limits[index].batches[0];
    int predicted = p->limits[index].mode == PLAN_PREDICTED;
    report_table(out, p->cost == PLAN_COST_PAPER ? "layers (times in \xc2\xb5s; the paper overlaps sums over all layers, so these "
                 "totals do not add up to the token)" : "layers (times in \xc2\xb5s)", heads, predicted ? 17 : 16);
    for (int i = 0; i < p->n_layers; i++) {
        const struct plan_layer_figures *f = &b->predicted.layers[i];
        page_put(out, "<tr><td>%d</td><td>%u", i, plan_hot(p, b, i, 0, 0));
        if (p->n_parts > 1)
            page_put(out, " + %u", plan_hot(p, b, i, 0, 1));
        page_put(out, "</td><td>%u</td><td>%.1f</td><td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%.4g</td>"
                      "<td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%s</td><td>%.0f</td><td>%.1f %%</td><td>%.1f %%</td>",
                 plan_cold(p, b, i, p->n_parts - 1), f->active, f->attention_ns / 1e3, f->predict_ns / 1e3,
                 f->ffn_compute_ns / 1e3, f->ffn_memory_ns / 1e3, f->io_ns / 1e3, f->exposed_ns / 1e3, f->total_ns / 1e3,
                 explain_overlap_ns(p->cost, f) / 1e3, explain_bound_names[explain_binds(f)], f->read_bytes, 100 * f->hit_rate,
                 100 * r->limits[index].explain.best_hit_rate[i]);
        if (predicted)
            page_put(out, "<td class='u'>%s%s</td>", p->limits[index].predictor[i] < 0 ? "none" :
                     predict_input_name((enum predict_input)p->limits[index].predictor[i]), b->streamed[i] ? ", streamed" : "");
        page_put(out, "</tr>\n");
    }
    report_table_end(out);
    page_put(out, "</details>\n");
}

/* What a predicted limit's predictors see, and what each other input would make of the layer's bytes. */
static void input_table(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "Layer", "<Input", "Predictor bytes", "Neurons computed", "Hidden behind attention",
                                         "Total", "Best other input", "Saved" };
    const struct plan_limit *l = &r->p->limits[index];
    const struct explain_input *x = r->limits[index].explain.inputs;
    if (!x)
        return;
    report_table(out, "what predictors see (times in \xc2\xb5s; other inputs with the bytes that the layer has)", heads, 8);
    for (int k = 0; k < r->p->n_layers; k++) {
        double total = l->batches[0].predicted.layers[k].total_ns, saved = explain_saved_ns(&x[k], total);
        page_put(out, "<tr><td>%d</td><td>%s</td><td>%llu</td><td>%.1f %%</td><td>%.4g</td><td>%.4g</td>", k,
                 x[k].input < 0 ? "none" : predict_input_name((enum predict_input)x[k].input),
                 (unsigned long long)x[k].predictor_bytes, 100 * x[k].density, x[k].hidden_ns / 1e3, total / 1e3);
        if (isnan(saved))
            page_put(out, "<td>-</td><td>-</td></tr>\n");
        else
            page_put(out, "<td>%.4g</td><td>%.4g</td></tr>\n", (total + saved) / 1e3, saved / 1e3);
    }
    report_table_end(out);
    page_put(out, "</details>\n");
}

void report_time_figures(struct page *out, const struct report *r, int index)
{
    step_bars(out, r, index);
    layer_bars(out, r, index);
}

void report_time_tables(struct page *out, const struct report *r, int index)
{
    step_table(out, r, index);
    layer_table(out, r, index);
    input_table(out, r, index);
}
