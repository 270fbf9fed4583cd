/* Reader of packed models. Everything that offsets and sizes depend on is checked here, once: the
 * header by its checksum and against known features, the table by its checksum, every entry for
 * alignment, order, overlap and end of file, every tensor against the shape that the
 * hyper-parameters demand. What is left unchecked is weights, which carry checksums of their own. */
#include "common/pack/pack.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/filekind.h"
#include "common/base/version.h"
#include "common/base/zstream.h"
#include "common/model/gguf.h"
#include "common/model/model_arch.h"
#include "common/pack/pack_format.h"
#include "common/pack/unit_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZSTD_BYTES (512u << 10) /* of a stream, window and buffers */

struct section {            /* a table entry in native form */
    uint32_t kind, codec, role, type, layer, block, segment, n_dims;
    uint64_t dims[4], offset, stored_bytes, bytes, checksum;
};

struct priv {
    const uint8_t *mem;     /* pack_parse: the file is here */
    uint64_t size;
    const char *name;       /* for messages; owned */
    char *name_copy;
    uint8_t *meta;          /* GGUF header */
    char *provenance;
    uint64_t most, taken;   /* bytes of memory that tables and metadata may take (0: any), and those that they take so far */
    struct section order, checks, unit_checks;
    struct section *raw;    /* sections that are read in pieces: clusters, order, checks */
    int n_raw;
    int32_t *dense_index;   /* [model_depth + 1][MODEL_ROLES]: index + 1 into dense, 0: absent; row 0 is the model's own */
};

static struct priv *priv(const struct pack *p)
{
    return p->priv;
}

static int32_t *dense_slot(const struct pack *p, enum model_role role, int layer)
{
    return &priv(p)->dense_index[(size_t)(layer + 1) * MODEL_ROLES + (size_t)role];
}

/* So many bytes more: asked before they are allocated. */
static int take(struct pack *p, uint64_t bytes, const char *what, struct err *e)
{
    struct priv *v = priv(p);
    v->taken += bytes;
    return !v->most || v->taken <= v->most ? 0 :
           err_set(e, ERR_INFEASIBLE, "'%s': with its %s, reading its tables takes %llu bytes of memory; there are %llu: see --memory",
                   v->name, what, (unsigned long long)v->taken, (unsigned long long)v->most);
}

static int read_at(const struct pack *p, void *buf, size_t len, uint64_t off, struct err *e)
{
    if (!ck_range(off, len, priv(p)->size))
        return err_set(e, ERR_FORMAT, "'%s' ends at byte %llu; bytes %llu to %llu are needed", priv(p)->name,
                       (unsigned long long)priv(p)->size, (unsigned long long)off, (unsigned long long)(off + len));
    if (priv(p)->mem) {
        memcpy(buf, priv(p)->mem + off, len);
        return 0;
    }
    return file_pread(&p->file, buf, len, off, e);
}

/* ---- whole sections into memory ---- */

struct stored {
    const struct pack *p;
    uint64_t pos;
};

static int next_stored(void *ctx, void *buf, size_t len, struct err *e)
{
    struct stored *s = ctx;
    int r = read_at(s->p, buf, len, s->pos, e);
    s->pos += len;
    return r;
}

static int read_section(const struct pack *p, uint64_t offset, uint64_t stored_bytes, int zstd, void *out,
                        uint64_t bytes, uint64_t checksum, const char *what, struct err *e)
{
    int r;
    if (zstd) {
        struct stored s = { p, offset };
        r = zstream_expand(next_stored, &s, stored_bytes, out, bytes, PACK_ZSTD_WINDOW_LOG, what, e);
    } else {
        r = read_at(p, out, bytes, offset, e);
    }
    if (r < 0)
        return err_wrap(e, "'%s'", priv(p)->name);
    uint64_t sum = hash_64(out, bytes);
    if (sum != checksum)
        return err_set(e, ERR_FORMAT, "'%s': %s is damaged: checksum %016llx, expected %016llx", priv(p)->name, what,
                       (unsigned long long)sum, (unsigned long long)checksum);
    return 0;
}

/* ---- header ---- */

static int bad_field(const struct pack *p, struct err *e, const char *field, uint64_t value, const char *why)
{
    return err_set(e, ERR_FORMAT, "'%s': header field %s is %llu; %s", priv(p)->name, field, (unsigned long long)value,
                   why);
}

static int check_magic(struct pack *p, const uint8_t *b, size_t n, struct err *e)
{
    if (n < 8)
        return err_set(e, ERR_FORMAT, "'%s' is not a packed model: it has %zu bytes", priv(p)->name, n);
    if (!memcmp(b, "GGUF", 4))
        return err_set(e, ERR_FORMAT, "'%s' is a GGUF file; pack it first with 'thermo-pack pack'", priv(p)->name);
    if (!memcmp(b, PACK_MAGIC_OLD, 8))
        return err_set(e, ERR_UNSUPPORTED, "'%s' is a packed model made by a version before 0.2.0; make it again with 'thermo-pack pack'",
                       priv(p)->name);
    if (memcmp(b, PACK_MAGIC, 8)) {
        struct filekind k = filekind(b, n, priv(p)->size);
        return k.what ? err_set(e, ERR_FORMAT, "'%s' is not a packed model: it is %s; %s", priv(p)->name, k.what, k.next)
                      : err_set(e, ERR_FORMAT, "'%s' is not a packed model: it does not begin with %s", priv(p)->name, PACK_MAGIC);
    }
    if (priv(p)->size < PACK_HEADER_BYTES)
        return 0;
    uint32_t rev = bytes_le32(b + 8);
    if (rev != PACK_REVISION)
        return err_set(e, ERR_UNSUPPORTED, "'%s' is a packed model of revision %u; this build reads revision %d", priv(p)->name, rev,
                       PACK_REVISION);
    if (bytes_le64(b + 248) != hash_64(b, 248))
        return err_set(e, ERR_FORMAT, "'%s': the header is damaged: its checksum differs", priv(p)->name);
    if (bytes_le32(b + 12) != PACK_HEADER_BYTES)
        return bad_field(p, e, "header_bytes", bytes_le32(b + 12), "256 is expected");
    uint64_t incompat = bytes_le64(b + 24) & ~PACK_INCOMPAT_KNOWN;
    if (incompat)
        return err_set(e, ERR_UNSUPPORTED, "'%s' needs features that this build lacks: bits %llx", priv(p)->name,
                       (unsigned long long)incompat);
    if (bytes_le64(b + 32) != priv(p)->size)
        return err_set(e, ERR_FORMAT, "'%s' has %llu bytes; its header says %llu: truncated or appended to",
                       priv(p)->name, (unsigned long long)priv(p)->size, (unsigned long long)bytes_le64(b + 32));
    return 0;
}

