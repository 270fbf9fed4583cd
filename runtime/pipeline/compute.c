/* Rows of scattered neurons are gathered by pointer, up to SCHEDULE_GATHER_ROWS at a time, so that the kernels can prefetch;
 * which rows share a call changes no bit (kernels.h). Neighbours go to the kernel that reads rows in order.
 *
 * Tiles are computed whole, for they belong to dense mode: Gate and Up of t neurons are t rows each, Down is a product of t
 * elements for each column of the output, which is a row of the source. */
#include "runtime/pipeline/compute.h"

#include "common/base/inline.h"
#include "common/model/nn.h"
#include "common/ops/fold.h"

#include <assert.h>

#define ROWS_MIN 8 /* neighbouring rows from which the contiguous kernel is used */
#define DOWN_TOKENS 96 /* whose sums stay in the second level while tiles are added to them; as many as a kernel takes at a time */

struct gather { /* a worker's own */
    const void **ptr;
    uint32_t *pos;
    float *a;  /* f32[tokens][SCHEDULE_GATHER_ROWS] */
    float *b;
    int n;
    struct counts *counts; /* gates */
    int col0, n_cols;      /* Down */
};

static struct gather gather_of(struct block *b, int worker)
{
    _Static_assert(sizeof(void *) + sizeof(uint32_t) <= SCHEDULE_GATHER_ROW_BYTES, "pointers and positions");
    const struct pipeline_config *c = b->c;
    size_t per = c->scratch.gather / (size_t)c->choice.threads, row = (size_t)c->scratch.tokens * SCHEDULE_GATHER_ROWS;
    uint8_t *m = c->memory.gather + (size_t)worker * per;
    struct gather w = { .ptr = (const void **)m, .pos = (uint32_t *)(m + SCHEDULE_GATHER_ROWS * 8) };
    w.a = (float *)(m + SCHEDULE_GATHER_ROWS * SCHEDULE_GATHER_ROW_BYTES);
    w.b = w.a + row;
    return w;
}

static enum kernels_act form_of(const struct block *b, int role)
{
    return kernels_act_form(b->shape->type[role], b->c->act_q8);
}

/* Products of the gathered rows with every token: a[t][i]. */
static void gathered_rows(struct block *b, struct gather *w, int role)
{
    enum kernels_act f = form_of(b, role);
    kernels->rows_at[f][b->shape->type[role]](w->a, SCHEDULE_GATHER_ROWS, w->ptr, w->n, b->x[f], b->x_stride[f],
                                                  b->n_tokens, b->c->d_model);
}

/* Does a neuron count for a token? */
static int counts_for(const struct block *b, int t, uint32_t pos)
{
    const struct predicted *d = &b->pred;
    return !d->on || d->bits[(size_t)t * d->row_bytes + pos / 8] >> pos % 8 & 1;
}

/* A neuron is active when its gate opens for any token; every one is where nothing is skipped. */
static uint8_t is_active(const struct block *b, uint32_t pos, int thresholds)
{
    int on = b->c->dense_mode;
    for (int t = 0; t < b->n_tokens && !on; t++)
        on = nn_is_open(b->rows[(size_t)t * (size_t)b->shape->n_ff + pos], thresholds);
    return (uint8_t)on;
}

/* A neuron's biases, in the block; NULL: none. */
static const float *bias_of(const struct block *b, const float *layer)
{
    return layer ? layer + (size_t)b->block * (size_t)b->shape->n_ff : NULL;
}

static struct pipeline_bias biases_of(const struct block *b)
{
    struct pipeline_bias of = b->c->biases ? b->c->biases[b->layer] : (struct pipeline_bias){ 0 };
    return (struct pipeline_bias){ bias_of(b, of.gate), bias_of(b, of.up), bias_of(b, of.silence),
                                   b->cold_scale > 0 ? bias_of(b, of.cold) : NULL };
}

