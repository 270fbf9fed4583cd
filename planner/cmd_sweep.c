/* thermo-plan sweep: speed over memory. One plan with up to 64 limits under one layout, as a pack has one, so the
 * curve is what a person with that pack would see. */
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
    "the ends, LOW..HIGH; limits below the floor are rows that are not feasible.",
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

static double resident_share(const struct plan *p, const struct plan_batch *b)
{
    double hot = 0, all = 0;
    for (int l = 0; l < p->n_layers; l++)
        for (int k = 0; k < p->n_blocks; k++)
            for (int q = 0; q < p->n_parts; q++) {
                hot += plan_hot(p, b, l, k, q);
                all += p->n_ff;
            }
    return hot / all;
}

static void csv(FILE *f, const uint64_t *memory, int n, int first, const struct plan *p, double min_speed)
{
    fputs("memory_bytes,feasible,account_bytes,mode,context,threads,queue_depth,batch,tokens_per_s,bound_tokens_per_s,"
          "read_bytes_per_step,hit_rate,resident_share,meets_min_speed\n", f);
    for (int i = 0; i < n; i++) {
        if (i < first) {
            fprintf(f, "%llu,0,,,,,,,,,,,,\n", (unsigned long long)memory[i]);
            continue;
        }
        const struct plan_limit *l = &p->limits[i - first];
        for (int b = 0; b < l->n_batches; b++) {
            const struct plan_figures *g = &l->batches[b].predicted;
            double share = resident_share(p, &l->batches[b]);
            fprintf(f, "%llu,1,%llu,%s,%d,%d,%d,%d,%.6g,%.6g,%.6g,%.6g,%.6g,%d\n",
                    (unsigned long long)l->memory_bytes, (unsigned long long)l->account_bytes,
                    plan_mode_name(l->mode), l->context, l->threads, l->queue_depth, l->batches[b].batch,
                    g->tokens_per_s, g->tokens_per_s / (1 - l->gap), g->read_bytes, g->hit_rate, share,
                    l->batches[0].predicted.tokens_per_s >= min_speed);
        }
    }
}

static int write_csv(const char *path, const uint64_t *memory, int n, int first, const struct plan *p, double min_speed,
                     struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f)
        csv(f, memory, n, first, p, min_speed);
    int bad = !f || ferror(f); /* it has no other reason */
    bad |= f && fclose(f) != 0;
    int r = bad ? err_set(e, ERR_NOMEM, "out of memory for '%s'", path) : file_replace(path, text, len, e);
    free(text);
    return r;
}

static int draw(const char *path, const struct plan *p, double min_speed, struct err *e)
{
    struct plot_series line[INPUTS_MAX_BATCHES + 1];
    double x[PLAN_MAX_LIMITS], y[INPUTS_MAX_BATCHES][PLAN_MAX_LIMITS], flat[2] = { min_speed, min_speed }, ends[2];
    char name[INPUTS_MAX_BATCHES][32], title[200];
    int n = p->limits[0].n_batches;
    for (int i = 0; i < p->n_limits; i++)
        x[i] = (double)p->limits[i].memory_bytes / (1 << 20);
    for (int b = 0; b < n; b++) {
        for (int i = 0; i < p->n_limits; i++)
            y[b][i] = p->limits[i].batches[b].predicted.tokens_per_s;
        snprintf(name[b], sizeof name[b], "batch %d", p->limits[0].batches[b].batch);
        line[b] = (struct plot_series){ name[b], x, y[b], p->n_limits, PLOT_LINE, b };
    }
    ends[0] = x[0];
    ends[1] = x[p->n_limits - 1];
    if (min_speed > 0)
        line[n++] = (struct plot_series){ "wanted", ends, flat, 2, PLOT_DASHED, PLOT_COLOURS - 1 };
    snprintf(title, sizeof title, "%s on %s", p->model_name, p->device);
    const struct plot g = { .title = title, .about = "Predicted speed over the memory limit; the CSV file has the "
                            "numbers.", .x = { .label = "memory limit, MiB", .tight = 1 },
                            .y = { .label = "tokens/s" }, .series = line, .n = n };
    return plot_write(path, &g, e);
}

static int run(const struct args *a, int steps, const char *out, const char *svg, struct err *e)
{
    struct args_inputs in = { 0 };
    struct plan p = { 0 };
    uint64_t memory[PLAN_MAX_LIMITS], floor_bytes;
    struct args plain = *a;
    int r, first = 0;
    plain.memory = NULL;
    plain.min_speed = 0;
    if ((r = parse_range(a->memory, steps, memory, e)) < 0 || (r = args_load(&plain, 0, &in, e)) < 0)
        return r;
    in.request.context = planning_context(&in.request, &in.in); /* one for all limits, so that the curve compares
                                                                 * like with like */
    if ((r = planning_floor(&in.request, &in.in, &in.hw, &floor_bytes, e)) == 0) {
        while (first < steps && memory[first] < floor_bytes)
            first++;
        in.request.n_memory = steps - first;
        memcpy(in.request.memory, memory + first, (size_t)(steps - first) * sizeof *memory);
        if (first == steps)
            r = err_set(e, ERR_INFEASIBLE, "--memory: all of %s is below the floor of %llu bytes", a->memory,
                        (unsigned long long)floor_bytes);
    }
    if (r == 0)
        r = planning_make(&in.request, &in.in, &in.hw, &in.notes, &p, e);
    if (r == 0 && svg)
        r = draw(svg, &p, a->min_speed, e);
    if (r == 0)
        r = write_csv(out ? out : "/dev/stdout", memory, steps, first, &p, a->min_speed, e);
    plan_done(&p);
    args_done(&in);
    return r;
}

int cmd_sweep(int argc, char **argv)
{
    struct args a;
    struct opt opts[ARGS_ROWS + 4];
    const char *out = NULL, *svg = NULL;
    int steps = 17, n_pos, r;
    struct err e = { 0 };
    args_init(&a);
    args_rows(&a, opts);
    for (int i = 0; i < ARGS_ROWS; i++)
        if (!strcmp(opts[i].name, "memory")) {
            opts[i].arg = "LOW..HIGH";
            opts[i].help = "Ends of the range of memory limits.";
            opts[i].required = 1;
        }
    const struct opt mine[4] = {
        { .name = "steps", .type = OPT_INT, .dest = &steps, .arg = "N", .min = 2, .max = PLAN_MAX_LIMITS,
          .help = "Limits from one end to the other.", .def = "17" },
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &out, .arg = "FILE", .file = OPT_WRITE,
          .help = "CSV to write.", .def = "standard output" },
        { .name = "svg", .type = OPT_STRING, .dest = &svg, .arg = "FILE", .file = OPT_WRITE, .help = "Drawing to write." },
        { 0 },
    };
    memcpy(opts + ARGS_ROWS, mine, sizeof mine);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos > 0) {
        err_set(&e, ERR_USAGE, "sweep takes no arguments beside its options; '%s' is one", argv[1]);
        return opt_fail(&e);
    }
    return run(&a, steps, out, svg, &e) < 0 ? opt_fail(&e) : 0;
}
