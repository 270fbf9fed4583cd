/* The engine against a naive forward pass, and against itself: the same bits whatever the residency, threads,
 * chunks, queue depth, backend, delays and mode; errors of reads end in ERR_IO and never in a hang. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <unistd.h>

/* Random ways to run each model. */
#define ROUNDS (TEST_TSAN ? 6 : test_short() ? 5 : 24)

static float first[ES_SEQ * ES_VOCAB], other[ES_SEQ * ES_VOCAB];
static double naive[ES_SEQ * ES_VOCAB];

static void test_model(const struct engine_sample *s, const char *name, double tolerance)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine_stats st;
    struct variant v = { .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .buffered = 1, .backend = &io_pread_backend };
    alarm(600);
    int r = es_pack(path, s, &e);
    if (r == 0)
        r = pack_open(path, &p, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    if (r < 0)
        return;
    r = run(p, &v, first, &st, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    es_naive(s, NULL, ids, ES_SEQ, naive);
    double d = worst_difference(first, naive);
    CHECK_MSG(d <= tolerance, "%s: %g", name, d);
    CHECK(st.reads == 0 && st.neurons_hot > 0); /* everything is resident */
    printf("# %s: %g from the naive pass\n", name, d);
    int same = 1;
    for (int i = 0; i < ROUNDS; i++) {
        v = any_variant();
        memset(other, 0, sizeof other);
        r = run(p, &v, other, &st, &e);
        if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
            continue;
        if (r < 0 || memcmp(first, other, sizeof first)) {
            same = 0;
            printf("# %s differs (%d %s): threads %d chunk %d depth %d hot %d cold %d prefetch %d apart %d dense %d %s\n",
                   name, r, r < 0 ? e.msg : "", v.threads, v.chunk, v.depth, v.hot, v.cold, v.prefetch, v.apart, v.dense,
                   v.backend->name);
        }
    }
    CHECK_MSG(same, "%s", name);
    pack_close(p);
    unlink(path);
}

static struct engine_sample sample(enum layout_form form, int packed, uint32_t gate, uint32_t down)
{
    return (struct engine_sample){ .form = form,
                                   .packed = packed,
                                   .types = { gate, gate, down },
                                   .cluster = 16,
                                   .block = 512,
                                   .act = MODEL_ACT_RELU,
                                   .n_ff = 200 };
}

static void test_experts(void)
{
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    s.n_ff = 72;
    s.experts = 5;
    s.used = 2;
    test_model(&s, "experts", 2e-4);
}

/* Layers whose gate, up and down differ in types, and so in the sizes of records and units. */
static void test_mixed(enum layout_form form)
{
    char name[64];
    struct engine_sample s = sample(form, form == LAYOUT_BUNDLE, QUANT_Q8_0, QUANT_F16);
    s.mixed = 1;
    s.odd_types[LAYOUT_GATE] = QUANT_Q4_0;
    s.odd_types[LAYOUT_UP] = QUANT_F32;
    s.odd_types[LAYOUT_DOWN] = QUANT_Q4_0;
    if (form == LAYOUT_TILES) /* of 32 neurons in odd layers */
        s.cluster = 96, s.n_ff = 224;
    snprintf(name, sizeof name, "mixed types, %s", layout_form_name(form));
    test_model(&s, name, 2e-4);
    s.act = MODEL_ACT_SILU;
    s.n_ff = form == LAYOUT_TILES ? 96 : 72;
    s.experts = 4;
    s.used = 2;
    snprintf(name, sizeof name, "mixed types, experts, silu, %s", layout_form_name(form));
    test_model(&s, name, 2e-4);
}

/* Tiles of 256 and of 64 neurons, the last of an FFN a smaller one, of types that differ, with experts. */
static void test_tiles(void)
{
    static const uint32_t types[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_MXFP4, QUANT_Q4_K, QUANT_Q6_K };
    struct engine_sample s = sample(LAYOUT_TILES, 0, QUANT_Q4_0, QUANT_Q6_K);
    char name[64];
    s.cluster = 256;
    s.n_ff = 512;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        s.types[LAYOUT_DOWN] = types[i];
        s.packed = i % 2;
        snprintf(name, sizeof name, "tiles, %s", quant_traits(types[i])->name);
        test_model(&s, name, 2e-4);
    }
    s.mixed = 1;
    memcpy(s.odd_types, (uint32_t[]){ QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_0 }, sizeof s.odd_types);
    test_model(&s, "tiles of Q6_K and of Q5_0", 2e-4);
    s.types[LAYOUT_DOWN] = QUANT_Q8_0;
    s.n_ff = 352;
    test_model(&s, "a tile of 256 and one of 96", 2e-4);
    s.cluster = 192;
    test_model(&s, "five tiles of 64 and one of 32", 2e-4);
    s.act = MODEL_ACT_SILU;
    s.experts = 3;
    s.used = 2;
    test_model(&s, "tiles, experts, silu", 2e-4);
}

