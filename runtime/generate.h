#ifndef RUNTIME_GENERATE_H
#define RUNTIME_GENERATE_H

/* Options of those who make texts, and of the library what is below requests: files, memory, batch, who guesses. */
#include "common/cli/opt.h"

#include "runtime/draft.h"
#include "runtime/engine/kv_store.h"
#include "runtime/mtp.h"
#include "runtime/request.h"
#include "runtime/sampling.h"

enum generate_guess { GENERATE_GUESS_NONE, GENERATE_GUESS_LOOKUP, GENERATE_GUESS_DRAFT, GENERATE_GUESS_MTP };

#define GENERATE_EOG       64
#define GENERATE_STOP      4096 /* bytes of a --stop text, at most */
#define GENERATE_MAX_BATCH BUDGET_MAX_BATCH

struct generate_args {
    struct setup_args setup;
    const char *prompt, *prompt_file, *system, *template, *prompts, *column, *output;
    int n, json, ignore_eos, no_echo, chat, thinking, best_of, resume;
    int max_pass_ms;            /* 0: any time */
    int messages;               /* the template is loaded where the model has one that is understood, and prompts stay text */
    uint64_t reserved, reserved_per_token; /* bytes of whoever calls, within the limit; and for each position of each sequence */
    uint64_t per_sequence, per_request; /* likewise: of the library */
    int calls;                  /* answers to requests with tools are looked through for calls of them */
    int conversation;           /* one request at a time, of messages; its memory is what a plan for chat keeps */
    int requests, known;        /* that may be open, 0: so many for each sequence; all are read before the model is loaded */
    int guess, guess_most;
    int adapt;                  /* enum adapting_how */
    const char *draft, *draft_plan, *mtp;
    const char *memory_file, *pressure; /* follow.h */
    uint64_t draft_memory;
    const char *prefix_cache;   /* DIR, or NULL */
    const char *session;        /* of generate */
    uint64_t prefix_bytes;
    int states;                 /* of recurrent layers, kept in memory; 0: with prefix_cache GENERATE_STATES, else none */
    void (*wake)(void *ctx);    /* when there is something to do: from any thread; or NULL */
    void *wake_ctx;
    struct opt_list stops;
    uint64_t seed;
    struct sample_params sampling;
};

/* Options of guesses, GENERATE_GUESS_OPTIONS of them. */
#define GENERATE_GUESS_OPTIONS 6
int generate_guess_options(struct opt *o, struct generate_args *a);

/* Those of prefixes on disk, GENERATE_PREFIX_OPTIONS of them. */
#define GENERATE_PREFIX_OPTIONS 3
#define GENERATE_STATES 2
int generate_prefix_options(struct opt *o, struct generate_args *a);

/* Those of a limit that changes, GENERATE_ELASTIC_OPTIONS of them. */
#define GENERATE_ELASTIC_OPTIONS 3
int generate_elastic_options(struct opt *o, struct generate_args *a);

/* That of the online choice. */
#define GENERATE_ADAPT_OPTIONS 1
int generate_adapt_options(struct opt *o, struct generate_args *a);

/* Defaults; what parsing has allocated. */
void generate_args_init(struct generate_args *a);
void generate_args_done(struct generate_args *a);

/* Options of those who answer requests (serve, the library), GENERATE_SERVE_OPTIONS of them at most; how many were filled. */
#define GENERATE_SERVE_OPTIONS (SETUP_OPTIONS + SAMPLING_OPTIONS + GENERATE_GUESS_OPTIONS + GENERATE_PREFIX_OPTIONS + \
                                GENERATE_ELASTIC_OPTIONS + GENERATE_ADAPT_OPTIONS + 12)
int generate_serve_options(struct opt *o, struct generate_args *a);

/* Options that do not go together are ERR_USAGE. */
int generate_check_serve(const struct generate_args *a, struct err *e);

/* What a guess of the source that was asked for takes by the plan; 0: not known, or nothing. */
double generate_guess_ns(const struct generate_args *a, const struct setup *s);

/* Tokens that end a text: how many were put into eog[GENERATE_EOG]. */
int generate_eog(const struct setup *s, int32_t *eog);

/* ---- requests of a command ---- */

/* Files opened, and what requests share; the seed is picked where none is given. in_flight: requests per sequence. */
struct generate_set {
    struct setup setup;
    struct request_shared shared;
    struct request *requests;   /* [n] */
    int n;
    int32_t eog[GENERATE_EOG];
    int n_eog;
    struct engine *engine;
    struct schemas *schemas;    /* or NULL */
    struct batch batch;
    struct generate_args *args;
    struct draft draft;         /* with --guess draft */
    struct mtp mtp;             /* with --guess mtp */
    struct kv_store *store;     /* with --prefix-cache */
    struct hash128 root;        /* of its names */
};

int generate_set_open(struct generate_set *g, struct generate_args *a, int in_flight, struct err *e);

/* Loads the model, for requests[n]. */
int generate_set_start(struct generate_set *g, void (*scored)(void *, struct batch_text *, int),
                       void (*end)(void *, struct batch_text *, enum batch_end, const struct err *),
                       int (*token)(void *, struct batch_text *, int32_t), void *ctx, struct err *e);
void generate_set_close(struct generate_set *g); /* accepts a zeroed one */

/* There is nothing to do: what is to be kept on disk is written. */
void generate_set_idle(struct generate_set *g);

/* No more requests are read: what that needs is freed. */
void generate_set_read(struct generate_set *g);

#endif