static struct hash128 get_hash(const uint8_t *b)
{
    return (struct hash128){ bytes_le64(b), bytes_le64(b + 8) };
}

struct header {
    struct layout layout;
    uint64_t toc_offset, toc_checksum, incompat;
    uint32_t toc_entries, act, n_layers, n_blocks, n_ff, d_model;
};

static int read_header(struct pack *p, struct header *h, struct err *e)
{
    uint8_t b[PACK_HEADER_BYTES];
    uint64_t there = priv(p)->size;
    int r = read_at(p, b, there < sizeof b ? there : sizeof b, 0, e);
    if (r < 0 || (r = check_magic(p, b, there < FILEKIND_HEAD ? there : FILEKIND_HEAD, e)) < 0 || (r = read_at(p, b, sizeof b, 0, e)) < 0)
        return r;
    h->incompat = bytes_le64(b + 24);
    h->toc_offset = bytes_le64(b + 40);
    h->toc_entries = bytes_le32(b + 48);
    h->toc_checksum = bytes_le64(b + 56);
    p->model_hash = get_hash(b + 64);
    p->order_hash = get_hash(b + 80);
    p->layout_hash = get_hash(b + 96);
    h->layout = (struct layout){ .form = (enum layout_form)bytes_le32(b + 112), .packed = (int)bytes_le32(b + 116),
                                 .block_bytes = bytes_le32(b + 120), .cluster_neurons = bytes_le32(b + 124), .n_kinds = 1,
                                 .ungated = (h->incompat & PACK_INCOMPAT_UNGATED) != 0 };
    for (int i = 0; i < LAYOUT_ROLES; i++)
        h->layout.type[0][i] = bytes_le32(b + 128 + 4 * i);
    h->act = bytes_le32(b + 140);
    h->n_layers = bytes_le32(b + 144);
    h->n_blocks = bytes_le32(b + 148);
    h->n_ff = bytes_le32(b + 152);
    h->d_model = bytes_le32(b + 156);
    p->vocab_text_bytes = bytes_le64(b + 160);
    p->n_merges = bytes_le64(b + 168);
    if (bytes_le32(b + 52) != PACK_ENTRY_BYTES)
        return bad_field(p, e, "toc_entry_bytes", bytes_le32(b + 52), "96 is expected");
    if (h->toc_entries > PACK_MAX_ENTRIES)
        return bad_field(p, e, "toc_entries", h->toc_entries, "more than the limit of 1048576");
    if (!ck_range(h->toc_offset, (uint64_t)h->toc_entries * PACK_ENTRY_BYTES, priv(p)->size))
        return bad_field(p, e, "toc_offset", h->toc_offset, "the table would end beyond the file");
    if (h->act >= MODEL_ACTS)
        return bad_field(p, e, "act", h->act, "the activation is not known");
    if (!h->n_layers || h->n_layers > MODEL_MAX_LAYERS || !h->n_blocks || h->n_blocks > MODEL_MAX_EXPERTS)
        return bad_field(p, e, "n_layers", h->n_layers, "or n_blocks is out of range");
    if (!h->n_ff || h->n_ff > MODEL_MAX_DIM || !h->d_model || h->d_model > MODEL_MAX_DIM)
        return bad_field(p, e, "n_ff", h->n_ff, "or d_model is out of range");
    p->identity = bytes_le64(b + 176);
    for (int i = 184; i < 248; i++)
        if (b[i])
            return bad_field(p, e, "reserved", b[i], "0 is expected");
    return 0;
}

/* ---- table of contents ---- */

static struct section get_entry(const uint8_t *b)
{
    struct section s = { bytes_le32(b), bytes_le32(b + 4), bytes_le32(b + 8), bytes_le32(b + 12), bytes_le32(b + 16),
                         bytes_le32(b + 20), bytes_le32(b + 24), bytes_le32(b + 28), { 0 }, bytes_le64(b + 64),
                         bytes_le64(b + 72), bytes_le64(b + 80), bytes_le64(b + 88) };
    for (int i = 0; i < 4; i++)
        s.dims[i] = bytes_le64(b + 32 + 8 * i);
    return s;
}

static int bad_entry(const struct pack *p, uint32_t i, struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "'%s': table entry %u: %s", priv(p)->name, i, why);
}

/* ---- types, and the layout that follows from them ---- */

