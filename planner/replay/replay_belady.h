#ifndef PLANNER_REPLAY_REPLAY_BELADY_H
#define PLANNER_REPLAY_REPLAY_BELADY_H

/* Belady's bound at all sizes of one access list. */
#include "common/base/err.h"
#include "planner/replay/replay_accesses.h"

/* Fewest misses, from step `first` on, that any cache of slots[k] units can have that reads on demand, whatever it did before
 * and whether or not it keeps what it reads. Sizes ascend; misses[n] is the caller's. */
int replay_belady_sizes(const struct replay_accesses *a, int first, const uint32_t *slots, int n, uint64_t *misses, struct err *e);

#endif
