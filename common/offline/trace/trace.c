/* Reader of traces. Attributes are read and limited first; they determine the exact shape of every
 * dataset (trace_spec.c), and a dataset is opened only with that shape and type, so that nothing in
 * the file chooses how much memory is taken. */
#include "common/offline/trace/trace_impl.h"
#include "common/offline/trace/trace.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/base/version.h"
#include "common/offline/trace/trace_fields.h"
#include "common/offline/trace/trace_h5.h"
#include "common/plan/budget.h"
#include "common/plan/layout.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct trace {
    struct trace_info info;
    struct trace_h5_file h5;
    uint64_t *starts, *index;
    struct {
        struct trace_h5_set set;
        int layer;               /* -1: closed */
    } cache[TRACE_SETS];         /* the last one opened of each kind */
};

static int bad(const struct trace *t, struct err *e, const char *what)
{
    return err_set(e, ERR_FORMAT, "'%s': %s", t->info.path, what);
}

/* ---- opening ---- */

static int get_by_layer(struct trace *t, const struct trace_field *f, int *out, struct err *e)
{
    char text[TRACE_BY_LAYER_TEXT], *at = text;
    int n = t->info.h.n_layers, ok = n <= MODEL_MAX_BLOCKS, r = trace_h5_has_attr(&t->h5, f->group, f->name, e);
    if (r <= 0 || (r = trace_h5_get_text(&t->h5, f->group, f->name, text, sizeof text, e)) < 0)
        return r;
    for (int l = 0; l < n && ok; l++) {
        char *end = at;
        unsigned long v = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        ok = end > at && v >= f->min && v <= f->max && *end == (l + 1 < n ? ' ' : '\0');
        out[l] = ok ? (int)v : 0;
        at = end + 1;
    }
    return ok ? 0 : err_set(e, ERR_FORMAT, "'%s': attribute '%s' of '%s' is no list of %d numbers from %llu to %llu", t->info.path, f->name,
                            f->group, n, (unsigned long long)f->min, (unsigned long long)f->max);
}

static int get_field(struct trace *t, const struct trace_field *f, struct err *e)
{
    void *p = (char *)&t->info + f->offset;
    uint64_t u = 0;
    double d = 0;
    char text[HASH_TEXT];
    int r = 0;
    switch (f->kind) {
    case TRACE_FIELD_OPT_INT:
        if ((r = trace_h5_has_attr(&t->h5, f->group, f->name, e)) <= 0)
            break;
        /* fall through */
    case TRACE_FIELD_INT:
        if ((r = trace_h5_get_u64(&t->h5, f->group, f->name, f->min, f->max, &u, e)) == 0)
            *(int *)p = (int)u;
        break;
    case TRACE_FIELD_U64:
        r = trace_h5_get_u64(&t->h5, f->group, f->name, f->min, f->max, p, e);
        break;
    case TRACE_FIELD_F32:
        if ((r = trace_h5_get_f64(&t->h5, f->group, f->name, &d, e)) == 0) {
            if (!isfinite(d) || d < 0 || d > 1e30)
                return err_set(e, ERR_FORMAT, "'%s': attribute '%s' of '%s' is %g", t->info.path, f->name, f->group, d);
            *(float *)p = (float)d;
        }
        break;
    case TRACE_FIELD_OPT_TEXT:
        if ((r = trace_h5_has_attr(&t->h5, f->group, f->name, e)) <= 0)
            break;
        /* fall through */
    case TRACE_FIELD_TEXT:
        r = trace_h5_get_text(&t->h5, f->group, f->name, p, f->len, e);
        break;
    case TRACE_FIELD_HASH:
        if ((r = trace_h5_get_text(&t->h5, f->group, f->name, text, sizeof text, e)) == 0 && hash_parse(text, p) < 0)
            return err_set(e, ERR_FORMAT, "'%s': attribute '%s' of '%s' is no hash: '%s'", t->info.path, f->name,
                           f->group, text);
        break;
    case TRACE_FIELD_BY_LAYER: r = get_by_layer(t, f, p, e); break;
    }
    return r;
}

