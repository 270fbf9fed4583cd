#ifndef SERVER_TALK_H
#define SERVER_TALK_H

/* A conversation written as "messages" of the library, from pieces that come one after another: neighbours of one role become one message,
 * what an assistant thought, said and called one turn. */
#include "server/buffer.h"

struct talk {
    struct buffer *to;
    int n, n_parts;                      /* messages, parts of the one that is open */
    char role[16];                       /* of the one that is open; "": none */
    struct buffer text, thought, calls;  /* of an assistant's turn that is open: escaped, escaped, objects */
};

void talk_begin(struct talk *t, struct buffer *to); /* behind "messages": */
void talk_text(struct talk *t, const char *role, const char *text);
void talk_thought(struct talk *t, const char *text);
void talk_call(struct talk *t, const char *id, const char *name, const char *arguments); /* arguments: JSON */
void talk_result(struct talk *t, const char *id);   /* of a call; its texts follow, of the role "tool" */
int talk_end(struct talk *t);                       /* -1: out of memory */

#endif
