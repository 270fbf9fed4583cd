/* Sums over what comes are made in one sweep from the end and kept as bytes; sums over the past are kept up to date
 * as runs pass. Both are geometric, so a run costs one multiplication per neuron. Loops over neurons are written for
 * the compiler to vectorise (module.mk), twice where a processor may have AVX2; neither changes a result: products and
 * sums are not joined (-ffp-contract=off). */
#include "planner/predict/false_positives.h"

#include "common/base/cpu.h"
#include "common/base/inline.h"
#include "planner/inputs/normal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE    96   /* neurons by which decay and prior are chosen */
#define COUNTED   4096 /* by whose levels the shift is found */
#define MAX_SHIFT 12

static const float decays[] = { 0.5f, 0.75f, 0.875f, 0.9375f, 0.96875f };
static const float priors[] = { 0.25f, 1, 4 };

/* 1 + decay + ... + decay^(n-1) */
static float weights(float decay, int n)
{
    return (1 - powf(decay, (float)n)) / (1 - decay);
}

static float local_rate(float p, float before, float after, float prior, float weight)
{
    return (prior * p + before + after) / (prior + weight);
}

static uint8_t level_of(float r)
{
    float level = sqrtf(r) * FALSE_POSITIVES_LEVELS;
    return (uint8_t)(int)(level < FALSE_POSITIVES_LEVELS - 1 ? level : FALSE_POSITIVES_LEVELS - 1);
}

static double rate_of(int level)
{
    double s = (level + 0.5) / FALSE_POSITIVES_LEVELS;
    return s * s;
}

/* --- choice of decay and prior --- */

/* Neurons side by side, SAMPLE to a row. */
struct sample {
    int n;                      /* runs */
    float p[SAMPLE];
    float *fires, *before, *after; /* [n][SAMPLE]: 0 or 1; sums of the neighbourhood under one decay */
    float *weight;              /* [n]: of the neighbours that exist */
};

/* Firings of n neurons at even distances; the others of SAMPLE never fire. */
static int sample_init(struct sample *o, const struct false_positives_runs *r, const float *rate, int n)
{
    size_t cells = (size_t)r->n * SAMPLE + 1;
    uint8_t *place = malloc((size_t)r->n_ff); /* SAMPLE: none */
    *o = (struct sample){ .n = r->n, .fires = calloc(cells, sizeof *o->fires), .before = malloc(cells * sizeof *o->before),
                          .after = malloc(cells * sizeof *o->after),
                          .weight = malloc(((size_t)r->n + 1) * sizeof *o->weight) };
    int ok = place && o->fires && o->before && o->after && o->weight;
    if (ok)
        memset(place, SAMPLE, (size_t)r->n_ff);
    for (uint64_t k = 0; ok && k < (uint64_t)n; k++) {
        uint64_t i = k * (uint64_t)r->n_ff / (uint64_t)n;
        place[i] = (uint8_t)k;
        o->p[k] = rate[i];
    }
    for (int t = 0; ok && t < r->n; t++)
        for (size_t i = r->start[t]; i < r->start[t + 1]; i++)
            if (place[r->at[i]] < SAMPLE)
                o->fires[(size_t)t * SAMPLE + place[r->at[i]]] = 1;
    free(place);
    return ok;
}

static void sample_done(struct sample *o)
{
    free(o->fires);
    free(o->before);
    free(o->after);
    free(o->weight);
}

INLINE void sum_body(const struct sample *o, float decay)
{
    float s[SAMPLE] = { 0 };
    for (size_t t = (size_t)o->n; t-- > 0;)
        for (size_t i = 0; i < SAMPLE; i++) {
            o->after[t * SAMPLE + i] = s[i];
            s[i] = decay * s[i] + o->fires[t * SAMPLE + i];
        }
    memset(s, 0, sizeof s);
    for (size_t t = 0; t < (size_t)o->n; t++)
        for (size_t i = 0; i < SAMPLE; i++) {
            o->before[t * SAMPLE + i] = s[i];
            s[i] = decay * s[i] + o->fires[t * SAMPLE + i];
        }
}

/* Log-likelihood of each neuron's firings, each predicted by its neighbourhood. */
INLINE void likelihoods_body(const struct sample *o, float prior, double sum[SAMPLE])
{
    double product[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) {
        sum[i] = 0;
        product[i] = 1;
    }
    for (size_t t = 0; t < (size_t)o->n; t++) {
        const float *fires = o->fires + t * SAMPLE, *before = o->before + t * SAMPLE, *after = o->after + t * SAMPLE;
        int small = 0;
        for (size_t i = 0; i < SAMPLE; i++) {
            float r = local_rate(o->p[i], before[i], after[i], prior, o->weight[t]);
            double chance = fires[i] > 0 ? r : 1 - r;
            product[i] *= chance > 1e-6 ? chance : 1e-6;
            small |= product[i] < 1e-200;
        }
        for (size_t i = 0; small && i < SAMPLE; i++)
            if (product[i] < 1e-200) { /* one logarithm for many factors */
                sum[i] += log(product[i]);
                product[i] = 1;
            }
    }
    for (size_t i = 0; i < SAMPLE; i++)
        sum[i] += log(product[i]);
}

