/* Writer of traces: attributes from the field table, datasets row by row with a running hash each,
 * the content hash last. HDF5 writes into the temporary file of file_out, so that the name holds
 * the old trace, or none, until the new one is whole. */
#include "common/offline/trace/trace_write.h"

#include "common/base/file.h"
#include "common/base/version.h"
#include "common/offline/trace/trace_fields.h"
#include "common/offline/trace/trace_h5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace_writer {
    const struct trace_info *info;
    struct file_out out;
    struct trace_h5_file h5;
    int gzip;
    struct trace_h5_set set;          /* being written */
    int open, which, layer;     /* which set of which layer that is */
    uint64_t row, row_bytes;
    struct hash *hash;
    struct hash128 *hashes;     /* [n_layers][TRACE_SETS]; those of the corpus and batches in [0] */
    uint8_t *done;              /* likewise */
};

/* Numbers of the layers, as text: "6144 6144 12288". */
static int put_by_layer(struct trace_writer *w, const struct trace_field *f, const int *v, struct err *e)
{
    char text[TRACE_BY_LAYER_TEXT] = "";
    size_t len = 0;
    for (int l = 0; l < w->info->h.n_layers && v[0]; l++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", l ? " " : "", v[l]);
    return v[0] ? trace_h5_put_text(&w->h5, f->group, f->name, text, e) : 0;
}

static int put_fields(struct trace_writer *w, struct err *e)
{
    int r = 0;
    for (int i = 0; i < trace_n_fields && !r; i++) {
        const struct trace_field *f = &trace_fields[i];
        const void *p = (const char *)w->info + f->offset;
        char text[HASH_TEXT];
        switch (f->kind) {
        case TRACE_FIELD_OPT_INT:
            if (!((const int *)p)[0])
                break;
            /* fall through */
        case TRACE_FIELD_INT:
            r = trace_h5_put_u64(&w->h5, f->group, f->name, (uint64_t)((const int *)p)[0], e);
            break;
        case TRACE_FIELD_U64: r = trace_h5_put_u64(&w->h5, f->group, f->name, *(const uint64_t *)p, e); break;
        case TRACE_FIELD_F32: r = trace_h5_put_f64(&w->h5, f->group, f->name, *(const float *)p, e); break;
        case TRACE_FIELD_OPT_TEXT:
            if (!*(const char *)p)
                break;
            /* fall through */
        case TRACE_FIELD_TEXT: r = trace_h5_put_text(&w->h5, f->group, f->name, p, e); break;
        case TRACE_FIELD_HASH:
            hash_text(*(const struct hash128 *)p, text);
            r = trace_h5_put_text(&w->h5, f->group, f->name, text, e);
            break;
        case TRACE_FIELD_BY_LAYER: r = put_by_layer(w, f, p, e); break;
        }
    }
    return r;
}

static int put_texts(struct trace_writer *w, struct err *e)
{
    const struct model_hparams *h = &w->info->h;
    struct trace_h5_file *f = &w->h5;
    int r;
    if ((r = trace_h5_put_text(f, "/", "format", TRACE_FORMAT, e)) < 0 ||
        (r = trace_h5_put_u64(f, "/", "revision", TRACE_REVISION, e)) < 0 ||
        (r = trace_h5_put_u64(f, "/", "feature_incompat", 0, e)) < 0 ||
        (r = trace_h5_put_text(f, "/", "bit_order", "bit i%8 (1 << i%8) of byte i/8 is neuron i", e)) < 0 ||
        (r = trace_h5_put_text(f, "/", "active", trace_active_text(h), e)) < 0 ||
        (r = trace_h5_put_text(f, "/model", "act", model_act_name(h->act), e)) < 0 ||
        (r = trace_h5_put_text(f, "/model", "rope", trace_rope_name(h->rope), e)) < 0 ||
        (r = trace_h5_put_text(f, "/model", "router", model_router_name(h->router), e)) < 0)
        return r;
    return 0;
}

static int put_column(struct trace_writer *w, const char *name, enum trace_type type, size_t text, int n_dims,
                      uint64_t second, const void *data, struct err *e)
{
    struct trace_h5_set s;
    uint64_t dims[2] = { (uint64_t)w->info->n_tensors, second }, first[2] = { 0, 0 };
    int r = trace_h5_set_create(&w->h5, &s, name, type, text, n_dims, dims, w->gzip, e);
    if (r < 0)
        return r;
    r = trace_h5_set_write(&s, first, dims, data, e);
    trace_h5_set_close(&s);
    return r;
}

/* The tensor table, a dataset per column. */
static int put_tensors(struct trace_writer *w, struct err *e)
{
    const struct trace_info *info = w->info;
    size_t n = (size_t)info->n_tensors, len = 1;
    for (size_t i = 0; i < n; i++)
        if (strlen(info->tensors[i].name) > len)
            len = strlen(info->tensors[i].name);
    enum { ROLE = 32 };
    char *names = calloc(n, len), *roles = calloc(n, ROLE), *hashes = calloc(n, HASH_TEXT - 1);
    uint32_t *layers = calloc(n, 4), *types = calloc(n, 4), *n_dims = calloc(n, 4);
    uint64_t *dims = calloc(n, 32), *bytes = calloc(n, 8);
    int r = 0;
    if (!names || !roles || !hashes || !layers || !types || !n_dims || !dims || !bytes) {
        r = err_set(e, ERR_NOMEM, "tensor table of %zu", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const struct trace_tensor *t = &info->tensors[i];
        char text[HASH_TEXT];
        hash_text(t->hash, text);
        memcpy(names + i * len, t->name, strlen(t->name));
        memcpy(roles + i * ROLE, model_role_name(t->role), strlen(model_role_name(t->role)));
        memcpy(hashes + i * (HASH_TEXT - 1), text, HASH_TEXT - 1);
        layers[i] = t->layer < 0 ? UINT32_MAX : (uint32_t)t->layer;
        types[i] = t->type;
        n_dims[i] = (uint32_t)t->n_dims;
        bytes[i] = t->bytes;
        for (int d = 0; d < 4; d++)
            dims[i * 4 + (size_t)d] = d < t->n_dims ? t->dims[d] : 1;
    }
    if ((r = trace_h5_put_u64(&w->h5, "/tensors", "n", n, e)) < 0 ||
        (r = put_column(w, "/tensors/name", TRACE_TEXT, len, 1, 0, names, e)) < 0 ||
        (r = put_column(w, "/tensors/role", TRACE_TEXT, ROLE, 1, 0, roles, e)) < 0 ||
        (r = put_column(w, "/tensors/layer", TRACE_U32, 0, 1, 0, layers, e)) < 0 ||
        (r = put_column(w, "/tensors/type", TRACE_U32, 0, 1, 0, types, e)) < 0 ||
        (r = put_column(w, "/tensors/n_dims", TRACE_U32, 0, 1, 0, n_dims, e)) < 0 ||
        (r = put_column(w, "/tensors/dims", TRACE_U64, 0, 2, 4, dims, e)) < 0 ||
        (r = put_column(w, "/tensors/bytes", TRACE_U64, 0, 1, 0, bytes, e)) < 0 ||
        (r = put_column(w, "/tensors/hash", TRACE_TEXT, HASH_TEXT - 1, 1, 0, hashes, e)) < 0)
        goto out;
out:
    free(names), free(roles), free(hashes), free(layers), free(types), free(n_dims), free(dims), free(bytes);
    return r;
}

static int put_groups(struct trace_writer *w, struct err *e)
{
    static const char *const fixed[] = { "/model", "/tensors", "/corpus", "/batches", "/layers" };
    int r = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && !r; i++)
        r = trace_h5_group_create(&w->h5, fixed[i], e);
    for (int l = 0; l < w->info->h.n_layers && !r; l++) {
        char path[32];
        trace_part_path(TRACE_PART_LAYER, l, path);
        r = trace_h5_group_create(&w->h5, path, e);
    }
    return r;
}

static int put_batches(struct trace_writer *w, struct err *e)
{
    uint32_t sizes[TRACE_BATCH_SIZES];
    for (int i = 0; i < TRACE_BATCH_SIZES; i++)
        sizes[i] = (uint32_t)trace_batch_sizes[i];
    int r = trace_writer_append(w, TRACE_SET_SIZES, 0, TRACE_BATCH_SIZES, sizes, e);
    return r < 0 ? r : trace_writer_append(w, TRACE_SET_N_BATCHES, 0, TRACE_BATCH_KINDS, w->info->n_batches, e);
}

int trace_writer_open(const char *path, const struct trace_info *info, int gzip, struct trace_writer **out,
                      struct err *e)
{
    struct trace_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "writing '%s'", path);
    *w = (struct trace_writer){
        .info = info, .gzip = gzip, .h5.id = -1, .out.fd = -1, .set = { .id = -1, .type = -1 }
    };
    size_t n = (size_t)info->h.n_layers * TRACE_SETS;
    w->hashes = calloc(n, sizeof *w->hashes);
    w->done = calloc(n, 1);
    int r = w->hashes && w->done ? 0 : err_set(e, ERR_NOMEM, "writing '%s'", path);
    if (r < 0 ||
        (r = file_out_open(&w->out, path, e)) < 0 ||
        (r = trace_h5_create(&w->h5, w->out.tmp, path, e)) < 0 ||
        (r = put_groups(w, e)) < 0 ||
        (r = put_texts(w, e)) < 0 ||
        (r = put_fields(w, e)) < 0 ||
        (r = put_tensors(w, e)) < 0 ||
        (r = put_batches(w, e)) < 0) {
        trace_writer_abort(w);
        return r;
    }
    *out = w;
    return 0;
}

