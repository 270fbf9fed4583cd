/* One pass over the model serves two ends: the weights go into the pack, and their hashes show that
 * the trace speaks of these very weights. A second pass of 26 GB for the hash alone would double the
 * time of packing. */
#include "packer/source.h"

#include "common/base/progress.h"
#include "common/model/tokenizer.h"
#include "common/plan/layout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const struct trace_tensor *in_trace(const struct trace_info *t, const char *name)
{
    for (int i = 0; i < t->n_tensors; i++)
        if (!strcmp(t->tensors[i].name, name))
            return &t->tensors[i];
    return NULL;
}

static int compare_tables(const struct source *s, struct err *e)
{
    const struct gguf *g = s->gguf;
    uint64_t n_known = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *a = &g->tensors[i];
        const struct trace_tensor *b = in_trace(s->trace, a->name);
        if (model_leaves_out(&s->model->h, a->name))
            continue;
        n_known++;
        if (!b)
            return err_set(e, ERR_MISMATCH, "'%s' has tensor '%s'; the model traced in '%s' has not", s->path, a->name,
                           s->trace->path);
        if (a->type != b->type || a->n_dims != b->n_dims || memcmp(a->dims, b->dims, sizeof(uint64_t) * (size_t)a->n_dims))
            return err_set(e, ERR_MISMATCH, "tensor '%s' is %s [%llu, %llu] in '%s' but %s [%llu, %llu] in '%s'", a->name,
                           quant_traits(a->type)->name, (unsigned long long)a->dims[0], (unsigned long long)a->dims[1],
                           s->path, quant_traits(b->type) ? quant_traits(b->type)->name : "?",
                           (unsigned long long)b->dims[0], (unsigned long long)b->dims[1], s->trace->path);
    }
    if (n_known != (uint64_t)s->trace->n_tensors)
        return err_set(e, ERR_MISMATCH, "'%s' has %llu tensors; the model traced in '%s' has %d", s->path,
                       (unsigned long long)n_known, s->trace->path, s->trace->n_tensors);
    return 0;
}

static int open_as(struct source *s, const char *path, struct trace *t, int consumed, struct err *e)
{
    const struct trace_info *trace = trace_info(t);
    struct model_given given = model_as(&trace->h);
    float *thresholds = NULL;
    *s = (struct source){ .trace = trace, .path = path };
    int r = consumed ? gguf_open_consumed(path, NULL, &s->gguf, e) : gguf_open(path, &s->gguf, e);
    if (r < 0)
        return r;
    char said[512]; /* who traced the model was told */
    if (*trace->pre && (r = tokenizer_state_pre(s->gguf, trace->pre, said, sizeof said, e)) < 0) {
        source_close(s);
        return err_wrap(e, "'%s'", trace->path);
    }
    r = trace_thresholds(t, &thresholds, e);
    given.thresholds = thresholds;
    if (r == 0 && (r = model_open(s->gguf, &given, &s->model, e)) == 0 && (r = compare_tables(s, e)) == 0)
        r = trace_expect(t, &s->model->h, s->gguf, e);
    free(thresholds);
    if (r == 0 && consumed && !(s->at = calloc(s->gguf->n_tensors + 1, sizeof *s->at)))
        r = err_set(e, ERR_NOMEM, "'%s'", path);
    if (r < 0)
        source_close(s);
    return r;
}

int source_open(struct source *s, const char *path, struct trace *t, struct err *e)
{
    return open_as(s, path, t, 0, e);
}

int source_open_consumed(struct source *s, const char *path, struct trace *t, struct err *e)
{
    return open_as(s, path, t, 1, e);
}

int source_verify(struct source *s, struct err *e)
{
    const struct gguf *g = s->gguf;
    struct progress bar;
    uint64_t total = 0;
    uint8_t first;
    int r = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        total += g->tensors[i].bytes;
    progress_init(&bar, "comparing the model with its trace", "B", total);
    for (uint64_t i = 0; i < g->n_tensors && r == 0; i++) {
        r = g->tensors[i].memory ? 0 : gguf_read(g, &g->tensors[i], 0, &first, 1, e); /* the first reading is of the whole */
        progress_add(&bar, g->tensors[i].bytes);
    }
    progress_done(&bar);
    return r;
}

static void on_bytes(void *ctx, uint64_t done)
{
    progress_set(ctx, done);
}

/* Is the layer's own table the model's, byte for byte? each: hashes of g's tensors. */
static int same_table(const struct gguf *g, const struct hash128 *each, const struct gguf_tensor *own, const struct gguf_tensor *model)
{
    const struct gguf_tensor *t = gguf_tensor(g, own->name);
    return t && model && t->type == model->type && !memcmp(t->dims, model->dims, sizeof t->dims) &&
           hash_equal(each[t - g->tensors], each[model - g->tensors]);
}

/* What the layer need not have of its own. */
static void share_tables(struct model *layer, const struct model *m, const struct hash128 *each, int own, int share)
{
    const struct gguf_tensor **embd = &layer->global[MODEL_TOKEN_EMBD], **head = &layer->global[MODEL_OUTPUT];
    const struct gguf_tensor *model_head = m->global[MODEL_OUTPUT] ? m->global[MODEL_OUTPUT] : m->global[MODEL_TOKEN_EMBD];
    if (*embd && (share || (!own && same_table(m->gguf, each, *embd, m->global[MODEL_TOKEN_EMBD]))))
        *embd = NULL;
    if (*head && (share || (!own && same_table(m->gguf, each, *head, model_head)))) {
        *head = NULL;
        layer->h.tied_output = 1;
    }
}

