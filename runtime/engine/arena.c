/* One mapping, so that the sum is right by construction: what is not in it is not there. Every page
 * is touched at start; a page that first appears in the middle of a token would be a stall and, in
 * a memory cgroup, a surprise. */
#include "runtime/engine/arena.h"

#include "common/base/pages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE  4096u        /* the account counts in such; each is touched */
#define PIECE (2u << 20) /* that one thread touches at a time */

/* Staging first: the mapping begins with huge pages (pages.h), and what does not fill one is at its end. Then the cold cache, whose slots
 * of tiles are read into, too: without streamed predictors, which tiles have none of, staging is whole pages. What is at the end is read
 * into at load alone. */
static const enum budget_item order[] = {
    BUDGET_STAGING, BUDGET_COLD, BUDGET_HOT, BUDGET_DENSE, BUDGET_PREDICTOR, BUDGET_KV, BUDGET_SCRATCH, BUDGET_CHECKS,
    BUDGET_INDEX,
};

/* What a limit changes is at the end. */
static const enum budget_item elastic_order[] = {
    BUDGET_STAGING, BUDGET_DENSE, BUDGET_PREDICTOR, BUDGET_KV, BUDGET_SCRATCH, BUDGET_HOT, BUDGET_COLD, BUDGET_CHECKS, BUDGET_INDEX,
};
_Static_assert(sizeof elastic_order == sizeof order, "the same items");
#define N_ITEMS (sizeof order / sizeof order[0])
#define N_FIXED 5 /* of elastic_order */

/* What the account calls index has the kernel's page tables in it, which are not ours to map. */
static uint64_t mapped(const struct budget *b, enum budget_item i)
{
    return b->item[i] - (i == BUDGET_INDEX ? b->tables : 0);
}

/* Offsets of the items; their end. */
static uint64_t place(const struct budget *b, const enum budget_item *items, int elastic, uint64_t at[N_ITEMS])
{
    uint64_t end = 0;
    for (size_t i = 0; i < N_ITEMS; i++) {
        at[i] = elastic && items[i] == BUDGET_COLD ? pages_up(end) : end;
        end = at[i] + mapped(b, items[i]);
    }
    return pages_up(end);
}

size_t arena_elastic_bytes(const struct budget *b)
{
    uint64_t at[N_ITEMS];
    return (size_t)place(b, elastic_order, 1, at);
}

size_t arena_place(const struct arena *a, const struct budget *b, struct arena_item item[BUDGET_ITEMS])
{
    uint64_t at[N_ITEMS], end = place(b, elastic_order, 1, at);
    for (size_t i = 0; i < N_ITEMS; i++) {
        size_t size = (size_t)mapped(b, elastic_order[i]);
        item[elastic_order[i]] = (struct arena_item){ a->base + at[i], size, i < N_FIXED ? a->item[elastic_order[i]].used : size };
    }
    return (size_t)end;
}

struct range {
    uint8_t *from, *to;
};

/* Every page of pieces [begin, end) of PIECE bytes. */
static void touch(void *ctx, int begin, int end, int worker)
{
    const struct range *a = ctx;
    size_t bytes = (size_t)(a->to - a->from), from = (size_t)begin * PIECE, to = (size_t)end * PIECE < bytes ? (size_t)end * PIECE : bytes;
    (void)worker;
    for (size_t i = from; i < to; i += PAGE)
        ((volatile uint8_t *)a->from)[i] = 0;
}

/* By all threads, for the kernel zeroes each page when it is touched; mlock, which would do that with one, then finds them there. */
static void touch_all(struct pool *pool, uint8_t *from, uint8_t *to)
{
    struct range r = { from, to };
    pool_for(pool, (int)((to - from + PIECE - 1) / PIECE), 1, touch, &r);
}

