/* activation-fit TRACE.h5: which settings of gguf-synth make a model of dense FFNs fire as this one does, as JSON. The model of
 * docs/synthetic-models.md is held against the trace's window: neuron i fires where a standard normal value is above its threshold, and
 * values of a neuron D tokens apart have the correlation r(D). By layer, and as medians over layers:
 *
 *   density      mean share of the neurons that fire
 *   skew         s: deviation of the thresholds over neurons, as the root of the covariance of two estimates of each threshold, from
 *                the even and from the odd sequences, so that chance adds nothing to it
 *   correlation  r(D) for D = 1, 2, 4 ... 64 within a sequence: what makes the expected number of neurons that fire at both tokens,
 *                each with its own threshold, the number that did
 *
 * layer_spread is the deviation of the layers' mean thresholds. */
#include "common/base/js.h"
#include "common/offline/trace/trace.h"
#include "datasets/synth/synth.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAGS = 7, HALVES = 2 };

struct layer {
    double density, skew, mean, correlation[LAGS];
};

struct fit {
    const struct trace_info *i;
    size_t n_ff, row_bytes;
    uint8_t *maps;            /* the window of one layer */
    uint16_t *blocks;
    uint32_t *sequence;       /* of each token of the window */
    uint32_t *fired;          /* [HALVES][n_ff] */
    uint64_t tokens[HALVES];
    double *threshold;        /* [n_ff], from all of the window */
    double both[LAGS];        /* neurons that fired at both of two tokens, over all such pairs of tokens */
    uint64_t pairs[LAGS];
    struct layer *layers;
};

/* The threshold that n of `of` firings say, never infinite. */
static double threshold_of(double n, double of)
{
    return -synth_quantile(fmin(fmax(n, 0.5), of - 0.5) / of);
}

static void count(struct fit *f)
{
    uint64_t n = f->i->window_tokens;
    memset(f->fired, 0, HALVES * f->n_ff * sizeof *f->fired);
    memset(f->both, 0, sizeof f->both);
    for (uint64_t t = 0; t < n; t++) {
        const uint8_t *row = f->maps + t * f->row_bytes;
        uint32_t *fired = f->fired + f->sequence[t] % HALVES * f->n_ff;
        for (size_t i = 0; i < f->n_ff; i++)
            fired[i] += row[i / 8] >> i % 8 & 1;
        for (int k = 0; k < LAGS; k++) {
            uint64_t d = (uint64_t)1 << k;
            for (size_t b = 0; t >= d && f->sequence[t - d] == f->sequence[t] && b < f->row_bytes; b++)
                f->both[k] += __builtin_popcount(row[b] & (row - d * f->row_bytes)[b]);
        }
    }
}

/* Neurons that fire at both of two tokens whose values have correlation r. */
static double expected(const struct fit *f, double r)
{
    double sum = 0;
    for (size_t i = 0; i < f->n_ff; i++)
        sum += synth_both(f->threshold[i], r);
    return sum;
}

/* By halving: expected() grows with r. Below 0 counts as 0. */
static double correlation(const struct fit *f, double both)
{
    double low = 0, high = 1;
    for (int step = 0; step < 12; step++) {
        double r = (low + high) / 2;
        if (expected(f, r) < both)
            low = r;
        else
            high = r;
    }
    return (low + high) / 2;
}

