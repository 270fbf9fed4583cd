/* The hardware database; hwdb_file.c opens its file, hwdb_load.c reads it, hwdb_write.c writes it, nobody else sees SQLite. A database is
 * created from the published schema's own text, built in, and a file that comes from elsewhere is believed only after its
 * table definitions are found equal to those that the same text gives, and SQLite's integrity check passes table by table.
 * Values are then checked once more while they are read, because constraints bind who writes honestly, not who edits bytes.
 * Journals are of the rollback kind: a database is one file that can be copied and mailed. */
#include "common/offline/hwdb/hwdb_impl.h"

#include "common/base/file.h"
#include "common/base/version.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { APPLICATION_ID = 0x74636877, FORMER_ID = 0x74686877 /* of versions before 0.2.0 */, READ_WAIT_MS = 5000 };
#define MAX_FILE_BYTES (1ull << 30)

static const char schema[] =
#include "hwdb_sql.inc"
    ;

static const char *const tables[] = { "feature", "device", "fact_source", "core_class", "run", "compute", "memory", "storage",
                                      "joint", "accelerator", "accelerator_point", "sample", "calibration", "calibration_term",
                                      "conditions" };
enum { N_TABLES = sizeof tables / sizeof *tables };

/* ---- errors ---- */

int hwdb_starved(sqlite3 *db)
{
    int rc = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
    return (rc & 0xff) == SQLITE_NOMEM || rc == SQLITE_IOERR_NOMEM;
}

int hwdb_fail(sqlite3 *db, const char *path, const char *what, int writing, struct err *e)
{
    int rc = db ? sqlite3_extended_errcode(db) & 0xff : SQLITE_NOMEM;
    const char *text = db ? sqlite3_errmsg(db) : "out of memory";
    int said;
    switch (db ? sqlite3_extended_errcode(db) : rc) {
    case SQLITE_READONLY_ROLLBACK:
    case SQLITE_READONLY_RECOVERY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR_DELETE:
        if ((said = hwdb_fail_beside(db, path, e)) < 0)
            return said;
        break;
    case SQLITE_IOERR_NOMEM:
        return err_set(e, ERR_NOMEM, "'%s': %s: out of memory", path, what);
    case SQLITE_READONLY_DBMOVED:
        return err_set(e, ERR_SYS, "'%s': %s: the file was removed or replaced meanwhile; nothing was written, run this "
                       "again", path, what);
    default:
        break;
    }
    switch (rc) {
    case SQLITE_NOTADB:
        return err_set(e, ERR_FORMAT, "'%s' is not a SQLite database", path);
    case SQLITE_CORRUPT: /* what names the table */
    case SQLITE_ERROR:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_FORMAT:
        return err_set(e, ERR_FORMAT, "'%s': %s: %s", path, what, text);
    case SQLITE_NOMEM:
        return err_set(e, ERR_NOMEM, "'%s': %s: out of memory", path, what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ERR_SYS, "'%s': %s: another program holds it locked; run this again when that has ended", path, what);
    default:
        return err_set(e, writing ? ERR_SYS : ERR_INPUT, "'%s': %s: %s", path, what, text);
    }
}

int hwdb_exec(sqlite3 *db, const char *path, const char *sql, const char *what, struct err *e)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : hwdb_fail(db, path, what, 1, e);
}

/* ---- opening: what a stranger's file may not do ---- */

static int get_pragma(sqlite3 *db, const char *path, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int r = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW)
        r = hwdb_fail(db, path, "reading the header", 0, e);
    else
        *out = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r;
}

void hwdb_harden(sqlite3 *db)
{
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, (int *)NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 16 << 20);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_busy_timeout(db, READ_WAIT_MS);
    sqlite3_exec(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
}

/* Every table is defined by exactly the text that the schema gives it. */
static int check_schema(sqlite3 *db, const char *path, struct err *e)
{
    sqlite3 *ref = NULL;
    sqlite3_stmt *want = NULL, *have = NULL;
    int r = 0;
    if (sqlite3_open(":memory:", &ref) != SQLITE_OK ||
        sqlite3_exec(ref, schema, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(ref, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", -1, &want,
                           NULL) != SQLITE_OK) {
        r = hwdb_fail(ref, path, "the schema built into this program", 1, e);
        goto out;
    }
    if (sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", -1, &have,
                           NULL) != SQLITE_OK) {
        r = hwdb_fail(db, path, "reading the schema", 0, e);
        goto out;
    }
    for (int i = 0; i < N_TABLES && r == 0; i++) {
        sqlite3_bind_text(want, 1, tables[i], -1, SQLITE_STATIC);
        sqlite3_bind_text(have, 1, tables[i], -1, SQLITE_STATIC);
        int rc = sqlite3_step(have);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
            r = hwdb_fail(db, path, "reading the schema", 0, e);
        } else if (rc == SQLITE_DONE) {
            r = err_set(e, ERR_FORMAT, "'%s': table '%s' is missing", path, tables[i]);
        } else if (sqlite3_step(want) == SQLITE_ROW) {
            const char *a = (const char *)sqlite3_column_text(want, 0),
                       *b = (const char *)sqlite3_column_text(have, 0);
            if (hwdb_starved(db) || hwdb_starved(ref))
                r = err_set(e, ERR_NOMEM, "'%s': reading the schema: out of memory", path);
            else if (!a || !b || strcmp(a, b) != 0)
                r = err_set(e, ERR_FORMAT,
                            "'%s': table '%s' is not defined as revision %d of schemas/hwdb.sql says", path,
                            tables[i], HWDB_REVISION);
        }
        sqlite3_reset(want);
        sqlite3_reset(have);
    }
