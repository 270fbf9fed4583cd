#include "runtime/pipeline/expert_prefetch.h"

#include <assert.h>
#include <stdlib.h>

enum state { GUESS_FREE, GUESS_READING, GUESS_ARRIVED };

/* A unit that is read, or was, and that no list has taken whole. */
struct guess {
    struct io_request req;
    struct list *list;      /* that waits for it, or NULL */
    uint32_t entry;         /* of the list */
    uint32_t unit, slot;    /* of the layer's cache; pinned once by the guess */
    int layer, dropped;     /* dropped: nobody wants it when it comes */
    enum state state;
};

struct verdict {
    uint16_t tried, taken, rest; /* units since the last judgement; passes to rest */
};

struct expert_prefetch {
    const struct pipeline_config *c;
    struct guess guesses[EXPERT_PREFETCH_UNITS];
    int n_reading;
    int layer;                          /* whose units are wanted */
    uint32_t wanted[EXPERT_PREFETCH_UNITS]; /* of its cache, likeliest first */
    int n_wanted, next;
    struct expert_prefetch_stats stats;
    struct verdict *verdict;            /* [n_layers] */
};

struct expert_prefetch *expert_prefetch_new(const struct pipeline_config *c, uint32_t tag, struct err *e)
{
    struct expert_prefetch *f = calloc(1, sizeof *f);
    struct verdict *v = calloc((size_t)c->n_layers, sizeof *v);
    if (!f || !v) {
        free(f);
        free(v);
        err_set(e, ERR_NOMEM, "out of memory for experts that are read ahead");
        return NULL;
    }
    f->c = c;
    f->verdict = v;
    for (uint32_t i = 0; i < EXPERT_PREFETCH_UNITS; i++)
        f->guesses[i].req.tag = tag + i;
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

static struct cache *cache_of(const struct pipeline_config *c, int layer)
{
    return c->caches[config_part(c, layer, 0)];
}

static int is_possible(const struct pipeline_config *c, int layer)
{
    const struct layout_shape *s = layout_of(c->shapes, layer);
    uintptr_t cold = (uintptr_t)c->cold + c->cold_at[config_part(c, layer, 0)];
    return !c->no_prefetch && !c->no_overlap && s->n_parts == 1 && c->n_blocks > 1 && c->dense_mode &&
           cache_slots(cache_of(c, layer)) && budget_reads_into_slots(s, 0) && cold % s->block_bytes == 0;
}

static void drop(struct expert_prefetch *f, struct guess *g)
{
    cache_drop(cache_of(f->c, g->layer), g->slot);
    g->state = GUESS_FREE;
}

int expert_prefetch_wants(struct expert_prefetch *f, int layer)
{
    struct verdict *v = &f->verdict[layer];
    if (!is_possible(f->c, layer))
        return 0;
    if (v->rest && --v->rest)
        return 0;
    return 1;
}

static void judge(struct verdict *v)
{
    if (v->tried < EXPERT_PREFETCH_TRIES)
        return;
    v->rest = v->taken < EXPERT_PREFETCH_LEAST ? EXPERT_PREFETCH_REST : 0;
    v->tried = v->taken = 0;
}

void expert_prefetch_begin(struct expert_prefetch *f, int layer, const uint16_t *blocks, int n)
{
    const struct pipeline_config *c = f->c;
    const struct layout_part *lp = part_of(c, layer);
    for (struct guess *g = f->guesses; g < f->guesses + EXPERT_PREFETCH_UNITS; g++) {
        if (g->state == GUESS_ARRIVED)
            drop(f, g);
        g->dropped |= g->state == GUESS_READING && !g->list;
    }
    judge(&f->verdict[layer]);
    f->layer = layer;
    f->n_wanted = f->next = 0;
    if (cache_slots(cache_of(c, layer)) < 2 * (uint32_t)n * lp->n_units) /* guesses would drive out what is needed */
        return;
    for (int i = 0; i < n; i++) {
        uint32_t first = (config_hot_neurons(c, layer, blocks[i], 0) + lp->neurons_per_unit - 1) / lp->neurons_per_unit;
        for (uint32_t u = first; u < lp->n_units && f->n_wanted < EXPERT_PREFETCH_UNITS; u++)
            f->wanted[f->n_wanted++] = (uint32_t)blocks[i] * lp->n_units + u;
    }
}

void expert_prefetch_close(struct expert_prefetch *f, int layer)
{
    if (f->layer == layer)
        f->n_wanted = f->next;
}

static struct guess *a_free_one(struct expert_prefetch *f)
{
    for (struct guess *g = f->guesses; g < f->guesses + EXPERT_PREFETCH_UNITS; g++)
        if (g->state == GUESS_FREE)
            return g;
    return NULL;
}

/* The read of a wanted unit into a slot of its own; NULL: it is there, or the cache has no slot for it. */
static struct io_request *start(struct expert_prefetch *f, uint32_t unit)
{
    const struct pipeline_config *c = f->c;
    const struct layout_shape *s = layout_of(c->shapes, f->layer);
    const struct layout_part *lp = &s->part[0];
    struct cache *cache = cache_of(c, f->layer);
    struct guess *g = a_free_one(f);
    uint32_t slot, evicted, block = unit / lp->n_units, u = unit % lp->n_units;
    if (!g || cache_find(cache, unit) != CACHE_NONE || (slot = cache_admit_early(cache, unit, &evicted)) == CACHE_NONE)
        return NULL;
    uint64_t bytes = layout_bytes(lp, layout_unit_neurons(s, lp, u));
    *g = (struct guess){ .req = { .tag = g->req.tag }, .unit = unit, .slot = slot, .layer = f->layer, .state = GUESS_READING };
    g->req.buf = c->cold + c->cold_at[config_part(c, f->layer, 0)] + (size_t)slot * budget_slot_bytes(s, 0);
    g->req.offset = pack_unit_offset(c->pack, f->layer, (int)block, 0, u);
    g->req.len = (uint32_t)((bytes + s->block_bytes - 1) / s->block_bytes * s->block_bytes);
    assert(g->req.offset % s->block_bytes == 0 && g->req.len <= budget_slot_bytes(s, 0));
    f->n_reading++;
    f->stats.reads++;
    f->verdict[f->layer].tried++;
    return &g->req;
}

int expert_prefetch_issue(struct expert_prefetch *f, uint32_t most, struct err *e)
{
    struct io_request *batch[EXPERT_PREFETCH_UNITS];
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
    struct guess *g = f->guesses, *end = g + EXPERT_PREFETCH_UNITS;
    while (g < end && (g->state == GUESS_FREE || g->layer != l->of->layer || g->slot != slot))
        g++;
    if (g == end)
        return 0;
    assert(l->part == 0 && !g->list);
    f->stats.taken++;
    f->verdict[g->layer].taken++;
    x->where = slot;
    if (g->state == GUESS_READING) {
        x->kind = KIND_READING;
        g->list = l;
        g->entry = (uint32_t)(x - l->e);
        g->dropped = 0;
        return 2;
    }
    cache_unpin(cache_of(f->c, g->layer), slot); /* the lookup's pin stays */
    x->kind = KIND_ADMITTED;
    x->base = g->req.buf;
    g->state = GUESS_FREE;
    return 1;
}

int expert_prefetch_came(struct expert_prefetch *f, const struct io_request *r, struct read_arrival *out, struct err *e)
{
    struct guess *g = &f->guesses[r->tag - f->guesses[0].req.tag];
    struct cache *cache = cache_of(f->c, g->layer);
    assert(r == &g->req && g->state == GUESS_READING);
    f->n_reading--;
    if (r->result < 0)
        return io_failed(f->c->io, r, e);
    cache_ready(cache, g->slot);
    if (!g->list) {
        g->state = GUESS_ARRIVED;
        if (g->dropped)
            drop(f, g);
        return 0;
    }
    struct entry *x = &g->list->e[g->entry];
    cache_unpin(cache, g->slot);
    x->kind = KIND_ADMITTED;
    x->base = g->req.buf;
    g->state = GUESS_FREE;
    *out = (struct read_arrival){ g->list, g->entry, 1 };
    return 1;
}

struct expert_prefetch_stats expert_prefetch_stats(const struct expert_prefetch *f)
{
    return f ? f->stats : (struct expert_prefetch_stats){ 0, 0 };
}
