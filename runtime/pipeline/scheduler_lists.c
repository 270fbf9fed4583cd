/* The coordinator's side of a pass: its lists, from what is known at first to what gates tell, and when an entry is done
 * with. The lock is held only to show workers what there is or to see what they have done. */
#include "runtime/pipeline/scheduler_impl.h"

#include <assert.h>

/* The lists' memory, from the account: entries, rings, activity, gates left. */
void pass_take_lists(struct pass *p)
{
    _Static_assert(sizeof(struct entry) + sizeof(uint32_t) <= SCHEDULE_ENTRY_BYTES * 2 / 3, "entries");
    const struct pipeline_config *c = p->b.c;
    const struct layout_shapes *s = c->shapes;
    uint8_t *m = c->memory.entries + (size_t)(p - p->s->pass) * c->scratch.entries, *end = m + c->scratch.entries;
    for (int l = 0; l < LISTS; l++) {
        struct list *q = &p->b.list[l];
        q->of = &p->b;
        q->part = l == LIST_GATE ? 0 : s->n_parts - 1;
        q->work = l == LIST_GATE ? DO_GATE : s->n_parts == 1 ? DO_GATE | DO_UP : DO_UP;
        q->cap = l == LIST_GATE && s->n_parts == 1 ? 0 : s->n_clusters + layout_most_units(s, q->part);
        q->e = (struct entry *)(void *)m;
        m += q->cap * sizeof *q->e;
    }
    for (int l = 0; l < LISTS; l++) {
        p->ring[l].e = (uint32_t *)(void *)m;
        m += p->b.list[l].cap * sizeof(uint32_t);
    }
    p->gate_left = (uint32_t *)(void *)m;
    m += s->n_clusters * sizeof(uint32_t);
    p->b.active = m;
    m += s->n_ff;
    p->b.pred.row_bytes = prediction_row_bytes(c);
    p->b.pred.any = m;
    m += p->b.pred.row_bytes;
    if (p == p->s->pass)
        p->s->now.scored = m;
    m += s->n_clusters;
    assert(m <= end);
    (void)end;
}

void pass_reset_lists(struct pass *p)
{
    for (int i = 0; i < LISTS; i++) {
        p->b.list[i].n = p->b.list[i].issue = 0;
        read_queue_rule(p->s->q, &p->b.list[i]);
        p->ring[i].head = p->ring[i].n = p->ring[i].rows = 0;
        p->retired[i] = p->n_new[i] = 0;
    }
    p->resolved = p->gate_frontier = p->published = p->frontier = p->frontier_rows = 0;
}

/* ---- entries ---- */

void pass_flush(struct pass *p)
{
    if (!p->n_new[0] && !p->n_new[1])
        return;
    pthread_mutex_lock(&p->s->lock);
    for (int k = 0; k < LISTS; k++) {
        const struct list *l = &p->b.list[k];
        struct ring *g = &p->ring[k];
        for (uint32_t i = 0; i < p->n_new[k]; i++) {
            g->e[(g->head + g->n++) % l->cap] = p->new_ready[k][i];
            g->rows += block_rows_of(&l->e[p->new_ready[k][i]]);
        }
        p->n_new[k] = 0;
    }
    p->published = p->b.list[LIST_NEURON].n;
    scheduler_changed(p->s);
    scheduler_unlock(p->s);
}

void pass_ready(struct pass *p, enum list_id list, uint32_t i)
{
    p->new_ready[list][p->n_new[list]++] = i;
    if (p->n_new[list] == JOB_ENTRIES)
        pass_flush(p);
}

static struct entry *append(struct pass *p, enum list_id list, uint32_t pos0, uint32_t n)
{
    struct list *l = &p->b.list[list];
    assert(l->n < l->cap);
    l->e[l->n] = (struct entry){ .pos0 = pos0, .n = (uint16_t)n };
    return &l->e[l->n++];
}

void pass_add_hot(struct pass *p, enum list_id list, uint32_t pos0, uint32_t n, uint32_t rows)
{
    int part = p->b.list[list].part;
    struct entry *e = append(p, list, pos0, n);
    e->kind = KIND_HOT;
    e->where = rows;
    e->base = p->b.hot_base[part] + layout_bytes(&p->b.shape->part[part], pos0);
    pass_ready(p, list, p->b.list[list].n - 1);
}

/* A unit that is not hot: cached and pinned, or to be read. */
void pass_add_unit(struct pass *p, enum list_id list, uint32_t unit)
{
    struct list *l = &p->b.list[list];
    const struct layout_shape *s = p->b.shape;
    const struct layout_part *lp = &s->part[l->part];
    struct entry *e = append(p, list, unit * lp->neurons_per_unit, layout_unit_neurons(s, lp, unit));
    e->unit = unit;
    if (read_queue_lookup(p->s->q, l, e))
        pass_ready(p, list, l->n - 1);
}