/* Complete the dataset being written. */
static int end_set(struct trace_writer *w, struct err *e)
{
    if (!w->open)
        return 0;
    if (w->row != w->set.dims[0])
        return err_set(e, ERR_LIMIT, "dataset '%s' was given %llu of %llu rows", w->set.name,
                       (unsigned long long)w->row, (unsigned long long)w->set.dims[0]);
    w->hashes[w->layer * TRACE_SETS + w->which] = hash_final128(w->hash);
    w->done[w->layer * TRACE_SETS + w->which] = 1;
    hash_free(w->hash);
    w->hash = NULL;
    trace_h5_set_close(&w->set);
    w->open = 0;
    file_begin_sync(w->out.fd);
    return 0;
}

static int begin_set(struct trace_writer *w, enum trace_set s, int layer, int n_dims, const uint64_t *dims,
                     struct err *e)
{
    char name[64], path[32];
    trace_part_path(trace_set_specs[s].part, layer, path);
    snprintf(name, sizeof name, "%s/%s", path, trace_set_specs[s].name);
    w->hash = hash_new();
    if (!w->hash)
        return err_set(e, ERR_NOMEM, "hash of '%s'", name);
    int r = trace_h5_set_create(&w->h5, &w->set, name, trace_set_specs[s].type, 0, n_dims, dims, w->gzip, e);
    if (r < 0)
        return r;
    w->open = 1, w->which = (int)s, w->layer = layer, w->row = 0;
    return 0;
}

