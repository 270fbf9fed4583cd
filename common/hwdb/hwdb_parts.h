#ifndef COMMON_HWDB_HWDB_PARTS_H
#define COMMON_HWDB_HWDB_PARTS_H

/* What the rows of a hardware database hold, and where that lies in the structs of hwdb.h: made from the columns that are marked in
 * schemas/hwdb.sql (hwdb_fields.awk). Reading, writing, identity, CSV and JSON go by these rows; a field is added there and in its
 * struct. */
#include "common/hwdb/hwdb.h"

enum hwdb_type {
    HWDB_TEXT,    /* char[size] */
    HWDB_INTEGER, /* int or uint64_t, by size */
    HWDB_REAL,    /* double, finite, 0 to max, at most 1e18 */
    HWDB_CHOICE,  /* int or enum: which of names */
    HWDB_CLASS,   /* int: index of a core class, -1: none */
    HWDB_ACCEL,   /* int: index of an accelerator */
    HWDB_MARKS    /* unsigned marks of struct hw_conditions, where it was watched */
};
enum {
    HWDB_KEY = 1,  /* part of what tells rows from each other */
    HWDB_NEED = 2, /* always known; else 0 and "" are NULL in the file, and not known */
    HWDB_NOTE = 4  /* no share in a device's hash */
};

struct hwdb_field {
    const char *column;   /* its unit stands in its name */
    const char *csv;      /* what a CSV calls it */
    const char *standard; /* of a key that a CSV leaves out; NULL: it may not */
    const char *names;    /* of a choice, with a space between them */
    enum hwdb_type type;
    unsigned flags;
    size_t offset, size;
    int64_t min, max; /* of an integer; of a text min 1: not empty */
};

struct hwdb_table {
    const char *name;
    const struct hwdb_field *fields;
    int n, most;        /* fields; rows that a reader accepts for one device */
    size_t size;        /* of its struct: hw, hw_class, hw_compute, hw_memory, hw_storage, hw_accel, hw_accel_point, hw_conditions */
    const char *order;  /* columns that its rows are in the order of, with a space between them; NULL: they have one of their own */
    const char *sample; /* unit of its samples; NULL: it has none */
};
const struct hwdb_table *hwdb_table(enum hwdb_kind k);

/* In an item of the field's table. */
static inline void *hwdb_at(const struct hwdb_field *f, const void *item)
{
    return (char *)item + f->offset;
}
int64_t hwdb_get(const struct hwdb_field *f, const void *item); /* of whatever is a whole number */
void hwdb_set(const struct hwdb_field *f, void *item, int64_t v);
int hwdb_is_known(const struct hwdb_field *f, const void *item);

/* The items of a device: array and count. Of the device itself there is one, of conditions HW_TABLES. hwdb_array: where the array of a
 * table that grows stands, and its count; NULL of core classes and conditions, which are of fixed size, and of the device. */
const void *hwdb_items(const struct hw *h, enum hwdb_kind k, int *n);
void **hwdb_array(struct hw *h, enum hwdb_kind k, int **n);

/* Name i of a choice; "" beyond the last. And back, or -1. */
const char *hwdb_choice(const struct hwdb_field *f, int i, char out[HW_NAME]);
int hwdb_choice_of(const struct hwdb_field *f, const char *name);

/* The unit that a column's name says: "", "B", "B/s", "Hz", "ns", "FLOP/s". */
const char *hwdb_unit(const struct hwdb_field *f);

#endif
