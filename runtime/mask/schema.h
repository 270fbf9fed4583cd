#ifndef RUNTIME_MASK_SCHEMA_H
#define RUNTIME_MASK_SCHEMA_H

/* JSON Schema (2020-12 and before) as grammar: every text of it is JSON that the schema accepts. Not every text that it accepts is in
 * it: members come in the schema's order, those that it does not name where "additionalProperties" says so (without "properties": where
 * it is not false), an instance is of the type that other keywords are about, numbers have at most 15 digits before and behind the
 * point.
 *
 * Known: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf, oneOf (whose
 * alternatives exclude each other by type, by const or enum, or by those of a required property), allOf and $ref beside others (where no
 * two say something else of one thing), $defs, minLength, maxLength, pattern (pattern.h), format (date, time, date-time, uuid, ipv4),
 * minimum, maximum, exclusiveMinimum, exclusiveMaximum (of integers; of numbers "minimum": 0), multipleOf 1; true and {}. Notes (title,
 * description, default, ...) say nothing. Everything else is ERR_UNSUPPORTED, by name: a schema fails closed. */
#include "common/base/js.h"
#include "runtime/mask/shapes.h"

/* A value that the schema accepts, as part of a grammar that is being built; object: and that is an object. Errors: of the grammar, with
 * the same codes. */
int schema_value(struct shapes *s, const struct js *schema, int object, int next);

/* NULL: any JSON object. *out: for grammar_free. ERR_UNSUPPORTED, ERR_FORMAT (it contradicts itself), ERR_LIMIT, ERR_NOMEM. */
int schema_grammar(const struct js *schema, struct grammar **out, struct err *e);

#endif
