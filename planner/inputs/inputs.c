/* Plain facts of a model for the cost model. What needs the trace's file is in inputs_trace.c, so
 * that tests and descriptions without a trace can fill the struct by themselves. */
#include "planner/inputs/inputs.h"

#include "common/kernels/quant.h"

#include <stdlib.h>
#include <string.h>

const int inputs_batch_sizes[INPUTS_MAX_BATCHES] = { 1, 2, 4, 8, 16, 32 };

int inputs_count_batches(int max_batch)
{
    int n = 1;
    while (n < INPUTS_MAX_BATCHES && inputs_batch_sizes[n] <= max_batch)
        n++;
    return n;
}

int inputs_alloc(struct inputs *in, struct err *e)
{
    size_t layers = (size_t)in->n_layers, blocks = (size_t)in->n_blocks, n = (size_t)in->n_batches * layers * blocks;
    size_t row = (size_t)in->h.n_ff + 1;
    in->layers = calloc((size_t)model_depth(&in->h), sizeof *in->layers);
    in->loads = malloc(layers * sizeof *in->loads);
    in->curves = calloc(n, sizeof *in->curves);
    double *cum = in->curves ? calloc(n * row, sizeof *cum) : NULL;
    if (!in->layers || !in->loads || !cum) {
        free(in->curves);
        in->curves = NULL;
        return err_set(e, ERR_NOMEM, "out of memory for the hotness curves of %zu FFNs", layers * blocks);
    }
    for (size_t i = 0; i < layers; i++)
        in->loads[i] = 1;
    for (size_t i = 0; i < n; i++)
        in->curves[i] = (struct inputs_curve){ 1, cum + i * row };
    return 0;
}

int inputs_memoise(struct inputs *in, struct err *e)
{
    size_t blocks = (size_t)in->n_layers * (size_t)in->n_blocks;
    in->lists = list_cache_new(LIST_CACHE_BYTES);
    in->quantiles = calloc(blocks * (size_t)in->h.n_ff, sizeof *in->quantiles);
    in->shifts = calloc(PREDICT_INPUTS * blocks, sizeof *in->shifts);
    return in->lists && in->quantiles && in->shifts ? 0 : err_set(e, ERR_NOMEM, "out of memory for figures of %zu FFNs", blocks);
}

void inputs_done(struct inputs *in)
{
    if (in->close)
        in->close(in);
    if (in->curves)
        free(in->curves[0].cum);
    free(in->curves);
    free(in->layers);
    free(in->loads);
    free(in->position);
    free(in->predictors);
    free(in->loss);
    free(in->cold);
    list_cache_free(in->lists);
    free(in->quantiles);
    free(in->shifts);
    *in = (struct inputs){ 0 };
}

int inputs_alloc_predictors(struct inputs *in, struct err *e)
{
    size_t n = (size_t)PREDICT_INPUTS * (size_t)in->n_layers * (size_t)in->n_blocks;
    in->predictors = calloc(n, sizeof *in->predictors);
    return in->predictors ? 0 : err_set(e, ERR_NOMEM, "out of memory for %zu predictors", n);
}

double inputs_active(const struct inputs *in, int batch_index, int layer, uint32_t hot)
{
    double sum = 0;
    for (int k = 0; k < in->n_blocks; k++) {
        const struct inputs_curve *c = inputs_curve_at(in, batch_index, layer, k);
        sum += c->cum[in->h.n_ff] - c->cum[hot];
    }
    return sum;
}

double inputs_gates(const struct inputs *in, int batch_index, int layer)
{
    double blocks = 0;
    for (int k = 0; k < in->n_blocks; k++)
        blocks += inputs_curve_at(in, batch_index, layer, k)->routed;
    return blocks * inputs_n_ff(in, layer);
}

void inputs_steps_done(struct inputs_steps *s)
{
    free(s->start);
    free(s->at);
    free(s->guess_start);
    free(s->guess);
    *s = (struct inputs_steps){ 0 };
}

int inputs_budget_model(const struct inputs *in, const struct layout *l, struct budget_model *out, struct err *e)
{
    struct budget_model m = in->budget;
    int r = layout_derive(l, in->h.d_model, in->h.n_ff, &m.shapes, e);
    if (r == 0)
        *out = m;
    return r;
}

struct hash128 inputs_order_hash(const struct inputs *in, enum layout_form form)
{
    return form == LAYOUT_TILES ? layout_order_hash(NULL, in->n_layers, in->n_blocks, in->h.n_ff) : in->order_hash;
}

void inputs_source(const struct inputs *in, struct layouts_source *out)
{
    *out = (struct layouts_source){ .h = &in->h, .n_layers = in->n_layers, .n_blocks = in->n_blocks };
    for (int i = 0; i < in->n_layers; i++)
        memcpy(out->type[i], in->layers[i].ffn_type, sizeof out->type[i]);
}
