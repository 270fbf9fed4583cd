/* `thermo-profile import`: figures of devices one has not got, from CSV, one figure a row. The whole file is understood
 * before the database is touched, and all its devices are entered in one transaction. A row's key is a list of NAME=VALUE;
 * keys and fields are those of the database's tables (hwdb_parts.h). */
#include "profiler/cmd.h"

#include "common/base/hash.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/hwdb/hwdb_parts.h"
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

static const struct {
    const char *name, *base; /* base: of the unit that columns have */
    double factor;
} units[] = {
    { "", "", 1 },
    { "B", "B", 1 },
    { "kB", "B", 1e3 },
    { "KB", "B", 1e3 },
    { "MB", "B", 1e6 },
    { "GB", "B", 1e9 },
    { "TB", "B", 1e12 },
    { "KiB", "B", 0x1p10 },
    { "MiB", "B", 0x1p20 },
    { "GiB", "B", 0x1p30 },
    { "TiB", "B", 0x1p40 },
    { "B/s", "B/s", 1 },
    { "kB/s", "B/s", 1e3 },
    { "MB/s", "B/s", 1e6 },
    { "GB/s", "B/s", 1e9 },
    { "KiB/s", "B/s", 0x1p10 },
    { "MiB/s", "B/s", 0x1p20 },
    { "GiB/s", "B/s", 0x1p30 },
    { "Hz", "Hz", 1 },
    { "MHz", "Hz", 1e6 },
    { "GHz", "Hz", 1e9 },
    { "ns", "ns", 1 },
    { "us", "ns", 1e3 },
    { "ms", "ns", 1e6 },
    { "s", "ns", 1e9 },
    { "FLOP/s", "FLOP/s", 1 },
    { "MFLOP/s", "FLOP/s", 1e6 },
    { "GFLOP/s", "FLOP/s", 1e9 },
    { "TFLOP/s", "FLOP/s", 1e12 },
};
static const char *const unit_kinds[][2] = {
    { "", "nothing (a plain number)" }, { "B", "bytes (B, kB, MB, GB, KiB, MiB, GiB)" },
    { "B/s", "a rate (B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)" }, { "Hz", "a frequency (Hz, MHz, GHz)" },
    { "ns", "a time (ns, us, ms, s)" }, { "FLOP/s", "an arithmetic rate (FLOP/s, MFLOP/s, GFLOP/s, TFLOP/s)" },
};

/* Where a point came from: its first row in the file, for messages, and what it rests on. */
struct from {
    int row;
    enum hw_origin origin;
    char source[MAX_SOURCE];
    struct hwdb_samples samples;
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
    int row, n_figures, n_estimated, n_measured, n_facts, unchanged;
    struct hw hw; /* its own fields */
    struct fact facts[16]; /* a field is there once */
    struct list lists[HWDB_KINDS];
    struct hash *hash;
};

/* One CSV row, taken apart. */
struct row {
    const struct table *t;
    int index, col[N_COLUMNS];
    const char *cell[N_COLUMNS];
    enum hwdb_kind kind;
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

/* The row's value in the field's unit; > 0. */
static double quantity(struct row *r, const struct hwdb_field *f)
{
    const char *unit = hwdb_unit(f);
    double v = number(r, VALUE, r->cell[VALUE]), max = f->max == INT64_MAX ? 1e18 : (double)f->max;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, r->cell[UNIT]) == 0 && strcmp(units[i].base, unit) == 0) {
            v *= units[i].factor;
            if ((!(v > 0) || v > max) && !r->failed)
                r->failed = table_err(r->t, r->index, r->col[VALUE], r->e, "'%s' is not within 0..%g", r->cell[VALUE], max);
            return v;
        }
    for (size_t i = 0; i < sizeof unit_kinds / sizeof *unit_kinds; i++)
        if (strcmp(unit_kinds[i][0], unit) == 0)
            bad(r, UNIT, "the unit must be that of %s", unit_kinds[i][1]);
    return 0;
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

