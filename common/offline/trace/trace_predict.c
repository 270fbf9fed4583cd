/* Predictors in a trace. What there is to know about all of them is a table, a dataset per column, so that a model of
 * many experts opens quickly; weights are a group per predictor. Saving copies the trace and adds to the copy, so
 * that the file under the old name is whole whatever happens. */
#include "common/offline/trace/trace_predict.h"

#include "common/base/file.h"
#include "common/offline/trace/trace_h5.h"
#include "common/offline/trace/trace_predict_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/predictors"

struct trace_predictors {
    struct trace_h5_file h5;
    struct trace_info shape;     /* h only */
    struct trace_predict_info info;
    struct trace_predictor *list;
    int n;
    struct trace_predict_quality quality[TRACE_PREDICT_QUALITY];
    int n_quality;
    struct trace_predict_losses losses;
    char corpus[TRACE_PREDICT_CORPUS];
};

/* ---- the table ---- */

/* Columns of u32 and f32; a curve has a dataset of its own. */
enum { INPUT, LAYER, BLOCK, RANK, RELU, BIAS, TYPE1, TYPE2, POINTS, TRAIN, HELD, U32S };
enum { RECALL, THRESHOLD, DENSITY, PRECISION, TRUE_DENSITY, START_DENSITY, HOT_DENSITY, F32S };
static const char *const u32_names[U32S] = { "input", "layer", "block", "rank", "relu", "has_bias", "type1", "type2",
                                             "n_points", "n_train", "n_held" };
static const char *const f32_names[F32S] = { "recall",       "threshold",     "density",    "precision",
                                             "true_density", "start_density", "hot_density" };

struct table {
    uint32_t *u[U32S];
    float *f[F32S], *curve;      /* curve: [n][TRACE_PREDICT_POINTS][4] */
};

static void table_free(struct table *t)
{
    for (int i = 0; i < U32S; i++)
        free(t->u[i]);
    for (int i = 0; i < F32S; i++)
        free(t->f[i]);
    free(t->curve);
}

static int table_new(struct table *t, size_t n, struct err *e)
{
    int ok = 1;
    *t = (struct table){ 0 };
    for (int i = 0; i < U32S; i++)
        ok &= (t->u[i] = calloc(n, 4)) != NULL;
    for (int i = 0; i < F32S; i++)
        ok &= (t->f[i] = calloc(n, 4)) != NULL;
    ok &= (t->curve = calloc(n, TRACE_PREDICT_POINTS * 16)) != NULL;
    return ok ? 0 : err_set(e, ERR_NOMEM, "a table of %zu predictors", n);
}

static void to_row(const struct trace_predictor *x, struct table *t, size_t i)
{
    const uint32_t u[U32S] = { (uint32_t)x->input, (uint32_t)x->layer, (uint32_t)x->block, (uint32_t)x->rank,
                               (uint32_t)x->relu,
                               (uint32_t)predict_numbers(x->has_bias, x->two_sided), x->type1, x->type2, (uint32_t)x->n_points,
                               (uint32_t)x->n_train, (uint32_t)x->n_held };
    const float f[F32S] = { x->at.recall, x->at.threshold, x->at.density, x->at.precision, (float)x->true_density,
                            (float)x->start_density, (float)x->hot_density };
    for (int k = 0; k < U32S; k++)
        t->u[k][i] = u[k];
    for (int k = 0; k < F32S; k++)
        t->f[k][i] = f[k];
    for (int k = 0; k < x->n_points; k++) {
        const struct trace_predict_point *p = &x->curve[k];
        const float v[4] = { p->recall, p->threshold, p->density, p->precision };
        memcpy(t->curve + (i * TRACE_PREDICT_POINTS + (size_t)k) * 4, v, sizeof v);
    }
}

static int share(float v)
{
    return v >= 0 && v <= 1;
}

static int point_ok(const struct trace_predict_point *p)
{
    return share(p->recall) && isfinite(p->threshold) && share(p->density) && share(p->precision);
}

