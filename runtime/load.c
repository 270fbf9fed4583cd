/* Loading: everything through a read backend of our own, as long sequential reads, so that nothing of
 * the model passes through the page cache: in a memory cgroup of exactly the budget, read-ahead
 * alone could exhaust it. Buffers lie where the KV cache will be, for those of the plan may be few and
 * small. Dense tensors and clusters are checked against their checksums, so damage is found before
 * the first token and named. */
#include "runtime/internal.h"

#include "common/bytes.h"
#include "common/hash.h"
#include "common/pack_format.h"
#include "common/progress.h"
#include "common/zstream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUBMIT_AT_ONCE 64
#define LOAD_PIECE     (1u << 20) /* of a read, at most: any disk is at its best */
#define LOAD_DEPTH     8

int load_begin(struct engine *g, struct err *e)
{
    uint64_t align = g->shape.l.block_bytes > 4096 ? g->shape.l.block_bytes : 4096;
    uint64_t least = budget_staging_bytes(&g->shape), size = g->arena.item[BUDGET_KV].size;
    uint64_t skip = (align - (uintptr_t)g->kv % align) % align, room = size > skip ? size - skip : 0;
    g->load_at = g->kv + skip;
    g->load_piece = (uint32_t)(room / LOAD_DEPTH < LOAD_PIECE ? room / LOAD_DEPTH / align * align : LOAD_PIECE);
    if (g->load_piece < least)
        g->load_piece = (uint32_t)least;
    g->load_depth = (uint32_t)(room / g->load_piece < LOAD_DEPTH ? room / g->load_piece : LOAD_DEPTH);
    if (room < least || (uint64_t)g->load_depth * g->load_piece < (uint64_t)g->c.choice.queue_depth * least) {
        g->load_at = g->staging; /* there is more of it */
        g->load_piece = (uint32_t)least;
        g->load_depth = (uint32_t)g->c.choice.queue_depth < SUBMIT_AT_ONCE ? (uint32_t)g->c.choice.queue_depth
                                                                           : SUBMIT_AT_ONCE;
    }
    return engine_open_io(g, g->load_at, (size_t)g->load_depth * g->load_piece, (int)g->load_depth, e);
}

struct wanted {                /* a role, and where it goes */
    enum model_role role;
    struct matrix *m;
    const float **v;           /* vectors are float32 */
    int optional;
};

void load_drain(struct engine *g)
{
    struct io_request *done[SUBMIT_AT_ONCE];
    struct err e;
    while (g->io->in_flight > 0 && io_reap(g->io, done, SUBMIT_AT_ONCE, 1, &e) > 0)
        continue;
}

static int take_matrix(struct engine *g, const struct pack_dense *d, const uint8_t *data, struct matrix *m,
                       struct err *e)
{
    *m = (struct matrix){ .data = data, .type = d->type, .n_rows = (int)d->dims[1], .n_cols = (int)d->dims[0],
                          .row_bytes = quant_row_bytes(d->type, d->dims[0]),
                          .form = kernels_act_form(d->type, g->c.act_q8) };
    if (!kernels->rows[m->form][d->type])
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %s, which this build cannot multiply",
                       g->c.pack->file.path, model_role_name(d->role), d->layer, quant_traits(d->type)->name);
    return 0;
}

/* ---- a run of bytes of the file, in order, with reads ahead ---- */

struct ahead {
    struct engine *g;
    uint64_t next, end;        /* not asked for yet; of the run */
    uint64_t at;               /* delivered up to here */
    uint32_t piece, depth;
    struct io_request req[SUBMIT_AT_ONCE]; /* a ring: first, count */
    int arrived[SUBMIT_AT_ONCE];
    uint32_t first, count;
};

static void ahead_init(struct ahead *a, struct engine *g, uint64_t offset, uint64_t bytes)
{
    *a = (struct ahead){ .g = g, .next = offset, .at = offset, .end = offset + bytes };
    a->piece = g->load_piece;
    a->depth = g->load_depth;
}

