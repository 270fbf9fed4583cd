/* thermo-plan sweep: speed over memory. One plan with up to 64 limits under one layout, as a pack has one, so the
 * curve is what a person with that pack would see, beside what each limit would have under a layout of its own; or a
 * plan for each. */
#include "planner/cmd.h"

#include "common/base/file.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/check.h"
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-plan sweep", "",
    "Predicted speed over memory as CSV (to standard output or --out), and as a drawing with --svg. --memory gives "
    "the ends, LOW..HIGH; limits below the floor are rows that are not feasible. All limits have one layout, as a pack has: "
    "common_layout_cost is the share of own_tokens_per_s, of a layout of its own, that a limit loses by that. With --layout-per-limit each "
    "has its own.",
    "  thermo-plan sweep --traces t.h5 --hardware hw.sqlite --memory 12MiB..32MiB --steps 21 --svg speed.svg\n",
    NULL
};

static int parse_range(const char *text, int steps, uint64_t *memory, struct err *e)
{
    const char *dots = text ? strstr(text, "..") : NULL;
    char low[64];
    uint64_t a, b;
    int r;
    if (!dots || dots - text >= (long)sizeof low)
        return err_set(e, ERR_USAGE, "--memory: LOW..HIGH is needed, as in 12MiB..32MiB");
    memcpy(low, text, (size_t)(dots - text));
    low[dots - text] = '\0';
    if ((r = size_parse(low, &a, e)) < 0 || (r = size_parse(dots + 2, &b, e)) < 0)
        return err_wrap(e, "--memory");
    if (a == 0 || b <= a || b > INT64_MAX || b - a < (uint64_t)steps)
        return err_set(e, ERR_USAGE, "--memory: '%s' does not ascend", text);
    for (int i = 0; i < steps; i++)
        memory[i] = i == 0 ? a : i == steps - 1 ? b : a + (b - a) / (uint64_t)(steps - 1) * (uint64_t)i;
    return 0;
}

/* What is swept: one plan of all limits, or a plan for each. */
struct sweep {
    struct plan *plan;
    int n, each;                /* limits */
};

static const struct plan *plan_of(const struct sweep *s, int i)
{
    return &s->plan[s->each ? i : 0];
}

static const struct plan_limit *limit_of(const struct sweep *s, int i)
{
    return &plan_of(s, i)->limits[s->each ? 0 : i];
}

static double resident_share(const struct plan *p, const struct plan_batch *b)
{
    double hot = 0, all = 0;
    for (int l = 0; l < p->n_layers; l++)
        for (int k = 0; k < p->n_blocks; k++)
            for (int q = 0; q < p->n_parts; q++) {
                hot += plan_hot(p, b, l, k, q);
                all += plan_n_ff(p, l);
            }
    return hot / all;
}

/* What the limit's own layout would give; empty where that is not stated. */
static void csv_own(FILE *f, const struct sweep *s, const struct plan_limit *l)
{
    if (!s->each && l->own.tokens_per_s > 0)
        fprintf(f, ",%.6g,%s,%d,%.6g\n", l->own.tokens_per_s, layout_form_name(l->own.form), l->own.packed, l->own.cost);
    else
        fputs(",,,,\n", f);
}

static void csv(FILE *f, const uint64_t *memory, int n, int first, const struct sweep *s, double min_speed)
{
    fputs("memory_bytes,feasible,account_bytes,mode,context,threads,queue_depth,batch,tokens_per_s,bound_tokens_per_s,"
          "read_bytes_per_step,hit_rate,resident_share,meets_min_speed,form,packed,bound_of,own_tokens_per_s,own_form,own_packed,"
          "common_layout_cost\n", f);
    for (int i = 0; i < n; i++) {
        if (i < first) {
            fprintf(f, "%llu,0,,,,,,,,,,,,,,,,,,,\n", (unsigned long long)memory[i]);
            continue;
        }
        const struct plan *p = plan_of(s, i - first);
        const struct plan_limit *l = limit_of(s, i - first);
        for (int b = 0; b < l->n_batches; b++) {
            const struct plan_figures *g = &l->batches[b].predicted;
            double share = resident_share(p, &l->batches[b]);
            fprintf(f, "%llu,1,%llu,%s,%d,%d,%d,%d,%.6g,%.6g,%.6g,%.6g,%.6g,%d,%s,%d,%s",
                    (unsigned long long)l->memory_bytes, (unsigned long long)l->account_bytes,
                    plan_mode_name(l->mode), l->context, l->threads, l->queue_depth, l->batches[b].batch,
                    g->tokens_per_s, g->tokens_per_s / (1 - l->gap), g->read_bytes, g->hit_rate, share,
                    l->batches[0].predicted.tokens_per_s >= min_speed, layout_form_name(p->layout.form), p->layout.packed,
                    l->gap_of_layouts ? "layouts" : "layout");
            csv_own(f, s, l);
        }
    }
}

static int write_csv(const char *path, const uint64_t *memory, int n, int first, const struct sweep *s, double min_speed,
                     struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f)
        csv(f, memory, n, first, s, min_speed);
    int bad = !f || ferror(f); /* it has no other reason */
    bad |= f && fclose(f) != 0;
    int r = bad ? err_set(e, ERR_NOMEM, "out of memory for '%s'", path) : file_replace(path, text, len, e);
    free(text);
    return r;
}

