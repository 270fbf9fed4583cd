#include "runtime/pipeline/expert_prefetch.h"

#include <assert.h>
#include <stdlib.h>

enum state { AHEAD_FREE, AHEAD_READING, AHEAD_ARRIVED };

/* A unit that is read, or was, and that no list has taken whole. */
struct ahead {
    struct io_request req;
    struct list *list;      /* that waits for it, or NULL */
    uint32_t entry;         /* of the list */
    uint32_t unit, slot;    /* of the layer's cache; pinned once here */
    int layer, dropped;     /* dropped: nobody wants it when it comes */
    enum state state;
};

struct expert_prefetch {
    const struct pipeline_config *c;
    struct ahead units[EXPERT_AHEAD_UNITS];
    int n_reading, n_held;              /* units that are not free: READING, or ARRIVED too */
    int layer;                          /* whose units are wanted */
    uint32_t wanted[EXPERT_AHEAD_UNITS]; /* of its cache, likeliest first */
    int n_wanted, next;
    struct expert_prefetch_stats stats;
    struct expert_verdict *verdict;            /* [n_layers] */
};

struct expert_prefetch *expert_prefetch_new(const struct pipeline_config *c, uint32_t tag, struct err *e)
{
    struct expert_prefetch *f = calloc(1, sizeof *f);
    struct expert_verdict *v = calloc((size_t)c->n_layers, sizeof *v);
    if (!f || !v) {
        free(f);
        free(v);
        err_set(e, ERR_NOMEM, "out of memory for experts that are read ahead");
        return NULL;
    }
    f->c = c;
    f->verdict = v;
    for (uint32_t i = 0; i < EXPERT_AHEAD_UNITS; i++)
        f->units[i].req.tag = tag + i;
    return f;
}

void expert_prefetch_free(struct expert_prefetch *f)
{
    if (!f)
        return;
    free(f->verdict);
    free(f);
}

static const struct layout_part *part_of(const struct pipeline_config *c, int layer)
{
    return &layout_of(c->shapes, layer)->part[0];
}

static int is_possible(const struct pipeline_config *c, int layer)
{
    return !c->no_prefetch && !c->no_ahead && !c->no_overlap && c->shapes->n_parts == 1 && c->n_blocks > 1 && c->dense_mode &&
           cache_slots(config_cache(c, layer, 0)) && config_reads_into_slots(c, layer, 0);
}

/* It has been taken or dropped. */
static void let_go(struct expert_prefetch *f, struct ahead *g)
{
    g->state = AHEAD_FREE;
    f->n_held--;
}

static void drop(struct expert_prefetch *f, struct ahead *g)
{
    cache_drop(config_cache(f->c, g->layer, 0), g->slot);
    let_go(f, g);
}

int expert_prefetch_wants(struct expert_prefetch *f, int layer)
{
    return is_possible(f->c, layer) && expert_ahead_awake(&f->verdict[layer]);
}

void expert_prefetch_begin(struct expert_prefetch *f, int layer, const uint16_t *blocks, int n)
{
    const struct pipeline_config *c = f->c;
    const struct layout_part *lp = part_of(c, layer);
    for (struct ahead *g = f->units; g < f->units + EXPERT_AHEAD_UNITS; g++) {
        if (g->state == AHEAD_ARRIVED)
            drop(f, g);
        g->dropped |= g->state == AHEAD_READING && !g->list;
    }
    expert_ahead_judge(&f->verdict[layer]);
    f->layer = layer;
    f->n_wanted = f->next = 0;
    if (!expert_ahead_room(cache_slots(config_cache(c, layer, 0)), (uint32_t)n, lp->n_units))
        return;
    for (int i = 0; i < n; i++) {
        uint32_t first = (config_hot_neurons(c, layer, blocks[i], 0) + lp->neurons_per_unit - 1) / lp->neurons_per_unit;
        for (uint32_t u = first; u < lp->n_units && f->n_wanted < EXPERT_AHEAD_UNITS; u++)
            f->wanted[f->n_wanted++] = (uint32_t)blocks[i] * lp->n_units + u;
    }
}

void expert_prefetch_close(struct expert_prefetch *f, int layer)
{
    if (f->layer == layer)
        f->n_wanted = f->next;
}

static struct ahead *a_free_one(struct expert_prefetch *f)
{
    for (struct ahead *g = f->units; g < f->units + EXPERT_AHEAD_UNITS; g++)
        if (g->state == AHEAD_FREE)
            return g;
    return NULL;
}

