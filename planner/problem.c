/* Building the problem. The space of residencies of a layer is a grid: prefix of each part in steps of a few
 * clusters, slots of the cold cache at the replay's sizes. What a residency costs in time depends on the
 * device only through how long its flow (bytes streamed, reads) takes, so the grid is thinned once
 * to residencies that no other beats in bytes and in every flow, and each configuration of the
 * device then prices the few hundred that remain. Curves of all configurations would be large;
 * all get their proven bound, and the KEPT with the best ones keep their curves. */
#include "planner/problem.h"

#include "common/cache.h"
#include "common/cpu.h"
#include "common/pool.h"
#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   128
#define ROUND       8       /* layers replayed side by side */
#define KEPT        6       /* configurations with curves, beside the best of each number of threads */
#define MAX_STEPS   32      /* of a prefix */
#define MAX_COLD    40      /* (prefix, slots) pairs of the last part, */
#define MAX_ALONE   400     /* and of the only part */
#define POLICY_LAYERS 8     /* by which a policy is chosen */
#define REPLAY_WORK 400e6   /* cache accesses that a way's tables stand for: a few seconds of one core */

/* --- replay --- */

/* Layers to work out; the others are copies where all are alike. */
static int distinct_layers(const struct inputs *in)
{
    return in->alike ? 1 : in->n_layers;
}

/* Does the way look units of this layer up in a cold cache? Exactly run bundles are all needed: they stream. */
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

/* Does another problem replay the same lists over the same units? */
static int replays_alike(const struct problem *p, const struct problem *o)
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
    double per_token = looked_up(p, way, layer) * cells * p->in->n_batches * distinct_layers(p->in);
    double tokens = per_token > 0 ? REPLAY_WORK / per_token : 1e9;
    return tokens < 128 ? 128 : tokens > 1e9 ? 1000000000 : (uint64_t)tokens;
}

