/* Byte by byte, because text is slow to come and short; the buffer never holds more than the longest
 * stop string and one character. */
#include "runtime/stream.h"

#include <stdlib.h>
#include <string.h>

int stream_init(struct stream *s, const char *const *stops, int n_stops, stream_sink *sink, void *ctx, struct err *e)
{
    size_t longest = 0;
    for (int i = 0; i < n_stops; i++) {
        size_t n = strlen(stops[i]);
        if (!n)
            return err_set(e, ERR_USAGE, "an empty --stop string would stop at once");
        longest = n > longest ? n : longest;
    }
    *s = (struct stream){ .stops = stops, .n_stops = n_stops, .sink = sink, .ctx = ctx, .cap = longest + 8 };
    s->hold = malloc(2 * s->cap);
    s->silent = s->hold ? s->hold + s->cap : NULL;
    return s->hold ? 0 : err_set(e, ERR_NOMEM, "out of memory for the output buffer");
}

void stream_done(struct stream *s)
{
    free(s->hold);
    s->hold = NULL;
}

static void emit(struct stream *s, size_t len)
{
    for (size_t at = 0, n; at < len; at += n) { /* runs of what is printed and of what is not */
        for (n = 1; at + n < len && s->silent[at + n] == s->silent[at]; n++)
            ;
        if (!s->silent[at])
            s->sink(s->ctx, s->hold + at, n);
    }
    memmove(s->hold, s->hold + len, s->n - len);
    memmove(s->silent, s->silent + len, s->n - len);
    s->n -= len;
}

/* Bytes at the end of p[0..n) that begin a character whose rest has not come. */
static size_t incomplete(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)p[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
        return need > back ? back : 0;
    }
    return 0;
}

/* Longest end of the held text that a stop string begins with; a whole stop string gives its length and is *hit. */
static size_t held_for_stop(const struct stream *s, const char **hit)
{
    size_t most = 0;
    for (int i = 0; i < s->n_stops; i++) {
        size_t len = strlen(s->stops[i]);
        for (size_t k = len < s->n ? len : s->n; k > most; k--)
            if (!memcmp(s->hold + s->n - k, s->stops[i], k)) {
                if (k == len) {
                    *hit = s->stops[i];
                    return len;
                }
                most = k;
            }
    }
    return most;
}

static int push(struct stream *s, const char *text, size_t len, int silent)
{
    for (size_t i = 0; i < len && !s->stopped; i++) {
        s->silent[s->n] = (char)silent;
        s->hold[s->n++] = text[i];
        const char *hit = NULL;
        size_t keep = held_for_stop(s, &hit), part = incomplete(s->hold, s->n);
        if (hit) {
            emit(s, s->n - keep);
            s->n = 0;
            s->stopped = 1;
            s->stop = hit;
        } else {
            emit(s, s->n - (keep > part ? keep : part));
        }
    }
    return s->stopped;
}

int stream_push(struct stream *s, const char *text, size_t len)
{
    return push(s, text, len, 0);
}

int stream_mark(struct stream *s, const char *text, size_t len)
{
    return s->n_stops ? push(s, text, len, 1) : s->stopped;
}

void stream_flush(struct stream *s)
{
    emit(s, s->n);
}
