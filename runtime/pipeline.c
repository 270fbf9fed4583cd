/* The FFN of one (layer, block), as README.md draws it. Two lists hold what has to be computed, in
 * pack order: gate entries (units of a part that holds only gates) and neuron entries (units, or
 * hot clusters, whose Down rows count). The coordinator, worker 0, owns the cache, the read
 * buffers and the growth of the lists; between its rounds it computes like everybody. Workers take
 * ready entries in any order and write h[t][position]; Down is summed by column tiles, each a strict walk
 * through the neuron list up to the frontier, the first entry whose h is not there yet. So the bits
 * of every column depend on the pack's order alone.
 *
 *      gates ──► active? ──► resolve (pack order): hot │ cached │ missing ──► read
 *                                     │        │            │
 *                                     ▼        ▼            ▼ arrives, in any order
 *                               [ready: up, h] ...................   any worker
 *                                     │ done
 *                     frontier ───────┴──►  tile 0 │ tile 1 │ ...    walk in order
 *                     retired  = slowest tile: unpin, free the buffer
 *
 * Why it cannot lock up: reads of neuron entries start in list order and an entry keeps its buffer only
 * until it is retired; so when no buffer is free, either a gate (which frees its buffer once computed)
 * or an entry at the frontier holds one, and both move without further reads. */
#include "runtime/pipeline_impl.h"

#include "common/progress.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SUBMIT_MAX 64
#define SPIN_LOOKS 2000

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- creation ---- */

static int make_tiles(struct pipeline *p, int d_model)
{
    int per = (d_model / p->n_threads + 63) / 64 * 64;
    p->n_tiles = (d_model + per - 1) / per;
    p->tiles = calloc((size_t)p->n_tiles, sizeof *p->tiles);
    for (int i = 0; p->tiles && i < p->n_tiles; i++) {
        p->tiles[i].col0 = i * per;
        p->tiles[i].n_cols = i * per + per > d_model ? d_model - i * per : per;
    }
    return p->tiles != NULL;
}

/* The lists' memory, from the account: entries, rings, activity, gates left. */
static void take_lists(struct pipeline *p)
{
    struct engine *g = p->g;
    const struct layout_shape *s = &g->shape;
    uint8_t *m = arena_take(&g->arena, BUDGET_SCRATCH, g->scratch.entries), *end = m + g->scratch.entries;
    for (int l = 0; l < LISTS; l++) {
        struct list *q = &p->list[l];
        q->part = l == LIST_GATE ? 0 : s->n_parts - 1;
        reads_rule_init(s, q->part, g->c.joins, l == LIST_GATE ? 0 : g->c.n_joins, p->buffer_bytes, &q->rule);
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
    m = prediction_take_memory(p, m);
    assert(m <= end);
    (void)end;
}

struct pipeline *pipeline_new(struct engine *g, struct err *e)
{
    _Static_assert(sizeof(struct buffer) + sizeof(uint32_t) <= BUDGET_READ_BYTES, "read state");
    _Static_assert(sizeof(struct entry) + sizeof(uint32_t) <= BUDGET_ENTRY_BYTES * 2 / 3, "entries");
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p || (p->n_threads = pool_threads(g->pool), !make_tiles(p, g->h.d_model))) {
        free(p);
        err_set(e, ERR_NOMEM, "out of memory for the pipeline");
        return NULL;
    }
    p->g = g;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    long cpus = 0;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        cpus = CPU_COUNT(&mask);
    int lanes = strcmp(g->io->backend->name, "pread") ? 0 : g->c.choice.io_lanes;
    p->spin = p->n_threads + lanes <= cpus;
    p->n_buffers = (uint32_t)g->c.choice.queue_depth;
    p->buffer_bytes = (uint32_t)budget_read_bytes(&g->shape, g->c.choice.read_bytes);
    uint8_t *m = arena_take(&g->arena, BUDGET_SCRATCH, g->scratch.reads);
    p->buffers = (struct buffer *)m;
    p->free_buffers = (uint32_t *)(m + p->n_buffers * sizeof *p->buffers);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        p->buffers[i].req.buf = g->staging + (size_t)i * p->buffer_bytes;
        p->buffers[i].req.tag = i;
        p->free_buffers[p->n_free++] = p->n_buffers - 1 - i;
    }
    p->gather = arena_take(&g->arena, BUDGET_SCRATCH, g->scratch.gather);
    take_lists(p);
    if (prediction_new(p, e) < 0) {
        pipeline_free(p);
        return NULL;
    }
    return p;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    feeder_free(p->pred.feeder);
    free(p->tiles);
    free(p);
}

