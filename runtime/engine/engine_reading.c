/* What reads while the model runs: backend and pipeline, opened, and made anew after a pass that failed; and the counters that they
 * keep. */
#include "runtime/engine/engine_impl.h"
#include "runtime/pipeline/predictor_prefetch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static struct io_config io_of(const struct engine *g)
{
    const struct engine_config *c = &g->c;
    return (struct io_config){ .path = c->pack->file.path,
                               .align = g->shapes->l.block_bytes,
                               .lanes = engine_way_of(g, g->way).lanes,
                               .want_direct = !c->buffered,
                               .cancel = g->watched,
                               .fault = c->fault,
                               .fault_ctx = c->fault_ctx };
}

int engine_open_rows(struct engine *g, struct err *e)
{
    struct io_config io = io_of(g);
    return g->rows ? row_reads_open(g->rows, engine_way_of(g, g->way).io, g->c.backend, &io, e) : 0;
}

int engine_open_io(struct engine *g, uint8_t *region, size_t bytes, int depth, struct err *e)
{
    const struct engine_config *c = &g->c;
    const struct engine_way way = engine_way_of(g, g->way);
    struct io_config io = io_of(g);
    io.region = region;
    io.region_bytes = bytes;
    io.queue_depth = depth;
    return c->backend ? io_open_backend(c->backend, &io, &g->io, e) : io_open(way.io, &io, &g->io, e);
}

static struct pipeline *new_pipeline(struct engine *g, struct err *e)
{
    const struct engine_config *c = &g->c;
    const struct engine_way way = engine_way_of(g, g->way);
    struct pipeline_config p = {
        .pack = c->pack, .shapes = g->shapes, .d_model = g->h.d_model, .n_layers = g->h.n_layers, .n_blocks = g->n_blocks,
        .act = g->h.act, .dense_mode = g->dense_mode, .act_q8 = c->act_q8, .fold = &g->fold_ff, .pool = g->pool, .io = g->io,
        .verifier = &g->verifier, .choice = c->choice, .scratch = g->scratch, .coalesce = c->coalesce,
        .n_coalesce = way.no_coalesce ? 0 : c->n_coalesce, .no_prefetch = c->no_prefetch, .no_ahead = way.no_ahead,
        .no_overlap = c->no_overlap,
        .hot = g->hot, .cold = g->cold, .staging = g->staging, .hot_at = g->hot_at, .cold_at = g->cold_at, .caches = g->caches,
        .predictor = c->predictor, .streamed = c->streamed, .always = c->always, .cold_scale = (float)sqrt(c->cold_bound),
        .predictors = g->predictors,
        .pieces = g->pieces, .biases = g->biases, .beside = engine_accel_beside(g),
        .area = g->area, .area_bytes = c->choice.area_bytes, .memory = g->pipe_memory,
    };
    p.choice.io_lanes = way.lanes;
    return pipeline_new(&p, e);
}

/* With the counters that others keep. */
static struct engine_stats gathered(const struct engine *g)
{
    struct engine_stats s = g->stats;
    if (!g->pipe)
        return s;
    struct pipeline_stats p = pipeline_stats(g->pipe);
    s.reads += g->io->reads;
    s.read_bytes += g->io->bytes;
    s.predictor_bytes += p.predictor_bytes;
    s.gate_lookups += p.gate_lookups;
    s.gate_hits += p.gate_hits;
    s.prefetched += p.prefetched;
    s.prefetches_used += p.prefetches_used;
    s.hits -= p.prefetches_used;
    s.neurons_hot += p.neurons_hot;
    s.neurons_cold += p.neurons_cold;
    s.neurons_read += p.neurons_read;
    s.neurons_possible += p.neurons_possible;
    s.neurons_computed += p.neurons_computed;
    s.neurons_scored += p.neurons_scored;
    s.ffn_ns += p.predict_stall_ns;
    s.predict_ns += p.predict_ns;
    s.stall_ns += p.stall_ns;
    s.verify_bytes += p.verified.bytes;
    s.verify_ns += p.verified.ns;
    s.repaired += p.verified.repaired;
    for (int i = 0; i < g->h.n_layers * g->n_parts; i++) {
        struct cache_stats c = cache_stats(g->caches[i]);
        s.lookups += c.lookups;
        s.hits += c.hits;
        s.evictions += c.evictions;
        s.refused += c.refused;
    }
    return s;
}

int engine_open_reading(struct engine *g, struct err *e)
{
    const struct budget_choice *c = &g->c.choice;
    int r = engine_open_io(g, g->staging, g->arena.item[BUDGET_STAGING].size,
                           c->queue_depth + predictor_prefetch_depth(c->predictor_buffers), e);
    if (r < 0)
        return r;
    g->by = -1;
    g->pipe = new_pipeline(g, e);
    return g->pipe ? 0 : e->code;
}

