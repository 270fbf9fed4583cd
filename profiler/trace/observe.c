/* Counting over bit maps. The work is divided by columns: a worker owns a range of 64-neuron words
 * of every block, goes over all batches, ORs the words of a batch's tokens and adds the result to
 * vertical counters: eight bit planes per word, so that adding 64 one-bit numbers costs a carry
 * chain of two words on average, emptied into the 32-bit counts before they overflow. Counts are integers,
 * so the division among workers cannot show in them. */
#include "profiler/trace/observe.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { PLANES = 8, FULL = (1 << PLANES) - 1 };

size_t observe_size(const struct model_hparams *h)
{
    size_t blocks = (size_t)model_ffn_blocks(h), n_ff = (size_t)h->n_ff;
    return (2 + TRACE_BATCH_KINDS * TRACE_BATCH_SIZES) * blocks * n_ff +
           (1 + TRACE_BATCH_KINDS * TRACE_BATCH_SIZES) * blocks;
}

int observe_new(const struct model_hparams *h, struct observe **out, struct err *e)
{
    struct observe *o = calloc(1, sizeof *o);
    size_t blocks = (size_t)model_ffn_blocks(h), n_ff = (size_t)h->n_ff;
    if (o)
        o->all = calloc(observe_size(h), sizeof *o->all);
    if (!o || !o->all) {
        observe_free(o);
        return err_set(e, ERR_NOMEM, "counts of %zu neurons", blocks * n_ff);
    }
    o->n_blocks = (int)blocks, o->n_ff = h->n_ff, o->n_all = observe_size(h);
    uint32_t *p = o->all;
    o->counts = p, p += blocks * n_ff;
    o->gate_counts = p, p += blocks * n_ff;
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        o->batch[k] = p, p += TRACE_BATCH_SIZES * blocks * n_ff;
    o->routed = p, p += blocks;
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        o->routed_batch[k] = p, p += TRACE_BATCH_SIZES * blocks;
    *out = o;
    return 0;
}

void observe_free(struct observe *o)
{
    if (o)
        free(o->all);
    free(o);
}

/* ---- which batches there are ---- */

/* A batch: n tokens, the i-th at first[i] + position. */
typedef void batch_fn(void *ctx, const uint64_t *first, int n, uint64_t position);

/* Batches of n tokens at one position of n sequences: within each group of TRACE_GROUP sequences, full runs of n
 * consecutive ones, up to the shortest of them. */
static void across(const uint64_t *starts, size_t n_sequences, int n, batch_fn *fn, void *ctx)
{
    for (size_t g = 0; g < n_sequences; g += TRACE_GROUP) {
        size_t end = n_sequences - g < TRACE_GROUP ? n_sequences : g + TRACE_GROUP;
        for (size_t s = g; s + (size_t)n <= end; s += (size_t)n) {
            uint64_t shortest = UINT64_MAX;
            for (size_t i = s; i < s + (size_t)n; i++)
                if (starts[i + 1] - starts[i] < shortest)
                    shortest = starts[i + 1] - starts[i];
            for (uint64_t p = 0; p < shortest; p++)
                fn(ctx, starts + s, n, p);
        }
    }
}

/* Batches of n consecutive tokens of one sequence, from its beginning; a shorter rest is left out. */
static void along(const uint64_t *starts, size_t n_sequences, int n, batch_fn *fn, void *ctx)
{
    uint64_t first[32];
    for (int i = 0; i < n; i++)
        first[i] = (uint64_t)i;
    for (size_t s = 0; s < n_sequences; s++)
        for (uint64_t p = starts[s]; p + (uint64_t)n <= starts[s + 1]; p += (uint64_t)n)
            fn(ctx, first, n, p);
}

static void all_batches(const uint64_t *starts, size_t n_sequences, int kind, int size, batch_fn *fn, void *ctx)
{
    (kind == TRACE_BATCH_SEQUENCES ? across : along)(starts, n_sequences, trace_batch_sizes[size], fn, ctx);
}

static void add_one(void *ctx, const uint64_t *first, int n, uint64_t position)
{
    (void)first, (void)n, (void)position;
    ++*(uint64_t *)ctx;
}

void observe_batches(const uint64_t *starts, size_t n_sequences,
                     uint64_t n_batches[TRACE_BATCH_KINDS][TRACE_BATCH_SIZES])
{
    for (int k = 0; k < TRACE_BATCH_KINDS; k++)
        for (int s = 0; s < TRACE_BATCH_SIZES; s++)
            all_batches(starts, n_sequences, k, s, add_one, &n_batches[k][s]);
}

/* ---- counting ---- */

/* A worker's counters for one array [n_blocks][n_ff], words [w0, w0 + n_words) of each block. */
struct counter {
    const struct forward_layer *l;
    const uint8_t *bits;
    int n_blocks, n_ff;
    size_t w0, n_words;
    uint64_t *planes;     /* [n_blocks][n_words][PLANES] */
    uint64_t *any;         /* [n_blocks][n_words] of the batch */
    uint8_t *touched;     /* [n_blocks] */
    int *added;           /* [n_blocks]: since the planes were emptied */
    uint32_t *out;        /* [n_blocks][n_ff], added to */
    uint32_t *routed;     /* [n_blocks], added to by the worker that owns word 0; NULL: not counted */
};