/* Reads of several units, between which lie some that come by themselves, for they were read ahead. The seed gives shares of residency
 * with which every other round met that. */
static void test_gaps(void)
{
    struct engine_sample s = sample(LAYOUT_TILES, 0, QUANT_Q4_0, QUANT_Q8_0);
    struct variant v = { .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .buffered = 1, .backend = &io_pread_backend };
    struct err e;
    struct pack *p;
    s.act = MODEL_ACT_SILU;
    s.cluster = 192;
    s.n_ff = 352;
    s.experts = 3;
    s.used = 2;
    s.mixed = 1;
    memcpy(s.odd_types, (uint32_t[]){ QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_0 }, sizeof s.odd_types);
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    CHECK(run(p, &v, first, NULL, &e) == 0);
    int same = 1, rounds = TEST_TSAN ? 10 : 40;
    for (int i = 0; i < rounds; i++) {
        seed = 3849410990;
        v = any_variant();
        same &= run(p, &v, other, NULL, &e) == 0 && !memcmp(first, other, sizeof first);
    }
    CHECK(same && v.coalesce && v.prefetch && v.backend == &io_delay_backend);
    pack_close(p);
    unlink(path);
}

/* As test_q8, and in tiles. */
static void test_tiles_q8(void)
{
    struct err e;
    struct pack *p;
    struct engine_sample s = sample(LAYOUT_TILES, 1, QUANT_Q8_0, QUANT_Q4_K);
    struct variant v = { .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .act_q8 = 1, .backend = &io_pread_backend };
    s.n_ff = 512;
    s.cluster = 256;
    s.mixed = 1;
    memcpy(s.odd_types, (uint32_t[]){ QUANT_Q8_0, QUANT_Q4_0, QUANT_Q8_0 }, sizeof s.odd_types);
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    CHECK(run(p, &v, first, NULL, &e) == 0);
    double d = worst_difference(first, naive);
    CHECK_MSG(d > 0 && d < 0.5, "%g", d);
    int same = 1;
    for (int i = 0; i < ROUNDS; i++) {
        v = any_variant();
        v.act_q8 = 1;
        int r = run(p, &v, other, NULL, &e);
        same &= (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend) || (r == 0 && !memcmp(first, other, sizeof first));
    }
    CHECK(same);
    struct engine *g = NULL;
    struct engine_config c = config(p, &v);
    c.mode = PLAN_EXACT;
    CHECK(engine_open(&c, &g, &e) == ERR_UNSUPPORTED && strstr(e.msg, "tiles"));
    pack_close(p);
    unlink(path);
}

/* Int8 activations: their own bits, again the same everywhere; near the float ones. */
static void test_q8(void)
{
    struct err e;
    struct pack *p;
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_Q8_0, QUANT_Q8_0);
    struct variant v = {
        .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .act_q8 = 1, .backend = &io_pread_backend
    };
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    es_naive(&s, NULL, ids, ES_SEQ, naive);
    CHECK(run(p, &v, first, NULL, &e) == 0);
    double d = worst_difference(first, naive);
    CHECK_MSG(d > 0 && d < 0.2, "%g", d);
    v = (struct variant){ .threads = 2,
                          .chunk = 7,
                          .depth = 2,
                          .lanes = 1,
                          .hot = 3,
                          .cold = 3,
                          .act_q8 = 1,
                          .backend = &io_delay_backend };
    CHECK(run(p, &v, other, NULL, &e) == 0 && !memcmp(first, other, sizeof first));
    v.kv_type = KV_F16;
    v.act_q8 = 0;
    CHECK(run(p, &v, other, NULL, &e) == 0 && worst_difference(other, naive) < 0.02);
    pack_close(p);
    unlink(path);
}

