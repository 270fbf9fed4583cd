/* Predicted mode in the planner: what is predicted, its price by hand, plans against exhaustive search, check. */
#include "common/base/cpu.h"
#include "planner/check/check.h"
#include "planner/heap.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_quality.h"
#include "planner/planning/variants.h"
#include "planner/report/explain.h"
#include "planner/solve/solve_z3.h"
#include "tests/planning_sample.h"
#include "tests/solve_exhaustive.h"
#include "tests/test.h"

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

static int within(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

static struct request request(uint64_t memory)
{
    struct request q;
    request_init(&q);
    q.memory[0] = memory;
    q.n_memory = 1;
    q.context = 64;
    q.mode = PLAN_PREDICTED;
    return q;
}

static void test_points(void)
{
    struct inputs_predictor x = { .n_points = 4, .point = { { 0.9, 0.3 }, { 0.99, 0.5 }, { 0.95, 0.4 }, { 0.96, 0.38 } } };
    CHECK(near(predicted_point(&x, 0.95)->density, 0.38)); /* cheaper and better than the one at 0.95 */
    CHECK(near(predicted_point(&x, 0.97)->density, 0.5) && near(predicted_point(&x, 0.5)->density, 0.3));
    CHECK(near(predicted_point(&x, 0.999)->recall, 0.99)); /* the best there is */
}

/* Expected numbers against the drawn lists, and both against what the predictor was said to do. */
static void test_foretold(int blocks)
{
    struct inputs in = sample_inputs(2, 256, 512, blocks, 1);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    struct predicted *f;
    signed char input[2] = { PREDICT_FFN, -1 };
    uint32_t always[2] = { 64, 0 };
    in.window_tokens = 4096;
    sample_predictors(&in, PREDICT_FFN, 32, 0.5);
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    CHECK_MSG(predicted_new(&in, &s, 0.95, NULL, input, always, &f, &e) == 0, "%s", e.msg);
    CHECK(f->predictors.bytes == 4096u * (unsigned)blocks && f->predictors.rank == 32);

    /* Without always computed neurons the predictor's density comes back, by construction, from firings and false positives. */
    double all = inputs_active(&in, 0, 0, 0), none = predicted_neurons(f, 0, 0, 64);
    double top = all - inputs_active(&in, 0, 0, 64);
    CHECK(within(predicted_active(f, &in, 0, 0, 0), top + 0.95 * (all - top), 1e-9));
    CHECK(near(predicted_neurons(f, 0, 0, 0) - none, 64.0 * in.n_used)); /* always computed: computed by every step */
    struct predicted *g;
    uint32_t zero[2] = { 0, 0 };
    CHECK(predicted_new(&in, &s, 0.95, NULL, input, zero, &g, &e) == 0);
    CHECK_MSG(within(predicted_neurons(g, 0, 0, 0), all * 1.45, 1e-6), "%g of %g", predicted_neurons(g, 0, 0, 0),
              all * 1.45);
    predicted_free(g);
    sample_predictors(&in, PREDICT_FFN, 32, 4); /* so many that the hottest are predicted always */
    CHECK(predicted_new(&in, &s, 0.95, NULL, input, zero, &g, &e) == 0);
    CHECK_MSG(blocks > 1 || within(predicted_neurons(g, 0, 0, 0), all * 4.95, 1e-6), "%g of %g",
              predicted_neurons(g, 0, 0, 0), all * 4.95);
    predicted_free(g);
    sample_predictors(&in, PREDICT_FFN, 32, 0.5);

    struct inputs_steps fired, told, open;
    CHECK(in.steps(&in, 0, 4096, &fired, &e) == 0 && in.steps(&in, 0, 4096, &told, &e) == 0 &&
          in.steps(&in, 0, 4096, &open, &e) == 0);
    CHECK(predicted_steps(f, &in, 0, 0, NULL, &told, &e) == 0 && predicted_steps(f, &in, 0, 1, NULL, &open, &e) == 0);
    double n = 4096, tail = 0, kept = 0;
    int wrong = 0, missing = 0;
    for (int t = 0; t < fired.n_steps; t++) {
        uint32_t i = fired.start[t];
        for (uint32_t j = told.start[t]; j < told.start[t + 1]; j++) {
            wrong += j > told.start[t] && told.at[j] <= told.at[j - 1];
            tail += told.at[j] % 512 >= 64;
        }
        for (uint32_t j = open.start[t]; j < open.start[t + 1]; j++, i++) {
            while (i < fired.start[t + 1] && fired.at[i] < open.at[j])
                missing += fired.at[i++] % 512 < 64; /* an always computed neuron that fires is always computed */
            wrong += i >= fired.start[t + 1] || fired.at[i] != open.at[j];
        }
        kept += open.start[t + 1] - open.start[t];
    }
    CHECK(wrong == 0 && missing == 0);
    CHECK_MSG(within(tail / n, none, 0.02), "%g drawn, %g expected", tail / n, none);
    CHECK_MSG(within(kept / n, predicted_active(f, &in, 0, 0, 0), 0.02), "%g kept, %g expected", kept / n,
              predicted_active(f, &in, 0, 0, 0));
    inputs_steps_done(&fired);
    inputs_steps_done(&told);
    inputs_steps_done(&open);
    predicted_free(f);
    input[1] = PREDICT_BLOCK;
    CHECK(predicted_new(&in, &s, 0.95, NULL, input, zero, &f, &e) == ERR_UNSUPPORTED && strstr(e.msg, "block"));
    inputs_done(&in);
}

static int same_lists(const struct inputs_steps *a, const struct inputs_steps *b)
{
    return a->n_steps == b->n_steps && !memcmp(a->start, b->start, ((size_t)a->n_steps + 1) * sizeof *a->start) &&
           !memcmp(a->at, b->at, a->start[a->n_steps] * sizeof *a->at);
}

/* Lists are the same whatever tier of the processor makes them, and whether or not they and what they follow from were
 * kept; n_ff: whole words of neurons and not. */
static void test_lists_same(int n_ff, int blocks)
{
    struct inputs in = sample_inputs(1, 256, n_ff, blocks, 1);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    struct predicted *f[3];
    struct inputs_steps told[4];
    signed char input[1] = { PREDICT_FFN };
    uint32_t always[1] = { 64 };
    in.window_tokens = 300;
    sample_predictors(&in, PREDICT_FFN, 32, 0.5);
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, n_ff, &s, &e) == 0);
    uint32_t least = predicted_always(&in, &s.kind[0], PREDICT_FFN, 0, 0.95);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            CHECK(inputs_memoise(&in, &e) == 0);
        CHECK_MSG(predicted_new(&in, &s, 0.95, NULL, input, always, &f[i], &e) == 0, "%s", e.msg);
        CHECK(!memcmp(f[0]->neurons, f[i]->neurons, ((size_t)n_ff + 1) * sizeof *f[i]->neurons));
        CHECK(!memcmp(f[0]->block, f[i]->block, (size_t)blocks * sizeof *f[i]->block));
        CHECK(predicted_always(&in, &s.kind[0], PREDICT_FFN, 0, 0.95) == least);
    }
    for (int firing_only = 0; firing_only < 2; firing_only++) {
        struct list_cache *lists = in.lists;
        for (int i = 0; i < 4; i++) {
            in.lists = i < 2 ? NULL : lists; /* the third time they are made and kept, the fourth read */
            f[0]->cpus = i == 0 ? 1u << CPU_SCALAR : cpu_detect();
            CHECK(in.steps(&in, 0, 300, &told[i], &e) == 0);
            CHECK_MSG(predicted_steps(f[0], &in, 0, firing_only, NULL, &told[i], &e) == 0, "%s", e.msg);
            CHECK_MSG(same_lists(&told[0], &told[i]), "lists of %d neurons, %d", n_ff, i);
        }
        in.lists = lists;
        CHECK(told[0].start[300] > 300); /* there are any */
        for (int i = 0; i < 4; i++)
            inputs_steps_done(&told[i]);
    }
    for (int i = 0; i < 3; i++)
        predicted_free(f[i]);
    inputs_done(&in);
}

