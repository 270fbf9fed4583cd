/* `thermo-profile import`: figures of devices one has not got, from CSV, one figure a row. The whole file is understood
 * before the database is touched, and all its devices are entered in one transaction. A row's key is a list of NAME=VALUE;
 * keys and fields of each table are rows of the lists below, so that parsing, messages and --help agree. */
#include "profiler/cmd.h"

#include "common/base/hash.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/offline/hwdb/hwdb.h"
#include "common/offline/table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_KEYS = 12,
       MAX_KEY_TEXT = 256,
       MAX_SOURCE = 1000 };
enum column { DEVICE,
              TABLE,
              KEY,
              FIELD,
              VALUE,
              UNIT,
              ORIGIN,
              SOURCE,
              N_COLUMNS };
static const char *const column_names[N_COLUMNS] = { "device", "table", "key", "field", "value", "unit", "origin", "source" };

enum dim { COUNT,
           BYTES,
           BYTES_PER_S,
           HZ,
           NS,
           FLOPS_PER_S };
static const struct {
    const char *name;
    enum dim dim;
    double factor;
} units[] = {
    { "", COUNT, 1 },
    { "B", BYTES, 1 },
    { "kB", BYTES, 1e3 },
    { "KB", BYTES, 1e3 },
    { "MB", BYTES, 1e6 },
    { "GB", BYTES, 1e9 },
    { "TB", BYTES, 1e12 },
    { "KiB", BYTES, 0x1p10 },
    { "MiB", BYTES, 0x1p20 },
    { "GiB", BYTES, 0x1p30 },
    { "TiB", BYTES, 0x1p40 },
    { "B/s", BYTES_PER_S, 1 },
    { "kB/s", BYTES_PER_S, 1e3 },
    { "MB/s", BYTES_PER_S, 1e6 },
    { "GB/s", BYTES_PER_S, 1e9 },
    { "KiB/s", BYTES_PER_S, 0x1p10 },
    { "MiB/s", BYTES_PER_S, 0x1p20 },
    { "GiB/s", BYTES_PER_S, 0x1p30 },
    { "Hz", HZ, 1 },
    { "MHz", HZ, 1e6 },
    { "GHz", HZ, 1e9 },
    { "ns", NS, 1 },
    { "us", NS, 1e3 },
    { "ms", NS, 1e6 },
    { "s", NS, 1e9 },
    { "FLOP/s", FLOPS_PER_S, 1 },
    { "MFLOP/s", FLOPS_PER_S, 1e6 },
    { "GFLOP/s", FLOPS_PER_S, 1e9 },
    { "TFLOP/s", FLOPS_PER_S, 1e12 },
};
static const char *const dim_names[] = { "nothing (a plain number)", "bytes (B, kB, MB, GB, KiB, MiB, GiB)",
                                         "a rate (B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)", "a frequency (Hz, MHz, GHz)",
                                         "a time (ns, us, ms, s)", "an arithmetic rate (FLOP/s, MFLOP/s, GFLOP/s, TFLOP/s)" };

enum table_kind { T_DEVICE,
                  T_CLASS,
                  T_COMPUTE,
                  T_MEMORY,
                  T_STORAGE,
                  T_ACCEL,
                  T_ACCEL_POINT,
                  T_CONDITIONS,
                  N_KINDS };
static const char *const kind_names[N_KINDS] = { "device", "core_class", "compute", "memory", "storage", "accelerator",
                                                 "accelerator_point", "conditions" };
/* What the key of each table may name. */
static const char *const kind_keys[N_KINDS] = {
    "", "class", "kernel class tier pattern resident threads row_len batch", "engines pattern row threads",
    "backend direct pattern block depth lanes range class", "engine", "engine op rows cols batch", "table"
};

/* An item of table conditions. */
struct conditions {
    enum hw_table table;
    struct hw_conditions c;
};

/* Where a point came from: its first row in the file, for messages, and what it rests on. */
struct from {
    int row;
    enum hw_origin origin;
    char source[MAX_SOURCE];
};

/* The points of one table: items are structs of hwdb.h; keys are the same structs with the key fields alone, all other
 * bytes zero, so that they compare as memory. */
struct list {
    char *items, *keys;
    struct from *from;
    int n;
};

struct fact {
    char field[32];
    struct from from;
};

struct device {
    char name[HW_NAME];
    int row, n_figures, n_estimated, n_measured, n_facts, unchanged;
    char text[7][HW_TEXT]; /* text_fields */
    uint64_t memory_bytes, app_memory_limit_bytes;
    struct fact facts[9]; /* a field is there once */
    struct list lists[N_KINDS];
    struct hash *hash;
};

static const size_t item_bytes[N_KINDS] = { 0,
                                            sizeof(struct hw_class),
                                            sizeof(struct hw_compute),
                                            sizeof(struct hw_memory),
                                            sizeof(struct hw_storage),
                                            sizeof(struct hw_accel),
                                            sizeof(struct hw_accel_point),
                                            sizeof(struct conditions) };
