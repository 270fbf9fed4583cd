/* The arithmetic of the pipeline's jobs, on the data of entries that are there; no lock is held. Rows of
 * scattered neurons are gathered by pointer, up to BUDGET_GATHER_ROWS at a time, so that the kernels
 * can prefetch; which rows share a call changes no bit (kernels.h). */
#include "runtime/pipeline/pipeline_impl.h"

#include "common/base/inline.h"
#include "common/base/progress.h"

#include <string.h>

struct gather { /* a worker's own */
    const void **ptr;
    uint32_t *pos;
    float *a;  /* f32[tokens][BUDGET_GATHER_ROWS] */
    float *b;
    int n;
    struct counts *counts; /* gates */
    int col0, n_cols;      /* Down */
};

static struct gather gather_of(struct pass *p, int worker)
{
    const struct pipeline_config *c = p->c;
    size_t per = c->scratch.gather / (size_t)p->pipe->n_threads, row = (size_t)c->scratch.tokens * BUDGET_GATHER_ROWS;
    uint8_t *m = c->memory.gather + (size_t)worker * per;
    struct gather w = { .ptr = (const void **)m, .pos = (uint32_t *)(m + BUDGET_GATHER_ROWS * 8) };
    w.a = (float *)(m + BUDGET_GATHER_ROWS * 16);
    w.b = w.a + row;
    return w;
}

static enum kernels_act form_of(const struct pass *p, int role)
{
    return kernels_act_form(p->c->shape.l.type[role], p->c->act_q8);
}

/* Products of the gathered rows with every token: a[t][i]. */
static void gathered_rows(struct pass *p, struct gather *w, int role)
{
    enum kernels_act f = form_of(p, role);
    kernels->rows_at[f][p->c->shape.l.type[role]](w->a, BUDGET_GATHER_ROWS, w->ptr, w->n, p->x[f], p->x_stride[f],
                                                  p->n_tokens, p->c->d_model);
}

/* Does a neuron count for a token? */
static int counts_for(const struct pass *p, int t, uint32_t pos)
{
    const struct prediction *d = &p->pred;
    return !d->on || d->bits[(size_t)t * d->row_bytes + pos / 8] >> pos % 8 & 1;
}

/* A neuron is active when its gate opens for any token; every one is where nothing is skipped. */
static uint8_t is_active(const struct pass *p, uint32_t pos)
{
    int on = p->c->dense_mode;
    for (int t = 0; t < p->n_tokens && !on; t++)
        on = p->rows[(size_t)t * (size_t)p->c->shape.n_ff + pos] > 0;
    return (uint8_t)on;
}

/* A gate is 0, which is shut, for tokens for which its neuron does not count. */
static void flush_gates(struct pass *p, struct gather *w)
{
    if (!w->n)
        return;
    gathered_rows(p, w, LAYOUT_GATE);
    for (int t = 0; t < p->n_tokens; t++)
        for (int i = 0; i < w->n; i++)
            p->rows[(size_t)t * (size_t)p->c->shape.n_ff + w->pos[i]] =
                counts_for(p, t, w->pos[i]) ? w->a[t * BUDGET_GATHER_ROWS + i] : 0;
    for (int i = 0; i < w->n; i++)
        p->active[w->pos[i]] = is_active(p, w->pos[i]);
    w->counts->computed += (uint64_t)w->n;
    w->n = 0;
}

/* Which of n neurons (64 at most) from i on have their gates asked for. */
static uint64_t wanted_at(const struct pass *p, uint32_t i, uint32_t n)
{
    return p->pred.on ? bits_at(p->pred.want, i, n) : UINT64_MAX >> (64 - n);
}

/* Is every gate of the entry needed, and are there enough of them for the kernel that reads rows in order? */
static int in_order(const struct pass *p, const struct entry *e)
{
    return e->n >= ROWS_MIN && (!p->pred.on || e->pos0 + e->n <= p->pred.always);
}

