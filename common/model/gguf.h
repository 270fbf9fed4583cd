#ifndef COMMON_MODEL_GGUF_H
#define COMMON_MODEL_GGUF_H

/* GGUF reader, versions 2 and 3 little-endian, single files and shards (-00001-of-0000N; give the
 * first). Bounds are checked before arithmetic; afterwards the in-memory tables are trusted. A
 * big-endian file, version 1, arrays of arrays, duplicate keys or tensors, overlapping or out-of-file
 * tensors, names that are not printable UTF-8, sizes beyond the limits below are refused with a message
 * naming key or tensor. Type 42, Q2_0, has blocks of 64 weights, or of 128 (QUANT_Q2_0_128) where those of 64 have no room in the file;
 * 142, PrismML's PQ2_0, is QUANT_Q2_0_128, 143 QUANT_PTQ1_0.
 * Specification: ggml docs/gguf.md. */
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/kernels/quant.h"

#include <stddef.h>
#include <stdint.h>

#define GGUF_MAX_TENSORS (1u << 20)
#define GGUF_MAX_KEYS    (1u << 16)
#define GGUF_MAX_SHARDS  512
#define GGUF_MAX_STRING  (64u << 20)
#define GGUF_MAX_ARRAY   (1u << 26)
#define GGUF_MAX_HEADER  (1ull << 30) /* bytes of keys and tensor table */

enum gguf_value {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64
};

struct gguf_key {
    const char *name;        /* NUL-terminated, owned by the gguf */
    enum gguf_value type;    /* GGUF_ARRAY: elem_type and n apply */
    enum gguf_value elem_type;
    uint64_t n;              /* array length; byte length of a string */
    const void *data;        /* raw little-endian payload, unaligned; strings in arrays are u64 length + bytes */
    size_t data_len;
};

struct gguf_tensor {
    const char *name;
    uint32_t type;           /* a known quant_type */
    int n_dims;
    uint64_t dims[4];        /* dims[0] is the row length; unused dims are 1 */
    uint64_t row_bytes, n_rows, bytes;
    int shard;               /* which file */
    uint64_t offset;         /* absolute, in that file */
    uint64_t piece_bytes, stride_bytes; /* a part of a fused tensor of experts: pieces of it; else 0 */
    const uint8_t *memory;   /* of a tensor that was added (gguf_add_vectors); NULL: it is in the file */
};

struct gguf {
    int n_shards;
    struct file *shards;
    int is_pwri;             /* magic "PWRI" (PowerInfer) instead of "GGUF" */
    uint32_t version;
    uint64_t alignment;
    uint64_t n_keys, n_tensors;
    struct gguf_key *keys;         /* of the first shard, file order */
    struct gguf_tensor *tensors;   /* of all shards, file order */
    const uint8_t *kv_data;        /* the key-value section of the first shard, byte for byte */
    size_t kv_len;
    void *priv;
};

int gguf_open(const char *path, struct gguf **out, struct err *e);

/* The same, and of a model that a pack has consumed, or begun to (common/model/gguf_consumed.h), which gguf_open refuses with
 * ERR_MISMATCH and the name of the pack. Its tensors may be holes. pack, where not NULL: [GGUF_CONSUMED_PATH], "" where it is whole. */
int gguf_open_consumed(const char *path, char *pack, struct gguf **out, struct err *e);

/* Parse a header in memory (fuzzing; the packed model's metadata, which is a GGUF header with no
 * tensors). file_size bounds tensor offsets; name is used in messages. data must outlive the result. */
int gguf_parse(const void *data, size_t len, uint64_t file_size, const char *name,
               struct gguf **out, struct err *e);
void gguf_close(struct gguf *g);
const char *gguf_name(const struct gguf *g); /* the path or name it was opened by, for messages */

/* NULL when absent. */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed lookups. 1 found, 0 absent (out untouched), ERR_FORMAT wrong type or out of range; the message
 * names file and key. Any integer type converts when the value fits; floats are finite. Strings are
 * malloc'd copies; an embedded NUL is refused. */
int gguf_get_u32(const struct gguf *g, const char *name, uint32_t *out, struct err *e);
int gguf_get_f32(const struct gguf *g, const char *name, float *out, struct err *e);
int gguf_get_bool(const struct gguf *g, const char *name, int *out, struct err *e);
int gguf_get_str(const struct gguf *g, const char *name, char **out, struct err *e);

/* What the key says from here on, as if the file had it: what a user states about files that do not say it. Once for a gguf; keys found
 * before are no longer valid. */
const char *gguf_stated(const struct gguf *g, const char *name); /* NULL: nothing was stated of that key */
int gguf_state_str(struct gguf *g, const char *name, const char *value, struct err *e);

/* Iterate an array of strings: pos starts at 0; gives a borrowed (not NUL-terminated) string and 1, or 0
 * at the end. */
int gguf_array_str(const struct gguf_key *k, size_t *pos, const char **s, uint64_t *len);

/* Put parts in place of fused tensors. parts says of each tensor what it is made of: how many parts, 0 where it stays as it is, or
 * ERR_*. A part has rows [first, first + n) of the second dimension, in every expert; of a vector, elements. Parts may have rows in
 * common. What has been split before stays as it is. */
#define GGUF_MAX_PARTS 3
struct gguf_part {
    char name[64];
    uint64_t first, n;
};
typedef int gguf_parts_fn(void *ctx, const struct gguf_tensor *t, struct gguf_part out[GGUF_MAX_PARTS], struct err *e);
int gguf_split(struct gguf *g, gguf_parts_fn *parts, void *ctx, struct err *e);

