/* A page's entry is named by a number that is never used again, and has the number of the entry before it; so what stands behind an entry
 * that gave way is never found, and in its turn gives way itself. Whoever touches an entry touches those before it later, which makes their
 * stamps the newer ones: the last page of a beginning goes first. */
#include "runtime/engine/kv_prefix.h"

#include "runtime/engine/kv_store.h"

#include <assert.h>
#include <string.h>

enum { NONE = -1 };
enum { KEPT = 1, STORED }; /* what is known of a page */

struct entry {
    uint64_t number, before; /* its own; of the page before it, 0: it is the first */
    uint64_t stamp;
    struct hash128 name;
    int32_t next, parent;    /* page of the same bucket; of the entry before, while that is there */
    int32_t ids[SCHEDULE_KV_PAGE];
};

struct kv_prefix {
    uint64_t numbers, clock;
    struct hash128 root;
    int n_unstored, n_slots;
    struct kv_slot *slots;
    struct entry *of;        /* [n_pages] */
    int32_t *buckets;        /* [n_pages]: pages; NONE */
};

_Static_assert((sizeof(struct entry) + 2 * sizeof(int32_t) + sizeof(uint16_t) + 1) <= KV_PREFIX_PER_TOKEN * SCHEDULE_KV_PAGE,
               "KV_PREFIX_PER_TOKEN");

static size_t own_table(const struct budget_kv *b)
{
    return b->table_bytes ? 0 : ((size_t)b->per_sequence * sizeof(int32_t) + (size_t)b->n_pages * sizeof(uint16_t) + 7) / 8 * 8;
}

size_t kv_prefix_bytes(const struct budget_kv *b)
{
    return sizeof(struct kv_prefix) + (size_t)b->n_pages * (sizeof(struct entry) + sizeof(int32_t) + 1) + 8 + own_table(b);
}

static int32_t *bucket_of(const struct kv_pages *k, uint64_t before, const int32_t *ids)
{
    uint64_t h = hash_64_seeded(ids, SCHEDULE_KV_PAGE * sizeof *ids, before);
    return &k->prefix->buckets[h % (uint64_t)k->n_pages];
}

/* The page with these tokens behind that entry, or NONE. */
static int find(const struct kv_pages *k, uint64_t before, const int32_t *ids)
{
    const struct entry *of = k->prefix->of;
    int page = *bucket_of(k, before, ids);
    while (page != NONE && (of[page].before != before || memcmp(of[page].ids, ids, sizeof of[page].ids)))
        page = of[page].next;
    return page;
}

/* From the last page of a beginning to its first. */
static void touch(struct kv_pages *k, int seq, int n)
{
    const int32_t *pages = kv_pages_of(k, seq);
    while (n-- > 0)
        k->prefix->of[pages[n]].stamp = ++k->prefix->clock;
}

static void forget(struct kv_pages *k, int page)
{
    struct entry *x = &k->prefix->of[page];
    int32_t *at = bucket_of(k, x->before, x->ids);
    while (*at != page)
        at = &k->prefix->of[*at].next;
    *at = x->next;
    k->prefix->n_unstored -= k->known[page] == KEPT;
    k->known[page] = 0;
    for (int i = 0; i < k->prefix->n_slots; i++)
        if (k->prefix->slots[i].number == x->number)
            k->prefix->slots[i] = (struct kv_slot){ 0 };
}

static int give_way(struct kv_pages *k)
{
    int page = NONE;
    for (int i = 0; i < k->n_pages; i++)
        if (!k->users[i] && k->known[i] && (page == NONE || k->prefix->of[i].stamp < k->prefix->of[page].stamp))
            page = i;
    if (page != NONE)
        forget(k, page);
    return page;
}

void kv_prefix_init(struct kv_pages *k, const struct budget_kv *b, void *memory)
{
    struct kv_prefix *p = memory;
    p->of = (struct entry *)(p + 1);
    if (!k->table) {
        k->table = (int32_t *)(p->of + k->n_pages);
        k->users = (uint16_t *)(k->table + k->per_sequence);
        memset(k->table, 0xff, (size_t)k->per_sequence * sizeof *k->table);
    }
    p->buckets = (int32_t *)((char *)(p->of + k->n_pages) + own_table(b));
    memset(p->buckets, 0xff, (size_t)k->n_pages * sizeof *p->buckets);
    k->known = (uint8_t *)(p->buckets + k->n_pages);
    k->give_way = give_way;
    k->prefix = p;
}

void kv_prefix_root(struct kv_pages *k, struct hash128 root)
{
    k->prefix->root = root;
}

int kv_prefix_take(struct kv_pages *k, int seq, int from, const int32_t *ids, int n)
{
    int pages = from / SCHEDULE_KV_PAGE, page;
    if (!k->prefix)
        return 0;
    uint64_t before = pages ? k->prefix->of[kv_pages_of(k, seq)[pages - 1]].number : 0;
    while ((pages + 1) * SCHEDULE_KV_PAGE <= n && (page = find(k, before, ids + pages * SCHEDULE_KV_PAGE)) != NONE) {
        kv_pages_use(k, seq, pages++, page);
        before = k->prefix->of[page].number;
    }
    touch(k, seq, pages);
    return pages * SCHEDULE_KV_PAGE;
}

