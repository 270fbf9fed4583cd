/* An accelerator beside the processor, in every layout: the logits are those of the naive pass within rounding, and for one height the same
 * bits whatever threads, chunks, cache, backend and timing; all heights, experts, predicted mode, other products; each of its calls
 * fails once, and the processor goes on or the pass ends, as was asked. One that is made up here, always; OpenCL's first device where
 * there is one. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/opencl/opencl.h"
#include "tests/accel_made_up.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <unistd.h>

/* ---- models with it ---- */

static const struct accel_backend *backend = &made_up;
static float first[ES_SEQ * ES_VOCAB], other[ES_SEQ * ES_VOCAB];
static double naive[ES_SEQ * ES_VOCAB];
static struct engine_accel_config asked;
static char programs[4096]; /* folder */

static int run_beside(const struct pack *p, const struct variant *v, float *out, struct engine_stats *st, int *lost, struct err *e)
{
    uint32_t types[] = { QUANT_F32, p->shapes.l.type[0][LAYOUT_GATE], p->shapes.l.type[0][LAYOUT_DOWN] };
    const struct accel_config open = { .device = -1, .cache = programs, .types = types, .n_types = 3 };
    struct engine_config c = config(p, v);
    struct engine *g = NULL;
    struct accel_info info;
    const char *why = NULL;
    c.accel = asked;
    int r = backend->open(&open, &c.accel.accel, e);
    if (r == 0)
        r = engine_open(&c, &g, e);
    for (int i = 0; i < ES_SEQ && r == 0; i += v->chunk) {
        struct engine_token t[ES_SEQ];
        int n = ES_SEQ - i < v->chunk ? ES_SEQ - i : v->chunk;
        for (int k = 0; k < n; k++)
            t[k] = (struct engine_token){ ids[i + k], 1, i + k };
        r = engine_forward(g, t, n, e);
        for (int k = 0; k < n && r == 0; k++) {
            const float *logits = engine_logits(g, k, 0, e);
            r = logits ? 0 : e->code;
            if (logits)
                memcpy(out + (i + k) * ES_VOCAB, logits, ES_VOCAB * sizeof *out);
        }
    }
    if (g && st)
        *st = engine_stats(g);
    if (g && lost)
        *lost = engine_accel_info(g, &info, &why) && why;
    engine_close(g);
    return r;
}

/* Of a predicted pass each neuron is the accelerator's or is scored: with `always` 0, and one FFN a layer. */
static int all_scored(const struct engine_sample *s, const struct variant *v, const struct engine_stats *st)
{
    uint64_t passes = (uint64_t)((ES_SEQ + v->chunk - 1) / v->chunk), n_ff = (uint64_t)s->n_ff;
    return st->neurons_scored + st->accel.neurons == passes * ES_LAYERS * n_ff;
}

static double from_naive(const float *v)
{
    double worst = worst_difference(v, naive);
    return isfinite(worst) ? worst : 1e9;
}

/* Heights of one and of several tokens; with them, every way to run gives the same bits, and those of the naive pass within rounding. */
static void test_model(const struct engine_sample *s, const struct es_predict *predicted, enum plan_work work, const char *name)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st = { 0 };
    struct es_predict x = predicted ? *predicted : (struct es_predict){ .input = { -1, -1, -1 } };
    int r = es_pack(path, s, &e), n_bad = 0, lost = 0;
    double worst = 0;
    if (r == 0)
        r = pack_open(path, &p, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    if (r < 0)
        return;
    int own = backend == &made_up; /* others take longer to open */
    for (int round = 0; round < (own && !TEST_TSAN ? 3 : 2); round++) {
        struct variant v = any_variant();
        int same = 1, tenths = round ? 6 : 10;
        v.predict = predicted ? &x : NULL;
        asked = (struct engine_accel_config){ .work = work, .n_heights = 1, .heights = { { 0, 0, round == 1 ? 0.3 : 1, work, 0 } } };
        v.hot = tenths;
        if (predicted) /* what it has is not predicted: as setup.c has it */
            for (int l = 0; l < ES_LAYERS; l++)
                x.always[l] = 0;
        r = run_beside(p, &v, first, &st, &lost, &e);
        int exact = !predicted; /* what is predicted depends on the height */
        if (r == 0 && exact) {
            es_naive(s, NULL, ids, ES_SEQ, naive);
            double d = from_naive(first);
            worst = d > worst ? d : worst;
        }
        if (r < 0 || lost || (!round && !st.accel.neurons) || !st.accel.passes || (work != PLAN_WORK_FFN && !st.accel.products)) {
            n_bad++;
            printf("# %s: %d %s, lost %d, %llu neurons\n", name, r, r < 0 ? e.msg : "", lost, (unsigned long long)st.accel.neurons);
        }
        for (int i = 0; i < (!own ? 2 : test_short() ? 3 : 6); i++) {
            v = any_variant();
            v.buffered = 1;
            v.hot = tenths;
            v.predict = predicted ? &x : NULL;
            r = run_beside(p, &v, other, &st, &lost, &e);
            if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
                continue;
            int right = r == 0 && !lost && !memcmp(first, other, sizeof first) && (!predicted || all_scored(s, &v, &st));
            if (!right)
                printf("# %d %s, lost %d: threads %d chunk %d depth %d cold %d prefetch %d apart %d dense %d %s\n", r,
                       r < 0 ? e.msg : "", lost, v.threads, v.chunk, v.depth, v.cold, v.prefetch, v.apart, v.dense, v.backend->name);
            same &= right;
        }
        CHECK_MSG(same, "%s, %s: the same bits of each way to run", backend->name, name);
    }
    CHECK_MSG(n_bad == 0 && worst <= 3e-4, "%s, %s: %g from the naive pass", backend->name, name, worst);
    pack_close(p);
    unlink(path);
}

