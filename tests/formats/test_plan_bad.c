/* Broken plans: truncated anywhere, any byte flipped, any member dropped, renamed or of a wrong type.
 * Each is refused with the right code and a message that names the place, or is still a valid plan. */
#include "common/plan/plan.h"
#include "tests/plan_sample.h"
#include "tests/test.h"

#include <ctype.h>
#include <stdio.h>

static int try(const char *text, size_t len, struct err *e)
{
    struct plan p;
    /* A copy of the exact size, so that the sanitizer sees any read past the end. */
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    int r = plan_parse(copy, len, "bad.json", &p, e);
    free(copy);
    if (r == 0)
        plan_done(&p);
    return r;
}

static int well_refused(int r, const struct err *e)
{
    return (r == ERR_FORMAT || r == ERR_UNSUPPORTED || r == ERR_LIMIT) && strstr(e->msg, "bad.json");
}

/* Replace [at, at+n) by s. */
static int with(const char *text, size_t len, size_t at, size_t n, const char *s, struct err *e)
{
    size_t m = strlen(s);
    char *t = malloc(len + m);
    memcpy(t, text, at);
    memcpy(t + at, s, m);
    memcpy(t + at + m, text + at + n, len - at - n);
    int r = try(t, len - n + m, e);
    free(t);
    return r;
}

int main(void)
{
    struct plan p;
    struct err e = { 0 };
    char *text;
    size_t len;
    plan_sample(&p);
    if (plan_text(&p, &text, &len, &e) < 0)
        return 1;
    plan_done(&p);

    int bad = 0, n = 0;
    for (size_t i = 0; i + 1 < len; i += i < 4096 ? 1 : 13) /* the last byte is a newline */
        bad += !well_refused(try(text, i, &e), &e);
    CHECK_MSG(bad == 0, "%d truncations were not refused", bad);

    bad = 0;
    for (size_t i = 0; i < len; i += 3)
        for (int bit = 0; bit < 8; bit += 3) {
            char c[2] = { (char)(text[i] ^ 1 << bit), 0 };
            int r = c[0] ? with(text, len, i, 1, c, &e) : ERR_FORMAT;
            bad += r != 0 && c[0] && !well_refused(r, &e);
        }
    CHECK_MSG(bad == 0, "%d flips gave a wrong error", bad);

    /* Rename each member: it is unknown, and the old name is missing. */
    bad = 0;
    for (size_t i = 0; i + 3 < len; i++)
        if (text[i] == '"' && (islower((unsigned char)text[i + 1]))) {
            char *end = strchr(text + i + 1, '"');
            if (end[1] != ':')
                continue;
            n++;
            int r = with(text, len, i + 1, 1, "X", &e);
            bad += !well_refused(r, &e);
        }
    CHECK_MSG(bad == 0 && n > 100, "%d of %d renamed members were not refused", bad, n);

    /* Each value after a colon: another type, too large, negative, fractional. */
    static const char *const wrong[] = { "null", "{}", "[]", "-1", "1e300", "9223372036854775808", "\"\\u0001\"",
                                         "[[[[]]]]" };
    bad = n = 0;
    for (size_t i = 1; i < len; i++)
        if (text[i - 1] == ':' && text[i] == ' ' && !strchr("{[", text[i + 1])) {
            size_t end = i + 1;
            while (text[end] != '\n' && text[end] != ',' && text[end] != ' ')
                end++;
            if (text[i + 1] == '"')
                end = (size_t)(strchr(text + i + 2, '"') - text) + 1;
            for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
                int r = with(text, len, i + 1, end - i - 1, wrong[w], &e);
                n++;
                if (r == 0 && text[i + 1] == '"' && w == 6)
                    continue; /* an odd string where any string will do */
                if (!well_refused(r, &e)) {
                    printf("# %.40s -> %s: %d %s\n", text + i - 20, wrong[w], r, r ? e.msg : "");
                    bad++;
                }
            }
        }
    CHECK_MSG(bad == 0 && n > 400, "%d of %d wrong values were not refused", bad, n);

    CHECK(with(text, len, 0, 1, "{\"seed\": 1,", &e) == ERR_FORMAT); /* twice the same key */
    CHECK(try("", 0, &e) == ERR_FORMAT && try("[]", 2, &e) == ERR_FORMAT && try("{}", 2, &e) == ERR_FORMAT);
    char *hot = strstr(text, "[[0, 64], [200, 0]]");
    CHECK(with(text, len, (size_t)(hot - text), 19, "[[0, 64]]", &e) == ERR_FORMAT);
    CHECK_MSG(strstr(e.msg, "limits[0].batches[0].hot[0] has 1 elements; 2 are needed"), "%s", e.msg);
    CHECK(with(text, len, (size_t)(hot - text), 19, "[[0, 65], [200, 0]]", &e) == ERR_FORMAT);
    CHECK_MSG(strstr(e.msg, "limits[0].batches[0].hot[0][0][1] is 65"), "%s", e.msg);
    free(text);
    return test_done();
}
