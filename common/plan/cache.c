/* The cache index. Entries that may be evicted - ready and not pinned - are on doubly linked lists,
 * one per level, oldest first; a victim is the head of the lowest level that has one, found through a
 * bitmap, so every operation is O(1):
 *
 *   level   0: [a]<->[b]            LRU: all entries are on level 0.
 *           1: (empty)              LFU: the level is the unit's count, 0..CACHE_LEVELS-1. Counts belong to
 *           2: [c]<->[d]<->[e]      units, absent ones too, so a unit that returns keeps its history,
 *           ...                     and one that is colder than every victim is not admitted.
 *
 * Ageing halves all counts every CACHE_AGE_TICKS ticks; lists 2k and 2k+1 become list k in that order. An
 * entry's level equals its unit's count as long as it is on a list: a lookup takes it off first.
 * Memory is one block: header, levels, slots, unit -> slot, counts. */
#include "common/plan/cache.h"

#include "common/base/names.h"

#include <assert.h>
#include <string.h>

enum slot_state { SLOT_FREE, SLOT_LOADING, SLOT_READY };

struct slot {
    uint32_t unit, prev, next; /* next also links the free list */
    uint16_t pins;
    uint8_t state, listed;
};

struct level {
    uint32_t head, tail;
};

struct cache {
    uint32_t n_units, n_slots, free_head, ticks;
    enum cache_policy policy;
    struct cache_stats stats;
    uint64_t used_levels[CACHE_LEVELS / 64];
};

NAMES(cache_policy_name, enum cache_policy, "lru", "lfu")

static size_t up64(size_t v)
{
    return (v + 63) & ~(size_t)63;
}

#define HEADER_BYTES up64(sizeof(struct cache))

size_t cache_bytes(uint32_t n_units, uint32_t n_slots)
{
    if (!n_slots)
        return HEADER_BYTES;
    return up64(HEADER_BYTES + CACHE_LEVELS * sizeof(struct level) + (size_t)n_slots * sizeof(struct slot) +
                (size_t)n_units * (sizeof(uint32_t) + 1));
}

static struct level *levels(const struct cache *c)
{
    return (struct level *)((uintptr_t)c + HEADER_BYTES);
}

static struct slot *slots(const struct cache *c)
{
    return (struct slot *)(levels(c) + CACHE_LEVELS);
}

static uint32_t *map_of(const struct cache *c)
{
    return (uint32_t *)(slots(c) + c->n_slots);
}

static uint8_t *counts(const struct cache *c)
{
    return (uint8_t *)(map_of(c) + c->n_units);
}

struct cache *cache_init(void *mem, uint32_t n_units, uint32_t n_slots, enum cache_policy policy)
{
    struct cache *c = mem;
    memset(mem, 0, cache_bytes(n_units, n_slots));
    c->n_units = n_units;
    c->n_slots = n_slots;
    c->policy = policy;
    c->free_head = CACHE_NONE;
    if (!n_slots)
        return c;
    for (int i = 0; i < CACHE_LEVELS; i++)
        levels(c)[i] = (struct level){ CACHE_NONE, CACHE_NONE };
    for (uint32_t i = n_slots; i-- > 0;) { /* the free list ascends */
        slots(c)[i] = (struct slot){ .unit = CACHE_NONE, .next = c->free_head };
        c->free_head = i;
    }
    for (uint32_t i = 0; i < n_units; i++)
        map_of(c)[i] = CACHE_NONE;
    return c;
}

static int level_of(const struct cache *c, uint32_t unit)
{
    return c->policy == CACHE_LRU ? 0 : counts(c)[unit];
}

static void list_append(struct cache *c, uint32_t i)
{
    struct slot *s = slots(c);
    int n = level_of(c, s[i].unit);
    struct level *l = &levels(c)[n];
    s[i].prev = l->tail;
    s[i].next = CACHE_NONE;
    s[i].listed = 1;
    if (l->tail == CACHE_NONE)
        l->head = i;
    else
        s[l->tail].next = i;
    l->tail = i;
    c->used_levels[n / 64] |= (uint64_t)1 << n % 64;
}

static void list_prepend(struct cache *c, uint32_t i)
{
    struct slot *s = slots(c);
    int n = level_of(c, s[i].unit);
    struct level *l = &levels(c)[n];
    if (l->head == CACHE_NONE) {
        list_append(c, i);
        return;
    }
    s[i].prev = CACHE_NONE;
    s[i].next = l->head;
    s[i].listed = 1;
    s[l->head].prev = i;
    l->head = i;
}

