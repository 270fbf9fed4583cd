/* A run is a list of chunks, each some whole groups of sequences; what a chunk yields has a size known
 * beforehand and goes to the journal layer by layer. Memory is bounded by a chunk and a layer. At the
 * end the journal is read layer by layer, counts are added up, rows are copied in order, and the
 * trace is written in one go: so an interrupted run gives the same bytes as one that was not. */
#include "profiler/trace/recorder.h"

#include "common/base/file.h"
#include "common/base/journal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "common/kernels/kernels.h"
#include "common/model/tokenizer.h"
#include "common/offline/forward.h"
#include "common/offline/trace/trace_write.h"
#include "common/ops/ops.h"
#include "profiler/trace/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_TOKENS = 4096 };

struct recorder {
    const struct model *m;
    const struct corpus *c;
    const float *cold;         /* NULL: there are none */
    struct trace_info info;
    int threads, max_len;
    struct hash128 *tensor_hashes;
    /* The chunk being run. */
    struct observe *observe;
    struct journal *journal;
    struct pool *pool;
    uint64_t *starts;          /* [sequences of the chunk + 1] */
    size_t n_sequences;
    uint64_t n_tokens, n_window, first_sample, n_samples;
    const uint64_t *samples;   /* of the chunk, from its first token */
    uint8_t *rows;             /* bit rows, packed for disk */
    struct progress progress;
    uint64_t done_tokens, resumed_tokens;
};

/* ---- description ---- */

static int describe_tensors(struct recorder *t, struct err *e)
{
    const struct model *m = t->m;
    int n = 0;
    t->info.tensors = calloc(m->gguf->n_tensors, sizeof *t->info.tensors);
    if (!t->info.tensors)
        return err_set(e, ERR_NOMEM, "tensor table");
    for (int l = -1; l < model_depth(&m->h); l++)
        for (int r = 0; r < MODEL_ROLES; r++) {
            const struct gguf_tensor *g = l < 0 ? m->global[r] : m->layer[l][r];
            if (!g || (l < 0) == (model_role_is_per_layer((enum model_role)r) != 0))
                continue;
            struct trace_tensor *x = &t->info.tensors[n++];
            *x = (struct trace_tensor){ .name = strdup(g->name),
                                        .role = (enum model_role)r,
                                        .layer = l,
                                        .type = g->type,
                                        .n_dims = g->n_dims,
                                        .bytes = g->bytes };
            memcpy(x->dims, g->dims, sizeof x->dims);
            if (!x->name)
                return err_set(e, ERR_NOMEM, "tensor table");
        }
    t->info.n_tensors = n;
    return 0;
}

/* What the memory account asks of the vocabulary (tokenizer_heap_bound). */
static void describe_vocab(struct recorder *t)
{
    struct err none; /* a file without a tokenizer has no text either */
    uint64_t n_vocab;
    tokenizer_measure(t->m->gguf, &n_vocab, &t->info.vocab_text_bytes, &t->info.n_merges, &none);
}

/* Is there a matrix that int8 activations make a difference to? */
static int has_q8(const struct trace_info *i)
{
    for (int k = 0; k < i->n_tensors; k++) {
        const struct trace_tensor *t = &i->tensors[k];
        if (t->layer >= 0 && t->n_dims > 1 && !model_role_is_predictor(t->role) && kernels_act_form(t->type, 1) == KERNELS_ACT_Q8)
            return 1;
    }
    return 0;
}

