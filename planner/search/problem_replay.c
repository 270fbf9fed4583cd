/* The lists that a layer's steps look up in a cold cache, replayed once for each way, batch size and layer: the
 * tables that residencies and predictions read. Lists are read one after the other (a trace has one reader), and
 * replayed side by side. Those that a policy was chosen by wait for their replay; a window is short (problem_window). */
#include "planner/search/problem_parts.h"

#include "common/base/cpu.h"
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "common/plan/cache.h"

#include <stdlib.h>
#include <string.h>

#define ROUND         8       /* layers replayed side by side */
#define POLICY_LAYERS 8       /* by which a policy is chosen, */
#define POLICY_TOKENS 512     /* and tokens of each */
#define REPLAY_WORK   400e6   /* cache accesses that a way's tables stand for: a few seconds of one core */

int problem_representative(const struct problem *p, int layer)
{
    return p->in->equivalent ? 0 : p->every > 1 ? layer - layer % p->every : layer;
}

/* The speakers, ascending; how many. */
static int representatives_of(const struct problem *p, int *out)
{
    int n = 0;
    for (int l = 0; l < p->in->n_layers; l++)
        if (problem_representative(p, l) == l)
            out[n++] = l;
    return n;
}

static int distinct_layers(const struct inputs *in)
{
    return in->equivalent ? 1 : in->n_layers;
}

/* Exactly run bundles are all needed: they stream. */
int problem_looks_up(const struct problem *p, int variant, int layer)
{
    enum plan_mode mode = p->modes[variant];
    if (mode == PLAN_PREDICTED && p->predicted[variant]->input[layer] < 0)
        mode = PLAN_EXACT;
    return mode == PLAN_PREDICTED || (mode == PLAN_EXACT && p->shape.n_parts > 1);
}

int problem_looks_up_any(const struct problem *p)
{
    for (int i = 0; i < p->n_variants; i++)
        for (int k = 0; k < p->in->n_layers; k++)
            if (problem_looks_up(p, i, k))
                return 1;
    return 0;
}

/* Lists of firing neurons as a way makes them, of at most max_steps; s is used up. shared: as of predicted_steps. */
static int way_steps(const struct problem *p, int variant, int layer, struct predicted_shared **shared, struct inputs_steps *s,
                     struct err *e)
{
    const struct predicted *f = p->predicted[variant];
    int r = f && f->input[layer] >= 0 ? predicted_steps(f, p->in, layer, p->shape.n_parts > 1, shared, s, e) : 0;
    if (r < 0)
        inputs_steps_done(s);
    return r;
}

int problem_steps(const struct problem *p, int variant, int layer, uint64_t max_steps, struct inputs_steps *out,
                  struct err *e)
{
    int r = p->in->steps(p->in, layer, max_steps, out, e);
    return r < 0 ? r : way_steps(p, variant, layer, NULL, out, e);
}

int problem_replays_equivalent(const struct problem *p, const struct problem *o)
{
    if (o->in != p->in || o->n_variants != p->n_variants || o->shape.n_parts != p->shape.n_parts ||
        o->layout.cluster_neurons != p->layout.cluster_neurons)
        return 0;
    const struct layout_part *a = &p->shape.part[p->shape.n_parts - 1], *b = &o->shape.part[p->shape.n_parts - 1];
    int same = a->neurons_per_unit == b->neurons_per_unit && a->n_units == b->n_units;
    for (int i = 0; i < p->n_variants && same; i++) {
        const struct predicted *f = p->predicted[i], *g = o->predicted[i];
        same = p->modes[i] == o->modes[i] && p->mix[i] == o->mix[i] && (f && g ? predicted_same(f, g) : f == g);
    }
    return same;
}

static double looked_up(const struct problem *p, int variant, int layer)
{
    const struct predicted *f = p->predicted[variant];
    if (!problem_looks_up(p, variant, layer))
        return 0;
    if (!f || f->input[layer] < 0)
        return inputs_active(p->in, 0, layer, 0);
    return p->shape.n_parts > 1 ? predicted_active(f, p->in, 0, layer, 0) : predicted_neurons(f, 0, layer, 0);
}

/* Tokens of the window that a layer's share of the work allows: a table runs about half the accesses of a full window,
 * once per cell. */
