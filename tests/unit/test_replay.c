/* Replay against caches written naively here, all sizes at once against the cache code size by size, and Belady's
 * bound against brute force. */
#include "common/kernels/quant.h"
#include "common/plan/expert_ahead.h"
#include "planner/replay/replay.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng_state = 12345;
static uint32_t rng(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

/* n tokens over n_ff neurons (and blocks), position p firing with a probability that falls with p. */
static struct inputs_steps make_steps(int n, int n_ff, int n_blocks)
{
    struct inputs_steps s = { .n_steps = n };
    s.start = malloc(((size_t)n + 1) * sizeof *s.start);
    s.at = malloc((size_t)n * (size_t)n_ff * sizeof *s.at);
    uint32_t m = 0;
    for (int t = 0; t < n; t++) {
        s.start[t] = m;
        uint32_t block = rng((uint32_t)n_blocks);
        for (uint32_t p = 0; p < (uint32_t)n_ff; p++)
            if (rng(100) < 40 * (uint32_t)(n_ff - (int)p) / (uint32_t)n_ff)
                s.at[m++] = block * (uint32_t)n_ff + p;
    }
    s.start[n] = m;
    return s;
}

/* LRU as a list of units, most recent first, with a step's units pinned to its end. */
static void naive_lru(const struct inputs_steps *s, int n_ff, int npu, uint32_t hot, uint32_t slots, double *lookups,
                      double *misses)
{
    uint32_t list[4096], n = 0;
    long looked = 0, missed = 0;
    int from = s->n_steps / 4;
    for (int t = 0; t < s->n_steps; t++) {
        uint32_t used[4096], n_used = 0, last = ~0u;
        for (uint32_t i = s->start[t]; i < s->start[t + 1]; i++) {
            uint32_t pos = s->at[i] % (uint32_t)n_ff;
            uint32_t unit = s->at[i] / (uint32_t)n_ff * (uint32_t)((n_ff + npu - 1) / npu) + pos / (uint32_t)npu;
            if (pos < hot || unit == last)
                continue;
            last = unit;
            looked += t >= from;
            uint32_t k = 0;
            while (k < n && list[k] != unit)
                k++;
            if (k == n) {
                missed += t >= from;
                if (n == slots) { /* evict the oldest that this step has not touched */
                    uint32_t v = n;
                    for (uint32_t j = n; j-- > 0 && v == n;) {
                        uint32_t u = 0;
                        while (u < n_used && used[u] != list[j])
                            u++;
                        if (u == n_used)
                            v = j;
                    }
                    if (v == n)
                        continue; /* all pinned: used once from staging */
                    memmove(list + v, list + v + 1, (n - v - 1) * sizeof *list);
                    n--;
                }
                list[n++] = unit; /* moved to the front at the end of the step */
            }
            used[n_used++] = unit;
        }
        /* Unpinned in the order of use: the last used is the most recent. */
        for (uint32_t u = 0; u < n_used; u++) {
            uint32_t k = 0;
            while (list[k] != used[u])
                k++;
            memmove(list + 1, list, k * sizeof *list);
            list[0] = used[u];
        }
    }
    *lookups = (double)looked / (s->n_steps - from);
    *misses = (double)missed / (s->n_steps - from);
}

static struct layout_shape make_shape(int d, int n_ff, uint32_t cluster)
{
    struct layout l;
    struct layout_shape s;
    struct err e;
    const uint32_t types[LAYOUT_ROLES] = { QUANT_F16, QUANT_F16, QUANT_F16 };
    layout_default(&l, LAYOUT_SPLIT, types);
    l.cluster_neurons = cluster;
    if (layout_derive_one(&l, d, n_ff, &s, &e) < 0) {
        printf("# %s\n", e.msg);
        exit(1);
    }
    return s;
}

/* Fewest misses from access `from` on of any policy with bypass, by trying every choice; tiny inputs only. */
static int brute(const uint32_t *acc, int n, int from, int i, uint32_t held, int slots)
{
    if (i == n)
        return 0;
    if (held >> acc[i] & 1)
        return brute(acc, n, from, i + 1, held, slots);
    int best = brute(acc, n, from, i + 1, held, slots);
    if (__builtin_popcount(held) < slots) {
        int v = brute(acc, n, from, i + 1, held | 1u << acc[i], slots);
        best = v < best ? v : best;
    } else {
        for (uint32_t u = 0; u < 32; u++)
            if (held >> u & 1) {
                int v = brute(acc, n, from, i + 1, (held & ~(1u << u)) | 1u << acc[i], slots);
                best = v < best ? v : best;
            }
    }
    return (i >= from) + best;
}

/* One access per step; the first quarter of the steps warms the cache up. */
static void test_belady(void)
{
    struct layout_shape shape = make_shape(2048, 64, 8);
    const uint32_t slots[4] = { 0, 1, 2, 3 };
    int bad = 0;
    struct err e;
    for (int round = 0; round < 80; round++) {
        enum { N = 11 };
        uint32_t start[N + 1] = { 0 }, at[N];
        for (int i = 0; i < N; i++) {
            at[i] = rng(5);
            start[i + 1] = (uint32_t)i + 1;
        }
        struct inputs_steps s = { .n_steps = N, .start = start, .at = at };
        double m[4];
        bad += replay_belady(&s, &shape, 1, 1, 1, 0, slots, 4, m, &e) < 0;
        for (int k = 0; k < 4; k++)
            bad += (int)(m[k] * (N - N / 4) + 0.5) != brute(at, N, N / 4, 0, 0, (int)slots[k]);
    }
    CHECK_MSG(bad == 0, "%d of 320 bounds are wrong", bad);
}

/* Long lists, so that the set of what is held has several levels: no policy misses less, and a cache for all misses what is new. */
static void test_belady_long(void)
{
    struct layout_shape shape = make_shape(2048, 2048, 8);
    enum { N = 6000, EACH = 60 };
    struct inputs_steps s = { .n_steps = N, .start = malloc((N + 1) * sizeof *s.start), .at = malloc(N * EACH * sizeof *s.at) };
    for (uint32_t t = 0, i = 0; t < N; t++) {
        s.start[t] = i;
        for (uint32_t k = 0, at = rng(30); k < EACH; k++, at += 1 + rng(30))
            s.at[i++] = at;
        s.start[t + 1] = i;
    }
    const uint32_t slots[5] = { 0, 70, 500, 1500, 2048 };
    double best[5], lru[5], lfu[5];
    struct err e;
    CHECK(replay_belady(&s, &shape, 1, 1, 1, 0, slots, 5, best, &e) == 0);
    CHECK(replay_curve(&s, &shape, 1, 1, 1, CACHE_LRU, 0, slots + 1, 4, lru + 1, &e) == 0);
    CHECK(replay_curve(&s, &shape, 1, 1, 1, CACHE_LFU, 0, slots + 1, 4, lfu + 1, &e) == 0);
    CHECK(best[0] == EACH && best[4] >= 0 && best[4] <= lru[4]);
    for (int k = 1; k < 5; k++)
        CHECK_MSG(best[k] <= lru[k] && best[k] <= lfu[k] && best[k] <= best[k - 1], "%d: %g, %g, %g", k, best[k], lru[k], lfu[k]);
    CHECK(best[2] < 0.8 * lru[2]);
    inputs_steps_done(&s);
}

/* Steps {1}, {3}, {0, 1} over and over, two slots. One after the other 0 drives out 1, which is looked up next; looked up together,
 * 1 is found before. */
static void test_together(void)
{
    struct layout_shape shape = make_shape(2048, 64, 8);
    enum { N = 300 };
    uint32_t start[N + 1] = { 0 }, at[N * 2], n = 0;
    double lookups, misses, curve[2];
    const uint32_t slots[2] = { 2, 3 };
    struct err e;
    for (int t = 0; t < N; t++) {
        if (t % 3 == 2)
            at[n++] = 0;
        at[n++] = t % 3 == 1 ? 3 : 1;
        start[t + 1] = n;
    }
    for (int together = 0; together < 2; together++)
        for (int policy = 0; policy < CACHE_POLICIES; policy++) {
            struct inputs_steps s = { .n_steps = N, .start = start, .at = at, .together = together };
            CHECK(replay_point(&s, &shape, 1, 1, 1, (enum cache_policy)policy, 0, 2, &lookups, &misses, &e) == 0);
            if (policy == CACHE_LRU)
                CHECK_MSG(fabs(misses - (together ? 2 : 3) / 3.) < 0.01, "%g misses a step", misses);
            CHECK(replay_curve(&s, &shape, 1, 1, 1, (enum cache_policy)policy, 0, slots, 2, curve, &e) == 0);
            CHECK(fabs(curve[0] - misses) < 1e-12 && curve[1] <= 0);
        }
}

enum { AHEAD_STEPS = 1600, AHEAD_BLOCKS = 24, AHEAD_USED = 4 };

/* Steps that use 4 of 24 blocks each, now and then others, and guesses of which `right` of 4 come true, likeliest first. */
static struct inputs_steps make_expected(int n_ff, uint32_t n_units, uint32_t npu, int right)
{
    size_t each = AHEAD_USED * n_units;
    struct inputs_steps s = { .n_steps = AHEAD_STEPS, .start = malloc((AHEAD_STEPS + 1) * sizeof *s.start),
                              .guess_start = malloc((AHEAD_STEPS + 1) * sizeof *s.guess_start),
                              .at = malloc(AHEAD_STEPS * each * sizeof *s.at),
                              .guess = malloc(AHEAD_STEPS * each * sizeof *s.guess), .together = 1 };
    uint32_t used[AHEAD_BLOCKS];
    for (uint32_t i = 0; i < AHEAD_BLOCKS; i++)
        used[i] = i;
    for (size_t t = 0; t <= AHEAD_STEPS; t++) {
        s.start[t] = s.guess_start[t] = (uint32_t)(t * each);
        for (int k = 0; k < AHEAD_USED && t < AHEAD_STEPS; k++) {
            uint32_t other = rng(3) ? (uint32_t)k : AHEAD_USED + rng(AHEAD_BLOCKS - AHEAD_USED), was = used[k];
            used[k] = used[other], used[other] = was;
        }
        int n = 0;
        for (uint32_t b = 0; b < AHEAD_BLOCKS && t < AHEAD_STEPS; b++)
            for (int k = 0; k < AHEAD_USED; k++)
                for (uint32_t u = 0; used[k] == b && u < n_units; u++)
                    s.at[t * each + (size_t)n++] = b * (uint32_t)n_ff + u * npu;
        for (size_t k = 0; k < each && t < AHEAD_STEPS; k++)
            s.guess[t * each + k] = used[k / n_units + ((int)(k / n_units) < right ? 0 : AHEAD_USED)] * (uint32_t)n_ff +
                                    (uint32_t)(k % n_units) * npu;
    }
    return s;
}

/* Do the groups have these means? */
static int means(const struct replay_steps *s, double late, double early, double foreseen)
{
    double share = 0, sum[3] = { 0 };
    int ascend = 1;
    for (int i = 0; i < s->n; i++) {
        double of = (double)s->at[i].share;
        share += of;
        sum[0] += of * (double)s->at[i].late;
        sum[1] += of * (double)s->at[i].early;
        sum[2] += of * (double)s->at[i].foreseen;
        ascend &= s->at[i].share > 0 && s->at[i].foreseen <= s->at[i].early;
    }
    return ascend && fabs(share - 1) < 1e-6 && fabs(sum[0] - late) < 1e-5 && fabs(sum[1] - early) < 1e-5 && fabs(sum[2] - foreseen) < 1e-5;
}

/* Classes are exact while there are few, and keep their sums when there are more than groups. */
static void test_groups(void)
{
    struct replay_tally t;
    struct replay_steps s;
    replay_tally_init(&t, 24, 3);
    replay_tally_groups(&t, &s);
    CHECK(s.n == 0);
    for (int i = 0; i < 4; i++)
        replay_tally_add(&t, i ? 0 : 12, i == 3 ? 2 : 0, i == 3);
    replay_tally_groups(&t, &s);
    CHECK(s.n == 3 && s.at[0].late == 0 && s.at[0].early == 0 && s.at[0].share == 0.5f && s.at[1].early == 2 && s.at[1].foreseen == 1 &&
          s.at[1].share == 0.25f && s.at[2].late == 12 && s.at[2].share == 0.25f);
    replay_tally_init(&t, 1000, 3);
    double late = 0, early = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t l = (uint64_t)(i * i % 1000), a = (uint64_t)(i % 7 ? 0 : i);
        replay_tally_add(&t, l, a, a / 2);
        late += (double)l / 300;
        early += (double)a / 300;
    }
    replay_tally_groups(&t, &s);
    double foreseen = 0;
    for (int i = 0; i < 300; i += 7)
        foreseen += i / 2 / 300.;
    CHECK(s.n == REPLAY_GROUPS && means(&s, late, early, foreseen));
}

