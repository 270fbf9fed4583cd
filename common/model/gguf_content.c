/* Contents of tensors. Whoever hashes a model, or knows its hashes from a trace, reads it again afterwards: layers of a pass, experts,
 * rows. Each time the file may have become another one, so what is read is compared with what is known. A hash of a whole tensor
 * says nothing of a row: while a tensor is read for the first time, from its first to its last byte, each piece of it leaves a
 * checksum of 64 bits in memory (8 bytes for 16 KiB, and no more than MOST_PIECES of them for a model), and all later reads are
 * compared with these. A read that ends within a piece reads the whole of it, and gives what was compared. The first reading also
 * looks for weights that are no finite numbers. */
#include "common/model/gguf_impl.h"

#include "common/base/ckmath.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_READ_BYTES (1u << 20)
#define LEAST_PIECE      (16u << 10)
#define MOST_PIECES      (1u << 20)
#define MOST_BLOCK       256 /* bytes of the largest quant block, or more */

/* A tensor while it is read for the first time. */
struct first_reading {
    struct hash_room rooms[2];
    struct hash *whole, *piece;  /* piece: of the one that the next byte belongs to */
    uint64_t at, element;        /* bytes seen; the element that `block` begins with */
    uint64_t *pieces;            /* becomes the tensor's */
    uint8_t block[MOST_BLOCK];   /* the first n_block bytes of a quant block */
    size_t n_block;
};

struct known_tensor {
    struct hash128 want;           /* zeros: no hash is known */
    uint64_t *pieces;              /* checksums; NULL: it has not been read yet. Written once, under the lock */
    struct first_reading *reading; /* gguf_read_next's */
};

struct gguf_known {
    pthread_mutex_t *lock;         /* of its own, so that it stays where it is */
    uint64_t piece_bytes;
    char *whose;                   /* whose hashes `want` are; NULL: the file's own, of before */
    uint64_t n;
    struct known_tensor of[];
};

/* ---- what is known ---- */

static struct gguf_known *known(const struct gguf *g)
{
    return ((const struct gguf_priv *)g->priv)->known;
}

static struct known_tensor *known_of(const struct gguf *g, const struct gguf_tensor *t)
{
    return known(g) ? &known(g)->of[t - g->tensors] : NULL;
}

static const uint64_t *pieces_of(const struct known_tensor *k)
{
    return __atomic_load_n(&k->pieces, __ATOMIC_ACQUIRE);
}

static uint64_t piece_bytes_of(const struct gguf *g)
{
    uint64_t all = 0, piece = LEAST_PIECE;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        all += g->tensors[i].bytes;
    while (all / piece > MOST_PIECES)
        piece *= 2;
    return piece;
}

static uint64_t n_pieces(const struct gguf_tensor *t, uint64_t piece)
{
    return (t->bytes + piece - 1) / piece;
}

uint64_t gguf_known_bytes(const struct gguf *g)
{
    uint64_t n = sizeof(struct gguf_known) + g->n_tensors * sizeof(struct known_tensor), piece = piece_bytes_of(g);
    for (uint64_t i = 0; i < g->n_tensors; i++)
        n += n_pieces(&g->tensors[i], piece) * sizeof(uint64_t);
    return n + piece;
}

void gguf_forget(struct gguf *g)
{
    struct gguf_priv *p = g->priv;
    struct gguf_known *k = p->known;
    p->known = NULL;
    if (!k)
        return;
    for (uint64_t i = 0; i < k->n; i++) {
        free(k->of[i].pieces);
        if (k->of[i].reading)
            free(k->of[i].reading->pieces);
        free(k->of[i].reading);
    }
    pthread_mutex_destroy(k->lock);
    free(k->lock);
    free(k->whose);
    free(k);
}

int gguf_know_more(struct gguf *g, uint64_t n)
{
    struct gguf_priv *p = g->priv;
    if (!p->known)
        return 0;
    struct gguf_known *k = realloc(p->known, sizeof *k + n * sizeof k->of[0]); /* no thread reads now */
    if (!k)
        return -1;
    memset(k->of + k->n, 0, (n - k->n) * sizeof k->of[0]);
    k->n = n;
    p->known = k;
    return 0;
}

