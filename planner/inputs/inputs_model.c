/* The same facts as trace_budget_model has from a trace's table of tensors, from the model's own. */
#include "planner/inputs/inputs_model.h"

#include "common/kernels/quant.h"
#include "common/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* With thresholds the model is one more tensor for each layer, whatever they are. */
static int open_as(struct gguf *g, const struct inputs_stated *stated, struct model **m, struct err *e)
{
    struct model_given given = { .act = stated->act, .router = stated->router };
    int r = model_open(g, &given, m, e);
    if (r < 0 || !stated->silenced)
        return r;
    float *at = calloc((size_t)(*m)->h.n_layers * (size_t)(*m)->h.n_ff, sizeof *at);
    given = model_as(&(*m)->h);
    given.thresholds = at;
    model_close(*m);
    *m = NULL;
    r = at ? model_open(g, &given, m, e) : err_set(e, ERR_NOMEM, "thresholds");
    free(at);
    return r;
}

static int add_dense(struct budget_model *b, const struct gguf_tensor *const *roles, int per_layer, struct err *e)
{
    for (int r = 0; r < MODEL_ROLES; r++) {
        const struct gguf_tensor *t = roles[r];
        if (!t || !model_role_is_dense((enum model_role)r) || (model_role_is_per_layer((enum model_role)r) != 0) != per_layer)
            continue;
        uint64_t bytes = budget_dense_tensor(t->bytes);
        if (b->dense_bytes + bytes < bytes || bytes < t->bytes)
            return err_set(e, ERR_LIMIT, "the sizes of the model's tensors overflow");
        b->dense_bytes += bytes;
        b->n_tensors++;
    }
    return 0;
}

static int fill_account(const struct model *m, struct budget_model *b, struct err *e)
{
    uint64_t n_vocab;
    uint8_t *blob = NULL;
    size_t len = 0;
    b->h = m->h;
    int r = model_meta_blob(m->gguf, &m->h, NULL, &blob, &len, e);
    free(blob);
    b->meta_bytes = len;
    if (r == 0)
        r = tokenizer_measure(m->gguf, &n_vocab, &b->vocab_text_bytes, &b->n_merges, e);
    if (r == 0)
        r = add_dense(b, m->global, 0, e);
    for (int l = 0; l < model_depth(&m->h) && r == 0; l++)
        r = add_dense(b, m->layer[l], 1, e);
    return r;
}

static int fill_types(const struct model *m, struct inputs *in, struct err *e)
{
    static const enum model_role ffn[LAYOUT_ROLES] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };
    for (int l = 0; l < in->n_layers; l++)
        for (int r = 0; r < LAYOUT_ROLES; r++) {
            const struct gguf_tensor *t = m->layer[l][ffn[r]];
            if (!t || !quant_traits(t->type))
                return err_set(e, ERR_UNSUPPORTED, "layer %d has no %s of a known type", l, model_role_name(ffn[r]));
            in->layers[l].ffn_type[r] = t->type;
        }
    return 0;
}

int inputs_from_model(const char *path, const struct inputs_stated *stated, int max_batch, struct inputs *out, struct err *e)
{
    struct inputs in = { .n_batches = inputs_count_batches(max_batch) };
    struct gguf *g;
    struct model *m = NULL;
    int r = gguf_open(path, &g, e);
    if (r < 0)
        return r;
    if ((r = open_as(g, stated, &m, e)) == 0) {
        in.h = m->h;
        in.n_layers = m->h.n_layers;
        in.n_blocks = model_ffn_blocks(&m->h);
        in.n_used = m->h.n_experts > 0 ? m->h.n_experts_used : 1;
        memcpy(in.name, m->h.name, sizeof in.name);
        if (!(in.layers = calloc((size_t)model_depth(&in.h), sizeof *in.layers)))
            r = err_set(e, ERR_NOMEM, "out of memory for %d layers", in.n_layers);
        else if ((r = fill_types(m, &in, e)) == 0)
            r = fill_account(m, &in.budget, e);
    }
    model_close(m);
    gguf_close(g);
    if (r < 0) {
        inputs_done(&in);
        return r;
    }
    *out = in;
    return 0;
}
