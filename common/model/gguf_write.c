/* GGUF writer. Keys and the tensor table are serialised as they are declared, into two growing
 * buffers; saving puts head, keys and table together and then streams the tensors, so that a file
 * larger than memory is written in pieces of about a megabyte. */
#include "common/model/gguf.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT   32u
#define PIECE_BYTES (1u << 20)
#define DIRECT_FROM (256u << 20) /* larger files need not pass through the page cache */

struct buf {
    uint8_t *data;
    size_t len, cap;
};

struct out_tensor {
    char *name;
    uint64_t row_bytes, bytes;
};

struct gguf_writer {
    int pwri;
    uint32_t alignment;
    struct buf kv, table;
    uint64_t n_keys, offset;    /* offset: of the next tensor's data */
    char **key_names;
    int n_tensors, cap_tensors;
    struct out_tensor *tensors;
};

static int append(struct buf *b, const void *data, size_t len, struct err *e)
{
    size_t need;
    if (!ck_add_size(b->len, len, &need) || need > SIZE_MAX / 2)
        return err_set(e, ERR_LIMIT, "a GGUF header of this size");
    if (need > b->cap) {
        size_t cap = need < 4096 ? 4096 : need * 2;
        uint8_t *grown = realloc(b->data, cap);
        if (!grown)
            return err_set(e, ERR_NOMEM, "a GGUF header of %zu bytes", need);
        b->data = grown;
        b->cap = cap;
    }
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len = need;
    return 0;
}

static int append_u32(struct buf *b, uint32_t v, struct err *e)
{
    uint8_t d[4];
    bytes_put32(d, v);
    return append(b, d, sizeof d, e);
}

static int append_u64(struct buf *b, uint64_t v, struct err *e)
{
    uint8_t d[8];
    bytes_put64(d, v);
    return append(b, d, sizeof d, e);
}

static int append_name(struct buf *b, const char *name, struct err *e)
{
    size_t n = strlen(name);
    int r = append_u64(b, n, e);
    return r < 0 ? r : append(b, name, n, e);
}

int gguf_writer_new(struct gguf_writer **out, struct err *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "GGUF writer");
    w->alignment = ALIGNMENT;
    *out = w;
    return 0;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    for (uint64_t i = 0; i < w->n_keys; i++)
        free(w->key_names[i]);
    for (int i = 0; i < w->n_tensors; i++)
        free(w->tensors[i].name);
    free(w->key_names);
    free(w->tensors);
    free(w->kv.data);
    free(w->table.data);
    free(w);
}

void gguf_writer_set_pwri(struct gguf_writer *w)
{
    w->pwri = 1;
}

static int note_key(struct gguf_writer *w, const char *name, struct err *e)
{
    for (uint64_t i = 0; i < w->n_keys; i++)
        if (!strcmp(w->key_names[i], name))
            return err_set(e, ERR_USAGE, "key '%s' is written twice", name);
    if (w->n_keys >= GGUF_MAX_KEYS)
        return err_set(e, ERR_LIMIT, "key '%s': more than the limit of %u keys", name, GGUF_MAX_KEYS);
    char **grown = realloc(w->key_names, (w->n_keys + 1) * sizeof *grown);
    char *copy = strdup(name);
    if (grown)
        w->key_names = grown;
    if (!grown || !copy) {
        free(copy);
        return err_set(e, ERR_NOMEM, "key '%s'", name);
    }
    w->key_names[w->n_keys++] = copy;
    return 0;
}

int gguf_writer_kv_raw(struct gguf_writer *w, const struct gguf_key *k, struct err *e)
{
    int r;
    if (w->n_tensors > 0)
        return err_set(e, ERR_USAGE, "key '%s' is written after a tensor", k->name);
    if (!strcmp(k->name, "general.alignment")) {
        uint32_t a = k->type == GGUF_U32 ? bytes_le32(k->data) : 0;
        if (a == 0 || (a & (a - 1)) != 0)
            return err_set(e, ERR_USAGE, "key 'general.alignment' is not a power of two in an u32");
        w->alignment = a;
    }
    if ((r = note_key(w, k->name, e)) < 0 || (r = append_name(&w->kv, k->name, e)) < 0 ||
        (r = append_u32(&w->kv, (uint32_t)k->type, e)) < 0)
        return r;
    if (k->type == GGUF_ARRAY &&
        ((r = append_u32(&w->kv, (uint32_t)k->elem_type, e)) < 0 || (r = append_u64(&w->kv, k->n, e)) < 0))
        return r;
    if (k->type == GGUF_STRING && (r = append_u64(&w->kv, k->data_len, e)) < 0)
        return r;
    return append(&w->kv, k->data, k->data_len, e);
}

static int put_scalar(struct gguf_writer *w, const char *name, enum gguf_value type, const void *data,
                      size_t len, struct err *e)
{
    struct gguf_key k = { .name = name, .type = type, .n = 1, .data = data, .data_len = len };
    return gguf_writer_kv_raw(w, &k, e);
}

int gguf_writer_u32(struct gguf_writer *w, const char *name, uint32_t v, struct err *e)
{
    uint8_t d[4];
    bytes_put32(d, v);
    return put_scalar(w, name, GGUF_U32, d, sizeof d, e);
}

int gguf_writer_f32(struct gguf_writer *w, const char *name, float v, struct err *e)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    uint8_t d[4];
    bytes_put32(d, u);
    return put_scalar(w, name, GGUF_F32, d, sizeof d, e);
}

int gguf_writer_bool(struct gguf_writer *w, const char *name, int v, struct err *e)
{
    uint8_t d = v != 0;
    return put_scalar(w, name, GGUF_BOOL, &d, 1, e);
}

