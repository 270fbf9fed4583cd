/* A ring of buffers and four counters of pieces: freed <= arrived <= asked, and base, the current block's first. Requests
 * finish in any order; `arrived` is the first piece that is missing, so that rows are there from the first on.
 * A piece of fc2 has two requests, its rows and its part of the bias, which lie apart in the file. */
#include "runtime/pipeline/predictor_prefetch.h"

#include "common/base/progress.h"

#include <assert.h>
#include <stdlib.h>

struct buffer {
    struct io_request req[2];
    uint8_t *rows;
    float *bias;
    uint32_t in_flight;
    uint32_t left;         /* rows, or ranges, that are still needed; guarded by the pipeline's lock once it is there */
};

struct predictor_prefetch {
    const struct pipeline_config *c;
    uint8_t *memory;
    struct buffer *buffers;
    uint32_t n_buffers, tag, align, in_flight;
    uint64_t buffer_bytes, bytes;
    int *order, n_order;   /* layers, ascending; 0 of them where a router chooses */
    uint64_t freed, arrived, asked, base, after; /* base, after: of the current block, and of the next */
    int use, ask;          /* places in order: the next layer to begin; whose pieces are asked for */
    uint32_t piece;        /* of that layer: the next to ask for */
    int layer, block;      /* the current one */
};

static const struct predict_pieces *pieces_of(const struct predictor_prefetch *f, int layer, int block)
{
    return &f->c->pieces[config_block(f->c, layer, block)];
}

static const struct predict *predict_of(const struct predictor_prefetch *f, int layer, int block)
{
    return &f->c->predictors[config_block(f->c, layer, block)];
}

static uint32_t count(const struct predict_pieces *p)
{
    return p->n_hidden + p->n_scores;
}

static struct buffer *buffer_of(const struct predictor_prefetch *f, uint64_t piece)
{
    return &f->buffers[piece % f->n_buffers];
}

uint32_t *predictor_prefetch_checks(uint8_t *staging, const struct layout_shape *s, const struct budget_choice *c, int i)
{
    uint64_t reads = (uint64_t)c->queue_depth * budget_read_bytes(s, c->read_bytes);
    uint64_t one = budget_predictor_check_bytes(&c->predictors), all = budget_stream_bytes(&c->predictors, c->predictor_buffers);
    return (uint32_t *)(void *)(staging + reads + all - c->predictors.n * one + (uint64_t)i * one);
}

struct predictor_prefetch *predictor_prefetch_new(const struct pipeline_config *c, uint8_t *memory, uint32_t tag, struct err *e)
{
    _Static_assert(sizeof(struct buffer) <= SCHEDULE_READ_BYTES, "state of a buffer");
    struct predictor_prefetch *f = calloc(1, sizeof *f);
    if (!f || !(f->order = calloc((size_t)c->n_layers, sizeof *f->order))) {
        free(f);
        err_set(e, ERR_NOMEM, "out of memory for streamed predictors");
        return NULL;
    }
    f->c = c;
    f->memory = memory;
    f->n_buffers = c->choice.predictor_buffers;
    f->buffer_bytes = c->choice.predictors.buffer_bytes;
    f->buffers = (struct buffer *)(void *)(memory + f->n_buffers * f->buffer_bytes);
    f->tag = tag;
    f->align = c->shapes->l.block_bytes;
    for (int l = 0; l < c->n_layers && c->n_blocks == 1; l++)
        if (config_streams(c, l) && count(pieces_of(f, l, 0)))
            f->order[f->n_order++] = l;
    return f;
}

void predictor_prefetch_free(struct predictor_prefetch *f)
{
    if (!f)
        return;
    free(f->order);
    free(f);
}

void predictor_prefetch_begin(struct predictor_prefetch *f, int layer, int block)
{
    f->layer = layer;
    f->block = block;
    if (!f->n_order) {
        assert(f->after == f->asked); /* the block before had all of its own */
        f->piece = 0;
    } else {
        assert(f->order[f->use] == layer);
        f->use = (f->use + 1) % f->n_order;
    }
    f->base = f->after;
    f->after += count(pieces_of(f, layer, block));
}

/* ---- reads ---- */

