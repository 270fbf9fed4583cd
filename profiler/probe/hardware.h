#ifndef PROFILER_PROBE_HARDWARE_H
#define PROFILER_PROBE_HARDWARE_H

/* A measurement of this machine, from its options to the record of what was measured: `thermo-profile hardware`, which enters it into a
 * database, and `thermo-probe`, which writes it as CSV. Calls in this order; one owner thread. */
#include "common/cli/opt.h"
#include "common/hwdb/hwdb_record.h"
#include "common/kernels/quant.h"
#include "profiler/probe/probe.h"

enum { HARDWARE_OWN = 8, HARDWARE_PROBES = 8 };

struct hardware_args {
    const char *device, *storage, *only, *types, *description, *cpu, *engine, *engine_cache;
    int quick, dry_run, json;
    double seconds, patience, minutes;
    uint64_t range_bytes, memory_range_bytes;
};

struct hardware {
    struct hardware_args a;
    struct hwdb_record record;
    struct probe_cpus cpus;
    struct probe_env env;
    struct probe_accel_config accel; /* backend NULL: none is measured */
    int accel_asked;                 /* by name: without it the command fails */
    char accel_name[HW_NAME];
    struct probe_config config;
    double temperature_c; /* at the start; NAN: no sensor */
    uint32_t types[QUANT_LIMIT];
    struct probe *probes[HARDWARE_PROBES]; /* NULL: not asked for */
    char storage[4096], command[256], started[HW_TIME], notes[640], loaded[128]; /* loaded: what a load has done */
};

/* opt_parse, with the caller's own options, HARDWARE_OWN at most, before those of all; no arguments. where: default of --storage, for
 * --help. */
int hardware_parse(struct hardware *s, const struct opt *own, const char *where, const struct opt_usage *usage, int argc, char **argv,
                   struct err *e);

/* What is to be measured, checked. beside: a file whose folder is the storage folder where --storage gives none; NULL: the current one.
 * program: for the record, with the n words of the command line as they were before parsing. Initialises kernels. */
int hardware_prepare(struct hardware *s, const char *beside, const char *program, char **words, int n, struct err *e);

int hardware_dry_run(struct hardware *s, struct err *e); /* prints what would be measured */

/* Measures into s->record, in canonical order. ERR_INTR: the record has the tables that were finished, perhaps none. */
int hardware_measure(struct hardware *s, struct err *e);
int hardware_is_empty(const struct hardware *s); /* no table was finished */

/* The record as CSV; path NULL: standard output. */
int hardware_csv(const struct hardware *s, const char *path, struct err *e);
void hardware_done(struct hardware *s); /* accepts a zeroed one */

#endif
