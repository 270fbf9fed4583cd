/* A session is bookkeeping around an engine's passes: which place, which position, whose logits. The engine watches the session's
 * token during its passes alone, so the token may go when the session does. */
#include "runtime/session/session.h"

#include "common/base/progress.h"
#include "common/model/logits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static int n_vocab(const struct session *s)
{
    return engine_configuration(s->engine)->pack->h.n_vocab;
}

int session_init(struct session *s, struct engine *g, const struct session_config *c, struct err *e)
{
    *s = (struct session){ 0 };
    int seq = engine_take_sequence(g, e);
    if (seq < 0)
        return seq;
    s->engine = g;
    s->cancel = c->cancel;
    s->watcher = c->watcher;
    s->watcher_ctx = c->watcher_ctx;
    s->seq = seq;
    s->ids = engine_token_memory(g, seq);
    sampler_init(&s->sampler, &c->sampling);
    return 0;
}

int session_fork(struct session *s, const struct session *from, int n, const struct session_config *c, struct err *e)
{
    int r = session_init(s, from->engine, c, e);
    assert(n >= 0 && n <= from->n_pos);
    if (r < 0)
        return r;
    if ((r = engine_share_sequence(s->engine, s->seq, from->seq, n, e)) < 0) {
        session_done(s);
        return r;
    }
    memcpy(s->ids, from->ids, (size_t)n * sizeof *s->ids);
    s->n_pos = n;
    if (n == from->n_pos && from->logits) {
        s->logits = engine_logits_row(s->engine, s->seq);
        memcpy(s->logits, from->logits, (size_t)n_vocab(s) * sizeof *s->logits);
    }
    if (s->watcher && (r = s->watcher->forked(s->watcher_ctx, s, from, e)) < 0)
        session_done(s);
    return r;
}

int session_find(struct session *s, const int32_t *ids, int n, int64_t most_ns, int *more)
{
    struct engine *g = s->engine;
    int64_t end = progress_now_ns() + most_ns;
    int found = s->n_pos, got = 0;
    do {
        found = engine_find_prefix(g, s->seq, found, ids, n);
        *more = engine_has_store(g) && found + SCHEDULE_KV_PAGE <= n &&
                engine_pages_needed(g, s->seq, found, SCHEDULE_KV_PAGE) * SCHEDULE_KV_PAGE <= engine_free_positions(g);
        got = *more ? engine_load_prefix(g, s->seq, found, ids) : 0;
        found += got * SCHEDULE_KV_PAGE;
    } while (got && progress_now_ns() < end);
    *more = got;
    found = got ? found : engine_begin_from(g, s->seq, ids, found);
    memcpy(s->ids, ids, (size_t)found * sizeof *s->ids);
    s->n_pos = found;
    return found;
}

void session_keep_state(struct session *s)
{
    engine_keep_state(s->engine, s->seq, s->n_pos);
}

void session_publish(struct session *s, int n)
{
    assert(n <= s->n_pos);
    engine_publish_prefix(s->engine, s->seq, s->ids, n);
}

void session_done(struct session *s)
{
    if (s->engine && engine_has_store(s->engine))
        engine_touch_prefix(s->engine, s->seq, s->n_pos);
    if (s->watcher)
        s->watcher->ended(s->watcher_ctx, s);
    if (s->engine)
        engine_give_sequence(s->engine, s->seq);
    *s = (struct session){ 0 };
}

/* The first error is the one that stays. */
static int ended(struct session *s, int r, const struct err *e)
{
    if (r < 0 && !s->failed.code)
        s->failed = *e;
    return r;
}

static int repeated(const struct session *s, struct err *e)
{
    if (s->failed.code)
        *e = s->failed;
    return s->failed.code;
}

int session_check_logits(struct session *s, const float *logits, int n_pos, struct err *e)
{
    const struct pack *p = engine_configuration(s->engine)->pack;
    int r = engine_check_kv(s->engine, s->seq, n_pos, e), bad = r < 0 ? -1 : logits_bad(logits, p->h.n_vocab);
    if (bad < 0)
        return ended(s, r, e);
    r = err_set(e, ERR_FORMAT, "'%s': after %d tokens the logit of token %d is %g, and no token can be chosen: the weights were damaged or "
                "badly converted before they were packed, or are too large for F32", p->file.path, n_pos, bad, (double)logits[bad]);
    return ended(s, r, e);
}

int session_most(const struct session *s)
{
    int chunk = engine_configuration(s->engine)->choice.prefill_chunk;
    return chunk < SESSION_MOST ? chunk : SESSION_MOST;
}

/* ---- steps ---- */

int session_step_most(const struct engine *g)
{
    const struct budget_choice *c = &engine_configuration(g)->choice;
    int most = c->prefill_chunk > c->max_batch ? c->prefill_chunk : c->max_batch;
    return most < SESSION_MOST ? most : SESSION_MOST;
}

