/* Whole layers on an accelerator: the rest of each FFN, read into an area piece by piece. In every layout the logits are those of the naive
 * pass within rounding, and for one height and area the same bits whatever threads, chunks, cache, back end and timing; heights beside it,
 * gates that are resident alone, areas that are too small, reads that fail or are damaged, every call of the accelerator failing once. One
 * that is made up, always; OpenCL's first device where there is one. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/opencl/opencl.h"
#include "common/plan/rest.h"
#include "tests/accel_made_up.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

static const struct accel_backend *backend = &made_up;
static float first[ES_SEQ * ES_VOCAB], other[ES_SEQ * ES_VOCAB];
static double naive[ES_SEQ * ES_VOCAB];
static struct engine_accel_config asked;
static uint64_t area;
static int more_gates;      /* clusters of gates that are resident beyond Up and Down */
static int exact;           /* passes of predicted mode without predictions */
static char programs[4096]; /* folder */
static atomic_int armed;           /* what was read at start is not to fail */
static int (*read_fault)(void *ctx, const struct io_request *r, int result);

/* ---- pieces ---- */

/* They follow each other from the first neuron of the rest to the last, each within its slot; a part is read whole or not at all. */
static void test_pieces(void)
{
    int bad = 0, many = 0, n = TEST_CASES(400);
    for (int k = 0; k < n; k++) {
        enum layout_form form = (enum layout_form)rnd(LAYOUT_FORMS);
        const uint32_t q8[] = { QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0 };
        struct layout l;
        struct layout_shapes s;
        struct err e;
        uint32_t hot_of[LAYOUT_MAX_PARTS];
        layout_default(&l, form, q8);
        l.packed = (int)rnd(2);
        l.block_bytes = 512u << rnd(6);
        l.cluster_neurons = 32u << rnd(4);
        int n_ff = 32 * (1 + (int)rnd(40));
        if (layout_derive(&l, 64 << rnd(3), n_ff, &s, &e) < 0)
            continue;
        const struct layout_shape *one = &s.kind[0];
        for (int p = 0; p < one->n_parts; p++) {
            hot_of[p] = rnd((uint32_t)n_ff + 1) / l.cluster_neurons * l.cluster_neurons;
            hot_of[p] = rnd(5) ? hot_of[p] : (uint32_t)n_ff;
        }
        uint64_t least = rest_least_area(&s), bytes = least + rnd(1 << 18);
        uint32_t most = rest_piece_neurons(one, bytes), at = rest_first(one, hot_of), least_hot = (uint32_t)n_ff;
        struct rest_piece x;
        for (int p = 0; p < one->n_parts; p++)
            least_hot = hot_of[p] < least_hot ? hot_of[p] : least_hot;
        bad += least % REST_PAGE || !most || at > least_hot || rest_piece_neurons(one, least - REST_SLOTS * REST_PAGE) > most;
        for (int pieces = 0; rest_piece_at(one, hot_of, most, at, &x); at += x.n, pieces++) {
            bad += x.first != at || !x.n || x.n > most || rest_piece_bytes(one, x.n) > rest_slot_bytes(one, bytes);
            for (int p = 0; p < one->n_parts; p++)
                bad += x.read[p] ? hot_of[p] > at : hot_of[p] < at + x.n;
            many += pieces > 2;
        }
        bad += at != (uint32_t)n_ff;
    }
    CHECK_MSG(bad == 0 && many > n / 4, "%d bad, %d further pieces of %d FFNs", bad, many, n);
}

/* ---- models ---- */

