/* The table of roles (operations.def) in ranges, one for each kind of operation, and the order in which a layer has these. */
#include "common/model/graph.h"

const struct graph_role graph_roles[] = {
#define ROLE(op, number, role, name, tensor, experts, presence, row, rows, job, times, host) { OP_##op, MODEL_##role, job, times, host },
#include "common/model/operations.def"
};
const int graph_n_roles = sizeof graph_roles / sizeof *graph_roles;

/* Where the roles of each kind of operation begin. */
enum {
#define OP(kind, name) FIRST_##kind, BEFORE_##kind = FIRST_##kind - 1,
#define ROLE(op, number, role, name, tensor, experts, presence, row, rows, job, times, host) AT_##role,
#include "common/model/operations.def"
    AT_END
};
static const uint8_t first[OP_KINDS + 1] = {
#define OP(kind, name) FIRST_##kind,
#include "common/model/operations.def"
    AT_END
};

static void put(struct graph_layer *g, enum op_kind kind, enum op_value a, enum op_value b, enum op_value c, enum op_value out)
{
    struct op *o = &g->op[g->n++];
    *o = (struct op){ .kind = (uint8_t)kind, .in = { (uint8_t)a, (uint8_t)b, (uint8_t)c }, .out = (uint8_t)out,
                      .role_first = first[kind], .n_roles = (uint8_t)(first[kind + 1] - first[kind]) };
}

enum op_kind graph_mixer(const struct model_hparams *h, int layer)
{
#define MIXER(kind, name, here) if (here) return OP_##kind;
#include "common/model/operations.def"
    return OP_KINDS;
}

void graph_layer(const struct model_hparams *h, int layer, struct graph_layer *out)
{
    struct graph_layer g = { .n = 0 };
    int routed = h->n_experts > 0 && !model_is_lead(h, layer);
    if (layer < 0) {
        put(&g, OP_EMBED, OP_NOTHING, OP_NOTHING, OP_NOTHING, OP_X);
        if (h->mtp)
            put(&g, OP_JOIN, OP_X, OP_NOTHING, OP_NOTHING, OP_X);
        put(&g, OP_HEAD, OP_X, OP_NOTHING, OP_NOTHING, OP_LOGITS);
        *out = g;
        return;
    }
    const char letter = model_letter(h, layer);
    if (letter == 'F') {
        put(&g, OP_FFN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_F);
        if (routed)
            put(&g, OP_ROUTE, OP_F, OP_NOTHING, OP_NOTHING, OP_R);
        put(&g, OP_FFN, OP_X, OP_F, routed ? OP_R : OP_NOTHING, OP_X);
        *out = g;
        return;
    }
    if (routed && h->early_router)
        put(&g, OP_ROUTE, OP_X, OP_NOTHING, OP_NOTHING, OP_R);
    put(&g, h->parallel ? OP_ATTN_NORM_2 : OP_ATTN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_N);
    put(&g, graph_mixer(h, layer), OP_N, OP_NOTHING, OP_NOTHING, OP_A);
    if (h->parallel)
        put(&g, OP_ATTN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_F);
    put(&g, OP_ADD, OP_X, OP_A, OP_NOTHING, OP_X);
    if (model_letter_is_alone(letter)) {
        *out = g;
        return;
    }
    if (!h->parallel)
        put(&g, OP_FFN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_F);
    if (h->wkv_dim)
        put(&g, OP_SHIFT, OP_F, OP_NOTHING, OP_NOTHING, OP_F);
    if (routed && !h->early_router)
        put(&g, OP_ROUTE, OP_F, OP_NOTHING, OP_NOTHING, OP_R);
    put(&g, OP_FFN, OP_X, OP_F, routed ? OP_R : OP_NOTHING, OP_X);
    if (h->layer_embd)
        put(&g, OP_LAYER_EMBD, OP_X, OP_NOTHING, OP_NOTHING, OP_X);
    if (h->out_scale || model_halves(h, layer))
        put(&g, OP_SCALE, OP_X, OP_NOTHING, OP_NOTHING, OP_X);
    *out = g;
}

uint64_t graph_widest(const struct model_hparams *h)
{
    uint64_t most = (uint64_t)h->d_model, dims[4];
    for (int windowed = 0; windowed <= (h->head_dim_window > 0); windowed++) {
        const struct model_hparams own = model_kind(h, windowed);
        for (int i = 0; i < graph_n_roles; i++)
            if (graph_roles[i].job && !graph_roles[i].host && model_tensor_shape(&own, (enum model_role)graph_roles[i].role, dims) > 0)
                most = dims[0] > most ? dims[0] : most;
    }
    return most;
}

const char *graph_op_name(enum op_kind k)
{
    static const char *const names[OP_KINDS] = {
#define OP(kind, name) #name,
#include "common/model/operations.def"
    };
    return k < OP_KINDS ? names[k] : "?";
}
