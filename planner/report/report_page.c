/* The frame of the page: style, head, and where the plan is from. Widths are relative and figures flow into
 * as many columns as fit, so one page serves a phone and a desk; tables that are wider than the screen scroll by
 * themselves. */
#include "planner/report/report.h"

#include "common/base/print.h"
#include "common/cli/opt.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    /* A table that is wider than the screen scrolls below its first column, with a shade where there is more of it. */
    ".scroll{overflow-x:auto;max-width:100%;background:linear-gradient(to left,var(--bg) 40%,transparent) right/30px 100% no-repeat local,"
    "linear-gradient(to left,var(--k7),transparent) right/9px 100% no-repeat scroll}"
    ".scroll td:first-child,.scroll th:first-child{position:sticky;left:0;background:var(--bg)}"
    "table{border-collapse:collapse;font-size:.85rem;margin:.4em 0;"
    "font-variant-numeric:tabular-nums;overflow-wrap:normal}caption{text-align:left;padding:.2em 0}"
    "th,td{padding:.2em .45em;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600;vertical-align:bottom}td:first-child,th:first-child{text-align:left}"
    "td.t,th.t,td.u{text-align:left}td.t,td.w{white-space:normal}td.t{min-width:12em}"
    "@media(max-width:640px){body{padding:10px}dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5em}"
    ".stack table,.stack tbody,.stack tr{display:block}.stack thead{position:absolute;left:-9999px}"
    ".stack tr{border-bottom:1px solid var(--soft);padding:.4em 0}.stack td,.stack td:first-child{display:flex;gap:1em;"
    "justify-content:space-between;border:0;white-space:normal;padding:.1em 0;position:static;text-align:right}"
    ".stack td::before{content:attr(data-l);color:var(--soft);text-align:left;flex:none;max-width:50%}}"
    "@media print{details>*{display:block}}";

const char *const report_part_names[REPORT_PARTS] = { "attention", "prediction", "FFN, computing", "FFN, memory-bound",
                                                      "waiting for storage", "exposed read", "output head", "rest" };
const int report_part_colours[REPORT_PARTS] = { 0, 3, 2, 4, 1, 6, 5, 7 };

/* What a layer's time is made of: the larger of computing and memory, and what storage takes longer than that (and,
 * where predictors look ahead, than attention). Of predictors that are streamed, what is not read meanwhile. Parts add up
 * to the layer's total. */
void report_parts_of(const struct plan *p, const struct plan_layer_figures *f, double out[REPORT_PARTS])
{
    double memory = p->cost == PLAN_COST_PAPER ? 0 : f->ffn_memory_ns, busy = fmax(fmax(f->ffn_compute_ns, memory), f->ffn_engine_ns);
    memset(out, 0, REPORT_PARTS * sizeof *out);
    out[REPORT_ATTENTION] = f->attention_ns;
    out[REPORT_PREDICT] = fmax(0, fmin(f->predict_ns, f->total_ns - f->attention_ns - busy - f->exposed_ns));
    out[memory > f->ffn_compute_ns ? REPORT_MEMORY : REPORT_COMPUTE] = busy;
    out[REPORT_WAIT] = fmax(0, f->total_ns - f->attention_ns - out[REPORT_PREDICT] - busy - f->exposed_ns);
    out[REPORT_EXPOSED] = f->exposed_ns;
}

static void begin_table(struct page *out, const char *caption, const char *const *heads, int n, const char *class)
{
    if (caption) {
        page_put(out, "<details><summary>Table: ");
        page_text(out, caption);
        page_put(out, "</summary>");
    }
    page_put(out, "<div class='%s' tabindex='0'><table><thead><tr>", class);
    for (int i = 0; i < n; i++) {
        int text = heads[i][0] == '<';
        page_put(out, text ? "<th scope='col' class='t'>" : "<th scope='col'>");
        page_text(out, heads[i] + text);
        page_put(out, "</th>");
    }
    page_put(out, "</tr></thead><tbody>\n");
}

void report_table(struct page *out, const char *caption, const char *const *heads, int n)
{
    begin_table(out, caption, heads, n, "scroll");
}

void report_stack(struct page *out, const char *caption, const char *const *heads, int n)
{
    begin_table(out, caption, heads, n, "scroll stack");
}

void report_cell(struct page *out, const char *head, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    page_put(out, head[0] == '<' ? "<td class='u' data-l='" : "<td data-l='");
    page_text(out, head + (head[0] == '<'));
    page_put(out, "'>");
    page_text(out, text);
    page_put(out, "</td>");
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
    char a[32], b[32];
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
    page_put(out, "</p>\n");
    page_put(out, "<nav aria-label='Sections'><a href='#all'>At a glance</a> <a href='#facts'>What was planned</a>%s", r->measured ?
             " <a href='#measured'>Measured over predicted</a>" : "");
    for (int i = 0; i < p->n_limits; i++)
        page_put(out, " <a href='#limit%d'>%s</a>", i, size_format(p->limits[i].memory_bytes, a, sizeof a));
    page_put(out, "</nav></header>\n<main>\n");
}

/* --- where it is from --- */

static void facts(struct page *out, const struct report *r)
{
    const struct plan *p = r->p;
    char text[300];
    page_put(out, "<section id='facts'><h2>What was planned</h2>\n<dl>");
    if (p->n_blocks == 1)
        snprintf(text, sizeof text, "%s: %d layers of %s%d neurons, width %d", p->model_name, p->n_layers,
                 p->widths[0] ? "up to " : "", p->n_ff, p->d_model);
    else
        snprintf(text, sizeof text, "%s: %d layers of %d experts of %d neurons, width %d", p->model_name, p->n_layers, p->n_blocks,
                 p->n_ff, p->d_model);
    fact(out, "Model", text);
    put_device(out, r->hw);
    snprintf(text, sizeof text, "%s layout, %u neurons a cluster%s", layout_form_name(p->layout.form),
             p->layout.cluster_neurons, p->sort == LAYOUT_TOGETHER ? ", ordered by firing together" : "");
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
    page_put(out, "</section>\n");
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
    report_overview(out, r);
    facts(out, r);
    if (r->measured)
        telemetry_section(out, r);
    for (int i = 0; i < r->p->n_limits; i++)
        report_limit_section(out, r, i);
    page_put(out, "</main>\n<footer><p class='soft'>What each term means and where its numbers come from: "
                  "docs/cost-model.md.</p></footer>\n</body>\n</html>\n");
}
