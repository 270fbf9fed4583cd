/* The whole corpus is tokenised by every shard: that is quick beside the forward pass, and it fixes
 * window, samples and the corpus hash, so that shards agree on them without talking. Then the shard
 * keeps its own groups. */
#include "profiler/trace/corpus.h"

#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/offline/table.h"
#include "common/offline/trace/trace_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct growing {
    uint32_t *tokens, *rows;
    uint64_t *starts;
    size_t n_tokens, cap_tokens, n_seqs, cap_seqs;
    int full;                  /* max_tokens is reached, or the next sequence would hold no token of its text */
};

static int push_sequence(struct growing *g, int32_t bos, const int32_t *ids, size_t n, uint32_t row)
{
    size_t need = g->n_tokens + n + 1;
    if (need > g->cap_tokens) {
        size_t cap = need * 2;
        uint32_t *t = realloc(g->tokens, cap * sizeof *t);
        if (!t)
            return ERR_NOMEM;
        g->tokens = t, g->cap_tokens = cap;
    }
    if (g->n_seqs + 2 > g->cap_seqs) {
        size_t cap = (g->n_seqs + 2) * 2;
        uint64_t *s = realloc(g->starts, cap * sizeof *s);
        if (s)
            g->starts = s;
        uint32_t *r = realloc(g->rows, cap * sizeof *r);
        if (r)
            g->rows = r;
        if (!s || !r)
            return ERR_NOMEM;
        g->cap_seqs = cap;
    }
    g->starts[g->n_seqs] = g->n_tokens;
    if (bos >= 0)
        g->tokens[g->n_tokens++] = (uint32_t)bos;
    for (size_t i = 0; i < n; i++)
        g->tokens[g->n_tokens++] = (uint32_t)ids[i];
    g->rows[g->n_seqs++] = row;
    g->starts[g->n_seqs] = g->n_tokens;
    return 0;
}

/* One row into sequences of at most n_ctx tokens, until the corpus has max_tokens. */
static int push_row(struct growing *g, const struct corpus_options *o, int32_t bos, const int32_t *ids, size_t n,
                    uint32_t row)
{
    size_t lead = bos >= 0, at = 0;
    do {
        uint64_t room = o->max_tokens ? o->max_tokens - g->n_tokens : UINT64_MAX;
        size_t k = n - at;
        if (k + lead > o->n_ctx)
            k = (size_t)o->n_ctx - lead;
        if (k + lead > room)
            k = room > lead ? (size_t)room - lead : 0;
        g->full = lead > room || (n > 0 && k == 0);
        if (g->full || k + lead == 0)
            return 0;
        if (push_sequence(g, bos, ids + at, k, row) < 0)
            return ERR_NOMEM;
        at += k;
        g->full = o->max_tokens && g->n_tokens >= o->max_tokens;
    } while (at < n && !g->full);
    return 0;
}

/* With BOS the tokenizer says whether the model wants one: it is then the first id. */
static int push_text(struct growing *g, const struct corpus_options *o, const struct tokenizer *tok, int n_vocab,
                     const char *text, size_t len, uint32_t row, struct err *e)
{
    int32_t *ids, bos = -1;
    int n, at = 0, r = tokenizer_encode(tok, text, len, 1, 0, &ids, &n, e);
    if (r < 0)
        return r;
    if (n > 0 && ids[0] == tokenizer_bos(tok) && tokenizer_bos(tok) >= 0)
        bos = ids[0], at = 1;
    for (int i = 0; i < n && !r; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            r = err_set(e, ERR_FORMAT, "row %u gives token id %d; the model has %d", row + 1, ids[i], n_vocab);
    if (!r && push_row(g, o, bos, ids + at, (size_t)(n - at), row) < 0)
        r = err_set(e, ERR_NOMEM, "a corpus of %zu tokens", g->n_tokens);
    free(ids);
    return r;
}

static int read_rows(struct growing *g, const struct corpus_options *o, const struct tokenizer *tok, int n_vocab,
                     struct err *e)
{
    struct table *t;
    int col, r = table_read(o->prompts, &t, e);
    if (r < 0)
        return r;
    struct progress p;
    progress_init(&p, "tokenizing", "rows", (uint64_t)table_rows(t));
    if ((r = table_need(t, o->column, &col, e)) == 0)
        for (int i = 0; i < table_rows(t) && !r && !g->full; i++) {
            size_t len;
            const char *text = table_cell(t, i, col, &len);
            if (file_interrupted())
                r = err_set(e, ERR_INTR, "interrupted");
            else
                r = push_text(g, o, tok, n_vocab, text, len, (uint32_t)i, e);
            progress_add(&p, 1);
        }
    progress_done(&p);
    table_free(t);
    return r;
}

static struct hash128 corpus_hash(const struct growing *g)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    hash_update_u64(h, g->n_seqs);
    for (size_t i = 0; i < g->n_seqs; i++) {
        hash_update_u64(h, g->starts[i + 1] - g->starts[i]);
        for (uint64_t t = g->starts[i]; t < g->starts[i + 1]; t++)
            hash_update_u32(h, g->tokens[t]);
    }
    return hash_final128(h);
}

