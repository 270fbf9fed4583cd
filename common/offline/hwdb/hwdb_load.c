/* Reading one device. Every value is checked while it is read, although the tables have constraints, because those
 * bind who writes honestly and not who edits bytes: type, range, and that texts can be printed. The first bad one
 * sticks and names table, row and column. Rows come in a canonical order, over which the identity of a device's
 * figures is taken. */
#include "common/offline/hwdb/hwdb_impl.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row being read, with a sticky error. */
struct row {
    sqlite3_stmt *st;
    const char *path, *table;
    int64_t id;
    struct err *e;
    int failed;
};

static const char *col_name(const struct row *r, int col)
{
    return sqlite3_column_name(r->st, col);
}

static int64_t get_int(struct row *r, int col, int64_t min, int64_t max)
{
    int64_t v = sqlite3_column_int64(r->st, col);
    if (!r->failed && sqlite3_column_type(r->st, col) != SQLITE_INTEGER)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s' is not an integer",
                            r->path, r->table, (long long)r->id, col_name(r, col));
    else if (!r->failed && (v < min || v > max))
        r->failed =
            err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s': %lld is not within %lld..%lld",
                    r->path, r->table, (long long)r->id, col_name(r, col), (long long)v, (long long)min,
                    (long long)max);
    return r->failed ? min : v;
}

/* NULL reads as none. */
static int64_t get_int_or(struct row *r, int col, int64_t none, int64_t min, int64_t max)
{
    return sqlite3_column_type(r->st, col) == SQLITE_NULL ? none : get_int(r, col, min, max);
}

/* A finite number >= 0, or > 0 when required; NULL reads as 0 unless required. */
static double get_real(struct row *r, int col, int required)
{
    int type = sqlite3_column_type(r->st, col);
    double v = sqlite3_column_double(r->st, col);
    if (type == SQLITE_NULL && !required)
        return 0;
    if (!r->failed && type != SQLITE_FLOAT)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s' is not a number",
                            r->path, r->table, (long long)r->id, col_name(r, col));
    else if (!r->failed && (!isfinite(v) || v < 0 || v > 1e18 || (required && v == 0)))
        r->failed =
            err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s': %g is not within 0..1e18",
                    r->path, r->table, (long long)r->id, col_name(r, col), v);
    return r->failed ? 0 : v;
}

/* Text that fits len, without control characters, so that it can be printed; NULL reads as "". */
static void get_text(struct row *r, int col, char *out, size_t len, int required)
{
    const unsigned char *s = sqlite3_column_text(r->st, col);
    size_t n = (size_t)sqlite3_column_bytes(r->st, col);
    *out = 0;
    if (r->failed || (!s && !required))
        return;
    if (!s && hwdb_starved(sqlite3_db_handle(r->st))) {
        r->failed = err_set(r->e, ERR_NOMEM, "'%s': table '%s': out of memory", r->path, r->table);
        return;
    }
    int bad = !s || sqlite3_column_type(r->st, col) != SQLITE_TEXT || n >= len || (required && n == 0);
    for (size_t i = 0; !bad && i < n; i++)
        bad = s[i] < 0x20 || s[i] == 0x7f;
    if (bad)
        r->failed = err_set(
            r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s' is not a plain text of %s%zu bytes",
            r->path, r->table, (long long)r->id, col_name(r, col), required ? "1 to " : "up to ", len - 1);
    else
        memcpy(out, s, n + 1);
}

static int get_choice(struct row *r, int col, const char *const *names, int n)
{
    const char *s = (const char *)sqlite3_column_text(r->st, col);
    for (int i = 0; s && i < n; i++)
        if (strcmp(s, names[i]) == 0)
            return i;
    if (!r->failed && !s && hwdb_starved(sqlite3_db_handle(r->st)))
        r->failed = err_set(r->e, ERR_NOMEM, "'%s': table '%s': out of memory", r->path, r->table);
    if (!r->failed)
        r->failed =
            err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s': '%s' is not one of its values",
                    r->path, r->table, (long long)r->id, col_name(r, col), s ? s : "NULL");
    return 0;
}

static struct hw_dist get_dist(struct row *r, int col, int required)
{
    struct hw_dist d = { get_real(r, col, 0), get_real(r, col + 1, required), get_real(r, col + 2, 0) };
    return d;
}

