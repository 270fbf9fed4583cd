/* Guesses: the text with them is the text without, for greedy and random draws, whatever is guessed, in every mode and form; how many
 * pay; prompt lookup; a context that fills; what is not drawn. */
#include "common/base/cpu.h"
#include "common/kernels/kernels.h"
#include "runtime/session/guess_together.h"
#include "tests/engine_variants.h"
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

enum { PROMPT = 9, MOST = ES_CTX - PROMPT + 1 }; /* tokens: the last one follows a full context */

static int32_t plain[MOST];
static const int32_t never[] = { 2, 7, 31 };

/* Guesses the text that is known, but for every wrong-th token of it; 0: all right; 1: all wrong. */
struct oracle {
    int wrong, asked, ready, calls;
};

static int tell(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e)
{
    struct oracle *o = ctx;
    int at = session_n_pos(s) - PROMPT + 1, n = 0;
    (void)e;
    CHECK(at >= 1 && last == plain[at - 1]); /* the session holds all but the last token */
    for (; n < most && at + n < MOST; n++)
        out[n] = o->wrong && (at + n) % o->wrong == 0 ? (plain[at + n] + 1) % ES_VOCAB : plain[at + n];
    *class = at % GUESS_CLASSES;
    o->asked += n;
    o->calls++;
    return n;
}

static int fails(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e)
{
    (void)ctx, (void)s, (void)last, (void)out, (void)most, (void)class;
    return err_set(e, ERR_IO, "no guess");
}

/* Is called as often as the source, before it. */
static int counts_asked(void *ctx, const struct session *s, struct err *e)
{
    struct oracle *o = ctx;
    (void)s;
    o->ready++;
    return o->ready == 4 ? err_set(e, ERR_IO, "not ready") : 0;
}

/* A text of n tokens; how many came before the context was full, or ERR_*. */
static int text(struct engine *g, const struct sample_params *p, const struct guess_config *c, int n, int32_t *out, struct guess *x,
                struct err *e)
{
    struct session s;
    const struct session_config q = { .sampling = *p };
    int done, made = 0;
    int32_t id = session_init(&s, g, &q, e);
    id = id < 0 ? id : session_feed(&s, ids, PROMPT, SESSION_EXACT, &done, e);
    guess_init(x, c, &s);
    while (id >= 0 && made < n && !(made && guess_full(x)) && (id = guess_next(x, n - made, e)) >= 0)
        out[made++] = id;
    for (int i = 0; id >= 0 && i < session_n_pos(&s); i++) /* it holds the text, less its last token and what was not handed out */
        CHECK(session_ids(&s)[i] == (i < PROMPT ? ids[i] : plain[i - PROMPT]));
    session_done(&s);
    return id < 0 ? id : made;
}

/* Passes by their tokens are all passes. */
static void counted(const struct guess_stats *g)
{
    uint64_t passes = 0, guessed = 0;
    for (int n = 1; n <= GUESS_MOST + 1; n++) {
        passes += n > 1 ? g->n_by[n] : 0;
        guessed += g->n_by[n] * (uint64_t)(n - 1);
        CHECK((g->n_by[n] > 0) == (g->ns_by[n] > 0));
    }
    CHECK(passes == g->passes && guessed == g->guessed && g->tried <= g->guessed && g->accepted <= g->tried);
}

