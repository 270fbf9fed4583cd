/* thermo-pack inspect: what a packed model holds, from its header, table and small sections. */
#include "common/base/js.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/pack/pack.h"
#include "packer/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-pack inspect", "FILE",
    "Show what a packed model holds: the model's shape, the layout, identities, sizes. Reads no weights.",
    "  thermo-pack inspect m.thermo\n  thermo-pack inspect --tensors --json m.thermo\n", "r"
};

static uint64_t neuron_bytes(const struct pack *p)
{
    uint64_t n = 0;
    for (int l = 0; l < p->h.n_layers; l++)
        for (int i = 0; i < p->shapes.n_segments; i++)
            n += layout_of(&p->shapes, l)->segment_bytes[i];
    return n * (uint64_t)model_ffn_blocks(&p->h);
}

static void dense_sum(const struct pack *p, uint64_t *bytes, uint64_t *stored)
{
    *bytes = *stored = 0;
    for (int i = 0; i < p->n_dense; i++) {
        *bytes += p->dense[i].bytes;
        *stored += p->dense[i].stored_bytes;
    }
}

static uint64_t predictor_bytes(const struct pack *p, int input)
{
    uint64_t n = 0;
    for (int i = 0; i < p->n_predictors; i++)
        if (p->predictors[i].input == (enum predict_input)input)
            n += p->predictors[i].bytes;
    return n;
}

static const char *type_name(uint32_t type)
{
    return quant_traits(type)->name;
}

/* "layers 0 to 3, 7" of a kind. */
static void print_layers(const struct layout *l, int kind)
{
    const char *before = "layers ";
    for (int i = 0, end; i < l->n_layers; i = end) {
        for (end = i + 1; end < l->n_layers && l->kind[end] == l->kind[i]; end++)
            ;
        if (l->kind[i] != kind)
            continue;
        print("%s%d", before, i);
        if (end > i + 1)
            print(" to %d", end - 1);
        before = ", ";
    }
}

/* NULL: none, or it is no JSON. */
static struct js *provenance(const struct pack *p)
{
    struct err ignored = { 0 };
    return p->provenance ? js_parse(p->provenance, strlen(p->provenance), "provenance", &ignored) : NULL;
}

static void text_layout(const struct pack *p)
{
    const struct layout *l = &p->shapes.l;
    print("layout    %s%s, clusters of %u, blocks of %u B", layout_form_name(l->form), l->packed ? ", packed" : "",
           l->cluster_neurons, l->block_bytes);
    for (int k = 0; k < l->n_kinds; k++) {
        const struct layout_shape *s = &p->shapes.kind[k];
        if (l->n_kinds > 1) {
            print("%s  ", k ? "" : "\n");
            print_layers(l, k);
        }
        print(l->n_kinds > 1 ? ":" : ";");
        if (p->h.widths[0])
            print(" FFN of %d,", s->n_ff);
        print(" gate %s, up %s, down %s\n", type_name(s->type[0]), type_name(s->type[1]),
               type_name(s->type[2]));
        for (int i = 0; i < s->n_parts; i++) {
            const struct layout_part *q = &s->part[i];
            print("  part %d  ", i);
            if (q->record_neurons > 1)
                print("tile of %u neurons %u B, ", q->record_neurons, q->record_bytes);
            else
                print("record %u B, ", q->record_bytes);
            print("%u per unit, %u units of %u B every %llu B, a read of at most %u B\n", q->neurons_per_unit / q->record_neurons,
                   q->n_units, q->unit_bytes, (unsigned long long)q->stride_bytes, q->read_bytes);
        }
    }
}

