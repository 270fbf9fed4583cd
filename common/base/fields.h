#ifndef COMMON_BASE_FIELDS_H
#define COMMON_BASE_FIELDS_H

/* The fields that an object of JSON from outside may have: a table of those that are taken, those that are accepted without effect, and
 * those that are known and refused. Anything else is an error that names the field and the nearest one that is taken, so that nothing
 * is dropped without a word. */
#include "common/base/js.h"

enum fields_how {
    FIELDS_TAKEN,
    FIELDS_NO_EFFECT, /* accepted, whatever it says */
    FIELDS_IF_EMPTY,  /* accepted where it says nothing (null, false, 0, "", [], {}), else refused */
    FIELDS_REFUSED
};

struct fields {       /* a row, or how one begins; the last has no name */
    const char *name;
    enum fields_how how;
    const char *why;  /* of one that is refused */
};

/* row_bytes: of a row of the table. of: what the object is, for messages: "message 3 of 'file'". ERR_FORMAT: no object, or a field that is
 * not known; ERR_UNSUPPORTED: one that is refused. */
int fields_check(const struct js *j, const struct fields *table, size_t row_bytes, const char *of, struct err *e);

/* Neither absent nor null. */
int fields_given(const struct js *j);

#endif
