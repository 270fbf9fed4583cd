/* Prediction against measurement with numbers known beforehand: what is exactly twice as slow has the factor 2. */
#include "planner/check/calibrate.h"
#include "planner/cost/cost.h"
#include "tests/plan_sample.h"
#include "tests/telemetry_sample.h"
#include "tests/test.h"

#include <math.h>

static struct plan p;
static struct err e;

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)) + 1e-12;
}

/* Three layers: storage bound, compute bound, memory bound. */
static void fill(void)
{
    const struct plan_layer_figures f[3] = {
        { .attention_ns = 1e6, .ffn_compute_ns = 2e6, .ffn_memory_ns = 1e6, .io_ns = 5e6, .exposed_ns = 1e5 },
        { .attention_ns = 1e6, .ffn_compute_ns = 4e6, .ffn_memory_ns = 1e6, .io_ns = 3e6, .exposed_ns = 1e5 },
        { .attention_ns = 2e6, .ffn_compute_ns = 1e6, .ffn_memory_ns = 3e6 },
    };
    plan_sample(&p);
    for (int i = 0; i < p.n_limits; i++) {
        p.limits[i].mode = PLAN_EXACT;
        struct plan_figures *g = &p.limits[i].batches[0].predicted;
        for (int k = 0; k < 3; k++) {
            g->layers[k] = f[k];
            g->layers[k].total_ns = cost_layer_ns(&f[k]);
        }
        g->head_ns = 5e5;
        g->step_ns = 0.5e6 + 4e6 + 9e6 + 3e6 + 2e5; /* head, attention, FFN, 5 - 2 of I/O, exposed */
        g->tokens_per_s = 1e9 / g->step_ns;
        g->read_bytes = 1e6;
        g->hit_rate = 0.5;
    }
}

/* Ten tokens exactly as predicted under the first limit. */
static struct sample_summary as_predicted(void)
{
    return (struct sample_summary){ .model = "sample \\\"quoted\\\" \\\\ name", .memory_bytes = 1000000, .threads = 3,
                                    .tokens = 10, .prompt = 20, .valid = 1, .predicted_tokens_per_s = 1e3 / 16.7,
                                    .ms = 167, .attention_ms = 40, .ffn_ms = 90 + 32, .stall_ms = 32, .head_ms = 5,
                                    .read_bytes = 10000000, .reads = 100, .lookups = 200, .hit_rate = 0.5 };
}

static int compare(const struct sample_summary *s, int n, const struct hw *hw, struct calibrate *c)
{
    struct telemetry t = { 0 };
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    for (int i = 0; i < n; i++)
        sample_summary_print(f, &s[i]);
    fclose(f);
    memset(&e, 0, sizeof e);
    int r = telemetry_parse(text, len, "t.jsonl", &t, &e);
    if (r == 0)
        r = calibrate_compare(&p, "p.json", hw, NULL, &t, NULL, c, &e);
    telemetry_done(&t);
    free(text);
    return r;
}

static void test_equal(void)
{
    struct calibrate c = { 0 };
    struct sample_summary s = as_predicted();
    CHECK_MSG(compare(&s, 1, NULL, &c) == 0 && c.runs == 1 && c.skipped == 0, "%s", e.msg);
    CHECK(c.limits[0].runs == 1 && c.limits[1].runs == 0);
    for (int t = 0; t < CALIBRATE_TERMS; t++)
        if (t != CALIBRATE_PREDICT && t != CALIBRATE_REST)
            CHECK_MSG(c.ratio_n[t] == 1 && near(c.ratio[t].p50, 1), "%s %g", calibrate_term_names[t], c.ratio[t].p50);
    CHECK(c.ratio_n[CALIBRATE_PREDICT] == 0 && near(c.limits[0].measured[CALIBRATE_REST].p50, 0));
    CHECK(near(c.factor[HW_ATTENTION].p50, 1) && near(c.factor[HW_FFN].p50, 1) && near(c.factor[HW_IO].p50, 1));
    CHECK(near(c.limits[0].predicted[CALIBRATE_WAIT], 3.2e6) && near(c.limits[0].predicted[CALIBRATE_FFN], 9e6));
    calibrate_done(&c);
}

