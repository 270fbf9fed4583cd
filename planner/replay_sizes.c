/* LFU at all sizes in one pass; LRU is simpler (replay_lru.c). A unit that may be evicted has one entry in a log, which
 * is a list per level in order of release, as the lists of common/cache are; entries that were overtaken (the unit
 * was used again) stay as garbage until the next ageing, which rewrites the log.
 *
 *   level 0: (head) -> [a] -> [x] -> [b]          x: stale, its unit is in use or has a newer entry
 *   level 1: (head) -> [c]
 *                ^ passed[k][1]: entries up to here are no victims of size k, and never will be
 *
 * Entries are only appended, and one that size k may not evict (stale, or its unit is not held at that size) stays
 * so until its unit is used again, which makes a new entry. So each size walks each list once
 * between ageings: a victim costs a step or two, a hit nothing. */
#include "planner/replay_sizes.h"

#include "planner/replay_lru.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct unit {
    uint32_t at;                /* its entry; NONE: in use, or nowhere held */
    uint8_t from, count;        /* held by sizes from.. on; accesses, as common/cache counts them */
};

struct entry {
    uint32_t unit, next;        /* in the level's list; entry l < CACHE_LEVELS is the head of level l */
};

struct sizes {
    int n, ticks;
    uint32_t n_units, n_entries;
    struct unit *unit;
    struct entry *log, *spare;
    uint32_t tail[CACHE_LEVELS];
    uint32_t passed[REPLAY_MAX_SIZES][CACHE_LEVELS];
    int low[REPLAY_MAX_SIZES];                  /* no victim of this size is on a lower level */
    int released[REPLAY_MAX_SIZES + 1];         /* lowest level of the step's units, by `from` */
    uint32_t slots[REPLAY_MAX_SIZES], used[REPLAY_MAX_SIZES];
};

static void empty_log(struct sizes *s)
{
    s->n_entries = CACHE_LEVELS;
    for (uint32_t l = 0; l < s->n_entries; l++) {
        s->log[l] = (struct entry){ NONE, NONE };
        s->tail[l] = l;
    }
    for (int k = 0; k < s->n; k++) {
        s->low[k] = 0;
        for (uint32_t l = 0; l < s->n_entries; l++)
            s->passed[k][l] = l;
    }
}

static void append(struct sizes *s, uint32_t unit, int level)
{
    uint32_t i = s->n_entries++;
    s->log[i] = (struct entry){ unit, NONE };
    s->log[s->tail[level]].next = i;
    s->tail[level] = i;
    s->unit[unit].at = i;
}

/* What size k would evict, or NONE: everything it holds is in use. */
static uint32_t victim(struct sizes *s, int k)
{
    for (; s->low[k] < CACHE_LEVELS; s->low[k]++) {
        uint32_t *passed = &s->passed[k][s->low[k]];
        for (uint32_t i; (i = s->log[*passed].next) != NONE; *passed = i) {
            const struct unit *u = &s->unit[s->log[i].unit];
            if (u->at == i && u->from <= k)
                return s->log[i].unit;
        }
    }
    return NONE;
}

/* Make room for a unit in size k: 0 when it is refused. */
static int admit(struct sizes *s, int k, const struct unit *u)
{
    if (s->used[k] < s->slots[k]) {
        s->used[k]++;
        return 1;
    }
    uint32_t v = victim(s, k);
    if (v == NONE || u->count < s->low[k])
        return 0;
    s->unit[v].from = (uint8_t)(k + 1);
    return 1;
}

static void access_unit(struct sizes *s, uint32_t unit, uint64_t *missed)
{
    struct unit *u = &s->unit[unit];
    int from = u->from;
    u->at = NONE;
    if (u->count < CACHE_LEVELS - 1)
        u->count++;
    for (int k = 0; k < u->from; k++) {
        missed[k]++;
        if (!admit(s, k, u))
            assert(from == u->from);
        else if (k < from)
            from = k;
    }
    u->from = (uint8_t)from;
}

