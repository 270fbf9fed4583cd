/* For LD_PRELOAD: while the file SLOW_GATE is there each pread waits SLOW_MS: a drive so slow that a pass takes seconds. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_a_little(void)
{
    const char *gate = getenv("SLOW_GATE"), *ms = getenv("SLOW_MS");
    if (!gate || !ms || access(gate, F_OK) < 0)
        return;
    long n = atol(ms);
    const struct timespec t = { .tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    wait_a_little();
    return real(fd, to, n, at);
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    return pread(fd, to, n, at);
}
