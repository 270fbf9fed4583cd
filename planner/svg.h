#ifndef PLANNER_SVG_H
#define PLANNER_SVG_H

/* A line chart as one self-contained SVG file, readable on light and dark ground. */
#include "common/err.h"

struct svg_line {
    const char *name;
    const double *x, *y; /* [n], x ascending */
    int n;
};

#define SVG_MAX_LINES 6

/* Both axes start where the data does (y at 0) and have round marks. Atomic write. */
int svg_write(const char *path, const char *title, const char *x_label, const char *y_label,
              const struct svg_line *lines, int n, struct err *e);

#endif