/* Types layer by layer in place of the header's, which are those of most layers. */
static int read_types(struct pack *p, const struct section *s, uint32_t i, struct header *h, struct err *e)
{
    uint32_t type[MODEL_MAX_LAYERS][LAYOUT_ROLES], usual[LAYOUT_ROLES];
    uint8_t b[sizeof type];
    size_t n = (size_t)h->n_layers * LAYOUT_ROLES;
    if (s->codec != PACK_RAW || s->bytes != n * 4 || s->stored_bytes != s->bytes)
        return bad_entry(p, i, e, "types whose size does not follow from the number of layers");
    int r = read_section(p, s->offset, s->stored_bytes, 0, b, s->bytes, s->checksum, "the table of types", e);
    if (r < 0)
        return r;
    for (size_t k = 0; k < n; k++)
        type[k / LAYOUT_ROLES][k % LAYOUT_ROLES] = bytes_le32(b + 4 * k);
    memcpy(usual, h->layout.type[0], sizeof usual);
    if (layout_set_types(&h->layout, (const uint32_t(*)[LAYOUT_ROLES])type, (int)h->n_layers, e) < 0)
        return err_wrap(e, "'%s'", priv(p)->name);
    if (h->layout.n_kinds == 1 || memcmp(usual, h->layout.type[layout_usual_kind(&h->layout)], sizeof usual) != 0)
        return bad_entry(p, i, e, "types that do not differ between layers, or of which most are not those of the header");
    return 0;
}

/* Before any other entry is looked at: their sizes follow from the layout. */
static int take_layout(struct pack *p, const uint8_t *toc, struct header *h, struct err *e)
{
    int r = 0, found = 0;
    for (uint32_t i = 0; i < h->toc_entries && r == 0; i++) {
        struct section s = get_entry(toc + (size_t)i * PACK_ENTRY_BYTES);
        if (s.kind != PACK_TYPES)
            continue;
        r = found++ ? bad_entry(p, i, e, "a table that is there twice") : read_types(p, &s, i, h, e);
    }
    if (r < 0)
        return r;
    if (layout_derive(&h->layout, (int)h->d_model, (int)h->n_ff, &p->shapes, e) < 0)
        return err_wrap(e, "'%s'", priv(p)->name);
    if (!hash_equal(p->layout_hash, layout_hash(&h->layout)))
        return err_set(e, ERR_FORMAT, "'%s': layout_hash does not match the layout in the file", priv(p)->name);
    return 0;
}

/* What holds for every section whatever its kind. end: where the one before ended. */
static int check_entry(const struct pack *p, const struct section *s, uint32_t i, uint64_t *end, struct err *e)
{
    if (s->codec > PACK_ZSTD)
        return err_set(e, ERR_UNSUPPORTED, "'%s': table entry %u: codec %u is not known", priv(p)->name, i, s->codec);
    if (s->offset % p->shapes.l.block_bytes)
        return bad_entry(p, i, e, "its offset is not on a block boundary");
    if (s->offset < *end)
        return bad_entry(p, i, e, "it overlaps what comes before, or the table is not in file order");
    if (!ck_range(s->offset, s->stored_bytes, priv(p)->size))
        return bad_entry(p, i, e, "it ends beyond the file");
    if (s->codec == PACK_RAW && s->stored_bytes != s->bytes)
        return bad_entry(p, i, e, "raw, but its stored and memory sizes differ");
    if (s->codec == PACK_ZSTD && s->kind != PACK_META && s->kind != PACK_PROVENANCE && s->kind != PACK_DENSE)
        return bad_entry(p, i, e, "a section that is read in pieces cannot be compressed");
    *end = s->offset + s->stored_bytes;
    return 0;
}

static int add_dense(struct pack *p, const struct section *s, uint32_t i, struct err *e)
{
    enum model_role role = (enum model_role)s->role;
    uint64_t want[4];
    int n_dims = s->role < MODEL_ROLES && model_role_is_dense(role) ? model_tensor_shape(&p->h, role, want) : -1;
    if (n_dims < 0)
        return bad_entry(p, i, e, "a dense tensor of unknown role");
    int per_layer = model_role_is_per_layer(role);
    if (per_layer ? s->layer >= (uint32_t)model_depth(&p->h) : s->layer != PACK_NONE)
        return bad_entry(p, i, e, "its layer is out of range");
    if (model_role_at(&p->h, role, per_layer ? (int)s->layer : -1) == MODEL_ABSENT)
        return bad_entry(p, i, e, "a tensor that this layer does not have");
    if (pack_dense_find(p, role, per_layer ? (int)s->layer : -1))
        return bad_entry(p, i, e, "this tensor is there twice");
    model_tensor_shape_at(&p->h, role, per_layer ? (int)s->layer : -1, want);
    if (s->n_dims != (uint32_t)n_dims || memcmp(want, s->dims, sizeof want))
        return err_set(e, ERR_FORMAT,
                       "'%s': tensor %s of layer %d is %llu x %llu; the model's is %llu x %llu",
                       priv(p)->name, model_role_name(role), per_layer ? (int)s->layer : -1,
                       (unsigned long long)s->dims[0], (unsigned long long)s->dims[1],
                       (unsigned long long)want[0], (unsigned long long)want[1]);
    uint64_t row = quant_row_bytes(s->type, s->dims[0]), bytes;
    const struct quant_traits *t = quant_traits(s->type);
    if (!row || !t || !t->dequant)
        return err_set(e, ERR_UNSUPPORTED, "'%s': tensor %s of layer %d has type %u with rows of %llu", priv(p)->name,
                       model_role_name(role), per_layer ? (int)s->layer : -1, s->type, (unsigned long long)s->dims[0]);
    if (!ck_mul_u64(row, s->dims[1], &bytes) || !ck_mul_u64(bytes, s->dims[2], &bytes) ||
        !ck_mul_u64(bytes, s->dims[3], &bytes) || bytes != s->bytes)
        return bad_entry(p, i, e, "its size does not follow from its type and shape");
    struct pack_dense *d = &p->dense[p->n_dense++];
    *dense_slot(p, role, per_layer ? (int)s->layer : -1) = p->n_dense;
    *d = (struct pack_dense){ .role = role, .layer = per_layer ? (int)s->layer : -1, .type = s->type, .n_dims = n_dims,
                              .bytes = s->bytes, .offset = s->offset, .stored_bytes = s->stored_bytes,
                              .zstd = s->codec == PACK_ZSTD, .checksum = s->checksum };
    memcpy(d->dims, s->dims, sizeof d->dims);
    return 0;
}

