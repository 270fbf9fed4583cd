/* A memory limit that changes while the model runs, within an elastic group of the plan: what texts depend on is the same in it, and
 * what lies before the regions of neurons is the most that any of its limits needs. That is chosen once, and tried for the least limit; of
 * the one that holds are taken its neurons, as many as fit, and how passes are made: threads, reads in flight, rules of reading. */
#include "runtime/setup_impl.h"

#include "common/base/log.h"
#include "common/base/machine.h"
#include "common/base/pages.h"
#include "common/base/size.h"
#include "common/plan/plan_fit.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_SLACK 65535 /* a cgroup rounds its limit down to pages, of 64 KiB at most */

struct limit {
    struct plan_limit of;       /* with nothing but its batches, */
    double terms[PLAN_TERMS];
    const uint32_t *hot, *cold; /* and these; NULL: it is in another group, and the rest is not there either */
};

struct setup_elastic {
    uint64_t first;             /* the limit that it begins with */
    size_t n_hot, n_cold;
    uint32_t *hot, *cold;       /* that the next change is tried with, and not the engine's */
    int n;
    const struct limit *least, *now; /* for --elastic; the one whose neurons are there */
    struct limit limit[];       /* [n], the plan's, ascending; behind them are batches, then neurons */
};

/* Is a limit of the plan in the group of another one? */
static int together(const struct plan_limit *a, const struct plan_limit *b)
{
    return a == b || (a->elastic.group && a->elastic.group == b->elastic.group);
}

int setup_elastic_open(struct setup *s, const struct plan *p, const struct plan_limit **l, struct err *e)
{
    size_t n_cold = (size_t)p->n_layers * (size_t)p->n_parts, n_hot = n_cold * (size_t)p->n_blocks;
    size_t each = (n_hot + n_cold) * sizeof(uint32_t);
    const struct plan_limit *least = plan_pick(p, s->args.elastic), *of = least ? least : &p->limits[0];
    size_t n = (size_t)p->n_limits, bytes = sizeof *s->elastic + n * sizeof(struct limit);
    for (size_t i = 0; i < n; i++)
        bytes += together(&p->limits[i], of) ? (size_t)p->limits[i].n_batches * sizeof(struct plan_batch) + each : 0;
    const char *engine = s->args.accel.engine;
    char size[24], first[24];
    if (engine && strcmp(engine, "none") != 0)
        return err_set(e, ERR_UNSUPPORTED, "--elastic does not go with --engine %s: the accelerator has the neurons that are in memory",
                       engine);
    if (s->args.elastic > s->memory_bytes)
        return err_set(e, ERR_USAGE, "--elastic %s is above the memory limit of %s", size_exact(s->args.elastic, size, sizeof size),
                       size_exact(s->memory_bytes, first, sizeof first));
    struct setup_elastic *x = s->elastic = malloc(bytes);
    if (!x)
        return err_set(e, ERR_NOMEM, "out of memory for the plan's limits");
    *x = (struct setup_elastic){ .first = s->memory_bytes, .n_hot = n_hot, .n_cold = n_cold, .n = p->n_limits,
                                 .hot = malloc(n_hot * sizeof *x->hot), .cold = malloc(n_cold * sizeof *x->cold) };
    if (!x->hot || !x->cold)
        return err_set(e, ERR_NOMEM, "out of memory for the plan's limits");
    struct plan_batch *batch = (struct plan_batch *)(void *)&x->limit[n];
    for (size_t i = 0; i < n; i++) {
        const struct plan_limit *from = &p->limits[i];
        struct limit *to = &x->limit[i];
        *to = (struct limit){ .of = *from };
        to->of.batches = batch;
        for (int k = 0; k < from->n_batches && together(from, of); k++)
            *batch++ = from->batches[k];
    }
    uint32_t *at = (uint32_t *)(void *)batch;
    for (size_t i = 0; i < n; i++) {
        const struct plan_batch *b = &p->limits[i].batches[0];
        if (!together(&p->limits[i], of))
            continue;
        plan_terms(p->cost, of->mode, &b->predicted, p->n_layers, x->limit[i].terms);
        x->limit[i].hot = memcpy(at, b->hot, n_hot * sizeof *at);
        at += n_hot;
        x->limit[i].cold = s->args.no_cache ? memset(at, 0, n_cold * sizeof *at) : memcpy(at, b->cold, n_cold * sizeof *at);
        at += n_cold;
    }
    *l = of;
    x->least = x->now = &x->limit[of - p->limits];
    s->memory_bytes = s->args.elastic;
    s->args.beside += bytes + 2 * each + pages_small_size(); /* one more: a copy that plan_fit makes; where its cold cache begins */
    return 0;
}

void setup_elastic_close(struct setup *s)
{
    if (s->elastic) {
        free(s->elastic->hot);
        free(s->elastic->cold);
    }
    free(s->elastic);
}

