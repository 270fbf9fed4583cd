/* `thermo-profile export`: devices of a hardware database as the CSV that `import` reads, so that what was measured on one
 * machine is planned for on another. What a planner goes by comes back bit for bit (common/hwdb/hwdb_csv.h), and so do samples
 * with their times and temperatures. Calibrations stay behind, and so do folders of the machine. */
#include "profiler/cmd.h"

#include "common/base/file.h"
#include "common/cli/opt.h"
#include "common/hwdb/hwdb_csv.h"
#include "common/offline/hwdb/hwdb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_named(FILE *f, const char *db, const char *name, struct err *e)
{
    struct hw *h = calloc(1, sizeof *h);
    struct hw_sources *s = calloc(1, sizeof *s);
    int r = h && s ? hwdb_load(db, name, h, e) : err_set(e, ERR_NOMEM, "'%s': out of memory", db);
    if (r == 0) {
        if ((r = hwdb_load_sources(db, h, s, e)) == 0)
            r = hwdb_csv_device(f, h, s, e);
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
    hwdb_csv_header(f);
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
                 "plan for the exported one, byte for byte. Calibrations and folders of the machine stay behind.",
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
