#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H

/* UTF-8 (RFC 3629): overlong forms, surrogates and code points past U+10FFFF are invalid. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the valid sequence at s[0..n) and its code point; 0 when there is none. */
static inline size_t utf8_decode(const void *text, size_t n, uint32_t *code)
{
    const uint8_t *s = text;
    if (n == 0)
        return 0;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < len)
        return 0;
    uint32_t c = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < (len == 4 ? 0x10000u : len == 3 ? 0x800u : 0x80u) || c > 0x10ffff ||
        (c >= 0xd800 && c < 0xe000))
        return 0;
    *code = c;
    return len;
}

/* The sequence of a code point, no surrogate, into out[4]; its length. */
static inline size_t utf8_encode(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0u : n == 3 ? 0xe0u : 0xf0u) | c);
    return n;
}

/* Valid UTF-8 without control characters: a name that may go into a message or a JSON text. */
static inline bool utf8_is_printable(const void *text, size_t n)
{
    const uint8_t *s = text;
    for (size_t i = 0, k; i < n; i += k) {
        uint32_t c;
        k = utf8_decode(s + i, n - i, &c);
        if (k == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0))
            return false;
    }
    return true;
}

#endif
