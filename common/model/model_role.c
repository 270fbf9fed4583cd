/* One table, a row for each role. PowerInfer's files have Down by neuron, under a name and with a shape of its own. */
#include "common/model/model_role.h"

#include <stdio.h>
#include <string.h>

/* Dimensions as hyper-parameters; NONE ends the list. */
enum dim { NONE, D_MODEL, D_Q, D_KV, D_FF, D_FF_SHARED, D_FF_LEAD, D_VOCAB, D_EXPERTS,
           D_ROT_HALF, D_Q_NORM, D_K_NORM, D_HEADS, D_OUT, D_Q_RANK, D_KV_RANK, D_KV_A, D_NOPE, D_VALUE, D_ONE,
           D_CONV, D_CHANNELS, D_INNER, D_DELTA, D_V_HEADS, D_V_HEADS_2, D_POSITIONS,
           D_DECAY_RANK, D_RATE_RANK, D_VALUE_RANK, D_GATE_RANK, D_MIX_RANK, D_MIX_RANK_5, D_HEAD, D_MODEL_2, D_RANK /* any */ };

/* Where a tensor is. */
enum presence {
    ALWAYS, MAYBE,
    EMBEDDED,                /* always, but a layer that predicts further tokens may use its model's */
    MTP,                     /* of such a layer */
    UNTIED,                  /* unless the head is the embedding */
    BIASED, OUTPUT_BIASED,                  /* where the architecture has it; elsewhere it may be there */
    NORMED,                  /* where queries and keys are normed */
    ROUTED,                  /* with experts only */
    SHARED_GATED, SINKS, EXPERT_BIASED, POST_NORMED, /* where hyper-parameters say so */
    SHARED,                  /* with an expert that every token uses */
    LEAD,                    /* in layers before the experts' */
    PLAIN, PLAIN_Q,          /* keys and values, queries, made of the input at once */
    LATENT, LATENT_Q,        /* by way of fewer elements */
    VALUED,                  /* values may be those of keys */
    EXPERT_NORMED, SCALED, NORM_BIASED, /* where hyper-parameters say so */
    ALONE, ALONE_BIASED,     /* unless attention and FFN go beside each other */
    BESIDE,                  /* where they do, the file may have it */
    DELTA, DELTA_APART, DELTA_JOINED, /* in recurrent layers; as hyper-parameters say */
    SELECTED,                /* experts are chosen by biased scores */
    FFN_BIASED,              /* of experts where hyper-parameters say so; of a FFN that is not fused where the file has it */
    THRESHOLDED,             /* where neurons have thresholds */
    WKV,                     /* with time mixing in place of attention */
    WKV_6, WKV_7,            /* the same of RWKV-6, of RWKV-7 */
    WKV_LATER,               /* of RWKV-7 in every layer but the first */
    POSITIONED,              /* with learned positions */
    DENSE_MAYBE              /* without experts, where the file has it */
};

struct role {
    const char *name;        /* of the role */
    const char *tensor;      /* after "blk.N." where per layer */
    const char *experts;     /* its name when there are experts; a third dimension follows then */
    int per_layer;
    enum presence presence;
    enum dim dims[2];        /* row length, rows; one dimension: a vector, F32 */
};

