#ifndef RUNTIME_SAID_H
#define RUNTIME_SAID_H

/* What becomes text of one token: bytes, of each the part that it is of, and how many the sink has. */
#include <stddef.h>

#define SAID_BYTES 8192 /* that a token lets out, at most, beside calls */

struct said {
    size_t n, taken, most;
    char *part;             /* [most] */
    char text[];            /* [most + 1] */
};

/* Bytes of text for such a context. */
size_t said_most(int calls, int context);
struct said *said_new(size_t most); /* for free(); NULL: out of memory */
void said_copy(struct said *to, const struct said *of);
void said_put(struct said *to, const char *text, size_t len, int part); /* as much as there is room for */
int said_has(const struct said *s, int part); /* 1: some of it is of that part */

#endif
