/* A page's entry is named by a number that is never used again, and has the number of the entry before it; so what stands behind an entry
 * that gave way is never found, and in its turn gives way itself. Whoever touches an entry touches those before it later, which makes their
 * stamps the newer ones: the last page of a beginning goes first. */
#include "runtime/engine/kv_prefix.h"

#include "common/base/hash.h"

#include <assert.h>
#include <string.h>

enum { NONE = -1 };

struct entry {
    uint64_t number, before; /* its own; of the page before it, 0: it is the first */
    uint64_t stamp;
    int32_t next;            /* page of the same bucket */
    int32_t ids[SCHEDULE_KV_PAGE];
};

struct kv_prefix {
    uint64_t numbers, clock;
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
    k->known[page] = 0;
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

int kv_prefix_take(struct kv_pages *k, int seq, const int32_t *ids, int n)
{
    int pages = 0, page;
    uint64_t before = 0;
    if (!k->prefix)
        return 0;
    while ((pages + 1) * SCHEDULE_KV_PAGE <= n && (page = find(k, before, ids + pages * SCHEDULE_KV_PAGE)) != NONE) {
        kv_pages_use(k, seq, pages++, page);
        before = k->prefix->of[page].number;
    }
    touch(k, seq, pages);
    return pages * SCHEDULE_KV_PAGE;
}

void kv_prefix_keep(struct kv_pages *k, int seq, const int32_t *ids, int n)
{
    uint64_t before = 0;
    int pages = k->prefix ? n / SCHEDULE_KV_PAGE : 0;
    for (int i = 0; i < pages; i++, ids += SCHEDULE_KV_PAGE) {
        int page = kv_pages_of(k, seq)[i], there = find(k, before, ids);
        struct entry *x = &k->prefix->of[page];
        assert(page >= 0 && (there == page || !k->known[page])); /* what is known of a page is not written over */
        if (there != NONE) {
            kv_pages_use(k, seq, i, there);
            before = k->prefix->of[there].number;
            continue;
        }
        int32_t *bucket = bucket_of(k, before, ids);
        *x = (struct entry){ .number = ++k->prefix->numbers, .before = before, .next = *bucket };
        memcpy(x->ids, ids, sizeof x->ids);
        *bucket = page;
        k->known[page] = 1;
        before = x->number;
    }
    touch(k, seq, pages);
}
