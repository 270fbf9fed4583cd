/* Model descriptions: figures as read, the normal family against published and tabulated values, windows against the
 * bivariate normal integral, batches by definition, persistence from a miss figure. */
#include "planner/describe/describe.h"
#include "planner/describe/describe_window.h"
#include "planner/search/problem.h"
#include "planner/inputs/normal.h"
#include "planner/describe/describe_inputs.h"
#include "tests/describe_sample.h"
#include "tests/planning_sample.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double phi(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* P(X < a, Y < b) of a bivariate normal with correlation r, by summing over X: slow, and by definition. */
static double both_below(double a, double b, double r)
{
    double sum = 0, step = 1e-2;
    for (double x = -9 + step / 2; x < a; x += step) {
        double w = x + step / 2 > a ? a - (x - step / 2) : step;
        sum += w * exp(-x * x / 2) / sqrt(2 * acos(-1)) * phi((b - r * x) / sqrt(1 - r * r));
    }
    return sum;
}

static void test_sample(void)
{
    struct describe d, again;
    struct err e;
    CHECK(describe_parse(describe_sample, strlen(describe_sample), "sample", &d, &e) == 0);
    CHECK(d.h.n_layers == 2 && d.h.n_experts == 4 && d.h.n_experts_used == 2 && d.h.head_dim == 16);
    CHECK(d.rate[0] == 0.15 && d.rate[1] == 0 && d.rate[2] == 0.3 && d.spread == 0.65 && d.n_memory == 2);
    CHECK(d.expert_again == 0.6 && d.n_misses == 1 && d.predictor_rank == 32 && d.resident_bytes == 1000);
    /* The same figures are the same model, whatever the sources say; other figures are another. */
    char *text = strdup(describe_sample);
    memcpy(strstr(text, "a paper"), "a talk!", 7);
    CHECK(describe_parse(text, strlen(text), "b", &again, &e) == 0 && hash_equal(again.hash, d.hash));
    memcpy(strstr(text, "0.99"), "0.98", 4);
    CHECK(describe_parse(text, strlen(text), "b", &again, &e) == 0 && !hash_equal(again.hash, d.hash));
    free(text);
}

static void test_normal(void)
{
    CHECK(fabs(normal_quantile(0.975) - 1.959963984540054) < 1e-9);
    CHECK(fabs(normal_quantile(0.001) + 3.090232306167813) < 1e-9);
    CHECK(fabs(normal_quantile(0.5)) < 1e-12);
}

/* docs/synthetic-models.md tabulates the family at 10 %: neurons for 80 % of firings, share of the hottest half, share
 * with p > 1/2. */
static void test_rates(void)
{
    static const struct {
        double s, for_80, half, hot;
    } table[] = { { 0.2, 0.69, 0.64, 0 }, { 0.3, 0.62, 0.70, 0 }, { 0.65, 0.41, 0.87, 0.009 }, { 1.05, 0.26, 0.96, 0.04 } };
    enum { N = 14336 };
    static double p[N];
    struct err e;
    for (int i = 0; i < 4; i++) {
        struct describe d = { .h.n_ff = N, .rate = { 0.1 }, .spread = table[i].s };
        CHECK(describe_rates(&d, "x", p, &e) == 0);
        double sum = 0, half = 0, some = 0;
        int hot = 0, n_80 = 0;
        for (int k = 0; k < N; k++) {
            sum += p[k];
            half += k < N / 2 ? p[k] : 0;
            hot += p[k] > 0.5;
        }
        while (some < 0.8 * sum)
            some += p[n_80++];
        CHECK_MSG(fabs(sum / N - 0.1) < 1e-4 && fabs((double)n_80 / N - table[i].for_80) < 0.006 &&
                  fabs(half / sum - table[i].half) < 0.006 && fabs((double)hot / N - table[i].hot) < 0.006,
                  "s %g: rate %g, 80 %% from %g, half %g, hot %g", table[i].s, sum / N, (double)n_80 / N, half / sum,
                  (double)hot / N);
    }
    struct describe d = { .h.n_ff = 1000, .rate = { 0.2 }, .spread = -1, .n_points = 1, .point = { { 0.25, 0.75 } } };
    CHECK(describe_rates(&d, "x", p, &e) == 0 && fabs(p[0] - 0.6) < 1e-9 && fabs(p[249] - 0.6) < 1e-9 &&
          fabs(p[250] - 0.2 * 0.25 / 0.75) < 1e-9);
    d.point[0] = (struct describe_point){ 0.1, 0.75 };
    CHECK(describe_rates(&d, "x", p, &e) == ERR_FORMAT && strstr(e.msg, "more than once"));
}

