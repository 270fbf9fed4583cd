/* Texts that are made together: each has the logits and tokens that it has alone, bit for bit, whatever joins and leaves, whatever
 * prompts have in common, whatever is guessed, and however large the KV cache is; in exact and predicted mode, over forms, read backends
 * and sizes of chunks. One that is cancelled, or whose read fails, leaves the others as they are. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "runtime/session/batch.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <unistd.h>

enum { TEXTS = 9, SIBLINGS = 2, PROMPT_MAX = 44, MADE_MAX = 18 };

static const struct io_backend *const backends[] = { &io_pread_backend, &io_uring_backend, &io_delay_backend };

struct story {
    float logits[MADE_MAX * ES_VOCAB]; /* that each token was drawn from */
    int32_t drawn[MADE_MAX], top[MADE_MAX][BATCH_TOP];
    double logprob[MADE_MAX], top_logprob[MADE_MAX][BATCH_TOP]; /* before any is changed */
    int n, ended, end;
};

static int32_t prompts[TEXTS][PROMPT_MAX];
static struct batch_text texts[TEXTS], siblings[SIBLINGS];
static struct story alone[TEXTS + SIBLINGS], together[TEXTS + SIBLINGS];
static int gave_way[2]; /* in exact, in predicted mode */
static int shared; /* texts whose prompts others had read in part */
static struct guess_stats guessed;
static const int32_t eog[] = { 7, 19 };
static const struct sample_bias bias = { 11, 4.0f };

static struct pack *open_pack(enum layout_form form, int experts)
{
    struct err e = { 0 };
    struct pack *p = NULL;
    const struct engine_sample s = { .form = form, .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_F32 }, .cluster = 16, .block = 512,
                                     .act = MODEL_ACT_RELU, .n_ff = experts ? 72 : 200, .rank = 16, .predictor_type = QUANT_F32,
                                     .experts = experts, .used = experts ? 2 : 0 };
    CHECK_MSG(es_pack(path, &s, &e) == 0 && pack_open(path, &p, &e) == 0, "%s", e.msg);
    return p;
}

static const struct es_predict predicts = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };

static struct variant variant(const struct io_backend *b, int threads, int chunk)
{
    return (struct variant){ .threads = threads, .chunk = chunk, .depth = 3, .lanes = 2, .hot = 3, .cold = 3, .prefetch = 1, .backend = b,
                             .coalesce = 2, .streamed = 2, .buffers = 1, .buffered = 1 };
}

/* Prompts of all lengths; every second begins as the first does. */
static void make_texts(void)
{
    memset(texts, 0, sizeof texts);
    memset(siblings, 0, sizeof siblings);
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; k < PROMPT_MAX; k++)
            prompts[i][k] = i % 2 == 0 && k < 35 + i ? prompts[0][k] : (int32_t)rnd(ES_VOCAB);
        for (int k = 0; i == 0 && k < PROMPT_MAX; k++)
            prompts[0][k] = (int32_t)rnd(ES_VOCAB);
        texts[i] = (struct batch_text){ .prompt = prompts[i], .n_prompt = i % 2 ? 1 + 5 * i : PROMPT_MAX - i % 3,
                                        .n = i == 3 ? 0 : 4 + (7 * i) % 14, .ignore_eos = i % 3 == 0, .owner = &together[i],
                                        .logprobs = i % 4 * 6, .made = together[i].drawn,
                                        .sampling = { .temp = 0.9, .top_p = 1, .repeat_penalty = 1.2, .repeat_last_n = 8,
                                                      .frequency_penalty = i % 2 ? 0.7 : 0, .presence_penalty = i % 3 ? 0 : 0.9,
                                                      .bias = &bias, .n_bias = i == 6, .seed = 5 + (uint64_t)i } };
    }
    texts[4].n = MADE_MAX; /* with siblings */
    for (int i = 0; i < SIBLINGS; i++) {
        siblings[i] = texts[4];
        siblings[i].sampling.seed = 100 + (uint64_t)i;
        siblings[i].n -= i;
        siblings[i].owner = &together[TEXTS + i];
        siblings[i].made = together[TEXTS + i].drawn;
        siblings[i].siblings = i + 1 < SIBLINGS ? &siblings[i + 1] : NULL;
    }
}

