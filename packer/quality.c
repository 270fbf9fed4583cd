/* Two passes over the same tokens. The second asks here for every FFN matrix; it is read back from
 * the pack, an FFN's part at a time, converted to F32 and put into the source's order. Float32 products of an F32
 * matrix and of an F16 or quantised one may add in different orders, so the first pass too is given
 * F32 matrices, made from the source: what differs then is the weights alone. */
#include "packer/quality.h"

#include "common/base/ckmath.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/model/logits.h"
#include "common/offline/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_ROWS = 16, MOST_BLOCK = 256 };

struct matrices {
    const struct model *m;
    const struct pack *p;           /* NULL: the source's own */
    struct pool *pool;
    float *rows[LAYOUT_ROLES];      /* one layer's, all experts */
    uint8_t *part;                  /* one part of one FFN, as the pack has it; NULL: none yet */
    size_t part_room;
    uint64_t part_first;            /* its place in the file; 0: none was read */
    size_t row_room;                /* elements of the longest row */
    float *piece, *row;             /* workers': [threads][SOURCE_ROWS][row_room], [threads][row_room] */
    uint32_t *order;
    struct err *err;                /* [threads]: code 0 where all went well */
    struct progress progress;
};

static int first_error(const struct matrices *k, struct err *e)
{
    for (int i = 0; i < pool_threads(k->pool); i++)
        if (k->err[i].code < 0) {
            *e = k->err[i];
            return e->code;
        }
    return 0;
}

/* ---- from the source ---- */

struct source_job {
    struct matrices *k;
    const struct gguf_tensor *t;
    int transposed;                       /* Down that the file has by neuron */
    float *out;
};

static void source_rows(void *ctx, int begin, int end, int worker)
{
    const struct source_job *j = ctx;
    const struct gguf_tensor *t = j->t;
    size_t row = (size_t)t->row_bytes, n = (size_t)t->dims[0];
    uint8_t *raw = (uint8_t *)(j->k->piece + (size_t)worker * SOURCE_ROWS * j->k->row_room);
    float *by_column = j->k->row + (size_t)worker * j->k->row_room;
    for (size_t i = (size_t)begin * SOURCE_ROWS, last; begin < end; begin++) {
        last = i + SOURCE_ROWS < t->n_rows ? i + SOURCE_ROWS : (size_t)t->n_rows;
        if (gguf_read(j->k->m->gguf, t, i * row, raw, (last - i) * row, &j->k->err[worker]) < 0)
            return;
        for (const uint8_t *from = raw; i < last; i++, from += row) {
            quant_traits(t->type)->dequant(j->transposed ? by_column : j->out + i * n, from, n);
            for (size_t c = 0; j->transposed && c < n; c++)
                j->out[c * (size_t)t->n_rows + i] = by_column[c];
        }
    }
}

static int from_source(struct matrices *k, const struct gguf_tensor *t, int transposed, float *out, struct err *e)
{
    struct source_job j = { k, t, transposed, out };
    pool_for(k->pool, (int)((t->n_rows + SOURCE_ROWS - 1) / SOURCE_ROWS), 4, source_rows, &j);
    return first_error(k, e);
}

/* ---- from the pack ---- */

struct pack_job {
    const struct matrices *k;
    const struct layout_shape *s;
    const struct layout_part *lp;
    int layer, block, part, role;
    float *out;
};

static const uint8_t *unit_of(const struct pack_job *j, uint32_t u)
{
    return j->k->part + (pack_unit_offset(j->k->p, j->layer, j->block, j->part, u) - j->k->part_first);
}

/* A role of a tile of n neurons, the first of them `pos`; tiles have the source's order. */
static void from_tile(const struct pack_job *j, const uint8_t *tile, uint32_t pos, uint32_t n)
{
    const struct quant_traits *t = quant_traits(j->s->type[j->role]);
    size_t d = (size_t)j->k->m->h.d_model, rows = j->role == LAYOUT_DOWN ? d : n;
    size_t bytes = j->role == LAYOUT_DOWN ? layout_tile_down_bytes(j->lp, n) : j->lp->role_bytes[j->role];
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *row = tile + layout_tile_offset(j->lp, j->role, n) + i * bytes;
        if (j->role == LAYOUT_DOWN)
            t->dequant(j->out + i * (size_t)j->s->n_ff + pos, row, n);
        else
            t->dequant(j->out + (pos + i) * d, row, d);
    }
}

