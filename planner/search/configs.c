/* Curves of all configurations would be large, and dear to make: all get a proven bound, and the best keep their curves. */
#include "planner/search/configs.h"

#include "planner/search/account.h"
#include "planner/search/bounds.h"
#include "planner/search/price.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 128

/* Heights that are tried, in sixteenths of an FFN's neurons, whole clusters; none first, which is taken where others are no faster. */
static const int heights[] = { 0, 1, 2, 4, 6, 8, 10, 12, 14, 16 };
enum { N_HEIGHTS = sizeof heights / sizeof heights[0] };

void configs_done(struct configs *c)
{
    for (int i = 0; i < c->sp.n_configs; i++)
        solve_config_done(&c->sp, &c->sp.configs[i]);
    free(c->sp.configs);
    free(c->choices);
    free(c->runs);
    *c = (struct configs){ 0 };
}

/* What gives curves to configurations. */
struct pricer {
    const struct space *s;
    const struct residencies *residencies;
    const struct cost_choice *choices;
    struct curve_memo *memo; /* NULL: nothing is kept */
};

/* What makes configurations of a space. */
struct maker {
    const struct space *s;
    const struct limits *lim;
    struct configs *out;
    struct bounds bounds;
};

static int curves_of(void *ctx, int config, int least_depth, struct solve_config *out, struct err *e)
{
    const struct pricer *p = ctx;
    int r = p->memo ? curve_memo_get(p->memo, config, least_depth, out, e) : 0;
    if (r != 0)
        return r < 0 ? r : 0;
    r = price_curves(p->s, p->residencies, &p->choices[config], least_depth, out, e);
    return r < 0 || !p->memo ? r : curve_memo_put(p->memo, config, least_depth, out, e);
}

/* The backends that the device has figures for; one, HW_ANY_BACKEND, when it has none. Returns how many. */
static int backends_of(const struct hw *hw, enum hw_backend out[2])
{
    int has[2] = { 0, 0 }, n = 0;
    for (int i = 0; i < hw->n_storage; i++)
        has[hw->storage_points[i].backend == HW_PREAD] = 1;
    if (has[0])
        out[n++] = HW_URING;
    if (has[1])
        out[n++] = HW_PREAD;
    if (n == 0)
        out[n++] = HW_ANY_BACKEND;
    return n;
}

void configs_set_lanes(struct cost_choice *c)
{
    c->lanes = c->backend == HW_PREAD ? (c->depth < BUDGET_MAX_LANES ? c->depth : BUDGET_MAX_LANES) : 1;
}

static int set_memory(const struct maker *m, const struct cost_choice *c, struct solve_config *out, struct err *e)
{
    struct budget b, one;
    struct cost_choice least = *c;
    int r = account_of(m->s, c, m->lim, NULL, &b, e);
    if (r < 0)
        return r;
    out->fixed_bytes = (int64_t)(b.total / SOLVE_BYTE_UNIT);
    least.context = 1;
    if (c->context > 1 && (r = account_of(m->s, &least, m->lim, NULL, &one, e)) == 0)
        out->context_bytes = (int64_t)((b.total - one.total) / SOLVE_BYTE_UNIT) / (c->context - 1);
    return r;
}

/* Core counts of a class to try: all of them up to 8, then powers of two, all but one, and all. */
static int useful_count(int n, int most)
{
    return n <= 8 || n >= most - 1 || (n & (n - 1)) == 0;
}

/* The next vector of core counts, in counting order; 0 at the end. */
static int next_cores(const struct hw *hw, struct cost_choice *c)
{
    for (int k = 0; k < c->n_classes; k++) {
        int most = hw->classes[k].n_cores;
        do {
            c->n[k]++;
        } while (c->n[k] <= most && !useful_count(c->n[k], most));
        if (c->n[k] <= most)
            return 1;
        c->n[k] = 0;
    }
    return 0;
}

static int add_config(struct maker *m, const struct cost_choice *c, struct err *e)
{
    struct solve_problem *sp = &m->out->sp;
    struct solve_config *o = &sp->configs[sp->n_configs];
    *o = (struct solve_config){ .depth = c->depth, .id = sp->n_configs };
    memcpy(o->n, c->n, sizeof o->n);
    m->out->choices[sp->n_configs++] = *c;
    return set_memory(m, c, o, e);
}

/* Every queue depth with these cores, backend and rule. */
static int add_depths(struct maker *m, struct cost_choice *c, enum hw_backend backend, struct err *e)
{
    int first = m->out->sp.n_configs, r = 0;
    for (c->depth = 1; c->depth <= MAX_DEPTH && r == 0; c->depth *= 2) {
        c->backend = backend;
        configs_set_lanes(c);
        r = add_config(m, c, e);
    }
    return r < 0 ? r : bounds_add(&m->bounds, (struct bounds_run){ first, 1, m->out->sp.n_configs - first }, e);
}

