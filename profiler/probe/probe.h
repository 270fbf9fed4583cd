#ifndef PROFILER_PROBE_PROBE_H
#define PROFILER_PROBE_PROBE_H

/* Measuring the machine for `thermo-profile hardware` and `thermo-probe`. A probe is a list of points of one table of the
 * hardware database and a way to take one sample of one of them. probe_run goes through all points once in a
 * shuffled order, then again in another, so that heat and the drive's own housekeeping fall on all points alike
 * and show as spread, not as a slope over the grid. */
#include "common/base/err.h"
#include "common/base/pool.h"
#include "common/base/progress.h"
#include "common/base/splitmix.h"
#include "common/engines/engines.h"
#include "common/hwdb/hwdb_record.h"
#include "profiler/probe/watch.h"

#include <stdint.h>

/* CPUs this process may use, in core classes, fastest first. Where the system does not let threads be pinned (pool_refused) figures of
 * classes would be anybody's: all are one, which nobody is pinned to, and plans then place no threads. */
struct probe_cpus {
    int n, n_classes, refused;
    char note[128]; /* of that, "" else */
    int cpu[POOL_MAX_THREADS], class_of[POOL_MAX_THREADS];
    struct hw_class classes[HW_MAX_CLASSES];
};

void probe_cpus_find(struct probe_cpus *out);

/* CPU numbers for `threads` threads of a class (-1: all classes, fastest first); returns how many there are. */
int probe_cpus_pick(const struct probe_cpus *c, int core_class, int threads, int *cpus);

struct probe_accel_config {
    const char *name; /* what the database and plans call it */
    const struct accel_backend *backend;
    int device;        /* -1: the back end's choice */
    const char *cache; /* of its programs, or NULL */
};

struct probe_config {
    const struct probe_cpus *cpus;
    int quick;
    double seconds_per_point;  /* over all repetitions; 0: the probe's own */
    const char *storage_dir;
    const uint32_t *types;     /* of weights, whose kernels "compute" measures; n_types 0: its own */
    int n_types;
    uint64_t range_bytes;      /* largest range that storage is read in, and size of the test file */
    uint64_t memory_range_bytes; /* of the buffers of "compute" and "memory"; 0: several times the last-level cache */
    const struct probe_accel_config *accel;
};

struct probe {
    const char *table;         /* "compute", "memory", "storage"; "work": what the runtime does beside; "engine": an accelerator */
    int n_points, reps;
    double seconds;            /* of one sample */
    uint64_t disk_bytes;       /* of the test file */
    uint64_t memory_bytes;     /* of buffers, while it runs */
    const char *notes;         /* for the run, after prepare; NULL: none */
    int direct_verified;       /* -1: not a matter of this probe */
    int kernel_helps;          /* the kernel works for it in threads of its own (watch.h) */

    int (*prepare)(struct probe *p, struct err *e);                      /* buffers, files */
    /* rep: of the point; a sample that is taken again replaces what the same rep gave before */
    int (*sample)(struct probe *p, int point, int rep, double *value, struct err *e);
    /* Add every point to the record. */
    int (*store)(struct probe *p, struct hwdb_record *to, struct err *e);
    void (*release)(struct probe *p);                                    /* buffers, files; may come twice */
    void (*done)(struct probe *p);                                       /* frees p, after release */

    /* filled by probe_run: point i's samples are samples[i * reps .. i * reps + reps_done) */
    struct hwdb_sample *samples;
    int reps_done;
    struct hwdb_sample *late; /* of the same points, as many of each, taken under a load that had lasted; late_done 0: none */
    int late_done;
    struct hw_conditions conditions; /* that they were taken under, measured_at "" */
    uint64_t n_taken;                /* samples that conditions.disturbed is a share of */
};

/* kernels_init has been called. */
int probe_compute_new(const struct probe_config *c, struct probe **out, struct err *e);
int probe_memory_new(const struct probe_config *c, struct probe **out, struct err *e);
int probe_work_new(const struct probe_config *c, struct probe **out, struct err *e); /* with compute, into its table */
int probe_storage_new(const struct probe_config *c, struct probe **out, struct err *e);
int probe_joint_new(const struct probe_config *c, struct probe **out, struct err *e);
int probe_accel_new(const struct probe_config *c, struct probe **out, struct err *e);
int probe_have_uring(void); /* is io_uring to be had here? */
/* A struct io_uring; 0, or -errno. The system gives what rings locked back some time after they were closed: where the user may lock little
 * it is waited for. */
int probe_uring_init(int depth, void *ring);
void probe_free(struct probe *p); /* accepts NULL; removes what the probe put on disk */

double probe_expected_seconds(const struct probe *p);

/* Prepares, takes all samples, and releases what they needed; start_ns is when the run began. Samples in windows that are
 * not clean are taken again as far as the patience of w lasts. ERR_INTR when interrupted: reps_done is then the
 * number of whole passes (0: the points are of no use). */
int probe_run(struct probe *p, int64_t start_ns, struct watch *w, struct progress *progress, struct err *e);

/* The samples of a second probe with the same points become p's late ones; what they were taken under counts too. */
void probe_add_late(struct probe *p, struct probe *late);

/* The middle of a point's samples, and between which values nine in ten of a side are. Where there are late ones, the middle is that of
 * the first ones, and what is relied on (p10 of a rate, p90 of a time) is the late ones'. */
struct hw_dist probe_dist(const struct probe *p, int point);

/* hwdb_record_add with a point's samples, the late ones behind the first. */
int probe_record(const struct probe *p, int point, enum hwdb_kind k, const void *item, struct hwdb_record *to, struct err *e);

/* All threads compute for so long, or until interrupted (ERR_INTR). Of the first and the last tenth: rates of rows. */
int probe_load(const struct probe_config *c, double seconds, double *first, double *last, struct err *e);

/* Bytes per second that one of n_threads threads reads, its part of a buffer in order, for so long. */
double probe_memory_sweep(char *buf, size_t len, int thread, int n_threads, double seconds);

/* Runs fn(ctx, thread) on pinned threads (cpus[i] -1: not pinned); the first is the caller. */
int probe_threads(int n, const int *cpus, pool_fn *fn, void *ctx, struct err *e);

/* What the machine says about itself; "" where it says nothing. */
struct probe_env {
    char os[HW_TEXT], kernel[HW_TEXT], governor[HW_NAME], cpu_model[HW_TEXT], battery[HW_NAME];
    char filesystem[HW_NAME], mount[HW_TEXT], mount_options[HW_TEXT], block_device[HW_TEXT], storage[HW_TEXT];
    uint64_t memory_bytes, available_bytes;
    uint64_t kept_free_bytes; /* below which Android's low memory killer ends such a process as this one; 0: there is none */
    uint64_t app_memory_limit_bytes; /* from the memory cgroup; 0: no limit */
};

void probe_env_read(struct probe_env *out, const char *storage_dir, int first_cpu);
/* Of the killer's levels, "PAGES:ADJ,..." as lmkd has them, or "PAGES,..." and "ADJ,..." as the kernel's: the most bytes that are kept free
 * by ending processes of this oom_score_adj. 0: none, or no such texts. */
uint64_t probe_kept_free(const char *pages, const char *adj, int own_adj, uint64_t page_bytes);
double probe_temperature_c(void); /* hottest sensor; NAN: none */

#endif
