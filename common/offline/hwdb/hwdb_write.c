/* Writing the hardware database. hwdb_open looks whether a file could be written and holds nothing, so that a
 * measurement of minutes stands in nobody's way; hwdb_begin opens it, makes its tables where it is new, and begins
 * the one transaction that hwdb_commit ends. Two programs may write the same new file: SQLite's lock puts one after the
 * other, and the second finds the tables made. A file is never removed here, because whoever created it cannot know
 * who else has written it since. */
#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb_impl.h"

#include "common/base/file.h"
#include "common/base/log.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRY_NS = 20 * 1000 * 1000, TELL_MS = 1000 };

struct hwdb {
    sqlite3 *db; /* while a transaction is open */
    char *path;
    double wait_s;
    int interrupted; /* when the wait began: then only a second signal ends it, and that kills */
    struct timespec wait_from;
    int reported;
    int64_t device_id, run_id;
    int64_t class_id[HW_MAX_CLASSES], accel_id[HWDB_MAX_ACCELS];
    int n_classes, n_accels;
};

/* ---- opening ---- */

/* The folder must take the journal, and a new file. */
static int check_folder(const char *path, struct err *e)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    int len = slash == path ? 1 : (int)(slash - path);
    snprintf(folder, sizeof folder, "%.*s", len, path);
    if (access(folder, W_OK | X_OK) != 0)
        return err_sys(e, ERR_SYS, "'%s': its folder '%s' cannot be written", path, folder);
    return 0;
}

/* What could be refused before a long measurement is refused here. */
static int check_target(const char *path, struct err *e)
{
    struct stat st;
    sqlite3 *db = NULL;
    struct file f;
    int r = check_folder(path, e);
    if (r < 0)
        return r;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? 0 : err_sys(e, ERR_SYS, "'%s'", path);
    if ((r = file_open(&f, path, e)) < 0)
        return r;
    file_close(&f);
    if (access(path, W_OK) != 0)
        return err_sys(e, ERR_SYS, "'%s' may not be written", path);
    if (st.st_size == 0) /* an empty file becomes one */
        return 0;
    if ((r = hwdb_open_read(path, 1, &db, e)) == 0)
        sqlite3_close(db);
    return r;
}

int hwdb_open(const char *path, struct hwdb **out, struct err *e)
{
    char name[4096];
    int r = hwdb_sqlite_path(path, name, sizeof name, e);
    if (r < 0 || (r = check_target(name, e)) < 0)
        return r;
    struct hwdb *d = calloc(1, sizeof *d);
    if (!d || !(d->path = strdup(name))) {
        free(d);
        return err_set(e, ERR_NOMEM, "'%s': out of memory", path);
    }
    d->wait_s = HWDB_WAIT_S;
    *out = d;
    return 0;
}

void hwdb_wait(struct hwdb *d, double seconds)
{
    d->wait_s = seconds;
}

/* Closing rolls back what is not committed. */
static void end_writing(struct hwdb *d)
{
    sqlite3_close(d->db);
    d->db = NULL;
}

void hwdb_close(struct hwdb *d)
{
    if (!d)
        return;
    end_writing(d);
    free(d->path);
    free(d);
}

/* SQLite asks when another program holds the lock: whether to try again. */
static int busy(void *opaque, int tries)
{
    struct hwdb *d = opaque;
    struct timespec now, pause = { 0, TRY_NS };
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (tries == 0)
        d->wait_from = now;
    double ms = (double)(now.tv_sec - d->wait_from.tv_sec) * 1e3 + (double)(now.tv_nsec - d->wait_from.tv_nsec) / 1e6;
    if (ms >= d->wait_s * 1e3 || (file_interrupted() && !d->interrupted))
        return 0;
    if (ms >= TELL_MS && !d->reported) {
        d->reported = 1;
        log_warn("'%s': another program holds it locked; waiting for up to %.0f s", d->path, d->wait_s);
    }
    nanosleep(&pause, NULL);
    return 1;
}

