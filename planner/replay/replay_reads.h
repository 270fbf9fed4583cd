#ifndef PLANNER_REPLAY_REPLAY_READS_H
#define PLANNER_REPLAY_REPLAY_READS_H

/* How the missing units of a step lie in the file: by how many reads, of how many units, the runtime's rule
 * (common/plan/reads.h) brings them. Misses are counted over a whole window, how they lie in a few of its steps: a sample has the
 * units that these look up, each with the cache sizes at which it misses, as one pass over all sizes finds them. From it
 * any rule's reads follow without another replay. Thread-safe: state is the caller's. */
#include "common/base/err.h"
#include "common/plan/reads.h"
#include "planner/replay/replay_accesses.h"

#include <stdint.h>

#define REPLAY_LENGTHS 8        /* reads of 1, 2, 4 .. 128 units: READS_MAX_UNITS */
#define REPLAY_RULES   3         /* by which missing units may be read, at most */
#define REPLAY_SAMPLED 64       /* steps of a sample, at most */

/* Per missing unit: reads, and units that they hold, those in gaps with them. at[c] of the reads are of 2^c units: one of
 * a length between two of these counts in part as either, so that both their number and their units are kept. Where
 * nothing misses, units that do are taken to be read one by one. */
struct replay_reads {
    float reads, units, at[REPLAY_LENGTHS];
};

struct replay_sample {
    int n_steps;
    int step[REPLAY_SAMPLED];               /* of the window, ascending */
    uint32_t start[REPLAY_SAMPLED + 1];     /* unit[start[i] .. start[i + 1]) are those of step[i] */
    uint32_t *unit;
    uint8_t *missing;                       /* at so many of the sizes, the smallest ones */
};

/* Steps of the part of a window that is measured, at even distances: as many as look about 8192 units up, four to
 * REPLAY_SAMPLED. skip: [n_steps], so many first units of each step are not looked up; may be NULL. Nothing is missing yet.
 * ERR_NOMEM. */
int replay_sample_init(const struct replay_accesses *a, int first, const uint32_t *skip, struct replay_sample *out,
                       struct err *e);
void replay_sample_done(struct replay_sample *s); /* accepts a zeroed one */
int replay_sample_copy(const struct replay_sample *s, struct replay_sample *out, struct err *e);

/* The marks of step t, to be counted up where its accesses miss, in the order of use; NULL: the sample lacks it. *next: 0
 * before the first step, then the caller's. Steps are asked for in ascending order. s may be NULL. */
uint8_t *replay_sample_step(const struct replay_sample *s, int *next, int t);

/* How missing units lie at the size that is the `size`-th of the sample's: out[n], for each of the rules. Units of different
 * blocks, `per_block` each, are never one read. A rule that takes no neighbours together (near 1, no reads through gaps) gives one read
 * for each. n <= REPLAY_RULES. */
void replay_reads_of(const struct replay_sample *s, uint32_t per_block, const struct reads_rule *rules, int n, int size,
                     struct replay_reads *out);

/* The least c with 2^c >= units > 0. */
int replay_length_class(uint32_t units);

#endif
