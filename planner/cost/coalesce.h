#ifndef PLANNER_COST_COALESCE_H
#define PLANNER_COST_COALESCE_H

/* The rules of common/plan/reads.h that may pay on a device: what a read of several units takes beside one of a single unit is a
 * property of its storage, so a rule's weights are read off the curve and nothing is left to choose but how long reads may
 * get, for every read in flight has a buffer of that size. Pure functions; thread-safe. */
#include "common/offline/hwdb/hwdb.h"
#include "common/plan/layout.h"
#include "common/plan/reads.h"

#include "planner/replay/replay.h"

struct coalesce {
    int n;                              /* 0: neighbours only */
    struct reads_coalesce at[READS_MAX_COALESCE];
};

/* Neighbours only; then reads of up to 8 units; then of up to 64: returns how many of these differ, at least 1. Weights are
 * those of random reads within range_bytes at the queue depth with the most bytes per second of single units. */
int coalesce_of(const struct hw *hw, const struct layout_shape *s, uint64_t range_bytes, struct coalesce out[REPLAY_RULES]);

/* Bytes of the longest read through gaps; 0: there is none. */
uint32_t coalesce_read_bytes(const struct coalesce *j);

/* The runtime's rule for units of the last part. */
void coalesce_rule(const struct coalesce *j, const struct layout_shape *s, struct reads_rule *out);

#endif
