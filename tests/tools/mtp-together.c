/* mtp-together MODEL.thermo PLAN.json LAYER.thermo: guesses of a model's layer for multi-token prediction for four texts at once are those
 * that it makes for each alone, and so are the logits that they are drawn from, bit for bit: texts that read in steps of a few tokens
 * beside each other, that go on from another, whole and in part, that took in wrong guesses, and that have the place of one that ended. */
#include "runtime/mtp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 4, LENGTH = 90, CHUNK = 24, MOST = 5, BEFORE = 36, SPLIT = 2 * SCHEDULE_KV_PAGE, PAGES = 7 };

static int32_t ids[TEXTS][LENGTH];
static struct mtp m;
static struct engine *g;
static struct session s[TEXTS];
static struct session_config of[TEXTS];
static float *logits[TEXTS];
static int free_positions; /* of the layer's KV cache, at first */

/* PAGES are what the texts need of the model's KV cache and no more, for text 1 shares all pages of text 0: the layer's shares one less.
 * Texts 1 and 2 begin as text 0 does, up to BEFORE and one more, and up to SPLIT. */
static void make_texts(int n_vocab)
{
    for (int t = 0; t < TEXTS; t++) {
        for (int i = 0; i < LENGTH; i++)
            ids[t][i] = (int32_t)((t * 101 + i * i * 7 + i * 31) % (n_vocab - 4) + 3);
        if (t == 1 || t == 2)
            memcpy(ids[t], ids[0], (size_t)(t == 1 ? SPLIT : BEFORE + 1) * sizeof *ids[t]);
        of[t] = (struct session_config){ .watcher = &mtp_watcher, .watcher_ctx = &m,
                                         .sampling = { .temp = 0.9, .top_p = 1, .repeat_penalty = 1.1, .repeat_last_n = 16,
                                                       .seed = (uint64_t)t } };
    }
}

static int32_t *alone(int t, int n, int most, int32_t *out, struct err *e)
{
    struct session one;
    int done, made = -1, r = session_init(&one, g, &of[t], e);
    if (r < 0)
        return NULL;
    struct guess_ask a = { .s = &one, .last = ids[t][n], .most = most, .out = out };
    if ((r = session_feed(&one, ids[t], n, SESSION_EXACT, &done, e)) == 0 && (r = mtp_guess_many(&m, &a, 1, e)) == 0)
        made = a.n;
    memcpy(logits[t], engine_logits_row(m.engine, 0), (size_t)m.pack->h.n_vocab * sizeof *logits[t]);
    session_done(&one);
    if (r == 0 && made >= 0 && made != most)
        err_set(e, ERR_LIMIT, "%d guesses of text %d alone, %d were asked for", made, t, most);
    return made == most ? out : NULL;
}

/* Each text takes in more of its tokens, in one pass. */
static int step(const int *more, const int32_t *const *instead, struct err *e)
{
    struct session_part parts[TEXTS];
    int n = 0;
    for (int t = 0; t < TEXTS; t++)
        if (more[t])
            parts[n++] = (struct session_part){ .s = &s[t], .n = more[t], .mode = SESSION_EXACT,
                                                .ids = instead[t] ? instead[t] : ids[t] + session_n_pos(&s[t]) };
    return session_step(parts, n, NULL, e);
}

/* What texts are asked for together is what they are alone; how many differ. */
static int compare(const int *most, struct err *e)
{
    struct guess_ask asks[TEXTS];
    int32_t out[TEXTS][MOST], want[MOST];
    int wrong = 0, same = 1;
    for (int t = 0; t < TEXTS; t++) {
        asks[t] = (struct guess_ask){ .s = &s[t], .last = ids[t][session_n_pos(&s[t])], .most = most[t], .out = out[t] };
        same &= most[t] == most[0];
    }
    if (mtp_ready_many(&m, asks, TEXTS, e) < 0 || mtp_guess_many(&m, asks, TEXTS, e) < 0)
        return -1;
    float *together = malloc(TEXTS * (size_t)m.pack->h.n_vocab * sizeof *together);
    if (!together)
        return err_set(e, ERR_NOMEM, "out of memory");
    size_t row = (size_t)m.pack->h.n_vocab;
    memcpy(together, engine_logits_row(m.engine, 0), TEXTS * row * sizeof *together);
    int n_pos[TEXTS];
    for (int t = 0; t < TEXTS; t++) {
        n_pos[t] = session_n_pos(&s[t]);
        session_done(&s[t]); /* its place is for the text alone */
    }
    if (engine_free_positions(m.engine) != free_positions)
        wrong = err_set(e, ERR_LIMIT, "%d positions of the layer are free, but %d were", engine_free_positions(m.engine), free_positions);
    for (int t = 0; t < TEXTS && wrong >= 0; t++) {
        int bad = asks[t].n != most[t];
        if (most[t] && !alone(t, n_pos[t], most[t], want, e))
            wrong = -1;
        bad |= most[t] && memcmp(want, out[t], (size_t)most[t] * sizeof *want) != 0;
        bad |= same && memcmp(logits[t], together + (size_t)t * row, row * sizeof *together) != 0; /* their rows are those of the asks */
        if (wrong >= 0 && bad)
            fprintf(stderr, "text %d of %d tokens: %d guesses are others than alone\n", t, n_pos[t], asks[t].n);
        wrong += wrong >= 0 && bad;
    }
    free(together);
    return wrong;
}