/* Gates of n neurons from pos0 on, whose records lie one after another. */
static void gates_in_order(struct pass *p, uint32_t pos0, uint32_t n, const uint8_t *records, struct counts *c)
{
    const struct layout_shape *s = &p->c->shape;
    const struct layout_part *lp = &s->part[0];
    enum kernels_act f = form_of(p, LAYOUT_GATE);
    kernels->rows[f][s->l.type[LAYOUT_GATE]](p->rows + pos0, (size_t)s->n_ff, records + lp->role_offset[LAYOUT_GATE],
                                             lp->record_bytes, (int)n, p->x[f], p->x_stride[f], p->n_tokens,
                                             p->c->d_model);
    for (uint32_t i = pos0; i < pos0 + n; i++)
        p->active[i] = is_active(p, i);
    c->computed += n;
}

/* Gathers the rows of a role of those neurons of an entry that `which` has a bit for, and flushes when it is full. Returns how
 * many they are. Inlined, `which` and `flush` are no calls by pointer. */
INLINE uint64_t gather(struct pass *p, const struct entry *e, int part, int role,
                       uint64_t (*which)(const struct pass *, uint32_t, uint32_t), struct gather *w,
                       void (*flush)(struct pass *, struct gather *))
{
    const struct layout_part *lp = &p->c->shape.part[part];
    const uint8_t *rows = e->base + lp->role_offset[role];
    uint64_t sum = 0;
    for (uint32_t at = 0, n; at < e->n; at += n) {
        n = e->n - at < 64 ? e->n - at : 64;
        for (uint64_t bits = which(p, e->pos0 + at, n); bits; bits &= bits - 1, sum++) {
            uint32_t i = at + (uint32_t)__builtin_ctzll(bits);
            w->pos[w->n] = e->pos0 + i;
            w->ptr[w->n++] = rows + (size_t)i * lp->record_bytes;
            if (w->n == BUDGET_GATHER_ROWS)
                flush(p, w);
        }
    }
    return sum;
}

static void flush_ups(struct pass *p, struct gather *w)
{
    size_t n_ff = (size_t)p->c->shape.n_ff;
    if (!w->n)
        return;
    gathered_rows(p, w, LAYOUT_UP);
    for (int t = 0; t < p->n_tokens; t++) {
        float *h = p->rows + (size_t)t * n_ff, *gate = w->b, *up = w->a + t * BUDGET_GATHER_ROWS;
        for (int i = 0; i < w->n; i++)
            gate[i] = h[w->pos[i]];
        nn_ffn_act(up, gate, up, w->n, p->c->act);
        for (int i = 0; i < w->n; i++)
            h[w->pos[i]] = up[i];
    }
    w->n = 0;
}

/* Which of n neurons (64 at most) from i on are active. Eight bytes of 0 or 1 become bits at once: the product moves byte
 * k's to bit 56 + k. */
