#ifndef RUNTIME_ENGINE_KV_PAGES_H
#define RUNTIME_ENGINE_KV_PAGES_H

/* Which positions of which sequence lie where in the KV cache. The cache is a pool of pages of SCHEDULE_KV_PAGE positions; a table per
 * sequence names its pages in order. Sequences with the same beginning use the same pages: each page counts its users, and one that has
 * several is copied before a position is written to it. Pages hold no bytes themselves: K and V of every layer have a plane of
 * rows of their own, and page p is rows p * SCHEDULE_KV_PAGE and on of each.
 *
 * One sequence alone has no table, unless its pages are found by what they hold (kv_prefix.h): its positions lie in order. So do, as far as
 * pages are free, those of each of several: a page that follows in the sequence is taken from behind the last one, and attention reads
 * neighbouring pages as one run.
 *
 * One thread. Nothing here allocates: the table lies in memory of the account (struct budget_kv). */
#include "common/base/err.h"
#include "common/plan/budget.h"

#include <stdint.h>

struct kv_pages {
    int sequences, per_sequence, n_pages, n_free;
    int32_t *table;  /* [sequences][per_sequence]: pages; -1: none yet. NULL: one sequence, in order */
    uint16_t *users; /* [n_pages] */
    /* What pages hold (kv_prefix.h); NULL: those that have no user hold nothing. */
    struct kv_prefix *prefix;
    uint8_t *known;  /* [n_pages] 1: the page is not written to, and */
    int (*give_way)(struct kv_pages *k); /* a page that has no user, known no longer, or -1 */
};

/* memory: b->table_bytes of it; NULL where that is 0. */
void kv_pages_init(struct kv_pages *k, const struct budget_kv *b, int sequences, void *memory);

/* Row of a position, which has a page. */
static inline int64_t kv_pages_row(const struct kv_pages *k, int seq, int pos)
{
    if (!k->table)
        return pos;
    return (int64_t)k->table[(size_t)seq * (size_t)k->per_sequence + (size_t)(pos / SCHEDULE_KV_PAGE)] * SCHEDULE_KV_PAGE +
           pos % SCHEDULE_KV_PAGE;
}

/* The table of a sequence: page of each SCHEDULE_KV_PAGE positions; NULL: they lie in order. */
static inline const int32_t *kv_pages_of(const struct kv_pages *k, int seq)
{
    return k->table ? k->table + (size_t)seq * (size_t)k->per_sequence : NULL;
}

/* Gives a position a page that is the sequence's alone. 1: it had a shared one, and positions before it in page `from` are to be
 * copied to page `to`; 0; ERR_LIMIT: no page is free. */
int kv_pages_own(struct kv_pages *k, int seq, int pos, int *from, int *to, struct err *e);

/* How many pages kv_pages_own takes for positions [from, from + n), at most. */
int kv_pages_need(const struct kv_pages *k, int seq, int from, int n);

/* The first n_pos positions of `from` become those of `to`, which gives up what it had. */
void kv_pages_share(struct kv_pages *k, int to, int from, int n_pos);

/* The sequence's i-th page is this one, in place of the one that it may have. */
void kv_pages_use(struct kv_pages *k, int seq, int i, int page);

/* Gives up the pages that no position before n_pos lies in. */
void kv_pages_keep(struct kv_pages *k, int seq, int n_pos);

#endif