/* One term at a time. */
static void test_twice(void)
{
    struct calibrate c = { 0 };
    struct sample_summary s = as_predicted();
    s.attention_ms *= 2, s.ms += 40;
    CHECK(compare(&s, 1, NULL, &c) == 0 && near(c.factor[HW_ATTENTION].p50, 2) && near(c.factor[HW_FFN].p50, 1) &&
          near(c.factor[HW_HEAD].p50, 1) && near(c.factor[HW_IO].p50, 1));
    calibrate_done(&c);
    s = as_predicted();
    s.head_ms *= 2, s.ms += 5;
    CHECK(compare(&s, 1, NULL, &c) == 0 && near(c.factor[HW_HEAD].p50, 2) && near(c.factor[HW_ATTENTION].p50, 1));
    calibrate_done(&c);
    /* Storage: layers wait 10 - 2, 6 - 4, 0 and twice as long for the last read, 2 x 0.2. */
    s = as_predicted();
    s.stall_ms = 10 * (8 + 2 + 0.4), s.ffn_ms = 90 + s.stall_ms;
    CHECK(compare(&s, 1, NULL, &c) == 0 && near(c.factor[HW_IO].p50, 2) && near(c.factor[HW_FFN].p50, 1));
    CHECK(near(c.ratio[CALIBRATE_WAIT].p50, 10.4 / 3.2));
    calibrate_done(&c);
    /* The FFN's work: it hides more, 5 - 4 and 0 are left to wait for. */
    s = as_predicted();
    s.stall_ms = 10 * (1 + 0.2), s.ffn_ms = 180 + s.stall_ms;
    CHECK(compare(&s, 1, NULL, &c) == 0 && near(c.factor[HW_FFN].p50, 2) && near(c.factor[HW_IO].p50, 1));
    calibrate_done(&c);
    /* No wait to speak of: nothing is learnt of storage. */
    s = as_predicted();
    s.stall_ms = 0.1;
    CHECK(compare(&s, 1, NULL, &c) == 0 && c.factor_n[HW_IO] == 0 && c.factor_n[HW_FFN] == 1);
    calibrate_done(&c);
    /* Nor where waits for predictors are among them. */
    p.limits[0].predictor_buffers = 2;
    s = as_predicted();
    CHECK(compare(&s, 1, NULL, &c) == 0 && c.factor_n[HW_IO] == 0 && c.factor_n[HW_FFN] == 1);
    p.limits[0].predictor_buffers = 0;
    calibrate_done(&c);
    /* Figures that are corrected already: factors are over the raw ones. */
    struct hw hw = { .calibration = 1, .correction = { [HW_ATTENTION] = 1.5 } };
    s = as_predicted();
    s.attention_ms *= 2;
    CHECK(compare(&s, 1, &hw, &c) == 0 && near(c.factor[HW_ATTENTION].p50, 3) && near(c.ratio[CALIBRATE_ATTENTION].p50, 2));
    calibrate_done(&c);
}

/* Medians over runs, of several limits. */
static void test_many(void)
{
    struct calibrate c = { 0 };
    struct sample_summary s[5];
    for (int i = 0; i < 5; i++) {
        s[i] = as_predicted();
        s[i].memory_bytes = i < 3 ? 1000000 : 2500000; /* more than the second limit: it runs as that */
        s[i].attention_ms *= i == 0 ? 100 : i;
    }
    CHECK(compare(s, 5, NULL, &c) == 0 && c.runs == 5 && c.limits[0].runs == 3 && c.limits[1].runs == 2);
    CHECK(near(c.factor[HW_ATTENTION].p50, 3) && c.factor_n[HW_ATTENTION] == 5); /* 1 2 3 4 100 */
    CHECK(near(c.limits[0].measured[CALIBRATE_ATTENTION].p50, 8e6) && near(c.limits[1].measured[CALIBRATE_ATTENTION].p50,
                                                                           14e6));
    calibrate_done(&c);
}

/* Predictors that look ahead: reads hide behind attention too, the first layer waits 5 - 1 - 2. */
static void test_lookahead(void)
{
    struct plan_limit *l = &p.limits[1];
    struct plan_layer_figures *f = &l->batches[0].predicted.layers[0];
    double predicted[CALIBRATE_TERMS];
    l->mode = PLAN_PREDICTED;
    for (int k = 0; k < 3; k++)
        l->predictor[k] = k ? PREDICT_FFN : PREDICT_BLOCK;
    f->total_ns = cost_lookahead_ns(f);
    calibrate_predicted(&p, l, predicted);
    CHECK(near(predicted[CALIBRATE_WAIT], 2e6 + 2e5));
    CHECK(near(calibrate_io_factor(l, 3, 1, 2e6 + 2e5), 1) && near(calibrate_io_factor(l, 3, 1, 7e6 + 2e6 + 4e5), 2));
    l->mode = PLAN_EXACT;
    f->total_ns = cost_layer_ns(f);
}

static void test_refused(void)
{
    struct calibrate c = { 0 };
    struct sample_summary s[2] = { as_predicted(), as_predicted() };
    s[0].model = "another";
    CHECK(compare(s, 1, NULL, &c) == ERR_MISMATCH && strstr(e.msg, "another") && strstr(e.msg, "line 3"));
    s[0] = as_predicted();
    s[0].predicted_tokens_per_s *= 1.01;
    CHECK(compare(s, 1, NULL, &c) == ERR_MISMATCH && strstr(e.msg, "another plan"));
    s[0] = as_predicted();
    s[0].valid = 0;
    CHECK(compare(s, 1, NULL, &c) == ERR_MISMATCH && strstr(e.msg, "less memory"));
    CHECK(compare(s, 2, NULL, &c) == 0 && c.runs == 1 && c.skipped == 1 && c.why.n == 1);
    calibrate_done(&c);
    s[0] = as_predicted();
    s[0].threads = 2;
    s[1].memory_bytes = 500000;
    CHECK(compare(s, 2, NULL, &c) == ERR_MISMATCH);
    s[0].tokens = 0;
    CHECK(compare(s, 1, NULL, &c) == ERR_MISMATCH && strstr(e.msg, "none made a token"));
}

int main(void)
{
    fill();
    test_equal();
    test_twice();
    test_many();
    test_lookahead();
    test_refused();
    plan_done(&p);
    return test_done();
}
