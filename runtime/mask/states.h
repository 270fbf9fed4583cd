#ifndef RUNTIME_MASK_STATES_H
#define RUNTIME_MASK_STATES_H

/* A grammar run a byte at a time: a state is the set of places in the grammar where a text may be, each with the calls and counts that it
 * is in. States are made when they are first reached and kept, as far as memory goes: then those that nobody needs are forgotten.
 * Nesting ends at STATES_DEPTH calls; of more than STATES_PLACES places at once the rest is not followed. A state that is alive can be
 * continued to a whole text. Single-threaded. */
#include "runtime/mask/grammar.h"

#define STATES_DEPTH  160
#define STATES_PLACES 256
#define STATES_DEAD   0
#define STATES_FULL   (-1)

struct states;

/* bytes: of memory, for all of it, at least STATES_LEAST. The grammar outlives it. NULL: out of memory. */
#define STATES_LEAST (192u << 10)
struct states *states_new(const struct grammar *g, size_t bytes);
void states_free(struct states *s); /* accepts NULL */
uint64_t states_work(const struct states *s); /* places that were looked at so far */

/* A state's number, or STATES_DEAD, or STATES_FULL: states_forget, then again. */
int states_first(struct states *s);
int states_next(struct states *s, int state, int class); /* of a byte's class */
/* [state][class]: what states_next gives, or STATES_FULL: it has to be asked. The same memory all the time. */
const int32_t *states_known(const struct states *s);
/* The state of which every continuation of at most `reach` bytes is one of this: one for many, where counts are far from their bounds. */
int states_near(struct states *s, int state, int reach);

int states_may_end(const struct states *s, int state);
/* Of a string that may go on: how many characters it may have yet, most at most; 0: it is within none. *alone: nothing else may come, but
 * for an escape and its end. */
int states_text_left(const struct states *s, int state, int most, int *alone);

/* Forgets all states but *keep[0..n), whose numbers change. Those alone must fit: else ERR_LIMIT. */
int states_forget(struct states *s, int **keep, int n);

#endif
