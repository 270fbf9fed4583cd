/* Devices, as their drivers describe them. What a driver says is text and numbers of somebody else's: text is cut and cleaned, numbers
 * that do not come are 0, and a device without what is needed is listed but not used. */
#include "common/opencl/opencl_impl.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PLATFORMS 16

static void clean(char *s, size_t size)
{
    s[size - 1] = 0;
    for (; *s; s++)
        if (*s < 0x20 || *s > 0x7e)
            *s = '?';
}

static void text_of(const struct opencl_api *api, opencl_device_id id, uint32_t what, char *out)
{
    char all[1024] = "";
    size_t n = 0;
    if (api->GetDeviceInfo(id, what, sizeof all - 1, all, &n) != OPENCL_SUCCESS)
        memcpy(all, "?", 2);
    memcpy(out, all, ACCEL_NAME);
    clean(out, ACCEL_NAME);
}

static uint64_t number_of(const struct opencl_api *api, opencl_device_id id, uint32_t what, size_t size)
{
    uint64_t v = 0;
    size_t n = 0;
    return api->GetDeviceInfo(id, what, size, &v, &n) == OPENCL_SUCCESS && n == size ? v : 0;
}

/* "OpenCL 1.2 ..." and later. */
static int is_new(const char *version)
{
    int major, minor;
    char *end;
    if (strncmp(version, "OpenCL ", 7))
        return 0;
    major = (int)strtol(version + 7, &end, 10);
    minor = *end == '.' ? (int)strtol(end + 1, NULL, 10) : 0;
    return major > 1 || (major == 1 && minor >= 2);
}

static void look(const struct opencl_api *api, opencl_platform_id platform, opencl_device_id id, struct opencl_devices *out)
{
    struct accel_device d = { .kind = "other" };
    char name[1024] = "?";
    size_t n = 0, sizes[3] = { 0 };
    int at = out->n++;
    api->GetPlatformInfo(platform, OPENCL_PLATFORM_NAME, sizeof name - 1, name, &n);
    memcpy(d.platform, name, ACCEL_NAME);
    clean(d.platform, ACCEL_NAME);
    text_of(api, id, OPENCL_DEVICE_NAME, d.name);
    text_of(api, id, OPENCL_DRIVER_VERSION, d.driver);
    text_of(api, id, OPENCL_DEVICE_VERSION, d.version);
    uint64_t type = number_of(api, id, OPENCL_DEVICE_TYPE, 8);
    d.kind = type & OPENCL_TYPE_GPU ? "gpu" : type & OPENCL_TYPE_ACCELERATOR ? "accelerator" : type & OPENCL_TYPE_CPU ? "cpu" : "other";
    d.shares_memory = number_of(api, id, OPENCL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0;
    d.memory_bytes = number_of(api, id, OPENCL_DEVICE_GLOBAL_MEM_SIZE, 8);
    d.buffer_bytes = number_of(api, id, OPENCL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    uint64_t units = number_of(api, id, OPENCL_DEVICE_MAX_COMPUTE_UNITS, 4), items = number_of(api, id, OPENCL_DEVICE_MAX_WORK_GROUP_SIZE,
                                                                                             sizeof(size_t));
    d.compute_units = units > INT32_MAX ? INT32_MAX : (int)units;
    d.group_items = items > INT32_MAX ? INT32_MAX : (int)items;
    if (api->GetDeviceInfo(id, OPENCL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, &n) != OPENCL_SUCCESS)
        sizes[0] = sizes[1] = sizes[2] = 1;
    out->at[at].platform = platform;
    out->at[at].id = id;
    out->at[at].is = d;
    out->at[at].type = type;
    out->at[at].local_bytes = (size_t)number_of(api, id, OPENCL_DEVICE_LOCAL_MEM_SIZE, 8);
    memcpy(out->at[at].item_sizes, sizes, sizeof sizes);
    out->at[at].usable = number_of(api, id, OPENCL_DEVICE_AVAILABLE, 4) && number_of(api, id, OPENCL_DEVICE_COMPILER_AVAILABLE, 4) &&
                         number_of(api, id, OPENCL_DEVICE_ENDIAN_LITTLE, 4) && is_new(d.version) && d.group_items > 0 &&
                         d.buffer_bytes > 0;
}

int opencl_devices(const struct opencl_api *api, struct opencl_devices *out, struct err *e)
{
    opencl_platform_id platforms[MOST_PLATFORMS];
    opencl_device_id ids[OPENCL_MOST_DEVICES];
    uint32_t n_platforms = 0, n;
    char buf[32];
    out->n = 0;
    int32_t r = api->GetPlatformIDs(MOST_PLATFORMS, platforms, &n_platforms);
    if (r == OPENCL_PLATFORM_NOT_FOUND_KHR)
        return 0;
    if (r != OPENCL_SUCCESS)
        return err_set(e, ERR_INPUT, "OpenCL's drivers cannot be listed: %s", opencl_api_error(r, buf, sizeof buf));
    for (uint32_t p = 0; p < n_platforms && p < MOST_PLATFORMS; p++) {
        n = 0;
        if (api->GetDeviceIDs(platforms[p], OPENCL_TYPE_ALL, OPENCL_MOST_DEVICES, ids, &n) != OPENCL_SUCCESS)
            continue; /* a driver without a device */
        for (uint32_t i = 0; i < n && i < OPENCL_MOST_DEVICES && out->n < OPENCL_MOST_DEVICES; i++)
            look(api, platforms[p], ids[i], out);
    }
    return 0;
}
