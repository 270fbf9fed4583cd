/* thermo-pack pack: checks that model, trace and plan belong together, then builds. */
#include "common/base/cpu.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/offline/linalg.h"
#include "packer/build.h"
#include "packer/cmd.h"
#include "packer/quality.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct args {
    const char *model, *traces, *plan, *out, *requant_from;
    uint64_t quality_tokens;
    int threads, dry_run, json, predictors, consume;
};

/* --predictors: what it takes from the trace, by choice. */
enum { ALL, NONE, FFN, BLOCK, RESIDUAL, PLANNED };
static const char *const predictor_choices[] = { "all", "none", "ffn", "block", "residual", "plan", NULL };
static const unsigned predictor_masks[] = { ~0u, 0, 1u << PREDICT_FFN, 1u << PREDICT_BLOCK, 1u << PREDICT_RESIDUAL, 0 };

static const struct opt_usage usage = {
    "thermo-pack pack", "",
    "Write model.thermo: dense tensors, then the neurons of every FFN in clusters from hot to cold, in the layout that "
    "the plan chose. The pack fits every plan with the same layout, so a new memory limit, device or batch size needs "
    "no new pack. Neuron order comes from the trace, in tiles from the model. Weights keep their types unless the plan's layout says "
    "otherwise; the error of a change of type is printed. A Gate that changes type (thermo-plan solve --gate-type) is corrected by the "
    "inputs that the trace sampled. Tiles change nothing.",
    "  thermo-pack pack --model m.gguf --traces t.h5 --plan plan.json --out m.thermo\n"
    "  thermo-pack pack --model m-q4_0.gguf --requant-from m-f16.gguf --traces t.h5 --plan plan.json --out m.thermo\n",
    NULL
};

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    const struct opt opts[] = {
        { .name = "model", .type = OPT_STRING, .dest = &a->model, .arg = "FILE", .file = OPT_READ, .help = "The GGUF that was traced.",
          .required = 1 },
        { .name = "traces", .type = OPT_STRING, .dest = &a->traces, .arg = "FILE", .file = OPT_READ, .help = "Its trace.",
          .required = 1 },
        { .name = "plan", .type = OPT_STRING, .dest = &a->plan, .arg = "FILE", .file = OPT_READ,
          .help = "The plan; its layout is used.", .required = 1 },
        { .name = "out", .type = OPT_STRING, .dest = &a->out, .arg = "FILE", .file = OPT_WRITE, .beside = ".partial",
          .help = "Where the packed model goes; replaced whole or not at all.", .required = 1 },
        { .name = "requant-from", .type = OPT_STRING, .dest = &a->requant_from, .arg = "FILE", .file = OPT_READ,
          .help = "The same model in a better type: tensors that change type are made from it, and the pack records it." },
        { .name = "quality-tokens", .type = OPT_U64, .dest = &a->quality_tokens, .arg = "N", .min = 0, .max = 1e6, .def = "0",
          .help = "When a tensor changes type, run this many tokens of the traced corpus through the source and through the pack, and "
                  "print how their logits differ, and how long that took; 0 leaves it out: 'thermo-pack verify --model FILE --traces "
                  "FILE PACK' does it later." },
        { .name = "predictors", .type = OPT_CHOICE, .dest = &a->predictors, .arg = "WHICH", .def = "all", .choices = predictor_choices,
          .help = "Which of the trace's predictors go in: those that see the FFN's input, the transformer block's input, the "
                  "residual; or of each layer those that the plan uses, under any of its limits (other plans may need more)." },
        { .name = "consume", .type = OPT_FLAG, .dest = &a->consume,
          .help = "Free the model's disk blocks as they are packed, so that no room for a second copy is needed: of --model the "
                  "header stays, marked with the pack's name. Refused where the file may be another's to lose. Interrupted, the same "
                  "command goes on; until the first block is freed the model is whole." },
        { .name = "threads", .type = OPT_INT, .dest = &a->threads, .arg = "N", .help = "Workers.", .def = "all processors", .min = 1,
          .max = POOL_MAX_THREADS },
        { .name = "dry-run", .type = OPT_FLAG, .dest = &a->dry_run, .help = "Check the inputs and print sizes; write nothing." },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "Report as JSON on stdout." },
        { 0 },
    };
    int n_pos = 0, r = opt_parse(opts, &usage, argc, argv, &n_pos, e);
    if (r == 0 && n_pos)
        return err_set(e, ERR_USAGE, "unexpected argument '%s'; see thermo-pack pack --help", argv[1]);
    if (r == 0 && a->consume && a->quality_tokens)
        return err_set(e, ERR_USAGE, "--quality-tokens compares with the model, which --consume leaves no weights: give one of them");
    return r;
}

