/* A pass hands over each token's gates and ups of a layer (forward_probe), kept for the layer and then summed up neuron by neuron, in the
 * order of tokens, so nothing depends on the number of workers. The first pass gives thresholds but for c, the second, when c is
 * known, what is kept and lost at each bound. */
#include "profiler/trace/cold.h"

#include "common/base/progress.h"
#include "common/offline/forward.h"
#include "common/offline/trace/trace.h"
#include "profiler/trace/thresholds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = TRACE_COLD_LEVELS, GROUPS = 8, PANEL = 64 };

#define LEFT_OUT 0.7 /* of firings, those of least energy, where c is measured */

struct work {
    const struct model *m;
    struct pool *pool;
    struct cold *o;
    size_t n_tokens, n_ff;       /* of the model's widest layer */
    float *gate, *up;            /* [n_tokens][n_ff]: 0 where the neuron does not fire */
    float *energy, *norm;        /* [n_layers][n_ff]: E[u^2 | it fires] |down|^2; |down|^2 */
    float *tau;                  /* [n_layers]: g^2 energy below which LEFT_OUT of firings are */
    double c[GROUPS];            /* nats per energy */
    double *lost;                /* [1 + groups][tokens of few]: energy */
    size_t n_few;
    int n_groups, layer, last;   /* last: it is the second pass */
    struct progress progress;
};

static int group_of(const struct work *w, int layer)
{
    return layer * w->n_groups / w->m->h.n_layers;
}

static int next_layer(void *ctx, int layer, struct err *e)
{
    (void)e;
    ((struct work *)ctx)->layer = layer;
    return 0;
}

static void gates(void *ctx, int block, size_t token, float *gate, float *up)
{
    struct work *w = ctx;
    float *g = w->gate + token * w->n_ff, *u = w->up + token * w->n_ff;
    (void)block;
    for (int i = 0; i < model_n_ff(&w->m->h, w->layer); i++) {
        int fires = gate[i] > 0;
        g[i] = fires ? gate[i] : 0, u[i] = fires ? up[i] : 0;
    }
}