static int run_beside(const struct pack *p, const struct variant *v, float *out, struct engine_stats *st, int *lost, struct err *e)
{
    uint32_t types[] = { QUANT_F32, p->shapes.l.type[0][LAYOUT_GATE], p->shapes.l.type[0][LAYOUT_DOWN] };
    const struct accel_config open = { .device = -1, .cache = programs, .types = types, .n_types = 3 };
    struct engine_config c = config(p, v);
    struct engine *g = NULL;
    struct accel_info info;
    const char *why = NULL;
    c.accel = asked;
    c.choice.area_bytes = area;
    c.fault = read_fault;
    armed = 0;
    for (int l = 0; l < ES_LAYERS && p->shapes.n_parts > 1; l++) {
        uint32_t *gates = &hot[l * p->shapes.n_parts], n = *gates + (uint32_t)more_gates * p->shapes.l.cluster_neurons;
        *gates = n < (uint32_t)p->h.n_ff ? n : (uint32_t)p->h.n_ff;
    }
    int r = backend->open(&open, &c.accel.accel, e);
    if (r == 0)
        r = engine_open(&c, &g, e);
    armed = 1;
    for (int i = 0; i < ES_SEQ && r == 0; i += v->chunk) {
        struct engine_token t[ES_SEQ];
        int n = ES_SEQ - i < v->chunk ? ES_SEQ - i : v->chunk;
        for (int k = 0; k < n; k++)
            t[k] = (struct engine_token){ ids[i + k], 1, i + k };
        r = (exact ? engine_forward_exact : engine_forward)(g, t, n, e);
        if (r == ERR_IO && read_fault && !asked.fail_exit) { /* the drive has recovered: once more */
            read_fault = NULL;
            r = (exact ? engine_forward_exact : engine_forward)(g, t, n, e);
        }
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

/* Neurons that are not resident in every part, of all layers. */
static uint64_t rest_of(const struct engine_sample *s, int tenths)
{
    uint32_t n = (uint32_t)(s->n_ff * tenths / 10);
    n = n == (uint32_t)s->n_ff ? n : n / s->cluster * s->cluster;
    return (uint64_t)ES_LAYERS * ((uint64_t)s->n_ff - n);
}

static double from_naive(const float *v)
{
    double worst = worst_difference(v, naive);
    return isfinite(worst) ? worst : 1e9;
}

static void test_model(const struct engine_sample *s, const char *name)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st = { 0 };
    int r = es_pack(path, s, &e), lost = 0, own = backend == &made_up, n_bad = 0, same = 1;
    double worst = 0;
    if (r == 0)
        r = pack_open(path, &p, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    if (r < 0)
        return;
    es_naive(s, NULL, ids, ES_SEQ, naive);
    for (int round = 0; round < (own && !TEST_TSAN ? 3 : 2); round++) {
        struct variant v = any_variant();
        int tenths = round ? 3 + (int)rnd(4) : 0;
        v.hot = tenths;
        v.buffered = 1;
        more_gates = (int)rnd(4);
        area = rest_least_area(&p->shapes) + rnd(3) * REST_SLOTS * REST_PAGE;
        asked = (struct engine_accel_config){ .n_heights = 1, .heights = { { 0, 0, round == 1 ? 0.3 : 1, PLAN_WORK_FFN, 1 } } };
        r = run_beside(p, &v, first, &st, &lost, &e);
        double d = from_naive(first);
        worst = d > worst ? d : worst;
        if (r < 0 || lost || st.accel.rest_neurons != rest_of(s, tenths) * st.passes) {
            n_bad++;
            printf("# %s: %d %s, lost %d, %llu neurons\n", name, r, r < 0 ? e.msg : "", lost, (unsigned long long)st.accel.rest_neurons);
        }
        for (int i = 0; i < (!own ? 2 : test_short() ? 3 : 6); i++) {
            v = any_variant();
            v.buffered = i > 0;
            v.hot = tenths;
            r = run_beside(p, &v, other, &st, &lost, &e);
            if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
                continue;
            int right = r == 0 && !lost && !memcmp(first, other, sizeof first) && st.accel.rest_neurons == rest_of(s, tenths) * st.passes;
            if (!right)
                printf("# %d %s, lost %d: threads %d chunk %d depth %d cold %d prefetch %d apart %d dense %d %s\n", r,
                       r < 0 ? e.msg : "", lost, v.threads, v.chunk, v.depth, v.cold, v.prefetch, v.apart, v.dense, v.backend->name);
            same &= right;
        }
    }
    CHECK_MSG(same, "%s, %s: the same bits of each way to run", backend->name, name);
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
    test_model(&s, "split");
    s.packed = 1;
    test_model(&s, "split, packed");
    s = sample(LAYOUT_BUNDLE, QUANT_Q4_0, QUANT_Q8_0);
    s.act = MODEL_ACT_SILU;
    test_model(&s, "bundle, silu");
    s = sample(LAYOUT_TWO_PHASE, QUANT_F32, QUANT_Q4_0);
    s.act = MODEL_ACT_DRELU;
    test_model(&s, "two-phase, drelu");
    if (TEST_TSAN && backend != &made_up) /* a driver's threads are not instrumented */
        return;
    s = sample(LAYOUT_TILES, QUANT_Q4_0, QUANT_Q6_K);
    s.cluster = 256;
    s.n_ff = 512;
    test_model(&s, "tiles");
    s.types[LAYOUT_DOWN] = QUANT_Q8_0;
    s.cluster = 64;
    s.n_ff = 352;
    s.act = MODEL_ACT_SILU;
    test_model(&s, "tiles, the last one short");
    s.packed = 1;
    test_model(&s, "tiles, packed");
    s = sample(LAYOUT_BUNDLE, QUANT_Q8_0, QUANT_Q8_0);
    s.act = MODEL_ACT_SILU;
    s.thresholds = 1;
    test_model(&s, "thresholds");
}

/* ---- who has the rest ---- */

static void test_choices(void)
{
    struct engine_sample s = sample(LAYOUT_SPLIT, QUANT_Q8_0, QUANT_F16);
    struct variant v = { .threads = 2, .chunk = 5, .depth = 4, .lanes = 1, .hot = 5, .cold = 10, .buffered = 1,
                         .backend = &io_pread_backend };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    more_gates = 0;
    area = rest_least_area(&p->shapes);
    asked = (struct engine_accel_config){ .n_heights = 2, .heights = { { 4, 0, 1, 0, 0 }, { 0, 0, 0, 0, 1 } } };
    /* 24 tokens in passes of 5 and one of 4, which is the processor's but for 96 resident neurons of 200 */
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons == ES_LAYERS * 4 * 104 &&
          st.accel.neurons == ES_LAYERS * (4 * 104 + 96));
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    CHECK_MSG(from_naive(first) < 3e-4, "large passes alone: %g", from_naive(first));
    area -= REST_SLOTS * REST_PAGE; /* no cluster fits a slot: the processor has it */
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons == 0 && !lost && from_naive(first) < 3e-4);
    area = 0;
    CHECK(run_beside(p, &v, other, &st, &lost, &e) == 0 && st.accel.rest_neurons == 0 && !memcmp(first, other, sizeof first));
    area = rest_least_area(&p->shapes);
    v.hot = 10; /* there is no rest */
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons == 0 && !lost && from_naive(first) < 3e-4);
    pack_close(p);
    unlink(path);
}

