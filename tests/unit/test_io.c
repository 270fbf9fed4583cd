/* Every backend gives the file's bytes, whole, in the face of short reads, EINTR, EIO and a file that
 * is cut while it is read. */
#include "common/base/file.h"
#include "common/base/progress.h"
#include "runtime/io/io.h"
#include "tests/io_delay.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096u
#define FILE_BLOCKS 512u
#define DEPTH 8
#define BUF (16 * BLOCK)

static char path[256];
static uint8_t *region;
static uint32_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static uint8_t byte_at(uint64_t off)
{
    return (uint8_t)(off * 2654435761u >> 13 ^ off / BLOCK);
}

static void make_file(void)
{
    test_path(path, sizeof path, "thermo-io-XXXXXX");
    int fd = mkstemp(path);
    static uint8_t block[BLOCK];
    for (uint32_t b = 0; b < FILE_BLOCKS; b++) {
        for (uint32_t i = 0; i < BLOCK; i++)
            block[i] = byte_at((uint64_t)b * BLOCK + i);
        if (write(fd, block, BLOCK) != BLOCK)
            abort();
    }
    close(fd);
}

static struct io_config config(int direct)
{
    io_delay_max_us = 300, io_delay_seed = 7;
    return (struct io_config){ .path = path, .region = region, .region_bytes = (size_t)DEPTH * BUF, .align = BLOCK,
                               .queue_depth = DEPTH, .lanes = 2, .want_direct = direct };
}

static int bytes_right(const struct io_request *r)
{
    for (uint32_t i = 0; i < r->len; i++)
        if (r->buf[i] != byte_at(r->offset + i))
            return 0;
    return 1;
}

/* Keep DEPTH reads of random places and sizes in flight until n are done. Returns how many failed; -1: wrong bytes. */
static int read_many(struct io *io, int n, struct err *e)
{
    struct io_request req[DEPTH], *done[DEPTH];
    int idle[DEPTH], n_idle = DEPTH, started = 0, finished = 0, failed = 0;
    for (int i = 0; i < DEPTH; i++)
        idle[i] = i;
    while (finished < n) {
        struct io_request *batch[DEPTH];
        int k = 0;
        while (n_idle && started < n) {
            int i = idle[--n_idle];
            uint32_t blocks = 1 + rnd(BUF / BLOCK);
            req[i] = (struct io_request){ .offset = (uint64_t)rnd(FILE_BLOCKS - blocks + 1) * BLOCK,
                                          .len = blocks * BLOCK,
                                          .buf = region + (size_t)i * BUF,
                                          .tag = (uint32_t)i };
            memset(req[i].buf, 0xee, BUF);
            batch[k++] = &req[i];
            started++;
        }
        if (io_submit(io, batch, k, e) < 0)
            return -2;
        int got = io_reap(io, done, DEPTH, 1, e);
        if (got < 0)
            return -2;
        for (int i = 0; i < got; i++) {
            if (done[i]->result < 0) {
                failed++;
                io_failed(io, done[i], e);
            } else if (!bytes_right(done[i])) {
                return -1;
            }
            idle[n_idle++] = (int)done[i]->tag;
            finished++;
        }
    }
    return failed;
}

struct faults {
    int calls, fail_at, err; /* fail_at < 0: none */
    int hurt;                /* short reads and EINTR */
};

/* The pread lanes call this from their threads. */
static int inject(void *ctx, const struct io_request *r, int result)
{
    struct faults *f = ctx;
    int call = __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED);
    (void)r;
    if (call == f->fail_at)
        return -f->err;
    if (!f->hurt || result <= 0)
        return result;
    if (call % 3 == 0)
        return -EINTR;
    if (call % 5 == 0)
        return -EAGAIN;
    return call % 2 && result > (int)BLOCK ? result / 2 + 100 : result; /* not a whole number of blocks */
}

