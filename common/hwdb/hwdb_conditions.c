/* Marks of a measurement as texts: in the file and in a CSV, and for people. */
#include "common/hwdb/hwdb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mark_names[HW_MARKS] = { "others", "stolen", "waited", "memory", "spread" };

const char *hw_mark_name(enum hw_mark m)
{
    return mark_names[m];
}

void hw_marks_text(unsigned marks, char out[HW_NAME])
{
    int n = 0;
    snprintf(out, HW_NAME, "clean");
    for (int m = 0; m < HW_MARKS; m++)
        if (marks & 1u << m)
            n += snprintf(out + n, (size_t)(HW_NAME - n), "%s%s", n ? " " : "", mark_names[m]);
}

int hw_marks_of(const char *text, unsigned *marks)
{
    unsigned found = 0;
    *marks = 0;
    if (strcmp(text, "clean") == 0)
        return 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, " ");
        int m = 0;
        while (m < HW_MARKS && (strlen(mark_names[m]) != n || strncmp(p, mark_names[m], n) != 0))
            m++;
        if (m == HW_MARKS)
            return -1;
        found |= 1u << m;
        p += n;
        if (!*p)
            break;
    }
    *marks = found;
    return 0;
}

void hw_marks_words(const struct hw_conditions *c, char *out, size_t len)
{
    static const char *const words[HW_MARKS] = {
        "other programs took up to %.0f %% of the processors", "the hypervisor took up to %.0f %% of the processors",
        "something waited for a processor up to %.0f %% of the time",
        "something waited for memory up to %.0f %% of the time",
        "samples of a point differ by %.0f %%"
    };
    const double share[HW_MARKS] = { c->others, c->stolen, c->waited_for_cpu, c->short_of_memory, c->spread };
    size_t n = 0;
    *out = 0;
    for (int m = 0; m < HW_MARKS; m++)
        if (c->marks & 1u << m) {
            char one[128];
            snprintf(one, sizeof one, words[m], 100 * share[m]);
            if (n + strlen(one) + 3 <= len)
                n += (size_t)snprintf(out + n, len - n, "%s%s", n ? ", " : "", one);
        }
}

/* Days since 1970 of the Gregorian calendar: years begin in March, so that a leap day ends one. */
static int64_t days_of(int64_t year, int month, int day)
{
    year -= month < 3;
    int64_t in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    return 365 * year + year / 4 - year / 100 + year / 400 + in_year - 719468;
}

int64_t hw_time_of(const char *text)
{
    static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
    size_t n = strlen(text);
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (n != sizeof form - 1 || (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]))
            return -1;
    int year = atoi(text), month = atoi(text + 5), day = atoi(text + 8), hour = atoi(text + 11), minute = atoi(text + 14),
        second = atoi(text + 17);
    if (year < 1970 || month < 1 ||
        month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
        return -1;
    return ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
}

void hw_time_text(int64_t seconds, char out[HW_TIME])
{
    int64_t day = seconds / 86400, left = seconds % 86400;
    int year = 1970, month = 1;
    while (days_of(year + 1, 1, 1) <= day)
        year++;
    while (month < 12 && days_of(year, month + 1, 1) <= day)
        month++;
    snprintf(out, HW_TIME, "%04d-%02d-%02dT%02d:%02d:%02dZ", year, month, (int)(day - days_of(year, month, 1)) + 1, (int)(left / 3600),
             (int)(left / 60 % 60), (int)(left % 60));
}