/* Rules for coalesced reads: the paper's equations know of none. */
static int rules_of(const struct maker *m)
{
    return m->lim->model == PLAN_COST_PAPER || m->s->n_rules < 1 ? 1 : m->s->n_rules;
}

/* What the accelerator does faster than these cores, beside neurons: attention is longer or shorter by it, whatever is in memory, and
 * nothing gets slower where it is shorter. */
static int best_work(const struct maker *m, const struct cost_choice *c, enum hw_backend backend, enum plan_work *out, struct err *e)
{
    int batch = inputs_batch_sizes[m->lim->only_batch ? m->lim->only_batch - 1 : 0];
    struct cost_choice one = *c;
    one.backend = backend;
    one.depth = 1;
    configs_set_lanes(&one);
    return cost_best_work(m->s->hw, m->s->in, &m->s->shapes, &one, m->lim->engine, batch, out, e);
}

/* Every height of the accelerator, where there is one, first none, and what it does beside that; the paper's equations know of none. */
static int add_heights(struct maker *m, struct cost_choice *c, enum hw_backend backend, struct err *e)
{
    uint32_t n_ff = (uint32_t)m->s->in->h.n_ff, cluster = m->s->shapes.l.cluster_neurons, was = 0;
    enum plan_work work = PLAN_WORK_FFN;
    int r = add_depths(m, c, backend, e);
    if (r == 0 && m->lim->engine)
        r = best_work(m, c, backend, &work, e);
    c->engine = m->lim->engine;
    c->work = work;
    if (r == 0 && work)
        r = add_depths(m, c, backend, e);
    for (int i = 1; i < N_HEIGHTS && m->lim->engine && r == 0; i++) {
        c->height = heights[i] == 16 ? n_ff : n_ff * (uint32_t)heights[i] / 16 / cluster * cluster;
        if (c->height != was)
            r = add_depths(m, c, backend, e);
        was = c->height;
    }
    c->height = 0;
    c->work = PLAN_WORK_FFN;
    c->engine = NULL;
    return r;
}

/* Can it be told whether reading experts ahead pays? The paper's equations know of none. */
static int foresees(const struct maker *m, enum plan_mode mode)
{
    return m->lim->model != PLAN_COST_PAPER && space_foresees(m->s, mode);
}

/* Every backend, rule and queue depth with these cores, experts not read ahead and read ahead; no pread where io_uring can be had and no
 * core is left for its lanes. Those are threads: they would share cores with the threads that compute, and no longer read as the probe
 * measured them, on idle cores. A plan that predicted 11 tokens/s made 6.7. */
static int add_queues(struct maker *m, struct cost_choice *c, struct err *e)
{
    enum hw_backend backends[2];
    int n = backends_of(m->s->hw, backends), r = 0;
    if (n == 2 && c->threads >= hw_cores(m->s->hw, -1))
        n = 1;
    for (int i = 0; i < n && r == 0; i++)
        for (c->rule = 0; c->rule < rules_of(m) && r == 0; c->rule++) {
            c->read_bytes = coalesce_read_bytes(&m->s->rules[c->rule]);
            for (c->ahead = 0; c->ahead <= foresees(m, c->mode) && r == 0; c->ahead++)
                r = add_heights(m, c, backends[i], e);
            c->ahead = 0;
        }
    return r;
}

/* Every vector of core counts with a group. */
static int add_cores(struct maker *m, int group, struct err *e)
{
    const struct hw *hw = m->s->hw;
    struct cost_choice c = account_choice(m->s, group, m->lim);
    int r = 0;
    c.n_classes = m->out->sp.n_classes;
    if (hw->n_classes == 0) {
        c.n[0] = c.threads = 1;
        return add_queues(m, &c, e);
    }
    while (r == 0 && next_cores(hw, &c)) {
        c.threads = 0;
        for (int k = 0; k < c.n_classes; k++)
            c.threads += c.n[k];
        if (c.threads <= BUDGET_MAX_THREADS)
            r = add_queues(m, &c, e);
    }
    return r;
}

/* No fewer than there are configurations. */
static int most_configs(const struct maker *m)
{
    struct cost_choice c = { .n_classes = m->s->hw->n_classes };
    int cores = 1, depths = 0;
    while (next_cores(m->s->hw, &c))
        cores++;
    for (int depth = 1; depth <= MAX_DEPTH; depth *= 2)
        depths++;
    return m->s->n_groups * cores * 2 * rules_of(m) * depths * (m->lim->engine ? N_HEIGHTS + 1 : 1) * (1 + foresees(m, PLAN_DENSE));
}

int64_t configs_weight(const struct limits *lim, int n_batches, int batch_index)
{
    int own = lim->weight[batch_index] > 0 ? lim->weight[batch_index] : 1;
    return (int64_t)own * (inputs_batch_sizes[n_batches - 1] / inputs_batch_sizes[batch_index]);
}

