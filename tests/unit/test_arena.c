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

/* An elastic one ends where it is told to: what stays keeps its bytes and is all there, what is given back is not in memory, and what
 * comes is zero. */
static void test_elastic(struct pool *pool, const struct budget *given, int lock)
{
    struct budget b = *given;
    struct arena a;
    struct arena_item item[BUDGET_ITEMS];
    struct err e = { 0 };
    uint64_t most;
    unsigned char in[1];
    b.item[BUDGET_HOT] = 9 << 20;
    most = arena_elastic_bytes(&b);
    b.item[BUDGET_HOT] = 5 << 20;
    CHECK(arena_open(&a, pool, &b, most, lock, &e) == 0 && a.bytes == arena_elastic_bytes(&b) && a.reserved == most);
    CHECK(a.item[BUDGET_HOT].at > a.item[BUDGET_KV].at && a.item[BUDGET_COLD].at > a.item[BUDGET_HOT].at);
    CHECK((uintptr_t)a.item[BUDGET_COLD].at % 4096 == 0);
    memset(a.base, 7, a.bytes);
    size_t kept = a.bytes;
    static const unsigned hot[] = { 4, 5000, 2500, 9216, 1, 6144, 6140, 9216, 0, 3000 }; /* KiB */
    for (size_t i = 0; i < sizeof hot / sizeof *hot; i++) {
        b.item[BUDGET_HOT] = (uint64_t)hot[i] << 10;
        size_t bytes = arena_place(&a, &b, item);
        CHECK(bytes == arena_elastic_bytes(&b) && item[BUDGET_INDEX].at + item[BUDGET_INDEX].size <= a.base + bytes);
        CHECK_MSG(arena_resize(&a, pool, bytes, &e) == 0, "%s", e.msg);
        memcpy(a.item, item, sizeof item);
        kept = bytes < kept ? bytes : kept;
        CHECK(a.bytes == bytes && absent(&a) == 0 && a.base[0] == 7 && a.base[kept - 1] == 7 && (bytes == kept || a.base[kept] == 0));
        CHECK(bytes == most || mincore(a.base + bytes, 4096, in) == -1 || !(in[0] & 1));
    }
    CHECK(arena_resize(&a, pool, most + 4096, &e) == ERR_LIMIT && a.base[0] == 7);
    arena_close(&a);
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
    CHECK(arena_open(&a, pool, &b, 0, 0, &e) == 0);
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
        CHECK(arena_open(&a, pool, &b, 0, 0, &e) == 0);
        CHECK(absent(&a) == 0); /* the last piece too, which is no whole huge page */
        CHECK(!huge || (uintptr_t)a.base % huge == 0);
        CHECK_MSG(a.page_bytes == given, "pages of %zu bytes, where others have %zu", a.page_bytes, given);
        CHECK(a.item[BUDGET_STAGING].at == a.base);
        a.base[0] = a.base[a.bytes - 1] = 1;
        arena_close(&a);
    }
    test_elastic(pool, &b, 0);
    test_elastic(pool, &b, 1);
    pool_free(pool);
    return test_done();
}