#ifdef __x86_64__
__attribute__((target("avx2")))
static void sum_avx2(const struct sample *o, float decay)
{
    sum_body(o, decay);
}

__attribute__((target("avx2")))
static void likelihoods_avx2(const struct sample *o, float prior, double sum[SAMPLE])
{
    likelihoods_body(o, prior, sum);
}
#else
#define sum_avx2         sum_body
#define likelihoods_avx2 likelihoods_body
#endif

static void choose(struct false_positives *a, int avx2, const struct sample *o, int n)
{
    double best = -INFINITY, each[SAMPLE];
    for (size_t d = 0; d < sizeof decays / sizeof decays[0]; d++) {
        for (int t = 0; t < o->n; t++)
            o->weight[t] = weights(decays[d], t) + weights(decays[d], o->n - 1 - t);
        if (avx2)
            sum_avx2(o, decays[d]);
        else
            sum_body(o, decays[d]);
        for (size_t q = 0; q < sizeof priors / sizeof priors[0]; q++) {
            double sum = 0;
            if (avx2)
                likelihoods_avx2(o, priors[q], each);
            else
                likelihoods_body(o, priors[q], each);
            for (int i = 0; i < n; i++)
                sum += each[i];
            if (sum > best) {
                best = sum;
                a->decay = decays[d];
                a->prior = priors[q];
            }
        }
    }
}

static int choose_by_sample(struct false_positives *a, int avx2, const struct false_positives_runs *r, struct err *e)
{
    struct sample o;
    int n = SAMPLE < r->n_ff ? SAMPLE : r->n_ff, ok = sample_init(&o, r, a->rate, n);
    if (ok)
        choose(a, avx2, &o, n);
    sample_done(&o);
    return ok ? 0 : err_set(e, ERR_NOMEM, "out of memory for false positives");
}

/* --- loops over neurons --- */

static float unit_of(const struct false_positives *a)
{
    return 1 / ((1 - a->decay) * 255);
}

INLINE void take_sums_body(float *restrict sum, size_t n, float unit, float decay, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(int)(sum[i] / unit + 0.5f);
        sum[i] *= decay;
    }
}

/* Levels of one run from its sums over what comes, which are where the levels will be. */
INLINE void run_levels_body(const struct false_positives *a, float weight, float *restrict before, uint8_t *restrict level)
{
    float unit = unit_of(a), prior = a->prior, decay = a->decay;
    const float *rate = a->rate;
    for (int i = 0; i < a->n_ff; i++) {
        level[i] = level_of(local_rate(rate[i], before[i], (float)level[i] * unit, prior, weight));
        before[i] *= decay;
    }
}

#ifdef __x86_64__
__attribute__((target("avx2")))
static void take_sums_avx2(float *sum, size_t n, float unit, float decay, uint8_t *out)
{
    take_sums_body(sum, n, unit, decay, out);
}

__attribute__((target("avx2")))
static void run_levels_avx2(const struct false_positives *a, float weight, float *before, uint8_t *level)
{
    run_levels_body(a, weight, before, level);
}
#else
#define take_sums_avx2  take_sums_body
#define run_levels_avx2 run_levels_body
#endif

static void take_sums(int avx2, float *sum, size_t n, float unit, float decay, uint8_t *out)
{
    if (avx2)
        take_sums_avx2(sum, n, unit, decay, out);
    else
        take_sums_body(sum, n, unit, decay, out);
}

static void run_levels(int avx2, const struct false_positives *a, float weight, float *before, uint8_t *level)
{
    if (avx2)
        run_levels_avx2(a, weight, before, level);
    else
        run_levels_body(a, weight, before, level);
}

/* --- sums --- */

