/* Any bytes as CSV; the cells of what parses hold no more than the file does. */
#include "common/offline/table.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct table *t;
    struct err e;
    size_t total = 0, len;
    if (table_parse("fuzz", data, size, &t, &e) < 0)
        return 0;
    for (int row = 0; row < table_rows(t); row++)
        for (int col = 0; col < table_cols(t); col++) {
            const char *cell = table_cell(t, row, col, &len);
            if (strlen(cell) != len) /* NUL bytes are refused */
                abort();
            total += len;
        }
    if (total > size)
        abort();
    table_free(t);
    return 0;
}
