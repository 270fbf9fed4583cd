#ifndef COMMON_PLAN_CACHE_H
#define COMMON_PLAN_CACHE_H

/* Index of the cold neuron cache: which unit is in which slot of one segment (a layer's part), and
 * which to drop. It holds no weights, so the runtime runs it over real memory and the planner
 * replays traces through the very same code.
 *
 * A slot is free, loading, or ready. Entries are used only while pinned, and a pinned or loading
 * one is never evicted. Data is clean: eviction is a drop. One owner thread. No allocation: the
 * caller gives cache_bytes() of memory, which the budget has counted. */
#include <stddef.h>
#include <stdint.h>

enum cache_policy {
    CACHE_LRU,  /* least recently used */
    CACHE_LFU,  /* least frequently used with ageing: counts halve as time passes; ties by recency */
    CACHE_POLICIES
};

#define CACHE_NONE UINT32_MAX

/* Of ageing (LFU): counts stop at LEVELS - 1 and halve every AGE_TICKS ticks. */
#define CACHE_LEVELS    128
#define CACHE_AGE_TICKS 64

struct cache;

const char *cache_policy_name(enum cache_policy p); /* "lru" "lfu" */

/* Memory for a segment of n_units units (experts of a layer share a segment: number their units one after the
 * other) and n_slots slots; mem is aligned to 64. n_slots 0 is a cache that never hits. */
size_t cache_bytes(uint32_t n_units, uint32_t n_slots);
struct cache *cache_init(void *mem, uint32_t n_units, uint32_t n_slots, enum cache_policy policy);

/* Slot of a unit that is ready or loading, pinned once more; CACHE_NONE when absent. Counts one access. */
uint32_t cache_lookup(struct cache *c, uint32_t unit, int *ready);

/* Ask for the memory that a lookup of the unit will touch, ahead of it: stage 0 its index and count, then 1 its slot,
 * then 2 the slot's neighbours on its list. Each stage reads what the one before asked for. Changes nothing. */
void cache_prefetch(const struct cache *c, uint32_t unit, int stage);

/* After a miss: a slot for the unit, loading and pinned, its former unit in *evicted (or CACHE_NONE). Gives
 * CACHE_NONE when every slot is pinned or when the policy would keep what it has: then use the
 * data once from staging. */
uint32_t cache_admit(struct cache *c, uint32_t unit, uint32_t *evicted);
/* The same for a unit that is not there and whose lookup comes later, perhaps: judged as if it had been counted already. */
uint32_t cache_admit_early(struct cache *c, uint32_t unit, uint32_t *evicted);
/* Its slot, ready or loading, or CACHE_NONE; counts nothing, pins nothing. */
uint32_t cache_find(const struct cache *c, uint32_t unit);
void cache_ready(struct cache *c, uint32_t slot);   /* loading -> ready */
/* The slot of a unit with a single pin is free, and the unit is not in the cache: it was not wanted after all. */
void cache_drop(struct cache *c, uint32_t slot);
void cache_unpin(struct cache *c, uint32_t slot);
/* The same, but the unit is not wanted again soon: of its level it is the first to go. */
void cache_unpin_first(struct cache *c, uint32_t slot);
/* As many slots from here on, in the same place, which has cache_bytes() of the more of both numbers: between passes. What is pinned or
 * loading, and units for which stays() is 0, are gone; then victims go, as admissions would choose them, until the others fit. Of those
 * that stay move() copies the data from slot to slot, lower ones; order and counts are what they were, statistics begin anew. */
struct cache_moves {
    int (*stays)(void *ctx, uint32_t unit);
    void (*move)(void *ctx, uint32_t from, uint32_t to);
    void *ctx;
};
void cache_resize(struct cache *c, uint32_t n_slots, const struct cache_moves *m);
int cache_full(const struct cache *c);              /* 1: no slot is free, so that what is admitted drives something out */

/* A token (or batch step) has passed: ageing. */
void cache_tick(struct cache *c);

uint32_t cache_slots(const struct cache *c);         /* as given at init */
uint32_t cache_unit(const struct cache *c, uint32_t slot); /* CACHE_NONE: the slot is free */

struct cache_stats {
    uint64_t lookups, hits, evictions, refused;
};
struct cache_stats cache_stats(const struct cache *c);

#endif
