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

#define LOAD_PIECE     (1u << 20) /* of a read, at most: any disk is at its best */
#define LOAD_DEPTH     8

int load_begin(struct engine *g, struct err *e)
{
    uint64_t align = g->shapes->l.block_bytes > 4096 ? g->shapes->l.block_bytes : 4096;
    uint64_t least = budget_staging_bytes(&g->shapes->kind[0]), size = g->arena.item[BUDGET_KV].size;
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

struct wanted {                /* a role, and where it goes */
    enum model_role role;
    struct dense_matrix *m;
    const float **v;           /* vectors are float32 */
};

static int take_matrix(struct engine *g, const struct pack_dense *d, const uint8_t *data, struct dense_matrix *m,
                       struct err *e)
{
    *m = (struct dense_matrix){ .data = data, .type = d->type, .n_rows = (int)d->dims[1], .n_cols = (int)d->dims[0],
                          .row_bytes = quant_row_bytes(d->type, d->dims[0]),
                          .form = kernels_act_form(d->type, g->c.act_q8) };
    if (!kernels->rows[m->form][d->type])
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %s, which this build cannot multiply",
                       g->c.pack->file.path, model_role_name(d->role), d->layer, quant_traits(d->type)->name);
    return 0;
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
    if (sum != d->checksum)
        return err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d is damaged: checksum %016llx, expected %016llx",
                       path, model_role_name(d->role), d->layer, (unsigned long long)sum,
                       (unsigned long long)d->checksum);
    return 0;
}

/* ---- dense tensors ---- */

static int load_one(struct engine *g, const struct wanted *w, int layer, struct progress *bar, struct err *e)
{
    const struct pack *p = g->c.pack;
    const struct pack_dense *d = pack_dense_find(p, w->role, layer);
    if (!d)
        return model_role_at(&g->h, w->role, layer) != MODEL_REQUIRED
                   ? 0
                   : err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d is missing", p->file.path,
                                     model_role_name(w->role), layer);
    uint8_t *to = arena_take(&g->arena, BUDGET_DENSE, budget_dense_tensor(d->bytes));
    int r = read_dense(g, d, to, e);
    if (r < 0)
        return r;
    progress_add(bar, d->stored_bytes);
    if (w->m)
        return take_matrix(g, d, to, w->m, e);
    if (d->type != QUANT_F32)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %s; vectors are F32", p->file.path,
                       model_role_name(d->role), layer, quant_traits(d->type)->name);
    *w->v = (const float *)to;
    int bad = w->role == MODEL_FFN_THRESHOLD ? model_bad_threshold(*w->v, g->h.n_ff) : -1;
    return bad < 0 ? 0 : err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d: %g at %d; a number from 0 on is needed", p->file.path,
                                 model_role_name(w->role), layer, (double)(*w->v)[bad], bad);
}

/* What RWKV has in place of attention. */
static int load_wkv(struct engine *g, int i, struct progress *bar, struct err *e)
{
    struct dense_wkv *x = g->weights.layers[i].wkv;
    const struct wanted w[] = {
        { MODEL_WKV_R, &x->r, NULL }, { MODEL_WKV_K, &x->k, NULL }, { MODEL_WKV_V, &x->v, NULL },
        { MODEL_WKV_OUTPUT, &x->o, NULL },
        { MODEL_WKV_DECAY_A, &x->low[NN_WKV_W][0], NULL }, { MODEL_WKV_DECAY_B, &x->low[NN_WKV_W][1], NULL },
        { MODEL_WKV_RATE_A, &x->low[NN_WKV_A][0], NULL }, { MODEL_WKV_RATE_B, &x->low[NN_WKV_A][1], NULL },
        { MODEL_WKV_VALUE_A, &x->low[NN_WKV_V][0], NULL }, { MODEL_WKV_VALUE_B, &x->low[NN_WKV_V][1], NULL },
        { MODEL_WKV_GATE_A, &x->low[NN_WKV_G][0], NULL }, { MODEL_WKV_GATE_B, &x->low[NN_WKV_G][1], NULL },
        { MODEL_WKV_LERP, NULL, &x->w.lerp }, { MODEL_WKV_DECAY, NULL, &x->w.decay }, { MODEL_WKV_RATE, NULL, &x->w.rate },
        { MODEL_WKV_VALUE, NULL, &x->w.value }, { MODEL_WKV_K_K, NULL, &x->w.k_k }, { MODEL_WKV_K_A, NULL, &x->w.k_a },
        { MODEL_WKV_R_K, NULL, &x->w.r_k }, { MODEL_WKV_NORM, NULL, &x->w.norm }, { MODEL_WKV_NORM_BIAS, NULL, &x->w.norm_bias },
        { MODEL_FFN_LERP, NULL, &x->ffn_lerp }, { MODEL_FFN_LERP_R, NULL, &x->ffn_lerp_r }, { MODEL_WKV_LERP_X, NULL, &x->w.lerp_x },
        { MODEL_WKV_MIX_A, &x->mix_a, NULL }, { MODEL_WKV_MIX_B, &x->mix_b, NULL }, { MODEL_WKV_G, &x->g, NULL },
        { MODEL_FFN_R, &x->ffn_r, NULL },
    };
    int r = 0;
    for (size_t k = 0; k < sizeof w / sizeof w[0] && r == 0; k++)
        r = load_one(g, &w[k], i, bar, e);
    return r;
}