static const struct role roles[MODEL_ROLES] = {
    [MODEL_TOKEN_EMBD]  = { "token_embd", "token_embd.weight", NULL, 0, EMBEDDED, { D_MODEL, D_VOCAB } },
    [MODEL_OUTPUT_NORM] = { "output_norm", "output_norm.weight", NULL, 0, ALWAYS, { D_MODEL, NONE } },
    [MODEL_OUTPUT]      = { "output", "output.weight", NULL, 0, UNTIED, { D_MODEL, D_VOCAB } },
    [MODEL_ROPE_FREQS]  = { "rope_freqs", "rope_freqs.weight", NULL, 0, MAYBE, { D_ROT_HALF, NONE } },
    [MODEL_ATTN_NORM]   = { "attn_norm", "attn_norm.weight", NULL, 1, ALWAYS, { D_MODEL, NONE } },
    [MODEL_ATTN_Q]      = { "attn_q", "attn_q.weight", NULL, 1, PLAIN_Q, { D_MODEL, D_Q } },
    [MODEL_ATTN_K]      = { "attn_k", "attn_k.weight", NULL, 1, PLAIN, { D_MODEL, D_KV } },
    [MODEL_ATTN_V]      = { "attn_v", "attn_v.weight", NULL, 1, VALUED, { D_MODEL, D_KV } },
    [MODEL_ATTN_OUTPUT] = { "attn_output", "attn_output.weight", NULL, 1, ALWAYS, { D_OUT, D_MODEL } },
    [MODEL_ATTN_Q_BIAS] = { "attn_q_bias", "attn_q.bias", NULL, 1, BIASED, { D_Q, NONE } },
    [MODEL_ATTN_K_BIAS] = { "attn_k_bias", "attn_k.bias", NULL, 1, BIASED, { D_KV, NONE } },
    [MODEL_ATTN_V_BIAS] = { "attn_v_bias", "attn_v.bias", NULL, 1, BIASED, { D_KV, NONE } },
    [MODEL_FFN_NORM]    = { "ffn_norm", "ffn_norm.weight", NULL, 1, ALONE, { D_MODEL, NONE } },
    [MODEL_FFN_ROUTER]  = { "ffn_router", "ffn_gate_inp.weight", NULL, 1, ROUTED, { D_MODEL, D_EXPERTS } },
    [MODEL_FFN_GATE]    = { "ffn_gate", "ffn_gate.weight", "ffn_gate_exps.weight", 1, ALWAYS, { D_MODEL, D_FF } },
    [MODEL_FFN_UP]      = { "ffn_up", "ffn_up.weight", "ffn_up_exps.weight", 1, ALWAYS, { D_MODEL, D_FF } },
    [MODEL_FFN_DOWN]    = { "ffn_down", "ffn_down.weight", "ffn_down_exps.weight", 1, ALWAYS, { D_FF, D_MODEL } },
    [MODEL_PREDICT_FC1] = { "predict_fc1", "fc1.weight", NULL, 1, DENSE_MAYBE, { D_MODEL, D_RANK } },
    [MODEL_PREDICT_FC2] = { "predict_fc2", "fc2.weight", NULL, 1, DENSE_MAYBE, { D_RANK, D_FF } },
    [MODEL_ATTN_OUTPUT_BIAS] = { "attn_output_bias", "attn_output.bias", NULL, 1, OUTPUT_BIASED, { D_MODEL, NONE } },
    [MODEL_ATTN_Q_NORM] = { "attn_q_norm", "attn_q_norm.weight", NULL, 1, NORMED, { D_Q_NORM, NONE } },
    [MODEL_ATTN_K_NORM] = { "attn_k_norm", "attn_k_norm.weight", NULL, 1, NORMED, { D_K_NORM, NONE } },
    [MODEL_SHARED_ROUTER] = { "shared_router", "ffn_gate_inp_shexp.weight", NULL, 1, SHARED_GATED, { D_MODEL, NONE } },
    [MODEL_SHARED_GATE] = { "shared_gate", "ffn_gate_shexp.weight", NULL, 1, SHARED, { D_MODEL, D_FF_SHARED } },
    [MODEL_SHARED_UP]   = { "shared_up", "ffn_up_shexp.weight", NULL, 1, SHARED, { D_MODEL, D_FF_SHARED } },
    [MODEL_ATTN_SINKS]  = { "attn_sinks", "attn_sinks.weight", NULL, 1, SINKS, { D_HEADS, NONE } },
    [MODEL_FFN_ROUTER_BIAS] = { "ffn_router_bias", "ffn_gate_inp.bias", NULL, 1, EXPERT_BIASED, { D_EXPERTS, NONE } },
    [MODEL_FFN_GATE_BIAS] = { "ffn_gate_bias", "ffn_gate.bias", "ffn_gate_exps.bias", 1, FFN_BIASED, { D_FF, NONE } },
    [MODEL_FFN_UP_BIAS] = { "ffn_up_bias", "ffn_up.bias", "ffn_up_exps.bias", 1, FFN_BIASED, { D_FF, NONE } },
    [MODEL_FFN_DOWN_BIAS] = { "ffn_down_bias", "ffn_down.bias", "ffn_down_exps.bias", 1, FFN_BIASED, { D_MODEL, NONE } },
    [MODEL_ATTN_POST_NORM] = { "attn_post_norm", "post_attention_norm.weight", NULL, 1, POST_NORMED, { D_MODEL, NONE } },
    [MODEL_FFN_POST_NORM] = { "ffn_post_norm", "post_ffw_norm.weight", NULL, 1, POST_NORMED, { D_MODEL, NONE } },
    [MODEL_LEAD_GATE] = { "lead_gate", "ffn_gate.weight", NULL, 1, LEAD, { D_MODEL, D_FF_LEAD } },
    [MODEL_LEAD_UP] = { "lead_up", "ffn_up.weight", NULL, 1, LEAD, { D_MODEL, D_FF_LEAD } },
    [MODEL_LEAD_DOWN] = { "lead_down", "ffn_down.weight", NULL, 1, LEAD, { D_FF_LEAD, D_MODEL } },
    [MODEL_SELECT_BIAS] = { "select_bias", "exp_probs_b.bias", NULL, 1, SELECTED, { D_EXPERTS, NONE } },
    [MODEL_EXPERT_NORM] = { "expert_norm", "pre_ffw_norm_2.weight", NULL, 1, EXPERT_NORMED, { D_MODEL, NONE } },
    [MODEL_EXPERT_POST_NORM] = { "expert_post_norm", "post_ffw_norm_2.weight", NULL, 1, EXPERT_NORMED, { D_MODEL, NONE } },
    [MODEL_SHARED_POST_NORM] = { "shared_post_norm", "post_ffw_norm_1.weight", NULL, 1, EXPERT_NORMED, { D_MODEL, NONE } },
    [MODEL_ROUTER_SCALE] = { "router_scale", "ffn_gate_inp.scale", NULL, 1, EXPERT_NORMED, { D_MODEL, NONE } },
    [MODEL_EXPERT_SCALE] = { "expert_scale", "ffn_down_exps.scale", NULL, 1, EXPERT_NORMED, { D_EXPERTS, NONE } },
    [MODEL_OUT_SCALE] = { "out_scale", "layer_output_scale.weight", NULL, 1, SCALED, { D_ONE, NONE } },
    [MODEL_ATTN_Q_A] = { "attn_q_a", "attn_q_a.weight", NULL, 1, LATENT_Q, { D_MODEL, D_Q_RANK } },
    [MODEL_ATTN_Q_A_NORM] = { "attn_q_a_norm", "attn_q_a_norm.weight", NULL, 1, LATENT_Q, { D_Q_RANK, NONE } },
    [MODEL_ATTN_Q_B] = { "attn_q_b", "attn_q_b.weight", NULL, 1, LATENT_Q, { D_Q_RANK, D_Q } },
    [MODEL_ATTN_KV_A] = { "attn_kv_a", "attn_kv_a_mqa.weight", NULL, 1, LATENT, { D_MODEL, D_KV_A } },
    [MODEL_ATTN_KV_A_NORM] = { "attn_kv_a_norm", "attn_kv_a_norm.weight", NULL, 1, LATENT, { D_KV_RANK, NONE } },
    [MODEL_ATTN_K_B] = { "attn_k_b", "attn_k_b.weight", NULL, 1, LATENT, { D_NOPE, D_KV_RANK } },
    [MODEL_ATTN_V_B] = { "attn_v_b", "attn_v_b.weight", NULL, 1, LATENT, { D_KV_RANK, D_VALUE } },
    [MODEL_OUTPUT_NORM_BIAS] = { "output_norm_bias", "output_norm.bias", NULL, 0, NORM_BIASED, { D_MODEL, NONE } },
    [MODEL_ATTN_NORM_BIAS] = { "attn_norm_bias", "attn_norm.bias", NULL, 1, NORM_BIASED, { D_MODEL, NONE } },
    [MODEL_FFN_NORM_BIAS] = { "ffn_norm_bias", "ffn_norm.bias", NULL, 1, ALONE_BIASED, { D_MODEL, NONE } },
    [MODEL_ATTN_NORM_2] = { "attn_norm_2", "attn_norm_2.weight", NULL, 1, BESIDE, { D_MODEL, NONE } },
    [MODEL_ATTN_NORM_2_BIAS] = { "attn_norm_2_bias", "attn_norm_2.bias", NULL, 1, BESIDE, { D_MODEL, NONE } },
    [MODEL_DELTA_QKV] = { "delta_qkv", "attn_qkv.weight", NULL, 1, DELTA, { D_MODEL, D_CHANNELS } },
    [MODEL_DELTA_Z] = { "delta_z", "attn_gate.weight", NULL, 1, DELTA, { D_MODEL, D_INNER } },
    [MODEL_DELTA_CONV] = { "delta_conv", "ssm_conv1d.weight", NULL, 1, DELTA, { D_CONV, D_CHANNELS } },
    [MODEL_DELTA_DT] = { "delta_dt", "ssm_dt.bias", NULL, 1, DELTA, { D_V_HEADS, NONE } },
    [MODEL_DELTA_A] = { "delta_a", "ssm_a", NULL, 1, DELTA, { D_V_HEADS, NONE } },
    [MODEL_DELTA_BETA] = { "delta_beta", "ssm_beta.weight", NULL, 1, DELTA_APART, { D_MODEL, D_V_HEADS } },
    [MODEL_DELTA_ALPHA] = { "delta_alpha", "ssm_alpha.weight", NULL, 1, DELTA_APART, { D_MODEL, D_V_HEADS } },
    [MODEL_DELTA_BETA_ALPHA] = { "delta_beta_alpha", "ssm_ba.weight", NULL, 1, DELTA_JOINED, { D_MODEL, D_V_HEADS_2 } },
    [MODEL_DELTA_NORM] = { "delta_norm", "ssm_norm.weight", NULL, 1, DELTA, { D_DELTA, NONE } },
    [MODEL_DELTA_OUT] = { "delta_out", "ssm_out.weight", NULL, 1, DELTA, { D_INNER, D_MODEL } },
    [MODEL_FFN_THRESHOLD] = { "ffn_threshold", "ffn_gate.threshold", NULL, 1, THRESHOLDED, { D_FF, NONE } },
    [MODEL_POSITION_EMBD] = { "position_embd", "position_embd.weight", NULL, 0, POSITIONED, { D_MODEL, D_POSITIONS } },
    [MODEL_EMBD_NORM] = { "embd_norm", "token_embd_norm.weight", NULL, 0, WKV, { D_MODEL, NONE } },
    [MODEL_EMBD_NORM_BIAS] = { "embd_norm_bias", "token_embd_norm.bias", NULL, 0, WKV, { D_MODEL, NONE } },
    [MODEL_WKV_LERP] = { "wkv_lerp", "time_mix_lerp_fused.weight", NULL, 1, WKV, { D_MODEL, NONE } }, /* and six of them, of RWKV-6 five */
    [MODEL_WKV_R] = { "wkv_r", "time_mix_receptance.weight", NULL, 1, WKV, { D_MODEL, D_MODEL } },
    [MODEL_WKV_K] = { "wkv_k", "time_mix_key.weight", NULL, 1, WKV, { D_MODEL, D_MODEL } },
    [MODEL_WKV_V] = { "wkv_v", "time_mix_value.weight", NULL, 1, WKV, { D_MODEL, D_MODEL } },
    [MODEL_WKV_OUTPUT] = { "wkv_output", "time_mix_output.weight", NULL, 1, WKV, { D_MODEL, D_MODEL } },
    [MODEL_WKV_DECAY_A] = { "wkv_decay_a", "time_mix_w1.weight", NULL, 1, WKV, { D_MODEL, D_DECAY_RANK } },
    [MODEL_WKV_DECAY_B] = { "wkv_decay_b", "time_mix_w2.weight", NULL, 1, WKV, { D_DECAY_RANK, D_MODEL } },
    [MODEL_WKV_DECAY] = { "wkv_decay", "time_mix_w0.weight", NULL, 1, WKV, { D_MODEL, NONE } },
    [MODEL_WKV_RATE_A] = { "wkv_rate_a", "time_mix_a1.weight", NULL, 1, WKV_7, { D_MODEL, D_RATE_RANK } },
    [MODEL_WKV_RATE_B] = { "wkv_rate_b", "time_mix_a2.weight", NULL, 1, WKV_7, { D_RATE_RANK, D_MODEL } },
    [MODEL_WKV_RATE] = { "wkv_rate", "time_mix_a0.weight", NULL, 1, WKV_7, { D_MODEL, NONE } },
    [MODEL_WKV_VALUE_A] = { "wkv_value_a", "time_mix_v1.weight", NULL, 1, WKV_LATER, { D_MODEL, D_VALUE_RANK } },
    [MODEL_WKV_VALUE_B] = { "wkv_value_b", "time_mix_v2.weight", NULL, 1, WKV_LATER, { D_VALUE_RANK, D_MODEL } },
    [MODEL_WKV_VALUE] = { "wkv_value", "time_mix_v0.weight", NULL, 1, WKV_LATER, { D_MODEL, NONE } },
    [MODEL_WKV_GATE_A] = { "wkv_gate_a", "time_mix_g1.weight", NULL, 1, WKV_7, { D_MODEL, D_GATE_RANK } },
    [MODEL_WKV_GATE_B] = { "wkv_gate_b", "time_mix_g2.weight", NULL, 1, WKV_7, { D_GATE_RANK, D_MODEL } },
    [MODEL_WKV_K_K] = { "wkv_k_k", "time_mix_k_k.weight", NULL, 1, WKV_7, { D_MODEL, NONE } },
    [MODEL_WKV_K_A] = { "wkv_k_a", "time_mix_k_a.weight", NULL, 1, WKV_7, { D_MODEL, NONE } },
    [MODEL_WKV_R_K] = { "wkv_r_k", "time_mix_r_k.weight", NULL, 1, WKV, { D_MODEL, NONE } },
    [MODEL_WKV_NORM] = { "wkv_norm", "time_mix_ln.weight", NULL, 1, WKV, { D_MODEL, NONE } },
    [MODEL_WKV_NORM_BIAS] = { "wkv_norm_bias", "time_mix_ln.bias", NULL, 1, WKV, { D_MODEL, NONE } },
    [MODEL_FFN_LERP] = { "ffn_lerp", "channel_mix_lerp_k.weight", NULL, 1, WKV, { D_MODEL, NONE } },
    [MODEL_WKV_LERP_X] = { "wkv_lerp_x", "time_mix_lerp_x.weight", NULL, 1, WKV_6, { D_MODEL, NONE } },
    [MODEL_WKV_MIX_A] = { "wkv_mix_a", "time_mix_w1.weight", NULL, 1, WKV_6, { D_MODEL, D_MIX_RANK_5 } },
    [MODEL_WKV_MIX_B] = { "wkv_mix_b", "time_mix_w2.weight", NULL, 1, WKV_6, { D_MIX_RANK, D_MODEL } }, /* and five of them */
    [MODEL_WKV_G] = { "wkv_g", "time_mix_gate.weight", NULL, 1, WKV_6, { D_MODEL, D_MODEL } },
    [MODEL_FFN_LERP_R] = { "ffn_lerp_r", "channel_mix_lerp_r.weight", NULL, 1, WKV_6, { D_MODEL, NONE } },
    [MODEL_FFN_R] = { "ffn_r", "channel_mix_receptance.weight", NULL, 1, WKV_6, { D_MODEL, D_MODEL } },
    [MODEL_MTP_PROJ] = { "mtp_proj", "nextn.eh_proj.weight", NULL, 0, MTP, { D_MODEL_2, D_MODEL } },
    [MODEL_MTP_ENORM] = { "mtp_enorm", "nextn.enorm.weight", NULL, 0, MTP, { D_MODEL, NONE } },
    [MODEL_MTP_HNORM] = { "mtp_hnorm", "nextn.hnorm.weight", NULL, 0, MTP, { D_MODEL, NONE } },
    [MODEL_SHARED_DOWN] = { "shared_down", "ffn_down_shexp.weight", NULL, 1, SHARED, { D_FF_SHARED, D_MODEL } },
};

