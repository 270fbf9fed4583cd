#ifndef PLANNER_REPLAY_REPLAY_PREFIXES_H
#define PLANNER_REPLAY_REPLAY_PREFIXES_H

/* LRU at all cache sizes under all hot prefixes of one pass, with the results of common/plan/cache to the miss. Under a prefix
 * of f units, units below f are not looked up; everything else is as in replay_sizes.h.
 *
 * Untruncated. A unit that was last used in step s and is used again in step t hits where C exceeds the number of
 * different units that the prefix lets through and that were used in between,
 *
 *   d_f = d_0 - #{units below f whose last use, when it is looked up, is in a step after s}
 *
 * for d_0 counts those below f along: of step s itself they come before the unit, so not between. So one count d_0 and a
 * sum over steps for each prefix, renewed when a step gets past it, serve all prefixes.
 *
 * Truncated. Where a step has C units or more, the first C of them are all that is held in its end (replay_lru.c). Let T be
 * the last such step before t. What was used later was used as above; what was not used since T is held where it was among
 * the first C of T, after fewer than C others: those that were used since, and those of the first C of T that come later in
 * it and were not used since, so all such of T but the ones beyond its first C. These, X of them, come after all of the first
 * C, so X does not change before step t is past those:
 *
 *   hit:  among the first C of step t, and  s > T and d_f < C,  or  s = T, among the first C of T and d_f - X < C
 *
 * A larger size hits wherever a smaller one does (replay_sizes.h), so how many sizes miss says which. */
#include "planner/replay/replay_sizes.h"

#define REPLAY_MAX_PREFIXES 8
#define REPLAY_PREFIX_SIZES 16     /* of one prefix, at most */
#define REPLAY_PREFIXES_STEPS 2048 /* windows beyond that are faster prefix by prefix: sums over steps grow with their square */

struct replay_prefix {
    const uint32_t *skip;           /* [n_steps]: units of each step that the prefix leaves out, its first ones */
    const uint32_t *slots;          /* as of replay_sizes */
    int n_sizes;                    /* 1 to REPLAY_PREFIX_SIZES */
    struct replay_sample *sample;   /* of what is left, marked where it misses; may be NULL */
    uint64_t *misses;               /* out, [n_sizes] */
};

/* a: units of one block, steps ascending; 1 <= n <= REPLAY_MAX_PREFIXES ascending prefixes, the first of no units: skip is
 * 0. Steps from `first` on count. ERR_NOMEM. Thread-safe. */
int replay_prefixes(const struct replay_accesses *a, int first, const struct replay_prefix *prefixes, int n, struct err *e);

#endif
