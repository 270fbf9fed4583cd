/* Reading one device. Every value is checked while it is read, although the tables have constraints, because those
 * bind who writes honestly and not who edits bytes: type, range, and that texts can be printed. The first bad one
 * sticks and names table, row and column. Rows come in a canonical order, over which the identity of a device's
 * figures is taken. */
#include "common/base/print.h"
#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb_impl.h"

#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
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

/* What is wrong with the row's value in this column, behind its place. */
static void bad(struct row *r, int col, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void bad(struct row *r, int col, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(what, sizeof what, fmt, ap);
    va_end(ap);
    if (!r->failed)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column '%s'%s", r->path, r->table, (long long)r->id,
                            sqlite3_column_name(r->st, col), what);
}

static int64_t get_int(struct row *r, int col, int64_t min, int64_t max)
{
    int64_t v = sqlite3_column_int64(r->st, col);
    if (sqlite3_column_type(r->st, col) != SQLITE_INTEGER)
        bad(r, col, " is not an integer");
    else if (v < min || v > max)
        bad(r, col, ": %lld is not within %lld..%lld", (long long)v, (long long)min, (long long)max);
    return r->failed ? min : v;
}

/* A finite number >= 0, or > 0 when required; NULL reads as 0 unless required. */
static double get_real(struct row *r, int col, double max, int required)
{
    int type = sqlite3_column_type(r->st, col);
    double v = sqlite3_column_double(r->st, col);
    if (type == SQLITE_NULL && !required)
        return 0;
    if (type != SQLITE_FLOAT)
        bad(r, col, " is not a number");
    else if (!isfinite(v) || v < 0 || v > max || (required && v == 0))
        bad(r, col, ": %g is not within 0..%g", v, max);
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
    int plain = s && sqlite3_column_type(r->st, col) == SQLITE_TEXT && n < len && !(required && n == 0);
    for (size_t i = 0; plain && i < n; i++)
        plain = s[i] >= 0x20 && s[i] != 0x7f;
    if (!plain)
        bad(r, col, " is not a plain text of %s%zu bytes", required ? "1 to " : "up to ", len - 1);
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
    bad(r, col, ": '%s' is not one of its values", s ? s : "NULL");
    return 0;
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

/* ---- rows by their fields ---- */

/* While loading: ids in the file and the indexes they get. */
struct loading {
    enum hwdb_kind kind;
    int n_classes, n_accels;
    int64_t class_id[HW_MAX_CLASSES], accel_id[HWDB_MAX_ACCELS];
};

static int get_index(struct row *r, int col, const int64_t *ids, int n, const char *what)
{
    int64_t id = get_int(r, col, INT64_MIN, INT64_MAX);
    for (int i = 0; i < n; i++)
        if (ids[i] == id)
            return i;
    bad(r, col, ": %lld is no %s of this device", (long long)id, what);
    return -1;
}

static void get_marks(struct row *r, int col, struct hw_conditions *c)
{
    char marks[HW_NAME];
    get_text(r, col, marks, sizeof marks, 0);
    c->watched = !r->failed && marks[0];
    if (c->watched && hw_marks_of(marks, &c->marks) < 0)
        bad(r, col, ": '%s' is not a list of marks", marks);
}

static int get_choice_of(struct row *r, int col, const struct hwdb_field *f)
{
    const char *names[8];
    char text[8][HW_NAME];
    int n = 0;
    while (n < 8 && *hwdb_choice(f, n, text[n])) {
        names[n] = text[n];
        n++;
    }
    return get_choice(r, col, names, n);
}

static void each_item(struct row *r, void *item, void *ctx)
{
    struct loading *l = ctx;
    const struct hwdb_table *t = hwdb_table(l->kind);
    if (l->kind == HWDB_CORE_CLASS)
        l->class_id[l->n_classes++] = r->id;
    if (l->kind == HWDB_ACCELERATOR)
        l->accel_id[l->n_accels++] = r->id;
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        int col = i + 1, need = (f->flags & HWDB_NEED) != 0, null = sqlite3_column_type(r->st, col) == SQLITE_NULL;
        switch (f->type) {
        case HWDB_TEXT:    get_text(r, col, hwdb_at(f, item), f->size, need && f->min == 1); break;
        case HWDB_INTEGER: hwdb_set(f, item, null && !need ? 0 : get_int(r, col, f->min, f->max)); break;
        case HWDB_REAL:    *(double *)hwdb_at(f, item) = get_real(r, col, f->max == INT64_MAX ? 1e18 : (double)f->max, need); break;
        case HWDB_CHOICE:  hwdb_set(f, item, get_choice_of(r, col, f)); break;
        case HWDB_CLASS:   hwdb_set(f, item, null ? -1 : get_index(r, col, l->class_id, l->n_classes, "core class")); break;
        case HWDB_ACCEL:   hwdb_set(f, item, get_index(r, col, l->accel_id, l->n_accels, "accelerator")); break;
        case HWDB_MARKS:   get_marks(r, col, item); break;
        }
    }
    const struct hw_compute *c = item;
    if (l->kind == HWDB_COMPUTE && !r->failed && !(c->ns_per_row.p50 > 0) && strncmp(c->kernel, "flops/", 6) != 0)
        r->failed = err_set(r->e, ERR_FORMAT, "'%s': table '%s' row %lld, column 'ns_per_row_p50': only a stated rate ('flops/...') has "
                            "none", r->path, r->table, (long long)r->id);
}