static int mismatch(struct err *e, const char *what, const char *a, struct hash128 ha, const char *b, struct hash128 hb)
{
    char ta[HASH_TEXT], tb[HASH_TEXT];
    hash_text(ha, ta);
    hash_text(hb, tb);
    return err_set(e, ERR_MISMATCH, "'%s' has %s %s, '%s' has %s: they do not belong together", a, what, ta, b, tb);
}

struct inputs {
    struct plan plan;
    struct trace *trace;
    struct trace_predictors *predictors;
    struct source source;
    struct gguf *better;
    struct hash128 better_hash;
    uint32_t *orders;
    struct pool *pool;
    struct consume *consume;
};

static void close_inputs(struct inputs *in)
{
    consume_free(in->consume);
    pool_free(in->pool);
    free(in->orders);
    gguf_close(in->better);
    source_close(&in->source);
    trace_predictors_close(in->predictors);
    trace_close(in->trace);
    plan_done(&in->plan);
}

static int take_orders(struct inputs *in, const struct args *a, struct err *e)
{
    struct hash128 hash;
    int tiles = in->plan.layout.form == LAYOUT_TILES;
    int r = tiles ? source_orders(&trace_info(in->trace)->h, &in->orders, &hash, e) :
                    trace_orders(in->trace, in->plan.sort, &in->orders, &hash, e);
    if (r < 0 || hash_equal(in->plan.order_hash, hash))
        return r;
    return mismatch(e, "neuron order", a->plan, in->plan.order_hash, a->traces, hash);
}

/* Cheap checks first: a mismatch is found before anything large is read. */
static int open_inputs(struct inputs *in, const struct args *a, struct err *e)
{
    int r;
    if (a->consume && (r = consume_new(a->model, &in->consume, e)) < 0)
        return r;
    if ((r = plan_read(a->plan, &in->plan, e)) < 0 || (r = trace_open(a->traces, &in->trace, e)) < 0)
        return r;
    const struct trace_info *t = trace_info(in->trace);
    if (!hash_equal(in->plan.model_hash, t->model_hash))
        return mismatch(e, "model", a->plan, in->plan.model_hash, a->traces, t->model_hash);
    if ((r = take_orders(in, a, e)) < 0)
        return r;
    if (a->predictors != NONE && (r = trace_predictors_open(in->trace, &in->predictors, e)) < 0)
        return r;
    if (a->predictors > NONE && !in->predictors)
        return err_set(e, ERR_USAGE, "--predictors %s: '%s' holds none; 'thermo-profile predictors' makes them",
                       predictor_choices[a->predictors], a->traces);
    if ((r = (a->consume ? source_open_consumed : source_open)(&in->source, a->model, in->trace, e)) < 0)
        return r;
    if (a->requant_from) {
        if ((r = gguf_open(a->requant_from, &in->better, e)) < 0 || (r = model_split(in->better, &in->source.model->h, e)) < 0 ||
            (r = gguf_hash(in->better, &in->better_hash, NULL, NULL, NULL, e)) < 0)
            return r;
    }
    return pool_new(a->threads, NULL, &in->pool, e);
}