/* Units [begin, end): tiles, or rows of neurons. */
static void pack_units(void *ctx, int begin, int end, int worker)
{
    const struct pack_job *j = ctx;
    const struct layout_part *lp = j->lp;
    size_t d = (size_t)j->k->m->h.d_model;
    (void)worker;
    for (uint32_t u = (uint32_t)begin; u < (uint32_t)end; u++) {
        uint32_t n = layout_unit_neurons(j->s, lp, u), pos = u * lp->neurons_per_unit;
        const uint8_t *unit = unit_of(j, u);
        for (uint32_t i = 0; i < n; i += lp->record_neurons)
            if (lp->record_neurons > 1)
                from_tile(j, unit + layout_bytes(lp, i), pos + i, n - i < lp->record_neurons ? n - i : lp->record_neurons);
            else
                quant_traits(j->s->type[j->role])->dequant(j->out + (size_t)j->k->order[pos + i] * d,
                                                           unit + (size_t)i * lp->record_bytes + lp->role_offset[j->role], d);
    }
}

/* Rows of Down from its columns, so many at a time that they stay in the second level while all neurons go by. */
static void pack_columns(void *ctx, int begin, int end, int worker)
{
    const struct pack_job *j = ctx;
    const struct layout_part *lp = j->lp;
    const struct quant_traits *t = quant_traits(j->s->type[j->role]);
    size_t d = (size_t)j->k->m->h.d_model, n_ff = (size_t)j->s->n_ff, block = t->block_elems > 1 ? (size_t)t->block_elems : 32;
    float some[MOST_BLOCK];
    (void)worker;
    for (size_t c0 = (size_t)begin * block; c0 < (size_t)end * block && c0 < d; c0 += block) {
        size_t n = d - c0 < block ? d - c0 : block, at = c0 / (size_t)t->block_elems * (size_t)t->block_bytes;
        for (uint32_t u = 0; u < lp->n_units; u++) {
            const uint8_t *row = unit_of(j, u) + lp->role_offset[j->role] + at;
            const uint32_t *neuron = j->k->order + (size_t)u * lp->neurons_per_unit;
            for (uint32_t i = 0, m = layout_unit_neurons(j->s, lp, u); i < m; i++, row += lp->record_bytes) {
                t->dequant(some, row, n);
                for (size_t c = 0; c < n; c++)
                    j->out[(c0 + c) * n_ff + neuron[i]] = some[c];
            }
        }
    }
}

/* A part of an FFN into memory; the last one is kept. */
static int read_part(struct matrices *k, const struct pack_job *j, struct err *e)
{
    uint32_t last = j->lp->n_units - 1;
    uint64_t first = pack_unit_offset(k->p, j->layer, j->block, j->part, 0);
    size_t bytes = (size_t)(pack_unit_offset(k->p, j->layer, j->block, j->part, last) - first +
                            layout_bytes(j->lp, layout_unit_neurons(j->s, j->lp, last)));
    if (k->part_first == first)
        return 0;
    k->part_first = 0;
    if (bytes > k->part_room) {
        free(k->part);
        k->part_room = 0;
        if (!(k->part = malloc(bytes)))
            return err_set(e, ERR_NOMEM, "%zu bytes of neurons", bytes);
        k->part_room = bytes;
    }
    int r = file_pread(&k->p->file, k->part, bytes, first, e);
    if (r == 0)
        k->part_first = first;
    return r;
}

/* One FFN's share of a matrix: gate and up by row, down by column. */
static int from_pack(struct matrices *k, int layer, int block, int asked, float *out, struct err *e)
{
    const struct layout_shape *s = layout_of(&k->p->shapes, layer);
    const int role = layout_lacks(s, asked) ? LAYOUT_GATE : asked;
    struct pack_job j = { k, s, NULL, layer, block, s->n_parts == 2 && role != LAYOUT_GATE, role, out };
    j.lp = &s->part[j.part];
    int r = pack_order(k->p, layer, block, k->order, e), columns = role == LAYOUT_DOWN && j.lp->record_neurons == 1;
    if (r < 0 || (r = read_part(k, &j, e)) < 0)
        return r;
    int each = quant_traits(s->type[role])->block_elems > 1 ? quant_traits(s->type[role])->block_elems : 32;
    if (columns)
        pool_for(k->pool, (k->m->h.d_model + each - 1) / each, 1, pack_columns, &j);
    else
        pool_for(k->pool, (int)j.lp->n_units, 1, pack_units, &j);
    return 0;
}

