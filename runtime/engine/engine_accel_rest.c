/* Whole layers on the accelerator, in large passes of models without experts: the neurons that are not resident are read into an area,
 * piece by piece (common/plan/rest.h), and each is an FFN of its own. One is computed while the next is verified and those after it are
 * read; the sums are added in the order of the pieces, which follows from plan and pack alone, so that neither timing nor threads change a
 * bit. Where gates are resident and Up and Down are not, the piece's gates are those in memory. */
#include "runtime/engine/engine_accel.h"

#include <stdlib.h>

/* What of the pipeline's configuration pieces follow from. */
static struct pipeline_config area_of(const struct engine *g)
{
    return (struct pipeline_config){ .pack = g->c.pack, .shapes = g->shapes, .n_blocks = g->n_blocks, .choice = g->c.choice,
                                     .area = g->area, .area_bytes = g->c.choice.area_bytes };
}

/* A part of the piece: where its first record is, and how records follow each other. */
struct records {
    const uint8_t *at;
    uint32_t per;               /* neurons of a group of records without gaps; 0: all of them */
    size_t stride;              /* from group to group */
};

static struct records records_of(const struct engine *g, const struct rest_data *d, int part)
{
    const struct layout_part *lp = &layout_of(g->shapes, d->layer)->part[part];
    if (!d->piece.read[part])
        return (struct records){ g->hot + g->hot_at[engine_hot_index(g, d->layer, 0, part)] + layout_bytes(lp, d->piece.first), 0, 0 };
    int gaps = lp->stride_bytes != lp->unit_bytes;
    return (struct records){ d->at[part], gaps ? lp->neurons_per_unit : 0, (size_t)lp->stride_bytes };
}

static struct accel_matrix rows_of(const struct layout_shape *s, const struct layout_part *lp, const struct records *r, int role,
                                   int n, int d)
{
    return (struct accel_matrix){ .data = r->at + lp->role_offset[role], .type = s->type[role], .n_rows = n, .n_cols = d,
                                  .row_stride = lp->record_bytes, .group_rows = (int)r->per, .group_stride = r->stride };
}

/* A tile's rows of Gate and Up, and its part of Down's rows; of the FFN's last, smaller one they lie elsewhere. 0: tiles share units that
 * have gaps between them. */
static int fill_tiles(const struct layout_shape *s, const struct records *r, int n, int d, struct accel_ffn *f)
{
    const struct layout_part *lp = &s->part[0];
    int t = (int)lp->record_neurons, small = n < t;
    size_t stride = r->per ? r->stride : lp->record_bytes;
    struct accel_matrix *const all[] = { [LAYOUT_GATE] = &f->gate, [LAYOUT_UP] = &f->up };
    for (int role = LAYOUT_GATE; role <= (s->ungated ? LAYOUT_GATE : LAYOUT_UP); role++)
        *all[role] = (struct accel_matrix){ .data = r->at + layout_tile_offset(lp, role, (uint32_t)(small ? n : t)), .type = s->type[role],
                                            .n_rows = n, .n_cols = d, .row_stride = lp->role_bytes[role], .group_rows = small ? 0 : t,
                                            .group_stride = small ? 0 : stride };
    if (s->ungated)
        f->up = f->gate;
    f->down = (struct accel_matrix){ .data = r->at + layout_tile_offset(lp, LAYOUT_DOWN, (uint32_t)(small ? n : t)),
                                     .type = s->type[LAYOUT_DOWN], .n_rows = d, .n_cols = n,
                                     .row_stride = layout_tile_down_bytes(lp, (uint32_t)(small ? n : t)), .run_elems = small ? 0 : t,
                                     .run_stride = small ? 0 : stride };
    return !r->per || r->per == (uint32_t)t;
}

