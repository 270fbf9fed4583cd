#ifndef COMMON_OFFLINE_HWDB_HWDB_H
#define COMMON_OFFLINE_HWDB_HWDB_H

/* The hardware database: what devices can do, measured by `thermo-profile hardware` or taken from
 * publications by `thermo-profile import`. SQLite; schemas/hwdb.sql specifies it and is the very
 * text that creates one. Here: reading (hwdb_load) and writing (struct hwdb); the structs, and the
 * questions that a planner asks of them, are of common/hwdb.
 *
 * Reading changes nothing on disk, whatever lies beside the file: a journal that is to be played, or a write-ahead log, is ERR_INPUT.
 * What a writer that died has left is taken back by hwdb_open and hwdb_begin; a journal that names another file by nobody.
 *
 * A device may have been measured several times. Nothing measured is ever overwritten: a reader
 * takes, table by table, the rows of the newest run that measured that table. */
#include "common/hwdb/hwdb_query.h"

/* Load one device; device NULL takes the only one. An unknown name is ERR_USAGE and the message lists
 * the names there are. The file is not trusted: another application's file, a newer revision, altered
 * table definitions, corruption, wrong types, negative or non-finite numbers, names or counts beyond the
 * limits are ERR_FORMAT (ERR_UNSUPPORTED for the revision) and name table, row and column. */
int hwdb_load(const char *path, const char *device, struct hw *out, struct err *e);

/* Apply a calibration to a device as hwdb_load gave it. want NULL: the newest that was made with these very
 * figures; else the one that makes h->hash equal *want. Returns 1 when applied, 0 when there is none (h is as it
 * was). */
int hwdb_correct(const char *path, const struct hash128 *want, struct hw *h, struct err *e);

int hwdb_load_sources(const char *path, const struct hw *h, struct hw_sources *out, struct err *e);

/* Names of all devices, sorted; *names is one malloc'd block (free(*names)). */
int hwdb_list(const char *path, char ***names, int *n, struct err *e);

/* --- Writing. One owner thread. --- */
struct hwdb;

/* Get ready to write: the path, its folder and, where it is there, the file are checked now, so that a long
 * measurement does not end in a refusal; nothing is created, changed (but for what a writer that died has left) or held until
 * hwdb_begin. Another application's file is ERR_FORMAT, another revision ERR_UNSUPPORTED. */
int hwdb_open(const char *path, struct hwdb **out, struct err *e);
void hwdb_close(struct hwdb *d); /* rolls back what was not committed, removes no file; accepts NULL */

/* How long hwdb_begin and hwdb_commit wait for another program that holds the database locked, before they are ERR_SYS. */
#define HWDB_WAIT_S 60
void hwdb_wait(struct hwdb *d, double seconds);

/* ERR_MISMATCH where a device of this name is there and was entered the other way (see hwdb_begin); 0 where there is none. */
int hwdb_check_device(const char *path, const char *device, int imported, struct err *e);

/* One short transaction: begin creates the file as needed, inserts or updates the
 * device and inserts the run; add_* rows refer to it; commit makes it all visible at once. hwdb_begin before the commit
 * adds a further device to the same transaction. A device is either measured here or imported (its run has a
 * content_hash, whatever its figures' origin): the other is ERR_MISMATCH. A new import of a device replaces its former one;
 * *unchanged (may be NULL) is set, and nothing is added, when content_hash equals that of the import already there. Where
 * hwdb_begin has set unchanged for all, hwdb_commit does nothing. */
int hwdb_begin(struct hwdb *d, const struct hw *dev, const struct hwdb_run *run, int *unchanged, struct err *e);

/* A row of a table from its struct (hwdb_parts.h); source may be NULL, and n 0. Accelerators come before their points. */
int hwdb_add(struct hwdb *d, enum hwdb_kind k, const void *item, const char *source, const struct hwdb_sample *s, int n, struct err *e);

int hwdb_add_fact_source(struct hwdb *d, const char *field, enum hw_origin origin, const char *source,
                         struct err *e); /* where a field of the device row comes from */
int hwdb_commit(struct hwdb *d, struct err *e);

/* Corrections of a device that is there, in one transaction of its own (none may be open). hardware_hash: of its figures, uncorrected.
 * Terms of runs 0 are left out; at least one is told. */
struct hwdb_calibration {
    const char *device, *created_at, *tool_version, *model;
    struct hash128 hardware_hash, plan_hash;
    int runs, term_runs[HW_TERMS];
    struct hw_dist factor[HW_TERMS];
};
int hwdb_add_calibration(struct hwdb *d, const struct hwdb_calibration *c, struct err *e);

#endif
