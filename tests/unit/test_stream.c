/* Text output: characters stay whole, stop strings end the text wherever they are cut into pieces. */
#include "runtime/stream.h"
#include "tests/test.h"

#include <string.h>

static char out[4096];
static size_t n_out;
static int broken; /* a call that ended inside a character */

static void sink(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    memcpy(out + n_out, text, len);
    n_out += len;
    out[n_out] = 0;
    size_t i = len;
    while (i > 0 && ((unsigned char)text[i - 1] & 0xc0) == 0x80)
        i--;
    if (i > 0) {
        unsigned char c = (unsigned char)text[i - 1];
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        broken |= len - i + 1 < need;
    }
}

/* Push text in pieces of every size; the outcome must not depend on it. */
static int gives(const char *text, const char *const *stops, int n_stops, const char *want, int want_stopped)
{
    size_t len = strlen(text);
    for (size_t piece = 1; piece <= len; piece++) {
        struct stream s;
        struct err e;
        n_out = 0;
        out[0] = 0;
        if (stream_init(&s, stops, n_stops, sink, NULL, &e) < 0)
            return 0;
        for (size_t i = 0; i < len; i += piece)
            stream_push(&s, text + i, len - i < piece ? len - i : piece);
        stream_flush(&s);
        int ok = !strcmp(out, want) && s.stopped == want_stopped;
        stream_done(&s);
        if (!ok) {
            printf("# piece %zu: '%s'\n", piece, out);
            return 0;
        }
    }
    return 1;
}

/* Text between bars is of a token that is not printed. */
static int marked(const char *text, const char *stop, const char *want, int want_stopped)
{
    struct stream s;
    struct err e;
    int silent = 0;
    n_out = 0;
    out[0] = 0;
    if (stream_init(&s, &stop, 1, sink, NULL, &e) < 0)
        return 0;
    for (; *text; text++)
        if (*text == '|')
            silent = !silent;
        else if (silent)
            stream_mark(&s, text, 1);
        else
            stream_push(&s, text, 1);
    stream_flush(&s);
    int ok = !strcmp(out, want) && s.stopped == want_stopped;
    stream_done(&s);
    if (!ok)
        printf("# '%s'\n", out);
    return ok;
}

int main(void)
{
    const char *const end[] = { "END" }, *const two[] = { "\n\n", "aab" };
    struct stream s;
    struct err e;
    CHECK(gives("plain text", NULL, 0, "plain text", 0));
    CHECK(gives("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a!", NULL, 0,
                "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a!", 0));
    CHECK(!broken);
    CHECK(gives("one END two", end, 1, "one ", 1));
    CHECK(gives("EENEND", end, 1, "EEN", 1));
    CHECK(gives("one EN", end, 1, "one EN", 0)); /* held at the end, then flushed */
    CHECK(gives("aaab", two, 2, "a", 1));
    CHECK(gives("x\n y\n\nz", two, 2, "x\n y", 1));
    CHECK(gives("\x80\xff broken \xc3", NULL, 0, "\x80\xff broken \xc3", 0));
    CHECK(gives("\xe2\x82 END", end, 1, "\xe2\x82 ", 1));
    CHECK(marked("one|END|two", "END", "one", 1) && marked("one|END|two", "eENDt", "on", 1) && marked("a|END||END|b", "DE", "a", 1));
    CHECK(marked("one|EN|two", "END", "onetwo", 0) && marked("a|EN|D", "END", "a", 1) && marked("a|E|ND", "END", "a", 1));
    CHECK(marked("a|E|N|D|E", "NDEx", "aNE", 0) && marked("|E|", "E", "", 1) && marked("|END", "x", "", 0));
    const char *const empty[] = { "" };
    CHECK(stream_init(&s, empty, 1, sink, NULL, &e) == ERR_USAGE);
    return test_done();
}
