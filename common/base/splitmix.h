#ifndef COMMON_BASE_SPLITMIX_H
#define COMMON_BASE_SPLITMIX_H

/* splitmix64: Steele, Lea & Flood 2014; public domain constants. For draws that have to be the same everywhere. */
#include <stdint.h>

#define SPLITMIX_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t splitmix_finalise(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* What the generator gives at a state: a hash of it. */
static inline uint64_t splitmix_at(uint64_t state)
{
    return splitmix_finalise(state + SPLITMIX_STEP);
}

/* The next of a sequence. */
static inline uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = splitmix_at(*state);
    *state += SPLITMIX_STEP;
    return z;
}

#endif
