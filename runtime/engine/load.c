/* Loading: everything through a read backend of our own, as long sequential reads, so that nothing of
 * the model passes through the page cache: in a memory cgroup of exactly the budget, read-ahead
 * alone could exhaust it. Buffers lie where the KV cache will be, for those of the plan may be few and
 * small. Dense tensors and clusters are checked against their checksums, so damage is found before
 * the first token and named. What will be read later is verified then (io/verify.h), against the table that is loaded here. */
#include "runtime/engine/load_ahead.h"

#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/base/progress.h"
#include "common/base/zstream.h"
#include "common/pack/pack_format.h"

#include <stdlib.h>
#include <string.h>

#define LOAD_PIECE PLAN_LOAD_PIECE /* of a read, at most: any disk is at its best */
#define LOAD_DEPTH PLAN_LOAD_DEPTH

int load_begin(struct engine *g, struct err *e)
{
    uint64_t align = g->shapes->l.block_bytes > 4096 ? g->shapes->l.block_bytes : 4096;
    uint64_t least = budget_staging_bytes(&g->shapes->kind[0]), size = g->dense ? 0 : g->arena.item[BUDGET_KV].size; /* in use by then */
    uint64_t skip = (align - (uintptr_t)g->kv % align) % align, room = size > skip ? size - skip : 0;
    g->load_at = g->kv + skip;
    g->load_piece = (uint32_t)(room / LOAD_DEPTH < LOAD_PIECE ? room / LOAD_DEPTH / align * align : LOAD_PIECE);
    if (g->load_piece < least)
        g->load_piece = (uint32_t)least;
    g->load_depth = (uint32_t)(room / g->load_piece < LOAD_DEPTH ? room / g->load_piece : LOAD_DEPTH);
    if (room < least || (uint64_t)g->load_depth * g->load_piece < (uint64_t)g->c.choice.queue_depth * least) {
        g->load_at = g->staging; /* there is more of it */
        g->load_piece = (uint32_t)least;
        g->load_depth = (uint32_t)g->c.choice.queue_depth < AHEAD_DEPTH ? (uint32_t)g->c.choice.queue_depth
                                                                           : AHEAD_DEPTH;
    }
    return engine_open_io(g, g->load_at, (size_t)g->load_depth * g->load_piece, (int)g->load_depth, e);
}

void load_drain(struct engine *g)
{
    struct io_request *done[AHEAD_DEPTH];
    struct err e;
    while (g->io->in_flight > 0 && io_reap(g->io, done, AHEAD_DEPTH, 1, &e) > 0)
        continue;
}

/* How the layer's matrix of a role is folded. */
static int load_fold(const struct engine *g, enum model_role role, int layer, uint64_t inputs, struct model_fold *out, struct err *e)
{
    char name[64];
    if (model_tensor_name(&g->h, role, layer, name, sizeof name) < 0)
        return 0;
    return model_fold_of(g->c.pack->meta, name, inputs, out, e);
}

static int take_matrix(struct engine *g, const struct pack_dense *d, const uint8_t *data, struct dense_matrix *m,
                       struct err *e)
{
    *m = (struct dense_matrix){ .data = data, .type = d->type, .n_rows = (int)d->dims[1], .n_cols = (int)d->dims[0],
                          .row_bytes = quant_row_bytes(d->type, d->dims[0]),
                          .form = kernels_act_form(d->type, g->c.act_q8) };
    if (!kernels->rows[m->form][d->type])
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %s, which this build cannot multiply",
                       g->c.pack->file.path, model_role_name(d->role), d->layer, quant_traits(d->type)->name);
    return load_fold(g, d->role, d->layer, d->dims[0], &m->fold, e);
}

static int damaged(const struct engine *g, const struct pack_dense *d, uint64_t sum, struct err *e)
{
    return err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d is damaged: checksum %016llx, expected %016llx", g->c.pack->file.path,
                   model_role_name(d->role), d->layer, (unsigned long long)sum, (unsigned long long)d->checksum);
}

static int read_dense(struct engine *g, const struct pack_dense *d, uint8_t *out, struct err *e)
{
    const char *path = g->c.pack->file.path;
    struct ahead a;
    int r;
    ahead_init(&a, g, d->offset, d->stored_bytes);
    if (d->zstd)
        r = zstream_expand(ahead_read, &a, d->stored_bytes, out, d->bytes, PACK_ZSTD_WINDOW_LOG,
                           model_role_name(d->role), e);
    else
        r = ahead_read(&a, out, (size_t)d->bytes, e);
    if (r < 0) {
        load_drain(g);
        return r == ERR_IO ? r : err_wrap(e, "'%s': layer %d", path, d->layer);
    }
    uint64_t sum = hash_64(out, (size_t)d->bytes);
    return sum == d->checksum ? 0 : damaged(g, d, sum, e);
}

