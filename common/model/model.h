#ifndef COMMON_MODEL_MODEL_H
#define COMMON_MODEL_MODEL_H

/* What a language model is to this project: hyper-parameters and the roles of its tensors. Read
 * from GGUF keys, in the profiler and packer from the file itself, in the runtime from the packed
 * model's metadata, by the same code. What is not understood is refused by key and value, never
 * guessed. */
#include "common/base/err.h"
#include "common/model/gguf.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS  1024
#define MODEL_MAX_EXPERTS 1024
#define MODEL_MAX_DIM     (1 << 20)
#define MODEL_MAX_VOCAB   (1 << 22)
#define MODEL_MAX_CONTEXT (1 << 24)

enum model_act { MODEL_ACT_SILU, MODEL_ACT_RELU, MODEL_ACT_DRELU, MODEL_ACTS };
enum model_rope { MODEL_ROPE_NORM, MODEL_ROPE_NEOX };
/* How the weights of the chosen experts follow from the router's logits; nn_route has the formulas. */
enum model_router { MODEL_ROUTER_NONE, MODEL_ROUTER_SOFTMAX_TOPK, MODEL_ROUTER_SIGMOID_TOPK, MODEL_ROUTERS };

struct model_hparams {
    char arch[32];               /* "llama", "smallthinker" */
    char name[96];               /* general.name, cut */
    int n_layers, d_model, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_train;
    int n_experts, n_experts_used; /* n_experts 0: one dense FFN per layer; n_ff is then its width, else an expert's */
    int n_rot;
    float rope_theta, rms_eps;
    float rope_scale;            /* positions are multiplied by it: 1 / rope.scaling.factor */
    enum model_rope rope;
    enum model_act act;
    enum model_router router;
    int early_router;            /* routers see the residual that enters the block, before attention and its norm */
    int window, window_period;   /* 0, or layers that window_period does not divide attend to the last `window` positions */
    int nope_period;             /* 0, or layers that it divides do not rotate queries and keys */
    int tied_output;             /* the head is token_embd */
    int down_by_neuron;          /* the file has Down transposed, "ffn_down_t": a row of d_model per neuron (PowerInfer) */
};

/* First position that a query at pos attends to. */
static inline int model_attends_from(const struct model_hparams *h, int layer, int pos)
{
    return h->window > 0 && layer % h->window_period != 0 && pos >= h->window ? pos - h->window + 1 : 0;
}

/* Do queries and keys of that layer carry their position? */
static inline int model_rotates(const struct model_hparams *h, int layer)
{
    return h->nope_period == 0 || layer % h->nope_period != 0;
}

/* FFN blocks per layer: 1, or n_experts. Every per-FFN array in this project has this dimension. */
static inline int model_ffn_blocks(const struct model_hparams *h)
{
    return h->n_experts > 0 ? h->n_experts : 1;
}

/* Tensor roles. FFN roles of experts are 3-D tensors whose last dimension is the expert. */
enum model_role {
    MODEL_TOKEN_EMBD, MODEL_OUTPUT_NORM, MODEL_OUTPUT, MODEL_ROPE_FREQS,      /* per model */
    MODEL_ATTN_NORM, MODEL_ATTN_Q, MODEL_ATTN_K, MODEL_ATTN_V, MODEL_ATTN_OUTPUT,
    MODEL_ATTN_Q_BIAS, MODEL_ATTN_K_BIAS, MODEL_ATTN_V_BIAS,                  /* refused for now (qwen2) */
    MODEL_FFN_NORM, MODEL_FFN_ROUTER,
    MODEL_FFN_GATE, MODEL_FFN_UP, MODEL_FFN_DOWN,                             /* the sparse part */
    MODEL_PREDICT_FC1, MODEL_PREDICT_FC2,      /* a PowerInfer file's predictors: no part of the network */
    MODEL_ROLES                                /* packed models hold these numbers: new ones come last */
};

