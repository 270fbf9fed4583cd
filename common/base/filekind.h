#ifndef COMMON_BASE_FILEKIND_H
#define COMMON_BASE_FILEKIND_H

#include <stddef.h>
#include <stdint.h>

/* What a file is that was given in place of another, from its first bytes: for messages. */
#define FILEKIND_HEAD 64 /* bytes that are enough */

struct filekind {
    const char *what; /* "a web page", or NULL: unknown */
    const char *next; /* what to do, as a sentence without a full stop */
};

/* head: its first n bytes (fewer than FILEKIND_HEAD only if the file has no more); size: its bytes. */
struct filekind filekind(const void *head, size_t n, uint64_t size);

#endif
