/* The rule by which pressure moves a memory limit. */
#include "runtime/follow.h"

#include "tests/test.h"

#define MIB ((uint64_t)1 << 20)

/* Seconds of quiet until it goes up; 0: not within an hour. */
static int up_after(struct follow_rule *r, uint64_t *now)
{
    for (int s = 1; s < 3600; s++) {
        uint64_t to = follow_rule_step(r, *now, 1, 0.005);
        if (to != *now) {
            CHECK(to > *now);
            *now = to;
            return s;
        }
    }
    return 0;
}

int main(void)
{
    struct follow_rule r;
    uint64_t now = 28 * MIB;
    follow_rule_init(&r, 14 * MIB, 28 * MIB);
    CHECK(up_after(&r, &now) == 0 && now == 28 * MIB); /* never above what it began with */
    CHECK((now = follow_rule_step(&r, now, 1, 0.2)) == 49 * MIB / 2);
    for (int i = 0; i < 100; i++) /* neither much nor little */
        CHECK(follow_rule_step(&r, now, 1, 0.05) == now);
    CHECK(up_after(&r, &now) == 10 && now == 28 * MIB);
    for (int wait = 20; wait <= 640; wait *= 2) { /* again at once: it waits longer */
        CHECK((now = follow_rule_step(&r, now, 1, 0.1)) == 49 * MIB / 2);
        CHECK(up_after(&r, &now) == wait && now == 28 * MIB);
    }
    CHECK((now = follow_rule_step(&r, now, 1, 1)) < 28 * MIB && up_after(&r, &now) == 640);
    for (int i = 0; i < 2000; i++)
        now = follow_rule_step(&r, now, 1, 0);
    now = follow_rule_step(&r, now, 1, 1);
    CHECK(up_after(&r, &now) == 640); /* once more as long, for nothing was learned until it went up again, */
    for (int i = 0; i < 2000; i++)
        now = follow_rule_step(&r, now, 1, 0);
    for (int i = 0; i < 20; i++)
        now = follow_rule_step(&r, now, 1, 1);
    CHECK(now == 14 * MIB);
    CHECK(up_after(&r, &now) > 0 && up_after(&r, &now) == 10); /* and short again after a while of quiet */
    /* A limit that a request set below the least or above the most. */
    CHECK(follow_rule_step(&r, 12 * MIB, 1, 1) == 12 * MIB && follow_rule_step(&r, 40 * MIB, 1, 0) == 40 * MIB);
    /* Steps that do not divide what is between. */
    follow_rule_init(&r, 14 * MIB, 14 * MIB + 3);
    now = 14 * MIB + 3;
    CHECK(follow_rule_step(&r, now, 1, 1) == now - 1);
    return test_done();
}
