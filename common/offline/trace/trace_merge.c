/* Joining shards. A shard holds whole groups of sequences, so the merged trace is the groups in corpus
 * order: every dataset with a row per token, or per sample, is copied group by group, and counts are
 * added. Nothing is computed anew, so the result is what an unsharded run would have written. */
#include "common/offline/trace/trace_merge.h"

#include "common/base/file.h"
#include "common/offline/trace/trace_impl.h"
#include "common/offline/trace/trace_predict.h"
#include "common/offline/trace/trace_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_BYTES = 1 << 20 };

/* A group of sequences in its shard: ranges of rows. */
struct segment {
    int shard;
    uint64_t seq, n_seqs, token, n_tokens, window, n_window, sample, n_samples;
};

struct merge {
    int n, first;               /* shards; the number of the one that was named first */
    struct trace **shards;      /* by shard number */
    uint64_t **samples;         /* [shard][its n_samples] */
    struct trace_info info;     /* of the result; tensors borrowed from the first shard */
    struct segment *segments;
    size_t n_segments;
    struct trace_writer *w;
    uint8_t *buf;
    size_t buf_bytes;
};

static const char *path_of(const struct merge *m, int i)
{
    return trace_info(m->shards[i])->path;
}

static int hash_differs(const struct merge *m, int i, const char *what, struct hash128 a, struct hash128 b,
                        struct err *e)
{
    char x[HASH_TEXT], y[HASH_TEXT];
    if (hash_equal(a, b))
        return 0;
    hash_text(a, x);
    hash_text(b, y);
    return err_set(e, ERR_MISMATCH, "'%s' and '%s' differ in %s: %s and %s", path_of(m, 0), path_of(m, i), what, x, y);
}

static int differs(const struct merge *m, int i, const char *what, uint64_t a, uint64_t b, struct err *e)
{
    if (a == b)
        return 0;
    return err_set(e, ERR_MISMATCH, "'%s' and '%s' differ in %s: %llu and %llu", path_of(m, 0), path_of(m, i), what,
                   (unsigned long long)a, (unsigned long long)b);
}

static int check_pair(const struct merge *m, int i, struct err *e)
{
    const struct trace_info *a = trace_info(m->shards[0]), *b = trace_info(m->shards[i]);
    const struct trace_corpus *c = &a->corpus, *d = &b->corpus;
    int r;
    if ((r = hash_differs(m, i, "model", a->model_hash, b->model_hash, e)) < 0 ||
        (r = hash_differs(m, i, "corpus", c->hash, d->hash, e)) < 0 ||
        (r = differs(m, i, "activation function", a->h.act, b->h.act, e)) < 0 ||
        (r = differs(m, i, "router", a->h.router, b->h.router, e)) < 0 ||
        (r = differs(m, i, "int8 activations", (uint64_t)a->act_q8, (uint64_t)b->act_q8, e)) < 0 ||
        (r = differs(m, i, "foreseen experts", (uint64_t)a->foreseen, (uint64_t)b->foreseen, e)) < 0 ||
        (r = differs(m, i, "context", c->n_ctx, d->n_ctx, e)) < 0 ||
        (r = differs(m, i, "corpus tokens", c->n_tokens, d->n_tokens, e)) < 0 ||
        (r = differs(m, i, "corpus sequences", c->n_sequences, d->n_sequences, e)) < 0 ||
        (r = differs(m, i, "window", c->window_tokens, d->window_tokens, e)) < 0 ||
        (r = differs(m, i, "window sequences", c->window_sequences, d->window_sequences, e)) < 0 ||
        (r = differs(m, i, "samples", c->n_samples, d->n_samples, e)) < 0)
        return r;
    /* The same weights with another reading of them would have other shapes. */
    if (a->h.n_layers != b->h.n_layers || a->h.d_model != b->h.d_model || a->h.n_ff != b->h.n_ff ||
        memcmp(a->h.widths, b->h.widths, sizeof a->h.widths) || a->h.n_experts != b->h.n_experts ||
        a->h.n_experts_used != b->h.n_experts_used)
        return err_set(e, ERR_MISMATCH, "'%s' and '%s' differ in hyper-parameters", a->path, b->path);
    return 0;
}