static void empty(struct counter *c, int block)
{
    uint32_t *out = c->out + (size_t)block * (size_t)c->n_ff;
    uint64_t *planes = c->planes + (size_t)block * c->n_words * PLANES;
    for (size_t w = 0; w < c->n_words; w++, planes += PLANES)
        for (int p = 0; p < PLANES; p++)
            for (uint64_t v = planes[p]; v; v &= v - 1)
                out[(c->w0 + w) * 64 + (size_t)__builtin_ctzll(v)] += 1u << p;
    memset(c->planes + (size_t)block * c->n_words * PLANES, 0, c->n_words * PLANES * 8);
    c->added[block] = 0;
}

static void add_words(struct counter *c, int block, const uint64_t *words)
{
    uint64_t *planes = c->planes + (size_t)block * c->n_words * PLANES;
    for (size_t w = 0; w < c->n_words; w++, planes += PLANES) {
        uint64_t carry = words[w];
        for (int p = 0; carry; p++) {
            uint64_t t = planes[p] & carry;
            planes[p] ^= carry;
            carry = t;
        }
    }
    if (++c->added[block] == FULL)
        empty(c, block);
    if (c->routed)
        c->routed[block]++;
}

static void add_batch(void *ctx, const uint64_t *first, int n, uint64_t position)
{
    struct counter *c = ctx;
    const struct forward_layer *l = c->l;
    size_t k = (size_t)l->n_slots;
    for (int i = 0; i < n; i++) {
        size_t token = (size_t)(first[i] + position);
        for (size_t s = 0; s < k; s++) {
            int block = l->blocks[token * k + s];
            const uint8_t *row = c->bits + (token * k + s) * l->row_bytes + c->w0 * 8;
            uint64_t *any = c->any + (size_t)block * c->n_words;
            if (!c->touched[block])
                memset(any, 0, c->n_words * 8);
            c->touched[block] = 1;
            for (size_t w = 0; w < c->n_words; w++)
                any[w] |= bytes_le64(row + w * 8);
        }
    }
    for (int b = 0; b < c->n_blocks; b++)
        if (c->touched[b]) {
            add_words(c, b, c->any + (size_t)b * c->n_words);
            c->touched[b] = 0;
        }
}

struct job {
    struct observe *o;
    const struct forward_layer *l;
    const uint64_t *starts;
    size_t n_sequences, n_words, grain;
    int failed;
};

static void count(struct job *j, struct counter *c, const uint8_t *bits, int kind, int size, uint32_t *out,
                  uint32_t *routed)
{
    c->bits = bits;
    c->out = out;
    c->routed = c->w0 ? NULL : routed;
    all_batches(j->starts, j->n_sequences, kind, size, add_batch, c);
    for (int b = 0; b < c->n_blocks; b++)
        empty(c, b);
}

static void columns(void *ctx, int begin, int end, int worker)
{
    struct job *j = ctx;
    struct observe *o = j->o;
    size_t blocks = (size_t)o->n_blocks, n_ff = (size_t)o->n_ff;
    struct counter c = { .l = j->l, .n_blocks = o->n_blocks, .n_ff = o->n_ff, .w0 = (size_t)begin * j->grain };
    (void)worker;
    c.n_words = (size_t)end * j->grain < j->n_words ? (size_t)end * j->grain - c.w0 : j->n_words - c.w0;
    c.planes = calloc(blocks * c.n_words * PLANES, 8);
    c.any = calloc(blocks * c.n_words, 8);
    c.touched = calloc(blocks, 1);
    c.added = calloc(blocks, sizeof *c.added);
    if (c.planes && c.any && c.touched && c.added) {
        count(j, &c, j->l->active, TRACE_BATCH_CONSECUTIVE, 0, o->counts, o->routed);
        if (j->l->open != j->l->active)
            count(j, &c, j->l->open, TRACE_BATCH_CONSECUTIVE, 0, o->gate_counts, NULL);
        for (int k = 0; k < TRACE_BATCH_KINDS; k++)
            for (int s = 1; s < TRACE_BATCH_SIZES; s++)
                count(j, &c, j->l->active, k, s, o->batch[k] + (size_t)s * blocks * n_ff,
                      o->routed_batch[k] + (size_t)s * blocks);
    } else {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
    }
    free(c.planes), free(c.any), free(c.touched), free(c.added);
}

int observe_layer(struct observe *o, struct pool *pool, const struct forward_layer *l, const uint64_t *starts,
                  size_t n_sequences, struct err *e)
{
    struct job j = { .o = o, .l = l, .starts = starts, .n_sequences = n_sequences, .n_words = l->row_bytes / 8 };
    size_t blocks = (size_t)o->n_blocks, n_ff = (size_t)o->n_ff;
    memset(o->all, 0, o->n_all * sizeof *o->all);
    /* Ranges of at least a cache line, and no more of them than four per worker. */
    size_t pieces = 4 * (size_t)pool_threads(pool);
    j.grain = (j.n_words + pieces - 1) / pieces;
    j.grain = j.grain < 8 ? 8 : j.grain;
    pool_for(pool, (int)((j.n_words + j.grain - 1) / j.grain), 1, columns, &j);
    if (j.failed)
        return err_set(e, ERR_NOMEM, "counters of layer %d", l->layer);
    if (l->open == l->active)
        memcpy(o->gate_counts, o->counts, blocks * n_ff * sizeof *o->counts);
    for (int k = 0; k < TRACE_BATCH_KINDS; k++) { /* batches of one token are the tokens */
        memcpy(o->batch[k], o->counts, blocks * n_ff * sizeof *o->counts);
        memcpy(o->routed_batch[k], o->routed, blocks * sizeof *o->routed);
    }
    return 0;
}
