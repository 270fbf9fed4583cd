/* One buffer per read in flight. A free buffer is a number on a stack; an entry that is used from its buffer counts as a
 * reference to it. Reads of a list start in list order and an entry keeps its buffer only until it is released, so the oldest
 * entry that is not released is there, in flight, or next in line for a buffer: see scheduler.c for why that cannot lock up. */
#include "runtime/pipeline/read_queue.h"

#include "common/base/progress.h"

#include "runtime/pipeline/expert_prefetch.h"
#include "runtime/pipeline/predictor_prefetch.h"
#include "runtime/pipeline/rest_reads.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define EXPERT_TAGS 0x40000000u /* of requests of experts that are read ahead: beyond those of buffers and of predictors */
#define REST_TAGS   0x60000000u /* of FFNs' rest */

#define ISSUE_BATCH 64           /* reads of one system call */

enum early { NOT_EARLY, EARLY_READING, EARLY_ARRIVED };

struct buffer {
    struct io_request req;
    struct list *list;    /* whose units it has */
    uint32_t refs;        /* entries that use its bytes */
    uint32_t first, n;    /* entries of the list */
    uint64_t start;       /* file offset of its first byte */
    int direct, refused;  /* the read goes to a slot of the cache, not here; the cache was asked for one and gave none */
    enum early early;     /* a unit that no list has asked for yet: */
    int layer, block, unwanted; /* whose it is, with `first` in place of an entry; unwanted: free when it has come */
};

struct read_queue {
    const struct pipeline_config *c;
    uint32_t buffer_bytes, n_buffers, depth;
    struct buffer *buffers;
    uint32_t *free_buffers, n_free;
    struct predictor_prefetch *predictors;
    struct expert_prefetch *experts;
    struct rest_reads *rest;
    struct {              /* the blocks that follow, units in order: the next one to be read early */
        int layer, n, at;
        uint16_t block[SCHEDULE_MAX_BLOCKS];
        uint32_t unit;
    } next;
    uint32_t n_early;     /* buffers with such units */
    int listing;           /* a layer's lists are made: what they have not taken of them goes */
    uint64_t gate_lookups, gate_hits;
    atomic_uint reads;    /* in flight, when reads were last issued */
};

static uint8_t *buffer_memory(const struct read_queue *q, uint32_t i)
{
    return q->c->staging + (size_t)i * q->buffer_bytes;
}

struct read_queue *read_queue_new(const struct pipeline_config *c, struct err *e)
{
    _Static_assert(sizeof(struct buffer) + sizeof(uint32_t) <= SCHEDULE_READ_BYTES, "read state");
    struct read_queue *q = calloc(1, sizeof *q);
    if (!q) {
        err_set(e, ERR_NOMEM, "out of memory for the read queue");
        return NULL;
    }
    q->c = c;
    q->n_buffers = q->depth = (uint32_t)c->choice.queue_depth;
    q->buffer_bytes = (uint32_t)budget_read_bytes(&c->shapes->kind[0], c->choice.read_bytes);
    q->buffers = (struct buffer *)(void *)c->memory.reads;
    q->free_buffers = (uint32_t *)(void *)(c->memory.reads + q->n_buffers * sizeof *q->buffers);
    for (uint32_t i = 0; i < q->n_buffers; i++) {
        q->buffers[i].req.buf = buffer_memory(q, i);
        q->buffers[i].req.tag = i;
        q->free_buffers[q->n_free++] = q->n_buffers - 1 - i;
    }
    if (c->choice.predictor_buffers &&
        !(q->predictors = predictor_prefetch_new(c, c->staging + (size_t)q->n_buffers * q->buffer_bytes + (size_t)c->area_bytes,
                                                 q->n_buffers, e))) {
        read_queue_free(q);
        return NULL;
    }
    if (!(q->experts = expert_prefetch_new(c, EXPERT_TAGS, e)) || !(q->rest = rest_reads_new(c, REST_TAGS, e))) {
        read_queue_free(q);
        return NULL;
    }
    return q;
}

void read_queue_free(struct read_queue *q)
{
    if (!q)
        return;
    rest_reads_free(q->rest);
    expert_prefetch_free(q->experts);
    predictor_prefetch_free(q->predictors);
    free(q);
}

void read_queue_use(struct read_queue *q, uint32_t depth)
{
    q->depth = depth < q->n_buffers ? depth : q->n_buffers;
}