static struct engine_sample sample(enum layout_form form, uint32_t gate, uint32_t down)
{
    return (struct engine_sample){ .form = form, .types = { gate, gate, down }, .cluster = 16, .block = 512, .act = MODEL_ACT_RELU,
                                   .n_ff = 200 };
}

static void test_models(void)
{
    struct engine_sample s = sample(LAYOUT_SPLIT, QUANT_Q8_0, QUANT_F16);
    test_model(&s, NULL, PLAN_WORK_FFN, "split");
    s = sample(LAYOUT_BUNDLE, QUANT_Q4_0, QUANT_Q8_0);
    s.packed = 1;
    s.act = MODEL_ACT_SILU;
    test_model(&s, NULL, PLAN_WORK_HEAD, "bundle, silu, head");
    s = sample(LAYOUT_TWO_PHASE, QUANT_F32, QUANT_Q4_0);
    s.act = MODEL_ACT_DRELU;
    test_model(&s, NULL, PLAN_WORK_ALL, "two-phase, drelu, attention");
    if (TEST_TSAN && backend != &made_up) /* a driver's threads are not instrumented */
        return;
    s = sample(LAYOUT_TILES, QUANT_Q4_0, QUANT_Q6_K);
    s.cluster = 256;
    s.n_ff = 512;
    test_model(&s, NULL, PLAN_WORK_FFN, "tiles");
    s.types[LAYOUT_DOWN] = QUANT_Q8_0;
    s.cluster = 64;
    s.n_ff = 352;
    s.experts = 3;
    s.used = 2;
    s.act = MODEL_ACT_SILU;
    test_model(&s, NULL, PLAN_WORK_FFN, "tiles, the last one short, experts");
    s = sample(LAYOUT_SPLIT, QUANT_Q8_0, QUANT_Q8_0);
    s.n_ff = 72;
    s.experts = 4;
    s.used = 2;
    test_model(&s, NULL, PLAN_WORK_ALL, "experts, attention");
    s = sample(LAYOUT_BUNDLE, QUANT_Q8_0, QUANT_Q8_0);
    s.act = MODEL_ACT_SILU;
    s.thresholds = 1;
    test_model(&s, NULL, PLAN_WORK_FFN, "thresholds");
    const struct es_predict p = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };
    s = sample(LAYOUT_TWO_PHASE, QUANT_Q8_0, QUANT_Q8_0);
    s.rank = 32;
    s.predictor_type = QUANT_Q8_0;
    test_model(&s, &p, PLAN_WORK_FFN, "predicted");
    if (TEST_TSAN)
        return;
    s.n_ff = 2504; /* several ranges of neurons are scored, or none */
    test_model(&s, &p, PLAN_WORK_FFN, "predicted, ranges");
}

/* ---- heights by batch size, and what is in no reach ---- */

