#ifndef RUNTIME_OUTPUT_H
#define RUNTIME_OUTPUT_H

/* Tokens on their way out as text: which part of an answer they are, what of it is shown, where a stop string ends it. For all
 * commands that print what a model makes. Single-threaded. */
#include "runtime/chat/calls.h"
#include "runtime/stream.h"

struct output {
    struct stream stream;
    struct chat_reader reader;
    const struct tokenizer *tokenizer;
    int chat, hide;
    int parts;                /* the caller's, after output_init: the sink looks at `now`, and no marks are put between parts; a stop
                               * string does not reach from one part into the next */
    enum chat_part now;       /* of what the sink is given: CHAT_ANSWER, CHAT_THOUGHT */
    struct calls *calls;      /* the caller's, after output_begin: what it finds goes to `call`, and is no text; or NULL */
    calls_sink *call;
    void *call_ctx;
    chat_sink *part;          /* sees the text of a chat's parts, shown or not; or NULL */
    void *part_ctx;
};

/* As stream_init. output_done accepts a zeroed one. */
int output_init(struct output *o, const char *const *stops, int n_stops, stream_sink *sink, void *ctx, struct err *e);
void output_done(struct output *o);

/* A text begins. chat: it is an answer; thinks: as chat_reader_init; hide: thoughts are not shown. */
void output_begin(struct output *o, const struct tokenizer *t, int chat, int thinks, int hide);

/* 1: a stop string is complete; what comes then is ignored. */
int output_token(struct output *o, int32_t id);
void output_end(struct output *o); /* what is held goes out */

#endif
