#ifndef PROFILER_CMD_PREDICTORS_H
#define PROFILER_CMD_PREDICTORS_H

/* thermo-profile predictors, predictors-measure and predictors-import: what their command lines ask for, and the run. */
#include "common/base/err.h"

#include <stdint.h>

enum { CMD_PREDICTORS_MAKE = 1, CMD_PREDICTORS_MEASURE = 2, CMD_PREDICTORS_IMPORT = 4 };
enum { CMD_PREDICTORS_TRAINED, CMD_PREDICTORS_SVD, CMD_PREDICTORS_SELECT };
enum { CMD_PREDICTORS_NOT_SAID = -1 }; /* of input */

/* Strings are borrowed from argv; NULL: not given. Defaults are in cmd_predictors.c. */
struct cmd_predictors {
    int command;                /* one of the above; what it has no option for keeps its default */
    const char *model, *traces, *out, *budget, *rank, *layers, *check, *cpu;
    uint64_t seed, samples, quality_tokens;
    double recall, loss_weighting;
    int input;                  /* index: ffn, block, both; or NOT_SAID */
    int method, type, epochs, threads, resume, dry_run, json;
};

extern const char *const cmd_predictors_types[]; /* type is an index; NULL ends */

/* Make, measure or import the predictors and print the report on stdout. An error of e and its code. */
int cmd_predictors_run(const struct cmd_predictors *o, struct err *e);

#endif
