#ifndef PROFILER_PROBE_WATCH_H
#define PROFILER_PROBE_WATCH_H

/* What the machine does beside a measurement. Counters of the system are read at both ends of a window, a stretch of
 * samples of WATCH_WINDOW_S or more. Of the time between them
 *
 *   others          = (user + nice + system time of all CPUs - that of this process) / (CPUs * window)
 *   stolen          = steal / (CPUs * window)           both from /proc/stat, own time from getrusage
 *   waited_for_cpu  = "some" of /proc/pressure/cpu / window
 *   short_of_memory = "some" of /proc/pressure/memory / window
 *
 * and a window is clean when each is at most its limit below. A figure that the system does not tell is 0. Time in
 * interrupts is nobody's. Where the kernel works for a measurement in threads of its own (a drive: encryption, a file
 * system), system time is not counted among others', nor is waiting for a CPU, since readers may be more than CPUs.
 *
 * A fifth mark, spread, belongs to a whole table: samples of one point that differ much, whoever was seen.
 *
 * Limits: others are allowed 5 % of the processors, which may cost a figure as much, and a clock tick per CPU, for
 * /proc/stat counts whole ticks; 2 % may be stolen (and one tick). Something waits for a CPU now and then on any system;
 * where it does for a fifth of the time, a program of about that weight runs, or a quota throttles this one. Of a rate
 * whose samples differ by half, the median of three to seven is known to about a tenth. */
#include "common/base/progress.h"
#include "common/hwdb/hwdb.h"

#include <stdint.h>

#define WATCH_WINDOW_S        0.5  /* or to the end of a pass */
#define WATCH_STEP_S          0.25 /* of waiting: a look at a machine on which this process rests */
#define WATCH_TRIES           3    /* measurements of one window */
#define WATCH_OTHERS          0.05
#define WATCH_STOLEN          0.02
#define WATCH_WAITED          0.20
#define WATCH_SHORT_OF_MEMORY 0.05
#define WATCH_SPREAD          0.50

/* Seconds since the system started, summed over CPUs; n_cpus 0: the system does not tell. */
struct watch_counts {
    int64_t now_ns;
    int n_cpus;
    double tick_s;
    double user_s, system_s, stolen_s, own_user_s, own_system_s;
    double waited_s, short_of_memory_s;
};

/* From the text of /proc/stat: n_cpus, tick_s, user_s (with nice), system_s, stolen_s. 0; -1, and nothing is changed,
 * when this is not such a text. */
int watch_parse_stat(const char *text, double ticks_per_s, struct watch_counts *out);

/* Seconds of "some total=..." in the text of a file of /proc/pressure; 0 where it is not such a text. */
double watch_parse_pressure(const char *text);

/* All counters as they are now. */
void watch_counts_read(struct watch_counts *out);

/* Shares and marks of the window between two readings, watched 1; watched 0 and all zero where the system does not tell.
 * kernel_helps: the kernel works for the measurement. */
struct hw_conditions watch_between(const struct watch_counts *from, const struct watch_counts *to, int kernel_helps);

/* Add what was seen over n_more samples to what was over n: the larger shares, all marks, disturbed over all of them. */
void watch_merge(struct hw_conditions *all, uint64_t n, const struct hw_conditions *more, uint64_t n_more);

/* One owner thread. */
struct watch {
    /* The system's clock and counters, and a pause; tests have their own. */
    int64_t (*now_ns)(struct watch *w);
    void (*read)(struct watch *w, struct watch_counts *out);
    void (*pause)(struct watch *w, double seconds);
    double left_s; /* that may yet be spent on waiting and on measuring again */
    int warned;    /* that it waits */
};

void watch_init(struct watch *w, double patience_s);

/* A window was not clean, as seen tells: wait, within left_s, until others are gone; the progress line, and once a warning,
 * say why. Returns 1 when the machine is quiet and time is left, else 0 (also when interrupted). *paused_s grows. */
int watch_wait(struct watch *w, const struct hw_conditions *seen, int kernel_helps, struct progress *progress,
               double *paused_s);

#endif
