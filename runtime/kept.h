#ifndef RUNTIME_KEPT_H
#define RUNTIME_KEPT_H

/* Text that comes in pieces and is kept together: until it is printed, or as a message. */
#include "common/base/err.h"

#include <stddef.h>

#define KEPT_PER_TOKEN 8 /* bytes that are kept out of the limit for each token of such a text */

struct kept {
    char *s;                /* [len], ended by NUL; or NULL */
    size_t len, cap;
};

int kept_add(struct kept *k, const char *text, size_t len, struct err *e);
void kept_free(struct kept *k); /* accepts a zeroed one */

#endif
