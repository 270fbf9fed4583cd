/* Sizes with units; without floating point where it would round. */
#include "common/base/size.h"

#include "common/base/ckmath.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Exponent of the unit and its base; 0 when text is no unit. */
static int parse_unit(const char *text, unsigned *base, int *exponent)
{
    static const char letters[] = "kmgt";
    *base = 1024;
    *exponent = 0;
    if (!*text || strcasecmp(text, "b") == 0)
        return 1;
    const char *at = strchr(letters, tolower((unsigned char)*text));
    if (!at)
        return 0;
    *exponent = (int)(at - letters) + 1;
    if (strcasecmp(text + 1, "b") == 0)
        *base = 1000;
    return text[1] == '\0' || strcasecmp(text + 1, "ib") == 0 || *base == 1000;
}

/* The fraction is kept as digits over a power of ten, so that 1.5GiB is exact; what is left below one byte is
 * dropped. */
int size_parse(const char *text, uint64_t *out, struct err *e)
{
    uint64_t whole = 0, fraction = 0, scale = 1, unit = 1, bytes;
    unsigned base;
    int exponent, digits = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++, digits++)
        if (!ck_mul_u64(whole, 10, &whole) || !ck_add_u64(whole, (uint64_t)(*p - '0'), &whole))
            return err_set(e, ERR_USAGE, "size '%s' is too large", text);
    if (*p == '.') {
        for (p++; isdigit((unsigned char)*p); p++, digits++)
            if (scale < 1000000000000ull) {
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
    }
    if (digits == 0 || !parse_unit(p, &base, &exponent) || (exponent == 0 && fraction))
        return err_set(e, ERR_USAGE, "'%s' is not a size; write bytes, or a number with KiB, MiB, GiB, kB, MB or GB",
                       text);
    for (int i = 0; i < exponent; i++)
        unit *= base;
    __extension__ typedef unsigned __int128 wide;
    uint64_t part = (uint64_t)((wide)fraction * unit / scale);
    if (!ck_mul_u64(whole, unit, &bytes) || !ck_add_u64(bytes, part, &bytes))
        return err_set(e, ERR_USAGE, "size '%s' is too large", text);
    if (p[0] == '\0' && bytes > 0 && bytes < SIZE_LEAST_PLAIN)
        return err_set(e, ERR_USAGE, "'%s' without a unit is %s bytes, less than any size here: did you mean %sMiB? "
                       "(%sB if bytes are meant)", text, text, text, text);
    *out = bytes;
    return 0;
}

char *size_format(uint64_t bytes, char *out, size_t out_len)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(out, out_len, "%u B", (unsigned)bytes);
        return out;
    }
    double v = (double)bytes / 1024;
    size_t u = 0;
    for (; v >= 1023.95 && u + 1 < sizeof units / sizeof *units; u++)
        v /= 1024;
    snprintf(out, out_len, "%.1f %s", v, units[u]);
    return out;
}

char *size_exact(uint64_t bytes, char *out, size_t out_len)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;
    for (; bytes && bytes % 1024 == 0 && u + 1 < sizeof units / sizeof *units; u++)
        bytes /= 1024;
    snprintf(out, out_len, "%llu%s", (unsigned long long)bytes, units[u]);
    return out;
}
