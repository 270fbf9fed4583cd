/* mtp-guesses MODEL.thermo PLAN.json LAYER.thermo ID,ID,... N: guesses of a model's layer for multi-token prediction after the first
 * IDs were taken in and the last was drawn, and the logits that each of the N was the likeliest of, as JSON. Each is made anew, after
 * the session was emptied, in passes of few tokens; every other one with what waits taken in beforehand.
 * mtp-guesses ... ID,ID,... N count: of the N likeliest tokens that follow, how many the layer guessed, {"tokens": N, "right": n}. */
#include "runtime/mtp.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const struct err *e)
{
    fprintf(stderr, "mtp-guesses: %s\n", e->msg);
    return 1;
}

/* How many of the `most` that were asked for. */
static int guesses(struct mtp *m, const struct session *s, int32_t last, int32_t *out, int most, int ready, struct err *e)
{
    struct guess_ask a = { .s = s, .last = last, .most = most, .out = out };
    int r = ready ? mtp_ready_many(m, &a, 1, e) : 0;
    return r < 0 || (r = mtp_guess_many(m, &a, 1, e)) < 0 ? r : a.n;
}

/* Guess number n of a session that begins anew; its logits. */
static int guess(struct mtp *m, struct session *s, const int32_t *ids, int n_ids, int n, const float **logits, struct err *e)
{
    int32_t out[GUESS_MOST];
    int done, made;
    session_reset(s);
    int r = session_feed(s, ids, n_ids - 1, SESSION_EXACT, &done, e);
    if (r < 0 || (made = guesses(m, s, ids[n_ids - 1], out, n + 1, n % 2, e)) < 0)
        return e->code;
    if (made != n + 1)
        return err_set(e, ERR_LIMIT, "%d guesses, %d were asked for", made, n + 1);
    *logits = engine_logits_row(m->engine, 0);
    return out[n];
}

static int run(struct mtp *m, struct session *s, const int32_t *ids, int n_ids, int most, struct err *e)
{
    int32_t made[GUESS_MOST];
    const float *z = NULL;
    printf("{\"logits\":[");
    for (int n = 0; n < most; n++) {
        if ((made[n] = guess(m, s, ids, n_ids, n, &z, e)) < 0)
            return made[n];
        for (int i = 0; i < m->pack->h.n_vocab; i++)
            printf("%s%.9g", i ? "," : n ? ",[" : "[", (double)z[i]);
        printf("]");
    }
    printf("],\"guesses\":[");
    for (int n = 0; n < most; n++)
        printf("%s%d", n ? "," : "", made[n]);
    printf("]}\n");
    return 0;
}

/* Of n tokens. */
static int count(struct mtp *m, struct session *s, const int32_t *ids, int n_ids, int n, struct err *e)
{
    int done, right = 0, made, r = session_feed(s, ids, n_ids, SESSION_EXACT, &done, e);
    int32_t guess, last = r < 0 ? r : session_sample(s, e);
    for (int i = 0; i < n && last >= 0; i++) {
        if ((made = guesses(m, s, last, &guess, 1, 0, e)) < 0 || (r = session_feed(s, &last, 1, SESSION_EXACT, &done, e)) < 0 ||
            (last = session_sample(s, e)) < 0)
            return e->code;
        right += made == 1 && guess == last;
    }
    if (last >= 0)
        printf("{\"tokens\":%d,\"right\":%d}\n", n, right);
    return last < 0 ? last : 0;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    struct mtp m = { 0 };
    struct setup s = { 0 };
    struct setup_args a;
    struct engine *g = NULL;
    struct session session = { 0 };
    int32_t ids[256];
    int n = 0, most = argc > 5 ? atoi(argv[5]) : 0, counts = argc == 7;
    if (argc < 6 || argc > 7 || most < 1 || (!counts && most > GUESS_MOST)) {
        fprintf(stderr, "usage: mtp-guesses MODEL.thermo PLAN.json LAYER.thermo ID,ID,... N [count]\n");
        return 2;
    }
    char *end = NULL;
    for (char *at = argv[4]; *at && n < 256; at = *end ? end + 1 : end)
        ids[n++] = (int32_t)strtol(at, &end, 10);
    setup_args_init(&a);
    a.model = argv[1];
    a.plan = argv[2];
    a.kv = a.act = 0;
    a.chunk = GUESS_MOST + 1;
    a.beside_of = mtp_beside;
    a.beside_ctx = &m;
    int r = mtp_open(&m, argv[3], &a, &e);
    if (r == 0 && (r = setup_open(&a, &s, &e)) == 0 && (r = mtp_check(&m, &s, &e)) == 0 && (r = setup_engine(&s, &g, &e)) == 0 &&
        (r = mtp_start(&m, &s, g, &e)) == 0 &&
        (r = session_init(&session, g, &(struct session_config){ .watcher = &mtp_watcher, .watcher_ctx = &m }, &e)) == 0)
        r = (counts ? count : run)(&m, &session, ids, n, most, &e);
    session_done(&session);
    mtp_close(&m);
    engine_close(g);
    setup_close(&s);
    return r < 0 ? failed(&e) : 0;
}
