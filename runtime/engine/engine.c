/* Life of an engine: the account first, then one mapping, then the reads, then the workers. Every
 * array of the token loop comes from the mapping; what malloc gives here (tables per layer) is counted as
 * META and is done before the first token. */
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/kv_prefix.h"
#include "runtime/engine/kv_store.h"

#include "common/base/ckmath.h"
#include "common/base/progress.h"
#include "common/ops/ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int check_types(const struct engine *g, struct err *e)
{
    const struct layout *l = &g->shapes->l;
    if (l->form == LAYOUT_TILES && g->c.mode != PLAN_DENSE)
        return err_set(e, ERR_UNSUPPORTED, "'%s' is packed in tiles, which are computed whole, in dense mode alone; %s mode needs a plan "
                       "and a pack of another form (thermo-plan solve --form)", g->c.pack->file.path, plan_mode_name(g->c.mode));
    if (g->h.fold && (l->form != LAYOUT_TILES || l->cluster_neurons % (uint32_t)g->h.fold || l->cluster_neurons <= LAYOUT_TILE))
        return err_set(e, ERR_FORMAT, "'%s': its FFNs are folded in blocks of %d neurons, and its layout is '%s' with clusters of %u: "
                       "tiles with whole blocks in a cluster of more than %d are needed", g->c.pack->file.path, g->h.fold,
                       layout_form_name(l->form), l->cluster_neurons, LAYOUT_TILE);
    for (int i = 0; i < l->n_kinds * LAYOUT_ROLES; i++) {
        int r = i % LAYOUT_ROLES;
        uint32_t type = l->type[i / LAYOUT_ROLES][r];
        enum kernels_act f = kernels_act_form(type, g->c.act_q8);
        int by_neuron = r == LAYOUT_DOWN && layout_of(g->shapes, 0)->part[0].record_neurons == 1;
        int ok = by_neuron ? kernels->axpy[type] != NULL : kernels->rows_at[f][type] && kernels->rows[f][type];
        if (!ok)
            return err_set(e, ERR_UNSUPPORTED, "'%s': %s is stored as %s, which this build cannot multiply",
                           g->c.pack->file.path, layout_role_name(r), quant_traits(type)->name);
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
    g->pipe_memory = (struct pipeline_memory){ .reads = scratch(g, s->reads), .gather = scratch(g, s->gather),
                                               .entries = scratch(g, (uint64_t)s->blocks * s->entries),
                                               .predict = s->predict ? scratch(g, s->predict) : NULL };
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

void engine_index(struct engine *g)
{
    const struct budget_choice *c = &g->c.choice;
    size_t layers = (size_t)g->h.n_layers, parts = (size_t)g->n_parts, blocks = (size_t)g->n_blocks;
    uint64_t hot = 0, cold = 0, checks = 0;
    for (size_t l = 0; l < layers; l++)
        for (size_t p = 0; p < parts; p++) {
            const struct layout_shape *shape = layout_of(g->shapes, (int)l);
            g->cold_at[l * parts + p] = cold;
            cold += (c->cold ? c->cold[l * parts + p] : 0) * budget_slot_bytes(shape, (int)p);
            for (size_t b = 0; b < blocks; b++) {
                size_t i = engine_hot_index(g, (int)l, (int)b, (int)p);
                g->hot_at[i] = hot;
                g->verifier.checks_at[i] = checks / sizeof *g->verifier.checks;
                checks += budget_check_bytes(shape, (int)p, engine_hot_neurons(g, (int)l, (int)b, (int)p));
                hot += budget_hot_bytes(shape, (int)p, engine_hot_neurons(g, (int)l, (int)b, (int)p));
            }
        }
}

static void take_regions(struct engine *g)
{
    const struct budget_choice *c = &g->c.choice;
    size_t layers = (size_t)g->h.n_layers, parts = (size_t)g->n_parts, blocks = (size_t)g->n_blocks;
    struct arena *a = &g->arena;
    g->staging = arena_take(a, BUDGET_STAGING, a->item[BUDGET_STAGING].size);
    if (c->area_bytes)
        g->area = g->staging + (size_t)c->queue_depth * budget_read_bytes(&g->shapes->kind[0], c->read_bytes);
    g->hot = arena_take(a, BUDGET_HOT, a->item[BUDGET_HOT].size);
    g->cold = arena_take(a, BUDGET_COLD, a->item[BUDGET_COLD].size);
    g->kv = arena_take(a, BUDGET_KV, a->item[BUDGET_KV].size);
    g->hot_at = arena_take(a, BUDGET_INDEX, layers * blocks * parts * sizeof *g->hot_at);
    g->verifier.checks_at = arena_take(a, BUDGET_INDEX, layers * blocks * parts * sizeof *g->verifier.checks_at);
    g->cold_at = arena_take(a, BUDGET_INDEX, layers * parts * sizeof *g->cold_at);
    g->caches = arena_take(a, BUDGET_INDEX, layers * parts * sizeof(void *));
    for (size_t i = 0; i < layers * parts; i++) {
        uint32_t slots = c->cold ? c->cold[i] : 0;
        uint32_t units = layout_of(g->shapes, (int)(i / parts))->part[i % parts].n_units * (uint32_t)blocks;
        g->caches[i] = cache_init(arena_take(a, BUDGET_INDEX, cache_bytes(units, slots)), units, slots, g->c.policy);
    }
    engine_index(g);
}

static int open_dense(struct engine *g, struct err *e)
{
    const struct budget_scratch *s = &g->scratch;
    const struct budget_choice *c = &g->c.choice;
    const struct dense_backend *b = g->c.dense ? g->c.dense : &dense_cpu_backend;
    struct op_need most;
    ops_most(&g->h, OPS_ALL, &most);
    struct dense_config d = { .h = &g->h, .w = &g->weights, .pool = g->pool, .context = c->context,
                              .kv_type = c->kv_type, .kv = g->kv_shape, .pages = &g->pages, .tokens = s->tokens,
                              .elsewhere = engine_accel_products(g), .misfits = g->misfits,
                              .rows = g->rows ? g->rows : g->c.trunk ? g->c.trunk->rows : NULL };
    d.memory = (struct dense_memory){ .kv = g->kv, .q = scratch(g, s->qkv), .attn = scratch(g, s->attn),
                                      .scores = scratch(g, s->scores), .normed = g->xn, .act = g->act_q8,
                                      .latent = s->latent ? scratch(g, s->latent) : NULL,
                                      .made = s->made ? scratch(g, s->made) : NULL,
                                      .layered = s->layered ? scratch(g, s->layered) : NULL,
                                      .joined = s->joined ? scratch(g, s->joined) : NULL,
                                      .shared = s->shared ? scratch(g, s->shared) : NULL };
    kv_pages_init(&g->pages, &g->kv_shape, c->max_batch, g->kv + (g->kv_shape.total - g->kv_shape.table_bytes));
    d.memory.k = d.memory.q + (size_t)s->tokens * (size_t)most.q;
    d.memory.v = d.memory.k + (size_t)s->tokens * (size_t)most.row;
    return b->open(&d, &g->dense, e);
}

static int set_up(struct engine *g, struct err *e)
{
    const struct engine_config *c = &g->c;
    struct budget_model m;
    int r;
    pack_budget_model(c->pack, &m);
    if ((r = check_types(g, e)) < 0 || (r = budget_compute(&m, &c->choice, &g->budget, e)) < 0 ||
        (r = budget_scratch(&m, &c->choice, &g->scratch, e)) < 0 || (r = budget_kv(&m, &c->choice, &g->kv_shape, e)) < 0)
        return r;
    g->weights.rope_freqs = calloc((size_t)g->h.n_rot + 1, sizeof *g->weights.rope_freqs);
    g->biases = calloc((size_t)model_depth(&g->h), sizeof *g->biases);
    g->taken = calloc((size_t)c->choice.max_batch, sizeof *g->taken);
    g->state_pos = calloc((size_t)c->choice.max_batch, sizeof *g->state_pos);
    g->state_sure = calloc((size_t)c->choice.max_batch, sizeof *g->state_sure);
    g->misfits = malloc((size_t)c->choice.max_batch * sizeof *g->misfits);
    if (g->misfits)
        memset(g->misfits, 0xff, (size_t)c->choice.max_batch * sizeof *g->misfits); /* DENSE_FITS */
    g->graph = calloc((size_t)model_depth(&g->h), sizeof *g->graph);
    if (!g->state_pos || !g->state_sure || !g->misfits || !g->graph || !g->weights.rope_freqs || !g->biases || !g->taken)
        return err_set(e, ERR_NOMEM, "out of memory for the tables of %d layers", model_depth(&g->h));
    for (int i = 0; i < model_depth(&g->h); i++)
        graph_layer(&g->h, i, &g->graph[i]);
    if ((r = pool_new(c->choice.threads, c->cpus, &g->pool, e)) < 0 ||
        (r = arena_open(&g->arena, g->pool, &g->budget, c->reserve, c->mlock, e)) < 0)
        return r;
    take_regions(g);
    take_scratch(g);
    int64_t start = progress_now_ns();
    if ((r = load_begin(g, e)) < 0 || (r = load_dense(g, e)) < 0 || (r = load_checks(g, e)) < 0 || (r = load_predictors(g, e)) < 0 ||
        (r = load_neurons_hot(g, NULL, e)) < 0 || (r = load_neurons_cold(g, e)) < 0)
        return r;
    g->loading.bytes = g->io->bytes;
    g->loading.ns = (uint64_t)(progress_now_ns() - start);
    io_close(g->io);
    g->io = NULL;
    if ((r = engine_open_rows(g, e)) < 0 || (r = engine_accel_open(g, e)) < 0 || (r = open_dense(g, e)) < 0 ||
        (r = engine_open_reading(g, e)) < 0)
        return r;
    engine_watch(g, NULL);
    engine_stats_reset(g);
    return 0;
}

int engine_open(const struct engine_config *c, struct engine **out, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "out of memory");
    assert(!c->trunk == !c->pack->h.mtp);
    g->c = *c;
    g->watched = c->cancel;
    g->h = c->pack->h;
    g->shapes = &c->pack->shapes;
    g->n_blocks = model_ffn_blocks(&g->h);
    g->n_parts = g->shapes->n_parts;
    g->verifier = (struct verifier){ .pack = c->pack, .n_blocks = g->n_blocks, .off = c->no_verify, .hot = c->choice.hot,
                                     .predictor = c->predictor, .always = c->always };
    g->dense_mode = c->mode == PLAN_DENSE || !nn_is_sparse(&g->h);
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
    int used = engine_accel_close(g), rows = row_reads_close(g->rows);
    int in_flight = g->lost || io_close(g->io) || used || rows; /* before the memory that reads in flight write to */
    pipeline_free(g->pipe);
    if (!in_flight) /* else the process is about to end, and the mapping with it */
        arena_close(&g->arena);
    if (g->dense)
        g->dense->backend->close(g->dense);
    free(g->weights.rows);
    free(g->graph);
    free(g->biases);
    free(g->predictors);
    free(g->pieces);
    free(g->verifier.row_checks);
    free(g->weights.rope_freqs);
    free(g->taken);
    free(g->state_pos);
    free(g->state_sure);
    free(g->moves_pos);
    free(g->moves);
    free(g->misfits);
    free(g->prefixes);
    free(g->slots);
    free(g->states);
    free(g);
}

const struct engine_config *engine_configuration(const struct engine *g)
{
    return &g->c;
}

int engine_take_sequence(struct engine *g, struct err *e)
{
    for (int i = 0; i < g->c.choice.max_batch; i++)
        if (!g->taken[i]) {
            g->taken[i] = 1;
            g->misfits[i] = DENSE_FITS;
            return i;
        }
    return err_set(e, ERR_LIMIT, "the memory holds %d sequence%s, and no other is free", g->c.choice.max_batch,
                   g->c.choice.max_batch == 1 ? "" : "s");
}

void engine_give_sequence(struct engine *g, int seq)
{
    engine_keep_positions(g, seq, 0);
    g->taken[seq] = 0;
}

int engine_check_kv(const struct engine *g, int seq, int n, struct err *e)
{
    uint64_t misfit = g->misfits[seq];
    int pos = dense_misfit_pos(misfit), layer = (int)((uint32_t)misfit >> 1);
    if (misfit == DENSE_FITS || pos >= n)
        return 0;
    if (misfit & 1)
        return err_set(e, ERR_FORMAT, "'%s': layer %d made a key or value of position %d that is not a finite number: the weights were "
                       "damaged or badly converted before they were packed, or are too large for F32", g->c.pack->file.path, layer, pos);
    return err_set(e, ERR_LIMIT, "'%s': layer %d made a key or value of position %d beyond %s a KV cache in %s; "
                   "--kv f32 has room for it", g->c.pack->file.path, layer, pos,
                   g->c.choice.kv_type == KV_F16 ? "65504, the largest number of" : "what scales in F16 hold of",
                   quant_traits(kv_type_quant(g->c.choice.kv_type))->name);
}

int engine_can_keep(const struct engine *g, int seq, int n)
{
    return !model_has_states(&g->h) || (n >= g->state_sure[seq] && n <= g->state_pos[seq]) ? n : 0;
}

/* Positions from n on are no longer the sequence's. */
static void forget_misfit(struct engine *g, int seq, int n)
{
    if (g->misfits[seq] != DENSE_FITS && dense_misfit_pos(g->misfits[seq]) >= n)
        g->misfits[seq] = DENSE_FITS;
}

int engine_share_sequence(struct engine *g, int to, int from, int n, struct err *e)
{
    assert(engine_can_keep(g, from, n) == n);
    engine_move_on(g, from, n);
    int r = model_has_states(&g->h) && n > 0 ? g->dense->backend->copy_state(g->dense, from, to, e) : 0;
    if (r < 0)
        return r;
    kv_pages_share(&g->pages, to, from, n);
    g->misfits[to] = g->misfits[from];
    forget_misfit(g, to, n);
    engine_set_state(g, to, n);
    return 0;
}

void engine_keep_positions(struct engine *g, int seq, int n)
{
    assert(engine_can_keep(g, seq, n) == n);
    kv_pages_keep(&g->pages, seq, n);
    forget_misfit(g, seq, n);
    g->state_pos[seq] = n;
    if (n < g->state_sure[seq] || g->state_sure[seq] < 0)
        g->state_sure[seq] = n;
}

int engine_keep_prefixes(struct engine *g, int states, struct err *e)
{
    int has = model_has_states(&g->h);
    if (g->prefixes)
        return 1;
    if ((has && !states) || (!g->kv_shape.table_bytes && g->c.choice.context % SCHEDULE_KV_PAGE))
        return 0;
    g->prefixes = calloc(1, kv_prefix_bytes(&g->kv_shape));
    if (has) {
        g->slots = calloc((size_t)states, sizeof *g->slots);
        g->states = calloc((size_t)states, (size_t)budget_kv_state(&g->kv_shape, g->c.choice.max_batch));
    }
    if (!g->prefixes || (has && (!g->slots || !g->states)))
        return err_set(e, ERR_NOMEM, "out of memory for what the KV cache holds");
    kv_prefix_init(&g->pages, &g->kv_shape, g->prefixes);
    if (has)
        kv_prefix_slots(&g->pages, g->slots, states);
    return 1;
}

void engine_use_store(struct engine *g, struct kv_store *s, struct hash128 root)
{
    g->store = s;
    if (s && g->prefixes)
        kv_prefix_root(&g->pages, root);
}

int engine_has_store(const struct engine *g)
{
    return g->store != NULL;
}

int engine_state_bytes(const struct pack *p, const struct budget_choice *c, uint64_t *bytes, struct err *e)
{
    struct budget_model m;
    struct budget_kv k;
    pack_budget_model(p, &m);
    int r = budget_kv(&m, c, &k, e);
    *bytes = r < 0 || !model_has_states(&p->h) ? 0 : budget_kv_state(&k, c->max_batch) + sizeof(struct kv_slot);
    return r;
}

int engine_store_payload(const struct pack *p, const struct budget_choice *c, size_t *bytes, struct err *e)
{
    struct budget_model m;
    struct budget_kv k;
    pack_budget_model(p, &m);
    int r = budget_kv(&m, c, &k, e);
    uint64_t page = r < 0 ? 0 : budget_kv_page(&k), state = r < 0 || !model_has_states(&p->h) ? 0 : budget_kv_state(&k, c->max_batch);
    *bytes = (size_t)(page > state ? page : state);
    return r;
}

int engine_find_prefix(struct engine *g, int seq, int from, const int32_t *ids, int n)
{
    int found = kv_prefix_take(&g->pages, seq, from, ids, n);
    engine_set_state(g, seq, model_has_states(&g->h) ? -1 : found); /* until engine_begin_from */
    return found;
}

int engine_load_prefix(struct engine *g, int seq, int from, const int32_t *ids)
{
    int n = from + SCHEDULE_KV_PAGE, was, page;
    struct err e;
    struct hash128 name = kv_prefix_name(&g->pages, seq, from, ids + from);
    const void *payload = kv_store_get(g->store, KV_STORE_PAGE, name, ids, n, (size_t)budget_kv_page(&g->kv_shape));
    if (!payload || kv_pages_own(&g->pages, seq, from, &was, &page, &e) < 0)
        return 0;
    page = kv_pages_of(&g->pages, seq)[from / SCHEDULE_KV_PAGE];
    if (g->dense->backend->move_page(g->dense, page, (void *)(uintptr_t)payload, 1, &e) < 0) {
        kv_pages_keep(&g->pages, seq, from);
        return 0;
    }
    kv_prefix_keep(&g->pages, seq, ids, n);
    kv_prefix_stored(&g->pages, page);
    engine_set_state(g, seq, model_has_states(&g->h) ? -1 : n);
    return 1;
}

/* ---- states ---- */

int engine_take_back_bytes(const struct pack *p, const struct budget_choice *c, int most, uint64_t *bytes, struct err *e)
{
    struct op_need all;
    uint64_t tokens, of_workers, floats;
    *bytes = 0;
    if (!model_has_states(&p->h))
        return 0;
    if (!ops_take_back(&p->h))
        return err_set(e, ERR_UNSUPPORTED, "'%s': guesses take tokens back, and the state of recurrent layers of the architecture '%s' "
                       "cannot give them back", p->file.path, p->h.arch);
    ops_most(&p->h, OPS_ALL, &all);
    if (!ck_mul_u64(all.states * all.moves, (uint64_t)c->max_batch * (uint64_t)most, &tokens) ||
        !ck_mul_u64(all.held, (uint64_t)c->threads, &of_workers) || !ck_add_u64(tokens, of_workers, &floats) ||
        !ck_mul_u64(floats, sizeof(float), bytes) || !ck_add_u64(*bytes, (uint64_t)c->max_batch * sizeof(int), bytes))
        return err_set(e, ERR_LIMIT, "'%s': %d tokens that can be taken back of %d sequences", p->file.path, most, c->max_batch);
    return 0;
}

int engine_take_back(struct engine *g, int most, struct err *e)
{
    const struct budget_choice *c = &g->c.choice;
    struct op_need all;
    uint64_t bytes;
    int r = engine_take_back_bytes(g->c.pack, c, most, &bytes, e);
    if (r < 0 || bytes == 0)
        return r;
    g->moves_pos = calloc((size_t)c->max_batch, sizeof *g->moves_pos);
    g->moves = malloc((size_t)bytes);
    if (!g->moves_pos || !g->moves)
        return err_set(e, ERR_NOMEM, "out of memory for %d tokens that can be taken back of %d sequences", most, c->max_batch);
    ops_most(&g->h, OPS_ALL, &all);
    g->most_moves = most;
    const struct dense_moves m = { most, (size_t)all.moves, (size_t)all.held, g->moves,
                                   g->moves + (size_t)c->max_batch * (size_t)all.states * (size_t)most * (size_t)all.moves };
    g->dense->backend->keep_moves(g->dense, &m);
    return 0;
}

static size_t state_bytes(const struct engine *g)
{
    return (size_t)budget_kv_state(&g->kv_shape, g->c.choice.max_batch);
}

/* 1: the state after the sequence's first n positions is its own. */
static int take_state(struct engine *g, int seq, const int32_t *ids, int n)
{
    struct err e;
    int slot = kv_prefix_state(&g->pages, seq, n);
    const void *from = slot >= 0 ? g->states + (size_t)slot * state_bytes(g) : NULL;
    struct hash128 page = kv_prefix_name(&g->pages, seq, n - SCHEDULE_KV_PAGE, ids + n - SCHEDULE_KV_PAGE);
    if (!from && g->store)
        from = kv_store_get(g->store, KV_STORE_STATE, page, ids, n, state_bytes(g));
    if (!from || g->dense->backend->move_state(g->dense, seq, (void *)(uintptr_t)from, 1, &e) < 0)
        return 0;
    if (g->store)
        kv_store_touch_state(g->store, page, n);
    return 1;
}

int engine_begin_from(struct engine *g, int seq, const int32_t *ids, int n)
{
    if (!model_has_states(&g->h))
        return n;
    while (n > 0 && !take_state(g, seq, ids, n))
        n -= SCHEDULE_KV_PAGE;
    kv_pages_keep(&g->pages, seq, n);
    engine_set_state(g, seq, n);
    return n;
}

void engine_keep_state(struct engine *g, int seq, int n)
{
    struct err e;
    int sound = g->misfits[seq] == DENSE_FITS || dense_misfit_pos(g->misfits[seq]) >= n;
    int slot = g->slots && sound && n > 0 && n == g->state_pos[seq] ? kv_prefix_mark(&g->pages, seq, n) : -1;
    if (slot >= 0)
        engine_move_on(g, seq, n);
    if (slot >= 0)
        g->dense->backend->move_state(g->dense, seq, g->states + (size_t)slot * state_bytes(g), 0, &e);
}

static void touch_stored(void *ctx, struct hash128 page, int n)
{
    kv_store_touch(ctx, page, n);
}

void engine_touch_prefix(struct engine *g, int seq, int n)
{
    kv_prefix_each_stored(&g->pages, seq, n, touch_stored, g->store);
}

/* Keys that do not fit are no one else's. */
void engine_publish_prefix(struct engine *g, int seq, const int32_t *ids, int n)
{
    int misfit = g->misfits[seq] == DENSE_FITS ? n : dense_misfit_pos(g->misfits[seq]);
    kv_prefix_keep(&g->pages, seq, ids, n < misfit ? n : misfit);
}

int engine_store_prefixes(struct engine *g)
{
    struct hash128 name;
    struct err e;
    int page, slot, n;
    for (int32_t *ids; g->store;) {
        if (!(ids = kv_store_room(g->store)))
            return 1;
        if ((page = kv_prefix_unstored(&g->pages, ids, &n, &name)) >= 0) {
            if (g->dense->backend->move_page(g->dense, page, kv_store_payload(ids, n), 0, &e) == 0)
                kv_store_put(g->store, KV_STORE_PAGE, name, n, (size_t)budget_kv_page(&g->kv_shape));
            kv_prefix_stored(&g->pages, page);
        } else if ((slot = kv_prefix_unstored_state(&g->pages, ids, &n, &name)) >= 0) {
            memcpy(kv_store_payload(ids, n), g->states + (size_t)slot * state_bytes(g), state_bytes(g));
            kv_store_put(g->store, KV_STORE_STATE, name, n, state_bytes(g));
            kv_prefix_stored_state(&g->pages, slot);
        } else {
            return 0;
        }
    }
    return 0;
}

int engine_pages_needed(const struct engine *g, int seq, int from, int n)
{
    return kv_pages_need(&g->pages, seq, from, n);
}

int engine_free_positions(const struct engine *g)
{
    return g->pages.n_free * SCHEDULE_KV_PAGE;
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

int engine_unpinned(const struct engine *g)
{
    return pool_refused(g->pool);
}

struct engine_loading engine_loading(const struct engine *g)
{
    return g->loading;
}

size_t engine_page_bytes(const struct engine *g)
{
    return g->arena.page_bytes;
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
