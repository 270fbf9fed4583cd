/* The frame of the page: style, head, and the sections that compare limits. Widths are relative and figures flow into
 * as many columns as fit, so one page serves a phone and a desk; tables that are wider than the screen scroll by
 * themselves. */
#include "planner/report/report.h"

#include "common/cli/opt.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

static const char style[] =
    "body{margin:0 auto;max-width:1240px;padding:16px;color:var(--fg);background:var(--bg);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color-scheme:light dark;overflow-wrap:anywhere}"
    "h1{font-size:1.5rem;line-height:1.25;margin:.3em 0}h2{font-size:1.25rem;margin:2em 0 .5em;padding-top:.6em;"
    "border-top:1px solid var(--grid)}h3{font-size:1.05rem;margin:1.6em 0 .4em}p{margin:.5em 0;max-width:46em}"
    "a{color:var(--k0)}.soft,figcaption,caption{color:var(--soft)}.head{font-size:1.1rem}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em;margin:1em 0}dt{color:var(--soft)}dd{margin:0}"
    "code{font:.85em ui-monospace,monospace}nav{display:flex;flex-wrap:wrap;gap:.3em 1em}"
    ".figs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:1em 2em;"
    "align-items:start}figure{margin:0;min-width:0}figure h3{margin:.8em 0 .3em}figure svg{display:block;width:100%;"
    "max-width:620px;height:auto}figcaption{font-size:.9rem;max-width:44em}"
    "details{margin:.4em 0 1em}summary{cursor:pointer;color:var(--k0);width:max-content;max-width:100%}"
    ".scroll{overflow-x:auto;max-width:100%}table{border-collapse:collapse;font-size:.85rem;margin:.4em 0;"
    "font-variant-numeric:tabular-nums;overflow-wrap:normal}caption{text-align:left;padding:.2em 0}"
    "th,td{padding:.2em .45em;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600;vertical-align:bottom}td:first-child,th:first-child{text-align:left}"
    "td.t,th.t,td.u{text-align:left}td.t{white-space:normal;min-width:12em}"
    "@media(max-width:500px){body{padding:10px}th,td{padding:.2em .4em;font-size:.8rem}"
    "dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5em}}"
    "@media print{details>*{display:block}}";

const char *const report_part_names[REPORT_PARTS] = { "attention", "prediction", "FFN, computing", "FFN, memory-bound",
                                                      "waiting for storage", "exposed read", "output head", "rest" };
const int report_part_colours[REPORT_PARTS] = { 0, 3, 2, 4, 1, 6, 5, 7 };

/* What a layer's time is made of: the larger of computing and memory, and what storage takes longer than that (and,
 * where predictors look ahead, than attention). Of predictors that are streamed, what is not read meanwhile. Parts add up
 * to the layer's total. */
void report_parts_of(const struct plan *p, const struct plan_layer_figures *f, double out[REPORT_PARTS])
{
    double memory = p->cost == PLAN_COST_PAPER ? 0 : f->ffn_memory_ns, busy = fmax(f->ffn_compute_ns, memory);
    memset(out, 0, REPORT_PARTS * sizeof *out);
    out[REPORT_ATTENTION] = f->attention_ns;
    out[REPORT_PREDICT] = fmax(0, fmin(f->predict_ns, f->total_ns - f->attention_ns - busy - f->exposed_ns));
    out[memory > f->ffn_compute_ns ? REPORT_MEMORY : REPORT_COMPUTE] = busy;
    out[REPORT_WAIT] = fmax(0, f->total_ns - f->attention_ns - out[REPORT_PREDICT] - busy - f->exposed_ns);
    out[REPORT_EXPOSED] = f->exposed_ns;
}

void report_table(struct page *out, const char *caption, const char *const *heads, int n)
{
    if (caption) {
        page_put(out, "<details><summary>Table: ");
        page_text(out, caption);
        page_put(out, "</summary>");
    }
    page_put(out, "<div class='scroll' tabindex='0'><table><thead><tr>");
    for (int i = 0; i < n; i++) {
        int text = heads[i][0] == '<';
        page_put(out, text ? "<th scope='col' class='t'>" : "<th scope='col'>");
        page_text(out, heads[i] + text);
        page_put(out, "</th>");
    }
    page_put(out, "</tr></thead><tbody>\n");
}

void report_table_end(struct page *out)
{
    page_put(out, "</tbody></table></div>\n");
}

void report_figure(struct page *out, const char *title)
{
    page_put(out, "<figure><h3>");
    page_text(out, title);
    page_put(out, "</h3>\n");
}

