/* The file is laid out front to back: header block, table (its size is known from max_entries), then
 * sections in the order they come. Only the table is kept in memory. The same calls give the same
 * bytes. */
#include "packer/write.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/file_behind.h"
#include "common/base/version.h"
#include "common/base/zstream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ZSTD_LEVEL 9

struct writer {
    struct file_out out;
    struct file_behind *behind; /* all but table and header goes through it; out.pos is where the file ends so far */
    struct write_facts facts;
    struct write_entry *entries;
    uint32_t n, max;
    uint64_t toc_offset;
    struct hash *hash;      /* of the section being written */
    struct zstream *zstd;
};

static int append(void *ctx, const void *data, size_t len, struct err *e)
{
    struct writer *w = ctx;
    int r = file_behind_write(w->behind, data, len, w->out.pos, e);
    if (r == 0)
        w->out.pos += len;
    return r;
}

static int zeros(struct writer *w, uint64_t to_pos, struct err *e)
{
    static const char some[65536];
    int r = 0;
    while (w->out.pos < to_pos && r == 0)
        r = append(w, some, to_pos - w->out.pos < sizeof some ? (size_t)(to_pos - w->out.pos) : sizeof some, e);
    return r;
}

static int to_block(struct writer *w, struct err *e)
{
    uint64_t at;
    if (!ck_align_u64(w->out.pos, w->facts.shapes.l.block_bytes, &at))
        return err_set(e, ERR_LIMIT, "'%s' grows beyond 2^64 bytes", w->out.path);
    return zeros(w, at, e);
}

static int hash_piece(void *ctx, const void *data, size_t len, struct err *e)
{
    struct writer *w = ctx;
    (void)e;
    hash_update(w->hash, data, len);
    return 0;
}

/* As it was: entries, and the checksum of a section that has begun. */
static int go_on(struct writer *w, const struct write_state *from, struct err *e)
{
    w->n = from->n;
    memcpy(w->entries, from->entries, (from->n + from->open) * sizeof *w->entries);
    if (!from->open)
        return 0;
    const struct write_entry *t = &w->entries[w->n];
    const struct file f = { .fd = w->out.fd, .size = from->pos, .path = w->out.tmp };
    if (!(w->hash = hash_new()))
        return err_set(e, ERR_NOMEM, "writing '%s'", w->out.path);
    return file_each(&f, t->offset, t->bytes, hash_piece, w, e);
}

static int open_as(const char *path, const struct write_facts *f, uint32_t max_entries, int kept, const struct write_state *from,
                   struct writer **out, struct err *e)
{
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "writing '%s'", path);
    w->out.fd = -1;
    w->facts = *f;
    w->max = max_entries;
    w->entries = calloc(max_entries, sizeof *w->entries);
    int r = w->entries ? 0 : err_set(e, ERR_NOMEM, "writing '%s'", path);
    if (r == 0 && max_entries > PACK_MAX_ENTRIES)
        r = err_set(e, ERR_LIMIT, "'%s' would have %u sections, more than the limit of %u", path, max_entries, PACK_MAX_ENTRIES);
    if (r == 0)
        r = kept ? file_out_resume(&w->out, path, WRITE_SUFFIX, from ? from->pos : 0, e) : file_out_open(&w->out, path, e);
    if (r == 0)
        r = file_behind_new(&w->out, &w->behind, e);
    if (r == 0 && !ck_align_u64(PACK_HEADER_BYTES, f->shapes.l.block_bytes, &w->toc_offset))
        r = err_set(e, ERR_LIMIT, "'%s': blocks of %u bytes", path, f->shapes.l.block_bytes);
    if (r == 0)
        r = from ? go_on(w, from, e) : zeros(w, w->toc_offset + (uint64_t)max_entries * PACK_ENTRY_BYTES, e);
    if (r < 0) {
        write_abort(w);
        return r;
    }
    *out = w;
    return 0;
}

