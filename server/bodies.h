#ifndef SERVER_BODIES_H
#define SERVER_BODIES_H

/* What bodies say that ask for nothing to be made: tokens of a text, text of tokens, another limit of memory. Messages begin with the
 * field; ERR_FORMAT, or what a size's reader says. */
#include "common/base/fields.h"
#include "common/base/js.h"

struct bodies_text {
    const char *content;        /* borrowed of the body */
    int add_special, parse_special, with_pieces;
};

extern const struct fields bodies_text_rows[], bodies_tokens_rows[], bodies_memory_rows[];

int bodies_text(const struct js *body, struct bodies_text *out, struct err *e);
int bodies_tokens(const struct js *body, struct err *e);             /* all of "tokens" are ids, 0 to 2^31 - 1 */
int bodies_memory(const struct js *body, uint64_t *bytes, struct err *e); /* a size as text, or a number of bytes; not 0 */

#endif
