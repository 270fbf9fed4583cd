#ifndef RUNTIME_MTP_H
#define RUNTIME_MTP_H

/* A model's own layer for multi-token prediction as a source of guesses (session/guess.h): packed by itself (thermo-pack mtp), resident,
 * with a KV cache of its own. For a position p it takes what the model's last layer gave there, and token p + 1, and guesses token p + 2
 * (DeepSeek-V3, arXiv:2412.19437, section 2.2); for the guesses after that it goes on with what it gave itself.
 *
 *     mtp_open(&m, file, e)                              before the model's setup is opened, with beside_of = mtp_beside, ctx = &m
 *     mtp_check(&m, &setup, e)                           afterwards, and the engine: mtp_start(&m, &setup, engine, e)
 *     session_init(..., { .watcher = mtp_watch, .watcher_ctx = &m })
 *     guess_init(..., { .source = mtp_guess, .ready = mtp_ready, .ctx = &m, .costly = 1 })
 *
 * One session. Where its positions are taken back further than to where guesses began, for a later turn of a conversation, the last
 * that stays may have been taken in with another token than follows now, which costs guesses and no more. Hidden states wait in a buffer
 * until the token after them is known, and are taken in together. Memory: all of it is in mtp_beside's account, the engine's and what
 * this module takes. One thread. */
#include "runtime/session/guess.h"
#include "runtime/setup.h"

struct mtp {
    const char *path;
    struct pack *pack;
    struct engine_config config;
    struct budget budget;
    uint32_t *hot;          /* [blocks][parts] */
    struct engine_batch *batches;
    struct engine *engine;
    int seq;
    const int32_t *never;   /* [n_never]: tokens that it does not guess; the caller's */
    int n_never;
    int pos;                /* positions that it has taken in, */
    int first, n, most;     /* and whose hidden states wait: first .. first + n - 1; n <= most */
    float *waiting;         /* f32[most][d_model], then [d_model] for what goes in next */
    struct engine_token *tokens; /* [most] */
    int32_t *ids;           /* [context], the engine's: the session's tokens, the last drawn and guesses */
};

/* Opens the file, loads nothing large. ERR_USAGE: a packed model. */
int mtp_open(struct mtp *m, const char *path, struct err *e);

/* For setup_args.beside_of: what the layer takes beside a model that runs by this configuration. ctx: struct mtp. */
int mtp_beside(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e);

/* ERR_MISMATCH where the layer is of another model. */
int mtp_check(const struct mtp *m, const struct setup *model, struct err *e);

/* Loads it. The model's engine outlives it. */
int mtp_start(struct mtp *m, const struct setup *model, const struct engine *trunk, struct err *e);
void mtp_close(struct mtp *m); /* accepts a zeroed one */

session_watcher mtp_watch;
guess_ready mtp_ready;
guess_source mtp_guess; /* as draft_guess, it draws with the numbers that the session's sampler will draw with */

#endif
