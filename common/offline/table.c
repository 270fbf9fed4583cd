/* CSV through libcsv. The parser is fed one physical line at a time, which is the only way to know
 * the line of each field from a library that does not count them. Fields go into one growing text
 * block and are remembered by offset, since the block moves while it grows. Spaces are kept:
 * libcsv's habit of trimming them (its space function) is switched off, as RFC 4180 says. */
#include "common/offline/table.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/print.h"

#include <csv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_PIECE = 1 << 20 };

struct cell {
    size_t offset, len;
};

struct table {
    char *name;
    char *text;
    size_t text_len, text_cap;
    struct cell *cells; /* header first, then row by row */
    size_t n_cells, cap_cells;
    int *lines; /* of the header and each row */
    int n_lines, cap_lines, n_cols;
};

/* State of one parse. */
struct reader {
    struct table *t;
    int line;     /* physical line being fed */
    int row_line; /* line where the open row began; 0: none is open */
    int row_fields;
    struct err *e;
    int failed;
};

static int no_space(unsigned char c)
{
    (void)c;
    return 0;
}

/* Room for one more element; doubles. */
static int grow(void **p, size_t *cap, size_t need, size_t elem)
{
    size_t want = *cap ? *cap : 64, bytes;
    while (want < need)
        if (!ck_mul_size(want, 2, &want))
            return -1;
    if (want == *cap)
        return 0;
    if (!ck_mul_size(want, elem, &bytes))
        return -1;
    void *q = realloc(*p, bytes);
    if (!q)
        return -1;
    *p = q;
    *cap = want;
    return 0;
}

static void on_field(void *data, size_t len, void *ctx)
{
    struct reader *r = ctx;
    struct table *t = r->t;
    if (r->failed)
        return;
    r->row_fields++;
    if (r->row_fields > TABLE_MAX_COLS) {
        r->failed =
            err_set(r->e, ERR_LIMIT, "'%s' line %d: more than the limit of %d fields", t->name, r->line, TABLE_MAX_COLS);
        return;
    }
    if (len && memchr(data, 0, len)) {
        r->failed =
            err_set(r->e, ERR_FORMAT, "'%s' line %d, field %d: a NUL byte", t->name, r->line, r->row_fields);
        return;
    }
    if (grow((void **)&t->text, &t->text_cap, t->text_len + len + 1, 1) < 0 ||
        grow((void **)&t->cells, &t->cap_cells, t->n_cells + 1, sizeof *t->cells) < 0) {
        r->failed = err_set(r->e, ERR_NOMEM, "reading '%s': out of memory", t->name);
        return;
    }
    if (len)
        memcpy(t->text + t->text_len, data, len);
    t->text[t->text_len + len] = 0;
    t->cells[t->n_cells++] = (struct cell){ t->text_len, len };
    t->text_len += len + 1;
}

static void on_row(int c, void *ctx)
{
    struct reader *r = ctx;
    struct table *t = r->t;
    (void)c;
    if (r->failed)
        return;
    if (!t->n_lines)
        t->n_cols = r->row_fields;
    if (r->row_fields != t->n_cols) {
        r->failed = err_set(r->e, ERR_FORMAT, "'%s' line %d: %d fields, the header has %d", t->name,
                            r->row_line, r->row_fields, t->n_cols);
        return;
    }
    if (t->n_lines > TABLE_MAX_ROWS) {
        r->failed =
            err_set(r->e, ERR_LIMIT, "'%s' line %d: more than the limit of %d rows", t->name, r->line, TABLE_MAX_ROWS);
        return;
    }
    size_t cap = (size_t)t->cap_lines;
    if (grow((void **)&t->lines, &cap, (size_t)t->n_lines + 1, sizeof *t->lines) < 0) {
        r->failed = err_set(r->e, ERR_NOMEM, "reading '%s': out of memory", t->name);
        return;
    }
    t->cap_lines = (int)cap;
    t->lines[t->n_lines++] = r->row_line;
    r->row_line = 0;
    r->row_fields = 0;
}

static int feed(struct reader *r, struct csv_parser *p, const char *data, size_t len)
{
    size_t pos = 0;
    while (pos < len && !r->failed) {
        const char *nl = memchr(data + pos, '\n', len - pos);
        size_t n = nl ? (size_t)(nl - (data + pos)) + 1 : len - pos;
        r->line++;
        if (!r->row_line)
            r->row_line = r->line;
        size_t done = 0;
        for (size_t k = 0, piece = 0; k == piece && done < n && !r->failed && (r->failed = file_go_on(r->e)) == 0; done += k) {
            piece = n - done < LINE_PIECE ? n - done : LINE_PIECE;
            k = csv_parse(p, data + pos + done, piece, on_field, on_row, r);
        }
        if (!r->failed && done != n) {
            if (csv_error(p) == CSV_EPARSE)
                return err_set(r->e, ERR_FORMAT, "'%s' line %d, character %zu: a quote out of place",
                               r->t->name, r->line, done + 1);
            return err_set(r->e, ERR_NOMEM, "reading '%s' line %d: %s", r->t->name, r->line,
                           csv_strerror(csv_error(p)));
        }
        if (r->row_line == r->line && (n == 1 || (n == 2 && data[pos] == '\r')) && data[pos + n - 1] == '\n')
            r->row_line = 0; /* a blank line, which libcsv skips, opens no row */
        pos += n;
    }
    return r->failed;
}

