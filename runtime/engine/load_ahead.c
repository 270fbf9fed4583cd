/* A ring of reads: the first is the one that bytes are taken from, the others are in flight or have arrived. */
#include "runtime/engine/load_ahead.h"

#include "common/base/progress.h"

#include <string.h>

int ahead_reap(struct engine *g, struct io_request **out, int max, struct err *e)
{
    int64_t start = progress_now_ns();
    int n = io_reap(g->io, out, max, 1, e);
    g->loading.wait_ns += (uint64_t)(progress_now_ns() - start);
    return n;
}

void ahead_init(struct ahead *a, struct engine *g, uint64_t offset, uint64_t bytes)
{
    *a = (struct ahead){ .g = g, .next = offset, .at = offset, .end = offset + bytes };
    a->piece = g->load_piece;
    a->depth = g->load_depth;
}

/* Whole blocks go to the backend; a piece of a block at the very end of the file is read here. */
static int ahead_ask(struct ahead *a, struct err *e)
{
    struct io_request *batch[AHEAD_DEPTH];
    uint64_t block = a->g->shapes->l.block_bytes, file_end = a->g->io->file_bytes;
    int n = 0;
    for (; a->count < a->depth && a->next < a->end; a->count++) {
        uint32_t i = (a->first + a->count) % a->depth;
        struct io_request *r = &a->req[i];
        uint64_t len = (a->end - a->next + block - 1) / block * block;
        r->offset = a->next;
        r->buf = a->g->load_at + (size_t)i * a->piece;
        r->tag = i;
        r->len = (uint32_t)(len < a->piece ? len : a->piece);
        a->next += r->len;
        a->arrived[i] = 0;
        if (r->offset + r->len > file_end) {
            a->arrived[i] = 1;
            int c = file_pread(&a->g->c.pack->file, r->buf, (size_t)(file_end - r->offset), r->offset, e);
            if (c < 0)
                return c;
            continue;
        }
        batch[n++] = r;
    }
    return io_submit(a->g->io, batch, n, e);
}

int ahead_read(void *ctx, void *buf, size_t len, struct err *e)
{
    struct ahead *a = ctx;
    for (uint8_t *out = buf; len;) {
        struct io_request *done[AHEAD_DEPTH];
        int n = ahead_ask(a, e);
        if (n < 0)
            return n;
        while (!a->arrived[a->first]) {
            n = ahead_reap(a->g, done, AHEAD_DEPTH, e);
            for (int i = 0; i < n; i++) {
                if (done[i]->result < 0)
                    return io_failed(a->g->io, done[i], e);
                a->arrived[done[i]->tag] = 1;
            }
            if (n < 0)
                return n;
        }
        const struct io_request *r = &a->req[a->first];
        uint64_t skip = a->at - r->offset, take = r->len - skip;
        take = take < len ? take : len;
        memcpy(out, r->buf + skip, (size_t)take);
        out += take;
        len -= (size_t)take;
        a->at += take;
        if (a->at == r->offset + r->len) {
            a->first = (a->first + 1) % a->depth;
            a->count--;
        }
    }
    return 0;
}