static int check_format(struct trace *t, struct err *e)
{
    char format[64];
    uint64_t revision, unknown;
    int r = trace_h5_get_text(&t->h5, "/", "format", format, sizeof format, e);
    if (r == ERR_NOMEM || r == ERR_IO)
        return r;
    if (r == 0 && !strcmp(format, "thermocline-trace"))
        return err_set(e, ERR_UNSUPPORTED, "'%s' is a trace made by a version before 0.2.0; make it again with 'thermo-profile trace'",
                       t->info.path);
    if (r < 0 || strcmp(format, TRACE_FORMAT))
        return err_set(e, ERR_FORMAT, "'%s' is an HDF5 file, but no trace: its attribute 'format' is not \"" TRACE_FORMAT "\"",
                       t->info.path);
    if ((r = trace_h5_get_u64(&t->h5, "/", "revision", 0, UINT64_MAX, &revision, e)) < 0)
        return r;
    if (revision != TRACE_REVISION)
        return err_set(e, ERR_UNSUPPORTED, "'%s': trace revision %llu; this build reads %d", t->info.path,
                       (unsigned long long)revision, TRACE_REVISION);
    if ((r = trace_h5_get_u64(&t->h5, "/", "feature_incompat", 0, UINT64_MAX, &unknown, e)) == 0 && unknown)
        r = err_set(e, ERR_UNSUPPORTED, "'%s' needs features that this build lacks: bits %llx", t->info.path,
                    (unsigned long long)unknown);
    return r;
}

static int read_names(struct trace *t, struct err *e)
{
    struct model_hparams *h = &t->info.h;
    char v[32];
    int r;
    if ((r = trace_h5_get_text(&t->h5, "/model", "act", v, sizeof v, e)) < 0)
        return r;
    int act = model_act_by_name(v);
    if (act < 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s': attribute 'act' of '/model' is '%s', which is not known",
                       t->info.path, v);
    h->act = (enum model_act)act;
    if ((r = trace_h5_get_text(&t->h5, "/model", "rope", v, sizeof v, e)) < 0)
        return r;
    h->rope = strcmp(v, "neox") ? MODEL_ROPE_NORM : MODEL_ROPE_NEOX;
    if (strcmp(v, trace_rope_name(h->rope)))
        return err_set(e, ERR_UNSUPPORTED, "'%s': attribute 'rope' of '/model' is '%s', which is not known",
                       t->info.path, v);
    if ((r = trace_h5_get_text(&t->h5, "/model", "router", v, sizeof v, e)) < 0)
        return r;
    int router = model_router_by_name(v);
    if (router < 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s': attribute 'router' of '/model' is '%s', which is not known",
                       t->info.path, v);
    h->router = (enum model_router)router;
    return 0;
}

static int check_info(const struct trace *t, struct err *e)
{
    const struct trace_info *i = &t->info;
    const struct model_hparams *h = &i->h;
    const struct trace_corpus *c = &i->corpus;
#define RULE(wrong, what) if (wrong) return bad(t, e, what);
#include "common/model/hparams.def"
    if (i->shard >= i->n_shards)
        return bad(t, e, "shard is not below n_shards");
    if (i->window_tokens > i->n_tokens || i->window_sequences > i->n_sequences || i->n_samples > i->n_tokens)
        return bad(t, e, "window or samples exceed the trace");
    if (i->n_tokens > c->n_tokens || i->n_sequences > c->n_sequences || i->window_tokens > c->window_tokens ||
        i->window_sequences > c->window_sequences || i->n_samples > c->n_samples)
        return bad(t, e, "the trace exceeds its corpus");
    if (i->n_shards == 1 && (i->n_tokens != c->n_tokens || i->n_sequences != c->n_sequences ||
                             i->window_tokens != c->window_tokens || i->n_samples != c->n_samples))
        return bad(t, e, "a whole trace differs from its corpus in size");
    return 0;
}