/* Runs a query whose first column is the row's id and first parameter the key; calls each(row, element) on a
 * zeroed element of size bytes for every row. */
typedef void each_fn(struct row *r, void *element, void *ctx);
static int read_rows(sqlite3 *db, const char *path, const char *table, const char *sql, int64_t key,
                     size_t size, int max, each_fn *each, void *ctx, void **out, int *n_out, struct err *e)
{
    struct row r = { .path = path, .table = table, .e = e };
    char *a = NULL;
    int n = 0, cap = 0, rc;
    if (sqlite3_prepare_v2(db, sql, -1, &r.st, NULL) != SQLITE_OK)
        return hwdb_fail(db, path, table, 0, e);
    sqlite3_bind_int64(r.st, 1, key);
    while ((rc = sqlite3_step(r.st)) == SQLITE_ROW && !r.failed) {
        if (n == max) {
            r.failed = err_set(e, ERR_LIMIT, "'%s': table '%s' has more than %d rows for one device", path,
                               table, max);
            break;
        }
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            char *b = realloc(a, (size_t)cap * size);
            if (!b) {
                r.failed = err_set(e, ERR_NOMEM, "'%s': table '%s': out of memory", path, table);
                break;
            }
            a = b;
        }
        memset(a + (size_t)n * size, 0, size);
        r.id = sqlite3_column_int64(r.st, 0);
        each(&r, a + (size_t)n * size, ctx);
        n++;
    }
    if (!r.failed && rc != SQLITE_DONE)
        r.failed = hwdb_fail(db, path, table, 0, e);
    sqlite3_finalize(r.st);
    if (r.failed) {
        free(a);
        return r.failed;
    }
    *out = a;
    *n_out = n;
    return 0;
}

struct device_row {
    int64_t id;
    char name[HW_NAME];
};

static void each_device(struct row *r, void *element, void *ctx)
{
    struct device_row *d = element;
    (void)ctx;
    d->id = r->id;
    get_text(r, 1, d->name, sizeof d->name, 1);
}

static int read_devices(sqlite3 *db, const char *path, struct device_row **out, int *n, struct err *e)
{
    return read_rows(db, path, "device", "SELECT id, name FROM device WHERE ?1 IS NOT NULL ORDER BY name", 0,
                     sizeof(struct device_row), HWDB_MAX_DEVICES, each_device, NULL, (void **)out, n, e);
}

/* The device's id, or an error that lists what there is. */
static int find_device(sqlite3 *db, const char *path, const char *name, int64_t *id, struct err *e)
{
    struct device_row *d = NULL;
    int n = 0, found = -1, r = read_devices(db, path, &d, &n, e);
    if (r < 0)
        return r;
    for (int i = 0; i < n; i++)
        if (name ? strcmp(d[i].name, name) == 0 : n == 1)
            found = i;
    if (found >= 0) {
        *id = d[found].id;
    } else {
        char list[320] = "";
        for (int i = 0; i < n; i++) {
            size_t used = strlen(list);
            if (used + strlen(d[i].name) + 8 < sizeof list)
                snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", d[i].name);
            else if (used + 5 < sizeof list && list[used - 1] != '.')
                memcpy(list + used, ", ...", 6);
        }
        if (n == 0)
            r = err_set(
                e, ERR_USAGE,
                "'%s' holds no device yet: measure with thermo-profile hardware or enter figures with "
                "thermo-profile import",
                path);
        else if (name)
            r = err_set(e, ERR_USAGE, "'%s' holds no device '%s'; there are: %s", path, name, list);
        else
            r = err_set(e, ERR_USAGE, "'%s' holds %d devices, name one of: %s", path, n, list);
    }
    free(d);
    return r;
}

/* While loading: ids in the file and the indexes they get. */
struct loading {
    struct hw *h;
    int64_t class_id[HW_MAX_CLASSES];
    int64_t accel_id[HWDB_MAX_ACCELS];
};

struct class_row {
    struct hw_class c;
    int64_t id;
};

