/* Replay of a layer's window. The unit accesses beyond a hot prefix are laid out once as one array of units with
 * step boundaries. A table takes all cache sizes from one pass over it (replay_sizes); a single point runs
 * common/plan/cache itself. The same array serves Belady's bound, computed with a heap of next uses: the resident unit
 * used farthest in the future goes, or the new one is not kept when it is itself the farthest. */
#include "planner/replay/replay.h"

#include "common/plan/expert_ahead.h"

#include "planner/replay/replay_belady.h"
#include "planner/replay/replay_prefixes.h"
#include "planner/replay/replay_sizes.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

const double replay_hot_shares[REPLAY_HOTS] = { 0, 0.0625, 0.125, 0.25, 0.375, 0.5, 0.75, 1 };
const double replay_size_shares[REPLAY_SIZES] = { 0,   1 / 64., 1 / 32., 1 / 16., 3 / 32., 1 / 8., 3 / 16.,
                                                  0.25, 0.375,   0.5,     0.625,   0.75,    0.875,  1 };

static void accesses_done(struct replay_accesses *a)
{
    free(a->start);
    free(a->units);
    free(a->guess_start);
    free(a->guess);
}

/* unit_of[block * n_ff + pack position]; NONE in the prefix. */
static uint32_t *unit_table(const struct layout_shape *shape, int part, int n_blocks, uint32_t hot)
{
    uint32_t n_ff = (uint32_t)shape->n_ff, npu = shape->part[part].neurons_per_unit;
    uint32_t *of = malloc((size_t)n_blocks * n_ff * sizeof *of);
    for (uint32_t k = 0; of && k < (uint32_t)n_blocks; k++)
        for (uint32_t i = 0, unit = k * shape->part[part].n_units; i < n_ff; unit++)
            for (uint32_t end = n_ff - i < npu ? n_ff : i + npu; i < end; i++)
                of[(size_t)k * n_ff + i] = i < hot ? NONE : unit;
    return of;
}

/* Units of one list: it ascends, so they do, and those that are the same follow each other. */
static size_t take_list(const uint32_t *unit_of, const uint32_t *at, size_t n, uint32_t *out)
{
    size_t taken = 0;
    uint32_t last = NONE;
    for (size_t i = 0; i < n; i++) {
        uint32_t unit = unit_of[at[i]];
        out[taken] = unit;
        taken += (size_t)(unit != NONE) & (size_t)(unit != last);
        last = unit;
    }
    return taken;
}

/* Units marked in a bitmap, ascending; clears it. */
static size_t take_marked(uint64_t *mark, uint32_t n_units, uint32_t *out)
{
    size_t n = 0;
    for (uint32_t w = 0; w <= n_units / 64; w++) {
        for (uint64_t m = mark[w]; m; m &= m - 1)
            out[n++] = w * 64 + (uint32_t)__builtin_ctzll(m);
        mark[w] = 0;
    }
    return n;
}

/* What is expected of the tokens of each step, one after the other. */
static int guesses_build(const struct inputs_steps *s, const struct layout_shape *shape, int part, int batch, const uint32_t *unit_of,
                         struct replay_accesses *a, struct err *e)
{
    size_t n = 0;
    if (!s->guess || batch > EXPERT_AHEAD_TOKENS)
        return 0;
    a->per_block = shape->part[part].n_units;
    a->n_guessed = s->n_steps ? s->guess_start[1] / a->per_block * (uint32_t)batch : 0;
    a->guess_start = malloc(((size_t)a->n_steps + 1) * sizeof *a->guess_start);
    a->guess = malloc((s->guess_start[s->n_steps] + 1u) * sizeof *a->guess);
    if (!a->guess_start || !a->guess)
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    for (int t = 0; t < a->n_steps; t++) {
        a->guess_start[t] = n;
        for (int step = t; step < a->n_steps * batch; step += a->n_steps)
            for (uint32_t i = s->guess_start[step]; i < s->guess_start[step + 1]; i++) {
                a->guess[n] = unit_of[s->guess[i]];
                n += a->guess[n] != NONE;
            }
    }
    a->guess_start[a->n_steps] = n;
    return 0;
}