/* Down by neuron. */
static const struct role down_t = { "ffn_down", "ffn_down_t.weight", NULL, 1, ALWAYS, { D_MODEL, D_FF } };

static const struct role down_t_bias = { "ffn_down_bias", "ffn_down_t.bias", NULL, 1, FFN_BIASED, { D_MODEL, NONE } };

/* The FFN's norm where the file names it after what comes before it. */
static const struct role post_norm = { "ffn_norm", "post_attention_norm.weight", NULL, 1, ALWAYS, { D_MODEL, NONE } };

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

/* RWKV's names. Its FFN has no gate: channel_mix_key is split into Gate and Up, which are the same (model_split). */
static const struct role wkv_norm = { "ffn_norm", "attn_norm_2.weight", NULL, 1, ALWAYS, { D_MODEL, NONE } };
static const struct role wkv_norm_bias = { "ffn_norm_bias", "attn_norm_2.bias", NULL, 1, ALWAYS, { D_MODEL, NONE } };
static const struct role wkv_down = { "ffn_down", "channel_mix_value.weight", NULL, 1, ALWAYS, { D_FF, D_MODEL } };

/* RWKV-6's of decays, and its bonus, from wkv_decay_a on and at wkv_r_k. */
static const struct role wkv6_decay[3] = {
    { "wkv_decay_a", "time_mix_decay_w1.weight", NULL, 1, WKV, { D_MODEL, D_DECAY_RANK } },
    { "wkv_decay_b", "time_mix_decay_w2.weight", NULL, 1, WKV, { D_DECAY_RANK, D_MODEL } },
    { "wkv_decay", "time_mix_decay.weight", NULL, 1, WKV, { D_MODEL, NONE } } };
