/* Life of an engine: the account first, then one mapping, then the reads, then the workers. Every
 * array of the token loop comes from the mapping; what malloc gives here (tables per layer) is counted as
 * META and is done before the first token. */
#include "runtime/engine/engine_impl.h"
#include "runtime/pipeline/predictor_prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_types(const struct engine *g, struct err *e)
{
    for (int r = LAYOUT_GATE; r <= LAYOUT_DOWN; r++) {
        uint32_t type = g->shape.l.type[r];
        enum kernels_act f = kernels_act_form(type, g->c.act_q8);
        int ok = r == LAYOUT_DOWN ? kernels->axpy[type] != NULL : kernels->rows_at[f][type] && kernels->rows[f][type];
        if (!ok)
            return err_set(e, ERR_UNSUPPORTED, "'%s': neurons are stored as %s, which this build cannot multiply",
                           g->c.pack->file.path, quant_traits(type)->name);
    }
    return 0;
}

static void *scratch(struct engine *g, uint64_t bytes)
{
    return arena_take(&g->arena, BUDGET_SCRATCH, (size_t)bytes);
}

static void take_scratch(struct engine *g)
{
    const struct budget_scratch *s = &g->scratch;
    size_t tokens = (size_t)s->tokens;
    g->x = scratch(g, s->hidden);
    g->xn = scratch(g, s->hidden);
    g->acc = scratch(g, s->hidden);
    g->act_q8 = scratch(g, s->act);
    g->logits = scratch(g, s->logits);
    g->ffn = scratch(g, s->ffn);
    g->sampler = scratch(g, s->sampler);
    g->token_memory = scratch(g, s->tokens_in);
    if (g->h.n_experts > 0) {
        g->mix = scratch(g, s->hidden);
        g->picked = scratch(g, s->picked);
        g->sums = scratch(g, s->picked);
        g->picked_q8 = scratch(g, s->picked_act);
        if (g->c.choice.predictors.rank) {
            g->block_in = scratch(g, s->hidden);
            g->seen = scratch(g, s->picked);
            g->seen_q8 = scratch(g, s->picked_act);
        }
        g->router = scratch(g, (uint64_t)tokens * (uint64_t)g->h.n_experts * 16);
    }
}

static void take_regions(struct engine *g)
{
    const struct budget_choice *c = &g->c.choice;
    size_t layers = (size_t)g->h.n_layers, parts = (size_t)g->n_parts, blocks = (size_t)g->n_blocks;
    uint64_t hot = 0, cold = 0, checks = 0;
    struct arena *a = &g->arena;
    g->staging = arena_take(a, BUDGET_STAGING, a->item[BUDGET_STAGING].size);
    g->hot = arena_take(a, BUDGET_HOT, a->item[BUDGET_HOT].size);
    g->cold = arena_take(a, BUDGET_COLD, a->item[BUDGET_COLD].size);
    g->kv = arena_take(a, BUDGET_KV, a->item[BUDGET_KV].size);
    g->hot_at = arena_take(a, BUDGET_INDEX, layers * blocks * parts * sizeof *g->hot_at);
    g->verifier.checks_at = arena_take(a, BUDGET_INDEX, layers * blocks * parts * sizeof *g->verifier.checks_at);
    g->cold_at = arena_take(a, BUDGET_INDEX, layers * parts * sizeof *g->cold_at);
    g->caches = arena_take(a, BUDGET_INDEX, layers * parts * sizeof(void *));
    for (size_t l = 0; l < layers; l++)
        for (size_t p = 0; p < parts; p++) {
            uint32_t slots = c->cold ? c->cold[l * parts + p] : 0;
            uint32_t units = g->shape.part[p].n_units * (uint32_t)blocks;
            g->cold_at[l * parts + p] = cold;
            cold += slots * budget_slot_bytes(&g->shape, (int)p);
            void *mem = arena_take(a, BUDGET_INDEX, cache_bytes(units, slots));
            g->caches[l * parts + p] = cache_init(mem, units, slots, g->c.policy);
            for (size_t b = 0; b < blocks; b++) {
                size_t i = engine_hot_index(g, (int)l, (int)b, (int)p);
                g->hot_at[i] = hot;
                g->verifier.checks_at[i] = checks / sizeof *g->verifier.checks;
                checks += budget_check_bytes(&g->shape, (int)p, engine_hot_neurons(g, (int)l, (int)b, (int)p));
                hot += budget_hot_bytes(&g->shape, (int)p, engine_hot_neurons(g, (int)l, (int)b, (int)p));
            }
        }
}

