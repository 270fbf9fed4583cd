/* For LD_PRELOAD: the allocation number NOMEM_AT fails; with NOMEM_ALL set all behind it too. At the end the number of
 * allocations goes to the file NOMEM_COUNT. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_long calls;
static long at = -1;
static int all, running; /* from main on: what libraries do when they are loaded is not the program's */

/* getenv allocates nothing. */
static int fails(void)
{
    if (!running)
        return 0;
    if (at < 0) {
        const char *text = getenv("NOMEM_AT");
        at = text ? atol(text) : 0;
        all = getenv("NOMEM_ALL") != NULL;
    }
    long n = ++calls;
    if (!at || (all ? n < at : n != at))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) { return fails() ? NULL : __libc_memalign(align, n); }
void *memalign(size_t align, size_t n) { return fails() ? NULL : __libc_memalign(align, n); }
int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = fails() ? NULL : __libc_memalign(align, n);
    return p ? (*out = p, 0) : ENOMEM;
}

static int (*real_main)(int, char **, char **);

static int watched_main(int argc, char **argv, char **env)
{
    running = 1;
    return real_main(argc, argv, env);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack)
{
    __typeof__(&__libc_start_main) next = (__typeof__(&__libc_start_main))dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return next(watched_main, argc, argv, init, fini, rtld_fini, stack);
}

__attribute__((destructor)) static void tell(void)
{
    running = 0;
    const char *name = getenv("NOMEM_COUNT");
    FILE *f = name ? fopen(name, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", (long)calls);
        fclose(f);
    }
}