static const struct role wkv6_bonus = { "wkv_r_k", "time_mix_first.weight", NULL, 1, WKV, { D_HEAD, D_HEADS } };

/* The expert that every token uses where the file calls it the layer's FFN. */
static const struct role shared_ffn[3] = { { "shared_gate", "ffn_gate.weight", NULL, 1, SHARED, { D_MODEL, D_FF_SHARED } },
                                           { "shared_up", "ffn_up.weight", NULL, 1, SHARED, { D_MODEL, D_FF_SHARED } },
                                           { "shared_down", "ffn_down.weight", NULL, 1, SHARED, { D_FF_SHARED, D_MODEL } } };

static const struct role *role_of(const struct model_hparams *h, enum model_role r)
{
    if (h->expert_norms && r >= MODEL_SHARED_GATE && r <= MODEL_SHARED_DOWN)
        return &shared_ffn[r - MODEL_SHARED_GATE];
    if (h->wkv_dim && (r == MODEL_FFN_NORM || r == MODEL_FFN_NORM_BIAS || r == MODEL_FFN_DOWN))
        return r == MODEL_FFN_NORM ? &wkv_norm : r == MODEL_FFN_NORM_BIAS ? &wkv_norm_bias : &wkv_down;
    if (h->mix_rank && r >= MODEL_WKV_DECAY_A && r <= MODEL_WKV_DECAY)
        return &wkv6_decay[r - MODEL_WKV_DECAY_A];
    if (h->mix_rank && r == MODEL_WKV_R_K)
        return &wkv6_bonus;
    if (r == MODEL_FFN_DOWN_BIAS && h->down_by_neuron)
        return &down_t_bias;
    return r == MODEL_FFN_DOWN && h->down_by_neuron ? &down_t : r == MODEL_FFN_NORM && h->ffn_norm_named_post ? &post_norm : &roles[r];
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
    return r < MODEL_ROLES && roles[r].per_layer;
}