/* n vectors of len F32 elements more, as if they were the file's last tensors: names[n], values[n][len] (or what a file would have of
 * them: little-endian). lens[n]: each has so many of the len; NULL: all. All is copied. Pointers to tensors are no longer valid. ERR_FORMAT
 * where a name is there already. Once. */
int gguf_add_vectors(struct gguf *g, int n, const char (*names)[64], uint64_t len, const int *lens, const float *values, struct err *e);

/* Read len bytes of a tensor at offset within it. Where the model has been hashed, or expected, or the tensor read by gguf_read_next, what
 * comes is what came then: a difference is ERR_IO, and names file, tensor and offset. Any thread may read; tensors of no file and those
 * of a model of which nothing is known are read as they are. */
int gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset, void *buf,
              size_t len, struct err *e);

/* From here on the model is known: a tensor's first gguf_read reads it whole, and each later one is compared with that. each: hashes that
 * the tensors must have, [n_tensors] in table order, zeros where none is known; NULL: of none. Where a tensor has another one that is
 * ERR_MISMATCH, and names whose hashes they are; whose NULL: they are the file's own, and it is ERR_IO. */
int gguf_expect(struct gguf *g, const struct hash128 *each, const char *whose, struct err *e);

/* The next len bytes of a tensor that was not read before, from its beginning, in order and once, after gguf_expect: compared, at its
 * last byte, with the hash that is expected. Several threads may read, each tensors of its own. */
int gguf_read_next(const struct gguf *g, const struct gguf_tensor *t, void *buf, size_t len, struct err *e);

/* The first len bytes, for a look before gguf_read_next: compared with nothing. */
int gguf_read_ahead(const struct gguf *g, const struct gguf_tensor *t, void *buf, size_t len, struct err *e);

/* The checksums that a tensor's reads are compared with, of pieces of *piece_bytes: *n of them; NULL: it was not read yet. And those of an
 * earlier process, given to a tensor of a model that gguf_expect knows, in place of reading it: *n as here. ERR_NOMEM. */
const uint64_t *gguf_pieces(const struct gguf *g, const struct gguf_tensor *t, uint64_t *n, uint64_t *piece_bytes);
int gguf_take_pieces(struct gguf *g, const struct gguf_tensor *t, const uint64_t *pieces, struct err *e);

/* Memory of what is known of a model, and of one read. */
uint64_t gguf_known_bytes(const struct gguf *g);

/* Per-tensor content hash (XXH3-128 of its bytes) and identity of the whole model: XXH3-128 over the
 * tensors in ascending byte order of their names, each as u32 name length, name, u32 type,
 * u32 n_dims, u64 dims[n_dims], u64 hash.lo, u64 hash.hi. Does not depend on sharding, file order, alignment or
 * metadata. tensor_hashes: [n_tensors] in table order, or NULL. on_bytes, when not NULL, is
 * called with bytes hashed so far. From here on the model is known (gguf_read). A weight, or the scale of a quant block, that is no
 * finite number is ERR_FORMAT and names tensor and element, here and wherever a tensor is read for the first time. ERR_INTR when
 * file_interrupted(). */
int gguf_hash(const struct gguf *g, struct hash128 *model, struct hash128 *tensor_hashes,
              void (*on_bytes)(void *ctx, uint64_t done), void *ctx, struct err *e);

/* Writer (gguf_write.c) of version 3: keys copied raw or set, tensors streamed. Used by dataset tools, by
 * tests and for the metadata of packed models. A name given twice is ERR_USAGE. kv_raw takes a key of a
 * reader or one made by the caller (data: the payload without type, count and, of a string, length). */
struct gguf_writer;
int gguf_writer_new(struct gguf_writer **out, struct err *e);
void gguf_writer_set_pwri(struct gguf_writer *w); /* magic "PWRI" */
void gguf_writer_free(struct gguf_writer *w);
int gguf_writer_kv_raw(struct gguf_writer *w, const struct gguf_key *k, struct err *e); /* copy from a reader */
int gguf_writer_u32(struct gguf_writer *w, const char *name, uint32_t v, struct err *e);
int gguf_writer_f32(struct gguf_writer *w, const char *name, float v, struct err *e);
int gguf_writer_bool(struct gguf_writer *w, const char *name, int v, struct err *e);
int gguf_writer_str(struct gguf_writer *w, const char *name, const char *v, struct err *e);
int gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                       const uint64_t *dims, struct err *e);
/* After all keys and tensors are declared: write the header, then for each tensor, in order, call fill
 * repeatedly for consecutive pieces until it is complete; pieces are whole rows, about 1 MiB. Atomic
 * replacement of path. Alignment is 32, or what a "general.alignment" key says. */
typedef int gguf_fill_fn(void *ctx, int tensor, uint64_t offset, void *buf, size_t len, struct err *e);
int gguf_writer_save(struct gguf_writer *w, const char *path, gguf_fill_fn *fill, void *ctx, struct err *e);

/* The header alone (keys and tensor table, as save would write them), malloc'd. Without tensors it is
 * how a packed model keeps its metadata (model_meta_blob); gguf_parse reads it back. */
int gguf_writer_blob(struct gguf_writer *w, uint8_t **out, size_t *len, struct err *e);

#endif
