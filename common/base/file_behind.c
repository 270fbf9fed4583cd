/* Buffers go round: the owner fills one, threads write those that are full, the first in the file first. A buffer begins at its file
 * offset modulo the block size, so that blocks of the file are blocks of memory. */
#include "common/base/file_behind.h"

#include "common/base/ckmath.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, BUFFERS = 16, WRITERS = 2, BUFFER_BYTES = FILE_BEHIND_BYTES / BUFFERS };

enum state { EMPTY, FILLING, FULL, WRITING };

struct buffer {
    enum state state;           /* guarded by lock; what follows belongs to the owner while FILLING, to a writer while WRITING */
    uint8_t *mem;               /* [BUFFER_BYTES], aligned to BLOCK; data begins at offset % BLOCK */
    uint64_t offset;
    size_t len;
};

struct file_behind {
    const char *name;           /* constant */
    int fd;                     /* the file's own descriptor, through the page cache */
    int direct;                 /* another, round it; -1: there is none */
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct buffer b[BUFFERS];
    pthread_t thread[WRITERS];
    int n_threads, quit, failed; /* guarded by lock */
    struct err err;             /* of the first failure, once failed is set */
    struct buffer *filling;     /* owner */
};

/* any: at any number of bytes. 0, or errno. */
static int write_range(int fd, int any, const uint8_t *data, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        data += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
        if (!any && (size_t)n % BLOCK)
            return EINVAL;
    }
    return 0;
}

/* Through the page cache where a file system refuses direct writes when it sees one, or breaks one off within a block. */
static int write_blocks(const struct file_behind *b, const uint8_t *data, size_t len, uint64_t offset)
{
    int r = EINVAL;
    if (b->direct >= 0)
        r = write_range(b->direct, 0, data, len, offset);
    return r == EINVAL ? write_range(b->fd, 1, data, len, offset) : r;
}

static int write_buffer(const struct file_behind *b, const struct buffer *t)
{
    size_t lead = (size_t)(t->offset % BLOCK), head = lead ? BLOCK - lead : 0, len = t->len;
    const uint8_t *p = t->mem + lead;
    head = head < len ? head : len;
    size_t mid = (len - head) / BLOCK * BLOCK, tail = len - head - mid;
    int r = head ? write_range(b->fd, 1, p, head, t->offset) : 0;
    if (r == 0 && mid)
        r = write_blocks(b, p + head, mid, t->offset + head);
    if (r == 0 && tail)
        r = write_range(b->fd, 1, p + head + mid, tail, t->offset + head + mid);
    return r;
}

/* The first of them in the file. */
static struct buffer *in_state(struct file_behind *b, enum state s)
{
    struct buffer *t = NULL;
    for (int i = 0; i < BUFFERS; i++)
        if (b->b[i].state == s && (!t || b->b[i].offset < t->offset))
            t = &b->b[i];
    return t;
}

static void *writer(void *ctx)
{
    struct file_behind *b = ctx;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        struct buffer *t = in_state(b, FULL);
        if (!t && b->quit)
            break;
        if (!t) {
            pthread_cond_wait(&b->change, &b->lock);
            continue;
        }
        t->state = WRITING;
        int skip = b->failed || b->quit;
        pthread_mutex_unlock(&b->lock);
        int sys = skip ? 0 : write_buffer(b, t);
        pthread_mutex_lock(&b->lock);
        t->state = EMPTY;
        if (sys && !b->failed) {
            b->failed = 1;
            errno = sys;
            err_sys(&b->err, ERR_SYS, "writing '%s' at byte %llu", b->name, (unsigned long long)t->offset);
        }
        pthread_cond_broadcast(&b->change);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Threads block all signals, so that handlers run on those that expect them. */
static int start(struct file_behind *b, struct err *e)
{
    sigset_t all, old;
    int r = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; b->n_threads < WRITERS && r == 0; b->n_threads += r == 0)
        r = pthread_create(&b->thread[b->n_threads], NULL, writer, b);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = r;
    return r && !b->n_threads ? err_sys(e, ERR_SYS, "starting a thread that writes '%s'", b->name) : 0;
}

int file_behind_new(const struct file_out *o, struct file_behind **out, struct err *e)
{
    struct file_behind *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_NOMEM, "writing '%s'", o->path);
    b->name = o->tmp;
    b->fd = o->fd;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->change, NULL);
    b->direct = open(o->tmp, O_WRONLY | O_CLOEXEC | O_DIRECT);
    int r = 0;
    for (int i = 0; i < BUFFERS && r == 0; i++)
        if (!(b->b[i].mem = aligned_alloc(BLOCK, BUFFER_BYTES)))
            r = err_set(e, ERR_NOMEM, "%u bytes for writing '%s'", FILE_BEHIND_BYTES, o->path);
    if (r == 0)
        r = start(b, e);
    if (r < 0)
        file_behind_free(b);
    else
        *out = b;
    return r;
}

/* Under the lock. */
static int failure(const struct file_behind *b, struct err *e)
{
    if (!b->failed)
        return 0;
    *e = b->err;
    return e->code;
}

/* Under the lock: what is being filled is to be written. */
static void hand_over(struct file_behind *b)
{
    if (b->filling)
        b->filling->state = FULL;
    b->filling = NULL;
    pthread_cond_broadcast(&b->change);
}

static int begin(struct file_behind *b, uint64_t offset, struct err *e)
{
    struct buffer *t = NULL;
    pthread_mutex_lock(&b->lock);
    hand_over(b);
    while (!b->failed && !(t = in_state(b, EMPTY)))
        pthread_cond_wait(&b->change, &b->lock);
    int r = failure(b, e);
    if (r == 0) {
        t->state = FILLING;
        t->offset = offset;
        t->len = 0;
        b->filling = t;
    }
    pthread_mutex_unlock(&b->lock);
    return r;
}

int file_behind_write(struct file_behind *b, const void *data, size_t len, uint64_t offset, struct err *e)
{
    const uint8_t *p = data;
    if (!ck_range(offset, len, INT64_MAX))
        return err_set(e, ERR_LIMIT, "writing '%s': %zu bytes at %llu are beyond the largest file", b->name, len,
                       (unsigned long long)offset);
    while (len > 0) {
        struct buffer *t = b->filling;
        size_t lead = t ? (size_t)(t->offset % BLOCK) : 0;
        if (!t || t->offset + t->len != offset || lead + t->len == BUFFER_BYTES) {
            int r = begin(b, offset, e);
            if (r < 0)
                return r;
            continue;
        }
        size_t room = BUFFER_BYTES - lead - t->len, n = len < room ? len : room;
        memcpy(t->mem + lead + t->len, p, n);
        t->len += n;
        p += n;
        len -= n;
        offset += n;
    }
    return 0;
}

int file_behind_flush(struct file_behind *b, struct err *e)
{
    pthread_mutex_lock(&b->lock);
    hand_over(b);
    while (in_state(b, FULL) || in_state(b, WRITING))
        pthread_cond_wait(&b->change, &b->lock);
    int r = failure(b, e);
    pthread_mutex_unlock(&b->lock);
    return r;
}

void file_behind_free(struct file_behind *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->quit = 1;
    pthread_cond_broadcast(&b->change);
    pthread_mutex_unlock(&b->lock);
    for (int i = 0; i < b->n_threads; i++)
        pthread_join(b->thread[i], NULL);
    if (b->direct >= 0)
        close(b->direct);
    for (int i = 0; i < BUFFERS; i++)
        free(b->b[i].mem);
    pthread_cond_destroy(&b->change);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
