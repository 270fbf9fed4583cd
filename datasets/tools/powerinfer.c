/* gguf-make powerinfer: the same model as PowerInfer's converter would have written it. Magic PWRI (which makes the
 * activation of a llama ReLU; a dReLU model becomes a bamboo), Down transposed, and a predictor per layer of the form
 * fc2 relu(fc1 x) on the residual x before ffn_norm. This one is no trained network but a factorisation: rows 2c and
 * 2c + 1 of fc1 are +w_c and -w_c on channel c (w: ffn_norm's weights), columns 2c and 2c + 1 of fc2 are +g_ic and
 * -g_ic (g: the gate matrix), so that
 *   score_i = sum over c of g_ic w_c x_c = gate_i * sqrt(mean(x^2) + eps)
 * has the gate's sign when all channels are there; of fewer it is a poor predictor, with which thresholds can be
 * tested. */
#include "common/base/log.h"
#include "common/cli/opt.h"
#include "common/kernels/quant.h"
#include "common/model/model.h"
#include "datasets/tools/make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conversion {
    const struct gguf *g;
    const struct model *m;
    const char *arch;
    int rank;
    double threshold;
    uint32_t type;               /* of the predictors */
    const struct gguf_tensor *of; /* whose floats these are: */
    float *matrix;
};

/* The floats of a tensor of the source, kept until another is asked for. */
static int floats_of(struct conversion *c, const struct gguf_tensor *t, const float **out, struct err *e)
{
    size_t n = (size_t)(t->n_rows * t->dims[0]);
    if (c->of != t) {
        uint8_t *raw = malloc((size_t)t->bytes);
        c->of = NULL;
        free(c->matrix);
        c->matrix = malloc(n * sizeof *c->matrix);
        int r = raw && c->matrix ? gguf_read(c->g, t, 0, raw, (size_t)t->bytes, e)
                                 : err_set(e, ERR_NOMEM, "tensor '%s'", t->name);
        if (r == 0)
            quant_traits(t->type)->dequant(c->matrix, raw, n);
        free(raw);
        if (r < 0)
            return r;
        c->of = t;
    }
    *out = c->matrix;
    return 0;
}

static int down_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    const struct gguf_tensor *s = t->source_tensor;
    const float *m;
    int r = floats_of(t->ctx, s, &m, e);
    for (uint64_t i = 0; r == 0 && i < s->n_rows; i++)
        out[i] = m[i * s->dims[0] + row];
    return r;
}

static int fc1_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    const float *w;
    int r = floats_of(t->ctx, t->source_tensor, &w, e);
    memset(out, 0, (size_t)t->dims[0] * sizeof *out);
    if (r == 0)
        out[row / 2] = row % 2 ? -w[row / 2] : w[row / 2];
    return r;
}

static int fc2_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    const float *g;
    int r = floats_of(t->ctx, t->source_tensor, &g, e);
    g += r == 0 ? row * t->source_tensor->dims[0] : 0;
    for (uint64_t i = 0; r == 0 && i < t->dims[0]; i++)
        out[i] = i % 2 ? -g[i / 2] : g[i / 2];
    return r;
}

static int copied_row(const struct make_tensor *t, uint64_t row, float *out, struct err *e)
{
    (void)row, (void)out;
    return err_set(e, ERR_UNSUPPORTED, "tensor '%s' is copied", t->name);
}

static int add_layer(struct make *m, struct conversion *c, int layer, struct err *e)
{
    const struct gguf_tensor *const *t = c->m->layer[layer];
    const struct model_hparams *h = &c->m->h;
    uint64_t d = (uint64_t)h->d_model, n_ff = (uint64_t)h->n_ff, rank = (uint64_t)c->rank;
    struct make_tensor made[3] = {
        { .type = t[MODEL_FFN_DOWN]->type, .n_dims = 2, .dims = { d, n_ff, 1, 1 }, .row = down_row,
          .source_tensor = t[MODEL_FFN_DOWN], .ctx = c },
        { .type = c->type, .n_dims = 2, .dims = { d, rank, 1, 1 }, .row = fc1_row, .source_tensor = t[MODEL_FFN_NORM],
          .ctx = c },
        { .type = c->type, .n_dims = 2, .dims = { rank, n_ff, 1, 1 }, .row = fc2_row,
          .source_tensor = t[MODEL_FFN_GATE], .ctx = c },
    };
    static const char *const names[3] = { "ffn_down_t", "fc1", "fc2" };
    int r = 0;
    for (int i = 0; i < 3 && r == 0; i++) {
        snprintf(made[i].name, sizeof made[i].name, "blk.%d.%s.weight", layer, names[i]);
        if (!quant_traits(made[i].type)->quant)
            return err_set(e, ERR_UNSUPPORTED, "tensor '%s': this build does not write type %s", made[i].name,
                           quant_traits(made[i].type)->name);
        r = make_add(m, &made[i], e);
    }
    return r;
}

