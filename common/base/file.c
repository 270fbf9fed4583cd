/* Whole reads and atomic replacement. The names of unfinished temporary files live in a fixed table of plain
 * memory, because a signal handler may neither lock nor allocate: a slot is claimed before its file is created
 * and freed after it is renamed or removed, and the handler unlinks whatever a live slot names. Names carry the
 * PID and a clock value, so claiming before creating cannot remove somebody else's file. */
#include "common/base/file.h"

#include "common/base/ckmath.h"
#include "common/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { DIRECT_ALIGN = 4096, DIRECT_BYTES = 4 << 20 };
enum { SLOT_FREE, SLOT_FILLING, SLOT_LIVE };

static struct {
    atomic_int state;
    pid_t pid; /* a forked child must not remove its parent's files */
    char path[PATH_MAX];
} slots[FILE_OUT_MAX];

static struct cancel interrupt;          /* asked by signals since file_catch_interrupt */
static volatile sig_atomic_t polled;     /* somebody looks at the flag */

/* ---- reading ---- */

#define READ_TRIES 1000

int file_open(struct file *f, const char *path, struct err *e)
{
    struct stat st;
    /* O_NONBLOCK: a FIFO without a writer is refused below instead of hanging here. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, ERR_INPUT, "cannot open '%s'", path);
    if (fstat(fd, &st) < 0) {
        int r = err_sys(e, ERR_INPUT, "cannot stat '%s'", path);
        close(fd);
        return r;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_INPUT, "cannot read '%s': %s", path,
                       S_ISDIR(st.st_mode) ? "it is a directory" : "it is not a regular file");
    }
    char *copy = strdup(path);
    if (!copy) {
        close(fd);
        return err_set(e, ERR_NOMEM, "out of memory opening '%s'", path);
    }
    *f = (struct file){ .fd = fd, .size = (uint64_t)st.st_size, .path = copy };
    return 0;
}

void file_close(struct file *f)
{
    /* A zeroed struct has fd 0 and no path: stdin is not ours to close. */
    if (f->path && f->fd >= 0)
        close(f->fd);
    free(f->path);
    *f = (struct file){ .fd = -1 };
}

int file_pread(const struct file *f, void *buf, size_t len, uint64_t offset, struct err *e)
{
    char *p = buf;
    size_t done = 0;
    int tries = 0, r; /* without progress: a signal now and then is no fault, nothing but EINTR is */
    if (!ck_range(offset, len, INT64_MAX))
        return err_set(e, ERR_FORMAT, "'%s' ends at byte %llu: cannot read %zu bytes at %llu", f->path,
                       (unsigned long long)f->size, len, (unsigned long long)offset);
    while (done < len) {
        if (done >= FILE_PIECE && (r = file_go_on(e)) < 0)
            return r;
        ssize_t n = pread(f->fd, p + done, len - done < FILE_PIECE ? len - done : FILE_PIECE, (off_t)(offset + done));
        if (n < 0 && errno == EINTR && ++tries < READ_TRIES)
            continue;
        if (n < 0)
            return err_sys(e, ERR_INPUT, "reading '%s' at byte %llu", f->path,
                           (unsigned long long)(offset + done));
        if (n == 0)
            return err_set(e, ERR_FORMAT, "'%s' ends at byte %llu: cannot read %zu bytes at %llu", f->path,
                           (unsigned long long)(offset + done), len, (unsigned long long)offset);
        tries = 0;
        done += (size_t)n;
    }
    return 0;
}

int file_each(const struct file *f, uint64_t offset, uint64_t len,
              int (*piece)(void *ctx, const void *data, size_t len, struct err *e), void *ctx, struct err *e)
{
    char some[1 << 16];
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < len; at += sizeof some) {
        size_t n = len - at < sizeof some ? (size_t)(len - at) : sizeof some;
        if ((r = file_go_on(e)) == 0 && (r = file_pread(f, some, n, offset + at, e)) == 0)
            r = piece(ctx, some, n, e);
    }
    return r;
}

