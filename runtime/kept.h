#ifndef RUNTIME_KEPT_H
#define RUNTIME_KEPT_H

/* Text that comes in pieces and is kept together: until it is printed, or as a message. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define KEPT_SESSION_PER_TOKEN 40 /* of a session's: ids, and its file's text */
#define KEPT_PER_TOKEN 8 /* bytes that are kept out of the limit for each token of such a text */

struct kept {
    char *s;                /* [len], ended by NUL; or NULL */
    size_t len, cap;
};

int kept_add(struct kept *k, const char *text, size_t len, struct err *e);
void kept_free(struct kept *k); /* accepts a zeroed one */

/* Tokens that are kept the same way, and their file: {"tokens": [...], "pieces": a hash of their texts}. piece: text of a token. */
struct kept_tokens {
    int32_t *ids;           /* [n], or NULL */
    int n, cap;
};
typedef const char *kept_piece(void *ctx, int32_t id, size_t *bytes);

int kept_tokens_add(struct kept_tokens *k, int32_t id, struct err *e);
void kept_tokens_free(struct kept_tokens *k);

/* Adds those of a file, in at most so much memory. ERR_INPUT FORMAT LIMIT; ERR_MISMATCH: of another vocabulary. */
int kept_tokens_load(struct kept_tokens *k, const char *path, size_t room, kept_piece *piece, void *ctx, struct err *e);
int kept_tokens_save(const struct kept_tokens *k, const char *path, kept_piece *piece, void *ctx, struct err *e);

/* Adds options of the library to more[], which has room for two: a session's pages have a folder beside it. Its name is *pages,
 * malloc'd. */
int kept_pages(const char *session, const char **more, char **pages, struct err *e);

#endif
