/* A pass hands over each token's gates and ups (forward_probe); after a layer they are summed up neuron by neuron and sorted into a
 * histogram of scores, whose bins are the leading bits of a float: eight of the mantissa. Sums are of one worker each and in
 * the order of tokens, counts are integers, so nothing depends on the number of workers. */
#include "profiler/trace/thresholds.h"

#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/kernels/quant.h"
#include "common/model/nn.h"
#include "common/offline/forward.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BIN_SHIFT = 15, BINS = 1 << (32 - 1 - BIN_SHIFT), PANEL = 64 };

struct thresholds {
    struct model_hparams h;
    uint64_t n_tokens;
    float *unit;             /* [n_layers][n_ff]: E|u| |down| */
    uint32_t (*counts)[BINS]; /* [n_layers]: of scores */
};

/* A pass. */
struct collect {
    struct thresholds *t;
    const struct model *m;
    struct pool *pool;
    uint16_t *act, *up;      /* F16 [n_tokens][n_ff]: |act(g)|, |u| of the layer */
    uint32_t (*own)[BINS];   /* [workers] */
    int layer;
    struct progress progress;
};

static size_t n_ff_of(const struct collect *c)
{
    return (size_t)model_n_ff(&c->t->h, c->layer);
}

static float *unit_of(const struct collect *c)
{
    return c->t->unit + (size_t)c->layer * (size_t)c->t->h.n_ff;
}

static int next_layer(void *ctx, int layer, struct err *e)
{
    (void)e;
    ((struct collect *)ctx)->layer = layer;
    return 0;
}

static uint16_t size_f16(float x)
{
    x = fabsf(x);
    return quant_f32_to_f16(x < 65504.0f ? x : 65504.0f);
}

static void gates(void *ctx, int block, size_t token, float *gate, float *up)
{
    struct collect *c = ctx;
    size_t n = n_ff_of(c);
    uint16_t *act = c->act + token * n, *u = c->up + token * n;
    (void)block;
    for (size_t at = 0; at < n; at += PANEL) {
        float a[PANEL], one[PANEL];
        size_t k = n - at < PANEL ? n - at : PANEL;
        for (size_t i = 0; i < k; i++)
            one[i] = 1;
        nn_ffn_act(a, gate + at, one, (int)k, c->t->h.act);
        for (size_t i = 0; i < k; i++)
            act[at + i] = size_f16(a[i]), u[at + i] = size_f16(up[at + i]);
    }
}

/* unit of neurons [begin, end), which has |down| so far. */
static void mean_sweep(void *ctx, int begin, int end, int worker)
{
    struct collect *c = ctx;
    size_t n = n_ff_of(c);
    double sum[PANEL] = { 0 };
    (void)worker;
    for (size_t t = 0; t < c->t->n_tokens; t++)
        for (int i = begin; i < end; i++)
            sum[i - begin] += (double)quant_f16_to_f32(c->up[t * n + (size_t)i]);
    for (int i = begin; i < end; i++)
        unit_of(c)[i] *= (float)(sum[i - begin] / (double)c->t->n_tokens);
}

static uint32_t bin_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> BIN_SHIFT;
}

