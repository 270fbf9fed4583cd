#ifndef RUNTIME_MASK_PATTERN_H
#define RUNTIME_MASK_PATTERN_H

/* Patterns of schemas (ECMA-262 regular expressions) as grammar: characters, escapes (\d \w \s and their capitals, \n \t \r \f \v, \xHH,
 * \uHHHH, of punctuation), '.', sets, groups, alternatives, * + ? {m} {m,} {m,n}, and ^ and $ at the ends. What is no regular language
 * or not known (look-around, back references, \b, \p, named groups, lazy repetition) is ERR_UNSUPPORTED and named. */
#include "runtime/mask/shapes.h"

/* A string, with its quotes, in which the pattern is found: anywhere, unless ^ and $ say where. Errors: of the grammar. */
int pattern_string(struct shapes *s, const char *pattern, int next);

#endif