/* Tokens of a part, at its session's place. */
static void place(const struct session_part *p, struct engine_token *tokens)
{
    for (int i = 0; i < p->n; i++)
        tokens[i] = (struct engine_token){ p->ids[i], p->s->seq, p->s->n_pos + i };
}

/* May the session take it in? */
static int check_part(const struct session_part *p, struct err *e)
{
    struct engine_token tokens[SESSION_MOST];
    int r = repeated(p->s, e), context = engine_configuration(p->s->engine)->choice.context;
    if (r < 0)
        return r;
    if (p->s->n_pos + p->n > context)
        return err_set(e, ERR_LIMIT, "%d tokens after %d: the context holds %d", p->n, p->s->n_pos, context);
    place(p, tokens);
    return engine_check_tokens(p->s->engine, tokens, p->n, e);
}

static void taken_in(const struct session_part *p, int first)
{
    struct session *s = p->s;
    memmove(s->ids + s->n_pos, p->ids, (size_t)p->n * sizeof *p->ids);
    s->n_pos += p->n;
    s->n_last = p->n;
    s->first = first;
    s->pass = engine_pass(s->engine);
    s->logits = NULL;
}

/* Logits of the parts that want them, whose last tokens are last[] of the pass. */
static int wanted_logits(struct session_part *const *parts, const int *last, int n, struct err *e)
{
    int tokens[SESSION_MOST], rows[SESSION_MOST], k = 0;
    struct engine *g = parts[0]->s->engine;
    for (int i = 0; i < n; i++) {
        int at = k, row = parts[i]->s->seq;
        if (!parts[i]->logits)
            continue;
        for (; at > 0 && rows[at - 1] > row; at--) {
            rows[at] = rows[at - 1];
            tokens[at] = tokens[at - 1];
        }
        rows[at] = row;
        tokens[at] = last[i];
        k++;
    }
    return engine_logits_of(g, tokens, rows, k, e);
}

/* What came out of the pass for this part alone. */
static int check_outcome(const struct session_part *p, struct err *e)
{
    struct session *s = p->s;
    float *logits = p->logits ? engine_logits_row(s->engine, s->seq) : NULL;
    int r = logits ? session_check_logits(s, logits, s->n_pos, e) : 0;
    if (r == 0)
        s->logits = logits;
    return r;
}

static int watched(const struct session_part *p, struct err *e)
{
    const struct session *s = p->s;
    if (!s->watcher)
        return 0;
    return s->watcher->passed(s->watcher_ctx, s, s->n_pos - p->n, p->n, engine_hidden(s->engine, s->first), e);
}

/* One pass, of parts that were checked. */
static int pass(struct session_part *const *parts, int n, enum session_mode mode, const struct cancel *watch, struct err *e)
{
    struct engine_token tokens[SESSION_MOST];
    struct engine *g = parts[0]->s->engine;
    int last[SESSION_MOST], at = 0;
    for (int i = 0; i < n; i++) {
        place(parts[i], tokens + at);
        at += parts[i]->n;
        last[i] = at - 1;
    }
    engine_watch(g, watch);
    int r = (mode == SESSION_EXACT ? engine_forward_exact : engine_forward)(g, tokens, at, e);
    engine_watch(g, NULL);
    for (int i = 0; i < n && r == 0; i++)
        taken_in(parts[i], last[i] + 1 - parts[i]->n);
    for (int i = 0; i < n && r == 0; i++)
        r = watched(parts[i], e);
    r = r < 0 ? r : wanted_logits(parts, last, n, e);
    for (int i = 0; i < n; i++) {
        struct err why = { 0 };
        parts[i]->result = r < 0 ? ended(parts[i]->s, r, e) : check_outcome(parts[i], &why);
    }
    return r;
}

static int interrupted(const struct session *s, struct err *e)
{
    return cancel_asked(s->cancel) ? err_set(e, ERR_INTR, "interrupted") : 0;
}

int session_step(struct session_part *parts, int n, const struct cancel *watch, struct err *e)
{
    struct session_part *of[2][SESSION_MOST];
    int k[2] = { 0, 0 }, r = 0, tokens = 0, most = n > 0 ? session_step_most(parts[0].s->engine) : 0;
    for (int i = 0; i < n; i++) {
        struct session_part *p = &parts[i];
        struct err why = { 0 };
        assert(p->n >= 1 && tokens + p->n <= most);
        tokens += p->n;
        p->result = check_part(p, &why);
        p->result = p->result < 0 ? p->result : interrupted(p->s, &why);
        int predicted = p->mode == SESSION_PREDICTED && engine_approximates(engine_configuration(p->s->engine));
        if (p->result == 0)
            of[!predicted][k[!predicted]++] = p;
        else
            ended(p->s, p->result, &why);
    }
    for (int exact = 0; exact < 2; exact++) {
        struct err why = { 0 };
        if (k[exact] && pass(of[exact], k[exact], exact ? SESSION_EXACT : SESSION_PREDICTED, watch, &why) < 0 && r == 0) {
            *e = why;
            r = why.code;
        }
    }
    return r;
}