uint64_t problem_window(const struct problem *p, int variant, int layer)
{
    double cells = REPLAY_HOTS * REPLAY_SIZES * 0.4;
    double per_token = looked_up(p, variant, layer) * cells * p->in->n_batches * distinct_layers(p->in);
    double tokens = per_token > 0 ? REPLAY_WORK / per_token : 1e9;
    return tokens < 128 ? 128 : tokens > 1e9 ? 1000000000 : (uint64_t)tokens;
}

/* --- lists --- */

/* A way's lists of a layer, once made, wait here for whoever asks next. */
struct lists {
    const struct problem *p;
    struct inputs_steps *made;  /* [n_variants][n_layers]; n_steps 0: not */
};

static struct inputs_steps *lists_at(const struct lists *w, int variant, int layer)
{
    return &w->made[(size_t)variant * (size_t)w->p->in->n_layers + (size_t)layer];
}

static void lists_done(struct lists *w)
{
    for (int i = 0; w->made && i < w->p->n_variants * w->p->in->n_layers; i++)
        inputs_steps_done(&w->made[i]);
    free(w->made);
}

static int first_steps(const struct inputs_steps *s, uint64_t most, struct inputs_steps *out, struct err *e)
{
    int n = (uint64_t)s->n_steps < most ? s->n_steps : (int)most;
    struct inputs_steps o = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *o.start),
                              .at = malloc(((size_t)s->start[n] + 1) * sizeof *o.at) };
    if (!o.start || !o.at) {
        inputs_steps_done(&o);
        return err_set(e, ERR_NOMEM, "out of memory for activation lists");
    }
    memcpy(o.start, s->start, ((size_t)n + 1) * sizeof *o.start);
    memcpy(o.at, s->at, s->start[n] * sizeof *o.at);
    *out = o;
    return 0;
}

/* Does replay run through lists of this way? Of ways that are the same in a layer, the first stands for all. */
static int has_lists(const struct problem *p, int variant, int layer)
{
    return p->modes[variant] != PLAN_DENSE && problem_looks_up(p, variant, layer) && problem_equivalent(p, variant, layer) == variant;
}

/* Lists of a layer in the ways [first, first + n), as far as they are not made; most: tokens, within each way's window.
 * What fires is read once for all of them. */
static int make_lists(struct lists *w, int first, int n, int layer, uint64_t most, struct err *e)
{
    const struct problem *p = w->p;
    struct inputs_steps fired = { 0 };
    struct predicted_shared *shared = NULL;
    uint64_t tokens[PROBLEM_MAX_VARIANTS] = { 0 }, longest = 0;
    int r = 0;
    for (int i = first; i < first + n; i++)
        if (has_lists(p, i, layer) && lists_at(w, i, layer)->n_steps == 0) {
            tokens[i] = problem_window(p, i, layer);
            tokens[i] = tokens[i] < most ? tokens[i] : most;
            longest = tokens[i] > longest ? tokens[i] : longest;
        }
    if (longest > 0)
        r = p->in->steps(p->in, layer, longest, &fired, e);
    for (int i = first; i < first + n && r == 0; i++)
        if (tokens[i] > 0 && (r = first_steps(&fired, tokens[i], lists_at(w, i, layer), e)) == 0)
            r = way_steps(p, i, layer, &shared, lists_at(w, i, layer), e);
    predicted_shared_free(shared);
    inputs_steps_done(&fired);
    return r;
}

/* --- policies --- */

/* Misses of a layer at three sizes without a hot prefix, by policy. */
static int policy_misses(const struct problem *p, const struct inputs_steps *s, double out[CACHE_POLICIES],
                         struct err *e)
{
    int part = p->shape.n_parts - 1, r = 0;
    uint32_t units = p->shape.part[part].n_units * (uint32_t)p->in->n_blocks;
    const uint32_t slots[3] = { units / 8, units / 4, units / 2 };
    for (int k = 0; k < CACHE_POLICIES && r == 0; k++) {
        double misses[3] = { 0 };
        r = replay_curve(s, &p->shape, part, p->in->n_blocks, 1, (enum cache_policy)k, 0, slots, 3, misses, e);
        out[k] = misses[0] + misses[1] + misses[2];
    }
    return r;
}

