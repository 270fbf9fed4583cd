/* Sessions: each gives the bits that it gives alone, whatever others do between its steps; cancelling one leaves the other; an
 * error (of reads at every point of a run, of damage, of arguments, of dense work) ends the session that it happens to, and what
 * comes after it on the same engine is right. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "runtime/session/session.h"
#define ES_DIM 32
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

enum { PROMPT = 9, STEPS = 8 };

static const struct io_backend *const backends[] = { &io_pread_backend, &io_uring_backend, &io_delay_backend };

/* What one session makes: logits after the prompt and after every token that it drew, and those tokens. */
struct story {
    float logits[(STEPS + 1) * ES_VOCAB];
    int32_t drawn[STEPS + 1];
    int n;
};

static struct story alone[2], together[2];

static struct engine_sample sample(enum layout_form form)
{
    return (struct engine_sample){ .form = form, .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_F32 }, .cluster = 16, .block = 512,
                                   .act = MODEL_ACT_RELU, .n_ff = 200, .rank = 16, .predictor_type = QUANT_F32 };
}

static struct pack *open_pack(enum layout_form form)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    const struct engine_sample s = sample(form);
    CHECK_MSG(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0, "%s", e.msg);
    return p;
}

static struct session_config config_of(int which, const struct cancel *cancel)
{
    return (struct session_config){ .cancel = cancel,
                                    .sampling = { .temp = 0.9, .top_p = 1, .repeat_penalty = 1.3, .repeat_last_n = which ? -1 : 6,
                                                  .seed = 11 + (uint64_t)which } };
}

/* The prompts differ; so do their lengths. */
static int begin(struct session *s, int which, struct err *e)
{
    int done, r = session_feed(s, ids + which * 8, PROMPT - which, SESSION_EXACT, &done, e);
    CHECK(r < 0 || (done == PROMPT - which && session_n_pos(s) == done));
    return r;
}

/* Draw a token and feed it. Every third pass is exact, the others as the mode says. */
static int next(struct session *s, struct story *t, struct err *e)
{
    const float *logits = session_logits(s, e);
    int done;
    if (!logits)
        return e->code;
    memcpy(t->logits + t->n * ES_VOCAB, logits, ES_VOCAB * sizeof *logits);
    int32_t id = session_sample(s, e);
    if (id < 0)
        return id;
    t->drawn[t->n] = id;
    return t->n++ < STEPS ? session_feed(s, &id, 1, t->n % 3 ? SESSION_PREDICTED : SESSION_EXACT, &done, e) : 0;
}

static int whole(struct session *s, int which, struct story *t, struct err *e)
{
    int r = begin(s, which, e);
    for (t->n = 0; t->n <= STEPS && r == 0;)
        r = next(s, t, e);
    return r;
}

static int same(const struct story *a, const struct story *b)
{
    return a->n == STEPS + 1 && b->n == a->n && !memcmp(a->drawn, b->drawn, sizeof a->drawn) &&
           !memcmp(a->logits, b->logits, sizeof a->logits);
}

/* A session of its own on this engine gives what it gives alone. */
static int gives_the_same(struct engine *g, int which, struct err *e)
{
    struct session s;
    const struct session_config c = config_of(which, NULL);
    struct story t;
    int r = session_init(&s, g, &c, e);
    r = r < 0 ? r : whole(&s, which, &t, e);
    session_done(&s);
    return r == 0 && same(&alone[which], &t);
}

static void tell_alone(const struct engine_config *c)
{
    struct err e = { 0 };
    for (int i = 0; i < 2; i++) {
        struct engine *g = NULL;
        struct session s = { 0 };
        const struct session_config q = config_of(i, NULL);
        CHECK_MSG(engine_open(c, &g, &e) == 0 && session_init(&s, g, &q, &e) == 0 && whole(&s, i, &alone[i], &e) == 0, "%s", e.msg);
        session_done(&s);
        engine_close(g);
    }
    CHECK(!same(&alone[0], &alone[1]));
}

/* io_uring reads past the page cache, which takes longest. */
static struct variant variant(const struct io_backend *b)
{
    return (struct variant){ .threads = 2, .chunk = 4, .depth = 3, .lanes = 2, .hot = 3, .cold = 3, .prefetch = 1, .backend = b,
                             .coalesce = 2, .streamed = 2, .buffers = 1, .buffered = b != &io_uring_backend };
}

