#ifndef PLANNER_REPORT_REPORT_H
#define PLANNER_REPORT_REPORT_H

/* A plan as one HTML page: report_data.c works the figures out, the other files write them. One owner thread. */
#include "common/plan/plan.h"

#include "planner/check/calibrate.h"
#include "planner/report/explain.h"
#include "planner/report/gains.h"
#include "planner/report/page.h"

/* The cold cache of a limit at batch 1, beyond its planned prefixes. */
struct report_misses {
    int sampled;                            /* layers that speak for all; 0: there is no cold cache */
    int n;                                  /* cache sizes: REPLAY_SIZES */
    double share[REPLAY_SIZES];             /* of the units beyond the prefix that have a slot */
    double policy[REPLAY_SIZES], best[REPLAY_SIZES]; /* misses per lookup, sampled layers together; best: Belady */
    double *layers;                         /* [n_layers][n]: by the plan's policy; NAN where nothing is looked up */
    double *planned;                        /* [n_layers][2]: share and misses per lookup where the plan is */
    double cliff;                           /* share that the units of one step take */
    double planned_share, planned_rate;     /* sampled layers together */
};

struct report_limit {
    const struct plan_limit *limit;
    struct explain explain;
    struct gains gains;
    struct report_misses misses;
};

struct report {
    const struct plan *p;
    const struct inputs *in;
    const struct hw *hw;
    const struct telemetry *telemetry;      /* these two: NULL without */
    const struct calibrate *measured;
    int no_gains;                           /* what more would buy is left out */
    struct report_limit *limits;            /* [p->n_limits] */
};

/* Fill limits; the rest is set. */
int report_collect(struct report *r, struct notes *notes, struct err *e);
void report_done(struct report *r); /* frees limits alone */

/* The whole page. */
void report_page(struct page *out, const struct report *r);

/* The section that compares limits, and begins with what answers first: how fast, what binds, what would help. */
void report_overview(struct page *out, const struct report *r);

/* One limit's section, */
void report_limit_section(struct page *out, const struct report *r, int index);

/* of which these are parts: drawings, which flow side by side, and the tables behind them: report_time.c, report_neurons.c. */
void report_time_figures(struct page *out, const struct report *r, int index);
void report_time_tables(struct page *out, const struct report *r, int index);
void report_neuron_figures(struct page *out, const struct report *r, int index);
void report_neuron_tables(struct page *out, const struct report *r, int index);

/* What binds most layers, by number and name, and how many; then / now as a change in percent. */
extern const char *const report_bound_names[EXPLAIN_BOUNDS];
int report_bound(const struct plan *p, const struct plan_limit *l, int *layers);
void report_change(struct page *out, double now, double then);

enum { REPORT_ATTENTION, REPORT_PREDICT, REPORT_COMPUTE, REPORT_MEMORY, REPORT_WAIT, REPORT_EXPOSED, REPORT_HEAD,
       REPORT_REST, REPORT_PARTS };
extern const char *const report_part_names[REPORT_PARTS];
extern const int report_part_colours[REPORT_PARTS];
void report_parts_of(const struct plan *p, const struct plan_layer_figures *f, double out[REPORT_PARTS]);
void report_step_parts(const struct plan *p, const struct plan_limit *l, double out[REPORT_PARTS]); /* add up to step_ns */

/* Heads of a table whose body follows, folded under a caption (then close <details> after it) or, with NULL, open. A
 * head that begins with < (not shown) is of a column of text. */
void report_table(struct page *out, const char *caption, const char *const *heads, int n);
void report_table_end(struct page *out);

/* The same for a table of few rows, which a narrow screen shows as a list of heads and values: every cell through report_cell. */
void report_stack(struct page *out, const char *caption, const char *const *heads, int n);
void report_cell(struct page *out, const char *head, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void report_figure(struct page *out, const char *title);    /* then a drawing, then: */
void report_figure_end(struct page *out, const char *caption);

#endif