/* Whole blocks around `bytes` at a file offset, into `to`; where the bytes will be. What of a block lies beyond the end
 * of the file is not there to be read, and a read backend takes whole blocks only: such a piece is read here. */
static int ask_for(struct predictor_prefetch *f, struct buffer *b, int which, uint64_t offset, uint64_t bytes, uint8_t *to,
                   struct io_request **out, int *n, struct err *e)
{
    struct io_request *r = &b->req[which];
    uint64_t align = f->align, start = offset / align * align, end = (offset + bytes + align - 1) / align * align;
    *r = (struct io_request){ .offset = start, .buf = to, .len = (uint32_t)(end - start),
                              .tag = f->tag + 2 * (uint32_t)(b - f->buffers) + (uint32_t)which };
    f->bytes += r->len;
    if (end > f->c->io->file_bytes) {
        int got = file_pread(&f->c->pack->file, to, (size_t)(f->c->io->file_bytes - start), start, e);
        return got < 0 ? got : 0;
    }
    out[(*n)++] = r;
    b->in_flight++;
    f->in_flight++;
    return 0;
}

static int ask_piece(struct predictor_prefetch *f, int layer, int block, uint32_t piece, struct io_request **out, int *n,
                     struct err *e)
{
    const struct predict_pieces *p = pieces_of(f, layer, block);
    const struct predict *q = predict_of(f, layer, block);
    const struct pack_predictor *x = pack_predictor_find(f->c->pack, q->input, layer, block);
    struct buffer *b = buffer_of(f, f->asked);
    uint8_t *to = f->memory + (size_t)(b - f->buffers) * f->buffer_bytes;
    uint32_t always = f->c->always ? f->c->always[layer] : 0;
    int r;
    b->in_flight = 0;
    b->bias = NULL;
    if (piece < p->n_hidden) {
        uint32_t first = piece * p->rows, rows = (uint32_t)q->rank - first < p->rows ? (uint32_t)q->rank - first : p->rows;
        uint64_t at = x->offset + x->fc1_offset + first * (uint64_t)q->row1;
        b->left = rows;
        b->rows = to + at % f->align;
        return ask_for(f, b, 0, at, rows * (uint64_t)q->row1, to, out, n, e);
    }
    uint32_t first = always + (piece - p->n_hidden) * p->ranges * p->range, left = (uint32_t)q->n_ff - first;
    uint32_t neurons = left < p->ranges * p->range ? left : p->ranges * p->range;
    uint64_t numbers = sizeof(float) * (uint64_t)predict_numbers(x->has_bias, x->two_sided);
    uint64_t at = x->offset + x->fc2_offset + first * (uint64_t)q->row2, bias = x->offset + x->bias_offset + first * numbers;
    b->left = (neurons + p->range - 1) / p->range;
    b->rows = to + at % f->align;
    if ((r = ask_for(f, b, 0, at, neurons * (uint64_t)q->row2, to, out, n, e)) < 0 || !x->has_bias)
        return r;
    to += b->req[0].len;
    b->bias = (float *)(void *)(to + bias % f->align);
    return ask_for(f, b, 1, bias, neurons * numbers, to, out, n, e);
}

/* Pieces that have arrived without a gap. */
static void advance(struct predictor_prefetch *f)
{
    while (f->arrived < f->asked && !buffer_of(f, f->arrived)->in_flight)
        f->arrived++;
}

/* The layer and block of the next piece, or 0. */
static int next_piece(struct predictor_prefetch *f, int ahead, int *layer, int *block)
{
    *layer = f->n_order ? f->order[f->ask] : f->layer;
    *block = f->n_order ? 0 : f->block;
    return (ahead && f->n_order) || f->asked < f->after;
}

int predictor_prefetch_issue(struct predictor_prefetch *f, int ahead, struct err *e)
{
    struct io_request *batch[2 * PREDICTOR_PREFETCH_AHEAD];
    int n = 0, r = 0, layer, block;
    while (r == 0 && f->asked - f->freed < f->n_buffers && f->in_flight + 2 <= (uint32_t)predictor_prefetch_depth(f->n_buffers) &&
           next_piece(f, ahead, &layer, &block)) {
        r = ask_piece(f, layer, block, f->piece, batch, &n, e);
        f->asked++;
        if (++f->piece == count(pieces_of(f, layer, block)) && f->n_order) {
            f->piece = 0;
            f->ask = (f->ask + 1) % f->n_order;
        }
    }
    advance(f);
    return r < 0 ? r : io_submit(f->c->io, batch, n, e);
}