/* Sums over what comes, in parts of their greatest, where the levels will be. */
static int sum_after(struct false_positives *a, int avx2, const struct false_positives_runs *r, struct err *e)
{
    size_t n_ff = (size_t)r->n_ff;
    float unit = unit_of(a), *sum = calloc(n_ff, sizeof *sum);
    a->level = malloc(n_ff * (size_t)r->n + 1);
    if (!sum || !a->level) {
        free(sum);
        return err_set(e, ERR_NOMEM, "out of memory for false positives");
    }
    for (int t = r->n - 1; t >= 0; t--) {
        take_sums(avx2, sum, n_ff, unit, a->decay, a->level + (size_t)t * n_ff);
        for (size_t i = r->start[t]; i < r->start[t + 1]; i++)
            sum[r->at[i]] += 1;
    }
    free(sum);
    return 0;
}

/* Every so many neurons stand for all: in pack order that is a fair sample. */
static size_t count_step(size_t n_ff)
{
    return (n_ff + COUNTED - 1) / COUNTED;
}

/* How many of them have each level: four counts, as most neurons are silent and their additions to one count would wait for each other. */
static void count_levels(const uint8_t *level, size_t n, uint64_t count[FALSE_POSITIVES_LEVELS])
{
    uint32_t part[4][FALSE_POSITIVES_LEVELS] = { { 0 } };
    size_t i = 0, step = count_step(n);
    for (; i + 3 * step < n; i += 4 * step)
        for (size_t k = 0; k < 4; k++)
            part[k][level[i + k * step]]++;
    for (; i < n; i += step)
        part[0][level[i]]++;
    for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
        count[k] += (uint64_t)part[0][k] + part[1][k] + part[2][k] + part[3][k];
}

/* Sums over what comes become levels. */
static int find_levels(struct false_positives *a, int avx2, const struct false_positives_runs *r, struct err *e)
{
    size_t n_ff = (size_t)r->n_ff, step = count_step(n_ff), counted = (n_ff + step - 1) / step;
    float *before = calloc(n_ff, sizeof *before);
    uint64_t count[FALSE_POSITIVES_LEVELS] = { 0 };
    if (!before)
        return err_set(e, ERR_NOMEM, "out of memory for false positives");
    for (int t = 0; t < r->n; t++) {
        uint8_t *level = a->level + (size_t)t * n_ff;
        run_levels(avx2, a, weights(a->decay, t) + weights(a->decay, a->n - 1 - t), before, level);
        count_levels(level, n_ff, count);
        for (size_t i = r->start[t]; i < r->start[t + 1]; i++) {
            count[level[r->at[i]]] -= r->at[i] % step == 0;
            before[r->at[i]] += 1;
        }
    }
    for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
        a->silent[k] = (double)count[k] * (double)n_ff / (double)counted;
    free(before);
    return 0;
}

/* --- shift --- */

double false_positives_beyond(double rate, double quantile, double recall, double shift)
{
    return fmin(1, fmax(0, (normal_cdf(shift + quantile) - recall * rate) / (1 - rate)));
}

void false_positives_chances(const struct false_positives *a, double recall, double wanted, uint64_t chance[FALSE_POSITIVES_LEVELS])
{
    double low = -MAX_SHIFT, high = MAX_SHIFT, quantile[FALSE_POSITIVES_LEVELS];
    for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
        quantile[k] = normal_quantile(rate_of(k));
    for (int step = 0; step < 40; step++) {
        double shift = (low + high) / 2, sum = 0;
        for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
            sum += a->silent[k] > 0 ? a->silent[k] * false_positives_beyond(rate_of(k), quantile[k], recall, shift) : 0;
        if (sum < wanted * a->n)
            low = shift;
        else
            high = shift;
    }
    for (int k = 0; k < FALSE_POSITIVES_LEVELS; k++)
        chance[k] = wanted > 0 ?
            (uint64_t)(false_positives_beyond(rate_of(k), quantile[k], recall, (low + high) / 2) * 4294967296.0) : 0;
}

int false_positives_new(const struct false_positives_runs *r, const double *rate, unsigned cpus, struct false_positives *out, struct err *e)
{
    struct false_positives a = { .n_ff = r->n_ff, .n = r->n };
    int code = 0, avx2 = (cpus >> CPU_AVX2 & 1) != 0;
    a.rate = malloc((size_t)r->n_ff * sizeof *a.rate);
    if (!a.rate)
        code = err_set(e, ERR_NOMEM, "out of memory for false positives");
    for (int i = 0; i < r->n_ff && code == 0; i++)
        a.rate[i] = (float)rate[i];
    if (code < 0 || (code = choose_by_sample(&a, avx2, r, e)) < 0 || (code = sum_after(&a, avx2, r, e)) < 0 ||
        (code = find_levels(&a, avx2, r, e)) < 0) {
        false_positives_free(&a);
        return code;
    }
    *out = a;
    return 0;
}

void false_positives_free(struct false_positives *a)
{
    free(a->rate);
    free(a->level);
    *a = (struct false_positives){ 0 };
}
