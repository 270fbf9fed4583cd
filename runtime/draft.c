#include "runtime/draft.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int draft_open(struct draft *d, const struct setup_args *main, const char *model, const char *plan, uint64_t memory, int sequences,
               struct err *e)
{
    struct setup_args a;
    setup_args_init(&a);
    a.model = model;
    a.plan = plan;
    a.memory = memory;
    a.limit = main->memory;
    a.held = main->held;
    a.cpu = main->cpu;
    a.threads = main->threads;
    a.cancel = main->cancel;
    a.no_mlock = main->no_mlock;
    a.no_verify = main->no_verify;
    a.sequences = sequences;
    d->sequences = sequences;
    int r = setup_open(&a, &d->setup, e);
    if (r == 0 && model_has_states(&d->setup.pack->h))
        r = err_set(e, ERR_UNSUPPORTED, "'%s': a draft takes back tokens of several passes, and a state of recurrent layers (architecture "
                    "'%s') cannot give them back", model, d->setup.pack->h.arch);
    return r < 0 ? err_wrap(e, "draft model") : 0;
}

/* The same pieces in the same places. */
int draft_check(const struct draft *d, const struct setup *main, struct err *e)
{
    const struct setup *a = &d->setup;
    size_t n, m;
    int most = a->pack->h.n_vocab;
    if (main->pack->h.n_vocab != most)
        return err_set(e, ERR_MISMATCH, "draft model '%s' has %d tokens, '%s' has %d", a->args.model, most, main->args.model,
                       main->pack->h.n_vocab);
    for (int32_t i = 0; i < most; i++) {
        const char *x = tokenizer_piece(a->tokenizer, i, &n), *y = tokenizer_piece(main->tokenizer, i, &m);
        if (n != m || memcmp(x, y, n) != 0)
            return err_set(e, ERR_MISMATCH, "draft model '%s': token %d is another than in '%s'", a->args.model, i, main->args.model);
    }
    return 0;
}

uint64_t draft_bytes(const struct draft *d)
{
    return d->setup.budget.total + (uint64_t)d->sequences * (sizeof *d->sessions + sizeof *d->parts + sizeof *d->asks + sizeof *d->fed);
}

int draft_start(struct draft *d, struct err *e)
{
    size_t n = (size_t)d->sequences;
    const struct session_config c = { .cancel = d->setup.args.cancel };
    int r = setup_engine(&d->setup, &d->engine, e);
    if (r < 0)
        return r;
    d->sessions = calloc(n, sizeof *d->sessions);
    d->parts = calloc(n, sizeof *d->parts);
    d->asks = calloc(n, sizeof *d->asks);
    d->fed = calloc(n, sizeof *d->fed);
    if (!d->sessions || !d->parts || !d->asks || !d->fed)
        return err_set(e, ERR_NOMEM, "draft model: out of memory for %zu sequences", n);
    for (size_t i = 0; i < n && r == 0; i++)
        r = session_init(&d->sessions[i], d->engine, &c, e);
    return r;
}

void draft_close(struct draft *d)
{
    for (int i = 0; d->sessions && i < d->sequences; i++)
        session_done(&d->sessions[i]);
    free(d->sessions);
    free(d->parts);
    free(d->asks);
    free(d->fed);
    engine_close(d->engine);
    setup_close(&d->setup);
    *d = (struct draft){ 0 };
}

/* How much of what the other session holds the draft's holds, too; it forgets the rest. */
static int in_common(struct session *mine, const struct session *s)
{
    const int32_t *have = session_ids(mine), *want = session_ids(s);
    int same = 0, most = session_n_pos(mine) < session_n_pos(s) ? session_n_pos(mine) : session_n_pos(s);
    while (same < most && have[same] == want[same])
        same++;
    if (same < session_n_pos(mine))
        session_rewind(mine, same);
    return same;
}

/* Takes in what the other session holds, from where the two part. */
static int follow(struct session *mine, const struct session *s, struct err *e)
{
    int same = in_common(mine, s), n = session_n_pos(s) - same, done;
    return n ? session_feed(mine, session_ids(s) + same, n, n > GUESS_MOST ? SESSION_EXACT : SESSION_PREDICTED, &done, e) : 0;
}

/* Of so many guesses those that the draft's context has room for. */
static int with_room(const struct draft *d, const struct session *s, int most)
{
    int room = engine_configuration(d->engine)->choice.context - session_n_pos(s) - 1;
    return most < room ? most : room;
}

/* A pass over asks that want a guess more; each draft session's next token is drawn. */
static int guess_each(struct draft *d, int n, struct err *e)
{
    int r = session_step(d->parts, n, NULL, e);
    for (int i = 0; i < n; i++) {
        struct guess_ask *a = d->asks[i];
        if (d->parts[i].result < 0) {
            *e = *session_error(d->parts[i].s);
            return d->parts[i].result;
        }
        int32_t id = r < 0 ? r : session_sample_but(d->parts[i].s, a->never, a->n_never, e);
        if (id < 0)
            return id;
        a->out[a->n++] = id;
    }
    return r;
}

/* The draft holds what the session does, less a token that its first pass can take in before the last one: of guesses that all came
 * true the draft has not seen the last. */
static int come_near(struct draft *d, const struct guess_ask *a, int tokens, int *first, struct err *e)
{
    struct session *mine = &d->sessions[a->s->seq];
    int32_t *fed = d->fed[a->s->seq];
    int same = in_common(mine, a->s), n = session_n_pos(a->s) - same, r = 0;
    int near = n == 1 && tokens + 2 <= session_step_most(d->engine);
    if (n > 0 && !near)
        r = follow(mine, a->s, e);
    fed[0] = near ? session_ids(a->s)[same] : a->last;
    fed[1] = a->last;
    *first = 1 + near;
    mine->sampler = a->s->sampler;
    return r;
}

/* A guess more for each ask that wants it. 0: none does. */
static int next_guess(struct draft *d, struct guess_ask *asks, int n, int at, struct err *e)
{
    int k = 0, tokens = 0, first = 1, r;
    for (int i = 0; i < n; i++) {
        struct guess_ask *a = &asks[i];
        if (a->most <= at)
            continue;
        if (at == 0 && (r = come_near(d, a, tokens + n - 1 - i, &first, e)) < 0)
            return r;
        d->asks[k] = a;
        d->parts[k++] = (struct session_part){ .s = &d->sessions[a->s->seq], .ids = at ? &a->out[at - 1] : d->fed[a->s->seq],
                                               .n = at ? 1 : first, .mode = SESSION_PREDICTED, .logits = 1 };
        tokens += at ? 1 : first;
    }
    if (k && (r = guess_each(d, k, e)) < 0)
        return r;
    return k;
}

int draft_guess_many(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    struct draft *d = ctx;
    int r = 1;
    for (int i = 0; i < n; i++) {
        assert(asks[i].s->seq < d->sequences);
        asks[i].most = with_room(d, asks[i].s, asks[i].most);
    }
    for (int at = 0; r > 0; at++)
        r = next_guess(d, asks, n, at, e);
    return r < 0 ? err_wrap(e, "draft model") : 0;
}
