/* The library and its functions. An ICD loader answers for all drivers of the system, which are files that its package and theirs put
 * into /etc/OpenCL/vendors; this knows none of them. */
#include "common/opencl/opencl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROW(name) { "cl" #name, offsetof(struct opencl_api, name) }

static const struct { const char *name; size_t at; } rows[] = {
    ROW(GetPlatformIDs), ROW(GetPlatformInfo), ROW(GetDeviceIDs), ROW(GetDeviceInfo), ROW(CreateContext), ROW(ReleaseContext),
    ROW(CreateCommandQueue), ROW(ReleaseCommandQueue), ROW(CreateBuffer), ROW(ReleaseMemObject), ROW(CreateProgramWithSource),
    ROW(CreateProgramWithBinary), ROW(BuildProgram), ROW(GetProgramInfo), ROW(GetProgramBuildInfo), ROW(ReleaseProgram),
    ROW(CreateKernel), ROW(SetKernelArg), ROW(GetKernelWorkGroupInfo), ROW(ReleaseKernel), ROW(EnqueueReadBuffer),
    ROW(EnqueueWriteBuffer), ROW(EnqueueMapBuffer), ROW(EnqueueUnmapMemObject), ROW(EnqueueNDRangeKernel), ROW(GetEventInfo),
    ROW(ReleaseEvent), ROW(Flush), ROW(Finish),
};
_Static_assert(sizeof rows / sizeof rows[0] * sizeof(void *) == sizeof(struct opencl_api), "a row for each function");

static const char *const names[] = { "libOpenCL.so.1", "libOpenCL.so" };
/* Where Android has a vendor's, beyond the folders that names are looked for in. Only root writes there; whether a process may load it is
 * said by its linker's namespace: a shell's may, an app's where the vendor lists it as public. */
static const char *const vendors[] = { "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so", "/odm/lib64/libOpenCL.so",
                                       "/system/lib64/libOpenCL.so", "/vendor/lib64/egl/libGLES_mali.so", "/vendor/lib64/libPVROCL.so" };

int opencl_api_load(struct opencl_api *api, struct err *e)
{
    int refused = 0;
    void *lib = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof vendors / sizeof vendors[0] && !lib; i++) {
        if (access(vendors[i], F_OK) != 0)
            continue;
        lib = dlopen(vendors[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = lib ? NULL : dlerror();
        if (why && !refused++)
            err_set(e, ERR_INPUT, "the vendor's OpenCL is there, and this process may not or cannot load it: %.250s", why);
    }
    if (!lib && !refused)
        err_set(e, ERR_INPUT, "there is no OpenCL: neither libOpenCL.so.1 nor libOpenCL.so can be loaded");
    if (!lib)
        return refused ? ERR_INPUT : 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *f = dlsym(lib, rows[i].name);
        if (!f)
            return err_set(e, ERR_UNSUPPORTED, "the OpenCL library lacks %s, which is part of OpenCL 1.2", rows[i].name);
        memcpy((char *)api + rows[i].at, &f, sizeof f);
    }
    return 1;
}

const char *opencl_api_error(int32_t code, char *buf, size_t size)
{
    static const struct { int32_t code; const char *name; } known[] = {
        { -1, "CL_DEVICE_NOT_FOUND" }, { -2, "CL_DEVICE_NOT_AVAILABLE" }, { -3, "CL_COMPILER_NOT_AVAILABLE" },
        { -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE" }, { -5, "CL_OUT_OF_RESOURCES" }, { -6, "CL_OUT_OF_HOST_MEMORY" },
        { -11, "CL_BUILD_PROGRAM_FAILURE" }, { -13, "CL_MISALIGNED_SUB_BUFFER_OFFSET" },
        { -14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST" }, { -30, "CL_INVALID_VALUE" }, { -33, "CL_INVALID_DEVICE" },
        { -34, "CL_INVALID_CONTEXT" }, { -36, "CL_INVALID_COMMAND_QUEUE" }, { -37, "CL_INVALID_HOST_PTR" },
        { -38, "CL_INVALID_MEM_OBJECT" }, { -42, "CL_INVALID_BINARY" }, { -43, "CL_INVALID_BUILD_OPTIONS" },
        { -44, "CL_INVALID_PROGRAM" }, { -45, "CL_INVALID_PROGRAM_EXECUTABLE" }, { -46, "CL_INVALID_KERNEL_NAME" },
        { -48, "CL_INVALID_KERNEL" }, { -49, "CL_INVALID_ARG_INDEX" }, { -50, "CL_INVALID_ARG_VALUE" },
        { -51, "CL_INVALID_ARG_SIZE" }, { -52, "CL_INVALID_KERNEL_ARGS" }, { -54, "CL_INVALID_WORK_GROUP_SIZE" },
        { -55, "CL_INVALID_WORK_ITEM_SIZE" }, { -61, "CL_INVALID_BUFFER_SIZE" }, { -1001, "CL_PLATFORM_NOT_FOUND_KHR" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].code == code)
            return known[i].name;
    snprintf(buf, size, "OpenCL error %d", code);
    return buf;
}
