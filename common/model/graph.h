#ifndef COMMON_MODEL_GRAPH_H
#define COMMON_MODEL_GRAPH_H

/* One graph of a model: which operations each layer has, in which order, and which tensors belong to each. It follows from
 * hyper-parameters alone. It describes and does not interpret: the dense pass (common/offline/forward.c) and the runtime's
 * (runtime/engine/engine_forward.c) walk the same list, and each keeps its own run of an operation, for one is the oracle of the other.
 * What stays in memory, the cost model's rows and jobs, and what an accelerator may take come from the table of roles.
 *
 *   OP_ROUTE        x -> r           routers that see the residual which enters the layer
 *   OP_ATTN_NORM    x -> n           what attention sees
 *   OP_ATTENTION    n -> a           plain or latent; in recurrent layers OP_CONV, OP_SSM, OP_DELTA or OP_WKV
 *   OP_ADD          x, a -> x
 *   OP_FFN_NORM     x -> f
 *   OP_SHIFT        f -> f           RWKV: mixed with that of the token before
 *   OP_ROUTE        f -> r           other routers
 *   OP_FFN          x, f, r -> x     one operation, which norms and adds what it gives by itself; what it will read is announced before the
 *                                    first operation of its layer
 *   OP_LAYER_EMBD   x -> x           where a token has an embedding for each layer
 *   OP_SCALE        x -> x           where what leaves the layer has a factor
 *
 * Where attention and FFN go beside each other (model_hparams.parallel), OP_ATTN_NORM_2 gives n, with the weights of OP_ATTN_NORM where the
 * file has no others, and OP_ATTN_NORM gives f, before OP_ADD. Blocks of one sublayer end with OP_ADD, or begin with OP_FFN_NORM. Pure
 * functions; thread-safe. */
#include "common/model/hparams.h"
#include "common/model/model_role.h"

#include <stdint.h>

/* Those of a layer in the order of the table of roles, which has what precedes and follows all layers first and last. */
enum op_kind {
#define OP(kind, name) OP_##kind,
#include "common/model/operations.def"
    OP_KINDS
};
enum op_value { OP_NOTHING, OP_X, OP_N, OP_A, OP_F, OP_R, OP_LOGITS };

struct graph_role {
    uint8_t kind;              /* enum op_kind, to which it belongs */
    uint8_t role;              /* enum model_role */
    uint8_t job;               /* of a matrix of row products that stays in memory: the first role of its job; else 0 */
    uint8_t times;             /* jobs that the tensor is by itself, where not one */
    uint8_t host;              /* products that no accelerator takes: of each head, routers */
};

/* Every role but predictors, each once. */
#define GRAPH_PRODUCTS 48      /* of them have a job, at most */
extern const struct graph_role graph_roles[];
extern const int graph_n_roles;

struct op {
    uint8_t kind, in[3], out;  /* enum op_kind, enum op_value; in: OP_NOTHING beyond the last */
    uint8_t role_first, n_roles; /* of graph_roles; a model may lack some (model_role_at) */
};

#define GRAPH_LAYER_OPS 10
struct graph_layer {
    struct op op[GRAPH_LAYER_OPS];
    int n;
};

/* The operations of a layer in their order; of layer -1 those before and after all layers. */
void graph_layer(const struct model_hparams *h, int layer, struct graph_layer *out);

/* The layer's OP_ATTENTION, or what it has in its place; OP_KINDS: it has a FFN alone. */
enum op_kind graph_mixer(const struct model_hparams *h, int layer);

/* Elements of the longest input of a product that stays in memory. */
uint64_t graph_widest(const struct model_hparams *h);

const char *graph_op_name(enum op_kind k); /* "attention" */

#endif
