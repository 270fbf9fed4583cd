#ifndef COMMON_BASE_JS_H
#define COMMON_BASE_JS_H

/* JSON output for --json, and the few reads that are not plans: a thin face over jansson, so that its types stay here (and
 * the prefix is js_, for jansson owns json_). Objects keep insertion order. Building never fails visibly: a failed
 * allocation makes the document NULL, and js_print says so. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct js; /* a value; children belong to their parent once set or appended */

struct js *js_object(void);
struct js *js_array(void);
void js_free(struct js *j);

/* Members of an object, which is returned: js_put(o, JS_STR("name", s), JS_INT("layer", i)); js_made is a new one. */
struct js_member {
    const char *key;
    enum { JS_IS_VALUE, JS_IS_STR, JS_IS_HASH, JS_IS_INT, JS_IS_U64, JS_IS_NUM, JS_IS_BOOL } kind;
    union {
        struct js *value;
        const char *text;
        struct hash128 hash;
        int64_t whole;
        uint64_t count;
        double real;
    };
};
#define JS_VALUE(k, v) { .key = k, .kind = JS_IS_VALUE, .value = v } /* takes v */
#define JS_STR(k, v)   { .key = k, .kind = JS_IS_STR, .text = v }    /* invalid UTF-8 bytes become U+FFFD; NULL: null */
#define JS_HASH(k, v)  { .key = k, .kind = JS_IS_HASH, .hash = v }   /* as text */
#define JS_INT(k, v)   { .key = k, .kind = JS_IS_INT, .whole = v }
#define JS_U64(k, v)   { .key = k, .kind = JS_IS_U64, .count = v }   /* above 2^63-1: as text */
#define JS_NUM(k, v)   { .key = k, .kind = JS_IS_NUM, .real = v }    /* not finite: null */
#define JS_BOOL(k, v)  { .key = k, .kind = JS_IS_BOOL, .whole = v }
struct js *js_put_members(struct js *obj, const struct js_member *m); /* to one without a key */
#define js_put(obj, ...) js_put_members(obj, (const struct js_member[]){ __VA_ARGS__, { .key = NULL } })
#define js_made(...)     js_put(js_object(), __VA_ARGS__)

/* One of them. */
#define js_set(obj, k, v)      js_put(obj, JS_VALUE(k, v))
#define js_set_str(obj, k, v)  js_put(obj, JS_STR(k, v))
#define js_set_hash(obj, k, v) js_put(obj, JS_HASH(k, v))
#define js_set_int(obj, k, v)  js_put(obj, JS_INT(k, v))
#define js_set_u64(obj, k, v)  js_put(obj, JS_U64(k, v))
#define js_set_num(obj, k, v)  js_put(obj, JS_NUM(k, v))
#define js_set_bool(obj, k, v) js_put(obj, JS_BOOL(k, v))
void js_append(struct js *arr, struct js *value);                      /* takes value */
void js_append_str(struct js *arr, const char *text);
void js_append_int(struct js *arr, int64_t v);
void js_append_num(struct js *arr, double v);

/* One line (indent 0) or pretty (indent 2), with a newline. digits: significant digits of reals, 0: 17. */
int js_print(FILE *f, const struct js *j, int indent, int digits, struct err *e);
char *js_text(const struct js *j, int indent, int digits); /* malloc'd; NULL when out of memory */

/* For those who use jansson themselves (the plan's reader): from js_watch on, whether an allocation failed in it, in this
 * thread; what it said instead is not to be believed then. most: bytes of memory that it may take until js_watched, 0: any number.
 * js_watched: ERR_LIMIT where it asked for more, ERR_NOMEM. */
void js_watch(size_t most);
int js_watched(const char *name, struct err *e);
int js_starved(void);

/* Reading: strict JSON, duplicate keys refused. Accessors give NULL / the fallback when absent or of another type. A document takes up to
 * eighty times the memory of its text ("{},{},{}"): `most` bounds it, counted by the allocation while it is read. ERR_LIMIT: it takes more.
 * js_read: of a file of at most most_bytes, in pieces, so that its text is never in memory. */
#define JS_MAX_BYTES ((size_t)1 << 30) /* of js_parse: what the programs take that have no limit of memory */
struct js *js_parse(const char *text, size_t len, const char *name, struct err *e);
struct js *js_parse_within(const char *text, size_t len, size_t most, const char *name, struct err *e);
struct js *js_read(const char *path, uint64_t most_bytes, size_t most, struct err *e);
const struct js *js_get(const struct js *obj, const char *key);
const struct js *js_at(const struct js *arr, size_t i);
struct js *js_own(struct js *obj, const char *key); /* the same, of what may be changed */
struct js *js_own_at(struct js *arr, size_t i);
size_t js_len(const struct js *arr);
const char *js_key(const struct js *obj, size_t i); /* the i-th key, in the order of the text; NULL past the last */
const char *js_str(const struct js *j);
int js_equal(const struct js *a, const struct js *b); /* the same values, whatever the order of keys */
int js_bool(const struct js *j);               /* 0, 1; -1 when neither true nor false */
int js_is_object(const struct js *j);
int js_is_array(const struct js *j);
int js_num(const struct js *j, double *out);   /* 1 when a number */
int js_int(const struct js *j, int64_t *out);  /* 1 when an integer */

#endif
