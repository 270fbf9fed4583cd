#ifndef COMMON_BASE_MACHINE_H
#define COMMON_BASE_MACHINE_H

/* What the machine says about this process's memory. Nothing here allocates. 0: not known. */
#include <stdint.h>

uint64_t machine_peak_bytes(void);      /* VmHWM: largest resident set so far */
uint64_t machine_resident_bytes(void);  /* VmRSS: resident set now */
uint64_t machine_arguments_bytes(void); /* of the command line and the environment */
uint64_t machine_free_bytes(void);      /* MemAvailable */
uint64_t machine_group_bytes(void);     /* the limit of this process's cgroup (v1 or v2) */
uint64_t machine_available_bytes(void); /* the smaller of MemAvailable and this process's cgroup limit */
int machine_cpus(void);                 /* CPUs this process may run on */

/* After start-up has parsed its inputs, before the arena is touched: give back freed heap, and pages of code and constants, which
 * the program takes again from its file where it needs them. Otherwise code that only start-up runs, and what the kernel maps
 * around it, would count beside the account (BUDGET_PROCESS). A program that is traced keeps its code. */
void machine_trim(void);
/* Before anything allocates: one heap, and large blocks from mmap, so that freeing returns them. */
void machine_tune(void);

#endif
