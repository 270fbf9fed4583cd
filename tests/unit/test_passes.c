/* Passes over tokens that follow each other (M30): how many neurons they share, against counts by definition; times that do not fall; what
 * is read; and the numbers of guesses that follow. */
#include "planner/planning/planning_guesses.h"
#include "planner/check/check.h"
#include "planner/cost/cost_prompt.h"

#include "tests/planning_sample.h"
#include "tests/test.h"
#include "tests/trace_sample.h"

#include <unistd.h>

enum { LAYERS = 2, D = 256, FF = 512, WINDOW = 512 };

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

/* ---- curves of a trace ---- */

static void test_trace(int n_experts)
{
    static struct trace_sample s;
    char path[64];
    struct inputs in, c;
    struct err e = { 0 };
    test_path(path, sizeof path, "thermo-passes-%ld.h5", (long)getpid());
    sample_init(&s, n_experts, 0, 1);
    CHECK_MSG(sample_write(&s, path, 0, NULL, &e) == 0 && inputs_from_trace(path, 1, LAYOUT_HEAT, &in, &e) == 0, "%s", e.msg);
    CHECK_MSG(inputs_consecutive(&in, PLAN_PASSES, 1, &c, &e) == 0, "%s", e.msg);
    CHECK(c.n_batches == 4); /* no sequence has 16 tokens */
    int blocks = in.n_blocks, bad = 0;
    for (int b = 0; b < c.n_batches; b++)
        for (int l = 0; l < SAMPLE_LAYERS; l++) {
            uint64_t counts[4 * SAMPLE_FF] = { 0 }, routed[4] = { 0 }, n = 0;
            sample_count(&s, l, TRACE_BATCH_CONSECUTIVE, inputs_batch_sizes[b], 2, counts, routed, &n);
            for (int k = 0; k < blocks; k++) {
                const struct inputs_curve *v = inputs_curve_at(&c, b, l, k);
                bad += !near(v->routed, (double)routed[k] / (double)n);
                for (int i = 0; i < SAMPLE_FF; i++) {
                    uint32_t at = in.position[((size_t)l * (size_t)blocks + (size_t)k) * SAMPLE_FF + (size_t)i];
                    bad += !near(v->cum[at + 1] - v->cum[at], (double)counts[k * SAMPLE_FF + i] / (double)n);
                }
            }
            bad += b && !(inputs_active(&c, b, l, 0) > inputs_active(&c, b - 1, l, 0) && /* more tokens, more neurons, though shared */
                          inputs_active(&c, b, l, 0) < 2 * inputs_active(&c, b - 1, l, 0));
        }
    CHECK(bad == 0);
    inputs_consecutive_done(&c);
    CHECK(inputs_consecutive(&in, PLAN_PASSES, 0, &c, &e) == 0 && c.n_batches == 4); /* routes alone */
    CHECK(inputs_curve_at(&c, 1, 0, 0)->cum == NULL && inputs_curve_at(&c, 0, 0, 0)->cum != NULL);
    inputs_consecutive_done(&c);
    inputs_done(&in);
    unlink(path);
}

/* ---- a window whose tokens share neurons ---- */

static int fresh = 4; /* a neuron's state lasts so many tokens */

static int fires(int layer, int token, int pos)
{
    uint32_t v = sample_mix((uint64_t)layer, (uint64_t)((token + pos) / fresh), (uint64_t)pos);
    return v % 1000 < 1000 * sample_rate(layer, pos, FF);
}

static int window(const struct inputs *in, int layer, uint64_t most, struct inputs_steps *out, struct err *e)
{
    int n = in->window_tokens < most ? (int)in->window_tokens : (int)most;
    struct inputs_steps s = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *s.start),
                              .at = malloc((size_t)n * FF * sizeof *s.at) };
    uint32_t m = 0;
    (void)e;
    for (int t = 0; t < n; t++) {
        s.start[t] = m;
        for (int p = 0; p < FF; p++)
            if (fires(layer, t, p))
                s.at[m++] = (uint32_t)p;
    }
    s.start[n] = m;
    *out = s;
    return 0;
}

/* Neurons that fire for any of n tokens, by definition. */
static int consecutive(const struct inputs *in, int batch_index, int layer, struct inputs_curve *out, struct err *e)
{
    int n = inputs_batch_sizes[batch_index], steps = (int)in->window_tokens / n;
    (void)e;
    for (int p = 0; p < FF && out->cum; p++) {
        int any = 0;
        for (int t = 0; t < steps; t++)
            for (int i = 0, on = 0; i < n && !on; i++)
                any += on = fires(layer, t * n + i, p);
        out->cum[p + 1] = out->cum[p] + (double)any / steps;
    }
    return 1;
}

