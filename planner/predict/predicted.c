/* Expected numbers are sums over pack positions, made once per variant, so that the thousands of residencies
 * the planner tries only subtract two of them. */
#include "planner/predict/predicted.h"

#include "common/base/cpu.h"
#include "common/kernels/quant.h"
#include "planner/inputs/normal.h"
#include "planner/predict/false_positives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE    2048 /* neurons of a block that its shift is found from */
#define MAX_SHIFT 12   /* then every neuron that ever fires is predicted */
#define HALVINGS  28   /* of the shifts there are: to a ten-millionth, densities are measured to a thousandth */

const struct inputs_point *predicted_point(const struct inputs_predictor *x, double target)
{
    const struct inputs_point *best = &x->point[0];
    for (int i = 1; i < x->n_points; i++) {
        const struct inputs_point *p = &x->point[i];
        int reaches = p->recall >= target, best_does = best->recall >= target;
        if (reaches != best_does ? reaches : (reaches ? p->density < best->density : p->recall > best->recall))
            best = p;
    }
    return best;
}

int predicted_known(const struct inputs *in, int input, int layer)
{
    if (!in->predictors)
        return 0;
    for (int k = 0; k < in->n_blocks; k++)
        if (inputs_predictor_at(in, input, layer, k)->n_points == 0)
            return 0;
    return 1;
}

void predicted_account(const struct inputs *in, const struct layout_shapes *s, const signed char *input,
                      struct budget_predictors *out)
{
    *out = (struct budget_predictors){ 0 };
    for (int l = 0; l < in->n_layers; l++)
        for (int k = 0; input[l] >= 0 && k < in->n_blocks; k++) {
            const struct inputs_predictor *x = inputs_predictor_at(in, input[l], l, k);
            budget_add_predictor(out, layout_of(s, l), x->rank, x->bytes, predict_row1_bytes(x->type1, in->h.d_model),
                                 predict_row2_bytes(x->type2, x->rank), in->h.thresholds != 0);
        }
}

uint64_t predicted_layer_bytes(const struct inputs *in, const signed char *input, int layer)
{
    uint64_t sum = 0;
    for (int k = 0; input[layer] >= 0 && k < in->n_blocks; k++)
        sum += budget_dense_tensor(inputs_predictor_at(in, input[layer], layer, k)->bytes);
    return sum;
}

/* Probability that the neuron at a position fires in a step: routing included. */
static double fires(const struct inputs *in, int batch_index, int layer, int block, int pos)
{
    const struct inputs_curve *c = inputs_curve_at(in, batch_index, layer, block);
    return c->cum[pos + 1] - c->cum[pos];
}

/* The same at batch 1 for a token that is routed to the block. */
static double fires_routed(const struct inputs *in, int layer, int block, int pos)
{
    double routed = inputs_curve_at(in, 0, layer, block)->routed;
    return routed > 0 ? fmin(1, fires(in, 0, layer, block, pos) / routed) : 0;
}

/* The quantile of that, where it is strictly between 0 and 1: expensive, so stored. */
static double quantile_of(const struct inputs *in, int layer, int block, int pos, double p)
{
    double *at = in->quantiles;
    if (!at)
        return normal_quantile(p);
    at += ((size_t)layer * (size_t)in->n_blocks + (size_t)block) * (size_t)in->h.n_ff + (size_t)pos;
    if (fabs(*at) <= 0)
        *at = normal_quantile(p);
    return *at;
}

/* A chance is dear as well; neighbours in pack order often fire equally often. */
struct memo {
    double p, q;
};

/* q_i for the neuron at a position, which fires with probability p where a token is routed to it. */
static double false_positive_chance(const struct inputs *in, const struct predicted_block *b, int layer, int block, int pos, double p,
                           struct memo *m)
{
    if (p <= 0 || p >= 1 || isinf(b->shift))
        return 0;
    if (fabs(p - m->p) > 1e-12 * p)
        *m = (struct memo){ p, false_positives_beyond(p, quantile_of(in, layer, block, pos, p), b->recall, b->shift) };
    return m->q;
}

/* Neurons that a shift is found from, those together that fire equally often: how many, how often, the quantile of
 * that. In pack order such neurons follow each other. */
struct sample {
    int n, taken;
    double count[SAMPLE], p[SAMPLE], z[SAMPLE];
};

