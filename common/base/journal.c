/* Format: 32 bytes of head (magic, version, config hash), then records: head (mark, first, n, bytes),
 * payload, tail (XXH3-64 of head and payload, mark). A record's head and payload are written first; the
 * tail goes out after an fsync of them and is synced itself, so a tail on disk proves its record. The
 * hash guards against disks that do not keep that promise.
 *
 * A name leads where somebody else may have put it: what is opened is looked at, and again under the lock, when the name may be gone. */
#include "common/base/journal.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MARK 0x4b4e484331544854ull
#define TAIL_MARK 0x454e4f4431544854ull

enum { VERSION = 1 };

struct file_head {
    char magic[8];
    uint32_t version, reserved;
    struct hash128 config;
};
struct head {
    uint64_t mark, first, n, bytes;
};
struct tail {
    uint64_t hash, mark;
};

struct journal {
    int fd;
    char *path;
    uint64_t end, cut;          /* after the last whole record; bytes that were cut off behind it */
    struct journal_record *records;
    size_t n, cap;
    struct head open;           /* the record being written */
    uint64_t written;
    struct hash *hash;
};

static int put(struct journal *j, const void *data, size_t len, uint64_t at, struct err *e)
{
    const char *p = data;
    while (len) {
        ssize_t k = pwrite(j->fd, p, len, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(e, ERR_IO, "writing '%s'", j->path);
        p += k, at += (uint64_t)k, len -= (size_t)k;
    }
    return 0;
}

static int get(struct journal *j, void *buf, size_t len, uint64_t at, struct err *e)
{
    char *p = buf;
    while (len) {
        ssize_t k = pread(j->fd, p, len, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, ERR_IO, "reading '%s'", j->path);
        if (k == 0)
            return err_set(e, ERR_FORMAT, "'%s' ends at byte %llu", j->path, (unsigned long long)at);
        p += k, at += (uint64_t)k, len -= (size_t)k;
    }
    return 0;
}

static int remember(struct journal *j, struct journal_record r, struct err *e)
{
    if (j->n == j->cap) {
        size_t cap = j->cap ? j->cap * 2 : 16;
        struct journal_record *p = realloc(j->records, cap * sizeof *p);
        if (!p)
            return err_set(e, ERR_NOMEM, "'%s'", j->path);
        j->records = p, j->cap = cap;
    }
    j->records[j->n++] = r;
    j->end = r.offset + r.bytes + sizeof(struct tail);
    return 0;
}

/* stops: when the process is asked to. What is written then is to be finished. */
static int record_hash(struct journal *j, const struct head *head, const struct journal_record *r, int stops, uint64_t *out,
                       struct err *e)
{
    enum { PIECE = 1 << 20 };
    struct hash *h = hash_new();
    char *buf = malloc(PIECE);
    int err = h && buf ? 0 : err_set(e, ERR_NOMEM, "'%s'", j->path);
    if (!err)
        hash_update(h, head, sizeof *head);
    for (uint64_t at = 0; at < r->bytes && !err;) {
        size_t n = r->bytes - at < PIECE ? (size_t)(r->bytes - at) : PIECE;
        if ((err = stops ? file_go_on(e) : 0) == 0 && (err = get(j, buf, n, r->offset + at, e)) == 0)
            hash_update(h, buf, n);
        at += n;
    }
    if (!err)
        *out = hash_final64(h);
    free(buf);
    hash_free(h);
    return err;
}

/* Records up to the first that is not whole. */
static int scan(struct journal *j, uint64_t size, struct err *e)
{
    int r = 0;
    for (;;) {
        struct head h;
        struct tail t;
        uint64_t sum = 0, body = j->end + sizeof h;
        if (!ck_range(j->end, sizeof h + sizeof t, size))
            break;
        if ((r = get(j, &h, sizeof h, j->end, e)) < 0)
            return r;
        if (h.mark != HEAD_MARK || h.first != journal_next(j) || !h.n || h.n > UINT64_MAX - h.first ||
            !ck_range(body, h.bytes, size - sizeof t))
            break;
        const struct journal_record rec = { h.first, h.n, body, h.bytes };
        if ((r = get(j, &t, sizeof t, body + h.bytes, e)) < 0)
            return r;
        if (t.mark != TAIL_MARK)
            break;
        if ((r = record_hash(j, &h, &rec, 1, &sum, e)) < 0)
            return r;
        if (sum != t.hash)
            break;
        if ((r = remember(j, rec, e)) < 0)
            return r;
    }
    return 0;
}

static struct file_head fresh_head(struct hash128 config)
{
    struct file_head h = { .version = VERSION, .config = config };
    memcpy(h.magic, JOURNAL_MAGIC, 8);
    return h;
}

static int resume_file(struct journal *j, struct hash128 config, const char *same, uint64_t size, struct err *e)
{
    struct file_head h, own = fresh_head(config);
    int r = get(j, &h, size < sizeof h ? (size_t)size : sizeof h, 0, e);
    if (r < 0)
        return r;
    if (size < sizeof h && !memcmp(&h, &own, (size_t)size)) /* killed while the head was written */
        return 1;
    if (size < sizeof h || memcmp(h.magic, JOURNAL_MAGIC, 8) || h.version != VERSION)
        return err_set(e, ERR_MISMATCH, "'%s' is not the state of a run of this program; move it, or remove it to begin anew", j->path);
    if (!hash_equal(h.config, config)) {
        char a[HASH_TEXT], b[HASH_TEXT];
        hash_text(h.config, a);
        hash_text(config, b);
        return err_set(e, ERR_MISMATCH, "'%s' belongs to another run (%s, this one is %s): %s must be the same", j->path, a, b, same);
    }
    j->end = sizeof h;
    return scan(j, size, e);
}

/* Is what the name leads to the file that is open? */
static int still_named(const struct journal *j, const struct stat *st)
{
    struct stat named;
    return lstat(j->path, &named) == 0 && named.st_dev == st->st_dev && named.st_ino == st->st_ino;
}

/* Opened, looked at and locked. */
static int open_own(struct journal *j, int resume, struct stat *st, struct err *e)
{
    j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (resume ? 0 : O_EXCL), 0600);
    if (j->fd < 0 && errno == EEXIST)
        return err_set(e, ERR_USAGE, "'%s' holds an interrupted run: --resume continues it; remove the file to start again", j->path);
    if (j->fd < 0 && errno == ELOOP)
        return err_set(e, ERR_INPUT, "'%s' is a symbolic link, which is not followed: the state of an interrupted run is a file of "
                       "this program's own; remove the link", j->path);
    if (j->fd < 0 || fstat(j->fd, st) < 0)
        return err_sys(e, ERR_SYS, "opening '%s'", j->path);
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_INPUT, "'%s' is no regular file, and no state of an interrupted run", j->path);
    int busy = flock(j->fd, LOCK_EX | LOCK_NB) < 0;
    if (busy && errno != EWOULDBLOCK)
        return err_sys(e, ERR_SYS, "locking '%s'", j->path);
    if (busy || fstat(j->fd, st) < 0 || !still_named(j, st))
        return err_set(e, ERR_INPUT, "'%s' is in use by another process", j->path);
    int r = file_may_write(st, j->path, e);
    if (r < 0)
        return r;
    if (st->st_nlink != 1)
        return err_set(e, ERR_INPUT, "'%s' has %llu names (hard links): the state of an interrupted run is a file of this program's "
                       "own; remove this one", j->path, (unsigned long long)st->st_nlink);
    return 0;
}

