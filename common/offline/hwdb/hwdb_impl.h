#ifndef COMMON_OFFLINE_HWDB_HWDB_IMPL_H
#define COMMON_OFFLINE_HWDB_HWDB_IMPL_H

/* Between hwdb_file.c (files), hwdb.c (opening, checking), hwdb_load.c (reading) and hwdb_write.c (writing); nobody else includes this. */
#include "common/offline/hwdb/hwdb.h"

enum { HWDB_MAX_DEVICES = 4096 };

struct sqlite3;

/* Open for reading and check application, revision, table definitions and integrity. A read transaction is open until
 * sqlite3_close: all that is read is of one moment. Nothing on disk is changed, made or removed. takes_back, for commands that write: but
 * what a writer that died has left is taken back; otherwise that is ERR_INPUT. */
int hwdb_open_read(const char *path, int takes_back, struct sqlite3 **out, struct err *e);

/* The one way to SQLite's files: a connection that touches none but the database and its journal, and unless it is for writing changes
 * neither. name: of hwdb_sqlite_path. SQLite's code; *db is to be closed in any case. */
int hwdb_connect(const char *name, int writing, struct sqlite3 **db);

/* Where what lies beside the database is why it was not opened: says so, and is negative. */
int hwdb_fail_beside(struct sqlite3 *db, const char *path, struct err *e);

/* For an open handle: what a stranger's file may not do is switched off, and a reader waits a little for a lock; the
 * checks of hwdb_open_read; the tables of a new file made, in the caller's transaction; statements without results; the path as SQLite
 * takes it for no more than a path. */
void hwdb_harden(struct sqlite3 *db);
int hwdb_check(struct sqlite3 *db, const char *path, struct err *e);
int hwdb_create(struct sqlite3 *db, const char *path, struct err *e);
int hwdb_exec(struct sqlite3 *db, const char *path, const char *sql, const char *what, struct err *e);
int hwdb_sqlite_path(const char *path, char *out, size_t len, struct err *e);

/* SQL: where the rows of device ?1 are, p, that count, in their canonical order. */
void hwdb_rows(enum hwdb_kind k, char *out, size_t len);

/* 1 where memory is what the last call on db lacked (also what a NULL text may mean). */
int hwdb_starved(struct sqlite3 *db);

/* Turn SQLite's latest complaint into ours. writing: failures are of the environment, not of an input. */
int hwdb_fail(struct sqlite3 *db, const char *path, const char *what, int writing, struct err *e);

#endif