/* Passes that predict leave nothing to it that they may not need; those that compute every gate do. */
static void test_predicted(void)
{
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };
    struct engine_sample s = sample(LAYOUT_TWO_PHASE, QUANT_Q8_0, QUANT_Q8_0);
    struct variant v = { .threads = 2, .chunk = 7, .depth = 4, .lanes = 1, .hot = 3, .cold = 10, .buffered = 1, .prefetch = 1,
                         .streamed = 5, .backend = &io_pread_backend, .predict = &x };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost;
    s.rank = 32;
    s.predictor_type = QUANT_Q8_0;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    area = rest_least_area(&p->shapes);
    asked = (struct engine_accel_config){ .n_heights = 1, .heights = { { 0, 0, 1, 0, 1 } } };
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons == 0 && st.neurons_scored > 0);
    exact = 1;
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons == rest_of(&s, 3) * st.passes);
    CHECK_MSG(from_naive(first) < 3e-4, "a prompt of predicted mode: %g", from_naive(first));
    exact = 0;
    pack_close(p);
    unlink(path);
}

/* ---- faults ---- */

static void test_faults(enum layout_form form)
{
    struct engine_sample s = sample(form, QUANT_Q8_0, QUANT_F16);
    struct variant v = { .threads = 2, .chunk = 9, .depth = 3, .lanes = 1, .hot = 4, .cold = 5, .buffered = 1, .prefetch = 1,
                         .backend = &io_delay_backend };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost, bad = 0, calls = 1;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    more_gates = 1;
    area = rest_least_area(&p->shapes);
    for (int exits = 0; exits < 2; exits++)
        for (int k = 1; k <= calls; k += k < 40 ? 1 : 7) {
            asked = (struct engine_accel_config){ .work = PLAN_WORK_ALL, .n_heights = 1, .heights = { { 0, 0, 0.5, PLAN_WORK_ALL, 1 } },
                                                  .fail_exit = exits };
            seen.calls = seen.closed = 0;
            seen.fail_at = k;
            int r = run_beside(p, &v, first, &st, &lost, &e);
            int right = exits ? r == ERR_IO && strstr(e.msg, "lost") : r == 0 && lost && from_naive(first) < 3e-4;
            bad += !right || seen.closed != 1;
            if (!right)
                printf("# call %d: %d %s, lost %d, %g\n", k, r, r < 0 ? e.msg : "", lost, from_naive(first));
            if (k == 1 && !exits) { /* how many there are */
                seen.calls = seen.fail_at = 0;
                CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && !lost && st.accel.rest_neurons > 0);
                calls = seen.calls;
            }
        }
    seen.fail_at = 0;
    CHECK_MSG(bad == 0 && calls > 60, "%d of %d", bad, calls);
    pack_close(p);
    unlink(path);
}