/* What will be read of the layer is what was hashed. Its parts of fused tensors were hashed as one, and are read once. */
static int expect(struct gguf *own, const struct gguf *g, const struct hash128 *each, struct err *e)
{
    struct hash128 *want = calloc(own->n_tensors + 1, sizeof *want);
    if (!want)
        return err_set(e, ERR_NOMEM, "hashes of %llu tensors", (unsigned long long)own->n_tensors);
    for (uint64_t i = 0; i < own->n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor(g, own->tensors[i].name);
        if (t)
            want[i] = each[t - g->tensors];
    }
    int r = gguf_expect(own, want, NULL, e);
    free(want);
    return r;
}

/* Is a layer of another file this model's next? */
static int check_layer(const struct source *s, const char *path, const struct model *m, struct err *e)
{
    const struct model_hparams *a = &s->model->h, *b = &m->h;
    if (!strcmp(a->arch, b->arch) && a->mtp == model_depth(b) && a->d_model == b->d_model && a->n_vocab == b->n_vocab)
        return 0;
    return err_set(e, ERR_MISMATCH, "'%s' is a layer behind %d others of %s, %d wide and with %d tokens, but '%s' has %d "
                   "layers of %s, %d wide and with %d tokens", s->path, a->mtp, a->arch, a->d_model, a->n_vocab, path, model_depth(b),
                   b->arch, b->d_model, b->n_vocab);
}

/* As a trace's recorder hashes it: with fused tensors in their parts. own: the layer is of another file. */
static int hash_whole(struct source *s, const char *path, int own, int share, struct hash128 *out, struct err *e)
{
    struct gguf *g;
    struct model *m = NULL;
    struct progress bar;
    struct hash128 *each = NULL;
    uint64_t total = 0;
    int r = gguf_open(path, &g, e);
    if (r < 0)
        return r;
    if ((r = model_open(g, NULL, &m, e)) == 0 && own)
        r = check_layer(s, path, m, e);
    if (r == 0 && !(each = calloc(g->n_tensors, sizeof *each)))
        r = err_set(e, ERR_NOMEM, "hashes of '%s'", path);
    if (r == 0) {
        for (uint64_t i = 0; i < g->n_tensors; i++)
            total += g->tensors[i].bytes;
        progress_init(&bar, "hashing the model", "B", total);
        r = gguf_hash(g, out, each, on_bytes, &bar, e);
        progress_done(&bar);
    }
    if (r == 0 && (r = own ? gguf_expect(s->gguf, NULL, NULL, e) : expect(s->gguf, g, each, e)) == 0)
        share_tables(s->model, m, each, own, share);
    free(each);
    model_close(m);
    gguf_close(g);
    return r;
}

int source_open_mtp(struct source *s, const char *path, const char *layer, int share, struct hash128 *model, struct err *e)
{
    const struct model_given given = { .act = -1, .mtp = 1 };
    *s = (struct source){ .path = layer ? layer : path };
    int r = gguf_open(s->path, &s->gguf, e);
    if (r < 0)
        return r;
    if ((r = model_open(s->gguf, &given, &s->model, e)) < 0 || (r = hash_whole(s, path, layer != NULL, share, model, e)) < 0)
        source_close(s);
    return r;
}

void source_close(struct source *s)
{
    model_close(s->model);
    gguf_close(s->gguf);
    free(s->at);
    *s = (struct source){ 0 };
}

int source_orders(const struct model_hparams *h, uint32_t **orders, struct hash128 *hash, struct err *e)
{
    size_t n_ff = (size_t)h->n_ff, n = (size_t)h->n_layers * (size_t)model_ffn_blocks(h) * n_ff;
    uint32_t *all = malloc(n * sizeof *all);
    if (!all)
        return err_set(e, ERR_NOMEM, "orders of %d layers", h->n_layers);
    for (size_t i = 0; i < n; i++)
        all[i] = (uint32_t)(i % n_ff);
    *hash = layout_order_hash(NULL, h->n_layers, model_ffn_blocks(h), h->n_ff);
    *orders = all;
    return 0;
}

void source_ask(const struct source *s, const struct gguf_tensor *t, uint64_t offset, uint64_t bytes)
{
    if (!t->memory && !t->piece_bytes && t->shard < s->gguf->n_shards)
        posix_fadvise(s->gguf->shards[t->shard].fd, (off_t)(t->offset + offset), (off_t)bytes, POSIX_FADV_WILLNEED);
}

int source_read(struct source *s, const struct gguf_tensor *t, void *buf, size_t len, struct err *e)
{
    if (!s->at || t->memory)
        return gguf_read_next(s->gguf, t, buf, len, e);
    uint64_t *at = &s->at[t - s->gguf->tensors];
    int r = gguf_read(s->gguf, t, *at, buf, len, e);
    *at += r == 0 ? len : 0;
    return r;
}