int file_wait_readable(int fd, struct err *e)
{
    enum { LOOK_MS = 50 };
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int r, n = 0;
    while ((r = file_go_on(e)) == 0 && ((n = poll(&p, 1, LOOK_MS)) == 0 || (n < 0 && errno == EINTR))) {
    }
    return r;
}

void file_begin_sync(int fd)
{
#ifdef SYNC_FILE_RANGE_WRITE
    int saved = errno;
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* an error is the sync's to report */
    errno = saved;
#else
    (void)fd;
#endif
}

int file_slurp(const char *path, uint64_t limit, char **out, size_t *out_len, struct err *e)
{
    struct file f = { .fd = -1 };
    char *buf = NULL;
    int r = file_open(&f, path, e);
    if (r < 0)
        return r;
    if (f.size > limit || f.size > SIZE_MAX - 1) {
        r = err_set(e, ERR_LIMIT, "'%s' has %llu bytes, more than the limit of %llu", path,
                    (unsigned long long)f.size, (unsigned long long)limit);
        goto out;
    }
    buf = malloc((size_t)f.size + 1);
    if (!buf) {
        r = err_set(e, ERR_NOMEM, "out of memory reading '%s' (%llu bytes)", path, (unsigned long long)f.size);
        goto out;
    }
    r = file_pread(&f, buf, (size_t)f.size, 0, e);
    if (r < 0)
        goto out;
    buf[f.size] = '\0';
    *out = buf;
    *out_len = (size_t)f.size;
    buf = NULL;
out:
    free(buf);
    file_close(&f);
    return r;
}

/* ---- interrupts ---- */

void file_out_abort_all(void)
{
    for (int i = 0; i < FILE_OUT_MAX; i++)
        if (atomic_load(&slots[i].state) == SLOT_LIVE && slots[i].pid == getpid())
            unlink(slots[i].path);
}

static void on_signal(int sig)
{
    int saved = errno;
    if (!polled || cancel_ask(&interrupt)) {
        file_out_abort_all();
        signal(sig, SIG_DFL);
        raise(sig); /* taken when the handler returns */
    }
    errno = saved;
}

/* Where a signal is ignored (nohup) or somebody else's, it stays so. */
static void install_handlers(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old, act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        sigemptyset(&act.sa_mask);
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &act, NULL);
    }
}

struct cancel *file_catch_interrupt(void)
{
    polled = 1;
    install_handlers();
    return &interrupt;
}

bool file_interrupted(void)
{
    return cancel_asked(&interrupt);
}

int file_go_on(struct err *e)
{
    return file_interrupted() ? err_set(e, ERR_INTR, "interrupted") : 0;
}

/* ---- writing ---- */

static struct {
    struct { dev_t dev; ino_t ino; char label[160]; } *all;
    size_t n;
} kept;

int file_keep(const struct stat *st, const char *label, struct err *e)
{
    for (size_t i = 0; i < kept.n; i++)
        if (kept.all[i].dev == st->st_dev && kept.all[i].ino == st->st_ino)
            return 0;
    void *grown = realloc(kept.all, (kept.n + 1) * sizeof *kept.all);
    if (!grown)
        return err_set(e, ERR_NOMEM, "out of memory comparing file names");
    kept.all = grown;
    kept.all[kept.n].dev = st->st_dev;
    kept.all[kept.n].ino = st->st_ino;
    snprintf(kept.all[kept.n].label, sizeof kept.all[kept.n].label, "%s", label);
    kept.n++;
    return 0;
}

int file_may_write(const struct stat *st, const char *path, struct err *e)
{
    for (size_t i = 0; i < kept.n; i++)
        if (kept.all[i].dev == st->st_dev && kept.all[i].ino == st->st_ino)
            return err_set(e, ERR_USAGE, "'%s' and %s are the same file, which would be overwritten; nothing was touched: give what is "
                           "written a name of its own", path, kept.all[i].label);
    return 0;
}

static const char *claim_slot(const char *path)
{
    for (int i = 0; i < FILE_OUT_MAX; i++) {
        int want = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &want, SLOT_FILLING))
            continue;
        snprintf(slots[i].path, sizeof slots[i].path, "%s", path);
        slots[i].pid = getpid();
        atomic_store(&slots[i].state, SLOT_LIVE);
        return slots[i].path;
    }
    return NULL;
}

