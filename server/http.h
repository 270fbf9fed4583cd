#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

/* HTTP by libmicrohttpd, whose types stay in http.c: connections, bodies, answers that come bit by bit. README.md has the threads.
 *
 * A call is one request. Its headers are looked at by the door (in the thread that reads, before the body comes), then it waits for the
 * worker, one thread, which is given whole bodies one after another. The answer is written by any thread: at once (call_reply), or begun
 * and put piece by piece (call_begin, call_put, call_end). */
#include "server/buffer.h"

#include "common/base/err.h"

struct http;
struct call;

struct http_config {
    const char *host;       /* address to listen at, numeric; NULL: 127.0.0.1 */
    int port;               /* 0: any */
    int fd;                 /* a socket that listens already, or -1 */
    int connections;        /* at once; further ones are told to come back */
    size_t body_max;        /* bytes of a body */
    struct pool *pool;      /* of bodies and answers */
    int idle_s;             /* without a byte from or to it a connection is closed */
    int patience_ms;        /* an answer that says nothing for so long sends a sign of life */
    int unread_ms;          /* a client that reads nothing of its answer for so long is cut off */
    void *ctx;              /* of: */
    /* 0, or the status that the call is refused with, and why (constant); it may set headers of the answer. */
    int (*door)(void *ctx, struct call *c, const char **message);
    void (*handle)(void *ctx, struct call *c); /* the worker's */
    void (*wake)(void *ctx);                   /* a buffer that was full has room */
    /* The body of an error that HTTP itself has. */
    void (*error)(void *ctx, struct call *c, int status, const char *message);
};

/* Memory for all of it beside the pool, for reserved_bytes. */
size_t http_bytes(const struct http_config *c);

int http_open(const struct http_config *c, struct http **out, struct err *e);
int http_port(const struct http *h);
void http_drain(struct http *h);      /* nothing new is taken: 503; what is open goes on */
int http_idle(struct http *h);        /* no request that has come whole is open */
void http_close(struct http *h);      /* what is open is cut off; accepts NULL. Nobody may hold a call */

/* ---- a call ---- */

const char *call_method(const struct call *c);
const char *call_path(const struct call *c);    /* without what follows '?' */
const char *call_body(struct call *c, size_t *len);
void call_drop_body(struct call *c);            /* its memory is given back */
const char *call_header(struct call *c, const char *name); /* for the door alone; NULL: absent */

/* Who holds a call after the worker's function has returned takes it, and releases it. */
void call_hold(struct call *c);
void call_release(struct call *c);

/* A header of the answer, constant or kept by the call: at most 8, 256 bytes each. Before the answer begins. */
void call_set(struct call *c, const char *name, const char *value);
int call_has(const struct call *c, const char *name); /* 1: it was set */

void call_reply(struct call *c, int status, const char *type, const char *text, size_t len);
void call_begin(struct call *c, int status, const char *type); /* and call_put ... call_end */
enum { CALL_FULL = 1 };
/* All of it or nothing. CALL_FULL: as many bytes wait as may; http_config.wake is called when there is room. force: however many wait. */
int call_put(struct call *c, const void *data, size_t len, int force);
void call_end(struct call *c);
void call_fail(struct call *c); /* the answer cannot be whole: the connection is cut after what was put */
/* The reply is what b holds, which is taken; where the sign of life has been sent, it follows that. */
void call_reply_buffer(struct call *c, int status, const char *type, struct buffer *b);

/* What is sent where nothing is for a while: a comment of a stream, white space before an object, with status 200 and this type. Constant
 * text; NULL: nothing. */
void call_keep_alive(struct call *c, const char *type, const char *text);

/* What the answer has begun with by itself, for a sign of life: its type; NULL: it has not. No such sign is sent from here on. */
const char *call_begun(struct call *c);
/* Who holds a call has the worker handle it once more, also where its client has left; the hold is given up. */
void call_again(struct call *c);

/* gone(ctx) once, where the client closes its connection before the end; NULL: not any more. In a thread of http's, which holds its lock:
 * it may not call anything here. 1: it has gone already, and gone is not called. */
int call_on_gone(struct call *c, void (*gone)(void *ctx), void *ctx);

#endif