static int describe(struct corpus *c, const struct corpus_options *o, const struct growing *g, struct err *e)
{
    struct trace_corpus *i = &c->info;
    const char *base = strrchr(o->prompts, '/');
    char *text;
    size_t len;
    int r = file_slurp(o->prompts, TABLE_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    i->prompts_hash = hash_128(text, len);
    free(text);
    snprintf(i->prompts, sizeof i->prompts, "%s", base ? base + 1 : o->prompts);
    snprintf(i->column, sizeof i->column, "%s", o->column);
    i->n_ctx = o->n_ctx, i->max_tokens = o->max_tokens;
    i->hash = corpus_hash(g);
    i->n_tokens = g->n_tokens, i->n_sequences = g->n_seqs;
    i->window_wanted = o->window, i->samples_wanted = o->samples;
    trace_window(g->starts, g->n_seqs, o->window, &i->window_sequences, &i->window_tokens);
    i->n_samples = o->samples < g->n_tokens ? o->samples : g->n_tokens;
    return 0;
}

/* Keep this shard's sequences and samples. */
static int select_shard(struct corpus *c, const struct growing *g, struct err *e)
{
    c->tokens = malloc((g->n_tokens + 1) * sizeof *c->tokens);
    c->starts = malloc((g->n_seqs + 1) * sizeof *c->starts);
    c->index = malloc((g->n_seqs + 1) * sizeof *c->index);
    c->rows = malloc((g->n_seqs + 1) * sizeof *c->rows);
    c->samples = malloc((c->info.n_samples + 1) * sizeof *c->samples);
    if (!c->tokens || !c->starts || !c->index || !c->rows || !c->samples)
        return err_set(e, ERR_NOMEM, "a corpus of %zu tokens", g->n_tokens);
    uint64_t s = 0, n_samples = c->info.n_samples;
    for (size_t i = 0; i < g->n_seqs; i++) {
        uint64_t len = g->starts[i + 1] - g->starts[i];
        int mine = trace_shard_of(i, c->n_shards) == c->shard;
        for (uint64_t at; s < n_samples && (at = trace_sample_token(s, n_samples, g->n_tokens)) < g->starts[i + 1]; s++)
            if (mine)
                c->samples[c->n_samples++] = c->n_tokens + (at - g->starts[i]);
        if (!mine)
            continue;
        c->starts[c->n_sequences] = c->n_tokens;
        c->index[c->n_sequences] = i;
        c->rows[c->n_sequences++] = g->rows[i];
        memcpy(c->tokens + c->n_tokens, g->tokens + g->starts[i], (size_t)len * sizeof *c->tokens);
        c->n_tokens += len;
        if (i < c->info.window_sequences)
            c->window_sequences++, c->window_tokens += len;
    }
    c->starts[c->n_sequences] = c->n_tokens;
    if (!c->n_sequences)
        return err_set(e, ERR_INPUT,
                       "shard %d of %d has nothing to do: the corpus has %zu sequences, which are %zu groups of %d",
                       c->shard, c->n_shards, g->n_seqs, (g->n_seqs + TRACE_GROUP - 1) / TRACE_GROUP, TRACE_GROUP);
    return 0;
}

int corpus_read(const struct corpus_options *o, const struct tokenizer *tok, int n_vocab, struct corpus **out,
                struct err *e)
{
    struct growing g = { 0 };
    struct corpus *c = calloc(1, sizeof *c);
    int r = c ? read_rows(&g, o, tok, n_vocab, e) : err_set(e, ERR_NOMEM, "corpus");
    if (!r && !g.n_seqs)
        r = err_set(e, ERR_INPUT, "'%s': column '%s' gives no tokens", o->prompts, o->column);
    if (!r) {
        c->shard = o->shard, c->n_shards = o->n_shards;
        if ((r = describe(c, o, &g, e)) == 0)
            r = select_shard(c, &g, e);
    }
    free(g.tokens), free(g.rows), free(g.starts);
    if (r < 0)
        corpus_free(c);
    else
        *out = c;
    return r;
}

void corpus_free(struct corpus *c)
{
    if (!c)
        return;
    free(c->tokens), free(c->starts), free(c->index), free(c->rows), free(c->samples);
    free(c);
}