static void text(const struct pack *p, int tensors)
{
    const struct model_hparams *h = &p->h;
    char a[HASH_TEXT], b[HASH_TEXT], c[HASH_TEXT], s[3][24];
    uint64_t bytes, stored;
    dense_sum(p, &bytes, &stored);
    hash_text(p->model_hash, a);
    hash_text(p->order_hash, b);
    hash_text(p->layout_hash, c);
    print("model     %s: %s, %d layers, width %d, %d/%d heads of %d, %s FFN of %s%d%s", h->name, h->arch, h->n_layers, h->d_model,
           h->n_heads, h->n_kv_heads, h->head_dim, model_act_name(h->act), h->widths[0] ? "up to " : "", h->n_ff,
           h->thresholds ? " with thresholds" : "");
    if (h->n_experts)
        print(" x %d experts, %d used", h->n_experts, h->n_experts_used);
    if (model_has_alone(h))
        print("; %d block%s without a FFN", h->n_lead, h->n_lead == 1 ? "" : "s");
    else if (h->n_lead)
        print("; %d layer%s before them, FFN of %d in memory", h->n_lead, h->n_lead == 1 ? "" : "s", h->n_ff_lead);
    if (h->mtp)
        print("; block %d of its model, a layer for multi-token prediction", h->mtp);
    print("\nhashes    model %s\n          order %s\n          layout %s\n", a, b, c);
    print("format    revision %d\n", PACK_REVISION);
    text_layout(p);
    print("sizes     file %s, neurons %s, dense %s", size_format(p->file.size, s[0], sizeof s[0]),
           size_format(neuron_bytes(p), s[1], sizeof s[1]), size_format(bytes, s[2], sizeof s[2]));
    print(" (stored in %s)\n", size_format(stored, s[0], sizeof s[0]));
    for (int i = 0; i < PREDICT_INPUTS; i++)
        if (predictor_bytes(p, i))
            print("predictor %s in all that see the input '%s'\n",
                   size_format(predictor_bytes(p, i), s[0], sizeof s[0]),
                   predict_input_name((enum predict_input)i));
    for (int i = 0; tensors && i < p->n_predictors; i++) {
        const struct pack_predictor *x = &p->predictors[i];
        print("  %4d %-12s %s/%s rank %d%s at %llu, %llu B\n", x->layer, predict_input_name(x->input),
               predict_type_name(x->type1), predict_type_name(x->type2), x->rank, x->two_sided ? ", two-sided" : x->relu ? ", ReLU" : "",
               (unsigned long long)x->offset, (unsigned long long)x->bytes);
    }
    for (int i = 0; tensors && i < p->n_dense; i++) {
        const struct pack_dense *d = &p->dense[i];
        print("  %4d %-12s %-5s %8llu x %-8llu at %llu, %llu B%s\n", d->layer, model_role_name(d->role),
               type_name(d->type), (unsigned long long)d->dims[0], (unsigned long long)d->dims[1],
               (unsigned long long)d->offset, (unsigned long long)d->stored_bytes, d->zstd ? " zstd" : "");
    }
    struct js *o = provenance(p);
    char *text = o ? js_text(o, 2, 6) : NULL;
    if (text) {
        print("provenance\n");
        print_data(text, strlen(text)); /* JSON has escaped its strings */
        print("\n");
    }
    free(text);
    js_free(o);
}

static struct js *part_json(const struct layout_part *q)
{
    struct js *o = js_object(), *roles = js_array();
    for (int r = 0; r < q->n_roles; r++)
        js_append_str(roles, layout_role_name(q->role[r]));
    js_put(o, JS_VALUE("roles", roles), JS_U64("record_bytes", q->record_bytes), JS_U64("record_neurons", q->record_neurons),
           JS_U64("neurons_per_unit", q->neurons_per_unit), JS_U64("units", q->n_units), JS_U64("unit_bytes", q->unit_bytes),
           JS_U64("stride_bytes", q->stride_bytes), JS_U64("read_bytes", q->read_bytes));
    return o;
}

/* Types and parts of one kind of layer. */
static void set_kind(struct js *o, const struct pack *p, const struct layout_shape *s)
{
    struct js *parts = js_array();
    if (p->h.widths[0])
        js_set_int(o, "n_ff", s->n_ff);
    js_put(o, JS_STR("gate_type", type_name(s->type[LAYOUT_GATE])), JS_STR("up_type", type_name(s->type[LAYOUT_UP])),
           JS_STR("down_type", type_name(s->type[LAYOUT_DOWN])));
    for (int i = 0; i < s->n_parts; i++)
        js_append(parts, part_json(&s->part[i]));
    js_set(o, "parts", parts);
}

/* Of most layers; those that differ are listed. */
static struct js *layout_json(const struct pack *p)
{
    const struct layout *l = &p->shapes.l;
    struct js *o = js_object(), *others = js_array();
    int usual = layout_usual_kind(l);
    js_put(o, JS_STR("form", layout_form_name(l->form)), JS_BOOL("packed", l->packed), JS_U64("block_bytes", l->block_bytes),
           JS_U64("cluster_neurons", l->cluster_neurons));
    set_kind(o, p, &p->shapes.kind[usual]);
    for (int k = 0; k < l->n_kinds; k++) {
        struct js *x = js_object(), *layers = js_array();
        for (int i = 0; i < l->n_layers; i++)
            if (l->kind[i] == k)
                js_append_num(layers, i);
        js_set(x, "layers", layers);
        set_kind(x, p, &p->shapes.kind[k]);
        if (k == usual)
            js_free(x);
        else
            js_append(others, x);
    }
    if (l->n_kinds > 1)
        js_set(o, "exceptions", others);
    else
        js_free(others);
    return o;
}