int trace_writer_append(struct trace_writer *w, enum trace_set s, int layer, uint64_t n, const void *rows,
                        struct err *e)
{
    uint64_t dims[3], row_bytes, first[3] = { 0, 0, 0 };
    int r, n_dims = trace_set_dims(w->info, s, dims, &row_bytes);
    if (trace_set_specs[s].part != TRACE_PART_LAYER)
        layer = 0;
    if (!n_dims || !n)
        return 0;
    if (!w->open || w->which != (int)s || w->layer != layer) {
        if ((r = end_set(w, e)) < 0 || (r = begin_set(w, s, layer, n_dims, dims, e)) < 0)
            return r;
    }
    first[0] = w->row;
    dims[0] = n;
    if ((r = trace_h5_set_write(&w->set, first, dims, rows, e)) < 0)
        return r;
    hash_update(w->hash, rows, (size_t)(n * row_bytes));
    w->row += n;
    return 0;
}

static int put_hash(struct trace_writer *w, const char *group, struct hash128 h, struct err *e)
{
    char text[HASH_TEXT];
    hash_text(h, text);
    return trace_h5_put_text(&w->h5, group, "content_hash", text, e);
}

static int check_done(const struct trace_writer *w, struct err *e)
{
    for (int l = 0; l < w->info->h.n_layers; l++)
        for (int s = 0; s < TRACE_SETS; s++) {
            uint64_t dims[3], row;
            int per_layer = trace_set_specs[s].part == TRACE_PART_LAYER;
            if ((per_layer || !l) && trace_set_dims(w->info, s, dims, &row) && !w->done[l * TRACE_SETS + s])
                return err_set(e, ERR_LIMIT, "dataset '%s' of layer %d was not written", trace_set_specs[s].name, l);
        }
    return 0;
}