static struct inputs shared(void)
{
    struct inputs in = sample_inputs(LAYERS, D, FF, 1, 1);
    struct err e;
    in.window_tokens = WINDOW;
    in.steps = window;
    in.consecutive = consecutive;
    for (int l = 0; l < LAYERS; l++)
        consecutive(&in, 0, l, &in.curves[l], &e);
    return in;
}

static void test_pairs(void)
{
    struct inputs in = shared();
    struct inputs_steps one, two, four;
    struct err e = { 0 };
    int bad = 0;
    window(&in, 0, 13, &one, &e); /* the last token is left out */
    CHECK(inputs_steps_pairs(&one, &two, &e) == 0 && two.n_steps == 6 && inputs_steps_pairs(&two, &four, &e) == 0 && four.n_steps == 3);
    for (int t = 0; t < 3; t++) {
        uint32_t at = four.start[t];
        for (int p = 0; p < FF; p++) {
            int any = fires(0, 4 * t, p) || fires(0, 4 * t + 1, p) || fires(0, 4 * t + 2, p) || fires(0, 4 * t + 3, p);
            bad += any && (at == four.start[t + 1] || four.at[at] != (uint32_t)p);
            at += (uint32_t)any;
        }
        bad += at != four.start[t + 1];
    }
    CHECK(bad == 0);
    inputs_steps_done(&one), inputs_steps_done(&two), inputs_steps_done(&four);
    inputs_done(&in);
}

/* Priced with so many neurons in memory and slots. */
static struct plan_guesses priced(const struct inputs *in, const struct hw *hw, enum plan_mode mode, enum layout_form form, uint32_t hot,
                                  uint32_t slots)
{
    static const signed char input[LAYERS] = { PREDICT_FFN, -1 }; /* the second layer runs exactly */
    static const uint32_t always[LAYERS];
    const struct space_variant variant = { .mode = mode, .recall = 0.95, .input = input, .always = always };
    struct cost_residency k[LAYERS] = { { .hot = { hot, hot }, .slots = slots }, { .hot = { hot, hot }, .slots = slots } };
    struct passes_choices c = { { { 0 } } };
    struct plan_batch batch = { .predicted = { .step_ns = 1 } };
    struct plan_limit l = { .mode = mode, .prefill_chunk = 64, .context = 256, .policy = CACHE_LRU, .batches = &batch };
    struct plan_guesses g = { 0 };
    struct problem p;
    struct layout layout;
    struct err e = { 0 };
    for (int i = 0; i < PLAN_PASSES; i++)
        c.of[i] = (struct cost_choice){ .mode = mode, .n_classes = 1, .n = { 2 }, .threads = 2, .backend = HW_URING, .depth = 8, .lanes = 1,
                                        .context = 256 };
    CHECK(inputs_layout(in, form, form == LAYOUT_TILES ? 0 : 64, -1, &layout, &e) == 0);
    CHECK(problem_shape(&p, in, hw, &layout, &variant, 1, NULL, &e) == 0);
    CHECK_MSG(passes_of(&p, &c, k, &l, &g, &e) == 0, "%s", e.msg);
    problem_done(&p);
    return g;
}

/* Bytes of units, of so many neurons each, that hold one that any of n tokens needs, in the measured part of the window: nothing is in
 * memory. */
static double brute_bytes(int n, int neurons, double unit_bytes)
{
    int steps = WINDOW / n, first = steps / 4;
    double sum = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int t = first; t < steps; t++)
            for (int u = 0; u < FF / neurons; u++) {
                int any = 0;
                for (int i = 0; i < n * neurons; i++)
                    any |= fires(l, t * n + i % n, u * neurons + i / n);
                sum += any * unit_bytes / (steps - first);
            }
    return sum;
}

