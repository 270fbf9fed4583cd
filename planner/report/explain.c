/* Puts together what stands behind a limit. Gains are found by asking the quick solver again with one thing changed: a
 * limit, or a copy of the device's figures. */
#include "planner/report/explain.h"

#include "planner/planning/planning.h"
#include "planner/space/lookups.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *explain_binds(const struct plan_layer_figures *f)
{
    if (f->io_ns >= f->ffn_compute_ns && f->io_ns >= f->ffn_memory_ns)
        return f->io_ns > 0 ? "io" : "compute";
    return f->ffn_compute_ns >= f->ffn_memory_ns ? "compute" : "memory";
}

double explain_overlap_ns(enum plan_cost cost, const struct plan_layer_figures *f)
{
    double ffn_ns = cost == PLAN_COST_PAPER ? f->ffn_compute_ns : fmax(f->ffn_compute_ns, f->ffn_memory_ns);
    return f->attention_ns + f->predict_ns + ffn_ns + f->io_ns + f->exposed_ns - f->total_ns;
}

/* --- gains --- */

static int quick_speed(struct problem *pr, const struct limits *lim, double *out, struct err *e)
{
    struct solve_result res;
    int r;
    if ((r = problem_fill(pr, lim, e)) < 0 || (r = solve_greedy(&pr->configs.sp, &res, e)) < 0)
        return r;
    *out = res.feasible ? 1e9 * SOLVE_TICKS_PER_NS / (double)res.ticks[0] : 0;
    solve_result_done(&res);
    return 0;
}

static void gain(struct explain *x, double speed, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void gain(struct explain *x, double speed, const char *fmt, ...)
{
    struct explain_gain *g = &x->gains[x->n_gains++];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->what, sizeof g->what, fmt, ap);
    va_end(ap);
    g->tokens_per_s = speed;
}

/* The device with storage twice as fast: throughput doubled, latency and CPU time per read halved. */
static struct hw_storage *fast_storage(const struct hw *hw)
{
    struct hw_storage *s = malloc(((size_t)hw->n_storage + 1) * sizeof *s);
    for (int i = 0; s && i < hw->n_storage; i++) {
        s[i] = hw->storage_points[i];
        s[i].bytes_per_s.p10 *= 2, s[i].bytes_per_s.p50 *= 2, s[i].bytes_per_s.p90 *= 2;
        s[i].latency_ns_p50 /= 2, s[i].latency_ns_p99 /= 2, s[i].cpu_ns_per_read /= 2;
    }
    return s;
}

static int find_gains(struct problem *pr, const struct limits *lim, struct explain *x, struct err *e)
{
    const struct hw *device = pr->space.hw;
    struct limits more = *lim;
    struct hw other = *device;
    double speed;
    int r = quick_speed(pr, lim, &x->base_tokens_per_s, e);
    for (int i = 0; i < 2 && r == 0; i++) {
        more.memory_bytes = lim->memory_bytes + (i ? UINT64_C(1) << 30 : UINT64_C(1) << 20);
        if ((r = quick_speed(pr, &more, &speed, e)) == 0)
            gain(x, speed, "one more %s of memory", i ? "GiB" : "MiB");
    }
    for (int k = 0; k < device->n_classes && k < 4 && r == 0; k++) {
        other.classes[k].n_cores++;
        pr->space.hw = &other;
        if ((r = quick_speed(pr, lim, &speed, e)) == 0)
            gain(x, speed, "one more core of class %.60s", device->classes[k].name);
        other.classes[k].n_cores--;
    }
    other.storage_points = r == 0 ? fast_storage(device) : NULL;
    if (r == 0 && !other.storage_points)
        r = err_set(e, ERR_NOMEM, "out of memory");
    if (r == 0) {
        pr->space.hw = &other;
        if ((r = quick_speed(pr, lim, &speed, e)) == 0)
            gain(x, speed, "storage twice as fast");
        free(other.storage_points);
    }
    pr->space.hw = device;
    return r;
}

/* Belady's hit rate per layer at the plan's prefix and slots. */
static int find_best(const struct problem *pr, const struct cost_residency *residencies, struct explain *x, struct err *e)
{
    const struct inputs *in = pr->space.in;
    int last = pr->space.shapes.n_parts - 1, r = 0;
    x->best_hit_rate = calloc((size_t)in->n_layers, sizeof *x->best_hit_rate);
    if (!x->best_hit_rate)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int l = 0; pr->tables.table[0] && l < in->n_layers && r == 0; l++) {
        struct inputs_steps s;
        double misses, lookups = replay_lookups(miss_tables_at(&pr->tables, 0, 0, l), residencies[l].hot[last]);
        if (lookups <= 0 || (r = lookups_steps(&pr->space, 0, l, lookups_window(&pr->space, 0, l), &s, e)) < 0)
            continue;
        r = replay_belady(&s, layout_of(&pr->space.shapes, l), last, in->n_blocks, 1, residencies[l].hot[last],
                          residencies[l].slots, &misses, e);
        inputs_steps_done(&s);
        x->best_hit_rate[l] = r == 0 && misses < lookups ? 1 - misses / lookups : 0;
    }
    return r;
}

int explain_limit(struct problem *pr, const struct plan *p, const struct plan_limit *l, struct explain *out,
                  struct err *e)
{
    struct explain x = { .n_paper = 0 };
    struct cost_choice c;
    struct limits lim;
    struct cost_residency *residencies = malloc((size_t)p->n_layers * sizeof *residencies);
    if (!residencies)
        return err_set(e, ERR_NOMEM, "out of memory");
    planning_choice(p, l, &c);
    c.predicted = pr->space.predicted[0];
    planning_limits(p, l, &lim);
    lim.min_tokens_per_s = 0;
    planning_residencies(p, &l->batches[0], residencies);
    int r = planning_account(pr, l, &x.account, e);
    if (r == 0 && l->mode == PLAN_PREDICTED) {
        struct cost_choice exact = c;
        struct budget b;
        exact.mode = PLAN_EXACT;
        exact.predicted = NULL;
        r = account_of(&pr->space, &exact, &lim, NULL, &b, e);
        x.exact_floor = b.floor;
    }
    if (r == 0)
        r = explain_paper(pr, l, &c, residencies, &x, e);
    if (r == 0 && p->cost == PLAN_COST_MEASURED)
        r = explain_measured(pr, l, &c, residencies, &x, e);
    if (r == 0 && l->mode == PLAN_PREDICTED && p->cost == PLAN_COST_MEASURED)
        r = explain_inputs(pr, p, l, &x.inputs, e);
    if (r == 0)
        r = find_best(pr, residencies, &x, e);
    if (r == 0)
        r = find_gains(pr, &lim, &x, e);
    free(residencies);
    if (r < 0) {
        explain_done(&x);
        return r;
    }
    *out = x;
    return 0;
}

void explain_done(struct explain *x)
{
    free(x->best_hit_rate);
    free(x->inputs);
    x->best_hit_rate = NULL;
    x->inputs = NULL;
}