int problem_alike(const struct problem *p, int way, int layer)
{
    for (int w = 0; w < way && p->mix[way] > 0; w++)
        if (p->mix[w] == p->mix[way] && p->foretell[w]->input[layer] == p->foretell[way]->input[layer])
            return w;
    return way;
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
    int layers = distinct_layers(p->in), asked = layers < POLICY_LAYERS ? layers : POLICY_LAYERS;
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

/* The ways of a mix, or one by itself, end before this one. */
static int mix_end(const struct problem *p, int first)
{
    int end = first + 1;
    while (p->mix[first] > 0 && end < p->n_ways && p->mix[end] == p->mix[first])
        end++;
    return end;
}

static int choose_policies(struct problem *p, struct err *e)
{
    int r = 0;
    for (int w = 0; w < p->n_ways && r == 0; w = mix_end(p, w))
        r = choose_policy(p, w, mix_end(p, w) - w, e);
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
    while (r == 0 && w->n < ROUND && first + w->n < distinct_layers(p->in)) {
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

/* Policies and tables of a problem that replays alike, under a policy chosen alike. */
static int copy_tables(struct problem *p, const struct problem *like, struct err *e)
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

static int replay_all(struct problem *p, int policy, struct err *e)
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
            for (int l = 0; l < distinct_layers(p->in) && r == 0 && p->tables[i]; l += ROUND) {
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

/* --- residencies --- */

int problem_keep_bytes(const struct problem *p, const struct cost_keep *k, int64_t *out, struct err *e)
{
    const struct inputs *in = p->in;
    size_t parts = (size_t)p->shape.n_parts, blocks = (size_t)in->n_blocks, layers = (size_t)in->n_layers;
    uint32_t *hot = calloc(layers * blocks * parts, sizeof *hot), *cold = calloc(layers * parts, sizeof *cold);
    struct budget_choice c = { .context = 1, .max_batch = 1, .prefill_chunk = 1, .threads = 1, .io_lanes = 1,
                               .queue_depth = 1, .hot = hot, .cold = cold };
    struct budget b;
    int r = 0;
    if (!hot || !cold) {
        r = err_set(e, ERR_NOMEM, "out of memory for the account");
    } else {
        for (size_t i = 0; i < blocks; i++)
            for (size_t q = 0; q < parts; q++)
                hot[i * parts + q] = k->hot[q];
        cold[parts - 1] = k->slots;
        r = budget_compute(&p->budget, &c, &b, e);
    }
    if (r == 0)
        *out = (int64_t)((b.total - b.floor) / SOLVE_BYTE_UNIT);
    free(hot);
    free(cold);
    return r;
}

struct keep_list {
    struct problem_keep *at;
    int n, cap;
};

static int push(struct problem *p, struct keep_list *list, int way, int batch, int layer, struct cost_keep k,
                struct err *e)
{
    k.way = way;
    if (list->n == list->cap) {
        int cap = list->cap ? 2 * list->cap : 256;
        struct problem_keep *grown = realloc(list->at, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for residencies");
        list->at = grown;
        list->cap = cap;
    }
    struct problem_keep *o = &list->at[list->n];
    o->keep = k;
    struct cost_choice c = { .mode = p->modes[way], .way = way, .foretell = p->foretell[way] };
    o->flow = cost_flow_of(p->in, &p->shape, &c, batch, layer, problem_table(p, way, batch, layer), &k);
    int r = problem_keep_bytes(p, &k, &o->bytes, e);
    list->n += r == 0;
    return r;
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct problem_keep *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    double x = a->flow.reads + a->flow.stream_bytes + a->flow.single_reads;
    double y = b->flow.reads + b->flow.stream_bytes + b->flow.single_reads;
    if (x != y)
        return x < y ? -1 : 1;
    return a->keep.hot[0] != b->keep.hot[0] ? (a->keep.hot[0] > b->keep.hot[0] ? -1 : 1) :
        a->keep.slots < b->keep.slots ? -1 : 1;
}

/* Sort by bytes and keep those that lower the reads; `most` of them at evenly spread places, both ends included. */
static void thin_cold(struct keep_list *list, int most)
{
    int n = 0;
    qsort(list->at, (size_t)list->n, sizeof *list->at, by_bytes);
    for (int i = 0; i < list->n; i++)
        if (n == 0 || list->at[i].flow.reads < list->at[n - 1].flow.reads)
            list->at[n++] = list->at[i];
    if (n > most) {
        for (int i = 0; i < most; i++)
            list->at[i] = list->at[(long)i * (n - 1) / (most - 1)];
        n = most;
    }
    list->n = n;
}

static int cluster_steps(const struct problem *p, uint32_t *step)
{
    uint32_t clusters = p->shape.n_clusters;
    *step = (clusters + MAX_STEPS - 1) / MAX_STEPS;
    return (int)((clusters + *step - 1) / *step);
}

static uint32_t prefix(const struct problem *p, uint32_t step, int i)
{
    uint64_t n = (uint64_t)i * step * p->layout.cluster_neurons;
    return n < (uint64_t)p->shape.n_ff ? (uint32_t)n : (uint32_t)p->shape.n_ff;
}

/* (prefix, slots) of the last part, thinned; part 0 empty. Points of the replay's own grid: a plan's miss figures are
 * those of a run, not of a line between two. */
static int cold_grid(struct problem *p, int way, int batch, int layer, struct keep_list *out, struct err *e)
{
    const struct replay_table *t = problem_table(p, way, batch, layer);
    int last = p->shape.n_parts - 1, r = 0;
    for (int h = 0; h < REPLAY_HOTS; h++) {
        struct cost_keep k = { .slots = 0 };
        k.hot[last] = t->hot[h];
        for (int s = 0; s < REPLAY_SIZES && r == 0 && (h == 0 || t->hot[h] > t->hot[h - 1]); s++) {
            k.slots = t->slots[h][s];
            if (s == 0 || k.slots > t->slots[h][s - 1])
                r = push(p, out, way, batch, layer, k, e);
        }
    }
    thin_cold(out, last > 0 ? MAX_COLD : MAX_ALONE);
    return r;
}

static int layer_keeps(struct problem *p, int way, int batch, int layer, struct problem_keeps *out, struct err *e)
{
    struct keep_list cold = { 0 }, all = { 0 };
    int r = 0, last = p->shape.n_parts - 1;
    uint32_t step;
    int n = cluster_steps(p, &step), has_cold = problem_looks_up(p, way, layer);
    if (has_cold)
        r = cold_grid(p, way, batch, layer, &cold, e);
    if (has_cold && last == 0) {
        all = cold;
        cold = (struct keep_list){ 0 };
        n = -1;
    }
    for (int i = 0; i <= n && r == 0; i++) {
        struct cost_keep k = { .slots = 0 };
        for (int q = 0; q <= last; q++)
            k.hot[q] = prefix(p, step, i);
        if (!has_cold)
            r = push(p, &all, way, batch, layer, k, e);
        for (int j = 0; j < cold.n && r == 0; j++) {
            struct cost_keep both = cold.at[j].keep;
            both.hot[0] = k.hot[0];
            r = push(p, &all, way, batch, layer, both, e);
        }
    }
    free(cold.at);
    if (r < 0) {
        free(all.at);
        return r;
    }
    qsort(all.at, (size_t)all.n, sizeof *all.at, by_bytes);
    *out = (struct problem_keeps){ all.n, all.at };
    return 0;
}

static int copy_keeps(const struct problem_keeps *from, struct problem_keeps *out, struct err *e)
{
    size_t bytes = (size_t)from->n * sizeof *from->keep;
    struct problem_keep *keep = malloc(bytes);
    if (!keep)
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    memcpy(keep, from->keep, bytes);
    *out = (struct problem_keeps){ from->n, keep };
    return 0;
}

uint64_t problem_predictor_bytes(const struct problem *p, int way, int layer)
{
    const struct foretell *f = p->foretell[way];
    return f ? foretell_layer_bytes(p->in, f->input, layer) : 0;
}

/* The least that predictors of a layer take in any way of a group. */
static uint64_t least_predictor(const struct problem *p, const struct problem_group *g, int layer)
{
    uint64_t least = problem_predictor_bytes(p, g->first, layer);
    for (int w = g->first + 1; w < g->first + g->n; w++) {
        uint64_t bytes = problem_predictor_bytes(p, w, layer);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static void add_group(struct problem *p, int first, int n)
{
    struct problem_group g = { .first = first, .n = n };
    struct budget_predictors *most = &g.predictors;
    for (int w = first; w < first + n && p->foretell[w]; w++) {
        const struct budget_predictors *x = &p->foretell[w]->predictors;
        most->rank = x->rank > most->rank ? x->rank : most->rank;
        most->buffer_bytes = x->buffer_bytes > most->buffer_bytes ? x->buffer_bytes : most->buffer_bytes;
        most->least = x->least > most->least ? x->least : most->least;
        most->most = x->most > most->most ? x->most : most->most;
    }
    for (int l = 0; l < p->in->n_layers; l++)
        most->bytes += least_predictor(p, &g, l);
    p->group[p->n_groups++] = g;
}

/* A mix has scratch for its largest rank, so ways that need less are tried by themselves as well. */
static void find_groups(struct problem *p)
{
    for (int w = 0, end; w < p->n_ways; w = end) {
        end = mix_end(p, w);
        add_group(p, w, end - w);
        int rank = p->group[p->n_groups - 1].predictors.rank;
        for (int k = w; end - w > 1 && k < end; k++)
            if (p->foretell[k]->predictors.rank < rank)
                add_group(p, k, 1);
    }
}

int problem_shape(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                  const struct problem_way *ways, int n_ways, struct notes *notes, struct err *e)
{
    struct problem o = { .in = in, .hw = hw, .notes = notes, .layout = *l, .n_ways = n_ways };
    int r;
    if ((r = layout_derive(l, in->h.d_model, in->h.n_ff, &o.shape, e)) < 0 ||
        (r = inputs_budget_model(in, l, &o.budget, e)) < 0)
        return r;
    for (int i = 0; i < n_ways && r == 0; i++) {
        o.modes[i] = ways[i].mode;
        o.mix[i] = ways[i].mix;
        if (ways[i].mode == PLAN_PREDICTED)
            r = foretell_new(in, &o.shape, ways[i].recall, ways[i].input, ways[i].exempt, &o.foretell[i], e);
    }
    if (r < 0) {
        problem_done(&o);
        return r;
    }
    find_groups(&o);
    *p = o;
    return 0;
}

int problem_prepare(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                    const struct problem_way *ways, int n_ways, int policy, const struct problem *like,
                    struct notes *notes, struct err *e)
{
    struct problem o;
    int cold = 0, r = problem_shape(&o, in, hw, l, ways, n_ways, notes, e);
    if (r < 0)
        return r;
    for (int i = 0; i < n_ways; i++)
        for (int k = 0; k < in->n_layers; k++)
            cold |= problem_looks_up(&o, i, k);
    for (int i = 0; i < n_ways; i++)
        o.policy[i] = policy >= 0 ? (enum cache_policy)policy : CACHE_LRU;
    if (cold && in->window_tokens > 0)
        r = like && like->keeps && replays_alike(&o, like) ? copy_tables(&o, like, e) : replay_all(&o, policy, e);
    else if (cold)
        r = err_set(e, ERR_UNSUPPORTED, "the trace has no window of activation maps, which the cold cache is "
                                        "planned from");
    size_t n = (size_t)n_ways * (size_t)in->n_batches * (size_t)in->n_layers;
    if (r == 0 && !(o.keeps = calloc(n, sizeof *o.keeps)))
        r = err_set(e, ERR_NOMEM, "out of memory for residencies");
    for (int w = 0; w < n_ways && r == 0; w++)
        for (int b = 0; b < in->n_batches && r == 0; b++)
            for (int k = 0; k < in->n_layers && r == 0; k++)
                if (problem_alike(&o, w, k) == w)
                    r = k < distinct_layers(in) ? layer_keeps(&o, w, b, k, problem_keeps_of(&o, w, b, k), e) :
                                                  copy_keeps(problem_keeps_of(&o, w, b, 0), problem_keeps_of(&o, w, b, k), e);
    *p = o;
    if (r < 0)
        problem_done(p);
    return r;
}

static void config_done(const struct problem *p, struct solve_config *c)
{
    int n = p->in->n_layers * p->in->n_batches;
    for (int i = 0; c->curves && i < n; i++)
        solve_curve_done(&c->curves[i]);
    for (int i = 0; c->kinds && i < n * c->n_kinds; i++)
        solve_curve_done(&c->kinds[i]);
    free(c->curves);
    free(c->kinds);
    c->curves = c->kinds = NULL;
}

static void fill_done(struct problem *p)
{
    for (int i = 0; i < p->sp.n_configs; i++)
        config_done(p, &p->sp.configs[i]);
    free(p->sp.configs);
    free(p->choices);
    p->sp = (struct solve_problem){ 0 };
    p->choices = NULL;
}

void problem_done(struct problem *p)
{
    if (!p->in)
        return;
    fill_done(p);
    size_t n = (size_t)p->n_ways * (size_t)p->in->n_batches * (size_t)p->in->n_layers;
    for (size_t i = 0; p->keeps && i < n; i++)
        free(p->keeps[i].keep);
    free(p->keeps);
    for (int i = 0; i < p->n_ways; i++) {
        free(p->tables[i]);
        foretell_free(p->foretell[i]);
    }
    *p = (struct problem){ 0 };
}

/* --- one memory limit --- */

static int64_t ticks_of(double ns)
{
    return ns < 1e14 ? (int64_t)llround(ns * SOLVE_TICKS_PER_NS) : (int64_t)1e14 * SOLVE_TICKS_PER_NS;
}

int problem_backends(const struct hw *hw, enum hw_backend out[2])
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

void problem_set_backend(struct cost_choice *c, enum hw_backend b)
{
    c->backend = b;
    c->lanes = b == HW_PREAD ? (c->depth < BUDGET_MAX_LANES ? c->depth : BUDGET_MAX_LANES) : 1;
}

int problem_account(const struct problem *p, const struct cost_choice *c, const struct problem_limits *lim,
                    const struct cost_keep *keeps, struct budget *out, struct err *e)
{
    size_t layers = (size_t)p->in->n_layers, blocks = (size_t)p->in->n_blocks, parts = (size_t)p->shape.n_parts;
    uint32_t *hot = calloc(layers * blocks * parts, sizeof *hot), *cold = calloc(layers * parts, sizeof *cold);
    int r = 0;
    if (!hot || !cold)
        r = err_set(e, ERR_NOMEM, "out of memory for the account");
    for (size_t l = 0; keeps && r == 0 && l < layers; l++) {
        for (size_t i = 0; i < blocks * parts; i++)
            hot[l * blocks * parts + i] = keeps[l].hot[i % parts];
        cold[l * parts + parts - 1] = keeps[l].slots;
    }
    struct budget_choice b = { .context = c->context, .kv_f16 = c->kv_f16, .max_batch = lim->max_batch,
                               .prefill_chunk = lim->prefill_chunk, .threads = c->threads, .io_lanes = c->lanes,
                               .queue_depth = c->depth, .hot = hot, .cold = cold };
    if (c->foretell) {
        b.predictors = p->group[c->group].predictors;
        b.predictor_bytes = b.predictors.bytes;
    }
    if (r == 0)
        r = budget_compute(&p->budget, &b, out, e);
    free(hot);
    free(cold);
    return r;
}

int problem_least(const struct problem *p, const struct problem_limits *lim, struct cost_choice *out, struct err *e)
{
    struct problem_limits one = *lim;
    uint64_t least = UINT64_MAX;
    one.prefill_chunk = 1;
    for (int i = 0; i < p->n_groups; i++) {
        int w = p->group[i].first;
        struct cost_choice c = { .mode = p->modes[w], .way = w, .group = i, .foretell = p->foretell[w],
                                 .model = lim->model, .stat = lim->stat, .n_classes = 1, .n = { 1 }, .threads = 1, .depth = 1, .act_q8 = lim->act_q8,
                                 .kv_f16 = lim->kv_f16, .context = lim->context };
        struct budget b;
        problem_set_backend(&c, HW_ANY_BACKEND);
        int r = problem_account(p, &c, &one, NULL, &b, e);
        if (r < 0)
            return r;
        if (b.total < least) {
            least = b.total;
            *out = c;
        }
    }
    return 0;
}

/* One (batch size, layer) of a configuration's curves. */
struct pricing {
    const struct problem *p;
    const struct cost_choice *c;
    const struct cost_rates *rates;
    int batch_index, layer;
    struct solve_point *pts;    /* grown as needed */
    int n, cap;
};

static int add_price(struct pricing *w, struct solve_point at, struct err *e)
{
    if (w->n == w->cap) {
        int cap = w->cap ? 2 * w->cap : 512;
        struct solve_point *grown = realloc(w->pts, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for curves");
        w->pts = grown;
        w->cap = cap;
    }
    w->pts[w->n++] = at;
    return 0;
}

/* The residencies of a layer under one way of the group. What ways do not share of time and memory is the points';
 * *shared gets the rest. */
static int price_way(struct pricing *w, int way, int kind, double *shared, double *floor_ns, struct err *e)
{
    const struct problem *p = w->p;
    const struct problem_group *g = &p->group[w->c->group];
    const struct problem_keeps *k = problem_keeps_of(p, way, w->batch_index, w->layer);
    struct cost_choice c = *w->c;
    struct cost_layer cl;
    c.way = way;
    c.foretell = p->foretell[way];
    cost_layer_of(p->hw, p->in, &p->shape, &c, w->rates, w->batch_index, w->layer, &cl, p->notes);
    uint64_t more = problem_predictor_bytes(p, way, w->layer) - least_predictor(p, g, w->layer);
    int64_t bytes = (int64_t)((more + budget_table_bytes(more)) / SOLVE_BYTE_UNIT);
    double own = g->n > 1 ? cl.predict_ns : 0;
    *shared = cl.attention_ns + cl.predict_ns - own;
    *floor_ns = c.model == PLAN_COST_PAPER ? cl.compute_ns : 0;
    int r = 0;
    for (int i = 0; i < k->n && r == 0; i++) {
        double ns = own + cost_ffn_part_ns(&c, w->rates, &cl, &k->keep[i].flow);
        uint32_t id = (uint32_t)i * PROBLEM_MAX_WAYS + (uint32_t)way;
        r = add_price(w, (struct solve_point){ k->keep[i].bytes + bytes, ticks_of(ns), id, kind }, e);
    }
    return r;
}

/* All ways of the group together, and each by itself where batch sizes have to agree on one. */
static int price_layer(struct pricing *w, struct solve_config *out, double *shared, double *floor_ns, struct err *e)
{
    const struct problem_group *g = &w->p->group[w->c->group];
    size_t layers = (size_t)w->p->in->n_layers, all = layers * (size_t)w->p->in->n_batches;
    size_t at = (size_t)w->batch_index * layers + (size_t)w->layer;
    int r = 0;
    w->n = 0;
    for (int way = g->first; way < g->first + g->n && r == 0; way++) {
        int from = w->n, alike = problem_alike(w->p, way, w->layer);
        if (alike < way && alike >= g->first)
            continue;
        r = price_way(w, alike, g->n > 1 ? way - g->first : 0, shared, floor_ns, e);
        if (r == 0 && out->kinds)
            r = solve_curve_init(&out->kinds[(size_t)(way - g->first) * all + at], w->pts + from, w->n - from, e);
    }
    return r < 0 ? r : solve_curve_init(&out->curves[at], w->pts, w->n, e);
}

/* Device figures of all layers at a choice. */
static int fill_curves(struct problem *p, const struct cost_choice *c, struct solve_config *out, struct err *e)
{
    const struct inputs *in = p->in;
    size_t all = (size_t)in->n_batches * (size_t)in->n_layers;
    struct pricing w = { .p = p, .c = c };
    int r = 0;
    out->n_kinds = p->group[c->group].n;
    out->curves = calloc(all, sizeof *out->curves);
    if (out->n_kinds > 1 && in->n_batches > 1)
        out->kinds = calloc(all * (size_t)out->n_kinds, sizeof *out->kinds);
    if (!out->curves || (out->n_kinds > 1 && in->n_batches > 1 && !out->kinds))
        return err_set(e, ERR_NOMEM, "out of memory for curves");
    for (int b = 0; b < in->n_batches && r == 0; b++) {
        struct cost_rates rates;
        if ((r = cost_rates_of(p->hw, in, &p->shape, c, inputs_batch_sizes[b], &rates, p->notes, e)) < 0)
            break;
        double fixed = cost_head_ns(p->hw, in, c, &rates, inputs_batch_sizes[b], p->notes), floor_ns = 0;
        w.rates = &rates;
        w.batch_index = b;
        for (w.layer = 0; w.layer < in->n_layers && r == 0; w.layer++) {
            double shared = 0, least = 0;
            r = price_layer(&w, out, &shared, &least, e);
            fixed += shared;
            floor_ns += least;
        }
        out->fixed_ticks[b] = ticks_of(fixed);
        out->floor_ticks[b] = ticks_of(floor_ns);
    }
    free(w.pts);
    return r;
}

static int fill_memory(const struct problem *p, const struct cost_choice *c, const struct problem_limits *lim,
                       struct solve_config *out, struct err *e)
{
    struct budget b, one;
    struct cost_choice least = *c;
    int r = problem_account(p, c, lim, NULL, &b, e);
    if (r < 0)
        return r;
    out->fixed_bytes = (int64_t)(b.total / SOLVE_BYTE_UNIT);
    least.context = 1;
    if (c->context > 1 && (r = problem_account(p, &least, lim, NULL, &one, e)) == 0)
        out->context_bytes = (int64_t)((b.total - one.total) / SOLVE_BYTE_UNIT) / (c->context - 1);
    return r;
}

/* Is this the kept configuration with the best bound of those with as many threads? */
static int best_of_threads(const struct problem *p, int config)
{
    for (int i = 0; i < p->sp.n_configs; i++)
        if (i != config && p->sp.configs[i].curves && p->choices[i].threads == p->choices[config].threads &&
            (p->sp.configs[i].bound < p->sp.configs[config].bound ||
             (p->sp.configs[i].bound == p->sp.configs[config].bound && i < config)))
            return 0;
    return 1;
}

/* Drop the curves of the kept config with the largest bound when there are more than KEPT, those apart that are the
 * best with their number of threads. */
static void drop_worst(struct problem *p)
{
    int n = 0, worst = -1;
    for (int i = 0; i < p->sp.n_configs; i++)
        if (p->sp.configs[i].curves && !best_of_threads(p, i)) {
            n++;
            if (worst < 0 || p->sp.configs[i].bound >= p->sp.configs[worst].bound)
                worst = i;
        }
    if (n > KEPT)
        config_done(p, &p->sp.configs[worst]);
}

static int add_config(struct problem *p, const struct problem_limits *lim, const struct cost_choice *c,
                      struct err *e)
{
    struct solve_config o = { .depth = c->depth, .id = p->sp.n_configs };
    memcpy(o.n, c->n, sizeof o.n);
    int r;
    if ((r = fill_memory(p, c, lim, &o, e)) < 0 || (r = fill_curves(p, c, &o, e)) < 0 ||
        (r = solve_bound(&p->sp, &o, e)) < 0) {
        config_done(p, &o);
        return r;
    }
    if (o.bound == SOLVE_NEVER || !solve_cores_ok(&p->sp, &o))
        config_done(p, &o);
    p->choices[p->sp.n_configs] = *c;
    p->sp.configs[p->sp.n_configs++] = o;
    drop_worst(p);
    return 0;
}

/* Core counts of a class to try: all of them up to 8, then powers of two, all but one, and all. */
static int useful_count(int n, int most)
{
    return n <= 8 || n >= most - 1 || (n & (n - 1)) == 0;
}

/* The next vector of core counts, in counting order; 0 at the end. */
static int next_cores(const struct problem *p, struct cost_choice *c)
{
    for (int k = 0; k < c->n_classes; k++) {
        int most = p->hw->classes[k].n_cores;
        do {
            c->n[k]++;
        } while (c->n[k] <= most && !useful_count(c->n[k], most));
        if (c->n[k] <= most)
            return 1;
        c->n[k] = 0;
    }
    return 0;
}

#define MAX_CONFIGS 4096

/* Every backend and queue depth with these cores. */
static int add_depths(struct problem *p, const struct problem_limits *lim, struct cost_choice *c, struct err *e)
{
    enum hw_backend backends[2];
    int n = problem_backends(p->hw, backends), r = 0;
    for (int i = 0; i < n && r == 0; i++)
        for (c->depth = 1; c->depth <= MAX_DEPTH && r == 0; c->depth *= 2) {
            problem_set_backend(c, backends[i]);
            if (p->sp.n_configs == MAX_CONFIGS)
                notes_add(p->notes, "%s: more than %d core and depth choices; the first were searched", p->hw->name,
                          MAX_CONFIGS);
            else
                r = add_config(p, lim, c, e);
        }
    return r;
}

int problem_fill(struct problem *p, const struct problem_limits *lim, struct err *e)
{
    static const int weight[SOLVE_MAX_BATCHES] = { 8, 4, 2, 1 }; /* 1 / batch: time per token counts */
    int n_classes = p->hw->n_classes > 0 ? p->hw->n_classes : 1, r = 0;
    fill_done(p);
    p->sp = (struct solve_problem){ .n_layers = p->in->n_layers, .n_batches = p->in->n_batches,
                                    .n_classes = n_classes,
                                    .memory = (int64_t)(lim->memory_bytes / SOLVE_BYTE_UNIT),
                                    .max_ticks = SOLVE_NEVER, .context = lim->context };
    for (int b = 0; b < p->sp.n_batches; b++)
        p->sp.weight[b] = weight[b];
    if (lim->min_tokens_per_s > 0)
        p->sp.max_ticks = ticks_of(1e9 / lim->min_tokens_per_s);
    for (int k = 0; k < n_classes; k++) {
        int has = p->hw->n_classes > 0 ? p->hw->classes[k].n_cores : 1;
        p->sp.cores[k] = lim->cores[k] >= 0 && lim->cores[k] < has ? lim->cores[k] : has;
    }
    p->sp.configs = calloc(MAX_CONFIGS, sizeof *p->sp.configs);
    p->choices = calloc(MAX_CONFIGS, sizeof *p->choices);
    if (!p->sp.configs || !p->choices)
        r = err_set(e, ERR_NOMEM, "out of memory for configurations");
    for (int i = 0; i < p->n_groups && r == 0; i++) {
        int w = p->group[i].first;
        struct cost_choice c = { .mode = p->modes[w], .way = w, .group = i, .foretell = p->foretell[w],
                                 .model = lim->model, .stat = lim->stat,
                                 .n_classes = n_classes, .act_q8 = lim->act_q8, .kv_f16 = lim->kv_f16,
                                 .context = lim->context };
        if (p->hw->n_classes == 0)
            c.n[0] = 1;
        while (r == 0 && (p->hw->n_classes == 0 || next_cores(p, &c))) {
            c.threads = 0;
            for (int k = 0; k < n_classes; k++)
                c.threads += c.n[k];
            if (c.threads <= BUDGET_MAX_THREADS)
                r = add_depths(p, lim, &c, e);
            if (p->hw->n_classes == 0)
                break;
        }
    }
    if (r < 0)
        fill_done(p);
    return r;
}

const struct problem_keep *problem_chosen(const struct problem *p, const struct solve_result *r, int batch_index,
                                          int layer)
{
    size_t at = (size_t)batch_index * (size_t)p->in->n_layers + (size_t)layer;
    uint32_t id = solve_curve_of(&p->sp, r, batch_index, layer)->point[r->choice[at]].id;
    return &problem_keeps_of(p, (int)(id % PROBLEM_MAX_WAYS), batch_index, layer)->keep[id / PROBLEM_MAX_WAYS];
}

int problem_predict(const struct problem *p, const struct cost_choice *c, int batch_index,
                    const struct cost_keep *keeps, struct plan_figures *out, struct err *e)
{
    const struct inputs *in = p->in;
    int batch = inputs_batch_sizes[batch_index];
    struct cost_rates rates;
    struct cost_flow *flows = calloc((size_t)in->n_layers, sizeof *flows);
    int r = flows ? cost_rates_of(p->hw, in, &p->shape, c, batch, &rates, p->notes, e) :
                    err_set(e, ERR_NOMEM, "out of memory for predictions");
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        struct cost_layer cl;
        struct cost_choice own = *c;
        own.way = keeps[l].way;
        own.foretell = p->foretell[own.way];
        cost_layer_of(p->hw, in, &p->shape, &own, &rates, batch_index, l, &cl, p->notes);
        flows[l] = cost_flow_of(in, &p->shape, &own, batch_index, l, problem_table(p, own.way, batch_index, l),
                                &keeps[l]);
        out->layers[l] = cost_figures(&own, &rates, &cl, &flows[l]);
    }
    if (r == 0)
        cost_totals(c, batch, cost_head_ns(p->hw, in, c, &rates, batch, p->notes), flows, in->n_layers, out);
    free(flows);
    return r;
}