int gguf_writer_str(struct gguf_writer *w, const char *name, const char *v, struct err *e)
{
    return put_scalar(w, name, GGUF_STRING, v, strlen(v), e);
}

int gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                       const uint64_t *dims, struct err *e)
{
    struct out_tensor t = { 0 };
    if (n_dims < 1 || n_dims > 4)
        return err_set(e, ERR_USAGE, "tensor '%s' of %d dimensions (1 to 4 are allowed)", name, n_dims);
    if ((uint32_t)w->n_tensors >= GGUF_MAX_TENSORS)
        return err_set(e, ERR_LIMIT, "tensor '%s': more than the limit of %u tensors", name, GGUF_MAX_TENSORS);
    for (int i = 0; i < w->n_tensors; i++)
        if (!strcmp(w->tensors[i].name, name))
            return err_set(e, ERR_USAGE, "tensor '%s' is written twice", name);
    t.row_bytes = t.bytes = quant_row_bytes(type, dims[0]);
    for (int d = 1; d < n_dims; d++)
        if (!ck_mul_u64(t.bytes, dims[d], &t.bytes))
            return err_set(e, ERR_LIMIT, "tensor '%s': its size overflows", name);
    if (t.bytes == 0)
        return err_set(e, ERR_USAGE, "tensor '%s': rows of %" PRIu64 " elements cannot be of type %" PRIu32,
                       name, dims[0], type);
    uint64_t next;
    if (!ck_add_u64(w->offset, t.bytes, &next) || !ck_align_u64(next, w->alignment, &next))
        return err_set(e, ERR_LIMIT, "tensor '%s': the file's size overflows", name);
    if (!grow_room(w->tensors, w->n_tensors, w->cap_tensors))
        return err_set(e, ERR_NOMEM, "tensor '%s'", name);
    int r = append_name(&w->table, name, e);
    if (r == 0)
        r = append_u32(&w->table, (uint32_t)n_dims, e);
    for (int d = 0; r == 0 && d < n_dims; d++)
        r = append_u64(&w->table, dims[d], e);
    if (r < 0 || (r = append_u32(&w->table, type == QUANT_Q2_0_128 ? 142 : type == QUANT_PTQ1_0 ? 143 : type, e)) < 0 ||
        (r = append_u64(&w->table, w->offset, e)) < 0)
        return r;
    if (!(t.name = strdup(name)))
        return err_set(e, ERR_NOMEM, "tensor '%s'", name);
    w->tensors[w->n_tensors++] = t;
    w->offset = next;
    return 0;
}

static int put_header(const struct gguf_writer *w, struct buf *b, struct err *e)
{
    int r;
    if ((r = append(b, w->pwri ? "PWRI" : "GGUF", 4, e)) < 0 || (r = append_u32(b, 3, e)) < 0 ||
        (r = append_u64(b, (uint64_t)w->n_tensors, e)) < 0 || (r = append_u64(b, w->n_keys, e)) < 0 ||
        (r = append(b, w->kv.data, w->kv.len, e)) < 0)
        return r;
    return append(b, w->table.data, w->table.len, e);
}

int gguf_writer_blob(struct gguf_writer *w, uint8_t **out, size_t *len, struct err *e)
{
    struct buf b = { 0 };
    int r = put_header(w, &b, e);
    if (r < 0) {
        free(b.data);
        return r;
    }
    *out = b.data;
    *len = b.len;
    return 0;
}

static int pad(struct file_out *o, uint32_t alignment, struct err *e)
{
    uint64_t to;
    if (!ck_align_u64(o->pos, alignment, &to))
        return err_set(e, ERR_LIMIT, "'%s': the file's size overflows", o->path);
    return file_out_zeros(o, to, e);
}

static int put_tensor(struct gguf_writer *w, int i, struct file_out *o, uint8_t *piece, size_t piece_bytes,
                      gguf_fill_fn *fill, void *ctx, struct err *e)
{
    const struct out_tensor *t = &w->tensors[i];
    uint64_t step = piece_bytes / t->row_bytes * t->row_bytes;
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < t->bytes; at += step) {
        size_t n = (size_t)(t->bytes - at < step ? t->bytes - at : step);
        if (file_interrupted())
            r = err_set(e, ERR_INTR, "interrupted while writing '%s'", o->path);
        else if ((r = fill(ctx, i, at, piece, n, e)) == 0)
            r = file_out_write(o, piece, n, e);
    }
    return r < 0 ? r : pad(o, w->alignment, e);
}

int gguf_writer_save(struct gguf_writer *w, const char *path, gguf_fill_fn *fill, void *ctx, struct err *e)
{
    struct file_out o = { .fd = -1 };
    struct buf head = { 0 };
    size_t piece_bytes = PIECE_BYTES;
    for (int i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].row_bytes > piece_bytes)
            piece_bytes = w->tensors[i].row_bytes;
    uint8_t *piece = malloc(piece_bytes);
    int r = piece ? 0 : err_set(e, ERR_NOMEM, "'%s': pieces of %zu bytes", path, piece_bytes);
    if (r == 0 && (r = put_header(w, &head, e)) == 0 && (r = file_out_open(&o, path, e)) == 0) {
        if (w->offset >= DIRECT_FROM)
            file_out_direct(&o);
        r = file_out_write(&o, head.data, head.len, e);
        if (r == 0 && w->n_tensors)
            r = pad(&o, w->alignment, e);
        for (int i = 0; r == 0 && i < w->n_tensors; i++)
            r = put_tensor(w, i, &o, piece, piece_bytes, fill, ctx, e);
        if (r == 0)
            r = file_out_commit(&o, e);
        else
            file_out_abort(&o);
    }
    free(head.data);
    free(piece);
    return r;
}