/* Keep the dataset of that layer open, if the trace has it. */
static int open_set(struct trace *t, enum trace_set s, int layer, struct err *e)
{
    uint64_t dims[3], row;
    char path[32], name[64];
    int r, n = trace_set_dims(&t->info, s, dims, &row);
    if (!n || t->cache[s].layer == layer)
        return 0;
    if (t->cache[s].layer >= 0)
        trace_h5_set_close(&t->cache[s].set);
    t->cache[s].layer = -1;
    trace_part_path(trace_set_specs[s].part, layer, path);
    snprintf(name, sizeof name, "%s/%s", path, trace_set_specs[s].name);
    if ((r = trace_h5_set_open(&t->h5, &t->cache[s].set, name, trace_set_specs[s].type, NULL, n, dims, e)) < 0)
        return r;
    t->cache[s].layer = layer;
    return 0;
}

/* A whole dataset into memory. */
static int slurp(struct trace *t, enum trace_set s, void *out, struct err *e);

static int read_corpus(struct trace *t, struct err *e)
{
    const struct trace_info *i = &t->info;
    int r;
    for (int k = 0; k < TRACE_SETS; k++) /* their shapes, before memory is taken for any */
        if (trace_set_specs[k].part != TRACE_PART_LAYER && (r = open_set(t, (enum trace_set)k, 0, e)) < 0)
            return r;
    t->starts = malloc((size_t)(i->n_sequences + 1) * 8);
    t->index = malloc((size_t)i->n_sequences * 8);
    if (!t->starts || !t->index)
        return err_set(e, ERR_NOMEM, "'%s': %llu sequences", i->path, (unsigned long long)i->n_sequences);
    if ((r = slurp(t, TRACE_SET_STARTS, t->starts, e)) < 0 ||
        (r = slurp(t, TRACE_SET_INDEX, t->index, e)) < 0 ||
        (r = slurp(t, TRACE_SET_N_BATCHES, t->info.n_batches, e)) < 0)
        return r;
    if (t->starts[0] || t->starts[i->n_sequences] != i->n_tokens)
        return bad(t, e, "dataset '/corpus/sequence_starts' does not span the tokens");
    for (uint64_t k = 0; k < i->n_sequences; k++) {
        if (t->starts[k + 1] <= t->starts[k])
            return bad(t, e, "dataset '/corpus/sequence_starts' does not ascend");
        if (t->index[k] >= i->corpus.n_sequences || (k && t->index[k] <= t->index[k - 1]))
            return bad(t, e, "dataset '/corpus/sequence_index' does not ascend within the corpus");
    }
    if (t->starts[i->window_sequences] != i->window_tokens)
        return bad(t, e, "window_tokens is not the length of the first window_sequences sequences");
    uint32_t sizes[TRACE_BATCH_SIZES];
    if ((r = slurp(t, TRACE_SET_SIZES, sizes, e)) < 0)
        return r;
    for (int k = 0; k < TRACE_BATCH_SIZES; k++)
        if (sizes[k] != (uint32_t)trace_batch_sizes[k])
            return bad(t, e, "dataset '/batches/sizes' is not 1 2 3 4 8 16 32");
    return 0;
}

/* ---- the tensor table ---- */

int trace_stored_hash(struct trace *t, const char *path, struct hash128 *out, struct err *e)
{
    char text[HASH_TEXT];
    int r = trace_h5_get_text(&t->h5, path, "content_hash", text, sizeof text, e);
    if (r < 0)
        return r;
    return hash_parse(text, out) < 0 ? err_set(e, ERR_FORMAT, "'%s': attribute 'content_hash' of '%s' is no hash: '%s'",
                                               t->info.path, path, text) : 0;
}

static int column(struct trace *t, const char *name, enum trace_type type, int n_dims, uint64_t second,
                  size_t *text_bytes, void **out, struct err *e)
{
    struct trace_h5_set s;
    uint64_t dims[2] = { (uint64_t)t->info.n_tensors, second }, first[2] = { 0, 0 };
    int r = trace_h5_set_open(&t->h5, &s, name, type, text_bytes, n_dims, dims, e);
    if (r < 0)
        return r;
    size_t bytes = type == TRACE_TEXT ? *text_bytes : trace_type_bytes(type);
    *out = malloc((size_t)dims[0] * (size_t)second * bytes);
    r = *out ? trace_h5_set_read(&s, first, dims, *out, e) : err_set(e, ERR_NOMEM, "dataset '%s'", name);
    trace_h5_set_close(&s);
    return r;
}