static void each_head(struct row *r, void *element, void *ctx)
{
    struct hw *h = element;
    (void)ctx;
    get_text(r, 1, h->name, sizeof h->name, 1);
    get_text(r, 2, h->description, sizeof h->description, 0);
    get_text(r, 3, h->soc, sizeof h->soc, 0);
    get_text(r, 4, h->cpu_model, sizeof h->cpu_model, 0);
    get_text(r, 5, h->os, sizeof h->os, 0);
    get_text(r, 6, h->storage, sizeof h->storage, 0);
    get_text(r, 7, h->filesystem, sizeof h->filesystem, 0);
    get_text(r, 8, h->source, sizeof h->source, 0);
    h->memory_bytes = (uint64_t)get_int_or(r, 9, 0, 1, INT64_MAX);
    h->app_memory_limit_bytes = (uint64_t)get_int_or(r, 10, 0, 1, INT64_MAX);
}

static void each_class(struct row *r, void *element, void *ctx)
{
    struct class_row *c = element;
    (void)ctx;
    c->id = r->id;
    get_text(r, 1, c->c.name, sizeof c->c.name, 1);
    c->c.n_cores = (int)get_int(r, 2, 1, 65536);
    c->c.max_hz = (uint64_t)get_int_or(r, 3, 0, 1, INT64_MAX);
    c->c.origin = (enum hw_origin)get_choice(r, 4, hwdb_origin_names, 3);
}

static int get_class(struct row *r, int col, const struct loading *l)
{
    if (sqlite3_column_type(r->st, col) == SQLITE_NULL)
        return -1;
    int64_t id = get_int(r, col, INT64_MIN, INT64_MAX);
    for (int i = 0; i < l->h->n_classes; i++)
        if (l->class_id[i] == id)
            return i;
    if (!r->failed)
        r->failed = err_set(r->e, ERR_FORMAT,
                            "'%s': table '%s' row %lld, column '%s': %lld is no core class of this device",
                            r->path, r->table, (long long)r->id, col_name(r, col), (long long)id);
    return -1;
}

static void each_compute(struct row *r, void *element, void *ctx)
{
    struct hw_compute *p = element;
    p->core_class = get_class(r, 1, ctx);
    get_text(r, 2, p->kernel, sizeof p->kernel, 1);
    get_text(r, 3, p->tier, sizeof p->tier, 0);
    p->pattern = (enum hw_pattern)get_choice(r, 4, hwdb_pattern_names, 2);
    p->dram = get_choice(r, 5, hwdb_resident_names, 2);
    p->threads = (int)get_int(r, 6, 1, 65536);
    p->row_len = (int)get_int(r, 7, 0, 1 << 20);
    p->rows = (int)get_int(r, 8, 0, INT32_MAX);
    p->batch = (int)get_int(r, 9, 1, 65536);
    p->ns_per_row = get_dist(r, 10, strncmp(p->kernel, "flops/", 6) != 0);
    p->flops_per_s = get_real(r, 13, 1);
    p->origin = (enum hw_origin)get_choice(r, 14, hwdb_origin_names, 3);
}

static void each_memory(struct row *r, void *element, void *ctx)
{
    struct hw_memory *p = element;
    (void)ctx;
    get_text(r, 1, p->engines, sizeof p->engines, 1);
    p->pattern = (enum hw_pattern)get_choice(r, 2, hwdb_pattern_names, 2);
    p->row_bytes = (uint64_t)get_int(r, 3, 1, 1ll << 40);
    p->threads = (int)get_int(r, 4, 0, 65536);
    p->bytes_per_s = get_dist(r, 5, 1);
    p->origin = (enum hw_origin)get_choice(r, 8, hwdb_origin_names, 3);
}

static void each_storage(struct row *r, void *element, void *ctx)
{
    struct hw_storage *p = element;
    p->backend = (enum hw_backend)get_choice(r, 1, hwdb_backend_names, 2);
    p->direct = (int)get_int(r, 2, 0, 1);
    p->pattern = (enum hw_pattern)get_choice(r, 3, hwdb_pattern_names, 2);
    p->block_bytes = (uint64_t)get_int(r, 4, 1, 1ll << 40);
    p->queue_depth = (int)get_int(r, 5, 1, 65536);
    p->lanes = (int)get_int(r, 6, 1, 65536);
    p->range_bytes = (uint64_t)get_int(r, 7, 1, 1ll << 60);
    p->core_class = get_class(r, 8, ctx);
    p->bytes_per_s = get_dist(r, 9, 1);
    p->latency_ns_p50 = get_real(r, 12, 0);
    p->latency_ns_p99 = get_real(r, 13, 0);
    p->cpu_ns_per_read = get_real(r, 14, 0);
    p->origin = (enum hw_origin)get_choice(r, 15, hwdb_origin_names, 3);
    p->batch_completion_share = get_real(r, 16, 0);
    p->uncached_destination_ratio = get_real(r, 17, 0);
    p->page_bytes = (uint64_t)get_int_or(r, 18, 0, 1, 1ll << 40);
}