/* A cold neuron's gate that is open but small counts as 0: then Up and Down need not be read. By position, not by what a cache holds. */
static void shut_cold(const struct block *b, float *gate, const float *threshold, uint32_t pos)
{
    if (pos >= b->cold_from && *gate < b->cold_scale * threshold[pos])
        *gate = 0;
}

/* A gate is 0, which is shut, for tokens for which its neuron does not count. */
static void flush_gates(struct block *b, struct gather *w)
{
    if (!w->n)
        return;
    gathered_rows(b, w, LAYOUT_GATE);
    const struct pipeline_bias of = biases_of(b);
    for (int t = 0; of.gate && t < b->n_tokens; t++)
        for (int i = 0; i < w->n; i++)
            w->a[t * SCHEDULE_GATHER_ROWS + i] += of.gate[w->pos[i]];
    for (int t = 0; of.silence && t < b->n_tokens; t++)
        for (int i = 0; i < w->n; i++)
            nn_silence(w->a + t * SCHEDULE_GATHER_ROWS + i, of.silence + w->pos[i], 1, b->c->act);
    for (int t = 0; of.cold && t < b->n_tokens; t++)
        for (int i = 0; i < w->n; i++)
            shut_cold(b, w->a + t * SCHEDULE_GATHER_ROWS + i, of.cold, w->pos[i]);
    for (int t = 0; t < b->n_tokens; t++)
        for (int i = 0; i < w->n; i++)
            b->rows[(size_t)t * (size_t)b->shape->n_ff + w->pos[i]] =
                counts_for(b, t, w->pos[i]) ? w->a[t * SCHEDULE_GATHER_ROWS + i] : 0;
    for (int i = 0; i < w->n; i++)
        b->active[w->pos[i]] = is_active(b, w->pos[i], of.silence != NULL);
    w->counts->computed += (uint64_t)w->n;
    w->n = 0;
}

/* Which of n neurons (64 at most) from i on have their gates asked for. */
static uint64_t wanted_at(const struct block *b, uint32_t i, uint32_t n)
{
    return b->pred.on ? block_bits_at(b->pred.want, i, n) : UINT64_MAX >> (64 - n);
}

/* Is every gate of the entry needed, and are there enough of them for the kernel that reads rows in order? */
static int in_order(const struct block *b, const struct entry *e)
{
    return e->n >= ROWS_MIN && (!b->pred.on || e->pos0 + e->n <= b->pred.always);
}

/* Gates of n neurons from pos0 on, whose records lie one after another. */
static void gates_in_order(struct block *b, uint32_t pos0, uint32_t n, const uint8_t *records, struct counts *c)
{
    const struct layout_shape *s = b->shape;
    const struct layout_part *lp = &s->part[0];
    enum kernels_act f = form_of(b, LAYOUT_GATE);
    kernels->rows[f][s->type[LAYOUT_GATE]](b->rows + pos0, (size_t)s->n_ff, records + lp->role_offset[LAYOUT_GATE],
                                             lp->record_bytes, (int)n, b->x[f], b->x_stride[f], b->n_tokens,
                                             b->c->d_model);
    const struct pipeline_bias of = biases_of(b);
    for (int t = 0; (of.gate || of.silence || of.cold) && t < b->n_tokens; t++) {
        float *gate = b->rows + (size_t)t * (size_t)s->n_ff + pos0;
        for (uint32_t i = 0; of.gate && i < n; i++)
            gate[i] += of.gate[pos0 + i];
        if (of.silence)
            nn_silence(gate, of.silence + pos0, (int)n, b->c->act);
        for (uint32_t i = 0; of.cold && i < n; i++)
            shut_cold(b, gate + i, of.cold, pos0 + i);
    }
    for (uint32_t i = pos0; i < pos0 + n; i++)
        b->active[i] = is_active(b, i, of.silence != NULL);
    c->computed += n;
}

