/* The table of roles in ranges, one for each kind of operation, and the order in which a layer has these. A family with a new operation
 * has a range here, a place in the order, and its run in both passes. */
#include "common/model/graph.h"

enum { NO_JOB, JOB_JOIN, JOB_QKV, JOB_ATTN_OUT, JOB_Q_B, JOB_K_B, JOB_V_B, JOB_DELTA_IN, JOB_DELTA_OUT, JOB_WKV_R, JOB_WKV_K,
       JOB_WKV_V, JOB_WKV_OUT, JOB_MIX_A, JOB_MIX_B, JOB_WKV_W, JOB_WKV_W_2, JOB_WKV_A, JOB_WKV_A_2, JOB_WKV_V_2, JOB_WKV_G,
       JOB_WKV_G_2, JOB_RECEPTANCE, JOB_ROUTER, JOB_SHARED_IN, JOB_SHARED_OUT, JOB_HEAD };

/* Neither has a job: vectors, and neurons, which are the pipeline's. */
#define VECTOR(kind, role) { OP_##kind, MODEL_##role, NO_JOB, 0, 0 }
#define MATRIX(kind, role, job) { OP_##kind, MODEL_##role, JOB_##job, 0, 0 }

const struct graph_role graph_roles[] = {
    VECTOR(EMBED, TOKEN_EMBD), VECTOR(EMBED, POSITION_EMBD), VECTOR(EMBED, EMBD_NORM), VECTOR(EMBED, EMBD_NORM_BIAS),
    VECTOR(EMBED, ROPE_FREQS),
    MATRIX(JOIN, MTP_PROJ, JOIN), VECTOR(JOIN, MTP_ENORM), VECTOR(JOIN, MTP_HNORM),
    VECTOR(ATTN_NORM, ATTN_NORM), VECTOR(ATTN_NORM, ATTN_NORM_BIAS),
    VECTOR(ATTN_NORM_2, ATTN_NORM_2), VECTOR(ATTN_NORM_2, ATTN_NORM_2_BIAS),
    MATRIX(ATTENTION, ATTN_Q, QKV), MATRIX(ATTENTION, ATTN_K, QKV), MATRIX(ATTENTION, ATTN_V, QKV),
    MATRIX(ATTENTION, ATTN_OUTPUT, ATTN_OUT), MATRIX(ATTENTION, ATTN_Q_A, QKV), MATRIX(ATTENTION, ATTN_Q_B, Q_B),
    MATRIX(ATTENTION, ATTN_KV_A, QKV), { OP_ATTENTION, MODEL_ATTN_K_B, JOB_K_B, 0, 1 }, { OP_ATTENTION, MODEL_ATTN_V_B, JOB_V_B, 0, 1 },
    VECTOR(ATTENTION, ATTN_Q_BIAS), VECTOR(ATTENTION, ATTN_K_BIAS), VECTOR(ATTENTION, ATTN_V_BIAS), VECTOR(ATTENTION, ATTN_OUTPUT_BIAS),
    VECTOR(ATTENTION, ATTN_Q_NORM), VECTOR(ATTENTION, ATTN_K_NORM), VECTOR(ATTENTION, ATTN_Q_A_NORM), VECTOR(ATTENTION, ATTN_KV_A_NORM),
    VECTOR(ATTENTION, ATTN_SINKS),
    MATRIX(DELTA, DELTA_QKV, DELTA_IN), MATRIX(DELTA, DELTA_Z, DELTA_IN), MATRIX(DELTA, DELTA_BETA_ALPHA, DELTA_IN),
    MATRIX(DELTA, DELTA_BETA, DELTA_IN), MATRIX(DELTA, DELTA_ALPHA, DELTA_IN), MATRIX(DELTA, DELTA_OUT, DELTA_OUT),
    VECTOR(DELTA, DELTA_CONV), VECTOR(DELTA, DELTA_DT), VECTOR(DELTA, DELTA_A), VECTOR(DELTA, DELTA_NORM),
    MATRIX(WKV, WKV_R, WKV_R), MATRIX(WKV, WKV_K, WKV_K), MATRIX(WKV, WKV_V, WKV_V), MATRIX(WKV, WKV_OUTPUT, WKV_OUT),
    MATRIX(WKV, WKV_MIX_A, MIX_A), { OP_WKV, MODEL_WKV_MIX_B, JOB_MIX_B, 5, 0 }, MATRIX(WKV, WKV_DECAY_A, WKV_W),
    MATRIX(WKV, WKV_DECAY_B, WKV_W_2), MATRIX(WKV, WKV_RATE_A, WKV_A), MATRIX(WKV, WKV_RATE_B, WKV_A_2),
    MATRIX(WKV, WKV_VALUE_A, WKV_V), MATRIX(WKV, WKV_VALUE_B, WKV_V_2), MATRIX(WKV, WKV_GATE_A, WKV_G),
    MATRIX(WKV, WKV_GATE_B, WKV_G_2), MATRIX(WKV, WKV_G, WKV_G), VECTOR(WKV, WKV_LERP), VECTOR(WKV, WKV_LERP_X), VECTOR(WKV, WKV_DECAY),
    VECTOR(WKV, WKV_RATE), VECTOR(WKV, WKV_VALUE), VECTOR(WKV, WKV_K_K), VECTOR(WKV, WKV_K_A), VECTOR(WKV, WKV_R_K),
    VECTOR(WKV, WKV_NORM), VECTOR(WKV, WKV_NORM_BIAS),
    VECTOR(ADD, ATTN_POST_NORM),
    VECTOR(FFN_NORM, FFN_NORM), VECTOR(FFN_NORM, FFN_NORM_BIAS),
    VECTOR(SHIFT, FFN_LERP), VECTOR(SHIFT, FFN_LERP_R), MATRIX(SHIFT, FFN_R, RECEPTANCE),
    { OP_ROUTE, MODEL_FFN_ROUTER, JOB_ROUTER, 0, 1 }, VECTOR(ROUTE, FFN_ROUTER_BIAS), VECTOR(ROUTE, SELECT_BIAS),
    VECTOR(ROUTE, ROUTER_SCALE),
    MATRIX(FFN, SHARED_GATE, SHARED_IN), MATRIX(FFN, SHARED_UP, SHARED_IN), MATRIX(FFN, SHARED_DOWN, SHARED_OUT),
    MATRIX(FFN, LEAD_GATE, SHARED_IN), MATRIX(FFN, LEAD_UP, SHARED_IN), MATRIX(FFN, LEAD_DOWN, SHARED_OUT), VECTOR(FFN, FFN_GATE),
    VECTOR(FFN, FFN_UP), VECTOR(FFN, FFN_DOWN), VECTOR(FFN, FFN_GATE_BIAS), VECTOR(FFN, FFN_UP_BIAS), VECTOR(FFN, FFN_DOWN_BIAS),
    VECTOR(FFN, FFN_THRESHOLD), VECTOR(FFN, EXPERT_NORM), VECTOR(FFN, EXPERT_POST_NORM), VECTOR(FFN, EXPERT_SCALE),
    VECTOR(FFN, SHARED_ROUTER), VECTOR(FFN, SHARED_POST_NORM), VECTOR(FFN, FFN_POST_NORM),
    VECTOR(SCALE, OUT_SCALE),
    VECTOR(HEAD, OUTPUT_NORM), VECTOR(HEAD, OUTPUT_NORM_BIAS), MATRIX(HEAD, OUTPUT, HEAD),
};
const int graph_n_roles = sizeof graph_roles / sizeof *graph_roles;

