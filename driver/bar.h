#ifndef DRIVER_BAR_H
#define DRIVER_BAR_H

/* One bar over all phases, on a terminal: each phase has the seconds that it is expected to take; what is left of the one that runs follows
 * from how far it is, once that is known. */
#include "common/base/progress.h"

#include <stddef.h>
#include <stdint.h>

struct bar {
    double later_s;          /* expected of the phases that follow */
    double before_s;         /* taken by those that are over */
    double expected_s;       /* of this one */
    int64_t start_ns, last_ns;
    double share;            /* of this one that is done, 0 to 1 */
    char what[64];
    int shown;
};

void bar_begin(struct bar *b, double expected_s, double later_s);
void bar_set(struct bar *b, const char *line); /* a line of PROGRESS_FD, of common/base/progress.h */
void bar_draw(struct bar *b);
void bar_clear(struct bar *b);
void bar_end(struct bar *b);

/* "1:05", "2:03:10"; out of at least 24 bytes. Returns out. */
char *bar_time(double seconds, char *out, size_t cap);

#endif
