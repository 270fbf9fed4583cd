#ifndef COMMON_HWDB_HWDB_QUERY_H
#define COMMON_HWDB_HWDB_QUERY_H

/* What the planner asks. All are pure, deterministic and thread-safe; 0 means the database knows
 * nothing about this. Between measured points values are interpolated linearly in log-log scale, one
 * dimension inside the other; beyond the ends they are held, unless said otherwise. */
#include "common/hwdb/hwdb.h"

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

/* What a read and `threads` threads that compute cost each other (hwdb_query_joint.c). lost_ns: of the time of all these threads, to a
 * read that goes on beside them, where reads have bytes_per_s with idle cores; no less per second the faster they are. kept: the share of
 * that rate that they keep, no more the more threads compute. 0, and *out as if they cost nothing, where the device has no such figures of
 * this back end; else 1. */
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

/* ns of one matrix product on an accelerator, or of an FFN; rows, cols and batch interpolated. Beyond the largest rows or columns what the
 * smallest takes is taken once, and the rest is in proportion; beyond the largest batch all is. With fewer rows or columns than were
 * measured a launch, and the rest of the smallest in proportion. */
double hw_accel_ns(const struct hw *h, int accel, const char *op, int rows, int cols, int batch,
                   enum hw_stat stat);

#endif
