#ifndef COMMON_HWDB_HWDB_RECORD_H
#define COMMON_HWDB_HWDB_RECORD_H

/* One measurement of a device in memory, before it is written into a database or as CSV. One owner thread. */
#include "common/hwdb/hwdb.h"

struct hwdb_record {
    struct hw hw;        /* hash and calibration are not known */
    struct hwdb_run run; /* its texts are the caller's */
    struct hwdb_samples *samples[HWDB_KINDS]; /* of each item of tables that have samples */
};

/* Add an item of a table (hwdb_parts.h), n samples copied; n 0: none. Classes come before what names them, accelerators before their
 * points. */
int hwdb_record_add(struct hwdb_record *r, enum hwdb_kind k, const void *item, const struct hwdb_sample *s, int n, struct err *e);

/* Rows in the order that a database gives them back in. */
void hwdb_record_sort(struct hwdb_record *r);
void hwdb_record_done(struct hwdb_record *r); /* accepts a zeroed one */

#endif
