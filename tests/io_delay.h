#ifndef TESTS_IO_DELAY_H
#define TESTS_IO_DELAY_H

/* A back end of reads by pread at submission, each completion held back for a random time, so that requests finish in an
 * order unlike that of submission. Only order and timing change, never bytes: whatever depends on them in the engine
 * shows. Single-threaded; a seed repeats the delays. */
#include "runtime/io/io.h"

#include "common/base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint32_t io_delay_max_us, io_delay_seed; /* of what is opened next */

struct io_delay_held {
    struct io_request *r;
    int64_t due_ns;
};

struct io_delay {
    struct io io;
    struct io_delay_held *held;
    int n;
    uint32_t state;
};

static int delay_start(struct io *io, struct err *e)
{
    struct io_delay *d = (struct io_delay *)io;
    d->state = io_delay_seed | 1;
    d->held = calloc((size_t)io->config.queue_depth, sizeof *d->held);
    return d->held ? 0 : err_set(e, ERR_NOMEM, "out of memory for %d reads in flight", io->config.queue_depth);
}

static uint32_t delay_random(struct io_delay *d)
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 17;
    d->state ^= d->state << 5;
    return d->state;
}

static int delay_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    struct io_delay *d = (struct io_delay *)io;
    (void)e;
    for (int i = 0; i < n; i++) {
        ssize_t got;
        do
            got = pread(io->fd, r[i]->buf + r[i]->done, r[i]->len - r[i]->done, (off_t)(r[i]->offset + r[i]->done));
        while (!io_advance(io, r[i], got < 0 ? -errno : (int)got));
        int64_t wait_ns = io_delay_max_us ? (int64_t)(delay_random(d) % io_delay_max_us) * 1000 : 0;
        d->held[d->n++] = (struct io_delay_held){ r[i], progress_now_ns() + wait_ns };
    }
    return 0;
}

static int delay_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    struct io_delay *d = (struct io_delay *)io;
    (void)e;
    for (;;) {
        int64_t now = progress_now_ns(), first = INT64_MAX;
        int n = 0;
        for (int i = 0; i < d->n && n < max;) {
            if (d->held[i].due_ns <= now) {
                out[n++] = d->held[i].r;
                d->held[i] = d->held[--d->n];
                continue;
            }
            first = d->held[i].due_ns < first ? d->held[i].due_ns : first;
            i++;
        }
        if (n || !wait || !d->n)
            return n;
        struct timespec t = { (first - now) / 1000000000, (first - now) % 1000000000 };
        nanosleep(&t, NULL);
    }
}

static int delay_stop(struct io *io)
{
    free(((struct io_delay *)io)->held);
    return 0;
}

static const struct io_backend io_delay_backend = {
    .name = "delay", .bytes = sizeof(struct io_delay), .start = delay_start, .submit = delay_submit,
    .reap = delay_reap, .stop = delay_stop,
};

#endif
