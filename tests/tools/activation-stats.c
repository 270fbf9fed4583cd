/* activation-stats TRACE.h5: what a trace says about its model's activation pattern, as JSON: rate, skew, persistence,
 * and what caches of a part of every layer's neurons would hit. Tests hold synthetic models to what they promise with
 * it. Persistence and caches come from the trace's window; a cache segment belongs to a layer, experts share
 * it, units are neurons, and the first quarter of the window only warms up. */
#include "common/base/js.h"
#include "common/offline/trace/trace.h"
#include "common/plan/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 3 };
static const double parts[PARTS] = { 0.25, 0.5, 0.75 };

struct stats {
    const struct trace_info *i;
    size_t n_units, row_bytes;  /* per layer: experts x n_ff */
    int k;                      /* FFN blocks a token uses */
    double *p;                  /* [layers][n_units]: firings per token */
    uint8_t *maps;              /* a layer's window */
    uint16_t *blocks;
    int64_t *last;              /* [n_units]: the token that fired it last */
    double fired, again, lookups, hits[PARTS], hottest_half, chosen, chosen_again, layer_80;
};

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static double share(const double *sorted, size_t n, double part)
{
    double all = 0, some = 0;
    for (size_t i = 0; i < n; i++) {
        all += sorted[i];
        some += (double)i + 0.5 < part * (double)n ? sorted[i] : 0;
    }
    return some / all;
}

static double neurons_for(const double *sorted, size_t n, double part)
{
    double all = 0, some = 0;
    for (size_t i = 0; i < n; i++)
        all += sorted[i];
    for (size_t i = 0; i < n; i++)
        if ((some += sorted[i]) >= part * all)
            return (double)(i + 1) / (double)n;
    return 1;
}

static int counts(struct trace *t, struct stats *s, struct err *e)
{
    size_t n_ff = (size_t)s->i->h.n_ff;
    uint64_t *c = malloc(n_ff * sizeof *c);
    double *sorted = malloc(s->n_units * sizeof *sorted);
    int r = c && sorted ? 0 : err_set(e, ERR_NOMEM, "%zu neurons", s->n_units);
    for (int l = 0; r == 0 && l < s->i->h.n_layers; l++) {
        double *p = s->p + (size_t)l * s->n_units;
        for (int b = 0; r == 0 && b < model_ffn_blocks(&s->i->h); b++) {
            r = trace_counts(t, l, b, c, NULL, e);
            for (size_t n = 0; r == 0 && n < n_ff; n++)
                p[(size_t)b * n_ff + n] = (double)c[n] / (double)s->i->n_tokens;
        }
        memcpy(sorted, p, s->n_units * sizeof *sorted);
        qsort(sorted, s->n_units, sizeof *sorted, descending);
        s->layer_80 += neurons_for(sorted, s->n_units, 0.8) / s->i->h.n_layers;
    }
    free(c);
    free(sorted);
    return r;
}

/* One neuron of one token through one cache. */
static int access_unit(struct cache *c, uint32_t unit)
{
    int ready = 0;
    uint32_t evicted, slot = cache_lookup(c, unit, &ready);
    int hit = slot != CACHE_NONE;
    if (!hit && (slot = cache_admit(c, unit, &evicted)) != CACHE_NONE)
        cache_ready(c, slot);
    if (slot != CACHE_NONE)
        cache_unpin(c, slot);
    return hit;
}

/* Half of the layer's neurons by the counts: one byte per unit. */
static int hottest(const double *p, size_t n, uint8_t *hot, struct err *e)
{
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return err_set(e, ERR_NOMEM, "%zu neurons", n);
    memcpy(sorted, p, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t i = 0; i < n; i++)
        hot[i] = p[i] > sorted[n / 2];
    free(sorted);
    return 0;
}

static void fire(struct stats *s, size_t unit, uint64_t at, int first, const uint8_t *hot, struct cache *const *caches)
{
    int counted = at >= s->i->window_tokens / 4;
    if (!first) {
        s->fired++;
        s->again += s->last[unit] == (int64_t)at - 1;
    }
    s->last[unit] = (int64_t)at;
    for (int q = 0; q < PARTS; q++)
        s->hits[q] += access_unit(caches[q], (uint32_t)unit) && counted;
    s->lookups += counted;
    s->hottest_half += counted && hot[unit];
}

static void token(struct stats *s, uint64_t at, int first, const uint8_t *hot, struct cache *const *caches)
{
    size_t n_ff = (size_t)s->i->h.n_ff;
    for (int j = 0; j < s->k; j++) {
        uint64_t row = at * (uint64_t)s->k + (uint64_t)j;
        const uint8_t *map = s->maps + row * s->row_bytes;
        for (int b = 0; !first && b < s->k; b++)
            s->chosen_again += s->blocks[(at - 1) * (uint64_t)s->k + (uint64_t)b] == s->blocks[row];
        s->chosen += !first;
        for (size_t i = 0; i < n_ff; i++)
            if (map[i / 8] >> i % 8 & 1)
                fire(s, s->blocks[row] * n_ff + i, at, first, hot, caches);
    }
    for (int q = 0; q < PARTS; q++)
        cache_tick(caches[q]);
}

