#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

/* Which model is open: one at a time, lent to requests and answers by a count of uses. A thread of its own opens and closes it and makes
 * the passes; requests for one that is not open wait in a queue. docs/server.md has the rules, README.md the threads. */
#include "server/server.h"

#include "common/base/cancel.h"

struct models;

struct models_config {
    const char *dir;                 /* each subfolder with model.thermo and plan.json is one; or NULL, and */
    const char *model, *plan, *name; /* the one that there is */
    int idle_s;                      /* unused for so long it is closed; 0: never */
    struct thermo_options o;         /* of each, but for model, plan and cancel */
};

/* ERR_INPUT: there is none. o.reserved_bytes does not have models_bytes yet. */
int models_find(struct server *s, const struct models_config *c, struct models **out, struct err *e);
size_t models_bytes(const struct models *m);

/* The thread begins; where there is one model it is open when this is back. ERR_INTR: asked. */
int models_start(struct models *m, uint64_t reserved, const struct cancel *asked, struct err *e);
void models_drain(struct models *m); /* nothing more is opened; requests that wait are told so */
void models_stop(struct models *m);  /* what is open ends; the model is closed, and the thread ends */
void models_free(struct models *m);  /* accepts NULL */

/* The worker's: 1: the model of this name (NULL: the one that was used last) is open until models_leave. 0: the call waits, and is given to
 * the worker again, or an error was answered. A client that waits gets `alive` as a sign of life, of a stream or of an object. */
int models_enter(struct models *m, struct call *c, const char *name, int stream, const char *alive);
int models_granted(struct models *m, const struct call *c); /* 1: it has waited, and has its model now, until models_leave */
int models_peek(struct models *m);   /* 1: one is open until models_leave. Opens none, and is no use of it */
void models_hold(struct models *m);  /* once more: of who has it already */
void models_leave(struct models *m, int used); /* used: models_enter's or models_hold's */
void models_limit(struct models *m, uint64_t memory_bytes); /* of those that are opened from here on, too */

/* State for answers; none opens anything. */
const char *models_open_name(struct models *m, const char **opening); /* NULL: none */
void models_put(struct models *m, struct buffer *b, const char *name); /* as GET /v1/models; name: that one's object alone, or NULL */
void models_unknown(struct models *m, struct call *c); /* 404 */
int models_has(const struct models *m, const char *name);
void models_metrics(struct models *m, struct buffer *b);

#endif
