/* thermo-profile show: which kind of file it is follows from its first bytes. */
#include "common/base/file.h"
#include "common/cli/opt.h"
#include "profiler/cmd.h"
#include "profiler/show/show.h"

#include <string.h>

static const struct opt_usage usage = {
    "thermo-profile show", "FILE",
    "Show what a trace or a hardware database holds. Of a trace: what was run, and per layer the share of neurons "
    "that "
    "fire, how unequal they are, and how a batch fills the layer up. Of a hardware database: every device and its "
    "curves.",
    "  thermo-profile show m.h5\n  thermo-profile show --json hw.sqlite\n  thermo-profile show --verify m.h5\n", "r"
};

static int is_sqlite(const char *path, struct err *e)
{
    static const char magic[16] = "SQLite format 3";
    char head[16] = "";
    struct file f;
    int r = file_open(&f, path, e);
    if (r < 0)
        return r;
    if (f.size >= sizeof head)
        r = file_pread(&f, head, sizeof head, 0, e);
    file_close(&f);
    return r < 0 ? r : !memcmp(head, magic, sizeof magic);
}

/* A trace also when it is not there, or the state of an interrupted run: trace_open then says what to do. */
static int show(const char *path, int json, int verify, struct err *e)
{
    int r = is_sqlite(path, e);
    if (r == ERR_NOMEM)
        return r;
    if (r == 1 && verify)
        return err_set(e, ERR_USAGE, "--verify is for traces; '%s' is a hardware database", path);
    return r == 1 ? show_hwdb(path, json, e) : show_trace(path, json, verify, e);
}

int cmd_show(int argc, char **argv)
{
    int json = 0, verify = 0, n;
    const struct opt opts[] = {
        { "json", 0, OPT_FLAG, &json, NULL, "one JSON object on standard output.", .def = NULL },
        { "verify", 0, OPT_FLAG, &verify, NULL, "of a trace: read everything first and compare it with its hashes.",
          .def = NULL },
        { 0 },
    };
    struct err e = { 0 };
    int r = opt_parse(opts, &usage, argc, argv, &n, &e);
    if (r > 0)
        return 0;
    if (!r && n != 1)
        r = err_set(&e, ERR_USAGE, n ? "one file at a time, %d were given" : "which file? %d were given", n);
    if (!r)
        r = show(argv[1], json, verify, &e);
    return r < 0 ? opt_fail(&e) : 0;
}