int write_open(const char *path, const struct write_facts *f, uint32_t max_entries, struct writer **out, struct err *e)
{
    return open_as(path, f, max_entries, 0, NULL, out, e);
}

int write_resume(const char *path, const struct write_facts *f, uint32_t max_entries, const struct write_state *from, struct writer **out,
                 struct err *e)
{
    return open_as(path, f, max_entries, 1, from, out, e);
}

int write_sync(struct writer *w, struct write_state *state, struct err *e)
{
    int r = file_behind_flush(w->behind, e);
    if (r == 0 && fsync(w->out.fd) < 0)
        r = err_sys(e, ERR_SYS, "syncing '%s'", w->out.tmp);
    *state = (struct write_state){ w->out.pos, w->n, w->hash != NULL, w->entries };
    return r;
}

void write_abort(struct writer *w)
{
    if (!w)
        return;
    zstream_free(w->zstd);
    hash_free(w->hash);
    file_behind_free(w->behind);
    file_out_abort(&w->out);
    free(w->entries);
    free(w);
}

static int new_entry(struct writer *w, const struct write_entry *entry, struct err *e)
{
    if (w->n == w->max)
        return err_set(e, ERR_LIMIT, "'%s': more sections than announced", w->out.path);
    int r = to_block(w, e);
    if (r == 0) {
        w->entries[w->n] = *entry;
        w->entries[w->n].offset = w->out.pos;
    }
    return r;
}

int write_compressor(zstream_sink *sink, void *ctx, struct zstream **out, struct err *e)
{
    return zstream_new(ZSTD_LEVEL, PACK_ZSTD_WINDOW_LOG, sink, ctx, out, e);
}

int write_stored(struct writer *w, const struct write_entry *entry, const void *data, size_t len, struct err *e)
{
    int r = new_entry(w, entry, e);
    if (r == 0)
        r = append(w, data, len, e);
    if (r == 0)
        w->entries[w->n++].stored_bytes = len;
    return r;
}

int write_begin(struct writer *w, const struct write_entry *entry, struct err *e)
{
    int r = new_entry(w, entry, e);
    if (r == 0 && !(w->hash = hash_new()))
        r = err_set(e, ERR_NOMEM, "writing '%s'", w->out.path);
    if (r == 0 && entry->codec == PACK_ZSTD)
        r = write_compressor(append, w, &w->zstd, e);
    return r;
}

int write_data(struct writer *w, const void *data, size_t len, struct err *e)
{
    w->entries[w->n].bytes += len;
    hash_update(w->hash, data, len);
    return w->zstd ? zstream_write(w->zstd, data, len, e) : append(w, data, len, e);
}

int write_end(struct writer *w, struct err *e)
{
    struct write_entry *t = &w->entries[w->n];
    int r = w->zstd ? zstream_finish(w->zstd, e) : 0;
    t->stored_bytes = w->out.pos - t->offset;
    t->checksum = hash_final64(w->hash);
    zstream_free(w->zstd);
    hash_free(w->hash);
    w->zstd = NULL;
    w->hash = NULL;
    w->n++;
    return r;
}

int write_section(struct writer *w, const struct write_entry *entry, const void *data, size_t len, struct err *e)
{
    int r = write_begin(w, entry, e);
    if (r == 0)
        r = write_data(w, data, len, e);
    return r < 0 ? r : write_end(w, e);
}

int write_reserve(struct writer *w, const struct write_entry *entry, uint64_t bytes, uint32_t *index, uint64_t *offset,
                  struct err *e)
{
    int r = new_entry(w, entry, e);
    if (r < 0)
        return r;
    struct write_entry *t = &w->entries[w->n];
    t->bytes = t->stored_bytes = bytes;
    *index = w->n++;
    *offset = t->offset;
    uint64_t end;
    if (!ck_add_u64(t->offset, bytes, &end))
        return err_set(e, ERR_LIMIT, "'%s' grows beyond 2^64 bytes", w->out.path);
    w->out.pos = end; /* filled by write_at */
    return 0;
}

