/* Predicted mode against a naive pass that skips what is not predicted, and against itself: the same bits whatever the
 * residency, threads, chunks, queue depth, backend and delays. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* Random ways to run each model. */
#define ROUNDS (TEST_TSAN ? 6 : test_short() ? 7 : 14)

static float first[ES_SEQ * ES_VOCAB], other[ES_SEQ * ES_VOCAB];
static double naive[ES_SEQ * ES_VOCAB];

static struct engine_sample sample(enum layout_form form, uint32_t cluster)
{
    return (struct engine_sample){ .form = form, .packed = form == LAYOUT_SPLIT, .cluster = cluster, .block = 512,
                                   .types = { QUANT_F32, QUANT_F32, QUANT_F32 }, .act = MODEL_ACT_RELU, .n_ff = 200,
                                   .rank = 32, .predictor_type = QUANT_F32 };
}

static const struct variant resident = { .threads = 1, .chunk = 1, .depth = 4, .lanes = 1, .hot = 10,
                                         .backend = &io_pread_backend };

static struct pack *open_pack(const struct engine_sample *s, const char *name)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    int r = es_pack(path, s, &e);
    if (r == 0)
        r = pack_open(path, &p, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    return p;
}

/* Every variant gives the bits of `first`. */
static void check_variants(const struct pack *p, const struct es_predict *x, const char *name)
{
    struct err e = { 0 };
    struct engine_stats st = { 0 };
    int same = 1, read = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct variant v = any_variant();
        v.predict = x;
        v.dense = 0;
        memset(other, 0, sizeof other);
        int r = run(p, &v, other, &st, &e);
        if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
            continue;
        read += st.reads > 0;
        if (r < 0 || memcmp(first, other, sizeof first)) {
            same = 0;
            printf("# %s differs (%d %s): threads %d chunk %d depth %d hot %d cold %d prefetch %d apart %d streamed %d + %d "
                   "%s\n", name, r, r < 0 ? e.msg : "", v.threads, v.chunk, v.depth, v.hot, v.cold, v.prefetch, v.apart,
                   v.streamed, v.buffers, v.backend->name);
        }
    }
    CHECK_MSG(same, "%s", name);
    CHECK(read > 0);
}

/* Resident, token by token, against the naive pass; then everything else against that. */
static void test_mode(const struct engine_sample *s, struct es_predict x, const char *name, double tolerance)
{
    struct err e = { 0 };
    struct engine_stats st = { 0 };
    struct pack *p = open_pack(s, name);
    struct variant v = resident;
    if (!p)
        return;
    v.predict = &x;
    alarm(600);
    int r = run(p, &v, first, &st, &e);
    CHECK_MSG(r == 0, "%s: %s", name, e.msg);
    x.closest = 1;
    x.predicted = x.neurons = 0;
    es_naive(s, &x, ids, ES_SEQ, naive);
    double d = worst_difference(first, naive);
    if (tolerance > 0) {
        CHECK_MSG(d <= tolerance, "%s: %g", name, d);
        printf("# %s: %g from the naive pass; %.1f %% predicted, none closer to the threshold than %g\n", name, d,
               100.0 * x.predicted / (x.neurons + !x.neurons), x.closest);
        uint64_t exact = st.neurons_possible - (uint64_t)x.neurons;
        CHECK_MSG(st.neurons_computed == exact + (uint64_t)x.predicted, "%llu computed",
                  (unsigned long long)st.neurons_computed);
    }
    es_naive(s, NULL, ids, ES_SEQ, naive);
    CHECK(worst_difference(first, naive) > 1e-3 || !x.neurons); /* it does skip */
    CHECK(st.reads == 0 && st.predict_ns > 0);
    check_variants(p, &x, name);
    pack_close(p);
    unlink(path);
}