/* Units that are read ahead: all that is missed where guesses are right and there is room; few in vain where they are wrong, for the
 * layer rests; the same from a table and at a point. */
static void test_ahead(void)
{
    struct layout_shape shape = make_shape(64, 64, 32);
    uint32_t n_units = shape.part[1].n_units, npu = shape.part[1].neurons_per_unit, room = 2 * AHEAD_USED * n_units;
    const struct reads_rule near_only = { .near = 1 };
    struct err e = { 0 };
    CHECK(n_units > 1 && n_units * AHEAD_USED <= EXPERT_AHEAD_UNITS);
    for (int right = 0; right <= AHEAD_USED; right += 2)
        for (int policy = 0; policy < CACHE_POLICIES; policy++) {
            struct inputs_steps s = make_expected(64, n_units, npu, right);
            struct replay_figures f[2];
            struct replay_table t, fixed;
            struct replay_samples samples, copied;
            double at[REPLAY_AHEAD];
            int differ = 0, compared = 0, spread = 0;
            for (uint32_t i = 0; i < 2; i++)
                CHECK(replay_point_reads(&s, &shape, 1, AHEAD_BLOCKS, 1, (enum cache_policy)policy, 0, room - !i, &near_only, &f[i],
                                         &e) == 0);
            CHECK(f[0].foresees && f[0].ahead[REPLAY_AHEAD_FORESEEN] == 0 && f[0].ahead[REPLAY_AHEAD_WASTED] == 0 &&
                  f[0].ahead[REPLAY_AHEAD_MISSES] == f[0].misses && f[0].misses > 1);
            const double *a = f[1].ahead;
            printf("# %d of 4 right, %s: %.3f misses, %.3f; %.3f foreseen, %.3f in vain, steps %.3f\n", right,
                   cache_policy_name((enum cache_policy)policy), f[1].misses, a[REPLAY_AHEAD_MISSES], a[REPLAY_AHEAD_FORESEEN],
                   a[REPLAY_AHEAD_WASTED], a[REPLAY_AHEAD_STEPS]);
            CHECK(a[REPLAY_AHEAD_FORESEEN] <= a[REPLAY_AHEAD_MISSES] && a[REPLAY_AHEAD_MISSES] > 0.8 * f[1].misses);
            if (right == AHEAD_USED) {
                CHECK(a[REPLAY_AHEAD_WASTED] == 0 && a[REPLAY_AHEAD_STEPS] > 0.9);
                /* What is read ahead may drive out others; LFU keeps what it has. */
                CHECK(a[REPLAY_AHEAD_FORESEEN] > (policy == CACHE_LFU ? 0.1 : 0.9) * a[REPLAY_AHEAD_MISSES]);
            } else { /* at least 64 tries in 256 steps of rest, and what one step tries beyond */
                CHECK(a[REPLAY_AHEAD_WASTED] > 0 && a[REPLAY_AHEAD_WASTED] < (64. + room) / 256 && a[REPLAY_AHEAD_STEPS] < 0.25);
                CHECK(right || a[REPLAY_AHEAD_FORESEEN] == 0);
            }
            CHECK(replay_layer(&s, &shape, 1, AHEAD_BLOCKS, 1, (enum cache_policy)policy, &t, NULL, &e) == 0 && t.foresees &&
                  !replay_steps_at(&t, 0, room));
            CHECK(replay_layer(&s, &shape, 1, AHEAD_BLOCKS, 1, (enum cache_policy)policy, &t, &samples, &e) == 0);
            for (int h = 0; h < REPLAY_HOTS - 1; h += 2)
                for (int i = 0; i < REPLAY_SIZES - 1; i++, compared++) {
                    struct replay_figures g;
                    differ += replay_point_reads(&s, &shape, 1, AHEAD_BLOCKS, 1, (enum cache_policy)policy, t.hot[h], t.slots[h][i],
                                                 &near_only, &g, &e) < 0 || !replay_ahead_of(&t, t.hot[h], t.slots[h][i], at);
                    for (int k = 0; k < REPLAY_AHEAD; k++)
                        differ += fabs(at[k] - g.ahead[k]) > 1e-12;
                    const struct replay_point_steps *steps = replay_steps_at(&t, t.hot[h], t.slots[h][i]);
                    differ += memcmp(steps, &g.steps, sizeof g.steps) != 0 || !means(&steps->plain, g.misses, 0, 0) ||
                              !means(&steps->ahead, at[REPLAY_AHEAD_MISSES] - at[REPLAY_AHEAD_FORESEEN],
                                     at[REPLAY_AHEAD_FORESEEN] + at[REPLAY_AHEAD_WASTED], at[REPLAY_AHEAD_FORESEEN]);
                    spread += steps->plain.n > 2;
                }
            CHECK(spread > 20);
            CHECK(replay_samples_copy(&samples, &copied, &e) == 0 && copied.steps != samples.steps &&
                  !memcmp(copied.steps, samples.steps, REPLAY_HOTS * REPLAY_SIZES * sizeof *copied.steps));
            replay_samples_done(&samples);
            replay_samples_done(&copied);
            CHECK_MSG(differ == 0 && compared > 40, "%d of %d", differ, compared);
            f[1].all_lookups = f[1].lookups;
            replay_fixed(&shape, 1, AHEAD_BLOCKS, 0, &f[1], &fixed);
            CHECK(replay_ahead_of(&fixed, 0, room, at) && !memcmp(at, f[1].ahead, sizeof at));
            CHECK(!memcmp(replay_steps_at(&fixed, 0, room), &f[1].steps, sizeof f[1].steps));
            /* Steps of more tokens than the runtime foresees, or without guesses: nothing is read ahead. */
            CHECK(replay_point_reads(&s, &shape, 1, AHEAD_BLOCKS, 8, (enum cache_policy)policy, 0, room, &near_only, &f[0], &e) == 0 &&
                  !f[0].foresees);
            CHECK(replay_point_reads(&s, &shape, 1, AHEAD_BLOCKS, 2, (enum cache_policy)policy, 0, 2 * room, &near_only, &f[0], &e) == 0 &&
                  f[0].foresees && (right < AHEAD_USED || f[0].ahead[REPLAY_AHEAD_FORESEEN] > 0));
            inputs_steps_done(&s);
        }
}