static void put(struct graph_layer *g, enum op_kind kind, enum op_value a, enum op_value b, enum op_value c, enum op_value out)
{
    struct op *o = &g->op[g->n++];
    *o = (struct op){ .kind = (uint8_t)kind, .in = { (uint8_t)a, (uint8_t)b, (uint8_t)c }, .out = (uint8_t)out };
    while (graph_roles[o->role_first].kind != kind)
        o->role_first++;
    while (o->role_first + o->n_roles < graph_n_roles && graph_roles[o->role_first + o->n_roles].kind == kind)
        o->n_roles++;
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
    if (routed && h->early_router)
        put(&g, OP_ROUTE, OP_X, OP_NOTHING, OP_NOTHING, OP_R);
    put(&g, h->parallel ? OP_ATTN_NORM_2 : OP_ATTN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_N);
    put(&g, h->wkv_dim ? OP_WKV : model_is_recurrent(h, layer) ? OP_DELTA : OP_ATTENTION, OP_N, OP_NOTHING, OP_NOTHING, OP_A);
    if (h->parallel)
        put(&g, OP_ATTN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_F);
    put(&g, OP_ADD, OP_X, OP_A, OP_NOTHING, OP_X);
    if (!h->parallel)
        put(&g, OP_FFN_NORM, OP_X, OP_NOTHING, OP_NOTHING, OP_F);
    if (h->wkv_dim)
        put(&g, OP_SHIFT, OP_F, OP_NOTHING, OP_NOTHING, OP_F);
    if (routed && !h->early_router)
        put(&g, OP_ROUTE, OP_F, OP_NOTHING, OP_NOTHING, OP_R);
    put(&g, OP_FFN, OP_X, OP_F, routed ? OP_R : OP_NOTHING, OP_X);
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
    static const char *const names[OP_KINDS] = { "embed", "join", "attn_norm", "attn_norm_2", "attention", "delta", "wkv", "add",
                                                 "ffn_norm", "shift", "route", "ffn", "scale", "head" };
    return k < OP_KINDS ? names[k] : "?";
}
