#ifndef COMMON_PLAN_PLAN_FIELDS_H
#define COMMON_PLAN_PLAN_FIELDS_H

/* The format of plans as tables: a row for each key of each object. Reading (plan_fields_read.c), writing (plan_fields_write.c), the JSON
 * schema and the list of what a check verifies are made from them; nothing else names a key. Keys of an object are in the order of the
 * text, which is sorted. Constant. */
#include "common/plan/plan.h"

/* What stands behind a key. Values: whole numbers of 1, 4 or 8 bytes, reals of six digits, reals of as many digits as give them back,
 * truth values, names of an enum, texts and hashes. */
enum plan_kind {
    PLAN_WHOLE, PLAN_REAL, PLAN_EXACT_REAL, PLAN_BOOL, PLAN_NAME, PLAN_TEXT, PLAN_HASH,
    PLAN_FORMAT_NAME, PLAN_FORMAT_REVISION, PLAN_FEATURES, PLAN_NOTES, PLAN_TYPES, PLAN_LAYER_COLUMNS, /* each has code of its own */
    PLAN_OBJECT,
    PLAN_OBJECTS                /* an array of objects */
};

/* How many values: an array has them at the row's place, or where a pointer there points to. */
enum plan_many {
    PLAN_ONE,
    PLAN_ACCEPTANCE,            /* an array of PLAN_ACCEPTANCES */
    PLAN_COUNT,                 /* of as many as an int at count_at says */
    PLAN_COUNTED,               /* which sets that int */
    PLAN_ASCENDING,             /* likewise, and each number is above the one before */
    PLAN_BY_LAYER,              /* pointers: [n_layers] */
    PLAN_BY_PREDICTED_LAYER,    /* in predicted mode, else none */
    PLAN_BY_ALWAYS_LAYER,       /* there and with a cold_bound, else none */
    PLAN_COLD,                  /* [n_layers][n_parts] */
    PLAN_HOT,                   /* [n_layers][n_blocks][n_parts] */
    PLAN_SET                    /* flags by layer, of which the set ones are listed */
};

enum plan_when {
    PLAN_ALWAYS,
    PLAN_OPTIONAL,              /* absent where has() says so, or, without one, where it has no elements or the value is `none` */
    PLAN_AS_DECIDED             /* there exactly where has() says so, by what was read before */
};

/* What a check needs to verify it. */
enum plan_basis { PLAN_BY_ITSELF, PLAN_BY_MODEL, PLAN_BY_FIGURES, PLAN_BY_SOLVING, PLAN_BY_RUNNING };

struct plan_field {
    const char *key;
    enum plan_kind kind;
    enum plan_basis basis;
    size_t at, size;            /* in the struct of its object; of one value */
    const char *text;           /* what it says, for the schema; NULL: the key does */
    enum plan_many many;
    enum plan_when when;
    uint64_t least, most;       /* of whole numbers; of names both inclusive; of truth values `least` is false */
    double up_to;               /* of reals, from 0 */
    int64_t none;               /* the value that is left out */
    const char *(*names)(int value);
    size_t count_at, flag_at;   /* flag_at, not 0: an int that reading sets to 1 */
    int fewest, longest;        /* elements */
    int last;                   /* 1: read after the other keys of its object, which it depends on */
    int on_line;                /* 1: elements are written on one line each */
    const struct plan_object *of;
    int (*has)(const void *object, const void *outer); /* outer: the object whose array this one is in */
    int (*start)(struct plan *p, void *object, int n, struct err *e); /* PLAN_OBJECTS by a pointer: makes room. NULL: it is there */
};

struct plan_object {
    const struct plan_field *field;
    int n;
    size_t size;                /* of an element of an array */
};

extern const struct plan_object plan_root;

int64_t plan_whole(const struct plan_field *f, const void *value);

/* The place of a row's value or array in its object. */
void *plan_place(const struct plan_field *f, void *object);

/* Dimensions of an array of values; how many. One value has none. */
int plan_dims(const struct plan_field *f, const struct plan *p, const void *object, int dims[3]);

#endif
