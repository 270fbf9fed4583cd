/* Token t of a pass has buffer t % BUDGET_ROW_BUFFERS of each table. */
#include "runtime/engine/row_reads.h"

#include "common/base/progress.h"

#include <assert.h>
#include <stdlib.h>

struct table {
    const struct pack_dense *d;
    size_t row_bytes, buffer_bytes;
    uint8_t *buffers;
    uint32_t *checks;                   /* [rows] */
    struct io_request req[BUDGET_ROW_BUFFERS];
    int there[BUDGET_ROW_BUFFERS];
    int asked, taken, given;            /* tokens */
};

struct row_reads {
    const struct verifier *v;
    struct io *io;
    struct table table[BUDGET_TABLES];
    int n_tables;
    const struct engine_token *tokens;
    int n;
    struct verify_counts verified;
};

struct row_reads *row_reads_new(const struct verifier *v, struct err *e)
{
    struct row_reads *r = calloc(1, sizeof *r);
    if (r)
        r->v = v;
    else
        err_set(e, ERR_NOMEM, "out of memory for tables of rows");
    return r;
}

void row_reads_add(struct row_reads *r, const struct pack_dense *d, uint8_t *memory)
{
    const struct layout_shapes *s = &r->v->pack->shapes;
    struct table *t = &r->table[r->n_tables++];
    size_t block = s->l.block_bytes;
    assert(r->n_tables <= BUDGET_TABLES && !d->zstd);
    *t = (struct table){ .d = d, .row_bytes = (size_t)(d->bytes / d->dims[1]) };
    t->buffer_bytes = (size_t)budget_row_buffer(s, t->row_bytes);
    t->checks = (uint32_t *)(void *)memory;
    t->buffers = memory + (d->dims[1] * sizeof *t->checks + 63) / 64 * 64;
    t->buffers += (block - (uintptr_t)t->buffers % block) % block;
    for (uint32_t i = 0; i < BUDGET_ROW_BUFFERS; i++)
        t->req[i].tag = (uint32_t)(t - r->table) * BUDGET_ROW_BUFFERS + i;
}

uint8_t *row_reads_buffer(struct row_reads *r)
{
    return r->table[r->n_tables - 1].buffers;
}

void row_reads_look(struct row_reads *r, uint32_t row, const uint8_t *bytes)
{
    struct table *t = &r->table[r->n_tables - 1];
    t->checks[row] = verify_row_sum(r->v, t->d, row, bytes);
}

int row_reads_open(struct row_reads *r, enum plan_io io, const struct io_backend *backend, struct io_config *c, struct err *e)
{
    c->region = r->table[0].buffers;
    c->region_bytes = (size_t)(r->table[r->n_tables - 1].buffers - c->region) + BUDGET_ROW_BUFFERS * r->table[r->n_tables - 1].buffer_bytes;
    c->queue_depth = r->n_tables * BUDGET_ROW_BUFFERS;
    c->lanes = BUDGET_ROW_LANES;
    return backend ? io_open_backend(backend, c, &r->io, e) : io_open(io, c, &r->io, e);
}

int row_reads_close(struct row_reads *r)
{
    int in_flight = r ? io_close(r->io) : 0;
    if (!in_flight)
        free(r);
    return in_flight;
}

static struct table *table_of(const struct row_reads *r, enum model_role role)
{
    for (int i = 0; r && i < r->n_tables; i++)
        if (r->table[i].d->role == role)
            return (struct table *)&r->table[i];
    return NULL;
}

int row_reads_has(const struct row_reads *r, enum model_role role)
{
    return table_of(r, role) != NULL;
}

const struct io *row_reads_io(const struct row_reads *r)
{
    return r ? r->io : NULL;
}

void row_reads_watch(struct row_reads *r, const struct cancel *cancel)
{
    if (r && r->io)
        io_watch(r->io, cancel);
}

struct verify_counts row_reads_verified(const struct row_reads *r)
{
    return r ? r->verified : (struct verify_counts){ 0 };
}

/* ---- reads ---- */

