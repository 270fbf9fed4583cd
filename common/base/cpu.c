/* Processor features. A tier counts only when both the processor has its instructions and the
 * kernel saves its registers. Everything else comes from /proc and /sys and degrades to "unknown":
 * containers and phones often hide these files. */
#include "common/base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1UL << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1UL << 13)
#endif
#endif

static const char *const tier_names[CPU_TIERS] = {
    [CPU_SCALAR] = "scalar",
    [CPU_AVX2] = "avx2",
    [CPU_AVXVNNI] = "avxvnni",
    [CPU_AVX512] = "avx512",
    [CPU_AMX] = "amx",
    [CPU_NEON] = "neon",
    [CPU_DOTPROD] = "dotprod",
    [CPU_I8MM] = "i8mm",
};

const char *cpu_tier_name(enum cpu_tier t)
{
    return (unsigned)t < CPU_TIERS ? tier_names[t] : "unknown";
}

#if defined(__x86_64__)
#define AMX_BITS   (1u << 24 | 1u << 25) /* AMX-TILE and AMX-INT8: leaf 7, EDX */
#define XCR0_TILES (3u << 17)

/* Tiles of sixteen rows of 64 bytes, eight of them, and the kernel lets this process use them: their state is so large that Linux
 * has it asked for, once. Threads and children may, too. */
static int tiles_allowed(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) || b >> 16 < 8 || (b & 0xffff) < 64 || (c & 0xffff) < 16)
        return 0;
    return syscall(SYS_arch_prctl, REQUEST, DATA) == 0;
}
#endif

unsigned cpu_detect(void)
{
    unsigned mask = 1u << CPU_SCALAR;
#if defined(__x86_64__)
    unsigned a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return mask;
    unsigned lo, hi;
    __asm__ volatile("xgetbv"
                     : "=a"(lo), "=d"(hi)
                     : "c"(0));
    (void)hi;
    if ((lo & 0x06) != 0x06 || !(c & bit_AVX) || !(c & bit_FMA) || !(c & bit_F16C) ||
        !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 & bit_AVX2))
        return mask;
    mask |= 1u << CPU_AVX2;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4) /* AVX-VNNI */
        mask |= 1u << CPU_AVXVNNI;
    const unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((lo & 0xe6) == 0xe6 && (b7 & need) == need && (c7 & bit_AVX512VNNI))
        mask |= 1u << CPU_AVX512;
    if (mask & 1u << CPU_AVX512 && (d7 & AMX_BITS) == AMX_BITS && (lo & XCR0_TILES) == XCR0_TILES && tiles_allowed())
        mask |= 1u << CPU_AMX;
#elif defined(__aarch64__)
    mask |= 1u << CPU_NEON;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        mask |= 1u << CPU_DOTPROD;
    if (mask & 1u << CPU_DOTPROD && getauxval(AT_HWCAP2) & HWCAP2_I8MM)
        mask |= 1u << CPU_I8MM;
#endif
    return mask;
}

int cpu_parse(const char *text, unsigned *out, struct err *e)
{
    unsigned have = cpu_detect();
    if (!strcmp(text, "auto")) {
        *out = have;
        return 0;
    }
    for (int t = 0; t < CPU_TIERS; t++) {
        if (strcmp(text, tier_names[t]))
            continue;
        if (!(have & 1u << t))
            return err_set(e, ERR_USAGE, "cpu tier '%s': this machine does not have it", text);
        *out = have & ((2u << t) - 1); /* tiers are numbered so that "below" is "smaller" */
        return 0;
    }
    return err_set(e, ERR_USAGE,
                   "cpu tier '%s': expected auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod or i8mm", text);
}

/* The value of "key : value" when line is that key's. */
static const char *field(const char *line, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(line, key, n))
        return NULL;
    line += n;
    line += strspn(line, " \t");
    return *line == ':' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

void cpu_model_name(char *out, size_t len)
{
    static const char *const keys[] = { "model name", "Hardware", "Model", "CPU part" };
    char line[512];
    size_t best = sizeof keys / sizeof *keys;
    snprintf(out, len, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return;
    while (best > 0 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        for (size_t k = 0; k < best; k++) { /* an earlier key says more */
            const char *v = field(line, keys[k]);
            if (!v || !*v)
                continue;
            snprintf(out, len, "%s%s", k == 3 ? "ARM part " : "", v);
            best = k;
        }
    }
    fclose(f);
}

int cpu_allowed(int *cpus, int max)
{
    /* The kernel refuses a set smaller than its own mask: grow until it fits. */
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        size_t size = CPU_ALLOC_SIZE((size_t)bits);
        if (!set)
            break;
        if (sched_getaffinity(0, size, set) == 0) {
            int n = 0;
            for (int i = 0; i < bits && n < max; i++)
                if (CPU_ISSET_S((size_t)i, size, set))
                    cpus[n++] = i;
            CPU_FREE(set);
            return n;
        }
        CPU_FREE(set);
    }
    if (max > 0)
        cpus[0] = 0;
    return max > 0 ? 1 : 0;
}

/* A number of sysfs about a CPU, 0 when the machine does not say. */
static uint64_t figure_of(int cpu, const char *file)
{
    char path[96];
    unsigned long long v = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    char text[32];
    if (fgets(text, sizeof text, f))
        v = strtoull(text, NULL, 10);
    fclose(f);
    return v;
}

struct kind {
    uint64_t capacity, khz;
    int at; /* index into cpus */
};

/* The most capacity first, then the fastest clock. */
static int by_speed(const void *a, const void *b)
{
    const struct kind *x = a, *y = b;
    if (x->capacity != y->capacity)
        return x->capacity < y->capacity ? 1 : -1;
    if (x->khz != y->khz)
        return x->khz < y->khz ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static int differs(uint64_t top, uint64_t v)
{
    return v < top - top / 10;
}

int cpu_classes(const int *cpus, int n, int *class_of, uint64_t *max_hz)
{
    int classes = 0;
    struct kind *all = calloc((size_t)n, sizeof *all), top = { 0 };
    for (int i = 0; i < n && all; i++)
        all[i] = (struct kind){ figure_of(cpus[i], "cpu_capacity"), figure_of(cpus[i], "cpufreq/cpuinfo_max_freq"), i };
    for (int i = 0; i < n && all; i++)
        if (!all[i].capacity) /* one that is silent about it is not the slowest */
            for (int k = 0; k < n; k++)
                all[k].capacity = 0;
    if (all)
        qsort(all, (size_t)n, sizeof *all, by_speed);
    for (int i = 0; i < n; i++) {
        const struct kind *k = all ? &all[i] : &(struct kind){ .at = i };
        if (classes == 0 || (classes < CPU_MAX_CLASSES && (differs(top.capacity, k->capacity) || differs(top.khz, k->khz)))) {
            top = *k;
            max_hz[classes++] = k->khz > UINT64_MAX / 1000 ? 0 : k->khz * 1000;
        }
        class_of[k->at] = classes - 1;
    }
    free(all);
    return classes;
}