/* Gathers the rows of a role of those neurons of an entry that `which` has a bit for, and flushes when it is full. Returns how
 * many they are. Inlined, `which` and `flush` are no calls by pointer. */
INLINE uint64_t gather(struct block *b, const struct entry *e, int part, int role,
                       uint64_t (*which)(const struct block *, uint32_t, uint32_t), struct gather *w,
                       void (*flush)(struct block *, struct gather *))
{
    const struct layout_part *lp = &b->shape->part[part];
    const uint8_t *rows = e->base + lp->role_offset[role];
    uint64_t sum = 0;
    for (uint32_t at = 0, n; at < e->n; at += n) {
        n = e->n - at < 64 ? e->n - at : 64;
        for (uint64_t bits = which(b, e->pos0 + at, n); bits; bits &= bits - 1, sum++) {
            uint32_t i = at + (uint32_t)__builtin_ctzll(bits);
            w->pos[w->n] = e->pos0 + i;
            w->ptr[w->n++] = rows + (size_t)i * lp->record_bytes;
            if (w->n == SCHEDULE_GATHER_ROWS)
                flush(b, w);
        }
    }
    return sum;
}

/* Without a gate Up's products are Gate's, biases and thresholds included. */
static void flush_ups(struct block *b, struct gather *w)
{
    size_t n_ff = (size_t)b->shape->n_ff;
    const float *bias = biases_of(b).up;
    if (!w->n)
        return;
    if (!b->shape->ungated)
        gathered_rows(b, w, LAYOUT_UP);
    for (int t = 0; t < b->n_tokens; t++) {
        float *h = b->rows + (size_t)t * n_ff, *gate = w->b, *up = w->a + t * SCHEDULE_GATHER_ROWS;
        for (int i = 0; i < w->n; i++)
            gate[i] = h[w->pos[i]];
        for (int i = 0; bias && !b->shape->ungated && i < w->n; i++)
            up[i] += bias[w->pos[i]];
        nn_ffn_act(up, gate, b->shape->ungated ? gate : up, w->n, b->c->act);
        for (int i = 0; i < w->n; i++)
            h[w->pos[i]] = up[i];
    }
    w->n = 0;
}

/* Which of n neurons (64 at most) from i on are active. Eight bytes of 0 or 1 become bits at once: the product moves byte
 * k's to bit 56 + k. */
static uint64_t active_at(const struct block *b, uint32_t i, uint32_t n)
{
    const uint8_t *a = b->active + i;
    uint64_t bits = 0, eight;
    uint32_t k = 0;
    for (; k + 8 <= n; k += 8) {
        memcpy(&eight, a + k, 8);
        bits |= (eight * 0x0102040810204080u >> 56) << k;
    }
    for (; k < n; k++)
        bits |= (uint64_t)a[k] << k;
    return bits;
}

/* A hot cluster with every part resident has one entry; with two parts its gates are elsewhere. */
static struct entry gate_entry(const struct block *b, const struct entry *e)
{
    struct entry q = *e;
    if (b->shape->n_parts > 1)
        q.base = b->hot_base[0] + (size_t)e->pos0 * b->shape->part[0].record_bytes;
    return q;
}

static int is_fused(const struct block *b, const struct list *l, const struct entry *e)
{
    return l == &b->list[LIST_NEURON] && e->pos0 < b->fused * b->shape->cluster_neurons;
}

/* ---- tiles ---- */

static int has_tiles(const struct block *b)
{
    return b->shape->part[0].record_neurons > 1;
}

/* A tile of an entry: n neurons from pos on. */
struct neuron_tile {
    const uint8_t *data;
    uint32_t pos, n;
};

static struct neuron_tile first_tile(const struct block *b, const struct entry *x)
{
    uint32_t t = b->shape->part[0].record_neurons;
    return (struct neuron_tile){ x->base, x->pos0, x->n < t ? x->n : t };
}

