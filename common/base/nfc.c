/* NFC in one pass. A run is a character that begins one (combining class 0) and the marks behind it; where the next one begins, the
 * run's marks are put in order and composed with its beginning, and what has become one character may go on with the next, as syllables
 * of Hangul do. The tables take 22 KB; those of libutf8proc, which Debian keeps, take 340, for what is not needed here: case, width,
 * other forms. */
#include "common/base/nfc.h"

#include "common/base/nfc_table.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define CODE 0x1fffffu                /* of a character in a run; above it its class */
#define CLASS_AT 24
enum { HANGUL = 0xac00, L = 0x1100, V = 0x1161, T = 0x11a7, LS = 19, VS = 21, TS = 28, CLASSES = 256 };

struct nfc {
    char *out;
    size_t n_out, n, cap;
    uint32_t *run, *spare;            /* [cap] each */
};

static const uint64_t *split_of(uint32_t code)
{
    size_t lo = 0, hi = sizeof splits / sizeof *splits;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        uint32_t c = (uint32_t)(splits[mid] >> 42);
        if (c == code)
            return &splits[mid];
        if (c < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static unsigned class_of(uint32_t code)
{
    size_t lo = 0, hi = sizeof classes / sizeof *classes;
    while (lo < hi) { /* the last that begins at code or before it */
        size_t mid = lo + (hi - lo) / 2;
        if (classes[mid] >> 16 <= code)
            lo = mid + 1;
        else
            hi = mid;
    }
    uint64_t c = lo ? classes[lo - 1] : 0;
    return lo && code - (c >> 16) <= (c >> 8 & 0xff) ? (unsigned)(c & 0xff) : 0;
}

/* The character that two become; 0: none. */
static uint32_t pair(uint32_t a, uint32_t b)
{
    if (a - L < LS && b - V < VS)
        return HANGUL + ((a - L) * VS + (b - V)) * TS;
    if (a - HANGUL < LS * VS * TS && (a - HANGUL) % TS == 0 && b - T - 1 < TS - 1)
        return a + (b - T);
    const uint64_t key = (uint64_t)a << 21 | b, mask = (1ull << 42) - 1;
    size_t lo = 0, hi = sizeof pairs / sizeof *pairs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        uint64_t s = splits[pairs[mid]];
        if ((s & mask) == key)
            return (uint32_t)(s >> 42);
        if ((s & mask) < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

/* Marks c[0..n) in the order of their classes, those of one class as they came. */
static void order(uint32_t *c, uint32_t *spare, size_t n)
{
    size_t at[CLASSES] = { 0 }, i = 1, sum = 0;
    while (i < n && c[i - 1] >> CLASS_AT <= c[i] >> CLASS_AT)
        i++;
    if (i >= n)
        return;
    for (i = 0; i < n; i++)
        at[c[i] >> CLASS_AT]++;
    for (i = 0; i < CLASSES; i++) {
        size_t k = at[i];
        at[i] = sum;
        sum += k;
    }
    for (i = 0; i < n; i++)
        spare[at[c[i] >> CLASS_AT]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

/* Orders the run's marks and composes them with its beginning, where it has one: what stays is left. */
static void compose(struct nfc *x)
{
    size_t first = x->n > 0 && x->run[0] >> CLASS_AT == 0, kept = first;
    unsigned last = 0; /* the class of the mark before, which stays: one of the same class cannot pass it */
    if (x->n <= first)
        return;
    order(x->run + first, x->spare, x->n - first);
    for (size_t i = first; i < x->n; i++) {
        unsigned k = x->run[i] >> CLASS_AT;
        uint32_t both = first && k != last ? pair(x->run[0], x->run[i] & CODE) : 0;
        if (both) {
            x->run[0] = both;
        } else {
            x->run[kept++] = x->run[i];
            last = k;
        }
    }
    x->n = kept;
}

static void flush(struct nfc *x)
{
    compose(x);
    for (size_t i = 0; i < x->n; i++)
        x->n_out += utf8_encode(x->out + x->n_out, x->run[i] & CODE);
    x->n = 0;
}

static int add(struct nfc *x, uint32_t code, struct err *e)
{
    unsigned k = class_of(code);
    if (k == 0 && x->n > 0) {
        compose(x);
        uint32_t both = x->n == 1 && x->run[0] >> CLASS_AT == 0 ? pair(x->run[0], code) : 0;
        if (both) {
            x->run[0] = both;
            return 0;
        }
        flush(x);
    }
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        uint32_t *run = realloc(x->run, cap * sizeof *run), *spare = run ? realloc(x->spare, cap * sizeof *spare) : NULL;
        x->run = run ? run : x->run;
        x->spare = spare ? spare : x->spare;
        if (!run || !spare)
            return err_set(e, ERR_NOMEM, "a run of %zu marks", cap);
        x->cap = cap;
    }
    x->run[x->n++] = code | k << CLASS_AT;
    return 0;
}

/* A character in its parts: a mapping's first may have one itself, its second has none. */
static int add_split(struct nfc *x, uint32_t code, struct err *e)
{
    const uint64_t *s = code < 0xc0 ? NULL : split_of(code);
    if (!s)
        return add(x, code, e);
    uint32_t b = (uint32_t)(*s & CODE);
    int r = add_split(x, (uint32_t)(*s >> 21 & CODE), e);
    return r == 0 && b ? add_split(x, b, e) : r;
}

int nfc_text(const char *text, size_t len, char **out, size_t *out_len, struct err *e)
{
    struct nfc x = { 0 };
    size_t i = 0, k;
    uint32_t code;
    int r = 0;
    *out = NULL;
    while (i < len && (uint8_t)text[i] < 0xcc) /* the first byte of U+0300 */
        i++;
    if (i == len)
        return 0;
    if (len > SIZE_MAX / 3 || !(x.out = malloc(3 * len)))
        return err_set(e, ERR_NOMEM, "a text of %zu bytes", len);
    for (i = 0; r == 0 && i < len; i += k) {
        k = utf8_decode(text + i, len - i, &code);
        if (k > 0) {
            r = add_split(&x, code, e);
        } else {
            flush(&x);
            x.out[x.n_out++] = text[i];
            k = 1;
        }
    }
    flush(&x);
    free(x.run);
    free(x.spare);
    if (r < 0) {
        free(x.out);
        return r;
    }
    *out = x.out;
    *out_len = x.n_out;
    return 0;
}
