/* The space of residencies of a layer is a grid: prefix of each part in steps of a few clusters, slots of the cold
 * cache at the replay's sizes. What a residency costs in time depends on the device only through how long its flow
 * (bytes streamed, reads) takes, so the grid is thinned once to residencies that no other beats in bytes and in every
 * flow, and each configuration of the device then prices the few hundred that remain. */
#include "planner/space/residencies.h"

#include "common/base/grow.h"

#include "planner/solve/solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 32      /* of a prefix */
#define MAX_COLD  40      /* (prefix, slots) pairs of the last part, */
#define MAX_SINGLE 400    /* and of the only part */

int residencies_bytes(const struct space *s, int layer, const struct cost_residency *k, int64_t *out, struct err *e)
{
    /* What regions add to the account is a sum over layers: that of a model of one layer says it. */
    struct budget_model one = s->budget;
    size_t parts = (size_t)s->shapes.n_parts, blocks = (size_t)s->in->n_blocks;
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
        one.n_tables = 0; /* they are no regions */
        one.shapes.l.n_layers = 0;
        one.shapes.l.kind[0] = s->shapes.l.kind[layer];
        r = budget_compute(&one, &c, &b, e);
    }
    if (r == 0)
        *out = (int64_t)((b.total - b.floor) / SOLVE_BYTE_UNIT);
    free(hot);
    free(cold);
    return r;
}

/* One (variant, layer) of the space, whose list is made with flows of the first batch size. */
struct place {
    const struct space *s;
    const struct miss_tables *t;
    int variant, layer;
};

struct growing {
    struct residencies_point *at;
    int n, cap;
};

static struct cost_flow flow_of(const struct place *w, int batch_index, const struct cost_residency *k)
{
    const struct space *s = w->s;
    struct cost_choice c = { .mode = s->modes[w->variant], .variant = w->variant, .predicted = s->predicted[w->variant] };
    return cost_flow_of(s->in, layout_of(&s->shapes, w->layer), &c, batch_index, w->layer,
                        miss_tables_at(w->t, w->variant, batch_index, w->layer), k);
}

static int push(const struct place *w, struct growing *list, struct cost_residency k, int cold, struct err *e)
{
    const struct space *s = w->s;
    if (!grow_room(list->at, list->n, list->cap))
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    k.variant = w->variant;
    struct residencies_point *o = &list->at[list->n];
    *o = (struct residencies_point){ .residency = k, .cold = cold };
    o->flow = flow_of(w, 0, &k);
    int r = residencies_bytes(s, w->layer, &k, &o->bytes, e);
    list->n += r == 0;
    return r;
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct residencies_point *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    double x = a->flow.reads + a->flow.stream_bytes + a->flow.single_reads;
    double y = b->flow.reads + b->flow.stream_bytes + b->flow.single_reads;
    if (x != y)
        return x < y ? -1 : 1;
    return a->residency.hot[0] != b->residency.hot[0] ? (a->residency.hot[0] > b->residency.hot[0] ? -1 : 1) :
        a->residency.slots < b->residency.slots ? -1 : 1;
}

/* Does a point lower the reads of any batch size? least: of the points before it; it is among them from then on. */
static int lowers(const struct place *w, const struct residencies_point *p, double *least)
{
    int yes = 0;
    for (int b = 0; b < w->s->in->n_batches; b++) {
        double reads = b ? flow_of(w, b, &p->residency).reads : p->flow.reads;
        if (reads < least[b]) {
            least[b] = reads;
            yes = 1;
        }
    }
    return yes;
}

/* Nothing is looked up there. */
static int is_whole(const struct place *w, const struct residencies_point *p)
{
    const struct layout_shape *s = layout_of(&w->s->shapes, w->layer);
    return p->residency.slots == 0 && p->residency.hot[s->n_parts - 1] == (uint32_t)s->n_ff;
}

/* Sort by bytes and keep those that lower the reads, and the whole part, which may read no less than a cache that has all but is not
 * looked up in; `most` of them at evenly spread places, both ends included. */
