/* Writing the hardware database. hwdb_open looks whether a file could be written and holds nothing, so that a
 * measurement of minutes stands in nobody's way; hwdb_begin opens it, makes its tables where it is new, and begins
 * the one transaction that hwdb_commit ends. Two programs may write the same new file: SQLite's lock puts one after the
 * other, and the second finds the tables made. A file is never removed here, because whoever created it cannot know
 * who else has written it since. */
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
static int round_former(struct hwdb *d, const struct hwdb_device *dev, const char *content_hash, int *same,
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

int hwdb_begin(struct hwdb *d, const struct hwdb_device *v, const struct hwdb_run *run, int *unchanged,
               struct err *e)
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
        " cpu_ns_per_read, origin, source, batch_completion_share, uncached_destination_ratio, page_bytes)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20) RETURNING id",
        "isisiiiiIDdDDDDssDDI", d->run_id, hwdb_backend_names[p->backend], (int64_t)p->direct,
        hwdb_pattern_names[p->pattern], (int64_t)p->block_bytes, (int64_t)p->queue_depth, (int64_t)p->lanes,
        (int64_t)p->range_bytes, class_key(d, p->core_class), p->bytes_per_s.p10, p->bytes_per_s.p50,
        p->bytes_per_s.p90, p->latency_ns_p50, p->latency_ns_p99, p->cpu_ns_per_read,
        hwdb_origin_names[p->origin], source, p->batch_completion_share, p->uncached_destination_ratio, (int64_t)p->page_bytes);
    return r < 0 ? r : add_samples(d, "storage", "B/s", row, s, n, e);
}

int hwdb_add_conditions(struct hwdb *d, enum hw_table t, const struct hw_conditions *c, struct err *e)
{
    char marks[HW_NAME];
    if (!c->watched) /* the rest of the row is NULL */
        return put(d, "conditions", NULL, e, "INSERT INTO conditions (run_id, table_name, measured_at) VALUES (?1, ?2, ?3)",
                   "iss", d->run_id, hwdb_table_names[t], c->measured_at);
    hw_marks_text(c->marks, marks);
    return put(d, "conditions", NULL, e,
               "INSERT INTO conditions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)", "isssddddddid",
               d->run_id, hwdb_table_names[t], c->measured_at, marks, c->others, c->stolen, c->waited_for_cpu,
               c->short_of_memory, c->spread, c->disturbed, (int64_t)c->repeated, c->paused_s);
}

int hwdb_add_accel(struct hwdb *d, const struct hw_accel *p, const char *source, struct err *e)
{
    if (d->n_accels == HWDB_MAX_ACCELS)
        return err_set(e, ERR_LIMIT, "'%s': more than %d accelerators", d->path, HWDB_MAX_ACCELS);
    int r = put(d, "accelerator", &d->accel_id[d->n_accels], e,
                "INSERT INTO accelerator (run_id, engine, description, addressable_bytes, launch_ns, "
                "shares_memory, origin,"
                " source, driver_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) RETURNING id",
                "issIDissI", d->run_id, p->engine, p->description, (int64_t)p->addressable_bytes, p->launch_ns,
                (int64_t) !!p->shares_memory, hwdb_origin_names[p->origin], source, (int64_t)p->driver_bytes);
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
                    "isdddi", id, hwdb_term_names[t], c->factor[t].p10, c->factor[t].p50, c->factor[t].p90,
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