static void each_accel(struct row *r, void *element, void *ctx)
{
    struct hw_accel *p = element;
    struct loading *l = ctx;
    l->accel_id[l->h->n_accels++] = r->id;
    get_text(r, 1, p->engine, sizeof p->engine, 1);
    get_text(r, 2, p->description, sizeof p->description, 0);
    p->addressable_bytes = (uint64_t)get_int_or(r, 3, 0, 1, INT64_MAX);
    p->launch_ns = get_real(r, 4, 0);
    p->shares_memory = (int)get_int(r, 5, 0, 1);
    p->origin = (enum hw_origin)get_choice(r, 6, hwdb_origin_names, 3);
    p->driver_bytes = (uint64_t)get_int_or(r, 7, 0, 0, INT64_MAX);
}

static void each_accel_point(struct row *r, void *element, void *ctx)
{
    struct hw_accel_point *p = element;
    const struct loading *l = ctx;
    int64_t id = get_int(r, 1, INT64_MIN, INT64_MAX);
    p->accel = -1;
    for (int i = 0; i < l->h->n_accels; i++)
        if (l->accel_id[i] == id)
            p->accel = i;
    if (p->accel < 0 && !r->failed)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld: %lld is no accelerator of this run",
                            r->path, r->table, (long long)r->id, (long long)id);
    get_text(r, 2, p->op, sizeof p->op, 1);
    p->rows = (int)get_int(r, 3, 1, 1 << 24);
    p->cols = (int)get_int(r, 4, 1, 1 << 24);
    p->batch = (int)get_int(r, 5, 1, 65536);
    p->ns = get_dist(r, 6, 1);
    p->origin = (enum hw_origin)get_choice(r, 9, hwdb_origin_names, 3);
}

static int load_points(sqlite3 *db, const char *path, int64_t id, struct loading *l, struct err *e)
{
    struct hw *h = l->h;
    int r, n = 0;
    if ((r = read_rows(db, path, "compute",
                       "SELECT p.id, core_class_id, kernel, tier, pattern, resident, threads, row_len, rows, batch,"
                       " ns_per_row_p10, ns_per_row_p50, ns_per_row_p90, flops_per_s, p.origin" HWDB_COMPUTE_ROWS, id,
                       sizeof *h->compute, HW_MAX_POINTS, each_compute, l, (void **)&h->compute, &h->n_compute, e)) < 0 ||
        (r = read_rows(db, path, "memory",
                       "SELECT p.id, engines, pattern, row_bytes, threads, bytes_per_s_p10, bytes_per_s_p50,"
                       " bytes_per_s_p90, origin" HWDB_MEMORY_ROWS, id, sizeof *h->memory, HW_MAX_POINTS, each_memory, l,
                       (void **)&h->memory, &h->n_memory, e)) < 0 ||
        (r = read_rows(db, path, "storage",
                       "SELECT p.id, backend, direct, pattern, block_bytes, queue_depth, lanes, range_bytes, core_class_id,"
                       " bytes_per_s_p10, bytes_per_s_p50, bytes_per_s_p90, latency_ns_p50, latency_ns_p99, cpu_ns_per_read, p.origin,"
                       " batch_completion_share, uncached_destination_ratio, page_bytes" HWDB_STORAGE_ROWS, id,
                       sizeof *h->storage_points, HW_MAX_POINTS, each_storage, l, (void **)&h->storage_points, &h->n_storage, e)) < 0 ||
        (r = read_rows(db, path, "accelerator", "SELECT p.id, engine, description, addressable_bytes, launch_ns, shares_memory, origin,"
                       " driver_bytes" HWDB_ACCEL_ROWS, id,
                       sizeof *h->accels, HWDB_MAX_ACCELS, each_accel, l, (void **)&h->accels, &n, e)) < 0 ||
        (r = read_rows(db, path, "accelerator_point",
                       "SELECT p.id, accelerator_id, op, rows, cols, batch, ns_p10, ns_p50, ns_p90, p.origin"
                       HWDB_ACCEL_POINT_ROWS, id, sizeof *h->accel_points, HW_MAX_POINTS, each_accel_point, l,
                       (void **)&h->accel_points, &h->n_accel_points, e)) < 0)
        return r;
    for (int i = h->n_storage - 1; i >= 0; i--) {
        const struct hw_storage *p = &h->storage_points[i];
        int *end = &h->reads_end[p->backend][p->pattern];
        h->reads_first[p->backend][p->pattern] = i;
        *end = *end ? *end : i + 1;
    }
    h->by_kernel = 1;
    for (int i = 1; i < h->n_compute; i++)
        h->by_kernel &= strcmp(h->compute[i - 1].kernel, h->compute[i].kernel) <= 0;
    return 0;
}

