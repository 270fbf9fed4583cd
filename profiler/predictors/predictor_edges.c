/* Edges of what a threshold silences. act(g) for g >= 0 ascends from 0; below 0 it falls to its least value and comes back to 0, so
 * that |act(g)| >= t holds there between two edges or nowhere. Each is found by bisection on the activation function itself. */
#include "profiler/predictors/predictor.h"

#include "common/model/nn.h"

#include <math.h>

enum { STEPS = 60 };
#define FAR 200.0f /* where act(-FAR) is 0 */

static float value(float gate, enum model_act act)
{
    float one = 1, h, large = act == MODEL_ACT_GELU ? 6 : 40; /* beyond, act(g) is g or next to nothing */
    if (fabsf(gate) > large)
        return gate > 0 ? gate : 0;
    nn_ffn_act(&h, &gate, &one, 1, act);
    return fabsf(h);
}

/* Between `in`, where |act| >= t, and `out`, where it is not. */
static float edge(float in, float out, float t, enum model_act act)
{
    for (int i = 0; i < STEPS; i++) {
        float mid = in + (out - in) / 2;
        if (value(mid, act) >= t)
            in = mid;
        else
            out = mid;
    }
    return in;
}

/* Where |act| is largest below 0. */
static float lowest(enum model_act act)
{
    float a = -4, b = 0;
    for (int i = 0; i < STEPS; i++) {
        float x = a + (b - a) / 3, y = b - (b - a) / 3;
        if (value(x, act) < value(y, act))
            a = x;
        else
            b = y;
    }
    return a + (b - a) / 2;
}

void predictor_edges(float threshold, enum model_act act, float out[PREDICTOR_EDGES])
{
    float least = lowest(act), far = FAR > 2 * threshold ? FAR : 2 * threshold;
    out[0] = edge(far, 0, threshold, act); /* act(g) >= g / 2 */
    out[1] = out[2] = -INFINITY;
    if (value(least, act) >= threshold) {
        out[1] = edge(least, 0, threshold, act);
        out[2] = edge(least, -FAR, threshold, act);
    }
}

float predictor_inside(float gate, const float edges[PREDICTOR_EDGES])
{
    return fmaxf(gate - edges[0], fminf(edges[1] - gate, gate - edges[2]));
}
