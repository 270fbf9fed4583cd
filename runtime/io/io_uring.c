/* io_uring through liburing, its sole user. The kernel is the I/O lane: the coordinator submits a
 * batch with one system call and looks for completions without any where none are due. File and buffers are registered
 * where the kernel and the limits allow. Left out with NO_URING (a filtered system call kills an
 * Android app instead of failing); elsewhere probed at start. */
#include "runtime/io/io.h"

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

static int uring_stop(struct io *io)
{
    (void)io;
    return 0;
}

struct io_uring_io {
    struct io io;
};

#else

#include "common/base/progress.h"
#include "common/base/uring.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
    if (!uring_may_be_tried())
        return err_set(e, ERR_UNSUPPORTED, "io_uring is forbidden here: a filter kills who calls it");
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

static int in_region(const struct io_config *c, const uint8_t *buf, unsigned len)
{
    return buf >= c->region && (size_t)(buf - c->region) <= c->region_bytes && len <= c->region_bytes - (size_t)(buf - c->region);
}

/* The ring has queue_depth entries or more and no more requests are in flight, so there is always one. */
static void prepare(struct io_uring_io *u, struct io_request *r)
{
    struct io_uring_sqe *q = io_uring_get_sqe(&u->ring);
    int fd = u->fixed_file ? 0 : u->io.fd;
    uint8_t *buf = r->buf + r->done;
    unsigned len = r->len - r->done;
    if (u->fixed_buffers && in_region(&u->io.config, buf, len))
        io_uring_prep_read_fixed(q, fd, buf, len, r->offset + r->done, 0);
    else
        io_uring_prep_read(q, fd, buf, len, r->offset + r->done);
    if (u->fixed_file)
        q->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(q, r);
}

static int submit_once(struct io_uring_io *u)
{
    const struct io_config *c = &u->io.config;
    int r = c->fault_submit ? c->fault_submit(c->fault_ctx) : 0;
    return r < 0 ? r : io_uring_submit(&u->ring);
}

/* What the kernel refuses for the moment is tried again, at full speed first, then every millisecond. */
static int flush(struct io_uring_io *u, struct err *e)
{
    struct io_patience patience = { 0, 0 };
    for (int tries = 0; io_uring_sq_ready(&u->ring) > 0; tries++) {
        int r = submit_once(u);
        if (r >= 0) {
            tries = r > 0 ? 0 : tries;
        } else if (r != -EINTR && r != -EAGAIN && r != -EBUSY) {
            errno = -r;
            return err_sys(e, ERR_IO, "io_uring_submit for '%s'", u->io.config.path);
        }
        if (!tries || tries == 1)
            patience = io_patience(&u->io, 1);
        if (tries < 100)
            continue;
        struct timespec t = { 0, 1000000 };
        nanosleep(&t, NULL);
        if ((r = io_impatient(&u->io, &patience, "io_uring takes no reads", e)) < 0)
            return r;
    }
    return 0;
}

/* For a completion, for a moment: 0, -ETIME or another -errno. Kernels before 5.11 have no such wait, but for polling. */
static int wait_a_moment(struct io_uring_io *u, struct io_uring_cqe **c)
{
    if (u->ring.features & IORING_FEAT_EXT_ARG) {
        struct __kernel_timespec t = { 0, IO_LOOK_MS * 1000000 };
        return io_uring_wait_cqe_timeout(&u->ring, c, &t);
    }
    struct pollfd f = { .fd = u->ring.ring_fd, .events = POLLIN };
    int r = poll(&f, 1, IO_LOOK_MS);
    return r > 0 ? io_uring_peek_cqe(&u->ring, c) : r < 0 ? -errno : -ETIME;
}

static int is_for_later(int r)
{
    return r == -ETIME || r == -EINTR || r == -EAGAIN;
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
    struct io_patience patience = { 0, 0 };
    struct io_uring_cqe *c;
    int n = 0, r;
    while (n < max) {
        r = io_uring_peek_cqe(&u->ring, &c);
        if (is_for_later(r) && (!wait || n > 0))
            break;
        if (is_for_later(r)) {
            patience = patience.limit_ns ? patience : io_patience(io, 0);
            r = wait_a_moment(u, &c);
        }
        if (is_for_later(r)) {
            if ((r = io_impatient(io, &patience, "no read has come back", e)) < 0)
                return r;
            continue;
        }
        if (r < 0) {
            errno = -r;
            return err_sys(e, ERR_IO, "waiting for reads of '%s'", io->config.path);
        }
        patience.limit_ns = 0;
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

/* Reads in flight write into the caller's buffers: wait for them. Those that were never submitted are not in flight. */
static int uring_stop(struct io *io)
{
    struct io_uring_io *u = (struct io_uring_io *)io;
    struct err ignored;
    if (!u->ring_ready)
        return 0;
    struct io_patience patience = io_patience(io, 0);
    patience.limit_ns = IO_HURRY_MS * (int64_t)1000000;
    for (struct io_uring_cqe *c; io->in_flight > (int)io_uring_sq_ready(&u->ring);) {
        int r = wait_a_moment(u, &c);
        if (is_for_later(r) && io_impatient(io, &patience, "", &ignored) == 0)
            continue;
        if (r < 0)
            return 1;
        io_uring_cqe_seen(&u->ring, c);
        io->in_flight--;
        patience.start_ns = progress_now_ns();
    }
    io_uring_queue_exit(&u->ring);
    return 0;
}

#endif

const struct io_backend io_uring_backend = {
    .name = "io_uring", .bytes = sizeof(struct io_uring_io), .start = uring_start, .submit = uring_submit,
    .reap = uring_reap, .stop = uring_stop,
};