/* What a CSV calls a table's keys, or its other fields, with blanks between them. The row's device has no key, and names itself. */
static void list_fields(enum hwdb_kind k, unsigned keys, char out[400])
{
    const struct hwdb_table *t = hwdb_table(k);
    int n = 0;
    *out = 0;
    for (int i = 0; i < t->n; i++)
        if ((t->fields[i].flags & HWDB_KEY) == keys && strcmp(t->fields[i].csv, "origin") != 0 && !(keys && k == HWDB_DEVICE))
            n += snprintf(out + n, (size_t)(400 - n), "%s%s", n ? " " : "", t->fields[i].csv);
}

static const struct hwdb_field *find_field(enum hwdb_kind k, unsigned keys, const char *name)
{
    const struct hwdb_table *t = hwdb_table(k);
    for (int i = 0; i < t->n; i++)
        if ((t->fields[i].flags & HWDB_KEY) == keys && strcmp(t->fields[i].csv, "origin") != 0 && !(keys && k == HWDB_DEVICE) &&
            (strcmp(t->fields[i].csv, name) == 0 || (!keys && strcmp(t->fields[i].column, name) == 0)))
            return &t->fields[i];
    return NULL;
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
        if (!find_field(r->kind, HWDB_KEY, p)) {
            char known[400];
            list_fields(r->kind, HWDB_KEY, known);
            r->failed = table_err(r->t, r->index, r->col[KEY], r->e, "'%s' is no part of the key of table '%s', which has: %s", p,
                                  hwdb_table(r->kind)->name, known[0] ? known : "nothing");
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

static int64_t key_whole(struct row *r, const struct hwdb_field *f, const char *s)
{
    uint64_t size = 1;
    struct err ignored;
    if (r->failed)
        return f->min;
    if (strcmp(hwdb_unit(f), "B") == 0) {
        if (size_parse(s, &size, &ignored) < 0 || size < 1 || size > 1ull << 40)
            bad(r, KEY, "'%s' is not a size from 1 byte to 1 TiB, such as 4KiB", s);
        return (int64_t)size;
    }
    double v = number(r, KEY, s);
    if (!r->failed && (v != floor(v) || v < (double)f->min || v > (double)f->max))
        bad(r, KEY, "'%s' is not a whole number in range", s);
    return r->failed ? f->min : (int64_t)v;
}

static int64_t key_choice(struct row *r, const struct hwdb_field *f, const char *s)
{
    int i = hwdb_choice_of(f, s);
    if (i < 0 && !r->failed)
        r->failed = table_err(r->t, r->index, r->col[KEY], r->e, "%s '%s' is none of: %s", f->csv, s, f->names);
    return i < 0 ? 0 : i;
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
static void *point(struct row *r, struct device *d, const void *key, struct hwdb_samples **samples)
{
    struct list *l = &d->lists[r->kind];
    size_t size = hwdb_table(r->kind)->size;
    int i = 0;
    if (r->failed)
        return NULL;
    while (i < l->n && memcmp(l->keys + (size_t)i * size, key, size) != 0)
        i++;
    if (i == hwdb_table(r->kind)->most) {
        bad(r, KEY, "too many points in table '%s'", hwdb_table(r->kind)->name);
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
    *samples = &l->from[i].samples;
    return l->items + (size_t)i * size;
}

/* Which item of another table a key names, by that table's own name; it has to be there before. */
static int find_item(struct row *r, const struct device *d, enum hwdb_kind k, const char *what, const char *name)
{
    const struct hwdb_table *t = hwdb_table(k);
    const struct list *l = &d->lists[k];
    for (int i = 0; *name && i < l->n; i++)
        if (strcmp(hwdb_at(&t->fields[0], l->items + (size_t)i * t->size), name) == 0)
            return i;
    if (*name && !r->failed)
        r->failed = table_err(r->t, r->index, r->col[KEY], r->e, "%s '%s' has no row of table %s above", what, name, t->name);
    return -1;
}

static void set_key(struct row *r, const struct device *d, const struct hwdb_field *f, void *key)
{
    const char *s = key_text(r, f->csv, f->standard ? f->standard : f->flags & HWDB_NEED ? NULL : "");
    if (f->type == HWDB_TEXT)
        text(r, KEY, s, hwdb_at(f, key), f->size);
    else
        hwdb_set(f, key, f->type == HWDB_CHOICE ? key_choice(r, f, s) :
                         f->type == HWDB_CLASS  ? find_item(r, d, HWDB_CORE_CLASS, "core class", s) :
                         f->type == HWDB_ACCEL  ? find_item(r, d, HWDB_ACCELERATOR, "accelerator", s) : key_whole(r, f, s));
}

/* The item that the row's key names; NULL: failed. */
static void *find_point(struct row *r, struct device *d, struct hwdb_samples **samples)
{
    const struct hwdb_table *t = hwdb_table(r->kind);
    union {
        struct hw_class cores;
        struct hw_compute compute;
        struct hw_storage storage;
        struct hw_accel accel;
        struct hw_accel_point accel_point;
        struct hw_joint joint;
        struct hw_memory memory;
        struct hw_conditions conditions;
    } key;
    memset(&key, 0, sizeof key);
    for (int i = 0; i < t->n; i++)
        if (t->fields[i].flags & HWDB_KEY)
            set_key(r, d, &t->fields[i], &key);
    if (r->kind == HWDB_COMPUTE && key.compute.row_len == 0 && strncmp(key.compute.kernel, "flops/", 6) != 0)
        bad(r, KEY, "'%s=...' is missing", "row_len");
    return point(r, d, &key, samples);
}

static void set_text(struct row *r, const struct hwdb_field *f, void *item)
{
    if (r->cell[UNIT][0])
        bad(r, UNIT, "a text has no unit ('%s')", r->cell[UNIT]);
    if (f->type == HWDB_MARKS) {
        struct hw_conditions *c = item;
        c->watched = 1;
        if (hw_marks_of(r->cell[VALUE], &c->marks) < 0)
            bad(r, VALUE, "'%.60s' is neither clean nor a list of others, stolen, waited, memory, spread", r->cell[VALUE]);
        return;
    }
    text(r, VALUE, r->cell[VALUE], hwdb_at(f, item), f->size);
    if (!r->failed && strcmp(f->column, "measured_at") == 0 && hw_time_of(r->cell[VALUE]) < 0)
        bad(r, VALUE, "'%s' is not a time such as 2024-11-21T09:47:00Z", r->cell[VALUE]);
}

/* VALUE@SECONDS or VALUE@SECONDS@CELSIUS, with a space between samples: as export writes them. */
static void set_samples(struct row *r, struct hwdb_samples *out)
{
    const char *at = r->cell[VALUE];
    if (out->s) {
        bad(r, FIELD, "'%s' of this key was given above", r->cell[FIELD]);
        return;
    }
    if (strcmp(r->cell[UNIT], hwdb_table(r->kind)->sample) != 0)
        bad(r, UNIT, "the unit of samples is '%s' here", hwdb_table(r->kind)->sample);
    for (int more = 1; more && !r->failed; at++) {
        double v[3] = { 0, 0, NAN };
        int n = 0;
        char *end = NULL;
        for (; n < 3; at = end + 1) {
            v[n++] = strtod(at, &end);
            if (end == at || isspace((unsigned char)*at) || *end != '@')
                break;
        }
        more = *end == ' ';
        if (end == at || isspace((unsigned char)*at) || (*end && !more) || n < 2 || !(v[0] > 0 && v[0] <= 1e18) ||
            !(v[1] >= 0 && v[1] <= 1e9) || (n == 3 && !(v[2] > -300 && v[2] < 1000)) || out->n == HW_MAX_SAMPLES) {
            bad(r, VALUE, "'%.40s' is no list of samples VALUE@SECONDS[@CELSIUS]", r->cell[VALUE]);
            return;
        }
        if ((out->n & (out->n - 1)) == 0) {
            struct hwdb_sample *s = realloc(out->s, (out->n ? 2 * (size_t)out->n : 1) * sizeof *s);
            if (!s) {
                r->failed = err_set(r->e, ERR_NOMEM, "import: out of memory");
                return;
            }
            out->s = s;
        }
        out->s[out->n++] = (struct hwdb_sample){ v[0], v[1], v[2] };
        at = end;
    }
}

static void set_field(struct row *r, void *item)
{
    const struct hwdb_field *f = find_field(r->kind, 0, r->cell[FIELD]);
    if (!f) {
        char known[400];
        list_fields(r->kind, 0, known);
        if (!r->failed)
            r->failed = table_err(r->t, r->index, r->col[FIELD], r->e, "'%.40s' is no field of table '%s', which has: %s", r->cell[FIELD],
                                  hwdb_table(r->kind)->name, known);
    } else if (f->type == HWDB_TEXT || f->type == HWDB_MARKS) {
        set_text(r, f, item);
    } else if (f->type == HWDB_REAL ? *(double *)hwdb_at(f, item) > 0 : hwdb_get(f, item) != 0) {
        bad(r, FIELD, "'%s' of this key was given above", r->cell[FIELD]);
    } else if (f->type == HWDB_REAL) {
        *(double *)hwdb_at(f, item) = quantity(r, f);
    } else if (f->min == 0 && f->max == 1) {
        hwdb_set(f, item, number(r, VALUE, r->cell[VALUE]) > 0);
    } else {
        double v = quantity(r, f);
        if (!r->failed && v != floor(v))
            bad(r, VALUE, "'%s' is not a whole number in range", r->cell[VALUE]);
        hwdb_set(f, item, r->failed ? 1 : (int64_t)v);
    }
}

static void on_device(struct row *r, struct device *d)
{
    for (int i = 0; i < d->n_facts; i++)
        if (strcmp(d->facts[i].field, r->cell[FIELD]) == 0)
            bad(r, FIELD, "'%s' was given above", r->cell[FIELD]);
    set_field(r, &d->hw);
    if (!r->failed && d->n_facts < (int)(sizeof d->facts / sizeof *d->facts)) {
        struct fact *fact = &d->facts[d->n_facts++];
        snprintf(fact->field, sizeof fact->field, "%.31s", r->cell[FIELD]);
        rest_on(r, &fact->from);
    }
}

static void on_row(struct row *r, struct device *d)
{
    struct hwdb_samples *samples = NULL;
    void *item = r->kind == HWDB_DEVICE ? NULL : find_point(r, d, &samples);
    if (item && hwdb_table(r->kind)->sample && strcmp(r->cell[FIELD], "samples") == 0)
        set_samples(r, samples);
    else if (item)
        set_field(r, item);
    else if (r->kind == HWDB_DEVICE)
        on_device(r, d);
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
        for (int k = 0; k < HWDB_KINDS; k++) {
            free(im->devices[i].lists[k].items);
            free(im->devices[i].lists[k].keys);
            for (int n = 0; n < im->devices[i].lists[k].n; n++)
                free(im->devices[i].lists[k].from[n].samples.s);
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
        if (strcmp(im->devices[i].hw.name, name) == 0)
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
    memcpy(d->hw.name, name, sizeof name);
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
    int kind = 0;
    for (int c = 0; c < N_COLUMNS; c++)
        r->cell[c] = table_cell(im->t, r->index, r->col[c], NULL);
    for (int c = 0; c < N_COLUMNS; c++)
        if (!is_utf8(r->cell[c]))
            return bad(r, (enum column)c, "%s", "not UTF-8");
    struct device *d = find_device(im, r);
    while (kind < HWDB_KINDS && strcmp(hwdb_table((enum hwdb_kind)kind)->name, r->cell[TABLE]) != 0)
        kind++;
    if (kind == HWDB_KINDS)
        bad(r, TABLE, "'%s' is none of device, core_class, compute, memory, storage, accelerator, accelerator_point, joint, conditions",
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
    r->kind = (enum hwdb_kind)kind;
    r->origin = (enum hw_origin)origin;
    cut_keys(r);
    if (!r->failed)
        on_row(r, d);
    d->n_figures++;
    d->n_estimated += r->origin == HW_ESTIMATED;
    d->n_measured += r->origin == HW_MEASURED;
    for (int c = 0; c < N_COLUMNS; c++)
        hash_update_str(d->hash, r->cell[c]);
    return r->failed;
}

/* What a point has to have and no row gave. */
static const char *missing(enum hwdb_kind k, void *item)
{
    const struct hwdb_table *t = hwdb_table(k);
    struct hw_compute *c = item;
    if (k == HWDB_COMPUTE && c->row_len > 0) {
        if (!(c->ns_per_row.p50 > 0))
            return "ns_per_row";
        if (!(c->flops_per_s > 0))
            c->flops_per_s = 2e9 * c->row_len * c->batch / c->ns_per_row.p50;
    }
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        if ((f->flags & (HWDB_NEED | HWDB_KEY)) == HWDB_NEED &&
            (f->type == HWDB_INTEGER ? f->min > 0 && hwdb_get(f, item) == 0 : f->type != HWDB_CHOICE && !hwdb_is_known(f, item)))
            return f->csv;
    }
    return NULL;
}

static int check_whole(struct import *im, const int *col, struct err *e)
{
    for (int i = 0; i < im->n; i++)
        for (int k = HWDB_CORE_CLASS; k < HWDB_KINDS; k++)
            for (int n = 0; n < im->devices[i].lists[k].n; n++) {
                const struct list *l = &im->devices[i].lists[k];
                const char *what = missing((enum hwdb_kind)k, l->items + (size_t)n * hwdb_table((enum hwdb_kind)k)->size);
                if (what)
                    return table_err(im->t, l->from[n].row, col[KEY], e, "no row gives '%s' for this key", what);
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
    for (int k = HWDB_CORE_CLASS; k < HWDB_KINDS; k++) {
        const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
        for (int i = 0; i < d->lists[k].n && r == 0; i++) {
            char *item = d->lists[k].items + (size_t)i * t->size;
            const struct from *f = &d->lists[k].from[i];
            if (strcmp(t->fields[t->n - 1].column, "origin") == 0)
                hwdb_set(&t->fields[t->n - 1], item, f->origin);
            r = hwdb_add(db, (enum hwdb_kind)k, item, f->source, f->samples.s, f->samples.n, e);
        }
    }
    for (int i = 0; i < d->n_facts && r == 0; i++)
        r = hwdb_add_fact_source(db, d->facts[i].field, d->facts[i].from.origin, d->facts[i].from.source, e);
    return r;
}

static int enter(struct device *d, struct hwdb *db, const char *csv, int *unchanged, struct err *e)
{
    char now[HW_TIME], hash[HASH_TEXT];
    hw_time_text((int64_t)time(NULL), now);
    hash_text(hash_final128(d->hash), hash);
    d->hw.origin = d->n_estimated == d->n_figures ? HW_ESTIMATED : d->n_measured == d->n_figures ? HW_MEASURED : HW_PUBLISHED;
    struct hwdb_run run = { .started_at = now, .tool_version = THERMO_VERSION, .command = csv, .temperature_c = NAN,
                            .direct_verified = -1, .content_hash = hash, .notes = "imported figures" };
    int r = hwdb_begin(db, &d->hw, &run, unchanged, e);
    return r < 0 || *unchanged ? r : add_points(d, db, e);
}

static struct js *entered(const struct device *d, int unchanged, int json)
{
    struct js *o = js_object();
    js_put(o, JS_STR("device", d->hw.name), JS_INT("figures", d->n_figures), JS_INT("estimated", d->n_estimated),
           JS_BOOL("unchanged", unchanged));
    if (!json)
        print("%s: %d figures, %d of them estimated%s\n", d->hw.name, d->n_figures, d->n_estimated,
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
