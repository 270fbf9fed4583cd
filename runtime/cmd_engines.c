/* thermo-run engines: which accelerators there are, and their limits. */
#include "common/base/file.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/engines/engines.h"

#include "runtime/cmd.h"
#include "runtime/report.h"

#include <stdio.h>
#include <string.h>

#define MOST 64

static const struct opt_usage usage = {
    "thermo-run engines", "",
    "List the devices that --engine can name, each with what its driver says: kind, memory, whether it shares the processor's, the largest "
    "buffer and work group. Drivers are those that the system's OpenCL library knows; where there is none, nothing is listed.",
    "  thermo-run engines\n"
    "  thermo-run engines --json\n",
    NULL
};

static void member(const char *key, const char *text)
{
    print(",\"%s\":", key);
    report_string(stdout, text, strlen(text));
}

static void print_json(const char *name, int n, const struct accel_device *d)
{
    print("{\"engine\":\"%s:%d\"", name, n);
    member("platform", d->platform);
    member("device", d->name);
    member("driver", d->driver);
    member("device_version", d->version);
    member("kind", d->kind);
    print(",\"shares_memory\":%s,\"memory_bytes\":%llu,\"buffer_bytes\":%llu,\"compute_units\":%d,\"group_items\":%d}\n",
           d->shares_memory ? "true" : "false", (unsigned long long)d->memory_bytes, (unsigned long long)d->buffer_bytes, d->compute_units,
           d->group_items);
}

static void print_text(const char *name, int n, const struct accel_device *d)
{
    char memory[24], buffer[24];
    print("%s:%d  %s\n    %s, %s, driver %s\n    %s, %d compute units, memory %s%s, buffers of up to %s, work groups of up to %d\n",
           name, n, d->name,
           d->platform, d->version, d->driver, d->kind, d->compute_units, size_format(d->memory_bytes, memory, sizeof memory),
           d->shares_memory ? " shared with the processor" : " of its own", size_format(d->buffer_bytes, buffer, sizeof buffer),
           d->group_items);
}

int cmd_engines(int argc, char **argv)
{
    struct accel_device devices[MOST];
    struct err e = { 0 };
    int json = 0, n_pos = 0, r, any = 0;
    const struct opt opts[] = { { .name = "json", .type = OPT_FLAG, .dest = &json, .help = "One JSON object for each device." }, { 0 } };
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos)
        r = err_set(&e, ERR_USAGE, "unexpected argument '%s'; see thermo-run engines --help", argv[1]);
    for (int b = 0; engines_backend(b) && r == 0; b++) {
        int n = engines_backend(b)->list(devices, MOST, &e);
        for (int i = 0; i < n && i < MOST; i++, any++)
            (json ? print_json : print_text)(engines_backend(b)->name, i, &devices[i]);
        r = n < 0 ? n : 0;
    }
    if (r == 0 && !any && !json)
        print("no accelerator%s%s\n", e.msg[0] ? ": " : "", e.msg);
    return r < 0 || (r = file_stdout(&e)) < 0 ? opt_fail(&e) : 0;
}
