#ifndef RUNTIME_GENERATE_H
#define RUNTIME_GENERATE_H

/* What the ways to generate have in common: one text as it comes (cmd_generate.c), the best of several, a file of prompts. */
#include "common/cli/opt.h"

#include "runtime/draft.h"
#include "runtime/mtp.h"
#include "runtime/request.h"
#include "runtime/sampling.h"

enum generate_guess { GENERATE_GUESS_NONE, GENERATE_GUESS_LOOKUP, GENERATE_GUESS_DRAFT, GENERATE_GUESS_MTP };

#define GENERATE_EOG       64
#define GENERATE_MAX_BATCH BUDGET_MAX_BATCH

struct generate_args {
    struct setup_args setup;
    const char *prompt, *prompt_file, *system, *template, *prompts, *column, *output;
    int n, json, ignore_eos, no_echo, chat, thinking, best_of, resume;
    int messages;               /* the template is loaded where the model has one that is understood, and prompts stay text */
    uint64_t reserved;          /* bytes of whoever calls, within the limit */
    int guess, guess_most;
    const char *draft, *draft_plan, *mtp;
    uint64_t draft_memory;
    struct opt_list stops;
    uint64_t seed;
    struct sample_params sampling;
};

/* Options of guesses, GENERATE_GUESS_OPTIONS of them. */
#define GENERATE_GUESS_OPTIONS 6
int generate_guess_options(struct opt *o, struct generate_args *a);

/* Defaults; what parsing has allocated. */
void generate_args_init(struct generate_args *a);
void generate_args_done(struct generate_args *a);

/* Options of those who answer requests (serve, the library), GENERATE_SERVE_OPTIONS of them at most; how many were filled. */
#define GENERATE_SERVE_OPTIONS (SETUP_OPTIONS + SAMPLING_OPTIONS + GENERATE_GUESS_OPTIONS + 8)
int generate_serve_options(struct opt *o, struct generate_args *a);

/* Options that do not go together are ERR_USAGE. */
int generate_check_guess(const struct generate_args *a, struct err *e);
int generate_check_serve(const struct generate_args *a, struct err *e);
int generate_check(const struct generate_args *a, struct err *e);

int generate_best(struct generate_args *a, struct err *e);
int generate_prompts(struct generate_args *a, struct err *e);

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
    struct batch batch;
    struct generate_args *args;
    struct draft draft;         /* with --guess draft */
    struct mtp mtp;             /* with --guess mtp */
};

int generate_set_open(struct generate_set *g, struct generate_args *a, int in_flight, struct err *e);

/* Loads the model. */
int generate_set_start(struct generate_set *g, void (*end)(void *, struct batch_text *, enum batch_end, const struct err *),
                       int (*token)(void *, struct batch_text *, int32_t), void *ctx, struct err *e);
void generate_set_close(struct generate_set *g); /* accepts a zeroed one */

/* With guesses, what became of them: ,"guesses":{passes of guessed tried accepted source_ms}; or a line of talk. decoded: steps that
 * read no prompt. */
void generate_guesses_json(FILE *f, const struct guess_stats *s, uint64_t decoded);
void generate_set_guesses_json(FILE *f, const struct generate_set *g);
void generate_set_guesses_text(const struct generate_set *g);

/* For batch_config: the request has its outcome. */
void generate_end(void *ctx, struct batch_text *t, enum batch_end end, const struct err *why);

#endif