/* Two sequences in one pass give each what it gives alone. */
static void test_batch(void)
{
    struct err e;
    struct pack *p;
    struct engine *g;
    struct engine_sample s = sample(LAYOUT_TWO_PHASE, 0, QUANT_F16, QUANT_F16);
    struct variant v = { .threads = 2,
                         .chunk = 1,
                         .depth = 3,
                         .lanes = 1,
                         .hot = 2,
                         .cold = 2,
                         .backend = &io_delay_backend,
                         .prefetch = 1 };
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    CHECK(run(p, &v, first, NULL, &e) == 0); /* ids, one sequence */
    struct engine_config c = config(p, &v);
    CHECK(engine_open(&c, &g, &e) == 0);
    int same = 1;
    for (int i = 0; i < ES_SEQ; i++) {
        const struct engine_token t[2] = { { ids[i], 0, i }, { i == 0 ? ids[0] : ids[ES_SEQ - i], 1, i } };
        CHECK(engine_forward(g, t, 2, &e) == 0);
        same &= !memcmp(engine_logits(g, 0, 0, &e), first + i * ES_VOCAB, ES_VOCAB * sizeof *first);
        if (i == 0)
            same &= !memcmp(engine_logits(g, 1, 1, &e), first, ES_VOCAB * sizeof *first);
    }
    CHECK(same);
    struct engine_token bad = { ES_VOCAB, 0, 0 };
    CHECK(engine_forward(g, &bad, 1, &e) == ERR_USAGE);
    bad = (struct engine_token){ 1, 0, ES_CTX };
    CHECK(engine_forward(g, &bad, 1, &e) == ERR_LIMIT);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* A cold cache with room for everything is filled before the first token, whatever the layout; the first tokens of a smaller
 * one hit it; filled or not, the bits are the same. */
static void test_warm_start(void)
{
    struct err e;
    for (int form = 0; form < LAYOUT_FORMS * 2; form += TEST_TSAN ? 5 : 1) {
        struct pack *p;
        struct engine_sample s = sample((enum layout_form)(form % LAYOUT_FORMS), 0, QUANT_F32, QUANT_F32);
        struct engine_stats full = { 0 }, half = { 0 }, empty = { 0 };
        struct variant v = { .threads = 2, .chunk = 1, .depth = 1, .lanes = 1, .hot = 2, .cold = 10,
                             .buffered = form % LAYOUT_FORMS != LAYOUT_TWO_PHASE, .backend = &io_pread_backend };
        if (form >= LAYOUT_FORMS) {
            s.n_ff = 72;
            s.experts = 5;
            s.used = 2;
        }
        if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
            CHECK(!"pack");
            return;
        }
        CHECK(run(p, &v, first, &full, &e) == 0 && full.reads == 0 && full.hits == full.lookups && full.hits > 0);
        v.cold = 5;
        CHECK(run(p, &v, other, &half, &e) == 0 && !memcmp(first, other, sizeof first));
        v.empty = 1;
        CHECK(run(p, &v, other, &empty, &e) == 0 && !memcmp(first, other, sizeof first));
        CHECK_MSG(half.reads > 0 && half.hits > empty.hits, "%llu and %llu hits", (unsigned long long)half.hits,
                  (unsigned long long)empty.hits);
        pack_close(p);
        unlink(path);
    }
}

