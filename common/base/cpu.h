#ifndef COMMON_BASE_CPU_H
#define COMMON_BASE_CPU_H

/* What this processor has. x86 checks CPUID and XGETBV (the OS must save the registers too);
 * aarch64 asks getauxval. */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum cpu_tier { CPU_SCALAR, CPU_AVX2, CPU_AVXVNNI, CPU_AVX512, CPU_AMX, CPU_NEON, CPU_DOTPROD, CPU_I8MM, CPU_TIERS };

/* Bit 1 << tier for each tier that this machine can run; scalar always. */
unsigned cpu_detect(void);

/* Asks the processor every time: once before a loop, not in it. */
static inline int cpu_has(enum cpu_tier t)
{
    return (cpu_detect() >> t & 1) != 0;
}

/* "auto" gives cpu_detect(); "scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm" give that tier and
 * those below it. A tier this machine lacks is ERR_USAGE. */
int cpu_parse(const char *text, unsigned *out, struct err *e);
const char *cpu_tier_name(enum cpu_tier t);

/* Human text, "AMD EPYC 9xx5"; from /proc/cpuinfo. */
void cpu_model_name(char *out, size_t len);

/* CPUs this process may run on, ascending; returns how many (<= max). */
int cpu_allowed(int *cpus, int max);

/* Core classes, fastest first: by the kernel's capacity (cpu_capacity: work at the highest clock) where each CPU has one, and by maximum
 * frequency. Cores that differ by less than a tenth of both, as favoured ones do, are one class; a machine that tells neither is one class.
 * class_of[i] is 0 for the fastest class; max_hz[c] is the frequency of its fastest core, 0 where unknown.
 * class_of has room for n, max_hz for CPU_MAX_CLASSES. Returns the number of classes, 0 for none of n 0. */
#define CPU_MAX_CLASSES 16
int cpu_classes(const int *cpus, int n, int *class_of, uint64_t *max_hz);

#endif
