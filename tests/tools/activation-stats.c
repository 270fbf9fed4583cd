/* activation-stats TRACE.h5: what a trace says about its model's activation pattern, as JSON: rate, skew, persistence,
 * and what caches of a part of every layer's neurons would hit. Tests hold synthetic models to what they promise with
 * it. Persistence and caches come from the trace's window; a cache segment belongs to a layer, experts share
 * it, units are neurons, and the first quarter of the window only warms up. Caches: LRU, LFU (common/plan/cache), the
 * hottest by the trace's counts pinned, and Belady's, which knows what comes next and may use a neuron without keeping
 * it. */
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
    uint32_t *accesses;         /* of a layer, in order */
    size_t n_accesses, first;   /* the first that counts */
    double fired, again, lookups, hits[CACHE_POLICIES][PARTS], pinned[PARTS], best[PARTS], chosen, chosen_again, layer_80;
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

/* Bit q: the unit is among parts[q] of the layer's neurons, by the counts. */
static int hottest(const double *p, size_t n, uint8_t *hot, struct err *e)
{
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return err_set(e, ERR_NOMEM, "%zu neurons", n);
    memcpy(sorted, p, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t i = 0; i < n; i++)
        for (int q = hot[i] = 0; q < PARTS; q++)
            hot[i] |= (uint8_t)((p[i] > sorted[(size_t)(parts[q] * (double)n)]) << q);
    free(sorted);
    return 0;
}

static void fire(struct stats *s, size_t unit, uint64_t at, int first, const uint8_t *hot, struct cache *const (*caches)[PARTS])
{
    int counted = at >= s->i->window_tokens / 4;
    if (!first) {
        s->fired++;
        s->again += s->last[unit] == (int64_t)at - 1;
    }
    s->last[unit] = (int64_t)at;
    for (int q = 0; q < PARTS; q++) {
        for (int policy = 0; policy < CACHE_POLICIES; policy++)
            s->hits[policy][q] += access_unit(caches[policy][q], (uint32_t)unit) && counted;
        s->pinned[q] += counted && hot[unit] >> q & 1;
    }
    s->lookups += counted;
    s->first = counted ? s->first : s->n_accesses + 1;
    s->accesses[s->n_accesses++] = (uint32_t)unit;
}

static void token(struct stats *s, uint64_t at, int first, const uint8_t *hot, struct cache *const (*caches)[PARTS])
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
    for (int i = 0; i < CACHE_POLICIES * PARTS; i++)
        cache_tick(caches[i / PARTS][i % PARTS]);
}

/* ---- Belady ---- */

struct use {
    uint32_t next, unit;         /* when it is used next */
};

