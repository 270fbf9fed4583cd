#ifndef RUNTIME_ENGINE_ARENA_H
#define RUNTIME_ENGINE_ARENA_H

/* The runtime's memory: one anonymous mapping, divided among the items of the account in exactly its
 * sizes. Taking more from an item than the account lists is a bug and asserts. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/plan/budget.h"

#include <stddef.h>
#include <stdint.h>

struct arena {
    uint8_t *base;
    size_t bytes;
    int locked;      /* mlock succeeded */
    int lock_errno;  /* why not */
    size_t page_bytes; /* pages_size() of it */
    struct {
        uint8_t *at;
        size_t size, used;
    } item[BUDGET_ITEMS];
};

/* Maps, touches every page with all threads of the pool, and locks (when lock is set). BUDGET_PROCESS, STACKS and META are not part
 * of it. */
int arena_open(struct arena *a, struct pool *pool, const struct budget *b, int lock, struct err *e);
void arena_close(struct arena *a);

/* bytes of an item, aligned to 64 (the first of STAGING to a page); zeroed. */
void *arena_take(struct arena *a, enum budget_item item, size_t bytes);

#endif
