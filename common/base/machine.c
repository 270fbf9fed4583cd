/* /proc and the cgroup file systems, read with plain system calls into small buffers, because figures
 * are also taken between tokens. */
#include "common/base/machine.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int read_text(const char *path, char *out, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    if (fd < 0)
        return -1;
    for (ssize_t k; n + 1 < len && (k = read(fd, out + n, len - 1 - n)) > 0;)
        n += (size_t)k;
    out[n] = 0;
    close(fd);
    return 0;
}

/* "Key:   123 kB" in bytes. */
static uint64_t field_kb(const char *path, const char *key)
{
    char text[4096], *at;
    if (read_text(path, text, sizeof text) < 0 || !(at = strstr(text, key)))
        return 0;
    return strtoull(at + strlen(key), NULL, 10) * 1024;
}

uint64_t machine_peak_bytes(void)
{
    return field_kb("/proc/self/status", "VmHWM:");
}

uint64_t machine_resident_bytes(void)
{
    return field_kb("/proc/self/status", "VmRSS:");
}

uint64_t machine_arguments_bytes(void)
{
    enum { FIRST = 48 - 2 }; /* arg_start of proc_pid_stat(5), whose second is the name, then arg_end, env_start, env_end */
    char text[2048], *at;
    uint64_t v[4] = { 0 };
    if (read_text("/proc/self/stat", text, sizeof text) < 0 || !(at = strrchr(text, ')')))
        return 0;
    for (int i = 0; at && i < FIRST + 4; i++, at = strchr(at + 1, ' '))
        if (i >= FIRST)
            v[i - FIRST] = strtoull(at + 1, NULL, 10);
    return v[1] - v[0] + v[3] - v[2];
}

static uint64_t limit_at(const char *base, const char *dir, const char *file)
{
    char path[1024], text[64];
    snprintf(path, sizeof path, "%s%s/%s", base, dir, file);
    if (read_text(path, text, sizeof text) < 0 || !strncmp(text, "max", 3))
        return 0;
    uint64_t v = strtoull(text, NULL, 10);
    return v >= (uint64_t)1 << 60 ? 0 : v; /* v1 writes "no limit" as a huge number */
}

/* This process's own group; a limit of a parent shows there in v1 only, so v2 climbs. */
uint64_t machine_group_bytes(void)
{
    char text[4096], dir[512];
    uint64_t best = 0;
    if (read_text("/proc/self/cgroup", text, sizeof text) < 0)
        return 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second)
            continue;
        int v2 = second == first + 1, memory = strncmp(first + 1, "memory:", 7) == 0;
        if (!v2 && !memory)
            continue;
        snprintf(dir, sizeof dir, "%s", second + 1);
        for (;;) {
            uint64_t v = v2 ? limit_at("/sys/fs/cgroup", dir, "memory.max")
                            : limit_at("/sys/fs/cgroup/memory", dir, "memory.limit_in_bytes");
            best = v && (!best || v < best) ? v : best;
            char *slash = strrchr(dir, '/');
            if (!slash || !dir[0])
                break;
            *slash = 0;
        }
    }
    return best;
}

uint64_t machine_free_bytes(void)
{
    return field_kb("/proc/meminfo", "MemAvailable:");
}

uint64_t machine_available_bytes(void)
{
    uint64_t free_bytes = machine_free_bytes(), limit = machine_group_bytes();
    return limit && (!free_bytes || limit < free_bytes) ? limit : free_bytes;
}

int machine_cpus(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

void machine_tune(void)
{
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    mallopt(M_TRIM_THRESHOLD, 64 * 1024);
#endif
}

/* Pages of a program's or library's file that nothing writes: code and constants. Segments with PF_W have relocated data. */
static int drop_code(struct dl_phdr_info *info, size_t size, void *data)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    (void)size, (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || p->p_flags & PF_W)
            continue;
        uintptr_t from = (info->dlpi_addr + p->p_vaddr + page) & ~page;
        uintptr_t to = (info->dlpi_addr + p->p_vaddr + p->p_filesz) & ~page;
        if (from < to)
            madvise((void *)from, to - from, MADV_DONTNEED); /* refused, they stay */
    }
    return 0;
}

void machine_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    if (!field_kb("/proc/self/status", "TracerPid:")) /* a debugger's breakpoints are changes of these pages */
        dl_iterate_phdr(drop_code, NULL);
}
