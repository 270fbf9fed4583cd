/* Replay of a layer's window. The unit accesses beyond a hot prefix are laid out once as one array of units with
 * step boundaries. A table takes all cache sizes from one pass over it (replay_sizes); a single point runs
 * common/plan/cache itself. The same array serves Belady's bound, computed with a heap of next uses: the resident unit
 * used farthest in the future goes, or the new one is not kept when it is itself the farthest. */
#include "planner/replay/replay.h"

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
    free(unit_of);
    free(mark);
    *out = a;
    return 0;
}

/* Leave out the units of a longer prefix, which ends between two units. */
static void accesses_shrink(struct replay_accesses *a, const struct layout_shape *shape, int part, uint32_t hot)
{
    uint32_t of_block = shape->part[part].n_units, skip = hot / shape->part[part].neurons_per_unit;
    size_t n = 0, i = 0;
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

/* One size, by the runtime's own code. */
static int run_cache(const struct replay_accesses *a, enum cache_policy policy, uint32_t slots,
                     struct replay_sample *sample, uint64_t *misses, struct err *e)
{
    size_t bytes = (cache_bytes(a->n_units, slots) + 63) & ~(size_t)63, longest = 0;
    for (int t = 0; t < a->n_steps; t++)
        if (a->start[t + 1] - a->start[t] > longest)
            longest = a->start[t + 1] - a->start[t];
    void *mem = aligned_alloc(64, bytes ? bytes : 64);
    uint32_t *pinned = malloc((longest + 1) * sizeof *pinned);
    if (!mem || !pinned) {
        free(mem);
        free(pinned);
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    }
    struct cache *c = cache_init(mem, a->n_units, slots, policy);
    int sampled = 0;
    *misses = 0;
    for (int t = 0; t < a->n_steps; t++) {
        uint8_t *marks = replay_sample_step(sample, &sampled, t);
        size_t n = run_step(c, a->units + a->start[t], a->start[t + 1] - a->start[t], a->together, pinned, marks);
        *misses += t >= first_measured(a) ? n : 0;
    }
    free(pinned);
    free(mem);
    return 0;
}

/* The same at n ascending sizes: in one pass, but where what is looked up together has to be run size by size. */
static int run_sizes(const struct replay_accesses *a, enum cache_policy policy, const uint32_t *slots, int n,
                     struct replay_sample *sample, uint64_t *misses, struct err *e)
{
    int r = 0;
    if (!a->together)
        return replay_sizes(a, policy, first_measured(a), slots, n, sample, misses, e);
    for (int i = 0; i < n && r == 0; i++)
        r = run_cache(a, policy, slots[i], sample, &misses[i], e);
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
        r = run_cache(&a, policy, slots, NULL, &missed, e);
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
    uint64_t missed = 0;
    int r = accesses_build(s, shape, part, n_blocks, batch, hot, &a, e);
    if (r < 0)
        return r;
    out->lookups = mean_lookups(&a);
    if ((r = replay_sample_init(&a, first_measured(&a), NULL, &sample, e)) == 0 &&
        (r = run_cache(&a, policy, slots, &sample, &missed, e)) == 0)
        replay_reads_of(&sample, shape->part[part].n_units, rule, 1, 0, &out->how);
    out->misses = per_step(&a, (double)missed);
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
    r = run_sizes(&a, policy, slots, n, NULL, missed, e);
    for (int i = 0; i < n && r == 0; i++)
        misses[i] = per_step(&a, (double)missed[i]);
    accesses_done(&a);
    return r;
}

void replay_fixed(const struct layout_shape *shape, int part, int n_blocks, uint32_t hot,
                  const struct replay_figures *f, struct replay_table *out)
{
    struct replay_table t = { .n_blocks = n_blocks, .n_ff = shape->n_ff,
                              .neurons_per_unit = shape->part[part].neurons_per_unit };
    for (int h = 0; h < REPLAY_HOTS; h++) {
        int first = h == 0 && hot > 0; /* row 0 stands for no prefix, all others for this one */
        t.hot[h] = first ? 0 : hot;
        t.units[h] = units_beyond(&t, t.hot[h]);
        t.lookups[h] = first ? f->all_lookups : f->lookups;
        for (int i = 0; i < REPLAY_SIZES; i++)
            t.misses[h][i] = first ? f->all_lookups : f->misses;
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

static int fill_row(const struct replay_accesses *a, enum cache_policy policy, int h, struct replay_table *t,
                    struct replay_sample *sample, struct err *e)
{
    uint64_t missed[REPLAY_SIZES];
    int none, r = begin_row(a, NULL, h, t, sample, &none, e);
    if (r < 0 || (r = run_sizes(a, policy, t->slots[h] + none, REPLAY_SIZES - none, sample, missed, e)) < 0)
        return r;
    end_row(a, h, none, missed, t, sample);
    return 0;
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
            r = fill_row(a, policy, h, t, samples ? &samples->at[h] : NULL, e);
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
    if (policy == CACHE_LRU && in_one_pass(&t, a.n_steps))
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
        }
    *out = t;
    if (samples)
        *samples = own;
    return 0;
}

void replay_samples_done(struct replay_samples *s)
{
    for (int h = 0; h < REPLAY_HOTS; h++)
        replay_sample_done(&s->at[h]);
}

int replay_samples_copy(const struct replay_samples *s, struct replay_samples *out, struct err *e)
{
    struct replay_samples o = { 0 };
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

const struct replay_reads *replay_how(const struct replay_table *t, uint32_t hot, uint32_t slots)
{
    int h = REPLAY_HOTS - 1, i = REPLAY_SIZES - 1;
    while (h > 0 && t->hot[h] > hot)
        h--;
    while (i > 0 && t->slots[h][i] > slots)
        i--;
    return t->how[h][i];
}

uint32_t replay_units(const struct replay_table *t, uint32_t hot)
{
    return units_beyond(t, hot);
}