static void thin_cold(const struct place *w, struct growing *list, int most)
{
    double least[INPUTS_MAX_BATCHES];
    int n = 0;
    qsort(list->at, (size_t)list->n, sizeof *list->at, by_bytes);
    for (int b = 0; b < INPUTS_MAX_BATCHES; b++)
        least[b] = INFINITY;
    for (int i = 0; i < list->n; i++)
        if (lowers(w, &list->at[i], least) || is_whole(w, &list->at[i]))
            list->at[n++] = list->at[i];
    if (n > most) {
        for (int i = 0; i < most; i++)
            list->at[i] = list->at[(long)i * (n - 1) / (most - 1)];
        n = most;
    }
    list->n = n;
}

static int cluster_steps(const struct layout_shape *s, uint32_t *step)
{
    uint32_t clusters = s->n_clusters;
    *step = (clusters + MAX_STEPS - 1) / MAX_STEPS;
    return (int)((clusters + *step - 1) / *step);
}

static uint32_t prefix(const struct layout_shape *s, uint32_t step, int i)
{
    uint64_t n = (uint64_t)i * step * s->cluster_neurons;
    return n < (uint64_t)s->n_ff ? (uint32_t)n : (uint32_t)s->n_ff;
}

/* (prefix, slots) of the last part, thinned; part 0 empty. Points of the replay's own grid: a plan's miss figures are
 * those of a run, not of a line between two. */
static int cold_grid(const struct place *w, struct growing *out, struct err *e)
{
    const struct replay_table *t = miss_tables_at(w->t, w->variant, 0, w->layer); /* the grid is the same at every batch size */
    int last = w->s->shapes.n_parts - 1, r = 0;
    for (int h = 0; h < REPLAY_HOTS; h++) {
        struct cost_residency k = { .slots = 0 };
        k.hot[last] = t->hot[h];
        for (int i = 0; i < REPLAY_SIZES && r == 0 && (h == 0 || t->hot[h] > t->hot[h - 1]); i++) {
            k.slots = t->slots[h][i];
            if (i == 0 || k.slots > t->slots[h][i - 1])
                r = push(w, out, k, 0, e);
        }
    }
    thin_cold(w, out, last > 0 ? MAX_COLD : MAX_SINGLE);
    for (int i = 0; i < out->n; i++)
        out->at[i].cold = i;
    return r;
}

/* Every prefix, with each of the cold cache's points where there are any; whole layers or nothing where no layer is replayed. */
static int prefix_grid(const struct place *w, int has_cold, const struct growing *cold, struct growing *out, struct err *e)
{
    const struct space *s = w->s;
    const struct layout_shape *shape = layout_of(&s->shapes, w->layer);
    uint32_t step;
    int n = cluster_steps(shape, &step), r = 0;
    for (int i = s->every == SPACE_WHOLE_LAYERS ? n : 0; i <= n && r == 0; i++) {
        struct cost_residency k = { .slots = 0 };
        for (int q = 0; q < s->shapes.n_parts; q++)
            k.hot[q] = prefix(shape, step, i);
        if (!has_cold)
            r = push(w, out, k, 0, e);
        for (int j = 0; j < cold->n && r == 0; j++) {
            struct cost_residency both = cold->at[j].residency;
            both.hot[0] = k.hot[0];
            r = push(w, out, both, j, e);
        }
    }
    return r;
}

/* The residencies of a layer that is worked out. */
static int make_list(const struct place *w, struct residencies_list *out, struct err *e)
{
    struct growing cold = { 0 }, all = { 0 };
    int r = 0, has_cold = space_looks_up(w->s, w->variant, w->layer) && w->s->every != SPACE_WHOLE_LAYERS;
    if (has_cold)
        r = cold_grid(w, &cold, e);
    int n_cold = has_cold ? cold.n : 1;
    if (has_cold && w->s->shapes.n_parts == 1) {
        all = cold;
        cold = (struct growing){ 0 };
    } else if (r == 0) {
        r = prefix_grid(w, has_cold, &cold, &all, e);
    }
    free(cold.at);
    if (r < 0) {
        free(all.at);
        return r;
    }
    qsort(all.at, (size_t)all.n, sizeof *all.at, by_bytes);
    *out = (struct residencies_list){ all.n, n_cold, all.at };
    return 0;
}

