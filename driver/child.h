#ifndef DRIVER_CHILD_H
#define DRIVER_CHILD_H

/* The programs as child processes: one at a time, in a process group of its own, so that an interrupt reaches it once, through us. What it
 * prints comes by a pipe: with -v it is talk as it comes, else its warnings alone, and all of its end where it fails. */
#include "common/base/err.h"
#include "driver/bar.h"

#include <stddef.h>

/* A command line that grows; a failed allocation shows when it is run. words_done frees it. */
struct words {
    char **w;
    int n, room, starved;
};
void words_add(struct words *a, const char *word);
void words_add2(struct words *a, const char *option, const char *value); /* nothing where value is NULL */
void words_add_split(struct words *a, const char *text);                 /* at blanks; NULL: nothing */
void words_done(struct words *a);

/* As one would type them, to out, which is cut. Returns out. */
char *words_quoted(const struct words *a, char *out, size_t cap);
char *words_quoted_one(const char *word, char *out, size_t cap);

/* Run it; *status is its exit status, 128 and its number after a signal. ERR_INTR where we were asked to stop meanwhile: so was it. */
int child_run(const struct words *a, struct bar *bar, int *status, struct err *e);

/* Its standard output, malloc'd, NUL behind it; up to cap bytes of its messages to says. */
int child_read(const struct words *a, char **out, size_t *len, char *says, size_t cap, int *status, struct err *e);

/* Become it. Returns only where that fails. */
int child_become(const struct words *a, struct err *e);

#endif