int recorder_new(const struct model *m, const struct corpus *c, const char *tier, int threads, int act_q8, struct recorder **out,
                 struct err *e)
{
    struct recorder *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "tracing");
    t->m = m, t->c = c, t->threads = threads;
    struct trace_info *i = &t->info;
    snprintf(i->tool, sizeof i->tool, "thermo-profile %s", THERMO_VERSION);
    snprintf(i->tier, sizeof i->tier, "%s", tier);
    i->h = m->h;
    i->corpus = c->info;
    i->n_tokens = c->n_tokens, i->n_sequences = c->n_sequences;
    i->window_sequences = c->window_sequences, i->window_tokens = c->window_tokens;
    i->n_samples = c->n_samples;
    i->shard = c->shard, i->n_shards = c->n_shards;
    i->foreseen = forward_foresees(&m->h);
    observe_batches(c->starts, (size_t)c->n_sequences, i->n_batches);
    for (uint64_t s = 0; s < c->n_sequences; s++)
        if (c->starts[s + 1] - c->starts[s] > (uint64_t)t->max_len)
            t->max_len = (int)(c->starts[s + 1] - c->starts[s]);
    uint8_t *blob = NULL;
    size_t len;
    int r = model_meta_blob(m->gguf, &m->h, NULL, &blob, &len, e);
    free(blob);
    if (!r) {
        const char *pre = gguf_stated(m->gguf, TOKENIZER_PRE_KEY);
        snprintf(i->pre, sizeof i->pre, "%s", pre ? pre : "");
        i->meta_bytes = len;
        describe_vocab(t);
        r = describe_tensors(t, e);
    }
    i->act_q8 = act_q8 && has_q8(i);
    if (r < 0)
        recorder_free(t);
    else
        *out = t;
    return r;
}

void recorder_free(struct recorder *t)
{
    if (!t)
        return;
    for (int i = 0; t->info.tensors && i < t->info.n_tensors; i++)
        free(t->info.tensors[i].name);
    free(t->info.tensors);
    free(t->tensor_hashes);
    free(t->starts);
    free(t->rows);
    observe_free(t->observe);
    free(t);
}

const struct trace_info *recorder_info(const struct recorder *t)
{
    return &t->info;
}

static void on_bytes(void *ctx, uint64_t done)
{
    progress_set(ctx, done);
}

int recorder_identify(struct recorder *t, struct err *e)
{
    const struct gguf *g = t->m->gguf;
    struct progress p;
    uint64_t total = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        total += g->tensors[i].bytes;
    t->tensor_hashes = calloc(g->n_tensors + 1, sizeof *t->tensor_hashes);
    if (!t->tensor_hashes)
        return err_set(e, ERR_NOMEM, "hashes of %llu tensors", (unsigned long long)g->n_tensors);
    progress_init(&p, "hashing the model", "B", total);
    int r = gguf_hash(g, &t->info.model_hash, t->tensor_hashes, on_bytes, &p, e);
    progress_done(&p);
    for (int i = 0; !r && i < t->info.n_tensors; i++) {
        const struct gguf_tensor *x = gguf_tensor(g, t->info.tensors[i].name);
        t->info.tensors[i].hash = t->tensor_hashes[x - g->tensors];
    }
    return r;
}

/* ---- chunks ---- */

static uint64_t n_groups(const struct corpus *c)
{
    return (c->n_sequences + TRACE_GROUP - 1) / TRACE_GROUP;
}

static uint64_t group_start(const struct corpus *c, uint64_t g)
{
    uint64_t s = g * TRACE_GROUP;
    return c->starts[s < c->n_sequences ? s : c->n_sequences];
}

/* Whole groups, at least one, of at most CHUNK_TOKENS tokens. */
static uint64_t chunk_groups(const struct corpus *c, uint64_t first)
{
    uint64_t n = 1;
    while (first + n < n_groups(c) && group_start(c, first + n + 1) - group_start(c, first) <= CHUNK_TOKENS)
        n++;
    return n;
}