int engine_open_io(struct engine *g, uint8_t *region, size_t bytes, int depth, struct err *e)
{
    const struct engine_config *c = &g->c;
    struct io_config io = { .path = c->pack->file.path,
                            .region = region,
                            .region_bytes = bytes,
                            .align = g->shape.l.block_bytes,
                            .queue_depth = depth,
                            .lanes = c->choice.io_lanes,
                            .want_direct = !c->buffered,
                            .cancel = c->cancel,
                            .fault = c->fault,
                            .fault_ctx = c->fault_ctx,
                            .delay_max_us = c->delay_max_us,
                            .delay_seed = c->delay_seed };
    return c->backend ? io_open_backend(c->backend, &io, &g->io, e) : io_open(c->io, &io, &g->io, e);
}

static int open_dense(struct engine *g, struct err *e)
{
    const struct budget_scratch *s = &g->scratch;
    const struct budget_choice *c = &g->c.choice;
    const struct dense_backend *b = g->c.dense ? g->c.dense : &dense_cpu_backend;
    size_t q_dim = (size_t)g->h.n_heads * (size_t)g->h.head_dim,
           kv_dim = (size_t)g->h.n_kv_heads * (size_t)g->h.head_dim, tokens = (size_t)s->tokens;
    struct dense_config d = { .h = &g->h, .w = &g->weights, .pool = g->pool, .sequences = c->max_batch,
                              .context = c->context, .kv_f16 = c->kv_f16, .tokens = s->tokens };
    d.memory = (struct dense_memory){ .kv = g->kv, .q = scratch(g, s->qkv), .attn = scratch(g, s->attn),
                                      .scores = scratch(g, s->scores), .normed = g->xn, .act = g->act_q8 };
    d.memory.k = d.memory.q + tokens * q_dim;
    d.memory.v = d.memory.k + tokens * kv_dim;
    return b->open(&d, &g->dense, e);
}

static struct pipeline *new_pipeline(struct engine *g, struct err *e)
{
    const struct budget_scratch *s = &g->scratch;
    const struct engine_config *c = &g->c;
    struct pipeline_config p = {
        .pack = c->pack, .shape = g->shape, .d_model = g->h.d_model, .n_layers = g->h.n_layers, .n_blocks = g->n_blocks,
        .act = g->h.act, .dense_mode = g->dense_mode, .act_q8 = c->act_q8, .pool = g->pool, .io = g->io,
        .verifier = &g->verifier, .choice = c->choice, .scratch = *s, .coalesce = c->coalesce,
        .n_coalesce = c->n_coalesce, .no_prefetch = c->no_prefetch, .no_overlap = c->no_overlap, .hot = g->hot,
        .cold = g->cold, .staging = g->staging, .hot_at = g->hot_at, .cold_at = g->cold_at, .caches = g->caches,
        .predictor = c->predictor, .streamed = c->streamed, .always = c->always, .predictors = g->predictors,
        .pieces = g->pieces,
    };
    p.memory.reads = scratch(g, s->reads);
    p.memory.gather = scratch(g, s->gather);
    p.memory.entries = scratch(g, (uint64_t)s->blocks * s->entries);
    p.memory.predict = s->predict ? scratch(g, s->predict) : NULL;
    return pipeline_new(&p, e);
}

static int set_up(struct engine *g, struct err *e)
{
    const struct engine_config *c = &g->c;
    struct budget_model m;
    int r;
    pack_budget_model(c->pack, &m);
    if ((r = check_types(g, e)) < 0 || (r = budget_compute(&m, &c->choice, &g->budget, e)) < 0 ||
        (r = budget_scratch(&m, &c->choice, &g->scratch, e)) < 0)
        return r;
    g->weights.layers = calloc((size_t)g->h.n_layers, sizeof *g->weights.layers);
    g->weights.rope_freqs = calloc((size_t)g->h.n_rot / 2 + 1, sizeof *g->weights.rope_freqs);
    g->n_pos = calloc((size_t)c->choice.max_batch, sizeof *g->n_pos);
    if (!g->weights.layers || !g->weights.rope_freqs || !g->n_pos)
        return err_set(e, ERR_NOMEM, "out of memory for the tables of %d layers", g->h.n_layers);
    if ((r = pool_new(c->choice.threads, c->cpus, &g->pool, e)) < 0 ||
        (r = arena_open(&g->arena, &g->budget, c->mlock, e)) < 0)
        return r;
    take_regions(g);
    take_scratch(g);
    if ((r = load_begin(g, e)) < 0 || (r = load_dense(g, e)) < 0 || (r = load_checks(g, e)) < 0 || (r = load_predictors(g, e)) < 0 ||
        (r = load_neurons_hot(g, e)) < 0 || (r = load_neurons_cold(g, e)) < 0)
        return r;
    io_close(g->io);
    g->io = NULL;
    if ((r = open_dense(g, e)) < 0 ||
        (r = engine_open_io(g, g->staging, g->arena.item[BUDGET_STAGING].size,
                            c->choice.queue_depth + predictor_prefetch_depth(c->choice.predictor_buffers), e)) < 0)
        return r;
    g->pipe = new_pipeline(g, e);
    if (!g->pipe)
        return e->code;
    engine_stats_reset(g);
    return 0;
}

