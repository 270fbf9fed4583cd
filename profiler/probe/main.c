/* thermo-probe: what a device can do, measured on it and written as the CSV that `thermo-profile import` reads. One file without any
 * library for a phone; `thermo-profile hardware` is the same with a database behind it. */
#include "common/base/print.h"
#include "common/base/version.h"
#include "profiler/probe/hardware.h"

#include <stdio.h>
#include <string.h>

static int probe(struct hardware *h, int argc, char **argv, struct err *e)
{
    const char *out = NULL;
    const struct opt own[] = {
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &out, .arg = "FILE", .file = OPT_WRITE, .help = "CSV to write.",
          .def = "standard output" },
        { 0 },
    };
    static const struct opt_usage usage = {
        .program = "thermo-probe",
        .synopsis = "",
        .about = "Measures this machine for the planner, as 'thermo-profile hardware' does, and writes the CSV that 'thermo-profile "
                 "import' reads elsewhere: a device that was imported is planned for as if it had been measured there. Needs no "
                 "library and no root. Nothing else should run meanwhile. The test file is unlinked as soon as it is open.",
        .examples = "thermo-probe --device phone --storage /data/local/tmp --range 2GiB --out phone.csv\n"
                    "thermo-probe --device phone --quick --only compute,memory > phone.csv",
    };
    char *words[64];
    int n_words = argc < 64 ? argc : 64;
    memcpy(words, argv, (size_t)n_words * sizeof *words); /* parsing moves arguments about */
    int r = hardware_parse(h, own, "where FILE is, or the current folder", &usage, argc, argv, e);
    if (r == 0 && h->a.json && !h->a.dry_run)
        return err_set(e, ERR_USAGE, "--json is of --dry-run; what is measured is written as CSV");
    if (r == 0 && (r = hardware_prepare(h, out, "thermo-probe", words + 1, n_words - 1, e)) == 0 && h->a.dry_run)
        return hardware_dry_run(h, e);
    if (r != 0)
        return r;
    struct err stop = { 0 };
    if ((r = hardware_measure(h, &stop)) < 0)
        *e = stop;
    if ((r == 0 || r == ERR_INTR) && !hardware_is_empty(h)) {
        int w = hardware_csv(h, out, e);
        r = w < 0 ? w : r;
    }
    return r;
}

int main(int argc, char **argv)
{
    static struct hardware h; /* some tens of KiB */
    struct err e = { 0 };
    opt_begin("thermo-probe");
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        print("thermo-probe " THERMO_VERSION "\nhardware database revision " VERSION_TEXT(HWDB_REVISION) "\n");
        return opt_end(0);
    }
    int r = probe(&h, argc, argv, &e);
    hardware_done(&h);
    return opt_end(r < 0 ? opt_fail(&e) : 0);
}