static int have_known(const struct gguf *g, struct err *e)
{
    struct gguf_priv *p = g->priv;
    struct gguf_known *k = p->known;
    if (k)
        return 0;
    k = calloc(1, sizeof *k + g->n_tensors * sizeof k->of[0]);
    if (!k || !(k->lock = malloc(sizeof *k->lock))) {
        free(k);
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", p->file, g->n_tensors);
    }
    pthread_mutex_init(k->lock, NULL);
    k->n = g->n_tensors;
    k->piece_bytes = piece_bytes_of(g);
    p->known = k;
    return 0;
}

int gguf_expect(struct gguf *g, const struct hash128 *each, const char *whose, struct err *e)
{
    int r = have_known(g, e);
    if (r < 0)
        return r;
    struct gguf_known *k = known(g);
    char *name = whose ? strdup(whose) : NULL;
    if (whose && !name)
        return err_set(e, ERR_NOMEM, "'%s'", whose);
    free(k->whose);
    k->whose = name;
    for (uint64_t i = 0; each && i < g->n_tensors; i++)
        k->of[i].want = each[i];
    return 0;
}

const uint64_t *gguf_pieces(const struct gguf *g, const struct gguf_tensor *t, uint64_t *n, uint64_t *piece_bytes)
{
    *piece_bytes = piece_bytes_of(g);
    *n = n_pieces(t, *piece_bytes);
    return known(g) ? pieces_of(known_of(g, t)) : NULL;
}

int gguf_take_pieces(struct gguf *g, const struct gguf_tensor *t, const uint64_t *pieces, struct err *e)
{
    struct known_tensor *k = known_of(g, t);
    uint64_t n = n_pieces(t, known(g)->piece_bytes), *own = calloc(n + 1, sizeof *own);
    if (!own)
        return err_set(e, ERR_NOMEM, "checksums of tensor '%s'", t->name);
    memcpy(own, pieces, n * sizeof *own);
    free(k->pieces);
    k->pieces = own;
    return 0;
}

/* ---- bytes of the file ---- */

static int read_bytes(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset, void *buf, size_t len, struct err *e)
{
    assert(ck_range(offset, len, t->bytes));
    if (t->memory) {
        memcpy(buf, t->memory + offset, len);
        return 0;
    }
    if (t->shard >= g->n_shards)
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s': this header has no file behind it", t->name);
    int r = 0;
    for (uint8_t *to = buf; r == 0 && len > 0;) {
        uint64_t piece = t->piece_bytes ? offset / t->piece_bytes : 0, at = offset - piece * t->piece_bytes;
        size_t n = t->piece_bytes && len > t->piece_bytes - at ? (size_t)(t->piece_bytes - at) : len;
        r = file_pread(&g->shards[t->shard], to, n, t->offset + piece * t->stride_bytes + at, e);
        to += n, offset += n, len -= n;
    }
    return r < 0 ? err_wrap(e, "reading tensor '%s'", t->name) : 0;
}

static const char *file_of(const struct gguf *g, const struct gguf_tensor *t)
{
    return t->shard < g->n_shards && g->shards[t->shard].path ? g->shards[t->shard].path : gguf_name(g);
}

/* ---- the first time ---- */

/* Whole blocks, the first of which begins with element `element`. */
static int look_at(const struct gguf *g, const struct gguf_tensor *t, uint64_t element, const uint8_t *blocks, size_t n, struct err *e)
{
    const struct quant_traits *q = quant_traits(t->type);
    size_t bad = quant_first_not_finite(t->type, blocks, n);
    uint64_t first = element + (uint64_t)bad * (uint64_t)q->block_elems;
    if (bad == n)
        return 0;
    if (q->block_elems > 1)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': the %s block of elements %" PRIu64 " to %" PRIu64 " has a scale that is not a "
                       "finite number: the file is damaged or was badly converted", file_of(g, t), t->name, q->name, first,
                       first + (uint64_t)q->block_elems - 1);
    float v;
    q->dequant(&v, blocks + bad * (size_t)q->block_bytes, 1);
    return err_set(e, ERR_FORMAT, "'%s': tensor '%s': element %" PRIu64 " is %g, not a finite number: the file is damaged or was badly "
                   "converted", file_of(g, t), t->name, first, (double)v);
}