/* Experts that are read ahead: the same bits and hits as without, on every back end; what was not needed leaves no trace. */
static void test_expert_prefetch(void)
{
    static const struct io_backend *const backends[] = { &io_pread_backend, &io_delay_backend };
    struct err e;
    struct pack *p;
    struct engine_sample s = sample(LAYOUT_TILES, 0, QUANT_Q4_0, QUANT_Q8_0);
    s.act = MODEL_ACT_SILU;
    s.cluster = 64;
    s.n_ff = 192;
    s.experts = 8;
    s.used = 2;
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    for (int i = 0; i < (test_short() ? 6 : 12); i++) {
        struct variant v = { .threads = 1 + i % 3, .chunk = 1, .depth = 1 + i % 5, .lanes = 1 + i % 2, .cold = 6 + i % 3,
                             .policy = i % 2 ? CACHE_LFU : CACHE_LRU, .buffered = i % 3 != 2,
                             .backend = backends[i % 2] };
        struct engine_stats without = { 0 }, with = { 0 };
        CHECK(run(p, &v, first, &without, &e) == 0 && !without.prefetched && without.reads > 0);
        v.prefetch = 1;
        CHECK(run(p, &v, other, &with, &e) == 0 && !memcmp(first, other, sizeof first));
        CHECK_MSG(with.prefetched > 0 && with.prefetches_used <= with.prefetched && with.lookups == without.lookups &&
                      with.hits <= with.lookups,
                  "%llu prefetched, %llu used", (unsigned long long)with.prefetched, (unsigned long long)with.prefetches_used);
        if (i == 0)
            printf("# %llu prefetched, %llu used, %llu reads, %llu without\n", (unsigned long long)with.prefetched,
                   (unsigned long long)with.prefetches_used, (unsigned long long)with.reads, (unsigned long long)without.reads);
    }
    pack_close(p);
    unlink(path);
}

/* Layers so wide that a worker sums whole rows of Down while others compute neurons. */
static void test_wide(void)
{
    struct err e;
    for (int form = 0; form < LAYOUT_FORMS; form += TEST_TSAN ? LAYOUT_TILES : 1) {
        struct pack *p;
        struct engine_sample s = sample((enum layout_form)form, 0, QUANT_F32, QUANT_F32);
        struct engine_stats st = { 0 };
        struct variant v = { .threads = 1, .chunk = ES_SEQ, .depth = 8, .lanes = 1, .hot = 10, .buffered = 1,
                             .backend = &io_pread_backend };
        s.n_ff = 8192;
        s.cluster = 128;
        if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
            CHECK(!"pack");
            return;
        }
        CHECK(run(p, &v, first, &st, &e) == 0 && st.reads == 0);
        int same = 1;
        for (v.threads = 2; v.threads <= 3; v.threads++)
            for (v.hot = 8; v.hot <= 10; v.hot += 2)
                for (v.dense = 0; v.dense < 2; v.dense++) {
                    v.chunk = v.dense ? ES_SEQ : 1;
                    same &= run(p, &v, other, &st, &e) == 0 && !memcmp(first, other, sizeof first);
                }
        CHECK_MSG(same, "%s", layout_form_name((enum layout_form)form));
        pack_close(p);
        unlink(path);
    }
}

/* Reads through gaps: the bits stay, there are fewer and larger reads, and where all units are missing each but a block's
 * last is as long as its join. */
static void test_joins(void)
{
    struct err e;
    for (int form = 0; form < LAYOUT_FORMS; form++) {
        struct pack *p;
        struct engine_sample s = sample((enum layout_form)form, 0, QUANT_F32, QUANT_F32);
        struct engine_stats one = { 0 }, joined = { 0 }, all = { 0 };
        struct variant v = { .threads = 2, .chunk = 1, .depth = 3, .lanes = 1, .buffered = 1, .backend = &io_pread_backend };
        if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
            CHECK(!"pack");
            return;
        }
        CHECK(run(p, &v, first, &one, &e) == 0 && one.reads > 0); /* bundles, run exactly, are all read */
        v.coalesce = 4;
        CHECK(run(p, &v, other, &joined, &e) == 0 && !memcmp(first, other, sizeof first));
        CHECK_MSG(p->shapes.n_parts == 1 ? joined.reads == one.reads : joined.reads < one.reads, "%s: %llu and %llu reads",
                  layout_form_name((enum layout_form)form), (unsigned long long)joined.reads, (unsigned long long)one.reads);
        v.dense = 1;
        CHECK(run(p, &v, other, &all, &e) == 0 && !memcmp(first, other, sizeof first));
        const struct layout_shape *q = &p->shapes.kind[0];
        struct reads_rule r;
        uint64_t reads = 0;
        for (int part = 0; part < q->n_parts; part++) {
            int last = part == q->n_parts - 1;
            reads_rule_init(q, part, coalesce, last ? 4 : 0, budget_read_bytes(q, coalesce[3].bytes), &r);
            reads += (q->part[part].n_units + r.most - 1) / r.most;
        }
        CHECK_MSG(all.reads == reads * ES_LAYERS * ES_SEQ, "%s: %llu reads, %llu expected",
                  layout_form_name((enum layout_form)form), (unsigned long long)all.reads,
                  (unsigned long long)(reads * ES_LAYERS * ES_SEQ));
        pack_close(p);
        unlink(path);
    }
}