/* The problem without configurations. */
static struct solve_problem empty_problem(const struct space *s, const struct limits *lim)
{
    const struct hw *hw = s->hw;
    struct solve_problem sp = { .n_layers = s->in->n_layers, .n_batches = lim->only_batch ? 1 : s->in->n_batches,
                                .n_classes = hw->n_classes > 0 ? hw->n_classes : 1,
                                .memory = (int64_t)(lim->memory_bytes / SOLVE_BYTE_UNIT),
                                .max_ticks = SOLVE_NEVER, .context = lim->context };
    for (int b = 0; b < sp.n_batches; b++)
        sp.weight[b] = lim->only_batch ? 1 : configs_weight(lim, s->in->n_batches, b);
    if (lim->min_tokens_per_s > 0 && lim->only_batch <= 1)
        sp.max_ticks = solve_ticks(1e9 / lim->min_tokens_per_s);
    for (int k = 0; k < sp.n_classes; k++) {
        int has = hw->n_classes > 0 ? hw->classes[k].n_cores : 1;
        sp.cores[k] = lim->cores[k] >= 0 && lim->cores[k] < has ? lim->cores[k] : has;
    }
    return sp;
}

int configs_fill(struct configs *out, const struct space *s, const struct residencies *residencies, const struct limits *lim,
                 struct curve_memo *memo, struct err *e)
{
    struct configs o = { .sp = empty_problem(s, lim), .first_batch = lim->only_batch ? lim->only_batch - 1 : 0 };
    struct maker m = { .s = s, .lim = lim, .out = &o };
    int most = most_configs(&m);
    o.sp.configs = calloc((size_t)most, sizeof *o.sp.configs);
    o.choices = calloc((size_t)most, sizeof *o.choices);
    struct pricer pricer = { s, residencies, o.choices, memo };
    int r = o.sp.configs && o.choices ? 0 : err_set(e, ERR_NOMEM, "out of memory for configurations");
    if (r == 0)
        r = curve_memo_begin(memo, &o.sp, lim, most, e);
    if (r == 0)
        r = bounds_init(&m.bounds, &o.sp, &(struct bounds_source){ curves_of, &pricer }, most, e);
    for (int i = 0; i < s->n_groups && r == 0; i++)
        r = add_cores(&m, i, e);
    if (r == 0)
        r = bounds_search(&m.bounds, e);
    if (r == 0)
        r = bounds_partition(&m.bounds, &o.runs, &o.n_runs, e);
    bounds_done(&m.bounds);
    if (r < 0)
        configs_done(&o);
    else
        *out = o;
    return r;
}

/* --- certificates --- */

void configs_name(const struct space *s, const struct cost_choice *a, int least_depth, char *out, size_t size)
{
    size_t at = 0;
    for (int k = 0; k < a->n_classes && at < size; k++)
        if (a->n[k])
            at += (size_t)snprintf(out + at, size - at, "%d %s, ", a->n[k], s->hw->n_classes ? s->hw->classes[k].name : "cpu");
    if (at < size)
        at += (size_t)snprintf(out + at, size - at, "%s, queue depth %d", a->backend == HW_URING ? "io_uring" : a->backend == HW_PREAD ?
                               "pread" : "reads", least_depth);
    if (least_depth != a->depth && at < size)
        at += (size_t)snprintf(out + at, size - at, " to %d (the best of each)", a->depth);
    if (cost_has_engine(a) && at < size)
        at += (size_t)snprintf(out + at, size - at, ", %u neurons of each FFN on %s", a->height, a->engine);
    if (cost_has_engine(a) && a->work && at < size)
        at += (size_t)snprintf(out + at, size - at, ", with %s", plan_work_name(a->work));
    if (a->rule && at < size)
        at += (size_t)snprintf(out + at, size - at, ", coalesced reads %d", a->rule);
    if (a->ahead && at < size)
        at += (size_t)snprintf(out + at, size - at, ", experts read ahead");
    if (s->n_groups > 1 && at < size)
        snprintf(out + at, size - at, ", group %d", a->group);
}

int configs_certify(const struct configs *c, const struct space *s, const struct residencies *residencies, struct certificate *out,
                    struct err *e)
{
    struct pricer pricer = { s, residencies, c->choices, NULL };
    const struct bounds_source source = { curves_of, &pricer };
    int open = 0, r = 0;
    for (int i = 0; i < c->n_runs && r >= 0; i++) {
        const struct bounds_run *run = &c->runs[i];
        struct solve_config one;
        char name[256];
        if (!solve_cores_ok(&c->sp, &c->sp.configs[run->first]))
            continue;
        configs_name(s, &c->choices[run->first + (run->n - 1) * run->step], c->choices[run->first].depth, name, sizeof name);
        if ((r = bounds_run_config(&c->sp, &source, run, &one, e)) == 0)
            r = certificate_config(out, &c->sp, &one, name, e);
        open += r == 0;
        solve_config_done(&c->sp, &one);
    }
    return r < 0 ? r : open;
}
