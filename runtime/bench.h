#ifndef RUNTIME_BENCH_H
#define RUNTIME_BENCH_H

/* What thermo-run bench measured, for cmd_bench.c that measures and bench_print.c that prints. */
#include "runtime/engine/engine.h"
#include "runtime/setup.h"

#include <stdint.h>
#include <time.h>

/* A prompt of pp tokens and then tg generated ones, in one measurement, of each sequence, behind `depth` positions. */
struct bench_test {
    char name[48];                 /* "pp512", "tg128@4", "pp512+tg64 @ d1024" */
    int pp, tg, depth, sequences;
    int done;                      /* repetitions that were finished */
    uint64_t *took;                /* [done], ns */
    uint64_t ns, ttft_ns, at;      /* sums over repetitions; at: positions of the first token */
    time_t began;
    struct engine_stats s;         /* of all repetitions */
};

struct bench_results {
    const struct setup *s;
    const struct engine *g;
    const struct bench_test *tests;
    int n_tests, interrupted;
};

enum bench_form { BENCH_MD, BENCH_JSON, BENCH_JSONL, BENCH_CSV, BENCH_SQL };

/* On standard output. Columns that llama-bench has have its names. */
void bench_print(const struct bench_results *b, enum bench_form form);

/* One JSON object, with times and neurons by term: what `thermo-plan calibrate` reads (runtime/README.md). */
void bench_telemetry(const struct bench_results *b);

#endif
