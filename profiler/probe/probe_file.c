/* The file that probes read. What each block must hold follows from its position, so O_DIRECT is believed only after blocks read through it
 * proved right: on some FUSE mounts it opens and returns wrong data. */
#include "profiler/probe/probe_file.h"

#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/base/splitmix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ALIGN       4096u
#define WRITE_BYTES PROBE_FILE_BUFFER
#define SPARE_BYTES (64ull << 20) /* left free on the drive */
#define MAGIC_TMPFS 0x01021994u
#define MAGIC_RAMFS 0x858458f6u

static void fill(uint64_t *out, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < len / 8; i++)
        out[i] = splitmix_at(offset / 8 + i);
}

static int holds(const uint64_t *data, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < len / 8; i++)
        if (data[i] != splitmix_at(offset / 8 + i))
            return 0;
    return 1;
}

void probe_file_init(struct probe_file *s, const char *dir, uint64_t bytes)
{
    *s = (struct probe_file){ .fd_write = -1, .fd = -1, .bytes = bytes / (1u << 20) * (1u << 20) };
    snprintf(s->dir, sizeof s->dir, "%s", dir);
}

static int write_file(struct probe_file *s, char *buf, struct err *e)
{
    int r = 0;
    struct progress progress;
    progress_init(&progress, "writing the test file", "B", s->bytes);
    for (uint64_t at = 0; at < s->bytes && r == 0;) {
        size_t len = s->bytes - at < WRITE_BYTES ? (size_t)(s->bytes - at) : WRITE_BYTES;
        fill((uint64_t *)(void *)buf, at, len);
        for (size_t done = 0; done < len && r == 0;) {
            ssize_t n = pwrite(s->fd_write, buf + done, len - done, (off_t)(at + done));
            if (n < 0 && errno != EINTR)
                r = err_sys(e, ERR_SYS, "writing %llu bytes of test file in '%s'", (unsigned long long)s->bytes, s->dir);
            done += n > 0 ? (size_t)n : 0;
        }
        at += len;
        progress_add(&progress, len);
        if (r == 0 && file_interrupted())
            r = err_set(e, ERR_INTR, "interrupted while writing the test file");
    }
    progress_done(&progress);
    if (r == 0 && fsync(s->fd_write) != 0)
        r = err_sys(e, ERR_SYS, "fsync of the test file in '%s'", s->dir);
    if (r == 0)
        posix_fadvise(s->fd_write, 0, 0, POSIX_FADV_DONTNEED);
    return r;
}

/* Blocks all over the file, read through fd, hold what was written. */
static int reads_back(const struct probe_file *s, char *buf, int fd)
{
    for (int i = 0; i < 64; i++) {
        uint64_t offset = i ? splitmix_at((uint64_t)i) % (s->bytes / ALIGN) * ALIGN : s->bytes - ALIGN;
        memset(buf, 0, ALIGN);
        if (pread(fd, buf, ALIGN, (off_t)offset) != (ssize_t)ALIGN || !holds((const uint64_t *)(void *)buf, offset, ALIGN))
            return 0;
    }
    return 1;
}

int probe_file_make(struct probe_file *s, char *buf, struct err *e)
{
    char path[4160];
    uint64_t space;
    int r = file_free_bytes(s->dir, &space, e);
    if (r < 0)
        return r;
    if (space < s->bytes + SPARE_BYTES)
        return err_set(e, ERR_SYS, "'%s' has %llu MiB free, the test file needs %llu and %llu to spare: give --range or --storage",
                       s->dir, (unsigned long long)(space >> 20), (unsigned long long)(s->bytes >> 20),
                       (unsigned long long)(SPARE_BYTES >> 20));
    snprintf(path, sizeof path, "%s/.thermo-probe-XXXXXX", s->dir);
    s->fd_write = mkostemp(path, O_CLOEXEC);
    if (s->fd_write < 0)
        return err_sys(e, ERR_SYS, "creating a test file in '%s'", s->dir);
    s->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    int sys = errno;
    int plain = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    if (plain < 0)
        return err_sys(e, ERR_SYS, "opening the test file in '%s'", s->dir);
    r = write_file(s, buf, e);
    if (r == 0 && s->fd < 0)
        snprintf(s->notes, sizeof s->notes, "O_DIRECT refused (%.40s): reads go through the page cache", strerror(sys));
    else if (r == 0 && !reads_back(s, buf, s->fd))
        snprintf(s->notes, sizeof s->notes, "O_DIRECT opens but does not return the file's bytes: reads go through the page cache");
    struct statfs fs;
    int in_memory = fstatfs(plain, &fs) == 0 && ((unsigned)fs.f_type == MAGIC_TMPFS || (unsigned)fs.f_type == MAGIC_RAMFS);
    if (r == 0 && in_memory)
        snprintf(s->notes, sizeof s->notes, "the directory is kept in memory: this measures memory, not storage");
    s->direct = r == 0 && !s->notes[0];
    if (s->direct) {
        close(plain);
    } else {
        if (s->fd >= 0)
            close(s->fd);
        s->fd = plain;
        posix_fadvise(plain, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead: the engine asks for what it wants */
        if (r == 0 && !reads_back(s, buf, plain))
            r = err_set(e, ERR_IO, "the test file in '%s' does not read back what was written", s->dir);
    }
    return r;
}

void probe_file_close(struct probe_file *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->fd_write >= 0)
        close(s->fd_write);
    s->fd = s->fd_write = -1;
}
