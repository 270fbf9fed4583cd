/* Tensors are taken in runs. Workers look at the first MiB of each; what pays to be compressed they read, hash and compress into memory.
 * Then the owner writes the run in order, and streams what stays as it is. A tensor that is larger than a run is streamed
 * whether or not it is compressed. */
#include "packer/dense.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/zstream.h"

#include <stdlib.h>
#include <string.h>

#define PIECE (1u << 20)
#define ZSTD_PAYS 0.92 /* compress a dense tensor when its first MiB shrinks at least to this */

struct item {
    const struct gguf_tensor *t;
    struct write_entry entry;
    uint64_t from;               /* bytes of it that an interrupted run has written */
    int layer, by_neuron, ahead; /* by_neuron: reordered as the neurons are; ahead: compressed into memory */
    size_t piece;                /* bytes that are read together */
    uint8_t *data;               /* [room], len of them used: compressed */
    size_t len, room;
    int result;
    struct err err;
};

struct dense {
    const struct dense_job *j;
    struct item *items;
    size_t n, first;             /* first: of the run */
    uint8_t *pieces;             /* [threads][PIECE] */
};

static int interrupted(struct err *e)
{
    return file_interrupted() ? err_set(e, ERR_INTR, "interrupted; nothing was written") : 0;
}

/* ---- which ---- */

static int add_item(struct dense *d, const struct gguf_tensor *t, enum model_role role, int layer, struct err *e)
{
    uint64_t shape[4];
    int n_dims = model_tensor_shape_at(&d->j->source->model->h, role, layer, shape); /* files may count dimensions of 1 */
    struct item *i = &d->items[d->n++];
    *i = (struct item){ .t = t, .layer = layer,
                        .by_neuron = role == MODEL_FFN_GATE_BIAS || role == MODEL_FFN_UP_BIAS || role == MODEL_FFN_THRESHOLD,
                        .entry = { .kind = PACK_DENSE,
                                   .role = role,
                                   .type = t->type,
                                   .layer = layer < 0 ? PACK_NONE : (uint32_t)layer,
                                   .block = PACK_NONE,
                                   .segment = PACK_NONE,
                                   .n_dims = (uint32_t)n_dims,
                                   .dims = { t->dims[0], t->dims[1], t->dims[2], t->dims[3] } } };
    i->piece = i->by_neuron ? (size_t)t->row_bytes : PIECE;
    if (i->piece > PIECE)
        return err_set(e, ERR_LIMIT, "tensor '%s': a row of %zu bytes, more than the limit of %u", t->name, i->piece, PIECE);
    return 0;
}

static int list_items(struct dense *d, struct err *e)
{
    const struct model *m = d->j->source->model;
    int r = 0;
    for (int role = 0; role < MODEL_ROLES && r == 0; role++)
        r = m->global[role] ? add_item(d, m->global[role], (enum model_role)role, -1, e) : 0;
    for (int l = 0; l < model_depth(&m->h); l++)
        for (int role = 0; role < MODEL_ROLES && r == 0; role++) {
            const struct gguf_tensor *t = m->layer[l][role];
            r = t && model_role_is_dense((enum model_role)role) ? add_item(d, t, (enum model_role)role, l, e) : 0;
        }
    return r;
}

/* ---- a tensor in pieces ---- */

/* A block's biases as its neurons lie in the pack. */
static int order_bias(const struct dense_job *j, uint8_t *piece, int layer, int block, struct err *e)
{
    const struct model_hparams *h = &j->source->model->h;
    size_t n = (size_t)model_n_ff(h, layer);
    const uint32_t *order = j->orders + ((size_t)layer * (size_t)model_ffn_blocks(h) + (size_t)block) * (size_t)h->n_ff;
    float *to = malloc(n * sizeof *to), *from = (float *)(void *)piece;
    if (!to)
        return err_set(e, ERR_NOMEM, "biases of %zu neurons", n);
    for (size_t i = 0; i < n; i++)
        to[i] = from[order[i]];
    memcpy(from, to, n * sizeof *to);
    free(to);
    return 0;
}

/* Give a tensor to fn, piece by piece, hashed as the source's. */
static int each_piece(const struct dense *d, const struct item *i, uint8_t *piece,
                      int (*fn)(void *ctx, const void *data, size_t len, struct err *e), void *ctx, struct err *e)
{
    for (uint64_t at = i->from; at < i->t->bytes;) {
        size_t n = i->t->bytes - at < i->piece ? (size_t)(i->t->bytes - at) : i->piece;
        int r;
        if ((r = interrupted(e)) < 0 || (r = source_read(d->j->source, i->t, piece, n, e)) < 0 ||
            (i->by_neuron && (r = order_bias(d->j, piece, i->layer, (int)(at / i->piece), e)) < 0) || (r = fn(ctx, piece, n, e)) < 0)
            return r;
        at += n;
    }
    return 0;
}

/* ---- workers ---- */

static int count_bytes(void *ctx, const void *data, size_t len, struct err *e)
{
    (void)data;
    (void)e;
    *(uint64_t *)ctx += len;
    return 0;
}