static int draw(const char *path, const struct sweep *s, double min_speed, struct err *e)
{
    struct plot_series line[INPUTS_MAX_BATCHES + 1];
    double x[PLAN_MAX_LIMITS], y[INPUTS_MAX_BATCHES][PLAN_MAX_LIMITS], flat[2] = { min_speed, min_speed }, ends[2];
    char name[INPUTS_MAX_BATCHES][32], title[200];
    int n = limit_of(s, 0)->n_batches;
    for (int i = 0; i < s->n; i++)
        x[i] = (double)limit_of(s, i)->memory_bytes / (1 << 20);
    for (int b = 0; b < n; b++) {
        for (int i = 0; i < s->n; i++)
            y[b][i] = limit_of(s, i)->batches[b].predicted.tokens_per_s;
        snprintf(name[b], sizeof name[b], "batch %d", limit_of(s, 0)->batches[b].batch);
        line[b] = (struct plot_series){ name[b], x, y[b], s->n, PLOT_LINE, b };
    }
    ends[0] = x[0];
    ends[1] = x[s->n - 1];
    if (min_speed > 0)
        line[n++] = (struct plot_series){ "wanted", ends, flat, 2, PLOT_DASHED, PLOT_COLOURS - 1 };
    snprintf(title, sizeof title, "%s on %s", s->plan->model_name, s->plan->device);
    const struct plot g = { .title = title, .about = "Predicted speed over the memory limit; the CSV file has the "
                            "numbers.", .x = { .label = "memory limit, MiB", .tight = 1 },
                            .y = { .label = "tokens/s" }, .series = line, .n = n };
    return plot_write(path, &g, e);
}

/* What is asked for beside the request. */
struct options {
    int steps, each;
    const char *out, *svg;
};

static int run(const struct args *a, const struct options *w, struct err *e)
{
    struct args_inputs in = { 0 };
    struct sweep s = { .each = w->each };
    uint64_t memory[PLAN_MAX_LIMITS], floor_bytes;
    struct args plain = *a;
    int r, first = 0, steps = w->steps;
    plain.memory = NULL;
    plain.min_speed = 0;
    if ((r = parse_range(a->memory, steps, memory, e)) < 0 || (r = args_load(&plain, 0, &in, e)) < 0)
        return r;
    in.request.context = planning_context(&in.request, &in.in); /* one for all limits, so that the curve compares
                                                                 * like with like */
    if (w->each && in.request.for_pack)
        r = err_set(e, ERR_USAGE, "--layout-per-limit chooses layouts, and --for-pack takes that of the pack: give one of them");
    if (r == 0 && (r = planning_floor(&in.request, &in.in, &in.hw, &floor_bytes, e)) == 0) {
        while (first < steps && memory[first] < floor_bytes)
            first++;
        in.request.n_memory = s.n = steps - first;
        memcpy(in.request.memory, memory + first, (size_t)(steps - first) * sizeof *memory);
        if (first == steps)
            r = err_set(e, ERR_INFEASIBLE, "--memory: all of %s is below the floor of %llu bytes", a->memory,
                        (unsigned long long)floor_bytes);
    }
    if (r == 0 && !(s.plan = calloc((size_t)s.n, sizeof *s.plan)))
        r = err_set(e, ERR_NOMEM, "out of memory for plans");
    if (r == 0)
        r = w->each ? planning_make_each(&in.request, &in.in, &in.hw, &in.notes, s.plan, e) :
                      planning_make(&in.request, &in.in, &in.hw, &in.notes, s.plan, e);
    if (r == 0 && w->svg)
        r = draw(w->svg, &s, a->min_speed, e);
    if (r == 0)
        r = write_csv(w->out ? w->out : "/dev/stdout", memory, steps, first, &s, a->min_speed, e);
    for (int i = 0; s.plan && i < (s.each ? s.n : 1); i++)
        plan_done(&s.plan[i]);
    free(s.plan);
    args_done(&in);
    return r;
}

int cmd_sweep(int argc, char **argv)
{
    struct args a;
    struct opt opts[ARGS_ROWS + 5];
    struct options w = { .steps = 17 };
    int n_pos, r;
    struct err e = { 0 };
    args_init(&a);
    args_rows(&a, opts);
    for (int i = 0; i < ARGS_ROWS; i++)
        if (!strcmp(opts[i].name, "memory")) {
            opts[i].arg = "LOW..HIGH";
            opts[i].help = "Ends of the range of memory limits.";
            opts[i].required = 1;
        }
    const struct opt mine[5] = {
        { .name = "steps", .type = OPT_INT, .dest = &w.steps, .arg = "N", .min = 2, .max = PLAN_MAX_LIMITS,
          .help = "Limits from one end to the other.", .def = "17" },
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &w.out, .arg = "FILE", .file = OPT_WRITE,
          .help = "CSV to write.", .def = "standard output" },
        { .name = "svg", .type = OPT_STRING, .dest = &w.svg, .arg = "FILE", .file = OPT_WRITE, .help = "Drawing to write." },
        { .name = "layout-per-limit", .type = OPT_FLAG, .dest = &w.each, .help = "Plan each limit under a layout of its own." },
        { 0 },
    };
    memcpy(opts + ARGS_ROWS, mine, sizeof mine);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos > 0) {
        err_set(&e, ERR_USAGE, "sweep takes no arguments beside its options; '%s' is one", argv[1]);
        return opt_fail(&e);
    }
    return run(&a, &w, &e) < 0 ? opt_fail(&e) : 0;
}
