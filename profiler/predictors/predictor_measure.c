/* Measuring predictors through the runtime's own functions (common/model/predict.h). */
#include "profiler/predictors/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 65536, TOKENS = 32 };

int predictor_counts_new(struct predictor_counts *c, struct err *e)
{
    *c = (struct predictor_counts){ .active = calloc(BINS, sizeof *c->active),
                                    .inactive = calloc(BINS, sizeof *c->inactive) };
    if (c->active && c->inactive)
        return 0;
    predictor_counts_free(c);
    return err_set(e, ERR_NOMEM, "counts of scores");
}

void predictor_counts_free(struct predictor_counts *c)
{
    free(c->active), free(c->inactive);
    *c = (struct predictor_counts){ 0 };
}

/* A float's bits as an integer that ascends with it. */
static uint32_t key_of(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static float of_key(uint32_t k)
{
    float v;
    k = k & 0x80000000u ? k & 0x7fffffffu : ~k;
    memcpy(&v, &k, sizeof v);
    return v;
}

/* Each worker counts into memory of its own, and counts are integers: their sum does not depend on who did what. */
struct count {
    const struct predict *p;
    const struct predictor_data *data;
    const uint8_t *targets;
    size_t first, n;
    uint8_t *x, *hidden;         /* of each worker */
    float *h, *scores;
    uint64_t *bins;              /* of each worker: [2][BINS] */
};

static void count_tokens(void *ctx, int begin, int end, int worker)
{
    struct count *c = ctx;
    const struct predict *p = c->p;
    size_t xb = predict_input_bytes(p), hb = predict_hidden_bytes(p), d = (size_t)p->d_model, n_ff = (size_t)p->n_ff;
    uint8_t *x = c->x + (size_t)worker * TOKENS * xb, *hidden = c->hidden + (size_t)worker * TOKENS * hb;
    float *h = c->h + (size_t)worker * TOKENS * (size_t)p->rank, *s = c->scores + (size_t)worker * TOKENS * n_ff;
    uint64_t *bins = c->bins + (size_t)worker * 2 * BINS;
    for (int piece = begin; piece < end; piece++) {
        size_t at = (size_t)piece * TOKENS, n = c->n - at < TOKENS ? c->n - at : TOKENS;
        for (size_t t = 0; t < n; t++)
            kernels_act_prepare(x + t * xb, p->form1, c->data->x + (c->first + at + t) * d, p->d_model);
        predict_hidden(p, 0, p->rank, x, xb, (int)n, h, (size_t)p->rank);
        predict_prepare(p, h, (size_t)p->rank, (int)n, hidden, hb);
        predict_scores(p, 0, p->n_ff, hidden, hb, (int)n, s, n_ff);
        const uint8_t *target = c->targets + at * n_ff;
        for (size_t i = 0; i < n * n_ff; i++)
            bins[(target[i] > 127 ? BINS : 0) + (key_of(s[i]) >> 16)]++;
    }
}

int predictor_count(const struct predict *p, const struct predictor_data *data, size_t first, size_t n,
                    const uint8_t *targets, struct pool *pool, struct predictor_counts *out, struct err *e)
{
    size_t w = (size_t)pool_threads(pool), t = w * TOKENS;
    struct count c = { .p = p,
                       .data = data,
                       .targets = targets,
                       .first = first,
                       .n = n,
                       .x = malloc(t * predict_input_bytes(p)),
                       .hidden = malloc(t * predict_hidden_bytes(p)),
                       .h = malloc(t * (size_t)p->rank * 4),
                       .scores = malloc(t * (size_t)p->n_ff * 4),
                       .bins = calloc(w * 2 * BINS, sizeof(uint64_t)) };
    int r = c.x && c.hidden && c.h && c.scores && c.bins ? 0 : err_set(e, ERR_NOMEM, "scores of %d neurons", p->n_ff);
    if (!r)
        pool_for(pool, (int)((n + TOKENS - 1) / TOKENS), 1, count_tokens, &c);
    for (size_t k = 0; k < w && !r; k++)
        for (size_t i = 0; i < BINS; i++) {
            out->inactive[i] += c.bins[k * 2 * BINS + i], out->n_inactive += c.bins[k * 2 * BINS + i];
            out->active[i] += c.bins[k * 2 * BINS + BINS + i], out->n_active += c.bins[k * 2 * BINS + BINS + i];
        }
    free(c.x), free(c.hidden), free(c.h), free(c.scores), free(c.bins);
    return r;
}

/* Predicted are the scores of bin b and above: those greater than the largest float below the bin. */
static struct predictor_point point(const struct predictor_counts *c, size_t bin, uint64_t active, uint64_t inactive)
{
    uint64_t all = c->n_active + c->n_inactive, predicted = active + inactive;
    float edge = bin ? of_key((uint32_t)(bin << 16) - 1) : -HUGE_VALF;
    if (!isfinite(edge))
        edge = edge < 0 || edge != edge ? -3.0e38f : 3.0e38f;
    return (struct predictor_point){ .recall = c->n_active ? (double)active / (double)c->n_active : 1,
                                     .threshold = (double)edge,
                                     .density = all ? (double)predicted / (double)all : 0,
                                     .precision = predicted ? (double)active / (double)predicted : 0 };
}

struct predictor_point predictor_point_of(const struct predictor_counts *c, double recall)
{
    uint64_t active = 0, inactive = 0;
    size_t b = BINS;
    while (b > 0 && (double)active < recall * (double)c->n_active) {
        b--;
        active += c->active[b], inactive += c->inactive[b];
    }
    return point(c, b < BINS ? b : BINS - 1, active, inactive);
}

struct predictor_point predictor_point_at(const struct predictor_counts *c, float threshold)
{
    uint64_t active = 0, inactive = 0;
    size_t b = BINS;
    for (; b > 0 && (uint32_t)((b - 1) << 16) > key_of(threshold); b--)
        active += c->active[b - 1], inactive += c->inactive[b - 1];
    struct predictor_point p = point(c, b < BINS ? b : BINS - 1, active, inactive);
    p.threshold = (double)threshold;
    return p;
}

struct heat {
    uint64_t count;
    int neuron;
};

static int hottest(const void *a, const void *b)
{
    const struct heat *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : x->neuron - y->neuron;
}

double predictor_hot_density(const uint64_t *counts, int n_ff, const uint8_t *targets, size_t n,
                             double recall, struct err *e)
{
    struct heat *heat = malloc((size_t)n_ff * sizeof *heat);
    uint64_t *here = calloc((size_t)n_ff, sizeof *here), all = 0, sum = 0;
    if (!heat || !here) {
        free(heat), free(here);
        err_set(e, ERR_NOMEM, "counts of %d neurons", n_ff);
        return -1;
    }
    for (size_t t = 0; t < n; t++)
        for (int i = 0; i < n_ff; i++)
            here[i] += targets[t * (size_t)n_ff + (size_t)i] > 127;
    for (int i = 0; i < n_ff; i++) {
        heat[i] = (struct heat){ counts[i], i };
        all += here[i];
    }
    qsort(heat, (size_t)n_ff, sizeof *heat, hottest);
    int k = 0;
    while (k < n_ff && (double)sum < recall * (double)all)
        sum += here[heat[k++].neuron];
    free(heat), free(here);
    return (double)k / n_ff;
}
