#ifndef PROFILER_SHOW_SHOW_H
#define PROFILER_SHOW_SHOW_H

/* `thermo-profile show FILE` looks at the file's first bytes and calls the printer of its kind.
 * A printer writes to stdout: tables for people, or one JSON object. 0 or ERR_*. */
#include "common/base/err.h"
#include "common/offline/hwdb/hwdb.h"

/* A hardware database (SQLite): every device in it. */
int show_hwdb(const char *path, int json, struct err *e);

/* One device: its summary (what a planner starts from), or all points as JSON. */
int show_hw(const struct hw *h, int json, struct err *e);

/* An activation trace. verify: check every hash first. */
int show_trace(const char *path, int json, int verify, struct err *e);

struct js;
struct trace;
struct trace_predictors;

/* The predictors of a trace, as a table or as JSON (the caller's). */
void show_predictors(const struct trace *t, const struct trace_predictors *p);
struct js *show_predictors_json(const struct trace *t, const struct trace_predictors *p);

#endif