static void take_sample(const struct inputs *in, int layer, int block, struct sample *s)
{
    int n_ff = inputs_n_ff(in, layer), step = (n_ff + SAMPLE - 1) / SAMPLE;
    for (int i = step / 2; i < n_ff; i += step, s->taken++) {
        double p = fires_routed(in, layer, block, i);
        if (p <= 0 || p >= 1)
            continue;
        if (s->n == 0 || fabs(p - s->p[s->n - 1]) > 1e-9 * p) {
            s->p[s->n] = p;
            s->z[s->n] = quantile_of(in, layer, block, i, p);
            s->count[s->n++] = 0;
        }
        s->count[s->n - 1]++;
    }
}

/* Mean false positives of a token: grows with the shift. Of wide layers by the sample. */
static double mean_false_positives(const struct predicted_block *b, const struct sample *s, int n_ff)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += s->count[i] * (1 - s->p[i]) * false_positives_beyond(s->p[i], s->z[i], b->recall, b->shift);
    return sum / s->taken * n_ff;
}

static double find_shift(const struct inputs *in, int layer, int block, double recall, double false_positives)
{
    double low = -MAX_SHIFT, high = MAX_SHIFT;
    struct predicted_block b = { recall, 0 };
    struct sample s = { 0 };
    take_sample(in, layer, block, &s);
    for (int i = 0; i < HALVINGS; i++) {
        b.shift = (low + high) / 2;
        if (mean_false_positives(&b, &s, inputs_n_ff(in, layer)) < false_positives)
            low = b.shift;
        else
            high = b.shift;
    }
    return b.shift;
}

static struct predicted_block block_of(const struct inputs *in, int input, int layer, int block, double target)
{
    const struct inputs_predictor *x = inputs_predictor_at(in, input, layer, block);
    const struct inputs_point *at = predicted_point(x, target);
    double false_positives = fmax(0, at->density - at->recall * x->true_density) * inputs_n_ff(in, layer);
    size_t i = (size_t)(x - in->predictors);
    struct inputs_shift found = { 0 };
    if (!(false_positives > 0))
        return (struct predicted_block){ at->recall, -INFINITY };
    if (in->shifts)
        found = in->shifts[i];
    if (found.recall < at->recall || found.recall > at->recall || found.false_positives < false_positives ||
        found.false_positives > false_positives)
        found = (struct inputs_shift){ at->recall, false_positives, find_shift(in, layer, block, at->recall, false_positives) };
    if (in->shifts)
        in->shifts[i] = found;
    return (struct predicted_block){ at->recall, found.shift };
}

/* Probability that a step predicts the neuron, unless it is always computed. A batch holds 1, 2, 4 or 8 tokens, false positives of
 * which are independent; r: a token is routed to the block although the neuron is silent. */
static double chance(const struct inputs *in, const struct predicted_block *b, int batch_index, int layer, int block,
                     int pos, struct memo *m)
{
    double p = fires(in, batch_index, layer, block, pos), p1 = fires(in, 0, layer, block, pos);
    double routed = inputs_curve_at(in, 0, layer, block)->routed, r = p1 < 1 ? fmax(0, routed - p1) / (1 - p1) : 0;
    double q = false_positive_chance(in, b, layer, block, pos, fires_routed(in, layer, block, pos), m);
    double none = 1 - q * r;
    return b->recall * p + (1 - p) * (1 - (batch_index ? pow(none, inputs_batch_sizes[batch_index]) : none));
}

uint32_t predicted_always(const struct inputs *in, const struct layout_shape *s, int input, int layer, double recall)
{
    uint32_t n = (uint32_t)s->n_ff, cluster = s->cluster_neurons, least = n;
    double gate = (double)quant_row_bytes(s->type[LAYOUT_GATE], (uint64_t)in->h.d_model);
    for (int k = 0; k < in->n_blocks && least > 0; k++) {
        const struct inputs_predictor *x = inputs_predictor_at(in, input, layer, k);
        struct predicted_block b = block_of(in, input, layer, k, recall);
        double share = 1 - (double)predict_row2_bytes(x->type2, x->rank) / gate;
        uint32_t at = 0;
        while (at < least) {
            uint32_t end = n - at > cluster ? at + cluster : n;
            struct memo m = { 0, 0 };
            double often = 0, needed = (end - at) * inputs_curve_at(in, 0, layer, k)->routed * share;
            for (uint32_t i = at; i < end; i++)
                often += chance(in, &b, 0, layer, k, (int)i, &m);
            if (often < needed || needed <= 0)
                break;
            at = end;
        }
        least = at < least ? at : least;
    }
    return least;
}

static double *row_of(const struct predicted *f, double *all, int len, int batch_index, int layer)
{
    return all + ((size_t)batch_index * (size_t)f->n_layers + (size_t)layer) * ((size_t)len + 1);
}