static int accesses_build(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks,
                          int batch, uint32_t hot, struct replay_accesses *out, struct err *e)
{
    int piece = s->n_steps / batch;
    struct replay_accesses a = { .n_steps = piece, .n_units = shape->part[part].n_units * (uint32_t)n_blocks, .together = s->together };
    if (piece < 4)
        return err_set(e, ERR_UNSUPPORTED, "the trace's window of %d tokens is too short to replay batches of %d; "
                       "trace more tokens", s->n_steps, batch);
    uint32_t *unit_of = unit_table(shape, part, n_blocks, hot);
    uint64_t *mark = calloc(a.n_units / 64 + 1, sizeof *mark);
    a.start = malloc(((size_t)piece + 1) * sizeof *a.start);
    a.units = malloc((s->start[s->n_steps] + 1u) * sizeof *a.units);
    if (!a.start || !a.units || !unit_of || !mark) {
        accesses_done(&a);
        free(unit_of);
        free(mark);
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    }
    size_t n = 0;
    for (int t = 0; t < piece; t++) {
        a.start[t] = n;
        if (batch == 1) {
            n += take_list(unit_of, s->at + s->start[t], s->start[t + 1] - s->start[t], a.units + n);
            continue;
        }
        for (int step = t; step < piece * batch; step += piece)
            for (uint32_t i = s->start[step]; i < s->start[step + 1]; i++) {
                uint32_t unit = unit_of[s->at[i]];
                if (unit != NONE)
                    mark[unit / 64] |= (uint64_t)1 << unit % 64;
            }
        n += take_marked(mark, a.n_units, a.units + n);
    }
    a.start[piece] = n;
    int r = guesses_build(s, shape, part, batch, unit_of, &a, e);
    free(unit_of);
    free(mark);
    if (r < 0)
        accesses_done(&a);
    else
        *out = a;
    return r;
}

static void guesses_shrink(struct replay_accesses *a, uint32_t of_block, uint32_t skip)
{
    size_t n = 0, i = 0;
    for (int t = 0; a->guess_start && t < a->n_steps; t++) {
        a->guess_start[t] = n;
        for (; i < a->guess_start[t + 1]; i++) {
            a->guess[n] = a->guess[i];
            n += a->guess[n] % of_block >= skip;
        }
    }
    if (a->guess_start)
        a->guess_start[a->n_steps] = n;
}

/* Leave out the units of a longer prefix, which ends between two units. */
static void accesses_shrink(struct replay_accesses *a, const struct layout_shape *shape, int part, uint32_t hot)
{
    uint32_t of_block = shape->part[part].n_units, skip = hot / shape->part[part].neurons_per_unit;
    size_t n = 0, i = 0;
    guesses_shrink(a, of_block, skip);
    for (int t = 0; t < a->n_steps; t++) {
        uint32_t block = 0; /* its first unit */
        a->start[t] = n;
        for (; i < a->start[t + 1]; i++) {
            uint32_t unit = a->units[i];
            while (unit - block >= of_block)
                block += of_block;
            a->units[n] = unit;
            n += unit - block >= skip;
        }
    }
    a->start[a->n_steps] = n;
}

/* Steps before this one only warm the cache up. */
static int first_measured(const struct replay_accesses *a)
{
    return a->n_steps / 4;
}

static double per_step(const struct replay_accesses *a, double total)
{
    return total / (a->n_steps - first_measured(a));
}

static double mean_lookups(const struct replay_accesses *a)
{
    return per_step(a, (double)(a->start[a->n_steps] - a->start[first_measured(a)]));
}

/* Admits what missed, of units[n] from `first` on: slots of those that did, and CACHE_NONE where it was refused, into at. */
static void admit(struct cache *c, const uint32_t *units, size_t first, size_t n, uint32_t *at)
{
    uint32_t evicted;
    for (size_t i = first; i < n; i++) {
        if (at[i] != CACHE_NONE)
            continue;
        at[i] = cache_admit(c, units[i], &evicted);
        if (at[i] != CACHE_NONE)
            cache_ready(c, at[i]);
    }
}

/* Misses of one step; at: room for as many slots as it has units. marks may be NULL. */
static size_t run_step(struct cache *c, const uint32_t *units, size_t n, int together, uint32_t *at, uint8_t *marks)
{
    size_t missed = 0;
    int ready;
    for (size_t i = 0; i < n; i++) {
        at[i] = cache_lookup(c, units[i], &ready);
        missed += at[i] == CACHE_NONE;
        if (marks)
            marks[i] += at[i] == CACHE_NONE;
        if (!together)
            admit(c, units, i, i + 1, at);
    }
    admit(c, units, 0, together ? n : 0, at);
    for (size_t i = 0; i < n; i++)
        if (at[i] != CACHE_NONE)
            cache_unpin(c, at[i]);
    cache_tick(c);
    return missed;
}