/* A prompt runs exactly, and decoding after it predicted: bits of the exact engine, then others. */
static void test_prompt(void)
{
    struct err e = { 0 };
    struct engine *g[2] = { NULL, NULL };
    struct engine_sample s = sample(LAYOUT_BUNDLE, 16);
    struct pack *p = open_pack(&s, "prompt");
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_FFN } };
    struct variant v = { .threads = 2, .chunk = 5, .depth = 3, .lanes = 1, .hot = 3, .cold = 2, .prefetch = 1,
                         .backend = &io_delay_backend };
    if (!p)
        return;
    for (int i = 0; i < 2; i++) {
        v.predict = i ? &x : NULL;
        struct engine_config c = config(p, &v);
        CHECK(engine_open(&c, &g[i], &e) == 0 && run_exact(g[i], ids, ES_SEQ - 1, 5, &e) == 0);
    }
    float *a = engine_logits(g[0], (ES_SEQ - 2) % 5, 0, &e), *b = engine_logits(g[1], (ES_SEQ - 2) % 5, 0, &e);
    CHECK(!memcmp(a, b, ES_VOCAB * sizeof *a));
    const struct engine_token t = { ids[ES_SEQ - 1], 0, ES_SEQ - 1 };
    CHECK(engine_forward_exact(g[0], &t, 1, &e) == 0 && engine_forward_exact(g[1], &t, 1, &e) == 0);
    CHECK(!memcmp(engine_logits(g[0], 0, 0, &e), engine_logits(g[1], 0, 0, &e), ES_VOCAB * sizeof *a));
    CHECK(engine_forward(g[1], &t, 1, &e) == 0); /* the same position again */
    CHECK(memcmp(engine_logits(g[0], 0, 0, &e), engine_logits(g[1], 0, 0, &e), ES_VOCAB * sizeof *a) != 0);
    engine_close(g[0]);
    engine_close(g[1]);
    pack_close(p);
    unlink(path);
}

/* Predictors of x are refused with these words, kept in memory or streamed. */
static void refused(const struct pack *p, const struct es_predict *x, const char *words)
{
    struct err e = { 0 };
    struct variant v = resident;
    v.predict = x;
    for (v.streamed = 0; v.streamed < 8; v.streamed += 7) {
        CHECK(run(p, &v, other, NULL, &e) == ERR_FORMAT);
        CHECK_MSG(strstr(e.msg, words), "%s", e.msg);
        e.msg[0] = 0;
    }
}

/* Higher recall, lower threshold, more neurons; a damaged predictor is named. */
static void test_recall_and_damage(void)
{
    struct err e = { 0 };
    struct engine_sample s = sample(LAYOUT_SPLIT, 32);
    struct pack *p = open_pack(&s, "recall");
    uint64_t computed[3];
    if (!p)
        return;
    for (int i = 0; i < 3; i++) {
        const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_FFN, PREDICT_FFN }, .threshold = 0.1 * (1 - i) };
        struct engine_stats st = { 0 };
        struct variant v = resident;
        v.predict = &x;
        CHECK(run(p, &v, other, &st, &e) == 0);
        computed[i] = st.neurons_computed;
    }
    CHECK(computed[0] < computed[1] && computed[1] < computed[2]);
    const struct pack_predictor *q = pack_predictor_find(p, PREDICT_FFN, 1, 0);
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)(q->offset + q->fc2_offset + 7), SEEK_SET);
    int c = getc(f);
    fseek(f, -1, SEEK_CUR);
    putc(c ^ 1, f);
    fclose(f);
    const struct es_predict x = { .input = { -1, PREDICT_FFN, -1 } };
    refused(p, &x, "'ffn' of layer 1, expert 0");
    pack_close(p);
    unlink(path);
}

/* Reads of streamed predictors that fail, by what they ask for: bytes before the first cluster. */
struct breaking {
    uint64_t from, to; /* of the file */
    atomic_int left;   /* that go well */
};

static int break_predictors(void *ctx, const struct io_request *r, int result)
{
    struct breaking *b = ctx;
    return r->offset >= b->from && r->offset < b->to && atomic_fetch_sub(&b->left, 1) <= 0 ? -EIO : result;
}

/* Predictors of several pieces, of which all or some layers are streamed, beside exact passes: the same bits as resident
 * ones with any number of buffers, the bytes are counted, and a read that fails ends the pass. */
