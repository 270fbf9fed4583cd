#ifndef COMMON_OFFLINE_HWDB_HWDB_H
#define COMMON_OFFLINE_HWDB_HWDB_H

/* The hardware database: what devices can do, measured by `thermo-profile hardware` or taken from
 * publications by `thermo-profile import`. SQLite; schemas/hwdb.sql specifies it and is the very
 * text that creates one. Here: plain structs, reading (hwdb_load), writing (struct hwdb), and the
 * interpolation that the planner asks through.
 *
 * Reading changes nothing on disk, whatever lies beside the file: a journal that is to be played, or a write-ahead log, is ERR_INPUT.
 * What a writer that died has left is taken back by hwdb_open and hwdb_begin; a journal that names another file by nobody.
 *
 * A device may have been measured several times. Nothing measured is ever overwritten: a reader
 * takes, table by table, the rows of the newest run that measured that table.
 *
 * Rates and times come as percentiles over repeated samples spread through the run. "Sustained"
 * means what nine samples in ten reach: p10 of a rate, p90 of a time. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

#define HW_NAME        64
#define HW_TEXT        256
#define HW_MAX_CLASSES 16
#define HW_MAX_POINTS  65536 /* rows of one table that a reader accepts for one device; */
#define HW_MAX_JOINT   512   /* of joint, which are gone over again and again */

enum hw_pattern { HW_SEQ, HW_RANDOM };
enum hw_backend { HW_PREAD, HW_URING, HW_ANY_BACKEND = -1 };
enum hw_origin { HW_MEASURED, HW_PUBLISHED, HW_ESTIMATED };
enum hw_stat { HW_TYPICAL, HW_SUSTAINED };

const char *hw_pattern_name(enum hw_pattern p); /* "seq", "random" */
const char *hw_backend_name(enum hw_backend b); /* "pread", "io_uring" */
const char *hw_origin_name(enum hw_origin o);   /* "measured", "published", "estimated" */

struct hw_dist {
    double p10, p50, p90;
};

/* Cores of one kind, fastest first. */
struct hw_class {
    char name[HW_NAME];
    int n_cores;
    uint64_t max_hz; /* 0: unknown */
    enum hw_origin origin;
};

/* Time of one weight row against `batch` tokens by one of our kernels. kernel is "rows/TYPE/ACT"
 * (a row product; TYPE as quant_traits names it in lower case, ACT "f32" or "q8") or "axpy/TYPE";
 * "flops/fp32", "flops/int8" state a rate only (row_len 0, ns_per_row 0) and come from imports. "work/WHAT": what the
 * engine does beside the products of weights, per item; row_len is the size that hw_work_ns explains. */
struct hw_compute {
    int core_class; /* index; -1: threads over all classes, fastest first */
    char kernel[HW_NAME];
    char tier[HW_NAME];      /* SIMD tier that ran: "avx2" */
    enum hw_pattern pattern; /* HW_SEQ: consecutive rows (kernels rows); HW_RANDOM: rows anywhere (rows_at) */
    int dram;                /* 0: the rows stay in a core's own cache; 1: they come from memory each time */
    int threads;
    int row_len, rows, batch;
    struct hw_dist ns_per_row; /* wall time / rows done by all threads together */
    double flops_per_s;        /* 2 * row_len * batch / p50, all threads together */
    enum hw_origin origin;
};

/* Reading memory: whole sweeps (seq), or rows of row_bytes in random order. */
struct hw_memory {
    char engines[HW_NAME]; /* who reads: "cpu", "npu", "cpu+npu" together */
    enum hw_pattern pattern;
    uint64_t row_bytes;
    int threads; /* CPU threads; 0 for another engine */
    struct hw_dist bytes_per_s;
    enum hw_origin origin;
};