/* Of the ways [first, first + n), the one that misses less in this layer speaks: it is the likelier to be taken. */
static int layer_misses(struct lists *w, int first, int n, int layer, double missed[CACHE_POLICIES], struct err *e)
{
    const struct problem *p = w->p;
    double least[CACHE_POLICIES] = { 0 };
    int any = 0, r = make_lists(w, first, n, layer, POLICY_TOKENS, e);
    for (int i = first; i < first + n && r == 0; i++) {
        double misses[CACHE_POLICIES] = { 0 };
        if (!has_lists(p, i, layer))
            continue;
        r = policy_misses(p, lists_at(w, i, layer), misses, e);
        for (int k = 0; k < CACHE_POLICIES; k++)
            least[k] = any && least[k] < misses[k] ? least[k] : misses[k];
        any = 1;
        if (problem_window(p, i, layer) > POLICY_TOKENS) /* replay needs more of it */
            inputs_steps_done(lists_at(w, i, layer));
    }
    for (int k = 0; k < CACHE_POLICIES; k++)
        missed[k] += least[k];
    return r;
}

/* For the ways [first, first + n) the policy with fewer misses over all layers, or POLICY_LAYERS of them at even
 * distances. Ties: the first policy. */
static int choose_policy(struct problem *p, struct lists *w, int first, int n, struct err *e)
{
    double missed[CACHE_POLICIES] = { 0 };
    int layers = distinct_layers(p->in), asked = layers < POLICY_LAYERS ? layers : POLICY_LAYERS;
    for (int i = 0; i < asked; i++) {
        int r = layer_misses(w, first, n, asked > 1 ? i * (layers - 1) / (asked - 1) : 0, missed, e);
        if (r < 0)
            return r;
    }
    for (int i = first; i < first + n; i++)
        for (int k = 0; k < CACHE_POLICIES; k++)
            if (missed[k] < missed[p->policy[i]])
                p->policy[i] = (enum cache_policy)k;
    return 0;
}

static int choose_policies(struct problem *p, struct lists *lists, struct err *e)
{
    int r = 0;
    for (int w = 0; w < p->n_variants && r == 0; w = problem_mix_end(p, w))
        r = choose_policy(p, lists, w, problem_mix_end(p, w) - w, e);
    return r;
}

/* --- tables --- */

static size_t table_at(const struct problem *p, int batch_index, int layer)
{
    return (size_t)batch_index * (size_t)p->in->n_layers + (size_t)layer;
}

/* The points of a table that residencies read. */
static void ask_keeps(const struct replay_table *t, const struct problem_residencies *residencies, struct replay_asked *out)
{
    *out = (struct replay_asked){ 0 };
    for (int i = 0; i < residencies->n; i++)
        if (residencies->residency[i].flow.how)
            replay_ask(t, residencies->residency[i].flow.how, out);
}

void problem_read_rules(struct problem *p, int all)
{
    struct reads_rule rules[REPLAY_RULES];
    for (int i = 0; i < p->n_rules; i++)
        coalesce_rule(&p->rules[i], &p->shape, &rules[i]);
    for (int w = 0; w < p->n_variants; w++)
        for (int k = 0; k < p->in->n_batches * p->in->n_layers && p->tables[w]; k++) {
            struct replay_table *t = &p->tables[w][k];
            int layer = k % p->in->n_layers, representative = problem_representative(p, layer);
            struct replay_asked asked;
            if (representative != layer) {
                memcpy(t->how, p->tables[problem_equivalent(p, w, representative)][k - layer + representative].how, sizeof t->how);
                continue;
            }
            if (!has_lists(p, w, layer))
                continue;
            ask_keeps(t, problem_residencies_of(p, w, k / p->in->n_layers, layer), &asked);
            replay_rules(&p->samples[w][k], p->shape.part[p->shape.n_parts - 1].n_units, rules, p->n_rules,
                         all ? NULL : &asked, t);
        }
}

/* Layers of one round of replay, in all ways. */
struct round {
    struct problem *p;
    const struct lists *lists;
    const int *layer;
    int n;
    int code[ROUND * PROBLEM_MAX_VARIANTS];
    struct err err[ROUND * PROBLEM_MAX_VARIANTS];
};

static void replay_range(void *ctx, int begin, int end, int worker)
{
    struct round *w = ctx;
    const struct problem *p = w->p;
    (void)worker;
    for (int i = begin; i < end; i++) {
        int variant = i / w->n, layer = w->layer[i % w->n];
        const struct inputs_steps *s = lists_at(w->lists, variant, layer);
        for (int b = 0; b < p->in->n_batches && w->code[i] == 0 && s->n_steps > 0; b++)
            w->code[i] = replay_layer(s, &p->shape, p->shape.n_parts - 1, p->in->n_blocks, inputs_batch_sizes[b],
                                      p->policy[variant], 0, &p->tables[variant][table_at(p, b, layer)],
                                      &p->samples[variant][table_at(p, b, layer)], &w->err[i]);
    }
}

