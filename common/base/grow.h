#ifndef COMMON_BASE_GROW_H
#define COMMON_BASE_GROW_H

/* An array that grows by doubling. */
#include <stdlib.h>

/* Room for one more than n elements of `size` bytes in an array of *cap, which may be NULL and 0. Returns the array; NULL: no
 * memory, the old one stays as it is. */
static inline void *grow_room(void *at, int n, int *cap, size_t size)
{
    if (n < *cap)
        return at;
    int most = *cap ? 2 * *cap : 256;
    void *grown = realloc(at, (size_t)most * size);
    if (grown)
        *cap = most;
    return grown;
}

#endif