static int from_row(const struct trace_predictors *p, const struct table *t, size_t i,
                    struct trace_predictor *x, struct err *e)
{
    const struct model_hparams *h = &p->shape.h;
    const char *what = NULL;
    if (t->u[INPUT][i] >= PREDICT_INPUTS)
        what = "an unknown input";
    else if (t->u[LAYER][i] >= (uint32_t)h->n_layers || t->u[BLOCK][i] >= (uint32_t)model_ffn_blocks(h))
        what = "no layer or expert of the model";
    else if (t->u[RANK][i] < 1 || t->u[RANK][i] > PREDICT_MAX_RANK || t->u[RELU][i] > 1 ||
             (t->u[BIAS][i] > 1 && t->u[BIAS][i] != PREDICT_TWO_SIDED) || t->u[POINTS][i] > TRACE_PREDICT_POINTS)
        what = "an impossible rank, flag or number of points";
    else if ((t->u[BIAS][i] == PREDICT_TWO_SIDED) != (h->thresholds != 0))
        what = h->thresholds ? "one side, where neurons have thresholds" : "two sides, where neurons have no thresholds";
    if (!what) {
        *x = (struct trace_predictor){ .input = (enum predict_input)t->u[INPUT][i],
                                       .layer = (int)t->u[LAYER][i],
                                       .block = (int)t->u[BLOCK][i],
                                       .rank = (int)t->u[RANK][i],
                                       .relu = (int)t->u[RELU][i],
                                       .has_bias = t->u[BIAS][i] > 0,
                                       .two_sided = t->u[BIAS][i] == PREDICT_TWO_SIDED,
                                       .type1 = t->u[TYPE1][i],
                                       .type2 = t->u[TYPE2][i],
                                       .at = { t->f[RECALL][i], t->f[THRESHOLD][i], t->f[DENSITY][i],
                                               t->f[PRECISION][i] },
                                       .true_density = t->f[TRUE_DENSITY][i],
                                       .start_density = t->f[START_DENSITY][i],
                                       .hot_density = t->f[HOT_DENSITY][i],
                                       .n_train = t->u[TRAIN][i],
                                       .n_held = t->u[HELD][i],
                                       .n_points = (int)t->u[POINTS][i] };
        x->bytes = predict_bytes(h->d_model, x->rank, model_n_ff(h, x->layer), x->type1, x->type2,
                                 predict_numbers(x->has_bias, x->two_sided));
        for (int k = 0; k < x->n_points; k++) {
            const float *v = t->curve + (i * TRACE_PREDICT_POINTS + (size_t)k) * 4;
            x->curve[k] = (struct trace_predict_point){ v[0], v[1], v[2], v[3] };
            if (!point_ok(&x->curve[k]))
                what = "a curve that is not of shares";
        }
        if (!x->bytes)
            what = "a type or rank that does not fit the model";
        else if (!point_ok(&x->at) || !share((float)x->true_density) || !share((float)x->start_density) ||
                 !share((float)x->hot_density))
            what = "figures that are no shares";
    }
    return what ? err_set(e, ERR_FORMAT, "'%s': predictor %zu has %s", p->h5.path, i, what) : 0;
}

static int column(struct trace_h5_file *f, int write, const char *name, enum trace_type type, size_t n,
                  int n_dims, void *data, struct err *e)
{
    struct trace_h5_set s;
    char path[64];
    uint64_t dims[3] = { n, TRACE_PREDICT_POINTS, 4 }, first[3] = { 0, 0, 0 };
    snprintf(path, sizeof path, ROOT "/table/%s", name);
    int r = write ? trace_h5_set_create(f, &s, path, type, 0, n_dims, dims, 1, e)
                  : trace_h5_set_open(f, &s, path, type, NULL, n_dims, dims, e);
    if (r < 0)
        return r;
    r = write ? trace_h5_set_write(&s, first, dims, data, e) : trace_h5_set_read(&s, first, dims, data, e);
    trace_h5_set_close(&s);
    return r;
}

static int columns(struct trace_h5_file *f, int write, struct table *t, size_t n, struct err *e)
{
    int r = 0;
    for (int i = 0; i < U32S && !r; i++)
        r = column(f, write, u32_names[i], TRACE_U32, n, 1, t->u[i], e);
    for (int i = 0; i < F32S && !r; i++)
        r = column(f, write, f32_names[i], TRACE_F32, n, 1, t->f[i], e);
    return r < 0 ? r : column(f, write, "curve", TRACE_F32, n, 3, t->curve, e);
}