void read_queue_begin(struct read_queue *q, int layer)
{
    expert_prefetch_close(q->experts, layer);
    q->listing = 1;
}

void read_queue_rule(const struct read_queue *q, struct list *l)
{
    int n = l == &l->of->list[LIST_GATE] ? 0 : q->c->n_coalesce;
    reads_rule_init(l->of->shape, l->part, q->c->coalesce, n, q->buffer_bytes, &l->rule);
    l->direct = config_reads_into_slots(q->c, l->of->layer, l->part);
}

/* ---- the cache ---- */

static struct cache *cache_of(const struct read_queue *q, const struct list *l)
{
    return config_cache(q->c, l->of->layer, l->part);
}

static uint32_t cache_unit_of(const struct list *l, uint32_t unit)
{
    return (uint32_t)l->of->block * l->of->shape->part[l->part].n_units + unit;
}

static uint8_t *slot_memory(const struct read_queue *q, const struct list *l, uint32_t slot)
{
    return config_slot(q->c, l->of->layer, l->part, slot);
}

void read_queue_prefetch(const struct read_queue *q, const struct list *l, uint32_t unit, int stage)
{
    cache_prefetch(cache_of(q, l), cache_unit_of(l, unit), stage);
}

static int take_early(struct read_queue *q, struct list *l, struct entry *e);

int read_queue_lookup(struct read_queue *q, struct list *l, struct entry *e)
{
    int is_ready = 0, gates = l->part == 0, ahead;
    e->where = cache_lookup(cache_of(q, l), cache_unit_of(l, e->unit), &is_ready);
    e->kind = KIND_MISSING;
    q->gate_lookups += (uint64_t)gates;
    if (e->where == CACHE_NONE)
        return q->n_early ? take_early(q, l, e) : 0;
    if (gates && (ahead = expert_prefetch_take(q->experts, l, e, e->where)) > 0)
        return ahead == 1;
    assert(is_ready); /* no other read outlives its pass */
    q->gate_hits += (uint64_t)gates;
    e->kind = KIND_CACHED;
    e->base = slot_memory(q, l, e->where);
    return 1;
}

void read_queue_release(struct read_queue *q, const struct list *l, const struct entry *e)
{
    if (e->kind == KIND_CACHED || e->kind == KIND_ADMITTED)
        (l->of->passing ? cache_unpin_first : cache_unpin)(cache_of(q, l), e->where);
    else if (e->kind == KIND_STAGED && --q->buffers[e->where].refs == 0)
        q->free_buffers[q->n_free++] = e->where;
}

/* A slot for a unit that is read, or CACHE_NONE. */
static uint32_t admit(struct read_queue *q, const struct list *l, const struct entry *e)
{
    struct cache *c = cache_of(q, l);
    uint32_t evicted;
    return l->of->passing && cache_full(c) ? CACHE_NONE : cache_admit(c, cache_unit_of(l, e->unit), &evicted);
}

/* ---- reads ---- */

static uint64_t unit_offset(const struct list *l, uint32_t unit)
{
    return pack_unit_offset(l->of->c->pack, l->of->layer, l->of->block, l->part, unit);
}

/* End of a unit's payload, rounded up to a block. */
static uint64_t unit_end(const struct list *l, const struct entry *e)
{
    const struct layout_shape *s = l->of->shape;
    uint64_t block = s->block_bytes, end = unit_offset(l, e->unit) + layout_bytes(&s->part[l->part], e->n);
    return (end + block - 1) / block * block;
}

static int next_missing(struct list *l)
{
    while (l->issue < l->n && l->e[l->issue].kind != KIND_MISSING)
        l->issue++;
    return l->issue < l->n;
}

/* How many missing units from the next one on the next read brings; 0: that is not known before the list is longer. Cached units may lie
 * between them, but none that another read brings or brought: those have an arrival of their own. */
static size_t next_read(const struct list *l)
{
    uint32_t missing[READS_MAX_UNITS], first = l->e[l->issue].unit;
    size_t n = 0;
    if (l->rule.n_coalesce && l->known_to - first < l->rule.most)
        return 0;
    for (uint32_t i = l->issue; i < l->n && l->e[i].unit - first < l->rule.most; i++) {
        if (l->e[i].kind == KIND_MISSING)
            missing[n++] = l->e[i].unit;
        else if (l->e[i].kind != KIND_CACHED)
            break;
    }
    return reads_next(&l->rule, missing, n);
}

