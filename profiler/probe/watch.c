/* Counters of the system, what they say of a window, and patience. Everything from /proc is optional: a system that
 * hides it is not watched, and the database says so. */
#include "profiler/probe/watch.h"

#include "common/base/file.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int watch_parse_stat(const char *text, double ticks_per_s, struct watch_counts *out)
{
    double t[8] = { 0 }; /* user nice system idle iowait irq softirq steal */
    int n = 0, n_cpus = 0;
    if (strncmp(text, "cpu ", 4) != 0 || !(ticks_per_s > 0))
        return -1;
    const char *p = text + 4;
    for (char *end; n < 8; n++, p = end) {
        while (*p == ' ')
            p++;
        if (*p < '0' || *p > '9')
            break;
        t[n] = strtod(p, &end);
    }
    for (p = strchr(text, '\n'); p && strncmp(p + 1, "cpu", 3) == 0; p = strchr(p + 1, '\n'))
        n_cpus++;
    if (n < 4 || n_cpus == 0)
        return -1;
    out->n_cpus = n_cpus;
    out->tick_s = 1 / ticks_per_s;
    out->user_s = (t[0] + t[1]) / ticks_per_s;
    out->system_s = t[2] / ticks_per_s;
    out->stolen_s = t[7] / ticks_per_s;
    return 0;
}

double watch_parse_pressure(const char *text)
{
    const char *total = strncmp(text, "some ", 5) == 0 ? strstr(text, " total=") : NULL;
    return total && total < text + strcspn(text, "\n") ? (double)strtoull(total + 7, NULL, 10) / 1e6 : 0;
}

static const char *read_start(const char *path, char *out, size_t len)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, len - 1, f) : 0;
    out[n] = 0;
    if (f)
        fclose(f);
    return out;
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

void watch_counts_read(struct watch_counts *out)
{
    static const size_t most = 256 << 10; /* the lines of some thousand CPUs come first */
    char pressure[256], *stat = malloc(most);
    struct rusage own;
    memset(out, 0, sizeof *out);
    if (stat && getrusage(RUSAGE_SELF, &own) == 0 &&
        watch_parse_stat(read_start("/proc/stat", stat, most), (double)sysconf(_SC_CLK_TCK), out) == 0) {
        out->own_user_s = seconds_of(&own.ru_utime);
        out->own_system_s = seconds_of(&own.ru_stime);
    }
    free(stat);
    out->waited_s = watch_parse_pressure(read_start("/proc/pressure/cpu", pressure, sizeof pressure));
    out->short_of_memory_s = watch_parse_pressure(read_start("/proc/pressure/memory", pressure, sizeof pressure));
    out->now_ns = progress_now_ns();
}

static double share(double part, double whole)
{
    return part <= 0 || whole <= 0 ? 0 : part < whole ? part / whole : 1;
}

struct hw_conditions watch_between(const struct watch_counts *a, const struct watch_counts *b, int kernel_helps)
{
    struct hw_conditions c = { 0 };
    double seconds = (double)(b->now_ns - a->now_ns) / 1e9, all = seconds * b->n_cpus;
    if (a->n_cpus == 0 || b->n_cpus == 0 || seconds <= 0)
        return c;
    double others = b->user_s - a->user_s - (b->own_user_s - a->own_user_s);
    if (!kernel_helps)
        others += b->system_s - a->system_s - (b->own_system_s - a->own_system_s);
    c.watched = 1;
    c.others = share(others, all);
    c.stolen = share(b->stolen_s - a->stolen_s, all);
    c.waited_for_cpu = kernel_helps ? 0 : share(b->waited_s - a->waited_s, seconds);
    c.short_of_memory = share(b->short_of_memory_s - a->short_of_memory_s, seconds);
    c.marks = (unsigned)(c.others > WATCH_OTHERS + b->tick_s / seconds) << HW_OTHERS |
              (unsigned)(c.stolen > WATCH_STOLEN + b->tick_s / all) << HW_STOLEN |
              (unsigned)(c.waited_for_cpu > WATCH_WAITED) << HW_WAITED |
              (unsigned)(c.short_of_memory > WATCH_SHORT_OF_MEMORY) << HW_SHORT_OF_MEMORY;
    c.disturbed = c.marks ? 1 : 0;
    return c;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void watch_merge(struct hw_conditions *all, uint64_t n, const struct hw_conditions *more, uint64_t n_more)
{
    double samples = (double)(n + n_more);
    all->watched = more->watched && (all->watched || n == 0);
    all->marks |= more->marks;
    all->others = larger(all->others, more->others);
    all->stolen = larger(all->stolen, more->stolen);
    all->waited_for_cpu = larger(all->waited_for_cpu, more->waited_for_cpu);
    all->short_of_memory = larger(all->short_of_memory, more->short_of_memory);
    all->spread = larger(all->spread, more->spread);
    if (samples > 0)
        all->disturbed = (all->disturbed * (double)n + more->disturbed * (double)n_more) / samples;
    all->paused_s += more->paused_s;
    all->repeated += more->repeated;
}

/* ---- patience ---- */

static int64_t system_now_ns(struct watch *w)
{
    (void)w;
    return progress_now_ns();
}

static void read_system(struct watch *w, struct watch_counts *out)
{
    (void)w;
    watch_counts_read(out);
}

static void sleep_for(struct watch *w, double seconds)
{
    struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    (void)w;
    nanosleep(&t, NULL); /* a signal ends it early, and the caller looks for one */
}

void watch_init(struct watch *w, double patience_s)
{
    *w = (struct watch){ .now_ns = system_now_ns, .read = read_system, .pause = sleep_for, .left_s = patience_s };
}

int watch_wait(struct watch *w, const struct hw_conditions *seen, int kernel_helps, struct progress *progress,
               double *paused_s)
{
    char why[400];
    int quiet = 0;
    if (w->left_s < WATCH_STEP_S)
        return 0;
    hw_marks_words(seen, why, sizeof why);
    if (!w->warned++)
        log_warn("%s: waiting until it is quiet and measuring again, for %.3g s at most (--patience)", why, w->left_s);
    const char *what = progress->what;
    progress->what = "waiting until other programs rest";
    while (!quiet && w->left_s >= WATCH_STEP_S && !file_interrupted()) {
        struct watch_counts from, to;
        w->read(w, &from);
        w->pause(w, WATCH_STEP_S);
        w->read(w, &to);
        struct hw_conditions now = watch_between(&from, &to, kernel_helps);
        quiet = !now.marks;
        w->left_s -= WATCH_STEP_S;
        *paused_s += WATCH_STEP_S;
        progress_set(progress, progress->done);
    }
    progress->what = what;
    return quiet && w->left_s > 0 && !file_interrupted();
}
