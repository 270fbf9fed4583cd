/* A dataset per column, as the table of predictors has; at most TRACE_PREDICT_QUALITY rows, so it is read whole into
 * fixed arrays. Losses stand beside it, in datasets of their own. */
#include "common/offline/trace/trace_predict_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/predictors/quality"

enum { INPUT, TOKENS, U32S };
enum { TARGET, RECALL, DENSITY, TRUE_DENSITY, KL_MEAN, KL_MAX, TOP1, PPL_RATIO, F32S };
static const char *const u32_names[U32S] = { "input", "tokens" };
static const char *const f32_names[F32S] = { "target",  "recall", "density", "true_density",
                                             "kl_mean", "kl_max", "top1",    "ppl_ratio" };

struct columns {
    uint32_t u[U32S][TRACE_PREDICT_QUALITY];
    float f[F32S][TRACE_PREDICT_QUALITY];
};

/* A dataset of n rows of `each` numbers, [n][each / PARTS][PARTS] where there are several. */
static int columns(struct trace_h5_file *f, int write, const char *name, enum trace_type type, int n, int each, void *data, struct err *e)
{
    enum { PARTS = TRACE_PREDICT_PARTS };
    struct trace_h5_set s;
    char path[64];
    uint64_t dims[3] = { (uint64_t)n, (uint64_t)each / PARTS, PARTS }, first[3] = { 0 };
    int n_dims = each > 1 ? 3 : 1;
    snprintf(path, sizeof path, ROOT "/%s", name);
    int r = write ? trace_h5_set_create(f, &s, path, type, 0, n_dims, dims, 0, e)
                  : trace_h5_set_open(f, &s, path, type, NULL, n_dims, dims, e);
    if (r < 0)
        return r;
    r = write ? trace_h5_set_write(&s, first, dims, data, e) : trace_h5_set_read(&s, first, dims, data, e);
    trace_h5_set_close(&s);
    return r;
}

static int column(struct trace_h5_file *f, int write, const char *name, enum trace_type type, int n, void *data, struct err *e)
{
    return columns(f, write, name, type, n, 1, data, e);
}

static int all_columns(struct trace_h5_file *f, int write, int n, struct columns *c, struct err *e)
{
    int r = 0;
    for (int i = 0; i < U32S && !r; i++)
        r = column(f, write, u32_names[i], TRACE_U32, n, c->u[i], e);
    for (int i = 0; i < F32S && !r; i++)
        r = column(f, write, f32_names[i], TRACE_F32, n, c->f[i], e);
    return r;
}

static int share(float v)
{
    return v >= 0 && v <= 1;
}

static const char *wrong(const struct columns *c, int i)
{
    if (c->u[INPUT][i] >= PREDICT_INPUTS || !c->u[TOKENS][i])
        return "an unknown input or no tokens";
    if (!share(c->f[TARGET][i]) || !share(c->f[RECALL][i]) || !share(c->f[DENSITY][i]) ||
        !share(c->f[TRUE_DENSITY][i]) || !share(c->f[TOP1][i]))
        return "figures that are no shares";
    if (!(c->f[KL_MEAN][i] >= 0) || !(c->f[KL_MAX][i] >= c->f[KL_MEAN][i]) || !isfinite(c->f[KL_MAX][i]) ||
        !(c->f[PPL_RATIO][i] > 0) || !isfinite(c->f[PPL_RATIO][i]))
        return "a divergence or perplexity that cannot be";
    if (i && (c->u[INPUT][i] < c->u[INPUT][i - 1] ||
              (c->u[INPUT][i] == c->u[INPUT][i - 1] && !(c->f[TARGET][i] > c->f[TARGET][i - 1]))))
        return "no place in the ascending order of input and target";
    return NULL;
}

/* ---- losses ---- */

enum { POINTS = TRACE_PREDICT_POINTS, PARTS = TRACE_PREDICT_PARTS };

/* The rows as columns: input and layer, kl_per_energy, energies. */
struct loss_columns {
    uint32_t *u;                 /* [2][n] */
    float *kl, *energy;          /* [n], [n][n_targets][PARTS] */
};