/* The lock is taken first: what is looked at and changed from then on is nobody else's. */
static int begin_writing(struct hwdb *d, struct err *e)
{
    d->interrupted = file_interrupted();
    d->reported = 0;
    int r = 0;
    if (hwdb_connect(d->path, 1, &d->db) != SQLITE_OK) {
        r = hwdb_fail(d->db, d->path, "opening for writing", 1, e);
    } else {
        sqlite3_busy_handler(d->db, busy, d);
        if (sqlite3_db_readonly(d->db, "main") == 1)
            r = err_set(e, ERR_SYS, "'%s' may not be written", d->path);
        else if ((r = hwdb_exec(d->db, d->path, "PRAGMA foreign_keys = ON; PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE",
                                "opening for writing", e)) == 0 &&
                 (r = hwdb_create(d->db, d->path, e)) == 0)
            r = hwdb_check(d->db, d->path, e);
    }
    if (r < 0 && file_interrupted() && !d->interrupted)
        r = err_set(e, ERR_INTR, "'%s': interrupted while another program held it locked; nothing was written", d->path);
    if (r < 0)
        end_writing(d);
    return r;
}

/* ---- rows ---- */

/* After the last step of a statement. */
static int ended(struct hwdb *d, const char *table, int rc, struct err *e)
{
    if (rc == SQLITE_DONE)
        return 0;
    int constraint = sqlite3_errcode(d->db) == SQLITE_CONSTRAINT, r = hwdb_fail(d->db, d->path, table, 1, e);
    return constraint ? err_set(e, ERR_FORMAT, "'%s': table '%s' refuses a row: %s", d->path, table, sqlite3_errmsg(d->db)) : r;
}

/* One statement. types, a letter per argument: s text (NULL: NULL), i int64, d double, t double (not finite: NULL), n int64
 * (negative: NULL). result (may be NULL) gets the first column of the first row as an integer. */
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
        } else if (types[i] == 'd' || types[i] == 't') {
            double v = va_arg(ap, double);
            if (types[i] == 'd' || isfinite(v))
                rc = sqlite3_bind_double(st, i + 1, v);
        } else {
            int64_t v = va_arg(ap, int64_t);
            if (types[i] == 'i' || v >= 0)
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
    int r = ended(d, table, rc, e);
    sqlite3_finalize(st);
    return r;
}

static int entered_otherwise(const char *path, const char *device, int measured, struct err *e)
{
    return err_set(e, ERR_MISMATCH,
                   measured ? "'%s': device '%s' was measured into this database; imported figures need another name"
                            : "'%s': device '%s' holds imported figures; a measurement needs another name",
                   path, device);
}

#define MEASURED "EXISTS (SELECT 1 FROM run WHERE device_id = device.id AND content_hash IS NULL)"

int hwdb_check_device(const char *path, const char *device, int imported, struct err *e)
{
    struct stat st;
    struct hwdb d = { .path = (char *)path };
    int64_t other = 0;
    if (stat(path, &st) != 0 || st.st_size == 0)
        return 0;
    int r = hwdb_open_read(path, 0, &d.db, e);
    if (r == 0)
        r = put(&d, "device", &other, e, "SELECT " MEASURED " = ?2 FROM device WHERE name = ?1", "si", device, (int64_t)!!imported);
    sqlite3_close(d.db);
    return r == 0 && other ? entered_otherwise(path, device, imported, e) : r;
}

/* Refuse to mix measurements and imports; find out whether this import is there already; drop an import that is to be replaced. */
static int round_former(struct hwdb *d, const struct hw *dev, const char *content_hash, int *same,
                         struct err *e)
{
    int64_t id = 0, measured = 0, same_hash = 0;
    int r;
    *same = 0;
    if ((r = put(d, "device", &id, e, "SELECT id FROM device WHERE name = ?1", "s", dev->name)) < 0 ||
        id == 0)
        return r;
    if ((r = put(d, "device", &measured, e, "SELECT " MEASURED " FROM device WHERE id = ?1", "i", id)) < 0)
        return r;
    if (measured != !content_hash)
        return entered_otherwise(d->path, dev->name, (int)measured, e);
    if (!content_hash)
        return 0;
    if ((r = put(d, "run", &same_hash, e,
                 "SELECT count(*) FROM run WHERE device_id = ?1 AND content_hash = ?2", "is", id,
                 content_hash)) < 0)
        return r;
    *same = same_hash > 0;
    return *same ? 0 : put(d, "device", NULL, e, "DELETE FROM device WHERE id = ?1", "i", id);
}