int journal_open(const char *path, struct hash128 config, const char *same, int resume, struct journal **out, struct err *e)
{
    struct journal *j = calloc(1, sizeof *j);
    if (!j || !(j->path = strdup(path))) {
        free(j);
        return err_set(e, ERR_NOMEM, "'%s'", path);
    }
    struct stat st;
    int r = open_own(j, resume, &st, e);
    if (!r)
        r = st.st_size ? resume_file(j, config, same, (uint64_t)st.st_size, e) : 1;
    if (r == 1) {
        const struct file_head h = fresh_head(config);
        j->end = sizeof h;
        if ((r = put(j, &h, sizeof h, 0, e)) < 0)
            unlink(path); /* it holds nothing yet */
    }
    if (!r && (uint64_t)st.st_size > j->end)
        j->cut = (uint64_t)st.st_size - j->end;
    if (!r && ftruncate(j->fd, (off_t)j->end) < 0)
        r = err_sys(e, ERR_IO, "cutting '%s'", path);
    if (r < 0) {
        journal_close(j, 0);
        return r;
    }
    *out = j;
    return 0;
}

void journal_close(struct journal *j, int remove)
{
    struct stat st;
    if (!j)
        return;
    if (remove || (j->end == sizeof(struct file_head) && !j->n)) {
        if (j->fd >= 0 && fstat(j->fd, &st) == 0 && still_named(j, &st))
            unlink(j->path);
    } else if (j->fd >= 0 && j->open.mark && ftruncate(j->fd, (off_t)j->end) < 0) {
        remove = 0; /* the next run cuts it */
    }
    if (j->fd >= 0)
        close(j->fd);
    hash_free(j->hash);
    free(j->records);
    free(j->path);
    free(j);
}

