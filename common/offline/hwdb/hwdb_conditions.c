/* Marks of a measurement as texts: in the file and in a CSV, and for people. */
#include "common/offline/hwdb/hwdb_impl.h"

#include <stdio.h>
#include <string.h>

static const char *const mark_names[HW_MARKS] = { "others", "stolen", "waited", "memory", "spread" };

const char *hw_table_name(enum hw_table t)
{
    return hwdb_table_names[t];
}

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
        if (c->marks & 1u << m && n < len) {
            char one[128];
            snprintf(one, sizeof one, words[m], 100 * share[m]);
            n += (size_t)snprintf(out + n, len - n, "%s%s", n ? ", " : "", one);
        }
}