static const int most_items[N_KINDS] = { 0, HW_MAX_CLASSES, HW_MAX_POINTS, HW_MAX_POINTS, HW_MAX_POINTS, 64, HW_MAX_POINTS,
                                         HW_TABLES };
static const char *const text_fields[7] = { "description", "soc", "cpu_model", "os", "storage_description", "filesystem",
                                            "source" };

/* One CSV row, taken apart. */
struct row {
    const struct table *t;
    int index, col[N_COLUMNS];
    const char *cell[N_COLUMNS];
    enum table_kind kind;
    int n_keys;
    char keys[MAX_KEY_TEXT]; /* cut into names and values */
    const char *key[MAX_KEYS], *val[MAX_KEYS];
    enum hw_origin origin;
    struct err *e;
    int failed;
};

static int bad(struct row *r, enum column c, const char *fmt, const char *what)
{
    if (!r->failed)
        r->failed = table_err(r->t, r->index, r->col[c], r->e, fmt, what);
    return r->failed;
}

/* ---- values ---- */

static double number(struct row *r, enum column c, const char *text)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(v) || v < 0 || isspace((unsigned char)*text)) {
        bad(r, c, "'%s' is not a number >= 0", text);
        return 0;
    }
    return v;
}

/* The row's value in the base unit of dim; > 0. */
static double quantity(struct row *r, enum dim dim)
{
    double v = number(r, VALUE, r->cell[VALUE]);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, r->cell[UNIT]) == 0 && units[i].dim == dim) {
            v *= units[i].factor;
            if (!(v > 0) || v > 1e18)
                bad(r, VALUE, "'%s' is not within 0..1e18", r->cell[VALUE]);
            return v;
        }
    bad(r, UNIT, "the unit must be that of %s", dim_names[dim]);
    return 0;
}

static int64_t integer(struct row *r, enum dim dim, double max)
{
    double v = quantity(r, dim);
    if (!r->failed && (v != floor(v) || v > max))
        bad(r, VALUE, "'%s' is not a whole number in range", r->cell[VALUE]);
    return r->failed ? 1 : (int64_t)v;
}

static void text(struct row *r, enum column c, const char *from, char *out, size_t len)
{
    size_t n = strlen(from);
    int ok = n < len;
    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)from[i] >= 0x20 && from[i] != 0x7f;
    if (!ok)
        bad(r, c, "'%.40s' is too long or has control characters", from);
    else if (!r->failed)
        memcpy(out, from, n + 1);
}

/* ---- keys ---- */

static int is_key(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = strstr(list, name); p; p = strstr(p + 1, name))
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0))
            return n > 0;
    return 0;
}

static void cut_keys(struct row *r)
{
    text(r, KEY, r->cell[KEY], r->keys, sizeof r->keys);
    char *p = r->keys;
    while (!r->failed && *p) {
        char *end = p + strcspn(p, ";"), *eq = memchr(p, '=', (size_t)(end - p));
        int more = *end == ';';
        *end = 0;
        if (!eq || eq == p || !eq[1]) {
            bad(r, KEY, "'%s' is not NAME=VALUE", p);
            return;
        }
        *eq = 0;
        if (!is_key(kind_keys[r->kind], p)) {
            r->failed = table_err(r->t, r->index, r->col[KEY], r->e, "'%s' is no part of the key of table '%s', which has: %s", p,
                                  kind_names[r->kind], kind_keys[r->kind][0] ? kind_keys[r->kind] : "nothing");
            return;
        }
        for (int i = 0; i < r->n_keys; i++)
            if (strcmp(r->key[i], p) == 0)
                bad(r, KEY, "'%s' is there twice", p);
        if (r->n_keys == MAX_KEYS) {
            bad(r, KEY, "%s", "too many parts");
            return;
        }
        r->key[r->n_keys] = p;
        r->val[r->n_keys++] = eq + 1;
        p = end + more;
    }
}

/* A part of the key; without it the default, or an error where there is none. */
static const char *key_text(struct row *r, const char *name, const char *def)
{
    for (int i = 0; i < r->n_keys; i++)
        if (strcmp(r->key[i], name) == 0)
            return r->val[i];
    if (!def)
        bad(r, KEY, "'%s=...' is missing", name);
    return def ? def : "";
}

static int key_int(struct row *r, const char *name, const char *def, int min, int max)
{
    const char *s = key_text(r, name, def);
    double v = r->failed ? min : number(r, KEY, s);
    if (!r->failed && (v != floor(v) || v < min || v > max))
        bad(r, KEY, "'%s' is not a whole number in range", s);
    return r->failed ? min : (int)v;
}

