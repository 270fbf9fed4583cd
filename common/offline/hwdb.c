/* The hardware database, and the only file that sees SQLite. A database is created from the published schema's own
 * text, built in, and a file that comes from elsewhere is believed only after its table definitions are found equal
 * to those that the same text gives, and SQLite's integrity check passes table by table. Values are then checked
 * once more while they are read, because constraints bind who writes honestly, not who edits bytes. Journals are of
 * the rollback kind: a database is one file that can be copied and mailed. */
#include "common/offline/hwdb_impl.h"

#include "common/file.h"
#include "common/version.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x74686877, BUSY_MS = 5000 };
#define MAX_FILE_BYTES (1ull << 30)

static const char schema[] =
#include "hwdb_sql.inc"
    ;

struct hwdb {
    sqlite3 *db;
    char *path;
    int created, committed;
    int64_t device_id, run_id;
    int64_t class_id[HW_MAX_CLASSES], accel_id[HWDB_MAX_ACCELS];
    int n_classes, n_accels;
};

const char *const hwdb_pattern_names[2] = { "seq", "random" };
const char *const hwdb_backend_names[2] = { "pread", "io_uring" };
const char *const hwdb_origin_names[3] = { "measured", "published", "estimated" };
const char *const hwdb_resident_names[2] = { "cache", "dram" };
const char *const hwdb_term_names[HW_TERMS] = { "attention", "predict", "ffn", "io", "head" };
static const char *const tables[] = { "device",  "fact_source", "core_class",
                                      "run",     "compute",     "memory",
                                      "storage", "accelerator", "accelerator_point",
                                      "sample",  "calibration", "calibration_term" };
enum { N_TABLES = sizeof tables / sizeof *tables };

/* Tables that a revision has: the first so many. */
static int n_tables(int64_t revision)
{
    return revision < 2 ? N_TABLES - 2 : N_TABLES;
}

const char *hw_pattern_name(enum hw_pattern p)
{
    return hwdb_pattern_names[p];
}

const char *hw_backend_name(enum hw_backend b)
{
    return b == HW_ANY_BACKEND ? "any" : hwdb_backend_names[b];
}

const char *hw_origin_name(enum hw_origin o)
{
    return hwdb_origin_names[o];
}

const char *hw_term_name(enum hw_term t)
{
    return hwdb_term_names[t];
}

/* ---- errors ---- */

int hwdb_fail(sqlite3 *db, const char *path, const char *what, int writing, struct err *e)
{
    int rc = db ? sqlite3_errcode(db) : SQLITE_NOMEM;
    const char *text = db ? sqlite3_errmsg(db) : "out of memory";
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
        return err_set(e, ERR_SYS, "'%s': %s: another program holds it locked", path, what);
    default:
        return err_set(e, writing ? ERR_SYS : ERR_INPUT, "'%s': %s: %s", path, what, text);
    }
}

static int exec(sqlite3 *db, const char *path, const char *sql, const char *what, struct err *e)
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

static void harden(sqlite3 *db)
{
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, (int *)NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 16 << 20);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_exec(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0", NULL, NULL, NULL);
}

int hwdb_revision(sqlite3 *db, const char *path, int64_t *out, struct err *e)
{
    return get_pragma(db, path, "PRAGMA user_version", out, e);
}