struct hw_storage {
    enum hw_backend backend;
    int direct; /* O_DIRECT, and verified to return the file's bytes */
    enum hw_pattern pattern;
    uint64_t block_bytes;
    int queue_depth;      /* reads in flight per lane; pread keeps as many threads */
    int lanes;            /* submitting threads */
    uint64_t range_bytes; /* reads fall within this much of the file */
    int core_class;       /* of the submitting threads; -1: not pinned or not known */
    struct hw_dist bytes_per_s;
    double latency_ns_p50, latency_ns_p99; /* 0: not known */
    double cpu_ns_per_read;                /* CPU time of submitting and reaping; 0: not known */
    double batch_completion_share;         /* of the reads in flight that end at one moment, 0 to 1; 0: not known */
    double uncached_destination_ratio;     /* the rate of such reads into memory that no cache holds, as slots are, by that; 0: not known */
    uint64_t page_bytes;                   /* pages of the memory that reads arrived in, most of it; 0: not known */
    enum hw_origin origin;
};

/* Reads and rows of weights beside each other: hwdb.sql. */
struct hw_joint {
    enum hw_backend backend;
    uint64_t block_bytes;
    int queue_depth, threads, load_percent; /* threads compute; 100: reads as fast as the queue gives them */
    struct hw_dist bytes_per_s;             /* of the reads, beside the rows */
    double read_rate_ratio, row_rate_ratio; /* beside each other / alone, 0 to 1 */
    uint64_t page_bytes;
    enum hw_origin origin;
};

struct hw_accel {
    char engine[HW_NAME]; /* "opencl", "npu" */
    char description[HW_TEXT];
    uint64_t addressable_bytes; /* 0: not known */
    double launch_ns;           /* one empty launch and wait; 0: not known */
    int shares_memory;          /* its memory is the CPU's */
    uint64_t driver_bytes;      /* of the process's memory, its driver and programs; 0: not known */
    enum hw_origin origin;
};

struct hw_accel_point {
    int accel;        /* index into accels */
    char op[HW_NAME]; /* "matmul/q4_0" */
    int rows, cols, batch;
    struct hw_dist ns; /* launch included */
    enum hw_origin origin;
};

/* The name that what was measured has by a weight type: "matmul/q4_0", "rows/q4_0/q8". act NULL: without it. A type that is not known is
 * "?". */
void hw_op_name(const char *op, uint32_t type, const char *act, char *out, size_t len);

/* Terms of a decode step that running plans can correct: thermo-plan calibrate. */
enum hw_term { HW_ATTENTION, HW_PREDICT, HW_FFN, HW_IO, HW_HEAD, HW_TERMS };
const char *hw_term_name(enum hw_term t); /* "attention" "predict" "ffn" "io" "head" */

/* When a table was measured, and what ran beside it. Marks: what was not kept below its limit (profiler/probe/watch.h). */
enum hw_table { HW_COMPUTE, HW_MEMORY, HW_STORAGE, HW_JOINT, HW_ACCELERATOR, HW_TABLES };
enum hw_mark { HW_OTHERS, HW_STOLEN, HW_WAITED, HW_SHORT_OF_MEMORY, HW_SPREAD, HW_MARKS };
const char *hw_table_name(enum hw_table t); /* "compute" "memory" "storage" "joint" "accelerator" */
const char *hw_mark_name(enum hw_mark m);   /* "others" "stolen" "waited" "memory" "spread" */

struct hw_conditions {
    enum hw_table table;
    char measured_at[HW_NAME]; /* UTC, ISO 8601; "": not measured, or not known when */
    int watched;               /* 0: what ran beside it is not known, and what follows is 0 */
    unsigned marks;            /* 1u << enum hw_mark */
    /* The largest of any window of samples that was kept: share of all CPUs' time that other programs and the hypervisor
     * took, share of time in which something waited for a CPU or for memory. */
    double others, stolen, waited_for_cpu, short_of_memory;
    double spread;    /* (p90 - p10) / p50 of a point's samples, in the middle of all points */
    double disturbed; /* share of samples in windows that are not clean */
    double paused_s;  /* waiting for the machine to become quiet */
    int repeated;     /* samples that were taken again */
};

/* "clean", or the marks' names with a space between them; and back: 0, or -1 for another text. */
void hw_marks_text(unsigned marks, char out[HW_NAME]);
int hw_marks_of(const char *text, unsigned *marks);

/* The marks in words: "other programs took up to 45 % of the processors, ..."; "" where there is none. What does not fit is
 * left out whole. */
