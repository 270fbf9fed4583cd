/* Another memory limit, between passes. What a limit decides lies at the arena's end: resident prefixes, the cold cache's segments, the
 * numbers of units that are not resident, the index with the caches' state. Prefixes, segments and caches keep their order, so each goes
 * straight from where it was to where it will be: first those that go down, the lowest first, then those that go up, the highest first.
 * Where one goes down, all that is above it is above where it goes, and what is below it goes up to below that.
 *
 *     the end grows, if it does            nothing else may fail but reads, and giving memory back
 *     caches that shrink give units up     in their own order; data of the last slots moves to free ones
 *     prefixes, segments, caches move      as much as both choices have
 *     caches that grow get empty slots
 *     the end shrinks, if it does
 *     prefixes that grow are read, and verified, and all checksums
 *
 * Read buffers serve for that, for no pass is under way. */
#include "runtime/engine/engine_impl.h"

#include <assert.h>
#include <string.h>

size_t engine_reserve_bytes(const struct budget *b)
{
    return arena_elastic_bytes(b);
}

enum kind { PREFIXES, SEGMENTS, CACHES, KINDS };

/* The old choice and the new one. */
struct resize {
    struct engine *g;
    const uint32_t *hot[2], *cold[2];
    struct arena_item item[2][BUDGET_ITEMS];
    uint64_t tables;               /* bytes of the index before its caches */
};

static size_t n_of(const struct engine *g, enum kind k)
{
    return (size_t)g->h.n_layers * (size_t)g->n_parts * (k == PREFIXES ? (size_t)g->n_blocks : 1);
}

static uint32_t units_of(const struct engine *g, size_t segment)
{
    return layout_of(g->shapes, (int)(segment / (size_t)g->n_parts))->part[segment % (size_t)g->n_parts].n_units * (uint32_t)g->n_blocks;
}

/* The i-th of a kind, as they lie in memory: prefixes by layer, part, block. */
static uint64_t size_of(const struct resize *z, int choice, enum kind k, size_t i)
{
    const struct engine *g = z->g;
    size_t blocks = k == PREFIXES ? (size_t)g->n_blocks : 1, parts = (size_t)g->n_parts;
    int layer = (int)(i / blocks / parts), part = (int)(i / blocks % parts), block = (int)(i % blocks);
    const struct layout_shape *s = layout_of(g->shapes, layer);
    if (k == PREFIXES)
        return budget_hot_bytes(s, part, z->hot[choice][engine_hot_index(g, layer, block, part)]);
    return k == CACHES ? cache_bytes(units_of(g, i), z->cold[choice][i]) : z->cold[choice][i] * budget_slot_bytes(s, part);
}

static uint8_t *begin_of(const struct resize *z, int choice, enum kind k)
{
    static const enum budget_item items[KINDS] = { BUDGET_HOT, BUDGET_COLD, BUDGET_INDEX };
    return z->item[choice][items[k]].at + (k == CACHES ? z->tables : 0);
}

static void move(const struct resize *z, enum kind k, int up)
{
    size_t n = n_of(z->g, k);
    uint8_t *at[2] = { begin_of(z, 0, k), begin_of(z, 1, k) };
    for (size_t i = 0; i < n && up; i++) {
        at[0] += size_of(z, 0, k, i);
        at[1] += size_of(z, 1, k, i);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t was = size_of(z, 0, k, up ? n - 1 - i : i), will = size_of(z, 1, k, up ? n - 1 - i : i);
        at[0] -= up ? was : 0;
        at[1] -= up ? will : 0;
        if (up ? at[1] > at[0] : at[1] < at[0])
            memmove(at[1], at[0], was < will ? was : will);
        at[0] += up ? 0 : was;
        at[1] += up ? 0 : will;
    }
}

static void move_all(const struct resize *z)
{
    for (int k = 0; k < KINDS; k++)
        move(z, (enum kind)k, 0);
    for (int k = KINDS; k-- > 0;)
        move(z, (enum kind)k, 1);
}

/* ---- caches ---- */

struct segment {
    const struct resize *z;
    int layer, part;
    uint8_t *data;
    size_t slot_bytes;
};

/* A unit that will be resident needs no slot. */
static int stays(void *ctx, uint32_t unit)
{
    const struct segment *s = ctx;
    const struct engine *g = s->z->g;
    const struct layout_part *lp = &layout_of(g->shapes, s->layer)->part[s->part];
    uint32_t hot = s->z->hot[1][engine_hot_index(g, s->layer, (int)(unit / lp->n_units), s->part)];
    return unit % lp->n_units >= (hot + lp->neurons_per_unit - 1) / lp->neurons_per_unit;
}

static void move_slot(void *ctx, uint32_t from, uint32_t to)
{
    const struct segment *s = ctx;
    memcpy(s->data + to * s->slot_bytes, s->data + from * s->slot_bytes, s->slot_bytes);
}