static const struct es_predict predicts = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };

static void test_together(enum layout_form form, int predicted, const struct io_backend *b)
{
    struct err e = { 0 };
    struct pack *p = open_pack(form);
    struct variant v = variant(b);
    struct engine *g = NULL;
    struct session s[2], third;
    v.predict = predicted ? &predicts : NULL;
    struct engine_config c = config(p, &v);
    int r = engine_open(&c, &g, &e);
    if (r == ERR_UNSUPPORTED && b == &io_uring_backend)
        goto out;
    engine_close(g);
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0);
    for (int i = 0; i < 2; i++) {
        const struct session_config q = config_of(i, NULL);
        CHECK(session_init(&s[i], g, &q, &e) == 0);
        together[i].n = 0;
    }
    const struct session_config q = config_of(0, NULL);
    CHECK(session_init(&third, g, &q, &e) == ERR_LIMIT && strstr(e.msg, "2 sequences"));
    session_done(&third);
    for (int i = 0; i < 2; i++)
        if ((r = begin(&s[i], i, &e)) < 0 || !session_logits(&s[i], &e)) /* asked for before the other steps */
            break;
    for (int k = 0; k <= STEPS && r == 0; k++)
        for (int i = 0; i < 2 && r == 0; i++)
            if ((r = next(&s[i], &together[i], &e)) == 0 && k < STEPS && !session_logits(&s[i], &e))
                r = e.code;
    CHECK_MSG(r == 0 && same(&alone[0], &together[0]) && same(&alone[1], &together[1]), "%s %d %s: %s", layout_form_name(form),
              predicted, b->name, e.msg);
    session_done(&s[0]);
    CHECK(gives_the_same(g, 1, &e)); /* in the place of the first, beside the second */
    session_done(&s[1]);
    engine_close(g);
out:
    pack_close(p);
    unlink(path);
}

/* Forgetting and beginning again, several texts in one session. */
static void test_reset(void)
{
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_SPLIT);
    struct variant v = variant(&io_pread_backend);
    struct engine_config c = config(p, &v);
    struct engine *g = NULL;
    struct session s;
    const struct session_config q = config_of(0, NULL);
    struct story t;
    int done;
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0 && session_init(&s, g, &q, &e) == 0);
    for (int i = 0; i < 2; i++) {
        const struct session_config other = config_of(i, NULL);
        session_sampling(&s, &other.sampling);
        CHECK(whole(&s, i, &t, &e) == 0 && same(&alone[i], &t));
        session_reset(&s);
        CHECK(session_n_pos(&s) == 0);
    }
    /* Logits of all tokens of a pass in one call, in shared memory and in this session's own. */
    int rows;
    CHECK(session_feed(&s, ids, 4, SESSION_EXACT, &done, &e) == 0);
    float *many = session_logits_memory(&s, &rows), last[ES_VOCAB];
    CHECK(rows == 4 && session_head(&s, session_hidden(&s), 4, many, &e) == 0);
    memcpy(last, many + 3 * ES_VOCAB, sizeof last);
    CHECK(!memcmp(last, session_logits(&s, &e), sizeof last));
    session_done(&s);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* A second session that begins in the middle of the first, in its pages: both give what each gives alone, whoever writes first. */
static void test_fork(int at)
{
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_SPLIT);
    struct variant v = variant(&io_pread_backend);
    struct engine_config c = config(p, &v);
    struct engine *g = NULL;
    struct session s[2];
    const struct session_config q = config_of(0, NULL);
    struct story t[2];
    int done, r = 0;
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0 && session_init(&s[0], g, &q, &e) == 0 && begin(&s[0], 0, &e) == 0);
    if (at == PROMPT)
        CHECK(session_logits(&s[0], &e));
    CHECK(session_fork(&s[1], &s[0], at, &q, &e) == 0 && session_n_pos(&s[1]) == at);
    CHECK(at == PROMPT || session_feed(&s[1], ids + at, PROMPT - at, SESSION_EXACT, &done, &e) == 0);
    CHECK(at == PROMPT || session_logits(&s[1], &e));
    CHECK(at == PROMPT || (session_rewind(&s[0], PROMPT - 1), session_feed(&s[0], ids + PROMPT - 1, 1, SESSION_EXACT, &done, &e)) == 0);
    CHECK(session_logits(&s[0], &e));
    t[0].n = t[1].n = 0;
    for (int k = 0; k <= STEPS && r == 0; k++)
        for (int i = 0; i < 2 && r == 0; i++)
            if ((r = next(&s[i], &t[i], &e)) == 0 && k < STEPS && !session_logits(&s[i], &e))
                r = e.code;
    CHECK_MSG(r == 0 && same(&alone[0], &t[0]) && same(&alone[0], &t[1]), "from %d: %s", at, e.msg);
    session_done(&s[0]);
    CHECK(gives_the_same(g, 1, &e)); /* in the place of the first: the pages of the second are not touched */
    session_done(&s[1]);
    CHECK(engine_free_positions(g) == 2 * ES_CTX);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* Errors of arguments: the session has ended, and says so again; the engine goes on. */