static int look(const struct gguf *g, const struct gguf_tensor *t, struct first_reading *f, const uint8_t *data, size_t len, struct err *e)
{
    const struct quant_traits *q = quant_traits(t->type);
    size_t block = (size_t)q->block_bytes, n;
    int r = 0;
    if (f->n_block) {
        n = block - f->n_block < len ? block - f->n_block : len;
        memcpy(f->block + f->n_block, data, n);
        f->n_block += n, data += n, len -= n;
        if (f->n_block < block)
            return 0;
        r = look_at(g, t, f->element, f->block, 1, e);
        f->element += (uint64_t)q->block_elems;
        f->n_block = 0;
    }
    n = len / block;
    r = r < 0 ? r : look_at(g, t, f->element, data, n, e);
    f->element += n * (uint64_t)q->block_elems;
    f->n_block = len - n * block;
    memcpy(f->block, data + n * block, f->n_block);
    return r;
}

static int first_new(const struct gguf *g, const struct gguf_tensor *t, struct first_reading **out, struct err *e)
{
    struct first_reading *f = aligned_alloc(_Alignof(struct first_reading), sizeof *f);
    if (f) {
        memset(f, 0, sizeof *f);
        f->whole = hash_new_in(&f->rooms[0]);
        f->piece = hash_new_in(&f->rooms[1]);
        hash_seed(f->piece, 0);
        f->pieces = calloc(n_pieces(t, known(g)->piece_bytes) + 1, sizeof *f->pieces);
    }
    if (f && f->pieces) {
        *out = f;
        return 0;
    }
    free(f);
    return err_set(e, ERR_NOMEM, "checksums of tensor '%s'", t->name);
}

static void first_free(struct first_reading *f)
{
    free(f->pieces);
    free(f);
}