int trace_writer_commit(struct trace_writer *w, struct hash128 *content, struct err *e)
{
    int n = w->info->h.n_layers;
    struct hash128 *layers = malloc((size_t)n * sizeof *layers), all = { 0, 0 };
    int r = layers ? 0 : err_set(e, ERR_NOMEM, "hashes of %d layers", n);
    if (r < 0 || (r = end_set(w, e)) < 0 || (r = check_done(w, e)) < 0)
        goto out;
    struct hash128 corpus = trace_part_hash(w->info, TRACE_PART_CORPUS, w->hashes);
    struct hash128 batches = trace_part_hash(w->info, TRACE_PART_BATCHES, w->hashes);
    if ((r = put_hash(w, "/corpus", corpus, e)) < 0 || (r = put_hash(w, "/batches", batches, e)) < 0)
        goto out;
    for (int l = 0; l < n && !r; l++) {
        char path[32];
        trace_part_path(TRACE_PART_LAYER, l, path);
        layers[l] = trace_part_hash(w->info, TRACE_PART_LAYER, w->hashes + (size_t)l * TRACE_SETS);
        r = put_hash(w, path, layers[l], e);
    }
    if (r < 0)
        goto out;
    all = trace_content_hash(w->info, corpus, batches, layers);
    if ((r = put_hash(w, "/", all, e)) < 0 ||
        (r = trace_h5_close(&w->h5, e)) < 0 ||
        (r = file_out_commit(&w->out, e)) < 0)
        goto out;
    if (content)
        *content = all;
out:
    free(layers);
    return r;
}

void trace_writer_abort(struct trace_writer *w)
{
    if (!w)
        return;
    trace_h5_set_close(&w->set);
    trace_h5_close(&w->h5, NULL);
    file_out_abort(&w->out);
    hash_free(w->hash);
    free(w->hashes);
    free(w->done);
    free(w);
}

void trace_window(const uint64_t *starts, uint64_t n_sequences, uint64_t wanted, uint64_t *sequences, uint64_t *tokens)
{
    uint64_t n = 0;
    while (wanted && n < n_sequences && (n == 0 || starts[n + 1] <= wanted))
        n++;
    *sequences = n;
    *tokens = starts[n];
}

uint64_t trace_sample_token(uint64_t s, uint64_t n, uint64_t n_tokens)
{
    /* The middle of the s-th of n equal stretches. Counts are below 2^40 and samples fewer, so 128 bits do. */
    return (uint64_t)((unsigned __int128)(2 * s + 1) * n_tokens / (2 * (unsigned __int128)n));
}
