#include "common/base/js.h"
#include "tests/test.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a text takes is counted by the allocation, and more than there is for it refused, whatever it is made of. */
static void bounds(void)
{
    static const char *const of[] = { "\"%\",", "[],", "{},", "1,", "1.5,", "\"x\",", "\"\\u0001\",", "{\"a\":{}},", "[[[1]]],", "null," };
    enum { LEN = 100000 };
    char *text = malloc(LEN + 64);
    struct err e;
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        size_t n = 1, k = strlen(of[i]);
        for (text[0] = '['; n + k < LEN; n += k)
            memcpy(text + n, of[i], k);
        text[n - 1] = ']';
        if (i == 0) { /* one string */
            memset(text + 2, 'x', n - 4);
            text[n - 2] = '"';
        }
        size_t before = mallinfo2().uordblks;
        struct js *j = js_parse(text, n, "text", &e);
        size_t held = mallinfo2().uordblks - before;
        printf("# %s takes %.1f times its text\n", of[i], (double)held / (double)n);
        CHECK(j != NULL);
        js_free(j);
        CHECK_MSG(!held || (!js_parse_within(text, n, held - 1, "text", &e) && e.code == ERR_LIMIT && strstr(e.msg, "'text' takes more")),
                  "%s: %zu", of[i], held); /* 0: a sanitizer's allocator does not tell */
        CHECK(!held || !js_parse_within(text, n, LEN, "text", &e) == (held > LEN));
        j = js_parse_within(text, n, 5 * held + (size_t)LEN * 200, "text", &e);
        CHECK_MSG(j != NULL, "%s: %s", of[i], e.msg);
        js_free(j);
    }
    free(text);
}

/* A file is read in pieces: blanks and a long number cost nothing, and a file that is too long is not begun. */
static void files(void)
{
    const char *path = "build/test_js.json";
    struct err e;
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f, "%*s{\"a\":%*s[1,2]}%*s", 1 << 20, "", 1 << 20, "", 1 << 20, "");
    fclose(f);
    struct js *j = js_read(path, 4 << 20, 4096, &e);
    CHECK_MSG(j && js_len(js_get(j, "a")) == 2, "%s", e.msg);
    js_free(j);
    CHECK(!js_read(path, 1 << 20, 4096, &e) && e.code == ERR_LIMIT && strstr(e.msg, "more than the limit of 1048576"));
    CHECK(!js_read("build/none.json", 1 << 20, 4096, &e) && e.code == ERR_INPUT);
    f = fopen(path, "w");
    fprintf(f, "{\"a\":1,\n}");
    fclose(f);
    CHECK(!js_read(path, 1 << 20, 4096, &e) && e.code == ERR_FORMAT && strstr(e.msg, "line 2"));
    remove(path);
}

/* What is no JSON, or not taken, is named with its place in words of ours. */
static void refused(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "{\"a\":\"\\ud800\"}", "'it' is not JSON: column 13: '\\uD800' is half of a pair of surrogates" },
        { "{\n\"a\":\"\\udc00\"}", "'it' is not JSON: line 2, column 12: '\\uDC00' is half" },
        { "[\"\\ud800\\u0041\"]", "is half of a pair" },
        { "[1,\n\"\\u0000\"]", "'it' is refused: line 2, column 8: \\u0000 in a string is not accepted" },
        { "{\"a\\u0000b\":1}", "'it' is refused: column 11: \\u0000 in a key is not accepted" },
        { "[1e999]", "column 6: a number that is too large" },
        { "[123456789012345678901234567890]", "a number that is too large" },
        { "[1,2", "column 4: it ends in the middle of a value" },
        { "", "it ends in the middle of a value" },
        { "[1] x", "text after the end of the value" },
        { "[\"\xff\"]", "bytes that are no UTF-8" },
        { "a", "'it' is not JSON: column 1: '[' or '{' expected near 'a'" },
    };
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(!js_parse(bad[i].text, strlen(bad[i].text), "it", &e) && e.code == ERR_FORMAT && strstr(e.msg, bad[i].says), "%s", e.msg);
    char deep[5000];
    memset(deep, '[', sizeof deep);
    CHECK_MSG(!js_parse(deep, sizeof deep, "it", &e) && strstr(e.msg, "is refused: column") && strstr(e.msg, "nested too deeply"),
              "%s", e.msg);
    /* Whatever byte is wrong: a place, and no word of the library's. */
    static const char good[] = "{\"a\":[1,-2.5e3,\"\\u00e9\\ud83d\\ude00\"],\n\"b\":{\"c\":null,\"d\":true}}";
    char text[sizeof good];
    int other = 0;
    for (size_t i = 0; i < sizeof good - 1; i++)
        for (int c = 0; c < 256; c++) {
            memcpy(text, good, sizeof good);
            text[i] = (char)c;
            e.msg[0] = '\0';
            struct js *j = js_parse(text, sizeof good - 1, "it", &e);
            other += !j && (!strstr(e.msg, "column ") || strstr(e.msg, "JSON_") || strstr(e.msg, "NUL byte"));
            js_free(j);
        }
    CHECK_MSG(other == 0, "%d", other);
}

int main(void)
{
    struct js *o = js_object(), *a = js_array();
    js_append_int(a, -3);
    js_append_num(a, 0.1);
    js_append_str(a, "x\ny");
    js_set(o, "z", a);
    js_set_str(o, "a", "caf\xc3\xa9 \xff");
    js_set_u64(o, "big", UINT64_MAX);
    js_set_num(o, "nan", NAN);
    js_set_bool(o, "yes", 1);
    char *t = js_text(o, 0, 6);
    CHECK(t && !strcmp(t, "{\"z\":[-3,0.1,\"x\\ny\"],\"a\":\"caf\xc3\xa9 \xef\xbf\xbd\",\"big\":\"18446744073709551615\","
                          "\"nan\":null,\"yes\":true}"));
    struct err e = { 0 };
    struct js *back = js_parse(t, strlen(t), "t", &e);
    int64_t i = 0;
    double d = 0;
    CHECK(back && js_len(js_get(back, "z")) == 3);
    CHECK(back && js_int(js_at(js_get(back, "z"), 0), &i) && i == -3);
    CHECK(back && js_num(js_at(js_get(back, "z"), 1), &d) && d == 0.1);
    CHECK(back && !js_int(js_get(back, "a"), &i) && !js_get(back, "none") && !js_str(js_get(back, "z")));
    CHECK(!js_parse("{\"a\":1,\"a\":2}", 13, "dup", &e) && e.code == ERR_FORMAT && strstr(e.msg, "'dup'"));
    CHECK(!js_parse("[1,2", 4, "cut", &e) && e.code == ERR_FORMAT);
    free(t);
    js_free(back);
    js_free(o);
    refused();
    bounds();
    files();
    return test_done();
}
