/* What the backends share: opening the file, proving that O_DIRECT gives its bytes, and the
 * arithmetic of short reads. O_DIRECT is verified because some file systems (FUSE on phones) accept
 * the flag and then return stale or wrong data: a few blocks across the file are read both ways and
 * compared. Without it reads go through the page cache and drop their pages behind them, and the
 * caller is told, because a memory ceiling can then not be claimed. */
#include "runtime/io/io.h"

#include "common/base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROBES 9

/* Read len bytes whole through fd, or -1. */
static int read_whole(int fd, uint8_t *buf, size_t len, uint64_t offset)
{
    size_t done = 0;
    for (int tries = 0; done < len;) {
        ssize_t n = pread(fd, buf + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR && ++tries < 1000)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

/* Blocks from the first to the last whole one, read both ways into the caller's region. */
static int direct_agrees(int direct, int buffered, const struct io_config *c, uint64_t file_bytes)
{
    uint64_t align = c->align, blocks = file_bytes / align;
    if (c->region_bytes < 2 * align)
        return 0;
    for (uint64_t i = 0; i < PROBES && blocks; i++) {
        uint64_t at = (blocks - 1) * i / (PROBES - 1) * align;
        uint8_t *a = c->region, *b = c->region + align;
        memset(a, 0x55, align);
        memset(b, 0xaa, align);
        if (read_whole(direct, a, align, at) < 0 || read_whole(buffered, b, align, at) < 0 || memcmp(a, b, align))
            return 0;
    }
    posix_fadvise(buffered, 0, 0, POSIX_FADV_DONTNEED);
    return 1;
}

static void open_direct(struct io *io)
{
    const struct io_config *c = &io->config;
    if (!c->want_direct)
        return;
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0 && direct_agrees(fd, io->fd, c, io->file_bytes)) {
        close(io->fd);
        io->fd = fd;
        io->direct = 1;
        return;
    }
    snprintf(io->note, sizeof io->note, "O_DIRECT %s here: reads go through the page cache",
             fd < 0 ? "is refused" : "does not return the file's bytes");
    if (fd >= 0)
        close(fd);
}

static int open_file(struct io *io, struct err *e)
{
    struct stat st;
    io->fd = open(io->config.path, O_RDONLY | O_CLOEXEC);
    if (io->fd < 0 || fstat(io->fd, &st) < 0)
        return err_sys(e, ERR_INPUT, "cannot open '%s'", io->config.path);
    io->file_bytes = (uint64_t)st.st_size;
    open_direct(io);
    return 0;
}

int io_open_backend(const struct io_backend *b, const struct io_config *c, struct io **out, struct err *e)
{
    struct io *io = calloc(1, b->bytes);
    if (!io)
        return err_set(e, ERR_NOMEM, "out of memory opening '%s'", c->path);
    io->backend = b;
    io->config = *c;
    io->cancel = c->cancel;
    io->fd = -1;
    int r;
    if ((r = open_file(io, e)) < 0 || (r = b->start(io, e)) < 0) {
        io_close(io);
        return r;
    }
    *out = io;
    return 0;
}

int io_open(enum plan_io want, const struct io_config *c, struct io **out, struct err *e)
{
    if (want == PLAN_IO_PREAD)
        return io_open_backend(&io_pread_backend, c, out, e);
    int r = io_open_backend(&io_uring_backend, c, out, e);
    if (r != ERR_UNSUPPORTED)
        return r;
    char why[sizeof e->msg];
    snprintf(why, sizeof why, "%s", e->msg);
    r = io_open_backend(&io_pread_backend, c, out, e);
    if (r == 0) {
        size_t n = strlen((*out)->note);
        snprintf((*out)->note + n, sizeof(*out)->note - n, "%s%.100s: pread is used", n ? "; " : "", why);
    }
    return r;
}

void io_watch(struct io *io, const struct cancel *cancel)
{
    io->cancel = cancel;
}

int io_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        r[i]->done = 0;
        r[i]->result = 0;
        r[i]->stuck_ns = 0;
        io->reads++;
        io->bytes += r[i]->len;
    }
    io->in_flight += n;
    int failed = n ? io->backend->submit(io, r, n, e) : 0;
    if (failed < 0)
        io->gave_up = 1; /* some of these will never come back */
    return failed;
}