/* Neurons that fire nearly always are always computed: here the first 100 do, of which one whole cluster. */
static void test_exempt(void)
{
    struct inputs in = sample_inputs(1, 256, 512, 1, 1);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    for (int p = 0; p < 512; p++)
        in.curves[0].cum[p + 1] = in.curves[0].cum[p] + (p < 100 ? 0.97 : 0.1);
    sample_predictors(&in, PREDICT_FFN, 32, 0.05); /* score row 64 bytes, gate row 512: from 0.875 on */
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    CHECK(predicted_always(&in, &s.kind[0], PREDICT_FFN, 0, 0.95) == 64);
    CHECK(predicted_always(&in, &s.kind[0], PREDICT_FFN, 0, 0.8) == 0); /* predicted too seldom at that point */
    inputs_done(&in);
}

/* A layer priced by hand. */
static void test_layer(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    struct notes notes = { 0 };
    struct predicted *f;
    struct cost_rates r;
    struct cost_layer cl;
    signed char input[2] = { PREDICT_FFN, PREDICT_BLOCK };
    uint32_t always[2] = { 64, 0 };
    sample_predictors(&in, PREDICT_FFN, 32, 0.5);
    sample_predictors(&in, PREDICT_BLOCK, 64, 1);
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    CHECK(predicted_new(&in, &s, 0.95, NULL, input, always, &f, &e) == 0);
    struct cost_choice c = { .mode = PLAN_PREDICTED, .predicted = f, .n_classes = 1, .n = { 1 }, .threads = 1,
                             .backend = HW_URING, .depth = 8, .lanes = 1, .context = 200 };
    CHECK(cost_rates_of(&hw, &in, &s.kind[0], &c, 1, &r, &notes, &e) == 0);
    cost_layer_of(&hw, &in, &s.kind[0], &c, &r, 0, 0, &cl, &notes);
    /* 32 rows of 512 bytes and 448 of 64 bytes; a row takes 30 ns at 256 elements and, as measured there alone, in
     * proportion to its length. */
    double score_ns = hw_row_ns(&hw, &(struct hw_rows){ .kernel = "rows/f16/f32", .row_len = 32, .batch = 1,
                                                        .threads = 1 }, HW_TYPICAL);
    CHECK(near(cl.predict_ns, fmax(32 * 30 + 448 * score_ns, (32 * 512 + 448 * 64) / 20.0)));
    double told = predicted_neurons(f, 0, 0, 64), active = predicted_active(f, &in, 0, 0, 0);
    CHECK(near(cl.compute_ns, 64 * 30 + told * 30 + active * 75) && near(cl.active, active) && !cl.lookahead);
    CHECK(near(cl.memory_ns, 64 * 512 / 20.0 + (told * 512 + active * 1024) / 8.0));
    /* Nothing cached, one cluster of 64 resident: each unit beyond it with a predicted neuron is a read. A bundle of 1536
     * bytes has two neurons to a unit of 4 KiB. */
    struct cost_residency k = { .hot = { 64, 0 } };
    struct cost_flow w = cost_flow_of(&in, &s.kind[0], &c, 0, 0, NULL, &k);
    double units = 0;
    for (int i = 64; i < 512; i += 2) {
        double a = predicted_neurons(f, 0, 0, (uint32_t)i) - predicted_neurons(f, 0, 0, (uint32_t)i + 1);
        double b = predicted_neurons(f, 0, 0, (uint32_t)i + 1) - (i + 2 < 512 ? predicted_neurons(f, 0, 0,
                                                                                               (uint32_t)i + 2) : 0);
        units += 1 - (1 - a) * (1 - b);
    }
    CHECK(s.kind[0].part[0].neurons_per_unit == 2);
    CHECK_MSG(near(w.reads, units) && near(w.lookups, units) && w.stream_bytes == 0, "%g reads, %g units", w.reads,
              units);
    struct plan_layer_figures g = cost_figures(&c, &r, &cl, &w);
    CHECK(near(g.total_ns, g.attention_ns + g.predict_ns + fmax(g.io_ns, fmax(g.ffn_compute_ns, g.ffn_memory_ns)) +
                               g.exposed_ns));
    /* The other layer looks ahead: its reads have its attention as well. */
    cost_layer_of(&hw, &in, &s.kind[0], &c, &r, 0, 1, &cl, &notes);
    w = cost_flow_of(&in, &s.kind[0], &c, 0, 1, NULL, &k);
    g = cost_figures(&c, &r, &cl, &w);
    CHECK(cl.lookahead && near(g.total_ns, g.predict_ns + fmax(g.io_ns, g.attention_ns + fmax(g.ffn_compute_ns,
                                                                                             g.ffn_memory_ns)) +
                                               g.exposed_ns));
    /* Two phases: gate pages of what is predicted, the rest of what fires besides. */
    CHECK(inputs_layout(&in, LAYOUT_TWO_PHASE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    predicted_free(f);
    CHECK(predicted_new(&in, &s, 0.95, NULL, input, always, &f, &e) == 0);
    c.predicted = f;
    w = cost_flow_of(&in, &s.kind[0], &c, 0, 0, NULL, &(struct cost_residency){ .hot = { 0, 512 } });
    CHECK(near(w.single_reads, predicted_units(f, &s.kind[0], 0, 0, 0)) && w.reads == 0 && w.single_reads > 50);
    w = cost_flow_of(&in, &s.kind[0], &c, 0, 0, NULL, &(struct cost_residency){ .hot = { 512, 64 } });
    CHECK(w.single_reads == 0 && near(w.reads, predicted_active(f, &in, 0, 0, 64)));
    predicted_free(f);
    inputs_done(&in);
    hw_free(&hw);
}

static int prepare_lru(struct problem *p, const struct inputs *in, const struct hw *hw, const struct layout *l,
                       const struct variants *variants, struct notes *notes, struct err *e)
{
    struct problem_request q = { .space.variants = variants->variant, .space.n_variants = variants->n, .policy = CACHE_LRU };
    return problem_prepare(p, in, hw, l, &q, notes, e);
}

/* The problem of a request, solved three ways. */
static void test_exhaustive(void)
{
    int bad = 0, equal = 0, n = 0, streamed = 0;
    for (int i = 0; i < 16; i++) {
        sample_state = (uint64_t)i + 31;
        struct inputs in = sample_inputs(2, 256, 128, i % 4 == 3 ? 4 : 1, i % 3 == 2 ? 2 : 1);
        struct hw hw = sample_hw(1, 2, 10000 + 90000 * sample_uniform());
        struct request q = request(0);
        struct problem p;
        struct variants variants;
        struct layout l;
        struct err e = { 0 };
        struct notes notes = { 0 };
        struct solve_result z, x;
        uint64_t floor_bytes;
        sample_predictors(&in, PREDICT_FFN, 32, 0.3);
        if (i % 2)
            sample_predictors(&in, PREDICT_BLOCK, 32, 0.8);
        for (int k = 0; k < PREDICT_INPUTS * in.n_layers * in.n_blocks && i >= 8; k++)
            in.predictors[k].bytes *= 32; /* enough to be worth streaming */
        CHECK_MSG(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0, "%s", e.msg);
        struct limits lim = { .memory_bytes = floor_bytes + (uint64_t)(300000 * sample_uniform()),
                                      .context = 64, .max_batch = inputs_batch_sizes[in.n_batches - 1],
                                      .prefill_chunk = 1, .kv_type = KV_F16, .cores = { -1, -1 } };
        if (inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) < 0 || variants_new(&q, &in, &l, &variants, &e) < 0 ||
            prepare_lru(&p, &in, &hw, &l, &variants, &notes, &e) < 0 ||
            problem_fill(&p, &lim, &e) < 0 || solve_z3(&p.configs.sp, 0, 1, &z, &e) < 0 ||
            solve_exhaustive(&p.configs.sp, &x, &e) < 0) {
            printf("# %s\n", e.msg);
            bad++;
            break;
        }
        CHECK(variants.n == 1 + i % 2);
        for (int b = 0; z.feasible && b < in.n_batches; b++)
            for (int k = 0; k < in.n_layers; k++)
                streamed += problem_chosen(&p, &z, b, k).streamed;
        bad += z.feasible != x.feasible || (z.feasible && (z.bound > x.objective || x.objective > z.objective ||
                                                           (double)z.objective > (double)x.objective * 1.02));
        equal += z.feasible == x.feasible && (!z.feasible || z.objective == x.objective);
        n++;
        solve_result_done(&z);
        solve_result_done(&x);
        variants_done(&variants);
        problem_done(&p);
        inputs_done(&in);
        hw_free(&hw);
    }
    printf("# %d of %d equal to exhaustive search to the tick\n", equal, n);
    printf("# %d times a layer's predictors are streamed\n", streamed);
    CHECK(bad == 0 && n == 16 && equal >= n / 2 && streamed > 0);
}

/* Between the floors with predictors streamed and with all of them in memory there is a plan, which check accepts. */
static void test_streamed(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(0);
    struct notes notes = { 0 };
    struct plan p;
    struct err e = { 0 };
    uint64_t low;
    sample_predictors(&in, PREDICT_FFN, 32, 0.3);
    for (int k = 0; k < in.n_layers; k++)
        inputs_predictor_at(&in, PREDICT_FFN, k, 0)->bytes = 1 << 20;
    CHECK_MSG(planning_floor(&q, &in, &hw, &low, &e) == 0, "%s", e.msg);
    q.form = LAYOUT_BUNDLE;
    q.memory[0] = low + (1 << 20);
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    if (e.code)
        return;
    const struct plan_limit *l = &p.limits[0];
    CHECK(l->predictor_buffers >= 2 && l->batches[0].streamed[0] + l->batches[0].streamed[1] >= 1);
    CHECK_MSG(check_plan(&p, "p", &in, &hw, &notes, &e) == 0, "%s", e.msg);
    CHECK(l->batches[0].predicted.read_bytes >= (1 << 20)); /* read in every step */
    l->batches[0].streamed[0] ^= 1;
    CHECK(check_plan(&p, "p", &in, &hw, &notes, &e) < 0);
    plan_done(&p);
    q.memory[0] = low - 1;
    CHECK(planning_make(&q, &in, &hw, &notes, &p, &e) == ERR_INFEASIBLE && strstr(e.msg, "floor"));
    q.memory[0] = low + (8 << 20);
    e = (struct err){ 0 };
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    CHECK(e.code || !p.limits[0].predictor_buffers); /* enough for all */
    if (!e.code)
        plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

/* What is in memory is always computed: the same residencies, more neurons, less of streamed predictors, and check derives it. */
static void test_resident(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(0);
    struct notes notes = { 0 };
    struct plan p[2];
    struct err e = { 0 };
    uint64_t low, row = predict_row2_bytes(QUANT_F16, 32), fewer = 0;
    sample_predictors(&in, PREDICT_FFN, 32, 0.3);
    for (int k = 0; k < in.n_layers; k++)
        inputs_predictor_at(&in, PREDICT_FFN, k, 0)->bytes = 1 << 20;
    CHECK_MSG(planning_floor(&q, &in, &hw, &low, &e) == 0, "%s", e.msg);
    q.form = LAYOUT_BUNDLE;
    q.memory[0] = low + (900 << 10);
    for (q.always_resident = 0; q.always_resident < 2; q.always_resident++) {
        CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p[q.always_resident], &e) == 0, "%s", e.msg);
        if (e.code)
            return;
        CHECK_MSG(check_plan(&p[q.always_resident], "p", &in, &hw, &notes, &e) == 0, "%s", e.msg);
    }
    const struct plan_limit *a = &p[0].limits[0], *b = &p[1].limits[0];
    int more = 0;
    for (int k = 0; k < in.n_layers; k++) {
        uint32_t hot = plan_hot(&p[1], &b->batches[0], k, 0, 0);
        CHECK(hot == plan_hot(&p[0], &a->batches[0], k, 0, 0) && a->batches[0].streamed[k] == b->batches[0].streamed[k]);
        CHECK(b->always[k] == (hot > a->always[k] ? hot : a->always[k]));
        more += b->always[k] > a->always[k];
        fewer += b->batches[0].streamed[k] ? (b->always[k] - a->always[k]) * row : 0;
    }
    CHECK_MSG(more > 0 && fewer > 0 && row == 64, "prefixes %u, %u; always %u, %u; streamed %d, %d; row %llu",
              plan_hot(&p[1], &b->batches[0], 0, 0, 0), plan_hot(&p[1], &b->batches[0], 1, 0, 0), b->always[0], b->always[1],
              b->batches[0].streamed[0], b->batches[0].streamed[1], (unsigned long long)row);
    CHECK_MSG(near(a->batches[0].predicted.read_bytes - b->batches[0].predicted.read_bytes, (double)fewer), "%g and %g, %llu fewer",
              a->batches[0].predicted.read_bytes, b->batches[0].predicted.read_bytes, (unsigned long long)fewer);
    CHECK(p[1].request.always_resident == 1 && p[0].request.always_resident == 0);
    plan_done(&p[0]);
    plan_done(&p[1]);
    inputs_done(&in);
    hw_free(&hw);
}