/* 0: there is none after this one. */
static int next_tile(const struct block *b, const struct entry *x, struct neuron_tile *k)
{
    const struct layout_part *lp = &b->shape->part[0];
    uint32_t left = x->pos0 + x->n - k->pos - k->n;
    k->data += lp->record_bytes;
    k->pos += k->n;
    k->n = left < lp->record_neurons ? left : lp->record_neurons;
    return left > 0;
}

/* Products of a tile's rows of Gate or Up with every token: out[t][i]. */
static void tile_rows(struct block *b, const struct neuron_tile *k, int role, float *out, size_t out_stride)
{
    const struct layout_part *lp = &b->shape->part[0];
    enum kernels_act f = form_of(b, role);
    kernels->rows[f][b->shape->type[role]](out, out_stride, k->data + layout_tile_offset(lp, role, k->n), lp->role_bytes[role],
                                           (int)k->n, b->x[f], b->x_stride[f], b->n_tokens, b->c->d_model);
}

/* Gate, then h, of an entry's tiles, in the end as Down is folded. */
static void tiles_entry(struct block *b, const struct entry *x, struct gather *w)
{
    size_t n_ff = (size_t)b->shape->n_ff;
    const struct pipeline_bias of = biases_of(b);
    struct neuron_tile k = first_tile(b, x);
    const int ungated = b->shape->ungated;
    _Static_assert(LAYOUT_TILE <= SCHEDULE_GATHER_ROWS, "Up of a tile");
    assert(b->c->dense_mode && !b->pred.on);
    do {
        tile_rows(b, &k, LAYOUT_GATE, b->rows + k.pos, n_ff);
        if (!ungated)
            tile_rows(b, &k, LAYOUT_UP, w->a, SCHEDULE_GATHER_ROWS);
        for (int t = 0; t < b->n_tokens; t++) {
            float *h = b->rows + (size_t)t * n_ff + k.pos, *up = ungated ? h : w->a + t * SCHEDULE_GATHER_ROWS;
            for (uint32_t i = 0; of.gate && i < k.n; i++)
                h[i] += of.gate[k.pos + i];
            for (uint32_t i = 0; of.up && !ungated && i < k.n; i++)
                up[i] += of.up[k.pos + i];
            if (of.silence)
                nn_silence(h, of.silence + k.pos, (int)k.n, b->c->act);
            nn_ffn_act(h, h, up, (int)k.n, b->c->act);
        }
    } while (next_tile(b, x, &k));
    for (int t = 0; b->c->fold && b->c->fold->block && t < b->n_tokens; t++)
        fold_apply(b->c->fold, b->rows + (size_t)t * n_ff + x->pos0, x->pos0, x->n);
    memset(b->active + x->pos0, 1, x->n);
    w->counts->computed += x->n;
}

/* h of a tile for tokens [t0, end) in the form that Down asks for; int8 activations are made tile by tile. */
static const void *tile_h(struct block *b, struct gather *w, const struct neuron_tile *k, enum kernels_act f, int t0, int end,
                          size_t *stride)
{
    size_t n_ff = (size_t)b->shape->n_ff;
    const float *h = b->rows + (size_t)t0 * n_ff + k->pos;
    *stride = f == KERNELS_ACT_F32 ? n_ff * sizeof *h : kernels_act_bytes(f, (int)k->n);
    assert(f == KERNELS_ACT_F32 || *stride <= SCHEDULE_GATHER_ROWS * sizeof *w->b);
    for (int t = 0; t < end - t0 && f != KERNELS_ACT_F32; t++)
        kernels_act_prepare((uint8_t *)w->b + (size_t)t * *stride, f, h + (size_t)t * n_ff, (int)k->n);
    return f == KERNELS_ACT_F32 ? (const void *)h : w->b;
}