/* n tokens whose active neurons persist from one to the next with a random strength, so that caches of all sizes
 * have something to keep; rates fall with the position at a random slope; now and then a token fires nearly all or
 * none. */
static struct inputs_steps make_moving_steps(int n, int n_ff, int n_blocks)
{
    struct inputs_steps s = { .n_steps = n };
    s.start = malloc(((size_t)n + 1) * sizeof *s.start);
    s.at = malloc((size_t)n * (size_t)n_ff * sizeof *s.at);
    uint8_t *on = calloc((size_t)(n_ff * n_blocks), 1);
    uint32_t m = 0, stay = rng(100), rate = 5 + rng(60), skew = 1 + rng(8);
    for (int t = 0; t < n; t++) {
        s.start[t] = m;
        uint32_t block = rng((uint32_t)n_blocks), all = rng(40) ? 0 : rng(2) ? 95 : 1;
        for (uint32_t p = 0; p < (uint32_t)n_ff; p++) {
            uint32_t at = block * (uint32_t)n_ff + p;
            uint32_t r = all ? all : rate * (uint32_t)n_ff / ((uint32_t)n_ff + skew * p);
            if (rng(100) >= stay || all)
                on[at] = rng(100) < r;
            if (on[at])
                s.at[m++] = at;
        }
    }
    s.start[n] = m;
    free(on);
    return s;
}