/* Where the read of a single unit goes to: its slot, if it is given one now. */
static void choose_place(struct read_queue *q, const struct list *l, struct entry *e, int alone, struct buffer *b)
{
    b->direct = b->refused = 0;
    if (!l->direct || !alone)
        return;
    uint32_t slot = admit(q, l, e);
    b->direct = slot != CACHE_NONE;
    b->refused = !b->direct;
    if (b->direct) {
        e->where = slot;
        b->req.buf = slot_memory(q, l, slot);
    }
}

/* One read for the next n missing units of a list, and for the gaps between them. */
static struct io_request *start_read(struct read_queue *q, struct list *l, size_t n)
{
    struct buffer *b = &q->buffers[q->free_buffers[--q->n_free]];
    struct entry *e = &l->e[l->issue];
    uint64_t block = q->c->shapes->l.block_bytes;
    b->list = l;
    b->first = l->issue;
    b->refs = 0;
    b->start = unit_offset(l, e->unit) / block * block;
    choose_place(q, l, e, n == 1, b);
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
    b->req.len = (uint32_t)(unit_end(l, e) - b->start);
    assert(b->req.len <= (b->direct ? budget_slot_bytes(l->of->shape, l->part) : q->buffer_bytes));
    return &b->req;
}

/* ---- units of the blocks that follow ---- */

static void let_go(struct read_queue *q, struct buffer *b)
{
    b->early = NOT_EARLY;
    q->n_early--;
}

static void set_free(struct read_queue *q, struct buffer *b)
{
    let_go(q, b);
    q->free_buffers[q->n_free++] = b->req.tag;
}

int read_queue_can_follow(const struct read_queue *q)
{
    const struct pipeline_config *c = q->c;
    return c->dense_mode && c->shapes->n_parts == 1 && c->n_blocks > 1 && q->n_buffers > 1 && !c->no_prefetch && !c->no_overlap;
}

void read_queue_follow(struct read_queue *q, int layer, const uint16_t *blocks, int n)
{
    q->next.layer = layer;
    q->next.n = read_queue_can_follow(q) && n <= SCHEDULE_MAX_BLOCKS ? n : 0;
    q->next.at = 0;
    q->next.unit = 0;
    for (int i = 0; i < q->next.n; i++)
        q->next.block[i] = blocks[i];
}

int read_queue_follows(const struct read_queue *q)
{
    return q->n_early || q->next.at < q->next.n;
}

/* What lists have not taken is not needed: the storage said too much. */
static void drop_untaken(struct read_queue *q)
{
    for (struct buffer *b = q->buffers; q->listing && q->n_early && b < q->buffers + q->n_buffers; b++) {
        b->unwanted |= b->early == EARLY_READING;
        if (b->early == EARLY_ARRIVED)
            set_free(q, b);
    }
    q->listing = 0;
}

/* The next unit that is neither resident nor cached, or 0. */
static int next_early(struct read_queue *q, int *block, uint32_t *unit)
{
    if (q->next.at >= q->next.n) /* no blocks, perhaps no layer */
        return 0;
    const struct layout_part *lp = &layout_of(q->c->shapes, q->next.layer)->part[0];
    for (; q->next.at < q->next.n; q->next.at++, q->next.unit = 0) {
        *block = q->next.block[q->next.at];
        uint32_t hot = config_hot_neurons(q->c, q->next.layer, *block, 0), first = (hot + lp->neurons_per_unit - 1) / lp->neurons_per_unit;
        for (*unit = q->next.unit > first ? q->next.unit : first; *unit < lp->n_units; ++*unit)
            if (cache_find(config_cache(q->c, q->next.layer, 0), (uint32_t)*block * lp->n_units + *unit) == CACHE_NONE) {
                q->next.unit = *unit + 1;
                return 1;
            }
    }
    return 0;
}