/* ---- predictors ---- */

static uint64_t to_64(uint64_t n)
{
    return (n + 63) & ~63ull;
}

int pack_predictor_derive(struct pack_predictor *x, int d_model, int n_ff, struct err *e)
{
    if (!predict_bytes(d_model, x->rank, n_ff, x->type1, x->type2, predict_numbers(x->has_bias, x->two_sided))) /* bounds what follows */
        return err_set(e, ERR_UNSUPPORTED,
                       "a predictor of layer %d has rank %d and types %u and %u, which do not fit %d inputs",
                       x->layer, x->rank, x->type1, x->type2, d_model);
    x->curve_offset = PACK_PREDICTOR_HEAD_BYTES;
    x->fc1_offset = to_64(x->curve_offset + (uint64_t)x->n_points * PACK_PREDICTOR_POINT_BYTES);
    x->fc2_offset = to_64(x->fc1_offset + predict_row1_bytes(x->type1, d_model) * (uint64_t)x->rank);
    x->bias_offset = to_64(x->fc2_offset + predict_row2_bytes(x->type2, x->rank) * (uint64_t)n_ff);
    x->bytes = to_64(x->bias_offset + (uint64_t)n_ff * 4 * (uint64_t)predict_numbers(x->has_bias, x->two_sided));
    return 0;
}

static int predictor_order(const struct pack_predictor *a, const struct pack_predictor *b)
{
    return a->input != b->input   ? (int)a->input - (int)b->input
           : a->layer != b->layer ? a->layer - b->layer
                                  : a->block - b->block;
}

static int by_predictor(const void *a, const void *b)
{
    return predictor_order(a, b);
}

static int add_predictor(struct pack *p, const struct section *s, uint32_t i, struct err *e)
{
    const uint64_t known = PACK_PREDICTOR_RELU | PACK_PREDICTOR_BIAS | PACK_PREDICTOR_TWO_SIDED | 0xffull << PACK_PREDICTOR_POINTS_SHIFT;
    uint64_t points = s->dims[3] >> PACK_PREDICTOR_POINTS_SHIFT;
    if (s->role >= PREDICT_INPUTS || s->layer >= (uint32_t)p->h.n_layers ||
        s->block >= (uint32_t)model_ffn_blocks(&p->h))
        return bad_entry(p, i, e, "a predictor of no known input, layer or expert");
    const int n_ff = model_n_ff(&p->h, (int)s->layer);
    if (s->n_dims != 3 || s->dims[0] != (uint64_t)p->h.d_model || s->dims[2] != (uint64_t)n_ff || s->dims[1] < 1 ||
        s->dims[1] > PREDICT_MAX_RANK)
        return bad_entry(p, i, e, "a predictor that does not have the model's shape");
    if (s->dims[3] & ~known || points > PACK_PREDICTOR_POINTS)
        return bad_entry(p, i, e, "a predictor with unknown flags or too many points");
    if (!(s->dims[3] & PACK_PREDICTOR_TWO_SIDED) != !p->h.thresholds ||
        (p->h.thresholds && !(s->dims[3] & PACK_PREDICTOR_BIAS)))
        return bad_entry(p, i, e, p->h.thresholds ? "a one-sided predictor, where neurons have thresholds"
                                                  : "a two-sided predictor, where neurons have no thresholds");
    struct pack_predictor x = { .input = (enum predict_input)s->role, .layer = (int)s->layer, .block = (int)s->block,
                                .rank = (int)s->dims[1], .relu = (s->dims[3] & PACK_PREDICTOR_RELU) != 0,
                                .has_bias = (s->dims[3] & PACK_PREDICTOR_BIAS) != 0,
                                .two_sided = (s->dims[3] & PACK_PREDICTOR_TWO_SIDED) != 0, .n_points = (int)points,
                                .type1 = s->type, .type2 = s->segment, .offset = s->offset, .checksum = s->checksum };
    int r = pack_predictor_derive(&x, p->h.d_model, n_ff, e);
    if (r < 0)
        return err_wrap(e, "'%s': table entry %u", priv(p)->name, i);
    if (s->bytes != x.bytes)
        return bad_entry(p, i, e, "a predictor whose size does not follow from its rank and types");
    p->predictors[p->n_predictors++] = x;
    return 0;
}

static int check_predictors(struct pack *p, struct err *e)
{
    qsort(p->predictors, (size_t)p->n_predictors, sizeof *p->predictors, by_predictor);
    for (int i = 1; i < p->n_predictors; i++)
        if (!predictor_order(&p->predictors[i - 1], &p->predictors[i]))
            return err_set(e, ERR_FORMAT, "'%s': the predictor '%s' of layer %d, expert %d is there twice",
                           priv(p)->name, predict_input_name(p->predictors[i].input), p->predictors[i].layer,
                           p->predictors[i].block);
    return 0;
}

static int add_clusters(struct pack *p, const struct section *s, uint32_t i, struct err *e)
{
    uint32_t n_blocks = (uint32_t)model_ffn_blocks(&p->h);
    if (s->layer >= (uint32_t)p->h.n_layers || s->block >= n_blocks || s->segment >= (uint32_t)p->shapes.n_segments)
        return bad_entry(p, i, e, "a neuron segment of no known layer, expert or segment");
    if (s->bytes != layout_of(&p->shapes, (int)s->layer)->segment_bytes[s->segment])
        return bad_entry(p, i, e, "a neuron segment whose size does not follow from the layout");
    uint64_t *off = &p->segments[(size_t)s->layer * n_blocks + s->block].offset[s->segment];
    if (*off)
        return bad_entry(p, i, e, "a neuron segment that is there twice");
    *off = s->offset;
    return 0;
}