static int bind_field(const struct hwdb *d, sqlite3_stmt *st, int at, const struct hwdb_field *f, const void *item)
{
    char text[HW_NAME];
    int need = (f->flags & HWDB_NEED) != 0, known = hwdb_is_known(f, item);
    double v;
    switch (f->type) {
    case HWDB_TEXT:
        return known || need ? sqlite3_bind_text(st, at, hwdb_at(f, item), -1, SQLITE_TRANSIENT) : SQLITE_OK;
    case HWDB_INTEGER:
        return known ? sqlite3_bind_int64(st, at, hwdb_get(f, item)) : SQLITE_OK;
    case HWDB_REAL:
        v = *(const double *)hwdb_at(f, item);
        return need || (isfinite(v) && (v < 0 || v > 0)) ? sqlite3_bind_double(st, at, v) : SQLITE_OK;
    case HWDB_CHOICE:
        return sqlite3_bind_text(st, at, hwdb_choice(f, (int)hwdb_get(f, item), text), -1, SQLITE_TRANSIENT);
    case HWDB_CLASS:
        return known && hwdb_get(f, item) < d->n_classes ? sqlite3_bind_int64(st, at, d->class_id[hwdb_get(f, item)]) : SQLITE_OK;
    case HWDB_ACCEL:
        return known && hwdb_get(f, item) < d->n_accels ? sqlite3_bind_int64(st, at, d->accel_id[hwdb_get(f, item)]) : SQLITE_OK;
    case HWDB_MARKS:
        hw_marks_text(((const struct hw_conditions *)item)->marks, text);
        return known ? sqlite3_bind_text(st, at, text, -1, SQLITE_TRANSIENT) : SQLITE_OK;
    }
    return SQLITE_OK;
}

/* A row: its fields, whom it belongs to, and one text more; *id (may be NULL) gets what names it. */
static int put_item(struct hwdb *d, enum hwdb_kind k, const void *item, const char *text_column, const char *text, int64_t *id,
                    struct err *e)
{
    const struct hwdb_table *t = hwdb_table(k);
    const char *owner = k == HWDB_DEVICE ? "" : k == HWDB_CORE_CLASS ? "device_id, rank, " : "run_id, ";
    int n_owner = k == HWDB_DEVICE ? 0 : k == HWDB_CORE_CLASS ? 2 : 1, n_values = n_owner + t->n + (text_column != NULL);
    char sql[4096];
    sqlite3_stmt *st = NULL;
    int at = snprintf(sql, sizeof sql, "INSERT INTO %s (%s", t->name, owner);
    for (int i = 0; i < t->n; i++)
        at += snprintf(sql + at, sizeof sql - (size_t)at, "%s%s", i ? ", " : "", t->fields[i].column);
    at += snprintf(sql + at, sizeof sql - (size_t)at, "%s%s) VALUES (", text_column ? ", " : "", text_column ? text_column : "");
    for (int i = 0; i < n_values; i++)
        at += snprintf(sql + at, sizeof sql - (size_t)at, i ? ", ?" : "?");
    at += snprintf(sql + at, sizeof sql - (size_t)at, ")");
    if (k == HWDB_DEVICE || k == HWDB_CORE_CLASS) { /* again: what is known now, over what was */
        at += snprintf(sql + at, sizeof sql - (size_t)at, " ON CONFLICT (%s) DO UPDATE SET %s", k == HWDB_DEVICE ? "name" :
                       "device_id, name", k == HWDB_DEVICE ? "updated_at = excluded.updated_at" : "rank = excluded.rank");
        for (int i = 0; i < t->n; i++) {
            const char *c = t->fields[i].column;
            int whole = k == HWDB_CORE_CLASS || strcmp(c, "app_memory_limit_bytes") == 0; /* a limit may go */
            if (!(t->fields[i].flags & HWDB_KEY) && strcmp(c, "origin") != 0)
                at += snprintf(sql + at, sizeof sql - (size_t)at, ", %s = ifnull(excluded.%s, %s)", c, c, whole ? "NULL" : c);
        }
    }
    if (id)
        snprintf(sql + at, sizeof sql - (size_t)at, " RETURNING id");
    int rc = sqlite3_prepare_v2(d->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK && n_owner)
        rc = sqlite3_bind_int64(st, 1, k == HWDB_CORE_CLASS ? d->device_id : d->run_id);
    if (rc == SQLITE_OK && n_owner == 2)
        rc = sqlite3_bind_int64(st, 2, d->n_classes);
    for (int i = 0; i < t->n && rc == SQLITE_OK; i++)
        rc = bind_field(d, st, n_owner + i + 1, &t->fields[i], item);
    if (rc == SQLITE_OK && text)
        rc = sqlite3_bind_text(st, n_values, text, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *id = sqlite3_column_int64(st, 0);
        rc = sqlite3_step(st);
    }
    int r = ended(d, t->name, rc, e);
    sqlite3_finalize(st);
    return r;
}

