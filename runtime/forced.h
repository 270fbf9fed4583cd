#ifndef RUNTIME_FORCED_H
#define RUNTIME_FORCED_H

/* An answer that has to be one call of a tool, as a grammar: what the model's form of calls begins with, the name of a tool, arguments that
 * its schema accepts, what the form ends with. Marks that are control tokens of the vocabulary are those tokens. Before it there may be
 * two newlines at most, and in harmony a thought. */
#include "runtime/chat/calls.h"
#include "runtime/mask/grammar.h"

#define FORCED_TOOLS 128 /* that are chosen from, at most */

struct forced {
    enum calls_form form;
    int variant;             /* of the form (calls_variant_of) */
    const struct js *tools;  /* of a request, as calls_new takes them */
    const char *name;        /* of the one that is called; NULL: any */
    int (*is_control)(const void *ctx, const char *name); /* is there a control token of that name? */
    const void *ctx;
};

/* *out: for grammar_free. Arguments are what "parameters" accepts, and none where there are none; a tool that is not "strict", with
 * parameters that no mask holds (mask/schema.h), gets any object. In the forms of pairs, CALLS_XML and CALLS_GLM, parameters are strings
 * of any text, numbers, booleans, and enums of strings. ERR_UNSUPPORTED: a form, a tool's name or its schema that cannot be forced;
 * ERR_FORMAT: no such tool, or a schema that contradicts itself; ERR_LIMIT, ERR_NOMEM. */
int forced_grammar(const struct forced *f, struct grammar **out, struct err *e);

#endif
