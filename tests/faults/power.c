#include "tests/faults/power.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 64 };

static struct kept {
    dev_t dev;
    ino_t ino;
    char *data; /* what it held at its last sync */
    size_t len;
} kept[FILES];
static int n_kept;

static int look(pid_t pid, int fd, struct stat *st, char *path, size_t size)
{
    snprintf(path, size, "/proc/%d/fd/%d", (int)pid, fd);
    return stat(path, st) == 0 && S_ISREG(st->st_mode) ? 0 : -1;
}

static int find(const struct stat *st)
{
    for (int i = 0; i < n_kept; i++)
        if (kept[i].dev == st->st_dev && kept[i].ino == st->st_ino)
            return i;
    return -1;
}

void power_before_change(pid_t pid, int fd)
{
    struct stat st;
    char path[64];
    if (look(pid, fd, &st, path, sizeof path) < 0 || find(&st) >= 0 || n_kept == FILES)
        return;
    struct kept k = { .dev = st.st_dev, .ino = st.st_ino, .len = (size_t)st.st_size };
    int in = open(path, O_RDONLY | O_CLOEXEC);
    k.data = malloc(k.len + 1);
    if (in >= 0 && k.data && pread(in, k.data, k.len, 0) == (ssize_t)k.len)
        kept[n_kept++] = k;
    else
        free(k.data);
    if (in >= 0)
        close(in);
}

void power_synced(pid_t pid, int fd)
{
    struct stat st;
    char path[64];
    int i = look(pid, fd, &st, path, sizeof path) < 0 ? -1 : find(&st);
    if (i < 0)
        return;
    free(kept[i].data);
    kept[i] = kept[--n_kept];
}

void power_lose(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *f;
    while (d && (f = readdir(d))) {
        struct stat st;
        int i, fd;
        if (fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || (i = find(&st)) < 0)
            continue;
        fd = openat(dirfd(d), f->d_name, O_WRONLY | O_TRUNC | O_CLOEXEC);
        if (fd < 0 || write(fd, kept[i].data, kept[i].len) != (ssize_t)kept[i].len)
            perror(f->d_name);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

void power_forget(void)
{
    while (n_kept > 0)
        free(kept[--n_kept].data);
}
