/* One mapping, so that the sum is right by construction: what is not in it is not there. Every page
 * is touched at start; a page that first appears in the middle of a token would be a stall and, in
 * a memory cgroup, a surprise. */
#include "runtime/engine/arena.h"

#include "common/base/pages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE  4096u
#define PIECE (2u << 20) /* that one thread touches at a time */

/* Staging first: the mapping begins with huge pages (pages.h), and what does not fill one is at its end. Then the cold cache, whose slots
 * of tiles are read into, too: without streamed predictors, which tiles have none of, staging is whole pages. What is at the end is read
 * into at load alone. */
static const enum budget_item order[] = {
    BUDGET_STAGING, BUDGET_COLD, BUDGET_HOT, BUDGET_DENSE, BUDGET_PREDICTOR, BUDGET_KV, BUDGET_SCRATCH, BUDGET_CHECKS,
    BUDGET_INDEX,
};

/* What the account calls index has the kernel's page tables in it, which are not ours to map. */
static uint64_t mapped(const struct budget *b, enum budget_item i)
{
    return b->item[i] - (i == BUDGET_INDEX ? b->tables : 0);
}

/* Every page of pieces [begin, end) of PIECE bytes. */
static void touch(void *ctx, int begin, int end, int worker)
{
    const struct arena *a = ctx;
    size_t from = (size_t)begin * PIECE, to = (size_t)end * PIECE < a->bytes ? (size_t)end * PIECE : a->bytes;
    (void)worker;
    for (size_t i = from; i < to; i += PAGE)
        ((volatile uint8_t *)a->base)[i] = 0;
}

int arena_open(struct arena *a, struct pool *pool, const struct budget *b, int lock, struct err *e)
{
    uint64_t bytes = 0;
    *a = (struct arena){ 0 };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        bytes += mapped(b, order[i]);
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *m = pages_map((size_t)bytes);
    if (!m)
        return err_sys(e, ERR_NOMEM, "cannot map %llu bytes", (unsigned long long)bytes);
    a->base = m;
    a->bytes = (size_t)bytes;
    /* By all threads, for the kernel zeroes each page when it is touched; mlock, which would do that with one, then finds them there. */
    pool_for(pool, (int)((bytes + PIECE - 1) / PIECE), 1, touch, a);
    if (lock) {
        a->locked = mlock(m, a->bytes) == 0;
        a->lock_errno = a->locked ? 0 : errno;
    }
    uint8_t *at = a->base;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        a->item[order[i]].at = at;
        a->item[order[i]].size = (size_t)mapped(b, order[i]);
        at += mapped(b, order[i]);
    }
    a->page_bytes = pages_size(a->base, a->bytes);
    return 0;
}

void arena_close(struct arena *a)
{
    if (a->base)
        munmap(a->base, a->bytes);
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