static int load_layer(struct engine *g, int i, struct progress *bar, struct err *e)
{
    struct dense_layer *l = &g->weights.layers[i];
    const float *experts_norm = NULL, *attn_norm_2 = NULL, *attn_norm_2_bias = NULL;
    const struct wanted w[] = {
        { MODEL_ATTN_NORM, NULL, &l->attn_norm }, { MODEL_ATTN_Q, &l->q, NULL },
        { MODEL_ATTN_K, &l->k, NULL },            { MODEL_ATTN_V, &l->v, NULL },
        { MODEL_ATTN_OUTPUT, &l->o, NULL },       { MODEL_FFN_NORM, NULL, &l->ffn_norm },
        { MODEL_ATTN_Q_A, &l->q_a, NULL },        { MODEL_ATTN_Q_B, &l->q_b, NULL },
        { MODEL_ATTN_KV_A, &l->kv_a, NULL },      { MODEL_ATTN_K_B, &l->k_b, NULL },
        { MODEL_ATTN_V_B, &l->v_b, NULL },        { MODEL_ATTN_Q_A_NORM, NULL, &l->q_a_norm },
        { MODEL_ATTN_KV_A_NORM, NULL, &l->kv_a_norm },
        { MODEL_FFN_ROUTER, &l->router, NULL },   { MODEL_ATTN_Q_BIAS, NULL, &l->q_bias },
        { MODEL_ATTN_K_BIAS, NULL, &l->k_bias },  { MODEL_ATTN_V_BIAS, NULL, &l->v_bias },
        { MODEL_ATTN_OUTPUT_BIAS, NULL, &l->o_bias },
        { MODEL_ATTN_Q_NORM, NULL, &l->q_norm },  { MODEL_ATTN_K_NORM, NULL, &l->k_norm },
        { MODEL_SHARED_ROUTER, NULL, &l->shared_router },
        { MODEL_SHARED_GATE, &l->shared_gate, NULL }, { MODEL_SHARED_UP, &l->shared_up, NULL },
        { MODEL_SHARED_DOWN, &l->shared_down, NULL },
        { MODEL_LEAD_GATE, &l->shared_gate, NULL }, { MODEL_LEAD_UP, &l->shared_up, NULL },
        { MODEL_LEAD_DOWN, &l->shared_down, NULL }, { MODEL_SELECT_BIAS, NULL, &l->select_bias },
        { MODEL_ATTN_POST_NORM, NULL, &l->attn_post_norm }, { MODEL_FFN_POST_NORM, NULL, &l->ffn_post_norm },
        { MODEL_ATTN_SINKS, NULL, &l->sinks },    { MODEL_FFN_ROUTER_BIAS, NULL, &l->router_bias },
        { MODEL_FFN_GATE_BIAS, NULL, &g->biases[i].gate }, { MODEL_FFN_UP_BIAS, NULL, &g->biases[i].up },
        { MODEL_FFN_THRESHOLD, NULL, &g->biases[i].silence },
        { MODEL_FFN_DOWN_BIAS, NULL, &l->down_bias }, { MODEL_EXPERT_NORM, NULL, &experts_norm },
        { MODEL_EXPERT_POST_NORM, NULL, &l->experts_post_norm }, { MODEL_SHARED_POST_NORM, NULL, &l->shared_post_norm },
        { MODEL_ROUTER_SCALE, NULL, &l->router_norm }, { MODEL_EXPERT_SCALE, NULL, &l->expert_scale },
        { MODEL_OUT_SCALE, NULL, &l->out_scale }, { MODEL_ATTN_NORM_BIAS, NULL, &l->attn_norm_bias },
        { MODEL_DELTA_QKV, &l->delta_qkv, NULL }, { MODEL_DELTA_Z, &l->delta_z, NULL },
        { MODEL_DELTA_BETA, &l->delta_beta, NULL }, { MODEL_DELTA_ALPHA, &l->delta_alpha, NULL },
        { MODEL_DELTA_BETA_ALPHA, &l->delta_beta, NULL }, { MODEL_DELTA_OUT, &l->delta_out, NULL },
        { MODEL_DELTA_CONV, NULL, &l->delta_conv }, { MODEL_DELTA_DT, NULL, &l->delta_dt },
        { MODEL_DELTA_A, NULL, &l->delta_a },     { MODEL_DELTA_NORM, NULL, &l->delta_norm },
        { MODEL_FFN_NORM_BIAS, NULL, &l->ffn_norm_bias }, { MODEL_ATTN_NORM_2, NULL, &attn_norm_2 },
        { MODEL_ATTN_NORM_2_BIAS, NULL, &attn_norm_2_bias },
    };
    int r = 0;
    for (size_t k = 0; k < sizeof w / sizeof w[0] && r == 0; k++)
        r = load_one(g, &w[k], i, bar, e);
    if (r == 0 && l->wkv)
        r = load_wkv(g, i, bar, e);
    if (g->h.parallel) { /* the FFN's is attention's, where that has no other */
        l->ffn_norm = l->attn_norm;
        l->ffn_norm_bias = l->attn_norm_bias;
    }
    if (attn_norm_2) {
        l->attn_norm = attn_norm_2;
        l->attn_norm_bias = attn_norm_2_bias;
    }
    l->shared_norm = l->ffn_norm;
    l->ffn_norm = experts_norm ? experts_norm : l->ffn_norm;
    return r;
}

