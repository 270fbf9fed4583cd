/* The cache against naive models of its policies, over random operations. */
#include "common/plan/cache.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define UNITS 97

static uint32_t seed = 1;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* Naive model: arrays and linear scans, written from the words of cache.h alone. */
struct model {
    enum cache_policy policy;
    uint32_t n_slots, unit_of[UNITS];
    int pins[UNITS], present[UNITS], loading[UNITS], count[UNITS];
    uint64_t stamp[UNITS], clock;
    int ticks;
};

static uint32_t model_used(const struct model *m)
{
    uint32_t n = 0;
    for (int u = 0; u < UNITS; u++)
        n += (uint32_t)m->present[u];
    return n;
}

static int model_victim(const struct model *m)
{
    int best = -1;
    for (int u = 0; u < UNITS; u++) {
        if (!m->present[u] || m->pins[u] || m->loading[u])
            continue;
        if (best < 0 || (m->policy == CACHE_LFU && m->count[u] < m->count[best]) ||
            ((m->policy == CACHE_LRU || m->count[u] == m->count[best]) && m->stamp[u] < m->stamp[best]))
            best = u;
    }
    return best;
}

static uint32_t model_admit(struct model *m, uint32_t unit, uint32_t *evicted)
{
    *evicted = CACHE_NONE;
    if (model_used(m) >= m->n_slots) {
        int v = model_victim(m);
        if (v < 0 || (m->policy == CACHE_LFU && m->count[unit] < m->count[v]))
            return CACHE_NONE;
        m->present[v] = 0;
        *evicted = (uint32_t)v;
    }
    m->present[unit] = m->loading[unit] = m->pins[unit] = 1;
    return 0;
}

/* Halving keeps the order of entries whose levels merge: restamp the evictable ones in their order. */
static void model_tick(struct model *m)
{
    if (++m->ticks < 64)
        return;
    m->ticks = 0;
    struct model left = *m;
    for (int u; m->policy == CACHE_LFU && (u = model_victim(&left)) >= 0;) {
        left.present[u] = 0;
        m->stamp[u] = ++m->clock;
    }
    for (int u = 0; u < UNITS; u++)
        m->count[u] /= 2;
}

static int slot_of(const struct cache *c, uint32_t unit)
{
    for (uint32_t i = 0; i < cache_slots(c); i++)
        if (cache_unit(c, i) == unit)
            return (int)i;
    return -1;
}

static int same(const struct cache *c, const struct model *m)
{
    for (uint32_t u = 0; u < UNITS; u++)
        if ((slot_of(c, u) >= 0) != m->present[u])
            return 0;
    return 1;
}

static void unpin(struct cache *c, struct model *m, uint32_t u)
{
    cache_unpin(c, (uint32_t)slot_of(c, u));
    if (--m->pins[u] == 0 && !m->loading[u])
        m->stamp[u] = ++m->clock;
}

static void finish(struct cache *c, struct model *m, uint32_t u)
{
    cache_ready(c, (uint32_t)slot_of(c, u));
    m->loading[u] = 0;
    if (!m->pins[u])
        m->stamp[u] = ++m->clock;
}

static int access_one(struct cache *c, struct model *m, uint32_t u)
{
    int ready = -1;
    uint32_t slot = cache_lookup(c, u, &ready), evicted, evicted2;
    if (m->count[u] < 127)
        m->count[u]++;
    if ((slot != CACHE_NONE) != m->present[u])
        return 0;
    if (slot != CACHE_NONE) {
        m->pins[u]++;
        return cache_unit(c, slot) == u && ready == !m->loading[u];
    }
    uint32_t a = cache_admit(c, u, &evicted), b = model_admit(m, u, &evicted2);
    return (a == CACHE_NONE) == (b == CACHE_NONE) && evicted == evicted2;
}

/* A skewed choice, so that frequency matters. */
static uint32_t pick(void)
{
    uint32_t a = rnd(UNITS), b = rnd(UNITS);
    return a < b ? a : b;
}

/* Resizing: each slot's data is its unit; some units go whatever the policy says. */
static uint32_t data[2 * UNITS], leaves;

static int stays(void *ctx, uint32_t unit)
{
    (void)ctx;
    return unit % 13 != leaves;
}

static void move(void *ctx, uint32_t from, uint32_t to)
{
    (void)ctx;
    data[to] = data[from];
    data[from] = CACHE_NONE;
}

