#ifndef COMMON_OPENCL_OPENCL_H
#define COMMON_OPENCL_OPENCL_H

/* OpenCL 1.2 devices behind common/accel/accel.h. The library, libOpenCL.so.1, is looked for when list or open is called: without it there
 * are no devices, which is no error of list. It stays loaded until the process ends, for drivers have threads of their own. */
#include "common/accel/accel.h"

extern const struct accel_backend opencl_backend;

#endif