static void push(struct use *heap, size_t *n, struct use x) /* the latest on top */
{
    size_t i = (*n)++;
    for (; i && heap[(i - 1) / 2].next < x.next; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static void pop(struct use *heap, size_t *n)
{
    struct use x = heap[--*n];
    size_t i = 0, c;
    for (; (c = 2 * i + 1) < *n; i = c) {
        c += c + 1 < *n && heap[c + 1].next > heap[c].next;
        if (heap[c].next <= x.next)
            break;
        heap[i] = heap[c];
    }
    heap[i] = x;
}

/* Hits from the first access that counts. next[]: of each access; due[unit]: when a cached one is used next, 0: not cached. */
static double belady_hits(const struct stats *s, const uint32_t *next, size_t slots, struct use *heap, uint32_t *due)
{
    size_t n = 0, used = 0, hits = 0;
    memset(due, 0, s->n_units * sizeof *due);
    for (size_t i = 0; i < s->n_accesses; i++) {
        uint32_t unit = s->accesses[i];
        int hit = due[unit] != 0;
        hits += (size_t)(hit && i >= s->first);
        while (n && due[heap[0].unit] != heap[0].next)
            pop(heap, &n); /* of before */
        if (!hit && used == slots && (!n || heap[0].next <= next[i]))
            continue;
        if (!hit && used == slots) {
            due[heap[0].unit] = 0;
            pop(heap, &n);
        } else {
            used += !hit;
        }
        due[unit] = next[i];
        push(heap, &n, (struct use){ next[i], unit });
    }
    return (double)hits;
}

static int belady(struct stats *s, struct err *e)
{
    uint32_t *next = malloc((s->n_accesses + 1) * sizeof *next), *due = malloc(s->n_units * sizeof *due);
    struct use *heap = malloc((s->n_accesses + 1) * sizeof *heap);
    int r = next && due && heap ? 0 : err_set(e, ERR_NOMEM, "%zu accesses", s->n_accesses);
    for (size_t u = 0; r == 0 && u < s->n_units; u++)
        due[u] = UINT32_MAX;
    for (size_t i = s->n_accesses; r == 0 && i-- > 0;) {
        next[i] = due[s->accesses[i]];
        due[s->accesses[i]] = (uint32_t)i;
    }
    for (int q = 0; r == 0 && q < PARTS; q++)
        s->best[q] += belady_hits(s, next, (size_t)(parts[q] * (double)s->n_units), heap, due);
    free(next), free(due), free(heap);
    return r;
}

static int window(struct trace *t, struct stats *s, int layer, struct err *e)
{
    uint64_t n = s->i->window_tokens;
    const uint64_t *starts = trace_sequence_starts(t);
    struct cache *caches[CACHE_POLICIES][PARTS] = { 0 };
    void *memory[CACHE_POLICIES][PARTS] = { 0 };
    uint8_t *hot = malloc(s->n_units);
    int r = hot ? hottest(s->p + (size_t)layer * s->n_units, s->n_units, hot, e) : err_set(e, ERR_NOMEM, "'hot'");
    for (int i = 0; r == 0 && i < CACHE_POLICIES * PARTS; i++) {
        int policy = i / PARTS, q = i % PARTS;
        uint32_t slots = (uint32_t)(parts[q] * (double)s->n_units);
        size_t bytes = (cache_bytes((uint32_t)s->n_units, slots) + 63) / 64 * 64;
        if (!(memory[policy][q] = aligned_alloc(64, bytes)))
            r = err_set(e, ERR_NOMEM, "a cache of %u units", slots);
        else
            caches[policy][q] = cache_init(memory[policy][q], (uint32_t)s->n_units, slots, (enum cache_policy)policy);
    }
    if (r == 0)
        r = trace_maps(t, layer, 0, n, s->maps, s->blocks, e);
    for (size_t u = 0; u < s->n_units; u++)
        s->last[u] = -2;
    s->n_accesses = s->first = 0;
    for (uint64_t at = 0, seq = 0; r == 0 && at < n; at++) {
        int first = at == starts[seq];
        seq += (uint64_t)first;
        token(s, at, first, hot, caches);
    }
    r = r ? r : belady(s, e);
    for (int i = 0; i < CACHE_POLICIES * PARTS; i++)
        free(memory[i / PARTS][i % PARTS]);
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
        for (int q = 0; q < PARTS; q++) {
            const double hits[] = { s->hits[CACHE_LRU][q], s->hits[CACHE_LFU][q], s->pinned[q], s->best[q] };
            static const char *const names[] = { "lru", "lfu", "hottest", "belady" };
            for (size_t k = 0; k < sizeof hits / sizeof *hits; k++) {
                char name[32];
                snprintf(name, sizeof name, "%s_%.0f", names[k], 100 * parts[q]);
                js_set_num(o, name, hits[k] / s->lookups);
            }
        }
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
    s.accesses = malloc((maps * (size_t)s.i->h.n_ff + 1) * sizeof *s.accesses);
    if (!s.p || !s.maps || !s.blocks || !s.last || !s.accesses)
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
    free(s.accesses);
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