static int loss_columns_new(struct loss_columns *c, int n, int n_targets, struct err *e)
{
    size_t rows = (size_t)n;
    *c = (struct loss_columns){ malloc(2 * rows * sizeof *c->u), malloc(rows * sizeof *c->kl),
                                malloc(rows * (size_t)(n_targets * PARTS) * sizeof *c->energy) };
    return c->u && c->kl && c->energy ? 0 : err_set(e, ERR_NOMEM, "losses of %d predictors", n);
}

static void loss_columns_done(struct loss_columns *c)
{
    free(c->u), free(c->kl), free(c->energy);
}

static int all_losses(struct trace_h5_file *f, int write, struct trace_predict_losses *l, struct loss_columns *c, struct err *e)
{
    int r = column(f, write, "loss_target", TRACE_F32, l->n_targets, l->target, e);
    r = r < 0 ? r : column(f, write, "loss_input", TRACE_U32, l->n, c->u, e);
    r = r < 0 ? r : column(f, write, "loss_layer", TRACE_U32, l->n, c->u + l->n, e);
    r = r < 0 ? r : column(f, write, "loss_kl_per_energy", TRACE_F32, l->n, c->kl, e);
    return r < 0 ? r : columns(f, write, "loss_energy", TRACE_F32, l->n, l->n_targets * PARTS, c->energy, e);
}

static const char *wrong_loss(const struct trace_predict_losses *l, const struct loss_columns *c, int n_layers, int i)
{
    const uint32_t *input = c->u, *layer = c->u + l->n;
    size_t each = (size_t)(l->n_targets * PARTS);
    if (input[i] >= PREDICT_INPUTS || layer[i] >= (uint32_t)n_layers)
        return "an unknown input or layer";
    if (i && (input[i] < input[i - 1] || (input[i] == input[i - 1] && layer[i] <= layer[i - 1])))
        return "no place in the ascending order of input and layer";
    for (size_t k = 0; k < each; k++)
        if (!(c->energy[(size_t)i * each + k] >= 0) || !isfinite(c->energy[(size_t)i * each + k]))
            return "an energy that cannot be";
    return c->kl[i] >= 0 && isfinite(c->kl[i]) ? NULL : "a divergence that cannot be";
}

static int take_losses(const struct trace_h5_file *f, const struct loss_columns *c, int n_layers, struct trace_predict_losses *l,
                       struct err *e)
{
    for (int k = 0; k < l->n_targets; k++)
        if (!share(l->target[k]) || (k && !(l->target[k] > l->target[k - 1])))
            return err_set(e, ERR_FORMAT, "'%s': " ROOT "/loss_target does not ascend from 0 to 1", f->path);
    for (int i = 0; i < l->n; i++) {
        const char *what = wrong_loss(l, c, n_layers, i);
        if (what)
            return err_set(e, ERR_FORMAT, "'%s': loss %d of " ROOT " has %s", f->path, i, what);
        l->row[i].input = (enum predict_input)c->u[i];
        l->row[i].layer = (int)c->u[l->n + i];
        l->row[i].kl_per_energy = (double)c->kl[i];
        memcpy(l->row[i].energy, c->energy + (size_t)(i * l->n_targets * PARTS), (size_t)(l->n_targets * PARTS) * sizeof *c->energy);
    }
    return 0;
}

static int read_losses(struct trace_h5_file *f, int n_layers, struct trace_predict_losses *out, struct err *e)
{
    uint64_t n, n_targets;
    struct loss_columns c = { 0 };
    int r = trace_h5_has_attr(f, ROOT, "n_losses", e);
    if (r <= 0 || (r = trace_h5_get_u64(f, ROOT, "n_losses", 1, (uint64_t)(PREDICT_INPUTS * n_layers), &n, e)) < 0 ||
        (r = trace_h5_get_u64(f, ROOT, "n_targets", 1, POINTS, &n_targets, e)) < 0)
        return r;
    struct trace_predict_losses l = { (int)n, (int)n_targets, { 0 }, calloc((size_t)n, sizeof *l.row) };
    r = l.row ? loss_columns_new(&c, l.n, l.n_targets, e) : err_set(e, ERR_NOMEM, "losses of %d predictors", l.n);
    if (r == 0 && (r = all_losses(f, 0, &l, &c, e)) == 0)
        r = take_losses(f, &c, n_layers, &l, e);
    loss_columns_done(&c);
    if (r == 0)
        *out = l;
    else
        free(l.row);
    return r;
}