/* A budget of quality: recalls by layer, within it, more of it where a nat saves more reads; what is in memory costs nothing of it. */
static void test_budget(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(0);
    struct notes notes = { 0 };
    struct plan p;
    struct err e = { 0 };
    uint64_t low;
    struct layout l;
    struct layout_shapes s;
    const signed char input[4] = { PREDICT_FFN, PREDICT_FFN, PREDICT_FFN, PREDICT_FFN };
    const uint32_t quarter[4] = { 128, 128, 128, 128 };
    double recalls[4];
    sample_predictors(&in, PREDICT_FFN, 32, 0.1);
    in.n_loss_targets = 2;
    in.loss_target[0] = 0.8, in.loss_target[1] = 0.95;
    in.loss = calloc((size_t)(PREDICT_INPUTS * in.n_layers), sizeof *in.loss);
    for (int k = 0; k < in.n_layers; k++) {
        struct inputs_loss *x = &in.loss[PREDICT_FFN * in.n_layers + k];
        *x = (struct inputs_loss){ .known = 1, .kl_per_energy = k == 2 ? 0.1 : 0.001 }; /* layer 2 is dear */
        for (int i = 0; i < INPUTS_PARTS; i++)
            x->energy[0][i] = 1, x->energy[1][i] = 0.25f;
    }
    in.n_quality = 2;
    in.quality[0] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.8, .kl_mean = 16 * 0.103 };
    in.quality[1] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.95, .kl_mean = 4 * 0.103 };
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    /* Three quarters of each layer are predicted: all at 0.8 lose 1.236, all at 0.95 0.309. A cheap layer's step costs 0.009. */
    static const double budgets[] = { 1.24, 1, 0.319, 0.3 };
    static const int at_low[] = { 4, 3, 1, 0 };
    for (int i = 0; i < 4; i++) {
        int kept = planning_quality_recalls(&in, &s, input, quarter, quarter, budgets[i], recalls, &e), low_ones = 0;
        for (int k = 0; k < 4 && kept == 1; k++)
            low_ones += recalls[k] < 0.9;
        CHECK_MSG(kept == (i < 3) && low_ones == at_low[i] && (i != 1 || recalls[2] > 0.9), "%d: %d, %d low ones", i, kept, low_ones);
    }
    for (int i = 0; i < 2; i++) { /* layers do not add up: by the worst row of the table */
        in.quality[0].kl_mean *= 2;
        CHECK(near(planning_quality_kl(&in, input, quarter, 0.95, NULL), (i + 1) * 2 * 0.309));
    }
    in.quality[0].kl_mean /= 4;
    CHECK_MSG(planning_floor(&q, &in, &hw, &low, &e) == 0, "%s", e.msg);
    q.form = LAYOUT_BUNDLE;
    q.always_resident = 1;
    q.memory[0] = low + (1900 << 10);
    for (int i = 0; i < 2; i++) {
        q.max_kl = i ? 0.42 : 100; /* all at 0.95 without any in memory: 0.412 */
        if (planning_make(&q, &in, &hw, &notes, &p, &e) < 0) {
            CHECK_MSG(0, "%g: %s", q.max_kl, e.msg);
            break;
        }
        const struct plan_limit *m = &p.limits[0];
        double kl = planning_quality_kl(&in, m->predictor, m->always, m->recall, plan_recalls(m)), by_hand = 0;
        uint32_t all = 0;
        for (int k = 0; k < in.n_layers; k++) {
            by_hand += 16 * (1 - m->always[k] / 512.0) * (k == 2 ? 0.1 : 0.001) * (m->by_layer && m->recalls[k] > 0.9 ? 0.25 : 1);
            all += m->always[k];
            CHECK(m->by_layer && (m->always[k] == 512 ? m->recalls[k] >= 1 : m->recalls[k] < 0.96) && m->recalls[k] >= m->recall);
        }
        CHECK_MSG(all > 0 && near(kl, by_hand) && kl <= q.max_kl, "%u; %g, by hand %g, of %g", all, kl, by_hand, q.max_kl);
        CHECK_MSG(check_plan(&p, "p", &in, &hw, &notes, &e) == 0, "%s", e.msg);
        plan_done(&p);
    }
    inputs_done(&in);
    hw_free(&hw);
}