static int role_by_name(const char *name, size_t len)
{
    for (int r = 0; r < MODEL_ROLES; r++)
        if (strlen(model_role_name(r)) == len && !memcmp(model_role_name(r), name, len))
            return r;
    return -1;
}

static int check_tensor(const struct trace *t, const struct trace_tensor *x, struct err *e)
{
    uint64_t bytes = quant_row_bytes(x->type, x->dims[0]);
    int ok = bytes > 0 && x->dims[0] > 0;
    for (int d = 1; ok && d < 4; d++)
        ok = x->dims[d] && ck_mul_u64(bytes, x->dims[d], &bytes);
    if (!ok || bytes != x->bytes)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' has %llu bytes, which do not follow from its type %u and dims",
                       t->info.path, x->name, (unsigned long long)x->bytes, x->type);
    if (model_role_is_per_layer(x->role) ? x->layer < 0 || x->layer >= model_depth(&t->info.h) : x->layer != -1)
        return err_set(e, ERR_FORMAT, "'%s': tensor '%s' is of layer %d of %d", t->info.path, x->name, x->layer,
                       model_depth(&t->info.h));
    return 0;
}

/* Later steps index the FFN by what these say. */
static int check_ffn(const struct trace *t, struct err *e)
{
    const struct model_hparams *h = &t->info.h;
    static const enum model_role roles[4] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN, MODEL_FFN_THRESHOLD };
    for (int l = 0; l < h->n_layers; l++)
        for (int i = 0; i < (h->thresholds || h->cold_thresholds ? 4 : 3); i++) {
            const struct trace_tensor *x = trace_tensor_find(&t->info, roles[i], l);
            uint64_t want[4];
            if (!x || model_tensor_shape_at(h, roles[i], l, want) < 0 || memcmp(want, x->dims, sizeof want))
                return err_set(e, ERR_FORMAT,
                               "'%s': tensor %s of layer %d is missing or does not have the dimensions that n_ff and d_model give it",
                               t->info.path, model_role_name(roles[i]), l);
        }
    return 0;
}

static int read_tensors(struct trace *t, struct err *e)
{
    uint64_t n;
    int r = trace_h5_exists(&t->h5, "/tensors", e);
    if (r <= 0)
        return r < 0 ? r : bad(t, e, "group '/tensors' is missing");
    if ((r = trace_h5_get_u64(&t->h5, "/tensors", "n", 1, GGUF_MAX_TENSORS, &n, e)) < 0)
        return r;
    t->info.n_tensors = (int)n;
    void *names = NULL, *roles = NULL, *layers = NULL, *types = NULL, *n_dims = NULL, *dims = NULL, *bytes = NULL,
         *hashes = NULL;
    size_t name_len = 0, role_len = 0, hash_len = 0;
    t->info.tensors = calloc((size_t)n, sizeof *t->info.tensors);
    r = t->info.tensors ? 0 : err_set(e, ERR_NOMEM, "'%s': %llu tensors", t->info.path, (unsigned long long)n);
    if (r < 0 ||
        (r = column(t, "/tensors/name", TRACE_TEXT, 1, 1, &name_len, &names, e)) < 0 ||
        (r = column(t, "/tensors/role", TRACE_TEXT, 1, 1, &role_len, &roles, e)) < 0 ||
        (r = column(t, "/tensors/layer", TRACE_U32, 1, 1, NULL, &layers, e)) < 0 ||
        (r = column(t, "/tensors/type", TRACE_U32, 1, 1, NULL, &types, e)) < 0 ||
        (r = column(t, "/tensors/n_dims", TRACE_U32, 1, 1, NULL, &n_dims, e)) < 0 ||
        (r = column(t, "/tensors/dims", TRACE_U64, 2, 4, NULL, &dims, e)) < 0 ||
        (r = column(t, "/tensors/bytes", TRACE_U64, 1, 1, NULL, &bytes, e)) < 0 ||
        (r = column(t, "/tensors/hash", TRACE_TEXT, 1, 1, &hash_len, &hashes, e)) < 0)
        goto out;
    if (hash_len != HASH_TEXT - 1) {
        r = bad(t, e, "dataset '/tensors/hash' does not hold texts of 32 bytes");
        goto out;
    }
    for (size_t i = 0; i < (size_t)n && !r; i++) {
        struct trace_tensor *x = &t->info.tensors[i];
        const char *role = (char *)roles + i * role_len;
        char text[HASH_TEXT] = "";
        memcpy(text, (char *)hashes + i * hash_len, HASH_TEXT - 1);
        int which = role_by_name(role, strnlen(role, role_len));
        uint32_t layer = ((uint32_t *)layers)[i], nd = ((uint32_t *)n_dims)[i];
        x->name = strndup((char *)names + i * name_len, name_len);
        if (!x->name)
            r = err_set(e, ERR_NOMEM, "tensor names");
        else if (which < 0)
            r = err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s' has an unknown role '%.*s'", t->info.path, x->name,
                        (int)strnlen(role, role_len), role);
        else if (hash_parse(text, &x->hash) < 0 || nd < 1 || nd > 4 ||
                 (layer != UINT32_MAX && layer >= MODEL_MAX_LAYERS))
            r = err_set(e, ERR_FORMAT, "'%s': tensor '%s' has an impossible hash, n_dims or layer", t->info.path,
                        x->name);
        if (r < 0)
            break;
        x->role = (enum model_role)which;
        x->layer = layer == UINT32_MAX ? -1 : (int)layer;
        x->type = ((uint32_t *)types)[i];
        x->n_dims = (int)nd;
        memcpy(x->dims, (uint64_t *)dims + i * 4, 32);
        x->bytes = ((uint64_t *)bytes)[i];
        r = check_tensor(t, x, e);
    }
    if (!r)
        r = check_ffn(t, e);