static void test_sparse(void)
{
    struct inputs in = shared();
    struct hw hw = sample_hw(1, 2, 50000);
    sample_many_tokens(&hw);
    CHECK(priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, 0, 0).n == 5);
    struct plan_guesses g = priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, 0, 0), all = priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, FF, 0);
    struct plan_guesses cached = priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 20);
    struct layout l;
    struct layout_shapes shape;
    struct err e;
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive(&l, D, FF, &shape, &e) == 0);
    const struct layout_part *part = &shape.kind[0].part[1];
    double gates = LAYERS * (double)shape.kind[0].part[0].n_units * (double)shape.kind[0].part[0].stride_bytes; /* they are streamed */
    CHECK(g.tokens[0] == 1 && g.tokens[4] == 16 && FF % part->neurons_per_unit == 0);
    for (int i = 1; i < g.n; i++) {
        double bytes = gates + brute_bytes(g.tokens[i], (int)part->neurons_per_unit, (double)part->stride_bytes);
        CHECK_MSG(near(g.read_bytes[i], bytes), "%d tokens: %g, not %g", g.tokens[i], g.read_bytes[i], bytes);
        CHECK(i < 2 || (g.pass_ns[i] >= g.pass_ns[i - 1] && g.pass_ns[i] < 2 * g.pass_ns[i - 1]));
        CHECK(all.read_bytes[i] == 0 && all.pass_ns[i] < g.pass_ns[i] && cached.read_bytes[i] < g.read_bytes[i]);
        CHECK(i < 2 || cached.read_bytes[i] > cached.read_bytes[i - 1]);
    }
    fresh = WINDOW; /* all tokens are nearly the same: passes read what one token reads */
    struct inputs same = shared();
    struct plan_guesses s = priced(&same, &hw, PLAN_EXACT, LAYOUT_SPLIT, 0, 0);
    CHECK(s.read_bytes[4] < 1.1 * s.read_bytes[1] && s.read_bytes[4] - gates >= s.read_bytes[1] - gates);
    fresh = 1; /* none is like another */
    struct inputs other = shared();
    struct plan_guesses o = priced(&other, &hw, PLAN_EXACT, LAYOUT_SPLIT, 0, 0);
    CHECK(o.read_bytes[1] > g.read_bytes[1] && g.read_bytes[1] > s.read_bytes[1] && o.pass_ns[1] > s.pass_ns[1]);
    fresh = 4;
    inputs_done(&in), inputs_done(&same), inputs_done(&other);
    hw_free(&hw);
}

/* Predictors: what is predicted for any of the tokens, false positives too. */
static void test_predicted(void)
{
    struct inputs in = shared();
    struct hw hw = sample_hw(1, 2, 50000);
    sample_many_tokens(&hw);
    sample_predictors(&in, PREDICT_FFN, 16, 0);
    struct plan_guesses exact = priced(&in, &hw, PLAN_EXACT, LAYOUT_BUNDLE, 64, 20);
    struct plan_guesses right = priced(&in, &hw, PLAN_PREDICTED, LAYOUT_BUNDLE, 64, 20);
    sample_predictors(&in, PREDICT_FFN, 16, 0.8);
    struct plan_guesses wrong = priced(&in, &hw, PLAN_PREDICTED, LAYOUT_BUNDLE, 64, 20);
    CHECK(exact.n == 5 && right.n == 5 && wrong.n == 5);
    for (int i = 1; i < 5; i++) {
        CHECK(right.read_bytes[i] > 0 && wrong.read_bytes[i] > right.read_bytes[i]);
        CHECK(i > 3 || wrong.pass_ns[i] > right.pass_ns[i]); /* of 16 tokens nearly all are read, in fewer reads the more there are */
        CHECK(i < 2 || (right.read_bytes[i] >= right.read_bytes[i - 1] && right.read_bytes[i] < 2 * right.read_bytes[i - 1]));
    }
    inputs_done(&in);
    hw_free(&hw);
}

/* Two of eight experts for each token, the first of them for four tokens in a row. */
enum { EXPERTS = 8 };
static void routes_of(int layer, int token, uint32_t out[2])
{
    uint32_t a = sample_mix(9, (uint64_t)layer, (uint64_t)token / 4) % EXPERTS;
    uint32_t b = sample_mix(11, (uint64_t)layer, (uint64_t)token) % (EXPERTS - 1);
    b += b >= a;
    out[0] = a < b ? a : b;
    out[1] = a < b ? b : a;
}

static int routes(const struct inputs *in, int layer, uint64_t most, struct inputs_steps *out, struct err *e)
{
    int n = most < WINDOW ? (int)most : WINDOW;
    struct inputs_steps s = { .n_steps = n, .start = malloc(((size_t)n + 1) * sizeof *s.start),
                              .at = malloc(2 * (size_t)n * sizeof *s.at) };
    (void)e;
    for (int t = 0; t <= n; t++) {
        s.start[t] = 2 * (uint32_t)t;
        if (t < n)
            routes_of(layer, t, s.at + s.start[t]);
    }
    for (int i = 0; i < 2 * n; i++)
        s.at[i] *= (uint32_t)in->h.n_ff;
    *out = s;
    return 0;
}

