#ifndef RUNTIME_THERMO_ARGS_H
#define RUNTIME_THERMO_ARGS_H

/* Options of the library as the command line that they are. */
#include "runtime/generate.h"
#include "runtime/thermo.h"

/* Into a, which points to *words, malloc'd, also where it fails; a seed that is not given is drawn. */
int thermo_args(const struct thermo_options *o, struct generate_args *a, char **words, struct err *e);

#endif