/* Every table is defined by exactly the text that the schema gives it. */
static int check_schema(sqlite3 *db, const char *path, int64_t revision, struct err *e)
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
    for (int i = 0; i < n_tables(revision) && r == 0; i++) {
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
            if (!a || !b || strcmp(a, b) != 0)
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

static int check_integrity(sqlite3 *db, const char *path, int64_t revision, struct err *e)
{
    for (int i = 0; i < n_tables(revision); i++) {
        char sql[96];
        sqlite3_stmt *st = NULL;
        int r = 0;
        snprintf(sql, sizeof sql, "PRAGMA integrity_check('%s')", tables[i]);
        if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW) {
            r = err_set(e, ERR_FORMAT, "'%s': table '%s' is corrupt: %s", path, tables[i],
                        sqlite3_errmsg(db));
        } else {
            const char *text = (const char *)sqlite3_column_text(st, 0);
            if (!text || strcmp(text, "ok") != 0)
                r = err_set(e, ERR_FORMAT, "'%s': table '%s' is corrupt: %s", path, tables[i],
                            text ? text : "?");
        }
        sqlite3_finalize(st);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_revision(sqlite3 *db, const char *path, int64_t *out, struct err *e)
{
    int64_t app = 0, revision = 0;
    int r;
    if ((r = get_pragma(db, path, "PRAGMA application_id", &app, e)) < 0 ||
        (r = get_pragma(db, path, "PRAGMA user_version", &revision, e)) < 0)
        return r;
    if (app != APPLICATION_ID)
        return err_set(e, ERR_FORMAT,
                       "'%s' is not a hardware database (SQLite application_id %#llx, expected %#x)", path,
                       (unsigned long long)app, APPLICATION_ID);
    if (revision > HWDB_REVISION)
        return err_set(e, ERR_UNSUPPORTED,
                       "'%s' has revision %lld of the hardware database, this program knows up to %d", path,
                       (long long)revision, HWDB_REVISION);
    if (revision < 1)
        return err_set(e, ERR_FORMAT, "'%s': revision (user_version) %lld is not within 1..%d", path,
                       (long long)revision, HWDB_REVISION);
    *out = revision;
    return 0;
}

static int check_all(sqlite3 *db, const char *path, struct err *e)
{
    int64_t revision = 0;
    int r;
    if ((r = check_revision(db, path, &revision, e)) < 0 || (r = check_schema(db, path, revision, e)) < 0)
        return r;
    return check_integrity(db, path, revision, e);
}

/* SQLite gives some names a meaning of their own (":memory:", "file:"); a path with a slash is only a path. */
static int sqlite_path(const char *path, char *out, size_t len, struct err *e)
{
    int n = snprintf(out, len, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (n < 0 || (size_t)n >= len)
        return err_set(e, ERR_INPUT, "'%s': the path is too long", path);
    return 0;
}

int hwdb_open_read(const char *path, sqlite3 **out, struct err *e)
{
    char name[4096];
    struct file f;
    sqlite3 *db = NULL;
    int r = sqlite_path(path, name, sizeof name, e);
    if (r < 0 || (r = file_open(&f, path, e)) < 0)
        return r;
    uint64_t size = f.size;
    file_close(&f);
    if (size > MAX_FILE_BYTES)
        return err_set(e, ERR_LIMIT, "'%s': %llu bytes, a hardware database of at most %llu is read", path,
                       (unsigned long long)size, (unsigned long long)MAX_FILE_BYTES);
    if (sqlite3_open_v2(name, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        r = hwdb_fail(db, path, "opening", 0, e);
    } else {
        harden(db);
        r = check_all(db, path, e);
    }
    if (r < 0) {
        sqlite3_close(db);
        return r;
    }
    *out = db;
    return 0;
}

/* ---- writing ---- */

/* Leads on from the revision found, never back. A new file has none (0) and gets the schema; to revision 2 leads
 * what the schema says after its own headline. */
static int lead_on(sqlite3 *db, const char *path, int64_t revision, struct err *e)
{
    static const char what[] = "creating the tables";
    if (revision == 0)
        return exec(db, path, schema, what, e);
    int r = exec(db, path, "DROP TABLE IF EXISTS correction; PRAGMA user_version = 2", what, e);
    return r < 0 ? r : exec(db, path, strstr(schema, "\n-- Revision 2: "), what, e);
}

static int bring_up_to_date(sqlite3 *db, const char *path, struct err *e)
{
    int64_t revision = 0, app = 0, n = 0;
    int r;
    if ((r = exec(db, path, "BEGIN IMMEDIATE", "writing", e)) < 0)
        return r;
    if ((r = get_pragma(db, path, "PRAGMA application_id", &app, e)) < 0 ||
        (r = get_pragma(db, path, "SELECT count(*) FROM sqlite_schema", &n, e)) < 0)
        return r;
    while ((r = get_pragma(db, path, "PRAGMA user_version", &revision, e)) == 0 && revision < HWDB_REVISION) {
        if (revision < 0 || app != (n ? APPLICATION_ID : 0) || (revision > 0) != (n > 0))
            break; /* not ours: check_revision says so */
        if ((r = lead_on(db, path, revision, e)) < 0)
            return r;
        app = APPLICATION_ID;
        n = N_TABLES;
    }
    return r < 0 ? r : exec(db, path, "COMMIT", "writing", e);
}

int hwdb_open(const char *path, struct hwdb **out, struct err *e)
{
    char name[4096];
    struct file f;
    int r = sqlite_path(path, name, sizeof name, e);
    if (r < 0)
        return r;
    struct hwdb *d = calloc(1, sizeof *d);
    if (!d || !(d->path = strdup(name))) {
        free(d);
        return err_set(e, ERR_NOMEM, "'%s': out of memory", path);
    }
    d->created = access(name, F_OK) != 0 && errno == ENOENT;
    if (!d->created) {
        if ((r = file_open(&f, path, e)) < 0)
            goto fail;
        file_close(&f);
    }
    if (sqlite3_open_v2(name, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK) {
        r = hwdb_fail(d->db, path, "opening for writing", 1, e);
        goto fail;
    }
    harden(d->db);
    if (sqlite3_db_readonly(d->db, "main") == 1) {
        r = err_set(e, ERR_SYS, "'%s' may not be written", path);
        goto fail;
    }
    if ((r = exec(d->db, path, "PRAGMA foreign_keys = ON; PRAGMA journal_mode = DELETE",
                  "opening for writing", e)) < 0 ||
        (r = bring_up_to_date(d->db, path, e)) < 0 || (r = check_all(d->db, path, e)) < 0)
        goto fail;
    *out = d;
    return 0;
fail:
    hwdb_close(d);
    return r;
}

void hwdb_close(struct hwdb *d)
{
    if (!d)
        return;
    if (d->db && !sqlite3_get_autocommit(d->db))
        sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(d->db);
    if (d->created && !d->committed)
        unlink(d->path); /* a database that holds nothing is not left behind */
    free(d->path);
    free(d);
}

/* One statement. types, a letter per argument: s text (NULL: NULL), i int64, I int64 (0: NULL), d double,
 * D double (0 or not finite: NULL), t double (not finite: NULL), n int64 (negative: NULL). result (may be
 * NULL) gets the first column of the first row as an integer. */
static int put(struct hwdb *d, const char *table, int64_t *result, struct err *e, const char *sql,
               const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    int rc = sqlite3_prepare_v2(d->db, sql, -1, &st, NULL);
    va_start(ap, types);
    for (int i = 0; types[i] && rc == SQLITE_OK; i++) {
        if (types[i] == 's') {
            const char *text = va_arg(ap, const char *);
            rc = text ? sqlite3_bind_text(st, i + 1, text, -1, SQLITE_TRANSIENT) : SQLITE_OK;
        } else if (types[i] == 'd' || types[i] == 'D' || types[i] == 't') {
            double v = va_arg(ap, double);
            if (types[i] == 'd' || (isfinite(v) && (types[i] == 't' || v != 0)))
                rc = sqlite3_bind_double(st, i + 1, v);
        } else {
            int64_t v = va_arg(ap, int64_t);
            if (types[i] == 'i' || (types[i] == 'I' && v != 0) || (types[i] == 'n' && v >= 0))
                rc = sqlite3_bind_int64(st, i + 1, v);
        }
    }
    va_end(ap);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        if (result)
            *result = sqlite3_column_int64(st, 0);
        rc = sqlite3_step(st);
    }
    int r = 0;
    if (rc != SQLITE_DONE) {
        int constraint = sqlite3_errcode(d->db) == SQLITE_CONSTRAINT;
        r = hwdb_fail(d->db, d->path, table, 1, e);
        if (constraint)
            r = err_set(e, ERR_FORMAT, "'%s': table '%s' refuses a row: %s", d->path, table,
                        sqlite3_errmsg(d->db));
    }
    sqlite3_finalize(st);
    return r;
}

/* Refuse to mix measurements and imports; find out whether this import is there already; drop an import that is to be replaced. */
static int settle_former(struct hwdb *d, const struct hwdb_device *dev, const char *content_hash, int *same,
                         struct err *e)
{
    int64_t id = 0, measured = 0, same_hash = 0;
    int r;
    *same = 0;
    if ((r = put(d, "device", &id, e, "SELECT id FROM device WHERE name = ?1", "s", dev->name)) < 0 ||
        id == 0)
        return r;
    if ((r = put(d, "device", &measured, e, "SELECT EXISTS (SELECT 1 FROM run WHERE device_id = ?1 AND content_hash IS NULL)",
                 "i", id)) < 0)
        return r;
    if (measured != !content_hash)
        return err_set(e, ERR_MISMATCH,
                       measured
                           ? "'%s': device '%s' was measured into this database; imported figures need another name"
                           : "'%s': device '%s' holds imported figures; a measurement needs another name",
                       d->path, dev->name);
    if (!content_hash)
        return 0;
    if ((r = put(d, "run", &same_hash, e,
                 "SELECT count(*) FROM run WHERE device_id = ?1 AND content_hash = ?2", "is", id,
                 content_hash)) < 0)
        return r;
    *same = same_hash > 0;
    return *same ? 0 : put(d, "device", NULL, e, "DELETE FROM device WHERE id = ?1", "i", id);
}

int hwdb_begin(struct hwdb *d, const struct hwdb_device *v, const struct hwdb_run *run, int *unchanged,
               struct err *e)
{
    int same = 0, r = exec(d->db, d->path, "BEGIN IMMEDIATE", "writing", e);
    if (unchanged)
        *unchanged = 0;
    if (r < 0 || (r = settle_former(d, v, run->content_hash, &same, e)) < 0)
        return r;
    if (same) {
        if (unchanged)
            *unchanged = 1;
        return exec(d->db, d->path, "ROLLBACK", "writing", e);
    }
    r = put(d, "device", &d->device_id, e,
            "INSERT INTO device (name, origin, description, source, soc, cpu_model, os, kernel, governor, "
            "memory_bytes,"
            " app_memory_limit_bytes, storage_description, filesystem, mount, updated_at)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
            " ON CONFLICT (name) DO UPDATE SET description = ifnull(excluded.description, description),"
            " source = ifnull(excluded.source, source), soc = ifnull(excluded.soc, soc),"
            " cpu_model = ifnull(excluded.cpu_model, cpu_model), os = ifnull(excluded.os, os),"
            " kernel = ifnull(excluded.kernel, kernel), governor = ifnull(excluded.governor, governor),"
            " memory_bytes = ifnull(excluded.memory_bytes, memory_bytes),"
            " app_memory_limit_bytes = excluded.app_memory_limit_bytes,"
            " storage_description = ifnull(excluded.storage_description, storage_description),"
            " filesystem = ifnull(excluded.filesystem, filesystem), mount = ifnull(excluded.mount, mount),"
            " updated_at = excluded.updated_at RETURNING id",
            "sssssssssIIssss", v->name, hwdb_origin_names[v->origin], v->description, v->source, v->soc,
            v->cpu_model, v->os, v->kernel, v->governor, (int64_t)v->memory_bytes,
            (int64_t)v->app_memory_limit_bytes, v->storage, v->filesystem, v->mount, run->started_at);
    if (r < 0)
        return r;
    d->n_classes = d->n_accels = 0;
    return put(d, "run", &d->run_id, e,
               "INSERT INTO run (device_id, started_at, tool_version, command, kernel, governor, "
               "temperature_c, filesystem,"
               " mount, mount_options, block_device, direct_verified, content_hash, notes)"
               " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) RETURNING id",
               "isssss"
               "tssss"
               "nss",
               d->device_id, run->started_at, run->tool_version, run->command, run->kernel, run->governor,
               run->temperature_c, run->filesystem, run->mount, run->mount_options, run->block_device,
               (int64_t)run->direct_verified, run->content_hash, run->notes);
}

int hwdb_add_fact_source(struct hwdb *d, const char *field, enum hw_origin origin, const char *source,
                         struct err *e)
{
    return put(d, "fact_source", NULL, e, "INSERT OR REPLACE INTO fact_source VALUES (?1, ?2, ?3, ?4)",
               "isss", d->device_id, field, hwdb_origin_names[origin], source);
}

int hwdb_add_class(struct hwdb *d, const struct hw_class *c, const char *source, struct err *e)
{
    if (d->n_classes == HW_MAX_CLASSES)
        return err_set(e, ERR_LIMIT, "'%s': more than %d core classes", d->path, HW_MAX_CLASSES);
    int r = put(d, "core_class", &d->class_id[d->n_classes], e,
                "INSERT INTO core_class (device_id, name, rank, n_cores, max_hz, origin, source)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (device_id, name) DO UPDATE SET rank = "
                "excluded.rank,"
                " n_cores = excluded.n_cores, max_hz = excluded.max_hz RETURNING id",
                "isiiIss", d->device_id, c->name, (int64_t)d->n_classes, (int64_t)c->n_cores,
                (int64_t)c->max_hz, hwdb_origin_names[c->origin], source);
    if (r == 0)
        d->n_classes++;
    return r;
}

static int add_samples(struct hwdb *d, const char *table, const char *unit, int64_t row,
                       const struct hwdb_sample *s, int n, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n && r == 0; i++)
        r = put(d, "sample", NULL, e, "INSERT INTO sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                "isiidsdt", d->run_id, table, row, (int64_t)i, s[i].value, unit, s[i].t_s,
                s[i].temperature_c);
    return r;
}

/* 0 becomes NULL in the statements below. */
static int64_t class_key(const struct hwdb *d, int core_class)
{
    return core_class >= 0 && core_class < d->n_classes ? d->class_id[core_class] : 0;
}

int hwdb_add_compute(struct hwdb *d, const struct hw_compute *p, const char *source,
                     const struct hwdb_sample *s, int n, struct err *e)
{
    int64_t row = 0;
    int r =
        put(d, "compute", &row, e,
            "INSERT INTO compute (run_id, core_class_id, kernel, tier, pattern, resident, threads, row_len, "
            "rows, batch,"
            " ns_per_row_p10, ns_per_row_p50, ns_per_row_p90, flops_per_s, origin, source)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) RETURNING id",
            "iIssssiiiiDDDdss", d->run_id, class_key(d, p->core_class), p->kernel, p->tier,
            hwdb_pattern_names[p->pattern], hwdb_resident_names[!!p->dram], (int64_t)p->threads,
            (int64_t)p->row_len, (int64_t)p->rows, (int64_t)p->batch, p->ns_per_row.p10, p->ns_per_row.p50,
            p->ns_per_row.p90, p->flops_per_s, hwdb_origin_names[p->origin], source);
    return r < 0 ? r : add_samples(d, "compute", "ns/row", row, s, n, e);
}

int hwdb_add_memory(struct hwdb *d, const struct hw_memory *p, const char *source,
                    const struct hwdb_sample *s, int n, struct err *e)
{
    int64_t row = 0;
    int r = put(
        d, "memory", &row, e,
        "INSERT INTO memory (run_id, engines, pattern, row_bytes, threads, bytes_per_s_p10, bytes_per_s_p50,"
        " bytes_per_s_p90, origin, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) RETURNING id",
        "issiiDdDss", d->run_id, p->engines, hwdb_pattern_names[p->pattern], (int64_t)p->row_bytes,
        (int64_t)p->threads, p->bytes_per_s.p10, p->bytes_per_s.p50, p->bytes_per_s.p90,
        hwdb_origin_names[p->origin], source);
    return r < 0 ? r : add_samples(d, "memory", "B/s", row, s, n, e);
}

int hwdb_add_storage(struct hwdb *d, const struct hw_storage *p, const char *source,
                     const struct hwdb_sample *s, int n, struct err *e)
{
    int64_t row = 0;
    int r = put(
        d, "storage", &row, e,
        "INSERT INTO storage (run_id, backend, direct, pattern, block_bytes, queue_depth, lanes, range_bytes,"
        " core_class_id, bytes_per_s_p10, bytes_per_s_p50, bytes_per_s_p90, latency_ns_p50, latency_ns_p99,"
        " cpu_ns_per_read, origin, source)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) RETURNING id",
        "isisiiiiIDdDDDDss", d->run_id, hwdb_backend_names[p->backend], (int64_t)p->direct,
        hwdb_pattern_names[p->pattern], (int64_t)p->block_bytes, (int64_t)p->queue_depth, (int64_t)p->lanes,
        (int64_t)p->range_bytes, class_key(d, p->core_class), p->bytes_per_s.p10, p->bytes_per_s.p50,
        p->bytes_per_s.p90, p->latency_ns_p50, p->latency_ns_p99, p->cpu_ns_per_read,
        hwdb_origin_names[p->origin], source);
    return r < 0 ? r : add_samples(d, "storage", "B/s", row, s, n, e);
}

int hwdb_add_accel(struct hwdb *d, const struct hw_accel *p, const char *source, struct err *e)
{
    if (d->n_accels == HWDB_MAX_ACCELS)
        return err_set(e, ERR_LIMIT, "'%s': more than %d accelerators", d->path, HWDB_MAX_ACCELS);
    int r = put(d, "accelerator", &d->accel_id[d->n_accels], e,
                "INSERT INTO accelerator (run_id, engine, description, addressable_bytes, launch_ns, "
                "shares_memory, origin,"
                " source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING id",
                "issIDiss", d->run_id, p->engine, p->description, (int64_t)p->addressable_bytes, p->launch_ns,
                (int64_t) !!p->shares_memory, hwdb_origin_names[p->origin], source);
    if (r == 0)
        d->n_accels++;
    return r;
}

int hwdb_add_accel_point(struct hwdb *d, const struct hw_accel_point *p, const char *source,
                         const struct hwdb_sample *s, int n, struct err *e)
{
    int64_t row = 0;
    if (p->accel < 0 || p->accel >= d->n_accels)
        return err_set(e, ERR_FORMAT, "'%s': a point of accelerator %d, there are %d", d->path, p->accel,
                       d->n_accels);
    int r = put(d, "accelerator_point", &row, e,
                "INSERT INTO accelerator_point (run_id, accelerator_id, op, rows, cols, batch, ns_p10, "
                "ns_p50, ns_p90, origin,"
                " source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) RETURNING id",
                "iisiiiDdDss", d->run_id, d->accel_id[p->accel], p->op, (int64_t)p->rows, (int64_t)p->cols,
                (int64_t)p->batch, p->ns.p10, p->ns.p50, p->ns.p90, hwdb_origin_names[p->origin], source);
    return r < 0 ? r : add_samples(d, "accelerator_point", "ns", row, s, n, e);
}

int hwdb_commit(struct hwdb *d, struct err *e)
{
    int r = exec(d->db, d->path, "COMMIT", "writing", e);
    if (r == 0)
        d->committed = 1;
    return r;
}

static int add_calibration(struct hwdb *d, const struct hwdb_calibration *c, struct err *e)
{
    char hardware[HASH_TEXT], plan[HASH_TEXT];
    int64_t device = 0, id = 0;
    hash_text(c->hardware_hash, hardware);
    hash_text(c->plan_hash, plan);
    int r = put(d, "device", &device, e, "SELECT id FROM device WHERE name = ?1", "s", c->device);
    if (r == 0 && device == 0)
        r = err_set(e, ERR_USAGE, "'%s' holds no device '%s'", d->path, c->device);
    if (r == 0)
        r = put(d, "calibration", &id, e,
                "INSERT INTO calibration (device_id, created_at, tool_version, hardware_hash, plan_hash, model, runs)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id",
                "isssssi", device, c->created_at, c->tool_version, hardware, plan, c->model, (int64_t)c->runs);
    for (int t = 0; t < HW_TERMS && r == 0; t++)
        if (c->term_runs[t] > 0)
            r = put(d, "calibration_term", NULL, e, "INSERT INTO calibration_term VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    "isdddi", id, hwdb_term_names[t], c->factor[t].p10, c->factor[t].p50, c->factor[t].p90,
                    (int64_t)c->term_runs[t]);
    return r;
}

int hwdb_add_calibration(struct hwdb *d, const struct hwdb_calibration *c, struct err *e)
{
    int r = exec(d->db, d->path, "BEGIN IMMEDIATE", "writing", e);
    if (r == 0 && (r = add_calibration(d, c, e)) == 0)
        r = hwdb_commit(d, e);
    return r;
}
