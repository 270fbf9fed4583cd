/* False false positives: as many as asked for, and where firings are when firings persist. */
#include "common/base/cpu.h"
#include "planner/predict/false_positives.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_FF 256
#define RUNS 400

static uint64_t state = 7;
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Neurons that fire with probability 0.1, in spells that last 1 / end runs. */
static void spells(struct false_positives_runs *r, double end, uint8_t *fires)
{
    size_t n = 0;
    *r = (struct false_positives_runs){ .n_ff = N_FF, .n = RUNS };
    r->start = malloc((RUNS + 1) * sizeof *r->start);
    r->at = malloc((size_t)RUNS * N_FF * sizeof *r->at);
    uint8_t on[N_FF] = { 0 };
    for (int t = 0; t < RUNS; t++) {
        r->start[t] = n;
        for (int i = 0; i < N_FF; i++) {
            if (t == 0 || uniform() < end)
                on[i] = uniform() < 0.1;
            fires[t * N_FF + i] = on[i];
            if (on[i])
                r->at[n++] = (uint32_t)i;
        }
    }
    r->start[RUNS] = n;
}

/* Mean chance of an alarm over all silent neurons, and over those that fired a run before. */
static void means(const struct false_positives *a, const uint64_t *chance, const uint8_t *fires, double *all, double *after)
{
    double sum[2] = { 0 }, n[2] = { 0 };
    for (int t = 0; t < RUNS; t++) {
        for (int i = 0; i < N_FF; i++) {
            int fired = t > 0 && fires[(t - 1) * N_FF + i];
            if (fires[t * N_FF + i])
                continue;
            double q = (double)chance[false_positives_levels(a, t)[i]] / 4294967296.0;
            for (int k = 0; k <= fired; k++) {
                sum[k] += q;
                n[k]++;
            }
        }
    }
    *all = sum[0] / RUNS; /* false positives of a run */
    *after = sum[1] / n[1] / (sum[0] / n[0]);
}

static void one(double end, double wanted, double least, double most)
{
    static uint8_t fires[RUNS * N_FF];
    struct false_positives_runs r;
    struct false_positives a;
    struct err e = { 0 };
    double rate[N_FF], all, after;
    spells(&r, end, fires);
    for (int i = 0; i < N_FF; i++)
        rate[i] = 0.1;
    CHECK_MSG(false_positives_new(&r, rate, cpu_detect(), &a, &e) == 0, "%s", e.msg);
    uint64_t chance[FALSE_POSITIVES_LEVELS];
    false_positives_chances(&a, 0.97, wanted, chance);
    means(&a, chance, fires, &all, &after);
    CHECK_MSG(fabs(all / fmax(wanted, 1e-9) - 1) < 0.02 || (wanted == 0 && all == 0), "%g alarms, %g wanted", all, wanted);
    CHECK_MSG(wanted == 0 || (after >= least && after <= most), "%g times as likely after a firing", after);
    false_positives_free(&a);
    free(r.start);
    free(r.at);
}

/* Whatever tier makes them, levels are the same to the last: runs of any width, vectors' ends among them. */
static void test_tiers(int n_ff)
{
    struct false_positives_runs r = { .n_ff = n_ff, .n = 150 };
    struct false_positives plain, best;
    struct err e = { 0 };
    double *rate = malloc((size_t)n_ff * sizeof *rate);
    uint8_t *on = malloc((size_t)n_ff);
    size_t n = 0;
    r.start = malloc((size_t)(r.n + 1) * sizeof *r.start);
    r.at = malloc((size_t)r.n * (size_t)n_ff * sizeof *r.at);
    for (int i = 0; i < n_ff; i++)
        rate[i] = i % 9 == 8 ? 0 : pow(uniform(), 3);
    for (int t = 0; t < r.n; t++) {
        r.start[t] = n;
        for (int i = 0; i < n_ff; i++) {
            if (t == 0 || uniform() < 0.3) /* else as in the run before */
                on[i] = uniform() < rate[i];
            if (on[i])
                r.at[n++] = (uint32_t)i;
        }
    }
    r.start[r.n] = n;
    CHECK_MSG(false_positives_new(&r, rate, 1u << CPU_SCALAR, &plain, &e) == 0, "%s", e.msg);
    CHECK_MSG(false_positives_new(&r, rate, cpu_detect(), &best, &e) == 0, "%s", e.msg);
    CHECK_MSG(!memcmp(&plain.decay, &best.decay, sizeof plain.decay) && !memcmp(&plain.prior, &best.prior, sizeof plain.prior),
              "decay %g and %g, prior %g and %g", (double)plain.decay, (double)best.decay, (double)plain.prior,
              (double)best.prior);
    CHECK_MSG(!memcmp(plain.level, best.level, (size_t)n_ff * (size_t)r.n), "levels of %d neurons", n_ff);
    CHECK(!memcmp(plain.silent, best.silent, sizeof plain.silent));
    false_positives_free(&plain);
    false_positives_free(&best);
    free(r.start);
    free(r.at);
    free(rate);
    free(on);
}

int main(void)
{
    test_tiers(1);
    test_tiers(61);
    test_tiers(1000);
    test_tiers(4099);
    one(0.1, 5, 2, 100);   /* spells of ten runs */
    one(0.1, 40, 1.5, 100);
    one(1, 5, 0.8, 1.3);   /* every run anew: the past says nothing */
    one(0.1, 0, 0, 0);
    return test_done();
}
