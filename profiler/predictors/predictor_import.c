/* Two passes over the weights: one measures a layer after the other, one hands them to the writer. A layer's samples,
 * its gate matrix and its predictor are in memory at a time. */
#include "profiler/predictors/predictor_import.h"

#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "profiler/predictors/predictor.h"
#include "profiler/predictors/predictor_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double curve_recalls[] = { 0.80, 0.90, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999 };
enum { CURVE = sizeof curve_recalls / sizeof *curve_recalls };
_Static_assert(CURVE <= TRACE_PREDICT_POINTS, "curve");

struct import {
    struct trace *trace;
    const struct trace_info *info;
    const struct model *m;
    struct pool *pool;
    float threshold;
    struct predictor_samples samples;
    struct trace_predictor *list; /* [n_layers] */
    void *fc1, *fc2;              /* of the layer in hand */
};

int predictor_import_there(const struct model *m)
{
    for (int l = 0; l < m->h.n_layers; l++)
        if (m->layer[l][MODEL_PREDICT_FC1])
            return 1;
    return 0;
}

static int read_threshold(struct import *p, struct err *e)
{
    float v = 0;
    int r = gguf_get_f32(p->m->gguf, "powerinfer.sparse_threshold", &v, e);
    p->threshold = v;
    return r < 0 ? r : 0;
}

/* ---- weights ---- */

static int read_tensor(const struct import *p, const struct gguf_tensor *t, void **out, struct err *e)
{
    free(*out);
    *out = malloc((size_t)t->bytes);
    return *out ? gguf_read(p->m->gguf, t, 0, *out, (size_t)t->bytes, e) : err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
}

static int read_layer(struct import *p, int layer, struct predict *out, struct err *e)
{
    const struct gguf_tensor *fc1 = p->m->layer[layer][MODEL_PREDICT_FC1], *fc2 = p->m->layer[layer][MODEL_PREDICT_FC2];
    int r;
    if (!fc1)
        return err_set(e, ERR_INPUT, "'%s': layer %d has no predictor (blk.%d.fc1.weight)", gguf_name(p->m->gguf), layer,
                       layer);
    if (fc1->dims[1] > PREDICT_MAX_RANK)
        return err_set(e, ERR_LIMIT, "'%s': tensor '%s' is of rank %llu, more than the limit of %d", gguf_name(p->m->gguf),
                       fc1->name, (unsigned long long)fc1->dims[1], PREDICT_MAX_RANK);
    if ((r = read_tensor(p, fc1, &p->fc1, e)) < 0 || (r = read_tensor(p, fc2, &p->fc2, e)) < 0)
        return r;
    *out = (struct predict){ .input = PREDICT_RESIDUAL, .relu = 1, .d_model = p->m->h.d_model,
                             .rank = (int)fc1->dims[1], .n_ff = model_n_ff(&p->m->h, layer), .type1 = fc1->type, .type2 = fc2->type,
                             .fc1 = p->fc1, .fc2 = p->fc2, .threshold = p->threshold };
    return predict_init(out, e);
}

/* ---- what they do ---- */

static struct trace_predict_point to_point(struct predictor_point x)
{
    return (struct trace_predict_point){ (float)x.recall, (float)x.threshold, (float)x.density, (float)x.precision };
}

static int figures(struct import *p, const struct predict *w, const struct predictor_layer *l, const float *gate,
                   const float *up, uint8_t *targets, struct err *e)
{
    size_t n = p->samples.n;
    const struct predictor_data data = { .d = w->d_model, .n_ff = w->n_ff, .n = n, .f = l->input[PREDICT_FFN],
                                         .x = l->input[PREDICT_RESIDUAL] };
    struct trace_predictor *x = &p->list[l->layer];
    struct predictor_counts c = { 0 };
    uint64_t *counts = malloc((size_t)p->m->h.n_ff * sizeof *counts);
    float *bias[2] = { NULL, NULL };
    int r = counts ? predictor_counts_new(&c, e) : err_set(e, ERR_NOMEM, "counts");
    if (r == 0 &&
        (r = predictor_biases(p->m, l->layer, 0, bias, e)) == 0 &&
        (r = predictor_targets(gate, up, bias, NULL, data.d, data.n_ff, data.f, n, p->pool, targets, e)) == 0 &&
        (r = predictor_count(w, &data, 0, n, targets, p->pool, &c, e)) == 0 &&
        (r = trace_counts(p->trace, l->layer, 0, counts, NULL, e)) == 0) {
        *x = (struct trace_predictor){ .input = w->input, .layer = l->layer, .rank = w->rank, .relu = 1,
                                       .type1 = w->type1, .type2 = w->type2, .n_held = n, .n_points = CURVE };
        x->at = to_point(predictor_point_at(&c, p->threshold));
        x->true_density = (double)c.n_active / (double)(c.n_active + c.n_inactive);
        x->hot_density = predictor_hot_density(counts, w->n_ff, targets, n, (double)x->at.recall, e);
        x->bytes = predict_bytes(w->d_model, w->rank, w->n_ff, w->type1, w->type2, 0);
        for (int i = 0; i < CURVE; i++)
            x->curve[i] = to_point(predictor_point_of(&c, curve_recalls[i]));
        r = x->hot_density < 0 ? ERR_NOMEM : 0;
    }
    predictor_counts_free(&c);
    free(bias[0]), free(bias[1]);
    free(counts);
    return r;
}

