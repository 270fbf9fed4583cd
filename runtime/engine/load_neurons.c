/* Neurons at start: the resident prefix of each part, and after it, hottest first, as many units as the cold
 * cache holds, so that the first tokens find what later ones will. Long sequential reads with all buffers in
 * flight (load.c); their units are copied to where they belong. */
#include "runtime/engine/load_ahead.h"

#include "common/base/hash.h"
#include "common/base/progress.h"

#include <assert.h>
#include <string.h>

#define READS_MAX 64

struct run_read {              /* one per buffer */
    struct io_request req;
    uint32_t unit, n_units;    /* of the part being loaded */
    uint64_t start;
};

/* A run of units of one part: a resident prefix, packed record by record, or units for the slots of a cache. */
struct run {
    struct engine *g;
    const struct layout_part *lp;
    int layer, block, part;
    uint32_t first, next, end; /* units; next: not asked for */
    uint8_t *to;               /* of the first */
    size_t unit_bytes;         /* between units */
    int verify;                /* units one by one; else what calls this sees to it */
};

static uint32_t neurons_before(const struct run *h, uint32_t unit)
{
    uint64_t n = (uint64_t)unit * h->lp->neurons_per_unit, all = (uint64_t)layout_of(h->g->shapes, h->layer)->n_ff;
    return (uint32_t)(n > all ? all : n);
}

static uint64_t offset_of(const struct run *h, uint32_t unit)
{
    return pack_unit_offset(h->g->c.pack, h->layer, h->block, h->part, unit);
}

/* The next run of units that fits a buffer. */
static struct io_request *ask(struct run *h, struct run_read *r, uint32_t buffer_bytes)
{
    uint64_t block = h->g->shapes->l.block_bytes, end = 0;
    r->unit = h->next;
    r->start = offset_of(h, h->next) / block * block;
    for (r->n_units = 0; h->next < h->end; h->next++, r->n_units++) {
        uint32_t n = neurons_before(h, h->next + 1) - neurons_before(h, h->next);
        uint64_t to = (offset_of(h, h->next) + layout_bytes(h->lp, n) + block - 1) / block * block;
        if (to - r->start > buffer_bytes)
            break;
        end = to;
    }
    r->req.offset = r->start;
    r->req.len = (uint32_t)(end - r->start);
    return &r->req;
}

static int place(const struct run *h, const struct run_read *r, struct err *e)
{
    struct verify_counts c = { 0 };
    int bad = 0;
    for (uint32_t u = r->unit; u < r->unit + r->n_units && bad == 0; u++) {
        uint8_t *to = h->to + (size_t)(u - h->first) * h->unit_bytes;
        uint32_t at = neurons_before(h, u), n = neurons_before(h, u + 1) - at;
        memcpy(to, r->req.buf + (offset_of(h, u) - r->start), layout_bytes(h->lp, n));
        if (h->verify)
            bad = verify_unit(&h->g->verifier, h->layer, h->block, h->part, u, to, &c, e);
    }
    h->g->stats.repaired += c.repaired;
    return bad;
}

/* Of neurons [from, hot), from whole clusters; records: of the first neuron of all. */
static int check_clusters(const struct run *h, const uint8_t *records, uint32_t from, uint32_t hot, struct err *e)
{
    const struct engine *g = h->g;
    uint32_t cluster = g->shapes->l.cluster_neurons;
    for (uint32_t at = from; at < hot; at += cluster) {
        uint32_t n = hot - at < cluster ? hot - at : cluster;
        uint64_t want, sum = hash_64(records + layout_bytes(h->lp, at), layout_bytes(h->lp, n));
        int r = pack_cluster_checksum(g->c.pack, h->layer, h->block, h->part, at / cluster, &want, e);
        if (r < 0)
            return r;
        if (sum != want)
            return err_set(e, ERR_FORMAT,
                           "'%s': layer %d expert %d part %d cluster %u is damaged: checksum %016llx, expected "
                           "%016llx",
                           g->c.pack->file.path, h->layer, h->block, h->part, at / cluster, (unsigned long long)sum,
                           (unsigned long long)want);
    }
    return 0;
}

static int read_run(struct run *h, struct run_read *reads, struct progress *bar, struct err *e)
{
    struct engine *g = h->g;
    uint32_t idle[READS_MAX], n_idle = 0, depth = g->load_depth;
    for (uint32_t i = 0; i < depth; i++) {
        reads[i].req.buf = g->load_at + (size_t)i * g->load_piece;
        reads[i].req.tag = i;
        idle[n_idle++] = i;
    }
    h->next = h->first;
    while (h->next < h->end || n_idle < depth) {
        struct io_request *batch[READS_MAX];
        int n = 0, r;
        while (n_idle && h->next < h->end)
            batch[n++] = ask(h, &reads[idle[--n_idle]], g->load_piece);
        if ((r = io_submit(g->io, batch, n, e)) < 0 || (r = ahead_reap(g, batch, READS_MAX, e)) < 0)
            return r;
        for (int i = 0; i < r; i++) {
            if (batch[i]->result < 0)
                return io_failed(g->io, batch[i], e);
            int bad = place(h, &reads[batch[i]->tag], e);
            if (bad < 0)
                return bad;
            progress_add(bar, batch[i]->len);
            idle[n_idle++] = batch[i]->tag;
        }
    }
    return cancel_asked(g->watched) ? err_set(e, ERR_INTR, "interrupted while loading") : 0;
}