static uint64_t key_size(struct row *r, const char *name, const char *def)
{
    uint64_t v = 1;
    struct err ignored;
    const char *s = key_text(r, name, def);
    if (!r->failed && (size_parse(s, &v, &ignored) < 0 || v < 1 || v > 1ull << 40))
        bad(r, KEY, "'%s' is not a size from 1 byte to 1 TiB, such as 4KiB", s);
    return v;
}

static int key_choice(struct row *r, const char *name, const char *def, const char *a, const char *b)
{
    const char *s = key_text(r, name, def);
    if (strcmp(s, a) != 0 && strcmp(s, b) != 0)
        bad(r, KEY, strcmp(a, "seq") == 0 ? "pattern '%s' is neither seq nor random" : "'%s' is not one of the two values", s);
    return strcmp(s, b) == 0;
}

/* ---- points ---- */

/* A figure was added to a point: the weaker origin counts, different sources are joined. */
static void rest_on(const struct row *r, struct from *f)
{
    const char *s = r->cell[SOURCE];
    size_t n = strlen(f->source);
    if (n == 0 || r->origin > f->origin)
        f->origin = r->origin;
    if (!strstr(f->source, s) && n + strlen(s) + 3 < sizeof f->source)
        snprintf(f->source + n, sizeof f->source - n, "%s%s", n ? "; " : "", s);
}

static int grow(struct list *l, size_t size)
{
    size_t cap = l->n ? 2 * (size_t)l->n : 1;
    void *items = realloc(l->items, cap * size);
    l->items = items ? items : l->items;
    void *keys = realloc(l->keys, cap * size);
    l->keys = keys ? keys : l->keys;
    struct from *from = realloc(l->from, cap * sizeof *from);
    l->from = from ? from : l->from;
    return items && keys && from ? 0 : -1;
}

/* The point with this key, made when there is none; what the row rests on is noted with it. NULL: failed. */
static void *point(struct row *r, struct device *d, const void *key)
{
    struct list *l = &d->lists[r->kind];
    size_t size = item_bytes[r->kind];
    int i = 0;
    if (r->failed)
        return NULL;
    while (i < l->n && memcmp(l->keys + (size_t)i * size, key, size) != 0)
        i++;
    if (i == most_items[r->kind]) {
        bad(r, KEY, "too many points in table '%s'", kind_names[r->kind]);
        return NULL;
    }
    if (i == l->n) {
        if ((l->n & (l->n - 1)) == 0 && grow(l, size) < 0) { /* full at powers of two */
            r->failed = err_set(r->e, ERR_NOMEM, "import: out of memory");
            return NULL;
        }
        memcpy(l->items + (size_t)i * size, key, size);
        memcpy(l->keys + (size_t)i * size, key, size);
        memset(&l->from[i], 0, sizeof *l->from);
        l->from[i].row = r->index;
        l->n++;
    }
    rest_on(r, &l->from[i]);
    return l->items + (size_t)i * size;
}

static int find_class(struct row *r, const struct device *d)
{
    const char *name = key_text(r, "class", "");
    const struct hw_class *c = (const void *)d->lists[T_CLASS].items;
    for (int i = 0; *name && i < d->lists[T_CLASS].n; i++)
        if (strcmp(c[i].name, name) == 0)
            return i;
    if (*name)
        bad(r, KEY, "core class '%s' has no row of table core_class above", name);
    return -1;
}

/* ---- tables ---- */

static int set_dist(struct row *r, const char *name, enum dim dim, struct hw_dist *d)
{
    const char *f = r->cell[FIELD];
    size_t n = strlen(name);
    if (strncmp(f, name, n) != 0)
        return 0;
    double *to = f[n] == 0 || strcmp(f + n, "_p50") == 0 ? &d->p50
                 : strcmp(f + n, "_p10") == 0            ? &d->p10
                 : strcmp(f + n, "_p90") == 0            ? &d->p90
                                                         : NULL;
    if (!to)
        return 0;
    if (*to > 0)
        bad(r, FIELD, "'%s' of this key was given above", f);
    *to = quantity(r, dim);
    return 1;
}

static int set_number(struct row *r, const char *name, enum dim dim, double *to)
{
    if (strcmp(r->cell[FIELD], name) != 0)
        return 0;
    if (*to > 0)
        bad(r, FIELD, "'%s' of this key was given above", name);
    *to = quantity(r, dim);
    return 1;
}

static void unknown_field(struct row *r, const char *known)
{
    if (!r->failed)
        r->failed = table_err(r->t, r->index, r->col[FIELD], r->e, "'%.40s' is no field of table '%s', which has: %s",
                              r->cell[FIELD], kind_names[r->kind], known);
}

