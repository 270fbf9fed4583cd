/* Numbers as Python reads them from strings, and its arithmetic of floats. */
#include "common/text/template_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* Could Python find a number in a text with digits of another script? We do not know them. */
static bool other_digits(struct text s)
{
    bool other = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.s[i];
        if (!(c & 0x80) && !(c && strchr("0123456789+-_.eE", c)))
            return false;
        other |= (c & 0x80) != 0;
    }
    return other;
}

enum number template_read_int(struct text s, int64_t base, int64_t *out)
{
    size_t i = 0;
    bool minus = false, under = false;
    if (other_digits(s))
        return NUMBER_OTHER_DIGITS;
    if (i < s.n && (s.s[i] == '+' || s.s[i] == '-'))
        minus = s.s[i++] == '-';
    if (s.n - i > 1 && s.s[i] == '0' && s.s[i + 1]) {
        char c = (char)(s.s[i + 1] | 0x20);
        int64_t of = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (of && (base == 0 || base == of)) {
            base = of;
            i += 2;
            i += i < s.n && s.s[i] == '_';
        }
    }
    bool any = false, zero = true, decimal = base == 0, past = false;
    base = decimal ? 10 : base;
    *out = 0;
    bool leads = decimal && i < s.n && s.s[i] == '0';
    for (; i < s.n; i++) {
        if (s.s[i] == '_' && any && !under) {
            under = true;
            continue;
        }
        int d = digit(s.s[i]);
        if (d >= base)
            return NUMBER_NONE;
        under = false;
        any = true;
        zero &= d == 0;
        past |= __builtin_mul_overflow(*out, base, out) ||
                (minus ? __builtin_sub_overflow(*out, d, out) : __builtin_add_overflow(*out, d, out));
    }
    return !any || under || (leads && !zero) ? NUMBER_NONE : past ? NUMBER_TOO_LARGE : NUMBER_FOUND;
}

/* Digits with underscores between them, from s[*i] on, copied to out; how many. */
static size_t digits(struct text s, size_t *i, char *out, size_t *n, bool *fine)
{
    size_t k = 0;
    for (; *i < s.n && ((s.s[*i] >= '0' && s.s[*i] <= '9') || s.s[*i] == '_'); ++*i) {
        if (s.s[*i] != '_')
            out[(*n)++] = s.s[*i], k++;
        else if (k == 0 || *i + 1 >= s.n || digit(s.s[*i + 1]) > 9)
            *fine = false;
    }
    return k;
}

enum number template_read_float(struct text s, double *out)
{
    static const char *const names[] = { "inf", "infinity", "nan" };
    char text[256];
    size_t i = 0, n = 0, k;
    bool fine = true;
    if (other_digits(s))
        return NUMBER_OTHER_DIGITS;
    if (s.n > sizeof text - 2)
        return NUMBER_TOO_LARGE;
    if (i < s.n && (s.s[i] == '+' || s.s[i] == '-'))
        text[n++] = s.s[i++];
    for (size_t j = 0; j < sizeof names / sizeof names[0]; j++)
        if (s.n - i == strlen(names[j]) && !strncasecmp(s.s + i, names[j], s.n - i)) {
            double d = j == 2 ? NAN : INFINITY;
            *out = n && text[0] == '-' ? -d : d;
            return NUMBER_FOUND;
        }
    k = digits(s, &i, text, &n, &fine);
    if (i < s.n && s.s[i] == '.') {
        text[n++] = s.s[i++];
        k += digits(s, &i, text, &n, &fine);
    }
    if (k && i < s.n && (s.s[i] | 0x20) == 'e') {
        text[n++] = s.s[i++];
        if (i < s.n && (s.s[i] == '+' || s.s[i] == '-'))
            text[n++] = s.s[i++];
        fine &= digits(s, &i, text, &n, &fine) > 0;
    }
    if (!k || !fine || i < s.n)
        return NUMBER_NONE;
    text[n] = '\0';
    *out = strtod(text, NULL);
    return NUMBER_FOUND;
}

/* As CPython's float_divmod. */
static void divide(double a, double b, double *floored, double *rest)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0.0, b);
    }
    *rest = mod;
    *floored = floor(div);
    if (div == 0)
        *floored = copysign(0.0, a / b);
    else if (div - *floored > 0.5)
        *floored += 1;
}

const struct value *template_real(struct run *r, enum op op, double a, double b)
{
    double floored, rest, c;
    if (b == 0 && (op == OP_DIV || op == OP_FLOOR || op == OP_MOD))
        return template_fail(r, ERR_FORMAT, "division by zero");
    switch (op) {
    case OP_ADD: c = a + b; break;
    case OP_SUB: c = a - b; break;
    case OP_MUL: c = a * b; break;
    case OP_DIV: c = a / b; break;
    case OP_POW:
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return template_fail(r, ERR_UNSUPPORTED, "a power that is a complex number");
        c = pow(a, b);
        if (isfinite(a) && isfinite(b) && !isfinite(c))
            return template_fail(r, ERR_FORMAT, "a power past the largest number");
        break;
    default:
        divide(a, b, &floored, &rest);
        c = op == OP_FLOOR ? floored : rest;
    }
    return template_float(r, c);
}
