/* `thermo-profile hardware`: run the probes (profiler/probe/hardware.h), then enter all that was measured into the database in one short
 * transaction; while it measures, the database is anybody's. */
#include "profiler/cmd.h"

#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb.h"
#include "profiler/probe/hardware.h"
#include "profiler/show/show.h"

#include <string.h>

struct args {
    const char *db, *csv;
    double wait;
};

static int enter(const struct hwdb_record *rec, struct hwdb *db, struct err *e)
{
    int r = hwdb_begin(db, &rec->hw, &rec->run, NULL, e);
    for (int k = HWDB_CORE_CLASS; k < HWDB_KINDS; k++) {
        int n;
        const char *items = hwdb_items(&rec->hw, (enum hwdb_kind)k, &n);
        for (int i = 0; i < n && r == 0; i++) {
            const struct hwdb_samples *s = rec->samples[k] ? &rec->samples[k][i] : NULL;
            if (k != HWDB_CONDITIONS || rec->hw.conditions[i].measured_at[0])
                r = hwdb_add(db, (enum hwdb_kind)k, items + (size_t)i * hwdb_table((enum hwdb_kind)k)->size, NULL, s ? s->s : NULL,
                             s ? s->n : 0, e);
        }
    }
    return r == 0 ? hwdb_commit(db, e) : r;
}

/* Measure, keep what is whole, print what a planner will see. */
static int run(struct hardware *h, const struct args *a, struct err *e)
{
    struct hwdb *db = NULL;
    struct hw seen = { 0 };
    struct err stop = { 0 };
    int r = hwdb_open(a->db, &db, e); /* before the long part: what cannot be written says so now */
    if (r < 0)
        return r;
    hwdb_wait(db, a->wait);
    if ((r = hwdb_check_device(a->db, h->a.device, 0, e)) < 0) {
        hwdb_close(db);
        return r;
    }
    r = hardware_measure(h, &stop);
    int kept = (r == 0 || r == ERR_INTR) && !hardware_is_empty(h), w = kept ? enter(&h->record, db, e) : 0;
    hwdb_close(db);
    if (w == 0 && kept && a->csv)
        w = hardware_csv(h, a->csv, e);
    if (w == 0 && kept && (w = hwdb_load(a->db, h->a.device, &seen, e)) == 0) {
        w = show_hw(&seen, h->a.json, e);
        hw_free(&seen);
    }
    if (w == 0 && r < 0)
        *e = stop;
    return w < 0 ? w : r;
}

static int hardware(struct hardware *h, int argc, char **argv, struct err *e)
{
    struct args a = { .wait = HWDB_WAIT_S };
    const struct opt own[] = {
        { .name = "db", .type = OPT_STRING, .dest = &a.db, .arg = "FILE", .required = 1, .file = OPT_UPDATE_DB,
          .help = "Hardware database to add to; created when it is not there." },
        { .name = "csv", .type = OPT_STRING, .dest = &a.csv, .arg = "FILE", .file = OPT_WRITE,
          .help = "Write what was measured as the CSV that import reads, too." },
        { .name = "wait", .type = OPT_DOUBLE, .dest = &a.wait, .arg = "S", .max = 86400,
          .help = "Seconds to wait where another program holds the database locked, before giving up.", .def = "60" },
        { 0 },
    };
    static const struct opt_usage usage = {
        .program = "thermo-profile hardware",
        .synopsis = "",
        .about = "Measures this machine for the planner: each class of cores with the engine's own kernels, what it does beside "
                 "arithmetic, memory bandwidth in sweeps and by random rows, an accelerator, storage over block size, queue depth, lanes, "
                 "range and backend, and what reading and computing cost each other at once. Raw samples are stored beside the summaries, "
                 "with their conditions. Nothing else should run meanwhile: the processors' time of other programs is watched, what they "
                 "disturbed is measured again, and tables for which that did not help are marked; plans made of them say so. The test file "
                 "is unlinked as soon as it is open.",
        .examples = "thermo-profile hardware --db hw.sqlite --device laptop\n"
                    "thermo-profile hardware --db hw.sqlite --device phone --storage /data/local/tmp --range 2GiB\n"
                    "thermo-profile hardware --db hw.sqlite --device ci --quick --only compute,memory\n"
                    "thermo-profile hardware --db hw.sqlite --device laptop --only engine --engine opencl:0\n"
                    "thermo-plan solve --hardware hw.sqlite --device laptop ...",
    };
    char *words[64];
    int n_words = argc < 64 ? argc : 64;
    memcpy(words, argv, (size_t)n_words * sizeof *words); /* parsing moves arguments about */
    int r = hardware_parse(h, own, "where FILE is", &usage, argc, argv, e);
    if (r == 0 && (r = hardware_prepare(h, a.db, "thermo-profile", words, n_words, e)) == 0)
        r = h->a.dry_run ? hardware_dry_run(h, e) : run(h, &a, e);
    return r;
}

int cmd_hardware(int argc, char **argv)
{
    static struct hardware h; /* some tens of KiB */
    struct err e = { 0 };
    int r = hardware(&h, argc, argv, &e);
    hardware_done(&h);
    return r < 0 ? opt_fail(&e) : 0;
}
