#ifndef COMMON_OFFLINE_HWDB_IMPL_H
#define COMMON_OFFLINE_HWDB_IMPL_H

/* Between hwdb.c (opening, checking, writing) and hwdb_load.c (reading); nobody else includes this. */
#include "common/offline/hwdb.h"

enum { HWDB_MAX_DEVICES = 4096, HWDB_MAX_ACCELS = 64 };

struct sqlite3;

/* The texts of the enums in the file. */
extern const char *const hwdb_pattern_names[2],
    *const hwdb_backend_names[2], *const hwdb_origin_names[3], *const hwdb_resident_names[2],
    *const hwdb_term_names[HW_TERMS];

/* Open read-only and check application, revision, table definitions and integrity. */
int hwdb_open_read(const char *path, struct sqlite3 **out, struct err *e);

/* The revision of a database that is open. */
int hwdb_revision(struct sqlite3 *db, const char *path, int64_t *out, struct err *e);

/* Turn SQLite's latest complaint into ours. writing: failures are of the environment, not of an input. */
int hwdb_fail(struct sqlite3 *db, const char *path, const char *what, int writing, struct err *e);

#endif