/* The barrier: units are released in the order of use. */
static void release(struct sizes *s, const uint32_t *units, size_t n)
{
    for (int k = 0; k <= s->n; k++)
        s->released[k] = CACHE_LEVELS;
    for (size_t i = 0; i < n; i++) {
        const struct unit *u = &s->unit[units[i]];
        int level = u->count;
        if (u->from == s->n)
            continue;
        append(s, units[i], level);
        if (level < s->released[u->from])
            s->released[u->from] = level;
    }
    for (int k = 0, lowest = CACHE_LEVELS; k < s->n; k++) {
        lowest = s->released[k] < lowest ? s->released[k] : lowest;
        s->low[k] = lowest < s->low[k] ? lowest : s->low[k];
    }
}

static void copy_level(struct sizes *s, uint32_t head, int to)
{
    for (uint32_t i = s->spare[head].next; i != NONE; i = s->spare[i].next) {
        uint32_t unit = s->spare[i].unit;
        if (unit != NONE && s->unit[unit].from < s->n)
            append(s, unit, to);
    }
}

/* Ageing halves the counts and joins lists 2k and 2k + 1; the log is written anew. */
static void tick(struct sizes *s)
{
    if (++s->ticks < CACHE_AGE_TICKS)
        return;
    for (uint32_t i = CACHE_LEVELS; i < s->n_entries; i++)
        if (s->unit[s->log[i].unit].at != i)
            s->log[i].unit = NONE;
    struct entry *old = s->log;
    s->ticks = 0;
    s->log = s->spare;
    s->spare = old;
    empty_log(s);
    for (int l = 0; l < CACHE_LEVELS; l++)
        copy_level(s, (uint32_t)l, l / 2);
    for (uint32_t i = 0; i < s->n_units; i++)
        s->unit[i].count >>= 1;
}

static int sizes_init(struct sizes *s, const struct replay_accesses *a, struct err *e)
{
    size_t longest = 0, n;
    for (int t = 0; t < a->n_steps; t++)
        if (a->start[t + 1] - a->start[t] > longest)
            longest = a->start[t + 1] - a->start[t];
    n = CACHE_LEVELS + (size_t)s->n_units + CACHE_AGE_TICKS * longest;
    s->unit = malloc(((size_t)s->n_units + 1) * sizeof *s->unit);
    s->log = n < NONE ? malloc(n * sizeof *s->log) : NULL;
    s->spare = n < NONE ? malloc(n * sizeof *s->spare) : NULL;
    if (!s->unit || !s->log || !s->spare)
        return err_set(e, ERR_NOMEM, "out of memory for the replay of %u units", s->n_units);
    for (uint32_t u = 0; u < s->n_units; u++)
        s->unit[u] = (struct unit){ NONE, (uint8_t)s->n, 0 };
    empty_log(s);
    return 0;
}

int replay_sizes(const struct replay_accesses *a, enum cache_policy policy, int first, const uint32_t *slots,
                 int n_sizes, struct replay_sample *sample, uint64_t *misses, struct err *e)
{
    assert(n_sizes > 0 && n_sizes <= REPLAY_MAX_SIZES);
    if (policy == CACHE_LRU)
        return replay_lru(a, first, slots, n_sizes, sample, misses, e);
    int sampled = 0;
    uint64_t before[REPLAY_MAX_SIZES] = { 0 };
    struct sizes *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for replay");
    s->n = n_sizes;
    s->n_units = a->n_units;
    memcpy(s->slots, slots, (size_t)n_sizes * sizeof *slots);
    int r = sizes_init(s, a, e);
    for (int t = 0; t < a->n_steps && r == 0; t++) {
        const uint32_t *units = a->units + a->start[t];
        size_t n = a->start[t + 1] - a->start[t];
        uint64_t *missed = t < first ? before : misses;
        if (t == 0 || t == first)
            memset(missed, 0, (size_t)n_sizes * sizeof *missed);
        uint8_t *marks = replay_sample_step(sample, &sampled, t);
        for (size_t i = 0; i < n; i++) {
            if (marks)
                marks[i] += s->unit[units[i]].from;
            access_unit(s, units[i], missed);
        }
        release(s, units, n);
        tick(s);
    }
    free(s->unit);
    free(s->log);
    free(s->spare);
    free(s);
    return r;
}
