#ifndef RUNTIME_ENGINE_KV_PREFIX_H
#define RUNTIME_ENGINE_KV_PREFIX_H

/* Pages of the KV cache by what they hold: the tokens of their positions, behind the page before them, so that a sequence which begins as
 * another did finds its pages, whether that one is still there or not. Tokens themselves are compared, not hashes of them. A page that no
 * sequence uses stays as long as no other one is free; then the one that was found or kept longest ago gives way, ends of beginnings before
 * their starts.
 *
 * What a page holds has a name (kv_store.h), by which a folder may have it, too: kv_prefix_unstored says what it lacks.
 *
 * What is kept holds what a prompt's pass would make: whoever keeps pages sees to that. Whole pages alone. One thread; no allocation. */
#include "common/base/hash.h"

#include "runtime/engine/kv_pages.h"

#include <stddef.h>

/* Of a cache: with the table of one sequence, which has none otherwise. */
size_t kv_prefix_bytes(const struct budget_kv *b);

/* Bytes for each position of the cache, at most, beside those for one page. */
#define KV_PREFIX_PER_TOKEN 6

/* memory: kv_prefix_bytes of it, aligned to 8, zeroed. Before any position is written. */
void kv_prefix_init(struct kv_pages *k, const struct budget_kv *b, void *memory);

/* Names of first pages follow from this one; before anything is kept. */
void kv_prefix_root(struct kv_pages *k, struct hash128 root);

/* The sequence, which has `from` positions, whole pages that are kept, goes on with what there is of ids[n]: how many positions it has. */
int kv_prefix_take(struct kv_pages *k, int seq, int from, const int32_t *ids, int n);

/* The sequence's first n positions, as far as they fill pages, hold ids[n]. A page that another one has already becomes that one. */
void kv_prefix_keep(struct kv_pages *k, int seq, const int32_t *ids, int n);

/* Name of the page behind the first n positions of a sequence, all of them kept, with ids[] its tokens. */
struct hash128 kv_prefix_name(const struct kv_pages *k, int seq, int n, const int32_t *ids);

/* Of a sequence's first n positions, from the last page to the first: what is stored. */
void kv_prefix_each_stored(const struct kv_pages *k, int seq, int n, void (*each)(void *ctx, struct hash128 page, int n), void *ctx);

/* The page that was kept first of those that are not stored, or -1: its tokens from the text's beginning, ids[*n], and its name. Then it is
 * stored. */
int kv_prefix_unstored(struct kv_pages *k, int32_t *ids, int *n, struct hash128 *name);
void kv_prefix_stored(struct kv_pages *k, int page);

/* ---- states of recurrent layers, of which a few are kept in slots ---- */

/* A page whose end a state is of. All zero: none. */
struct kv_slot {
    uint64_t number, stamp;
    int page, stored;
};

/* slots[n], zeroed; before anything is kept. */
void kv_prefix_slots(struct kv_pages *k, struct kv_slot *slots, int n);

/* The slot for the state after a sequence's first n positions, whole pages that are kept; or -1: it has one. The one used longest ago. */
int kv_prefix_mark(struct kv_pages *k, int seq, int n);

/* The slot that has this state, or -1; it is used. */
int kv_prefix_state(struct kv_pages *k, int seq, int n);

/* As kv_prefix_unstored and kv_prefix_stored, of states. */
int kv_prefix_unstored_state(struct kv_pages *k, int32_t *ids, int *n, struct hash128 *name);
void kv_prefix_stored_state(struct kv_pages *k, int slot);

#endif
