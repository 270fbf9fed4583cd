#ifndef PLANNER_REPLAY_REPLAY_SIZES_H
#define PLANNER_REPLAY_REPLAY_SIZES_H

/* One pass over a layer's accesses for all cache sizes at once, with the results of common/plan/cache to the miss.
 *
 * Both policies are stack algorithms under the runtime's rules (Mattson et al. 1970, "Evaluation techniques for
 * storage hierarchies"): what a cache of C slots holds, one of C + 1 slots holds too. The order of eviction among
 * units (count, then order of release) depends on the accesses alone, never on C, so by induction over one access
 * with S(C+1) = S(C) + y:
 *   - both miss, both evict: the larger one drops y or the same unit as the smaller one;
 *   - the smaller refuses (all pinned, or its coldest is hotter): the larger refuses too, or drops y;
 *   - the larger hits on y: whatever the smaller does, it holds at most y more.
 * So a unit's state is one number, the smallest size that holds it, and misses fall as the cache grows. Pinning to
 * the end of a step keeps that; only the plain stack distance (which would need no sizes at all) does not
 * survive it: with fewer slots than a step has units, the first ones stay and the rest pass by.
 * tests/unit/test_replay compares with common/plan/cache over random accesses. */
#include "common/base/err.h"
#include "common/plan/cache.h"

#include "planner/replay/replay_accesses.h"
#include "planner/replay/replay_reads.h"

#include <stdint.h>

/* misses[i]: misses with slots[i] slots from step `first` on. slots ascend (equal ones are allowed), 1 <=
 * n_sizes <= REPLAY_MAX_SIZES. sample: of these accesses, marked where they miss; may be NULL. ERR_NOMEM. Thread-safe. */
int replay_sizes(const struct replay_accesses *a, enum cache_policy policy, int first, const uint32_t *slots,
                 int n_sizes, struct replay_sample *sample, uint64_t *misses, struct err *e);

#endif
