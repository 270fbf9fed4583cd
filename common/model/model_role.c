/* Made from one table, operations.def. PowerInfer's files have Down by neuron, under a name and with a shape of its own. */
#include "common/model/model_role.h"

#include <stdio.h>
#include <string.h>

enum op {
#define OP(kind, name) OF_##kind,
#include "common/model/operations.def"
    OF_PREDICTOR
};

enum dim {
    NONE,
#define DIM(dim, value) dim,
#include "common/model/operations.def"
};

enum presence {
#define PRESENCE(presence, value) presence,
#include "common/model/operations.def"
};

struct role {
    const char *name, *tensor, *experts;
    enum op op;
    enum presence presence;
    enum dim dims[2];
};

static const struct role roles[MODEL_ROLES] = {
#define ROLE(op, number, role, name, tensor, experts, presence, row, rows, job, times, host) \
    [number] = { name, tensor, experts, OF_##op, presence, { row, rows } },
#define PREDICTOR(number, role, name, tensor, presence, row, rows) [number] = { name, tensor, NULL, OF_PREDICTOR, presence, { row, rows } },
#include "common/model/operations.def"
};

/* Names in the layer's block of what a layer that predicts further tokens has in place of the model's own. */
static const char *mtp_tensor(enum model_role r)
{
    switch (r) {
    case MODEL_TOKEN_EMBD:  return "nextn.embed_tokens.weight";
    case MODEL_OUTPUT:      return "nextn.shared_head_head.weight";
    case MODEL_OUTPUT_NORM: return "nextn.shared_head_norm.weight";
    case MODEL_MTP_PROJ: case MODEL_MTP_ENORM: case MODEL_MTP_HNORM: return roles[r].tensor;
    default: return NULL;
    }
}

/* A role as a model of these hyper-parameters has it. */
static struct role role_of(const struct model_hparams *h, enum model_role r)
{
    struct role own = roles[r];
#define ALT(where, role, text, row, rows) \
    if ((where) && r == MODEL_##role) { \
        own.tensor = (text), own.experts = NULL, own.dims[0] = (row), own.dims[1] = (rows); \
        return own; \
    }
#include "common/model/operations.def"
    return own;
}

int model_role_is_ffn(enum model_role r)
{
    return r == MODEL_FFN_GATE || r == MODEL_FFN_UP || r == MODEL_FFN_DOWN;
}

int model_role_is_predictor(enum model_role r)
{
    return r == MODEL_PREDICT_FC1 || r == MODEL_PREDICT_FC2;
}

int model_role_is_dense(enum model_role r)
{
    return !model_role_is_ffn(r) && !model_role_is_predictor(r);
}

int model_role_is_per_layer(enum model_role r)
{
    return r < MODEL_ROLES && roles[r].op != OF_EMBED && roles[r].op != OF_JOIN && roles[r].op != OF_HEAD;
}

int model_role_is_vector(enum model_role r)
{
    const enum dim row = r < MODEL_ROLES ? roles[r].dims[0] : NONE;
    return r < MODEL_ROLES && (roles[r].dims[1] == NONE || row == D_CONV || row == D_ONE || row == D_SSM_PART);
}

const char *model_role_name(enum model_role r)
{
    return r < MODEL_ROLES ? roles[r].name : "?";
}

int model_tensor_name(const struct model_hparams *h, enum model_role r, int layer, char *out, size_t len)
{
    if (r >= MODEL_ROLES || (r == MODEL_FFN_ROUTER && h->n_experts == 0) ||
        (model_role_is_per_layer(r) && (layer < 0 || layer >= model_depth(h))))
        return -1;
    const struct role role = role_of(h, r);
    const char *tensor = h->n_experts > 0 && role.experts ? role.experts : role.tensor;
    const char *of_block = model_role_is_per_layer(r) ? tensor : mtp_tensor(r);
    if (h->mtp && of_block)
        snprintf(out, len, "blk.%d.%s", h->mtp, of_block);
    else if (model_role_is_per_layer(r))
        snprintf(out, len, "blk.%d.%s", model_block_of(h, layer), tensor);
    else
        snprintf(out, len, "%s", tensor);
    return 0;
}

int model_leaves_out(const struct model_hparams *h, const char *name)
{
    int blk, at = 0, depth = model_depth(h);
    if (h->sparse && strstr(name, ".indexer."))
        return 1;
    if (h->mtp)
        return (sscanf(name, "blk.%d.", &blk) != 1 || blk != h->mtp) && strcmp(name, roles[MODEL_ROPE_FREQS].tensor) != 0;
    if (h->mix_rank)
        return 0;
    if (h->wkv_dim)
        return !strcmp(name, "blk.0.time_mix_v0.weight") || !strcmp(name, "blk.0.time_mix_v1.weight") ||
               !strcmp(name, "blk.0.time_mix_v2.weight");
    if (h->shared_kv && sscanf(name, "blk.%d.%n", &blk, &at) == 1 && at && blk < depth && blk >= depth - h->shared_kv)
        return !strcmp(name + at, roles[MODEL_ATTN_K].tensor) || !strcmp(name + at, roles[MODEL_ATTN_V].tensor) ||
               !strcmp(name + at, roles[MODEL_ATTN_K_NORM].tensor);
    return h->n_nextn > 0 && sscanf(name, "blk.%d.", &blk) == 1 && blk >= depth && blk - depth < h->n_nextn;
}

static uint64_t dim_value(const struct model_hparams *h, enum dim d)
{
    int whole = h->qk_norm == MODEL_QK_NORM_ROW;
    switch (d) {
#define DIM(dim, value) case dim: return (uint64_t)(value);
#include "common/model/operations.def"
    case NONE: break;
    }
    return 1;
}

enum model_presence model_role_presence(const struct model_hparams *h, enum model_role r)
{
    if (r >= MODEL_ROLES || (h->n_experts > 0 && r == MODEL_FFN_DOWN && h->down_by_neuron))
        return MODEL_ABSENT;
    if (h->wkv_dim && (roles[r].op == OF_ATTENTION || roles[r].presence == FFN_BIASED || roles[r].presence == MAYBE))
        return MODEL_ABSENT;
    switch (roles[r].presence) {
#define PRESENCE(presence, value) case presence: return value;
#include "common/model/operations.def"
    }
    return MODEL_ABSENT;
}

enum model_presence model_role_at(const struct model_hparams *h, enum model_role r, int layer)
{
    enum model_presence p = model_role_presence(h, r);
    if (p == MODEL_ABSENT || !model_role_is_per_layer(r))
        return p;
    if (roles[r].presence == WKV_LATER && layer == 0)
        return MODEL_ABSENT;
#define MIXER(kind, name, here) \
    if (roles[r].op == OF_##kind && !(here)) \
        return MODEL_ABSENT;
#include "common/model/operations.def"
    if (model_kv_layer(h, layer) != layer && (r == MODEL_ATTN_K || r == MODEL_ATTN_V || r == MODEL_ATTN_K_NORM ||
                                              r == MODEL_ATTN_K_BIAS || r == MODEL_ATTN_V_BIAS))
        return MODEL_ABSENT;
    const char letter = model_letter(h, layer);
    if (letter == 'F' && roles[r].op == OF_ATTN_NORM)
        return MODEL_ABSENT;
    if (model_letter_is_alone(letter) && (roles[r].op == OF_FFN_NORM || roles[r].op == OF_ROUTE || roles[r].op == OF_FFN))
        return MODEL_ABSENT;
    if (!model_is_lead(h, layer))
        return roles[r].presence == LEAD ? MODEL_ABSENT : p;
    switch (roles[r].presence) { /* attention's alone, and the FFN of its own */
    case SHARED_GATED: case EXPERT_BIASED: case FFN_BIASED: case SHARED: case SHARED_OPEN: case SELECTED: case ROUTED: case DENSE_MAYBE:
        return MODEL_ABSENT;
    default:
        return model_role_is_ffn(r) ? MODEL_ABSENT : p;
    }
}

int model_tensor_shape_at(const struct model_hparams *h, enum model_role r, int layer, uint64_t dims[4])
{
    struct model_hparams own = model_role_is_per_layer(r) ? model_of_layer(h, layer) : *h;
    return model_tensor_shape(&own, r, dims);
}

int model_tensor_shape(const struct model_hparams *h, enum model_role r, uint64_t dims[4])
{
    if (model_role_presence(h, r) == MODEL_ABSENT)
        return -1;
    const struct role role = role_of(h, r);
    int n = role.dims[1] == NONE ? 1 : 2;
    dims[0] = dim_value(h, role.dims[0]);
    dims[1] = dim_value(h, role.dims[1]);
    dims[2] = dims[3] = 1;
    if (h->n_experts > 0 && role.experts)
        dims[n++] = dim_value(h, D_EXPERTS);
    if (r == MODEL_WKV_LERP) { /* of r, w, k, v, a, g; RWKV-6: w, k, v, r, g */
        dims[3] = h->mix_rank ? 5 : 6;
        return 4;
    }
    if (r == MODEL_WKV_MIX_B) /* of w, k, v, r, g */
        dims[n++] = 5;
    if (r == MODEL_ATTN_K_B || r == MODEL_ATTN_V_B) /* of each head */
        dims[n++] = dim_value(h, D_HEADS);
    return n;
}
