/* The line is drawn only where a person watches: stderr is a terminal, the work has lasted two seconds, and
 * --quiet was not given; or a program that asked for it is told. The rate is the average since the start, which does not jump about. */
#include "common/base/progress.h"

#include "common/base/log.h"
#include "common/base/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll

int64_t progress_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

void progress_init(struct progress *p, const char *what, const char *unit, uint64_t total)
{
    *p = (struct progress){ .what = what, .unit = unit, .total = total, .start_ns = progress_now_ns() };
}

static void format_amount(const struct progress *p, double v, const char *unit, char *out, size_t len)
{
    if (strcmp(p->unit, "B") == 0)
        size_format(v < 0 ? 0 : v < 1.8e19 ? (uint64_t)v : UINT64_MAX, out, len);
    else
        snprintf(out, len, "%.*f%s%s", v < 10 && v != (double)(uint64_t)v ? 2 : 0, v, *unit ? " " : "", unit);
}

static void put(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

static void draw(struct progress *p, int64_t now)
{
    char line[256], done[48], total[48], rate[48];
    double seconds = (double)(now - p->start_ns) / (double)SECOND_NS;
    double per_s = seconds > 0 ? (double)p->done / seconds : 0;
    format_amount(p, (double)p->done, p->total > 0 ? "" : p->unit, done, sizeof done);
    format_amount(p, per_s, p->unit, rate, sizeof rate);
    int n;
    if (p->total > 0) {
        format_amount(p, (double)p->total, p->unit, total, sizeof total);
        double left = p->done < p->total && per_s > 0 ? (double)(p->total - p->done) / per_s : 0;
        long eta = left < 3.6e8 ? (long)(left + 0.5) : 0;
        n = snprintf(line, sizeof line, "\r%s %3.0f%%  %s of %s, %s/s, ETA %ld:%02ld:%02ld\033[K", p->what,
                     100 * (double)p->done / (double)p->total, done, total, rate, eta / 3600, eta / 60 % 60,
                     eta % 60);
    } else {
        n = snprintf(line, sizeof line, "\r%s  %s, %s/s\033[K", p->what, done, rate);
    }
    put(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    p->shown = 1;
}

/* -1: nobody asked. A descriptor that is no pipe is not what was meant. */
static int asked_fd(void)
{
    static int fd = -2;
    struct stat st;
    if (fd == -2) {
        const char *text = getenv(PROGRESS_FD);
        fd = text && *text >= '0' && *text <= '9' ? atoi(text) : -1;
        fd = fd > STDERR_FILENO && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) ? fd : -1;
    }
    return fd;
}

static void tell(struct progress *p, int fd, int64_t now)
{
    char line[128];
    p->last_ns = now;
    int n = snprintf(line, sizeof line, "%llu %llu %s\n", (unsigned long long)p->done, (unsigned long long)p->total, p->what);
    put(fd, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void progress_set(struct progress *p, uint64_t done)
{
    int fd = asked_fd();
    p->done = done;
    int64_t now = progress_now_ns();
    if (fd >= 0) {
        if (now - p->last_ns >= SECOND_NS / 5)
            tell(p, fd, now);
        return;
    }
    if (now - p->start_ns < 2 * SECOND_NS || now - p->last_ns < SECOND_NS / 5)
        return;
    p->last_ns = now;
    if (log_get_level() > LOG_ERROR && isatty(STDERR_FILENO))
        draw(p, now);
}

void progress_add(struct progress *p, uint64_t more)
{
    progress_set(p, p->done + more);
}

void progress_done(struct progress *p)
{
    if (p->shown)
        put(STDERR_FILENO, "\r\033[K", 4);
    p->shown = 0;
}
