#ifndef COMMON_ENGINES_ENGINES_H
#define COMMON_ENGINES_ENGINES_H

/* Which back ends of accelerators there are, and the names of engines: "none", "opencl" (the first GPU, or else the first device),
 * "opencl:N" (device N, as `thermo-run engines` lists them). Options, plans and hardware databases hold them. */
#include "common/accel/accel.h"

/* The i-th back end, or NULL. */
const struct accel_backend *engines_backend(int i);

/* *out: the back end that a name has, NULL for none; *device: N, or -1. -1: no such name. text NULL: none. */
int engines_find(const char *text, const struct accel_backend **out, int *device);

/* The same for an option: ERR_USAGE names it and what there is. */
int engines_parse(const char *option, const char *text, const struct accel_backend **out, int *device, struct err *e);

#endif