static void release_slot(const char *path)
{
    for (int i = 0; i < FILE_OUT_MAX; i++)
        if (atomic_load(&slots[i].state) == SLOT_LIVE && strcmp(slots[i].path, path) == 0) {
            atomic_store(&slots[i].state, SLOT_FREE);
            return;
        }
}

/* The name in its folder. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_folder(struct file_out *o, struct err *e)
{
    char dir[PATH_MAX];
    size_t len = (size_t)(base_of(o->path) - o->path);
    if (len >= sizeof dir) {
        errno = ENAMETOOLONG;
        return err_sys(e, ERR_SYS, "cannot create '%s'", o->path);
    }
    memcpy(dir, len ? o->path : ".", len ? len : 1);
    dir[len ? len : 1] = '\0';
    o->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->dir < 0 && errno == EACCES)
        o->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC); /* one may write to it but not read */
    return o->dir < 0 ? err_sys(e, ERR_SYS, "cannot create '%s'", o->path) : 0;
}

/* What is there under the name, in the folder that is open: 1 a regular file that may be replaced, 0 none. */
static int find_old(const struct file_out *o, struct stat *st, struct err *e)
{
    if (fstatat(o->dir, base_of(o->path), st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, ERR_SYS, "cannot create '%s'", o->path);
    if (!S_ISREG(st->st_mode))
        return 0; /* a link that came since is replaced; what cannot be is the rename's to refuse */
    int r = file_may_write(st, o->path, e);
    return r < 0 ? r : 1;
}

/* The new file gets the mode of the old one, and its owner and group where that is allowed: where not, the group has what others have. */
static void take_mode(int fd, const struct stat *old)
{
    struct stat st;
    mode_t mode = old->st_mode & 0777;
    if (fstat(fd, &st) < 0)
        return;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) < 0 &&
        st.st_gid != old->st_gid && fchown(fd, (uid_t)-1, old->st_gid) < 0)
        mode = (mode & 0707) | (mode & 07) << 3;
    if (fchmod(fd, mode) < 0)
        return; /* no modes there; the file was made for its owner alone */
}

static int create_temporary(struct file_out *o, struct err *e)
{
    size_t len = strlen(o->path) + 40;
    struct stat old;
    int exists = find_old(o, &old, e);
    if (exists < 0)
        return exists;
    if (len > PATH_MAX) {
        errno = ENAMETOOLONG;
        return err_sys(e, ERR_SYS, "cannot create '%s'", o->path);
    }
    o->tmp = malloc(len);
    if (!o->tmp)
        return err_set(e, ERR_NOMEM, "out of memory creating '%s'", o->path);
    for (int attempt = 0; attempt < 100; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(o->tmp, len, "%s.tmp-%ld-%08lx", o->path, (long)getpid(),
                 ((unsigned long)now.tv_sec * 1000000000ul + (unsigned long)now.tv_nsec) & 0xfffffffful);
        if (!claim_slot(o->tmp)) {
            err_set(e, ERR_LIMIT, "cannot create '%s': %d output files are open already", o->path, FILE_OUT_MAX);
            goto fail;
        }
        o->fd = openat(o->dir, base_of(o->tmp), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, exists ? 0600 : 0666);
        if (o->fd >= 0) {
            if (exists)
                take_mode(o->fd, &old);
            return 0;
        }
        release_slot(o->tmp);
        if (errno != EEXIST)
            break;
    }
    err_sys(e, ERR_SYS, "cannot create '%s'", o->tmp);
fail:
    free(o->tmp); /* the name is not ours: abort must not remove it */
    o->tmp = NULL;
    return e ? e->code : ERR_SYS;
}

/* Make the rename itself durable. Some file systems cannot sync a directory and say so; they are right. */
static int sync_folder(const struct file_out *o, struct err *e)
{
    if (fsync(o->dir) < 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS && errno != EBADF) /* EBADF: of O_PATH */
        return err_sys(e, ERR_SYS, "syncing the directory of '%s'", o->path);
    return 0;
}