static void test_same_text(enum layout_form form, const struct es_predict *predict)
{
    static const struct sample_params how[] = {
        { .temp = 0, .top_p = 1, .repeat_penalty = 1 },
        { .temp = 1.1, .top_p = 0.95, .repeat_penalty = 1.2, .repeat_last_n = 8, .seed = 77 },
    };
    struct err e = { 0 };
    struct pack *p = NULL;
    const struct engine_sample sample = { .form = form, .types = { QUANT_Q8_0, QUANT_Q8_0, QUANT_F32 }, .cluster = 16, .block = 512,
                                          .act = MODEL_ACT_RELU, .n_ff = 200, .rank = 16, .predictor_type = QUANT_F32 };
    const struct variant v = { .threads = 2, .chunk = 6, .depth = 3, .lanes = 2, .hot = 3, .cold = 3, .prefetch = 1, .buffered = 1,
                               .predict = predict, .backend = &io_pread_backend };
    struct engine *g = NULL;
    CHECK_MSG(es_pack(path, &sample, &e) == 0 && pack_open(path, &p, &e) == 0, "%s", e.msg);
    struct engine_config c = config(p, &v);
    CHECK_MSG(engine_open(&c, &g, &e) == 0, "%s", e.msg);
    for (int k = 0; k < 2; k++) {
        struct guess_config q = { .never = never, .n_never = 3, .mode = SESSION_PREDICTED };
        struct guess x;
        int32_t with[MOST];
        CHECK_MSG(text(g, &how[k], &q, MOST, plain, &x, &e) == MOST && x.stats.passes == 0, "%s", e.msg);
        for (int i = 0; i < MOST; i++)
            CHECK(plain[i] != never[0] && plain[i] != never[1] && plain[i] != never[2]);
        static const int wrong[] = { 0, 1, 3, 5 };
        static const struct plan_guesses slow = { .n = 3, .tokens = { 1, 2, 4 }, .pass_ns = { 100, 105, 180 } };
        for (int i = 0; i < 8; i++) {
            struct oracle o = { .wrong = wrong[i % 4] };
            q.always = i < 4;
            q.most = i < 4 ? 1 + 3 * i : GUESS_MOST;
            q.source = tell;
            q.ctx = &o;
            q.costly = i % 2;
            q.plan = i == 5 ? &slow : NULL;
            q.guess_ns = 1e15;
            int n = text(g, &how[k], &q, MOST, with, &x, &e);
            CHECK_MSG(n == MOST && !memcmp(with, plain, sizeof plain), "%s, draws %d, guesses %d: %d tokens", layout_form_name(form), k,
                      i, n);
            counted(&x.stats);
            CHECK(!q.costly || q.always || (x.stats.guessed > 0 && x.each < 1e5)); /* one that was tried tells */
            if (q.always && o.wrong == 0)
                CHECK(x.stats.accepted == x.stats.guessed && x.stats.accepted == (MOST - 1) / 2); /* one each: half of the passes */
            if (o.wrong == 1)
                CHECK(x.stats.accepted == 0);
            CHECK(x.stats.guessed <= (uint64_t)o.asked);
        }
        q.source = guess_lookup;
        CHECK(text(g, &how[k], &q, MOST, with, &x, &e) == MOST && !memcmp(with, plain, sizeof plain));
        for (int n = 0; n < 6; n++) { /* no more than is wanted */
            struct oracle o = { .wrong = 0 };
            q.source = tell;
            q.ctx = &o;
            q.always = 1;
            CHECK(text(g, &how[k], &q, n, with, &x, &e) == n && !memcmp(with, plain, (size_t)n * sizeof *with));
            CHECK(x.stats.guessed == (uint64_t)(n > 2 ? n - 2 : 0)); /* the first of them from the prompt, one from the pass itself */
        }
        struct oracle o = { .wrong = 1 };
        q.source = tell;
        q.ready = counts_asked;
        q.ctx = &o;
        CHECK(text(g, &how[k], &q, 9, with, &x, &e) == ERR_IO && !strcmp(e.msg, "not ready") && o.ready == 4 && o.calls == 3);
        q.ready = NULL;
        q.source = fails;
        CHECK(text(g, &how[k], &q, 5, with, &x, &e) == ERR_IO && !strcmp(e.msg, "no guess"));
    }
    engine_close(g);
    pack_close(p);
    unlink(path);
}

/* The last place of the longest run, and what follows it, guesses of itself included. */
static void test_lookup(void)
{
    static int32_t text_ids[] = { 5, 6, 7, 8, 5, 6, 9, 9, 6, 7, 1, 5, 6 };
    struct session s = { .ids = text_ids, .n_pos = 13 };
    int32_t out[6];
    struct err e = { 0 };
    int class = -1;
    CHECK(guess_lookup(NULL, &s, 7, out, 3, &class, &e) == 3 && class == 2); /* 5 6 7, at the beginning; not the later 6 7 */
    CHECK(out[0] == 8 && out[1] == 5 && out[2] == 6);
    CHECK(guess_lookup(NULL, &s, 9, out, 4, &class, &e) == 4 && class == 2 && out[0] == 9 && out[1] == 6 && out[2] == 7 && out[3] == 1);
    s.n_pos = 3;
    CHECK(guess_lookup(NULL, &s, 7, out, 6, &class, &e) == 6 && class == 0); /* 7 7: it repeats */
    for (int i = 0; i < 6; i++)
        CHECK(out[i] == 7);
    CHECK(guess_lookup(NULL, &s, 4, out, 6, &class, &e) == 0);
    s.n_pos = 0;
    CHECK(guess_lookup(NULL, &s, 5, out, 6, &class, &e) == 0);
}

