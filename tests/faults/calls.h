#ifndef TESTS_FAULTS_CALLS_H
#define TESTS_FAULTS_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/* Numbers of all that are traced, max at most. */
size_t calls_list(int *out, size_t max);
bool calls_has_fd(int nr);  /* the first argument is a descriptor */
bool calls_changes(int nr); /* it changes files (open where it creates: not told here) */

#endif