static float bin_begin(uint32_t bin)
{
    uint32_t bits = bin << BIN_SHIFT;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void count_sweep(void *ctx, int begin, int end, int worker)
{
    struct collect *c = ctx;
    size_t n = n_ff_of(c);
    const float *unit = unit_of(c);
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        for (size_t i = 0; i < n; i++)
            c->own[worker][bin_of(quant_f16_to_f32(c->act[t * n + i]) * unit[i])]++;
}

int thresholds_norms(const struct model *m, int layer, float *out, struct err *e)
{
    const struct gguf_tensor *t = m->layer[layer][MODEL_FFN_DOWN];
    const struct quant_traits *q = quant_traits(t->type);
    size_t n = (size_t)model_n_ff(&m->h, layer), len = (size_t)t->dims[0];
    uint8_t *raw = malloc((size_t)t->row_bytes);
    float *row = malloc(len * sizeof *row);
    double *sum = calloc(n, sizeof *sum);
    int r = raw && row && sum ? 0 : err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
    for (uint64_t k = 0; k < t->dims[1] && r == 0; k++) {
        if ((r = gguf_read(m->gguf, t, k * t->row_bytes, raw, (size_t)t->row_bytes, e)) < 0)
            break;
        q->dequant(row, raw, len);
        for (size_t i = 0; i < len; i++)
            sum[m->h.down_by_neuron ? k : i] += (double)row[i] * (double)row[i];
    }
    for (size_t i = 0; i < n && r == 0; i++)
        out[i] = (float)sqrt(sum[i]);
    free(raw), free(row), free(sum);
    return r;
}

static int on_layer(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct collect *c = ctx;
    int r = thresholds_norms(c->m, l->layer, unit_of(c), e);
    if (r < 0)
        return r;
    memset(c->own, 0, (size_t)pool_threads(c->pool) * sizeof *c->own);
    pool_for(c->pool, (int)n_ff_of(c), PANEL, mean_sweep, c);
    pool_for(c->pool, (int)c->t->n_tokens, PANEL, count_sweep, c);
    for (int w = 0; w < pool_threads(c->pool); w++)
        for (int b = 0; b < BINS; b++)
            c->t->counts[l->layer][b] += c->own[w][b];
    progress_add(&c->progress, 1);
    return 0;
}

int thresholds_longest(const struct corpus *c)
{
    uint64_t most = 1;
    for (uint64_t s = 0; s < c->n_sequences; s++)
        most = c->starts[s + 1] - c->starts[s] > most ? c->starts[s + 1] - c->starts[s] : most;
    return (int)most;
}

int thresholds_new(const struct model *m, const struct corpus *c, struct pool *pool, struct thresholds **out, struct err *e)
{
    const struct model_given as = { (int)m->h.act, m->h.router, &(const float){ 0 }, 0 };
    struct model_hparams with;
    int r = model_hparams_read(m->gguf, &as, &with, e); /* may it have thresholds? */
    if (r < 0)
        return r;
    if (!with.thresholds)
        return err_set(e, ERR_UNSUPPORTED, "'%s': thresholds of neurons: its activation gives exact zeros already", gguf_name(m->gguf));
    if (m->h.thresholds)
        return err_set(e, ERR_USAGE, "'%s': its neurons have thresholds already", gguf_name(m->gguf));
    struct thresholds *t = calloc(1, sizeof *t);
    size_t layers = (size_t)m->h.n_layers, n_ff = (size_t)m->h.n_ff, n = (size_t)c->n_tokens;
    struct collect k = { .t = t, .m = m, .pool = pool };
    struct forward *f = NULL;
    if (t)
        *t = (struct thresholds){ .h = m->h, .n_tokens = c->n_tokens,
                                  .unit = calloc(layers * n_ff, sizeof *t->unit), .counts = calloc(layers, sizeof *t->counts) };
    if (n * n_ff > UINT32_MAX)
        r = err_set(e, ERR_LIMIT, "thresholds from %zu tokens, more than the limit of %zu with %zu neurons", n, UINT32_MAX / n_ff, n_ff);
    else if (!t || !t->unit || !t->counts || !(k.act = malloc(n * n_ff * sizeof *k.act)) || !(k.up = malloc(n * n_ff * sizeof *k.up)) ||
             !(k.own = malloc((size_t)pool_threads(pool) * sizeof *k.own)))
        r = err_set(e, ERR_NOMEM, "gates of %zu tokens", n);
    else
        r = forward_new(m, pool, thresholds_longest(c), &f, e);
    progress_init(&k.progress, "thresholds", "layers", (uint64_t)layers);
    if (r == 0) {
        const struct forward_probe probe = { .ctx = &k, .layer = next_layer, .gates = gates };
        const struct forward_run run = { .tokens = c->tokens, .starts = c->starts, .n_sequences = (size_t)c->n_sequences,
                                         .on_layer = on_layer, .ctx = &k, .probe = &probe };
        r = forward_run(f, &run, e);
    }
    progress_done(&k.progress);
    forward_free(f);
    free(k.act), free(k.up), free(k.own);
    if (r < 0)
        thresholds_free(t);
    else
        *out = t;
    return r;
}

void thresholds_free(struct thresholds *t)
{
    if (!t)
        return;
    free(t->unit);
    free(t->counts);
    free(t);
}

/* The score below which `share` of a layer's pairs are. */
static float tau_of(const struct thresholds *t, int layer, double share)
{
    uint64_t sum = 0;
    double want = share * (double)t->n_tokens * model_n_ff(&t->h, layer);
    uint32_t b = 0;
    while (b < BINS - 1 && (double)(sum + t->counts[layer][b]) <= want)
        sum += t->counts[layer][b++];
    /* Within the bin scores are taken to lie evenly. */
    double part = t->counts[layer][b] ? (want - (double)sum) / t->counts[layer][b] : 0, from = (double)bin_begin(b);
    double to = (double)bin_begin(b + 1 < BINS ? b + 1 : b), tau = from + part * (to - from);
    return isfinite(tau) ? (float)tau : FLT_MAX;
}

void thresholds_at(const struct thresholds *t, double share, float *out)
{
    memset(out, 0, (size_t)t->h.n_layers * (size_t)t->h.n_ff * sizeof *out); /* of neurons that wider layers have */
    for (int l = 0; l < t->h.n_layers; l++) {
        double tau = (double)tau_of(t, l, share);
        for (int i = 0; i < model_n_ff(&t->h, l); i++) {
            size_t at = (size_t)l * (size_t)t->h.n_ff + (size_t)i;
            double x = t->unit[at] > 0 ? tau / (double)t->unit[at] : tau > 0 ? FLT_MAX : 0;
            out[at] = x < FLT_MAX ? (float)x : FLT_MAX;
        }
    }
}

int thresholds_share(const char *text, const char *option, double *out, struct err *e)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || strcmp(end, "%") || !(v > 0) || !(v < 100))
        return err_set(e, ERR_USAGE, "%s '%s': a share between 0 and 100 %% is needed, such as 40%%", option, text);
    *out = v / 100;
    return 0;
}
