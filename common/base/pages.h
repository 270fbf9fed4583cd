#ifndef COMMON_BASE_PAGES_H
#define COMMON_BASE_PAGES_H

/* Anonymous memory in huge pages where the system has them. What the engine reads into and what the probes measure is mapped by this one
 * function, so that figures are of the memory that a run has: into pages of 4 KiB a paravirtual drive reads blocks of 64 KiB at a
 * fifth to a half of its rate. Linux, Documentation/admin-guide/mm/transhuge.rst. */
#include <stddef.h>
#include <stdint.h>

/* Bytes of a huge page as the kernel has them (2 MiB on x86-64); 0: it has none, or does not say. Thread-safe. */
size_t pages_huge_size(void);

/* Bytes of a small page: 4 KiB, 16 KiB or 64 KiB; and the least multiple of that which is at least bytes. */
size_t pages_small_size(void);
uint64_t pages_up(uint64_t bytes);

/* Maps bytes > 0, zeroed and not yet there: a page appears when it is touched. Of at least one huge page the mapping begins at the boundary
 * of one and asks for them; the kernel may still give small ones (none are left, a cgroup is full, they are off), and what lies past the
 * last whole one is in small pages. NULL, with errno, where nothing can be mapped. Goes by munmap(). */
void *pages_map(size_t bytes);

/* Bytes of a page of the kind that at least half of [at, at + bytes), a mapping of pages_map() that was touched, is in; 0 where the kernel
 * does not tell. */
size_t pages_size(const void *at, size_t bytes);

#endif