int model_role_is_vector(enum model_role r)
{
    return r < MODEL_ROLES && (roles[r].dims[1] == NONE || r == MODEL_DELTA_CONV);
}

const char *model_role_name(enum model_role r)
{
    return r < MODEL_ROLES ? roles[r].name : "?";
}

int model_tensor_name(const struct model_hparams *h, enum model_role r, int layer, char *out, size_t len)
{
    if (r >= MODEL_ROLES || (r == MODEL_FFN_ROUTER && h->n_experts == 0) ||
        (roles[r].per_layer && (layer < 0 || layer >= model_depth(h))))
        return -1;
    const struct role *role = role_of(h, r);
    const char *tensor = h->n_experts > 0 && role->experts ? role->experts : role->tensor;
    const char *of_block = roles[r].per_layer ? tensor : mtp_tensor(r);
    if (h->mtp && of_block)
        snprintf(out, len, "blk.%d.%s", h->mtp, of_block);
    else if (roles[r].per_layer)
        snprintf(out, len, "blk.%d.%s", model_is_lead(h, layer) ? layer - h->n_layers : layer + h->n_lead, tensor);
    else
        snprintf(out, len, "%s", tensor);
    return 0;
}

int model_leaves_out(const struct model_hparams *h, const char *name)
{
    int blk, depth = model_depth(h);
    if (h->mtp)
        return (sscanf(name, "blk.%d.", &blk) != 1 || blk != h->mtp) && strcmp(name, roles[MODEL_ROPE_FREQS].tensor) != 0;
    if (h->mix_rank)
        return 0;
    if (h->wkv_dim)
        return !strcmp(name, "blk.0.time_mix_v0.weight") || !strcmp(name, "blk.0.time_mix_v1.weight") ||
               !strcmp(name, "blk.0.time_mix_v2.weight");
    return h->n_nextn > 0 && sscanf(name, "blk.%d.", &blk) == 1 && blk >= depth && blk - depth < h->n_nextn;
}