/* "shards 0, 3 of 4 are missing", and which one there is. */
static int missing(const struct merge *m, struct err *e)
{
    char list[160] = "";
    int n = 0, there = 0;
    for (int i = 0; i < m->n; i++) {
        size_t len = strlen(list);
        if (m->shards[i])
            there = i;
        else if (n++, len + 16 < sizeof list)
            snprintf(list + len, sizeof list - len, "%s%d", len ? ", " : "", i);
        else if (list[len - 1] != '.')
            memcpy(list + len, ", ...", 6);
    }
    if (n == 0)
        return 0;
    return err_set(e, ERR_MISMATCH, "shard%s %s of %d %s missing ('%s' is shard %d of %d): give all of a run", n > 1 ? "s" : "", list,
                   m->n, n > 1 ? "are" : "is", path_of(m, there), there, m->n);
}

/* A file's place among the shards; which run it is of, the first says. */
static int open_shard(struct merge *m, const char *path, struct err *e)
{
    struct trace *t;
    int r = trace_open(path, &t, e);
    if (r < 0)
        return r;
    const struct trace_info *info = trace_info(t);
    if (!m->shards && !(m->shards = calloc((size_t)info->n_shards, sizeof *m->shards)))
        r = err_set(e, ERR_NOMEM, "merging %d shards", info->n_shards);
    else if (!m->n)
        m->n = info->n_shards, m->first = info->shard;
    if (r == 0 && info->n_shards != m->n)
        r = err_set(e, ERR_MISMATCH, "'%s' is shard %d of %d, '%s' shard %d of %d: they are of different runs", path_of(m, m->first),
                    m->first, m->n, path, info->shard, info->n_shards);
    else if (r == 0 && m->shards[info->shard])
        r = err_set(e, ERR_MISMATCH, "'%s' and '%s' are both shard %d of %d", path_of(m, info->shard), path, info->shard,
                    info->n_shards);
    if (r < 0)
        trace_close(t);
    else
        m->shards[info->shard] = t;
    return r;
}

static int open_shards(struct merge *m, const char *const *paths, int n_paths, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n_paths && r == 0; i++)
        r = open_shard(m, paths[i], e);
    if (r == 0)
        r = missing(m, e);
    for (int i = 1; i < m->n && r == 0; i++)
        r = check_pair(m, i, e);
    return r;
}

static int check_predictors(const struct merge *m, struct err *e)
{
    for (int i = 0; i < m->n; i++) {
        struct trace_predictors *p = NULL;
        int r = trace_predictors_open(m->shards[i], &p, e);
        if (r == 0 && p)
            r = err_set(e, ERR_USAGE, "'%s' holds predictors, which were made from its own samples; merge leaves them out "
                        "with --drop-predictors, and 'thermo-profile predictors' makes them anew for the merged trace",
                        path_of(m, i));
        trace_predictors_close(p);
        if (r < 0)
            return r;
    }
    return 0;
}