/* Whole blocks go to the backend; a piece of a block at the very end of the file is read here. */
static int ahead_ask(struct ahead *a, struct err *e)
{
    struct io_request *batch[SUBMIT_AT_ONCE];
    uint64_t block = a->g->shape.l.block_bytes, file_end = a->g->io->file_bytes;
    int n = 0;
    for (; a->count < a->depth && a->next < a->end; a->count++) {
        uint32_t i = (a->first + a->count) % a->depth;
        struct io_request *r = &a->req[i];
        uint64_t len = (a->end - a->next + block - 1) / block * block;
        r->offset = a->next;
        r->buf = a->g->load_at + (size_t)i * a->piece;
        r->tag = i;
        r->len = (uint32_t)(len < a->piece ? len : a->piece);
        a->next += r->len;
        a->arrived[i] = 0;
        if (r->offset + r->len > file_end) {
            a->arrived[i] = 1;
            int c = file_pread(&a->g->c.pack->file, r->buf, (size_t)(file_end - r->offset), r->offset, e);
            if (c < 0)
                return c;
            continue;
        }
        batch[n++] = r;
    }
    return io_submit(a->g->io, batch, n, e);
}

/* The next len bytes of the run. */
static int ahead_read(void *ctx, void *buf, size_t len, struct err *e)
{
    struct ahead *a = ctx;
    for (uint8_t *out = buf; len;) {
        struct io_request *done[SUBMIT_AT_ONCE];
        int n = ahead_ask(a, e);
        if (n < 0)
            return n;
        while (!a->arrived[a->first]) {
            n = io_reap(a->g->io, done, SUBMIT_AT_ONCE, 1, e);
            for (int i = 0; i < n; i++) {
                if (done[i]->result < 0)
                    return io_failed(a->g->io, done[i], e);
                a->arrived[done[i]->tag] = 1;
            }
            if (n < 0)
                return n;
        }
        const struct io_request *r = &a->req[a->first];
        uint64_t skip = a->at - r->offset, take = r->len - skip;
        take = take < len ? take : len;
        memcpy(out, r->buf + skip, (size_t)take);
        out += take;
        len -= (size_t)take;
        a->at += take;
        if (a->at == r->offset + r->len) {
            a->first = (a->first + 1) % a->depth;
            a->count--;
        }
    }
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
        return w->optional ? 0
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
    return 0;
}

static int load_layer(struct engine *g, int i, struct progress *bar, struct err *e)
{
    struct layer *l = &g->layers[i];
    const struct wanted w[] = {
        { MODEL_ATTN_NORM, NULL, &l->attn_norm, 0 },  { MODEL_ATTN_Q, &l->q, NULL, 0 },
        { MODEL_ATTN_K, &l->k, NULL, 0 },             { MODEL_ATTN_V, &l->v, NULL, 0 },
        { MODEL_ATTN_OUTPUT, &l->o, NULL, 0 },        { MODEL_ATTN_Q_BIAS, NULL, &l->q_bias, 1 },
        { MODEL_ATTN_K_BIAS, NULL, &l->k_bias, 1 },   { MODEL_ATTN_V_BIAS, NULL, &l->v_bias, 1 },
        { MODEL_FFN_NORM, NULL, &l->ffn_norm, 0 },    { MODEL_FFN_ROUTER, &l->router, NULL, g->h.n_experts == 0 },
    };
    int r = 0;
    for (size_t k = 0; k < sizeof w / sizeof w[0] && r == 0; k++)
        r = load_one(g, &w[k], i, bar, e);
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
        { MODEL_TOKEN_EMBD, &g->embd, NULL, 0 },
        { MODEL_OUTPUT_NORM, NULL, &g->output_norm, 0 },
        { MODEL_OUTPUT, &g->output, NULL, g->h.tied_output },
        { MODEL_ROPE_FREQS, NULL, &divisor, 1 },
    };
    int r = 0;
    for (size_t k = 0; k < sizeof w / sizeof w[0] && r == 0; k++)
        r = load_one(g, &w[k], -1, &bar, e);
    for (int i = 0; i < g->h.n_layers && r == 0; i++)
        r = load_layer(g, i, &bar, e);
    progress_done(&bar);
    if (r < 0)
        return r;
    if (!g->output.data)
        g->output = g->embd;
    nn_rope_freqs(g->rope_freqs, g->h.n_rot, g->h.rope_theta, g->h.rope_scale, divisor);
    return 0;
}

/* ---- predictors ---- */

static int read_predictor(struct engine *g, const struct pack_predictor *x, struct predict *out, struct err *e)
{
    struct pack_predictor_figures f;
    struct ahead a;
    uint8_t *to = arena_take(&g->arena, BUDGET_PREDICTOR, budget_dense_tensor(x->bytes));
    ahead_init(&a, g, x->offset, x->bytes);
    int r = ahead_read(&a, to, (size_t)x->bytes, e);
    if (r < 0)
        load_drain(g);
    if (r < 0 || (r = pack_predictor_use(g->c.pack, x, to, out, &f, e)) < 0)
        return r;
    out->threshold = pack_predictor_choose(&f, g->c.recall).threshold;
    return 0;
}

