/* Which logits a token can be drawn by. */
#include "common/model/logits.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST = 70 };

/* One value of each odd kind at every place of rows of every length. */
static void one_of_each(void)
{
    const struct { float v; int fits; } odd[] = { { NAN, 0 }, { INFINITY, 0 }, { -INFINITY, 1 }, { FLT_MAX, 1 }, { -FLT_MAX, 1 },
                                                  { 0x1p-149f, 1 } };
    float x[MOST];
    int wrong = 0;
    for (int n = 1; n <= MOST; n++)
        for (int at = 0; at < n; at++)
            for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
                for (int i = 0; i < n; i++)
                    x[i] = (float)(i * 37 % 11) - 5;
                x[at] = odd[k].v;
                int want = !odd[k].fits ? at : n == 1 && odd[k].v < -FLT_MAX ? 0 : -1;
                wrong += logits_bad(x, n) != want;
            }
    CHECK_MSG(wrong == 0, "%d wrong", wrong);
}

/* The sum that each drawn token takes, beside libm's. */
static void near_sum(void)
{
    static float x[4003];
    double worst = 0;
    for (int n = 1; n <= 4003; n += n < 70 ? 1 : 393) {
        for (int i = 0; i < n; i++)
            x[i] = i % 7 == 6 ? -INFINITY : (float)((i * 7919 + n * 31) % 2003) / 40 - 30;
        double d = fabs(logits_log_sum_near(x, n) - logits_log_sum(x, n, NULL));
        worst = d > worst ? d : worst;
    }
    x[0] = -80000;
    CHECK_MSG(worst < 1e-6 && fabs(logits_log_sum_near(x, 1) + 80000) < 1e-6, "%g", worst);
}

static void best(void)
{
    const float x[8] = { 2, NAN, 3, -INFINITY, 2, 3, -5, 1 };
    const int32_t order[6] = { 2, 5, 0, 4, 7, 6 }; /* among equals the first first */
    for (int k = 0; k <= 8; k++) {
        int32_t ids[8];
        int n = logits_best(x, 8, k, ids);
        CHECK(n == (k < 6 ? k : 6) && !memcmp(ids, order, (size_t)n * sizeof *ids));
    }
}

int main(void)
{
    best();
    near_sum();
    one_of_each();
    float all[MOST];
    for (int i = 0; i < MOST; i++)
        all[i] = -INFINITY;
    CHECK(logits_bad(all, MOST) == 0);
    all[MOST - 1] = -3;
    CHECK(logits_bad(all, MOST) == -1);
    all[40] = NAN, all[20] = INFINITY;
    CHECK(logits_bad(all, MOST) == 20);
    return test_done();
}
