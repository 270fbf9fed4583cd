/* The lists that a layer's steps look up in a cold cache, replayed once for each way, batch size and layer: the
 * tables that residencies and predictions read. Lists are read one after the other (a trace has one reader), and
 * replayed side by side. */
#include "planner/problem_parts.h"

#include "common/cache.h"
#include "common/cpu.h"
#include "common/pool.h"
#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

#define ROUND         8       /* layers replayed side by side */
#define POLICY_LAYERS 8       /* by which a policy is chosen */
#define REPLAY_WORK   400e6   /* cache accesses that a way's tables stand for: a few seconds of one core */

int problem_distinct_layers(const struct inputs *in)
{
    return in->alike ? 1 : in->n_layers;
}

/* Exactly run bundles are all needed: they stream. */
int problem_looks_up(const struct problem *p, int way, int layer)
{
    enum plan_mode mode = p->modes[way];
    if (mode == PLAN_PREDICTED && p->foretell[way]->input[layer] < 0)
        mode = PLAN_EXACT;
    return mode == PLAN_PREDICTED || (mode == PLAN_EXACT && p->shape.n_parts > 1);
}

int problem_steps(const struct problem *p, int way, int layer, uint64_t max_steps, struct inputs_steps *out,
                  struct err *e)
{
    const struct foretell *f = p->foretell[way];
    int r = p->in->steps(p->in, layer, max_steps, out, e);
    if (r < 0 || !f || f->input[layer] < 0)
        return r;
    if ((r = foretell_steps(f, p->in, layer, p->shape.n_parts > 1, out, e)) < 0)
        inputs_steps_done(out);
    return r;
}

int problem_replays_alike(const struct problem *p, const struct problem *o)
{
    if (o->in != p->in || o->n_ways != p->n_ways || o->shape.n_parts != p->shape.n_parts ||
        o->layout.cluster_neurons != p->layout.cluster_neurons)
        return 0;
    const struct layout_part *a = &p->shape.part[p->shape.n_parts - 1], *b = &o->shape.part[p->shape.n_parts - 1];
    int same = a->neurons_per_unit == b->neurons_per_unit && a->n_units == b->n_units;
    for (int i = 0; i < p->n_ways && same; i++) {
        const struct foretell *f = p->foretell[i], *g = o->foretell[i];
        same = p->modes[i] == o->modes[i] && p->mix[i] == o->mix[i] && (f && g ? foretell_same(f, g) : f == g);
    }
    return same;
}

static double looked_up(const struct problem *p, int way, int layer)
{
    const struct foretell *f = p->foretell[way];
    if (!problem_looks_up(p, way, layer))
        return 0;
    if (!f || f->input[layer] < 0)
        return inputs_active(p->in, 0, layer, 0);
    return p->shape.n_parts > 1 ? foretell_active(f, p->in, 0, layer, 0) : foretell_neurons(f, 0, layer, 0);
}

/* Tokens of the window that a layer's share of the work allows: a table runs about half the accesses of a full window,
 * once per cell. */
uint64_t problem_window(const struct problem *p, int way, int layer)
{
    double cells = REPLAY_HOTS * REPLAY_SIZES * 0.4;
    double per_token = looked_up(p, way, layer) * cells * p->in->n_batches * problem_distinct_layers(p->in);
    double tokens = per_token > 0 ? REPLAY_WORK / per_token : 1e9;
    return tokens < 128 ? 128 : tokens > 1e9 ? 1000000000 : (uint64_t)tokens;
}

/* Misses of a layer at three sizes without a hot prefix, by policy. */
static int policy_misses(const struct problem *p, int way, int layer, double out[CACHE_POLICIES], struct err *e)
{
    int part = p->shape.n_parts - 1;
    uint64_t tokens = problem_window(p, way, layer);
    struct inputs_steps s;
    int r = problem_steps(p, way, layer, tokens < 512 ? tokens : 512, &s, e);
    if (r < 0)
        return r;
    uint32_t units = p->shape.part[part].n_units * (uint32_t)p->in->n_blocks;
    const uint32_t slots[3] = { units / 8, units / 4, units / 2 };
    for (int k = 0; k < CACHE_POLICIES && r == 0; k++) {
        double misses[3] = { 0 };
        r = replay_curve(&s, &p->shape, part, p->in->n_blocks, 1, (enum cache_policy)k, 0, slots, 3, misses, e);
        out[k] = misses[0] + misses[1] + misses[2];
    }
    inputs_steps_done(&s);
    return r;
}

/* For the ways [first, first + n) the policy with fewer misses over all layers, or POLICY_LAYERS of them at even
 * distances; of a layer's ways the one that misses less speaks, which is the likelier to be taken. Ties: the first
 * policy. */
