#ifndef COMMON_PLAN_READS_H
#define COMMON_PLAN_READS_H

/* Which missing units one read brings: the rule that the runtime reads by and that the planner replays.
 *
 * Missing units of a block are known in pack order, hottest first, so they lie dense at its beginning. Where they do, one
 * large read through the gaps between them is faster than a small one for each. A plan says from where on: a join
 * {bytes, weight} means that a read of up to `bytes` takes as long as `weight` reads of one unit each. Of the joins in
 * whose window, beginning at the first missing unit, at least `weight` units are missing, the one that is cheapest per
 * missing unit is read, from the first to the last missing unit in it; where none pays, the first unit alone. Missing
 * units that follow without a gap come with it as long as they fit the buffer. What arrives unasked in gaps is dropped.
 *
 * Pure functions over plain data; thread-safe. */
#include "common/plan/layout.h"

#include <stddef.h>
#include <stdint.h>

#define READS_MAX_COALESCE 8
#define READS_MAX_UNITS 128             /* of one read */
#define READS_MAX_BYTES (4u << 20)      /* of one read, stated by a plan */
#define READS_QUARTERS  4               /* weights are multiples of 1 / READS_QUARTERS */

struct reads_coalesce {
    uint32_t bytes;             /* whole blocks; more than one unit */
    double weight;              /* > 1 */
};

struct reads_rule {             /* the same in units of one part */
    int n_coalesce;
    struct {
        uint32_t window, least, quarters; /* units; missing ones from which it may pay; its weight */
    } join[READS_MAX_COALESCE];    /* ascending windows */
    uint32_t near;              /* neighbours that are one read */
    uint32_t most;              /* units of the longest read, gaps included */
};

/* Units of a part that a read of so many bytes holds wherever it begins, at least 1, at most READS_MAX_UNITS. */
uint32_t reads_units(const struct layout_shape *s, int part, uint64_t bytes);

/* The rule for a part: joins[n_coalesce] ascending in bytes and weight (n_coalesce 0: neighbours only); buffer_bytes: of one
 * read buffer (budget_read_bytes), no smaller than the last join. */
void reads_rule_init(const struct layout_shape *s, int part, const struct reads_coalesce *coalesce, int n_coalesce,
                     uint64_t buffer_bytes, struct reads_rule *out);

/* missing[n]: ascending units of one block, n > 0, all there are below missing[0] + r->most. How many of them, from the
 * first on, the next read brings. */
size_t reads_next(const struct reads_rule *r, const uint32_t *missing, size_t n);

#endif