/* The runtime's own cache of so many slots, and room for a step's. */
static int cache_begin(const struct replay_accesses *a, enum cache_policy policy, uint32_t slots, struct cache **c, uint32_t **at,
                       struct err *e)
{
    size_t bytes = (cache_bytes(a->n_units, slots) + 63) & ~(size_t)63;
    void *mem = aligned_alloc(64, bytes ? bytes : 64);
    *at = malloc((replay_longest_step(a) + 1) * sizeof **at);
    if (!mem || !*at) {
        free(mem);
        free(*at);
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    }
    *c = cache_init(mem, a->n_units, slots, policy);
    return 0;
}

/* One size, by the runtime's own code. tally may be NULL. */
static int run_cache(const struct replay_accesses *a, enum cache_policy policy, uint32_t slots,
                     struct replay_sample *sample, uint64_t *misses, struct replay_tally *tally, struct err *e)
{
    struct cache *c;
    uint32_t *pinned;
    int sampled = 0, r = cache_begin(a, policy, slots, &c, &pinned, e);
    if (r < 0)
        return r;
    *misses = 0;
    for (int t = 0; t < a->n_steps; t++) {
        uint8_t *marks = replay_sample_step(sample, &sampled, t);
        size_t n = run_step(c, a->units + a->start[t], a->start[t + 1] - a->start[t], a->together, pinned, marks);
        *misses += t >= first_measured(a) ? n : 0;
        if (tally && t >= first_measured(a))
            replay_tally_add(tally, n, 0, 0);
    }
    free(pinned);
    free(c);
    return 0;
}

/* ---- with units that are read ahead ---- */

struct early {
    struct expert_verdict verdict;
    uint32_t slot[EXPERT_AHEAD_UNITS];  /* of units that are read, and that no lookup has found yet */
    int n;
};

/* What is expected of a step is read, as runtime/pipeline/expert_prefetch.c does: all of it in time. 1: something was guessed. */
static int read_early(struct cache *c, const struct replay_accesses *a, int t, struct early *x)
{
    const uint32_t *wanted = a->guess + a->guess_start[t];
    size_t n = a->guess_start[t + 1] - a->guess_start[t];
    x->n = 0;
    if (!expert_ahead_awake(&x->verdict))
        return 0;
    expert_ahead_judge(&x->verdict);
    if (!expert_ahead_room(cache_slots(c), a->n_guessed, a->per_block))
        return 1;
    for (size_t i = 0; i < n && i < EXPERT_AHEAD_UNITS; i++) {
        uint32_t evicted, slot = cache_find(c, wanted[i]) == CACHE_NONE ? cache_admit_early(c, wanted[i], &evicted) : CACHE_NONE;
        if (slot == CACHE_NONE)
            continue;
        cache_ready(c, slot);
        x->slot[x->n++] = slot;
        x->verdict.tried++;
    }
    return 1;
}

/* Was what a lookup found read ahead? It is the lookup's then. */
static int take_early(struct cache *c, struct early *x, uint32_t slot)
{
    int i = 0;
    while (i < x->n && x->slot[i] != slot)
        i++;
    if (i == x->n)
        return 0;
    cache_unpin(c, slot);
    x->slot[i] = x->slot[--x->n];
    x->verdict.taken++;
    return 1;
}

/* One step of units that are looked up together, added to sum. */
static void early_step(struct cache *c, const struct replay_accesses *a, int t, struct early *x, uint32_t *at, double sum[REPLAY_AHEAD])
{
    const uint32_t *units = a->units + a->start[t];
    size_t n = a->start[t + 1] - a->start[t];
    int ready;
    sum[REPLAY_AHEAD_STEPS] += read_early(c, a, t, x);
    for (size_t i = 0; i < n; i++) {
        at[i] = cache_lookup(c, units[i], &ready);
        int taken = at[i] != CACHE_NONE && take_early(c, x, at[i]);
        sum[REPLAY_AHEAD_FORESEEN] += taken;
        sum[REPLAY_AHEAD_MISSES] += taken || at[i] == CACHE_NONE;
    }
    sum[REPLAY_AHEAD_WASTED] += x->n;
    while (x->n)
        cache_drop(c, x->slot[--x->n]);
    admit(c, units, 0, n, at);
    for (size_t i = 0; i < n; i++)
        if (at[i] != CACHE_NONE)
            cache_unpin(c, at[i]);
    cache_tick(c);
}

static int foresees(const struct replay_accesses *a)
{
    return a->guess_start && a->together;
}

