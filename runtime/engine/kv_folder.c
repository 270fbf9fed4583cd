/* Sizes are summed while the lock is held, and only where another process has written since: a number in the lock's file says so. What goes
 * is found without a list of all files: a pass over the folder keeps the oldest few, and there are as many passes as it takes. */
#include "runtime/engine/kv_folder.h"

#include "common/base/bytes.h"
#include "common/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OLDEST = 64, TRIES = 20, TRY_MS = 50, NAME = HASH_TEXT + 4, SAME_S = 8 /* that count as the same time */ };

static void name_of(struct hash128 h, const char *end, char out[NAME])
{
    hash_text(h, out);
    strcpy(out + HASH_TEXT - 1, end);
}

/* 1: of a record; 2: of one that is being written; 0: of neither. */
static int kind_of(const char *name)
{
    char hex[HASH_TEXT];
    struct hash128 h;
    if (strlen(name) < HASH_TEXT - 1)
        return 0;
    memcpy(hex, name, HASH_TEXT - 1);
    hex[HASH_TEXT - 1] = 0;
    const char *end = name + HASH_TEXT - 1;
    return hash_parse(hex, &h) < 0 ? 0 : !strcmp(end, ".kv") ? 1 : !strcmp(end, ".tmp") ? 2 : 0;
}

static int is_ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

static void remove_at(const struct kv_folder *f, const char *name)
{
    struct stat st;
    if (fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_ours(&st))
        unlinkat(f->dir, name, 0);
}