/* Firings again at the next token: sum over neurons of the bivariate integral; experts: the sets that are kept. */
static void test_window(void)
{
    enum { N = 2000, TOKENS = 1500 };
    struct describe d = { .h = { .n_ff = N }, .rate = { 0.1 }, .spread = 0.65, .n_memory = 2,
                          .memory = { { 0.24, 8 }, { 0.56, 32 } } };
    static double p[N];
    struct inputs_steps s;
    struct err e;
    double fired = 0, again = 0, want = 0, r = 0.24 * (1 - 1 / 8.) + 0.56 * (1 - 1 / 32.);
    describe_rates(&d, "x", p, &e);
    for (int i = 0; i < N; i += 20)
        want += 20 * both_below(normal_quantile(p[i + 10]), normal_quantile(p[i + 10]), r);
    want /= 0.1 * N;
    CHECK(describe_window(&d, p, TOKENS, &s, &e) == 0 && s.n_steps == TOKENS);
    for (int t = 0; t + 1 < TOKENS; t++) {
        static char on[N];
        memset(on, 0, sizeof on);
        for (uint32_t i = s.start[t]; i < s.start[t + 1]; i++)
            on[s.at[i]] = 1;
        for (uint32_t i = s.start[t + 1]; i < s.start[t + 2]; i++)
            again += on[s.at[i]];
        fired += s.start[t + 1] - s.start[t];
    }
    CHECK_MSG(fabs(fired / (TOKENS - 1.0) / N - 0.1) < 0.002, "rate %g", fired / (TOKENS - 1.0) / N);
    CHECK_MSG(fabs(again / fired - want) < 0.02, "again %g, by the integral %g", again / fired, want);
    int ordered = 1;
    for (int t = 0; t < TOKENS; t++)
        for (uint32_t i = s.start[t] + 1; i < s.start[t + 1]; i++)
            ordered &= s.at[i] > s.at[i - 1] && s.at[i] < N;
    CHECK(ordered);
    inputs_steps_done(&s);

    d.h.n_experts = 8, d.h.n_experts_used = 2, d.expert_again = 0.6;
    int same = 0, use[8] = { 0 }, before[8] = { 0 };
    CHECK(describe_window(&d, p, TOKENS, &s, &e) == 0);
    for (int t = 0; t < TOKENS; t++) {
        int now[8] = { 0 }, n = 0;
        for (uint32_t i = s.start[t]; i < s.start[t + 1]; i++)
            now[s.at[i] / N] = 1;
        for (int b = 0; b < 8; b++) {
            n += now[b];
            use[b] += now[b];
            same += t && now[b] && before[b];
        }
        if (n != 2)
            ordered = 0;
        memcpy(before, now, sizeof now);
    }
    CHECK(ordered);
    CHECK_MSG(fabs(same / (2. * TOKENS) - 0.6) < 0.03, "experts again %g", same / (2. * TOKENS));
    for (int b = 0; b < 8; b++)
        CHECK_MSG(fabs(use[b] / (double)TOKENS - 0.25) < 0.06, "expert %d: %d of %d", b, use[b], TOKENS);
    inputs_steps_done(&s);
}

