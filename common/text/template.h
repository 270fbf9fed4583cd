#ifndef COMMON_TEXT_TEMPLATE_H
#define COMMON_TEXT_TEMPLATE_H

/* The part of Jinja that chat templates use, as Hugging Face runs them: trim_blocks and lstrip_blocks, loop controls, tojson as
 * Python's json.dumps without escapes, raise_exception and strftime_now, no changes of lists and dictionaries.
 *
 *   statements: set (also of a block), if, for (with if, else, loop.*), macro, filter, break, continue, generation, raw
 *   expressions: arithmetic, ~, comparisons, in, and/or/not, inline if, slices, filters, tests, calls, methods of str and dict
 *
 * What goes beyond (include, extends, call, recursive loops, formats with a specification ...) is refused by name and line.
 * Case is changed in ASCII alone. A template may come from a stranger: memory, steps, depth and output have limits.
 * A parsed template is constant; rendering is thread-safe. */
#include "common/base/err.h"
#include "common/base/js.h"

#include <stddef.h>
#include <time.h>

#define TEMPLATE_MAX_SOURCE (1u << 20)   /* bytes of a template */
#define TEMPLATE_MAX_OUTPUT (16u << 20)  /* bytes that come out of it */
#define TEMPLATE_MAX_MEMORY (64u << 20)  /* bytes of all values and texts together */
#define TEMPLATE_MAX_STEPS  (20u << 20)  /* expressions evaluated, and 64 bytes looked through */
#define TEMPLATE_MAX_DEPTH  200          /* of nested expressions, statements and calls */

struct template;

/* name: for messages. most: bytes that it may take, of TEMPLATE_MAX_MEMORY at most. ERR_FORMAT: it is no template; ERR_UNSUPPORTED: a
 * construct that is not known; ERR_LIMIT. */
int template_new(const char *text, size_t len, const char *name, size_t most, struct template **out, struct err *e);
void template_free(struct template *t);

/* vars: an object with the template's variables. *out is malloc'd, with a zero behind *len bytes. now: what strftime_now tells.
 * most: bytes for values and what is written, of TEMPLATE_MAX_MEMORY at most.
 * Beside those of template_new: ERR_USAGE where the template itself refuses its variables (raise_exception). */
int template_render(const struct template *t, const struct js *vars, time_t now, size_t most, char **out, size_t *len, struct err *e);

#endif