/* Energies of neurons [begin, end). */
static void energies(void *ctx, int begin, int end, int worker)
{
    struct work *w = ctx;
    size_t at = (size_t)w->layer * w->n_ff;
    double sum[PANEL] = { 0 };
    size_t n[PANEL] = { 0 };
    (void)worker;
    for (size_t t = 0; t < w->n_tokens; t++)
        for (int i = begin; i < end; i++) {
            double u = (double)w->up[t * w->n_ff + (size_t)i];
            sum[i - begin] += u * u, n[i - begin] += w->gate[t * w->n_ff + (size_t)i] > 0;
        }
    for (int i = begin; i < end; i++)
        w->energy[at + (size_t)i] = n[i - begin] ? (float)(sum[i - begin] / (double)n[i - begin]) * w->norm[at + (size_t)i] : 0;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* tau of a layer, by every so many tokens. */
static int find_tau(struct work *w, struct err *e)
{
    size_t n = 0, step = w->n_tokens / 256 + 1, width = (size_t)model_n_ff(&w->m->h, w->layer);
    const float *energy = w->energy + (size_t)w->layer * w->n_ff;
    float *all = malloc((w->n_tokens / step + 1) * width * sizeof *all);
    if (!all)
        return err_set(e, ERR_NOMEM, "firings of layer %d", w->layer);
    for (size_t t = 0; t < w->n_tokens; t += step)
        for (size_t i = 0; i < width; i++) {
            float g = w->gate[t * w->n_ff + i];
            if (g > 0)
                all[n++] = g * g * energy[i];
        }
    qsort(all, n, sizeof *all, ascending);
    w->tau[w->layer] = n ? all[(size_t)(LEFT_OUT * (double)(n - 1))] : 0;
    free(all);
    return 0;
}

/* What is kept and lost of neurons [begin, end) at each bound. */
static void curves(void *ctx, int begin, int end, int worker)
{
    struct work *w = ctx;
    size_t at = (size_t)w->layer * w->n_ff;
    double c = w->c[group_of(w, w->layer)];
    (void)worker;
    for (int i = begin; i < end; i++) {
        double n[LEVELS + 1] = { 0 }, lost[LEVELS + 1] = { 0 }, all = 0, left = 0, sum = 0;
        float *out = w->o->curves + (at + (size_t)i) * 2 * LEVELS;
        for (size_t t = 0; t < w->n_tokens; t++) {
            double g = (double)w->gate[t * w->n_ff + (size_t)i], u = (double)w->up[t * w->n_ff + (size_t)i];
            int k = 0;
            if (!(g > 0))
                continue;
            while (k < LEVELS && trace_cold_loss(k) < g * g * (double)w->energy[at + (size_t)i] * c)
                k++;
            all++, n[k]++, lost[k] += g * g * u * u * (double)w->norm[at + (size_t)i] * c;
        }
        for (int k = 0; k < LEVELS; k++) {
            left += n[k], sum += lost[k];
            out[k] = all > 0 ? (float)((all - left) / all) : 1;
            out[LEVELS + k] = (float)fmin(sum / (double)w->n_tokens, (double)FLT_MAX);
        }
    }
}

static int on_layer(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct work *w = ctx;
    size_t at = (size_t)l->layer * w->n_ff;
    int r = 0, n = model_n_ff(&w->m->h, l->layer);
    if (w->last) {
        pool_for(w->pool, n, PANEL, curves, w);
    } else if ((r = thresholds_norms(w->m, l->layer, w->norm + at, e)) == 0) {
        for (int i = 0; i < n; i++)
            w->norm[at + (size_t)i] *= w->norm[at + (size_t)i];
        pool_for(w->pool, n, PANEL, energies, w);
        r = find_tau(w, e);
    }
    progress_add(&w->progress, 1);
    return r;
}

static int pass(struct work *w, const struct corpus *c, struct err *e)
{
    const struct forward_probe probe = { .ctx = w, .layer = next_layer, .gates = gates };
    const struct forward_run run = { .tokens = c->tokens, .starts = c->starts, .n_sequences = (size_t)c->n_sequences,
                                     .on_layer = on_layer, .ctx = w, .probe = &probe };
    struct forward *f = NULL;
    int r = forward_new(w->m, w->pool, thresholds_longest(c), &f, e);
    progress_init(&w->progress, w->last ? "losses" : "thresholds", "layers", (uint64_t)w->m->h.n_layers);
    r = r < 0 ? r : forward_run(f, &run, e);
    progress_done(&w->progress);
    forward_free(f);
    return r;
}

/* Variant 1 + g leaves out the least of group g's layers. */
static void leave_out(void *ctx, int layer, int v, size_t token, float *gate, const float *up)
{
    struct work *w = ctx;
    size_t at = (size_t)layer * w->n_ff;
    if (v != 1 + group_of(w, layer))
        return;
    for (size_t i = 0; i < (size_t)model_n_ff(&w->m->h, layer); i++) {
        float g = gate[i];
        if (!(g > 0) || g * g * w->energy[at + i] > w->tau[layer])
            continue;
        w->lost[(size_t)v * w->n_few + token] += (double)g * (double)g * (double)up[i] * (double)up[i] * (double)w->norm[at + i];
        gate[i] = 0;
    }
}

/* Where a group loses nothing, all of them together say what an energy costs. */
static int measure(struct work *w, const struct corpus *few, struct err *e)
{
    struct compare compare = { 0 };
    double energy[GROUPS] = { 0 }, all = 0, kl = 0;
    w->n_few = (size_t)few->n_tokens;
    w->lost = calloc((size_t)(1 + w->n_groups) * w->n_few, sizeof *w->lost);
    int r = w->lost ? thresholds_compare(w->m, few, 1 + w->n_groups, leave_out, w, w->pool, &compare, e)
                    : err_set(e, ERR_NOMEM, "%zu tokens", w->n_few);
    for (int g = 0; g < w->n_groups && r == 0; g++) {
        for (size_t t = 0; t < w->n_few; t++)
            energy[g] += w->lost[(size_t)(1 + g) * w->n_few + t];
        w->c[g] = compare.v[1 + g].kl;
        all += energy[g], kl += w->c[g];
    }
    for (int g = 0; g < w->n_groups && r == 0; g++)
        w->c[g] = energy[g] > 0 && w->c[g] > 0 ? w->c[g] / energy[g] : all > 0 ? kl / all : 0;
    compare_done(&compare);
    return r;
}

static void thresholds(struct work *w)
{
    for (int l = 0; l < w->m->h.n_layers; l++)
        for (int i = 0; i < model_n_ff(&w->m->h, l); i++) {
            size_t at = (size_t)l * w->n_ff + (size_t)i;
            double x = (double)w->energy[at] * w->c[group_of(w, l)], t = x > 0 ? 1 / sqrt(x) : 0;
            w->o->thresholds[at] = t < (double)FLT_MAX ? (float)t : FLT_MAX;
        }
}

int cold_new(const struct model *m, const struct corpus *c, const struct corpus *few, struct pool *pool, struct cold *out,
             struct err *e)
{
    const struct model_given as = { (int)m->h.act, m->h.router, &(const float){ 0 }, 0 };
    struct model_hparams with;
    int r = model_hparams_read(m->gguf, &as, &with, e); /* may it have thresholds? */
    if (r < 0)
        return r;
    if (!with.cold_thresholds || m->h.cold_thresholds)
        return err_set(e, ERR_UNSUPPORTED, "'%s': thresholds of cold neurons: %s", gguf_name(m->gguf),
                       m->h.cold_thresholds ? "it has some already" : "they need a gate with ReLU");
    size_t layers = (size_t)m->h.n_layers, n_ff = (size_t)m->h.n_ff, n = (size_t)c->n_tokens;
    struct cold o = { calloc(layers * n_ff, sizeof *o.thresholds), calloc(layers * n_ff * 2 * LEVELS, sizeof *o.curves) };
    struct work w = { .m = m, .pool = pool, .o = &o, .n_tokens = n, .n_ff = n_ff,
                      .n_groups = m->h.n_layers < GROUPS ? m->h.n_layers : GROUPS,
                      .gate = calloc(n * n_ff, sizeof *w.gate), .up = calloc(n * n_ff, sizeof *w.up),
                      .energy = calloc(layers * n_ff, sizeof *w.energy), .norm = calloc(layers * n_ff, sizeof *w.norm),
                      .tau = calloc(layers, sizeof *w.tau) };
    if (!o.thresholds || !o.curves || !w.gate || !w.up || !w.energy || !w.norm || !w.tau)
        r = err_set(e, ERR_NOMEM, "gates of %zu tokens", n);
    if (r == 0 && (r = pass(&w, c, e)) == 0 && (r = measure(&w, few, e)) == 0) {
        thresholds(&w);
        w.last = 1;
        r = pass(&w, c, e);
    }
    free(w.gate), free(w.up), free(w.energy), free(w.norm), free(w.tau), free(w.lost);
    if (r < 0)
        cold_done(&o);
    else
        *out = o;
    return r;
}

void cold_done(struct cold *c)
{
    free(c->thresholds);
    free(c->curves);
    *c = (struct cold){ 0 };
}