/* ---- reading ---- */

/* 0 where it is not recorded. */
static int read_loss_weighting(struct trace_predictors *p, double *out, struct err *e)
{
    double v = 0;
    int r = trace_h5_has_attr(&p->h5, ROOT, "weigh", e);
    if (r < 0 || (r && (r = trace_h5_get_f64(&p->h5, ROOT, "weigh", &v, e)) < 0))
        return r;
    if (!(v >= 0 && v <= 1))
        return err_set(e, ERR_FORMAT, "'%s': attribute 'weigh' of '" ROOT "' is %g, not a share of 0 to 1", p->h5.path, v);
    *out = v;
    return 0;
}

static int read_info(struct trace_predictors *p, const struct trace *t, struct err *e)
{
    struct trace_predict_info *i = &p->info;
    char hash[HASH_TEXT];
    int r;
    if ((r = trace_h5_get_text(&p->h5, ROOT, "tool", i->tool, sizeof i->tool, e)) < 0 ||
        (r = trace_h5_get_text(&p->h5, ROOT, "cpu", i->tier, sizeof i->tier, e)) < 0 ||
        (r = trace_h5_get_text(&p->h5, ROOT, "method", i->method, sizeof i->method, e)) < 0 ||
        (r = trace_h5_get_f64(&p->h5, ROOT, "recall", &i->recall, e)) < 0 || (r = read_loss_weighting(p, &i->loss_weighting, e)) < 0 ||
        (r = trace_h5_get_u64(&p->h5, ROOT, "seed", 0, UINT64_MAX, &i->seed, e)) < 0 ||
        (r = trace_h5_get_u64(&p->h5, ROOT, "epochs", 0, UINT32_MAX, &i->epochs, e)) < 0 ||
        (r = trace_h5_get_text(&p->h5, ROOT, "model_hash", hash, sizeof hash, e)) < 0)
        return r;
    if (hash_parse(hash, &i->model_hash) < 0)
        return err_set(e, ERR_FORMAT, "'%s': attribute 'model_hash' of '" ROOT "' is no hash", p->h5.path);
    return hash_equal(i->model_hash, trace_info(t)->model_hash)
               ? 0
               : err_set(e, ERR_MISMATCH, "'%s': its predictors are of another model than its activations", p->h5.path);
}

static int order(const struct trace_predictor *a, const struct trace_predictor *b)
{
    return a->input != b->input   ? (int)a->input - (int)b->input
           : a->layer != b->layer ? a->layer - b->layer
                                  : a->block - b->block;
}

static int read_table(struct trace_predictors *p, struct err *e)
{
    const struct model_hparams *h = &p->shape.h;
    uint64_t n, most = (uint64_t)PREDICT_INPUTS * (uint64_t)h->n_layers * (uint64_t)model_ffn_blocks(h);
    struct table t = { 0 };
    int r = trace_h5_get_u64(&p->h5, ROOT, "n", 1, most, &n, e);
    if (r < 0)
        return r;
    p->list = calloc((size_t)n, sizeof *p->list);
    r = p->list ? table_new(&t, (size_t)n, e) : err_set(e, ERR_NOMEM, "'%s': %d predictors", p->h5.path, (int)n);
    if (!r)
        r = columns(&p->h5, 0, &t, (size_t)n, e);
    for (size_t i = 0; i < (size_t)n && !r; i++)
        if ((r = from_row(p, &t, i, &p->list[i], e)) == 0 && i && order(&p->list[i - 1], &p->list[i]) >= 0)
            r = err_set(e, ERR_FORMAT, "'%s': predictors are not in ascending order of input, layer, expert",
                        p->h5.path);
    p->n = (int)n;
    table_free(&t);
    return r;
}

