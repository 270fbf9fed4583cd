#ifndef COMMON_BASE_GROW_H
#define COMMON_BASE_GROW_H

/* An array that grows by doubling. */
#include <stdlib.h>
#include <string.h>

/* Room for one more than n elements of `size` bytes in the array that `array` points to, of *cap, NULL and 0 at first. 0: no memory, and
 * the array stays as it is. */
static inline int grow_array(void *array, int n, int *cap, size_t size)
{
    void *at;
    int most = *cap ? 2 * *cap : 256;
    if (n < *cap)
        return 1;
    memcpy(&at, array, sizeof at);
    if (!(at = realloc(at, (size_t)most * size)))
        return 0;
    memcpy(array, &at, sizeof at);
    *cap = most;
    return 1;
}
#define grow_room(array, n, cap) grow_array(&(array), n, &(cap), sizeof *(array))

#endif
