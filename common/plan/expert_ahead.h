#ifndef COMMON_PLAN_EXPERT_AHEAD_H
#define COMMON_PLAN_EXPERT_AHEAD_H

/* Which experts are read before their router has chosen, and when a layer is left alone because it is not foreseen well enough: the rule
 * by which the runtime reads (runtime/pipeline/expert_prefetch.h) and the planner replays (planner/replay/replay.h). */
#include <stdint.h>

#define EXPERT_AHEAD_TOKENS 4   /* of a pass, at most, whose experts are foreseen */
#define EXPERT_AHEAD_UNITS  48  /* that are wanted, or read and not taken yet, at most */
#define EXPERT_AHEAD_TRIES  64  /* units by which a layer is judged */
#define EXPERT_AHEAD_LEAST  42  /* of these have to be taken */
#define EXPERT_AHEAD_REST   256 /* passes that a layer rests when they were not */

/* Of a layer; zeroed in the beginning. */
struct expert_verdict {
    uint16_t tried, taken, rest; /* units since the last judgement; passes to rest */
};

/* Does the layer not rest? To be asked once a pass. */
static inline int expert_ahead_awake(struct expert_verdict *v)
{
    return !v->rest || !--v->rest;
}

/* Before units are wanted of it. */
static inline void expert_ahead_judge(struct expert_verdict *v)
{
    if (v->tried < EXPERT_AHEAD_TRIES)
        return;
    v->rest = v->taken < EXPERT_AHEAD_LEAST ? EXPERT_AHEAD_REST : 0;
    v->tried = v->taken = 0;
}

/* Have so many slots room for units of n blocks, n_units of each, that drive out nothing which is needed? */
static inline int expert_ahead_room(uint32_t slots, uint32_t n, uint32_t n_units)
{
    return slots >= 2 * n * n_units;
}

#endif