struct faults {
    int calls, at;
};

static int fail_at(void *ctx, const struct io_request *r, int result)
{
    struct faults *f = ctx;
    (void)r;
    return __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED) == f->at ? -EIO : result;
}

/* The N-th read fails: loading or running ends in ERR_IO, with every backend, and closing works. */
static void test_faults(void)
{
    struct err e;
    struct pack *p;
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    static const struct io_backend *const all[] = { &io_pread_backend, &io_delay_backend, &io_uring_backend };
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    for (int b = 0; b < 3; b++)
        for (int at = 1; at < 400; at = at * 2 + 1) {
            struct variant v = { .threads = 2,
                                 .chunk = 4,
                                 .depth = 3,
                                 .lanes = 2,
                                 .hot = 3,
                                 .cold = 1,
                                 .prefetch = 1,
                                 .backend = all[b] };
            struct engine_config c = config(p, &v);
            struct faults f = { .at = at };
            struct engine *g = NULL;
            c.fault = fail_at;
            c.fault_ctx = &f;
            int r = engine_open(&c, &g, &e);
            if (r == 0)
                r = run_exact(g, ids, ES_SEQ, 4, &e);
            engine_close(g); /* joins the lanes, which count */
            if (r != ERR_UNSUPPORTED)
                CHECK_MSG(f.calls >= at ? r == ERR_IO && e.sys == EIO : r == 0, "%s read %d: %d", all[b]->name, at, r);
        }
    pack_close(p);
    unlink(path);
}

/* A file that is cut after loading. */
static void test_cut(void)
{
    struct err e;
    struct pack *p;
    struct engine *g;
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    struct variant v = { .threads = 2, .chunk = 4, .depth = 3, .lanes = 1, .backend = &io_pread_backend };
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    struct engine_config c = config(p, &v);
    CHECK(engine_open(&c, &g, &e) == 0);
    CHECK(truncate(path, 8192) == 0);
    CHECK(run_exact(g, ids, ES_SEQ, 4, &e) == ERR_IO);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* Neurons with thresholds: silent ones are left out, by every layout, in exact and in dense mode. */
static void test_thresholds(void)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    struct engine *g = NULL;
    struct variant v = { .threads = 1, .chunk = 4, .depth = 4, .lanes = 1, .hot = 10, .buffered = 1, .backend = &io_pread_backend };
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    for (int form = 0; form < LAYOUT_FORMS; form++) {
        char name[64];
        s = sample((enum layout_form)form, 0, QUANT_F32, form == LAYOUT_TILES ? QUANT_Q8_0 : QUANT_F32);
        s.act = MODEL_ACT_SILU;
        s.thresholds = 1;
        if (form == LAYOUT_TILES)
            s.cluster = 96, s.n_ff = 224;
        snprintf(name, sizeof name, "thresholds, %s", layout_form_name(s.form));
        test_model(&s, name, 2e-4);
    }
    static float plain[ES_SEQ * ES_VOCAB];
    struct engine_stats st, full;
    s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    s.act = MODEL_ACT_SILU;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0 && run(p, &v, plain, &full, &e) == 0);
    pack_close(p);
    s.thresholds = 1;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0 && run(p, &v, other, &st, &e) == 0);
    pack_close(p);
    CHECK(memcmp(plain, other, sizeof plain) != 0);
    s.thresholds = THRESHOLDS_BAD;
    CHECK(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0);
    struct engine_config ec = config(p, &v);
    CHECK(engine_open(&ec, &g, &e) == ERR_FORMAT);
    CHECK_MSG(strstr(e.msg, "ffn_threshold of layer 2: nan at 3"), "%s", e.msg);
    pack_close(p);
    unlink(path);
}

