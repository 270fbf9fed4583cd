/* Where a unit's number stands in the table. */
#include "common/pack/unit_check.h"

uint64_t unit_check_before(const struct layout_shapes *s, int n_blocks, int layer)
{
    uint64_t n = 0;
    for (int l = 0; l < layer; l++)
        n += (uint64_t)n_blocks * unit_check_per_block(layout_of(s, l));
    return n;
}

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
