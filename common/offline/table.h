#ifndef COMMON_OFFLINE_TABLE_H
#define COMMON_OFFLINE_TABLE_H

/* CSV with a header row, through libcsv: RFC 4180 quoting, CRLF or LF, a UTF-8 byte order mark is
 * skipped, blank lines are skipped, spaces belong to their field. Every row has as many fields as
 * the header; NUL bytes, stray quotes, an unclosed quote, a duplicate or empty column name and
 * sizes beyond the limits are refused, and the message names file, line and column.
 * A table is constant after reading; thread-safe. */
#include "common/base/err.h"

#include <stddef.h>

#define TABLE_MAX_BYTES (256u << 20)
#define TABLE_MAX_ROWS  (1 << 22)
#define TABLE_MAX_COLS  256

struct table;

int table_read(const char *path, struct table **out, struct err *e);

/* The same from memory; name stands for the file in messages. data is copied. */
int table_parse(const char *name, const void *data, size_t len, struct table **out, struct err *e);
void table_free(struct table *t); /* accepts NULL */

int table_rows(const struct table *t); /* without the header */
int table_cols(const struct table *t);
const char *table_header(const struct table *t, int col);

/* Index of a column by its exact name, or -1. table_need makes a missing one ERR_FORMAT, and the
 * message lists the columns there are. */
int table_col(const struct table *t, const char *name);
int table_need(const struct table *t, const char *name, int *col, struct err *e);

/* A field, NUL-terminated, owned by the table; len (may be NULL) gets its length in bytes. */
const char *table_cell(const struct table *t, int row, int col, size_t *len);

/* First physical line of a row in the file, from 1, for messages. */
int table_line(const struct table *t, int row);

/* ERR_FORMAT with "FILE line L, column 'NAME': " before the message. */
int table_err(const struct table *t, int row, int col, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
