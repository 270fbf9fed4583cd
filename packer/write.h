#ifndef PACKER_WRITE_H
#define PACKER_WRITE_H

/* Streaming writer of packed models (schemas/pack.md): sections one after the other, each on a block
 * boundary, then the table and the header. Memory is bounded whatever the model's size; nothing
 * appears under the final name until write_commit. */
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/zstream.h"
#include "common/model/model.h"
#include "common/pack/pack_format.h"
#include "common/plan/layout.h"

struct write_facts {            /* for the header */
    struct model_hparams h;
    struct layout_shapes shapes;
    struct hash128 model_hash, order_hash, layout_hash;
    uint64_t vocab_text_bytes, n_merges;
    uint64_t identity;          /* seeds the checksums of units (schemas/pack.md, section 6) */
};

struct write_entry {            /* one section; checksum, offset and sizes are filled in */
    enum pack_kind kind;
    enum pack_codec codec;
    uint32_t role, type, layer, block, segment, n_dims;
    uint64_t dims[4], offset, stored_bytes, bytes, checksum;
};

struct writer;

/* How far a file is that several processes write, one after the other: what write_resume goes on from. The entries are the writer's. */
struct write_state {
    uint64_t pos;               /* bytes of the file */
    uint32_t n, open;           /* sections that have ended; 1: another one, of codec PACK_RAW, has begun, and is entries[n] */
    const struct write_entry *entries;
};

/* max_entries: how many sections will follow at most; the table has its place before them. */
int write_open(const char *path, const struct write_facts *f, uint32_t max_entries, struct writer **out, struct err *e);
void write_abort(struct writer *w); /* accepts NULL */

/* The same, as PATH.packing, which stays when writing is given up: from `from` on, NULL: anew. Of a section that has begun what is there
 * is read again for its checksum; write_data goes on with it. */
#define WRITE_SUFFIX ".packing"
int write_resume(const char *path, const struct write_facts *f, uint32_t max_entries, const struct write_state *from,
                 struct writer **out, struct err *e);

/* All that was given is on disk when it returns: *state. Not within a section that is compressed. */
int write_sync(struct writer *w, struct write_state *state, struct err *e);

/* A section in pieces: begin (not of one that write_resume goes on with), any number of data, end. codec PACK_ZSTD compresses on the
 * way. */
int write_begin(struct writer *w, const struct write_entry *entry, struct err *e);
int write_data(struct writer *w, const void *data, size_t len, struct err *e);
int write_end(struct writer *w, struct err *e);

/* What sections of codec PACK_ZSTD are compressed with, and one that was compressed by it elsewhere: entry has bytes and checksum. */
int write_compressor(zstream_sink *sink, void *ctx, struct zstream **out, struct err *e);
int write_stored(struct writer *w, const struct write_entry *entry, const void *data, size_t len, struct err *e);

/* A whole section from memory. */
int write_section(struct writer *w, const struct write_entry *entry, const void *data, size_t len, struct err *e);

/* Room for a raw section of known size that is filled out of order; gives its offset. The caller puts the
 * checksum of the whole section with write_set_checksum. */
int write_reserve(struct writer *w, const struct write_entry *entry, uint64_t bytes, uint32_t *index, uint64_t *offset,
                  struct err *e);
int write_at(struct writer *w, uint64_t offset, const void *data, size_t len, struct err *e);
void write_set_checksum(struct writer *w, uint32_t index, uint64_t checksum);

/* Table, header, fsync, rename. Frees w whether or not it succeeds. *file_bytes may be NULL. */
int write_commit(struct writer *w, uint64_t *file_bytes, struct err *e);

#endif
