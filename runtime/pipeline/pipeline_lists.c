/* The coordinator's side of a pass: lists of entries, the cache, read buffers. Nothing here computes, and the lock is
 * held only to show workers what there is or to see what they have done. */
#include "runtime/pipeline/pipeline_impl.h"

#include <assert.h>

#define SUBMIT_MAX 64

/* The lists' memory, from the account: entries, rings, activity, gates left. */
void pipeline_take_lists(struct pass *p)
{
    const struct pipeline_config *c = p->c;
    const struct layout_shape *s = &c->shape;
    uint8_t *m = c->memory.entries + (size_t)(p - p->pipe->pass) * c->scratch.entries, *end = m + c->scratch.entries;
    for (int l = 0; l < LISTS; l++) {
        struct list *q = &p->list[l];
        q->part = l == LIST_GATE ? 0 : s->n_parts - 1;
        reads_rule_init(s, q->part, c->coalesce, l == LIST_GATE ? 0 : c->n_coalesce, p->pipe->buffer_bytes, &q->rule);
        q->work = l == LIST_GATE ? DO_GATE : s->n_parts == 1 ? DO_GATE | DO_UP : DO_UP;
        q->cap = l == LIST_GATE && s->n_parts == 1 ? 0 : s->n_clusters + s->part[q->part].n_units;
        q->e = (struct entry *)m;
        m += q->cap * sizeof *q->e;
    }
    for (int l = 0; l < LISTS; l++) {
        p->list[l].ring = (uint32_t *)m;
        m += p->list[l].cap * sizeof(uint32_t);
    }
    p->gate_left = (uint32_t *)m;
    m += s->n_clusters * sizeof(uint32_t);
    p->active = m;
    m += s->n_ff;
    p->pred.row_bytes = prediction_row_bytes(c);
    p->pred.any = m;
    m += p->pred.row_bytes;
    if (p == p->pipe->pass)
        p->pipe->now.scored = m;
    m += s->n_clusters;
    assert(m <= end);
    (void)end;
}

void pipeline_reset_lists(struct pass *p)
{
    for (int i = 0; i < LISTS; i++) {
        p->list[i].n = p->list[i].issue = p->list[i].ring_head = p->list[i].ring_n = p->list[i].ring_rows = 0;
        p->retired[i] = p->n_new[i] = 0;
    }
    p->resolved = p->gate_frontier = p->published = p->frontier = p->frontier_rows = 0;
}

/* ---- entries ---- */

void pipeline_flush(struct pass *p)
{
    if (!p->n_new[0] && !p->n_new[1])
        return;
    pthread_mutex_lock(&p->pipe->lock);
    for (int k = 0; k < LISTS; k++) {
        struct list *l = &p->list[k];
        for (uint32_t i = 0; i < p->n_new[k]; i++) {
            l->ring[(l->ring_head + l->ring_n++) % l->cap] = p->new_ready[k][i];
            l->ring_rows += rows_of(&l->e[p->new_ready[k][i]]);
        }
        p->n_new[k] = 0;
    }
    p->published = p->list[LIST_NEURON].n;
    pipeline_changed(p->pipe);
    pthread_mutex_unlock(&p->pipe->lock);
}

static void ready(struct pass *p, int list, uint32_t i)
{
    p->new_ready[list][p->n_new[list]++] = i;
    if (p->n_new[list] == JOB_ENTRIES)
        pipeline_flush(p);
}

static struct entry *append(struct pass *p, int list, uint32_t pos0, uint32_t n)
{
    struct list *l = &p->list[list];
    assert(l->n < l->cap);
    l->e[l->n] = (struct entry){ .pos0 = pos0, .n = (uint16_t)n };
    return &l->e[l->n++];
}

void pipeline_add_hot(struct pass *p, int list, uint32_t pos0, uint32_t n, uint32_t rows)
{
    int part = p->list[list].part;
    struct entry *e = append(p, list, pos0, n);
    e->kind = KIND_HOT;
    e->where = rows;
    e->base = p->hot_base[part] + (size_t)pos0 * p->c->shape.part[part].record_bytes;
    ready(p, list, p->list[list].n - 1);
}

static struct cache *cache_of(const struct pass *p, int part)
{
    return p->c->caches[config_part(p->c, p->layer, part)];
}