int io_reap(struct io *io, struct io_request **out, int max, int wait, struct err *e)
{
    if (!io->in_flight)
        return 0;
    int n = io->backend->reap(io, out, max, wait, e);
    if (n > 0)
        io->in_flight -= n;
    for (int i = 0; i < n && !io->direct; i++)
        posix_fadvise(io->fd, (off_t)out[i]->offset, out[i]->len, POSIX_FADV_DONTNEED);
    return n;
}

int io_close(struct io *io)
{
    if (!io)
        return 0;
    if (io->backend->stop(io))
        return 1;
    if (io->fd >= 0)
        close(io->fd);
    free(io);
    return 0;
}

struct io_patience io_patience(const struct io *io, int retry)
{
    int ms = retry ? io->config.retry_ms : io->config.silence_ms;
    ms = io->gave_up ? IO_HURRY_MS : ms ? ms : retry ? IO_RETRY_MS : IO_SILENCE_MS;
    return (struct io_patience){ progress_now_ns(), ms * (int64_t)1000000 };
}

int io_impatient(struct io *io, const struct io_patience *p, const char *what, struct err *e)
{
    int64_t ns = progress_now_ns() - p->start_ns;
    int interrupted = cancel_asked(io->cancel) && ns >= IO_HURRY_MS * (int64_t)1000000;
    if (!interrupted && ns < p->limit_ns)
        return 0;
    io->gave_up = 1;
    if (interrupted)
        return err_set(e, ERR_INTR, "interrupted while '%s' was read", io->config.path);
    return err_set(e, ERR_IO, "'%s': %s for %.3g s, %d reads in flight: the storage does not answer", io->config.path, what,
                   (double)ns / 1e9, io->in_flight);
}

/* A read that made no progress: is it to be tried again? */
static int try_again(const struct io *io, struct io_request *r)
{
    int64_t limit = (io->config.retry_ms ? io->config.retry_ms : IO_RETRY_MS) * (int64_t)1000000, now = progress_now_ns();
    if (!r->stuck_ns) {
        r->stuck_ns = now;
        return 1;
    }
    int hurry = io->backend->threads ? io->gave_up : cancel_asked(io->cancel);
    if (now - r->stuck_ns >= limit || (hurry && now - r->stuck_ns >= IO_HURRY_MS * (int64_t)1000000))
        return 0;
    if (now - r->stuck_ns > 1000000) { /* not for as long as this lasts at full speed */
        struct timespec t = { 0, 1000000 };
        nanosleep(&t, NULL);
    }
    return 1;
}

int io_advance(struct io *io, struct io_request *r, int n)
{
    if (io->config.fault)
        n = io->config.fault(io->config.fault_ctx, r, n);
    if ((n == -EINTR || n == -EAGAIN) && try_again(io, r))
        return 0;
    if (n < 0) {
        r->result = n;
        return 1;
    }
    if (n == 0) {
        r->result = IO_ENDED;
        return 1;
    }
    r->stuck_ns = 0;
    r->done += (uint32_t)n < r->len - r->done ? (uint32_t)n : r->len - r->done;
    if (r->done == r->len)
        return 1;
    /* The next direct read must begin on a block again. Less than one block more: it was cut, or read again. */
    if (io->direct) {
        struct stat st;
        uint32_t before = r->done - (uint32_t)n;
        r->done = r->done / io->config.align * io->config.align;
        if (r->done <= before && (fstat(io->fd, &st) < 0 || (uint64_t)st.st_size < r->offset + r->len)) {
            r->result = IO_ENDED;
            return 1;
        }
    }
    return 0;
}

int io_failed(const struct io *io, const struct io_request *r, struct err *e)
{
    if (r->result == IO_ENDED)
        return err_set(e, ERR_IO,
                       "'%s' ended at or before byte %llu while it was read (it had %llu bytes): it was cut or "
                       "replaced",
                       io->config.path, (unsigned long long)(r->offset + r->len), (unsigned long long)io->file_bytes);
    if (r->stuck_ns && cancel_asked(io->cancel))
        return err_set(e, ERR_INTR, "interrupted while '%s' was read", io->config.path);
    errno = -r->result;
    return err_sys(e, ERR_IO, "reading '%s' at byte %llu, %u bytes", io->config.path, (unsigned long long)r->offset,
                   r->len);
}