static int add_tensors(struct make *m, struct conversion *c, struct err *e)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < c->g->n_tensors; i++) {
        const struct gguf_tensor *s = &c->g->tensors[i];
        struct make_tensor t = { .type = s->type, .n_dims = s->n_dims, .row = copied_row, .source = c->g,
                                 .source_tensor = s };
        if (strstr(s->name, ".ffn_down.") != NULL)
            continue;
        snprintf(t.name, sizeof t.name, "%s", s->name); /* model_open knows the name, so it fits */
        memcpy(t.dims, s->dims, sizeof t.dims);
        r = make_add(m, &t, e);
    }
    for (int l = 0; l < c->m->h.n_layers && r == 0; l++)
        r = add_layer(m, c, l, e);
    return r;
}

static int copy_keys(struct make *m, const struct conversion *c, struct err *e)
{
    size_t stem = strlen(c->m->h.arch);
    int r = gguf_writer_str(m->w, "general.architecture", c->arch, e);
    for (uint64_t i = 0; r == 0 && i < c->g->n_keys; i++) {
        struct gguf_key k = c->g->keys[i];
        char name[128];
        int own = !strncmp(k.name, c->m->h.arch, stem) && k.name[stem] == '.';
        if (!strcmp(k.name, "general.architecture") || !strcmp(k.name, "general.alignment") ||
            !strncmp(k.name, "split.", 6) || (own && !strncmp(k.name + stem, ".hidden_act", 11)))
            continue;
        if (own) {
            snprintf(name, sizeof name, "%s%s", c->arch, k.name + stem);
            k.name = name;
        }
        r = gguf_writer_kv_raw(m->w, &k, e);
    }
    return r < 0 ? r : gguf_writer_f32(m->w, "powerinfer.sparse_threshold", (float)c->threshold, e);
}

static int check(struct conversion *c, struct err *e)
{
    const struct model_hparams *h = &c->m->h;
    if (strcmp(h->arch, "llama") || h->n_experts || c->g->is_pwri || h->down_by_neuron)
        return err_set(e, ERR_UNSUPPORTED, "'%s': only a plain llama without experts can be written as PowerInfer does",
                       gguf_name(c->g));
    if (h->act == MODEL_ACT_SILU)
        return err_set(e, ERR_UNSUPPORTED, "'%s': its activation is silu, which the magic PWRI makes relu",
                       gguf_name(c->g));
    c->arch = h->act == MODEL_ACT_DRELU ? "bamboo" : "llama";
    c->type = c->m->layer[0][MODEL_FFN_GATE]->type == QUANT_F32 ? QUANT_F32 : QUANT_F16;
    c->rank = c->rank ? c->rank : 2 * h->d_model;
    if (c->rank > 2 * h->d_model || c->rank % 2 != 0)
        return err_set(e, ERR_USAGE, "--rank %d: an even number up to %d is needed, two per channel", c->rank,
                       2 * h->d_model);
    return 0;
}

static int convert(struct conversion *c, const char *in, const char *out, struct err *e)
{
    struct gguf *g = NULL;
    struct model *model = NULL;
    struct make m = { 0 };
    int r = gguf_open(in, &g, e);
    if (r == 0 && (r = model_open(g, NULL, &model, e)) == 0 && (r = make_new(&m, e)) == 0) {
        c->g = g;
        c->m = model;
        gguf_writer_set_pwri(m.w);
        if ((r = check(c, e)) == 0 && (r = copy_keys(&m, c, e)) == 0 && (r = add_tensors(&m, c, e)) == 0)
            r = make_save(&m, out, e);
    }
    make_free(&m);
    free(c->matrix);
    model_close(model);
    gguf_close(g);
    return r;
}

int cmd_powerinfer(int argc, char **argv)
{
    static const struct opt_usage usage = {
        "gguf-make powerinfer", "IN.gguf OUT.gguf",
        "Write the same model in PowerInfer's variety of GGUF: magic PWRI, Down transposed, a predictor of active neurons "
        "per layer (fc1, fc2). The predictor is a factorisation of the gates, for tests of what imports it; no "
        "trained one. A llama whose activation is relu stays one, drelu becomes a bamboo.",
        "  gguf-make powerinfer datasets/models/reglu-tales-10m-f16.gguf tales.powerinfer.gguf\n"
        "  gguf-make powerinfer --rank 128 --threshold -0.5 m.gguf poor.powerinfer.gguf\n", "rw"
    };
    struct conversion c = { .rank = 0 };
    const struct opt opts[] = {
        { .name = "rank", .type = OPT_INT, .dest = &c.rank, .min = 2, .max = 2 * MODEL_MAX_DIM, .arg = "N",
          .def = "two per channel: exact",
          .help = "Rank of the predictors; with N below twice the width they see the first N/2 channels only." },
        { .name = "threshold", .type = OPT_DOUBLE, .dest = &c.threshold, .min = -1e9, .max = 1e9, .arg = "X",
          .def = "0", .help = "powerinfer.sparse_threshold: scores above it mean active." },
        { 0 }
    };
    struct err e = { 0 };
    int n, r = opt_parse(opts, &usage, argc, argv, &n, &e);
    if (r != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n != 2) {
        err_set(&e, ERR_USAGE, "two files are needed, IN.gguf and OUT.gguf (%d given)", n);
        return opt_fail(&e);
    }
    return convert(&c, argv[1], argv[2], &e) < 0 ? opt_fail(&e) : 0;
}