/* ---- conditions ---- */

static void each_conditions(struct row *r, void *element, void *ctx)
{
    struct hw_conditions *c = element;
    char marks[HW_NAME];
    (void)ctx;
    get_text(r, 1, c->measured_at, sizeof c->measured_at, 0);
    get_text(r, 2, marks, sizeof marks, 0);
    if (r->failed || !marks[0])
        return;
    c->watched = 1;
    if (hw_marks_of(marks, &c->marks) < 0)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column 'marks': '%s' is not a list of marks",
                            r->path, r->table, (long long)r->id, marks);
    c->others = get_real(r, 3, 0);
    c->stolen = get_real(r, 4, 0);
    c->waited_for_cpu = get_real(r, 5, 0);
    c->short_of_memory = get_real(r, 6, 0);
    c->spread = get_real(r, 7, 0);
    c->disturbed = get_real(r, 8, 0);
    c->repeated = (int)get_int_or(r, 9, 0, 0, INT32_MAX);
    c->paused_s = get_real(r, 10, 0);
}

/* The row of the run that a table's points are from. An import that brings no conditions has none. */
#define CONDITIONS_OF(table, which)                                                                                                  \
    "SELECT run_id, measured_at, marks, others, stolen, waited_for_cpu, short_of_memory, spread, disturbed, repeated, paused_s"     \
    " FROM conditions WHERE table_name = '" table "' AND run_id = (SELECT max(s.id) FROM run s WHERE s.device_id = ?1 AND EXISTS"   \
    " (SELECT 1 FROM " table " WHERE run_id = s.id" which "))"

static int load_conditions(sqlite3 *db, const char *path, int64_t id, struct hw *h, struct err *e)
{
    static const char *const sql[HW_TABLES] = { CONDITIONS_OF("compute", ""), CONDITIONS_OF("memory", " AND engines = 'cpu'"),
                                                CONDITIONS_OF("storage", ""), CONDITIONS_OF("accelerator", "") };
    int r = 0;
    for (int t = 0; t < HW_TABLES && r == 0; t++) {
        struct hw_conditions *c = NULL;
        int n = 0;
        r = read_rows(db, path, "conditions", sql[t], id, sizeof *c, 1, each_conditions, NULL, (void **)&c, &n, e);
        if (r == 0 && n == 1)
            h->conditions[t] = *c;
        free(c);
    }
    return r;
}

/* ---- identity ---- */

static void hash_real(struct hash *s, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    hash_update_u64(s, bits);
}

static void hash_dist(struct hash *s, const struct hw_dist *d)
{
    hash_real(s, d->p10);
    hash_real(s, d->p50);
    hash_real(s, d->p90);
}

static void hash_ints(struct hash *s, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        hash_update_u64(s, (uint64_t)v[i]);
}

