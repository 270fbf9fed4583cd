/* Replay by rounds of a few layers: lists are made one after the other (a trace has one reader), then replayed side by side
 * and dropped. Lists that a policy was chosen by wait for their replay; a window is short (lookups_window). */
#include "planner/space/miss_tables.h"

#include "common/base/cpu.h"
#include "common/base/pool.h"
#include "common/base/progress.h"

#include "planner/space/lookups.h"
#include "planner/space/policies.h"

#include <stdlib.h>
#include <string.h>

#define ROUND 8                 /* layers replayed side by side */

void miss_tables_init(struct miss_tables *t, const struct space *s, int policy)
{
    *t = (struct miss_tables){ .n_variants = s->n_variants, .n_batches = s->in->n_batches, .n_layers = s->in->n_layers };
    for (int v = 0; v < s->n_variants; v++)
        t->policy[v] = s->policy[v] > 0 ? (enum cache_policy)(s->policy[v] - 1) : policy >= 0 ? (enum cache_policy)policy : CACHE_LRU;
}

void miss_tables_done(struct miss_tables *t)
{
    for (int v = 0; v < t->n_variants; v++) {
        free(t->table[v]);
        for (int i = 0; i < t->n_batches * t->n_layers && t->samples[v]; i++)
            replay_samples_done(&t->samples[v][i]);
        free(t->samples[v]);
    }
    *t = (struct miss_tables){ 0 };
}

int miss_tables_reserve(struct miss_tables *t, int variant, struct err *e)
{
    size_t n = (size_t)t->n_batches * (size_t)t->n_layers;
    if (!t->table[variant])
        t->table[variant] = calloc(n, sizeof *t->table[variant]);
    if (!t->samples[variant])
        t->samples[variant] = calloc(n, sizeof *t->samples[variant]);
    return t->table[variant] && t->samples[variant] ? 0 : err_set(e, ERR_NOMEM, "out of memory for miss tables");
}

static struct replay_samples *samples_at(const struct miss_tables *t, int variant, int batch_index, int layer)
{
    return &t->samples[variant][(size_t)batch_index * (size_t)t->n_layers + (size_t)layer];
}

/* The table of the layer that represents this one. */
static const struct replay_table *representative_table(const struct miss_tables *t, const struct space *s, int variant,
                                                       int batch_index, int layer)
{
    int representative = space_representative(s, layer);
    return miss_tables_at(t, space_equivalent(s, variant, representative), batch_index, representative);
}

void miss_tables_rules(struct miss_tables *t, const struct space *s, int variant, int batch_index, int layer,
                       const struct reads_rule *rules, int n, const struct replay_asked *points)
{
    struct replay_table *table = miss_tables_at(t, variant, batch_index, layer);
    if (!table)
        return;
    if (space_representative(s, layer) != layer)
        memcpy(table->how, representative_table(t, s, variant, batch_index, layer)->how, sizeof table->how);
    else if (lookups_has(s, variant, layer))
        replay_rules(samples_at(t, variant, batch_index, layer), layout_of(&s->shapes, layer)->part[s->shapes.n_parts - 1].n_units,
                     rules, n, points, table);
}

/* Layers of one round of replay, in all variants. */
struct round {
    const struct space *s;
    struct miss_tables *t;
    const struct lookups *lookups;
    const int *layer;
    int n;
    int code[ROUND * SPACE_MAX_VARIANTS];
    struct err err[ROUND * SPACE_MAX_VARIANTS];
};

static void replay_range(void *ctx, int begin, int end, int worker)
{
    struct round *w = ctx;
    const struct space *s = w->s;
    (void)worker;
    for (int i = begin; i < end; i++) {
        int variant = i / w->n, layer = w->layer[i % w->n];
        const struct inputs_steps *steps = lookups_at(w->lookups, variant, layer);
        for (int b = 0; b < s->in->n_batches && w->code[i] == 0 && steps->n_steps > 0; b++)
            w->code[i] = replay_layer(steps, layout_of(&s->shapes, layer), s->shapes.n_parts - 1, s->in->n_blocks, inputs_batch_sizes[b],
                                      w->t->policy[variant], miss_tables_at(w->t, variant, b, layer),
                                      samples_at(w->t, variant, b, layer), &w->err[i]);
    }
}

