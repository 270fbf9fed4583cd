/* common/base/print: as printf but for text, every character that acts; JSON and the log. C1 and signs of direction are in octal. */
#include "common/base/err.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "tests/test.h"

#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1024], plain[1024];

static FILE *to_text(void)
{
    memset(text, 0, sizeof text);
    return fmemopen(text, sizeof text - 1, "w");
}

/* print_to gives want, and says how much that is. */
#define SAYS(want, ...)                                                                    \
    do {                                                                                   \
        FILE *f = to_text();                                                               \
        int made = f ? print_to(f, __VA_ARGS__) : -1;                                      \
        if (f)                                                                             \
            fclose(f);                                                                     \
        snprintf(plain, sizeof plain, "%s", want);                                         \
        CHECK_MSG(!strcmp(text, plain) && made == (int)strlen(plain), "%d: %s", made, text); \
    } while (0)

/* As printf has it. */
#define AS_PRINTF(...)                              \
    do {                                            \
        char by_c[sizeof plain];                    \
        snprintf(by_c, sizeof by_c, __VA_ARGS__);   \
        SAYS(by_c, __VA_ARGS__);                    \
    } while (0)

static void as_printf(void)
{
    AS_PRINTF("plain\n\ttext");
    AS_PRINTF("%s", "");
    AS_PRINTF("|%s|%5s|%-5s|%.2s|%-6.2s|%*s|%-*s|%*s|%.*s|", "a", "b", "c", "defg", "hijk", 4, "l", 4, "m", -4, "n", 2, "opq");
    AS_PRINTF("|%d|%5d|%-5d|%05d|%+d|% d|%.3d|%i|", 1, -2, 3, -4, 5, 6, 7, 8);
    AS_PRINTF("|%u|%x|%#X|%o|%08x|%c|%3c|%%|", 4000000000u, 255u, 255u, 8u, 48879u, 'c', 'd');
    AS_PRINTF("|%ld|%lu|%lld|%12llu|%zu|%-8zu|%jd|", -1L, 2UL, -(1LL << 40), ~0ULL, (size_t)3, (size_t)4, (intmax_t)-5);
    AS_PRINTF("|%f|%.0f|%8.3f|%-9.2e|%g|%.17g|%+.1f|%09.2f|%*.*f|%G|", 1.5, 2.5, 3.25, 4e10, 5e-9, 0.1, 6.0, -7.5, 9, 1, 8.0, 1e99);
    AS_PRINTF("%s", "gr\303\274n, \342\202\254, \360\237\230\200, back\\slash");
}

/* %g of counts has no power of ten, in messages too. */
static void counts(void)
{
    SAYS("16777216 1000000 999999 1e+06", "%g %g %g %s", 16777216.0, 1e6, 999999.0, "1e+06");
    SAYS("12345 |   12345|12345   | 9.99 0.001 1e-05 -1048576", "%.4g |%8.3g|%-8.3g| %.3g %g %g %g", 12345.4, 12345.0,
         12345.0, 9.99, 0.001, 1e-5, -1048576.0);
    SAYS("1000000 9223372036854775808 1e+18 inf nan", "%g %.19g %g %g %g", 999999.7, 0x1p63, 1e18, (double)INFINITY, (double)NAN);
    struct err e;
    err_set(&e, ERR_LIMIT, "'%s' has %g bytes, %hhu of %hu, %td", "a\nb", 123456789.0, (unsigned char)7, (unsigned short)8, (ptrdiff_t)9);
    CHECK_MSG(!strcmp(e.msg, "'a\nb' has 123456789 bytes, 7 of 8, 9"), "%s", e.msg);
    err_wrap(&e, "of %g", 1e9);
    CHECK_MSG(!strncmp(e.msg, "of 1000000000: 'a", 17), "%s", e.msg);
    char few[6];
    CHECK(print_into(few, sizeof few, "%s-%d", "abcd", 42) == 7 && !strcmp(few, "abcd-"));
    CHECK(print_into(few, 0, "%5s", "a") == 5 && print_into(few, 1, "ab") == 2 && !few[0]);
}

static void acts(void)
{
    SAYS("a\\x1b[31m\\x0aok forged\\x09\\x0d\\x7f", "%s", "a\033[31m\nok forged\t\r\177");
    SAYS("\\u{9b}31m \\u{85} \\u{202e} \\u{2028}\\u{2029} \\u{2066}\\u{2069}", "%s",
         "\302\23331m \302\205 \342\200\256 \342\200\250\342\200\251 \342\201\246\342\201\251");
    SAYS("\\x9b \\xff \\xed\\xa0\\x80 \\xe2\\x82", "%s", "\233 \377 \355\240\200 \342\202");
    SAYS("|  \\x07|\\x07  |\\x0a|", "|%6s|%-6s|%c|", "\a", "\a", '\n');
    SAYS("line\n\tend \\x0a\n", "line\n\tend %s\n", "\n");
    for (int c = 1; c < 256; c++) {
        const char value[] = { (char)c, '\0' };
        char want[8];
        snprintf(want, sizeof want, c < 0x20 || c >= 0x7f ? "\\x%02x" : "%c", c);
        if (print_acts((uint32_t)c) || c > 0x7f)
            SAYS(want, "%s", value);
    }
    char four[5];
    CHECK(print_escape(four, sizeof four, "ab\n", 3) == 2 && !strcmp(four, "ab")); /* cut before what has no room */
    CHECK(print_escape(four, sizeof four, "\n\n", 2) == 4 && !strcmp(four, "\\x0a"));
}