static void fit_layer(struct fit *f, struct layer *out)
{
    double n = (double)f->n_ff, of = (double)f->i->window_tokens, sums[HALVES] = { 0 }, product = 0, all = 0, mean = 0;
    for (size_t i = 0; i < f->n_ff; i++) {
        double t[HALVES];
        for (int h = 0; h < HALVES; h++) {
            t[h] = threshold_of(f->fired[(size_t)h * f->n_ff + i], (double)f->tokens[h]);
            sums[h] += t[h] / n;
        }
        product += t[0] * t[1] / n;
        f->threshold[i] = threshold_of(f->fired[i] + f->fired[f->n_ff + i], of);
        mean += f->threshold[i] / n;
        all += f->fired[i] + f->fired[f->n_ff + i];
    }
    out->density = all / n / of;
    out->skew = sqrt(fmax(0, product - sums[0] * sums[1]));
    out->mean = mean;
    for (int k = 0; k < LAGS; k++)
        out->correlation[k] = f->pairs[k] ? correlation(f, f->both[k] / (double)f->pairs[k]) : NAN;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of the values `offset` bytes into each layer. */
static double median(const struct fit *f, size_t offset, double *work)
{
    size_t n = (size_t)f->i->h.n_layers;
    for (size_t l = 0; l < n; l++)
        memcpy(work + l, (const char *)(f->layers + l) + offset, sizeof *work);
    qsort(work, n, sizeof *work, ascending);
    return (work[(n - 1) / 2] + work[n / 2]) / 2;
}

static void put(struct js *to, const struct layer *l)
{
    struct js *lags = js_array();
    js_set_num(to, "density", l->density);
    js_set_num(to, "skew", l->skew);
    for (int k = 0; k < LAGS; k++)
        if (!isnan(l->correlation[k]))
            js_append_num(lags, l->correlation[k]);
    js_set(to, "correlation", lags);
}

static int print(struct fit *f, struct err *e)
{
    int n = f->i->h.n_layers;
    double mean = 0, square = 0, *work = malloc((size_t)n * sizeof *work);
    struct layer m;
    if (!work)
        return err_set(e, ERR_NOMEM, "%d layers", n);
    m.density = median(f, offsetof(struct layer, density), work);
    m.skew = median(f, offsetof(struct layer, skew), work);
    for (size_t k = 0; k < LAGS; k++)
        m.correlation[k] = median(f, offsetof(struct layer, correlation) + k * sizeof(double), work);
    free(work);
    struct js *o = js_object(), *lags = js_array(), *layers = js_array();
    js_set_u64(o, "tokens", f->i->window_tokens);
    for (int k = 0; k < LAGS; k++)
        js_append_int(lags, 1 << k);
    js_set(o, "lags", lags);
    put(o, &m);
    for (int l = 0; l < n; l++) {
        struct js *one = js_object();
        mean += f->layers[l].mean / n;
        square += f->layers[l].mean * f->layers[l].mean / n;
        put(one, &f->layers[l]);
        js_append(layers, one);
    }
    js_set_num(o, "layer_spread", sqrt(fmax(0, square - mean * mean)));
    js_set(o, "layers", layers);
    int r = js_print(stdout, o, 2, 4, e);
    js_free(o);
    return r;
}

static int fit(struct trace *t, struct fit *f, struct err *e)
{
    const uint64_t *starts = trace_sequence_starts(t);
    uint64_t n = f->i->window_tokens;
    int r = 0;
    for (uint64_t at = 0, seq = 0; at < n; at++) {
        seq += at > 0 && at == starts[seq + 1];
        f->sequence[at] = (uint32_t)seq;
        f->tokens[seq % HALVES]++;
        for (int k = 0; k < LAGS; k++)
            f->pairs[k] += at >= (uint64_t)1 << k && f->sequence[at - ((uint64_t)1 << k)] == seq;
    }
    if (f->tokens[1] == 0)
        return err_set(e, ERR_USAGE, "the window of %llu tokens is one sequence: two are needed", (unsigned long long)n);
    for (int l = 0; r == 0 && l < f->i->h.n_layers; l++) {
        r = trace_maps(t, l, 0, n, f->maps, f->blocks, e);
        if (r == 0) {
            count(f);
            fit_layer(f, &f->layers[l]);
        }
    }
    return r < 0 ? r : print(f, e);
}

static int run(const char *path, struct err *e)
{
    struct trace *t;
    int r = trace_open(path, &t, e);
    if (r < 0)
        return r;
    struct fit f = { .i = trace_info(t), .row_bytes = trace_row_bytes(&trace_info(t)->h), .n_ff = (size_t)trace_info(t)->h.n_ff };
    size_t n = (size_t)f.i->window_tokens;
    f.maps = malloc(n * f.row_bytes + 1);
    f.blocks = malloc(n * sizeof *f.blocks + 1);
    f.sequence = malloc(n * sizeof *f.sequence + 1);
    f.fired = malloc(HALVES * f.n_ff * sizeof *f.fired);
    f.threshold = malloc(f.n_ff * sizeof *f.threshold);
    f.layers = malloc((size_t)f.i->h.n_layers * sizeof *f.layers);
    if (!f.maps || !f.blocks || !f.sequence || !f.fired || !f.threshold || !f.layers)
        r = err_set(e, ERR_NOMEM, "'%s'", path);
    else if (f.i->h.n_experts > 0)
        r = err_set(e, ERR_USAGE, "'%s': of a model with experts", path);
    else if (n == 0)
        r = err_set(e, ERR_USAGE, "'%s' has no maps (thermo-profile trace --window-tokens)", path);
    if (r == 0)
        r = fit(t, &f, e);
    free(f.maps);
    free(f.blocks);
    free(f.sequence);
    free(f.fired);
    free(f.threshold);
    free(f.layers);
    trace_close(t);
    return r;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    if (argc != 2) {
        fprintf(stderr, "usage: activation-fit TRACE.h5\n");
        return 2;
    }
    if (run(argv[1], &e) < 0) {
        fprintf(stderr, "activation-fit: %s\n", e.msg);
        return err_exit_status(e.code);
    }
    return 0;
}