/* ---- taking and finishing jobs; lock held ---- */

/* Neurons of an entry that cost something. */
static uint32_t rows_of(const struct entry *e)
{
    return e->kind == KIND_HOT ? e->where : e->n;
}

static int take_ready(struct pipeline *p, int list, struct job *j)
{
    struct list *l = &p->list[list];
    if (!l->ring_n)
        return 0;
    uint32_t bytes = 0, share = (l->ring_n + (uint32_t)p->n_threads - 1) / (uint32_t)p->n_threads;
    j->kind = JOB_ENTRIES_READY;
    j->list = list;
    j->n = 0;
    while (l->ring_n && j->n < JOB_ENTRIES && (uint32_t)j->n < share && bytes < JOB_BYTES) {
        uint32_t i = l->ring[l->ring_head];
        l->ring_head = l->ring_head + 1 == l->cap ? 0 : l->ring_head + 1;
        l->ring_n--;
        j->idx[j->n++] = i;
        bytes += rows_of(&l->e[i]) * p->g->shape.part[l->part].record_bytes;
    }
    return 1;
}

static int take_tile(struct pipeline *p, int worker, struct job *j)
{
    for (int k = 0; k < p->n_tiles; k++) {
        int i = (worker + k) % p->n_tiles;
        struct tile *t = &p->tiles[i];
        if (t->busy || t->done == p->frontier)
            continue;
        t->busy = 1;
        *j = (struct job){ .kind = JOB_TILE, .tile = i, .from = t->done, .to = p->frontier };
        uint32_t neurons = 0;
        for (uint32_t q = j->from; q < j->to; q++)
            if ((neurons += rows_of(&p->list[LIST_NEURON].e[q])) >= DOWN_ROWS)
                j->to = q + 1;
        return 1;
    }
    return 0;
}

/* What tells which reads are needed comes first: foretelling, then gates. When reads wait for buffers, what frees
 * buffers comes before. */
static int take(struct pipeline *p, int worker, struct job *j)
{
    j->kind = JOB_NONE;
    if (p->failed || p->finished)
        return 0;
    if (p->hold) {
        p->hold = 2;
        return 0;
    }
    if (p->pred.alone)
        return prediction_take(p, j);
    return (p->pressure && take_tile(p, worker, j)) || prediction_take(p, j) || take_ready(p, LIST_GATE, j) ||
           take_ready(p, LIST_NEURON, j) || take_tile(p, worker, j);
}

void pipeline_changed(struct pipeline *p)
{
    atomic_fetch_add(&p->version, 1);
    if (p->waiters)
        pthread_cond_broadcast(&p->wake);
}

static void check_finished(struct pipeline *p)
{
    if (!p->all_resolved)
        return;
    for (int i = 0; i < p->n_tiles; i++)
        if (p->tiles[i].done < p->published)
            return;
    p->finished = 1;
}