void report_figure_end(struct page *out, const char *caption)
{
    page_put(out, "<figcaption>");
    page_text(out, caption);
    page_put(out, "</figcaption></figure>\n");
}

/* --- head --- */

static void fact(struct page *out, const char *name, const char *value)
{
    page_put(out, "<dt>%s</dt><dd>", name);
    page_text(out, value);
    page_put(out, "</dd>\n");
}

static void fact_hash(struct page *out, const char *name, struct hash128 h)
{
    char text[HASH_TEXT];
    hash_text(h, text);
    page_put(out, "<dt>%s</dt><dd><code>%s</code></dd>\n", name, text);
}

static void put_device(struct page *out, const struct hw *hw)
{
    char text[600], size[32];
    int n = snprintf(text, sizeof text, "%s%s%s", hw->name, hw->soc[0] || hw->cpu_model[0] ? ": " : "",
                     hw->soc[0] ? hw->soc : hw->cpu_model);
    for (int k = 0; k < hw->n_classes && n > 0 && (size_t)n < sizeof text; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d %s", k ? ", " : "; cores ", hw->classes[k].n_cores,
                      hw->classes[k].name);
    if (hw->memory_bytes && n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, "; %s of memory", size_format(hw->memory_bytes, size,
                                                                                      sizeof size));
    fact(out, "Device", text);
}

static void put_head(struct page *out, const struct report *r)
{
    const struct plan *p = r->p;
    char text[300], a[32], b[32];
    const struct plan_limit *low = &p->limits[0], *high = &p->limits[p->n_limits - 1];
    page_put(out, "<header><p class='soft'>Plan report, Thermocline</p><h1>");
    page_textf(out, "%s on %s", p->model_name, p->device);
    page_put(out, "</h1>\n<p class='head'>");
    size_format(low->memory_bytes, a, sizeof a);
    size_format(high->memory_bytes, b, sizeof b);
    if (p->n_limits == 1)
        page_textf(out, "%.4g tokens/s predicted within %s.", high->batches[0].predicted.tokens_per_s, b);
    else
        page_textf(out, "%.4g tokens/s predicted within %s, %.4g within %s.", low->batches[0].predicted.tokens_per_s,
                   a, high->batches[0].predicted.tokens_per_s, b);
    page_put(out, "</p>\n<dl>");
    snprintf(text, sizeof text, "%s: %d layers of %d%s%d neurons, width %d", p->model_name, p->n_layers,
             p->n_blocks > 1 ? p->n_blocks : p->n_ff, p->n_blocks > 1 ? " x " : " ", p->n_blocks > 1 ? p->n_ff : 0,
             p->d_model);
    if (p->n_blocks == 1)
        snprintf(text, sizeof text, "%s: %d layers of %d neurons, width %d", p->model_name, p->n_layers, p->n_ff,
                 p->d_model);
    fact(out, "Model", text);
    put_device(out, r->hw);
    snprintf(text, sizeof text, "%s layout, %u neurons a cluster", layout_form_name(p->layout.form),
             p->layout.cluster_neurons);
    fact(out, "Layout", text);
    snprintf(text, sizeof text, "%s, %s figures of the device", plan_cost_name(p->cost), plan_stat_name(p->stat));
    fact(out, "Cost model", text);
    snprintf(text, sizeof text, "%s, %s", p->tool, p->solver);
    fact(out, "Made by", text);
    page_put(out, "</dl>\n<details><summary>Identities</summary><dl>");
    fact_hash(out, "Model", p->model_hash);
    fact_hash(out, "Trace", p->trace_hash);
    fact_hash(out, "Neuron order", p->order_hash);
    fact_hash(out, "Layout", p->layout_hash);
    fact_hash(out, "Hardware", p->hardware_hash);
    page_put(out, "</dl></details>\n");
    if (p->n_notes) {
        page_put(out, "<details open><summary>Notes of the planner</summary><ul>");
        for (int i = 0; i < p->n_notes; i++) {
            page_put(out, "<li>");
            page_text(out, p->notes[i]);
            page_put(out, "</li>");
        }
        page_put(out, "</ul></details>\n");
    }
    page_put(out, "<nav aria-label='Sections'><a href='#all'>All limits</a>%s", r->measured ?
             " <a href='#measured'>Measured over predicted</a>" : "");
    for (int i = 0; i < p->n_limits; i++)
        page_put(out, " <a href='#limit%d'>%s</a>", i, size_format(p->limits[i].memory_bytes, a, sizeof a));
    page_put(out, "</nav></header>\n<main>\n");
}

/* --- all limits --- */

