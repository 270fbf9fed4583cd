#ifndef RUNTIME_ENGINE_KV_PREFIX_H
#define RUNTIME_ENGINE_KV_PREFIX_H

/* Pages of the KV cache by what they hold: the tokens of their positions, behind the page before them, so that a sequence which begins as
 * another did finds its pages, whether that one is still there or not. Tokens themselves are compared, not hashes of them. A page that no
 * sequence uses stays as long as no other one is free; then the one that was found or kept longest ago gives way, ends of beginnings before
 * their starts.
 *
 * What is kept holds what a prompt's pass would make: whoever keeps pages sees to that. Whole pages alone. One thread; no allocation. */
#include "runtime/engine/kv_pages.h"

#include <stddef.h>

/* Of a cache: with the table of one sequence, which has none otherwise. */
size_t kv_prefix_bytes(const struct budget_kv *b);

/* Bytes for each position of the cache, at most, beside those for one page. */
#define KV_PREFIX_PER_TOKEN 6

/* memory: kv_prefix_bytes of it, aligned to 8, zeroed. Before any position is written. */
void kv_prefix_init(struct kv_pages *k, const struct budget_kv *b, void *memory);

/* The sequence, which has no page, begins with what there is of ids[n]: how many positions, whole pages. */
int kv_prefix_take(struct kv_pages *k, int seq, const int32_t *ids, int n);

/* The sequence's first n positions, as far as they fill pages, hold ids[n]. A page that another one has already becomes that one. */
void kv_prefix_keep(struct kv_pages *k, int seq, const int32_t *ids, int n);

#endif