static int changes_anything(const struct build *b)
{
    for (int i = 0; i < b->source->model->h.n_layers * LAYOUT_ROLES; i++)
        if (build_role_changes(b, i / LAYOUT_ROLES, i % LAYOUT_ROLES))
            return 1;
    return 0;
}

/* Tiles are the source's bytes. */
static int check_tiles(const struct build *b, const struct args *a, struct err *e)
{
    if (b->shapes.l.form != LAYOUT_TILES)
        return 0;
    if (b->source->model->h.down_by_neuron)
        return err_set(e, ERR_UNSUPPORTED, "'%s' has Down by neuron, which no tile holds; plan another form", a->model);
    for (int i = 0; i < b->source->model->h.n_layers * LAYOUT_ROLES; i++)
        if (build_role_changes(b, i / LAYOUT_ROLES, i % LAYOUT_ROLES))
            return err_set(e, ERR_MISMATCH, "plan '%s': layout.types.%s of layer %d is not the model's, whose bytes tiles keep", a->plan,
                           layout_role_name(i % LAYOUT_ROLES), i / LAYOUT_ROLES);
    return 0;
}

static int prepare(struct build *b, struct inputs *in, const struct args *a, struct err *e)
{
    const struct model_hparams *h = &in->source.model->h;
    *b = (struct build){ .out_path = a->out, .plan = &in->plan, .trace = in->trace, .source = &in->source,
                         .model_hash = trace_info(in->trace)->model_hash, .order_hash = in->plan.order_hash,
                         .vocab_text_bytes = trace_info(in->trace)->vocab_text_bytes, .n_merges = trace_info(in->trace)->n_merges,
                         .better = in->better, .better_hash = in->better_hash, .orders = in->orders, .pool = in->pool,
                         .predictors = in->predictors, .predictor_inputs = predictor_masks[a->predictors],
                         .planned_predictors = a->predictors == PLANNED,
                         .panel_bytes = 256u << 20, .consume = in->consume };
    if (!plan_widths_are(&in->plan, h))
        return err_set(e, ERR_MISMATCH, "plan '%s': model.widths are not those of '%s'", a->plan, a->model);
    int r = layout_derive(&in->plan.layout, h->d_model, h->n_ff, &b->shapes, e);
    if (r < 0)
        return err_wrap(e, "plan '%s'", a->plan);
    if ((r = check_tiles(b, a, e)) < 0)
        return r;
    if (in->better && !changes_anything(b))
        return err_set(e, ERR_USAGE, "--requant-from has no use: the layout of '%s' changes no tensor's type", a->plan);
    return 0;
}

static void report_changes(const struct build *b, const struct build_report *r)
{
    int all = b->source->model->h.n_layers;
    struct build_change c;
    for (int role = 0; role < LAYOUT_ROLES; role++)
        for (int i = 0; build_change(b, r, role, i, &c); i++) {
            char layers[48] = "", how[64] = "";
            if (c.inputs)
                snprintf(how, sizeof how, ", errors corrected by %llu inputs", (unsigned long long)c.inputs);
            if (c.n_layers < all)
                snprintf(layers, sizeof layers, " from %s in %d of %d layers", quant_traits(c.from)->name, c.n_layers, all);
            print("%s is stored as %s%s%s: relative RMS error of its weights %.3g\n", layout_role_name(role), quant_traits(c.to)->name,
                  layers, how, c.relative_rms);
        }
}

/* NULL when nothing was measured. */
static void report_text(const struct build *b, const struct build_report *r, const struct quality *q)
{
    char f[24], n[24];
    print("wrote %s: %s, of which %s are neurons in %s form; in %.1f s (%.0f MB/s)\n", b->out_path,
           size_format(r->file_bytes, f, sizeof f), size_format(r->neuron_bytes, n, sizeof n),
           layout_form_name(b->shapes.l.form), r->seconds, (double)r->file_bytes / 1e6 / r->seconds);
    if (r->predictor_bytes)
        print("predictors take %s\n", size_format(r->predictor_bytes, f, sizeof f));
    report_changes(b, r);
    if (q)
        quality_print(q);
    else if (changes_anything(b))
        print("their effect on logits was not measured; 'thermo-pack verify --model FILE --traces FILE PACK' does\n");
}

