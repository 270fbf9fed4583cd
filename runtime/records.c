/* The table's reader is our own: a few states, no memory but the buffer. libcsv's is in the offline library, which the runtime does
 * not link. */
#include "runtime/records.h"

#include "common/base/file.h"

#include <stdlib.h>
#include <string.h>

static void put(struct records *r, int c)
{
    if (r->len + 1 < r->cap)
        r->buf[r->len++] = (char)c;
    else
        r->over = 1, r->buf[r->cap - 1] = 0;
}

static int bad(const struct records *r, struct err *e, const char *what)
{
    return err_set(e, ERR_FORMAT, "'%s': record %llu: %s", r->path, (unsigned long long)r->n, what);
}

/* EOF too where the process was asked to stop. */
static int next_char(struct records *r)
{
    return file_go_on_at(r->read++, &r->stop) < 0 ? EOF : getc(r->file);
}

static int check_read(const struct records *r, struct err *e)
{
    if (r->stop.code)
        return err_set(e, r->stop.code, "%s", r->stop.msg);
    return ferror(r->file) ? err_sys(e, ERR_INPUT, "reading '%s'", r->path) : 0;
}

static int too_long(const struct records *r, struct err *e)
{
    return err_set(e, ERR_LIMIT, "'%s': record %llu is longer than the limit of %zu bytes", r->path, (unsigned long long)r->n, r->cap - 1);
}

/* ---- tables ---- */

/* The rest of a field that begins with a quotation mark, and the character behind it. */
static int quoted_field(struct records *r, struct err *e)
{
    for (int c; (c = next_char(r)) != EOF;) {
        if (c == '"' && (c = next_char(r)) != '"')
            return c;
        put(r, c);
    }
    if (check_read(r, e) == 0)
        bad(r, e, "a quotation mark is not closed");
    return -2;
}

/* A field, with a NUL behind it. 1: another follows; 0: it was the record's last; ERR_*. */
static int field(struct records *r, struct err *e)
{
    int c = next_char(r);
    if (c == '"') {
        if ((c = quoted_field(r, e)) == -2)
            return e->code;
        if (c == '\r')
            c = next_char(r);
        if (c != ',' && c != '\n' && c != EOF)
            return bad(r, e, "a quotation mark within a field");
    } else {
        for (; c != ',' && c != '\n' && c != EOF; c = next_char(r))
            put(r, c);
        if (c != ',' && r->len && r->buf[r->len - 1] == '\r')
            r->len--;
    }
    put(r, 0);
    return check_read(r, e) < 0 ? e->code : c == ',';
}

/* The fields of a record, which begins with character c; header: which columns they are. */
static int row(struct records *r, int c, int header, struct err *e)
{
    int more = 1, i = 0;
    ungetc(c, r->file);
    r->text = r->id = "";
    r->text_len = 0;
    for (; more > 0; i++) {
        size_t at = r->len;
        if ((more = field(r, e)) < 0)
            return more;
        if (header && !strcmp(r->buf + at, r->column))
            r->text_at = i;
        else if (header && !strcmp(r->buf + at, "id"))
            r->id_at = i;
        else if (!header && i == r->text_at) {
            r->text = r->buf + at;
            r->text_len = r->len - at - 1;
        } else if (!header && i == r->id_at)
            r->id = r->buf + at;
        if (header || (i != r->text_at && i != r->id_at))
            r->len = at;
    }
    if (!r->over && !header && i <= r->text_at)
        return bad(r, e, "has fewer fields than the header");
    return r->over ? too_long(r, e) : 1;
}

/* ---- lines ---- */

static int line(struct records *r, int c, struct err *e)
{
    for (; c != '\n' && c != EOF; c = next_char(r))
        put(r, c);
    put(r, 0);
    if (check_read(r, e) < 0)
        return e->code;
    r->text = r->buf;
    r->text_len = r->len - 1;
    r->id = "";
    return r->over ? too_long(r, e) : 1;
}

/* The first character of a record; empty lines are none. */
static int first(struct records *r)
{
    int c;
    do
        c = next_char(r);
    while (c == '\n' || c == '\r' || (!r->table && (c == ' ' || c == '\t')));
    return c;
}

int records_next(struct records *r, struct err *e)
{
    int c = first(r);
    r->len = 0;
    r->over = 0;
    if (c == EOF)
        return check_read(r, e);
    r->n++;
    return r->table ? row(r, c, 0, e) : line(r, c, e);
}

static int begin(struct records *r, struct err *e)
{
    int c = first(r), mark = c == 0xef, second = mark ? next_char(r) : 0, third = mark ? next_char(r) : 0;
    if (mark && (second != 0xbb || third != 0xbf))
        return bad(r, e, "the file begins with bytes that are no text");
    c = mark ? first(r) : c;
    if (c == EOF)
        return check_read(r, e) < 0 ? e->code : err_set(e, ERR_INPUT, "'%s' is empty", r->path);
    r->table = c != '{';
    if (!r->table) {
        ungetc(c, r->file);
        return 0;
    }
    int got = row(r, c, 1, e);
    if (got < 0)
        return got;
    return r->text_at >= 0 ? 0 : err_set(e, ERR_FORMAT, "'%s' is a table without a column '%s': see --column", r->path, r->column);
}

int records_open(struct records *r, const char *path, const char *column, size_t cap, struct err *e)
{
    *r = (struct records){ .path = path, .column = column, .cap = cap, .text_at = -1, .id_at = -1 };
    r->file = fopen(path, "rb");
    if (!r->file)
        return err_sys(e, ERR_INPUT, "'%s'", path);
    r->buf = malloc(cap);
    int code = r->buf ? begin(r, e) : err_set(e, ERR_NOMEM, "out of memory for a record");
    if (code < 0)
        records_close(r);
    return code;
}

void records_close(struct records *r)
{
    if (r->file)
        fclose(r->file);
    free(r->buf);
    *r = (struct records){ 0 };
}