void kv_prefix_keep(struct kv_pages *k, int seq, const int32_t *ids, int n)
{
    struct kv_prefix *p = k->prefix;
    uint64_t before = 0;
    int pages = p ? n / SCHEDULE_KV_PAGE : 0, parent = NONE;
    for (int i = 0; i < pages; i++, ids += SCHEDULE_KV_PAGE) {
        int page = kv_pages_of(k, seq)[i], there = find(k, before, ids);
        assert(page >= 0 && (there == page || !k->known[page])); /* what is known of a page is not written over */
        if (there != NONE) {
            kv_pages_use(k, seq, i, there);
            before = p->of[there].number;
            parent = there;
            continue;
        }
        struct entry *x = &p->of[page];
        int32_t *bucket = bucket_of(k, before, ids);
        *x = (struct entry){ .number = ++p->numbers, .before = before, .next = *bucket, .parent = parent,
                             .name = kv_store_next(parent == NONE ? p->root : p->of[parent].name, ids) };
        memcpy(x->ids, ids, sizeof x->ids);
        *bucket = page;
        k->known[page] = KEPT;
        p->n_unstored++;
        before = x->number;
        parent = page;
    }
    touch(k, seq, pages);
}

/* ---- what a folder has ---- */

struct hash128 kv_prefix_name(const struct kv_pages *k, int seq, int n, const int32_t *ids)
{
    const struct kv_prefix *p = k->prefix;
    return kv_store_next(n ? p->of[kv_pages_of(k, seq)[n / SCHEDULE_KV_PAGE - 1]].name : p->root, ids);
}

void kv_prefix_each_stored(const struct kv_pages *k, int seq, int n, void (*each)(void *ctx, struct hash128 page, int n), void *ctx)
{
    for (int i = n / SCHEDULE_KV_PAGE; i-- > 0;) {
        int page = kv_pages_of(k, seq)[i];
        if (page != NONE && k->known[page] == STORED)
            each(ctx, k->prefix->of[page].name, (i + 1) * SCHEDULE_KV_PAGE);
    }
}

/* How many pages lie between the text's beginning and this one's end; 0: some of them have given way. */
static int depth_of(const struct kv_pages *k, int page)
{
    const struct entry *of = k->prefix->of;
    int n = 1;
    for (; of[page].before; page = of[page].parent, n++)
        if (!k->known[of[page].parent] || of[of[page].parent].number != of[page].before)
            return 0;
    return n;
}

/* Tokens from the text's beginning to the page's end: how many; 0: it is found no more. */
static int tokens_of(const struct kv_pages *k, int page, int32_t *ids)
{
    const struct entry *of = k->prefix->of;
    int depth = depth_of(k, page);
    for (int i = depth; i-- > 0; page = of[page].parent)
        memcpy(ids + i * SCHEDULE_KV_PAGE, of[page].ids, sizeof of[page].ids);
    return depth * SCHEDULE_KV_PAGE;
}

int kv_prefix_unstored(struct kv_pages *k, int32_t *ids, int *n, struct hash128 *name)
{
    const struct entry *of = k->prefix->of;
    while (k->prefix->n_unstored > 0) {
        int page = NONE;
        for (int i = 0; i < k->n_pages; i++)
            if (k->known[i] == KEPT && (page == NONE || of[i].number < of[page].number))
                page = i;
        if ((*n = tokens_of(k, page, ids)) > 0) {
            *name = of[page].name;
            return page;
        }
        kv_prefix_stored(k, page);
    }
    return NONE;
}

void kv_prefix_stored(struct kv_pages *k, int page)
{
    k->prefix->n_unstored -= k->known[page] == KEPT;
    k->known[page] = STORED;
}

/* ---- states ---- */

void kv_prefix_slots(struct kv_pages *k, struct kv_slot *slots, int n)
{
    k->prefix->slots = slots;
    k->prefix->n_slots = n;
}

int kv_prefix_state(struct kv_pages *k, int seq, int n)
{
    struct kv_prefix *p = k->prefix;
    uint64_t number = p->of[kv_pages_of(k, seq)[n / SCHEDULE_KV_PAGE - 1]].number;
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].number == number) {
            p->slots[i].stamp = ++p->clock;
            return i;
        }
    return NONE;
}

int kv_prefix_mark(struct kv_pages *k, int seq, int n)
{
    struct kv_prefix *p = k->prefix;
    int page = kv_pages_of(k, seq)[n / SCHEDULE_KV_PAGE - 1], slot = 0;
    if (!p->n_slots || kv_prefix_state(k, seq, n) != NONE)
        return NONE;
    for (int i = 1; i < p->n_slots; i++)
        if (p->slots[i].stamp < p->slots[slot].stamp)
            slot = i;
    p->slots[slot] = (struct kv_slot){ .number = p->of[page].number, .stamp = ++p->clock, .page = page };
    return slot;
}

int kv_prefix_unstored_state(struct kv_pages *k, int32_t *ids, int *n, struct hash128 *name)
{
    struct kv_prefix *p = k->prefix;
    for (int i = 0; i < p->n_slots; i++) {
        if (!p->slots[i].number || p->slots[i].stored)
            continue;
        if ((*n = tokens_of(k, p->slots[i].page, ids)) > 0) {
            *name = p->of[p->slots[i].page].name;
            return i;
        }
        p->slots[i].stored = 1;
    }
    return NONE;
}

void kv_prefix_stored_state(struct kv_pages *k, int slot)
{
    k->prefix->slots[slot].stored = 1;
}
