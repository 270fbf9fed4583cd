/* What the backends share: opening the file, proving that O_DIRECT gives its bytes, and the
 * arithmetic of short reads. O_DIRECT is verified because some file systems (FUSE on phones) accept
 * the flag and then return stale or wrong data: a few blocks across the file are read both ways and
 * compared. Without it reads go through the page cache and drop their pages behind them, and the
 * caller is told, because a memory ceiling can then not be claimed. */
#include "runtime/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROBES 9

/* Read len bytes whole through fd, or -1. */
static int read_whole(int fd, uint8_t *buf, size_t len, uint64_t offset)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, buf + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
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

int io_submit(struct io *io, struct io_request *const *r, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        r[i]->done = 0;
        r[i]->result = 0;
        io->reads++;
        io->bytes += r[i]->len;
    }
    io->in_flight += n;
    return n ? io->backend->submit(io, r, n, e) : 0;
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

void io_close(struct io *io)
{
    if (!io)
        return;
    io->backend->stop(io);
    if (io->fd >= 0)
        close(io->fd);
    free(io);
}

int io_advance(struct io *io, struct io_request *r, int n)
{
    if (io->config.fault)
        n = io->config.fault(io->config.fault_ctx, r, n);
    if (n == -EINTR || n == -EAGAIN)
        return 0;
    if (n < 0) {
        r->result = n;
        return 1;
    }
    if (n == 0) {
        r->result = IO_ENDED;
        return 1;
    }
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
    errno = -r->result;
    return err_sys(e, ERR_IO, "reading '%s' at byte %llu, %u bytes", io->config.path, (unsigned long long)r->offset,
                   r->len);
}