static void finish(struct pipeline *p, const struct job *j, const struct counts *c)
{
    if (j->kind >= JOB_HIDDEN) {
        prediction_finish(p, j);
        pipeline_changed(p);
        return;
    }
    if (j->kind == JOB_TILE) {
        p->tiles[j->tile].busy = 0;
        p->tiles[j->tile].done = j->to;
        check_finished(p);
        pipeline_changed(p);
        return;
    }
    struct list *l = &p->list[j->list];
    uint32_t cluster = p->g->shape.l.cluster_neurons;
    for (int i = 0; i < j->n; i++) {
        struct entry *e = &l->e[j->idx[i]];
        e->done = 1;
        if (j->list == LIST_GATE)
            p->gate_left[e->pos0 / cluster] -= e->n;
    }
    while (p->gate_frontier < p->g->shape.n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
    while (p->frontier < p->published && p->list[LIST_NEURON].e[p->frontier].done)
        p->frontier++;
    p->counts.active_hot += c->active_hot;
    p->counts.active_cold += c->active_cold;
    p->counts.active_read += c->active_read;
    p->counts.computed += c->computed;
    pipeline_changed(p);
}

/* ---- the coordinator: cache, buffers, lists ---- */

void pipeline_flush(struct pipeline *p)
{
    if (!p->n_new[0] && !p->n_new[1])
        return;
    pthread_mutex_lock(&p->lock);
    for (int k = 0; k < LISTS; k++) {
        struct list *l = &p->list[k];
        for (uint32_t i = 0; i < p->n_new[k]; i++)
            l->ring[(l->ring_head + l->ring_n++) % l->cap] = p->new_ready[k][i];
        p->n_new[k] = 0;
    }
    p->published = p->list[LIST_NEURON].n;
    pipeline_changed(p);
    pthread_mutex_unlock(&p->lock);
}

static void ready(struct pipeline *p, int list, uint32_t i)
{
    p->new_ready[list][p->n_new[list]++] = i;
    if (p->n_new[list] == JOB_ENTRIES)
        pipeline_flush(p);
}

static struct entry *append(struct pipeline *p, int list, uint32_t pos0, uint32_t n)
{
    struct list *l = &p->list[list];
    assert(l->n < l->cap);
    l->e[l->n] = (struct entry){ .pos0 = pos0, .n = (uint16_t)n };
    return &l->e[l->n++];
}

void pipeline_add_hot(struct pipeline *p, int list, uint32_t pos0, uint32_t n, uint32_t rows)
{
    int part = p->list[list].part;
    struct entry *e = append(p, list, pos0, n);
    e->kind = KIND_HOT;
    e->where = rows;
    e->base = p->hot_base[part] + (size_t)pos0 * p->g->shape.part[part].record_bytes;
    ready(p, list, p->list[list].n - 1);
}

static struct cache *cache_of(const struct pipeline *p, int part)
{
    return p->g->caches[(size_t)p->layer * (size_t)p->g->n_parts + (size_t)part];
}

static uint8_t *slot_memory(const struct pipeline *p, int part, uint32_t slot)
{
    const struct engine *g = p->g;
    return g->cold + g->cold_at[(size_t)p->layer * (size_t)g->n_parts + (size_t)part] +
           (size_t)slot * budget_slot_bytes(&g->shape, part);
}

static uint32_t cache_unit_of(const struct pipeline *p, int part, uint32_t unit)
{
    return (uint32_t)p->block * p->g->shape.part[part].n_units + unit;
}

void pipeline_prefetch_unit(const struct pipeline *p, int part, uint32_t unit, int stage)
{
    cache_prefetch(cache_of(p, part), cache_unit_of(p, part, unit), stage);
}

/* A unit that is not hot: cached and pinned, or to be read. */
void pipeline_add_unit(struct pipeline *p, int list, uint32_t unit)
{
    int part = p->list[list].part, is_ready = 0;
    const struct layout_part *lp = &p->g->shape.part[part];
    uint32_t slot = cache_lookup(cache_of(p, part), cache_unit_of(p, part, unit), &is_ready);
    struct entry *e = append(p, list, unit * lp->neurons_per_unit, layout_unit_neurons(&p->g->shape, lp, unit));
    e->unit = unit;
    e->where = slot;
    e->kind = KIND_MISSING;
    if (list == LIST_GATE || p->g->n_parts == 1)
        p->g->stats.gate_lookups++;
    if (slot == CACHE_NONE)
        return;
    if (list == LIST_GATE || p->g->n_parts == 1)
        p->g->stats.gate_hits++;
    e->kind = KIND_CACHED;
    e->base = slot_memory(p, part, slot);
    assert(is_ready); /* no read outlives its pass */
    ready(p, list, p->list[list].n - 1);
}

/* Neurons of cluster c, whose gates are known, that the FFN needs. */
static void resolve_cluster(struct pipeline *p, uint32_t c)
{
    const struct layout_shape *s = &p->g->shape;
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

static void resolve(struct pipeline *p)
{
    const struct layout_shape *s = &p->g->shape;
    pthread_mutex_lock(&p->lock);
    uint32_t to = p->gate_frontier;
    pthread_mutex_unlock(&p->lock);
    if (p->resolved == to)
        return;
    for (; p->resolved < to; p->resolved++)
        if (p->resolved >= p->fused && s->n_parts > 1)
            resolve_cluster(p, p->resolved);
    pipeline_flush(p);
    pthread_mutex_lock(&p->lock);
    p->published = p->list[LIST_NEURON].n;
    if (to == s->n_clusters) {
        p->all_resolved = 1;
        check_finished(p);
    }
    pipeline_changed(p);
    pthread_mutex_unlock(&p->lock);
}

static void release(struct pipeline *p, const struct entry *e, int part)
{
    if (e->kind == KIND_CACHED || e->kind == KIND_ADMITTED)
        cache_unpin(cache_of(p, part), e->where);
    else if (e->kind == KIND_STAGED && --p->buffers[e->where].refs == 0)
        p->free_buffers[p->n_free++] = e->where;
}

/* Neuron entries that every tile has passed, and gates that are computed, in order. */
static void retire(struct pipeline *p)
{
    const struct list *gates = &p->list[LIST_GATE], *neurons = &p->list[LIST_NEURON];
    uint32_t to = UINT32_MAX, g = p->retired[LIST_GATE];
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_tiles; i++)
        to = p->tiles[i].done < to ? p->tiles[i].done : to;
    while (g < gates->n && gates->e[g].done)
        g++;
    pthread_mutex_unlock(&p->lock);
    for (uint32_t *r = &p->retired[LIST_GATE]; *r < g; ++*r)
        release(p, &gates->e[*r], gates->part);
    for (uint32_t *r = &p->retired[LIST_NEURON]; *r < to; ++*r)
        release(p, &neurons->e[*r], neurons->part);
}

/* ---- reads ---- */

static uint64_t unit_offset(const struct pipeline *p, int part, uint32_t unit)
{
    return pack_unit_offset(p->g->c.pack, p->layer, p->block, part, unit);
}

/* End of a unit's payload, rounded up to a block. */
static uint64_t unit_end(const struct pipeline *p, int part, const struct entry *e)
{
    uint64_t block = p->g->shape.l.block_bytes;
    uint64_t end = unit_offset(p, part, e->unit) + (uint64_t)e->n * p->g->shape.part[part].record_bytes;
    return (end + block - 1) / block * block;
}

static int next_missing(struct list *l)
{
    while (l->issue < l->n && l->e[l->issue].kind != KIND_MISSING)
        l->issue++;
    return l->issue < l->n;
}

/* The first unit of a list that may still be appended to it. */
static uint32_t known_to(const struct pipeline *p, int list)
{
    const struct layout_shape *s = &p->g->shape;
    const struct prediction *d = &p->pred;
    uint32_t to = UINT32_MAX, per = s->part[p->list[list].part].neurons_per_unit;
    if (list == LIST_NEURON && s->n_parts > 1)
        to = p->resolved < s->n_clusters ? p->resolved * s->l.cluster_neurons / per : to;
    else if (d->on && d->listed < d->n_ranges)
        to = (d->exempt + d->listed * d->range) / per;
    return to;
}

/* How many missing units from the next one on the next read brings; 0: that is not known before the list is longer. */
static size_t next_read(const struct pipeline *p, int list)
{
    const struct list *l = &p->list[list];
    uint32_t missing[READS_MAX_UNITS], first = l->e[l->issue].unit;
    size_t n = 0;
    if (l->rule.n_joins && known_to(p, list) - first < l->rule.most)
        return 0;
    for (uint32_t i = l->issue; i < l->n && l->e[i].unit - first < l->rule.most; i++)
        if (l->e[i].kind == KIND_MISSING)
            missing[n++] = l->e[i].unit;
    return reads_next(&l->rule, missing, n);
}

/* One read for the next n missing units of a list, and for the gaps between them. */
static struct io_request *start_read(struct pipeline *p, int list, size_t n)
{
    struct list *l = &p->list[list];
    struct buffer *b = &p->buffers[p->free_buffers[--p->n_free]];
    struct entry *e = &l->e[l->issue];
    b->list = (uint32_t)list;
    b->first = l->issue;
    b->refs = 0;
    b->start = unit_offset(p, l->part, e->unit) / p->g->shape.l.block_bytes * p->g->shape.l.block_bytes;
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
    assert(b->req.len <= p->buffer_bytes);
    return &b->req;
}

static int issue(struct pipeline *p)
{
    struct io_request *batch[SUBMIT_MAX];
    int n = 0, r, pressure = 0;
    for (int list = 0; list < LISTS; list++)
        while (next_missing(&p->list[list])) {
            size_t units = next_read(p, list);
            if (!units || !p->n_free) {
                pressure |= units > 0;
                break;
            }
            batch[n++] = start_read(p, list, units);
            if (n == SUBMIT_MAX) {
                if ((r = io_submit(p->g->io, batch, n, p->err)) < 0)
                    return r;
                n = 0;
            }
        }
    if (pressure != p->pressure) {
        pthread_mutex_lock(&p->lock);
        p->pressure = pressure;
        pipeline_changed(p);
        pthread_mutex_unlock(&p->lock);
    }
    return n ? io_submit(p->g->io, batch, n, p->err) : 0;
}

/* Into the cache where it is taken; else the entry keeps the buffer until it is retired. */
static void arrived(struct pipeline *p, struct buffer *b)
{
    struct list *l = &p->list[b->list];
    uint32_t record_bytes = p->g->shape.part[l->part].record_bytes;
    for (uint32_t i = b->first; i < b->first + b->n; i++) {
        struct entry *e = &l->e[i];
        if (e->kind != KIND_READING) /* cached, in a gap */
            continue;
        const uint8_t *data = b->req.buf + (unit_offset(p, l->part, e->unit) - b->start);
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
        p->free_buffers[p->n_free++] = b->req.tag;
}

static int collect(struct pipeline *p, int wait)
{
    struct io_request *done[SUBMIT_MAX];
    int n = io_reap(p->g->io, done, SUBMIT_MAX, wait, p->err), r;
    for (int i = 0; i < n; i++) {
        if (done[i]->tag >= p->n_buffers) {
            if ((r = feeder_came(p->pred.feeder, done[i], p->err)) < 0)
                return r;
            continue;
        }
        if (done[i]->result < 0)
            return io_failed(p->g->io, done[i], p->err);
        arrived(p, &p->buffers[done[i]->tag]);
    }
    pipeline_flush(p);
    return n < 0 ? n : 0;
}

static int coordinate(struct pipeline *p)
{
    int r = collect(p, 0);
    if (r < 0)
        return r;
    if (p->pred.on)
        prediction_list(p);
    resolve(p);
    retire(p);
    if (!(p->pred.alone && p->g->c.no_prefetch) && (r = issue(p)) < 0)
        return r;
    return prediction_feed(p, !p->g->c.no_prefetch);
}

/* With no_overlap: jobs are withheld until every read that can be made has arrived. */
static int coordinate_apart(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->hold = p->hold ? p->hold : 1;
    pthread_mutex_unlock(&p->lock);
    int r = coordinate(p);
    int64_t t = progress_now_ns();
    while (r == 0 && p->g->io->in_flight)
        if ((r = collect(p, 1)) == 0 && (r = issue(p)) == 0)
            r = prediction_feed(p, 0);
    p->g->stats.stall_ns += (uint64_t)(progress_now_ns() - t);
    pthread_mutex_lock(&p->lock);
    if (p->hold == 2)
        pipeline_changed(p);
    p->hold = 0;
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* ---- the pass ---- */

static void fail(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->failed = 1;
    pipeline_changed(p);
    pthread_mutex_unlock(&p->lock);
}

static void wait_change(struct pipeline *p, unsigned seen)
{
    for (int i = 0; p->spin && i < SPIN_LOOKS; i++) {
        if (atomic_load(&p->version) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    p->waiters++;
    while (atomic_load(&p->version) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    p->waiters--;
    pthread_mutex_unlock(&p->lock);
}

/* Nothing to compute for the coordinator. Reads in flight while others compute: look at both. Reads alone: sleep
 * until one arrives; that is the stall of telemetry. */
static int idle(struct pipeline *p, unsigned seen)
{
    pthread_mutex_lock(&p->lock);
    int alone = !p->busy && atomic_load(&p->version) == seen;
    pthread_mutex_unlock(&p->lock);
    if (!p->g->io->in_flight) {
        assert(!alone); /* else nothing would ever change */
        wait_change(p, seen);
        return 0;
    }
    if (!alone) {
        if (p->spin)
            relax();
        else
            sched_yield();
        return 0;
    }
    int64_t t = progress_now_ns();
    int r = collect(p, 1);
    p->g->stats.stall_ns += (uint64_t)(progress_now_ns() - t);
    return r;
}

static void work(void *ctx, int worker, int n_threads)
{
    struct pipeline *p = ctx;
    struct job j;
    (void)n_threads;
    for (;;) {
        unsigned seen = atomic_load(&p->version);
        if (worker == 0 && (p->g->c.no_overlap ? coordinate_apart : coordinate)(p) < 0)
            fail(p);
        pthread_mutex_lock(&p->lock);
        int got = take(p, worker, &j), over = p->finished || p->failed || p->pred.complete;
        p->busy += got;
        pthread_mutex_unlock(&p->lock);
        if (over)
            return;
        if (!got) {
            if (worker > 0)
                wait_change(p, seen);
            else if (idle(p, seen) < 0)
                fail(p);
            continue;
        }
        struct counts c = { 0 };
        if (j.kind >= JOB_HIDDEN)
            prediction_work(p, &j, worker);
        else if (j.kind == JOB_TILE)
            pipeline_work_tile(p, &j, worker);
        else
            pipeline_work_entries(p, &j, worker, &c);
        pthread_mutex_lock(&p->lock);
        p->busy--;
        finish(p, &j, &c);
        pthread_mutex_unlock(&p->lock);
    }
}

static void reset(struct pipeline *p, int layer, int block)
{
    const struct engine *g = p->g;
    const struct layout_shape *s = &g->shape;
    uint32_t cluster = s->l.cluster_neurons, resident = UINT32_MAX;
    p->layer = layer;
    p->block = block;
    for (int i = 0; i < s->n_parts; i++) {
        p->hot[i] = engine_hot_neurons(g, layer, block, i);
        p->hot_base[i] = g->hot + g->hot_at[engine_hot_index(g, layer, block, i)];
        resident = p->hot[i] < resident ? p->hot[i] : resident;
    }
    p->fused = (resident + cluster - 1) / cluster; /* a resident prefix is whole clusters, or everything */
    for (int i = 0; i < LISTS; i++) {
        p->list[i].n = p->list[i].issue = p->list[i].ring_head = p->list[i].ring_n = 0;
        p->retired[i] = p->n_new[i] = 0;
    }
    p->resolved = p->gate_frontier = p->published = p->frontier = 0;
    p->busy = p->all_resolved = p->finished = p->failed = p->pressure = 0;
    p->hold = g->c.no_overlap;
    p->counts = (struct counts){ 0 };
    for (int i = 0; i < p->n_tiles; i++)
        p->tiles[i].busy = 0, p->tiles[i].done = 0;
    prediction_reset(p);
}

/* Everything that is known before the activations are: hot clusters, and the units whose gates are needed. In a predicted
 * pass that is only the neurons that need not be foretold; all others' gates count as missing until they are scored. */
static void list_known(struct pipeline *p)
{
    const struct layout_shape *s = &p->g->shape;
    uint32_t cluster = s->l.cluster_neurons, n_ff = (uint32_t)s->n_ff;
    int list = s->n_parts == 1 ? LIST_NEURON : LIST_GATE;
    const struct layout_part *lp = &s->part[0];
    for (uint32_t c = 0; c < s->n_clusters; c++) {
        uint32_t first = c * cluster, n = n_ff - first < cluster ? n_ff - first : cluster;
        p->gate_left[c] = n;
        if (p->pred.on && first >= p->pred.exempt)
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

int pipeline_prefetch(struct pipeline *p, int layer, int block, struct err *e)
{
    p->err = e;
    reset(p, layer, block);
    list_known(p);
    p->prepared = 1;
    int r = p->g->c.no_prefetch ? 0 : issue(p);
    return r < 0 || p->g->c.no_prefetch ? r : prediction_feed(p, 1);
}

int pipeline_poll(struct pipeline *p, struct err *e)
{
    if (!p->prepared || !p->g->io->in_flight)
        return 0;
    p->err = e;
    int r = collect(p, 0);
    if (r == 0)
        r = issue(p);
    return r < 0 ? r : prediction_feed(p, 1);
}

static int prepare(struct pipeline *p, int layer, int block, struct err *e)
{
    int r = p->prepared && p->layer == layer && p->block == block ? 0 : pipeline_prefetch(p, layer, block, e);
    p->err = e;
    return r;
}

int pipeline_predict(struct pipeline *p, int layer, int block, struct acts *in, struct err *e)
{
    struct engine *g = p->g;
    int64_t start = progress_now_ns();
    int r = prepare(p, layer, block, e);
    if (r < 0)
        return r;
    prediction_begin(p, in);
    p->pred.alone = 1;
    p->pred.complete = !p->pred.n_ranges;
    pool_share(g->pool, work, p);
    p->pred.alone = p->pred.complete = 0;
    p->pred.ns = 0;
    g->stats.predict_ns += (uint64_t)(progress_now_ns() - start);
    return p->failed ? e->code : 0;
}

int pipeline_run(struct pipeline *p, int layer, int block, struct acts *in, float *rows, float *out, struct err *e)
{
    struct engine *g = p->g;
    int r = prepare(p, layer, block, e);
    if (r < 0)
        return r;
    p->prepared = 0;
    p->n_tokens = in->n_tokens;
    p->rows = rows;
    p->out = out;
    for (int role = LAYOUT_GATE; role <= LAYOUT_UP; role++) {
        enum kernels_act f = kernels_act_form(g->shape.l.type[role], g->c.act_q8);
        p->x[f] = engine_acts(g, in, f, &p->x_stride[f]);
    }
    if (p->pred.on && p->pred.stage == STAGE_NONE)
        prediction_begin(p, in);
    memset(out, 0, (size_t)in->n_tokens * (size_t)g->h.d_model * sizeof *out);
    pool_share(g->pool, work, p);
    if (p->failed)
        return e->code;
    retire(p);
    g->stats.neurons_hot += p->counts.active_hot;
    g->stats.neurons_cold += p->counts.active_cold;
    g->stats.neurons_read += p->counts.active_read;
    g->stats.neurons_possible += (uint64_t)g->shape.n_ff;
    g->stats.neurons_computed += p->pred.on ? p->counts.computed : (uint64_t)g->shape.n_ff;
    g->stats.predict_ns += p->pred.ns / (uint64_t)p->n_threads;
    return 0;
}