/* Those that shrink, where they are; or those that grow, where they will be. */
static void resize_caches(const struct resize *z, int grows)
{
    const struct engine *g = z->g;
    uint8_t *data = begin_of(z, 0, SEGMENTS), *at = begin_of(z, grows, CACHES);
    for (size_t i = 0; i < n_of(g, CACHES); i++) {
        int layer = (int)(i / (size_t)g->n_parts), part = (int)(i % (size_t)g->n_parts);
        struct segment s = { z, layer, part, data, budget_slot_bytes(layout_of(g->shapes, layer), part) };
        const struct cache_moves m = { stays, move_slot, &s };
        if (grows == (z->cold[1][i] > z->cold[0][i]))
            cache_resize((struct cache *)(void *)at, z->cold[1][i], &m);
        data += size_of(z, 0, SEGMENTS, i);
        at += size_of(z, grows, CACHES, i);
    }
}

/* ---- the whole ---- */

int engine_reload(struct engine *g, const uint32_t *had, struct err *e)
{
    int r;
    g->watched = g->c.cancel;
    if ((r = load_begin(g, e)) == 0 && (r = load_checks(g, e)) == 0)
        r = load_neurons_hot(g, had, e);
    g->watched = NULL;
    g->lost = io_close(g->io) || g->lost;
    g->io = NULL;
    g->unloaded = r < 0;
    return r;
}

/* The engine's regions are where the new choice has them. */
static void take(struct engine *g, const struct resize *z)
{
    uint8_t *index = z->item[1][BUDGET_INDEX].at, *at = begin_of(z, 1, CACHES);
    size_t prefixes = n_of(g, PREFIXES), segments = n_of(g, SEGMENTS);
    memcpy(g->arena.item, z->item[1], sizeof g->arena.item);
    g->hot = z->item[1][BUDGET_HOT].at;
    g->cold = z->item[1][BUDGET_COLD].at;
    g->hot_at = (uint64_t *)(void *)index;
    index += (prefixes * sizeof *g->hot_at + 63) / 64 * 64;
    g->verifier.checks_at = (uint64_t *)(void *)index;
    index += (prefixes * sizeof *g->hot_at + 63) / 64 * 64;
    g->cold_at = (uint64_t *)(void *)index;
    index += (segments * sizeof *g->cold_at + 63) / 64 * 64;
    g->caches = (struct cache **)(void *)index;
    for (size_t i = 0; i < segments; i++) {
        g->caches[i] = (struct cache *)(void *)at;
        at += size_of(z, 1, CACHES, i);
    }
    g->c.choice.hot = g->verifier.hot = z->hot[1];
    g->c.choice.cold = z->cold[1];
    engine_index(g);
}

/* Reading is opened anew by it. */
static void take_passes(struct engine_config *c, const struct engine_config *how)
{
    c->batches = how->batches;
    c->n_batches = how->n_batches;
    c->rest = how->rest;
    c->coalesce = how->coalesce;
    c->n_coalesce = how->n_coalesce;
    c->io = how->io;
    c->no_ahead = how->no_ahead;
}

int engine_resize(struct engine *g, const uint32_t *hot, const uint32_t *cold, const struct engine_config *how, struct err *e)
{
    struct budget_choice c = g->c.choice;
    struct budget_model m;
    struct budget b;
    struct resize z = { .g = g, .hot = { c.hot, hot }, .cold = { c.cold, cold } };
    int r;
    assert(g->arena.reserved && !g->accel);
    c.hot = hot;
    c.cold = cold;
    pack_budget_model(g->c.pack, &m);
    if ((r = budget_compute(&m, &c, &b, e)) < 0)
        return r;
    memcpy(z.item[0], g->arena.item, sizeof z.item[0]);
    size_t bytes = arena_place(&g->arena, &b, z.item[1]);
    z.tables = (size_t)((uint8_t *)g->caches[0] - z.item[0][BUDGET_INDEX].at);
    if ((bytes > g->arena.bytes && (r = arena_resize(&g->arena, g->pool, bytes, e)) < 0) || (r = engine_stop_reading(g, e)) < 0)
        return r;
    if (g->broken)
        engine_empty_caches(g);
    resize_caches(&z, 0);
    move_all(&z);
    resize_caches(&z, 1);
    take(g, &z);
    if (how)
        take_passes(&g->c, how);
    g->budget = b;
    int given = bytes < g->arena.bytes ? arena_resize(&g->arena, g->pool, bytes, e) : 0;
    r = engine_reload(g, g->unloaded ? NULL : z.hot[0], given < 0 ? &(struct err){ 0 } : e);
    r = r < 0 ? r : engine_open_reading(g, given < 0 ? &(struct err){ 0 } : e);
    g->broken = r < 0;
    return given < 0 ? given : r;
}