/* out[t][col] += <a tile's elements of Down's row col, h_t> for tokens [t0, end). */
static void tile_down(struct block *b, const struct neuron_tile *k, struct gather *w, int t0, int end)
{
    const struct layout_part *lp = &b->shape->part[0];
    uint32_t type = b->shape->type[LAYOUT_DOWN], bytes = layout_tile_down_bytes(lp, k->n);
    const uint8_t *rows = k->data + layout_tile_offset(lp, LAYOUT_DOWN, k->n);
    enum kernels_act f = form_of(b, LAYOUT_DOWN);
    size_t stride, d_model = (size_t)b->c->d_model;
    const void *h = tile_h(b, w, k, f, t0, end, &stride);
    for (int col = w->col0, last = w->col0 + w->n_cols, n; col < last; col += n) {
        n = last - col < SCHEDULE_GATHER_ROWS ? last - col : SCHEDULE_GATHER_ROWS;
        kernels->rows[f][type](w->a, SCHEDULE_GATHER_ROWS, rows + (size_t)col * bytes, bytes, n, h, stride, end - t0, (int)k->n);
        for (int t = t0; t < end; t++)
            kernels->axpy_f32(b->out + (size_t)t * d_model + (size_t)col, 1, w->a + (t - t0) * SCHEDULE_GATHER_ROWS, n);
    }
}

static void tiles_down(struct block *b, const struct entry *x, struct gather *w, int t0, int end)
{
    struct neuron_tile k = first_tile(b, x);
    do {
        tile_down(b, &k, w, t0, end);
    } while (next_tile(b, x, &k));
}

/* ---- records of one neuron ---- */

/* Neighbours are one run of rows: every stream of memory that has to be started anew costs some microseconds. */
static void gates(struct block *b, const struct list *l, const uint32_t *idx, int n_entries, struct gather *w)
{
    uint32_t record_bytes = b->shape->part[0].record_bytes, pos0 = 0, n = 0;
    const uint8_t *records = NULL;
    for (int i = 0; i < n_entries; i++) {
        const struct entry *e = &l->e[idx[i]];
        int fused = is_fused(b, l, e);
        if (!(fused || l->work & DO_GATE))
            continue;
        struct entry q = fused ? gate_entry(b, e) : *e;
        if (!in_order(b, &q)) {
            gather(b, &q, 0, LAYOUT_GATE, wanted_at, w, flush_gates);
            continue;
        }
        if (n && (q.pos0 != pos0 + n || q.base != records + (size_t)n * record_bytes)) {
            gates_in_order(b, pos0, n, records, w->counts);
            n = 0;
        }
        if (!n)
            pos0 = q.pos0, records = q.base;
        n += q.n;
    }
    if (n)
        gates_in_order(b, pos0, n, records, w->counts);
    flush_gates(b, w);
}

static void count_active(struct entry *x, uint64_t active, struct counts *c)
{
    if (x->kind == KIND_HOT)
        x->where = (uint32_t)active;
    *(x->kind == KIND_HOT ? &c->active_hot : x->kind == KIND_CACHED ? &c->active_cold : &c->active_read) += active;
}

void compute_entries(struct block *b, enum list_id list, const uint32_t *idx, int n, int worker, struct counts *c)
{
    const struct list *l = &b->list[list];
    const int role = b->shape->ungated ? LAYOUT_DOWN : LAYOUT_UP; /* whose rows are named; without a gate none are read */
    struct gather w = gather_of(b, worker);
    w.counts = c;
    if (has_tiles(b)) {
        for (int i = 0; i < n; i++) {
            tiles_entry(b, &l->e[idx[i]], &w);
            count_active(&l->e[idx[i]], l->e[idx[i]].n, c);
        }
        return;
    }
    gates(b, l, idx, n, &w);
    for (int i = 0; i < n; i++) {
        struct entry *x = &l->e[idx[i]];
        if (l->work & DO_UP || is_fused(b, l, x))
            count_active(x, gather(b, x, l->part, role, active_at, &w, flush_ups), c);
    }
    flush_ups(b, &w);
}

