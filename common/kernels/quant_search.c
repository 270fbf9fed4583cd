/* Scales by search. Rounding to the nearest of evenly spaced values is not what makes the error of a block least: a slightly
 * smaller scale moves most values nearer and a few further away. Each search tries a row of scales around the one that spans
 * the values, rounds, solves for the scale (and minimum) that fits the rounded integers best in the weighted least-squares sense,
 * and keeps the best. */
#include "common/kernels/quant_impl.h"

#include <math.h>

enum { MOST = 32 }; /* values of a search */

uint16_t quant_finite_half(float v)
{
    if (!(fabsf(v) <= 65504))
        v = v > 0 ? 65504 : v < 0 ? -65504.0f : 0;
    return quant_f32_to_f16(v);
}

void quant_search_weights(float *w, const float *x, const float *by, int n)
{
    float sum = 0, any = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] * x[i];
        any = by && by[i] > any ? by[i] : any;
    }
    float mean = sum / (float)n, rms = sqrtf(mean);
    for (int i = 0; i < n; i++) /* by's largest as 1, so that no sum of products overflows */
        w[i] = any > 0 ? by[i] / any * sqrtf(mean + x[i] * x[i]) : rms + fabsf(x[i]);
}

static float largest(const float *x, int n)
{
    float top = 0;
    for (int i = 0; i < n; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    return top;
}

/* q are the rounded values: the scale that fits them, and what it takes off the error. */
static float fit_scale(const float *x, const float *w, const float *q, int n, float *gain)
{
    float xq = 0, qq = 0;
    for (int i = 0; i < n; i++) {
        xq += w[i] * x[i] * q[i];
        qq += w[i] * q[i] * q[i];
    }
    *gain = qq > 0 ? xq * xq / qq : 0;
    return qq > 0 ? xq / qq : 0;
}

float quant_search_scale(const float *x, const float *w, int n, int lo, int hi)
{
    float top = largest(x, n), best = 0, best_gain = 0, q[MOST], gain;
    if (!(fabsf(top) > 1e-30f))
        return 0;
    for (int side = 0; side < 2; side++)
        for (int k = -9; k <= 9; k++) {
            float inv = ((float)(side ? hi : lo) + (lo < -8 ? 0.1f : 0.05f) * (float)k) / top;
            for (int i = 0; i < n; i++)
                q[i] = (float)quant_nearest(x[i] * inv, lo, hi);
            float s = fit_scale(x, w, q, n, &gain);
            if (gain > best_gain) {
                best_gain = gain;
                best = s;
            }
        }
    return best;
}

int quant_nearest_value(float v, const int8_t values[16])
{
    int i = 0;
    while (i < 15 && v > 0.5f * (float)(values[i] + values[i + 1]))
        i++;
    return i;
}

float quant_search_table(const float *x, const float *w, int n, const int8_t values[16])
{
    float top = largest(x, n), best = 0, best_gain = 0, q[MOST], gain;
    if (!(fabsf(top) > 1e-30f))
        return 0;
    for (int side = 0; side < 2; side++)
        for (int k = -9; k <= 9; k++) {
            float inv = ((float)values[side ? 15 : 0] + (float)k) / top;
            for (int i = 0; i < n; i++)
                q[i] = (float)values[quant_nearest_value(x[i] * inv, values)];
            float s = fit_scale(x, w, q, n, &gain);
            if (gain > best_gain) {
                best_gain = gain;
                best = s;
            }
        }
    return best;
}

/* Scale and offset that fit the integers q best; the offset at most 0. Returns the weighted error. */
static float fit_range(const float *x, const float *w, const float *q, int n, float *s, float *offset)
{
    float sw = 0, swx = 0, swq = 0, swqq = 0, swxq = 0, error = 0;
    for (int i = 0; i < n; i++) {
        sw += w[i];
        swx += w[i] * x[i];
        swq += w[i] * q[i];
        swqq += w[i] * q[i] * q[i];
        swxq += w[i] * x[i] * q[i];
    }
    float det = sw * swqq - swq * swq;
    if (!(det > 0))
        return INFINITY;
    *s = (sw * swxq - swx * swq) / det;
    *offset = (swqq * swx - swq * swxq) / det;
    if (*offset > 0) {
        *offset = 0;
        *s = swxq / swqq;
    }
    for (int i = 0; i < n; i++) {
        float d = *s * q[i] + *offset - x[i];
        error += w[i] * d * d;
    }
    return error;
}

float quant_search_range(const float *x, const float *w, int n, int top, float *m)
{
    float lo = 0, hi = x[0], q[MOST], s = 0, offset = 0, best_error = INFINITY, best = 0;
    for (int i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *m = -lo;
    if (!(hi - lo > 1e-30f))
        return 0;
    for (int k = -10; k <= 10; k++) {
        float inv = ((float)top + 0.1f * (float)k) / (hi - lo);
        for (int i = 0; i < n; i++)
            q[i] = (float)quant_nearest(inv * (x[i] - lo), 0, top);
        float error = fit_range(x, w, q, n, &s, &offset);
        if (error < best_error) {
            best_error = error;
            best = s;
            *m = -offset;
        }
    }
    return best_error < INFINITY ? best : (hi - lo) / (float)top;
}
