/* What `thermo-profile hardware` and `thermo-probe` share: options, the choice of probes, running them, the record of what they measured.
 * Storage goes first, because it is the one that can fail for a reason the user must act on. An interrupted run keeps
 * the tables of which every point was sampled at least once. */
#include "profiler/probe/hardware.h"

#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/hwdb/hwdb_csv.h"
#include "common/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { STORAGE,
       MEMORY,
       COMPUTE,
       N_TABLES,
       ENGINE = N_TABLES,
       JOINT,
       N_NAMES,
       WORK = N_NAMES, /* goes with compute */
       N_PROBES };
#define FULL_RANGE  (4ull << 30)
#define QUICK_RANGE (128ull << 20)
#define LEAST_RANGE (8ull << 20)
#define LEAST_MEMORY_RANGE (8ull << 20)
static const char *const table_names[N_NAMES] = { "storage", "memory", "compute", "engine", "joint" };
#define TABLE_LIST "storage, memory, compute, engine, joint"

_Static_assert((int)N_PROBES <= (int)HARDWARE_PROBES, "probes of a struct hardware");

int hardware_parse(struct hardware *s, const struct opt *own, const char *where, const struct opt_usage *usage, int argc, char **argv,
                   struct err *e)
{
    struct hardware_args *a = &s->a;
    const struct opt all[] = {
        { .name = "device", .type = OPT_STRING, .dest = &a->device, .arg = "NAME", .required = 1,
          .help = "What to call this machine in the database. Measuring again under the same name adds a run; the newest "
                  "run of each table counts." },
        { .name = "storage", .type = OPT_STRING, .dest = &a->storage, .arg = "DIR",
          .help = "Directory on the drive that models will be read from.", .def = where },
        { .name = "quick", .type = OPT_FLAG, .dest = &a->quick,
          .help = "A sparse grid in well under half a minute, for a first look and for CI." },
        { .name = "only", .type = OPT_STRING, .dest = &a->only, .arg = "LIST",
          .help = "Which tables to measure, separated by commas.",
          .def = "storage,memory,compute,joint, and engine where --engine has one" },
        { .name = "engine", .type = OPT_STRING, .dest = &a->engine, .arg = "NAME",
          .help = "Accelerator to measure beside the processor: none, opencl or opencl:N, as 'thermo-run engines' lists them; auto: the "
                  "first that is no CPU. Its products and FFNs by type, shape and tokens, launches, copies, bandwidth alone and with the "
                  "processor.", .def = "auto" },
        { .name = "engine-cache", .type = OPT_STRING, .dest = &a->engine_cache, .arg = "DIR",
          .help = "Folder that keeps the accelerator's programs, which are built otherwise at every start. It holds code: nobody else "
                  "should be able to write there." },
        { .name = "types", .type = OPT_STRING, .dest = &a->types, .arg = "LIST",
          .help = "Types of weights whose kernels are measured, separated by commas; a plan takes the nearest type's figures for those of "
                  "a type that was not.",
          .def = "f16,q8_0,q4_0,q4_k,q6_k,f32,bf16,mxfp4; quick: the first five" },
        { .name = "range", .type = OPT_SIZE, .dest = &a->range_bytes, .arg = "SIZE", .min = LEAST_RANGE, .max = 1e15,
          .help = "Size of the test file, and the largest range that reads fall in; a quarter of it is the small range.",
          .def = "4 GiB, as large as a model, or half of what is free where that is less; quick: 128 MiB" },
        { .name = "memory-range", .type = OPT_SIZE, .dest = &a->memory_range_bytes, .arg = "SIZE", .min = LEAST_MEMORY_RANGE, .max = 1e15,
          .help = "Size of the buffer that bandwidth and kernels on weights in memory are measured in. One that the caches hold gives the "
                  "caches' figures.",
          .def = "several times the last-level cache, 1 GiB or an eighth of the machine's memory at most" },
        { .name = "seconds-per-point", .type = OPT_DOUBLE, .dest = &a->seconds, .arg = "S", .min = 0.003, .max = 600,
          .help = "Time for each point, over all its repetitions.",
          .def = "storage 0.5, memory 0.35, compute 0.1, joint 0.3; quick: 0.15, 0.1, 0.03, 0.2" },
        { .name = "patience", .type = OPT_DOUBLE, .dest = &a->patience, .arg = "S", .max = 86400,
          .help = "Most seconds to spend, beyond those of a clean run, on waiting until other programs rest and on measuring again "
                  "what they disturbed. 0: everything is measured once, and marked where it was disturbed.",
          .def = "as long as a clean run takes" },
        { .name = "minutes", .type = OPT_DOUBLE, .dest = &a->minutes, .arg = "N", .max = 1440,
          .help = "Compute with all cores for so long after measuring, and measure again: what is then reached are the sustained figures, "
                  "which 'thermo-plan solve --figures sustained' plans by. A phone gets slower as it gets warm. Without it they are the "
                  "slow tenth of the only ones." },
        { .name = "cpu", .type = OPT_STRING, .dest = &a->cpu, .arg = "TIER",
          .help = "SIMD tier of the kernels: auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod, i8mm.", .def = "auto" },
        { .name = "description", .type = OPT_STRING, .dest = &a->description, .arg = "TEXT",
          .help = "A line about the machine, kept with it." },
        { .name = "dry-run", .type = OPT_FLAG, .dest = &a->dry_run,
          .help = "Print what would be measured, how long it takes and how much disk and memory it needs." },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "Print the result as JSON." },
        { 0 },
    };
    struct opt opts[HARDWARE_OWN + sizeof all / sizeof *all];
    int n = 0, n_pos;
    for (; own->name && n < HARDWARE_OWN; own++)
        opts[n++] = *own;
    memcpy(&opts[n], all, sizeof all);
    a->patience = -1;
    int r = opt_parse(opts, usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos > 0)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'", argv[1]);
    return r;
}

