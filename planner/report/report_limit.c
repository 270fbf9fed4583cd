/* One memory limit: what it comes to, what binds, what more would buy, what ran, the equations. */
#include "planner/report/report.h"

#include "common/cli/opt.h"
#include "planner/check/check.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- what binds, what more would buy --- */

const char *const report_bound_names[EXPLAIN_BOUNDS] = { "computing", "memory bandwidth", "storage" };

int report_bound(const struct plan *p, const struct plan_limit *l, int *layers)
{
    int count[EXPLAIN_BOUNDS], most = EXPLAIN_COMPUTE;
    explain_count(p, l, count);
    for (int i = 0; i < EXPLAIN_BOUNDS; i++)
        if (count[i] > count[most])
            most = i;
    *layers = count[most];
    return most;
}

void report_change(struct page *out, double now, double then)
{
    double percent = 100 * (then / now - 1);
    page_put(out, "%+.1f %%", fabs(percent) < 0.05 ? 0 : percent);
}

/* A gain in as many letters as fit beside a bar. */
static void short_name(const struct gain *g, const struct hw *hw, char out[32])
{
    static const char *const names[] = { [GAIN_MIB] = "+1 MiB", [GAIN_GIB] = "+1 GiB", [GAIN_STORAGE] = "storage \xc3\x97 2" };
    if (g->of == GAIN_CORE)
        snprintf(out, 32, "+1 core %.7s", hw->classes[g->core_class].name);
    else
        snprintf(out, 32, "%s", names[g->of]);
}

static void gains_figure(struct page *out, const struct report *r, int index)
{
    const struct gains *g = &r->limits[index].gains;
    static const char *const parts[] = { "as it is", "gained" };
    static const int colours[] = { 0, 2 };
    char names[GAINS_MAX + 1][32] = { "as it is" }, sums[GAINS_MAX + 1][32];
    const char *rows[GAINS_MAX + 1], *totals[GAINS_MAX + 1];
    double now = r->p->limits[index].batches[0].predicted.tokens_per_s, v[2 * (GAINS_MAX + 1)];
    for (int i = 0; i <= g->n; i++) {
        double then = i ? g->gain[i - 1].tokens_per_s : now;
        if (i)
            short_name(&g->gain[i - 1], r->hw, names[i]);
        snprintf(sums[i], sizeof sums[i], "%.4g", then);
        rows[i] = names[i], totals[i] = sums[i];
        v[2 * i] = fmin(now, then), v[2 * i + 1] = fmax(0, then - now);
    }
    const struct plot_bars b = { .title = "What more would buy", .about = "Bars of tokens per second, as it is and with more of one "
                                 "thing; the table beside it has the numbers.", .n_rows = g->n + 1, .n_parts = 2, .rows = rows,
                                 .totals = totals, .parts = parts, .colours = colours, .values = v };
    report_figure(out, "What more would buy, tokens/s");
    plot_draw_bars(out, &b);
    report_figure_end(out, "Each bar is a plan of its own, solved for with that one thing changed and the same layout, context and chunk.");
}

static void gains_table(struct page *out, const struct report *r, int index)
{
    static const char *const heads[] = { "With", "tokens/s", "Change" };
    const struct gains *g = &r->limits[index].gains;
    const struct plan_limit *l = &r->p->limits[index];
    double now = l->batches[0].predicted.tokens_per_s;
    report_table(out, NULL, heads, 3);
    page_put(out, "<tr><td>what there is</td><td>%.4g</td><td></td></tr>\n", now);
    for (int i = 0; i < g->n; i++) {
        page_put(out, "<tr><td class='w'>");
        page_text(out, g->gain[i].what);
        page_put(out, "</td><td>%.4g</td><td>", g->gain[i].tokens_per_s);
        report_change(out, now, g->gain[i].tokens_per_s);
        page_put(out, "</td></tr>\n");
    }
    report_table_end(out);
    if (!gains_same(g, l))
        page_textf(out, "Solved again with nothing changed it is %.4g tokens/s: another build made this plan.", g->again);
}

static void binds(struct page *out, const struct report *r, int index)
{
    int count[EXPLAIN_BOUNDS];
    explain_count(r->p, &r->p->limits[index], count);
    page_put(out, "<h3>What binds</h3><p>%s binds in %d layers, %s in %d, %s in %d.</p>\n", "Computing", count[EXPLAIN_COMPUTE],
             report_bound_names[EXPLAIN_MEMORY], count[EXPLAIN_MEMORY], report_bound_names[EXPLAIN_IO], count[EXPLAIN_IO]);
    if (r->limits[index].gains.n == 0)
        return;
    page_put(out, "<div class='figs'>");
    gains_figure(out, r, index);
    page_put(out, "<div>");
    gains_table(out, r, index);
    page_put(out, "</div></div>\n");
}

/* --- what ran, and the equations --- */

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