/* ---- dense tensors ---- */

/* A table whose rows are read later is read once here, so that damage is found before the first token, and what its rows will be verified
 * by is taken from bytes that its checksum is held against. */
static int look_at_rows(struct engine *g, const struct pack_dense *d, struct hash *h, struct err *e)
{
    uint64_t len = d->bytes / d->dims[1];
    uint8_t *row = row_reads_buffer(g->rows);
    struct ahead a;
    ahead_init(&a, g, d->offset, d->stored_bytes);
    for (uint64_t i = 0; i < d->dims[1]; i++) {
        int r = ahead_read(&a, row, (size_t)len, e);
        if (r < 0) {
            load_drain(g);
            return r;
        }
        hash_update(h, row, (size_t)len);
        row_reads_look(g->rows, (uint32_t)i, row);
    }
    uint64_t sum = hash_final64(h);
    return sum == d->checksum ? 0 : damaged(g, d, sum, e);
}

static int load_table(struct engine *g, const struct pack_dense *d, const struct budget_model *m, const struct budget_table *t,
                      struct err *e)
{
    struct hash *h = hash_new();
    if (!h || (!g->rows && !(g->rows = row_reads_new(&g->verifier, e)))) {
        hash_free(h);
        return err_set(e, ERR_NOMEM, "out of memory for tables of rows");
    }
    row_reads_add(g->rows, d, arena_take(&g->arena, BUDGET_DENSE, budget_dense_tensor(budget_table_stream(m, t))));
    int r = look_at_rows(g, d, h, e);
    hash_free(h);
    return r < 0 ? r : take_matrix(g, d, NULL, dense_at(&g->weights, d->role, -1), e);
}

static int load_one(struct engine *g, const struct budget_model *m, enum model_role role, int layer, struct progress *bar, struct err *e)
{
    const struct pack *p = g->c.pack;
    const struct pack_dense *d = pack_dense_find(p, role, layer);
    struct dense_matrix *to = dense_at(&g->weights, role, layer);
    if (!d) /* pack_open looked for those that must be there */
        return 0;
    for (int i = 0; i < m->n_tables; i++)
        if (m->table[i].role == role && budget_streams(m, &g->c.choice, &m->table[i])) {
            progress_add(bar, d->stored_bytes);
            return load_table(g, d, m, &m->table[i], e);
        }
    uint8_t *data = arena_take(&g->arena, BUDGET_DENSE, budget_dense_tensor(d->bytes));
    int r = read_dense(g, d, data, e);
    if (r < 0)
        return r;
    progress_add(bar, d->stored_bytes);
    if (!model_role_is_vector(role))
        return take_matrix(g, d, data, to, e);
    if (d->type != QUANT_F32)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %s; vectors are F32", p->file.path,
                       model_role_name(d->role), layer, quant_traits(d->type)->name);
    to->data = data;
    const float *v = (const float *)(const void *)data;
    int bad = role == MODEL_FFN_THRESHOLD ? model_bad_threshold(v, model_n_ff(&g->h, layer)) : -1;
    return bad < 0 ? 0 : err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d: %g at %d; a number from 0 on is needed", p->file.path,
                                 model_role_name(role), layer, (double)v[bad], bad);
}

/* A row of the tables has a slot for each role that the pack has, and for what a model may have of another's. */
static int make_tables(struct engine *g, struct err *e)
{
    struct dense_weights *w = &g->weights;
    uint8_t n[2] = { 0, 0 }; /* the model's own; a layer's */
    w->slot[MODEL_TOKEN_EMBD] = ++n[0];
    w->slot[MODEL_OUTPUT] = ++n[0];
    for (int i = 0; i < g->c.pack->n_dense; i++) {
        enum model_role role = g->c.pack->dense[i].role;
        if (!w->slot[role])
            w->slot[role] = ++n[model_role_is_per_layer(role)];
    }
    w->depth = model_depth(&g->h);
    w->n_slots = 1 + (n[0] > n[1] ? n[0] : n[1]);
    w->rows = calloc((size_t)(w->depth + 1) * (size_t)w->n_slots, sizeof *w->rows);
    return w->rows ? 0 : err_set(e, ERR_NOMEM, "out of memory for the tables of %d layers", w->depth);
}