/* Means per step with so many slots. */
static int run_early(const struct replay_accesses *a, enum cache_policy policy, uint32_t slots, double out[REPLAY_AHEAD],
                     struct replay_tally *tally, struct err *e)
{
    struct cache *c;
    struct early x = { .n = 0 };
    uint32_t *at;
    double sum[REPLAY_AHEAD] = { 0 };
    int r = cache_begin(a, policy, slots, &c, &at, e);
    if (r < 0)
        return r;
    for (int t = 0; t < a->n_steps; t++) {
        double one[REPLAY_AHEAD] = { 0 };
        early_step(c, a, t, &x, at, one);
        for (int k = 0; k < REPLAY_AHEAD && t >= first_measured(a); k++)
            sum[k] += one[k];
        if (t >= first_measured(a))
            replay_tally_add(tally, (uint64_t)(one[REPLAY_AHEAD_MISSES] - one[REPLAY_AHEAD_FORESEEN]),
                             (uint64_t)(one[REPLAY_AHEAD_FORESEEN] + one[REPLAY_AHEAD_WASTED]), (uint64_t)one[REPLAY_AHEAD_FORESEEN]);
    }
    for (int k = 0; k < REPLAY_AHEAD; k++)
        out[k] = per_step(a, sum[k]);
    free(at);
    free(c);
    return 0;
}

/* For steps of these accesses, looked up together, of experts of so many units. */
static void tally_begin(const struct replay_accesses *a, uint32_t per_expert, struct replay_tally *t)
{
    replay_tally_init(t, replay_longest_step(a), per_expert);
}

/* Into groups, of steps that use so many experts' units in the mean. */
static void tally_end(const struct replay_accesses *a, uint32_t per_expert, struct replay_tally *t, struct replay_steps *out)
{
    replay_tally_smooth(t, (int)(mean_lookups(a) / per_expert + 0.5));
    replay_tally_groups(t, out);
}

/* The same at n ascending sizes: in one pass, but where what is looked up together has to be run size by size. steps: of each size,
 * then, of experts of so many units; may be NULL. */
static int run_sizes(const struct replay_accesses *a, enum cache_policy policy, const uint32_t *slots, int n,
                     struct replay_sample *sample, uint64_t *misses, struct replay_point_steps *steps, uint32_t per_expert, struct err *e)
{
    struct replay_tally tally;
    int r = 0;
    if (!a->together)
        return replay_sizes(a, policy, first_measured(a), slots, n, sample, misses, e);
    for (int i = 0; i < n && r == 0; i++) {
        if (steps)
            tally_begin(a, per_expert, &tally);
        r = run_cache(a, policy, slots[i], sample, &misses[i], steps ? &tally : NULL, e);
        if (steps)
            tally_end(a, per_expert, &tally, &steps[i].plain);
    }
    return r;
}

static uint32_t units_beyond(const struct replay_table *t, uint32_t hot)
{
    uint32_t left = hot < (uint32_t)t->n_ff ? (uint32_t)t->n_ff - hot : 0;
    return (left + t->neurons_per_unit - 1) / t->neurons_per_unit * (uint32_t)t->n_blocks;
}

int replay_point(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, uint32_t hot, uint32_t slots, double *lookups, double *misses,
                 struct err *e)
{
    struct replay_accesses a;
    uint64_t missed;
    int r = accesses_build(s, shape, part, n_blocks, batch, hot, &a, e);
    if (r < 0)
        return r;
    *lookups = mean_lookups(&a);
    if (slots == 0)
        *misses = *lookups;
    else
        r = run_cache(&a, policy, slots, NULL, &missed, NULL, e);
    if (slots > 0 && r == 0)
        *misses = per_step(&a, (double)missed);
    accesses_done(&a);
    return r;
}

int replay_point_reads(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                       enum cache_policy policy, uint32_t hot, uint32_t slots, const struct reads_rule *rule,
                       struct replay_figures *out, struct err *e)
{
    struct replay_accesses a;
    struct replay_sample sample = { 0 };
    struct replay_tally tally;
    uint64_t missed = 0;
    int r = accesses_build(s, shape, part, n_blocks, batch, hot, &a, e);
    if (r < 0)
        return r;
    out->lookups = mean_lookups(&a);
    out->steps = (struct replay_point_steps){ 0 };
    tally_begin(&a, shape->part[part].n_units, &tally);
    if ((r = replay_sample_init(&a, first_measured(&a), NULL, &sample, e)) == 0 &&
        (r = run_cache(&a, policy, slots, &sample, &missed, &tally, e)) == 0)
        replay_reads_of(&sample, shape->part[part].n_units, rule, 1, 0, &out->how);
    out->misses = per_step(&a, (double)missed);
    out->foresees = foresees(&a);
    for (int k = 0; k < REPLAY_AHEAD; k++)
        out->ahead[k] = k == REPLAY_AHEAD_MISSES ? out->misses : 0;
    if (r == 0 && a.together) {
        tally_end(&a, shape->part[part].n_units, &tally, &out->steps.plain);
        out->steps.ahead = out->steps.plain;
    }
    if (r == 0 && out->foresees && slots > 0) {
        tally_begin(&a, shape->part[part].n_units, &tally);
        r = run_early(&a, policy, slots, out->ahead, &tally, e);
        tally_end(&a, shape->part[part].n_units, &tally, &out->steps.ahead);
    }
    replay_sample_done(&sample);
    accesses_done(&a);
    return r;
}