/* One unit a read, for such units are large. A buffer is left for what a list finds missing before them (rule 5). */
static int issue_early(struct read_queue *q, uint32_t most, struct err *e)
{
    struct io_request *batch[ISSUE_BATCH];
    int n = 0, block;
    uint32_t unit;
    while (n < ISSUE_BATCH && q->n_free > 1 && q->n_early + 1 < q->n_buffers && (uint32_t)(q->c->io->in_flight + n) < most &&
           next_early(q, &block, &unit)) {
        const struct layout_shape *s = layout_of(q->c->shapes, q->next.layer);
        struct buffer *b = &q->buffers[q->free_buffers[--q->n_free]];
        uint64_t at = pack_unit_offset(q->c->pack, q->next.layer, block, 0, unit);
        uint64_t end = at + layout_bytes(&s->part[0], layout_unit_neurons(s, &s->part[0], unit));
        b->list = NULL;
        b->early = EARLY_READING;
        b->layer = q->next.layer;
        b->block = block;
        b->first = unit;
        b->refs = 0;
        b->direct = b->refused = b->unwanted = 0;
        b->req.offset = b->start = at / s->block_bytes * s->block_bytes;
        b->req.len = (uint32_t)((end + s->block_bytes - 1) / s->block_bytes * s->block_bytes - b->start);
        assert(b->req.len <= q->buffer_bytes);
        q->n_early++;
        batch[n++] = &b->req;
    }
    return n ? io_submit(q->c->io, batch, n, e) : 0;
}

int read_queue_issue(struct read_queue *q, struct list *const *lists, int n_lists, uint32_t most, int *pressure,
                     struct err *e)
{
    struct io *io = q->c->io;
    struct io_request *batch[ISSUE_BATCH];
    int n = 0, r;
    uint32_t fewer = q->depth + predictor_prefetch_in_flight(q->predictors); /* that wait for a turn, not for a buffer */
    if ((q->depth < q->n_buffers || expert_prefetch_in_flight(q->experts) || rest_reads_in_flight(q->rest)) && fewer < most)
        most = fewer; /* experts that are read ahead and FFNs' rest have no buffers: the back end has room for so many reads and no more */
    int waits = 0;
    drop_untaken(q);
    *pressure = 0;
    for (int i = 0; i < n_lists; i++)
        while ((uint32_t)(io->in_flight + n) < most && next_missing(lists[i])) {
            size_t units = next_read(lists[i]);
            if (!units || !q->n_free) {
                *pressure |= units > 0;
                break;
            }
            batch[n++] = start_read(q, lists[i], units);
            if (n == ISSUE_BATCH) {
                if ((r = io_submit(io, batch, n, e)) < 0)
                    return r;
                n = 0;
            }
        }
    r = n ? io_submit(io, batch, n, e) : 0;
    for (int i = 0; i < n_lists; i++)
        waits |= next_missing(lists[i]);
    if (r == 0 && !waits)
        r = issue_early(q, most < q->depth ? most : q->depth, e);
    if (q->n_free < q->n_buffers) /* what is needed now has the storage for itself */
        most = 0;
    most = most < q->depth ? most : q->depth;
    if (r == 0 && (r = expert_prefetch_issue(q->experts, most, e)) == 0 && (r = rest_reads_issue(q->rest, most, e)) == 0)
        atomic_store_explicit(&q->reads, (unsigned)io->in_flight, memory_order_relaxed);
    return r;
}

/* It is in its slot. */
static void take_slot(struct read_queue *q, struct buffer *b)
{
    struct entry *e = &b->list->e[b->first];
    cache_ready(cache_of(q, b->list), e->where);
    e->kind = KIND_ADMITTED;
    e->base = b->req.buf;
    b->req.buf = buffer_memory(q, b->req.tag);
    q->free_buffers[q->n_free++] = b->req.tag;
}

/* Into the cache where it is taken; else the entry keeps the buffer until it is released. */
static void take_in(struct read_queue *q, struct buffer *b)
{
    struct list *l = b->list;
    if (b->direct) {
        take_slot(q, b);
        return;
    }
    const struct layout_part *lp = &l->of->shape->part[l->part];
    for (uint32_t i = b->first; i < b->first + b->n; i++) {
        struct entry *e = &l->e[i];
        assert(e->kind == KIND_READING || e->kind == KIND_CACHED); /* next_read */
        if (e->kind == KIND_CACHED)
            continue;
        uint8_t *data = b->req.buf + (unit_offset(l, e->unit) - b->start);
        uint32_t slot = b->refused ? CACHE_NONE : admit(q, l, e);
        if (slot == CACHE_NONE) {
            e->kind = KIND_STAGED;
            e->base = data;
            e->where = b->req.tag;
            b->refs++;
        } else {
            uint8_t *to = slot_memory(q, l, slot);
            memcpy(to, data, layout_bytes(lp, e->n));
            cache_ready(cache_of(q, l), slot);
            e->kind = KIND_ADMITTED;
            e->base = to;
            e->where = slot;
        }
    }
    if (!b->refs)
        q->free_buffers[q->n_free++] = b->req.tag;
}

