/* Devices as CSV, one figure a row: what `thermo-profile import` reads. Numbers are written in base units, with as many digits as tell them
 * from their neighbours, so that what a planner goes by comes back bit for bit. Folders of the machine stay behind. */
#include "common/hwdb/hwdb_csv.h"

#include "common/base/utf8.h"
#include "common/hwdb/hwdb_parts.h"

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

/* The shortest text that reads back as v; how long it is. */
static int number_text(double v, char *text, size_t len)
{
    int digits = 15, n;
    do
        n = snprintf(text, len, "%.*g", digits, v);
    while (strtod(text, NULL) < v || strtod(text, NULL) > v ? ++digits <= 17 : 0);
    return n;
}

/* 0 is not known and gets no row. */
static void put_number(struct point *p, const char *field, double v, const char *unit)
{
    char text[40];
    if (!(v > 0))
        return;
    number_text(v, text, sizeof text);
    put_row(p, field, text, unit);
}

/* VALUE@SECONDS@CELSIUS, the last where it is known, with a space between samples. */
static void put_samples(struct point *p, const struct hwdb_samples *s, const char *unit)
{
    size_t most = (size_t)s->n * 100 + 1, at = 0;
    char *text = s->n > 0 ? malloc(most) : NULL;
    if (s->n > 0 && !text)
        p->failed = err_set(p->e, ERR_NOMEM, "device '%s': out of memory", p->device);
    for (int i = 0; text && i < s->n; i++) {
        const double v[3] = { s->s[i].value, s->s[i].t_s, s->s[i].temperature_c };
        for (int k = 0; k < (v[2] == v[2] ? 3 : 2); k++) { /* NaN: no sensor */
            if (i || k)
                text[at++] = k ? '@' : ' ';
            at += (size_t)number_text(v[k], text + at, most - at);
        }
    }
    if (text && !p->failed)
        put_row(p, "samples", text, unit);
    free(text);
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

void hwdb_csv_header(FILE *f)
{
    fputs("device,table,key,field,value,unit,origin,source\n", f);
}

/* Of item i; s has one text for all where it has no arrays. */
static const char *source_of(const struct hw_sources *s, enum hwdb_kind k, int i)
{
    static const enum hwdb_kind points[HW_TABLES] = { HWDB_COMPUTE, HWDB_MEMORY, HWDB_STORAGE, HWDB_JOINT, HWDB_ACCELERATOR };
    const struct hw_source *of = s->of[k == HWDB_CONDITIONS ? points[i] : k]; /* conditions' are their points' */
    return of ? of[k == HWDB_CONDITIONS ? 0 : i].text : s->device.text;
}

int hwdb_csv_device(FILE *f, const struct hw *h, const struct hw_sources *s, struct err *e)
{
    int failed = 0;
    for (int k = 0; k < HWDB_KINDS; k++) {
        const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
        int n;
        const char *items = hwdb_items(h, (enum hwdb_kind)k, &n);
        for (int i = 0; i < n && !failed; i++) {
            const char *item = items + (size_t)i * t->size;
            if (k == HWDB_CONDITIONS && hw_time_of(h->conditions[i].measured_at) < 0) /* there are points then */
                continue;
            struct point p = { .f = f, .device = h->name, .e = e, .source = source_of(s, (enum hwdb_kind)k, i) };
            p.origin = k == HWDB_DEVICE     ? h->origin :
                       k == HWDB_CONDITIONS ? HW_MEASURED : (enum hw_origin)hwdb_get(&t->fields[t->n - 1], item);
            put_item(&p, h, (enum hwdb_kind)k, item, s);
            if (!p.failed && t->sample && s->samples[k])
                put_samples(&p, &s->samples[k][i], t->sample);
            failed = p.failed;
        }
    }
    return failed;
}
