#ifndef COMMON_OPS_OPS_H
#define COMMON_OPS_OPS_H

/* What the graph's operations work with, keep of a sequence, and compute beside products: a file for each operation, which has its
 * equations too where they are its own. The account, both passes' memory and the cost model have it from here alone; products
 * follow from the table of roles (graph.h). Pure functions of hyper-parameters; thread-safe. */
#include "common/model/graph.h"

#include <stdint.h>

struct op_need {
    /* Floats of each token of a pass; what belongs together has one letter's array. */
    uint64_t q;              /* queries as attention sees them */
    uint64_t kv;             /* keys and values */
    uint64_t attn;           /* what attention gives; latent: and what the output matrix sees */
    uint64_t latent;         /* queries as they are made, then their few elements */
    uint64_t made;           /* what else products give before it is a query or moves a state on */
    uint64_t layered;        /* what layers see of embeddings of their own */
    uint64_t joined;         /* input of a layer that predicts further tokens */
    uint64_t shared;         /* gates and ups of an FFN that stays in memory */
    uint64_t score_rows;     /* of each worker, as long as the context */
    /* Kept of a sequence */
    uint64_t planes, row;    /* of the KV cache: how many, elements of a position in each */
    uint64_t states, state;  /* how many, floats of each, whatever K and V are */
    uint64_t moves;          /* floats of a token by which a state is moved on without another product; 0: it cannot be */
    uint64_t held;           /* of each worker, the most of a state that it moves on at once */
    /* Computed for each token, beside products */
    uint64_t state_flops;
    int shares;              /* planes are another layer's, and none is kept */
    int heads, head_dim;     /* that attend to positions */
    int rotates;             /* queries and keys of heads are rotated or normed */
};

/* Of one operation of a layer. */
void ops_need(const struct model_hparams *h, int layer, enum op_kind kind, struct op_need *out);

/* Of a layer's attention or what it has in its place. */
void ops_mixer(const struct model_hparams *h, int layer, struct op_need *out);

/* Of all operations of these kinds, bits 1 << kind: the most of any, but planes and states of all together. */
#define OPS_ALL (~0u)
enum {
    OPS_MIXERS = 0
#define MIXER(kind, name, here) | 1 << OP_##kind
#include "common/model/operations.def"
};
void ops_most(const struct model_hparams *h, unsigned kinds, struct op_need *out);

/* 1: tokens can be taken back from every layer's state, where it has one. */
int ops_take_back(const struct model_hparams *h);

/* Which of the layers with keys and values, or with a state, a layer is, or the one whose keys and values it attends to:
 * out[model_depth]. */
void ops_places(const struct model_hparams *h, int *out);

/* Each operation's own; those that need nothing have none. h: as its layer has it (model_of_layer). */
#define MIXER(kind, name, here) void name##_need(const struct model_hparams *h, int layer, struct op_need *out);
#include "common/model/operations.def"
void latent_need(const struct model_hparams *h, struct op_need *out);
void ffn_need(const struct model_hparams *h, int layer, struct op_need *out);
void embed_need(const struct model_hparams *h, int layer, struct op_need *out);
void layer_embd_need(const struct model_hparams *h, int layer, struct op_need *out);
void join_need(const struct model_hparams *h, int layer, struct op_need *out);

#endif