static void list_remove(struct cache *c, uint32_t i)
{
    struct slot *s = slots(c);
    int n = level_of(c, s[i].unit);
    struct level *l = &levels(c)[n];
    if (s[i].prev == CACHE_NONE)
        l->head = s[i].next;
    else
        s[s[i].prev].next = s[i].next;
    if (s[i].next == CACHE_NONE)
        l->tail = s[i].prev;
    else
        s[s[i].next].prev = s[i].prev;
    s[i].listed = 0;
    if (l->head == CACHE_NONE)
        c->used_levels[n / 64] &= ~((uint64_t)1 << n % 64);
}

static uint32_t victim(const struct cache *c)
{
    for (int w = 0; w < CACHE_LEVELS / 64; w++)
        if (c->used_levels[w])
            return levels(c)[w * 64 + __builtin_ctzll(c->used_levels[w])].head;
    return CACHE_NONE;
}

void cache_prefetch(const struct cache *c, uint32_t unit, int stage)
{
    assert(unit < c->n_units);
    if (!c->n_slots)
        return;
    if (stage == 0) {
        __builtin_prefetch(&map_of(c)[unit]);
        __builtin_prefetch(&counts(c)[unit], 1);
        return;
    }
    uint32_t i = map_of(c)[unit];
    if (i == CACHE_NONE)
        return;
    const struct slot *s = &slots(c)[i];
    if (stage == 1) {
        __builtin_prefetch(s, 1);
    } else if (s->listed) {
        if (s->prev != CACHE_NONE)
            __builtin_prefetch(&slots(c)[s->prev], 1);
        if (s->next != CACHE_NONE)
            __builtin_prefetch(&slots(c)[s->next], 1);
    }
}

uint32_t cache_lookup(struct cache *c, uint32_t unit, int *ready)
{
    assert(unit < c->n_units);
    c->stats.lookups++;
    if (!c->n_slots)
        return CACHE_NONE;
    uint32_t i = map_of(c)[unit];
    if (i != CACHE_NONE && slots(c)[i].listed)
        list_remove(c, i);
    if (counts(c)[unit] < CACHE_LEVELS - 1)
        counts(c)[unit]++;
    if (i == CACHE_NONE)
        return CACHE_NONE;
    struct slot *s = &slots(c)[i];
    assert(s->pins < UINT16_MAX);
    s->pins++;
    *ready = s->state == SLOT_READY;
    c->stats.hits++;
    return i;
}

static void forget(struct cache *c, uint32_t i)
{
    struct slot *s = &slots(c)[i];
    map_of(c)[s->unit] = CACHE_NONE;
    s->unit = CACHE_NONE;
    s->state = SLOT_FREE;
    s->pins = 0;
}

/* A slot for the unit, which has been counted `more` times more than its count says. */
static uint32_t admit(struct cache *c, uint32_t unit, int more, uint32_t *evicted)
{
    *evicted = CACHE_NONE;
    if (!c->n_slots)
        return CACHE_NONE;
    assert(unit < c->n_units && map_of(c)[unit] == CACHE_NONE);
    uint32_t i = c->free_head;
    if (i != CACHE_NONE) {
        c->free_head = slots(c)[i].next;
    } else {
        i = victim(c);
        if (i == CACHE_NONE || (c->policy == CACHE_LFU && level_of(c, unit) + more < level_of(c, slots(c)[i].unit))) {
            c->stats.refused++;
            return CACHE_NONE;
        }
        list_remove(c, i);
        *evicted = slots(c)[i].unit;
        forget(c, i);
        c->stats.evictions++;
    }
    slots(c)[i] = (struct slot){ .unit = unit, .pins = 1, .state = SLOT_LOADING };
    map_of(c)[unit] = i;
    return i;
}

uint32_t cache_admit(struct cache *c, uint32_t unit, uint32_t *evicted)
{
    return admit(c, unit, 0, evicted);
}

uint32_t cache_admit_early(struct cache *c, uint32_t unit, uint32_t *evicted)
{
    return admit(c, unit, 1, evicted);
}

uint32_t cache_find(const struct cache *c, uint32_t unit)
{
    assert(unit < c->n_units);
    return c->n_slots ? map_of(c)[unit] : CACHE_NONE;
}

void cache_drop(struct cache *c, uint32_t i)
{
    struct slot *s = &slots(c)[i];
    assert(i < c->n_slots && s->pins == 1 && s->state != SLOT_FREE && !s->listed);
    forget(c, i);
    s->next = c->free_head;
    c->free_head = i;
}

void cache_ready(struct cache *c, uint32_t i)
{
    struct slot *s = &slots(c)[i];
    assert(i < c->n_slots && s->state == SLOT_LOADING);
    s->state = SLOT_READY;
    if (!s->pins)
        list_append(c, i);
}

