#ifndef PLANNER_REPORT_PLOT_H
#define PLANNER_REPORT_PLOT_H

/* Drawings as SVG: lines and points over two axes, and stacked bars, with round marks and a legend below. Drawn for a
 * narrow screen (a view box of PLOT_WIDTH, text of 12), so that they are legible there and grow on wide ones. No
 * scripts, no fonts to load, colours for light and dark ground. Inline in a page whose style has plot_style(), or as a
 * file of its own. The same data give the same bytes. Strings are escaped. */
#include "planner/report/page.h"

#define PLOT_WIDTH   420
#define PLOT_COLOURS 8

enum plot_look { PLOT_LINE, PLOT_THIN, PLOT_DASHED, PLOT_POINTS };

struct plot_series {
    const char *name;           /* NULL: not in the legend */
    const double *x, *y;        /* [n]; points that are not finite, or not above 0 on a log axis, are left out */
    int n;
    enum plot_look look;
    int colour;                 /* 0 .. PLOT_COLOURS - 1; the last one is grey */
};

/* A vertical line at x, in the legend under its name. */
struct plot_mark {
    const char *name;
    double x;
    int colour;
};

/* Ends are taken from the data; a linear axis of values >= 0 begins at 0 unless `tight`. max > 0 is the least end. */
struct plot_axis {
    const char *label;
    int log, tight;
    double max;
};

struct plot {
    const char *title, *about;  /* about: the text alternative, a sentence */
    struct plot_axis x, y;
    const struct plot_series *series;
    int n;
    const struct plot_mark *marks;
    int n_marks;
};

/* Stacked bars, row by row: lying between a label and a text, or standing on numbers 0, 1, 2 ... (layers) over a y
 * axis. */
struct plot_bars {
    const char *title, *about, *unit;
    int n_rows, n_parts, standing;
    const char *const *rows, *const *totals; /* [n_rows]: left and right of lying bars. Standing: rows above them, each a letter
                                              * or two, or NULL; totals NULL */
    const char *const *parts;   /* [n_parts]; parts that are 0 everywhere are left out */
    const int *colours;         /* [n_parts] */
    const double *values;       /* [n_rows][n_parts], >= 0 */
};

const char *plot_style(void);

void plot_draw(struct page *p, const struct plot *g);
void plot_draw_bars(struct page *p, const struct plot_bars *b);

/* A file of its own. */
int plot_write(const char *path, const struct plot *g, struct err *e);

#endif
