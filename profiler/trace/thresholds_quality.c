/* The text runs once for each variant, side by side (compare.h). */
#include "profiler/trace/thresholds.h"

#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/model/nn.h"
#include "common/offline/forward.h"
#include "profiler/trace/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VARIANTS = 1 + THRESHOLDS_MOST, RUN_TOKENS = 2048 };

struct quality {
    const struct model *m;
    struct pool *pool;
    thresholds_change *change;
    void *ctx;
    int n_variants, layer;
    size_t from, n;              /* tokens of the run, of one variant */
    struct compare *compare;
};

static int next_layer(void *ctx, int layer, struct err *e)
{
    (void)e;
    ((struct quality *)ctx)->layer = layer;
    return 0;
}

static void gates(void *ctx, int block, size_t token, float *gate, float *up)
{
    struct quality *q = ctx;
    (void)block;
    q->change(q->ctx, q->layer, (int)(token / q->n), q->from + token % q->n, gate, up);
}

/* Sequences [s0, s1) of the corpus. */
static int one_run(struct quality *q, struct forward *f, const struct corpus *c, size_t s0, size_t s1, struct err *e)
{
    size_t from = (size_t)c->starts[s0], v_n = (size_t)q->n_variants, n_seq = s1 - s0;
    q->from = from, q->n = (size_t)c->starts[s1] - from;
    uint32_t *ids = malloc(v_n * q->n * sizeof *ids);
    uint64_t *starts = malloc((v_n * n_seq + 1) * sizeof *starts);
    int r = ids && starts ? 0 : err_set(e, ERR_NOMEM, "%zu tokens", q->n);
    for (size_t v = 0; v < v_n && r == 0; v++) {
        memcpy(ids + v * q->n, c->tokens + from, q->n * sizeof *ids);
        for (size_t s = 0; s < n_seq; s++)
            starts[v * n_seq + s] = v * q->n + (size_t)c->starts[s0 + s] - from;
    }
    if (r == 0) {
        const struct forward_probe probe = { .ctx = q, .layer = next_layer, .gates = gates };
        const struct forward_run run = { .tokens = ids, .starts = starts, .n_sequences = v_n * n_seq, .probe = &probe };
        starts[v_n * n_seq] = v_n * q->n;
        r = forward_run(f, &run, e);
    }
    for (size_t t = 0, s = s0; t < q->n && r == 0; t += COMPARE_TOKENS) {
        uint32_t next[COMPARE_TOKENS];
        int m = (int)(q->n - t < COMPARE_TOKENS ? q->n - t : COMPARE_TOKENS);
        for (int k = 0; k < m; k++) {
            uint64_t at = from + t + (uint64_t)k + 1;
            next[k] = at < c->starts[s + 1] ? c->tokens[at] : UINT32_MAX;
            s += at == c->starts[s + 1];
        }
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : compare_score(q->compare, f, q->n, t, m, next, e);
    }
    free(ids), free(starts);
    return r;
}

static int all_runs(struct quality *q, const struct corpus *c, struct err *e)
{
    struct forward *f = NULL;
    struct progress p;
    int r = forward_new(q->m, q->pool, thresholds_longest(c), &f, e);
    progress_init(&p, "comparing", "tokens", c->n_tokens);
    for (size_t s = 0, end; s < c->n_sequences && r == 0; s = end) {
        for (end = s + 1; end < c->n_sequences && (c->starts[end + 1] - c->starts[s]) * (uint64_t)q->n_variants <= RUN_TOKENS;)
            end++;
        r = one_run(q, f, c, s, end, e);
        progress_add(&p, c->starts[end] - c->starts[s]);
    }
    progress_done(&p);
    forward_free(f);
    return r;
}

int thresholds_compare(const struct model *m, const struct corpus *c, int n, thresholds_change *change, void *ctx, struct pool *pool,
                       struct compare *out, struct err *e)
{
    struct quality q = { .m = m, .pool = pool, .change = change, .ctx = ctx, .n_variants = n, .compare = out };
    int r = compare_init(out, pool, n, m->h.n_vocab, e);
    if (r == 0 && (r = all_runs(&q, c, e)) == 0 && out->with_next == 0)
        r = err_set(e, ERR_INPUT, "no sequence of the text has two tokens");
    return r;
}

/* Thresholds by share. */
struct shares {
    const struct model_hparams *h;
    size_t n_tokens;
    float *thresholds[VARIANTS]; /* of all layers; [0]: NULL */
    uint32_t *fired;             /* [n_variants][n_tokens]: neurons of a token in all layers */
};

static void silence(void *ctx, int layer, int v, size_t token, float *gate, const float *up)
{
    struct shares *q = ctx;
    size_t n_ff = (size_t)model_n_ff(q->h, layer);
    uint32_t fired = (uint32_t)n_ff;
    (void)up;
    if (v) {
        nn_silence(gate, q->thresholds[v] + (size_t)layer * (size_t)q->h->n_ff, (int)n_ff, q->h->act);
        for (size_t i = 0; i < n_ff; i++)
            fired -= !nn_is_open(gate[i], 1);
    }
    q->fired[(size_t)v * q->n_tokens + token] += fired;
}

int thresholds_measure(const struct thresholds *t, const struct model *m, const struct corpus *c, const double *share, int n,
                       struct pool *pool, struct thresholds_quality *out, struct err *e)
{
    struct shares q = { .h = &m->h, .n_tokens = (size_t)c->n_tokens };
    struct compare compare = { 0 };
    size_t all = (size_t)m->h.n_layers * (size_t)m->h.n_ff;
    double neurons = 0;
    for (int l = 0; l < m->h.n_layers; l++)
        neurons += model_n_ff(&m->h, l);
    int r = (q.fired = calloc((size_t)(1 + n) * q.n_tokens, sizeof *q.fired)) ? 0 : err_set(e, ERR_NOMEM, "%zu tokens", q.n_tokens);
    for (int v = 1; v <= n && r == 0; v++) {
        if (!(q.thresholds[v] = malloc(all * sizeof *q.thresholds[v])))
            r = err_set(e, ERR_NOMEM, "thresholds");
        else
            thresholds_at(t, share[v - 1], q.thresholds[v]);
    }
    r = r < 0 ? r : thresholds_compare(m, c, 1 + n, silence, &q, pool, &compare, e);
    for (int v = 1; v <= n && r == 0; v++) {
        const struct compare_variant *x = &compare.v[v];
        double tokens = (double)compare.tokens, with_next = (double)compare.with_next, active = 0;
        for (size_t i = 0; i < q.n_tokens; i++)
            active += q.fired[(size_t)v * q.n_tokens + i];
        out[v - 1] = (struct thresholds_quality){ .share = share[v - 1], .density = active / (tokens * neurons),
                                                  .kl_mean = x->kl / tokens, .kl_max = x->kl_max, .top1 = (double)x->same / tokens,
                                                  .perplexity = exp(x->nll / with_next),
                                                  .perplexity_full = exp(compare.v[0].nll / with_next), .n_tokens = compare.tokens };
    }
    for (int v = 1; v <= n; v++)
        free(q.thresholds[v]);
    free(q.fired);
    compare_done(&compare);
    return r;
}