out:
    free(names), free(roles), free(layers), free(types), free(n_dims), free(dims), free(bytes), free(hashes);
    return r;
}

/* Is there an interrupted run instead? */
static int no_file(const char *path, struct err *e)
{
    struct stat st;
    char partial[4096];
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    if (n > 0 && n < (int)sizeof partial && stat(path, &st) < 0 && stat(partial, &st) == 0)
        return err_set(e, ERR_INPUT, "'%s' is not there yet: its run was interrupted and left '%s'; repeat the same "
                       "'thermo-profile trace' command with --resume to finish it", path, partial);
    return 0;
}

static int check_partial(const char *path, struct err *e)
{
    struct file f;
    char head[8] = "";
    int r = file_open(&f, path, e);
    if (r < 0)
        return r;
    if (f.size >= sizeof head)
        r = file_pread(&f, head, sizeof head, 0, e);
    file_close(&f);
    if (!r && !memcmp(head, JOURNAL_MAGIC, 8))
        return err_set(e, ERR_INPUT, "'%s' is the state of an interrupted run, not a trace; repeat the same "
                       "'thermo-profile trace' command with --resume to finish it", path);
    return r;
}

int trace_open(const char *path, struct trace **out, struct err *e)
{
    int r = no_file(path, e);
    if (r < 0 || (r = check_partial(path, e)) < 0)
        return r;
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "opening '%s'", path);
    for (int s = 0; s < TRACE_SETS; s++)
        t->cache[s].layer = -1;
    t->h5.id = -1;
    t->info.path = strdup(path);
    if (!t->info.path) {
        r = err_set(e, ERR_NOMEM, "opening '%s'", path);
        goto fail;
    }
    if ((r = trace_h5_open(&t->h5, path, e)) < 0 || (r = check_format(t, e)) < 0)
        goto fail;
    for (int i = 0; i < trace_n_fields; i++)
        if ((r = get_field(t, &trace_fields[i], e)) < 0)
            goto fail;
    if ((r = trace_stored_hash(t, "/", &t->info.content_hash, e)) < 0 ||
        (r = read_names(t, e)) < 0 ||
        (r = check_info(t, e)) < 0 ||
        (r = read_corpus(t, e)) < 0 ||
        (r = read_tensors(t, e)) < 0)
        goto fail;
    *out = t;
    return 0;
fail:
    trace_close(t);
    return r;
}

