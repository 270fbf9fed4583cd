/* LFU at all sizes in one pass; LRU is simpler (replay_lru.c). A unit that may be evicted has one entry in a log, which
 * is a list per level in order of release, as the lists of common/plan/cache are; entries that were overtaken (the unit
 * was used again) stay as garbage until the next ageing, which rewrites the log.
 *
 *   level 0: [ a 3 | x - | b 0 | . . . ] -> [ d 2 | . . . ]     of each unit the smallest size that holds it
 *   level 1: [ c 1 | . . . ]                                    x: stale, its unit is in use or has a newer entry
 *              ^ passed[k][1]: entries before are no victims of size k, and never will be
 *
 * Entries are only appended, and one that size k may not evict (stale, or its unit is not held at that size) stays
 * so until its unit is used again, which makes a new entry. So each size walks each list once
 * between ageings, eight entries at a time: a list is chunks of bytes that are compared with the size at once. */
#include "planner/replay/replay_sizes.h"

#include "common/base/bytes.h"
#include "planner/replay/replay_lru.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE   UINT32_MAX
#define CHUNK  64               /* entries */
#define PLACES 128              /* an entry is chunk * PLACES + place in it; place CHUNK: all of the chunk are passed */
#define STALE  0x7f             /* as a size */
_Static_assert(REPLAY_MAX_SIZES < STALE, "no size is stale");

struct unit {
    uint32_t at;                /* its entry; NONE: in use, or nowhere held since the log was written */
    uint8_t from, count;        /* held by sizes from.. on; accesses, as common/plan/cache counts them */
};

struct chunk {
    uint8_t from[CHUNK];        /* of the entries' units; STALE also where there is none yet */
    uint32_t unit[CHUNK];
    uint32_t next;              /* of the level's list; 0: none. Chunk l < CACHE_LEVELS is the first of level l */
};

struct sizes {
    int n, ticks;
    uint32_t n_units, n_chunks;
    struct unit *unit;
    struct chunk *log, *spare;
    uint32_t end[CACHE_LEVELS];                 /* where the next entry of a level goes */
    uint32_t passed[REPLAY_MAX_SIZES][CACHE_LEVELS];
    int low[REPLAY_MAX_SIZES];                  /* no victim of this size is on a lower level */
    int released[REPLAY_MAX_SIZES + 1];         /* lowest level of the step's units, by `from` */
    uint32_t slots[REPLAY_MAX_SIZES], used[REPLAY_MAX_SIZES];
    uint64_t depth[REPLAY_MAX_SIZES + 1];       /* accesses that miss at so many of the sizes */
};

static uint32_t new_chunk(struct sizes *s)
{
    struct chunk *c = &s->log[s->n_chunks];
    memset(c->from, STALE, sizeof c->from);
    c->next = 0;
    return s->n_chunks++;
}

static void empty_log(struct sizes *s)
{
    s->n_chunks = 0;
    for (int l = 0; l < CACHE_LEVELS; l++)
        s->end[l] = new_chunk(s) * PLACES;
    for (int k = 0; k < s->n; k++) {
        s->low[k] = 0;
        memcpy(s->passed[k], s->end, sizeof s->end);
    }
}

static void append(struct sizes *s, uint32_t unit, int level)
{
    uint32_t at = s->end[level];
    if (at % PLACES == CHUNK) {
        uint32_t next = new_chunk(s);
        s->log[at / PLACES].next = next;
        at = next * PLACES;
    }
    s->log[at / PLACES].from[at % PLACES] = s->unit[unit].from;
    s->log[at / PLACES].unit[at % PLACES] = unit;
    s->unit[unit].at = at;
    s->end[level] = at + 1;
}

/* The first place from `place` on whose unit size k holds; CHUNK: none. Of a word's bytes below k + 1, the lowest one
 * shows its top bit when k + 1 is taken from all of them. */
