#ifndef PLANNER_REPLAY_REPLAY_STEPS_H
#define PLANNER_REPLAY_REPLAY_STEPS_H

/* How many units the steps of a window miss, step by step: means say too little where the time of a step is a convex function of its
 * misses, as it is of experts ((M6) of planner/cost/cost.h). Steps are counted in a histogram of what they have to read when their router
 * has chosen and of what is read before, which is then reduced to a few groups with exact means. Thread-safe: state is the caller's. */
#include <stdint.h>

#define REPLAY_GROUPS 8 /* at most */

/* Steps that miss about as much: their share of all steps; units that such a step reads late, when its router has chosen, and that are read
 * early, for it; units that it needs among these. */
struct replay_group {
    float share, late, early, foreseen;
};

/* Shares add up to 1. n 0: nothing was counted. */
struct replay_steps {
    int n;
    struct replay_group at[REPLAY_GROUPS];
};

#define REPLAY_TALLY 17 /* classes of either count: 0, and sixteenths of the most */

struct replay_tally {
    uint32_t width, units; /* of a class: at least an expert's units; these */
    struct replay_cell {
        double steps, late, early, foreseen;
    } cell[REPLAY_TALLY * REPLAY_TALLY];
};

/* Of steps that look up at most `most` units and experts of so many units; empty. */
void replay_tally_init(struct replay_tally *t, uint64_t most, uint32_t per_expert);
void replay_tally_add(struct replay_tally *t, uint64_t late, uint64_t early, uint64_t foreseen);

/* A window is a sample: what never happened in it may happen. Counts REPLAY_PRIOR further steps with the means of the others, whose
 * `experts` are missing independently of each other. The means stay what they were. */
#define REPLAY_PRIOR 16
void replay_tally_smooth(struct replay_tally *t, int experts);

/* The rarest classes are counted with their nearest until REPLAY_GROUPS are left, so that sums stay what they were. */
void replay_tally_groups(const struct replay_tally *t, struct replay_steps *out);

#endif