static void on_device(struct row *r, struct device *d)
{
    const char *f = r->cell[FIELD];
    for (int i = 0; i < d->n_facts; i++)
        if (strcmp(d->facts[i].field, f) == 0)
            bad(r, FIELD, "'%s' was given above", f);
    if (strcmp(f, "memory_bytes") == 0) {
        d->memory_bytes = (uint64_t)integer(r, BYTES, 1e16);
    } else if (strcmp(f, "app_memory_limit_bytes") == 0) {
        d->app_memory_limit_bytes = (uint64_t)integer(r, BYTES, 1e16);
    } else {
        int k = 0;
        while (k < 7 && strcmp(text_fields[k], f) != 0)
            k++;
        if (k == 7) {
            unknown_field(r, "memory_bytes app_memory_limit_bytes description soc cpu_model os storage_description "
                             "filesystem source");
            return;
        }
        if (r->cell[UNIT][0])
            bad(r, UNIT, "a text has no unit ('%s')", r->cell[UNIT]);
        text(r, VALUE, r->cell[VALUE], d->text[k], HW_TEXT);
    }
    if (r->failed)
        return;
    struct fact *fact = &d->facts[d->n_facts++];
    snprintf(fact->field, sizeof fact->field, "%.31s", f);
    rest_on(r, &fact->from);
}

static void on_class(struct row *r, struct device *d)
{
    struct hw_class key;
    memset(&key, 0, sizeof key);
    text(r, KEY, key_text(r, "class", NULL), key.name, sizeof key.name);
    struct hw_class *c = point(r, d, &key);
    if (!c)
        return;
    if (strcmp(r->cell[FIELD], "n_cores") == 0 ? c->n_cores > 0 : c->max_hz > 0 && strcmp(r->cell[FIELD], "max_hz") == 0)
        bad(r, FIELD, "'%s' of this key was given above", r->cell[FIELD]);
    else if (strcmp(r->cell[FIELD], "n_cores") == 0)
        c->n_cores = (int)integer(r, COUNT, 65536);
    else if (strcmp(r->cell[FIELD], "max_hz") == 0)
        c->max_hz = (uint64_t)integer(r, HZ, 1e12);
    else
        unknown_field(r, "n_cores max_hz");
}

static void on_compute(struct row *r, struct device *d)
{
    struct hw_compute key;
    memset(&key, 0, sizeof key);
    key.core_class = find_class(r, d);
    text(r, KEY, key_text(r, "kernel", NULL), key.kernel, sizeof key.kernel);
    text(r, KEY, key_text(r, "tier", "unknown"), key.tier, sizeof key.tier);
    int stated = strncmp(key.kernel, "flops/", 6) == 0;
    key.pattern = (enum hw_pattern)key_choice(r, "pattern", "seq", "seq", "random");
    key.dram = key_choice(r, "resident", "cache", "cache", "dram");
    key.threads = key_int(r, "threads", "1", 1, 65536);
    key.row_len = key_int(r, "row_len", stated ? "0" : NULL, !stated, 1 << 20);
    key.batch = key_int(r, "batch", "1", 1, 65536);
    struct hw_compute *p = point(r, d, &key);
    if (p && strcmp(r->cell[FIELD], "rows") == 0) {
        if (p->rows > 0)
            bad(r, FIELD, "'%s' of this key was given above", "rows");
        p->rows = (int)integer(r, COUNT, INT32_MAX);
    } else if (p && !set_dist(r, "ns_per_row", NS, &p->ns_per_row) &&
               !set_number(r, "flops_per_s", FLOPS_PER_S, &p->flops_per_s)) {
        unknown_field(r, "ns_per_row ns_per_row_p10 ns_per_row_p90 flops_per_s rows");
    }
}

static void on_memory(struct row *r, struct device *d)
{
    struct hw_memory key;
    memset(&key, 0, sizeof key);
    text(r, KEY, key_text(r, "engines", "cpu"), key.engines, sizeof key.engines);
    key.pattern = (enum hw_pattern)key_choice(r, "pattern", "seq", "seq", "random");
    key.row_bytes = key_size(r, "row", "64KiB");
    key.threads = key_int(r, "threads", "0", 0, 65536);
    struct hw_memory *p = point(r, d, &key);
    if (p && !set_dist(r, "bytes_per_s", BYTES_PER_S, &p->bytes_per_s))
        unknown_field(r, "bytes_per_s bytes_per_s_p10 bytes_per_s_p90");
}

