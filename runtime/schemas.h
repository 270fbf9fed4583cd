#ifndef RUNTIME_SCHEMAS_H
#define RUNTIME_SCHEMAS_H

/* Masks of the schemas that open requests have: the same one for all that have the same schema, so many different ones at most. Schemas
 * are taken and given back by any thread; what a mask knows of texts belongs to the thread that draws tokens. */
#include "common/base/js.h"
#include "common/model/tokenizer.h"
#include "runtime/forced.h"
#include "runtime/mask/mask.h"

struct schemas;

/* Bytes for n schemas, counted before they are there; of the vocabulary once. */
uint64_t schemas_bytes(const struct tokenizer *t, int n_vocab, int n);

/* eog[n_eog]: tokens that end a text. All outlive it. */
int schemas_new(const struct tokenizer *t, int n_vocab, const int32_t *eog, int n_eog, int n, struct schemas **out, struct err *e);
void schemas_free(struct schemas *s); /* accepts NULL */

/* A text that a schema constrains. Zeroed: none does. */
struct schemas_text {
    struct schemas *of;
    int place;                /* of the schema, in the list */
    int begun, on;            /* the grammar knows it; the token that is drawn next is one of the grammar's */
    struct mask_text text;
};

/* schema: NULL: any JSON object. ERR_FULL: all places are taken; what mask_new gives. */
int schemas_take(struct schemas *s, const struct js *schema, struct schemas_text *out, struct err *e);
/* The same of a call that the text has to be; call->is_control is set by it. What forced_grammar gives, too. */
int schemas_take_call(struct schemas *s, const struct forced *call, struct schemas_text *out, struct err *e);
/* Another text of the same request. */
void schemas_share(const struct schemas_text *of, struct schemas_text *out);
/* By the thread that draws, or where none has been drawn; accepts a zeroed one. */
void schemas_give(struct schemas_text *t);

/* By the thread that draws. Tokens that may be next, a bit each, until the next call; ends: those that end the text may be among them;
 * also: a token that may come besides, or -1. NULL: with e->code 0 none may, for the text is whole. */
const uint64_t *schemas_allowed(struct schemas_text *t, int ends, int32_t also, struct err *e);
const uint64_t *schemas_any(struct schemas_text *t); /* all tokens, which are none of the grammar's */
int schemas_accept(struct schemas_text *t, int32_t id, struct err *e); /* what has been drawn */

#endif
