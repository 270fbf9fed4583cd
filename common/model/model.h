#ifndef COMMON_MODEL_MODEL_H
#define COMMON_MODEL_MODEL_H

/* What a language model is to this project: hyper-parameters (hparams.h) and the tensors of its roles (model_role.h). Read
 * from GGUF keys, in the profiler and packer from the file itself, in the runtime from the packed
 * model's metadata, by the same code. What is not understood is refused by key and value, never
 * guessed. */
#include "common/base/err.h"
#include "common/model/gguf.h"
#include "common/model/hparams.h"
#include "common/model/model_role.h"

#include <stddef.h>
#include <stdint.h>

/* What a user states about files that do not say it. */
struct model_given {
    int act;                     /* -1, or a model_act (--act); it goes before what the file says */
    enum model_router router;    /* MODEL_ROUTER_NONE: not stated (--expert-gating); it must not contradict the file */
    const float *thresholds;     /* NULL, or of the neurons, f32[n_layers][n_ff]: the model that is read is the file's with these
                                  * (model_open). model_hparams_read asks only whether there are any */
    int mtp;                     /* 1: read the file's first layer that predicts further tokens, as a model of its own */
};

/* What has been read once, for reading the same model again (from a trace's facts), but for thresholds. */
static inline struct model_given model_as(const struct model_hparams *h)
{
    return (struct model_given){ .act = (int)h->act, .router = h->router, .mtp = h->mtp > 0 };
}

/* Hyper-parameters from GGUF keys. given may be NULL: nothing is stated. The activation is the given one, else what
 * "thermocline.hidden_act" (written by model_meta_blob) says, else "ARCH.hidden_act" or
 * "ARCH.hidden_activation", else RELU in a PWRI file, else the architecture's own. The routers' function is what
 * "thermocline.router" says, else "ARCH.expert_gating_func" (1 softmax, 2 sigmoid), else the given one, else the
 * architecture's own; smallthinker has none, because absence means different things to its two converters: that is
 * ERR_USAGE and names --expert-gating. The head is tied
 * when the file has tensors but no "output.weight"; a header without tensors says it in the key
 * "thermocline.tied_output". Neurons have thresholds where they are given or the key "thermocline.thresholds" says so: with experts,
 * without a gate, or with an activation that gives zeros anyway that is ERR_UNSUPPORTED. With given->mtp, or the key "thermocline.mtp"
 * in a header without tensors, the hyper-parameters are those of the first layer that predicts further tokens (MODEL_MTP_*);
 * ERR_UNSUPPORTED where the file has none, or layers of Mamba2. Every key "ARCH.*" that is not known
 * here is ERR_UNSUPPORTED: one that is ignored may change the network. */
int model_hparams_read(const struct gguf *g, const struct model_given *given, struct model_hparams *out, struct err *e);

/* The keys of g as a GGUF header without tensors, malloc'd: how a packed model keeps its metadata, from
 * which model_hparams_read and tokenizer_open work as from the file itself. h is what g is read as: its
 * activation and routers' function (so what was stated is remembered) and its tied head are written as
 * "thermocline.hidden_act", "thermocline.router" (where there are experts) and "thermocline.tied_output"; "thermocline.thresholds" is
 * there where neurons have thresholds. A layer that predicts further tokens, whose model has the tokenizer, has "thermocline.mtp" and
 * "ARCH.vocab_size", and no "tokenizer.*". Keys for which
 * skip(name) is true are left out (skip may be NULL), and so are "split.*" and "general.alignment". */
int model_meta_blob(const struct gguf *g, const struct model_hparams *h, int (*skip)(const char *name),
                    uint8_t **out, size_t *len, struct err *e);

/* "silu", "relu", "drelu"; -1 when unknown. */
int model_act_by_name(const char *name);
const char *model_act_name(enum model_act a);

/* "none", "softmax_topk", "sigmoid_topk", "softmax_all"; -1 when unknown. */
int model_router_by_name(const char *name);
const char *model_router_name(enum model_router r);

/* A threshold must be a number from 0 on: the first of n that is none, or -1. */
int model_bad_threshold(const float *t, int n);

struct model {
    struct model_hparams h;
    const struct gguf *gguf;                                /* borrowed */
    const struct gguf_tensor *global[MODEL_ROLES];          /* NULL: absent */
    const struct gguf_tensor *(*layer)[MODEL_ROLES];        /* [model_depth] */
};

/* Fused tensors become their parts: `attn_qkv`, `ffn_gate_up_exps`, and an `ffn_up` that has Gate too; an ungated FFN's Up becomes both.
 * model_open does it; whoever reads tensors by name without it calls this. The second time there is nothing to do. */
int model_split(struct gguf *g, const struct model_hparams *h, struct err *e);

/* A file that was refused with code r and e: if that is because it holds no language model, or one in the form of an older converter,
 * e says so, and what to do. Returns the code. */
int model_foreign(const struct gguf *g, int r, struct err *e);

/* Splits fused tensors, resolves every role, checks every shape against the hyper-parameters and every type against what
 * can be computed (norms and rope_freqs are F32); unknown tensors are refused by name. Which tensors
 * are optional: OUTPUT (tied), ROPE_FREQS, a layer's PREDICT_FC1 and FC2 (both or none; dense FFNs only); ROUTER exactly
 * when there are experts. Given thresholds are copied and become tensors FFN_THRESHOLD of g, so that whoever reads, hashes or packs
 * its tensors meets them among the others; where g has others already that is ERR_MISMATCH. A threshold, given or
 * in the file, that is no number from 0 on is ERR_FORMAT and names tensor and neuron. */
int model_open(struct gguf *g, const struct model_given *given, struct model **out, struct err *e);
void model_close(struct model *m);

#endif
