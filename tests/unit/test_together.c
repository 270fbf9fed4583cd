/* Orders by firing together: what is planted is found, neurons keep to their parts, the same lists give the same order. */
#include "common/offline/trace/together.h"
#include "tests/test.h"

#include <string.h>

enum { N = 256, PART = N / TOGETHER_PARTS, TOKENS = 512, WORDS = N / 64 + 1 };

static uint64_t bits[TOKENS][WORDS];
static const uint64_t *fired[TOKENS];
static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static void set(int t, int i)
{
    bits[t][i / 64] |= (uint64_t)1 << i % 64;
}

/* Of each part group g of eight has every eighth neuron; a token fires one group of each part, and one neuron of others. */
static void plant(void)
{
    memset(bits, 0, sizeof bits);
    for (int t = 0; t < TOKENS; t++) {
        fired[t] = bits[t];
        for (int k = 0; k < TOGETHER_PARTS; k++) {
            for (int i = (int)draw(8); i < PART; i += 8)
                set(t, k * PART + i);
            set(t, k * PART + (int)draw(PART));
        }
    }
}

static int runs(const uint32_t *order)
{
    int n = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0, before = 0, now; i < N; i++, before = now) {
            now = (int)(bits[t][order[i] / 64] >> order[i] % 64 & 1);
            n += now && !before;
        }
    return n;
}

static void start(uint32_t *order)
{
    for (uint32_t i = 0; i < N; i++)
        order[i] = i;
}

static void finds_groups(void)
{
    uint32_t order[N], again[N];
    struct err e;
    plant();
    start(order);
    int before = runs(order);
    CHECK(together_order(fired, TOKENS, N, order, &e) == 0);
    CHECK_MSG(runs(order) * 4 < before, "%d runs of %d", runs(order), before); /* of 9 neurons a part two runs, or one */
    for (int k = 0; k < TOGETHER_PARTS; k++) {
        uint8_t seen[PART] = { 0 };
        int whole = 0;
        for (int i = 0; i < PART; i++) {
            uint32_t j = order[k * PART + i] - (uint32_t)(k * PART);
            if (CHECK(j < PART))
                seen[j]++;
            whole += i % 8 > 0 && order[k * PART + i] % 8 == order[k * PART + i - 1] % 8;
        }
        CHECK(!memchr(seen, 0, sizeof seen) && whole == PART / 8 * 7);
    }
    start(again);
    CHECK(together_order(fired, TOKENS, N, again, &e) == 0 && !memcmp(order, again, sizeof order));
}

/* Nothing fires, or all does, or there are fewer neurons than parts: the order by heat. */
static void keeps_what_is_equal(void)
{
    static const int lengths[] = { N, 3 * TOGETHER_PARTS, TOGETHER_PARTS + 1, 1 };
    struct err e;
    for (int byte = 0; byte <= 0xff; byte += 0xff)
        for (int k = 0; k < 4; k++) {
            uint32_t order[N];
            memset(bits, byte, sizeof bits);
            start(order);
            CHECK(together_order(fired, byte ? TOKENS : 0, lengths[k], order, &e) == 0);
            for (uint32_t i = 0; i < N; i++)
                CHECK(order[i] == i);
        }
}

/* No path of few neurons is better by more than a little: all are tried. */
static int best(const int both[8][8], int last, unsigned left)
{
    int most = 0;
    for (int i = 0; i < 8; i++)
        if (left >> i & 1) {
            int sum = (last < 0 ? 0 : both[last][i]) + best(both, i, left & ~(1u << i));
            most = sum > most ? sum : most;
        }
    return most;
}

static void is_near_the_best(void)
{
    enum { SMALL = 8 * TOGETHER_PARTS };
    struct err e;
    int sum = 0, most = 0;
    for (int round = 0; round < 8; round++) {
        int both[8][8] = { { 0 } };
        uint32_t order[SMALL];
        memset(bits, 0, sizeof bits);
        for (int t = 0; t < TOKENS; t++)
            for (int k = 0, a = (int)draw(8), b = (int)draw(8); k < 8; k++)
                if (k == a || k == b || k == (a * b) % 8)
                    set(t, k);
        for (int t = 0; t < TOKENS; t++)
            for (int k = 0; k < 64; k++)
                both[k / 8][k % 8] += bits[t][0] >> k / 8 & bits[t][0] >> k % 8 & 1;
        for (uint32_t i = 0; i < SMALL; i++)
            order[i] = i;
        CHECK(together_order(fired, TOKENS, SMALL, order, &e) == 0);
        for (int i = 1; i < 8; i++)
            sum += both[order[i - 1]][order[i]];
        most += best((const int(*)[8])both, -1, 0xff);
    }
    CHECK_MSG(sum <= most && sum * 100 >= most * 97, "%d of %d", sum, most);
}

int main(void)
{
    finds_groups();
    keeps_what_is_equal();
    is_near_the_best();
    return test_done();
}
