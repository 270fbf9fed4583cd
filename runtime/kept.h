#ifndef RUNTIME_KEPT_H
#define RUNTIME_KEPT_H

/* Text that comes in pieces and waits to be printed. */
#include "common/base/err.h"

#include <stddef.h>

#define KEPT_PER_TOKEN 8 /* bytes that are kept out of the limit for each token of such a text */

struct kept {
    char *s;                /* [len], or NULL; no NUL behind it */
    size_t len, cap;
};

int kept_add(struct kept *k, const char *text, size_t len, struct err *e);
void kept_free(struct kept *k); /* accepts a zeroed one */

#endif
