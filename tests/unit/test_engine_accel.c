/* An accelerator beside the processor, in every layout: the logits are those of the naive pass within rounding, and for one height the same
 * bits whatever threads, chunks, cache, backend and timing; all heights, experts, predicted mode, other products; each of its calls
 * fails once, and the processor goes on or the pass ends, as was asked. One that is made up here, always; OpenCL's first device where
 * there is one. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "common/model/nn.h"
#include "common/opencl/opencl.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <unistd.h>

/* ---- one that is made up ---- */

static struct {
    int calls, fail_at, closed, refuse; /* the fail_at-th call fails; refuse: allocate does */
} seen;

#define MOST_NEURONS 2560 /* of an FFN */

struct made_up {
    struct accel accel;
    struct { const uint8_t *data; size_t bytes; } piece[512];
    int n_pieces, n, n_products;
    struct accel_need need;
    struct accel_ffn ffn[SCHEDULE_MAX_BLOCKS];
    struct accel_product product[8];
};

static int called(struct err *e)
{
    return ++seen.calls == seen.fail_at ? err_set(e, ERR_IO, "the device is lost") : 0;
}

static int made_list(struct accel_device *out, int most, struct err *e)
{
    (void)out, (void)most, (void)e;
    return 1;
}

static const struct accel_backend made_up;

static int made_open(const struct accel_config *c, struct accel **out, struct err *e)
{
    struct made_up *m = calloc(1, sizeof *m);
    (void)c, (void)e;
    m->accel.backend = &made_up;
    *out = &m->accel;
    return 0;
}

static int made_close(struct accel *a)
{
    free(a);
    seen.closed++;
    return 0;
}

static void made_describe(const struct accel *a, struct accel_info *out)
{
    (void)a;
    *out = (struct accel_info){ .device = { .name = "made up" } };
}

static uint64_t made_buffers(const struct accel *a, const struct accel_need *need)
{
    (void)a, (void)need;
    return 0;
}

static int made_add(struct accel *a, const void *data, size_t bytes, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int last = m->n_pieces - 1;
    if (last >= 0 && (uintptr_t)data < (uintptr_t)m->piece[last].data + m->piece[last].bytes)
        return err_set(e, ERR_LIMIT, "pieces overlap, or do not ascend");
    m->piece[m->n_pieces].data = data;
    m->piece[m->n_pieces++].bytes = bytes;
    return called(e);
}

static int made_allocate(struct accel *a, const struct accel_need *need, struct err *e)
{
    ((struct made_up *)a)->need = *need;
    return seen.refuse ? err_set(e, ERR_LIMIT, "too small") : called(e);
}

/* Where element (row, run) of a matrix begins. */
static const uint8_t *at(const struct accel_matrix *m, int row, int run)
{
    return m->data + (m->group_rows ? (size_t)(row / m->group_rows) * m->group_stride + (size_t)(row % m->group_rows) * m->row_stride
                                    : (size_t)row * m->row_stride) +
           (size_t)run * m->run_stride;
}

static int made_takes(const struct accel *a, const struct accel_matrix *m, int turned)
{
    const struct made_up *x = (const struct made_up *)a;
    int runs = m->run_elems ? (m->n_cols + m->run_elems - 1) / m->run_elems : 1,
        last = m->n_cols - (runs - 1) * (m->run_elems ? m->run_elems : 0);
    const uint8_t *end = at(m, m->n_rows - 1, runs - 1) + quant_row_bytes(m->type, (uint64_t)last);
    (void)turned;
    for (int i = 0; i < x->n_pieces; i++)
        if (m->data >= x->piece[i].data && end <= x->piece[i].data + x->piece[i].bytes)
            return 1;
    return 0;
}

static void row_of(const struct accel_matrix *m, int row, float *out)
{
    for (int c = 0, run = 0, n; c < m->n_cols; c += n, run++) {
        n = m->run_elems && m->n_cols - c > m->run_elems ? m->run_elems : m->n_cols - c;
        quant_traits(m->type)->dequant(out + c, at(m, row, run), (size_t)n);
    }
}