int load_dense(struct engine *g, struct err *e)
{
    const struct pack *p = g->c.pack;
    const float *divisor = NULL;
    struct progress bar;
    uint64_t total = 0;
    for (int i = 0; i < p->n_dense; i++)
        total += p->dense[i].stored_bytes;
    progress_init(&bar, "loading dense weights", "B", total);
    const struct wanted w[] = {
        { MODEL_TOKEN_EMBD, &g->weights.embd, NULL },
        { MODEL_POSITION_EMBD, &g->weights.positions, NULL },
        { MODEL_OUTPUT_NORM, NULL, &g->weights.output_norm },
        { MODEL_OUTPUT_NORM_BIAS, NULL, &g->weights.output_norm_bias },
        { MODEL_EMBD_NORM, NULL, &g->weights.embd_norm },
        { MODEL_EMBD_NORM_BIAS, NULL, &g->weights.embd_norm_bias },
        { MODEL_OUTPUT, &g->weights.output, NULL },
        { MODEL_ROPE_FREQS, NULL, &divisor },
        { MODEL_MTP_PROJ, &g->weights.mtp_proj, NULL },
        { MODEL_MTP_ENORM, NULL, &g->weights.mtp_enorm },
        { MODEL_MTP_HNORM, NULL, &g->weights.mtp_hnorm },
    };
    int r = 0;
    for (size_t k = 0; k < sizeof w / sizeof w[0] && r == 0; k++)
        r = load_one(g, &w[k], -1, &bar, e);
    for (int i = 0; i < model_depth(&g->h) && r == 0; i++)
        r = load_layer(g, i, &bar, e);
    progress_done(&bar);
    if (r < 0)
        return r;
    if (g->c.trunk && !g->weights.embd.data)
        g->weights.embd = g->c.trunk->weights.embd;
    if (!g->weights.output.data)
        g->weights.output = g->c.trunk ? g->c.trunk->weights.output : g->weights.embd;
    nn_rope_all(g->weights.rope_freqs, &g->h, divisor);
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
    if (!t->bytes || g->c.no_verify)
        return 0;
    struct hash *h = hash_new();
    if (!h)
        return err_set(e, ERR_NOMEM, "out of memory for a checksum");
    g->verifier.checks = arena_take(&g->arena, BUDGET_CHECKS, g->arena.item[BUDGET_CHECKS].size);
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