/* The read of a wanted unit into a slot of its own; NULL: it is there, or the cache has no slot for it. */
static struct io_request *start(struct expert_prefetch *f, uint32_t unit)
{
    const struct pipeline_config *c = f->c;
    const struct layout_shape *s = layout_of(c->shapes, f->layer);
    const struct layout_part *lp = &s->part[0];
    struct cache *cache = config_cache(c, f->layer, 0);
    struct ahead *g = a_free_one(f);
    uint32_t slot, evicted, block = unit / lp->n_units, u = unit % lp->n_units;
    if (!g || cache_find(cache, unit) != CACHE_NONE || (slot = cache_admit_early(cache, unit, &evicted)) == CACHE_NONE)
        return NULL;
    uint64_t bytes = layout_bytes(lp, layout_unit_neurons(s, lp, u));
    *g = (struct ahead){ .req = { .tag = g->req.tag }, .unit = unit, .slot = slot, .layer = f->layer, .state = AHEAD_READING };
    g->req.buf = config_slot(c, f->layer, 0, slot);
    g->req.offset = pack_unit_offset(c->pack, f->layer, (int)block, 0, u);
    g->req.len = (uint32_t)((bytes + s->block_bytes - 1) / s->block_bytes * s->block_bytes);
    assert(g->req.offset % s->block_bytes == 0 && g->req.len <= budget_slot_bytes(s, 0));
    f->n_reading++;
    f->n_held++;
    f->stats.reads++;
    f->verdict[f->layer].tried++;
    return &g->req;
}

int expert_prefetch_issue(struct expert_prefetch *f, uint32_t most, struct err *e)
{
    struct io_request *batch[EXPERT_AHEAD_UNITS];
    int n = 0;
    while (f->next < f->n_wanted && (uint32_t)(f->c->io->in_flight + n) < most) {
        struct io_request *r = start(f, f->wanted[f->next++]);
        if (r)
            batch[n++] = r;
    }
    return n ? io_submit(f->c->io, batch, n, e) : 0;
}

int expert_prefetch_busy(const struct expert_prefetch *f)
{
    return f && (f->n_reading || f->next < f->n_wanted);
}

int expert_prefetch_in_flight(const struct expert_prefetch *f)
{
    return f->n_reading;
}

int expert_prefetch_take(struct expert_prefetch *f, struct list *l, struct entry *x, uint32_t slot)
{
    struct ahead *g = f->units, *end = g + EXPERT_AHEAD_UNITS;
    if (!f->n_held)
        return 0;
    while (g < end && (g->state == AHEAD_FREE || g->layer != l->of->layer || g->slot != slot))
        g++;
    if (g == end)
        return 0;
    assert(l->part == 0 && !g->list);
    f->stats.taken++;
    f->verdict[g->layer].taken++;
    x->where = slot;
    if (g->state == AHEAD_READING) {
        x->kind = KIND_READING;
        g->list = l;
        g->entry = (uint32_t)(x - l->e);
        g->dropped = 0;
        return 2;
    }
    cache_unpin(config_cache(f->c, g->layer, 0), slot); /* the lookup's pin stays */
    x->kind = KIND_ADMITTED;
    x->base = g->req.buf;
    let_go(f, g);
    return 1;
}

int expert_prefetch_came(struct expert_prefetch *f, const struct io_request *r, struct read_arrival *out, struct err *e)
{
    struct ahead *g = &f->units[r->tag - f->units[0].req.tag];
    struct cache *cache = config_cache(f->c, g->layer, 0);
    assert(r == &g->req && g->state == AHEAD_READING);
    f->n_reading--;
    if (r->result < 0)
        return io_failed(f->c->io, r, e);
    cache_ready(cache, g->slot);
    if (!g->list) {
        g->state = AHEAD_ARRIVED;
        if (g->dropped)
            drop(f, g);
        return 0;
    }
    struct entry *x = &g->list->e[g->entry];
    cache_unpin(cache, g->slot);
    x->kind = KIND_ADMITTED;
    x->base = g->req.buf;
    let_go(f, g);
    *out = (struct read_arrival){ g->list, g->entry, 1 };
    return 1;
}

struct expert_prefetch_stats expert_prefetch_stats(const struct expert_prefetch *f)
{
    return f ? f->stats : (struct expert_prefetch_stats){ 0, 0 };
}