void hw_marks_words(const struct hw_conditions *c, char *out, size_t len);

/* Seconds since 1970 of a time such as "2024-11-21T09:47:00Z"; -1 for another text. */
int64_t hw_time_of(const char *text);

/* One device, ready for a planner. */
struct hw {
    char name[HW_NAME];
    char description[HW_TEXT], soc[HW_TEXT], cpu_model[HW_TEXT], os[HW_TEXT], storage[HW_TEXT],
        filesystem[HW_NAME];
    char source[HW_TEXT];
    enum hw_origin origin;
    uint64_t memory_bytes;           /* of the machine; 0: not known */
    uint64_t app_memory_limit_bytes; /* the most one program may hold; 0: no other limit than memory_bytes */
    int n_classes, n_compute, n_memory, n_storage, n_accels, n_accel_points, n_joint;
    struct hw_class classes[HW_MAX_CLASSES];
    struct hw_compute *compute;
    int by_kernel;                   /* compute is in strcmp's order of kernels, as hwdb_load leaves it: those of one are found faster */
    struct hw_memory *memory;
    struct hw_storage *storage_points;
    int reads_first[2][2], reads_end[2][2]; /* of a loaded device: [backend][pattern] among which storage_points its own are; else 0 */
    struct hw_accel *accels;
    struct hw_accel_point *accel_points;
    struct hw_joint *joint;
    struct hash128 hash; /* of all of the above in canonical order, not of dates and notes; of corrections too where
                          * they are applied */
    struct hw_conditions conditions[HW_TABLES]; /* of the run that each table is from */
    int64_t calibration; /* whose corrections are applied; 0: figures as they were measured */
    double correction[HW_TERMS]; /* measured over predicted time; 0: none, as 1 */
};

/* Load one device; device NULL takes the only one. An unknown name is ERR_USAGE and the message lists
 * the names there are. The file is not trusted: another application's file, a newer revision, altered
 * table definitions, corruption, wrong types, negative or non-finite numbers, names or counts beyond the
 * limits are ERR_FORMAT (ERR_UNSUPPORTED for the revision) and name table, row and column. */
int hwdb_load(const char *path, const char *device, struct hw *out, struct err *e);
void hw_free(struct hw *h); /* accepts a zeroed one */

/* Apply a calibration to a device as hwdb_load gave it. want NULL: the newest that was made with these very
 * figures; else the one that makes h->hash equal *want. Returns 1 when applied, 0 when there is none (h is as it
 * was). */
int hwdb_correct(const char *path, const struct hash128 *want, struct hw *h, struct err *e);

static inline double hw_correction(const struct hw *h, enum hw_term t)
{
    return h->correction[t] > 0 ? h->correction[t] : 1;
}

/* Cores of a class; -1: of all. */
static inline int hw_cores(const struct hw *h, int core_class)
{
    int n = 0;
    for (int k = 0; k < h->n_classes; k++)
        n += core_class == -1 || core_class == k ? h->classes[k].n_cores : 0;
    return n;
}

/* What each figure of a loaded device rests on: texts in the order of its arrays, "measured by thermo-profile VERSION, DATE"
 * where the database says no more. facts are those of the device's own fields that say so by themselves; what they
 * do not name rests on `device`. For export; free with hw_sources_done, which accepts a zeroed one. */
#define HW_SOURCE 1000
struct hw_source {
    char text[HW_SOURCE];
};
struct hw_fact {
    char field[HW_NAME];
    enum hw_origin origin;
    struct hw_source source;
};
struct hw_sources {
    struct hw_source device, classes[HW_MAX_CLASSES], *compute, *memory, *storage, *accels, *accel_points, *joint;
    struct hw_fact facts[16];
    int n_facts;
};
int hwdb_load_sources(const char *path, const struct hw *h, struct hw_sources *out, struct err *e);
void hw_sources_done(struct hw_sources *s);

/* Names of all devices, sorted; *names is one malloc'd block (free(*names)). */
int hwdb_list(const char *path, char ***names, int *n, struct err *e);