int replay_curve(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, uint32_t hot, const uint32_t *slots, int n, double *misses, struct err *e)
{
    struct replay_accesses a;
    uint64_t missed[REPLAY_SIZES];
    int r = accesses_build(s, shape, part, n_blocks, batch, hot, &a, e);
    if (r < 0)
        return r;
    r = run_sizes(&a, policy, slots, n, NULL, missed, NULL, 1, e);
    for (int i = 0; i < n && r == 0; i++)
        misses[i] = per_step(&a, (double)missed[i]);
    accesses_done(&a);
    return r;
}

void replay_fixed(const struct layout_shape *shape, int part, int n_blocks, uint32_t hot,
                  const struct replay_figures *f, struct replay_table *out)
{
    struct replay_table t = { .n_blocks = n_blocks, .n_ff = shape->n_ff,
                              .neurons_per_unit = shape->part[part].neurons_per_unit, .only = f->steps };
    for (int h = 0; h < REPLAY_HOTS; h++) {
        int first = h == 0 && hot > 0; /* row 0 stands for no prefix, all others for this one */
        t.hot[h] = first ? 0 : hot;
        t.units[h] = units_beyond(&t, t.hot[h]);
        t.lookups[h] = first ? f->all_lookups : f->lookups;
        t.foresees = f->foresees;
        for (int i = 0; i < REPLAY_SIZES; i++)
            t.misses[h][i] = first ? f->all_lookups : f->misses;
        for (int i = 0; i < REPLAY_SIZES * REPLAY_AHEAD; i++)
            t.ahead[i % REPLAY_AHEAD][h][i / REPLAY_AHEAD] = f->ahead[i % REPLAY_AHEAD];
        for (int i = 0; i < REPLAY_SIZES; i++)
            for (int k = 0; k < REPLAY_RULES; k++)
                t.how[h][i][k] = f->how;
    }
    *out = t;
}

int replay_belady(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                  uint32_t hot, const uint32_t *slots, int n, double *misses, struct err *e)
{
    struct replay_accesses a;
    uint64_t missed[REPLAY_SIZES];
    int r = accesses_build(s, shape, part, n_blocks, batch, hot, &a, e);
    if (r < 0)
        return r;
    r = replay_belady_sizes(&a, first_measured(&a), slots, n, missed, e);
    for (int i = 0; i < n && r == 0; i++)
        misses[i] = per_step(&a, (double)missed[i]);
    accesses_done(&a);
    return r;
}

/* Means of what is looked up; columns of sizes without a slot, of which there are *none: the layer has few units. skip: as of
 * replay_sample_init. */
static int begin_row(const struct replay_accesses *a, const uint32_t *skip, int h, struct replay_table *t,
                     struct replay_sample *sample, int *none, struct err *e)
{
    uint64_t measured = 0;
    for (int i = 0; i < a->n_steps; i++) {
        uint64_t n = a->start[i + 1] - a->start[i] - (skip ? skip[i] : 0);
        measured += i >= first_measured(a) ? n : 0;
        t->max_lookups[h] = (double)n > t->max_lookups[h] ? (double)n : t->max_lookups[h];
    }
    t->lookups[h] = per_step(a, (double)measured);
    for (*none = 0; t->slots[h][*none] == 0; ++*none)
        t->misses[h][*none] = t->lookups[h];
    return sample ? replay_sample_init(a, first_measured(a), skip, sample, e) : 0;
}

/* missed: by size, from the first with a slot on. */
static void end_row(const struct replay_accesses *a, int h, int none, const uint64_t *missed, struct replay_table *t,
                    struct replay_sample *sample)
{
    for (uint32_t i = 0; sample && i < sample->start[sample->n_steps]; i++)
        sample->missing[i] += (uint8_t)none;
    for (int i = none; i < REPLAY_SIZES - 1; i++)
        t->misses[h][i] = per_step(a, (double)missed[i - none]);
}