static void on_storage(struct row *r, struct device *d)
{
    struct hw_storage key;
    memset(&key, 0, sizeof key);
    key.core_class = find_class(r, d);
    key.backend = (enum hw_backend)key_choice(r, "backend", "io_uring", "pread", "io_uring");
    key.direct = key_choice(r, "direct", "1", "0", "1");
    key.pattern = (enum hw_pattern)key_choice(r, "pattern", NULL, "seq", "random");
    key.block_bytes = key_size(r, "block", NULL);
    key.queue_depth = key_int(r, "depth", NULL, 1, 65536);
    key.lanes = key_int(r, "lanes", "1", 1, 65536);
    key.range_bytes = key_size(r, "range", NULL);
    struct hw_storage *p = point(r, d, &key);
    if (p && strcmp(r->cell[FIELD], "page_bytes") == 0)
        p->page_bytes = (uint64_t)integer(r, BYTES, 1e12);
    else if (p && !set_dist(r, "bytes_per_s", BYTES_PER_S, &p->bytes_per_s) &&
        !set_number(r, "latency_ns_p50", NS, &p->latency_ns_p50) &&
        !set_number(r, "latency_ns_p99", NS, &p->latency_ns_p99) &&
        !set_number(r, "cpu_ns_per_read", NS, &p->cpu_ns_per_read) &&
        !set_number(r, "batch_completion_share", COUNT, &p->batch_completion_share) &&
        !set_number(r, "uncached_destination_ratio", COUNT, &p->uncached_destination_ratio))
        unknown_field(r, "bytes_per_s bytes_per_s_p10 bytes_per_s_p90 latency_ns_p50 latency_ns_p99 cpu_ns_per_read "
                         "batch_completion_share uncached_destination_ratio page_bytes");
    if (!r->failed && (p->batch_completion_share > 1 || p->uncached_destination_ratio > 1))
        bad(r, VALUE, "'%s' is not within 0..1", r->cell[VALUE]);
}

static void on_accel(struct row *r, struct device *d)
{
    struct hw_accel key;
    memset(&key, 0, sizeof key);
    text(r, KEY, key_text(r, "engine", NULL), key.engine, sizeof key.engine);
    struct hw_accel *p = point(r, d, &key);
    if (!p)
        return;
    if (strcmp(r->cell[FIELD], "description") == 0)
        text(r, VALUE, r->cell[VALUE], p->description, sizeof p->description);
    else if (strcmp(r->cell[FIELD], "addressable_bytes") == 0)
        p->addressable_bytes = (uint64_t)integer(r, BYTES, 1e16);
    else if (strcmp(r->cell[FIELD], "driver_bytes") == 0)
        p->driver_bytes = (uint64_t)integer(r, BYTES, 1e16);
    else if (strcmp(r->cell[FIELD], "shares_memory") == 0)
        p->shares_memory = number(r, VALUE, r->cell[VALUE]) != 0;
    else if (!set_number(r, "launch_ns", NS, &p->launch_ns))
        unknown_field(r, "description addressable_bytes launch_ns shares_memory driver_bytes");
}

static void on_accel_point(struct row *r, struct device *d)
{
    struct hw_accel_point key;
    const struct hw_accel *a = (const void *)d->lists[T_ACCEL].items;
    const char *engine = key_text(r, "engine", NULL);
    memset(&key, 0, sizeof key);
    key.accel = -1;
    for (int k = 0; k < d->lists[T_ACCEL].n; k++)
        if (strcmp(a[k].engine, engine) == 0)
            key.accel = k;
    if (key.accel < 0)
        bad(r, KEY, "accelerator '%s' has no row of table accelerator above", engine);
    text(r, KEY, key_text(r, "op", NULL), key.op, sizeof key.op);
    key.rows = key_int(r, "rows", NULL, 1, 1 << 24);
    key.cols = key_int(r, "cols", NULL, 1, 1 << 24);
    key.batch = key_int(r, "batch", "1", 1, 65536);
    struct hw_accel_point *p = point(r, d, &key);
    if (p && !set_dist(r, "ns", NS, &p->ns))
        unknown_field(r, "ns ns_p10 ns_p90");
}

