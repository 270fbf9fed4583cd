/* What each figure of a device rests on, apart from the figures: a planner has no use for it, an export has. The rows come
 * in hwdb_load.c's order, from the same clauses. The file is not trusted here either, and may have changed since the figures
 * were loaded: counts are compared. */
#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb_impl.h"

#include "common/base/utf8.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the words of a CSV's source column: what a row says, else which run measured it. */
#define MEASURED "'measured by thermo-profile ' || r.tool_version || ', ' || r.started_at || ifnull('; ' || nullif(r.notes, ''), '')"
#define SOURCE   "SELECT ifnull(nullif(p.source, ''), (SELECT " MEASURED " FROM run r WHERE r.id = p.run_id))"
#define NEWEST_RUN "(SELECT " MEASURED " FROM run r WHERE r.device_id = ?1 ORDER BY r.id DESC LIMIT 1)"

struct reading {
    sqlite3 *db;
    const char *path, *table;
    int64_t device;
    struct err *e;
};

static int get_text(const struct reading *r, sqlite3_stmt *st, int col, char *out, size_t len)
{
    const char *s = (const char *)sqlite3_column_text(st, col);
    size_t n = (size_t)sqlite3_column_bytes(st, col);
    if (!s && hwdb_starved(r->db))
        return err_set(r->e, ERR_NOMEM, "'%s': table '%s': out of memory", r->path, r->table);
    if (!s || n == 0 || n >= len || !utf8_is_printable(s, n))
        return err_set(r->e, ERR_FORMAT, "'%s': table '%s': the source of a figure is not a plain text of 1 to %zu bytes", r->path,
                       r->table, len - 1);
    memcpy(out, s, n);
    out[n] = 0;
    return 0;
}

/* Calls each(row, i) of a query's rows, whose first parameter is the device: exactly n of them, or with n < 0 as many as there are. */
typedef int row_fn(struct reading *r, sqlite3_stmt *st, void *ctx, int i);
static int each_row(struct reading *r, const char *sql, int n, row_fn *each, void *ctx)
{
    sqlite3_stmt *st = NULL;
    int at = 0, failed = 0, rc = sqlite3_prepare_v2(r->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_bind_int64(st, 1, r->device)) == SQLITE_OK)
        while (!failed && (rc = sqlite3_step(st)) == SQLITE_ROW && at != n)
            failed = each(r, st, ctx, at++);
    if (!failed && rc != SQLITE_DONE && rc != SQLITE_ROW)
        failed = hwdb_fail(r->db, r->path, r->table, 0, r->e);
    if (!failed && n >= 0 && (rc == SQLITE_ROW || at < n))
        failed = err_set(r->e, ERR_INPUT, "'%s': table '%s' changed while it was read; try again", r->path, r->table);
    sqlite3_finalize(st);
    return failed;
}

static int each_text(struct reading *r, sqlite3_stmt *st, void *ctx, int i)
{
    return get_text(r, st, 0, ((struct hw_source *)ctx)[i].text, HW_SOURCE);
}

static int read_points(struct reading *r, enum hwdb_kind k, struct hw_sources *out, int n)
{
    char sql[3000], rows[2000];
    r->table = hwdb_table(k)->name;
    hwdb_rows(k, rows, sizeof rows);
    snprintf(sql, sizeof sql, "%s%s", k == HWDB_CORE_CLASS ? "SELECT ifnull(p.source, " NEWEST_RUN ")" : SOURCE, rows);
    if (!(out->of[k] = malloc(((size_t)n + 1) * sizeof *out->of[k])))
        return err_set(r->e, ERR_NOMEM, "'%s': table '%s': out of memory", r->path, r->table);
    return each_row(r, sql, n, each_text, out->of[k]);
}

/* The samples of the row that a statement is at, by another one. */
static int read_row_samples(const struct reading *r, sqlite3_stmt *one, int64_t row, struct hwdb_samples *out)
{
    int cap = 0, rc;
    sqlite3_reset(one);
    sqlite3_bind_int64(one, 1, row);
    while ((rc = sqlite3_step(one)) == SQLITE_ROW) {
        if (out->n == cap) {
            struct hwdb_sample *more = cap < HW_MAX_SAMPLES ? realloc(out->s, (size_t)(cap = cap ? 2 * cap : 8) * sizeof *more) : NULL;
            if (!more)
                return err_set(r->e, out->n < HW_MAX_SAMPLES ? ERR_NOMEM : ERR_LIMIT, "'%s': table 'sample': %s", r->path,
                               out->n < HW_MAX_SAMPLES ? "out of memory" : "too many samples of one row");
            out->s = more;
        }
        struct hwdb_sample *s = &out->s[out->n++];
        *s = (struct hwdb_sample){ sqlite3_column_double(one, 0), sqlite3_column_double(one, 1), NAN };
        if (sqlite3_column_type(one, 2) != SQLITE_NULL)
            s->temperature_c = sqlite3_column_double(one, 2);
        if (!(s->value > 0 && s->value <= 1e18 && s->t_s >= 0 && s->t_s <= 1e9) || s->temperature_c < -300 || s->temperature_c > 1000)
            return err_set(r->e, ERR_FORMAT, "'%s': table 'sample': a sample of table '%s', row %lld is out of range", r->path, r->table,
                           (long long)row);
    }
    return rc == SQLITE_DONE ? 0 : hwdb_fail(r->db, r->path, "sample", 0, r->e);
}

