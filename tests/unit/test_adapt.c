/* The online choice under made-up machines: a core that something else takes, a drive that is throttled, a phone that is hot, a plan that
 * was wrong, noise alone, trouble that comes and goes. What passes take is what the machine makes of the way that was chosen; no clock. */
#include "runtime/session/adapt.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { HOME, ONE_THREAD, URING, URING_ONE, WAYS };

/* ns of terms by way: two threads halve arithmetic; deeper reads through io_uring wait a little less where a thread is spare. */
static const struct adapt_way variants[WAYS] = {
    [HOME] = { 2, { 2.0e6, 0, 4.0e6, 2.0e6, 1.0e6 } },
    [ONE_THREAD] = { 1, { 3.8e6, 0, 7.6e6, 1.0e6, 1.9e6 } },
    [URING] = { 2, { 2.1e6, 0, 4.2e6, 2.4e6, 1.0e6 } },
    [URING_ONE] = { 1, { 3.9e6, 0, 7.7e6, 1.2e6, 1.9e6 } },
};

enum trouble { NONE, BUSY, THROTTLED, NARROW, HOT };

struct machine {
    struct adapt a;
    uint64_t seed;
    double noise;
    double truth[WAYS];     /* factor of what the plan says of a way */
    int position;
};

static double uniform(struct machine *m)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(m->seed >> 11) / (double)(1ull << 53);
}

/* What a way's term takes while there is trouble. */
static double term(int way, int t, enum trouble x)
{
    double ns = variants[way].ns[t];
    if (x == BUSY && t != PLAN_TERM_WAIT && variants[way].threads > 1)
        return 2.6 * ns; /* both wait for the thread that shares its core */
    if (x == THROTTLED && t == PLAN_TERM_WAIT)
        return (way == URING || way == URING_ONE ? 2.2 : 5.5) * ns;
    if (x == NARROW && t == PLAN_TERM_WAIT)
        return (way == URING || way == URING_ONE ? 2.9 : 5.5) * ns;
    return x == HOT && t != PLAN_TERM_WAIT ? 1.5 * ns : ns;
}

static double all_of(const struct machine *m, int way, enum trouble x)
{
    double ns = 0;
    for (int t = 0; t < PLAN_TERMS; t++)
        ns += term(way, t, x);
    return ns * m->truth[way];
}

static double best(const struct machine *m, enum trouble x)
{
    double least = all_of(m, 0, x);
    for (int i = 1; i < WAYS; i++)
        least = fmin(least, all_of(m, i, x));
    return least;
}

static struct machine machine(double noise, uint64_t seed)
{
    struct machine m = { .seed = seed, .noise = noise, .truth = { 1, 1, 1, 1 } };
    adapt_init(&m.a, variants, WAYS);
    return m;
}

/* What n passes take without noise, by the ways that are chosen under it. */
static double run(struct machine *m, enum trouble x, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) {
        struct adapt_sample s = { .tokens = 1, .position = m->position++ };
        double factor = m->truth[m->a.used] * exp(m->noise * (uniform(m) + uniform(m) + uniform(m) + uniform(m) - 2) * 1.7);
        for (int t = 0; t < PLAN_TERMS; t++)
            s.ns[t] = factor * term(m->a.used, t, x);
        all += all_of(m, m->a.used, x);
        adapt_pass(&m->a, &s);
    }
    return all;
}

static void trouble(enum trouble x, double noise, int leaves, const char *what)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct machine m = machine(noise, seed);
        run(&m, NONE, 200);
        CHECK_MSG(m.a.now == HOME, "%s: begins with way %d", what, m.a.now);
        uint64_t before = m.a.n_changes;
        run(&m, x, 50);
        double took = run(&m, x, 100), least = 100 * best(&m, x);
        CHECK_MSG(least / took >= 0.9, "%s, noise %g, seed %d: passes 51 to 150 at %.3f of the best way; way %d", what, noise, (int)seed,
                  least / took, m.a.now);
        CHECK_MSG((m.a.now != HOME) == leaves, "%s, noise %g, seed %d: way %d", what, noise, (int)seed, m.a.now);
        CHECK_MSG(m.a.n_changes - before <= 2, "%s: %d changes", what, (int)(m.a.n_changes - before));
        run(&m, NONE, 300);
        took = run(&m, NONE, 100);
        least = 100 * best(&m, NONE);
        CHECK_MSG(m.a.now == HOME && least / took >= 0.97, "%s is over, noise %g, seed %d: way %d, %.3f of the best", what, noise,
                  (int)seed, m.a.now, least / took);
    }
}

