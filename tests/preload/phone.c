/* For LD_PRELOAD: what a phone does otherwise than a computer.
 * PHONE_SYS=DIR        files of /sys, /proc, /system and /vendor are those of DIR where it has them, libraries and commands too
 * PHONE_VENDOR=1       there is no OpenCL but a vendor's
 * PHONE_PIN=refuse     no thread is pinned to a single processor; move: it is said to be, and is found on another
 * PHONE_DIRECT=wrong   O_DIRECT opens and every read through it returns other bytes; refuse: it does not open
 * PHONE_MLOCK=1        no memory can be locked
 * PHONE_HOT=FILE       from when FILE is there everything takes twice the time: the clock runs twice as fast */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int is(const char *name, const char *value)
{
    const char *v = getenv(name);
    return v && strcmp(v, value) == 0;
}

static const char *here(const char *path, char *out, size_t len)
{
    const char *dir = getenv("PHONE_SYS");
    struct stat st;
    if (!dir || (strncmp(path, "/sys/", 5) != 0 && strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/vendor/", 8) != 0 &&
                 strncmp(path, "/system/", 8) != 0))
        return path;
    snprintf(out, len, "%s%s", dir, path);
    return stat(out, &st) == 0 || strncmp(path, "/sys/devices/system/cpu/cpu", 27) == 0 ? out : path;
}

#define REAL(name)                                                                                                                        \
    static __typeof__(name) *real;                                                                                                        \
    if (!real)                                                                                                                            \
        *(void **)&real = dlsym(RTLD_NEXT, #name)

FILE *fopen(const char *path, const char *mode)
{
    char other[4096];
    REAL(fopen);
    return real(here(path, other, sizeof other), mode);
}

FILE *popen(const char *command, const char *mode)
{
    char other[4096];
    const char *dir = getenv("PHONE_SYS");
    REAL(popen);
    snprintf(other, sizeof other, "%s%s", dir && strncmp(command, "/system/", 8) == 0 ? dir : "", command);
    return real(other, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int access(const char *path, int how)
{
    char other[4096];
    REAL(access);
    return real(here(path, other, sizeof other), how);
}

void *dlopen(const char *path, int how)
{
    char other[4096];
    REAL(dlopen);
    if (path && getenv("PHONE_VENDOR") && strncmp(path, "libOpenCL", 9) == 0)
        return NULL;
    return real(path ? here(path, other, sizeof other) : NULL, how);
}

DIR *opendir(const char *path)
{
    char other[4096];
    REAL(opendir);
    return real(here(path, other, sizeof other));
}

int open(const char *path, int flags, ...)
{
    char other[4096];
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    REAL(open);
    if (flags & O_DIRECT && is("PHONE_DIRECT", "refuse")) {
        errno = EINVAL;
        return -1;
    }
    return real(here(path, other, sizeof other), flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open(path, flags, mode);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    REAL(pread64);
    ssize_t r = real(fd, to, n, at);
    if (r > 0 && is("PHONE_DIRECT", "wrong") && fcntl(fd, F_GETFL) & O_DIRECT)
        memset(to, 0xa5, (size_t)r);
    return r;
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    return pread(fd, to, n, at);
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    REAL(pthread_setaffinity_np);
    if (CPU_COUNT_S(size, set) == 1 && is("PHONE_PIN", "refuse"))
        return EPERM;
    return real(thread, size, set);
}

int sched_getcpu(void)
{
    REAL(sched_getcpu);
    return is("PHONE_PIN", "move") ? 4095 : real();
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    static atomic_llong since;
    const char *file = getenv("PHONE_HOT");
    struct stat st;
    REAL(clock_gettime);
    int r = real(id, t);
    if (r != 0 || id != CLOCK_MONOTONIC || !file)
        return r;
    long long now = t->tv_sec * 1000000000ll + t->tv_nsec, none = 0;
    if (!since && stat(file, &st) == 0)
        atomic_compare_exchange_strong(&since, &none, now);
    if (since) {
        now += now - since;
        t->tv_sec = now / 1000000000;
        t->tv_nsec = now % 1000000000;
    }
    return r;
}

int mlock(const void *from, size_t n)
{
    REAL(mlock);
    if (getenv("PHONE_MLOCK")) {
        errno = ENOMEM;
        return -1;
    }
    return real(from, n);
}
