/* The space of residencies of a layer is a grid: prefix of each part in steps of a few clusters, slots of the cold
 * cache at the replay's sizes. What a residency costs in time depends on the device only through how long its flow
 * (bytes streamed, reads) takes, so the grid is thinned once to residencies that no other beats in bytes and in every
 * flow, and each configuration of the device then prices the few hundred that remain. */
#include "planner/search/problem_parts.h"

#include <stdlib.h>

#define MAX_STEPS 32      /* of a prefix */
#define MAX_COLD  40      /* (prefix, slots) pairs of the last part, */
#define MAX_ALONE 400     /* and of the only part */

int problem_residency_bytes(const struct problem *p, const struct cost_residency *k, int64_t *out, struct err *e)
{
    /* What regions add to the account is a sum over layers: that of a model of one layer says it. */
    struct budget_model one = p->budget;
    size_t parts = (size_t)p->shape.n_parts, blocks = (size_t)p->in->n_blocks;
    uint32_t *hot = calloc(blocks * parts, sizeof *hot), *cold = calloc(parts, sizeof *cold);
    struct budget_choice c = { .context = 1, .max_batch = 1, .prefill_chunk = 1, .threads = 1, .io_lanes = 1,
                               .queue_depth = 1, .hot = hot, .cold = cold };
    struct budget b;
    int r = 0;
    if (!hot || !cold) {
        r = err_set(e, ERR_NOMEM, "out of memory for the account");
    } else {
        for (size_t i = 0; i < blocks; i++)
            for (size_t q = 0; q < parts; q++)
                hot[i * parts + q] = k->hot[q];
        cold[parts - 1] = k->slots;
        one.h.n_layers = 1;
        r = budget_compute(&one, &c, &b, e);
    }
    if (r == 0)
        *out = (int64_t)((b.total - b.floor) / SOLVE_BYTE_UNIT);
    free(hot);
    free(cold);
    return r;
}

struct residency_list {
    struct problem_residency *at;
    int n, cap;
};

static int push(struct problem *p, struct residency_list *list, int variant, int batch, int layer, struct cost_residency k, int cold,
                struct err *e)
{
    struct problem_residency *grown = problem_grow(list->at, list->n, &list->cap, sizeof *grown);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    list->at = grown;
    k.variant = variant;
    struct problem_residency *o = &list->at[list->n];
    *o = (struct problem_residency){ .residency = k, .cold = cold };
    struct cost_choice c = { .mode = p->modes[variant], .variant = variant, .predicted = p->predicted[variant] };
    o->flow = cost_flow_of(p->in, &p->shape, &c, batch, layer, problem_table(p, variant, batch, layer), &k);
    int r = problem_residency_bytes(p, &k, &o->bytes, e);
    list->n += r == 0;
    return r;
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct problem_residency *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    double x = a->flow.reads + a->flow.stream_bytes + a->flow.single_reads;
    double y = b->flow.reads + b->flow.stream_bytes + b->flow.single_reads;
    if (x != y)
        return x < y ? -1 : 1;
    return a->residency.hot[0] != b->residency.hot[0] ? (a->residency.hot[0] > b->residency.hot[0] ? -1 : 1) :
        a->residency.slots < b->residency.slots ? -1 : 1;
}

/* Sort by bytes and keep those that lower the reads; `most` of them at evenly spread places, both ends included. */
static void thin_cold(struct residency_list *list, int most)
{
    int n = 0;
    qsort(list->at, (size_t)list->n, sizeof *list->at, by_bytes);
    for (int i = 0; i < list->n; i++)
        if (n == 0 || list->at[i].flow.reads < list->at[n - 1].flow.reads)
            list->at[n++] = list->at[i];
    if (n > most) {
        for (int i = 0; i < most; i++)
            list->at[i] = list->at[(long)i * (n - 1) / (most - 1)];
        n = most;
    }
    list->n = n;
}

static int cluster_steps(const struct problem *p, uint32_t *step)
{
    uint32_t clusters = p->shape.n_clusters;
    *step = (clusters + MAX_STEPS - 1) / MAX_STEPS;
    return (int)((clusters + *step - 1) / *step);
}

static uint32_t prefix(const struct problem *p, uint32_t step, int i)
{
    uint64_t n = (uint64_t)i * step * p->layout.cluster_neurons;
    return n < (uint64_t)p->shape.n_ff ? (uint32_t)n : (uint32_t)p->shape.n_ff;
}

/* (prefix, slots) of the last part, thinned; part 0 empty. Points of the replay's own grid: a plan's miss figures are
 * those of a run, not of a line between two. */
static int cold_grid(struct problem *p, int variant, int batch, int layer, struct residency_list *out, struct err *e)
{
    const struct replay_table *t = problem_table(p, variant, batch, layer);
    int last = p->shape.n_parts - 1, r = 0;
    for (int h = 0; h < REPLAY_HOTS; h++) {
        struct cost_residency k = { .slots = 0 };
        k.hot[last] = t->hot[h];
        for (int s = 0; s < REPLAY_SIZES && r == 0 && (h == 0 || t->hot[h] > t->hot[h - 1]); s++) {
            k.slots = t->slots[h][s];
            if (s == 0 || k.slots > t->slots[h][s - 1])
                r = push(p, out, variant, batch, layer, k, 0, e);
        }
    }
    thin_cold(out, last > 0 ? MAX_COLD : MAX_ALONE);
    for (int i = 0; i < out->n; i++)
        out->at[i].cold = i;
    return r;
}

int problem_layer_keeps(struct problem *p, int variant, int batch, int layer, struct problem_residencies *out, struct err *e)
{
    struct residency_list cold = { 0 }, all = { 0 };
    int r = 0, last = p->shape.n_parts - 1;
    uint32_t step;
    int n = cluster_steps(p, &step), has_cold = problem_looks_up(p, variant, layer) && p->every != PROBLEM_WHOLE;
    if (has_cold)
        r = cold_grid(p, variant, batch, layer, &cold, e);
    int n_cold = has_cold ? cold.n : 1;
    if (has_cold && last == 0) {
        all = cold;
        cold = (struct residency_list){ 0 };
        n = -1;
    }
    for (int i = p->every == PROBLEM_WHOLE ? n : 0; i <= n && r == 0; i++) {
        struct cost_residency k = { .slots = 0 };
        for (int q = 0; q <= last; q++)
            k.hot[q] = prefix(p, step, i);
        if (!has_cold)
            r = push(p, &all, variant, batch, layer, k, 0, e);
        for (int j = 0; j < cold.n && r == 0; j++) {
            struct cost_residency both = cold.at[j].residency;
            both.hot[0] = k.hot[0];
            r = push(p, &all, variant, batch, layer, both, j, e);
        }
    }
    free(cold.at);
    if (r < 0) {
        free(all.at);
        return r;
    }
    qsort(all.at, (size_t)all.n, sizeof *all.at, by_bytes);
    *out = (struct problem_residencies){ all.n, n_cold, all.at };
    return 0;
}
