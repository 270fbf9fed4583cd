#ifndef COMMON_HWDB_HWDB_CSV_H
#define COMMON_HWDB_HWDB_CSV_H

/* Devices as the CSV that `thermo-profile import` reads (datasets/devices/README.md describes the columns). */
#include "common/hwdb/hwdb.h"

#include <stdio.h>

void hwdb_csv_header(FILE *f);

/* All figures of h, whose rows are in their canonical order; of arrays that s has not every row rests on s->device. ERR_FORMAT: a text, or
 * a name, that has no place in a CSV. What f could not take is the caller's to find. */
int hwdb_csv_device(FILE *f, const struct hw *h, const struct hw_sources *s, struct err *e);

#endif