static int window(struct trace *t, struct stats *s, int layer, struct err *e)
{
    uint64_t n = s->i->window_tokens;
    const uint64_t *starts = trace_sequence_starts(t);
    struct cache *caches[PARTS] = { 0 };
    void *memory[PARTS] = { 0 };
    uint8_t *hot = malloc(s->n_units);
    int r = hot ? hottest(s->p + (size_t)layer * s->n_units, s->n_units, hot, e) : err_set(e, ERR_NOMEM, "'hot'");
    for (int q = 0; r == 0 && q < PARTS; q++) {
        uint32_t slots = (uint32_t)(parts[q] * (double)s->n_units);
        size_t bytes = (cache_bytes((uint32_t)s->n_units, slots) + 63) / 64 * 64;
        if (!(memory[q] = aligned_alloc(64, bytes)))
            r = err_set(e, ERR_NOMEM, "a cache of %u units", slots);
        else
            caches[q] = cache_init(memory[q], (uint32_t)s->n_units, slots, CACHE_LRU);
    }
    if (r == 0)
        r = trace_maps(t, layer, 0, n, s->maps, s->blocks, e);
    for (size_t u = 0; u < s->n_units; u++)
        s->last[u] = -2;
    for (uint64_t at = 0, seq = 0; r == 0 && at < n; at++) {
        int first = at == starts[seq];
        seq += (uint64_t)first;
        token(s, at, first, hot, caches);
    }
    for (int q = 0; q < PARTS; q++)
        free(memory[q]);
    free(hot);
    return r;
}

static int print(struct stats *s, struct err *e)
{
    size_t n = (size_t)s->i->h.n_layers * s->n_units;
    double rate = 0, used = s->i->h.n_experts > 0 ? (double)s->k / s->i->h.n_experts : 1;
    for (size_t i = 0; i < n; i++)
        rate += s->p[i] / (double)n;
    qsort(s->p, n, sizeof *s->p, descending);
    struct js *o = js_object();
    js_set_u64(o, "tokens", s->i->n_tokens);
    js_set_num(o, "rate", rate / used);
    js_set_num(o, "neurons_for_80", neurons_for(s->p, n, 0.8));
    js_set_num(o, "layer_neurons_for_80", s->layer_80);
    js_set_num(o, "top10", share(s->p, n, 0.1));
    js_set_num(o, "top20", share(s->p, n, 0.2));
    js_set_num(o, "top50", share(s->p, n, 0.5));
    if (s->lookups > 0) {
        js_set_u64(o, "window_tokens", s->i->window_tokens);
        js_set_num(o, "repeat", s->again / s->fired);
        if (s->i->h.n_experts > 0)
            js_set_num(o, "experts_repeat", s->chosen_again / s->chosen);
        js_set_num(o, "lru_25", s->hits[0] / s->lookups);
        js_set_num(o, "lru_50", s->hits[1] / s->lookups);
        js_set_num(o, "lru_75", s->hits[2] / s->lookups);
        js_set_num(o, "hottest_50", s->hottest_half / s->lookups);
    }
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

static int run(const char *path, struct err *e)
{
    struct trace *t;
    int r = trace_open(path, &t, e);
    if (r < 0)
        return r;
    struct stats s = { .i = trace_info(t), .k = trace_slots(&trace_info(t)->h) };
    s.row_bytes = trace_row_bytes(&s.i->h);
    s.n_units = (size_t)model_ffn_blocks(&s.i->h) * (size_t)s.i->h.n_ff;
    size_t maps = (size_t)s.i->window_tokens * (size_t)s.k;
    s.p = malloc((size_t)s.i->h.n_layers * s.n_units * sizeof *s.p);
    s.maps = malloc(maps * s.row_bytes + 1);
    s.blocks = malloc(maps * sizeof *s.blocks + 1);
    s.last = malloc(s.n_units * sizeof *s.last);
    if (!s.p || !s.maps || !s.blocks || !s.last)
        r = err_set(e, ERR_NOMEM, "'%s'", path);
    if (r == 0)
        r = counts(t, &s, e);
    for (int l = 0; r == 0 && s.i->window_tokens > 0 && l < s.i->h.n_layers; l++)
        r = window(t, &s, l, e);
    if (r == 0)
        r = print(&s, e);
    free(s.p);
    free(s.maps);
    free(s.blocks);
    free(s.last);
    trace_close(t);
    return r;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    if (argc != 2) {
        fprintf(stderr, "usage: activation-stats TRACE.h5\n");
        return 2;
    }
    if (run(argv[1], &e) < 0) {
        fprintf(stderr, "activation-stats: %s\n", e.msg);
        return err_exit_status(e.code);
    }
    return 0;
}
