/* Kept lists come back as they were given, within the bound that was stated. */
#include "planner/inputs/list_cache.h"

#include "planner/inputs/inputs.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state = 3;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

static struct hash128 key(uint32_t i)
{
    return hash_128(&i, sizeof i);
}

/* Lists of ascending positions, `apart` or less from one to the next; every fifth is empty. */
static struct inputs_steps lists(int n, uint32_t most, uint32_t apart)
{
    struct inputs_steps s = { .n_steps = n, .start = calloc((size_t)n + 1, sizeof *s.start),
                              .at = malloc(((size_t)n * most + 1) * sizeof *s.at) };
    uint32_t len = 0;
    for (int t = 0; t < n; t++) {
        uint32_t m = t % 5 == 4 ? 0 : draw(most + 1);
        s.start[t] = len;
        for (uint32_t i = 0, at = draw(apart + 1); i < m; i++, at += 1 + draw(apart))
            s.at[len++] = at;
    }
    s.start[n] = len;
    return s;
}

static int begins(const struct inputs_steps *all, const struct inputs_steps *s, int n)
{
    return s->n_steps == n && !memcmp(s->start, all->start, ((size_t)n + 1) * sizeof *s->start) &&
           !memcmp(s->at, all->at, all->start[n] * sizeof *s->at);
}

static void check_get(const struct list_cache *k, uint32_t i, const struct inputs_steps *all, int n)
{
    struct inputs_steps s;
    struct err e = { 0 };
    CHECK(list_cache_get(k, key(i), (uint64_t)n, &s, &e) == 1);
    CHECK_MSG(begins(all, &s, n), "%d lists of key %u", n, i);
    inputs_steps_done(&s);
}

static void test_same(void)
{
    const uint32_t apart[] = { 1, 7, 127, 128, 129, 16384, 1u << 21, 100u << 20 };
    struct list_cache *k = list_cache_new(64u << 20);
    for (uint32_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        struct inputs_steps s = lists(60, apart[i] > 1u << 20 ? 30 : 400, apart[i]);
        list_cache_add(k, key(i), &s);
        check_get(k, i, &s, 60);
        check_get(k, i, &s, 17); /* fewer than there are */
        check_get(k, i, &s, 0);
        inputs_steps_done(&s);
    }
    list_cache_free(k);
}

static void test_longer(void)
{
    struct list_cache *k = list_cache_new(1u << 20);
    struct inputs_steps s = lists(50, 100, 5), part = s, none;
    struct err e = { 0 };
    part.n_steps = 20;
    list_cache_add(k, key(1), &part);
    list_cache_add(k, key(2), &part);
    CHECK(list_cache_get(k, key(1), 21, &none, &e) == 0 && list_cache_get(k, key(3), 1, &none, &e) == 0);
    list_cache_add(k, key(1), &s);
    check_get(k, 1, &s, 50);
    check_get(k, 2, &s, 20);
    list_cache_add(k, key(1), &part); /* what is longer stays */
    check_get(k, 1, &s, 50);
    inputs_steps_done(&s);
    list_cache_free(k);
    CHECK(list_cache_get(NULL, key(1), 1, &none, &e) == 0);
    list_cache_add(NULL, key(1), &part);
}

/* Lists of a byte an entry: as many keys are kept as fit, and what does not fit takes nothing from them. */
static void test_bound(void)
{
    struct inputs_steps s = lists(100, 200, 100), none;
    size_t each = s.start[100] + 101 * sizeof *s.start;
    struct list_cache *k = list_cache_new(5 * each + each / 2);
    struct err e = { 0 };
    for (uint32_t i = 0; i < 10; i++)
        list_cache_add(k, key(i), &s);
    for (uint32_t i = 0; i < 5; i++)
        check_get(k, i, &s, 100);
    for (uint32_t i = 5; i < 10; i++)
        CHECK(list_cache_get(k, key(i), 1, &none, &e) == 0);
    list_cache_free(k);
    k = list_cache_new(each - 1);
    list_cache_add(k, key(0), &s);
    CHECK(list_cache_get(k, key(0), 1, &none, &e) == 0);
    list_cache_free(k);
    inputs_steps_done(&s);
}

int main(void)
{
    test_same();
    test_longer();
    test_bound();
    return test_done();
}