static void fill_layer(struct predicted *f, const struct inputs *in, const struct layout_shapes *s, int b, int l)
{
    double *neurons = row_of(f, f->neurons, f->n_ff, b, l), *units = row_of(f, f->units, f->n_units, b, l);
    uint32_t npu = layout_of(s, l)->part[0].neurons_per_unit;
    const int n_ff = layout_of(s, l)->n_ff;
    for (int k = 0; k < in->n_blocks; k++) {
        const struct predicted_block *fb = &f->block[(size_t)l * (size_t)f->n_blocks + (size_t)k];
        struct memo m = { 0, 0 };
        double none = 1;
        for (int i = 0; i < n_ff; i++) {
            double c = (uint32_t)i < f->always[l] ? inputs_curve_at(in, b, l, k)->routed : chance(in, fb, b, l, k, i, &m);
            neurons[i + 1] += c;
            none *= 1 - c;
            if (((uint32_t)i + 1) % npu == 0 || i + 1 == n_ff) {
                units[(uint32_t)i / npu + 1] += 1 - none;
                none = 1;
            }
        }
    }
    for (int i = 0; i < f->n_ff; i++)
        neurons[i + 1] += neurons[i];
    for (int i = 0; i < f->n_units; i++)
        units[i + 1] += units[i];
}

static double recall_in(const struct predicted *f, int layer)
{
    return f->recalls ? f->recalls[layer] : f->recall;
}

int predicted_as_often(const struct predicted *f, int a, int b)
{
    return !(recall_in(f, a) < recall_in(f, b)) && !(recall_in(f, a) > recall_in(f, b));
}

/* The layer is as the first one in all that matters here. */
static int as_first(const struct predicted *f, const struct inputs *in, const struct layout_shapes *s, int l)
{
    return in->equivalent && l > 0 && s->l.kind[l] == s->l.kind[0] && f->input[l] == f->input[0] && f->always[l] == f->always[0] &&
           predicted_as_often(f, l, 0);
}

static void copy_first(struct predicted *f, int n_batches, int l)
{
    size_t blocks = (size_t)f->n_blocks, neurons = ((size_t)f->n_ff + 1) * sizeof(double);
    memcpy(f->block + (size_t)l * blocks, f->block, blocks * sizeof *f->block);
    for (int b = 0; b < n_batches; b++) {
        memcpy(row_of(f, f->neurons, f->n_ff, b, l), row_of(f, f->neurons, f->n_ff, b, 0), neurons);
        memcpy(row_of(f, f->units, f->n_units, b, l), row_of(f, f->units, f->n_units, b, 0),
               ((size_t)f->n_units + 1) * sizeof(double));
    }
}

static int fill(struct predicted *f, const struct inputs *in, const struct layout_shapes *s, struct err *e)
{
    for (int l = 0; l < f->n_layers; l++) {
        if (f->input[l] < 0)
            continue;
        if (!predicted_known(in, f->input[l], l))
            return err_set(e, ERR_UNSUPPORTED, "layer %d has no predictor that sees the input '%s'", l,
                           predict_input_name((enum predict_input)f->input[l]));
        if (as_first(f, in, s, l)) {
            copy_first(f, in->n_batches, l);
            continue;
        }
        for (int k = 0; k < f->n_blocks; k++)
            f->block[(size_t)l * (size_t)f->n_blocks + (size_t)k] =
                block_of(in, f->input[l], l, k, recall_in(f, l));
        for (int b = 0; b < in->n_batches; b++)
            fill_layer(f, in, s, b, l);
    }
    predicted_account(in, s, f->input, &f->predictors);
    return 0;
}

/* With the choices, and room for all that follows from them. */
static struct predicted *alloc(const struct inputs *in, const struct layout_shapes *s, double recall, const double *recalls,
                               const signed char *input, const uint32_t *always)
{
    size_t layers = (size_t)in->n_layers, rows = layers * (size_t)in->n_batches;
    struct predicted *f = malloc(sizeof *f);
    if (!f)
        return NULL;
    *f = (struct predicted){ .recall = recall, .n_layers = in->n_layers, .n_blocks = in->n_blocks, .n_ff = in->h.n_ff,
                            .n_units = (int)layout_most_units(s, 0),
                            .cpus = cpu_detect() };
    f->input = malloc(layers);
    f->always = malloc(layers * sizeof *f->always);
    f->block = calloc(layers * (size_t)in->n_blocks, sizeof *f->block);
    f->neurons = calloc(rows * ((size_t)f->n_ff + 1), sizeof *f->neurons);
    f->units = calloc(rows * ((size_t)f->n_units + 1), sizeof *f->units);
    f->recalls = recalls ? malloc(layers * sizeof *f->recalls) : NULL;
    if (!f->input || !f->always || !f->block || !f->neurons || !f->units || (recalls && !f->recalls)) {
        predicted_free(f);
        return NULL;
    }
    memcpy(f->input, input, layers);
    if (recalls)
        memcpy(f->recalls, recalls, layers * sizeof *recalls);
    memcpy(f->always, always, layers * sizeof *f->always);
    return f;
}

