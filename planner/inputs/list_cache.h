#ifndef PLANNER_INPUTS_LIST_CACHE_H
#define PLANNER_INPUTS_LIST_CACHE_H

/* Activation lists that were made once, for whoever asks for the same again: other layouts, and the check of the plan.
 * Packed, about a byte an entry, within a bound: what would exceed it is not kept, for layers are asked for round by
 * round, and what is dropped for another would be missed before it. One thread at a time. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "planner/inputs/inputs_steps.h"

#include <stddef.h>
#include <stdint.h>

#define LIST_CACHE_BYTES (64u << 20)  /* of the inputs' lists */

struct list_cache;

struct list_cache *list_cache_new(size_t most_bytes); /* NULL: no memory */
void list_cache_free(struct list_cache *k);           /* accepts NULL */

/* Keep a copy under a key that says all that the lists follow from but their number, in place of fewer of the same key, if
 * there is room. k may be NULL. */
void list_cache_add(struct list_cache *k, struct hash128 key, const struct inputs_steps *s);

/* The first n_steps lists of a key, the caller's: 1. 0: not kept, or not as many. ERR_NOMEM. k may be NULL. */
int list_cache_get(const struct list_cache *k, struct hash128 key, uint64_t n_steps, struct inputs_steps *out, struct err *e);

#endif
