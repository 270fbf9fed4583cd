/* A memory limit that changes while the model runs. All that has to stay as it is (what texts depend on, and what lies before the regions
 * of neurons) is chosen once, for the least limit; of the plan's other limits only the neurons are taken, and as many of them as fit. A
 * limit whose texts would be others is refused. */
#include "runtime/setup_impl.h"

#include "common/base/log.h"
#include "common/base/size.h"
#include "common/plan/plan_fit.h"

#include "runtime/engine/arena.h"
#include "common/base/machine.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_SLACK 65535 /* a cgroup rounds its limit down to pages, of 64 KiB at most */

struct limit {
    uint64_t memory_bytes;
    const char *other;          /* NULL, or what of it would change texts */
    const uint32_t *hot, *cold;
};

struct setup_elastic {
    uint64_t first;             /* the limit that it begins with */
    size_t n_hot, n_cold;
    uint32_t *hot, *cold;       /* that the next change is tried with, and not the engine's */
    int n;
    const struct limit *least;  /* whose other choices hold */
    struct limit limit[];       /* [n], the plan's, ascending; their neurons are behind them */
};

/* What a limit would have otherwise than `of`, where no option says it. */
static const char *other(const struct setup_args *a, const struct plan *p, const struct plan_limit *of, const struct plan_limit *l)
{
    size_t layers = (size_t)p->n_layers;
    enum plan_mode mode = a->mode < 0 ? of->mode : (enum plan_mode)a->mode;
    if (a->mode < 0 && l->mode != of->mode)
        return "another mode";
    if (a->act < 0 && l->act_q8 != of->act_q8)
        return "other activations";
    if (a->kv < 0 && l->kv_f16 != of->kv_f16)
        return "another KV cache";
    if (!a->context && l->context != of->context)
        return "another context";
    if (mode != PLAN_PREDICTED || of->mode != PLAN_PREDICTED || l->mode != PLAN_PREDICTED)
        return NULL;
    if (memcmp(l->predictor, of->predictor, layers * sizeof *l->predictor))
        return "other predictors";
    if (memcmp(l->always, of->always, layers * sizeof *l->always))
        return "other neurons that are always computed";
    return a->recall <= 0 && (l->recall < of->recall || l->recall > of->recall) ? "another recall" : NULL;
}

int setup_elastic_open(struct setup *s, const struct plan *p, const struct plan_limit **l, struct err *e)
{
    size_t n_cold = (size_t)p->n_layers * (size_t)p->n_parts, n_hot = n_cold * (size_t)p->n_blocks;
    size_t each = (n_hot + n_cold) * sizeof(uint32_t);
    size_t n = (size_t)p->n_limits, bytes = sizeof *s->elastic + n * (sizeof(struct limit) + each);
    const char *engine = s->args.accel.engine;
    char least[24], first[24];
    if (engine && strcmp(engine, "none") != 0)
        return err_set(e, ERR_UNSUPPORTED, "--elastic does not go with --engine %s: the accelerator has the neurons that are in memory",
                       engine);
    if (s->args.elastic > s->memory_bytes)
        return err_set(e, ERR_USAGE, "--elastic %s is above the memory limit of %s", size_exact(s->args.elastic, least, sizeof least),
                       size_exact(s->memory_bytes, first, sizeof first));
    struct setup_elastic *x = s->elastic = malloc(bytes);
    if (!x)
        return err_set(e, ERR_NOMEM, "out of memory for the plan's limits");
    *x = (struct setup_elastic){ .first = s->memory_bytes, .n_hot = n_hot, .n_cold = n_cold, .n = p->n_limits,
                                 .hot = malloc(n_hot * sizeof *x->hot), .cold = malloc(n_cold * sizeof *x->cold) };
    if (!x->hot || !x->cold)
        return err_set(e, ERR_NOMEM, "out of memory for the plan's limits");
    uint32_t *at = (uint32_t *)(void *)&x->limit[n];
    const struct plan_limit *of = plan_pick(p, s->args.elastic);
    *l = of = of ? of : &p->limits[0];
    for (size_t i = 0; i < n; i++, at += n_hot + n_cold) {
        x->limit[i] = (struct limit){ p->limits[i].memory_bytes, other(&s->args, p, of, &p->limits[i]), at, at + n_hot };
        memcpy(at, p->limits[i].batches[0].hot, n_hot * sizeof *at);
        memcpy(at + n_hot, p->limits[i].batches[0].cold, n_cold * sizeof *at);
    }
    x->least = &x->limit[of - p->limits];
    s->memory_bytes = s->args.elastic;
    s->args.beside += bytes + 2 * each + ARENA_SLACK; /* one more: a copy that plan_fit makes */
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
    while (l + 1 < x->limit + x->n && l[1].memory_bytes <= memory)
        l++;
    *out = l;
    if (memory < s->args.elastic)
        return err_set(e, ERR_INFEASIBLE, "a memory limit of %s is below that of --elastic, %s", size_exact(memory, asked, sizeof asked),
                       size_exact(s->args.elastic, least, sizeof least));
    return !l->other ? 0 : err_set(e, ERR_UNSUPPORTED, "a memory limit of %s: the plan's limit of %s has %s than that of %s, by which this "
                                   "runs, and texts would be others", size_exact(memory, asked, sizeof asked),
                                   size_exact(l->memory_bytes, of, sizeof of), l->other,
                                   size_exact(x->least->memory_bytes, least, sizeof least));
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
    s->other |= l != x->least; /* predictions are of that one */
}

int setup_elastic_begin(struct setup *s, struct err *e)
{
    const struct setup_elastic *x = s->elastic;
    const struct limit *l;
    struct plan_fit f;
    int r = 0;
    for (int i = 0; i < x->n && r == 0; i++) {
        if (x->limit[i].other)
            continue;
        r = fit(s, &x->limit[i], UINT64_MAX, &f, e);
        size_t bytes = r < 0 ? 0 : engine_reserve_bytes(&f.budget);
        s->config.reserve = bytes > s->config.reserve ? bytes : s->config.reserve;
    }
    if (r < 0 || (r = find(s, x->first, &l, e)) < 0 || (r = fit(s, l, x->first, &f, e)) < 0)
        return r;
    take(s, l, x->first, &f);
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
    r = engine_resize(g, s->elastic->hot, s->elastic->cold, e);
    if (engine_configuration(g)->choice.hot == s->elastic->hot)
        take(s, l, r == ERR_NOMEM ? s->memory_bytes : memory, &f);
    if (locked && !engine_locked(g, &why))
        log_warn("memory is no longer locked (%s): under pressure it may be swapped", strerror(why));
    return r;
}
