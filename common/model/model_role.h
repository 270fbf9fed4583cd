#ifndef COMMON_MODEL_MODEL_ROLE_H
#define COMMON_MODEL_MODEL_ROLE_H

/* The roles of a model's tensors, from one table (operations.def): name in GGUF files, in which models and layers it is, shape as a
 * function of hyper-parameters, types that it may have. GGUF reader, trace, packer, pack reader, runtime and planner take shapes
 * from here alone. Pure functions; thread-safe. */
#include "common/model/hparams.h"

#include <stddef.h>
#include <stdint.h>

/* FFN roles of experts are 3-D tensors whose last dimension is the expert. */
enum model_role {
#define ROLE(op, number, role, name, tensor, experts, presence, row, rows, job, times, host) MODEL_##role = number,
#define PREDICTOR(number, role, name, tensor, presence, row, rows) MODEL_##role = number,
#include "common/model/operations.def"
    MODEL_ROLES = 0
#define ROLE(op, number, role, name, tensor, experts, presence, row, rows, job, times, host) + 1
#define PREDICTOR(number, role, name, tensor, presence, row, rows) + 1
#include "common/model/operations.def"
};

int model_role_is_ffn(enum model_role r);      /* gate, up, down */
int model_role_is_predictor(enum model_role r);
/* Is it a tensor that the forward pass keeps whole: neither of the FFN's matrices nor of a predictor? */
int model_role_is_dense(enum model_role r);
int model_role_is_per_layer(enum model_role r);
int model_role_is_vector(enum model_role r);   /* F32: one dimension, or one for each expert, weights of a
                                                * convolution, and Mamba2's of heads and groups; matrices may have any type with kernels */
const char *model_role_name(enum model_role r); /* "attn_q" */

/* What frequencies are divided by in a context of so many positions; a model may have none. */
static inline enum model_role model_rope_divisors(const struct model_hparams *h, int context)
{
    return !h->long_context ? MODEL_ROPE_FREQS : context > h->long_context ? MODEL_ROPE_LONG : MODEL_ROPE_SHORT;
}

/* Does a model of these hyper-parameters have the tensor, in its layers where it is per layer? model_role_at: in this one; layer -1
 * for tensors of the model. */
enum model_presence { MODEL_ABSENT, MODEL_OPTIONAL, MODEL_REQUIRED };
enum model_presence model_role_presence(const struct model_hparams *h, enum model_role r);
enum model_presence model_role_at(const struct model_hparams *h, enum model_role r, int layer);

/* "blk.3.attn_q.weight"; returns 0, or -1 when the role has no such name. Experts: "ffn_gate_exps". */
int model_tensor_name(const struct model_hparams *h, enum model_role r, int layer, char *out, size_t len);

/* Is it a tensor that the file may have and nobody reads: of layers that predict further tokens, an indexer's, or the mix of values in
 * RWKV's first layer, which has nothing to mix? Of a layer that predicts further tokens by itself: any but its own and the model's
 * rope_freqs. */
int model_leaves_out(const struct model_hparams *h, const char *name);

/* The shape a role must have, row length first; unused dimensions are 1, and 0 is a predictor's rank, which is its own affair.
 * Returns how many are used, or -1 when the model has no such tensor. */
int model_tensor_shape(const struct model_hparams *h, enum model_role r, uint64_t dims[4]);

/* The same in a layer: those with a window may have other heads. */
int model_tensor_shape_at(const struct model_hparams *h, enum model_role r, int layer, uint64_t dims[4]);

#endif