out:
    sqlite3_finalize(want);
    sqlite3_finalize(have);
    sqlite3_close(ref);
    return r;
}

static int check_integrity(sqlite3 *db, const char *path, struct err *e)
{
    for (int i = 0; i < N_TABLES; i++) {
        char sql[96];
        sqlite3_stmt *st = NULL;
        int r = 0;
        snprintf(sql, sizeof sql, "PRAGMA integrity_check('%s')", tables[i]);
        if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW) {
            r = hwdb_starved(db) ? hwdb_fail(db, path, tables[i], 0, e) :
                                   err_set(e, ERR_FORMAT, "'%s': table '%s' is corrupt: %s", path, tables[i],
                                           sqlite3_errmsg(db));
        } else {
            const char *text = (const char *)sqlite3_column_text(st, 0);
            if (hwdb_starved(db) || (text && strstr(text, "error code=7"))) /* of a page, it says so in words alone */
                r = err_set(e, ERR_NOMEM, "'%s': table '%s': out of memory", path, tables[i]);
            else if (!text || strcmp(text, "ok") != 0)
                r = err_set(e, ERR_FORMAT, "'%s': table '%s' is corrupt: %s", path, tables[i],
                            text ? text : "?");
        }
        sqlite3_finalize(st);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_revision(sqlite3 *db, const char *path, struct err *e)
{
    int64_t app = 0, revision = 0;
    int r;
    if ((r = get_pragma(db, path, "PRAGMA application_id", &app, e)) < 0 ||
        (r = get_pragma(db, path, "PRAGMA user_version", &revision, e)) < 0)
        return r;
    if (app == FORMER_ID)
        return err_set(e, ERR_UNSUPPORTED, "'%s' is a hardware database made by a version before 0.2.0; make it again with 'thermo-profile "
                       "hardware', or 'import' where its figures are a CSV's", path);
    if (app != APPLICATION_ID)
        return err_set(e, ERR_FORMAT,
                       "'%s' is not a hardware database (SQLite application_id %#llx, expected %#x)", path,
                       (unsigned long long)app, APPLICATION_ID);
    if (revision != HWDB_REVISION)
        return err_set(e, ERR_UNSUPPORTED, "'%s' has revision %lld of the hardware database (user_version), this program knows %d", path,
                       (long long)revision, HWDB_REVISION);
    return 0;
}

static int check_features(sqlite3 *db, const char *path, struct err *e)
{
    int64_t unknown = 0;
    int r = get_pragma(db, path, "SELECT count(*) FROM feature", &unknown, e);
    return r < 0 || !unknown ? r :
           err_set(e, ERR_UNSUPPORTED, "'%s' needs %lld features that this build lacks: sqlite3 FILE 'SELECT name FROM feature' lists them",
                   path, (long long)unknown);
}

int hwdb_check(sqlite3 *db, const char *path, struct err *e)
{
    int r;
    if ((r = check_revision(db, path, e)) < 0 || (r = check_schema(db, path, e)) < 0 || (r = check_integrity(db, path, e)) < 0)
        return r;
    return check_features(db, path, e);
}

/* SQLite gives some names a meaning of their own (":memory:", "file:"); a path with a slash is only a path. */
int hwdb_sqlite_path(const char *path, char *out, size_t len, struct err *e)
{
    int n = snprintf(out, len, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (n < 0 || (size_t)n >= len)
        return err_set(e, ERR_INPUT, "'%s': the path is too long", path);
    return 0;
}

/* One transaction for all that is read: what another program commits meanwhile is seen whole or not at all. */
static int begin_reading(const char *name, int writing, sqlite3 **db)
{
    int rc = hwdb_connect(name, writing, db);
    if (rc != SQLITE_OK)
        return rc;
    if ((rc = sqlite3_exec(*db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL)) == SQLITE_OK)
        return rc;
    return sqlite3_extended_errcode(*db);
}

int hwdb_open_read(const char *path, int takes_back, sqlite3 **out, struct err *e)
{
    char name[4096];
    struct file f;
    sqlite3 *db = NULL;
    int r = hwdb_sqlite_path(path, name, sizeof name, e);
    if (r < 0 || (r = file_open(&f, path, e)) < 0)
        return r;
    uint64_t size = f.size;
    file_close(&f);
    if (size > MAX_FILE_BYTES)
        return err_set(e, ERR_LIMIT, "'%s' has %llu bytes, more than a hardware database's limit of %llu", path,
                       (unsigned long long)size, (unsigned long long)MAX_FILE_BYTES);
    int rc = begin_reading(name, 0, &db);
    if (rc == SQLITE_READONLY_ROLLBACK && takes_back) {
        sqlite3_close(db);
        rc = begin_reading(name, 1, &db);
    }
    r = rc == SQLITE_OK ? hwdb_check(db, path, e) : hwdb_fail(db, path, "opening", 0, e);
    if (r < 0) {
        sqlite3_close(db);
        return r;
    }
    *out = db;
    return 0;
}

/* A file without tables gets them; what else it may be hwdb_check says. */
int hwdb_create(sqlite3 *db, const char *path, struct err *e)
{
    int64_t app = 0, n = 0;
    int r;
    if ((r = get_pragma(db, path, "PRAGMA application_id", &app, e)) < 0 ||
        (r = get_pragma(db, path, "SELECT count(*) FROM sqlite_schema", &n, e)) < 0)
        return r;
    return app == 0 && n == 0 ? hwdb_exec(db, path, schema, "creating the tables", e) : 0;
}