static uint64_t first_at_least(const uint64_t *v, uint64_t n, uint64_t want)
{
    uint64_t lo = 0, hi = n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (v[mid] < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* What a chunk's tokens are, of which how many are in the window, which samples. */
struct extent {
    uint64_t tokens, window, first_sample, samples;
};

static struct extent chunk_extent(const struct corpus *c, uint64_t first, uint64_t n)
{
    uint64_t from = group_start(c, first), to = group_start(c, first + n);
    struct extent x = { .tokens = to - from };
    if (c->window_tokens > from)
        x.window = (c->window_tokens < to ? c->window_tokens : to) - from;
    x.first_sample = first_at_least(c->samples, c->n_samples, from);
    x.samples = first_at_least(c->samples, c->n_samples, to) - x.first_sample;
    return x;
}

/* Datasets copied row by row, in journal order, and how many rows of each a chunk has. */
static const enum trace_set copied[] = { TRACE_SET_MAPS, TRACE_SET_ROUTING, TRACE_SET_BLOCK_INPUT, TRACE_SET_FFN_INPUT,
                                         TRACE_SET_FFN_RMS, TRACE_SET_GATE_SIGNS, TRACE_SET_FORESEEN };
enum { N_COPIED = sizeof copied / sizeof *copied };

static uint64_t copied_rows(const struct recorder *t, enum trace_set s, const struct extent *x, uint64_t *row_bytes)
{
    uint64_t dims[3];
    if (!trace_set_dims(&t->info, s, dims, row_bytes))
        return 0;
    return s == TRACE_SET_MAPS ? x->window : s == TRACE_SET_ROUTING || s == TRACE_SET_FORESEEN ? x->tokens : x->samples;
}

/* Journal bytes of one layer of a chunk. */
static uint64_t layer_bytes(const struct recorder *t, const struct extent *x)
{
    uint64_t n = observe_size(&t->info.h) * sizeof(uint32_t), row;
    for (int i = 0; i < N_COPIED; i++) {
        uint64_t rows = copied_rows(t, copied[i], x, &row);
        n += rows * row;
    }
    return n;
}

void recorder_sizes(const struct recorder *t, struct recorder_sizes *out)
{
    const struct corpus *c = t->c;
    const struct model_hparams *h = &t->info.h;
    uint64_t largest = 0, layers = (uint64_t)h->n_layers;
    struct recorder_sizes s = { .weight_bytes = forward_weight_bytes(t->m) };
    for (uint64_t g = 0, n; g < n_groups(c); g += n, s.n_chunks++) {
        n = chunk_groups(c, g);
        struct extent x = chunk_extent(c, g, n);
        s.partial_bytes += 64 + layers * layer_bytes(t, &x);
        largest = x.tokens > largest ? x.tokens : largest;
    }
    for (int k = 0; k < TRACE_SETS; k++) {
        uint64_t dims[3], row;
        trace_set_dims(&t->info, k, dims, &row);
        s.trace_bytes += dims[0] * row * (trace_set_specs[k].part == TRACE_PART_LAYER ? layers : 1);
    }
    s.memory_bytes = forward_bytes(t->m, t->threads, t->max_len, largest, 1) + observe_size(h) * 4 + gguf_known_bytes(t->m->gguf);
    /* Two per weight that a token meets, and attention's two products over half of each sequence on average. */
    double weights = 0, attending = 0, used = h->n_experts > 0 ? (double)h->n_experts_used / h->n_experts : 1;
    for (int i = 0; i < t->info.n_tensors; i++) {
        const struct trace_tensor *x = &t->info.tensors[i];
        if (x->layer >= 0)
            weights += (double)x->dims[0] * (double)x->dims[1] * (double)x->dims[2] *
                       (model_role_is_ffn(x->role) ? used : 1);
    }
    s.flop = 2 * weights * (double)c->n_tokens;
    for (int l = 0; l < model_depth(h); l++) {
        struct op_need need;
        ops_mixer(h, l, &need);
        attending += (double)need.heads * need.head_dim;
    }
    for (uint64_t i = 0; i < c->n_sequences; i++) {
        double len = (double)(c->starts[i + 1] - c->starts[i]);
        s.flop += 2 * len * len * attending;
    }
    *out = s;
}

/* ---- running a chunk ---- */

/* Bit rows as on disk: without the padding that memory has. */
static int write_bits(struct recorder *t, const struct forward_layer *l, const uint8_t *bits, const uint64_t *tokens,
                      uint64_t n, struct err *e)
{
    size_t k = (size_t)l->n_slots, row = (size_t)trace_row_bytes(&t->info.h);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t token = tokens ? tokens[i] : i;
        for (size_t s = 0; s < k; s++)
            memcpy(t->rows + s * row, bits + (token * k + s) * l->row_bytes, row);
        int r = journal_write(t->journal, t->rows, k * row, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int on_layer(void *ctx, const struct forward_layer *l, struct err *e)
{
    struct recorder *t = ctx;
    struct observe *o = t->observe;
    size_t d = (size_t)t->info.h.d_model, n = (size_t)t->n_samples;
    int r;
    if ((r = observe_layer(o, t->pool, l, t->starts, t->n_sequences, e)) < 0 ||
        (r = journal_write(t->journal, o->all, o->n_all * sizeof *o->all, e)) < 0 ||
        (r = write_bits(t, l, l->active, NULL, t->n_window, e)) < 0)
        return r;
    if (t->info.h.n_experts > 0 &&
        (r = journal_write(t->journal, l->blocks, l->n_tokens * (size_t)l->n_slots * sizeof *l->blocks, e)) < 0)
        return r;
    if ((r = journal_write(t->journal, l->block_input, n * d * 2, e)) < 0 ||
        (r = journal_write(t->journal, l->ffn_input, n * d * 2, e)) < 0 ||
        (r = journal_write(t->journal, l->ffn_rms, n * sizeof *l->ffn_rms, e)) < 0 ||
        (r = write_bits(t, l, l->open, t->samples, t->n_samples, e)) < 0 ||
        (t->info.foreseen && (r = journal_write(t->journal, l->foreseen, l->n_tokens * (size_t)l->n_slots * sizeof *l->foreseen, e)) < 0))
        return r;
    journal_begin_sync(t->journal);
    log_debug("layer %d: seen %zu tokens of %zu sequences", l->layer, l->n_tokens, t->n_sequences);
    progress_set(&t->progress, t->done_tokens - t->resumed_tokens +
                                   t->n_tokens * (uint64_t)(l->layer + 1) / (uint64_t)t->info.h.n_layers);
    return 0;
}

static int run_chunk(struct recorder *t, struct forward *f, uint64_t first, uint64_t n, struct err *e)
{
    const struct corpus *c = t->c;
    uint64_t s0 = first * TRACE_GROUP, s1 = (first + n) * TRACE_GROUP, from = group_start(c, first);
    s1 = s1 < c->n_sequences ? s1 : c->n_sequences;
    struct extent x = chunk_extent(c, first, n);
    t->n_sequences = (size_t)(s1 - s0);
    t->n_tokens = x.tokens, t->n_window = x.window, t->n_samples = x.samples;
    uint64_t *starts = realloc(t->starts, (t->n_sequences + 1) * sizeof *starts);
    uint64_t *samples = malloc((size_t)(x.samples + 1) * sizeof *samples);
    if (starts)
        t->starts = starts;
    if (!starts || !samples) {
        free(samples);
        return err_set(e, ERR_NOMEM, "a chunk of %llu tokens", (unsigned long long)x.tokens);
    }
    for (uint64_t s = s0; s <= s1; s++)
        starts[s - s0] = c->starts[s] - from;
    for (uint64_t s = 0; s < x.samples; s++)
        samples[s] = c->samples[x.first_sample + s] - from;
    t->samples = samples;
    const struct forward_run run = { .tokens = c->tokens + from,
                                     .starts = starts,
                                     .n_sequences = t->n_sequences,
                                     .samples = samples,
                                     .n_samples = (size_t)x.samples,
                                     .act_q8 = t->info.act_q8,
                                     .on_layer = on_layer,
                                     .ctx = t };
    int r = journal_begin(t->journal, first, n, (uint64_t)t->info.h.n_layers * layer_bytes(t, &x), e);
    if (!r && !(r = forward_run(f, &run, e)))
        r = journal_end(t->journal, e);
    free(samples);
    return r;
}

static int run_chunks(struct recorder *t, struct err *e)
{
    struct forward *f = NULL;
    int r = forward_new(t->m, t->pool, t->max_len, &f, e);
    if (!r)
        r = observe_new(&t->info.h, &t->observe, e);
    if (!r && !(t->rows = malloc((size_t)trace_slots(&t->info.h) * (size_t)trace_row_bytes(&t->info.h))))
        r = err_set(e, ERR_NOMEM, "bit rows");
    for (uint64_t g = journal_next(t->journal), n; !r && g < n_groups(t->c); g += n) {
        n = chunk_groups(t->c, g);
        t->done_tokens = group_start(t->c, g);
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : run_chunk(t, f, g, n, e);
    }
    forward_free(f);
    return r;
}

/* ---- the journal into the trace ---- */

/* Sum of the counts of a layer over all records, in the journal's order of arrays. */
static int sum_counts(struct recorder *t, int layer, uint64_t *sum, struct err *e)
{
    size_t n_records, n = t->observe->n_all;
    const struct journal_record *rec = journal_records(t->journal, &n_records);
    memset(sum, 0, n * sizeof *sum);
    for (size_t i = 0; i < n_records; i++) {
        struct extent x = chunk_extent(t->c, rec[i].first, rec[i].n);
        int r = journal_read(t->journal, &rec[i], (uint64_t)layer * layer_bytes(t, &x), t->observe->all,
                             n * sizeof(uint32_t), e);
        if (r < 0)
            return r;
        for (size_t k = 0; k < n; k++)
            sum[k] += t->observe->all[k];
    }
    return 0;
}

static int write_counts(struct recorder *t, struct trace_writer *w, int layer, uint64_t *sum, struct err *e)
{
    const struct observe *o = t->observe;
    const uint64_t blocks = (uint64_t)o->n_blocks;
    int r;
    const uint64_t *at = sum;
#define ARRAY(member) (at + ((member)-o->all))
    if ((r = sum_counts(t, layer, sum, e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_COUNTS, layer, blocks, ARRAY(o->counts), e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_GATE_COUNTS, layer, blocks, ARRAY(o->gate_counts), e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_BATCH_SEQ, layer, TRACE_BATCH_SIZES, ARRAY(o->batch[0]), e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_BATCH_CONS, layer, TRACE_BATCH_SIZES, ARRAY(o->batch[1]), e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_ROUTED, layer, blocks, ARRAY(o->routed), e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_ROUTED_SEQ, layer, TRACE_BATCH_SIZES, ARRAY(o->routed_batch[0]), e)) <
            0 ||
        (r = trace_writer_append(w, TRACE_SET_ROUTED_CONS, layer, TRACE_BATCH_SIZES, ARRAY(o->routed_batch[1]),
                                 e)) < 0)
        return r;
#undef ARRAY
    return 0;
}

/* Rows of the layer's k-th copied dataset from every record. */
static int copy_rows(struct recorder *t, struct trace_writer *w, int layer, int which, uint8_t *buf, size_t buf_bytes,
                     struct err *e)
{
    size_t n_records;
    const struct journal_record *rec = journal_records(t->journal, &n_records);
    for (size_t i = 0; i < n_records; i++) {
        struct extent x = chunk_extent(t->c, rec[i].first, rec[i].n);
        uint64_t row, at = (uint64_t)layer * layer_bytes(t, &x) + t->observe->n_all * sizeof(uint32_t);
        for (int k = 0; k < which; k++) {
            uint64_t rows = copied_rows(t, copied[k], &x, &row);
            at += rows * row;
        }
        uint64_t rows = copied_rows(t, copied[which], &x, &row), step = rows ? buf_bytes / row : 0;
        for (uint64_t done = 0; done < rows; done += step) {
            uint64_t n = rows - done < step ? rows - done : step;
            int r = journal_read(t->journal, &rec[i], at + done * row, buf, (size_t)(n * row), e);
            if (r < 0 || (r = trace_writer_append(w, copied[which], layer, n, buf, e)) < 0)
                return r;
        }
    }
    return 0;
}

/* Thresholds that the model has; buf holds a row. */
static int write_thresholds(const struct recorder *t, struct trace_writer *w, int layer, uint8_t *buf, struct err *e)
{
    const struct gguf_tensor *x = t->m->layer[layer][MODEL_FFN_THRESHOLD];
    int r = x ? gguf_read(t->m->gguf, x, 0, buf, (size_t)x->bytes, e) : 0;
    size_t all = (size_t)t->info.h.n_ff * sizeof(float);
    if (r == 0 && x)
        memset(buf + x->bytes, 0, all - (size_t)x->bytes);
    return r < 0 || !x ? r : trace_writer_append(w, TRACE_SET_THRESHOLDS, layer, (uint64_t)t->info.h.n_ff, buf, e);
}

static int write_cold(const struct recorder *t, struct trace_writer *w, int layer, struct err *e)
{
    size_t n_ff = (size_t)t->info.h.n_ff;
    return t->cold ? trace_writer_append(w, TRACE_SET_COLD, layer, n_ff, t->cold + (size_t)layer * n_ff * 2 * TRACE_COLD_LEVELS, e) : 0;
}

static int write_corpus(const struct recorder *t, struct trace_writer *w, struct err *e)
{
    const struct corpus *c = t->c;
    int r;
    if ((r = trace_writer_append(w, TRACE_SET_TOKENS, 0, c->n_tokens, c->tokens, e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_STARTS, 0, c->n_sequences + 1, c->starts, e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_INDEX, 0, c->n_sequences, c->index, e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_ROWS, 0, c->n_sequences, c->rows, e)) < 0 ||
        (r = trace_writer_append(w, TRACE_SET_SAMPLE_TOKENS, 0, c->n_samples, c->samples, e)) < 0)
        return r;
    return 0;
}

static int write_trace(struct recorder *t, const char *out, int gzip, struct hash128 *content, struct err *e)
{
    size_t row = (size_t)trace_slots(&t->info.h) * (size_t)trace_row_bytes(&t->info.h);
    size_t buf_bytes = 1 << 20;
    if (buf_bytes < row)
        buf_bytes = row;
    if (buf_bytes < (size_t)t->info.h.n_ff * sizeof(float))
        buf_bytes = (size_t)t->info.h.n_ff * sizeof(float);
    if (buf_bytes < (size_t)t->info.h.d_model * 2)
        buf_bytes = (size_t)t->info.h.d_model * 2;
    uint64_t *sum = malloc(observe_size(&t->info.h) * sizeof *sum);
    uint8_t *buf = malloc(buf_bytes);
    struct trace_writer *w = NULL;
    struct progress p;
    progress_init(&p, "writing the trace", "layers", (uint64_t)t->info.h.n_layers);
    int r = sum && buf ? 0 : err_set(e, ERR_NOMEM, "counts of a layer");
    if (!r && !t->observe)
        r = observe_new(&t->info.h, &t->observe, e);
    if (!r && !(r = trace_writer_open(out, &t->info, gzip, &w, e)))
        r = write_corpus(t, w, e);
    for (int l = 0; l < t->info.h.n_layers && !r; l++) {
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted while writing '%s'", out)
                               : write_counts(t, w, l, sum, e);
        for (int k = 0; k < N_COPIED && !r; k++)
            r = copy_rows(t, w, l, k, buf, buf_bytes, e);
        r = r < 0 ? r : write_thresholds(t, w, l, buf, e);
        r = r < 0 ? r : write_cold(t, w, l, e);
        progress_add(&p, 1);
    }
    if (!r)
        r = trace_writer_commit(w, content, e);
    progress_done(&p);
    trace_writer_abort(w);
    free(sum);
    free(buf);
    return r;
}

/* What must agree for a journal to be continued. */
static struct hash128 config_hash(const struct recorder *t)
{
    const struct trace_info *i = &t->info;
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    hash_update_str(h, i->tool);
    hash_update_str(h, i->tier);
    hash_update_str(h, model_act_name(i->h.act));
    if (i->h.router != MODEL_ROUTER_NONE)
        hash_update_str(h, model_router_name(i->h.router));
    const uint64_t v[] = { i->model_hash.lo, i->model_hash.hi, i->corpus.hash.lo, i->corpus.hash.hi, i->corpus.n_ctx,
                           i->corpus.window_wanted, i->corpus.samples_wanted, (uint64_t)i->shard, (uint64_t)i->n_shards,
                           CHUNK_TOKENS, (uint64_t)i->act_q8 };
    for (size_t k = 0; k < sizeof v / sizeof *v; k++)
        hash_update_u64(h, v[k]);
    if (i->foreseen)
        hash_update_str(h, "foreseen");
    return hash_final128(h);
}

/* The state's records must be of the sizes that this run gives them; they are, unless the file was made up. */
static int check_records(const struct recorder *t, struct err *e)
{
    size_t n;
    const struct journal_record *r = journal_records(t->journal, &n);
    for (size_t i = 0; i < n; i++) {
        int known = r[i].first < n_groups(t->c) && r[i].n == chunk_groups(t->c, r[i].first);
        struct extent x = known ? chunk_extent(t->c, r[i].first, r[i].n) : (struct extent){ 0 };
        if (!known || r[i].bytes != (uint64_t)t->info.h.n_layers * layer_bytes(t, &x))
            return err_set(e, ERR_FORMAT, "the state of the interrupted run holds a chunk that is not of this run");
    }
    return 0;
}

void recorder_cold(struct recorder *t, const float *curves)
{
    t->cold = curves;
}

int recorder_run(struct recorder *t, struct pool *pool, const char *out, int resume, int gzip, uint64_t *resumed_tokens,
                struct hash128 *content, struct err *e)
{
    size_t len = strlen(out) + sizeof ".partial";
    char *partial = malloc(len);
    if (!partial)
        return err_set(e, ERR_NOMEM, "'%s'", out);
    snprintf(partial, len, "%s.partial", out);
    t->pool = pool;
    static const char same[] = "model, prompts, --ctx, --max-tokens, --shard, --window-tokens, --samples, --act, --act-type and --cpu";
    int r = journal_open(partial, config_hash(t), same, resume, &t->journal, e);
    if (!r) {
        uint64_t done = group_start(t->c, journal_next(t->journal));
        if (resumed_tokens)
            *resumed_tokens = done;
        t->resumed_tokens = done;
        progress_init(&t->progress, "tracing", "tokens", t->info.n_tokens - done);
        r = check_records(t, e);
        if (!r)
            r = run_chunks(t, e);
        progress_done(&t->progress);
    }
    if (!r)
        r = write_trace(t, out, gzip, content, e);
    journal_close(t->journal, r == 0);
    t->journal = NULL;
    free(partial);
    return r;
}

/* ---- how fast ---- */

enum { MEASURE_TOKENS = 256 };

struct measure {
    const struct gguf_tensor *t;
    enum kernels_act form;
    const uint8_t *rows;
    int n_rows, n_tokens;
    uint64_t *calls;       /* [threads] */
};

static void measure_sweep(void *ctx, int worker, int n_threads)
{
    struct measure *c = ctx;
    size_t cols = (size_t)c->t->dims[0], stride = kernels_act_bytes(c->form, (int)cols), n = (size_t)c->n_tokens;
    float *one = calloc(cols, sizeof *one), *out = calloc((size_t)c->n_rows * n, sizeof *out);
    uint8_t *x = calloc(n, stride);
    (void)n_threads;
    int64_t end = progress_now_ns() + 200 * 1000000ll;
    for (size_t i = 0; one && i < cols; i++)
        one[i] = (float)(i % 17) - 8;
    for (size_t t = 0; one && x && t < n; t++)
        kernels_act_prepare(x + t * stride, c->form, one, (int)cols);
    while (one && x && out && progress_now_ns() < end) {
        kernels->rows[c->form][c->t->type](out, (size_t)c->n_rows, c->rows, (size_t)c->t->row_bytes, c->n_rows, x, stride, c->n_tokens,
                                           (int)cols);
        c->calls[worker] += (uint64_t)c->n_rows * n * cols * 2;
    }
    free(one), free(x), free(out);
}

double recorder_measure(const struct recorder *t, struct pool *pool)
{
    const struct gguf_tensor *g = t->m->layer[0][MODEL_FFN_GATE];
    struct measure c = { .t = g, .form = kernels_act_form(g->type, t->info.act_q8), .n_rows = g->dims[1] < 64 ? (int)g->dims[1] : 64 };
    uint8_t *rows = malloc((size_t)g->row_bytes * (size_t)c.n_rows);
    struct err e;
    double sum = 0;
    c.rows = rows;
    c.n_tokens = c.form == KERNELS_ACT_Q8 ? MEASURE_TOKENS : FORWARD_TILE; /* as the pass takes them */
    c.calls = calloc((size_t)pool_threads(pool), sizeof *c.calls);
    if (rows && c.calls && kernels->rows[c.form][g->type] &&
        gguf_read(t->m->gguf, g, 0, rows, (size_t)g->row_bytes * (size_t)c.n_rows, &e) == 0) {
        pool_run(pool, measure_sweep, &c);
        for (int i = 0; i < pool_threads(pool); i++)
            sum += (double)c.calls[i];
    }
    free(rows);
    free(c.calls);
    return sum / 0.2;
}