/* Which tables --only names. */
static int parse_only(const char *list, int wanted[N_PROBES], struct err *e)
{
    for (int i = 0; i < N_PROBES; i++)
        wanted[i] = list == NULL && i < N_NAMES;
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        int found = 0;
        for (int i = 0; i < N_NAMES; i++)
            if (n == strlen(table_names[i]) && strncmp(p, table_names[i], n) == 0)
                wanted[i] = found = 1;
        if (!found)
            return err_set(e, ERR_USAGE, "--only: '%.*s' is none of " TABLE_LIST, (int)n, p);
        p += n + (p[n] == ',');
    }
    wanted[WORK] = wanted[COMPUTE];
    for (int i = 0; i < N_PROBES; i++)
        if (wanted[i])
            return 0;
    return err_set(e, ERR_USAGE, "--only names no table; there are " TABLE_LIST);
}

static int check_names(struct hardware *s, const char *beside, struct err *e)
{
    const struct hardware_args *a = &s->a;
    struct stat st;
    size_t n = strlen(a->device);
    if (n < 1 || n >= HW_NAME)
        return err_set(e, ERR_USAGE, "--device: a name of 1 to %d bytes, not %zu", HW_NAME - 1, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)a->device[i] < 0x20 || a->device[i] == 0x7f)
            return err_set(e, ERR_USAGE, "--device: a control character in the name");
    if (a->description && strlen(a->description) >= HW_TEXT)
        return err_set(e, ERR_USAGE, "--description has %zu bytes, more than the limit of %d", strlen(a->description), HW_TEXT - 1);
    if (a->storage) {
        if (strlen(a->storage) >= sizeof s->storage)
            return err_set(e, ERR_USAGE, "--storage: the path is too long");
        snprintf(s->storage, sizeof s->storage, "%s", a->storage);
    } else {
        const char *slash = beside ? strrchr(beside, '/') : NULL;
        int len = slash == beside ? 1 : slash ? (int)(slash - beside)
                                              : 1;
        snprintf(s->storage, sizeof s->storage, "%.*s", len, slash ? beside : ".");
    }
    if (stat(s->storage, &st) != 0)
        return err_sys(e, ERR_USAGE, "--storage '%s'", s->storage);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_USAGE, "--storage '%s' is not a directory", s->storage);
    return 0;
}

/* As large as a model, since a drive answers faster within a part of it, but at most half of what is free. */
static int default_range(const struct hardware *s, uint64_t *out, struct err *e)
{
    uint64_t space, range = s->a.quick ? QUICK_RANGE : FULL_RANGE;
    int r = file_free_bytes(s->storage, &space, e);
    if (r < 0)
        return r;
    *out = space / 2 < range ? space / 2 : range;
    if (*out < LEAST_RANGE) /* whether there is room for that is the probe's to say */
        *out = LEAST_RANGE;
    return 0;
}