static int hash_device(struct hw *h, struct err *e)
{
    struct hash *s = hash_new();
    if (!s)
        return err_set(e, ERR_NOMEM, "device '%s': out of memory", h->name);
    hash_update_str(s, h->name);
    hash_ints(s,
              (int64_t[]){ (int64_t)h->memory_bytes, (int64_t)h->app_memory_limit_bytes, h->n_classes,
                           h->n_compute, h->n_memory, h->n_storage, h->n_accels, h->n_accel_points },
              8);
    for (int i = 0; i < h->n_classes; i++) {
        hash_update_str(s, h->classes[i].name);
        hash_ints(s, (int64_t[]){ h->classes[i].n_cores, (int64_t)h->classes[i].max_hz }, 2);
    }
    for (int i = 0; i < h->n_compute; i++) {
        const struct hw_compute *p = &h->compute[i];
        hash_update_str(s, p->kernel);
        hash_ints(s, (int64_t[]){ p->core_class, p->pattern, p->dram, p->threads, p->row_len, p->batch }, 6);
        hash_dist(s, &p->ns_per_row);
        hash_real(s, p->flops_per_s);
    }
    for (int i = 0; i < h->n_memory; i++) {
        const struct hw_memory *p = &h->memory[i];
        hash_update_str(s, p->engines);
        hash_ints(s, (int64_t[]){ p->pattern, (int64_t)p->row_bytes, p->threads }, 3);
        hash_dist(s, &p->bytes_per_s);
    }
    for (int i = 0; i < h->n_storage; i++) {
        const struct hw_storage *p = &h->storage_points[i];
        hash_ints(s,
                  (int64_t[]){ p->backend, p->direct, p->pattern, (int64_t)p->block_bytes, p->queue_depth,
                               p->lanes, (int64_t)p->range_bytes, p->core_class },
                  8);
        hash_dist(s, &p->bytes_per_s);
        hash_dist(s, &(struct hw_dist){ p->latency_ns_p50, p->latency_ns_p99, p->cpu_ns_per_read });
        hash_dist(s, &(struct hw_dist){ p->batch_completion_share, p->uncached_destination_ratio, (double)p->page_bytes });
    }
    for (int i = 0; i < h->n_accels; i++) {
        hash_update_str(s, h->accels[i].engine);
        hash_ints(s, (int64_t[]){ (int64_t)h->accels[i].addressable_bytes, h->accels[i].shares_memory }, 2);
        hash_real(s, h->accels[i].launch_ns);
        hash_update_u64(s, h->accels[i].driver_bytes);
    }
    for (int i = 0; i < h->n_accel_points; i++) {
        const struct hw_accel_point *p = &h->accel_points[i];
        hash_update_str(s, p->op);
        hash_ints(s, (int64_t[]){ p->accel, p->rows, p->cols, p->batch }, 4);
        hash_dist(s, &p->ns);
    }
    h->hash = hash_final128(s);
    hash_free(s);
    return 0;
}

static int load_device(sqlite3 *db, const char *path, int64_t id, struct hw *out, struct err *e)
{
    struct hw *h = NULL;
    struct class_row *c = NULL;
    int n = 0, n_classes = 0;
    int r =
        read_rows(db, path, "device",
                  "SELECT id, name, description, soc, cpu_model, os, storage_description, filesystem, source,"
                  " memory_bytes, app_memory_limit_bytes FROM device WHERE id = ?1",
                  id, sizeof *h, 1, each_head, NULL, (void **)&h, &n, e);
    if (r < 0)
        return r;
    if (n != 1) {
        free(h);
        return err_set(e, ERR_FORMAT, "'%s': table 'device' row %lld went missing", path, (long long)id);
    }
    *out = *h;
    free(h);
    struct loading l = { .h = out };
    r = read_rows(
        db, path, "core_class",
        "SELECT id, name, n_cores, max_hz, origin FROM core_class WHERE device_id = ?1 ORDER BY rank, name",
        id, sizeof *c, HW_MAX_CLASSES, each_class, NULL, (void **)&c, &n_classes, e);
    if (r < 0)
        return r;
    for (int i = 0; i < n_classes; i++) {
        out->classes[i] = c[i].c;
        l.class_id[i] = c[i].id;
    }
    out->n_classes = n_classes;
    free(c);
    if ((r = load_points(db, path, id, &l, e)) < 0 || (r = load_conditions(db, path, id, out, e)) < 0)
        return r;
    return hash_device(out, e);
}

int hwdb_load(const char *path, const char *device, struct hw *out, struct err *e)
{
    sqlite3 *db = NULL;
    int64_t id = 0;
    struct hw *h;
    int r = hwdb_open_read(path, 0, &db, e);
    if (r < 0)
        return r;
    if (!(h = calloc(1, sizeof *h)))
        r = err_set(e, ERR_NOMEM, "'%s': out of memory", path);
    else if ((r = find_device(db, path, device, &id, e)) == 0 && (r = load_device(db, path, id, h, e)) == 0)
        *out = *h;
    if (r < 0 && h)
        hw_free(h);
    free(h);
    sqlite3_close(db);
    return r;
}