/* A streamed predictor is read once here, so that damage is found before the first token; only what it was measured to do
 * is kept. */
static int look_at_predictor(struct engine *g, const struct pack_predictor *x, struct predict *out, struct err *e)
{
    uint8_t head[PACK_PREDICTOR_HEAD_BYTES + PACK_PREDICTOR_POINTS * PACK_PREDICTOR_POINT_BYTES + 64], some[4096];
    struct pack_predictor_figures f;
    struct hash *h = hash_new();
    struct ahead a;
    int r, ok = 1, picked = 1;
    if (!h)
        return err_set(e, ERR_NOMEM, "out of memory for a checksum");
    ahead_init(&a, g, x->offset, x->bytes);
    r = ahead_read(&a, head, (size_t)x->fc1_offset, e);
    hash_update(h, head, r < 0 ? 0 : (size_t)x->fc1_offset);
    for (uint64_t at = x->fc1_offset; at < x->bytes && r == 0;) {
        uint64_t picks = x->fc1_offset + (uint64_t)x->rank * PREDICT_PICK_BYTES; /* read apart from what follows, if such */
        uint64_t end = at < x->bias_offset ? x->bias_offset : x->bytes;
        if (x->type1 == PREDICT_PICK && at < picks)
            end = picks;
        size_t n = end - at < sizeof some ? (size_t)(end - at) : sizeof some;
        if ((r = ahead_read(&a, some, n, e)) < 0)
            break;
        hash_update(h, some, n);
        for (size_t i = 0; at >= x->bias_offset && i < n; i += 4)
            ok = ok && isfinite(bytes_lef32(some + i));
        if (end == picks)
            picked = picked && predict_check_picks(x->type1, some, (int)(n / PREDICT_PICK_BYTES), g->h.d_model);
        at += n;
    }
    uint64_t sum = hash_final64(h);
    hash_free(h);
    if (r < 0) {
        load_drain(g);
        return r;
    }
    if (sum != x->checksum)
        return pack_predictor_damaged(g->c.pack, x, sum, e);
    if (!ok)
        return pack_predictor_infinite(g->c.pack, x, e);
    if (!picked)
        return pack_predictor_mispicks(g->c.pack, x, e);
    if ((r = pack_predictor_head(g->c.pack, x, head, out, &f, e)) == 0)
        out->threshold = pack_predictor_choose(&f, g->c.recall).threshold;
    return r;
}

static int load_predictor(struct engine *g, int layer, int block, struct err *e)
{
    size_t at = (size_t)layer * (size_t)g->n_blocks + (size_t)block;
    enum predict_input input = (enum predict_input)g->c.predictor[layer];
    const struct pack_predictor *x = pack_predictor_find(g->c.pack, input, layer, block);
    if (!x)
        return err_set(e, ERR_MISMATCH, "'%s' has no predictor '%s' of layer %d, block %d", g->c.pack->file.path,
                       predict_input_name(input), layer, block);
    struct predict *q = &g->predictors[at];
    if (!engine_streams(g, layer))
        return read_predictor(g, x, q, e);
    int r = look_at_predictor(g, x, q, e);
    if (r == 0)
        predict_pieces_of(q->row1, q->rank, q->row2, q->n_ff, g->c.exempt ? g->c.exempt[layer] : 0,
                          g->shape.l.cluster_neurons, g->shape.l.block_bytes, &g->pieces[at]);
    return r;
}

int load_predictors(struct engine *g, struct err *e)
{
    struct progress bar;
    size_t n = (size_t)g->h.n_layers * (size_t)g->n_blocks;
    int r = 0;
    if (g->c.mode != PLAN_PREDICTED)
        return 0;
    g->predictors = calloc(n, sizeof *g->predictors);
    g->pieces = calloc(n, sizeof *g->pieces);
    if (!g->predictors || !g->pieces)
        return err_set(e, ERR_NOMEM, "out of memory for the tables of predictors");
    progress_init(&bar, "loading predictors", "B", g->c.choice.predictors.bytes);
    for (int l = 0; l < g->h.n_layers && r == 0; l++)
        for (int b = 0; b < g->n_blocks && g->c.predictor[l] >= 0 && r == 0; b++)
            if ((r = load_predictor(g, l, b, e)) == 0)
                progress_add(&bar, g->c.choice.predictors.bytes / n);
    progress_done(&bar);
    return r;
}