/* The next bytes: hashed, and looked at, while they are in the processor's cache. */
static int first_take(const struct gguf *g, const struct gguf_tensor *t, struct first_reading *f, const uint8_t *data, size_t len,
                      struct err *e)
{
    const uint64_t piece = known(g)->piece_bytes;
    for (size_t n; len > 0; data += n, len -= n) {
        uint64_t in = f->at % piece, left = (t->bytes - f->at < piece - in ? t->bytes - f->at : piece - in);
        n = len < left ? len : (size_t)left;
        hash_update(f->whole, data, n);
        if (n == piece) {
            f->pieces[f->at / piece] = hash_64(data, n);
        } else {
            hash_update(f->piece, data, n);
            if (n == left) {
                f->pieces[f->at / piece] = hash_final64(f->piece);
                hash_seed(f->piece, 0);
            }
        }
        f->at += n;
        int r = look(g, t, f, data, n, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int differs(const struct gguf *g, const struct gguf_tensor *t, struct hash128 is, struct err *e)
{
    char a[HASH_TEXT], b[HASH_TEXT];
    hash_text(is, a);
    hash_text(known_of(g, t)->want, b);
    if (known(g)->whose)
        return err_set(e, ERR_MISMATCH, "tensor '%s' of '%s' has hash %s; the model traced in '%s' has %s", t->name, file_of(g, t), a,
                       known(g)->whose, b);
    return err_set(e, ERR_IO, "'%s': tensor '%s', at offset %" PRIu64 " of the file, has hash %s; when it was hashed it had %s: something "
                   "writes to the file, or the disk is damaged", file_of(g, t), t->name, t->offset, a, b);
}

/* The tensor has been read to its end: from here on its pieces are known. */
static int first_done(const struct gguf *g, const struct gguf_tensor *t, struct first_reading *f, struct hash128 *hash, struct err *e)
{
    struct known_tensor *k = known_of(g, t);
    const struct hash128 is = hash_final128(f->whole), none = { 0, 0 };
    if (hash)
        *hash = is;
    if (!hash_equal(k->want, none) && !hash_equal(k->want, is))
        return differs(g, t, is, e);
    uint64_t *pieces = f->pieces;
    f->pieces = NULL;
    if (k->pieces) /* what a second hashing finds has been compared with them */
        free(pieces);
    else
        __atomic_store_n(&k->pieces, pieces, __ATOMIC_RELEASE);
    return 0;
}

/* ---- later ---- */

static int changed(const struct gguf *g, const struct gguf_tensor *t, uint64_t from, uint64_t to, struct err *e)
{
    uint64_t piece = t->piece_bytes ? from / t->piece_bytes : 0;
    return err_set(e, ERR_IO, "'%s': tensor '%s', at offset %" PRIu64 " of the file: bytes %" PRIu64 " to %" PRIu64 " of the tensor are "
                   "not what they were when it was first read: something writes to the file, or the disk is damaged; run the command again "
                   "when the file is whole",
                   file_of(g, t), t->name, t->offset + piece * t->stride_bytes + from - piece * t->piece_bytes, from, to - 1);
}

/* Pieces that the buffer holds whole are compared there; of one at either end the whole is read for it. */
static int read_compared(const struct gguf *g, const struct gguf_tensor *t, const uint64_t *pieces, uint64_t offset, uint8_t *buf,
                         size_t len, struct err *e)
{
    const uint64_t piece = known(g)->piece_bytes, last = offset + len;
    uint8_t *edge = NULL;
    int r = 0;
    for (uint64_t at = offset; r == 0 && at < last;) {
        uint64_t i = at / piece, from = i * piece, to = t->bytes - from < piece ? t->bytes : from + piece, end = to;
        if (from == at && to <= last) { /* and those that follow it, in one read */
            while (end < last && (t->bytes - end < piece ? t->bytes : end + piece) <= last)
                end = t->bytes - end < piece ? t->bytes : end + piece;
            r = read_bytes(g, t, at, buf + (at - offset), (size_t)(end - at), e);
            for (; r == 0 && at < end; at = to, i++) {
                to = t->bytes - at < piece ? t->bytes : at + piece;
                if (hash_64(buf + (at - offset), (size_t)(to - at)) != pieces[i])
                    r = changed(g, t, at, to, e);
            }
            continue;
        }
        if (!edge && !(edge = malloc((size_t)piece)))
            r = err_set(e, ERR_NOMEM, "%" PRIu64 " bytes of tensor '%s'", piece, t->name);
        if (r == 0 && (r = read_bytes(g, t, from, edge, (size_t)(to - from), e)) == 0 && hash_64(edge, (size_t)(to - from)) != pieces[i])
            r = changed(g, t, from, to, e);
        end = to < last ? to : last;
        if (r == 0)
            memcpy(buf + (at - offset), edge + (at - from), (size_t)(end - at));
        at = end;
    }
    free(edge);
    return r;
}

/* Reads the tensor whole, for the first time or for its hash; into all, [t->bytes], or, where this is NULL, in pieces. *done, on_bytes:
 * gguf_hash's. */
static int read_whole(const struct gguf *g, const struct gguf_tensor *t, uint8_t *all, struct hash128 *hash, uint64_t *done,
                      void (*on_bytes)(void *ctx, uint64_t done), void *ctx, struct err *e)
{
    struct first_reading *f;
    const uint64_t *pieces = pieces_of(known_of(g, t));
    uint8_t *buf = all ? NULL : malloc(FIRST_READ_BYTES);
    int r = all || buf ? first_new(g, t, &f, e) : err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
    if (r < 0) {
        free(buf);
        return r;
    }
    for (uint64_t at = 0; r == 0 && at < t->bytes;) {
        size_t n = t->bytes - at < FIRST_READ_BYTES ? (size_t)(t->bytes - at) : FIRST_READ_BYTES;
        uint8_t *to = all ? all + at : buf;
        r = pieces ? read_compared(g, t, pieces, at, to, n, e) : read_bytes(g, t, at, to, n, e);
        r = r < 0 ? r : first_take(g, t, f, to, n, e);
        at += n;
        *done += n;
        if (on_bytes)
            on_bytes(ctx, *done);
        if (r == 0 && file_interrupted())
            r = err_set(e, ERR_INTR, "interrupted while hashing tensor '%s'", t->name);
    }
    if (r == 0)
        r = first_done(g, t, f, hash, e);
    first_free(f);
    free(buf);
    return r;
}

int gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset, void *buf, size_t len, struct err *e)
{
    struct known_tensor *k = known_of(g, t);
    uint64_t done = 0;
    if (!k || t->memory)
        return read_bytes(g, t, offset, buf, len, e);
    assert(ck_range(offset, len, t->bytes));
    if (!pieces_of(k)) {
        int whole = offset == 0 && len == t->bytes, r = 0;
        pthread_mutex_lock(known(g)->lock);
        int first = !k->pieces;
        if (first)
            r = read_whole(g, t, whole ? buf : NULL, NULL, &done, NULL, NULL, e);
        pthread_mutex_unlock(known(g)->lock);
        if (r < 0 || (first && whole))
            return r;
    }
    return read_compared(g, t, pieces_of(k), offset, buf, len, e);
}

int gguf_read_next(const struct gguf *g, const struct gguf_tensor *t, void *buf, size_t len, struct err *e)
{
    struct known_tensor *k = known_of(g, t);
    int r;
    assert(k && !k->pieces);
    if (!k->reading && (r = first_new(g, t, &k->reading, e)) < 0)
        return r;
    if ((r = read_bytes(g, t, k->reading->at, buf, len, e)) < 0 || (r = first_take(g, t, k->reading, buf, len, e)) < 0 ||
        k->reading->at < t->bytes)
        return r;
    r = first_done(g, t, k->reading, NULL, e);
    first_free(k->reading);
    k->reading = NULL;
    return r;
}

int gguf_read_ahead(const struct gguf *g, const struct gguf_tensor *t, void *buf, size_t len, struct err *e)
{
    return read_bytes(g, t, 0, buf, len, e);
}

/* Tensors are read in file order, for the disk, and combined in the order of their names. */
int gguf_hash(const struct gguf *g, struct hash128 *model, struct hash128 *tensor_hashes,
              void (*on_bytes)(void *ctx, uint64_t done), void *ctx, struct err *e)
{
    const struct gguf_priv *p = g->priv;
    struct hash128 *each = calloc(g->n_tensors + 1, sizeof *each);
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    uint64_t done = 0;
    int r = each ? have_known(g, e) : err_set(e, ERR_NOMEM, "hashing %" PRIu64 " tensors", g->n_tensors);
    for (uint64_t i = 0; r == 0 && i < g->n_tensors; i++)
        r = read_whole(g, &g->tensors[i], NULL, &each[i], &done, on_bytes, ctx, e);
    for (uint64_t i = 0; r == 0 && i < g->n_tensors; i++) {
        const struct gguf_tensor *t = p->tensors_by_name[i];
        struct hash128 v = each[t - g->tensors];
        hash_update_str(h, t->name);
        hash_update_u32(h, t->type);
        hash_update_u32(h, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++)
            hash_update_u64(h, t->dims[d]);
        hash_update_u64(h, v.lo);
        hash_update_u64(h, v.hi);
    }
    if (r == 0) {
        if (model)
            *model = hash_final128(h);
        if (tensor_hashes && g->n_tensors)
            memcpy(tensor_hashes, each, g->n_tensors * sizeof *each);
    }
    free(each);
    return r;
}