static void on_conditions(struct row *r, struct device *d)
{
    struct conditions key;
    const char *table = key_text(r, "table", NULL), *f = r->cell[FIELD];
    int t = 0;
    memset(&key, 0, sizeof key);
    while (t < HW_TABLES && strcmp(hw_table_name((enum hw_table)t), table) != 0)
        t++;
    if (t == HW_TABLES)
        bad(r, KEY, "table '%s' is none of compute, memory, storage, accelerator", table);
    key.table = (enum hw_table)t;
    struct conditions *p = point(r, d, &key);
    if (!p)
        return;
    double repeated = 0;
    int is_text = strcmp(f, "measured_at") == 0 || strcmp(f, "marks") == 0;
    if (is_text && r->cell[UNIT][0])
        bad(r, UNIT, "a text has no unit ('%s')", r->cell[UNIT]);
    if (strcmp(f, "measured_at") == 0) {
        text(r, VALUE, r->cell[VALUE], p->c.measured_at, sizeof p->c.measured_at);
        if (!r->failed && hw_time_of(p->c.measured_at) < 0)
            bad(r, VALUE, "'%s' is not a time such as 2024-11-21T09:47:00Z", r->cell[VALUE]);
    } else if (strcmp(f, "marks") == 0) {
        p->c.watched = 1;
        if (hw_marks_of(r->cell[VALUE], &p->c.marks) < 0)
            bad(r, VALUE, "'%.60s' is neither clean nor a list of others, stolen, waited, memory, spread", r->cell[VALUE]);
    } else if (set_number(r, "repeated", COUNT, &repeated)) {
        p->c.repeated = repeated < 1e9 ? (int)repeated : 1000000000;
    } else if (!set_number(r, "others", COUNT, &p->c.others) && !set_number(r, "stolen", COUNT, &p->c.stolen) &&
               !set_number(r, "waited_for_cpu", COUNT, &p->c.waited_for_cpu) &&
               !set_number(r, "short_of_memory", COUNT, &p->c.short_of_memory) &&
               !set_number(r, "spread", COUNT, &p->c.spread) && !set_number(r, "disturbed", COUNT, &p->c.disturbed) &&
               !set_number(r, "paused_s", COUNT, &p->c.paused_s)) {
        unknown_field(r, "measured_at marks others stolen waited_for_cpu short_of_memory spread disturbed repeated paused_s");
    }
    if (!r->failed && p->c.disturbed > 1)
        bad(r, VALUE, "'%s' is more than the whole", r->cell[VALUE]);
}

/* ---- the file ---- */

struct args {
    const char *db, *csv;
    int json;
    double wait;
};

struct import {
    struct table *t;
    struct device *devices;
    int n;
};

static void free_devices(struct import *im)
{
    for (int i = 0; i < im->n; i++) {
        for (int k = 0; k < N_KINDS; k++) {
            free(im->devices[i].lists[k].items);
            free(im->devices[i].lists[k].keys);
            free(im->devices[i].lists[k].from);
        }
        hash_free(im->devices[i].hash);
    }
    free(im->devices);
    table_free(im->t);
}

static struct device *find_device(struct import *im, struct row *r)
{
    char name[HW_NAME] = "";
    text(r, DEVICE, r->cell[DEVICE], name, sizeof name);
    if (!r->failed && !name[0])
        bad(r, DEVICE, "%s", "a name is missing");
    if (r->failed)
        return NULL;
    for (int i = 0; i < im->n; i++)
        if (strcmp(im->devices[i].name, name) == 0)
            return &im->devices[i];
    struct device *grown = realloc(im->devices, ((size_t)im->n + 1) * sizeof *grown);
    if (grown)
        im->devices = grown;
    struct hash *hash = grown ? hash_new() : NULL;
    if (!hash) {
        r->failed = err_set(r->e, ERR_NOMEM, "import: out of memory");
        return NULL;
    }
    struct device *d = &im->devices[im->n++];
    memset(d, 0, sizeof *d);
    memcpy(d->name, name, sizeof name);
    d->row = r->index;
    d->hash = hash;
    return d;
}

