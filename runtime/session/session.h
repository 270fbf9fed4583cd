#ifndef RUNTIME_SESSION_SESSION_H
#define RUNTIME_SESSION_SESSION_H

/* One sequence of tokens on an engine: a place in the KV cache, a position, a sampler, and a token to cancel it by. An engine has
 * room for max_batch sessions at once (struct budget_choice, counted in the account), which take steps one at a time or several
 * together; any number may follow one another.
 *
 *     session_init(&s, engine, &(struct session_config){ .cancel = c, .sampling = p }, e);
 *     session_feed(&s, prompt, n, SESSION_EXACT, &done, e);
 *     for (...) {
 *         int32_t id = session_sample(&s, e);
 *         session_feed(&s, &id, 1, SESSION_PREDICTED, &done, e);
 *     }
 *     session_done(&s);
 *
 * Determinism: what a session gives has the bits that it gives alone, whatever other sessions do between its steps.
 *
 * Errors: the first error of a session ends it: every later call returns the same one, and only session_done is left. The engine
 * and its other sessions go on (engine.h says what an engine does after an error).
 *
 * Ownership: the caller's struct, and the engine's memory: there is no allocation. The engine outlives its sessions.
 * Threads: one thread at a time uses an engine and its sessions; any thread or signal handler may ask the token. */
#include "common/base/cancel.h"
#include "common/base/err.h"

#include "runtime/engine/engine.h"
#include "runtime/session/sample.h"

#include <stdint.h>

struct session;

/* Who looks on while sessions take tokens in, as a source of guesses does that goes by hidden states. ERR_* ends the session. */
struct session_watcher {
    /* After each pass of it: it holds `first` positions and those n that the pass has added, whose hidden states are f32[n][d_model],
     * until the next pass of the engine. */
    int (*passed)(void *ctx, const struct session *s, int first, int n, const float *hidden, struct err *e);
    /* It has begun with the first tokens of another, all that it holds, by session_fork. */
    int (*forked)(void *ctx, const struct session *s, const struct session *from, struct err *e);
    /* Its place is free. */
    void (*ended)(void *ctx, const struct session *s);
};

struct session_config {
    const struct cancel *cancel; /* outlives the session; asked: ERR_INTR before the next pass, and IO_HURRY_MS into a wait for
                                  * reads. NULL: it cannot be cancelled */
    struct sample_params sampling;
    const struct session_watcher *watcher; /* or NULL; it and ctx outlive the session */
    void *watcher_ctx;
};

/* Which neurons a pass computes: all that fire, or those that are predicted, where that is the engine's mode. */
enum session_mode { SESSION_EXACT, SESSION_PREDICTED };

struct session {                 /* the module's own */
    struct engine *engine;
    const struct cancel *cancel;
    struct sampler sampler;
    const struct session_watcher *watcher;
    void *watcher_ctx;
    int seq, n_pos;              /* its place in the KV cache; positions that it holds */
    int32_t *ids;                /* [context]: what was fed */
    int n_last, first;           /* tokens of its last pass; which one of the pass the first of them is */
    uint64_t pass;               /* which one that was (engine_pass) */
    float *logits;               /* after the last token, once somebody has asked */
    struct err failed;           /* code 0: it has not */
};

/* ERR_LIMIT: every place is taken. After an error session_done is allowed and does nothing. */
int session_init(struct session *s, struct engine *g, const struct session_config *c, struct err *e);

/* A session that holds the first n tokens of another, 0 <= n <= its n_pos and as session_can_keep says, in the same memory: a prompt
 * that several go on from is fed and held once. Both go on on their own; when n is all of it, with the logits after them, where these
 * have been asked for. */
int session_fork(struct session *s, const struct session *from, int n, const struct session_config *c, struct err *e);
void session_done(struct session *s); /* accepts a zeroed one */

/* Where the engine keeps what sequences began with (engine_keep_prefixes): a session that holds nothing but what was found goes on with
 * what is there of ids[n], in whole pages, of recurrent models to where a state was kept: how many tokens it holds. most_ns: of a folder's
 * pages as many as take so long; *more: there may be further ones, 0 where there are none, or have no room. And what its first n tokens are
 * may be found from here on: those that were fed in SESSION_EXACT, or in whichever mode where the engine has one. A watcher is told of
 * neither. What it holds of a folder's pages is used until session_done. */
int session_find(struct session *s, const int32_t *ids, int n, int64_t most_ns, int *more);
void session_publish(struct session *s, int n);