/* Which recall a limit on quality leaves, and what auto makes of it. */
static void test_quality(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct request q = request(0);
    struct layout l;
    struct variants w;
    struct err e = { 0 };
    sample_predictors(&in, PREDICT_FFN, 32, 0.1);
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0);
    q.max_kl = 0.01;
    CHECK(variants_new(&q, &in, &l, &w, &e) == ERR_UNSUPPORTED && strstr(e.msg, "not measured"));
    in.n_quality = 3;
    in.quality[0] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.8, .kl_mean = 0.5 };
    in.quality[1] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.9, .kl_mean = 0.009 };
    in.quality[2] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.95, .kl_mean = 0.002 };
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 1 && near(w.variant[0].recall, 0.9));
    variants_done(&w);
    q.recall = 0.93; /* as good as what was measured at 0.9 at least */
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 1 && near(w.variant[0].recall, 0.93));
    variants_done(&w);
    q.recall = 0.85;
    CHECK(variants_new(&q, &in, &l, &w, &e) == ERR_INFEASIBLE && strstr(e.msg, "0.5"));
    q.recall = 0;
    q.mode = -1;
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 2 && w.variant[0].mode == PLAN_EXACT);
    variants_done(&w);
    q.max_kl = 0.001;
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 1);
    variants_done(&w);
    q.max_kl = -1;
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 1);
    variants_done(&w);
    inputs_done(&in);
}