int write_at(struct writer *w, uint64_t offset, const void *data, size_t len, struct err *e)
{
    return file_behind_write(w->behind, data, len, offset, e);
}

void write_set_checksum(struct writer *w, uint32_t index, uint64_t checksum)
{
    w->entries[index].checksum = checksum;
}

static void put_entry(uint8_t *b, const struct write_entry *t)
{
    const uint32_t head[8] = { t->kind, t->codec, t->role, t->type, t->layer, t->block, t->segment, t->n_dims };
    const uint64_t tail[8] = { t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                               t->offset, t->stored_bytes, t->bytes, t->checksum };
    for (int i = 0; i < 8; i++) {
        bytes_put32(b + 4 * i, head[i]);
        bytes_put64(b + 32 + 8 * i, tail[i]);
    }
}

static void put_hash(uint8_t *b, struct hash128 h)
{
    bytes_put64(b, h.lo);
    bytes_put64(b + 8, h.hi);
}

static void put_header(const struct writer *w, uint64_t toc_checksum, uint8_t b[PACK_HEADER_BYTES])
{
    const struct write_facts *f = &w->facts;
    const struct layout *l = &f->shapes.l;
    const uint32_t *type = l->type[layout_usual_kind(l)];
    memset(b, 0, PACK_HEADER_BYTES);
    memcpy(b, PACK_MAGIC, 8);
    bytes_put32(b + 8, PACK_REVISION);
    bytes_put32(b + 12, PACK_HEADER_BYTES);
    bytes_put64(b + 24, (f->h.mtp ? PACK_INCOMPAT_MTP : 0) | (l->ungated ? PACK_INCOMPAT_UNGATED : 0));
    bytes_put64(b + 32, w->out.pos);
    bytes_put64(b + 40, w->toc_offset);
    bytes_put32(b + 48, w->n);
    bytes_put32(b + 52, PACK_ENTRY_BYTES);
    bytes_put64(b + 56, toc_checksum);
    put_hash(b + 64, f->model_hash);
    put_hash(b + 80, f->order_hash);
    put_hash(b + 96, f->layout_hash);
    const uint32_t v[12] = { (uint32_t)l->form, (uint32_t)l->packed, l->block_bytes, l->cluster_neurons,
                             type[0], type[1], type[2], (uint32_t)f->h.act, (uint32_t)f->h.n_layers,
                             (uint32_t)model_ffn_blocks(&f->h), (uint32_t)f->h.n_ff, (uint32_t)f->h.d_model };
    for (int i = 0; i < 12; i++)
        bytes_put32(b + 112 + 4 * i, v[i]);
    bytes_put64(b + 160, f->vocab_text_bytes);
    bytes_put64(b + 168, f->n_merges);
    bytes_put64(b + 176, f->identity);
    bytes_put64(b + 248, hash_64(b, 248));
}

int write_commit(struct writer *w, uint64_t *file_bytes, struct err *e)
{
    size_t len = (size_t)w->n * PACK_ENTRY_BYTES;
    uint8_t *toc = malloc(len ? len : 1), header[PACK_HEADER_BYTES];
    int r = toc ? to_block(w, e) : err_set(e, ERR_NOMEM, "writing '%s'", w->out.path);
    if (r == 0) {
        for (uint32_t i = 0; i < w->n; i++)
            put_entry(toc + (size_t)i * PACK_ENTRY_BYTES, &w->entries[i]);
        put_header(w, hash_64(toc, len), header);
        if (file_bytes)
            *file_bytes = w->out.pos;
        if ((r = file_behind_flush(w->behind, e)) == 0)
            r = file_out_pwrite(&w->out, toc, len, w->toc_offset, e);
    }
    if (r == 0)
        r = file_out_pwrite(&w->out, header, sizeof header, 0, e);
    file_behind_free(w->behind);
    w->behind = NULL;
    if (r == 0)
        r = file_out_commit(&w->out, e);
    free(toc);
    write_abort(w);
    return r;
}
