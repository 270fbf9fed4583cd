/* CSV: what RFC 4180 allows is read back exactly; everything else is refused with its line. */
#include "common/offline/table.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static int parse(const char *text, struct table **t, struct err *e)
{
    memset(e, 0, sizeof *e);
    *t = NULL;
    return table_parse("t.csv", text, strlen(text), t, e);
}

static void good(void)
{
    struct table *t;
    struct err e;
    size_t len;
    CHECK(parse("\xEF\xBB\xBF"
                "a,\"b c\",d\r\n1,\"x,\"\"y\"\"\nz\", sp \r\n\r\n,,\n9,\"\",last",
                &t, &e) == 0);
    if (!t)
        return;
    CHECK(table_cols(t) == 3 && table_rows(t) == 3);
    CHECK(!strcmp(table_header(t, 0), "a") && !strcmp(table_header(t, 1), "b c"));
    CHECK(!strcmp(table_cell(t, 0, 1, &len), "x,\"y\"\nz") && len == 7);
    CHECK(!strcmp(table_cell(t, 0, 2, NULL), " sp "));
    CHECK(!strcmp(table_cell(t, 1, 0, &len), "") && len == 0);
    CHECK(!strcmp(table_cell(t, 2, 2, NULL), "last"));
    CHECK(table_line(t, 0) == 2 && table_line(t, 1) == 5 && table_line(t, 2) == 6);
    CHECK(table_col(t, "d") == 2 && table_col(t, "D") == -1);
    int c = -1;
    CHECK(table_need(t, "d", &c, &e) == 0 && c == 2);
    CHECK(table_need(t, "unit", &c, &e) == ERR_FORMAT &&
          strstr(e.msg, "no column 'unit'; there are: a, b c, d"));
    CHECK(table_err(t, 1, 2, &e, "'%s' is odd", "x") == ERR_FORMAT);
    CHECK(!strcmp(e.msg, "'t.csv' line 5, column 'd': 'x' is odd"));
    table_free(t);
    CHECK(parse("only,header\n", &t, &e) == 0 && table_rows(t) == 0);
    table_free(t);
    CHECK(parse("\n\n a\n\n\nv\n", &t, &e) == 0 && table_rows(t) == 1 && table_line(t, 0) == 6 &&
          !strcmp(table_header(t, 0), " a"));
    table_free(t);
}

static void bad(void)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "is empty" },
        { "\n\r\n", "is empty" },
        { "a,b\n1,2\n1,2,3\n", "line 3: 3 fields, the header has 2" },
        { "a,b\n\n1\n", "line 3: 1 fields, the header has 2" },
        { "a,b\n1,\"x\ny\n", "line 2: the quote opened in this row is never closed" },
        { "a,b\n1,x\"y\n", "line 2, character 4: a quote out of place" },
        { "a,b\n1,\"x\"y\n", "line 2, character 6: a quote out of place" },
        { "a,b,a\n", "column 'a' is there twice" },
        { "a,,b\n", "column 2 has no name" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct table *t;
        struct err e;
        int r = parse(cases[i].text, &t, &e);
        CHECK_MSG(r == ERR_FORMAT && strstr(e.msg, cases[i].message) && !t, "case %zu: %d %s", i, r, e.msg);
    }
    struct table *t = NULL;
    struct err e = { 0 };
    CHECK(table_parse("n.csv", "a\nx\0y\n", 6, &t, &e) == ERR_FORMAT &&
          strstr(e.msg, "'n.csv' line 2, field 1: a NUL"));
    char wide[2 * TABLE_MAX_COLS + 2];
    memset(wide, ',', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    CHECK(parse(wide, &t, &e) == ERR_LIMIT && strstr(e.msg, "more than the limit of 256 fields"));
    CHECK(table_read("/no/such.csv", &t, &e) == ERR_INPUT && strstr(e.msg, "/no/such.csv"));
}

/* Every prefix and every single-byte change of a valid file either parses or fails with a message. */
static void mutations(void)
{
    static const char text[] = "a,b\r\n\"1\n\",\"q\"\"\"\r\n3,4\n";
    struct table *t;
    struct err e;
    int answered = 1;
    char buf[sizeof text];
    for (size_t i = 0; i < sizeof text; i++)
        for (int c = 0; c < 256; c++) {
            memcpy(buf, text, sizeof text);
            buf[i] = (char)c;
            memset(&e, 0, sizeof e);
            t = NULL;
            int r = table_parse("m.csv", buf, c == 0 ? i : sizeof text - 1, &t, &e);
            answered &= r == 0 ? t != NULL : t == NULL && e.code == r && e.msg[0];
            table_free(t);
        }
    CHECK(answered);
}

int main(void)
{
    good();
    bad();
    mutations();
    return test_done();
}