static int load_run(struct run *h, struct progress *bar, struct err *e)
{
    struct run_read reads[READS_MAX];
    memset(reads, 0, sizeof reads);
    int r = read_run(h, reads, bar, e);
    if (r < 0)
        load_drain(h->g);
    return r;
}

/* Clusters that are there already stay. */
static int load_prefix(struct engine *g, int layer, int block, int part, uint32_t had, struct progress *bar, struct err *e)
{
    const struct layout_part *lp = &layout_of(g->shapes, layer)->part[part];
    uint32_t hot = engine_hot_neurons(g, layer, block, part), from = had / g->shapes->l.cluster_neurons * g->shapes->l.cluster_neurons;
    uint8_t *records = g->hot + g->hot_at[engine_hot_index(g, layer, block, part)];
    struct run h = { .g = g, .lp = lp, .layer = layer, .block = block, .part = part, .first = from / lp->neurons_per_unit,
                     .end = (hot + lp->neurons_per_unit - 1) / lp->neurons_per_unit, .unit_bytes = lp->unit_bytes };
    h.to = records + (size_t)h.first * h.unit_bytes;
    int r = had < hot ? load_run(&h, bar, e) : 0;
    return r < 0 || had >= hot ? r : check_clusters(&h, records, from, hot, e);
}

int load_neurons_hot(struct engine *g, const uint32_t *had, struct err *e)
{
    struct progress bar;
    int r = 0;
    progress_init(&bar, "loading hot neurons", "B", g->budget.item[BUDGET_HOT]);
    for (int l = 0; l < g->h.n_layers && r == 0; l++)
        for (int b = 0; b < g->n_blocks && r == 0; b++)
            for (int p = 0; p < g->n_parts && r == 0; p++)
                r = load_prefix(g, l, b, p, had ? had[engine_hot_index(g, l, b, p)] : 0, &bar, e);
    progress_done(&bar);
    return r;
}

/* ---- the cold cache ---- */

/* Units of a block that find room when all blocks of the layer get alike, as far as they have that many: the largest
 * share whose sum over blocks is at most the slots. */
static uint32_t share_of_block(const struct engine *g, int layer, int part, uint32_t slots)
{
    uint32_t n_units = layout_of(g->shapes, layer)->part[part].n_units, lo = 0, hi = n_units + 1;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        uint64_t sum = 0;
        for (int b = 0; b < g->n_blocks; b++) {
            uint32_t left = n_units - engine_first_cold(g, layer, b, part);
            sum += left < mid ? left : mid;
        }
        *(sum <= slots ? &lo : &hi) = mid;
    }
    return lo;
}

/* Fills slots 0, 1, ... which is the order in which an empty cache gives them, and unpins the last one first: the coldest
 * unit of each block will be the first to go. */
static int fill_cache(struct engine *g, int layer, int part, struct progress *bar, struct err *e)
{
    const struct layout_shape *shape = layout_of(g->shapes, layer);
    const struct layout_part *lp = &shape->part[part];
    size_t at = (size_t)layer * (size_t)g->n_parts + (size_t)part, slot_bytes = budget_slot_bytes(shape, part);
    struct cache *c = g->caches[at];
    uint32_t share = share_of_block(g, layer, part, cache_slots(c)), used = 0, evicted;
    for (int b = 0; b < g->n_blocks; b++) {
        uint32_t first = engine_first_cold(g, layer, b, part);
        struct run h = { .g = g, .lp = lp, .layer = layer, .block = b, .part = part, .first = first,
                         .end = lp->n_units - first < share ? lp->n_units : first + share,
                         .to = g->cold + g->cold_at[at] + used * slot_bytes, .unit_bytes = slot_bytes, .verify = 1 };
        int r = load_run(&h, bar, e);
        if (r < 0)
            return r;
        for (uint32_t u = h.first; u < h.end; u++) {
            uint32_t slot = cache_admit(c, (uint32_t)b * lp->n_units + u, &evicted);
            assert(slot == used && evicted == CACHE_NONE);
            cache_ready(c, slot);
            used++;
        }
    }
    while (used > 0)
        cache_unpin(c, --used);
    return 0;
}

int load_neurons_cold(struct engine *g, struct err *e)
{
    struct progress bar;
    int r = 0;
    if (g->c.no_warm_start || !g->budget.item[BUDGET_COLD])
        return 0;
    progress_init(&bar, "filling the cold cache", "B", g->budget.item[BUDGET_COLD]);
    for (int l = 0; l < g->h.n_layers && r == 0; l++)
        for (int p = 0; p < g->n_parts && r == 0; p++)
            r = fill_cache(g, l, p, &bar, e);
    progress_done(&bar);
    return r;
}