/* Experts that any of n tokens needs, in the mean of a layer, by definition. */
static double reached(int layer, int n, int first)
{
    double sum = 0;
    for (int s = first; s < WINDOW / n; s++) {
        uint32_t any = 0, out[2];
        for (int i = 0; i < n; i++) {
            routes_of(layer, s * n + i, out);
            any |= 1u << out[0] | 1u << out[1];
        }
        sum += __builtin_popcount(any);
    }
    return sum / (WINDOW / n - first);
}

static int routed(const struct inputs *in, int batch_index, int layer, struct inputs_curve *out, struct err *e)
{
    (void)in, (void)e;
    for (int k = 0; k < EXPERTS; k++)
        out[k].routed = reached(layer, inputs_batch_sizes[batch_index], 0) / EXPERTS;
    return out[0].cum == NULL; /* dense mode asks for routes alone */
}

static void test_experts(void)
{
    struct inputs in = sample_inputs(LAYERS, D, FF, EXPERTS, 1);
    struct hw hw = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shapes shapes;
    struct err e = { 0 };
    sample_many_tokens(&hw);
    in.routes = routes;
    in.consecutive = routed;
    for (int i = 0; i < in.n_layers * LAYOUT_ROLES; i++)
        in.layers[i / LAYOUT_ROLES].ffn_type[i % LAYOUT_ROLES] = QUANT_Q8_0;
    CHECK(inputs_layout(&in, LAYOUT_TILES, 0, -1, &l, &e) == 0 && layout_derive(&l, D, FF, &shapes, &e) == 0);
    const struct layout_part *part = &shapes.kind[0].part[0];
    struct plan_guesses none = priced(&in, &hw, PLAN_DENSE, LAYOUT_TILES, 0, 0);
    struct plan_guesses some = priced(&in, &hw, PLAN_DENSE, LAYOUT_TILES, 0, 3 * part->n_units);
    CHECK(none.n == 5 && some.n == 5);
    for (int i = 1; i < 5; i++) {
        double units = 0;
        for (int layer = 0; layer < LAYERS; layer++)
            units += reached(layer, none.tokens[i], WINDOW / none.tokens[i] / 4) * part->n_units;
        CHECK_MSG(near(none.read_bytes[i], units * (double)part->stride_bytes), "%d tokens: %g, not %g", none.tokens[i], none.read_bytes[i],
                  units * (double)part->stride_bytes);
        CHECK(some.read_bytes[i] < none.read_bytes[i] && some.pass_ns[i] <= none.pass_ns[i]);
    }
    inputs_done(&in);
    hw_free(&hw);
}

/* Streams are the same for any number of tokens. */
static void test_dense(void)
{
    struct inputs in = shared();
    struct hw hw = sample_hw(1, 2, 50000), few = sample_hw(1, 2, 50000);
    sample_many_tokens(&hw);
    struct plan_guesses g = priced(&in, &hw, PLAN_DENSE, LAYOUT_SPLIT, 64, 0);
    CHECK(g.n == 5);
    for (int i = 2; i < g.n; i++)
        CHECK(g.read_bytes[i] > 0 && near(g.read_bytes[i], g.read_bytes[1]) && g.pass_ns[i] >= g.pass_ns[i - 1]);
    CHECK(priced(&in, &few, PLAN_DENSE, LAYOUT_SPLIT, 64, 0).n == 0); /* not measured with many tokens */
    in.window_tokens = 20; /* two steps of eight tokens are too few, but dense mode looks nothing up */
    CHECK(priced(&in, &hw, PLAN_DENSE, LAYOUT_SPLIT, 64, 0).n == 5 && priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 0).n == 2);
    in.window_tokens = 12;
    CHECK(priced(&in, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 0).n == 0);
    in.consecutive = NULL;
    CHECK(priced(&in, &hw, PLAN_DENSE, LAYOUT_SPLIT, 64, 0).n == 0);
    inputs_done(&in);
    hw_free(&hw), hw_free(&few);
}