/* The file under its temporary name, as another process left it. */
static int open_kept(struct file_out *o, const char *suffix, uint64_t pos, struct err *e)
{
    size_t len = strlen(o->path) + strlen(suffix) + 1;
    struct stat st;
    if (!(o->tmp = malloc(len)))
        return err_set(e, ERR_NOMEM, "out of memory creating '%s'", o->path);
    snprintf(o->tmp, len, "%s%s", o->path, suffix);
    o->kept = 1;
    o->fd = openat(o->dir, base_of(o->tmp), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (o->fd < 0 || fstat(o->fd, &st) < 0)
        return err_sys(e, ERR_SYS, "opening '%s'", o->tmp);
    int r = file_may_write(&st, o->tmp, e);
    if (r == 0 && (!S_ISREG(st.st_mode) || st.st_nlink != 1))
        r = err_set(e, ERR_INPUT, "'%s' is no regular file with one name, as what this program goes on with is", o->tmp);
    if (r == 0 && (uint64_t)st.st_size < pos)
        r = err_set(e, ERR_MISMATCH, "'%s' has %llu bytes; %llu were written when the run was interrupted", o->tmp,
                    (unsigned long long)st.st_size, (unsigned long long)pos);
    o->pos = pos;
    if (r == 0 && ftruncate(o->fd, (off_t)pos) < 0)
        r = err_sys(e, ERR_SYS, "cutting '%s'", o->tmp);
    return r < 0 ? r : sync_folder(o, e); /* what it is gone on with is there after a power failure, with its neighbours */
}

static int open_out(struct file_out *o, const char *path, const char *suffix, uint64_t pos, struct err *e)
{
    struct stat st;
    *o = (struct file_out){ .fd = -1, .dir = -1 };
    int exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, "cannot write '%s': it is %s", path,
                       S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    install_handlers();
    o->path = exists ? realpath(path, NULL) : strdup(path);
    if (!o->path)
        return err_sys(e, ERR_SYS, "cannot create '%s'", path);
    int r = open_folder(o, e);
    r = r < 0 ? r : suffix ? open_kept(o, suffix, pos, e) : create_temporary(o, e);
    if (r < 0)
        file_out_abort(o);
    return r;
}

int file_out_open(struct file_out *o, const char *path, struct err *e)
{
    return open_out(o, path, NULL, 0, e);
}

int file_out_resume(struct file_out *o, const char *path, const char *suffix, uint64_t pos, struct err *e)
{
    return open_out(o, path, suffix, pos, e);
}

/* 1 when O_DIRECT was set and is no longer: what a file system that refuses a write after all gets instead. */
static int clear_direct(struct file_out *o)
{
    int flags = fcntl(o->fd, F_GETFL);
    return flags >= 0 && flags & O_DIRECT && fcntl(o->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static int write_at(struct file_out *o, const void *data, size_t len, uint64_t offset, struct err *e)
{
    const char *p = data;
    if (!ck_range(offset, len, INT64_MAX))
        return err_set(e, ERR_LIMIT, "writing '%s': %zu bytes at %llu are beyond the largest file", o->path, len,
                       (unsigned long long)offset);
    while (len > 0) {
        ssize_t n = pwrite(o->fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && clear_direct(o))
            continue;
        if (n < 0)
            return err_sys(e, ERR_SYS, "writing '%s' at byte %llu", o->tmp, (unsigned long long)offset);
        if ((size_t)n < len)
            clear_direct(o); /* the rest may be unaligned */
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

void file_out_direct(struct file_out *o)
{
    int flags = fcntl(o->fd, F_GETFL);
    if (o->block || o->pos % DIRECT_ALIGN != 0 || flags < 0)
        return;
    o->block = aligned_alloc(DIRECT_ALIGN, DIRECT_BYTES);
    if (o->block && fcntl(o->fd, F_SETFL, flags | O_DIRECT) < 0) {
        free(o->block);
        o->block = NULL;
    }
}

/* Write what is held and go on through the page cache. */
static int leave_direct(struct file_out *o, struct err *e)
{
    if (!o->block)
        return 0;
    clear_direct(o);
    int r = write_at(o, o->block, o->held, o->pos - o->held, e);
    free(o->block);
    o->block = NULL;
    o->held = 0;
    return r;
}

static int append_direct(struct file_out *o, const char *data, size_t len, struct err *e)
{
    while (len > 0) {
        size_t n = DIRECT_BYTES - o->held < len ? DIRECT_BYTES - o->held : len;
        memcpy(o->block + o->held, data, n);
        o->held += n;
        o->pos += n;
        data += n;
        len -= n;
        if (o->held < DIRECT_BYTES)
            break;
        int r = write_at(o, o->block, DIRECT_BYTES, o->pos - DIRECT_BYTES, e);
        if (r < 0)
            return r;
        o->held = 0;
    }
    return 0;
}

int file_out_write(struct file_out *o, const void *data, size_t len, struct err *e)
{
    if (o->block)
        return append_direct(o, data, len, e);
    int r = write_at(o, data, len, o->pos, e);
    if (r == 0)
        o->pos += len;
    return r;
}

int file_out_pwrite(struct file_out *o, const void *data, size_t len, uint64_t offset, struct err *e)
{
    int r = leave_direct(o, e);
    return r < 0 ? r : write_at(o, data, len, offset, e);
}

int file_out_zeros(struct file_out *o, uint64_t to_pos, struct err *e)
{
    static const char zeros[4096];
    while (o->pos < to_pos) {
        uint64_t left = to_pos - o->pos;
        int r = file_out_write(o, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int file_out_commit(struct file_out *o, struct err *e)
{
    struct stat old;
    int r = leave_direct(o, e), exists = r < 0 ? r : find_old(o, &old, e);
    r = exists < 0 ? exists : r;
    if (exists > 0)
        take_mode(o->fd, &old);
    if (r == 0 && fsync(o->fd) < 0)
        r = err_sys(e, ERR_SYS, "syncing '%s'", o->tmp);
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) < 0 && r == 0)
        r = err_sys(e, ERR_SYS, "closing '%s'", o->tmp);
    if (r == 0 && renameat(o->dir, base_of(o->tmp), o->dir, base_of(o->path)) < 0)
        r = err_sys(e, ERR_SYS, "renaming '%s' to '%s'", o->tmp, o->path);
    if (r < 0) {
        file_out_abort(o);
        return r;
    }
    release_slot(o->tmp);
    free(o->tmp);
    o->tmp = NULL;
    r = sync_folder(o, e);
    file_out_abort(o);
    return r;
}

void file_out_abort(struct file_out *o)
{
    if (o->path && o->fd >= 0)
        close(o->fd);
    if (o->tmp && !o->kept) {
        unlinkat(o->dir, base_of(o->tmp), 0);
        release_slot(o->tmp);
    }
    if (o->path && o->dir >= 0)
        close(o->dir);
    free(o->tmp);
    free(o->path);
    free(o->block);
    *o = (struct file_out){ .fd = -1, .dir = -1 };
}

int file_free_bytes(const char *path, uint64_t *out, struct err *e)
{
    struct statvfs v;
    char dir[PATH_MAX];
    int r = statvfs(path, &v);
    if (r < 0 && errno == ENOENT) {
        const char *slash = strrchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) + 1 : 0;
        if (len >= sizeof dir)
            return err_set(e, ERR_SYS, "free space for '%s': the path is too long", path);
        memcpy(dir, path, len);
        dir[len] = '\0';
        r = statvfs(len ? dir : ".", &v);
    }
    if (r < 0)
        return err_sys(e, ERR_SYS, "free space for '%s'", path);
    if (!ck_mul_u64(v.f_bavail, v.f_frsize, out))
        *out = UINT64_MAX;
    return 0;
}

int file_enough_space(const char *path, uint64_t need, struct err *e)
{
    uint64_t have;
    char n[24], h[24];
    int r = file_free_bytes(path, &have, e);
    if (r < 0 || need <= have)
        return r;
    return err_set(e, ERR_SYS, "'%s': about %s are needed there and %s are free", path, size_format(need, n, sizeof n),
                   size_format(have, h, sizeof h));
}