static void test_arguments(void)
{
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_BUNDLE);
    struct variant v = variant(&io_pread_backend);
    struct engine_config c = config(p, &v);
    struct engine *g = NULL;
    struct session s[2];
    struct story t;
    int done;
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0);
    for (int i = 0; i < 2; i++) {
        const struct session_config q = config_of(i, NULL);
        CHECK(session_init(&s[i], g, &q, &e) == 0);
    }
    CHECK(begin(&s[1], 1, &e) == 0 && session_logits(&s[1], &e));
    const int32_t bad[] = { 1, 2, 3, 4, 5, ES_VOCAB, 6 };
    CHECK(session_feed(&s[0], bad, 7, SESSION_EXACT, &done, &e) == ERR_USAGE && done == 4 && session_n_pos(&s[0]) == 4);
    CHECK(strstr(e.msg, "token id"));
    e = (struct err){ 0 };
    CHECK(session_feed(&s[0], bad, 1, SESSION_EXACT, &done, &e) == ERR_USAGE && done == 0 && strstr(e.msg, "token id"));
    CHECK(!session_logits(&s[0], &e) && session_sample(&s[0], &e) == ERR_USAGE);
    session_reset(&s[0]);
    CHECK(session_feed(&s[0], ids, 1, SESSION_EXACT, &done, &e) == ERR_USAGE);
    session_done(&s[0]);
    CHECK(gives_the_same(g, 0, &e));
    int r = 0;
    for (t.n = 0; t.n <= STEPS && r == 0;)
        r = next(&s[1], &t, &e);
    CHECK(r == 0 && same(&alone[1], &t));
    r = 0;
    for (int n = session_n_pos(&s[1]); n < ES_CTX && r == 0; n++)
        r = session_feed(&s[1], ids, 1, SESSION_EXACT, &done, &e);
    CHECK(r == 0 && session_feed(&s[1], ids, 1, SESSION_EXACT, &done, &e) == ERR_LIMIT && strstr(e.msg, "context"));
    session_done(&s[1]);
    CHECK(gives_the_same(g, 1, &e));
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* ---- reads that fail ---- */

struct faults {
    int calls, at, times; /* reads at, at + 1, ... fail, so many; at 0: none */
};

static int fail_at(void *ctx, const struct io_request *r, int result)
{
    struct faults *f = ctx;
    (void)r;
    int n = __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED), at = __atomic_load_n(&f->at, __ATOMIC_RELAXED);
    return at && n >= at && n < at + f->times ? -EIO : result;
}

