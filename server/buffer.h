#ifndef SERVER_BUFFER_H
#define SERVER_BUFFER_H

/* Bytes on their way to a client or from one, and the memory that all of them together may take. Pool: thread-safe. A buffer: its owner's
 * lock. */
#include <stdatomic.h>
#include <stddef.h>

struct pool {
    atomic_size_t used;
    size_t most;
};

struct buffer {
    struct pool *pool;   /* or NULL: not counted */
    char *at;            /* [cap]: */
    size_t from, len, cap; /* len bytes from `from` on */
    int failed;          /* something that was forced is missing */
};

/* 0; -1: no memory, or no more of the pool: nothing was appended. force: the pool's limit does not hold (ends of answers, which wait for
 * nobody; README.md counts them). */
int buffer_put(struct buffer *b, const void *data, size_t n, int force);
int buffer_reserve(struct buffer *b, size_t n, int force); /* room for n bytes more: 0; -1: none */
int buffer_printf(struct buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* forced; of at most 1 KiB */
/* As the inside of a JSON string. */
int buffer_escape(struct buffer *b, const char *text, size_t n, int force);
void buffer_string(struct buffer *b, const char *text); /* a JSON string; NULL: null. Forced */

size_t buffer_take(struct buffer *b, char *to, size_t most); /* from the front */
void buffer_drop(struct buffer *b);                          /* empty, its memory given back */

#endif
