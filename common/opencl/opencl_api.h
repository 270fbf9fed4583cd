#ifndef COMMON_OPENCL_OPENCL_API_H
#define COMMON_OPENCL_OPENCL_API_H

/* The part of the OpenCL 1.2 interface that is used (Khronos OpenCL Working Group, The OpenCL Specification, version 1.2, revision
 * 19): declared here, so that building needs no package, and found by dlopen, so that running does not either. Names are those of the
 * specification without "cl" and "CL_". */
#include "common/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct opencl_platform *opencl_platform_id;
typedef struct opencl_dev *opencl_device_id;
typedef struct opencl_ctx *opencl_context;
typedef struct opencl_q *opencl_queue;
typedef struct opencl_buf *opencl_mem;
typedef struct opencl_prog *opencl_program_id;
typedef struct opencl_kern *opencl_kernel;
typedef struct opencl_ev *opencl_event;

enum {
    OPENCL_SUCCESS = 0, OPENCL_DEVICE_NOT_FOUND = -1, OPENCL_OUT_OF_RESOURCES = -5, OPENCL_PLATFORM_NOT_FOUND_KHR = -1001,
    OPENCL_PLATFORM_VERSION = 0x0901, OPENCL_PLATFORM_NAME = 0x0902, OPENCL_CONTEXT_PLATFORM = 0x1084,
    OPENCL_DEVICE_TYPE = 0x1000, OPENCL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, OPENCL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    OPENCL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005, OPENCL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, OPENCL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    OPENCL_DEVICE_LOCAL_MEM_SIZE = 0x1023, OPENCL_DEVICE_ENDIAN_LITTLE = 0x1026, OPENCL_DEVICE_AVAILABLE = 0x1027,
    OPENCL_DEVICE_COMPILER_AVAILABLE = 0x1028, OPENCL_DEVICE_NAME = 0x102B, OPENCL_DRIVER_VERSION = 0x102D,
    OPENCL_DEVICE_VERSION = 0x102F, OPENCL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    OPENCL_PROGRAM_BINARY_SIZES = 0x1165, OPENCL_PROGRAM_BINARIES = 0x1166, OPENCL_PROGRAM_BUILD_LOG = 0x1183,
    OPENCL_KERNEL_WORK_GROUP_SIZE = 0x11B0, OPENCL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3
};
enum { OPENCL_TYPE_CPU = 1 << 1, OPENCL_TYPE_GPU = 1 << 2, OPENCL_TYPE_ACCELERATOR = 1 << 3 };
#define OPENCL_TYPE_ALL 0xFFFFFFFFu
enum { OPENCL_MEM_READ_WRITE = 1, OPENCL_MEM_READ_ONLY = 4, OPENCL_MEM_USE_HOST_PTR = 8, OPENCL_MEM_ALLOC_HOST_PTR = 16 };
enum { OPENCL_MAP_READ = 1, OPENCL_MAP_WRITE = 2 };

struct opencl_api {
    int32_t (*GetPlatformIDs)(uint32_t, opencl_platform_id *, uint32_t *);
    int32_t (*GetPlatformInfo)(opencl_platform_id, uint32_t, size_t, void *, size_t *);
    int32_t (*GetDeviceIDs)(opencl_platform_id, uint64_t, uint32_t, opencl_device_id *, uint32_t *);
    int32_t (*GetDeviceInfo)(opencl_device_id, uint32_t, size_t, void *, size_t *);
    opencl_context (*CreateContext)(const intptr_t *, uint32_t, const opencl_device_id *,
                                    void (*)(const char *, const void *, size_t, void *), void *, int32_t *);
    int32_t (*ReleaseContext)(opencl_context);
    opencl_queue (*CreateCommandQueue)(opencl_context, opencl_device_id, uint64_t, int32_t *);
    int32_t (*ReleaseCommandQueue)(opencl_queue);
    opencl_mem (*CreateBuffer)(opencl_context, uint64_t, size_t, void *, int32_t *);
    int32_t (*ReleaseMemObject)(opencl_mem);
    opencl_program_id (*CreateProgramWithSource)(opencl_context, uint32_t, const char **, const size_t *, int32_t *);
    opencl_program_id (*CreateProgramWithBinary)(opencl_context, uint32_t, const opencl_device_id *, const size_t *,
                                                 const unsigned char **, int32_t *, int32_t *);
    int32_t (*BuildProgram)(opencl_program_id, uint32_t, const opencl_device_id *, const char *, void (*)(opencl_program_id, void *),
                            void *);
    int32_t (*GetProgramInfo)(opencl_program_id, uint32_t, size_t, void *, size_t *);
    int32_t (*GetProgramBuildInfo)(opencl_program_id, opencl_device_id, uint32_t, size_t, void *, size_t *);
    int32_t (*ReleaseProgram)(opencl_program_id);
    opencl_kernel (*CreateKernel)(opencl_program_id, const char *, int32_t *);
    int32_t (*SetKernelArg)(opencl_kernel, uint32_t, size_t, const void *);
    int32_t (*GetKernelWorkGroupInfo)(opencl_kernel, opencl_device_id, uint32_t, size_t, void *, size_t *);
    int32_t (*ReleaseKernel)(opencl_kernel);
    int32_t (*EnqueueReadBuffer)(opencl_queue, opencl_mem, uint32_t, size_t, size_t, void *, uint32_t, const opencl_event *,
                                 opencl_event *);
    int32_t (*EnqueueWriteBuffer)(opencl_queue, opencl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const opencl_event *,
                                  opencl_event *);
    void *(*EnqueueMapBuffer)(opencl_queue, opencl_mem, uint32_t, uint64_t, size_t, size_t, uint32_t, const opencl_event *, opencl_event *,
                              int32_t *);
    int32_t (*EnqueueUnmapMemObject)(opencl_queue, opencl_mem, void *, uint32_t, const opencl_event *, opencl_event *);
    int32_t (*EnqueueNDRangeKernel)(opencl_queue, opencl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                                    const opencl_event *, opencl_event *);
    int32_t (*GetEventInfo)(opencl_event, uint32_t, size_t, void *, size_t *);
    int32_t (*ReleaseEvent)(opencl_event);
    int32_t (*Flush)(opencl_queue);
    int32_t (*Finish)(opencl_queue);
};

/* 1: there it is; 0: there is no library (e says what was looked for); ERR_UNSUPPORTED: one that lacks a function. */
int opencl_api_load(struct opencl_api *api, struct err *e);

/* "CL_OUT_OF_RESOURCES", or the number. */
const char *opencl_api_error(int32_t code, char *buf, size_t size);

#endif