static void equations(struct page *out, const char *title, const struct explain_line *lines, int n)
{
    static const char *const heads[] = { "", "<Equation", "Value", "<Unit", "<With" };
    char bases[EXPLAIN_BASES_TEXT];
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
        explain_bases_text(&lines[i], bases, sizeof bases);
        if (bases[0])
            page_textf(out, " [%s]", bases);
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

/* What the device's accelerator brings, by batch size. */
static void engine_table(struct page *out, const struct report *r, int index)
{
    const struct explain *x = &r->limits[index].explain;
    const char *const heads[] = { "batch", "neurons of each FFN on it", "tokens/s", "without it", "it adds", "best height",
                                  "tokens/s there" };
    const char *const prompts[] = { "tokens of a prompt", "neurons of each FFN on it", "first token ms", "without it", "it adds",
                                    "best height", "ms there" };
    if (!x->engine)
        return;
    page_put(out, "<h3>Accelerator ");
    page_text(out, x->engine);
    page_put(out, "</h3>\n<p>It computes the hottest neurons of each FFN beside the processor, of those in memory, and other products "
                  "where it says so. Residencies, cores and queue are the plan's in each column; heights are sixteenths of an FFN.</p>\n");
    report_table(out, NULL, heads, 7);
    for (int i = 0; i < x->n_heights; i++) {
        const struct explain_height *h = &x->height[i];
        page_put(out, "<tr><td>%d</td><td>%u of %d%s</td><td>%.4g</td><td>%.4g</td><td>%+.1f %%</td><td>%u</td><td>%.4g</td></tr>\n",
                 h->batch, h->neurons, r->p->n_ff, explain_work(h->work), h->tokens_per_s, h->without,
                 100 * (h->tokens_per_s / h->without - 1), h->best,
                 h->at_best);
    }
    report_table_end(out);
    if (!x->n_prompt_heights)
        return;
    report_table(out, NULL, prompts, 7);
    for (int i = 0; i < x->n_prompt_heights; i++) {
        const struct explain_prompt_height *h = &x->prompt[i];
        page_put(out, "<tr><td>%d</td><td>%u of %d%s%s</td><td>%.4g</td><td>%.4g</td><td>%+.1f %%</td><td>%u</td><td>%.4g</td></tr>\n",
                 h->tokens, h->neurons, r->p->n_ff, explain_rest(h->rest), explain_work(h->work), h->first_ns / 1e6, h->without_ns / 1e6,
                 100 * (h->first_ns / h->without_ns - 1),
                 h->best, h->best_ns / 1e6);
    }
    report_table_end(out);
}

/* What guesses of further tokens bring. */
static void guesses_tables(struct page *out, const struct plan_guesses *g)
{
    const char *const passes[] = { "tokens of a pass", "ms", "MiB read", "of one token's time" };
    const char *const shares[] = { "share that comes true", "guesses of a pass", "times as fast" };
    if (!g->n)
        return;
    page_put(out, "<h3>Guesses</h3>\n<p>Passes over tokens of one sequence that follow each other, as guesses of further tokens are held "
                  "against (<code>thermo-run generate --guess</code>), and how many are the fastest ");
    if (g->source)
        page_put(out, "by %s, which takes %.4g ms for each.</p>\n", plan_source_name(g->source), g->guess_ns / 1e6);
    else
        page_put(out, "from a source that takes no time.</p>\n");
    report_table(out, NULL, passes, 4);
    for (int i = 0; i < g->n; i++)
        page_put(out, "<tr><td>%d</td><td>%.4g</td><td>%.4g</td><td>%.3f</td></tr>\n", g->tokens[i], g->pass_ns[i] / 1e6,
                 g->read_bytes[i] / 1048576, g->pass_ns[i] / g->pass_ns[0]);
    report_table_end(out);
    report_table(out, NULL, shares, 3);
    for (int i = 0; i < PLAN_ACCEPTANCES; i++)
        page_put(out, "<tr><td>%g</td><td>%d</td><td>%.3f</td></tr>\n", g->acceptance[i], g->best[i], g->speedup[i]);
    report_table_end(out);
}

void report_limit_section(struct page *out, const struct report *r, int index)
{
    const struct plan *p = r->p;
    const struct plan_limit *l = &p->limits[index];
    const struct report_limit *o = &r->limits[index];
    char size[32], account[32], own[EXPLAIN_OWN];
    page_put(out, "<section id='limit%d'><h2>Within %s</h2><p>", index, size_format(l->memory_bytes, size,
                                                                                       sizeof size));
    page_textf(out, "%.4g tokens/s at batch 1: %s mode, %d thread%s (", l->batches[0].predicted.tokens_per_s,
               plan_mode_name(l->mode), l->threads, l->threads == 1 ? "" : "s");
    for (int k = 0; k < l->n_classes; k++)
        page_textf(out, "%s%d %s", k ? ", " : "", l->classes[k].n, l->classes[k].name);
    page_textf(out, "), %s at depth %d, context %d, KV cache in %s, %s cache. The account takes %s; proven "
               "within %.2f %% of the best %s%s.",
               plan_io_name(l->io), l->queue_depth, l->context, kv_type_name(l->kv_type), cache_policy_name(l->policy),
               size_format(l->account_bytes, account, sizeof account), 100 * l->gap, explain_gap_of(l),
               l->optimal ? "" : " (the solver stopped at its limit)");
    explain_own(l, own, sizeof own);
    page_textf(out, "%s%s%s", own[0] ? " With this plan " : "", own, own[0] ? "." : "");
    page_put(out, "</p>\n");
    reading(out, r, index);
    binds(out, r, index);
    engine_table(out, r, index);
    guesses_tables(out, &l->guesses);
    page_put(out, "<div class='figs'>");
    report_time_figures(out, r, index);
    report_neuron_figures(out, r, index);
    page_put(out, "</div>\n");
    report_time_tables(out, r, index);
    report_neuron_tables(out, r, index);
    if (r->measured && r->measured->limits[index].runs)
        measured_table(out, &r->measured->limits[index]);
    equations(out, "measured cost model", o->explain.measured, o->explain.n_measured);
    equations(out, p->cost == PLAN_COST_PAPER ? "the paper's equations, whole model" : "the paper's equations, whole model: the same "
              "configuration by another cost model, not what this plan states", o->explain.paper, o->explain.n_paper);
    page_put(out, "</section>\n");
}
