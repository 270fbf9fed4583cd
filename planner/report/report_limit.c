/* One memory limit: times, hotness, the cold cache, what ran, what binds, what more would buy, the equations. */
#include "planner/report/report.h"

#include "common/cli/opt.h"
#include "planner/check/check.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS  48 /* points of a hotness curve */
#define NAMED  4  /* layers with a colour and a name of their own */

/* ns in a unit that suits the largest. */
static const char *time_unit(double most, double *scale)
{
    *scale = most < 1e3 ? 1 : most < 1e6 ? 1e3 : 1e6;
    return most < 1e3 ? "ns" : most < 1e6 ? "\xc2\xb5s" : "ms";
}

/* Layers to name: first, last and some between. */
static int named(int layer, int n_layers)
{
    int k = n_layers < NAMED ? n_layers : NAMED;
    for (int i = 0; i < k; i++)
        if (layer == (k == 1 ? 0 : i * (n_layers - 1) / (k - 1)))
            return i;
    return -1;
}

/* --- time --- */

static void step_bars(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_limit *l = &p->limits[index];
    const struct plan_figures *f = &l->batches[0].predicted;
    const struct calibrate_limit *m = r->measured && r->measured->limits[index].runs ? &r->measured->limits[index] : NULL;
    static const char *const rows[] = { "predicted", "measured" };
    double v[2 * REPORT_PARTS] = { 0 }, scale;
    char sums[2][40];
    const char *totals[2] = { sums[0], sums[1] };
    for (int k = 0; k < p->n_layers; k++) {
        double part[REPORT_PARTS];
        report_parts_of(p, &f->layers[k], part);
        for (int i = 0; i < REPORT_PARTS; i++)
            v[i] += part[i];
    }
    v[REPORT_HEAD] = f->head_ns;
    int times = m && m->n[CALIBRATE_FFN];
    if (times) {
        double *o = v + REPORT_PARTS;
        o[REPORT_ATTENTION] = m->measured[CALIBRATE_ATTENTION].p50;
        o[REPORT_PREDICT] = m->measured[CALIBRATE_PREDICT].p50;
        o[REPORT_COMPUTE] = m->measured[CALIBRATE_FFN].p50;
        o[REPORT_WAIT] = m->measured[CALIBRATE_WAIT].p50;
        o[REPORT_HEAD] = m->measured[CALIBRATE_HEAD].p50;
        o[REPORT_REST] = fmax(0, m->measured[CALIBRATE_REST].p50);
    }
    const char *unit = time_unit(f->step_ns, &scale);
    snprintf(sums[0], sizeof sums[0], "%.4g %s", f->step_ns / scale, unit);
    snprintf(sums[1], sizeof sums[1], "%.4g %s", times ? m->measured[CALIBRATE_STEP].p50 / scale : 0, unit);
    const struct plot_bars b = { .title = "Where the time of a token goes", .about = "Stacked bars of the time of one "
                                 "token by what it is spent on; the table of layers has the numbers.",
                                 .n_rows = times ? 2 : 1, .n_parts = REPORT_PARTS, .rows = rows, .totals = totals,
                                 .parts = report_part_names, .colours = report_part_colours, .values = v };
    report_figure(out, "Where the time of a token goes");
    plot_draw_bars(out, &b);
    report_figure_end(out, times ? "Measured: medians of the runs. The engine's FFN time without waiting is drawn as "
                      "computing." : p->cost == PLAN_COST_PAPER ? "The paper overlaps the sums over all layers, so the "
                      "parts do not add up to the step." : "All layers and the output head, batch 1.");
}

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
    report_table(out, "layers (times in \xc2\xb5s)", heads, predicted ? 17 : 16);
    for (int i = 0; i < p->n_layers; i++) {
        const struct plan_layer_figures *f = &b->predicted.layers[i];
        page_put(out, "<tr><td>%d</td><td>%u", i, plan_hot(p, b, i, 0, 0));
        if (p->n_parts > 1)
            page_put(out, " + %u", plan_hot(p, b, i, 0, 1));
        page_put(out, "</td><td>%u</td><td>%.1f</td><td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%.4g</td>"
                      "<td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%s</td><td>%.0f</td><td>%.1f %%</td><td>%.1f %%</td>",
                 plan_cold(p, b, i, p->n_parts - 1), f->active, f->attention_ns / 1e3, f->predict_ns / 1e3,
                 f->ffn_compute_ns / 1e3, f->ffn_memory_ns / 1e3, f->io_ns / 1e3, f->exposed_ns / 1e3, f->total_ns / 1e3,
                 explain_overlap_ns(p->cost, f) / 1e3, explain_binds(f), f->read_bytes, 100 * f->hit_rate,
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

/* --- hotness --- */

/* Share of a layer's firings that come from the first `at` neurons of each block. */
static double firings(const struct inputs *in, int layer, int at)
{
    double part = 0, all = 0;
    for (int k = 0; k < in->n_blocks; k++) {
        const struct inputs_curve *c = inputs_curve_at(in, 0, layer, k);
        part += c->cum[at];
        all += c->cum[in->h.n_ff];
    }
    return all > 0 ? part / all : 0;
}

static void hotness(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_batch *b = &p->limits[index].batches[0];
    int n = p->n_layers, last = p->n_parts - 1, count = 0, plain = 0;
    double *v = malloc((size_t)n * (2 * STEPS + 2) * sizeof *v);
    struct plot_series *s = malloc((size_t)n * 2 * sizeof *s);
    char names[NAMED][32];
    for (int k = 0; v && s && k < 2 * n; k++) { /* those with a name lie above the others */
        int l = k % n, named_as = named(l, n);
        double *x = v + (size_t)l * (2 * STEPS + 2), *y = x + STEPS, *hot = y + STEPS;
        if ((named_as >= 0) != (k >= n))
            continue;
        for (int i = 0; i < STEPS; i++) {
            double share = (double)i / (STEPS - 1);
            int at = (int)lround(share * share * p->n_ff); /* denser where the hot ones are */
            x[i] = 100.0 * at / p->n_ff;
            y[i] = 100 * firings(r->in, l, at);
        }
        uint32_t prefix = plan_hot(p, b, l, 0, last);
        hot[0] = 100.0 * prefix / p->n_ff;
        hot[1] = 100 * firings(r->in, l, (int)prefix);
        if (named_as >= 0)
            snprintf(names[named_as], sizeof names[0], "layer %d", l);
        const char *name = named_as >= 0 ? names[named_as] : plain++ ? NULL : "the others";
        int colour = named_as >= 0 ? named_as : PLOT_COLOURS - 1;
        s[count++] = (struct plot_series){ name, x, y, STEPS, named_as >= 0 ? PLOT_LINE : PLOT_THIN, colour };
        s[count++] = (struct plot_series){ NULL, hot, hot + 1, 1, PLOT_POINTS, colour };
    }
    const struct plot g = { .title = "Hotness", .about = "For each layer, the share of all firings that the hottest "
                            "neurons make, and where the planned hot prefix ends; the table below has the numbers.",
                            .x = { .label = "hottest neurons of a layer, %", .max = 100 },
                            .y = { .label = "share of firings, %", .max = 100 }, .series = s, .n = count };
    report_figure(out, "Hotness");
    if (v && s)
        plot_draw(out, &g);
    else
        out->failed = 1;
    report_figure_end(out, p->n_parts > 1 ? "Neurons from hot to cold, batch 1. Dots: how far Up and Down are resident." :
                      "Neurons from hot to cold, batch 1. Dots: how far neurons are resident.");
    free(v);
    free(s);
}

static void hotness_table(struct page *out, const struct report *r, int index)
{
    static const double shares[] = { 0.01, 0.05, 0.1, 0.2, 0.5 };
    static const char *const heads[] = { "Layer", "Active neurons", "Hottest 1 %", "5 %", "10 %", "20 %", "50 %",
                                         "Hot prefix", "of neurons", "of firings" };
    const struct plan *p = r->p;
    report_table(out, "share of firings by the hottest neurons", heads, 10);
    for (int l = 0; l < p->n_layers; l++) {
        uint32_t hot = plan_hot(p, &p->limits[index].batches[0], l, 0, p->n_parts - 1);
        page_put(out, "<tr><td>%d</td><td>%.1f</td>", l, inputs_active(r->in, 0, l, 0));
        for (int i = 0; i < 5; i++)
            page_put(out, "<td>%.1f %%</td>", 100 * firings(r->in, l, (int)lround(shares[i] * p->n_ff)));
        page_put(out, "<td>%u</td><td>%.1f %%</td><td>%.1f %%</td></tr>\n", hot, 100.0 * hot / p->n_ff,
                 100 * firings(r->in, l, (int)hot));
    }
    report_table_end(out);
    page_put(out, "</details>\n");
}

/* --- cold cache --- */

static void scaled(const double *from, int n, double *to)
{
    for (int i = 0; i < n; i++)
        to[i] = 100 * from[i];
}

static void misses(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct report_misses *m = &r->limits[index].misses;
    int n = p->n_layers, count = 0, named_any = 0;
    double *v = malloc((size_t)n * (REPLAY_SIZES + 2) * sizeof *v);
    struct plot_series *s = malloc(((size_t)n + 4) * sizeof *s);
    double x[REPLAY_SIZES], policy[REPLAY_SIZES], best[REPLAY_SIZES];
    double at[2] = { 100 * m->planned_share, 100 * m->planned_rate };
    char mine[64], caption[400];
    scaled(m->share, m->n, x);
    scaled(m->policy, m->n, policy);
    scaled(m->best, m->n, best);
    for (int l = 0; v && s && l < n; l++) {
        double *y = v + (size_t)l * (REPLAY_SIZES + 2);
        scaled(m->layers + (size_t)l * REPLAY_SIZES, m->n, y);
        scaled(m->planned + 2 * l, 2, y + REPLAY_SIZES);
        if (!isfinite(y[0]))
            continue;
        s[count++] = (struct plot_series){ named_any++ ? NULL : "each layer", x, y, m->n, PLOT_THIN, PLOT_COLOURS - 1 };
    }
    snprintf(mine, sizeof mine, "%s, layers together", cache_policy_name(p->limits[index].policy));
    if (v && s) {
        s[count++] = (struct plot_series){ mine, x, policy, m->n, PLOT_LINE, 0 };
        s[count++] = (struct plot_series){ "Belady's bound", x, best, m->n, PLOT_DASHED, 2 };
        s[count++] = (struct plot_series){ "planned", at, at + 1, 1, PLOT_POINTS, 1 };
    }
    const struct plot_mark cliff = { "one step's units", 100 * m->cliff, 4 };
    const struct plot g = { .title = "Misses of the cold cache", .about = "Miss rate over the size of the cold cache, "
                            "with the bound that no policy can beat; the table below has the numbers.",
                            .x = { .label = "cache size, % of the units beyond the hot prefix", .max = 100 },
                            .y = { .label = "misses, % of lookups", .max = 100 }, .series = s, .n = count,
                            .marks = &cliff, .n_marks = 1 };
    report_figure(out, "Misses of the cold cache");
    if (v && s)
        plot_draw(out, &g);
    else
        out->failed = 1;
    snprintf(caption, sizeof caption, "By replaying the trace beyond the planned prefix. Dotted: the units of one step "
             "(%.1f %%, the mean); a smaller cache cannot even hold the step before. Together: %d layer%s of %d. Layers "
             "have caches of their own sizes, so the planned point need not lie on the line.", 100 * m->cliff, m->sampled,
             m->sampled == 1 ? "" : "s", n);
    report_figure_end(out, caption);
    free(v);
    free(s);
}

static void misses_table(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "Cache size, % of units", "Misses, % of lookups", "Belady's bound" };
    const struct report_misses *m = &r->limits[index].misses;
    report_table(out, "misses over cache size, layers together", heads, 3);
    for (int i = 0; i < m->n; i++)
        page_put(out, "<tr><td>%.2f</td><td>%.2f</td><td>%.2f</td></tr>\n", 100 * m->share[i], 100 * m->policy[i],
                 100 * m->best[i]);
    report_table_end(out);
    page_put(out, "<p>Planned: %.2f %% of the units cached, %.2f %% of the lookups miss. One step takes %.2f %%.</p>"
                  "</details>\n", 100 * m->planned_share, 100 * m->planned_rate, 100 * m->cliff);
}

/* --- what ran, what binds, what more would buy --- */

static void measured_table(struct page *out, const struct calibrate_limit *m)
{
    static const char *const heads[] = { "Per token", "Predicted", "Measured", "p10", "p90", "Ratio", "Unit" };
    page_put(out, "<h3>Predicted against measured</h3><p>Medians over %d run%s.</p>", m->runs, m->runs == 1 ? "" : "s");
    report_table(out, NULL, heads, 7);
    for (int t = 0; t < CALIBRATE_TERMS; t++) {
        double scale = t < CALIBRATE_TIMES ? 1e3 : t == CALIBRATE_HITS ? 0.01 : 1024, p = m->predicted[t];
        if (m->n[t] == 0 || (p == 0 && m->measured[t].p50 == 0))
            continue;
        page_put(out, "<tr><td>%s</td><td>%.6g</td><td>%.6g</td><td>%.6g</td><td>%.6g</td>", calibrate_term_labels[t],
                 p / scale, m->measured[t].p50 / scale, m->measured[t].p10 / scale, m->measured[t].p90 / scale);
        if (p > 0)
            page_put(out, "<td>%.3f</td>", m->measured[t].p50 / p);
        else
            page_put(out, "<td></td>");
        page_put(out, "<td>%s</td></tr>\n", t < CALIBRATE_TIMES ? "\xc2\xb5s" : t == CALIBRATE_HITS ? "%" : "KiB");
    }
    const struct hw_dist *s = &m->measured[CALIBRATE_STEP];
    double p = 1e9 / m->predicted[CALIBRATE_STEP];
    page_put(out, "<tr><td>Speed</td><td>%.5g</td><td>%.5g</td><td>%.5g</td><td>%.5g</td><td>%.3f</td><td>tokens/s</td>"
                  "</tr>\n", p, 1e9 / s->p50, 1e9 / s->p90, 1e9 / s->p10, 1e9 / s->p50 / p);
    report_table_end(out);
}

static void binds(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "With", "tokens/s", "Change" };
    const struct plan *p = r->p;
    const struct explain *x = &r->limits[index].explain;
    int count[3] = { 0 };
    for (int i = 0; i < p->n_layers; i++) {
        const char *w = explain_binds(&p->limits[index].batches[0].predicted.layers[i]);
        count[!strcmp(w, "compute") ? 0 : !strcmp(w, "memory") ? 1 : 2]++;
    }
    page_put(out, "<h3>What binds, and what more would buy</h3><p>Compute binds in %d layers, memory in %d, storage in "
                  "%d.</p>", count[0], count[1], count[2]);
    report_table(out, NULL, heads, 3);
    page_put(out, "<tr><td>what there is</td><td>%.4g</td><td></td></tr>\n", x->base_tokens_per_s);
    for (int i = 0; i < x->n_gains; i++) {
        page_put(out, "<tr><td>");
        page_text(out, x->gains[i].what);
        page_put(out, "</td><td>%.4g</td><td>%+.1f %%</td></tr>\n", x->gains[i].tokens_per_s,
                 x->base_tokens_per_s > 0 ? 100 * (x->gains[i].tokens_per_s / x->base_tokens_per_s - 1) : 0);
    }
    report_table_end(out);
}