/* The state of recurrent layers after all that it holds, whole pages that are published, is kept, too; of other models nothing. */
void session_keep_state(struct session *s);

#define SESSION_MOST 512 /* tokens of a pass, whatever the chunk */

/* Takes ids[n] in, in passes of session_most() tokens; done counts those that were taken, also on an error. ERR_LIMIT beyond the
 * context, ERR_USAGE for a token that the model has not, ERR_INTR when cancelled, ERR_IO, ERR_FORMAT (damage). */
int session_feed(struct session *s, const int32_t *ids, int n, enum session_mode mode, int *done, struct err *e);
int session_most(const struct session *s); /* the chunk, SESSION_MOST at most */

/* ---- several together ---- */

/* What one of them takes in. Sessions of a step differ, and are of one engine. */
struct session_part {
    struct session *s;
    const int32_t *ids;          /* [n], n >= 1 */
    int n;
    enum session_mode mode;
    int logits;                  /* 1: what follows the last of them is wanted */
    int result;                  /* set: 0, or ERR_*, with which this session has ended; session_error tells why */
};

/* One pass for all parts, so that a neuron which several need is read once; two, the predicted one first, where the engine runs in
 * predicted mode and the parts' modes differ. At most session_step_most() tokens in all. Logits that are wanted are there
 * afterwards (session_logits), and the head's weights are read once for all of a pass where their places are neighbours.
 *
 * What is wrong with a part (its tokens, its context, its session's token asked) ends its session and is left out; the others go
 * on. So does what a pass makes of one alone (session_check_logits). An error of a pass ends all sessions that took part, and is
 * returned. watch: a token that ends the pass for all, as session_config's does for one; or NULL. */
int session_step(struct session_part *parts, int n, const struct cancel *watch, struct err *e);
int session_step_most(const struct engine *g);
const struct err *session_error(const struct session *s); /* code 0: it goes on */

/* Logits f32[n_vocab] after the last token, computed when first asked for; the caller may change them before session_sample. To be
 * asked for before another session of the engine takes a step; valid until this one does. NULL: an error. */
float *session_logits(struct session *s, struct err *e);

/* The next token, drawn from session_logits by the sampler, with all tokens so far as its history; or ERR_*. */
int32_t session_sample(struct session *s, struct err *e);

/* The same with tokens[n_never] that are not drawn. */
int32_t session_sample_but(struct session *s, const int32_t *never, int n_never, struct err *e);

/* The same where the session has taken in more than the first n_pos tokens, those being guesses: what follows the n_pos, by their
 * logits f32[n_vocab] (session_head), which count as the session's until its next step. */
int32_t session_sample_at(struct session *s, int n_pos, float *logits, const int32_t *never, int n_never);

/* Tokens that may be drawn, a bit each (sample.h), until it is taken back by NULL. */
void session_allow(struct session *s, const uint64_t *allowed);

/* Begin to draw anew, with other parameters. */
void session_sampling(struct session *s, const struct sample_params *p);

/* Hidden states f32[tokens of its last pass][d_model], and logits f32[n][n_vocab] from n of such, in one call (engine_head).
 * Those of the last pass are valid until any session of the engine takes a step. */
const float *session_hidden(const struct session *s);
int session_head(struct session *s, const float *hidden, int n, float *logits, struct err *e);

/* Whether a token can be drawn by logits f32[n_vocab] after the session's first n_pos tokens: ERR_FORMAT where one is NaN or infinite, or
 * none is finite; ERR_LIMIT, ERR_FORMAT by engine_check_kv. It ends the session, and no other: for whoever takes logits from
 * session_head and a text from neither session_step nor session_logits, which call it. */
int session_check_logits(struct session *s, const float *logits, int n_pos, struct err *e);

/* Room for such logits: f32[*rows][n_vocab], *rows >= 1. Valid until any session of the engine takes a step. One row is this
 * session's own; more are shared by all. */
float *session_logits_memory(struct session *s, int *rows);

int session_n_pos(const struct session *s);
const int32_t *session_ids(const struct session *s); /* [n_pos]: what was fed */
void session_reset(struct session *s); /* forget all tokens; an error stays */
void session_rewind(struct session *s, int n); /* forget the tokens from position n on; 0 <= n <= n_pos, and n as session_can_keep says */

/* Pages of the KV cache that its next n tokens take, at most. */
int session_pages_needed(const struct session *s, int n);

/* How many of the first n tokens can be kept, or forked, without those after them: n; of a model with recurrent layers n only where it
 * is all of them, else 0. */
int session_can_keep(const struct session *s, int n);

#endif