/* Read the finished file back and compare. */
static int measure(const struct build *b, uint64_t n_tokens, struct quality *q, struct err *e)
{
    struct pack *p = NULL;
    int r = pack_open(b->out_path, &p, e);
    if (r == 0)
        r = quality_measure(b->source->model, b->trace, p, b->pool, n_tokens, q, e);
    pack_close(p);
    return r;
}

static int report_json(const struct build *b, const struct build_report *r, const struct quality *q, struct err *e)
{
    struct js *o = js_object(), *loss = js_object();
    js_put(o, JS_STR("file", b->out_path), JS_U64("file_bytes", r->file_bytes), JS_U64("neuron_bytes", r->neuron_bytes),
           JS_U64("dense_bytes", r->dense_bytes), JS_U64("predictor_bytes", r->predictor_bytes),
           JS_U64("working_memory_bytes", r->memory_bytes), JS_NUM("seconds", r->seconds),
           JS_STR("form", layout_form_name(b->shapes.l.form)));
    for (int role = 0; role < LAYOUT_ROLES; role++)
        if (r->total.weight2[role] > 0)
            js_set_num(loss, layout_role_name(role), build_relative_rms(&r->total, role));
    js_set(o, "relative_rms_of_changed_types", loss);
    if (q)
        js_set(o, "against_source", quality_json(q));
    int ret = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return ret;
}

/* Has an earlier run ended just before it could say so? */
static int is_there(const struct build *b, const char *out)
{
    struct pack *p = NULL;
    struct err ignored = { 0 };
    int same = pack_open(out, &p, &ignored) == 0 && hash_equal(p->model_hash, b->model_hash) && hash_equal(p->order_hash, b->order_hash) &&
               hash_equal(p->layout_hash, layout_hash(&b->shapes.l));
    pack_close(p);
    return same && consume_done(b->consume, out);
}

static int build(struct build *b, const struct args *a, struct build_report *report, struct err *e)
{
    uint64_t file, memory, unit;
    build_estimate(b, &file, &memory);
    if (!b->consume) {
        int r = file_enough_space(a->out, file, e);
        return r < 0 ? r : build_run(b, report, e);
    }
    unit = build_largest_ffn(b);
    int r = consume_begun(b->consume, a->out, e);
    if (r < 0 || (r = file_enough_space(a->out, consume_space(b->consume, a->out, file, unit), e)) < 0)
        return r;
    r = consume_begin(b->consume, b->source, a->out, build_config(b), e);
    return r < 0 ? r : build_run(b, report, e);
}

static int run(const struct args *a, struct err *e)
{
    struct inputs in = { 0 };
    struct build b;
    struct build_report report = { 0 };
    struct quality quality = { 0 };
    int r = open_inputs(&in, a, e);
    if (r == 0)
        r = prepare(&b, &in, a, e);
    if (r == 0 && a->dry_run) {
        r = build_dry_run(&b, a->json, e);
    } else if (r == 0 && a->consume && is_there(&b, a->out)) {
        log_info("'%s' is there already, and has consumed '%s'", a->out, a->model);
    } else if (r == 0) {
        int compare = a->quality_tokens > 0 && changes_anything(&b);
        if ((r = build(&b, a, &report, e)) == 0 && compare)
            r = measure(&b, a->quality_tokens, &quality, e);
        if (r == 0 && a->json)
            r = report_json(&b, &report, compare ? &quality : NULL, e);
        else if (r == 0)
            report_text(&b, &report, compare ? &quality : NULL);
    }
    free(report.layers);
    close_inputs(&in);
    return r;
}

int cmd_pack(int argc, char **argv)
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
        linalg_init();
        r = run(&a, &e);
    }
    return r < 0 ? opt_fail(&e) : 0;
}