static void equations(struct page *out, const char *title, const struct explain_line *lines, int n)
{
    static const char *const heads[] = { "", "<Equation", "Value", "<Unit", "<With" };
    if (n == 0)
        return;
    report_table(out, title, heads, 5);
    for (int i = 0; i < n; i++) {
        page_put(out, "<tr><td>");
        page_text(out, lines[i].id);
        page_put(out, "</td><td class='t'>");
        page_text(out, lines[i].formula);
        page_put(out, "</td><td>%.6g</td><td class='u'>", lines[i].value);
        page_text(out, lines[i].unit);
        page_put(out, "</td><td class='t'>");
        for (int k = 0; k < lines[i].n_terms; k++)
            page_textf(out, "%s%s %.6g", k ? ", " : "= ", lines[i].term[k].name, lines[i].term[k].value);
        page_put(out, lines[i].n_terms && lines[i].n ? "; with " : "");
        for (int k = 0; k < lines[i].n; k++)
            page_textf(out, "%s%s %.6g", k ? ", " : "", lines[i].operand[k].name, lines[i].operand[k].value);
        page_put(out, "</td></tr>\n");
    }
    report_table_end(out);
    page_put(out, "</details>\n");
}

/* How missing neurons are read, and what says which they are. */
static void reading(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_limit *l = &p->limits[index];
    char size[32], text[CHECK_INPUTS_TEXT];
    int streamed = 0;
    page_put(out, "<p>");
    if (plan_read_bytes(l))
        page_textf(out, "Coalesced reads: one read covers several missing neurons and the gaps between them where that is "
                        "faster, up to %s.",
                   size_format(plan_read_bytes(l), size, sizeof size));
    else
        page_put(out, "Missing neurons that are neighbours share a read; nothing is read through gaps.");
    if (l->mode == PLAN_PREDICTED) {
        for (int k = 0; k < p->n_layers; k++)
            streamed += l->batches[0].streamed[k] != 0;
        check_inputs_text(p, l, text);
        page_textf(out, " Predictors see %s", text + strlen("predictors: "));
        if (streamed)
            page_textf(out, "; those of %d layer%s are streamed through %d buffers.", streamed, streamed == 1 ? "" : "s",
                       l->predictor_buffers);
        else
            page_put(out, "; all stay in memory.");
    }
    page_put(out, "</p>\n");
}

