/* GGUF reader. The header (keys and tensor table) is read whole into memory, growing the buffer
 * until the walk over it no longer runs past the end, so that neither a huge claimed count nor a
 * huge claimed length is believed before the bytes that must carry it are there. One walker serves
 * two passes: the first checks lengths and counts what must be allocated, the second fills the
 * tables. Names are copied (files keep them without a NUL) and must be printable UTF-8, because
 * they end up in messages and in JSON; payloads stay where they are, in file order. Shards are
 * opened as models of their own and their tensor tables joined. */
#include "common/model/gguf_consumed.h"
#include "common/model/gguf_impl.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/filekind.h"
#include "common/base/span.h"
#include "common/base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEY_NAME    65535u
#define MAX_TENSOR_NAME 255u
#define MAX_ALIGNMENT   (1u << 24)
#define MAX_DIMS        4
#define DEFAULT_ALIGNMENT 32u
#define FIRST_READ      (256u << 10)
#define NEED_MORE       1 /* the walk ran past the bytes at hand */

static_assert(sizeof(size_t) == 8, "offsets and lengths of files are used as sizes in memory");

/* Bytes of one value of each scalar type; 0 for strings and arrays. */
static const uint8_t value_bytes[] = {
    [GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0, [GGUF_U64] = 8,
    [GGUF_I64] = 8, [GGUF_F64] = 8,
};
#define VALUE_TYPES (sizeof value_bytes / sizeof value_bytes[0])

static const char *const value_names[VALUE_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64",
};

struct walk {
    struct span s;
    const char *file;      /* for messages */
    uint64_t file_size;
    bool fill;             /* second pass */
    bool two_bits, wide;   /* there are tensors of Q2_0; its blocks are of 128 */
    bool pwri, consumed;   /* consumed: a file whose weights went into a pack, which the caller has asked for */
    uint32_t version;
    uint64_t n_keys, n_tensors, alignment, data_begin;
    size_t kv_begin, kv_end, name_bytes;
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
    char *names;
    char at[96];           /* where the walk stands, for "truncated" */
};

/* --- the walk ---------------------------------------------------------------------------- */

static int walk_head(struct walk *w, struct err *e)
{
    snprintf(w->at, sizeof w->at, "the file's head");
    const uint8_t *magic = span_bytes(&w->s, 4);
    if (!magic)
        return NEED_MORE;
    if (w->consumed && !memcmp(magic, GGUF_CONSUMED_MAGIC, 4))
        magic = (const uint8_t *)"GGUF";
    w->pwri = !memcmp(magic, "PWRI", 4);
    if (!w->pwri && memcmp(magic, "GGUF", 4)) {
        struct filekind k = filekind(magic, w->s.len < FILEKIND_HEAD ? w->s.len : FILEKIND_HEAD, w->file_size);
        if (k.what)
            return err_set(e, ERR_FORMAT, "'%s': not a GGUF file: it is %s; %s", w->file, k.what, k.next);
        return err_set(e, ERR_FORMAT, "'%s': not a GGUF file: it begins with %02x %02x %02x %02x, not with \"GGUF\" or \"PWRI\"",
                       w->file, magic[0], magic[1], magic[2], magic[3]);
    }
    w->version = span_u32(&w->s);
    w->n_tensors = span_u64(&w->s);
    w->n_keys = span_u64(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if ((w->version & 0xffff) == 0 && w->version != 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s': big-endian GGUF (version field 0x%08" PRIx32
                       ") is not supported", w->file, w->version);
    if (w->version != 2 && w->version != 3)
        return err_set(e, ERR_UNSUPPORTED, "'%s': GGUF version %" PRIu32 " is not supported (versions 2 and 3 are)%s", w->file,
                       w->version, w->version == 1 ? "; convert the model again, with a converter of today" : "");
    if (w->n_keys > GGUF_MAX_KEYS)
        return err_set(e, ERR_LIMIT, "'%s': %" PRIu64 " keys, more than the limit of %u", w->file,
                       w->n_keys, GGUF_MAX_KEYS);
    if (w->n_tensors > GGUF_MAX_TENSORS)
        return err_set(e, ERR_LIMIT, "'%s': %" PRIu64 " tensors, more than the limit of %u", w->file,
                       w->n_tensors, GGUF_MAX_TENSORS);
    return 0;
}

/* A name of a key or tensor: counted in the first pass, copied in the second. */
static int walk_name(struct walk *w, const char *what, uint64_t index, uint64_t max, const char **out,
                     struct err *e)
{
    uint64_t len = span_u64(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (len == 0 || len > max)
        return err_set(e, len ? ERR_LIMIT : ERR_FORMAT, "'%s': name of %s %" PRIu64 " has %" PRIu64
                       " bytes (1 to %" PRIu64 " are allowed)", w->file, what, index, len, max);
    const char *text = span_bytes(&w->s, len);
    if (!text)
        return NEED_MORE;
    if (!utf8_is_printable(text, (size_t)len))
        return err_set(e, ERR_FORMAT, "'%s': name of %s %" PRIu64 " is not printable UTF-8", w->file,
                       what, index);
    snprintf(w->at, sizeof w->at, "%s '%.*s'", what, len > 64 ? 64 : (int)len, text);
    if (w->fill) {
        char *copy = w->names + w->name_bytes;
        memcpy(copy, text, (size_t)len);
        copy[len] = '\0';
        *out = copy;
    }
    w->name_bytes += (size_t)len + 1;
    return 0;
}

static int walk_string(struct walk *w, uint64_t *len, struct err *e)
{
    *len = span_u64(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (*len > GGUF_MAX_STRING)
        return err_set(e, ERR_LIMIT, "'%s': %s holds a string of %" PRIu64 " bytes, more than the limit of %u",
                       w->file, w->at, *len, GGUF_MAX_STRING);
    return span_bytes(&w->s, *len) ? 0 : NEED_MORE;
}

static int walk_array(struct walk *w, struct gguf_key *k, struct err *e)
{
    uint32_t type = span_u32(&w->s);
    k->n = span_u64(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (type == GGUF_ARRAY)
        return err_set(e, ERR_UNSUPPORTED, "'%s': %s is an array of arrays", w->file, w->at);
    if (type >= VALUE_TYPES)
        return err_set(e, ERR_FORMAT, "'%s': %s is an array of unknown element type %" PRIu32, w->file,
                       w->at, type);
    if (k->n > GGUF_MAX_ARRAY)
        return err_set(e, ERR_LIMIT, "'%s': %s has %" PRIu64 " elements, more than the limit of %u",
                       w->file, w->at, k->n, GGUF_MAX_ARRAY);
    k->elem_type = (enum gguf_value)type;
    size_t begin = w->s.pos;
    k->data = w->s.data + begin;
    if (type == GGUF_STRING) {
        for (uint64_t i = 0, len; i < k->n; i++) {
            int r = file_go_on_at(i, e);
            if (r != 0 || (r = walk_string(w, &len, e)) != 0)
                return r;
        }
    } else if (!span_bytes(&w->s, k->n * value_bytes[type])) {
        return NEED_MORE;
    }
    k->data_len = w->s.pos - begin;
    return 0;
}

static int set_alignment(struct walk *w, const struct gguf_key *k, struct err *e)
{
    if (k->type != GGUF_U32)
        return err_set(e, ERR_FORMAT, "'%s': key 'general.alignment' is of type %s, not u32", w->file,
                       value_names[k->type]);
    uint32_t a = bytes_le32(k->data);
    if (a == 0 || (a & (a - 1)) != 0)
        return err_set(e, ERR_FORMAT, "'%s': key 'general.alignment' is %" PRIu32 ", not a power of two",
                       w->file, a);
    if (a > MAX_ALIGNMENT)
        return err_set(e, ERR_LIMIT, "'%s': key 'general.alignment' is %" PRIu32 ", more than the limit of %u",
                       w->file, a, MAX_ALIGNMENT);
    w->alignment = a;
    return 0;
}

static int walk_key(struct walk *w, uint64_t index, struct err *e)
{
    snprintf(w->at, sizeof w->at, "key %" PRIu64 " of %" PRIu64, index, w->n_keys);
    struct gguf_key k = { 0 };
    size_t name_at = w->s.pos + 8;
    int r = walk_name(w, "key", index, MAX_KEY_NAME, &k.name, e);
    if (r != 0)
        return r;
    size_t name_len = w->s.pos - name_at;
    uint32_t type = span_u32(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (type >= VALUE_TYPES)
        return err_set(e, ERR_FORMAT, "'%s': %s is of unknown type %" PRIu32, w->file, w->at, type);
    k.type = (enum gguf_value)type;
    k.n = 1;
    if (type == GGUF_ARRAY) {
        r = walk_array(w, &k, e);
    } else if (type == GGUF_STRING) {
        r = walk_string(w, &k.n, e);
        if (r == 0) { /* only then are the bytes there */
            k.data_len = (size_t)k.n;
            k.data = w->s.data + w->s.pos - k.data_len;
        }
    } else {
        k.data_len = value_bytes[type];
        k.data = span_bytes(&w->s, k.data_len);
        r = k.data ? 0 : NEED_MORE;
    }
    if (r != 0)
        return r;
    if (name_len == 17 && !memcmp(w->s.data + name_at, "general.alignment", 17) &&
        (r = set_alignment(w, &k, e)) < 0)
        return r;
    if (w->fill)
        w->keys[index] = k;
    return 0;
}

/* How PrismML numbers types of blocks of 128; our own numbers are none. */
static uint32_t type_of_number(uint32_t n)
{
    return n == 142 ? QUANT_Q2_0_128 : n == 143 ? QUANT_PTQ1_0 : n == QUANT_Q2_0_128 || n == QUANT_PTQ1_0 ? QUANT_LIMIT : n;
}

/* Types that ik_llama.cpp alone writes, by name; "" for others. */
static const char *foreign_type(uint32_t type)
{
    static const struct { uint32_t type; const char *name; } known[] = {
        { 133, " (Q6_0 of ik_llama.cpp)" }, { 134, " (IQ1_BN of ik_llama.cpp)" }, { 135, " (IQ2_BN of ik_llama.cpp)" },
        { 137, " (IQ2_K of ik_llama.cpp)" }, { 138, " (IQ3_K of ik_llama.cpp)" }, { 139, " (IQ4_K of ik_llama.cpp)" },
        { 140, " (IQ5_K of ik_llama.cpp)" }, { 141, " (IQ6_K of ik_llama.cpp)" }, { 144, " (IQ4_KS of ik_llama.cpp)" },
        { 145, " (IQ2_KS of ik_llama.cpp)" }, { 146, " (IQ4_KSS of ik_llama.cpp)" }, { 152, " (IQ5_KS of ik_llama.cpp)" },
        { 153, " (IQ2_KT of ik_llama.cpp)" }, { 154, " (IQ3_KT of ik_llama.cpp)" }, { 155, " (IQ4_KT of ik_llama.cpp)" },
        { 156, " (IQ3_KS of ik_llama.cpp)" }, { 157, " (IQ2_KL of ik_llama.cpp)" }, { 158, " (IQ1_KT of ik_llama.cpp)" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type)
            return known[i].name;
    return "";
}

/* Shape, type and place of one tensor; w->data_begin is known in the second pass only. */
static int check_tensor(const struct walk *w, struct gguf_tensor *t, struct err *e)
{
    t->n_rows = 1;
    for (int d = 0; d < MAX_DIMS; d++) {
        if (t->dims[d] == 0)
            return err_set(e, ERR_FORMAT, "'%s': tensor '%s': dimension %d is 0", w->file, t->name, d);
        if (d > 0 && !ck_mul_u64(t->n_rows, t->dims[d], &t->n_rows))
            return err_set(e, ERR_FORMAT, "'%s': tensor '%s': the product of its dimensions overflows",
                           w->file, t->name);
    }
    const uint32_t number = t->type;
    t->type = number == QUANT_Q2_0 && w->wide ? QUANT_Q2_0_128 : type_of_number(number);
    const struct quant_traits *q = quant_traits(t->type);
    if (!q)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': element type %" PRIu32 "%s is not known",
                       w->file, t->name, number, foreign_type(number));
    if (t->dims[0] % (uint64_t)q->block_elems != 0)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': row length %" PRIu64 " is not a multiple of "
                       "the %d elements in a %s block", w->file, t->name, t->dims[0], q->block_elems, q->name);
    uint64_t n_blocks = t->dims[0] / (uint64_t)q->block_elems;
    if (!ck_mul_u64(n_blocks, (uint64_t)q->block_bytes, &t->row_bytes) ||
        !ck_mul_u64(t->row_bytes, t->n_rows, &t->bytes))
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': its size overflows", w->file, t->name);
    if (t->offset % w->alignment != 0)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': offset %" PRIu64 " is not a multiple of the "
                       "alignment %" PRIu64, w->file, t->name, t->offset, w->alignment);
    uint64_t relative = t->offset;
    if (!ck_add_u64(w->data_begin, relative, &t->offset) ||
        !ck_range(t->offset, t->bytes, w->file_size))
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s': %" PRIu64 " bytes at data offset %" PRIu64 " run past the end of the file (%"
                       PRIu64 " bytes): if it was downloaded, a part has not come; download it again or let 'curl -C - -O' go on", w->file,
                       t->name, t->bytes, relative, w->file_size);
    return 0;
}

static int walk_tensor(struct walk *w, uint64_t index, struct err *e)
{
    snprintf(w->at, sizeof w->at, "tensor %" PRIu64 " of %" PRIu64, index, w->n_tensors);
    struct gguf_tensor t = { .dims = { 1, 1, 1, 1 } };
    int r = walk_name(w, "tensor", index, MAX_TENSOR_NAME, &t.name, e);
    if (r != 0)
        return r;
    uint32_t n_dims = span_u32(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (n_dims < 1 || n_dims > MAX_DIMS)
        return err_set(e, ERR_FORMAT, "'%s': %s has %" PRIu32 " dimensions (1 to %d are allowed)", w->file,
                       w->at, n_dims, MAX_DIMS);
    t.n_dims = (int)n_dims;
    for (uint32_t d = 0; d < n_dims; d++)
        t.dims[d] = span_u64(&w->s);
    t.type = span_u32(&w->s);
    w->two_bits |= t.type == QUANT_Q2_0;
    t.offset = span_u64(&w->s);
    if (w->s.bad)
        return NEED_MORE;
    if (!w->fill)
        return 0;
    if ((r = check_tensor(w, &t, e)) < 0)
        return r;
    w->tensors[index] = t;
    return 0;
}

static int walk_all(struct walk *w, struct err *e)
{
    w->alignment = DEFAULT_ALIGNMENT;
    w->name_bytes = 0;
    int r = walk_head(w, e);
    w->kv_begin = w->s.pos;
    for (uint64_t i = 0; r == 0 && i < w->n_keys && (r = file_go_on_at(i, e)) == 0; i++)
        r = walk_key(w, i, e);
    w->kv_end = w->s.pos;
    for (uint64_t i = 0; r == 0 && i < w->n_tensors && (r = file_go_on_at(i, e)) == 0; i++)
        r = walk_tensor(w, i, e);
    if (r == 0 && !ck_align_u64(w->s.pos, w->alignment, &w->data_begin))
        r = err_set(e, ERR_FORMAT, "'%s': the header's length overflows", w->file);
    return r;
}

static int truncated(const struct walk *w, struct err *e)
{
    if (w->file_size == 0)
        return err_set(e, ERR_FORMAT, "'%s': it is empty: download it again", w->file);
    return err_set(e, ERR_FORMAT, "'%s': truncated: %s runs past the end (byte %zu): if it was downloaded, a part has not come", w->file,
                   w->at, w->s.len);
}

/* --- tables ------------------------------------------------------------------------------ */

static int by_key_name(const void *a, const void *b)
{
    const struct gguf_key *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_tensor_name(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int index_keys(struct gguf *g, const char *file, struct err *e)
{
    struct gguf_priv *p = g->priv;
    if (!p->keys_by_name)
        p->keys_by_name = calloc(g->n_keys + 1, sizeof *p->keys_by_name);
    if (!p->keys_by_name)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " keys", file, g->n_keys);
    for (uint64_t i = 0; i < g->n_keys; i++)
        p->keys_by_name[i] = &g->keys[i];
    qsort(p->keys_by_name, g->n_keys, sizeof *p->keys_by_name, by_key_name);
    for (uint64_t i = 1; i < g->n_keys; i++)
        if (!strcmp(p->keys_by_name[i - 1]->name, p->keys_by_name[i]->name))
            return err_set(e, ERR_FORMAT, "'%s': key '%s' occurs twice", file, p->keys_by_name[i]->name);
    return 0;
}

static int sort_names(struct gguf *g, const char *file, struct err *e)
{
    const struct gguf_tensor **t = ((struct gguf_priv *)g->priv)->tensors_by_name;
    qsort(t, g->n_tensors, sizeof *t, by_tensor_name);
    for (uint64_t i = 1; i < g->n_tensors; i++)
        if (!strcmp(t[i - 1]->name, t[i]->name))
            return err_set(e, ERR_FORMAT, "'%s': tensor '%s' occurs twice", file, t[i]->name);
    return 0;
}

static int index_tensors(struct gguf *g, const char *file, struct err *e)
{
    struct gguf_priv *p = g->priv;
    free(p->tensors_by_name);
    p->tensors_by_name = calloc(g->n_tensors + 1, sizeof *p->tensors_by_name);
    if (!p->tensors_by_name)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", file, g->n_tensors);
    const struct gguf_tensor **t = p->tensors_by_name;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        t[i] = &g->tensors[i];
    qsort(t, g->n_tensors, sizeof *t, by_place);
    for (uint64_t i = 1; i < g->n_tensors; i++)
        if (t[i - 1]->shard == t[i]->shard && t[i]->offset - t[i - 1]->offset < t[i - 1]->bytes)
            return err_set(e, ERR_FORMAT, "'%s': tensors '%s' and '%s' overlap", file, t[i - 1]->name,
                           t[i]->name);
    return sort_names(g, file, e);
}

static int fill(struct gguf *g, struct walk *w, struct err *e)
{
    w->s = span_init(w->s.data, w->s.len);
    w->fill = true;
    int r = walk_all(w, e);
    assert(r != NEED_MORE);
    if (r < 0)
        return r;
    g->is_pwri = w->pwri;
    g->version = w->version;
    g->alignment = w->alignment;
    g->n_keys = w->n_keys;
    g->n_tensors = w->n_tensors;
    g->kv_data = w->s.data + w->kv_begin;
    g->kv_len = w->kv_end - w->kv_begin;
    if ((r = index_keys(g, w->file, e)) < 0)
        return r;
    return index_tensors(g, w->file, e);
}

/* The second pass, over a header that the first has found whole. On failure *out is half-built
 * and freed by the caller. */
static int build(struct gguf *g, struct walk *w, struct err *e)
{
    struct gguf_priv *p = g->priv;
    struct err narrow;
    g->keys = calloc(w->n_keys + 1, sizeof *g->keys);
    g->tensors = calloc(w->n_tensors + 1, sizeof *g->tensors);
    p->names = malloc(w->name_bytes + 1);
    if (!g->keys || !g->tensors || !p->names)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " keys and %" PRIu64 " tensors", w->file, w->n_keys,
                       w->n_tensors);
    w->keys = g->keys;
    w->tensors = g->tensors;
    w->names = p->names;
    int r = fill(g, w, e);
    if (r != ERR_FORMAT || !w->two_bits)
        return r;
    /* blocks of 64 have no room: perhaps they are of 128, which take less */
    narrow = *e;
    w->wide = true;
    if ((r = fill(g, w, e)) == ERR_FORMAT)
        *e = narrow;
    return r;
}

static struct gguf *gguf_alloc(const char *file)
{
    struct gguf *g = calloc(1, sizeof *g);
    struct gguf_priv *p = calloc(1, sizeof *p);
    char *name = strdup(file);
    if (!g || !p || !name) {
        free(g);
        free(p);
        free(name);
        return NULL;
    }
    p->file = name;
    g->priv = p;
    return g;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    struct gguf_priv *p = g->priv;
    gguf_forget(g);
    for (int i = 0; i < p->n_sub; i++)
        gguf_close(p->sub[i]);
    for (int i = 0; i < g->n_shards; i++)
        file_close(&g->shards[i]);
    free(p->sub);
    free(p->keys_by_name);
    free(p->tensors_by_name);
    free(p->part_names);
    free(p->stated);
    free(p->added_names);
    free(p->added);
    free(p->names);
    free(p->file);
    free(p->header);
    free(p);
    free(g->keys);
    free(g->tensors);
    free(g->shards);
    free(g);
}

int gguf_parse(const void *data, size_t len, uint64_t file_size, const char *name, struct gguf **out,
               struct err *e)
{
    struct walk w = { .s = span_init(data, len), .file = name, .file_size = file_size };
    int r = walk_all(&w, e);
    if (r == NEED_MORE)
        return truncated(&w, e);
    if (r < 0)
        return r;
    struct gguf *g = gguf_alloc(name);
    if (!g)
        return err_set(e, ERR_NOMEM, "'%s'", name);
    if ((r = build(g, &w, e)) < 0) {
        gguf_close(g);
        return r;
    }
    *out = g;
    return 0;
}

/* --- files and shards -------------------------------------------------------------------- */

/* Reads the header of f into a buffer that grows until the first pass is content. */
static int read_header(const struct file *f, struct walk *w, uint8_t **out, struct err *e)
{
    uint8_t *buf = NULL;
    size_t have = 0;
    uint64_t want = FIRST_READ;
    for (;;) {
        if (want > f->size)
            want = f->size;
        uint8_t *grown = realloc(buf, (size_t)want + 1);
        if (!grown) {
            free(buf);
            return err_set(e, ERR_NOMEM, "'%s': header of %" PRIu64 " bytes", f->path, want);
        }
        buf = grown;
        int r = file_pread(f, buf + have, (size_t)want - have, have, e);
        if (r == 0) {
            have = (size_t)want;
            w->s = span_init(buf, have);
            r = walk_all(w, e);
        }
        if (r == NEED_MORE && have >= f->size)
            r = truncated(w, e);
        else if (r == NEED_MORE && have >= GGUF_MAX_HEADER)
            r = err_set(e, ERR_LIMIT, "'%s': the header is larger than the limit of %llu bytes (at %s)",
                        f->path, GGUF_MAX_HEADER, w->at);
        if (r < 0) {
            free(buf);
            return r;
        }
        if (r == 0)
            break;
        want = have * 2;
        if (want > GGUF_MAX_HEADER)
            want = GGUF_MAX_HEADER;
    }
    size_t len = w->s.pos;
    uint8_t *shrunk = realloc(buf, len);
    *out = shrunk ? shrunk : buf;
    w->s = span_init(*out, len);
    return 0;
}

static int open_one(const char *path, int consumed, struct gguf **out, struct err *e)
{
    struct gguf *g = gguf_alloc(path);
    if (!g || !(g->shards = calloc(1, sizeof *g->shards))) {
        gguf_close(g);
        return err_set(e, ERR_NOMEM, "'%s'", path);
    }
    struct gguf_priv *p = g->priv;
    int r = file_open(&g->shards[0], path, e);
    if (r < 0) {
        gguf_close(g);
        return r;
    }
    g->n_shards = 1;
    char pack[GGUF_CONSUMED_PATH];
    int marked = gguf_consumed_by(&g->shards[0], pack);
    if (marked)
        g->shards[0].size -= GGUF_CONSUMED_BYTES;
    if (marked && !consumed) {
        gguf_close(g);
        return err_set(e, ERR_MISMATCH, "'%s' was consumed by pack '%s': its weights went there and are no longer here; use the pack, or, "
                       "where packing was interrupted, give the same command with --consume again", path, pack);
    }
    struct walk w = { .file = path, .file_size = g->shards[0].size, .consumed = marked };
    if ((r = read_header(&g->shards[0], &w, &p->header, e)) < 0 || (r = build(g, &w, e)) < 0) {
        gguf_close(g);
        return r;
    }
    *out = g;
    return 0;
}

/* ".../model-00002-of-00003.gguf", no = 2: the length of what precedes "-00002-of-", or -1. */
static int shard_stem(const char *path, unsigned no, unsigned count)
{
    char tail[48];
    int n = snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", no, count);
    size_t len = strlen(path);
    if (len < (size_t)n || len > 4096 || strcmp(path + len - (size_t)n, tail))
        return -1;
    return (int)(len - (size_t)n);
}

static int check_shard(const struct gguf *g, const char *path, unsigned index, unsigned count, struct err *e)
{
    uint32_t no = 0, n = 0;
    int r1 = gguf_get_u32(g, "split.no", &no, e);
    int r2 = r1 < 0 ? r1 : gguf_get_u32(g, "split.count", &n, e);
    if (r2 < 0)
        return r2;
    if (r1 == 0 || r2 == 0)
        return err_set(e, ERR_FORMAT, "'%s': a shard lacks the key '%s'", path,
                       r1 == 0 ? "split.no" : "split.count");
    if (n != count || no != index)
        return err_set(e, ERR_FORMAT, "'%s': it says shard %" PRIu32 " of %" PRIu32 ", expected %u of %u "
                       "(split.no counts from 0)", path, no, n, index, count);
    return 0;
}

/* Takes over the file and the tensors of one more shard. */
static int adopt_shard(struct gguf *g, struct gguf *sub, const char *path, struct err *e)
{
    struct gguf_priv *p = g->priv;
    p->sub[p->n_sub++] = sub;
    int shard = g->n_shards;
    g->shards[g->n_shards++] = sub->shards[0];
    sub->n_shards = 0;
    free(((struct gguf_priv *)sub->priv)->header);
    ((struct gguf_priv *)sub->priv)->header = NULL;
    if (sub->n_tensors > GGUF_MAX_TENSORS - g->n_tensors)
        return err_set(e, ERR_LIMIT, "'%s': the shards hold more than the limit of %u tensors", path,
                       GGUF_MAX_TENSORS);
    struct gguf_tensor *t = realloc(g->tensors, (g->n_tensors + sub->n_tensors + 1) * sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " more tensors", path, sub->n_tensors);
    g->tensors = t;
    for (uint64_t i = 0; i < sub->n_tensors; i++) {
        t[g->n_tensors] = sub->tensors[i];
        t[g->n_tensors++].shard = shard;
    }
    return 0;
}

static int open_shards(struct gguf *g, const char *path, unsigned count, int consumed, struct err *e)
{
    struct gguf_priv *p = g->priv;
    if (count > GGUF_MAX_SHARDS)
        return err_set(e, ERR_LIMIT, "'%s': key 'split.count' is %u, more than the limit of %d", path,
                       count, GGUF_MAX_SHARDS);
    int r = check_shard(g, path, 0, count, e);
    if (r < 0)
        return r;
    int stem = shard_stem(path, 1, count);
    if (stem < 0)
        return err_set(e, ERR_FORMAT, "'%s': the first of %u shards, but its name does not end in "
                       "-00001-of-%05u.gguf", path, count, count);
    struct file *files = realloc(g->shards, count * sizeof *files);
    if (files)
        g->shards = files;
    p->sub = calloc(count, sizeof(struct gguf *));
    if (!files || !p->sub)
        return err_set(e, ERR_NOMEM, "'%s': %u shards", path, count);
    for (unsigned i = 1; i < count; i++) {
        char name[4096 + 64];
        snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", stem, path, i + 1, count);
        struct gguf *sub;
        if ((r = open_one(name, consumed, &sub, e)) < 0)
            return r;
        if ((r = check_shard(sub, name, i, count, e)) < 0) {
            gguf_close(sub);
            return r;
        }
        if ((r = adopt_shard(g, sub, name, e)) < 0)
            return r;
    }
    uint32_t total;
    if ((r = gguf_get_u32(g, "split.tensors.count", &total, e)) < 0)
        return r;
    if (r == 1 && total != g->n_tensors)
        return err_set(e, ERR_FORMAT, "'%s': key 'split.tensors.count' is %" PRIu32 ", but the %u shards "
                       "hold %" PRIu64 " tensors", path, total, count, g->n_tensors);
    return index_tensors(g, path, e);
}

/* Another than the first of some shards: the first's path into name, 1; else 0. */
static int first_shard(const struct gguf *g, const char *path, char *name, size_t size, struct err *e)
{
    uint32_t no = 0, count = 0;
    int r1 = gguf_get_u32(g, "split.no", &no, e), r2 = r1 < 0 ? r1 : gguf_get_u32(g, "split.count", &count, e);
    if (r2 < 0)
        return r2;
    int stem = no > 0 && no < count && count <= GGUF_MAX_SHARDS ? shard_stem(path, no + 1, count) : -1;
    return stem >= 0 && snprintf(name, size, "%.*s-00001-of-%05u.gguf", stem, path, count) < (int)size;
}

static int open_all(const char *path, int consumed, struct gguf **out, struct err *e)
{
    struct gguf *g;
    char first[4096 + 64];
    int r = open_one(path, consumed, &g, e);
    if (r < 0)
        return r;
    if ((r = first_shard(g, path, first, sizeof first, e)) == 1) {
        gguf_close(g);
        path = first;
        if ((r = open_one(path, consumed, &g, e)) < 0)
            return r;
    }
    uint32_t count = 1;
    if (r >= 0)
        r = gguf_get_u32(g, "split.count", &count, e);
    if (r >= 0)
        r = count > 1 ? open_shards(g, path, count, consumed, e) : 0;
    if (r < 0) {
        gguf_close(g);
        return r;
    }
    *out = g;
    return 0;
}

int gguf_open(const char *path, struct gguf **out, struct err *e)
{
    return open_all(path, 0, out, e);
}

int gguf_open_consumed(const char *path, char *pack, struct gguf **out, struct err *e)
{
    int r = open_all(path, 1, out, e);
    if (r < 0 || !pack)
        return r;
    struct file marked = (*out)->shards[0];
    marked.size += GGUF_CONSUMED_BYTES;
    if (!gguf_consumed_by(&marked, pack))
        *pack = '\0';
    return 0;
}

/* --- lookups ----------------------------------------------------------------------------- */

/* Whichever of n, in the order of their names, has this one. Names come first in keys and in tensors. */
static const void *find_named(const void *sorted, uint64_t n, const char *name)
{
    const void *const *of = sorted;
    uint64_t lo = 0, hi = n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int c = strcmp(name, *(const char *const *)of[mid]);
        if (c == 0)
            return of[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct gguf_key *gguf_find(const struct gguf *g, const char *name)
{
    return find_named(((const struct gguf_priv *)g->priv)->keys_by_name, g->n_keys, name);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    return find_named(((const struct gguf_priv *)g->priv)->tensors_by_name, g->n_tensors, name);
}

const char *gguf_name(const struct gguf *g)
{
    return ((const struct gguf_priv *)g->priv)->file;
}

static int wrong_type(const struct gguf *g, const struct gguf_key *k, const char *wanted, struct err *e)
{
    return err_set(e, ERR_FORMAT, "'%s': key '%s' is of type %s, not %s", gguf_name(g), k->name,
                   value_names[k->type], wanted);
}

/* Any integer as sign and magnitude; false when the key is no integer. */
static bool key_integer(const struct gguf_key *k, bool *negative, uint64_t *magnitude)
{
    const uint8_t *d = k->data;
    int64_t v;
    switch (k->type) {
    case GGUF_U8:  *negative = false; *magnitude = d[0]; return true;
    case GGUF_U16: *negative = false; *magnitude = bytes_le16(d); return true;
    case GGUF_U32: *negative = false; *magnitude = bytes_le32(d); return true;
    case GGUF_U64: *negative = false; *magnitude = bytes_le64(d); return true;
    case GGUF_I8:  v = (int8_t)d[0]; break;
    case GGUF_I16: v = (int16_t)bytes_le16(d); break;
    case GGUF_I32: v = (int32_t)bytes_le32(d); break;
    case GGUF_I64: v = (int64_t)bytes_le64(d); break;
    default: return false;
    }
    *negative = v < 0;
    *magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    return true;
}

int gguf_get_u32(const struct gguf *g, const char *name, uint32_t *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    bool negative;
    uint64_t v;
    if (!k)
        return 0;
    if (!key_integer(k, &negative, &v))
        return wrong_type(g, k, "an integer", e);
    if (negative || v > UINT32_MAX)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' is %s%" PRIu64 ", outside 0 to %" PRIu32,
                       gguf_name(g), name, negative ? "-" : "", v, UINT32_MAX);
    *out = (uint32_t)v;
    return 1;
}

int gguf_get_f32(const struct gguf *g, const char *name, float *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k)
        return 0;
    float v;
    if (k->type == GGUF_F32)
        v = bytes_lef32(k->data);
    else if (k->type == GGUF_F64)
        v = (float)bytes_lef64(k->data);
    else
        return wrong_type(g, k, "f32", e);
    if (!(v - v == 0)) /* infinite or not a number */
        return err_set(e, ERR_FORMAT, "'%s': key '%s' is %g, not a finite number", gguf_name(g), name, (double)v);
    *out = v;
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *name, int *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k)
        return 0;
    if (k->type != GGUF_BOOL)
        return wrong_type(g, k, "bool", e);
    uint8_t v = *(const uint8_t *)k->data;
    if (v > 1)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' is a bool of value %u (0 and 1 are allowed)", gguf_name(g),
                       name, v);
    *out = v;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *name, char **out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k)
        return 0;
    if (k->type != GGUF_STRING)
        return wrong_type(g, k, "string", e);
    if (k->data_len && memchr(k->data, '\0', k->data_len))
        return err_set(e, ERR_FORMAT, "'%s': key '%s' holds a string with a NUL byte", gguf_name(g), name);
    char *s = malloc(k->data_len + 1);
    if (!s)
        return err_set(e, ERR_NOMEM, "'%s': key '%s'", gguf_name(g), name);
    if (k->data_len)
        memcpy(s, k->data, k->data_len);
    s[k->data_len] = '\0';
    *out = s;
    return 1;
}

const char *gguf_stated(const struct gguf *g, const char *name)
{
    const struct gguf_priv *p = g->priv;
    return p->stated && !strcmp(p->stated, name) ? p->stated + strlen(name) + 1 : NULL;
}

int gguf_state_str(struct gguf *g, const char *name, const char *value, struct err *e)
{
    struct gguf_priv *p = g->priv;
    const struct gguf_key *old = gguf_find(g, name);
    size_t n = strlen(name) + 1, len = strlen(value);
    assert(!p->stated);
    if (!(p->stated = malloc(n + len + 1)))
        return err_set(e, ERR_NOMEM, "'%s': key '%s'", p->file, name);
    memcpy(p->stated, name, n);
    memcpy(p->stated + n, value, len + 1);
    /* both tables have room for one more key */
    g->keys[old ? (uint64_t)(old - g->keys) : g->n_keys++] =
        (struct gguf_key){ .name = p->stated, .type = GGUF_STRING, .n = len, .data = p->stated + n, .data_len = len };
    return index_keys(g, p->file, e);
}

int gguf_array_str(const struct gguf_key *k, size_t *pos, const char **s, uint64_t *len)
{
    if (k->type != GGUF_ARRAY || k->elem_type != GGUF_STRING || *pos >= k->data_len)
        return 0;
    const uint8_t *d = k->data;
    *len = bytes_le64(d + *pos);
    *s = (const char *)d + *pos + 8;
    *pos += 8 + (size_t)*len;
    return 1;
}

/* --- fused tensors ------------------------------------------------------------------------ */

static struct gguf_tensor part_of(const struct gguf_tensor *t, const struct gguf_part *part, const char *name)
{
    struct gguf_tensor x = *t;
    uint64_t unit = t->n_dims == 1 ? t->bytes / t->dims[0] : t->row_bytes, outer = t->n_dims == 1 ? 1 : t->n_rows / t->dims[1];
    x.name = name;
    x.dims[t->n_dims == 1 ? 0 : 1] = part->n;
    x.row_bytes = t->n_dims == 1 ? unit * part->n : unit;
    x.n_rows = t->n_dims == 1 ? 1 : part->n * outer;
    x.bytes = unit * part->n * outer;
    x.offset = t->offset + unit * part->first;
    if (outer > 1) {
        x.piece_bytes = unit * part->n;
        x.stride_bytes = unit * t->dims[1];
    }
    return x;
}

/* The tensors with parts in place of fused ones, and how many; table NULL: only how many. */
static int walk_parts(const struct gguf *g, gguf_parts_fn *parts, void *ctx, struct gguf_tensor *table, char *names, uint64_t *n,
                      uint64_t *n_parts, struct err *e)
{
    struct gguf_part part[GGUF_MAX_PARTS];
    *n = *n_parts = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        int made = parts(ctx, t, part, e);
        if (made < 0)
            return made;
        if (made == 0 && table)
            table[*n] = *t;
        for (int k = 0; k < made && table; k++) {
            char *name = names + (*n_parts + (uint64_t)k) * sizeof part[k].name;
            assert(part[k].n > 0 && ck_range(part[k].first, part[k].n, t->dims[t->n_dims == 1 ? 0 : 1]));
            memcpy(name, part[k].name, sizeof part[k].name);
            table[*n + (uint64_t)k] = part_of(t, &part[k], name);
        }
        *n += made ? (uint64_t)made : 1;
        *n_parts += (uint64_t)made;
    }
    return 0;
}

