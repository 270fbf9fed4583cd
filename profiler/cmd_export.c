/* `thermo-profile export`: devices of a hardware database as the CSV that `import` reads, so that what was measured on one
 * machine is planned for on another. What a planner goes by comes back bit for bit: numbers are written in base units, with
 * as many digits as tell them from their neighbours, and points in the canonical order. Samples, temperatures and
 * calibrations stay behind, and so do folders of the machine. */
#include "profiler/cmd.h"

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/cli/opt.h"
#include "common/offline/hwdb/hwdb_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one key have table, key, origin and source in common. */
struct point {
    FILE *f;
    const char *device, *table;
    char key[256];
    enum hw_origin origin;
    const char *source;
    struct err *e;
    int failed;
};

static void put_cell(FILE *f, const char *s, char after)
{
    if (!s[strcspn(s, ",\"")] && s[0] != ' ' && (!s[0] || s[strlen(s) - 1] != ' ')) {
        fputs(s, f);
    } else {
        putc('"', f);
        for (; *s; s++) {
            if (*s == '"')
                putc('"', f);
            putc(*s, f);
        }
        putc('"', f);
    }
    putc(after, f);
}

static void put_row(struct point *p, const char *field, const char *value, const char *unit)
{
    const char *cells[] = { p->device, p->table, p->key, field, value, unit, hw_origin_name(p->origin), p->source };
    int n = sizeof cells / sizeof *cells;
    for (int i = 0; i < n && !p->failed; i++)
        if (!utf8_is_printable(cells[i], strlen(cells[i])))
            p->failed = err_set(p->e, ERR_FORMAT, "device '%s', table '%s', key '%s', field '%s': a text that is not UTF-8, or has "
                                "control characters, has no place in a CSV", p->device, p->table, p->key, field);
    for (int i = 0; i < n && !p->failed; i++)
        put_cell(p->f, cells[i], i == n - 1 ? '\n' : ',');
}

/* The shortest text that reads back as v; 0 is not known and gets no row. */
static void put_number(struct point *p, const char *field, double v, const char *unit)
{
    char text[40];
    int digits = 15;
    if (!(v > 0))
        return;
    do
        snprintf(text, sizeof text, "%.*g", digits, v);
    while (strtod(text, NULL) < v || strtod(text, NULL) > v ? ++digits <= 17 : 0);
    put_row(p, field, text, unit);
}

static void put_whole(struct point *p, const char *field, uint64_t v, const char *unit)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    if (v)
        put_row(p, field, text, unit);
}

/* ";NAME=VALUE" onto the key. Names that would be taken apart otherwise are refused. */
static void key_text(struct point *p, const char *name, const char *value)
{
    size_t n = strlen(p->key);
    if (strchr(value, ';') || n + strlen(name) + strlen(value) + 3 > sizeof p->key)
        p->failed = err_set(p->e, ERR_FORMAT, "device '%s', table '%s': the %s '%s' has a ';' or is too long for the key of a CSV row",
                            p->device, p->table, name, value);
    else
        snprintf(p->key + n, sizeof p->key - n, "%s%s=%s", n ? ";" : "", name, value);
}

static void key_int(struct point *p, const char *name, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    key_text(p, name, text);
}

static void key_size(struct point *p, const char *name, uint64_t v)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
    char text[32];
    int u = 0;
    for (; u < 3 && v && v % 1024 == 0; u++)
        v /= 1024;
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)v, units[u]);
    key_text(p, name, text);
}

static void put_key(struct point *p, const struct hwdb_field *f, const void *item, const struct hw *h)
{
    char text[HW_NAME];
    if (f->type == HWDB_CLASS)
        key_text(p, f->csv, h->classes[hwdb_get(f, item)].name);
    else if (f->type == HWDB_ACCEL)
        key_text(p, f->csv, h->accels[hwdb_get(f, item)].engine);
    else if (f->type == HWDB_TEXT)
        key_text(p, f->csv, hwdb_at(f, item));
    else if (f->type == HWDB_CHOICE)
        key_text(p, f->csv, hwdb_choice(f, (int)hwdb_get(f, item), text));
    else if (strcmp(hwdb_unit(f), "B") == 0)
        key_size(p, f->csv, (uint64_t)hwdb_get(f, item));
    else
        key_int(p, f->csv, hwdb_get(f, item));
}

static void put_field(struct point *p, const struct hwdb_field *f, const void *item)
{
    char text[HW_NAME];
    if (f->type == HWDB_REAL)
        put_number(p, f->csv, *(const double *)hwdb_at(f, item), hwdb_unit(f));
    else if (f->type == HWDB_INTEGER && f->max == 1)
        put_row(p, f->csv, hwdb_get(f, item) ? "1" : "0", "");
    else if (f->type == HWDB_INTEGER)
        put_whole(p, f->csv, (uint64_t)hwdb_get(f, item), hwdb_unit(f));
    else if (f->type == HWDB_MARKS)
        hw_marks_text(((const struct hw_conditions *)item)->marks, text), put_row(p, f->csv, text, "");
    else
        put_row(p, f->csv, hwdb_at(f, item), "");
}