/* Does the first piece shrink? */
static int choose_codec(const struct dense *d, struct item *i, uint8_t *piece)
{
    uint64_t packed = 0;
    struct zstream *z;
    if (i->from || i->entry.role == MODEL_TOKEN_EMBD || i->entry.role == MODEL_LAYER_EMBD)
        return 0; /* some of it was written as it is; rows of it may be read one by one */
    size_t len = i->t->bytes < i->piece ? (size_t)i->t->bytes : i->piece;
    int r = gguf_read_ahead(d->j->source->gguf, i->t, piece, len, &i->err); /* a codec, no bytes, depends on it */
    if (r == 0 && i->by_neuron)
        r = order_bias(d->j, piece, i->layer, 0, &i->err);
    if (r < 0 || (r = zstream_new(3, PACK_ZSTD_WINDOW_LOG, count_bytes, &packed, &z, &i->err)) < 0)
        return r;
    r = zstream_write(z, piece, len, &i->err);
    if (r == 0)
        r = zstream_finish(z, &i->err);
    zstream_free(z);
    i->entry.codec = len >= 4096 && (double)packed < ZSTD_PAYS * (double)len ? PACK_ZSTD : PACK_RAW;
    return r;
}

static int keep(void *ctx, const void *data, size_t len, struct err *e)
{
    struct item *i = ctx;
    if (len > i->room - i->len) {
        size_t room = i->room + len > 2 * i->room ? i->room + len : 2 * i->room;
        uint8_t *more = realloc(i->data, room);
        if (!more)
            return err_set(e, ERR_NOMEM, "tensor '%s'", i->t->name);
        i->data = more;
        i->room = room;
    }
    memcpy(i->data + i->len, data, len);
    i->len += len;
    return 0;
}

struct packing {
    struct item *i;
    struct zstream *z;
    struct hash *hash;
};

static int pack_piece(void *ctx, const void *data, size_t len, struct err *e)
{
    struct packing *p = ctx;
    hash_update(p->hash, data, len);
    p->i->entry.bytes += len;
    return zstream_write(p->z, data, len, e);
}

static int compress_item(const struct dense *d, struct item *i, uint8_t *piece)
{
    struct hash_room room;
    struct packing p = { .i = i, .hash = hash_new_in(&room) };
    int r = write_compressor(keep, i, &p.z, &i->err);
    if (r < 0)
        return r;
    r = each_piece(d, i, piece, pack_piece, &p, &i->err);
    if (r == 0)
        r = zstream_finish(p.z, &i->err);
    zstream_free(p.z);
    i->entry.checksum = hash_final64(p.hash);
    i->ahead = 1;
    return r;
}

static void some_items(void *ctx, int begin, int end, int worker)
{
    struct dense *d = ctx;
    uint8_t *piece = d->pieces + (size_t)worker * PIECE;
    for (int k = begin; k < end; k++) {
        struct item *i = &d->items[d->first + (size_t)k];
        i->result = choose_codec(d, i, piece);
        if (i->result == 0 && i->entry.codec == PACK_ZSTD && i->t->bytes <= DENSE_AHEAD_BYTES)
            i->result = compress_item(d, i, piece);
    }
}

/* ---- the owner ---- */

struct putting {
    const struct dense *d;
    const struct item *i;
    uint64_t done;
};

static int put_piece(void *ctx, const void *data, size_t len, struct err *e)
{
    struct putting *p = ctx;
    const struct dense_job *j = p->d->j;
    progress_add(j->progress, len);
    int r = write_data(j->w, data, len, e);
    p->done += len;
    return r == 0 && j->written && p->i->entry.codec == PACK_RAW && p->done < p->i->t->bytes ? j->written(j->ctx, p->i->t, p->done, e) : r;
}

static int put_item(struct dense *d, struct item *i, struct err *e)
{
    int r = i->result;
    if (r < 0) {
        *e = i->err;
        return r;
    }
    if (i->ahead) {
        r = write_stored(d->j->w, &i->entry, i->data, i->len, e);
        progress_add(d->j->progress, i->t->bytes);
    } else {
        struct putting p = { d, i, i->from };
        r = i->from ? 0 : write_begin(d->j->w, &i->entry, e);
        if (r == 0 && (r = each_piece(d, i, d->pieces, put_piece, &p, e)) == 0)
            r = write_end(d->j->w, e);
    }
    if (r == 0 && d->j->written)
        r = d->j->written(d->j->ctx, i->t, i->t->bytes, e);
    log_debug("%s: %s, %llu bytes%s", i->t->name, quant_traits(i->t->type)->name, (unsigned long long)i->t->bytes,
              i->entry.codec == PACK_ZSTD ? ", compressed" : "");
    return r;
}

int dense_put_all(const struct dense_job *j, uint64_t *bytes, struct err *e)
{
    struct dense d = { .j = j };
    d.items = calloc(j->source->gguf->n_tensors, sizeof *d.items);
    d.pieces = malloc((size_t)pool_threads(j->pool) * PIECE);
    int r = d.items && d.pieces ? list_items(&d, e) : err_set(e, ERR_NOMEM, "dense tensors");
    for (size_t i = 0; i < d.n && r == 0; i++) {
        *bytes += d.items[i].t->bytes;
        d.items[i].from = j->source->at ? j->source->at[d.items[i].t - j->source->gguf->tensors] : 0;
        if (d.items[i].from == d.items[i].t->bytes)
            d.first = i + 1;
    }
    for (size_t end; d.first < d.n && r == 0; d.first = end) {
        uint64_t run = 0;
        for (end = d.first; end < d.n && (end == d.first || run + d.items[end].t->bytes <= DENSE_AHEAD_BYTES); end++)
            run += d.items[end].t->bytes;
        pool_for(j->pool, (int)(end - d.first), 1, some_items, &d);
        for (size_t i = d.first; i < end && r == 0; i++) {
            r = put_item(&d, &d.items[i], e);
            free(d.items[i].data);
            d.items[i].data = NULL;
        }
    }
    for (size_t i = 0; d.items && i < d.n; i++)
        free(d.items[i].data);
    free(d.items);
    free(d.pieces);
    return r;
}