static void test_streams(int rank, int n_ff, int picks, int two_sided)
{
    struct err e = { 0 };
    struct engine_stats st = { 0 };
    struct engine_sample s = sample(LAYOUT_BUNDLE, 16);
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .always = { 0, 32, 304 } };
    s.n_ff = n_ff;
    s.rank = rank;
    s.picks = picks;
    if (two_sided)
        s.act = MODEL_ACT_SILU, s.thresholds = 1;
    struct pack *p = open_pack(&s, "streams");
    struct variant v = resident;
    if (!p)
        return;
    v.predict = &x;
    CHECK(run(p, &v, first, &st, &e) == 0 && st.predictor_bytes == 0 && st.reads == 0);
    for (int i = 0; i < 14; i++) {
        v.streamed = 1 + i % 7;
        v.buffers = i / 7;
        v.threads = 1 + i % 3;
        v.chunk = i % 2 ? 1 : 5;
        v.prefetch = i % 5 > 0;
        v.apart = i % 4 == 3;
        v.backend = any_backend();
        int r = run(p, &v, other, &st, &e);
        if (r == ERR_UNSUPPORTED && v.backend == &io_uring_backend)
            continue;
        uint64_t passes = v.chunk == 1 ? ES_SEQ : (ES_SEQ + 4) / 5, least = 0;
        for (int l = 0; l < ES_LAYERS; l++)
            least += v.streamed >> l & 1 ? (uint64_t)(s.rank * (picks ? 2 : ES_D) +
                                                      (s.n_ff - x.always[l]) * (s.rank + predict_numbers(1, two_sided))) * 4 : 0;
        CHECK_MSG(r == 0 && !memcmp(first, other, sizeof first), "layers %d, %d buffers more, %d threads, %s: %s",
                  v.streamed, v.buffers, v.threads, v.backend->name, e.msg);
        CHECK(st.predictor_bytes >= passes * least && st.predictor_bytes <= 2 * passes * least + (4 << 20));
        CHECK(st.read_bytes == st.predictor_bytes);
        CHECK_MSG(v.apart || st.stall_ns <= st.ffn_ns, "stalled %llu ns, FFN %llu", (unsigned long long)st.stall_ns,
                  (unsigned long long)st.ffn_ns); /* what predictions wait for is not theirs */
    }
    for (int i = 0; i < 2; i++) {
        struct breaking b = { .to = 0 };
        const struct pack_predictor *q = pack_predictor_find(p, PREDICT_BLOCK, 1, 0);
        b.from = q->offset;
        b.to = q->offset + q->bytes;
        v = (struct variant){ .threads = 2, .chunk = 3, .depth = 2, .lanes = 2, .hot = 10, .prefetch = 1, .predict = &x,
                              .streamed = 7, .backend = i ? &io_uring_backend : &io_pread_backend };
        atomic_store(&b.left, 60); /* loading looks at it with a few */
        struct engine_config c = config(p, &v);
        c.fault = break_predictors;
        c.fault_ctx = &b;
        struct engine *g = NULL;
        int r = engine_open(&c, &g, &e), at = 0;
        if (r == ERR_UNSUPPORTED && i)
            continue;
        CHECK_MSG(r == 0, "%s", e.msg);
        for (; at < ES_SEQ && r == 0; at++) {
            const struct engine_token t = { ids[at], 1, at };
            r = engine_forward(g, &t, 1, &e);
        }
        CHECK_MSG(r == ERR_IO && at > 1 && strstr(e.msg, "reading '"), "%d after %d tokens: %s", r, at, e.msg);
        engine_close(g);
    }
    pack_close(p);
    unlink(path);
}

/* A pack whose checksums are right but whose predictors pick what is not there: refused, kept or streamed. */
static void test_picks_beyond(void)
{
    struct engine_sample s = sample(LAYOUT_BUNDLE, 16);
    s.picks = PICKS_BEYOND;
    struct pack *p = open_pack(&s, "picks");
    const struct es_predict x = { .input = { -1, PREDICT_BLOCK, -1 } };
    if (!p)
        return;
    refused(p, &x, "'block' of layer 1, expert 0 selects an input beyond");
    pack_close(p);
    unlink(path);
}

/* Entry of a predictor: with other flags it is refused, for neurons have thresholds exactly where predictors have two sides. */
static void test_one_sided(void)
{
    for (int thresholds = 0; thresholds < 2; thresholds++) {
        struct engine_sample s = sample(LAYOUT_BUNDLE, 16);
        s.act = MODEL_ACT_SILU, s.thresholds = thresholds;
        struct err e = { 0 };
        struct pack *p = open_pack(&s, "sides");
        if (!p)
            return;
        pack_close(p);
        uint8_t *m = NULL;
        size_t len = 0;
        CHECK(file_slurp(path, 1 << 24, (char **)&m, &len, &e) == 0);
        uint64_t toc = bytes_le64(m + 40);
        uint32_t n = bytes_le32(m + 48);
        for (uint32_t i = 0; i < n; i++) {
            uint8_t *entry = m + toc + (size_t)i * PACK_ENTRY_BYTES;
            if (bytes_le32(entry) != PACK_PREDICTOR)
                continue;
            uint8_t *flags = entry + offsetof(struct pack_disk_entry, dims) + 24;
            bytes_put64(flags, bytes_le64(flags) ^ PACK_PREDICTOR_TWO_SIDED);
            break;
        }
        bytes_put64(m + 56, hash_64(m + toc, (size_t)n * PACK_ENTRY_BYTES));
        bytes_put64(m + 248, hash_64(m, 248));
        CHECK(pack_parse(m, len, "changed", &p, &e) == ERR_FORMAT);
        CHECK_MSG(strstr(e.msg, thresholds ? "a one-sided predictor, where neurons have thresholds"
                                           : "a two-sided predictor, where neurons have no thresholds"), "%s", e.msg);
        free(m);
        unlink(path);
    }
}