/* At every k-th read of a session's life: it ends in ERR_IO, another that was open goes on, a new one is right. */
static void test_read_errors(enum layout_form form, int predicted, const struct io_backend *b)
{
    struct err e = { 0 };
    struct pack *p = open_pack(form);
    struct variant v = variant(b);
    struct engine *g = NULL;
    struct faults f = { .times = 2 };
    v.predict = predicted ? &predicts : NULL;
    struct engine_config c = config(p, &v);
    c.fault = fail_at;
    c.fault_ctx = &f;
    int r = engine_open(&c, &g, &e);
    if (r == ERR_UNSUPPORTED && b == &io_uring_backend)
        goto out;
    CHECK_MSG(r == 0, "%s", e.msg);
    engine_close(g);
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0);
    int ended = 0, right = 1, went_on = 1;
    for (int after = 1; after < 400 && ended == (after > 1); after = after * 2 + 1) {
        struct session s, other;
        struct story t, u = { .n = 0 };
        const struct session_config q = config_of(0, NULL), q1 = config_of(1, NULL);
        int r1;
        CHECK(session_init(&s, g, &q, &e) == 0 && session_init(&other, g, &q1, &e) == 0);
        r1 = begin(&other, 1, &e);
        went_on &= r1 == 0 && session_logits(&other, &e) != NULL;
        __atomic_store_n(&f.at, __atomic_load_n(&f.calls, __ATOMIC_RELAXED) + after, __ATOMIC_RELAXED);
        r = whole(&s, 0, &t, &e);
        __atomic_store_n(&f.at, 0, __ATOMIC_RELAXED);
        ended = r == ERR_IO && e.sys == EIO;
        if (!ended) /* fewer reads than that */
            CHECK_MSG(r == 0 && after > 30, "read %d: %d %s", after, r, e.msg);
        else
            right &= session_sample(&s, &e) == ERR_IO;
        session_done(&s);
        for (; u.n <= STEPS && r1 == 0;)
            r1 = next(&other, &u, &e);
        went_on &= r1 == 0 && same(&alone[1], &u);
        session_done(&other);
        right &= gives_the_same(g, 0, &e);
    }
    CHECK_MSG(right && went_on, "%s %d %s: %s", layout_form_name(form), predicted, b->name, e.msg);
    struct engine_stats st = engine_stats(g);
    CHECK(st.reads > 0 && st.lookups >= st.hits); /* totals go on where reading was made anew */
    engine_close(g);
out:
    pack_close(p);
    unlink(path);
}

/* Damage is an error of the session that reads it; once it is repaired, on the same engine, another one is right. */
static void test_damage(void)
{
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_SPLIT);
    struct variant v = variant(&io_pread_backend);
    struct engine *g = NULL;
    v.hot = 0;
    v.cold = 10; /* what is read stays, but not this */
    v.empty = 1;
    struct engine_config c = config(p, &v);
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0);
    for (int round = 0; round < 2; round++) {
        struct session s;
        struct story t;
        const struct session_config q = config_of(0, NULL);
        uint64_t at = pack_unit_offset(p, 1, 0, 0, 3) + 5;
        FILE *file = fopen(path, "r+b");
        fseek(file, (long)at, SEEK_SET);
        int byte = getc(file);
        fseek(file, (long)at, SEEK_SET);
        putc(byte ^ 4, file);
        fclose(file);
        CHECK(session_init(&s, g, &q, &e) == 0);
        int r = whole(&s, 0, &t, &e);
        CHECK_MSG(round ? r == 0 && same(&alone[0], &t) : r == ERR_IO && strstr(e.msg, "layer 1"), "%d: %s", r, e.msg);
        session_done(&s);
    }
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* ---- what is no number ---- */

/* Dense work of the processor, but for one sequence: what its attention sees is so many times as large from a position on, or the logits of
 * one of two rows have a NaN. */
static struct {
    int seq, pos, row;
    float times;
} bad;
static struct dense_backend spoiled;

static int open_spoiled(const struct dense_config *c, struct dense **out, struct err *e)
{
    int r = dense_cpu_backend.open(c, out, e);
    if (r == 0)
        (*out)->backend = &spoiled;
    return r;
}

static int spoiled_attention(struct dense *d, int layer, struct acts *in, const struct engine_token *tokens,
                             const struct dense_reads *reads, float *out, struct err *e)
{
    float *x = (float *)(uintptr_t)in->f32;
    for (int t = 0; layer == 1 && bad.times != 0 && t < in->n_tokens; t++)
        for (int i = 0; tokens[t].seq == bad.seq && tokens[t].pos >= bad.pos && i < in->n_cols; i++)
            x[t * in->n_cols + i] *= bad.times;
    return dense_cpu_backend.attention(d, layer, in, tokens, reads, out, e);
}

static int spoiled_head(struct dense *d, const float *hidden, int n, float *logits, struct err *e)
{
    int r = dense_cpu_backend.head(d, hidden, n, logits, e);
    if (bad.row >= 0 && n == 2)
        logits[bad.row * ES_VOCAB + 7] = NAN;
    return r;
}

/* Two sessions take a step together, and what one makes cannot be used: it ends and says why; the other gives what it gives alone, and
 * so does who comes after it. */
