/* thermo-profile merge: the traces of all shards into one. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/cli/opt.h"
#include "common/offline/trace/trace_merge.h"
#include "common/offline/trace/trace_write.h"
#include "profiler/cmd.h"

#include <stdio.h>

static const struct opt_usage usage = {
    "thermo-profile merge", "SHARD...",
    "Merge the traces of all shards of a run (trace --shard I/N) into the trace that one run over the whole corpus "
    "would "
    "have written: the same content hash. Order does not matter; a missing, doubled or foreign shard is refused, and so "
    "is one with predictors: make them after merging, from the samples of all shards.",
    "  thermo-profile merge --out m.h5 m.0.h5 m.1.h5 m.2.h5\n", "r"
};

static void on_layer(void *ctx, int done, int of)
{
    (void)of;
    progress_set(ctx, (uint64_t)done);
}

/* The result takes about what the shards take. */
static int check_space(const char *out, char **shards, int n, struct err *e)
{
    uint64_t need = 0;
    for (int i = 0; i < n; i++) {
        struct file f;
        int r = file_open(&f, shards[i], e);
        if (r < 0)
            return r;
        need += f.size;
        file_close(&f);
    }
    return file_enough_space(out, need, e);
}

static int print_outcome(const char *out, int n, struct hash128 content, int json, struct err *e)
{
    char text[HASH_TEXT];
    hash_text(content, text);
    if (!json) {
        print("wrote    %s from %d shards\n         content %s\n", out, n, text);
        return 0;
    }
    struct js *j = js_object();
    js_put(j, JS_STR("out", out), JS_INT("shards", n), JS_STR("content_hash", text));
    int r = js_print(stdout, j, 2, 0, e);
    js_free(j);
    return r;
}

int cmd_merge(int argc, char **argv)
{
    const char *out = NULL;
    int gzip = 1, json = 0, drop = 0, n;
    const struct opt opts[] = {
        { "out", 'o', OPT_STRING, &out, "FILE", "trace to write.", .required = 1, .file = OPT_WRITE },
        { "h5-gzip", 0, OPT_INT, &gzip, "N", "compression of the trace, 0 (none) to 9; 1 leaves sampled vectors as they are, which "
          "hardly shrink.", .def = "1", .min = 0,
          .max = 9 },
        { "drop-predictors", 0, OPT_FLAG, &drop, NULL, "leave out predictors that shards hold.", .def = NULL },
        { "json", 0, OPT_FLAG, &json, NULL, "summary as JSON on standard output.", .def = NULL },
        { 0 },
    };
    struct err e = { 0 };
    struct progress p;
    struct hash128 content;
    int r = opt_parse(opts, &usage, argc, argv, &n, &e);
    if (r > 0)
        return 0;
    if (!r && n < 1)
        r = err_set(&e, ERR_USAGE, "which shards? Give the traces to merge after the options");
    file_catch_interrupt();
    if (r < 0 || (r = check_space(out, argv + 1, n, &e)) < 0)
        return opt_fail(&e);
    progress_init(&p, "merging", "layers", 0);
    r = trace_merge((const char *const *)(argv + 1), n, out, gzip, drop, on_layer, &p, &content, &e);
    progress_done(&p);
    if (!r)
        r = print_outcome(out, n, content, json, &e);
    return r < 0 ? opt_fail(&e) : 0;
}