static int replay_round(struct problem *p, struct pool *pool, struct lists *lists, struct round *w, const int *layer, int n,
                        struct err *e)
{
    int r = 0;
    *w = (struct round){ .p = p, .lists = lists, .layer = layer, .n = n < ROUND ? n : ROUND };
    for (int i = 0; i < w->n && r == 0; i++)
        r = make_lists(lists, 0, p->n_variants, layer[i], UINT64_MAX, e);
    if (r == 0)
        pool_for(pool, w->n * p->n_variants, 1, replay_range, w);
    for (int i = 0; i < w->n * p->n_variants; i++) {
        if (r == 0 && (r = w->code[i]) < 0)
            *e = w->err[i];
        inputs_steps_done(lists_at(lists, i / w->n, layer[i % w->n]));
    }
    return r;
}

/* Layers that a speaker stands for. */
static void copy_spoken(struct problem *p)
{
    for (int i = 0; i < p->n_variants; i++)
        for (int k = 0; k < p->in->n_batches * p->in->n_layers && p->tables[i]; k++) {
            int layer = k % p->in->n_layers, representative = problem_representative(p, layer);
            if (representative != layer)
                p->tables[i][k] = p->tables[problem_equivalent(p, i, representative)][k - layer + representative];
        }
}

int problem_copy_tables(struct problem *p, const struct problem *like, struct err *e)
{
    size_t n = (size_t)p->in->n_batches * (size_t)p->in->n_layers;
    memcpy(p->policy, like->policy, sizeof p->policy);
    for (int i = 0; i < p->n_variants; i++) {
        if (!like->tables[i])
            continue;
        p->tables[i] = malloc(n * sizeof *p->tables[i]);
        p->samples[i] = calloc(n, sizeof *p->samples[i]);
        if (!p->tables[i] || !p->samples[i])
            return err_set(e, ERR_NOMEM, "out of memory for miss tables");
        memcpy(p->tables[i], like->tables[i], n * sizeof *p->tables[i]);
        for (size_t k = 0; k < n; k++) {
            int r = replay_samples_copy(&like->samples[i][k], &p->samples[i][k], e);
            if (r < 0)
                return r;
        }
    }
    copy_spoken(p);
    return 0;
}

static int alloc_tables(struct problem *p, struct lists *lists, struct err *e)
{
    size_t layers = (size_t)p->in->n_layers;
    int ok = (lists->made = calloc((size_t)p->n_variants * layers, sizeof *lists->made)) != NULL;
    for (int i = 0; i < p->n_variants; i++) {
        if (p->modes[i] == PLAN_DENSE)
            continue;
        p->tables[i] = calloc((size_t)p->in->n_batches * layers, sizeof *p->tables[i]);
        p->samples[i] = calloc((size_t)p->in->n_batches * layers, sizeof *p->samples[i]);
        ok &= p->tables[i] && p->samples[i];
    }
    return ok ? 0 : err_set(e, ERR_NOMEM, "out of memory for miss tables");
}

int problem_replay(struct problem *p, int policy, struct err *e)
{
    int cpus[ROUND], n_cpus = cpu_allowed(cpus, ROUND), layer[MODEL_MAX_LAYERS], n = representatives_of(p, layer);
    struct lists lists = { .p = p };
    struct pool *pool = NULL;
    struct round *w = malloc(sizeof *w);
    int r = w ? alloc_tables(p, &lists, e) : err_set(e, ERR_NOMEM, "out of memory for miss tables");
    if (r == 0 && policy < 0)
        r = choose_policies(p, &lists, e);
    if (r == 0 && (r = pool_new(n_cpus > 0 ? n_cpus : 1, NULL, &pool, e)) == 0) {
        struct progress show;
        progress_init(&show, "replaying the trace", "layers", (uint64_t)n);
        for (int i = 0; i < n && r == 0; i += ROUND) {
            r = replay_round(p, pool, &lists, w, layer + i, n - i, e);
            progress_set(&show, (uint64_t)(i + w->n));
        }
        progress_done(&show);
        pool_free(pool);
    }
    if (r == 0)
        copy_spoken(p);
    lists_done(&lists);
    free(w);
    return r;
}