/* --- What the planner asks. All are pure, deterministic and thread-safe; 0 means the database knows
 * nothing about this. Between measured points values are interpolated linearly in log-log scale, one
 * dimension inside the other; beyond the ends they are held, unless said otherwise. --- */

struct hw_read {
    enum hw_backend backend; /* HW_ANY_BACKEND: the faster one at this point */
    enum hw_pattern pattern;
    uint64_t block_bytes, range_bytes; /* range_bytes 0: the largest measured */
    int queue_depth, lanes;            /* lanes: the nearest measured */
    int core_class; /* -1: do not care. Where only some points were measured on this class, the
                              * others are scaled by the ratio at the nearest of them */
};

double hw_storage_bytes_per_s(const struct hw *h, const struct hw_read *q, enum hw_stat stat);
double hw_storage_cpu_ns_per_read(const struct hw *h, const struct hw_read *q);
double hw_storage_together(const struct hw *h, const struct hw_read *q); /* share of the reads in flight, of one lane */
uint64_t hw_storage_page_bytes(const struct hw *h);                       /* the smallest hw_storage.page_bytes known; 0: none is */
double hw_storage_slots(const struct hw *h, const struct hw_read *q);    /* hw_storage.uncached_destination_ratio; 1: not known */

/* What a read and `threads` threads that compute cost each other: hwdb_joint.c. lost_ns: of the time of all these threads, to a read that
 * goes on beside them, where reads have bytes_per_s with idle cores; no less per second the faster they are. kept: the share of that rate
 * that they keep, no more the more threads compute. 0, and *out as if they cost nothing, where the device has no such figures of this back
 * end; else 1. */
struct hw_beside {
    double lost_ns, kept;
};
int hw_beside_of(const struct hw *h, const struct hw_read *q, int threads, double bytes_per_s, struct hw_beside *out);

/* engines: "cpu". A missing random pattern is answered from seq. */
double hw_memory_bytes_per_s(const struct hw *h, const char *engines, enum hw_pattern pattern,
                             uint64_t row_bytes, int threads, enum hw_stat stat);

struct hw_rows {
    const char *kernel;
    int core_class;          /* -1: threads over all classes */
    enum hw_pattern pattern; /* a missing pattern or dram is answered from the other */
    int dram, threads;
    int row_len, batch; /* beyond the largest measured: in proportion */
};

/* ns of wall time per row. A kernel that was not measured is answered from the class's "flops/int8"
 * (q8 activations) or "flops/fp32" rate where that is known. */
double hw_row_ns(const struct hw *h, const struct hw_rows *q, enum hw_stat stat);

/* The most tokens, at most `batch`, that a kernel was measured with on rows from memory that are no longer; 1: no more than one. */
int hw_fetched_tokens(const struct hw *h, const char *kernel, enum hw_pattern pattern, int row_len, int batch);

/* ns of one item of the engine's own work beside the products of weights, as compute rows "work/..." have it: "work/start" a
 * job on `threads` threads, "work/turn" at the lock of a list of jobs that they share, "work/lookup" in a cache of `size` units,
 * "work/admit" and "work/verify" of a unit of `size` bytes, "work/norm" residual addition, norm and int8 activations of
 * `size` elements, "work/rope" of a head of `size` elements, "work/attend" one position of such a head, "work/attend_many" the same where a
 * prompt's tokens are taken several at a time, "work/act" and "work/sift" what a neuron's h of a token takes to be
 * made, and to be gathered and looked at for Down, in FFNs of `size` neurons. 0: not measured. */
double hw_work_ns(const struct hw *h, const char *work, int core_class, int threads, int size, enum hw_stat stat);

/* Scalars of the paper's cost model. f_k: FLOP/s of one core of class k by this kernel at batch 1 with rows
 * in cache, at the largest row measured. B_mem: seq, all threads. B_io: the given read. */
double hw_class_flops_per_s(const struct hw *h, int core_class, const char *kernel, enum hw_stat stat);
double hw_mem_bytes_per_s(const struct hw *h, enum hw_stat stat);

/* Which of the device's accelerators has that name; -1: none, or h or name is NULL. */
int hw_accel_of(const struct hw *h, const char *name);

