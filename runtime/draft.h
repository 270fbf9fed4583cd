#ifndef RUNTIME_DRAFT_H
#define RUNTIME_DRAFT_H

/* A second, smaller packed model that guesses what the first one will draw (session/guess.h). Both have the same tokens. Its own
 * plan says how it runs; its memory is taken out of the first one's limit. */
#include "runtime/session/guess.h"
#include "runtime/setup.h"

struct draft {
    struct setup setup;
    struct engine *engine;
    struct session session;
    const int32_t *never;  /* [n_never]: tokens that it does not guess; the caller's */
    int n_never;
};

/* Opens the files, loads nothing large: afterwards d->setup.budget.total are the bytes that it takes. main: kernels, token, and what to
 * do without. memory 0: the plan's. */
int draft_open(struct draft *d, const struct setup_args *main, const char *model, const char *plan, uint64_t memory, struct err *e);

/* ERR_MISMATCH where the vocabularies differ. Before either is loaded. */
int draft_check(const struct draft *d, const struct setup *main, struct err *e);
int draft_start(struct draft *d, struct err *e); /* loads it */
void draft_close(struct draft *d); /* accepts a zeroed one */

/* A guess_source; ctx: a struct draft. It draws as the session's own sampler will, with the same numbers: the better the two models
 * agree, the more guesses are right, for random draws too. Whatever the session holds, the draft takes in first. */
guess_source draft_guess;

#endif
