/* A piece is one run of bytes of each segment that it has parts in, from the block in which its first unit begins to the end of that in
 * which the last one ends, and lies in its slot as it does in the file: units are where their strides say, and nothing is copied. Runs are
 * read in requests of REST_READ_BYTES. */
#include "runtime/pipeline/rest_reads.h"

#include <assert.h>
#include <stdlib.h>

#define READS 64 /* in flight, at most */
#define NONE  UINT32_MAX

struct run {
    uint64_t from, to;      /* of the file, whole blocks */
    size_t at;              /* of the slot */
};

struct slot {
    struct rest_data data;
    struct run run[LAYOUT_MAX_PARTS];
    int n_runs, filling;    /* filling: the run that is read next */
    uint64_t next;          /* of the file, in that run */
    uint64_t left;          /* bytes that have not come */
};

struct read {
    struct io_request req;
    uint32_t piece;         /* counted from the beginning, or NONE: forgotten */
};

struct rest_reads {
    const struct pipeline_config *c;
    const int *layers;
    int n_layers, layer;    /* layer: index of the one whose pieces are started next */
    uint32_t neuron;        /* of it */
    uint32_t first, taken, end; /* pieces that have a slot, counted from rest_reads_begin; the first that was not given */
    struct slot slots[REST_SLOTS];
    struct read reads[READS];
    uint32_t free[READS], n_free;
    uint32_t tag;
};

struct rest_reads *rest_reads_new(const struct pipeline_config *c, uint32_t tag, struct err *e)
{
    struct rest_reads *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(e, ERR_NOMEM, "out of memory for the rest of FFNs");
        return NULL;
    }
    r->c = c;
    r->tag = tag;
    for (uint32_t i = 0; i < READS; i++) {
        r->reads[i].req.tag = tag + i;
        r->free[r->n_free++] = READS - 1 - i;
    }
    return r;
}

void rest_reads_free(struct rest_reads *r)
{
    free(r);
}

static const uint32_t *hot_of(const struct pipeline_config *c, int layer)
{
    static const uint32_t none[LAYOUT_MAX_PARTS];
    return c->choice.hot ? c->choice.hot + config_hot(c, layer, 0, 0) : none;
}

static void enter_layer(struct rest_reads *r)
{
    if (r->layer < r->n_layers) {
        int layer = r->layers[r->layer];
        r->neuron = rest_first(layout_of(r->c->shapes, layer), hot_of(r->c, layer));
    }
}

void rest_reads_begin(struct rest_reads *r, const int *layers, int n)
{
    assert(!n || (r->n_free == READS && r->c->area_bytes && r->c->n_blocks == 1));
    for (int i = 0; i < READS; i++)
        r->reads[i].piece = NONE;
    r->layers = layers;
    r->n_layers = n;
    r->layer = 0;
    r->first = r->taken = r->end = 0;
    enter_layer(r);
}

/* ---- pieces ---- */

/* Where a piece's parts are in the file, and then in a slot. */
static void place(const struct pipeline_config *c, struct slot *s)
{
    struct rest_data *d = &s->data;
    const struct layout_shape *shape = layout_of(c->shapes, d->layer);
    uint64_t block = shape->block_bytes;
    s->n_runs = 0;
    for (int p = 0; p < shape->n_parts; p++) {
        const struct layout_part *lp = &shape->part[p];
        if (!d->piece.read[p])
            continue;
        uint32_t unit = layout_unit_of(lp, d->piece.first), last = layout_unit_of(lp, d->piece.first + d->piece.n - 1);
        uint64_t at = pack_unit_offset(c->pack, d->layer, 0, p, unit);
        uint64_t end = pack_unit_offset(c->pack, d->layer, 0, p, last) + layout_bytes(lp, layout_unit_neurons(shape, lp, last));
        int same = s->n_runs && lp->segment == shape->part[p - 1].segment; /* parts that alternate */
        struct run *run = &s->run[same ? s->n_runs - 1 : s->n_runs++];
        if (!same)
            *run = (struct run){ .from = at / block * block, .at = s->n_runs > 1 ? run[-1].at + (size_t)(run[-1].to - run[-1].from) : 0 };
        run->to = (end + block - 1) / block * block;
        d->at[p] = d->slot + run->at + (at - run->from);
    }
    d->bytes = s->run[s->n_runs - 1].at + (size_t)(s->run[s->n_runs - 1].to - s->run[s->n_runs - 1].from);
    assert(d->bytes <= rest_slot_bytes(shape, c->area_bytes));
}

static int piece_at(const struct pipeline_config *c, int layer, uint32_t at, uint32_t index, struct slot *s)
{
    const struct layout_shape *shape = layout_of(c->shapes, layer);
    uint8_t *at_slot = c->area + (size_t)(index % REST_SLOTS) * rest_slot_bytes(shape, c->area_bytes);
    *s = (struct slot){ .data = { .layer = layer, .slot = at_slot } };
    if (!rest_piece_at(shape, hot_of(c, layer), rest_piece_neurons(shape, c->area_bytes), at, &s->data.piece))
        return 0;
    place(c, s);
    return 1;
}

