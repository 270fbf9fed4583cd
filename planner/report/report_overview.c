/* What compares limits: the summary that the page begins with, speed and memory. */
#include "planner/report/report.h"

#include "common/cli/opt.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB 1048576.0

/* --- summary --- */

/* How fast, what binds, what would help: one line for each limit. */
static void summary(struct page *out, const struct report *r)
{
    static const char *const heads[] = { "Memory", "Tokens/s", "A token takes", "Waiting for storage",
                                         "<What binds", "<What would help most" };
    int n = r->no_gains ? 5 : 6;
    char size[32];
    report_stack(out, NULL, heads, n);
    for (int i = 0; i < r->p->n_limits; i++) {
        const struct plan_limit *l = &r->p->limits[i];
        const struct plan_figures *f = &l->batches[0].predicted;
        const struct gain *best = gains_best(&r->limits[i].gains, l);
        double part[REPORT_PARTS];
        int layers, bound = report_bound(r->p, l, &layers);
        report_step_parts(r->p, l, part);
        page_put(out, "<tr>");
        report_cell(out, heads[0], "%s", size_format(l->memory_bytes, size, sizeof size));
        report_cell(out, heads[1], "%.4g", f->tokens_per_s);
        report_cell(out, heads[2], "%.4g ms", f->step_ns / 1e6);
        report_cell(out, heads[3], "%.0f %%", 100 * (part[REPORT_WAIT] + part[REPORT_EXPOSED]) / f->step_ns);
        report_cell(out, heads[4], "%s, in %d of %d layers", report_bound_names[bound], layers, r->p->n_layers);
        if (n > 5 && best) {
            report_cell(out, heads[5], "%s: %.4g tokens/s (%+.1f %%)", best->what, best->tokens_per_s,
                        100 * (best->tokens_per_s / f->tokens_per_s - 1));
        } else if (n > 5) {
            report_cell(out, heads[5], "nothing of what was tried");
        }
        page_put(out, "</tr>\n");
    }
    report_table_end(out);
}

/* --- speed --- */

static void speed_table(struct page *out, const struct report *r)
{
    static const char *const heads[] = { "Memory", "Batch", "Mode", "Threads", "Depth", "Context", "Predicted tokens/s",
                                         "At most under its layout (proven)", "Measured", "Runs" };
    char size[32];
    report_stack(out, "speed", heads, r->measured ? 10 : 8);
    for (int i = 0; i < r->p->n_limits; i++)
        for (int b = 0; b < r->p->limits[i].n_batches; b++) {
            const struct plan_limit *l = &r->p->limits[i];
            double s = l->batches[b].predicted.tokens_per_s;
            page_put(out, "<tr>");
            report_cell(out, heads[0], "%s", size_format(l->memory_bytes, size, sizeof size));
            report_cell(out, heads[1], "%d", l->batches[b].batch);
            report_cell(out, heads[2], "%s", plan_mode_name(l->mode));
            report_cell(out, heads[3], "%d", l->threads);
            report_cell(out, heads[4], "%d", l->queue_depth);
            report_cell(out, heads[5], "%d", l->context);
            report_cell(out, heads[6], "%.4g", s);
            report_cell(out, heads[7], "%.4g", s / (1 - fmin(l->gap, 0.999)));
            const struct calibrate_limit *m = r->measured ? &r->measured->limits[i] : NULL;
            if (m && b == 0 && m->runs) {
                report_cell(out, heads[8], "%.4g", 1e9 / m->measured[CALIBRATE_STEP].p50);
                report_cell(out, heads[9], "%d", m->runs);
            } else if (m) {
                report_cell(out, heads[8], "%s", "");
                report_cell(out, heads[9], "%s", "");
            }
            page_put(out, "</tr>\n");
        }
    report_table_end(out);
    page_put(out, "</details>");
}

