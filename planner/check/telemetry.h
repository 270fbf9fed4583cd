#ifndef PLANNER_CHECK_TELEMETRY_H
#define PLANNER_CHECK_TELEMETRY_H

/* What thermo-run measured: JSON lines of `generate --json` (the summaries; token and text lines are passed over) and
 * of `bench --json` (its generation tests), described in runtime/README.md. Strict where it reads: types,
 * ranges, missing and repeated keys are ERR_FORMAT naming line and key. Keys that it does not know are left alone, for
 * the runtime tells more than is compared here. Plain data; thread-safe as such. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define TELEMETRY_MAX_BYTES (256u << 20) /* of a file */
#define TELEMETRY_MAX_LINE  (4u << 20)
#define TELEMETRY_MAX_RUNS  65536

/* One run that made tokens, means per token. NAN: the record does not tell. */
struct telemetry_run {
    char file[96], model[96];       /* file: as given, cut; model: its name */
    int line, bench;                /* bench: a test of `bench`, else a summary of `generate` */
    char mode[16], kv[8], act[8];   /* "exact" "dense" "predicted"; "f32" "f16"; "f32" "q8" */
    int threads, context;
    uint64_t memory_bytes;          /* the ceiling it ran under */
    int valid;                      /* the plan's prediction holds for what ran */
    double predicted_tokens_per_s;
    double tokens;                  /* made */
    double position;                /* mean position in the context of the tokens made */
    double step_ns, attention_ns, predict_ns, ffn_ns, wait_ns, head_ns;     /* ffn_ns has wait_ns in it */
    double read_bytes, reads, hit_rate;
};

struct telemetry {
    int n, cap, empty;              /* empty: summaries of runs that made no token, left out */
    struct telemetry_run *run;
};

/* Append what the text or file holds; a file without any record is ERR_FORMAT. */
int telemetry_parse(const char *text, size_t len, const char *name, struct telemetry *t, struct err *e);
int telemetry_read(const char *path, struct telemetry *t, struct err *e);
void telemetry_done(struct telemetry *t); /* accepts a zeroed one */

#endif
