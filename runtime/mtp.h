#ifndef RUNTIME_MTP_H
#define RUNTIME_MTP_H

/* A model's own layer for multi-token prediction as a source of guesses (session/guess.h): packed by itself (thermo-pack mtp), resident,
 * with a KV cache of its own. For a position p it takes what the model's last layer gave there, and token p + 1, and guesses token p + 2
 * (DeepSeek-V3, arXiv:2412.19437, section 2.2); for the guesses after that it goes on with what it gave itself.
 *
 *     mtp_open(&m, file, e)                              before the model's setup is opened, with beside_of = mtp_beside, ctx = &m
 *     mtp_check(&m, &setup, e)                           afterwards, and the engine: mtp_start(&m, &setup, engine, e)
 *     session_init(..., { .watcher = &mtp_watcher, .watcher_ctx = &m })
 *     batch_init(..., { .guesses = { .source = mtp_guess_many, .ready = mtp_ready_many, .watcher = &mtp_watcher, .ctx = &m,
 *                                    .costly = 1 } })
 *
 * As many sessions as the model's engine has room for, each with a sequence of the layer's KV cache. A session that begins with tokens
 * of another (session_fork) has the layer's positions of these, too, in the same memory.
 *
 * Hidden states wait in a buffer until the token after them is known, and are taken in together, those of all sessions in one pass.
 * Where a session's positions are taken back further than to where guesses began, for a later turn of a conversation, or where one begins
 * with not all of another's, the last that stays may have been taken in with another token than follows now, which costs guesses and no
 * more. Memory: all of it is in mtp_beside's account, the engine's and what this module takes. One thread. */
#include "runtime/session/guess.h"
#include "runtime/setup.h"

/* What the layer holds of a session. */
struct mtp_text {
    int pos;                /* positions that it has taken in, */
    int first, n;           /* and whose hidden states wait: first .. first + n - 1; n <= rows. first > pos: some are missing, and
                             * there are no guesses */
    int sure;               /* the session's, before its last pass: the tokens after those before them are no guesses */
    float *waiting;         /* f32[rows][d_model] */
    int32_t *ids;           /* [context], the engine's: the session's tokens, the last drawn and guesses */
    struct sampler sampler; /* of the guesses that are being made */
};

struct mtp {
    const char *path;
    struct pack *pack;
    struct engine_config config;
    struct budget budget;
    uint32_t *hot;          /* [blocks][parts] */
    struct engine_batch *batches;
    struct engine *engine;
    int sequences, rows;
    struct mtp_text *texts; /* [sequences]: of each place of the model's KV cache */
    float *waiting;         /* f32[sequences][rows][d_model] */
    /* The next pass. */
    int most, n;            /* positions of it; n <= most */
    struct engine_token *tokens; /* [most] */
    float *hidden;          /* f32[most][d_model] */
    int n_ends;
    struct guess_ask **asks; /* [sequences]: those that a guess is drawn for, behind position */
    int *ends;              /* [sequences] of the pass */
};

/* Opens the file, loads nothing large. ERR_USAGE: a packed model. */
int mtp_open(struct mtp *m, const char *path, struct setup_args *model, struct err *e); /* what it holds is added to model->held */

/* For setup_args.beside_of: what the layer takes beside a model that runs by this configuration. ctx: struct mtp. */
int mtp_beside(void *ctx, const struct engine_config *model, uint64_t *bytes, struct err *e);

/* ERR_MISMATCH where the layer is of another model. */
int mtp_check(const struct mtp *m, const struct setup *model, struct err *e);

/* Loads it. The model's engine outlives it. */
int mtp_start(struct mtp *m, const struct setup *model, const struct engine *trunk, struct err *e);
void mtp_close(struct mtp *m); /* accepts a zeroed one */

extern const struct session_watcher mtp_watcher;

/* As draft_guess_many, they draw with the numbers that the sessions' samplers will draw with. Each pass of the layer makes a guess for each
 * text. */
guess_many mtp_ready_many, mtp_guess_many;

#endif