static void test_backend(const struct io_backend *b, int direct)
{
    struct err e = { 0 };
    struct io *io = NULL;
    struct io_config c = config(direct);
    int r = io_open_backend(b, &c, &io, &e);
    if (r == ERR_UNSUPPORTED) {
        printf("# %s: %s\n", b->name, e.msg);
        return;
    }
    CHECK_MSG(r == 0, "%s: %s", b->name, e.msg);
    if (r < 0)
        return;
    printf("# %s direct %d note '%s'\n", b->name, io->direct, io->note);
    CHECK(read_many(io, 300, &e) == 0);
    CHECK(io->reads == 300 && io->in_flight == 0);
    struct io_request *none;
    CHECK(io_reap(io, &none, 1, 1, &e) == 0); /* nothing in flight: does not block */
    io_close(io);

    struct faults f = { .fail_at = -1, .hurt = 1 };
    c.fault = inject;
    c.fault_ctx = &f;
    CHECK(io_open_backend(b, &c, &io, &e) == 0);
    CHECK(read_many(io, 200, &e) == 0); /* short, interrupted, continued: still the file's bytes */
    CHECK(f.calls > 300);
    io_close(io);

    for (int at = 1; at <= 40; at += 13) {
        f = (struct faults){ .fail_at = at, .err = EIO };
        CHECK(io_open_backend(b, &c, &io, &e) == 0);
        CHECK(read_many(io, 60, &e) == 1);
        CHECK(e.code == ERR_IO && e.sys == EIO && strstr(e.msg, path));
        io_close(io);
    }
}

/* Close with reads in flight: no write may land in the region afterwards (ASan and TSan would see it). */
static void test_close_in_flight(const struct io_backend *b)
{
    struct err e;
    struct io *io;
    struct io_config c = config(1);
    struct io_request req[DEPTH], *batch[DEPTH];
    if (io_open_backend(b, &c, &io, &e) < 0)
        return;
    for (int i = 0; i < DEPTH; i++) {
        req[i] = (struct io_request){ .offset = (uint64_t)i * BUF, .len = BUF, .buf = region + (size_t)i * BUF };
        batch[i] = &req[i];
    }
    CHECK(io_submit(io, batch, DEPTH, &e) == 0);
    io_close(io);
    memset(region, 0, (size_t)DEPTH * BUF);
}

static void test_cut(const struct io_backend *b, int direct)
{
    struct err e = { 0 };
    struct io *io;
    struct io_config c = config(direct);
    if (io_open_backend(b, &c, &io, &e) < 0)
        return;
    if (truncate(path, (off_t)(FILE_BLOCKS / 2 * BLOCK + 1000)) < 0)
        abort();
    CHECK(read_many(io, 100, &e) > 0);
    CHECK_MSG(e.code == ERR_IO && strstr(e.msg, "cut or replaced"), "%s", e.msg);
    io_close(io);
    unlink(path);
    make_file();
}

/* ---- storage that does not answer ---- */

struct stuck {
    int err;                 /* of every read, or of every submission; 0: none */
    sem_t *go;               /* reads wait for it */
};

static int stuck_read(void *ctx, const struct io_request *r, int result)
{
    struct stuck *s = ctx;
    (void)r;
    if (s->go)
        while (sem_wait(s->go) < 0)
            ;
    return s->err ? -s->err : result;
}

static int stuck_submit(void *ctx)
{
    return -((struct stuck *)ctx)->err;
}

static int open_stuck(const struct io_backend *b, struct io_config *c, struct stuck *s, struct io **io)
{
    struct err e;
    c->fault_ctx = s;
    c->retry_ms = 200;
    int r = io_open_backend(b, c, io, &e);
    if (r < 0)
        printf("# %s: %s\n", b->name, e.msg);
    return r;
}

/* Reads that are to be tried again for ever, and submissions: ended, with a story, and closing does not hang either. */
static void test_tried_for_ever(const struct io_backend *b, int err)
{
    struct err e = { 0 };
    struct io *io;
    struct io_config c = config(1);
    struct stuck s = { .err = err };
    struct io_request r = { .len = BLOCK, .buf = region }, *batch[1] = { &r }, *done[1];
    c.fault = stuck_read;
    if (open_stuck(b, &c, &s, &io) < 0)
        return;
    CHECK(io_submit(io, batch, 1, &e) == 0 && io_reap(io, done, 1, 1, &e) == 1 && r.result == -err);
    CHECK_MSG(io_failed(io, &r, &e) == ERR_IO && e.sys == err && strstr(e.msg, path), "%s: %s", b->name, e.msg);
    CHECK(io_close(io) == 0);
    if (b != &io_uring_backend)
        return;
    c.fault = NULL;
    c.fault_submit = stuck_submit;
    CHECK(open_stuck(b, &c, &s, &io) == 0);
    CHECK_MSG(io_submit(io, batch, 1, &e) == ERR_IO && strstr(e.msg, path), "%s", e.msg);
    io->config.silence_ms = 1 << 30; /* who drains the rest does not wait for what was never submitted */
    CHECK_MSG(io_reap(io, done, 1, 1, &e) == ERR_IO && strstr(e.msg, path), "%s", e.msg);
    CHECK(io_close(io) == 0);
    s.err = ENXIO; /* not to be tried again */
    CHECK(open_stuck(b, &c, &s, &io) == 0);
    CHECK(io_submit(io, batch, 1, &e) == ERR_IO && e.sys == ENXIO);
    CHECK(io_close(io) == 0);
}