/* Types that --types names. */
static int parse_types(const char *list, uint32_t types[QUANT_LIMIT], int *n, struct err *e)
{
    *n = 0;
    for (const char *p = list; p && *p;) {
        size_t len = strcspn(p, ",");
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), p);
        int type = len < sizeof name ? quant_by_name(name) : -1;
        if (type < 0 || !kernels->rows[KERNELS_ACT_F32][type])
            return err_set(e, ERR_USAGE, "--types: '%.*s' is no type of weights that this program computes with", (int)len, p);
        for (int i = 0; i < *n; i++)
            if (types[i] == (uint32_t)type)
                return err_set(e, ERR_USAGE, "--types names %s twice", name);
        types[(*n)++] = (uint32_t)type;
        p += len + (p[len] == ',');
    }
    return !list || *n ? 0 : err_set(e, ERR_USAGE, "--types names no type");
}

/* The first accelerator that is no CPU, by its number, as plans will name it. What a driver's list says wrong is a warning. */
static void find_accel(struct hardware *s)
{
    struct accel_device all[64];
    for (int b = 0; engines_backend(b) && !s->accel.backend; b++) {
        struct err why = { 0 };
        int n = engines_backend(b)->list(all, 64, &why);
        if (n < 0)
            log_warn("accelerators are not measured: %s", why.msg);
        for (int i = 0; i < n && i < 64 && !s->accel.backend; i++)
            if (strcmp(all[i].kind, "gpu") == 0 || strcmp(all[i].kind, "accelerator") == 0) {
                s->accel.backend = engines_backend(b);
                s->accel.device = i;
                snprintf(s->accel_name, sizeof s->accel_name, "%s:%d", engines_backend(b)->name, i);
            }
    }
}

/* What --engine names, where the table is wanted. */
static int choose_accel(struct hardware *s, int *wanted, struct err *e)
{
    const char *name = s->a.engine ? s->a.engine : "auto";
    int by_list = s->a.only && *wanted, is_auto = !strcmp(name, "auto"), r;
    if (s->a.only && !*wanted) {
        if (s->a.engine && strcmp(name, "none") && !is_auto)
            return err_set(e, ERR_USAGE, "--engine '%s': --only does not name the table 'engine'", name);
        return 0;
    }
    s->accel.device = -1;
    if (is_auto)
        find_accel(s);
    else if ((r = engines_parse("--engine", name, &s->accel.backend, &s->accel.device, e)) < 0)
        return r;
    else
        snprintf(s->accel_name, sizeof s->accel_name, "%.60s", name);
    s->accel.name = s->accel_name;
    s->accel.cache = s->a.engine_cache;
    s->accel_asked = by_list || (!is_auto && s->accel.backend);
    *wanted = s->accel.backend != NULL;
    if (by_list && !*wanted)
        return err_set(e, ERR_USAGE, "--only names the table 'engine', and there is no accelerator%s",
                       is_auto ? " that is no CPU; --engine opencl:N measures any" : ": see --engine");
    return 0;
}

static int (*const make[N_PROBES])(const struct probe_config *, struct probe **, struct err *) = {
    probe_storage_new, probe_memory_new, probe_compute_new, probe_accel_new, probe_joint_new, probe_work_new
};

static int make_probes(struct hardware *s, struct err *e)
{
    const struct hardware_args *a = &s->a;
    int wanted[N_PROBES], r = parse_only(a->only, wanted, e);
    struct probe_config *c = &s->config;
    *c = (struct probe_config){ .cpus = &s->cpus, .quick = a->quick, .seconds_per_point = a->seconds, .storage_dir = s->storage,
                                .range_bytes = a->range_bytes, .memory_range_bytes = a->memory_range_bytes, .accel = &s->accel,
                                .types = s->types };
    if (r == 0)
        r = parse_types(a->types, s->types, &c->n_types, e);
    if (r == 0)
        r = choose_accel(s, &wanted[ENGINE], e);
    if (r == 0 && !c->range_bytes)
        r = default_range(s, &c->range_bytes, e);
    for (int i = 0; i < N_PROBES && r == 0; i++)
        if (wanted[i])
            r = make[i](c, &s->probes[i], e);
    return r;
}

/* Of a clean run. */
static double clean_seconds(const struct hardware *s)
{
    double seconds = 0;
    for (int i = 0; i < N_PROBES; i++)
        seconds += s->probes[i] ? probe_expected_seconds(s->probes[i]) : 0;
    return seconds;
}

static double patience(const struct hardware *s)
{
    return s->a.patience >= 0 ? s->a.patience : clean_seconds(s);
}

