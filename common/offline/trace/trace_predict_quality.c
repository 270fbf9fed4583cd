/* A dataset per column, as the table of predictors has; at most TRACE_PREDICT_QUALITY rows, so it is read whole into
 * fixed arrays. */
#include "common/offline/trace/trace_predict_impl.h"

#include <math.h>
#include <stdio.h>
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

static int column(struct trace_h5_file *f, int write, const char *name, enum trace_type type, int n, void *data,
                  struct err *e)
{
    struct trace_h5_set s;
    char path[64];
    uint64_t dims[1] = { (uint64_t)n }, first[1] = { 0 };
    snprintf(path, sizeof path, ROOT "/%s", name);
    int r = write ? trace_h5_set_create(f, &s, path, type, 0, 1, dims, 0, e)
                  : trace_h5_set_open(f, &s, path, type, NULL, 1, dims, e);
    if (r < 0)
        return r;
    r = write ? trace_h5_set_write(&s, first, dims, data, e) : trace_h5_set_read(&s, first, dims, data, e);
    trace_h5_set_close(&s);
    return r;
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

int trace_predict_quality_read(struct trace_h5_file *f, struct trace_predict_quality rows[TRACE_PREDICT_QUALITY], int *n,
                       char *corpus, struct err *e)
{
    struct columns c;
    uint64_t count;
    *n = 0;
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
    return 0;
}

int trace_predict_quality_write(struct trace_h5_file *f, const struct trace_predict_quality *rows, int n, const char *corpus,
                        struct err *e)
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
    return all_columns(f, 1, n, &c, e);
}