static int all(const int *more, struct err *e)
{
    static const int32_t *const none[TEXTS] = { NULL };
    return step(more, none, e);
}

/* Texts come to what they are compared at by all ways that there are. */
static int begin(struct err *e)
{
    int32_t guessed[6];
    const int32_t *instead[TEXTS] = { NULL, NULL, NULL, guessed };
    int r = session_init(&s[0], g, &of[0], e), done;
    if (r < 0 || (r = session_init(&s[1], g, &of[1], e)) < 0 || (r = session_feed(&s[1], ids[3], 40, SESSION_EXACT, &done, e)) < 0)
        return r;
    session_done(&s[1]);
    if ((r = session_init(&s[3], g, &of[3], e)) < 0) /* has its place */
        return r;
    for (int n = 0; n < SPLIT && r == 0; n += 8)
        r = all((const int[TEXTS]){ 8, 0, 0, 4 }, e);
    if (r < 0 || (r = session_fork(&s[1], &s[0], SPLIT, &of[1], e)) < 0 || (r = session_fork(&s[2], &s[0], BEFORE, &of[2], e)) < 0)
        return r;
    memcpy(guessed, ids[3] + 32, sizeof guessed);
    guessed[3] ^= 1, guessed[4] ^= 1, guessed[5] ^= 1;
    if ((r = step((const int[TEXTS]){ 1, 4, 4, 6 }, instead, e)) < 0)
        return r;
    session_rewind(&s[3], 35);
    for (int n = 0; n < 11 && r == 0; n++) /* so that what waits overflows */
        r = all((const int[TEXTS]){ n % 3 == 0, 1, n % 2, 2 }, e);
    return r;
}

static int run(struct err *e)
{
    static const int mosts[][TEXTS] = { { 3, 3, 3, 3 }, { 2, 0, 5, 1 }, { 0, 1, 1, 0 } };
    int wrong = 0, r;
    for (size_t i = 0; i < sizeof mosts / sizeof *mosts; i++) {
        if ((r = begin(e)) < 0 || (r = compare(mosts[i], e)) < 0)
            return r;
        wrong += r;
    }
    if (wrong == 0)
        puts("the same");
    return wrong ? err_set(e, ERR_FORMAT, "%d texts have other guesses than alone", wrong) : 0;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    struct setup setup = { 0 };
    struct setup_args a;
    if (argc != 4) {
        fprintf(stderr, "usage: mtp-together MODEL.thermo PLAN.json LAYER.thermo\n");
        return 2;
    }
    setup_args_init(&a);
    a.model = argv[1];
    a.plan = argv[2];
    a.chunk = CHUNK;
    a.sequences = TEXTS;
    a.kv_positions = PAGES * SCHEDULE_KV_PAGE;
    a.beside_of = mtp_beside;
    a.beside_ctx = &m;
    int r = mtp_open(&m, argv[3], &a, &e);
    if (r == 0 && (r = setup_open(&a, &setup, &e)) == 0 && (r = mtp_check(&m, &setup, &e)) == 0 &&
        (r = setup_engine(&setup, &g, &e)) == 0 && (r = mtp_start(&m, &setup, g, &e)) == 0) {
        make_texts(setup.pack->h.n_vocab);
        free_positions = engine_free_positions(m.engine);
        for (int t = 0; t < TEXTS && r == 0; t++)
            if (!(logits[t] = malloc((size_t)setup.pack->h.n_vocab * sizeof **logits)))
                r = err_set(&e, ERR_NOMEM, "out of memory");
        r = r < 0 ? r : run(&e);
    }
    for (int t = 0; t < TEXTS; t++) {
        session_done(&s[t]);
        free(logits[t]);
    }
    mtp_close(&m);
    engine_close(g);
    setup_close(&setup);
    if (r < 0)
        fprintf(stderr, "mtp-together: %s\n", e.msg);
    return r < 0;
}