/* Of each table the newest run that has rows in it counts; of the processor's own bandwidth, and of accelerators' alone and with it, each
 * the newest; conditions are of the run that a table's points are from: an import that brings none has none. */
#define NEWEST(table, which)                                                                                                        \
    "(SELECT max(r.id) FROM run r WHERE r.device_id = ?1 AND EXISTS (SELECT 1 FROM " table " WHERE run_id = r.id" which "))"
#define WITH_CLASS(table) " FROM " table " p LEFT JOIN core_class c ON c.id = core_class_id WHERE run_id = " NEWEST(table, "")

void hwdb_rows(enum hwdb_kind k, char *out, size_t len)
{
    static const char *const from[HWDB_KINDS] = {
        [HWDB_DEVICE] = " FROM device p WHERE id = ?1",
        [HWDB_CORE_CLASS] = " FROM core_class p WHERE device_id = ?1 ORDER BY rank, name",
        [HWDB_COMPUTE] = WITH_CLASS("compute"),
        [HWDB_MEMORY] = " FROM memory p WHERE run_id = CASE engines WHEN 'cpu' THEN " NEWEST("memory", " AND engines = 'cpu'")
                        " ELSE " NEWEST("memory", " AND engines <> 'cpu'") " END",
        [HWDB_STORAGE] = WITH_CLASS("storage"),
        [HWDB_ACCELERATOR] = " FROM accelerator p WHERE run_id = " NEWEST("accelerator", ""),
        [HWDB_ACCELERATOR_POINT] = " FROM accelerator_point p WHERE run_id = " NEWEST("accelerator", ""),
        [HWDB_JOINT] = " FROM joint p WHERE run_id = " NEWEST("joint", ""),
        [HWDB_CONDITIONS] = " FROM conditions p WHERE run_id = CASE table_name WHEN 'compute' THEN " NEWEST("compute", "")
                            " WHEN 'memory' THEN " NEWEST("memory", " AND engines = 'cpu'")
                            " WHEN 'storage' THEN " NEWEST("storage", "")
                            " WHEN 'joint' THEN " NEWEST("joint", "")
                            " ELSE " NEWEST("accelerator", "") " END",
    };
    const char *column = hwdb_table(k)->order, *before = " ORDER BY ";
    size_t at = (size_t)snprintf(out, len, "%s", from[k]);
    for (int n; column && *column; column += n + (column[n] == ' '), before = ", ") {
        n = (int)strcspn(column, " ");
        if (strncmp(column, "core_class_id", (size_t)n) == 0)
            at += (size_t)snprintf(out + at, len - at, "%sifnull(c.rank, -1), c.name", before);
        else if (strncmp(column, "accelerator_id", (size_t)n) == 0)
            at += (size_t)snprintf(out + at, len - at, "%s(SELECT engine FROM accelerator a WHERE a.id = accelerator_id)", before);
        else
            at += (size_t)snprintf(out + at, len - at, "%sp.%.*s", before, n, column);
    }
}

