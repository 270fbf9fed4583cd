/* The engine is an ordinary one of a model of one layer, all of it resident in dense mode, so that it needs no plan: how much context,
 * which threads and which types of activations are the model's. */
#include "runtime/mtp.h"

#include "runtime/inputs.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MTP_CHUNK 64 /* positions of one session that are taken in together, at most */
#define MTP_DEPTH 2  /* reads in flight; it reads nothing once it is loaded */

int mtp_open(struct mtp *m, const char *path, struct setup_args *model, struct err *e)
{
    *m = (struct mtp){ .path = path };
    int r = pack_open_within(path, inputs_room(inputs_limit(model->memory), model->held), &m->pack, e);
    model->held += r < 0 ? 0 : pack_held_bytes(m->pack);
    if (r < 0)
        return r;
    if (!m->pack->h.mtp)
        return err_set(e, ERR_USAGE, "--mtp '%s' is a packed model; 'thermo-pack mtp' makes the layer that is needed", path);
    /* Tables and metadata are read: no read-ahead into a cgroup that may be as small as the budget, no copy kept. */
    posix_fadvise(m->pack->file.fd, 0, 0, POSIX_FADV_RANDOM);
    posix_fadvise(m->pack->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    size_t n = (size_t)model_ffn_blocks(&m->pack->h) * (size_t)m->pack->shapes.n_parts;
    m->hot = malloc(n * sizeof *m->hot);
    m->batches = malloc(PLAN_MAX_BATCHES * sizeof *m->batches);
    if (!m->hot || !m->batches)
        return err_set(e, ERR_NOMEM, "'%s': tables of %zu parts", path, n);
    for (size_t i = 0; i < n; i++)
        m->hot[i] = (uint32_t)m->pack->h.n_ff;
    return 0;
}

/* Of several sessions each may hold a page more of its own than the model's, for the last position of a prompt that several go on from
 * is taken in by each with its own next token. */
static int kv_positions(const struct budget_choice *c)
{
    int64_t most = (int64_t)c->max_batch * c->context, n = c->kv_positions + (int64_t)c->max_batch * SCHEDULE_KV_PAGE;
    return c->kv_positions && n < most ? (int)n : 0;
}

static void configure(struct mtp *m, const struct engine_config *c)
{
    int chunk = c->choice.prefill_chunk < MTP_CHUNK ? c->choice.prefill_chunk : MTP_CHUNK;
    m->sequences = c->choice.max_batch;
    m->rows = m->sequences > 1 ? GUESS_MOST + 1 : chunk; /* all that a pass with guesses adds to a session */
    m->most = chunk > m->sequences ? chunk : m->sequences;
    m->config = (struct engine_config){ .pack = m->pack, .mode = PLAN_DENSE, .act_q8 = c->act_q8, .io = c->io, .policy = c->policy,
                                        .cancel = c->cancel, .mlock = c->mlock, .cpus = c->cpus, .no_verify = c->no_verify,
                                        .batches = m->batches, .n_batches = c->n_batches,
                                        .choice = { .context = c->choice.context, .kv_type = c->choice.kv_type, .max_batch = m->sequences,
                                                    .kv_positions = kv_positions(&c->choice), .prefill_chunk = chunk,
                                                    .threads = c->variants[0].threads, .io_lanes = c->choice.io_lanes,
                                                    .queue_depth = MTP_DEPTH, .hot = m->hot } };
    for (int i = 0; i < c->n_batches; i++) {
        m->batches[i] = c->batches[i];
        m->batches[i].depth = MTP_DEPTH < c->batches[i].depth ? MTP_DEPTH : c->batches[i].depth;
    }
}

static uint64_t own_bytes(const struct mtp *m)
{
    uint64_t row = (uint64_t)m->pack->h.d_model * sizeof(float), n = (uint64_t)m->sequences;
    return n * ((uint64_t)m->rows * row + sizeof *m->texts + sizeof *m->asks + sizeof *m->ends) +
           (uint64_t)m->most * (row + sizeof *m->tokens);
}

int mtp_beside(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e)
{
    struct mtp *m = ctx;
    struct budget_model b;
    pack_budget_model(m->pack, &b);
    configure(m, model);
    int r = budget_compute(&b, &m->config.choice, &m->budget, e);
    if (r < 0)
        return err_wrap(e, "'%s'", m->path);
    *bytes = m->budget.total + own_bytes(m);
    return 0;
}

int mtp_check(const struct mtp *m, const struct setup *model, struct err *e)
{
    const struct pack *a = m->pack, *b = model->pack;
    char x[HASH_TEXT], y[HASH_TEXT];
    if (!hash_equal(a->model_hash, b->model_hash)) {
        hash_text(a->model_hash, x);
        hash_text(b->model_hash, y);
        return err_set(e, ERR_MISMATCH, "--mtp '%s' is a layer of another model than '%s': the model's hash is %s there, %s here", m->path,
                       model->args.model, x, y);
    }
    if (a->h.act != b->h.act || a->h.router != b->h.router)
        return err_set(e, ERR_MISMATCH, "--mtp '%s': activation %s and routers %s, but '%s' was traced with %s and %s", m->path,
                       model_act_name(a->h.act), model_router_name(a->h.router), model->args.model, model_act_name(b->h.act),
                       model_router_name(b->h.router));
    return 0;
}

static int take_memory(struct mtp *m, struct err *e)
{
    size_t d = (size_t)m->pack->h.d_model, n = (size_t)m->sequences, rows = (size_t)m->rows, most = (size_t)m->most;
    m->texts = calloc(n, sizeof *m->texts);
    m->asks = calloc(n, sizeof *m->asks);
    m->ends = calloc(n, sizeof *m->ends);
    m->waiting = malloc(n * rows * d * sizeof *m->waiting);
    m->hidden = malloc(most * d * sizeof *m->hidden);
    m->tokens = malloc(most * sizeof *m->tokens);
    if (!m->texts || !m->asks || !m->ends || !m->waiting || !m->hidden || !m->tokens)
        return err_set(e, ERR_NOMEM, "'%s': hidden states of %zu sequences", m->path, n);
    for (size_t i = 0; i < n; i++)
        m->texts[i].waiting = m->waiting + i * rows * d;
    return 0;
}

int mtp_start(struct mtp *m, const struct setup *model, const struct engine *trunk, struct err *e)
{
    uint64_t bytes;
    int r = mtp_beside(m, &model->config, &bytes, e); /* less than before, if the model's chunk had to give way */
    if (r < 0)
        return r;
    m->config.trunk = trunk;
    if ((r = take_memory(m, e)) < 0 || (r = engine_open(&m->config, &m->engine, e)) < 0)
        return r;
    for (int i = 0; i < m->sequences; i++)
        m->texts[i].ids = engine_token_memory(m->engine, i);
    return 0;
}

void mtp_close(struct mtp *m)
{
    engine_close(m->engine);
    pack_close(m->pack);
    free(m->hot);
    free(m->batches);
    free(m->texts);
    free(m->asks);
    free(m->ends);
    free(m->waiting);
    free(m->hidden);
    free(m->tokens);
    *m = (struct mtp){ 0 };
}

/* ---- passes ---- */

static size_t row_bytes(const struct mtp *m)
{
    return (size_t)m->pack->h.d_model * sizeof(float);
}

static float *row_of(const struct mtp *m, const struct mtp_text *t, int i)
{
    return t->waiting + (size_t)i * (size_t)m->pack->h.d_model;
}

/* A guess for each ask whose last position was in the pass, and what the next guess goes on from, in the first row of what waits. */
static int draw(struct mtp *m, struct err *e)
{
    int rows[BUDGET_MAX_BATCH];
    size_t bytes;
    for (int i = 0; i < m->n_ends; i++) {
        memcpy(row_of(m, &m->texts[m->asks[i]->s->seq], 0), engine_hidden(m->engine, m->ends[i]), row_bytes(m));
        rows[i] = i;
    }
    int r = engine_logits_of(m->engine, m->ends, rows, m->n_ends, e);
    for (int i = 0; i < m->n_ends && r == 0; i++) {
        struct guess_ask *a = m->asks[i];
        struct mtp_text *t = &m->texts[a->s->seq];
        float *logits = engine_logits_row(m->engine, i);
        for (int k = 0; k < a->n_never; k++)
            logits[a->never[k]] = -INFINITY;
        a->out[a->n] = sampler_pick(&t->sampler, logits, m->pack->h.n_vocab, t->ids, session_n_pos(a->s) + a->n + 1,
                                    engine_sampler_memory(m->engine, &bytes));
        a->n++;
    }
    m->n_ends = 0;
    return r;
}

/* Of a pass that failed the layer holds nothing. */
static int pass(struct mtp *m, int trunk, struct err *e)
{
    int n = m->n, r = n > 0 ? engine_forward_mtp(m->engine, m->tokens, m->hidden, trunk, n, e) : 0;
    m->n = 0;
    for (int i = 0; i < n && r < 0; i++) {
        struct mtp_text *t = &m->texts[m->tokens[i].seq];
        t->pos = t->pos < m->tokens[i].pos ? t->pos : m->tokens[i].pos;
    }
    if (r == 0 && m->n_ends)
        r = draw(m, e);
    m->n_ends = r < 0 ? 0 : m->n_ends;
    return r < 0 ? err_wrap(e, "the layer for multi-token prediction") : 0;
}

/* Position pos of a session, with the token after it, goes into the next pass. end: an ask whose next guess follows it. */
static int add(struct mtp *m, int seq, int32_t next, int pos, const float *hidden, int trunk, struct guess_ask *end, struct err *e)
{
    int r = m->n == m->most ? pass(m, trunk, e) : 0;
    if (r < 0)
        return r;
    memcpy(m->hidden + (size_t)m->n * (size_t)m->pack->h.d_model, hidden, row_bytes(m));
    m->tokens[m->n] = (struct engine_token){ next, seq, pos };
    if (end) {
        m->asks[m->n_ends] = end;
        m->ends[m->n_ends++] = m->n;
    }
    m->n++;
    return 0;
}

/* The next n of the positions that wait, each with the token after it, go into the next pass. */
static int take_in(struct mtp *m, struct mtp_text *t, int n, struct guess_ask *end, struct err *e)
{
    int r = 0;
    if (n <= 0)
        return 0;
    t->n -= n;
    for (int i = 0; i < n && r == 0; i++) {
        t->pos = ++t->first;
        r = add(m, (int)(t - m->texts), t->ids[t->first], t->first - 1, row_of(m, t, i), 1, i + 1 == n ? end : NULL, e);
    }
    memmove(t->waiting, row_of(m, t, n), (size_t)t->n * row_bytes(m));
    return r;
}

/* ---- positions ---- */

/* Positions that wait and whose next tokens are no guesses. */
static int certain(const struct mtp_text *t)
{
    int n = t->sure - t->first;
    return n < 0 ? 0 : n < t->n ? n : t->n;
}

static int all_take_in(struct mtp *m, struct err *e)
{
    int r = 0;
    for (int i = 0; i < m->sequences && r == 0; i++)
        r = take_in(m, &m->texts[i], certain(&m->texts[i]), NULL, e);
    return r;
}

/* The session holds no more than n positions of those that were seen. */
static void take_back(struct mtp *m, struct mtp_text *t, int n)
{
    if (t->first + t->n <= n)
        return;
    t->n = n > t->first ? n - t->first : 0;
    t->first = t->n ? t->first : n;
    t->sure = t->sure < n ? t->sure : n - 1;
    if (t->pos > n) {
        t->pos = n;
        engine_keep_positions(m->engine, (int)(t - m->texts), n);
    }
}

static int passed(void *ctx, const struct session *s, int first, int n, const float *hidden, struct err *e)
{
    struct mtp *m = ctx;
    struct mtp_text *t = &m->texts[s->seq];
    size_t d = (size_t)m->pack->h.d_model;
    int r = 0;
    take_back(m, t, first); /* guesses were wrong, or the session begins anew */
    if (t->first + t->n < first || t->first > t->pos) {
        t->first = first + n;
        t->n = 0;
        return 0;
    }
    t->sure = first;
    memcpy(t->ids + t->first, session_ids(s) + t->first, (size_t)(first + n - t->first) * sizeof *t->ids);
    if (t->n + n > m->rows && (r = all_take_in(m, e)) < 0)
        return r;
    for (int prompt = n > m->rows; prompt && n > 1 && r == 0; n--, hidden += d) { /* all but its last need not wait */
        t->pos = ++t->first;
        r = add(m, s->seq, t->ids[t->first], t->first - 1, hidden, 1, NULL, e);
    }
    if (r < 0)
        return r;
    memcpy(row_of(m, t, t->n), hidden, (size_t)n * row_bytes(m));
    t->n += n;
    return pass(m, 1, e);
}

static int forked(void *ctx, const struct session *s, const struct session *from, struct err *e)
{
    struct mtp *m = ctx;
    struct mtp_text *t = &m->texts[s->seq], *f = &m->texts[from->seq];
    int n = session_n_pos(s), r;
    take_back(m, f, session_n_pos(from));
    if ((r = take_in(m, f, f->n - 1, NULL, e)) < 0 || (r = pass(m, 1, e)) < 0)
        return r;
    t->first = n;
    if (f->first > f->pos || f->first + f->n < n)
        return 0;
    t->pos = t->first = n < f->first ? n : f->first;
    t->n = n - t->first;
    memcpy(t->ids, f->ids, (size_t)n * sizeof *t->ids);
    memcpy(t->waiting, f->waiting, (size_t)t->n * row_bytes(m));
    return engine_share_sequence(m->engine, s->seq, from->seq, t->pos, e);
}

static void ended(void *ctx, const struct session *s)
{
    struct mtp *m = ctx;
    struct mtp_text *t = &m->texts[s->seq];
    t->pos = t->first = t->n = t->sure = 0;
    engine_keep_positions(m->engine, s->seq, 0);
}

const struct session_watcher mtp_watcher = { passed, forked, ended };

/* ---- guesses ---- */

/* What the layer has of an ask's session, or NULL: it has not all of it, and makes no guesses. */
static struct mtp_text *text_of(struct mtp *m, const struct guess_ask *a)
{
    struct mtp_text *t = &m->texts[a->s->seq];
    int n_pos = session_n_pos(a->s);
    take_back(m, t, n_pos);
    return a->most > 0 && t->n > 0 && t->first == t->pos && t->first + t->n == n_pos ? t : NULL;
}

/* What the last pass has added goes in with the first guess, unless that was a prompt's. */
int mtp_ready_many(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    struct mtp *m = ctx;
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        struct mtp_text *t = text_of(m, &asks[i]);
        if (t)
            r = take_in(m, t, t->n - certain(t) > GUESS_MOST + 1 ? t->n - 1 : certain(t), NULL, e);
    }
    return r < 0 ? r : pass(m, 1, e);
}