static int give(void *ctx, int layer, enum model_role model_role, const float **rows, struct err *e)
{
    struct matrices *k = ctx;
    int role = model_role == MODEL_FFN_GATE ? LAYOUT_GATE : model_role == MODEL_FFN_UP ? LAYOUT_UP : LAYOUT_DOWN;
    const struct gguf_tensor *t = k->m->layer[layer][model_role];
    size_t each = (size_t)k->m->h.d_model * (size_t)model_n_ff(&k->m->h, layer);
    int r = k->p ? 0 : from_source(k, t, role == LAYOUT_DOWN && k->m->h.down_by_neuron, k->rows[role], e);
    for (int b = 0; k->p && b < model_ffn_blocks(&k->m->h) && r == 0; b++)
        r = from_pack(k, layer, b, role, k->rows[role] + (size_t)b * each, e);
    progress_add(&k->progress, t->bytes);
    *rows = k->rows[role];
    return r;
}

static int take_matrices(struct matrices *k, const struct model *m, struct pool *pool, struct err *e)
{
    size_t threads = (size_t)pool_threads(pool), all;
    k->m = m;
    k->pool = pool;
    k->row_room = (size_t)(m->h.d_model > m->h.n_ff ? m->h.d_model : m->h.n_ff);
    if (!ck_mul_size((size_t)m->h.d_model * (size_t)m->h.n_ff, (size_t)model_ffn_blocks(&m->h), &all))
        return err_set(e, ERR_LIMIT, "matrices of one layer");
    int ok = (k->piece = calloc(threads * SOURCE_ROWS, k->row_room * sizeof(float))) != NULL &&
             (k->row = calloc(threads, k->row_room * sizeof(float))) != NULL &&
             (k->order = calloc((size_t)m->h.n_ff, sizeof *k->order)) != NULL && (k->err = calloc(threads, sizeof *k->err)) != NULL;
    for (int i = 0; i < LAYOUT_ROLES && ok; i++)
        ok = (k->rows[i] = calloc(all, 4)) != NULL;
    return ok ? 0 : err_set(e, ERR_NOMEM, "three F32 matrices of %zu elements", all);
}

static void free_matrices(struct matrices *k)
{
    for (int i = 0; i < LAYOUT_ROLES; i++)
        free(k->rows[i]);
    free(k->part), free(k->piece), free(k->row);
    free(k->order), free(k->err);
}

/* The trace's first sequences, as many tokens as asked for. starts[n_sequences] <= n. */
struct corpus {
    uint32_t *ids;
    uint64_t *starts;
    size_t n_sequences, n;
};

static int take_corpus(struct corpus *c, struct trace *t, uint64_t want, struct err *e)
{
    const struct trace_info *info = trace_info(t);
    const uint64_t *starts = trace_sequence_starts(t);
    c->n = (size_t)(want < info->n_tokens ? want : info->n_tokens);
    while (c->n_sequences < info->n_sequences && starts[c->n_sequences] < c->n)
        c->n_sequences++;
    c->ids = calloc(c->n + 1, sizeof *c->ids);
    c->starts = calloc(c->n_sequences + 1, sizeof *c->starts);
    if (!c->ids || !c->starts)
        return err_set(e, ERR_NOMEM, "%zu tokens", c->n);
    for (size_t i = 0; i < c->n_sequences; i++)
        c->starts[i] = starts[i];
    c->starts[c->n_sequences] = c->n;
    return trace_tokens(t, 0, c->n, c->ids, e);
}

static int longest(const struct corpus *c)
{
    uint64_t most = 1;
    for (size_t i = 0; i < c->n_sequences; i++)
        if (c->starts[i + 1] - c->starts[i] > most)
            most = c->starts[i + 1] - c->starts[i];
    return (int)most;
}

struct sums {
    double kl, agree, nll[2];
    uint64_t n, scored;
};

