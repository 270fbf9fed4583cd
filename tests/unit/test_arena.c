/* What is mapped is what the account has, less what the kernel keeps for it. */
#include "runtime/arena.h"

#include "tests/test.h"

#include <string.h>

int main(void)
{
    struct budget b = { .tables = 3 << 12 };
    struct arena a;
    struct err e = { 0 };
    uint64_t sum = 0;
    for (int i = BUDGET_DENSE; i < BUDGET_ITEMS; i++)
        sum += b.item[i] = (uint64_t)(i + 4) << 12;
    b.item[BUDGET_PROCESS] = 1 << 20; /* not the arena's: the program, and its tables */
    CHECK(arena_open(&a, &b, 0, &e) == 0);
    CHECK(a.bytes == sum - b.tables);
    uint64_t index = b.item[BUDGET_INDEX] - b.tables;
    uint8_t *p = arena_take(&a, BUDGET_INDEX, index);
    CHECK(p >= a.base && p + index <= a.base + a.bytes);
    memset(p, 1, index);
    arena_close(&a);
    return test_done();
}
