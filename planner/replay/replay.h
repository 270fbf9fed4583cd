#ifndef PLANNER_REPLAY_REPLAY_H
#define PLANNER_REPLAY_REPLAY_H

/* Miss rates of the cold cache over a grid of hot prefixes and cache sizes, from replaying a layer's activation
 * window: what the runtime's own cache code (common/plan/cache) would do, all sizes in one pass (replay_sizes.h), single
 * points, and steps that are looked up together, through that code itself; and Belady's bound beside them. Neurons of the
 * hot prefix are not looked up; a step's other neurons are looked up unit by unit in ascending pack position, each before
 * the next or all together (struct inputs_steps); what a step touches stays pinned to its end (the barrier at the end of a
 * layer), then comes one tick. Thread-safe: state is the caller's. */
#include "common/base/err.h"
#include "common/plan/cache.h"
#include "common/plan/layout.h"

#include "planner/inputs/inputs.h"
#include "planner/replay/replay_reads.h"
#include "planner/replay/replay_steps.h"

#include <stdint.h>

#define REPLAY_HOTS  8   /* shares of n_ff in the hot prefix, 0 first; the last is the whole and looks nothing up */
#define REPLAY_SIZES 14  /* shares of the remaining units that have a slot; 0 first, 1 last */
extern const double replay_hot_shares[REPLAY_HOTS];
extern const double replay_size_shares[REPLAY_SIZES];

/* What replay with experts that are read ahead of their router's choice counts, by the runtime's rule (common/plan/expert_ahead.h): units
 * that were not in the cache before; of these, that were read ahead; units that were read ahead in vain; steps for which anything was
 * guessed at all, for a layer that is foreseen too badly rests. */
enum replay_ahead { REPLAY_AHEAD_MISSES, REPLAY_AHEAD_FORESEEN, REPLAY_AHEAD_WASTED, REPLAY_AHEAD_STEPS, REPLAY_AHEAD };

/* What the steps of a point miss: without experts that are read ahead, and with them, where what is foreseen is known. */
struct replay_point_steps {
    struct replay_steps plain, ahead;
};

/* Means per step, of the measured part of the window (its first quarter warms the cache up). */
struct replay_table {
    int n_blocks, n_ff;
    uint32_t neurons_per_unit;
    uint32_t hot[REPLAY_HOTS];                  /* neurons of each block, whole clusters */
    uint32_t units[REPLAY_HOTS];                /* units of the layer beyond the prefix */
    uint32_t slots[REPLAY_HOTS][REPLAY_SIZES];  /* cache sizes: shares of those */
    double lookups[REPLAY_HOTS];                /* units */
    double misses[REPLAY_HOTS][REPLAY_SIZES];   /* units; 0 in the last column: all of them stay */
    int foresees;                               /* 1: it is known what is foreseen for these steps, and the runtime reads ahead for such */
    double ahead[REPLAY_AHEAD][REPLAY_HOTS][REPLAY_SIZES]; /* then; else 0 */
    double max_lookups[REPLAY_HOTS];            /* of one step: below this many slots there is a cliff */
    struct replay_reads how[REPLAY_HOTS][REPLAY_SIZES][REPLAY_RULES]; /* replay_rules fills it in */
    const struct replay_point_steps *steps; /* [REPLAY_HOTS][REPLAY_SIZES], of the samples that were made with the table, where steps are
                                             * looked up together; else NULL */
    struct replay_point_steps only;         /* of a table of one point */
};

/* What replay_rules needs of a table's replay, and the memory that its `steps` are in. */
struct replay_samples {
    struct replay_point_steps *steps;           /* or NULL */
    struct replay_sample at[REPLAY_HOTS];       /* of prefixes that are another's, or the whole: nothing */
};
void replay_samples_done(struct replay_samples *s); /* accepts a zeroed one */
int replay_samples_copy(const struct replay_samples *s, struct replay_samples *out, struct err *e);

/* The table of one (layer, batch size). Steps of batch b > 1 unite b tokens from far apart in the window, one from
 * each of b equal pieces of it. samples may be NULL, and then so are the table's steps; else they are the caller's in the end. A window
 * too short for a step (with a warm-up) is ERR_UNSUPPORTED. */
int replay_layer(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, struct replay_table *out, struct replay_samples *samples, struct err *e);

/* How missing units are read at a table's points, by each of n <= REPLAY_RULES rules. per_block: units of a block. asked:
 * points to fill in, others stay as they are; NULL: all. */
struct replay_asked {
    unsigned char at[REPLAY_HOTS][REPLAY_SIZES];
};
void replay_rules(const struct replay_samples *s, uint32_t per_block, const struct reads_rule *rules, int n,
                  const struct replay_asked *asked, struct replay_table *t);

/* The point that replay_how answered from. */
void replay_ask(const struct replay_table *t, const struct replay_reads *how, struct replay_asked *asked);

/* One point of it: misses per step with `slots` slots, by running common/plan/cache. */
int replay_point(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, uint32_t hot, uint32_t slots, double *lookups, double *misses,
                 struct err *e);

/* The same with how the missing units are read by a rule, as replay_rules says it of a table. */
struct replay_figures {
    double all_lookups, lookups, misses;        /* all_lookups: without a prefix; not filled in */
    int foresees;
    double ahead[REPLAY_AHEAD];
    struct replay_reads how;
    struct replay_point_steps steps;
};
int replay_point_reads(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                       enum cache_policy policy, uint32_t hot, uint32_t slots, const struct reads_rule *rule,
                       struct replay_figures *out, struct err *e);

/* The same at n <= REPLAY_SIZES sizes, ascending, from one pass: for choosing a policy. */
int replay_curve(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                 enum cache_policy policy, uint32_t hot, const uint32_t *slots, int n, double *misses, struct err *e);

/* A table that knows one point and one rule: replay_lookups, replay_misses and replay_how answer for this prefix, whatever
 * the slots, what replay_point_reads gave there. For verifying a plan's figures without its tables. */
void replay_fixed(const struct layout_shape *shape, int part, int n_blocks, uint32_t hot,
                  const struct replay_figures *f, struct replay_table *out);

/* Belady's bound at the same points as replay_curve, of the same steps: what no cache misses less than, whatever it did while
 * it warmed up (with bypass: a unit may be used without being kept). */
int replay_belady(const struct inputs_steps *s, const struct layout_shape *shape, int part, int n_blocks, int batch,
                  uint32_t hot, const uint32_t *slots, int n, double *misses, struct err *e);

/* Exact at grid points (hot[h], slots[h][i]); between them linear in the prefix and in the share of remaining
 * units that have a slot. With all remaining units in slots nothing misses: what the window saw for the first time
 * is not charged. */
double replay_lookups(const struct replay_table *t, uint32_t hot);
double replay_misses(const struct replay_table *t, uint32_t hot, uint32_t slots);

/* The same of what reading ahead does; 0: it is not known, and *out all 0. */
int replay_ahead_of(const struct replay_table *t, uint32_t hot, uint32_t slots, double out[REPLAY_AHEAD]);

/* How missing units are read, by rule: [REPLAY_RULES]. Between grid points, that of the one below. */
const struct replay_reads *replay_how(const struct replay_table *t, uint32_t hot, uint32_t slots);

/* What the steps miss, at the grid point below; NULL: it is not known step by step. */
const struct replay_point_steps *replay_steps_at(const struct replay_table *t, uint32_t hot, uint32_t slots);

/* Units beyond the prefix, over all blocks: the most slots that are of use. */
uint32_t replay_units(const struct replay_table *t, uint32_t hot);

#endif