/* steps: [REPLAY_SIZES], of this row; NULL: they are not wanted, or not looked up together. */
static int fill_row(const struct replay_accesses *a, enum cache_policy policy, int h, uint32_t per_expert, struct replay_table *t,
                    struct replay_sample *sample, struct replay_point_steps *steps, struct err *e)
{
    uint64_t missed[REPLAY_SIZES];
    struct replay_tally tally;
    int none, r = begin_row(a, NULL, h, t, sample, &none, e);
    if (r < 0 || (r = run_sizes(a, policy, t->slots[h] + none, REPLAY_SIZES - none, sample, missed, steps ? steps + none : NULL, per_expert,
                                e)) < 0)
        return r;
    end_row(a, h, none, missed, t, sample);
    t->foresees = foresees(a);
    for (int i = 0; i < none && steps; i++) { /* without slots each step misses all that it looks up */
        tally_begin(a, per_expert, &tally);
        for (int k = first_measured(a); k < a->n_steps; k++)
            replay_tally_add(&tally, a->start[k + 1] - a->start[k], 0, 0);
        tally_end(a, per_expert, &tally, &steps[i].plain);
    }
    for (int i = 0; i < REPLAY_SIZES && steps; i++) {
        if (i == REPLAY_SIZES - 1)
            steps[i].plain.n = 0; /* all of them stay */
        steps[i].ahead = steps[i].plain;
    }
    for (int i = 0; i < REPLAY_SIZES - 1 && t->foresees && r == 0; i++) {
        double at[REPLAY_AHEAD] = { [REPLAY_AHEAD_MISSES] = t->misses[h][i] };
        if (i >= none) {
            tally_begin(a, per_expert, &tally);
            r = run_early(a, policy, t->slots[h][i], at, &tally, e);
            if (steps)
                tally_end(a, per_expert, &tally, &steps[i].ahead);
        }
        for (int k = 0; k < REPLAY_AHEAD; k++)
            t->ahead[k][h][i] = at[k];
    }
    return r;
}

/* Prefixes and sizes. */
static void fill_grid(struct replay_table *t, uint32_t cluster)
{
    uint32_t n_ff = (uint32_t)t->n_ff;
    for (int h = 0; h < REPLAY_HOTS; h++) {
        uint32_t hot = (uint32_t)(replay_hot_shares[h] * n_ff + 0.5) / cluster * cluster;
        t->hot[h] = h == REPLAY_HOTS - 1 ? n_ff : hot;
        t->units[h] = units_beyond(t, t->hot[h]);
        for (int i = 0; i < REPLAY_SIZES; i++)
            t->slots[h][i] = (uint32_t)(replay_size_shares[i] * t->units[h] + 0.5);
    }
}

/* Small models: several shares are the same cluster. */
static int same_row(const struct replay_table *t, int h)
{
    return h > 0 && t->hot[h] == t->hot[h - 1];
}

/* Does a row have anything to replay? The whole looks nothing up. */
static int has_row(const struct replay_table *t, int h)
{
    return !same_row(t, h) && t->hot[h] < (uint32_t)t->n_ff;
}

/* Can all prefixes be had in one pass? Units of one block, in whole ones, and a window that is not too long. */
static int in_one_pass(const struct replay_table *t, int n_steps)
{
    int yes = t->n_blocks == 1 && n_steps <= REPLAY_PREFIXES_STEPS;
    for (int h = 0; h < REPLAY_HOTS; h++)
        yes &= !has_row(t, h) || t->hot[h] % t->neurons_per_unit == 0;
    return yes;
}

_Static_assert(REPLAY_HOTS <= REPLAY_MAX_PREFIXES && REPLAY_SIZES <= REPLAY_PREFIX_SIZES, "one pass takes a whole table");

/* skip[n_steps]: units of each step below this one. */
static void count_below(const struct replay_accesses *a, uint32_t unit, uint32_t *skip)
{
    for (int t = 0; t < a->n_steps; t++) {
        size_t low = a->start[t], high = a->start[t + 1];
        while (low < high) {
            size_t mid = (low + high) / 2;
            if (a->units[mid] < unit)
                low = mid + 1;
            else
                high = mid;
        }
        skip[t] = (uint32_t)(low - a->start[t]);
    }
}

