/* Printing a trace: what was run, and per layer how sparse the FFN is, how unequal its neurons are, and how
 * quickly a batch fills it up. All from the counts, so it takes no longer than reading them. */
#include "profiler/show/show.h"

#include "common/base/js.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/offline/trace/trace.h"
#include "common/offline/trace/trace_predict.h"

#include <stdio.h>
#include <stdlib.h>

/* Of the neurons of all blocks of a layer together. */
struct layer_stats {
    double density;            /* firings per (token, neuron of a block it was routed to) */
    double gate_density;       /* the same of open gates */
    uint64_t firings, never, below_1, above_50; /* neurons: no firing; under 1 %, over 50 % of their block's tokens */
    double top[3];             /* share of the firings that the hottest 10, 20, 50 % of neurons have */
    double for_80;             /* share of neurons, hottest first, that have 80 % of the firings */
    uint64_t foreseen[MODEL_MAX_EXPERTS]; /* with 1, 2, ... experts guessed for each token: guesses that its router then chose */
    double batch[TRACE_BATCH_KINDS][TRACE_BATCH_SIZES]; /* share of the layer's neurons that a batch fires */
};

static const double tops[3] = { 0.1, 0.2, 0.5 };

static int descending(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return a < b ? 1 : a > b ? -1 : 0;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void skew(struct layer_stats *s, uint64_t *counts, size_t n)
{
    uint64_t sum = 0;
    size_t next = 0;
    qsort(counts, n, sizeof *counts, descending);
    for (size_t i = 0; i < n; i++) {
        sum += counts[i];
        while (next < 3 && i + 1 >= (size_t)(tops[next] * (double)n))
            s->top[next++] = ratio((double)sum, (double)s->firings);
        if (!s->for_80 && (double)sum >= 0.8 * (double)s->firings)
            s->for_80 = ratio((double)(i + 1), (double)n);
    }
}

/* Guesses of a layer that came true, by how many are made for a token. */
static int count_foreseen(struct trace *t, int layer, struct layer_stats *s, struct err *e)
{
    enum { ROWS = 1024 };
    const struct trace_info *i = trace_info(t);
    size_t k = (size_t)trace_slots(&i->h);
    uint16_t *chosen = malloc(ROWS * k * sizeof *chosen), *guessed = malloc(ROWS * k * sizeof *guessed);
    int r = chosen && guessed ? 0 : err_set(e, ERR_NOMEM, "experts of layer %d", layer);
    for (uint64_t at = 0; at < i->n_tokens && !r; at += ROWS) {
        uint64_t n = i->n_tokens - at < ROWS ? i->n_tokens - at : ROWS;
        if ((r = trace_routing(t, layer, at, n, chosen, e)) < 0 || (r = trace_foreseen(t, layer, at, n, guessed, e)) < 0)
            break;
        for (size_t x = 0; x < (size_t)n * k; x++) {
            int is_true = 0;
            for (size_t c = 0; c < k; c++)
                is_true |= chosen[x / k * k + c] == guessed[x];
            s->foreseen[x % k] += (uint64_t)is_true;
        }
    }
    for (size_t w = 1; w < k; w++)
        s->foreseen[w] += s->foreseen[w - 1];
    free(chosen);
    free(guessed);
    return r;
}

/* counts: scratch [n_blocks][n_ff]. */
static int layer_stats(struct trace *t, int layer, uint64_t *counts, struct layer_stats *s, struct err *e)
{
    const struct trace_info *i = trace_info(t);
    size_t n_ff = (size_t)model_n_ff(&i->h, layer), blocks = (size_t)model_ffn_blocks(&i->h);
    double slots = 0, open = 0;
    int r = 0;
    *s = (struct layer_stats){ 0 };
    for (size_t b = 0; b < blocks && !r; b++) {
        uint64_t *c = counts + b * n_ff, routed;
        if ((r = trace_gate_counts(t, layer, (int)b, c, e)) < 0)
            break;
        for (size_t k = 0; k < n_ff; k++)
            open += (double)c[k];
        if ((r = trace_counts(t, layer, (int)b, c, &routed, e)) < 0)
            break;
        slots += (double)routed * (double)n_ff;
        for (size_t k = 0; k < n_ff; k++) {
            s->firings += c[k];
            s->never += !c[k];
            s->below_1 += (double)c[k] < 0.01 * (double)routed;
            s->above_50 += (double)c[k] > 0.5 * (double)routed;
        }
    }
    s->density = ratio((double)s->firings, slots);
    s->gate_density = ratio(open, slots);
    skew(s, counts, blocks * n_ff);
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        for (int z = 0; z < TRACE_BATCH_SIZES; z++) {
            double sum = 0;
            uint64_t n = 0;
            for (size_t b = 0; b < blocks && !r; b++) {
                r = trace_batch_counts(t, (enum trace_batch_kind)k, z, layer, (int)b, counts, &n, e);
                for (size_t j = 0; j < n_ff && !r; j++)
                    sum += (double)counts[j];
            }
            s->batch[k][z] = ratio(sum, (double)n * (double)n_ff * (double)blocks);
        }
    if (!r && i->foreseen)
        r = count_foreseen(t, layer, s, e);
    return r;
}

/* ---- for people ---- */

static void print_batches(const struct trace_info *i, const struct layer_stats *all, enum trace_batch_kind k,
                          const char *what)
{
    print("\nshare of neurons that a batch fires, tokens %s\n%-18s", what, "layer / batch of");
    for (int z = 0; z < TRACE_BATCH_SIZES; z++)
        print(" %6d", trace_batch_sizes[z]);
    print("\n%-18s", "batches");
    for (int z = 0; z < TRACE_BATCH_SIZES; z++)
        print(" %6llu", (unsigned long long)i->n_batches[k][z]);
    print("\n");
    for (int l = 0; l < i->h.n_layers; l++) {
        print("%-18d", l);
        for (int z = 0; z < TRACE_BATCH_SIZES; z++)
            if (i->n_batches[k][z])
                print(" %5.1f%%", 100 * all[l].batch[k][z]);
            else
                print(" %6s", "-");
        print("\n");
    }
}

/* Shares of guesses that come true, with as many of them as there are columns. */
static void print_foreseen(const struct trace_info *i, const struct layer_stats *all)
{
    int k = i->h.n_experts_used;
    print("\nshare of guessed experts that the layer's router then chose: the likeliest by what it says of the layer before,\n"
          "of the first layer by what it says of embedded tokens\n%-18s", "layer / guesses");
    for (int w = 1; w <= k; w++)
        print(" %6d", w);
    print("\n");
    for (int l = 0; l < i->h.n_layers; l++) {
        print("%-18d", l);
        for (int w = 1; w <= k; w++)
            print(" %5.1f%%", 100 * ratio((double)all[l].foreseen[w - 1], (double)w * (double)i->n_tokens));
        print("\n");
    }
}

static void print_text(const struct trace_info *i, const struct layer_stats *all)
{
    char a[HASH_TEXT], b[HASH_TEXT], c[HASH_TEXT];
    hash_text(i->model_hash, a);
    hash_text(i->content_hash, b);
    hash_text(i->corpus.hash, c);
    print("trace     by %s, instructions: %s", i->tool, i->tier);
    if (i->n_shards > 1)
        print("; shard %d of %d", i->shard, i->n_shards);
    print("\nmodel     %s: %s, %d layers, width %d, FFN of %s%d", i->h.name, i->h.arch, i->h.n_layers, i->h.d_model,
           i->h.widths[0] ? "up to " : "", i->h.n_ff);
    if (i->h.n_experts)
        print(" x %d experts, %d used, routed by %s", i->h.n_experts, i->h.n_experts_used,
               model_router_name(i->h.router));
    print(", %s%s\ncorpus    %llu tokens in %llu sequences of at most %llu, from '%s', column '%s'\n",
           model_act_name(i->h.act), i->h.thresholds ? " with thresholds" : "", (unsigned long long)i->n_tokens,
           (unsigned long long)i->n_sequences,
           (unsigned long long)i->corpus.n_ctx, i->corpus.prompts, i->corpus.column);
    print("samples   maps of %llu tokens (%llu sequences), FFN inputs of %llu tokens\n",
           (unsigned long long)i->window_tokens, (unsigned long long)i->window_sequences,
           (unsigned long long)i->n_samples);
    print("hashes    model %s\n          content %s\n          corpus %s\n", a, b, c);
    print("\n%-7s%9s%9s%7s%7s%7s  %s  %s\n", "layer", "density", "gates>0", "never", "<1%", ">50%",
           "firings of hottest 10/20/50%", "neurons for 80%");
    double sum = 0, gates = 0;
    for (int l = 0; l < i->h.n_layers; l++) {
        const struct layer_stats *s = &all[l];
        print("%-7d%8.1f%%%8.1f%%%7llu%7llu%7llu  %8.0f%% /%5.0f%% /%5.0f%%     %13.0f%%\n", l, 100 * s->density,
               100 * s->gate_density, (unsigned long long)s->never, (unsigned long long)s->below_1,
               (unsigned long long)s->above_50, 100 * s->top[0], 100 * s->top[1], 100 * s->top[2], 100 * s->for_80);
        sum += s->density, gates += s->gate_density;
    }
    print("%-7s%8.1f%%%8.1f%%\n", "mean", 100 * sum / i->h.n_layers, 100 * gates / i->h.n_layers);
    print_batches(i, all, TRACE_BATCH_SEQUENCES, "of different sequences");
    print_batches(i, all, TRACE_BATCH_CONSECUTIVE, "consecutive in one sequence");
    if (i->foreseen)
        print_foreseen(i, all);
}

/* ---- for programs ---- */

static struct js *json_batches(const struct trace_info *i, const struct layer_stats *s, int k)
{
    struct js *a = js_array();
    for (int z = 0; z < TRACE_BATCH_SIZES; z++) {
        struct js *o = js_object();
        js_put(o, JS_INT("size", trace_batch_sizes[z]), JS_U64("batches", i->n_batches[k][z]));
        if (i->n_batches[k][z])
            js_set_num(o, "active_share", s->batch[k][z]);
        js_append(a, o);
    }
    return a;
}

static struct js *json_layer(const struct trace_info *i, const struct layer_stats *s, int layer)
{
    struct js *o = js_object();
    js_put(o, JS_INT("layer", layer), JS_NUM("density", s->density), JS_NUM("gate_density", s->gate_density),
           JS_U64("firings", s->firings), JS_U64("never_active", s->never), JS_U64("below_1_percent", s->below_1),
           JS_U64("above_50_percent", s->above_50), JS_NUM("share_of_hottest_10_percent", s->top[0]),
           JS_NUM("share_of_hottest_20_percent", s->top[1]), JS_NUM("share_of_hottest_50_percent", s->top[2]),
           JS_NUM("neurons_for_80_percent", s->for_80), JS_VALUE("batches_of_sequences", json_batches(i, s, TRACE_BATCH_SEQUENCES)),
           JS_VALUE("batches_of_consecutive", json_batches(i, s, TRACE_BATCH_CONSECUTIVE)));
    if (i->foreseen) {
        struct js *a = js_array();
        for (int w = 1; w <= i->h.n_experts_used; w++)
            js_append(a, js_made(JS_U64("guessed", (uint64_t)w * i->n_tokens), JS_U64("chosen", s->foreseen[w - 1])));
        js_set(o, "foreseen", a);
    }
    return o;
}

static int print_json(const struct trace *t, const struct trace_predictors *p, const struct layer_stats *all,
                      struct err *e)
{
    const struct trace_info *i = trace_info(t);
    struct js *j = js_object(), *m = js_object(), *c = js_object(), *layers = js_array();
    js_put(j, JS_STR("kind", "trace"), JS_STR("tool", i->tool), JS_STR("cpu", i->tier),
           JS_STR("act_type", i->act_q8 ? "q8" : "f32"), JS_INT("shard", i->shard), JS_INT("n_shards", i->n_shards),
           JS_HASH("content_hash", i->content_hash));
    js_put(m, JS_STR("name", i->h.name), JS_STR("arch", i->h.arch), JS_HASH("hash", i->model_hash),
           JS_STR("act", model_act_name(i->h.act)), JS_BOOL("thresholds", i->h.thresholds), JS_INT("n_layers", i->h.n_layers),
           JS_INT("d_model", i->h.d_model), JS_INT("n_ff", i->h.n_ff), JS_INT("n_experts", i->h.n_experts),
           JS_INT("n_experts_used", i->h.n_experts_used), JS_STR("router", model_router_name(i->h.router)));
    js_set(j, "model", m);
    js_put(c, JS_STR("prompts", i->corpus.prompts), JS_STR("column", i->corpus.column), JS_HASH("hash", i->corpus.hash),
           JS_U64("context", i->corpus.n_ctx), JS_U64("n_tokens", i->corpus.n_tokens),
           JS_U64("n_sequences", i->corpus.n_sequences));
    js_put(j, JS_VALUE("corpus", c), JS_U64("n_tokens", i->n_tokens), JS_U64("n_sequences", i->n_sequences),
           JS_U64("window_tokens", i->window_tokens), JS_U64("n_samples", i->n_samples));
    double sum = 0;
    for (int l = 0; l < i->h.n_layers; l++) {
        sum += all[l].density;
        js_append(layers, json_layer(i, &all[l], l));
    }
    js_put(j, JS_NUM("mean_density", sum / i->h.n_layers), JS_VALUE("layers", layers));
    if (p)
        js_set(j, "predictors", show_predictors_json(t, p));
    int r = js_print(stdout, j, 2, 6, e);
    js_free(j);
    return r;
}

int show_trace(const char *path, int json, int verify, struct err *e)
{
    struct trace *t;
    int r = trace_open(path, &t, e);
    if (r < 0)
        return r;
    const struct trace_info *i = trace_info(t);
    struct layer_stats *all = NULL;
    uint64_t *counts = NULL;
    struct trace_predictors *p = NULL;
    if (verify && (r = trace_verify(t, e)) < 0)
        goto out;
    all = calloc((size_t)i->h.n_layers, sizeof *all);
    counts = malloc((size_t)model_ffn_blocks(&i->h) * (size_t)i->h.n_ff * sizeof *counts);
    if (!all || !counts)
        r = err_set(e, ERR_NOMEM, "counts of a layer of '%s'", path);
    for (int l = 0; l < i->h.n_layers && !r; l++)
        r = layer_stats(t, l, counts, &all[l], e);
    if (r < 0 || (r = trace_predictors_open(t, &p, e)) < 0)
        goto out;
    if (json) {
        r = print_json(t, p, all, e);
    } else {
        print_text(i, all);
        if (p) {
            print("\n");
            show_predictors(t, p);
        }
    }
out:
    trace_predictors_close(p);
    free(all);
    free(counts);
    trace_close(t);
    return r;
}