/* Addresses that are ours, and nothing else. What was there goes, with its page tables. */
static int leave(uint8_t *from, uint8_t *to)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return from == to || mmap(from, (size_t)(to - from), PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

int arena_open(struct arena *a, struct pool *pool, const struct budget *b, size_t reserve, int lock, struct err *e)
{
    const enum budget_item *items = reserve ? elastic_order : order;
    uint64_t at[N_ITEMS], bytes = place(b, items, reserve > 0, at), all = reserve > bytes ? reserve : bytes;
    *a = (struct arena){ 0 };
    uint8_t *m = pages_map((size_t)all);
    if (!m)
        return err_sys(e, ERR_NOMEM, "cannot map %llu bytes", (unsigned long long)all);
    a->base = m;
    a->bytes = (size_t)bytes;
    a->reserved = reserve ? (size_t)all : 0;
    if (!leave(m + bytes, m + all))
        return err_sys(e, ERR_NOMEM, "cannot reserve %llu bytes", (unsigned long long)all);
    touch_all(pool, m, m + a->bytes);
    if (lock) {
        a->locked = mlock(m, a->bytes) == 0;
        a->lock_errno = a->locked ? 0 : errno;
    }
    for (size_t i = 0; i < N_ITEMS; i++) {
        a->item[items[i]].at = a->base + at[i];
        a->item[items[i]].size = (size_t)mapped(b, items[i]);
    }
    a->page_bytes = pages_size(a->base, a->bytes);
    return 0;
}

static int grow(struct arena *a, struct pool *pool, uint8_t *from, uint8_t *to, struct err *e)
{
    if (to > a->base + a->reserved)
        return err_set(e, ERR_LIMIT, "%zu bytes of memory; %zu are reserved", (size_t)(to - a->base), a->reserved);
    if (mprotect(from, (size_t)(to - from), PROT_READ | PROT_WRITE) < 0)
        return err_sys(e, ERR_NOMEM, "cannot map %zu more bytes", (size_t)(to - from));
    madvise(from, (size_t)(to - from), MADV_HUGEPAGE);
    touch_all(pool, from, to);
    if (a->locked && mlock(from, (size_t)(to - from)) < 0) {
        a->locked = 0;
        a->lock_errno = errno;
    }
    return 0;
}

/* The end may lie within a huge page, which goes as a whole or not at all: it is made small ones first, as MADV_FREE does with a huge page
 * of which it is given a part, and only with one that is not locked. */
static int shrink(struct arena *a, uint8_t *from, uint8_t *to, struct err *e)
{
    size_t huge = pages_huge_size(), into = huge ? (uintptr_t)from % huge : 0;
    uint8_t *begin = into < (size_t)(from - a->base) ? from - into : a->base;
    uint8_t *next = into ? from + (huge - into) : from, *part = next < to ? next : to;
    if (a->locked)
        munlock(begin, (size_t)(to - begin));
#ifdef MADV_FREE
    if (into)
        madvise(from, (size_t)(part - from), MADV_FREE);
#endif
    if (!leave(from, to))
        return err_sys(e, ERR_NOMEM, "cannot give %zu bytes back", (size_t)(to - from));
    if (a->locked && into && mlock(begin, (size_t)(from - begin)) < 0) {
        a->locked = 0;
        a->lock_errno = errno;
    }
    return 0;
}

int arena_resize(struct arena *a, struct pool *pool, size_t bytes, struct err *e)
{
    uint8_t *old = a->base + a->bytes, *end = a->base + bytes;
    int r = end > old ? grow(a, pool, old, end, e) : end < old ? shrink(a, end, old, e) : 0;
    if (r == 0) {
        a->bytes = bytes;
        a->page_bytes = pages_size(a->base, a->bytes);
    }
    return r;
}

void arena_close(struct arena *a)
{
    if (a->base)
        munmap(a->base, a->reserved ? a->reserved : a->bytes);
    *a = (struct arena){ 0 };
}

void *arena_take(struct arena *a, enum budget_item item, size_t bytes)
{
    size_t need = (bytes + 63) & ~(size_t)63;
    uint8_t *p = a->item[item].at + a->item[item].used;
    assert(need >= bytes && need <= a->item[item].size - a->item[item].used);
    a->item[item].used += need;
    return p;
}
