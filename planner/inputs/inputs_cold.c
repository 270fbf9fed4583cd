/* Curves between levels are lines over the logarithm of the bound; below the first level, over the bound. */
#include "planner/inputs/inputs.h"

#include "common/offline/trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = TRACE_COLD_LEVELS };

int inputs_cold_from_trace(struct inputs *in, struct trace *t, struct err *e)
{
    size_t n_ff = (size_t)in->h.n_ff, row = 2 * LEVELS;
    if (!in->h.cold_thresholds)
        return 0;
    float *one = malloc(n_ff * row * sizeof *one);
    in->cold = malloc((size_t)in->n_layers * n_ff * row * sizeof *in->cold);
    int r = one && in->cold ? 0 : err_set(e, ERR_NOMEM, "out of memory for the losses of cold neurons");
    for (int l = 0; l < in->n_layers && r == 0; l++) {
        const uint32_t *pos = in->position + (size_t)l * n_ff;
        r = trace_cold(t, l, one, e);
        for (size_t i = 0; i < n_ff && r == 0; i++)
            memcpy(in->cold + ((size_t)l * n_ff + pos[i]) * row, one + i * row, row * sizeof *one);
    }
    free(one);
    return r;
}

/* Where a bound is between levels: it counts so much of `at`, the rest of the one before. */
struct between {
    int at;
    double part;
};

static struct between find(double bound)
{
    int k = 0;
    while (k < LEVELS - 1 && trace_cold_loss(k) < bound)
        k++;
    double to = trace_cold_loss(k), part = k ? 1 + log(bound / to) / log(to / trace_cold_loss(k - 1)) : bound / to;
    return (struct between){ k, fmin(1, fmax(0, part)) };
}

static double value_at(const float *curve, struct between b, double none)
{
    return b.part * (double)curve[b.at] + (1 - b.part) * (b.at ? (double)curve[b.at - 1] : none);
}

static const float *curves_of(const struct inputs *in, int layer, uint32_t position)
{
    return in->cold + ((size_t)layer * (size_t)in->h.n_ff + position) * 2 * LEVELS;
}

double inputs_cold_kept(const struct inputs *in, int layer, uint32_t position, double bound)
{
    return bound > 0 ? value_at(curves_of(in, layer, position), find(bound), 1) : 1;
}

double inputs_cold_loss(const struct inputs *in, int layer, uint32_t from, double bound)
{
    const struct between b = bound > 0 ? find(bound) : (struct between){ 0, 0 };
    double sum = 0;
    for (uint32_t i = from; i < (uint32_t)inputs_n_ff(in, layer); i++)
        sum += value_at(curves_of(in, layer, i) + LEVELS, b, 0);
    return sum;
}

int inputs_use_cold(struct inputs *in, double bound, struct err *e)
{
    if (bound > 0 && !in->cold)
        return err_set(e, ERR_MISMATCH, "cold neurons are left out at a bound of %g nats, and nothing is known of what that loses: "
                                        "'thermo-profile trace --cold-thresholds' makes a trace that does", bound);
    if (!(bound < in->cold_bound) && !(bound > in->cold_bound))
        return 0;
    in->cold_bound = bound;
    list_cache_free(in->lists);
    in->lists = list_cache_new(LIST_CACHE_BYTES);
    return in->lists ? 0 : err_set(e, ERR_NOMEM, "out of memory for activation lists");
}

/* A number in [0, 1) that follows from a layer's token and neuron alone. */
static double draw(int layer, int token, uint32_t at)
{
    uint64_t x = (uint64_t)layer << 52 ^ (uint64_t)token << 24 ^ at;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

int inputs_cold_thin(const struct inputs *in, int layer, struct inputs_steps *s, struct err *e)
{
    uint32_t n = 0, from = 0, n_ff = (uint32_t)in->h.n_ff;
    if (!(in->cold_bound > 0))
        return 0;
    double *kept = malloc(n_ff * sizeof *kept);
    if (!kept)
        return err_set(e, ERR_NOMEM, "out of memory for activation lists");
    for (uint32_t i = 0; i < n_ff; i++)
        kept[i] = inputs_cold_kept(in, layer, i, in->cold_bound);
    for (int t = 0; t < s->n_steps; t++) {
        uint32_t end = s->start[t + 1];
        for (; from < end; from++)
            if (draw(layer, t, s->at[from]) < kept[s->at[from]])
                s->at[n++] = s->at[from];
        s->start[t + 1] = n;
    }
    free(kept);
    return 0;
}