/* Passes that predict and passes that do not, in any order, while predictors are read ahead. */
static void test_streams_between(void)
{
    struct err e = { 0 };
    struct engine *g[2] = { NULL, NULL };
    struct engine_sample s = sample(LAYOUT_BUNDLE, 16);
    s.n_ff = 800;
    s.rank = 256;
    struct pack *p = open_pack(&s, "between");
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_FFN } };
    struct variant v = { .threads = 2, .chunk = 4, .depth = 3, .lanes = 1, .hot = 3, .cold = 2, .prefetch = 1, .predict = &x,
                         .backend = &io_delay_backend };
    int same = 1, r = 0;
    if (!p)
        return;
    for (int i = 0; i < 2; i++) {
        v.streamed = i * 7;
        struct engine_config c = config(p, &v);
        c.streamed = i ? streamed : NULL; /* the array is common to both */
        CHECK(engine_open(&c, &g[i], &e) == 0);
    }
    for (int at = 0; at < ES_SEQ && r == 0; at++) {
        const struct engine_token t = { ids[at], 0, at };
        for (int i = 0; i < 2 && r == 0; i++)
            r = (at % 3 ? engine_forward : engine_forward_exact)(g[i], &t, 1, &e);
        if (r == 0)
            same &= !memcmp(engine_logits(g[0], 0, 0, &e), engine_logits(g[1], 0, 0, &e), ES_VOCAB * sizeof(float));
    }
    CHECK_MSG(r == 0 && same, "%s", e.msg);
    engine_close(g[0]);
    engine_close(g[1]);
    pack_close(p);
    unlink(path);
}

/* A backend that gives reads back only when nobody can compute any more, all that it has then, and looks whose they are. */
struct held {
    struct io io;
    struct io_request *r[256];
    int n, due; /* due: of the first, that may be given back */
};

static const struct pack *held_pack;
static int held_waits, held_blocks; /* times it was waited for; the blocks of what was held, summed */

static int held_start(struct io *io, struct err *e)
{
    (void)io, (void)e;
    return 0;
}

static int held_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    struct held *h = (struct held *)io;
    (void)e;
    for (int i = 0; i < n; i++) {
        while (!io_advance(io, r[i], (int)pread(io->fd, r[i]->buf + r[i]->done, r[i]->len - r[i]->done,
                                                (off_t)(r[i]->offset + r[i]->done))))
            ;
        h->r[h->n++] = r[i];
    }
    return 0;
}

static int holds(const struct held *h, int layer, int block)
{
    const struct layout_part *lp = &layout_of(&held_pack->shapes, layer)->part[0];
    uint64_t from = pack_unit_offset(held_pack, layer, block, 0, 0), to = from + lp->n_units * (uint64_t)lp->stride_bytes;
    for (int i = 0; i < h->n; i++)
        if (h->r[i]->offset + h->r[i]->len > from && h->r[i]->offset < to)
            return 1;
    return 0;
}

static int held_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    struct held *h = (struct held *)io;
    (void)e;
    if (wait && !h->due) {
        held_waits++;
        for (int i = 0; i < ES_LAYERS * held_pack->h.n_experts; i++)
            held_blocks += holds(h, i / held_pack->h.n_experts, i % held_pack->h.n_experts);
        h->due = h->n;
    }
    int n = h->due < max ? h->due : max;
    memcpy(out, h->r, (size_t)n * sizeof *out);
    memmove(h->r, h->r + n, (size_t)(h->n - n) * sizeof *out);
    h->n -= n;
    h->due -= n;
    return n;
}

static int held_stop(struct io *io)
{
    (void)io;
    return 0;
}

