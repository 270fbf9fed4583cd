/* Recursive descent over the grammar of RFC 8259; each function gives the place behind what it read, or NULL. */
#include "common/base/json_text.h"

#include "common/base/utf8.h"

#include <string.h>

static const char *blank(const char *s, const char *end)
{
    while (s < end && (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\r'))
        s++;
    return s;
}

static int digit(const char *s, const char *end)
{
    return s < end && *s >= '0' && *s <= '9';
}

static int hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const char *digits(const char *s, const char *end)
{
    if (!digit(s, end))
        return NULL;
    while (digit(s, end))
        s++;
    return s;
}

static const char *number(const char *s, const char *end)
{
    s += s < end && *s == '-';
    s = s < end && *s == '0' ? s + 1 : digits(s, end);
    if (s && s < end && *s == '.')
        s = digits(s + 1, end);
    if (s && s < end && (*s == 'e' || *s == 'E')) {
        s++;
        s = digits(s + (s < end && (*s == '+' || *s == '-')), end);
    }
    return s;
}

/* s: behind a backslash. */
static const char *escape(const char *s, const char *end)
{
    if (s == end)
        return NULL;
    if (*s != 'u')
        return memchr("\"\\/bfnrt", *s, 8) ? s + 1 : NULL;
    for (int i = 1; i <= 4; i++)
        if (s + i >= end || !hex(s[i]))
            return NULL;
    return s + 5;
}

static const char *string(const char *s, const char *end)
{
    if (s == end || *s != '"')
        return NULL;
    for (s++; s && s < end && *s != '"';) {
        uint32_t code;
        size_t k = utf8_decode(s, (size_t)(end - s), &code);
        if (k == 0 || code < 0x20)
            return NULL;
        s = *s == '\\' ? escape(s + 1, end) : s + k;
    }
    return s && s < end ? s + 1 : NULL;
}

static const char *word(const char *s, const char *end, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(end - s) >= n && !memcmp(s, text, n) ? s + n : NULL;
}

static const char *value(const char *s, const char *end, int depth);

static const char *list(const char *s, const char *end, char close, int depth)
{
    if (depth == 0)
        return NULL;
    s = blank(s + 1, end);
    if (s < end && *s == close)
        return s + 1;
    for (;;) {
        if (close == '}') {
            s = string(blank(s, end), end);
            s = s ? blank(s, end) : s;
            if (!s || s == end || *s++ != ':')
                return NULL;
        }
        s = value(s, end, depth - 1);
        s = s ? blank(s, end) : s;
        if (!s || s == end || (*s != ',' && *s != close))
            return NULL;
        if (*s++ == close)
            return s;
    }
}

static const char *value(const char *s, const char *end, int depth)
{
    s = blank(s, end);
    if (s == end)
        return NULL;
    switch (*s) {
    case '{': return list(s, end, '}', depth);
    case '[': return list(s, end, ']', depth);
    case '"': return string(s, end);
    case 't': return word(s, end, "true");
    case 'f': return word(s, end, "false");
    case 'n': return word(s, end, "null");
    default: return number(s, end);
    }
}

size_t json_text_value(const char *s, size_t n)
{
    const char *end = value(s, s + n, JSON_TEXT_DEPTH);
    return end ? (size_t)(end - s) : 0;
}

int json_text_is(const char *s, size_t n)
{
    size_t k = json_text_value(s, n);
    return k && blank(s + k, s + n) == s + n;
}

int json_text_next(const char *s, size_t n, size_t *at, struct json_text_member *out)
{
    const char *end = s + n, *p = *at ? s + *at : blank(s, end);
    int first = *at == 0, object = *blank(s, end) == '{';
    *out = (struct json_text_member){ 0 };
    if (first)
        p++;
    p = blank(p, end);
    if (*p == '}' || *p == ']')
        return 0;
    p = blank(p + !first, end); /* a comma */
    if (object) {
        const char *close = string(p, end);
        out->key = p + 1;
        out->n_key = (size_t)(close - p) - 2;
        p = blank(blank(close, end) + 1, end);
    }
    const char *after = value(p, end, JSON_TEXT_DEPTH);
    out->value = p;
    out->n_value = (size_t)(after - p);
    *at = (size_t)(after - s);
    return 1;
}

static size_t put(char *out, size_t at, const char *s, size_t n)
{
    if (out)
        memcpy(out + at, s, n);
    return at + n;
}

size_t json_text_string(const char *s, size_t n, char *out)
{
    static const char low[] = "0123456789abcdef";
    size_t at = put(out, 0, "\"", 1);
    for (size_t i = 0, k; i < n; i += k) {
        uint32_t code;
        if ((k = utf8_decode(s + i, n - i, &code)) == 0)
            return 0;
        const char *named = code == '\n' ? "n" : code == '\t' ? "t" : code == '\r' ? "r" : code == '"' ? "\"" : code == '\\' ? "\\" : NULL;
        if (named)
            at = put(out, put(out, at, "\\", 1), named, 1);
        else if (code < 0x20)
            at = put(out, at, (char[]){ '\\', 'u', '0', '0', low[code >> 4], low[code & 15] }, 6);
        else
            at = put(out, at, s + i, k);
    }
    return put(out, at, "\"", 1);
}