int hardware_dry_run(struct hardware *s, struct err *e)
{
    double again = s->a.minutes > 0 ? clean_seconds(s) + 60 * s->a.minutes : 0;
    double seconds = clean_seconds(s) + again, most = seconds + patience(s);
    uint64_t disk = 0, memory = 0, space = 0;
    char a[32], b[32], c[32];
    int n = 0, r = file_free_bytes(s->storage, &space, e);
    if (r < 0)
        return r;
    for (int i = 0; i < N_PROBES; i++) {
        const struct probe *p = s->probes[i];
        if (!p)
            continue;
        if (s->a.json)
            print(n++ ? "," : "{\n  \"tables\": [");
        if (s->a.json)
            print_json_to(stdout, "\n    {\n      \"table\": \"%s\",\n      \"points\": %d,\n      \"repetitions\": %d,\n"
                          "      \"seconds\": %.6g\n    }", p->table, p->n_points, p->reps, probe_expected_seconds(p));
        else
            print("%-8s %4d points x %d, about %.0f s\n", p->table, p->n_points, p->reps, probe_expected_seconds(p));
        disk = p->disk_bytes > disk ? p->disk_bytes : disk; /* one file after the other */
        memory = p->memory_bytes > memory ? p->memory_bytes : memory;
    }
    if (s->a.json)
        print_json_to(stdout, "\n  ],\n  \"seconds\": %.6g,\n  \"seconds_at_most\": %.6g,\n  \"disk_bytes\": %llu,\n"
              "  \"disk_free_bytes\": %llu,\n  \"memory_bytes\": %llu\n}\n", seconds, most, (unsigned long long)disk,
              (unsigned long long)space, (unsigned long long)memory);
    else
        print("together about %.0f s, %.0f s where other programs disturb it; %s of disk in '%s' (%s free) while it lasts, %s of memory\n",
              seconds, most, size_format(disk, a, sizeof a), s->storage, size_format(space, b, sizeof b), size_format(memory, c, sizeof c));
    return 0;
}

/* After minutes under load each table once more, while it is hot: what computes first. */
static int measure_again(struct hardware *s, int64_t start, struct watch *watch, struct err *e)
{
    static const int order[N_PROBES] = { COMPUTE, WORK, JOINT, MEMORY, STORAGE, ENGINE };
    struct progress progress;
    uint64_t total = 0;
    double first, last, before = probe_temperature_c();
    int r = probe_load(&s->config, 60 * s->a.minutes, &first, &last, e);
    if (r < 0)
        return r;
    double after = probe_temperature_c();
    int n = snprintf(s->loaded, sizeof s->loaded, "sustained figures after %g minutes under load, which ended at %.0f %% of its first rate",
                     s->a.minutes, first > 0 ? 100 * last / first : 0);
    if (before == before && after == after) /* NaN: no sensor */
        snprintf(s->loaded + n, sizeof s->loaded - (size_t)n, " and %.1f C, from %.1f", after, before);
    log_info("%s", s->loaded);
    for (int i = 0; i < N_PROBES; i++)
        total += s->probes[i] ? (uint64_t)s->probes[i]->n_points * (uint64_t)s->probes[i]->reps : 0;
    progress_init(&progress, "measuring under load", "samples", total);
    for (int i = 0; i < N_PROBES && r == 0; i++) {
        struct probe *p = s->probes[order[i]], *late = NULL;
        if (!p || p->reps_done == 0)
            continue;
        if ((r = make[order[i]](&s->config, &late, e)) == 0)
            r = probe_run(late, start, watch, &progress, e);
        if (late)
            probe_add_late(p, late);
        probe_free(late);
        if (order[i] == ENGINE && r < 0 && r != ERR_INTR && !s->accel_asked) {
            log_warn("%s; the accelerator has no figures under load", e->msg);
            r = 0;
        }
    }
    progress_done(&progress);
    return r;
}

static int measure(struct hardware *s, struct err *e)
{
    struct progress progress;
    struct watch watch;
    uint64_t total = 0;
    int r = 0;
    for (int i = 0; i < N_PROBES; i++)
        total += s->probes[i] ? (uint64_t)s->probes[i]->n_points * (uint64_t)s->probes[i]->reps : 0;
    int64_t start = progress_now_ns();
    watch_init(&watch, patience(s));
    progress_init(&progress, "measuring", "samples", total);
    for (int i = 0; i < N_PROBES && r == 0; i++) {
        if (s->probes[i])
            r = probe_run(s->probes[i], start, &watch, &progress, e);
        if (i == ENGINE && r < 0 && r != ERR_INTR && !s->accel_asked) {
            log_warn("%s; the accelerator is not measured", e->msg);
            probe_free(s->probes[i]);
            s->probes[i] = NULL;
            r = 0;
        }
    }
    progress_done(&progress);
    return r == 0 && s->a.minutes > 0 ? measure_again(s, start, &watch, e) : r;
}