static int resize(struct cache *c, struct model *m, uint32_t n_slots)
{
    const struct cache_moves moves = { stays, move, NULL };
    int ok = 1;
    leaves = rnd(20);
    for (uint32_t i = 0; i < cache_slots(c); i++)
        data[i] = cache_unit(c, i);
    for (uint32_t u = 0; u < UNITS; u++)
        if (m->present[u] && (m->pins[u] || m->loading[u] || !stays(NULL, u) || !n_slots))
            m->present[u] = m->pins[u] = m->loading[u] = 0;
    while (model_used(m) > n_slots)
        m->present[model_victim(m)] = 0;
    if (!n_slots || !m->n_slots) { /* without slots nothing is counted */
        memset(m->count, 0, sizeof m->count);
        m->ticks = 0;
    }
    m->n_slots = n_slots;
    cache_resize(c, n_slots, &moves);
    for (uint32_t i = 0; i < n_slots; i++)
        ok &= cache_unit(c, i) == CACHE_NONE || data[i] == cache_unit(c, i);
    return ok && cache_slots(c) == n_slots && !cache_stats(c).lookups && cache_full(c) == (model_used(m) == n_slots);
}

static int against_model(enum cache_policy policy, uint32_t n_slots, int resizes, int steps)
{
    static struct model m;
    size_t bytes = cache_bytes(UNITS, resizes ? UNITS : n_slots);
    void *mem = aligned_alloc(64, bytes + 64);
    memset((char *)mem + bytes, 0x5a, 64);
    struct cache *c = cache_init(mem, UNITS, n_slots, policy);
    memset(&m, 0, sizeof m);
    m.policy = policy;
    m.n_slots = n_slots;
    int ok = 1;
    for (int i = 0; i < steps && ok; i++) {
        uint32_t op = rnd(100), u = rnd(UNITS);
        if (resizes && rnd(40) == 0)
            ok = resize(c, &m, rnd(4) ? rnd(UNITS + 1) : 0);
        if (m.n_slots == 0) {
            cache_tick(c);
        } else if (op < 45) {
            ok = access_one(c, &m, pick());
        } else if (op < 65) {
            if (m.loading[u])
                finish(c, &m, u);
        } else if (op < 90) {
            if (m.pins[u])
                unpin(c, &m, u);
        } else {
            cache_tick(c);
            model_tick(&m);
        }
        ok = ok && same(c, &m);
        if (!ok)
            printf("# policy %s slots %u step %d op %u\n", cache_policy_name(policy), n_slots, i, op);
    }
    for (int i = 0; i < 64; i++)
        ok &= ((unsigned char *)mem)[bytes + (size_t)i] == 0x5a;
    free(mem);
    return ok;
}

static void test_rules(void)
{
    size_t bytes = cache_bytes(10, 2);
    void *mem = aligned_alloc(64, bytes);
    struct cache *c = cache_init(mem, 10, 2, CACHE_LRU);
    uint32_t ev;
    int ready;
    CHECK(cache_lookup(c, 3, &ready) == CACHE_NONE);
    uint32_t a = cache_admit(c, 3, &ev);
    CHECK(a != CACHE_NONE && ev == CACHE_NONE);
    CHECK(cache_lookup(c, 3, &ready) == a && !ready); /* loading: found, not ready */
    cache_ready(c, a);
    CHECK(cache_lookup(c, 3, &ready) == a && ready);
    cache_lookup(c, 4, &ready);
    uint32_t b = cache_admit(c, 4, &ev);
    cache_lookup(c, 5, &ready);
    CHECK(cache_admit(c, 5, &ev) == CACHE_NONE); /* one pinned, one loading: nothing to evict */
    CHECK(cache_stats(c).refused == 1);
    cache_ready(c, b);
    cache_unpin(c, b);
    CHECK(cache_admit(c, 5, &ev) == b && ev == 4);
    CHECK(cache_stats(c).evictions == 1 && cache_stats(c).lookups == 5 && cache_stats(c).hits == 2);
    free(mem);
}

/* What is unpinned as the first to go goes before what is older; a free slot drives nothing out. */
static void test_first(enum cache_policy policy)
{
    void *mem = aligned_alloc(64, cache_bytes(10, 3));
    struct cache *c = cache_init(mem, 10, 3, policy);
    uint32_t ev, slot[3] = { 0 };
    int ready;
    for (uint32_t u = 0; u < 3; u++) {
        CHECK(!cache_full(c) && cache_lookup(c, u, &ready) == CACHE_NONE);
        slot[u] = cache_admit(c, u, &ev);
        cache_ready(c, slot[u]);
        (u == 1 ? cache_unpin_first : cache_unpin)(c, slot[u]);
    }
    CHECK(cache_full(c)); /* 1, 0, 2 */
    CHECK(cache_lookup(c, 2, &ready) == slot[2]);
    cache_unpin_first(c, slot[2]);
    cache_lookup(c, 5, &ready);
    uint32_t s = cache_admit(c, 5, &ev);
    CHECK(ev == (policy == CACHE_LRU ? 2 : 1)); /* LFU: of the level of 1, while 2 has been used twice */
    cache_ready(c, s);
    cache_unpin(c, s);
    cache_lookup(c, 6, &ready);
    CHECK(cache_admit(c, 6, &ev) != CACHE_NONE && ev == (policy == CACHE_LRU ? 1 : 0));
    free(mem);
}

