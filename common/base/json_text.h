#ifndef COMMON_BASE_JSON_TEXT_H
#define COMMON_BASE_JSON_TEXT_H

/* JSON as text, without making values of it: is it whole, where are the members of an object? Strict (RFC 8259, UTF-8), allocates
 * nothing, arrays and objects at most JSON_TEXT_DEPTH deep. Thread-safe. */
#include <stddef.h>

#define JSON_TEXT_DEPTH 64

/* Bytes of the value that s[0..n) begins with, white space before it counted; 0: it begins with none, whole and well-formed. */
size_t json_text_value(const char *s, size_t n);

/* Is s[0..n) one value, and white space? */
int json_text_is(const char *s, size_t n);

/* Members of an object that json_text_value accepts, or values of an array, one after another: *at is 0 at first. 0: there are no more.
 * key: between its quotes, as it is spelled; of an array NULL. */
struct json_text_member {
    const char *key, *value;
    size_t n_key, n_value;
};
int json_text_next(const char *s, size_t n, size_t *at, struct json_text_member *out);

/* Bytes that s[0..n), UTF-8, takes as a string with its quotes, written to out where that is not NULL; 0: it is no UTF-8. */
size_t json_text_string(const char *s, size_t n, char *out);

#endif