void trace_close(struct trace *t)
{
    if (!t)
        return;
    for (int s = 0; s < TRACE_SETS; s++)
        if (t->cache[s].layer >= 0)
            trace_h5_set_close(&t->cache[s].set);
    trace_h5_close(&t->h5, NULL);
    for (int i = 0; t->info.tensors && i < t->info.n_tensors; i++)
        free(t->info.tensors[i].name);
    free(t->info.tensors);
    free(t->info.path);
    free(t->starts);
    free(t->index);
    free(t);
}

/* ---- reading ---- */

const struct trace_info *trace_info(const struct trace *t)
{
    return &t->info;
}

const uint64_t *trace_sequence_starts(const struct trace *t)
{
    return t->starts;
}

const uint64_t *trace_sequence_index(const struct trace *t)
{
    return t->index;
}

int trace_read(struct trace *t, enum trace_set s, int layer, const uint64_t *first, const uint64_t *count, void *buf,
               struct err *e)
{
    uint64_t dims[3], row;
    if (trace_set_specs[s].part != TRACE_PART_LAYER)
        layer = 0;
    if (layer < 0 || layer >= t->info.h.n_layers)
        return err_set(e, ERR_LIMIT, "'%s': layer %d of %d", t->info.path, layer, t->info.h.n_layers);
    if (!trace_set_dims(&t->info, s, dims, &row))
        return count[0]
                   ? err_set(e, ERR_INPUT, "'%s': this trace holds no '%s'", t->info.path, trace_set_specs[s].name)
                   : 0;
    int r = open_set(t, s, layer, e);
    return r < 0 ? r : trace_h5_set_read(&t->cache[s].set, first, count, buf, e);
}

int trace_read_rows(struct trace *t, enum trace_set s, int layer, uint64_t first, uint64_t n, void *buf, struct err *e)
{
    uint64_t dims[3], row, from[3] = { first, 0, 0 };
    trace_set_dims(&t->info, s, dims, &row);
    dims[0] = n;
    return trace_read(t, s, layer, from, dims, buf, e);
}

static int slurp(struct trace *t, enum trace_set s, void *out, struct err *e)
{
    uint64_t dims[3], row;
    trace_set_dims(&t->info, s, dims, &row);
    return trace_read_rows(t, s, 0, 0, dims[0], out, e);
}

static int check_block(const struct trace *t, int block, struct err *e)
{
    int n = model_ffn_blocks(&t->info.h);
    return block >= 0 && block < n ? 0 : err_set(e, ERR_LIMIT, "'%s': expert %d of %d", t->info.path, block, n);
}

int trace_tokens(struct trace *t, uint64_t first, uint64_t n, uint32_t *ids, struct err *e)
{
    return trace_read_rows(t, TRACE_SET_TOKENS, 0, first, n, ids, e);
}

/* Of neurons that wider layers have nothing is counted. */
static int check_width(const struct trace *t, enum trace_set s, int layer, const uint64_t *counts, struct err *e)
{
    for (int i = model_n_ff(&t->info.h, layer); i < t->info.h.n_ff; i++)
        if (counts[i])
            return err_set(e, ERR_FORMAT, "'%s': dataset '/layers/%04d/%s' counts neuron %d of %d", t->info.path, layer,
                           trace_set_specs[s].name, i, model_n_ff(&t->info.h, layer));
    return 0;
}

int trace_counts(struct trace *t, int layer, int block, uint64_t *counts, uint64_t *n_tokens, struct err *e)
{
    uint64_t first[2] = { (uint64_t)block, 0 }, count[2] = { 1, (uint64_t)t->info.h.n_ff };
    int r = check_block(t, block, e);
    if (r < 0 || (r = trace_read(t, TRACE_SET_COUNTS, layer, first, count, counts, e)) < 0 ||
        (r = check_width(t, TRACE_SET_COUNTS, layer, counts, e)) < 0)
        return r;
    return n_tokens ? trace_read_rows(t, TRACE_SET_ROUTED, layer, (uint64_t)block, 1, n_tokens, e) : 0;
}

int trace_gate_counts(struct trace *t, int layer, int block, uint64_t *counts, struct err *e)
{
    uint64_t first[2] = { (uint64_t)block, 0 }, count[2] = { 1, (uint64_t)t->info.h.n_ff };
    int r = check_block(t, block, e);
    r = r < 0 ? r : trace_read(t, TRACE_SET_GATE_COUNTS, layer, first, count, counts, e);
    return r < 0 ? r : check_width(t, TRACE_SET_GATE_COUNTS, layer, counts, e);
}