static void test_no_numbers(int kv_type)
{
    static const struct { float times; int row, code[2]; const char *why; } cases[] = { /* code: with F16, with F32 */
        { 1e8f, -1, { ERR_LIMIT, 0 }, "--kv f32 has room" },
        { INFINITY, -1, { ERR_FORMAT, ERR_FORMAT }, "layer 1 made a key or value of position 8 that is not a finite number" },
        { 0, 0, { ERR_FORMAT, ERR_FORMAT }, "the logit of token 7 is nan" },
    };
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_SPLIT);
    struct variant v = variant(&io_pread_backend);
    struct engine *g = NULL;
    v.kv_type = kv_type;
    struct engine_config c = config(p, &v);
    tell_alone(&c);
    spoiled = dense_cpu_backend;
    spoiled.open = open_spoiled;
    spoiled.attention = spoiled_attention;
    spoiled.head = spoiled_head;
    c.dense = &spoiled;
    bad.row = -1, bad.times = 0;
    CHECK_MSG(engine_open(&c, &g, &e) == 0, "%s", e.msg);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int want = cases[k].code[!kv_type], done, r = 0;
        struct session s[2];
        struct session_part parts[2];
        struct story t = { .n = 0 };
        for (int i = 0; i < 2; i++) { /* all but the last token of either prompt */
            const struct session_config q = config_of(i, NULL);
            CHECK(session_init(&s[i], g, &q, &e) == 0 && session_feed(&s[i], ids + i * 8, PROMPT - i - 1, SESSION_EXACT, &done, &e) == 0);
            parts[i] = (struct session_part){ .s = &s[i], .ids = ids + i * 8 + PROMPT - i - 1, .n = 1, .mode = SESSION_EXACT, .logits = 1 };
        }
        bad.seq = s[0].seq, bad.pos = PROMPT - 1, bad.times = cases[k].times, bad.row = cases[k].row;
        CHECK(session_step(parts, 2, NULL, &e) == 0 && parts[0].result == want && parts[1].result == 0);
        const struct err *why = session_error(&s[0]);
        CHECK_MSG(why->code == want && (!want || strstr(why->msg, cases[k].why)), "%s", why->msg);
        CHECK((session_sample(&s[0], &e) >= 0) == (want == 0));
        bad.times = 0, bad.row = -1;
        session_done(&s[0]);
        while (t.n <= STEPS && r == 0)
            r = next(&s[1], &t, &e);
        CHECK_MSG(r == 0 && same(&alone[1], &t), "%s", e.msg);
        session_done(&s[1]);
        CHECK(gives_the_same(g, 0, &e) && gives_the_same(g, 1, &e));
    }
    /* A guess that would not fit, and does not come true, is forgotten; one that is drawn is not. */
    for (int comes_true = 0; comes_true < 2; comes_true++) {
        struct session s;
        const struct session_config q = config_of(0, NULL);
        int32_t two[2];
        int rows, fed;
        CHECK(session_init(&s, g, &q, &e) == 0 && begin(&s, 0, &e) == 0 && (two[0] = session_sample(&s, &e)) == alone[0].drawn[0]);
        two[1] = comes_true ? alone[0].drawn[1] : alone[0].drawn[1] ^ 1;
        bad.seq = s.seq, bad.pos = PROMPT + 1, bad.times = 1e8f;
        CHECK_MSG(session_feed(&s, two, 2, SESSION_EXACT, &fed, &e) == 0, "%s", e.msg);
        bad.times = 0;
        float *logits = session_logits_memory(&s, &rows);
        const float *hidden = session_hidden(&s);
        CHECK(session_head(&s, hidden, 1, logits, &e) == 0 && session_check_logits(&s, logits, PROMPT + 1, &e) == 0);
        CHECK(session_sample_at(&s, PROMPT + 1, logits, NULL, 0) == alone[0].drawn[1]);
        if (comes_true) {
            int r = session_head(&s, hidden + p->h.d_model, 1, logits, &e);
            CHECK(r == 0 && session_check_logits(&s, logits, PROMPT + 2, &e) == (kv_type ? ERR_LIMIT : 0));
        } else {
            session_rewind(&s, PROMPT + 1);
            CHECK(session_feed(&s, &alone[0].drawn[1], 1, SESSION_EXACT, &fed, &e) == 0 && session_sample(&s, &e) == alone[0].drawn[2]);
        }
        session_done(&s);
    }
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* ---- cancelling ---- */

