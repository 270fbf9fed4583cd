/* Preloaded into a program: makes its N-th allocation since main fail, once or from then on. Counted are malloc, calloc,
 * realloc, posix_memalign, aligned_alloc, memalign and anonymous mmap, called by the program or by any library, libc among
 * them (strdup, fopen, qsort); what libc maps for itself (thread stacks, its own heap) is a system call, which the
 * harness makes fail by other means. */
#include "tests/faults/shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
int __libc_start_main(int (*main_)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

static struct shim_shared *shared; /* NULL: nothing is counted yet */
static __thread int inside __attribute__((tls_model("initial-exec")));

struct walk {
    int n, skip;
    uintptr_t pc[SHIM_FRAMES];
};

static _Unwind_Reason_Code step(struct _Unwind_Context *c, void *arg)
{
    struct walk *w = arg;
    uintptr_t pc = _Unwind_GetIP(c);
    if (w->skip-- > 0)
        return _URC_NO_REASON;
    if (!pc || w->n == SHIM_FRAMES)
        return _URC_END_OF_STACK;
    w->pc[w->n++] = pc - 1; /* within the call */
    return _URC_NO_REASON;
}

static void keep_stack(int64_t call)
{
    struct walk w = { .skip = 3 };
    uint32_t h = 2166136261u;
    if (call >= SHIM_CALLS)
        return;
    _Unwind_Backtrace(step, &w);
    for (int i = 0; i < w.n && i < 12; i++)
        for (size_t k = 0; k < sizeof w.pc[i]; k++)
            h = (h ^ (w.pc[i] >> 8 * k & 0xff)) * 16777619u;
    shared->stacks[call] = h ? h : 1;
}

static void keep_frames(void)
{
    struct walk w = { .skip = 3 };
    _Unwind_Backtrace(step, &w);
    for (int i = 0; i < w.n; i++) {
        Dl_info info;
        struct shim_frame *f = &shared->frames[i];
        if (!dladdr((void *)w.pc[i], &info) || !info.dli_fname)
            continue;
        const char *slash = strrchr(info.dli_fname, '/');
        strncpy(f->module, slash ? slash + 1 : info.dli_fname, sizeof f->module - 1);
        f->offset = w.pc[i] - (uintptr_t)info.dli_fbase;
    }
    shared->n_frames = w.n;
}

/* true: this allocation fails */
static bool __attribute__((noinline)) fails(void)
{
    if (!shared || inside)
        return false;
    inside = 1;
    int64_t call = atomic_fetch_add(&shared->calls, 1);
    bool first = call == shared->at;
    if (shared->at < 0)
        keep_stack(call);
    else if (first)
        keep_frames();
    bool f = first || (shared->at >= 0 && shared->on && call > shared->at);
    inside = 0;
    if (f)
        errno = ENOMEM;
    return f;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (fails())
        return ENOMEM;
    void *p = __libc_memalign(align, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    if (flags & MAP_ANONYMOUS && fails())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    return mmap(addr, len, prot, flags, fd, offset);
}

/* Counting starts with main: what happens before is the loader's. */
static int (*real_main)(int, char **, char **);

void __register_frame(void *begin);

/* The tables of .debug_frame (32-bit DWARF) as those of .eh_frame: CIEs have the number 0, FDEs the distance to theirs and addresses as the
 * program has been loaded. What was left out of it is at 0 in both. A length of 0 ends them. */
static void *as_eh_frame(const uint8_t *from, size_t bytes, uint64_t base)
{
    uint8_t *to = mmap(NULL, bytes + 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return NULL;
    memcpy(to, from, bytes);
    for (size_t at = 0; at + 16 <= bytes;) {
        uint32_t length, id;
        uint64_t pc;
        memcpy(&length, to + at, 4);
        memcpy(&id, to + at + 4, 4);
        memcpy(&pc, to + at + 8, 8);
        const int is_cie = id == UINT32_MAX;
        id = is_cie ? 0 : (uint32_t)(at + 4 - id);
        pc += is_cie || !pc ? 0 : base;
        memcpy(to + at + 4, &id, 4);
        memcpy(to + at + 8, &pc, 8);
        at += length + 4;
    }
    return to;
}

/* Programs have no tables for unwinding in memory (scripts/harden.mk): those of their debug information are registered instead. */
static void register_frames(void)
{
    struct stat st;
    Dl_info info;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !dladdr((void *)(uintptr_t)real_main, &info))
        return;
    const uint8_t *f = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (f == MAP_FAILED)
        return;
    const Elf64_Ehdr *h = (const void *)f;
    const Elf64_Shdr *s = (const void *)(f + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        void *frames = NULL;
        if (!strcmp((const char *)f + s[h->e_shstrndx].sh_offset + s[i].sh_name, ".debug_frame") && !(s[i].sh_flags & SHF_COMPRESSED))
            frames = as_eh_frame(f + s[i].sh_offset, s[i].sh_size, (uint64_t)(uintptr_t)info.dli_fbase);
        if (frames)
            __register_frame(frames);
    }
    munmap((void *)(uintptr_t)f, (size_t)st.st_size);
}

static int counted_main(int argc, char **argv, char **env)
{
    const char *path = getenv("FAULT_SHARED");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        long p = syscall(SYS_mmap, NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        struct walk warm = { .skip = 0 };
        register_frames();
        _Unwind_Backtrace(step, &warm); /* what it sets up once is not the program's */
        if (p != -1)
            shared = (struct shim_shared *)p;
    }
    return real_main(argc, argv, env);
}

int __libc_start_main(int (*main_)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    __typeof__(__libc_start_main) *next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main_;
    return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