static void flush_down(struct block *b, struct gather *w)
{
    if (!w->n)
        return;
    assert(w->col0 % quant_traits(b->shape->type[LAYOUT_DOWN])->block_elems == 0);
    for (int k = 0; k < b->n_tokens; k++)
        for (int i = 0; i < w->n; i++)
            w->a[k * SCHEDULE_GATHER_ROWS + i] = b->rows[(size_t)k * (size_t)b->shape->n_ff + w->pos[i]];
    kernels->axpy[b->shape->type[LAYOUT_DOWN]](b->out + w->col0, (size_t)b->c->d_model, w->ptr, w->a,
                                                SCHEDULE_GATHER_ROWS, w->n, b->n_tokens, w->col0, w->n_cols);
    w->n = 0;
}

void compute_down(struct block *b, uint32_t from, uint32_t to, int col0, int n_cols, int worker)
{
    const struct list *l = &b->list[LIST_NEURON];
    struct gather w = gather_of(b, worker);
    w.col0 = col0;
    w.n_cols = n_cols;
    if (has_tiles(b)) {
        for (int t = 0, end; t < b->n_tokens; t = end) {
            end = b->n_tokens - t < DOWN_TOKENS ? b->n_tokens : t + DOWN_TOKENS;
            for (uint32_t k = from; k < to; k++)
                tiles_down(b, &l->e[k], &w, t, end);
        }
        return;
    }
    for (uint32_t k = from; k < to; k++)
        gather(b, &l->e[k], l->part, LAYOUT_DOWN, active_at, &w, flush_down);
    flush_down(b, &w);
}

/* ---- predictors ---- */

void compute_hidden(const struct compute_prediction *d, uint32_t from, uint32_t to, const uint8_t *rows)
{
    struct predict q = *d->of->pred.q;
    size_t rank = (size_t)q.rank;
    uint32_t first = 0;
    if (rows) {
        q.fc1 = rows;
        first = from;
    }
    predict_hidden(&q, (int)(from - first), (int)(to - first), d->x, d->x_stride, d->of->n_tokens, d->hidden + first, rank);
}

void compute_prepare(const struct compute_prediction *d)
{
    const struct predict *q = d->of->pred.q;
    predict_prepare(q, d->hidden, (size_t)q->rank, d->of->n_tokens, d->prepared, d->prepared_stride);
}

uint32_t compute_scores(const struct compute_prediction *d, uint32_t range, const uint8_t *rows, const float *bias, int worker)
{
    const struct block *b = d->of;
    const struct predicted *p = &b->pred;
    float *score = d->scores + (size_t)worker * d->score_floats;
    uint32_t end, first = block_range(b, range, &end), from = 0;
    struct predict q = *p->q;
    if (rows) {
        from = first;
        q.fc2 = rows;
        q.bias = bias;
    }
    first = first < b->beside ? b->beside : first; /* a whole cluster's first neuron: so is a byte of bits */
    for (uint32_t at = first; at < end; at += SCHEDULE_SCORE_ROWS) {
        int n = (int)(end - at < SCHEDULE_SCORE_ROWS ? end - at : SCHEDULE_SCORE_ROWS);
        predict_scores(&q, (int)(at - from), n, d->prepared, d->prepared_stride, b->n_tokens, score, SCHEDULE_SCORE_ROWS);
        for (int t = 0; t < b->n_tokens; t++)
            predict_decide(p->q, score + (size_t)t * SCHEDULE_SCORE_ROWS, n, p->bits + (size_t)t * p->row_bytes + at / 8);
    }
    if (b->n_tokens == 1)
        return end - first;
    for (uint32_t k = first / 8; k < (end + 7) / 8; k++) {
        uint8_t any = 0;
        for (int t = 0; t < b->n_tokens; t++)
            any |= p->bits[(size_t)t * p->row_bytes + k];
        p->any[k] = any;
    }
    return end - first;
}
