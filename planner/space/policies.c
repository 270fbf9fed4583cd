/* A policy is chosen by misses at three cache sizes without a hot prefix, summed over a few layers at even distances. */
#include "planner/space/policies.h"

#include "planner/replay/replay.h"

#define POLICY_LAYERS 8         /* by which a policy is chosen, */
#define POLICY_TOKENS 512       /* and tokens of each */

/* Misses of a layer at three sizes, by policy. */
static int policy_misses(const struct space *s, int layer, const struct inputs_steps *steps, double out[CACHE_POLICIES], struct err *e)
{
    const struct layout_shape *shape = layout_of(&s->shapes, layer);
    int part = shape->n_parts - 1, r = 0;
    uint32_t units = shape->part[part].n_units * (uint32_t)s->in->n_blocks;
    const uint32_t slots[3] = { units / 8, units / 4, units / 2 };
    for (int k = 0; k < CACHE_POLICIES && r == 0; k++) {
        double misses[3] = { 0 };
        r = replay_curve(steps, shape, part, s->in->n_blocks, 1, (enum cache_policy)k, 0, slots, 3, misses, e);
        out[k] = misses[0] + misses[1] + misses[2];
    }
    return r;
}

/* Of the variants [first, first + n), the one that misses less in this layer counts: it is the likelier to be taken. */
static int layer_misses(struct lookups *x, int first, int n, int layer, double missed[CACHE_POLICIES], struct err *e)
{
    const struct space *s = x->space;
    double least[CACHE_POLICIES] = { 0 };
    int any = 0, r = lookups_make(x, first, n, layer, POLICY_TOKENS, e);
    for (int v = first; v < first + n && r == 0; v++) {
        double misses[CACHE_POLICIES] = { 0 };
        if (!lookups_has(s, v, layer))
            continue;
        r = policy_misses(s, layer, lookups_at(x, v, layer), misses, e);
        for (int k = 0; k < CACHE_POLICIES; k++)
            least[k] = any && least[k] < misses[k] ? least[k] : misses[k];
        any = 1;
        if (lookups_window(s, v, layer) > POLICY_TOKENS) /* replay needs more of it */
            inputs_steps_done(lookups_at(x, v, layer));
    }
    for (int k = 0; k < CACHE_POLICIES; k++)
        missed[k] += least[k];
    return r;
}

static int choose(const struct space *s, struct lookups *x, int first, int end, enum cache_policy *out, struct err *e)
{
    double missed[CACHE_POLICIES] = { 0 };
    int layers = s->in->equivalent ? 1 : s->in->n_layers, sampled = layers < POLICY_LAYERS ? layers : POLICY_LAYERS;
    for (int i = 0; i < sampled; i++) {
        int r = layer_misses(x, first, end - first, sampled > 1 ? i * (layers - 1) / (sampled - 1) : 0, missed, e);
        if (r < 0)
            return r;
    }
    for (int v = first; v < end; v++) {
        out[v] = CACHE_LRU;
        for (int k = 0; k < CACHE_POLICIES; k++)
            if (missed[k] < missed[out[v]])
                out[v] = (enum cache_policy)k;
    }
    return 0;
}

int policies_choose(const struct space *s, struct lookups *x, enum cache_policy out[SPACE_MAX_VARIANTS], struct err *e)
{
    int r = 0;
    for (int v = 0; v < s->n_variants && r == 0; v = space_mix_end(s, v))
        r = s->policy[v] > 0 ? 0 : choose(s, x, v, space_mix_end(s, v), out, e);
    return r;
}