static int check_batch(const struct trace *t, enum trace_batch_kind kind, int size_index, int block, struct err *e)
{
    if ((unsigned)kind >= TRACE_BATCH_KINDS || size_index < 0 || size_index >= TRACE_BATCH_SIZES)
        return err_set(e, ERR_LIMIT, "'%s': batch kind %d, size index %d", t->info.path, (int)kind, size_index);
    return check_block(t, block, e);
}

int trace_batch_counts(struct trace *t, enum trace_batch_kind kind, int size_index, int layer, int block,
                       uint64_t *counts, uint64_t *n_batches, struct err *e)
{
    int r = check_batch(t, kind, size_index, block, e);
    if (r < 0)
        return r;
    uint64_t first[3] = { (uint64_t)size_index, (uint64_t)block, 0 }, count[3] = { 1, 1, (uint64_t)t->info.h.n_ff };
    enum trace_set s = kind == TRACE_BATCH_SEQUENCES ? TRACE_SET_BATCH_SEQ : TRACE_SET_BATCH_CONS;
    if ((r = trace_read(t, s, layer, first, count, counts, e)) < 0 || (r = check_width(t, s, layer, counts, e)) < 0)
        return r;
    if (n_batches)
        *n_batches = t->info.n_batches[kind][size_index];
    return 0;
}

int trace_batch_routed(struct trace *t, enum trace_batch_kind kind, int size_index, int layer, int block,
                       uint64_t *n_batches, struct err *e)
{
    int r = check_batch(t, kind, size_index, block, e);
    if (r < 0)
        return r;
    uint64_t first[2] = { (uint64_t)size_index, (uint64_t)block }, one[2] = { 1, 1 };
    enum trace_set s = kind == TRACE_BATCH_SEQUENCES ? TRACE_SET_ROUTED_SEQ : TRACE_SET_ROUTED_CONS;
    return trace_read(t, s, layer, first, one, n_batches, e);
}

static int read_experts(struct trace *t, enum trace_set s, int layer, uint64_t first, uint64_t n, uint16_t *blocks, struct err *e)
{
    size_t k = (size_t)trace_slots(&t->info.h);
    if (!ck_range(first, n, t->info.n_tokens))
        return err_set(e, ERR_LIMIT, "'%s': tokens beyond %llu", t->info.path, (unsigned long long)t->info.n_tokens);
    int r = trace_read_rows(t, s, layer, first, n, blocks, e);
    for (size_t i = 0; !r && i < (size_t)n * k; i++)
        if (blocks[i] >= t->info.h.n_experts)
            r = err_set(e, ERR_FORMAT, "'%s': dataset '/layers/%04d/%s' names expert %u of %d", t->info.path, layer,
                        trace_set_specs[s].name, blocks[i], t->info.h.n_experts);
    return r;
}

int trace_routing(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *blocks, struct err *e)
{
    if (t->info.h.n_experts > 0)
        return read_experts(t, TRACE_SET_ROUTING, layer, first, n, blocks, e);
    if (!ck_range(first, n, t->info.n_tokens))
        return err_set(e, ERR_LIMIT, "'%s': tokens beyond %llu", t->info.path, (unsigned long long)t->info.n_tokens);
    memset(blocks, 0, (size_t)n * sizeof *blocks);
    return 0;
}

int trace_foreseen(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *blocks, struct err *e)
{
    if (!t->info.foreseen)
        return err_set(e, ERR_UNSUPPORTED, "'%s' does not hold which experts are foreseen: trace the model again", t->info.path);
    return read_experts(t, TRACE_SET_FORESEEN, layer, first, n, blocks, e);
}

int trace_maps(struct trace *t, int layer, uint64_t first, uint64_t n, uint8_t *maps, uint16_t *blocks, struct err *e)
{
    if (!ck_range(first, n, t->info.window_tokens))
        return err_set(e, ERR_LIMIT, "'%s': tokens %llu to %llu; the window has %llu", t->info.path,
                       (unsigned long long)first, (unsigned long long)(first + n),
                       (unsigned long long)t->info.window_tokens);
    int r = blocks ? trace_routing(t, layer, first, n, blocks, e) : 0;
    return r < 0 ? r : trace_read_rows(t, TRACE_SET_MAPS, layer, first, n, maps, e);
}

