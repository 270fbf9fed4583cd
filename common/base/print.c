/* A printf of few lines: each conversion is handed to the C library alone, but for text, which is escaped on its way to a stream. So nobody
 * who prints has to remember that a value is foreign, or that a count may be large. */
#include "common/base/print.h"

#include "common/base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int line_open; /* the last of standard output was no line end */

static void ends_with(const char *text, size_t len)
{
    if (len)
        atomic_store(&line_open, text[len - 1] != '\n');
}

int print_yields(void)
{
    struct stat out, talk;
    if (fstat(STDOUT_FILENO, &out) < 0 || fstat(STDERR_FILENO, &talk) < 0 || out.st_dev != talk.st_dev || out.st_ino != talk.st_ino)
        return 0;
    fflush(stdout);
    return atomic_exchange(&line_open, 0);
}

/* The next character of text[0..len), as it is or escaped, into out, NUL-terminated; how many bytes of text it takes. */
static size_t next(const char *text, size_t len, char out[PRINT_PIECE])
{
    uint32_t c = 0;
    size_t n = utf8_decode(text, len, &c);
    if (n == 0 || (n == 1 && print_acts(c))) {
        snprintf(out, PRINT_PIECE, "\\x%02x", (unsigned char)text[0]);
        return 1;
    }
    if (print_acts(c)) {
        snprintf(out, PRINT_PIECE, "\\u{%" PRIx32 "}", c);
    } else {
        memcpy(out, text, n);
        out[n] = '\0';
    }
    return n;
}

size_t print_escape(char *out, size_t cap, const char *text, size_t len)
{
    size_t n = 0;
    char one[PRINT_PIECE];
    for (size_t i = 0; i < len;) {
        i += next(text + i, len - i, one);
        size_t k = strlen(one);
        if (k >= cap - n)
            break;
        memcpy(out + n, one, k);
        n += k;
    }
    out[n] = '\0';
    return n;
}

/* Where a format goes: a stream, with text escaped, in as few writes as can be (standard error has no buffer, and lines of several
 * processes shall not mix), or memory, as it is. */
struct sink {
    FILE *f;
    char *out;
    size_t cap, n; /* bytes that out has room for; that went out */
    int json;      /* reals that are no numbers are null */
    char held[512]; /* for f: */
    size_t n_held;
};

static void let_out(struct sink *s)
{
    fwrite(s->held, 1, s->n_held, s->f);
    s->n_held = 0;
}

static void hold(struct sink *s, const char *text, size_t len)
{
    if (len > sizeof s->held - s->n_held)
        let_out(s);
    if (len > sizeof s->held) {
        fwrite(text, 1, len, s->f);
        return;
    }
    memcpy(s->held + s->n_held, text, len);
    s->n_held += len;
}

static void put(struct sink *s, const char *text, size_t len)
{
    if (s->f)
        hold(s, text, len);
    else if (s->n + 1 < s->cap)
        memcpy(s->out + s->n, text, len < s->cap - 1 - s->n ? len : s->cap - 1 - s->n);
    s->n += len;
}

static void put_blanks(struct sink *s, size_t n)
{
    for (; n > 0; n--)
        put(s, " ", 1);
}

/* One conversion of a format, without '%'. */
struct spec {
    char text[32]; /* to hand on, with '%' and '*' for width and precision */
    int left, width, precision, length; /* precision: -1 for none; length: 'h', 'l', 'z', 'j', 't', H for hh, L for ll, or 0 */
    char conversion;
};

static void put_text(struct sink *s, const char *text, size_t len, const struct spec *p)
{
    char one[PRINT_PIECE];
    size_t n = s->f ? 0 : len;
    for (size_t i = 0; s->f && i < len; n += strlen(one))
        i += next(text + i, len - i, one);
    size_t fill = n < (size_t)p->width ? (size_t)p->width - n : 0;
    put_blanks(s, p->left ? 0 : fill);
    if (!s->f)
        put(s, text, len);
    for (size_t i = 0; s->f && i < len; put(s, one, strlen(one)))
        i += next(text + i, len - i, one);
    put_blanks(s, p->left ? fill : 0);
}

static int number(const char **p, va_list *ap)
{
    int n = 0;
    if (**p == '*') {
        ++*p;
        return va_arg(*ap, int);
    }
    for (; **p >= '0' && **p <= '9'; ++*p)
        n = 10 * n + (**p - '0');
    return n;
}