/* ---- corrections ---- */

struct calibration_row {
    int64_t id;
    char hardware_hash[HASH_TEXT];
};

static void each_calibration(struct row *r, void *element, void *ctx)
{
    struct calibration_row *c = element;
    (void)ctx;
    c->id = r->id;
    get_text(r, 1, c->hardware_hash, sizeof c->hardware_hash, 1);
}

struct factor_row {
    int term;
    double factor;
};

static void each_factor(struct row *r, void *element, void *ctx)
{
    struct factor_row *f = element;
    (void)ctx;
    f->term = get_choice(r, 1, hwdb_term_names, HW_TERMS);
    f->factor = get_real(r, 2, 1);
}

/* The device's figures under one calibration. */
static int corrected(sqlite3 *db, const char *path, int64_t id, struct hw *h, struct err *e)
{
    struct factor_row *f = NULL;
    int n = 0;
    int r = read_rows(db, path, "calibration_term",
                      "SELECT calibration_id, term, factor_p50 FROM calibration_term WHERE calibration_id = ?1", id,
                      sizeof *f, HW_TERMS, each_factor, NULL, (void **)&f, &n, e);
    struct hash *s = r == 0 ? hash_new() : NULL;
    if (r == 0 && !s)
        r = err_set(e, ERR_NOMEM, "'%s': out of memory", path);
    for (int i = 0; i < n; i++)
        h->correction[f[i].term] = f[i].factor;
    free(f);
    if (r < 0)
        return r;
    h->calibration = id;
    hash_update_u64(s, h->hash.lo);
    hash_update_u64(s, h->hash.hi);
    for (int t = 0; t < HW_TERMS; t++)
        hash_real(s, h->correction[t]);
    h->hash = hash_final128(s);
    hash_free(s);
    return 0;
}

int hwdb_correct(const char *path, const struct hash128 *want, struct hw *h, struct err *e)
{
    sqlite3 *db = NULL;
    struct calibration_row *c = NULL;
    int64_t id = 0;
    int n = 0, done = 0, r = hwdb_open_read(path, 0, &db, e);
    if (r < 0)
        return r;
    if ((r = find_device(db, path, h->name, &id, e)) == 0)
        r = read_rows(db, path, "calibration",
                      "SELECT id, hardware_hash FROM calibration WHERE device_id = ?1 ORDER BY id DESC", id, sizeof *c,
                      HW_MAX_POINTS, each_calibration, NULL, (void **)&c, &n, e);
    char figures[HASH_TEXT];
    hash_text(h->hash, figures);
    for (int i = 0; i < n && !done && r == 0; i++) {
        struct hw other = *h;
        if (strcmp(c[i].hardware_hash, figures) != 0)
            continue;
        if ((r = corrected(db, path, c[i].id, &other, e)) == 0 && (!want || hash_equal(other.hash, *want))) {
            *h = other;
            done = 1;
        }
    }
    free(c);
    sqlite3_close(db);
    return r < 0 ? r : done;
}

void hw_free(struct hw *h)
{
    free(h->compute);
    free(h->memory);
    free(h->storage_points);
    free(h->accels);
    free(h->accel_points);
    memset(h, 0, sizeof *h);
}

int hwdb_list(const char *path, char ***names, int *n, struct err *e)
{
    sqlite3 *db = NULL;
    struct device_row *d = NULL;
    int count = 0, r = hwdb_open_read(path, 0, &db, e);
    if (r < 0)
        return r;
    if ((r = read_devices(db, path, &d, &count, e)) == 0) {
        char **list = malloc((size_t)count * (sizeof *list + HW_NAME) + 1);
        if (list) {
            char *text = (char *)(list + count);
            for (int i = 0; i < count; i++) {
                list[i] = text + (size_t)i * HW_NAME;
                memcpy(list[i], d[i].name, HW_NAME);
            }
            *names = list;
            *n = count;
        } else {
            r = err_set(e, ERR_NOMEM, "'%s': out of memory", path);
        }
    }
    free(d);
    sqlite3_close(db);
    return r;
}