static int read_at;
static atomic_int reads;

/* The read that was asked for fails. */
static int fails(void *ctx, const struct io_request *r, int result)
{
    (void)ctx, (void)r;
    return armed && ++reads == read_at ? -EIO : result;
}

/* What a read brought is damaged on the way. */
static int damages(void *ctx, const struct io_request *r, int result)
{
    (void)ctx;
    if (armed && ++reads % 3 == 0 && result > 0)
        r->buf[r->done] ^= 4;
    return result;
}

static void test_reads(void)
{
    struct engine_sample s = sample(LAYOUT_BUNDLE, QUANT_Q8_0, QUANT_Q8_0);
    struct variant v = { .threads = 2, .chunk = 9, .depth = 4, .lanes = 1, .hot = 4, .cold = 5, .buffered = 1, .prefetch = 1, .empty = 1,
                         .backend = &io_pread_backend };
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    int lost, bad = 0, failed = 0;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    area = rest_least_area(&p->shapes);
    asked = (struct engine_accel_config){ .n_heights = 1, .heights = { { 0, 0, 1, 0, 1 } } };
    CHECK(run_beside(p, &v, first, &st, &lost, &e) == 0 && st.accel.rest_neurons > 0);
    for (read_at = 1; read_at < 60; read_at++) {
        reads = 0;
        read_fault = fails;
        int r = run_beside(p, &v, other, &st, &lost, &e);
        failed += !read_fault;
        int right = r == 0 && !lost && !memcmp(first, other, sizeof first);
        if (!right)
            printf("# read %d: %d %s, lost %d\n", read_at, r, r < 0 ? e.msg : "", lost);
        bad += !right;
    }
    CHECK_MSG(bad == 0 && failed > 20, "%d of %d reads that failed", bad, failed);
    asked.fail_exit = 1; /* says nothing about storage */
    reads = 0;
    read_at = 12;
    read_fault = fails;
    CHECK(run_beside(p, &v, other, &st, &lost, &e) == ERR_IO && !strstr(e.msg, "lost"));
    reads = 0;
    read_fault = damages;
    CHECK(run_beside(p, &v, other, &st, &lost, &e) == 0 && st.repaired > 0 && !memcmp(first, other, sizeof first));
    read_fault = NULL;
    pack_close(p);
    unlink(path);
}

/* gcc 12's leak detector takes a part of the heap for thread-local storage of the driver's libraries, and dies of it: it looks at none. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "use_tls=0";
}

int main(void)
{
    struct err e = { 0 };
    struct accel_device d;
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "test_engine_rest-%d.thermo", (int)getpid());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = (int32_t)(3 + rnd(ES_VOCAB - 3));
    alarm(600);
    test_pieces();
    test_models();
    test_choices();
    test_predicted();
    test_faults(LAYOUT_SPLIT);
    if (!TEST_TSAN)
        test_faults(LAYOUT_BUNDLE);
    test_reads();
    test_path(programs, sizeof programs, "test_engine_rest.XXXXXX");
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