static int choose_policy(struct problem *p, int first, int n, struct err *e)
{
    double missed[CACHE_POLICIES] = { 0 };
    int layers = problem_distinct_layers(p->in), asked = layers < POLICY_LAYERS ? layers : POLICY_LAYERS;
    for (int i = 0; i < asked; i++) {
        double least[CACHE_POLICIES] = { 0 };
        int any = 0, l = asked > 1 ? i * (layers - 1) / (asked - 1) : 0;
        for (int w = first; w < first + n; w++) {
            double misses[CACHE_POLICIES] = { 0 };
            if (!problem_looks_up(p, w, l) || problem_alike(p, w, l) < w)
                continue;
            int r = policy_misses(p, w, l, misses, e);
            if (r < 0)
                return r;
            for (int k = 0; k < CACHE_POLICIES; k++)
                least[k] = any && least[k] < misses[k] ? least[k] : misses[k];
            any = 1;
        }
        for (int k = 0; k < CACHE_POLICIES; k++)
            missed[k] += least[k];
    }
    for (int w = first; w < first + n; w++)
        for (int k = 0; k < CACHE_POLICIES; k++)
            if (missed[k] < missed[p->policy[w]])
                p->policy[w] = (enum cache_policy)k;
    return 0;
}

static int choose_policies(struct problem *p, struct err *e)
{
    int r = 0;
    for (int w = 0; w < p->n_ways && r == 0; w = problem_mix_end(p, w))
        r = choose_policy(p, w, problem_mix_end(p, w) - w, e);
    return r;
}

/* Layers of one round of replay: lists are read one after the other (a trace has one reader), replayed side by
 * side. */
struct round {
    struct problem *p;
    int way, first, n;
    struct inputs_steps steps[ROUND];
    int code[ROUND];
    struct err err[ROUND];
};

static void replay_range(void *ctx, int begin, int end, int worker)
{
    struct round *w = ctx;
    const struct problem *p = w->p;
    (void)worker;
    for (int i = begin; i < end; i++)
        for (int b = 0; b < p->in->n_batches && w->code[i] == 0 && w->steps[i].n_steps > 0; b++)
            w->code[i] = replay_layer(&w->steps[i], &p->shape, p->shape.n_parts - 1, p->in->n_blocks,
                                      inputs_batch_sizes[b], p->policy[w->way], 0,
                                      &p->tables[w->way][(size_t)b * (size_t)p->in->n_layers +
                                                         (size_t)(w->first + i)],
                                      &w->err[i]);
}

static int replay_round(struct problem *p, struct pool *pool, struct round *w, int way, int first, struct err *e)
{
    int r = 0;
    *w = (struct round){ .p = p, .way = way, .first = first };
    while (r == 0 && w->n < ROUND && first + w->n < problem_distinct_layers(p->in)) {
        int layer = first + w->n;
        if (problem_looks_up(p, way, layer) && problem_alike(p, way, layer) == way)
            r = problem_steps(p, way, layer, problem_window(p, way, layer), &w->steps[w->n], e);
        w->n += r == 0;
    }
    if (r == 0)
        pool_for(pool, w->n, 1, replay_range, w);
    for (int i = 0; i < w->n; i++) {
        if (r == 0 && (r = w->code[i]) < 0)
            *e = w->err[i];
        inputs_steps_done(&w->steps[i]);
    }
    return r;
}

int problem_copy_tables(struct problem *p, const struct problem *like, struct err *e)
{
    size_t n = (size_t)p->in->n_batches * (size_t)p->in->n_layers;
    memcpy(p->policy, like->policy, sizeof p->policy);
    for (int i = 0; i < p->n_ways; i++) {
        if (!like->tables[i])
            continue;
        if (!(p->tables[i] = malloc(n * sizeof *p->tables[i])))
            return err_set(e, ERR_NOMEM, "out of memory for miss tables");
        memcpy(p->tables[i], like->tables[i], n * sizeof *p->tables[i]);
    }
    return 0;
}

int problem_replay(struct problem *p, int policy, struct err *e)
{
    int r = 0, cpus[ROUND], n_cpus = cpu_allowed(cpus, ROUND);
    struct pool *pool;
    if (policy < 0 && (r = choose_policies(p, e)) < 0)
        return r;
    struct round *w = malloc(sizeof *w);
    int ok = w != NULL, layers = p->in->n_layers;
    for (int i = 0; i < p->n_ways; i++) {
        if (p->modes[i] != PLAN_DENSE)
            p->tables[i] = calloc((size_t)p->in->n_batches * (size_t)layers, sizeof *p->tables[i]);
        ok &= p->tables[i] || p->modes[i] == PLAN_DENSE;
    }
    if (!ok)
        r = err_set(e, ERR_NOMEM, "out of memory for miss tables");
    else if ((r = pool_new(n_cpus > 0 ? n_cpus : 1, NULL, &pool, e)) == 0) {
        struct progress show;
        progress_init(&show, "replaying the trace", "layers", (uint64_t)(layers * p->n_ways));
        for (int i = 0; i < p->n_ways; i++)
            for (int l = 0; l < problem_distinct_layers(p->in) && r == 0 && p->tables[i]; l += ROUND) {
                r = replay_round(p, pool, w, i, l, e);
                progress_set(&show, (uint64_t)(i * layers + l + ROUND));
            }
        progress_done(&show);
        pool_free(pool);
    }
    for (int i = 0; i < p->n_ways && r == 0 && p->in->alike; i++)
        for (int k = 0; k < p->in->n_batches * layers && p->tables[i]; k++)
            p->tables[i][k] = p->tables[i][k / layers * layers];
    free(w);
    return r;
}
