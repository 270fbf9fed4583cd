#ifndef COMMON_HWDB_HWDB_H
#define COMMON_HWDB_HWDB_H

/* What a hardware database holds of a device, as plain structs, without the database (common/offline/hwdb/hwdb.h): what probes measure,
 * a CSV carries and a planner asks for. The fields of each are those of schemas/hwdb.sql (hwdb_parts.h).
 *
 * Rates and times come as percentiles over repeated samples spread through the run. "Sustained"
 * means what nine samples in ten reach: p10 of a rate, p90 of a time. Of a device that was measured again after minutes
 * under load those are of the later samples, and p50 of the first. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

#define HW_NAME        64
#define HW_TEXT        256
#define HW_MAX_CLASSES 16
#define HWDB_MAX_ACCELS 64
#define HW_MAX_SAMPLES  4096 /* of one row */
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
#define HW_TIME 48
void hw_time_text(int64_t seconds, char out[HW_TIME]); /* and back, from 0 on */

/* One device, ready for a planner. */
struct hw {
    char name[HW_NAME];
    char description[HW_TEXT], soc[HW_TEXT], cpu_model[HW_TEXT], os[HW_TEXT], storage[HW_TEXT],
        filesystem[HW_NAME];
    char source[HW_TEXT];
    enum hw_origin origin;
    uint64_t memory_bytes;           /* of the machine; 0: not known */
    uint64_t app_memory_limit_bytes; /* the most one program may hold; 0: no other limit than memory_bytes */
    uint64_t available_bytes;        /* of memory, when it was measured, less what Android's low memory killer keeps free; 0: not known */
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

void hw_free(struct hw *h); /* accepts a zeroed one */

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

enum hwdb_kind { HWDB_DEVICE, HWDB_CORE_CLASS, HWDB_COMPUTE, HWDB_MEMORY, HWDB_STORAGE, HWDB_ACCELERATOR, HWDB_ACCELERATOR_POINT,
                 HWDB_JOINT, HWDB_CONDITIONS, HWDB_KINDS };

struct hwdb_sample {
    double value;         /* in the unit of the row's p50 column */
    double t_s;           /* since the run began */
    double temperature_c; /* NAN: no sensor */
};

struct hwdb_samples {
    struct hwdb_sample *s; /* in the order taken */
    int n;
};

/* What each figure of a loaded device rests on: texts in the order of its arrays, "measured by thermo-profile VERSION, DATE"
 * where the database says no more; and the samples behind its points. facts are those of the device's own fields that say so by
 * themselves; what they do not name rests on `device`. For export; free with hw_sources_done, which accepts a zeroed one. */
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
    struct hw_source device, *of[HWDB_KINDS]; /* of each row of classes and points; NULL: all rest on `device` */
    struct hw_fact facts[16];
    int n_facts;
    struct hwdb_samples *samples[HWDB_KINDS]; /* of each row of tables that have some; NULL: none */
    int n_samples[HWDB_KINDS];                /* rows of these */
};
void hw_sources_done(struct hw_sources *s);

struct hwdb_run {                                    /* the conditions of one measurement */
    const char *started_at, *tool_version, *command; /* started_at: UTC "2024-11-21T09:47:00Z" */
    const char *kernel, *governor, *filesystem, *mount, *mount_options, *block_device, *notes;
    double temperature_c;     /* NAN: no sensor */
    int direct_verified;      /* -1: storage was not measured */
    const char *content_hash; /* of an import's rows; NULL for measurements */
};

/* p10, p50, p90 of n > 0 samples (sorted in place), by linear interpolation between order statistics. */
struct hw_dist hw_dist_of(double *values, int n);

#endif