/* One piece after the other. */
static const char *pieces(size_t (*piece)(const char *, size_t, char *), const char *s)
{
    size_t n = 0;
    for (size_t i = 0; i < strlen(s); n += strlen(plain + n))
        i += piece(s + i, strlen(s) - i, plain + n);
    plain[n] = '\0';
    return plain;
}

static void data(void)
{
    CHECK(!strcmp(pieces(print_terminal_piece, "a\tb\r\nc\033]0;x\a\302\233 \377 \342\200\256 \342\202\254"),
                  "a\tb\nc\\x1b]0;x\\x07\\u{9b} \\xff \342\200\256 \342\202\254"));
    CHECK(!strcmp(pieces(print_json_piece, "\"\\\n\177\302\233\342\200\256\377\342\202\254"),
                  "\\\"\\\\\\u000a\\u007f\\u009b\\u202e\\ufffd\342\202\254"));
    struct js *o = js_object();
    js_set_str(o, "k\302\233", "\033\177\342\200\256\n\"\342\202\254");
    char *json = js_text(o, 0, 0);
    CHECK(json && !strcmp(json, "{\"k\\u009b\":\"\\u001B\\u007f\\u202e\\n\\\"\342\202\254\"}"));
    struct err e = { 0 };
    struct js *back = json ? js_parse(json, strlen(json), "back", &e) : NULL;
    const char *value = js_str(js_get(back, "k\302\233"));
    CHECK(value && !strcmp(value, "\033\177\342\200\256\n\"\342\202\254"));
    js_free(back);
    js_free(o);
    free(json);
}

/* Numbers of JSON: those that there are as printf has them, the others null, by both writers. */
static void json_numbers(void)
{
    const double v[] = { 0.1, -INFINITY, NAN, 1e300 };
    char path[200], got[200], one[PRINT_NUMBER];
    test_path(path, sizeof path, "test_print.json.%d", (int)getpid());
    FILE *f = fopen(path, "w+");
    CHECK(f != NULL);
    for (int i = 0; f && i < 4; i++)
        CHECK(print_json_to(f, "%s\"a\":%.3f,\"b\":%.9g,\"c\":%d", i ? "," : "", v[i], v[i], 7) > 0);
    rewind(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    got[n] = '\0';
    static const char want[] = "\"a\":0.100,\"b\":0.1,\"c\":7,\"a\":null,\"b\":null,\"c\":7,\"a\":null,\"b\":null,\"c\":7,\"a\":1000";
    CHECK_MSG(!strncmp(got, want, strlen(want)), "%s", got);
    fclose(f);
    unlink(path);
    print_json_number(one, 3, 1.25e-9);
    CHECK(!strcmp(one, "1.25e-09"));
    print_json_number(one, 17, NAN);
    CHECK(!strcmp(one, "null"));
    struct js *o = js_object();
    js_set_num(o, "x", INFINITY);
    char *json = js_text(o, 0, 0);
    CHECK(json && !strcmp(json, "{\"x\":null}"));
    js_free(o);
    free(json);
}

/* What standard error gets of a log line, with standard output in the same place, or not. */
static void log_line(int together)
{
    char path[200];
    test_path(path, sizeof path, "test_print.%d", (int)getpid());
    fflush(stdout);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600), out = dup(1), err = dup(2);
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(fd, 2);
    dup2(together ? fd : nowhere, 1);
    print_data("half a", 6);
    print_data(" line", 5);
    log_warn("'%s'", "x\nok forged\033[0m");
    log_warn("two");
    print_data("", 0);
    print("end\n");
    log_warn("three");
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(nowhere);
    close(out);
    close(err);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
    unlink(path);
    CHECK_MSG(!strcmp(text, together ? "half a line\np: warning: 'x\\x0aok forged\\x1b[0m'\np: warning: two\nend\np: warning: three\n"
                                     : "p: warning: 'x\\x0aok forged\\x1b[0m'\np: warning: two\np: warning: three\n"), "%s", text);
}

/* Of a line on a stream without a buffer, in one write: a pipe of packets keeps them apart. */
static void writes(void)
{
    int ends[2];
    char got[2048];
    FILE *f;
    if (pipe2(ends, O_DIRECT) < 0 || !(f = fdopen(ends[1], "w"))) {
        CHECK(!"a pipe of packets");
        return;
    }
    setvbuf(f, NULL, _IONBF, 0);
    print_to(f, "'%s' %d of %g%c\n", "a\x1b[0m line", 3, 4.5, '.');
    ssize_t n = read(ends[0], got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    CHECK_MSG(!strcmp(got, "'a\\x1b[0m line' 3 of 4.5.\n"), "%s", got);
    memset(plain, 'x', 900);
    plain[900] = '\0';
    print_to(f, "%s", plain); /* longer than what is held */
    for (size_t at = 0; at < 900; at += (size_t)n)
        if ((n = read(ends[0], got + at, sizeof got - at)) <= 0)
            break;
    CHECK(!memcmp(got, plain, 900));
    fclose(f);
    close(ends[0]);
}

int main(void)
{
    writes();
    json_numbers();
    log_init("p", LOG_WARN);
    as_printf();
    counts();
    acts();
    data();
    log_line(1);
    fflush(stdout);
    log_line(0);
    return test_done();
}
