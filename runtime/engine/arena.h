#ifndef RUNTIME_ENGINE_ARENA_H
#define RUNTIME_ENGINE_ARENA_H

/* The runtime's memory: one anonymous mapping, divided among the items of the account in exactly its
 * sizes. Taking more from an item than the account lists is a bug and asserts.
 *
 * An elastic one has the items that a limit changes at its end, after those that stay as they are: hot, cold (which begins at a page), the
 * checksums and the index. Its end moves; the addresses up to `reserved` are its own, and what of them is not mapped takes neither memory
 * nor page tables. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/plan/budget.h"

#include <stddef.h>
#include <stdint.h>

struct arena_item {
    uint8_t *at;
    size_t size, used;
};

struct arena {
    uint8_t *base;
    size_t bytes, reserved; /* reserved 0: it is not elastic */
    int locked;      /* mlock succeeded */
    int lock_errno;  /* why not */
    size_t page_bytes; /* pages_size() of it */
    struct arena_item item[BUDGET_ITEMS];
};

/* Bytes of an elastic one of this account: whole pages of the system's size, and its cold cache begins at one. It takes a page more than
 * the account has, at most; where the arena ends within a page is in the item process (budget.h). */
size_t arena_elastic_bytes(const struct budget *b);

/* Maps, touches every page with all threads of the pool, and locks (when lock is set). BUDGET_PROCESS, STACKS and META are not part
 * of it. reserve: 0, or of an elastic one the most that it will have. */
int arena_open(struct arena *a, struct pool *pool, const struct budget *b, size_t reserve, int lock, struct err *e);
void arena_close(struct arena *a);

/* Of an elastic one: where the items of an account with the same fixed items are; `used` of those at its end is their size. How many bytes
 * these take. */
size_t arena_place(const struct arena *a, const struct budget *b, struct arena_item item[BUDGET_ITEMS]);

/* It ends after so many bytes: zeroed and there, or given back to the system. What both have stays as it is. ERR_NOMEM, ERR_LIMIT: not
 * grown, and nothing has changed. */
int arena_resize(struct arena *a, struct pool *pool, size_t bytes, struct err *e);

/* bytes of an item, aligned to 64 (the first of STAGING to a page); zeroed. */
void *arena_take(struct arena *a, enum budget_item item, size_t bytes);

#endif