struct silence {
    sem_t go;
    int on; /* reads wait for go */
};

static int silent(void *ctx, const struct io_request *r, int result)
{
    struct silence *s = ctx;
    (void)r;
    if (__atomic_load_n(&s->on, __ATOMIC_ACQUIRE))
        while (sem_wait(&s->go) < 0)
            ;
    return result;
}

static void *ask_soon(void *ctx)
{
    usleep(50000);
    cancel_ask(ctx);
    return NULL;
}

static void answer(struct silence *s)
{
    __atomic_store_n(&s->on, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < 64; i++)
        sem_post(&s->go);
}

/* Between passes, and while storage is silent: when it answers again the engine goes on, and when it does not it says so. */
static void test_cancel(void)
{
    struct err e = { 0 };
    struct pack *p = open_pack(LAYOUT_TWO_PHASE);
    struct variant v = variant(&io_pread_backend);
    struct engine *g = NULL;
    static struct silence quiet;
    sem_init(&quiet.go, 0, 0);
    v.hot = v.cold = 0;
    struct engine_config c = config(p, &v);
    c.fault = silent;
    c.fault_ctx = &quiet;
    tell_alone(&c);
    CHECK(engine_open(&c, &g, &e) == 0);
    for (int during = 0; during < 3; during++) {
        struct cancel tokens[2] = { { 0 }, { 0 } };
        struct session s[2];
        struct story t = { .n = 0 };
        int done, r;
        for (int i = 0; i < 2; i++) {
            const struct session_config q = config_of(i, &tokens[i]);
            CHECK(session_init(&s[i], g, &q, &e) == 0);
        }
        CHECK(begin(&s[1], 1, &e) == 0 && session_logits(&s[1], &e) && begin(&s[0], 0, &e) == 0);
        pthread_t asker;
        __atomic_store_n(&quiet.on, during > 0, __ATOMIC_RELEASE);
        if (during)
            pthread_create(&asker, NULL, ask_soon, &tokens[0]);
        else
            cancel_ask(&tokens[0]);
        r = session_feed(&s[0], ids, 6, SESSION_EXACT, &done, &e);
        CHECK_MSG(r == ERR_INTR && done == 0 && strstr(e.msg, during ? "interrupted while" : "interrupted after 0 of 6"), "%s", e.msg);
        if (during)
            pthread_join(asker, NULL);
        session_done(&s[0]);
        if (during == 1)
            answer(&quiet);
        r = 0;
        while (t.n <= STEPS && r == 0)
            r = next(&s[1], &t, &e);
        CHECK_MSG(during < 2 ? r == 0 && same(&alone[1], &t) : r == ERR_IO && strstr(e.msg, "does not answer"),
                  "%d: %d %s", during, r, e.msg);
        session_done(&s[1]);
        CHECK(gives_the_same(g, 0, &e) == (during < 2));
        while (sem_trywait(&quiet.go) == 0)
            ;
    }
    static const struct io *volatile left; /* its lanes do not come back: the process's */
    left = engine_io(g);
    CHECK(left->gave_up);
    answer(&quiet);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

int main(void)
{
    alarm(600);
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "thermo-session-%ld.thermo", (long)getpid());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = i == 0 ? 1 : (int32_t)(3 + rnd(ES_VOCAB - 3));
    for (int predicted = 0; predicted < 2; predicted++)
        for (int form = 0; form < (predicted ? LAYOUT_TILES : LAYOUT_FORMS); form++) {
            if (TEST_TSAN && form != (predicted ? LAYOUT_SPLIT : LAYOUT_TWO_PHASE)) /* every backend's turn, but no more */
                continue;
            test_together((enum layout_form)form, predicted, backends[(form + predicted) % 3]);
            test_read_errors((enum layout_form)form, predicted, backends[(form + 2 * predicted + 1) % 3]);
        }
    test_reset();
    for (int at = 0; at <= PROMPT; at += 3)
        test_fork(at);
    test_arguments();
    test_damage();
    test_no_numbers(KV_F32);
    test_no_numbers(KV_F16);
    test_no_numbers(KV_Q8_0);
    test_no_numbers(KV_Q4_0);
    test_cancel();
    return test_done();
}