/* More where guesses come true and passes over many cost little; none where they do not pay. */
static void test_paying(void)
{
    struct session s = { 0 };
    struct guess g;
    const struct guess_config c = { .most = 8, .source = guess_lookup };
    guess_init(&g, &c, &s);
    g.of[0] = (struct guess_class){ .accepted = 1000, .tried = 1000 };
    g.of[1] = (struct guess_class){ .accepted = 0, .tried = 1000 };
    g.of[2] = (struct guess_class){ .accepted = 600, .tried = 1000 };
    g.more = 0.1;
    CHECK(guess_paying(&g, 0) == 8 && guess_paying(&g, 1) == 0);
    int some = guess_paying(&g, 2);
    CHECK(some > 0 && some < 8);
    g.each = 0.3; /* and a draft takes its time */
    CHECK(guess_paying(&g, 2) < some);
    g.more = 1;   /* a pass over two takes twice as long */
    CHECK(guess_paying(&g, 0) == 0);
}

/* A plan says what passes take; measured ones make those of the next lengths longer or shorter, too. */
static void test_planned(void)
{
    static const struct plan_guesses plan = { .n = 3, .tokens = { 1, 2, 4 }, .pass_ns = { 100, 105, 180 } }, none = { 0 };
    struct session s = { 0 };
    struct guess g, without;
    struct guess_config c = { .most = 8, .source = guess_lookup, .plan = &plan };
    guess_init(&g, &c, &s);
    g.of[0] = (struct guess_class){ .accepted = 600, .tried = 1000 };
    g.of[1] = (struct guess_class){ .accepted = 1000, .tried = 1000 };
    CHECK(guess_paying(&g, 0) == 1); /* 1.6 / 1.05 is more than 1.96 / 1.425 and 1 */
    CHECK(guess_paying(&g, 1) == 8); /* 9 / 3.675 more than 2 / 1.05 */
    g.lasts[2] = 1.7; /* 1.62 times as long, and so are longer ones */
    CHECK(guess_paying(&g, 0) == 0 && guess_paying(&g, 1) == 8); /* 9 / 5.95 */
    g.lasts[9] = 9; /* no faster than nine passes; those between are */
    CHECK(guess_paying(&g, 1) > 1 && guess_paying(&g, 1) < 8);
    g.lasts[2] = 0.5; /* no less than a pass of one token */
    CHECK(guess_paying(&g, 0) >= 1 && guess_paying(&g, 1) > 1);
    c.plan = &none;
    guess_init(&g, &c, &s);
    c.plan = NULL;
    guess_init(&without, &c, &s);
    g.of[0] = without.of[0] = (struct guess_class){ .accepted = 600, .tried = 1000 };
    g.lasts[2] = 50; /* counts nothing without a plan */
    CHECK(g.more == without.more && g.more > 0 && guess_paying(&g, 0) == guess_paying(&without, 0));
    c.plan = &plan;
    c.guess_ns = 70; /* by the plan, until guesses were made */
    guess_init(&g, &c, &s);
    g.of[0] = (struct guess_class){ .accepted = 600, .tried = 1000 };
    g.of[1] = (struct guess_class){ .accepted = 1000, .tried = 1000 };
    CHECK(g.each > 0.69 && g.each < 0.71 && guess_paying(&g, 0) == 0 && guess_paying(&g, 1) == 1); /* 2 / 1.75 */
    c.plan = NULL;
    guess_init(&g, &c, &s);
    CHECK(g.each == 0);
}