static int read_matrix(const struct import *p, const struct gguf_tensor *t, float *out, struct err *e)
{
    struct predictor_tensor x;
    int r = predictor_tensor_open(p->m->gguf, t, &x, e);
    if (r < 0)
        return r;
    r = predictor_tensor_next(&x, 1, out, e);
    return r;
}

/* scratch: two norms, gate, up. */
static int measure_layer(struct import *p, int layer, float *scratch, uint8_t *targets, struct err *e)
{
    const struct gguf_tensor *const *t = p->m->layer[layer];
    size_t d = (size_t)p->m->h.d_model;
    float *attn_norm = scratch, *ffn_norm = scratch + d, *gate = ffn_norm + d;
    float *up = p->m->h.act == MODEL_ACT_DRELU ? gate + d * (size_t)p->m->h.n_ff : NULL;
    struct predictor_layer l = { 0 };
    struct predict w;
    int r;
    if ((r = read_layer(p, layer, &w, e)) == 0 &&
        (r = gguf_read(p->m->gguf, t[MODEL_ATTN_NORM], 0, attn_norm, d * sizeof *scratch, e)) == 0 &&
        (r = gguf_read(p->m->gguf, t[MODEL_FFN_NORM], 0, ffn_norm, d * sizeof *scratch, e)) == 0 &&
        (r = predictor_layer_load(&p->samples, layer, 1u << PREDICT_RESIDUAL, attn_norm, ffn_norm, &l, e)) == 0 &&
        (r = read_matrix(p, t[MODEL_FFN_GATE], gate, e)) == 0 &&
        (!up || (r = read_matrix(p, t[MODEL_FFN_UP], up, e)) == 0))
        r = figures(p, &w, &l, gate, up, targets, e);
    predictor_layer_free(&l);
    return r;
}

static int measure(struct import *p, struct err *e)
{
    size_t d = (size_t)p->m->h.d_model, n_ff = (size_t)p->m->h.n_ff;
    float *scratch = malloc((2 * d + 2 * d * n_ff) * sizeof *scratch);
    uint8_t *targets = malloc(p->samples.n * n_ff + 1);
    struct progress bar;
    int r = scratch && targets ? 0 : err_set(e, ERR_NOMEM, "matrices of a layer");
    progress_init(&bar, "measuring predictors", "layers", (uint64_t)p->m->h.n_layers);
    for (int l = 0; l < p->m->h.n_layers && r == 0; l++) {
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : measure_layer(p, l, scratch, targets, e);
        progress_add(&bar, 1);
    }
    progress_done(&bar);
    free(scratch), free(targets);
    return r;
}

/* ---- into the trace ---- */

static int fetch(void *ctx, int i, struct trace_predictor *x, const void **fc1, const void **fc2, const float **bias,
                 struct err *e)
{
    struct import *p = ctx;
    struct predict w;
    int r = read_layer(p, i, &w, e);
    if (r < 0)
        return r;
    *x = p->list[i];
    *fc1 = p->fc1, *fc2 = p->fc2, *bias = NULL;
    return 0;
}

static int check_space(const struct import *p, const char *from, const char *out, struct err *e)
{
    struct file f;
    uint64_t need = 1 << 20;
    int r = file_open(&f, from, e);
    if (r < 0)
        return r;
    need += f.size;
    file_close(&f);
    for (int l = 0; l < p->m->h.n_layers; l++)
        need += p->list[l].bytes;
    return file_enough_space(out, need, e);
}

int predictor_import(const char *trace_path, const char *out, struct trace *t, const struct model *m, double recall,
                     uint64_t samples, const char *tier, struct pool *pool, struct err *e)
{
    struct import p = { .trace = t, .info = trace_info(t), .m = m, .pool = pool };
    struct trace_predict_info info = { .method = "imported", .recall = recall, .model_hash = p.info->model_hash };
    if (!predictor_import_there(m))
        return err_set(e, ERR_INPUT, "'%s' has no predictors (blk.N.fc1.weight, blk.N.fc2.weight, as PowerInfer's GGUF "
                       "files do); --method trained makes some", gguf_name(m->gguf));
    snprintf(info.tool, sizeof info.tool, "thermo-profile %s", THERMO_VERSION);
    snprintf(info.tier, sizeof info.tier, "%s", tier);
    p.list = calloc((size_t)m->h.n_layers, sizeof *p.list);
    int r = p.list ? read_threshold(&p, e) : err_set(e, ERR_NOMEM, "%d layers", m->h.n_layers);
    if (r == 0 && (r = predictor_samples_open(t, samples, 1, &p.samples, e)) == 0 && (r = measure(&p, e)) == 0 &&
        (r = check_space(&p, trace_path, out, e)) == 0)
        r = trace_predictors_save(trace_path, out, &info, 0, m->h.n_layers, fetch, &p, e);
    predictor_samples_close(&p.samples);
    free(p.list), free(p.fc1), free(p.fc2);
    return r;
}
