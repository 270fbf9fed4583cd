#ifndef RUNTIME_OPENCL_OPENCL_H
#define RUNTIME_OPENCL_OPENCL_H

/* OpenCL 1.2 devices behind runtime/accel/accel.h. The library, libOpenCL.so.1, is looked for when list or open is called: without it there
 * are no devices, which is no error of list. It stays loaded until the process ends, for drivers have threads of their own. */
#include "runtime/accel/accel.h"

extern const struct accel_backend opencl_backend;

#endif