static void speed_table(struct page *out, const struct report *r)
{
    static const char *const heads[] = { "Memory", "Batch", "Mode", "Threads", "Depth", "Context", "Predicted tokens/s",
                                         "At most", "Measured", "Runs" };
    char size[32];
    report_table(out, "speed", heads, r->measured ? 10 : 8);
    for (int i = 0; i < r->p->n_limits; i++)
        for (int b = 0; b < r->p->limits[i].n_batches; b++) {
            const struct plan_limit *l = &r->p->limits[i];
            double s = l->batches[b].predicted.tokens_per_s;
            page_put(out, "<tr><td>%s</td><td>%d</td><td>%s</td><td>%d</td><td>%d</td><td>%d</td><td>%.4g</td>"
                          "<td>%.4g</td>", size_format(l->memory_bytes, size, sizeof size), l->batches[b].batch,
                     plan_mode_name(l->mode), l->threads, l->queue_depth, l->context, s, s / (1 - fmin(l->gap, 0.999)));
            const struct calibrate_limit *m = r->measured ? &r->measured->limits[i] : NULL;
            if (m && b == 0 && m->runs)
                page_put(out, "<td>%.4g</td><td>%d</td>", 1e9 / m->measured[CALIBRATE_STEP].p50, m->runs);
            else if (m)
                page_put(out, "<td></td><td></td>");
            page_put(out, "</tr>\n");
        }
    report_table_end(out);
    page_put(out, "</details>");
}

static void speed_figure(struct page *out, const struct report *r)
{
    double x[PLAN_MAX_LIMITS], y[PLAN_MAX_BATCHES][PLAN_MAX_LIMITS], mx[PLAN_MAX_LIMITS], my[PLAN_MAX_LIMITS];
    struct plot_series s[2 * PLOT_COLOURS];
    char names[PLAN_MAX_BATCHES][32];
    const struct plan *p = r->p;
    int n = 0, measured = 0, batches = p->limits[0].n_batches < 4 ? p->limits[0].n_batches : 4;
    for (int i = 0; i < p->n_limits; i++) {
        x[i] = (double)p->limits[i].memory_bytes / MIB;
        for (int b = 0; b < batches; b++)
            y[b][i] = b < p->limits[i].n_batches ? p->limits[i].batches[b].predicted.tokens_per_s : NAN;
        if (r->measured && r->measured->limits[i].runs) {
            mx[measured] = x[i];
            my[measured++] = 1e9 / r->measured->limits[i].measured[CALIBRATE_STEP].p50;
        }
    }
    for (int b = 0; b < batches; b++) {
        snprintf(names[b], sizeof names[b], "predicted, batch %d", p->limits[0].batches[b].batch);
        s[n++] = (struct plot_series){ names[b], x, y[b], p->n_limits, PLOT_LINE, b };
        s[n++] = (struct plot_series){ NULL, x, y[b], p->n_limits, PLOT_POINTS, b };
    }
    if (measured)
        s[n++] = (struct plot_series){ "measured, batch 1", mx, my, measured, PLOT_POINTS, 4 };
    const struct plot g = { .title = "Speed over memory", .about = "Predicted tokens per second at each memory limit "
                            "of the plan; the table below has the numbers.",
                            .x = { .label = "memory limit, MiB", .log = p->n_limits > 1 && x[p->n_limits - 1] > 8 * x[0],
                                   .tight = 1 }, .y = { .label = "tokens/s" }, .series = s, .n = n };
    report_figure(out, "Speed over memory");
    plot_draw(out, &g);
    report_figure_end(out, measured ? "Points lie at the plan's limits; measured is the median of the runs." :
                      "Points lie at the plan's limits.");
}

