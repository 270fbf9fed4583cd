/* Reads of several units: how often a replay says they happen against a cache and a rule written naively here, what rules
 * a device's curve gives, and their price by hand. */
#include "common/kernels/quant.h"
#include "planner/cost/coalesce.h"
#include "planner/cost/cost.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng_state = 4711;
static uint32_t rng(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static struct layout_shape make_shape(int d, int n_ff)
{
    struct layout l;
    struct layout_shape s;
    struct err e;
    const uint32_t types[LAYOUT_ROLES] = { QUANT_F16, QUANT_F16, QUANT_F16 };
    layout_default(&l, LAYOUT_BUNDLE, types);
    l.cluster_neurons = 8;
    l.packed = 0;
    if (layout_derive_one(&l, d, n_ff, &s, &e) < 0) {
        printf("# %s\n", e.msg);
        exit(1);
    }
    return s;
}

/* Tokens of n_blocks FFNs, the first positions the likeliest; a step reaches one or two blocks. */
static struct inputs_steps make_steps(int n, int n_ff, int n_blocks)
{
    struct inputs_steps s = { .n_steps = n };
    s.start = malloc(((size_t)n + 1) * sizeof *s.start);
    s.at = malloc((size_t)n * (size_t)(n_ff * n_blocks) * sizeof *s.at);
    uint32_t m = 0;
    for (int t = 0; t < n; t++) {
        s.start[t] = m;
        for (uint32_t k = rng((uint32_t)n_blocks), last = k + rng(2); k <= last && k < (uint32_t)n_blocks; k++)
            for (uint32_t p = 0; p < (uint32_t)n_ff; p++)
                if (rng(100) < 5 + 80 * (uint32_t)(n_ff - (int)p) / (uint32_t)n_ff)
                    s.at[m++] = k * (uint32_t)n_ff + p;
    }
    s.start[n] = m;
    return s;
}

/* The first of missing[n] goes with as many as make one unit cheapest, by trying every window; then neighbours. */
static size_t naive_next(const struct coalesce *j, const uint32_t *windows, uint32_t near, const uint32_t *missing, size_t n)
{
    double best = 1;
    size_t take = 1;
    for (int i = 0; i < j->n; i++) {
        size_t inside = 0;
        while (inside < n && missing[inside] < missing[0] + windows[i])
            inside++;
        if ((double)inside >= j->at[i].weight && inside > 1 && j->at[i].weight / (double)inside <= best) {
            best = j->at[i].weight / (double)inside;
            take = inside;
        }
    }
    while (take < n && missing[take] == missing[take - 1] + 1 && missing[take] < missing[0] + near)
        take++;
    return take;
}

struct counted {
    double missed, reads, units, by_length[256];
};

/* LRU of units by the time of their last use, those of the step pinned; units of one neuron each. */
static void naive(const struct inputs_steps *s, int n_ff, uint32_t n_units, uint32_t hot, uint32_t slots, const struct coalesce *j,
                  const uint32_t *windows, uint32_t near, struct counted *out)
{
    long used[4096], clock = 0; /* 0: not held */
    uint32_t held = 0;
    struct counted c = { 0 };
    memset(used, 0, sizeof used);
    for (int t = 0; t < s->n_steps; t++) {
        uint32_t missing[4096], n = 0;
        long began = clock;
        for (uint32_t i = s->start[t]; i < s->start[t + 1]; i++) {
            uint32_t u = s->at[i], victim = UINT32_MAX;
            if (u % (uint32_t)n_ff < hot)
                continue;
            clock++;
            if (used[u]) {
                used[u] = clock;
                continue;
            }
            missing[n++] = u;
            for (uint32_t k = 0; k < n_units && held == slots; k++)
                if (used[k] && used[k] <= began && (victim == UINT32_MAX || used[k] < used[victim]))
                    victim = k;
            if (victim != UINT32_MAX) {
                used[victim] = 0;
                held--;
            }
            if (held < slots) {
                used[u] = clock;
                held++;
            }
        }
        for (uint32_t i = 0, k, end; i < n && t >= s->n_steps / 4; i += k) {
            for (end = i; end < n && missing[end] / (uint32_t)n_ff == missing[i] / (uint32_t)n_ff; end++)
                ;
            k = (uint32_t)naive_next(j, windows, near, missing + i, end - i);
            c.missed += k;
            c.reads++;
            c.units += missing[i + k - 1] - missing[i] + 1;
            c.by_length[missing[i + k - 1] - missing[i] + 1]++;
        }
    }
    *out = c;
}

/* Each point of a table, for three rules, is what the naive one does where all steps are sampled; and what the cache code
 * itself does at that point, with either policy. */
static void test_reads(void)
{
    int differ = 0, points = 0, through = 0, by_code = 0;
    struct err e = { 0 };
    const struct coalesce some[REPLAY_RULES] = {
        { 0 },
        { 2, { { 2 * 8192, 1.25 }, { 4 * 8192, 2 } } },
        { 3, { { 2 * 8192, 1.75 }, { 8 * 8192, 4.5 }, { 64 * 8192, 20 } } },
    };
    for (int round = 0; round < 10; round++) {
        int n_ff = 64 + 8 * (int)rng(8), blocks = 1 + round % 3;
        struct layout_shape shape = make_shape(1344, n_ff); /* units of 8064 bytes, padded */
        struct inputs_steps s = make_steps(24 + (int)rng(40), n_ff, blocks);
        enum cache_policy policy = round % 5 == 4 ? CACHE_LFU : CACHE_LRU;
        struct reads_rule rules[REPLAY_RULES];
        struct replay_samples samples;
        struct replay_table t;
        for (int k = 0; k < REPLAY_RULES; k++)
            coalesce_rule(&some[k], &shape, &rules[k]);
        differ += shape.part[0].stride_bytes != 8192 || shape.part[0].neurons_per_unit != 1;
        differ += replay_layer(&s, &shape, 0, blocks, 1, policy, &t, &samples, &e) < 0;
        differ += samples.at[0].n_steps != s.n_steps - s.n_steps / 4;
        replay_rules(&samples, shape.part[0].n_units, rules, REPLAY_RULES, NULL, &t);
        for (int at = 0; at < REPLAY_HOTS * (REPLAY_SIZES - 1) * REPLAY_RULES; at++) {
            int k = at % REPLAY_RULES, i = at / REPLAY_RULES % (REPLAY_SIZES - 1), h = at / REPLAY_RULES / (REPLAY_SIZES - 1);
            const struct replay_reads *how = &replay_how(&t, t.hot[h], t.slots[h][i])[k];
            if (t.hot[h] == (uint32_t)n_ff || t.slots[h][i] == t.slots[h][i + 1])
                continue;
            struct replay_figures f;
            differ += replay_point_reads(&s, &shape, 0, blocks, 1, policy, t.hot[h], t.slots[h][i], &rules[k], &f, &e) < 0;
            by_code += memcmp(&f.how, how, sizeof *how) != 0 || f.misses != t.misses[h][i] || f.lookups != t.lookups[h];
            if (policy == CACHE_LFU)
                continue;
            uint32_t windows[READS_MAX_COALESCE];
            struct counted c;
            double as[REPLAY_LENGTHS] = { 0 };
            for (int w = 0; w < some[k].n; w++)
                windows[w] = some[k].at[w].bytes / 8192;
            naive(&s, n_ff, (uint32_t)(n_ff * blocks), t.hot[h], t.slots[h][i], &some[k], windows, k == 2 ? 64 : 4, &c);
            for (int length = 1; length <= 128; length++) { /* of three units: half of one of two, half of one of four */
                int m = 0;
                while (1 << m < length)
                    m++;
                double longer = m ? (length - (1 << m) / 2.0) / ((1 << m) / 2.0) : 1;
                as[m] += longer * c.by_length[length];
                if (m)
                    as[m - 1] += (1 - longer) * c.by_length[length];
            }
            for (int m = 0; m < REPLAY_LENGTHS; m++)
                differ += c.missed > 0 && fabs((double)how->at[m] - as[m] / c.missed) > 1e-6;
            differ += c.missed > 0 && (fabs((double)how->reads - c.reads / c.missed) > 1e-6 ||
                                       fabs((double)how->units - c.units / c.missed) > 1e-5);
            through += c.units > c.missed;
            points++;
        }
        replay_samples_done(&samples);
        inputs_steps_done(&s);
    }
    CHECK_MSG(differ == 0, "%d figures of %d points differ: %s", differ, points, e.msg);
    CHECK_MSG(by_code == 0, "%d points differ from common/plan/cache", by_code);
    CHECK_MSG(points > 500 && through > 100, "%d points, %d with gaps", points, through);
}

/* Storage whose reads take fixed_ns and a byte per `bw`. */
static void make_storage(struct hw *h, struct hw_storage *points, double fixed_ns, double bw)
{
    *h = (struct hw){ .name = "bench", .storage_points = points };
    for (uint64_t bytes = 4096; bytes <= 1u << 20; bytes *= 2) {
        double rate = 1e9 * (double)bytes / (fixed_ns + 1e9 * (double)bytes / bw);
        points[h->n_storage++] = (struct hw_storage){ .backend = HW_URING, .pattern = HW_RANDOM, .block_bytes = bytes,
                                                      .queue_depth = 32, .lanes = 1, .range_bytes = 1u << 30, .core_class = -1,
                                                      .bytes_per_s = { rate, rate, rate } };
    }
}

static void test_rules(void)
{
    struct hw h;
    struct hw_storage points[16];
    struct coalesce j[REPLAY_RULES];
    struct layout_shape s = make_shape(1344, 512);
    make_storage(&h, points, 10000, 1e9); /* a unit takes 18.192 us, 64 of them 534.288 */
    CHECK(coalesce_of(&h, &s, 1u << 22, j) == 3 && j[0].n == 0 && coalesce_read_bytes(&j[0]) == 0);
    CHECK(j[1].n == 3 && coalesce_read_bytes(&j[1]) == 8 * 8192 && j[2].n == 6 && coalesce_read_bytes(&j[2]) == 64 * 8192);
    CHECK(!memcmp(j[1].at, j[2].at, sizeof *j[1].at));
    for (int i = 0; i < 6; i++) {
        double units = 2 << i, exact = (10000 + units * 8192) / (10000 + 8192.0);
        CHECK(j[2].at[i].bytes == units * 8192 && j[2].at[i].weight >= exact - 1e-9 && j[2].at[i].weight < exact + 0.25);
    }
    make_storage(&h, points, 0, 1e9); /* long reads are no faster: nothing to join */
    CHECK(coalesce_of(&h, &s, 1u << 22, j) == 1 && j[0].n == 0);
    h.n_storage = 0;
    CHECK(coalesce_of(&h, &s, 1u << 22, j) == 1);
}

/* 12 missing units in ten reads: eight of one unit, two of three, which hold 2 units of gaps. */
static void test_price(void)
{
    struct cost_reads curves[REPLAY_LENGTHS] = { 0 };
    struct replay_reads how = { .reads = 10.f / 12, .units = 14.f / 12 };
    for (int k = 0; k < REPLAY_LENGTHS; k++)
        curves[k] = (struct cost_reads){ .n = 3, .count = { 0, 1, 8 }, .each_ns = 50 + 10.0 * (1 << k),
                                         .ns = { 0, 100 + 10.0 * (1 << k), 8 * (50 + 10.0 * (1 << k)) } };
    how.at[0] = 8.f / 12;
    how.at[1] = how.at[2] = 1.f / 12; /* two of three units each */
    double t = cost_joined_ns(curves, &how, 12); /* ten reads, deep in the queue: 8 of 60, 2 of 50 + 30 */
    CHECK_MSG(fabs(t - (8 * 60 + 2 * 80)) < 1e-3, "%g", t);
    CHECK(cost_joined_ns(curves, &how, 0) == 0);
    struct replay_reads single = { 1, 1, { 1 } };
    CHECK(fabs(cost_joined_ns(curves, &single, 5) - cost_reads_ns(&curves[0], 5)) < 1e-9);
}

int main(void)
{
    test_reads();
    test_rules();
    test_price();
    return test_done();
}
