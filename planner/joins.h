#ifndef PLANNER_JOINS_H
#define PLANNER_JOINS_H

/* The rules of common/reads.h that may pay on a device: what a read of several units takes beside one of a single unit is a
 * property of its storage, so a rule's weights are read off the curve and nothing is left to choose but how long reads may
 * get, for every read in flight has a buffer of that size. Pure functions; thread-safe. */
#include "common/layout.h"
#include "common/offline/hwdb.h"
#include "common/reads.h"

#include "planner/replay.h"

struct joins {
    int n;                              /* 0: neighbours only */
    struct reads_join at[READS_MAX_JOINS];
};

/* Neighbours only; then reads of up to 8 units; then of up to 64: returns how many of these differ, at least 1. Weights are
 * those of random reads within range_bytes at the queue depth with the most bytes per second of single units. */
int joins_of(const struct hw *hw, const struct layout_shape *s, uint64_t range_bytes, struct joins out[REPLAY_RULES]);

/* Bytes of the longest read through gaps; 0: there is none. */
uint32_t joins_read_bytes(const struct joins *j);

/* The runtime's rule for units of the last part. */
void joins_rule(const struct joins *j, const struct layout_shape *s, struct reads_rule *out);

#endif