/* How long passes over so many tokens take: as the plan's times go, and as those that were measured. */
static void test_times(void)
{
    static const struct plan_batch batches[] = { { .batch = 1, .predicted.tokens_per_s = 10 },       /* 100 ms a step */
                                                 { .batch = 2, .predicted.tokens_per_s = 2 / .12 },  /* 120 */
                                                 { .batch = 4, .predicted.tokens_per_s = 4 / .20 } };
    struct guess_times t = { .batches = batches, .n_batches = 3 };
    CHECK(guess_times_ns(&t, 2) == 0); /* nothing is known before something was measured */
    guess_times_took(&t, 2, 240e6);    /* twice as long */
    CHECK(fabs(guess_times_ns(&t, 2) - 240e6) < 1 && fabs(guess_times_ns(&t, 1) - 200e6) < 1 && fabs(guess_times_ns(&t, 3) - 320e6) < 1);
    CHECK(fabs(guess_times_ns(&t, 6) - 560e6) < 1); /* 280 by the last slope */
    guess_times_took(&t, 4, 200e6); /* as planned */
    CHECK(fabs(guess_times_ns(&t, 3) - 240e6) < 1 && fabs(guess_times_ns(&t, SESSION_MOST) - (200e6 + 40e6 * (SESSION_MOST - 4))) < 1);
    guess_times_took(&t, 4, 300e6);
    CHECK(fabs(guess_times_ns(&t, 4) - 250e6) < 1);
    for (int i = 0; i < 100; i++) /* older ones are forgotten */
        guess_times_took(&t, 4, 400e6);
    CHECK(guess_times_ns(&t, 4) > 399e6);
    struct guess_times none = { 0 };
    guess_times_took(&none, 1, 100);
    CHECK(fabs(guess_times_ns(&none, 1) - 100) < 1e-9 && fabs(guess_times_ns(&none, 5) - 200) < 1e-9);
}

/* What of all ways to give guesses out makes most tokens in a time, by trying all of them. */
static double best_rate(const struct guess_times *t, const struct guess_want *w, int room, double each)
{
    double best = 0;
    int k[3];
    for (k[0] = 0; k[0] <= w[0].most; k[0]++)
        for (k[1] = 0; k[1] <= w[1].most; k[1]++)
            for (k[2] = 0; k[2] <= w[2].most; k[2]++) {
                int n = k[0] + k[1] + k[2];
                double tokens = 0, ns = guess_times_ns(t, 3 + n), least = guess_times_ns(t, 3);
                for (int i = 0; i < 3; i++)
                    for (int j = 0; j <= k[i]; j++)
                        tokens += pow(w[i].share, j);
                double rate = tokens / ((ns > least ? ns : least) + n * each);
                best = n <= room && rate > best ? rate : best;
            }
    return best;
}

static void test_share_out(void)
{
    for (int i = 0; i < 300; i++) {
        struct guess_times t = { 0 };
        struct guess_want w[3];
        double each = i % 3 ? 0 : rnd(1000) / 20.0, tokens = 0;
        for (int k = 1; k < 30; k += 1 + (int)rnd(4))
            guess_times_took(&t, k, 100 + k * (double)rnd(60));
        for (int k = 0; k < 3; k++)
            w[k] = (struct guess_want){ rnd(1001) / 1000.0, (int)rnd(6), -1 };
        int room = (int)rnd(20), n = 0;
        guess_share_out(&t, w, 3, room, each);
        for (int k = 0; k < 3; k++) {
            CHECK(w[k].k >= 0 && w[k].k <= w[k].most);
            n += w[k].k;
            for (int j = 0; j <= w[k].k; j++)
                tokens += pow(w[k].share, j);
        }
        double ns = guess_times_ns(&t, 3 + n), least = guess_times_ns(&t, 3), rate = tokens / ((ns > least ? ns : least) + n * each);
        double best = best_rate(&t, w, room, each), pays = 3 / least * 1.05;
        CHECK_MSG(n <= room && rate >= (best > pays * (1 + 1e-9) ? best * (1 - 1e-9) : 0) && (best > pays * (1 - 1e-9) || n == 0),
                  "%d: %d guesses, %g", i, n, rate);
    }
    /* Guesses of one text are no loss to others that guess in vain. */
    struct guess_times t = { 0 };
    guess_times_took(&t, 3, 100);
    guess_times_took(&t, 9, 130);
    struct guess_want w[3] = { { 1, 6, 0 }, { 0.01, 6, 0 }, { 0, 6, 0 } };
    guess_share_out(&t, w, 3, 100, 0);
    CHECK(w[0].k == 6 && w[1].k == 0 && w[2].k == 0);
}

int main(void)
{
    static const struct es_predict predicts = { .input = { PREDICT_FFN, PREDICT_BLOCK, PREDICT_RESIDUAL }, .threshold = 0 };
    alarm(600);
    kernels_init(cpu_detect());
    test_path(path, sizeof path, "thermo-guess-%ld.thermo", (long)getpid());
    for (int i = 0; i < ES_SEQ; i++)
        ids[i] = i == 0 ? 1 : (int32_t)(3 + rnd(ES_VOCAB - 3));
    test_same_text(LAYOUT_BUNDLE, NULL);
    test_same_text(LAYOUT_SPLIT, &predicts);
    test_lookup();
    test_paying();
    test_planned();
    test_times();
    test_share_out();
    return test_done();
}