/* All rows under LRU; a: of the row without a prefix. */
static int fill_all(const struct replay_accesses *a, struct replay_table *t, struct replay_samples *samples, struct err *e)
{
    struct replay_prefix prefix[REPLAY_HOTS];
    uint64_t missed[REPLAY_HOTS][REPLAY_SIZES];
    int row[REPLAY_HOTS], none[REPLAY_HOTS], n = 0, r = 0;
    size_t steps = (size_t)a->n_steps;
    uint32_t *skip = malloc(REPLAY_HOTS * steps * sizeof *skip);
    if (!skip)
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    for (int h = 0; h < REPLAY_HOTS && r == 0; h++) {
        struct replay_sample *sample = samples ? &samples->at[h] : NULL;
        if (!has_row(t, h))
            continue;
        count_below(a, t->hot[h] / t->neurons_per_unit, skip + (size_t)n * steps);
        r = begin_row(a, skip + (size_t)n * steps, h, t, sample, &none[n], e);
        prefix[n] = (struct replay_prefix){ skip + (size_t)n * steps, t->slots[h] + none[n], REPLAY_SIZES - none[n], sample,
                                            missed[n] };
        row[n++] = h;
    }
    if (r == 0 && (r = replay_prefixes(a, first_measured(a), prefix, n, e)) == 0)
        for (int i = 0; i < n; i++)
            end_row(a, row[i], none[i], missed[i], t, prefix[i].sample);
    free(skip);
    return r;
}

/* One row after the other; *a is of the row before, in the end of the last. */
static int fill_each(const struct inputs_steps *s, const struct layout_shape *shape, int part, int batch,
                     enum cache_policy policy, struct replay_accesses *a, struct replay_table *t, struct replay_samples *samples,
                     struct err *e)
{
    int r = 0;
    for (int h = 0; h < REPLAY_HOTS && r == 0; h++) {
        if (!has_row(t, h))
            continue;
        if (t->hot[h] % t->neurons_per_unit == 0) {
            accesses_shrink(a, shape, part, t->hot[h]);
        } else {
            accesses_done(a);
            *a = (struct replay_accesses){ 0 };
            r = accesses_build(s, shape, part, t->n_blocks, batch, t->hot[h], a, e);
        }
        if (r == 0)
            r = fill_row(a, policy, h, shape->part[part].n_units, t, samples ? &samples->at[h] : NULL,
                         samples && samples->steps ? samples->steps + h * REPLAY_SIZES : NULL, e);
    }
    return r;
}

int replay_layer(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, struct replay_table *out, struct replay_samples *samples, struct err *e)
{
    struct replay_samples own = { 0 };
    struct replay_table t = { .n_blocks = n_blocks, .n_ff = shape->n_ff,
                              .neurons_per_unit = shape->part[part].neurons_per_unit };
    struct replay_accesses a;
    fill_grid(&t, shape->cluster_neurons);
    int r = accesses_build(s, shape, part, n_blocks, batch, 0, &a, e);
    if (r < 0)
        return r;
    if (samples && a.together && !(own.steps = calloc(REPLAY_HOTS * REPLAY_SIZES, sizeof *own.steps)))
        r = err_set(e, ERR_NOMEM, "out of memory for replay");
    else if (policy == CACHE_LRU && in_one_pass(&t, a.n_steps))
        r = fill_all(&a, &t, samples ? &own : NULL, e);
    else
        r = fill_each(s, shape, part, batch, policy, &a, &t, samples ? &own : NULL, e);
    accesses_done(&a);
    if (r < 0) {
        replay_samples_done(&own);
        return r;
    }
    for (int h = 1; h < REPLAY_HOTS; h++)
        if (same_row(&t, h)) {
            t.lookups[h] = t.lookups[h - 1];
            t.max_lookups[h] = t.max_lookups[h - 1];
            memcpy(t.misses[h], t.misses[h - 1], sizeof t.misses[h]);
            for (int k = 0; k < REPLAY_AHEAD; k++)
                memcpy(t.ahead[k][h], t.ahead[k][h - 1], sizeof t.ahead[k][h]);
            for (int i = 0; i < REPLAY_SIZES && own.steps; i++)
                own.steps[h * REPLAY_SIZES + i] = own.steps[(h - 1) * REPLAY_SIZES + i];
        }
    t.steps = own.steps;
    *out = t;
    if (samples)
        *samples = own;
    return 0;
}

void replay_samples_done(struct replay_samples *s)
{
    for (int h = 0; h < REPLAY_HOTS; h++)
        replay_sample_done(&s->at[h]);
    free(s->steps);
    s->steps = NULL;
}

