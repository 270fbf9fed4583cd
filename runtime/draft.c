#include "runtime/draft.h"

#include <string.h>

int draft_open(struct draft *d, const struct setup_args *main, const char *model, const char *plan, uint64_t memory, struct err *e)
{
    struct setup_args a;
    setup_args_init(&a);
    a.model = model;
    a.plan = plan;
    a.memory = memory;
    a.cpu = main->cpu;
    a.threads = main->threads;
    a.cancel = main->cancel;
    a.no_mlock = main->no_mlock;
    a.no_verify = main->no_verify;
    int r = setup_open(&a, &d->setup, e);
    r = r < 0 ? r : setup_can_guess(&d->setup, e);
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

int draft_start(struct draft *d, struct err *e)
{
    int r = setup_engine(&d->setup, &d->engine, e);
    const struct session_config c = { .cancel = d->setup.args.cancel };
    return r < 0 ? r : session_init(&d->session, d->engine, &c, e);
}

void draft_close(struct draft *d)
{
    if (d->engine)
        session_done(&d->session);
    engine_close(d->engine);
    setup_close(&d->setup);
    *d = (struct draft){ 0 };
}

/* Takes in what the other session holds, from where the two part. */
static int follow(struct session *mine, const struct session *s, struct err *e)
{
    const int32_t *have = session_ids(mine), *want = session_ids(s);
    int n = session_n_pos(s), same = 0, most = session_n_pos(mine), done;
    most = most < n ? most : n;
    while (same < most && have[same] == want[same])
        same++;
    if (same < session_n_pos(mine))
        session_rewind(mine, same);
    return same == n ? 0 : session_feed(mine, want + same, n - same, n - same > GUESS_MOST ? SESSION_EXACT : SESSION_PREDICTED, &done, e);
}

int draft_guess(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e)
{
    struct draft *d = ctx;
    struct session *mine = &d->session;
    int room = engine_configuration(d->engine)->choice.context - session_n_pos(s) - 1, r;
    *class = 0;
    most = most < room ? most : room;
    if (most <= 0)
        return 0;
    r = follow(mine, s, e);
    mine->sampler = s->sampler; /* the numbers that the session will draw with */
    for (int i = 0; i < most && r >= 0; i++) {
        int32_t fed = i ? out[i - 1] : last;
        if ((r = session_draw(mine, &fed, 1, SESSION_PREDICTED, d->never, d->n_never, &out[i], e)) < 0)
            return err_wrap(e, "draft model");
    }
    return r < 0 ? err_wrap(e, "draft model") : most;
}
