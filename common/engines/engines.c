/* The table of back ends. */
#include "common/engines/engines.h"

#ifndef NO_OPENCL
#include "common/opencl/opencl.h"
#endif

#include <stdlib.h>
#include <string.h>

#ifdef NO_OPENCL /* the name is known, and nothing behind it */
static int list_none(struct accel_device *out, int most, struct err *e)
{
    (void)out, (void)most;
    err_set(e, ERR_INPUT, "this build has no OpenCL (NO_OPENCL, and static programs)");
    return 0;
}

static int open_none(const struct accel_config *c, struct accel **out, struct err *e)
{
    (void)c;
    *out = NULL;
    list_none(NULL, 0, e);
    return ERR_INPUT;
}

static int close_none(struct accel *a)
{
    (void)a;
    return 0;
}

static const struct accel_backend opencl_backend = { .name = "opencl", .list = list_none, .open = open_none, .close = close_none };
#endif

static const struct accel_backend *const backends[] = { &opencl_backend };

const struct accel_backend *engines_backend(int i)
{
    return i < (int)(sizeof backends / sizeof backends[0]) ? backends[i] : NULL;
}

int engines_find(const char *text, const struct accel_backend **out, int *device)
{
    *out = NULL;
    *device = -1;
    if (!text || !strcmp(text, "none"))
        return 0;
    size_t n = strcspn(text, ":");
    for (int i = 0; engines_backend(i); i++)
        if (strlen(engines_backend(i)->name) == n && !memcmp(engines_backend(i)->name, text, n))
            *out = engines_backend(i);
    char *end = NULL;
    long v = text[n] ? strtol(text + n + 1, &end, 10) : -1;
    if (!*out || (text[n] && (text[n + 1] < '0' || text[n + 1] > '9' || *end || v > 4095)))
        return -1;
    *device = (int)v;
    return 0;
}

int engines_parse(const char *option, const char *text, const struct accel_backend **out, int *device, struct err *e)
{
    if (engines_find(text, out, device) == 0)
        return 0;
    return err_set(e, ERR_USAGE, "%s '%s': none, opencl or opencl:N, with N from 'thermo-run engines'", option, text);
}
