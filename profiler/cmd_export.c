/* `thermo-profile export`: devices of a hardware database as the CSV that `import` reads, so that what was measured on one
 * machine is planned for on another. What a planner goes by comes back bit for bit: numbers are written in base units, with
 * as many digits as tell them from their neighbours, and points in the canonical order. Samples, temperatures and
 * calibrations stay behind, and so do folders of the machine. */
#include "profiler/cmd.h"

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/cli/opt.h"
#include "common/offline/hwdb/hwdb.h"

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

static void put_dist(struct point *p, const char *field, const struct hw_dist *d, const char *unit)
{
    char name[40];
    put_number(p, field, d->p50, unit);
    snprintf(name, sizeof name, "%s_p10", field);
    put_number(p, name, d->p10, unit);
    snprintf(name, sizeof name, "%s_p90", field);
    put_number(p, name, d->p90, unit);
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

static struct point begin(struct point *all, const char *table, enum hw_origin origin, const struct hw_source *source)
{
    return (struct point){ .f = all->f, .device = all->device, .table = table, .origin = origin, .source = source->text, .e = all->e,
                           .failed = all->failed };
}

static void put_device(struct point *all, const struct hw *h, const struct hw_sources *s)
{
    const struct {
        const char *field, *text;
        uint64_t bytes;
    } facts[] = {
        { "description", h->description, 0 }, { "soc", h->soc, 0 }, { "cpu_model", h->cpu_model, 0 }, { "os", h->os, 0 },
        { "storage_description", h->storage, 0 }, { "filesystem", h->filesystem, 0 }, { "source", h->source, 0 },
        { "memory_bytes", "", h->memory_bytes }, { "app_memory_limit_bytes", "", h->app_memory_limit_bytes },
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        struct point p = begin(all, "device", s->origin, &s->device);
        for (int k = 0; k < s->n_facts; k++)
            if (strcmp(s->facts[k].field, facts[i].field) == 0) {
                p.origin = s->facts[k].origin;
                p.source = s->facts[k].source.text;
            }
        if (facts[i].text[0])
            put_row(&p, facts[i].field, facts[i].text, "");
        put_whole(&p, facts[i].field, facts[i].bytes, "B");
        all->failed = p.failed;
    }
    for (int k = 0; k < h->n_classes; k++) {
        struct point p = begin(all, "core_class", h->classes[k].origin, &s->classes[k]);
        key_text(&p, "class", h->classes[k].name);
        put_whole(&p, "n_cores", (uint64_t)h->classes[k].n_cores, "");
        put_whole(&p, "max_hz", h->classes[k].max_hz, "Hz");
        all->failed = p.failed;
    }
}

static void put_compute(struct point *all, const struct hw *h, const struct hw_compute *c, const struct hw_source *source)
{
    struct point p = begin(all, "compute", c->origin, source);
    key_text(&p, "kernel", c->kernel);
    if (c->core_class >= 0)
        key_text(&p, "class", h->classes[c->core_class].name);
    if (c->tier[0])
        key_text(&p, "tier", c->tier);
    key_text(&p, "pattern", hw_pattern_name(c->pattern));
    key_text(&p, "resident", c->dram ? "dram" : "cache");
    key_int(&p, "threads", c->threads);
    key_int(&p, "row_len", c->row_len);
    key_int(&p, "batch", c->batch);
    put_dist(&p, "ns_per_row", &c->ns_per_row, "ns");
    put_number(&p, "flops_per_s", c->flops_per_s, "FLOP/s");
    put_whole(&p, "rows", (uint64_t)c->rows, "");
    all->failed = p.failed;
}

static void put_memory(struct point *all, const struct hw_memory *m, const struct hw_source *source)
{
    struct point p = begin(all, "memory", m->origin, source);
    key_text(&p, "engines", m->engines);
    key_text(&p, "pattern", hw_pattern_name(m->pattern));
    key_size(&p, "row", m->row_bytes);
    key_int(&p, "threads", m->threads);
    put_dist(&p, "bytes_per_s", &m->bytes_per_s, "B/s");
    all->failed = p.failed;
}

static void put_storage(struct point *all, const struct hw *h, const struct hw_storage *s, const struct hw_source *source)
{
    struct point p = begin(all, "storage", s->origin, source);
    key_text(&p, "backend", hw_backend_name(s->backend));
    key_int(&p, "direct", s->direct);
    key_text(&p, "pattern", hw_pattern_name(s->pattern));
    key_size(&p, "block", s->block_bytes);
    key_int(&p, "depth", s->queue_depth);
    key_int(&p, "lanes", s->lanes);
    key_size(&p, "range", s->range_bytes);
    if (s->core_class >= 0)
        key_text(&p, "class", h->classes[s->core_class].name);
    put_dist(&p, "bytes_per_s", &s->bytes_per_s, "B/s");
    put_number(&p, "latency_ns_p50", s->latency_ns_p50, "ns");
    put_number(&p, "latency_ns_p99", s->latency_ns_p99, "ns");
    put_number(&p, "cpu_ns_per_read", s->cpu_ns_per_read, "ns");
    put_number(&p, "batch_completion_share", s->batch_completion_share, "");
    put_number(&p, "uncached_destination_ratio", s->uncached_destination_ratio, "");
    if (s->page_bytes)
        put_whole(&p, "page_bytes", s->page_bytes, "B");
    all->failed = p.failed;
}

static void put_accels(struct point *all, const struct hw *h, const struct hw_sources *s)
{
    for (int i = 0; i < h->n_accels && !all->failed; i++) {
        const struct hw_accel *a = &h->accels[i];
        struct point p = begin(all, "accelerator", a->origin, &s->accels[i]);
        key_text(&p, "engine", a->engine);
        put_row(&p, "shares_memory", a->shares_memory ? "1" : "0", "");
        if (a->description[0])
            put_row(&p, "description", a->description, "");
        put_whole(&p, "addressable_bytes", a->addressable_bytes, "B");
        put_number(&p, "launch_ns", a->launch_ns, "ns");
        put_whole(&p, "driver_bytes", a->driver_bytes, "B");
        all->failed = p.failed;
    }
    for (int i = 0; i < h->n_accel_points && !all->failed; i++) {
        const struct hw_accel_point *q = &h->accel_points[i];
        struct point p = begin(all, "accelerator_point", q->origin, &s->accel_points[i]);
        key_text(&p, "engine", h->accels[q->accel].engine);
        key_text(&p, "op", q->op);
        key_int(&p, "rows", q->rows);
        key_int(&p, "cols", q->cols);
        key_int(&p, "batch", q->batch);
        put_dist(&p, "ns", &q->ns, "ns");
        all->failed = p.failed;
    }
}

/* When a table was measured and what ran beside it, as its first point says where it is from. */
static void put_conditions(struct point *all, const struct hw_conditions *c, enum hw_table t, const struct hw_source *source)
{
    char marks[HW_NAME];
    struct point p = begin(all, "conditions", HW_MEASURED, source);
    key_text(&p, "table", hw_table_name(t));
    put_row(&p, "measured_at", c->measured_at, "");
    if (c->watched) {
        hw_marks_text(c->marks, marks);
        put_row(&p, "marks", marks, "");
        put_number(&p, "others", c->others, "");
        put_number(&p, "stolen", c->stolen, "");
        put_number(&p, "waited_for_cpu", c->waited_for_cpu, "");
        put_number(&p, "short_of_memory", c->short_of_memory, "");
        put_number(&p, "spread", c->spread, "");
        put_number(&p, "disturbed", c->disturbed, "");
        put_whole(&p, "repeated", (uint64_t)c->repeated, "");
        put_number(&p, "paused_s", c->paused_s, "");
    }
    all->failed = p.failed;
}

static int put_all(FILE *f, const struct hw *h, const struct hw_sources *s, struct err *e)
{
    struct point all = { .f = f, .device = h->name, .e = e };
    put_device(&all, h, s);
    for (int i = 0; i < h->n_compute && !all.failed; i++)
        put_compute(&all, h, &h->compute[i], &s->compute[i]);
    for (int i = 0; i < h->n_memory && !all.failed; i++)
        put_memory(&all, &h->memory[i], &s->memory[i]);
    for (int i = 0; i < h->n_storage && !all.failed; i++)
        put_storage(&all, h, &h->storage_points[i], &s->storage[i]);
    put_accels(&all, h, s);
    const struct hw_source *const first[HW_TABLES] = { s->compute, s->memory, s->storage, s->accels };
    for (int t = 0; t < HW_TABLES && !all.failed; t++)
        if (hw_time_of(h->conditions[t].measured_at) >= 0) /* there are points then */
            put_conditions(&all, &h->conditions[t], (enum hw_table)t, first[t]);
    return all.failed;
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
