#ifndef PLANNER_INPUTS_INPUTS_STEPS_H
#define PLANNER_INPUTS_INPUTS_STEPS_H

#include "common/base/err.h"

#include <stdint.h>

/* Which units a step needs, for replay: pack positions that fire, one list per step of batch size 1.
 * At most so many
 * tokens from the beginning of a layer's window, one layer at a time (struct inputs: steps). */
struct inputs_steps {
    int n_steps;                /* tokens of the window */
    uint32_t *start;            /* [n_steps + 1] into at[] */
    uint32_t *at;               /* block * n_ff + pack position, ascending within a step */
    uint32_t *guess_start, *guess; /* [n_steps + 1] into guess[], which is like at[]: what each step is expected to need, likeliest first,
                                * by experts that are foreseen (struct inputs: foreseen); NULL: nothing is */
    int together;               /* 1: all of a step is looked up before anything of it is admitted, as experts are whose router has
                                 * chosen; 0: one after the other */
};

/* Steps of twice as many tokens: each is the union of two that follow each other; an odd last one is left out. The caller's. ERR_NOMEM. */
int inputs_steps_pairs(const struct inputs_steps *s, struct inputs_steps *out, struct err *e);

void inputs_steps_done(struct inputs_steps *s); /* accepts a zeroed one */

#endif