/* What each token is said to have been likely, by looking for the largest again and again. */
static void naive_logprobs(const float *logits, double *logprob, int32_t *top)
{
    double sum = 0;
    unsigned char used[ES_VOCAB] = { 0 };
    for (int i = 0; i < ES_VOCAB; i++)
        sum += exp((double)logits[i]);
    for (int k = 0; k < BATCH_TOP; k++) {
        int best = -1;
        for (int i = 0; i < ES_VOCAB; i++)
            if (!used[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        used[best] = 1;
        top[k] = best;
    }
    for (int i = 0; i < ES_VOCAB; i++)
        logprob[i] = (double)logits[i] - log(sum);
}

/* A text by itself, by session_feed. */
static void tell_alone(struct engine *g, const struct batch_text *t, struct story *s)
{
    struct session one;
    struct err e = { 0 };
    int done, r;
    struct session_config c = { .sampling = t->sampling };
    double logprob[ES_VOCAB];
    c.sampling.n_prompt = t->n_prompt;
    s->n = 0;
    CHECK(session_init(&one, g, &c, &e) == 0);
    r = session_feed(&one, t->prompt, t->n_prompt, SESSION_EXACT, &done, &e);
    for (int made = 0; made < t->n && r == 0; made++) {
        float *logits = session_logits(&one, &e);
        naive_logprobs(logits, logprob, s->top[s->n]);
        for (int i = 0; i < 2 && t->ignore_eos; i++)
            logits[eog[i]] = -INFINITY;
        memcpy(s->logits + s->n * ES_VOCAB, logits, ES_VOCAB * sizeof *logits);
        int32_t id = session_sample(&one, &e);
        if (!t->ignore_eos && (id == eog[0] || id == eog[1]))
            break;
        s->logprob[s->n] = logprob[id];
        for (int k = 0; k < BATCH_TOP; k++)
            s->top_logprob[s->n][k] = logprob[s->top[s->n][k]];
        s->drawn[s->n++] = id;
        if (session_n_pos(&one) == ES_CTX || made + 1 == t->n)
            break;
        r = session_feed(&one, &id, 1, SESSION_PREDICTED, &done, &e);
    }
    CHECK_MSG(r == 0, "%s", e.msg);
    session_done(&one);
}

static int on_token(void *ctx, struct batch_text *t, int32_t id)
{
    struct story *s = t->owner;
    struct err e;
    (void)ctx;
    memcpy(s->logits + s->n * ES_VOCAB, session_logits(&t->session, &e), ES_VOCAB * sizeof(float));
    s->logprob[s->n] = t->token_logprob;
    CHECK(t->n_top == t->logprobs);
    memcpy(s->top[s->n], t->top, sizeof t->top);
    memcpy(s->top_logprob[s->n], t->top_logprob, sizeof t->top_logprob);
    s->drawn[s->n++] = id;
    return 0;
}

static void on_end(void *ctx, struct batch_text *t, enum batch_end end, const struct err *why)
{
    struct story *s = t->owner;
    (void)ctx;
    s->ended++;
    s->end = end;
    CHECK((end == BATCH_FAILED) == (why != NULL));
}

static int same_logprobs(const struct story *a, const struct story *b, int n_top)
{
    int same = 1;
    for (int i = 0; i < b->n; i++) {
        same &= fabs(a->logprob[i] - b->logprob[i]) < 1e-6 && !memcmp(a->top[i], b->top[i], (size_t)n_top * sizeof *a->top[i]);
        for (int k = 0; k < n_top; k++)
            same &= fabs(a->top_logprob[i][k] - b->top_logprob[i][k]) < 1e-6;
    }
    return same;
}

static int same(const struct story *a, const struct story *b)
{
    return b->ended == 1 && a->n == b->n && !memcmp(a->drawn, b->drawn, (size_t)a->n * sizeof *a->drawn) &&
           !memcmp(a->logits, b->logits, (size_t)a->n * ES_VOCAB * sizeof *a->logits);
}

static struct batch_config batch_of(struct engine *g)
{
    return (struct batch_config){ .engine = g, .eog = eog, .n_eog = 2, .token = on_token, .end = on_end };
}

/* Guesses what each text is alone, but for every third token, and for some nothing. */
static int oracle(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    (void)ctx, (void)e;
    for (int i = 0; i < n; i++) {
        struct guess_ask *a = &asks[i];
        const struct batch_text *t = (const void *)((const char *)a->s - offsetof(struct batch_text, session));
        const struct story *own = &alone[(const struct story *)t->owner - together];
        int at = session_n_pos(a->s) - t->n_prompt + 1; /* the session holds all but the last token */
        CHECK(at >= 1 && at <= own->n && a->last == own->drawn[at - 1] && at + a->most < MADE_MAX);
        for (; a->n < a->most && at + a->n < own->n && at % 5; a->n++)
            a->out[a->n] = (own->drawn[at + a->n] + ((at + a->n) % 3 == 0)) % ES_VOCAB;
        a->class = at % GUESS_CLASSES;
    }
    return 0;
}

static int oracle_fails(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    (void)ctx, (void)asks, (void)n;
    return err_set(e, ERR_IO, "no guess");
}

/* Its third answer is none: its numbers were no numbers. */
static int oracle_breaks(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    int *asked = ctx;
    int r = oracle(NULL, asks, n, e);
    return ++*asked < 3 ? r : err_set(e, ERR_FORMAT, "a logit is nan");
}

/* Who looks on, and has to be told what a session begins with: sessions that have ended stay, and others go on with them. */
static int looked, went_on;

static int saw(void *ctx, const struct session *s, int first, int n, const float *hidden, struct err *e)
{
    (void)ctx, (void)s, (void)n, (void)hidden, (void)e;
    looked++;
    went_on += first >= SCHEDULE_KV_PAGE;
    return 0;
}

static int saw_fork(void *ctx, const struct session *s, const struct session *from, struct err *e)
{
    (void)ctx, (void)s, (void)from, (void)e;
    return 0;
}

static void saw_end(void *ctx, const struct session *s)
{
    (void)ctx, (void)s;
}

static const struct session_watcher looks_on = { saw, saw_fork, saw_end };

static const struct guess_many_config all = { .most = 6, .source = oracle, .always = 1 },
                                      costly = { .most = 3, .source = oracle, .costly = 1, .guess_ns = 1e15, .watcher = &looks_on },
                                      lookup = { .most = GUESS_MOST, .source = guess_lookup_many, .always = 1, .watcher = &looks_on };

/* Texts join while others are on their way. Two rounds on the same engine, each with its way of guessing; in one of them a text is
 * cancelled. With prefixes the second finds what the first has left. */
static void together_as_alone(struct engine *g, const char *what, const struct guess_many_config *const guesses[2], int cancels,
                              int prefixes)
{
    for (int round = 0; round < 2; round++) {
        int next = 0, r = 1, right = 1, cancelled = round == cancels ? 5 : -1;
        struct err e = { 0 };
        struct batch b;
        struct batch_config c = batch_of(g);
        c.guesses = guesses[round];
        c.prefixes = prefixes;
        CHECK(batch_init(&b, &c, &e) == 0);
        CHECK(!c.guesses || (b.each_ns <= c.guesses->guess_ns && b.each_ns >= c.guesses->guess_ns)); /* equal */
        memset(together, 0, sizeof together);
        texts[4].siblings = engine_configuration(g)->choice.max_batch > SIBLINGS ? siblings : NULL;
        texts[4].n_siblings = texts[4].siblings ? SIBLINGS : 0;
        while (r > 0 || next < TEXTS) {
            for (int k = (int)rnd(3); k > 0 && next < TEXTS; k--) {
                r = batch_add(&b, &texts[next++], &e);
                CHECK_MSG(r == 0, "%s", e.msg);
            }
            if ((r = batch_step(&b, &e)) < 0)
                break;
            if (cancelled >= 0 && cancelled < next && !together[cancelled].ended) {
                batch_cancel(&b, &texts[cancelled]);
                CHECK(together[cancelled].end == BATCH_CANCELLED);
            }
        }
        for (int i = 0; i < TEXTS + (texts[4].siblings ? SIBLINGS : 0); i++) {
            if (i == cancelled)
                continue;
            shared += i < TEXTS && texts[i].n_shared > 0;
            const struct batch_text *t = i < TEXTS ? &texts[i] : &siblings[i - TEXTS];
            if (!same(&alone[i], &together[i]) || !same_logprobs(&alone[i], &together[i], t->logprobs)) {
                right = 0;
                printf("# %s: text %d: %d tokens, alone %d, ended %d\n", what, i, together[i].n, alone[i].n, together[i].ended);
            }
        }
        CHECK_MSG(r == 0 && right && batch_open(&b) == 0, "%s: %d %s", what, r, e.msg);
        CHECK(b.guessed.accepted <= b.guessed.tried && b.guessed.tried <= b.guessed.guessed && b.guessed.passes <= b.decoded);
        CHECK(c.guesses || !b.guessed.guessed);
        CHECK(c.guesses != &costly || (b.guessed.guessed > 0 && b.each_ns < 1e12)); /* one that was tried tells */
        gave_way[engine_configuration(g)->mode == PLAN_PREDICTED] += (int)b.gave_way;
        CHECK(!b.gave_way || engine_configuration(g)->choice.kv_positions);
        guessed.guessed += b.guessed.guessed;
        guessed.accepted += b.guessed.accepted;
        batch_done(&b);
    }
}

/* Threads and which round cancels differ from shape to shape, and from case to case: `turn`. */
static void test_together(enum layout_form form, int predicted, int experts, const struct io_backend *backend, int turn)
{
    static const struct {
        int sequences, positions, chunk;
        const struct guess_many_config *guesses[2];
    } shapes[] = { { 5, 0, 7, { NULL, &all } }, { 8, 6 * SCHEDULE_KV_PAGE, 16, { &lookup, &all } }, { 3, 0, 1, { NULL, &all } },
                   { 1, 0, 4, { &costly, NULL } }, { 6, 4 * SCHEDULE_KV_PAGE, 5, { &all, NULL } } };
    struct pack *p = open_pack(form, experts);
    struct err e = { 0 };
    char what[96];
    struct engine *g = NULL;
    struct variant v = variant(backend, 1, 8);
    v.predict = predicted ? &predicts : NULL;
    struct engine_config c = config(p, &v);
    int r = engine_open(&c, &g, &e);
    if (r == ERR_UNSUPPORTED && backend == &io_uring_backend)
        goto out;
    CHECK_MSG(r == 0, "%s", e.msg);
    for (int i = 0; i < TEXTS + SIBLINGS; i++)
        tell_alone(g, i < TEXTS ? &texts[i] : &siblings[i - TEXTS], &alone[i]);
    engine_close(g);
    for (size_t i = TEST_TSAN; i < (TEST_TSAN ? 2 : sizeof shapes / sizeof *shapes); i++) {
        v = variant(backend, TEST_TSAN ? 2 : 1 + ((int)i + turn) % 2, shapes[i].chunk);
        v.predict = predicted ? &predicts : NULL;
        c = config(p, &v);
        c.choice.max_batch = shapes[i].sequences;
        c.choice.kv_positions = shapes[i].positions;
        snprintf(what, sizeof what, "%s %s%s %s, %d sequences", layout_form_name(form), predicted ? "predicted" : "exact",
                 experts ? " experts" : "", backend->name, shapes[i].sequences);
        r = engine_open(&c, &g, &e);
        CHECK_MSG(r == 0, "%s: %s", what, e.msg);
        if (r == 0)
            together_as_alone(g, what, shapes[i].guesses, ((int)i / 2 + turn / 2) % 2, ((int)i + turn) % 3 > 0);
        engine_close(g);
    }
out:
    pack_close(p);
    unlink(path);
}

static int fail_at(void *ctx, const struct io_request *r, int result)
{
    int *left = ctx;
    (void)r;
    return __atomic_load_n(left, __ATOMIC_RELAXED) > 0 && __atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) == 0 ? -EIO : result;
}

/* What a text made stands for a prompt where decoding gives what reading gives, and only its prompt where it does not; both with the logits
 * that they have alone. Where others need its pages they give way, and nothing is found. */
static void test_prefixes(int predicted, int watched)
{
    enum { FIRST = 20, MADE = 40, MOST = FIRST + MADE };
    static struct story story[3], own[2];
    static int32_t longer[MOST];
    struct pack *p = open_pack(LAYOUT_SPLIT, 0);
    struct err e = { 0 };
    struct engine *g = NULL;
    struct batch b;
    struct variant v = variant(&io_pread_backend, 2, 8);
    v.predict = predicted ? &predicts : NULL;
    struct engine_config c = config(p, &v);
    c.choice.max_batch = 2;
    c.choice.kv_positions = 4 * SCHEDULE_KV_PAGE;
    CHECK(engine_open(&c, &g, &e) == 0);
    struct batch_config q = batch_of(g);
    const struct guess_many_config watch = { .most = 1, .source = guess_lookup_many, .watcher = &looks_on };
    q.prefixes = 1;
    q.guesses = watched ? &watch : NULL;
    memset(story, 0, sizeof story);
    CHECK(batch_init(&b, &q, &e) == 0);
    struct batch_text t = { .prompt = prompts[0], .n_prompt = FIRST, .n = MADE_MAX, .ignore_eos = 1, .owner = &story[0],
                            .sampling = { .temp = 0.9, .top_p = 1, .repeat_penalty = 1, .seed = 3 } };
    int n = 0;
    memcpy(longer, prompts[0], FIRST * sizeof *longer);
    for (n = FIRST; n < MOST - MADE_MAX; n += MADE_MAX) { /* a conversation: each turn reads what there is */
        memset(story, 0, sizeof story);
        t.prompt = longer;
        t.n_prompt = n;
        CHECK(batch_add(&b, &t, &e) == 0);
        while (batch_step(&b, &e) > 0)
            continue;
        int there = watched ? n - 1 : n / SCHEDULE_KV_PAGE * SCHEDULE_KV_PAGE;
        CHECK_MSG(t.n_shared == (n > FIRST && !predicted ? there : 0), "%d of %d", t.n_shared, n);
        memcpy(longer + n, story[0].drawn, MADE_MAX * sizeof *longer);
    }
    struct batch_text last = t; /* the whole conversation, with nothing and with what is there */
    last.prompt = longer;
    last.n_prompt = n;
    last.n = 3;
    tell_alone(g, &last, &own[0]);
    last.owner = &story[1];
    memset(&story[1], 0, sizeof story[1]);
    CHECK(batch_add(&b, &last, &e) == 0);
    while (batch_step(&b, &e) > 0)
        continue;
    int there = !watched ? SCHEDULE_KV_PAGE : predicted ? n - MADE_MAX : n - 1;
    CHECK_MSG(last.n_shared == there && same(&own[0], &story[1]), "%d of %d were there", last.n_shared, n);
    CHECK(watched || engine_free_positions(g) == 4 * SCHEDULE_KV_PAGE); /* nobody's */
    for (int i = 0; i < 3; i++) { /* others, of each of which a page stays */
        static int32_t other[3][MOST];
        for (int k = 0; k < MOST; k++)
            other[i][k] = (longer[k] + 1 + i) % ES_VOCAB;
        static struct batch_text others[3];
        struct batch_text *x = &others[i];
        *x = (struct batch_text){ .prompt = other[i], .n_prompt = MOST, .n = 1, .owner = &together[i] };
        CHECK(batch_add(&b, x, &e) == 0);
    }
    memset(together, 0, sizeof together);
    while (batch_step(&b, &e) > 0)
        continue;
    memset(&story[1], 0, sizeof story[1]);
    CHECK(batch_add(&b, &last, &e) == 0);
    while (batch_step(&b, &e) > 0)
        continue;
    CHECK_MSG(last.n_shared == 0 && same(&own[0], &story[1]), "%d of %d were there", last.n_shared, n);
    batch_done(&b);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* An error of a pass ends those that took part; those that wait are made, and right. */
static void test_errors(void)
{
    struct pack *p = open_pack(LAYOUT_SPLIT, 0);
    struct err e = { 0 };
    struct engine *g = NULL;
    struct variant v = variant(&io_pread_backend, 2, 8);
    struct engine_config c = config(p, &v);
    static int left;
    struct batch b;
    c.fault = fail_at;
    c.fault_ctx = &left;
    CHECK(engine_open(&c, &g, &e) == 0);
    for (int i = 0; i < TEXTS; i++)
        tell_alone(g, &texts[i], &alone[i]);
    const struct batch_config q = batch_of(g);
    int failed = 0, right = 1, errors = 0;
    texts[4].n_siblings = 0;
    texts[4].siblings = NULL;
    memset(together, 0, sizeof together);
    CHECK(batch_init(&b, &q, &e) == 0);
    for (int i = 0; i < TEXTS; i++)
        CHECK(batch_add(&b, &texts[i], &e) == 0);
    for (int step = 0; batch_open(&b); step++) {
        __atomic_store_n(&left, step == 3 ? 2 : 0, __ATOMIC_RELAXED);
        int r = batch_step(&b, &e);
        errors += r < 0;
        CHECK(r >= 0 || (r == ERR_IO && e.sys == EIO));
    }
    for (int i = 0; i < TEXTS; i++) {
        failed += together[i].end == BATCH_FAILED;
        right &= together[i].end == BATCH_FAILED || same(&alone[i], &together[i]);
    }
    CHECK_MSG(errors == 1 && failed >= 1 && failed <= 2 && right, "%d errors, %d failed, right %d", errors, failed, right);
    /* More than there can be room for. */
    struct batch_text t = texts[0];
    t.n_prompt = ES_CTX + 1;
    CHECK(batch_add(&b, &t, &e) == ERR_LIMIT && strstr(e.msg, "context"));
    t = texts[0];
    t.siblings = siblings;
    t.n_siblings = SIBLINGS;
    CHECK(batch_add(&b, &t, &e) == ERR_LIMIT && strstr(e.msg, "2 sequences"));
    /* A token that there is not ends its text alone. */
    int32_t bad[] = { 1, 2, ES_VOCAB };
    t = (struct batch_text){ .prompt = bad, .n_prompt = 3, .n = 2, .owner = &together[0] };
    memset(together, 0, sizeof together);
    CHECK(batch_add(&b, &t, &e) == 0 && batch_add(&b, &texts[1], &e) == 0);
    while (batch_step(&b, &e) > 0)
        continue;
    CHECK(together[0].end == BATCH_FAILED && same(&alone[1], &together[1]));
    batch_done(&b);
    /* A source of guesses that fails is an error of the step. */
    struct batch_config fails = q;
    fails.guesses = &(struct guess_many_config){ .most = 2, .source = oracle_fails, .always = 1 };
    memset(together, 0, sizeof together);
    CHECK(batch_init(&b, &fails, &e) == 0 && batch_add(&b, &texts[1], &e) == 0 && batch_add(&b, &texts[5], &e) == 0);
    int r = 1;
    while (r > 0)
        r = batch_step(&b, &e);
    CHECK(r == ERR_IO && !strcmp(e.msg, "no guess") && together[1].end == BATCH_FAILED && together[5].end == BATCH_FAILED);
    batch_done(&b);
    /* Where it makes no numbers, texts go on without it. */
    int asked = 0;
    fails.guesses = &(struct guess_many_config){ .most = 2, .source = oracle_breaks, .ctx = &asked, .always = 1 };
    memset(together, 0, sizeof together);
    CHECK(batch_init(&b, &fails, &e) == 0 && batch_add(&b, &texts[1], &e) == 0 && batch_add(&b, &texts[5], &e) == 0);
    while ((r = batch_step(&b, &e)) > 0)
        continue;
    CHECK(r == 0 && asked == 3 && same(&alone[1], &together[1]) && same(&alone[5], &together[5]));
    CHECK(b.no_guesses.code == ERR_FORMAT && !strcmp(b.no_guesses.msg, "a logit is nan"));
    batch_done(&b);
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* ---- cancelling within a pass, and its time ---- */

struct asks_at {
    int left;              /* reads until the token is asked; 0: it is not */
    struct cancel token;
};

static int ask_at(void *ctx, const struct io_request *r, int result)
{
    struct asks_at *a = ctx;
    (void)r;
    if (__atomic_load_n(&a->left, __ATOMIC_RELAXED) > 0 && __atomic_sub_fetch(&a->left, 1, __ATOMIC_RELAXED) == 0)
        cancel_ask(&a->token);
    return result;
}

/* Asked of the only text of a pass: it is given up at the next layer, the text ends, and what reads goes on as it was. Where another text
 * has part in it the pass is made. */
static void test_give_up(enum layout_form form, int predicted, int experts)
{
    struct pack *p = open_pack(form, experts);
    struct err e = { 0 };
    struct engine *g = NULL;
    struct variant v = variant(&io_pread_backend, 1, 8);
    static struct asks_at asks;
    struct batch b;
    v.hot = v.cold = 1;
    v.predict = predicted ? &predicts : NULL;
    v.streamed = 0;
    struct engine_config c = config(p, &v);
    c.fault = ask_at;
    c.fault_ctx = &asks;
    CHECK(engine_open(&c, &g, &e) == 0);
    struct batch_text other = texts[1], cut = texts[5];
    other.ignore_eos = cut.ignore_eos = 1;
    tell_alone(g, &other, &alone[1]);
    const struct batch_config q = batch_of(g);
    for (int others = 0; others < 2; others++)
        for (int at = 0; at < 3; at++) { /* the step of the pass: of a prompt, and of tokens */
            memset(together, 0, sizeof together);
            atomic_store(&asks.token.asked, 0);
            struct batch_text t = cut;
            t.cancel = &asks.token;
            CHECK(batch_init(&b, &q, &e) == 0 && (!others || (batch_add(&b, &other, &e) == 0 && batch_step(&b, &e) == 1)));
            CHECK(batch_add(&b, &t, &e) == 0);
            for (int i = 0; i < at * 3 + (at > 0); i++)
                CHECK(batch_step(&b, &e) == 1);
            int n = together[5].n;
            uint64_t passes = engine_stats(g).passes, reads = engine_io(g)->reads;
            __atomic_store_n(&asks.left, 3, __ATOMIC_RELAXED);
            CHECK(batch_step(&b, &e) == 1 && cancel_asked(&asks.token));
            if (others) {
                CHECK(engine_stats(g).passes > passes && !together[5].ended && together[5].n == n + (at > 0));
                if (!together[5].ended)
                    batch_cancel(&b, &t);
            } else {
                CHECK(engine_stats(g).passes == passes && together[5].n == n);
            }
            CHECK(together[5].ended == 1 && together[5].end == BATCH_CANCELLED);
            CHECK(others || batch_add(&b, &other, &e) == 0);
            while (batch_step(&b, &e) > 0)
                continue;
            CHECK(same(&alone[1], &together[1]));
            CHECK(experts || engine_io(g)->reads > reads); /* the backend of before, and what is cached */
            batch_done(&b);
        }
    engine_close(g);
    pack_close(p);
    unlink(path);
}

static struct {
    struct engine *g;
    uint64_t tokens;
    int64_t now;
} made_up;

/* A pass takes 5 ms and 1 for each of its tokens. */
static int64_t made_up_ns(void *ctx)
{
    uint64_t tokens = engine_stats(made_up.g).tokens;
    (void)ctx;
    if (tokens != made_up.tokens)
        made_up.now += 1000000 * (int64_t)(5 + tokens - made_up.tokens);
    made_up.tokens = tokens;
    return made_up.now;
}

/* While another text is open, prompts are read in pieces that keep to the time; alone in whole chunks. Texts are what they are. */
static void test_pace(void)
{
    struct pack *p = open_pack(LAYOUT_SPLIT, 0);
    struct err e = { 0 };
    struct variant v = variant(&io_pread_backend, 1, 32);
    struct batch b;
    struct engine_config c = config(p, &v);
    int64_t longest[2] = { 0 };
    c.choice.max_batch = 3;
    CHECK(engine_open(&c, &made_up.g, &e) == 0);
    for (int i = 0; i < TEXTS; i++)
        tell_alone(made_up.g, &texts[i], &alone[i]);
    struct batch_config q = batch_of(made_up.g);
    q.most_ns = 14e6;
    q.now_ns = made_up_ns;
    memset(together, 0, sizeof together);
    CHECK(batch_init(&b, &q, &e) == 0);
    made_up_ns(NULL);
    for (int i = 0; i < TEXTS; i++) {
        if (i != 4)
            CHECK(batch_add(&b, &texts[i], &e) == 0);
        for (int step = 0; (step < 5 || i == TEXTS - 1) && batch_open(&b); step++) {
            int64_t before = made_up_ns(NULL);
            int others = b.n_texts + (b.n_waiting > 0 && b.n_texts < 3) > 1;
            CHECK(batch_step(&b, &e) == 1);
            int64_t took = made_up_ns(NULL) - before;
            longest[others] = took > longest[others] ? took : longest[others];
        }
    }
    for (int i = 0; i < TEXTS; i++)
        CHECK(i == 4 || same(&alone[i], &together[i]));
    CHECK_MSG(longest[1] <= 14000000 && longest[1] > 9000000 && longest[0] > 30000000, "%lld and %lld ns", (long long)longest[0],
              (long long)longest[1]);
    batch_done(&b);
    engine_close(made_up.g);
    pack_close(p);
    unlink(path);
}

/* One read for all who need it: together they read less than one after another. */
static void test_reads(void)
{
    struct pack *p = open_pack(LAYOUT_SPLIT, 0);
    struct err e = { 0 };
    struct engine *g = NULL;
    struct variant v = variant(&io_pread_backend, 2, 8);
    uint64_t reads[2], active[2];
    struct batch b;
    v.hot = v.cold = 0;
    v.coalesce = 0;
    for (int sequences = 1; sequences <= 6; sequences += 5) {
        struct engine_config c = config(p, &v);
        c.choice.max_batch = sequences;
        CHECK(engine_open(&c, &g, &e) == 0);
        const struct batch_config q = batch_of(g);
        CHECK(batch_init(&b, &q, &e) == 0);
        memset(together, 0, sizeof together);
        for (int i = 1; i < TEXTS; i += 2)
            CHECK(batch_add(&b, &texts[i], &e) == 0);
        while (batch_step(&b, &e) > 0)
            continue;
        struct engine_stats st = engine_stats(g);
        reads[sequences > 1] = st.read_bytes;
        active[sequences > 1] = st.neurons_read;
        batch_done(&b);
        engine_close(g);
    }
    CHECK_MSG(reads[1] < reads[0] * 3 / 4 && active[1] < active[0], "%llu and %llu bytes", (unsigned long long)reads[1],
              (unsigned long long)reads[0]);
    pack_close(p);
    unlink(path);
}

int main(void)
{
    alarm(600);
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "thermo-batch-%ld.thermo", (long)getpid());
    make_texts();
    int turn = 0;
    for (int predicted = 0; predicted < 2; predicted++)
        for (int form = 0; form < (predicted ? LAYOUT_TILES : LAYOUT_FORMS); form++)
            /* Under the thread sanitizer one form, for threads meet in the same ways in the others; in short runs every second. */
            if (TEST_TSAN ? form == LAYOUT_SPLIT : !test_short() || (form + predicted) % 2 == 0)
                test_together((enum layout_form)form, predicted, 0, backends[(form + predicted) % 3], turn++);
    test_together(LAYOUT_SPLIT, 0, 4, &io_delay_backend, turn++);
    if (!TEST_TSAN)
        test_together(LAYOUT_BUNDLE, 1, 4, &io_pread_backend, turn);
    CHECK_MSG(gave_way[0] > 2 && gave_way[1] > 2, "gave way %d and %d times", gave_way[0], gave_way[1]);
    printf("# texts gave way %d and %d times\n", gave_way[0], gave_way[1]);
    CHECK(shared > (TEST_TSAN ? 2 : test_short() ? 10 : 20));
    CHECK_MSG(guessed.accepted > guessed.guessed / 8 && guessed.accepted < guessed.guessed, "%llu of %llu guesses came true",
              (unsigned long long)guessed.accepted, (unsigned long long)guessed.guessed);
    for (int predicted = 0; predicted < 2; predicted++)
        for (int watched = 0; watched < 2; watched++)
            test_prefixes(predicted, watched);
    CHECK(looked > 0 && went_on > 0);
    test_errors();
    test_give_up(LAYOUT_SPLIT, 0, 0);
    test_give_up(LAYOUT_BUNDLE, 1, 0);
    test_give_up(LAYOUT_SPLIT, 0, 4);
    test_pace();
    test_reads();
    return test_done();
}
