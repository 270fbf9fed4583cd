#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

/* An answer that is being made: of the worker while it is submitted, then of the stepping thread. */
#include "server/server.h"

/* Submits what was asked, and answers; what is left of *of is for ask_done. */
void answer_begin(struct server *s, struct call *c, struct ask *of);

/* How many are open; under the server's lock. */
int answer_count(const struct server *s);

/* Those that are open, as the inside of a JSON array: of /slots. */
void answer_slots(struct server *s, struct buffer *b);

#endif
