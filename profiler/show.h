#ifndef PROFILER_SHOW_H
#define PROFILER_SHOW_H

/* `thermo-profile show FILE` looks at the file's first bytes and calls the printer of its kind.
 * A printer writes to stdout: tables for people, or one JSON object. 0 or ERR_*. */
#include "common/err.h"

/* A hardware database (SQLite). */
int show_hwdb(const char *path, int json, struct err *e);

#endif