/* The one that p begins with; where it ends. */
static const char *read_spec(const char *p, struct spec *s, va_list *ap)
{
    size_t flags = strspn(p, "-+ #0");
    assert(flags < 6);
    *s = (struct spec){ .precision = -1, .left = memchr(p, '-', flags) != NULL };
    snprintf(s->text, sizeof s->text, "%%%.*s*.*", (int)flags, p);
    p += flags;
    s->width = number(&p, ap);
    if (s->width < 0) {
        s->left = 1;
        s->width = -s->width;
    }
    if (*p == '.') {
        p++;
        s->precision = number(&p, ap);
    }
    size_t n = strlen(s->text);
    if (*p && strchr("hlzjt", *p)) {
        s->length = *p;
        s->text[n++] = *p++;
        if (s->length == *p) {
            s->length = *p == 'h' ? 'H' : 'L';
            s->text[n++] = *p++;
        }
    }
    s->conversion = s->text[n++] = *p++;
    return p;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static int integer(const struct spec *s, char *out, size_t len, va_list *ap)
{
    int w = s->left ? -s->width : s->width, p = s->precision;
    switch (s->length) {
    case 'l': return snprintf(out, len, s->text, w, p, va_arg(*ap, long));
    case 'L': return snprintf(out, len, s->text, w, p, va_arg(*ap, long long));
    case 'z': return snprintf(out, len, s->text, w, p, va_arg(*ap, size_t));
    case 'j': return snprintf(out, len, s->text, w, p, va_arg(*ap, intmax_t));
    case 't': return snprintf(out, len, s->text, w, p, va_arg(*ap, ptrdiff_t));
    default:  return snprintf(out, len, s->text, w, p, va_arg(*ap, int)); /* h and hh, too */
    }
}

/* A %g of what needs more digits than were asked for has them all: sizes and counts are read, not their powers of ten. */
static int real(const struct spec *s, char *out, size_t len, double v)
{
    int w = s->left ? -s->width : s->width, digits = s->precision < 0 ? 6 : s->precision;
    if ((s->conversion == 'g' || s->conversion == 'G') && fabs(v) >= pow(10, digits) - 0.5 && fabs(v) < 1e18) {
        char whole[sizeof s->text];
        snprintf(whole, sizeof whole, "%s", s->text);
        whole[strlen(whole) - 1] = 'f';
        return snprintf(out, len, whole, w, 0, v);
    }
    return snprintf(out, len, s->text, w, s->precision, v);
}
#pragma GCC diagnostic pop

static void put_spec(struct sink *to, const struct spec *s, va_list *ap)
{
    char digits[512]; /* the largest number has 309 */
    int n;
    if (s->conversion == '%') {
        put(to, "%", 1);
        return;
    }
    if (s->conversion == 'c') {
        char c = (char)va_arg(*ap, int);
        put_text(to, &c, 1, s);
        return;
    }
    if (s->conversion == 's') {
        const char *text = va_arg(*ap, const char *);
        text = text ? text : "(null)";
        put_text(to, text, s->precision < 0 ? strlen(text) : strnlen(text, (size_t)s->precision), s);
        return;
    }
    if (strchr("diuxXo", s->conversion)) {
        n = integer(s, digits, sizeof digits, ap);
    } else {
        assert(strchr("feEgGF", s->conversion) && !s->length);
        double v = va_arg(*ap, double);
        n = to->json && !isfinite(v) ? snprintf(digits, sizeof digits, "null") : real(s, digits, sizeof digits, v);
    }
    put(to, digits, (size_t)n < sizeof digits ? (size_t)n : sizeof digits - 1);
}

static int put_all(struct sink *to, const char *fmt, va_list *ap)
{
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");
        put(to, fmt, plain);
        fmt += plain;
        if (*fmt) {
            struct spec s;
            fmt = read_spec(fmt + 1, &s, ap);
            put_spec(to, &s, ap);
        }
    }
    if (to->f)
        let_out(to);
    if (to->cap)
        to->out[to->n < to->cap ? to->n : to->cap - 1] = '\0';
    return (int)to->n;
}

int print_to(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(&(struct sink){ .f = f }, fmt, &ap);
    va_end(ap);
    return n;
}

int print(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(&(struct sink){ .f = stdout }, fmt, &ap);
    va_end(ap);
    ends_with(fmt, strlen(fmt));
    return n;
}

int print_json_to(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(&(struct sink){ .f = f, .json = 1 }, fmt, &ap);
    if (f == stdout)
        ends_with(fmt, strlen(fmt));
    va_end(ap);
    return n;
}

void print_json_reals(FILE *f, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        print_json_to(f, "%c%.9g", i ? ',' : '[', (double)x[i]);
    fputs(n ? "]" : "[]", f);
}

void print_json_number(char out[PRINT_NUMBER], int digits, double v)
{
    if (isfinite(v))
        snprintf(out, PRINT_NUMBER, "%.*g", digits, v);
    else
        snprintf(out, PRINT_NUMBER, "null");
}

int print_into_va(char *out, size_t cap, const char *fmt, va_list ap)
{
    va_list args;
    va_copy(args, ap);
    int n = put_all(&(struct sink){ .out = out, .cap = cap }, fmt, &args);
    va_end(args);
    return n;
}

int print_into(char *out, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(&(struct sink){ .out = out, .cap = cap }, fmt, &ap);
    va_end(ap);
    return n;
}

/* Signs of direction pass: a language needs them, and no line of ours stands among a model's text. */
size_t print_terminal_piece(const char *text, size_t len, char out[PRINT_PIECE])
{
    uint32_t c = 0;
    size_t n = utf8_decode(text, len, &c);
    if (n == 0 || (c < 0xa0 && print_acts(c) && c != '\n' && c != '\t' && c != '\r'))
        return next(text, len, out);
    snprintf(out, PRINT_PIECE, "%.*s", c == '\r' ? 0 : (int)n, text);
    return n;
}

size_t print_json_piece(const char *text, size_t len, char out[PRINT_PIECE])
{
    uint32_t c = 0xfffd;
    size_t n = utf8_decode(text, len, &c);
    if (n == 0 || print_acts(c))
        snprintf(out, PRINT_PIECE, "\\u%04x", (unsigned)c);
    else
        snprintf(out, PRINT_PIECE, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", (int)n, text);
    return n ? n : 1;
}

void print_data(const char *text, size_t len)
{
    ends_with(text, len);
    if (!isatty(STDOUT_FILENO)) {
        fwrite(text, 1, len, stdout);
        return;
    }
    for (size_t i = 0; i < len;) {
        char one[PRINT_PIECE];
        i += print_terminal_piece(text + i, len - i, one);
        fputs(one, stdout);
    }
}
