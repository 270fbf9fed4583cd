#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

/* What the parts of the server share: the model, the doors, what is being answered. */
#include "runtime/thermo.h"

#include "server/ask.h"
#include "server/http.h"

#include <pthread.h>

struct answer; /* answer.h */

struct counts {
    uint64_t asked, answered, refused, cancelled, failed;
    uint64_t prompt_tokens, cached_tokens, tokens;
    double first_s, total_s;          /* sums over answers, of the time to the first token and to the end, */
    uint64_t n_first;                 /* and of how many */
};

struct server {
    struct http *http;
    struct models *models;            /* which lends what follows, until it is given back (models.h): */
    struct thermo *t;
    const char *name;                 /* in answers */
    int sequences, places, context;   /* places: requests that are made or wait, at most */
    int entered;                      /* the worker's: its call has it */
    struct pool pool;
    size_t body_max, json_max;
    const struct door *door;
    pthread_mutex_t lock;             /* of what follows */
    struct answer *answers;
    struct counts counts;
    double mean_s;                    /* that an answer takes, lately */
    struct buffer line;               /* the stepping thread's: a piece of an answer */
};

/* {"error": ...}, with the headers that a status has; at paths of messages in Anthropic's form; an event where a stream has begun.
 * param, code: or NULL. */
void server_error(struct server *s, struct call *c, int status, const char *param, const char *code, const char *message);
void server_error_text(struct buffer *b, enum ask_form form, int status, const char *param, const char *code, const char *message);

/* For http_config: ctx is the server. */
void server_http_error(void *ctx, struct call *c, int status, const char *message);

#endif
