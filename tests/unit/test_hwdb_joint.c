/* Reading and computing beside each other, as properties of any figures: those measured, noise, and points that are not sorted. */
#include "common/offline/hwdb/hwdb.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 38;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

static struct hw_joint joint(int threads, uint64_t block, int depth, int load, double rate, double kept, double rows)
{
    return (struct hw_joint){ .backend = HW_URING, .block_bytes = block, .queue_depth = depth, .threads = threads, .load_percent = load,
                              .bytes_per_s = { rate, rate, rate }, .read_rate_ratio = kept, .row_rate_ratio = rows };
}

static struct hw_beside ask(const struct hw *h, int threads, double block, int depth, double rate)
{
    struct hw_read q = { .backend = HW_URING, .pattern = HW_RANDOM, .block_bytes = (uint64_t)block, .queue_depth = depth, .lanes = 1 };
    struct hw_beside b;
    CHECK(hw_beside_of(h, &q, threads, rate, &b) == 1);
    return b;
}

/* Share of computing that is lost beside reads that have the rate with idle cores. */
static double lost(const struct hw_beside *b, double block, double rate)
{
    return b->lost_ns * b->kept * rate / block / 1e9;
}

/* At a point its own figures; half of the rate half of the loss; a size and a number of threads in the middle the mean. */
static void test_points(void)
{
    struct hw_joint p[] = { joint(1, 4096, 8, 100, 4e8, 1, 0.9), joint(1, 16384, 8, 100, 4e8, 0.8, 0.96),
                            joint(3, 4096, 8, 100, 4e8, 0.5, 0.8), joint(3, 16384, 8, 100, 4e8, 0.4, 0.8) };
    struct hw h = { .joint = p, .n_joint = 4 };
    struct hw_beside b = ask(&h, 1, 4096, 8, 4e8);
    CHECK(near(b.kept, 1) && near(b.lost_ns, 1e9 * 0.1 * 4096 / 4e8));
    b = ask(&h, 1, 4096, 8, 2e8);
    CHECK(near(lost(&b, 4096, 2e8), 0.05));
    b = ask(&h, 1, 4096, 8, 4e9); /* beyond: as at the end */
    CHECK(near(lost(&b, 4096, 4e9), 0.1));
    b = ask(&h, 1, 8192, 8, 4e8 / 0.9);
    CHECK(near(b.kept, 0.9) && near(lost(&b, 8192, 4e8 / 0.9), 0.07));
    b = ask(&h, 2, 4096, 8, 4e8 / 0.75);
    CHECK(near(b.kept, 0.75) && near(lost(&b, 4096, 4e8 / 0.75), 0.15));
    CHECK(near(ask(&h, 9, 1e6, 128, 1e9).kept, 0.4) && near(ask(&h, 1, 512, 1, 1e9).kept, 1));
}

/* Nothing is known, of the device, of this back end, of no reads: as if they cost nothing. */
static void test_unknown(void)
{
    struct hw_joint p[] = { joint(1, 4096, 8, 100, 4e8, 0.5, 0.5) };
    struct hw none = { .n_joint = 0 }, one = { .joint = p, .n_joint = 1 };
    const struct hw_read q[] = { { .backend = HW_URING, .block_bytes = 4096, .queue_depth = 8 }, { .backend = HW_PREAD, .block_bytes = 4096,
                                 .queue_depth = 8 }, { .backend = HW_URING, .block_bytes = 0, .queue_depth = 8 } };
    for (int i = 0; i < 3; i++) {
        struct hw_beside b = { 7, 7 };
        CHECK(hw_beside_of(i == 0 ? &none : &one, &q[i], 2, 1e9, &b) == 0 && near(b.lost_ns, 0) && near(b.kept, 1));
    }
    struct hw_beside b = { 7, 7 };
    CHECK(hw_beside_of(&one, &q[0], 2, 0, &b) == 0 && near(b.lost_ns, 0) && near(b.kept, 1));
}

/* Of figures at random, in any order. */
static struct hw random_device(void)
{
    static const uint64_t blocks[] = { 4096, 65536, 1 << 20 };
    static const int threads[] = { 1, 2, 8 }, loads[] = { 25, 50, 100 };
    struct hw h = { .joint = calloc(64, sizeof *h.joint) };
    for (int t = 0; t < 3; t++)
        for (int b = 0; b < 3; b++)
            for (int k = 0; k < 4; k++)
                h.joint[h.n_joint++] = joint(threads[t], blocks[b], k < 3 ? 64 : 8, k < 3 ? loads[k] : 100, 1e7 + 2e9 * uniform(),
                                             0.02 + 0.98 * uniform(), 0.02 + 0.98 * uniform());
    for (int i = h.n_joint - 1; i > 0; i--) {
        int j = (int)(uniform() * (i + 1));
        struct hw_joint o = h.joint[i];
        h.joint[i] = h.joint[j], h.joint[j] = o;
    }
    return h;
}

static void test_monotone(void)
{
    int bad = 0;
    for (int n = 0; n < 300; n++) {
        struct hw h = random_device();
        double block = 512 * pow(2, 13 * uniform());
        int depth = 1 + (int)(200 * uniform()), threads = 1 + (int)(12 * uniform());
        double was = 0, kept = 1;
        for (double rate = 1e5; rate < 1e10; rate *= 1.7) { /* more of a rate costs computing no less, none of it nothing */
            struct hw_beside b = ask(&h, threads, block, depth, rate);
            double now = lost(&b, block, rate);
            bad += !(now >= was - 1e-12) || !(now <= 1) || !(b.kept > 0 && b.kept <= 1) || !(b.lost_ns >= 0);
            bad += rate < 2e5 && now > 0.05; /* the lowest rate measured is a hundred times as much */
            was = now;
        }
        for (int t = 1; t < 14; t++) { /* reads keep no more of their rate beside more threads */
            double k = ask(&h, t, block, depth, 1e9).kept;
            bad += k > kept + 1e-12;
            kept = k;
        }
        free(h.joint);
    }
    CHECK_MSG(bad == 0, "%d", bad);
}

/* The line through points that fall is that of their mean, and keeps what rises. */
static void test_noise(void)
{
    struct hw_joint p[] = { joint(1, 4096, 64, 25, 1e8, 1, 0.9), joint(1, 4096, 64, 50, 2e8, 1, 0.6), joint(1, 4096, 64, 100, 3e8, 1, 0.8),
                            joint(1, 4096, 8, 100, 4e8, 1, 0.4) };
    struct hw h = { .joint = p, .n_joint = 4 };
    const double rate[] = { 1e8, 2e8, 3e8, 4e8 }, is[] = { 0.1, 0.3, 0.3, 0.6 };
    for (int i = 0; i < 4; i++) {
        struct hw_beside b = ask(&h, 1, 4096, 64, rate[i]);
        CHECK(near(lost(&b, 4096, rate[i]), is[i]));
    }
}

int main(void)
{
    test_points();
    test_unknown();
    test_monotone();
    test_noise();
    return test_done();
}
