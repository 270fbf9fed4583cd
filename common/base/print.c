/* A printf of few lines: each conversion is handed to the C library alone, but for text, which is escaped into the stream. So nobody
 * who prints has to remember that a value is foreign. */
#include "common/base/print.h"

#include "common/base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
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

/* Text in a field of width; how many bytes that is. */
static int put_text(FILE *f, const char *text, size_t len, int width)
{
    char one[PRINT_PIECE];
    size_t n = 0, most = (size_t)(width < 0 ? -width : width);
    for (size_t i = 0; i < len;) {
        i += next(text + i, len - i, one);
        n += strlen(one);
    }
    int fill = n < most ? (int)(most - n) : 0;
    if (width > 0)
        fprintf(f, "%*s", fill, "");
    for (size_t i = 0; i < len;) {
        i += next(text + i, len - i, one);
        fputs(one, f);
    }
    if (width < 0)
        fprintf(f, "%*s", fill, "");
    return (int)n + fill;
}

/* One conversion of a format, without '%'. */
struct spec {
    char text[32]; /* to hand on, with '%' and '*' for width and precision */
    int left, width, precision, length; /* precision: -1 for none; length: 'l', 2 for ll, 'z', 'j' or 0 */
    char conversion;
};

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
    if (*p == 'l' || *p == 'z' || *p == 'j') {
        s->length = *p;
        s->text[n++] = *p++;
        if (s->length == 'l' && *p == 'l') {
            s->length = 2;
            s->text[n++] = *p++;
        }
    }
    s->conversion = s->text[n++] = *p++;
    return p;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static int put_integer(FILE *f, const struct spec *s, va_list *ap)
{
    int w = s->left ? -s->width : s->width, p = s->precision;
    switch (s->length) {
    case 'l': return fprintf(f, s->text, w, p, va_arg(*ap, long));
    case 2:   return fprintf(f, s->text, w, p, va_arg(*ap, long long));
    case 'z': return fprintf(f, s->text, w, p, va_arg(*ap, size_t));
    case 'j': return fprintf(f, s->text, w, p, va_arg(*ap, intmax_t));
    default:  return fprintf(f, s->text, w, p, va_arg(*ap, int));
    }
}

static int put_spec(FILE *f, const struct spec *s, int json, va_list *ap)
{
    int width = s->left ? -s->width : s->width;
    if (s->conversion == '%')
        return putc('%', f) < 0 ? 0 : 1;
    if (s->conversion == 'c') {
        char c = (char)va_arg(*ap, int);
        return put_text(f, &c, 1, width);
    }
    if (s->conversion == 's') {
        const char *text = va_arg(*ap, const char *);
        text = text ? text : "(null)";
        return put_text(f, text, s->precision < 0 ? strlen(text) : strnlen(text, (size_t)s->precision), width);
    }
    if (strchr("diuxXo", s->conversion))
        return put_integer(f, s, ap);
    assert(strchr("feEgGF", s->conversion) && !s->length);
    double v = va_arg(*ap, double);
    return json && !isfinite(v) ? fprintf(f, "null") : fprintf(f, s->text, width, s->precision, v);
}
#pragma GCC diagnostic pop

static int put_all(FILE *f, const char *fmt, int json, va_list *ap)
{
    int n = 0;
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");
        fwrite(fmt, 1, plain, f);
        n += (int)plain;
        fmt += plain;
        if (*fmt) {
            struct spec s;
            fmt = read_spec(fmt + 1, &s, ap);
            n += put_spec(f, &s, json, ap);
        }
    }
    return n;
}

int print_to(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(f, fmt, 0, &ap);
    va_end(ap);
    return n;
}

int print(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(stdout, fmt, 0, &ap);
    ends_with(fmt, strlen(fmt));
    va_end(ap);
    return n;
}

int print_json_to(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = put_all(f, fmt, 1, &ap);
    if (f == stdout)
        ends_with(fmt, strlen(fmt));
    va_end(ap);
    return n;
}

void print_json_number(char out[PRINT_NUMBER], int digits, double v)
{
    if (isfinite(v))
        snprintf(out, PRINT_NUMBER, "%.*g", digits, v);
    else
        snprintf(out, PRINT_NUMBER, "null");
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