static struct js *tensors_json(const struct pack *p)
{
    struct js *list = js_array();
    for (int i = 0; i < p->n_dense; i++) {
        const struct pack_dense *d = &p->dense[i];
        struct js *o = js_object(), *dims = js_array();
        js_set_str(o, "role", model_role_name(d->role));
        if (d->layer >= 0)
            js_set_int(o, "layer", d->layer);
        js_set_str(o, "type", type_name(d->type));
        for (int k = 0; k < d->n_dims; k++)
            js_append_int(dims, (int64_t)d->dims[k]);
        js_put(o, JS_VALUE("dims", dims), JS_U64("offset", d->offset), JS_U64("bytes", d->bytes),
               JS_U64("stored_bytes", d->stored_bytes), JS_BOOL("zstd", d->zstd));
        js_append(list, o);
    }
    return list;
}

static struct js *predictors_json(const struct pack *p)
{
    struct js *list = js_array();
    for (int i = 0; i < p->n_predictors; i++) {
        const struct pack_predictor *x = &p->predictors[i];
        struct js *o = js_object();
        js_put(o, JS_STR("input", predict_input_name(x->input)), JS_INT("layer", x->layer), JS_INT("block", x->block),
               JS_INT("rank", x->rank), JS_BOOL("relu", x->relu));
        if (x->two_sided)
            js_set_bool(o, "two_sided", 1);
        js_put(o, JS_STR("fc1_type", predict_type_name(x->type1)), JS_STR("fc2_type", predict_type_name(x->type2)),
               JS_U64("offset", x->offset), JS_U64("bytes", x->bytes));
        js_append(list, o);
    }
    return list;
}

static int print_json(const struct pack *p, int tensors, struct err *e)
{
    struct js *o = js_object(), *m = js_object();
    uint64_t bytes, stored;
    dense_sum(p, &bytes, &stored);
    js_put(m, JS_STR("name", p->h.name), JS_STR("arch", p->h.arch), JS_INT("n_layers", p->h.n_layers));
    if (p->h.n_lead)
        js_set_int(m, "n_lead", p->h.n_lead);
    if (p->h.mtp)
        js_set_int(m, "mtp_block", p->h.mtp);
    js_put(m, JS_INT("d_model", p->h.d_model), JS_INT("n_heads", p->h.n_heads), JS_INT("n_kv_heads", p->h.n_kv_heads),
           JS_INT("n_ff", p->h.n_ff), JS_INT("n_vocab", p->h.n_vocab), JS_INT("n_experts", p->h.n_experts),
           JS_INT("n_experts_used", p->h.n_experts_used), JS_STR("activation", model_act_name(p->h.act)),
           JS_BOOL("thresholds", p->h.thresholds));
    js_put(o, JS_VALUE("model", m), JS_HASH("model_hash", p->model_hash), JS_HASH("order_hash", p->order_hash),
           JS_HASH("layout_hash", p->layout_hash), JS_INT("revision", PACK_REVISION), JS_VALUE("layout", layout_json(p)),
           JS_U64("file_bytes", p->file.size), JS_U64("neuron_bytes", neuron_bytes(p)), JS_U64("dense_bytes", bytes),
           JS_U64("dense_stored_bytes", stored), JS_VALUE("predictors", predictors_json(p)));
    if (tensors)
        js_set(o, "tensors", tensors_json(p));
    struct js *prov = provenance(p);
    if (prov)
        js_set(o, "provenance", prov);
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

int cmd_inspect(int argc, char **argv)
{
    int json = 0, tensors = 0, n_pos = 0;
    const struct opt opts[] = {
        { .name = "tensors", .type = OPT_FLAG, .dest = &tensors, .help = "List every dense tensor and every predictor." },
        { .name = "json", .type = OPT_FLAG, .dest = &json, .help = "JSON on stdout." },
        { 0 },
    };
    struct err e = { 0 };
    struct pack *p = NULL;
    int r = opt_parse(opts, &usage, argc, argv, &n_pos, &e);
    if (r > 0)
        return 0;
    if (r == 0 && n_pos != 1)
        r = err_set(&e, ERR_USAGE, "give one packed model; see thermo-pack inspect --help");
    if (r == 0)
        r = pack_open(argv[1], &p, &e);
    if (r == 0 && json)
        r = print_json(p, tensors, &e);
    else if (r == 0)
        text(p, tensors);
    pack_close(p);
    return r < 0 ? opt_fail(&e) : 0;
}