static void undisturbed(double noise)
{
    double took = 0, least = 0;
    uint64_t changes = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct machine m = machine(noise, seed);
        took += run(&m, NONE, 300);
        least += 300 * best(&m, NONE);
        changes += m.a.n_changes;
    }
    CHECK_MSG(least / took >= 0.97, "noise %g alone: %.4f of the best", noise, least / took);
    CHECK_MSG(changes <= 6, "noise %g alone: %d changes in 6000 passes", noise, (int)changes);
}

/* A way that is a fifth faster under trouble is found where passes differ by as much: in longer trials. */
static void narrow(void)
{
    int found = 0, wrong = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct machine m = machine(0.2, seed);
        run(&m, NONE, 200);
        run(&m, NARROW, 150);
        found += m.a.now == URING;
        wrong += m.a.now != URING && m.a.now != HOME;
    }
    CHECK_MSG(found >= 20 && wrong <= 2, "a way that is a fifth faster: found by %d of 40, another taken by %d", found, wrong);
}

/* Trouble that comes and goes is followed less and less. */
static void comes_and_goes(void)
{
    struct machine m = machine(0.05, 7);
    double took = 0, stays = 0;
    run(&m, NONE, 100);
    for (int i = 0; i < 40; i++) {
        enum trouble x = i % 2 ? NONE : BUSY;
        took += run(&m, x, 25);
        stays += 25 * all_of(&m, HOME, x);
    }
    CHECK_MSG(took <= 1.1 * stays, "trouble that comes and goes: %.3f of what the plan's way takes", took / stays);
    CHECK_MSG(m.a.n_changes <= 20, "%d changes in 1000 passes", (int)m.a.n_changes);
}

/* The plan is slower than it says, and an alternative is better: once that is found out. */
static void broken_promise(void)
{
    struct machine m = machine(0.05, 3);
    m.truth[HOME] = 2;
    run(&m, NONE, 60);
    CHECK_MSG(m.a.now == URING && m.a.n_changes == 1 && m.a.change[0].why == ADAPT_PLAN, "way %d", m.a.now);
    double took = run(&m, NONE, 300);
    CHECK_MSG(300 * best(&m, NONE) / took >= 0.95, "%.3f of the best", 300 * best(&m, NONE) / took);
    m = machine(0.05, 3);
    m.truth[HOME] = m.truth[ONE_THREAD] = m.truth[URING] = m.truth[URING_ONE] = 2;
    run(&m, NONE, 60);
    CHECK(m.a.now == HOME && !m.a.n_changes);
}

/* Positions and sizes of passes have baselines of their own. */
static void other_passes(void)
{
    struct machine m = machine(0, 1);
    for (int i = 0; i < 600; i++) {
        struct adapt_sample s = { .tokens = 1 + 3 * (i / 7 % 2), .position = i * 8 };
        for (int t = 0; t < PLAN_TERMS; t++)
            s.ns[t] = term(m.a.used, t, NONE) * (s.tokens > 1 ? 2.5 : 1) * (t == PLAN_TERM_ATTENTION ? 1 + (double)i / 300 : 1);
        adapt_pass(&m.a, &s);
    }
    CHECK_MSG(!m.a.n_changes && m.a.n_tried < 40, "%d changes, %d tried", (int)m.a.n_changes, (int)m.a.n_tried);
}

/* What cannot be had is not tried again; a single way is kept. */
static void refused(void)
{
    struct machine m = machine(0.02, 1);
    run(&m, NONE, 100);
    for (int i = 0; i < 200; i++) {
        run(&m, BUSY, 1);
        if (m.a.used == ONE_THREAD)
            adapt_refused(&m.a, ONE_THREAD);
    }
    CHECK_MSG(m.a.now == URING_ONE, "way %d", m.a.now);
    adapt_refused(&m.a, URING_ONE);
    CHECK(m.a.now == HOME && m.a.used == HOME);
    adapt_init(&m.a, variants, 1);
    run(&m, NONE, 100);
    run(&m, BUSY, 100);
    CHECK(m.a.used == HOME && !m.a.n_changes && !m.a.n_tried);
}

int main(void)
{
    const double noise[] = { 0, 0.05, 0.1 };
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        trouble(BUSY, noise[i], 1, "a busy core");
        trouble(THROTTLED, noise[i], 1, "a throttled drive");
        trouble(HOT, noise[i], 0, "heat");
    }
    undisturbed(0);
    undisturbed(0.1);
    undisturbed(0.3);
    narrow();
    comes_and_goes();
    broken_promise();
    other_passes();
    refused();
    return test_done();
}