static int load_samples(struct merge *m, struct err *e)
{
    for (int i = 0; i < m->n; i++) {
        uint64_t n = trace_info(m->shards[i])->n_samples;
        m->samples[i] = malloc((size_t)(n + 1) * sizeof(uint64_t));
        if (!m->samples[i])
            return err_set(e, ERR_NOMEM, "'%s': %llu samples", path_of(m, i), (unsigned long long)n);
        int r = trace_sample_tokens(m->shards[i], 0, n, m->samples[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Walk the corpus group by group; every sequence must be where its shard ought to have it. */
static int plan(struct merge *m, struct err *e)
{
    struct trace_info *out = &m->info;
    *out = *trace_info(m->shards[0]);
    out->shard = 0, out->n_shards = 1;
    uint64_t total = out->corpus.n_sequences, *seq = calloc((size_t)m->n, 8), *smp = calloc((size_t)m->n, 8);
    uint64_t n_tokens = 0, n_window = 0, n_samples = 0;
    int r = 0;
    m->segments = calloc((size_t)(total / TRACE_GROUP + 1), sizeof *m->segments);
    if (!seq || !smp || !m->segments)
        r = err_set(e, ERR_NOMEM, "merging %llu sequences", (unsigned long long)total);
    for (uint64_t g = 0; !r && g < total; g += TRACE_GROUP) {
        struct segment *s = &m->segments[m->n_segments++];
        s->shard = trace_shard_of(g, m->n);
        const struct trace_info *info = trace_info(m->shards[s->shard]);
        const uint64_t *starts = trace_sequence_starts(m->shards[s->shard]),
                       *index = trace_sequence_index(m->shards[s->shard]);
        s->seq = seq[s->shard];
        s->n_seqs = total - g < TRACE_GROUP ? total - g : TRACE_GROUP;
        for (uint64_t k = 0; !r && k < s->n_seqs; k++)
            if (s->seq + k >= info->n_sequences || index[s->seq + k] != g + k)
                r = err_set(e, ERR_FORMAT, "'%s': sequence %llu of the corpus is missing", info->path,
                            (unsigned long long)(g + k));
        if (r < 0)
            break;
        s->token = starts[s->seq];
        s->n_tokens = starts[s->seq + s->n_seqs] - s->token;
        s->window = s->token;
        s->n_window = info->window_tokens <= s->token ? 0
                    : info->window_tokens - s->token < s->n_tokens ? info->window_tokens - s->token : s->n_tokens;
        s->sample = smp[s->shard];
        while (smp[s->shard] < info->n_samples && m->samples[s->shard][smp[s->shard]] < s->token + s->n_tokens)
            smp[s->shard]++;
        s->n_samples = smp[s->shard] - s->sample;
        seq[s->shard] += s->n_seqs;
        n_tokens += s->n_tokens, n_window += s->n_window, n_samples += s->n_samples;
    }
    for (int i = 0; !r && i < m->n; i++)
        if (seq[i] != trace_info(m->shards[i])->n_sequences)
            r = err_set(e, ERR_FORMAT, "'%s' has sequences that are not its own", path_of(m, i));
    if (!r && (n_tokens != out->corpus.n_tokens || n_window != out->corpus.window_tokens ||
               n_samples != out->corpus.n_samples))
        r = err_set(
            e, ERR_FORMAT,
            "'%s' and its sisters hold %llu of %llu tokens, %llu of %llu in the window, %llu of %llu samples",
            path_of(m, 0), (unsigned long long)n_tokens, (unsigned long long)out->corpus.n_tokens,
            (unsigned long long)n_window, (unsigned long long)out->corpus.window_tokens,
            (unsigned long long)n_samples, (unsigned long long)out->corpus.n_samples);
    free(seq);
    free(smp);
    out->n_tokens = n_tokens, out->n_sequences = total, out->n_samples = n_samples;
    out->window_tokens = n_window, out->window_sequences = out->corpus.window_sequences;
    return r;
}

/* Sums and joined texts of the result's attributes. */
static void combine(struct merge *m)
{
    for (int i = 1; i < m->n; i++) {
        const struct trace_info *a = trace_info(m->shards[i]);
        for (int k = 0; k < TRACE_BATCH_KINDS; k++)
            for (int s = 0; s < TRACE_BATCH_SIZES; s++)
                m->info.n_batches[k][s] += a->n_batches[k][s];
        if (!strstr(m->info.tier, a->tier)) { /* machines differed: say all their tiers */
            size_t len = strlen(m->info.tier);
            snprintf(m->info.tier + len, sizeof m->info.tier - len, "+%.24s", a->tier);
        }
    }
}

static int copy(struct merge *m, enum trace_set s, int layer, int shard, uint64_t first, uint64_t n, struct err *e)
{
    uint64_t dims[3], row;
    if (!trace_set_dims(&m->info, s, dims, &row))
        return 0;
    if (row > m->buf_bytes) {
        uint8_t *p = realloc(m->buf, (size_t)row);
        if (!p)
            return err_set(e, ERR_NOMEM, "a row of '%s'", trace_set_specs[s].name);
        m->buf = p, m->buf_bytes = (size_t)row;
    }
    uint64_t step = m->buf_bytes / row;
    for (uint64_t done = 0; done < n; done += step) {
        uint64_t k = n - done < step ? n - done : step;
        int r = trace_read_rows(m->shards[shard], s, layer, first + done, k, m->buf, e);
        if (r < 0 || (r = trace_writer_append(m->w, s, layer, k, m->buf, e)) < 0)
            return r;
    }
    return 0;
}

static int copy_all(struct merge *m, enum trace_set s, int layer, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < m->n_segments && !r; i++) {
        const struct segment *g = &m->segments[i];
        switch (s) {
        case TRACE_SET_ROWS: r = copy(m, s, layer, g->shard, g->seq, g->n_seqs, e); break;
        case TRACE_SET_TOKENS:
        case TRACE_SET_ROUTING:
        case TRACE_SET_FORESEEN: r = copy(m, s, layer, g->shard, g->token, g->n_tokens, e); break;
        case TRACE_SET_MAPS: r = copy(m, s, layer, g->shard, g->window, g->n_window, e); break;
        default: r = copy(m, s, layer, g->shard, g->sample, g->n_samples, e); break;
        }
    }
    return r;
}

/* What is known per sequence, renumbered, and the sampled tokens; in the order of a trace run. */
static int write_sequences(struct merge *m, struct err *e)
{
    uint64_t at = 0, starts[TRACE_GROUP + 1], index[TRACE_GROUP], zero = 0;
    int r = trace_writer_append(m->w, TRACE_SET_STARTS, 0, 1, &zero, e);
    for (size_t i = 0; i < m->n_segments && !r; i++) {
        const struct segment *g = &m->segments[i];
        const uint64_t *from = trace_sequence_starts(m->shards[g->shard]) + g->seq;
        for (uint64_t k = 1; k <= g->n_seqs; k++)
            starts[k - 1] = at + from[k] - from[0];
        r = trace_writer_append(m->w, TRACE_SET_STARTS, 0, g->n_seqs, starts, e);
        at += g->n_tokens;
    }
    for (size_t i = 0; i < m->n_segments && !r; i++) {
        const struct segment *g = &m->segments[i];
        for (uint64_t k = 0; k < g->n_seqs; k++)
            index[k] = i * TRACE_GROUP + k;
        r = trace_writer_append(m->w, TRACE_SET_INDEX, 0, g->n_seqs, index, e);
    }
    if (!r)
        r = copy_all(m, TRACE_SET_ROWS, 0, e);
    at = 0;
    for (size_t i = 0; i < m->n_segments && !r; i++) {
        const struct segment *g = &m->segments[i];
        for (uint64_t k = 0; k < g->n_samples && !r; k++) {
            uint64_t v = m->samples[g->shard][g->sample + k] - g->token + at;
            r = trace_writer_append(m->w, TRACE_SET_SAMPLE_TOKENS, 0, 1, &v, e);
        }
        at += g->n_tokens;
    }
    return r;
}

static int add_counts(struct merge *m, enum trace_set s, int layer, struct err *e)
{
    uint64_t dims[3], row;
    trace_set_dims(&m->info, s, dims, &row);
    int r = 0;
    uint64_t *sum = NULL, *one = NULL;
    for (uint64_t at = 0; at < dims[0] && !r; at++)
        for (int i = 0; i < m->n && !r; i++) {
            if (!sum && (!(sum = malloc((size_t)row)) || !(one = malloc((size_t)row)))) {
                r = err_set(e, ERR_NOMEM, "a row of '%s'", trace_set_specs[s].name);
                break;
            }
            r = trace_read_rows(m->shards[i], s, layer, at, 1, i ? one : sum, e);
            for (uint64_t k = 0; i && !r && k < row / 8; k++)
                if (__builtin_add_overflow(sum[k], one[k], &sum[k]))
                    r = err_set(e, ERR_FORMAT, "'%s': a count of '%s' in layer %d overflows", path_of(m, i),
                                trace_set_specs[s].name, layer);
            if (!r && i == m->n - 1)
                r = trace_writer_append(m->w, s, layer, 1, sum, e);
        }
    free(sum);
    free(one);
    return r;
}

static int write_layer(struct merge *m, int layer, struct err *e)
{
    static const enum trace_set counts[] = { TRACE_SET_COUNTS,     TRACE_SET_GATE_COUNTS, TRACE_SET_BATCH_SEQ,
                                             TRACE_SET_BATCH_CONS, TRACE_SET_ROUTED,      TRACE_SET_ROUTED_SEQ,
                                             TRACE_SET_ROUTED_CONS };
    static const enum trace_set rows[] = { TRACE_SET_MAPS,      TRACE_SET_ROUTING, TRACE_SET_BLOCK_INPUT,
                                           TRACE_SET_FFN_INPUT, TRACE_SET_FFN_RMS, TRACE_SET_GATE_SIGNS,
                                           TRACE_SET_FORESEEN };
    int r = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !r; i++)
        r = add_counts(m, counts[i], layer, e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !r; i++)
        r = copy_all(m, rows[i], layer, e);
    r = r < 0 ? r : copy(m, TRACE_SET_THRESHOLDS, layer, 0, 0, (uint64_t)m->info.h.n_ff, e);
    return r < 0 ? r : copy(m, TRACE_SET_COLD, layer, 0, 0, (uint64_t)m->info.h.n_ff, e);
}

static int write_all(struct merge *m, void (*on_layer)(void *ctx, int done, int of), void *ctx, struct err *e)
{
    int r, n = m->info.h.n_layers;
    if ((r = copy_all(m, TRACE_SET_TOKENS, 0, e)) < 0 || (r = write_sequences(m, e)) < 0)
        return r;
    for (int l = 0; l < n && !r; l++) {
        r = file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : write_layer(m, l, e);
        if (!r && on_layer)
            on_layer(ctx, l + 1, n);
    }
    return r;
}

int trace_merge(const char *const *paths, int n, const char *out, int gzip, int drop_predictors,
                void (*on_layer)(void *ctx, int done, int of), void *ctx, struct hash128 *content, struct err *e)
{
    struct merge m = { .buf_bytes = BUF_BYTES };
    m.buf = malloc(BUF_BYTES);
    int r = m.buf ? open_shards(&m, paths, n, e) : err_set(e, ERR_NOMEM, "merging %d files", n);
    if (r == 0 && !(m.samples = calloc((size_t)m.n, sizeof *m.samples)))
        r = err_set(e, ERR_NOMEM, "merging %d files", n);
    if (r < 0 ||
        (!drop_predictors && (r = check_predictors(&m, e)) < 0) ||
        (r = load_samples(&m, e)) < 0 ||
        (r = plan(&m, e)) < 0)
        goto out;
    combine(&m);
    if ((r = trace_writer_open(out, &m.info, gzip, &m.w, e)) == 0 && (r = write_all(&m, on_layer, ctx, e)) == 0)
        r = trace_writer_commit(m.w, content, e);
out:
    trace_writer_abort(m.w);
    for (int i = 0; i < m.n; i++) {
        if (m.shards)
            trace_close(m.shards[i]);
        if (m.samples)
            free(m.samples[i]);
    }
    free(m.shards), free(m.samples), free(m.segments), free(m.buf);
    return r;
}