int hwdb_begin(struct hwdb *d, const struct hw *v, const struct hwdb_run *run, int *unchanged, struct err *e)
{
    int same = 0, fresh = !d->db, r = fresh ? begin_writing(d, e) : 0;
    if (unchanged)
        *unchanged = 0;
    if (r < 0 || (r = round_former(d, v, run->content_hash, &same, e)) < 0)
        return r;
    if (same) {
        if (unchanged)
            *unchanged = 1;
        if (fresh)
            end_writing(d);
        return 0;
    }
    if ((r = put_item(d, HWDB_DEVICE, v, "updated_at", run->started_at, &d->device_id, e)) < 0)
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
               "isss", d->device_id, field, hw_origin_name(origin), source);
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

int hwdb_add(struct hwdb *d, enum hwdb_kind k, const void *item, const char *source, const struct hwdb_sample *s, int n, struct err *e)
{
    const struct hwdb_table *t = hwdb_table(k);
    int64_t row = 0;
    if (k == HWDB_CORE_CLASS && d->n_classes == HW_MAX_CLASSES)
        return err_set(e, ERR_LIMIT, "'%s': more than %d core classes", d->path, HW_MAX_CLASSES);
    if (k == HWDB_ACCELERATOR && d->n_accels == HWDB_MAX_ACCELS)
        return err_set(e, ERR_LIMIT, "'%s': more than %d accelerators", d->path, HWDB_MAX_ACCELS);
    if (k == HWDB_CONDITIONS) {
        struct hw_conditions c = *(const struct hw_conditions *)item;
        if (!c.watched) { /* nothing is known but when */
            c = (struct hw_conditions){ .table = c.table };
            memcpy(c.measured_at, ((const struct hw_conditions *)item)->measured_at, sizeof c.measured_at);
        }
        return put_item(d, k, &c, NULL, NULL, NULL, e);
    }
    int r = put_item(d, k, item, "source", source, &row, e);
    if (r == 0 && k == HWDB_CORE_CLASS)
        d->class_id[d->n_classes++] = row;
    if (r == 0 && k == HWDB_ACCELERATOR)
        d->accel_id[d->n_accels++] = row;
    return r < 0 || !t->sample ? r : add_samples(d, t->name, t->sample, row, s, n, e);
}

int hwdb_commit(struct hwdb *d, struct err *e)
{
    int r = d->db ? hwdb_exec(d->db, d->path, "COMMIT", "writing", e) : 0;
    if (r == 0)
        end_writing(d);
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
                    "isdddi", id, hw_term_name((enum hw_term)t), c->factor[t].p10, c->factor[t].p50, c->factor[t].p90,
                    (int64_t)c->term_runs[t]);
    return r;
}

int hwdb_add_calibration(struct hwdb *d, const struct hwdb_calibration *c, struct err *e)
{
    int r = begin_writing(d, e);
    if (r == 0 && (r = add_calibration(d, c, e)) == 0)
        r = hwdb_commit(d, e);
    return r;
}
