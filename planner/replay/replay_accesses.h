#ifndef PLANNER_REPLAY_REPLAY_ACCESSES_H
#define PLANNER_REPLAY_REPLAY_ACCESSES_H

#include <stddef.h>
#include <stdint.h>

#define REPLAY_MAX_SIZES 32

/* Accesses of all steps: units[start[i] .. start[i+1]) in the order of use, without repeats. */
struct replay_accesses {
    int n_steps;
    size_t *start;              /* [n_steps + 1] */
    uint32_t *units;
    uint32_t n_units;           /* of the layer; units[] are below it */
    int together;               /* a step's are looked up before any is admitted */
    size_t *guess_start;        /* [n_steps + 1] into guess[]: units that each step is expected to need, likeliest first; NULL: none are */
    uint32_t *guess;
    uint32_t n_guessed, per_block; /* blocks that they are of, for a step, as guessed for each token; units of each */
};

/* Most accesses of a step. */
static inline size_t replay_longest_step(const struct replay_accesses *a)
{
    size_t longest = 0;
    for (int t = 0; t < a->n_steps; t++)
        if (a->start[t + 1] - a->start[t] > longest)
            longest = a->start[t + 1] - a->start[t];
    return longest;
}

#endif