int kv_folder_open(struct kv_folder *f, const char *path, uint64_t most, struct err *e)
{
    struct stat st;
    *f = (struct kv_folder){ .dir = -1, .lock = -1, .most = most, .path = strdup(path) };
    if (!f->path)
        return err_set(e, ERR_NOMEM, "out of memory for '%s'", path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(e, ERR_USAGE, "making the folder '%s'", path);
    if ((f->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, ERR_USAGE, "opening the folder '%s'", path);
    if (fstat(f->dir, &st) < 0)
        return err_sys(e, ERR_SYS, "looking at '%s'", path);
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(e, ERR_USAGE, "the folder '%s' %s: what is read from there could be theirs; name a folder of your own", path,
                       st.st_uid != geteuid() ? "belongs to another user" : "can be written to by others (chmod go-w)");
    f->lock = openat(f->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (f->lock < 0 || fstat(f->lock, &st) < 0)
        return err_sys(e, ERR_SYS, "opening '%s/lock'", path);
    if (!is_ours(&st) || st.st_nlink != 1)
        return err_set(e, ERR_USAGE, "'%s/lock' is no file of this program", path);
    return file_may_write(&st, path, e);
}

void kv_folder_close(struct kv_folder *f)
{
    if (f->lock >= 0)
        close(f->lock);
    if (f->dir >= 0)
        close(f->dir);
    free(f->path);
    *f = (struct kv_folder){ .dir = -1, .lock = -1 };
}

int kv_folder_read(const struct kv_folder *f, struct hash128 name, void *out, size_t len)
{
    char at[NAME];
    struct stat st;
    struct err e;
    name_of(name, ".kv", at);
    int fd = openat(f->dir, at, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    const struct file in = { .fd = fd, .path = at };
    int sound = fstat(fd, &st) == 0 && is_ours(&st) && st.st_nlink == 1 && !(st.st_mode & (S_IWGRP | S_IWOTH)) && st.st_size >= 0;
    int read = sound && (uint64_t)st.st_size == len && file_pread(&in, out, len, 0, &e) == 0;
    close(fd);
    if (sound && (uint64_t)st.st_size != len)
        remove_at(f, at);
    return read;
}

void kv_folder_remove(const struct kv_folder *f, struct hash128 name)
{
    char at[NAME];
    name_of(name, ".kv", at);
    remove_at(f, at);
}

static struct timespec used_at(int n)
{
    time_t now = time(NULL);
    return (struct timespec){ .tv_sec = now - now % SAME_S, .tv_nsec = 999999999 - n };
}

void kv_folder_touch(const struct kv_folder *f, struct hash128 name, int n)
{
    char at[NAME];
    const struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, used_at(n) };
    name_of(name, ".kv", at);
    (void)!utimensat(f->dir, at, t, AT_SYMLINK_NOFOLLOW);
}

/* ---- writing ---- */

struct old {
    char name[NAME];
    uint64_t bytes;
    struct timespec used;
};

static int is_older(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Among the oldest, which are in order. */
static int insert(struct old *oldest, int n, const struct old *x)
{
    int i = n < OLDEST ? n : OLDEST - 1;
    if (n == OLDEST && !is_older(&x->used, &oldest[i].used))
        return n;
    for (; i > 0 && is_older(&x->used, &oldest[i - 1].used); i--)
        oldest[i] = oldest[i - 1];
    oldest[i] = *x;
    return n < OLDEST ? n + 1 : n;
}

/* Sums records; the oldest of them; what was being written, and nobody writes, goes. ERR_SYS. */
static int look(struct kv_folder *f, struct old *oldest, int *n, struct err *e)
{
    int fd = openat(f->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int r = err_sys(e, ERR_SYS, "reading the folder '%s'", f->path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    *n = 0;
    f->all = 0;
    const time_t now = time(NULL);
    for (struct dirent *i; (i = readdir(d));) {
        struct stat st;
        int kind = kind_of(i->d_name);
        if (!kind || fstatat(f->dir, i->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_ours(&st))
            continue;
        if (kind == 2) {
            unlinkat(f->dir, i->d_name, 0);
            continue;
        }
        struct old x = { .bytes = (uint64_t)st.st_size, .used = st.st_mtim };
        if (x.used.tv_sec > now) /* by a clock that was ahead: when is not known, and it must not be there for ever */
            x.used = (struct timespec){ 0 };
        memcpy(x.name, i->d_name, strlen(i->d_name) + 1);
        f->all += x.bytes;
        *n = insert(oldest, *n, &x);
    }
    closedir(d);
    return 0;
}

/* So many bytes more have room; what is removed is less worth than they. */
static int make_room(struct kv_folder *f, uint64_t need, struct timespec own, struct err *e)
{
    struct old oldest[OLDEST];
    int n = 0, r = 0;
    while (r == 0 && (!f->known || f->all > f->most - need)) {
        if ((r = look(f, oldest, &n, e)) < 0)
            break;
        f->known = 1;
        if (n == 0 && f->all)
            return err_set(e, ERR_SYS, "'%s': nothing can be removed", f->path);
        for (int i = 0; i < n && f->all > f->most - need; i++) {
            if (!is_older(&oldest[i].used, &own))
                return err_set(e, ERR_LIMIT, "'%s' is full of what is worth more", f->path);
            if (unlinkat(f->dir, oldest[i].name, 0) < 0 && errno != ENOENT)
                return err_sys(e, ERR_SYS, "removing '%s/%s'", f->path, oldest[i].name);
            f->all -= oldest[i].bytes;
        }
    }
    return r;
}

/* 1: written. */
static int write_all(int fd, const struct kv_folder_piece *p)
{
    const char *at = p->data;
    for (size_t left = p->len; left;) {
        ssize_t n = write(fd, at, left < FILE_PIECE ? left : FILE_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        left -= (size_t)n;
    }
    return 1;
}

static int write_file(struct kv_folder *f, const char *name, const char *tmp, int n, const struct kv_folder_piece pieces[2], struct err *e)
{
    const struct timespec t[2] = { { .tv_nsec = UTIME_NOW }, used_at(n) };
    int fd = openat(f->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), r = 0;
    if (fd < 0)
        return err_sys(e, ERR_SYS, "writing '%s/%s'", f->path, tmp);
    if (!write_all(fd, &pieces[0]) || !write_all(fd, &pieces[1]) || futimens(fd, t) < 0)
        r = err_sys(e, ERR_SYS, "writing '%s/%s'", f->path, tmp);
    file_begin_sync(fd);
    if (close(fd) < 0 && r == 0)
        r = err_sys(e, ERR_SYS, "writing '%s/%s'", f->path, tmp);
    if (r == 0 && renameat(f->dir, tmp, f->dir, name) < 0)
        r = err_sys(e, ERR_SYS, "naming '%s/%s'", f->path, name);
    if (r < 0)
        unlinkat(f->dir, tmp, 0);
    return r;
}

/* With the lock. */
static int write_locked(struct kv_folder *f, struct hash128 h, int n, const struct kv_folder_piece pieces[2], struct err *e)
{
    char name[NAME], tmp[NAME];
    uint8_t serial[8] = { 0 };
    struct stat st;
    uint64_t need = (uint64_t)pieces[0].len + pieces[1].len;
    name_of(h, ".kv", name);
    name_of(h, ".tmp", tmp);
    f->known = f->known && pread(f->lock, serial, sizeof serial, 0) == (ssize_t)sizeof serial && bytes_le64(serial) == f->serial;
    if (fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_ours(&st) && (uint64_t)st.st_size == need) {
        kv_folder_touch(f, h, n);
        return 1;
    }
    if (!f->known && pread(f->lock, serial, sizeof serial, 0) < 0)
        return err_sys(e, ERR_SYS, "reading '%s/lock'", f->path);
    f->serial = bytes_le64(serial) + 1;
    bytes_put64(serial, f->serial);
    if (pwrite(f->lock, serial, sizeof serial, 0) != (ssize_t)sizeof serial)
        return err_sys(e, ERR_SYS, "writing '%s/lock'", f->path);
    int r = make_room(f, need, used_at(n), e);
    if (r == 0 && (r = write_file(f, name, tmp, n, pieces, e)) == 0)
        f->all += need;
    else
        f->known = 0;
    return r;
}

int kv_folder_write(struct kv_folder *f, struct hash128 name, int n, const struct kv_folder_piece pieces[2], struct err *e)
{
    int tries = 0;
    while (flock(f->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, ERR_SYS, "locking '%s/lock'", f->path);
        if (++tries == TRIES)
            return err_set(e, ERR_FULL, "'%s' is being written to by another process", f->path);
        poll(NULL, 0, TRY_MS);
    }
    int r = write_locked(f, name, n, pieces, e);
    flock(f->lock, LOCK_UN);
    return r;
}