static int fill_piece(const struct engine *g, const struct rest_data *p, struct accel_ffn *f)
{
    const struct layout_shape *s = layout_of(g->shapes, p->layer);
    int last = g->n_parts - 1, n = (int)p->piece.n, d = g->h.d_model, ok = 1;
    const struct records gates = records_of(g, p, 0), others = records_of(g, p, last);
    const struct pipeline_bias *b = &g->biases[p->layer];
    size_t at = p->piece.first;
    if (s->part[0].record_neurons > 1) {
        ok = fill_tiles(s, &gates, n, d, f);
    } else {
        f->turned = 1;
        f->gate = rows_of(s, &s->part[0], &gates, LAYOUT_GATE, n, d);
        f->up = s->ungated ? f->gate : rows_of(s, &s->part[last], &others, LAYOUT_UP, n, d);
        f->down = rows_of(s, &s->part[last], &others, LAYOUT_DOWN, n, d);
    }
    f->gate_bias = b->gate ? b->gate + at : NULL;
    f->up_bias = b->up ? b->up + at : NULL;
    f->silence = b->silence ? b->silence + at : NULL;
    f->act = g->h.act;
    return ok;
}

static int can_take(const struct engine *g, const struct rest_data *d)
{
    const struct accel *a = g->accel->a;
    struct accel_ffn f = { 0 };
    return fill_piece(g, d, &f) && a->backend->takes(a, &f.gate, 0) && a->backend->takes(a, &f.up, 0) &&
           a->backend->takes(a, &f.down, f.turned);
}

int engine_accel_can_rest(const struct engine *g)
{
    const struct pipeline_config c = area_of(g);
    int can = c.area_bytes > 0 && g->n_blocks == 1;
    for (int l = 0; l < g->h.n_layers && can; l++) {
        const struct layout_shape *s = layout_of(g->shapes, l);
        const uint32_t none[LAYOUT_MAX_PARTS] = { 0 }, *hot = c.choice.hot ? c.choice.hot + engine_hot_index(g, l, 0, 0) : none;
        struct rest_data d;
        can = rest_piece_neurons(s, c.area_bytes) > 0;
        for (uint32_t at = rest_first(s, hot); can && rest_reads_place(&c, l, at, &d); at = d.piece.first + d.piece.n)
            can = can_take(g, &d);
    }
    return can;
}

uint32_t engine_accel_rest_resident(const struct engine *g, int layer, int part)
{
    const uint32_t *hot = g->c.choice.hot && g->n_blocks == 1 ? g->c.choice.hot + engine_hot_index(g, layer, 0, 0) : NULL;
    return g->c.choice.area_bytes && hot && hot[part] > rest_first(layout_of(g->shapes, layer), hot) ? hot[part] : 0;
}

/* ---- a layer ---- */

struct polled {
    struct pipeline *pipe;
    int failed;
};

static int poll(void *ctx, struct err *e)
{
    struct polled *p = ctx;
    return p->failed = pipeline_rest_poll(p->pipe, e);
}

static int queue_piece(struct engine *g, const struct rest_data *d, const struct pipeline_ffn *f, struct err *e)
{
    struct engine_accel *x = g->accel;
    struct accel_ffn ffn = { .in = f->in.f32, .out = x->out, .n_tokens = f->in.n_tokens };
    fill_piece(g, d, &ffn);
    int r = x->a->backend->changed(x->a, d->slot, d->bytes, e);
    if (r < 0 || (r = x->a->backend->ffn(x->a, &ffn, 1, e)) < 0)
        return r;
    g->stats.accel.neurons += d->piece.n;
    g->stats.accel.rest_neurons += d->piece.n;
    return 0;
}

int engine_accel_run_rest(struct engine *g, int layer, struct pipeline_ffn *f, int pending, struct err *why, struct err *e)
{
    struct engine_accel *x = g->accel;
    struct polled polled = { g->pipe, 0 };
    struct rest_data d;
    int piece = 0, next = 1, r = 0; /* piece: what is queued is one, and has a slot */
    while (next > 0) {
        next = pipeline_rest_next(g->pipe, layer, &d, e); /* while the one before is computed */
        if (pending && engine_accel_wait(x, next < 0 ? NULL : poll, &polled, why) < 0) {
            if (polled.failed < 0)
                *e = *why;
            return next < 0 ? next : polled.failed < 0 ? polled.failed : 1;
        }
        if (next < 0)
            return next;
        if (pending)
            engine_accel_add(x, x->out, f->in.n_tokens, f->out);
        if (piece && (r = pipeline_rest_done(g->pipe, e)) < 0)
            return r;
        if (next > 0 && queue_piece(g, &d, f, why) < 0) {
            engine_accel_wait(x, NULL, NULL, &(struct err){ 0 }); /* nothing may write to out any more */
            return 1;
        }
        pending = piece = next;
    }
    return 0;
}