/* Packed units: a read covers as many blocks as it touches. 6912 bytes at every offset that occurs in 4096: at 0, 256 ..
 * 1280 two blocks do, at 1536 .. 3840 three. */
static void test_packed(void)
{
    struct layout l = { .form = LAYOUT_BUNDLE, .packed = 1, .block_bytes = 4096, .cluster_neurons = 64,
                        .n_kinds = 1, .type = { { QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0 } } };
    struct layout_shapes s;
    struct err e = { 0 };
    CHECK(layout_derive(&l, 4096, 4096, &s, &e) == 0 && s.kind[0].part[0].unit_bytes == 6912);
    CHECK(near(cost_read_bytes(&s.kind[0], 0), (6 * 8192 + 10 * 12288) / 16.0));
    l.packed = 0;
    CHECK(layout_derive(&l, 4096, 4096, &s, &e) == 0 && near(cost_read_bytes(&s.kind[0], 0), 8192));

    /* Asked for, the plan has it; left open, of equals it takes the smaller file: with all resident nothing is read. */
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q = request(UINT64_C(1) << 30);
    struct notes notes = { 0 };
    struct plan p;
    q.mode = PLAN_EXACT;
    q.form = LAYOUT_BUNDLE;
    CHECK(planning_make(&q, &in, &hw, &notes, &p, &e) == 0 && p.layout.packed == 1);
    plan_done(&p);
    q.packed = 0;
    CHECK(planning_make(&q, &in, &hw, &notes, &p, &e) == 0 && p.layout.packed == 0);
    plan_done(&p);

    /* Bound by I/O, one thread decodes a little faster than two, whose stack costs memory: the plan takes two for the
     * prompts, within 1 %. */
    uint64_t floor_bytes;
    inputs_done(&in);
    in = sample_inputs(8, 256, 4096, 1, 1); /* stacks are small beside it */
    for (int i = 0; i < hw.n_storage; i++)
        hw.storage_points[i].bytes_per_s.p50 /= 500;
    CHECK(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0);
    q.memory[0] = floor_bytes + 12000000;
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    CHECK_MSG(p.limits[0].threads == 2 && p.limits[0].gap <= 0.02, "%d threads", p.limits[0].threads);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

static void test_whole(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 2);
    struct hw hw = sample_hw(2, 2, 50000);
    struct request q = request(0);
    struct plan p, again;
    struct err e = { 0 };
    struct notes notes = { 0 };
    uint64_t floor_bytes;
    char *a = NULL, *b = NULL;
    size_t n;
    CHECK(planning_make(&q, &in, &hw, &notes, &p, &e) == ERR_UNSUPPORTED && strstr(e.msg, "predictors"));
    sample_predictors(&in, PREDICT_FFN, 32, 0.3);
    q.max_batch = 2;
    q.form = test_short() ? LAYOUT_TWO_PHASE : -1; /* forms are compared by test_planning_layouts */
    CHECK(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0);
    q.n_memory = 3;
    for (int i = 0; i < 3; i++)
        q.memory[i] = floor_bytes + (uint64_t)i * 600000;
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    CHECK_MSG(check_plan(&p, "made", &in, &hw, &notes, &e) == 0, "%s", e.msg);
    CHECK(planning_make(&q, &in, &hw, &notes, &again, &e) == 0);
    CHECK(plan_text(&p, &a, &n, &e) == 0 && plan_text(&again, &b, &n, &e) == 0 && !strcmp(a, b));
    CHECK(p.limits[0].mode == PLAN_PREDICTED && p.limits[0].account_bytes == floor_bytes && near(p.limits[0].recall, 0.95));
    CHECK(p.limits[2].batches[0].predicted.tokens_per_s > p.limits[0].batches[0].predicted.tokens_per_s);
    int missed = 0;
    struct plan_limit *l = &p.limits[1];
#define TAMPER(field, value)                                         \
    do {                                                             \
        __typeof__(field) was = field;                               \
        field = (value);                                             \
        if (check_plan(&p, "tampered", &in, &hw, &notes, &e) == 0) { \
            printf("# " #field " was not noticed\n");                \
            missed++;                                                \
        }                                                            \
        field = was;                                                 \
    } while (0)
    TAMPER(l->recall, 0.8);
    TAMPER(l->always[1], 128);
    TAMPER(l->predictor[2], -1);
    TAMPER(l->predictor[3], PREDICT_BLOCK);
    TAMPER(l->account_bytes, l->account_bytes + 64);
    TAMPER(l->batches[0].predicted.layers[1].predict_ns, l->batches[0].predicted.layers[1].predict_ns * 1.01);
    CHECK(missed == 0);
    /* The floor has the predictors in it; a byte less is refused, by that floor. */
    struct plan none;
    q.memory[0] = floor_bytes - 1;
    q.n_memory = 1;
    CHECK(planning_make(&q, &in, &hw, &notes, &none, &e) == ERR_INFEASIBLE && strstr(e.msg, "floor"));
    free(a);
    free(b);
    plan_done(&p);
    plan_done(&again);
    inputs_done(&in);
    hw_free(&hw);
}

/* Lookahead that predicts as well as the FFN's input in half of the layers, and far too much in the others: a plan has
 * both inputs, is faster than with either, follows from the inputs by check, and explain's reasons are those. */
static void test_mixed(int max_batch)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, max_batch);
    struct hw hw = sample_hw(1, 2, 60000);
    struct request q = request(0);
    struct plan p, one;
    struct err e = { 0 };
    struct notes notes = { 0 };
    uint64_t floor_bytes;
    int ahead = 0;
    for (int i = 0; i < hw.n_storage; i++) /* nothing is won by long reads, which false positives do not make longer */
        if (hw.storage_points[i].pattern == HW_RANDOM && hw.storage_points[i].block_bytes > 4096)
            hw.storage_points[i].bytes_per_s = hw.storage_points[i - 1].bytes_per_s;
    sample_predictors(&in, PREDICT_FFN, 32, 0.3);
    sample_predictors(&in, PREDICT_BLOCK, 32, 0.3);
    for (int l = 0; l < 4; l += 2)
        for (int i = 0; i < 2; i++)
            inputs_predictor_at(&in, PREDICT_BLOCK, l, 0)->point[i].density *= 2.5;
    q.form = LAYOUT_BUNDLE;
    q.max_batch = max_batch;
    CHECK_MSG(planning_floor(&q, &in, &hw, &floor_bytes, &e) == 0, "%s", e.msg);
    q.memory[0] = floor_bytes + 400000;
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    const struct plan_limit *l = &p.limits[0];
    for (int k = 0; k < 4; k++)
        ahead += l->predictor[k] == PREDICT_BLOCK;
    CHECK_MSG(ahead == 2 && l->predictor[1] == PREDICT_BLOCK && l->predictor[3] == PREDICT_BLOCK, "%d ahead", ahead);
    CHECK_MSG(check_plan(&p, "mixed", &in, &hw, &notes, &e) == 0, "%s", e.msg);
    CHECK(l->account_bytes <= l->memory_bytes);
    for (int i = PREDICT_FFN; i <= PREDICT_BLOCK; i++) {
        q.predictor = i;
        CHECK(planning_make(&q, &in, &hw, &notes, &one, &e) == 0);
        CHECK_MSG(one.limits[0].batches[0].predicted.tokens_per_s < l->batches[0].predicted.tokens_per_s, "%g, mixed %g",
                  one.limits[0].batches[0].predicted.tokens_per_s, l->batches[0].predicted.tokens_per_s);
        plan_done(&one);
    }
    struct problem pr;
    struct explain_input *x = NULL;
    CHECK(planning_problem(&p, l, &in, &hw, &notes, &pr, &e) == 0);
    CHECK_MSG(explain_inputs(&pr, &p, l, &x, &e) == 0, "%s", e.msg);
    for (int k = 0; k < 4 && x; k++) {
        double total = l->batches[0].predicted.layers[k].total_ns;
        int other = k % 2 ? PREDICT_FFN : PREDICT_BLOCK;
        CHECK(x[k].input == l->predictor[k] && x[k].rival[other].known && !x[k].rival[l->predictor[k]].known);
        CHECK_MSG(explain_saved_ns(&x[k], total) > 0 || max_batch > 1, "layer %d: %g", k, explain_saved_ns(&x[k], total));
        CHECK(k % 2 ? x[k].hidden_ns > 0 : x[k].hidden_ns <= 0);
    }
    free(x);
    problem_done(&pr);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

