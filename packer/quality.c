/* Two passes over the same tokens. The second asks here for every FFN matrix; it is read back from
 * the pack unit by unit, converted to F32 and put into the source's order. Float32 products of an F32
 * matrix and of an F16 or quantised one may add in different orders, so the first pass too is given
 * F32 matrices, made from the source: what differs then is the weights alone. */
#include "packer/quality.h"

#include "common/base/ckmath.h"
#include "common/base/progress.h"
#include "common/model/logits.h"
#include "common/offline/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matrices {
    const struct model *m;
    const struct pack *p;           /* NULL: the source's own */
    float *rows[LAYOUT_ROLES];      /* one layer's, all experts */
    uint8_t *raw;                   /* one unit, or one source row */
    float *column;                  /* [d_model] */
    uint32_t *order;
    struct progress progress;
};

/* Down that the file has by neuron is turned. */
static int from_source(struct matrices *k, const struct gguf_tensor *t, int turn, float *out, struct err *e)
{
    size_t row = (size_t)t->row_bytes, n = (size_t)t->dims[0];
    int r = 0;
    for (uint64_t i = 0; i < t->n_rows && r == 0; i++) {
        if ((r = gguf_read(k->m->gguf, t, i * row, k->raw, row, e)) < 0)
            break;
        quant_traits(t->type)->dequant(turn ? k->column : out + i * n, k->raw, n);
        for (size_t c = 0; turn && c < n; c++)
            out[c * t->n_rows + i] = k->column[c];
    }
    return r;
}

/* A role of a tile of n neurons, the first of them `pos`; tiles have the source's order. */
static void from_tile(struct matrices *k, const struct layout_shape *s, const uint8_t *tile, uint32_t pos, uint32_t n, int role, float *out)
{
    const struct layout_part *lp = &s->part[0];
    const struct quant_traits *t = quant_traits(s->type[role]);
    size_t d = (size_t)k->m->h.d_model, rows = role == LAYOUT_DOWN ? d : n;
    size_t bytes = role == LAYOUT_DOWN ? layout_tile_down_bytes(lp, n) : lp->role_bytes[role];
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *row = tile + layout_tile_offset(lp, role, n) + i * bytes;
        if (role == LAYOUT_DOWN)
            t->dequant(out + i * (size_t)s->n_ff + pos, row, n);
        else
            t->dequant(out + (pos + i) * d, row, d);
    }
}

/* One FFN's share of a matrix: gate and up by row, down by column. */
static int from_pack(struct matrices *k, int layer, int block, int role, float *out, struct err *e)
{
    const struct layout_shape *s = layout_of(&k->p->shapes, layer);
    size_t d = (size_t)k->m->h.d_model, n_ff = (size_t)s->n_ff;
    int part = s->n_parts == 2 && role != LAYOUT_GATE;
    const struct layout_part *lp = &s->part[part];
    const struct quant_traits *t = quant_traits(s->type[role]);
    int r = pack_order(k->p, layer, block, k->order, e);
    for (uint32_t u = 0; u < lp->n_units && r == 0; u++) {
        uint32_t n = layout_unit_neurons(s, lp, u);
        r = file_pread(&k->p->file, k->raw, layout_bytes(lp, n), pack_unit_offset(k->p, layer, block, part, u), e);
        for (uint32_t i = 0; i < n && r == 0 && lp->record_neurons > 1; i += lp->record_neurons)
            from_tile(k, s, k->raw + layout_bytes(lp, i), u * lp->neurons_per_unit + i,
                      n - i < lp->record_neurons ? n - i : lp->record_neurons, role, out);
        for (uint32_t i = 0; i < n && r == 0 && lp->record_neurons == 1; i++) {
            size_t neuron = k->order[u * lp->neurons_per_unit + i];
            const uint8_t *row = k->raw + (size_t)i * lp->record_bytes + lp->role_offset[role];
            if (role != LAYOUT_DOWN) {
                t->dequant(out + neuron * d, row, d);
                continue;
            }
            t->dequant(k->column, row, d);
            for (size_t c = 0; c < d; c++)
                out[c * n_ff + neuron] = k->column[c];
        }
    }
    return r;
}

static int give(void *ctx, int layer, enum model_role model_role, const float **rows, struct err *e)
{
    struct matrices *k = ctx;
    int role = model_role == MODEL_FFN_GATE ? LAYOUT_GATE : model_role == MODEL_FFN_UP ? LAYOUT_UP : LAYOUT_DOWN;
    const struct gguf_tensor *t = k->m->layer[layer][model_role];
    size_t each = (size_t)k->m->h.d_model * (size_t)k->m->h.n_ff;
    int r = k->p ? 0 : from_source(k, t, role == LAYOUT_DOWN && k->m->h.down_by_neuron, k->rows[role], e);
    for (int b = 0; k->p && b < model_ffn_blocks(&k->m->h) && r == 0; b++)
        r = from_pack(k, layer, b, role, k->rows[role] + (size_t)b * each, e);
    progress_add(&k->progress, t->bytes);
    *rows = k->rows[role];
    return r;
}

static int take_matrices(struct matrices *k, const struct model *m, const struct pack *p, struct err *e)
{
    size_t raw = (size_t)m->h.d_model * 4 > (size_t)m->h.n_ff * 4 ? (size_t)m->h.d_model * 4 : (size_t)m->h.n_ff * 4;
    if (layout_most_bytes(&p->shapes) > raw)
        raw = layout_most_bytes(&p->shapes);
    size_t all;
    if (!ck_mul_size((size_t)m->h.d_model * (size_t)m->h.n_ff, (size_t)model_ffn_blocks(&m->h), &all))
        return err_set(e, ERR_LIMIT, "matrices of one layer");
    int ok = (k->raw = malloc(raw)) && (k->column = calloc((size_t)m->h.d_model, 4)) && (k->order = calloc((size_t)m->h.n_ff, 4));
    for (int i = 0; i < LAYOUT_ROLES && ok; i++)
        ok = (k->rows[i] = calloc(all, 4)) != NULL;
    k->m = m;
    return ok ? 0 : err_set(e, ERR_NOMEM, "three F32 matrices of %zu elements", all);
}

static void free_matrices(struct matrices *k)
{
    for (int i = 0; i < LAYOUT_ROLES; i++)
        free(k->rows[i]);
    free(k->raw);
    free(k->column);
    free(k->order);
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
    int r = take_matrices(&k, m, p, e);
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
    if (r == 0)
        *out = q;
    return r;
}

void quality_print(const struct quality *q)
{
    printf("logits against the source, %llu tokens: KL %.3g nats (largest %.3g), same first choice %.2f %%, largest "
           "difference %.3g, perplexity %.4g from %.4g\n", (unsigned long long)q->n_tokens, q->kl_mean, q->kl_max,
           100 * q->top1_agreement, q->max_logit_diff, exp(q->nll_packed), exp(q->nll_source));
}

struct js *quality_json(const struct quality *q)
{
    struct js *o = js_object();
    js_set_u64(o, "tokens", q->n_tokens);
    js_set_num(o, "kl_mean_nats", q->kl_mean);
    js_set_num(o, "kl_max_nats", q->kl_max);
    js_set_num(o, "top1_agreement", q->top1_agreement);
    js_set_num(o, "max_logit_difference", q->max_logit_diff);
    js_set_num(o, "nll_source", q->nll_source);
    js_set_num(o, "nll_packed", q->nll_packed);
    return o;
}
