#ifndef COMMON_BASE_PROGRESS_H
#define COMMON_BASE_PROGRESS_H

/* One progress line on stderr with rate and ETA, redrawn at most five times a second. Silent when
 * stderr is not a terminal, below two seconds, or after log_set_level(LOG_ERROR) by --quiet.
 * One owner thread.
 *
 * Where a program that started this one asks by the environment (PROGRESS_FD, a pipe), it gets lines "DONE TOTAL WHAT" instead, from the
 * beginning on, and draws what it likes. */
#include <stdint.h>

#define PROGRESS_FD "THERMO_PROGRESS_FD"

struct progress {
    const char *what, *unit;   /* "tracing", "tokens"; unit "B" prints sizes */
    uint64_t total, done;      /* total 0: unknown, no ETA */
    int64_t start_ns, last_ns;
    int shown;
};

void progress_init(struct progress *p, const char *what, const char *unit, uint64_t total);
void progress_set(struct progress *p, uint64_t done);
void progress_add(struct progress *p, uint64_t more);
void progress_done(struct progress *p); /* clears the line */

int64_t progress_now_ns(void); /* CLOCK_MONOTONIC */

#endif