static void test_heights(void)
{
    struct engine_sample s = sample(LAYOUT_SPLIT, QUANT_Q8_0, QUANT_F16);
    struct variant v = { .threads = 2, .chunk = 5, .depth = 4, .lanes = 1, .hot = 5, .cold = 10, .buffered = 1,
                         .backend = &io_pread_backend };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    asked = (struct engine_accel_config){ .n_heights = 3, .heights = { { 1, 16, 0, 0, 0 }, { 4, 0, 0.3, 0, 0 }, { 0, 0, 1, 0, 0 } } };
    /* 24 tokens in passes of 5 and one of 4: 5 of the third height, 1 of the second. Of 200 neurons 96 are resident: 0.3 is 60, or 48. */
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.neurons == ES_LAYERS * (4 * 96 + 48) && st.accel.passes == 5);
    v.chunk = 1;
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.neurons == (uint64_t)ES_LAYERS * ES_SEQ * 16);
    v.hot = 0; /* nothing is resident: nothing to do, and no fault */
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.neurons == 0 && !lost);
    struct engine_config c = config(p, &v);
    struct engine *g = NULL;
    CHECK(engine_open(&c, &g, &e) == 0);
    struct accel_info i;
    const char *why;
    CHECK(engine_accel_info(g, &i, &why) == 0 && engine_accel_neurons(g, 1) == 0);
    engine_close(g);
    CHECK(run(p, &v, other, &st, &e) == 0 && !memcmp(first, other, sizeof first)); /* the processor's own bits */
    pack_close(p);
    unlink(path);
}

/* ---- faults ---- */

static void test_faults(enum layout_form form, int experts, const struct es_predict *predicted)
{
    struct engine_sample s = sample(form, QUANT_Q8_0, QUANT_F16);
    struct variant v = { .threads = 2, .chunk = 5, .depth = 4, .lanes = 1, .hot = 6, .cold = 5, .buffered = 1, .prefetch = 1,
                         .backend = &io_pread_backend, .predict = predicted };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost, bad = 0, calls = 1;
    s.experts = experts;
    s.used = experts ? 2 : 0;
    s.n_ff = experts ? 72 : 200;
    s.rank = predicted ? 32 : 0;
    s.predictor_type = QUANT_Q8_0;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    for (int exits = 0; exits < 2; exits++)
        for (int k = 1; k <= calls; k += k < 12 ? 1 : 5) {
            asked = (struct engine_accel_config){ .work = PLAN_WORK_ALL, .n_heights = 1, .heights = { { 0, 0, 0.5, PLAN_WORK_ALL, 0 } },
                                                  .fail_exit = exits };
            seen.calls = seen.closed = 0;
            seen.fail_at = k;
            int r = run_beside(p, &v, first, &st, &lost, &e);
            int right = exits ? r == ERR_IO && strstr(e.msg, "lost") : r == 0 && lost && (predicted || from_naive(first) < 3e-4);
            bad += !right || seen.closed != 1;
            if (!right)
                printf("# call %d: %d %s, lost %d, %g\n", k, r, r < 0 ? e.msg : "", lost, from_naive(first));
            if (k == 1 && !exits) { /* how many there are */
                seen.calls = seen.fail_at = 0;
                CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && !lost);
                calls = seen.calls;
            }
        }
    seen.fail_at = 0;
    seen.refuse = 1;
    asked.fail_exit = 0;
    bad += run_beside(p, &v, first, &st, &lost, &e) != 0 || !lost || st.accel.neurons;
    asked.fail_exit = 1;
    bad += run_beside(p, &v, first, &st, &lost, &e) != ERR_IO;
    seen.refuse = 0;
    CHECK_MSG(bad == 0 && calls > 20, "%d of %d", bad, calls);
    pack_close(p);
    unlink(path);
}

int main(void)
{
    struct err e = { 0 };
    struct accel_device d;
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "test_engine_accel-%d.thermo", (int)getpid());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = (int32_t)(3 + rnd(ES_VOCAB - 3));
    alarm(600);
    test_models();
    test_heights();
    const struct es_predict p = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };
    test_faults(LAYOUT_SPLIT, 0, NULL);
    if (!TEST_TSAN)
        test_faults(LAYOUT_BUNDLE, 4, NULL);
    test_faults(LAYOUT_TWO_PHASE, 0, &p);
    test_path(programs, sizeof programs, "test_engine_accel.XXXXXX");
    if (opencl_backend.list(&d, 1, &e) > 0 && mkdtemp(programs)) {
        char command[8192];
        backend = &opencl_backend;
        test_models();
        snprintf(command, sizeof command, "rm -r '%s'", programs);
        CHECK(system(command) == 0);
    } else {
        printf("ok %d - OpenCL's first device # SKIP there is none\n", ++test_n);
    }
    return test_done();
}