int replay_samples_copy(const struct replay_samples *s, struct replay_samples *out, struct err *e)
{
    struct replay_samples o = { 0 };
    size_t bytes = REPLAY_HOTS * REPLAY_SIZES * sizeof *o.steps;
    if (s->steps && !(o.steps = malloc(bytes)))
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    if (s->steps)
        memcpy(o.steps, s->steps, bytes);
    for (int h = 0; h < REPLAY_HOTS; h++) {
        int r = replay_sample_copy(&s->at[h], &o.at[h], e);
        if (r < 0) {
            replay_samples_done(&o);
            return r;
        }
    }
    *out = o;
    return 0;
}

void replay_rules(const struct replay_samples *s, uint32_t per_block, const struct reads_rule *rules, int n,
                  const struct replay_asked *asked, struct replay_table *t)
{
    for (int h = 0, own = 0; h < REPLAY_HOTS; h++) {
        if (s->at[h].unit)
            own = h; /* the others have the prefix of the one before, or look nothing up */
        for (int i = 0; i < REPLAY_SIZES; i++)
            if (!asked || asked->at[h][i])
                replay_reads_of(&s->at[own], per_block, rules, n, i, t->how[h][i]);
    }
}

void replay_ask(const struct replay_table *t, const struct replay_reads *how, struct replay_asked *asked)
{
    size_t at = (size_t)(how - t->how[0][0]) / REPLAY_RULES;
    asked->at[at / REPLAY_SIZES][at % REPLAY_SIZES] = 1;
}

/* --- between grid points --- */

static int hot_cell(const struct replay_table *t, uint32_t hot, double *f)
{
    int h = 0;
    while (h + 2 < REPLAY_HOTS && t->hot[h + 1] <= hot)
        h++;
    double a = t->hot[h], b = t->hot[h + 1];
    *f = b > a ? (hot - a) / (b - a) : 0;
    *f = *f < 0 ? 0 : *f > 1 ? 1 : *f;
    return h;
}

/* Row h at x slots, of which slots[] and their last one's units are exact. */
static double at_slots(const struct replay_table *t, const double *row, int h, double x)
{
    const uint32_t *slots = t->slots[h];
    int i = 0;
    while (i + 2 < REPLAY_SIZES && slots[i + 1] <= x)
        i++;
    double a = slots[i], b = slots[i + 1], f = b > a ? (x - a) / (b - a) : 0;
    f = f < 0 ? 0 : f > 1 ? 1 : f;
    return row[i] + f * (row[i + 1] - row[i]);
}

static double at_point(const struct replay_table *t, const double rows[REPLAY_HOTS][REPLAY_SIZES], uint32_t hot,
                       uint32_t slots)
{
    double f;
    uint32_t units = units_beyond(t, hot);
    if (units == 0 || slots >= units)
        return 0;
    int h = hot_cell(t, hot, &f);
    double a = at_slots(t, rows[h], h, (double)slots * t->units[h] / units);
    double b = at_slots(t, rows[h + 1], h + 1, (double)slots * t->units[h + 1] / units);
    return f > 0 ? a + f * (b - a) : a;
}

double replay_lookups(const struct replay_table *t, uint32_t hot)
{
    double f;
    int h = hot_cell(t, hot, &f);
    return t->lookups[h] + f * (t->lookups[h + 1] - t->lookups[h]);
}

double replay_misses(const struct replay_table *t, uint32_t hot, uint32_t slots)
{
    return at_point(t, t->misses, hot, slots);
}

int replay_ahead_of(const struct replay_table *t, uint32_t hot, uint32_t slots, double out[REPLAY_AHEAD])
{
    for (int k = 0; k < REPLAY_AHEAD; k++)
        out[k] = t->foresees ? at_point(t, t->ahead[k], hot, slots) : 0;
    return t->foresees;
}

/* The point below, or itself one. */
static void point_below(const struct replay_table *t, uint32_t hot, uint32_t slots, int *h, int *i)
{
    *h = REPLAY_HOTS - 1;
    *i = REPLAY_SIZES - 1;
    while (*h > 0 && t->hot[*h] > hot)
        --*h;
    while (*i > 0 && t->slots[*h][*i] > slots)
        --*i;
}

const struct replay_reads *replay_how(const struct replay_table *t, uint32_t hot, uint32_t slots)
{
    int h, i;
    point_below(t, hot, slots, &h, &i);
    return t->how[h][i];
}

const struct replay_point_steps *replay_steps_at(const struct replay_table *t, uint32_t hot, uint32_t slots)
{
    int h, i;
    point_below(t, hot, slots, &h, &i);
    return t->steps ? &t->steps[h * REPLAY_SIZES + i] : t->only.plain.n ? &t->only : NULL;
}

uint32_t replay_units(const struct replay_table *t, uint32_t hot)
{
    return units_beyond(t, hot);
}
