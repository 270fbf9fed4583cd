/* common/base/nfc: texts by hand from UAX 15; tests/cli/tokens.sh compares with Python's database. */
#include "common/base/nfc.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct err e;

static int composes(const char *text, size_t len, const char *want, size_t n_want)
{
    char *out;
    size_t n = len;
    if (nfc_text(text, len, &out, &n, &e) < 0)
        return 0;
    int same = n == n_want && !memcmp(out ? out : text, want, n);
    if (!same)
        printf("# '%.*s' gives '%.*s'\n", (int)len, text, (int)n, out ? out : text);
    free(out);
    return same;
}
#define NFC(text, want) CHECK(composes(text, sizeof(text) - 1, want, sizeof(want) - 1))

static void by_hand(void)
{
    NFC("", "");
    NFC("caf\xc3\xa9 \xcb\xbf", "caf\xc3\xa9 \xcb\xbf");                                /* nothing from U+0300 on */
    NFC("cafe\xcc\x81s", "caf\xc3\xa9s");
    NFC("\xe2\x84\xab\xe2\x84\xa6", "\xc3\x85\xce\xa9");                               /* Angstrom and Ohm are other letters */
    NFC("e\xcc\x81\xcc\xa3", "\xe1\xba\xb9\xcc\x81");                                  /* the dot below comes first */
    NFC("\xc3\xa9\xcc\xa3", "\xe1\xba\xb9\xcc\x81");                                   /* taken apart for it */
    NFC("e\xcc\x82\xcc\x81", "\xe1\xba\xbf");                                          /* both */
    NFC("a\xcc\xa3\xcc\xa4\xcc\x81", "\xe1\xba\xa1\xcc\xa4\xcc\x81");                  /* one of the same class is no way past */
    NFC("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe1\x84\x80", "\xed\x95\x9c\xe1\x84\x80"); /* syllables, and a lone beginning */
    NFC("\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c");                                   /* a syllable goes on */
    NFC("\xed\x95\x9c\xe1\x86\xab", "\xed\x95\x9c\xe1\x86\xab");                       /* a whole one does not */
    NFC("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");                                   /* never composed */
    NFC("\xcc\x88\xcc\x81x", "\xcc\x88\xcc\x81x");                                     /* marks of nothing */
    NFC("\xcd\x84", "\xcc\x88\xcc\x81");
    NFC("e\xff\xcc\x81", "e\xff\xcc\x81");                                             /* not across what is no UTF-8 */
    NFC("e\xcc", "e\xcc");
    NFC("\xf0\x9d\x85\xa0", "\xf0\x9d\x85\x98\xf0\x9d\x85\xa5\xf0\x9d\x85\xae");       /* three times as long */
}

/* Many marks are put in order, and those of one class stay as they came; half a million take no time. */
static void marks(void)
{
    enum { N = 250000 };
    char *text = malloc(4 * N + 1), *want = malloc(4 * N + 1);
    if (!text || !want)
        exit(1);
    text[0] = want[0] = 'x';
    for (int i = 0; i < N; i++) {
        memcpy(text + 1 + 4 * i, i % 2 ? "\xcc\x8d\xcc\xa4" : "\xcc\x8e\xcc\xa5", 4); /* above, below */
        memcpy(want + 1 + 2 * i, i % 2 ? "\xcc\xa4" : "\xcc\xa5", 2);
        memcpy(want + 1 + 2 * (N + i), i % 2 ? "\xcc\x8d" : "\xcc\x8e", 2);
    }
    CHECK(composes(text, 4 * N + 1, want, 4 * N + 1));
    free(text);
    free(want);
}

/* A text is its parts where it is cut before an ASCII character: so tokenizers compose pieces. */
static void pieces(void)
{
    static const char *const signs[] = { "a", "e", " ", "\n", "\xcc\x81", "\xcc\xa3", "\xc3\xa9", "\xe1\x84\x92", "\xe1\x85\xa1",
                                         "\xe1\x86\xab", "\xed\x95\x98", "\xe0\xa5\x98", "\xff", "\xe4\xbd\xa0" };
    unsigned x = 1, n_cuts = 0;
    for (int k = 0; k < 4000; k++) {
        char text[128] = "", parts[512], *whole, *part;
        size_t n = 0, len, at = 0;
        for (int m = 0; m < 20; m++)
            strcat(text, signs[(x = x * 1664525u + 1013904223u) >> 8 & 0xffff ? (x >> 16) % (sizeof signs / sizeof *signs) : 0]);
        len = strlen(text);
        CHECK(nfc_text(text, len, &whole, &len, &e) == 0);
        for (size_t i = 1; i <= strlen(text); i++)
            if (!(text[i] & 0x80)) {
                size_t m = i - at;
                CHECK(nfc_text(text + at, i - at, &part, &m, &e) == 0);
                memcpy(parts + n, part ? part : text + at, m);
                n += m;
                free(part);
                at = i;
                n_cuts++;
            }
        CHECK_MSG(n == len && !memcmp(parts, whole ? whole : text, n), "'%s'", text);
        free(whole);
    }
    CHECK(n_cuts > 10000);
}

int main(void)
{
    by_hand();
    marks();
    pieces();
    return test_done();
}