/* The experts of a token do not wait for each other: what all of them miss is asked for before the first read is waited for. */
static void test_experts_together(void)
{
    static const struct io_backend held = { .name = "held", .bytes = sizeof(struct held), .start = held_start,
                                            .submit = held_submit, .reap = held_reap, .stop = held_stop };
    const struct es_predict x = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL } };
    struct err e = { 0 };
    struct engine_sample s = sample(LAYOUT_BUNDLE, 8);
    s.n_ff = 72;
    s.experts = 5;
    s.used = 3;
    struct pack *p = open_pack(&s, "together");
    if (!p)
        return;
    for (int i = 0; i < 4; i++) {
        struct variant v = { .threads = 1 + i % 2, .chunk = 1, .depth = 64, .lanes = 1, .prefetch = 1, .empty = 1,
                             .backend = &held, .predict = i < 2 ? &x : NULL };
        struct engine_config c = config(p, &v);
        struct engine *g = NULL;
        held_pack = p;
        int r = engine_open(&c, &g, &e);
        CHECK_MSG(r == 0, "%s", e.msg);
        held_waits = held_blocks = 0;
        for (int at = 0; at < ES_SEQ && r == 0; at++) {
            const struct engine_token t = { ids[at], 0, at };
            r = engine_forward(g, &t, 1, &e);
        }
        CHECK_MSG(r == 0 && held_waits == ES_SEQ * ES_LAYERS && held_blocks == 3 * held_waits,
                  "%s: waited %d times for %d tokens in %d layers, for reads of %d experts", e.msg, held_waits, ES_SEQ,
                  ES_LAYERS, held_blocks);
        engine_close(g);
    }
    pack_close(p);
    unlink(path);
}

int main(void)
{
    test_path(path, sizeof path, "thermo-engine-predict-%ld.thermo", (long)getpid());
    kernels_init(cpu_detect());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = i == 0 ? 1 : (int32_t)(3 + rnd(ES_VOCAB - 3));
    const struct es_predict mixed = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .always = { 0, 32, 96 } };
    const struct es_predict some = { .input = { PREDICT_BLOCK, -1, PREDICT_FFN }, .always = { 200, 0, 0 } };
    for (int form = 0; form < LAYOUT_TILES; form++) {
        struct engine_sample s = sample((enum layout_form)form, form == LAYOUT_SPLIT ? 32 : 16);
        test_mode(&s, mixed, layout_form_name(s.form), 2e-4);
        if (TEST_TSAN) /* threads meet in the same ways in the others, and with experts below */
            continue;
        test_mode(&s, some, layout_form_name(s.form), 2e-4);
        s.predictor_type = QUANT_Q8_0;
        test_mode(&s, mixed, "q8_0 predictors", 0);
        s.picks = 1;
        s.predictor_type = QUANT_F32;
        test_mode(&s, mixed, "picked inputs", 2e-4);
        s.picks = 0;
        s.n_ff = 72;
        s.experts = 5;
        s.used = 2;
        s.predictor_type = QUANT_F32;
        test_mode(&s, (struct es_predict){ .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .always = { 32, 0, 0 } },
                  "experts", 2e-4);
        s.small = 1;
        s.router = MODEL_ROUTER_SIGMOID_TOPK;
        s.used = 3;
        test_mode(&s, (struct es_predict){ .input = { PREDICT_BLOCK, PREDICT_BLOCK, PREDICT_FFN }, .always = { 0, 32, 0 } },
                  "experts chosen early", 2e-4);
    }
    test_experts_together();
    test_prompt();
    test_streams(64, 2200, 0, 0); /* three ranges */
    test_streams_between();
    if (TEST_TSAN) /* what follows is about equations, sizes and damage */
        return test_done();
    struct engine_sample s = sample(LAYOUT_BUNDLE, 8);
    s.act = MODEL_ACT_SILU;
    test_mode(&s, mixed, "silu", 2e-4);
    s.thresholds = 1;
    test_mode(&s, mixed, "two-sided, silu with thresholds", 2e-4);
    s.picks = 1;
    test_mode(&s, mixed, "two-sided, picked inputs", 2e-4);
    test_one_sided();
    test_recall_and_damage();
    test_streams(256, 800, 0, 0); /* two pieces of fc1 */
    test_streams(128, 800, 1, 0);
    test_streams(64, 2200, 0, 1);
    test_picks_beyond();
    return test_done();
}