int load_dense(struct engine *g, struct err *e)
{
    const struct pack *p = g->c.pack;
    struct dense_weights *w = &g->weights;
    struct budget_model m;
    struct progress bar;
    uint64_t total = 0;
    int r = make_tables(g, e);
    pack_budget_model(p, &m);
    for (int i = 0; i < p->n_dense; i++)
        total += p->dense[i].stored_bytes;
    progress_init(&bar, "loading dense weights", "B", total);
    for (int l = -1; l < w->depth; l++)
        for (int role = 0; role < MODEL_ROLES && r == 0; role++)
            if (model_role_is_dense((enum model_role)role) && model_role_is_per_layer((enum model_role)role) == (l >= 0))
                r = load_one(g, &m, (enum model_role)role, l, &bar, e);
    progress_done(&bar);
    if (r < 0)
        return r;
    for (int l = 0; l < w->depth; l++)
        g->biases[l] = (struct pipeline_bias){ dense_vector(w, MODEL_FFN_GATE_BIAS, l), dense_vector(w, MODEL_FFN_UP_BIAS, l),
                                               g->h.thresholds ? dense_vector(w, MODEL_FFN_THRESHOLD, l) : NULL,
                                               g->h.cold_thresholds ? dense_vector(w, MODEL_FFN_THRESHOLD, l) : NULL };
    if (g->h.fold && ((r = load_fold(g, MODEL_FFN_GATE, 0, (uint64_t)g->h.d_model, &g->fold_in, e)) < 0 ||
                      (r = load_fold(g, MODEL_FFN_DOWN, 0, (uint64_t)g->h.n_ff, &g->fold_ff, e)) < 0))
        return r;
    struct dense_matrix *embd = dense_at(w, MODEL_TOKEN_EMBD, -1), *output = dense_at(w, MODEL_OUTPUT, -1);
    if (g->c.trunk && !embd->row_bytes)
        *embd = *dense_at(&g->c.trunk->weights, MODEL_TOKEN_EMBD, -1);
    if (!output->data)
        *output = g->c.trunk ? *dense_at(&g->c.trunk->weights, MODEL_OUTPUT, -1) : *embd;
    nn_rope_all(w->rope_freqs, &g->h, dense_vector(w, model_rope_divisors(&g->h, g->c.choice.context), -1));
    return 0;
}

/* ---- checksums of units ---- */

/* Those of units that are not resident are kept; the table is read whole, for its own checksum is of all of it. */
static int read_checks(struct engine *g, struct ahead *a, struct hash *h, struct err *e)
{
    uint8_t some[4096];
    size_t n_ffn = (size_t)g->h.n_layers * (size_t)g->n_blocks, parts = (size_t)g->n_parts;
    for (size_t i = 0; i < n_ffn * parts; i++) {
        int layer = (int)(i / parts / (size_t)g->n_blocks), part = (int)(i % parts);
        const struct layout_part *lp = &layout_of(g->shapes, layer)->part[part];
        uint32_t hot = engine_first_cold(g, layer, (int)(i / parts % (size_t)g->n_blocks), part);
        uint32_t *to = g->verifier.checks + g->verifier.checks_at[i];
        for (uint32_t u = 0, n; u < lp->n_units; u += n) {
            n = lp->n_units - u < sizeof some / 4 ? lp->n_units - u : sizeof some / 4;
            int r = ahead_read(a, some, n * 4, e);
            if (r < 0)
                return r;
            hash_update(h, some, n * 4);
            for (uint32_t k = 0; k < n; k++)
                if (u + k >= hot)
                    to[u + k - hot] = bytes_le32(some + 4 * k);
        }
    }
    return 0;
}

int load_checks(struct engine *g, struct err *e)
{
    const struct pack_unit_checks *t = &g->c.pack->unit_checks;
    struct ahead a;
    if (g->c.no_verify)
        return 0;
    struct hash *h = hash_new();
    if (!h)
        return err_set(e, ERR_NOMEM, "out of memory for a checksum");
    g->verifier.checks = (uint32_t *)(void *)g->arena.item[BUDGET_CHECKS].at;
    g->arena.item[BUDGET_CHECKS].used = g->arena.item[BUDGET_CHECKS].size;
    ahead_init(&a, g, t->offset, t->bytes);
    int r = read_checks(g, &a, h, e);
    uint64_t sum = hash_final64(h);
    hash_free(h);
    if (r < 0) {
        load_drain(g);
        return r;
    }
    if (sum != t->checksum)
        return err_set(e, ERR_FORMAT, "'%s': the checksums of units are damaged: checksum %016llx, expected %016llx",
                       g->c.pack->file.path, (unsigned long long)sum, (unsigned long long)t->checksum);
    return 0;
}
