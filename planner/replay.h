#ifndef PLANNER_REPLAY_H
#define PLANNER_REPLAY_H

/* Miss rates of the cold cache, taken by replaying a layer's activation window through the runtime's
 * own cache code (common/cache), over a grid of hot prefixes and cache sizes, and Belady's bound
 * beside them. Neurons of the hot prefix are not looked up; a step's other neurons are looked up unit
 * by unit in ascending pack position; what a step touches stays pinned to its end (the barrier at the end of a
 * layer), then comes one tick. Thread-safe: state is the caller's. */
#include "common/cache.h"
#include "common/err.h"
#include "common/layout.h"

#include "planner/inputs.h"

#include <stdint.h>

#define REPLAY_HOTS  8   /* shares of n_ff in the hot prefix, 0 first; the last is the whole and looks nothing up */
#define REPLAY_SIZES 14  /* shares of the remaining units that have a slot; 0 first, 1 last */
extern const double replay_hot_shares[REPLAY_HOTS];
extern const double replay_size_shares[REPLAY_SIZES];

/* Means per step, of the measured part of the window (its first quarter warms the cache up). */
struct replay_table {
    int n_blocks, n_ff;
    uint32_t neurons_per_unit;
    uint32_t hot[REPLAY_HOTS];                  /* neurons of each block, whole clusters */
    uint32_t units[REPLAY_HOTS];                /* units of the layer beyond the prefix */
    double lookups[REPLAY_HOTS];                /* units */
    double misses[REPLAY_HOTS][REPLAY_SIZES];   /* units; 0 in the last column: all of them stay */
    double belady[REPLAY_HOTS][REPLAY_SIZES];   /* the fewest that any policy could have */
    double max_lookups[REPLAY_HOTS];            /* of one step: below this many slots there is a cliff */
};

/* The table of one (layer, batch size). Steps of batch b > 1 join b tokens from far apart in the window, one from
 * each of b equal pieces of it. with_belady 0 leaves that at 0. A window too short for a step (with a warm-up)
 * is ERR_UNSUPPORTED. */
int replay_layer(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, int with_belady, struct replay_table *out, struct err *e);

/* One point of it: misses per step with `slots` slots. For tests and for choosing a policy. */
int replay_point(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, uint32_t hot, uint32_t slots, double *lookups, double *misses,
                 struct err *e);

/* Belady's bound (fewest misses, with bypass: a unit may be used without being kept) at the same point. */
int replay_belady(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                  uint32_t hot, uint32_t slots, double *misses, struct err *e);

/* Between grid points: linear in the prefix and in the share of remaining units that have a slot. */
double replay_lookups(const struct replay_table *t, uint32_t hot);
double replay_misses(const struct replay_table *t, uint32_t hot, uint32_t slots);
double replay_best(const struct replay_table *t, uint32_t hot, uint32_t slots); /* Belady */

/* Units beyond the prefix, over all blocks: the most slots that are of use. */
uint32_t replay_units(const struct replay_table *t, uint32_t hot);

#endif