void report_limit_section(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_limit *l = &p->limits[index];
    const struct report_limit *o = &r->limits[index];
    char size[32], account[32];
    page_put(out, "<section id='limit%d'><h2>Within %s</h2><p>", index, size_format(l->memory_bytes, size,
                                                                                       sizeof size));
    page_textf(out, "%.4g tokens/s at batch 1: %s mode, %d thread%s (", l->batches[0].predicted.tokens_per_s,
               plan_mode_name(l->mode), l->threads, l->threads == 1 ? "" : "s");
    for (int k = 0; k < l->n_classes; k++)
        page_textf(out, "%s%d %s", k ? ", " : "", l->classes[k].n, l->classes[k].name);
    page_textf(out, "), %s at depth %d, context %d, %s cache. The account takes %s; proven within %.2f %% of the best%s.",
               plan_io_name(l->io), l->queue_depth, l->context, cache_policy_name(l->policy),
               size_format(l->account_bytes, account, sizeof account), 100 * l->gap,
               l->optimal ? "" : " (the solver stopped at its limit)");
    page_put(out, "</p>\n");
    reading(out, r, index);
    page_put(out, "<div class='figs'>");
    step_bars(out, r, index);
    layer_bars(out, r, index);
    hotness(out, r, index);
    if (o->misses.sampled)
        misses(out, r, index);
    page_put(out, "</div>\n");
    if (!o->misses.sampled)
        page_put(out, "<p>There is no cold cache under this limit: nothing is looked up.</p>\n");
    layer_table(out, r, index);
    input_table(out, r, index);
    hotness_table(out, r, index);
    if (o->misses.sampled)
        misses_table(out, r, index);
    if (r->measured && r->measured->limits[index].runs)
        measured_table(out, &r->measured->limits[index]);
    binds(out, r, index);
    equations(out, "the paper's equations, whole model", o->explain.paper, o->explain.n_paper);
    equations(out, "measured cost model", o->explain.measured, o->explain.n_measured);
    page_put(out, "</section>\n");
}
