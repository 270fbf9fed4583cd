/* The engine is an ordinary one of a model of one layer, all of it resident in dense mode, so that it needs no plan: how much context,
 * which threads and which types of activations are the model's. */
#include "runtime/mtp.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MTP_CHUNK 64 /* positions that are taken in together, at most */
#define MTP_DEPTH 2  /* reads in flight; it reads nothing once it is loaded */

int mtp_open(struct mtp *m, const char *path, struct err *e)
{
    *m = (struct mtp){ .path = path };
    int r = pack_open(path, &m->pack, e);
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

static void configure(struct mtp *m, const struct engine_config *c)
{
    m->most = c->choice.prefill_chunk < MTP_CHUNK ? c->choice.prefill_chunk : MTP_CHUNK;
    m->config = (struct engine_config){ .pack = m->pack, .mode = PLAN_DENSE, .act_q8 = c->act_q8, .io = c->io, .policy = c->policy,
                                        .cancel = c->cancel, .mlock = c->mlock, .cpus = c->cpus, .no_verify = c->no_verify,
                                        .batches = m->batches, .n_batches = c->n_batches,
                                        .choice = { .context = c->choice.context, .kv_f16 = c->choice.kv_f16, .max_batch = 1,
                                                    .prefill_chunk = m->most, .threads = c->choice.threads,
                                                    .io_lanes = c->choice.io_lanes, .queue_depth = MTP_DEPTH, .hot = m->hot } };
    for (int i = 0; i < c->n_batches; i++) {
        m->batches[i] = c->batches[i];
        m->batches[i].depth = MTP_DEPTH < c->batches[i].depth ? MTP_DEPTH : c->batches[i].depth;
    }
}

static uint64_t own_bytes(const struct mtp *m)
{
    uint64_t rows = (uint64_t)m->most;
    return (rows + 1) * (uint64_t)m->pack->h.d_model * sizeof(float) + rows * sizeof(struct engine_token);
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

int mtp_start(struct mtp *m, const struct setup *model, const struct engine *trunk, struct err *e)
{
    size_t d = (size_t)m->pack->h.d_model;
    uint64_t bytes;
    int r = mtp_beside(m, &model->config, &bytes, e); /* less than before, if the model's chunk had to give way */
    if (r < 0)
        return r;
    m->config.trunk = trunk;
    m->waiting = malloc(((size_t)m->most + 1) * d * sizeof *m->waiting);
    m->tokens = malloc((size_t)m->most * sizeof *m->tokens);
    if (!m->waiting || !m->tokens)
        return err_set(e, ERR_NOMEM, "'%s': %d hidden states", m->path, m->most + 1);
    if ((r = engine_open(&m->config, &m->engine, e)) < 0)
        return r;
    m->seq = engine_take_sequence(m->engine, e);
    if (m->seq < 0)
        return m->seq;
    m->ids = engine_token_memory(m->engine, m->seq);
    return 0;
}

void mtp_close(struct mtp *m)
{
    engine_close(m->engine);
    pack_close(m->pack);
    free(m->hot);
    free(m->batches);
    free(m->waiting);
    free(m->tokens);
    *m = (struct mtp){ 0 };
}

/* ---- positions ---- */

/* Takes in the positions that wait, each with the token after it; the last is m->ids[m->first + m->n]. */
static int take_in(struct mtp *m, struct err *e)
{
    for (int i = 0; i < m->n; i++)
        m->tokens[i] = (struct engine_token){ m->ids[m->first + i + 1], m->seq, m->first + i };
    int r = m->n > 0 ? engine_forward_mtp(m->engine, m->tokens, m->waiting, 1, m->n, e) : 0;
    if (r < 0)
        return r;
    m->first += m->n;
    m->n = 0;
    m->pos = m->first;
    return 0;
}

int mtp_watch(void *ctx, const struct session *s, int first, int n, const float *hidden, struct err *e)
{
    struct mtp *m = ctx;
    size_t d = (size_t)m->pack->h.d_model;
    if (first != m->first + m->n) { /* guesses were wrong, or the session begins anew */
        m->n = first > m->first && first < m->first + m->n ? first - m->first : 0;
        m->first = m->n ? m->first : first;
        m->pos = m->pos < first ? m->pos : first;
    }
    memcpy(m->ids + m->first, session_ids(s) + m->first, (size_t)(first + n - m->first) * sizeof *m->ids);
    for (int i = 0; i < n; i++) {
        int r = m->n == m->most ? take_in(m, e) : 0;
        if (r < 0)
            return err_wrap(e, "the layer for multi-token prediction");
        memcpy(m->waiting + (size_t)m->n++ * d, hidden + (size_t)i * d, d * sizeof *hidden);
    }
    return 0;
}

/* ---- guesses ---- */

/* What follows the last token that was taken in, at position `at`, by the sampler. */
static int32_t draw(struct mtp *m, struct sampler *sampler, int row, int at, struct err *e)
{
    size_t bytes;
    float *logits = engine_logits(m->engine, row, 0, e);
    if (!logits)
        return e->code;
    for (int i = 0; i < m->n_never; i++)
        logits[m->never[i]] = -INFINITY;
    return sampler_pick(sampler, logits, m->pack->h.n_vocab, m->ids, at + 1, engine_sampler_memory(m->engine, &bytes));
}

static int guesses(struct mtp *m, struct sampler sampler, int n_pos, int most, int32_t *out, struct err *e)
{
    size_t d = (size_t)m->pack->h.d_model;
    float *next = m->waiting + (size_t)m->most * d;
    int row = m->n - 1, r = take_in(m, e);
    for (int i = 0; i < most && r >= 0; i++) {
        if (i > 0) {
            const struct engine_token t = { out[i - 1], m->seq, n_pos - 1 + i };
            memcpy(next, engine_hidden(m->engine, row), d * sizeof *next);
            row = 0;
            m->ids[n_pos + i] = t.id;
            r = engine_forward_mtp(m->engine, &t, next, 0, 1, e);
        }
        out[i] = r < 0 ? r : draw(m, &sampler, row, n_pos + i, e);
        r = r < 0 ? r : out[i];
    }
    return r < 0 ? r : most;
}

/* 1: positions wait without a gap up to n_pos; those of wrong guesses, which were seen, too, wait no longer. */
static int waits(struct mtp *m, int n_pos)
{
    if (m->first + m->n > n_pos)
        m->n = n_pos > m->first ? n_pos - m->first : 0;
    return m->n > 0 && m->first == m->pos && m->first + m->n == n_pos;
}

/* What a pass has added goes in with the first guess. */
int mtp_ready(void *ctx, const struct session *s, struct err *e)
{
    struct mtp *m = ctx;
    size_t d = (size_t)m->pack->h.d_model;
    if (!waits(m, session_n_pos(s)) || m->n <= GUESS_MOST + 1)
        return 0;
    int r;
    memcpy(m->waiting + (size_t)m->most * d, m->waiting + (size_t)(m->n - 1) * d, d * sizeof *m->waiting);
    m->n--;
    if ((r = take_in(m, e)) < 0)
        return err_wrap(e, "the layer for multi-token prediction");
    memcpy(m->waiting, m->waiting + (size_t)m->most * d, d * sizeof *m->waiting);
    m->n = 1;
    return 0;
}

int mtp_guess(void *ctx, const struct session *s, int32_t last, int32_t *out, int most, int *class, struct err *e)
{
    struct mtp *m = ctx;
    int n_pos = session_n_pos(s), context = m->config.choice.context, r;
    *class = 0;
    most = most < context - n_pos ? most : context - n_pos;
    if (most <= 0 || !waits(m, n_pos))
        return 0;
    m->ids[n_pos] = last;
    r = guesses(m, s->sampler, n_pos, most, out, e);
    engine_keep_positions(m->engine, m->seq, m->pos);
    return r < 0 ? err_wrap(e, "the layer for multi-token prediction") : r;
}