static int copy_list(const struct residencies_list *from, struct residencies_list *out, struct err *e)
{
    size_t bytes = (size_t)from->n * sizeof *from->point;
    struct residencies_point *point = malloc(bytes);
    if (!point)
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    memcpy(point, from->point, bytes);
    *out = (struct residencies_list){ from->n, from->n_cold, point };
    return 0;
}

/* Lists of their own, the same points for all batch sizes, or copies of its representative's. */
static int fill_lists(struct residencies *o, const struct place *w, struct err *e)
{
    struct residencies_list *first = residencies_at(o, w->variant, 0, w->layer);
    int representative = space_representative(w->s, w->layer), r = 0;
    int from = space_equivalent(w->s, w->variant, representative), own = representative == w->layer;
    for (int b = 0; b < o->n_batches && r == 0; b++) {
        struct residencies_list *list = residencies_at(o, w->variant, b, w->layer);
        r = !own ? copy_list(residencies_at(o, from, b, representative), list, e) :
            b ? copy_list(first, list, e) : make_list(w, list, e);
        for (int i = 0; b && own && r == 0 && i < list->n; i++)
            list->point[i].flow = flow_of(w, b, &list->point[i].residency);
    }
    return r;
}

int residencies_init(struct residencies *out, const struct space *s, const struct miss_tables *t, struct err *e)
{
    struct residencies o = { .n_variants = s->n_variants, .n_batches = s->in->n_batches, .n_layers = s->in->n_layers };
    size_t n = (size_t)o.n_variants * (size_t)o.n_batches * (size_t)o.n_layers;
    int r = 0;
    if (!(o.list = calloc(n, sizeof *o.list)))
        return err_set(e, ERR_NOMEM, "out of memory for residencies");
    for (int v = 0; v < o.n_variants && r == 0; v++)
        for (int l = 0; l < o.n_layers && r == 0; l++)
            if (space_equivalent(s, v, l) == v)
                r = fill_lists(&o, &(struct place){ s, t, v, l }, e);
    if (r < 0)
        residencies_done(&o);
    else
        *out = o;
    return r;
}

void residencies_done(struct residencies *r)
{
    size_t n = (size_t)r->n_variants * (size_t)r->n_batches * (size_t)r->n_layers;
    for (size_t i = 0; r->list && i < n; i++)
        free(r->list[i].point);
    free(r->list);
    *r = (struct residencies){ 0 };
}

/* The points of a table that residencies read. */
static void points_of(const struct replay_table *t, const struct residencies_list *k, struct replay_asked *out)
{
    *out = (struct replay_asked){ 0 };
    for (int i = 0; i < k->n; i++)
        if (k->point[i].flow.how)
            replay_ask(t, k->point[i].flow.how, out);
}

void residencies_read_rules(const struct residencies *r, const struct space *s, struct miss_tables *t, int all)
{
    struct reads_rule rules[LAYOUT_MAX_KINDS][REPLAY_RULES];
    struct replay_asked points = { 0 };
    for (int k = 0; k < s->shapes.l.n_kinds; k++)
        for (int i = 0; i < s->n_rules; i++)
            coalesce_rule(&s->rules[i], &s->shapes.kind[k], &rules[k][i]);
    for (int v = 0; v < r->n_variants; v++)
        for (int i = 0; i < r->n_batches * r->n_layers && t->table[v]; i++) {
            int b = i / r->n_layers, l = i % r->n_layers;
            if (space_representative(s, l) == l) /* else its points are of the representative's table */
                points_of(miss_tables_at(t, v, b, l), residencies_at(r, v, b, l), &points);
            miss_tables_rules(t, s, v, b, l, rules[s->shapes.l.kind[l]], s->n_rules, all ? NULL : &points);
        }
}