static int load_items(sqlite3 *db, const char *path, int64_t id, struct loading *l, enum hwdb_kind k, void *out, int *n, struct err *e)
{
    const struct hwdb_table *t = hwdb_table(k);
    char sql[4096], rows[2000];
    int at = snprintf(sql, sizeof sql, "SELECT p.%s", k == HWDB_CONDITIONS ? "run_id" : "id");
    for (int i = 0; i < t->n; i++)
        at += snprintf(sql + at, sizeof sql - (size_t)at, ", p.%s", t->fields[i].column);
    hwdb_rows(k, rows, sizeof rows);
    snprintf(sql + at, sizeof sql - (size_t)at, "%s", rows);
    l->kind = k;
    return read_rows(db, path, t->name, sql, id, t->size, t->most, each_item, l, (void **)out, n, e);
}

static void find_reads(struct hw *h)
{
    for (int i = h->n_storage - 1; i >= 0; i--) {
        const struct hw_storage *p = &h->storage_points[i];
        int *end = &h->reads_end[p->backend][p->pattern];
        h->reads_first[p->backend][p->pattern] = i;
        *end = *end ? *end : i + 1;
    }
    h->by_kernel = 1;
    for (int i = 1; i < h->n_compute; i++)
        h->by_kernel &= strcmp(h->compute[i - 1].kernel, h->compute[i].kernel) <= 0;
}

/* ---- identity ---- */

static void hash_real(struct hash *s, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    hash_update_u64(s, bits);
}

static void hash_item(struct hash *s, const struct hwdb_table *t, const void *item)
{
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        if (f->flags & HWDB_NOTE || !hwdb_is_known(f, item))
            continue;
        hash_update_str(s, f->column);
        if (f->type == HWDB_TEXT)
            hash_update_str(s, hwdb_at(f, item));
        else if (f->type == HWDB_REAL)
            hash_real(s, *(const double *)hwdb_at(f, item));
        else
            hash_update_u64(s, (uint64_t)hwdb_get(f, item));
    }
}

/* Of each table its name and count; of each row what is known, behind its column's name: so nothing stands for something else, and a
 * column that is added later changes nothing where it is not known. */
static int hash_device(struct hw *h, struct err *e)
{
    struct hash *s = hash_new();
    if (!s)
        return err_set(e, ERR_NOMEM, "device '%s': out of memory", h->name);
    for (int k = 0; k < HWDB_CONDITIONS; k++) {
        const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
        int n;
        const char *items = hwdb_items(h, (enum hwdb_kind)k, &n);
        if (k >= HWDB_JOINT && !n) /* likewise a table that is added later */
            continue;
        hash_update_str(s, t->name);
        hash_update_u64(s, (uint64_t)n);
        for (int i = 0; i < n; i++) {
            hash_item(s, t, items + (size_t)i * t->size);
            hash_update_str(s, "");
        }
    }
    h->hash = hash_final128(s);
    hash_free(s);
    return 0;
}

static int load_device(sqlite3 *db, const char *path, int64_t id, struct hw *out, struct err *e)
{
    struct hw *h = NULL;
    struct hw_class *c = NULL;
    struct hw_conditions *seen = NULL;
    struct loading l = { .n_classes = 0 };
    int n = 0, n_seen = 0, r = load_items(db, path, id, &l, HWDB_DEVICE, &h, &n, e);
    if (r < 0)
        return r;
    if (n != 1) {
        free(h);
        return err_set(e, ERR_FORMAT, "'%s': table 'device' row %lld went missing", path, (long long)id);
    }
    *out = *h;
    free(h);
    if ((r = load_items(db, path, id, &l, HWDB_CORE_CLASS, &c, &out->n_classes, e)) < 0)
        return r;
    for (int i = 0; i < out->n_classes; i++)
        out->classes[i] = c[i];
    free(c);
    for (int k = HWDB_COMPUTE; k < HWDB_CONDITIONS && r == 0; k++) {
        int *count;
        void **a = hwdb_array(out, (enum hwdb_kind)k, &count);
        r = load_items(db, path, id, &l, (enum hwdb_kind)k, a, count, e);
    }
    if (r < 0 || (r = load_items(db, path, id, &l, HWDB_CONDITIONS, &seen, &n_seen, e)) < 0)
        return r;
    for (int i = 0; i < n_seen; i++)
        out->conditions[seen[i].table] = seen[i];
    free(seen);
    find_reads(out);
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
    const char *names[HW_TERMS];
    for (int t = 0; t < HW_TERMS; t++)
        names[t] = hw_term_name((enum hw_term)t);
    (void)ctx;
    f->term = get_choice(r, 1, names, HW_TERMS);
    f->factor = get_real(r, 2, 1e18, 1);
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
