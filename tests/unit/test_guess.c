/* Guesses: prompt lookup, how good they are, how long passes take, how many pay. That texts with them are those without: test_batch. */
#include "runtime/session/guess.h"
#include "tests/test.h"

#include <math.h>

static uint32_t rnd(uint32_t n)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x % n);
}

/* What is guessed after the first n of them and `last`; out: [most]. */
static int guesses(int32_t *text, int n, int32_t last, int32_t *out, int most, int *class)
{
    struct session s = { .ids = text, .n_pos = n };
    struct guess_ask a = { .s = &s, .last = last, .most = most, .out = out };
    struct err e = { 0 };
    CHECK(guess_lookup_many(NULL, &a, 1, &e) == 0);
    *class = a.class;
    return a.n;
}

/* The last place of the longest run, and what follows it, guesses of itself included. */
static void test_lookup(void)
{
    static int32_t text_ids[] = { 5, 6, 7, 8, 5, 6, 9, 9, 6, 7, 1, 5, 6 };
    int32_t out[6];
    int class = -1;
    CHECK(guesses(text_ids, 13, 7, out, 3, &class) == 3 && class == 2); /* 5 6 7, at the beginning; not the later 6 7 */
    CHECK(out[0] == 8 && out[1] == 5 && out[2] == 6);
    CHECK(guesses(text_ids, 13, 9, out, 4, &class) == 4 && class == 2 && out[0] == 9 && out[1] == 6 && out[2] == 7 && out[3] == 1);
    CHECK(guesses(text_ids, 3, 7, out, 6, &class) == 6 && class == 0); /* 7 7: it repeats */
    for (int i = 0; i < 6; i++)
        CHECK(out[i] == 7);
    CHECK(guesses(text_ids, 3, 4, out, 6, &class) == 0);
    CHECK(guesses(text_ids, 0, 5, out, 6, &class) == 0);
}

/* Shares follow what came true; guesses in vain are tried again ever more rarely, until all of some come true. */
static void test_class(void)
{
    struct guess_class k = { 0 };
    CHECK(fabs(guess_class_share(&k) - 0.5) < 1e-9);
    for (int i = 0; i < 100; i++)
        guess_class_learn(&k, 3, 3);
    double high = guess_class_share(&k);
    guess_class_learn(&k, 3, 1); /* nothing is known of the third */
    CHECK(high > 0.95 && guess_class_share(&k) < high && guess_class_share(&k) > 0.9);
    for (int i = 0; i < 100; i++)
        guess_class_learn(&k, 2, 0);
    CHECK(guess_class_share(&k) < 0.1 && guess_class_due(&k));
    int wait = 0, longer = 0;
    while (!guess_class_due(&k))
        wait++;
    while (!guess_class_due(&k))
        longer++;
    CHECK(wait == 16 && longer == 32);
    guess_class_learn(&k, 2, 2);
    CHECK(guess_class_due(&k));
}

/* How long passes over so many tokens take: as the plan's times go, and as those that were measured. */
static void test_times(void)
{
    static const struct plan_batch batches[] = { { .batch = 1, .predicted.tokens_per_s = 10 },       /* 100 ms a step */
                                                 { .batch = 2, .predicted.tokens_per_s = 2 / .12 },  /* 120 */
                                                 { .batch = 4, .predicted.tokens_per_s = 4 / .20 } };
    struct guess_times t = { .batches = batches, .n_batches = 3 };
    CHECK(guess_times_ns(&t, 2) == 0); /* nothing is known before something was measured */
    guess_times_took(&t, 2, 240e6);    /* twice as long */
    CHECK(fabs(guess_times_ns(&t, 2) - 240e6) < 1 && fabs(guess_times_ns(&t, 1) - 200e6) < 1 && fabs(guess_times_ns(&t, 3) - 320e6) < 1);
    CHECK(fabs(guess_times_ns(&t, 6) - 560e6) < 1); /* 280 by the last slope */
    guess_times_took(&t, 4, 200e6); /* as planned */
    CHECK(fabs(guess_times_ns(&t, 3) - 240e6) < 1 && fabs(guess_times_ns(&t, SESSION_MOST) - (200e6 + 40e6 * (SESSION_MOST - 4))) < 1);
    guess_times_took(&t, 4, 300e6);
    CHECK(fabs(guess_times_ns(&t, 4) - 250e6) < 1);
    for (int i = 0; i < 100; i++) /* older ones are forgotten */
        guess_times_took(&t, 4, 400e6);
    CHECK(guess_times_ns(&t, 4) > 399e6);
    struct guess_times none = { 0 };
    guess_times_took(&none, 1, 100);
    CHECK(fabs(guess_times_ns(&none, 1) - 100) < 1e-9 && fabs(guess_times_ns(&none, 5) - 200) < 1e-9);
}

/* What of all ways to give guesses out makes most tokens in a time, by trying all of them. */
static double best_rate(const struct guess_times *t, const struct guess_want *w, int room, double each)
{
    double best = 0;
    int k[3];
    for (k[0] = 0; k[0] <= w[0].most; k[0]++)
        for (k[1] = 0; k[1] <= w[1].most; k[1]++)
            for (k[2] = 0; k[2] <= w[2].most; k[2]++) {
                int n = k[0] + k[1] + k[2];
                double tokens = 0, ns = guess_times_ns(t, 3 + n), least = guess_times_ns(t, 3);
                for (int i = 0; i < 3; i++)
                    for (int j = 0; j <= k[i]; j++)
                        tokens += pow(w[i].share, j);
                double rate = tokens / ((ns > least ? ns : least) + n * each);
                best = n <= room && rate > best ? rate : best;
            }
    return best;
}

static void test_share_out(void)
{
    for (int i = 0; i < 300; i++) {
        struct guess_times t = { 0 };
        struct guess_want w[3];
        double each = i % 3 ? 0 : rnd(1000) / 20.0, tokens = 0;
        for (int k = 1; k < 30; k += 1 + (int)rnd(4))
            guess_times_took(&t, k, 100 + k * (double)rnd(60));
        for (int k = 0; k < 3; k++)
            w[k] = (struct guess_want){ rnd(1001) / 1000.0, (int)rnd(6), -1 };
        int room = (int)rnd(20), n = 0;
        guess_share_out(&t, w, 3, room, each);
        for (int k = 0; k < 3; k++) {
            CHECK(w[k].k >= 0 && w[k].k <= w[k].most);
            n += w[k].k;
            for (int j = 0; j <= w[k].k; j++)
                tokens += pow(w[k].share, j);
        }
        double ns = guess_times_ns(&t, 3 + n), least = guess_times_ns(&t, 3), rate = tokens / ((ns > least ? ns : least) + n * each);
        double best = best_rate(&t, w, room, each), pays = 3 / least * 1.05;
        CHECK_MSG(n <= room && rate >= (best > pays * (1 + 1e-9) ? best * (1 - 1e-9) : 0) && (best > pays * (1 - 1e-9) || n == 0),
                  "%d: %d guesses, %g", i, n, rate);
    }
    /* Guesses of one text are no loss to others that guess in vain. */
    struct guess_times t = { 0 };
    guess_times_took(&t, 3, 100);
    guess_times_took(&t, 9, 130);
    struct guess_want w[3] = { { 1, 6, 0 }, { 0.01, 6, 0 }, { 0, 6, 0 } };
    guess_share_out(&t, w, 3, 100, 0);
    CHECK(w[0].k == 6 && w[1].k == 0 && w[2].k == 0);
}

int main(void)
{
    test_lookup();
    test_class();
    test_times();
    test_share_out();
    return test_done();
}