static uint64_t dim_value(const struct model_hparams *h, enum dim d)
{
    int whole = h->qk_norm == MODEL_QK_NORM_ROW;
    switch (d) {
    case D_MODEL:    return (uint64_t)h->d_model;
    case D_MODEL_2:  return 2 * (uint64_t)h->d_model;
    case D_Q:        return (uint64_t)model_q_dim(h);
    case D_OUT:      return (uint64_t)model_out_dim(h);
    case D_Q_RANK:   return (uint64_t)h->q_rank;
    case D_KV_RANK:  return (uint64_t)h->kv_rank;
    case D_KV_A:     return (uint64_t)h->head_dim;
    case D_NOPE:     return (uint64_t)h->nope_dim;
    case D_VALUE:    return (uint64_t)h->value_dim;
    case D_KV:       return (uint64_t)h->n_kv_heads * (uint64_t)h->head_dim;
    case D_Q_NORM:   return (uint64_t)h->head_dim * (uint64_t)(whole ? h->n_heads : 1);
    case D_K_NORM:   return (uint64_t)h->head_dim * (uint64_t)(whole ? h->n_kv_heads : 1);
    case D_FF:       return (uint64_t)h->n_ff;
    case D_FF_SHARED: return (uint64_t)h->n_ff_shared;
    case D_FF_LEAD:  return (uint64_t)h->n_ff_lead;
    case D_HEADS:    return (uint64_t)h->n_heads;
    case D_VOCAB:    return (uint64_t)h->n_vocab;
    case D_EXPERTS:  return (uint64_t)h->n_experts;
    case D_ROT_HALF: return (uint64_t)h->n_rot / 2;
    case D_CONV:     return (uint64_t)h->conv_width;
    case D_CHANNELS: return (uint64_t)model_delta_channels(h);
    case D_INNER:    return (uint64_t)model_delta_inner(h);
    case D_DELTA:    return (uint64_t)h->delta_dim;
    case D_V_HEADS:  return (uint64_t)h->delta_v_heads;
    case D_V_HEADS_2: return 2 * (uint64_t)h->delta_v_heads;
    case D_POSITIONS: return (uint64_t)h->n_positions;
    case D_DECAY_RANK: return (uint64_t)h->decay_rank;
    case D_RATE_RANK: return (uint64_t)h->rate_rank;
    case D_VALUE_RANK: return (uint64_t)h->value_rank;
    case D_GATE_RANK: return (uint64_t)h->gate_rank;
    case D_MIX_RANK: return (uint64_t)h->mix_rank;
    case D_MIX_RANK_5: return 5 * (uint64_t)h->mix_rank;
    case D_HEAD:     return (uint64_t)h->head_dim;
    case D_ONE:      return 1;
    case D_RANK:     return 0;
    case NONE:       break;
    }
    return 1;
}

