#ifndef COMMON_MODEL_MODEL_ROLE_H
#define COMMON_MODEL_MODEL_ROLE_H

/* The roles of a model's tensors, from one table (model_role.c): name in GGUF files, in which models and layers it is, shape as a
 * function of hyper-parameters, types that it may have. GGUF reader, trace, packer, pack reader, runtime and planner take shapes
 * from here alone. Pure functions; thread-safe. */
#include "common/model/hparams.h"

#include <stddef.h>
#include <stdint.h>

/* FFN roles of experts are 3-D tensors whose last dimension is the expert. Packed models hold these numbers: new ones come last. */
enum model_role {
    MODEL_TOKEN_EMBD, MODEL_OUTPUT_NORM, MODEL_OUTPUT, MODEL_ROPE_FREQS,      /* per model */
    MODEL_ATTN_NORM, MODEL_ATTN_Q, MODEL_ATTN_K, MODEL_ATTN_V, MODEL_ATTN_OUTPUT,
    MODEL_ATTN_Q_BIAS, MODEL_ATTN_K_BIAS, MODEL_ATTN_V_BIAS,
    MODEL_FFN_NORM, MODEL_FFN_ROUTER,
    MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN,                             /* the sparse part */
    MODEL_PREDICT_FC1, MODEL_PREDICT_FC2,      /* a PowerInfer file's predictors: no part of the network */
    MODEL_ATTN_OUTPUT_BIAS, MODEL_ATTN_Q_NORM, MODEL_ATTN_K_NORM,
    MODEL_SHARED_ROUTER, MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN, /* the expert that every token uses */
    MODEL_ATTN_SINKS, MODEL_FFN_ROUTER_BIAS,
    MODEL_FFN_GATE_BIAS, MODEL_FFN_UP_BIAS, MODEL_FFN_DOWN_BIAS,              /* of experts or the FFN */
    MODEL_ATTN_POST_NORM, MODEL_FFN_POST_NORM,
    MODEL_LEAD_GATE, MODEL_LEAD_UP, MODEL_LEAD_DOWN,                          /* the FFN of layers before the experts' */
    MODEL_SELECT_BIAS,                                                        /* of routers' scores, for choosing */
    MODEL_ATTN_Q_A, MODEL_ATTN_Q_A_NORM, MODEL_ATTN_Q_B, MODEL_ATTN_KV_A, MODEL_ATTN_KV_A_NORM, /* latent attention */
    MODEL_ATTN_K_B, MODEL_ATTN_V_B,                                           /* of each head */
    MODEL_EXPERT_NORM, MODEL_EXPERT_POST_NORM, MODEL_SHARED_POST_NORM, MODEL_ROUTER_SCALE, MODEL_EXPERT_SCALE, MODEL_OUT_SCALE,
    MODEL_OUTPUT_NORM_BIAS,                                                   /* per model */
    MODEL_ATTN_NORM_BIAS, MODEL_FFN_NORM_BIAS, MODEL_ATTN_NORM_2, MODEL_ATTN_NORM_2_BIAS,
    MODEL_DELTA_QKV, MODEL_DELTA_Z, MODEL_DELTA_CONV, MODEL_DELTA_DT, MODEL_DELTA_A, MODEL_DELTA_BETA, MODEL_DELTA_ALPHA,
    MODEL_DELTA_BETA_ALPHA, MODEL_DELTA_NORM, MODEL_DELTA_OUT,                /* of recurrent layers */
    MODEL_FFN_THRESHOLD,                                                      /* below which a neuron is silent */
    MODEL_POSITION_EMBD,                                                      /* per model */
    MODEL_EMBD_NORM, MODEL_EMBD_NORM_BIAS,                                    /* per model */
    MODEL_WKV_LERP, MODEL_WKV_R, MODEL_WKV_K, MODEL_WKV_V, MODEL_WKV_OUTPUT,  /* time mixing */
    MODEL_WKV_DECAY_A, MODEL_WKV_DECAY_B, MODEL_WKV_DECAY, MODEL_WKV_RATE_A, MODEL_WKV_RATE_B, MODEL_WKV_RATE,
    MODEL_WKV_VALUE_A, MODEL_WKV_VALUE_B, MODEL_WKV_VALUE, MODEL_WKV_GATE_A, MODEL_WKV_GATE_B,
    MODEL_WKV_K_K, MODEL_WKV_K_A, MODEL_WKV_R_K, MODEL_WKV_NORM, MODEL_WKV_NORM_BIAS,
    MODEL_FFN_LERP,                                                           /* its token shift */
    MODEL_WKV_LERP_X, MODEL_WKV_MIX_A, MODEL_WKV_MIX_B, MODEL_WKV_G, MODEL_FFN_LERP_R, MODEL_FFN_R, /* RWKV-6 */
    MODEL_MTP_PROJ, MODEL_MTP_ENORM, MODEL_MTP_HNORM,                         /* per model: of a layer that predicts further tokens */
    MODEL_ROLES
};

int model_role_is_ffn(enum model_role r);      /* gate, up, down */
int model_role_is_predictor(enum model_role r);
/* Is it a tensor that the forward pass keeps whole: neither of the FFN's matrices nor of a predictor? */
int model_role_is_dense(enum model_role r);
int model_role_is_per_layer(enum model_role r);
int model_role_is_vector(enum model_role r);   /* F32: one dimension, or one for each expert, or weights of a
                                                * convolution; matrices may have any type with kernels */
const char *model_role_name(enum model_role r); /* "attn_q" */

/* Does a model of these hyper-parameters have the tensor, in its layers where it is per layer? model_role_at: in this one; layer -1
 * for tensors of the model. */
enum model_presence { MODEL_ABSENT, MODEL_OPTIONAL, MODEL_REQUIRED };
enum model_presence model_role_presence(const struct model_hparams *h, enum model_role r);
enum model_presence model_role_at(const struct model_hparams *h, enum model_role r, int layer);

/* "blk.3.attn_q.weight"; returns 0, or -1 when the role has no such name. Experts: "ffn_gate_exps". */
int model_tensor_name(const struct model_hparams *h, enum model_role r, int layer, char *out, size_t len);

/* Is it a tensor that the file may have and nobody reads: of layers that predict further tokens, or the mix of values in RWKV's first
 * layer, which has nothing to mix? Of a layer that predicts further tokens by itself: any but its own and the model's rope_freqs. */
int model_leaves_out(const struct model_hparams *h, const char *name);

/* The shape a role must have, row length first; unused dimensions are 1, and 0 is a predictor's rank, which is its own affair.
 * Returns how many are used, or -1 when the model has no such tensor. */
int model_tensor_shape(const struct model_hparams *h, enum model_role r, uint64_t dims[4]);

/* The same in a layer: those with a window may have other heads. */
int model_tensor_shape_at(const struct model_hparams *h, enum model_role r, int layer, uint64_t dims[4]);

#endif