static void test_persistence(void)
{
    enum { N = 3000 };
    static double p[N];
    struct describe d = { .h = { .n_ff = N }, .rate = { 0.1 }, .spread = 0.65, .n_misses = 1, .miss = { { 0.5, 0.05 } } };
    struct inputs_steps s;
    struct err e = { 0 };
    double missed = 0;
    describe_rates(&d, "x", p, &e);
    CHECK(describe_persistence(&d, "x", p, &e) == 0 && d.n_memory == 2);
    CHECK(describe_window(&d, p, DESCRIBE_WINDOW, &s, &e) == 0 && describe_missed(&d, &s, 0.5, &missed, &e) == 0);
    CHECK_MSG(fabs(missed - 0.05) < 0.007, "%g missed, 0.05 wanted; period %g", missed, d.memory[1].period);
    inputs_steps_done(&s);
    d.n_memory = 0;
    d.miss[0].missed = 0.9;
    CHECK(describe_persistence(&d, "x.json", p, &e) == ERR_FORMAT && strstr(e.msg, "x.json") &&
          strstr(e.msg, "is possible"));
}

/* Equivalent layers are worked out once: the same tables as when each is worked out. */
static void test_equivalent(void)
{
    struct inputs in;
    struct hw hw = { .name = "none" };
    struct layout l;
    struct problem once, each;
    struct space_variant variant = { .mode = PLAN_EXACT };
    struct problem_request q = { .space.variants = &variant, .space.n_variants = 1, .policy = CACHE_LRU };
    struct err e;
    CHECK(describe_inputs("datasets/descriptions/small-relu.json", 2, &in, NULL, &e) == 0 && in.equivalent);
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 0, -1, &l, &e) == 0);
    CHECK(problem_prepare(&once, &in, &hw, &l, &q, NULL, &e) == 0);
    in.equivalent = 0;
    CHECK(problem_prepare(&each, &in, &hw, &l, &q, NULL, &e) == 0);
    int n = in.n_batches * in.n_layers, same = 1;
    for (int i = 0; i < n; i++) {
        same &= !memcmp(&once.tables.table[0][i], &each.tables.table[0][i], sizeof once.tables.table[0][i]);
        const struct residencies_list *a = &once.residencies.list[i], *b = &each.residencies.list[i];
        same &= a->n == b->n && a->n > 10;
        for (int k = 0; same && k < a->n; k++)
            same &= a->point[k].bytes == b->point[k].bytes && !(a->point[k].flow.reads > b->point[k].flow.reads) &&
                    !(a->point[k].flow.reads < b->point[k].flow.reads);
    }
    CHECK(n == 8 && same);
    hw = sample_hw(1, 2, 50000);
    struct limits lim = { .memory_bytes = 1u << 30, .context = 64, .max_batch = 2, .prefill_chunk = 1, .kv_type = KV_F16,
                                  .cores = { -1 } };
    CHECK_MSG(problem_fill(&once, &lim, &e) == 0 && problem_fill(&each, &lim, &e) == 0, "%s", e.msg);
    int curves = 0;
    CHECK(once.configs.sp.n_configs == each.configs.sp.n_configs);
    for (int c = 0; c < once.configs.sp.n_configs; c++) {
        const struct solve_config *a = &once.configs.sp.configs[c], *b = &each.configs.sp.configs[c];
        same &= a->bound == b->bound && a->fixed_ticks[0] == b->fixed_ticks[0] && !a->curves == !b->curves;
        for (int i = 0; i < n && same && a->curves; i++, curves++)
            same &= a->curves[i].n == b->curves[i].n && a->curves[i].n_hull == b->curves[i].n_hull &&
                    !memcmp(a->curves[i].point, b->curves[i].point, (size_t)a->curves[i].n * sizeof *a->curves[i].point);
    }
    CHECK(same && curves >= 2 * n);
    hw_free(&hw);
    problem_done(&once);
    problem_done(&each);
    inputs_done(&in);
}

int main(void)
{
    test_sample();
    test_normal();
    test_rates();
    test_window();
    test_persistence();
    test_equivalent();
    return test_done();
}
