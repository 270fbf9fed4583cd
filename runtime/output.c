#include "runtime/output.h"

#include <string.h>

int output_init(struct output *o, const char *const *stops, int n_stops, stream_sink *sink, void *ctx, struct err *e)
{
    *o = (struct output){ 0 };
    return stream_init(&o->stream, stops, n_stops, sink, ctx, e);
}

void output_done(struct output *o)
{
    stream_done(&o->stream);
}

void output_begin(struct output *o, const struct tokenizer *t, int chat, int thinks, int hide)
{
    o->tokenizer = t;
    o->chat = chat;
    o->hide = hide;
    o->stream.n = 0;
    o->stream.stopped = 0;
    o->stream.stop = NULL;
    o->now = CHAT_ANSWER;
    o->calls = NULL;
    if (chat)
        chat_reader_init(&o->reader, t, thinks);
}

/* A mark. What was held of the part before goes out where another begins. */
static int put_mark(struct output *o, enum chat_part part, const char *text, size_t len)
{
    int stop = stream_mark(&o->stream, text, len);
    if (!stop && o->parts && part != CHAT_HEADER && part != o->now)
        stream_flush(&o->stream);
    return stop;
}

static int put_text(struct output *o, enum chat_part part, const char *text, size_t len)
{
    if (part == CHAT_HEADER)
        return 0;
    int stop = o->part ? o->part(o->part_ctx, part, text, len) : 0;
    if (stop || (part == CHAT_THOUGHT && o->hide))
        return stop;
    o->now = part;
    if (o->parts)
        return stream_push(&o->stream, text, len);
    const char *mark = chat_reader_mark(&o->reader, part);
    return stream_push(&o->stream, mark, strlen(mark)) || stream_push(&o->stream, text, len);
}

static int put_out(void *ctx, const struct calls_out *out)
{
    struct output *o = ctx;
    if (!out->name)
        return out->silent ? put_mark(o, out->part, out->text, out->n) : put_text(o, out->part, out->text, out->n);
    stream_flush(&o->stream);
    return o->call(o->call_ctx, out);
}

static int put_part(void *ctx, enum chat_part part, const char *text, size_t len)
{
    struct output *o = ctx;
    int silent = part == CHAT_SILENT;
    part = silent ? o->reader.part : part;
    if (o->calls)
        return calls_put(o->calls, part, silent, text, len, put_out, o);
    return silent ? put_mark(o, part, text, len) : put_text(o, part, text, len);
}

int output_token(struct output *o, int32_t id)
{
    size_t len;
    const char *text;
    if (o->chat)
        return chat_reader_token(&o->reader, id, put_part, o);
    text = tokenizer_piece(o->tokenizer, id, &len);
    if (len)
        return stream_push(&o->stream, text, len);
    text = tokenizer_text(o->tokenizer, id, &len);
    return stream_mark(&o->stream, text, len);
}

void output_end(struct output *o)
{
    if (o->chat && !o->stream.stopped)
        chat_reader_end(&o->reader, put_part, o);
    if (o->calls && !o->stream.stopped)
        calls_end(o->calls, put_out, o);
    stream_flush(&o->stream);
}