int engine_stop_reading(struct engine *g, struct err *e)
{
    const struct budget_scratch *s = &g->scratch;
    if (g->pipe)
        g->stats = gathered(g);
    g->lost = g->lost || io_close(g->io);
    if (g->lost)
        return err_set(e, ERR_IO, "'%s': reads of an earlier pass have not come back: the storage does not answer",
                       g->c.pack->file.path);
    g->io = NULL;
    pipeline_free(g->pipe);
    g->pipe = NULL;
    memset(g->pipe_memory.reads, 0, s->reads);
    memset(g->pipe_memory.gather, 0, s->gather);
    memset(g->pipe_memory.entries, 0, (size_t)s->blocks * s->entries);
    if (g->pipe_memory.predict)
        memset(g->pipe_memory.predict, 0, s->predict);
    return 0;
}

/* 1: another way to read, which is opened anew. */
static int reads_otherwise(const struct engine_way *a, const struct engine_way *b)
{
    return a->io != b->io || a->lanes != b->lanes || a->no_coalesce != b->no_coalesce || a->no_ahead != b->no_ahead;
}

/* Where a named back end is not to be had io_open takes another. */
static int has_its_backend(const struct engine *g)
{
    enum plan_io want = engine_way_of(g, g->way).io;
    return want == PLAN_IO_AUTO || g->c.backend || !strcmp(g->io->backend->name, plan_io_name(want));
}

static int reopen(struct engine *g, int way, struct err *e)
{
    int r = engine_stop_reading(g, e);
    g->way = way;
    return r < 0 ? r : engine_open_reading(g, e);
}

int engine_use_way(struct engine *g, int way, struct err *e)
{
    const int was = g->way;
    const struct engine_way from = engine_way_of(g, was), to = engine_way_of(g, way);
    assert(way >= 0 && way < (g->c.n_variants ? g->c.n_variants : 1));
    g->by = -1;
    if (g->broken || !reads_otherwise(&from, &to)) { /* else the next pass opens what reads */
        g->way = way;
        return 0;
    }
    int r = pipeline_drain(g->pipe, e);
    g->broken = r < 0;
    if (r < 0)
        return r;
    if ((r = reopen(g, way, e)) == 0 && !has_its_backend(g))
        r = err_set(e, ERR_UNSUPPORTED, "%s is not to be had", plan_io_name(to.io));
    if (r < 0 && !g->lost && reopen(g, was, &(struct err){ 0 }) == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s is not to be had", plan_io_name(to.io));
    g->broken = r < 0;
    return r;
}

int engine_way(const struct engine *g)
{
    return g->way;
}

void engine_empty_caches(struct engine *g)
{
    for (int i = 0; i < g->h.n_layers * g->n_parts; i++) {
        const struct layout_part *lp = &layout_of(g->shapes, i / g->n_parts)->part[i % g->n_parts];
        cache_init(g->caches[i], lp->n_units * (uint32_t)g->n_blocks, cache_slots(g->caches[i]), g->c.policy);
    }
}

/* A pass that failed leaves reads in flight, pinned units, and units in the cache that nobody has verified. All of that goes: reads
 * are waited for, caches begin empty. KV rows that it wrote are beyond their sequence's end. */
int engine_renew(struct engine *g, struct err *e)
{
    int r = engine_stop_reading(g, e);
    if (r < 0)
        return r;
    engine_empty_caches(g);
    if (g->unloaded && (r = engine_reload(g, NULL, e)) < 0)
        return r;
    return engine_open_reading(g, e);
}

/* And those of rows, whose backend stays open. */
static struct engine_stats all(const struct engine *g)
{
    struct engine_stats s = gathered(g);
    const struct io *rows = row_reads_io(g->rows);
    const struct verify_counts verified = row_reads_verified(g->rows);
    s.reads += rows ? rows->reads : 0;
    s.read_bytes += rows ? rows->bytes : 0;
    s.verify_bytes += verified.bytes;
    s.verify_ns += verified.ns;
    s.repaired += verified.repaired;
    return s;
}

struct engine_stats engine_stats(const struct engine *g)
{
    struct engine_stats s = all(g);
    s.reads -= g->base.reads;
    s.read_bytes -= g->base.read_bytes;
    s.predictor_bytes -= g->base.predictor_bytes;
    s.lookups -= g->base.lookups;
    s.hits -= g->base.hits;
    s.evictions -= g->base.evictions;
    s.refused -= g->base.refused;
    s.gate_lookups -= g->base.gate_lookups;
    s.gate_hits -= g->base.gate_hits;
    s.prefetched -= g->base.prefetched;
    s.prefetches_used -= g->base.prefetches_used;
    s.experts_guessed -= g->base.experts_guessed;
    s.experts_foreseen -= g->base.experts_foreseen;
    s.neurons_hot -= g->base.neurons_hot;
    s.neurons_cold -= g->base.neurons_cold;
    s.neurons_read -= g->base.neurons_read;
    s.neurons_possible -= g->base.neurons_possible;
    s.neurons_computed -= g->base.neurons_computed;
    s.neurons_scored -= g->base.neurons_scored;
    s.ffn_ns -= g->base.ffn_ns;
    s.predict_ns -= g->base.predict_ns;
    s.stall_ns -= g->base.stall_ns;
    s.verify_bytes -= g->base.verify_bytes;
    s.verify_ns -= g->base.verify_ns;
    return s;
}

void engine_stats_reset(struct engine *g)
{
    g->stats = (struct engine_stats){ .repaired = g->stats.repaired };
    g->base = all(g);
}
