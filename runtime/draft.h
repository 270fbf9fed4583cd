#ifndef RUNTIME_DRAFT_H
#define RUNTIME_DRAFT_H

/* A second, smaller packed model that guesses what the first one will draw (session/guess.h). Both have the same tokens. Its own
 * plan says how it runs; its memory is taken out of the first one's limit. */
#include "runtime/session/guess.h"
#include "runtime/setup.h"

struct draft {
    struct setup setup;
    struct engine *engine;
    struct session *sessions; /* [sequences]: of each place of the other model's KV cache */
    struct session_part *parts; /* [sequences] */
    struct guess_ask **asks;  /* [sequences] */
    int32_t (*fed)[2];        /* [sequences]: what goes in before the first guess */
    int sequences;
};

/* Opens the files, loads nothing large: afterwards draft_bytes are what it takes. main: kernels, token, and what to do without. memory
 * 0: the plan's. sequences: those that it guesses for, whatever its plan is for. */
int draft_open(struct draft *d, const struct setup_args *main, const char *model, const char *plan, uint64_t memory, int sequences,
               struct err *e);
uint64_t draft_bytes(const struct draft *d);

/* ERR_MISMATCH where the vocabularies differ. Before either is loaded. */
int draft_check(const struct draft *d, const struct setup *main, struct err *e);
int draft_start(struct draft *d, struct err *e); /* loads it */
void draft_close(struct draft *d); /* accepts a zeroed one */

/* ctx: a struct draft. It draws as the sessions' own samplers will, with the same numbers: the better the two models agree, the more
 * guesses are right, for random draws too. Whatever a session holds, the draft takes in first; a pass of it makes a guess for each.
 * Places of sessions in the KV cache are below `sequences`. */
guess_many draft_guess_many;

#endif