/* Every point of a table is what common/plan/cache does at that size: for both policies, experts, batches, units of one or
 * several neurons (clusters need not be whole units), ageing on the way; and misses never grow with the cache. */
static void test_all_sizes(void)
{
    int points = 0, differ = 0, rising = 0, fixed = 0;
    struct err e = { 0 };
    for (int round = 0; round < 48; round++) {
        int n_ff = 24 + 8 * (int)rng(24), blocks = round % 4 == 3 ? 3 : 1, batch = 1 << rng(4);
        struct layout_shape shape = make_shape(round % 3 ? 64 << rng(3) : 2048, n_ff, 8 * (1 + rng(3)));
        struct inputs_steps s = make_moving_steps(150 + (int)rng(600), n_ff, blocks);
        enum cache_policy policy = round % 2 ? CACHE_LFU : CACHE_LRU;
        struct replay_table t, one;
        differ += replay_layer(&s, &shape, 1, blocks, batch, policy, &t, NULL, &e) < 0;
        for (int h = 0; h < REPLAY_HOTS; h++)
            for (int i = 0; i < REPLAY_SIZES - 1; i++, points++) {
                double l, m;
                differ += replay_point(&s, &shape, 1, blocks, batch, policy, t.hot[h], t.slots[h][i], &l, &m, &e) < 0;
                differ += l != t.lookups[h] || m != t.misses[h][i];
                rising += i && t.misses[h][i] > t.misses[h][i - 1];
                if (t.slots[h][i] < t.units[h])
                    differ += replay_misses(&t, t.hot[h], t.slots[h][i]) != m;
            }
        uint32_t some[3] = { 0, replay_units(&t, 0) / 5, replay_units(&t, 0) / 2 };
        double curve[3];
        differ += replay_curve(&s, &shape, 1, blocks, batch, policy, 0, some, 3, curve, &e) < 0;
        for (int i = 0; i < 3; i++) {
            double l, m;
            differ += replay_point(&s, &shape, 1, blocks, batch, policy, 0, some[i], &l, &m, &e) < 0 || m != curve[i];
        }
        /* Between grid points, and on them, a table of one point is the cache code's word. */
        for (int i = 0; i < 6; i++) {
            uint32_t hot = i ? rng((uint32_t)n_ff) : 0, units, slots;
            double l, m, l0, m0;
            units = replay_units(&t, hot);
            slots = rng(units);
            replay_point(&s, &shape, 1, blocks, batch, policy, hot, slots, &l, &m, &e);
            replay_point(&s, &shape, 1, blocks, batch, policy, 0, 0, &l0, &m0, &e);
            replay_fixed(&shape, 1, blocks, hot, &(struct replay_figures){ .all_lookups = l0, .lookups = l, .misses = m }, &one);
            fixed += replay_lookups(&one, hot) != l || replay_misses(&one, hot, slots) != m;
            fixed += replay_lookups(&one, 0) != l0 || replay_misses(&one, hot, units) != 0;
        }
        inputs_steps_done(&s);
    }
    CHECK_MSG(differ == 0, "%d of %d points differ from common/plan/cache: %s", differ, points, e.msg);
    CHECK_MSG(rising == 0, "misses grow with the cache at %d of %d points", rising, points);
    CHECK_MSG(fixed == 0, "%d points by themselves differ", fixed);
    CHECK(points > 4000);
}