static int add_table(struct pack *p, struct section *slot, const struct section *s, uint64_t want, uint32_t i,
                     struct err *e)
{
    if (slot->kind)
        return bad_entry(p, i, e, "a table that is there twice");
    if (s->bytes != want)
        return bad_entry(p, i, e, "a table whose size does not follow from the model's shape");
    *slot = *s;
    return 0;
}

static int read_meta(struct pack *p, const struct section *s, const struct header *h, struct err *e)
{
    if (s->bytes > PACK_MAX_META)
        return err_set(e, ERR_LIMIT, "'%s': metadata of %llu bytes, more than the limit of %llu", priv(p)->name,
                       (unsigned long long)s->bytes, PACK_MAX_META);
    if (p->meta)
        return err_set(e, ERR_FORMAT, "'%s': two metadata sections", priv(p)->name);
    /* The text, its keys (of at least 14 bytes each), their names, and what decompression needs. */
    uint64_t keys = s->bytes / 14 < GGUF_MAX_KEYS ? s->bytes / 14 : GGUF_MAX_KEYS;
    uint64_t all = s->bytes + keys * (sizeof(struct gguf_key) + 2 * sizeof(void *)) + (s->codec == PACK_ZSTD ? ZSTD_BYTES : 0);
    int r = take(p, all, "metadata", e);
    if (r < 0)
        return r;
    uint8_t *meta = priv(p)->meta = malloc(s->bytes ? s->bytes : 1);
    if (!meta)
        return err_set(e, ERR_NOMEM, "'%s': metadata of %llu bytes", priv(p)->name, (unsigned long long)s->bytes);
    const struct model_given given = { (int)h->act, MODEL_ROUTER_NONE, NULL, 0 }; /* the metadata say which router */
    r = read_section(p, s->offset, s->stored_bytes, s->codec == PACK_ZSTD, meta, s->bytes, s->checksum,
                         "metadata", e);
    if (r < 0 || (r = gguf_parse(meta, s->bytes, s->bytes, priv(p)->name, &p->meta, e)) < 0 ||
        (r = model_hparams_read(p->meta, &given, &p->h, e)) < 0)
        return r;
    priv(p)->dense_index = calloc((size_t)(model_depth(&p->h) + 1) * MODEL_ROLES, sizeof *priv(p)->dense_index);
    if (!priv(p)->dense_index)
        return err_set(e, ERR_NOMEM, "'%s': tables of %d layers", priv(p)->name, model_depth(&p->h));
    p->meta_bytes = s->bytes;
    if (!(h->incompat & PACK_INCOMPAT_MTP) != !p->h.mtp)
        return err_set(e, ERR_FORMAT, "'%s': header field feature_incompat is %llx; bit 0 must be set where the metadata say "
                       "thermocline.mtp, and only there", priv(p)->name, (unsigned long long)h->incompat);
    if (h->layout.ungated && !model_arch_is_ungated(p->h.arch))
        return err_set(e, ERR_FORMAT, "'%s': header field feature_incompat is %llx; bit 1 says that FFNs have no gate, which those of '%s' "
                       "have", priv(p)->name, (unsigned long long)h->incompat, p->h.arch);
    if ((uint32_t)p->h.n_layers != h->n_layers || (uint32_t)model_ffn_blocks(&p->h) != h->n_blocks ||
        (uint32_t)p->h.n_ff != h->n_ff || (uint32_t)p->h.d_model != h->d_model)
        return err_set(
            e, ERR_FORMAT,
            "'%s': header and metadata disagree on the model's shape (layers %u and %d, n_ff %u and %d)",
            priv(p)->name, h->n_layers, p->h.n_layers, h->n_ff, p->h.n_ff);
    if (!p->h.widths[0])
        return 0;
    struct layout own = h->layout;
    if (layout_set_widths(&own, p->h.widths, p->h.n_layers, e) < 0 || layout_derive(&own, p->h.d_model, p->h.n_ff, &p->shapes, e) < 0)
        return err_wrap(e, "'%s'", priv(p)->name);
    return 0;
}

static int read_provenance(struct pack *p, const struct section *s, struct err *e)
{
    if (s->bytes > PACK_MAX_TEXT || priv(p)->provenance)
        return err_set(e, ERR_FORMAT, "'%s': provenance of %llu bytes, or two of them", priv(p)->name,
                       (unsigned long long)s->bytes);
    if (priv(p)->most) /* whoever has a limit runs the model: nobody asks where it comes from */
        return 0;
    char *text = priv(p)->provenance = malloc(s->bytes + 1);
    if (!text)
        return err_set(e, ERR_NOMEM, "'%s': provenance", priv(p)->name);
    text[s->bytes] = 0;
    p->provenance = text;
    return read_section(p, s->offset, s->stored_bytes, s->codec == PACK_ZSTD, text, s->bytes, s->checksum,
                        "provenance", e);
}

static int take_entry(struct pack *p, const struct section *s, uint32_t i, const struct header *h, struct err *e)
{
    if (s->kind == PACK_META)
        return read_meta(p, s, h, e);
    if (s->kind == PACK_PROVENANCE)
        return read_provenance(p, s, e);
    if (s->kind < PACK_META || s->kind > PACK_UNIT_CHECKS)
        return 0; /* a later revision's optional section, what cannot be ignored sets a feature bit; or types, which are known */
    if (!p->meta)
        return bad_entry(p, i, e, "the metadata must come first");
    switch (s->kind) {
    case PACK_DENSE:    return add_dense(p, s, i, e);
    case PACK_ORDER:
        return add_table(p, &priv(p)->order, s, layout_neurons_before(&p->shapes, (int)h->n_layers) * h->n_blocks * 4, i, e);
    case PACK_PREDICTOR: return add_predictor(p, s, i, e);
    case PACK_CHECKS:
        return add_table(p, &priv(p)->checks, s,
                         layout_clusters_before(&p->shapes, (int)h->n_layers) * h->n_blocks * (uint64_t)p->shapes.n_parts * 8, i, e);
    case PACK_UNIT_CHECKS:
        return add_table(p, &priv(p)->unit_checks, s, unit_check_before(&p->shapes, (int)h->n_blocks, (int)h->n_layers) * 4, i,
                         e);
    default:            return add_clusters(p, s, i, e);
    }
}

