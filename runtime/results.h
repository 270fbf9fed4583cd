#ifndef RUNTIME_RESULTS_H
#define RUNTIME_RESULTS_H

/* Results of many prompts, a line each, in the order of the prompts. They go to PATH.partial, whole lines at a time, and the file gets
 * its name when all are there; what an interrupted run has left is continued from. Its first line says what made them. A device or a
 * pipe is written line by line as it is. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stdint.h>
#include <stdio.h>

struct results {
    FILE *file;
    char *path, *partial;      /* owned; no path: standard output; no partial: that, a device or a pipe */
    uint64_t n;                /* lines that are there, beside the first */
};

/* path NULL: standard output. settings: of all that results depend on but the seed. *seed: UINT64_MAX where none is given; with resume
 * it is set to that of the file. ERR_MISMATCH: what is there is of another run; ERR_USAGE: it is there, and nobody asked to resume. */
int results_open(struct results *r, const char *path, int resume, struct hash128 settings, uint64_t *seed, struct err *e);
int results_flush(struct results *r, struct err *e);  /* a line is complete */
int results_commit(struct results *r, struct err *e); /* all are */
void results_close(struct results *r); /* keeps what is there; accepts a zeroed one */

#endif
