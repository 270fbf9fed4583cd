/* For LD_PRELOAD: the file OVERWRITE is written over with zeros, from byte OVERWRITE_FROM to its end, once pread has brought
 * OVERWRITE_AFTER bytes of it: weights that change while a program runs, always at the same place of the run. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_llong seen;
static atomic_int done;

static void overwrite(const char *path)
{
    static const char zeros[1 << 16];
    const char *from = getenv("OVERWRITE_FROM");
    struct stat st;
    int fd = open(path, O_WRONLY);
    if (fd < 0 || fstat(fd, &st))
        _exit(99);
    for (off_t at = from ? atoll(from) : 0; at < st.st_size;) {
        ssize_t n = pwrite(fd, zeros, st.st_size - at < (off_t)sizeof zeros ? (size_t)(st.st_size - at) : sizeof zeros, at);
        if (n <= 0)
            _exit(99);
        at += n;
    }
    close(fd);
}

static void read_of(int fd, ssize_t n)
{
    const char *path = getenv("OVERWRITE"), *after = getenv("OVERWRITE_AFTER");
    struct stat a, b;
    if (n <= 0 || !path || !after || done || fstat(fd, &a) || stat(path, &b) || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return;
    if (atomic_fetch_add(&seen, n) + n >= atoll(after) && !atomic_exchange(&done, 1))
        overwrite(path);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    ssize_t r = real(fd, buf, n, at);
    read_of(fd, r);
    return r;
}

ssize_t pread64(int fd, void *buf, size_t n, off_t at)
{
    return pread(fd, buf, n, at);
}
