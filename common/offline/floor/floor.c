/* The same facts as trace_budget_model has from a trace's table of tensors, from the model's own; and the account of the least choice. */
#include "common/offline/floor/floor.h"

#include "common/base/print.h"
#include "common/base/size.h"
#include "common/kernels/quant.h"
#include "common/model/tokenizer.h"
#include "common/plan/room.h"

#include <stdlib.h>

#define DEFAULT_CONTEXT 4096

/* With thresholds the model is one more tensor for each layer, whatever they are. */
static int open_as(struct gguf *g, const struct model_given *stated, int silenced, struct model **m, struct err *e)
{
    int r = model_open(g, stated, m, e);
    if (r < 0 || !silenced)
        return r;
    float *at = calloc((size_t)(*m)->h.n_layers * (size_t)(*m)->h.n_ff, sizeof *at);
    struct model_given given = model_as(&(*m)->h);
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
        if (budget_add_dense(b, (enum model_role)r, t->bytes, t->dims[1], 1))
            return err_set(e, ERR_LIMIT, "the sizes of the model's tensors overflow");
    }
    return 0;
}

static int fill_account(const struct model *m, struct budget_model *b, struct err *e)
{
    uint64_t n_vocab;
    uint8_t *blob = NULL;
    size_t len = 0;
    *b = (struct budget_model){ .h = m->h };
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

static int fill_types(const struct model *m, struct layouts_source *s, struct err *e)
{
    static const enum model_role ffn[LAYOUT_ROLES] = { MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN };
    s->n_layers = m->h.n_layers;
    s->n_blocks = model_ffn_blocks(&m->h);
    for (int l = 0; l < s->n_layers; l++)
        for (int r = 0; r < LAYOUT_ROLES; r++) {
            const struct gguf_tensor *t = m->layer[l][ffn[r]];
            if (!t || !quant_traits(t->type))
                return err_set(e, ERR_UNSUPPORTED, "layer %d has no %s of a known type", l, model_role_name(ffn[r]));
            s->type[l][r] = t->type;
        }
    return 0;
}

int floor_model_of(struct gguf *g, const struct model_given *given, int silenced, struct floor_model *out, struct err *e)
{
    struct model *m = NULL;
    int r = open_as(g, given, silenced, &m, e);
    if (r == 0 && (r = fill_types(m, &out->source, e)) == 0 && (r = fill_account(m, &out->budget, e)) == 0)
        out->source.h = &out->budget.h;
    model_close(m);
    return r;
}

int floor_context(const struct model_hparams *h, int asked)
{
    return asked > 0 ? asked : h->n_ctx_train > 0 && h->n_ctx_train < DEFAULT_CONTEXT ? h->n_ctx_train : DEFAULT_CONTEXT;
}

static int least_of(const void *of, const struct floor_ask *a, uint64_t *bytes, struct err *e)
{
    const struct budget_model *m = of;
    struct budget b;
    const struct budget_choice c = { .context = a->context, .kv_type = a->kv_type, .max_batch = a->max_batch,
                                     .prefill_chunk = a->chunk ? a->chunk : 1, .threads = 1, .io_lanes = 1, .queue_depth = 1,
                                     .stream_tables = 1,
                                     .room_bytes = room_bytes(a->purpose, a->context, a->max_batch, m) };
    int r = budget_compute(m, &c, &b, e);
    if (r == 0)
        *bytes = b.total;
    return r;
}

int floor_ask(const struct floor_model *m, const struct layouts_options *w, const struct floor_ask *a, uint64_t *bytes, struct err *e)
{
    struct budget_model *b = malloc(2 * sizeof *b); /* shapes of 32 kinds each */
    struct layout of[LAYOUTS_MOST];
    int n = 0, r = b ? layouts_all(&m->source, w, of, &n, e) : err_set(e, ERR_NOMEM, "out of memory for the account");
    *bytes = UINT64_MAX;
    for (int i = 0; i < n && r == 0; i++) {
        uint64_t one;
        b[0] = m->budget;
        if ((r = layout_derive(&of[i], m->budget.h.d_model, m->budget.h.n_ff, &b[0].shapes, e)) == 0 &&
            (r = least_of(b, a, &one, e)) == 0 && one < *bytes) {
            *bytes = one;
            b[1] = b[0];
        }
    }
    if (r == 0 && a->memory_bytes && a->memory_bytes < *bytes)
        r = floor_refuse(a, least_of, &b[1], NULL, e);
    free(b);
    return r;
}

/* Largest context whose floor fits; 0: none. */
static int largest_context(const struct floor_ask *a, floor_least *least, const void *of, int *context, struct err *e)
{
    struct floor_ask at = *a;
    int low = 0, high = a->context, r;
    while (low < high) {
        uint64_t bytes;
        at.context = low + (high - low + 1) / 2;
        if ((r = least(of, &at, &bytes, e)) < 0)
            return r;
        if (bytes <= a->memory_bytes)
            low = at.context;
        else
            high = at.context - 1;
    }
    *context = low;
    return 0;
}

int floor_refuse(const struct floor_ask *a, floor_least *least, const void *of, struct floor_near *out, struct err *e)
{
    char memory[32], floor[32], purpose[40] = "", batch[96] = "", context[96] = "no context is small enough for that memory";
    struct floor_near n = { 0 };
    struct floor_ask one = *a;
    int r;
    one.max_batch = 1;
    if ((r = least(of, a, &n.memory_bytes, e)) < 0 || (r = largest_context(a, least, of, &n.context, e)) < 0 ||
        (r = a->max_batch > 1 ? least(of, &one, &n.memory_bytes_at_batch_1, e) : 0) < 0)
        return r;
    if (a->purpose)
        print_into(purpose, sizeof purpose, ", --for %s", plan_purpose_name(a->purpose));
    if (a->max_batch > 1)
        print_into(batch, sizeof batch, " and --max-batch %d (%llu bytes with --max-batch 1)", a->max_batch,
                   (unsigned long long)n.memory_bytes_at_batch_1);
    if (n.context > 0)
        print_into(context, sizeof context, "with that memory the largest --context is %d%s", n.context,
                   a->kv_type == KV_F32 ? " (--kv f16 halves what it takes)" : "");
    if (out)
        *out = n;
    return err_set(e, ERR_INFEASIBLE, "--memory %s (%llu bytes) is below the floor of %llu bytes (%s) for this model with --context "
                                      "%d%s%s%s; %s",
                   size_format(a->memory_bytes, memory, sizeof memory), (unsigned long long)a->memory_bytes,
                   (unsigned long long)n.memory_bytes, size_format(n.memory_bytes, floor, sizeof floor), a->context, purpose, batch,
                   a->chunk ? "; the floor with a smaller --chunk is lower" : "", context);
}
