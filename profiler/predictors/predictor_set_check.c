/* Predictors against the samples of another trace of the same model: what they do on text that neither training nor
 * the choice of thresholds has seen. */
#include "profiler/predictors/predictor_set.h"

#include "common/base/file.h"
#include "profiler/predictors/predictor.h"
#include "profiler/predictors/predictor_samples.h"

#include <stdlib.h>
#include <string.h>

struct check {
    struct trace_predictors *p;
    const struct trace_info *info;
    const struct model *model;
    struct predictor_samples samples;
    struct pool *pool;
    double recall;
    struct predictor_set_check *out;
};

/* One predictor of a block whose tokens and targets are at hand. */
static int one(struct check *c, int i, const struct predictor_block *b, const uint8_t *targets, struct err *e)
{
    int n;
    const struct trace_predictor *x = &trace_predictors_list(c->p, &n)[i];
    const struct model_hparams *h = &c->info->h;
    const int n_ff = model_n_ff(h, x->layer);
    uint8_t *fc1 = malloc(x->bytes), *fc2 = malloc(x->bytes);
    float *bias = malloc((size_t)n_ff * (size_t)predict_numbers(1, x->two_sided) * sizeof *bias);
    struct predictor_counts counts = { 0 };
    int r = fc1 && fc2 && bias ? predictor_counts_new(&counts, e) : err_set(e, ERR_NOMEM, "a predictor");
    struct predict p = { .input = x->input,
                         .relu = x->relu,
                         .d_model = h->d_model,
                         .rank = x->rank,
                         .n_ff = n_ff,
                         .two_sided = x->two_sided,
                         .type1 = x->type1,
                         .type2 = x->type2,
                         .fc1 = fc1,
                         .fc2 = fc2,
                         .bias = bias,
                         .threshold = x->at.threshold };
    const struct predictor_data d = {
        .d = h->d_model, .n_ff = n_ff, .n = b->n, .f = b->input[PREDICT_FFN], .x = b->input[x->input]
    };
    if (!r && (r = trace_predictors_read(c->p, x, fc1, fc2, bias, e)) == 0 && (r = predict_init(&p, e)) == 0 &&
        (r = predictor_count(&p, &d, 0, b->n, targets, c->pool, &counts, e)) == 0) {
        struct predictor_point at = predictor_point_at(&counts, x->at.threshold);
        c->out[i] =
            (struct predictor_set_check){ .recall = at.recall,
                                       .density = at.density,
                                       .precision = at.precision,
                                       .true_density = (double)counts.n_active /
                                                       (double)(counts.n_active + counts.n_inactive),
                                       .density_at_recall = predictor_point_of(&counts, c->recall).density };
    }
    predictor_counts_free(&counts);
    free(fc1), free(fc2), free(bias);
    return r;
}

static int block(struct check *c, const struct predictor_layer *l, int k, const float *gate, const float *up,
                 struct err *e)
{
    const struct model_hparams *h = &c->info->h;
    struct predictor_block b = { 0 };
    float *bias[2] = { NULL, NULL }, *edges = NULL;
    int n, r = predictor_block_gather(&c->samples, l, k, 0, &b, e);
    r = r ? r : predictor_biases(c->model, l->layer, k, bias, e);
    r = r ? r : predictor_layer_edges(c->model, l->layer, &edges, e);
    uint8_t *targets = r ? NULL : malloc(b.n * (size_t)h->n_ff + 1);
    if (!r && !targets)
        r = err_set(e, ERR_NOMEM, "targets of %zu tokens", b.n);
    if (!r)
        r = predictor_targets(gate, up, bias, edges, h->d_model, model_n_ff(h, l->layer), b.input[PREDICT_FFN], b.n, c->pool, targets, e);
    const struct trace_predictor *list = trace_predictors_list(c->p, &n);
    for (int i = 0; i < n && !r; i++)
        if (list[i].layer == l->layer && list[i].block == k)
            r = one(c, i, &b, targets, e);
    predictor_block_free(&b);
    free(bias[0]), free(bias[1]), free(edges);
    free(targets);
    return r;
}

static int layer(struct check *c, int at, unsigned inputs, float *scratch, struct err *e)
{
    const struct model *m = c->model;
    size_t d = (size_t)c->info->h.d_model, size = (size_t)c->info->h.n_ff * d;
    const struct gguf_tensor *const *t = m->layer[at];
    float *gate = scratch + 2 * d, *up = c->info->h.act == MODEL_ACT_DRELU ? gate + size : NULL;
    struct predictor_layer l = { 0 };
    struct predictor_tensor tg = { 0 }, tu = { 0 };
    int r, n_blocks = model_ffn_blocks(&c->info->h);
    if ((r = gguf_read(m->gguf, t[MODEL_ATTN_NORM], 0, scratch, t[MODEL_ATTN_NORM]->bytes, e)) == 0 &&
        (r = gguf_read(m->gguf, t[MODEL_FFN_NORM], 0, scratch + d, t[MODEL_FFN_NORM]->bytes, e)) == 0 &&
        (r = predictor_layer_load(&c->samples, at, inputs, scratch, scratch + d, &l, e)) == 0 &&
        (r = predictor_tensor_open(m->gguf, t[MODEL_FFN_GATE], &tg, e)) == 0 && up)
        r = predictor_tensor_open(m->gguf, t[MODEL_FFN_UP], &tu, e);
    for (int k = 0; k < n_blocks && !r; k++)
        if ((r = predictor_tensor_next(&tg, n_blocks, gate, e)) == 0 &&
            (!up || (r = predictor_tensor_next(&tu, n_blocks, up, e)) == 0))
            r = block(c, &l, k, gate, up, e);
    predictor_layer_free(&l);
    return r;
}

int predictor_set_check(struct trace_predictors *p, struct trace *held, const struct model *m, uint64_t samples,
                     struct pool *pool, struct predictor_set_check *out, struct err *e)
{
    struct check c = { .p = p,
                       .info = trace_info(held),
                       .model = m,
                       .pool = pool,
                       .recall = trace_predictors_info(p)->recall,
                       .out = out };
    if (!hash_equal(trace_predictors_info(p)->model_hash, c.info->model_hash))
        return err_set(e, ERR_MISMATCH, "'%s' is a trace of another model than the predictors are of", c.info->path);
    unsigned inputs = 0;
    int n;
    const struct trace_predictor *list = trace_predictors_list(p, &n);
    for (int i = 0; i < n; i++)
        inputs |= 1u << list[i].input;
    size_t d = (size_t)c.info->h.d_model;
    float *scratch = malloc((2 * d + 2 * d * (size_t)c.info->h.n_ff) * sizeof *scratch);
    int r = scratch ? predictor_samples_open(held, samples, 1, &c.samples, e)
                    : err_set(e, ERR_NOMEM, "matrices of a layer");
    for (int l = 0; l < c.info->h.n_layers && !r; l++)
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : layer(&c, l, inputs, scratch, e);
    predictor_samples_close(&c.samples);
    free(scratch);
    return r;
}