static uint32_t held_from(const struct chunk *c, uint32_t place, int k)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), least = ones * (uint64_t)(k + 1);
    uint64_t taken = least & ~(uint64_t)0 << 8 * (place % 8);
    for (uint32_t i = place & ~7u; i < CHUNK; i += 8, taken = least) {
        uint64_t from = bytes_le64(c->from + i), below = (from - taken) & ~from & ones << 7;
        if (below)
            return i + (uint32_t)__builtin_ctzll(below) / 8;
    }
    return CHUNK;
}

/* The entry of what size k would evict, or NONE: everything it holds is in use. */
static uint32_t victim(struct sizes *s, int k)
{
    for (; s->low[k] < CACHE_LEVELS; s->low[k]++) {
        uint32_t end = s->end[s->low[k]], *passed = &s->passed[k][s->low[k]], at = *passed;
        for (;;) {
            uint32_t chunk = at / PLACES, place = held_from(&s->log[chunk], at % PLACES, k);
            if (place < CHUNK)
                return *passed = chunk * PLACES + place;
            if (chunk == end / PLACES)
                break;
            at = s->log[chunk].next * PLACES;
        }
        *passed = end;
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
    struct chunk *c = &s->log[v / PLACES];
    s->unit[c->unit[v % PLACES]].from = c->from[v % PLACES] = (uint8_t)(k + 1);
    return 1;
}

static void access_unit(struct sizes *s, uint32_t unit)
{
    struct unit *u = &s->unit[unit];
    int from = u->from;
    if (u->at != NONE)
        s->log[u->at / PLACES].from[u->at % PLACES] = STALE;
    u->at = NONE;
    if (u->count < CACHE_LEVELS - 1)
        u->count++;
    s->depth[from]++;
    for (int k = 0; k < u->from; k++) {
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

static void copy_level(struct sizes *s, int level, int to)
{
    const struct chunk *c = &s->spare[level];
    for (int more = 1; more; c = &s->spare[c->next]) {
        more = c->next != 0;
        for (int i = 0; i < CHUNK; i++)
            if (c->from[i] < s->n)
                append(s, c->unit[i], to);
            else if (c->from[i] != STALE)
                s->unit[c->unit[i]].at = NONE; /* nowhere held */
    }
}

/* Ageing halves the counts and joins lists 2k and 2k + 1; the log is written anew. */
static void tick(struct sizes *s)
{
    if (++s->ticks < CACHE_AGE_TICKS)
        return;
    struct chunk *old = s->log;
    s->ticks = 0;
    s->log = s->spare;
    s->spare = old;
    empty_log(s);
    for (int l = 0; l < CACHE_LEVELS; l++)
        copy_level(s, l, l / 2);
    for (uint32_t i = 0; i < s->n_units; i++)
        s->unit[i].count >>= 1;
}

static int sizes_init(struct sizes *s, const struct replay_accesses *a, struct err *e)
{
    size_t n = CACHE_LEVELS + ((size_t)s->n_units + CACHE_AGE_TICKS * replay_longest_step(a)) / CHUNK;
    s->unit = malloc(((size_t)s->n_units + 1) * sizeof *s->unit);
    s->log = n < NONE / PLACES ? malloc(n * sizeof *s->log) : NULL;
    s->spare = n < NONE / PLACES ? malloc(n * sizeof *s->spare) : NULL;
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
        if (t == first)
            memset(s->depth, 0, sizeof s->depth);
        uint8_t *marks = replay_sample_step(sample, &sampled, t);
        for (size_t i = 0; i < n; i++) {
            if (marks)
                marks[i] += s->unit[units[i]].from;
            access_unit(s, units[i]);
        }
        release(s, units, n);
        tick(s);
    }
    uint64_t sum = 0;
    for (int k = n_sizes; k-- > 0 && r == 0;)
        misses[k] = sum += s->depth[k + 1];
    free(s->unit);
    free(s->log);
    free(s->spare);
    free(s);
    return r;
}