const struct journal_record *journal_records(const struct journal *j, size_t *n)
{
    *n = j->n;
    return j->records;
}

uint64_t journal_next(const struct journal *j)
{
    return j->n ? j->records[j->n - 1].first + j->records[j->n - 1].n : 0;
}

uint64_t journal_cut(const struct journal *j)
{
    return j->cut;
}

int journal_begin(struct journal *j, uint64_t first, uint64_t n, uint64_t bytes, struct err *e)
{
    hash_free(j->hash);
    if (!(j->hash = hash_new()))
        return err_set(e, ERR_NOMEM, "'%s'", j->path);
    j->open = (struct head){ HEAD_MARK, first, n, bytes };
    j->written = 0;
    hash_update(j->hash, &j->open, sizeof j->open);
    return put(j, &j->open, sizeof j->open, j->end, e);
}

int journal_write(struct journal *j, const void *data, size_t len, struct err *e)
{
    int r = put(j, data, len, j->end + sizeof j->open + j->written, e);
    hash_update(j->hash, data, len);
    j->written += len;
    return r;
}

void journal_begin_sync(const struct journal *j)
{
    file_begin_sync(j->fd);
}

/* The open record's head and payload are written; it counts when its tail is too. */
static int finish(struct journal *j, uint64_t hash, struct err *e)
{
    const struct journal_record rec = { j->open.first, j->open.n, j->end + sizeof j->open, j->open.bytes };
    const struct tail t = { hash, TAIL_MARK };
    int r;
    if (fdatasync(j->fd) < 0)
        return err_sys(e, ERR_IO, "writing '%s'", j->path);
    if ((r = put(j, &t, sizeof t, rec.offset + rec.bytes, e)) < 0)
        return r;
    if (fdatasync(j->fd) < 0)
        return err_sys(e, ERR_IO, "writing '%s'", j->path);
    j->open.mark = 0;
    return remember(j, rec, e);
}

int journal_end(struct journal *j, struct err *e)
{
    if (j->written != j->open.bytes)
        return err_set(e, ERR_LIMIT, "'%s': a record of %llu bytes was given %llu", j->path,
                       (unsigned long long)j->open.bytes, (unsigned long long)j->written);
    return finish(j, hash_final64(j->hash), e);
}

uint64_t journal_place(const struct journal *j)
{
    return j->end + sizeof j->open;
}

int journal_descriptor(const struct journal *j, struct err *e)
{
    int fd = fcntl(j->fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 ? fd : err_sys(e, ERR_SYS, "opening '%s' again", j->path);
}

int journal_take(struct journal *j, uint64_t first, uint64_t n, uint64_t bytes, struct err *e)
{
    const struct journal_record rec = { first, n, j->end + sizeof j->open, bytes };
    uint64_t hash;
    j->open = (struct head){ HEAD_MARK, first, n, bytes };
    int r = put(j, &j->open, sizeof j->open, j->end, e);
    if (r < 0 || (r = record_hash(j, &j->open, &rec, 0, &hash, e)) < 0)
        return r;
    return finish(j, hash, e);
}

int journal_read(struct journal *j, const struct journal_record *r, uint64_t offset, void *buf, size_t len,
                 struct err *e)
{
    if (!ck_range(offset, len, r->bytes))
        return err_set(e, ERR_LIMIT, "'%s': beyond a record", j->path);
    int stop = file_go_on(e);
    return stop < 0 ? stop : get(j, buf, len, r->offset + offset, e);
}