static int replay_round(struct round *w, struct pool *pool, struct lookups *lookups, struct err *e)
{
    int r = 0;
    for (int i = 0; i < w->n && r == 0; i++)
        r = lookups_make(lookups, 0, w->s->n_variants, w->layer[i], UINT64_MAX, e);
    if (r == 0)
        pool_for(pool, w->n * w->s->n_variants, 1, replay_range, w);
    for (int i = 0; i < w->n * w->s->n_variants; i++) {
        if (r == 0 && (r = w->code[i]) < 0)
            *e = w->err[i];
        inputs_steps_done(lookups_at(lookups, i / w->n, w->layer[i % w->n]));
    }
    return r;
}

/* Layers that another represents get its table. */
static void copy_represented(struct miss_tables *t, const struct space *s)
{
    for (int v = 0; v < t->n_variants; v++)
        for (int b = 0; b < t->n_batches && t->table[v]; b++)
            for (int l = 0; l < t->n_layers; l++)
                if (space_representative(s, l) != l)
                    *miss_tables_at(t, v, b, l) = *representative_table(t, s, v, b, l);
}

int miss_tables_equivalent(const struct space *a, const struct space *b)
{
    if (b->in != a->in || b->n_variants != a->n_variants || b->shapes.n_parts != a->shapes.n_parts ||
        b->shapes.l.cluster_neurons != a->shapes.l.cluster_neurons)
        return 0;
    int same = space_same_units(a, b, a->shapes.n_parts - 1);
    for (int v = 0; v < a->n_variants && same; v++) {
        const struct predicted *f = a->predicted[v], *g = b->predicted[v];
        same = a->modes[v] == b->modes[v] && a->mix[v] == b->mix[v] && a->policy[v] == b->policy[v] &&
               (f && g ? predicted_same(f, g) : f == g);
    }
    return same;
}

int miss_tables_copy(struct miss_tables *t, const struct space *s, const struct miss_tables *from, struct err *e)
{
    size_t n = (size_t)t->n_batches * (size_t)t->n_layers;
    memcpy(t->policy, from->policy, sizeof t->policy);
    for (int v = 0; v < t->n_variants; v++) {
        if (!from->table[v])
            continue;
        int r = miss_tables_reserve(t, v, e);
        if (r < 0)
            return r;
        memcpy(t->table[v], from->table[v], n * sizeof *t->table[v]);
        for (size_t i = 0; i < n && r == 0; i++) {
            r = replay_samples_copy(&from->samples[v][i], &t->samples[v][i], e);
            t->table[v][i].steps = t->samples[v][i].steps;
        }
        if (r < 0)
            return r;
    }
    copy_represented(t, s);
    return 0;
}

/* Layers that are replayed, ascending; how many. */
static int replayed_layers(const struct space *s, int *out)
{
    int n = 0;
    for (int l = 0; l < s->in->n_layers; l++)
        if (space_representative(s, l) == l)
            out[n++] = l;
    return n;
}

static int replay_layers(struct miss_tables *t, const struct space *s, struct lookups *lookups, struct round *w, struct err *e)
{
    int cpus[ROUND], n_cpus = cpu_allowed(cpus, ROUND), layer[MODEL_MAX_LAYERS], n = replayed_layers(s, layer);
    struct pool *pool;
    struct progress show;
    int r = pool_new(n_cpus > 0 ? n_cpus : 1, NULL, &pool, e);
    if (r < 0)
        return r;
    progress_init(&show, "replaying the trace", "layers", (uint64_t)n);
    for (int i = 0; i < n && r == 0; i += ROUND) {
        *w = (struct round){ .s = s, .t = t, .lookups = lookups, .layer = layer + i, .n = n - i < ROUND ? n - i : ROUND };
        r = replay_round(w, pool, lookups, e);
        progress_set(&show, (uint64_t)(i + w->n));
    }
    progress_done(&show);
    pool_free(pool);
    return r;
}

int miss_tables_replay(struct miss_tables *t, const struct space *s, int policy, struct err *e)
{
    struct lookups lookups = { 0 };
    struct round *w = malloc(sizeof *w);
    int r = w ? lookups_init(&lookups, s, e) : err_set(e, ERR_NOMEM, "out of memory for miss tables");
    for (int v = 0; v < s->n_variants && r == 0; v++)
        if (s->modes[v] != PLAN_DENSE || space_variant_looks_up(s, v))
            r = miss_tables_reserve(t, v, e);
    if (r == 0 && policy < 0)
        r = policies_choose(s, &lookups, t->policy, e);
    if (r == 0)
        r = replay_layers(t, s, &lookups, w, e);
    if (r == 0)
        copy_represented(t, s);
    lookups_done(&lookups);
    free(w);
    return r;
}