/* Recurrent layers: what states take is added, in every mode; where tokens cannot be taken back nothing is priced. */
static void test_states(void)
{
    struct inputs in = shared(), wkv = in, conv = in, ssm = in;
    struct hw hw = sample_hw(1, 2, 50000);
    sample_many_tokens(&hw);
    for (int exact = 0; exact < 2; exact++) {
        enum plan_mode mode = exact ? PLAN_EXACT : PLAN_DENSE;
        struct inputs delta = in;
        struct plan_guesses plain = priced(&in, &hw, mode, LAYOUT_SPLIT, 64, 0), was = priced(&in, &hw, mode, LAYOUT_SPLIT, FF, 0);
        for (int heads = 8; heads <= 32; heads *= 2) {
            delta.h.full_period = 4, delta.h.conv_width = 4;
            delta.h.delta_dim = 128, delta.h.delta_k_heads = 4, delta.h.delta_v_heads = heads;
            struct plan_guesses read = priced(&delta, &hw, mode, LAYOUT_SPLIT, 64, 0), g = priced(&delta, &hw, mode, LAYOUT_SPLIT, FF, 0);
            CHECK(g.n == 5 && read.n == 5);
            for (int i = 1; i < g.n; i++)
                CHECK(near(read.read_bytes[i], plain.read_bytes[i]) && g.read_bytes[i] == 0 && g.pass_ns[i] > was.pass_ns[i] &&
                      g.pass_ns[i] >= g.pass_ns[i - 1]);
            was = g;
        }
    }
    conv.h.conv_width = 3, memcpy(conv.h.blocks, "cc", 3);
    ssm.h.conv_width = 4, ssm.h.ssm_inner = 256, ssm.h.ssm_state = 64, ssm.h.ssm_heads = 4, ssm.h.ssm_groups = 1;
    memcpy(ssm.h.blocks, "mm", 3);
    wkv.h.wkv_dim = 32;
    CHECK(priced(&conv, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 0).n == 5 && priced(&ssm, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 0).n == 5);
    CHECK(priced(&wkv, &hw, PLAN_EXACT, LAYOUT_SPLIT, 64, 0).n == 0);
    inputs_done(&in);
    hw_free(&hw);
}

/* ---- how many guesses ---- */

static void test_best(void)
{
    struct plan_guesses g = { .n = 5, .tokens = { 1, 2, 4, 8, 16 }, .pass_ns = { 100, 100, 100, 100, 100 } };
    double s;
    CHECK(plan_pass_ns(&g, 1) == 100 && plan_pass_ns(&g, 99) == 100 && plan_pass_ns(&g, 0) == 0);
    CHECK(plan_best_guesses(&g, 0.8, 0, 8, &s) == 8 && near(s, (1 - pow(0.8, 9)) / 0.2)); /* they cost nothing */
    CHECK(plan_best_guesses(&g, 0.8, 100, 8, &s) == 0 && near(s, 1)); /* a source as slow as the model */
    CHECK(plan_best_guesses(&g, 0, 0, 8, &s) == 0 && plan_best_guesses(&g, 1, 0, 99, &s) == 15 && near(s, 16));
    for (int i = 0; i < 5; i++)
        g.pass_ns[i] = 100 * g.tokens[i]; /* a pass over two takes twice as long */
    CHECK(near(plan_pass_ns(&g, 3), 300) && near(plan_pass_ns(&g, 9), 900) && near(plan_pass_ns(&g, 20), 2000));
    CHECK(plan_best_guesses(&g, 0.99, 0, 8, &s) == 0);
    for (int i = 0; i < 5; i++)
        g.pass_ns[i] = 100 + 10 * (g.tokens[i] - 1);
    int k = plan_best_guesses(&g, 0.6, 0, 8, &s), bad = 0;
    for (int i = 0; i <= 8; i++) {
        double tokens = (1 - pow(0.6, i + 1)) / 0.4, own = tokens * 100 / (100 + 10 * i);
        bad += !near(own, plan_guesses_speedup(&g, 0.6, 0, i)) || own > s * (1 + 1e-12) || (i == k && !near(own, s));
    }
    CHECK(bad == 0 && k > 0 && k < 8);
    plan_choose_guesses(&g);
    CHECK(g.best[0] == k && g.acceptance[0] == 0.6 && g.best[1] >= k && g.speedup[1] > g.speedup[0]);
    g = (struct plan_guesses){ 0 };
    CHECK(plan_pass_ns(&g, 2) == 0 && plan_best_guesses(&g, 0.9, 0, 8, &s) == 0 && near(s, 1));
}