const struct err *session_error(const struct session *s)
{
    return &s->failed;
}

/* 1 <= n <= session_most */
static int step(struct session *s, const int32_t *ids, int n, enum session_mode mode, struct err *e)
{
    struct session_part part = { .s = s, .ids = ids, .n = n, .mode = mode }, *one = &part;
    int r = check_part(&part, e);
    if (r < 0 || (r = pass(&one, 1, mode, s->cancel, e)) < 0)
        return r;
    return part.result < 0 ? repeated(s, e) : 0;
}

int session_feed(struct session *s, const int32_t *ids, int n, enum session_mode mode, int *done, struct err *e)
{
    int most = session_most(s), r = repeated(s, e);
    for (*done = 0; *done < n && r == 0;) {
        int m = n - *done < most ? n - *done : most;
        if (!cancel_asked(s->cancel))
            r = step(s, ids + *done, m, mode, e);
        else if (n == 1)
            r = err_set(e, ERR_INTR, "interrupted");
        else
            r = err_set(e, ERR_INTR, "interrupted after %d of %d prompt tokens", *done, n);
        *done += r == 0 ? m : 0;
    }
    return ended(s, r, e);
}

int session_pages_needed(const struct session *s, int n)
{
    return engine_pages_needed(s->engine, s->seq, s->n_pos, n);
}

int session_can_keep(const struct session *s, int n)
{
    return engine_can_keep(s->engine, s->seq, n);
}

void session_rewind(struct session *s, int n)
{
    assert(n >= 0 && n <= s->n_pos);
    engine_keep_positions(s->engine, s->seq, n);
    s->n_pos = n;
    s->n_last = 0;
    s->logits = NULL;
}

void session_reset(struct session *s)
{
    session_rewind(s, 0);
}

const int32_t *session_ids(const struct session *s)
{
    return s->ids;
}

int session_n_pos(const struct session *s)
{
    return s->n_pos;
}

/* ---- what follows ---- */

const float *session_hidden(const struct session *s)
{
    assert(s->n_last && s->pass == engine_pass(s->engine)); /* else it is another session's */
    return engine_hidden(s->engine, s->first);
}

float *session_logits(struct session *s, struct err *e)
{
    if (repeated(s, e) < 0)
        return NULL;
    if (s->logits)
        return s->logits;
    assert(s->n_last && s->pass == engine_pass(s->engine));
    s->logits = engine_logits(s->engine, s->first + s->n_last - 1, s->seq, e);
    if (!s->logits)
        ended(s, e->code, e);
    else if (session_check_logits(s, s->logits, s->n_pos, e) < 0)
        s->logits = NULL;
    return s->logits;
}

/* What follows the first n_pos tokens, by their logits. */
static int32_t draw(struct session *s, float *logits, int n_pos, const int32_t *never, int n_never)
{
    size_t bytes;
    for (int i = 0; i < n_never; i++)
        logits[never[i]] = -INFINITY;
    return sampler_pick(&s->sampler, logits, n_vocab(s), s->ids, n_pos, engine_sampler_memory(s->engine, &bytes));
}

int32_t session_sample_but(struct session *s, const int32_t *never, int n_never, struct err *e)
{
    float *logits = session_logits(s, e);
    return logits ? draw(s, logits, s->n_pos, never, n_never) : e->code;
}

int32_t session_sample_at(struct session *s, int n_pos, float *logits, const int32_t *never, int n_never)
{
    assert(n_pos <= s->n_pos);
    s->logits = logits;
    return draw(s, logits, n_pos, never, n_never);
}

int32_t session_sample(struct session *s, struct err *e)
{
    return session_sample_but(s, NULL, 0, e);
}

void session_allow(struct session *s, const uint64_t *allowed)
{
    s->sampler.allowed = allowed;
}

void session_sampling(struct session *s, const struct sample_params *p)
{
    sampler_init(&s->sampler, p);
}

int session_head(struct session *s, const float *hidden, int n, float *logits, struct err *e)
{
    int r = repeated(s, e);
    return ended(s, r < 0 ? r : engine_head(s->engine, hidden, n, logits, e), e);
}

float *session_logits_memory(struct session *s, int *rows)
{
    float *shared = engine_logits_memory(s->engine, rows);
    if (*rows > 1)
        return shared;
    *rows = 1;
    s->logits = NULL;
    return engine_logits_row(s->engine, s->seq);
}