/* The first guess of each, after all that waits, with the last token. */
static int first_guesses(struct mtp *m, struct guess_ask *asks, int n, struct err *e)
{
    int context = m->config.choice.context, r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        struct guess_ask *a = &asks[i];
        int n_pos = session_n_pos(a->s);
        a->n = a->class = 0;
        a->most = a->most < context - n_pos ? a->most : context - n_pos;
        struct mtp_text *t = text_of(m, a);
        if (!t) {
            a->most = 0;
            continue;
        }
        t->sampler = a->s->sampler;
        t->ids[n_pos] = a->last;
        r = take_in(m, t, t->n, a, e);
    }
    return r < 0 ? r : pass(m, 1, e);
}

/* A guess more for each that wants it, after what the layer gave for the last one. 0: none does. */
static int next_guesses(struct mtp *m, struct guess_ask *asks, int n, int at, struct err *e)
{
    int any = 0, r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        struct guess_ask *a = &asks[i];
        struct mtp_text *t = &m->texts[a->s->seq];
        int n_pos = session_n_pos(a->s);
        if (a->most <= at)
            continue;
        any = 1;
        t->ids[n_pos + at] = a->out[at - 1];
        r = add(m, a->s->seq, a->out[at - 1], n_pos - 1 + at, row_of(m, t, 0), 0, a, e);
    }
    r = r < 0 ? r : pass(m, 0, e);
    return r < 0 ? r : any;
}

int mtp_guess_many(void *ctx, struct guess_ask *asks, int n, struct err *e)
{
    struct mtp *m = ctx;
    int r = first_guesses(m, asks, n, e);
    for (int at = 1, more = r == 0; more; at++) {
        r = next_guesses(m, asks, n, at, e);
        more = r > 0;
    }
    for (int i = 0; i < n; i++)
        if (asks[i].most > 0)
            engine_keep_positions(m->engine, asks[i].s->seq, m->texts[asks[i].s->seq].pos);
    return r;
}