/* Added to a plan, the check finds the same, and any other value is refused. */
static void test_plan(void)
{
    struct inputs in = shared();
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q;
    struct notes notes = { 0 }, ignored = { 0 };
    struct plan p;
    struct err e = { 0 };
    sample_many_tokens(&hw);
    request_init(&q);
    q.n_memory = 1;
    q.memory[0] = 8 << 20;
    q.context = 256;
    q.chunk = 64;
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0, "%s", e.msg);
    const struct guesser lookup = { PLAN_SOURCE_FREE, 0 };
    CHECK(planning_guesses(&p, &in, &hw, &lookup, &e) == 0 && p.limits[0].guesses.n == 5);
    CHECK_MSG(check_plan(&p, "p", &in, &hw, &ignored, &e) == 0, "%s", e.msg);
    struct plan_guesses *g = &p.limits[0].guesses, was = *g;
    CHECK(g->pass_ns[0] == p.limits[0].batches[0].predicted.step_ns && g->pass_ns[4] > g->pass_ns[1]);
    g->pass_ns[3] *= 1.001;
    plan_choose_guesses(g);
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == ERR_FORMAT && strstr(e.msg, "limits[0].guesses.pass_ns[3]"));
    *g = was;
    g->read_bytes[4] += 4096;
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == ERR_FORMAT && strstr(e.msg, "limits[0].guesses.read_bytes[4]"));
    *g = was;
    g->n = 4;
    plan_choose_guesses(g);
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == ERR_FORMAT && strstr(e.msg, "guesses has 4 lengths; the equations give 5"));
    *g = was;
    const struct guesser draft = { PLAN_SOURCE_DRAFT, 0.3 * g->pass_ns[0] }, layer = { PLAN_SOURCE_MTP, 0 };
    CHECK(planning_guesses(&p, &in, &hw, &draft, &e) == 0 && g->source == PLAN_SOURCE_DRAFT);
    CHECK(g->guess_ns == draft.draft_ns && g->speedup[1] <= was.speedup[1] && g->pass_ns[4] == was.pass_ns[4]);
    CHECK_MSG(check_plan(&p, "p", &in, &hw, &ignored, &e) == 0, "%s", e.msg); /* as it is given */
    CHECK(planning_guesses(&p, &in, &hw, &layer, &e) == 0 && g->source == PLAN_SOURCE_MTP && planning_guesser_of(&p).source == g->source);
    CHECK_MSG(check_plan(&p, "p", &in, &hw, &ignored, &e) == 0, "%s", e.msg);
    g->guess_ns *= 1.001;
    plan_choose_guesses(g);
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == ERR_FORMAT && strstr(e.msg, "limits[0].guesses.source.guess_ns is "));
    *g = was;
    g->acceptance[0] = 0.5;
    g->best[0] = plan_best_guesses(g, 0.5, 0, PLAN_GUESSES, &g->speedup[0]);
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == ERR_FORMAT && strstr(e.msg, "guesses.acceptance[0] is 0.5, not 0.6"));
    *g = (struct plan_guesses){ 0 }; /* a plan need not say */
    CHECK(check_plan(&p, "p", &in, &hw, &ignored, &e) == 0);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

/* (M35): where all is in memory in dense mode, a layer takes what the model's last one does. */
static void test_layer(void)
{
    struct inputs in = shared();
    struct hw hw = sample_hw(1, 2, 50000);
    struct request q;
    struct notes notes = { 0 };
    struct plan p;
    struct err e = { 0 };
    const struct guesser layer = { PLAN_SOURCE_MTP, 0 };
    sample_many_tokens(&hw);
    request_init(&q);
    q.n_memory = 1;
    q.memory[0] = 64 << 20;
    q.context = 256;
    q.chunk = 64;
    q.mode = PLAN_DENSE;
    CHECK_MSG(planning_make(&q, &in, &hw, &notes, &p, &e) == 0 && planning_guesses(&p, &in, &hw, &layer, &e) == 0, "%s", e.msg);
    const struct plan_figures *f = &p.limits[0].batches[0].predicted;
    const struct plan_guesses *g = &p.limits[0].guesses;
    CHECK(f->read_bytes == 0 && g->n == 5);
    CHECK(near(g->guess_ns, f->layers[LAYERS - 1].total_ns + f->head_ns * (1 + 2.0 * in.h.d_model / in.h.n_vocab)));
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw);
}

int main(void)
{
    alarm(600);
    test_trace(0);
    test_trace(4);
    test_pairs();
    test_sparse();
    test_predicted();
    test_experts();
    test_dense();
    test_states();
    test_best();
    test_plan();
    test_layer();
    return test_done();
}
