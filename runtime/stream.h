#ifndef RUNTIME_STREAM_H
#define RUNTIME_STREAM_H

/* Generated text on its way out: pieces come in, whole UTF-8 characters go out; what may be the
 * beginning of a stop string is held back until that is decided. Bytes that can never become a
 * character pass as they are. */
#include "common/base/err.h"

#include <stddef.h>

typedef void stream_sink(void *ctx, const char *text, size_t len);

struct stream {
    const char *const *stops; /* borrowed */
    int n_stops;
    stream_sink *sink;
    void *ctx;
    char *hold, *silent;      /* owned; is the byte at its place one that is not printed? */
    size_t n, cap;
    int stopped;              /* a stop string came: the text ends before it */
    const char *stop;         /* which */
};

/* Empty stop strings are ERR_USAGE. */
int stream_init(struct stream *s, const char *const *stops, int n_stops, stream_sink *sink, void *ctx, struct err *e);
void stream_done(struct stream *s);

/* 1 once a stop string is complete; later text is ignored. Does not allocate. */
int stream_push(struct stream *s, const char *text, size_t len);

/* Text of a token that is not printed, a control token's: stop strings may name it, or have it in their midst. */
int stream_mark(struct stream *s, const char *text, size_t len);
void stream_flush(struct stream *s); /* the end: what is held goes out */

#endif
