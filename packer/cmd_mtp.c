/* thermo-pack mtp: a model's first layer for multi-token prediction as a pack of its own, in tiles: its weights stay as they are, and no
 * trace or plan is needed. What it shares with its model, embeddings and head, is not copied. */
#include "common/base/cpu.h"
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/model/model_arch.h"
#include "packer/build.h"
#include "packer/cmd.h"

#include <stdio.h>
#include <stdlib.h>

struct args {
    const char *model, *layer, *out;
    int threads, share, dry_run, json;
};

static const struct opt_usage usage = {
    "thermo-pack mtp", "",
    "Write the layer with which a model guesses further tokens (GGUF: nextn_predict_layers, blk.N.nextn.*; of several the first), "
    "for 'thermo-run generate --guess mtp --mtp'. Its weights keep their types. Embeddings and head are the model's where the layer "
    "has no others of its own. The whole model is read once, for the hash that says which packed model the layer belongs to.",
    "  thermo-pack mtp --model GLM-4.5-Air-Q4_K_M.gguf --out air-mtp.thermo\n", NULL
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    const struct opt opts[] = {
        { .name = "model", .type = OPT_STRING, .dest = &a->model, .arg = "FILE", .file = OPT_READ, .required = 1,
          .help = "The GGUF that was traced and packed." },
        { .name = "layer", .type = OPT_STRING, .dest = &a->layer, .arg = "FILE", .file = OPT_READ, .def = "in the model's file",
          .help = "The file that has the layer, where the model's has not: an mtp-*.gguf, with or without the model's other layers." },
        { .name = "out", .type = OPT_STRING, .dest = &a->out, .arg = "FILE", .file = OPT_WRITE, .required = 1,
          .help = "Where the packed layer goes; replaced whole or not at all." },
        { .name = "share", .type = OPT_FLAG, .dest = &a->share,
          .help = "Use the model's embeddings and head even where the file has others for the layer; equal ones are shared anyway." },
        { .name = "threads", .type = OPT_INT, .dest = &a->threads, .arg = "N", .help = "Workers.", .def = "all processors", .min = 1,
          .max = POOL_MAX_THREADS },
        { .name = "dry-run", .type = OPT_FLAG, .dest = &a->dry_run, .help = "Check the model and print sizes; write nothing." },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "Report as JSON on stdout." },
        { 0 },
    };
    int n_pos = 0, r = opt_parse(opts, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-pack mtp --help", argv[1]);
    return r;
}

/* Tiles that hold whole quant blocks of Down. */
static int derive(const struct model *m, struct layout_shapes *out, struct err *e)
{
    const enum model_role roles[LAYOUT_ROLES] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };
    uint32_t type[LAYOUT_ROLES];
    struct layout l;
    for (int i = 0; i < LAYOUT_ROLES; i++)
        type[i] = m->layer[0][roles[i]]->type;
    layout_default(&l, LAYOUT_TILES, type);
    l.ungated = model_arch_is_ungated(m->h.arch);
    if (quant_traits(type[LAYOUT_DOWN])->block_elems > (int)l.cluster_neurons)
        l.cluster_neurons = LAYOUT_TILE;
    return layout_derive(&l, m->h.d_model, m->h.n_ff, out, e);
}

static int shared(const struct model *m, enum model_role r)
{
    return m->global[r] == NULL;
}

static int report_json(const struct build *b, const struct build_report *r, struct err *e)
{
    const struct model *m = b->source->model;
    struct js *o = js_object();
    js_put(o, JS_STR("file", b->out_path), JS_U64("file_bytes", r->file_bytes), JS_U64("neuron_bytes", r->neuron_bytes),
           JS_U64("dense_bytes", r->dense_bytes), JS_U64("working_memory_bytes", r->memory_bytes), JS_NUM("seconds", r->seconds),
           JS_INT("block", m->h.mtp), JS_BOOL("own_embeddings", !shared(m, MODEL_TOKEN_EMBD)),
           JS_BOOL("own_head", !shared(m, MODEL_OUTPUT)));
    int ret = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return ret;
}

static void report_text(const struct build *b, const struct build_report *r)
{
    const struct model *m = b->source->model;
    char f[24], n[24], d[24];
    print("wrote %s: %s, of which %s are neurons and %s other weights; block %d, %s embeddings, %s head; in %.1f s\n", b->out_path,
           size_format(r->file_bytes, f, sizeof f), size_format(r->neuron_bytes, n, sizeof n),
           size_format(r->dense_bytes, d, sizeof d), m->h.mtp, shared(m, MODEL_TOKEN_EMBD) ? "the model's" : "own",
           shared(m, MODEL_OUTPUT) ? "the model's" : "own", r->seconds);
}

static int run(const struct args *a, struct err *e)
{
    struct source s = { 0 };
    struct build b = { .out_path = a->out, .source = &s, .panel_bytes = 256u << 20 };
    struct build_report report = { 0 };
    uint32_t *orders = NULL;
    uint64_t file, memory;
    int r = source_open_mtp(&s, a->model, a->layer, a->share, &b.model_hash, e);
    if (r < 0)
        return r;
    if ((r = derive(s.model, &b.shapes, e)) < 0)
        err_wrap(e, "'%s': block %d", s.path, s.model->h.mtp);
    if (r == 0 && (r = source_orders(&s.model->h, &orders, &b.order_hash, e)) == 0)
        r = pool_new(a->threads, NULL, &b.pool, e);
    b.orders = orders;
    if (r == 0 && a->dry_run) {
        r = build_dry_run(&b, a->json, e);
    } else if (r == 0) {
        build_estimate(&b, &file, &memory);
        if ((r = file_enough_space(a->out, file, e)) == 0)
            r = build_run(&b, &report, e);
        if (r == 0 && a->json)
            r = report_json(&b, &report, e);
        else if (r == 0)
            report_text(&b, &report);
    }
    free(report.layers);
    free(orders);
    pool_free(b.pool);
    source_close(&s);
    return r;
}

int cmd_mtp(int argc, char **argv)
{
    int cpus[POOL_MAX_THREADS];
    struct args a = { .threads = cpu_allowed(cpus, POOL_MAX_THREADS) };
    struct err e = { 0 };
    int r = parse(&a, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r == 0) {
        file_catch_interrupt();
        kernels_init(cpu_detect());
        r = run(&a, &e);
    }
    return r < 0 ? opt_fail(&e) : 0;
}