static int write_losses(struct trace_h5_file *f, const struct trace_predict_losses *given, struct err *e)
{
    struct trace_predict_losses l = *given;
    struct loss_columns c;
    size_t each = (size_t)(l.n_targets * PARTS);
    int r = loss_columns_new(&c, l.n, l.n_targets, e);
    for (int i = 0; i < l.n && r == 0; i++) {
        c.u[i] = (uint32_t)l.row[i].input;
        c.u[l.n + i] = (uint32_t)l.row[i].layer;
        c.kl[i] = (float)l.row[i].kl_per_energy;
        memcpy(c.energy + (size_t)i * each, l.row[i].energy, each * sizeof *c.energy);
    }
    if (r == 0 && (r = trace_h5_put_u64(f, ROOT, "n_losses", (uint64_t)l.n, e)) == 0 &&
        (r = trace_h5_put_u64(f, ROOT, "n_targets", (uint64_t)l.n_targets, e)) == 0)
        r = all_losses(f, 1, &l, &c, e);
    loss_columns_done(&c);
    return r;
}

/* ---- all of it ---- */

int trace_predict_quality_read(struct trace_h5_file *f, int n_layers, struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                               char *corpus, struct trace_predict_losses *losses, struct err *e)
{
    struct columns c;
    uint64_t count;
    *n = 0;
    *losses = (struct trace_predict_losses){ 0 };
    corpus[0] = 0;
    int r = trace_h5_exists(f, ROOT, e);
    if (r <= 0)
        return r;
    if ((r = trace_h5_get_u64(f, ROOT, "n", 1, TRACE_PREDICT_QUALITY, &count, e)) < 0 ||
        (r = trace_h5_get_text(f, ROOT, "corpus", corpus, TRACE_PREDICT_CORPUS, e)) < 0 ||
        (r = all_columns(f, 0, (int)count, &c, e)) < 0)
        return r;
    for (int i = 0; i < (int)count; i++) {
        const char *what = wrong(&c, i);
        if (what)
            return err_set(e, ERR_FORMAT, "'%s': row %d of " ROOT " has %s", f->path, i, what);
        rows[i] = (struct trace_predict_quality){ .input = (enum predict_input)c.u[INPUT][i],
                                                  .target = (double)c.f[TARGET][i],
                                                  .recall = (double)c.f[RECALL][i],
                                                  .density = (double)c.f[DENSITY][i],
                                                  .true_density = (double)c.f[TRUE_DENSITY][i],
                                                  .kl_mean = (double)c.f[KL_MEAN][i],
                                                  .kl_max = (double)c.f[KL_MAX][i],
                                                  .top1 = (double)c.f[TOP1][i],
                                                  .ppl_ratio = (double)c.f[PPL_RATIO][i],
                                                  .tokens = c.u[TOKENS][i] };
    }
    *n = (int)count;
    return read_losses(f, n_layers, losses, e);
}

int trace_predict_quality_write(struct trace_h5_file *f, const struct trace_predict_quality *rows, int n, const char *corpus,
                                const struct trace_predict_losses *losses, struct err *e)
{
    struct columns c = { 0 };
    int r = trace_h5_remove(f, ROOT, e);
    if (r < 0 || !n)
        return r;
    for (int i = 0; i < n; i++) {
        const struct trace_predict_quality *q = &rows[i];
        const float v[F32S] = { (float)q->target,  (float)q->recall, (float)q->density, (float)q->true_density,
                                (float)q->kl_mean, (float)q->kl_max, (float)q->top1,    (float)q->ppl_ratio };
        c.u[INPUT][i] = (uint32_t)q->input;
        c.u[TOKENS][i] = q->tokens < UINT32_MAX ? (uint32_t)q->tokens : UINT32_MAX;
        for (int k = 0; k < F32S; k++)
            c.f[k][i] = v[k];
    }
    if ((r = trace_h5_group_create(f, ROOT, e)) < 0 || (r = trace_h5_put_u64(f, ROOT, "n", (uint64_t)n, e)) < 0 ||
        (r = trace_h5_put_text(f, ROOT, "corpus", corpus, e)) < 0)
        return r;
    r = all_columns(f, 1, n, &c, e);
    return r < 0 || !losses || !losses->n ? r : write_losses(f, losses, e);
}