int predictor_prefetch_came(struct predictor_prefetch *f, const struct io_request *r, struct err *e)
{
    struct buffer *b = &f->buffers[(r->tag - f->tag) / 2];
    if (r->result < 0)
        return io_failed(f->c->io, r, e);
    b->in_flight--;
    f->in_flight--;
    advance(f);
    return 0;
}

/* ---- use ---- */

void predictor_prefetch_ready(const struct predictor_prefetch *f, uint32_t *rows, uint32_t *ranges)
{
    const struct predict_pieces *p = pieces_of(f, f->layer, f->block);
    uint64_t n = f->arrived > f->base ? f->arrived - f->base : 0; /* of this layer and those that follow */
    uint64_t hidden = n < p->n_hidden ? n : p->n_hidden, scores = n - hidden < p->n_scores ? n - hidden : p->n_scores;
    *rows = (uint32_t)hidden * p->rows;
    *ranges = (uint32_t)scores * p->ranges;
}

static struct buffer *hidden_at(const struct predictor_prefetch *f, uint32_t row)
{
    return buffer_of(f, f->base + row / pieces_of(f, f->layer, f->block)->rows);
}

static struct buffer *range_at(const struct predictor_prefetch *f, uint32_t range)
{
    const struct predict_pieces *p = pieces_of(f, f->layer, f->block);
    return buffer_of(f, f->base + p->n_hidden + range / p->ranges);
}

uint32_t predictor_prefetch_together(const struct predictor_prefetch *f, uint32_t row)
{
    uint32_t per = pieces_of(f, f->layer, f->block)->rows;
    return per - row % per;
}

int predictor_prefetch_rows(const struct predictor_prefetch *f, uint32_t from, uint32_t to, const uint8_t **rows,
                            struct verify_counts *c, struct err *e)
{
    uint32_t per = pieces_of(f, f->layer, f->block)->rows;
    uint8_t *at = hidden_at(f, from)->rows + from % per * predict_of(f, f->layer, f->block)->row1;
    int64_t start = progress_now_ns();
    int r = verify_rows(f->c->verifier, f->layer, f->block, from, to, at, c, e);
    c->ns += (uint64_t)(progress_now_ns() - start);
    *rows = at;
    return r;
}

int predictor_prefetch_range(const struct predictor_prefetch *f, uint32_t range, const uint8_t **rows, const float **bias,
                             struct verify_counts *c, struct err *e)
{
    const struct predict_pieces *p = pieces_of(f, f->layer, f->block);
    const struct buffer *b = range_at(f, range);
    size_t neurons = (size_t)(range % p->ranges) * p->range;
    const struct predict *q = predict_of(f, f->layer, f->block);
    uint8_t *at = b->rows + neurons * q->row2;
    float *bias_at = b->bias ? b->bias + neurons * (size_t)predict_numbers(1, q->two_sided) : NULL;
    int64_t start = progress_now_ns();
    int r = verify_range(f->c->verifier, f->layer, f->block, range, at, (uint8_t *)bias_at, c, e);
    c->ns += (uint64_t)(progress_now_ns() - start);
    *rows = at;
    *bias = bias_at;
    return r;
}

void predictor_prefetch_used(struct predictor_prefetch *f, int hidden, uint32_t from, uint32_t n)
{
    struct buffer *b = hidden ? hidden_at(f, from) : range_at(f, from);
    assert(n <= b->left);
    b->left -= n;
}

void predictor_prefetch_reclaim(struct predictor_prefetch *f)
{
    while (f->freed < f->arrived && !buffer_of(f, f->freed)->left)
        f->freed++;
}

uint64_t predictor_prefetch_bytes(const struct predictor_prefetch *f)
{
    return f->bytes;
}

uint32_t predictor_prefetch_in_flight(const struct predictor_prefetch *f)
{
    return f ? f->in_flight : 0;
}
