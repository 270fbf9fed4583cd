/* gguf-make requant: keys are copied but for the two that speak of the type; matrices are dequantised and
 * quantised anew row by row; vectors (norms) and expert routers, which every engine keeps in F32, are
 * copied bit for bit. */
#include "common/base/log.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "datasets/tools/make.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int source_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    const struct gguf_tensor *s = t->source_tensor;
    uint8_t *raw = malloc((size_t)s->row_bytes);
    int r = raw ? gguf_read(t->source, s, row * s->row_bytes, raw, (size_t)s->row_bytes, e)
                : err_set(e, ERR_NOMEM, "a row of %" PRIu64 " bytes", s->row_bytes);
    if (r == 0)
        quant_traits(s->type)->dequant(out, raw, (size_t)s->dims[0]);
    free(raw);
    return r;
}

static int copy_keys(struct make *m, const struct gguf *g, uint32_t type, struct err *e)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < g->n_keys; i++) {
        const char *name = g->keys[i].name;
        if (strcmp(name, "general.file_type") && strcmp(name, "general.quantization_version") &&
            strcmp(name, "general.alignment") && strncmp(name, "split.", 6))
            r = gguf_writer_kv_raw(m->w, &g->keys[i], e);
    }
    if (r < 0 || (r = gguf_writer_u32(m->w, "general.file_type", make_file_type(type), e)) < 0)
        return r;
    return gguf_writer_u32(m->w, "general.quantization_version", 2, e);
}

/* Has this tensor more bits in llama-quantize's mixtures? The head, and attn_v and ffn_down of some layers. */
static int has_more_bits(const char *name, int n_layers)
{
    int layer, end = 0;
    if (!strcmp(name, "output.weight"))
        return 1;
    if (sscanf(name, "blk.%d.%n", &layer, &end) != 1 || !end ||
        (strcmp(name + end, "attn_v.weight") && strcmp(name + end, "ffn_down.weight")))
        return 0;
    return make_more_bits(layer, n_layers);
}

static int count_layers(const struct gguf *g)
{
    int n = 0, layer;
    for (uint64_t i = 0; i < g->n_tensors; i++)
        if (sscanf(g->tensors[i].name, "blk.%d.", &layer) == 1 && layer >= n)
            n = layer + 1;
    return n;
}

/* more: type of the tensors with more bits. */
static int add_tensors(struct make *m, const struct gguf *g, uint32_t type, uint32_t more, struct err *e)
{
    int r = 0, n_layers = count_layers(g);
    for (uint64_t i = 0; r == 0 && i < g->n_tensors; i++) {
        const struct gguf_tensor *s = &g->tensors[i];
        int keep = s->n_dims < 2 || strstr(s->name, "ffn_gate_inp") || strstr(s->name, ".bias");
        uint32_t own = has_more_bits(s->name, n_layers) ? more : type;
        struct make_tensor t = { .type = keep ? s->type : own, .n_dims = s->n_dims, .row = source_row,
                                 .source = g, .source_tensor = s };
        if (strlen(s->name) >= sizeof t.name)
            return err_set(e, ERR_LIMIT, "'%s': tensor '%s': the name is longer than the limit of %zu bytes", gguf_name(g),
                           s->name, sizeof t.name - 1);
        memcpy(t.name, s->name, strlen(s->name) + 1);
        memcpy(t.dims, s->dims, sizeof t.dims);
        if (s->type != t.type && !quant_traits(s->type)->dequant)
            return err_set(e, ERR_UNSUPPORTED, "'%s': tensor '%s': type %s cannot be read by this build", gguf_name(g),
                           s->name, quant_traits(s->type)->name);
        r = make_add(m, &t, e);
    }
    return r;
}

/* Experts, and no key that says how routers weigh them. */
static int router_unstated(const struct gguf *g)
{
    int experts = 0, stated = 0;
    for (uint64_t i = 0; i < g->n_keys; i++) {
        const char *key = strrchr(g->keys[i].name, '.');
        experts |= key && !strcmp(key, ".expert_count");
        stated |= key && (!strcmp(key, ".expert_gating_func") || !strcmp(g->keys[i].name, "thermocline.router"));
    }
    return experts && !stated;
}

static int requant(const char *in, const char *out, uint32_t type, uint32_t more, struct err *e)
{
    struct gguf *g;
    struct make m = { 0 };
    int r = gguf_open(in, &g, e);
    if (r < 0)
        return r;
    if ((r = make_new(&m, e)) == 0) {
        m.router_unstated = router_unstated(g);
        if (g->is_pwri)
            gguf_writer_set_pwri(m.w);
        if ((r = copy_keys(&m, g, type, e)) == 0 && (r = add_tensors(&m, g, type, more, e)) == 0)
            r = make_save(&m, out, e);
    }
    make_free(&m);
    gguf_close(g);
    return r;
}

int cmd_requant(int argc, char **argv)
{
    static const struct opt_usage usage = {
        "gguf-make requant", "IN.gguf OUT.gguf",
        "Write the same model with every matrix (embeddings included) in another type, by the standard rules of the "
        "type. Vectors and expert routers are copied as they are. What cannot be read as a model is refused.",
        "  gguf-make requant --type q8_0 datasets/models/reglu-tales-10m-f16.gguf q8_0.gguf\n", "rw"
    };
    const char *type_name = NULL, *more_name = NULL;
    const struct opt opts[] = {
        { .name = "type", .short_name = 't', .type = OPT_STRING, .dest = &type_name, .arg = "TYPE", .required = 1,
          .help = "Any type that can be written: f16, q8_0, q4_0, q4_k, q6_k, mxfp4, ..." },
        { .name = "more-bits", .type = OPT_STRING, .dest = &more_name, .arg = "TYPE",
          .help = "Type of the tensors that have more bits in mixtures such as Q4_K_M: the head, and attn_v and ffn_down of the first "
                  "and last eighth of the layers and of every third between.", .def = "that of the others" },
        { 0 }
    };
    struct err e = { 0 };
    int n;
    uint32_t type, more;
    int r = opt_parse(opts, &usage, argc, argv, &n, &e);
    if (r != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n != 2) {
        err_set(&e, ERR_USAGE, "two files are needed, IN.gguf and OUT.gguf (%d given)", n);
        return opt_fail(&e);
    }
    if (make_type(type_name, &type, &e) < 0 || make_type(more_name ? more_name : type_name, &more, &e) < 0 ||
        requant(argv[1], argv[2], type, more, &e) < 0)
        return opt_fail(&e);
    return 0;
}
