/* What is mapped is what the account has, less what the kernel keeps for it. */
#include "runtime/engine/arena.h"

#include "common/base/pages.h"

#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* How many of the arena's pages are not in memory. */
static size_t absent(const struct arena *a)
{
    size_t pages = (a->bytes + 4095) / 4096, n = 0;
    unsigned char *in = malloc(pages);
    CHECK(in && mincore(a->base, a->bytes, in) == 0);
    for (size_t i = 0; in && i < pages; i++)
        n += !(in[i] & 1);
    free(in);
    return n;
}

int main(void)
{
    struct budget b = { .tables = 3 << 12 };
    struct arena a;
    struct pool *pool = NULL;
    struct err e = { 0 };
    uint64_t sum = 0;
    for (int i = BUDGET_DENSE; i < BUDGET_ITEMS; i++)
        sum += b.item[i] = (uint64_t)(i + 4) << 12;
    b.item[BUDGET_PROCESS] = 1 << 20; /* not the arena's: the program, and its tables */
    CHECK(pool_new(3, NULL, &pool, &e) == 0);
    CHECK(arena_open(&a, pool, &b, 0, &e) == 0);
    CHECK(a.bytes == sum - b.tables);
    uint64_t index = b.item[BUDGET_INDEX] - b.tables;
    uint8_t *p = arena_take(&a, BUDGET_INDEX, index);
    CHECK(p >= a.base && p + index <= a.base + a.bytes);
    memset(p, 1, index);
    arena_close(&a);
    CHECK(a.base == NULL);
    /* One that a huge page fits into begins where one can, so that what reads arrive in can be whole huge pages; and is in huge pages
     * where the system gives any. */
    size_t probe = 8 << 20, huge = pages_huge_size();
    void *m = pages_map(probe);
    CHECK(m && (!huge || (uintptr_t)m % huge == 0));
    memset(m, 1, probe);
    size_t given = pages_size(m, probe);
    munmap(m, probe);
    for (uint64_t odd = 0; odd < 8; odd++) {
        b.item[BUDGET_HOT] = (odd < 4 ? (2 << 20) : (64 << 20)) + odd * 4096;
        CHECK(arena_open(&a, pool, &b, 0, &e) == 0);
        CHECK(absent(&a) == 0); /* the last piece too, which is no whole huge page */
        CHECK(!huge || (uintptr_t)a.base % huge == 0);
        CHECK_MSG(a.page_bytes == given, "pages of %zu bytes, where others have %zu", a.page_bytes, given);
        CHECK(a.item[BUDGET_STAGING].at == a.base);
        a.base[0] = a.base[a.bytes - 1] = 1;
        arena_close(&a);
    }
    pool_free(pool);
    return test_done();
}