/* The longest prompt that each limit has a prediction of. */
static void prompt_table(struct page *out, const struct report *r)
{
    static const char *const heads[] = { "Memory", "Prompt", "Chunk", "Tokens/s", "First token ms", "Attention ms", "FFN ms",
                                         "Waiting ms", "Head ms", "Read" };
    char size[32];
    int any = 0;
    for (int i = 0; i < r->p->n_limits; i++)
        any |= r->p->limits[i].prompt.n;
    if (!any)
        return;
    report_stack(out, "prompts", heads, 10);
    for (int i = 0; i < r->p->n_limits; i++) {
        const struct plan_limit *l = &r->p->limits[i];
        const struct plan_prompt *q = &l->prompt;
        int k = q->n - 1;
        if (!q->n)
            continue;
        page_put(out, "<tr>");
        report_cell(out, heads[0], "%s", size_format(l->memory_bytes, size, sizeof size));
        report_cell(out, heads[1], "%d tokens", q->tokens[k]);
        report_cell(out, heads[2], "%d", l->prefill_chunk);
        report_cell(out, heads[3], "%.4g", plan_prompt_tokens_per_s(q));
        report_cell(out, heads[4], "%.4g", plan_prompt_ns(q, q->tokens[k]) / 1e6);
        report_cell(out, heads[5], "%.4g", q->attention_ns[k] / 1e6);
        report_cell(out, heads[6], "%.4g", q->ffn_ns[k] / 1e6);
        report_cell(out, heads[7], "%.4g", q->wait_ns[k] / 1e6);
        report_cell(out, heads[8], "%.4g", q->head_ns / 1e6);
        report_cell(out, heads[9], "%s", size_format((uint64_t)q->read_bytes[k], size, sizeof size));
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
    int gib = (double)p->limits[p->n_limits - 1].memory_bytes >= 4096 * MIB;
    for (int i = 0; i < p->n_limits; i++) {
        x[i] = (double)p->limits[i].memory_bytes / (gib ? 1024 * MIB : MIB);
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
                            .x = { .label = gib ? "memory limit, GiB" : "memory limit, MiB", .log = x[p->n_limits - 1] > 8 * x[0],
                                   .tight = 1 }, .y = { .label = "tokens/s" }, .series = s, .n = n };
    report_figure(out, "Speed over memory");
    plot_draw(out, &g);
    report_figure_end(out, measured ? "Points lie at the plan's limits; measured is the median of the runs." :
                      "Points lie at the plan's limits.");
}

/* --- memory --- */

/* Items of the account as people read them, and their colours; those of the last colour are drawn as one. */
#define REST_COLOUR 7
static const struct {
    const char *name;
    int colour;
} items[BUDGET_ITEMS] = {
    [BUDGET_PROCESS] = { "process", 7 }, [BUDGET_STACKS] = { "thread stacks", 7 }, [BUDGET_META] = { "tokenizer, tables", 7 },
    [BUDGET_ENGINE] = { "accelerator", 7 }, [BUDGET_ROOM] = { "chat or serve", 7 },
    [BUDGET_DENSE] = { "attention, embeddings, head", 0 }, [BUDGET_PREDICTOR] = { "predictors", 3 }, [BUDGET_KV] = { "KV cache", 5 },
    [BUDGET_SCRATCH] = { "activations", 4 }, [BUDGET_STAGING] = { "read buffers", 6 }, [BUDGET_CHECKS] = { "checksums", 7 },
    [BUDGET_INDEX] = { "index of neurons", 7 }, [BUDGET_HOT] = { "hot neurons", 2 }, [BUDGET_COLD] = { "cold cache", 1 },
};

static void memory_figure(struct page *out, const struct report *r)
{
    const struct plan *p = r->p;
    const char *rows[PLAN_MAX_LIMITS], *totals[PLAN_MAX_LIMITS], *parts[BUDGET_ITEMS];
    char names[PLAN_MAX_LIMITS][32], sums[PLAN_MAX_LIMITS][32];
    double *v = calloc((size_t)p->n_limits * BUDGET_ITEMS, sizeof *v);
    int part[BUDGET_ITEMS], colours[BUDGET_ITEMS], n = 0;
    for (int k = 0; k < BUDGET_ITEMS; k++)
        if (items[k].colour != REST_COLOUR) {
            part[k] = n;
            colours[n] = items[k].colour;
            parts[n++] = items[k].name;
        }
    colours[n] = REST_COLOUR;
    parts[n] = "process, stacks, tables";
    for (int i = 0; i < p->n_limits; i++) {
        const struct budget *b = &r->limits[i].explain.account;
        rows[i] = size_format(p->limits[i].memory_bytes, names[i], sizeof names[i]);
        totals[i] = size_format(b->total, sums[i], sizeof sums[i]);
        for (int k = 0; v && k < BUDGET_ITEMS; k++)
            v[i * (n + 1) + (items[k].colour == REST_COLOUR ? n : part[k])] += (double)b->item[k];
    }
    const struct plot_bars bars = { .title = "Memory account", .about = "One bar per memory limit: what the bytes are "
                                    "for; the table below has the numbers.", .n_rows = p->n_limits, .n_parts = n + 1,
                                    .rows = rows, .totals = totals, .parts = parts, .colours = colours, .values = v };
    report_figure(out, "Where the bytes go");
    if (v)
        plot_draw_bars(out, &bars);
    else
        out->failed = 1;
    report_figure_end(out, "Left the limit, right what the account takes of it. Every byte of the runtime is counted.");
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
        if ((k == BUDGET_ENGINE && !p->engine[0]) || (k == BUDGET_ROOM && !p->limits[0].purpose))
            continue;
        page_put(out, "<tr><td>%s</td>", k < BUDGET_ITEMS ? items[k].name : k == BUDGET_ITEMS ? "total" : "least that runs (floor)");
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

void report_overview(struct page *out, const struct report *r)
{
    page_put(out, "<section id='all'><h2>At a glance</h2>\n");
    summary(out, r);
    page_put(out, "<div class='figs'>");
    if (r->p->n_limits > 1)
        speed_figure(out, r);
    memory_figure(out, r);
    page_put(out, "</div>\n");
    if (r->p->n_limits == 1)
        page_put(out, "<p>This plan has one memory limit. <code>thermo-plan sweep</code> draws the speed over a range of them.</p>\n");
    speed_table(out, r);
    prompt_table(out, r);
    memory_table(out, r);
    page_put(out, "</section>\n");
}
