#ifndef RUNTIME_RECORDS_H
#define RUNTIME_RECORDS_H

/* A file of prompts, one at a time, in a buffer of fixed size: JSON lines, where the first character that is no white space is '{', or
 * a table (CSV, RFC 4180) with a header. A record that is too long, or a JSON line that no request can come from, is the error of
 * that record, and the next one follows. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct records {
    FILE *file;
    const char *path, *column; /* borrowed */
    char *buf;                 /* owned: [cap] */
    size_t cap, len;
    int table, over;           /* over: the record is longer than the buffer */
    int text_at, id_at;        /* columns; id -1: none */
    uint64_t n;                /* records read */
    uint64_t read;             /* characters */
    struct err stop;           /* the process was asked to stop */
    /* the last one */
    const char *text, *id;     /* a line of JSON, or the prompt; "" where there is none */
    size_t text_len;
};

/* column: of a table, that holds the prompts. cap: bytes of a record, at most. ERR_INPUT, ERR_FORMAT: no such column. */
int records_open(struct records *r, const char *path, const char *column, size_t cap, struct err *e);
void records_close(struct records *r); /* accepts a zeroed one */

/* 1: a record; 0: the end; ERR_LIMIT: a record that is too long, and others may follow; another ERR_*: of the file. */
int records_next(struct records *r, struct err *e);

#endif