/* An item: its key, and a row for each of its fields that is known. Of the device itself some fields have a source of their own. */
static void put_item(struct point *p, const struct hw *h, enum hwdb_kind k, const void *item, const struct hw_sources *s)
{
    const struct hwdb_table *t = hwdb_table(k);
    const struct point all = *p;
    p->table = t->name;
    for (int i = 0; i < t->n && k != HWDB_DEVICE; i++)
        if (t->fields[i].flags & HWDB_KEY && hwdb_is_known(&t->fields[i], item))
            put_key(p, &t->fields[i], item, h);
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        if (f->flags & HWDB_KEY || strcmp(f->csv, "origin") == 0 || !hwdb_is_known(f, item))
            continue;
        p->origin = all.origin;
        p->source = all.source;
        for (int n = 0; n < s->n_facts && k == HWDB_DEVICE; n++)
            if (strcmp(s->facts[n].field, f->csv) == 0) {
                p->origin = s->facts[n].origin;
                p->source = s->facts[n].source.text;
            }
        put_field(p, f, item);
    }
}

static int put_all(FILE *f, const struct hw *h, const struct hw_sources *s, struct err *e)
{
    const struct hw_source *const of[HWDB_KINDS] = { &s->device, s->classes, s->compute, s->memory,
                                                     s->storage, s->accels, s->accel_points, s->joint };
    /* Conditions' are their points'. */
    const struct hw_source *const first[HW_TABLES] = { s->compute, s->memory, s->storage, s->joint, s->accels };
    int failed = 0;
    for (int k = 0; k < HWDB_KINDS; k++) {
        const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
        int n;
        const char *items = hwdb_items(h, (enum hwdb_kind)k, &n);
        for (int i = 0; i < n && !failed; i++) {
            const char *item = items + (size_t)i * t->size;
            if (k == HWDB_CONDITIONS && hw_time_of(h->conditions[i].measured_at) < 0) /* there are points then */
                continue;
            struct point p = { .f = f, .device = h->name, .e = e, .source = k == HWDB_CONDITIONS ? first[i]->text : of[k][i].text };
            p.origin = k == HWDB_DEVICE     ? h->origin :
                       k == HWDB_CONDITIONS ? HW_MEASURED : (enum hw_origin)hwdb_get(&t->fields[t->n - 1], item);
            put_item(&p, h, (enum hwdb_kind)k, item, s);
            failed = p.failed;
        }
    }
    return failed;
}

static int put_named(FILE *f, const char *db, const char *name, struct err *e)
{
    struct hw *h = calloc(1, sizeof *h);
    struct hw_sources *s = calloc(1, sizeof *s);
    int r = h && s ? hwdb_load(db, name, h, e) : err_set(e, ERR_NOMEM, "'%s': out of memory", db);
    if (r == 0) {
        if ((r = hwdb_load_sources(db, h, s, e)) == 0)
            r = put_all(f, h, s, e);
        hw_sources_done(s);
        hw_free(h);
    }
    free(s);
    free(h);
    return r;
}

/* All of the database, or the wanted ones in the order they were named. */
static int put_devices(FILE *f, const char *db, const struct opt_list *wanted, struct err *e)
{
    char **names = NULL;
    int n = 0, r = wanted->n ? 0 : hwdb_list(db, &names, &n, e);
    fputs("device,table,key,field,value,unit,origin,source\n", f);
    if (r == 0 && !wanted->n && n == 0)
        r = err_set(e, ERR_USAGE, "'%s' holds no device to export", db);
    for (int i = 0; i < wanted->n && r == 0; i++)
        for (int k = 0; k < i && r == 0; k++)
            if (strcmp(wanted->items[i], wanted->items[k]) == 0)
                r = err_set(e, ERR_USAGE, "--device '%s' is there twice", wanted->items[i]);
    for (int i = 0; i < (wanted->n ? wanted->n : n) && r == 0; i++)
        r = put_named(f, db, wanted->n ? wanted->items[i] : names[i], e);
    free(names);
    return r;
}

/* The whole text first, so that a database which turns out bad writes nothing. */
static int export(const char *db, const struct opt_list *wanted, const char *out, struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return err_set(e, ERR_NOMEM, "export: out of memory");
    int r = put_devices(f, db, wanted, e);
    if (fclose(f) != 0 && r == 0)
        r = err_set(e, ERR_NOMEM, "export: out of memory");
    if (r == 0)
        r = file_replace(out ? out : "/dev/stdout", text, len, e);
    free(text);
    return r;
}

int cmd_export(int argc, char **argv)
{
    const char *db = NULL, *out = NULL;
    struct opt_list devices = { 0 };
    int n_pos;
    struct err e = { 0 };
    const struct opt opts[] = {
        { .name = "db", .type = OPT_STRING, .dest = &db, .arg = "FILE", .required = 1, .file = OPT_READ_DB,
          .help = "Hardware database to read." },
        { .name = "device", .type = OPT_LIST, .dest = &devices, .arg = "NAME", .help = "A device to write; may be given several times.",
          .def = "all" },
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &out, .arg = "FILE", .file = OPT_WRITE, .help = "CSV to write.",
          .def = "standard output" },
        { 0 },
    };
    static const struct opt_usage usage = {
        .program = "thermo-profile export",
        .synopsis = "",
        .about = "Writes devices of a hardware database as the CSV that import reads, measured ones too, so that plans are made for "
                 "them where they are not at hand (make plans DEVICES=...). No digit is lost: a plan for the imported device is the "
                 "plan for the exported one, byte for byte. Samples, calibrations and folders of the machine stay behind.",
        .examples = "  thermo-profile export --db hw.sqlite --out devices.csv\n"
                    "  thermo-profile export --db hw.sqlite --device 'OnePlus 12' --device this-machine > two.csv\n",
    };
    int r = opt_parse(opts, &usage, argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && n_pos > 0)
        r = err_set(&e, ERR_USAGE, "unexpected argument '%s'", argv[1]);
    if (r == 0)
        r = export(db, &devices, out, &e);
    free(devices.items);
    return r < 0 ? opt_fail(&e) : 0;
}