int gguf_split(struct gguf *g, gguf_parts_fn *parts, void *ctx, struct err *e)
{
    struct gguf_priv *p = g->priv;
    uint64_t n, n_parts;
    int r = p->part_names ? 0 : walk_parts(g, parts, ctx, NULL, NULL, &n, &n_parts, e);
    if (r < 0 || p->part_names || n_parts == 0)
        return r;
    const struct gguf_tensor **by_name = calloc(n, sizeof *by_name);
    struct gguf_tensor *table = calloc(n, sizeof *table);
    char *names = calloc(n_parts, sizeof ((struct gguf_part *)0)->name);
    if (!by_name || !table || !names) {
        free(by_name), free(table), free(names);
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", p->file, n);
    }
    walk_parts(g, parts, ctx, table, names, &n, &n_parts, e);
    gguf_forget(g);
    free(g->tensors), free(p->tensors_by_name);
    g->tensors = table, g->n_tensors = n;
    p->tensors_by_name = by_name, p->part_names = names;
    for (uint64_t i = 0; i < n; i++)
        by_name[i] = &table[i];
    return sort_names(g, p->file, e);
}

int gguf_add_vectors(struct gguf *g, int n, const char (*names)[64], uint64_t len, const int *lens, const float *values, struct err *e)
{
    struct gguf_priv *p = g->priv;
    uint64_t all = g->n_tensors + (uint64_t)n;
    size_t bytes;
    assert(n > 0 && len > 0 && !p->added);
    if (!ck_mul_size((size_t)n * sizeof *values, (size_t)len, &bytes) || all > GGUF_MAX_TENSORS)
        return err_set(e, ERR_LIMIT, "'%s': %d tensors more", p->file, n);
    const struct gguf_tensor **by_name = calloc(all, sizeof *by_name);
    struct gguf_tensor *table = calloc(all, sizeof *table);
    p->added_names = calloc((size_t)n, sizeof *names);
    p->added = malloc(bytes);
    if (!by_name || !table || !p->added_names || !p->added || gguf_know_more(g, all) < 0) {
        free(by_name), free(table);
        return err_set(e, ERR_NOMEM, "'%s': %" PRIu64 " tensors", p->file, all);
    }
    memcpy(p->added_names, names, (size_t)n * sizeof *names);
    memcpy(p->added, values, bytes);
    if (g->n_tensors)
        memcpy(table, g->tensors, g->n_tensors * sizeof *table);
    for (int i = 0; i < n; i++) {
        uint64_t own = lens ? (uint64_t)lens[i] : len;
        table[g->n_tensors + (uint64_t)i] = (struct gguf_tensor){
            .name = p->added_names + (size_t)i * sizeof *names, .type = QUANT_F32, .n_dims = 1, .dims = { own, 1, 1, 1 },
            .row_bytes = own * 4, .n_rows = 1, .bytes = own * 4, .memory = p->added + (size_t)i * (size_t)len * 4 };
    }
    free(g->tensors), free(p->tensors_by_name);
    g->tensors = table, g->n_tensors = all, p->tensors_by_name = by_name;
    for (uint64_t i = 0; i < all; i++)
        by_name[i] = &table[i];
    return sort_names(g, p->file, e);
}