int trace_sample_tokens(struct trace *t, uint64_t first, uint64_t n, uint64_t *tokens, struct err *e)
{
    int r = trace_read_rows(t, TRACE_SET_SAMPLE_TOKENS, 0, first, n, tokens, e);
    for (uint64_t i = 0; !r && i < n; i++)
        if (tokens[i] >= t->info.n_tokens || (i && tokens[i] <= tokens[i - 1]))
            r = bad(t, e, "dataset '/corpus/sample_tokens' does not ascend within the tokens");
    return r;
}

int trace_samples(struct trace *t, int layer, uint64_t first, uint64_t n, uint16_t *block_input,
                  uint16_t *ffn_input, float *ffn_rms, uint8_t *gate_signs, struct err *e)
{
    int r = 0;
    if (block_input)
        r = trace_read_rows(t, TRACE_SET_BLOCK_INPUT, layer, first, n, block_input, e);
    if (!r && ffn_input)
        r = trace_read_rows(t, TRACE_SET_FFN_INPUT, layer, first, n, ffn_input, e);
    if (!r && ffn_rms)
        r = trace_read_rows(t, TRACE_SET_FFN_RMS, layer, first, n, ffn_rms, e);
    if (!r && gate_signs)
        r = trace_read_rows(t, TRACE_SET_GATE_SIGNS, layer, first, n, gate_signs, e);
    return r;
}

const struct trace_tensor *trace_tensor_find(const struct trace_info *info, enum model_role role, int layer)
{
    for (int i = 0; i < info->n_tensors; i++)
        if (info->tensors[i].role == role && info->tensors[i].layer == layer)
            return &info->tensors[i];
    return NULL;
}

int trace_thresholds(struct trace *t, float **out, struct err *e)
{
    const struct model_hparams *h = &t->info.h;
    size_t n = (size_t)h->n_ff;
    int r = 0;
    *out = NULL;
    if (!h->thresholds && !h->cold_thresholds)
        return 0;
    float *all = malloc((size_t)h->n_layers * n * sizeof *all);
    if (!all)
        return err_set(e, ERR_NOMEM, "'%s': thresholds of %d layers", t->info.path, h->n_layers);
    for (int l = 0; l < h->n_layers && r == 0; l++) {
        float *own = all + (size_t)l * n;
        r = trace_read_rows(t, TRACE_SET_THRESHOLDS, l, 0, n, own, e);
        int bad_at = r ? -1 : model_bad_threshold(own, h->n_ff);
        if (bad_at >= 0)
            r = err_set(e, ERR_FORMAT, "'%s': dataset '/layers/%04d/thresholds' has %g for neuron %d; a number from 0 on is needed",
                        t->info.path, l, (double)own[bad_at], bad_at);
    }
    if (r < 0)
        free(all);
    else
        *out = all;
    return r;
}

double trace_cold_loss(int k)
{
    return ldexp(1, k - 28);
}

int trace_cold(struct trace *t, int layer, float *out, struct err *e)
{
    enum { N = TRACE_COLD_LEVELS };
    size_t n_ff = (size_t)t->info.h.n_ff;
    int r = trace_read_rows(t, TRACE_SET_COLD, layer, 0, n_ff, out, e);
    for (size_t i = 0; i < n_ff * 2 * N && r == 0; i++) {
        int kept = i / N % 2 == 0, first = i % N == 0;
        if (!(out[i] >= 0 && out[i] <= (kept ? 1 : FLT_MAX)) || (!first && (kept ? out[i] > out[i - 1] : out[i] < out[i - 1])))
            r = err_set(e, ERR_FORMAT, "'%s': dataset '/layers/%04d/cold' has %g as %s of neuron %zu at level %zu, which %s", t->info.path,
                        layer, (double)out[i], kept ? "share kept" : "loss", i / N / 2, i % N,
                        first ? "no such figure can be" : "the level before it forbids");
    }
    return r;
}