/* A read that never comes back: waiting ends with `want` (for silence, longer than a cancellation takes), and closing leaves it
 * to the kernel. */
static void test_never(const struct io_backend *b, const struct cancel *cancel, int want)
{
    static struct left { /* what such a read may still touch, of each call */
        struct io *io;
        struct io_config c;
        struct io_request r;
        struct stuck s;
        sem_t go;
        _Alignas(BLOCK) uint8_t region[2 * BLOCK];
    } all_left[6], *left = all_left;
    while (left->c.path)
        left++;
    struct err e = { 0 };
    struct io *io;
    struct io_config c = config(0);
    struct io_request *batch[1] = { &left->r }, *done[1];
    char fifo[300];
    int fd = -1;
    sem_init(&left->go, 0, 0);
    left->s = (struct stuck){ .go = &left->go };
    left->r = (struct io_request){ .len = BLOCK, .buf = left->region };
    c.cancel = cancel;
    c.region = left->region;
    c.region_bytes = sizeof left->region;
    snprintf(fifo, sizeof fifo, "%s.fifo", path);
    if (b == &io_uring_backend) { /* nobody writes to it */
        if (mkfifo(fifo, 0600) < 0 || (fd = open(fifo, O_RDWR | O_CLOEXEC)) < 0)
            abort();
        c.path = fifo;
    } else {
        c.fault = stuck_read;
    }
    left->c = c;
    if (open_stuck(b, &c, &left->s, &io) == 0) {
        left->io = io;
        io->config.silence_ms = want == ERR_INTR ? 1 << 30 : IO_HURRY_MS + 200;
        CHECK(io_submit(io, batch, 1, &e) == 0);
        CHECK_MSG(io_reap(io, done, 1, 1, &e) == want && strstr(e.msg, c.path), "%s: %s", b->name, e.msg);
        CHECK(io_close(io) == 1);
    }
    sem_post(&left->go); /* the lane finds nobody left, and ends */
    if (fd >= 0)
        close(fd);
    unlink(fifo);
}

static void test_choice(void)
{
    struct err e;
    struct io *io;
    struct io_config c = config(1);
    CHECK(io_open(PLAN_IO_AUTO, &c, &io, &e) == 0);
    CHECK(io->backend == &io_uring_backend || strstr(io->note, "io_uring"));
    io_close(io);
    CHECK(io_open(PLAN_IO_PREAD, &c, &io, &e) == 0 && io->backend == &io_pread_backend);
    io_close(io);
    c.path = "/nonexistent/model";
    CHECK(io_open(PLAN_IO_AUTO, &c, &io, &e) == ERR_INPUT && strstr(e.msg, "/nonexistent/model"));
    c.path = "/proc/self/status"; /* no O_DIRECT there */
    CHECK(io_open(PLAN_IO_PREAD, &c, &io, &e) == 0 && !io->direct && io->note[0]);
    io_close(io);
}

int main(void)
{
    const struct io_backend *const all[] = { &io_pread_backend, &io_uring_backend, &io_delay_backend };
    region = aligned_alloc(BLOCK, (size_t)DEPTH * BUF);
    make_file();
    for (int i = 0; i < 3; i++)
        for (int direct = 0; direct < 2; direct++) {
            test_backend(all[i], direct);
            test_cut(all[i], direct);
        }
    for (int i = 0; i < 3; i++)
        test_close_in_flight(all[i]);
    test_choice();
    alarm(120);
    for (int i = 0; i < 2; i++) {
        test_tried_for_ever(all[i], EAGAIN);
        test_tried_for_ever(all[i], EINTR);
        test_never(all[i], NULL, ERR_IO);
    }
    struct cancel one = { 0 }, other = { 0 };
    const struct cancel *signals = file_catch_interrupt();
    CHECK(!cancel_asked(signals) && !file_interrupted());
    raise(SIGINT);
    CHECK(cancel_asked(signals) && file_interrupted());
    CHECK(!cancel_ask(&one) && cancel_ask(&one) && cancel_asked(&one) && !cancel_asked(&other) && !cancel_asked(NULL));
    for (int i = 0; i < 2; i++) {
        test_never(all[i], &one, ERR_INTR);
        test_never(all[i], &other, ERR_IO); /* nor does a signal end it: its token is another */
    }
    unlink(path);
    free(region);
    return test_done();
}