int engine_open(const struct engine_config *c, struct engine **out, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "out of memory");
    g->c = *c;
    g->h = c->pack->h;
    g->shape = c->pack->shape;
    g->n_blocks = model_ffn_blocks(&g->h);
    g->n_parts = g->shape.n_parts;
    g->verifier = (struct verifier){ .pack = c->pack, .n_blocks = g->n_blocks, .off = c->no_verify, .hot = c->choice.hot,
                                     .predictor = c->predictor, .always = c->always };
    g->dense_mode = c->mode == PLAN_DENSE || !nn_act_is_sparse(g->h.act);
    int r = set_up(g, e);
    if (r < 0) {
        engine_close(g);
        return r;
    }
    *out = g;
    return 0;
}

void engine_close(struct engine *g)
{
    if (!g)
        return;
    pool_free(g->pool);
    int in_flight = io_close(g->io); /* before the memory that reads in flight write to */
    pipeline_free(g->pipe);
    if (!in_flight) /* else the process is about to end, and the mapping with it */
        arena_close(&g->arena);
    if (g->dense)
        g->dense->backend->close(g->dense);
    free(g->weights.layers);
    free(g->predictors);
    free(g->pieces);
    free(g->verifier.row_checks);
    free(g->weights.rope_freqs);
    free(g->n_pos);
    free(g);
}

int engine_last(const struct engine *g)
{
    return g->n_tokens;
}

int engine_n_pos(const struct engine *g, int seq)
{
    return g->n_pos[seq];
}

void engine_reset(struct engine *g, int seq)
{
    g->n_pos[seq] = 0;
}

/* Counters that others keep. */
static struct engine_stats gathered(const struct engine *g)
{
    struct engine_stats s = g->stats;
    struct pipeline_stats p = pipeline_stats(g->pipe);
    s.reads = g->io->reads;
    s.read_bytes = g->io->bytes;
    s.predictor_bytes = p.predictor_bytes;
    s.gate_lookups = p.gate_lookups;
    s.gate_hits = p.gate_hits;
    s.neurons_hot = p.neurons_hot;
    s.neurons_cold = p.neurons_cold;
    s.neurons_read = p.neurons_read;
    s.neurons_possible = p.neurons_possible;
    s.neurons_computed = p.neurons_computed;
    s.ffn_ns += p.predict_stall_ns;
    s.predict_ns = p.predict_ns;
    s.stall_ns = p.stall_ns;
    s.verify_bytes = p.verified.bytes;
    s.verify_ns = p.verified.ns;
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

struct engine_stats engine_stats(const struct engine *g)
{
    struct engine_stats s = gathered(g);
    s.reads -= g->base.reads;
    s.read_bytes -= g->base.read_bytes;
    s.predictor_bytes -= g->base.predictor_bytes;
    s.lookups -= g->base.lookups;
    s.hits -= g->base.hits;
    s.evictions -= g->base.evictions;
    s.refused -= g->base.refused;
    s.gate_lookups -= g->base.gate_lookups;
    s.gate_hits -= g->base.gate_hits;
    s.neurons_hot -= g->base.neurons_hot;
    s.neurons_cold -= g->base.neurons_cold;
    s.neurons_read -= g->base.neurons_read;
    s.neurons_possible -= g->base.neurons_possible;
    s.neurons_computed -= g->base.neurons_computed;
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
    g->base = gathered(g);
}

const struct budget *engine_budget(const struct engine *g)
{
    return &g->budget;
}

const struct io *engine_io(const struct engine *g)
{
    return g->io;
}

int engine_locked(const struct engine *g, int *why)
{
    *why = g->arena.lock_errno;
    return g->arena.locked;
}

float *engine_sampler_memory(struct engine *g, size_t *bytes)
{
    *bytes = (size_t)g->scratch.sampler;
    return g->sampler;
}

int32_t *engine_token_memory(struct engine *g, int seq)
{
    return g->token_memory + (size_t)seq * (size_t)g->c.choice.context;
}
