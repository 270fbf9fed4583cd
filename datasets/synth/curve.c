/* The normal distribution, and the figures a design leads one to expect: what the generator promises and what
 * tests hold a trace of the model against. Everything is integrated over the very quantiles the neurons get. */
#include "datasets/synth/synth.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

double synth_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* Newton's method on the tail of log cdf, which is concave: it converges from anywhere. */
double synth_quantile(double p)
{
    int upper = p > 0.5;
    double q = upper ? 1 - p : p, x = -sqrt(fmax(0, -2 * log(2 * q))); /* within 1 of the answer */
    for (int i = 0; i < 60; i++) {
        double c = synth_cdf(x), step = c / (exp(-x * x / 2) / sqrt(2 * PI)) * log(c / q);
        x -= step;
        if (fabs(step) < 1e-13 * (1 + fabs(x)))
            break;
    }
    return upper ? -x : x;
}

/* Sheppard's integral: cdf(-h)^2 + 1/(2 pi) int_0^asin(r) exp(-h^2 / (1 + sin t)) dt, by Simpson's rule. */
double synth_both(double h, double r)
{
    enum { N = 64 };
    double a = asin(fmin(1, r)), sum = 0, p = synth_cdf(-h);
    for (int i = 0; i <= N; i++) {
        double w = i == 0 || i == N ? 1 : i % 2 ? 4 : 2;
        sum += w * exp(-h * h / (1 + sin(a * i / N)));
    }
    return p * p + sum * a / (3 * N) / (2 * PI);
}

double synth_layer_mean(double rate, double skew)
{
    return -synth_quantile(rate) * sqrt(1 + skew * skew);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* p[n], sorted descending: the share of the first `part`; and how many give 80 %. */
static double share(const double *p, int n, double part)
{
    double all = 0, some = 0;
    for (int i = 0; i < n; i++) {
        all += p[i];
        if (i + 0.5 < part * n)
            some += p[i];
    }
    return some / all;
}

static double neurons_for(const double *p, int n, double part)
{
    double all = 0, some = 0;
    for (int i = 0; i < n; i++)
        all += p[i];
    for (int i = 0; i < n; i++)
        if ((some += p[i]) >= part * all)
            return (i + 1.0) / n;
    return 1;
}

static double lag1(const struct synth_setting *s)
{
    double c = s->layer_share * (1 - 1.0 / SYNTH_OWN_PERIOD);
    for (int k = 0; k < SYNTH_CLASSES; k++)
        c += s->memory[k].share * (1 - 1 / s->memory[k].period);
    return c * (1 - s->noise);
}

int synth_expect(const struct synth_design *d, struct synth_expect *out, struct err *e)
{
    enum { N = 1000 }; /* quantiles per layer */
    const struct synth_setting *s = &d->ask.setting;
    int layers = d->ask.shape.n_layers, n = layers * N;
    double *p = malloc(((size_t)n + N) * sizeof *p), fired = 0, again = 0;
    if (!p)
        return err_set(e, ERR_NOMEM, "%d layers", layers);
    double *one = p + n;
    struct synth_expect x = { .rank = d->n_code + SYNTH_BLOCK * (d->n_strands + d->own_strands) + 1, .correlation = lag1(s) };
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < N; i++) {
            double h = d->layer[l].mean - s->skew * synth_quantile((i + 0.5) / N), q = synth_cdf(-h);
            p[l * N + i] = q;
            fired += q;
            if (i % 10 == 5)
                again += 10 * synth_both(h, x.correlation);
            x.hot_1 += (q > 0.5) / (double)n;
            x.hot_32 += (1 - pow(1 - q, 32) > 0.5) / (double)n;
        }
    double mean = synth_layer_mean(d->gate_rate, s->skew);
    for (int i = 0; i < N; i++)
        one[i] = synth_cdf(-mean + s->skew * synth_quantile((N - i - 0.5) / N));
    x.layer_neurons_for_80 = neurons_for(one, N, 0.8);
    qsort(p, (size_t)n, sizeof *p, descending);
    x.rate = fired / n;
    x.repeat = again / fired;
    x.neurons_for_80 = neurons_for(p, n, 0.8);
    x.top10 = share(p, n, 0.1);
    x.top20 = share(p, n, 0.2);
    x.top50 = share(p, n, 0.5);
    free(p);
    *out = x;
    return 0;
}