/* A limit on quality: a mix needs the recall at which both inputs together keep it, single inputs their own. */
static void test_mixed_quality(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct request q = request(0);
    struct layout l;
    struct variants w;
    struct err e = { 0 };
    const int both[2] = { PREDICT_FFN, PREDICT_BLOCK };
    sample_predictors(&in, PREDICT_FFN, 32, 0.1);
    sample_predictors(&in, PREDICT_BLOCK, 32, 0.1);
    in.n_quality = 4;
    in.quality[0] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.8, .kl_mean = 0.006 };
    in.quality[1] = (struct inputs_quality){ .input = PREDICT_FFN, .target = 0.9, .kl_mean = 0.003 };
    in.quality[2] = (struct inputs_quality){ .input = PREDICT_BLOCK, .target = 0.8, .kl_mean = 0.009 };
    in.quality[3] = (struct inputs_quality){ .input = PREDICT_BLOCK, .target = 0.9, .kl_mean = 0.005 };
    CHECK(near(variants_mixed_kl(&in, both, 2, 0.9), 0.008) && near(variants_mixed_kl(&in, both, 2, 0.85), 0.015));
    CHECK(isinf(variants_mixed_kl(&in, both, 2, 0.5)));
    CHECK(inputs_layout(&in, LAYOUT_BUNDLE, 64, -1, &l, &e) == 0);
    q.max_kl = 0.01; /* 0.8 for each alone, 0.9 together */
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 4);
    CHECK(w.variant[0].mix > 0 && w.variant[0].mix == w.variant[1].mix && near(w.variant[0].recall, 0.9) && near(w.variant[1].recall, 0.9));
    CHECK(w.variant[2].mix == 0 && w.variant[3].mix == 0 && near(w.variant[2].recall, 0.8) && near(w.variant[3].recall, 0.8));
    variants_done(&w);
    q.max_kl = 0.007; /* no mix keeps it */
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 2 && w.variant[0].mix == 0 && w.variant[1].mix == 0);
    variants_done(&w);
    q.max_kl = 0.02; /* all at 0.8: the single inputs are in the mix */
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 2 && w.variant[0].mix > 0 && w.variant[0].mix == w.variant[1].mix);
    variants_done(&w);
    q.cost = PLAN_COST_PAPER; /* nothing to choose layer by layer */
    CHECK(variants_new(&q, &in, &l, &w, &e) == 0 && w.n == 2 && w.variant[0].mix == 0);
    variants_done(&w);
    inputs_done(&in);
}

int main(void)
{
    heap_keep();
    test_points();
    test_foretold(1);
    test_foretold(4);
    test_lists_same(512, 1);
    test_lists_same(500, 3);
    test_exempt();
    test_layer();
    test_exhaustive();
    test_streamed();
    test_resident();
    test_budget();
    test_quality();
    test_packed();
    test_whole();
    test_mixed(1);
    test_mixed(2);
    test_mixed_quality();
    return test_done();
}
