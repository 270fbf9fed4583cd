#ifndef PLANNER_HEAP_H
#define PLANNER_HEAP_H

/* Planning makes and frees the same tables, and Z3 the same contexts, again and again. glibc gives what is freed at the heap's end, and
 * what is large, back to the system at once, and the next table is made of new, zeroed pages: a third of the time of programs that
 * plan often. Called first in main: up to 256 MiB of what is freed stay the program's. */
#include <malloc.h>

static inline void heap_keep(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

#endif