/* What only layers with keys and values have. */
static int is_attention(enum model_role r)
{
    enum presence p = roles[r].presence;
    return r == MODEL_ATTN_OUTPUT || p == PLAIN || p == PLAIN_Q || p == VALUED || p == BIASED || p == OUTPUT_BIASED || p == NORMED ||
           p == SINKS;
}

enum model_presence model_role_presence(const struct model_hparams *h, enum model_role r)
{
    if (r >= MODEL_ROLES || (h->n_experts > 0 && r == MODEL_FFN_DOWN && h->down_by_neuron))
        return MODEL_ABSENT;
    if (h->wkv_dim && (is_attention(r) || roles[r].presence == FFN_BIASED || roles[r].presence == MAYBE))
        return MODEL_ABSENT;
    switch (roles[r].presence) {
    case ALWAYS:      return MODEL_REQUIRED;
    case EMBEDDED:    return h->mtp ? MODEL_OPTIONAL : MODEL_REQUIRED;
    case MTP:         return h->mtp ? MODEL_REQUIRED : MODEL_ABSENT;
    case WKV:         return h->wkv_dim ? MODEL_REQUIRED : MODEL_ABSENT;
    case WKV_6:       return h->mix_rank ? MODEL_REQUIRED : MODEL_ABSENT;
    case WKV_7:       return h->wkv_dim && !h->mix_rank ? MODEL_REQUIRED : MODEL_ABSENT;
    case WKV_LATER:   return h->wkv_dim && !h->mix_rank && h->n_layers > 1 ? MODEL_REQUIRED : MODEL_ABSENT;
    case MAYBE:       return MODEL_OPTIONAL;
    case UNTIED:      return h->tied_output ? MODEL_OPTIONAL : MODEL_REQUIRED;
    case PLAIN:       return h->kv_rank ? MODEL_ABSENT : MODEL_REQUIRED;
    case PLAIN_Q:     return h->q_rank ? MODEL_ABSENT : MODEL_REQUIRED;
    case VALUED:      return h->kv_rank ? MODEL_ABSENT : h->values_optional ? MODEL_OPTIONAL : MODEL_REQUIRED;
    case EXPERT_NORMED: return h->expert_norms && h->n_experts > 0 ? MODEL_REQUIRED : MODEL_ABSENT;
    case DELTA:       return h->full_period ? MODEL_REQUIRED : MODEL_ABSENT;
    case DELTA_APART: return h->full_period && !h->delta_joined ? MODEL_REQUIRED : MODEL_ABSENT;
    case DELTA_JOINED: return h->full_period && h->delta_joined ? MODEL_REQUIRED : MODEL_ABSENT;
    case NORM_BIASED: return h->layer_norm ? MODEL_REQUIRED : MODEL_ABSENT;
    case ALONE:       return h->parallel ? MODEL_ABSENT : MODEL_REQUIRED;
    case ALONE_BIASED: return h->layer_norm && !h->parallel ? MODEL_REQUIRED : MODEL_ABSENT;
    case BESIDE:      return h->parallel ? MODEL_OPTIONAL : MODEL_ABSENT;
    case SCALED:      return h->out_scale ? MODEL_OPTIONAL : MODEL_ABSENT;
    case LATENT:      return h->kv_rank ? MODEL_REQUIRED : MODEL_ABSENT;
    case LATENT_Q:    return h->q_rank ? MODEL_REQUIRED : MODEL_ABSENT;
    case BIASED:      return h->kv_rank ? MODEL_ABSENT : h->qkv_bias ? MODEL_REQUIRED : MODEL_OPTIONAL;
    case OUTPUT_BIASED: return h->output_bias ? MODEL_REQUIRED : MODEL_OPTIONAL;
    case NORMED:      return !h->qk_norm ? MODEL_ABSENT : h->qk_norm_optional ? MODEL_OPTIONAL : MODEL_REQUIRED;
    case LEAD:        return h->n_lead > 0 ? MODEL_REQUIRED : MODEL_ABSENT;
    case SELECTED:    return h->select_bias == 0 ? MODEL_ABSENT : h->select_bias == 1 ? MODEL_REQUIRED : MODEL_OPTIONAL;
    case SHARED_GATED: return h->n_ff_shared > 0 && h->shared_gated ? MODEL_REQUIRED : MODEL_ABSENT;
    case POST_NORMED: return h->post_norms ? MODEL_REQUIRED : MODEL_ABSENT;
    case SINKS:       return h->sinks ? MODEL_REQUIRED : MODEL_ABSENT;
    case EXPERT_BIASED: return h->expert_bias ? MODEL_REQUIRED : MODEL_ABSENT;
    case FFN_BIASED:  return h->n_experts > 0 ? (h->expert_bias ? MODEL_REQUIRED : MODEL_ABSENT)
                                              : h->ffn_up != MODEL_FFN_UP_FUSED ? MODEL_OPTIONAL : MODEL_ABSENT;
    case THRESHOLDED: return h->thresholds ? MODEL_REQUIRED : MODEL_ABSENT;
    case POSITIONED:  return h->n_positions > 0 ? MODEL_REQUIRED : MODEL_ABSENT;
    case SHARED:      return h->n_ff_shared > 0 ? MODEL_REQUIRED : MODEL_ABSENT;
    case ROUTED:      return h->n_experts > 0 ? MODEL_REQUIRED : MODEL_ABSENT;
    case DENSE_MAYBE: return h->n_experts > 0 ? MODEL_ABSENT : MODEL_OPTIONAL;
    }
    return MODEL_ABSENT;
}

