#ifndef RUNTIME_THERMO_IMPL_H
#define RUNTIME_THERMO_IMPL_H

/* What callers of the library give: structures that grow, and options as the command line that they are. */
#include "runtime/generate.h"
#include "runtime/thermo.h"

/* Into a, which points to *words, malloc'd, also where it fails; a seed that is not given is drawn. */
int thermo_args(const struct thermo_options *o, struct generate_args *a, char **words, struct err *e);

/* A caller's structure, which may be shorter than ours: at least `least` bytes. */
int thermo_take(void *to, size_t most, const void *from, size_t least, const char *name, struct err *e);

#endif