/* Every tensor that the forward pass will ask for is there. */
static int check_complete(struct pack *p, struct err *e)
{
    if (!p->meta || !priv(p)->order.kind || !priv(p)->checks.kind || !priv(p)->unit_checks.kind)
        return err_set(e, ERR_FORMAT, "'%s': metadata, order, or checksums of clusters or units are missing", priv(p)->name);
    p->unit_checks = (struct pack_unit_checks){ priv(p)->unit_checks.offset, priv(p)->unit_checks.bytes,
                                                priv(p)->unit_checks.checksum };
    if (p->h.tied_output != !pack_dense_find(p, MODEL_OUTPUT, -1))
        return err_set(e, ERR_FORMAT, "'%s': metadata and tensors disagree on whether the head is tied", priv(p)->name);
    int r = check_predictors(p, e);
    if (r < 0)
        return r;
    for (int l = -1; l < model_depth(&p->h); l++) /* -1: the model's own */
        for (int role = 0; role < MODEL_ROLES; role++)
            if (model_role_is_per_layer((enum model_role)role) == (l >= 0) && model_role_is_dense((enum model_role)role) &&
                model_role_at(&p->h, (enum model_role)role, l) == MODEL_REQUIRED && !pack_dense_find(p, (enum model_role)role, l))
                return err_set(e, ERR_FORMAT, "'%s': tensor %s of layer %d is missing", priv(p)->name,
                               model_role_name((enum model_role)role), l);
    for (int l = 0; l < p->h.n_layers; l++)
        for (int b = 0; b < model_ffn_blocks(&p->h); b++)
            for (int s = 0; s < p->shapes.n_segments; s++)
                if (!p->segments[(size_t)l * (size_t)model_ffn_blocks(&p->h) + (size_t)b].offset[s])
                    return err_set(e, ERR_FORMAT, "'%s': segment %d of layer %d, expert %d is missing",
                                   priv(p)->name, s, l, b);
    return 0;
}

static int read_in_pieces(uint32_t kind)
{
    return kind == PACK_ORDER || kind == PACK_CLUSTERS || kind == PACK_CHECKS || kind == PACK_UNIT_CHECKS;
}

static int take_table(struct pack *p, const uint8_t *toc, struct header *h, struct err *e)
{
    if (hash_64(toc, (size_t)h->toc_entries * PACK_ENTRY_BYTES) != h->toc_checksum)
        return err_set(e, ERR_FORMAT, "'%s': the table of contents is damaged: its checksum differs", priv(p)->name);
    uint64_t end = PACK_HEADER_BYTES;
    int bad = take_layout(p, toc, h, e);
    if (bad < 0)
        return bad;
    for (uint32_t i = 0; i < h->toc_entries; i++) {
        struct section s = get_entry(toc + (size_t)i * PACK_ENTRY_BYTES);
        int r = check_entry(p, &s, i, &end, e);
        if (r < 0 || (r = take_entry(p, &s, i, h, e)) < 0)
            return r;
        if (read_in_pieces(s.kind))
            priv(p)->raw[priv(p)->n_raw++] = s;
    }
    return check_complete(p, e);
}

static int take_tables(struct pack *p, const uint8_t *toc, struct header *h, struct err *e)
{
    uint32_t n_raw = 0, n_predictors = 0;
    for (uint32_t i = 0; i < h->toc_entries; i++) {
        uint32_t kind = bytes_le32(toc + (size_t)i * PACK_ENTRY_BYTES);
        n_raw += (uint32_t)read_in_pieces(kind);
        n_predictors += kind == PACK_PREDICTOR;
    }
    p->dense = calloc(h->toc_entries + 1u, sizeof *p->dense);
    p->segments = calloc((size_t)h->n_layers * h->n_blocks, sizeof *p->segments);
    p->predictors = calloc(n_predictors + 1u, sizeof *p->predictors);
    priv(p)->raw = calloc(n_raw + 1u, sizeof *priv(p)->raw);
    if (!p->dense || !p->segments || !p->predictors || !priv(p)->raw)
        return err_set(e, ERR_NOMEM, "'%s': tables for %u sections", priv(p)->name, h->toc_entries);
    return take_table(p, toc, h, e);
}

static int read_toc(struct pack *p, struct header *h, struct err *e)
{
    size_t len = (size_t)h->toc_entries * PACK_ENTRY_BYTES;
    int r = take(p, h->toc_entries * (uint64_t)(PACK_ENTRY_BYTES + sizeof *p->dense + sizeof(struct section)) +
                    (uint64_t)h->n_layers * h->n_blocks * sizeof *p->segments, "table of contents", e);
    if (r < 0)
        return r;
    uint8_t *toc = malloc(len + 1);
    r = toc ? read_at(p, toc, len, h->toc_offset, e)
                : err_set(e, ERR_NOMEM, "'%s': a table of %u sections", priv(p)->name, h->toc_entries);
    if (r == 0)
        r = take_tables(p, toc, h, e);
    free(toc);
    return r;
}

/* ---- open and close ---- */

static struct pack *pack_alloc(const char *name)
{
    struct pack *p = calloc(1, sizeof *p);
    struct priv *v = calloc(1, sizeof *v);
    if (!p || !v || !(v->name_copy = strdup(name))) {
        free(v);
        free(p);
        return NULL;
    }
    v->name = v->name_copy;
    p->priv = v;
    p->file.fd = -1;
    return p;
}