/* What tables were measured under; where that was not clean it is said too. */
static int record_conditions(struct hardware *s, struct err *e)
{
    static const enum hw_table table_of[N_PROBES] = { [STORAGE] = HW_STORAGE, [MEMORY] = HW_MEMORY, [COMPUTE] = HW_COMPUTE,
                                                      [WORK] = HW_COMPUTE, [ENGINE] = HW_ACCELERATOR, [JOINT] = HW_JOINT };
    struct hw_conditions seen[HW_TABLES] = { { .watched = 0 } };
    uint64_t n[HW_TABLES] = { 0 };
    int r = 0;
    for (int i = 0; i < N_PROBES; i++) {
        const struct probe *p = s->probes[i];
        if (!p || p->reps_done == 0)
            continue;
        watch_merge(&seen[table_of[i]], n[table_of[i]], &p->conditions, p->n_taken);
        n[table_of[i]] += p->n_taken;
    }
    for (int t = 0; t < HW_TABLES && r == 0; t++) {
        char words[400];
        if (!n[t])
            continue;
        if (!seen[t].watched) /* nothing is known but when */
            seen[t] = (struct hw_conditions){ .watched = 0 };
        snprintf(seen[t].measured_at, sizeof seen[t].measured_at, "%s", s->started);
        seen[t].table = (enum hw_table)t;
        r = hwdb_record_add(&s->record, HWDB_CONDITIONS, &seen[t], NULL, 0, e);
        hw_marks_words(&seen[t], words, sizeof words);
        if (words[0])
            log_warn("%s: not measured on a quiet machine, and marked so: %s", hw_table_name((enum hw_table)t), words);
    }
    return r;
}

static void note(struct hardware *s, const char *what, const char *text)
{
    size_t n = strlen(s->notes);
    if (text && text[0] && utf8_is_printable(text, strlen(text)))
        snprintf(s->notes + n, sizeof s->notes - n, "%s%s%.200s", n ? "; " : "", what, text);
}

/* What figures depend on beside the device: they travel with them, as the source of each in a CSV. */
static void note_conditions(struct hardware *s, const char *drive)
{
    const struct probe_env *v = &s->env;
    char text[64] = "";
    s->notes[0] = 0;
    note(s, "", drive);
    note(s, "", s->cpus.note);
    note(s, "governor ", v->governor);
    note(s, "battery ", v->battery);
    if (s->temperature_c == s->temperature_c) /* NaN: no sensor */
        snprintf(text, sizeof text, "%.1f C at the start", s->temperature_c);
    note(s, "", text);
    if (v->available_bytes)
        size_format(v->available_bytes, text, sizeof text);
    note(s, "memory available ", v->available_bytes ? text : NULL);
    note(s, "kept free by Android ", v->kept_free_bytes ? size_format(v->kept_free_bytes, text, sizeof text) : NULL);
    note(s, "", s->loaded);
    s->record.run.notes = s->notes;
}

