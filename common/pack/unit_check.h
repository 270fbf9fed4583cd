#ifndef COMMON_PACK_UNIT_CHECK_H
#define COMMON_PACK_UNIT_CHECK_H

/* Checksums of read units (common/plan/layout.h): 32 bits each, so that whatever is read while a model runs can be verified
 * after it was read. The seed says which unit of which pack it is: a read that brought another place of the file, and a
 * pack that was replaced, do not match either. They guard against damage, not against an enemy. schemas/pack.md has the
 * definition, section 3, kind 8.
 *
 * The table has one number per unit, [layer][block][part][unit]. Pure functions; thread-safe. */
#include "common/base/hash.h"
#include "common/plan/layout.h"

/* Units of all blocks of the layers before this one (n_layers: of all); of a block, of all its parts together; of the parts
 * before `part`. */
uint64_t unit_check_before(const struct layout_shapes *s, int n_blocks, int layer);
uint64_t unit_check_per_block(const struct layout_shape *s);
uint64_t unit_check_first(const struct layout_shape *s, int part);

/* Seed of a unit of the pack that has this identity. ffn: layer * n_blocks + block. */
static inline uint64_t unit_check_seed(uint64_t identity, int n_parts, uint64_t ffn, int part, uint32_t unit)
{
    return identity ^ ((ffn * (uint64_t)n_parts + (uint64_t)part) << 32 | unit);
}

/* Of the unit's records, without padding. */
static inline uint32_t unit_check_sum(const void *records, size_t bytes, uint64_t seed)
{
    return (uint32_t)hash_64_seeded(records, bytes, seed);
}

#endif