/* A unit that was read early is an entry's from here on: there (1), or on its way. */
static int take_early(struct read_queue *q, struct list *l, struct entry *e)
{
    struct buffer *b = q->buffers, *end = b + q->n_buffers;
    while (b < end && (b->early == NOT_EARLY || b->unwanted || b->layer != l->of->layer || b->block != l->of->block || b->first != e->unit))
        b++;
    if (b == end || l->part != 0)
        return 0;
    int arrived = b->early == EARLY_ARRIVED;
    let_go(q, b);
    b->list = l;
    b->first = (uint32_t)(e - l->e);
    b->n = 1;
    e->kind = KIND_READING;
    if (arrived)
        take_in(q, b);
    return arrived;
}

/* Nobody has asked for it yet. */
static void keep_early(struct read_queue *q, struct buffer *b)
{
    b->early = EARLY_ARRIVED;
    if (b->unwanted)
        set_free(q, b);
}

/* What a request brought, whose ever it is: 1 with an arrival, 0 without. */
static int came(struct read_queue *q, struct io_request *done, struct read_arrival *out, struct err *e)
{
    if (done->tag >= REST_TAGS)
        return rest_reads_came(q->rest, done, e);
    if (done->tag >= EXPERT_TAGS)
        return expert_prefetch_came(q->experts, done, out, e);
    if (done->tag >= q->n_buffers)
        return predictor_prefetch_came(q->predictors, done, e);
    if (done->result < 0)
        return io_failed(q->c->io, done, e);
    struct buffer *b = &q->buffers[done->tag];
    if (b->early != NOT_EARLY) {
        keep_early(q, b);
        return 0;
    }
    take_in(q, b);
    *out = (struct read_arrival){ b->list, b->first, b->n };
    return 1;
}

int read_queue_collect(struct read_queue *q, int wait, struct read_arrival out[READ_QUEUE_BATCH], int *more, struct err *e)
{
    int arrivals = 0, r;
    uint32_t bytes = 0;
    *more = 0;
    for (int n = 0; n < READ_QUEUE_BATCH && bytes < READ_QUEUE_BATCH_BYTES; n++) {
        struct io_request *done;
        if ((r = io_reap(q->c->io, &done, 1, wait && !n, e)) <= 0)
            return r < 0 ? r : arrivals;
        bytes += done->len;
        if ((r = came(q, done, &out[arrivals], e)) < 0)
            return r;
        arrivals += r;
    }
    *more = 1;
    return arrivals;
}

int read_queue_in_flight(const struct read_queue *q)
{
    return q->c->io->in_flight;
}

uint32_t read_queue_reads(struct read_queue *q)
{
    return atomic_load_explicit(&q->reads, memory_order_relaxed);
}

int read_queue_verify(const struct list *l, const uint32_t *idx, int n, struct verify_counts *c, struct err *e)
{
    const struct verifier *v = l->of->c->verifier;
    if (!v->checks)
        return 0;
    int64_t start = progress_now_ns();
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        struct entry *x = &l->e[idx[i]];
        if (x->kind == KIND_ADMITTED || x->kind == KIND_STAGED)
            r = verify_unit(v, l->of->layer, l->of->block, l->part, x->unit, x->base, c, e);
    }
    if (c->bytes)
        c->ns += (uint64_t)(progress_now_ns() - start);
    return r;
}

struct expert_prefetch *read_queue_experts(struct read_queue *q)
{
    return q->experts;
}

struct rest_reads *read_queue_rest(struct read_queue *q)
{
    return q->rest;
}

struct predictor_prefetch *read_queue_predictors(struct read_queue *q)
{
    return q->predictors;
}

void read_queue_gates(const struct read_queue *q, uint64_t *lookups, uint64_t *hits)
{
    *lookups = q->gate_lookups;
    *hits = q->gate_hits;
}