/* A unit that is admitted before it is looked up: found without being counted, dropped without a trace. */
static void test_early(void)
{
    static _Alignas(64) uint8_t mem[16384];
    uint32_t ev;
    int ready = 0;
    CHECK(cache_bytes(8, 2) <= sizeof mem);
    struct cache *c = cache_init(mem, 8, 2, CACHE_LFU);
    CHECK(cache_find(c, 3) == CACHE_NONE);
    uint32_t a = cache_admit_early(c, 3, &ev);
    CHECK(a != CACHE_NONE && ev == CACHE_NONE && cache_find(c, 3) == a && cache_unit(c, a) == 3);
    cache_ready(c, a);
    cache_drop(c, a);
    CHECK(cache_find(c, 3) == CACHE_NONE && cache_unit(c, a) == CACHE_NONE && !cache_full(c));
    for (uint32_t u = 0; u < 2; u++) { /* both slots taken, by units that were looked up once */
        CHECK(cache_lookup(c, u, &ready) == CACHE_NONE);
        uint32_t s = cache_admit(c, u, &ev);
        cache_ready(c, s);
        cache_unpin(c, s);
    }
    CHECK(cache_full(c) && cache_admit(c, 5, &ev) == CACHE_NONE); /* never looked up: colder than both */
    uint32_t b = cache_admit_early(c, 5, &ev);                    /* as if it had been */
    CHECK(b != CACHE_NONE && ev == 0 && cache_find(c, 0) == CACHE_NONE);
    CHECK(cache_lookup(c, 5, &ready) == b && !ready);             /* pinned twice now */
    cache_ready(c, b);
    cache_unpin(c, b);
    cache_unpin(c, b);
    CHECK(cache_find(c, 5) == b && cache_stats(c).hits == 1);
}

static void test_empty(void)
{
    void *mem = aligned_alloc(64, cache_bytes(1000, 0));
    struct cache *c = cache_init(mem, 1000, 0, CACHE_LFU);
    uint32_t ev;
    int ready;
    CHECK(cache_lookup(c, 999, &ready) == CACHE_NONE);
    CHECK(cache_admit(c, 999, &ev) == CACHE_NONE);
    cache_tick(c);
    CHECK(cache_stats(c).lookups == 1 && cache_stats(c).hits == 0);
    free(mem);
    CHECK(cache_bytes(1000, 0) < cache_bytes(10, 1));
}

/* A hot set that fits is kept against a scan by LFU, and lost by LRU. */
static double scan_hits(enum cache_policy policy)
{
    void *mem = aligned_alloc(64, cache_bytes(1000, 20));
    struct cache *c = cache_init(mem, 1000, 20, policy);
    uint64_t hot = 0, scan = 0;
    for (int t = 0; t < 500; t++) {
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t u = i < 15 ? i : 15 + (uint32_t)(scan++ % 985), ev, s;
            int ready;
            if ((s = cache_lookup(c, u, &ready)) == CACHE_NONE) {
                if ((s = cache_admit(c, u, &ev)) == CACHE_NONE)
                    continue;
                cache_ready(c, s);
            } else {
                hot += i < 15;
            }
            cache_unpin(c, s);
        }
        cache_tick(c);
    }
    free(mem);
    return (double)hot / (500.0 * 15);
}

int main(void)
{
    test_rules();
    test_first(CACHE_LRU);
    test_first(CACHE_LFU);
    test_early();
    test_empty();
    for (int p = 0; p < CACHE_POLICIES; p++)
        for (uint32_t n = 1; n <= UNITS; n = n * 2 + 1)
            for (int resizes = 0; resizes < 2; resizes++)
                CHECK(against_model((enum cache_policy)p, n, resizes, 20000));
    CHECK(scan_hits(CACHE_LFU) > 0.95);
    CHECK(scan_hits(CACHE_LRU) < 0.05);
    return test_done();
}
