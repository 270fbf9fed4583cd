/* The line is redrawn as the child reports, five times a second at most, and taken away before anything else is said. Programs report
 * several things one after another (hashing, tracing), the longest last: each is taken for the whole phase, and what is left is guessed
 * again when the next begins. */
#include "driver/bar.h"

#include "common/base/log.h"
#include "common/base/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll

char *bar_time(double seconds, char *out, size_t cap)
{
    long s = seconds < 3.6e8 && seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, cap, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, cap, "%ld:%02ld", s / 60, s % 60);
    return out;
}

void bar_begin(struct bar *b, double expected_s, double later_s)
{
    b->expected_s = expected_s > 0.1 ? expected_s : 0.1;
    b->later_s = later_s;
    b->start_ns = progress_now_ns();
    b->share = 0;
    b->what[0] = '\0';
}

static double elapsed(const struct bar *b)
{
    return (double)(progress_now_ns() - b->start_ns) / (double)SECOND_NS;
}

/* "DONE TOTAL WHAT" */
void bar_set(struct bar *b, const char *line)
{
    char *end;
    unsigned long long done = strtoull(line, &end, 10), total = strtoull(end, &end, 10);
    snprintf(b->what, sizeof b->what, "%s", *end == ' ' ? end + 1 : end);
    b->share = total > 0 && done <= total ? (double)done / (double)total : 0;
}

void bar_draw(struct bar *b)
{
    enum { CELLS = 24 };
    char left[24], cells[CELLS + 1];
    int64_t now = progress_now_ns();
    if (log_get_level() != LOG_INFO || !isatty(STDERR_FILENO) || now - b->last_ns < SECOND_NS / 5)
        return;
    b->last_ns = now;
    double took = elapsed(b), rest = b->share > 0.02 ? took * (1 - b->share) / b->share : b->expected_s - took;
    rest = (rest > 0 ? rest : 0) + b->later_s;
    double done = b->before_s + took, all = done + rest;
    int n = all > 0 ? (int)(CELLS * done / all) : 0;
    for (int i = 0; i < CELLS; i++)
        cells[i] = i < n ? '#' : '.';
    cells[CELLS] = '\0';
    fputc('\r', stderr);
    print_to(stderr, "[%s] %3.0f %%  %s left", cells, all > 0 ? 100 * done / all : 0, bar_time(rest, left, sizeof left));
    print_to(stderr, "%s%s", b->what[0] ? ": " : "", b->what);
    fputs("\033[K", stderr);
    b->shown = 1;
}

void bar_clear(struct bar *b)
{
    if (b->shown)
        fputs("\r\033[K", stderr);
    b->shown = 0;
}

void bar_end(struct bar *b)
{
    bar_clear(b);
    b->before_s += elapsed(b);
}
