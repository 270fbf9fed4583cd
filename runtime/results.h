#ifndef RUNTIME_RESULTS_H
#define RUNTIME_RESULTS_H

/* Results of many prompts, a line each, in the order of the prompts, behind a line that says what made them. They are kept in PATH.partial
 * (common/base/journal.h) until all are there and the file is written; what an interrupted run has left is continued from. A
 * record of it holds the results of a second, or 64 KiB of them, and counts when it is synced. A device or a pipe is written line by line
 * as it is. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stdint.h>
#include <stdio.h>

/* All that results depend on but the seed. */
struct results_of {
    struct hash128 pack, plan, prompts, options;
};

struct journal;

struct results {
    FILE *file;                /* where the next line is printed */
    char *path;                /* owned; NULL: standard output */
    struct journal *journal;   /* NULL: that, a device or a pipe */
    struct results_of of;
    uint64_t seed;
    uint64_t n, made;          /* lines that are there, beside the first: when it was opened; by now */
    uint64_t waiting;          /* lines that are printed and in no record yet */
    int64_t waiting_since;     /* ns */
};

/* path NULL: standard output. *seed: UINT64_MAX where none is given; it is picked, or with resume set to that of the file. ERR_MISMATCH:
 * what is there is of another run, and the message says in what; ERR_USAGE: it is there, and nobody asked to resume. */
int results_open(struct results *r, const char *path, int resume, const struct results_of *of, uint64_t *seed, struct err *e);
int results_flush(struct results *r, struct err *e);  /* a line is complete */
int results_sync(struct results *r, struct err *e);   /* those that are complete are kept, whatever comes */
int results_commit(struct results *r, struct err *e); /* all are */
void results_close(struct results *r); /* keeps what was synced; accepts a zeroed one */

#endif
