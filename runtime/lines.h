#ifndef RUNTIME_LINES_H
#define RUNTIME_LINES_H

/* Lines of a stream, each no longer than a buffer that is allocated once. */
#include "common/base/err.h"

#include <stdint.h>
#include <stdio.h>

struct lines {
    FILE *file;
    char *text;      /* [cap]: the line, without its newline, with a zero behind it */
    size_t len, cap;
    uint64_t n;      /* lines so far */
};

int lines_open(struct lines *l, FILE *file, size_t cap, struct err *e);
void lines_close(struct lines *l); /* the stream stays open; accepts a zeroed one */

/* 1: a line; 0: there is none. ERR_LIMIT: it is longer than cap - 1 bytes, and the next call begins behind it. ERR_INTR: a signal came
 * before it was whole, and what had come of it is gone. ERR_INPUT: it holds a NUL byte, or cannot be read. */
int lines_next(struct lines *l, struct err *e);

#endif