/* Well-formed UTF-8: no stray, missing or overlong bytes, no surrogates. */
static int is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1
                               : (*p & 0xf0) == 0xe0       ? 2
                               : *p >= 0xf0 && *p < 0xf5   ? 3
                                                           : -1;
        if (more < 0 || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f))
            return 0;
        for (p++; more > 0; more--, p++)
            if ((*p & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

static int read_row(struct import *im, struct row *r)
{
    static void (*const on[N_KINDS])(struct row *, struct device *) = { on_device, on_class, on_compute, on_memory,
                                                                        on_storage, on_accel, on_accel_point,
                                                                        on_conditions };
    int kind = 0;
    for (int c = 0; c < N_COLUMNS; c++)
        r->cell[c] = table_cell(im->t, r->index, r->col[c], NULL);
    for (int c = 0; c < N_COLUMNS; c++)
        if (!is_utf8(r->cell[c]))
            return bad(r, (enum column)c, "%s", "not UTF-8");
    struct device *d = find_device(im, r);
    while (kind < N_KINDS && strcmp(kind_names[kind], r->cell[TABLE]) != 0)
        kind++;
    if (kind == N_KINDS)
        bad(r, TABLE, "'%s' is none of device, core_class, compute, memory, storage, accelerator, accelerator_point, conditions",
            r->cell[TABLE]);
    int origin = HW_MEASURED;
    while (origin <= HW_ESTIMATED && strcmp(hw_origin_name((enum hw_origin)origin), r->cell[ORIGIN]) != 0)
        origin++;
    if (origin > HW_ESTIMATED)
        bad(r, ORIGIN, "'%s' is none of measured, published, estimated", r->cell[ORIGIN]);
    if (!r->cell[SOURCE][0])
        bad(r, SOURCE, "%s", "where the figure comes from is missing");
    char source[MAX_SOURCE];
    text(r, SOURCE, r->cell[SOURCE], source, sizeof source);
    if (r->failed)
        return r->failed;
    r->kind = (enum table_kind)kind;
    r->origin = (enum hw_origin)origin;
    cut_keys(r);
    if (!r->failed)
        on[kind](r, d);
    d->n_figures++;
    d->n_estimated += r->origin == HW_ESTIMATED;
    d->n_measured += r->origin == HW_MEASURED;
    for (int c = 0; c < N_COLUMNS; c++)
        hash_update_str(d->hash, r->cell[c]);
    return r->failed;
}

/* Points whose main figure no row gave. */
static int check_whole(struct import *im, const int *col, struct err *e)
{
    for (int i = 0; i < im->n; i++) {
        const struct device *d = &im->devices[i];
        for (int kind = T_CLASS; kind < N_KINDS; kind++)
            for (int k = 0; k < d->lists[kind].n; k++) {
                const char *item = d->lists[kind].items + (size_t)k * item_bytes[kind], *missing = NULL;
                struct hw_compute *c = (void *)item;
                if (kind == T_CLASS && !((const struct hw_class *)(const void *)item)->n_cores)
                    missing = "n_cores";
                else if (kind == T_COMPUTE && c->row_len == 0 && !(c->flops_per_s > 0))
                    missing = "flops_per_s";
                else if (kind == T_COMPUTE && c->row_len > 0 && !(c->ns_per_row.p50 > 0))
                    missing = "ns_per_row";
                else if (kind == T_COMPUTE && c->row_len > 0 && !(c->flops_per_s > 0))
                    c->flops_per_s = 2e9 * c->row_len * c->batch / c->ns_per_row.p50;
                else if (kind == T_MEMORY && !(((const struct hw_memory *)(const void *)item)->bytes_per_s.p50 > 0))
                    missing = "bytes_per_s";
                else if (kind == T_STORAGE && !(((const struct hw_storage *)(const void *)item)->bytes_per_s.p50 > 0))
                    missing = "bytes_per_s";
                else if (kind == T_ACCEL_POINT && !(((const struct hw_accel_point *)(const void *)item)->ns.p50 > 0))
                    missing = "ns";
                else if (kind == T_CONDITIONS && !((const struct conditions *)(const void *)item)->c.measured_at[0])
                    missing = "measured_at";
                if (missing)
                    return table_err(im->t, d->lists[kind].from[k].row, col[KEY], e, "no row gives '%s' for this key",
                                     missing);
            }
    }
    return 0;
}

static int read_csv(const char *path, struct import *im, struct err *e)
{
    int col[N_COLUMNS], r = table_read(path, &im->t, e);
    for (int c = 0; c < N_COLUMNS && r == 0; c++)
        r = table_need(im->t, column_names[c], &col[c], e);
    for (int i = 0; r == 0 && i < table_rows(im->t); i++) {
        struct row row = { .t = im->t, .index = i, .e = e };
        memcpy(row.col, col, sizeof col);
        r = read_row(im, &row);
    }
    return r < 0 ? r : check_whole(im, col, e);
}

/* ---- into the database ---- */

static int add_points(const struct device *d, struct hwdb *db, struct err *e)
{
    int r = 0;
    for (int kind = T_CLASS; kind < N_KINDS; kind++)
        for (int k = 0; k < d->lists[kind].n && r == 0; k++) {
            void *item = d->lists[kind].items + (size_t)k * item_bytes[kind];
            const struct from *f = &d->lists[kind].from[k];
            switch (kind) {
            case T_CLASS:
                ((struct hw_class *)item)->origin = f->origin;
                r = hwdb_add_class(db, item, f->source, e);
                break;
            case T_COMPUTE:
                ((struct hw_compute *)item)->origin = f->origin;
                r = hwdb_add_compute(db, item, f->source, NULL, 0, e);
                break;
            case T_MEMORY:
                ((struct hw_memory *)item)->origin = f->origin;
                r = hwdb_add_memory(db, item, f->source, NULL, 0, e);
                break;
            case T_STORAGE:
                ((struct hw_storage *)item)->origin = f->origin;
                r = hwdb_add_storage(db, item, f->source, NULL, 0, e);
                break;
            case T_ACCEL:
                ((struct hw_accel *)item)->origin = f->origin;
                r = hwdb_add_accel(db, item, f->source, e);
                break;
            case T_CONDITIONS:
                r = hwdb_add_conditions(db, ((struct conditions *)item)->table, &((struct conditions *)item)->c, e);
                break;
            default:
                ((struct hw_accel_point *)item)->origin = f->origin;
                r = hwdb_add_accel_point(db, item, f->source, NULL, 0, e);
            }
        }
    for (int i = 0; i < d->n_facts && r == 0; i++)
        r = hwdb_add_fact_source(db, d->facts[i].field, d->facts[i].from.origin, d->facts[i].from.source, e);
    return r;
}

static const char *given(const char *s)
{
    return s[0] ? s : NULL;
}

static int enter(struct device *d, struct hwdb *db, const char *csv, int *unchanged, struct err *e)
{
    char now[32] = "", hash[HASH_TEXT];
    time_t t = time(NULL);
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &tm);
    hash_text(hash_final128(d->hash), hash);
    struct hwdb_device device = { .name = d->name, .description = given(d->text[0]), .soc = given(d->text[1]),
                                  .cpu_model = given(d->text[2]), .os = given(d->text[3]), .storage = given(d->text[4]),
                                  .filesystem = given(d->text[5]), .source = given(d->text[6]),
                                  .memory_bytes = d->memory_bytes, .app_memory_limit_bytes = d->app_memory_limit_bytes,
                                  .origin = d->n_estimated == d->n_figures ? HW_ESTIMATED :
                                            d->n_measured == d->n_figures  ? HW_MEASURED :
                                                                             HW_PUBLISHED };
    struct hwdb_run run = { .started_at = now, .tool_version = THERMO_VERSION, .command = csv, .temperature_c = NAN,
                            .direct_verified = -1, .content_hash = hash, .notes = "imported figures" };
    int r = hwdb_begin(db, &device, &run, unchanged, e);
    if (r < 0 || *unchanged)
        return r;
    return add_points(d, db, e);
}

static struct js *entered(const struct device *d, int unchanged, int json)
{
    struct js *o = js_object();
    js_set_str(o, "device", d->name);
    js_set_int(o, "figures", d->n_figures);
    js_set_int(o, "estimated", d->n_estimated);
    js_set_bool(o, "unchanged", unchanged);
    if (!json)
        print("%s: %d figures, %d of them estimated%s\n", d->name, d->n_figures, d->n_estimated,
               unchanged ? "; already there, unchanged" : "");
    return o;
}

/* All devices of the file or none; what is said of them is said once they are there. */
static int enter_all(struct import *im, const struct args *a, struct err *e)
{
    struct hwdb *db = NULL;
    struct js *root = js_object(), *list = js_array();
    int r = hwdb_open(a->db, &db, e);
    if (r == 0)
        hwdb_wait(db, a->wait);
    for (int i = 0; i < im->n && r == 0; i++)
        r = enter(&im->devices[i], db, a->csv, &im->devices[i].unchanged, e);
    if (r == 0)
        r = hwdb_commit(db, e);
    hwdb_close(db);
    for (int i = 0; i < im->n && r == 0; i++)
        js_append(list, entered(&im->devices[i], im->devices[i].unchanged, a->json));
    js_set(root, "devices", list);
    if (r == 0 && a->json)
        r = js_print(stdout, root, 2, 0, e);
    js_free(root);
    return r;
}

int cmd_import(int argc, char **argv)
{
    struct args a = { .wait = HWDB_WAIT_S };
    int n_pos;
    struct err e = { 0 };
    struct import im = { 0 };
    const struct opt opts[] = {
        { .name = "db", .type = OPT_STRING, .dest = &a.db, .arg = "FILE", .required = 1, .file = OPT_UPDATE_DB,
          .help = "Hardware database to enter the figures into; created when it is not there." },
        { .name = "csv", .type = OPT_STRING, .dest = &a.csv, .arg = "FILE", .required = 1, .file = OPT_READ,
          .help = "Device figures; datasets/devices/README.md describes the columns." },
        { .name = "wait", .type = OPT_DOUBLE, .dest = &a.wait, .arg = "S", .max = 86400,
          .help = "Seconds to wait where another program holds the database locked, before giving up.", .def = "60" },
        { .name = "json", .type = OPT_FLAG, .dest = &a.json, .help = "Say what was entered as JSON." },
        { 0 },
    };
    static const struct opt_usage usage = {
        .program = "thermo-profile import",
        .synopsis = "",
        .about = "Enters figures of devices that are not at hand, published, estimated, or measured elsewhere and written by "
                 "export, so that a planner can plan for a phone one has not got. The CSV has a figure a row, in columns device, "
                 "table, key, field, value, unit, origin (measured, published or estimated) and source. Importing a file "
                 "again changes nothing; importing a changed file replaces the device's figures.",
        .examples = "thermo-profile import --db hw.sqlite --csv datasets/devices/oneplus-12.csv\n"
                    "thermo-profile show hw.sqlite",
    };
    int r = opt_parse(opts, &usage, argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && n_pos > 0)
        r = err_set(&e, ERR_USAGE, "unexpected argument '%s'", argv[1]);
    if (r == 0 && (r = read_csv(a.csv, &im, &e)) == 0)
        r = im.n ? enter_all(&im, &a, &e) : err_set(&e, ERR_FORMAT, "'%s' has no rows", a.csv);
    free_devices(&im);
    return r < 0 ? opt_fail(&e) : 0;
}
