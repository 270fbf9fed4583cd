/* Neurons of one memory limit: how hot they are, and what a cold cache misses. */
#include "planner/report/report.h"

#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS  48 /* points of a hotness curve */
#define NAMED  4  /* layers with a colour and a name of their own */

/* Layers to name: first, last and some between. */
static int named(int layer, int n_layers)
{
    int k = n_layers < NAMED ? n_layers : NAMED;
    for (int i = 0; i < k; i++)
        if (layer == (k == 1 ? 0 : i * (n_layers - 1) / (k - 1)))
            return i;
    return -1;
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
            int at = (int)lround(share * share * plan_n_ff(p, l)); /* denser where the hot ones are */
            x[i] = 100.0 * at / plan_n_ff(p, l);
            y[i] = 100 * firings(r->in, l, at);
        }
        uint32_t prefix = plan_hot(p, b, l, 0, last);
        hot[0] = 100.0 * prefix / plan_n_ff(p, l);
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
            page_put(out, "<td>%.1f %%</td>", 100 * firings(r->in, l, (int)lround(shares[i] * plan_n_ff(p, l))));
        page_put(out, "<td>%u</td><td>%.1f %%</td><td>%.1f %%</td></tr>\n", hot, 100.0 * hot / plan_n_ff(p, l),
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

void report_neuron_figures(struct page *out, const struct report *r, int index)
{
    hotness(out, r, index);
    if (r->limits[index].misses.sampled)
        misses(out, r, index);
}

void report_neuron_tables(struct page *out, const struct report *r, int index)
{
    hotness_table(out, r, index);
    if (r->limits[index].misses.sampled)
        misses_table(out, r, index);
    else
        page_put(out, "<p>There is no cold cache under this limit: nothing is looked up.</p>\n");
}
