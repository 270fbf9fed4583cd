/* An engine whose memory changes between passes gives the bits of one whose memory does not: every layout form, with experts, predicted,
 * with any residency before and after; where reads fail meanwhile, too, once they succeed. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <unistd.h>

#define ROUNDS (TEST_TSAN ? 3 : test_short() ? 4 : 16)

static int failed; /* resizes and passes */
static float want[ES_SEQ * ES_VOCAB], got[ES_SEQ * ES_VOCAB];
static uint32_t own_hot[2][64], own_cold[2][16];

static void copy(struct engine_config *c, int to)
{
    memcpy(own_hot[to], hot, sizeof hot);
    memcpy(own_cold[to], cold, sizeof cold);
    c->choice.hot = own_hot[to];
    c->choice.cold = own_cold[to];
}

/* Room for all of it. */
static size_t reserve_of(const struct pack *p, struct budget_choice c)
{
    static uint32_t all[64], slots[16];
    int blocks = model_ffn_blocks(&p->h), parts = p->shapes.kind[0].n_parts;
    struct budget_model m;
    struct budget b;
    struct err e;
    for (int i = 0; i < 64; i++)
        all[i] = (uint32_t)p->h.n_ff;
    for (int i = 0; i < ES_LAYERS * parts; i++)
        slots[i] = layout_of(&p->shapes, i / parts)->part[i % parts].n_units * (uint32_t)blocks;
    c.hot = all;
    c.cold = slots;
    pack_budget_model(p, &m);
    CHECK(budget_compute(&m, &c, &b, &e) == 0);
    return engine_reserve_bytes(&b);
}

static int account_holds(const struct engine *g, const struct pack *p, const struct engine_config *c)
{
    struct budget_model m;
    struct budget b;
    struct err e;
    pack_budget_model(p, &m);
    return budget_compute(&m, &c->choice, &b, &e) == 0 && !memcmp(&b, engine_budget(g), sizeof b);
}

struct faults {
    int armed, calls, at;
};

static int fail_at(void *ctx, const struct io_request *r, int result)
{
    struct faults *f = ctx;
    (void)r;
    return f->armed && __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED) == f->at ? -EIO : result;
}

/* As run(), with other neurons before most passes. */
static int run_resized(const struct pack *p, const struct variant *v, struct faults *f, float *out, struct err *e)
{
    struct engine_config c = config(p, v);
    struct engine *g = NULL;
    int now = 0, r;
    copy(&c, now);
    c.reserve = reserve_of(p, c.choice);
    c.fault = f ? fail_at : NULL;
    c.fault_ctx = f;
    r = engine_open(&c, &g, e);
    for (int at = 0; at < ES_SEQ && r == 0;) {
        struct engine_token t[ES_SEQ];
        int n = ES_SEQ - at < v->chunk ? ES_SEQ - at : v->chunk;
        struct variant other = *v;
        if (rnd(4)) {
            other.hot = rnd(3) ? 11 : (int)rnd(11);
            other.cold = rnd(3) ? 11 : (int)rnd(3) * 5;
            config(p, &other);
            now = !now;
            copy(&c, now);
            if (f)
                *f = (struct faults){ .armed = 1, .at = 1 + (int)rnd(12) };
            r = engine_resize(g, c.choice.hot, c.choice.cold, NULL, e);
            if (f)
                f->armed = rnd(2) != 0;
            failed += r < 0;
            CHECK_MSG(r == 0 || (f && r == ERR_IO), "%d: %s", r, e->msg);
            CHECK(account_holds(g, p, &c) && engine_configuration(g)->choice.hot == c.choice.hot);
        }
        for (int i = 0; i < n; i++)
            t[i] = (struct engine_token){ ids[at + i], 1, at + i };
        r = engine_forward(g, t, n, e);
        for (int i = 0; i < n && r == 0; i++)
            memcpy(out + (at + i) * ES_VOCAB, engine_logits(g, i, 0, e), ES_VOCAB * sizeof *out);
        at += r == 0 ? n : 0;
        if (f && r == ERR_IO) { /* made again, without faults */
            failed++;
            f->armed = r = 0;
        }
    }
    if (g) {
        struct engine_stats st = engine_stats(g);
        CHECK(st.hits <= st.lookups && st.repaired == 0);
    }
    engine_close(g);
    return r;
}

static void test_model(const struct engine_sample *s, const struct es_predict *x, const char *name)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    struct variant v = { .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .buffered = 1, .backend = &io_pread_backend,
                         .predict = x };
    int r = es_pack(path, s, &e);
    alarm(600);
    if (r == 0)
        r = pack_open(path, &p, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    if (r < 0)
        return;
    CHECK_MSG(run(p, &v, want, NULL, &e) == 0, "%s: %s", name, e.msg);
    for (int i = 0; i < ROUNDS; i++) {
        struct faults f = { 0 };
        v = any_variant();
        v.predict = x;
        memset(got, 0, sizeof got);
        r = run_resized(p, &v, i % 3 == 2 ? &f : NULL, got, &e);
        if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
            continue;
        CHECK_MSG(r == 0 && !memcmp(want, got, sizeof want), "%s differs (%d %s): round %d threads %d chunk %d depth %d %s", name, r,
                  r < 0 ? e.msg : "", i, v.threads, v.chunk, v.depth, v.backend->name);
    }
    pack_close(p);
    unlink(path);
}

int main(void)
{
    test_path(path, sizeof path, "thermo-resize-%ld.thermo", (long)getpid());
    kernels_init(cpu_detect());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = i == 0 ? 1 : (int32_t)(3 + rnd(ES_VOCAB - 3));
    for (int form = 0; form < LAYOUT_FORMS; form++)
        for (int experts = 0; experts < 2; experts++) {
            char name[64];
            struct engine_sample s = { .form = (enum layout_form)form, .packed = (form + experts) % 2, .cluster = 16, .block = 512,
                                       .types = { QUANT_F32, QUANT_F32, QUANT_F32 }, .act = MODEL_ACT_RELU, .n_ff = experts ? 72 : 200,
                                       .experts = experts ? 5 : 0, .used = experts ? 2 : 0 };
            if (form == LAYOUT_TILES)
                s.cluster = 32, s.n_ff = experts ? 96 : 224, s.act = MODEL_ACT_SILU;
            snprintf(name, sizeof name, "%s%s", layout_form_name(s.form), experts ? ", experts" : "");
            test_model(&s, NULL, name);
        }
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .always = { 0, 32, 96 } };
    const struct engine_sample s = { .form = LAYOUT_SPLIT, .types = { QUANT_F32, QUANT_F32, QUANT_F32 }, .cluster = 16, .block = 512,
                                     .act = MODEL_ACT_RELU, .n_ff = 304, .rank = 32, .predictor_type = QUANT_Q8_0 };
    test_model(&s, &x, "predicted");
    CHECK(failed > 10);
    return test_done();
}