static int open_common(struct pack *p, struct pack **out, struct err *e)
{
    struct header h = { 0 };
    int r = read_header(p, &h, e);
    if (r == 0)
        r = read_toc(p, &h, e);
    if (r < 0) {
        pack_close(p);
        return r;
    }
    *out = p;
    return 0;
}

int pack_open(const char *path, struct pack **out, struct err *e)
{
    return pack_open_within(path, 0, out, e);
}

int pack_open_within(const char *path, uint64_t most, struct pack **out, struct err *e)
{
    struct pack *p = pack_alloc(path);
    if (!p)
        return err_set(e, ERR_NOMEM, "opening '%s'", path);
    priv(p)->most = most;
    int r = file_open(&p->file, path, e);
    if (r < 0) {
        pack_close(p);
        return r;
    }
    priv(p)->size = p->file.size;
    return open_common(p, out, e);
}

uint64_t pack_held_bytes(const struct pack *p)
{
    return priv(p)->taken;
}

int pack_parse(const void *data, size_t len, const char *name, struct pack **out, struct err *e)
{
    struct pack *p = pack_alloc(name);
    if (!p)
        return err_set(e, ERR_NOMEM, "opening '%s'", name);
    priv(p)->mem = data;
    priv(p)->size = len;
    return open_common(p, out, e);
}

void pack_close(struct pack *p)
{
    if (!p)
        return;
    gguf_close(p->meta);
    if (p->file.fd >= 0)
        file_close(&p->file);
    free(priv(p)->dense_index);
    free(priv(p)->raw);
    free(priv(p)->meta);
    free(priv(p)->provenance);
    free(priv(p)->name_copy);
    free(p->priv);
    free(p->dense);
    free(p->segments);
    free(p->predictors);
    free(p);
}

const struct pack_dense *pack_dense_find(const struct pack *p, enum model_role role, int layer)
{
    int32_t i = *dense_slot(p, role, layer);
    return i ? &p->dense[i - 1] : NULL;
}

const struct pack_predictor *pack_predictor_find(const struct pack *p, enum predict_input input, int layer, int block)
{
    const struct pack_predictor key = { .input = input, .layer = layer, .block = block };
    return p->n_predictors ? bsearch(&key, p->predictors, (size_t)p->n_predictors, sizeof key, by_predictor) : NULL;
}

static struct pack_predictor_point get_point(const uint8_t *b)
{
    return (struct pack_predictor_point){ bytes_lef32(b), bytes_lef32(b + 4), bytes_lef32(b + 8), bytes_lef32(b + 12) };
}

static int point_ok(struct pack_predictor_point x)
{
    return x.recall >= 0 && x.recall <= 1 && isfinite(x.threshold) && x.density >= 0 && x.density <= 1 &&
           x.precision >= 0 && x.precision <= 1;
}

static char *predictor_name(const struct pack_predictor *x, char out[96])
{
    snprintf(out, 96, "predictor '%s' of layer %d, expert %d", predict_input_name(x->input), x->layer, x->block);
    return out;
}

int pack_predictor_damaged(const struct pack *p, const struct pack_predictor *x, uint64_t sum, struct err *e)
{
    char what[96];
    return err_set(e, ERR_FORMAT, "'%s': %s is damaged: checksum %016llx, expected %016llx", priv(p)->name,
                   predictor_name(x, what), (unsigned long long)sum, (unsigned long long)x->checksum);
}

int pack_predictor_infinite(const struct pack *p, const struct pack_predictor *x, struct err *e)
{
    char what[96];
    return err_set(e, ERR_FORMAT, "'%s': %s holds numbers that are not finite or shares that are none", priv(p)->name,
                   predictor_name(x, what));
}

int pack_predictor_mispicks(const struct pack *p, const struct pack_predictor *x, struct err *e)
{
    char what[96];
    return err_set(e, ERR_FORMAT, "'%s': %s selects an input beyond the %d that there are, or with a factor that is not finite",
                   priv(p)->name, predictor_name(x, what), p->h.d_model);
}

int pack_predictor_head(const struct pack *p, const struct pack_predictor *x, const void *mem, struct predict *out,
                        struct pack_predictor_figures *figures, struct err *e)
{
    const uint8_t *m = mem;
    struct pack_predictor_figures f = { .at = get_point(m),
                                        .true_density = bytes_lef32(m + 16),
                                        .n_points = x->n_points };
    int ok = point_ok(f.at) && f.true_density >= 0 && f.true_density <= 1;
    for (int i = 0; i < x->n_points; i++) {
        f.curve[i] = get_point(m + x->curve_offset + (size_t)i * PACK_PREDICTOR_POINT_BYTES);
        ok = ok && point_ok(f.curve[i]);
    }
    if (!ok)
        return pack_predictor_infinite(p, x, e);
    struct predict q = { .input = x->input,
                         .relu = x->relu,
                         .d_model = p->h.d_model,
                         .rank = x->rank,
                         .n_ff = model_n_ff(&p->h, x->layer),
                         .two_sided = x->two_sided,
                         .type1 = x->type1,
                         .type2 = x->type2,
                         .threshold = f.at.threshold };
    if (predict_init(&q, e) < 0)
        return err_wrap(e, "'%s'", priv(p)->name);
    *out = q;
    if (figures)
        *figures = f;
    return 0;
}