static int is_delta(enum model_role r)
{
    return roles[r].presence == DELTA || roles[r].presence == DELTA_APART || roles[r].presence == DELTA_JOINED;
}

enum model_presence model_role_at(const struct model_hparams *h, enum model_role r, int layer)
{
    enum model_presence p = model_role_presence(h, r);
    if (p == MODEL_ABSENT || !roles[r].per_layer)
        return p;
    if (roles[r].presence == WKV_LATER && layer == 0)
        return MODEL_ABSENT;
    if (model_has_states(h) && (model_is_recurrent(h, layer) ? is_attention(r) : is_delta(r)))
        return MODEL_ABSENT;
    if (!model_is_lead(h, layer))
        return roles[r].presence == LEAD ? MODEL_ABSENT : p;
    switch (roles[r].presence) { /* attention's alone, and the FFN of its own */
    case SHARED_GATED: case EXPERT_BIASED: case FFN_BIASED: case SHARED: case SELECTED: case ROUTED: case DENSE_MAYBE:
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
    const struct role *role = role_of(h, r);
    int n = role->dims[1] == NONE ? 1 : 2;
    dims[0] = dim_value(h, role->dims[0]);
    dims[1] = dim_value(h, role->dims[1]);
    dims[2] = dims[3] = 1;
    if (h->n_experts > 0 && role->experts)
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