int trace_predictors_open(const struct trace *t, struct trace_predictors **out, struct err *e)
{
    struct trace_predictors *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "predictors");
    p->h5.id = -1;
    p->shape.h = trace_info(t)->h;
    int r = trace_h5_open(&p->h5, trace_info(t)->path, e);
    if (!r && (r = trace_h5_exists(&p->h5, ROOT, e)) == 1 && (r = read_info(p, t, e)) == 0 &&
        (r = read_table(p, e)) == 0 &&
        (r = trace_predict_quality_read(&p->h5, p->shape.h.n_layers, p->quality, &p->n_quality, p->corpus, &p->losses, e)) == 0) {
        *out = p;
        return 0;
    }
    trace_predictors_close(p);
    if (!r)
        *out = NULL;
    return r;
}

void trace_predictors_close(struct trace_predictors *p)
{
    if (!p)
        return;
    trace_h5_close(&p->h5, NULL);
    free(p->list);
    free(p->losses.row);
    free(p);
}

const struct trace_predict_info *trace_predictors_info(const struct trace_predictors *p)
{
    return &p->info;
}

const struct trace_predictor *trace_predictors_list(const struct trace_predictors *p, int *n)
{
    *n = p->n;
    return p->list;
}

const struct trace_predictor *trace_predictors_find(const struct trace_predictors *p,
                                                    enum predict_input input, int layer, int block)
{
    const struct trace_predictor key = { .input = input, .layer = layer, .block = block };
    int a = 0, b = p->n;
    while (a < b) {
        int m = a + (b - a) / 2, c = order(&p->list[m], &key);
        if (!c)
            return &p->list[m];
        if (c < 0)
            a = m + 1;
        else
            b = m;
    }
    return NULL;
}

const struct trace_predict_point *trace_predict_point_for(const struct trace_predictor *x, double target)
{
    const struct trace_predict_point *best = &x->at;
    for (int i = 0; i < x->n_points; i++) {
        const struct trace_predict_point *p = &x->curve[i];
        int reaches = (double)p->recall >= target, best_does = (double)best->recall >= target;
        if (reaches != best_does ? reaches
                                 : (reaches ? p->density < best->density : p->recall > best->recall))
            best = p;
    }
    return best;
}

int trace_predict_quality(const struct trace_predictors *p, const struct trace_predict_quality **rows)
{
    *rows = p->quality;
    return p->n_quality;
}

const struct trace_predict_losses *trace_predict_losses(const struct trace_predictors *p)
{
    return &p->losses;
}

const char *trace_predict_corpus(const struct trace_predictors *p)
{
    return p->corpus;
}

static void group_path(const struct trace_predictor *x, int depth, char out[48])
{
    const char *in = predict_input_name(x->input);
    if (depth == 0)
        snprintf(out, 48, ROOT "/%s", in);
    else if (depth == 1)
        snprintf(out, 48, ROOT "/%s/%04d", in, x->layer);
    else
        snprintf(out, 48, ROOT "/%s/%04d/%04d", in, x->layer, x->block);
}

static int weights(struct trace_h5_file *f, int write, const struct trace_predictor *x, const char *name,
                   enum trace_type type, uint64_t rows, uint64_t row, void *in, const void *out,
                   struct err *e)
{
    struct trace_h5_set s;
    char group[48], path[64];
    uint64_t dims[2] = { rows, row }, first[2] = { 0, 0 };
    group_path(x, 2, group);
    snprintf(path, sizeof path, "%s/%s", group, name);
    int n_dims = row ? 2 : 1;
    int r = write ? trace_h5_set_create(f, &s, path, type, 0, n_dims, dims, 0, e)
                  : trace_h5_set_open(f, &s, path, type, NULL, n_dims, dims, e);
    if (r < 0)
        return r;
    r = write ? trace_h5_set_write(&s, first, dims, out, e) : trace_h5_set_read(&s, first, dims, in, e);
    trace_h5_set_close(&s);
    return r;
}

static int all_weights(struct trace_h5_file *f, int write, const struct model_hparams *h,
                       const struct trace_predictor *x, void *const in[3], const void *const out[3],
                       struct err *e)
{
    uint64_t row1 = predict_row1_bytes(x->type1, h->d_model), row2 = predict_row2_bytes(x->type2, x->rank);
    uint64_t n_ff = (uint64_t)model_n_ff(h, x->layer);
    int r;
    if ((r = weights(f, write, x, "fc1", TRACE_U8, (uint64_t)x->rank, row1, in[0], out[0], e)) < 0 ||
        (r = weights(f, write, x, "fc2", TRACE_U8, n_ff, row2, in[1], out[1], e)) < 0 || !x->has_bias)
        return r;
    return weights(f, write, x, "bias", TRACE_F32, n_ff, x->two_sided ? PREDICT_TWO_SIDED : 0, in[2], out[2], e);
}