/* A flipped byte in a hot cluster is found when it is loaded, and named. */
static void test_damage(void)
{
    struct err e;
    struct pack *p;
    struct engine *g = NULL;
    struct engine_sample s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    struct variant v = { .threads = 1, .chunk = 4, .depth = 3, .lanes = 1, .hot = 10, .buffered = 1, .backend = &io_pread_backend };
    if (es_pack(path, &s, &e) < 0 || pack_open(path, &p, &e) < 0) {
        CHECK(!"pack");
        return;
    }
    uint64_t at = pack_unit_offset(p, 1, 0, 1, 3) + 5;
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)at, SEEK_SET);
    int c = getc(f);
    fseek(f, (long)at, SEEK_SET);
    putc(c ^ 1, f);
    fclose(f);
    struct engine_config ec = config(p, &v);
    CHECK(engine_open(&ec, &g, &e) == ERR_FORMAT);
    CHECK_MSG(strstr(e.msg, "layer 1 expert 0 part 1 cluster 0"), "%s", e.msg);
    pack_close(p);
    unlink(path);
}

int main(void)
{
    test_path(path, sizeof path, "thermo-engine-%ld.thermo", (long)getpid());
    kernels_init(cpu_detect());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = i == 0 ? 1 : (int32_t)(3 + rnd(ES_VOCAB - 3));
    for (int form = 0; form < LAYOUT_FORMS; form++)
        for (int packed = 0; packed < (TEST_TSAN ? 1 : 2); packed++) {
            char name[64];
            if (test_short() && !TEST_TSAN && packed != form % 2)
                continue;
            struct engine_sample s = sample((enum layout_form)form, packed, packed ? QUANT_F16 : QUANT_F32, QUANT_F32);
            snprintf(name, sizeof name, "%s%s", layout_form_name(s.form), packed ? " packed" : "");
            test_model(&s, name, 2e-4);
        }
    test_experts();
    test_q8();
    test_batch();
    test_warm_start();
    test_expert_prefetch();
    test_wide();
    test_faults();
    test_cut();
    if (TEST_TSAN) /* what follows is about types, sizes and equations: threads meet in the same ways */
        return test_done();
    struct engine_sample s = sample(LAYOUT_SPLIT, 1, QUANT_Q4_0, QUANT_Q8_0);
    test_model(&s, "q4_0", 2e-4);
    s = sample(LAYOUT_BUNDLE, 0, QUANT_Q8_0, QUANT_Q4_0);
    s.act = MODEL_ACT_DRELU;
    test_model(&s, "bundle, drelu, q8_0", 2e-4);
    s = sample(LAYOUT_SPLIT, 0, QUANT_F32, QUANT_F32);
    s.act = MODEL_ACT_SILU;
    test_model(&s, "silu", 2e-4);
    for (int form = 0; form < LAYOUT_FORMS; form++)
        test_mixed((enum layout_form)form);
    s = sample(LAYOUT_TWO_PHASE, 0, QUANT_F32, QUANT_F32);
    s.n_ff = 72;
    s.experts = 5;
    s.used = 2;
    test_model(&s, "experts, two-phase", 2e-4);
    s.small = 1;
    s.router = MODEL_ROUTER_SIGMOID_TOPK;
    s.window = 7;
    test_model(&s, "smallthinker, sigmoid, windows", 2e-4);
    s.form = LAYOUT_SPLIT;
    s.router = MODEL_ROUTER_SOFTMAX_TOPK;
    s.window = 0;
    test_model(&s, "smallthinker, softmax", 2e-4);
    test_tiles();
    test_gaps();
    test_tiles_q8();
    test_joins();
    test_damage();
    test_thresholds();
    return test_done();
}
