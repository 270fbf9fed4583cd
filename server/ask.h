#ifndef SERVER_ASK_H
#define SERVER_ASK_H

/* A body of an endpoint that generates, field by field checked by the endpoint's table (ask_parts.h), and written as the fields of a
 * request of the library. What is in no table is refused by name. */
#include "common/base/err.h"
#include "common/base/js.h"

#include "server/buffer.h"

#include <stdint.h>

/* What a thought begins with that a client is given as encrypted content. */
#define ASK_OPAQUE "thought:"

enum ask_form { ASK_CHAT, ASK_TEXT, ASK_MESSAGES, ASK_RESPONSES }; /* chat/completions, completions, messages, responses */

struct ask {
    enum ask_form form;
    int stream, usage;       /* usage: a chunk with counts at a stream's end */
    int n, logprobs;         /* choices of each prompt; whether tokens have log-probabilities */
    int n_prompts, echoes;   /* echoes: ask_echo is called */
    int opaque;              /* responses: thoughts are sent as encrypted_content, too, and come back as that */
    struct buffer fields;    /* a JSON object, for the library, of the first prompt */
    struct buffer prompts;   /* of several: a field of each, ended by NUL, */
    size_t common;           /* behind so many bytes of fields */
    struct buffer echo;      /* of the request, for the answer. Completions: prompts, escaped, each ended by NUL; responses: fields, each
                              * behind a comma */
};

/* pool: of what stays with the answer. ERR_FORMAT, ERR_UNSUPPORTED: the message begins with the field, in quotes. */
int ask_read(const struct js *body, enum ask_form form, struct pool *pool, struct ask *out, struct err *e);
void ask_done(struct ask *a); /* accepts a zeroed one */
/* a->echo, of prompts in the body: their texts, and pieces of those that are tokens. */
int ask_echo(struct ask *a, const struct js *body, const char *(*piece)(void *ctx, int32_t id, size_t *n), void *ctx, struct err *e);
int ask_turn(struct ask *a, int i, struct err *e); /* fields are those of the i-th prompt */

/* The field that a message quotes first; theirs: it is the library's, and gets the endpoint's name: "temperature" for "temp". "": none. */
#define ASK_NAME 48
void ask_param(enum ask_form form, const char *message, int theirs, char name[ASK_NAME]);

#endif