int trace_predictors_read(struct trace_predictors *p, const struct trace_predictor *x, void *fc1, void *fc2,
                          float *bias, struct err *e)
{
    void *const in[3] = { fc1, fc2, bias };
    const void *const none[3] = { NULL, NULL, NULL };
    size_t numbers = (size_t)model_n_ff(&p->shape.h, x->layer) * (size_t)predict_numbers(1, x->two_sided);
    memset(bias, 0, numbers * sizeof *bias);
    int r = all_weights(&p->h5, 0, &p->shape.h, x, in, none, e);
    for (size_t i = 0; i < numbers && !r; i++)
        if (!isfinite(bias[i]))
            r = err_set(e, ERR_FORMAT, "'%s': the bias of predictor %s of layer %d, expert %d is not finite", p->h5.path,
                        predict_input_name(x->input), x->layer, x->block);
    if (!r && !predict_check_selected(x->type1, fc1, x->rank, p->shape.h.d_model))
        r = err_set(e, ERR_FORMAT, "'%s': fc1 of predictor %s of layer %d, expert %d selects an input beyond the %d that there "
                    "are, or with a factor that is not finite", p->h5.path, predict_input_name(x->input), x->layer, x->block,
                    p->shape.h.d_model);
    return r;
}

/* ---- writing ---- */

static int put_info(struct trace_h5_file *f, const struct trace_predict_info *i, int n, struct err *e)
{
    char hash[HASH_TEXT];
    int r;
    hash_text(i->model_hash, hash);
    if ((r = trace_h5_put_text(f, ROOT, "tool", i->tool, e)) < 0 ||
        (r = trace_h5_put_text(f, ROOT, "cpu", i->tier, e)) < 0 ||
        (r = trace_h5_put_text(f, ROOT, "method", i->method, e)) < 0 ||
        (r = trace_h5_put_f64(f, ROOT, "recall", i->recall, e)) < 0 ||
        (i->loss_weighting != 0 && (r = trace_h5_put_f64(f, ROOT, "weigh", i->loss_weighting, e)) < 0) ||
        (r = trace_h5_put_u64(f, ROOT, "seed", i->seed, e)) < 0 ||
        (r = trace_h5_put_u64(f, ROOT, "epochs", i->epochs, e)) < 0 ||
        (r = trace_h5_put_text(f, ROOT, "model_hash", hash, e)) < 0)
        return r;
    return trace_h5_put_u64(f, ROOT, "n", (uint64_t)n, e);
}

static int put_groups(struct trace_h5_file *f, const struct trace_predictor *before,
                      const struct trace_predictor *x, struct err *e)
{
    int r = 0;
    for (int depth = 0; depth < 3 && !r; depth++) {
        char path[48], was[48] = "";
        if (before)
            group_path(before, depth, was);
        group_path(x, depth, path);
        if (strcmp(path, was))
            r = trace_h5_group_create(f, path, e);
    }
    return r;
}

static int put_all(struct trace_h5_file *f, const struct trace_info *t, const struct trace_predict_info *info, int n,
                   trace_predict_fetch *fetch, void *ctx, struct err *e)
{
    struct table table;
    struct trace_predictor x, before;
    void *const none[3] = { NULL, NULL, NULL };
    int r = table_new(&table, (size_t)n, e);
    if (!r && (r = trace_h5_remove(f, ROOT, e)) == 0 && (r = trace_h5_group_create(f, ROOT, e)) == 0 &&
        (r = trace_h5_group_create(f, ROOT "/table", e)) == 0)
        r = put_info(f, info, n, e);
    for (int i = 0; i < n && !r; i++) {
        const void *out[3];
        const float *bias;
        if ((r = fetch(ctx, i, &x, &out[0], &out[1], &bias, e)) < 0)
            break;
        out[2] = bias;
        if ((r = put_groups(f, i ? &before : NULL, &x, e)) == 0)
            r = all_weights(f, 1, &t->h, &x, none, out, e);
        to_row(&x, &table, (size_t)i);
        before = x;
    }
    if (!r)
        r = columns(f, 1, &table, (size_t)n, e);
    table_free(&table);
    return r;
}