int pack_predictor_use(const struct pack *p, const struct pack_predictor *x, void *mem, struct predict *out,
                       struct pack_predictor_figures *figures, struct err *e)
{
    uint8_t *m = mem;
    uint64_t sum = hash_64(m, (size_t)x->bytes);
    struct predict q;
    int r, ok = 1;
    if (sum != x->checksum)
        return pack_predictor_damaged(p, x, sum, e);
    if ((r = pack_predictor_head(p, x, m, &q, figures, e)) < 0)
        return r;
    float *bias = (float *)(void *)(m + x->bias_offset);
    for (int i = 0; i < q.n_ff * predict_numbers(x->has_bias, x->two_sided); i++) {
        float v = bytes_lef32((uint8_t *)&bias[i]);
        bias[i] = v;
        ok = ok && isfinite(v);
    }
    if (!ok)
        return pack_predictor_infinite(p, x, e);
    if (!predict_check_selected(x->type1, m + x->fc1_offset, x->rank, p->h.d_model))
        return pack_predictor_mispicks(p, x, e);
    q.fc1 = m + x->fc1_offset;
    q.fc2 = m + x->fc2_offset;
    q.bias = x->has_bias ? bias : NULL;
    *out = q;
    return 0;
}

struct pack_predictor_point pack_predictor_choose(const struct pack_predictor_figures *f, double recall)
{
    struct pack_predictor_point best = f->at;
    float want = (float)recall; /* as the points are stored */
    for (int i = 0; i < f->n_points; i++) {
        struct pack_predictor_point x = f->curve[i];
        int is = x.recall >= want, was = best.recall >= want;
        if (is != was ? is : is ? x.density < best.density : x.recall > best.recall)
            best = x;
    }
    return best;
}

int pack_predictor_read(const struct pack *p, const struct pack_predictor *x, void *mem, struct predict *out,
                        struct pack_predictor_figures *figures, struct err *e)
{
    int r = read_at(p, mem, x->bytes, x->offset, e);
    return r < 0 ? err_wrap(e, "'%s'", priv(p)->name) : pack_predictor_use(p, x, mem, out, figures, e);
}

int pack_dense_read(const struct pack *p, const struct pack_dense *d, void *out, struct err *e)
{
    char what[96];
    if (d->layer < 0)
        snprintf(what, sizeof what, "tensor %s", model_role_name(d->role));
    else
        snprintf(what, sizeof what, "tensor %s of layer %d", model_role_name(d->role), d->layer);
    return read_section(p, d->offset, d->stored_bytes, d->zstd, out, d->bytes, d->checksum, what, e);
}

int pack_order(const struct pack *p, int layer, int block, uint32_t *order, struct err *e)
{
    size_t n = (size_t)layout_of(&p->shapes, layer)->n_ff;
    uint64_t at = (layout_neurons_before(&p->shapes, layer) * (uint64_t)model_ffn_blocks(&p->h) + (uint64_t)block * n) * 4;
    int r = read_at(p, order, n * 4, priv(p)->order.offset + at, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        order[i] = bytes_le32(&order[i]);
        if (order[i] >= n)
            return err_set(e, ERR_FORMAT, "'%s': order of layer %d, expert %d: entry %zu is %u of %zu neurons",
                           priv(p)->name, layer, block, i, order[i], n);
    }
    return 0;
}

int pack_cluster_checksum(const struct pack *p, int layer, int block, int part, uint32_t c, uint64_t *out,
                          struct err *e)
{
    uint64_t at = layout_clusters_before(&p->shapes, layer) * (uint64_t)model_ffn_blocks(&p->h) * (uint64_t)p->shapes.n_parts;
    at += ((uint64_t)block * (uint64_t)p->shapes.n_parts + (uint64_t)part) * layout_of(&p->shapes, layer)->n_clusters + c;
    uint8_t b[8];
    int r = read_at(p, b, sizeof b, priv(p)->checks.offset + at * 8, e);
    if (r == 0)
        *out = bytes_le64(b);
    return r;
}

int pack_unit_checks_read(const struct pack *p, int layer, int block, int part, uint32_t *out, struct err *e)
{
    const struct layout_shape *s = layout_of(&p->shapes, layer);
    uint64_t n = s->part[part].n_units, at = unit_check_before(&p->shapes, model_ffn_blocks(&p->h), layer) +
                                             (uint64_t)block * unit_check_per_block(s) + unit_check_first(s, part);
    int r = read_at(p, out, n * sizeof *out, p->unit_checks.offset + at * sizeof *out, e);
    for (uint64_t i = 0; i < n && r == 0; i++)
        out[i] = bytes_le32(&out[i]);
    return r;
}

void pack_budget_model(const struct pack *p, struct budget_model *out)
{
    *out = (struct budget_model){ .h = p->h, .shapes = p->shapes, .vocab_text_bytes = p->vocab_text_bytes, .n_merges = p->n_merges,
                                  .meta_bytes = p->meta_bytes };
    for (int i = 0; i < p->n_dense; i++)
        budget_add_dense(out, p->dense[i].role, p->dense[i].bytes, p->dense[i].dims[1], !p->dense[i].zstd); /* sizes of a file's parts */
}

int pack_verify_segments(const struct pack *p, int *bad, char *text, size_t text_len, struct err *e)
{
    int r = 0;
    *bad = 0;
    for (int i = 0; i < priv(p)->n_raw && r == 0; i++) {
        const struct section *s = &priv(p)->raw[i];
        struct hash_room room;
        struct hash *h = hash_new_in(&room);
        for (uint64_t at = 0; at < s->bytes && r == 0;) {
            uint8_t piece[1 << 16];
            size_t n = s->bytes - at < sizeof piece ? (size_t)(s->bytes - at) : sizeof piece;
            if ((r = file_go_on(e)) == 0 && (r = read_at(p, piece, n, s->offset + at, e)) == 0)
                hash_update(h, piece, n);
            at += n;
        }
        if (r == 0 && hash_final64(h) != s->checksum && !(*bad)++)
            snprintf(text, text_len,
                     "the section at byte %llu (kind %u, layer %d, expert %d) is damaged, weights or padding",
                     (unsigned long long)s->offset, s->kind, (int)s->layer, (int)s->block);
    }
    return r;
}