static int record_all(struct hardware *s, struct err *e)
{
    const struct hardware_args *a = &s->a;
    const struct probe_env *v = &s->env;
    const struct probe *disk = s->probes[STORAGE];
    struct hw *device = &s->record.hw;
    *device = (struct hw){ .memory_bytes = v->memory_bytes, .app_memory_limit_bytes = v->app_memory_limit_bytes, .origin = HW_MEASURED,
                         .source = "thermo-profile hardware" };
    device->available_bytes = v->available_bytes > v->kept_free_bytes ? v->available_bytes - v->kept_free_bytes : 0;
    if (v->app_memory_limit_bytes && device->available_bytes > v->app_memory_limit_bytes)
        device->available_bytes = v->app_memory_limit_bytes;
    snprintf(device->name, sizeof device->name, "%s", a->device);
    snprintf(device->description, sizeof device->description, "%s", a->description ? a->description : "");
    snprintf(device->cpu_model, sizeof device->cpu_model, "%s", v->cpu_model);
    snprintf(device->os, sizeof device->os, "%s", v->os);
    snprintf(device->storage, sizeof device->storage, "%s", v->storage);
    snprintf(device->filesystem, sizeof device->filesystem, "%s", v->filesystem);
    s->record.run = (struct hwdb_run){ .started_at = s->started, .tool_version = THERMO_VERSION, .command = s->command,
                            .kernel = v->kernel, .governor = v->governor[0] ? v->governor : NULL, .temperature_c = s->temperature_c,
                            .direct_verified = -1 };
    if (disk && disk->reps_done > 0) {
        s->record.run.filesystem = v->filesystem;
        s->record.run.mount = v->mount;
        s->record.run.mount_options = v->mount_options;
        s->record.run.block_device = v->block_device;
        s->record.run.direct_verified = disk->direct_verified;
    }
    note_conditions(s, disk && disk->reps_done > 0 ? disk->notes : NULL);
    int r = 0;
    for (int k = 0; k < s->cpus.n_classes && r == 0; k++)
        r = hwdb_record_add(&s->record, HWDB_CORE_CLASS, &s->cpus.classes[k], NULL, 0, e);
    for (int i = 0; i < N_PROBES && r == 0; i++)
        if (s->probes[i] && s->probes[i]->reps_done > 0)
            r = s->probes[i]->store(s->probes[i], &s->record, e);
    if (r == 0)
        r = record_conditions(s, e);
    hwdb_record_sort(&s->record);
    return r;
}

static void fill_session(struct hardware *s, const char *program, char **words, int n_words)
{
    probe_env_read(&s->env, s->storage, s->cpus.cpu[0]);
    s->temperature_c = probe_temperature_c();
    hw_time_text((int64_t)time(NULL), s->started);
    snprintf(s->command, sizeof s->command, "%s", program);
    for (int i = 0; i < n_words; i++) {
        size_t n = strlen(s->command);
        snprintf(s->command + n, sizeof s->command - n, " %s", words[i]);
    }
}

int hardware_prepare(struct hardware *s, const char *beside, const char *program, char **words, int n, struct err *e)
{
    unsigned mask = 0;
    int r = cpu_parse(s->a.cpu ? s->a.cpu : "auto", &mask, e);
    if (r < 0 || (r = check_names(s, beside, e)) < 0)
        return r;
    kernels_init(mask);
    probe_cpus_find(&s->cpus);
    if ((r = make_probes(s, e)) == 0)
        fill_session(s, program, words, n);
    return r;
}

int hardware_is_empty(const struct hardware *s)
{
    for (int i = 0; i < N_PROBES; i++)
        if (s->probes[i] && s->probes[i]->reps_done > 0)
            return 0;
    return 1;
}

int hardware_measure(struct hardware *s, struct err *e)
{
    struct err kept = { 0 };
    file_catch_interrupt();
    int r = measure(s, e);
    if (r < 0 && r != ERR_INTR)
        return r;
    if (!hardware_is_empty(s) && record_all(s, &kept) < 0) {
        *e = kept;
        return kept.code;
    }
    return r == 0 ? 0 : err_set(e, ERR_INTR, "interrupted; %s", hardware_is_empty(s) ? "nothing was kept" :
                                "the tables finished until then are kept");
}

int hardware_csv(const struct hardware *s, const char *path, struct err *e)
{
    struct hw_sources *from = calloc(1, sizeof *from);
    char *text = NULL;
    size_t len = 0;
    FILE *f = from ? open_memstream(&text, &len) : NULL;
    int r = f ? 0 : err_set(e, ERR_NOMEM, "writing CSV: out of memory");
    if (r == 0) {
        snprintf(from->device.text, sizeof from->device.text, "measured by thermo-profile %s, %s%s%s", s->record.run.tool_version,
                 s->record.run.started_at, s->notes[0] ? "; " : "", s->notes);
        memcpy(from->samples, s->record.samples, sizeof from->samples);
        hwdb_csv_header(f);
        r = hwdb_csv_device(f, &s->record.hw, from, e);
        if (fclose(f) != 0 && r == 0)
            r = err_set(e, ERR_NOMEM, "writing CSV: out of memory");
    }
    if (r == 0)
        r = file_replace(path ? path : "/dev/stdout", text, len, e);
    free(text);
    free(from);
    return r;
}

void hardware_done(struct hardware *s)
{
    for (int i = 0; i < N_PROBES; i++) {
        probe_free(s->probes[i]);
        s->probes[i] = NULL;
    }
    hwdb_record_done(&s->record);
}
