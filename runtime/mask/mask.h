#ifndef RUNTIME_MASK_MASK_H
#define RUNTIME_MASK_MASK_H

/* Which tokens may come next, so that a text becomes one that a schema accepts: a bit for each token. What no text begins with is masked,
 * tokens that end within a character are not; tokens of more than MASK_TOKEN bytes are, for shorter ones say the same. A control token
 * may come where a grammar has it by name (grammar_mark), and nowhere else; no schema has one.
 *
 *     mask_words_new(&words, ...)        of a vocabulary, once
 *     mask_new(schema, words, &mask, e)  any thread: a second at most, MASK_BYTES at most
 *     mask_begin(mask, &text)            of each text
 *     mask_allowed(mask, &text, bits)    before a token is drawn
 *     mask_accept(mask, &text, id)       once it has been
 *
 * Constant once made: words. A mask belongs to one thread at a time. */
#include "common/base/js.h"
#include "runtime/mask/grammar.h"

#define MASK_TOKEN 32

struct mask_words;

/* The bytes of a token, borrowed; *n 0: it may not be drawn. *control, which is 0, set: it is a control token, and this
 * its name. */
typedef const char *mask_piece(const void *ctx, int32_t id, size_t *n, int *control);
int mask_words_new(mask_piece *piece, const void *ctx, int n_vocab, struct mask_words **out, struct err *e);
void mask_words_free(struct mask_words *w); /* accepts NULL */
size_t mask_words_bytes(const struct mask_words *w);
size_t mask_words_bound(int n_vocab, size_t text_bytes); /* of a vocabulary whose tokens have so many bytes in all; half as much again while
                                                          * it is made */

/* Memory of a mask of a vocabulary, at most. */
size_t mask_bytes(int n_vocab);

struct mask;

/* schema: a JSON Schema (schema.h); NULL: any JSON object. The words outlive it. */
int mask_new(const struct js *schema, const struct mask_words *w, struct mask **out, struct err *e);
int mask_of(struct grammar *g, const struct mask_words *w, struct mask **out, struct err *e); /* takes g, also where it fails */
void mask_free(struct mask *m); /* accepts NULL */

/* Where a text is. The caller's; not moved while it is in use. */
struct mask_text {
    int state;
    struct mask *mask;
    struct mask_text *before, *after;
};

int mask_begin(struct mask *m, struct mask_text *t, struct err *e); /* ERR_LIMIT, ERR_NOMEM */
void mask_end(struct mask_text *t); /* accepts a zeroed one */

/* bits[(n_vocab + 63) / 64]: tokens that may come next. *may_end: it is whole; then tokens that end a text may come, too, which are the
 * caller's to know. Gives the number of bits, or ERR_*. */
int mask_allowed(struct mask_text *t, uint64_t *bits, int *may_end, struct err *e);

/* The next token. 0: it was not allowed, and nothing has changed; 1; ERR_*. */
int mask_accept(struct mask_text *t, int32_t id, struct err *e);

#endif