static int check_header(const struct table *t, struct err *e)
{
    if (!t->n_lines)
        return err_set(e, ERR_FORMAT, "'%s' is empty: a header row with the column names is needed", t->name);
    for (int i = 0; i < t->n_cols; i++) {
        const char *name = table_header(t, i);
        if (!*name)
            return err_set(e, ERR_FORMAT, "'%s' line %d: column %d has no name", t->name, t->lines[0], i + 1);
        if (table_col(t, name) != i)
            return err_set(e, ERR_FORMAT, "'%s' line %d: column '%s' is there twice", t->name, t->lines[0],
                           name);
    }
    return 0;
}

#define FIELD_STEP (64u << 10) /* by which libcsv makes room for a field; by its own 128 bytes it copies a large one thousands of times */

int table_parse(const char *name, const void *data, size_t len, struct table **out, struct err *e)
{
    struct csv_parser p;
    int r;
    struct table *t = calloc(1, sizeof *t);
    if (!t || !(t->name = strdup(name))) {
        free(t);
        return err_set(e, ERR_NOMEM, "reading '%s': out of memory", name);
    }
    if (len > TABLE_MAX_BYTES) {
        r = err_set(e, ERR_LIMIT, "'%s' has %zu bytes, more than the limit of %u", name, len, TABLE_MAX_BYTES);
        goto fail;
    }
    if (csv_init(&p, CSV_STRICT | CSV_STRICT_FINI) != 0) {
        r = err_set(e, ERR_NOMEM, "reading '%s': out of memory", name);
        goto fail;
    }
    csv_set_space_func(&p, no_space);
    csv_set_blk_size(&p, FIELD_STEP);
    const char *text = data;
    if (len >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        text += 3;
        len -= 3;
    }
    struct reader rd = { .t = t, .e = e };
    r = feed(&rd, &p, text, len);
    if (r == 0 && csv_fini(&p, on_field, on_row, &rd) != 0)
        r = err_set(e, ERR_FORMAT, "'%s' line %d: the quote opened in this row is never closed", name,
                    rd.row_line);
    csv_free(&p);
    if (r == 0)
        r = rd.failed;
    if (r < 0 || (r = check_header(t, e)) < 0)
        goto fail;
    *out = t;
    return 0;
fail:
    table_free(t);
    return r;
}

int table_read(const char *path, struct table **out, struct err *e)
{
    char *data;
    size_t len;
    int r = file_slurp(path, TABLE_MAX_BYTES, &data, &len, e);
    if (r < 0)
        return r;
    r = table_parse(path, data, len, out, e);
    free(data);
    return r;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    free(t->name);
    free(t->text);
    free(t->cells);
    free(t->lines);
    free(t);
}

int table_rows(const struct table *t)
{
    return t->n_lines - 1;
}

int table_cols(const struct table *t)
{
    return t->n_cols;
}

const char *table_header(const struct table *t, int col)
{
    return t->text + t->cells[col].offset;
}

int table_col(const struct table *t, const char *name)
{
    for (int i = 0; i < t->n_cols; i++)
        if (!strcmp(table_header(t, i), name))
            return i;
    return -1;
}

int table_need(const struct table *t, const char *name, int *col, struct err *e)
{
    char list[256] = "";
    int c = table_col(t, name);
    if (c >= 0) {
        *col = c;
        return 0;
    }
    for (int i = 0; i < t->n_cols; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", table_header(t, i));
    }
    return err_set(e, ERR_FORMAT, "'%s' line %d: no column '%s'; there are: %s", t->name, t->lines[0], name,
                   list);
}

const char *table_cell(const struct table *t, int row, int col, size_t *len)
{
    const struct cell *c = &t->cells[((size_t)row + 1) * (size_t)t->n_cols + (size_t)col];
    if (len)
        *len = c->len;
    return t->text + c->offset;
}

int table_line(const struct table *t, int row)
{
    return t->lines[row + 1];
}

int table_err(const struct table *t, int row, int col, struct err *e, const char *fmt, ...)
{
    char text[384];
    va_list ap;
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "'%s' line %d, column '%s': %s", t->name, table_line(t, row),
                   table_header(t, col), text);
}