/* Of the rows of a table that has some. */
struct sampled {
    sqlite3_stmt *one;
    struct hwdb_samples *of;
    int *n;
};

static int each_sampled(struct reading *r, sqlite3_stmt *st, void *ctx, int i)
{
    struct sampled *s = ctx;
    *s->n = i + 1;
    return read_row_samples(r, s->one, sqlite3_column_int64(st, 0), &s->of[i]);
}

static int read_samples(struct reading *r, enum hwdb_kind k, struct hw_sources *out, int n)
{
    char sql[2500], rows[2000];
    struct sampled s = { .of = out->samples[k] = calloc((size_t)n + 1, sizeof *s.of), .n = &out->n_samples[k] };
    hwdb_rows(k, rows, sizeof rows);
    snprintf(sql, sizeof sql, "SELECT p.id%s", rows);
    if (!s.of)
        return err_set(r->e, ERR_NOMEM, "'%s': table 'sample': out of memory", r->path);
    int rc = sqlite3_prepare_v2(r->db, "SELECT value, t_s, temperature_c FROM sample WHERE table_name = ?2 AND row_id = ?1 ORDER BY seq",
                                -1, &s.one, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(s.one, 2, r->table, -1, SQLITE_STATIC);
    int failed = rc == SQLITE_OK ? each_row(r, sql, n, each_sampled, &s) : hwdb_fail(r->db, r->path, "sample", 0, r->e);
    sqlite3_finalize(s.one);
    return failed;
}

static int get_origin(const struct reading *r, sqlite3_stmt *st, int col, enum hw_origin *out)
{
    const char *s = (const char *)sqlite3_column_text(st, col);
    for (int i = 0; s && i < 3; i++)
        if (strcmp(s, hw_origin_name((enum hw_origin)i)) == 0) {
            *out = (enum hw_origin)i;
            return 0;
        }
    if (!s && hwdb_starved(r->db))
        return err_set(r->e, ERR_NOMEM, "'%s': table '%s': out of memory", r->path, r->table);
    return err_set(r->e, ERR_FORMAT, "'%s': table '%s', column 'origin': '%s' is not one of its values", r->path, r->table,
                   s ? s : "NULL");
}

static int each_fact(struct reading *r, sqlite3_stmt *st, void *ctx, int i)
{
    struct hw_sources *out = ctx;
    struct hw_fact *f = &out->facts[i];
    int failed, most = (int)(sizeof out->facts / sizeof *out->facts);
    if (i == most)
        return err_set(r->e, ERR_LIMIT, "'%s': table 'fact_source' has more than %d rows for one device", r->path, most);
    if ((failed = get_text(r, st, 0, f->field, sizeof f->field)) == 0 && (failed = get_origin(r, st, 1, &f->origin)) == 0)
        failed = get_text(r, st, 2, f->source.text, HW_SOURCE);
    out->n_facts += !failed;
    return failed;
}

static int read_device(struct reading *r, const char *name, struct hw_sources *out)
{
    sqlite3_stmt *st = NULL;
    int failed = 0, rc = sqlite3_prepare_v2(r->db, "SELECT id FROM device WHERE name = ?1", -1, &st, NULL);
    r->table = "device";
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(st, 1, name, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW)
        r->device = sqlite3_column_int64(st, 0);
    else
        failed = rc == SQLITE_DONE ? err_set(r->e, ERR_INPUT, "'%s': device '%s' went while it was read; try again", r->path, name)
                                   : hwdb_fail(r->db, r->path, r->table, 0, r->e);
    sqlite3_finalize(st);
    return failed ? failed : each_row(r, "SELECT ifnull(nullif(p.source, 'thermo-profile hardware'), " NEWEST_RUN ") FROM device p "
                                      "WHERE id = ?1", 1, each_text, &out->device);
}

int hwdb_load_sources(const char *path, const struct hw *h, struct hw_sources *out, struct err *e)
{
    struct reading r = { .path = path, .e = e };
    int failed = hwdb_open_read(path, 0, &r.db, e);
    memset(out, 0, sizeof *out);
    if (failed)
        return failed;
    failed = read_device(&r, h->name, out);
    for (int k = HWDB_CORE_CLASS, n; k < HWDB_CONDITIONS && !failed; k++) {
        hwdb_items(h, (enum hwdb_kind)k, &n);
        failed = read_points(&r, (enum hwdb_kind)k, out, n);
        if (!failed && hwdb_table((enum hwdb_kind)k)->sample)
            failed = read_samples(&r, (enum hwdb_kind)k, out, n);
    }
    r.table = "fact_source";
    if (failed || (failed = each_row(&r, "SELECT field, origin, source FROM fact_source WHERE device_id = ?1 ORDER BY field", -1, each_fact,
                                     out)) < 0)
        hw_sources_done(out);
    sqlite3_close(r.db);
    return failed;
}