static uint8_t *slot_memory(const struct pass *p, int part, uint32_t slot)
{
    const struct pipeline_config *c = p->c;
    return c->cold + c->cold_at[config_part(c, p->layer, part)] + (size_t)slot * budget_slot_bytes(&c->shape, part);
}

static uint32_t cache_unit_of(const struct pass *p, int part, uint32_t unit)
{
    return (uint32_t)p->block * p->c->shape.part[part].n_units + unit;
}

void pipeline_prefetch_unit(const struct pass *p, int part, uint32_t unit, int stage)
{
    cache_prefetch(cache_of(p, part), cache_unit_of(p, part, unit), stage);
}

/* A unit that is not hot: cached and pinned, or to be read. */
void pipeline_add_unit(struct pass *p, int list, uint32_t unit)
{
    int part = p->list[list].part, is_ready = 0;
    const struct layout_part *lp = &p->c->shape.part[part];
    uint32_t slot = cache_lookup(cache_of(p, part), cache_unit_of(p, part, unit), &is_ready);
    struct entry *e = append(p, list, unit * lp->neurons_per_unit, layout_unit_neurons(&p->c->shape, lp, unit));
    e->unit = unit;
    e->where = slot;
    e->kind = KIND_MISSING;
    if (list == LIST_GATE || p->c->shape.n_parts == 1)
        p->pipe->stats.gate_lookups++;
    if (slot == CACHE_NONE)
        return;
    if (list == LIST_GATE || p->c->shape.n_parts == 1)
        p->pipe->stats.gate_hits++;
    e->kind = KIND_CACHED;
    e->base = slot_memory(p, part, slot);
    assert(is_ready); /* no read outlives its pass */
    ready(p, list, p->list[list].n - 1);
}

/* Neurons of cluster c, whose gates are known, that the FFN needs. */
static void resolve_cluster(struct pass *p, uint32_t c)
{
    const struct layout_shape *s = &p->c->shape;
    int part = p->list[LIST_NEURON].part;
    const struct layout_part *lp = &s->part[part];
    uint32_t first = c * s->l.cluster_neurons, end = first + s->l.cluster_neurons;
    if (end > (uint32_t)s->n_ff)
        end = (uint32_t)s->n_ff;
    if (first < p->hot[part]) {
        uint32_t rows = 0;
        for (uint32_t i = first; i < end; i++)
            rows += p->active[i];
        if (rows)
            pipeline_add_hot(p, LIST_NEURON, first, end - first, rows);
        return;
    }
    for (uint32_t at = first; at < end; at += lp->neurons_per_unit) {
        uint32_t n = end - at < lp->neurons_per_unit ? end - at : lp->neurons_per_unit;
        if (memchr(p->active + at, 1, n))
            pipeline_add_unit(p, LIST_NEURON, at / lp->neurons_per_unit);
    }
}

void pipeline_resolve(struct pass *p)
{
    const struct layout_shape *s = &p->c->shape;
    pthread_mutex_lock(&p->pipe->lock);
    uint32_t to = p->gate_frontier;
    pthread_mutex_unlock(&p->pipe->lock);
    if (p->resolved == to)
        return;
    for (; p->resolved < to; p->resolved++)
        if (p->resolved >= p->fused && s->n_parts > 1)
            resolve_cluster(p, p->resolved);
    pipeline_flush(p);
    pthread_mutex_lock(&p->pipe->lock);
    p->published = p->list[LIST_NEURON].n;
    if (to == s->n_clusters) {
        p->all_resolved = 1;
        pipeline_check_finished(p);
    }
    pipeline_changed(p->pipe);
    pthread_mutex_unlock(&p->pipe->lock);
}

static void release(struct pass *p, const struct entry *e, int part)
{
    if (e->kind == KIND_CACHED || e->kind == KIND_ADMITTED)
        cache_unpin(cache_of(p, part), e->where);
    else if (e->kind == KIND_STAGED && --p->pipe->buffers[e->where].refs == 0)
        p->pipe->free_buffers[p->pipe->n_free++] = e->where;
}