int model_role_is_ffn(enum model_role r);      /* gate, up, down */
int model_role_is_predictor(enum model_role r);
/* Is it a tensor that the forward pass keeps whole: neither of the FFN's matrices nor of a predictor? */
int model_role_is_dense(enum model_role r);
int model_role_is_per_layer(enum model_role r);
const char *model_role_name(enum model_role r); /* "attn_q" */
/* "blk.3.attn_q.weight"; returns 0, or -1 when the role has no such name. Experts: "ffn_gate_exps". */
int model_tensor_name(const struct model_hparams *h, enum model_role r, int layer, char *out, size_t len);
/* The shape a role must have; unused dimensions are 1, and 0 is a predictor's rank, which is its own affair. Returns how
 * many are used, or -1 when the model has no such tensor (optional ones count as had). */
int model_tensor_shape(const struct model_hparams *h, enum model_role r, uint64_t dims[4]);

/* What a user states about files that do not say it. */
struct model_given {
    int act;                     /* -1, or a model_act (--act); it goes before what the file says */
    enum model_router router;    /* MODEL_ROUTER_NONE: not stated (--expert-gating); it must not contradict the file */
};

/* What has been read once, for reading the same model again (from a trace's facts). */
static inline struct model_given model_as(const struct model_hparams *h)
{
    return (struct model_given){ (int)h->act, h->router };
}

/* Hyper-parameters from GGUF keys. given may be NULL: nothing is stated. The activation is the given one, else what
 * "thermocline.hidden_act" (written by model_meta_blob) says, else "ARCH.hidden_act" or
 * "ARCH.hidden_activation", else RELU in a PWRI file, else the architecture's own. The routers' function is what
 * "thermocline.router" says, else "ARCH.expert_gating_func" (1 softmax, 2 sigmoid), else the given one, else the
 * architecture's own; smallthinker has none, because absence means different things to its two converters: that is
 * ERR_USAGE and names --expert-gating. The head is tied
 * when the file has tensors but no "output.weight"; a header without tensors says it in the key
 * "thermocline.tied_output". Every key "ARCH.*" that is not known here is ERR_UNSUPPORTED: one that
 * is ignored may change the network. */
int model_hparams_read(const struct gguf *g, const struct model_given *given, struct model_hparams *out, struct err *e);

/* The keys of g as a GGUF header without tensors, malloc'd: how a packed model keeps its metadata, from
 * which model_hparams_read and tokenizer_open work as from the file itself. h is what g is read as: its
 * activation and routers' function (so what was stated is remembered) and its tied head are written as
 * "thermocline.hidden_act", "thermocline.router" (where there are experts) and "thermocline.tied_output". Keys for which skip(name) is true are left out (skip may be NULL), and so are
 * "split.*" and "general.alignment". */
int model_meta_blob(const struct gguf *g, const struct model_hparams *h, int (*skip)(const char *name),
                    uint8_t **out, size_t *len, struct err *e);

/* "silu", "relu", "drelu"; -1 when unknown. */
int model_act_by_name(const char *name);
const char *model_act_name(enum model_act a);

/* "none", "softmax_topk", "sigmoid_topk"; -1 when unknown. */
int model_router_by_name(const char *name);
const char *model_router_name(enum model_router r);

struct model {
    struct model_hparams h;
    const struct gguf *gguf;                                /* borrowed */
    const struct gguf_tensor *global[MODEL_ROLES];          /* NULL: absent */
    const struct gguf_tensor *(*layer)[MODEL_ROLES];        /* [n_layers] */
};

/* Resolves every role, checks every shape against the hyper-parameters and every type against what
 * can be computed (norms and rope_freqs are F32); unknown tensors are refused by name. Which tensors
 * are optional: OUTPUT (tied), ROPE_FREQS, a layer's PREDICT_FC1 and FC2 (both or none; dense FFNs only); ROUTER exactly
 * when there are experts. */
int model_open(const struct gguf *g, const struct model_given *given, struct model **out, struct err *e);
void model_close(struct model *m);

#endif
