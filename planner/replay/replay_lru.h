#ifndef PLANNER_REPLAY_REPLAY_LRU_H
#define PLANNER_REPLAY_REPLAY_LRU_H

/* replay_sizes for CACHE_LRU, where recency alone decides and a pass gets by without lists. */
#include "planner/replay/replay_reads.h"

/* As replay_sizes. */
int replay_lru(const struct replay_accesses *a, int first, const uint32_t *slots, int n_sizes,
               struct replay_sample *sample, uint64_t *misses, struct err *e);

#endif
