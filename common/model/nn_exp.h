#ifndef COMMON_MODEL_NN_EXP_H
#define COMMON_MODEL_NN_EXP_H

/* exp of four floats at a time: x = n ln 2 + r, |r| <= ln 2 / 2, e^x = 2^n p(r), with p of degree 6 and ln 2 in two parts. Plain
 * additions and products, so that an element has the same bits whatever its lane and the processor's instruction set; error at most 1.5
 * units in the last place (tests/unit/test_nn). Below -87.3 it is 0, above 88.37 it is e^88.37: neither infinite nor subnormal. NaN
 * gives NaN. */
#include <stdint.h>
#include <string.h>

enum { NN_EXP_LANES = 4 };
typedef float nn_f4 __attribute__((vector_size(16)));
typedef int32_t nn_i4 __attribute__((vector_size(16)));
typedef uint32_t nn_u4 __attribute__((vector_size(16))); /* NaN's bits wrap, which nobody sees */

/* a where the mask is set, else b. */
static inline nn_f4 nn_pick(nn_i4 mask, nn_f4 a, nn_f4 b)
{
    return (nn_f4)((mask & (nn_i4)a) | (~mask & (nn_i4)b));
}

static inline nn_f4 nn_all(float v)
{
    return (nn_f4){ v, v, v, v };
}

static inline nn_f4 nn_load(const float *x)
{
    nn_f4 v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline nn_f4 nn_exp(nn_f4 x)
{
    const nn_f4 least = nn_all(-87.3f), most = nn_all(88.37f), round = nn_all(0x1.8p23f);
    const nn_i4 none = x < least;
    x = nn_pick(x > most, most, x);
    const nn_f4 t = x * nn_all(0x1.715476p0f) + round; /* its last bits are n */
    const nn_f4 n = t - round;
    const nn_f4 r = (x - n * nn_all(0x1.63p-1f)) + n * nn_all(0x1.bd0106p-13f);
    nn_f4 p = nn_all(0x1.6a234ep-10f); /* about 1/720, then 1/120, 1/24, 1/6, 1/2 */
    p = p * r + nn_all(0x1.123a6cp-7f);
    p = p * r + nn_all(0x1.5558f4p-5f);
    p = p * r + nn_all(0x1.55549p-3f);
    p = p * r + nn_all(0x1.fffffcp-2f);
    p = p * r * r + r + nn_all(1.0f);
    const nn_u4 exponent = ((nn_u4)t - (nn_u4)round + 127) << 23;
    return (nn_f4)(~none & (nn_i4)(p * (nn_f4)exponent));
}

#endif