static uint64_t active_at(const struct pass *p, uint32_t i, uint32_t n)
{
    const uint8_t *a = p->active + i;
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
static struct entry gate_entry(const struct pass *p, const struct entry *e)
{
    struct entry q = *e;
    if (p->c->shape.n_parts > 1)
        q.base = p->hot_base[0] + (size_t)e->pos0 * p->c->shape.part[0].record_bytes;
    return q;
}

static int is_fused(const struct pass *p, int list, const struct entry *e)
{
    return list == LIST_NEURON && e->pos0 < p->fused * p->c->shape.l.cluster_neurons;
}

/* Neighbours are one run of rows: every stream of memory that has to be started anew costs some microseconds. */
static void gates(struct pass *p, const struct job *j, struct gather *w)
{
    const struct list *l = &p->list[j->list];
    uint32_t record_bytes = p->c->shape.part[0].record_bytes, pos0 = 0, n = 0;
    const uint8_t *records = NULL;
    for (int i = 0; i < j->n; i++) {
        const struct entry *e = &l->e[j->idx[i]];
        int fused = is_fused(p, j->list, e);
        if (!(fused || l->work & DO_GATE))
            continue;
        struct entry q = fused ? gate_entry(p, e) : *e;
        if (!in_order(p, &q)) {
            gather(p, &q, 0, LAYOUT_GATE, wanted_at, w, flush_gates);
            continue;
        }
        if (n && (q.pos0 != pos0 + n || q.base != records + (size_t)n * record_bytes)) {
            gates_in_order(p, pos0, n, records, w->counts);
            n = 0;
        }
        if (!n)
            pos0 = q.pos0, records = q.base;
        n += q.n;
    }
    if (n)
        gates_in_order(p, pos0, n, records, w->counts);
    flush_gates(p, w);
}

/* What was read in this pass; the job that has its entry is the first to look at it. */
static int verify_entries(const struct job *j, struct counts *c, struct err *e)
{
    const struct pass *p = j->pass;
    const struct list *l = &p->list[j->list];
    const struct verifier *v = p->c->verifier;
    int64_t start = v->checks ? progress_now_ns() : 0;
    int r = 0;
    for (int i = 0; i < j->n && v->checks && r == 0; i++) {
        struct entry *x = &l->e[j->idx[i]];
        if (x->kind == KIND_ADMITTED || x->kind == KIND_STAGED)
            r = verify_unit(v, p->layer, p->block, l->part, x->unit, x->base, &c->verified, e);
    }
    if (c->verified.bytes)
        c->verified.ns += (uint64_t)(progress_now_ns() - start);
    return r;
}

int pipeline_work_entries(const struct job *j, int worker, struct counts *c, struct err *e)
{
    struct pass *p = j->pass;
    const struct list *l = &p->list[j->list];
    struct gather w = gather_of(p, worker);
    int r = verify_entries(j, c, e);
    if (r < 0)
        return r;
    w.counts = c;
    gates(p, j, &w);
    for (int i = 0; i < j->n; i++) {
        struct entry *x = &p->list[j->list].e[j->idx[i]];
        if (!(l->work & DO_UP || is_fused(p, j->list, x)))
            continue;
        uint64_t n = gather(p, x, l->part, LAYOUT_UP, active_at, &w, flush_ups);
        if (x->kind == KIND_HOT)
            x->where = (uint32_t)n;
        *(x->kind == KIND_HOT ? &c->active_hot : x->kind == KIND_CACHED ? &c->active_cold : &c->active_read) += n;
    }
    flush_ups(p, &w);
    return 0;
}

static void flush_down(struct pass *p, struct gather *w)
{
    if (!w->n)
        return;
    for (int k = 0; k < p->n_tokens; k++)
        for (int i = 0; i < w->n; i++)
            w->a[k * BUDGET_GATHER_ROWS + i] = p->rows[(size_t)k * (size_t)p->c->shape.n_ff + w->pos[i]];
    kernels->axpy[p->c->shape.l.type[LAYOUT_DOWN]](p->out + w->col0, (size_t)p->c->d_model, w->ptr, w->a,
                                                BUDGET_GATHER_ROWS, w->n, p->n_tokens, w->col0, w->n_cols);
    w->n = 0;
}

void pipeline_work_tile(const struct job *j, int worker)
{
    struct pass *p = j->pass;
    const struct list *l = &p->list[LIST_NEURON];
    const struct tile *last = &p->tiles[j->tile + j->n_tiles - 1];
    struct gather w = gather_of(p, worker);
    w.col0 = p->tiles[j->tile].col0;
    w.n_cols = last->col0 + last->n_cols - w.col0;
    for (uint32_t k = j->from; k < j->to; k++)
        gather(p, &l->e[k], l->part, LAYOUT_DOWN, active_at, &w, flush_down);
    flush_down(p, &w);
}