/* ns of one matrix product on an accelerator; rows, cols and batch interpolated, in proportion beyond; with fewer rows or columns than were
 * measured a launch, and the rest of the smallest in proportion. */
double hw_accel_ns(const struct hw *h, int accel, const char *op, int rows, int cols, int batch,
                   enum hw_stat stat);

/* --- Writing. One owner thread. --- */
struct hwdb;

struct hwdb_run {                                    /* the conditions of one measurement */
    const char *started_at, *tool_version, *command; /* started_at: UTC "2024-11-21T09:47:00Z" */
    const char *kernel, *governor, *filesystem, *mount, *mount_options, *block_device, *notes;
    double temperature_c;     /* NAN: no sensor */
    int direct_verified;      /* -1: storage was not measured */
    const char *content_hash; /* of an import's rows; NULL for measurements */
};

struct hwdb_sample {
    double value;         /* in the unit of the row's p50 column */
    double t_s;           /* since the run began */
    double temperature_c; /* NAN: no sensor */
};

/* Get ready to write: the path, its folder and, where it is there, the file are checked now, so that a long
 * measurement does not end in a refusal; nothing is created, changed (but for what a writer that died has left) or held until
 * hwdb_begin. Another application's file is ERR_FORMAT, another revision ERR_UNSUPPORTED. */
int hwdb_open(const char *path, struct hwdb **out, struct err *e);
void hwdb_close(struct hwdb *d); /* rolls back what was not committed, removes no file; accepts NULL */

/* How long hwdb_begin and hwdb_commit wait for another program that holds the database locked, before they are ERR_SYS. */
#define HWDB_WAIT_S 60
void hwdb_wait(struct hwdb *d, double seconds);

/* ERR_MISMATCH where a device of this name is there and was entered the other way (see hwdb_begin); 0 where there is none. */
int hwdb_check_device(const char *path, const char *device, int imported, struct err *e);

/* One short transaction: begin creates the file as needed, inserts or updates the
 * device and inserts the run; add_* rows refer to it; commit makes it all visible at once. hwdb_begin before the commit
 * adds a further device to the same transaction. A device is either measured here or imported (its run has a
 * content_hash, whatever its figures' origin): the other is ERR_MISMATCH. A new import of a device replaces its former one;
 * *unchanged (may be NULL) is set, and nothing is added, when content_hash equals that of the import already there. Where
 * hwdb_begin has set unchanged for all, hwdb_commit does nothing. */
int hwdb_begin(struct hwdb *d, const struct hw *dev, const struct hwdb_run *run, int *unchanged, struct err *e);

/* A row of a table from its struct (hwdb_parts.h); source may be NULL, and n 0. Accelerators come before their points. */
enum hwdb_kind { HWDB_DEVICE, HWDB_CORE_CLASS, HWDB_COMPUTE, HWDB_MEMORY, HWDB_STORAGE, HWDB_ACCELERATOR, HWDB_ACCELERATOR_POINT,
                 HWDB_JOINT, HWDB_CONDITIONS, HWDB_KINDS };
int hwdb_add(struct hwdb *d, enum hwdb_kind k, const void *item, const char *source, const struct hwdb_sample *s, int n, struct err *e);

int hwdb_add_fact_source(struct hwdb *d, const char *field, enum hw_origin origin, const char *source,
                         struct err *e); /* where a field of the device row comes from */
int hwdb_commit(struct hwdb *d, struct err *e);

/* Corrections of a device that is there, in one transaction of its own (none may be open). hardware_hash: of its figures, uncorrected.
 * Terms of runs 0 are left out; at least one is told. */
struct hwdb_calibration {
    const char *device, *created_at, *tool_version, *model;
    struct hash128 hardware_hash, plan_hash;
    int runs, term_runs[HW_TERMS];
    struct hw_dist factor[HW_TERMS];
};
int hwdb_add_calibration(struct hwdb *d, const struct hwdb_calibration *c, struct err *e);

/* p10, p50, p90 of n > 0 samples (sorted in place), by linear interpolation between order statistics. */
struct hw_dist hw_dist_of(double *values, int n);

#endif