/* Neurons of a limit of the plan, as many as fit into so much memory: into x->hot and x->cold. */
static int fit(const struct setup *s, const struct limit *l, uint64_t memory, struct plan_fit *f, struct err *e)
{
    const struct setup_elastic *x = s->elastic;
    struct budget_model m;
    uint64_t beside = setup_taken_beside(s);
    memcpy(x->hot, l->hot, x->n_hot * sizeof *x->hot);
    memcpy(x->cold, l->cold, x->n_cold * sizeof *x->cold);
    pack_budget_model(s->pack, &m);
    *f = (struct plan_fit){ .model = &m, .memory_bytes = memory > beside ? memory - beside : 0, .choice = s->config.choice, .hot = x->hot,
                            .cold = x->cold, .fixed = 1 };
    int r = plan_fit(f, e);
    f->model = NULL;
    return r;
}

static int find(const struct setup *s, uint64_t memory, const struct limit **out, struct err *e)
{
    const struct setup_elastic *x = s->elastic;
    const struct limit *l = x->limit;
    char asked[24], of[24], least[24];
    while (l + 1 < x->limit + x->n && l[1].of.memory_bytes <= memory)
        l++;
    *out = l;
    if (memory < s->args.elastic)
        return err_set(e, ERR_INFEASIBLE, "a memory limit of %s is below that of --elastic, %s", size_exact(memory, asked, sizeof asked),
                       size_exact(s->args.elastic, least, sizeof least));
    return l->hot ? 0 : err_set(e, ERR_UNSUPPORTED, "a memory limit of %s: the plan's limit of %s is not in one elastic group with that of "
                                "%s, by which this runs, so texts or what else is in memory would be others; 'thermo-plan solve --elastic' "
                                "makes a plan of limits that are", size_exact(memory, asked, sizeof asked),
                                size_exact(l->of.memory_bytes, of, sizeof of), size_exact(x->least->of.memory_bytes, least, sizeof least));
}

/* How passes are made by a limit. */
static void use(struct setup *s, const struct limit *l)
{
    setup_take_limit(s, &l->of, l->terms);
    setup_take_passes(s);
}

static void say_passes(const struct setup *s)
{
    const struct engine_config *c = &s->config;
    char memory[24];
    log_debug("within %s: passes by %d threads, %d reads in flight, %s", size_exact(s->memory_bytes, memory, sizeof memory),
              c->rest.threads, c->rest.depth, plan_io_name(c->io));
}

/* The arrays that were the engine's are the next change's. */
static void take(struct setup *s, const struct limit *l, uint64_t memory, const struct plan_fit *f)
{
    struct setup_elastic *x = s->elastic;
    uint32_t *hot = s->hot, *cold = s->cold;
    s->config.choice.hot = s->hot = x->hot;
    s->config.choice.cold = s->cold = x->cold;
    x->hot = hot;
    x->cold = cold;
    s->memory_bytes = memory;
    s->budget = f->budget;
    s->scaled = f->scaled;
    s->other |= x->now && l != x->now; /* predictions are of one limit */
    x->now = l;
}

int setup_elastic_begin(struct setup *s, struct err *e)
{
    struct setup_elastic *x = s->elastic;
    const struct limit *l;
    struct plan_fit f;
    int r = 0;
    for (int i = 0; i < x->n && r == 0; i++) {
        if (!x->limit[i].hot)
            continue;
        r = fit(s, &x->limit[i], UINT64_MAX, &f, e);
        size_t bytes = r < 0 ? 0 : engine_reserve_bytes(&f.budget);
        s->config.reserve = bytes > s->config.reserve ? bytes : s->config.reserve;
    }
    if (r < 0 || (r = find(s, x->first, &l, e)) < 0 || (r = fit(s, l, x->first, &f, e)) < 0)
        return r;
    x->now = NULL;
    take(s, l, x->first, &f);
    use(s, l);
    return 0;
}

/* Is there what the limit grows by? */
static int check_room(const struct setup *s, uint64_t memory, struct err *e)
{
    uint64_t group = machine_group_bytes(), there = machine_free_bytes();
    char asked[24], have[24];
    size_exact(memory, asked, sizeof asked);
    if (memory <= s->memory_bytes)
        return 0;
    if (group && memory > group + PAGE_SLACK)
        return err_set(e, ERR_INFEASIBLE, "a memory limit of %s, but that of the control group is %s", asked,
                       size_exact(group, have, sizeof have));
    if (there && memory - s->memory_bytes > there)
        return err_set(e, ERR_INFEASIBLE, "a memory limit of %s, but only %s more are available here", asked,
                       size_exact(there, have, sizeof have));
    return 0;
}

int setup_resize(struct setup *s, struct engine *g, uint64_t memory, struct err *e)
{
    const struct limit *l;
    struct plan_fit f;
    int r, why, locked = engine_locked(g, &why);
    if (!s->elastic)
        return err_set(e, ERR_UNSUPPORTED, "the memory limit stays what it is: --elastic SIZE lets it change, down to SIZE");
    if ((r = find(s, memory, &l, e)) < 0 || (r = check_room(s, memory, e)) < 0 || (r = fit(s, l, memory, &f, e)) < 0)
        return r;
    use(s, l);
    r = engine_resize(g, s->elastic->hot, s->elastic->cold, &s->config, e);
    if (engine_configuration(g)->choice.hot == s->elastic->hot)
        take(s, l, r == ERR_NOMEM ? s->memory_bytes : memory, &f);
    else
        use(s, s->elastic->now);
    say_passes(s);
    if (locked && !engine_locked(g, &why))
        log_warn("memory is no longer locked (%s): under pressure it may be swapped", strerror(why));
    return r;
}
