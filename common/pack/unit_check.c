/* Where a unit's number stands in the table. */
#include "common/pack/unit_check.h"

uint64_t unit_check_per_block(const struct layout_shape *s)
{
    return unit_check_first(s, s->n_parts);
}

uint64_t unit_check_first(const struct layout_shape *s, int part)
{
    uint64_t n = 0;
    for (int p = 0; p < part; p++)
        n += s->part[p].n_units;
    return n;
}