void cache_unpin(struct cache *c, uint32_t i)
{
    struct slot *s = &slots(c)[i];
    assert(i < c->n_slots && s->pins > 0);
    if (--s->pins == 0 && s->state == SLOT_READY)
        list_append(c, i);
}

void cache_unpin_first(struct cache *c, uint32_t i)
{
    struct slot *s = &slots(c)[i];
    assert(i < c->n_slots && s->pins > 0);
    if (--s->pins == 0 && s->state == SLOT_READY)
        list_prepend(c, i);
}

/* Of slot i, to the free slot j. */
static void renumber(struct cache *c, uint32_t i, uint32_t j)
{
    struct slot *s = slots(c);
    struct level *l = &levels(c)[level_of(c, s[i].unit)];
    s[j] = s[i];
    *(s[j].prev == CACHE_NONE ? &l->head : &s[s[j].prev].next) = j;
    *(s[j].next == CACHE_NONE ? &l->tail : &s[s[j].next].prev) = j;
    map_of(c)[s[j].unit] = j;
    s[i].state = SLOT_FREE;
}

/* No more than n units stay, all of them on lists, in the first n slots. */
static void gather(struct cache *c, uint32_t n, const struct cache_moves *m)
{
    struct slot *s = slots(c);
    uint32_t used = 0, to = 0;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        if (s[i].state != SLOT_FREE && (!s[i].listed || !m->stays(m->ctx, s[i].unit))) {
            if (s[i].listed)
                list_remove(c, i);
            forget(c, i);
        }
        used += s[i].state != SLOT_FREE;
    }
    for (uint32_t i; used > n; used--) {
        i = victim(c);
        list_remove(c, i);
        forget(c, i);
    }
    for (uint32_t i = n; i < c->n_slots; i++) {
        if (s[i].state == SLOT_FREE)
            continue;
        while (s[to].state != SLOT_FREE)
            to++;
        renumber(c, i, to);
        m->move(m->ctx, i, to);
    }
}

void cache_resize(struct cache *c, uint32_t n_slots, const struct cache_moves *m)
{
    uint32_t had = c->n_slots;
    if (!had || !n_slots) {
        cache_init(c, c->n_units, n_slots, c->policy);
        return;
    }
    gather(c, n_slots, m);
    memmove(slots(c) + n_slots, slots(c) + had, (size_t)c->n_units * (sizeof(uint32_t) + 1)); /* map and counts */
    c->n_slots = n_slots;
    c->stats = (struct cache_stats){ 0 };
    c->free_head = CACHE_NONE;
    for (uint32_t i = n_slots; i-- > 0;)
        if (i >= had || slots(c)[i].state == SLOT_FREE) {
            slots(c)[i] = (struct slot){ .unit = CACHE_NONE, .next = c->free_head };
            c->free_head = i;
        }
}

int cache_full(const struct cache *c)
{
    return c->free_head == CACHE_NONE;
}

/* List a, then list b, as list to (which is a, b or emptied before). */
static void concat(struct cache *c, int a, int b, int to)
{
    struct level la = levels(c)[a], lb = levels(c)[b], out = la;
    struct slot *s = slots(c);
    if (la.head == CACHE_NONE) {
        out = lb;
    } else if (lb.head != CACHE_NONE) {
        s[la.tail].next = lb.head;
        s[lb.head].prev = la.tail;
        out.tail = lb.tail;
    }
    levels(c)[a] = levels(c)[b] = (struct level){ CACHE_NONE, CACHE_NONE };
    levels(c)[to] = out;
}

void cache_tick(struct cache *c)
{
    if (!c->n_slots || ++c->ticks < CACHE_AGE_TICKS)
        return;
    c->ticks = 0;
    uint8_t *n = counts(c);
    for (uint32_t i = 0; i < c->n_units; i++)
        n[i] = n[i] >> 1;
    if (c->policy == CACHE_LRU)
        return;
    for (int k = 0; k < CACHE_LEVELS / 2; k++)
        concat(c, 2 * k, 2 * k + 1, k);
    memset(c->used_levels, 0, sizeof c->used_levels);
    for (int k = 0; k < CACHE_LEVELS / 2; k++)
        if (levels(c)[k].head != CACHE_NONE)
            c->used_levels[k / 64] |= (uint64_t)1 << k % 64;
}

uint32_t cache_slots(const struct cache *c)
{
    return c->n_slots;
}

uint32_t cache_unit(const struct cache *c, uint32_t slot)
{
    return slot < c->n_slots ? slots(c)[slot].unit : CACHE_NONE;
}

struct cache_stats cache_stats(const struct cache *c)
{
    return c->stats;
}