static uint64_t offset_of(const struct row_reads *r, const struct table *t, int token)
{
    return t->d->offset + (uint64_t)r->tokens[token].id * t->row_bytes;
}

/* The next token's row; 1: of it something lies in a block that the file ends in, which backends do not read. */
static int ask(struct row_reads *r, struct table *t, struct io_request *q, struct err *e)
{
    uint64_t block = r->v->pack->shapes.l.block_bytes, at = offset_of(r, t, t->asked), start = at / block * block;
    q->offset = start;
    q->len = (uint32_t)((at + t->row_bytes + block - 1) / block * block - start);
    q->buf = t->buffers + (size_t)(q - t->req) * t->buffer_bytes;
    assert(q->len <= t->buffer_bytes);
    if (start + q->len <= r->io->file_bytes)
        return 0;
    int ok = file_pread(&r->v->pack->file, q->buf, (size_t)(r->io->file_bytes - start), start, e);
    return ok < 0 ? ok : 1;
}

static int issue(struct row_reads *r, struct table *t, struct err *e)
{
    struct io_request *batch[BUDGET_ROW_BUFFERS];
    int n = 0, ok = 0;
    for (; t->asked < r->n && t->asked - t->given < BUDGET_ROW_BUFFERS && ok >= 0; t->asked++) {
        int i = t->asked % BUDGET_ROW_BUFFERS;
        ok = ask(r, t, &t->req[i], e);
        t->there[i] = ok == 1;
        if (ok == 0)
            batch[n++] = &t->req[i];
    }
    int submitted = n ? io_submit(r->io, batch, n, e) : 0;
    return ok < 0 ? ok : submitted;
}

/* Waits for one read, and takes in what else has come. */
static int reap(struct row_reads *r, int forget, struct err *e)
{
    struct io_request *done[BUDGET_ROW_BUFFERS];
    int n = io_reap(r->io, done, BUDGET_ROW_BUFFERS, 1, e), bad = 0;
    for (int i = 0; i < n; i++) {
        r->table[done[i]->tag / BUDGET_ROW_BUFFERS].there[done[i]->tag % BUDGET_ROW_BUFFERS] = 1;
        if (done[i]->result < 0 && !forget && bad == 0)
            bad = io_failed(r->io, done[i], e);
    }
    return n < 0 ? n : bad;
}

int row_reads_begin(struct row_reads *r, const struct engine_token *tokens, int n, struct err *e)
{
    int ok = 0;
    while (r->io->in_flight > 0 && ok == 0)
        ok = reap(r, 1, e);
    r->tokens = tokens;
    r->n = n;
    for (int i = 0; i < r->n_tables && ok == 0; i++) {
        r->table[i].asked = r->table[i].taken = r->table[i].given = 0;
        ok = issue(r, &r->table[i], e);
    }
    return ok;
}

int row_reads_take(struct row_reads *r, enum model_role role, const uint8_t *rows[ROW_READS_GROUP], struct err *e)
{
    struct table *t = table_of(r, role);
    int n = t->asked - t->taken < ROW_READS_GROUP ? t->asked - t->taken : ROW_READS_GROUP, ok = 0;
    for (int i = 0; i < n && ok == 0; i++) {
        int k = (t->taken + i) % BUDGET_ROW_BUFFERS;
        while (!t->there[k] && ok == 0)
            ok = reap(r, 0, e);
        uint8_t *row = t->req[k].buf + (offset_of(r, t, t->taken + i) - t->req[k].offset);
        int64_t start = progress_now_ns();
        if (ok == 0)
            ok = verify_row(r->v, t->d, (uint32_t)r->tokens[t->taken + i].id, t->checks, row, &r->verified, e);
        r->verified.ns += (uint64_t)(progress_now_ns() - start);
        rows[i] = row;
    }
    t->taken += n;
    return ok < 0 ? ok : n;
}

int row_reads_give(struct row_reads *r, enum model_role role, struct err *e)
{
    struct table *t = table_of(r, role);
    t->given = t->taken;
    return issue(r, t, e);
}
