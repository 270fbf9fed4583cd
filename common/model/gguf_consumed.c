/* Marks, and what may get one. The mark at the end: a line that people can read with `tail -n 1`, zeros before it, a checksum first. */
#include "common/model/gguf_consumed.h"

#include "common/base/bytes.h"
#include "common/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OPEN_WAIT_MS 2000
#define OPEN_LOOK_MS 50

static const char says[] = "\nconsumed by pack ";

enum { AT = 8 + 8 }; /* checksum of what follows, length of the path */

int gguf_consumed_by(const struct file *f, char pack[GGUF_CONSUMED_PATH])
{
    uint8_t b[GGUF_CONSUMED_BYTES], magic[4];
    struct err ignored = { 0 };
    if (f->size < GGUF_CONSUMED_BYTES + 4 || file_pread(f, magic, sizeof magic, 0, &ignored) < 0 ||
        memcmp(magic, GGUF_CONSUMED_MAGIC, sizeof magic) != 0 ||
        file_pread(f, b, sizeof b, f->size - sizeof b, &ignored) < 0)
        return 0;
    uint64_t n = bytes_le64(b + 8);
    if (n >= GGUF_CONSUMED_PATH || n + sizeof says + AT > sizeof b || bytes_le64(b) != hash_64(b + 8, sizeof b - 8))
        return 0;
    memcpy(pack, b + sizeof b - 1 - n, n);
    pack[n] = '\0';
    return 1;
}

static int put(int fd, const void *data, size_t len, uint64_t at, const char *name, struct err *e)
{
    if (pwrite(fd, data, len, (off_t)at) != (ssize_t)len || fsync(fd) < 0)
        return err_sys(e, ERR_SYS, "marking '%s' as consumed", name);
    return 0;
}

int gguf_consumed_mark(int fd, uint64_t size, const char *name, const char *pack, struct err *e)
{
    uint8_t b[GGUF_CONSUMED_BYTES] = { 0 };
    size_t n = strlen(pack), line = sizeof says - 1;
    if (n >= GGUF_CONSUMED_PATH)
        return err_set(e, ERR_LIMIT, "'%s': a path of %zu bytes, more than the limit of %u", pack, n, GGUF_CONSUMED_PATH - 1);
    bytes_put64(b + 8, n);
    memcpy(b + sizeof b - 1 - n - line, says, line);
    memcpy(b + sizeof b - 1 - n, pack, n);
    b[sizeof b - 1] = '\n';
    bytes_put64(b, hash_64(b + 8, sizeof b - 8));
    int r = put(fd, b, sizeof b, size, name, e);
    return r < 0 ? r : put(fd, GGUF_CONSUMED_MAGIC, 4, 0, name, e);
}

/* ---- what may be consumed ---- */

static int refuse(struct err *e, const char *path, const char *why)
{
    return err_set(e, ERR_USAGE, "--consume: '%s' %s; nothing was touched: copy it to a file of your own, or pack without --consume", path,
                   why);
}

/* Caches that name files by their content: others lead here by links. */
static int in_store(const char *path)
{
    char real[PATH_MAX], *slash;
    if (!realpath(path, real) || !(slash = strrchr(real, '/')))
        return 0;
    *slash = '\0';
    slash = strrchr(real, '/');
    return slash && !strcmp(slash + 1, "blobs");
}

/* 1: another process, or descriptor, has it open; 0: none, or there is no knowing. One that was killed lets go when the system has
 * taken its memory back: it is waited for. */
static int open_elsewhere(int fd)
{
    const struct timespec moment = { 0, 1000000 * OPEN_LOOK_MS };
    for (int ms = 0;; ms += OPEN_LOOK_MS) {
        int r = fcntl(fd, F_SETLEASE, F_WRLCK), sys = errno;
        if (r == 0)
            fcntl(fd, F_SETLEASE, F_UNLCK);
        if (r == 0 || sys != EAGAIN || ms >= OPEN_WAIT_MS)
            return r < 0 && sys == EAGAIN;
        nanosleep(&moment, NULL);
    }
}

/* Asked of a file without a name beside it, so that the file's times stay; of itself, behind its end, where there is none. */
static int can_punch(const char *path, int fd, uint64_t size)
{
    const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    int r, other = -1;
    if (n < sizeof dir - 1) {
        memcpy(dir, n ? path : ".", n ? n : 1);
        dir[n ? n : 1] = '\0';
        other = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (other < 0)
        return fallocate(fd, how, (off_t)size + (1 << 20), 4096) == 0;
    r = fallocate(other, how, 0, 4096);
    close(other);
    return r == 0;
}

int gguf_consumed_open(const char *path, int *out, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return err_sys(e, ERR_INPUT, "cannot read '%s'", path);
    if (S_ISLNK(st.st_mode))
        return refuse(e, path, "is a symbolic link, as those into a store that others use (Hugging Face, Ollama)");
    if (in_store(path))
        return refuse(e, path, "lies in a store of blobs (Hugging Face, Ollama), which others use");
    if (!S_ISREG(st.st_mode))
        return refuse(e, path, "is not a regular file");
    if (st.st_uid != geteuid())
        return refuse(e, path, "belongs to another user");
    if (st.st_nlink != 1)
        return refuse(e, path, "has several names (hard links)");
    if (!(st.st_mode & S_IWUSR))
        return refuse(e, path, "is read-only");
    int r = 0, fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return refuse(e, path, errno == EROFS ? "is on a read-only file system" : "cannot be opened for writing");
    struct stat now;
    if (fstat(fd, &now) < 0 || now.st_dev != st.st_dev || now.st_ino != st.st_ino)
        r = refuse(e, path, "was replaced meanwhile");
    else if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        r = refuse(e, path, "is locked by another process");
    else if (open_elsewhere(fd))
        r = refuse(e, path, "is open in another process");
    else if (!can_punch(path, fd, (uint64_t)st.st_size))
        r = refuse(e, path, "is on a file system that cannot free parts of a file (hole punching)");
    if (r < 0)
        close(fd);
    else
        *out = fd;
    return r;
}