static int write_piece(void *ctx, const void *data, size_t len, struct err *e)
{
    return file_out_write(ctx, data, len, e);
}

static int copy_file(const char *path, struct file_out *out, struct err *e)
{
    struct file f;
    int r = file_open(&f, path, e);
    if (r < 0)
        return r;
    r = file_each(&f, 0, f.size, write_piece, out, e);
    file_close(&f);
    return r;
}

/* A copy of the trace at path, changed by put, under the name out. */
static int rewrite(const char *path, const char *out,
                   int (*put)(void *ctx, struct trace_h5_file *f, const struct trace *t, struct err *e), void *ctx,
                   struct err *e)
{
    struct trace *t;
    struct file_out o = { .fd = -1 };
    struct trace_h5_file h5 = { .id = -1 };
    int r = trace_open(path, &t, e); /* it is a trace, and whole as far as opening tells */
    if (r < 0)
        return r;
    if ((r = file_out_open(&o, out, e)) == 0 && (r = copy_file(path, &o, e)) == 0 &&
        (r = trace_h5_append(&h5, o.tmp, out, e)) == 0) {
        r = put(ctx, &h5, t, e);
        struct err second;
        int c = trace_h5_close(&h5, r ? &second : e);
        r = r ? r : c;
    }
    trace_close(t);
    if (!r)
        return file_out_commit(&o, e);
    file_out_abort(&o);
    return r;
}

struct saving {
    const struct trace_predict_info *info;
    unsigned unchanged;
    int n;
    trace_predict_fetch *fetch;
    void *ctx;
};

static int put_predictors(void *ctx, struct trace_h5_file *f, const struct trace *t, struct err *e)
{
    const struct saving *s = ctx;
    struct trace_predict_quality rows[TRACE_PREDICT_QUALITY];
    struct trace_predict_losses losses = { 0 };
    char corpus[TRACE_PREDICT_CORPUS];
    int n = 0, kept = 0, left = 0, r = trace_h5_exists(f, ROOT, e);
    if (r > 0)
        r = trace_predict_quality_read(f, trace_info(t)->h.n_layers, rows, &n, corpus, &losses, e);
    for (int i = 0; i < n; i++)
        if (s->unchanged >> rows[i].input & 1)
            rows[kept++] = rows[i];
    for (int i = 0; i < losses.n; i++)
        if (s->unchanged >> losses.row[i].input & 1)
            losses.row[left++] = losses.row[i];
    losses.n = left;
    if (r >= 0)
        r = put_all(f, trace_info(t), s->info, s->n, s->fetch, s->ctx, e);
    if (r >= 0 && kept)
        r = trace_predict_quality_write(f, rows, kept, corpus, &losses, e);
    free(losses.row);
    return r;
}

int trace_predictors_save(const char *path, const char *out, const struct trace_predict_info *info, unsigned unchanged,
                          int n, trace_predict_fetch *fetch, void *ctx, struct err *e)
{
    struct saving s = { info, unchanged, n, fetch, ctx };
    return rewrite(path, out, put_predictors, &s, e);
}

struct measured {
    const struct trace_predict_quality *rows;
    int n;
    const char *corpus;
    const struct trace_predict_losses *losses;
};

static int put_quality(void *ctx, struct trace_h5_file *f, const struct trace *t, struct err *e)
{
    const struct measured *m = ctx;
    int r = trace_h5_exists(f, ROOT, e);
    if (!r)
        return err_set(e, ERR_INPUT, "'%s' holds no predictors whose quality could be stored", trace_info(t)->path);
    return r < 0 ? r : trace_predict_quality_write(f, m->rows, m->n, m->corpus, m->losses, e);
}

int trace_predict_save_quality(const char *path, const char *out, const struct trace_predict_quality *rows, int n,
                               const char *corpus, const struct trace_predict_losses *losses, struct err *e)
{
    struct measured m = { rows, n, corpus, losses };
    return rewrite(path, out, put_quality, &m, e);
}