int main(void)
{
    struct err e = { 0 };
    struct { int d, n_ff, blocks; uint32_t cluster; } cases[] = { { 2048, 200, 1, 8 }, { 256, 200, 1, 64 },
                                                                  { 512, 96, 3, 16 } };
    for (int c = 0; c < 3; c++) {
        struct layout_shape shape = make_shape(cases[c].d, cases[c].n_ff, cases[c].cluster);
        int npu = (int)shape.part[1].neurons_per_unit, bad = 0, n = 0;
        struct inputs_steps s = make_steps(120, cases[c].n_ff, cases[c].blocks);
        for (uint32_t hot = 0; hot <= (uint32_t)cases[c].n_ff; hot += cases[c].cluster)
            for (uint32_t slots = 0; slots <= 40; slots += 3) {
                double l, m, nl, nm, best;
                bad += replay_point(&s, &shape, 1, cases[c].blocks, 1, CACHE_LRU, hot, slots, &l, &m, &e) < 0;
                naive_lru(&s, cases[c].n_ff, npu, hot, slots, &nl, &nm);
                bad += l != nl || m != nm;
                bad += replay_belady(&s, &shape, 1, cases[c].blocks, 1, hot, &slots, 1, &best, &e) < 0 || best > m;
                n++;
            }
        CHECK_MSG(bad == 0, "case %d (%d neurons a unit): %d of %d points differ", c, npu, bad, n);

        struct replay_table t;
        CHECK(replay_layer(&s, &shape, 1, cases[c].blocks, 1, CACHE_LFU, &t, NULL, &e) == 0);
        bad = 0;
        for (int h = 0; h < REPLAY_HOTS; h++) {
            bad += t.misses[h][0] != t.lookups[h] || t.misses[h][REPLAY_SIZES - 1] != 0;
            for (int i = 1; i < REPLAY_SIZES; i++)
                bad += t.misses[h][i] > t.misses[h][i - 1];
            bad += h && t.lookups[h] > t.lookups[h - 1];
        }
        CHECK_MSG(bad == 0, "%d", bad);
        CHECK(replay_lookups(&t, (uint32_t)cases[c].n_ff) == 0 && replay_lookups(&t, 0) == t.lookups[0]);
        CHECK(replay_units(&t, 0) == shape.part[1].n_units * (uint32_t)cases[c].blocks);
        CHECK(replay_misses(&t, 0, replay_units(&t, 0)) == 0 && replay_misses(&t, 0, 0) == t.lookups[0]);
        double a = replay_misses(&t, 0, 7), b = replay_misses(&t, 0, 8);
        CHECK(a >= b && b > 0);

        /* A batch of two is the union of two tokens half a window apart. */
        double l1, l2, m;
        CHECK(replay_point(&s, &shape, 1, cases[c].blocks, 1, CACHE_LRU, 0, 0, &l1, &m, &e) == 0 && m == l1);
        CHECK(replay_point(&s, &shape, 1, cases[c].blocks, 2, CACHE_LRU, 0, 0, &l2, &m, &e) == 0);
        CHECK(l2 > l1 && l2 <= 2.2 * l1);
        CHECK(replay_point(&s, &shape, 1, cases[c].blocks, 64, CACHE_LRU, 0, 0, &l2, &m, &e) == ERR_UNSUPPORTED);
        inputs_steps_done(&s);
    }
    test_all_sizes();
    test_together();
    test_groups();
    test_ahead();
    test_belady();
    test_belady_long();
    return test_done();
}