/* Neuron entries that every tile has passed, and gates that are computed, in order. */
void pipeline_retire(struct pass *p)
{
    const struct list *gates = &p->list[LIST_GATE], *neurons = &p->list[LIST_NEURON];
    uint32_t to = UINT32_MAX, g = p->retired[LIST_GATE];
    pthread_mutex_lock(&p->pipe->lock);
    for (int i = 0; i < p->pipe->n_tiles; i++)
        to = p->tiles[i].done < to ? p->tiles[i].done : to;
    while (g < gates->n && gates->e[g].done)
        g++;
    pthread_mutex_unlock(&p->pipe->lock);
    for (uint32_t *r = &p->retired[LIST_GATE]; *r < g; ++*r)
        release(p, &gates->e[*r], gates->part);
    for (uint32_t *r = &p->retired[LIST_NEURON]; *r < to; ++*r)
        release(p, &neurons->e[*r], neurons->part);
}

/* Everything that is known before the activations are: hot clusters, and the units whose gates are needed. In a predicted
 * pass that is only the neurons that need not be predicted; all others' gates count as missing until they are scored. */
void pipeline_list_known(struct pass *p)
{
    const struct layout_shape *s = &p->c->shape;
    uint32_t cluster = s->l.cluster_neurons, n_ff = (uint32_t)s->n_ff;
    int list = s->n_parts == 1 ? LIST_NEURON : LIST_GATE;
    const struct layout_part *lp = &s->part[0];
    for (uint32_t c = 0; c < s->n_clusters; c++) {
        uint32_t first = c * cluster, n = n_ff - first < cluster ? n_ff - first : cluster;
        p->gate_left[c] = n;
        if (p->pred.on && first >= p->pred.always)
            continue;
        if (c < p->fused || s->n_parts == 1)
            p->gate_left[c] = 0;
        if (c < p->fused)
            pipeline_add_hot(p, LIST_NEURON, first, n, n);
        else if (first < p->hot[0])
            pipeline_add_hot(p, list, first, n, n);
        else
            for (uint32_t at = first; at < first + n; at += lp->neurons_per_unit)
                pipeline_add_unit(p, list, at / lp->neurons_per_unit);
    }
    pipeline_flush(p);
    while (p->gate_frontier < s->n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
}

/* ---- reads ---- */

static uint64_t unit_offset(const struct pass *p, int part, uint32_t unit)
{
    return pack_unit_offset(p->c->pack, p->layer, p->block, part, unit);
}

/* End of a unit's payload, rounded up to a block. */
static uint64_t unit_end(const struct pass *p, int part, const struct entry *e)
{
    uint64_t block = p->c->shape.l.block_bytes;
    uint64_t end = unit_offset(p, part, e->unit) + (uint64_t)e->n * p->c->shape.part[part].record_bytes;
    return (end + block - 1) / block * block;
}

static int next_missing(struct list *l)
{
    while (l->issue < l->n && l->e[l->issue].kind != KIND_MISSING)
        l->issue++;
    return l->issue < l->n;
}

/* The first unit of a list that may still be appended to it. */
static uint32_t known_to(const struct pass *p, int list)
{
    const struct layout_shape *s = &p->c->shape;
    const struct prediction *d = &p->pred;
    uint32_t to = UINT32_MAX, per = s->part[p->list[list].part].neurons_per_unit;
    if (list == LIST_NEURON && s->n_parts > 1)
        to = p->resolved < s->n_clusters ? p->resolved * s->l.cluster_neurons / per : to;
    else if (d->on && d->listed < d->n_ranges)
        to = (d->always + d->listed * d->range) / per;
    return to;
}

/* How many missing units from the next one on the next read brings; 0: that is not known before the list is longer. */
static size_t next_read(const struct pass *p, int list)
{
    const struct list *l = &p->list[list];
    uint32_t missing[READS_MAX_UNITS], first = l->e[l->issue].unit;
    size_t n = 0;
    if (l->rule.n_coalesce && known_to(p, list) - first < l->rule.most)
        return 0;
    for (uint32_t i = l->issue; i < l->n && l->e[i].unit - first < l->rule.most; i++)
        if (l->e[i].kind == KIND_MISSING)
            missing[n++] = l->e[i].unit;
    return reads_next(&l->rule, missing, n);
}

/* One read for the next n missing units of a list, and for the gaps between them. */
static struct io_request *start_read(struct pass *p, int list, size_t n)
{
    struct list *l = &p->list[list];
    struct buffer *b = &p->pipe->buffers[p->pipe->free_buffers[--p->pipe->n_free]];
    struct entry *e = &l->e[l->issue];
    b->pass = p;
    b->list = (uint32_t)list;
    b->first = l->issue;
    b->refs = 0;
    b->start = unit_offset(p, l->part, e->unit) / p->c->shape.l.block_bytes * p->c->shape.l.block_bytes;
    for (;; e++) {
        if (e->kind != KIND_MISSING) /* may be ready, and looked at by workers: not to be written */
            continue;
        e->kind = KIND_READING;
        if (!--n)
            break;
    }
    l->issue = (uint32_t)(e - l->e) + 1;
    b->n = l->issue - b->first;
    b->req.offset = b->start;
    b->req.len = (uint32_t)(unit_end(p, l->part, e) - b->start);
    assert(b->req.len <= p->pipe->buffer_bytes);
    return &b->req;
}

int pipeline_issue(struct pipeline *p, uint32_t most)
{
    struct io_request *batch[SUBMIT_MAX];
    int n = 0, r, pressure = 0;
    for (int i = 0; i < p->n_passes * LISTS; i++) {
        struct pass *s = &p->pass[i / LISTS];
        int list = i % LISTS;
        while ((uint32_t)(p->c.io->in_flight + n) < most && next_missing(&s->list[list])) {
            size_t units = next_read(s, list);
            if (!units || !p->n_free) {
                pressure |= units > 0;
                break;
            }
            batch[n++] = start_read(s, list, units);
            if (n == SUBMIT_MAX) {
                if ((r = io_submit(p->c.io, batch, n, p->err)) < 0)
                    return r;
                n = 0;
            }
        }
    }
    if (pressure != p->pressure) {
        pthread_mutex_lock(&p->lock);
        p->pressure = pressure;
        pipeline_changed(p);
        pthread_mutex_unlock(&p->lock);
    }
    if ((r = n ? io_submit(p->c.io, batch, n, p->err) : 0) == 0)
        atomic_store_explicit(&p->in_flight, (unsigned)p->c.io->in_flight, memory_order_relaxed);
    return r;
}

/* Into the cache where it is taken; else the entry keeps the buffer until it is retired. */
static void arrived(struct buffer *b)
{
    struct pass *p = b->pass;
    struct list *l = &p->list[b->list];
    uint32_t record_bytes = p->c->shape.part[l->part].record_bytes;
    for (uint32_t i = b->first; i < b->first + b->n; i++) {
        struct entry *e = &l->e[i];
        if (e->kind != KIND_READING) /* cached, in a gap */
            continue;
        uint8_t *data = b->req.buf + (unit_offset(p, l->part, e->unit) - b->start);
        uint32_t evicted, slot = cache_admit(cache_of(p, l->part), cache_unit_of(p, l->part, e->unit), &evicted);
        if (slot == CACHE_NONE) {
            e->kind = KIND_STAGED;
            e->base = data;
            e->where = b->req.tag;
            b->refs++;
        } else {
            uint8_t *to = slot_memory(p, l->part, slot);
            memcpy(to, data, (size_t)e->n * record_bytes);
            cache_ready(cache_of(p, l->part), slot);
            e->kind = KIND_ADMITTED;
            e->base = to;
            e->where = slot;
        }
        ready(p, (int)b->list, i);
    }
    if (!b->refs)
        p->pipe->free_buffers[p->pipe->n_free++] = b->req.tag;
}

int pipeline_collect(struct pipeline *p, int wait)
{
    struct io_request *done[SUBMIT_MAX];
    int n = io_reap(p->c.io, done, SUBMIT_MAX, wait, p->err), r;
    for (int i = 0; i < n; i++) {
        if (done[i]->tag >= p->n_buffers) {
            if ((r = predictor_prefetch_came(p->now.predictor_prefetch, done[i], p->err)) < 0)
                return r;
            continue;
        }
        if (done[i]->result < 0)
            return io_failed(p->c.io, done[i], p->err);
        arrived(&p->buffers[done[i]->tag]);
    }
    for (int i = 0; i < p->n_passes && n > 0; i++)
        pipeline_flush(&p->pass[i]);
    return n < 0 ? n : 0;
}

