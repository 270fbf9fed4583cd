/* The table of inputs is the one that runtime/README.md shows; what an input may take never exceeds the limit. */
#include "common/base/file.h"
#include "common/plan/budget.h"
#include "runtime/inputs.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "--a, --b" as "`--a`, `--b`". */
static void coded(const char *options, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    while (*options && n < size) {
        size_t k = strcspn(options, ",");
        n += (size_t)snprintf(out + n, size - n, "%s`%.*s`", n ? ", " : "", (int)k, options);
        options += k;
        options += strspn(options, ", ");
    }
}

static void documented(void)
{
    char *text, line[1024], options[256];
    size_t len, rows = 0, shown = 0;
    struct err e;
    CHECK(file_slurp("runtime/README.md", 1 << 20, &text, &len, &e) == 0);
    char *table = strstr(text, "## Inputs");
    CHECK(table != NULL);
    char *end = table ? strstr(table + 1, "\n## ") : NULL;
    for (const struct inputs_row *r = inputs_table; table && r->input; r++, rows++) {
        coded(r->options, options, sizeof options);
        snprintf(line, sizeof line, "\n| %s | %s | %s | %s | %s |\n", r->input, options, r->bound, r->read, r->account);
        const char *at = strstr(table, line);
        CHECK_MSG(at && at < end, "runtime/README.md lacks, under Inputs:%s", line);
    }
    for (const char *p = table; p && p < end; p = strstr(p + 1, "\n| "))
        shown++;
    CHECK_MSG(shown == rows + 2, "%zu lines for %zu rows", shown, rows); /* the heading's own, and that of the table */
    free(text);
}

static void rooms(void)
{
    const uint64_t mib = 1 << 20;
    CHECK(inputs_room(16 * mib, 0) == 16 * mib - BUDGET_PROCESS_BYTES && inputs_room(16 * mib, 3 * mib) == 13 * mib - BUDGET_PROCESS_BYTES);
    CHECK(inputs_room(1, 0) == INPUTS_LEAST && inputs_room(16 * mib, UINT64_MAX) == INPUTS_LEAST);
    CHECK(inputs_room(UINT64_MAX, 0) == SIZE_MAX / 4);
    CHECK(inputs_text_bytes(64 * mib) == mib && inputs_text_bytes(SIZE_MAX) == INPUTS_TEXT_MAX);
    CHECK(inputs_limit(5) == 5 && inputs_limit(0) > 0);
}

int main(void)
{
    documented();
    rooms();
    return test_done();
}