int rest_reads_place(const struct pipeline_config *c, int layer, uint32_t at, struct rest_data *out)
{
    struct slot s;
    int any = piece_at(c, layer, at, 0, &s);
    *out = s.data;
    return any;
}

/* The next piece gets a slot; 0: all have theirs, or none is free. */
static int start_piece(struct rest_reads *r)
{
    struct slot *s = &r->slots[r->end % REST_SLOTS];
    if (r->end - r->first == REST_SLOTS)
        return 0;
    while (r->layer < r->n_layers && !piece_at(r->c, r->layers[r->layer], r->neuron, r->end, s)) {
        r->layer++;
        enter_layer(r);
    }
    if (r->layer == r->n_layers)
        return 0;
    r->neuron = s->data.piece.first + s->data.piece.n;
    s->next = s->run[0].from;
    for (int i = 0; i < s->n_runs; i++)
        s->left += s->run[i].to - s->run[i].from;
    r->end++;
    return 1;
}

/* ---- reads ---- */

static int is_asked_for(const struct slot *s)
{
    return s->filling == s->n_runs;
}

/* The piece that is asked for now, if any is. */
static struct slot *filling(struct rest_reads *r)
{
    struct slot *s = r->end > r->first ? &r->slots[(r->end - 1) % REST_SLOTS] : NULL;
    if (s && !is_asked_for(s))
        return s;
    return start_piece(r) ? &r->slots[(r->end - 1) % REST_SLOTS] : NULL;
}

static struct io_request *next_read(struct rest_reads *r)
{
    struct slot *s = r->n_free ? filling(r) : NULL;
    if (!s)
        return NULL;
    struct read *x = &r->reads[r->free[--r->n_free]];
    const struct run *run = &s->run[s->filling];
    uint64_t left = run->to - s->next;
    x->piece = r->end - 1;
    x->req.offset = s->next;
    x->req.len = (uint32_t)(left < REST_READ_BYTES ? left : REST_READ_BYTES);
    x->req.buf = s->data.slot + run->at + (s->next - run->from);
    s->next += x->req.len;
    if (s->next == run->to && ++s->filling < s->n_runs)
        s->next = s->run[s->filling].from;
    return &x->req;
}

int rest_reads_issue(struct rest_reads *r, uint32_t most, struct err *e)
{
    struct io_request *batch[READS];
    struct io *io = r->c->io;
    int n = 0;
    while (r->n_layers && (uint32_t)(io->in_flight + n) < most && (batch[n] = next_read(r)))
        n++;
    return n ? io_submit(io, batch, n, e) : 0;
}

int rest_reads_came(struct rest_reads *r, const struct io_request *done, struct err *e)
{
    struct read *x = &r->reads[done->tag - r->tag];
    assert(done == &x->req);
    r->free[r->n_free++] = done->tag - r->tag;
    if (x->piece == NONE)
        return 0;
    if (done->result < 0)
        return io_failed(r->c->io, done, e);
    r->slots[x->piece % REST_SLOTS].left -= done->len;
    return 0;
}

int rest_reads_in_flight(const struct rest_reads *r)
{
    return (int)(READS - r->n_free);
}

int rest_reads_busy(const struct rest_reads *r)
{
    return r->n_layers > 0 || r->n_free < READS;
}

/* ---- pieces that are there ---- */

int rest_reads_next(struct rest_reads *r, int layer, struct rest_data *out)
{
    const struct slot *s = &r->slots[r->taken % REST_SLOTS];
    if (r->taken == r->end && !start_piece(r))
        return 0;
    if (s->data.layer != layer)
        return 0;
    *out = s->data;
    if (!is_asked_for(s) || s->left)
        return 2;
    r->taken++;
    return 1;
}

void rest_reads_done(struct rest_reads *r)
{
    assert(r->first < r->taken);
    r->first++;
}

uint32_t rest_reads_units(const struct pipeline_config *c, const struct rest_data *d)
{
    const struct layout_shape *s = layout_of(c->shapes, d->layer);
    uint32_t n = 0;
    for (int p = 0; p < s->n_parts; p++)
        n += d->piece.read[p] ? (d->piece.n + s->part[p].neurons_per_unit - 1) / s->part[p].neurons_per_unit : 0;
    return n;
}

int rest_reads_verify(const struct pipeline_config *c, const struct rest_data *d, uint32_t unit, struct verify_counts *v, struct err *e)
{
    const struct layout_shape *s = layout_of(c->shapes, d->layer);
    int p = 0;
    for (uint32_t n; ; unit -= n, p++) {
        n = d->piece.read[p] ? (d->piece.n + s->part[p].neurons_per_unit - 1) / s->part[p].neurons_per_unit : 0;
        if (unit < n)
            break;
    }
    return verify_unit(c->verifier, d->layer, 0, p, layout_unit_of(&s->part[p], d->piece.first) + unit,
                       d->at[p] + (size_t)unit * s->part[p].stride_bytes, v, e);
}