/* Neurons of cluster c, whose gates are known, that the FFN needs. */
static void resolve_cluster(struct pass *p, uint32_t c)
{
    const struct layout_shape *s = p->b.shape;
    int part = p->b.list[LIST_NEURON].part;
    const struct layout_part *lp = &s->part[part];
    uint32_t first = c * s->cluster_neurons, end = first + s->cluster_neurons;
    if (end > (uint32_t)s->n_ff)
        end = (uint32_t)s->n_ff;
    if (first < p->b.hot[part]) {
        uint32_t rows = 0;
        for (uint32_t i = first; i < end; i++)
            rows += p->b.active[i];
        if (rows)
            pass_add_hot(p, LIST_NEURON, first, end - first, rows);
        return;
    }
    for (uint32_t at = first; at < end; at += lp->neurons_per_unit) {
        uint32_t n = end - at < lp->neurons_per_unit ? end - at : lp->neurons_per_unit;
        if (memchr(p->b.active + at, 1, n))
            pass_add_unit(p, LIST_NEURON, at / lp->neurons_per_unit);
    }
}

void pass_resolve(struct pass *p)
{
    const struct layout_shape *s = p->b.shape;
    pthread_mutex_lock(&p->s->lock);
    uint32_t to = p->gate_frontier;
    pthread_mutex_unlock(&p->s->lock);
    if (p->resolved == to)
        return;
    for (; p->resolved < to; p->resolved++)
        if (p->resolved >= p->b.fused && s->n_parts > 1 && p->resolved * s->cluster_neurons < p->b.rest)
            resolve_cluster(p, p->resolved);
    pass_know(p);
    pass_flush(p);
    pthread_mutex_lock(&p->s->lock);
    p->published = p->b.list[LIST_NEURON].n;
    if (to == s->n_clusters) {
        p->all_resolved = 1;
        scheduler_check_finished(p);
    }
    scheduler_changed(p->s);
    scheduler_unlock(p->s);
}

/* Neuron entries that every tile has passed, and gates that are computed, in order. */
void pass_retire(struct pass *p)
{
    const struct list *gates = &p->b.list[LIST_GATE], *neurons = &p->b.list[LIST_NEURON];
    uint32_t to = UINT32_MAX, g = p->retired[LIST_GATE];
    pthread_mutex_lock(&p->s->lock);
    for (int i = 0; i < p->s->n_tiles; i++)
        to = p->tiles[i].done < to ? p->tiles[i].done : to;
    while (g < gates->n && gates->e[g].done)
        g++;
    pthread_mutex_unlock(&p->s->lock);
    for (uint32_t *r = &p->retired[LIST_GATE]; *r < g; ++*r)
        read_queue_release(p->s->q, gates, &gates->e[*r]);
    for (uint32_t *r = &p->retired[LIST_NEURON]; *r < to; ++*r)
        read_queue_release(p->s->q, neurons, &neurons->e[*r]);
}

/* What comes later in a list is known by gates, or by predictions, so far; else everything is listed. */
void pass_know(struct pass *p)
{
    const struct layout_shape *s = p->b.shape;
    const struct predicted *d = &p->b.pred;
    for (int k = 0; k < LISTS; k++) {
        struct list *l = &p->b.list[k];
        uint32_t per = s->part[l->part].neurons_per_unit;
        l->known_to = UINT32_MAX;
        if (k == LIST_NEURON && s->n_parts > 1)
            l->known_to = p->resolved < s->n_clusters ? p->resolved * s->cluster_neurons / per : UINT32_MAX;
        else if (d->on && p->listed < d->n_ranges)
            l->known_to = (d->always + p->listed * d->range) / per;
    }
}

/* Everything that is known before the activations are: hot clusters, and the units whose gates are needed. In a predicted
 * pass that is only the neurons that need not be predicted; all others' gates count as missing until they are scored. */
void pass_list_known(struct pass *p)
{
    const struct layout_shape *s = p->b.shape;
    uint32_t cluster = s->cluster_neurons, n_ff = (uint32_t)s->n_ff;
    enum list_id list = s->n_parts == 1 ? LIST_NEURON : LIST_GATE;
    const struct layout_part *lp = &s->part[0];
    for (uint32_t c = 0; c < s->n_clusters; c++) {
        uint32_t first = c * cluster, n = n_ff - first < cluster ? n_ff - first : cluster;
        int here = first >= p->b.beside && first < p->b.rest;
        p->gate_left[c] = here ? n : 0;
        if (!here || (p->b.pred.on && first >= p->b.pred.always))
            continue;
        if (c < p->b.fused || s->n_parts == 1)
            p->gate_left[c] = 0;
        if (c < p->b.fused)
            pass_add_hot(p, LIST_NEURON, first, n, n);
        else if (first < p->b.hot[0])
            pass_add_hot(p, list, first, n, n);
        else
            for (uint32_t at = first; at < first + n; at += lp->neurons_per_unit)
                pass_add_unit(p, list, at / lp->neurons_per_unit);
    }
    pass_know(p);
    pass_flush(p);
    while (p->gate_frontier < s->n_clusters && !p->gate_left[p->gate_frontier])
        p->gate_frontier++;
}