static void compare(struct quality *q, struct sums *s, const float *a, const float *b, int n, int64_t next)
{
    const struct logits_difference d = logits_compare(a, b, n);
    double kl = d.kl < 0 ? 0 : d.kl; /* rounding of equal distributions */
    for (int i = 0; i < n; i++)
        q->max_logit_diff = fmax(q->max_logit_diff, fabs((double)a[i] - (double)b[i]));
    s->kl += kl;
    if (kl > q->kl_max)
        q->kl_max = kl;
    s->agree += d.same;
    s->n++;
    if (next >= 0) {
        s->nll[0] += d.log_sum_a - (double)a[next];
        s->nll[1] += d.log_sum_b - (double)b[next];
        s->scored++;
    }
}

static int passes(struct matrices *k, const struct pack *p, struct pool *pool, const struct corpus *c, struct quality *q,
                  struct err *e)
{
    size_t n_vocab = (size_t)k->m->h.n_vocab;
    struct forward_run run = { .tokens = c->ids, .starts = c->starts, .n_sequences = c->n_sequences };
    float *logits[2] = { calloc(c->n, n_vocab * sizeof(float)), calloc(c->n, n_vocab * sizeof(float)) };
    struct forward *f = NULL;
    struct sums s = { 0 };
    int r = logits[0] && logits[1] ? forward_new(k->m, pool, longest(c), &f, e)
                                   : err_set(e, ERR_NOMEM, "logits of %zu tokens", c->n);
    for (int i = 0; i < 2 && r == 0; i++) {
        k->p = i ? p : NULL;
        forward_set_substitute(f, give, k);
        if ((r = forward_run(f, &run, e)) == 0)
            r = forward_logits(f, 0, c->n, logits[i], e);
    }
    for (size_t t = 0, seq = 0; t < c->n && r == 0; t++) {
        if (t == c->starts[seq + 1])
            seq++;
        int64_t next = t + 1 < c->starts[seq + 1] ? (int64_t)c->ids[t + 1] : -1;
        compare(q, &s, logits[0] + t * n_vocab, logits[1] + t * n_vocab, (int)n_vocab, next);
    }
    q->n_tokens = s.n;
    q->kl_mean = s.n ? s.kl / (double)s.n : 0;
    q->top1_agreement = s.n ? s.agree / (double)s.n : 0;
    q->nll_source = s.scored ? s.nll[0] / (double)s.scored : 0;
    q->nll_packed = s.scored ? s.nll[1] / (double)s.scored : 0;
    forward_free(f);
    free(logits[0]);
    free(logits[1]);
    return r;
}

int quality_measure(const struct model *m, struct trace *t, const struct pack *p, struct pool *pool, uint64_t n_tokens,
                    struct quality *out, struct err *e)
{
    struct matrices k = { 0 };
    struct corpus c = { 0 };
    struct quality q = { 0 };
    int64_t start = progress_now_ns();
    int r = take_matrices(&k, m, pool, e);
    if (r == 0)
        r = take_corpus(&c, t, n_tokens, e);
    if (r == 0) {
        uint64_t bytes = 0;
        for (int l = 0; l < m->h.n_layers; l++)
            bytes += m->layer[l][MODEL_FFN_GATE]->bytes + m->layer[l][MODEL_FFN_UP]->bytes + m->layer[l][MODEL_FFN_DOWN]->bytes;
        progress_init(&k.progress, "comparing logits", "B", 2 * bytes);
        r = passes(&k, p, pool, &c, &q, e);
        progress_done(&k.progress);
    }
    free_matrices(&k);
    free(c.ids);
    free(c.starts);
    q.seconds = (double)(progress_now_ns() - start) / 1e9;
    if (r == 0)
        *out = q;
    return r;
}

void quality_print(const struct quality *q)
{
    print("logits against the source, %llu tokens: KL %.3g nats (largest %.3g), same first choice %.2f %%, largest "
           "difference %.3g, perplexity %.4g from %.4g; in %.1f s\n", (unsigned long long)q->n_tokens, q->kl_mean, q->kl_max,
           100 * q->top1_agreement, q->max_logit_diff, exp(q->nll_packed), exp(q->nll_source), q->seconds);
}

struct js *quality_json(const struct quality *q)
{
    struct js *o = js_object();
    js_put(o, JS_U64("tokens", q->n_tokens), JS_NUM("kl_mean_nats", q->kl_mean), JS_NUM("kl_max_nats", q->kl_max),
           JS_NUM("top1_agreement", q->top1_agreement), JS_NUM("max_logit_difference", q->max_logit_diff),
           JS_NUM("nll_source", q->nll_source), JS_NUM("nll_packed", q->nll_packed), JS_NUM("seconds", q->seconds));
    return o;
}