static void multiply(const struct accel_matrix *m, const float *in, float *out)
{
    float w[MOST_NEURONS];
    for (int r = 0; r < m->n_rows; r++) {
        row_of(m, r, w);
        out[r] = 0;
        for (int c = 0; c < m->n_cols; c++)
            out[r] += w[c] * in[c];
    }
}

static void compute(const struct accel_ffn *f)
{
    float gate[MOST_NEURONS], up[MOST_NEURONS], w[MOST_NEURONS];
    int n = f->gate.n_rows, d = f->gate.n_cols;
    for (int t = 0; t < f->n_tokens; t++) {
        float *out = f->out + t * d;
        multiply(&f->gate, f->in + t * d, gate);
        multiply(&f->up, f->in + t * d, up);
        for (int i = 0; i < n; i++) {
            gate[i] += f->gate_bias ? f->gate_bias[i] : 0;
            up[i] += f->up_bias ? f->up_bias[i] : 0;
        }
        if (f->silence)
            nn_silence(gate, f->silence, n, f->act);
        nn_ffn_act(gate, gate, up, n, f->act);
        if (!f->turned) {
            multiply(&f->down, gate, out);
            continue;
        }
        memset(out, 0, (size_t)d * sizeof *out);
        for (int i = 0; i < n; i++) {
            row_of(&f->down, i, w);
            for (int c = 0; c < d; c++)
                out[c] += gate[i] * w[c];
        }
    }
}

static int made_ffn(struct accel *a, const struct accel_ffn *f, int n, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int tokens = 0;
    for (int i = 0; i < n; i++)
        tokens += f[i].n_tokens;
    if (tokens > m->need.tokens)
        return err_set(e, ERR_LIMIT, "%d tokens", tokens);
    memcpy(m->ffn, f, (size_t)n * sizeof *f);
    m->n = n;
    return called(e);
}

static int made_products(struct accel *a, const struct accel_product *p, int n, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    uint64_t in = 0, out = 0;
    for (int i = 0; i < n; i++) {
        in += i ? 0 : (uint64_t)p[i].n_tokens * (uint64_t)p[i].m.n_cols;
        out += (uint64_t)p[i].n_tokens * (uint64_t)p[i].m.n_rows;
    }
    if (in > m->need.inputs || out > m->need.outputs)
        return err_set(e, ERR_LIMIT, "products");
    memcpy(m->product, p, (size_t)n * sizeof *p);
    m->n_products = n;
    return called(e);
}

static int made_wait(struct accel *a, int (*meanwhile)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    struct made_up *m = (struct made_up *)a;
    int r = called(e);
    for (int i = 0; i < m->n && r == 0; i++)
        compute(&m->ffn[i]);
    for (int i = 0; i < m->n_products && r == 0; i++)
        for (int t = 0; t < m->product[i].n_tokens; t++)
            multiply(&m->product[i].m, m->product[i].in + (size_t)t * (size_t)m->product[i].m.n_cols,
                     m->product[i].out + (size_t)t * (size_t)m->product[i].m.n_rows);
    m->n = m->n_products = 0;
    return r == 0 && meanwhile ? meanwhile(ctx, e) : r;
}

static const struct accel_backend made_up = {
    .name = "made up", .list = made_list, .open = made_open, .close = made_close, .describe = made_describe, .buffers = made_buffers,
    .add = made_add, .allocate = made_allocate, .takes = made_takes, .ffn = made_ffn, .products = made_products, .wait = made_wait,
};

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
        asked = (struct engine_accel_config){ .work = work, .n_heights = 1, .heights = { { 0, 0, round == 1 ? 0.3 : 1, work } } };
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
        for (int i = 0; i < (!own ? 2 : TEST_SANITIZER ? 3 : 6); i++) {
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
    asked = (struct engine_accel_config){ .n_heights = 3, .heights = { { 1, 16, 0, 0 }, { 4, 0, 0.3, 0 }, { 0, 0, 1, 0 } } };
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
            asked = (struct engine_accel_config){ .work = PLAN_WORK_ALL, .n_heights = 1, .heights = { { 0, 0, 0.5, PLAN_WORK_ALL } },
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
