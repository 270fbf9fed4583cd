/* io_uring through liburing, its sole user. The kernel is the I/O lane: the coordinator submits a
 * batch with one system call and looks for completions without any where none are due. File and buffers are registered
 * where the kernel and the limits allow. Left out with NO_URING (a filtered system call kills an
 * Android app instead of failing); elsewhere probed at start. */
#include "runtime/io.h"

#ifdef NO_URING

static int uring_start(struct io *io, struct err *e)
{
    (void)io;
    return err_set(e, ERR_UNSUPPORTED, "io_uring is not in this build");
}

static int uring_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    (void)io, (void)r, (void)n;
    return err_set(e, ERR_UNSUPPORTED, "io_uring is not in this build");
}

static int uring_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    (void)io, (void)out, (void)max, (void)wait;
    return err_set(e, ERR_UNSUPPORTED, "io_uring is not in this build");
}

static void uring_stop(struct io *io)
{
    (void)io;
}

struct io_uring_io {
    struct io io;
};

#else

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>

struct io_uring_io {
    struct io io;
    struct io_uring ring;
    int ring_ready, fixed_file, fixed_buffers;
};

static int uring_start(struct io *io, struct err *e)
{
    struct io_uring_io *u = (struct io_uring_io *)io;
    /* What has completed is taken in when it is asked for, by the thread that asks: the kernel need not interrupt it. */
    unsigned depth = (unsigned)io->config.queue_depth;
    int r = io_uring_queue_init(depth, &u->ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (r == -EINVAL) /* Linux before 5.19 */
        r = io_uring_queue_init(depth, &u->ring, 0);
    if (r < 0)
        return err_set(e, ERR_UNSUPPORTED, "io_uring is not available (%s)", strerror(-r));
    u->ring_ready = 1;
    u->fixed_file = io_uring_register_files(&u->ring, &io->fd, 1) == 0;
    struct iovec v = { io->config.region, io->config.region_bytes };
    r = io_uring_register_buffers(&u->ring, &v, 1);
    u->fixed_buffers = r == 0;
    if (r < 0 && !io->note[0])
        snprintf(io->note, sizeof io->note, "read buffers are not registered (%s)", strerror(-r));
    return 0;
}

/* The ring has queue_depth entries or more and no more requests are in flight, so there is always one. */
static void prepare(struct io_uring_io *u, struct io_request *r)
{
    struct io_uring_sqe *q = io_uring_get_sqe(&u->ring);
    int fd = u->fixed_file ? 0 : u->io.fd;
    uint8_t *buf = r->buf + r->done;
    unsigned len = r->len - r->done;
    if (u->fixed_buffers)
        io_uring_prep_read_fixed(q, fd, buf, len, r->offset + r->done, 0);
    else
        io_uring_prep_read(q, fd, buf, len, r->offset + r->done);
    if (u->fixed_file)
        q->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(q, r);
}

static int flush(struct io_uring_io *u, struct err *e)
{
    while (io_uring_sq_ready(&u->ring) > 0) {
        int r = io_uring_submit(&u->ring);
        if (r == -EINTR || r == -EAGAIN || r == -EBUSY)
            continue;
        if (r < 0) {
            errno = -r;
            return err_sys(e, ERR_IO, "io_uring_submit for '%s'", u->io.config.path);
        }
    }
    return 0;
}

static int uring_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    struct io_uring_io *u = (struct io_uring_io *)io;
    for (int i = 0; i < n; i++)
        prepare(u, r[i]);
    return flush(u, e);
}

static int uring_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    struct io_uring_io *u = (struct io_uring_io *)io;
    struct io_uring_cqe *c;
    int n = 0, r;
    while (n < max) {
        r = io_uring_peek_cqe(&u->ring, &c);
        if (r == -EAGAIN && wait && n == 0)
            r = io_uring_wait_cqe(&u->ring, &c);
        if (r == -EINTR)
            continue;
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            errno = -r;
            return err_sys(e, ERR_IO, "waiting for reads of '%s'", io->config.path);
        }
        struct io_request *q = io_uring_cqe_get_data(c);
        int res = c->res;
        io_uring_cqe_seen(&u->ring, c);
        if (io_advance(io, q, res)) {
            out[n++] = q;
        } else {
            prepare(u, q);
            if ((r = flush(u, e)) < 0)
                return r;
        }
    }
    return n;
}

/* Reads in flight write into the caller's buffers: wait for them. */
static void uring_stop(struct io *io)
{
    struct io_uring_io *u = (struct io_uring_io *)io;
    if (!u->ring_ready)
        return;
    for (struct io_uring_cqe *c; io->in_flight > 0;) {
        int r = io_uring_wait_cqe(&u->ring, &c);
        if (r == -EINTR)
            continue;
        if (r < 0)
            break;
        io_uring_cqe_seen(&u->ring, c);
        io->in_flight--;
    }
    io_uring_queue_exit(&u->ring);
}

#endif

const struct io_backend io_uring_backend = {
    .name = "io_uring", .bytes = sizeof(struct io_uring_io), .start = uring_start, .submit = uring_submit,
    .reap = uring_reap, .stop = uring_stop,
};