int predicted_new(const struct inputs *in, const struct layout_shapes *s, double recall, const double *recalls,
                  const signed char *input, const uint32_t *always, struct predicted **out, struct err *e)
{
    struct predicted *f = alloc(in, s, recall, recalls, input, always);
    int r = f ? fill(f, in, s, e) : err_set(e, ERR_NOMEM, "out of memory for predicted neurons");
    if (r < 0) {
        predicted_free(f);
        return r;
    }
    *out = f;
    return 0;
}

int predicted_copy(const struct predicted *f, const struct inputs *in, const struct layout_shapes *s, struct predicted **out,
                  struct err *e)
{
    size_t rows = (size_t)in->n_layers * (size_t)in->n_batches;
    struct predicted *o = alloc(in, s, f->recall, f->recalls, f->input, f->always);
    if (!o)
        return err_set(e, ERR_NOMEM, "out of memory for predicted neurons");
    memcpy(o->block, f->block, (size_t)in->n_layers * (size_t)in->n_blocks * sizeof *o->block);
    memcpy(o->neurons, f->neurons, rows * ((size_t)f->n_ff + 1) * sizeof *o->neurons);
    memcpy(o->units, f->units, rows * ((size_t)f->n_units + 1) * sizeof *o->units);
    predicted_account(in, s, o->input, &o->predictors);
    *out = o;
    return 0;
}

void predicted_free(struct predicted *f)
{
    if (!f)
        return;
    free(f->input);
    free(f->recalls);
    free(f->always);
    free(f->block);
    free(f->neurons);
    free(f->units);
    free(f);
}

int predicted_made_from(const struct predicted *f, double recall, const double *recalls, const signed char *input,
                        const uint32_t *always)
{
    size_t n = (size_t)f->n_layers;
    int same = !f->recalls == !recalls && (!recalls || !memcmp(f->recalls, recalls, n * sizeof *recalls));
    return same && !(f->recall < recall) && !(f->recall > recall) && !memcmp(f->input, input, n) &&
           !memcmp(f->always, always, n * sizeof *always);
}

int predicted_same(const struct predicted *a, const struct predicted *b)
{
    return a->n_layers == b->n_layers && predicted_made_from(a, b->recall, b->recalls, b->input, b->always);
}

double predicted_neurons(const struct predicted *f, int batch_index, int layer, uint32_t hot)
{
    const double *row = row_of(f, f->neurons, f->n_ff, batch_index, layer);
    return row[f->n_ff] - row[hot];
}

double predicted_units(const struct predicted *f, const struct layout_shape *s, int batch_index, int layer, uint32_t hot)
{
    const double *row = row_of(f, f->units, f->n_units, batch_index, layer);
    uint32_t npu = s->part[0].neurons_per_unit;
    return row[f->n_units] - row[(hot + npu - 1) / npu];
}

double predicted_active(const struct predicted *f, const struct inputs *in, int batch_index, int layer, uint32_t hot)
{
    uint32_t always = f->always[layer];
    double sum = 0;
    for (int k = 0; k < f->n_blocks; k++) {
        const struct inputs_curve *c = inputs_curve_at(in, batch_index, layer, k);
        double recall = f->block[(size_t)layer * (size_t)f->n_blocks + (size_t)k].recall;
        if (hot < always)
            sum += c->cum[always] - c->cum[hot];
        sum += recall * (c->cum[f->n_ff] - c->cum[hot > always ? hot : always]);
    }
    return sum;
}

double predicted_rates(const struct predicted *f, const struct inputs *in, int layer, int block, double *rate)
{
    const struct predicted_block *b = &f->block[(size_t)layer * (size_t)f->n_blocks + (size_t)block];
    struct memo m = { 0, 0 };
    double false_positives = 0;
    for (int i = 0; i < inputs_n_ff(in, layer); i++) {
        rate[i] = fires_routed(in, layer, block, i);
        false_positives += (1 - rate[i]) * false_positive_chance(in, b, layer, block, i, rate[i], &m);
    }
    return false_positives;
}