static void memory_figure(struct page *out, const struct report *r)
{
    /* Items of the account in the order that they are drawn, and what is left of the limit. */
    static const int colours[BUDGET_ITEMS + 1] = { 7, 7, 7, 0, 3, 5, 4, 6, 7, 1, 2, 7 };
    const struct plan *p = r->p;
    const char *rows[PLAN_MAX_LIMITS], *totals[PLAN_MAX_LIMITS], *parts[BUDGET_ITEMS + 1];
    char names[PLAN_MAX_LIMITS][32], sums[PLAN_MAX_LIMITS][32];
    double *v = calloc((size_t)p->n_limits * BUDGET_ITEMS, sizeof *v);
    int order[BUDGET_ITEMS], kinds = 0;
    /* What is small and has no colour of its own is one part. */
    for (int k = 0; k < BUDGET_ITEMS; k++)
        if (colours[k] != 7) {
            order[k] = kinds;
            parts[kinds++] = budget_item_name((enum budget_item)k);
        }
    for (int k = 0; k < BUDGET_ITEMS; k++)
        if (colours[k] == 7)
            order[k] = kinds;
    parts[kinds++] = "process, stacks, tables";
    int shades[BUDGET_ITEMS + 1];
    for (int k = 0; k < BUDGET_ITEMS; k++)
        shades[order[k]] = colours[k];
    for (int i = 0; i < p->n_limits; i++) {
        const struct budget *b = &r->limits[i].explain.account;
        rows[i] = size_format(p->limits[i].memory_bytes, names[i], sizeof names[i]);
        totals[i] = size_format(b->total, sums[i], sizeof sums[i]);
        for (int k = 0; v && k < BUDGET_ITEMS; k++)
            v[i * kinds + order[k]] += (double)b->item[k];
    }
    const struct plot_bars bars = { .title = "Memory account", .about = "One bar per memory limit: what the bytes are "
                                    "for; the table below has the numbers.", .n_rows = p->n_limits, .n_parts = kinds,
                                    .rows = rows, .totals = totals, .parts = parts, .colours = shades, .values = v };
    report_figure(out, "Where the bytes go");
    if (v)
        plot_draw_bars(out, &bars);
    report_figure_end(out, "Left the limit, right what the account takes of it. Every byte of the runtime is counted; "
                      "hot is resident, cold the cache.");
    free(v);
}

static void memory_table(struct page *out, const struct report *r)
{
    const struct plan *p = r->p;
    const char *heads[PLAN_MAX_LIMITS + 1] = { "Bytes" };
    char names[PLAN_MAX_LIMITS][32];
    for (int i = 0; i < p->n_limits; i++)
        heads[i + 1] = size_format(p->limits[i].memory_bytes, names[i], sizeof names[i]);
    report_table(out, "memory account", heads, p->n_limits + 1);
    for (int k = 0; k < BUDGET_ITEMS + 2; k++) {
        page_put(out, "<tr><td>%s</td>", k < BUDGET_ITEMS ? budget_item_name((enum budget_item)k) :
                 k == BUDGET_ITEMS ? "total" : "floor");
        for (int i = 0; i < p->n_limits; i++) {
            const struct budget *b = &r->limits[i].explain.account;
            page_put(out, "<td>%llu</td>", (unsigned long long)(k < BUDGET_ITEMS ? b->item[k] :
                                                                k == BUDGET_ITEMS ? b->total : b->floor));
        }
        page_put(out, "</tr>\n");
    }
    report_table_end(out);
    page_put(out, "</details>\n");
}

static void telemetry_section(struct page *out, const struct report *r)
{
    static const char *const heads[] = { "Term", "Median", "p10", "p90", "Runs" };
    const struct calibrate *c = r->measured;
    page_put(out, "<section id='measured'><h2>Measured over predicted</h2><p>");
    page_textf(out, "%d run%s of this plan compared, %d skipped. Ratios run by run; attention is predicted for the "
                    "positions that a run had. 1 is a prediction that holds.", c->runs, c->runs == 1 ? "" : "s",
               c->skipped);
    page_put(out, "</p>");
    report_table(out, NULL, heads, 5);
    for (int t = 0; t < CALIBRATE_TERMS; t++)
        if (c->ratio_n[t])
            page_put(out, "<tr><td>%s</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%d</td></tr>\n",
                     calibrate_term_labels[t], c->ratio[t].p50, c->ratio[t].p10, c->ratio[t].p90, c->ratio_n[t]);
    report_table_end(out);
    for (int i = 0; i < c->why.n; i++) {
        page_put(out, "<p class='soft'>Skipped: ");
        page_text(out, c->why.text[i]);
        page_put(out, "</p>");
    }
    page_put(out, "</section>\n");
}

void report_page(struct page *out, const struct report *r)
{
    page_put(out, "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n<meta name='viewport' "
                  "content='width=device-width, initial-scale=1'>\n<title>");
    page_textf(out, "%s on %s", r->p->model_name, r->p->device);
    page_put(out, "</title>\n<style>%s%s</style>\n</head>\n<body>\n", plot_style(), style);
    put_head(out, r);
    page_put(out, "<section id='all'><h2>All limits</h2><div class='figs'>");
    speed_figure(out, r);
    memory_figure(out, r);
    page_put(out, "</div>\n");
    speed_table(out, r);
    memory_table(out, r);
    page_put(out, "</section>\n");
    if (r->measured)
        telemetry_section(out, r);
    for (int i = 0; i < r->p->n_limits; i++)
        report_limit_section(out, r, i);
    page_put(out, "</main>\n<footer><p class='soft'>What each term means and where its numbers come from: "
                  "docs/cost-model.md.</p></footer>\n</body>\n</html>\n");
}
