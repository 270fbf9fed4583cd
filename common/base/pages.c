/* A mapping is made larger by a huge page than asked for, and what lies before the first boundary and behind the end goes back at
 * once. What the kernel gave is in /proc/self/smaps: AnonHugePages of each mapping. Neighbouring mappings of the same kind are one
 * there, so that a caller's range is looked for by its addresses, and what a merged mapping has beyond the range counts as the
 * range's. */
#include "common/base/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_SIZE_FILE "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
#define HUGE_MOST      ((size_t)1 << 30)

size_t pages_huge_size(void)
{
    size_t size = 0;
    FILE *f = fopen(HUGE_SIZE_FILE, "re");
    if (!f)
        return 0;
    char text[32];
    if (fgets(text, sizeof text, f))
        size = strtoull(text, NULL, 10);
    if (size > HUGE_MOST || (size & (size - 1)))
        size = 0;
    fclose(f);
    return size;
}

size_t pages_small_size(void)
{
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}

uint64_t pages_up(uint64_t bytes)
{
    uint64_t page = pages_small_size();
    return (bytes + page - 1) / page * page;
}

void *pages_map(size_t bytes)
{
    size_t huge = pages_huge_size(), more = huge && bytes >= huge ? huge : 0;
    if (more > SIZE_MAX - bytes)
        more = 0;
    uint8_t *m = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED || !more)
        return m == MAP_FAILED ? NULL : m;
    size_t before = (huge - (uintptr_t)m % huge) % huge;
    if (before)
        munmap(m, before);
    m += before;
    size_t end = (size_t)pages_up(bytes);
    if (end < bytes + more - before)
        munmap(m + end, bytes + more - before - end);
    madvise(m, bytes, MADV_HUGEPAGE);
    return m;
}

size_t pages_size(const void *at, size_t bytes)
{
    char line[512], *end;
    unsigned long long a, b, kib, huge = 0, from = 0, to = 0, first = (uintptr_t)at, last = first + bytes;
    int stated = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    while (f && fgets(line, sizeof line, f)) {
        a = strtoull(line, &end, 16);
        b = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
        if (end > line && *end == ' ' && b > a) {
            from = a;
            to = b;
        } else if (from < last && first < to && strncmp(line, "AnonHugePages:", 14) == 0) {
            kib = strtoull(line + 14, NULL, 10);
            huge += kib << 10;
            stated = 1;
        }
    }
    if (f)
        fclose(f);
    return !stated ? 0 : huge >= bytes / 2 + bytes % 2 ? pages_huge_size() : pages_small_size();
}
