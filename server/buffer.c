#include "server/buffer.h"

#include "common/base/print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 512
#define LINE  1024

static int take(struct pool *p, size_t n, int force)
{
    if (!p)
        return 0;
    size_t was = atomic_fetch_add(&p->used, n);
    if (force || (was <= p->most && n <= p->most - was))
        return 0;
    atomic_fetch_sub(&p->used, n);
    return -1;
}

static void give(struct pool *p, size_t n)
{
    if (p)
        atomic_fetch_sub(&p->used, n);
}

/* Room for n more bytes behind what there is. */
static int room(struct buffer *b, size_t n, int force)
{
    if (b->from && b->from + b->len + n > b->cap) {
        memmove(b->at, b->at + b->from, b->len);
        b->from = 0;
    }
    if (b->from + b->len + n <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : LEAST;
    while (cap < b->len + n)
        cap += cap / 2;
    if (take(b->pool, cap - b->cap, force) < 0)
        return -1;
    char *grown = realloc(b->at, cap);
    if (!grown) {
        give(b->pool, cap - b->cap);
        return -1;
    }
    b->at = grown;
    b->cap = cap;
    return 0;
}

int buffer_reserve(struct buffer *b, size_t n, int force)
{
    if (room(b, n, force) == 0)
        return 0;
    b->failed |= force;
    return -1;
}

int buffer_put(struct buffer *b, const void *data, size_t n, int force)
{
    if (buffer_reserve(b, n, force) < 0)
        return -1;
    if (n)
        memcpy(b->at + b->from + b->len, data, n);
    b->len += n;
    return 0;
}

int buffer_printf(struct buffer *b, const char *fmt, ...)
{
    char line[LINE];
    va_list ap;
    va_start(ap, fmt);
    int n = print_into_va(line, sizeof line, fmt, ap);
    va_end(ap);
    b->failed |= n < 0 || n >= LINE;
    return n < 0 || n >= LINE ? -1 : buffer_put(b, line, (size_t)n, 1);
}

int buffer_escape(struct buffer *b, const char *text, size_t n, int force)
{
    size_t was = b->len;
    for (size_t i = 0; i < n;) {
        char piece[PRINT_PIECE];
        i += print_json_piece(text + i, n - i, piece);
        if (buffer_put(b, piece, strlen(piece), force) < 0) {
            b->len = was;
            return -1;
        }
    }
    return 0;
}

void buffer_string(struct buffer *b, const char *text)
{
    if (!text) {
        buffer_put(b, "null", 4, 1);
        return;
    }
    buffer_put(b, "\"", 1, 1);
    buffer_escape(b, text, strlen(text), 1);
    buffer_put(b, "\"", 1, 1);
}

size_t buffer_take(struct buffer *b, char *to, size_t most)
{
    size_t n = b->len < most ? b->len : most;
    if (n)
        memcpy(to, b->at + b->from, n);
    b->from += n;
    b->len -= n;
    if (b->len == 0)
        b->from = 0;
    return n;
}

void buffer_drop(struct buffer *b)
{
    give(b->pool, b->cap);
    free(b->at);
    *b = (struct buffer){ .pool = b->pool };
}
